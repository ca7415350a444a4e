/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What counts as an installed disk. */

#include <glib/gstdio.h>
#include <string.h>

#include "disk-kit.h"
#include "test-await.h"
#include "vmm-installed-disk.h"

#define SECTOR 512

static void
assert_fault (const guint8 *disk, gsize size, const char *fault)
{
  g_autofree char *directory = test_make_directory ();
  g_autofree char *path = g_build_filename (directory, "disk", NULL);
  g_autoptr (VmmVolume) volume = NULL;
  g_autoptr (GAsyncResult) result = NULL;
  g_autoptr (GError) error = NULL;
  TestAwait await = TEST_AWAIT_INIT;

  g_assert_true (g_file_set_contents (path, (const char *) disk, (gssize) size, NULL));
  volume = vmm_volume_new ("disk", path, -1, size, FALSE, FALSE);
  vmm_installed_disk_check_async (volume, test_await_cb, &await);
  result = test_await (&await);
  g_assert_cmpint (vmm_installed_disk_check_finish (result, &error), ==, fault == NULL);
  g_assert_cmpstr (error != NULL ? error->message : NULL, ==, fault);
  test_remove_directory (g_steal_pointer (&directory));
}

static void
test_installed (void)
{
  g_autofree guint8 *disk = disk_kit_new ();

  assert_fault (disk, DISK_KIT_SIZE, NULL);
  /* FAT16 says it elsewhere. */
  memset (disk + DISK_KIT_ESP + 82, 0, 8);
  memcpy (disk + DISK_KIT_ESP + 54, "FAT16   ", 8);
  assert_fault (disk, DISK_KIT_SIZE, NULL);
}

/* A byte at an offset makes the fault. */
static void
test_faults (void)
{
  static const struct
  {
    gsize offset;
    guint8 value;
    const char *fault;
  } rows[] = {
    { SECTOR, 'e', "it has no partition table" },
    { SECTOR + 72, 1, "its partition table is damaged" },
    { SECTOR + 72 + 7, 0x80, "its partition table is damaged" },
    { SECTOR + 72 + 6, 0x10, "its partition table is damaged" },
    { SECTOR + 80 + 3, 0xff, "its partition table is damaged" },
    { SECTOR + 84, 127, "its partition table is damaged" },
    { SECTOR + 84 + 3, 1, "its partition table is damaged" },
    { 2 * SECTOR + 128, 0, "it has no EFI system partition" },
    { 2 * SECTOR + 128 + 32 + 7, 0xff,
      "its EFI system partition has no file system" },
    { DISK_KIT_ESP + 511, 0, "its EFI system partition has no file system" },
    { DISK_KIT_ESP + 82, 'f', "its EFI system partition has no file system" },
  };

  for (guint i = 0; i < G_N_ELEMENTS (rows); i++)
    {
      g_autofree guint8 *disk = disk_kit_new ();

      disk[rows[i].offset] = rows[i].value;
      assert_fault (disk, DISK_KIT_SIZE, rows[i].fault);
    }
}

static void
test_short (void)
{
  g_autofree guint8 *disk = disk_kit_new ();

  assert_fault (disk, 0, "it has no partition table");
  assert_fault (disk, 2 * SECTOR, "its partition table is damaged");
  assert_fault (disk, DISK_KIT_ESP + 511, "its EFI system partition has no file system");
}

int
main (int argc, char **argv)
{
  g_test_init (&argc, &argv, G_TEST_OPTION_ISOLATE_DIRS, NULL);
  g_test_add_func ("/installed-disk/installed", test_installed);
  g_test_add_func ("/installed-disk/faults", test_faults);
  g_test_add_func ("/installed-disk/short", test_short);
  return g_test_run ();
}

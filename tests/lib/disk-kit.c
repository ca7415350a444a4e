/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What a disk looks like on which something was installed, as far as the daemon looks. */

#include "disk-kit.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#define SECTOR 512

guint8 *
disk_kit_new (void)
{
  static const guint8 esp[] = { 0x28, 0x73, 0x2a, 0xc1, 0x1f, 0xf8, 0xd2, 0x11,
                                0xba, 0x4b, 0x00, 0xa0, 0xc9, 0x3e, 0xc9, 0x3b };
  guint8 *disk = g_malloc0 (DISK_KIT_SIZE);
  guint8 *header = disk + SECTOR;
  guint8 *entries = disk + 2 * SECTOR;

  memcpy (header, "EFI PART", 8);
  header[72] = 2;   /* where the entries are */
  header[80] = 128; /* how many, */
  header[84] = 128; /* and of which size */
  memset (entries, 0x11, 16); /* some other partition before it */
  entries[32] = 34;
  memcpy (entries + 128, esp, sizeof esp);
  entries[128 + 32] = DISK_KIT_ESP / SECTOR;
  memcpy (disk + DISK_KIT_ESP + 82, "FAT32   ", 8);
  disk[DISK_KIT_ESP + 510] = 0x55;
  disk[DISK_KIT_ESP + 511] = 0xaa;
  return disk;
}

void
disk_kit_install (const char *path)
{
  g_autofree guint8 *disk = disk_kit_new ();
  int fd = open (path, O_WRONLY | O_CLOEXEC);

  g_assert_cmpint (fd, >=, 0);
  g_assert_cmpint (pwrite (fd, disk, DISK_KIT_SIZE, 0), ==, DISK_KIT_SIZE);
  close (fd);
}

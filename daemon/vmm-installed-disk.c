/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* A look at a disk for what every installed one has.
 *
 * QEMU's exit status says nothing about an installer whose end nobody watched: it is 0 for one that
 * rebooted and for one that gave up. What firmware needs to boot is looked for instead: a GUID
 * partition table (UEFI 2.10, 5.3) with an EFI system partition that holds a FAT file system. A guest
 * wrote all of it: no number is used before it was bounded.
 */

#include "config.h"

#include "vmm-installed-disk.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "interfaces/vmm-error.h"

#define SECTOR_SIZE 512
#define GPT_SIGNATURE "EFI PART"
#define GPT_ENTRIES_LBA 72
#define GPT_N_ENTRIES 80
#define GPT_ENTRY_SIZE 84
#define ENTRY_FIRST_LBA 32
#define ENTRY_SIZE_MIN 128
#define ENTRY_SIZE_MAX 4096
#define ENTRIES_MAX 1024
#define FAT_NAME 54   /* of FAT12 and FAT16, */
#define FAT32_NAME 82 /* and of FAT32 */
#define BOOT_SIGNATURE 510

/* C12A7328-F81F-11D2-BA4B-00A0C93EC93B, as it is on disk. */
static const guint8 esp_type[16] = { 0x28, 0x73, 0x2a, 0xc1, 0x1f, 0xf8, 0xd2, 0x11,
                                     0xba, 0x4b, 0x00, 0xa0, 0xc9, 0x3e, 0xc9, 0x3b };

static guint32
get_32 (const guint8 *data)
{
  guint32 value;

  memcpy (&value, data, sizeof value);
  return GUINT32_FROM_LE (value);
}

static guint64
get_64 (const guint8 *data)
{
  guint64 value;

  memcpy (&value, data, sizeof value);
  return GUINT64_FROM_LE (value);
}

/* A part that is not there is not read, either. */
static gboolean
read_at (int fd, guint64 offset, guint8 *data, gsize size)
{
  ssize_t n;

  if (offset > G_MAXINT64 - size)
    return FALSE;
  do
    n = pread (fd, data, size, (off_t) offset);
  while (n < 0 && errno == EINTR);
  return n == (ssize_t) size;
}

static gboolean
has_file_system (int fd, guint64 first_lba)
{
  guint8 sector[SECTOR_SIZE];

  return first_lba > 1 && first_lba <= G_MAXINT64 / SECTOR_SIZE
         && read_at (fd, first_lba * SECTOR_SIZE, sector, sizeof sector)
         && sector[BOOT_SIGNATURE] == 0x55 && sector[BOOT_SIGNATURE + 1] == 0xaa
         && (memcmp (sector + FAT_NAME, "FAT", 3) == 0
             || memcmp (sector + FAT32_NAME, "FAT32", 5) == 0);
}

/* NULL when the disk is installed. */
static const char *
find_fault (int fd)
{
  guint8 header[SECTOR_SIZE];
  guint8 entry[ENTRY_SIZE_MIN];
  guint64 entries;
  guint32 n_entries;
  guint32 entry_size;
  gboolean has_partition = FALSE;

  if (!read_at (fd, SECTOR_SIZE, header, sizeof header)
      || memcmp (header, GPT_SIGNATURE, strlen (GPT_SIGNATURE)) != 0)
    return "it has no partition table";
  entries = get_64 (header + GPT_ENTRIES_LBA);
  n_entries = get_32 (header + GPT_N_ENTRIES);
  entry_size = get_32 (header + GPT_ENTRY_SIZE);
  if (entries < 2 || entries > G_MAXINT64 / SECTOR_SIZE / 2 || n_entries > ENTRIES_MAX
      || entry_size < ENTRY_SIZE_MIN || entry_size > ENTRY_SIZE_MAX)
    return "its partition table is damaged";

  for (guint32 i = 0; i < n_entries; i++)
    {
      if (!read_at (fd, entries * SECTOR_SIZE + (guint64) i * entry_size, entry, sizeof entry))
        return "its partition table is damaged";
      if (memcmp (entry, esp_type, sizeof esp_type) != 0)
        continue;
      has_partition = TRUE;
      if (has_file_system (fd, get_64 (entry + ENTRY_FIRST_LBA)))
        return NULL;
    }
  return has_partition ? "its EFI system partition has no file system"
                       : "it has no EFI system partition";
}

static void
check_in_thread (GTask *task, gpointer source, gpointer task_data, GCancellable *cancellable)
{
  int fd = GPOINTER_TO_INT (task_data);
  const char *fault = find_fault (fd);

  close (fd);
  if (fault == NULL)
    g_task_return_boolean (task, TRUE);
  else
    g_task_return_error (task, vmm_error_new (VMM_ERROR_INTERNAL, "%s", fault));
}

void
vmm_installed_disk_check_async (VmmVolume *volume, GAsyncReadyCallback callback,
                                gpointer user_data)
{
  g_autoptr (GTask) task = g_task_new (NULL, NULL, callback, user_data);
  const char *path = vmm_volume_get_path (volume);
  int fd = path != NULL ? open (path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)
                        : fcntl (vmm_volume_get_fd (volume), F_DUPFD_CLOEXEC, 3);

  g_task_set_source_tag (task, vmm_installed_disk_check_async);
  if (fd < 0)
    {
      g_task_return_error (task, vmm_error_new (VMM_ERROR_INTERNAL, "it cannot be read: %s",
                                                g_strerror (errno)));
      return;
    }
  g_task_set_task_data (task, GINT_TO_POINTER (fd), NULL);
  g_task_run_in_thread (task, check_in_thread);
}

gboolean
vmm_installed_disk_check_finish (GAsyncResult *result, GError **error)
{
  return g_task_propagate_boolean (G_TASK (result), error);
}

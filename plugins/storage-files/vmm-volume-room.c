/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Whether there is room for a volume.
 *
 * An allocated volume takes all its bytes at once and needs them free. A sparse one may promise
 * more than is free today: thirty guests with twenty gigabytes each, of which they use two, are the
 * usual case. It is refused when it could never be filled (larger than the whole file system), or
 * when the file system is so full that the guest would stop while it is being installed.
 */

#include "vmm-volume-room.h"

#include <sys/statvfs.h>

#include "interfaces/vmm-error.h"

gboolean
vmm_volume_room_read (int folder_fd, VmmVolumeRoom *room)
{
  struct statvfs status;

  if (fstatvfs (folder_fd, &status) != 0)
    return FALSE;

  room->total = (guint64) status.f_blocks * status.f_frsize;
  room->available = (guint64) status.f_bavail * status.f_frsize;
  return TRUE;
}

gboolean
vmm_volume_room_check (const VmmVolumeRoom *room, const char *name, guint64 size_bytes,
                       guint64 addition, gboolean allocated, GError **error)
{
  const guint64 needed = allocated ? addition : MIN (addition, VMM_VOLUME_SPARSE_FLOOR);
  g_autofree char *wanted = g_format_size_full (size_bytes, G_FORMAT_SIZE_IEC_UNITS);
  g_autofree char *total = g_format_size_full (room->total, G_FORMAT_SIZE_IEC_UNITS);
  g_autofree char *available = g_format_size_full (room->available, G_FORMAT_SIZE_IEC_UNITS);
  g_autofree char *least = g_format_size_full (needed, G_FORMAT_SIZE_IEC_UNITS);

  if (size_bytes > room->total)
    {
      vmm_set_error (error, VMM_ERROR_CONFLICT,
                     "volume %s: %s can never fit on a file system of %s: choose a smaller disk",
                     name, wanted, total);
      return FALSE;
    }
  if (needed > room->available)
    {
      vmm_set_error (
          error, VMM_ERROR_CONFLICT,
          "volume %s: no space left: %s needs at least %s free, there is %s: make room or "
          "choose a smaller disk",
          name, wanted, least, available);
      return FALSE;
    }
  return TRUE;
}

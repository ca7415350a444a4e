/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The folder of volumes: entries `<name>.volume`, their removal and their list.
 *
 * Also what the other files of this plugin share: how errors of system calls read. Nothing here
 * follows links.
 */

#include "vmm-volume-folder.h"

#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <linux/fs.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "interfaces/vmm-error.h"

#define FOLDER_MODE 0750
#define STAT_BLOCK_SIZE 512
#define SUFFIX ".volume"

/* Closes without changing errno. */
void
vmm_volume_close_fd (int fd)
{
  int saved = errno;

  if (fd >= 0)
    close (fd);
  errno = saved;
}

char *
vmm_volume_entry_name (const char *name)
{
  return g_strconcat (name, SUFFIX, NULL);
}

void
vmm_volume_set_errno_error (GError **error, const char *name, const char *what)
{
  int number = errno;

  switch (number)
    {
    case ENOENT:
      vmm_set_error (error, VMM_ERROR_NOT_FOUND, "volume %s", name);
      return;
    case EEXIST:
      vmm_set_error (error, VMM_ERROR_CONFLICT, "volume %s exists", name);
      return;
    case EACCES:
    case EPERM:
    case EROFS:
      vmm_set_error (error, VMM_ERROR_CONFLICT, "volume %s is read-only", name);
      return;
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
      vmm_set_error (error, VMM_ERROR_CONFLICT, "volume %s: %s: no space left: %s", name, what,
                     g_strerror (number));
      return;
    case EOPNOTSUPP:
      vmm_set_error (error, VMM_ERROR_UNSUPPORTED,
                     "volume %s: %s: the file system cannot do it: %s", name, what,
                     g_strerror (number));
      return;
    default:
      vmm_set_error (error, VMM_ERROR_INTERNAL, "volume %s: %s: %s", name, what,
                     g_strerror (number));
    }
}

gboolean
vmm_volume_is_volume_type (mode_t mode)
{
  return S_ISREG (mode) || S_ISBLK (mode);
}

int
vmm_volume_folder_open (const VmmVolumeFolder *folder)
{
  return open (folder->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

gboolean
vmm_volume_folder_share (const VmmVolumeFolder *folder, int folder_fd)
{
  struct stat status;

  if (!folder->has_owner)
    return TRUE;
  if (fstat (folder_fd, &status) != 0)
    return FALSE;
  if (status.st_uid != geteuid () || status.st_gid != getegid () || status.st_gid == folder->gid
      || (status.st_mode & S_IXOTH) != 0)
    return TRUE;
  return fchown (folder_fd, (uid_t) -1, folder->gid) == 0
         && fchmod (folder_fd, (status.st_mode & 07777) | S_IXGRP) == 0;
}

int
vmm_volume_folder_make (const VmmVolumeFolder *folder, GError **error)
{
  int fd = -1;

  if (g_mkdir_with_parents (folder->path, FOLDER_MODE) == 0)
    fd = vmm_volume_folder_open (folder);
  if (fd >= 0)
    return fd;

  vmm_set_error (error, VMM_ERROR_INTERNAL, "create %s: %s", folder->path, g_strerror (errno));
  return -1;
}

static gboolean
remove_entry (int folder_fd, const char *name, GError **error)
{
  g_autofree char *entry = vmm_volume_entry_name (name);

  if (unlinkat (folder_fd, entry, 0) != 0
      && ((errno != EISDIR && errno != EPERM) || unlinkat (folder_fd, entry, AT_REMOVEDIR) != 0))
    {
      if (errno == ENOTEMPTY || errno == EEXIST)
        vmm_set_error (error, VMM_ERROR_UNSUPPORTED,
                       "volume %s is a directory volume, which vm-manager does not manage", name);
      else
        vmm_volume_set_errno_error (error, name, "remove");
      return FALSE;
    }
  if (fsync (folder_fd) == 0)
    return TRUE;

  vmm_volume_set_errno_error (error, name, "write to disk");
  return FALSE;
}

gboolean
vmm_volume_folder_remove (const VmmVolumeFolder *folder, const char *name, GError **error)
{
  gboolean removed;
  int folder_fd;

  if (!vmm_volume_name_is_valid (name, error))
    return FALSE;
  folder_fd = vmm_volume_folder_open (folder);
  if (folder_fd < 0)
    {
      vmm_volume_set_errno_error (error, name, "open the folder");
      return FALSE;
    }

  removed = remove_entry (folder_fd, name, error);
  vmm_volume_close_fd (folder_fd);
  return removed;
}

static guint64
device_size (int folder_fd, const char *entry)
{
  guint64 size = 0;
  int fd = openat (folder_fd, entry, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);

  if (fd < 0 || ioctl (fd, BLKGETSIZE64, &size) != 0)
    size = 0;
  vmm_volume_close_fd (fd);
  return size;
}

/* NULL for what is no volume. */
static VmmVolumeInfo *
describe_entry (int folder_fd, const char *entry, const char *glob)
{
  g_autofree char *name = NULL;
  struct stat status;
  guint64 size;

  if (!g_str_has_suffix (entry, SUFFIX))
    return NULL;
  name = g_strndup (entry, strlen (entry) - strlen (SUFFIX));
  if (!vmm_volume_name_is_valid (name, NULL) || fnmatch (glob, name, 0) != 0
      || fstatat (folder_fd, entry, &status, AT_SYMLINK_NOFOLLOW) != 0
      || !vmm_volume_is_volume_type (status.st_mode))
    return NULL;

  size = S_ISBLK (status.st_mode) ? device_size (folder_fd, entry) : (guint64) status.st_size;
  return vmm_volume_info_new (
      name, size, S_ISBLK (status.st_mode) ? size : (guint64) status.st_blocks * STAT_BLOCK_SIZE,
      (status.st_mode & S_IWUSR) == 0);
}

static int
compare_names (gconstpointer a, gconstpointer b)
{
  const VmmVolumeInfo *const *first = a;
  const VmmVolumeInfo *const *second = b;

  return strcmp ((*first)->name, (*second)->name);
}

GPtrArray *
vmm_volume_folder_list (const VmmVolumeFolder *folder, const char *glob, GCancellable *cancellable,
                        GError **error)
{
  g_autoptr (GPtrArray) volumes
      = g_ptr_array_new_with_free_func ((GDestroyNotify) vmm_volume_info_free);
  g_autoptr (GDir) dir = NULL;
  const char *entry;
  int folder_fd = vmm_volume_folder_open (folder);

  /* No volume has been made yet. */
  if (folder_fd < 0 && errno == ENOENT)
    return g_steal_pointer (&volumes);

  dir = folder_fd >= 0 ? g_dir_open (folder->path, 0, NULL) : NULL;
  if (dir == NULL)
    {
      vmm_set_error (error, VMM_ERROR_INTERNAL, "list %s: %s", folder->path, g_strerror (errno));
      vmm_volume_close_fd (folder_fd);
      return NULL;
    }

  while ((entry = g_dir_read_name (dir)) != NULL && !g_cancellable_is_cancelled (cancellable))
    {
      VmmVolumeInfo *info = describe_entry (folder_fd, entry, glob);

      if (info != NULL)
        g_ptr_array_add (volumes, info);
    }
  vmm_volume_close_fd (folder_fd);
  if (g_cancellable_set_error_if_cancelled (cancellable, error))
    return NULL;
  g_ptr_array_sort (volumes, compare_names);
  return g_steal_pointer (&volumes);
}

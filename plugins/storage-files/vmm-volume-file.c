/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Files as volumes: `<folder>/<name>.volume`.
 *
 * A new file has no name until it is complete: it is made without one, sized, written to disk and
 * then linked, which fails when the name is taken. A daemon that is killed on the way leaves
 * nothing behind. Where the file system cannot do that, the file is made under its name and removed
 * again when something fails.
 *
 * Links are not followed, and nothing but regular files and block devices is opened, so that a name
 * in the folder is all that has to be trusted. QEMU locks the file itself; we do not.
 */

#include "vmm-volume-file.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "interfaces/vmm-error.h"
#include "vmm-volume-folder.h"
#include "vmm-volume-room.h"

#define FILE_MODE 0600
/* Room is set aside in pieces, so that a cancel does not wait for all of it. */
#define ALLOCATION_STEP (G_GINT64_CONSTANT (1) << 30)
#define STAT_BLOCK_SIZE 512

#define TEMPLATE_SPARSE "sparse-file"
#define TEMPLATE_ALLOCATED "allocated-file"

static const char *
type_text (mode_t mode)
{
  switch (mode & S_IFMT)
    {
    case S_IFDIR:
      return "directory";
    case S_IFLNK:
      return "symbolic link";
    case S_IFCHR:
      return "character device";
    case S_IFIFO:
      return "FIFO";
    case S_IFSOCK:
      return "socket";
    default:
      return "thing of another kind";
    }
}

static gboolean
check_type (const char *name, mode_t mode, GError **error)
{
  if (vmm_volume_is_volume_type (mode))
    return TRUE;

  vmm_set_error (error, VMM_ERROR_UNSUPPORTED,
                 "volume %s is a %s, not a regular file or block device", name, type_text (mode));
  return FALSE;
}

static gboolean
measure (int fd, const struct stat *status, guint64 *size_bytes)
{
  if (!S_ISBLK (status->st_mode))
    {
      *size_bytes = (guint64) status->st_size;
      return TRUE;
    }
  return ioctl (fd, BLKGETSIZE64, size_bytes) == 0;
}

/* A file of the daemon's own, from a time when there was no account or put there by hand, is given
 * to the account. Not one that has another name, where it is somebody else's. */
static gboolean
give_to_owner (const VmmVolumeFolder *folder, int fd, const struct stat *status)
{
  if (!folder->has_owner || !S_ISREG (status->st_mode) || status->st_uid != geteuid ()
      || status->st_nlink != 1)
    return TRUE;
  return fchown (fd, folder->uid, folder->gid) == 0;
}

/* Opens what is there. */
static gboolean
open_existing (const VmmVolumeFolder *folder, int folder_fd, const VmmVolumeRequest *request,
               VmmVolumeFile *file, GError **error)
{
  const int access_mode = request->read_only ? O_RDONLY : O_RDWR;
  g_autofree char *entry = vmm_volume_entry_name (request->name);
  struct stat status;

  /* Opening a device or a FIFO may have effects: look first. */
  if (fstatat (folder_fd, entry, &status, AT_SYMLINK_NOFOLLOW) != 0)
    {
      vmm_volume_set_errno_error (error, request->name, "look up");
      return FALSE;
    }
  if (!check_type (request->name, status.st_mode, error))
    return FALSE;
  /* Root may write everything: what the owner may not write is meant to stay as it is. */
  if (!request->read_only && S_ISREG (status.st_mode) && (status.st_mode & S_IWUSR) == 0)
    {
      vmm_set_error (error, VMM_ERROR_CONFLICT, "volume %s is read-only", request->name);
      return FALSE;
    }

  file->fd
      = openat (folder_fd, entry, access_mode | O_CLOEXEC | O_NOCTTY | O_NOFOLLOW | O_NONBLOCK);
  if (file->fd >= 0 && fstat (file->fd, &status) == 0 && vmm_volume_is_volume_type (status.st_mode)
      && measure (file->fd, &status, &file->size_bytes)
      && (request->read_only || give_to_owner (folder, file->fd, &status)))
    {
      file->is_block_device = S_ISBLK (status.st_mode);
      file->read_only = request->read_only;
      return TRUE;
    }
  vmm_volume_set_errno_error (error, request->name, "open");
  vmm_volume_close_fd (file->fd);
  file->fd = -1;
  return FALSE;
}

/* fallocate() and not posix_fallocate(): the latter would write zeros for minutes without a way to
 * stop it where the file system has no extents. */
static gboolean
allocate (int fd, const char *name, guint64 from, guint64 to, GCancellable *cancellable,
          GError **error)
{
  gint64 offset = (gint64) from;
  int result;

  while (offset < (gint64) to)
    {
      if (g_cancellable_set_error_if_cancelled (cancellable, error))
        return FALSE;
      do
        result = fallocate (fd, 0, offset, MIN (ALLOCATION_STEP, (gint64) to - offset));
      while (result != 0 && errno == EINTR);
      if (result != 0)
        {
          vmm_volume_set_errno_error (error, name, "allocate");
          return FALSE;
        }
      offset += ALLOCATION_STEP;
    }
  return TRUE;
}

/* Gives a new, empty file all it needs but its name. */
static gboolean
fill (const VmmVolumeFolder *folder, const VmmVolumeRequest *request, int fd,
      GCancellable *cancellable, GError **error)
{
  gboolean allocated = g_strcmp0 (request->template_name, TEMPLATE_ALLOCATED) == 0;

  if (fchmod (fd, FILE_MODE) != 0
      || (folder->has_owner && fchown (fd, folder->uid, folder->gid) != 0)
      || ftruncate (fd, (off_t) request->size_bytes) != 0)
    {
      vmm_volume_set_errno_error (error, request->name, "create");
      return FALSE;
    }
  if (allocated && !allocate (fd, request->name, 0, request->size_bytes, cancellable, error))
    return FALSE;
  if (g_cancellable_set_error_if_cancelled (cancellable, error))
    return FALSE;
  if (fsync (fd) == 0)
    return TRUE;

  vmm_volume_set_errno_error (error, request->name, "write to disk");
  return FALSE;
}

/* Gives the file without a name its name; that of the descriptor in /proc stands for it. */
static gboolean
link_file (int folder_fd, int fd, const char *entry)
{
  g_autofree char *source = g_strdup_printf ("/proc/self/fd/%d", fd);

  return linkat (AT_FDCWD, source, folder_fd, entry, AT_SYMLINK_FOLLOW) == 0;
}

/* A folder in which nothing can be made is no property of the volume. */
static void
set_create_error (GError **error, const VmmVolumeFolder *folder, const char *name)
{
  if (errno == EACCES || errno == EPERM || errno == EROFS)
    vmm_set_error (error, VMM_ERROR_INTERNAL, "volume %s: create in %s: %s", name, folder->path,
                   g_strerror (errno));
  else
    vmm_volume_set_errno_error (error, name, "create");
}

/* Where files without a name are not known. */
static gboolean
create_by_name (const VmmVolumeFolder *folder, int folder_fd, const VmmVolumeRequest *request,
                const char *entry, GCancellable *cancellable, GError **error)
{
  int fd = openat (folder_fd, entry, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, FILE_MODE);
  gboolean done;

  if (fd < 0)
    {
      set_create_error (error, folder, request->name);
      return FALSE;
    }

  done = fill (folder, request, fd, cancellable, error);
  if (!done)
    unlinkat (folder_fd, entry, 0);
  vmm_volume_close_fd (fd);
  return done;
}

static gboolean
create_file (const VmmVolumeFolder *folder, int folder_fd, const VmmVolumeRequest *request,
             GCancellable *cancellable, GError **error)
{
  g_autofree char *entry = vmm_volume_entry_name (request->name);
  int fd = openat (folder_fd, ".", O_RDWR | O_TMPFILE | O_CLOEXEC, FILE_MODE);
  gboolean done = FALSE;

  if (fd < 0 && (errno == EOPNOTSUPP || errno == EISDIR || errno == ENOENT))
    {
      done = create_by_name (folder, folder_fd, request, entry, cancellable, error);
    }
  else if (fd < 0)
    {
      set_create_error (error, folder, request->name);
    }
  else if (fill (folder, request, fd, cancellable, error))
    {
      done = link_file (folder_fd, fd, entry);
      if (!done)
        set_create_error (error, folder, request->name);
    }
  vmm_volume_close_fd (fd);
  if (!done)
    return FALSE;
  if (fsync (folder_fd) == 0)
    return TRUE;

  vmm_volume_set_errno_error (error, request->name, "write to disk");
  unlinkat (folder_fd, entry, 0);
  return FALSE;
}

static gboolean
check_new (int folder_fd, const VmmVolumeRequest *request, GError **error)
{
  gboolean allocated = g_strcmp0 (request->template_name, TEMPLATE_ALLOCATED) == 0;
  VmmVolumeRoom room;

  if (request->size_bytes == 0)
    {
      vmm_set_error (error, VMM_ERROR_INVALID_REQUEST,
                     "volume %s: a size is required to create a volume", request->name);
      return FALSE;
    }
  if (request->size_bytes > G_MAXINT64)
    {
      vmm_set_error (error, VMM_ERROR_INVALID_REQUEST, "volume %s: negative size", request->name);
      return FALSE;
    }
  if (!vmm_volume_room_read (folder_fd, &room))
    {
      vmm_volume_set_errno_error (error, request->name, "look for room");
      return FALSE;
    }
  return vmm_volume_room_check (&room, request->name, request->size_bytes, request->size_bytes,
                                allocated, error);
}

static gboolean
check_template (const VmmVolumeRequest *request, GError **error)
{
  const char *name = request->template_name;

  if (name == NULL || name[0] == '\0' || g_str_equal (name, TEMPLATE_SPARSE)
      || g_str_equal (name, TEMPLATE_ALLOCATED))
    return TRUE;

  vmm_set_error (error, VMM_ERROR_INVALID_REQUEST,
                 "volume %s: template \"%s\" not supported by the file provider", request->name,
                 name);
  return FALSE;
}

/* The last step of a creation, so that what could not be opened is not left behind. */
static gboolean
open_created (const VmmVolumeFolder *folder, int folder_fd, const VmmVolumeRequest *request,
              VmmVolumeFile *file, GError **error)
{
  g_autofree char *entry = NULL;

  if (open_existing (folder, folder_fd, request, file, error))
    return TRUE;

  entry = vmm_volume_entry_name (request->name);
  unlinkat (folder_fd, entry, 0);
  return FALSE;
}

static gboolean
acquire_in_folder (const VmmVolumeFolder *folder, int folder_fd, const VmmVolumeRequest *request,
                   GCancellable *cancellable, VmmVolumeFile *file, GError **error)
{
  g_autofree char *entry = vmm_volume_entry_name (request->name);
  struct stat status;
  gboolean exists = fstatat (folder_fd, entry, &status, AT_SYMLINK_NOFOLLOW) == 0;

  if (exists && request->mode == VMM_VOLUME_NEW)
    {
      vmm_set_error (error, VMM_ERROR_CONFLICT, "volume %s exists", request->name);
      return FALSE;
    }
  if (exists || request->mode == VMM_VOLUME_OPEN)
    return open_existing (folder, folder_fd, request, file, error);

  return check_new (folder_fd, request, error)
         && create_file (folder, folder_fd, request, cancellable, error)
         && open_created (folder, folder_fd, request, file, error);
}

gboolean
vmm_volume_file_acquire (const VmmVolumeFolder *folder, const VmmVolumeRequest *request,
                         GCancellable *cancellable, VmmVolumeFile *file, GError **error)
{
  gboolean acquired;
  int folder_fd;

  file->fd = -1;
  if (!vmm_volume_name_is_valid (request->name, error) || !check_template (request, error))
    return FALSE;

  if (request->mode == VMM_VOLUME_OPEN)
    {
      folder_fd = vmm_volume_folder_open (folder);
      if (folder_fd < 0)
        vmm_volume_set_errno_error (error, request->name, "open the folder");
    }
  else
    {
      folder_fd = vmm_volume_folder_make (folder, error);
    }
  if (folder_fd < 0)
    return FALSE;

  acquired = vmm_volume_folder_share (folder, folder_fd);
  if (acquired)
    acquired = acquire_in_folder (folder, folder_fd, request, cancellable, file, error);
  else
    vmm_volume_set_errno_error (error, request->name, "share the folder");
  vmm_volume_close_fd (folder_fd);
  return acquired;
}

static gboolean
check_room_to_grow (int folder_fd, const char *name, const struct stat *status, guint64 size_bytes,
                    gboolean allocated, GError **error)
{
  VmmVolumeRoom room;

  if (!vmm_volume_room_read (folder_fd, &room))
    {
      vmm_volume_set_errno_error (error, name, "look for room");
      return FALSE;
    }
  return vmm_volume_room_check (&room, name, size_bytes, size_bytes - (guint64) status->st_size,
                                allocated, error);
}

static gboolean
grow_file (int fd, const char *name, const struct stat *status, guint64 size_bytes,
           gboolean allocated, GCancellable *cancellable, GError **error)
{
  if (allocated && !allocate (fd, name, (guint64) status->st_size, size_bytes, cancellable, error))
    {
      /* Allocation has moved the end already: back to where it was, and the room with it. */
      if (ftruncate (fd, status->st_size) != 0 && error != NULL)
        g_prefix_error (error, "volume %s was left larger than it was: ", name);
      return FALSE;
    }
  if (ftruncate (fd, (off_t) size_bytes) == 0 && fsync (fd) == 0)
    return TRUE;

  vmm_volume_set_errno_error (error, name, "grow");
  return FALSE;
}

/* Whether this is already as large as asked for, or an error: of what cannot grow. */
static gboolean
check_growth (int fd, const char *name, const struct stat *status, guint64 size_bytes,
              gboolean *needed, GError **error)
{
  guint64 size;

  if (!measure (fd, status, &size))
    {
      vmm_volume_set_errno_error (error, name, "measure");
      return FALSE;
    }
  *needed = size_bytes > size;
  if (size_bytes < size)
    {
      vmm_set_error (error, VMM_ERROR_INVALID_REQUEST,
                     "volume %s: cannot shrink from %" G_GUINT64_FORMAT " to %" G_GUINT64_FORMAT
                     " bytes",
                     name, size, size_bytes);
      return FALSE;
    }
  if (*needed && S_ISBLK (status->st_mode))
    {
      vmm_set_error (error, VMM_ERROR_UNSUPPORTED, "volume %s is a block device, which cannot grow",
                     name);
      return FALSE;
    }
  return TRUE;
}

gboolean
vmm_volume_file_grow (const VmmVolumeFolder *folder, const char *name, int fd, guint64 size_bytes,
                      GCancellable *cancellable, GError **error)
{
  gboolean allocated, needed, grown;
  struct stat status;
  int folder_fd;

  if (size_bytes > G_MAXINT64)
    {
      vmm_set_error (error, VMM_ERROR_INVALID_REQUEST, "volume %s: negative size", name);
      return FALSE;
    }
  if (fstat (fd, &status) != 0)
    {
      vmm_volume_set_errno_error (error, name, "look up");
      return FALSE;
    }
  if (!check_growth (fd, name, &status, size_bytes, &needed, error))
    return FALSE;
  if (!needed)
    return TRUE;

  folder_fd = vmm_volume_folder_open (folder);
  if (folder_fd < 0)
    {
      vmm_volume_set_errno_error (error, name, "open the folder");
      return FALSE;
    }
  allocated = (guint64) status.st_blocks * STAT_BLOCK_SIZE >= (guint64) status.st_size;
  grown = check_room_to_grow (folder_fd, name, &status, size_bytes, allocated, error)
          && grow_file (fd, name, &status, size_bytes, allocated, cancellable, error);
  vmm_volume_close_fd (folder_fd);
  return grown;
}

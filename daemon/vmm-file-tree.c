/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Copies of large files, the removal of folders, and of what a killed daemon left in them.
 *
 * The first two take as long as the disk takes, so they only exist in a worker thread, look at their
 * cancellable between pieces and leave no half of a copy behind. */

#include "config.h"

#include "vmm-file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "vmm-file-private.h"

/* Between two looks at the cancellable. */
#define PIECE (8 * 1024 * 1024)
/* Folders of ours are three levels deep; this only stops what somebody else has put there. */
#define MAX_TREE_DEPTH 64

typedef struct
{
  char *from;
  char *to;
  guint mode;
} CopyJob;

typedef struct
{
  char *path;
  char *last; /* what goes after all else, NULL for nothing */
} RemoveJob;

typedef struct
{
  int from;
  int to;
  off_t size;
  gboolean in_kernel;
  GCancellable *cancellable;
  const char *path;
} Copy;

static void
copy_job_free (gpointer data)
{
  CopyJob *job = data;

  g_free (job->from);
  g_free (job->to);
  g_free (job);
}

/* Through a buffer, for file systems between which the kernel does not copy. */
static ssize_t
copy_by_hand (Copy *copy, off_t at, gsize length)
{
  g_autofree char *buffer = g_malloc (MIN (length, 256 * 1024));
  ssize_t count = pread (copy->from, buffer, MIN (length, 256 * 1024), at);

  if (count > 0
      && (lseek (copy->to, at, SEEK_SET) < 0
          || !vmm_file_write_all (copy->to, buffer, (gsize) count)))
    return -1;
  return count;
}

static ssize_t
copy_piece (Copy *copy, off_t at, gsize length)
{
  off_t in = at;
  off_t out = at;
  ssize_t count;

  if (!copy->in_kernel)
    return copy_by_hand (copy, at, length);
  count = copy_file_range (copy->from, &in, copy->to, &out, length, 0);
  /* Some kernels answer 0 where they cannot: then reading decides whether the file ended. */
  if (count > 0
      || (count < 0 && errno != EXDEV && errno != EINVAL && errno != ENOSYS && errno != EOPNOTSUPP
          && errno != EPERM))
    return count;
  copy->in_kernel = FALSE;
  return copy_by_hand (copy, at, length);
}

static gboolean
copy_extent (Copy *copy, off_t at, off_t end, GError **error)
{
  while (at < end)
    {
      ssize_t count;

      if (g_cancellable_set_error_if_cancelled (copy->cancellable, error))
        return FALSE;
      count = copy_piece (copy, at, (gsize) MIN (end - at, PIECE));
      if (count < 0 && errno == EINTR)
        continue;
      if (count < 0)
        return vmm_file_fail (error, "copy to", copy->path, errno);
      /* The file became shorter meanwhile. */
      if (count == 0)
        break;
      at += count;
    }
  return TRUE;
}

/* All but the holes; a reflink when the file system has it. */
static gboolean
copy_content (Copy *copy, GError **error)
{
  off_t at = 0;

  if (ioctl (copy->to, FICLONE, copy->from) == 0)
    return TRUE;
  if (ftruncate (copy->to, copy->size) != 0)
    return vmm_file_fail (error, "copy to", copy->path, errno);
  while (at < copy->size)
    {
      off_t data = lseek (copy->from, at, SEEK_DATA);
      off_t hole;

      if (data < 0 && errno == ENXIO)
        break;
      if (data < 0)
        return copy_extent (copy, at, copy->size, error);
      hole = lseek (copy->from, data, SEEK_HOLE);
      if (hole < 0)
        hole = copy->size;
      if (!copy_extent (copy, data, MIN (hole, copy->size), error))
        return FALSE;
      at = hole;
    }
  return TRUE;
}

/* Never replaces what is there. */
static gboolean
give_name (int folder, const char *temporary, const char *name)
{
  struct stat status;

  if (renameat2 (folder, temporary, folder, name, RENAME_NOREPLACE) == 0)
    return TRUE;
  if (errno != EINVAL && errno != ENOSYS)
    return FALSE;
  /* File systems without the flag: we are the only one who writes below the state directory. */
  if (fstatat (folder, name, &status, AT_SYMLINK_NOFOLLOW) == 0)
    {
      errno = EEXIST;
      return FALSE;
    }
  return renameat (folder, temporary, folder, name) == 0;
}

static gboolean
copy_into_folder (Copy *copy, int folder, const char *name, guint mode, GError **error)
{
  g_autofree char *temporary = NULL;
  gboolean good;

  copy->to = vmm_file_open_temporary (folder, name, mode, &temporary);
  if (copy->to < 0)
    return vmm_file_fail (error, "copy to", copy->path, errno);
  good = copy_content (copy, error)
         && (fsync (copy->to) == 0 || vmm_file_fail (error, "copy to", copy->path, errno));
  if (close (copy->to) != 0 && good)
    good = vmm_file_fail (error, "copy to", copy->path, errno);
  if (good && !give_name (folder, temporary, name))
    good = vmm_file_fail (error, "copy to", copy->path, errno);
  if (!good)
    unlinkat (folder, temporary, 0);
  else
    (void) fsync (folder);
  return good;
}

static gboolean
copy_file (CopyJob *job, GCancellable *cancellable, GError **error)
{
  Copy copy = { .to = -1, .in_kernel = TRUE, .cancellable = cancellable, .path = job->to };
  g_autofree char *name = NULL;
  struct stat status;
  gboolean good = FALSE;
  int folder;

  /* The source may be a link: firmware and images are installed so. */
  copy.from = open (job->from, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (copy.from < 0)
    return vmm_file_fail (error, "open", job->from, errno);
  if (fstat (copy.from, &status) != 0 || !S_ISREG (status.st_mode))
    {
      g_set_error (error, G_IO_ERROR, G_IO_ERROR_NOT_REGULAR_FILE, "copy %s: not a regular file",
                   job->from);
      close (copy.from);
      return FALSE;
    }
  copy.size = status.st_size;
  folder = vmm_file_open_folder (job->to, &name, error);
  if (folder >= 0)
    {
      good = copy_into_folder (&copy, folder, name, job->mode, error);
      close (folder);
    }
  close (copy.from);
  return good;
}

static void
copy_thread (GTask *task, gpointer source, gpointer task_data, GCancellable *cancellable)
{
  GError *error = NULL;

  if (copy_file (task_data, cancellable, &error))
    g_task_return_boolean (task, TRUE);
  else
    g_task_return_error (task, error);
}

void
vmm_file_copy_async (const char *from, const char *to, guint mode, GCancellable *cancellable,
                     GAsyncReadyCallback callback, gpointer user_data)
{
  g_autoptr (GTask) task = NULL;
  CopyJob *job;

  g_return_if_fail (from != NULL);
  g_return_if_fail (to != NULL);

  job = g_new0 (CopyJob, 1);
  job->from = g_strdup (from);
  job->to = g_strdup (to);
  job->mode = mode;
  task = g_task_new (NULL, cancellable, callback, user_data);
  g_task_set_source_tag (task, vmm_file_copy_async);
  g_task_set_check_cancellable (task, FALSE);
  g_task_set_task_data (task, job, copy_job_free);
  g_task_run_in_thread (task, copy_thread);
}

gboolean
vmm_file_copy_finish (GAsyncResult *result, GError **error)
{
  g_return_val_if_fail (g_task_is_valid (result, NULL), FALSE);

  return g_task_propagate_boolean (G_TASK (result), error);
}

static gboolean remove_entry (int folder, const char *name, guint depth, GCancellable *cancellable,
                              GError **error);

/* Takes the descriptor. All that can be removed is, the first failure is told. */
static gboolean
remove_entries (int fd, const char *but, guint depth, GCancellable *cancellable, GError **error)
{
  DIR *folder = fdopendir (fd);
  struct dirent *entry;
  gboolean good = TRUE;

  if (folder == NULL)
    {
      vmm_file_fail (error, "remove", "folder", errno);
      close (fd);
      return FALSE;
    }
  while ((entry = readdir (folder)) != NULL)
    {
      if (g_str_equal (entry->d_name, ".") || g_str_equal (entry->d_name, "..")
          || g_strcmp0 (entry->d_name, but) == 0)
        continue;
      if (!remove_entry (dirfd (folder), entry->d_name, depth + 1, cancellable,
                         good ? error : NULL))
        good = FALSE;
    }
  closedir (folder);
  return good;
}

/* A disk that cannot be written to says so first, also of what is not there. Leaves errno. */
static gboolean
is_absent (int folder, const char *name)
{
  int saved = errno;
  struct stat status;
  gboolean absent = fstatat (folder, name, &status, AT_SYMLINK_NOFOLLOW) != 0
                    && (errno == ENOENT || errno == ENOTDIR);

  errno = saved;
  return absent;
}

static gboolean
remove_entry (int folder, const char *name, guint depth, GCancellable *cancellable, GError **error)
{
  int fd;

  if (g_cancellable_set_error_if_cancelled (cancellable, error))
    return FALSE;
  if (unlinkat (folder, name, 0) == 0 || errno == ENOENT)
    return TRUE;
  if (errno != EISDIR && errno != EPERM)
    return is_absent (folder, name) || vmm_file_fail (error, "remove", name, errno);
  if (depth > MAX_TREE_DEPTH)
    return vmm_file_fail (error, "remove", name, ENAMETOOLONG);

  fd = openat (folder, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0)
    return vmm_file_fail (error, "remove", name, errno);
  if (!remove_entries (fd, NULL, depth, cancellable, error))
    return FALSE;
  return unlinkat (folder, name, AT_REMOVEDIR) == 0 || errno == ENOENT
         || vmm_file_fail (error, "remove", name, errno);
}

static void
remove_job_free (gpointer data)
{
  RemoveJob *job = data;

  g_free (job->path);
  g_free (job->last);
  g_free (job);
}

static gboolean
remove_all_but_last (RemoveJob *job, GCancellable *cancellable, GError **error)
{
  int fd;

  if (job->last == NULL)
    return TRUE;
  fd = open (job->path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  /* Absent or no folder: there is no order to keep. */
  return fd < 0 || remove_entries (fd, job->last, 0, cancellable, error);
}

static void
remove_thread (GTask *task, gpointer source, gpointer task_data, GCancellable *cancellable)
{
  RemoveJob *job = task_data;
  GError *error = NULL;

  if (remove_all_but_last (job, cancellable, &error)
      && remove_entry (AT_FDCWD, job->path, 0, cancellable, &error))
    g_task_return_boolean (task, TRUE);
  else
    {
      g_prefix_error (&error, "while removing %s: ", job->path);
      g_task_return_error (task, error);
    }
}

void
vmm_file_remove_tree_async (const char *path, const char *last, GCancellable *cancellable,
                            GAsyncReadyCallback callback, gpointer user_data)
{
  g_autoptr (GTask) task = NULL;
  RemoveJob *job;

  g_return_if_fail (path != NULL);

  job = g_new0 (RemoveJob, 1);
  job->path = g_strdup (path);
  job->last = g_strdup (last);
  task = g_task_new (NULL, cancellable, callback, user_data);
  g_task_set_source_tag (task, vmm_file_remove_tree_async);
  g_task_set_check_cancellable (task, FALSE);
  g_task_set_task_data (task, job, remove_job_free);
  g_task_run_in_thread (task, remove_thread);
}

gboolean
vmm_file_remove_tree_finish (GAsyncResult *result, GError **error)
{
  g_return_val_if_fail (g_task_is_valid (result, NULL), FALSE);

  return g_task_propagate_boolean (G_TASK (result), error);
}

/* Whether vmm_file_open_temporary() gives such names. */
static gboolean
is_temporary (const char *name)
{
  const char *dot = name[0] == '.' ? strrchr (name + 1, '.') : NULL;

  return dot != NULL && dot > name + 1 && strlen (dot + 1) == 8
         && strspn (dot + 1, "0123456789abcdef") == 8;
}

void
vmm_file_remove_temporaries (const char *path)
{
  int fd = open (path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  DIR *folder = fd >= 0 ? fdopendir (fd) : NULL;
  struct dirent *entry;
  struct stat status;

  if (folder == NULL)
    {
      if (fd >= 0)
        close (fd);
      return;
    }
  while ((entry = readdir (folder)) != NULL)
    {
      if (is_temporary (entry->d_name)
          && fstatat (fd, entry->d_name, &status, AT_SYMLINK_NOFOLLOW) == 0
          && S_ISREG (status.st_mode))
        unlinkat (fd, entry->d_name, 0);
    }
  closedir (folder);
}

/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Files that must be whole or not there.
 *
 * Every file of ours is replaced through a temporary one in its own folder, so that a crash or a
 * full disk leaves the old content. Reading refuses links and devices, because folders of a VM also
 * hold what other programs write. The asynchronous functions work in a thread on copies of their
 * arguments; calls for one path must follow each other, which is for the caller to see to. */

#include "config.h"

#include "vmm-file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "vmm-file-private.h"

typedef struct
{
  char *path;
  GBytes *content;
  guint mode;
  gsize limit;
} FileJob;

typedef struct
{
  GBytes *content;
  gboolean cut;
} Tail;

static void
file_job_free (gpointer data)
{
  FileJob *job = data;

  g_free (job->path);
  g_clear_pointer (&job->content, g_bytes_unref);
  g_free (job);
}

static void
tail_free (gpointer data)
{
  Tail *tail = data;

  g_clear_pointer (&tail->content, g_bytes_unref);
  g_free (tail);
}

gboolean
vmm_file_fail (GError **error, const char *verb, const char *path, int number)
{
  g_set_error (error, G_IO_ERROR, g_io_error_from_errno (number), "%s %s: %s", verb, path,
               g_strerror (number));
  return FALSE;
}

int
vmm_file_open_folder (const char *path, char **name, GError **error)
{
  g_autofree char *folder = g_path_get_dirname (path);
  int fd = open (folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

  if (fd < 0)
    vmm_file_fail (error, "open", folder, errno);
  else
    *name = g_path_get_basename (path);
  return fd;
}

/* A new file ".<name>.<random>" that is open for writing and has its mode already. */
int
vmm_file_open_temporary (int folder, const char *name, guint mode, char **temporary)
{
  int fd = -1;

  for (guint attempt = 0; fd < 0 && attempt < 16; attempt++)
    {
      g_autofree char *candidate = g_strdup_printf (".%s.%08x", name, g_random_int ());

      fd = openat (folder, candidate, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
      if (fd < 0 && errno != EEXIST)
        return -1;
      if (fd >= 0)
        *temporary = g_steal_pointer (&candidate);
    }
  if (fd >= 0 && fchmod (fd, mode) != 0)
    {
      int saved = errno;

      unlinkat (folder, *temporary, 0);
      close (fd);
      errno = saved;
      return -1;
    }
  return fd;
}

gboolean
vmm_file_write_all (int fd, const char *data, gsize length)
{
  while (length > 0)
    {
      ssize_t written = write (fd, data, length);

      if (written < 0 && errno == EINTR)
        continue;
      if (written < 0)
        return FALSE;
      data += written;
      length -= (gsize) written;
    }
  return TRUE;
}

/* Closing may be the first to tell of a failed write. */
static gboolean
finish_temporary (int fd, const char *content, gsize length)
{
  gboolean good = vmm_file_write_all (fd, content, length) && fsync (fd) == 0;
  int saved = errno;

  if (close (fd) != 0 && good)
    return FALSE;
  errno = saved;
  return good;
}

/* The first file of a new folder also makes the folder's own entry last. */
static void
sync_folder (int folder, gboolean is_first)
{
  int parent;

  /* Some file systems cannot do it; the rename itself has succeeded. */
  (void) fsync (folder);
  if (!is_first)
    return;
  parent = openat (folder, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (parent < 0)
    return;
  (void) fsync (parent);
  close (parent);
}

static gboolean
replace_in_folder (int folder, const char *name, const char *path, GBytes *content, guint mode,
                   GCancellable *cancellable, GError **error)
{
  g_autofree char *temporary = NULL;
  struct stat status;
  gboolean is_first = fstatat (folder, name, &status, AT_SYMLINK_NOFOLLOW) != 0;
  gsize length;
  const char *data = g_bytes_get_data (content, &length);
  int fd = vmm_file_open_temporary (folder, name, mode, &temporary);

  if (fd < 0)
    return vmm_file_fail (error, "write", path, errno);
  if (!finish_temporary (fd, data, length))
    {
      vmm_file_fail (error, "write", path, errno);
      unlinkat (folder, temporary, 0);
      return FALSE;
    }
  if (g_cancellable_set_error_if_cancelled (cancellable, error))
    {
      unlinkat (folder, temporary, 0);
      return FALSE;
    }
  if (renameat (folder, temporary, folder, name) != 0)
    {
      vmm_file_fail (error, "replace", path, errno);
      unlinkat (folder, temporary, 0);
      return FALSE;
    }
  sync_folder (folder, is_first);
  return TRUE;
}

static gboolean
replace_file (const char *path, GBytes *content, guint mode, GCancellable *cancellable,
              GError **error)
{
  g_autofree char *name = NULL;
  int folder = vmm_file_open_folder (path, &name, error);
  gboolean good;

  if (folder < 0)
    return FALSE;
  good = replace_in_folder (folder, name, path, content, mode, cancellable, error);
  close (folder);
  return good;
}

gboolean
vmm_file_replace (const char *path, const char *content, gsize length, guint mode, GError **error)
{
  g_autoptr (GBytes) bytes = NULL;

  g_return_val_if_fail (path != NULL, FALSE);
  g_return_val_if_fail (content != NULL || length == 0, FALSE);

  bytes = g_bytes_new_static (content, length);
  return replace_file (path, bytes, mode, NULL, error);
}

static void
replace_thread (GTask *task, gpointer source, gpointer task_data, GCancellable *cancellable)
{
  FileJob *job = task_data;
  GError *error = NULL;

  if (replace_file (job->path, job->content, job->mode, cancellable, &error))
    g_task_return_boolean (task, TRUE);
  else
    g_task_return_error (task, error);
}

/* What a thread did is reported as it is, also when a cancel came too late to stop it. */
static GTask *
new_task (gpointer tag, const char *path, GCancellable *cancellable, GAsyncReadyCallback callback,
          gpointer user_data, FileJob **job)
{
  GTask *task = g_task_new (NULL, cancellable, callback, user_data);

  *job = g_new0 (FileJob, 1);
  (*job)->path = g_strdup (path);
  g_task_set_source_tag (task, tag);
  g_task_set_check_cancellable (task, FALSE);
  g_task_set_task_data (task, *job, file_job_free);
  return task;
}

static void
run_unless_cancelled (GTask *task, GTaskThreadFunc function)
{
  GError *error = NULL;

  if (g_cancellable_set_error_if_cancelled (g_task_get_cancellable (task), &error))
    g_task_return_error (task, error);
  else
    g_task_run_in_thread (task, function);
}

void
vmm_file_replace_async (const char *path, GBytes *content, guint mode, GCancellable *cancellable,
                        GAsyncReadyCallback callback, gpointer user_data)
{
  g_autoptr (GTask) task = NULL;
  FileJob *job;

  g_return_if_fail (path != NULL);
  g_return_if_fail (content != NULL);

  task = new_task (vmm_file_replace_async, path, cancellable, callback, user_data, &job);
  job->content = g_bytes_ref (content);
  job->mode = mode;
  run_unless_cancelled (task, replace_thread);
}

gboolean
vmm_file_replace_finish (GAsyncResult *result, GError **error)
{
  g_return_val_if_fail (g_task_is_valid (result, NULL), FALSE);

  return g_task_propagate_boolean (G_TASK (result), error);
}

/* Opens what is a regular file and no link; never blocks on a pipe. */
static int
open_regular (const char *path, struct stat *status, GError **error)
{
  int fd = open (path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);

  if (fd < 0 && errno == ELOOP)
    {
      g_set_error (error, G_IO_ERROR, G_IO_ERROR_NOT_REGULAR_FILE, "read %s: is a symbolic link",
                   path);
      return -1;
    }
  if (fd < 0 || fstat (fd, status) != 0)
    {
      vmm_file_fail (error, "read", path, errno);
      if (fd >= 0)
        close (fd);
      return -1;
    }
  if (!S_ISREG (status->st_mode))
    {
      g_set_error (error, G_IO_ERROR, G_IO_ERROR_NOT_REGULAR_FILE, "read %s: not a regular file",
                   path);
      close (fd);
      return -1;
    }
  return fd;
}

/* Up to limit bytes from where the descriptor stands. */
static GBytes *
read_up_to (int fd, gsize expected, gsize limit, const char *path, GError **error)
{
  g_autoptr (GByteArray) content = g_byte_array_sized_new ((guint) MIN (expected + 1, limit));
  char buffer[16 * 1024];

  while (content->len < limit)
    {
      ssize_t count = read (fd, buffer, MIN (sizeof buffer, limit - content->len));

      if (count < 0 && errno == EINTR)
        continue;
      if (count < 0)
        {
          vmm_file_fail (error, "read", path, errno);
          return NULL;
        }
      if (count == 0)
        break;
      g_byte_array_append (content, (const guint8 *) buffer, (guint) count);
    }
  return g_byte_array_free_to_bytes (g_steal_pointer (&content));
}

GBytes *
vmm_file_read (const char *path, gsize limit, GError **error)
{
  g_autoptr (GBytes) content = NULL;
  struct stat status;
  int fd;

  g_return_val_if_fail (path != NULL, NULL);
  g_return_val_if_fail (limit < G_MAXUINT, NULL);

  fd = open_regular (path, &status, error);
  if (fd < 0)
    return NULL;
  /* One byte more tells a file that is too large, also when it grew meanwhile. */
  content = read_up_to (fd, MIN ((gsize) status.st_size, limit), limit + 1, path, error);
  close (fd);
  if (content == NULL)
    return NULL;
  if (g_bytes_get_size (content) > limit)
    {
      g_set_error (error, G_IO_ERROR, G_IO_ERROR_MESSAGE_TOO_LARGE,
                   "read %s: larger than %" G_GSIZE_FORMAT " bytes", path, limit);
      return NULL;
    }
  return g_steal_pointer (&content);
}

static Tail *
read_tail (const char *path, gsize limit, GError **error)
{
  g_autoptr (GBytes) content = NULL;
  struct stat status;
  Tail *tail;
  off_t start;
  int fd = open_regular (path, &status, error);

  if (fd < 0)
    return NULL;
  start = (gsize) status.st_size > limit ? status.st_size - (off_t) limit : 0;
  if (lseek (fd, start, SEEK_SET) < 0)
    vmm_file_fail (error, "read", path, errno);
  else
    content = read_up_to (fd, (gsize) (status.st_size - start), limit, path, error);
  close (fd);
  if (content == NULL)
    return NULL;

  tail = g_new0 (Tail, 1);
  tail->content = g_steal_pointer (&content);
  tail->cut = start > 0;
  return tail;
}

static void
read_tail_thread (GTask *task, gpointer source, gpointer task_data, GCancellable *cancellable)
{
  FileJob *job = task_data;
  GError *error = NULL;
  Tail *tail = read_tail (job->path, job->limit, &error);

  if (tail != NULL)
    g_task_return_pointer (task, tail, tail_free);
  else if (g_error_matches (error, G_IO_ERROR, G_IO_ERROR_NOT_FOUND))
    {
      g_clear_error (&error);
      g_task_return_pointer (task, NULL, NULL);
    }
  else
    g_task_return_error (task, error);
}

void
vmm_file_read_tail_async (const char *path, gsize limit, GCancellable *cancellable,
                          GAsyncReadyCallback callback, gpointer user_data)
{
  g_autoptr (GTask) task = NULL;
  FileJob *job;

  g_return_if_fail (path != NULL);
  g_return_if_fail (limit < G_MAXUINT);

  task = new_task (vmm_file_read_tail_async, path, cancellable, callback, user_data, &job);
  job->limit = limit;
  run_unless_cancelled (task, read_tail_thread);
}

GBytes *
vmm_file_read_tail_finish (GAsyncResult *result, gboolean *cut, GError **error)
{
  Tail *tail;
  GBytes *content;

  g_return_val_if_fail (g_task_is_valid (result, NULL), NULL);

  tail = g_task_propagate_pointer (G_TASK (result), error);
  if (cut != NULL)
    *cut = tail != NULL && tail->cut;
  if (tail == NULL)
    return NULL;
  content = g_steal_pointer (&tail->content);
  tail_free (tail);
  return content;
}

gboolean
vmm_file_make_directory (const char *path, guint mode, GError **error)
{
  g_autofree char *parent = NULL;
  struct stat status;

  g_return_val_if_fail (path != NULL, FALSE);

  if (mkdir (path, mode) == 0)
    /* The umask must not decide. */
    return chmod (path, mode) == 0 || vmm_file_fail (error, "create", path, errno);
  if (errno == ENOENT)
    {
      parent = g_path_get_dirname (path);
      if (g_str_equal (parent, path) || g_str_equal (parent, "."))
        return vmm_file_fail (error, "create", path, ENOENT);
      return vmm_file_make_directory (parent, mode, error)
             && (mkdir (path, mode) == 0 || errno == EEXIST
                 || vmm_file_fail (error, "create", path, errno));
    }
  if (errno == EEXIST && stat (path, &status) == 0)
    return S_ISDIR (status.st_mode) || vmm_file_fail (error, "create", path, ENOTDIR);
  return vmm_file_fail (error, "create", path, errno);
}

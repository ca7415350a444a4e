/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Files for guests.
 *
 * Opening and reading may take as long as a disk likes, so both are done elsewhere: each request has
 * one of them under way at most, and the threads take them in turn. What a guest names is looked up
 * below the descriptor of a folder; the kernel refuses every way out of it. */

#include "config.h"

#include "vmm-imds-disk.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define THREADS 4
#define OPEN_FLAGS (O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC)

struct _VmmImdsDisk
{
  char *artifacts;
  GThreadPool *pool;
};

struct _VmmImdsFile
{
  int fd;
  guint64 size;
};

typedef struct
{
  void (*run) (GTask *task);
  char *folder; /* NULL for a file of the daemon's own */
  char *name;
  char *artifacts;
  VmmImdsFile *file;
  guint64 offset;
  gsize length;
} Job;

static void
job_free (gpointer data)
{
  Job *job = data;

  g_free (job->folder);
  g_free (job->name);
  g_free (job->artifacts);
  g_clear_pointer (&job->file, vmm_imds_file_unref);
  g_free (job);
}

static void
run_job (gpointer data, gpointer user_data)
{
  g_autoptr (GTask) task = data;
  Job *job = g_task_get_task_data (task);

  job->run (task);
}

VmmImdsDisk *
vmm_imds_disk_new (const char *artifacts)
{
  VmmImdsDisk *self = g_atomic_rc_box_new0 (VmmImdsDisk);

  self->artifacts = g_strdup (artifacts);
  self->pool = g_thread_pool_new (run_job, NULL, THREADS, FALSE, NULL);
  return self;
}

VmmImdsDisk *
vmm_imds_disk_ref (VmmImdsDisk *self)
{
  return g_atomic_rc_box_acquire (self);
}

static void
disk_clear (gpointer data)
{
  VmmImdsDisk *self = data;

  /* What is under way ends by itself. */
  g_thread_pool_free (self->pool, FALSE, FALSE);
  g_free (self->artifacts);
}

void
vmm_imds_disk_unref (VmmImdsDisk *self)
{
  g_atomic_rc_box_release_full (self, disk_clear);
}

guint64
vmm_imds_file_get_size (VmmImdsFile *self)
{
  return self->size;
}

VmmImdsFile *
vmm_imds_file_ref (VmmImdsFile *self)
{
  return g_atomic_rc_box_acquire (self);
}

static void
file_clear (gpointer data)
{
  VmmImdsFile *file = data;

  close (file->fd);
}

void
vmm_imds_file_unref (VmmImdsFile *self)
{
  g_atomic_rc_box_release_full (self, file_clear);
}

/* Opening ------------------------------------------------------------------------------------- */

/* Where the kernel has no openat2 or a sandbox forbids it, links are not followed at all. */
static int
open_step_by_step (int root, const Job *job)
{
  int folder = openat (root, job->folder, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  int fd;
  int code;

  if (folder < 0)
    return -1;
  fd = openat (folder, job->name, OPEN_FLAGS | O_NOFOLLOW);
  code = errno;
  close (folder);
  errno = code;
  return fd;
}

static int
open_beneath (int root, const Job *job)
{
  g_autofree char *path = g_build_filename (job->folder, job->name, NULL);
  struct open_how how = {
    .flags = OPEN_FLAGS,
    .resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS,
  };
  int fd;

  /* A rename somewhere made the kernel unsure; there is no end to that only if renames do not end. */
  do
    fd = (int) syscall (SYS_openat2, root, path, &how, sizeof how);
  while (fd < 0 && errno == EAGAIN);
  if (fd < 0 && (errno == ENOSYS || errno == EPERM))
    return open_step_by_step (root, job);
  return fd;
}

static int
open_artifact (const Job *job)
{
  int root = open (job->artifacts, O_PATH | O_DIRECTORY | O_CLOEXEC);
  int fd;
  int code;

  if (root < 0)
    return -1;
  fd = open_beneath (root, job);
  code = errno;
  close (root);
  errno = code;
  return fd;
}

/* There is no such file, as far as a guest is concerned. */
static gboolean
means_absent (int code)
{
  return code == ENOENT || code == ENOTDIR || code == ELOOP || code == EXDEV || code == ENXIO
         || code == ENAMETOOLONG;
}

static gboolean
is_served (const Job *job, const struct stat *status)
{
  if (!S_ISREG (status->st_mode))
    return FALSE;
  /* A guest's QEMU makes files in the same folder: ours are those of one owner and one name. */
  return job->folder != NULL || (status->st_uid == geteuid () && status->st_nlink == 1);
}

static void
open_job (GTask *task)
{
  Job *job = g_task_get_task_data (task);
  int fd = job->folder != NULL ? open_artifact (job) : open (job->name, OPEN_FLAGS | O_NOFOLLOW);
  struct stat status;
  VmmImdsFile *file;
  int code = fd >= 0 && fstat (fd, &status) == 0 ? 0 : errno;

  if (code == 0 && !is_served (job, &status))
    code = ENOENT;
  if (code != 0)
    {
      if (fd >= 0)
        close (fd);
      g_task_return_new_error (task, G_IO_ERROR,
                               means_absent (code) ? (int) G_IO_ERROR_NOT_FOUND
                                                   : (int) g_io_error_from_errno (code),
                               "open %s: %s", job->name, g_strerror (code));
      return;
    }
  file = g_atomic_rc_box_new0 (VmmImdsFile);
  file->fd = fd;
  file->size = (guint64) status.st_size;
  g_task_return_pointer (task, file, (GDestroyNotify) vmm_imds_file_unref);
}

/* Takes the job. */
static void
push (VmmImdsDisk *self, Job *job, gpointer tag, GAsyncReadyCallback callback, gpointer user_data)
{
  GTask *task = g_task_new (NULL, NULL, callback, user_data);

  g_task_set_source_tag (task, tag);
  g_task_set_task_data (task, job, job_free);
  g_thread_pool_push (self->pool, task, NULL);
}

void
vmm_imds_disk_open_artifact_async (VmmImdsDisk *self, const char *folder, const char *name,
                                   GAsyncReadyCallback callback, gpointer user_data)
{
  Job *job = g_new0 (Job, 1);

  job->run = open_job;
  job->folder = g_strdup (folder);
  job->name = g_strdup (name);
  job->artifacts = g_strdup (self->artifacts);
  push (self, job, vmm_imds_disk_open_finish, callback, user_data);
}

void
vmm_imds_disk_open_own_async (VmmImdsDisk *self, const char *path, GAsyncReadyCallback callback,
                              gpointer user_data)
{
  Job *job = g_new0 (Job, 1);

  job->run = open_job;
  job->name = g_strdup (path);
  push (self, job, vmm_imds_disk_open_finish, callback, user_data);
}

VmmImdsFile *
vmm_imds_disk_open_finish (GAsyncResult *result, GError **error)
{
  g_return_val_if_fail (g_async_result_is_tagged (result, vmm_imds_disk_open_finish), NULL);

  return g_task_propagate_pointer (G_TASK (result), error);
}

/* Reading ------------------------------------------------------------------------------------- */

static void
read_job (GTask *task)
{
  Job *job = g_task_get_task_data (task);
  g_autofree guint8 *buffer = g_malloc (job->length);
  gsize have = 0;

  while (have < job->length)
    {
      gssize n = pread (job->file->fd, buffer + have, job->length - have,
                        (off_t) (job->offset + have));

      if (n < 0 && errno == EINTR)
        continue;
      if (n <= 0)
        {
          g_task_return_new_error (task, G_IO_ERROR, G_IO_ERROR_FAILED, "read: %s",
                                   n == 0 ? "the file became shorter" : g_strerror (errno));
          return;
        }
      have += (gsize) n;
    }
  g_task_return_pointer (task, g_bytes_new_take (g_steal_pointer (&buffer), have),
                         (GDestroyNotify) g_bytes_unref);
}

void
vmm_imds_disk_read_async (VmmImdsDisk *self, VmmImdsFile *file, guint64 offset, gsize length,
                          GAsyncReadyCallback callback, gpointer user_data)
{
  Job *job = g_new0 (Job, 1);

  job->run = read_job;
  job->file = vmm_imds_file_ref (file);
  job->offset = offset;
  job->length = length;
  push (self, job, vmm_imds_disk_read_async, callback, user_data);
}

GBytes *
vmm_imds_disk_read_finish (GAsyncResult *result, GError **error)
{
  g_return_val_if_fail (g_async_result_is_tagged (result, vmm_imds_disk_read_async), NULL);

  return g_task_propagate_pointer (G_TASK (result), error);
}

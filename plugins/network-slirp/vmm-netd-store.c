/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The files of one network on the disk.
 *
 * Everything here may wait for a slow disk and runs in a worker on copies. The folder is opened
 * once and everything is relative to it. vmm-netd can write there, and it faces guests: nothing is
 * followed that is a link, nothing is read that is not a small regular file. */

#include "vmm-netd-store.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "interfaces/vmm-error.h"
#include "vmm-netd-json.h"

#define FILE_MAX (4 * 1024 * 1024)
#define LOG_TAIL 4096
#define PREVIOUS_LOG "netd.prev.log"
#define TEMPORARY ".netd-%08x.json"
/* Made by vmm-netd, so that a folder has one. */
#define LOCK "netd.lock"

/* Those who run as the account can make files in the folder, and neither read what is not for them
 * nor replace what is root's, netd.json above all: it says which sockets vmm-netd may open. */
#define SHARED_FOLDER_MODE 01770
#define FOLDER_MODE 0750
#define SHARED_FILE_MODE 0640
#define FILE_MODE 0600

static struct
{
  gboolean exists;
  uid_t uid;
  gid_t gid;
} account;

typedef struct
{
  char *directory;
  char *text;
} Job;

static void
job_free (gpointer data)
{
  Job *job = data;

  g_free (job->directory);
  g_free (job->text);
  g_free (job);
}

static void
run (gpointer tag, const char *directory, char *text, GTaskThreadFunc func,
     GAsyncReadyCallback callback, gpointer user_data)
{
  g_autoptr (GTask) task = g_task_new (NULL, NULL, callback, user_data);
  Job *job = g_new0 (Job, 1);

  job->directory = g_strdup (directory);
  job->text = text;
  g_task_set_source_tag (task, tag);
  g_task_set_task_data (task, job, job_free);
  g_task_run_in_thread (task, func);
}

/* A file that should be there and is not is our own affair, not a thing that a caller did not find.
 */
static void
fail (GTask *task, const char *verb, const char *directory, const char *name, int number)
{
  g_task_return_error (task, vmm_error_new (VMM_ERROR_INTERNAL, "%s %s/%s: %s", verb, directory,
                                            name, g_strerror (number)));
}

static int
open_folder (const char *directory)
{
  return open (directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

/* At most limit bytes from an offset, or from the end when it is negative; NULL with errno. */
static char *
read_regular (int folder, const char *name, off_t limit, gboolean tail)
{
  g_autofree char *text = NULL;
  struct stat info;
  ssize_t size = -1;
  int fd = openat (folder, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);

  if (fd < 0)
    return NULL;
  errno = EINVAL;
  if (fstat (fd, &info) == 0 && S_ISREG (info.st_mode) && (tail || info.st_size <= limit))
    {
      off_t length = MIN (info.st_size, limit);

      text = g_malloc0 ((gsize) length + 1);
      size = pread (fd, text, (gsize) length, info.st_size - length);
    }
  if (size >= 0)
    text[size] = '\0';
  close (fd);
  return size >= 0 ? g_steal_pointer (&text) : NULL;
}

static gboolean
is_temporary (const char *name)
{
  guint number;
  g_autofree char *again = NULL;

  if (sscanf (name, TEMPORARY, &number) != 1)
    return FALSE;
  again = g_strdup_printf (TEMPORARY, number);
  return g_str_equal (name, again);
}

/* What a daemon that was killed while it wrote has left. */
static void
remove_temporaries (int folder)
{
  int copy = fcntl (folder, F_DUPFD_CLOEXEC, 0);
  DIR *entries = copy >= 0 ? fdopendir (copy) : NULL;
  const struct dirent *entry;

  while (entries != NULL && (entry = readdir (entries)) != NULL)
    if (is_temporary (entry->d_name))
      unlinkat (folder, entry->d_name, 0); /* it only takes room */
  if (entries != NULL)
    closedir (entries);
  else if (copy >= 0)
    close (copy);
}

static void
read_thread (GTask *task, gpointer source, gpointer data, GCancellable *cancellable)
{
  const Job *job = data;
  int folder = open_folder (job->directory);
  char *text;

  if (folder < 0)
    {
      fail (task, "open", job->directory, "", errno);
      return;
    }
  remove_temporaries (folder);
  text = read_regular (folder, VMM_NETD_STORE_FILE, FILE_MAX, FALSE);
  if (text == NULL && errno != ENOENT)
    fail (task, "read", job->directory, VMM_NETD_STORE_FILE, errno);
  else
    g_task_return_pointer (task, text, g_free);
  close (folder);
}

void
vmm_netd_store_read_async (const char *directory, GAsyncReadyCallback callback, gpointer user_data)
{
  run (vmm_netd_store_read_async, directory, NULL, read_thread, callback, user_data);
}

char *
vmm_netd_store_read_finish (GAsyncResult *result, GError **error)
{
  return g_task_propagate_pointer (G_TASK (result), error);
}

static gboolean
write_all (int fd, const char *text)
{
  gsize length = strlen (text);

  while (length > 0)
    {
      ssize_t written = write (fd, text, length);

      if (written < 0 && errno != EINTR)
        return FALSE;
      text += MAX (written, 0);
      length -= (gsize) MAX (written, 0);
    }
  return TRUE;
}

/* For the account to read, when there is one. */
static gboolean
set_mode (int fd)
{
  if (!account.exists)
    return fchmod (fd, FILE_MODE) == 0;
  return fchown (fd, (uid_t) -1, account.gid) == 0 && fchmod (fd, SHARED_FILE_MODE) == 0;
}

/* Closing may be the first to tell of a failed write. */
static gboolean
write_temporary (int folder, const char *name, const char *text)
{
  int fd = openat (folder, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
  gboolean good;
  int saved;

  if (fd < 0)
    return FALSE;
  good = set_mode (fd) && write_all (fd, text) && fsync (fd) == 0;
  saved = errno;
  if (close (fd) != 0 && good)
    return FALSE;
  errno = saved;
  return good;
}

static void
write_thread (GTask *task, gpointer source, gpointer data, GCancellable *cancellable)
{
  const Job *job = data;
  g_autofree char *temporary = g_strdup_printf (TEMPORARY, g_random_int ());
  int folder = open_folder (job->directory);

  if (folder < 0)
    {
      fail (task, "open", job->directory, "", errno);
      return;
    }
  if (write_temporary (folder, temporary, job->text)
      && renameat (folder, temporary, folder, VMM_NETD_STORE_FILE) == 0)
    {
      fsync (folder); /* some file systems cannot; the rename itself has succeeded */
      g_task_return_boolean (task, TRUE);
    }
  else
    {
      int saved = errno;

      unlinkat (folder, temporary, 0);
      fail (task, "write", job->directory, VMM_NETD_STORE_FILE, saved);
    }
  close (folder);
}

void
vmm_netd_store_write_async (const char *directory, char *text, GAsyncReadyCallback callback,
                            gpointer user_data)
{
  run (vmm_netd_store_write_async, directory, text, write_thread, callback, user_data);
}

void
vmm_netd_store_set_account (gboolean exists, guint uid, guint gid)
{
  account.exists = exists;
  account.uid = uid;
  account.gid = gid;
}

/* As a root daemon only; whoever ran vmm-netd before, it must find a lock that it can open. */
static gboolean
hand_over (int folder)
{
  uid_t uid = account.exists ? account.uid : 0;
  gid_t gid = account.exists ? account.gid : 0;

  if (geteuid () != 0)
    return TRUE;
  return fchown (folder, (uid_t) -1, gid) == 0
         && fchmod (folder, account.exists ? SHARED_FOLDER_MODE : FOLDER_MODE) == 0
         && (fchownat (folder, LOCK, uid, gid, AT_SYMLINK_NOFOLLOW) == 0 || errno == ENOENT);
}

static void
prepare_thread (GTask *task, gpointer source, gpointer data, GCancellable *cancellable)
{
  const Job *job = data;
  int folder = open_folder (job->directory);

  if (folder < 0)
    {
      fail (task, "open", job->directory, "", errno);
      return;
    }
  renameat (folder, VMM_NETD_STORE_LOG, folder, PREVIOUS_LOG); /* there may be none */
  if (!hand_over (folder))
    fail (task, "hand over", job->directory, "", errno);
  else if (unlinkat (folder, VMM_NETD_STORE_SOCKET, 0) != 0 && errno != ENOENT)
    fail (task, "remove", job->directory, VMM_NETD_STORE_SOCKET, errno);
  else
    g_task_return_boolean (task, TRUE);
  close (folder);
}

void
vmm_netd_store_prepare_async (const char *directory, GAsyncReadyCallback callback,
                              gpointer user_data)
{
  run (vmm_netd_store_prepare_async, directory, NULL, prepare_thread, callback, user_data);
}

static void
remove_thread (GTask *task, gpointer source, gpointer data, GCancellable *cancellable)
{
  static const char *const names[]
      = { VMM_NETD_STORE_FILE, VMM_NETD_STORE_SOCKET, VMM_NETD_STORE_LOG, PREVIOUS_LOG, LOCK };
  const Job *job = data;
  int folder = open_folder (job->directory);
  gboolean failed = FALSE;

  for (guint i = 0; folder >= 0 && i < G_N_ELEMENTS (names) && !failed; i++)
    if (unlinkat (folder, names[i], 0) != 0 && errno != ENOENT)
      {
        failed = TRUE;
        fail (task, "remove", job->directory, names[i], errno);
      }
  if (!failed)
    g_task_return_boolean (task, TRUE);
  if (folder >= 0)
    close (folder);
}

void
vmm_netd_store_remove_async (const char *directory, GAsyncReadyCallback callback,
                             gpointer user_data)
{
  run (vmm_netd_store_remove_async, directory, NULL, remove_thread, callback, user_data);
}

gboolean
vmm_netd_store_finish (GAsyncResult *result, GError **error)
{
  return g_task_propagate_boolean (G_TASK (result), error);
}

static char *
last_line (char *text)
{
  const char *line;

  g_strchomp (text);
  line = strrchr (text, '\n');
  return text[0] != '\0' ? vmm_netd_json_tidy (line != NULL ? line + 1 : text) : NULL;
}

static void
read_log_thread (GTask *task, gpointer source, gpointer data, GCancellable *cancellable)
{
  const Job *job = data;
  int folder = open_folder (job->directory);
  g_autofree char *text = NULL;

  if (folder >= 0)
    {
      text = read_regular (folder, VMM_NETD_STORE_LOG, LOG_TAIL, TRUE);
      close (folder);
    }
  g_task_return_pointer (task, text != NULL ? last_line (text) : NULL, g_free);
}

void
vmm_netd_store_read_log_async (const char *directory, GAsyncReadyCallback callback,
                               gpointer user_data)
{
  run (vmm_netd_store_read_log_async, directory, NULL, read_log_thread, callback, user_data);
}

char *
vmm_netd_store_read_log_finish (GAsyncResult *result)
{
  return g_task_propagate_pointer (G_TASK (result), NULL);
}

/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* fdatasync() takes as long as the disk does, and meanwhile the guest's console has to be read. So
 * a thread does it and nothing else: it takes a job from one pipe and puts its result into the
 * other.
 *
 * The thread begins when the sandbox's rules for files are in force and before its system call
 * filter is; the filter reaches both threads.
 */
#include "monitor-sync.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "monitor-watch.h"

typedef struct
{
  int fd; /* -1: the thread ends */
  int directory_fd;
  const char *from;
  const char *to;
} Job;

struct _MonitorSync
{
  MonitorSyncFunc func;
  gpointer user_data;
  int jobs[2];
  int results[2];
  gboolean busy;
  GThread *thread;
  MonitorWatch *watch;
};

static int
do_job (const Job *job)
{
  if (fdatasync (job->fd) < 0)
    return errno;
  if (job->from == NULL)
    return 0;
  if (renameat (job->directory_fd, job->from, job->directory_fd, job->to) < 0
      || fsync (job->directory_fd) < 0)
    return errno;
  return 0;
}

static gpointer
run_thread (gpointer data)
{
  MonitorSync *self = data;
  Job job;

  while (read (self->jobs[0], &job, sizeof job) == sizeof job && job.fd >= 0)
    {
      int result = do_job (&job);

      if (write (self->results[1], &result, sizeof result) != sizeof result)
        break;
    }
  return NULL;
}

static void
result_cb (GIOCondition condition, gpointer user_data)
{
  MonitorSync *self = user_data;
  int result;

  if (read (self->results[0], &result, sizeof result) != sizeof result)
    return;
  self->busy = FALSE;
  self->func (result, self->user_data);
}

static void
close_both (int *fds)
{
  for (guint i = 0; i < 2; i++)
    if (fds[i] >= 0)
      close (fds[i]);
}

MonitorSync *
monitor_sync_new (MonitorSyncFunc func, gpointer user_data)
{
  MonitorSync *self = g_new0 (MonitorSync, 1);

  self->func = func;
  self->user_data = user_data;
  self->jobs[0] = self->jobs[1] = self->results[0] = self->results[1] = -1;
  if (pipe2 (self->jobs, O_CLOEXEC) == 0 && pipe2 (self->results, O_CLOEXEC) == 0)
    self->thread = g_thread_try_new ("sync", run_thread, self, NULL);
  if (self->thread == NULL)
    {
      close_both (self->jobs);
      close_both (self->results);
      g_free (self);
      return NULL;
    }
  self->watch = monitor_watch_new (self->results[0], G_IO_IN, result_cb, self);
  return self;
}

gboolean
monitor_sync_is_busy (MonitorSync *self)
{
  return self->busy;
}

static void
send_job (MonitorSync *self, const Job *job)
{
  /* One at a time: the pipe has room. */
  if (write (self->jobs[1], job, sizeof *job) != sizeof *job)
    self->func (errno, self->user_data);
}

void
monitor_sync_begin (MonitorSync *self, int fd, int directory_fd, const char *from, const char *to)
{
  const Job job = { fd, directory_fd, from, to };

  g_return_if_fail (!self->busy);
  self->busy = TRUE;
  send_job (self, &job);
}

void
monitor_sync_free (MonitorSync *self)
{
  const Job end = { .fd = -1 };

  send_job (self, &end);
  g_thread_join (self->thread);
  monitor_watch_free (self->watch);
  close_both (self->jobs);
  close_both (self->results);
  g_free (self);
}

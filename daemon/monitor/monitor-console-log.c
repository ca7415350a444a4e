/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* console.log: the current run's console, bounded however much the guest writes.
 *
 * Its beginning (firmware and kernel: where a stalled TPM shows) and its end are what anybody looks
 * for, so when the file is full its middle goes: a new file with both and a line between them takes
 * its place by a rename. Who has the old one open goes on reading something whole, and the end of
 * the file is the end of the console at any time.
 *
 * A full disk costs console and nothing else: what cannot be written is left out and counted, and
 * as soon as there is room a line says so. To make the file smaller without room for a second one
 * it is done in place.
 */
#include "monitor-console-log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "monitor-log.h"

#define MIDDLE "\n[vmm-monitor: the middle of this console was dropped to keep it small]\n"
#define COPY_SIZE (64 * 1024)

struct _MonitorConsoleLog
{
  int directory_fd;
  char *name;
  char *new_name;
  MonitorConsoleLimits limits;
  int fd; /* -1: could not be opened */
  gsize size;
  guint64 n_left_out;
  gboolean is_failing; /* that was logged */
};

MonitorConsoleLog *
monitor_console_log_new (int directory_fd, const char *name, const MonitorConsoleLimits *limits)
{
  MonitorConsoleLog *self = g_new0 (MonitorConsoleLog, 1);

  g_return_val_if_fail (
      limits->head_size + limits->tail_size + sizeof MIDDLE + COPY_SIZE <= limits->size_max, NULL);

  self->directory_fd = directory_fd;
  self->name = g_strdup (name);
  self->new_name = g_strconcat (name, ".new", NULL);
  self->limits = *limits;
  self->fd = -1;
  return self;
}

void
monitor_console_log_free (MonitorConsoleLog *self)
{
  if (self->fd >= 0)
    close (self->fd);
  g_free (self->name);
  g_free (self->new_name);
  g_free (self);
}

static int
open_file (MonitorConsoleLog *self, const char *name, int flags)
{
  return openat (self->directory_fd, name,
                 O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | flags, 0600);
}

static void
fail (MonitorConsoleLog *self, int code)
{
  if (!self->is_failing)
    monitor_log ("%s cannot be written: %s", self->name, g_strerror (code));
  self->is_failing = TRUE;
}

static void
open_again (MonitorConsoleLog *self, int flags)
{
  struct stat status;

  if (self->fd >= 0)
    close (self->fd);
  self->size = 0;
  self->fd = open_file (self, self->name, flags);
  if (self->fd < 0)
    fail (self, errno);
  else if (fstat (self->fd, &status) == 0)
    self->size = (gsize) status.st_size;
}

void
monitor_console_log_begin (MonitorConsoleLog *self)
{
  self->n_left_out = 0;
  self->is_failing = FALSE;
  if (unlinkat (self->directory_fd, self->name, 0) < 0 && errno != ENOENT)
    fail (self, errno);
  open_again (self, O_TRUNC);
}

void
monitor_console_log_resume (MonitorConsoleLog *self)
{
  open_again (self, 0);
}

/* FALSE with errno set; @at moves on by what was written. */
static gboolean
write_at (int fd, const char *data, gsize length, gsize *at)
{
  while (length > 0)
    {
      gssize count = pwrite (fd, data, length, (off_t) *at);

      if (count < 0 && errno != EINTR)
        return FALSE;
      count = MAX (count, 0);
      data += count;
      length -= count;
      *at += count;
    }
  return TRUE;
}

/* Forward, so that it may be the same file. */
static gboolean
copy (int from_fd, gsize from, gsize length, int to_fd, gsize *to)
{
  static char buffer[COPY_SIZE]; /* one thread copies */

  while (length > 0)
    {
      gssize count = pread (from_fd, buffer, MIN (length, sizeof buffer), (off_t) from);

      if (count < 0 && errno == EINTR)
        continue;
      if (count <= 0)
        return count == 0; /* somebody has cut the file */
      if (!write_at (to_fd, buffer, count, to))
        return FALSE;
      from += count;
      length -= count;
    }
  return TRUE;
}

static gboolean
copy_tail (MonitorConsoleLog *self, int to_fd, gsize *to)
{
  return write_at (to_fd, MIDDLE, strlen (MIDDLE), to)
         && copy (self->fd, self->size - self->limits.tail_size, self->limits.tail_size, to_fd, to);
}

static gboolean
shrink_to_new (MonitorConsoleLog *self)
{
  int fd = open_file (self, self->new_name, O_TRUNC);
  gsize at = 0;

  if (fd < 0)
    return FALSE;
  if (copy (self->fd, 0, self->limits.head_size, fd, &at) && copy_tail (self, fd, &at)
      && renameat (self->directory_fd, self->new_name, self->directory_fd, self->name) == 0)
    {
      close (self->fd);
      self->fd = fd;
      self->size = at;
      return TRUE;
    }
  close (fd);
  unlinkat (self->directory_fd, self->new_name, 0);
  return FALSE;
}

static void
shrink_in_place (MonitorConsoleLog *self)
{
  gsize at = self->limits.head_size;

  if (copy_tail (self, self->fd, &at) && ftruncate (self->fd, (off_t) at) == 0)
    self->size = at;
  else
    fail (self, errno);
}

/* FALSE when nothing more fits. */
static gboolean
make_room (MonitorConsoleLog *self, gsize length)
{
  if (self->fd < 0)
    open_again (self, 0);
  if (self->fd < 0)
    return FALSE;
  if (self->size + length > self->limits.size_max && !shrink_to_new (self))
    shrink_in_place (self);
  return self->size + length <= self->limits.size_max;
}

static void
append (MonitorConsoleLog *self, const char *data, gsize length)
{
  gsize at = self->size;

  if (!make_room (self, length))
    {
      self->n_left_out += length;
      return;
    }
  at = self->size;
  if (!write_at (self->fd, data, length, &at))
    {
      fail (self, errno);
      self->n_left_out += length - (at - self->size);
    }
  self->size = at;
}

void
monitor_console_log_write (MonitorConsoleLog *self, const char *data, gsize length)
{
  g_autofree char *note = NULL;
  guint64 left_out = self->n_left_out;

  if (left_out > 0)
    {
      note = g_strdup_printf ("\n[vmm-monitor: %" G_GUINT64_FORMAT
                              " bytes are missing here, they could not be written]\n",
                              left_out);
      self->n_left_out = 0;
      append (self, note, strlen (note));
      /* There is no room yet, or not for all of the note. */
      if (self->n_left_out > 0)
        {
          self->n_left_out = left_out + length;
          return;
        }
      self->is_failing = FALSE;
    }
  for (gsize done = 0; done < length; done += COPY_SIZE)
    append (self, data + done, MIN (length - done, COPY_SIZE));
}

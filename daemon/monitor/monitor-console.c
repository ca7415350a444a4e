/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The serial port's end on this side. It is read all the time, however much comes: a guest that
 * writes to its console must not be held up by who reads it. Input is held up by the guest instead:
 * what its port does not take stays with who sent it.
 */
#include "monitor-console.h"

#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#include "monitor-watch.h"

#define READ_SIZE (64 * 1024)
#define READS_PER_TURN 4

struct _MonitorConsole
{
  int fd;
  MonitorWatch *watch;
  MonitorConsoleFuncs funcs;
  gpointer user_data;
};

/* FALSE at the end. */
static gboolean
read_some (MonitorConsole *self)
{
  static char buffer[READ_SIZE]; /* one thread reads */

  for (guint i = 0; i < READS_PER_TURN; i++)
    {
      gssize size = recv (self->fd, buffer, sizeof buffer, MSG_DONTWAIT);

      if (size < 0)
        return errno == EAGAIN || errno == EINTR;
      if (size == 0)
        return FALSE;
      self->funcs.output (buffer, size, self->user_data);
    }
  return TRUE;
}

static void
ready_cb (GIOCondition condition, gpointer user_data)
{
  MonitorConsole *self = user_data;

  if (!read_some (self))
    {
      self->funcs.closed (self->user_data);
      return;
    }
  if ((condition & G_IO_OUT) == 0)
    return;
  monitor_watch_set (self->watch, G_IO_IN);
  self->funcs.drained (self->user_data);
}

MonitorConsole *
monitor_console_new (int fd, const MonitorConsoleFuncs *funcs, gpointer user_data)
{
  MonitorConsole *self = g_new0 (MonitorConsole, 1);

  self->fd = fd;
  self->funcs = *funcs;
  self->user_data = user_data;
  self->watch = monitor_watch_new (fd, G_IO_IN, ready_cb, self);
  return self;
}

void
monitor_console_free (MonitorConsole *self)
{
  monitor_watch_free (self->watch);
  close (self->fd);
  g_free (self);
}

gsize
monitor_console_send (MonitorConsole *self, const char *data, gsize length)
{
  gssize sent = send (self->fd, data, length, MSG_DONTWAIT | MSG_NOSIGNAL);

  /* One that has gone is found by reading. */
  if (sent < 0 && errno != EAGAIN && errno != EINTR)
    return length;
  sent = MAX (sent, 0);
  if ((gsize) sent < length)
    monitor_watch_set (self->watch, G_IO_IN | G_IO_OUT);
  return (gsize) sent;
}

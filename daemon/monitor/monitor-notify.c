/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The READY=1 listener.
 *
 * A connection carries one message. It is closed at once after the first read: the guest's PID 1
 * waits for that, on some vsock devices for good, and a message fits into one. Nothing in it says
 * whose it is: that is known by the guest's CID, or by the socket, which is of one VM alone.
 *
 * A guest may connect as often as it likes and say nothing. Connections are few, each has its time,
 * and when they are all taken the oldest goes: an honest one is over in no time. How many a
 * second are looked at is bounded too; the others wait in the kernel, for that guest only.
 */
#include "monitor-notify.h"

#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#include "monitor-json.h"
#include "monitor-log.h"
#include "monitor-notify-text.h"
#include "monitor-rate.h"
#include "monitor-socket.h"
#include "monitor-watch.h"

#define CONNECTIONS_MAX 16
#define MESSAGE_MAX (64 * 1024)
#define LIMIT_MS 5000
#define AT_ONCE 1000
#define INTERVAL_US (G_USEC_PER_SEC / 100)
#define ACCEPT_PAUSE_MS 100

struct _MonitorNotify
{
  int listener;
  guint32 cid;
  MonitorEventFunc func;
  gpointer user_data;
  MonitorWatch *watch; /* NULL while it pauses */
  guint pause;
  MonitorRate rate;
  GQueue connections;
};

typedef struct
{
  MonitorNotify *owner;
  int fd;
  MonitorWatch *watch;
  guint timer;
} Connection;

static void
connection_free (Connection *connection)
{
  g_queue_remove (&connection->owner->connections, connection);
  monitor_watch_free (connection->watch);
  g_clear_handle_id (&connection->timer, g_source_remove);
  close (connection->fd);
  g_free (connection);
}

static void
tell_status (MonitorNotify *self, const char *status)
{
  g_autoptr (GString) data = g_string_new ("{\"text\":");

  monitor_json_append_string (data, status);
  g_string_append_c (data, '}');
  self->func (MONITOR_EVENT_STATUS, data->str, self->user_data);
}

static void
take_message (MonitorNotify *self, const char *text, gsize length)
{
  MonitorNotifyText message;

  monitor_notify_text_read (&message, text, length);
  if (message.status != NULL && message.status_first)
    tell_status (self, message.status);
  if (message.ready)
    self->func (MONITOR_EVENT_READY, "{}", self->user_data);
  if (message.status != NULL && !message.status_first)
    tell_status (self, message.status);
  monitor_notify_text_clear (&message);
}

static void
readable_cb (GIOCondition condition, gpointer user_data)
{
  static char buffer[MESSAGE_MAX]; /* one thread reads, and one message at a time */
  Connection *connection = user_data;
  MonitorNotify *self = connection->owner;
  gssize length = recv (connection->fd, buffer, sizeof buffer, MSG_DONTWAIT);

  if (length < 0 && (errno == EAGAIN || errno == EINTR))
    return;
  connection_free (connection);
  if (length > 0)
    take_message (self, buffer, length);
}

static gboolean
limit_cb (gpointer user_data)
{
  Connection *connection = user_data;

  connection->timer = 0;
  connection_free (connection);
  monitor_log ("a connection to the notify port said nothing within 5 s and was closed");
  return G_SOURCE_REMOVE;
}

static void
add_connection (MonitorNotify *self, int fd)
{
  Connection *connection = g_new0 (Connection, 1);

  if (self->connections.length >= CONNECTIONS_MAX)
    {
      monitor_log ("too many connections to the notify port: the oldest was closed");
      connection_free (g_queue_peek_head (&self->connections));
    }
  connection->owner = self;
  connection->fd = fd;
  connection->watch = monitor_watch_new (fd, G_IO_IN, readable_cb, connection);
  connection->timer = g_timeout_add (LIMIT_MS, limit_cb, connection);
  g_queue_push_tail (&self->connections, connection);
}

static gboolean
is_heard (MonitorNotify *self, int fd, guint32 cid)
{
  if (self->cid != 0)
    return cid == self->cid;
  return monitor_socket_is_ours (fd);
}

static void listen_again (MonitorNotify *self);

static gboolean
pause_cb (gpointer user_data)
{
  MonitorNotify *self = user_data;

  self->pause = 0;
  listen_again (self);
  return G_SOURCE_REMOVE;
}

static void
pause_for (MonitorNotify *self, guint ms)
{
  g_clear_pointer (&self->watch, monitor_watch_free);
  self->pause = g_timeout_add (ms, pause_cb, self);
}

/* One a turn: what else happens to the VM has its turn too. */
static void
accept_cb (GIOCondition condition, gpointer user_data)
{
  MonitorNotify *self = user_data;
  gint64 now = g_get_monotonic_time ();
  gint64 wait = monitor_rate_get_wait (&self->rate, now);
  guint32 cid;
  int fd;

  if (wait > 0)
    {
      pause_for (self, (guint) (wait / 1000 + 1));
      return;
    }
  fd = monitor_socket_accept (self->listener, &cid);
  if (fd < 0 && errno != EAGAIN && errno != EINTR && errno != ECONNABORTED)
    {
      monitor_log ("a connection to the notify port cannot be accepted: %s", g_strerror (errno));
      pause_for (self, ACCEPT_PAUSE_MS);
    }
  if (fd < 0)
    return;
  monitor_rate_take (&self->rate, now);
  if (is_heard (self, fd, cid))
    {
      add_connection (self, fd);
      return;
    }
  monitor_log ("a connection to the notify port from elsewhere was closed");
  close (fd);
}

static void
listen_again (MonitorNotify *self)
{
  self->watch = monitor_watch_new (self->listener, G_IO_IN, accept_cb, self);
}

MonitorNotify *
monitor_notify_new (int listener, guint32 cid, MonitorEventFunc func, gpointer user_data)
{
  MonitorNotify *self = g_new0 (MonitorNotify, 1);

  self->listener = listener;
  self->cid = cid;
  self->func = func;
  self->user_data = user_data;
  self->rate = (MonitorRate) MONITOR_RATE_INIT (AT_ONCE, INTERVAL_US);
  g_queue_init (&self->connections);
  listen_again (self);
  return self;
}

void
monitor_notify_drop_begun (MonitorNotify *self)
{
  while (self->connections.length > 0)
    connection_free (g_queue_peek_head (&self->connections));
}

void
monitor_notify_free (MonitorNotify *self)
{
  monitor_notify_drop_begun (self);
  g_clear_pointer (&self->watch, monitor_watch_free);
  g_clear_handle_id (&self->pause, g_source_remove);
  close (self->listener);
  g_free (self);
}

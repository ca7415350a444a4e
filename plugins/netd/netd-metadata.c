/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The way of a guest's connections to 169.254.169.254 to the daemon. The daemon has one socket per
 * VM, so who asks is settled by the port that the connection came in at, and by nothing in it.
 *
 * While the daemon is away the connection is held, unread, so that a restart of the daemon is a
 * pause for the guest and not an error. A guest that ends its direction may be done asking, or
 * gone: it cannot be told which, so its connection is held for a moment only.
 */
#include "netd-metadata.h"

#include <sys/epoll.h>
#include <unistd.h>

#include "netd-relay.h"

/* For a connection whose guest has said its last word: enough when the daemon is there. */
#define HALF_CLOSED_HOLD_MS 2000

struct _NetdMetadata
{
  NetdLoop *loop;
  NetdOpener *opener;
  char *vm_id;
  GQueue connections; /* Connection */
  NetdTimer *timer;   /* for the first deadline of those that are held */
};

typedef struct
{
  GList link;
  NetdMetadata *owner;
  int fd;               /* while held, else -1 */
  NetdWatch *watch;     /* while held */
  NetdOpening *opening; /* while held */
  gint64 deadline;      /* while held */
  NetdRelay *relay;     /* once connected */
} Connection;

static void
stop_holding (Connection *connection)
{
  g_clear_pointer (&connection->watch, netd_watch_free);
  g_clear_pointer (&connection->opening, netd_opening_cancel);
}

static void
connection_free (Connection *connection)
{
  g_queue_unlink (&connection->owner->connections, &connection->link);
  stop_holding (connection);
  g_clear_pointer (&connection->relay, netd_relay_free);
  if (connection->fd >= 0)
    close (connection->fd);
  g_free (connection);
}

/* Armed for the first deadline; not at all while nothing is held. */
static void
arm_timer (NetdMetadata *self)
{
  gint64 first = G_MAXINT64;

  for (GList *item = self->connections.head; item != NULL; item = item->next)
    {
      Connection *connection = item->data;

      if (connection->relay == NULL)
        first = MIN (first, connection->deadline);
    }
  if (first == G_MAXINT64)
    netd_timer_stop (self->timer);
  else
    netd_timer_start (self->timer, first - netd_loop_now (self->loop));
}

static void
timer_fired (gpointer user_data)
{
  NetdMetadata *self = user_data;
  gint64 now = netd_loop_now (self->loop);
  GList *next = NULL;

  for (GList *item = self->connections.head; item != NULL; item = next)
    {
      Connection *connection = item->data;

      next = item->next;
      if (connection->relay == NULL && connection->deadline <= now)
        connection_free (connection);
    }
  arm_timer (self);
}

static void
relay_done (NetdRelay *relay, gpointer user_data)
{
  Connection *connection = user_data;

  connection->relay = NULL;
  connection_free (connection);
}

static void
opened (int fd, gpointer user_data)
{
  Connection *connection = user_data;
  NetdMetadata *self = connection->owner;
  int guest = connection->fd;

  connection->opening = NULL;
  connection->fd = -1;
  stop_holding (connection);
  connection->relay = netd_relay_new (self->loop, guest, fd, relay_done, connection);
  arm_timer (self);
}

static void
guest_ready (guint32 events, gpointer user_data)
{
  Connection *connection = user_data;
  NetdMetadata *self = connection->owner;

  if ((events & (EPOLLHUP | EPOLLERR)) != 0)
    {
      connection_free (connection);
      arm_timer (self);
      return;
    }
  /* Its death from here on is still seen, once. */
  netd_watch_set_events (connection->watch, EPOLLET);
  connection->deadline
      = MIN (connection->deadline, netd_loop_now (self->loop) + HALF_CLOSED_HOLD_MS);
  arm_timer (self);
}

void
netd_metadata_accept (NetdMetadata *self, int fd)
{
  Connection *connection;

  if (self->connections.length >= NETD_METADATA_MAX)
    {
      close (fd);
      return;
    }
  connection = g_new0 (Connection, 1);
  connection->link.data = connection;
  connection->owner = self;
  connection->fd = fd;
  connection->deadline = netd_loop_now (self->loop) + NETD_METADATA_HOLD_MS;
  g_queue_push_tail_link (&self->connections, &connection->link);
  connection->watch = netd_watch_new (self->loop, fd, EPOLLRDHUP, guest_ready, connection);
  connection->opening
      = netd_opener_open (self->opener, NETD_OPEN_METADATA, self->vm_id, opened, connection);
  if (!netd_timer_is_armed (self->timer))
    netd_timer_start (self->timer, NETD_METADATA_HOLD_MS);
}

NetdMetadata *
netd_metadata_new (NetdLoop *loop, NetdOpener *opener, const char *vm_id)
{
  NetdMetadata *self = g_new0 (NetdMetadata, 1);

  self->loop = loop;
  self->opener = opener;
  self->vm_id = g_strdup (vm_id);
  g_queue_init (&self->connections);
  self->timer = netd_timer_new (loop, timer_fired, self);
  return self;
}

void
netd_metadata_free (NetdMetadata *self)
{
  while (self->connections.head != NULL)
    connection_free (self->connections.head->data);
  netd_timer_free (self->timer);
  g_free (self->vm_id);
  g_free (self);
}

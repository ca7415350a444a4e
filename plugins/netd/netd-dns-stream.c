/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * DNS over TCP. Messages are not looked at: a connection goes to the first name server that takes
 * it, and bytes are carried both ways from then on. Connections are few per guest and end when
 * idle, so a guest that collects them keeps only itself from asking.
 */
#include "netd-dns-stream.h"

#include <errno.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "netd-relay.h"

struct _NetdDnsStreams
{
  NetdDnsConfig config;
  GQueue connections; /* Connection */
  NetdTimer *timer;   /* for the first of all deadlines; it may come early and find nothing to do */
};

typedef struct
{
  GList link;
  NetdDnsStreams *owner;
  int guest;        /* until there is a relay, else -1 */
  int server;       /* while connecting, else -1 */
  NetdWatch *watch; /* while connecting */
  guint attempt;    /* servers tried */
  gint64 deadline;  /* while connecting */
  NetdRelay *relay; /* once connected */
} Connection;

static void
stop_connecting (Connection *connection)
{
  g_clear_pointer (&connection->watch, netd_watch_free);
  if (connection->server >= 0)
    close (connection->server);
  connection->server = -1;
}

static void
connection_free (Connection *connection)
{
  g_queue_unlink (&connection->owner->connections, &connection->link);
  stop_connecting (connection);
  g_clear_pointer (&connection->relay, netd_relay_free);
  if (connection->guest >= 0)
    close (connection->guest);
  if (connection->owner->connections.length == 0)
    netd_timer_stop (connection->owner->timer);
  g_free (connection);
}

static void
relay_done (NetdRelay *relay, gpointer user_data)
{
  Connection *connection = user_data;

  connection->relay = NULL;
  connection_free (connection);
}

static void
start_relay (Connection *connection)
{
  int guest = connection->guest;
  int server = connection->server;

  connection->guest = -1;
  connection->server = -1;
  stop_connecting (connection);
  connection->relay
      = netd_relay_new (connection->owner->config.loop, guest, server, relay_done, connection);
}

static void connected (guint32 events, gpointer user_data);

/* Returns FALSE when this server is out of the question already. */
static gboolean
try_server (Connection *connection, const NetdSocketAddress *server)
{
  NetdDnsConfig *config = &connection->owner->config;
  int one = 1;

  connection->server
      = socket (server->any.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (connection->server < 0)
    return FALSE;
  setsockopt (connection->server, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  if (connect (connection->server, &server->any, netd_socket_address_length (server)) == 0)
    {
      start_relay (connection);
      return TRUE;
    }
  if (errno != EINPROGRESS)
    return FALSE;
  connection->deadline = netd_loop_now (config->loop) + NETD_DNS_TRY_MS;
  connection->watch
      = netd_watch_new (config->loop, connection->server, EPOLLOUT, connected, connection);
  return TRUE;
}

/* Frees the connection when no server is left. */
static void
try_next_server (Connection *connection)
{
  const NetdResolvers *resolvers = connection->owner->config.resolvers;

  stop_connecting (connection);
  while (connection->attempt < resolvers->n_servers)
    {
      if (try_server (connection, &resolvers->servers[connection->attempt++]))
        return;
      stop_connecting (connection);
    }
  connection_free (connection);
}

static void
connected (guint32 events, gpointer user_data)
{
  Connection *connection = user_data;
  int error = 0;
  socklen_t length = sizeof error;

  if (getsockopt (connection->server, SOL_SOCKET, SO_ERROR, &error, &length) < 0 || error != 0)
    try_next_server (connection);
  else
    start_relay (connection);
}

static gint64
get_deadline (Connection *connection)
{
  if (connection->relay != NULL)
    return netd_relay_get_last_activity (connection->relay) + NETD_DNS_IDLE_MS;
  return connection->deadline;
}

static void
arm_timer (NetdDnsStreams *self)
{
  gint64 first = G_MAXINT64;

  for (GList *item = self->connections.head; item != NULL; item = item->next)
    first = MIN (first, get_deadline (item->data));
  if (first < G_MAXINT64)
    netd_timer_start (self->timer, first - netd_loop_now (self->config.loop));
}

static void
timer_fired (gpointer user_data)
{
  NetdDnsStreams *self = user_data;
  gint64 now = netd_loop_now (self->config.loop);
  GList *next = NULL;

  for (GList *item = self->connections.head; item != NULL; item = next)
    {
      Connection *connection = item->data;

      next = item->next;
      if (get_deadline (connection) > now)
        continue;
      if (connection->relay != NULL)
        connection_free (connection);
      else
        try_next_server (connection);
    }
  arm_timer (self);
}

void
netd_dns_streams_accept (NetdDnsStreams *self, int fd)
{
  Connection *connection;

  if (self->connections.length >= NETD_DNS_CONNECTIONS_MAX)
    {
      close (fd);
      return;
    }
  connection = g_new0 (Connection, 1);
  connection->link.data = connection;
  connection->owner = self;
  connection->guest = fd;
  connection->server = -1;
  g_queue_push_tail_link (&self->connections, &connection->link);
  try_next_server (connection);
  arm_timer (self);
}

NetdDnsStreams *
netd_dns_streams_new (const NetdDnsConfig *config)
{
  NetdDnsStreams *self = g_new0 (NetdDnsStreams, 1);

  self->config = *config;
  g_queue_init (&self->connections);
  self->timer = netd_timer_new (config->loop, timer_fired, self);
  return self;
}

void
netd_dns_streams_free (NetdDnsStreams *self)
{
  while (self->connections.head != NULL)
    connection_free (self->connections.head->data);
  netd_timer_free (self->timer);
  g_free (self);
}

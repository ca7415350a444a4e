/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Ports of the host that lead into guests. Listeners and UDP sockets belong to the forward and stay
 * bound for as long as it exists, whether its VM is plugged in or not: the VM is looked up for each
 * connection. TCP goes through the NAT engine of the VM's port, so that the guest sees the gateway;
 * UDP is handed to the port's own table of peers.
 */
#include "netd-forward.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <gio/gio.h>

#include "netd-gateway.h"
#include "netd-relay.h"
#include "netd-resolvers.h"
#include "netd-udp-forward.h"

#define ACCEPTS_PER_TURN 16
#define FIRST_UNPRIVILEGED_PORT 1024
/* More datagrams than a socket's buffer holds. */
#define STALE_DATAGRAMS_MAX 4096

struct _NetdForwards
{
  NetdNetwork *network;
  NetdLoop *loop;
  GHashTable *forwards; /* id in Forward to Forward */
  NetdTimer *timer;     /* resumes listeners that are paused */
};

typedef struct
{
  NetdForwards *owner;
  NetdForwardSpec spec; /* strings are ours */
  int fd;
  NetdWatch *watch;    /* TCP */
  gboolean is_paused;  /* TCP */
  GQueue connections;  /* TCP: Connection */
  NetdUdpForward *udp; /* UDP, while the VM is plugged in */
} Forward;

typedef struct
{
  GList link;
  Forward *forward;
  int fd;           /* until there is a relay, else -1 */
  NetdDial *dial;   /* until the guest answers */
  NetdRelay *relay; /* from then on */
} Connection;

static void
reset_and_close (int fd)
{
  const struct linger at_once = { .l_onoff = 1, .l_linger = 0 };

  setsockopt (fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
  close (fd);
}

static void
update_interest (Forward *forward)
{
  gboolean is_full = forward->connections.length >= NETD_FORWARD_CONNECTIONS_MAX;

  netd_watch_set_events (forward->watch, forward->is_paused || is_full ? 0 : EPOLLIN);
}

static void
connection_free (Connection *connection)
{
  g_queue_unlink (&connection->forward->connections, &connection->link);
  g_clear_pointer (&connection->dial, netd_dial_cancel);
  g_clear_pointer (&connection->relay, netd_relay_free);
  if (connection->fd >= 0)
    reset_and_close (connection->fd);
  g_free (connection);
}

static void
end_connection (Connection *connection)
{
  Forward *forward = connection->forward;

  connection_free (connection);
  update_interest (forward);
}

static void
relay_done (NetdRelay *relay, gpointer user_data)
{
  Connection *connection = user_data;

  connection->relay = NULL;
  end_connection (connection);
}

static void
dialled (int fd, int error_number, gpointer user_data)
{
  Connection *connection = user_data;
  int host = connection->fd;

  connection->dial = NULL;
  if (fd < 0)
    {
      g_debug ("forward %s: port %u of VM %s: %s", connection->forward->spec.id,
               connection->forward->spec.port, connection->forward->spec.vm_id,
               g_strerror (error_number));
      end_connection (connection);
      return;
    }
  connection->fd = -1;
  connection->relay = netd_relay_new (connection->forward->owner->loop, host, fd, relay_done,
                                      connection);
}

/* Of a VM that is plugged in, else NULL. */
static NetdGateway *
find_gateway (Forward *forward)
{
  NetdPort *port = netd_network_find (forward->owner->network, forward->spec.vm_id);

  return port != NULL ? netd_port_get_gateway (port) : NULL;
}

static void
serve (Forward *forward, int fd)
{
  NetdGateway *gateway = find_gateway (forward);
  Connection *connection;

  if (gateway == NULL)
    {
      reset_and_close (fd);
      return;
    }
  connection = g_new0 (Connection, 1);
  connection->link.data = connection;
  connection->forward = forward;
  connection->fd = fd;
  g_queue_push_tail_link (&forward->connections, &connection->link);
  connection->dial = netd_engine_dial (netd_gateway_get_engine (gateway), forward->spec.port,
                                       NETD_FORWARD_DIAL_MS, dialled, connection);
  if (connection->dial == NULL)
    connection_free (connection);
}

static gboolean
is_out_of_something (int error_number)
{
  return error_number == EMFILE || error_number == ENFILE || error_number == ENOBUFS
         || error_number == ENOMEM;
}

/* Returns -1 with errno. */
static int
accept_connection (Forward *forward)
{
  if (netd_network_has_descriptors (forward->owner->network))
    return accept4 (forward->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
  errno = EMFILE;
  return -1;
}

static void
listener_ready (guint32 events, gpointer user_data)
{
  Forward *forward = user_data;
  NetdForwards *self = forward->owner;

  for (guint i = 0; i < ACCEPTS_PER_TURN; i++)
    {
      int fd;

      if (forward->connections.length >= NETD_FORWARD_CONNECTIONS_MAX)
        break;
      fd = accept_connection (forward);
      if (fd >= 0)
        {
          serve (forward, fd);
        }
      else if (is_out_of_something (errno))
        {
          /* The connection stays in the queue and the listener ready: not to be asked at once. */
          forward->is_paused = TRUE;
          if (!netd_timer_is_armed (self->timer))
            netd_timer_start (self->timer, NETD_FORWARD_PAUSE_MS);
          break;
        }
      else if (errno == EAGAIN)
        {
          break;
        }
      /* Anything else is about that one connection only. */
    }
  update_interest (forward);
}

static void
timer_fired (gpointer user_data)
{
  NetdForwards *self = user_data;
  GHashTableIter iter;
  gpointer value;

  g_hash_table_iter_init (&iter, self->forwards);
  while (g_hash_table_iter_next (&iter, NULL, &value))
    {
      Forward *forward = value;

      if (!forward->is_paused)
        continue;
      forward->is_paused = FALSE;
      update_interest (forward);
    }
}

/* What came while nobody was there is not for whoever comes now. */
static void
discard_datagrams (int fd)
{
  guint8 nothing;

  for (guint i = 0; i < STALE_DATAGRAMS_MAX; i++)
    if (recv (fd, &nothing, sizeof nothing, MSG_DONTWAIT) < 0 && errno != EINTR)
      return;
}

/* The table of peers goes with the VM's port and gets a descriptor of its own; the host's port
 * stays taken by ours. */
static void
attach_udp (Forward *forward, NetdGateway *gateway)
{
  int fd;

  if (forward->udp != NULL)
    return;
  fd = fcntl (forward->fd, F_DUPFD_CLOEXEC, 0);
  if (fd < 0)
    {
      g_warning ("forward %s carries nothing: %s", forward->spec.id, g_strerror (errno));
      return;
    }
  discard_datagrams (fd);
  forward->udp = netd_udp_forwards_add (netd_gateway_get_udp_forwards (gateway), fd,
                                        forward->spec.port);
  netd_udp_forward_set_location (forward->udp, &forward->udp);
}

static void
forward_free (Forward *forward)
{
  while (forward->connections.head != NULL)
    connection_free (forward->connections.head->data);
  g_clear_pointer (&forward->udp, netd_udp_forward_free);
  g_clear_pointer (&forward->watch, netd_watch_free);
  if (forward->fd >= 0)
    close (forward->fd);
  g_free ((char *) forward->spec.id);
  g_free ((char *) forward->spec.vm_id);
  g_free ((char *) forward->spec.host_address);
  g_free (forward);
}

static gboolean
is_any_address (const NetdSocketAddress *address)
{
  if (address->any.sa_family == AF_INET6)
    return IN6_IS_ADDR_UNSPECIFIED (&address->v6.sin6_addr);
  return address->v4.sin_addr.s_addr == INADDR_ANY;
}

/* Whether a socket cannot be at both. */
static gboolean
addresses_clash (const char *a, const char *b)
{
  NetdSocketAddress one;
  NetdSocketAddress other;

  return netd_socket_address_parse (&one, a, 0) && netd_socket_address_parse (&other, b, 0)
         && one.any.sa_family == other.any.sa_family
         && (is_any_address (&one) || is_any_address (&other)
             || memcmp (&one, &other, sizeof one) == 0);
}

/* The forward of this network that has a port of the host already. */
static Forward *
find_holder (NetdForwards *self, const NetdForwardSpec *spec)
{
  GHashTableIter iter;
  gpointer value;

  g_hash_table_iter_init (&iter, self->forwards);
  while (g_hash_table_iter_next (&iter, NULL, &value))
    {
      Forward *forward = value;

      if (forward->spec.host_port == spec->host_port && forward->spec.is_udp == spec->is_udp
          && addresses_clash (forward->spec.host_address, spec->host_address))
        return forward;
    }
  return NULL;
}

static void
set_bind_error (NetdForwards *self, const NetdForwardSpec *spec, int error_number, GError **error)
{
  Forward *holder = find_holder (self, spec);

  if (error_number == EADDRINUSE && holder != NULL)
    g_set_error (error, G_IO_ERROR, G_IO_ERROR_ADDRESS_IN_USE,
                 "port %u of %s is in use by forward %s of VM %s", spec->host_port,
                 spec->host_address, holder->spec.id, holder->spec.vm_id);
  else if (error_number == EADDRINUSE)
    g_set_error (error, G_IO_ERROR, G_IO_ERROR_ADDRESS_IN_USE,
                 "port %u of %s is in use by another program or network; choose another, "
                 "or 0 for a free one",
                 spec->host_port, spec->host_address);
  else if (error_number == EACCES && spec->host_port > 0
           && spec->host_port < FIRST_UNPRIVILEGED_PORT)
    g_set_error (error, G_IO_ERROR, G_IO_ERROR_PERMISSION_DENIED,
                 "port %u of %s may not be opened: ports below the host's sysctl "
                 "net.ipv4.ip_unprivileged_port_start need that lowered, or a socket from systemd; "
                 "choose one from %d on",
                 spec->host_port, spec->host_address, FIRST_UNPRIVILEGED_PORT);
  else if (error_number == EADDRNOTAVAIL)
    g_set_error (error, G_IO_ERROR, G_IO_ERROR_INVALID_ARGUMENT,
                 "%s is not an address of this host", spec->host_address);
  else
    g_set_error (error, G_IO_ERROR, (gint) g_io_error_from_errno (error_number),
                 "port %u of %s: %s", spec->host_port, spec->host_address,
                 g_strerror (error_number));
}

static void
set_socket_options (int fd, const NetdForwardSpec *spec, gboolean is_v6)
{
  int one = 1;

  /* "::" and "0.0.0.0" are two forwards. */
  if (is_v6)
    setsockopt (fd, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof one);
  if (spec->is_udp)
    return;
  setsockopt (fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  /* Connections have these from their listener. Peers that vanished are found by the kernel. */
  setsockopt (fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof one);
  setsockopt (fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
}

/* *@host_port becomes what the kernel chose. Returns the socket, -1 on error. */
static int
open_socket (NetdForwards *self, const NetdForwardSpec *spec, guint16 *host_port, GError **error)
{
  int type = (spec->is_udp ? SOCK_DGRAM : SOCK_STREAM) | SOCK_NONBLOCK | SOCK_CLOEXEC;
  NetdSocketAddress address;
  socklen_t length = sizeof address;
  int fd;

  if (!netd_socket_address_parse (&address, spec->host_address, spec->host_port))
    {
      g_set_error (error, G_IO_ERROR, G_IO_ERROR_INVALID_ARGUMENT,
                   "\"%s\" is not an IPv4 or IPv6 address", spec->host_address);
      return -1;
    }
  fd = socket (address.any.sa_family, type, 0);
  if (fd < 0)
    {
      set_bind_error (self, spec, errno, error);
      return -1;
    }
  set_socket_options (fd, spec, address.any.sa_family == AF_INET6);
  if (bind (fd, &address.any, netd_socket_address_length (&address)) < 0
      || (!spec->is_udp && listen (fd, SOMAXCONN) < 0)
      || getsockname (fd, &address.any, &length) < 0)
    {
      set_bind_error (self, spec, errno, error);
      close (fd);
      return -1;
    }
  *host_port = netd_socket_address_get_port (&address);
  return fd;
}

static gboolean
check_spec (NetdForwards *self, const NetdForwardSpec *spec, GError **error)
{
  if (spec->port == 0)
    {
      g_set_error (error, G_IO_ERROR, G_IO_ERROR_INVALID_ARGUMENT,
                   "a forward needs a port of the guest from 1 to 65535");
      return FALSE;
    }
  if (g_hash_table_size (self->forwards) >= NETD_FORWARDS_MAX)
    {
      g_set_error (error, G_IO_ERROR, G_IO_ERROR_NO_SPACE,
                   "the network has %d forwards, which is the limit; close one first",
                   NETD_FORWARDS_MAX);
      return FALSE;
    }
  return TRUE;
}

guint16
netd_forwards_add (NetdForwards *self, const NetdForwardSpec *spec, GError **error)
{
  Forward *forward = g_hash_table_lookup (self->forwards, spec->id);
  NetdGateway *gateway;
  guint16 host_port = 0;
  int fd;

  if (forward != NULL)
    return forward->spec.host_port;
  if (!check_spec (self, spec, error))
    return 0;
  fd = open_socket (self, spec, &host_port, error);
  if (fd < 0)
    return 0;

  forward = g_new0 (Forward, 1);
  forward->owner = self;
  forward->spec = *spec;
  forward->spec.id = g_strdup (spec->id);
  forward->spec.vm_id = g_strdup (spec->vm_id);
  forward->spec.host_address = g_strdup (spec->host_address);
  forward->spec.host_port = host_port;
  forward->fd = fd;
  g_queue_init (&forward->connections);
  g_hash_table_insert (self->forwards, (char *) forward->spec.id, forward);
  gateway = find_gateway (forward);
  if (!spec->is_udp)
    forward->watch = netd_watch_new (self->loop, fd, EPOLLIN, listener_ready, forward);
  else if (gateway != NULL)
    attach_udp (forward, gateway);
  return host_port;
}

gboolean
netd_forwards_remove (NetdForwards *self, const char *id)
{
  return g_hash_table_remove (self->forwards, id);
}

static gboolean
belongs_to_vm (gpointer key, gpointer value, gpointer user_data)
{
  return g_str_equal (((Forward *) value)->spec.vm_id, user_data);
}

void
netd_forwards_remove_vm (NetdForwards *self, const char *vm_id)
{
  g_hash_table_foreach_remove (self->forwards, belongs_to_vm, (char *) vm_id);
}

void
netd_forwards_port_attached (NetdForwards *self, NetdPort *port)
{
  GHashTableIter iter;
  gpointer value;

  g_hash_table_iter_init (&iter, self->forwards);
  while (g_hash_table_iter_next (&iter, NULL, &value))
    {
      Forward *forward = value;

      if (forward->spec.is_udp && g_str_equal (forward->spec.vm_id, netd_port_get_vm_id (port)))
        attach_udp (forward, netd_port_get_gateway (port));
    }
}

void
netd_forwards_foreach (NetdForwards *self, NetdForwardFunc func, gpointer user_data)
{
  GHashTableIter iter;
  gpointer value;

  g_hash_table_iter_init (&iter, self->forwards);
  while (g_hash_table_iter_next (&iter, NULL, &value))
    func (&((Forward *) value)->spec, user_data);
}

NetdForwards *
netd_forwards_new (NetdNetwork *network)
{
  NetdForwards *self = g_new0 (NetdForwards, 1);

  self->network = network;
  self->loop = netd_network_get_loop (network);
  self->forwards
      = g_hash_table_new_full (g_str_hash, g_str_equal, NULL, (GDestroyNotify) forward_free);
  self->timer = netd_timer_new (self->loop, timer_fired, self);
  return self;
}

void
netd_forwards_free (NetdForwards *self)
{
  g_hash_table_unref (self->forwards);
  netd_timer_free (self->timer);
  g_free (self);
}

/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * UDP from the host's side into a guest. To the guest every peer is a port of the gateway; what the
 * guest sends to that port goes back to the peer, from the address that the peer had written to.
 *
 * Peers are kept in the order of their last datagram. The oldest one makes room when there are too
 * many, and one timer, armed only while there are peers, forgets those that have been silent. Ports
 * of the gateway are given out in turn, so that an answer that comes late finds nobody rather than
 * somebody else.
 */
#include "netd-udp-forward.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "netd-resolvers.h"

#define GATEWAY_PORTS 40000
#define DATAGRAMS_PER_TURN 32

struct _NetdUdpForwards
{
  NetdUdpForwardsConfig config;
  GPtrArray *forwards;    /* NetdUdpForward */
  GHashTable *by_address; /* PeerKey in Peer to Peer */
  GHashTable *by_port;    /* gateway's port to Peer */
  GQueue peers;           /* Peer, the one heard of longest ago first */
  guint next_port;        /* counted from NETD_UDP_PORT_FIRST */
  NetdTimer *timer;
};

struct _NetdUdpForward
{
  NetdUdpForwards *owner;
  int fd;
  guint16 port;
  NetdWatch *watch;
  NetdUdpForward **location;
};

/* No padding: compared and hashed as bytes. */
typedef struct
{
  NetdUdpForward *forward;
  guint8 address[16];
  guint32 scope;
  guint16 port;
  guint16 family;
} PeerKey;

/* The address of ours that a datagram was sent to. */
typedef union
{
  struct in_pktinfo v4;
  struct in6_pktinfo v6;
} LocalAddress;

typedef struct
{
  GList link;
  PeerKey key;
  NetdSocketAddress address;
  gboolean has_local;
  LocalAddress local;
  guint16 gateway_port;
  gint64 last_heard;
} Peer;

/* Space for one control message of either kind, aligned for it. */
typedef union
{
  struct cmsghdr header;
  char space[CMSG_SPACE (sizeof (LocalAddress))];
} Control;

static guint
peer_key_hash (gconstpointer key)
{
  const guint8 *bytes = key;
  guint hash = 5381;

  for (gsize i = 0; i < sizeof (PeerKey); i++)
    hash = hash * 33 + bytes[i];
  return hash;
}

static gboolean
peer_key_equal (gconstpointer a, gconstpointer b)
{
  return memcmp (a, b, sizeof (PeerKey)) == 0;
}

static void
peer_key_init (PeerKey *key, NetdUdpForward *forward, const NetdSocketAddress *address)
{
  memset (key, 0, sizeof *key);
  key->forward = forward;
  key->family = address->any.sa_family;
  if (address->any.sa_family == AF_INET6)
    {
      memcpy (key->address, &address->v6.sin6_addr, 16);
      key->scope = address->v6.sin6_scope_id;
      key->port = address->v6.sin6_port;
    }
  else
    {
      memcpy (key->address, &address->v4.sin_addr, 4);
      key->port = address->v4.sin_port;
    }
}

static void
peer_free (NetdUdpForwards *self, Peer *peer)
{
  g_hash_table_remove (self->by_address, &peer->key);
  g_hash_table_remove (self->by_port, GUINT_TO_POINTER (peer->gateway_port));
  g_queue_unlink (&self->peers, &peer->link);
  g_free (peer);
  if (self->peers.length == 0)
    netd_timer_stop (self->timer);
}

static void
touch (NetdUdpForwards *self, Peer *peer)
{
  peer->last_heard = netd_loop_now (self->config.loop);
  g_queue_unlink (&self->peers, &peer->link);
  g_queue_push_tail_link (&self->peers, &peer->link);
}

static void
timer_fired (gpointer user_data)
{
  NetdUdpForwards *self = user_data;
  gint64 now = netd_loop_now (self->config.loop);

  while (self->peers.head != NULL
         && ((Peer *) self->peers.head->data)->last_heard + NETD_UDP_IDLE_MS <= now)
    peer_free (self, self->peers.head->data);
  if (self->peers.head != NULL)
    netd_timer_start (self->timer, ((Peer *) self->peers.head->data)->last_heard
                                       + NETD_UDP_IDLE_MS - now);
}

/* There are far more ports than peers. */
static guint16
take_gateway_port (NetdUdpForwards *self)
{
  guint port;

  do
    {
      port = NETD_UDP_PORT_FIRST + self->next_port;
      self->next_port = (self->next_port + 1) % GATEWAY_PORTS;
    }
  while (g_hash_table_contains (self->by_port, GUINT_TO_POINTER (port)));
  return (guint16) port;
}

static Peer *
find_or_add_peer (NetdUdpForward *forward, const NetdSocketAddress *address)
{
  NetdUdpForwards *self = forward->owner;
  PeerKey key;
  Peer *peer;

  peer_key_init (&key, forward, address);
  peer = g_hash_table_lookup (self->by_address, &key);
  if (peer != NULL)
    return peer;
  if (self->peers.length >= NETD_UDP_PEERS_MAX)
    peer_free (self, self->peers.head->data);
  peer = g_new0 (Peer, 1);
  peer->link.data = peer;
  peer->key = key;
  peer->address = *address;
  peer->gateway_port = take_gateway_port (self);
  g_hash_table_insert (self->by_address, &peer->key, peer);
  g_hash_table_insert (self->by_port, GUINT_TO_POINTER (peer->gateway_port), peer);
  g_queue_push_tail_link (&self->peers, &peer->link);
  if (!netd_timer_is_armed (self->timer))
    netd_timer_start (self->timer, NETD_UDP_IDLE_MS);
  return peer;
}

/* The interface matters for addresses that mean something only there; else routing may choose. */
static void
note_local_address (Peer *peer, struct msghdr *message)
{
  struct cmsghdr *header = CMSG_FIRSTHDR (message);

  peer->has_local = FALSE;
  if (header == NULL)
    return;
  if (header->cmsg_level == IPPROTO_IP && header->cmsg_type == IP_PKTINFO)
    {
      memcpy (&peer->local.v4, CMSG_DATA (header), sizeof peer->local.v4);
      peer->local.v4.ipi_ifindex = 0;
      peer->has_local = TRUE;
    }
  else if (header->cmsg_level == IPPROTO_IPV6 && header->cmsg_type == IPV6_PKTINFO)
    {
      memcpy (&peer->local.v6, CMSG_DATA (header), sizeof peer->local.v6);
      if (!IN6_IS_ADDR_LINKLOCAL (&peer->local.v6.ipi6_addr))
        peer->local.v6.ipi6_ifindex = 0;
      peer->has_local = !IN6_IS_ADDR_MULTICAST (&peer->local.v6.ipi6_addr);
    }
}

static void
send_to_guest (NetdUdpForward *forward, Peer *peer, const guint8 *payload, gsize length)
{
  static guint8 frame[NETD_PACKET_MAX];
  NetdUdpForwardsConfig *config = &forward->owner->config;
  const NetdUdpAddress address = {
    .source_mac = config->plan->gateway_mac,
    .destination_mac = config->mac,
    .source = config->plan->gateway,
    .destination = config->ip,
    .source_port = peer->gateway_port,
    .destination_port = forward->port,
  };
  gsize frame_length = netd_packet_build_udp (frame, sizeof frame, &address, payload, length);

  if (frame_length > 0)
    config->send (frame, frame_length, config->user_data);
}

/* Returns FALSE when there is nothing to receive. */
static gboolean
receive_one (NetdUdpForward *forward)
{
  static guint8 payload[65536];
  NetdSocketAddress address = { 0 };
  Control control = { 0 };
  struct iovec part = { payload, sizeof payload };
  struct msghdr message = {
    .msg_name = &address,
    .msg_namelen = sizeof address,
    .msg_iov = &part,
    .msg_iovlen = 1,
    .msg_control = &control,
    .msg_controllen = sizeof control,
  };
  gssize n = recvmsg (forward->fd, &message, MSG_DONTWAIT);
  Peer *peer;

  if (n < 0)
    return errno == EINTR;
  peer = find_or_add_peer (forward, &address);
  touch (forward->owner, peer);
  note_local_address (peer, &message);
  send_to_guest (forward, peer, payload, (gsize) n);
  return TRUE;
}

static void
socket_ready (guint32 events, gpointer user_data)
{
  NetdUdpForward *forward = user_data;

  for (guint i = 0; i < DATAGRAMS_PER_TURN; i++)
    if (!receive_one (forward))
      return;
}

static gboolean
send_to_peer (NetdUdpForward *forward, Peer *peer, const NetdPacket *packet)
{
  gboolean is_v6 = peer->address.any.sa_family == AF_INET6;
  gsize length = is_v6 ? sizeof peer->local.v6 : sizeof peer->local.v4;
  Control control = { 0 };
  struct iovec part = { (void *) packet->payload, packet->payload_length };
  struct msghdr message = {
    .msg_name = &peer->address,
    .msg_namelen = netd_socket_address_length (&peer->address),
    .msg_iov = &part,
    .msg_iovlen = 1,
  };

  if (peer->has_local)
    {
      control.header.cmsg_level = is_v6 ? IPPROTO_IPV6 : IPPROTO_IP;
      control.header.cmsg_type = is_v6 ? IPV6_PKTINFO : IP_PKTINFO;
      control.header.cmsg_len = CMSG_LEN (length);
      memcpy (CMSG_DATA (&control.header), &peer->local, length);
      message.msg_control = &control;
      message.msg_controllen = CMSG_SPACE (length);
    }
  return sendmsg (forward->fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0;
}

gboolean
netd_udp_forwards_receive (NetdUdpForwards *self, const NetdPacket *packet)
{
  Peer *peer;

  if (packet->is_fragment || packet->payload == NULL)
    return FALSE;
  peer = g_hash_table_lookup (self->by_port, GUINT_TO_POINTER (packet->destination_port));
  if (peer == NULL || packet->source_port != peer->key.forward->port)
    return FALSE;
  touch (self, peer);
  return send_to_peer (peer->key.forward, peer, packet);
}

NetdUdpForward *
netd_udp_forwards_add (NetdUdpForwards *self, int fd, guint16 port)
{
  NetdUdpForward *forward = g_new0 (NetdUdpForward, 1);
  int one = 1;

  /* Whichever of the two is not of the socket's family fails, and is not needed. */
  setsockopt (fd, IPPROTO_IP, IP_PKTINFO, &one, sizeof one);
  setsockopt (fd, IPPROTO_IPV6, IPV6_RECVPKTINFO, &one, sizeof one);
  forward->owner = self;
  forward->fd = fd;
  forward->port = port;
  forward->watch = netd_watch_new (self->config.loop, fd, EPOLLIN, socket_ready, forward);
  g_ptr_array_add (self->forwards, forward);
  return forward;
}

void
netd_udp_forward_set_location (NetdUdpForward *forward, NetdUdpForward **location)
{
  forward->location = location;
}

void
netd_udp_forward_free (NetdUdpForward *forward)
{
  NetdUdpForwards *self = forward->owner;
  GList *next = NULL;

  for (GList *item = self->peers.head; item != NULL; item = next)
    {
      Peer *peer = item->data;

      next = item->next;
      if (peer->key.forward == forward)
        peer_free (self, peer);
    }
  g_ptr_array_remove_fast (self->forwards, forward);
  netd_watch_free (forward->watch);
  close (forward->fd);
  if (forward->location != NULL)
    *forward->location = NULL;
  g_free (forward);
}

guint
netd_udp_forwards_get_n_peers (NetdUdpForwards *self)
{
  return self->peers.length;
}

NetdUdpForwards *
netd_udp_forwards_new (const NetdUdpForwardsConfig *config)
{
  NetdUdpForwards *self = g_new0 (NetdUdpForwards, 1);

  self->config = *config;
  self->forwards = g_ptr_array_new ();
  self->by_address = g_hash_table_new (peer_key_hash, peer_key_equal);
  self->by_port = g_hash_table_new (NULL, NULL);
  g_queue_init (&self->peers);
  self->timer = netd_timer_new (config->loop, timer_fired, self);
  return self;
}

void
netd_udp_forwards_free (NetdUdpForwards *self)
{
  while (self->forwards->len > 0)
    netd_udp_forward_free (g_ptr_array_index (self->forwards, 0));
  g_ptr_array_unref (self->forwards);
  g_hash_table_unref (self->by_address);
  g_hash_table_unref (self->by_port);
  netd_timer_free (self->timer);
  g_free (self);
}

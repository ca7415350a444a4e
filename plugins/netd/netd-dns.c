/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * DNS over UDP on the gateway. Each query goes out from a socket of its own, connected to one of
 * the host's name servers, with an id that is not the guest's: who wants to forge an answer has to
 * guess the port and the id, and the kernel drops what does not come from the server. A server that
 * refuses, or says nothing for a while, is followed by the next one; after two rounds the guest
 * hears SERVFAIL.
 *
 * Nothing is remembered between queries, so a change of the host's name servers is in effect at
 * once.
 */
#include "netd-dns.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "netd-dns-message.h"
#include "netd-dns-stream.h"

#define DNS_PORT 53
#define QUERY_MAX 4096
#define ROUNDS 2
#define UDP_OVERHEAD (20 + 8)
/* What is read of one server at a time when it keeps sending what was not asked for. */
#define ANSWERS_PER_TURN 16

struct _NetdDns
{
  NetdDnsConfig config;
  NetdResolvers seen; /* the servers that attempts are counted against */
  GQueue queries;     /* Query, oldest first */
  NetdTimer *timer;   /* for the first deadline */
  NetdDnsStreams *streams;
};

typedef struct
{
  GList link;
  NetdDns *dns;
  guint16 guest_port;
  guint8 guest_id[2];
  guint8 *message; /* as it goes out: with our id */
  gsize length;
  gsize question_length;
  int fd; /* -1: between attempts */
  NetdWatch *watch;
  guint attempt; /* attempts made */
  gint64 deadline;
} Query;

static void
send_to_guest (NetdDns *self, guint16 port, const guint8 *message, gsize length)
{
  static guint8 frame[NETD_PACKET_MAX];
  const NetdPlan *plan = self->config.plan;
  const NetdUdpAddress address = {
    .source_mac = plan->gateway_mac,
    .destination_mac = self->config.mac,
    .source = plan->gateway,
    .destination = self->config.ip,
    .source_port = DNS_PORT,
    .destination_port = port,
  };
  gsize frame_length = netd_packet_build_udp (frame, sizeof frame, &address, message, length);

  if (frame_length > 0)
    self->config.send (frame, frame_length, self->config.user_data);
}

static void
close_socket (Query *query)
{
  g_clear_pointer (&query->watch, netd_watch_free);
  if (query->fd >= 0)
    close (query->fd);
  query->fd = -1;
}

static void
query_free (Query *query)
{
  NetdDns *self = query->dns;

  g_queue_unlink (&self->queries, &query->link);
  close_socket (query);
  g_free (query->message);
  g_free (query);
  if (self->queries.length == 0)
    netd_timer_stop (self->timer);
}

static void
give_up (Query *query)
{
  guint8 answer[NETD_DNS_SHORT_MAX];
  gsize length = netd_dns_make_error (query->message, query->question_length, NETD_DNS_SERVFAIL,
                                      answer);

  memcpy (answer, query->guest_id, sizeof query->guest_id);
  send_to_guest (query->dns, query->guest_port, answer, length);
  query_free (query);
}

static void answer_ready (guint32 events, gpointer user_data);

/* Returns FALSE when this server is out of the question already. */
static gboolean
try_server (Query *query, const NetdSocketAddress *server)
{
  NetdLoop *loop = query->dns->config.loop;

  if (getrandom (query->message, 2, 0) != 2)
    return FALSE;
  query->fd = socket (server->any.sa_family, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (query->fd < 0)
    return FALSE;
  if (connect (query->fd, &server->any, netd_socket_address_length (server)) < 0
      || send (query->fd, query->message, query->length, MSG_NOSIGNAL) < 0)
    return FALSE;
  query->watch = netd_watch_new (loop, query->fd, EPOLLIN, answer_ready, query);
  query->deadline = netd_loop_now (loop) + NETD_DNS_TRY_MS;
  if (!netd_timer_is_armed (query->dns->timer))
    netd_timer_start (query->dns->timer, NETD_DNS_TRY_MS);
  return TRUE;
}

/* Attempts count only against the servers they were made with. */
static void
follow_servers (NetdDns *self)
{
  if (memcmp (&self->seen, self->config.resolvers, sizeof self->seen) == 0)
    return;
  self->seen = *self->config.resolvers;
  for (GList *item = self->queries.head; item != NULL; item = item->next)
    ((Query *) item->data)->attempt = 0;
}

/* Frees the query when no server is left. */
static void
try_next_server (Query *query)
{
  NetdDns *self = query->dns;

  follow_servers (self);
  close_socket (query);
  while (query->attempt < ROUNDS * self->seen.n_servers)
    {
      guint index = query->attempt++ % self->seen.n_servers;

      if (try_server (query, &self->seen.servers[index]))
        return;
      close_socket (query);
    }
  give_up (query);
}

/* What a resolver of the host would take for a reason to ask the next server, while there is one
 * that was not asked yet. */
static gboolean
is_no_help (Query *query, const guint8 *answer)
{
  guint rcode = netd_dns_get_rcode (answer);

  return query->attempt < query->dns->seen.n_servers
         && (rcode == NETD_DNS_SERVFAIL || rcode == NETD_DNS_NOTIMP || rcode == NETD_DNS_REFUSED);
}

static void
pass_answer_on (Query *query, guint8 *answer, gsize length)
{
  NetdDns *self = query->dns;
  guint8 cut[NETD_DNS_SHORT_MAX];

  memcpy (answer, query->guest_id, sizeof query->guest_id);
  if (length + UDP_OVERHEAD <= self->config.plan->mtu)
    {
      send_to_guest (self, query->guest_port, answer, length);
    }
  else
    {
      length = netd_dns_make_truncated (answer, query->question_length, cut);
      send_to_guest (self, query->guest_port, cut, length);
    }
  query_free (query);
}

static void
answer_ready (guint32 events, gpointer user_data)
{
  static guint8 answer[65536];
  Query *query = user_data;

  for (guint i = 0; i < ANSWERS_PER_TURN; i++)
    {
      gssize n = recv (query->fd, answer, sizeof answer, MSG_DONTWAIT);

      if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
      if (n < 0)
        {
          try_next_server (query);
          return;
        }
      if (!netd_dns_is_answer (query->message, query->question_length, answer, (gsize) n))
        continue;
      if (is_no_help (query, answer))
        try_next_server (query);
      else
        pass_answer_on (query, answer, (gsize) n);
      return;
    }
}

static void
timer_fired (gpointer user_data)
{
  NetdDns *self = user_data;
  gint64 now = netd_loop_now (self->config.loop);
  gint64 first = G_MAXINT64;
  GList *next = NULL;

  for (GList *item = self->queries.head; item != NULL; item = next)
    {
      Query *query = item->data;

      next = item->next;
      if (query->deadline <= now)
        try_next_server (query);
    }
  for (GList *item = self->queries.head; item != NULL; item = item->next)
    first = MIN (first, ((Query *) item->data)->deadline);
  if (first < G_MAXINT64)
    netd_timer_start (self->timer, first - now);
}

/* Answers what is not to be passed on. */
static void
refuse (NetdDns *self, const NetdPacket *packet, guint rcode)
{
  guint8 answer[NETD_DNS_SHORT_MAX];
  gsize length = netd_dns_make_error (packet->payload, 0, rcode, answer);

  send_to_guest (self, packet->source_port, answer, length);
}

/* The query in flight with the same port and id: the guest asks again, or asks something else. */
static Query *
find_query (NetdDns *self, const NetdPacket *packet)
{
  for (GList *item = self->queries.head; item != NULL; item = item->next)
    {
      Query *query = item->data;

      if (query->guest_port == packet->source_port
          && memcmp (query->guest_id, packet->payload, sizeof query->guest_id) == 0)
        return query;
    }
  return NULL;
}

static gboolean
is_same_query (const Query *query, const NetdPacket *packet)
{
  return query->length == packet->payload_length
         && memcmp (query->message + 2, packet->payload + 2, query->length - 2) == 0;
}

static void
start_query (NetdDns *self, const NetdPacket *packet, gsize question_length)
{
  Query *query = find_query (self, packet);

  if (query != NULL && is_same_query (query, packet))
    return;
  if (query != NULL)
    query_free (query);
  if (self->queries.length >= NETD_DNS_QUERIES_MAX)
    query_free (self->queries.head->data);
  query = g_new0 (Query, 1);
  query->link.data = query;
  query->dns = self;
  query->guest_port = packet->source_port;
  memcpy (query->guest_id, packet->payload, sizeof query->guest_id);
  query->message = g_memdup2 (packet->payload, packet->payload_length);
  query->length = packet->payload_length;
  query->question_length = question_length;
  query->fd = -1;
  g_queue_push_tail_link (&self->queries, &query->link);
  try_next_server (query);
}

void
netd_dns_query (NetdDns *self, const NetdPacket *packet)
{
  gsize question_length = 0;

  if (packet->is_fragment || packet->payload == NULL || packet->source_port == 0
      || packet->payload_length > QUERY_MAX)
    return;
  switch (netd_dns_query_check (packet->payload, packet->payload_length, &question_length))
    {
    case NETD_DNS_QUERY_GOOD:
      start_query (self, packet, question_length);
      break;
    case NETD_DNS_QUERY_BAD:
      refuse (self, packet, NETD_DNS_FORMERR);
      break;
    case NETD_DNS_QUERY_UNSUPPORTED:
      refuse (self, packet, NETD_DNS_NOTIMP);
      break;
    case NETD_DNS_QUERY_SILENT:
    default:
      break;
    }
}

void
netd_dns_accept (NetdDns *self, int fd)
{
  netd_dns_streams_accept (self->streams, fd);
}

NetdDns *
netd_dns_new (const NetdDnsConfig *config)
{
  NetdDns *self = g_new0 (NetdDns, 1);

  self->config = *config;
  g_queue_init (&self->queries);
  self->timer = netd_timer_new (config->loop, timer_fired, self);
  self->streams = netd_dns_streams_new (config);
  return self;
}

void
netd_dns_free (NetdDns *self)
{
  while (self->queries.head != NULL)
    query_free (self->queries.head->data);
  netd_dns_streams_free (self->streams);
  netd_timer_free (self->timer);
  g_free (self);
}

/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The NAT engine, on libslirp, which is used as a TCP end point and a NAT only: its DHCP, DNS,
 * TFTP, IPv6 and protocol helpers are off or out of reach. What a guest sends is sorted here by
 * where it may go, so an instance sees only what it is for; nothing that is for nobody gets into
 * one.
 *
 * libslirp has weak spots that a guest or a peer could reach, and each is closed in front of it:
 * urgent pointers (it would read and count beyond its buffers), its reassembly and its queue of
 * segments that are out of order (both without bounds), SIGPIPE, descriptors that run out (which
 * ends the process when it makes a connection into the guest), warnings that a guest can cause
 * without end.
 *
 * netd-engine-instance.c sets libslirp up, -flow.c counts its sockets and keeps the limits, -poll.c
 * joins them to our loop, -services.c has the connections to netd's own services, -dial.c those
 * into the guest.
 */
#include "netd-engine-slirp.h"

#include <netinet/in.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define IP_HEADER 20
#define TCP_HEADER 20
#define TCP_URG 0x20
#define ICMP_ECHO 8
#define PORT_DNS 53
#define PORT_HTTP 80
#define PORT_DHCP 67
#define PORT_TFTP 69

/* Microseconds, as measured; most are the kernel's. What costs little is charged for with more,
 * because nobody needs much of it. */
#define COST_ANSWER 3   /* a reset, an acknowledgement of nothing new, the gateway's echo */
#define COST_OPENING 50 /* a socket that is made, connected and closed */
#define COST_DATAGRAM 4 /* sent to where perhaps nobody listens */
#define COST_BUFFER 12  /* mapped for it, and a page of it touched */
#define COST_FRAGMENT 2 /* copied, perhaps to be thrown away */
#define COST_ECHO 15    /* a socket for one request */

/* Datagrams for which something may yet come back: of one flow, of all. */
#define UNANSWERED_MAX 64
#define UNANSWERED_OF_ALL_MAX 1024

/* libslirp holds on to the last datagram of each flow, and has so many buffers at hand. */
#define BUFFERS_AT_HAND 30

static inline guint16
read_16 (const guint8 *data)
{
  return (guint16) (data[0] << 8 | data[1]);
}

static inline guint32
read_32 (const guint8 *data)
{
  return (guint32) data[0] << 24 | (guint32) data[1] << 16 | (guint32) data[2] << 8 | data[3];
}

static void
spend (NetdEngine *self, guint microseconds)
{
  self->config.spend (microseconds, self->config.user_data);
}

static void
refuse (NetdEngine *self, const NetdPacket *packet)
{
  guint8 frame[NETD_ETHERNET_HEADER + IP_HEADER + TCP_HEADER];
  gsize length
      = netd_packet_build_reset (frame, sizeof frame, packet, &self->config.plan->gateway_mac);

  spend (self, COST_ANSWER);
  if (length > 0)
    self->config.send (frame, length, self->config.user_data);
}

/* A copy without its urgent pointer, whose bytes are thereby ordinary ones. */
static const guint8 *
without_urgent_pointer (NetdEngine *self, const NetdPacket *packet)
{
  gsize at = (gsize) (packet->transport - packet->frame);
  guint32 sum;
  guint8 *tcp;

  if (self->scratch == NULL)
    self->scratch = g_malloc (NETD_PACKET_MAX);
  memcpy (self->scratch, packet->frame, NETD_ETHERNET_HEADER + packet->ip_length);
  tcp = self->scratch + at;
  /* RFC 1624, equation 3: HC' = ~(~HC + ~m + m'). */
  sum = (guint16) ~read_16 (tcp + 16) + (guint16) ~read_16 (tcp + 12)
        + (guint16) ~read_16 (tcp + 18);
  tcp[13] &= (guint8) ~TCP_URG;
  tcp[18] = tcp[19] = 0;
  sum += read_16 (tcp + 12);
  sum = (sum & 0xffff) + (sum >> 16);
  sum = (sum & 0xffff) + (sum >> 16);
  tcp[16] = (guint8) (~sum >> 8);
  tcp[17] = (guint8) ~sum;
  return self->scratch;
}

static void
input (NetdInstance *instance, const NetdPacket *packet, guint64 key)
{
  NetdEngine *self = instance->engine;
  const guint8 *frame = packet->frame;

  if (packet->protocol == IPPROTO_TCP && (packet->tcp_flags & TCP_URG) != 0)
    frame = without_urgent_pointer (self, packet);
  self->input_key = key;
  self->input_protocol = packet->protocol;
  self->active_at = netd_loop_now (self->config.loop);
  netd_instance_input (instance, frame, NETD_ETHERNET_HEADER + packet->ip_length);
  self->input_key = 0;
}

static gboolean
opens_connection (const NetdPacket *packet)
{
  return (packet->tcp_flags & (NETD_TCP_SYN | NETD_TCP_ACK | NETD_TCP_RST | NETD_TCP_FIN))
         == NETD_TCP_SYN;
}

static gboolean
take_segment (NetdFlow *flow, const NetdPacket *packet)
{
  gsize length = packet->payload_length + ((packet->tcp_flags & NETD_TCP_FIN) != 0);

  return netd_flow_take_segment (flow, read_32 (packet->transport + 4), length);
}

/* All of it has been acknowledged. The way from a guest loses nothing, so that little is sent
 * twice. */
static gboolean
is_old (const NetdFlow *flow, const NetdPacket *packet)
{
  guint32 end = read_32 (packet->transport + 4) + (guint32) packet->payload_length;

  return packet->payload_length > 0 && flow->has_acknowledged
         && (gint32) (end - flow->acknowledged) <= 0;
}

static NetdEngineVerdict
input_tcp (NetdEngine *self, NetdInstanceKind kind, const NetdPacket *packet)
{
  guint64 key = netd_flow_tcp_key (packet->source_port, packet->ip_destination,
                                   packet->destination_port);
  NetdFlow *flow = netd_flow_find (self, key);
  NetdInstance *instance = self->instances[kind];

  if (flow != NULL && !take_segment (flow, packet))
    {
      spend (self, COST_ANSWER);
      return NETD_ENGINE_TAKEN;
    }
  if (flow == NULL && opens_connection (packet))
    {
      if (!netd_flow_has_room (self, IPPROTO_TCP))
        return NETD_ENGINE_FULL;
      spend (self, COST_OPENING);
      instance = netd_engine_need_instance (self, kind);
    }
  else if (instance != NULL && (flow == NULL || is_old (flow, packet)))
    spend (self, COST_ANSWER);
  if (instance == NULL)
    refuse (self, packet);
  else
    input (instance, packet, key);
  return NETD_ENGINE_TAKEN;
}

static NetdEngineVerdict
input_service (NetdEngine *self, NetdService service, const NetdPacket *packet)
{
  guint64 key = netd_flow_tcp_key (packet->source_port, packet->ip_destination,
                                   packet->destination_port);
  NetdFlow *flow = netd_flow_find (self, key);
  NetdEngineVerdict verdict;

  if (!netd_services_may_take (self, service, flow != NULL && flow->fd < 0))
    return NETD_ENGINE_TAKEN;
  self->is_connected = FALSE;
  verdict = input_tcp (self, NETD_INSTANCE_SERVICES, packet);
  if (self->is_connected)
    netd_services_accept (self, service);
  return verdict;
}

/* To the gateway there are its services, and answers to connections that were made from it. */
static NetdEngineVerdict
input_for_gateway (NetdEngine *self, const NetdPacket *packet)
{
  if (packet->destination_port == PORT_DNS)
    return input_service (self, NETD_SERVICE_DNS, packet);
  if (opens_connection (packet))
    {
      refuse (self, packet);
      return NETD_ENGINE_TAKEN;
    }
  return input_tcp (self, NETD_INSTANCE_NAT, packet);
}

static NetdEngineVerdict
route_tcp (NetdEngine *self, NetdPlace place, const NetdPacket *packet)
{
  if (place == NETD_PLACE_OUTSIDE)
    return input_tcp (self, NETD_INSTANCE_NAT, packet);
  if (place == NETD_PLACE_ALIAS)
    return input_tcp (self, NETD_INSTANCE_ALIAS, packet);
  if (place == NETD_PLACE_GATEWAY)
    return input_for_gateway (self, packet);
  if (place == NETD_PLACE_METADATA && packet->destination_port == PORT_HTTP)
    return input_service (self, NETD_SERVICE_METADATA, packet);
  refuse (self, packet);
  return NETD_ENGINE_TAKEN;
}

/* Who is answered may send as much as it likes. A stream to where nothing comes back from goes at a
 * rate, as it costs the same whether somebody takes it or not. */
static void
note_unanswered (NetdEngine *self, const NetdInstance *instance, NetdFlow *flow)
{
  guint n_udp = instance != NULL ? instance->n_flows - instance->n_tcp : 0;

  if (flow == NULL || flow->n_unanswered >= UNANSWERED_MAX
      || self->n_unanswered >= UNANSWERED_OF_ALL_MAX)
    {
      spend (self, COST_DATAGRAM + (n_udp > BUFFERS_AT_HAND ? COST_BUFFER : 0));
      return;
    }
  flow->n_unanswered++;
  self->n_unanswered++;
}

/* Behind the alias libslirp's own DHCP and TFTP would listen. */
static NetdEngineVerdict
route_udp (NetdEngine *self, NetdPlace place, const NetdPacket *packet)
{
  NetdInstanceKind kind = place == NETD_PLACE_ALIAS ? NETD_INSTANCE_ALIAS : NETD_INSTANCE_NAT;
  guint64 key = netd_flow_udp_key (kind, packet->source_port);
  NetdInstance *instance;

  if (place != NETD_PLACE_OUTSIDE && place != NETD_PLACE_ALIAS)
    return NETD_ENGINE_TAKEN;
  if (place == NETD_PLACE_ALIAS
      && (packet->destination_port == PORT_DHCP || packet->destination_port == PORT_TFTP))
    return NETD_ENGINE_TAKEN;
  if (netd_flow_find (self, key) == NULL && !netd_flow_has_room (self, IPPROTO_UDP))
    return NETD_ENGINE_FULL;
  instance = netd_engine_need_instance (self, kind);
  if (instance != NULL)
    input (instance, packet, key);
  note_unanswered (self, instance, netd_flow_find (self, key));
  return NETD_ENGINE_TAKEN;
}

/* Where nobody may ping, libslirp would send a datagram to the peer's port 7 instead. */
static gboolean
can_ping (void)
{
  int fd = socket (AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, IPPROTO_ICMP);

  if (fd >= 0)
    close (fd);
  return fd >= 0;
}

/* The gateway and the alias answer by themselves, without a socket. */
static NetdEngineVerdict
route_icmp (NetdEngine *self, NetdPlace place, const NetdPacket *packet)
{
  NetdInstance *instance;

  if (packet->transport_length < 8 || packet->transport[0] != ICMP_ECHO
      || place == NETD_PLACE_FORBIDDEN || place == NETD_PLACE_METADATA)
    return NETD_ENGINE_TAKEN;
  if (place == NETD_PLACE_OUTSIDE && !netd_flow_has_room (self, IPPROTO_ICMP))
    return NETD_ENGINE_FULL;
  spend (self, place == NETD_PLACE_OUTSIDE ? COST_ECHO : COST_ANSWER);
  if (place == NETD_PLACE_OUTSIDE && !can_ping ())
    return NETD_ENGINE_TAKEN;
  instance = netd_engine_need_instance (self, place == NETD_PLACE_ALIAS ? NETD_INSTANCE_ALIAS
                                                                        : NETD_INSTANCE_NAT);
  if (instance != NULL)
    input (instance, packet, 0);
  return NETD_ENGINE_TAKEN;
}

static NetdEngineVerdict
route (NetdEngine *self, const NetdPacket *packet)
{
  NetdPlace place = netd_plan_place (self->config.plan, packet->ip_destination);

  if (packet->protocol == IPPROTO_TCP && packet->payload != NULL)
    return route_tcp (self, place, packet);
  if (packet->protocol == IPPROTO_UDP && packet->payload != NULL)
    return route_udp (self, place, packet);
  if (packet->protocol == IPPROTO_ICMP && packet->transport != NULL)
    return route_icmp (self, place, packet);
  return NETD_ENGINE_TAKEN;
}

NetdEngineVerdict
netd_engine_input (NetdEngine *self, const NetdPacket *packet)
{
  if (packet->kind != NETD_PACKET_IPV4 || packet->has_options
      || packet->ip_source != self->config.ip)
    return NETD_ENGINE_TAKEN;
  if (!packet->is_fragment)
    return route (self, packet);

  if (netd_plan_place (self->config.plan, packet->ip_destination) == NETD_PLACE_FORBIDDEN)
    return NETD_ENGINE_TAKEN;
  spend (self, COST_FRAGMENT);
  if (self->reassembly == NULL)
    self->reassembly = netd_reassembly_new (self->config.loop);
  packet = netd_reassembly_add (self->reassembly, packet);
  return packet != NULL ? route (self, packet) : NETD_ENGINE_TAKEN;
}

void
netd_engine_flush (NetdEngine *self)
{
  netd_engine_fill_dirty (self);
}

/* Perhaps from within libslirp: what follows from it is done in a moment. */
void
netd_engine_set_paused (NetdEngine *self, gboolean paused)
{
  if (self->is_paused == paused)
    return;
  self->is_paused = paused;
  if (paused)
    return;
  for (guint i = 0; i < NETD_N_INSTANCES; i++)
    {
      if (self->instances[i] != NULL)
        self->instances[i]->is_dirty = TRUE;
    }
  if (!netd_timer_is_armed (self->ready_timer))
    netd_timer_start (self->ready_timer, 0);
}

guint
netd_engine_get_flows (NetdEngine *self)
{
  return self->n_flows;
}

/* A guest can make libslirp warn with every packet. Errors of its own are worth a line now and
 * then. */
static void
log_cb (const char *domain, GLogLevelFlags level, const char *message, gpointer user_data)
{
  static gint64 last;
  gint64 now = g_get_monotonic_time ();

  if ((level & G_LOG_LEVEL_CRITICAL) == 0 || (last != 0 && now - last < G_TIME_SPAN_MINUTE))
    return;
  last = now;
  g_warning ("libslirp: %s", message);
}

static void
prepare_process (void)
{
  static gsize once;

  if (!g_once_init_enter (&once))
    return;
  /* It writes to its sockets without asking to be spared the signal. */
  signal (SIGPIPE, SIG_IGN);
  g_log_set_handler ("Slirp", G_LOG_LEVEL_MASK & ~G_LOG_LEVEL_ERROR, log_cb, NULL);
  g_once_init_leave (&once, 1);
}

NetdEngine *
netd_engine_new (const NetdEngineConfig *config)
{
  NetdEngine *self = g_new0 (NetdEngine, 1);

  prepare_process ();
  self->config = *config;
  self->config.socket_directory
      = g_strdup (config->socket_directory != NULL ? config->socket_directory : "/");
  self->flows_by_key = g_hash_table_new (g_int64_hash, g_int64_equal);
  self->flows_by_fd = g_hash_table_new (NULL, NULL);
  self->ready_timer = netd_timer_new (config->loop, netd_engine_ready_cb, self);
  self->tick_timer = netd_timer_new (config->loop, netd_engine_tick_cb, self);
  self->dial_timer = netd_timer_new (config->loop, netd_dials_run_cb, self);
  self->dials = g_ptr_array_new ();
  self->dial_listener = -1;
  for (guint i = 0; i < NETD_N_SERVICES; i++)
    self->listeners[i] = -1;
  return self;
}

void
netd_engine_free (NetdEngine *self)
{
  netd_dials_end (self);
  for (guint i = 0; i < NETD_N_INSTANCES; i++)
    {
      if (self->instances[i] != NULL)
        netd_instance_close (self->instances[i]);
    }
  netd_flow_clear (self);
  for (guint i = 0; i < NETD_N_INSTANCES; i++)
    {
      if (self->instances[i] != NULL)
        netd_instance_free (self->instances[i]);
    }
  netd_services_close (self);
  if (self->reassembly != NULL)
    netd_reassembly_free (self->reassembly);
  netd_timer_free (self->ready_timer);
  netd_timer_free (self->tick_timer);
  netd_timer_free (self->dial_timer);
  g_ptr_array_unref (self->dials);
  g_hash_table_unref (self->flows_by_key);
  g_hash_table_unref (self->flows_by_fd);
  g_free (self->scratch);
  g_free ((char *) self->config.socket_directory);
  g_free (self);
}

const char *
netd_engine_get_name (void)
{
  return "slirp";
}

char *
netd_engine_dup_version (void)
{
  return g_strdup (slirp_version_string ());
}

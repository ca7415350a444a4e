/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The gateway, as one guest has it to itself. Here it is decided what becomes of a packet for the
 * gateway's MAC: one of the network's own services answers it, the NAT engine carries it, or it
 * ends. What a guest uses up here is its own share; no other guest has anything to do with it.
 *
 * The engine is the one part that was not written for hostile guests. It gets only what it is there
 * for, TCP, UDP and echo requests that are whole and without options, to places that
 * netd_plan_place() allows; its other services are out of reach.
 */
#include "netd-gateway.h"

#include <netinet/in.h>
#include <unistd.h>

#include "netd-arp.h"
#include "netd-dhcp.h"
#include "netd-dns.h"
#include "netd-metadata.h"
#include "netd-network.h"
#include "netd-offload.h"
#include "netd-udp-forward.h"

#define DNS_PORT 53
#define DHCP_SERVER_PORT 67
#define METADATA_PORT 80
#define ICMP_ECHO_REQUEST 8
#define ICMP_HEADER 8

/* What the engine may send in one segment: an IP packet of the largest MTU without its headers. */
#define ENGINE_MSS (NETD_MTU_MAX - 40)

/* An answer that is made here: ARP, DHCP, RST. */
#define ANSWER_MAX 2048

/* A query is a socket and a message to a name server: microseconds. */
#define QUERY_CHARGE 25

struct _NetdGateway
{
  NetdNetwork *network;
  NetdPort *port;
  const NetdPlan *plan;
  NetdEngine *engine;
  NetdCoalescer *coalescer;
  NetdDns *dns;
  NetdMetadata *metadata; /* NULL where there is no such service */
  NetdUdpForwards *udp_forwards;
};

static void
send_cb (const guint8 *frame, gsize length, gpointer user_data)
{
  NetdGateway *self = user_data;

  netd_port_send (self->port, frame, length, NETD_ORIGIN_GATEWAY);
}

static void
refuse (NetdGateway *self, const NetdPacket *packet, NetdCount count)
{
  guint8 answer[ANSWER_MAX];
  gsize length = 0;

  netd_port_count (self->port, count, 1);
  if (packet->protocol == IPPROTO_TCP && packet->payload != NULL && !packet->is_fragment)
    length = netd_packet_build_reset (answer, sizeof answer, packet, &self->plan->gateway_mac);
  if (length > 0)
    send_cb (answer, length, self);
}

/* --- The gateway's own services --- */

/* Answers are charged for: there is work in them, and no guest needs many. */
static void
receive_arp (NetdGateway *self, const NetdPacket *packet)
{
  guint8 answer[ANSWER_MAX];
  gsize length = netd_arp_answer (self->plan, packet, answer, sizeof answer);

  netd_port_charge (self->port, NETD_CHARGE_FRAME);
  if (length > 0)
    send_cb (answer, length, self);
}

static void
receive_dhcp (NetdGateway *self, const NetdPacket *packet)
{
  guint8 answer[ANSWER_MAX];
  gsize length = netd_dhcp_answer (self->plan, netd_port_get_mac (self->port),
                                   netd_port_get_ip (self->port), packet, answer, sizeof answer);

  netd_port_charge (self->port, NETD_CHARGE_FRAME);
  if (length > 0)
    send_cb (answer, length, self);
}

static void
serve_cb (NetdService service, int fd, gpointer user_data)
{
  NetdGateway *self = user_data;

  if (service == NETD_SERVICE_DNS)
    netd_dns_accept (self->dns, fd);
  else if (service == NETD_SERVICE_METADATA && self->metadata != NULL)
    netd_metadata_accept (self->metadata, fd);
  else
    close (fd);
}

/* --- The engine --- */

static void
spend_cb (guint microseconds, gpointer user_data)
{
  NetdGateway *self = user_data;

  netd_port_charge (self->port, microseconds);
}

static gboolean
admit_cb (gpointer user_data)
{
  NetdGateway *self = user_data;

  return netd_network_admit_flow (self->network, self->port);
}

static gboolean
is_opening (const NetdPacket *packet)
{
  return (packet->tcp_flags & (NETD_TCP_SYN | NETD_TCP_ACK | NETD_TCP_RST)) == NETD_TCP_SYN;
}

static void
carry (NetdGateway *self, const NetdPacket *packet)
{
  if (netd_engine_input (self->engine, packet) == NETD_ENGINE_FULL)
    refuse (self, packet, NETD_COUNT_FLOW_LIMIT);
}

static void
coalesced_cb (const NetdPacket *packet, gpointer user_data)
{
  carry (user_data, packet);
}

static void
carry_tcp (NetdGateway *self, const NetdPacket *packet, guint8 *frame)
{
  if ((packet->tcp_flags & NETD_TCP_SYN) != 0)
    netd_raise_mss (packet, frame, ENGINE_MSS);
  netd_coalescer_add (self->coalescer, packet);
}

static gboolean
is_echo_request (const NetdPacket *packet)
{
  return packet->protocol == IPPROTO_ICMP && packet->transport != NULL
         && packet->transport_length >= ICMP_HEADER && packet->transport[0] == ICMP_ECHO_REQUEST
         && packet->transport[1] == 0;
}

/* --- Places --- */

static void
receive_udp_for_gateway (NetdGateway *self, const NetdPacket *packet)
{
  if (packet->destination_port == DNS_PORT && !netd_network_has_descriptors (self->network))
    netd_port_count (self->port, NETD_COUNT_FLOW_LIMIT, 1);
  else if (packet->destination_port == DNS_PORT)
    {
      netd_port_charge (self->port, QUERY_CHARGE);
      netd_dns_query (self->dns, packet);
    }
  else if (netd_dhcp_is_request (packet))
    receive_dhcp (self, packet);
  else if (packet->destination_port == DHCP_SERVER_PORT
           || !netd_udp_forwards_receive (self->udp_forwards, packet))
    netd_port_count (self->port, NETD_COUNT_NO_RECEIVER, 1);
}

/* TCP that opens nothing may belong to a connection made to the guest: the engine knows. */
static void
receive_for_gateway (NetdGateway *self, const NetdPacket *packet, guint8 *frame)
{
  if (packet->is_fragment)
    netd_port_count (self->port, NETD_COUNT_UNSUPPORTED, 1);
  else if (packet->protocol == IPPROTO_UDP)
    receive_udp_for_gateway (self, packet);
  else if (is_echo_request (packet))
    carry (self, packet);
  else if (packet->protocol != IPPROTO_TCP)
    netd_port_count (self->port, NETD_COUNT_UNSUPPORTED, 1);
  else if (is_opening (packet) && packet->destination_port != DNS_PORT)
    refuse (self, packet, NETD_COUNT_NO_RECEIVER);
  else
    carry_tcp (self, packet, frame);
}

static void
receive_for_metadata (NetdGateway *self, const NetdPacket *packet, guint8 *frame)
{
  if (packet->is_fragment || packet->protocol != IPPROTO_TCP)
    netd_port_count (self->port, NETD_COUNT_UNSUPPORTED, 1);
  else if (packet->destination_port != METADATA_PORT || self->metadata == NULL)
    refuse (self, packet, NETD_COUNT_NO_RECEIVER);
  else
    carry_tcp (self, packet, frame);
}

static void
receive_for_host_alias (NetdGateway *self, const NetdPacket *packet, guint8 *frame)
{
  if (packet->is_fragment)
    netd_port_count (self->port, NETD_COUNT_UNSUPPORTED, 1);
  else if (packet->protocol == IPPROTO_TCP)
    carry_tcp (self, packet, frame);
  else if (packet->protocol == IPPROTO_UDP || is_echo_request (packet))
    carry (self, packet);
  else
    netd_port_count (self->port, NETD_COUNT_UNSUPPORTED, 1);
}

/* The engine puts fragments together. Only datagrams are worth that: TCP does not need them, and in
 * its place they are a way past whoever looks at ports. */
static void
receive_for_outside (NetdGateway *self, const NetdPacket *packet, guint8 *frame)
{
  if (packet->protocol == IPPROTO_TCP && !packet->is_fragment)
    carry_tcp (self, packet, frame);
  else if (packet->protocol == IPPROTO_UDP || is_echo_request (packet)
           || (packet->protocol == IPPROTO_ICMP && packet->transport == NULL))
    carry (self, packet);
  else
    netd_port_count (self->port, NETD_COUNT_UNSUPPORTED, 1);
}

static void
receive_ipv4 (NetdGateway *self, const NetdPacket *packet, guint8 *frame)
{
  switch (netd_plan_place (self->plan, packet->ip_destination))
    {
    case NETD_PLACE_OUTSIDE:
      receive_for_outside (self, packet, frame);
      return;
    case NETD_PLACE_GATEWAY:
      receive_for_gateway (self, packet, frame);
      return;
    case NETD_PLACE_METADATA:
      receive_for_metadata (self, packet, frame);
      return;
    case NETD_PLACE_ALIAS:
      receive_for_host_alias (self, packet, frame);
      return;
    case NETD_PLACE_FORBIDDEN:
    default:
      refuse (self, packet, NETD_COUNT_FORBIDDEN);
      return;
    }
}

void
netd_gateway_receive (NetdGateway *self, const NetdPacket *packet, guint8 *frame)
{
  if (packet->kind == NETD_PACKET_ARP)
    receive_arp (self, packet);
  else if (packet->kind != NETD_PACKET_IPV4)
    netd_port_count (self->port, NETD_COUNT_UNSUPPORTED, 1);
  else if (netd_packet_is_broadcast (packet))
    {
      /* Anything else is for the other guests. */
      if (netd_dhcp_is_request (packet))
        receive_dhcp (self, packet);
    }
  else if (packet->has_options)
    netd_port_count (self->port, NETD_COUNT_UNSUPPORTED, 1);
  else
    receive_ipv4 (self, packet, frame);
}

void
netd_gateway_batch_done (NetdGateway *self)
{
  netd_coalescer_flush (self->coalescer);
  netd_engine_flush (self->engine);
}

void
netd_gateway_set_paused (NetdGateway *self, gboolean paused)
{
  netd_engine_set_paused (self->engine, paused);
}

/* --- The gateway --- */

static NetdEngine *
make_engine (NetdGateway *self)
{
  const NetdEngineConfig config = {
    .plan = self->plan,
    .loop = netd_network_get_loop (self->network),
    .mac = *netd_port_get_mac (self->port),
    .ip = netd_port_get_ip (self->port),
    .index = netd_port_get_index (self->port),
    .flow_limit = NETD_FLOWS_PER_PORT,
    .admit = admit_cb,
    .socket_directory = netd_network_get_socket_directory (self->network),
    .send = send_cb,
    .serve = serve_cb,
    .spend = spend_cb,
    .user_data = self,
  };

  return netd_engine_new (&config);
}

static NetdDns *
make_dns (NetdGateway *self)
{
  const NetdDnsConfig config = {
    .plan = self->plan,
    .loop = netd_network_get_loop (self->network),
    .resolvers = netd_network_get_resolvers (self->network),
    .mac = *netd_port_get_mac (self->port),
    .ip = netd_port_get_ip (self->port),
    .send = send_cb,
    .user_data = self,
  };

  return netd_dns_new (&config);
}

/* An engine keeps its flows for as long as their far ends are silent. Those of a guest that was
 * switched off would count against the one that starts next in its place. */
void
netd_gateway_reset (NetdGateway *self)
{
  netd_engine_free (self->engine);
  self->engine = make_engine (self);
}

static NetdUdpForwards *
make_udp_forwards (NetdGateway *self)
{
  const NetdUdpForwardsConfig config = {
    .plan = self->plan,
    .loop = netd_network_get_loop (self->network),
    .mac = *netd_port_get_mac (self->port),
    .ip = netd_port_get_ip (self->port),
    .send = send_cb,
    .user_data = self,
  };

  return netd_udp_forwards_new (&config);
}

NetdGateway *
netd_gateway_new (NetdNetwork *network, NetdPort *port)
{
  NetdOpener *opener = netd_network_get_opener (network);
  NetdLoop *loop = netd_network_get_loop (network);
  NetdGateway *self = g_new0 (NetdGateway, 1);

  self->network = network;
  self->port = port;
  self->plan = netd_network_get_plan (network);
  self->engine = make_engine (self);
  self->coalescer = netd_coalescer_new (coalesced_cb, self);
  self->dns = make_dns (self);
  if (self->plan->enable_imds && opener != NULL)
    self->metadata = netd_metadata_new (loop, opener, netd_port_get_vm_id (port));
  self->udp_forwards = make_udp_forwards (self);
  return self;
}

/* The engine first: while it ends it may still hand over connections to the services. */
void
netd_gateway_free (NetdGateway *self)
{
  netd_engine_free (self->engine);
  netd_coalescer_free (self->coalescer);
  netd_dns_free (self->dns);
  g_clear_pointer (&self->metadata, netd_metadata_free);
  netd_udp_forwards_free (self->udp_forwards);
  g_free (self);
}

NetdEngine *
netd_gateway_get_engine (NetdGateway *self)
{
  return self->engine;
}

NetdUdpForwards *
netd_gateway_get_udp_forwards (NetdGateway *self)
{
  return self->udp_forwards;
}

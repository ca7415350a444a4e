/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Instances of libslirp: how they are set up, and what they call. A guest has up to three, each
 * with a host address of its own, because libslirp decides by that address what leads to the host's
 * loopback, and takes connections into the guest from it. They are made when the first packet for
 * them comes.
 */
#include "netd-engine-slirp.h"

#include <netinet/in.h>
#include <string.h>
#include <time.h>

#define IP_HEADER 20
#define TCP_HEADER 20
#define UDP_HEADER 8
#define INSTANCE_MTU 65520 /* its frames are cut for the guest elsewhere */
/* What libslirp says that it takes, unless the guest could send more: with segments of 32 KiB, as
 * large as those that it sends itself, its buffers stay at the 128 KiB that they are made with.
 * Else it makes them anew, with a copy of what is not there yet, so that untouched memory becomes
 * real. */
#define INSTANCE_MRU (32768 + IP_HEADER + TCP_HEADER)
/* The same for a guest that takes whole ones. It scales no window, so that 65535 bytes are under
 * way at most: two segments of this size. Of a larger one, the second would wait for the first to
 * be acknowledged; of one byte more, it would be followed by one of two bytes. */
#define INSTANCE_MRU_JUMBO (32767 + IP_HEADER + TCP_HEADER)

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

/* libslirp counts 32 bits of milliseconds, and compares the ends of UDP flows as if they never
 * began again: for the last 4 minutes of 49 days each new one would be over at once. Its clock
 * stands still for 12 s just before the end, in which all there are expire, and leaps over the
 * rest. */
guint64
netd_engine_clock (guint64 milliseconds)
{
  const guint64 leap_at = (G_GUINT64_CONSTANT (1) << 32) - 241000;
  const guint64 round = leap_at + 12000;
  guint64 within = milliseconds % round;

  return (milliseconds / round << 32) + (within < leap_at ? within : G_MAXUINT32 - 500);
}

static int64_t
clock_cb (void *user_data)
{
  static gint64 start;
  struct timespec now;

  clock_gettime (CLOCK_MONOTONIC, &now);
  if (start == 0)
    start = now.tv_sec - 1;
  return (int64_t) netd_engine_clock ((guint64) (now.tv_sec - start) * 1000
                                      + (guint64) now.tv_nsec / 1000000)
         * 1000000;
}

/* What a segment of libslirp's tells about the connection that it belongs to. */
static void
note_segment (NetdInstance *instance, const guint8 *frame, gsize length)
{
  NetdEngine *engine = instance->engine;
  const guint8 *ip = frame + NETD_ETHERNET_HEADER;
  const guint8 *tcp = ip + IP_HEADER;
  guint8 flags = tcp[13];
  guint64 key = netd_flow_tcp_key (read_16 (tcp + 2), read_32 (ip + 12), read_16 (tcp));
  NetdFlow *flow;

  engine->sent_key = key;
  if (engine->dialling != NULL && (flags & (NETD_TCP_SYN | NETD_TCP_ACK)) == NETD_TCP_SYN)
    netd_dial_sent (engine->dialling, frame, length);
  if ((flags & NETD_TCP_ACK) == 0 || (flags & NETD_TCP_RST) != 0)
    return;

  flow = netd_flow_find (engine, key);
  if (flow == NULL && instance->kind == NETD_INSTANCE_SERVICES && engine->has_input
      && engine->input_key == key && (flags & NETD_TCP_SYN) != 0)
    flow = netd_flow_new (instance, IPPROTO_TCP, key, -1);
  if (flow == NULL)
    return;
  netd_flow_acknowledge (flow, read_32 (tcp + 8));
  if (flow->dial != NULL && (flags & NETD_TCP_SYN) == 0)
    netd_dial_established (flow->dial);
}

static void
note_datagram (NetdInstance *instance, const guint8 *udp)
{
  NetdFlow *flow
      = netd_flow_find (instance->engine, netd_flow_udp_key (instance->kind, read_16 (udp + 2)));

  if (flow != NULL)
    netd_flow_answered (flow);
}

/* libslirp makes up a MAC address of its own; the frame is in a buffer of its that is thrown away.
 * Its ARP is nobody's business: each side's address is known. */
static ssize_t
send_cb (const void *data, size_t length, void *user_data)
{
  NetdInstance *self = user_data;
  NetdEngine *engine = self->engine;
  guint8 *frame = (guint8 *) data;
  const guint8 *ip = frame + NETD_ETHERNET_HEADER;

  if (length < NETD_ETHERNET_HEADER + IP_HEADER || read_16 (frame + 12) != NETD_ETHERTYPE_IPV4
      || read_32 (ip + 16) != engine->config.ip)
    return (ssize_t) length;
  memcpy (frame + 6, engine->config.plan->gateway_mac.octets, 6);
  engine->active_at = netd_loop_now (engine->config.loop);
  if (ip[9] == IPPROTO_TCP && length >= NETD_ETHERNET_HEADER + IP_HEADER + TCP_HEADER)
    note_segment (self, frame, length);
  else if (ip[9] == IPPROTO_UDP && length >= NETD_ETHERNET_HEADER + IP_HEADER + UDP_HEADER)
    note_datagram (self, ip + IP_HEADER);
  engine->config.send (frame, length, engine->config.user_data);
  return (ssize_t) length;
}

static void
guest_error_cb (const char *message, void *user_data)
{
}

/* Its only timer is for IPv6, which is off. */
static void *
timer_new_cb (SlirpTimerCb func, void *func_data, void *user_data)
{
  return user_data;
}

static void
timer_free_cb (void *timer, void *user_data)
{
}

static void
timer_mod_cb (void *timer, int64_t expire_time, void *user_data)
{
}

static void
register_cb (int fd, void *user_data)
{
  netd_flow_opened (user_data, fd);
}

static void
unregister_cb (int fd, void *user_data)
{
  netd_flow_closed (user_data, fd);
}

static void
notify_cb (void *user_data)
{
  NetdInstance *self = user_data;

  self->is_dirty = TRUE;
}

static const SlirpCb callbacks = {
  .send_packet = send_cb,
  .guest_error = guest_error_cb,
  .clock_get_ns = clock_cb,
  .timer_new = timer_new_cb,
  .timer_free = timer_free_cb,
  .timer_mod = timer_mod_cb,
  .register_poll_fd = register_cb,
  .unregister_poll_fd = unregister_cb,
  .notify = notify_cb,
};

static guint32
host_of (const NetdPlan *plan, NetdInstanceKind kind)
{
  switch (kind)
    {
    case NETD_INSTANCE_NAT:
      return plan->gateway;
    case NETD_INSTANCE_ALIAS:
      return plan->host_alias;
    case NETD_INSTANCE_SERVICES:
    default:
      /* Not a host's, so that it is none of the services'. */
      return plan->network;
    }
}

/* The services have the whole address space as their network, because one of them is the gateway's
 * and the other far away; being restricted, that instance takes what is for them alone. */
static Slirp *
new_slirp (NetdInstance *self)
{
  const NetdPlan *plan = self->engine->config.plan;
  gboolean is_services = self->kind == NETD_INSTANCE_SERVICES;
  SlirpConfig config = {
    .version = 4,
    .restricted = is_services,
    .in_enabled = true,
    .vnetwork.s_addr = is_services ? 0 : htonl (plan->network),
    .vnetmask.s_addr = is_services ? 0 : htonl (plan->netmask),
    .vhost.s_addr = htonl (host_of (plan, self->kind)),
    .vdhcp_start.s_addr = htonl (self->engine->config.ip),
    .if_mtu = INSTANCE_MTU,
    .if_mru = plan->mtu > INSTANCE_MRU ? INSTANCE_MRU_JUMBO : INSTANCE_MRU,
    .disable_host_loopback = self->kind != NETD_INSTANCE_ALIAS,
    .disable_dns = true,
    .disable_dhcp = true,
  };

  return slirp_new (&config, &callbacks, self);
}

void
netd_instance_free (NetdInstance *self)
{
  g_ptr_array_unref (self->asked);
  g_ptr_array_unref (self->before);
  g_free (self);
}

/* Its sockets are closed, and forgotten one by one. */
void
netd_instance_close (NetdInstance *self)
{
  if (self->slirp != NULL)
    slirp_cleanup (self->slirp);
  self->slirp = NULL;
}

/* libslirp learns where a guest is from ARP alone, and would hold packets back for it. */
static void
introduce_guest (NetdInstance *self)
{
  const NetdEngineConfig *config = &self->engine->config;
  guint8 frame[64];
  gsize length
      = netd_packet_build_arp (frame, sizeof frame, 1, &config->mac, config->ip, NULL, config->ip);

  slirp_input (self->slirp, frame, (int) length);
}

NetdInstance *
netd_engine_need_instance (NetdEngine *self, NetdInstanceKind kind)
{
  NetdInstance *instance = self->instances[kind];

  if (instance != NULL)
    return instance;
  instance = g_new0 (NetdInstance, 1);
  instance->engine = self;
  instance->kind = kind;
  instance->asked = g_ptr_array_new ();
  instance->before = g_ptr_array_new ();
  instance->resume_at = -1;
  instance->polled_at = G_MININT64 / 2;
  instance->slirp = new_slirp (instance);
  if (instance->slirp == NULL
      || (kind == NETD_INSTANCE_SERVICES && !netd_services_open (self, instance->slirp)))
    {
      netd_instance_close (instance);
      netd_instance_free (instance);
      return NULL;
    }
  introduce_guest (instance);
  netd_instance_refresh_clock (instance);
  return self->instances[kind] = instance;
}

void
netd_instance_input (NetdInstance *self, const guint8 *frame, gsize length)
{
  netd_instance_refresh_clock (self);
  self->engine->has_input = TRUE;
  slirp_input (self->slirp, frame, (int) length);
  self->engine->has_input = FALSE;
  self->is_dirty = TRUE;
}

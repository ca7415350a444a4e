/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The flows of one guest: what libslirp has a socket for, found by descriptor and by what a packet
 * says (protocol, the guest's port, the peer). libslirp tells of a socket when it opens and before
 * it closes it, so the count is exact; the packet that is being put in at that moment says whose it
 * is.
 *
 * A connection to a service has no socket until the guest has finished opening it. It is known from
 * the answer that libslirp gives to the SYN, and libslirp's closing of "descriptor -1" ends it.
 *
 * Limits are kept in front of libslirp, which has none: neither for sockets, nor for segments that
 * come out of order.
 */
#include "netd-engine-slirp.h"

#include <netinet/in.h>

/* libslirp gives up after 75 s of its own ticks, and says so; this is for one that would not. */
#define HALF_OPEN_MS 150000

/* Of all guests that this process serves, while each has some of its own in any case. A segment that
 * waits is a buffer of 64 KiB, most of it not touched. */
#define AHEAD_OF_ALL_MAX 2048
#define AHEAD_OF_OWN 32

/* One echo request is a socket until it is answered, or four minutes: a ping must not take all. */
#define ICMP_SHARE 4

static guint n_ahead_of_all;

/* The address part of a UDP key is one that no packet to a peer can have. */
guint64
netd_flow_udp_key (NetdInstanceKind kind, guint16 guest_port)
{
  return (guint64) (kind + 1) << 32 | (guint64) guest_port << 16;
}

guint64
netd_flow_tcp_key (guint16 guest_port, guint32 peer, guint16 peer_port)
{
  return (guint64) peer << 32 | (guint64) guest_port << 16 | peer_port;
}

NetdFlow *
netd_flow_find (NetdEngine *engine, guint64 key)
{
  return g_hash_table_lookup (engine->flows_by_key, &key);
}

gboolean
netd_flow_has_room (NetdEngine *engine, guint8 protocol)
{
  const NetdEngineConfig *config = &engine->config;

  if (engine->n_flows >= config->flow_limit)
    return FALSE;
  if (protocol == IPPROTO_ICMP && engine->n_icmp >= MAX (config->flow_limit / ICMP_SHARE, 1))
    return FALSE;
  return config->admit == NULL || config->admit (config->user_data);
}

NetdFlow *
netd_flow_new (NetdInstance *instance, guint8 protocol, guint64 key, int fd)
{
  NetdEngine *engine = instance->engine;
  NetdFlow *flow = g_new0 (NetdFlow, 1);

  flow->instance = instance;
  flow->protocol = protocol;
  flow->fd = fd;
  flow->opened_at = netd_loop_now (engine->config.loop);
  if (key != 0)
    netd_flow_set_key (flow, key);
  if (fd >= 0)
    g_hash_table_replace (engine->flows_by_fd, GINT_TO_POINTER (fd), flow);
  else
    engine->n_half_open++;
  engine->n_flows++;
  engine->n_icmp += protocol == IPPROTO_ICMP;
  instance->n_flows++;
  instance->n_tcp += protocol == IPPROTO_TCP;
  return flow;
}

void
netd_flow_set_key (NetdFlow *flow, guint64 key)
{
  flow->key = key;
  g_hash_table_replace (flow->instance->engine->flows_by_key, &flow->key, flow);
}

static void
forget_ahead (NetdFlow *flow)
{
  flow->instance->engine->n_ahead -= flow->n_ahead;
  n_ahead_of_all -= flow->n_ahead;
  flow->n_ahead = 0;
}

void
netd_flow_answered (NetdFlow *flow)
{
  flow->instance->engine->n_unanswered -= flow->n_unanswered;
  flow->n_unanswered = 0;
}

static void
flow_free (NetdFlow *flow)
{
  NetdInstance *instance = flow->instance;
  NetdEngine *engine = instance->engine;
  GPtrArray *slots = flow->fill == instance->fill ? instance->asked : instance->before;

  if (flow->watch != NULL)
    netd_watch_free (flow->watch);
  if (flow->slot < slots->len && slots->pdata[flow->slot] == flow)
    slots->pdata[flow->slot] = NULL;
  if (flow->key != 0 && netd_flow_find (engine, flow->key) == flow)
    g_hash_table_remove (engine->flows_by_key, &flow->key);
  if (flow->fd >= 0)
    g_hash_table_remove (engine->flows_by_fd, GINT_TO_POINTER (flow->fd));
  else
    engine->n_half_open--;
  forget_ahead (flow);
  netd_flow_answered (flow);
  engine->n_flows--;
  engine->n_icmp -= flow->protocol == IPPROTO_ICMP;
  instance->n_flows--;
  instance->n_tcp -= flow->protocol == IPPROTO_TCP;
  if (flow->dial != NULL)
    netd_dial_flow_gone (flow->dial);
  g_free (flow);
}

/* A guest's segments come in order, as its stream to us does. What is ahead all the same may be
 * because an acknowledgement is held back for some ms, so a few are fine. */
gboolean
netd_flow_take_segment (NetdFlow *flow, guint32 sequence, gsize length)
{
  NetdEngine *engine = flow->instance->engine;
  guint32 end = sequence + (guint32) length;

  if (length == 0 || !flow->has_acknowledged || (gint32) (sequence - flow->acknowledged) <= 0)
    return TRUE;
  if (flow->n_ahead >= NETD_FLOW_AHEAD_MAX || engine->n_ahead >= NETD_ENGINE_AHEAD_MAX)
    return FALSE;
  if (n_ahead_of_all >= AHEAD_OF_ALL_MAX && engine->n_ahead >= AHEAD_OF_OWN)
    return FALSE;
  if (flow->n_ahead == 0 || (gint32) (end - flow->ahead_end) > 0)
    flow->ahead_end = end;
  flow->n_ahead++;
  engine->n_ahead++;
  n_ahead_of_all++;
  return TRUE;
}

void
netd_flow_acknowledge (NetdFlow *flow, guint32 acknowledged)
{
  flow->has_acknowledged = TRUE;
  flow->acknowledged = acknowledged;
  if (flow->n_ahead > 0 && (gint32) (acknowledged - flow->ahead_end) >= 0)
    forget_ahead (flow);
}

void
netd_flow_opened (NetdInstance *instance, int fd)
{
  NetdEngine *engine = instance->engine;
  NetdFlow *flow;

  if (fd < 0)
    return;
  instance->is_dirty = TRUE;
  if (engine->is_listening)
    {
      engine->dial_listener = fd;
      return;
    }
  if (engine->dialling != NULL)
    {
      netd_dial_accepted (engine->dialling, netd_flow_new (instance, IPPROTO_TCP, 0, fd));
      return;
    }

  flow = engine->input_key != 0 ? netd_flow_find (engine, engine->input_key) : NULL;
  if (flow == NULL || flow->fd >= 0)
    {
      netd_flow_new (instance, engine->input_protocol, engine->input_key, fd);
      return;
    }
  flow->fd = fd;
  engine->n_half_open--;
  engine->is_connected = TRUE;
  g_hash_table_replace (engine->flows_by_fd, GINT_TO_POINTER (fd), flow);
}

/* Which connection without a descriptor is gone: the one whose packet is being handled, or that
 * libslirp has just reset. */
static NetdFlow *
find_half_open (NetdEngine *engine)
{
  NetdFlow *flow
      = netd_flow_find (engine, engine->has_input ? engine->input_key : engine->sent_key);
  GHashTableIter iter;
  gpointer value;

  if (flow != NULL && flow->fd < 0)
    return flow;
  /* Else the count matters more than which. */
  g_hash_table_iter_init (&iter, engine->flows_by_key);
  while (engine->n_half_open > 0 && g_hash_table_iter_next (&iter, NULL, &value))
    {
      flow = value;
      if (flow->fd < 0)
        return flow;
    }
  return NULL;
}

void
netd_flow_closed (NetdInstance *instance, int fd)
{
  NetdEngine *engine = instance->engine;
  NetdFlow *flow = NULL;

  instance->is_dirty = TRUE;
  if (fd >= 0 && fd == engine->dial_listener)
    engine->dial_listener = -1;
  else if (fd >= 0)
    flow = g_hash_table_lookup (engine->flows_by_fd, GINT_TO_POINTER (fd));
  else if (instance->kind == NETD_INSTANCE_SERVICES)
    flow = find_half_open (engine);
  if (flow != NULL)
    flow_free (flow);
}

static gboolean
is_overdue (NetdFlow *flow)
{
  return flow->fd < 0
         && netd_loop_now (flow->instance->engine->config.loop) - flow->opened_at > HALF_OPEN_MS;
}

void
netd_flow_expire_half_open (NetdEngine *engine)
{
  g_autoptr (GPtrArray) overdue = NULL;
  GHashTableIter iter;
  gpointer flow;

  if (engine->n_half_open == 0)
    return;
  overdue = g_ptr_array_new ();
  g_hash_table_iter_init (&iter, engine->flows_by_key);
  while (g_hash_table_iter_next (&iter, NULL, &flow))
    {
      if (is_overdue (flow))
        g_ptr_array_add (overdue, flow);
    }
  for (guint i = 0; i < overdue->len; i++)
    flow_free (overdue->pdata[i]);
}

void
netd_flow_clear (NetdEngine *engine)
{
  g_autoptr (GPtrArray) flows = g_ptr_array_new ();
  GHashTableIter iter;
  gpointer value;

  g_hash_table_iter_init (&iter, engine->flows_by_fd);
  while (g_hash_table_iter_next (&iter, NULL, &value))
    g_ptr_array_add (flows, value);
  g_hash_table_iter_init (&iter, engine->flows_by_key);
  while (g_hash_table_iter_next (&iter, NULL, &value))
    {
      if (((NetdFlow *) value)->fd < 0)
        g_ptr_array_add (flows, value);
    }
  for (guint i = 0; i < flows->len; i++)
    flow_free (flows->pdata[i]);
}

/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Puts the guest's consecutive segments of one connection together before the NAT engine sees them,
 * as network cards do for receivers: the engine's cost is per packet. Segments of a batch are
 * collected per connection, for a few connections at a time, and nothing is held beyond the batch.
 *
 * Merging must not be seen by TCP. Only what differs in sequence number, identification, PSH and
 * checksum is merged: a new acknowledgement, window, timestamp or congestion mark ends the merged
 * segment, and so does PSH, behind which a sender waits. Checksums are verified before, not made up
 * after: a damaged segment stays alone and damaged. The bytes are summed while they are copied, and
 * the merged checksum is put together from those sums.
 *
 * Buffers are borrowed from a small pool of the process, since only one port's batch is in work at
 * a time: what a port costs while nothing happens is this struct.
 */
#include "netd-offload.h"

#include <netinet/in.h>
#include <string.h>

#include "netd-bytes.h"

#define HELD_MAX 8
#define IP_HEADER 20
#define IP_PACKET_MAX 65535

typedef struct
{
  guint8 *frame; /* NETD_PACKET_MAX bytes: the first segment's headers, then all payloads */
  gsize header;  /* bytes of headers */
  gsize length;  /* bytes in use */
  guint n;       /* segments in it */
  guint32 next;  /* sequence number that would continue it */
  guint32 sum;   /* of the payloads */
} Held;

struct _NetdCoalescer
{
  NetdCoalesceFunc func;
  gpointer user_data;
  Held held[HELD_MAX]; /* the oldest first */
  guint n_held;
};

static guint8 *pool[HELD_MAX];
static guint n_pool;

static guint8 *
borrow_buffer (void)
{
  return n_pool > 0 ? pool[--n_pool] : g_malloc (NETD_PACKET_MAX);
}

static void
return_buffer (guint8 *buffer)
{
  if (n_pool < G_N_ELEMENTS (pool))
    pool[n_pool++] = buffer;
  else
    g_free (buffer);
}

NetdCoalescer *
netd_coalescer_new (NetdCoalesceFunc func, gpointer user_data)
{
  NetdCoalescer *self = g_new0 (NetdCoalescer, 1);

  self->func = func;
  self->user_data = user_data;
  return self;
}

void
netd_coalescer_free (NetdCoalescer *self)
{
  if (self == NULL)
    return;
  for (guint i = 0; i < self->n_held; i++)
    return_buffer (self->held[i].frame);
  g_free (self);
}

static guint32
swap_sum (guint32 sum)
{
  return (sum & 0xff) << 8 | sum >> 8;
}

/* Makes one segment's headers into those of all of them. */
static void
finish_headers (Held *held)
{
  guint8 *ip = held->frame + NETD_ETHERNET_HEADER;
  guint8 *tcp = ip + IP_HEADER;
  gsize tcp_header = held->header - NETD_ETHERNET_HEADER - IP_HEADER;
  gsize length = held->length - NETD_ETHERNET_HEADER;
  guint16 checksum;
  guint32 sum;

  netd_write_16 (ip + 2, (guint) length);
  memset (ip + 10, 0, 2);
  checksum = netd_checksum_finish (netd_checksum_add (0, ip, IP_HEADER));
  memcpy (ip + 10, &checksum, 2);

  memset (tcp + 16, 0, 2);
  sum = netd_checksum_pseudo (ip, length - IP_HEADER) + held->sum;
  checksum = netd_checksum_finish (netd_checksum_add (sum, tcp, tcp_header));
  memcpy (tcp + 16, &checksum, 2);
}

static void
release (NetdCoalescer *self, guint index)
{
  Held held = self->held[index];
  NetdPacket packet;

  self->n_held--;
  memmove (&self->held[index], &self->held[index + 1], (self->n_held - index) * sizeof held);
  if (held.n > 1)
    finish_headers (&held);
  netd_packet_parse (&packet, held.frame, held.length);
  self->func (&packet, self->user_data);
  return_buffer (held.frame);
}

void
netd_coalescer_flush (NetdCoalescer *self)
{
  while (self->n_held > 0)
    release (self, 0);
}

/* Index of what is held of the packet's connection; n_held when there is nothing. */
static guint
find_held (const NetdCoalescer *self, const NetdPacket *packet)
{
  guint i;

  for (i = 0; i < self->n_held; i++)
    {
      const guint8 *ip = self->held[i].frame + NETD_ETHERNET_HEADER;

      if (memcmp (ip + 12, packet->ip + 12, 8) == 0
          && memcmp (ip + IP_HEADER, packet->transport, 4) == 0)
        break;
    }
  return i;
}

/* A plain data segment. */
static gboolean
is_mergeable (const NetdPacket *packet)
{
  return !packet->has_options && packet->payload_length > 0
         && (packet->tcp_flags & ~NETD_TCP_PSH) == NETD_TCP_ACK;
}

/* Copies the payload to @target. FALSE when a checksum is wrong; else the payload's @sum. */
static gboolean
take_payload (const NetdPacket *packet, guint8 *target, guint32 *sum)
{
  gsize tcp_header = (gsize) (packet->payload - packet->transport);
  guint32 total;

  if (netd_checksum_finish (netd_checksum_add (0, packet->ip, IP_HEADER)) != 0)
    return FALSE;
  *sum = netd_checksum_copy (0, target, packet->payload, packet->payload_length);
  total = netd_checksum_pseudo (packet->ip, packet->transport_length) + *sum;
  return netd_checksum_finish (netd_checksum_add (total, packet->transport, tcp_header)) == 0;
}

/* Begins to hold; FALSE when the segment is not sound. */
static gboolean
hold (NetdCoalescer *self, const NetdPacket *packet)
{
  Held held = { .header = (gsize) (packet->payload - packet->frame), .n = 1 };

  held.frame = borrow_buffer ();
  if (!take_payload (packet, held.frame + held.header, &held.sum))
    {
      return_buffer (held.frame);
      return FALSE;
    }
  memcpy (held.frame, packet->frame, held.header);
  held.length = held.header + packet->payload_length;
  held.next = netd_read_32 (packet->transport + 4) + (guint32) packet->payload_length;

  if (self->n_held == HELD_MAX)
    release (self, 0);
  self->held[self->n_held++] = held;
  return TRUE;
}

/* All that merging would hide is the same: Ethernet header; version, TOS; DF, TTL; acknowledgement,
 * header length, window, urgent pointer, TCP options. */
static gboolean
has_equal_headers (const Held *held, const NetdPacket *packet)
{
  const guint8 *ip = held->frame + NETD_ETHERNET_HEADER;
  const guint8 *tcp = ip + IP_HEADER;
  const guint8 *other = packet->transport;
  gsize header = (gsize) (packet->payload - packet->frame);

  return header == held->header && memcmp (held->frame, packet->frame, NETD_ETHERNET_HEADER) == 0
         && memcmp (ip, packet->ip, 2) == 0 && memcmp (ip + 6, packet->ip + 6, 4) == 0
         && memcmp (tcp + 8, other + 8, 5) == 0 && memcmp (tcp + 14, other + 14, 2) == 0
         && memcmp (tcp + 18, other + 18, header - NETD_ETHERNET_HEADER - IP_HEADER - 18) == 0;
}

static gboolean
append (Held *held, const NetdPacket *packet)
{
  gboolean is_odd = (held->length - held->header) % 2 != 0;
  guint32 sum;

  if (netd_read_32 (packet->transport + 4) != held->next
      || held->length + packet->payload_length > NETD_ETHERNET_HEADER + IP_PACKET_MAX
      || !has_equal_headers (held, packet)
      || !take_payload (packet, held->frame + held->length, &sum))
    return FALSE;

  held->sum = netd_checksum_add (held->sum + (is_odd ? swap_sum (sum) : sum), NULL, 0);
  held->length += packet->payload_length;
  held->next += (guint32) packet->payload_length;
  held->n++;
  held->frame[NETD_ETHERNET_HEADER + IP_HEADER + 13] = packet->tcp_flags;
  return TRUE;
}

void
netd_coalescer_add (NetdCoalescer *self, const NetdPacket *packet)
{
  gboolean is_pushed = (packet->tcp_flags & NETD_TCP_PSH) != 0;
  gboolean can_merge;
  guint index;

  if (packet->kind != NETD_PACKET_IPV4 || packet->protocol != IPPROTO_TCP || packet->is_fragment)
    {
      self->func (packet, self->user_data);
      return;
    }

  can_merge = is_mergeable (packet);
  index = find_held (self, packet);
  if (index < self->n_held)
    {
      if (can_merge && append (&self->held[index], packet))
        {
          if (is_pushed)
            release (self, index);
          return;
        }
      release (self, index);
    }
  /* Behind PSH nothing is to be waited for. */
  if (!can_merge || is_pushed || !hold (self, packet))
    self->func (packet, self->user_data);
}

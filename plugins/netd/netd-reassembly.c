/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Reassembly of IPv4 packets (RFC 791) in front of the NAT engine, which has one without bounds.
 * What comes out is an ordinary frame that is then looked at like any other: what its ports are is
 * known only now.
 *
 * Bounded by count, size and time. A packet is a buffer of the largest size and a bit for each
 * block of eight bytes; a fragment that covers what is already there is either a copy or an attack.
 */
#include "netd-reassembly.h"

#include <string.h>

#define IP_HEADER 20
#define IP_MORE_FRAGMENTS 0x2000
#define IP_OFFSET_MASK 0x1fff
#define BLOCK 8
#define N_BLOCKS (65536 / BLOCK)

typedef struct
{
  guint8 *frame; /* NULL: unused */
  guint8 blocks[N_BLOCKS / 8];
  guint n_blocks;
  gsize length; /* of the payload; 0 until the last fragment is there */
  gsize end;    /* of what is there */
  gint64 deadline;
  guint32 source;
  guint32 destination;
  guint16 identification;
  guint8 protocol;
} Slot;

struct _NetdReassembly
{
  NetdLoop *loop;
  NetdTimer *timer;
  Slot slots[NETD_REASSEMBLY_MAX];
  guint8 *done; /* the frame that was handed out last */
  NetdPacket packet;
};

static void
clear_slot (Slot *slot)
{
  g_free (slot->frame);
  memset (slot, 0, sizeof *slot);
}

static void
start_timer (NetdReassembly *self)
{
  gint64 first = G_MAXINT64;

  for (guint i = 0; i < G_N_ELEMENTS (self->slots); i++)
    {
      if (self->slots[i].frame != NULL)
        first = MIN (first, self->slots[i].deadline);
    }
  if (first == G_MAXINT64)
    netd_timer_stop (self->timer);
  else
    netd_timer_start (self->timer, MAX (first - netd_loop_now (self->loop), 1));
}

static void
expire_cb (gpointer user_data)
{
  NetdReassembly *self = user_data;

  for (guint i = 0; i < G_N_ELEMENTS (self->slots); i++)
    {
      if (self->slots[i].frame != NULL && self->slots[i].deadline <= netd_loop_now (self->loop))
        clear_slot (&self->slots[i]);
    }
  start_timer (self);
}

NetdReassembly *
netd_reassembly_new (NetdLoop *loop)
{
  NetdReassembly *self = g_new0 (NetdReassembly, 1);

  self->loop = loop;
  self->timer = netd_timer_new (loop, expire_cb, self);
  return self;
}

void
netd_reassembly_free (NetdReassembly *self)
{
  for (guint i = 0; i < G_N_ELEMENTS (self->slots); i++)
    clear_slot (&self->slots[i]);
  netd_timer_free (self->timer);
  g_free (self->done);
  g_free (self);
}

guint
netd_reassembly_get_pending (NetdReassembly *self)
{
  guint pending = 0;

  for (guint i = 0; i < G_N_ELEMENTS (self->slots); i++)
    pending += self->slots[i].frame != NULL;
  return pending;
}

static Slot *
find_slot (NetdReassembly *self, const NetdPacket *fragment)
{
  guint16 identification = (guint16) (fragment->ip[4] << 8 | fragment->ip[5]);
  Slot *chosen = &self->slots[0];
  guint8 *frame;

  for (guint i = 0; i < G_N_ELEMENTS (self->slots); i++)
    {
      Slot *slot = &self->slots[i];

      if (slot->frame != NULL && slot->source == fragment->ip_source
          && slot->destination == fragment->ip_destination
          && slot->identification == identification && slot->protocol == fragment->protocol)
        return slot;
      if (slot->deadline < chosen->deadline) /* an unused one has none */
        chosen = slot;
    }
  /* One that is given up for this one leaves its buffer: memory that is given back costs ten times
   * as much as the copying. Nothing of what is in it is handed out, as every block has to come. */
  frame = g_steal_pointer (&chosen->frame);
  clear_slot (chosen);
  chosen->frame = frame != NULL ? frame : g_malloc (NETD_PACKET_MAX);
  chosen->deadline = netd_loop_now (self->loop) + NETD_REASSEMBLY_MS;
  chosen->source = fragment->ip_source;
  chosen->destination = fragment->ip_destination;
  chosen->identification = identification;
  chosen->protocol = fragment->protocol;
  return chosen;
}

/* Notes the blocks of a fragment. Returns how many of them were new. */
static guint
mark_blocks (Slot *slot, guint first, guint n)
{
  guint fresh = 0;

  for (guint i = first; i < first + n; i++)
    {
      if ((slot->blocks[i / 8] & 1 << i % 8) == 0)
        fresh++;
      slot->blocks[i / 8] |= (guint8) (1 << i % 8);
    }
  slot->n_blocks += fresh;
  return fresh;
}

/* FALSE when the packet is not worth waiting for. */
static gboolean
add_fragment (Slot *slot, const NetdPacket *fragment)
{
  guint16 word = (guint16) (fragment->ip[6] << 8 | fragment->ip[7]);
  gsize offset = (gsize) (word & IP_OFFSET_MASK) * BLOCK;
  gsize length = fragment->ip_length - IP_HEADER;
  gboolean is_last = (word & IP_MORE_FRAGMENTS) == 0;
  guint n = (guint) ((length + BLOCK - 1) / BLOCK);
  guint fresh;

  if (length == 0 || IP_HEADER + offset + length > G_MAXUINT16 || (!is_last && length % BLOCK != 0))
    return FALSE;
  if (is_last && slot->length != 0 && slot->length != offset + length)
    return FALSE;
  if (is_last)
    slot->length = offset + length;
  slot->end = MAX (slot->end, offset + length);
  if (slot->length != 0 && slot->end > slot->length)
    return FALSE;

  fresh = mark_blocks (slot, (guint) (offset / BLOCK), n);
  if (fresh == 0)
    return TRUE;
  if (fresh < n)
    return FALSE;
  if (offset == 0)
    memcpy (slot->frame, fragment->frame, NETD_ETHERNET_HEADER + IP_HEADER);
  memcpy (slot->frame + NETD_ETHERNET_HEADER + IP_HEADER + offset, fragment->ip + IP_HEADER,
          length);
  return TRUE;
}

/* Nothing lies behind the end, so the number of blocks says that all are there. */
static gboolean
is_complete (const Slot *slot)
{
  return slot->length != 0 && slot->n_blocks == (slot->length + BLOCK - 1) / BLOCK;
}

static const NetdPacket *
finish (NetdReassembly *self, Slot *slot)
{
  guint8 *ip = slot->frame + NETD_ETHERNET_HEADER;
  gsize length = IP_HEADER + slot->length;
  guint16 checksum;

  ip[2] = (guint8) (length >> 8);
  ip[3] = (guint8) length;
  memset (ip + 6, 0, 2);
  memset (ip + 10, 0, 2);
  checksum = netd_checksum_finish (netd_checksum_add (0, ip, IP_HEADER));
  memcpy (ip + 10, &checksum, 2);

  g_free (self->done);
  self->done = g_steal_pointer (&slot->frame);
  clear_slot (slot);
  if (netd_packet_parse (&self->packet, self->done, NETD_ETHERNET_HEADER + length)
      != NETD_PACKET_IPV4)
    return NULL;
  return &self->packet;
}

const NetdPacket *
netd_reassembly_add (NetdReassembly *self, const NetdPacket *fragment)
{
  const NetdPacket *whole = NULL;
  Slot *slot = find_slot (self, fragment);

  if (!add_fragment (slot, fragment))
    clear_slot (slot);
  else if (is_complete (slot))
    whole = finish (self, slot);
  start_timer (self);
  return whole;
}

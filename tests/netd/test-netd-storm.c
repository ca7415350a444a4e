/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What one guest can do to the others by sending much of something: guest 0 storms, guest 1 goes on
 * with what it did before, to guest 2 and to a server outside, and loses no more than a tenth of
 * it. What netd keeps for guest 0 stays within a budget, and is given back when time has passed.
 */
#include <dirent.h>
#include <string.h>

#include "frame-lab.h"
#include "lab-host.h"
#include "netd-engine.h"
#include "netd-gateway.h"
#include "private-net.h"
#include "test-clock.h"

#define ATTACKER 0
#define BYSTANDER 1
#define OTHER 2
#define OUTSIDE_IP NETD_IP (93, 184, 216, 34)

#define BYSTANDER_PORT 9999
#define ECHO_PORT 7
#define HTTP_PORT 80
#define CLOSED_PORT 9
#define MORE_FRAGMENTS 0x2000

#define TURNS_PER_TALK 6   /* an answer from outside takes some */
#define FRAMES_PER_TALK 50 /* of the attacker's, for one of the bystander's each way */
#define LOSS_PERCENT 10
#define FLOW_BYTES 420000 /* what the engine holds for one TCP connection, and a little more */
#define DATAGRAM_FLOW_BYTES                                                                        \
  80000 /* and for one UDP or echo flow: its first packet, in a large buffer */
#define FLOW_FDS 3
#define STUCK_FRAMES 20000
#define QUEUED_MAX 800 /* of them, in the queue and in its socket */
#define PIECES_MAX (4 * 1024 * 1024)
#define LEFT_OVER_MAX (3 * 1024 * 1024) /* the engine keeps 30 of its buffers for the next flows */
#define SERVICES 2 /* listeners that come with the first connection to one */
#define IDLE_MAX (4 * 1024 * 1024) /* three guests that do nothing */
#define NOTHING_MAX (64 * 1024)

/* Long enough for everything that is kept to be given up: UDP flows after 4 minutes, connections
 * that were never answered after less. */
#define PATIENCE_MS (15 * 60 * 1000)
#define PATIENCE_STEP_MS 250

typedef struct
{
  FrameLab *lab;
  LabHost *host;
  KitPeer outside;
  guint sent;
  guint to_other;
  guint from_outside;
  guint most_flows;
  gsize most_allocated;
  guint most_fds;
  gsize allocated;
  guint fds;
} Storm;

typedef void (*StormFunc) (Storm *storm, guint i, KitFrame *frame);

static guint
count_fds (void)
{
  DIR *directory = opendir ("/proc/self/fd");
  guint n = 0;

  while (readdir (directory) != NULL)
    n++;
  closedir (directory);
  return n;
}

static void
count_frame (FrameLab *lab, guint guest, const guint8 *frame, gsize length, gpointer user_data)
{
  Storm *storm = user_data;
  NetdPacket packet;

  netd_packet_parse (&packet, frame, length);
  if (packet.kind != NETD_PACKET_IPV4 || packet.protocol != KIT_PROTOCOL_UDP)
    return;
  if (guest == OTHER && packet.source_port == BYSTANDER_PORT
      && packet.ip_source == lab->guests[BYSTANDER].self.ip)
    storm->to_other++;
  if (guest == BYSTANDER && packet.source_port == ECHO_PORT && packet.ip_source == OUTSIDE_IP)
    storm->from_outside++;
}

static guint
count_flows (Storm *storm)
{
  NetdPort *port = storm->lab->guests[ATTACKER].port;

  return netd_engine_get_flows (netd_gateway_get_engine (netd_port_get_gateway (port)));
}

static void
turn (Storm *storm)
{
  frame_lab_turn (storm->lab, 1);
  lab_host_turn (storm->host);
}

static void
look_around (Storm *storm)
{
  storm->most_flows = MAX (storm->most_flows, count_flows (storm));
  storm->most_allocated = MAX (storm->most_allocated, frame_lab_get_allocated ());
  storm->most_fds = MAX (storm->most_fds, count_fds ());
}

/* One datagram to the neighbour and one to the server outside, which answers. */
static void
talk (Storm *storm)
{
  const KitPeer *self = &storm->lab->guests[BYSTANDER].self;
  KitFrame frame;

  kit_udp (&frame, self, &storm->lab->guests[OTHER].self, BYSTANDER_PORT, 1, "to you", 6);
  frame_lab_send (storm->lab, BYSTANDER, &frame);
  kit_udp (&frame, self, &storm->outside, BYSTANDER_PORT, ECHO_PORT, "to all", 6);
  frame_lab_send (storm->lab, BYSTANDER, &frame);
  storm->sent++;
  for (guint i = 0; i < TURNS_PER_TALK; i++)
    turn (storm);
  look_around (storm);
}

static void
start (Storm *storm)
{
  memset (storm, 0, sizeof *storm);
  storm->host = lab_host_new ();
  storm->lab = frame_lab_new (NETD_MTU_MIN);
  storm->lab->frame_func = count_frame;
  storm->lab->user_data = storm;
  storm->outside = (KitPeer){ storm->lab->gateway.mac, OUTSIDE_IP };
  talk (storm);
  frame_lab_turn (storm->lab, 8);
  storm->allocated = frame_lab_get_allocated ();
  storm->fds = count_fds ();
  g_assert_cmpuint (storm->allocated, <, IDLE_MAX);
}

static void
rage (Storm *storm, StormFunc func, guint n)
{
  KitFrame frame;

  for (guint i = 0; i < n; i++)
    {
      func (storm, i, &frame);
      frame_lab_send (storm->lab, ATTACKER, &frame);
      if (i % FRAMES_PER_TALK == 0)
        talk (storm);
    }
  for (guint i = 0; i < 8; i++)
    turn (storm);
  look_around (storm);
}

static void
check_bystander (Storm *storm)
{
  guint least = storm->sent - storm->sent * LOSS_PERCENT / 100;

  g_test_message (
      "%u sent, %u to the other guest, %u back from outside; flows %u, bytes %" G_GSIZE_FORMAT
      ", descriptors %u",
      storm->sent, storm->to_other, storm->from_outside, storm->most_flows,
      storm->most_allocated - storm->allocated, storm->most_fds - storm->fds);
  if (!storm->lab->guests[OTHER].is_stuck)
    g_assert_cmpuint (storm->to_other, >=, least);
  g_assert_cmpuint (storm->from_outside, >=, least);
}

static void
check_budget (Storm *storm, gsize bytes, guint fds)
{
  g_assert_cmpuint (storm->most_flows, <=, NETD_FLOWS_PER_PORT);
  g_assert_cmpuint (storm->most_allocated, <, storm->allocated + bytes);
  g_assert_cmpuint (storm->most_fds, <=, storm->fds + fds);
}

static gboolean
is_calm (FrameLab *lab, gpointer data)
{
  Storm *storm = data;

  return count_flows (storm) == 0 && frame_lab_get_allocated () < storm->allocated + LEFT_OVER_MAX
         && count_fds () <= storm->fds + SERVICES;
}

/* Time heals it. */
static void
finish (Storm *storm)
{
  for (guint i = 0; i < PATIENCE_MS / PATIENCE_STEP_MS && !is_calm (storm->lab, storm); i++)
    {
      test_clock_advance (PATIENCE_STEP_MS);
      turn (storm);
    }
  g_assert_cmpuint (count_flows (storm), ==, 0);
  g_assert_cmpuint (frame_lab_get_allocated (), <, storm->allocated + LEFT_OVER_MAX);
  g_assert_cmpuint (count_fds (), <=, storm->fds + SERVICES);
  frame_lab_free (storm->lab);
  lab_host_free (storm->host);
}

/* --- Storms --- */

static void
to_stuck_guest (Storm *storm, guint i, KitFrame *frame)
{
  static const guint8 payload[1400];

  kit_udp (frame, &storm->lab->guests[ATTACKER].self, &storm->lab->guests[OTHER].self, 1, 1,
           payload, sizeof payload);
}

static gboolean
is_heard (FrameLab *lab, gpointer data)
{
  return lab->guests[OTHER].n_received > *(guint64 *) data;
}

/* Who does not read is sent no more than its queue holds, and is as good as new when it reads
 * again. */
static void
test_stuck (void)
{
  Storm storm;
  KitFrame frame;
  guint64 before;

  start (&storm);
  storm.lab->guests[OTHER].is_stuck = TRUE;
  rage (&storm, to_stuck_guest, STUCK_FRAMES);
  check_bystander (&storm);
  check_budget (&storm, PIECES_MAX, 0);
  g_assert_cmpuint (frame_lab_count (storm.lab, OTHER, NETD_COUNT_QUEUE_FULL), >,
                    STUCK_FRAMES - QUEUED_MAX);
  storm.lab->guests[OTHER].is_stuck = FALSE;
  frame_lab_turn (storm.lab, 64);
  before = storm.lab->guests[OTHER].n_received;
  kit_udp (&frame, &storm.lab->guests[BYSTANDER].self, &storm.lab->guests[OTHER].self, 1, 1, "?",
           1);
  frame_lab_send (storm.lab, BYSTANDER, &frame);
  frame_lab_await (storm.lab, is_heard, &before);
  finish (&storm);
}

static void
to_destination (Storm *storm, guint i, KitFrame *frame)
{
  KitPeer to = { storm->lab->gateway.mac, NETD_IP (20, 0, 0, 0) + i };

  kit_udp (frame, &storm->lab->guests[ATTACKER].self, &to, 5000, ECHO_PORT, "hello", 5);
}

static void
from_port (Storm *storm, guint i, KitFrame *frame)
{
  kit_udp (frame, &storm->lab->guests[ATTACKER].self, &storm->outside, (guint16) (1 + i % 65535),
           CLOSED_PORT, "hello", 5);
}

static void
half_open (Storm *storm, guint i, KitFrame *frame)
{
  const KitTcp tcp = { .source_port = (guint16) (1024 + i),
                       .destination_port = HTTP_PORT,
                       .sequence = i,
                       .flags = NETD_TCP_SYN };

  kit_tcp (frame, &storm->lab->guests[ATTACKER].self, &storm->outside, &tcp, NULL, 0);
}

static void
half_open_metadata (Storm *storm, guint i, KitFrame *frame)
{
  const KitPeer metadata = { storm->lab->gateway.mac, NETD_IP_METADATA };
  const KitTcp tcp = { .source_port = (guint16) (1024 + i),
                       .destination_port = HTTP_PORT,
                       .sequence = i,
                       .flags = NETD_TCP_SYN };

  kit_tcp (frame, &storm->lab->guests[ATTACKER].self, &metadata, &tcp, NULL, 0);
}

static void
echo_request (Storm *storm, guint i, KitFrame *frame)
{
  KitPeer to = { storm->lab->gateway.mac, NETD_IP (20, 0, 0, 0) + i };

  kit_echo (frame, &storm->lab->guests[ATTACKER].self, &to, (guint16) i);
}

/* First pieces of datagrams whose rest never comes. */
static void
first_fragment (Storm *storm, guint i, KitFrame *frame)
{
  static const guint8 payload[1472 - 8];

  kit_udp (frame, &storm->lab->guests[ATTACKER].self, &storm->outside, 5000, ECHO_PORT, payload,
           sizeof payload);
  kit_set16 (frame->data + NETD_ETHERNET_HEADER + 4, (guint16) i);
  kit_set_fragment (frame, MORE_FRAGMENTS);
}

/* All of one datagram, each of 8 bytes, with holes. */
static void
small_fragment (Storm *storm, guint i, KitFrame *frame)
{
  kit_ip (frame, &storm->lab->guests[ATTACKER].self, &storm->outside, KIT_PROTOCOL_UDP, "of eight",
          8);
  kit_set16 (frame->data + NETD_ETHERNET_HEADER + 4, (guint16) (i / 4000));
  kit_set_fragment (frame, (guint16) (MORE_FRAGMENTS | (2 + i * 2 % 8000)));
}

static void
broadcast (Storm *storm, guint i, KitFrame *frame)
{
  KitPeer to = { KIT_BROADCAST_MAC, 0xffffffff };

  kit_udp (frame, &storm->lab->guests[ATTACKER].self, &to, 5000, 5000, "everybody", 9);
}

static void
arp_request (Storm *storm, guint i, KitFrame *frame)
{
  NetdMac everybody = KIT_BROADCAST_MAC;
  KitPeer target = { KIT_MAC (0, 0, 0, 0, 0, 0), LAB_NETWORK + i % 256 };

  kit_arp (frame, &everybody, 1, &storm->lab->guests[ATTACKER].self, &target);
}

static void
dhcp_request (Storm *storm, guint i, KitFrame *frame)
{
  const KitPeer *self = &storm->lab->guests[ATTACKER].self;

  kit_dhcp (frame, &self->mac, &self->mac, KIT_DHCP_DISCOVER, self->ip);
}

/* Each takes a socket while it is under way. */
static void
dns_query (Storm *storm, guint i, KitFrame *frame)
{
  guint8 query[12 + 9 + 4] = { 0, 0, 1, 0, 0, 1 };

  kit_set16 (query, (guint16) i);
  memcpy (query + 12, "\7example", 8);
  query[sizeof query - 3] = 1;
  query[sizeof query - 1] = 1;
  kit_udp (frame, &storm->lab->guests[ATTACKER].self, &storm->lab->gateway, 5000, 53, query,
           sizeof query);
}

static void
from_random_mac (Storm *storm, guint i, KitFrame *frame)
{
  guint32 random = (guint32) g_test_rand_int ();
  KitPeer from = storm->lab->guests[ATTACKER].self;

  kit_set32 (from.mac.octets + 2, random);
  from.mac.octets[1] = (guint8) (i % 0xf4);
  kit_udp (frame, &from, &storm->outside, 5000, ECHO_PORT, "?", 1);
}

typedef struct
{
  const char *name;
  StormFunc func;
  guint n;
  gsize bytes; /* budget above what is there before */
  guint fds;
} StormCase;

static const StormCase cases[] = {
  { "destinations", to_destination, 65000, NETD_FLOWS_PER_PORT *(gsize) DATAGRAM_FLOW_BYTES,
    NETD_FLOWS_PER_PORT *FLOW_FDS },
  { "sources", from_port, 65535, NETD_FLOWS_PER_PORT *(gsize) DATAGRAM_FLOW_BYTES,
    NETD_FLOWS_PER_PORT *FLOW_FDS },
  { "half-open", half_open, 10000, NETD_FLOWS_PER_PORT *(gsize) FLOW_BYTES,
    NETD_FLOWS_PER_PORT *FLOW_FDS + 64 },
  { "half-open-metadata", half_open_metadata, 10000, NETD_FLOWS_PER_PORT *(gsize) FLOW_BYTES,
    NETD_FLOWS_PER_PORT *FLOW_FDS },
  { "echo", echo_request, 20000, NETD_FLOWS_PER_PORT *(gsize) DATAGRAM_FLOW_BYTES,
    NETD_FLOWS_PER_PORT *FLOW_FDS },
  { "first-fragments", first_fragment, 20000, PIECES_MAX, 8 },
  { "small-fragments", small_fragment, 20000, PIECES_MAX, 8 },
  { "broadcasts", broadcast, 50000, PIECES_MAX, 8 },
  { "arp", arp_request, 50000, PIECES_MAX, 8 },
  { "dhcp", dhcp_request, 20000, PIECES_MAX, 8 },
  { "dns", dns_query, 20000, PIECES_MAX, 128 },
};

static void
test_storm (gconstpointer data)
{
  const StormCase *it = data;
  Storm storm;

  start (&storm);
  rage (&storm, it->func, it->n);
  check_bystander (&storm);
  check_budget (&storm, it->bytes, it->fds);
  finish (&storm);
}

/* Nothing is learnt from frames: a million senders leave nothing behind. */
static void
test_macs (void)
{
  const guint n = 1000000;
  Storm storm;
  KitFrame frame;

  start (&storm);
  for (guint i = 0; i < n; i++)
    {
      from_random_mac (&storm, i, &frame);
      frame_lab_inject (storm.lab, ATTACKER, frame.data, frame.length);
      if (i % 1000 == 0)
        talk (&storm);
    }
  check_bystander (&storm);
  check_budget (&storm, NOTHING_MAX, 0);
  g_assert_cmpuint (frame_lab_count (storm.lab, ATTACKER, NETD_COUNT_SPOOFED_MAC), ==, n);
  g_assert_cmpuint (count_flows (&storm), ==, 0);
  finish (&storm);
}

int
main (int argc, char **argv)
{
  g_autofree char *reason = NULL;

  g_test_init (&argc, &argv, NULL);
  if (!private_net_enter (&reason))
    {
      g_print ("1..0 # SKIP %s\n", reason);
      return 0;
    }
  g_test_add_func ("/netd/storm/stuck", test_stuck);
  g_test_add_func ("/netd/storm/macs", test_macs);
  for (guint i = 0; i < G_N_ELEMENTS (cases); i++)
    {
      g_autofree char *path = g_strdup_printf ("/netd/storm/%s", cases[i].name);

      g_test_add_data_func (path, &cases[i], test_storm);
    }
  return g_test_run ();
}

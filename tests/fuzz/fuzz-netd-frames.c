/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Whatever three guests may send to their network, with the real NAT engine behind it and servers
 * to talk to. All that comes out is looked at: frames must be whole, from the gateway or a guest
 * that is what it says, with right checksums; no packet may go to the host's loopback or link-local
 * addresses; memory must be the same whenever the network is taken down, and bounded while it is
 * up.
 */
#include "fuzz-netd-frames.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "frame-lab.h"
#include "fuzz.h"
#include "lab-host.h"
#include "netd-gateway.h"
#include "netd-udp-forward.h"
#include "private-net.h"
#include "test-clock.h"

#define INPUTS_PER_LAB 2000
#define INPUTS_TO_WARM_UP 250 /* per network, while these are few */
#define WARM_UP_NETWORKS 16
#define CONNECTIONS 1024 /* remembered for HOW_ANSWER, a power of two */
#define BIG_FRAME 70000  /* more than any port takes */
#define VLAN_TAG 4
#define STEP_MS 40 /* by which the clock goes on behind each input */
#define TURNS 2
#define DNS_PORT 53
#define FORWARDED_PORT 5353
#define DIALLED_PORT 22
#define DIAL_MS 500
#define CALL_EVERY 4
#define CAPTURE_SIZE (1024 * 1024)
/* What one network may hold at a time, of which most are the buffers of flows. */
#define ALLOCATED_MAX (NETD_FLOWS_PER_PORT * LAB_GUESTS * (gsize) 300000)
/* Between two networks: what is kept for the next one, as after the first few. */
#define LEFT_OVER_MAX (512 * 1024)

typedef struct
{
  guint16 guest_port;
  guint16 remote_port;
  guint32 remote;
  guint32 next; /* what the far side sends next */
  guint32 acknowledged;
} Connection;

/* Of libFuzzer, which keeps what it finds: memory grows, but not ours. */
#pragma weak LLVMFuzzerRunDriver
int LLVMFuzzerRunDriver (int *argc, char ***argv, int (*run) (const uint8_t *data, size_t size));

static FrameLab *lab;
static LabHost *host;
static int witness;
static guint inputs, networks;
static gsize empty;
static guint64 frames, answers;
static Connection connections[LAB_GUESTS][CONNECTIONS];
static Connection calls[LAB_GUESTS]; /* the last connection that was made to the guest */
static NetdUdpForward *forward;      /* to the first guest */
static int forward_peer = -1, dial_fd = -1;
static NetdDial *dial; /* to the second */
static guint64 dialled;

/* --- What comes out --- */

static Connection *
find_connection (guint guest, guint16 guest_port, guint32 remote, guint16 remote_port)
{
  guint32 hash = guest_port * 31u + remote_port * 7u + remote;

  return &connections[guest][(hash ^ hash >> 16) & (CONNECTIONS - 1)];
}

static void
remember_segment (guint guest, const NetdPacket *packet)
{
  Connection *connection
      = find_connection (guest, packet->destination_port, packet->ip_source, packet->source_port);

  connection->guest_port = packet->destination_port;
  connection->remote_port = packet->source_port;
  connection->remote = packet->ip_source;
  connection->next = kit_get32 (packet->transport + 4) + (guint32) packet->payload_length
                     + ((packet->tcp_flags & (NETD_TCP_SYN | NETD_TCP_FIN)) != 0);
  connection->acknowledged = kit_get32 (packet->transport + 8);
  if ((packet->tcp_flags & (NETD_TCP_SYN | NETD_TCP_ACK)) == NETD_TCP_SYN)
    calls[guest] = *connection;
}

/* By the test's own arithmetic: what it would have put in is what is there. */
static void
check_checksums (const guint8 *frame, gsize length)
{
  g_autofree guint8 *copy = g_memdup2 (frame, length);

  kit_fix_checksums (copy, length);
  g_assert_cmpmem (copy, length, frame, length);
}

static void
check_from_gateway (guint guest, const NetdPacket *packet)
{
  gboolean is_reset
      = packet->protocol == KIT_PROTOCOL_TCP && (packet->tcp_flags & NETD_TCP_RST) != 0;

  if (packet->kind != NETD_PACKET_IPV4)
    return;
  /* Nobody is there, but for whoever refuses, and the host behind its alias. */
  g_assert_true (is_reset || packet->ip_source >> 24 != 127 || lab->plan.enable_host_alias);
  g_assert_true (is_reset || packet->ip_source >> 16 != 0xa9fe
                 || packet->ip_source == NETD_IP_METADATA);
  check_checksums (packet->frame, packet->length);
  if (packet->protocol == KIT_PROTOCOL_TCP && !packet->is_fragment)
    remember_segment (guest, packet);
}

static void
check_from_guest (guint guest, const NetdPacket *packet)
{
  guint sender = 0;

  while (sender < LAB_GUESTS && !netd_mac_equal (&lab->guests[sender].self.mac, &packet->source))
    sender++;
  g_assert_cmpuint (sender, <, LAB_GUESTS);
  g_assert_cmpuint (sender, !=, guest);
  if (packet->kind == NETD_PACKET_IPV4)
    g_assert_cmpuint (packet->ip_source, ==, lab->guests[sender].self.ip);
  /* Who looks whether an address is taken has none yet (RFC 5227). */
  else if (packet->arp_operation != 1 || packet->arp_sender_ip != 0)
    g_assert_cmpuint (packet->arp_sender_ip, ==, lab->guests[sender].self.ip);
}

static void
check_frame (FrameLab *from, guint guest, const guint8 *frame, gsize length, gpointer user_data)
{
  g_autofree guint8 *copy = g_memdup2 (frame, length);
  NetdPacketKind kind;
  NetdPacket packet;

  answers++;
  kind = netd_packet_parse (&packet, copy, length);
  g_assert_true (kind == NETD_PACKET_ARP || kind == NETD_PACKET_IPV4);
  g_assert_true (netd_mac_equal (&packet.destination, &lab->guests[guest].self.mac)
                 || netd_packet_is_broadcast (&packet));
  if (netd_mac_equal (&packet.source, &lab->gateway.mac))
    check_from_gateway (guest, &packet);
  else
    check_from_guest (guest, &packet);
}

/* Each guest's metadata service says who it is, and hangs up. */
static void
serve_metadata (FrameLab *from, guint guest, int fd, gpointer user_data)
{
  (void) send (fd, from->guests[guest].vm_id, strlen (from->guests[guest].vm_id), MSG_NOSIGNAL);
  close (fd);
}

/* --- What comes from the host --- */

static void
dialled_cb (int fd, int error_number, gpointer user_data)
{
  dial = NULL;
  g_assert_true ((fd >= 0) == (error_number == 0));
  dialled += fd >= 0;
  if (fd < 0)
    return;
  (void) send (fd, "hello, guest", 12, MSG_NOSIGNAL | MSG_DONTWAIT);
  if (dial_fd >= 0)
    close (dial_fd);
  dial_fd = fd;
}

static void
open_forward (void)
{
  NetdGateway *gateway = netd_port_get_gateway (lab->guests[0].port);
  struct sockaddr_in address = { .sin_family = AF_INET };
  socklen_t length = sizeof address;
  int fd = socket (AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

  address.sin_addr.s_addr = inet_addr (PRIVATE_NET_HOST);
  g_assert_cmpint (bind (fd, (struct sockaddr *) &address, length), ==, 0);
  g_assert_cmpint (getsockname (fd, (struct sockaddr *) &address, &length), ==, 0);
  forward = netd_udp_forwards_add (netd_gateway_get_udp_forwards (gateway), fd, FORWARDED_PORT);
  netd_udp_forward_set_location (forward, &forward);
  if (forward_peer >= 0)
    close (forward_peer);
  forward_peer = socket (AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  g_assert_cmpint (connect (forward_peer, (struct sockaddr *) &address, length), ==, 0);
}

/* A datagram through the forward, and a connection to a guest. */
static void
call_guests (void)
{
  NetdPort *port = lab->guests[1].port;

  /* It ends with its guest. */
  if (forward == NULL)
    open_forward ();
  (void) send (forward_peer, "knock", 5, MSG_DONTWAIT);
  if (dial == NULL)
    dial = netd_engine_dial (netd_gateway_get_engine (netd_port_get_gateway (port)), DIALLED_PORT,
                             DIAL_MS, dialled_cb, NULL);
}

static void
stop_calling (void)
{
  if (dial != NULL)
    netd_dial_cancel (dial);
  dial = NULL;
  if (dial_fd >= 0)
    close (dial_fd);
  dial_fd = -1;
}

/* --- What goes in --- */

static void
make_own (guint guest, guint8 *frame, gsize length)
{
  const KitPeer *self = &lab->guests[guest].self;
  guint16 ethertype;

  if (length < NETD_ETHERNET_HEADER)
    return;
  memcpy (frame + 6, self->mac.octets, 6);
  ethertype = kit_get16 (frame + 12);
  if (ethertype == NETD_ETHERTYPE_ARP && length >= 32)
    {
      memcpy (frame + 22, self->mac.octets, 6);
      kit_set32 (frame + 28, self->ip);
    }
  /* A client that has no address yet stays without. */
  if (ethertype == NETD_ETHERTYPE_IPV4 && length >= 30 && kit_get32 (frame + 26) != 0)
    kit_set32 (frame + 26, self->ip);
  if (length >= 76 && frame[23] == KIT_PROTOCOL_UDP && kit_get16 (frame + 36) == 67)
    memcpy (frame + 70, self->mac.octets, 6);
}

static void
make_answer (guint guest, guint8 *frame, gsize length)
{
  Connection *connection;
  guint8 *tcp = frame + NETD_ETHERNET_HEADER + 20;

  if (length < NETD_ETHERNET_HEADER + 40 || frame[NETD_ETHERNET_HEADER] != 0x45
      || frame[23] != KIT_PROTOCOL_TCP)
    return;
  /* To the gateway go answers to whoever called. */
  if (kit_get32 (frame + 30) == LAB_GATEWAY && calls[guest].guest_port != 0
      && kit_get16 (tcp + 2) != DNS_PORT)
    {
      kit_set16 (tcp, calls[guest].guest_port);
      kit_set16 (tcp + 2, calls[guest].remote_port);
    }
  connection
      = find_connection (guest, kit_get16 (tcp), kit_get32 (frame + 30), kit_get16 (tcp + 2));
  kit_set32 (tcp + 4, connection->acknowledged);
  kit_set32 (tcp + 8, connection->next);
}

static void
send_raw (guint guest, const guint8 *data, gsize length)
{
  frame_lab_reconnect (lab, guest);
  /* When it is full, so be it. */
  (void) send (lab->guests[guest].fd, data, length, MSG_NOSIGNAL);
}

static void
send_by_stream (guint guest, const guint8 *frame, gsize length)
{
  g_autofree guint8 *message = g_malloc (4 + length);

  kit_set32 (message, (guint32) length);
  memcpy (message + 4, frame, length);
  send_raw (guest, message, 4 + length);
}

static void
plug_again (guint guest)
{
  g_autoptr (GError) error = NULL;
  LabGuest *it = &lab->guests[guest];

  g_assert_true (netd_network_detach (lab->network, it->vm_id));
  it->port = netd_network_attach (lab->network, it->vm_id, &it->self.mac, it->self.ip, &error);
  g_assert_no_error (error);
}

static void
send_frame (guint how, guint guest, const guint8 *data, gsize length)
{
  gsize size = (how & HOW_BIG) != 0 ? BIG_FRAME : length;
  g_autofree guint8 *frame = NULL;

  /* As a port does before it hands a frame over. */
  if ((how & HOW_STREAM) == 0)
    size = MIN (size, lab->plan.mtu + NETD_ETHERNET_HEADER + VLAN_TAG);
  frame = g_malloc0 (MAX (size, 1));
  if (length > 0)
    memcpy (frame, data, MIN (length, size));
  frames++;
  if ((how & HOW_OWN) != 0)
    make_own (guest, frame, size);
  if ((how & HOW_ANSWER) != 0)
    make_answer (guest, frame, size);
  if ((how & HOW_CHECKSUM) != 0)
    kit_fix_checksums (frame, size);
  if ((how & HOW_STREAM) != 0)
    send_by_stream (guest, frame, size);
  else if (size >= NETD_FRAME_MIN)
    netd_network_receive (lab->network, lab->guests[guest].port, frame, size);
}

static void
end_batches (void)
{
  for (guint i = 0; i < LAB_GUESTS; i++)
    netd_network_batch_done (lab->network, lab->guests[i].port);
  frame_lab_turn (lab, 1);
  lab_host_turn (host);
}

static void
run_record (const guint8 *record, gsize length)
{
  guint how = record[0], guest = record[1] % LAB_GUESTS;

  if ((how & HOW_DETACH) != 0)
    plug_again (guest);
  if ((how & HOW_RAW) != 0)
    send_raw (guest, record + RECORD_HEAD, length);
  else
    send_frame (how, guest, record + RECORD_HEAD, length);
  if ((how & HOW_TURN) != 0)
    end_batches ();
}

static void
open_capture (void)
{
  g_autoptr (GError) error = NULL;
  int fd = memfd_create ("capture", MFD_CLOEXEC);
  NetdCapture *capture = netd_capture_new (fd, CAPTURE_SIZE, &error);

  g_assert_no_error (error);
  netd_network_set_capture (lab->network, capture);
}

/* --- The run --- */

/* Networks differ: in their MTU, in whether the host's loopback may be reached by its alias, and in
 * whether they are captured. */
static void
open_lab (void)
{
  memset (connections, 0, sizeof connections);
  memset (calls, 0, sizeof calls);
  lab = frame_lab_new (networks % 2 == 0 ? NETD_MTU_MIN : NETD_MTU_MAX);
  lab->frame_func = check_frame;
  lab->metadata_func = serve_metadata;
  lab->plan.enable_host_alias = networks % 4 == 3;
  if (networks % 8 == 1)
    open_capture ();
}

/* Buffers that are kept are made when they are first needed, which the first networks see to. */
static void
close_lab (void)
{
  gsize allocated;

  inputs = 0;
  /* Or it is told that its network is gone. */
  if (networks % 2 == 0)
    stop_calling ();
  frame_lab_free (lab);
  g_assert_null (dial);
  g_assert_null (forward);
  stop_calling ();
  lab = NULL;
  lab_host_free (host);
  host = NULL;
  allocated = frame_lab_get_allocated ();
  if (networks++ < WARM_UP_NETWORKS)
    empty = MAX (empty, allocated);
  if (LLVMFuzzerRunDriver == NULL)
    g_assert_cmpuint (allocated, <, empty + LEFT_OVER_MAX);
}

/* Connections to the host's loopback take a moment to end. */
static gboolean
is_loopback_allowed (void)
{
  static gint64 until;

  if (lab->plan.enable_host_alias)
    until = g_get_real_time () + G_USEC_PER_SEC;
  return g_get_real_time () < until;
}

int
LLVMFuzzerInitialize (int *argc, char ***argv)
{
  g_autofree char *reason = NULL;

  if (!private_net_enter (&reason))
    {
      g_print ("skipped: %s\n", reason);
      exit (77);
    }
  witness = private_net_watch_forbidden ();
  /* libslirp warns of what guests do, which the engine keeps from the log. */
  g_log_set_always_fatal (G_LOG_LEVEL_ERROR | G_LOG_LEVEL_CRITICAL);
  return 0;
}

int
LLVMFuzzerTestOneInput (const uint8_t *data, size_t size)
{
  gsize at = 0;
  guint n_forbidden;

  if (host == NULL)
    host = lab_host_new ();
  if (lab == NULL)
    open_lab ();
  if (inputs % CALL_EVERY == 0)
    call_guests ();
  while (size - at >= RECORD_HEAD)
    {
      gsize length = MIN (kit_get16 (data + at + 2), size - at - RECORD_HEAD);

      run_record (data + at, length);
      at += RECORD_HEAD + length;
    }
  test_clock_advance (STEP_MS);
  for (guint i = 0; i < TURNS; i++)
    end_batches ();
  n_forbidden = private_net_count_forbidden (witness);
  g_assert_true (is_loopback_allowed () || n_forbidden == 0);
  g_assert_cmpuint (frame_lab_get_allocated (), <, ALLOCATED_MAX);
  if (++inputs == (networks < WARM_UP_NETWORKS ? INPUTS_TO_WARM_UP : INPUTS_PER_LAB))
    close_lab ();
  return 0;
}

uint64_t
fuzz_get_units (void)
{
  return frames;
}

/* Whether anything came through: a fuzzer that is refused everything finds nothing. */
void
fuzz_finish (void)
{
  guint64 connected = host != NULL ? lab_host_get_connections (host) : 0;

  g_print ("%" G_GUINT64_FORMAT " frames in, %" G_GUINT64_FORMAT
           " out, %u networks, %" G_GUINT64_FORMAT " connections of the last, %" G_GUINT64_FORMAT
           " to guests\n",
           frames, answers, networks, connected, dialled);
  if (lab != NULL)
    close_lab ();
  g_assert_cmpuint (answers, >, frames / 100);
  g_assert_cmpuint (dialled, >, 0);
  close (witness);
  close (forward_peer);
}

/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A network: who is on it, where each kind of frame goes, and what the gateway makes of what is
 * sent to it. Guests 0, 1 and 2 are the test's.
 */
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include <gio/gio.h>
#include <glib/gstdio.h>

#include "frame-lab.h"
#include "netd-gateway.h"
#include "test-clock.h"

#define OUTSIDE NETD_IP (198, 51, 100, 1)
#define SYN_ACK (NETD_TCP_SYN | NETD_TCP_ACK)

typedef struct
{
  FrameLab *lab;
  GPtrArray *got[LAB_GUESTS]; /* GBytes */
} Fixture;

static void
keep_frame (FrameLab *lab, guint guest, const guint8 *frame, gsize length, gpointer user_data)
{
  Fixture *fixture = user_data;

  g_ptr_array_add (fixture->got[guest], g_bytes_new (frame, length));
}

static void
set_up (Fixture *fixture, gconstpointer data)
{
  fixture->lab = frame_lab_new (1500);
  for (guint i = 0; i < LAB_GUESTS; i++)
    fixture->got[i] = g_ptr_array_new_with_free_func ((GDestroyNotify) g_bytes_unref);
  fixture->lab->frame_func = keep_frame;
  fixture->lab->user_data = fixture;
}

static void
tear_down (Fixture *fixture, gconstpointer data)
{
  frame_lab_free (fixture->lab);
  for (guint i = 0; i < LAB_GUESTS; i++)
    g_ptr_array_unref (fixture->got[i]);
}

/* --- Helpers --- */

static void
forget_frames (Fixture *fixture)
{
  for (guint i = 0; i < LAB_GUESTS; i++)
    g_ptr_array_set_size (fixture->got[i], 0);
}

static void
send_frame (Fixture *fixture, guint guest, const KitFrame *frame)
{
  forget_frames (fixture);
  frame_lab_send (fixture->lab, guest, frame);
  frame_lab_turn (fixture->lab, 5);
}

static const guint8 *
frame_of (Fixture *fixture, guint guest, guint index, gsize *length)
{
  g_assert_cmpuint (index, <, fixture->got[guest]->len);
  return g_bytes_get_data (g_ptr_array_index (fixture->got[guest], index), length);
}

static void
assert_counts (Fixture *fixture, guint a, guint b, guint c)
{
  g_assert_cmpuint (fixture->got[0]->len, ==, a);
  g_assert_cmpuint (fixture->got[1]->len, ==, b);
  g_assert_cmpuint (fixture->got[2]->len, ==, c);
}

/* By way of the gateway's MAC. */
static KitPeer
via_gateway (Fixture *fixture, guint32 ip)
{
  return (KitPeer){ fixture->lab->gateway.mac, ip };
}

static void
send_tcp (Fixture *fixture, guint32 ip, guint16 port, guint8 flags)
{
  KitPeer to = via_gateway (fixture, ip);
  KitTcp tcp = { .source_port = 40000, .destination_port = port, .sequence = 7, .flags = flags };
  KitFrame frame;

  kit_tcp (&frame, &fixture->lab->guests[0].self, &to, &tcp, NULL, 0);
  send_frame (fixture, 0, &frame);
}

static void
send_udp (Fixture *fixture, guint32 ip, guint16 port)
{
  KitPeer to = via_gateway (fixture, ip);
  KitFrame frame;

  kit_udp (&frame, &fixture->lab->guests[0].self, &to, 40000, port, "something", 9);
  send_frame (fixture, 0, &frame);
}

/* Guest 0 got one TCP segment with @flags from @ip, @port. */
static void
assert_segment (Fixture *fixture, guint32 ip, guint16 port, guint8 flags)
{
  const guint8 *frame;
  NetdPacket packet;
  gsize length;

  g_assert_cmpuint (fixture->got[0]->len, ==, 1);
  frame = frame_of (fixture, 0, 0, &length);
  g_assert_cmpint (netd_packet_parse (&packet, frame, length), ==, NETD_PACKET_IPV4);
  g_assert_true (netd_mac_equal (&packet.source, &fixture->lab->gateway.mac));
  g_assert_true (netd_mac_equal (&packet.destination, &fixture->lab->guests[0].self.mac));
  g_assert_cmphex (packet.ip_source, ==, ip);
  g_assert_cmpuint (packet.source_port, ==, port);
  g_assert_cmpuint (packet.destination_port, ==, 40000);
  g_assert_cmphex (packet.tcp_flags, ==, flags);
}

static guint64
count_of (Fixture *fixture, NetdCount count)
{
  return frame_lab_count (fixture->lab, 0, count);
}

/* --- Who is on it --- */

static void
test_attach_again (Fixture *fixture, gconstpointer data)
{
  FrameLab *lab = fixture->lab;
  g_autoptr (GError) error = NULL;
  LabGuest *guest = &lab->guests[1];

  g_assert_true (
      netd_network_attach (lab->network, "vm-1", &guest->self.mac, guest->self.ip, &error)
      == guest->port);
  g_assert_no_error (error);
  g_assert_true (netd_port_is_connected (guest->port));
  g_assert_true (netd_network_find (lab->network, "vm-1") == guest->port);
  g_assert_null (netd_network_find (lab->network, "vm-9"));
  g_assert_cmpstr (netd_port_get_vm_id (guest->port), ==, "vm-1");
  g_assert_cmphex (netd_port_get_ip (guest->port), ==, guest->self.ip);
  g_assert_cmpuint (netd_port_get_index (lab->guests[0].port), !=,
                    netd_port_get_index (guest->port));
  g_assert_false (netd_network_detach (lab->network, "vm-9"));
}

static void
test_bad_leases (Fixture *fixture, gconstpointer data)
{
  FrameLab *lab = fixture->lab;
  g_autofree char *long_id = g_strnfill (NETD_VM_ID_MAX, 'x');
  const struct
  {
    const char *vm_id;
    NetdMac mac;
    guint32 ip;
  } leases[] = {
    { "new", lab->gateway.mac, LAB_GATEWAY + 20 },
    { "new", KIT_MAC (3, 0, 0, 0, 0, 1), LAB_GATEWAY + 20 },
    { "new", KIT_BROADCAST_MAC, LAB_GATEWAY + 20 },
    { "new", KIT_MAC (2, 0, 0, 0, 0, 1), LAB_GATEWAY },
    { "new", KIT_MAC (2, 0, 0, 0, 0, 1), LAB_NETWORK },
    { "new", KIT_MAC (2, 0, 0, 0, 0, 1), LAB_BROADCAST },
    { "new", KIT_MAC (2, 0, 0, 0, 0, 1), LAB_ALIAS },
    { "new", KIT_MAC (2, 0, 0, 0, 0, 1), NETD_IP (10, 78, 0, 2) },
    { "", KIT_MAC (2, 0, 0, 0, 0, 1), LAB_GATEWAY + 20 },
    { long_id, KIT_MAC (2, 0, 0, 0, 0, 1), LAB_GATEWAY + 20 },
  };

  for (guint i = 0; i < G_N_ELEMENTS (leases); i++)
    {
      g_autoptr (GError) error = NULL;

      g_assert_null (netd_network_attach (lab->network, leases[i].vm_id, &leases[i].mac,
                                          leases[i].ip, &error));
      g_assert_error (error, G_IO_ERROR, G_IO_ERROR_INVALID_ARGUMENT);
    }
}

static void
count_ports (NetdPort *port, gpointer user_data)
{
  guint *n = user_data;

  ++*n;
}

/* Another VM with a lease's MAC or IP takes its place; a VM with a new lease leaves its old one. */
static void
test_displace (Fixture *fixture, gconstpointer data)
{
  FrameLab *lab = fixture->lab;
  NetdMac mac = KIT_MAC (2, 0xf4, 10, 77, 0, 50);
  NetdPort *port;
  guint n = 0;

  port = netd_network_attach (lab->network, "by-mac", &lab->guests[0].self.mac, LAB_GATEWAY + 49,
                              NULL);
  g_assert_nonnull (port);
  g_assert_null (netd_network_find (lab->network, "vm-0"));
  /* The places of those that left are taken again. */
  g_assert_cmpuint (netd_port_get_index (port), ==, 0);
  port = netd_network_attach (lab->network, "by-ip", &mac, lab->guests[1].self.ip, NULL);
  g_assert_nonnull (port);
  g_assert_null (netd_network_find (lab->network, "vm-1"));
  g_assert_nonnull (netd_network_attach (lab->network, "by-mac", &mac, LAB_GATEWAY + 70, NULL));
  g_assert_null (netd_network_find (lab->network, "by-ip"));
  netd_network_foreach (lab->network, count_ports, &n);
  g_assert_cmpuint (n, ==, 2);
  g_assert_true (netd_network_detach (lab->network, "by-mac"));
  g_assert_false (netd_network_detach (lab->network, "by-mac"));
}

static void
detach_other (NetdPort *port, gpointer user_data)
{
  FrameLab *lab = user_data;

  if (!netd_port_is_connected (port))
    netd_network_detach (lab->network, "vm-2");
}

/* All have something to be written out in the turn in which one is found gone, and another is
 * unplugged because of it. The one that is gone is not read, so that only writing tells. */
static void
test_detach_while_busy (Fixture *fixture, gconstpointer data)
{
  FrameLab *lab = fixture->lab;
  KitFrame spoofed;
  KitFrame request;

  kit_udp (&spoofed, &lab->guests[0].self, &lab->guests[2].self, 1, 2, "x", 1);
  for (guint i = 0; i < 1000; i++)
    frame_lab_inject (lab, 1, spoofed.data, spoofed.length);
  frame_lab_send (lab, 1, &spoofed);
  frame_lab_turn (lab, 1);
  netd_network_set_port_func (lab->network, detach_other, lab);
  kit_arp (&request, &KIT_BROADCAST_MAC, 1, &lab->guests[0].self, &lab->guests[1].self);
  close (lab->guests[1].fd);
  lab->guests[1].fd = -1;
  frame_lab_inject (lab, 0, request.data, request.length);
  frame_lab_turn (lab, 5);
  g_assert_null (netd_network_find (lab->network, "vm-2"));
  g_assert_nonnull (netd_network_find (lab->network, "vm-1"));
  send_udp (fixture, LAB_GATEWAY, 9);
  g_assert_cmpuint (count_of (fixture, NETD_COUNT_NO_RECEIVER), ==, 1);
}

/* --- Between guests --- */

static void
test_unicast (Fixture *fixture, gconstpointer data)
{
  FrameLab *lab = fixture->lab;
  KitPeer unknown = { KIT_MAC (2, 0xf4, 10, 77, 0, 99), NETD_IP (10, 77, 0, 99) };
  KitPeer group = { KIT_MAC (1, 0, 0x5e, 0, 0, 0xfb), NETD_IP (224, 0, 0, 251) };
  KitFrame frame;

  kit_udp (&frame, &lab->guests[0].self, &lab->guests[2].self, 1, 2, "hello", 5);
  send_frame (fixture, 0, &frame);
  assert_counts (fixture, 0, 0, 1);
  g_assert_cmpuint (count_of (fixture, NETD_COUNT_NO_RECEIVER), ==, 0);

  kit_udp (&frame, &lab->guests[0].self, &lab->guests[0].self, 1, 2, "hello", 5);
  send_frame (fixture, 0, &frame);
  kit_udp (&frame, &lab->guests[0].self, &unknown, 1, 2, "hello", 5);
  send_frame (fixture, 0, &frame);
  kit_udp (&frame, &lab->guests[0].self, &group, 1, 2, "hello", 5);
  send_frame (fixture, 0, &frame);
  assert_counts (fixture, 0, 0, 0);
  g_assert_cmpuint (count_of (fixture, NETD_COUNT_NO_RECEIVER), ==, 3);

  /* A VM that is not running receives nothing either. */
  netd_network_set_opener (lab->network, NULL);
  g_assert_nonnull (netd_network_attach (lab->network, "vm-9", &unknown.mac, unknown.ip, NULL));
  kit_udp (&frame, &lab->guests[0].self, &unknown, 1, 2, "hello", 5);
  send_frame (fixture, 0, &frame);
  g_assert_cmpuint (count_of (fixture, NETD_COUNT_NO_RECEIVER), ==, 3 + 1);
}

static void
test_broadcast (Fixture *fixture, gconstpointer data)
{
  FrameLab *lab = fixture->lab;
  KitPeer everybody = { KIT_BROADCAST_MAC, LAB_BROADCAST };
  KitFrame frame;

  kit_udp (&frame, &lab->guests[1].self, &everybody, 137, 137, "anybody?", 8);
  send_frame (fixture, 1, &frame);
  assert_counts (fixture, 1, 0, 1);
  /* For another guest: it answers for itself, the gateway does not. */
  kit_arp (&frame, &KIT_BROADCAST_MAC, 1, &lab->guests[1].self, &lab->guests[0].self);
  send_frame (fixture, 1, &frame);
  assert_counts (fixture, 1, 0, 1);
  g_assert_cmpuint (frame_lab_count (lab, 1, NETD_COUNT_FORBIDDEN), ==, 0);
}

/* The table is that of the leases: sending with another's address moves nothing. */
static void
test_nothing_is_learnt (Fixture *fixture, gconstpointer data)
{
  FrameLab *lab = fixture->lab;
  KitPeer thief = { lab->guests[2].self.mac, lab->guests[1].self.ip };
  KitFrame frame;

  kit_udp (&frame, &thief, &lab->guests[0].self, 1, 2, "mine", 4);
  send_frame (fixture, 1, &frame);
  assert_counts (fixture, 0, 0, 0);
  g_assert_cmpuint (frame_lab_count (lab, 1, NETD_COUNT_SPOOFED_MAC), ==, 1);
  thief = (KitPeer){ lab->guests[1].self.mac, lab->guests[2].self.ip };
  kit_udp (&frame, &thief, &lab->guests[0].self, 1, 2, "mine", 4);
  send_frame (fixture, 1, &frame);
  assert_counts (fixture, 0, 0, 0);
  g_assert_cmpuint (frame_lab_count (lab, 1, NETD_COUNT_SPOOFED_IP), ==, 1);
  g_assert_cmpuint (lab->counters.counts[NETD_COUNT_SPOOFED_IP], ==, 1);
  kit_udp (&frame, &lab->guests[0].self, &lab->guests[2].self, 1, 2, "hello", 5);
  send_frame (fixture, 0, &frame);
  assert_counts (fixture, 0, 0, 1);
}

/* --- The gateway's own --- */

static void
test_arp (Fixture *fixture, gconstpointer data)
{
  FrameLab *lab = fixture->lab;
  const guint32 answered[] = { LAB_GATEWAY, NETD_IP_METADATA };
  const guint8 *reply;
  KitFrame request;
  gsize length;

  for (guint i = 0; i < G_N_ELEMENTS (answered); i++)
    {
      KitPeer target = { { { 0 } }, answered[i] };

      kit_arp (&request, &KIT_BROADCAST_MAC, 1, &lab->guests[0].self, &target);
      send_frame (fixture, 0, &request);
      assert_counts (fixture, 1, 0, 0);
      reply = frame_of (fixture, 0, 0, &length);
      g_assert_cmpuint (length, >=, 42);
      g_assert_cmpmem (reply, 6, lab->guests[0].self.mac.octets, 6);
      g_assert_cmpuint (kit_get16 (reply + 20), ==, 2);
      g_assert_cmpmem (reply + 22, 6, lab->gateway.mac.octets, 6);
      g_assert_cmphex (kit_get32 (reply + 28), ==, answered[i]);
    }
  /* Again, from who knows it already. */
  kit_arp (&request, &lab->gateway.mac, 1, &lab->guests[0].self, &lab->gateway);
  send_frame (fixture, 0, &request);
  assert_counts (fixture, 1, 0, 0);
}

static void
test_dhcp (Fixture *fixture, gconstpointer data)
{
  FrameLab *lab = fixture->lab;
  const guint8 *reply;
  KitFrame request;
  gsize length;

  kit_dhcp (&request, &lab->guests[0].self.mac, &lab->guests[0].self.mac, KIT_DHCP_DISCOVER, 0);
  send_frame (fixture, 0, &request);
  assert_counts (fixture, 1, 0, 0);
  reply = frame_of (fixture, 0, 0, &length);
  /* yiaddr */
  g_assert_cmphex (kit_get32 (reply + 14 + 20 + 8 + 16), ==, lab->guests[0].self.ip);
  kit_dhcp (&request, &lab->guests[0].self.mac, &lab->guests[1].self.mac, KIT_DHCP_DISCOVER, 0);
  send_frame (fixture, 0, &request);
  assert_counts (fixture, 0, 0, 0);
  g_assert_cmpuint (count_of (fixture, NETD_COUNT_SPOOFED_DHCP), ==, 1);
}

static void
test_ports_of_gateway (Fixture *fixture, gconstpointer data)
{
  static const guint16 closed[] = { 22, 67, 80, 443, 65535 };
  guint64 n = 0;

  for (guint i = 0; i < G_N_ELEMENTS (closed); i++)
    {
      send_tcp (fixture, LAB_GATEWAY, closed[i], NETD_TCP_SYN);
      assert_segment (fixture, LAB_GATEWAY, closed[i], NETD_TCP_RST | NETD_TCP_ACK);
      g_assert_cmpuint (count_of (fixture, NETD_COUNT_NO_RECEIVER), ==, ++n);
    }
  send_udp (fixture, LAB_GATEWAY, 69);
  assert_counts (fixture, 0, 0, 0);
  send_udp (fixture, LAB_GATEWAY, 9999);
  assert_counts (fixture, 0, 0, 0);
  g_assert_cmpuint (count_of (fixture, NETD_COUNT_NO_RECEIVER), ==, n + 2);
}

static void
test_forbidden_places (Fixture *fixture, gconstpointer data)
{
  const guint32 places[] = {
    NETD_IP (127, 0, 0, 1),
    NETD_IP (0, 0, 0, 0),
    NETD_IP (169, 254, 1, 1),
    NETD_IP (224, 0, 0, 251),
    NETD_IP (240, 0, 0, 1),
    G_MAXUINT32,
    LAB_ALIAS,
    NETD_IP (10, 77, 0, 3),
    LAB_BROADCAST,
    LAB_NETWORK,
    NETD_IP (169, 254, 169, 253),
  };
  guint64 n = 0;

  for (guint i = 0; i < G_N_ELEMENTS (places); i++)
    {
      send_udp (fixture, places[i], 53);
      assert_counts (fixture, 0, 0, 0);
      g_assert_cmpuint (count_of (fixture, NETD_COUNT_FORBIDDEN), ==, ++n);
      send_tcp (fixture, places[i], 80, NETD_TCP_RST);
      assert_counts (fixture, 0, 0, 0);
      g_assert_cmpuint (count_of (fixture, NETD_COUNT_FORBIDDEN), ==, ++n);
      send_tcp (fixture, places[i], 80, NETD_TCP_SYN);
      g_assert_cmpuint (count_of (fixture, NETD_COUNT_FORBIDDEN), ==, ++n);
      /* What is not one receiver's is not refused in its name. */
      if (places[i] < NETD_IP (224, 0, 0, 0))
        assert_segment (fixture, places[i], 80, NETD_TCP_RST | NETD_TCP_ACK);
      else
        assert_counts (fixture, 0, 0, 0);
    }
}

static void
test_unsupported (Fixture *fixture, gconstpointer data)
{
  static const guint8 options[4] = { 148, 4, 0, 0 };
  static const guint8 timestamp[20] = { 13 };
  static const guint8 datagram[16] = { 0x9c, 0x40, 0, 53, 0, 64 };
  const guint32 places[] = { LAB_GATEWAY, NETD_IP_METADATA, OUTSIDE };
  const KitPeer *self = &fixture->lab->guests[0].self;
  guint64 n = 0;

  for (guint i = 0; i < G_N_ELEMENTS (places); i++)
    {
      KitPeer to = via_gateway (fixture, places[i]);
      KitFrame frames[4];

      kit_ip (&frames[0], self, &to, 47, "tunnel", 6);
      kit_ip (&frames[1], self, &to, KIT_PROTOCOL_ICMP, timestamp, sizeof timestamp);
      kit_ip_with_options (&frames[2], self, &to, KIT_PROTOCOL_ICMP, options, sizeof options,
                           "\10\0\0\0\0\0\0\0", 8);
      kit_ip (&frames[3], self, &to, KIT_PROTOCOL_UDP, datagram, sizeof datagram);
      kit_set_fragment (&frames[3], 0x2000);
      for (guint j = 0; j < (places[i] == OUTSIDE ? 3 : 4); j++)
        {
          send_frame (fixture, 0, &frames[j]);
          assert_counts (fixture, 0, 0, 0);
          g_assert_cmpuint (count_of (fixture, NETD_COUNT_UNSUPPORTED), ==, ++n);
        }
    }
  send_udp (fixture, NETD_IP_METADATA, 80);
  assert_counts (fixture, 0, 0, 0);
  g_assert_cmpuint (count_of (fixture, NETD_COUNT_UNSUPPORTED), ==, n + 1);
}

/* Where it is enabled the host alias is the gateway's affair too, for whole packets of what is
 * carried. */
static void
test_host_alias (Fixture *fixture, gconstpointer data)
{
  const KitPeer *self = &fixture->lab->guests[0].self;
  KitPeer alias = via_gateway (fixture, LAB_ALIAS);
  KitFrame frames[2];
  KitFrame request;

  fixture->lab->plan.enable_host_alias = TRUE;
  kit_arp (&request, &KIT_BROADCAST_MAC, 1, self, &alias);
  send_frame (fixture, 0, &request);
  assert_counts (fixture, 1, 0, 0);
  kit_ip (&frames[0], self, &alias, 47, "tunnel", 6);
  kit_udp (&frames[1], self, &alias, 1, 9, "12345678", 8);
  kit_set_fragment (&frames[1], 0x2000);
  for (guint i = 0; i < 2; i++)
    {
      send_frame (fixture, 0, &frames[i]);
      assert_counts (fixture, 0, 0, 0);
      g_assert_cmpuint (count_of (fixture, NETD_COUNT_UNSUPPORTED), ==, i + 1);
    }
  g_assert_cmpuint (count_of (fixture, NETD_COUNT_FORBIDDEN), ==, 0);
}

static gboolean
has_frame (FrameLab *lab, gpointer data)
{
  Fixture *fixture = data;

  return fixture->got[0]->len > 0;
}

static void
test_echo (Fixture *fixture, gconstpointer data)
{
  const guint8 *reply;
  KitFrame frame;
  gsize length;

  kit_echo (&frame, &fixture->lab->guests[0].self, &fixture->lab->gateway, 5);
  send_frame (fixture, 0, &frame);
  frame_lab_await (fixture->lab, has_frame, fixture);
  reply = frame_of (fixture, 0, 0, &length);
  g_assert_cmphex (kit_get32 (reply + 14 + 12), ==, LAB_GATEWAY);
  g_assert_cmpuint (reply[14 + 20], ==, 0);
}

static gboolean
has_metadata (FrameLab *lab, gpointer data)
{
  return lab->guests[0].n_metadata > 0;
}

/* A guest's connection to the metadata service, with the first words of a request. */
static void
ask_metadata (Fixture *fixture)
{
  FrameLab *lab = fixture->lab;
  KitPeer to = via_gateway (fixture, NETD_IP_METADATA);
  KitTcp tcp
      = { .source_port = 40000, .destination_port = 80, .sequence = 8, .flags = NETD_TCP_ACK };
  const guint8 *answer;
  KitFrame frame;
  gsize length;

  send_tcp (fixture, NETD_IP_METADATA, 80, NETD_TCP_SYN);
  frame_lab_await (lab, has_frame, fixture);
  assert_segment (fixture, NETD_IP_METADATA, 80, SYN_ACK);
  answer = frame_of (fixture, 0, 0, &length);
  tcp.acknowledged = kit_get32 (answer + 14 + 20 + 4) + 1;
  kit_tcp (&frame, &lab->guests[0].self, &to, &tcp, NULL, 0);
  send_frame (fixture, 0, &frame);
  tcp.flags |= NETD_TCP_PSH;
  kit_tcp (&frame, &lab->guests[0].self, &to, &tcp, "GET /", 5);
  send_frame (fixture, 0, &frame);
  frame_lab_await (lab, has_metadata, NULL);
}

/* The connection is made, and leads to the service of this guest and of no other. */
static void
test_metadata (Fixture *fixture, gconstpointer data)
{
  send_tcp (fixture, NETD_IP_METADATA, 8080, NETD_TCP_SYN);
  assert_segment (fixture, NETD_IP_METADATA, 8080, NETD_TCP_RST | NETD_TCP_ACK);
  g_assert_cmpuint (count_of (fixture, NETD_COUNT_NO_RECEIVER), ==, 1);
  ask_metadata (fixture);
  g_assert_cmpuint (fixture->lab->guests[1].n_metadata, ==, 0);
  g_assert_cmpuint (fixture->lab->guests[2].n_metadata, ==, 0);
}

/* More connections than a guest may have: those above are refused, and the guest is told. */
static void
test_flow_limit (Fixture *fixture, gconstpointer data)
{
  FrameLab *lab = fixture->lab;
  NetdEngine *engine = netd_gateway_get_engine (netd_port_get_gateway (lab->guests[0].port));
  KitPeer to = via_gateway (fixture, LAB_GATEWAY);
  guint refused = 0;

  for (guint i = 0; i < NETD_FLOWS_PER_PORT + 20; i++)
    {
      KitTcp tcp
          = { .source_port = (guint16) (1000 + i), .destination_port = 53, .flags = NETD_TCP_SYN };
      KitFrame frame;

      kit_tcp (&frame, &lab->guests[0].self, &to, &tcp, NULL, 0);
      frame_lab_inject (lab, 0, frame.data, frame.length);
    }
  netd_network_batch_done (lab->network, lab->guests[0].port);
  g_assert_cmpuint (netd_engine_get_flows (engine), <=, NETD_FLOWS_PER_PORT);
  g_assert_cmpuint (count_of (fixture, NETD_COUNT_FLOW_LIMIT), >=, 20);
  frame_lab_turn (lab, 10);
  for (guint i = 0; i < fixture->got[0]->len; i++)
    {
      gsize length;

      refused += (frame_of (fixture, 0, i, &length)[14 + 20 + 13] & NETD_TCP_RST) != 0;
    }
  g_assert_cmpuint (refused, >=, 20);
}

/* Who comes late still finds room, and all together never more than there is. */
static void
test_flows_of_all (void)
{
  const guint most = NETD_FLOWS_PER_NETWORK;
  guint all = 0;

  g_assert_true (netd_flows_have_room (most, 0, 0, 1));
  g_assert_true (netd_flows_have_room (most, most / 2 - 1, 500, 100));
  g_assert_false (netd_flows_have_room (most, most / 2, 500, 100));
  for (guint i = 0; i < 100; i++)
    {
      guint own = 0;

      while (netd_flows_have_room (most, all, own, 100) && own < NETD_FLOWS_PER_PORT)
        {
          own++;
          all++;
        }
      g_assert_cmpuint (own, >=, most / 2 / 100);
    }
  g_assert_cmpuint (all, <=, most);
  g_assert_false (netd_flows_have_room (most, most, 0, 100));
}

/* --- Capture --- */

static void
test_capture (Fixture *fixture, gconstpointer data)
{
  FrameLab *lab = fixture->lab;
  g_autofree char *directory = g_dir_make_tmp ("vmm-netd-network-XXXXXX", NULL);
  g_autofree char *path = g_build_filename (directory, "file.pcap", NULL);
  g_autoptr (GError) error = NULL;
  g_autofree char *contents = NULL;
  NetdCapture *capture;
  KitFrame frame;
  GStatBuf info;
  gsize length;

  capture = netd_capture_new (g_open (path, O_RDWR | O_CREAT | O_CLOEXEC, 0600), 350, &error);
  g_assert_no_error (error);
  netd_network_set_capture (lab->network, capture);
  g_assert_true (netd_network_get_capture (lab->network) == capture);
  /* The request, and the gateway's answer; one guest's frame to another, once. */
  kit_arp (&frame, &KIT_BROADCAST_MAC, 1, &lab->guests[0].self, &lab->gateway);
  send_frame (fixture, 0, &frame);
  kit_udp (&frame, &lab->guests[0].self, &lab->guests[1].self, 1, 2, "hello", 5);
  send_frame (fixture, 0, &frame);
  g_assert_true (g_file_get_contents (path, &contents, &length, NULL));
  g_assert_cmpmem (contents + 24 + 16 + 12, 2, "\x08\x06", 2);
  g_assert_cmpmem (contents + length - frame.length, frame.length, frame.data, frame.length);
  g_assert_cmpint (g_stat (path, &info), ==, 0);
  g_assert_cmpint (info.st_size, ==, 24 + 3 * 16 + 42 * 2 + frame.length);
  /* It ends by itself. */
  for (guint i = 0; i < 10; i++)
    send_frame (fixture, 0, &frame);
  g_assert_null (netd_network_get_capture (lab->network));
  g_assert_cmpint (g_stat (path, &info), ==, 0);
  g_assert_cmpint (info.st_size, <=, 350);
  g_unlink (path);
  g_rmdir (directory);
}

/* --- Large segments --- */

#define ANSWER_LENGTH 5600

static void
answer_metadata (FrameLab *lab, guint guest, int fd, gpointer user_data)
{
  guint8 answer[ANSWER_LENGTH] = { 0 };

  g_assert_cmpuint (guest, ==, 0);
  g_assert_cmpint (write (fd, answer, sizeof answer), ==, sizeof answer);
  close (fd);
}

static gboolean
has_answer (FrameLab *lab, gpointer data)
{
  Fixture *fixture = data;
  gsize total = 0;

  for (guint i = 0; i < fixture->got[0]->len; i++)
    {
      NetdPacket packet;
      gsize length = 0;
      const guint8 *frame = frame_of (fixture, 0, i, &length);

      netd_packet_parse (&packet, frame, length);
      total += packet.payload_length;
    }
  return total >= ANSWER_LENGTH;
}

static guint32
largest_record (const char *path)
{
  g_autofree char *contents = NULL;
  guint32 largest = 0;
  gsize length;

  g_assert_true (g_file_get_contents (path, &contents, &length, NULL));
  for (gsize at = 24; at < length;)
    {
      guint32 captured;

      memcpy (&captured, contents + at + 8, sizeof captured);
      largest = MAX (largest, captured);
      at += 16 + captured;
    }
  return largest;
}

/* Whatever size a guest announces: what it gets is in few large segments inside of netd, where the
 * capture is, and of its own size outside, which the lab looks at. */
static void
test_large_segments (Fixture *fixture, gconstpointer data)
{
  g_autofree char *directory = g_dir_make_tmp ("vmm-netd-network-XXXXXX", NULL);
  g_autofree char *path = g_build_filename (directory, "file.pcap", NULL);
  g_autoptr (GError) error = NULL;
  NetdCapture *capture;

  capture = netd_capture_new (g_open (path, O_RDWR | O_CREAT | O_CLOEXEC, 0600), 1000000, &error);
  g_assert_no_error (error);
  netd_network_set_capture (fixture->lab->network, capture);
  fixture->lab->metadata_func = answer_metadata;
  ask_metadata (fixture);
  frame_lab_await (fixture->lab, has_answer, fixture);
  netd_network_set_capture (fixture->lab->network, NULL);
  g_assert_cmpuint (largest_record (path), >, 14 + 1500);
  g_unlink (path);
  g_rmdir (directory);
}

int
main (int argc, char *argv[])
{
  static const struct
  {
    const char *path;
    void (*func) (Fixture *fixture, gconstpointer data);
  } cases[] = {
    { "/netd/network/attach-again", test_attach_again },
    { "/netd/network/bad-leases", test_bad_leases },
    { "/netd/network/displace", test_displace },
    { "/netd/network/detach-while-busy", test_detach_while_busy },
    { "/netd/network/unicast", test_unicast },
    { "/netd/network/broadcast", test_broadcast },
    { "/netd/network/nothing-is-learnt", test_nothing_is_learnt },
    { "/netd/network/arp", test_arp },
    { "/netd/network/dhcp", test_dhcp },
    { "/netd/network/ports-of-gateway", test_ports_of_gateway },
    { "/netd/network/forbidden-places", test_forbidden_places },
    { "/netd/network/unsupported", test_unsupported },
    { "/netd/network/host-alias", test_host_alias },
    { "/netd/network/echo", test_echo },
    { "/netd/network/metadata", test_metadata },
    { "/netd/network/flow-limit", test_flow_limit },
    { "/netd/network/capture", test_capture },
    { "/netd/network/large-segments", test_large_segments },
  };

  g_test_init (&argc, &argv, NULL);
  for (guint i = 0; i < G_N_ELEMENTS (cases); i++)
    g_test_add (cases[i].path, Fixture, NULL, set_up, cases[i].func, tear_down);
  g_test_add_func ("/netd/network/flows-of-all", test_flows_of_all);
  return g_test_run ();
}

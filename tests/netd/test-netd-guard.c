/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The guard: one row per frame that passes and per way to forge one. Each row changes a good frame
 * in one place, so that no other check can be the reason of its refusal. */
#include "netd-guard.h"

#include <string.h>

#define LEASE_IP NETD_IP (192, 168, 127, 2)
#define OTHER_IP NETD_IP (192, 168, 127, 3)
#define GATEWAY_IP NETD_IP (192, 168, 127, 1)
#define OUTSIDE_IP NETD_IP (93, 184, 216, 34)
#define EVERYONE G_MAXUINT32
#define PASS NETD_N_COUNTS
#define DHCP_LENGTH 248 /* in whole fragments */

static const NetdMac lease_mac = { { 0x02, 0xde, 192, 168, 127, 2 } };
static const NetdMac other_mac = { { 0x02, 0xde, 192, 168, 127, 3 } };
static const NetdMac gateway_mac = { { 0x02, 0xde, 192, 168, 127, 1 } };

/* The frames that rows begin with. */
typedef enum
{
  UDP,
  DHCP,         /* 0.0.0.0 to everyone */
  DHCP_RENEWAL, /* the lease to the gateway */
  ARP_REQUEST,
  ARP_REPLY,
  ARP_PROBE,
  IPV6,
} Base;

typedef struct
{
  const char *name;
  Base base;
  gsize at; /* change this byte... */
  guint8 value;
  NetdCount expected;
} Row;

/* Places in a frame. */
#define ETHERNET_DESTINATION 0
#define ETHERNET_SOURCE 6
#define ETHERTYPE 12
#define ARP_HARDWARE 15
#define ARP_OPERATION 21
#define ARP_SENDER_MAC 22
#define ARP_SENDER_IP 28
#define IP_VERSION 14
#define IP_LENGTH_LOW 17
#define IP_FRAGMENT 20
#define IP_FRAGMENT_LOW 21
#define IP_PROTOCOL 23
#define IP_SOURCE 26
#define IP_DESTINATION 30
#define UDP_SOURCE_LOW 35
#define UDP_DESTINATION_LOW 37
#define MESSAGE 42
#define HARDWARE_ADDRESS (MESSAGE + 28)
#define NO_CHANGE G_MAXSIZE

/* clang-format off */
static const Row rows[] = {
  { "datagram", UDP, NO_CHANGE, 0, PASS },
  { "datagram to anywhere", UDP, IP_DESTINATION, 8, PASS },
  { "broadcast datagram", UDP, ETHERNET_DESTINATION, 0xff, PASS },
  { "other protocol", UDP, IP_PROTOCOL, 47, PASS },
  { "first fragment", UDP, IP_FRAGMENT, 0x20, PASS },
  { "later fragment", UDP, IP_FRAGMENT_LOW, 2, PASS },
  { "first DHCP request", DHCP, NO_CHANGE, 0, PASS },
  { "DHCP renewal", DHCP_RENEWAL, NO_CHANGE, 0, PASS },
  { "DHCP request with another client id", DHCP, MESSAGE + 240, 61, PASS },
  { "ARP request", ARP_REQUEST, NO_CHANGE, 0, PASS },
  { "ARP reply", ARP_REPLY, NO_CHANGE, 0, PASS },
  { "ARP probe", ARP_PROBE, NO_CHANGE, 0, PASS },

  { "MAC of another guest", UDP, ETHERNET_SOURCE + 5, 3, NETD_COUNT_SPOOFED_MAC },
  { "MAC of the gateway", UDP, ETHERNET_SOURCE + 5, 1, NETD_COUNT_SPOOFED_MAC },
  { "multicast MAC", UDP, ETHERNET_SOURCE, 0x03, NETD_COUNT_SPOOFED_MAC },
  { "MAC of another network", UDP, ETHERNET_SOURCE + 1, 0xbc, NETD_COUNT_SPOOFED_MAC },
  { "ARP with another MAC", ARP_REQUEST, ETHERNET_SOURCE + 5, 3, NETD_COUNT_SPOOFED_MAC },
  { "DHCP with another MAC", DHCP, ETHERNET_SOURCE + 5, 3, NETD_COUNT_SPOOFED_MAC },
  { "IPv6 with another MAC", IPV6, ETHERNET_SOURCE + 5, 3, NETD_COUNT_SPOOFED_MAC },

  { "IP of another guest", UDP, IP_SOURCE + 3, 3, NETD_COUNT_SPOOFED_IP },
  { "IP of the gateway", UDP, IP_SOURCE + 3, 1, NETD_COUNT_SPOOFED_IP },
  { "IP of another network", UDP, IP_SOURCE, 10, NETD_COUNT_SPOOFED_IP },
  { "broadcast IP", UDP, IP_SOURCE + 3, 255, NETD_COUNT_SPOOFED_IP },
  { "multicast IP", UDP, IP_SOURCE, 224, NETD_COUNT_SPOOFED_IP },
  { "loopback IP", UDP, IP_SOURCE, 127, NETD_COUNT_SPOOFED_IP },
  { "no IP, to another port", DHCP, UDP_DESTINATION_LOW, 53, NETD_COUNT_SPOOFED_IP },
  { "no IP, from another port", DHCP, UDP_SOURCE_LOW, 69, NETD_COUNT_SPOOFED_IP },
  { "no IP, to another address", DHCP, IP_DESTINATION, 10, NETD_COUNT_SPOOFED_IP },
  { "no IP, to another guest's card", DHCP, ETHERNET_DESTINATION + 5, 3, NETD_COUNT_SPOOFED_IP },
  { "no IP, another protocol", DHCP, IP_PROTOCOL, 47, NETD_COUNT_SPOOFED_IP },
  { "no IP, a fragment", DHCP, IP_FRAGMENT, 0x20, NETD_COUNT_SPOOFED_IP },
  { "renewal with another IP", DHCP_RENEWAL, IP_SOURCE + 3, 3, NETD_COUNT_SPOOFED_IP },

  { "ARP sender MAC", ARP_REQUEST, ARP_SENDER_MAC + 5, 3, NETD_COUNT_SPOOFED_ARP },
  { "ARP sender IP", ARP_REQUEST, ARP_SENDER_IP + 3, 3, NETD_COUNT_SPOOFED_ARP },
  { "ARP request as the gateway", ARP_REQUEST, ARP_SENDER_IP + 3, 1, NETD_COUNT_SPOOFED_ARP },
  { "ARP reply as the gateway", ARP_REPLY, ARP_SENDER_IP + 3, 1, NETD_COUNT_SPOOFED_ARP },
  { "ARP reply with another MAC", ARP_REPLY, ARP_SENDER_MAC, 0x06, NETD_COUNT_SPOOFED_ARP },
  { "ARP probe with another MAC", ARP_PROBE, ARP_SENDER_MAC + 5, 3, NETD_COUNT_SPOOFED_ARP },
  { "ARP reply for no address", ARP_PROBE, ARP_OPERATION, 2, NETD_COUNT_SPOOFED_ARP },
  { "reverse ARP", ARP_REQUEST, ARP_OPERATION, 3, NETD_COUNT_UNSUPPORTED },
  { "ARP of other hardware", ARP_REQUEST, ARP_HARDWARE, 6, NETD_COUNT_MALFORMED },

  { "DHCP for another guest", DHCP, HARDWARE_ADDRESS + 5, 3, NETD_COUNT_SPOOFED_DHCP },
  { "renewal for another guest", DHCP_RENEWAL, HARDWARE_ADDRESS + 5, 3, NETD_COUNT_SPOOFED_DHCP },
  { "DHCP for other hardware", DHCP, MESSAGE + 1, 6, NETD_COUNT_SPOOFED_DHCP },
  { "DHCP with a short address", DHCP, MESSAGE + 2, 5, NETD_COUNT_SPOOFED_DHCP },
  { "DHCP reply to the server's port", DHCP, MESSAGE, 2, NETD_COUNT_SPOOFED_DHCP },
  { "DHCP server", UDP, UDP_SOURCE_LOW, 67, NETD_COUNT_SPOOFED_DHCP },
  { "DHCP server at another port", UDP, UDP_DESTINATION_LOW, 68, NETD_COUNT_SPOOFED_DHCP },
  { "DHCP relay", DHCP_RENEWAL, UDP_SOURCE_LOW, 67, NETD_COUNT_SPOOFED_DHCP },
  { "DHCP for a multicast address", DHCP_RENEWAL, HARDWARE_ADDRESS, 3, NETD_COUNT_SPOOFED_DHCP },
  { "DHCP in fragments", DHCP_RENEWAL, IP_FRAGMENT, 0x20, NETD_COUNT_MALFORMED },
  { "not a DHCP message", UDP, UDP_DESTINATION_LOW, 67, NETD_COUNT_MALFORMED },

  { "IPv6", IPV6, NO_CHANGE, 0, NETD_COUNT_UNSUPPORTED },
  { "VLAN", UDP, ETHERTYPE, 0x81, NETD_COUNT_UNSUPPORTED },
  { "wrong version", UDP, IP_VERSION, 0x55, NETD_COUNT_MALFORMED },
  { "longer than the frame", UDP, IP_LENGTH_LOW, 255, NETD_COUNT_MALFORMED },
};
/* clang-format on */

static NetdPlan
make_plan (void)
{
  NetdPlan plan = {
    .network = NETD_IP (192, 168, 127, 0),
    .netmask = 0xffffff00,
    .gateway = GATEWAY_IP,
    .broadcast = NETD_IP (192, 168, 127, 255),
    .host_alias = NETD_IP (192, 168, 127, 254),
    .gateway_mac = gateway_mac,
    .mtu = 1500,
  };

  return plan;
}

static gsize
make_udp (guint8 *frame, gsize size, guint32 source, guint32 destination, gboolean is_dhcp)
{
  NetdUdpAddress address = {
    .source_mac = lease_mac,
    .destination_mac = gateway_mac,
    .source = source,
    .destination = destination,
    .source_port = is_dhcp ? 68 : 99, /* rows change the low byte alone */
    .destination_port = is_dhcp ? 67 : 99,
  };
  guint8 message[DHCP_LENGTH] = { 1, 1, 6 };

  memcpy (message + 28, lease_mac.octets, 6);
  return netd_packet_build_udp (frame, size, &address, message, is_dhcp ? sizeof message : 16);
}

static gsize
make_base (Base base, guint8 *frame, gsize size)
{
  gsize length;

  switch (base)
    {
    case DHCP:
      return make_udp (frame, size, 0, EVERYONE, TRUE);
    case DHCP_RENEWAL:
      return make_udp (frame, size, LEASE_IP, GATEWAY_IP, TRUE);
    case ARP_REQUEST:
      return netd_packet_build_arp (frame, size, 1, &lease_mac, LEASE_IP, NULL, GATEWAY_IP);
    case ARP_REPLY:
      return netd_packet_build_arp (frame, size, 2, &lease_mac, LEASE_IP, &other_mac, OTHER_IP);
    case ARP_PROBE:
      return netd_packet_build_arp (frame, size, 1, &lease_mac, 0, NULL, LEASE_IP);
    case IPV6:
      length = make_udp (frame, size, LEASE_IP, OUTSIDE_IP, FALSE);
      frame[ETHERTYPE] = 0x86;
      frame[ETHERTYPE + 1] = 0xdd;
      return length;
    case UDP:
    default:
      return make_udp (frame, size, LEASE_IP, OUTSIDE_IP, FALSE);
    }
}

static void
test_rows (void)
{
  NetdPlan plan = make_plan ();

  for (guint i = 0; i < G_N_ELEMENTS (rows); i++)
    {
      guint8 frame[512];
      gsize length = make_base (rows[i].base, frame, sizeof frame);
      NetdPacket packet;

      g_test_message ("%s", rows[i].name);
      if (rows[i].at != NO_CHANGE)
        frame[rows[i].at] = rows[i].value;
      netd_packet_parse (&packet, frame, length);
      g_assert_cmpint (netd_guard_check (&plan, &lease_mac, LEASE_IP, &packet), ==,
                       rows[i].expected);
    }
}

static NetdCount
check (guint8 *frame, gsize length)
{
  NetdPlan plan = make_plan ();
  NetdPacket packet;

  netd_packet_parse (&packet, frame, length);
  return netd_guard_check (&plan, &lease_mac, LEASE_IP, &packet);
}

/* What takes more than one change. */
static void
test_combined (void)
{
  guint8 frame[512];
  gsize length;

  /* A later fragment has no ports, but it has a source. */
  length = make_base (UDP, frame, sizeof frame);
  frame[IP_FRAGMENT_LOW] = 2;
  frame[IP_SOURCE + 3] = 3;
  g_assert_cmpint (check (frame, length), ==, NETD_COUNT_SPOOFED_IP);

  /* ... and none at all is no better. */
  memset (frame + IP_SOURCE, 0, 4);
  g_assert_cmpint (check (frame, length), ==, NETD_COUNT_SPOOFED_IP);

  /* The first request may go to the gateway's address as well. */
  length = make_udp (frame, sizeof frame, 0, GATEWAY_IP, TRUE);
  g_assert_cmpint (check (frame, length), ==, PASS);
  length = make_udp (frame, sizeof frame, 0, OTHER_IP, TRUE);
  g_assert_cmpint (check (frame, length), ==, NETD_COUNT_SPOOFED_IP);

  /* A gratuitous announcement of the gateway's address, consistent in itself. */
  length = netd_packet_build_arp (frame, sizeof frame, 2, &lease_mac, GATEWAY_IP, NULL, GATEWAY_IP);
  g_assert_cmpint (check (frame, length), ==, NETD_COUNT_SPOOFED_ARP);
  length = netd_packet_build_arp (frame, sizeof frame, 1, &other_mac, OTHER_IP, NULL, GATEWAY_IP);
  g_assert_cmpint (check (frame, length), ==, NETD_COUNT_SPOOFED_MAC);

  /* Too short to say who sent it. */
  g_assert_cmpint (check (frame, 13), ==, NETD_COUNT_MALFORMED);
  g_assert_cmpint (check (frame, 0), ==, NETD_COUNT_MALFORMED);
}

/* Nothing that says it comes from elsewhere passes, whatever else is in it. */
static void
test_random (void)
{
  NetdPlan plan = make_plan ();
  g_autoptr (GRand) rand = g_rand_new_with_seed (127);
  guint n_passed = 0;

  for (guint round = 0; round < 200000; round++)
    {
      guint8 frame[512];
      gsize length = make_base ((Base) g_rand_int_range (rand, 0, IPV6 + 1), frame, sizeof frame);
      guint n_changes = (guint) g_rand_int_range (rand, 0, 4);
      NetdPacket packet;

      for (guint i = 0; i < n_changes; i++)
        frame[g_rand_int_range (rand, 0, 80)] = (guint8) g_rand_int (rand);
      netd_packet_parse (&packet, frame, length);
      if (netd_guard_check (&plan, &lease_mac, LEASE_IP, &packet) != PASS)
        continue;
      n_passed++;
      g_assert_cmpmem (frame + ETHERNET_SOURCE, 6, lease_mac.octets, 6);
      if (packet.kind == NETD_PACKET_ARP)
        g_assert_true (packet.arp_sender_ip == LEASE_IP || packet.arp_sender_ip == 0);
      else
        g_assert_true (packet.ip_source == LEASE_IP
                       || (packet.ip_source == 0 && packet.destination_port == 67));
      if (packet.kind == NETD_PACKET_IPV4 && packet.protocol == 17 && packet.destination_port == 67)
        g_assert_cmpmem (packet.payload + 28, 6, lease_mac.octets, 6);
    }
  g_assert_cmpuint (n_passed, >, 10000);
}

int
main (int argc, char **argv)
{
  g_test_init (&argc, &argv, NULL);
  g_test_add_func ("/netd/guard/rows", test_rows);
  g_test_add_func ("/netd/guard/combined", test_combined);
  g_test_add_func ("/netd/guard/random", test_random);
  return g_test_run ();
}

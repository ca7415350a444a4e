/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Frames that claim to come from somebody else, or go where no guest may: 100,000 of them, in turn
 * from each guest, of every kind below. None may reach another guest, open another guest's metadata
 * service or become a packet to the host's loopback or link-local addresses, and each is counted
 * for what it is.
 */
#include <arpa/inet.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "frame-lab.h"
#include "private-net.h"

#define FRAMES 100000
#define VIA_STREAM_EVERY                                                                           \
  64 /* the others go past it, which is faster: refusals slow a stream down */

#define ETHERTYPE_VLAN 0x8100
#define ETHERTYPE_QINQ 0x88a8
#define ETHERTYPE_IPV6 0x86dd
#define MORE_FRAGMENTS 0x2000
#define COUNTED(kind) (1u << (NETD_COUNT_##kind))

typedef struct
{
  FrameLab *lab;
  KitPeer self;
  KitPeer victim;
  KitPeer gateway;
  KitPeer metadata; /* by way of the gateway */
  KitPeer outside;  /* the same */
  KitPeer everybody;
} Forger;

typedef struct
{
  const char *name;
  void (*forge) (Forger *forger, KitFrame *frame);
  guint counts; /* which of them it must be counted under */
} Forgery;

static guint32
any (guint32 limit)
{
  return (guint32) g_test_rand_int_range (0, (gint32) limit);
}

static const KitPeer *
pick (const KitPeer *a, const KitPeer *b, const KitPeer *c)
{
  const KitPeer *peers[] = { a, b, c };

  return peers[any (G_N_ELEMENTS (peers))];
}

/* What a guest has reason to send, apart from what is forged about it. */
static void
send_something (const KitPeer *from, const KitPeer *to, KitFrame *frame)
{
  KitTcp tcp = { .source_port = (guint16) (1024 + any (60000)),
                 .destination_port = (guint16) (any (2) == 0 ? 80 : 1 + any (65534)),
                 .sequence = any (G_MAXINT32),
                 .flags = any (4) == 0 ? NETD_TCP_ACK : NETD_TCP_SYN };

  /* What looks like DHCP is counted as that. */
  if (tcp.destination_port == 67 || tcp.destination_port == 68)
    tcp.destination_port = 69;
  switch (any (3))
    {
    case 0:
      kit_udp (frame, from, to, tcp.source_port, tcp.destination_port, "forged", 6);
      break;
    case 1:
      kit_tcp (frame, from, to, &tcp, NULL, 0);
      break;
    default:
      kit_echo (frame, from, to, (guint16) any (65536));
      break;
    }
}

static void
send_from_mac (Forger *forger, KitFrame *frame, NetdMac mac)
{
  KitPeer from = { mac, forger->self.ip };

  send_something (&from, pick (&forger->victim, &forger->gateway, &forger->outside), frame);
}

static void
send_from_ip (Forger *forger, KitFrame *frame, guint32 ip)
{
  KitPeer from = { forger->self.mac, ip };

  send_something (&from, pick (&forger->victim, &forger->gateway, &forger->outside), frame);
}

static void
send_to_ip (Forger *forger, KitFrame *frame, guint32 ip)
{
  KitPeer to = { forger->gateway.mac, ip };

  send_something (&forger->self, &to, frame);
}

static NetdMac
random_mac (void)
{
  return KIT_MAC (0x02, (guint8) any (0xf4), (guint8) any (256), (guint8) any (256),
                  (guint8) any (256), (guint8) any (256));
}

/* --- Ethernet --- */

static void
mac_of_other_guest (Forger *forger, KitFrame *frame)
{
  send_from_mac (forger, frame, forger->victim.mac);
}

static void
mac_of_gateway (Forger *forger, KitFrame *frame)
{
  send_from_mac (forger, frame, forger->gateway.mac);
}

static void
mac_random (Forger *forger, KitFrame *frame)
{
  send_from_mac (forger, frame, random_mac ());
}

static void
mac_of_group (Forger *forger, KitFrame *frame)
{
  NetdMac mac = any (2) == 0 ? KIT_BROADCAST_MAC : random_mac ();

  mac.octets[0] |= 1;
  send_from_mac (forger, frame, mac);
}

static void
mac_of_other_guest_with_its_address (Forger *forger, KitFrame *frame)
{
  send_something (&forger->victim, pick (&forger->gateway, &forger->outside, &forger->metadata),
                  frame);
}

/* A tag in front of a whole packet with nothing else wrong, and other Ethertypes that nobody
 * carries. */
static void
ethertype_foreign (Forger *forger, KitFrame *frame)
{
  static const guint16 types[] = { ETHERTYPE_VLAN, ETHERTYPE_QINQ, ETHERTYPE_IPV6, 0x8847, 0x88cc };
  KitFrame inner;
  guint8 tag[4] = { 0, 1 };
  guint16 type = types[any (G_N_ELEMENTS (types))];

  send_from_ip (forger, &inner, forger->victim.ip);
  memcpy (tag + 2, inner.data + 12, 2);
  kit_ethernet (frame, any (2) == 0 ? &forger->victim.mac : &forger->everybody.mac,
                &forger->self.mac, type);
  kit_append (frame, tag, sizeof tag);
  kit_append (frame, inner.data + NETD_ETHERNET_HEADER, inner.length - NETD_ETHERNET_HEADER);
}

static void
to_unknown_station (Forger *forger, KitFrame *frame)
{
  KitPeer to = { random_mac (), forger->victim.ip };

  if (any (2) == 0)
    to.mac = KIT_MAC (1, 0, 0x5e, 0, 0, 1);
  send_something (&forger->self, &to, frame);
}

/* --- IPv4 sources --- */

static void
ip_of_other_guest (Forger *forger, KitFrame *frame)
{
  send_from_ip (forger, frame, forger->victim.ip);
}

static void
ip_of_gateway (Forger *forger, KitFrame *frame)
{
  send_from_ip (forger, frame, forger->gateway.ip);
}

static void
ip_random (Forger *forger, KitFrame *frame)
{
  send_from_ip (forger, frame, NETD_IP (1 + any (220), any (76), any (256), any (256)));
}

static void
ip_of_nobody (Forger *forger, KitFrame *frame)
{
  static const guint32 addresses[] = {
    0,
    0xffffffff,
    LAB_BROADCAST,
    LAB_NETWORK,
    LAB_ALIAS,
    NETD_IP (127, 0, 0, 1),
    NETD_IP_METADATA,
    NETD_IP (224, 0, 0, 1),
  };

  send_from_ip (forger, frame, addresses[any (G_N_ELEMENTS (addresses))]);
}

static void
metadata_as_other_guest (Forger *forger, KitFrame *frame)
{
  KitPeer from = { forger->self.mac, forger->victim.ip };
  KitTcp tcp = { .source_port = (guint16) (1024 + any (60000)),
                 .destination_port = 80,
                 .sequence = any (1000),
                 .flags = NETD_TCP_SYN };

  kit_tcp (frame, &from, &forger->metadata, &tcp, NULL, 0);
}

static void
redirect_as_gateway (Forger *forger, KitFrame *frame)
{
  KitPeer from = { forger->self.mac, forger->gateway.ip };
  guint8 redirect[36] = { 5, 1 };

  kit_set32 (redirect + 4, forger->self.ip);
  kit_ip (frame, &from, &forger->victim, KIT_PROTOCOL_ICMP, redirect, sizeof redirect);
}

/* A first fragment, with the ports, or a later one without. */
static void
send_fragment (const KitPeer *from, const KitPeer *to, KitFrame *frame)
{
  kit_udp (frame, from, to, (guint16) (1024 + any (60000)), (guint16) (1000 + any (60000)),
           "of eight", 8);
  kit_set_fragment (frame, (guint16) (any (2) == 0 ? MORE_FRAGMENTS : 1 + any (100)));
}

static void
fragment_as_other_guest (Forger *forger, KitFrame *frame)
{
  KitPeer from = { forger->self.mac, forger->victim.ip };

  send_fragment (&from, pick (&forger->gateway, &forger->outside, &forger->metadata), frame);
}

/* --- ARP --- */

static void
claim (Forger *forger, KitFrame *frame, guint32 ip)
{
  KitPeer sender = { forger->self.mac, ip };
  gboolean to_all = any (2) == 0;

  kit_arp (frame, to_all ? &forger->everybody.mac : &forger->victim.mac, (guint16) (1 + any (2)),
           &sender, &forger->victim);
}

static void
arp_claims_gateway (Forger *forger, KitFrame *frame)
{
  claim (forger, frame, forger->gateway.ip);
}

static void
arp_claims_other_guest (Forger *forger, KitFrame *frame)
{
  claim (forger, frame, forger->victim.ip);
}

static void
arp_claims_metadata (Forger *forger, KitFrame *frame)
{
  claim (forger, frame, NETD_IP_METADATA);
}

static void
arp_gratuitous (Forger *forger, KitFrame *frame)
{
  KitPeer sender = { forger->self.mac, any (2) == 0 ? forger->victim.ip : forger->gateway.ip };
  KitPeer target = { KIT_MAC (0, 0, 0, 0, 0, 0), sender.ip };

  kit_arp (frame, &forger->everybody.mac, (guint16) (1 + any (2)), &sender, &target);
}

/* The Ethernet source is right, the address inside is another's. */
static void
arp_for_other_station (Forger *forger, KitFrame *frame)
{
  KitPeer sender = { any (2) == 0 ? forger->gateway.mac : forger->victim.mac, forger->self.ip };

  kit_arp (frame, &forger->everybody.mac, (guint16) (1 + any (2)), &sender, &forger->victim);
  memcpy (frame->data + 6, forger->self.mac.octets, 6);
}

/* --- DHCP --- */

static void
dhcp_for_other_guest (Forger *forger, KitFrame *frame)
{
  kit_dhcp (frame, &forger->self.mac, &forger->victim.mac,
            any (2) == 0 ? KIT_DHCP_DISCOVER : KIT_DHCP_REQUEST, forger->victim.ip);
}

static void
dhcp_server (Forger *forger, KitFrame *frame)
{
  kit_dhcp_server (frame, &forger->self, &forger->victim.mac,
                   any (2) == 0 ? KIT_DHCP_OFFER : KIT_DHCP_ACK, forger->self.ip);
  if (any (2) == 0)
    memcpy (frame->data, forger->victim.mac.octets, 6);
}

/* The ports are in the first fragment, the rest follows. */
static void
dhcp_server_in_fragments (Forger *forger, KitFrame *frame)
{
  guint8 *ip = frame->data + NETD_ETHERNET_HEADER;

  dhcp_server (forger, frame);
  frame->length -= (frame->length - NETD_ETHERNET_HEADER - 20) % 8;
  kit_set16 (ip + 2, (guint16) (frame->length - NETD_ETHERNET_HEADER));
  kit_set_fragment (frame, MORE_FRAGMENTS);
}

/* --- Destinations --- */

static void
to_loopback (Forger *forger, KitFrame *frame)
{
  send_to_ip (forger, frame, NETD_IP (127, any (2) * any (256), any (2), 1 + any (254)));
}

static void
to_link_local (Forger *forger, KitFrame *frame)
{
  guint32 host = any (65536);

  send_to_ip (forger, frame, NETD_IP (169, 254, 0, 0) + (host == 0xa9fe ? 1 : host));
}

static void
to_own_prefix_by_gateway (Forger *forger, KitFrame *frame)
{
  send_to_ip (forger, frame, any (2) == 0 ? forger->victim.ip : LAB_GATEWAY + 5 + any (248));
}

static void
to_alias (Forger *forger, KitFrame *frame)
{
  send_to_ip (forger, frame, LAB_ALIAS);
}

static void
to_reserved (Forger *forger, KitFrame *frame)
{
  static const guint32 addresses[] = {
    0,
    1,
    NETD_IP (224, 0, 0, 251),
    NETD_IP (239, 255, 255, 250),
    NETD_IP (240, 0, 0, 1),
    NETD_IP (255, 255, 255, 254),
  };

  send_to_ip (forger, frame, addresses[any (G_N_ELEMENTS (addresses))]);
}

static void
fragment_to_loopback (Forger *forger, KitFrame *frame)
{
  KitPeer to = { forger->gateway.mac, NETD_IP (127, 0, 0, 1) };

  send_fragment (&forger->self, &to, frame);
}

/* --- Headers that promise something --- */

/* Loose and strict source routes that lead on to the host's own address. */
static void
source_route (Forger *forger, KitFrame *frame)
{
  guint8 options[8] = { (guint8) (any (2) == 0 ? 131 : 137), 7, 4, 127, 0, 0, 1, 0 };
  guint8 datagram[16] = { 0x10, 0, 0, 80, 0, 16 };

  kit_ip_with_options (frame, &forger->self, &forger->outside, KIT_PROTOCOL_UDP, options,
                       sizeof options, datagram, sizeof datagram);
}

static void
protocol_foreign (Forger *forger, KitFrame *frame)
{
  static const guint8 protocols[] = { 2, 4, 41, 47, 50, 89, 132 };

  kit_ip (frame, &forger->self, &forger->outside, protocols[any (G_N_ELEMENTS (protocols))],
          "what it was", 11);
}

static void
length_lies (Forger *forger, KitFrame *frame)
{
  guint8 *ip = frame->data + NETD_ETHERNET_HEADER;

  send_from_ip (forger, frame, forger->self.ip);
  switch (any (4))
    {
    case 0: /* more than there is */
      kit_set16 (ip + 2, (guint16) (frame->length - NETD_ETHERNET_HEADER + 1 + any (60000)));
      break;
    case 1: /* less than its header */
      kit_set16 (ip + 2, (guint16) any (20));
      break;
    case 2: /* a header of less than 20 bytes */
      ip[0] = (guint8) (0x40 | any (5));
      break;
    default:
      frame->length = NETD_ETHERNET_HEADER + any (20);
      break;
    }
}

static const Forgery forgeries[] = {
  { "MAC of another guest", mac_of_other_guest, COUNTED (SPOOFED_MAC) },
  { "MAC of the gateway", mac_of_gateway, COUNTED (SPOOFED_MAC) },
  { "random MAC", mac_random, COUNTED (SPOOFED_MAC) },
  { "MAC of a group", mac_of_group, COUNTED (SPOOFED_MAC) },
  { "MAC and IP of another guest", mac_of_other_guest_with_its_address, COUNTED (SPOOFED_MAC) },
  { "foreign Ethertype", ethertype_foreign, COUNTED (UNSUPPORTED) },
  { "unknown station", to_unknown_station, COUNTED (NO_RECEIVER) },
  { "IP of another guest", ip_of_other_guest, COUNTED (SPOOFED_IP) },
  { "IP of the gateway", ip_of_gateway, COUNTED (SPOOFED_IP) },
  { "random IP", ip_random, COUNTED (SPOOFED_IP) },
  { "IP of nobody", ip_of_nobody, COUNTED (SPOOFED_IP) },
  { "metadata as another guest", metadata_as_other_guest, COUNTED (SPOOFED_IP) },
  { "redirect as the gateway", redirect_as_gateway, COUNTED (SPOOFED_IP) },
  { "fragment as another guest", fragment_as_other_guest, COUNTED (SPOOFED_IP) },
  { "ARP claims the gateway", arp_claims_gateway, COUNTED (SPOOFED_ARP) },
  { "ARP claims another guest", arp_claims_other_guest, COUNTED (SPOOFED_ARP) },
  { "ARP claims 169.254.169.254", arp_claims_metadata, COUNTED (SPOOFED_ARP) },
  { "gratuitous ARP", arp_gratuitous, COUNTED (SPOOFED_ARP) },
  { "ARP for another station", arp_for_other_station, COUNTED (SPOOFED_ARP) },
  { "DHCP for another guest", dhcp_for_other_guest, COUNTED (SPOOFED_DHCP) },
  { "DHCP server", dhcp_server, COUNTED (SPOOFED_DHCP) },
  { "DHCP server in fragments", dhcp_server_in_fragments, COUNTED (SPOOFED_DHCP) },
  { "to loopback", to_loopback, COUNTED (FORBIDDEN) },
  { "to link-local", to_link_local, COUNTED (FORBIDDEN) },
  { "to the own prefix by the gateway", to_own_prefix_by_gateway, COUNTED (FORBIDDEN) },
  { "to the host alias, which is off", to_alias, COUNTED (FORBIDDEN) },
  { "to reserved addresses", to_reserved, COUNTED (FORBIDDEN) },
  { "fragment to loopback", fragment_to_loopback, COUNTED (FORBIDDEN) },
  { "source route", source_route, COUNTED (UNSUPPORTED) | COUNTED (FORBIDDEN) },
  { "foreign protocol", protocol_foreign, COUNTED (UNSUPPORTED) },
  { "lengths that lie", length_lies, COUNTED (MALFORMED) },
};

static void
prepare (Forger *forger, FrameLab *lab, guint attacker)
{
  guint victim = (attacker + 1 + any (LAB_GUESTS - 1)) % LAB_GUESTS;

  forger->lab = lab;
  forger->self = lab->guests[attacker].self;
  forger->victim = lab->guests[victim].self;
  forger->gateway = lab->gateway;
  forger->metadata = (KitPeer){ lab->gateway.mac, NETD_IP_METADATA };
  forger->outside = (KitPeer){ lab->gateway.mac, NETD_IP (93, 184, 216, 34) };
  forger->everybody = (KitPeer){ KIT_BROADCAST_MAC, 0xffffffff };
}

static guint64
sum_counts (FrameLab *lab, guint guest, guint counts)
{
  guint64 sum = 0;

  for (guint i = 0; i < NETD_N_COUNTS; i++)
    sum += (counts & 1u << i) != 0 ? frame_lab_count (lab, guest, (NetdCount) i) : 0;
  return sum;
}

typedef struct
{
  guint guest;
  guint counts;
  guint64 wanted;
} Awaited;

static gboolean
is_counted (FrameLab *lab, gpointer data)
{
  const Awaited *awaited = data;

  return sum_counts (lab, awaited->guest, awaited->counts) >= awaited->wanted;
}

/* Who is answered at all is told by a RST for what is forbidden; nobody else hears of anything. */
static void
check_silence (FrameLab *lab, guint attacker, const Forgery *forgery)
{
  frame_lab_turn (lab, 2);
  for (guint i = 0; i < LAB_GUESTS; i++)
    {
      if (i != attacker || (forgery->counts & COUNTED (FORBIDDEN)) == 0)
        g_assert_cmpuint (lab->guests[i].n_received, ==, 0);
      g_assert_cmpuint (lab->guests[i].n_metadata, ==, 0);
      lab->guests[i].n_received = 0;
    }
}

static void
run_forgery (FrameLab *lab, guint attacker, const Forgery *forgery, guint n)
{
  Awaited awaited = { attacker, forgery->counts, sum_counts (lab, attacker, forgery->counts) + n };
  Forger forger;
  KitFrame frame;

  for (guint i = 0; i < n; i++)
    {
      prepare (&forger, lab, attacker);
      forgery->forge (&forger, &frame);
      if (i % VIA_STREAM_EVERY == 0)
        frame_lab_send (lab, attacker, &frame);
      else
        frame_lab_inject (lab, attacker, frame.data, frame.length);
    }
  netd_network_batch_done (lab->network, lab->guests[attacker].port);
  frame_lab_await (lab, is_counted, &awaited);
  g_assert_cmpuint (sum_counts (lab, attacker, forgery->counts), ==, awaited.wanted);
  check_silence (lab, attacker, forgery);
}

static void
test_forged (gconstpointer data)
{
  const Forgery *forgery = data;
  guint n = FRAMES / G_N_ELEMENTS (forgeries) / LAB_GUESTS + 1;
  int witness = private_net_watch_forbidden ();
  g_autoptr (FrameLab) lab = frame_lab_new (NETD_MTU_MIN);

  for (guint i = 0; i < LAB_GUESTS; i++)
    run_forgery (lab, i, forgery, n);
  g_assert_cmpuint (private_net_count_forbidden (witness), ==, 0);
  close (witness);
}

static gboolean
is_received (FrameLab *lab, gpointer data)
{
  return lab->guests[GPOINTER_TO_UINT (data)].n_received > 0;
}

static gboolean
is_metadata_open (FrameLab *lab, gpointer data)
{
  return lab->guests[GPOINTER_TO_UINT (data)].n_metadata > 0;
}

/* Three steps, as TCP has it. */
static void
open_metadata (FrameLab *lab, guint guest)
{
  const KitPeer metadata = { lab->gateway.mac, NETD_IP_METADATA };
  KitTcp tcp = { .source_port = 2000, .destination_port = 80, .flags = NETD_TCP_SYN };
  KitFrame frame;

  lab->guests[guest].n_received = 0;
  kit_tcp (&frame, &lab->guests[guest].self, &metadata, &tcp, NULL, 0);
  frame_lab_send (lab, guest, &frame);
  frame_lab_await (lab, is_received, GUINT_TO_POINTER (guest));
  tcp.flags = NETD_TCP_ACK;
  tcp.sequence = 1;
  tcp.acknowledged = lab->guests[guest].last_tcp_sequence + 1;
  kit_tcp (&frame, &lab->guests[guest].self, &metadata, &tcp, NULL, 0);
  frame_lab_send (lab, guest, &frame);
  frame_lab_await (lab, is_metadata_open, GUINT_TO_POINTER (guest));
}

static int
open_datagram_socket (const char *address, guint16 port)
{
  struct sockaddr_in name = { .sin_family = AF_INET, .sin_port = htons (port) };
  int fd = socket (AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

  name.sin_addr.s_addr = inet_addr (address);
  g_assert_cmpint (bind (fd, (struct sockaddr *) &name, sizeof name), ==, 0);
  return fd;
}

/* The witness sees what it is there for. */
static void
test_witness (void)
{
  static const char *const addresses[] = { "127.0.0.1", "127.9.9.9", "169.254.169.254" };
  int witness = private_net_watch_forbidden ();
  int fd = open_datagram_socket (PRIVATE_NET_HOST, 0);

  for (guint i = 0; i < G_N_ELEMENTS (addresses); i++)
    {
      struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons (1 + i) };

      to.sin_addr.s_addr = inet_addr (addresses[i]);
      g_assert_cmpint (sendto (fd, "x", 1, 0, (struct sockaddr *) &to, sizeof to), ==, 1);
      g_assert_cmpuint (private_net_count_forbidden (witness), >, 0);
    }
  close (fd);
  close (witness);
}

/* The same frames with nothing forged do get through: or the rest would prove nothing. */
static void
test_honest (void)
{
  NetdMac everybody = KIT_BROADCAST_MAC;
  int outside = open_datagram_socket ("0.0.0.0", 7777);
  int witness = private_net_watch_forbidden ();
  g_autoptr (FrameLab) lab = frame_lab_new (NETD_MTU_MIN);
  Forger forger;
  KitFrame frame;
  char text[16];

  prepare (&forger, lab, 0);
  kit_udp (&frame, &forger.self, &lab->guests[1].self, 1000, 2000, "hello", 5);
  frame_lab_send (lab, 0, &frame);
  frame_lab_await (lab, is_received, GUINT_TO_POINTER (1));
  g_assert_cmpuint (lab->guests[2].n_received, ==, 0);
  kit_arp (&frame, &everybody, 1, &forger.self, &lab->guests[1].self);
  frame_lab_send (lab, 0, &frame);
  frame_lab_await (lab, is_received, GUINT_TO_POINTER (2));
  open_metadata (lab, 0);
  kit_udp (&frame, &forger.self, &forger.outside, 1000, 7777, "hello", 5);
  frame_lab_send (lab, 0, &frame);
  frame_lab_turn (lab, 4);
  g_assert_cmpint (recv (outside, text, sizeof text, 0), ==, 5);
  g_assert_cmpuint (lab->guests[1].n_metadata + lab->guests[2].n_metadata, ==, 0);
  g_assert_cmpuint (private_net_count_forbidden (witness), ==, 0);
  close (outside);
  close (witness);
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
  g_test_add_func ("/netd/forged/witness", test_witness);
  g_test_add_func ("/netd/forged/honest", test_honest);
  for (guint i = 0; i < G_N_ELEMENTS (forgeries); i++)
    {
      g_autofree char *path = g_strdup_printf ("/netd/forged/%s", forgeries[i].name);

      g_test_add_data_func (path, &forgeries[i], test_forged);
    }
  return g_test_run ();
}

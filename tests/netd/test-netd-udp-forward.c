/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Datagrams between peers on the host and a guest: who is who, for how long, and how many. */

#include "netd-udp-forward.h"

#include "netd-resolvers.h"
#include "service-kit.h"

#define GATEWAY NETD_IP (10, 1, 2, 1)
#define GUEST NETD_IP (10, 1, 2, 3)
#define GUEST_PORT 5353

typedef struct
{
  NetdLoop *loop;
  NetdPlan plan;
  NetdUdpForwards *forwards;
  /* the last frame for the guest */
  guint8 payload[NETD_PACKET_MAX];
  gsize length;
  guint16 source_port;
  guint16 destination_port;
  guint n_frames;
} Fixture;

static const NetdMac guest_mac = { { 2, 0, 0, 0, 0, 3 } };

static void
frame_for_guest (const guint8 *frame, gsize length, gpointer user_data)
{
  Fixture *fixture = user_data;
  NetdPacket packet;

  g_assert_cmpint (netd_packet_parse (&packet, frame, length), ==, NETD_PACKET_IPV4);
  g_assert_true (netd_mac_equal (&packet.destination, &guest_mac));
  g_assert_true (netd_mac_equal (&packet.source, &fixture->plan.gateway_mac));
  g_assert_cmphex (packet.ip_source, ==, GATEWAY);
  g_assert_cmphex (packet.ip_destination, ==, GUEST);
  memcpy (fixture->payload, packet.payload, packet.payload_length);
  fixture->length = packet.payload_length;
  fixture->source_port = packet.source_port;
  fixture->destination_port = packet.destination_port;
  fixture->n_frames++;
}

/* What the guest sends from @source to the gateway's @destination. */
static gboolean
guest_says (Fixture *fixture, guint16 source, guint16 destination, const void *data, gsize length)
{
  const NetdUdpAddress address = {
    .source_mac = guest_mac,
    .destination_mac = fixture->plan.gateway_mac,
    .source = GUEST,
    .destination = GATEWAY,
    .source_port = source,
    .destination_port = destination,
  };
  g_autofree guint8 *frame = g_malloc (NETD_PACKET_MAX);
  gsize n = netd_packet_build_udp (frame, NETD_PACKET_MAX, &address, data, length);
  NetdPacket packet;

  netd_packet_parse (&packet, frame, n);
  return netd_udp_forwards_receive (fixture->forwards, &packet);
}

static void
set_up (Fixture *fixture, gconstpointer data)
{
  NetdUdpForwardsConfig config = { 0 };

  fixture->loop = netd_loop_new ();
  fixture->plan.gateway = GATEWAY;
  fixture->plan.gateway_mac = (NetdMac){ { 2, 0, 0, 0, 0, 1 } };
  fixture->plan.mtu = 1500;
  config.plan = &fixture->plan;
  config.loop = fixture->loop;
  config.mac = guest_mac;
  config.ip = GUEST;
  config.send = frame_for_guest;
  config.user_data = fixture;
  fixture->forwards = netd_udp_forwards_new (&config);
}

static void
tear_down (Fixture *fixture, gconstpointer data)
{
  g_clear_pointer (&fixture->forwards, netd_udp_forwards_free);
  netd_loop_free (fixture->loop);
}

/* A socket of a peer, connected to @address: it hears only what comes from there. */
static int
make_peer (const char *address, guint16 port)
{
  NetdSocketAddress name;
  int fd;

  g_assert_true (netd_socket_address_parse (&name, address, port));
  fd = socket (name.any.sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  g_assert_cmpint (connect (fd, &name.any, netd_socket_address_length (&name)), ==, 0);
  return fd;
}

static void
expect_frame (Fixture *fixture, int peer, const char *text)
{
  guint before = fixture->n_frames;

  kit_say (peer, text);
  KIT_TURN_UNTIL (fixture->loop, fixture->n_frames == before + 1);
  g_assert_cmpmem (fixture->payload, fixture->length, text, strlen (text));
}

static void
expect_datagram (int peer, const char *text)
{
  char buffer[256];
  gssize n = recv (peer, buffer, sizeof buffer, MSG_DONTWAIT);

  g_assert_cmpint (n, >=, 0);
  g_assert_cmpmem (buffer, (gsize) n, text, strlen (text));
}

static void
test_both_ways (Fixture *fixture, gconstpointer data)
{
  guint16 port;
  int fd = kit_listen (SOCK_DGRAM, "127.0.0.1", &port);
  int one = make_peer ("127.0.0.1", port);
  int two = make_peer ("127.0.0.1", port);
  guint16 port_of_one;
  guint16 port_of_two;

  netd_udp_forwards_add (fixture->forwards, fd, GUEST_PORT);
  expect_frame (fixture, one, "from one");
  port_of_one = fixture->source_port;
  g_assert_cmpuint (fixture->destination_port, ==, GUEST_PORT);
  g_assert_cmpuint (port_of_one, >=, NETD_UDP_PORT_FIRST);
  expect_frame (fixture, two, "from two");
  port_of_two = fixture->source_port;
  g_assert_cmpuint (port_of_one, !=, port_of_two);
  /* It stays the same. */
  expect_frame (fixture, one, "");
  g_assert_cmpuint (fixture->source_port, ==, port_of_one);
  g_assert_cmpuint (netd_udp_forwards_get_n_peers (fixture->forwards), ==, 2);

  g_assert_true (guest_says (fixture, GUEST_PORT, port_of_two, "to two", 6));
  g_assert_true (guest_says (fixture, GUEST_PORT, port_of_one, "to one", 6));
  g_assert_true (guest_says (fixture, GUEST_PORT, port_of_one, "", 0));
  expect_datagram (one, "to one");
  expect_datagram (one, "");
  expect_datagram (two, "to two");
  close (one);
  close (two);
  g_assert_cmpuint (kit_count_turns (fixture->loop), <=, KIT_QUIET_TURNS);
}

/* Answers come from where the peer wrote to, also when the socket listens everywhere. */
static void
check_any_address (Fixture *fixture, int family, const char *any, const char *address)
{
  NetdSocketAddress name;
  socklen_t length = sizeof name;
  int fd = socket (family, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  int peer;

  g_assert_true (netd_socket_address_parse (&name, any, 0));
  if (fd < 0 || bind (fd, &name.any, netd_socket_address_length (&name)) < 0)
    {
      g_test_skip ("no such addresses here");
      return;
    }
  g_assert_cmpint (getsockname (fd, &name.any, &length), ==, 0);
  netd_udp_forwards_add (fixture->forwards, fd, GUEST_PORT);
  peer = make_peer (address, netd_socket_address_get_port (&name));
  expect_frame (fixture, peer, "hello");
  g_assert_true (guest_says (fixture, GUEST_PORT, fixture->source_port, "and back", 8));
  expect_datagram (peer, "and back");
  close (peer);
}

static void
test_any_v4 (Fixture *fixture, gconstpointer data)
{
  check_any_address (fixture, AF_INET, "0.0.0.0", "127.0.0.77");
}

static void
test_any_v6 (Fixture *fixture, gconstpointer data)
{
  check_any_address (fixture, AF_INET6, "::", "::1");
}

static void
test_strangers (Fixture *fixture, gconstpointer data)
{
  guint16 port;
  int fd = kit_listen (SOCK_DGRAM, "127.0.0.1", &port);
  int peer = make_peer ("127.0.0.1", port);
  NetdPacket fragment = { .is_fragment = TRUE, .source_port = GUEST_PORT };

  netd_udp_forwards_add (fixture->forwards, fd, GUEST_PORT);
  expect_frame (fixture, peer, "hello");
  /* From another service of the guest, to a port of nobody's, half a datagram. */
  g_assert_false (guest_says (fixture, GUEST_PORT + 1, fixture->source_port, "x", 1));
  g_assert_false (guest_says (fixture, GUEST_PORT, fixture->source_port + 1, "x", 1));
  g_assert_false (guest_says (fixture, GUEST_PORT, 0, "x", 1));
  fragment.destination_port = fixture->source_port;
  g_assert_false (netd_udp_forwards_receive (fixture->forwards, &fragment));
  fragment.is_fragment = FALSE;
  g_assert_false (netd_udp_forwards_receive (fixture->forwards, &fragment));
  g_assert_cmpint (kit_peek (peer), ==, -EAGAIN);
  close (peer);
}

static void
test_large (Fixture *fixture, gconstpointer data)
{
  enum
  {
    LARGEST = 65535 - 28
  };
  g_autofree guint8 *large = g_malloc (LARGEST);
  g_autofree guint8 *received = g_malloc (LARGEST);
  guint16 port;
  int fd = kit_listen (SOCK_DGRAM, "127.0.0.1", &port);
  int peer = make_peer ("127.0.0.1", port);

  for (gsize i = 0; i < LARGEST; i++)
    large[i] = (guint8) (i * 31 / 7);
  netd_udp_forwards_add (fixture->forwards, fd, GUEST_PORT);
  g_assert_cmpint (send (peer, large, LARGEST, 0), ==, LARGEST);
  KIT_TURN_UNTIL (fixture->loop, fixture->n_frames == 1);
  g_assert_cmpmem (fixture->payload, fixture->length, large, LARGEST);
  g_assert_true (guest_says (fixture, GUEST_PORT, fixture->source_port, large, LARGEST));
  g_assert_cmpint (recv (peer, received, LARGEST, MSG_DONTWAIT), ==, LARGEST);
  g_assert_cmpmem (received, LARGEST, large, LARGEST);
  close (peer);
}

/* The same peer is somebody else at each forward. */
static void
test_two_forwards (Fixture *fixture, gconstpointer data)
{
  guint16 ports[2];
  int fds[2] = { kit_listen (SOCK_DGRAM, "127.0.0.1", &ports[0]),
                 kit_listen (SOCK_DGRAM, "127.0.0.1", &ports[1]) };
  int peer = socket (AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  guint16 gateway_ports[2];
  NetdUdpForward *forwards[2];
  NetdUdpForward *location;

  for (guint i = 0; i < 2; i++)
    {
      NetdSocketAddress name;

      forwards[i] = netd_udp_forwards_add (fixture->forwards, fds[i], (guint16) (100 + i));
      g_assert_true (netd_socket_address_parse (&name, "127.0.0.1", ports[i]));
      g_assert_cmpint (sendto (peer, "x", 1, 0, &name.any, sizeof name.v4), ==, 1);
      KIT_TURN_UNTIL (fixture->loop, fixture->n_frames == i + 1);
      g_assert_cmpuint (fixture->destination_port, ==, 100 + i);
      gateway_ports[i] = fixture->source_port;
    }
  g_assert_cmpuint (gateway_ports[0], !=, gateway_ports[1]);
  g_assert_false (guest_says (fixture, 101, gateway_ports[0], "x", 1));
  g_assert_true (guest_says (fixture, 101, gateway_ports[1], "y", 1));
  expect_datagram (peer, "y");

  /* One goes with its peers and lets its port go; the other stays. */
  netd_udp_forward_free (forwards[0]);
  g_assert_cmpuint (netd_udp_forwards_get_n_peers (fixture->forwards), ==, 1);
  g_assert_false (guest_says (fixture, 100, gateway_ports[0], "x", 1));
  g_assert_true (guest_says (fixture, 101, gateway_ports[1], "z", 1));
  expect_datagram (peer, "z");
  close (peer);

  location = forwards[1];
  netd_udp_forward_set_location (forwards[1], &location);
  g_clear_pointer (&fixture->forwards, netd_udp_forwards_free);
  g_assert_null (location);
}

static void
test_forgotten (Fixture *fixture, gconstpointer data)
{
  guint16 port;
  int fd = kit_listen (SOCK_DGRAM, "127.0.0.1", &port);
  int one = make_peer ("127.0.0.1", port);
  int two = make_peer ("127.0.0.1", port);
  guint16 port_of_one;
  guint16 port_of_two;

  netd_udp_forwards_add (fixture->forwards, fd, GUEST_PORT);
  expect_frame (fixture, one, "x");
  port_of_one = fixture->source_port;
  expect_frame (fixture, two, "x");
  port_of_two = fixture->source_port;
  /* Either direction counts as life. */
  for (guint i = 0; i < 3; i++)
    {
      test_clock_advance (NETD_UDP_IDLE_MS / 2 + 1000);
      kit_settle (fixture->loop);
      g_assert_true (guest_says (fixture, GUEST_PORT, port_of_two, "x", 1));
    }
  g_assert_cmpuint (netd_udp_forwards_get_n_peers (fixture->forwards), ==, 1);
  g_assert_false (guest_says (fixture, GUEST_PORT, port_of_one, "x", 1));

  test_clock_advance (NETD_UDP_IDLE_MS + 1000);
  KIT_TURN_UNTIL (fixture->loop, netd_udp_forwards_get_n_peers (fixture->forwards) == 0);
  g_assert_false (guest_says (fixture, GUEST_PORT, port_of_two, "x", 1));
  /* With nobody left there is nothing to wait for; who comes again is new. */
  test_clock_advance (10 * NETD_UDP_IDLE_MS);
  g_assert_cmpuint (kit_count_turns (fixture->loop), <=, KIT_QUIET_TURNS);
  expect_frame (fixture, one, "again");
  g_assert_cmpuint (fixture->source_port, !=, port_of_one);
  g_assert_cmpuint (fixture->source_port, !=, port_of_two);
  close (one);
  close (two);
}

static void
test_limit (Fixture *fixture, gconstpointer data)
{
  guint16 port;
  int fd = kit_listen (SOCK_DGRAM, "127.0.0.1", &port);
  int first = make_peer ("127.0.0.1", port);
  int second = make_peer ("127.0.0.1", port);
  int others[NETD_UDP_PEERS_MAX - 1];
  guint16 port_of_first;
  guint16 port_of_second;

  netd_udp_forwards_add (fixture->forwards, fd, GUEST_PORT);
  expect_frame (fixture, first, "x");
  port_of_first = fixture->source_port;
  expect_frame (fixture, second, "x");
  port_of_second = fixture->source_port;
  g_assert_true (guest_says (fixture, GUEST_PORT, port_of_first, "x", 1));
  /* All of them at once, so that no two have one port. */
  for (guint i = 0; i < G_N_ELEMENTS (others); i++)
    {
      others[i] = make_peer ("127.0.0.1", port);
      expect_frame (fixture, others[i], "x");
    }
  /* The one that was heard of longest ago made room. */
  g_assert_cmpuint (netd_udp_forwards_get_n_peers (fixture->forwards), ==, NETD_UDP_PEERS_MAX);
  g_assert_true (guest_says (fixture, GUEST_PORT, port_of_first, "x", 1));
  g_assert_false (guest_says (fixture, GUEST_PORT, port_of_second, "x", 1));
  for (guint i = 0; i < G_N_ELEMENTS (others); i++)
    close (others[i]);
  close (first);
  close (second);
}

/* Ports of the gateway are used in turn and come round without meeting one that is in use. */
static void
test_ports_come_round (Fixture *fixture, gconstpointer data)
{
  NetdUdpForward *passing;
  guint16 ports[2];
  int fds[2] = { kit_listen (SOCK_DGRAM, "127.0.0.1", &ports[0]),
                 kit_listen (SOCK_DGRAM, "127.0.0.1", &ports[1]) };
  int lasting = make_peer ("127.0.0.1", ports[0]);
  int peer = make_peer ("127.0.0.1", ports[1]);
  guint16 lasting_port;
  guint16 last = 0;
  guint n_wraps = 0;

  netd_udp_forwards_add (fixture->forwards, fds[0], GUEST_PORT);
  expect_frame (fixture, lasting, "x");
  lasting_port = fixture->source_port;
  for (guint i = 0; i < 41000; i++)
    {
      passing = netd_udp_forwards_add (fixture->forwards, dup (fds[1]), GUEST_PORT);
      expect_frame (fixture, peer, "y");
      g_assert_cmpuint (fixture->source_port, !=, lasting_port);
      g_assert_cmpuint (fixture->source_port, >=, NETD_UDP_PORT_FIRST);
      n_wraps += fixture->source_port < last ? 1 : 0;
      last = fixture->source_port;
      netd_udp_forward_free (passing);
    }
  g_assert_cmpuint (n_wraps, ==, 1);
  close (fds[1]);
  close (lasting);
  close (peer);
}

int
main (int argc, char **argv)
{
  static const struct
  {
    const char *name;
    void (*test) (Fixture *fixture, gconstpointer data);
  } tests[] = {
    { "/netd/udp-forward/both-ways", test_both_ways },
    { "/netd/udp-forward/any-v4", test_any_v4 },
    { "/netd/udp-forward/any-v6", test_any_v6 },
    { "/netd/udp-forward/strangers", test_strangers },
    { "/netd/udp-forward/large", test_large },
    { "/netd/udp-forward/two-forwards", test_two_forwards },
    { "/netd/udp-forward/forgotten", test_forgotten },
    { "/netd/udp-forward/limit", test_limit },
    { "/netd/udp-forward/ports-come-round", test_ports_come_round },
  };

  g_test_init (&argc, &argv, NULL);
  for (guint i = 0; i < G_N_ELEMENTS (tests); i++)
    g_test_add (tests[i].name, Fixture, NULL, set_up, tests[i].test, tear_down);
  return g_test_run ();
}

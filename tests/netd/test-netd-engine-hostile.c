/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The NAT engine against guests that want too much, or break it: limits, and what libslirp would
 * not survive. */

#include <sys/resource.h>

#include "engine-kit.h"

#define LIMIT 128
#define FLOOD 2000

static guint
count_descriptors (void)
{
  g_autoptr (GDir) dir = g_dir_open ("/proc/self/fd", 0, NULL);
  guint n = 0;

  while (g_dir_read_name (dir) != NULL)
    n++;
  return n;
}

/* A listener that takes no more connections: who connects waits. */
static int
open_black_hole (guint16 *port, int fillers[2])
{
  struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = g_htonl (PEER_IP) };
  int listener = kit_listen (SOCK_STREAM, PEER, port);

  g_assert_cmpint (listen (listener, 0), ==, 0);
  address.sin_port = g_htons (*port);
  for (guint i = 0; i < 2; i++)
    {
      fillers[i] = socket (AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
      (void) !connect (fillers[i], (struct sockaddr *) &address, sizeof address);
    }
  return listener;
}

static void
test_connections (void)
{
  Guest *guest = guest_new (LIMIT, FALSE);
  guint before, full = 0;
  int fd, hole, fillers[2];
  Connection *connection;
  guint16 port;

  connection = guest_open (guest, 40000, &fd);
  hole = open_black_hole (&port, fillers);
  before = count_descriptors ();
  for (guint i = 0; i < FLOOD; i++)
    {
      Connection *one = connection_new (guest, (guint16) (10000 + i), PEER_IP, port);

      full += connection_put (one, NETD_TCP_SYN, 0, NULL, 0) == NETD_ENGINE_FULL;
    }
  g_assert_cmpuint (netd_engine_get_flows (guest->engine), ==, LIMIT);
  g_assert_cmpuint (full, ==, FLOOD - (LIMIT - 1));
  g_assert_cmpuint (count_descriptors (), ==, before + LIMIT - 1);
  /* The same SYN again is not another flow, and what is open goes on. */
  g_assert_cmpint (connection_put (guest->connections->pdata[1], NETD_TCP_SYN, 0, NULL, 0), ==,
                   NETD_ENGINE_TAKEN);
  g_assert_cmpint (guest_send_udp (guest, 5000, PEER_IP, 9, "x", 1), ==, NETD_ENGINE_FULL);
  g_assert_cmpint (guest_ping (guest, PEER_IP, 1), ==, NETD_ENGINE_FULL);
  connection_send (connection, "on it goes", 10);
  kit_expect (guest->loop, fd, "on it goes");

  /* None of them lasts for ever. */
  guest_pass_time (guest, 80000);
  g_assert_cmpuint (netd_engine_get_flows (guest->engine), ==, 1);
  close (fillers[0]);
  close (fillers[1]);
  close (hole);
  close (fd);
  guest_free (guest);
}

static void
test_datagrams (void)
{
  Guest *guest = guest_new (LIMIT, FALSE);
  guint16 port;
  int fd = kit_listen (SOCK_DGRAM, PEER, &port);
  guint full = 0;

  for (guint i = 0; i < FLOOD; i++)
    full += guest_send_udp (guest, (guint16) (10000 + i), PEER_IP, port, "x", 1)
            == NETD_ENGINE_FULL;
  g_assert_cmpuint (full, ==, FLOOD - LIMIT);
  g_assert_cmpuint (netd_engine_get_flows (guest->engine), ==, LIMIT);
  g_assert_cmpint (guest_send_udp (guest, 10001, PEER_IP, port, "x", 1), ==, NETD_ENGINE_TAKEN);
  guest_pass_time (guest, 255000);
  g_assert_cmpuint (netd_engine_get_flows (guest->engine), ==, 0);
  close (fd);
  guest_free (guest);
}

static guint64
spent_for_datagrams (Guest *guest, guint16 from, guint16 to, guint n)
{
  guint64 before = guest->spent;

  for (guint i = 0; i < n; i++)
    g_assert_cmpint (guest_send_udp (guest, from, PEER_IP, to, "x", 1), ==, NETD_ENGINE_TAKEN);
  return guest->spent - before;
}

/* A stream of datagrams is reckoned when nothing has come back for long, and not when it has. */
static void
test_cost_of_datagrams (void)
{
  Guest *guest = guest_new (LIMIT, FALSE);
  struct sockaddr_in from;
  socklen_t length = sizeof from;
  guint16 port;
  int fd = kit_listen (SOCK_DGRAM, PEER, &port);
  guint64 free_of_all = 0;
  char byte;

  g_assert_cmpuint (spent_for_datagrams (guest, 1000, port, 64), ==, 0);
  g_assert_cmpuint (spent_for_datagrams (guest, 1000, port, 100), >=, 100);
  g_assert_cmpint (recvfrom (fd, &byte, 1, 0, (struct sockaddr *) &from, &length), ==, 1);
  g_assert_cmpint (sendto (fd, "y", 1, 0, (struct sockaddr *) &from, length), ==, 1);
  GUEST_RUN_UNTIL (guest, guest->n_datagrams == 1);
  g_assert_cmpuint (spent_for_datagrams (guest, 1000, port, 64), ==, 0);
  g_assert_cmpuint (spent_for_datagrams (guest, 1000, port, 100), >=, 100);

  /* Many ports are no way to many datagrams. */
  for (guint i = 0; i < LIMIT - 1; i++)
    free_of_all += spent_for_datagrams (guest, (guint16) (2000 + i), port, 64) == 0;
  g_assert_cmpuint (free_of_all, >=, 4);
  g_assert_cmpuint (free_of_all, <, 32);
  /* What is owed ends with its flow. */
  guest_pass_time (guest, 255000);
  g_assert_cmpuint (netd_engine_get_flows (guest->engine), ==, 0);
  g_assert_cmpuint (spent_for_datagrams (guest, 1000, port, 64), ==, 0);
  close (fd);
  guest_free (guest);
}

/* Connections are reckoned when they are opened; what belongs to one is not, unless it is of no
 * use. */
static void
test_cost_of_segments (void)
{
  Guest *guest = guest_new (LIMIT, FALSE);
  Connection *connection, *none;
  guint64 opening;
  int fd;

  connection = guest_open (guest, 40000, &fd);
  opening = guest->spent;
  g_assert_cmpuint (opening, >, 10);
  connection_send (connection, "some data", 9);
  kit_expect (guest->loop, fd, "some data");
  g_assert_cmpuint (guest->spent, ==, opening);
  g_assert_cmpint (send (fd, "an answer", 9, 0), ==, 9);
  GUEST_RUN_UNTIL (guest, connection->received->len == 9);
  g_assert_cmpuint (guest->spent, ==, opening);

  connection_put (connection, NETD_TCP_ACK, connection->sent - 9, "some data", 9);
  g_assert_cmpuint (guest->spent, >, opening);
  opening = guest->spent;
  none = connection_new (guest, 40001, PEER_IP, 9);
  connection_put (none, NETD_TCP_ACK, 1, "x", 1);
  g_assert_cmpuint (guest->spent, >, opening);
  close (fd);
  guest_free (guest);
}

/* Echo requests are a socket each: they may have a part of the flows only. */
static void
test_echoes (void)
{
  Guest *guest = guest_new (LIMIT, FALSE);
  int fd = socket (AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, IPPROTO_ICMP);
  guint full = 0;

  if (fd < 0)
    {
      g_test_skip ("this machine lets nobody ping");
      guest_free (guest);
      return;
    }
  close (fd);
  for (guint i = 0; i < LIMIT; i++)
    full += guest_ping (guest, PEER_IP, (guint16) i) == NETD_ENGINE_FULL;
  g_assert_cmpuint (full, ==, LIMIT - LIMIT / 4);
  g_assert_cmpuint (netd_engine_get_flows (guest->engine), ==, LIMIT / 4);
  GUEST_RUN_UNTIL (guest, guest->n_echoes == LIMIT / 4);
  g_assert_cmpuint (netd_engine_get_flows (guest->engine), ==, 0);
  guest_free (guest);
}

/* Connections to a service that are never finished have no socket, and count all the same. */
static void
test_half_open (void)
{
  Guest *guest = guest_new (LIMIT, FALSE);
  guint before = count_descriptors ();
  guint full = 0;

  for (guint i = 0; i < FLOOD; i++)
    {
      Connection *one = connection_new (guest, (guint16) (10000 + i), GATEWAY_IP, 53);

      full += connection_put (one, NETD_TCP_SYN, 0, NULL, 0) == NETD_ENGINE_FULL;
      g_bytes_unref (g_queue_is_empty (&guest->frames) ? g_bytes_new (NULL, 0)
                                                       : g_queue_pop_head (&guest->frames));
    }
  g_assert_cmpuint (full, ==, FLOOD - LIMIT);
  g_assert_cmpuint (netd_engine_get_flows (guest->engine), ==, LIMIT);
  g_assert_cmpuint (count_descriptors (), <=, before + NETD_N_SERVICES);

  /* One by one they are given up, by the guest or by libslirp. */
  for (guint i = 0; i < LIMIT / 2; i++)
    connection_put (guest->connections->pdata[i], NETD_TCP_RST, 1, NULL, 0);
  g_assert_cmpuint (netd_engine_get_flows (guest->engine), ==, LIMIT / 2);
  g_ptr_array_set_size (guest->connections, 0); /* who answers nothing */
  guest_pass_time (guest, 85000);
  g_assert_cmpuint (netd_engine_get_flows (guest->engine), ==, 0);
  g_assert_true (netd_engine_is_quiet (guest->engine));
  guest_free (guest);
}

/* Segments that leave a hole are kept by libslirp, each in a buffer of its own. */
static void
test_out_of_order (void)
{
  Guest *guest = guest_new (LIMIT, FALSE);
  g_autofree char *data = g_strnfill (FLOOD, 'o');
  Connection *connection;
  g_autoptr (GByteArray) got = g_byte_array_new ();
  int fd;

  connection = guest_open (guest, 40000, &fd);
  for (guint i = FLOOD - 1; i > 0; i--)
    connection_put (connection, NETD_TCP_ACK, connection->sent + i, data, 1);
  g_assert_cmpuint (guest->engine->n_ahead, ==, NETD_FLOW_AHEAD_MAX);

  /* A guest that sends again what is missing gets through, and the count begins again. */
  for (guint i = 0; i < FLOOD; i += 10)
    {
      char buffer[4096];
      gssize n;

      connection_send (connection, data + i, 10);
      netd_loop_turn (guest->loop, 0);
      guest_run (guest);
      while ((n = recv (fd, buffer, sizeof buffer, MSG_DONTWAIT)) > 0)
        g_byte_array_append (got, (guint8 *) buffer, (guint) n);
    }
  g_assert_cmpmem (got->data, got->len, data, FLOOD);
  g_assert_cmpuint (guest->engine->n_ahead, ==, 0);
  close (fd);
  guest_free (guest);
}

/* An urgent pointer is no pointer any more: the bytes arrive as they are, and only they. */
static void
test_urgent (void)
{
  Guest *guest = guest_new (LIMIT, FALSE);
  TestSegment segment = TEST_SEGMENT_INIT;
  Connection *connection;
  gsize length;
  int fd;

  connection = guest_open (guest, 40000, &fd);
  segment.source = GUEST_IP;
  segment.destination = PEER_IP;
  segment.source_port = connection->port;
  segment.destination_port = connection->peer_port;
  segment.sequence = connection->sent;
  segment.acknowledgement = connection->expected;
  segment.flags = NETD_TCP_ACK | 0x20;
  segment.payload = (const guint8 *) "urgent";
  segment.length = 6;
  for (guint pointer = 1; pointer < 65536; pointer *= 3)
    {
      guint8 *tcp = guest->frame + NETD_ETHERNET_HEADER + 20;

      length = test_segment_write (&segment, guest->frame);
      kit_set16 (tcp + 18, pointer);
      kit_set16 (tcp + 16, 0);
      kit_set16 (tcp + 16,
                   test_transport_checksum (guest->frame + NETD_ETHERNET_HEADER, 20, 26));
      guest_put (guest, length);
      segment.sequence += 6;
      kit_expect (guest->loop, fd, "urgent");
      g_assert_cmpint (kit_peek (fd), ==, -EAGAIN);
    }
  close (fd);
  guest_free (guest);
}

/* Its buffers are emptied by such a SYN, and it warns of it with every segment: that must not reach
 * the log, where G_DEBUG would end this test. */
static void
test_syn_again (void)
{
  Guest *guest = guest_new (LIMIT, FALSE);
  GLogLevelFlags fatal = g_log_set_always_fatal (G_LOG_LEVEL_ERROR | G_LOG_LEVEL_CRITICAL);
  g_autofree guint8 *data = g_malloc0 (60000);
  Connection *connection;
  int fd;

  connection = guest_open (guest, 40000, &fd);
  connection->is_silent = TRUE;
  for (guint i = 0; i < 50; i++)
    {
      (void) !send (fd, data, 60000, MSG_DONTWAIT | MSG_NOSIGNAL);
      netd_loop_turn (guest->loop, 1);
      connection_put (connection, NETD_TCP_SYN | NETD_TCP_ACK, connection->sent - 1, NULL, 0);
      connection->expected += 1000;
      connection_put (connection, NETD_TCP_ACK, connection->sent, NULL, 0);
      guest_run (guest);
    }
  g_log_set_always_fatal (fatal);
  close (fd);
  guest_free (guest);
}

static void
test_fragments (void)
{
  Guest *guest = guest_new (LIMIT, FALSE);

  for (guint i = 0; i < FLOOD; i++)
    {
      guint8 *ip = guest->frame + NETD_ETHERNET_HEADER;

      guest_send_udp (guest, 5000, NETD_IP (127, 0, 0, 1), 9, "12345678", 8);
      kit_set32 (ip + 16, PEER_IP);
      kit_set16 (ip + 4, i);
      kit_set16 (ip + 6, 0x2000 | (i % 3));
      kit_set16 (ip + 10, 0);
      kit_set16 (ip + 10, test_checksum (ip, 20, 0));
      g_assert_cmpint (guest_put (guest, NETD_ETHERNET_HEADER + 36), ==, NETD_ENGINE_TAKEN);
    }
  g_assert_cmpuint (netd_reassembly_get_pending (guest->engine->reassembly), ==,
                    NETD_REASSEMBLY_MAX);
  guest_pass_time (guest, NETD_REASSEMBLY_MS + 1000);
  g_assert_true (netd_engine_is_quiet (guest->engine));
  guest_free (guest);
}

static void
count_call_cb (int fd, int error_number, gpointer user_data)
{
  g_assert_cmpint (fd, ==, -1);
  g_assert_cmpint (error_number, ==, ENOBUFS);
  (*(guint *) user_data)++;
}

/* Whatever comes while there is none left, the process lives, and afterwards all goes on. */
static void
test_no_descriptors (void)
{
  Guest *guest = guest_new (LIMIT, FALSE);
  Connection *waiting = guest_connect (guest, 40000, GATEWAY_IP, 53);
  Connection *refused = NULL;
  struct rlimit limit, none;
  guint n_calls = 0;

  g_assert_cmpint (getrlimit (RLIMIT_NOFILE, &limit), ==, 0);
  none = limit;
  none.rlim_cur = 0;
  g_assert_cmpint (setrlimit (RLIMIT_NOFILE, &none), ==, 0);
  guest_run (guest);
  g_assert_cmpuint (guest->served[NETD_SERVICE_DNS]->len, ==, 0);
  refused = guest_connect (guest, 40001, PEER_IP, 80);
  guest_send_udp (guest, 5000, PEER_IP, 80, "x", 1);
  guest_ping (guest, PEER_IP, 1);
  netd_engine_dial (guest->engine, 22, 5000, count_call_cb, &n_calls);
  GUEST_RUN_UNTIL (guest, n_calls == 1);
  g_assert_false (refused->is_open);
  g_assert_cmpint (setrlimit (RLIMIT_NOFILE, &limit), ==, 0);

  g_assert_cmpuint (netd_engine_get_flows (guest->engine), ==, 1);
  connection_put (waiting, NETD_TCP_ACK, waiting->sent, NULL, 0);
  GUEST_RUN_UNTIL (guest, guest->served[NETD_SERVICE_DNS]->len == 1);
  guest_free (guest);
}

/* Frames that say what they like, on connections that exist and others. */
static void
test_noise (void)
{
  Guest *guest = guest_new (LIMIT, TRUE);
  GLogLevelFlags fatal = g_log_set_always_fatal (G_LOG_LEVEL_ERROR | G_LOG_LEVEL_CRITICAL);
  g_autoptr (GRand) rand = g_rand_new_with_seed (7);
  static const guint32 peers[] = { PEER_IP, GATEWAY_IP, NETD_IP_METADATA,
                                   NETD_IP (192, 168, 127, 254) };
  static const guint16 ports[] = { 53, 80, 67, 69, 9 };

  for (guint i = 0; i < 30000; i++)
    {
      TestSegment segment = TEST_SEGMENT_INIT;
      g_autofree guint8 *data = test_random_bytes (rand, 64);
      NetdPacket packet;
      gsize length;

      segment.source = GUEST_IP;
      segment.destination = peers[g_rand_int_range (rand, 0, G_N_ELEMENTS (peers))];
      segment.source_port = (guint16) g_rand_int_range (rand, 1, 5);
      segment.destination_port = ports[g_rand_int_range (rand, 0, G_N_ELEMENTS (ports))];
      segment.sequence = (guint32) g_rand_int_range (rand, 0, 100);
      segment.acknowledgement = g_rand_boolean (rand) ? g_rand_int (rand) : 64001;
      segment.window = (guint16) g_rand_int (rand);
      segment.flags = g_rand_boolean (rand) ? NETD_TCP_ACK : (guint8) g_rand_int (rand);
      segment.ttl = (guint8) g_rand_int (rand);
      segment.options = data;
      segment.options_length = (gsize) g_rand_int_range (rand, 0, 10) * 4;
      segment.payload = data;
      segment.length = (gsize) g_rand_int_range (rand, 0, 64);
      length = test_segment_write (&segment, guest->frame);
      if (g_rand_int_range (rand, 0, 10) == 0)
        guest->frame[NETD_ETHERNET_HEADER + 9] = g_rand_boolean (rand) ? IPPROTO_UDP : IPPROTO_ICMP;
      if (g_rand_int_range (rand, 0, 10) == 0)
        guest->frame[g_rand_int_range (rand, 14, (gint32) length)] ^= (guint8) g_rand_int (rand);
      if (netd_packet_parse (&packet, guest->frame, length) == NETD_PACKET_IPV4)
        netd_engine_input (guest->engine, &packet);
      if (i % 16 == 0)
        {
          netd_engine_flush (guest->engine);
          test_clock_advance (100);
          netd_loop_turn (guest->loop, 0);
          guest_run (guest);
        }
      g_assert_cmpuint (netd_engine_get_flows (guest->engine), <=, LIMIT);
    }
  netd_engine_flush (guest->engine);
  g_ptr_array_set_size (guest->connections, 0);
  guest_pass_time (guest, 90000);
  g_log_set_always_fatal (fatal);
  guest_free (guest);
}

static void
add_tests (void)
{
  g_test_add_func ("/netd/engine/hostile/connections", test_connections);
  g_test_add_func ("/netd/engine/hostile/datagrams", test_datagrams);
  g_test_add_func ("/netd/engine/hostile/cost/datagrams", test_cost_of_datagrams);
  g_test_add_func ("/netd/engine/hostile/cost/segments", test_cost_of_segments);
  g_test_add_func ("/netd/engine/hostile/echoes", test_echoes);
  g_test_add_func ("/netd/engine/hostile/half-open", test_half_open);
  g_test_add_func ("/netd/engine/hostile/out-of-order", test_out_of_order);
  g_test_add_func ("/netd/engine/hostile/urgent", test_urgent);
  g_test_add_func ("/netd/engine/hostile/syn-again", test_syn_again);
  g_test_add_func ("/netd/engine/hostile/fragments", test_fragments);
  g_test_add_func ("/netd/engine/hostile/no-descriptors", test_no_descriptors);
  g_test_add_func ("/netd/engine/hostile/noise", test_noise);
}

int
main (int argc, char *argv[])
{
  return guest_test_main (argc, argv, add_tests);
}

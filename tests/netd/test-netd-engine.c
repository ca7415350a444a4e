/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The NAT engine: what a guest opens to the outside, to the services and to the host's alias. */

#include <fcntl.h>
#include <sched.h>

#include "engine-kit.h"
#include "private-net.h"

#define LARGE (1024 * 1024)
#define LIMIT 64
#define BUFFER 131072 /* libslirp's, for one direction */

static void
host_send (Guest *guest, int fd, const guint8 *data, gsize length)
{
  for (gsize done = 0; done < length;)
    {
      gssize n = send (fd, data + done, length - done, MSG_DONTWAIT | MSG_NOSIGNAL);

      if (n > 0)
        done += (gsize) n;
      netd_loop_turn (guest->loop, n > 0 ? 0 : 10);
      guest_run (guest);
    }
}

static GByteArray *
host_receive (Guest *guest, int fd, GByteArray *into)
{
  guint8 buffer[16384];
  gssize n;

  while ((n = recv (fd, buffer, sizeof buffer, MSG_DONTWAIT)) > 0)
    g_byte_array_append (into, buffer, (guint) n);
  return into;
}

static void
guest_send_all (Connection *connection, int fd, const guint8 *data, gsize length)
{
  g_autoptr (GByteArray) got = g_byte_array_new ();

  for (gsize done = 0; done < length;)
    {
      gsize n = MIN (length - done, 20000);

      connection_send (connection, data + done, n);
      done += n;
      GUEST_RUN_UNTIL (connection->guest,
                       host_receive (connection->guest, fd, got) != NULL
                         && connection->sent - connection->acknowledged < 40000);
    }
  GUEST_RUN_UNTIL (connection->guest,
                   host_receive (connection->guest, fd, got)->len >= length);
  g_assert_cmpmem (got->data, got->len, data, length);
}

static void
expect_quiet (Guest *guest)
{
  guest_pass_time (guest, 12000);
  g_assert_cmpuint (netd_engine_get_flows (guest->engine), ==, 0);
  g_assert_true (netd_engine_is_quiet (guest->engine));
}

static void
test_tcp (void)
{
  Guest *guest = guest_new (LIMIT, FALSE);
  g_autoptr (GRand) rand = g_rand_new_with_seed (1);
  g_autofree guint8 *data = test_random_bytes (rand, LARGE);
  Connection *connection;
  int fd;

  g_assert_true (netd_engine_is_quiet (guest->engine));
  connection = guest_open (guest, 40000, &fd);
  g_assert_cmpuint (netd_engine_get_flows (guest->engine), ==, 1);
  g_assert_false (netd_engine_is_quiet (guest->engine));

  guest_send_all (connection, fd, data, LARGE);
  host_send (guest, fd, data, LARGE);
  GUEST_RUN_UNTIL (guest, connection->received->len >= LARGE);
  g_assert_cmpmem (connection->received->data, connection->received->len, data, LARGE);

  close (fd);
  GUEST_RUN_UNTIL (guest, connection->has_fin);
  connection_finish (connection);
  expect_quiet (guest);
  guest_free (guest);
}

/* Nothing is sent by itself on a connection that nobody uses, and looking after it is rare. */
static void
test_tcp_idle (void)
{
  Guest *guest = guest_new (LIMIT, FALSE);
  int fd;

  guest_open (guest, 40000, &fd);
  guest_pass_time (guest, 140000);
  g_assert_cmpuint (guest->frames.length, ==, 0);
  g_assert_cmpint (guest->engine->tick_at - netd_loop_now (guest->loop), >, 5000);
  g_assert_cmpuint (netd_engine_get_flows (guest->engine), ==, 1);
  close (fd);
  guest_free (guest);
}

static void
test_tcp_refused (void)
{
  Guest *guest = guest_new (LIMIT, FALSE);
  guint16 port;
  int listener = kit_listen (SOCK_STREAM, PEER, &port);
  Connection *connection;

  close (listener);
  connection = guest_connect (guest, 40000, PEER_IP, port);
  GUEST_RUN_UNTIL (guest, connection->has_reset);
  g_assert_cmpuint (netd_engine_get_flows (guest->engine), ==, 0);
  expect_quiet (guest);
  guest_free (guest);
}

static void
test_tcp_half_close (void)
{
  Guest *guest = guest_new (LIMIT, FALSE);
  Connection *connection;
  int fd;

  connection = guest_open (guest, 40000, &fd);
  connection_send (connection, "request", 7);
  connection_finish (connection);
  kit_expect (guest->loop, fd, "request");
  kit_expect_end (guest->loop, fd, 0);
  kit_say (fd, "a late answer");
  GUEST_RUN_UNTIL (guest, connection->received->len == 13);
  close (fd);
  GUEST_RUN_UNTIL (guest, connection->has_fin);
  expect_quiet (guest);

  connection = guest_open (guest, 40001, &fd);
  kit_say (fd, "all I have");
  shutdown (fd, SHUT_WR);
  GUEST_RUN_UNTIL (guest, connection->has_fin && connection->received->len == 10);
  connection_send (connection, "thanks", 6);
  kit_expect (guest->loop, fd, "thanks");
  connection_finish (connection);
  kit_expect_end (guest->loop, fd, 0);
  close (fd);
  expect_quiet (guest);
  guest_free (guest);
}

static void
test_tcp_reset (void)
{
  Guest *guest = guest_new (LIMIT, FALSE);
  Connection *connection;
  int fd;

  connection = guest_open (guest, 40000, &fd);
  kit_reset (fd);
  GUEST_RUN_UNTIL (guest, connection->has_reset);

  connection = guest_open (guest, 40001, &fd);
  connection_put (connection, NETD_TCP_RST | NETD_TCP_ACK, connection->sent, NULL, 0);
  GUEST_RUN_UNTIL (guest, netd_engine_get_flows (guest->engine) == 0);
  kit_expect_end (guest->loop, fd, 0);
  close (fd);
  expect_quiet (guest);

  /* What belongs to nothing is refused, also before there was anything. */
  connection = connection_new (guest, 40002, PEER_IP, 9);
  connection_put (connection, NETD_TCP_ACK, connection->sent, "x", 1);
  GUEST_RUN_UNTIL (guest, connection->has_reset);
  guest_free (guest);
}

static gboolean
waits_to_write (Guest *guest)
{
  GPtrArray *asked = guest->engine->instances[NETD_INSTANCE_NAT]->asked;

  return asked->len > 0 && (((NetdFlow *) asked->pdata[0])->asked & SLIRP_POLL_OUT) != 0;
}

/* The peer's data fills the buffer for a guest that does not take it, the guest's the other way
 * round, and then the peer resets: nothing can be read into a full buffer. */
static void
test_tcp_reset_when_full (void)
{
  Guest *guest = guest_new (LIMIT, FALSE);
  g_autofree guint8 *data = g_malloc0 (LARGE);
  const int small = 4096;
  g_autofree char *info = NULL;
  Connection *connection;
  int fd;

  connection = guest_open (guest, 40000, &fd);
  host_send (guest, fd, data, LARGE); /* and the kernel's buffers grow */
  GUEST_RUN_UNTIL (guest, connection->received->len == LARGE);
  setsockopt (fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
  connection->is_silent = TRUE;
  /* libslirp reads whole segments of 32 KiB, while it has less than half. */
  g_assert_cmpint (send (fd, data, 32768, MSG_NOSIGNAL), >, 0);
  kit_settle (guest->loop);
  g_assert_cmpint (send (fd, data, BUFFER, MSG_NOSIGNAL), ==, BUFFER);
  while (!waits_to_write (guest))
    {
      netd_loop_turn (guest->loop, 1);
      guest_run (guest);
      if (connection->sent - connection->acknowledged < 40000)
        connection_send (connection, data, 20000);
    }
  info = slirp_connection_info (guest->engine->instances[NETD_INSTANCE_NAT]->slirp);
  g_assert_nonnull (strstr (info, " " G_STRINGIFY (BUFFER) "\n"));
  kit_reset (fd);
  for (guint i = 0; i < 10; i++)
    netd_loop_turn (guest->loop, 1);
  guest_free (guest);
}

static int
open_echo (guint16 *port)
{
  return kit_listen (SOCK_DGRAM, PEER, port);
}

static void
echo_once (Guest *guest, int fd)
{
  struct sockaddr_in from;
  socklen_t length = sizeof from;
  char buffer[65536];
  gssize n = -1;

  GUEST_RUN_UNTIL (guest, (n = recvfrom (fd, buffer, sizeof buffer, MSG_DONTWAIT,
                                         (struct sockaddr *) &from, &length))
                            >= 0);
  g_assert_cmpint (sendto (fd, buffer, (gsize) n, 0, (struct sockaddr *) &from, length), ==, n);
}

static void
test_udp (void)
{
  Guest *guest = guest_new (LIMIT, FALSE);
  g_autofree char *large = g_strnfill (40000, 'x');
  guint16 port;
  int fd = open_echo (&port);

  guest_send_udp (guest, 5000, PEER_IP, port, "hello", 5);
  echo_once (guest, fd);
  GUEST_RUN_UNTIL (guest, guest->n_datagrams == 1);
  g_assert_cmpmem (g_bytes_get_data (guest->datagram, NULL), 5, "hello", 5);
  g_assert_cmpuint (guest->datagram_from, ==, PEER_IP);
  guest_send_udp (guest, 5000, PEER_IP, port, large, 40000);
  echo_once (guest, fd);
  GUEST_RUN_UNTIL (guest, guest->n_datagrams == 2);
  g_assert_cmpuint (g_bytes_get_size (guest->datagram), ==, 40000);
  g_assert_cmpuint (netd_engine_get_flows (guest->engine), ==, 1);
  g_assert_cmpint (guest->engine->tick_at - netd_loop_now (guest->loop), >, 5000);

  /* It is forgotten in time, and a first packet after a long silence finds the clock right. */
  guest_pass_time (guest, 255000);
  expect_quiet (guest);
  test_clock_advance (3600 * 1000);
  guest_send_udp (guest, 5001, PEER_IP, port, "again", 5);
  echo_once (guest, fd);
  GUEST_RUN_UNTIL (guest, guest->n_datagrams == 3);
  close (fd);
  guest_free (guest);
}

static void
test_udp_unreachable (void)
{
  Guest *guest = guest_new (LIMIT, FALSE);
  guint16 port;
  int fd = open_echo (&port);

  close (fd);
  guest_send_udp (guest, 5000, PEER_IP, port, "hello", 5);
  GUEST_RUN_UNTIL (guest, guest->n_unreachable == 1);
  guest_free (guest);
}

static gsize
put_fragment (guint8 *frame, const guint8 *whole, gsize offset, gsize length, gboolean more)
{
  guint8 *ip = frame + NETD_ETHERNET_HEADER;

  memcpy (frame, whole, NETD_ETHERNET_HEADER + 20);
  memcpy (ip + 20, whole + NETD_ETHERNET_HEADER + 20 + offset, length);
  kit_set16 (ip + 2, (guint) (20 + length));
  kit_set16 (ip + 6, (guint) (offset / 8) | (more ? 0x2000 : 0));
  kit_set16 (ip + 10, 0);
  kit_set16 (ip + 10, test_checksum (ip, 20, 0));
  return NETD_ETHERNET_HEADER + 20 + length;
}

static void
test_udp_fragments (void)
{
  Guest *guest = guest_new (LIMIT, FALSE);
  g_autofree guint8 *whole = NULL;
  g_autofree char *data = g_strnfill (3000, 'f');
  guint16 port;
  int fd = open_echo (&port);

  /* The first one only says what it looks like. */
  guest_send_udp (guest, 5000, PEER_IP, port, data, 3000);
  echo_once (guest, fd);
  whole = g_memdup2 (guest->frame, NETD_ETHERNET_HEADER + 20 + 3008);
  guest_put (guest, put_fragment (guest->frame, whole, 1480, 1480, TRUE));
  guest_put (guest, put_fragment (guest->frame, whole, 0, 1480, TRUE));
  g_assert_cmpint (kit_peek (fd), ==, -EAGAIN);
  guest_put (guest, put_fragment (guest->frame, whole, 2960, 48, FALSE));
  echo_once (guest, fd);
  GUEST_RUN_UNTIL (guest, guest->n_datagrams == 2);
  g_assert_cmpmem (g_bytes_get_data (guest->datagram, NULL), g_bytes_get_size (guest->datagram),
                   data, 3000);
  close (fd);
  guest_free (guest);
}

static void
test_icmp (void)
{
  Guest *guest = guest_new (LIMIT, FALSE);
  int fd = socket (AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, IPPROTO_ICMP);

  guest_ping (guest, GATEWAY_IP, 1);
  GUEST_RUN_UNTIL (guest, guest->n_echoes == 1);
  g_assert_cmpuint (netd_engine_get_flows (guest->engine), ==, 0);
  if (fd >= 0)
    {
      close (fd);
      guest_ping (guest, PEER_IP, 2);
      GUEST_RUN_UNTIL (guest, guest->n_echoes == 2);
      g_assert_cmpuint (netd_engine_get_flows (guest->engine), ==, 0);
    }
  else
    g_test_message ("this machine lets nobody ping");
  guest_free (guest);
}

/* In a namespace that is new nobody may ping: then nothing is sent instead, and nothing said. */
static void
test_icmp_not_allowed (void)
{
  Guest *guest = guest_new (LIMIT, FALSE);
  int namespace = open ("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);

  g_assert_cmpint (unshare (CLONE_NEWNET), ==, 0);
  guest_ping (guest, PEER_IP, 2);
  kit_settle (guest->loop);
  g_assert_cmpuint (guest->frames.length, ==, 0);
  g_assert_cmpuint (netd_engine_get_flows (guest->engine), ==, 0);
  guest_free (guest);
  g_assert_cmpint (setns (namespace, CLONE_NEWNET), ==, 0);
  close (namespace);
}

static void
test_service (gconstpointer data)
{
  NetdService service = GPOINTER_TO_UINT (data);
  Guest *guest = guest_new (LIMIT, FALSE);
  guint32 peer = service == NETD_SERVICE_DNS ? GATEWAY_IP : NETD_IP_METADATA;
  Connection *connection;
  int fd;

  connection = guest_connect (guest, 40000, peer, service == NETD_SERVICE_DNS ? 53 : 80);
  GUEST_RUN_UNTIL (guest, guest->served[service]->len == 1);
  g_assert_true (connection->is_open);
  g_assert_cmpuint (guest->served[!service]->len, ==, 0);
  g_assert_cmpuint (netd_engine_get_flows (guest->engine), ==, 1);
  fd = g_array_index (guest->served[service], int, 0);
  g_assert_cmpint (fcntl (fd, F_GETFL) & O_NONBLOCK, !=, 0);
  g_assert_cmpint (fcntl (fd, F_GETFD) & FD_CLOEXEC, !=, 0);

  connection_send (connection, "question", 8);
  kit_expect (guest->loop, fd, "question");
  kit_say (fd, "answer");
  GUEST_RUN_UNTIL (guest, connection->received->len == 6);
  connection_finish (connection);
  kit_expect_end (guest->loop, fd, 0);
  kit_say (fd, "more");
  close (fd);
  g_array_set_size (guest->served[service], 0);
  GUEST_RUN_UNTIL (guest, connection->has_fin && connection->received->len == 10);
  expect_quiet (guest);
  guest_free (guest);
}

/* Nowhere but where the plan says, and nowhere on loopback. */
static void
test_forbidden (void)
{
  static const guint32 places[] = {
    NETD_IP (127, 0, 0, 1),     NETD_IP (127, 5, 5, 5),   NETD_IP (0, 0, 0, 0),
    NETD_IP (0, 0, 0, 9),       GATEWAY_IP,               NETD_IP (192, 168, 127, 9),
    NETD_IP (192, 168, 127, 254), NETD_IP (169, 254, 1, 1), NETD_IP (169, 254, 169, 254),
  };
  Guest *guest = guest_new (LIMIT, FALSE);
  int witness = private_net_watch_forbidden ();
  guint16 port;
  int listener = kit_listen (SOCK_STREAM, "0.0.0.0", &port);

  for (guint i = 0; i < G_N_ELEMENTS (places); i++)
    {
      Connection *connection = guest_connect (guest, (guint16) (40000 + i), places[i], port);

      GUEST_RUN_UNTIL (guest, connection->has_reset);
      guest_send_udp (guest, 5000, places[i], port, "hello", 5);
      if (places[i] != GATEWAY_IP)
        guest_ping (guest, places[i], 1);
    }
  kit_settle (guest->loop);
  guest_run (guest);
  g_assert_cmpint (kit_peek (listener), <, 0);
  g_assert_cmpint (accept (listener, NULL, NULL), ==, -1);
  g_assert_cmpuint (private_net_count_forbidden (witness), ==, 0);
  g_assert_cmpuint (netd_engine_get_flows (guest->engine), ==, 0);
  g_assert_cmpuint (guest->n_datagrams + guest->n_echoes + guest->n_unreachable, ==, 0);
  close (witness);
  close (listener);
  guest_free (guest);
}

static void
test_alias (void)
{
  Guest *guest = guest_new (LIMIT, TRUE);
  guint16 port, udp_port;
  int listener = kit_listen (SOCK_STREAM, "127.0.0.1", &port);
  int udp = kit_listen (SOCK_DGRAM, "127.0.0.1", &udp_port);
  Connection *connection;
  int fd;

  connection = guest_connect (guest, 40000, guest->plan.host_alias, port);
  fd = host_accept (guest, listener);
  GUEST_RUN_UNTIL (guest, connection->is_open);
  kit_say (fd, "home");
  GUEST_RUN_UNTIL (guest, connection->received->len == 4);
  guest_send_udp (guest, 5000, guest->plan.host_alias, udp_port, "hello", 5);
  echo_once (guest, udp);
  GUEST_RUN_UNTIL (guest, guest->n_datagrams == 1);
  g_assert_cmpuint (guest->datagram_from, ==, guest->plan.host_alias);

  guest_send_udp (guest, 5001, guest->plan.host_alias, 67, "hello", 5);
  guest_send_udp (guest, 5001, guest->plan.host_alias, 69, "hello", 5);
  kit_settle (guest->loop);
  g_assert_cmpuint (netd_engine_get_flows (guest->engine), ==, 2);
  g_assert_cmpuint (guest->frames.length, ==, 0);
  close (fd);
  close (udp);
  close (listener);
  guest_free (guest);
}

static void
test_paused (void)
{
  Guest *guest = guest_new (LIMIT, FALSE);
  Connection *connection;
  guint16 port;
  int udp = open_echo (&port);
  int fd;

  connection = guest_open (guest, 40000, &fd);
  guest_send_udp (guest, 5000, PEER_IP, port, "hello", 5);
  netd_engine_set_paused (guest->engine, TRUE);
  kit_say (fd, "wait for it");
  echo_once (guest, udp);
  connection_send (connection, "meanwhile", 9);
  kit_expect (guest->loop, fd, "meanwhile");
  g_assert_cmpuint (kit_count_turns (guest->loop), <=, KIT_QUIET_TURNS);
  guest_run (guest);
  g_assert_cmpuint (connection->received->len, ==, 0);
  g_assert_cmpuint (guest->n_datagrams, ==, 0);

  netd_engine_set_paused (guest->engine, FALSE);
  GUEST_RUN_UNTIL (guest, connection->received->len == 11 && guest->n_datagrams == 1);
  close (udp);
  close (fd);
  guest_free (guest);
}

/* A queue that has room for few frames at a time: each connection gets its turn all the same. */
static void
test_paused_often (void)
{
  enum { N = 20 };
  Guest *guest = guest_new (LIMIT, FALSE);
  g_autofree guint8 *data = g_malloc0 (LARGE);
  Connection *connections[N];
  guint n_served = 0;
  int fds[N];

  for (guint i = 0; i < N; i++)
    connections[i] = guest_open (guest, (guint16) (40000 + i), &fds[i]);
  guest->queue_limit = 2;
  for (guint turn = 0; turn < 10 * N && n_served < N; turn++)
    {
      n_served = 0;
      for (guint i = 0; i < N; i++)
        {
          (void) !send (fds[i], data, 65536, MSG_DONTWAIT | MSG_NOSIGNAL);
          n_served += connections[i]->received->len > 0;
        }
      netd_loop_turn (guest->loop, 5);
      guest_run (guest);
    }
  g_assert_cmpuint (n_served, ==, N);
  for (guint i = 0; i < N; i++)
    close (fds[i]);
  guest_free (guest);
}

static void
test_free_in_use (void)
{
  Guest *guest = guest_new (LIMIT, TRUE);
  g_autofree guint8 *data = g_malloc0 (LARGE);
  Connection *connection;
  char last;
  int fd;

  connection = guest_open (guest, 40000, &fd);
  connection->is_silent = TRUE;
  (void) !send (fd, data, LARGE, MSG_DONTWAIT | MSG_NOSIGNAL);
  connection_put (connection, NETD_TCP_ACK, connection->sent + 5, "early", 5);
  guest_connect (guest, 40001, GATEWAY_IP, 53);
  guest_connect (guest, 40002, NETD_IP_METADATA, 80);
  guest_run (guest);
  guest_connect (guest, 40003, GATEWAY_IP, 53);
  guest_connect (guest, 40004, guest->plan.host_alias, 1);
  guest_send_udp (guest, 5000, PEER_IP, 9, "hello", 5);
  netd_loop_turn (guest->loop, 0);
  guest_free (guest);
  g_assert_cmpint (recv (fd, &last, 1, 0), <=, 0);
  close (fd);
}

/* Before the numbers begin again, there is a time for all that they date to end. */
static void
test_clock (void)
{
  const guint64 minutes = 60 * 1000;
  guint64 last = 0;
  guint leaps = 0;

  for (guint64 ms = 0; ms < 150 * 24 * 60 * minutes; ms += 1000)
    {
      guint64 now = netd_engine_clock (ms);

      g_assert_cmpuint (now, >=, last);
      leaps += now - last > 2000;
      /* Never within four minutes of the end, other than at the end itself. */
      g_assert_true ((guint32) now <= G_MAXUINT32 - 240000 - 500
                     || (guint32) now == G_MAXUINT32 - 500);
      last = now;
    }
  g_assert_cmpuint (leaps, ==, 3);
}

static void
add_tests (void)
{
  g_test_add_func ("/netd/engine/tcp", test_tcp);
  g_test_add_func ("/netd/engine/tcp/idle", test_tcp_idle);
  g_test_add_func ("/netd/engine/tcp/refused", test_tcp_refused);
  g_test_add_func ("/netd/engine/tcp/half-close", test_tcp_half_close);
  g_test_add_func ("/netd/engine/tcp/reset", test_tcp_reset);
  g_test_add_func ("/netd/engine/tcp/reset-when-full", test_tcp_reset_when_full);
  g_test_add_func ("/netd/engine/udp", test_udp);
  g_test_add_func ("/netd/engine/udp/unreachable", test_udp_unreachable);
  g_test_add_func ("/netd/engine/udp/fragments", test_udp_fragments);
  g_test_add_func ("/netd/engine/icmp", test_icmp);
  g_test_add_func ("/netd/engine/icmp/not-allowed", test_icmp_not_allowed);
  g_test_add_data_func ("/netd/engine/service/dns", GUINT_TO_POINTER (NETD_SERVICE_DNS),
                        test_service);
  g_test_add_data_func ("/netd/engine/service/metadata", GUINT_TO_POINTER (NETD_SERVICE_METADATA),
                        test_service);
  g_test_add_func ("/netd/engine/forbidden", test_forbidden);
  g_test_add_func ("/netd/engine/alias", test_alias);
  g_test_add_func ("/netd/engine/paused", test_paused);
  g_test_add_func ("/netd/engine/paused/often", test_paused_often);
  g_test_add_func ("/netd/engine/free-in-use", test_free_in_use);
  g_test_add_func ("/netd/engine/clock", test_clock);
}

int
main (int argc, char *argv[])
{
  return guest_test_main (argc, argv, add_tests);
}

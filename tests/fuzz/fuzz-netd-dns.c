/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The DNS relay between a guest that asks anything and a server that answers anything. Input: bits,
 * the length of the query, the query, the answer. What goes to the guest must carry the guest's id,
 * come from an answer to that very question, fit the MTU, and come once.
 */
#include "netd-dns.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "frame-kit.h"
#include "fuzz.h"
#include "private-net.h"
#include "test-clock.h"

#define HEAD 3
#define SAME_ID 0x01       /* the answer gets the id that was asked with */
#define SAME_QUESTION 0x02 /* and begins with the question */
#define IS_ANSWER 0x04     /* and its QR bit */
#define BY_TCP 0x08
#define TWICE 0x10
#define IN_PIECES 0x20
#define HANG_UP 0x40
#define LATE 0x80 /* behind the time for an answer */
#define QUERY_HEADER 12
#define TURNS 8

static NetdLoop *loop;
static NetdPlan plan;
static NetdResolvers resolvers;
static NetdDns *dns;
static int server, listener;
static guint answers;
static guint64 all_answers;
static const guint8 *query;
static gsize query_length;
static GByteArray *said; /* by the server, on a stream */

static void
send_to_guest (const guint8 *frame, gsize length, gpointer user_data)
{
  NetdPacket packet;

  g_assert_cmpint (netd_packet_parse (&packet, frame, length), ==, NETD_PACKET_IPV4);
  g_assert_cmpuint (packet.ip_length, <=, plan.mtu);
  g_assert_cmpuint (packet.ip_source, ==, plan.gateway);
  g_assert_cmpuint (packet.source_port, ==, 53);
  g_assert_cmpuint (packet.destination_port, ==, 4000);
  g_assert_cmpuint (packet.payload_length, >=, QUERY_HEADER);
  g_assert_cmpuint (query_length, >=, QUERY_HEADER);
  /* Its id, and a response. */
  g_assert_cmpmem (packet.payload, 2, query, 2);
  g_assert_cmpuint (packet.payload[2] & 0x80, !=, 0);
  answers++;
  all_answers++;
}

/* A stream is carried as it is, and nobody puts anything in. */
static void
check_stream (int guest)
{
  guint8 buffer[65536 * 2];
  gssize n = 0, got = 0;

  while (got < (gssize) sizeof buffer
         && (n = recv (guest, buffer + got, sizeof buffer - (gsize) got, MSG_DONTWAIT)) > 0)
    got += n;
  g_assert_cmpuint ((gsize) got, <=, said->len);
  g_assert_cmpmem (buffer, (gsize) got, said->data, (gsize) got);
}

static void
say (int fd, const guint8 *data, gsize length)
{
  gssize n = send (fd, data, length, MSG_NOSIGNAL);

  if (n > 0)
    g_byte_array_append (said, data, (guint) n);
}

/* What the server says to @question: the input's answer, made as fitting as its bits say. */
static GByteArray *
make_answer (guint bits, const guint8 *question, gsize length, const guint8 *text,
             gsize text_length)
{
  GByteArray *answer = g_byte_array_new ();

  if ((bits & SAME_QUESTION) != 0)
    g_byte_array_append (answer, question, (guint) length);
  g_byte_array_append (answer, text, (guint) text_length);
  if ((bits & SAME_ID) != 0 && answer->len >= 2 && length >= 2)
    memcpy (answer->data, question, 2);
  if ((bits & IS_ANSWER) != 0 && answer->len >= 3)
    answer->data[2] |= 0x80;
  return answer;
}

static void
turn (void)
{
  for (guint i = 0; i < TURNS; i++)
    netd_loop_turn (loop, 0);
}

static void
answer_by_udp (guint bits, const guint8 *text, gsize text_length)
{
  guint8 question[65536];
  struct sockaddr_in from;
  socklen_t from_length = sizeof from;
  gssize n;

  while ((n = recvfrom (server, question, sizeof question, MSG_DONTWAIT, (struct sockaddr *) &from,
                        &from_length))
         >= 0)
    {
      g_autoptr (GByteArray) answer = make_answer (bits, question, (gsize) n, text, text_length);

      for (guint i = 0; i < ((bits & TWICE) != 0 ? 2 : 1); i++)
        (void) sendto (server, answer->data, answer->len, 0, (struct sockaddr *) &from,
                       from_length);
    }
}

static void
ask_by_udp (guint bits, const guint8 *text, gsize text_length)
{
  const NetdUdpAddress address = {
    .source = plan.gateway + 1,
    .destination = plan.gateway,
    .source_port = 4000,
    .destination_port = 53,
  };
  g_autofree guint8 *frame = g_malloc (NETD_PACKET_MAX);
  gsize length = netd_packet_build_udp (frame, NETD_PACKET_MAX, &address, query, query_length);
  g_autofree guint8 *exact = g_memdup2 (frame, length);
  NetdPacket packet;

  if (length == 0)
    return;
  netd_packet_parse (&packet, exact, length);
  netd_dns_query (dns, &packet);
  turn ();
  if ((bits & LATE) != 0)
    test_clock_advance (NETD_DNS_TRY_MS + 1);
  if ((bits & LATE) != 0 && (bits & TWICE) != 0)
    turn ();
  answer_by_udp (bits, text, text_length);
  turn ();
  g_assert_cmpuint (answers, <=, 1);
}

static void
answer_by_tcp (guint bits, const guint8 *text, gsize text_length)
{
  guint8 question[65536 + 2];
  int fd = accept4 (listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
  gssize n;

  if (fd < 0)
    return;
  turn ();
  n = recv (fd, question, sizeof question, 0);
  if (n >= 2)
    {
      g_autoptr (GByteArray) answer
          = make_answer (bits, question + 2, (gsize) n - 2, text, text_length);
      guint8 length[2];

      kit_set16 (length, (guint16) (answer->len + ((bits & TWICE) != 0)));
      say (fd, length, 2);
      if ((bits & IN_PIECES) != 0)
        turn ();
      say (fd, answer->data, answer->len);
    }
  turn ();
  close (fd);
}

static void
ask_by_tcp (guint bits, const guint8 *text, gsize text_length)
{
  guint8 length[2];
  int fds[2];

  g_assert_cmpint (socketpair (AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds), ==, 0);
  netd_dns_accept (dns, fds[0]);
  kit_set16 (length, (guint16) query_length);
  (void) send (fds[1], length, 2, MSG_NOSIGNAL);
  if ((bits & IN_PIECES) != 0)
    turn ();
  (void) send (fds[1], query, query_length, MSG_NOSIGNAL);
  turn ();
  if ((bits & HANG_UP) != 0)
    shutdown (fds[1], SHUT_WR);
  answer_by_tcp (bits, text, text_length);
  turn ();
  check_stream (fds[1]);
  close (fds[1]);
  turn ();
}

static int
open_server (int type)
{
  struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons (53) };
  int fd = socket (AF_INET, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

  address.sin_addr.s_addr = inet_addr (PRIVATE_NET_HOST);
  g_assert_cmpint (bind (fd, (struct sockaddr *) &address, sizeof address), ==, 0);
  return fd;
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
  server = open_server (SOCK_DGRAM);
  listener = open_server (SOCK_STREAM);
  g_assert_cmpint (listen (listener, 64), ==, 0);
  plan.gateway = NETD_IP (10, 77, 0, 1);
  plan.mtu = NETD_MTU_MIN;
  netd_resolvers_parse (&resolvers, "nameserver " PRIVATE_NET_HOST "\n");
  loop = netd_loop_new ();
  said = g_byte_array_new ();
  return 0;
}

int
LLVMFuzzerTestOneInput (const uint8_t *data, size_t size)
{
  const NetdDnsConfig config = {
    .plan = &plan,
    .loop = loop,
    .resolvers = &resolvers,
    .ip = plan.gateway + 1,
    .send = send_to_guest,
  };
  g_autofree guint8 *copy = NULL;
  guint bits;

  if (size < HEAD)
    return 0;
  bits = data[0];
  query_length = MIN (kit_get16 (data + 1), size - HEAD);
  copy = g_memdup2 (data + HEAD, query_length);
  query = copy;
  answers = 0;
  g_byte_array_set_size (said, 0);
  dns = netd_dns_new (&config);
  if ((bits & BY_TCP) != 0)
    ask_by_tcp (bits, data + HEAD + query_length, size - HEAD - query_length);
  else
    ask_by_udp (bits, data + HEAD + query_length, size - HEAD - query_length);
  netd_dns_free (dns);
  turn ();
  return 0;
}

void
fuzz_finish (void)
{
  g_assert_cmpuint (all_answers, >, 0);
  netd_loop_free (loop);
  g_byte_array_unref (said);
  close (server);
  close (listener);
}

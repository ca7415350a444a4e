/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* DNS on the gateway, with name servers of the test's own on the loopback: honest ones, silent
 * ones, ones that lie, ones that are not there. */

#include "netd-dns.h"

#include "netd-dns-message.h"
#include "netd-dns-stream.h"
#include "service-kit.h"

#define GUEST_PORT 40001
#define GATEWAY NETD_IP (10, 1, 2, 1)
#define GUEST NETD_IP (10, 1, 2, 3)
#define MTU 1500
#define ROOM (MTU - 28)

#define QUESTION                                                                                   \
  "\x03wWw\x07"                                                                                    \
  "eXample\x03org\x00\x00\x01\x00\x01"
#define OTHER_QUESTION                                                                             \
  "\x03wWw\x07"                                                                                    \
  "exaMple\x03org\x00\x00\x01\x00\x01"
#define EDNS "\x00\x00\x29\x10\x00\x00\x00\x80\x00\x00\x00"
#define LENGTH_OF(literal) (sizeof (literal) - 1)

typedef struct
{
  guint8 data[8192];
  gsize length;
  struct sockaddr_in from; /* as a server got it */
} Message;

typedef struct
{
  NetdLoop *loop;
  NetdPlan plan;
  NetdResolvers resolvers;
  NetdDns *dns;
  int udp[3]; /* the servers */
  int tcp[3];
  Message answer; /* the guest's last */
  guint n_answers;
} Fixture;

static const NetdMac guest_mac = { { 2, 0, 0, 0, 0, 3 } };

/* --- The guest --- */

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
  g_assert_cmpuint (packet.source_port, ==, 53);
  g_assert_cmpuint (packet.destination_port, ==, GUEST_PORT);
  g_assert_cmpuint (packet.ip_length, <=, MTU);
  memcpy (fixture->answer.data, packet.payload, packet.payload_length);
  fixture->answer.length = packet.payload_length;
  fixture->n_answers++;
}

static void
ask_message (Fixture *fixture, const Message *message)
{
  const NetdUdpAddress address = {
    .source_mac = guest_mac,
    .destination_mac = fixture->plan.gateway_mac,
    .source = GUEST,
    .destination = GATEWAY,
    .source_port = GUEST_PORT,
    .destination_port = 53,
  };
  guint8 frame[NETD_PACKET_MAX];
  gsize length
      = netd_packet_build_udp (frame, sizeof frame, &address, message->data, message->length);
  NetdPacket packet;

  g_assert_cmpuint (length, >, 0);
  netd_packet_parse (&packet, frame, length);
  netd_dns_query (fixture->dns, &packet);
}

static void
append (Message *message, const void *data, gsize length)
{
  g_assert_cmpuint (message->length + length, <=, sizeof message->data);
  memcpy (message->data + message->length, data, length);
  message->length += length;
}

/* A query as resolvers make it: recursion, one question, EDNS. */
static Message
make_query (guint16 id, const char *question, gsize length)
{
  const guint8 header[] = { (guint8) (id >> 8), (guint8) id, 0x01, 0x20, 0, 1, 0, 0, 0, 0, 0, 1 };
  Message message = { 0 };

  append (&message, header, sizeof header);
  append (&message, question, length);
  append (&message, EDNS, LENGTH_OF (EDNS));
  return message;
}

static Message
ask (Fixture *fixture, guint16 id)
{
  Message message = make_query (id, QUESTION, LENGTH_OF (QUESTION));

  ask_message (fixture, &message);
  return message;
}

static void
expect_rcode (Fixture *fixture, guint16 id, guint rcode)
{
  g_assert_cmpuint (fixture->answer.length, >=, NETD_DNS_HEADER);
  g_assert_cmpuint (fixture->answer.data[0], ==, id >> 8);
  g_assert_cmpuint (fixture->answer.data[1], ==, id & 0xff);
  g_assert_cmphex (fixture->answer.data[2] & 0x80, ==, 0x80);
  g_assert_cmpuint (netd_dns_get_rcode (fixture->answer.data), ==, rcode);
}

/* --- The servers --- */

static void
use_server (NetdSocketAddress *address, const char *text, int fd)
{
  socklen_t length = sizeof *address;

  memset (address, 0, sizeof *address);
  if (fd < 0)
    g_assert_true (netd_socket_address_parse (address, text, 1));
  else
    g_assert_cmpint (getsockname (fd, &address->any, &length), ==, 0);
}

/* Connections that ended a moment ago, whosever they were, hold no port. */
static gboolean
listen_for_tcp (Fixture *fixture, guint index)
{
  const NetdSocketAddress *name = &fixture->resolvers.servers[index];
  const int one = 1;
  int fd = socket (AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

  g_assert_cmpint (setsockopt (fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one), ==, 0);
  if (bind (fd, &name->any, sizeof name->v4) < 0 || listen (fd, 64) < 0)
    {
      close (fd);
      return FALSE;
    }
  fixture->tcp[index] = fd;
  return TRUE;
}

/* Server @index; @with_udp and @with_tcp: whether anybody is there, on one port. */
static void
add_server (Fixture *fixture, gboolean with_udp, gboolean with_tcp)
{
  guint index = fixture->resolvers.n_servers++;
  g_autofree char *address = g_strdup_printf ("127.0.0.%u", index + 1);
  gboolean is_there = FALSE;
  guint16 port = 0;

  /* A port that is free for UDP may be somebody's for TCP. */
  for (guint i = 0; i < 100 && !is_there; i++)
    {
      fixture->udp[index] = kit_listen (SOCK_DGRAM, address, &port);
      use_server (&fixture->resolvers.servers[index], NULL, fixture->udp[index]);
      is_there = !with_tcp || listen_for_tcp (fixture, index);
      if (!is_there)
        close (fixture->udp[index]);
    }
  g_assert_true (is_there);
  if (!with_udp)
    {
      close (fixture->udp[index]);
      fixture->udp[index] = -1;
    }
}

static gboolean
hear (Fixture *fixture, guint index, Message *message)
{
  socklen_t length = sizeof message->from;
  gssize n = recvfrom (fixture->udp[index], message->data, sizeof message->data, MSG_DONTWAIT,
                       (struct sockaddr *) &message->from, &length);

  message->length = n > 0 ? (gsize) n : 0;
  return n > 0;
}

static Message
expect_query (Fixture *fixture, guint index)
{
  Message message;

  KIT_TURN_UNTIL (fixture->loop, hear (fixture, index, &message));
  return message;
}

static void
expect_no_query (Fixture *fixture, guint index)
{
  Message message;

  kit_settle (fixture->loop);
  g_assert_false (hear (fixture, index, &message));
}

static void
reply_from (int fd, const Message *message)
{
  g_assert_cmpint (sendto (fd, message->data, message->length, 0,
                           (const struct sockaddr *) &message->from, sizeof message->from),
                   ==, (gssize) message->length);
}

/* An answer of @size bytes to @query. */
static Message
make_answer (const Message *query, gsize size)
{
  Message message = *query;

  message.length = NETD_DNS_HEADER + LENGTH_OF (QUESTION);
  message.data[2] |= 0x80;
  message.data[3] |= 0x80;
  message.data[7] = 1;
  message.data[11] = 0;
  while (message.length < size)
    {
      guint8 byte = (guint8) (message.length * 7);

      append (&message, &byte, 1);
    }
  return message;
}

static void
reply (Fixture *fixture, guint index, const Message *query, gsize size)
{
  Message message = make_answer (query, size);

  reply_from (fixture->udp[index], &message);
}

static void
set_up (Fixture *fixture, gconstpointer data)
{
  NetdDnsConfig config = { 0 };

  fixture->loop = netd_loop_new ();
  fixture->plan.gateway = GATEWAY;
  fixture->plan.gateway_mac = (NetdMac){ { 2, 0, 0, 0, 0, 1 } };
  fixture->plan.mtu = MTU;
  for (guint i = 0; i < 3; i++)
    fixture->udp[i] = fixture->tcp[i] = -1;
  config.plan = &fixture->plan;
  config.loop = fixture->loop;
  config.resolvers = &fixture->resolvers;
  config.mac = guest_mac;
  config.ip = GUEST;
  config.send = frame_for_guest;
  config.user_data = fixture;
  fixture->dns = netd_dns_new (&config);
}

static void
tear_down (Fixture *fixture, gconstpointer data)
{
  netd_dns_free (fixture->dns);
  for (guint i = 0; i < 3; i++)
    {
      if (fixture->udp[i] >= 0)
        close (fixture->udp[i]);
      if (fixture->tcp[i] >= 0)
        close (fixture->tcp[i]);
    }
  netd_loop_free (fixture->loop);
}

/* --- Answers --- */

static void
test_answered (Fixture *fixture, gconstpointer data)
{
  Message asked;
  Message heard;
  Message answer;

  add_server (fixture, TRUE, FALSE);
  asked = ask (fixture, 0x1234);
  heard = expect_query (fixture, 0);
  g_assert_cmpmem (heard.data + 2, heard.length - 2, asked.data + 2, asked.length - 2);
  answer = make_answer (&heard, 600);
  reply_from (fixture->udp[0], &answer);
  KIT_TURN_UNTIL (fixture->loop, fixture->n_answers == 1);
  g_assert_cmpmem (fixture->answer.data + 2, fixture->answer.length - 2, answer.data + 2,
                   answer.length - 2);
  expect_rcode (fixture, 0x1234, 0);

  /* It is over: nothing is heard a second time, and nothing is waited for. */
  reply_from (fixture->udp[0], &answer);
  g_assert_cmpuint (kit_count_turns (fixture->loop), <=, KIT_QUIET_TURNS);
  g_assert_cmpuint (fixture->n_answers, ==, 1);
  test_clock_advance (10 * NETD_DNS_TRY_MS);
  expect_no_query (fixture, 0);
}

/* The guest's ids and ports say nothing about those that servers see. */
static void
test_unpredictable (Fixture *fixture, gconstpointer data)
{
  g_autoptr (GHashTable) ports = g_hash_table_new (NULL, NULL);
  g_autoptr (GHashTable) ids = g_hash_table_new (NULL, NULL);

  add_server (fixture, TRUE, FALSE);
  for (guint16 i = 0; i < 32; i++)
    {
      Message heard;

      ask (fixture, i);
      heard = expect_query (fixture, 0);
      g_hash_table_add (ports, GUINT_TO_POINTER (heard.from.sin_port));
      g_hash_table_add (ids, GUINT_TO_POINTER (heard.data[0] << 8 | heard.data[1]));
    }
  g_assert_cmpuint (g_hash_table_size (ports), ==, 32);
  g_assert_cmpuint (g_hash_table_size (ids), >=, 28);
  for (guint i = 0; i < 32; i++)
    g_hash_table_remove (ids, GUINT_TO_POINTER (i));
  g_assert_cmpuint (g_hash_table_size (ids), >=, 28);
}

static void
test_lies (Fixture *fixture, gconstpointer data)
{
  Message heard;
  Message lie;
  int stranger;
  guint16 port;

  add_server (fixture, TRUE, FALSE);
  ask (fixture, 7);
  heard = expect_query (fixture, 0);

  lie = make_answer (&heard, 100);
  lie.data[1] ^= 1;
  reply_from (fixture->udp[0], &lie);
  lie = make_answer (&heard, 100);
  memcpy (lie.data + NETD_DNS_HEADER, OTHER_QUESTION, LENGTH_OF (OTHER_QUESTION));
  reply_from (fixture->udp[0], &lie);
  lie = make_answer (&heard, 100);
  lie.data[NETD_DNS_HEADER + LENGTH_OF (QUESTION) - 3] = 28; /* the type */
  reply_from (fixture->udp[0], &lie);
  lie = make_answer (&heard, 100);
  lie.data[2] &= 0x7f; /* no answer at all */
  reply_from (fixture->udp[0], &lie);
  lie = make_answer (&heard, 100);
  lie.data[5] = 0; /* no question */
  reply_from (fixture->udp[0], &lie);
  for (gsize length = 0; length < NETD_DNS_HEADER + LENGTH_OF (QUESTION); length++)
    {
      lie = make_answer (&heard, 100);
      lie.length = length;
      reply_from (fixture->udp[0], &lie);
    }
  /* True in every respect, but from somebody else: other port, other address. */
  lie = make_answer (&heard, 100);
  stranger = kit_listen (SOCK_DGRAM, "127.0.0.1", &port);
  reply_from (stranger, &lie);
  close (stranger);
  stranger = kit_listen (SOCK_DGRAM, "127.0.0.9", &port);
  reply_from (stranger, &lie);
  close (stranger);
  kit_settle (fixture->loop);
  g_assert_cmpuint (fixture->n_answers, ==, 0);

  reply (fixture, 0, &heard, 101);
  KIT_TURN_UNTIL (fixture->loop, fixture->n_answers == 1);
  g_assert_cmpuint (fixture->answer.length, ==, 101);
}

static void
test_truncated (Fixture *fixture, gconstpointer data)
{
  Message heard;

  add_server (fixture, TRUE, FALSE);
  ask (fixture, 1);
  heard = expect_query (fixture, 0);
  reply (fixture, 0, &heard, ROOM);
  KIT_TURN_UNTIL (fixture->loop, fixture->n_answers == 1);
  g_assert_cmpuint (fixture->answer.length, ==, ROOM);
  g_assert_cmphex (fixture->answer.data[2] & 0x02, ==, 0);

  ask (fixture, 2);
  heard = expect_query (fixture, 0);
  reply (fixture, 0, &heard, ROOM + 1);
  KIT_TURN_UNTIL (fixture->loop, fixture->n_answers == 2);
  expect_rcode (fixture, 2, 0);
  g_assert_cmphex (fixture->answer.data[2] & 0x02, ==, 0x02);
  g_assert_cmpmem (fixture->answer.data + 4, fixture->answer.length - 4,
                   "\0\1\0\0\0\0\0\0" QUESTION, 8 + LENGTH_OF (QUESTION));
}

/* --- Servers that do not help --- */

static void
test_refused (Fixture *fixture, gconstpointer data)
{
  Message heard;

  add_server (fixture, FALSE, FALSE);
  add_server (fixture, TRUE, FALSE);
  ask (fixture, 1);
  heard = expect_query (fixture, 1); /* without any time passing */
  reply (fixture, 1, &heard, 60);
  KIT_TURN_UNTIL (fixture->loop, fixture->n_answers == 1);
  expect_rcode (fixture, 1, 0);
}

static void
expect_servfail (Fixture *fixture, guint16 id)
{
  expect_rcode (fixture, id, NETD_DNS_SERVFAIL);
  g_assert_cmphex (fixture->answer.data[2], ==, 0x81);
  g_assert_cmpmem (fixture->answer.data + 4, fixture->answer.length - 4,
                   "\0\1\0\0\0\0\0\0" QUESTION, 8 + LENGTH_OF (QUESTION));
}

static void
test_all_refused (Fixture *fixture, gconstpointer data)
{
  for (guint i = 0; i < 3; i++)
    add_server (fixture, FALSE, FALSE);
  ask (fixture, 0xfedc);
  KIT_TURN_UNTIL (fixture->loop, fixture->n_answers == 1);
  expect_servfail (fixture, 0xfedc);
  g_assert_cmpuint (kit_count_turns (fixture->loop), <=, KIT_QUIET_TURNS);
}

/* No route, no such family, no server at all: known without anybody saying so. */
static void
test_unreachable (Fixture *fixture, gconstpointer data)
{
  ask (fixture, 1);
  g_assert_cmpuint (fixture->n_answers, ==, 1);
  expect_servfail (fixture, 1);

  fixture->resolvers.n_servers = 2;
  use_server (&fixture->resolvers.servers[0], "255.255.255.255", -1);
  use_server (&fixture->resolvers.servers[1], "fe80::1", -1);
  ask (fixture, 2);
  KIT_TURN_UNTIL (fixture->loop, fixture->n_answers == 2);
  expect_servfail (fixture, 2);
}

static void
test_silent (Fixture *fixture, gconstpointer data)
{
  Message first;
  Message second;

  add_server (fixture, TRUE, FALSE);
  add_server (fixture, TRUE, FALSE);
  ask (fixture, 5);
  first = expect_query (fixture, 0);
  g_assert_cmpuint (kit_count_turns (fixture->loop), <=, KIT_QUIET_TURNS);
  expect_no_query (fixture, 1);
  test_clock_advance (NETD_DNS_TRY_MS + 10);
  second = expect_query (fixture, 1);
  /* Another socket, and too late for the first server. */
  g_assert_true (first.from.sin_port != second.from.sin_port
                 || memcmp (first.data, second.data, 2) != 0);
  reply (fixture, 0, &first, 100);
  for (guint i = 0; i < 2; i++)
    {
      test_clock_advance (NETD_DNS_TRY_MS + 10);
      expect_query (fixture, i);
    }
  g_assert_cmpuint (fixture->n_answers, ==, 0);
  test_clock_advance (NETD_DNS_TRY_MS + 10);
  KIT_TURN_UNTIL (fixture->loop, fixture->n_answers == 1);
  expect_servfail (fixture, 5);
  expect_no_query (fixture, 0);
  expect_no_query (fixture, 1);
}

/* The first server does not want to; the last one's word is passed on whatever it is. */
static void
test_no_help (Fixture *fixture, gconstpointer data)
{
  static const guint8 rcodes[] = { NETD_DNS_SERVFAIL, NETD_DNS_NOTIMP, NETD_DNS_REFUSED };

  add_server (fixture, TRUE, FALSE);
  add_server (fixture, TRUE, FALSE);
  for (guint16 i = 0; i < G_N_ELEMENTS (rcodes); i++)
    {
      Message answer;

      ask (fixture, i);
      for (guint server = 0; server < 2; server++)
        {
          Message heard = expect_query (fixture, server);

          g_assert_cmpuint (fixture->n_answers, ==, i);
          answer = make_answer (&heard, 60);
          answer.data[3] = (guint8) (0x80 | rcodes[i]);
          reply_from (fixture->udp[server], &answer);
        }
      KIT_TURN_UNTIL (fixture->loop, fixture->n_answers == i + 1u);
      expect_rcode (fixture, i, rcodes[i]);
      g_assert_cmpuint (fixture->answer.length, ==, 60);
    }
  /* That a name does not exist is an answer. */
  {
    Message answer;
    Message heard;

    ask (fixture, 9);
    heard = expect_query (fixture, 0);
    answer = make_answer (&heard, 60);
    answer.data[3] = 0x83;
    reply_from (fixture->udp[0], &answer);
    KIT_TURN_UNTIL (fixture->loop, fixture->n_answers == 4);
    expect_rcode (fixture, 9, 3);
    expect_no_query (fixture, 1);
  }
}

static void
test_servers_change (Fixture *fixture, gconstpointer data)
{
  Message heard;

  add_server (fixture, TRUE, FALSE);
  add_server (fixture, TRUE, FALSE);
  fixture->resolvers.n_servers = 1;
  ask (fixture, 1);
  expect_query (fixture, 0);
  test_clock_advance (NETD_DNS_TRY_MS + 10);
  heard = expect_query (fixture, 0);

  /* What is under way is not disturbed. */
  fixture->resolvers.servers[0] = fixture->resolvers.servers[1];
  kit_settle (fixture->loop);
  ask (fixture, 2);
  reply (fixture, 1, (Message[]){ expect_query (fixture, 1) }, 80);
  KIT_TURN_UNTIL (fixture->loop, fixture->n_answers == 1);
  expect_rcode (fixture, 2, 0);
  reply (fixture, 0, &heard, 81);
  KIT_TURN_UNTIL (fixture->loop, fixture->n_answers == 2);
  expect_rcode (fixture, 1, 0);
}

/* The old server said nothing twice: the new one is asked all the same. */
static void
test_servers_change_in_flight (Fixture *fixture, gconstpointer data)
{
  Message heard;

  add_server (fixture, TRUE, FALSE);
  add_server (fixture, TRUE, FALSE);
  fixture->resolvers.n_servers = 1;
  ask (fixture, 1);
  expect_query (fixture, 0);
  test_clock_advance (NETD_DNS_TRY_MS + 10);
  expect_query (fixture, 0);
  fixture->resolvers.servers[0] = fixture->resolvers.servers[1];
  test_clock_advance (NETD_DNS_TRY_MS + 10);
  heard = expect_query (fixture, 1);
  reply (fixture, 1, &heard, 80);
  KIT_TURN_UNTIL (fixture->loop, fixture->n_answers == 1);
  expect_rcode (fixture, 1, 0);
}

static void
test_v6 (Fixture *fixture, gconstpointer data)
{
  struct sockaddr_in6 name = { .sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT };
  struct sockaddr_in6 from;
  socklen_t length = sizeof from;
  int server = socket (AF_INET6, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  Message heard;
  Message answer;
  gssize n = -1;

  if (server < 0 || bind (server, (struct sockaddr *) &name, sizeof name) < 0)
    {
      g_test_skip ("no IPv6 here");
      return;
    }
  fixture->resolvers.n_servers = 1;
  use_server (&fixture->resolvers.servers[0], NULL, server);
  ask (fixture, 1);
  KIT_TURN_UNTIL (fixture->loop, (n = recvfrom (server, heard.data, sizeof heard.data, 0,
                                                (struct sockaddr *) &from, &length))
                                     > 0);
  heard.length = (gsize) n;
  answer = make_answer (&heard, 90);
  g_assert_cmpint (
      sendto (server, answer.data, answer.length, 0, (struct sockaddr *) &from, length), >, 0);
  KIT_TURN_UNTIL (fixture->loop, fixture->n_answers == 1);
  close (server);
}

/* --- What guests may ask --- */

static void
test_bad_queries (Fixture *fixture, gconstpointer data)
{
  static const struct
  {
    const char *question;
    gsize length;
  } questions[] = {
#define CASE(literal) { literal, LENGTH_OF (literal) }
    CASE (""),
    CASE ("\x03www"),
    CASE ("\x03www\x00\x00\x01\x00"),
    CASE ("\x3fwww\x00\x00\x01\x00\x01"),
    CASE ("\xc0\x0c\x00\x01\x00\x01"),
    CASE ("\x40www\x00\x00\x01\x00\x01"),
#undef CASE
  };
  Message query;
  Message heard;
  guint n = 0;

  add_server (fixture, TRUE, FALSE);
  for (guint i = 0; i < G_N_ELEMENTS (questions); i++)
    {
      query = make_query (3, questions[i].question, questions[i].length);
      query.length -= LENGTH_OF (EDNS);
      ask_message (fixture, &query);
      g_assert_cmpuint (fixture->n_answers, ==, ++n);
      expect_rcode (fixture, 3, NETD_DNS_FORMERR);
      g_assert_cmpmem (fixture->answer.data + 4, fixture->answer.length - 4, "\0\0\0\0\0\0\0\0", 8);
    }

  /* No name is longer than 255. */
  query = make_query (3, "", 0);
  query.length = NETD_DNS_HEADER;
  for (guint i = 0; i < 5; i++)
    append (&query, "\x3f" "0123456789012345678901234567890123456789012345678901234567890ab", 64);
  append (&query, "\0\0\1\0\1", 5);
  ask_message (fixture, &query);
  expect_rcode (fixture, 3, NETD_DNS_FORMERR);
  g_assert_cmpuint (fixture->n_answers, ==, ++n);

  for (guint8 count = 0; count < 3; count += 2)
    {
      query = make_query (4, QUESTION, LENGTH_OF (QUESTION));
      query.data[5] = count;
      ask_message (fixture, &query);
      g_assert_cmpuint (fixture->n_answers, ==, ++n);
      expect_rcode (fixture, 4, NETD_DNS_FORMERR);
    }
  /* Changes of zones would come from the host. */
  query = make_query (5, QUESTION, LENGTH_OF (QUESTION));
  query.data[2] |= 5 << 3;
  ask_message (fixture, &query);
  g_assert_cmpuint (fixture->n_answers, ==, ++n);
  expect_rcode (fixture, 5, NETD_DNS_NOTIMP);
  expect_no_query (fixture, 0);

  /* The largest that there is room for is fine. */
  query = make_query (6, QUESTION, LENGTH_OF (QUESTION));
  while (query.length < 4096)
    append (&query, "x", 1);
  ask_message (fixture, &query);
  heard = expect_query (fixture, 0);
  g_assert_cmpuint (heard.length, ==, 4096);
}

static void
test_no_queries (Fixture *fixture, gconstpointer data)
{
  Message query;

  add_server (fixture, TRUE, FALSE);
  for (gsize length = 0; length < NETD_DNS_HEADER; length++)
    {
      query = make_query (1, QUESTION, LENGTH_OF (QUESTION));
      query.length = length;
      ask_message (fixture, &query);
    }
  query = make_query (2, QUESTION, LENGTH_OF (QUESTION));
  query.data[2] |= 0x80; /* an answer */
  ask_message (fixture, &query);
  query = make_query (3, QUESTION, LENGTH_OF (QUESTION));
  while (query.length < 4097)
    append (&query, "x", 1);
  ask_message (fixture, &query);
  {
    NetdPacket fragment = { .is_fragment = TRUE, .source_port = GUEST_PORT };

    netd_dns_query (fixture->dns, &fragment);
    fragment.is_fragment = FALSE;
    netd_dns_query (fixture->dns, &fragment);
  }
  expect_no_query (fixture, 0);
  g_assert_cmpuint (fixture->n_answers, ==, 0);
}

static void
test_asked_again (Fixture *fixture, gconstpointer data)
{
  Message query;
  Message first;
  Message second;

  add_server (fixture, TRUE, FALSE);
  ask (fixture, 1);
  first = expect_query (fixture, 0);
  ask (fixture, 1);
  expect_no_query (fixture, 0);

  /* Something else under the same number: the first one's answer is not for it. */
  query = make_query (1, OTHER_QUESTION, LENGTH_OF (OTHER_QUESTION));
  ask_message (fixture, &query);
  second = expect_query (fixture, 0);
  reply (fixture, 0, &first, 100);
  kit_settle (fixture->loop);
  g_assert_cmpuint (fixture->n_answers, ==, 0);
  reply (fixture, 0, &second, 100);
  KIT_TURN_UNTIL (fixture->loop, fixture->n_answers == 1);
  g_assert_cmpmem (fixture->answer.data + NETD_DNS_HEADER, LENGTH_OF (OTHER_QUESTION),
                   OTHER_QUESTION, LENGTH_OF (OTHER_QUESTION));
}

static void
test_limit (Fixture *fixture, gconstpointer data)
{
  g_autofree Message *heard = g_new0 (Message, NETD_DNS_QUERIES_MAX + 1);

  add_server (fixture, TRUE, FALSE);
  for (guint16 i = 0; i <= NETD_DNS_QUERIES_MAX; i++)
    {
      ask (fixture, i);
      heard[i] = expect_query (fixture, 0);
    }
  /* The oldest one made room. */
  reply (fixture, 0, &heard[0], 100);
  kit_settle (fixture->loop);
  g_assert_cmpuint (fixture->n_answers, ==, 0);
  for (guint16 i = 1; i <= NETD_DNS_QUERIES_MAX; i++)
    {
      reply (fixture, 0, &heard[i], 100);
      KIT_TURN_UNTIL (fixture->loop, fixture->n_answers == i);
      expect_rcode (fixture, i, 0);
    }
}

static void
test_freed_in_flight (Fixture *fixture, gconstpointer data)
{
  add_server (fixture, TRUE, TRUE);
  for (guint16 i = 0; i < 3; i++)
    ask (fixture, i);
  for (guint i = 0; i < 3; i++)
    {
      int pair[2];

      kit_unix_pair (pair);
      netd_dns_accept (fixture->dns, pair[1]);
      close (pair[0]);
    }
}

/* --- TCP --- */

static int
connect_guest (Fixture *fixture)
{
  int pair[2];

  kit_unix_pair (pair);
  netd_dns_accept (fixture->dns, pair[1]);
  return pair[0];
}

static int
accept_at (Fixture *fixture, guint index)
{
  int fd = -1;

  KIT_TURN_UNTIL (fixture->loop,
                  (fd = accept4 (fixture->tcp[index], NULL, NULL, SOCK_CLOEXEC)) >= 0);
  return fd;
}

static void
exchange (Fixture *fixture, int guest, int server)
{
  /* Two messages with their lengths in front, as they come. */
  kit_say (guest, "\x01\x03" "ask\x01\x02");
  kit_say (guest, "ok");
  kit_expect (fixture->loop, server, "\x01\x03" "ask\x01\x02" "ok");
  kit_say (server, "\x01\x06" "answer");
  kit_expect (fixture->loop, guest, "\x01\x06" "answer");
}

static void
test_stream (Fixture *fixture, gconstpointer data)
{
  int guest;
  int server;

  add_server (fixture, FALSE, TRUE);
  guest = connect_guest (fixture);
  server = accept_at (fixture, 0);
  exchange (fixture, guest, server);
  g_assert_cmpint (shutdown (guest, SHUT_WR), ==, 0);
  kit_expect_end (fixture->loop, server, 0);
  kit_say (server, "the rest");
  close (server);
  kit_expect (fixture->loop, guest, "the rest");
  kit_expect_end (fixture->loop, guest, 0);
  close (guest);
  g_assert_cmpuint (kit_count_turns (fixture->loop), <=, KIT_QUIET_TURNS);
}

static void
test_stream_refused (Fixture *fixture, gconstpointer data)
{
  int guest;
  int server;

  add_server (fixture, FALSE, FALSE);
  add_server (fixture, FALSE, TRUE);
  guest = connect_guest (fixture);
  server = accept_at (fixture, 1);
  exchange (fixture, guest, server);
  close (server);
  close (guest);

  fixture->resolvers.n_servers = 1;
  guest = connect_guest (fixture);
  kit_expect_end (fixture->loop, guest, 0);
  close (guest);
  fixture->resolvers.n_servers = 0;
  guest = connect_guest (fixture);
  kit_expect_end (fixture->loop, guest, 0);
  close (guest);
}

/* A listener whose queue is full answers no handshake. */
static void
test_stream_silent (Fixture *fixture, gconstpointer data)
{
  const NetdSocketAddress *name;
  int waiting[8];
  int guest;
  int server;

  add_server (fixture, FALSE, TRUE);
  add_server (fixture, FALSE, TRUE);
  name = &fixture->resolvers.servers[0];
  g_assert_cmpint (listen (fixture->tcp[0], 0), ==, 0);
  for (guint i = 0; i < G_N_ELEMENTS (waiting); i++)
    {
      waiting[i] = socket (AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
      if (connect (waiting[i], &name->any, sizeof name->v4) < 0)
        g_assert_cmpint (errno, ==, EINPROGRESS);
    }
  guest = connect_guest (fixture);
  kit_settle (fixture->loop);
  g_assert_cmpint (accept (fixture->tcp[1], NULL, NULL), <, 0);
  test_clock_advance (NETD_DNS_TRY_MS + 10);
  server = accept_at (fixture, 1);
  exchange (fixture, guest, server);
  close (server);
  close (guest);
  for (guint i = 0; i < G_N_ELEMENTS (waiting); i++)
    close (waiting[i]);
}

static void
test_stream_idle (Fixture *fixture, gconstpointer data)
{
  int guest;
  int server;

  add_server (fixture, FALSE, TRUE);
  guest = connect_guest (fixture);
  server = accept_at (fixture, 0);
  for (guint i = 0; i < 3; i++)
    {
      exchange (fixture, guest, server);
      g_assert_cmpuint (kit_count_turns (fixture->loop), <=, KIT_QUIET_TURNS);
      test_clock_advance (NETD_DNS_IDLE_MS * 2 / 3);
      kit_settle (fixture->loop);
    }
  exchange (fixture, guest, server);
  test_clock_advance (NETD_DNS_IDLE_MS + 100);
  kit_expect_end (fixture->loop, guest, 0);
  kit_expect_end (fixture->loop, server, -ECONNRESET);
  close (guest);
  close (server);
}

static void
test_stream_limit (Fixture *fixture, gconstpointer data)
{
  int guests[NETD_DNS_CONNECTIONS_MAX];
  int servers[NETD_DNS_CONNECTIONS_MAX];
  int one_more;

  add_server (fixture, FALSE, TRUE);
  for (guint i = 0; i < NETD_DNS_CONNECTIONS_MAX; i++)
    {
      guests[i] = connect_guest (fixture);
      servers[i] = accept_at (fixture, 0);
    }
  one_more = connect_guest (fixture);
  g_assert_cmpint (kit_peek (one_more), ==, 0);
  close (one_more);
  close (guests[0]);
  kit_expect_end (fixture->loop, servers[0], 0);
  close (servers[0]);
  kit_settle (fixture->loop);
  guests[0] = connect_guest (fixture);
  servers[0] = accept_at (fixture, 0);
  exchange (fixture, guests[0], servers[0]);
  for (guint i = 0; i < NETD_DNS_CONNECTIONS_MAX; i++)
    {
      close (guests[i]);
      close (servers[i]);
    }
}

int
main (int argc, char **argv)
{
  static const struct
  {
    const char *name;
    void (*test) (Fixture *fixture, gconstpointer data);
  } tests[] = {
    { "/netd/dns/answered", test_answered },
    { "/netd/dns/unpredictable", test_unpredictable },
    { "/netd/dns/lies", test_lies },
    { "/netd/dns/truncated", test_truncated },
    { "/netd/dns/refused", test_refused },
    { "/netd/dns/all-refused", test_all_refused },
    { "/netd/dns/unreachable", test_unreachable },
    { "/netd/dns/silent", test_silent },
    { "/netd/dns/no-help", test_no_help },
    { "/netd/dns/servers-change", test_servers_change },
    { "/netd/dns/servers-change-in-flight", test_servers_change_in_flight },
    { "/netd/dns/v6", test_v6 },
    { "/netd/dns/bad-queries", test_bad_queries },
    { "/netd/dns/no-queries", test_no_queries },
    { "/netd/dns/asked-again", test_asked_again },
    { "/netd/dns/limit", test_limit },
    { "/netd/dns/freed-in-flight", test_freed_in_flight },
    { "/netd/dns/stream/exchange", test_stream },
    { "/netd/dns/stream/refused", test_stream_refused },
    { "/netd/dns/stream/silent", test_stream_silent },
    { "/netd/dns/stream/idle", test_stream_idle },
    { "/netd/dns/stream/limit", test_stream_limit },
  };

  g_test_init (&argc, &argv, NULL);
  for (guint i = 0; i < G_N_ELEMENTS (tests); i++)
    g_test_add (tests[i].name, Fixture, NULL, set_up, tests[i].test, tear_down);
  return g_test_run ();
}

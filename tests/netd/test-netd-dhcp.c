/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* DHCP: whole exchanges byte by byte as clients send them, who is answered, and what damaged
 * messages come to. */
#include "netd-dhcp.h"

#include <string.h>

#define LEASE_IP NETD_IP (192, 168, 127, 2)
#define GATEWAY_IP NETD_IP (192, 168, 127, 1)
#define EVERYONE G_MAXUINT32
#define AT_OPTIONS 240

static const NetdMac lease_mac = { { 0x02, 0xde, 0xc0, 0xa8, 0x7f, 0x02 } };
static const NetdMac other_mac = { { 0x02, 0xde, 0xc0, 0xa8, 0x7f, 0x03 } };
static const NetdMac gateway_mac = { { 0x02, 0xde, 0xc0, 0xa8, 0x7f, 0x01 } };

/* Options as clients send them. */
/* clang-format off */
/* systemd-networkd: type, client id from the machine id, parameter list, maximum size, host name */
static const guint8 networkd_discover[] = {
  53, 1, 1,
  61, 19, 0xff, 0xb6, 0x22, 0x0f, 0xeb, 0x00, 0x02, 0x00, 0x00, 0xab, 0x11, 1, 2, 3, 4, 5, 6, 7, 8,
  55, 9, 1, 3, 6, 12, 15, 26, 42, 119, 121,
  57, 2, 0x05, 0xc0,
  12, 4, 'v', 'm', '-', '1',
  255,
};
/* ... its choice of the offer */
static const guint8 networkd_request[] = {
  53, 1, 3,
  61, 19, 0xff, 0xb6, 0x22, 0x0f, 0xeb, 0x00, 0x02, 0x00, 0x00, 0xab, 0x11, 1, 2, 3, 4, 5, 6, 7, 8,
  55, 9, 1, 3, 6, 12, 15, 26, 42, 119, 121,
  54, 4, 192, 168, 127, 1,
  50, 4, 192, 168, 127, 2,
  255,
};
/* udhcpc: padding between options and behind the end */
static const guint8 udhcpc_discover[] = {
  53, 1, 1, 0, 0,
  61, 7, 1, 0x02, 0xde, 0xc0, 0xa8, 0x7f, 0x02,
  57, 2, 0x02, 0x40, 55, 3, 1, 3, 6, 60, 5, 'u', 'd', 'h', 'c', 'p',
  255, 0, 0, 0, 0,
};
/* A client that comes back with the address of another network. */
static const guint8 reboot_request[] = { 53, 1, 3, 50, 4, 10, 0, 0, 77, 255 };
static const guint8 renew_request[] = { 53, 1, 3, 255 };
static const guint8 inform[] = { 53, 1, 8, 55, 2, 6, 119, 255 };
static const guint8 other_server_request[] = { 53, 1, 3, 54, 4, 192, 168, 127, 3, 255 };
static const guint8 relayed_discover[] = { 53, 1, 1, 82, 6, 1, 4, 'p', 'o', 'r', 't', 255 };

/* The options of the offer to the first one, in a network with MTU 1500 and a search domain. */
static const guint8 offer_options[] = {
  53, 1, 2,
  54, 4, 192, 168, 127, 1,
  51, 4, 0x00, 0x00, 0x0e, 0x10,
  1, 4, 255, 255, 255, 0,
  3, 4, 192, 168, 127, 1,
  6, 4, 192, 168, 127, 1,
  26, 2, 0x05, 0xdc,
  119, 17, 3, 'l', 'a', 'b', 7, 'e', 'x', 'a', 'm', 'p', 'l', 'e', 3, 'c', 'o', 'm', 0,
  61, 19, 0xff, 0xb6, 0x22, 0x0f, 0xeb, 0x00, 0x02, 0x00, 0x00, 0xab, 0x11, 1, 2, 3, 4, 5, 6, 7, 8,
  255,
};
/* clang-format on */

typedef struct
{
  guint8 message[2048];
  gsize length;
  guint32 source;
  guint32 destination;
} Client;

typedef struct
{
  guint8 frame[2048];
  gsize length;
  NetdPacket packet;
} Answer;

static NetdPlan
make_plan (const char *domain)
{
  NetdPlan plan = {
    .network = NETD_IP (192, 168, 127, 0),
    .netmask = 0xffffff00,
    .gateway = GATEWAY_IP,
    .broadcast = NETD_IP (192, 168, 127, 255),
    .host_alias = NETD_IP (192, 168, 127, 254),
    .gateway_mac = gateway_mac,
    .mtu = 1500,
    .search_domain = (char *) domain,
  };

  return plan;
}

static void
client_init (Client *client, const guint8 *options, gsize length)
{
  static const guint8 head[] = { 1, 1, 6, 0, 0xde, 0xad, 0xbe, 0xef, 0, 3 };
  static const guint8 cookie[] = { 99, 130, 83, 99 };

  memset (client, 0, sizeof *client);
  memcpy (client->message, head, sizeof head);
  memcpy (client->message + 28, lease_mac.octets, 6);
  memcpy (client->message + 236, cookie, sizeof cookie);
  memcpy (client->message + AT_OPTIONS, options, length);
  client->length = AT_OPTIONS + length;
  client->destination = EVERYONE;
}

/* Asks; TRUE when there is an answer that is right in everything that is always the same. */
static gboolean
ask_with (const NetdPlan *plan, const Client *client, Answer *answer, gsize size)
{
  NetdUdpAddress address = {
    .source_mac = lease_mac,
    .destination_mac = gateway_mac,
    .source = client->source,
    .destination = client->destination,
    .source_port = 68,
    .destination_port = 67,
  };
  guint8 frame[4096];
  gsize length
      = netd_packet_build_udp (frame, sizeof frame, &address, client->message, client->length);
  g_autofree guint8 *request = g_memdup2 (frame, length);
  NetdPacket packet;

  g_assert_cmpint (netd_packet_parse (&packet, request, length), ==, NETD_PACKET_IPV4);
  g_assert_true (netd_dhcp_is_request (&packet));
  answer->length = netd_dhcp_answer (plan, &lease_mac, LEASE_IP, &packet, answer->frame, size);
  if (answer->length == 0)
    return FALSE;

  g_assert_cmpuint (answer->length, <=, size);
  g_assert_cmpint (netd_packet_parse (&answer->packet, answer->frame, answer->length), ==,
                   NETD_PACKET_IPV4);
  g_assert_true (netd_mac_equal (&answer->packet.source, &gateway_mac));
  g_assert_cmphex (answer->packet.ip_source, ==, GATEWAY_IP);
  g_assert_cmpuint (answer->packet.source_port, ==, 67);
  g_assert_cmpuint (answer->packet.destination_port, ==, 68);
  g_assert_cmpuint (answer->packet.payload_length, >=, 300);
  g_assert_cmpuint (answer->packet.payload[0], ==, 2);
  g_assert_cmpmem (answer->packet.payload + 4, 4, client->message + 4, 4);
  g_assert_cmpmem (answer->packet.payload + 28, 6, lease_mac.octets, 6);
  g_assert_cmpmem (answer->packet.payload + 236, 4, client->message + 236, 4);
  return TRUE;
}

static gboolean
ask (const NetdPlan *plan, const Client *client, Answer *answer)
{
  return ask_with (plan, client, answer, sizeof answer->frame);
}

/* NULL when there is none. */
static const guint8 *
find_option (const Answer *answer, guint8 code)
{
  const guint8 *message = answer->packet.payload;
  gsize at = AT_OPTIONS;

  while (message[at] != 255)
    {
      if (message[at] == code)
        return message + at + 1;
      at += 2 + (gsize) message[at + 1];
      g_assert_cmpuint (at, <, answer->packet.payload_length);
    }
  return NULL;
}

static void
assert_option (const Answer *answer, guint8 code, const void *data, gsize length)
{
  const guint8 *option = find_option (answer, code);

  g_assert_nonnull (option);
  g_assert_cmpmem (option + 1, option[0], data, length);
}

static void
test_exchange (void)
{
  NetdPlan plan = make_plan ("lab.example.com");
  guint8 yours[4] = { 192, 168, 127, 2 };
  guint8 nothing[4] = { 0 };
  Client client;
  Answer answer;
  guint8 type = 5;

  client_init (&client, networkd_discover, sizeof networkd_discover);
  g_assert_true (ask (&plan, &client, &answer));
  g_assert_cmpmem (answer.packet.payload + 12, 4, nothing, 4);
  g_assert_cmpmem (answer.packet.payload + 16, 4, yours, 4);
  g_assert_cmpmem (answer.packet.payload + AT_OPTIONS, sizeof offer_options, offer_options,
                   sizeof offer_options);
  /* The client has no address: a broadcast, to its card. */
  g_assert_cmphex (answer.packet.ip_destination, ==, EVERYONE);
  g_assert_true (netd_mac_equal (&answer.packet.destination, &lease_mac));

  client_init (&client, networkd_request, sizeof networkd_request);
  g_assert_true (ask (&plan, &client, &answer));
  assert_option (&answer, 53, &type, 1);
  g_assert_cmpmem (answer.packet.payload + 16, 4, yours, 4);
  g_assert_cmpmem (answer.packet.payload + AT_OPTIONS + 3, sizeof offer_options - 3,
                   offer_options + 3, sizeof offer_options - 3);

  client_init (&client, udhcpc_discover, sizeof udhcpc_discover);
  g_assert_true (ask (&plan, &client, &answer));
  assert_option (&answer, 61, udhcpc_discover + 7, 7);
}

/* Whatever address it asks for, a client is given its own. */
static void
test_request (void)
{
  NetdPlan plan = make_plan (NULL);
  guint8 yours[4] = { 192, 168, 127, 2 };
  guint8 type = 5;
  Client client;
  Answer answer;

  client_init (&client, reboot_request, sizeof reboot_request);
  g_assert_true (ask (&plan, &client, &answer));
  g_assert_cmpmem (answer.packet.payload + 16, 4, yours, 4);
  assert_option (&answer, 53, &type, 1);
  g_assert_null (find_option (&answer, 119));
  g_assert_null (find_option (&answer, 61));
  g_assert_null (find_option (&answer, 82));

  /* A renewal is answered where the client is. */
  client_init (&client, renew_request, sizeof renew_request);
  memcpy (client.message + 12, yours, 4);
  client.source = LEASE_IP;
  client.destination = GATEWAY_IP;
  g_assert_true (ask (&plan, &client, &answer));
  g_assert_cmphex (answer.packet.ip_destination, ==, LEASE_IP);
  g_assert_true (netd_mac_equal (&answer.packet.destination, &lease_mac));
  g_assert_cmpmem (answer.packet.payload + 12, 4, yours, 4);
  g_assert_cmpmem (answer.packet.payload + 16, 4, yours, 4);

  client_init (&client, other_server_request, sizeof other_server_request);
  g_assert_false (ask (&plan, &client, &answer));
}

static void
test_inform (void)
{
  NetdPlan plan = make_plan ("lab");
  guint8 nothing[4] = { 0 };
  guint8 type = 5;
  Client client;
  Answer answer;

  client_init (&client, inform, sizeof inform);
  client.source = LEASE_IP;
  g_assert_true (ask (&plan, &client, &answer));
  assert_option (&answer, 53, &type, 1);
  assert_option (&answer, 119, "\003lab", 5);
  g_assert_null (find_option (&answer, 51));
  g_assert_cmpmem (answer.packet.payload + 16, 4, nothing, 4);
}

static void
test_broadcast (void)
{
  NetdPlan plan = make_plan (NULL);
  Client client;
  Answer answer;

  client_init (&client, networkd_discover, sizeof networkd_discover);
  client.message[10] = 0x80;
  g_assert_true (ask (&plan, &client, &answer));
  g_assert_true (netd_packet_is_broadcast (&answer.packet));
  g_assert_cmphex (answer.packet.ip_destination, ==, EVERYONE);
  g_assert_cmpuint (answer.packet.payload[10], ==, 0x80);

  /* Not for who has an address. */
  client.source = LEASE_IP;
  client.message[12] = 192;
  g_assert_true (ask (&plan, &client, &answer));
  g_assert_true (netd_mac_equal (&answer.packet.destination, &lease_mac));
  g_assert_cmphex (answer.packet.ip_destination, ==, LEASE_IP);

  /* Never to an address that is not the lease's. */
  client.source = NETD_IP (192, 168, 127, 3);
  g_assert_true (ask (&plan, &client, &answer));
  g_assert_cmphex (answer.packet.ip_destination, ==, EVERYONE);
}

static void
test_mtu (void)
{
  static const guint mtus[] = { 1500, 9000, 65520 };
  NetdPlan plan = make_plan (NULL);
  Client client;
  Answer answer;

  client_init (&client, networkd_discover, sizeof networkd_discover);
  for (guint i = 0; i < G_N_ELEMENTS (mtus); i++)
    {
      guint8 expected[2] = { (guint8) (mtus[i] >> 8), (guint8) mtus[i] };

      plan.mtu = mtus[i];
      g_assert_true (ask (&plan, &client, &answer));
      assert_option (&answer, 26, expected, 2);
    }
}

static void
test_domains (void)
{
  static const struct
  {
    const char *domain;
    const char *encoded; /* without the last zero, or NULL */
  } cases[] = {
    { "lab", "\003lab" },
    { "a.b", "\001a\001b" },
    { "a.b.", "\001a\001b" },
    { "", NULL },
    { ".", NULL },
    { "a..b", NULL },
    { ".a", NULL },
    { "aaaaaaaaaabbbbbbbbbbccccccccccddddddddddeeeeeeeeeeffffffffffgggg", NULL },
  };
  g_autoptr (GString) longest = g_string_new ("a.b");
  Client client;
  Answer answer;

  client_init (&client, networkd_discover, sizeof networkd_discover);
  for (guint i = 0; i < G_N_ELEMENTS (cases); i++)
    {
      NetdPlan plan = make_plan (cases[i].domain);

      g_assert_true (ask (&plan, &client, &answer));
      if (cases[i].encoded != NULL)
        assert_option (&answer, 119, cases[i].encoded, strlen (cases[i].encoded) + 1);
      else
        g_assert_null (find_option (&answer, 119));
    }

  /* 255 bytes are the most that an option holds, and 255 more in the client id. */
  while (longest->len < 253)
    g_string_append (longest, ".a");
  for (guint more = 0; more < 2; more++)
    {
      NetdPlan plan = make_plan (longest->str);

      g_assert_true (ask (&plan, &client, &answer));
      g_assert_cmpint (find_option (&answer, 119) != NULL, ==, more == 0);
      g_string_append (longest, ".a");
    }
}

static void
test_echoes (void)
{
  NetdPlan plan = make_plan ("lab");
  guint8 options[3 + 257 * 3 + 1];
  Client client;
  Answer answer;

  client_init (&client, relayed_discover, sizeof relayed_discover);
  client.message[24] = 9;
  g_assert_true (ask (&plan, &client, &answer));
  assert_option (&answer, 82, relayed_discover + 5, 6);
  g_assert_cmpuint (answer.packet.payload[24], ==, 9);

  /* The largest of both, and a second client id that is not taken. */
  memset (options, 7, sizeof options);
  memcpy (options, networkd_discover, 3);
  options[3] = 61;
  options[4] = 255;
  options[260] = 82;
  options[261] = 255;
  options[517] = 61;
  options[518] = 255;
  options[519] = 8;
  options[774] = 255;
  client_init (&client, options, sizeof options);
  g_assert_true (ask (&plan, &client, &answer));
  assert_option (&answer, 61, options + 5, 255);
  assert_option (&answer, 82, options + 262, 255);

  /* The reply is bounded by the room there is. */
  g_assert_false (ask_with (&plan, &client, &answer, answer.length - 1));
  g_assert_true (ask (&plan, &client, &answer));
  g_assert_true (ask_with (&plan, &client, &answer, answer.length));
  g_assert_false (ask_with (&plan, &client, &answer, 0));
}

static void
test_silence (void)
{
  static const guint8 silent_types[] = { 0, 2, 4, 5, 6, 7, 9, 13, 255 };
  NetdPlan plan = make_plan (NULL);
  Client client;
  Answer answer;
  /* What to change in a good message, one by one. */
  static const gsize places[] = { 0, 1, 2, 28, 33, 236, 239 };

  for (guint i = 0; i < G_N_ELEMENTS (silent_types); i++)
    {
      client_init (&client, renew_request, sizeof renew_request);
      client.message[AT_OPTIONS + 2] = silent_types[i];
      g_assert_false (ask (&plan, &client, &answer));
    }
  for (guint i = 0; i < G_N_ELEMENTS (places); i++)
    {
      client_init (&client, networkd_discover, sizeof networkd_discover);
      client.message[places[i]] ^= 0x04;
      g_assert_false (ask (&plan, &client, &answer));
    }
  client_init (&client, networkd_discover, sizeof networkd_discover);
  memcpy (client.message + 28, other_mac.octets, 6);
  g_assert_false (ask (&plan, &client, &answer));

  client_init (&client, networkd_discover, sizeof networkd_discover);
  client.destination = NETD_IP (192, 168, 127, 3);
  g_assert_false (ask (&plan, &client, &answer));
  client.destination = GATEWAY_IP;
  g_assert_true (ask (&plan, &client, &answer));
}

/* A list without an end, options that reach beyond the message, a type of wrong size, none at all.
 */
static void
test_malformed_options (void)
{
  static const guint8 no_end[] = { 53, 1, 1 };
  static const guint8 no_length[] = { 53, 1, 1, 61 };
  static const guint8 too_long[] = { 53, 1, 1, 61, 200, 1, 255 };
  static const guint8 over_the_end[] = { 53, 1, 1, 61, 2, 1, 255 };
  static const guint8 long_type[] = { 53, 2, 1, 1, 255 };
  static const guint8 no_type[] = { 61, 1, 1, 255 };
  static const guint8 empty_type[] = { 53, 0, 255 };
  static const guint8 overload[] = { 52, 1, 3, 255 };
  static const struct
  {
    const guint8 *options;
    gsize length;
  } cases[] = {
    { no_end, sizeof no_end },
    { no_length, sizeof no_length },
    { too_long, sizeof too_long },
    { over_the_end, sizeof over_the_end },
    { long_type, sizeof long_type },
    { no_type, sizeof no_type },
    { empty_type, sizeof empty_type },
    { overload, sizeof overload },
    { no_end, 0 },
  };
  NetdPlan plan = make_plan (NULL);
  Client client;
  Answer answer;

  for (guint i = 0; i < G_N_ELEMENTS (cases); i++)
    {
      client_init (&client, cases[i].options, cases[i].length);
      /* A type in a field that overload would make an option list. */
      memcpy (client.message + 44, renew_request, sizeof renew_request);
      g_assert_false (ask (&plan, &client, &answer));
    }
  for (gsize length = 0; length < AT_OPTIONS + sizeof networkd_discover; length++)
    {
      client_init (&client, networkd_discover, sizeof networkd_discover);
      client.length = length;
      g_assert_false (ask (&plan, &client, &answer));
    }
}

static void
test_mutated (void)
{
  NetdPlan plan = make_plan ("lab.example.com");
  g_autoptr (GRand) rand = g_rand_new_with_seed (2131);
  guint n_answers = 0;

  for (guint round = 0; round < 50000; round++)
    {
      guint n_changes = (guint) g_rand_int_range (rand, 0, 8);
      Client client;
      Answer answer;

      client_init (&client, networkd_request, sizeof networkd_request);
      client.length = (gsize) g_rand_int_range (rand, AT_OPTIONS, AT_OPTIONS + 400);
      for (guint i = 0; i < n_changes; i++)
        {
          gint32 at = g_rand_int_range (rand, 44, (gint32) client.length);

          client.message[at] = (guint8) g_rand_int (rand);
        }
      if (ask_with (&plan, &client, &answer, (gsize) g_rand_int_range (rand, 0, 1400)))
        n_answers++;
    }
  g_assert_cmpuint (n_answers, >, 1000);
}

static void
test_other_packets (void)
{
  NetdUdpAddress address = { .source = LEASE_IP, .source_port = 68, .destination_port = 53 };
  NetdPlan plan = make_plan (NULL);
  guint8 frame[600];
  guint8 reply[600];
  Client client;
  NetdPacket packet;
  gsize length;

  client_init (&client, networkd_discover, sizeof networkd_discover);
  length = netd_packet_build_udp (frame, sizeof frame, &address, client.message, client.length);
  netd_packet_parse (&packet, frame, length);
  g_assert_false (netd_dhcp_is_request (&packet));
  g_assert_cmpuint (netd_dhcp_answer (&plan, &lease_mac, LEASE_IP, &packet, reply, 600), ==, 0);
  frame[37] = 67;
  netd_packet_parse (&packet, frame, length);
  g_assert_true (netd_dhcp_is_request (&packet));
  frame[23] = 6;
  netd_packet_parse (&packet, frame, length);
  g_assert_false (netd_dhcp_is_request (&packet));
  netd_packet_parse (&packet, frame, 3);
  g_assert_false (netd_dhcp_is_request (&packet));
  g_assert_cmpuint (netd_dhcp_answer (&plan, &lease_mac, LEASE_IP, &packet, reply, 600), ==, 0);
}

int
main (int argc, char **argv)
{
  g_test_init (&argc, &argv, NULL);
  g_test_add_func ("/netd/dhcp/exchange", test_exchange);
  g_test_add_func ("/netd/dhcp/request", test_request);
  g_test_add_func ("/netd/dhcp/inform", test_inform);
  g_test_add_func ("/netd/dhcp/broadcast", test_broadcast);
  g_test_add_func ("/netd/dhcp/mtu", test_mtu);
  g_test_add_func ("/netd/dhcp/domains", test_domains);
  g_test_add_func ("/netd/dhcp/echoes", test_echoes);
  g_test_add_func ("/netd/dhcp/silence", test_silence);
  g_test_add_func ("/netd/dhcp/malformed-options", test_malformed_options);
  g_test_add_func ("/netd/dhcp/mutated", test_mutated);
  g_test_add_func ("/netd/dhcp/other-packets", test_other_packets);
  return g_test_run ();
}

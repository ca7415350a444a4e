/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Name servers out of resolv.conf(5): what is taken, what is passed over, and how many. */

#include "netd-resolvers.h"

#include <arpa/inet.h>
#include <net/if.h>
#include <string.h>

static char *
to_text (const NetdResolvers *resolvers)
{
  g_autoptr (GString) text = g_string_new (NULL);

  for (guint i = 0; i < resolvers->n_servers; i++)
    {
      const NetdSocketAddress *server = &resolvers->servers[i];
      char address[INET6_ADDRSTRLEN];

      g_assert_cmpuint (netd_socket_address_get_port (server), ==, 53);
      g_string_append (text, i > 0 ? " " : "");
      if (server->any.sa_family == AF_INET)
        {
          g_assert_cmpuint (netd_socket_address_length (server), ==, sizeof server->v4);
          g_string_append (text,
                           inet_ntop (AF_INET, &server->v4.sin_addr, address, sizeof address));
          continue;
        }
      g_assert_cmpint (server->any.sa_family, ==, AF_INET6);
      g_assert_cmpuint (netd_socket_address_length (server), ==, sizeof server->v6);
      g_string_append (text, inet_ntop (AF_INET6, &server->v6.sin6_addr, address, sizeof address));
      if (server->v6.sin6_scope_id != 0)
        g_string_append_printf (text, "%%%u", server->v6.sin6_scope_id);
    }
  return g_string_free (g_steal_pointer (&text), FALSE);
}

static void
test_parse (void)
{
  static const struct
  {
    const char *text;
    const char *servers;
  } cases[] = {
    { "nameserver 192.0.2.1\n", "192.0.2.1" },
    { "nameserver 192.0.2.1", "192.0.2.1" },
    { "# comment\n; comment\nsearch example.org\noptions edns0 trust-ad\n"
      "nameserver 127.0.0.53\n",
      "127.0.0.53" },
    { "nameserver\t 192.0.2.1  \r\n nameserver 192.0.2.2 # with a comment\n",
      "192.0.2.1 192.0.2.2" },
    { "nameserver 2001:db8::53\nnameserver 192.0.2.1\n", "2001:db8::53 192.0.2.1" },
    { "nameserver fe80::1%3\n", "fe80::1%3" },
    /* What is no literal address is passed over and takes nobody's place. */
    { "nameserver fe80::1%eth0\nnameserver 192.0.2.1\n", "192.0.2.1" },
    { "nameserver fe80::1%\nnameserver fe80::1%0\nnameserver fe80::1%99999999999\nnameserver ::2\n",
      "::2" },
    { "nameserver dns.example.org\nnameserver 192.0.2.300\nnameserver 192.0.2\nnameserver\n"
      "nameserver \nnameservers 192.0.2.8\nnameserver192.0.2.9\nnameserver 192.0.2.1\n",
      "192.0.2.1" },
    { "nameserver 192.0.2.1%1\nnameserver 192.0.2.2\n", "192.0.2.2" },
    /* At most three. */
    { "nameserver 192.0.2.1\nnameserver 192.0.2.2\nnameserver 192.0.2.3\nnameserver 192.0.2.4\n",
      "192.0.2.1 192.0.2.2 192.0.2.3" },
    /* None means this machine. */
    { "", "127.0.0.1" },
    { "\n\n#nameserver 192.0.2.1\n", "127.0.0.1" },
    { "nameserver nonsense", "127.0.0.1" },
  };

  for (guint i = 0; i < G_N_ELEMENTS (cases); i++)
    {
      NetdResolvers resolvers;
      g_autofree char *servers = NULL;

      memset (&resolvers, 0xff, sizeof resolvers);
      netd_resolvers_parse (&resolvers, cases[i].text);
      servers = to_text (&resolvers);
      g_assert_cmpstr (servers, ==, cases[i].servers);
    }
}

/* Equal servers are equal bytes: that is how a change is noticed. */
static void
test_comparable (void)
{
  NetdResolvers one;
  NetdResolvers two;

  memset (&one, 0x55, sizeof one);
  memset (&two, 0xaa, sizeof two);
  netd_resolvers_parse (&one, "nameserver fe80::1%bad\nnameserver 192.0.2.1\nnameserver ::1\n");
  netd_resolvers_parse (&two, "nameserver 192.0.2.1\nnameserver ::1\nnameserver x\n");
  g_assert_cmpmem (&one, sizeof one, &two, sizeof two);
}

static void
test_number_scopes (void)
{
  guint loopback = if_nametoindex ("lo");
  g_autofree char *expected = NULL;
  g_autofree char *numbered = NULL;
  g_autofree char *untouched = NULL;
  static const char plain[]
      = "search x%lo\nnameserver 192.0.2.1\nnameserver fe80::1%7\n"
        "nameserver fe80::1%no-such-interface-here\nnameserver fe80::1%nosuch\n";

  g_assert_cmpuint (loopback, >, 0);
  numbered = netd_resolvers_number_scopes ("search a\nnameserver fe80::1%lo # x\nnameserver ::2\n");
  expected = g_strdup_printf ("search a\nnameserver fe80::1%%%u\nnameserver ::2\n", loopback);
  g_assert_cmpstr (numbered, ==, expected);
  untouched = netd_resolvers_number_scopes (plain);
  g_assert_cmpstr (untouched, ==, plain);
}

int
main (int argc, char **argv)
{
  g_test_init (&argc, &argv, NULL);
  g_test_add_func ("/netd/resolvers/parse", test_parse);
  g_test_add_func ("/netd/resolvers/comparable", test_comparable);
  g_test_add_func ("/netd/resolvers/number-scopes", test_number_scopes);
  return g_test_run ();
}

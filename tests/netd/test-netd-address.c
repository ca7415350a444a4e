/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Addresses: what is one, what is not, and back to text. */
#include "netd-address.h"

static void
test_mac (void)
{
  static const char *const wrong[] = {
    "",
    "02:de:c0:a8:7f",
    "02:de:c0:a8:7f:0",
    "02:de:c0:a8:7f:022",
    "02:de:c0:a8:7f:02:",
    "02-de-c0-a8-7f-02",
    "02:de:c0:a8:7f:0g",
    " 2:de:c0:a8:7f:02",
    "02:de:c0:a8:7f 02",
    "02de.c0a8.7f02...",
  };
  NetdMac mac = { { 0 } };
  NetdMac other;
  char text[18];

  g_assert_true (netd_mac_parse ("02:de:c0:a8:7f:0A", &mac));
  netd_mac_to_text (&mac, text);
  g_assert_cmpstr (text, ==, "02:de:c0:a8:7f:0a");

  other = mac;
  g_assert_true (netd_mac_equal (&mac, &other));
  for (guint i = 0; i < 6; i++)
    {
      other = mac;
      other.octets[i] ^= 0x80;
      g_assert_false (netd_mac_equal (&mac, &other));
    }

  g_assert_false (netd_mac_parse (NULL, &other));
  for (guint i = 0; i < G_N_ELEMENTS (wrong); i++)
    {
      other = mac;
      g_assert_false (netd_mac_parse (wrong[i], &other));
      g_assert_true (netd_mac_equal (&mac, &other));
    }
}

static void
test_ip (void)
{
  static const char *const wrong[]
      = { "",         "1.2.3",    "1.2.3.4.5",  "256.0.0.1", "1.2.3.04", "0x1.2.3.4",
          " 1.2.3.4", "1.2.3.4 ", "1.2.3.4/24", "::1",       "16909060", "1.2.3.-4" };
  guint32 ip = 77;
  char text[16];

  g_assert_false (netd_ip_parse (NULL, &ip));
  for (guint i = 0; i < G_N_ELEMENTS (wrong); i++)
    g_assert_false (netd_ip_parse (wrong[i], &ip));
  g_assert_cmpuint (ip, ==, 77);

  g_assert_true (netd_ip_parse ("192.168.127.2", &ip));
  g_assert_cmphex (ip, ==, NETD_IP (192, 168, 127, 2));
  g_assert_true (netd_ip_parse ("255.255.255.255", &ip));
  netd_ip_to_text (ip, text);
  g_assert_cmpstr (text, ==, "255.255.255.255");
  netd_ip_to_text (NETD_IP (10, 0, 200, 3), text);
  g_assert_cmpstr (text, ==, "10.0.200.3");
}

static void
test_cidr (void)
{
  static const char *const wrong[] = { "",
                                       "10.0.0.0",
                                       "10.0.0.0/",
                                       "10.0.0.0/33",
                                       "10.0.0.0/-1",
                                       "10.0.0.0/024",
                                       "10.0.0.0/08",
                                       "10.0.0.0/2x",
                                       "/24",
                                       "10.0.0/24",
                                       "10.0.0.0/ 24",
                                       "1234567890123456/8" };
  guint32 network = 1;
  guint32 netmask = 2;

  g_assert_false (netd_cidr_parse (NULL, &network, &netmask));
  for (guint i = 0; i < G_N_ELEMENTS (wrong); i++)
    g_assert_false (netd_cidr_parse (wrong[i], &network, &netmask));
  g_assert_cmpuint (network, ==, 1);
  g_assert_cmpuint (netmask, ==, 2);

  g_assert_true (netd_cidr_parse ("10.0.0.77/24", &network, &netmask));
  g_assert_cmphex (network, ==, NETD_IP (10, 0, 0, 0));
  g_assert_cmphex (netmask, ==, 0xffffff00);
  g_assert_true (netd_cidr_parse ("10.9.9.7/29", &network, &netmask));
  g_assert_cmphex (network, ==, NETD_IP (10, 9, 9, 0));
  g_assert_cmphex (netmask, ==, 0xfffffff8);
  g_assert_true (netd_cidr_parse ("1.2.3.4/32", &network, &netmask));
  g_assert_cmphex (netmask, ==, 0xffffffff);
  g_assert_true (netd_cidr_parse ("1.2.3.4/0", &network, &netmask));
  g_assert_cmphex (network, ==, 0);
  g_assert_cmphex (netmask, ==, 0);
}

int
main (int argc, char **argv)
{
  g_test_init (&argc, &argv, NULL);
  g_test_add_func ("/netd/address/mac", test_mac);
  g_test_add_func ("/netd/address/ip", test_ip);
  g_test_add_func ("/netd/address/cidr", test_cidr);
  return g_test_run ();
}

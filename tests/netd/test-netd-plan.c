/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Where a packet may go: each range that is closed, its edges, and what opens with the options. */
#include "netd-plan.h"

static NetdPlan
make_plan (gboolean enable_imds, gboolean enable_host_alias)
{
  NetdPlan plan = {
    .network = NETD_IP (192, 168, 127, 0),
    .netmask = 0xffffff00,
    .gateway = NETD_IP (192, 168, 127, 1),
    .broadcast = NETD_IP (192, 168, 127, 255),
    .host_alias = NETD_IP (192, 168, 127, 254),
    .mtu = 1500,
    .enable_imds = enable_imds,
    .enable_host_alias = enable_host_alias,
  };

  return plan;
}

static NetdPlace
place (const NetdPlan *plan, const char *text)
{
  guint32 ip = 0;

  g_assert_true (netd_ip_parse (text, &ip));
  return netd_plan_place (plan, ip);
}

static void
test_ranges (void)
{
  /* clang-format off */
  static const struct
  {
    const char *destination;
    NetdPlace place;
  } cases[] = {
    { "192.168.127.1", NETD_PLACE_GATEWAY },
    { "192.168.127.0", NETD_PLACE_FORBIDDEN },
    { "192.168.127.2", NETD_PLACE_FORBIDDEN },
    { "192.168.127.254", NETD_PLACE_FORBIDDEN },
    { "192.168.127.255", NETD_PLACE_FORBIDDEN },
    { "192.168.126.255", NETD_PLACE_OUTSIDE },
    { "192.168.128.0", NETD_PLACE_OUTSIDE },
    { "0.0.0.0", NETD_PLACE_FORBIDDEN },
    { "0.255.255.255", NETD_PLACE_FORBIDDEN },
    { "1.0.0.0", NETD_PLACE_OUTSIDE },
    { "10.0.0.1", NETD_PLACE_OUTSIDE },
    { "126.255.255.255", NETD_PLACE_OUTSIDE },
    { "127.0.0.0", NETD_PLACE_FORBIDDEN },
    { "127.0.0.1", NETD_PLACE_FORBIDDEN },
    { "127.255.255.255", NETD_PLACE_FORBIDDEN },
    { "128.0.0.0", NETD_PLACE_OUTSIDE },
    { "169.253.255.255", NETD_PLACE_OUTSIDE },
    { "169.254.0.0", NETD_PLACE_FORBIDDEN },
    { "169.254.169.253", NETD_PLACE_FORBIDDEN },
    { "169.254.169.254", NETD_PLACE_FORBIDDEN },
    { "169.254.169.255", NETD_PLACE_FORBIDDEN },
    { "169.254.255.255", NETD_PLACE_FORBIDDEN },
    { "169.255.0.0", NETD_PLACE_OUTSIDE },
    { "223.255.255.255", NETD_PLACE_OUTSIDE },
    { "224.0.0.0", NETD_PLACE_FORBIDDEN },
    { "239.255.255.250", NETD_PLACE_FORBIDDEN },
    { "240.0.0.0", NETD_PLACE_FORBIDDEN },
    { "255.255.255.254", NETD_PLACE_FORBIDDEN },
    { "255.255.255.255", NETD_PLACE_FORBIDDEN },
  };
  /* clang-format on */
  NetdPlan plan = make_plan (FALSE, FALSE);

  for (guint i = 0; i < G_N_ELEMENTS (cases); i++)
    {
      g_test_message ("%s", cases[i].destination);
      g_assert_cmpint (place (&plan, cases[i].destination), ==, cases[i].place);
    }
}

static void
test_options (void)
{
  NetdPlan plan = make_plan (TRUE, FALSE);

  g_assert_cmpint (place (&plan, "169.254.169.254"), ==, NETD_PLACE_METADATA);
  g_assert_cmpint (place (&plan, "169.254.169.253"), ==, NETD_PLACE_FORBIDDEN);
  g_assert_cmpint (place (&plan, "169.254.169.123"), ==, NETD_PLACE_FORBIDDEN);
  g_assert_cmpint (place (&plan, "192.168.127.254"), ==, NETD_PLACE_FORBIDDEN);

  plan = make_plan (FALSE, TRUE);
  g_assert_cmpint (place (&plan, "192.168.127.254"), ==, NETD_PLACE_ALIAS);
  g_assert_cmpint (place (&plan, "169.254.169.254"), ==, NETD_PLACE_FORBIDDEN);
  g_assert_cmpint (place (&plan, "127.0.0.1"), ==, NETD_PLACE_FORBIDDEN);
  g_assert_cmpint (place (&plan, "192.168.127.253"), ==, NETD_PLACE_FORBIDDEN);
}

static void
test_clear (void)
{
  NetdPlan plan = make_plan (TRUE, TRUE);

  plan.name = g_strdup ("default");
  plan.search_domain = g_strdup ("example.com");
  netd_plan_clear (&plan);
  g_assert_null (plan.name);
  g_assert_null (plan.search_domain);
  netd_plan_clear (&plan);
}

int
main (int argc, char **argv)
{
  g_test_init (&argc, &argv, NULL);
  g_test_add_func ("/netd/plan/ranges", test_ranges);
  g_test_add_func ("/netd/plan/options", test_options);
  g_test_add_func ("/netd/plan/clear", test_clear);
  return g_test_run ();
}

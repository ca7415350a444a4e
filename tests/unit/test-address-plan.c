/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The address plan: known MAC addresses, the pool by role, and what is refused in which words. */

#include "vmm-network-plan.h"

#include "interfaces/vmm-error.h"

static void
test_mac (void)
{
  static const struct
  {
    const char *network;
    const char *ip;
    const char *mac;
  } known[] = {
    { "default", "192.168.127.2", "02:de:c0:a8:7f:02" },
    { "dev", "10.42.0.2", "02:bc:0a:2a:00:02" },
    { "lab", "10.77.0.2", "02:f4:0a:4d:00:02" },
    { "tiny", "10.9.9.3", "02:6b:0a:09:09:03" },
  };

  for (guint i = 0; i < G_N_ELEMENTS (known); i++)
    {
      guint32 address = 0;
      g_autofree char *mac = NULL;
      g_autofree char *ip = NULL;

      g_assert_true (vmm_address_from_text (known[i].ip, &address));
      ip = vmm_address_to_text (address);
      mac = vmm_address_to_mac (known[i].network, address);
      g_assert_cmpstr (ip, ==, known[i].ip);
      g_assert_cmpstr (mac, ==, known[i].mac);
    }
  g_assert_cmphex (vmm_hash_fnv1a (""), ==, 0x811c9dc5);
  g_assert_cmphex (vmm_hash_fnv1a ("a"), ==, 0xe40c292c);
}

static guint32
address_of (const char *text)
{
  guint32 address = 0;

  g_assert_true (vmm_address_from_text (text, &address));
  return address;
}

static void
test_pool (void)
{
  g_autoptr (GHashTable) taken = g_hash_table_new (NULL, NULL);
  g_autoptr (GError) error = NULL;
  VmmAddressPlan plan;
  g_autofree char *prefix = NULL;
  guint size = 0;

  g_assert_true (vmm_address_plan_parse ("192.168.127.77/24", NULL, &plan, &error));
  g_assert_no_error (error);
  prefix = vmm_address_plan_to_text (&plan);
  g_assert_cmpstr (prefix, ==, "192.168.127.0/24");
  g_assert_cmphex (plan.gateway, ==, address_of ("192.168.127.1"));
  for (guint i = 0; i < 256; i++)
    size += vmm_address_plan_in_pool (&plan, plan.first + i);
  g_assert_cmpuint (size, ==, 252);
  g_assert_false (vmm_address_plan_in_pool (&plan, address_of ("192.168.127.0")));
  g_assert_false (vmm_address_plan_in_pool (&plan, address_of ("192.168.127.1")));
  g_assert_true (vmm_address_plan_in_pool (&plan, address_of ("192.168.127.2")));
  g_assert_true (vmm_address_plan_in_pool (&plan, address_of ("192.168.127.253")));
  g_assert_false (vmm_address_plan_in_pool (&plan, address_of ("192.168.127.254")));
  g_assert_false (vmm_address_plan_in_pool (&plan, address_of ("192.168.127.255")));
  g_assert_false (vmm_address_plan_in_pool (&plan, address_of ("192.168.128.2")));
  g_assert_false (vmm_address_plan_in_pool (&plan, address_of ("10.0.0.2")));

  g_hash_table_add (taken, GUINT_TO_POINTER (address_of ("192.168.127.2")));
  g_hash_table_add (taken, GUINT_TO_POINTER (address_of ("192.168.127.4")));
  g_assert_cmphex (vmm_address_plan_find_free (&plan, taken), ==, address_of ("192.168.127.3"));
}

/* The pool is by role: a moved gateway gives its first address to it. */
static void
test_moved_gateway (void)
{
  static const char *const pool[] = { "10.0.0.1", "10.0.0.3", "10.0.0.4", "10.0.0.5" };
  g_autoptr (GHashTable) taken = g_hash_table_new (NULL, NULL);
  g_autoptr (GError) error = NULL;
  VmmAddressPlan plan;

  g_assert_true (vmm_address_plan_parse ("10.0.0.0/29", "10.0.0.2", &plan, &error));
  g_assert_no_error (error);
  for (guint i = 0; i < G_N_ELEMENTS (pool); i++)
    {
      guint32 address = vmm_address_plan_find_free (&plan, taken);

      g_assert_cmphex (address, ==, address_of (pool[i]));
      g_hash_table_add (taken, GUINT_TO_POINTER (address));
    }
  g_assert_cmphex (vmm_address_plan_find_free (&plan, taken), ==, 0);

  g_assert_true (vmm_address_plan_parse ("10.0.0.0/29", "", &plan, &error));
  g_assert_cmphex (plan.gateway, ==, address_of ("10.0.0.1"));
}

/* The message is shown when it does not fit. */
static void
assert_matches (const char *pattern, const char *text)
{
  if (!g_pattern_match_simple (pattern, text))
    g_assert_cmpstr (text, ==, pattern);
}

static void
test_refused (void)
{
  static const struct
  {
    const char *cidr;
    const char *gateway;
    const char *message;
  } refused[] = {
    { "", NULL, "invalid request: cidr \"\": *" },
    { "10.0.0.0", NULL, "invalid request: cidr \"10.0.0.0\": *" },
    { "10.0.0/24", NULL, "invalid request: cidr \"10.0.0/24\": *" },
    { "10.0.0.300/24", NULL, "invalid request: cidr \"10.0.0.300/24\": *" },
    { "10.0.0.0/", NULL, "invalid request: cidr \"10.0.0.0/\": *" },
    { "10.0.0.0/024", NULL, "invalid request: cidr \"10.0.0.0/024\": *" },
    { "10.0.0.0/33", NULL, "invalid request: cidr \"10.0.0.0/33\": *" },
    { "10.0.0.0/-1", NULL, "invalid request: cidr \"10.0.0.0/-1\": *" },
    { "10.0.0.0/24x", NULL, "invalid request: cidr \"10.0.0.0/24x\": *" },
    { "10.0.0.0/24/24", NULL, "invalid request: cidr \"10.0.0.0/24/24\": *" },
    { "fd00::/129", NULL, "invalid request: cidr \"fd00::/129\": *" },
    { "fd00::/64", NULL, "invalid request: cidr \"fd00::/64\" must be IPv4" },
    { "10.0.0.0/15", NULL, "invalid request: cidr \"10.0.0.0/15\" must be between /16 and /29" },
    { "10.0.0.0/30", NULL, "invalid request: cidr \"10.0.0.0/30\" must be between /16 and /29" },
    { "169.254.3.0/24", NULL,
      "invalid request: cidr \"169.254.3.0/24\" overlaps the link-local range reserved for IMDS" },
    { "169.254.0.0/16", NULL,
      "invalid request: cidr \"169.254.0.0/16\" overlaps the link-local range reserved for IMDS" },
    { "10.0.0.0/24", "nope", "invalid request: gateway \"nope\": *" },
    { "10.0.0.0/24", "fd00::1", "invalid request: gateway \"fd00::1\": *" },
    { "10.0.0.0/24", "10.0.1.1",
      "invalid request: gateway \"10.0.1.1\" must be a host address of 10.0.0.0/24 other than "
      "10.0.0.254" },
    { "10.0.0.0/24", "10.0.0.0", "invalid request: gateway \"10.0.0.0\" must be a host *" },
    { "10.0.0.0/24", "10.0.0.254", "invalid request: gateway \"10.0.0.254\" must be a host *" },
    { "10.0.0.0/24", "10.0.0.255", "invalid request: gateway \"10.0.0.255\" must be a host *" },
  };

  for (guint i = 0; i < G_N_ELEMENTS (refused); i++)
    {
      g_autoptr (GError) error = NULL;
      VmmAddressPlan plan;

      g_assert_false (vmm_address_plan_parse (refused[i].cidr, refused[i].gateway, &plan, &error));
      g_assert_error (error, VMM_ERROR, VMM_ERROR_INVALID_REQUEST);
      assert_matches (refused[i].message, error->message);
    }
}

static void
test_labels (void)
{
  static const char *const good[] = { "a", "0", "a-b", "web1", "a--b" };
  static const char *const bad[] = { "", "-a", "a-", "A", "a.b", "a_b", "a b", "a/b", "\xc3\xa4" };
  g_autofree char *longest = g_strnfill (63, 'a');
  g_autofree char *too_long = g_strnfill (64, 'a');

  for (guint i = 0; i < G_N_ELEMENTS (good); i++)
    g_assert_true (vmm_name_is_dns_label (good[i]));
  for (guint i = 0; i < G_N_ELEMENTS (bad); i++)
    g_assert_false (vmm_name_is_dns_label (bad[i]));
  g_assert_true (vmm_name_is_dns_label (longest));
  g_assert_false (vmm_name_is_dns_label (too_long));
}

int
main (int argc, char **argv)
{
  g_test_init (&argc, &argv, G_TEST_OPTION_ISOLATE_DIRS, NULL);
  g_test_add_func ("/address-plan/mac", test_mac);
  g_test_add_func ("/address-plan/pool", test_pool);
  g_test_add_func ("/address-plan/moved-gateway", test_moved_gateway);
  g_test_add_func ("/address-plan/refused", test_refused);
  g_test_add_func ("/address-plan/labels", test_labels);
  return g_test_run ();
}

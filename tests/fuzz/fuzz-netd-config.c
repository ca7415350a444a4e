/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* netd.json against anything: what is taken holds what the rest of netd relies on, and what is
 * refused is refused with a sentence. */

#include "netd-config.h"

#include <string.h>

#include "fuzz.h"

static void
check_plan (const NetdPlan *plan)
{
  g_assert_nonnull (plan->name);
  g_assert_cmpuint (strlen (plan->name), <=, 63);
  g_assert_cmpuint (plan->mtu, >=, NETD_MTU_MIN);
  g_assert_cmpuint (plan->mtu, <=, NETD_MTU_MAX);
  g_assert_cmpuint (plan->network & ~plan->netmask, ==, 0);
  g_assert_cmpuint (plan->gateway & plan->netmask, ==, plan->network);
  g_assert_cmpuint (plan->broadcast, ==, plan->network | ~plan->netmask);
  g_assert_cmpuint (plan->host_alias, ==, plan->broadcast - 1);
  g_assert_true (plan->gateway != plan->network && plan->gateway != plan->broadcast
                 && plan->gateway != plan->host_alias);
  g_assert_cmpuint (plan->gateway_mac.octets[0] & 1, ==, 0);
  g_assert_true (plan->search_domain == NULL || plan->search_domain[0] != '\0');
}

static void
check_port (NetdConfig *config, const NetdConfigPort *port)
{
  const NetdPlan *plan = &config->plan;

  g_assert_cmpuint (port->ip & plan->netmask, ==, plan->network);
  g_assert_true (port->ip != plan->gateway && port->ip != plan->broadcast
                 && port->ip != plan->network && port->ip != plan->host_alias);
  g_assert_cmpuint (port->mac.octets[0] & 1, ==, 0);
  g_assert_false (netd_mac_equal (&port->mac, &plan->gateway_mac));
  g_assert_cmpuint (strlen (port->vm_id), <, 64);
  g_assert_null (strchr (port->vm_id, '/'));
  g_assert_true (port->socket_path[0] == '/');
  g_assert_null (strstr (port->socket_path, "/../"));
  g_assert_true (port->metadata_path == NULL || port->metadata_path[0] == '/');
  /* Each is there once, so the first with its id is itself. */
  g_assert_true (netd_config_find_port (config, port->vm_id) == port);
  for (guint i = 0; i < config->ports->len; i++)
    {
      const NetdConfigPort *other = g_ptr_array_index (config->ports, i);

      g_assert_true (other == port
                     || (other->ip != port->ip && !netd_mac_equal (&other->mac, &port->mac)));
    }
}

static void
check_forward (const NetdConfigForward *forward)
{
  g_assert_true (forward->id[0] != '\0' && forward->vm_id[0] != '\0');
  g_assert_cmpuint (forward->port, >, 0);
  g_assert_true (g_hostname_is_ip_address (forward->host_address));
}

int
LLVMFuzzerTestOneInput (const uint8_t *data, size_t size)
{
  g_autoptr (GError) error = NULL;
  /* As a file's text comes: ended by its NUL, and UTF-8. */
  g_autofree char *text = g_strndup ((const char *) data, size);
  g_autoptr (NetdConfig) config = NULL;

  if (!g_utf8_validate (text, -1, NULL))
    return 0;
  config = netd_config_parse (text, &error);
  if (config == NULL)
    {
      g_assert_nonnull (error);
      g_assert_true (g_utf8_validate (error->message, -1, NULL));
      return 0;
    }
  g_assert_no_error (error);
  check_plan (&config->plan);
  for (guint i = 0; i < config->ports->len; i++)
    check_port (config, g_ptr_array_index (config->ports, i));
  for (guint i = 0; i < config->forwards->len; i++)
    check_forward (g_ptr_array_index (config->forwards, i));
  return 0;
}

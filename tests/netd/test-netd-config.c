/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* netd.json: what is read from it, and everything that is refused. */
#include "netd-config.h"

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <gio/gio.h>
#include <glib/gstdio.h>

#define NETWORK                                                                                    \
  "{\"name\":\"dev\",\"cidr\":\"10.42.0.0/24\",\"gateway\":\"10.42.0.1\","                         \
  "\"gateway_mac\":\"02:bc:0a:2a:00:01\",\"dns_search_domain\":\"dev.example\",\"mtu\":9000,"      \
  "\"enable_imds\":true,\"enable_host_alias\":false}"
#define PORT_A                                                                                     \
  "{\"vm\":\"vm-a\",\"mac\":\"02:bc:0a:2a:00:02\",\"ip\":\"10.42.0.2\","                           \
  "\"socket\":\"/s/vms/vm-a/net.sock\",\"metadata\":\"/s/vms/vm-a/imds.sock\"}"
#define PORT_B                                                                                     \
  "{\"vm\":\"vm-b\",\"mac\":\"02:bc:0a:2a:00:03\",\"ip\":\"10.42.0.3\","                           \
  "\"socket\":\"/s/vms/vm-b/net.sock\"}"
#define FORWARD_A                                                                                  \
  "{\"id\":\"f-1\",\"vm\":\"vm-a\",\"port\":22,\"protocol\":\"tcp\","                              \
  "\"host_address\":\"127.0.0.1\",\"host_port\":2222}"
#define FORWARD_B                                                                                  \
  "{\"id\":\"f-2\",\"vm\":\"gone\",\"port\":53,\"protocol\":\"udp\","                              \
  "\"host_address\":\"::1\",\"host_port\":0}"
#define WHOLE                                                                                      \
  "{\"version\":1,\"network\":" NETWORK                                                            \
  ",\"handle\":{\"unit\":\"u\",\"pid\":1},\"ports\":[" PORT_A "," PORT_B                           \
  "],\"forwards\":[" FORWARD_A "," FORWARD_B "],\"from-the-future\":{}}"

static NetdConfig *
parse (const char *text)
{
  g_autoptr (GError) error = NULL;
  NetdConfig *config = netd_config_parse (text, &error);

  g_assert_no_error (error);
  g_assert_nonnull (config);
  return config;
}

/* WHOLE with one part of it exchanged. */
static char *
change (const char *from, const char *to)
{
  g_autoptr (GString) text = g_string_new (WHOLE);

  g_assert_cmpuint (g_string_replace (text, from, to, 1), ==, 1);
  return g_string_free (g_steal_pointer (&text), FALSE);
}

static void
test_whole (void)
{
  g_autoptr (NetdConfig) config = parse (WHOLE);
  const NetdConfigPort *port = netd_config_find_port (config, "vm-a");
  NetdConfigForward *forward;
  char mac[18];

  g_assert_cmpstr (config->plan.name, ==, "dev");
  g_assert_cmphex (config->plan.network, ==, NETD_IP (10, 42, 0, 0));
  g_assert_cmphex (config->plan.netmask, ==, NETD_IP (255, 255, 255, 0));
  g_assert_cmphex (config->plan.gateway, ==, NETD_IP (10, 42, 0, 1));
  g_assert_cmphex (config->plan.broadcast, ==, NETD_IP (10, 42, 0, 255));
  g_assert_cmphex (config->plan.host_alias, ==, NETD_IP (10, 42, 0, 254));
  netd_mac_to_text (&config->plan.gateway_mac, mac);
  g_assert_cmpstr (mac, ==, "02:bc:0a:2a:00:01");
  g_assert_cmpstr (config->plan.search_domain, ==, "dev.example");
  g_assert_cmpuint (config->plan.mtu, ==, 9000);
  g_assert_true (config->plan.enable_imds);
  g_assert_false (config->plan.enable_host_alias);

  g_assert_cmpuint (config->ports->len, ==, 2);
  g_assert_nonnull (port);
  g_assert_cmphex (port->ip, ==, NETD_IP (10, 42, 0, 2));
  netd_mac_to_text (&port->mac, mac);
  g_assert_cmpstr (mac, ==, "02:bc:0a:2a:00:02");
  g_assert_cmpstr (port->socket_path, ==, "/s/vms/vm-a/net.sock");
  g_assert_cmpstr (port->metadata_path, ==, "/s/vms/vm-a/imds.sock");
  g_assert_null (netd_config_find_port (config, "vm-b")->metadata_path);
  g_assert_null (netd_config_find_port (config, "gone"));

  g_assert_cmpuint (config->forwards->len, ==, 2);
  forward = g_ptr_array_index (config->forwards, 0);
  g_assert_cmpstr (forward->id, ==, "f-1");
  g_assert_cmpstr (forward->vm_id, ==, "vm-a");
  g_assert_cmpuint (forward->port, ==, 22);
  g_assert_false (forward->is_udp);
  g_assert_cmpstr (forward->host_address, ==, "127.0.0.1");
  g_assert_cmpuint (forward->host_port, ==, 2222);
  forward = g_ptr_array_index (config->forwards, 1);
  g_assert_true (forward->is_udp);
  g_assert_cmpuint (forward->host_port, ==, 0);
}

/* A line for each variation that is fine, too. */
static void
test_variations (void)
{
  static const char *const changes[][2] = {
    { ",\"dns_search_domain\":\"dev.example\"", "" },
    { "\"dev.example\"", "\"\"" },
    { "\"mtu\":9000", "\"mtu\":1500" },
    { "\"mtu\":9000", "\"mtu\":65520" },
    { "10.42.0.0/24", "10.42.0.0/16" },
    { "10.42.0.0/24", "10.42.0.77/24" },
    { "\"gateway\":\"10.42.0.1\"", "\"gateway\":\"10.42.0.9\"" },
    { "\"vm-b\"", "\"A.b_c-9\"" },
    { "127.0.0.1", "0.0.0.0" },
  };

  for (guint i = 0; i < G_N_ELEMENTS (changes); i++)
    {
      g_autofree char *text = change (changes[i][0], changes[i][1]);
      g_autoptr (NetdConfig) config = parse (text);
    }
}

static void
test_small_network (void)
{
  g_autoptr (NetdConfig) config
      = parse ("{\"version\":1,\"network\":{\"name\":\"s\",\"cidr\":\"10.9.9.11/29\","
               "\"gateway\":\"10.9.9.10\",\"gateway_mac\":\"02:00:00:00:00:01\",\"mtu\":1500,"
               "\"enable_imds\":false,\"enable_host_alias\":true},\"ports\":[],\"forwards\":[]}");

  g_assert_cmphex (config->plan.network, ==, NETD_IP (10, 9, 9, 8));
  g_assert_cmphex (config->plan.host_alias, ==, NETD_IP (10, 9, 9, 14));
  g_assert_cmphex (config->plan.broadcast, ==, NETD_IP (10, 9, 9, 15));
  g_assert_null (config->plan.search_domain);
  g_assert_true (config->plan.enable_host_alias);
  g_assert_cmpuint (config->ports->len, ==, 0);
}

static const char *const refused_texts[] = {
  "",
  "x",
  "null",
  "[]",
  "{}",
  "{\"version\":1}",
  "{\"version\":1,\"network\":[],\"ports\":[],\"forwards\":[]}",
  "{\"version\":1,\"network\":" NETWORK "}",
  "{\"version\":1,\"network\":" NETWORK ",\"ports\":{},\"forwards\":[]}",
  "{\"version\":1,\"network\":" NETWORK ",\"ports\":[]}",
  "{\"version\":1,\"network\":" NETWORK ",\"ports\":[1],\"forwards\":[]}",
  "{\"version\":1,\"network\":" NETWORK ",\"ports\":[],\"forwards\":[null]}",
};

/* Each exchange makes WHOLE something to refuse. */
static const char *const refused_changes[][2] = {
  { "\"version\":1", "\"version\":2" },
  { "\"version\":1", "\"version\":\"1\"" },
  { "\"version\":1", "\"version\":1.0" },
  { "\"name\":\"dev\"", "\"name\":\"\"" },
  { "\"name\":\"dev\"", "\"name\":\"a/b\"" },
  { "\"name\":\"dev\"", "\"name\":\"a\\nb\"" },
  { "\"name\":\"dev\"", "\"name\":5" },
  { "\"name\":\"dev\",", "" },
  { "10.42.0.0/24", "10.42.0.0/15" },
  { "10.42.0.0/24", "10.42.0.0/30" },
  { "10.42.0.0/24", "10.42.0.0" },
  { "10.42.0.0/24", "169.254.0.0/16" },
  { "10.42.0.0/24", "fd00::/64" },
  { "\"gateway\":\"10.42.0.1\"", "\"gateway\":\"10.43.0.1\"" },
  { "\"gateway\":\"10.42.0.1\"", "\"gateway\":\"10.42.0.0\"" },
  { "\"gateway\":\"10.42.0.1\"", "\"gateway\":\"10.42.0.254\"" },
  { "\"gateway\":\"10.42.0.1\"", "\"gateway\":\"10.42.0.255\"" },
  { "\"gateway\":\"10.42.0.1\"", "\"gateway\":\"10.42.0.2\"" },
  { "\"gateway\":\"10.42.0.1\"", "\"gateway\":true" },
  { "02:bc:0a:2a:00:01", "03:bc:0a:2a:00:01" },
  { "02:bc:0a:2a:00:01", "02:bc:0a:2a:00" },
  { "02:bc:0a:2a:00:01", "02:bc:0a:2a:00:02" },
  { "dev.example", "dev example" },
  { "\"dev.example\"", "[]" },
  { "\"mtu\":9000", "\"mtu\":1499" },
  { "\"mtu\":9000", "\"mtu\":65521" },
  { "\"mtu\":9000", "\"mtu\":\"9000\"" },
  { "\"enable_imds\":true", "\"enable_imds\":1" },
  { ",\"enable_host_alias\":false", "" },

  { "\"vm\":\"vm-b\"", "\"vm\":\"\"" },
  { "\"vm\":\"vm-b\"", "\"vm\":\"..\"" },
  { "\"vm\":\"vm-b\"", "\"vm\":\"a/b\"" },
  { "\"vm\":\"vm-b\"",
    "\"vm\":\"a123456789012345678901234567890123456789012345678901234567890123\"" },
  { "\"vm\":\"vm-b\"", "\"vm\":\"vm-a\"" },
  { "\"vm\":\"vm-b\",", "" },
  { "02:bc:0a:2a:00:03", "02:bc:0a:2a:00:02" },
  { "02:bc:0a:2a:00:03", "02:BC:0A:2A:00:02" },
  { "02:bc:0a:2a:00:03", "ff:ff:ff:ff:ff:ff" },
  { "10.42.0.3", "10.42.0.2" },
  { "10.42.0.3", "10.42.0.1" },
  { "10.42.0.3", "10.42.0.0" },
  { "10.42.0.3", "10.42.0.254" },
  { "10.42.0.3", "10.42.0.255" },
  { "10.42.0.3", "10.43.0.3" },
  { "10.42.0.3", "10.42.0.03x" },
  { "/s/vms/vm-b/net.sock", "net.sock" },
  { "/s/vms/vm-b/net.sock", "" },
  { "/s/vms/vm-b/net.sock", "/" },
  { "/s/vms/vm-b/net.sock", "/s/vms/../net.sock" },
  { "/s/vms/vm-b/net.sock", "/s/./net.sock" },
  { "/s/vms/vm-b/net.sock", "/s//net.sock" },
  { "/s/vms/vm-b/net.sock", "/s/net.sock/" },
  { "/s/vms/vm-a/imds.sock", "/s/.." },
  { "\"/s/vms/vm-a/imds.sock\"", "null" },

  { "\"id\":\"f-1\"", "\"id\":\"\"" },
  { "\"id\":\"f-1\"", "\"id\":\"a b\"" },
  { "\"id\":\"f-1\"", "\"id\":\"f-2\"" },
  { "\"vm\":\"gone\"", "\"vm\":\"go ne\"" },
  { "\"port\":22", "\"port\":0" },
  { "\"port\":22", "\"port\":65536" },
  { "\"port\":22", "\"port\":-1" },
  { "\"port\":22", "\"port\":22.5" },
  { "\"tcp\"", "\"TCP\"" },
  { "\"tcp\"", "\"sctp\"" },
  { "127.0.0.1", "localhost" },
  { "127.0.0.1", "" },
  { "\"host_port\":2222", "\"host_port\":65536" },
  { ",\"host_port\":2222", "" },
};

static void
assert_refused (const char *text)
{
  g_autoptr (GError) error = NULL;
  NetdConfig *config = netd_config_parse (text, &error);

  if (config != NULL)
    g_test_message ("not refused: %s", text);
  g_assert_null (config);
  g_assert_nonnull (error);
  g_assert_cmpuint (strlen (error->message), >, 5);
}

static void
test_refused (void)
{
  for (guint i = 0; i < G_N_ELEMENTS (refused_texts); i++)
    assert_refused (refused_texts[i]);
  for (guint i = 0; i < G_N_ELEMENTS (refused_changes); i++)
    {
      g_autofree char *text = change (refused_changes[i][0], refused_changes[i][1]);

      assert_refused (text);
    }
}

static void
test_same_host_port (void)
{
  g_autofree char *text = change (FORWARD_B, FORWARD_A);
  g_autofree char *twice = NULL;
  g_autofree char *udp = NULL;
  g_autoptr (NetdConfig) config = NULL;
  g_autoptr (GString) built = g_string_new (text);

  g_string_replace (built, "\"f-1\"", "\"f-9\"", 1);
  twice = g_strdup (built->str);
  assert_refused (twice);
  /* The other protocol has ports of its own. */
  g_string_replace (built, "\"tcp\"", "\"udp\"", 1);
  udp = g_strdup (built->str);
  config = parse (udp);
}

static void
test_deep (void)
{
  g_autoptr (GString) text = g_string_new ("{\"version\":1,\"x\":");
  g_autofree char *quoted = NULL;
  g_autofree char *brackets = g_strnfill (1000, '[');
  g_autoptr (NetdConfig) config = NULL;

  for (guint i = 0; i < 200000; i++)
    g_string_append_c (text, i % 2 == 0 ? '[' : '{');
  assert_refused (text->str);

  quoted = g_strdup_printf ("\"from-the-future\":\"\\\"%s\"", brackets);
  g_string_assign (text, WHOLE);
  g_assert_cmpuint (g_string_replace (text, "\"from-the-future\":{}", quoted, 1), ==, 1);
  config = parse (text->str);
}

static void
test_too_many (void)
{
  g_autoptr (GString) text = g_string_new ("{\"version\":1,\"network\":" NETWORK ",\"ports\":[");

  g_string_append (text, "],\"forwards\":[");
  for (guint i = 0; i <= NETD_FORWARDS_MAX; i++)
    g_string_append_printf (text,
                            "%s{\"id\":\"f%u\",\"vm\":\"a\",\"port\":1,\"protocol\":\"tcp\","
                            "\"host_address\":\"127.0.0.1\",\"host_port\":%u}",
                            i == 0 ? "" : ",", i, i + 1);
  g_string_append (text, "]}");
  assert_refused (text->str);
}

/* --- The file --- */

static void
assert_unreadable (const char *directory, int code)
{
  g_autoptr (GError) error = NULL;

  g_assert_null (netd_config_read (directory, &error));
  g_assert_error (error, G_IO_ERROR, code);
  g_assert_nonnull (strstr (error->message, "netd.json"));
}

static void
test_file (void)
{
  g_autoptr (GError) error = NULL;
  g_autofree char *directory = g_dir_make_tmp ("netd-config-XXXXXX", &error);
  g_autofree char *path = g_build_filename (directory, NETD_CONFIG_FILE, NULL);
  g_autofree char *other = g_build_filename (directory, "other", NULL);
  g_autofree char *large = g_malloc (NETD_CONFIG_MAX + 1);
  g_autoptr (NetdConfig) config = NULL;

  assert_unreadable (directory, G_IO_ERROR_NOT_FOUND);

  g_assert_true (g_file_set_contents_full (path, WHOLE, -1, G_FILE_SET_CONTENTS_CONSISTENT, 0600,
                                           &error));
  config = netd_config_read (directory, &error);
  g_assert_no_error (error);
  g_assert_cmpuint (config->ports->len, ==, 2);

  g_assert_cmpint (g_chmod (path, 0620), ==, 0);
  assert_unreadable (directory, G_IO_ERROR_INVALID_DATA);
  g_assert_cmpint (g_chmod (path, 0602), ==, 0);
  assert_unreadable (directory, G_IO_ERROR_INVALID_DATA);

  /* A link could lead to what somebody else writes. */
  g_assert_cmpint (g_chmod (path, 0600), ==, 0);
  g_assert_cmpint (g_rename (path, other), ==, 0);
  g_assert_cmpint (symlink ("other", path), ==, 0);
  assert_unreadable (directory, G_IO_ERROR_TOO_MANY_LINKS);
  g_assert_cmpint (g_unlink (path), ==, 0);

  g_assert_cmpint (g_mkdir (path, 0700), ==, 0);
  assert_unreadable (directory, G_IO_ERROR_INVALID_DATA);
  g_assert_cmpint (g_rmdir (path), ==, 0);
  g_assert_cmpint (mkfifo (path, 0600), ==, 0);
  assert_unreadable (directory, G_IO_ERROR_INVALID_DATA);
  g_assert_cmpint (g_unlink (path), ==, 0);

  memset (large, ' ', NETD_CONFIG_MAX + 1);
  g_assert_true (g_file_set_contents (path, large, NETD_CONFIG_MAX + 1, &error));
  g_assert_cmpint (g_chmod (path, 0600), ==, 0);
  assert_unreadable (directory, G_IO_ERROR_INVALID_DATA);
  g_assert_true (g_file_set_contents (path, WHOLE "\0", sizeof WHOLE, &error));
  g_assert_cmpint (g_chmod (path, 0600), ==, 0);
  assert_unreadable (directory, G_IO_ERROR_INVALID_DATA);
  g_assert_true (g_file_set_contents (path, "{\"\xff\":1}", -1, &error));
  g_assert_cmpint (g_chmod (path, 0600), ==, 0);
  assert_unreadable (directory, G_IO_ERROR_INVALID_DATA);
  g_assert_true (g_file_set_contents (path, "{\"version\":3}", -1, &error));
  g_assert_cmpint (g_chmod (path, 0600), ==, 0);
  assert_unreadable (directory, G_IO_ERROR_INVALID_DATA);

  g_unlink (path);
  g_unlink (other);
  g_assert_cmpint (g_rmdir (directory), ==, 0);
}

int
main (int argc, char **argv)
{
  g_test_init (&argc, &argv, NULL);
  g_test_add_func ("/netd/config/whole", test_whole);
  g_test_add_func ("/netd/config/variations", test_variations);
  g_test_add_func ("/netd/config/small-network", test_small_network);
  g_test_add_func ("/netd/config/refused", test_refused);
  g_test_add_func ("/netd/config/same-host-port", test_same_host_port);
  g_test_add_func ("/netd/config/deep", test_deep);
  g_test_add_func ("/netd/config/too-many", test_too_many);
  g_test_add_func ("/netd/config/file", test_file);
  return g_test_run ();
}

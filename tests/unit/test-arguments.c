/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Arguments against the schemas of the table of operations. */

#include "vmm-arguments.h"

#include <string.h>

#include "interfaces/vmm-error.h"
#include "vmm-json.h"

typedef struct
{
  const char *operation;
  const char *arguments;
  VmmArgumentsFlags flags;
  const char *wanted; /* the checked arguments, or the error's text */
} Case;

static JsonObject *
check (const Case *row, GError **error)
{
  const VmmOperation *operation = vmm_operations_find (row->operation);
  g_autoptr (GError) parse_error = NULL;
  g_autoptr (JsonObject) arguments = NULL;

  g_assert_nonnull (operation);
  arguments = vmm_json_parse_object (row->arguments, strlen (row->arguments), &parse_error);
  g_assert_no_error (parse_error);
  return vmm_arguments_check (operation, arguments, row->flags, error);
}

static const Case good[] = {
  { "get_vm", "{\"id\":\"1a2b3c4d\"}", 0, "{\"id\":\"1a2b3c4d\"}" },
  { "list_vms", "{}", 0, "{}" },
  { "list_vms", "{\"bogus\":1}", VMM_ARGUMENTS_IGNORE_UNKNOWN, "{}" },
  { "create_vm", "{\"name\":\"web\"}", 0,
    "{\"name\":\"web\",\"cpus\":2,\"memory_mib\":2048,\"disk_gib\":20,\"network\":\"default\","
    "\"require_attestation\":true,\"autostart\":false,\"wait_for\":\"ready\"}" },
  /* Given members stay in their order, null counts as absent, also where there is a default. */
  { "create_vm",
    "{\"wait_for\":\"none\",\"cpus\":null,\"name\":\"web\",\"image\":null,\"disk_gib\":1,"
    "\"memory_mib\":256,\"network\":\"lan\",\"require_attestation\":false,\"autostart\":true,"
    "\"hostname\":\"h\",\"metadata\":{\"a\":\"b\"},\"ssh_authorized_keys\":[\"k\"]}",
    0,
    "{\"wait_for\":\"none\",\"name\":\"web\",\"disk_gib\":1,\"memory_mib\":256,\"network\":\"lan\","
    "\"require_attestation\":false,\"autostart\":true,\"hostname\":\"h\",\"metadata\":{\"a\":\"b\"}"
    ","
    "\"ssh_authorized_keys\":[\"k\"],\"cpus\":2}" },
  /* The service has its own words for these. */
  { "create_vm",
    "{\"cpus\":-1,\"memory_mib\":1,\"disk_gib\":99999,\"wait_for\":\"never\",\"name\":\"NO\"}", 0,
    "{\"cpus\":-1,\"memory_mib\":1,\"disk_gib\":99999,\"wait_for\":\"never\",\"name\":\"NO\","
    "\"network\":\"default\",\"require_attestation\":true,\"autostart\":false}" },
  { "create_network", "{}", 0, "{\"mtu\":1500}" },
  { "exec_vm", "{\"id\":\"x\"}", 0, "{\"id\":\"x\"}" },
  { "exec_vm", "{\"id\":\"x\",\"command\":[]}", 0, "{\"id\":\"x\",\"command\":[]}" },
  { "forward_port", "{\"id\":\"x\",\"port\":70000}", 0,
    "{\"id\":\"x\",\"port\":70000,\"host_port\":0,\"protocol\":\"tcp\"}" },
  { "forward_port", "{\"id\":\"x\",\"port\":80.0,\"host_port\":8e3,\"protocol\":\"udp\"}", 0,
    "{\"id\":\"x\",\"port\":80,\"host_port\":8000,\"protocol\":\"udp\"}" },
  { "get_vm_console", "{\"id\":\"x\"}", 0, "{\"id\":\"x\",\"lines\":100}" },
  { "get_vm_console", "{\"id\":\"x\",\"lines\":\"-5\"}", VMM_ARGUMENTS_TEXTUAL,
    "{\"id\":\"x\",\"lines\":-5}" },
  { "get_vm_console", "{\"id\":\"x\",\"lines\":20000}", VMM_ARGUMENTS_TEXTUAL,
    "{\"id\":\"x\",\"lines\":20000}" },
  { "create_vm",
    "{\"name\":\"web\",\"autostart\":\"true\",\"require_attestation\":\"false\",\"cpus\":\"4\","
    "\"memory_mib\":1,\"disk_gib\":1,\"network\":\"n\",\"wait_for\":\"none\"}",
    VMM_ARGUMENTS_TEXTUAL,
    "{\"name\":\"web\",\"autostart\":true,\"require_attestation\":false,\"cpus\":4,"
    "\"memory_mib\":1,\"disk_gib\":1,\"network\":\"n\",\"wait_for\":\"none\"}" },
};

static const Case bad[] = {
  { "list_vms", "{\"bogus\":1}", 0, "json: unknown field \"bogus\"" },
  { "create_vm", "{\"name\":\"web\",\"x\\u0007\\u0022y\":null}", 0,
    "json: unknown field \"x\\x07\"y\"" },
  { "create_vm", "{\"Name\":\"web\"}", 0, "json: unknown field \"Name\"" },
  { "get_vm", "{}", 0, "required argument \"id\" not found" },
  { "get_vm", "{\"id\":null}", 0, "required argument \"id\" not found" },
  { "close_forward", "{\"id\":\"x\"}", 0, "required argument \"forward\" not found" },
  { "get_vm", "{\"id\":7}", 0, "json: id must be a string, not a number" },
  { "get_vm", "{\"id\":[\"x\"]}", 0, "json: id must be a string, not an array" },
  { "get_vm", "{\"id\":{}}", 0, "json: id must be a string, not an object" },
  { "create_vm", "{\"name\":true}", 0, "json: name must be a string, not a boolean" },
  { "create_vm", "{\"cpus\":\"2\"}", 0, "json: cpus must be an integer, not a string" },
  { "create_vm", "{\"cpus\":2.5}", 0, "json: cpus must be an integer, not a fraction" },
  { "create_vm", "{\"cpus\":1e300}", 0, "json: cpus must be an integer, not a fraction" },
  { "create_vm", "{\"autostart\":1}", 0, "json: autostart must be a boolean, not a number" },
  { "create_vm", "{\"autostart\":\"true\"}", 0, "json: autostart must be a boolean, not a string" },
  { "create_vm", "{\"metadata\":[]}", 0, "json: metadata must be an object, not an array" },
  { "create_vm", "{\"metadata\":{\"k\":1}}", 0, "json: metadata.k must be a string, not a number" },
  { "create_vm", "{\"ssh_authorized_keys\":\"k\"}", 0,
    "json: ssh_authorized_keys must be an array, not a string" },
  { "create_vm", "{\"ssh_authorized_keys\":[\"k\",null]}", 0,
    "json: ssh_authorized_keys[1] must be a string, not null" },
  { "exec_vm", "{\"id\":\"x\",\"command\":[\"a\",2]}", 0,
    "json: command[1] must be a string, not a number" },
  { "forward_port", "{\"id\":\"x\",\"port\":80,\"host_port\":65536}", 0,
    "host_port 65536 must be at most 65535" },
  { "forward_port", "{\"id\":\"x\",\"port\":80,\"host_port\":-1}", 0,
    "host_port -1 must be at least 0" },
  { "forward_port", "{\"id\":\"x\",\"port\":80,\"protocol\":\"sctp\"}", 0,
    "protocol must be one of tcp, udp" },
  { "get_vm_console", "{\"id\":\"x\",\"lines\":\"abc\"}", VMM_ARGUMENTS_TEXTUAL,
    "lines: \"abc\" is not an integer" },
  { "get_vm_console", "{\"id\":\"x\",\"lines\":\"\"}", VMM_ARGUMENTS_TEXTUAL,
    "lines: \"\" is not an integer" },
  { "get_vm_console", "{\"id\":\"x\",\"lines\":\" 1\"}", VMM_ARGUMENTS_TEXTUAL,
    "lines: \" 1\" is not an integer" },
  { "get_vm_console", "{\"id\":\"x\",\"lines\":\"9223372036854775808\"}", VMM_ARGUMENTS_TEXTUAL,
    "lines: \"9223372036854775808\" is not an integer" },
  { "create_vm", "{\"autostart\":\"yes\"}", VMM_ARGUMENTS_TEXTUAL,
    "autostart: \"yes\" is not a boolean" },
};

static void
test_good (void)
{
  for (guint i = 0; i < G_N_ELEMENTS (good); i++)
    {
      g_autoptr (GError) error = NULL;
      g_autoptr (JsonObject) checked = check (&good[i], &error);
      g_autoptr (JsonNode) node = NULL;
      g_autofree char *text = NULL;

      g_assert_no_error (error);
      node = vmm_json_node_take_object (g_steal_pointer (&checked));
      text = vmm_json_to_line (node, NULL);
      g_assert_cmpstr (text, ==, good[i].wanted);
    }
}

static void
test_bad (void)
{
  for (guint i = 0; i < G_N_ELEMENTS (bad); i++)
    {
      g_autoptr (GError) error = NULL;
      g_autoptr (JsonObject) checked = check (&bad[i], &error);

      g_assert_null (checked);
      g_assert_error (error, VMM_ERROR, VMM_ERROR_INVALID_REQUEST);
      g_assert_cmpstr (error->message, ==, bad[i].wanted);
    }
}

/* What was given is not changed: the door may still log or repeat it. */
static void
test_input_untouched (void)
{
  g_autoptr (JsonObject) arguments = json_object_new ();
  g_autoptr (JsonObject) checked = NULL;

  json_object_set_string_member (arguments, "name", "web");
  json_object_set_null_member (arguments, "image");
  checked = vmm_arguments_check (vmm_operations_find ("create_vm"), arguments, 0, NULL);
  g_assert_nonnull (checked);
  g_assert_cmpuint (json_object_get_size (arguments), ==, 2);
}

/* A long name of the caller's is cut. */
static void
test_long_name (void)
{
  g_autoptr (JsonObject) arguments = json_object_new ();
  g_autofree char *name = g_strnfill (100000, 'x');
  g_autoptr (GError) error = NULL;

  json_object_set_string_member (arguments, name, "v");
  g_assert_null (vmm_arguments_check (vmm_operations_find ("create_vm"), arguments, 0, &error));
  g_assert_error (error, VMM_ERROR, VMM_ERROR_INVALID_REQUEST);
  g_assert_cmpuint (strlen (error->message), <, 128);
}

int
main (int argc, char **argv)
{
  g_test_init (&argc, &argv, G_TEST_OPTION_ISOLATE_DIRS, NULL);
  g_test_add_func ("/arguments/good", test_good);
  g_test_add_func ("/arguments/bad", test_bad);
  g_test_add_func ("/arguments/input-untouched", test_input_untouched);
  g_test_add_func ("/arguments/long-name", test_long_name);
  return g_test_run ();
}

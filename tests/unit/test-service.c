/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Every operation of the service, right and wrong, with the fake backends: as a door would call
 * them, and with the answers and texts that clients know. */

#include "vmm-service.h"

#include <string.h>

#include <glib/gstdio.h>

#include "fake-backends.h"
#include "fake-peers.h"
#include "service-fixture.h"
#include "test-await.h"
#include "vmm-json.h"
#include "vmm-network-plan.h"
#include "vmm-version.h"

typedef struct
{
  ServiceFixture *service;
} Fixture;

static void
setup (Fixture *fixture, gconstpointer data)
{
  fixture->service = service_fixture_new ();
  test_peer_configure (data);
  service_fixture_start_well (fixture->service);
}

static void
teardown (Fixture *fixture, gconstpointer data)
{
  service_fixture_free (fixture->service);
  test_peer_configure (NULL);
}

static JsonObject *
object_of (JsonNode *node)
{
  g_assert_true (JSON_NODE_HOLDS_OBJECT (node));
  return json_node_get_object (node);
}

static guint
length_of (JsonNode *node)
{
  g_assert_true (JSON_NODE_HOLDS_ARRAY (node));
  return json_array_get_length (json_node_get_array (node));
}

static void
write_in_vm (ServiceFixture *service, const char *id, const char *name, const char *text,
             gssize length)
{
  g_autofree char *path = g_build_filename (service->state_dir, "vms", id, name, NULL);

  g_assert_true (g_file_set_contents (path, text, length, NULL));
}

/* -- info, host, images ----------------------------------------------------------------------- */

static void
test_info (Fixture *fixture, gconstpointer data)
{
  g_autoptr (JsonNode) node = service_fixture_call_well (fixture->service, "get_info", "{}");
  JsonArray *tools = json_object_get_array_member (object_of (node), "tools");
  guint n_tools = 0;

  g_assert_cmpstr (service_fixture_get (node, "version"), ==, vmm_version);
  g_assert_cmpstr (service_fixture_get (node, "commit"), ==, vmm_version_commit);
  g_assert_cmpstr (service_fixture_get (node, "built"), ==, vmm_version_built);
  for (guint i = 0; i < vmm_n_operations; i++)
    {
      if (!vmm_operations[i].tool)
        continue;
      g_assert_cmpstr (json_array_get_string_element (tools, n_tools), ==, vmm_operations[i].name);
      n_tools++;
    }
  g_assert_cmpuint (json_array_get_length (tools), ==, n_tools);
  g_assert_cmpuint (n_tools, >=, 20);
}

static void
test_host (Fixture *fixture, gconstpointer data)
{
  g_autoptr (JsonNode) node = service_fixture_call_well (fixture->service, "get_host", "{}");

  g_assert_true (json_object_has_member (object_of (node), "ready"));
  g_assert_cmpstr (service_fixture_get (node, "ovmfCode"), ==,
                   vmm_host_get_ovmf_code (fixture->service->context->host));
}

static void
test_images (Fixture *fixture, gconstpointer data)
{
  g_autoptr (JsonNode) list = service_fixture_call_well (fixture->service, "list_images", "{}");
  g_autoptr (JsonNode) newest
      = service_fixture_call_well (fixture->service, "get_image", "{'ref':'demo'}");
  g_autoptr (JsonNode) older
      = service_fixture_call_well (fixture->service, "get_image", "{'ref':'demo_0.9.0'}");

  g_assert_cmpuint (length_of (list), ==, 2);
  g_assert_cmpstr (service_fixture_get (newest, "version"), ==, "1.0.0");
  g_assert_cmpstr (service_fixture_get (older, "version"), ==, "0.9.0");
  service_fixture_call_badly (fixture->service, "get_image", VMM_ERROR_NOT_FOUND,
                              "not found: image \"nope\"", "{'ref':'nope'}");
  service_fixture_call_badly (fixture->service, "get_image", VMM_ERROR_NOT_FOUND,
                              "not found: image \"\"", "{'ref':''}");
}

static void
test_openapi (Fixture *fixture, gconstpointer data)
{
  g_autoptr (JsonNode) node = service_fixture_call_well (fixture->service, "get_openapi", "{}");

  g_assert_cmpstr (json_node_get_string (node), ==, vmm_openapi_document);
}

/* -- networks --------------------------------------------------------------------------------- */

static void
test_networks (Fixture *fixture, gconstpointer data)
{
  ServiceFixture *service = fixture->service;
  g_autoptr (JsonNode) before = service_fixture_call_well (service, "list_networks", "{}");
  g_autoptr (JsonNode) made = service_fixture_call_well (
      service, "create_network",
      "{'name':'lab','cidr':'10.77.0.0/24','dns_search_domain':'x.y','mtu':9000}");
  g_autoptr (JsonNode) got = service_fixture_call_well (service, "get_network", "{'name':'lab'}");
  g_autoptr (JsonNode) after = service_fixture_call_well (service, "list_networks", "{}");
  g_autoptr (JsonNode) deleted = NULL;

  g_assert_cmpuint (length_of (before), ==, 1);
  g_assert_cmpuint (length_of (after), ==, 2);
  g_assert_true (json_node_equal (made, got));
  g_assert_cmpstr (service_fixture_get (got, "gateway"), ==, "10.77.0.1");
  g_assert_cmpint (json_object_get_int_member (
                       json_object_get_object_member (object_of (got), "spec"), "mtu"),
                   ==, 9000);

  service_fixture_call_badly (service, "get_network", VMM_ERROR_NOT_FOUND,
                              "not found: network \"nope\"", "{'name':'nope'}");
  service_fixture_call_badly (service, "delete_network", VMM_ERROR_NOT_FOUND,
                              "not found: network \"nope\"", "{'name':'nope'}");
  service_fixture_call_badly (service, "create_network", VMM_ERROR_CONFLICT,
                              "conflict: network \"lab\" already exists",
                              "{'name':'lab','cidr':'10.78.0.0/24'}");
  service_fixture_call_badly (service, "create_network", VMM_ERROR_INVALID_REQUEST,
                              "invalid request: name \"\" must be a DNS label", "{}");
  service_fixture_call_badly (service, "create_network", VMM_ERROR_INVALID_REQUEST,
                              "invalid request: cidr \"\": *", "{'name':'x'}");
  service_fixture_call_badly (service, "create_network", VMM_ERROR_INVALID_REQUEST,
                              "invalid request: mtu 65521 must be between 1500 and 65520",
                              "{'name':'x','cidr':'10.78.0.0/24','mtu':65521}");
  deleted = service_fixture_call_well (service, "delete_network", "{'name':'lab'}");
  g_assert_cmpstr (service_fixture_get (deleted, "id"), ==, "lab");
  g_assert_true (json_object_get_boolean_member (object_of (deleted), "deleted"));
}

static void
test_network_in_use (Fixture *fixture, gconstpointer data)
{
  ServiceFixture *service = fixture->service;
  g_autofree char *zed = service_fixture_create_vm (service, "zed", "ready");
  g_autofree char *abe = service_fixture_create_vm (service, "abe", "ready");
  g_autoptr (JsonNode) stopped = NULL;
  g_autoptr (JsonNode) gone = NULL;
  g_autoptr (JsonNode) deleted = NULL;

  stopped = service_fixture_call_well (service, "stop_vm", "{'id':'%s'}", zed);
  service_fixture_call_badly (service, "delete_network", VMM_ERROR_CONFLICT,
                              "conflict: network \"default\" is used by vm abe, zed",
                              "{'name':'default'}");
  gone = service_fixture_call_well (service, "delete_vm", "{'id':'%s'}", abe);
  service_fixture_call_badly (service, "delete_network", VMM_ERROR_CONFLICT,
                              "conflict: network \"default\" is used by vm zed",
                              "{'name':'default'}");
  g_clear_pointer (&gone, json_node_unref);
  gone = service_fixture_call_well (service, "delete_vm", "{'id':'%s'}", zed);
  deleted = service_fixture_call_well (service, "delete_network", "{'name':'default'}");
  g_assert_nonnull (deleted);
}

/* -- create_vm -------------------------------------------------------------------------------- */

static void
test_create (Fixture *fixture, gconstpointer data)
{
  ServiceFixture *service = fixture->service;
  g_autoptr (JsonNode) node = service_fixture_call_well (
      service, "create_vm", "{'name':'web','require_attestation':false}");
  g_autoptr (JsonNode) got = NULL;
  JsonObject *vm = object_of (node);
  const char *id = service_fixture_get (node, "id");
  g_autofree char *directory = g_build_filename (service->state_dir, "vms", id, NULL);
  g_autofree char *user_data = g_build_filename (directory, "user-data", NULL);
  guint32 base = 3 + vmm_hash_fnv1a (service->state_dir) % (1 << 20);

  g_assert_cmpuint (strlen (id), ==, 8);
  g_assert_cmpstr (service_fixture_get (node, "name"), ==, "web");
  g_assert_cmpstr (service_fixture_get (node, "image"), ==, "demo_1.0.0");
  g_assert_cmpstr (service_fixture_get (node, "kubernetesVersion"), ==, "1.32.0");
  g_assert_cmpint (json_object_get_int_member (vm, "cpus"), ==, 2);
  g_assert_cmpint (json_object_get_int_member (vm, "memoryMiB"), ==, 2048);
  g_assert_cmpint (json_object_get_int_member (vm, "diskGiB"), ==, 20);
  g_assert_cmpstr (service_fixture_get (node, "network"), ==, "default");
  g_assert_cmpstr (service_fixture_get (node, "hostname"), ==, "web");
  g_assert_cmpstr (service_fixture_get (node, "region"), ==, g_get_host_name ());
  g_assert_cmpstr (service_fixture_get (node, "zone"), ==, "default");
  g_assert_cmpstr (service_fixture_get (node, "owner"), ==, "uid:4242");
  g_assert_cmpstr (service_fixture_get (node, "state"), ==, "ready");
  g_assert_cmpstr (service_fixture_get (node, "ip"), ==, "10.64.0.2");
  g_assert_cmpuint (strlen (service_fixture_get (node, "machineID")), ==, 32);
  g_assert_cmpint (json_object_get_int_member (vm, "cid"), ==, base);
  g_assert_cmpint (json_object_get_int_member (vm, "notifyPort"), >, 1 << 20);
  g_assert_true (json_object_has_member (vm, "readyAt"));
  g_assert_false (json_object_has_member (vm, "user_data"));
  g_assert_false (json_object_has_member (vm, "wait_for"));
  g_assert_false (g_file_test (user_data, G_FILE_TEST_EXISTS));

  got = service_fixture_call_well (service, "get_vm", "{'id':'%s'}", id);
  g_assert_true (json_node_equal (node, got));
  service_fixture_call_badly (service, "get_vm", VMM_ERROR_NOT_FOUND, "not found: vm \"web\"",
                              "{'id':'web'}");
}

static void
test_create_full (Fixture *fixture, gconstpointer data)
{
  ServiceFixture *service = fixture->service;
  g_autoptr (JsonNode) network = service_fixture_call_well (service, "create_network",
                                                            "{'name':'lab','cidr':'10.77.0.0/24'}");
  g_autoptr (JsonNode) node = service_fixture_call_well (
      service, "create_vm",
      "{'name':'web','image':'demo_0.9.0','kubernetes_version':'1.31.2','cpus':4,"
      "'memory_mib':512,'disk_gib':1,'network':'lab','user_data':'{}','hostname':'h1',"
      "'ssh_authorized_keys':['ssh-ed25519 AAAA me'],'metadata':{'b':'2','a':''},"
      "'require_attestation':true,'autostart':true,'wait_for':'none'}");
  g_autofree char *user_data = NULL;
  g_autofree char *path = NULL;
  JsonObject *vm = object_of (node);

  g_assert_nonnull (network);
  g_assert_cmpstr (service_fixture_get (node, "image"), ==, "demo_0.9.0");
  g_assert_cmpstr (service_fixture_get (node, "kubernetesVersion"), ==, "1.31.2");
  g_assert_cmpint (json_object_get_int_member (vm, "cpus"), ==, 4);
  g_assert_cmpint (json_object_get_int_member (vm, "memoryMiB"), ==, 512);
  g_assert_cmpint (json_object_get_int_member (vm, "diskGiB"), ==, 1);
  g_assert_cmpstr (service_fixture_get (node, "zone"), ==, "lab");
  g_assert_cmpstr (service_fixture_get (node, "hostname"), ==, "h1");
  g_assert_cmpstr (service_fixture_get (node, "mac"), ==, "02:f4:0a:4d:00:02");
  g_assert_true (json_object_get_boolean_member (vm, "requireAttestation"));
  g_assert_true (json_object_get_boolean_member (vm, "autostart"));
  g_assert_cmpstr (
      json_object_get_string_member (json_object_get_object_member (vm, "metadata"), "b"), ==, "2");
  g_assert_cmpuint (json_array_get_length (json_object_get_array_member (vm, "sshAuthorizedKeys")),
                    ==, 1);
  path = g_build_filename (service->state_dir, "vms", service_fixture_get (node, "id"), "user-data",
                           NULL);
  g_assert_true (g_file_get_contents (path, &user_data, NULL, NULL));
  g_assert_cmpstr (user_data, ==, "{}");
}

/* What is wrong with the wish is told at once, in a fixed order. */
static void
test_create_invalid (Fixture *fixture, gconstpointer data)
{
  static const struct
  {
    const char *arguments;
    const char *message;
  } bad[] = {
    { "{}", "invalid request: name must be a DNS label (lowercase letters, digits, dashes); "
            "hostname must be a DNS label" },
    { "{'name':'Web','hostname':'a.b','cpus':257,'memory_mib':255,'disk_gib':4097,"
      "'wait_for':'soon','metadata':{'a/b':'','':'','c d':''},'ssh_authorized_keys':['a\\nb']}",
      "invalid request: name must be a DNS label (lowercase letters, digits, dashes); "
      "hostname must be a DNS label; cpus must be 1..256; memoryMiB must be at least 256; "
      "diskGiB must be 1..4096; waitFor must be none, installed, attested or ready; "
      "metadata key \"\" must not be empty or contain slashes or spaces; "
      "metadata key \"a/b\" must not be empty or contain slashes or spaces; "
      "metadata key \"c d\" must not be empty or contain slashes or spaces; "
      "ssh authorized keys must be single lines" },
    { "{'name':'a','cpus':-1,'memory_mib':-1,'disk_gib':-1}",
      "invalid request: cpus must be 1..256; memoryMiB must be at least 256; "
      "diskGiB must be 1..4096" },
    { "{'name':'a','cpus':9223372036854775807,'disk_gib':4294967297}",
      "invalid request: cpus must be 1..256; diskGiB must be 1..4096" },
    { "{'name':'a','memory_mib':8796093022208}",
      "invalid request: memoryMiB must be at most 8796093022207" },
    { "{'name':'a','ssh_authorized_keys':['a','b\\rc']}",
      "invalid request: ssh authorized keys must be single lines" },
    { "{'name':'a','metadata':{'k':7}}", "invalid request: metadata value of \"k\" *" },
    { "{'name':'a','cpus':'2'}", "invalid request: *cpus*" },
    { "{'name':'a','image':'nope'}", "invalid request: image \"nope\": not found: image \"nope\"" },
    { "{'name':'a','image':'demo','kubernetes_version':'9.9.9'}",
      "invalid request: kubernetes version \"9.9.9\" is not available for image demo_1.0.0 "
      "(available: 1.32.0, 1.31.2)" },
    { "{'name':'a','network':'nope'}",
      "invalid request: network \"nope\": not found: network \"nope\"" },
  };
  g_autoptr (JsonNode) list = NULL;
  g_autofree char *vms = g_build_filename (fixture->service->state_dir, "vms", NULL);
  g_autoptr (GDir) dir = NULL;

  for (guint i = 0; i < G_N_ELEMENTS (bad); i++)
    service_fixture_call_badly (fixture->service, "create_vm", VMM_ERROR_INVALID_REQUEST,
                                bad[i].message, "%s", bad[i].arguments);
  list = service_fixture_call_well (fixture->service, "list_vms", "{}");
  g_assert_cmpuint (length_of (list), ==, 0);
  dir = g_dir_open (vms, 0, NULL);
  g_assert_nonnull (dir);
  g_assert_null (g_dir_read_name (dir));
}

static void
test_create_duplicate (Fixture *fixture, gconstpointer data)
{
  ServiceFixture *service = fixture->service;
  g_autofree char *id = service_fixture_create_vm (service, "web", "ready");
  g_autofree char *message = g_strdup_printf ("conflict: vm name \"web\" is in use by %s", id);
  g_autoptr (JsonNode) gone = NULL;
  g_autofree char *again = NULL;

  service_fixture_call_badly (service, "create_vm", VMM_ERROR_CONFLICT, message,
                              "{'name':'web','require_attestation':false}");
  gone = service_fixture_call_well (service, "delete_vm", "{'id':'%s'}", id);
  again = service_fixture_create_vm (service, "web", "none");
  g_assert_cmpstr (again, !=, id);
}

/* Neither the folder of something else nor a CID or port of another VM is ever taken. */
static void
test_create_draws (Fixture *fixture, gconstpointer data)
{
  ServiceFixture *service = fixture->service;
  g_autofree char *first = service_fixture_create_vm (service, "a", "none");
  g_autofree char *second = service_fixture_create_vm (service, "b", "none");
  g_autoptr (JsonNode) one = service_fixture_call_well (service, "get_vm", "{'id':'%s'}", first);
  g_autoptr (JsonNode) two = service_fixture_call_well (service, "get_vm", "{'id':'%s'}", second);
  JsonObject *a = object_of (one);
  JsonObject *b = object_of (two);

  g_assert_cmpint (json_object_get_int_member (b, "cid"), ==,
                   json_object_get_int_member (a, "cid") + 1);
  g_assert_cmpint (json_object_get_int_member (b, "notifyPort"), !=,
                   json_object_get_int_member (a, "notifyPort"));
  g_assert_cmpstr (service_fixture_get (one, "machineID"), !=,
                   service_fixture_get (two, "machineID"));
}

/* CIDs are the host's: one that another daemon has is found out by QEMU, and the next one is taken,
 * over those that our own VMs have. */
static void
test_create_cid_in_use (Fixture *fixture, gconstpointer data)
{
  ServiceFixture *service = fixture->service;
  g_autofree char *first = service_fixture_create_vm (service, "a", "ready");
  g_autofree char *second = NULL;
  VmmMachine *one = vmm_service_lookup (service->service, first, NULL);
  VmmMachine *two;
  guint32 base = vmm_machine_get_record (one)->cid;

  test_fakes_fail_once ("launcher.start:qemu", VMM_ERROR_INTERNAL,
                        "vhost-vsock: unable to set guest cid: Address already in use");
  second = service_fixture_create_vm (service, "b", "ready");
  two = vmm_service_lookup (service->service, second, NULL);
  g_assert_cmpuint (vmm_machine_get_record (two)->cid, ==, base + 2);
}

/* What fails before the installer runs leaves nothing and answers the plain error. */
static void
test_create_undone (Fixture *fixture, gconstpointer data)
{
  ServiceFixture *service = fixture->service;
  g_autoptr (JsonNode) list = NULL;
  g_autoptr (JsonNode) network = NULL;
  g_autofree char *id = NULL;

  test_fakes_fail_once ("storage.acquire", VMM_ERROR_CONFLICT, "disk full");
  service_fixture_call_badly (service, "create_vm", VMM_ERROR_CONFLICT, "*disk full*",
                              "{'name':'web','require_attestation':false}");
  test_fakes_fail_once ("launcher.start:qemu", VMM_ERROR_INTERNAL, "no qemu");
  service_fixture_call_badly (service, "create_vm", VMM_ERROR_INTERNAL, "*no qemu*",
                              "{'name':'web','require_attestation':false}");
  list = service_fixture_call_well (service, "list_vms", "{}");
  g_assert_cmpuint (length_of (list), ==, 0);
  network = service_fixture_call_well (service, "get_network", "{'name':'default'}");
  g_assert_cmpuint (
      json_array_get_length (json_object_get_array_member (object_of (network), "leases")), ==, 0);
  g_assert_cmpuint (test_fakes_get_n_volumes (), ==, 0);
  g_assert_cmpuint (test_fakes_get_n_running (), ==, 0);
  id = service_fixture_create_vm (service, "web", "ready");
}

/* A VM that fails later exists, and the error is the only way to find it. */
static void
test_create_failed (Fixture *fixture, gconstpointer data)
{
  ServiceFixture *service = fixture->service;
  g_autoptr (JsonNode) list = NULL;
  g_autoptr (JsonNode) node = NULL;
  g_autoptr (GError) error = NULL;
  g_autofree char *tail = NULL;
  JsonNode *vm;

  node = service_fixture_call (service, "create_vm", &error,
                               "{'name':'web','require_attestation':false}");
  g_assert_null (node);
  g_assert_error (error, VMM_ERROR, VMM_ERROR_VM_FAILED);
  list = service_fixture_call_well (service, "list_vms", "{}");
  g_assert_cmpuint (length_of (list), ==, 1);
  vm = json_array_get_element (json_node_get_array (list), 0);
  g_assert_cmpstr (service_fixture_get (vm, "state"), ==, "failed");
  g_assert_true (g_str_has_prefix (error->message, "vm failed: installer exited: exit status 7"));
  tail = g_strdup_printf ("; vm %s is failed: %s (follow it with get_vm %s, delete it with "
                          "delete_vm)",
                          service_fixture_get (vm, "id"), service_fixture_get (vm, "lastError"),
                          service_fixture_get (vm, "id"));
  g_assert_true (g_str_has_suffix (error->message, tail));
}

typedef struct
{
  GPtrArray *phases; /* each once */
  char *message;     /* the last */
  const char *expected;
} Progress;

static void
progress_cb (VmmCall *call, const char *phase, const char *message, gpointer user_data)
{
  Progress *progress = user_data;
  guint n = progress->phases->len;

  if (n == 0 || g_strcmp0 (g_ptr_array_index (progress->phases, n - 1), phase) != 0)
    g_ptr_array_add (progress->phases, g_strdup (phase));
  g_free (progress->message);
  progress->message = g_strdup (message);
}

static gboolean
is_message (gpointer user_data)
{
  Progress *progress = user_data;

  return g_strcmp0 (progress->message, progress->expected) == 0;
}

static gboolean
is_phase (gpointer user_data)
{
  Progress *progress = user_data;

  return g_ptr_array_find_with_equal_func (progress->phases, progress->expected, g_str_equal, NULL);
}

static VmmCall *
make_create_call (GCancellable *cancellable)
{
  static const char text[]
      = "{\"name\":\"web\",\"require_attestation\":false,\"wait_for\":\"ready\"}";
  g_autoptr (VmmCaller) caller = vmm_caller_new ("test", "uid:4242");
  g_autoptr (JsonObject) arguments = vmm_json_parse_object (text, sizeof text - 1, NULL);

  return vmm_call_new (caller, arguments, cancellable);
}

/* Who listens is told the phases and the last line of the console, escaped, while he waits. */
static void
test_create_progress (Fixture *fixture, gconstpointer data)
{
  ServiceFixture *service = fixture->service;
  g_autoptr (VmmCall) call = make_create_call (NULL);
  Progress progress = { g_ptr_array_new_with_free_func (g_free), NULL, "installing" };
  TestAwait await = TEST_AWAIT_INIT;
  g_autoptr (GAsyncResult) result = NULL;
  g_autoptr (GError) error = NULL;
  g_autoptr (JsonNode) gone = NULL;
  g_autofree char *id = NULL;

  g_signal_connect (call, "progress", G_CALLBACK (progress_cb), &progress);
  vmm_service_create_vm_async (service->service, call, test_await_cb, &await);
  id = g_strdup (
      vmm_machine_get_id (g_ptr_array_index (vmm_service_get_machines (service->service), 0)));
  test_await_condition (is_phase, &progress);
  g_assert_cmpstr (g_ptr_array_index (progress.phases, 0), ==, "creating");
  write_in_vm (service, id, "console.log", "first\nlast \033[1mline\n", -1);
  progress.expected = "last \\x1b[1mline";
  test_await_condition (is_message, &progress);

  gone = service_fixture_call_well (service, "delete_vm", "{'id':'%s'}", id);
  result = test_await (&await);
  g_assert_null (vmm_service_create_vm_finish (service->service, result, &error));
  g_assert_error (error, VMM_ERROR, VMM_ERROR_VM_FAILED);
  g_assert_true (g_str_has_prefix (error->message, "vm failed: vm is deleting; vm "));
  g_ptr_array_unref (progress.phases);
  g_free (progress.message);
}

/* The message is the only way to find the VM. */
static void
test_create_while_ending (Fixture *fixture, gconstpointer data)
{
  ServiceFixture *service = fixture->service;
  g_autoptr (VmmCall) call = make_create_call (NULL);
  g_autoptr (GAsyncResult) result = NULL;
  g_autoptr (GError) error = NULL;
  g_autofree char *expected = NULL;
  TestAwait await = TEST_AWAIT_INIT;
  const char *id;

  vmm_service_create_vm_async (service->service, call, test_await_cb, &await);
  id = vmm_machine_get_id (g_ptr_array_index (vmm_service_get_machines (service->service), 0));
  service_fixture_await_state (service, id, VMM_MACHINE_INSTALLING);
  vmm_service_end_waits (service->service);
  result = test_await (&await);
  g_assert_null (vmm_service_create_vm_finish (service->service, result, &error));
  g_assert_error (error, VMM_ERROR, VMM_ERROR_CONFLICT);
  expected = g_strdup_printf ("conflict: vm-manager is shutting down; vm %s is installing (follow it "
                              "with get_vm %s, delete it with delete_vm)",
                              id, id);
  g_assert_cmpstr (error->message, ==, expected);
}

/* Who leaves ends his waiting; the VM comes up all the same. */
static void
test_create_client_leaves (Fixture *fixture, gconstpointer data)
{
  ServiceFixture *service = fixture->service;
  g_autoptr (GCancellable) cancellable = g_cancellable_new ();
  g_autoptr (VmmCall) call = make_create_call (cancellable);
  TestAwait await = TEST_AWAIT_INIT;
  g_autoptr (GAsyncResult) result = NULL;
  g_autoptr (GError) error = NULL;
  g_autofree char *id = NULL;
  VmmMachine *machine;

  vmm_service_create_vm_async (service->service, call, test_await_cb, &await);
  g_assert_cmpuint (vmm_service_get_machines (service->service)->len, ==, 1);
  machine = g_ptr_array_index (vmm_service_get_machines (service->service), 0);
  g_assert_cmpint (vmm_machine_get_state (machine), ==, VMM_MACHINE_CREATING);
  id = g_strdup (vmm_machine_get_id (machine));
  g_cancellable_cancel (cancellable);
  result = test_await (&await);
  g_assert_null (vmm_service_create_vm_finish (service->service, result, &error));
  g_assert_error (error, G_IO_ERROR, G_IO_ERROR_CANCELLED);
  service_fixture_await_state (service, id, VMM_MACHINE_READY);
}

static void
test_no_attestor (void)
{
  ServiceFixture *service = service_fixture_new ();
  g_autofree char *id = NULL;

  test_fakes.unavailable[VMM_PLUGIN_KIND_ATTESTOR] = "no TPM library";
  service_fixture_start_well (service);
  service_fixture_call_badly (service, "create_vm", VMM_ERROR_UNSUPPORTED,
                              "unsupported: require_attestation: *require_attestation false",
                              "{'name':'web','require_attestation':true}");
  service_fixture_call_badly (service, "create_vm", VMM_ERROR_UNSUPPORTED,
                              "unsupported: require_attestation: *", "{'name':'web'}");
  id = service_fixture_create_vm (service, "web", "ready");
  service_fixture_free (service);
}

static void
test_no_firmware (Fixture *fixture, gconstpointer data)
{
  ServiceFixture *service = fixture->service;
  g_autofree char *code = g_build_filename (service->state_dir, "ovmf", "code.fd", NULL);
  g_autofree char *variables = g_build_filename (service->state_dir, "ovmf", "vars.fd", NULL);
  g_autofree char *id = service_fixture_create_vm (service, "old", "ready");
  g_autoptr (JsonNode) stopped = service_fixture_call_well (service, "stop_vm", "{'id':'%s'}", id);
  g_autoptr (JsonNode) started = NULL;
  g_autoptr (JsonNode) again = NULL;

  g_assert_nonnull (stopped);
  g_assert_cmpint (g_unlink (variables), ==, 0);
  service_fixture_call_badly (service, "create_vm", VMM_ERROR_UNSUPPORTED,
                              "unsupported: no firmware: */ovmf/vars.fd is not there: install *",
                              "{'name':'web','require_attestation':false}");
  /* It has variables of its own. */
  started = service_fixture_call_well (service, "start_vm", "{'id':'%s'}", id);
  again = service_fixture_call_well (service, "stop_vm", "{'id':'%s'}", id);

  g_assert_cmpint (g_unlink (code), ==, 0);
  service_fixture_call_badly (service, "start_vm", VMM_ERROR_UNSUPPORTED,
                              "unsupported: no firmware: */ovmf/code.fd is not there: install *",
                              "{'id':'%s'}", id);
}

/* -- one VM ----------------------------------------------------------------------------------- */

static void
test_lifecycle (Fixture *fixture, gconstpointer data)
{
  ServiceFixture *service = fixture->service;
  g_autofree char *id = service_fixture_create_vm (service, "web", "ready");
  g_autoptr (JsonNode) stopped = NULL;
  g_autoptr (JsonNode) started = NULL;
  g_autoptr (JsonNode) rebooted = NULL;
  g_autoptr (JsonNode) deleted = NULL;
  g_autofree char *directory = g_build_filename (service->state_dir, "vms", id, NULL);

  service_fixture_call_badly (service, "start_vm", VMM_ERROR_CONFLICT, "conflict: vm * is ready",
                              "{'id':'%s'}", id);
  stopped = service_fixture_call_well (service, "stop_vm", "{'id':'%s'}", id);
  g_assert_cmpstr (service_fixture_get (stopped, "state"), ==, "stopped");
  service_fixture_call_badly (service, "stop_vm", VMM_ERROR_CONFLICT,
                              "conflict: vm * is not running (stopped)", "{'id':'%s'}", id);
  service_fixture_call_badly (service, "reboot_vm", VMM_ERROR_CONFLICT,
                              "conflict: vm * is not running (stopped)", "{'id':'%s'}", id);
  /* Answered as soon as the process runs. */
  test_peer_configure ("ready-ms=never");
  started = service_fixture_call_well (service, "start_vm", "{'id':'%s'}", id);
  g_assert_cmpstr (service_fixture_get (started, "state"), ==, "booting");
  g_assert_true (test_peer_emit (id, "ready"));
  service_fixture_await_state (service, id, VMM_MACHINE_READY);
  rebooted = service_fixture_call_well (service, "reboot_vm", "{'id':'%s'}", id);
  g_assert_cmpstr (service_fixture_get (rebooted, "state"), ==, "booting");
  g_assert_true (test_peer_emit (id, "ready"));
  service_fixture_await_state (service, id, VMM_MACHINE_READY);

  deleted = service_fixture_call_well (service, "delete_vm", "{'id':'%s'}", id);
  g_assert_cmpstr (service_fixture_get (deleted, "id"), ==, id);
  g_assert_true (json_object_get_boolean_member (object_of (deleted), "deleted"));
  g_assert_false (g_file_test (directory, G_FILE_TEST_EXISTS));
  g_assert_cmpuint (vmm_service_get_machines (service->service)->len, ==, 0);
}

static void
test_unknown_vm (Fixture *fixture, gconstpointer data)
{
  static const char *const operations[] = {
    "get_vm",         "start_vm",           "stop_vm",        "reboot_vm",     "delete_vm",
    "get_vm_console", "get_vm_attestation", "get_vm_metrics", "get_vm_report", "exec_vm",
    "forward_port",   "list_forwards",      "close_forward",
  };

  for (guint i = 0; i < G_N_ELEMENTS (operations); i++)
    service_fixture_call_badly (fixture->service, operations[i], VMM_ERROR_NOT_FOUND,
                                "not found: vm \"0123abcd\"",
                                "{'id':'0123abcd','command':['a'],'port':22,'forward':'x'}");
}

/* Two VMs at rest: after a restart nothing of them is in flight. */
static void
test_list_is_shared (Fixture *fixture, gconstpointer data)
{
  ServiceFixture *service = fixture->service;
  g_autofree char *first = service_fixture_create_vm (service, "b", "ready");
  g_autofree char *second = service_fixture_create_vm (service, "a", "ready");
  g_autoptr (JsonNode) one = NULL;
  g_autoptr (JsonNode) two = NULL;
  g_autoptr (JsonNode) three = NULL;
  g_autoptr (JsonNode) started = NULL;
  JsonArray *list;
  JsonArray *after;

  service_fixture_close (service, FALSE);
  service_fixture_start_well (service);
  one = service_fixture_call_well (service, "list_vms", "{}");
  two = service_fixture_call_well (service, "list_vms", "{}");
  list = json_node_get_array (one);
  g_assert_cmpuint (length_of (one), ==, 2);
  g_assert_true (one == two);
  /* By age, not by name. */
  g_assert_cmpstr (service_fixture_get (json_array_get_element (list, 0), "id"), ==, first);
  g_assert_cmpstr (service_fixture_get (json_array_get_element (list, 1), "id"), ==, second);

  started = service_fixture_call_well (service, "start_vm", "{'id':'%s'}", first);
  three = service_fixture_call_well (service, "list_vms", "{}");
  after = json_node_get_array (three);
  g_assert_true (three != one);
  g_assert_cmpstr (service_fixture_get (json_array_get_element (after, 0), "state"), !=, "stopped");
  /* What did not change is the same object, and an answer given before stays as it was. */
  g_assert_true (json_array_get_element (after, 1) == json_array_get_element (list, 1));
  g_assert_cmpstr (service_fixture_get (json_array_get_element (list, 0), "state"), ==, "stopped");
}

/* A VM whose work hangs is still looked at, and so are the others. */
static void
test_reads_never_wait (Fixture *fixture, gconstpointer data)
{
  ServiceFixture *service = fixture->service;
  g_autofree char *id = NULL;
  g_autoptr (VmmCall) call = make_create_call (NULL);
  TestAwait await = TEST_AWAIT_INIT;
  g_autoptr (GAsyncResult) result = NULL;
  g_autoptr (JsonNode) vm = NULL;
  g_autoptr (JsonNode) console = NULL;
  g_autoptr (JsonNode) node = NULL;
  g_autoptr (GError) error = NULL;

  test_fakes_hang ("storage.acquire");
  vmm_service_create_vm_async (service->service, call, test_await_cb, &await);
  id = g_strdup (
      vmm_machine_get_id (g_ptr_array_index (vmm_service_get_machines (service->service), 0)));
  vm = service_fixture_call_well (service, "get_vm", "{'id':'%s'}", id);
  g_assert_cmpstr (service_fixture_get (vm, "state"), ==, "creating");
  console = service_fixture_call_well (service, "get_vm_console", "{'id':'%s'}", id);
  g_assert_cmpstr (service_fixture_get (console, "console"), ==, "");
  test_fakes_release ("storage.acquire");
  result = test_await (&await);
  node = vmm_service_create_vm_finish (service->service, result, &error);
  g_assert_no_error (error);
}

static void
assert_console (ServiceFixture *service, const char *id, const char *lines, gint64 echoed,
                const char *expected)
{
  g_autoptr (JsonNode) node
      = service_fixture_call_well (service, "get_vm_console", "{'id':'%s'%s}", id, lines);

  g_assert_cmpstr (service_fixture_get (node, "id"), ==, id);
  g_assert_cmpint (json_object_get_int_member (object_of (node), "lines"), ==, echoed);
  g_assert_cmpstr (service_fixture_get (node, "console"), ==, expected);
}

static void
test_console (Fixture *fixture, gconstpointer data)
{
  ServiceFixture *service = fixture->service;
  g_autofree char *id = service_fixture_create_vm (service, "web", "ready");
  g_autoptr (GString) big = g_string_new ("cut off line");
  g_autoptr (JsonNode) stopped = service_fixture_call_well (service, "stop_vm", "{'id':'%s'}", id);
  g_autoptr (JsonNode) node = NULL;
  const char *text;

  g_assert_nonnull (stopped);
  write_in_vm (service, id, "console.log", "one\ntwo\r\nthree\n\n\n", -1);
  assert_console (service, id, "", 100, "one\ntwo\r\nthree");
  assert_console (service, id, ",'lines':2", 2, "two\r\nthree");
  assert_console (service, id, ",'lines':1", 1, "three");
  assert_console (service, id, ",'lines':0", 100, "one\ntwo\r\nthree");
  assert_console (service, id, ",'lines':-5", 100, "one\ntwo\r\nthree");
  assert_console (service, id, ",'lines':99999", 99999, "one\ntwo\r\nthree");
  assert_console (service, id, ",'lines':null", 100, "one\ntwo\r\nthree");
  service_fixture_call_badly (service, "get_vm_console", VMM_ERROR_INVALID_REQUEST, "*lines*",
                              "{'id':'%s','lines':'many'}", id);
  write_in_vm (service, id, "console.log",
               "a\xff"
               "b\0c\n",
               6);
  assert_console (service, id, "", 100,
                  "a\xef\xbf\xbd"
                  "b\xef\xbf\xbd"
                  "c");

  while (big->len < 70 * 1024)
    g_string_append (big, "\nsixteen letters!");
  write_in_vm (service, id, "console.log", big->str, (gssize) big->len);
  node = service_fixture_call_well (service, "get_vm_console", "{'id':'%s','lines':10000}", id);
  text = service_fixture_get (node, "console");
  g_assert_true (g_str_has_prefix (text, "sixteen letters!\n"));
  g_assert_cmpuint (strlen (text), <=, 64 * 1024);
  g_assert_cmpuint (strlen (text), >, 63 * 1024);
  /* No line ends in it: nothing whole is left. */
  g_string_truncate (big, 0);
  while (big->len < 70 * 1024)
    g_string_append (big, "sixteen letters!");
  write_in_vm (service, id, "console.log", big->str, (gssize) big->len);
  assert_console (service, id, "", 100, "");
}

static void
test_report (Fixture *fixture, gconstpointer data)
{
  ServiceFixture *service = fixture->service;
  g_autofree char *id = service_fixture_create_vm (service, "web", "ready");
  g_autofree char *missing
      = g_strdup_printf ("not found: vm \"%s\" has no systemd-report upload yet", id);
  g_autoptr (JsonNode) report = NULL;
  g_autoptr (JsonNode) garbage = NULL;

  service_fixture_call_badly (service, "get_vm_report", VMM_ERROR_NOT_FOUND, missing, "{'id':'%s'}",
                              id);
  write_in_vm (service, id, "report.json", "{\"a\": [1, \"<b>\"]}", -1);
  report = service_fixture_call_well (service, "get_vm_report", "{'id':'%s'}", id);
  g_assert_true (JSON_NODE_HOLDS_OBJECT (report));
  write_in_vm (service, id, "report.json", "{\"a\": \xff", -1);
  garbage = service_fixture_call_well (service, "get_vm_report", "{'id':'%s'}", id);
  g_assert_cmpstr (json_node_get_string (garbage), ==, "{\"a\": \xef\xbf\xbd");
}

static void
test_attestation_and_metrics (Fixture *fixture, gconstpointer data)
{
  ServiceFixture *service = fixture->service;
  g_autofree char *id = service_fixture_create_vm (service, "web", "ready");
  g_autoptr (JsonNode) attestation
      = service_fixture_call_well (service, "get_vm_attestation", "{'id':'%s'}", id);
  g_autoptr (JsonNode) metrics
      = service_fixture_call_well (service, "get_vm_metrics", "{'id':'%s'}", id);

  g_assert_false (json_object_get_boolean_member (object_of (attestation), "required"));
  g_assert_true (json_object_get_boolean_member (object_of (attestation), "userDataReleased"));
  g_assert_cmpstr (service_fixture_get (metrics, "id"), ==, id);
  g_assert_true (json_object_has_member (object_of (metrics), "host"));
  g_assert_true (json_object_get_null_member (object_of (metrics), "guest"));
}

static void
test_exec (Fixture *fixture, gconstpointer data)
{
  ServiceFixture *service = fixture->service;
  g_autofree char *id = service_fixture_create_vm (service, "web", "ready");
  g_autoptr (JsonNode) stopped = NULL;

  service_fixture_call_badly (service, "exec_vm", VMM_ERROR_INVALID_REQUEST,
                              "invalid request: command is empty", "{'id':'nope'}");
  service_fixture_call_badly (service, "exec_vm", VMM_ERROR_INVALID_REQUEST,
                              "invalid request: command is empty", "{'id':'%s','command':[]}", id);
  test_fakes_fail_once ("network.dial", VMM_ERROR_INTERNAL, "connection refused");
  service_fixture_call_badly (service, "exec_vm", VMM_ERROR_INTERNAL,
                              "dial 10.64.0.2:22: *connection refused*",
                              "{'id':'%s','command':['true']}", id);
  test_fakes_lie ("network.dial"); /* a connection that is closed already */
  service_fixture_call_badly (service, "exec_vm", VMM_ERROR_INTERNAL,
                              "ssh 10.64.0.2:22: the connection ended*",
                              "{'id':'%s','command':['true']}", id);
  test_fakes_clear ("network.dial");
  stopped = service_fixture_call_well (service, "stop_vm", "{'id':'%s'}", id);
  service_fixture_call_badly (service, "exec_vm", VMM_ERROR_CONFLICT,
                              "conflict: vm * is not running (stopped)",
                              "{'id':'%s','command':['true']}", id);
}

/* -- forwards --------------------------------------------------------------------------------- */

static void
test_forwards (Fixture *fixture, gconstpointer data)
{
  ServiceFixture *service = fixture->service;
  g_autofree char *id = service_fixture_create_vm (service, "web", "ready");
  g_autofree char *other = service_fixture_create_vm (service, "db", "ready");
  g_autoptr (JsonNode) made = NULL;
  g_autoptr (JsonNode) fixed = NULL;
  g_autoptr (JsonNode) udp = NULL;
  g_autoptr (JsonNode) list = NULL;
  g_autoptr (JsonNode) closed = NULL;
  g_autoptr (JsonNode) after = NULL;
  g_autoptr (JsonNode) gone = NULL;
  g_autofree char *holder = NULL;

  test_fakes.forward_port = 41233;
  made = service_fixture_call_well (service, "forward_port", "{'id':'%s','port':6443}", id);
  g_assert_cmpstr (service_fixture_get (made, "id"), ==, id);
  g_assert_cmpint (json_object_get_int_member (object_of (made), "port"), ==, 6443);
  g_assert_cmpstr (service_fixture_get (made, "address"), ==, "127.0.0.1:41233");
  g_assert_cmpstr (service_fixture_get (made, "protocol"), ==, "tcp");
  g_assert_cmpuint (strlen (service_fixture_get (made, "forward")), ==, 8);

  fixed = service_fixture_call_well (service, "forward_port",
                                     "{'id':'%s','port':80,'host_port':8080}", id);
  g_assert_cmpstr (service_fixture_get (fixed, "address"), ==, "127.0.0.1:8080");
  holder = g_strdup_printf ("conflict: host port tcp/8080 is in use by forward %s of vm web (%s)",
                            service_fixture_get (fixed, "forward"), id);
  service_fixture_call_badly (service, "forward_port", VMM_ERROR_CONFLICT, holder,
                              "{'id':'%s','port':81,'host_port':8080}", other);
  udp = service_fixture_call_well (
      service, "forward_port", "{'id':'%s','port':53,'host_port':5353,'protocol':'udp'}", other);
  g_assert_cmpstr (service_fixture_get (udp, "protocol"), ==, "udp");

  list = service_fixture_call_well (service, "list_forwards", "{'id':'%s'}", id);
  g_assert_cmpuint (length_of (list), ==, 2);
  g_assert_cmpuint (test_fakes_get_n_forwards (), ==, 3);
  service_fixture_call_badly (service, "close_forward", VMM_ERROR_NOT_FOUND,
                              "not found: forward \"nope\" of vm *", "{'id':'%s','forward':'nope'}",
                              id);
  /* Of another VM: not to be closed here. */
  service_fixture_call_badly (service, "close_forward", VMM_ERROR_NOT_FOUND, "not found: *",
                              "{'id':'%s','forward':'%s'}", other,
                              service_fixture_get (fixed, "forward"));
  closed = service_fixture_call_well (service, "close_forward", "{'id':'%s','forward':'%s'}", id,
                                      service_fixture_get (fixed, "forward"));
  g_assert_true (json_object_get_boolean_member (object_of (closed), "deleted"));
  after = service_fixture_call_well (service, "list_forwards", "{'id':'%s'}", id);
  g_assert_cmpuint (length_of (after), ==, 1);
  g_assert_cmpuint (test_fakes_get_n_forwards (), ==, 2);
  gone = service_fixture_call_well (service, "delete_vm", "{'id':'%s'}", id);
  g_assert_cmpuint (test_fakes_get_n_forwards (), ==, 1);
}

static void
test_forwards_refused (Fixture *fixture, gconstpointer data)
{
  ServiceFixture *service = fixture->service;
  g_autofree char *id = service_fixture_create_vm (service, "web", "ready");
  g_autoptr (JsonNode) list = NULL;

  service_fixture_call_badly (service, "forward_port", VMM_ERROR_INVALID_REQUEST,
                              "invalid request: port 0 out of range", "{'id':'%s'}", id);
  service_fixture_call_badly (service, "forward_port", VMM_ERROR_INVALID_REQUEST,
                              "invalid request: port 65536 out of range",
                              "{'id':'%s','port':65536}", id);
  service_fixture_call_badly (service, "forward_port", VMM_ERROR_INVALID_REQUEST,
                              "invalid request: host port -1 out of range",
                              "{'id':'%s','port':1,'host_port':-1}", id);
  service_fixture_call_badly (service, "forward_port", VMM_ERROR_INVALID_REQUEST,
                              "invalid request: protocol \"sctp\" must be tcp or udp",
                              "{'id':'%s','port':1,'protocol':'sctp'}", id);
  test_fakes_fail_once ("network.forward", VMM_ERROR_CONFLICT, "listen on 127.0.0.1:1: in use");
  service_fixture_call_badly (service, "forward_port", VMM_ERROR_CONFLICT, "*listen on*",
                              "{'id':'%s','port':22,'host_port':1}", id);
  list = service_fixture_call_well (service, "list_forwards", "{'id':'%s'}", id);
  g_assert_cmpuint (length_of (list), ==, 0);
}

/* A forward that is not on disk is nobody's; a port in flight is taken. */
static void
test_forward_not_recorded (Fixture *fixture, gconstpointer data)
{
  ServiceFixture *service = fixture->service;
  g_autofree char *id = service_fixture_create_vm (service, "web", "ready");
  g_autofree char *record = g_build_filename (service->state_dir, "vms", id, "vm.json", NULL);
  g_autofree char *in_the_way = g_build_filename (record, "in-the-way", NULL);
  g_autoptr (JsonNode) stopped = service_fixture_call_well (service, "stop_vm", "{'id':'%s'}", id);
  g_autoptr (JsonNode) list = NULL;
  g_autoptr (JsonNode) made = NULL;
  g_autoptr (GError) error = NULL;

  g_assert_nonnull (stopped);
  g_assert_cmpint (g_unlink (record), ==, 0);
  g_assert_cmpint (g_mkdir_with_parents (in_the_way, 0700), ==, 0);
  g_assert_null (service_fixture_call (service, "forward_port", &error,
                                       "{'id':'%s','port':22,'host_port':2222}", id));
  g_assert_nonnull (error);
  list = service_fixture_call_well (service, "list_forwards", "{'id':'%s'}", id);
  g_assert_cmpuint (length_of (list), ==, 0);
  g_assert_cmpuint (test_fakes_get_n_forwards (), ==, 0);

  /* The port is free again, for one at a time. */
  test_remove_directory (g_strdup (record));
  made = service_fixture_call_well (service, "forward_port",
                                    "{'id':'%s','port':22,'host_port':2222}", id);
  g_assert_cmpstr (service_fixture_get (made, "address"), ==, "127.0.0.1:2222");
}

static VmmCall *
make_forward_call (const char *id)
{
  g_autofree char *text = g_strdup_printf ("{\"id\":\"%s\",\"port\":22,\"host_port\":2222}", id);
  g_autoptr (VmmCaller) caller = vmm_caller_new ("test", "uid:4242");
  g_autoptr (JsonObject) arguments = vmm_json_parse_object (text, strlen (text), NULL);

  return vmm_call_new (caller, arguments, NULL);
}

/* Two callers want one port: a conflict, not a race. The VM goes meanwhile: nothing is left. */
static void
test_forward_in_flight (Fixture *fixture, gconstpointer data)
{
  ServiceFixture *service = fixture->service;
  g_autofree char *id = service_fixture_create_vm (service, "web", "ready");
  g_autofree char *other = service_fixture_create_vm (service, "db", "ready");
  g_autoptr (VmmCall) call = make_forward_call (id);
  TestAwait await = TEST_AWAIT_INIT;
  g_autoptr (GAsyncResult) result = NULL;
  g_autoptr (GError) error = NULL;
  g_autoptr (JsonNode) gone = NULL;
  g_autoptr (JsonNode) made = NULL;

  test_fakes_hang ("network.forward");
  vmm_service_forward_port_async (service->service, call, test_await_cb, &await);
  service_fixture_call_badly (service, "forward_port", VMM_ERROR_CONFLICT,
                              "conflict: host port tcp/2222 is being taken by another forward",
                              "{'id':'%s','port':22,'host_port':2222}", other);
  gone = service_fixture_call_well (service, "delete_vm", "{'id':'%s'}", id);
  test_fakes_release ("network.forward");
  result = test_await (&await);
  g_assert_null (vmm_service_forward_port_finish (service->service, result, &error));
  g_assert_nonnull (error);
  g_assert_cmpuint (test_fakes_get_n_forwards (), ==, 0);
  g_clear_object (&result);
  made = service_fixture_call_well (service, "forward_port",
                                    "{'id':'%s','port':22,'host_port':2222}", other);
  g_assert_nonnull (made);
}

static void
test_forward_of_creating (Fixture *fixture, gconstpointer data)
{
  ServiceFixture *service = fixture->service;
  g_autoptr (VmmCall) call = make_create_call (NULL);
  TestAwait await = TEST_AWAIT_INIT;
  g_autoptr (GAsyncResult) result = NULL;
  g_autoptr (JsonNode) node = NULL;
  VmmMachine *machine;

  test_fakes_hang ("storage.acquire");
  vmm_service_create_vm_async (service->service, call, test_await_cb, &await);
  machine = g_ptr_array_index (vmm_service_get_machines (service->service), 0);
  service_fixture_call_badly (service, "forward_port", VMM_ERROR_CONFLICT,
                              "conflict: vm * has no address (creating)", "{'id':'%s','port':22}",
                              vmm_machine_get_id (machine));
  test_fakes_release ("storage.acquire");
  result = test_await (&await);
  node = vmm_service_create_vm_finish (service->service, result, NULL);
}

/* -- shutdown --------------------------------------------------------------------------------- */

static void
test_closing (Fixture *fixture, gconstpointer data)
{
  ServiceFixture *service = fixture->service;
  g_autofree char *id = service_fixture_create_vm (service, "web", "ready");
  g_autoptr (JsonNode) vm = NULL;
  TestAwait await = TEST_AWAIT_INIT;
  g_autoptr (GAsyncResult) result = NULL;

  vmm_service_close_async (service->service, FALSE, test_await_cb, &await);
  service_fixture_call_badly (service, "create_vm", VMM_ERROR_CONFLICT,
                              "conflict: vm-manager is shutting down",
                              "{'name':'late','require_attestation':false}");
  service_fixture_call_badly (service, "create_network", VMM_ERROR_CONFLICT,
                              "conflict: vm-manager is shutting down",
                              "{'name':'late','cidr':'10.77.0.0/24'}");
  service_fixture_call_badly (service, "start_vm", VMM_ERROR_CONFLICT,
                              "conflict: vm-manager is shutting down", "{'id':'%s'}", id);
  result = test_await (&await);
  g_assert_true (vmm_service_close_finish (service->service, result, NULL));
  vm = service_fixture_call_well (service, "get_vm", "{'id':'%s'}", id);
  g_assert_cmpstr (service_fixture_get (vm, "state"), ==, "stopped");
  g_assert_cmpuint (test_fakes_get_n_running (), ==, 0);
  g_assert_null (test_fakes_get_network ("default"));
}

/* Whatever hangs, the end comes: the stop timeout and ten seconds after the begin. */
static void
test_closing_is_bounded (Fixture *fixture, gconstpointer data)
{
  ServiceFixture *service = fixture->service;

  test_fakes_hang ("network.close");
  service->context->stop_timeout_us = G_TIME_SPAN_MILLISECOND - 10 * G_TIME_SPAN_SECOND;
  service_fixture_close (service, FALSE);
  g_assert_cmpuint (test_fakes_get_n_hanging (), ==, 1);
}

#define ADD(path, peers, function)                                                                 \
  g_test_add ("/service/" path, Fixture, peers, setup, function, teardown)

int
main (int argc, char **argv)
{
  g_test_init (&argc, &argv, G_TEST_OPTION_ISOLATE_DIRS, NULL);
  ADD ("info", NULL, test_info);
  ADD ("host", NULL, test_host);
  ADD ("images", NULL, test_images);
  ADD ("openapi", NULL, test_openapi);
  ADD ("networks", NULL, test_networks);
  ADD ("networks/in-use", NULL, test_network_in_use);
  ADD ("create", NULL, test_create);
  ADD ("create/full", NULL, test_create_full);
  ADD ("create/invalid", NULL, test_create_invalid);
  ADD ("create/duplicate", NULL, test_create_duplicate);
  ADD ("create/draws", NULL, test_create_draws);
  ADD ("create/cid-in-use", NULL, test_create_cid_in_use);
  ADD ("create/undone", NULL, test_create_undone);
  ADD ("create/failed", "installer-exit=7", test_create_failed);
  ADD ("create/progress", "installer-ms=never", test_create_progress);
  ADD ("create/ending", "installer-ms=never", test_create_while_ending);
  ADD ("create/client-leaves", NULL, test_create_client_leaves);
  g_test_add_func ("/service/create/no-attestor", test_no_attestor);
  ADD ("create/no-firmware", NULL, test_no_firmware);
  ADD ("lifecycle", NULL, test_lifecycle);
  ADD ("unknown-vm", NULL, test_unknown_vm);
  ADD ("list-is-shared", NULL, test_list_is_shared);
  ADD ("reads-never-wait", NULL, test_reads_never_wait);
  ADD ("console", NULL, test_console);
  ADD ("report", NULL, test_report);
  ADD ("attestation-and-metrics", NULL, test_attestation_and_metrics);
  ADD ("exec", NULL, test_exec);
  ADD ("forwards", NULL, test_forwards);
  ADD ("forwards/refused", NULL, test_forwards_refused);
  ADD ("forwards/not-recorded", NULL, test_forward_not_recorded);
  ADD ("forwards/in-flight", NULL, test_forward_in_flight);
  ADD ("forwards/creating", NULL, test_forward_of_creating);
  ADD ("closing", NULL, test_closing);
  ADD ("closing/bounded", NULL, test_closing_is_bounded);
  return g_test_run ();
}

/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The service's start and end: what an earlier daemon left, in every state, and what was never a
 * VM; a thousand VMs; backends that are missing; folders that cannot be written. */

#include "vmm-service.h"

#include <string.h>
#include <sys/stat.h>

#include <glib/gstdio.h>

#include "fake-backends.h"
#include "fake-peers.h"
#include "service-fixture.h"
#include "test-await.h"
#include "vmm-json.h"

typedef struct
{
  ServiceFixture *service;
} Fixture;

static void
setup (Fixture *fixture, gconstpointer data)
{
  fixture->service = service_fixture_new ();
  test_peer_configure (data);
}

static void
teardown (Fixture *fixture, gconstpointer data)
{
  service_fixture_free (fixture->service);
  test_peer_configure (NULL);
}

static char *
path_of (ServiceFixture *service, const char *id, const char *name)
{
  return g_build_filename (service->state_dir, "vms", id, name, NULL);
}

static char *
read_text (ServiceFixture *service, const char *id, const char *name)
{
  g_autofree char *path = path_of (service, id, name);
  char *text = NULL;

  g_assert_true (g_file_get_contents (path, &text, NULL, NULL));
  return text;
}

static guint
count_vms (ServiceFixture *service)
{
  g_autoptr (JsonNode) list = service_fixture_call_well (service, "list_vms", "{}");

  return json_array_get_length (json_node_get_array (list));
}

static const char *
state_of (ServiceFixture *service, const char *id)
{
  VmmMachine *machine = vmm_service_lookup (service->service, id, NULL);

  g_assert_nonnull (machine);
  return vmm_machine_state_to_nick (vmm_machine_get_state (machine));
}

/* -- start ------------------------------------------------------------------------------------ */

static void
test_empty (Fixture *fixture, gconstpointer data)
{
  ServiceFixture *service = fixture->service;
  g_autofree char *vms = g_build_filename (service->state_dir, "vms", NULL);
  struct stat info;

  service_fixture_start_well (service);
  g_assert_cmpuint (count_vms (service), ==, 0);
  g_assert_cmpint (stat (vms, &info), ==, 0);
  g_assert_cmpint (info.st_mode & 07777, ==, 0700);
  g_assert_nonnull (test_fakes_get_network ("default"));
  service_fixture_close (service, FALSE);
  service_fixture_start_well (service);
  g_assert_cmpuint (test_fakes_count ("network.open default"), ==, 2);
}

/* Everything a VM is comes back, and nothing is written that did not change. */
static void
test_restart (Fixture *fixture, gconstpointer data)
{
  ServiceFixture *service = fixture->service;
  g_autofree char *id = NULL;
  g_autofree char *second = NULL;
  g_autofree char *before = NULL;
  g_autofree char *after = NULL;
  g_autofree char *record = NULL;
  struct stat info;
  struct stat info_after;
  g_autoptr (JsonNode) one = NULL;
  g_autoptr (JsonNode) two = NULL;

  service_fixture_start_well (service);
  id = service_fixture_create_vm (service, "web", "ready");
  second = service_fixture_create_vm (service, "db", "ready");
  service_fixture_close (service, FALSE);
  before = read_text (service, id, "vm.json");
  record = path_of (service, id, "vm.json");
  g_assert_cmpint (stat (record, &info), ==, 0);

  service_fixture_start_well (service);
  g_assert_cmpuint (count_vms (service), ==, 2);
  one = service_fixture_call_well (service, "get_vm", "{'id':'%s'}", id);
  g_assert_cmpstr (service_fixture_get (one, "state"), ==, "stopped");
  g_assert_cmpstr (service_fixture_get (one, "name"), ==, "web");
  g_assert_cmpstr (service_fixture_get (one, "ip"), ==, "10.64.0.2");
  g_assert_cmpstr (service_fixture_get (one, "owner"), ==, "uid:4242");
  g_assert_true (json_object_get_boolean_member (json_node_get_object (one), "booted"));
  /* Its name, CID and address are still taken. */
  service_fixture_call_badly (service, "create_vm", VMM_ERROR_CONFLICT,
                              "conflict: vm name \"web\" is in use by *",
                              "{'name':'web','require_attestation':false}");
  service_fixture_close (service, FALSE);
  after = read_text (service, id, "vm.json");
  g_assert_cmpstr (after, ==, before);
  g_assert_cmpint (stat (record, &info_after), ==, 0);
  g_assert_cmpuint (info_after.st_ino, ==, info.st_ino);

  service_fixture_start_well (service);
  two = service_fixture_call_well (service, "start_vm", "{'id':'%s'}", id);
  service_fixture_await_state (service, id, VMM_MACHINE_READY);
}

/* VMs that go on while the daemon is away are found again as they were. */
static void
test_detach (Fixture *fixture, gconstpointer data)
{
  ServiceFixture *service = fixture->service;
  g_autofree char *id = NULL;
  g_autoptr (JsonNode) stopped = NULL;

  test_fakes.outlives_daemon = TRUE;
  service_fixture_start_well (service);
  id = service_fixture_create_vm (service, "web", "ready");
  service_fixture_close (service, TRUE);
  g_assert_true (test_fakes_is_running (id, "qemu"));
  g_assert_true (test_fakes_is_attached (id));

  service_fixture_start_well (service);
  g_assert_cmpstr (state_of (service, id), ==, "ready");
  stopped = service_fixture_call_well (service, "stop_vm", "{'id':'%s'}", id);
  g_assert_cmpstr (service_fixture_get (stopped, "state"), ==, "stopped");
}

/* Asked to let go, but with a launcher whose processes end with the daemon: stopped in order. */
static void
test_detach_impossible (Fixture *fixture, gconstpointer data)
{
  ServiceFixture *service = fixture->service;
  g_autofree char *id = NULL;

  service_fixture_start_well (service);
  id = service_fixture_create_vm (service, "web", "ready");
  service_fixture_close (service, TRUE);
  g_assert_cmpuint (test_fakes_get_n_running (), ==, 0);
  service_fixture_start_well (service);
  g_assert_cmpstr (state_of (service, id), ==, "stopped");
}

/* The state in a record, by hand: as a daemon leaves it that is killed there. */
static void
set_recorded_state (ServiceFixture *service, const char *id, const char *state)
{
  g_autofree char *path = path_of (service, id, "vm.json");
  g_autofree char *text = read_text (service, id, "vm.json");
  g_autofree char *wanted = g_strdup_printf ("\"state\": \"%s\"", state);
  g_auto (GStrv) parts = g_strsplit (text, "\"state\": \"stopped\"", 2);
  g_autofree char *changed = NULL;

  g_assert_cmpuint (g_strv_length (parts), ==, 2);
  changed = g_strjoinv (wanted, parts);
  g_assert_true (g_file_set_contents (path, changed, -1, NULL));
}

static void
test_each_state (Fixture *fixture, gconstpointer data)
{
  static const struct
  {
    const char *recorded;
    const char *settled;
    const char *last_error;
  } states[] = {
    { "creating", "failed", "vm-manager restarted while the VM was creating; delete it" },
    { "deleting", "failed", "vm-manager restarted while the VM was deleting; delete it" },
    { "installing", "stopped",
      "vm-manager restarted while the VM was installing and could not reattach to its QEMU *" },
    { "booting", "stopped",
      "vm-manager restarted while the VM was booting and could not reattach to its QEMU *" },
    { "attesting", "stopped",
      "vm-manager restarted while the VM was attesting and could not reattach to its QEMU *" },
    { "ready", "stopped",
      "vm-manager restarted while the VM was ready and could not reattach to its QEMU *" },
    { "running", "stopped",
      "vm-manager restarted while the VM was running and could not reattach to its QEMU *" },
    { "stopping", "stopped", "*" },
    { "stopped", "stopped", NULL },
    { "failed", "failed", NULL },
  };
  ServiceFixture *service = fixture->service;
  g_autoptr (GPtrArray) ids = g_ptr_array_new_with_free_func (g_free);

  service_fixture_start_well (service);
  for (guint i = 0; i < G_N_ELEMENTS (states); i++)
    {
      g_autofree char *name = g_strdup_printf ("vm-%s", states[i].recorded);

      g_ptr_array_add (ids, service_fixture_create_vm (service, name, "ready"));
    }
  service_fixture_close (service, FALSE);
  for (guint i = 0; i < G_N_ELEMENTS (states); i++)
    set_recorded_state (service, g_ptr_array_index (ids, i), states[i].recorded);

  service_fixture_start_well (service);
  for (guint i = 0; i < G_N_ELEMENTS (states); i++)
    {
      const char *id = g_ptr_array_index (ids, i);
      g_autoptr (JsonNode) node = service_fixture_call_well (service, "get_vm", "{'id':'%s'}", id);
      const char *last_error = service_fixture_get (node, "lastError");

      g_assert_cmpstr (service_fixture_get (node, "state"), ==, states[i].settled);
      if (states[i].last_error == NULL)
        g_assert_null (last_error);
      else if (last_error == NULL || !g_pattern_match_simple (states[i].last_error, last_error))
        g_assert_cmpstr (last_error, ==, states[i].last_error);
    }
  /* All of them can be deleted. */
  for (guint i = 0; i < G_N_ELEMENTS (states); i++)
    {
      g_autoptr (JsonNode) deleted = service_fixture_call_well (
          service, "delete_vm", "{'id':'%s'}", (const char *) g_ptr_array_index (ids, i));

      g_assert_nonnull (deleted);
    }
  g_assert_cmpuint (count_vms (service), ==, 0);
  g_assert_cmpuint (test_fakes_get_n_volumes (), ==, 0);
}

/* Killed without a word: what ran is gone, the record is as it was at that moment. */
static void
test_killed (Fixture *fixture, gconstpointer data)
{
  ServiceFixture *service = fixture->service;
  g_autofree char *id = NULL;
  g_autofree char *path = NULL;
  g_autofree char *record = NULL;
  g_autoptr (JsonNode) node = NULL;

  service_fixture_start_well (service);
  id = service_fixture_create_vm (service, "web", "ready");
  path = path_of (service, id, "vm.json");
  record = read_text (service, id, "vm.json");
  g_assert_nonnull (strstr (record, "\"processes\""));
  service_fixture_close (service, FALSE);
  g_assert_true (g_file_set_contents (path, record, -1, NULL));

  service_fixture_start_well (service);
  node = service_fixture_call_well (service, "get_vm", "{'id':'%s'}", id);
  g_assert_cmpstr (service_fixture_get (node, "state"), ==, "stopped");
  g_assert_false (json_object_has_member (json_node_get_object (node), "processes"));
}

/* -- garbage ---------------------------------------------------------------------------------- */

/* What is no VM of ours is left as it is, and its id is never used. */
static void
test_garbage (Fixture *fixture, gconstpointer data)
{
  static const struct
  {
    const char *path;
    const char *content;
  } garbage[] = {
    { "vms/00000001/vm.json", "" },
    { "vms/00000002/vm.json", "{" },
    { "vms/00000003/vm.json", "[]" },
    { "vms/00000004/vm.json", "{}" },
    { "vms/00000005/vm.json", "\xff\xfe" },
    { "vms/00000006/photo.jpg", "x" },
    { "vms/notes.txt", "x" },
    { "vms/backup of vms/vm.json", "{}" },
    { "vms/ABCDEF01/vm.json", "{}" },
    { "vms/00000007/vm.json/deep", "x" },
  };
  ServiceFixture *service = fixture->service;
  g_autofree char *id = NULL;
  g_autofree char *record = NULL;
  g_autofree char *newer = NULL;
  g_auto (GStrv) parts = NULL;
  g_autofree char *link = path_of (service, "0000000a", NULL);
  g_autofree char *target = NULL;

  service_fixture_start_well (service);
  id = service_fixture_create_vm (service, "web", "ready");
  service_fixture_close (service, FALSE);
  record = read_text (service, id, "vm.json");
  for (guint i = 0; i < G_N_ELEMENTS (garbage); i++)
    service_fixture_write (service, garbage[i].path, garbage[i].content);
  /* The record of another one, a newer format, a link to a real one. */
  service_fixture_write (service, "vms/00000008/vm.json", record);
  parts = g_strsplit (record, "\"formatVersion\": 1", 2);
  g_assert_cmpuint (g_strv_length (parts), ==, 2);
  newer = g_strjoinv ("\"formatVersion\": 2", parts);
  service_fixture_write (service, "vms/00000009/vm.json", newer);
  target = path_of (service, id, NULL);
  g_assert_cmpint (symlink (target, link), ==, 0);

  for (guint round = 0; round < 2; round++)
    {
      service_fixture_start_well (service);
      g_assert_cmpuint (count_vms (service), ==, 1);
      g_assert_cmpstr (state_of (service, id), ==, "stopped");
      service_fixture_close (service, FALSE);
      for (guint i = 0; i < G_N_ELEMENTS (garbage); i++)
        {
          g_autofree char *path = g_build_filename (service->state_dir, garbage[i].path, NULL);
          g_autofree char *content = NULL;

          g_assert_true (g_file_get_contents (path, &content, NULL, NULL));
          g_assert_cmpstr (content, ==, garbage[i].content);
        }
    }
  g_assert_cmpint (g_unlink (link), ==, 0);
}

static guint
count_leases (ServiceFixture *service)
{
  return vmm_network_table_get_n_leases (
      vmm_service_get_context (service->service)->networks, "default");
}

static gboolean
is_stranger_forgotten (gpointer user_data)
{
  g_autofree char *text = NULL;

  return g_file_get_contents (user_data, &text, NULL, NULL) && strstr (text, "0000000d") == NULL;
}

/* What a daemon leaves that is killed between two steps, or could not write: none of it stays. */
static void
test_leftovers (Fixture *fixture, gconstpointer data)
{
  ServiceFixture *service = fixture->service;
  g_autofree char *id = NULL;
  g_autofree char *networks = g_build_filename (service->state_dir, "networks.json", NULL);
  g_autofree char *never = path_of (service, "0000000a", NULL);
  g_autofree char *emptied = path_of (service, "0000000b", NULL);
  g_autofree char *stranger = g_build_filename (service->state_dir, "vms", "mine", NULL);
  g_autofree char *temporary = NULL;
  g_autofree char *text = NULL;

  service_fixture_start_well (service);
  id = service_fixture_create_vm (service, "web", "ready");
  service_fixture_close (service, FALSE);
  service_fixture_write (service, ".networks.json.0123abcd", "[");
  service_fixture_write (service, "vms/0000000a/.vm.json.0123abcd", "{");
  service_fixture_write (service, "vms/0000000c/vm.json", "{}");
  temporary = path_of (service, id, ".report.json.0123abcd");
  g_assert_true (g_file_set_contents (temporary, "x", -1, NULL));
  g_assert_cmpint (g_mkdir (emptied, 0700), ==, 0);
  g_assert_cmpint (g_mkdir (stranger, 0700), ==, 0);
  text = g_strdup_printf ("[{\"spec\": {\"name\": \"default\", \"cidr\": \"192.168.127.0/24\", "
                          "\"enableIMDS\": true}, \"leases\": {\"%s\": \"192.168.127.2\", "
                          "\"0000000c\": \"192.168.127.3\", \"0000000d\": \"192.168.127.4\"}}]",
                          id);
  g_assert_true (g_file_set_contents (networks, text, -1, NULL));

  service_fixture_start_well (service);
  g_assert_cmpuint (count_vms (service), ==, 1);
  g_assert_false (g_file_test (never, G_FILE_TEST_EXISTS));
  g_assert_false (g_file_test (emptied, G_FILE_TEST_EXISTS));
  g_assert_false (g_file_test (temporary, G_FILE_TEST_EXISTS));
  g_assert_true (g_file_test (stranger, G_FILE_TEST_EXISTS));
  g_free (temporary);
  temporary = g_build_filename (service->state_dir, ".networks.json.0123abcd", NULL);
  g_assert_false (g_file_test (temporary, G_FILE_TEST_EXISTS));
  /* Its own, and that of a record which another version may know. */
  g_assert_cmpuint (count_leases (service), ==, 2);
  test_await_condition (is_stranger_forgotten, networks);
  g_clear_pointer (&text, g_free);
  g_assert_true (g_file_get_contents (networks, &text, NULL, NULL));
  g_assert_nonnull (strstr (text, "0000000c"));
}

static void
test_networks_broken (Fixture *fixture, gconstpointer data)
{
  ServiceFixture *service = fixture->service;
  g_autoptr (GError) error = NULL;

  service_fixture_write (service, "networks.json", "[{\"spec\":{\"name\":\"x\",\"cidr\":\"y\"}}]");
  g_assert_false (service_fixture_start (service, &error));
  g_assert_nonnull (strstr (error->message, "networks.json"));
  g_assert_nonnull (strstr (error->message, "restore network \"x\""));
}

/* -- forwards, autostart, default network ----------------------------------------------------- */

static void
test_forwards_restored (Fixture *fixture, gconstpointer data)
{
  ServiceFixture *service = fixture->service;
  g_autofree char *id = NULL;
  g_autoptr (JsonNode) made = NULL;
  g_autoptr (JsonNode) list = NULL;

  test_fakes.outlives_daemon = TRUE;
  service_fixture_start_well (service);
  id = service_fixture_create_vm (service, "web", "ready");
  made = service_fixture_call_well (service, "forward_port",
                                    "{'id':'%s','port':80,'host_port':8080}", id);
  service_fixture_close (service, TRUE);
  test_fakes_clear_log ();
  service_fixture_start_well (service);
  list = service_fixture_call_well (service, "list_forwards", "{'id':'%s'}", id);
  g_assert_cmpuint (json_array_get_length (json_node_get_array (list)), ==, 1);
  g_assert_true (json_node_equal (json_array_get_element (json_node_get_array (list), 0), made));
  test_drain ();
  {
    g_autofree char *line = g_strdup_printf ("network.forward %s", id);
    g_autofree char *kept = g_strdup_printf ("network.keep-only %s/%s", id,
                                             service_fixture_get (made, "forward"));

    g_assert_cmpuint (test_fakes_count (line), ==, 1);
    /* Whatever else an earlier daemon left there goes. */
    g_assert_cmpuint (test_fakes_count (kept), ==, 1);
  }
}

/* One that cannot be listened for at the start is tried again when its VM starts. */
static void
test_forward_tried_again (Fixture *fixture, gconstpointer data)
{
  ServiceFixture *service = fixture->service;
  g_autofree char *id = NULL;
  g_autofree char *line = NULL;
  g_autoptr (JsonNode) made = NULL;
  g_autoptr (JsonNode) started = NULL;
  g_autoptr (JsonNode) closed = NULL;

  service_fixture_start_well (service);
  id = service_fixture_create_vm (service, "web", "ready");
  line = g_strdup_printf ("network.forward %s", id);
  made = service_fixture_call_well (service, "forward_port",
                                    "{'id':'%s','port':80,'host_port':8080}", id);
  service_fixture_close (service, FALSE);
  test_fakes_clear_log ();
  test_fakes_fail ("network.forward", VMM_ERROR_CONFLICT, "in use");
  service_fixture_start_well (service);
  test_drain ();
  g_assert_cmpuint (test_fakes_count (line), ==, 1);
  test_fakes_clear ("network.forward");
  started = service_fixture_call_well (service, "start_vm", "{'id':'%s'}", id);
  service_fixture_await_state (service, id, VMM_MACHINE_READY);
  test_drain ();
  g_assert_cmpuint (test_fakes_count (line), ==, 2);
  closed = service_fixture_call_well (service, "close_forward", "{'id':'%s','forward':'%s'}", id,
                                      service_fixture_get (made, "forward"));
  g_assert_nonnull (closed);
}

static void
test_autostart (Fixture *fixture, gconstpointer data)
{
  ServiceFixture *service = fixture->service;
  g_autoptr (JsonNode) with = NULL;
  g_autofree char *without = NULL;
  const char *id;

  service_fixture_start_well (service);
  with = service_fixture_call_well (service, "create_vm",
                                    "{'name':'a','require_attestation':false,'autostart':true}");
  without = service_fixture_create_vm (service, "b", "ready");
  service_fixture_close (service, FALSE);
  service_fixture_start_well (service);
  id = service_fixture_get (with, "id");
  service_fixture_await_state (service, id, VMM_MACHINE_READY);
  g_assert_cmpstr (state_of (service, without), ==, "stopped");
}

static void
test_default_network (Fixture *fixture, gconstpointer data)
{
  ServiceFixture *service = fixture->service;
  g_autoptr (JsonNode) network = NULL;

  service_fixture_set_flag (service, "default-network", "home");
  service_fixture_start_well (service);
  network = service_fixture_call_well (service, "get_network", "{'name':'home'}");
  g_assert_cmpstr (service_fixture_get (network, "gateway"), ==, "10.64.0.1");
  service_fixture_close (service, FALSE);

  /* Another subnet: the network keeps its own. */
  service_fixture_set_flag (service, "network-subnet", "10.99.0.0/24");
  service_fixture_start_well (service);
  g_assert_cmpstr (vmm_network_table_get_cidr (service->context->networks, "home"), ==,
                   "10.64.0.0/16");
}

static void
test_no_network_backend (Fixture *fixture, gconstpointer data)
{
  ServiceFixture *service = fixture->service;

  test_fakes.unavailable[VMM_PLUGIN_KIND_NETWORK] = "no engine";
  service_fixture_start_well (service);
  g_assert_false (vmm_network_table_contains (service->context->networks, "default"));
  service_fixture_call_badly (service, "create_network", VMM_ERROR_UNSUPPORTED,
                              "unsupported: network \"lab\": no network backend is available: *",
                              "{'name':'lab','cidr':'10.77.0.0/24'}");
  service_fixture_call_badly (service, "create_vm", VMM_ERROR_INVALID_REQUEST,
                              "invalid request: network \"default\": *; no network backend is "
                              "available: get_host *",
                              "{'name':'web','require_attestation':false}");
  service_fixture_close (service, FALSE);

  /* A backend that is there and fails: the daemon runs without a default network. */
  test_fakes.unavailable[VMM_PLUGIN_KIND_NETWORK] = NULL;
  test_fakes_fail ("network.open", VMM_ERROR_INTERNAL, "no helper");
  service_fixture_start_well (service);
  g_assert_false (vmm_network_table_contains (service->context->networks, "default"));
}

/* -- folders that cannot be written ----------------------------------------------------------- */

static void
test_read_only (Fixture *fixture, gconstpointer data)
{
  ServiceFixture *service = fixture->service;
  g_autofree char *vms = g_build_filename (service->state_dir, "vms", NULL);
  g_autofree char *before = g_build_filename (service->state_dir, "vms.before", NULL);
  g_autofree char *id = NULL;
  g_autoptr (GError) error = NULL;

  service_fixture_start_well (service);
  id = service_fixture_create_vm (service, "old", "ready");

  /* A file in the folder's place, which root cannot write into either. */
  g_assert_cmpint (g_rename (vms, before), ==, 0);
  g_assert_true (g_file_set_contents (vms, "", 0, NULL));
  g_assert_null (service_fixture_call (service, "create_vm", &error,
                                       "{'name':'new','require_attestation':false}"));
  g_assert_nonnull (error);
  g_assert_cmpuint (count_vms (service), ==, 1);
  g_assert_cmpuint (test_fakes_get_n_volumes (), ==, 1);
  g_assert_cmpuint (vmm_network_table_get_n_leases (service->context->networks, "default"), ==, 1);
  g_assert_cmpint (g_unlink (vms), ==, 0);
  g_assert_cmpint (g_rename (before, vms), ==, 0);
  service_fixture_close (service, FALSE);

  g_clear_error (&error);
  g_assert_cmpint (g_rename (vms, before), ==, 0);
  g_assert_true (g_file_set_contents (vms, "", 0, NULL));
  g_assert_false (service_fixture_start (service, &error));
  g_assert_nonnull (error);
  service_fixture_close (service, FALSE);
  g_assert_cmpint (g_unlink (vms), ==, 0);
  g_assert_cmpint (g_rename (before, vms), ==, 0);
}

/* -- many ------------------------------------------------------------------------------------- */

#define N_VMS 1000
#define BATCH 25

typedef struct
{
  guint pending;
} Batch;

static gboolean
is_batch_done (gpointer user_data)
{
  return ((Batch *) user_data)->pending == 0;
}

typedef struct
{
  const VmmHandler *handler;
  Batch *batch;
} Many;

static void
many_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  Many *many = user_data;
  g_autoptr (GError) error = NULL;
  g_autoptr (JsonNode) node = many->handler->finish (VMM_SERVICE (source), result, &error);

  g_assert_no_error (error);
  g_assert_nonnull (node);
  many->batch->pending--;
}

static void
call_many (ServiceFixture *service, Many *many, const char *text)
{
  g_autoptr (VmmCaller) caller = vmm_caller_new ("test", "uid:4242");
  g_autoptr (JsonObject) arguments = vmm_json_parse_object (text, strlen (text), NULL);
  g_autoptr (VmmCall) call = vmm_call_new (caller, arguments, NULL);

  many->batch->pending++;
  many->handler->start (service->service, call, many_cb, many);
}

/* Calls an operation on VMs, side by side: all of them, or the live ones. */
static void
call_on_machines (ServiceFixture *service, const char *operation, gboolean live_only)
{
  Batch batch = { 0 };
  Many many = { vmm_handlers_find (operation), &batch };
  g_autoptr (GPtrArray) ids = g_ptr_array_new_with_free_func (g_free);
  GPtrArray *machines = vmm_service_get_machines (service->service);

  for (guint i = 0; i < machines->len; i++)
    {
      VmmMachine *machine = g_ptr_array_index (machines, i);

      if (!live_only || vmm_machine_state_is_live (vmm_machine_get_state (machine)))
        g_ptr_array_add (ids, g_strdup_printf ("{\"id\":\"%s\"}", vmm_machine_get_id (machine)));
    }
  for (guint i = 0; i < ids->len; i++)
    call_many (service, &many, g_ptr_array_index (ids, i));
  test_await_condition (is_batch_done, &batch);
}

static void
test_many (Fixture *fixture, gconstpointer data)
{
  ServiceFixture *service = fixture->service;
  Batch batch = { 0 };
  Many create = { vmm_handlers_find ("create_vm"), &batch };
  g_autoptr (GHashTable) seen = g_hash_table_new_full (g_str_hash, g_str_equal, g_free, NULL);
  g_autoptr (JsonNode) list = NULL;
  g_autoptr (JsonNode) again = NULL;
  JsonArray *array;

  service_fixture_start_well (service);
  for (guint i = 0; i < N_VMS; i += BATCH)
    {
      for (guint j = 0; j < BATCH; j++)
        {
          g_autofree char *text = g_strdup_printf (
              "{\"name\":\"vm-%u\",\"require_attestation\":false,\"wait_for\":\"none\"}", i + j);

          call_many (service, &create, text);
        }
      test_await_condition (is_batch_done, &batch);
      call_on_machines (service, "stop_vm", TRUE);
    }
  g_assert_cmpuint (count_vms (service), ==, N_VMS);
  service_fixture_close (service, FALSE);

  service_fixture_start_well (service);
  list = service_fixture_call_well (service, "list_vms", "{}");
  again = service_fixture_call_well (service, "list_vms", "{}");
  g_assert_true (list == again);
  array = json_node_get_array (list);
  g_assert_cmpuint (json_array_get_length (array), ==, N_VMS);
  for (guint i = 0; i < N_VMS; i++)
    {
      JsonNode *vm = json_array_get_element (array, i);
      JsonObject *object = json_node_get_object (vm);

      g_assert_cmpstr (service_fixture_get (vm, "state"), ==, "stopped");
      g_assert_true (g_hash_table_add (seen, g_strdup (service_fixture_get (vm, "id"))));
      g_assert_true (g_hash_table_add (seen, g_strdup (service_fixture_get (vm, "ip"))));
      g_assert_true (
          g_hash_table_add (seen, g_strdup_printf ("cid %" G_GINT64_FORMAT,
                                                   json_object_get_int_member (object, "cid"))));
      g_assert_true (g_hash_table_add (
          seen, g_strdup_printf ("port %" G_GINT64_FORMAT,
                                 json_object_get_int_member (object, "notifyPort"))));
    }
  call_on_machines (service, "delete_vm", FALSE);
  g_assert_cmpuint (count_vms (service), ==, 0);
  g_assert_cmpuint (test_fakes_get_n_volumes (), ==, 0);
  g_assert_cmpuint (test_fakes_get_n_ports (), ==, 0);
  g_assert_cmpuint (vmm_network_table_get_n_leases (service->context->networks, "default"), ==, 0);
}

#define ADD(path, peers, function)                                                                 \
  g_test_add ("/service-load/" path, Fixture, peers, setup, function, teardown)

int
main (int argc, char **argv)
{
  g_test_init (&argc, &argv, G_TEST_OPTION_ISOLATE_DIRS, NULL);
  ADD ("empty", NULL, test_empty);
  ADD ("restart", NULL, test_restart);
  ADD ("detach", NULL, test_detach);
  ADD ("detach-impossible", NULL, test_detach_impossible);
  ADD ("each-state", NULL, test_each_state);
  ADD ("killed", NULL, test_killed);
  ADD ("garbage", NULL, test_garbage);
  ADD ("leftovers", NULL, test_leftovers);
  ADD ("networks-broken", NULL, test_networks_broken);
  ADD ("forwards-restored", NULL, test_forwards_restored);
  ADD ("forward-tried-again", NULL, test_forward_tried_again);
  ADD ("autostart", NULL, test_autostart);
  ADD ("default-network", NULL, test_default_network);
  ADD ("no-network-backend", NULL, test_no_network_backend);
  ADD ("read-only", NULL, test_read_only);
  ADD ("many", "installer-ms=never", test_many);
  return g_test_run ();
}

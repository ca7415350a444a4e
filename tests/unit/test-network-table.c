/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The table of networks against a fake backend and a real folder: what is on disk when an answer
 * comes, what is left when something fails, and what is refused in which words. */

#include "vmm-network-table.h"

#include <string.h>
#include <sys/stat.h>

#include <glib/gstdio.h>

#include "fake-backends.h"
#include "test-await.h"
#include "vmm-file.h"
#include "vmm-json.h"

typedef struct
{
  char *state_dir;
  char *path;
  VmmNetworkBackend *backend;
  VmmLauncher *launcher;
  VmmNetworkTable *table;
} Fixture;

static void
setup (Fixture *fixture, gconstpointer data)
{
  test_fakes_reset ();
  fixture->state_dir = test_make_directory ();
  fixture->path = g_build_filename (fixture->state_dir, "networks.json", NULL);
  fixture->backend = g_object_new (test_fake_network_backend_get_type (), NULL);
  fixture->launcher = g_object_new (test_fake_launcher_get_type (), NULL);
  fixture->table = vmm_network_table_new (fixture->state_dir, fixture->backend, fixture->launcher);
}

static void
teardown (Fixture *fixture, gconstpointer data)
{
  test_fakes_reset ();
  test_drain ();
  g_clear_object (&fixture->table);
  g_clear_object (&fixture->backend);
  g_clear_object (&fixture->launcher);
  g_free (fixture->path);
  test_remove_directory (fixture->state_dir);
}

/* Another daemon on the same folder. */
static void
restart (Fixture *fixture, VmmNetworkBackend *backend)
{
  g_clear_object (&fixture->table);
  fixture->table = vmm_network_table_new (fixture->state_dir, backend, fixture->launcher);
}

/* The message is shown when it does not fit. */
static void
assert_matches (const char *pattern, const char *text)
{
  if (!g_pattern_match_simple (pattern, text))
    g_assert_cmpstr (text, ==, pattern);
}

static gboolean
load (Fixture *fixture, GError **error)
{
  TestAwait await = TEST_AWAIT_INIT;
  g_autoptr (GAsyncResult) result = NULL;

  vmm_network_table_load_async (fixture->table, NULL, test_await_cb, &await);
  result = test_await (&await);
  return vmm_network_table_load_finish (fixture->table, result, error);
}

static void
load_well (Fixture *fixture)
{
  g_autoptr (GError) error = NULL;

  g_assert_true (load (fixture, &error));
  g_assert_no_error (error);
}

static gboolean
create (Fixture *fixture, const char *name, const char *cidr, GError **error)
{
  TestAwait await = TEST_AWAIT_INIT;
  g_autoptr (GAsyncResult) result = NULL;

  vmm_network_table_create_async (fixture->table, name, cidr, NULL, VMM_NETWORK_MTU_DEFAULT, NULL,
                                  test_await_cb, &await);
  result = test_await (&await);
  return vmm_network_table_create_finish (fixture->table, result, error);
}

static void
create_well (Fixture *fixture, const char *name, const char *cidr)
{
  g_autoptr (GError) error = NULL;

  g_assert_true (create (fixture, name, cidr, &error));
  g_assert_no_error (error);
}

static gboolean delete (Fixture *fixture, const char *name, GError **error)
{
  TestAwait await = TEST_AWAIT_INIT;
  g_autoptr (GAsyncResult) result = NULL;

  vmm_network_table_delete_async (fixture->table, name, NULL, test_await_cb, &await);
  result = test_await (&await);
  return vmm_network_table_delete_finish (fixture->table, result, error);
}

static VmmLease *
lease (Fixture *fixture, const char *name, const char *vm_id, GError **error)
{
  TestAwait await = TEST_AWAIT_INIT;
  g_autoptr (GAsyncResult) result = NULL;

  vmm_network_table_lease_async (fixture->table, name, vm_id, NULL, test_await_cb, &await);
  result = test_await (&await);
  return vmm_network_table_lease_finish (fixture->table, result, error);
}

static void
assert_lease (Fixture *fixture, const char *name, const char *vm_id, const char *ip)
{
  g_autoptr (GError) error = NULL;
  g_autoptr (VmmLease) got = lease (fixture, name, vm_id, &error);

  g_assert_no_error (error);
  g_assert_nonnull (got);
  g_assert_cmpstr (got->vm_id, ==, vm_id);
  g_assert_cmpstr (got->ip, ==, ip);
}

static gboolean
unlease (Fixture *fixture, const char *name, const char *vm_id, GError **error)
{
  TestAwait await = TEST_AWAIT_INIT;
  g_autoptr (GAsyncResult) result = NULL;

  vmm_network_table_unlease_async (fixture->table, name, vm_id, NULL, test_await_cb, &await);
  result = test_await (&await);
  return vmm_network_table_unlease_finish (fixture->table, result, error);
}

static VmmAttachment *
attach (Fixture *fixture, const char *name, const char *vm_id, const char *socket_path,
        GError **error)
{
  TestAwait await = TEST_AWAIT_INIT;
  g_autoptr (GAsyncResult) result = NULL;

  vmm_network_table_attach_async (fixture->table, name, vm_id, socket_path, NULL, NULL,
                                  test_await_cb, &await);
  result = test_await (&await);
  return vmm_network_table_attach_finish (fixture->table, result, error);
}

static void
close_table (Fixture *fixture, gboolean keep_running)
{
  TestAwait await = TEST_AWAIT_INIT;
  g_autoptr (GAsyncResult) result = NULL;
  g_autoptr (GError) error = NULL;

  vmm_network_table_close_async (fixture->table, keep_running, NULL, test_await_cb, &await);
  result = test_await (&await);
  g_assert_true (vmm_network_table_close_finish (fixture->table, result, &error));
  g_assert_no_error (error);
}

static char *
folder_of (Fixture *fixture, const char *name)
{
  return g_build_filename (fixture->state_dir, "networks", name, NULL);
}

static gboolean
has_folder (Fixture *fixture, const char *name)
{
  g_autofree char *path = folder_of (fixture, name);

  return g_file_test (path, G_FILE_TEST_IS_DIR);
}

static void
assert_file (Fixture *fixture, const char *expected)
{
  g_autofree char *content = NULL;

  g_assert_true (g_file_get_contents (fixture->path, &content, NULL, NULL));
  g_assert_cmpstr (content, ==, expected);
}

static void
write_file (Fixture *fixture, const char *content)
{
  g_assert_true (g_file_set_contents (fixture->path, content, -1, NULL));
}

/* A folder in the file's place: no rename can replace it. */
static void
break_file (Fixture *fixture)
{
  g_autofree char *child = g_build_filename (fixture->path, "in-the-way", NULL);

  g_unlink (fixture->path);
  g_assert_cmpint (g_mkdir_with_parents (child, 0700), ==, 0);
}

static void
mend_file (Fixture *fixture)
{
  test_remove_directory (g_strdup (fixture->path));
}

/* -- create, list, delete --------------------------------------------------------------------- */

static void
test_create (Fixture *fixture, gconstpointer data)
{
  g_autoptr (JsonNode) node = NULL;
  g_autoptr (GError) error = NULL;
  g_autofree char *text = NULL;
  g_autofree char *folder = folder_of (fixture, "lab");
  g_auto (GStrv) names = NULL;
  TestAwait await = TEST_AWAIT_INIT;
  g_autoptr (GAsyncResult) result = NULL;
  struct stat info;

  load_well (fixture);
  vmm_network_table_create_async (fixture->table, "lab", "10.77.0.9/24", "lab.test",
                                  VMM_NETWORK_MTU_DEFAULT, NULL, test_await_cb, &await);
  g_assert_false (vmm_network_table_contains (fixture->table, "lab"));
  result = test_await (&await);
  g_assert_true (vmm_network_table_create_finish (fixture->table, result, &error));
  g_assert_no_error (error);
  assert_file (fixture, "[\n"
                        "  {\n"
                        "    \"spec\": {\n"
                        "      \"name\": \"lab\",\n"
                        "      \"cidr\": \"10.77.0.9/24\",\n"
                        "      \"dnsSearchDomain\": \"lab.test\",\n"
                        "      \"enableIMDS\": true\n"
                        "    }\n"
                        "  }\n"
                        "]\n");
  g_assert_cmpint (stat (fixture->path, &info), ==, 0);
  g_assert_cmpint (info.st_mode & 07777, ==, 0600);
  g_assert_cmpint (stat (folder, &info), ==, 0);
  g_assert_cmpint (info.st_mode & 07777, ==, 0750);
  g_assert_true (test_fakes_get_network ("lab")
                 == vmm_network_table_get_network (fixture->table, "lab"));

  create_well (fixture, "default", "192.168.127.0/24");
  names = vmm_network_table_dup_names (fixture->table);
  g_assert_cmpuint (g_strv_length (names), ==, 2);
  g_assert_cmpstr (names[0], ==, "default");
  g_assert_cmpstr (names[1], ==, "lab");
  g_assert_cmpstr (vmm_network_table_get_cidr (fixture->table, "lab"), ==, "10.77.0.9/24");

  assert_lease (fixture, "lab", "b0000001", "10.77.0.2");
  assert_lease (fixture, "lab", "a0000001", "10.77.0.3");
  node = vmm_network_table_describe (fixture->table, "lab", &error);
  g_assert_no_error (error);
  text = vmm_json_to_line (node, NULL);
  g_assert_cmpstr (text, ==,
                   "{\"spec\":{\"name\":\"lab\",\"cidr\":\"10.77.0.9/24\","
                   "\"dnsSearchDomain\":\"lab.test\",\"enableIMDS\":true},"
                   "\"gateway\":\"10.77.0.1\",\"leases\":["
                   "{\"vmID\":\"b0000001\",\"mac\":\"02:f4:0a:4d:00:02\",\"ip\":\"10.77.0.2\"},"
                   "{\"vmID\":\"a0000001\",\"mac\":\"02:f4:0a:4d:00:03\",\"ip\":\"10.77.0.3\"}]}");
}

static gboolean
create_with_mtu (Fixture *fixture, const char *name, const char *cidr, gint64 mtu, GError **error)
{
  TestAwait await = TEST_AWAIT_INIT;
  g_autoptr (GAsyncResult) result = NULL;

  vmm_network_table_create_async (fixture->table, name, cidr, NULL, mtu, NULL, test_await_cb,
                                  &await);
  result = test_await (&await);
  return vmm_network_table_create_finish (fixture->table, result, error);
}

/* Recorded and shown when it is not the usual one, told to the backend in any case. */
static void
test_create_mtu (Fixture *fixture, gconstpointer data)
{
  static const gint64 bad[] = { -1, 0, 1499, 65521, G_MAXINT64 };
  g_autofree char *content = NULL;
  g_autoptr (JsonNode) node = NULL;
  g_autofree char *text = NULL;
  g_autoptr (GError) error = NULL;

  load_well (fixture);
  g_assert_true (create_with_mtu (fixture, "big", "10.78.0.0/24", 65520, &error));
  g_assert_no_error (error);
  create_well (fixture, "lab", "10.77.0.0/24");
  g_assert_cmpuint (test_fakes_get_network_mtu ("big"), ==, 65520);
  g_assert_cmpuint (test_fakes_get_network_mtu ("lab"), ==, 1500);
  g_assert_true (g_file_get_contents (fixture->path, &content, NULL, NULL));
  g_assert_nonnull (strstr (content, "\"mtu\": 65520"));
  g_assert_null (strstr (content, "1500"));
  node = vmm_network_table_describe (fixture->table, "big", NULL);
  text = vmm_json_to_line (node, NULL);
  g_assert_nonnull (strstr (text, "\"mtu\":65520"));

  for (guint i = 0; i < G_N_ELEMENTS (bad); i++)
    {
      g_autoptr (GError) refused = NULL;
      g_autofree char *message
          = g_strdup_printf ("invalid request: mtu %" G_GINT64_FORMAT
                             " must be between 1500 and 65520",
                             bad[i]);

      g_assert_false (create_with_mtu (fixture, "no", "10.79.0.0/24", bad[i], &refused));
      g_assert_error (refused, VMM_ERROR, VMM_ERROR_INVALID_REQUEST);
      g_assert_cmpstr (refused->message, ==, message);
    }

  close_table (fixture, TRUE);
  restart (fixture, fixture->backend);
  load_well (fixture);
  g_assert_cmpuint (test_fakes_get_network_mtu ("big"), ==, 65520);
  g_assert_cmpuint (test_fakes_get_network_mtu ("lab"), ==, 1500);
}

static void
test_delete (Fixture *fixture, gconstpointer data)
{
  g_autoptr (GError) error = NULL;

  load_well (fixture);
  create_well (fixture, "lab", "10.77.0.0/24");
  g_assert_false (delete (fixture, "nope", &error));
  g_assert_error (error, VMM_ERROR, VMM_ERROR_NOT_FOUND);
  g_assert_cmpstr (error->message, ==, "not found: network \"nope\"");
  g_clear_error (&error);

  assert_lease (fixture, "lab", "a0000001", "10.77.0.2");
  g_assert_false (delete (fixture, "lab", &error));
  g_assert_error (error, VMM_ERROR, VMM_ERROR_CONFLICT);
  g_assert_cmpstr (error->message, ==, "conflict: network \"lab\" has 1 attached VMs");
  g_clear_error (&error);

  g_assert_true (unlease (fixture, "lab", "a0000001", &error));
  g_assert_true (delete (fixture, "lab", &error));
  g_assert_no_error (error);
  assert_file (fixture, "[]\n");
  g_assert_false (has_folder (fixture, "lab"));
  g_assert_null (test_fakes_get_network ("lab"));
  g_assert_cmpuint (test_fakes_count ("network.close lab"), ==, 1);
  g_assert_null (vmm_network_table_describe (fixture->table, "lab", NULL));
  /* The name is free again. */
  create_well (fixture, "lab", "10.77.0.0/24");
}

static void
test_delete_fails (Fixture *fixture, gconstpointer data)
{
  g_autoptr (GError) error = NULL;

  load_well (fixture);
  create_well (fixture, "lab", "10.77.0.0/24");
  test_fakes_fail_once ("network.close", VMM_ERROR_INTERNAL, "will not end");
  g_assert_false (delete (fixture, "lab", &error));
  g_assert_nonnull (strstr (error->message, "will not end"));
  g_clear_error (&error);
  assert_lease (fixture, "lab", "a0000001", "10.77.0.2");
  g_assert_true (unlease (fixture, "lab", "a0000001", NULL));

  break_file (fixture);
  g_assert_false (delete (fixture, "lab", &error));
  g_assert_nonnull (error);
  g_clear_error (&error);
  g_assert_true (vmm_network_table_contains (fixture->table, "lab"));
  g_assert_nonnull (vmm_network_table_get_error (fixture->table, "lab"));
  mend_file (fixture);
  g_assert_true (delete (fixture, "lab", &error));
  g_assert_no_error (error);
}

static void
assert_refused (Fixture *fixture, const char *name, const char *cidr, VmmError code,
                const char *message)
{
  g_autoptr (GError) error = NULL;

  g_assert_false (create (fixture, name, cidr, &error));
  g_assert_error (error, VMM_ERROR, (int) code);
  g_assert_cmpstr (error->message, ==, message);
}

static void
test_create_refused (Fixture *fixture, gconstpointer data)
{
  g_autofree char *foreign = folder_of (fixture, "taken");
  g_autofree char *longest = g_strnfill (63, 'x');
  g_autofree char *in_the_way = NULL;

  load_well (fixture);
  create_well (fixture, "lab", "10.77.0.0/24");
  assert_refused (fixture, "No", "nope", VMM_ERROR_INVALID_REQUEST,
                  "invalid request: name \"No\" must be a DNS label");
  assert_refused (fixture, "a", "10.0.0.0/30", VMM_ERROR_INVALID_REQUEST,
                  "invalid request: cidr \"10.0.0.0/30\" must be between /16 and /29");
  assert_refused (fixture, "lab", "10.0.0.0/24", VMM_ERROR_CONFLICT,
                  "conflict: network \"lab\" already exists");
  /* Two networks may have the same CIDR. */
  create_well (fixture, "lab2", "10.77.0.0/24");

  g_assert_cmpint (g_mkdir (foreign, 0700), ==, 0);
  in_the_way = g_strdup_printf (
      "conflict: network \"taken\": %s exists and is no network's; move it away", foreign);
  assert_refused (fixture, "taken", "10.0.0.0/24", VMM_ERROR_CONFLICT, in_the_way);
  g_assert_true (has_folder (fixture, "taken"));
  create_well (fixture, longest, "10.0.0.0/24");
}

static void
test_long_path (Fixture *fixture, gconstpointer data)
{
  g_autofree char *tail = g_strnfill (90, 'd');
  g_autofree char *state_dir = g_build_filename (fixture->state_dir, tail, NULL);
  g_autofree char *message = g_strdup_printf (
      "invalid request: socket path \"%s/networks/lab/qemu.sock\" exceeds 107 bytes; use a shorter "
      "name or state dir",
      state_dir);

  g_assert_cmpint (g_mkdir (state_dir, 0700), ==, 0);
  g_clear_object (&fixture->table);
  fixture->table = vmm_network_table_new (state_dir, fixture->backend, fixture->launcher);
  load_well (fixture);
  assert_refused (fixture, "lab", "10.77.0.0/24", VMM_ERROR_INVALID_REQUEST, message);
}

/* Whatever fails leaves no folder, no entry, no network. */
static void
test_create_fails (Fixture *fixture, gconstpointer data)
{
  g_autoptr (GError) error = NULL;

  load_well (fixture);
  test_fakes_fail_once ("network.open", VMM_ERROR_INTERNAL, "no engine");
  g_assert_false (create (fixture, "lab", "10.77.0.0/24", &error));
  g_assert_error (error, VMM_ERROR, VMM_ERROR_INTERNAL);
  g_assert_nonnull (strstr (error->message, "no engine"));
  g_clear_error (&error);
  g_assert_false (has_folder (fixture, "lab"));
  g_assert_false (vmm_network_table_contains (fixture->table, "lab"));
  g_assert_false (g_file_test (fixture->path, G_FILE_TEST_EXISTS));

  break_file (fixture);
  g_assert_false (create (fixture, "lab", "10.77.0.0/24", &error));
  g_assert_nonnull (error);
  g_clear_error (&error);
  g_assert_false (has_folder (fixture, "lab"));
  g_assert_false (vmm_network_table_contains (fixture->table, "lab"));
  g_assert_null (test_fakes_get_network ("lab"));
  mend_file (fixture);
  create_well (fixture, "lab", "10.77.0.0/24");
}

/* While one is created its name is taken and it is not seen. */
static void
test_create_twice_at_once (Fixture *fixture, gconstpointer data)
{
  TestAwait first = TEST_AWAIT_INIT;
  g_autoptr (GAsyncResult) result = NULL;
  g_autoptr (GError) error = NULL;

  load_well (fixture);
  test_fakes_hang ("network.open");
  vmm_network_table_create_async (fixture->table, "lab", "10.77.0.0/24", NULL,
                                  VMM_NETWORK_MTU_DEFAULT, NULL, test_await_cb, &first);
  assert_refused (fixture, "lab", "10.77.0.0/24", VMM_ERROR_CONFLICT,
                  "conflict: network \"lab\" already exists");
  g_assert_null (lease (fixture, "lab", "a0000001", &error));
  g_assert_error (error, VMM_ERROR, VMM_ERROR_NOT_FOUND);
  g_clear_error (&error);
  test_fakes_release ("network.open");
  result = test_await (&first);
  g_assert_true (vmm_network_table_create_finish (fixture->table, result, &error));
  g_assert_no_error (error);
}

static void
test_create_cancelled (Fixture *fixture, gconstpointer data)
{
  TestAwait await = TEST_AWAIT_INIT;
  g_autoptr (GCancellable) cancellable = g_cancellable_new ();
  g_autoptr (GAsyncResult) result = NULL;
  g_autoptr (GError) error = NULL;

  load_well (fixture);
  g_cancellable_cancel (cancellable);
  vmm_network_table_create_async (fixture->table, "lab", "10.77.0.0/24", NULL,
                                  VMM_NETWORK_MTU_DEFAULT, cancellable, test_await_cb, &await);
  result = test_await (&await);
  g_assert_false (vmm_network_table_create_finish (fixture->table, result, &error));
  g_assert_error (error, G_IO_ERROR, G_IO_ERROR_CANCELLED);
  g_assert_false (has_folder (fixture, "lab"));
  g_assert_false (vmm_network_table_contains (fixture->table, "lab"));
}

static void
test_no_backend (Fixture *fixture, gconstpointer data)
{
  g_autoptr (GError) error = NULL;
  g_autoptr (JsonNode) node = NULL;

  write_file (fixture,
              "[{\"spec\":{\"name\":\"lab\",\"cidr\":\"10.77.0.0/24\",\"enableIMDS\":true},"
              "\"leases\":{\"a0000001\":\"10.77.0.2\"}}]");
  restart (fixture, NULL);
  load_well (fixture);
  g_assert_true (vmm_network_table_contains (fixture->table, "lab"));
  node = vmm_network_table_describe (fixture->table, "lab", NULL);
  g_assert_nonnull (strstr (json_object_get_string_member (json_node_get_object (node), "error"),
                            "no network backend is available"));
  g_assert_null (vmm_network_table_get_network (fixture->table, "lab"));

  g_assert_false (create (fixture, "dev", "10.42.0.0/24", &error));
  g_assert_error (error, VMM_ERROR, VMM_ERROR_UNSUPPORTED);
  g_assert_true (g_str_has_prefix (
      error->message, "unsupported: network \"dev\": no network backend is available: "));
  g_clear_error (&error);
  g_assert_false (has_folder (fixture, "dev"));
  g_assert_null (attach (fixture, "lab", "a0000001", "/tmp/s", &error));
  g_assert_error (error, VMM_ERROR, VMM_ERROR_UNSUPPORTED);
  g_clear_error (&error);

  g_assert_true (unlease (fixture, "lab", "a0000001", &error));
  g_assert_true (delete (fixture, "lab", &error));
  g_assert_no_error (error);
  assert_file (fixture, "[]\n");
}

/* -- leases ----------------------------------------------------------------------------------- */

static void
test_leases (Fixture *fixture, gconstpointer data)
{
  g_autoptr (GError) error = NULL;

  load_well (fixture);
  create_well (fixture, "tiny", "10.9.9.0/29");
  assert_lease (fixture, "tiny", "a0000001", "10.9.9.2");
  assert_lease (fixture, "tiny", "a0000002", "10.9.9.3");
  assert_lease (fixture, "tiny", "a0000001", "10.9.9.2");
  g_assert_cmpuint (vmm_network_table_get_n_leases (fixture->table, "tiny"), ==, 2);
  assert_file (fixture, "[\n"
                        "  {\n"
                        "    \"spec\": {\n"
                        "      \"name\": \"tiny\",\n"
                        "      \"cidr\": \"10.9.9.0/29\",\n"
                        "      \"enableIMDS\": true\n"
                        "    },\n"
                        "    \"leases\": {\n"
                        "      \"a0000001\": \"10.9.9.2\",\n"
                        "      \"a0000002\": \"10.9.9.3\"\n"
                        "    }\n"
                        "  }\n"
                        "]\n");
  assert_lease (fixture, "tiny", "a0000003", "10.9.9.4");
  assert_lease (fixture, "tiny", "a0000004", "10.9.9.5");
  g_assert_null (lease (fixture, "tiny", "a0000005", &error));
  g_assert_error (error, VMM_ERROR, VMM_ERROR_CONFLICT);
  g_assert_cmpstr (error->message, ==, "conflict: network tiny has no free address");
  g_clear_error (&error);

  /* A freed address is the next one. */
  g_assert_true (unlease (fixture, "tiny", "a0000002", &error));
  assert_lease (fixture, "tiny", "a0000005", "10.9.9.3");
  g_assert_false (unlease (fixture, "tiny", "a0000002", &error));
  g_assert_error (error, VMM_ERROR, VMM_ERROR_NOT_FOUND);
  g_assert_cmpstr (error->message, ==, "not found: vm a0000002 is not attached to tiny");
  g_clear_error (&error);

  g_assert_null (lease (fixture, "tiny", "", &error));
  g_assert_cmpstr (error->message, ==, "invalid request: vm id is empty");
  g_clear_error (&error);
  g_assert_null (lease (fixture, "nope", "a0000001", &error));
  g_assert_error (error, VMM_ERROR, VMM_ERROR_NOT_FOUND);
}

/* A lease that is not on disk is nobody's. */
static void
test_lease_not_recorded (Fixture *fixture, gconstpointer data)
{
  g_autoptr (GError) error = NULL;

  load_well (fixture);
  create_well (fixture, "lab", "10.77.0.0/24");
  break_file (fixture);
  g_assert_null (lease (fixture, "lab", "a0000001", &error));
  g_assert_nonnull (error);
  g_clear_error (&error);
  g_assert_cmpuint (vmm_network_table_get_n_leases (fixture->table, "lab"), ==, 0);
  mend_file (fixture);
  assert_lease (fixture, "lab", "a0000002", "10.77.0.2");

  break_file (fixture);
  g_assert_false (unlease (fixture, "lab", "a0000002", &error));
  g_assert_nonnull (error);
  g_clear_error (&error);
  /* Its VM is gone whatever the disk says: the address is free, and the network can be deleted. */
  g_assert_cmpuint (vmm_network_table_get_n_leases (fixture->table, "lab"), ==, 0);
  mend_file (fixture);
  assert_lease (fixture, "lab", "a0000003", "10.77.0.2");
}

#define N_LEASES 1000

static void
counted_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  guint *done = user_data;
  g_autoptr (GError) error = NULL;
  g_autoptr (VmmLease) got
      = vmm_network_table_lease_finish (VMM_NETWORK_TABLE (source), result, &error);

  g_assert_no_error (error);
  g_assert_nonnull (got);
  (*done)++;
}

static gboolean
all_leased (gpointer user_data)
{
  return *(guint *) user_data == N_LEASES;
}

/* Many at once share their writes, have different addresses, and all are on disk. */
static void
test_many_leases (Fixture *fixture, gconstpointer data)
{
  guint done = 0;
  g_autoptr (GHashTable) seen = g_hash_table_new_full (g_str_hash, g_str_equal, g_free, NULL);

  load_well (fixture);
  create_well (fixture, "big", "10.8.0.0/16");
  for (guint i = 0; i < N_LEASES; i++)
    {
      g_autofree char *id = g_strdup_printf ("%08x", i);

      vmm_network_table_lease_async (fixture->table, "big", id, NULL, counted_cb, &done);
    }
  test_await_condition (all_leased, &done);

  restart (fixture, fixture->backend);
  load_well (fixture);
  g_assert_cmpuint (vmm_network_table_get_n_leases (fixture->table, "big"), ==, N_LEASES);
  for (guint i = 0; i < N_LEASES; i++)
    {
      g_autofree char *id = g_strdup_printf ("%08x", i);
      g_autoptr (VmmLease) got = lease (fixture, "big", id, NULL);

      g_assert_true (g_hash_table_add (seen, g_strdup (got->ip)));
    }
}

/* -- ports ------------------------------------------------------------------------------------ */

static void
test_attach (Fixture *fixture, gconstpointer data)
{
  g_autoptr (GError) error = NULL;
  g_autofree char *too_long = g_strnfill (108, 's');
  g_autoptr (VmmAttachment) attachment = NULL;
  const char *const *arguments;

  load_well (fixture);
  create_well (fixture, "lab", "10.77.0.0/24");
  g_assert_null (attach (fixture, "lab", "a0000001", "/tmp/s", &error));
  g_assert_error (error, VMM_ERROR, VMM_ERROR_NOT_FOUND);
  g_clear_error (&error);

  assert_lease (fixture, "lab", "a0000001", "10.77.0.2");
  g_assert_null (attach (fixture, "lab", "a0000001", too_long, &error));
  g_assert_error (error, VMM_ERROR, VMM_ERROR_INVALID_REQUEST);
  g_assert_true (g_str_has_suffix (error->message, "exceeds 107 bytes"));
  g_clear_error (&error);

  attachment = attach (fixture, "lab", "a0000001", "/tmp/s", &error);
  g_assert_no_error (error);
  arguments = vmm_attachment_get_arguments (attachment);
  g_assert_cmpuint (g_strv_length ((GStrv) arguments), ==, 4);
  g_assert_nonnull (strstr (arguments[3], "mac=02:f4:0a:4d:00:02"));
  g_assert_true (test_fakes_is_attached ("a0000001"));

  g_assert_true (unlease (fixture, "lab", "a0000001", &error));
  g_assert_no_error (error);
  g_assert_false (test_fakes_is_attached ("a0000001"));
}

/* A broken backend must not keep an address for ever. */
static void
test_detach_fails (Fixture *fixture, gconstpointer data)
{
  g_autoptr (GError) error = NULL;

  load_well (fixture);
  create_well (fixture, "lab", "10.77.0.0/24");
  assert_lease (fixture, "lab", "a0000001", "10.77.0.2");
  test_fakes_fail ("network.detach", VMM_ERROR_INTERNAL, "stuck");
  g_assert_true (unlease (fixture, "lab", "a0000001", &error));
  g_assert_no_error (error);
  g_assert_cmpuint (vmm_network_table_get_n_leases (fixture->table, "lab"), ==, 0);
}

/* -- load ------------------------------------------------------------------------------------- */

static void
test_restore (Fixture *fixture, gconstpointer data)
{
  load_well (fixture);
  create_well (fixture, "lab", "10.77.0.0/24");
  assert_lease (fixture, "lab", "a0000001", "10.77.0.2");
  assert_lease (fixture, "lab", "a0000002", "10.77.0.3");
  close_table (fixture, FALSE);
  restart (fixture, fixture->backend);
  load_well (fixture);
  assert_lease (fixture, "lab", "a0000002", "10.77.0.3");
  assert_lease (fixture, "lab", "a0000001", "10.77.0.2");
  assert_lease (fixture, "lab", "a0000003", "10.77.0.4");
  g_assert_nonnull (vmm_network_table_get_network (fixture->table, "lab"));
}

static void
test_restore_refused (Fixture *fixture, gconstpointer data)
{
#define LAB(leases)                                                                                \
  "[{\"spec\":{\"name\":\"lab\",\"cidr\":\"10.77.0.0/"                                             \
  "24\",\"enableIMDS\":true},\"leases\":{" leases "}}]"
  static const struct
  {
    const char *content;
    const char *message;
  } bad[] = {
    { "", "*" },
    { "{}", "*not an array of networks" },
    { "[1]", "*" },
    { "[{}]", "*" },
    { "[{\"spec\":{\"name\":\"L\",\"cidr\":\"10.77.0.0/24\"}}]",
      "*restore network \"L\": invalid request: name \"L\" must be a DNS label" },
    { "[{\"spec\":{\"name\":\"lab\",\"cidr\":\"10.77.0.0/8\"}}]",
      "*restore network \"lab\": invalid request: cidr \"10.77.0.0/8\" must be between /16 and "
      "/29" },
    { "[{\"spec\":{\"name\":\"lab\",\"cidr\":\"10.77.0.0/24\",\"mtu\":1280}}]",
      "*restore network \"lab\": invalid request: mtu 1280 must be between 1500 and 65520" },
    { "[{\"spec\":{\"name\":\"lab\",\"cidr\":\"10.77.0.0/24\",\"mtu\":\"9000\"}}]",
      "*restore network \"lab\": *member \"mtu\" must be *" },
    { "[{\"spec\":{\"name\":\"lab\",\"cidr\":\"10.77.0.0/24\",\"gatewayIP\":\"10.77.0.254\"}}]",
      "*restore network \"lab\": invalid request: gateway \"10.77.0.254\" must be a host address "
      "of 10.77.0.0/24 other than 10.77.0.254" },
    { LAB ("\"\":\"10.77.0.2\""),
      "*restore network \"lab\": invalid request: lease for 10.77.0.2 has an empty vm id" },
    { LAB ("\"a\":\"x\""), "*restore network \"lab\": invalid request: lease for a: *" },
    { LAB ("\"a\":7"), "*restore network \"lab\": *member \"a\" must be a string" },
    { LAB ("\"a\":\"10.77.0.1\""), "*restore network \"lab\": invalid request: lease 10.77.0.1 "
                                   "for a is outside the pool of 10.77.0.0/24" },
    { LAB ("\"a\":\"10.77.0.254\""), "*outside the pool of 10.77.0.0/24" },
    { LAB ("\"a\":\"10.78.0.2\""), "*outside the pool of 10.77.0.0/24" },
    { LAB ("\"b\":\"10.77.0.2\",\"a\":\"10.77.0.2\""),
      "*restore network \"lab\": invalid request: lease 10.77.0.2 held by both a and b" },
    { "[{\"spec\":{\"name\":\"lab\",\"cidr\":\"10.77.0.0/24\"}},"
      "{\"spec\":{\"name\":\"lab\",\"cidr\":\"10.77.0.0/24\"}}]",
      "*network \"lab\" already exists" },
  };
#undef LAB

  for (guint i = 0; i < G_N_ELEMENTS (bad); i++)
    {
      g_autoptr (GError) error = NULL;
      g_autofree char *before = NULL;

      write_file (fixture, bad[i].content);
      restart (fixture, fixture->backend);
      g_assert_false (load (fixture, &error));
      g_assert_nonnull (error);
      assert_matches (bad[i].message, error->message);
      g_assert_nonnull (strstr (error->message, fixture->path));
      g_assert_false (has_folder (fixture, "lab"));
      g_assert_true (g_file_get_contents (fixture->path, &before, NULL, NULL));
      g_assert_cmpstr (before, ==, bad[i].content);
    }
  g_assert_cmpuint (test_fakes_count ("network.open lab"), ==, 0);
}

static void
test_file_is_link (Fixture *fixture, gconstpointer data)
{
  g_autoptr (GError) error = NULL;

  g_assert_cmpint (symlink ("/dev/zero", fixture->path), ==, 0);
  g_assert_false (load (fixture, &error));
  g_assert_nonnull (error);
}

/* What only a hand-edited file says is kept. */
static void
test_options_are_kept (Fixture *fixture, gconstpointer data)
{
  g_autofree char *content = NULL;

  write_file (fixture, "[{\"spec\":{\"name\":\"lab\",\"cidr\":\"10.77.0.0/29\","
                       "\"gatewayIP\":\"10.77.0.2\",\"enableIMDS\":false,"
                       "\"enableHostAlias\":true}}]");
  load_well (fixture);
  assert_lease (fixture, "lab", "a0000001", "10.77.0.1");
  g_assert_true (g_file_get_contents (fixture->path, &content, NULL, NULL));
  g_assert_nonnull (strstr (content, "\"gatewayIP\": \"10.77.0.2\""));
  g_assert_nonnull (strstr (content, "\"enableIMDS\": false"));
  g_assert_nonnull (strstr (content, "\"enableHostAlias\": true"));
}

static void
count_cb (VmmNetworkTable *table, const char *name, gpointer user_data)
{
  g_assert_cmpstr (name, ==, "lab");
  (*(guint *) user_data)++;
}

/* One network that cannot come up stops neither the start nor the others, and is tried again. */
static void
test_restore_backend_fails (Fixture *fixture, gconstpointer data)
{
  g_autoptr (GError) error = NULL;
  g_autoptr (VmmAttachment) attachment = NULL;
  guint n_up = 0;

  load_well (fixture);
  create_well (fixture, "lab", "10.77.0.0/24");
  create_well (fixture, "dev", "10.42.0.0/24");
  assert_lease (fixture, "lab", "a0000001", "10.77.0.2");
  close_table (fixture, FALSE);
  restart (fixture, fixture->backend);
  g_signal_connect (fixture->table, "network-up", G_CALLBACK (count_cb), &n_up);
  test_fakes_fail ("network.open:lab", VMM_ERROR_INTERNAL, "no engine");
  load_well (fixture);
  g_assert_null (vmm_network_table_get_network (fixture->table, "lab"));
  g_assert_nonnull (strstr (vmm_network_table_get_error (fixture->table, "lab"), "no engine"));
  g_assert_nonnull (vmm_network_table_get_network (fixture->table, "dev"));

  g_assert_null (attach (fixture, "lab", "a0000001", "/tmp/s", &error));
  g_assert_nonnull (strstr (error->message, "no engine"));
  g_clear_error (&error);
  g_assert_cmpuint (n_up, ==, 0);
  test_fakes_clear ("network.open:lab");
  attachment = attach (fixture, "lab", "a0000001", "/tmp/s", &error);
  g_assert_no_error (error);
  g_assert_nonnull (attachment);
  g_assert_null (vmm_network_table_get_error (fixture->table, "lab"));
  g_assert_cmpuint (n_up, ==, 1);
}

static void
test_leftovers (Fixture *fixture, gconstpointer data)
{
  g_autofree char *crashed = folder_of (fixture, "crashed");
  g_autofree char *log = g_build_filename (crashed, "netd.log", NULL);
  g_autofree char *ports = g_build_filename (crashed, "netd.json", NULL);
  g_autofree char *lock = g_build_filename (crashed, "netd.lock", NULL);
  g_autofree char *foreign = folder_of (fixture, "foreign");
  g_autofree char *photo = g_build_filename (foreign, "photo.jpg", NULL);
  g_autofree char *odd = folder_of (fixture, "Odd_Name");

  g_assert_cmpint (g_mkdir_with_parents (crashed, 0750), ==, 0);
  g_assert_true (g_file_set_contents (log, "x", 1, NULL));
  g_assert_true (g_file_set_contents (ports, "{}", 2, NULL));
  g_assert_true (g_file_set_contents (lock, "", 0, NULL));
  g_assert_cmpint (g_mkdir_with_parents (foreign, 0750), ==, 0);
  g_assert_true (g_file_set_contents (photo, "x", 1, NULL));
  g_assert_cmpint (g_mkdir_with_parents (odd, 0750), ==, 0);
  load_well (fixture);
  g_assert_false (has_folder (fixture, "crashed"));
  g_assert_true (g_file_test (photo, G_FILE_TEST_EXISTS));
  g_assert_true (has_folder (fixture, "Odd_Name"));
}

static void
test_signals (Fixture *fixture, gconstpointer data)
{
  VmmNetwork *network;

  load_well (fixture);
  create_well (fixture, "lab", "10.77.0.0/24");
  network = vmm_network_table_get_network (fixture->table, "lab");
  g_signal_emit_by_name (network, "failed", "helper died");
  g_assert_cmpstr (vmm_network_table_get_error (fixture->table, "lab"), ==, "helper died");
  g_signal_emit_by_name (network, "recovered");
  g_assert_null (vmm_network_table_get_error (fixture->table, "lab"));
}

static void
test_close (Fixture *fixture, gconstpointer data)
{
  g_autoptr (GError) error = NULL;

  load_well (fixture);
  create_well (fixture, "lab", "10.77.0.0/24");
  assert_lease (fixture, "lab", "a0000001", "10.77.0.2");
  test_fakes_fail ("network.close", VMM_ERROR_INTERNAL, "will not end");
  close_table (fixture, TRUE);
  close_table (fixture, TRUE);
  g_assert_cmpuint (test_fakes_count ("network.close lab"), ==, 1);
  g_assert_null (lease (fixture, "lab", "a0000002", &error));
  g_assert_cmpstr (error->message, ==, "conflict: network lab is closed");
  g_clear_error (&error);
  g_assert_null (attach (fixture, "lab", "a0000001", "/tmp/s", &error));
  g_assert_error (error, VMM_ERROR, VMM_ERROR_CONFLICT);
  g_clear_error (&error);
  assert_refused (fixture, "dev", "10.42.0.0/24", VMM_ERROR_CONFLICT,
                  "conflict: vm-manager is shutting down");
}

#define ADD(path, function)                                                                        \
  g_test_add ("/network-table/" path, Fixture, NULL, setup, function, teardown)

int
main (int argc, char **argv)
{
  g_test_init (&argc, &argv, G_TEST_OPTION_ISOLATE_DIRS, NULL);
  ADD ("create", test_create);
  ADD ("create/mtu", test_create_mtu);
  ADD ("create/refused", test_create_refused);
  ADD ("create/long-path", test_long_path);
  ADD ("create/fails", test_create_fails);
  ADD ("create/twice-at-once", test_create_twice_at_once);
  ADD ("create/cancelled", test_create_cancelled);
  ADD ("delete", test_delete);
  ADD ("delete/fails", test_delete_fails);
  ADD ("no-backend", test_no_backend);
  ADD ("leases", test_leases);
  ADD ("leases/not-recorded", test_lease_not_recorded);
  ADD ("leases/many", test_many_leases);
  ADD ("attach", test_attach);
  ADD ("attach/detach-fails", test_detach_fails);
  ADD ("restore", test_restore);
  ADD ("restore/refused", test_restore_refused);
  ADD ("restore/link", test_file_is_link);
  ADD ("restore/options", test_options_are_kept);
  ADD ("restore/backend-fails", test_restore_backend_fails);
  ADD ("restore/leftovers", test_leftovers);
  ADD ("signals", test_signals);
  ADD ("close", test_close);
  return g_test_run ();
}

/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The daemon's end of vmm-monitor: starting it, its journal, and what it must not get away with. */

#include "fake-backends.h"
#include "fake-peers.h"
#include "interfaces/vmm-error.h"
#include "interfaces/vmm-helper.h"
#include "scripted-peer.h"
#include "test-await.h"
#include "vmm-witness.h"

#define VM "1a2b3c4d"
#define HELLO "{\"vmm-monitor\": 1, \"features\": []}"

typedef struct
{
  char *directory;
  char *path;
  VmmLauncher *launcher;
  ScriptedPeer *peer; /* when a test serves the socket */
  VmmWitness *witness;
  GString *events; /* "SEQ NAME {data}" and "closed: reason", one a line */
} Fixture;

static void
set_up (Fixture *fixture, gconstpointer data)
{
  test_fakes_reset ();
  test_fakes.peers = TRUE;
  fixture->directory = test_make_directory ();
  fixture->path = g_build_filename (fixture->directory, "monitor.sock", NULL);
  fixture->launcher = g_object_new (TEST_TYPE_FAKE_LAUNCHER, NULL);
  fixture->events = g_string_new (NULL);
}

static void
tear_down (Fixture *fixture, gconstpointer data)
{
  g_clear_object (&fixture->witness);
  g_clear_pointer (&fixture->peer, scripted_peer_free);
  g_object_unref (fixture->launcher);
  test_fakes_reset ();
  test_peer_forget ();
  test_remove_directory (fixture->directory);
  g_free (fixture->path);
  g_string_free (fixture->events, TRUE);
}

static void
start (Fixture *fixture, GCancellable *cancellable, TestAwait *await)
{
  const VmmWitnessConfig config = { VM, fixture->directory, 840294, 1234567 };

  vmm_witness_start_async (fixture->launcher, &config, cancellable, test_await_cb, await);
}

static VmmProcess *
start_end (TestAwait *await, GError **error)
{
  g_autoptr (GAsyncResult) result = test_await (await);

  return vmm_witness_start_finish (result, error);
}

static VmmWitness *
connect_end (TestAwait *await, GError **error)
{
  g_autoptr (GAsyncResult) result = test_await (await);

  return vmm_witness_connect_finish (result, error);
}

static void
event_cb (VmmWitness *witness, guint64 seq, const char *name, JsonObject *data,
          gpointer user_data)
{
  Fixture *fixture = user_data;
  g_autoptr (JsonNode) node = json_node_init_object (json_node_alloc (), data);
  g_autofree char *text = json_to_string (node, FALSE);

  g_string_append_printf (fixture->events, "%" G_GUINT64_FORMAT " %s %s\n", seq, name, text);
}

static void
closed_cb (VmmWitness *witness, const char *reason, gpointer user_data)
{
  Fixture *fixture = user_data;

  g_string_append_printf (fixture->events, "closed: %s\n", reason);
}

static void
take_witness (Fixture *fixture, TestAwait *await)
{
  g_autoptr (GError) error = NULL;

  g_clear_object (&fixture->witness);
  fixture->witness = connect_end (await, &error);
  g_assert_no_error (error);
  g_assert_true (vmm_witness_is_open (fixture->witness));
  g_signal_connect (fixture->witness, "event", G_CALLBACK (event_cb), fixture);
  g_signal_connect (fixture->witness, "closed", G_CALLBACK (closed_cb), fixture);
}

static void
assert_events (Fixture *fixture, const char *expected)
{
  test_drain ();
  g_assert_cmpstr (fixture->events->str, ==, expected);
  g_string_truncate (fixture->events, 0);
}

static void
test_start (Fixture *fixture, gconstpointer data)
{
  g_autofree char *program = vmm_helper_find ("vmm-monitor");
  const char *const argv[] = { program,  "--directory",   fixture->directory, "--cid",
                               "840294", "--notify-port", "1234567",          NULL };
  g_autoptr (VmmProcess) process = NULL;
  g_autoptr (GError) error = NULL;
  TestAwait await = TEST_AWAIT_INIT;
  VmmProcessSpec *spec;

  g_assert_true (g_file_set_contents (fixture->path, "stale", -1, NULL));
  start (fixture, NULL, &await);
  process = start_end (&await, &error);
  g_assert_no_error (error);
  spec = test_fakes_get_spec (VM, "monitor");
  g_assert_true (g_strv_equal (vmm_process_spec_get_argv (spec), argv));
  g_assert_cmpstr (vmm_process_spec_get_id (spec), ==, VM "-monitor");
  g_assert_cmpstr (vmm_process_spec_get_writable_paths (spec)[0], ==, fixture->directory);
}

/* Where a program is the VM's vsock device, the monitor listens behind it. */
static void
test_start_vsock (Fixture *fixture, gconstpointer data)
{
  g_autofree char *socket = g_build_filename (fixture->directory, "vsock.sock", NULL);
  const VmmWitnessConfig config = { VM, fixture->directory, 840294, 1234567, socket };
  g_autoptr (VmmProcess) process = NULL;
  g_autoptr (GError) error = NULL;
  TestAwait await = TEST_AWAIT_INIT;
  const char *const *argv;

  vmm_witness_start_async (fixture->launcher, &config, NULL, test_await_cb, &await);
  process = start_end (&await, &error);
  g_assert_no_error (error);
  argv = vmm_process_spec_get_argv (test_fakes_get_spec (VM, "monitor"));
  g_assert_cmpuint (g_strv_length ((GStrv) argv), ==, 9);
  g_assert_cmpstr (argv[7], ==, "--vsock-socket");
  g_assert_cmpstr (argv[8], ==, socket);
}

static void
test_start_exits (Fixture *fixture, gconstpointer data)
{
  g_autoptr (GError) error = NULL;
  TestAwait await = TEST_AWAIT_INIT;

  test_peer_behaviour.monitor_exit = 2;
  start (fixture, NULL, &await);
  g_assert_null (start_end (&await, &error));
  g_assert_error (error, VMM_ERROR, VMM_ERROR_INTERNAL);
  g_assert_cmpstr (error->message, ==,
                   "vmm-monitor exited before its socket answered (exit status 2): no output");
}

static void
test_start_fails (Fixture *fixture, gconstpointer data)
{
  g_autoptr (GError) error = NULL;
  TestAwait await = TEST_AWAIT_INIT;

  test_fakes_fail ("launcher.start:monitor", VMM_ERROR_UNSUPPORTED, "no");
  start (fixture, NULL, &await);
  g_assert_null (start_end (&await, &error));
  g_assert_error (error, VMM_ERROR, VMM_ERROR_UNSUPPORTED);
}

static void
test_start_silent (Fixture *fixture, gconstpointer data)
{
  g_autofree char *prefix = g_strdup_printf ("vmm-monitor at %s did not answer within 5s (no answer",
                                             fixture->path);
  g_autoptr (GError) error = NULL;
  TestAwait await = TEST_AWAIT_INIT;

  test_peer_behaviour.monitor_silent = TRUE;
  start (fixture, NULL, &await);
  g_assert_null (start_end (&await, &error));
  g_assert_error (error, VMM_ERROR, VMM_ERROR_INTERNAL);
  g_assert_true (g_str_has_prefix (error->message, prefix));
  g_assert_false (test_fakes_is_running (VM, "monitor"));
}

static gboolean
is_running (gpointer user_data)
{
  return test_peer_is_running (VM, "monitor");
}

static void
test_start_cancelled (Fixture *fixture, gconstpointer data)
{
  g_autoptr (GCancellable) cancellable = g_cancellable_new ();
  g_autoptr (GError) error = NULL;
  TestAwait await = TEST_AWAIT_INIT;

  test_peer_behaviour.monitor_silent = TRUE;
  start (fixture, cancellable, &await);
  test_await_condition (is_running, NULL);
  test_drain ();
  g_cancellable_cancel (cancellable);
  g_assert_null (start_end (&await, &error));
  g_assert_error (error, G_IO_ERROR, G_IO_ERROR_CANCELLED);
  g_assert_false (test_fakes_is_running (VM, "monitor"));
}

static void
test_start_long_path (Fixture *fixture, gconstpointer data)
{
  g_autofree char *name = g_strnfill (100, 'a');
  g_autofree char *directory = g_build_filename (fixture->directory, name, NULL);
  const VmmWitnessConfig config = { VM, directory, 3, 4 };
  g_autoptr (GError) error = NULL;
  TestAwait await = TEST_AWAIT_INIT;

  vmm_witness_start_async (fixture->launcher, &config, NULL, test_await_cb, &await);
  g_assert_null (start_end (&await, &error));
  g_assert_error (error, VMM_ERROR, VMM_ERROR_INVALID_REQUEST);
}

/* The journal of a fake monitor: what was, what is, and what a second reader has not seen. */
static void
test_journal (Fixture *fixture, gconstpointer data)
{
  g_autoptr (VmmProcess) process = NULL;
  TestAwait await = TEST_AWAIT_INIT;

  test_peer_journal (VM, "status", "{\"text\": \"hello\"}");
  test_peer_journal (VM, "ready", NULL);
  start (fixture, NULL, &await);
  process = start_end (&await, NULL);
  g_assert_nonnull (process);
  vmm_witness_connect_async (fixture->directory, 0, NULL, test_await_cb, &await);
  take_witness (fixture, &await);
  test_peer_journal (VM, "reset", NULL);
  assert_events (fixture, "1 status {\"text\":\"hello\"}\n2 ready {}\n3 reset {}\n");

  vmm_witness_close (fixture->witness);
  test_peer_journal (VM, "stop", "{\"reason\": \"io-error\"}");
  assert_events (fixture, "");

  vmm_witness_connect_async (fixture->directory, 3, NULL, test_await_cb, &await);
  take_witness (fixture, &await);
  test_peer_journal (VM, "resume", NULL);
  assert_events (fixture, "4 stop {\"reason\":\"io-error\"}\n5 resume {}\n");
}

/* From here on the test serves the socket. */

static void
serve (Fixture *fixture, gconstpointer data)
{
  g_autofree char *line = NULL;
  TestAwait await = TEST_AWAIT_INIT;

  set_up (fixture, data);
  fixture->peer = scripted_peer_new (fixture->path, HELLO);
  vmm_witness_connect_async (fixture->directory, 41, NULL, test_await_cb, &await);
  take_witness (fixture, &await);
  line = scripted_peer_hear (fixture->peer);
  g_assert_cmpstr (line, ==, "{\"read-from\":41}");
}

static gboolean
is_closed (gpointer user_data)
{
  return !vmm_witness_is_open (user_data);
}

static void
test_entries (Fixture *fixture, gconstpointer data)
{
  scripted_peer_say (fixture->peer,
                     "{\"seq\": 42, \"at\": \"2026-01-01T00:00:00Z\", \"event\": \"ready\"}");
  scripted_peer_say (fixture->peer, "{\"seq\": 50, \"event\": \"news\", \"data\": {\"a\": 1}}");
  scripted_peer_say (fixture->peer, "{\"seq\": 9007199254740993, \"event\": \"x\", \"data\": null}");
  assert_events (fixture, "42 ready {}\n50 news {\"a\":1}\n9007199254740993 x {}\n");
}

static void
assert_ends (Fixture *fixture, const char *line, const char *expected)
{
  scripted_peer_say (fixture->peer, line);
  test_await_condition (is_closed, fixture->witness);
  assert_events (fixture, expected);
}

static void
test_same_number (Fixture *fixture, gconstpointer data)
{
  scripted_peer_say (fixture->peer, "{\"seq\": 42, \"event\": \"ready\"}");
  assert_ends (fixture, "{\"seq\": 42, \"event\": \"ready\"}",
               "42 ready {}\nclosed: the journal's numbers do not grow\n");
}

static void
test_seen_number (Fixture *fixture, gconstpointer data)
{
  assert_ends (fixture, "{\"seq\": 41, \"event\": \"ready\"}",
               "closed: the journal's numbers do not grow\n");
}

static void
test_lies (gconstpointer data)
{
  static const char *const lies[] = {
    "ready",
    "[]",
    "{\"seq\": \"42\", \"event\": \"ready\"}",
    "{\"seq\": 42}",
    "{\"seq\": 42, \"event\": 7}",
    "{\"seq\": 42, \"event\": \"ready\", \"data\": []}",
    "{\"seq\": 42.5, \"event\": \"ready\"}",
    "{\"seq\": 18446744073709551615, \"event\": \"ready\"}",
  };

  for (guint i = 0; i < G_N_ELEMENTS (lies); i++)
    {
      Fixture fixture = { 0 };

      serve (&fixture, NULL);
      assert_ends (&fixture, lies[i], "closed: a line is not a journal entry\n");
      tear_down (&fixture, NULL);
    }
}

static void
test_negative (Fixture *fixture, gconstpointer data)
{
  assert_ends (fixture, "{\"seq\": -1, \"event\": \"ready\"}",
               "closed: the journal's numbers do not grow\n");
}

static void
test_oversized (Fixture *fixture, gconstpointer data)
{
  g_autofree char *text = g_strnfill (64 * 1024 + 1, 'a');

  assert_ends (fixture, text, "closed: a line exceeds 65536 bytes\n");
}

static void
test_hang_up (Fixture *fixture, gconstpointer data)
{
  scripted_peer_say (fixture->peer, "{\"seq\": 42, \"event\": \"ready\"}");
  scripted_peer_hang_up (fixture->peer);
  test_await_condition (is_closed, fixture->witness);
  assert_events (fixture, "42 ready {}\nclosed: end of file\n");
}

static void
close_at_event_cb (VmmWitness *witness, guint64 seq, const char *name, JsonObject *data,
                   gpointer user_data)
{
  Fixture *fixture = user_data;

  vmm_witness_close (witness);
  g_clear_object (&fixture->witness);
}

static gboolean
has_no_client (gpointer user_data)
{
  return !scripted_peer_has_client (user_data);
}

static void
test_close_within (Fixture *fixture, gconstpointer data)
{
  g_signal_connect (fixture->witness, "event", G_CALLBACK (close_at_event_cb), fixture);
  scripted_peer_say (fixture->peer, "{\"seq\": 42, \"event\": \"a\"}\n{\"seq\": 43, \"event\": \"b\"}");
  test_await_condition (has_no_client, fixture->peer);
  assert_events (fixture, "42 a {}\n");
}

static void
assert_connect_fails (const char *hello, int code, const char *message)
{
  Fixture fixture = { 0 };
  TestAwait await = TEST_AWAIT_INIT;
  g_autoptr (GError) error = NULL;

  set_up (&fixture, NULL);
  fixture.peer = scripted_peer_new (fixture.path, hello);
  vmm_witness_connect_async (fixture.directory, 0, NULL, test_await_cb, &await);
  g_assert_null (connect_end (&await, &error));
  g_assert_error (error, VMM_ERROR, code);
  g_assert_cmpstr (error->message, ==, message);
  tear_down (&fixture, NULL);
}

static void
test_hello (gconstpointer data)
{
  static const char not_monitor[] = "the socket is not served by vmm-monitor";

  assert_connect_fails ("hello", VMM_ERROR_INTERNAL, not_monitor);
  assert_connect_fails ("{}", VMM_ERROR_INTERNAL, not_monitor);
  assert_connect_fails ("{\"vmm-monitor\": \"1\"}", VMM_ERROR_INTERNAL, not_monitor);
  assert_connect_fails ("{\"vmm-monitor\": -1}", VMM_ERROR_INTERNAL, not_monitor);
  assert_connect_fails ("{\"vmm-monitor\": 2}", VMM_ERROR_UNSUPPORTED,
                        "unsupported: vmm-monitor speaks version 2 of its protocol, this "
                        "vm-manager speaks 1");
}

static void
test_connect_cancelled (Fixture *fixture, gconstpointer data)
{
  g_autoptr (GCancellable) cancellable = g_cancellable_new ();
  g_autoptr (GError) error = NULL;
  TestAwait await = TEST_AWAIT_INIT;

  fixture->peer = scripted_peer_new (fixture->path, NULL);
  vmm_witness_connect_async (fixture->directory, 0, cancellable, test_await_cb, &await);
  test_await_condition ((TestCondition) scripted_peer_has_client, fixture->peer);
  g_cancellable_cancel (cancellable);
  g_assert_null (connect_end (&await, &error));
  g_assert_error (error, G_IO_ERROR, G_IO_ERROR_CANCELLED);
}

int
main (int argc, char **argv)
{
  g_test_init (&argc, &argv, G_TEST_OPTION_ISOLATE_DIRS, NULL);
#define ADD(name, function)                                                                        \
  g_test_add ("/witness/" name, Fixture, NULL, set_up, function, tear_down)
#define ADD_SERVED(name, function)                                                                 \
  g_test_add ("/witness/" name, Fixture, NULL, serve, function, tear_down)
  ADD ("start", test_start);
  ADD ("start-vsock", test_start_vsock);
  ADD ("start-exits", test_start_exits);
  ADD ("start-fails", test_start_fails);
  ADD ("start-silent", test_start_silent);
  ADD ("start-cancelled", test_start_cancelled);
  ADD ("start-long-path", test_start_long_path);
  ADD ("journal", test_journal);
  ADD ("connect-cancelled", test_connect_cancelled);
  ADD_SERVED ("entries", test_entries);
  ADD_SERVED ("same-number", test_same_number);
  ADD_SERVED ("seen-number", test_seen_number);
  ADD_SERVED ("negative", test_negative);
  ADD_SERVED ("oversized", test_oversized);
  ADD_SERVED ("hang-up", test_hang_up);
  ADD_SERVED ("close-within", test_close_within);
  g_test_add_data_func ("/witness/lies", NULL, test_lies);
  g_test_add_data_func ("/witness/hello", NULL, test_hello);
  return g_test_run ();
}

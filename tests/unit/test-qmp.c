/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The QMP client against a peer that plays QEMU honestly, and against each kind of lie. */
#include <string.h>

#include "fake-backends.h"
#include "interfaces/vmm-error.h"
#include "scripted-peer.h"
#include "test-await.h"
#include "vmm-qmp.h"

#define GREETING "{\"QMP\": {\"version\": {\"qemu\": {\"major\": 7}}, \"capabilities\": [\"oob\"]}}"
#define LONG_MS 600000

typedef struct
{
  char *directory;
  char *path;
  ScriptedPeer *peer;
  VmmQmp *qmp;
  GString *events; /* "NAME {data}" and "closed: reason", one a line */
} Fixture;

static void
event_cb (VmmQmp *qmp, const char *name, JsonObject *data, gpointer user_data)
{
  Fixture *fixture = user_data;
  g_autoptr (JsonNode) node = json_node_init_object (json_node_alloc (), data);
  g_autofree char *text = json_to_string (node, FALSE);

  g_string_append_printf (fixture->events, "%s %s\n", name, text);
}

static void
closed_cb (VmmQmp *qmp, const char *reason, gpointer user_data)
{
  Fixture *fixture = user_data;

  g_string_append_printf (fixture->events, "closed: %s\n", reason);
}

static void
set_up (Fixture *fixture, gconstpointer data)
{
  fixture->directory = test_make_directory ();
  fixture->path = g_build_filename (fixture->directory, "qmp.sock", NULL);
  fixture->peer = scripted_peer_new (fixture->path, GREETING);
  fixture->events = g_string_new (NULL);
}

static void
tear_down (Fixture *fixture, gconstpointer data)
{
  g_clear_object (&fixture->qmp);
  scripted_peer_free (fixture->peer);
  test_remove_directory (fixture->directory);
  g_free (fixture->path);
  g_string_free (fixture->events, TRUE);
}

static void
assert_events (Fixture *fixture, const char *expected)
{
  g_assert_cmpstr (fixture->events->str, ==, expected);
  g_string_truncate (fixture->events, 0);
}

static VmmQmp *
connect_end (TestAwait *await, GError **error)
{
  g_autoptr (GAsyncResult) result = test_await (await);

  return vmm_qmp_connect_finish (result, error);
}

static void
hear (Fixture *fixture, const char *expected)
{
  g_autofree char *line = scripted_peer_hear (fixture->peer);

  g_assert_cmpstr (line, ==, expected);
}

static void
connect_up (Fixture *fixture, gconstpointer data)
{
  TestAwait await = TEST_AWAIT_INIT;
  g_autoptr (GError) error = NULL;

  set_up (fixture, data);
  vmm_qmp_connect_async (fixture->path, NULL, NULL, NULL, test_await_cb, &await);
  hear (fixture, "{\"execute\":\"qmp_capabilities\",\"id\":1}");
  /* Events before the answer belong to nobody. */
  scripted_peer_say (fixture->peer, "{\"event\": \"EARLY\"}");
  scripted_peer_say (fixture->peer, "{\"return\": {}, \"id\": 1}");
  fixture->qmp = connect_end (&await, &error);
  g_assert_no_error (error);
  g_assert_true (vmm_qmp_is_open (fixture->qmp));
  g_signal_connect (fixture->qmp, "event", G_CALLBACK (event_cb), fixture);
  g_signal_connect (fixture->qmp, "closed", G_CALLBACK (closed_cb), fixture);
}

static void
start (Fixture *fixture, const char *command, guint timeout_ms, TestAwait *await)
{
  vmm_qmp_execute_async (fixture->qmp, command, NULL, timeout_ms, NULL, test_await_cb, await);
}

static JsonNode *
end (Fixture *fixture, TestAwait *await, GError **error)
{
  g_autoptr (GAsyncResult) result = test_await (await);

  return vmm_qmp_execute_finish (fixture->qmp, result, error);
}

static void
assert_fails (Fixture *fixture, TestAwait *await, int code, const char *message)
{
  g_autoptr (GError) error = NULL;

  g_assert_null (end (fixture, await, &error));
  g_assert_error (error, VMM_ERROR, code);
  g_assert_cmpstr (error->message, ==, message);
}

static void
assert_succeeds (Fixture *fixture, TestAwait *await)
{
  g_autoptr (GError) error = NULL;
  g_autoptr (JsonNode) node = end (fixture, await, &error);

  g_assert_no_error (error);
  g_assert_true (JSON_NODE_HOLDS_OBJECT (node));
}

static void
test_command (Fixture *fixture, gconstpointer data)
{
  TestAwait await = TEST_AWAIT_INIT;
  g_autoptr (JsonObject) arguments = json_object_new ();
  g_autoptr (JsonNode) node = NULL;
  g_autoptr (GError) error = NULL;

  json_object_set_string_member (arguments, "id", "a\"b\nc");
  vmm_qmp_execute_async (fixture->qmp, "query-status", arguments, LONG_MS, NULL, test_await_cb,
                         &await);
  hear (fixture, "{\"execute\":\"query-status\",\"arguments\":{\"id\":\"a\\\"b\\nc\"},\"id\":2}");
  scripted_peer_say (fixture->peer,
                     "{\"return\": {\"status\": \"paused\", \"running\": false}, \"id\": 2}");
  node = end (fixture, &await, &error);
  g_assert_no_error (error);
  g_assert_cmpstr (json_object_get_string_member (json_node_get_object (node), "status"), ==,
                   "paused");
}

static void
test_order (Fixture *fixture, gconstpointer data)
{
  TestAwait first = TEST_AWAIT_INIT;
  TestAwait second = TEST_AWAIT_INIT;

  start (fixture, "one", LONG_MS, &first);
  start (fixture, "two", LONG_MS, &second);
  hear (fixture, "{\"execute\":\"one\",\"id\":2}");
  hear (fixture, "{\"execute\":\"two\",\"id\":3}");
  scripted_peer_say (fixture->peer, "{\"return\": {}, \"id\": 3}");
  assert_succeeds (fixture, &second);
  g_assert_null (first.result);
  scripted_peer_say (fixture->peer, "{\"return\": {}, \"id\": 2}");
  assert_succeeds (fixture, &first);
}

static void
test_error_reply (Fixture *fixture, gconstpointer data)
{
  TestAwait await = TEST_AWAIT_INIT;

  start (fixture, "eject", LONG_MS, &await);
  hear (fixture, "{\"execute\":\"eject\",\"id\":2}");
  scripted_peer_say (fixture->peer, "{\"id\": 2, \"error\": {\"class\": \"DeviceNotFound\", "
                                    "\"desc\": \"Device 'x\\u001b[1m' not found\"}}");
  assert_fails (fixture, &await, VMM_ERROR_INTERNAL,
                "qmp eject: DeviceNotFound: Device 'x\\x1b[1m' not found");
}

/* An error is an error even when it does not say which. */
static void
test_strange_errors (Fixture *fixture, gconstpointer data)
{
  static const char *const errors[]
    = { "{\"id\": %u, \"error\": 7}", "{\"id\": %u, \"error\": {\"class\": []}}",
        "{\"id\": %u, \"error\": null}" };

  for (guint i = 0; i < G_N_ELEMENTS (errors); i++)
    {
      g_auto (GStrv) parts = g_strsplit (errors[i], "%u", 2);
      g_autofree char *line = g_strdup_printf ("%s%u%s", parts[0], i + 2, parts[1]);
      TestAwait await = TEST_AWAIT_INIT;

      start (fixture, "x", LONG_MS, &await);
      scripted_peer_say (fixture->peer, line);
      assert_fails (fixture, &await, VMM_ERROR_INTERNAL,
                    "qmp x: GenericError: an error without a description");
    }
}

static void
test_long_error (Fixture *fixture, gconstpointer data)
{
  g_autofree char *text = g_strnfill (100000, 'a');
  g_autofree char *line
    = g_strdup_printf ("{\"id\": 2, \"error\": {\"class\": \"C\", \"desc\": \"%s\"}}", text);
  TestAwait await = TEST_AWAIT_INIT;
  g_autoptr (GError) error = NULL;

  start (fixture, "x", LONG_MS, &await);
  scripted_peer_say (fixture->peer, line);
  g_assert_null (end (fixture, &await, &error));
  g_assert_cmpuint (strlen (error->message), <, 600);
}

static void
test_events (Fixture *fixture, gconstpointer data)
{
  TestAwait await = TEST_AWAIT_INIT;

  start (fixture, "cont", LONG_MS, &await);
  scripted_peer_say (fixture->peer, "{\"event\": \"RESUME\", \"timestamp\": {\"seconds\": 1}}");
  scripted_peer_say (fixture->peer, "{\"return\": {}, \"id\": 2}");
  scripted_peer_say (fixture->peer,
                     "{\"event\": \"SHUTDOWN\", \"data\": {\"guest\": true, \"reason\": \"x\"}}");
  assert_succeeds (fixture, &await);
  test_drain ();
  assert_events (fixture, "RESUME {}\nSHUTDOWN {\"guest\":true,\"reason\":\"x\"}\n");
}

/* Answers that nobody asked for, and objects of no known kind. */
static void
test_ignored (Fixture *fixture, gconstpointer data)
{
  TestAwait await = TEST_AWAIT_INIT;

  start (fixture, "x", LONG_MS, &await);
  scripted_peer_say (fixture->peer, "{\"return\": {}, \"id\": 99}");
  scripted_peer_say (fixture->peer, "{\"return\": {}, \"id\": \"2\"}");
  scripted_peer_say (fixture->peer, "{\"return\": {}}");
  scripted_peer_say (fixture->peer, "{\"error\": {\"class\": \"GenericError\", \"desc\": \"?\"}}");
  scripted_peer_say (fixture->peer, "{\"hello\": 1}");
  scripted_peer_say (fixture->peer, "{}");
  test_drain ();
  g_assert_null (await.result);
  scripted_peer_say (fixture->peer, "{\"return\": {}, \"id\": 2}");
  scripted_peer_say (fixture->peer, "{\"return\": {}, \"id\": 2}");
  assert_succeeds (fixture, &await);
  test_drain ();
  g_assert_true (vmm_qmp_is_open (fixture->qmp));
  assert_events (fixture, "");
}

static void
test_timeout (Fixture *fixture, gconstpointer data)
{
  TestAwait await = TEST_AWAIT_INIT;
  TestAwait next = TEST_AWAIT_INIT;

  start (fixture, "slow", 20, &await);
  assert_fails (fixture, &await, VMM_ERROR_TIMEOUT,
                "timeout: qmp slow: no answer within 20 ms");
  /* Its answer comes after all and is not the next one's. */
  start (fixture, "next", LONG_MS, &next);
  scripted_peer_say (fixture->peer, "{\"return\": {}, \"id\": 2}");
  test_drain ();
  g_assert_null (next.result);
  scripted_peer_say (fixture->peer, "{\"return\": {}, \"id\": 3}");
  assert_succeeds (fixture, &next);
}

static void
test_cancel (Fixture *fixture, gconstpointer data)
{
  g_autoptr (GCancellable) cancellable = g_cancellable_new ();
  g_autoptr (GError) error = NULL;
  TestAwait await = TEST_AWAIT_INIT;
  TestAwait next = TEST_AWAIT_INIT;

  vmm_qmp_execute_async (fixture->qmp, "x", NULL, LONG_MS, cancellable, test_await_cb, &await);
  hear (fixture, "{\"execute\":\"x\",\"id\":2}");
  g_cancellable_cancel (cancellable);
  g_assert_null (end (fixture, &await, &error));
  g_assert_error (error, G_IO_ERROR, G_IO_ERROR_CANCELLED);
  start (fixture, "next", LONG_MS, &next);
  scripted_peer_say (fixture->peer, "{\"return\": {}, \"id\": 2}");
  scripted_peer_say (fixture->peer, "{\"return\": {}, \"id\": 3}");
  assert_succeeds (fixture, &next);
}

static void
test_in_flight (Fixture *fixture, gconstpointer data)
{
  TestAwait awaits[64] = { TEST_AWAIT_INIT };
  TestAwait last = TEST_AWAIT_INIT;

  for (guint i = 0; i < 64; i++)
    start (fixture, "x", LONG_MS, &awaits[i]);
  start (fixture, "y", LONG_MS, &last);
  assert_fails (fixture, &last, VMM_ERROR_CONFLICT,
                "conflict: qmp y: 64 commands wait for an answer");
  scripted_peer_hang_up (fixture->peer);
  for (guint i = 0; i < 64; i++)
    assert_fails (fixture, &awaits[i], VMM_ERROR_INTERNAL,
                  "qmp x: connection closed: end of file");
}

/* Whatever ends the connection: the command says so, and ::closed once. */
static void
assert_closed (Fixture *fixture, TestAwait *await, const char *reason)
{
  g_autofree char *message = g_strdup_printf ("qmp x: connection closed: %s", reason);
  g_autofree char *event = g_strdup_printf ("closed: %s\n", reason);
  TestAwait later = TEST_AWAIT_INIT;

  assert_fails (fixture, await, VMM_ERROR_INTERNAL, message);
  g_assert_false (vmm_qmp_is_open (fixture->qmp));
  start (fixture, "x", LONG_MS, &later);
  assert_fails (fixture, &later, VMM_ERROR_INTERNAL, message);
  test_drain ();
  assert_events (fixture, event);
}

static void
test_hang_up (Fixture *fixture, gconstpointer data)
{
  TestAwait await = TEST_AWAIT_INIT;

  start (fixture, "x", LONG_MS, &await);
  test_drain ();
  scripted_peer_hang_up (fixture->peer);
  assert_closed (fixture, &await, "end of file");
}

static void
test_torn (Fixture *fixture, gconstpointer data)
{
  TestAwait await = TEST_AWAIT_INIT;

  start (fixture, "x", LONG_MS, &await);
  test_drain ();
  scripted_peer_say_bytes (fixture->peer, "{\"return\": {}, \"id\": 2}", 23);
  scripted_peer_hang_up (fixture->peer);
  assert_closed (fixture, &await, "end of file within a line");
}

static void
test_garbage (gconstpointer data)
{
  static const struct
  {
    const char *text;
    gsize length;
  } lies[] = {
    { "hello\n", 6 },     { "[]\n", 3 },      { "{\"return\": {}, \"id\": 2} {}\n", 28 },
    { "{\"id\": 2,}\n", 11 }, { "\xff\xfe\n", 3 }, { "{\"return\": {}, \"id\": 2}\0\n", 25 },
    { "null\n", 5 },      { "{\"id\": 2, \"id\": 2, \"return\": {}}\n", 34 },
  };

  for (guint i = 0; i < G_N_ELEMENTS (lies); i++)
    {
      Fixture fixture = { 0 };
      TestAwait await = TEST_AWAIT_INIT;

      connect_up (&fixture, NULL);
      start (&fixture, "x", LONG_MS, &await);
      test_drain ();
      scripted_peer_say_bytes (fixture.peer, lies[i].text, lies[i].length);
      assert_closed (&fixture, &await, "a line is not a JSON object");
      tear_down (&fixture, NULL);
    }
}

static void
test_strange_events (gconstpointer data)
{
  static const char *const lies[] = { "{\"event\": 7}", "{\"event\": null}",
                                      "{\"event\": \"RESET\", \"data\": []}" };

  for (guint i = 0; i < G_N_ELEMENTS (lies); i++)
    {
      Fixture fixture = { 0 };
      TestAwait await = TEST_AWAIT_INIT;

      connect_up (&fixture, NULL);
      start (&fixture, "x", LONG_MS, &await);
      test_drain ();
      scripted_peer_say (fixture.peer, lies[i]);
      assert_closed (&fixture, &await, "an event without a name or with strange data");
      tear_down (&fixture, NULL);
    }
}

static void
test_oversized (Fixture *fixture, gconstpointer data)
{
  g_autofree char *text = g_strnfill (1024 * 1024 + 1, 'a');
  TestAwait await = TEST_AWAIT_INIT;

  start (fixture, "x", LONG_MS, &await);
  test_drain ();
  scripted_peer_say_bytes (fixture->peer, text, 1024 * 1024 + 1);
  assert_closed (fixture, &await, "a line exceeds 1048576 bytes");
}

static void
test_deep (Fixture *fixture, gconstpointer data)
{
  g_autoptr (GString) text = g_string_new ("{\"event\": \"X\", \"data\": {\"a\": ");
  TestAwait await = TEST_AWAIT_INIT;

  for (guint i = 0; i < 100000; i++)
    g_string_append_c (text, '[');
  start (fixture, "x", LONG_MS, &await);
  test_drain ();
  scripted_peer_say (fixture->peer, text->str);
  assert_closed (fixture, &await, "a line is not a JSON object");
}

/* The answer to quit arrives together with the end. */
static void
test_answer_and_end (Fixture *fixture, gconstpointer data)
{
  TestAwait await = TEST_AWAIT_INIT;

  start (fixture, "quit", LONG_MS, &await);
  hear (fixture, "{\"execute\":\"quit\",\"id\":2}");
  scripted_peer_say (fixture->peer, "{\"return\": {}, \"id\": 2}");
  scripted_peer_hang_up (fixture->peer);
  assert_succeeds (fixture, &await);
  test_drain ();
  assert_events (fixture, "closed: end of file\n");
}

static gboolean
has_no_client (gpointer user_data)
{
  return !scripted_peer_has_client (user_data);
}

static void
test_close (Fixture *fixture, gconstpointer data)
{
  TestAwait await = TEST_AWAIT_INIT;

  start (fixture, "x", LONG_MS, &await);
  test_drain ();
  vmm_qmp_close (fixture->qmp);
  vmm_qmp_close (fixture->qmp);
  assert_fails (fixture, &await, VMM_ERROR_INTERNAL,
                "qmp x: connection closed: closed by vm-manager");
  test_await_condition (has_no_client, fixture->peer);
  assert_events (fixture, ""); /* not to the one who did it */
}

/* Dropping the last reference closes too, but a command keeps it until it is answered. */
static void
test_unref (Fixture *fixture, gconstpointer data)
{
  TestAwait await = TEST_AWAIT_INIT;
  VmmQmp *qmp = fixture->qmp;
  g_autoptr (GAsyncResult) result = NULL;
  g_autoptr (JsonNode) node = NULL;

  start (fixture, "x", LONG_MS, &await);
  g_clear_object (&fixture->qmp);
  scripted_peer_say (fixture->peer, "{\"return\": {}, \"id\": 2}");
  result = test_await (&await);
  node = vmm_qmp_execute_finish (qmp, result, NULL);
  g_assert_nonnull (node);
  g_clear_object (&result);
  test_await_condition (has_no_client, fixture->peer);
}

static void
quit_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  Fixture *fixture = user_data;
  g_autoptr (JsonNode) node = vmm_qmp_execute_finish (VMM_QMP (source), result, NULL);

  g_assert_nonnull (node);
  vmm_qmp_close (fixture->qmp);
  g_clear_object (&fixture->qmp);
}

/* Closed and dropped from within a callback, with more lines behind it. */
static void
test_close_within (Fixture *fixture, gconstpointer data)
{
  vmm_qmp_execute_async (fixture->qmp, "x", NULL, LONG_MS, NULL, quit_cb, fixture);
  test_drain ();
  scripted_peer_say (fixture->peer, "{\"return\": {}, \"id\": 2}\n{\"event\": \"RESET\"}");
  test_await_condition (has_no_client, fixture->peer);
  assert_events (fixture, "");
}

/* Greetings. */

static void
assert_connect_fails (const char *greeting, const char *answer, const char *message)
{
  Fixture fixture = { 0 };
  TestAwait await = TEST_AWAIT_INIT;
  g_autoptr (GError) error = NULL;

  set_up (&fixture, NULL);
  scripted_peer_set_greeting (fixture.peer, greeting);
  vmm_qmp_connect_async (fixture.path, NULL, NULL, NULL, test_await_cb, &await);
  if (answer != NULL)
    {
      hear (&fixture, "{\"execute\":\"qmp_capabilities\",\"id\":1}");
      scripted_peer_say (fixture.peer, answer);
    }
  g_assert_null (connect_end (&await, &error));
  g_assert_error (error, VMM_ERROR, VMM_ERROR_INTERNAL);
  g_assert_cmpstr (error->message, ==, message);
  g_assert_cmpuint (scripted_peer_get_n_clients (fixture.peer), ==, 1);
  tear_down (&fixture, NULL);
}

static void
test_greeting (gconstpointer data)
{
  static const char not_qmp[] = "qmp greeting: not a QMP server";

  assert_connect_fails ("220 mail.example.org ESMTP", NULL, not_qmp);
  assert_connect_fails ("{}", NULL, not_qmp);
  assert_connect_fails ("{\"QMP\": 1}", NULL, not_qmp);
  assert_connect_fails ("{\"QMP\": null}", NULL, not_qmp);
  assert_connect_fails ("{\"event\": \"RESET\"}", NULL, not_qmp);
  assert_connect_fails (
    GREETING, "{\"id\": 1, \"error\": {\"class\": \"CommandNotFound\", \"desc\": \"no\"}}",
    "qmp qmp_capabilities: CommandNotFound: no");
}

static gboolean
has_second_client (gpointer user_data)
{
  return scripted_peer_get_n_clients (user_data) == 2;
}

/* Torn greetings happen while QEMU starts or ends: another attempt follows. */
static void
test_torn_greeting (Fixture *fixture, gconstpointer data)
{
  TestAwait await = TEST_AWAIT_INIT;
  g_autoptr (GError) error = NULL;

  scripted_peer_set_greeting (fixture->peer, NULL);
  vmm_qmp_connect_async (fixture->path, NULL, NULL, NULL, test_await_cb, &await);
  test_await_condition ((TestCondition) scripted_peer_has_client, fixture->peer);
  scripted_peer_say_bytes (fixture->peer, GREETING, 10);
  scripted_peer_set_greeting (fixture->peer, GREETING);
  scripted_peer_hang_up (fixture->peer);
  test_await_condition (has_second_client, fixture->peer);
  hear (fixture, "{\"execute\":\"qmp_capabilities\",\"id\":1}");
  scripted_peer_say (fixture->peer, "{\"return\": {}, \"id\": 1}");
  fixture->qmp = connect_end (&await, &error);
  g_assert_no_error (error);
}

static void
test_silent_and_cancelled (Fixture *fixture, gconstpointer data)
{
  g_autoptr (GCancellable) cancellable = g_cancellable_new ();
  TestAwait await = TEST_AWAIT_INIT;
  g_autoptr (GError) error = NULL;

  scripted_peer_set_greeting (fixture->peer, NULL);
  vmm_qmp_connect_async (fixture->path, NULL, NULL, cancellable, test_await_cb, &await);
  test_await_condition ((TestCondition) scripted_peer_has_client, fixture->peer);
  g_cancellable_cancel (cancellable);
  g_assert_null (connect_end (&await, &error));
  g_assert_error (error, G_IO_ERROR, G_IO_ERROR_CANCELLED);
  test_await_condition (has_no_client, fixture->peer);
}

static void
test_exits_during_start (Fixture *fixture, gconstpointer data)
{
  const char *const argv[] = { "qemu-system-x86_64", NULL };
  g_autoptr (VmmProcessSpec) spec = vmm_process_spec_new ("1-qemu", argv);
  g_autoptr (VmmLauncher) launcher = g_object_new (TEST_TYPE_FAKE_LAUNCHER, NULL);
  g_autoptr (VmmProcess) process = NULL;
  g_autoptr (GAsyncResult) result = NULL;
  g_autofree char *log = g_build_filename (fixture->directory, "qemu.log", NULL);
  TestAwait await = TEST_AWAIT_INIT;
  g_autoptr (GError) error = NULL;

  vmm_process_spec_set_owner (spec, "1", "other");
  vmm_launcher_start_async (launcher, spec, NULL, test_await_cb, &await);
  result = test_await (&await);
  process = vmm_launcher_start_finish (launcher, result, &error);
  g_assert_no_error (error);
  g_assert_true (g_file_set_contents (log, "qemu: -device foo: no such device\n", -1, NULL));
  scripted_peer_set_greeting (fixture->peer, NULL);
  vmm_qmp_connect_async (fixture->path, process, log, NULL, test_await_cb, &await);
  test_await_condition ((TestCondition) scripted_peer_has_client, fixture->peer);
  test_fakes_exit ("1", "other", 1, 0);
  g_assert_null (connect_end (&await, &error));
  g_assert_error (error, VMM_ERROR, VMM_ERROR_INTERNAL);
  g_assert_cmpstr (error->message, ==,
                   "qemu exited during start (exit status 1): qemu: -device foo: no such device");
  g_clear_object (&process);
  test_fakes_reset ();
}

int
main (int argc, char **argv)
{
  g_test_init (&argc, &argv, G_TEST_OPTION_ISOLATE_DIRS, NULL);
#define ADD(name, function) g_test_add ("/qmp/" name, Fixture, NULL, connect_up, function, tear_down)
#define ADD_ALONE(name, function)                                                                  \
  g_test_add ("/qmp/" name, Fixture, NULL, set_up, function, tear_down)
  ADD ("command", test_command);
  ADD ("order", test_order);
  ADD ("error-reply", test_error_reply);
  ADD ("strange-errors", test_strange_errors);
  ADD ("long-error", test_long_error);
  ADD ("events", test_events);
  ADD ("ignored", test_ignored);
  ADD ("timeout", test_timeout);
  ADD ("cancel", test_cancel);
  ADD ("in-flight", test_in_flight);
  ADD ("hang-up", test_hang_up);
  ADD ("torn", test_torn);
  ADD ("oversized", test_oversized);
  ADD ("deep", test_deep);
  ADD ("answer-and-end", test_answer_and_end);
  ADD ("close", test_close);
  ADD ("close-within", test_close_within);
  ADD ("unref", test_unref);
  ADD_ALONE ("torn-greeting", test_torn_greeting);
  ADD_ALONE ("silent-and-cancelled", test_silent_and_cancelled);
  ADD_ALONE ("exits-during-start", test_exits_during_start);
  g_test_add_data_func ("/qmp/garbage", NULL, test_garbage);
  g_test_add_data_func ("/qmp/strange-events", NULL, test_strange_events);
  g_test_add_data_func ("/qmp/greeting", NULL, test_greeting);
  return g_test_run ();
}

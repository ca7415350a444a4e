/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The daemon's end of vmm-monitor against the real program, with a QEMU that says what the test
 * wants. */

#include <gio/gio.h>
#include <glib/gstdio.h>
#include <signal.h>
#include <string.h>

#include "scripted-peer.h"
#include "test-await.h"
#include "vmm-witness.h"

#define GREETING "{\"QMP\": {\"version\": {}, \"capabilities\": []}}"

typedef struct
{
  char *directory;
  ScriptedPeer *qmp;
  ScriptedPeer *console;
  GSubprocess *monitor;
  VmmWitness *witness;
  GString *events; /* "SEQ NAME {data}", one a line */
} Fixture;

static char *
in_directory (Fixture *fixture, const char *name)
{
  return g_build_filename (fixture->directory, name, NULL);
}

static void
start_qemu (Fixture *fixture)
{
  g_autofree char *qmp = in_directory (fixture, "monitor-qmp.sock");
  g_autofree char *console = in_directory (fixture, "console.sock");

  g_unlink (qmp);
  g_unlink (console);
  fixture->console = scripted_peer_new (console, NULL);
  fixture->qmp = scripted_peer_new (qmp, GREETING);
}

static void
end_qemu (Fixture *fixture)
{
  g_clear_pointer (&fixture->qmp, scripted_peer_free);
  g_clear_pointer (&fixture->console, scripted_peer_free);
}

static void
start_monitor (Fixture *fixture)
{
  g_autofree char *program
      = g_test_build_filename (G_TEST_BUILT, "..", "daemon", "monitor", "vmm-monitor", NULL);
  g_autofree char *vsock = in_directory (fixture, "vsock.sock");
  g_autoptr (GError) error = NULL;

  fixture->monitor = g_subprocess_new (G_SUBPROCESS_FLAGS_NONE, &error, program, "--directory",
                                       fixture->directory, "--cid", "840294", "--notify-port",
                                       "1234567", "--vsock-socket", vsock, NULL);
  g_assert_no_error (error);
}

static void
set_up (Fixture *fixture, gconstpointer data)
{
  fixture->directory = test_make_directory ();
  fixture->events = g_string_new (NULL);
  start_qemu (fixture);
  start_monitor (fixture);
}

static void
end_monitor (Fixture *fixture, int signum)
{
  TestAwait await = TEST_AWAIT_INIT;
  g_autoptr (GAsyncResult) result = NULL;

  g_subprocess_send_signal (fixture->monitor, signum);
  g_subprocess_wait_async (fixture->monitor, NULL, test_await_cb, &await);
  result = test_await (&await);
  g_assert_true (g_subprocess_wait_finish (fixture->monitor, result, NULL));
  if (signum == SIGTERM)
    g_assert_true (g_subprocess_get_successful (fixture->monitor));
  g_clear_object (&fixture->monitor);
}

static void
let_go (Fixture *fixture)
{
  vmm_witness_close (fixture->witness);
  g_clear_object (&fixture->witness);
}

static void
tear_down (Fixture *fixture, gconstpointer data)
{
  if (fixture->witness != NULL)
    let_go (fixture);
  end_monitor (fixture, SIGTERM);
  end_qemu (fixture);
  g_string_free (fixture->events, TRUE);
  test_remove_directory (fixture->directory);
}

static void
event_cb (VmmWitness *witness, guint64 seq, const char *name, JsonObject *data, gpointer user_data)
{
  Fixture *fixture = user_data;
  g_autoptr (JsonNode) node = json_node_init_object (json_node_alloc (), data);
  g_autofree char *text = json_to_string (node, FALSE);

  g_string_append_printf (fixture->events, "%" G_GUINT64_FORMAT " %s %s\n", seq, name, text);
}

static void
read_from (Fixture *fixture, guint64 seq)
{
  g_autoptr (GAsyncResult) result = NULL;
  g_autoptr (GError) error = NULL;
  TestAwait await = TEST_AWAIT_INIT;

  vmm_witness_connect_async (fixture->directory, seq, NULL, test_await_cb, &await);
  result = test_await (&await);
  fixture->witness = vmm_witness_connect_finish (result, &error);
  g_assert_no_error (error);
  g_string_truncate (fixture->events, 0);
  g_signal_connect (fixture->witness, "event", G_CALLBACK (event_cb), fixture);
}

typedef struct
{
  const GString *text;
  gsize length;
} Length;

static gboolean
is_as_long (gpointer user_data)
{
  const Length *length = user_data;

  return length->text->len >= length->length;
}

static void
assert_events (Fixture *fixture, const char *expected)
{
  Length length = { fixture->events, strlen (expected) };

  test_await_condition (is_as_long, &length);
  g_assert_cmpstr (fixture->events->str, ==, expected);
}

static void
assert_hears (ScriptedPeer *peer, const char *expected)
{
  g_autofree char *line = scripted_peer_hear (peer);

  g_assert_cmpstr (line, ==, expected);
}

static void
agree (Fixture *fixture, const char *status, gboolean running)
{
  g_autofree char *answer
      = g_strdup_printf ("{\"return\": {\"status\": \"%s\", \"running\": %s}, \"id\": 2}", status,
                         running ? "true" : "false");

  assert_hears (fixture->qmp, "{\"execute\":\"qmp_capabilities\",\"id\":1}");
  scripted_peer_say (fixture->qmp, "{\"return\": {}, \"id\": 1}");
  assert_hears (fixture->qmp, "{\"execute\":\"query-status\",\"id\":2}");
  scripted_peer_say (fixture->qmp, answer);
}

/* From a boot to its end, with a daemon that comes and goes. */
static void
test_run (Fixture *fixture, gconstpointer data)
{
  read_from (fixture, 0);
  agree (fixture, "prelaunch", FALSE);
  scripted_peer_say (fixture->qmp, "{\"event\": \"RESUME\"}");
  assert_events (fixture, "1 resume {}\n");
  let_go (fixture);
  scripted_peer_say (fixture->qmp, "{\"event\": \"RESET\", \"data\": {\"guest\": true}}");
  scripted_peer_say (fixture->qmp, "{\"event\": \"BLOCK_IO_ERROR\", \"data\": "
                                   "{\"action\": \"stop\", \"nospace\": true}}");
  scripted_peer_say (fixture->qmp, "{\"event\": \"STOP\"}");
  read_from (fixture, 1);
  assert_events (fixture, "2 reset {}\n3 stop {\"reason\":\"nospace\"}\n");
  scripted_peer_say (fixture->qmp, "{\"event\": \"SHUTDOWN\", \"data\": "
                                   "{\"guest\": true, \"reason\": \"guest-reset\"}}");
  end_qemu (fixture);
  assert_events (fixture, "2 reset {}\n3 stop {\"reason\":\"nospace\"}\n"
                          "4 shutdown {\"guest\":true,\"reason\":\"guest-reset\"}\n5 exit {}\n");
  /* It waits for a daemon that has not heard of the end. */
  let_go (fixture);
  read_from (fixture, 4);
  assert_events (fixture, "5 exit {}\n");
}

/* Killed at any time: what it told is there, and what it missed is made up for. */
static void
test_killed (Fixture *fixture, gconstpointer data)
{
  read_from (fixture, 0);
  agree (fixture, "running", TRUE);
  scripted_peer_say (fixture->qmp, "{\"event\": \"RESET\"}");
  assert_events (fixture, "1 reset {}\n");
  let_go (fixture);
  end_monitor (fixture, SIGKILL);
  start_monitor (fixture);
  agree (fixture, "paused", FALSE);
  read_from (fixture, 0);
  assert_events (fixture, "1 reset {}\n2 stop {\"reason\":\"stopped\"}\n");
  let_go (fixture);
  /* QEMU ends while no monitor is there. */
  end_monitor (fixture, SIGKILL);
  end_qemu (fixture);
  start_monitor (fixture);
  read_from (fixture, 1);
  assert_events (fixture, "2 stop {\"reason\":\"stopped\"}\n3 exit {}\n");
}

/* Another run of the VM: its numbers go on, and what was before is over. */
static void
test_next_run (Fixture *fixture, gconstpointer data)
{
  read_from (fixture, 0);
  agree (fixture, "running", TRUE);
  scripted_peer_say (fixture->qmp, "{\"event\": \"RESET\"}");
  assert_events (fixture, "1 reset {}\n");
  let_go (fixture);
  end_monitor (fixture, SIGTERM);
  end_qemu (fixture);
  start_qemu (fixture);
  start_monitor (fixture);
  agree (fixture, "prelaunch", FALSE);
  read_from (fixture, 0);
  scripted_peer_say (fixture->qmp, "{\"event\": \"RESUME\"}");
  assert_events (fixture, "2 resume {}\n");
}

/* A daemon that knows more than the journal, which somebody removed. */
static void
test_lost_journal (Fixture *fixture, gconstpointer data)
{
  agree (fixture, "running", TRUE);
  read_from (fixture, 41);
  /* It has been asked when it answers another one. */
  let_go (fixture);
  read_from (fixture, 41);
  test_drain ();
  scripted_peer_say (fixture->qmp, "{\"event\": \"RESET\"}");
  test_await_condition (is_as_long, &(Length){ fixture->events, 1 });
  g_assert_true (g_str_has_suffix (fixture->events->str, "42 reset {}\n"));
}

/* QEMU drops the connection and takes it again: the VM goes on. */
static void
test_reconnects (Fixture *fixture, gconstpointer data)
{
  read_from (fixture, 0);
  agree (fixture, "running", TRUE);
  scripted_peer_hang_up (fixture->qmp);
  agree (fixture, "running", TRUE);
  scripted_peer_say (fixture->qmp, "{\"event\": \"RESET\"}");
  assert_events (fixture, "1 reset {}\n");
}

/* A second one in the same folder is not told about the VM; the one that was there leaves when its
 * socket is taken away, which is what a daemon does first that starts another. */
static void
test_takes_over (Fixture *fixture, gconstpointer data)
{
  g_autofree char *socket = in_directory (fixture, "monitor.sock");
  g_autoptr (GSubprocess) first = NULL;
  g_autoptr (GAsyncResult) result = NULL;
  TestAwait await = TEST_AWAIT_INIT;

  read_from (fixture, 0);
  agree (fixture, "running", TRUE);
  let_go (fixture);
  first = g_steal_pointer (&fixture->monitor);
  g_assert_cmpint (g_unlink (socket), ==, 0);
  start_monitor (fixture);
  g_subprocess_wait_async (first, NULL, test_await_cb, &await);
  result = test_await (&await);
  g_assert_true (g_subprocess_wait_finish (first, result, NULL));
  g_assert_true (g_subprocess_get_successful (first));
  agree (fixture, "running", TRUE);
  read_from (fixture, 0);
  scripted_peer_say (fixture->qmp, "{\"event\": \"RESET\"}");
  assert_events (fixture, "1 reset {}\n");
}

int
main (int argc, char **argv)
{
  g_test_init (&argc, &argv, G_TEST_OPTION_ISOLATE_DIRS, NULL);
#define ADD(name, function)                                                                        \
  g_test_add ("/witness-monitor/" name, Fixture, NULL, set_up, function, tear_down)
  ADD ("run", test_run);
  ADD ("killed", test_killed);
  ADD ("next-run", test_next_run);
  ADD ("lost-journal", test_lost_journal);
  ADD ("reconnects", test_reconnects);
  ADD ("takes-over", test_takes_over);
  return g_test_run ();
}

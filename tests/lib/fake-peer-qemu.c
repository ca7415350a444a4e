/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The fake QEMU: its QMP sockets, and what becomes of the guest after "cont". */
#include <json-glib/json-glib.h>
#include <signal.h>
#include <string.h>

#include "fake-peers-private.h"

static void
send_negotiated (TestClient *client, gconstpointer data)
{
  if (client->negotiated)
    test_lines_send (client->lines, data);
}

static void
qemu_event (TestPeer *peer, const char *name, const char *data)
{
  gint64 now = g_get_real_time ();
  g_autofree char *text
    = g_strdup_printf ("{\"timestamp\": {\"seconds\": %" G_GINT64_FORMAT ", \"microseconds\": %"
                       G_GINT64_FORMAT "}, \"event\": \"%s\"%s%s}",
                       now / G_USEC_PER_SEC, now % G_USEC_PER_SEC, name,
                       data != NULL ? ", \"data\": " : "", data != NULL ? data : "");

  test_peer_foreach_client (peer, send_negotiated, text);
}

static void
qemu_shut_down (TestPeer *peer, gboolean guest, const char *reason)
{
  g_autofree char *data = g_strdup_printf ("{\"guest\": %s, \"reason\": \"%s\"}",
                                           guest ? "true" : "false", reason);

  qemu_event (peer, "SHUTDOWN", data);
  test_vm_journal (peer->vm, "shutdown", data);
  test_peer_exit (peer, 0, 0);
}

static gboolean
installer_ended_cb (gpointer user_data)
{
  TestPeer *peer = user_data;

  peer->timer = 0;
  if (test_peer_behaviour.installer_exit != 0)
    test_peer_exit (peer, test_peer_behaviour.installer_exit, 0);
  else
    qemu_shut_down (peer, TRUE, test_peer_behaviour.installer_reason);
  return G_SOURCE_REMOVE;
}

static gboolean
ready_cb (gpointer user_data)
{
  TestPeer *peer = user_data;

  peer->timer = 0;
  test_vm_journal (peer->vm, "status", "{\"text\": \"Startup finished\"}");
  test_vm_journal (peer->vm, "ready", NULL);
  return G_SOURCE_REMOVE;
}

static gboolean
powered_down_cb (gpointer user_data)
{
  TestPeer *peer = user_data;

  peer->timer = 0;
  qemu_shut_down (peer, TRUE, "guest-shutdown");
  return G_SOURCE_REMOVE;
}

static void
set_timer (TestPeer *peer, guint ms, GSourceFunc function)
{
  g_clear_handle_id (&peer->timer, g_source_remove);
  if (ms != TEST_PEER_NEVER && !peer->exiting)
    peer->timer = g_timeout_add (ms, function, peer);
}

static void
guest_boots (TestPeer *peer)
{
  if (peer->install)
    set_timer (peer, test_peer_behaviour.installer_ms, installer_ended_cb);
  else
    set_timer (peer, test_peer_behaviour.ready_ms, ready_cb);
}

static void
qemu_continue (TestPeer *peer)
{
  gboolean first = !peer->started;

  if (peer->running)
    return;
  peer->started = TRUE;
  peer->running = TRUE;
  qemu_event (peer, "RESUME", NULL);
  if (first)
    guest_boots (peer);
  else
    test_vm_journal (peer->vm, "resume", NULL);
}

static void
qemu_stop (TestPeer *peer, const char *reason)
{
  g_autofree char *data = g_strdup_printf ("{\"reason\": \"%s\"}", reason);

  if (!peer->running)
    return;
  peer->running = FALSE;
  qemu_event (peer, "STOP", NULL);
  test_vm_journal (peer->vm, "stop", data);
}

static void
qemu_reset (TestPeer *peer)
{
  qemu_event (peer, "RESET", "{\"guest\": true, \"reason\": \"guest-reset\"}");
  test_vm_journal (peer->vm, "reset", NULL);
  guest_boots (peer);
}

static void
qemu_power_down (TestPeer *peer)
{
  peer->vm->n_powerdowns++;
  qemu_event (peer, "POWERDOWN", NULL);
  if (!test_peer_behaviour.ignore_powerdown)
    set_timer (peer, test_peer_behaviour.powerdown_ms, powered_down_cb);
}

static char *
qemu_answer (TestPeer *peer, TestClient *client, const char *command)
{
  if (g_str_equal (command, "qmp_capabilities"))
    {
      client->negotiated = TRUE;
      return g_strdup ("\"return\": {}");
    }
  if (!client->negotiated)
    return g_strdup ("\"error\": {\"class\": \"CommandNotFound\", \"desc\": \"Expecting "
                     "capabilities negotiation with 'qmp_capabilities'\"}");
  if (g_str_equal (command, "query-status"))
    return g_strdup_printf ("\"return\": {\"status\": \"%s\", \"running\": %s}",
                            peer->running    ? "running"
                            : peer->started ? "paused"
                                            : "prelaunch",
                            peer->running ? "true" : "false");
  if (g_strv_contains ((const char *const[]){ "cont", "stop", "system_powerdown", "system_reset",
                                              "quit", NULL },
                       command))
    return g_strdup ("\"return\": {}");
  return g_strdup_printf ("\"error\": {\"class\": \"CommandNotFound\", \"desc\": \"The command %s "
                          "has not been found\"}",
                          command);
}

/* What a command does, after its answer was sent. */
static void
qemu_act (TestPeer *peer, const char *command)
{
  if (g_str_equal (command, "cont"))
    qemu_continue (peer);
  else if (g_str_equal (command, "stop"))
    qemu_stop (peer, "host");
  else if (g_str_equal (command, "system_powerdown"))
    qemu_power_down (peer);
  else if (g_str_equal (command, "system_reset"))
    qemu_reset (peer);
  else if (g_str_equal (command, "quit") && !test_peer_behaviour.ignore_quit)
    qemu_shut_down (peer, FALSE, "host-qmp-quit");
}

void
test_qemu_line (TestPeer *peer, TestClient *client, const char *line)
{
  g_autoptr (JsonNode) node = json_from_string (line, NULL);
  JsonObject *object = node != NULL && JSON_NODE_HOLDS_OBJECT (node) ? json_node_get_object (node)
                                                                      : NULL;
  const char *command
    = object != NULL ? json_object_get_string_member_with_default (object, "execute", "") : "";
  gboolean negotiated = client->negotiated;
  g_autofree char *answer = qemu_answer (peer, client, command);
  g_autofree char *text = NULL;

  if (test_peer_behaviour.qmp_silent)
    return;
  if (object != NULL && json_object_has_member (object, "id"))
    text = g_strdup_printf ("{%s, \"id\": %" G_GINT64_FORMAT "}", answer,
                            json_object_get_int_member (object, "id"));
  else
    text = g_strdup_printf ("{%s}", answer);
  test_lines_send (client->lines, text);
  if (negotiated)
    qemu_act (peer, command);
}

/* The path in "unix:PATH,server=on,wait=off", commas doubled. */
static char *
parse_qmp_path (const char *argument)
{
  GString *path = g_string_new (NULL);

  g_assert_true (g_str_has_prefix (argument, "unix:"));
  for (const char *c = argument + strlen ("unix:"); *c != '\0'; c++)
    {
      if (*c == ',' && c[1] != ',')
        break;
      c += *c == ',';
      g_string_append_c (path, *c);
    }
  return g_string_free (path, FALSE);
}

gboolean
test_qemu_listen (TestPeer *peer, const char *const *argv)
{
  peer->install = g_strv_contains (argv, "-no-reboot");
  for (guint i = 0; argv[i] != NULL; i++)
    if (g_str_equal (argv[i], "-qmp") && argv[i + 1] != NULL)
      {
        g_autofree char *path = parse_qmp_path (argv[i + 1]);

        if (!test_peer_add_listener (peer, path))
          return FALSE;
      }
  return peer->listeners->len > 0;
}

void
test_qemu_greet (TestClient *client)
{
  if (test_peer_behaviour.qmp_garbage)
    test_lines_send (client->lines, "220 ready");
  else if (!test_peer_behaviour.qmp_silent)
    test_lines_send (client->lines,
                     "{\"QMP\": {\"version\": {\"qemu\": {\"micro\": 0, \"minor\": 2, "
                     "\"major\": 7}, \"package\": \"\"}, \"capabilities\": [\"oob\"]}}");
}

void
test_qemu_emit (TestPeer *peer, const char *what)
{
  if (g_str_equal (what, "reset"))
    qemu_reset (peer);
  else if (g_str_equal (what, "stop"))
    qemu_stop (peer, "io-error");
  else if (g_str_equal (what, "resume"))
    qemu_continue (peer);
  else if (g_str_equal (what, "shutdown"))
    qemu_shut_down (peer, TRUE, "guest-shutdown");
  else if (g_str_equal (what, "term"))
    qemu_shut_down (peer, FALSE, "host-signal");
  else if (g_str_equal (what, "crash"))
    test_peer_exit (peer, 0, SIGSEGV);
  else
    g_assert_not_reached ();
}

/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Dialling a program that was just started: it answers late, never, with nonsense, or it exits. */
#include <string.h>

#include "fake-backends.h"
#include "interfaces/vmm-error.h"
#include "scripted-peer.h"
#include "test-await.h"
#include "vmm-child-socket.h"

typedef struct
{
  char *directory;
  char *path;
  char *log;
  VmmLauncher *launcher;
  VmmProcess *process;
} Fixture;

/* The handshake: any byte is an answer, a full stop says that it is useless. */
static gboolean
answered_cb (GSocket *socket, GIOCondition condition, gpointer user_data)
{
  g_autoptr (GTask) task = g_object_ref (user_data);
  GCancellable *cancellable = g_task_get_task_data (task);
  g_autoptr (GError) error = NULL;
  char buffer[16];
  gssize size = -1;

  if (!g_cancellable_set_error_if_cancelled (cancellable, &error))
    size = g_socket_receive_with_blocking (socket, buffer, sizeof buffer, FALSE, NULL, &error);
  if (size > 0 && buffer[0] != '.')
    g_task_return_pointer (task, g_object_ref (socket), g_object_unref);
  else if (size > 0)
    g_task_return_error (task, vmm_error_new (VMM_ERROR_UNSUPPORTED, "it said no"));
  else if (size == 0)
    g_task_return_new_error (task, G_IO_ERROR, G_IO_ERROR_CLOSED, "it hung up");
  else
    g_task_return_error (task, g_steal_pointer (&error));
  return G_SOURCE_REMOVE;
}

static void
ask (GSocket *socket, GCancellable *cancellable, GAsyncReadyCallback callback, gpointer user_data)
{
  GTask *task = g_task_new (NULL, NULL, callback, user_data);
  g_autoptr (GSource) source = g_socket_create_source (socket, G_IO_IN, cancellable);

  g_task_set_task_data (task, g_object_ref (cancellable), g_object_unref);
  g_source_set_callback (source, G_SOURCE_FUNC (answered_cb), task, g_object_unref);
  g_source_attach (source, NULL);
}

static GObject *
ask_finish (GAsyncResult *result, GError **error)
{
  return g_task_propagate_pointer (G_TASK (result), error);
}

static void
set_up (Fixture *fixture, gconstpointer data)
{
  const char *const argv[] = { "program", NULL };
  g_autoptr (VmmProcessSpec) spec = vmm_process_spec_new ("1-program", argv);
  g_autoptr (GAsyncResult) result = NULL;
  TestAwait await = TEST_AWAIT_INIT;

  test_fakes_reset ();
  fixture->directory = test_make_directory ();
  fixture->path = g_build_filename (fixture->directory, "s", NULL);
  fixture->log = g_build_filename (fixture->directory, "log", NULL);
  fixture->launcher = g_object_new (TEST_TYPE_FAKE_LAUNCHER, NULL);
  vmm_process_spec_set_owner (spec, "1", "program");
  vmm_launcher_start_async (fixture->launcher, spec, NULL, test_await_cb, &await);
  result = test_await (&await);
  fixture->process = vmm_launcher_start_finish (fixture->launcher, result, NULL);
  g_assert_nonnull (fixture->process);
}

static void
tear_down (Fixture *fixture, gconstpointer data)
{
  g_object_unref (fixture->process);
  g_object_unref (fixture->launcher);
  test_fakes_reset ();
  test_remove_directory (fixture->directory);
  g_free (fixture->path);
  g_free (fixture->log);
}

static void
dial_start (Fixture *fixture, guint attempt_ms, guint limit_ms, GCancellable *cancellable,
            TestAwait *await)
{
  const VmmChildSocket config = {
    .socket_path = fixture->path,
    .process = fixture->process,
    .log_path = fixture->log,
    .exited_text = "it exited",
    .limit_format = "nothing at %s (%s): %s",
    .attempt_ms = attempt_ms,
    .limit_ms = limit_ms,
    .start = ask,
    .finish = ask_finish,
  };

  vmm_child_socket_dial_async (&config, cancellable, test_await_cb, await);
}

static GObject *
dial_end (TestAwait *await, GError **error)
{
  g_autoptr (GAsyncResult) result = test_await (await);

  return vmm_child_socket_dial_finish (result, error);
}

static void
test_answers (Fixture *fixture, gconstpointer data)
{
  g_autoptr (ScriptedPeer) peer = scripted_peer_new (fixture->path, "yes");
  TestAwait await = TEST_AWAIT_INIT;
  g_autoptr (GError) error = NULL;
  g_autoptr (GObject) answer = NULL;

  dial_start (fixture, 20000, 20000, NULL, &await);
  answer = dial_end (&await, &error);
  g_assert_no_error (error);
  g_assert_true (G_IS_SOCKET (answer));
  g_assert_cmpuint (scripted_peer_get_n_clients (peer), ==, 1);
}

static gboolean
make_peer_cb (gpointer user_data)
{
  ScriptedPeer **peer = user_data;
  g_autofree char *path = (char *) *peer;

  *peer = scripted_peer_new (path, "yes");
  return G_SOURCE_REMOVE;
}

/* There is no socket, then a file that nobody serves, then the program is there. */
static void
test_comes_late (Fixture *fixture, gconstpointer data)
{
  ScriptedPeer *peer = (ScriptedPeer *) g_strdup (fixture->path);
  TestAwait await = TEST_AWAIT_INIT;
  g_autoptr (GError) error = NULL;
  g_autoptr (GObject) answer = NULL;

  scripted_peer_free (scripted_peer_new (fixture->path, NULL));
  g_assert_true (g_file_set_contents (fixture->path, "", 0, NULL));
  g_timeout_add (70, make_peer_cb, &peer);
  dial_start (fixture, 20000, 20000, NULL, &await);
  answer = dial_end (&await, &error);
  g_assert_no_error (error);
  g_assert_nonnull (answer);
  scripted_peer_free (peer);
}

static gboolean
has_two_clients (gpointer user_data)
{
  return scripted_peer_get_n_clients (user_data) >= 2;
}

/* An attempt that hangs is given up for another one. */
static void
test_attempt_limit (Fixture *fixture, gconstpointer data)
{
  g_autoptr (ScriptedPeer) peer = scripted_peer_new (fixture->path, NULL);
  TestAwait await = TEST_AWAIT_INIT;
  g_autoptr (GError) error = NULL;
  g_autoptr (GObject) answer = NULL;

  dial_start (fixture, 30, 20000, NULL, &await);
  test_await_condition (has_two_clients, peer);
  g_assert_null (await.result);
  scripted_peer_set_greeting (peer, "yes");
  answer = dial_end (&await, &error);
  g_assert_no_error (error);
  g_assert_nonnull (answer);
}

static gboolean
has_client (gpointer user_data)
{
  return scripted_peer_has_client (user_data);
}

static void
test_hangs_up (Fixture *fixture, gconstpointer data)
{
  g_autoptr (ScriptedPeer) peer = scripted_peer_new (fixture->path, NULL);
  TestAwait await = TEST_AWAIT_INIT;
  g_autoptr (GError) error = NULL;
  g_autoptr (GObject) answer = NULL;

  dial_start (fixture, 20000, 20000, NULL, &await);
  test_await_condition (has_client, peer);
  scripted_peer_hang_up (peer);
  scripted_peer_set_greeting (peer, "yes");
  answer = dial_end (&await, &error);
  g_assert_no_error (error);
  g_assert_nonnull (answer);
}

static void
test_limit (Fixture *fixture, gconstpointer data)
{
  g_autoptr (ScriptedPeer) peer = scripted_peer_new (fixture->path, NULL);
  g_autofree char *message = g_strdup_printf ("nothing at %s (no answer): last words", fixture->path);
  TestAwait await = TEST_AWAIT_INIT;
  g_autoptr (GError) error = NULL;

  g_assert_nonnull (peer);
  g_assert_true (g_file_set_contents (fixture->log, "\n\n last words \n", -1, NULL));
  dial_start (fixture, 20000, 60, NULL, &await);
  g_assert_null (dial_end (&await, &error));
  g_assert_error (error, VMM_ERROR, VMM_ERROR_INTERNAL);
  g_assert_cmpstr (error->message, ==, message);
  g_assert_false (vmm_process_has_exited (fixture->process));
}

static void
test_limit_nobody (Fixture *fixture, gconstpointer data)
{
  TestAwait await = TEST_AWAIT_INIT;
  g_autoptr (GError) error = NULL;

  dial_start (fixture, 20000, 60, NULL, &await);
  g_assert_null (dial_end (&await, &error));
  g_assert_error (error, VMM_ERROR, VMM_ERROR_INTERNAL);
  g_assert_true (g_str_has_prefix (error->message, "nothing at /tmp/"));
  g_assert_nonnull (strstr (error->message, "No such file"));
  g_assert_true (g_str_has_suffix (error->message, "): no output"));
}

static void
test_exits (Fixture *fixture, gconstpointer data)
{
  g_autoptr (ScriptedPeer) peer = scripted_peer_new (fixture->path, NULL);
  TestAwait await = TEST_AWAIT_INIT;
  g_autoptr (GError) error = NULL;

  g_assert_true (g_file_set_contents (fixture->log, "bad\033[1m \xff option\nsecond line\n", -1, NULL));
  dial_start (fixture, 20000, 20000, NULL, &await);
  test_await_condition (has_client, peer);
  test_fakes_exit ("1", "program", 3, 0);
  g_assert_null (dial_end (&await, &error));
  g_assert_error (error, VMM_ERROR, VMM_ERROR_INTERNAL);
  g_assert_cmpstr (error->message, ==,
                   "it exited (exit status 3): bad?[1m \xef\xbf\xbd option\nsecond line");
}

static gboolean
has_exited (gpointer user_data)
{
  return vmm_process_has_exited (user_data);
}

static void
test_has_exited (Fixture *fixture, gconstpointer data)
{
  TestAwait await = TEST_AWAIT_INIT;
  g_autoptr (GError) error = NULL;

  test_fakes_exit ("1", "program", 0, 11);
  test_await_condition (has_exited, fixture->process);
  dial_start (fixture, 20000, 20000, NULL, &await);
  g_assert_null (dial_end (&await, &error));
  g_assert_error (error, VMM_ERROR, VMM_ERROR_INTERNAL);
  g_assert_cmpstr (error->message, ==, "it exited (signal: segmentation fault): no output");
}

static void
test_refuses (Fixture *fixture, gconstpointer data)
{
  g_autoptr (ScriptedPeer) peer = scripted_peer_new (fixture->path, ".");
  TestAwait await = TEST_AWAIT_INIT;
  g_autoptr (GError) error = NULL;

  dial_start (fixture, 20000, 20000, NULL, &await);
  g_assert_null (dial_end (&await, &error));
  g_assert_error (error, VMM_ERROR, VMM_ERROR_UNSUPPORTED);
  g_assert_cmpuint (scripted_peer_get_n_clients (peer), ==, 1);
}

static void
test_cancelled (Fixture *fixture, gconstpointer data)
{
  g_autoptr (ScriptedPeer) peer = scripted_peer_new (fixture->path, NULL);
  g_autoptr (GCancellable) cancellable = g_cancellable_new ();
  TestAwait await = TEST_AWAIT_INIT;
  g_autoptr (GError) error = NULL;

  dial_start (fixture, 20000, 20000, cancellable, &await);
  test_await_condition (has_client, peer);
  g_cancellable_cancel (cancellable);
  g_assert_null (dial_end (&await, &error));
  g_assert_error (error, G_IO_ERROR, G_IO_ERROR_CANCELLED);
  g_assert_false (vmm_process_has_exited (fixture->process));
}

static void
test_cancelled_before (Fixture *fixture, gconstpointer data)
{
  g_autoptr (GCancellable) cancellable = g_cancellable_new ();
  TestAwait await = TEST_AWAIT_INIT;
  g_autoptr (GError) error = NULL;

  g_cancellable_cancel (cancellable);
  dial_start (fixture, 20000, 20000, cancellable, &await);
  g_assert_null (dial_end (&await, &error));
  g_assert_error (error, G_IO_ERROR, G_IO_ERROR_CANCELLED);
}

static void
test_long_path (Fixture *fixture, gconstpointer data)
{
  g_autofree char *name = g_strnfill (120, 'a');
  TestAwait await = TEST_AWAIT_INIT;
  g_autoptr (GError) error = NULL;

  g_free (fixture->path);
  fixture->path = g_build_filename (fixture->directory, name, NULL);
  dial_start (fixture, 20000, 20000, NULL, &await);
  g_assert_null (dial_end (&await, &error));
  g_assert_error (error, VMM_ERROR, VMM_ERROR_INVALID_REQUEST);
}

int
main (int argc, char **argv)
{
  g_test_init (&argc, &argv, G_TEST_OPTION_ISOLATE_DIRS, NULL);
#define ADD(name, function)                                                                        \
  g_test_add ("/child-socket/" name, Fixture, NULL, set_up, function, tear_down)
  ADD ("answers", test_answers);
  ADD ("comes-late", test_comes_late);
  ADD ("attempt-limit", test_attempt_limit);
  ADD ("hangs-up", test_hangs_up);
  ADD ("limit", test_limit);
  ADD ("limit-nobody", test_limit_nobody);
  ADD ("exits", test_exits);
  ADD ("has-exited", test_has_exited);
  ADD ("refuses", test_refuses);
  ADD ("cancelled", test_cancelled);
  ADD ("cancelled-before", test_cancelled_before);
  ADD ("long-path", test_long_path);
  return g_test_run ();
}

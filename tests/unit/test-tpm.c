/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Starting swtpm: its command line, its folder, the probe, and each way it can go wrong. */
#include <glib/gstdio.h>
#include <string.h>

#include "fake-backends.h"
#include "fake-peers.h"
#include "interfaces/vmm-error.h"
#include "scripted-peer.h"
#include "test-await.h"
#include "vmm-child-start.h"
#include "vmm-tpm.h"

#define VM "1a2b3c4d"

typedef struct
{
  char *parent;
  char *directory; /* does not exist yet */
  VmmLauncher *launcher;
} Fixture;

static void
set_up (Fixture *fixture, gconstpointer data)
{
  const char *name = data;

  test_fakes_reset ();
  test_fakes.peers = TRUE;
  fixture->parent = test_make_directory ();
  fixture->directory = g_build_filename (fixture->parent, name != NULL ? name : "tpm", NULL);
  fixture->launcher = g_object_new (TEST_TYPE_FAKE_LAUNCHER, NULL);
}

static void
tear_down (Fixture *fixture, gconstpointer data)
{
  g_object_unref (fixture->launcher);
  test_fakes_reset ();
  test_peer_forget ();
  test_remove_directory (fixture->parent);
  g_free (fixture->directory);
}

static void
start (Fixture *fixture, GCancellable *cancellable, TestAwait *await)
{
  vmm_tpm_start_async (fixture->launcher, VM, fixture->directory, cancellable, test_await_cb,
                       await);
}

static VmmProcess *
end (TestAwait *await, GError **error)
{
  g_autoptr (GAsyncResult) result = test_await (await);

  return vmm_tpm_start_finish (result, error);
}

static char *
path_of (Fixture *fixture, const char *name)
{
  return g_build_filename (fixture->directory, name, NULL);
}

static void
test_process_id (void)
{
  g_autofree char *id = vmm_process_id_for_vm (VM, "qemu");

  g_assert_cmpstr (id, ==, VM "-qemu");
}

static void
test_starts (Fixture *fixture, gconstpointer data)
{
  g_autofree char *state = g_strconcat ("dir=", fixture->directory, NULL);
  g_autofree char *control
    = g_strconcat ("type=unixio,path=", fixture->directory, "/swtpm.sock", NULL);
  const char *const argv[] = { "swtpm", "socket",  "--tpm2",      "--tpmstate", state,     "--ctrl",
                               control, "--terminate", "--log", "level=2",   NULL };
  g_autofree char *log = path_of (fixture, "swtpm.log");
  g_autoptr (VmmProcess) process = NULL;
  g_autoptr (GError) error = NULL;
  TestAwait await = TEST_AWAIT_INIT;
  VmmProcessSpec *spec;
  GStatBuf folder;

  start (fixture, NULL, &await);
  process = end (&await, &error);
  g_assert_no_error (error);
  g_assert_false (vmm_process_has_exited (process));
  g_assert_cmpint (g_stat (fixture->directory, &folder), ==, 0);
  g_assert_cmpint (folder.st_mode & 0777, ==, 0700);
  spec = test_fakes_get_spec (VM, "tpm");
  g_assert_true (g_strv_equal (vmm_process_spec_get_argv (spec), argv));
  g_assert_cmpstr (vmm_process_spec_get_id (spec), ==, VM "-tpm");
  g_assert_cmpstr (vmm_process_spec_get_log (spec), ==, log);
  g_assert_cmpstr (vmm_process_spec_get_writable_paths (spec)[0], ==, fixture->directory);
}

/* swtpm cannot quote a comma. */
static void
test_comma (Fixture *fixture, gconstpointer data)
{
  g_autoptr (VmmProcess) process = NULL;
  g_autoptr (GError) error = NULL;
  TestAwait await = TEST_AWAIT_INIT;
  VmmProcessSpec *spec;

  start (fixture, NULL, &await);
  process = end (&await, &error);
  g_assert_no_error (error);
  spec = test_fakes_get_spec (VM, "tpm");
  g_assert_cmpstr (vmm_process_spec_get_directory (spec), ==, fixture->directory);
  for (guint i = 0; vmm_process_spec_get_argv (spec)[i] != NULL; i++)
    g_assert_null (strstr (vmm_process_spec_get_argv (spec)[i], fixture->directory));
}

static void
test_leftovers (Fixture *fixture, gconstpointer data)
{
  g_autofree char *socket = path_of (fixture, "swtpm.sock");
  g_autofree char *log = path_of (fixture, "swtpm.log");
  g_autofree char *previous = path_of (fixture, "swtpm.prev.log");
  g_autofree char *text = NULL;
  g_autoptr (VmmProcess) process = NULL;
  g_autoptr (GError) error = NULL;
  TestAwait await = TEST_AWAIT_INIT;

  g_assert_cmpint (g_mkdir (fixture->directory, 0700), ==, 0);
  scripted_peer_free (scripted_peer_new (socket, NULL));
  g_assert_true (g_file_set_contents (socket, "stale", -1, NULL));
  g_assert_true (g_file_set_contents (previous, "the one before", -1, NULL));
  g_assert_true (g_file_set_contents (log, "installer", -1, NULL));
  start (fixture, NULL, &await);
  process = end (&await, &error);
  g_assert_no_error (error);
  g_assert_true (g_file_get_contents (previous, &text, NULL, NULL));
  g_assert_cmpstr (text, ==, "installer");
  g_assert_false (g_file_test (log, G_FILE_TEST_EXISTS));
}

static void
test_log_cannot_rotate (Fixture *fixture, gconstpointer data)
{
  g_autofree char *log = path_of (fixture, "swtpm.log");
  g_autofree char *previous = path_of (fixture, "swtpm.prev.log");
  g_autoptr (GError) error = NULL;
  TestAwait await = TEST_AWAIT_INIT;

  g_assert_cmpint (g_mkdir (fixture->directory, 0700), ==, 0);
  g_assert_cmpint (g_mkdir (previous, 0700), ==, 0);
  g_assert_true (g_file_set_contents (log, "x", -1, NULL));
  start (fixture, NULL, &await);
  g_assert_null (end (&await, &error));
  g_assert_error (error, VMM_ERROR, VMM_ERROR_INTERNAL);
  g_assert_true (g_str_has_prefix (error->message, "rotate swtpm log: "));
  g_assert_cmpuint (test_fakes_get_n_running (), ==, 0);
}

static void
test_no_folder (Fixture *fixture, gconstpointer data)
{
  g_autoptr (GError) error = NULL;
  TestAwait await = TEST_AWAIT_INIT;

  g_assert_true (g_file_set_contents (fixture->directory, "in the way", -1, NULL));
  start (fixture, NULL, &await);
  g_assert_null (end (&await, &error));
  g_assert_nonnull (error);
  g_assert_cmpuint (test_fakes_get_n_running (), ==, 0);
}

static void
test_long_path (Fixture *fixture, gconstpointer data)
{
  g_autoptr (GError) error = NULL;
  TestAwait await = TEST_AWAIT_INIT;

  start (fixture, NULL, &await);
  g_assert_null (end (&await, &error));
  g_assert_error (error, VMM_ERROR, VMM_ERROR_INVALID_REQUEST);
  g_assert_cmpstr (error->message, ==,
                   "invalid request: TPM socket path exceeds 107 bytes; use a shorter state dir");
}

static void
test_launcher_fails (Fixture *fixture, gconstpointer data)
{
  g_autoptr (GError) error = NULL;
  TestAwait await = TEST_AWAIT_INIT;

  test_fakes_fail ("launcher.start:tpm", VMM_ERROR_UNSUPPORTED, "no swtpm here");
  start (fixture, NULL, &await);
  g_assert_null (end (&await, &error));
  g_assert_error (error, VMM_ERROR, VMM_ERROR_UNSUPPORTED);
}

static void
test_exits (Fixture *fixture, gconstpointer data)
{
  g_autoptr (GError) error = NULL;
  TestAwait await = TEST_AWAIT_INIT;

  test_peer_behaviour.tpm_exit = 78;
  start (fixture, NULL, &await);
  g_assert_null (end (&await, &error));
  g_assert_error (error, VMM_ERROR, VMM_ERROR_INTERNAL);
  g_assert_cmpstr (error->message, ==,
                   "swtpm exited before its control socket answered (exit status 78): no output");
}

/* It accepts, it is asked, it says nothing: five seconds later it is stopped. */
static void
test_silent (Fixture *fixture, gconstpointer data)
{
  g_autofree char *prefix = g_strdup_printf ("vtpm not responding: swtpm control socket "
                                             "%s/swtpm.sock did not answer within 5s (no answer",
                                             fixture->directory);
  g_autoptr (GError) error = NULL;
  TestAwait await = TEST_AWAIT_INIT;

  test_peer_behaviour.tpm_silent = TRUE;
  start (fixture, NULL, &await);
  g_assert_null (end (&await, &error));
  g_assert_error (error, VMM_ERROR, VMM_ERROR_INTERNAL);
  g_assert_true (g_str_has_prefix (error->message, prefix));
  g_assert_true (g_str_has_suffix (error->message, "): no output"));
  g_assert_false (test_fakes_is_running (VM, "tpm"));
}

static gboolean
is_running (gpointer user_data)
{
  return test_peer_is_running (VM, "tpm");
}

static void
test_cancelled (Fixture *fixture, gconstpointer data)
{
  g_autoptr (GCancellable) cancellable = g_cancellable_new ();
  g_autoptr (GError) error = NULL;
  TestAwait await = TEST_AWAIT_INIT;

  test_peer_behaviour.tpm_silent = TRUE;
  start (fixture, cancellable, &await);
  test_await_condition (is_running, NULL);
  test_drain ();
  g_cancellable_cancel (cancellable);
  g_assert_null (end (&await, &error));
  g_assert_error (error, G_IO_ERROR, G_IO_ERROR_CANCELLED);
  g_assert_true (g_str_has_prefix (error->message, "swtpm: "));
  g_assert_false (test_fakes_is_running (VM, "tpm"));
}

/* Fewer than eight bytes are no answer, eight in two pieces are one. */
static void
test_short_answer (Fixture *fixture, gconstpointer data)
{
  g_autofree char *path = path_of (fixture, "swtpm.sock");
  g_autoptr (VmmProcess) process = NULL;
  g_autoptr (GError) error = NULL;
  ScriptedPeer *peer;
  TestAwait await = TEST_AWAIT_INIT;

  test_fakes.peers = FALSE; /* the process runs, and this test serves its socket */
  g_assert_cmpint (g_mkdir (fixture->directory, 0700), ==, 0);
  start (fixture, NULL, &await);
  while (!test_fakes_is_running (VM, "tpm"))
    g_main_context_iteration (NULL, TRUE);
  peer = scripted_peer_new (path, NULL);
  test_await_condition ((TestCondition) scripted_peer_has_client, peer);
  scripted_peer_say_bytes (peer, "\0\0\0\0\0\0\1", 7);
  scripted_peer_hang_up (peer);
  g_assert_null (await.result);
  test_await_condition ((TestCondition) scripted_peer_has_client, peer);
  scripted_peer_say_bytes (peer, "\0\0\0", 3);
  test_drain ();
  g_assert_null (await.result);
  scripted_peer_say_bytes (peer, "\0\0\0\1\2", 5);
  process = end (&await, &error);
  g_assert_no_error (error);
  g_assert_nonnull (process);
  g_assert_cmpuint (scripted_peer_get_n_clients (peer), ==, 2);
  scripted_peer_free (peer);
}

int
main (int argc, char **argv)
{
  static const char long_name[]
    = "a-folder-of-which-the-name-alone-is-almost-as-long-as-the-path-of-a-socket-may-be-0123456789";

  g_test_init (&argc, &argv, G_TEST_OPTION_ISOLATE_DIRS, NULL);
#define ADD(name, data, function)                                                                  \
  g_test_add ("/tpm/" name, Fixture, data, set_up, function, tear_down)
  g_test_add_func ("/tpm/process-id", test_process_id);
  ADD ("starts", NULL, test_starts);
  ADD ("comma", "a,b", test_comma);
  ADD ("leftovers", NULL, test_leftovers);
  ADD ("log-cannot-rotate", NULL, test_log_cannot_rotate);
  ADD ("no-folder", NULL, test_no_folder);
  ADD ("long-path", long_name, test_long_path);
  ADD ("launcher-fails", NULL, test_launcher_fails);
  ADD ("exits", NULL, test_exits);
  ADD ("silent", NULL, test_silent);
  ADD ("cancelled", NULL, test_cancelled);
  ADD ("short-answer", NULL, test_short_answer);
  return g_test_run ();
}

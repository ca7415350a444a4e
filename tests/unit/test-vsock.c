/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Starting the program that is a VM's vsock device, and each way it can go wrong. */
#include <glib/gstdio.h>
#include <string.h>

#include "fake-backends.h"
#include "fake-peers.h"
#include "interfaces/vmm-error.h"
#include "scripted-peer.h"
#include "test-await.h"
#include "vmm-vsock.h"

#define VM "1a2b3c4d"

typedef struct
{
  char *directory;
  VmmLauncher *launcher;
} Fixture;

static void
set_up (Fixture *fixture, gconstpointer data)
{
  test_fakes_reset ();
  test_fakes.peers = TRUE;
  fixture->directory = test_make_directory ();
  fixture->launcher = g_object_new (TEST_TYPE_FAKE_LAUNCHER, NULL);
}

static void
tear_down (Fixture *fixture, gconstpointer data)
{
  g_object_unref (fixture->launcher);
  test_fakes_reset ();
  test_peer_configure (NULL);
  test_peer_forget ();
  test_remove_directory (fixture->directory);
}

static VmmProcess *
start (Fixture *fixture, const char *directory, GCancellable *cancellable, GError **error)
{
  TestAwait await = TEST_AWAIT_INIT;
  g_autoptr (GAsyncResult) result = NULL;

  vmm_vsock_start_async (fixture->launcher, VM, directory, 77, cancellable, test_await_cb, &await);
  result = test_await (&await);
  return vmm_vsock_start_finish (result, error);
}

static char *
path_of (Fixture *fixture, const char *name)
{
  return g_build_filename (fixture->directory, name, NULL);
}

static void
test_starts (Fixture *fixture, gconstpointer data)
{
  g_autofree char *host = path_of (fixture, "vsock.sock");
  g_autofree char *device = path_of (fixture, "vhost.sock");
  g_autofree char *log = path_of (fixture, "vsock.log");
  const char *const argv[] = { "vhost-device-vsock", "--guest-cid", "77",   "--uds-path",
                               host,                 "--socket",    device, NULL };
  g_autoptr (GError) error = NULL;
  g_autoptr (VmmProcess) process = start (fixture, fixture->directory, NULL, &error);
  VmmProcessSpec *spec;

  g_assert_no_error (error);
  /* A stranger's connection would have ended it. */
  test_drain ();
  g_assert_false (vmm_process_has_exited (process));
  spec = test_fakes_get_spec (VM, "vsock");
  g_assert_true (g_strv_equal (vmm_process_spec_get_argv (spec), argv));
  g_assert_cmpstr (vmm_process_spec_get_id (spec), ==, VM "-vsock");
  g_assert_cmpstr (vmm_process_spec_get_log (spec), ==, log);
  g_assert_cmpstr (vmm_process_spec_get_writable_paths (spec)[0], ==, fixture->directory);
  g_assert_null (vmm_process_spec_get_devices (spec)[0]);
}

static void
test_leftovers (Fixture *fixture, gconstpointer data)
{
  static const char *const stale[] = { "vhost.sock", "vsock.sock", "vsock.sock_1048577" };
  g_autofree char *kept = path_of (fixture, "vsock.log");
  g_autoptr (VmmProcess) process = NULL;
  g_autoptr (GError) error = NULL;

  g_assert_true (g_file_set_contents (kept, "before", -1, NULL));
  for (guint i = 0; i < G_N_ELEMENTS (stale); i++)
    {
      g_autofree char *path = path_of (fixture, stale[i]);

      g_assert_true (g_file_set_contents (path, "stale", -1, NULL));
    }
  process = start (fixture, fixture->directory, NULL, &error);
  g_assert_no_error (error);
  for (guint i = 1; i < G_N_ELEMENTS (stale); i++)
    {
      g_autofree char *path = path_of (fixture, stale[i]);

      g_assert_false (g_file_test (path, G_FILE_TEST_EXISTS));
    }
  g_assert_true (g_file_test (kept, G_FILE_TEST_EXISTS));
}

static void
test_exits (Fixture *fixture, gconstpointer data)
{
  g_autoptr (VmmProcess) process = NULL;
  g_autoptr (GError) error = NULL;

  test_peer_configure ("vsock-exit=3");
  process = start (fixture, fixture->directory, NULL, &error);
  g_assert_null (process);
  g_assert_error (error, VMM_ERROR, VMM_ERROR_INTERNAL);
  g_assert_cmpstr (error->message, ==,
                   "vhost-device-vsock exited before its socket was there (exit status 3): no "
                   "output");
}

static void
test_not_there (Fixture *fixture, gconstpointer data)
{
  g_autoptr (VmmProcess) process = NULL;
  g_autoptr (GError) error = NULL;

  test_fakes_fail ("launcher.start:vsock", VMM_ERROR_INTERNAL, "not on PATH");
  process = start (fixture, fixture->directory, NULL, &error);
  g_assert_null (process);
  g_assert_cmpstr (error->message, ==, "not on PATH");
}

/* It makes no socket: the process is stopped before the start says that it was cancelled. */
static void
test_cancelled (Fixture *fixture, gconstpointer data)
{
  g_autoptr (GCancellable) cancellable = g_cancellable_new ();
  TestAwait await = TEST_AWAIT_INIT;
  g_autoptr (GAsyncResult) result = NULL;
  g_autoptr (GError) error = NULL;

  test_peer_configure ("vsock=silent");
  vmm_vsock_start_async (fixture->launcher, VM, fixture->directory, 77, cancellable, test_await_cb,
                         &await);
  while (!test_fakes_is_running (VM, "vsock"))
    g_main_context_iteration (NULL, TRUE);
  g_cancellable_cancel (cancellable);
  result = test_await (&await);
  g_assert_null (vmm_vsock_start_finish (result, &error));
  g_assert_error (error, G_IO_ERROR, G_IO_ERROR_CANCELLED);
  g_assert_false (test_fakes_is_running (VM, "vsock"));
}

/* The sockets of ports have longer names than the two that are made here. */
static void
test_long_path (Fixture *fixture, gconstpointer data)
{
  g_autofree char *name = g_strnfill (86 - strlen (fixture->directory) - 1, 'd');
  g_autofree char *directory = path_of (fixture, name);
  g_autoptr (GError) error = NULL;
  g_autoptr (VmmProcess) fits = NULL;

  /* 86 + "/vsock.sock" + "_4294967294" is one too much */
  g_assert_null (start (fixture, directory, NULL, &error));
  g_assert_error (error, VMM_ERROR, VMM_ERROR_INVALID_REQUEST);
  g_assert_nonnull (strstr (error->message, "use a shorter state dir"));
  g_clear_error (&error);
  directory[strlen (directory) - 1] = '\0';
  g_assert_no_errno (g_mkdir (directory, 0700));
  fits = start (fixture, directory, NULL, &error);
  g_assert_no_error (error);
  g_assert_nonnull (fits);
}

int
main (int argc, char **argv)
{
  g_test_init (&argc, &argv, G_TEST_OPTION_ISOLATE_DIRS, NULL);
#define ADD(name, function)                                                                        \
  g_test_add ("/vsock/" name, Fixture, NULL, set_up, function, tear_down)
  ADD ("starts", test_starts);
  ADD ("leftovers", test_leftovers);
  ADD ("exits", test_exits);
  ADD ("not-there", test_not_there);
  ADD ("cancelled", test_cancelled);
  ADD ("long-path", test_long_path);
#undef ADD
  return g_test_run ();
}

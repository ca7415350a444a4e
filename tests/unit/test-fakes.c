/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <signal.h>

#include "fake-backends.h"
#include "test-await.h"

static VmmLauncher *launcher;

static VmmProcessSpec *
new_spec (const char *owner, const char *role)
{
  g_autofree char *id = g_strdup_printf ("vm-%s-%s", owner, role);
  const char *argv[] = { "/bin/true", NULL };
  VmmProcessSpec *spec = vmm_process_spec_new (id, argv);

  vmm_process_spec_set_owner (spec, owner, role);
  return spec;
}

static VmmProcess *
start (const char *owner, const char *role, GError **error)
{
  g_autoptr (VmmProcessSpec) spec = new_spec (owner, role);
  g_autoptr (GAsyncResult) result = NULL;
  TestAwait await = TEST_AWAIT_INIT;

  vmm_launcher_start_async (launcher, spec, NULL, test_await_cb, &await);
  result = test_await (&await);
  return vmm_launcher_start_finish (launcher, result, error);
}

static VmmProcess *
find (const char *id, const VmmProcessHandle *handle, GError **error)
{
  g_autoptr (GAsyncResult) result = NULL;
  TestAwait await = TEST_AWAIT_INIT;

  vmm_launcher_find_async (launcher, id, handle, NULL, test_await_cb, &await);
  result = test_await (&await);
  return vmm_launcher_find_finish (launcher, result, error);
}

static gboolean
has_exited (gpointer process)
{
  return vmm_process_has_exited (process);
}

static void
assert_log (const char *expected)
{
  g_autofree char *log = test_fakes_dup_log ();

  g_assert_cmpstr (log, ==, expected);
}

static void
test_processes (void)
{
  g_autoptr (GError) error = NULL;
  g_autoptr (VmmProcess) tpm = start ("a", "tpm", &error);
  g_autoptr (VmmProcess) qemu = start ("a", "qemu", &error);
  g_autoptr (GAsyncResult) result = NULL;
  TestAwait await = TEST_AWAIT_INIT;

  g_assert_no_error (error);
  g_assert_cmpuint (test_fakes_get_n_running (), ==, 2);
  g_assert_true (test_fakes_is_running ("a", "qemu"));
  g_assert_false (test_fakes_is_running ("b", "qemu"));
  g_assert_cmpstr (vmm_process_spec_get_id (test_fakes_get_spec (NULL, "tpm")), ==, "vm-a-tpm");
  g_assert_cmpint (vmm_process_handle_get_pid (vmm_process_get_handle (tpm)), !=,
                   vmm_process_handle_get_pid (vmm_process_get_handle (qemu)));
  g_assert_null (start ("a", "qemu", &error));
  g_assert_error (error, VMM_ERROR, VMM_ERROR_CONFLICT);
  g_clear_error (&error);

  test_fakes_exit ("a", "qemu", 3, 0);
  g_assert_cmpstr (vmm_process_get_exit_text (qemu), ==, "exit status 3");
  vmm_process_stop_async (tpm, G_MAXUINT, NULL, test_await_cb, &await);
  result = test_await (&await);
  g_assert_true (vmm_process_stop_finish (tpm, result, &error));
  g_assert_cmpstr (vmm_process_get_exit_text (tpm), ==, "signal: terminated");
  g_assert_cmpuint (test_fakes_get_n_running (), ==, 0);
  assert_log ("launcher.start tpm\nlauncher.start qemu\nlauncher.start qemu\nprocess.stop tpm\n");

  /* The id is free again. */
  g_clear_object (&qemu);
  qemu = start ("a", "qemu", &error);
  g_assert_no_error (error);
  g_assert_true (vmm_process_send_signal (qemu, SIGKILL, &error));
  test_await_condition (has_exited, qemu);
  g_assert_cmpuint (test_fakes_count ("process.signal qemu 9"), ==, 1);
}

static void
test_plans (void)
{
  g_autoptr (GError) error = NULL;
  g_autoptr (VmmProcess) process = NULL;

  test_fakes_fail ("launcher.start:qemu", VMM_ERROR_CONFLICT, "busy");
  g_assert_null (start ("a", "qemu", &error));
  g_assert_error (error, VMM_ERROR, VMM_ERROR_CONFLICT);
  g_assert_cmpstr (error->message, ==, "conflict: busy");
  g_clear_error (&error);
  g_assert_cmpuint (test_fakes_get_n_running (), ==, 0);

  process = start ("a", "tpm", &error);
  g_assert_nonnull (process);
  test_fakes_clear ("launcher.start:qemu");
  test_fakes_fail_once ("launcher.start", VMM_ERROR_INTERNAL, "once");
  g_assert_null (start ("a", "qemu", &error));
  g_clear_error (&error);
  g_clear_object (&process);
  process = start ("a", "qemu", &error);
  g_assert_no_error (error);
  g_clear_object (&process);

  test_fakes_lie ("launcher.start");
  process = start ("b", "qemu", &error);
  g_assert_nonnull (process);
  test_await_condition (has_exited, process);
  g_assert_cmpstr (vmm_process_get_exit_text (process), ==, "exit status 1");
}

static void
test_hang (void)
{
  g_autoptr (VmmProcessSpec) spec = new_spec ("a", "qemu");
  g_autoptr (GCancellable) cancellable = g_cancellable_new ();
  g_autoptr (GAsyncResult) cancelled = NULL;
  g_autoptr (GAsyncResult) released = NULL;
  g_autoptr (VmmProcess) process = NULL;
  g_autoptr (GError) error = NULL;
  TestAwait await = TEST_AWAIT_INIT;

  test_fakes_hang ("launcher.start:qemu");
  vmm_launcher_start_async (launcher, spec, cancellable, test_await_cb, &await);
  test_drain ();
  g_assert_null (await.result);
  g_assert_cmpuint (test_fakes_get_n_hanging (), ==, 1);
  g_cancellable_cancel (cancellable);
  cancelled = test_await (&await);
  g_assert_null (vmm_launcher_start_finish (launcher, cancelled, &error));
  g_assert_error (error, G_IO_ERROR, G_IO_ERROR_CANCELLED);
  g_clear_error (&error);
  g_assert_cmpuint (test_fakes_get_n_hanging (), ==, 0);

  vmm_launcher_start_async (launcher, spec, NULL, test_await_cb, &await);
  test_drain ();
  g_assert_null (await.result);
  test_fakes_release ("launcher.start:tpm");
  test_drain ();
  g_assert_null (await.result);
  test_fakes_release ("launcher.start:qemu");
  released = test_await (&await);
  process = vmm_launcher_start_finish (launcher, released, &error);
  g_assert_no_error (error);
}

/* What has happened is told, even to a caller who no longer waits for it. */
static void
test_late_cancel (void)
{
  g_autoptr (VmmProcessSpec) spec = new_spec ("a", "qemu");
  g_autoptr (GCancellable) cancellable = g_cancellable_new ();
  g_autoptr (GAsyncResult) result = NULL;
  g_autoptr (VmmProcess) process = NULL;
  g_autoptr (GError) error = NULL;
  TestAwait await = TEST_AWAIT_INIT;

  vmm_launcher_start_async (launcher, spec, cancellable, test_await_cb, &await);
  g_assert_cmpuint (test_fakes_get_n_running (), ==, 1);
  g_cancellable_cancel (cancellable);
  result = test_await (&await);
  process = vmm_launcher_start_finish (launcher, result, &error);
  g_assert_no_error (error);
  g_assert_nonnull (process);
}

static void
test_restart (void)
{
  g_autoptr (GError) error = NULL;
  g_autoptr (VmmProcess) process = start ("a", "qemu", &error);
  g_autoptr (VmmProcessHandle) handle = vmm_process_handle_copy (vmm_process_get_handle (process));
  g_autoptr (VmmProcessHandle) other = vmm_process_handle_new (NULL, 1, 1, NULL);

  g_assert_null (find ("vm-a-qemu", handle, &error));
  g_assert_error (error, VMM_ERROR, VMM_ERROR_UNSUPPORTED);
  g_clear_error (&error);

  test_fakes.outlives_daemon = TRUE;
  test_fakes_daemon_died ();
  g_clear_object (&process);
  g_assert_null (find ("vm-a-qemu", other, &error));
  g_assert_error (error, VMM_ERROR, VMM_ERROR_NOT_FOUND);
  g_clear_error (&error);
  process = find ("vm-a-qemu", handle, &error);
  g_assert_no_error (error);
  g_assert_false (vmm_process_has_exited (process));

  /* It ends while nobody watches; the next one is told. */
  test_fakes_daemon_died ();
  test_fakes_exit ("a", "qemu", 7, 0);
  g_assert_false (vmm_process_has_exited (process));
  g_clear_object (&process);
  process = find ("vm-a-qemu", handle, &error);
  g_assert_false (vmm_process_has_exited (process));
  test_await_condition (has_exited, process);
  g_assert_cmpstr (vmm_process_get_exit_text (process), ==, "exit status 7");
  g_assert_null (find ("vm-a-qemu", handle, &error));
  g_assert_error (error, VMM_ERROR, VMM_ERROR_NOT_FOUND);
  g_clear_error (&error);

  test_fakes.outlives_daemon = FALSE;
  g_clear_object (&process);
  process = start ("b", "qemu", &error);
  test_fakes_daemon_died ();
  g_assert_cmpuint (test_fakes_get_n_running (), ==, 0);
}

static void
test_volumes (void)
{
  g_autoptr (VmmStorageBackend) storage = g_object_new (TEST_TYPE_FAKE_STORAGE, NULL);
  char *directory = test_make_directory ();
  const VmmBackendConfig config = { directory, directory, NULL };
  VmmVolumeRequest request = { "vm-1", 4096, VMM_VOLUME_NEW, FALSE, NULL };
  GAsyncResult *result;
  VmmVolume *volume;
  g_autoptr (GError) error = NULL;
  TestAwait await = TEST_AWAIT_INIT;
  guint64 size = 0;

  g_assert_true (vmm_backend_configure (VMM_BACKEND (storage), &config, &error));
  vmm_storage_backend_acquire_async (storage, &request, NULL, test_await_cb, &await);
  result = test_await (&await);
  volume = vmm_storage_backend_acquire_finish (storage, result, &error);
  g_object_unref (result);
  g_assert_no_error (error);
  g_assert_true (g_file_test (vmm_volume_get_path (volume), G_FILE_TEST_IS_REGULAR));
  g_assert_true (test_fakes_has_volume ("vm-1", &size));
  g_assert_cmpuint (size, ==, 4096);

  vmm_storage_backend_acquire_async (storage, &request, NULL, test_await_cb, &await);
  result = test_await (&await);
  g_assert_null (vmm_storage_backend_acquire_finish (storage, result, &error));
  g_assert_error (error, VMM_ERROR, VMM_ERROR_CONFLICT);
  g_clear_error (&error);
  g_object_unref (result);

  vmm_storage_backend_grow_async (storage, volume, 8192, NULL, test_await_cb, &await);
  result = test_await (&await);
  g_assert_true (vmm_storage_backend_grow_finish (storage, result, &error));
  g_object_unref (result);
  g_assert_cmpuint (vmm_volume_get_size (volume), ==, 8192);

  /* Another program finds the file. */
  test_fakes_reset ();
  request.mode = VMM_VOLUME_OPEN;
  vmm_storage_backend_acquire_async (storage, &request, NULL, test_await_cb, &await);
  result = test_await (&await);
  g_object_unref (volume);
  volume = vmm_storage_backend_acquire_finish (storage, result, &error);
  g_object_unref (result);
  g_assert_no_error (error);
  g_assert_cmpuint (vmm_volume_get_size (volume), ==, 8192);

  vmm_storage_backend_remove_async (storage, "vm-1", NULL, test_await_cb, &await);
  result = test_await (&await);
  g_assert_true (vmm_storage_backend_remove_finish (storage, result, &error));
  g_object_unref (result);
  g_assert_false (g_file_test (vmm_volume_get_path (volume), G_FILE_TEST_EXISTS));
  g_assert_cmpuint (test_fakes_get_n_volumes (), ==, 0);
  g_object_unref (volume);
  test_remove_directory (directory);
}

static void
test_networks (void)
{
  g_autoptr (VmmNetworkBackend) backend = g_object_new (TEST_TYPE_FAKE_NETWORK_BACKEND, NULL);
  const VmmNetworkSpec spec = { .name = "default" };
  const VmmNetworkPort port = { "a", "52:54:00:00:00:01", "10.0.0.2", "/run/a,b", "/run/meta" };
  const VmmForwardSpec forward = { "f1", "a", "10.0.0.2", 22, "tcp", "127.0.0.1", 0 };
  g_autoptr (VmmNetwork) network = NULL;
  g_autoptr (GIOStream) near_end = NULL;
  g_autoptr (GIOStream) far_end = NULL;
  g_autoptr (VmmAttachment) attachment = NULL;
  const char *const *arguments;
  GAsyncResult *result;
  g_autoptr (GError) error = NULL;
  TestAwait await = TEST_AWAIT_INIT;
  char bytes[2];

  vmm_network_backend_open_async (backend, &spec, launcher, NULL, test_await_cb, &await);
  result = test_await (&await);
  network = vmm_network_backend_open_finish (backend, result, &error);
  g_object_unref (result);
  g_assert_true (test_fakes_get_network ("default") == network);

  vmm_network_attach_async (network, &port, NULL, test_await_cb, &await);
  result = test_await (&await);
  attachment = vmm_network_attach_finish (network, result, &error);
  g_object_unref (result);
  arguments = vmm_attachment_get_arguments (attachment);
  g_assert_cmpuint (g_strv_length ((GStrv) arguments), ==, 4);
  g_assert_cmpstr (arguments[1], ==, "stream,id=net0,server=on,addr.type=unix,addr.path=/run/a,,b");
  g_assert_cmpstr (arguments[3], ==, "virtio-net-pci,netdev=net0,mac=52:54:00:00:00:01");
  g_assert_cmpstr (test_fakes_get_metadata_path ("a"), ==, "/run/meta");

  vmm_network_dial_async (network, "a", "10.0.0.2", 22, NULL, test_await_cb, &await);
  result = test_await (&await);
  near_end = vmm_network_dial_finish (network, result, &error);
  g_object_unref (result);
  far_end = test_fakes_take_dialed ();
  g_assert_true (g_output_stream_write_all (g_io_stream_get_output_stream (far_end), "hi", 2, NULL,
                                            NULL, &error));
  g_assert_true (g_input_stream_read_all (g_io_stream_get_input_stream (near_end), bytes, 2, NULL,
                                          NULL, &error));
  g_assert_cmpmem (bytes, 2, "hi", 2);

  vmm_network_forward_async (network, &forward, NULL, test_await_cb, &await);
  result = test_await (&await);
  g_assert_cmpuint (vmm_network_forward_finish (network, result, &error), >, 0);
  g_object_unref (result);
  g_assert_cmpuint (test_fakes_get_n_forwards (), ==, 1);

  vmm_network_close_async (network, TRUE, NULL, test_await_cb, &await);
  g_object_unref (test_await (&await));
  g_assert_true (test_fakes_is_attached ("a"));
  g_assert_null (test_fakes_get_network ("default"));

  vmm_network_detach_async (network, "a", NULL, test_await_cb, &await);
  result = test_await (&await);
  g_assert_true (vmm_network_detach_finish (network, result, &error));
  g_object_unref (result);
  g_assert_cmpuint (test_fakes_get_n_forwards (), ==, 0);
  g_assert_cmpuint (test_fakes_get_n_ports (), ==, 0);
  assert_log ("network.open default\nnetwork.attach a\nnetwork.dial a\nnetwork.forward a\n"
              "network.close default\nnetwork.detach a\n");
}

static void
test_attestor (void)
{
  g_autoptr (VmmAttestor) attestor = g_object_new (TEST_TYPE_FAKE_ATTESTOR, NULL);
  const VmmBootContext boot = { .vm_id = "a", .image = "i" };
  g_autoptr (GBytes) evidence = g_bytes_new_static ("{\"stage\":\"ready\"}", 17);
  g_autoptr (VmmVerdict) no = vmm_verdict_new ("ready", FALSE, "no");
  g_autoptr (VmmVerdict) first = NULL;
  g_autoptr (VmmVerdict) second = NULL;
  g_autoptr (GBytes) nonce = NULL;
  g_autoptr (GBytes) other = NULL;
  GAsyncResult *result;
  g_autoptr (GError) error = NULL;
  TestAwait await = TEST_AWAIT_INIT;

  g_assert_true (vmm_attestor_verifies (attestor));
  g_assert_true (vmm_backend_has_capability (VMM_BACKEND (attestor), "learn"));
  nonce = vmm_attestor_dup_nonce (attestor, "a", &error);
  other = vmm_attestor_dup_nonce (attestor, "a", &error);
  g_assert_cmpuint (g_bytes_get_size (nonce), ==, 32);
  g_assert_false (g_bytes_equal (nonce, other));

  vmm_attestor_judge_async (attestor, &boot, evidence, NULL, test_await_cb, &await);
  result = test_await (&await);
  first = vmm_attestor_judge_finish (attestor, result, &error);
  g_object_unref (result);
  g_assert_true (vmm_verdict_is_verified (first));
  g_assert_cmpstr (vmm_verdict_get_stage (first), ==, "ready");

  test_fakes_set_verdict (no);
  vmm_attestor_judge_async (attestor, &boot, evidence, NULL, test_await_cb, &await);
  result = test_await (&await);
  second = vmm_attestor_judge_finish (attestor, result, &error);
  g_object_unref (result);
  g_assert_false (vmm_verdict_is_verified (second));

  test_fakes_fail ("attestor.nonce", VMM_ERROR_UNSUPPORTED, "no randomness");
  g_assert_null (vmm_attestor_dup_nonce (attestor, "a", &error));
  g_assert_error (error, VMM_ERROR, VMM_ERROR_UNSUPPORTED);
}

static void
test_text (void)
{
  g_autoptr (GError) error = NULL;
  g_autofree char *reason = NULL;

  test_fakes_configure_from_text ("fail=launcher.start:tpm, unavailable=launcher,outlives,"
                                  "unverified,lasting=no");
  test_fakes.peers = FALSE;
  g_assert_null (start ("a", "tpm", &error));
  g_assert_error (error, VMM_ERROR, VMM_ERROR_INTERNAL);
  g_assert_false (vmm_backend_is_available (VMM_BACKEND (launcher), &reason));
  g_assert_cmpstr (reason, ==, "told so");
  g_assert_true (vmm_launcher_outlives_daemon (launcher));
  g_assert_false (test_fakes.verifies);
  g_assert_true (test_fakes.has_lasting && test_fakes.lasting_ends);
}

static void
run_clean (gconstpointer test)
{
  test_fakes_reset ();
  ((GTestFunc) test) ();
  test_fakes_reset ();
  test_drain ();
}

int
main (int argc, char **argv)
{
  int result;

  g_test_init (&argc, &argv, G_TEST_OPTION_ISOLATE_DIRS, NULL);
  test_fakes_register ();
  launcher = g_object_new (TEST_TYPE_FAKE_LAUNCHER, NULL);
  g_test_add_data_func ("/fakes/processes", test_processes, run_clean);
  g_test_add_data_func ("/fakes/plans", test_plans, run_clean);
  g_test_add_data_func ("/fakes/hang", test_hang, run_clean);
  g_test_add_data_func ("/fakes/late-cancel", test_late_cancel, run_clean);
  g_test_add_data_func ("/fakes/restart", test_restart, run_clean);
  g_test_add_data_func ("/fakes/volumes", test_volumes, run_clean);
  g_test_add_data_func ("/fakes/networks", test_networks, run_clean);
  g_test_add_data_func ("/fakes/attestor", test_attestor, run_clean);
  g_test_add_data_func ("/fakes/text", test_text, run_clean);
  result = g_test_run ();
  g_object_unref (launcher);
  return result;
}

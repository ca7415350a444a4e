/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* One VM's life on fake backends: what happens, what is refused, what is told. */

#include "config.h"

#include <glib/gstdio.h>
#include <string.h>

#include "disk-kit.h"
#include "fake-backends.h"
#include "fake-peers.h"
#include "machine-fixture.h"
#include "test-await.h"

#define ID MACHINE_FIXTURE_ID

static void
assert_state (MachineFixture *fixture, VmmMachineState state)
{
  g_assert_cmpstr (vmm_machine_state_to_nick (vmm_machine_get_state (fixture->machine)), ==,
                   vmm_machine_state_to_nick (state));
}

static void
assert_refused (GError *error, const char *message)
{
  g_assert_error (error, VMM_ERROR, VMM_ERROR_CONFLICT);
  g_assert_cmpstr (error->message, ==, message);
  g_error_free (error);
}

static void
note_state_cb (GObject *machine, GParamSpec *pspec, gpointer user_data)
{
  GString *states = user_data;

  g_string_append_printf (
      states, "%s ", vmm_machine_state_to_nick (vmm_machine_get_state (VMM_MACHINE (machine))));
}

static void
assert_private_file (MachineFixture *fixture, const char *name, const char *content)
{
  g_autofree char *path = machine_fixture_path (fixture, name);
  g_autofree char *text = NULL;
  GStatBuf info;

  g_assert_cmpint (g_stat (path, &info), ==, 0);
  g_assert_cmpint (info.st_mode & 0777, ==, 0600);
  g_assert_true (g_file_get_contents (path, &text, NULL, NULL));
  if (content != NULL)
    g_assert_cmpstr (text, ==, content);
}

static void
test_create (void)
{
  MachineFixture *fixture = machine_fixture_new ();
  const VmmMachineRecord *record;
  g_autoptr (GString) states = g_string_new (NULL);
  g_autoptr (GError) error = NULL;
  g_autofree char *log = NULL;
  guint64 size = 0;
  GStatBuf info;

  machine_fixture_make (fixture);
  g_signal_connect (fixture->machine, "notify::state", G_CALLBACK (note_state_cb), states);
  g_assert_true (machine_fixture_create (fixture, &error));
  g_assert_no_error (error);
  log = test_fakes_dup_log ();
  /* The installer of the fakes may have ended already. */
  g_assert_true (g_str_has_prefix (
      log, "launcher.start tpm-setup\nstorage.acquire vm-" ID "\nnetwork.attach " ID "\n"
           "launcher.start tpm\nlauncher.start qemu\nlauncher.start monitor\n"));
  machine_fixture_await_state (fixture, VMM_MACHINE_READY);
  g_assert_cmpstr (states->str, ==, "installing booting ready ");

  record = machine_fixture_record (fixture);
  g_assert_cmpint (record->installed_at, !=, 0);
  g_assert_cmpint (record->booted_at, >=, record->installed_at);
  g_assert_cmpint (record->ready_at, >=, record->booted_at);
  g_assert_true (record->booted);
  g_assert_true (record->user_data_released);
  g_assert_null (record->last_error);
  g_assert_cmpstr (record->phase, ==, "boot");
  g_assert_cmpstr (record->ip, ==, "192.168.127.2");
  g_assert_true (g_str_has_prefix (record->ssh_public_key, "ssh-ed25519 "));
  g_assert_true (g_str_has_suffix (record->ssh_public_key, " vm-manager@" ID));
  g_assert_true (test_fakes_has_volume ("vm-" ID, &size));
  g_assert_cmpuint (size, ==, 1 << 30);

  g_assert_cmpint (g_stat (vmm_machine_get_directory (fixture->machine), &info), ==, 0);
  g_assert_cmpint (info.st_mode & 0777, ==, 0700);
  assert_private_file (fixture, "vm.json", NULL);
  assert_private_file (fixture, "ssh_key", NULL);
  assert_private_file (fixture, "user-data", "{\"ignition\": {}}");
  assert_private_file (fixture, "ovmf_vars.fd", "vars");
  machine_fixture_free (fixture);
}

static void
test_two_phases (void)
{
  MachineFixture *fixture = machine_fixture_new ();
  VmmProcessSpec *spec;
  g_autofree char *arguments = NULL;

  machine_fixture_bring_to (fixture, VMM_MACHINE_INSTALLING);
  spec = test_fakes_get_spec (ID, "qemu");
  arguments = g_strjoinv (" ", (char **) vmm_process_spec_get_argv (spec));
  g_assert_nonnull (strstr (arguments, "-no-reboot"));
  g_assert_nonnull (strstr (arguments, "demo_1.0.0.efi"));
  g_assert_nonnull (strstr (arguments, "vm.install-target"));
  g_assert_nonnull (strstr (arguments, "vmm.notify_socket=vsock-stream:2:1048577"));
  g_assert_null (strstr (arguments, "ignition.firstboot"));
  g_assert_cmpint (vmm_process_spec_get_flags (spec), ==, VMM_PROCESS_DENY_IO_URING);
  g_assert_true (
      g_strv_contains (vmm_process_spec_get_devices (spec), TEST_FAKE_NETWORK_DEVICE));
  g_assert_true (g_str_has_suffix (vmm_process_spec_get_log (spec), "/qemu.log"));
  g_assert_cmpstr (machine_fixture_record (fixture)->phase, ==, "install");

  /* An installed boot passes ignition.firstboot until one was complete. */
  test_peer_behaviour.ready_ms = TEST_PEER_NEVER;
  machine_fixture_end_qemu (fixture, 0, 0, "guest-reset");
  machine_fixture_await_state (fixture, VMM_MACHINE_BOOTING);
  g_clear_pointer (&arguments, g_free);
  spec = test_fakes_get_spec (ID, "qemu");
  arguments = g_strjoinv (" ", (char **) vmm_process_spec_get_argv (spec));
  g_assert_null (strstr (arguments, "-no-reboot"));
  g_assert_null (strstr (arguments, "vm.install-target"));
  g_assert_nonnull (strstr (arguments, "ignition.firstboot"));

  g_assert_true (test_peer_emit (ID, "ready"));
  machine_fixture_await_state (fixture, VMM_MACHINE_READY);
  g_assert_true (machine_fixture_reboot (fixture, NULL));
  g_clear_pointer (&arguments, g_free);
  spec = test_fakes_get_spec (ID, "qemu");
  arguments = g_strjoinv (" ", (char **) vmm_process_spec_get_argv (spec));
  g_assert_null (strstr (arguments, "ignition.firstboot"));
  machine_fixture_free (fixture);
}

static void
test_installer_outcomes (void)
{
  static const struct
  {
    const char *behaviour;
    const char *error;
  } rows[] = {
    { "installer-exit=7", "installer exited: exit status 7" },
    { "installer-reason=guest-shutdown",
      "installer shut down instead of rebooting; it did not finish" },
    { "installer-reason=host-signal", "installer was ended (host-signal) instead of rebooting" },
  };

  for (guint i = 0; i < G_N_ELEMENTS (rows); i++)
    {
      MachineFixture *fixture = machine_fixture_new ();
      g_autoptr (GError) error = NULL;

      test_peer_configure (rows[i].behaviour);
      machine_fixture_make (fixture);
      g_assert_true (machine_fixture_create (fixture, NULL));
      machine_fixture_await_state (fixture, VMM_MACHINE_FAILED);
      g_assert_cmpstr (machine_fixture_record (fixture)->last_error, ==, rows[i].error);
      g_assert_cmpint (machine_fixture_record (fixture)->installed_at, ==, 0);
      /* The disk stays to be looked at; only a delete removes it. */
      g_assert_true (test_fakes_has_volume ("vm-" ID, NULL));
      g_assert_false (machine_fixture_start (fixture, &error));
      assert_refused (g_steal_pointer (&error),
                      "conflict: vm " ID " never finished installing; delete and recreate it");
      g_assert_true (machine_fixture_delete (fixture, NULL));
      machine_fixture_assert_nothing_left (fixture);
      machine_fixture_free (fixture);
    }
}

/* Nobody saw how the installer ended: its exit status counts. */
static void
installer_without_monitor (const char *fault)
{
  MachineFixture *fixture = machine_fixture_new ();

  machine_fixture_bring_to (fixture, VMM_MACHINE_INSTALLING);
  g_assert_true (test_peer_emit (ID, "monitor-exit"));
  machine_fixture_await_error (fixture, "the monitor of console and readiness ended while the vm "
                                        "runs: exit status 1");
  assert_state (fixture, VMM_MACHINE_INSTALLING);
  if (fault == NULL)
    disk_kit_install (machine_fixture_record (fixture)->volume_path);
  machine_fixture_end_qemu (fixture, 0, 0, NULL);
  machine_fixture_await_state (fixture, fault == NULL ? VMM_MACHINE_READY : VMM_MACHINE_FAILED);
  g_assert_cmpstr (machine_fixture_record (fixture)->last_error, ==, fault);
  machine_fixture_free (fixture);
}

/* Nobody can say how it ended: the disk does. */
static void
test_installer_without_monitor (void)
{
  installer_without_monitor (NULL);
  installer_without_monitor ("installer ended while nobody watched, and its disk is not installed: "
                             "it has no partition table");
}

static void
write_console (MachineFixture *fixture, const char *text)
{
  g_autofree char *path = machine_fixture_path (fixture, "console.log");

  g_assert_true (g_file_set_contents (path, text, -1, NULL));
}

static void
test_console_in_error (void)
{
  MachineFixture *fixture = machine_fixture_new ();
  g_autoptr (GString) console = g_string_new (NULL);
  g_autoptr (GString) expected = g_string_new ("qemu exited: exit status 3\nconsole:\n");

  machine_fixture_bring_to (fixture, VMM_MACHINE_READY);
  for (guint i = 1; i <= 100; i++)
    g_string_append_printf (console, "line %u\r\n", i);
  g_string_append (console, "\033[31mred\n\n\n");
  for (guint i = 62; i <= 100; i++)
    g_string_append_printf (expected, "line %u\n", i);
  g_string_append (expected, "\\x1b[31mred");
  write_console (fixture, console->str);
  machine_fixture_end_qemu (fixture, 3, 0, NULL);
  machine_fixture_await_state (fixture, VMM_MACHINE_FAILED);
  g_assert_cmpstr (machine_fixture_record (fixture)->last_error, ==, expected->str);
  machine_fixture_free (fixture);
}

static void
test_huge_console (void)
{
  MachineFixture *fixture = machine_fixture_new ();
  g_autofree char *console = g_strnfill (300 * 1024, '\001');

  machine_fixture_bring_to (fixture, VMM_MACHINE_READY);
  console[250 * 1024] = '\n';
  write_console (fixture, console);
  machine_fixture_end_qemu (fixture, 0, 11, NULL);
  machine_fixture_await_state (fixture, VMM_MACHINE_FAILED);
  g_assert_true (g_str_has_prefix (machine_fixture_record (fixture)->last_error,
                                   "qemu exited: signal: segmentation fault\nconsole:\n"));
  g_assert_cmpuint (strlen (machine_fixture_record (fixture)->last_error), <, 65 * 1024);
  machine_fixture_free (fixture);
}

static void
complain_cb (GObject *machine, GParamSpec *pspec, gpointer user_data)
{
  if (vmm_machine_get_state (VMM_MACHINE (machine)) == VMM_MACHINE_INSTALLING)
    write_console (user_data, "EFI stub: Failed to measure data for event 1: 0x7\n");
}

static void
test_install_timeout (void)
{
  MachineFixture *fixture = machine_fixture_new ();

  fixture->context.install_timeout_us = 2000;
  test_peer_behaviour.installer_ms = TEST_PEER_NEVER;
  machine_fixture_make (fixture);
  g_signal_connect (fixture->machine, "notify::state", G_CALLBACK (complain_cb), fixture);
  g_assert_true (machine_fixture_create (fixture, NULL));
  machine_fixture_await_state (fixture, VMM_MACHINE_FAILED);
  g_assert_cmpstr (machine_fixture_record (fixture)->last_error, ==,
                   "vtpm not responding: the guest's TPM calls failed (console: EFI stub: Failed "
                   "to measure data for event 1: 0x7); installer did not finish within 2ms\n"
                   "console:\nEFI stub: Failed to measure data for event 1: 0x7");
  machine_fixture_free (fixture);
}

static void
test_boot_timeout (void)
{
  MachineFixture *fixture = machine_fixture_new ();

  fixture->context.boot_timeout_us = 1000;
  test_peer_behaviour.ready_ms = TEST_PEER_NEVER;
  machine_fixture_make (fixture);
  g_assert_true (machine_fixture_create (fixture, NULL));
  machine_fixture_await_state (fixture, VMM_MACHINE_RUNNING);
  g_assert_cmpstr (machine_fixture_record (fixture)->last_error, ==,
                   "no READY=1 within 1ms; the guest is up but has not reported ready");
  g_assert_true (test_fakes_is_running (ID, "qemu"));
  /* Late is not never. */
  g_assert_true (test_peer_emit (ID, "ready"));
  machine_fixture_await_state (fixture, VMM_MACHINE_READY);
  g_assert_null (machine_fixture_record (fixture)->last_error);
  machine_fixture_free (fixture);
}

static void
test_guest_ends (void)
{
  MachineFixture *fixture = machine_fixture_new ();

  machine_fixture_bring_to (fixture, VMM_MACHINE_READY);
  g_assert_true (test_peer_emit (ID, "shutdown"));
  machine_fixture_await_state (fixture, VMM_MACHINE_STOPPED);
  g_assert_cmpstr (machine_fixture_record (fixture)->last_error, ==, "guest shut down");
  g_assert_cmpuint (test_fakes_get_n_running (), ==, 0);
  for (guint i = 0; i < VMM_N_PROCESS_ROLES; i++)
    g_assert_null (machine_fixture_record (fixture)->processes[i]);

  g_assert_true (machine_fixture_start (fixture, NULL));
  machine_fixture_await_state (fixture, VMM_MACHINE_READY);
  g_assert_null (machine_fixture_record (fixture)->last_error);
  g_assert_true (test_peer_emit (ID, "crash"));
  machine_fixture_await_state (fixture, VMM_MACHINE_FAILED);
  g_assert_cmpstr (machine_fixture_record (fixture)->last_error, ==,
                   "qemu exited: signal: segmentation fault");
  machine_fixture_free (fixture);
}

static void
test_stop (void)
{
  MachineFixture *fixture = machine_fixture_new ();
  g_autoptr (GError) error = NULL;
  g_autofree char *log = NULL;

  machine_fixture_bring_to (fixture, VMM_MACHINE_READY);
  test_fakes_clear_log ();
  g_assert_true (machine_fixture_stop (fixture, &error));
  g_assert_no_error (error);
  assert_state (fixture, VMM_MACHINE_STOPPED);
  g_assert_null (machine_fixture_record (fixture)->last_error);
  g_assert_cmpuint (test_peer_get_n_powerdowns (ID), ==, 1);
  g_assert_cmpuint (test_fakes_get_n_running (), ==, 0);
  /* The guest followed the button: nobody was killed. */
  g_assert_cmpuint (test_fakes_count ("process.stop qemu"), ==, 0);
  log = machine_fixture_read_record (fixture);
  g_assert_nonnull (strstr (log, "\"state\": \"stopped\""));
  g_assert_null (strstr (log, "\"processes\""));
  machine_fixture_free (fixture);
}

static void
test_stop_by_force (void)
{
  static const char *const behaviours[] = { "powerdown=ignore", "powerdown=ignore,term=ignore" };

  for (guint i = 0; i < G_N_ELEMENTS (behaviours); i++)
    {
      MachineFixture *fixture = machine_fixture_new ();

      machine_fixture_bring_to (fixture, VMM_MACHINE_READY);
      test_peer_configure (behaviours[i]);
      fixture->context.stop_timeout_us = 40 * 1000;
      g_assert_true (machine_fixture_stop (fixture, NULL));
      assert_state (fixture, VMM_MACHINE_STOPPED);
      g_assert_cmpuint (test_fakes_count ("process.stop qemu"), ==, 1);
      g_assert_null (machine_fixture_record (fixture)->last_error);
      machine_fixture_free (fixture);
    }
}

/* Stopped is only said when the process has ended. */
static void
test_stop_without_end (void)
{
  MachineFixture *fixture = machine_fixture_new ();
  g_autoptr (GError) error = NULL;

  machine_fixture_bring_to (fixture, VMM_MACHINE_READY);
  test_peer_behaviour.ignore_powerdown = TRUE;
  fixture->context.stop_timeout_us = 4 * 1000;
  test_fakes_lie ("process.stop:qemu");
  g_assert_false (machine_fixture_stop (fixture, &error));
  g_assert_error (error, VMM_ERROR, VMM_ERROR_TIMEOUT);
  assert_state (fixture, VMM_MACHINE_STOPPING);
  g_assert_true (test_fakes_is_running (ID, "qemu"));
  /* It can be asked again. */
  test_fakes_clear ("process.stop:qemu");
  g_assert_true (machine_fixture_stop (fixture, NULL));
  assert_state (fixture, VMM_MACHINE_STOPPED);
  machine_fixture_free (fixture);
}

static void
test_second_stop_joins (void)
{
  MachineFixture *fixture = machine_fixture_new ();
  g_autoptr (GCancellable) cancellable = g_cancellable_new ();
  TestAwait first = TEST_AWAIT_INIT;
  TestAwait second = TEST_AWAIT_INIT;
  g_autoptr (GAsyncResult) first_result = NULL;
  g_autoptr (GAsyncResult) second_result = NULL;
  g_autoptr (GError) error = NULL;

  machine_fixture_bring_to (fixture, VMM_MACHINE_READY);
  test_peer_behaviour.ignore_powerdown = TRUE;
  vmm_machine_stop_async (fixture->machine, cancellable, test_await_cb, &first);
  vmm_machine_stop_async (fixture->machine, NULL, test_await_cb, &second);
  /* The first caller leaves; the stop goes on. */
  g_cancellable_cancel (cancellable);
  first_result = test_await (&first);
  g_assert_false (vmm_machine_stop_finish (fixture->machine, first_result, &error));
  g_assert_error (error, G_IO_ERROR, G_IO_ERROR_CANCELLED);
  assert_state (fixture, VMM_MACHINE_STOPPING);
  machine_fixture_end_qemu (fixture, 0, 0, NULL);
  second_result = test_await (&second);
  g_assert_true (vmm_machine_stop_finish (fixture->machine, second_result, NULL));
  assert_state (fixture, VMM_MACHINE_STOPPED);
  g_clear_object (&first_result);
  g_clear_object (&second_result);
  machine_fixture_free (fixture);
}

static void
test_stop_during_handoff (void)
{
  MachineFixture *fixture = machine_fixture_new ();
  g_autoptr (GError) error = NULL;

  machine_fixture_bring_to_installed (fixture);
  g_assert_true (machine_fixture_stop (fixture, &error));
  g_assert_no_error (error);
  assert_state (fixture, VMM_MACHINE_STOPPED);
  g_assert_cmpuint (test_fakes_get_n_running (), ==, 0);
  test_fakes_clear ("launcher.start:tpm");
  g_assert_true (machine_fixture_start (fixture, &error));
  machine_fixture_await_state (fixture, VMM_MACHINE_READY);
  machine_fixture_free (fixture);
}

static void
test_stop_while_installing (void)
{
  MachineFixture *fixture = machine_fixture_new ();
  g_autoptr (GError) error = NULL;

  machine_fixture_bring_to (fixture, VMM_MACHINE_INSTALLING);
  g_assert_true (machine_fixture_stop (fixture, NULL));
  assert_state (fixture, VMM_MACHINE_STOPPED);
  g_assert_cmpint (machine_fixture_record (fixture)->installed_at, ==, 0);
  g_assert_false (machine_fixture_start (fixture, &error));
  assert_refused (g_steal_pointer (&error),
                  "conflict: vm " ID " never finished installing; delete and recreate it");
  machine_fixture_free (fixture);
}

static void
test_refusals (void)
{
  MachineFixture *fixture = machine_fixture_new ();
  g_autoptr (GError) error = NULL;

  machine_fixture_bring_to (fixture, VMM_MACHINE_READY);
  g_assert_false (machine_fixture_start (fixture, &error));
  assert_refused (g_steal_pointer (&error), "conflict: vm " ID " is ready");
  g_assert_true (machine_fixture_stop (fixture, NULL));
  g_assert_false (machine_fixture_stop (fixture, &error));
  assert_refused (g_steal_pointer (&error), "conflict: vm " ID " is not running (stopped)");
  g_assert_false (machine_fixture_reboot (fixture, &error));
  assert_refused (g_steal_pointer (&error), "conflict: vm " ID " is not running (stopped)");
  fixture->context.closing = TRUE;
  g_assert_false (machine_fixture_start (fixture, &error));
  assert_refused (g_steal_pointer (&error), "conflict: vm-manager is shutting down");
  g_assert_false (machine_fixture_reboot (fixture, &error));
  assert_refused (g_steal_pointer (&error), "conflict: vm-manager is shutting down");
  fixture->context.closing = FALSE;
  machine_fixture_free (fixture);

  fixture = machine_fixture_new ();
  machine_fixture_bring_to (fixture, VMM_MACHINE_DELETING);
  g_assert_false (machine_fixture_stop (fixture, &error));
  assert_refused (g_steal_pointer (&error), "conflict: vm " ID " is being deleted");
  g_assert_false (machine_fixture_delete (fixture, &error));
  assert_refused (g_steal_pointer (&error), "conflict: vm " ID " is already being deleted");
  test_fakes_release ("storage.remove");
  while (!fixture->gone)
    g_main_context_iteration (NULL, TRUE);
  g_assert_false (machine_fixture_delete (fixture, &error));
  g_assert_error (error, VMM_ERROR, VMM_ERROR_NOT_FOUND);
  g_assert_cmpstr (error->message, ==, "not found: vm \"" ID "\"");
  machine_fixture_assert_nothing_left (fixture);
  machine_fixture_free (fixture);
}

static gboolean
is_hanging (gpointer user_data)
{
  return test_fakes_get_n_hanging () > 0;
}

/* Killed in the middle of a delete, nothing is taken for a stopped VM whose disk is gone. */
static void
test_delete_is_recorded_first (void)
{
  MachineFixture *fixture = machine_fixture_new ();
  TestAwait await = TEST_AWAIT_INIT;
  g_autoptr (GAsyncResult) result = NULL;
  g_autofree char *record = NULL;

  machine_fixture_bring_to (fixture, VMM_MACHINE_STOPPED);
  test_fakes_hang ("network.detach");
  vmm_machine_delete_async (fixture->machine, NULL, test_await_cb, &await);
  test_await_condition (is_hanging, NULL);
  record = machine_fixture_read_record (fixture);
  g_assert_nonnull (strstr (record, "\"state\": \"deleting\""));
  test_fakes_release ("network.detach");
  result = test_await (&await);
  g_assert_true (vmm_machine_delete_finish (fixture->machine, result, NULL));
  g_clear_object (&result);
  machine_fixture_assert_nothing_left (fixture);
  machine_fixture_free (fixture);
}

static void
test_create_while_closing (void)
{
  MachineFixture *fixture = machine_fixture_new ();
  g_autoptr (GError) error = NULL;

  machine_fixture_make (fixture);
  fixture->context.closing = TRUE;
  g_assert_false (machine_fixture_create (fixture, &error));
  assert_refused (g_steal_pointer (&error), "conflict: vm-manager is shutting down");
  g_assert_true (fixture->gone);
  machine_fixture_assert_nothing_left (fixture);
  machine_fixture_free (fixture);
}

static void
test_delete (void)
{
  static const VmmMachineState states[] = {
    VMM_MACHINE_CREATING, VMM_MACHINE_INSTALLING, VMM_MACHINE_BOOTING,  VMM_MACHINE_ATTESTING,
    VMM_MACHINE_READY,    VMM_MACHINE_RUNNING,    VMM_MACHINE_STOPPING, VMM_MACHINE_STOPPED,
    VMM_MACHINE_FAILED,
  };

  for (guint i = 0; i < G_N_ELEMENTS (states); i++)
    {
      MachineFixture *fixture = machine_fixture_new ();
      g_autoptr (GError) error = NULL;

      g_test_message ("%s", vmm_machine_state_to_nick (states[i]));
      machine_fixture_bring_to (fixture, states[i]);
      g_assert_true (machine_fixture_delete (fixture, &error));
      g_assert_no_error (error);
      g_assert_true (fixture->gone);
      machine_fixture_assert_nothing_left (fixture);
      machine_fixture_free (fixture);
    }
}

static void
test_delete_order (void)
{
  MachineFixture *fixture = machine_fixture_new ();
  VmmForward forward = { (char *) "f1", 80, (char *) "tcp", (char *) "127.0.0.1", 4000 };
  TestAwait await = TEST_AWAIT_INIT;
  g_autoptr (GAsyncResult) result = NULL;
  g_autofree char *log = NULL;

  machine_fixture_bring_to (fixture, VMM_MACHINE_READY);
  vmm_machine_add_forward_async (fixture->machine, &forward, test_await_cb, &await);
  result = test_await (&await);
  g_assert_true (vmm_machine_add_forward_finish (fixture->machine, result, NULL));
  test_fakes_clear_log ();
  g_assert_true (machine_fixture_delete (fixture, NULL));
  log = test_fakes_dup_log ();
  g_assert_true (g_str_has_prefix (log, "process.stop qemu\n"));
  g_assert_true (g_str_has_suffix (log, "network.unforward f1\nnetwork.detach " ID "\n"
                                        "storage.remove vm-" ID "\nattestor.forget " ID "\n"));
  g_clear_object (&result);
  machine_fixture_free (fixture);
}

static void
test_delete_during_handoff (void)
{
  MachineFixture *fixture = machine_fixture_new ();

  machine_fixture_bring_to_installed (fixture);
  g_assert_true (machine_fixture_delete (fixture, NULL));
  machine_fixture_assert_nothing_left (fixture);
  g_assert_cmpuint (test_fakes_count ("launcher.start qemu"), ==, 1);
  machine_fixture_free (fixture);
}

static void
test_delete_spares_a_disk_in_use (void)
{
  MachineFixture *fixture = machine_fixture_new ();
  g_autoptr (GError) error = NULL;

  machine_fixture_bring_to (fixture, VMM_MACHINE_READY);
  test_fakes_lie ("process.stop:qemu");
  g_assert_false (machine_fixture_delete (fixture, &error));
  g_assert_error (error, VMM_ERROR, VMM_ERROR_TIMEOUT);
  assert_state (fixture, VMM_MACHINE_STOPPING);
  g_assert_true (test_fakes_has_volume ("vm-" ID, NULL));
  g_assert_nonnull (strstr (machine_fixture_record (fixture)->last_error, "stop qemu"));
  test_fakes_clear ("process.stop:qemu");
  g_assert_true (machine_fixture_delete (fixture, NULL));
  machine_fixture_assert_nothing_left (fixture);
  machine_fixture_free (fixture);
}

static void
test_reset (void)
{
  MachineFixture *fixture = machine_fixture_new ();
  const VmmMachineRecord *record;
  g_autoptr (VmmVerdict) verdict = vmm_verdict_new ("initrd", TRUE, "fine");

  fixture->require_attestation = TRUE;
  machine_fixture_bring_to (fixture, VMM_MACHINE_READY);
  record = machine_fixture_record (fixture);
  vmm_machine_note_nonce (fixture->machine);
  vmm_machine_note_verdict (fixture->machine, verdict);
  g_assert_true (record->user_data_released);
  g_assert_cmpint (record->nonce_issued_at, !=, 0);
  test_fakes_clear_log ();
  test_peer_behaviour.ready_ms = TEST_PEER_NEVER;
  g_assert_true (test_peer_emit (ID, "reset"));
  g_assert_true (test_peer_emit (ID, "reset"));
  machine_fixture_await_state (fixture, VMM_MACHINE_BOOTING);
  g_assert_cmpint (record->ready_at, ==, 0);
  g_assert_cmpint (record->nonce_issued_at, ==, 0);
  g_assert_false (record->user_data_released);
  g_assert_false (record->initrd_quote.present);
  g_assert_cmpuint (test_fakes_count ("attestor.begin-boot " ID), >=, 1);
  g_assert_true (test_fakes_is_running (ID, "qemu"));
  g_assert_true (test_peer_emit (ID, "ready"));
  machine_fixture_await_state (fixture, VMM_MACHINE_READY);
  machine_fixture_free (fixture);
}

static gboolean
is_paused (gpointer user_data)
{
  return vmm_machine_get_record (user_data)->paused_reason != NULL;
}

static gboolean
is_not_paused (gpointer user_data)
{
  return !is_paused (user_data);
}

static void
test_pause (void)
{
  MachineFixture *fixture = machine_fixture_new ();

  machine_fixture_bring_to (fixture, VMM_MACHINE_READY);
  g_assert_true (test_peer_emit (ID, "stop"));
  test_await_condition (is_paused, fixture->machine);
  assert_state (fixture, VMM_MACHINE_READY);
  g_assert_cmpint (machine_fixture_record (fixture)->paused_at, !=, 0);
  g_assert_true (test_peer_emit (ID, "resume"));
  test_await_condition (is_not_paused, fixture->machine);
  g_assert_cmpint (machine_fixture_record (fixture)->paused_at, ==, 0);
  /* A pause ends with the run. */
  g_assert_true (test_peer_emit (ID, "stop"));
  test_await_condition (is_paused, fixture->machine);
  machine_fixture_end_qemu (fixture, 1, 0, NULL);
  machine_fixture_await_state (fixture, VMM_MACHINE_FAILED);
  g_assert_null (machine_fixture_record (fixture)->paused_reason);
  machine_fixture_free (fixture);
}

static void
test_helpers (void)
{
  MachineFixture *fixture = machine_fixture_new ();

  machine_fixture_bring_to (fixture, VMM_MACHINE_READY);
  test_fakes_exit (ID, "tpm", -1, 9);
  machine_fixture_await_error (fixture,
                               "the vtpm (swtpm) ended while the vm runs: signal: killed");
  assert_state (fixture, VMM_MACHINE_READY);
  g_assert_null (machine_fixture_record (fixture)->processes[VMM_PROCESS_ROLE_TPM]);
  /* One that ends well may only have seen QEMU's end before us; this one has not. */
  test_fakes_exit (ID, "monitor", 0, 0);
  machine_fixture_await_error (fixture, "the monitor of console and readiness ended");
  g_assert_true (machine_fixture_stop (fixture, NULL));
  machine_fixture_free (fixture);
}

static void
test_rejection (void)
{
  MachineFixture *fixture = machine_fixture_new ();
  const VmmMachineRecord *record;
  g_autoptr (VmmVerdict) bad = vmm_verdict_new ("initrd", FALSE, "pcr 11 differs");
  g_autoptr (VmmVerdict) other = vmm_verdict_new ("ready", TRUE, "fine");
  g_autoptr (VmmVerdict) good = vmm_verdict_new ("initrd", TRUE, "fine");

  machine_fixture_bring_to (fixture, VMM_MACHINE_ATTESTING);
  record = machine_fixture_record (fixture);
  write_console (fixture, "[ 1.0] tpm tpm0: Operation Timed out\n");
  vmm_verdict_set_pinned_key (bad, "key");
  vmm_machine_note_verdict (fixture->machine, bad);
  g_assert_cmpstr (record->last_error, ==, "initrd attestation rejected: pcr 11 differs");
  machine_fixture_await_error (fixture,
                               "vtpm not responding: the guest's TPM calls failed (console: [ "
                               "1.0] tpm tpm0: Operation Timed out); initrd attestation "
                               "rejected: pcr 11 differs");
  assert_state (fixture, VMM_MACHINE_ATTESTING);
  g_assert_false (record->user_data_released);
  /* READY=1 keeps it, and so does the quote of another stage. */
  g_assert_true (test_peer_emit (ID, "ready"));
  machine_fixture_await_state (fixture, VMM_MACHINE_READY);
  g_assert_nonnull (strstr (record->last_error, "initrd attestation rejected"));
  vmm_machine_note_verdict (fixture->machine, other);
  g_assert_nonnull (record->last_error);
  g_assert_false (record->user_data_released);
  vmm_machine_note_verdict (fixture->machine, good);
  g_assert_null (record->last_error);
  g_assert_true (record->user_data_released);
  g_assert_cmpstr (record->pinned_key, ==, "key");
  /* Reset at the next boot, but for the pin. */
  g_assert_true (machine_fixture_reboot (fixture, NULL));
  g_assert_false (record->user_data_released);
  g_assert_false (record->ready_quote.present);
  g_assert_cmpstr (record->pinned_key, ==, "key");
  machine_fixture_free (fixture);
}

static void
test_cid_in_use (void)
{
  MachineFixture *fixture = machine_fixture_new ();
  g_autoptr (GError) error = NULL;
  g_autofree char *text = NULL;

  machine_fixture_make (fixture);
  test_fakes_fail_once ("launcher.start:qemu", VMM_ERROR_INTERNAL,
                        "vhost-vsock: unable to set guest cid: Address already in use");
  g_assert_true (machine_fixture_create (fixture, &error));
  g_assert_no_error (error);
  g_assert_cmpuint (machine_fixture_record (fixture)->cid, ==, 2001);
  g_assert_cmpuint (test_fakes_count ("launcher.start tpm"), ==, 1);
  g_assert_cmpuint (test_fakes_count ("launcher.start qemu"), ==, 2);
  text = machine_fixture_read_record (fixture);
  g_assert_nonnull (strstr (text, "\"cid\": 2001"));
  machine_fixture_free (fixture);

  /* Not for ever. */
  fixture = machine_fixture_new ();
  machine_fixture_make (fixture);
  test_fakes_fail ("launcher.start:qemu", VMM_ERROR_INTERNAL, "guest-cid 5 is in use");
  g_assert_false (machine_fixture_create (fixture, &error));
  g_assert_error (error, VMM_ERROR, VMM_ERROR_INTERNAL);
  g_assert_cmpuint (test_fakes_count ("launcher.start qemu"), ==, 17);
  machine_fixture_assert_nothing_left (fixture);
  machine_fixture_free (fixture);
}

static void
test_forwards (void)
{
  MachineFixture *fixture = machine_fixture_new ();
  VmmForward forward = { (char *) "f1", 80, (char *) "tcp", (char *) "127.0.0.1", 4000 };
  TestAwait added = TEST_AWAIT_INIT;
  TestAwait removed = TEST_AWAIT_INIT;
  TestAwait again = TEST_AWAIT_INIT;
  g_autoptr (GAsyncResult) result = NULL;
  g_autoptr (GAsyncResult) second = NULL;
  g_autoptr (GAsyncResult) third = NULL;
  g_autofree char *text = NULL;
  g_autoptr (GError) error = NULL;

  machine_fixture_bring_to (fixture, VMM_MACHINE_STOPPED);
  vmm_machine_add_forward_async (fixture->machine, &forward, test_await_cb, &added);
  result = test_await (&added);
  g_assert_true (vmm_machine_add_forward_finish (fixture->machine, result, NULL));
  text = machine_fixture_read_record (fixture);
  g_assert_nonnull (strstr (text, "\"hostPort\": 4000"));
  vmm_machine_remove_forward_async (fixture->machine, "f1", test_await_cb, &removed);
  second = test_await (&removed);
  g_assert_true (vmm_machine_remove_forward_finish (fixture->machine, second, NULL));
  vmm_machine_remove_forward_async (fixture->machine, "f1", test_await_cb, &again);
  third = test_await (&again);
  g_assert_false (vmm_machine_remove_forward_finish (fixture->machine, third, &error));
  g_assert_error (error, VMM_ERROR, VMM_ERROR_NOT_FOUND);
  g_clear_object (&result);
  g_clear_object (&second);
  g_clear_object (&third);
  machine_fixture_free (fixture);
}

/* An event raised by who watches is handled after the one he saw. */
static void
raise_again_cb (GObject *object, GParamSpec *pspec, gpointer user_data)
{
  VmmMachine *machine = VMM_MACHINE (object);
  guint *depth = user_data;

  if (vmm_machine_get_state (machine) != VMM_MACHINE_RUNNING)
    return;
  (*depth)++;
  g_assert_true (
      vmm_machine_handle_event (machine, VMM_MACHINE_EVENT_GUEST_READY, NULL, NULL));
  g_assert_cmpint (vmm_machine_get_state (machine), ==, VMM_MACHINE_RUNNING);
}

static void
test_reentrancy (void)
{
  MachineFixture *fixture = machine_fixture_new ();
  guint depth = 0;

  machine_fixture_bring_to (fixture, VMM_MACHINE_BOOTING);
  g_signal_connect (fixture->machine, "notify::state", G_CALLBACK (raise_again_cb), &depth);
  g_assert_true (vmm_machine_handle_event (fixture->machine, VMM_MACHINE_EVENT_BOOT_TIMEOUT,
                                           "late", NULL));
  g_assert_cmpuint (depth, ==, 1);
  assert_state (fixture, VMM_MACHINE_READY);
  g_signal_handlers_disconnect_by_func (fixture->machine, raise_again_cb, &depth);
  machine_fixture_free (fixture);
}

int
main (int argc, char **argv)
{
  g_test_init (&argc, &argv, G_TEST_OPTION_ISOLATE_DIRS, NULL);
  g_test_add_func ("/machine/create", test_create);
  g_test_add_func ("/machine/two-phases", test_two_phases);
  g_test_add_func ("/machine/installer-outcomes", test_installer_outcomes);
  g_test_add_func ("/machine/installer-without-monitor", test_installer_without_monitor);
  g_test_add_func ("/machine/console-in-error", test_console_in_error);
  g_test_add_func ("/machine/huge-console", test_huge_console);
  g_test_add_func ("/machine/install-timeout", test_install_timeout);
  g_test_add_func ("/machine/boot-timeout", test_boot_timeout);
  g_test_add_func ("/machine/guest-ends", test_guest_ends);
  g_test_add_func ("/machine/stop", test_stop);
  g_test_add_func ("/machine/stop-by-force", test_stop_by_force);
  g_test_add_func ("/machine/stop-without-end", test_stop_without_end);
  g_test_add_func ("/machine/second-stop-joins", test_second_stop_joins);
  g_test_add_func ("/machine/stop-during-handoff", test_stop_during_handoff);
  g_test_add_func ("/machine/stop-while-installing", test_stop_while_installing);
  g_test_add_func ("/machine/refusals", test_refusals);
  g_test_add_func ("/machine/delete-is-recorded-first", test_delete_is_recorded_first);
  g_test_add_func ("/machine/create-while-closing", test_create_while_closing);
  g_test_add_func ("/machine/delete", test_delete);
  g_test_add_func ("/machine/delete-order", test_delete_order);
  g_test_add_func ("/machine/delete-during-handoff", test_delete_during_handoff);
  g_test_add_func ("/machine/delete-spares-a-disk-in-use", test_delete_spares_a_disk_in_use);
  g_test_add_func ("/machine/reset", test_reset);
  g_test_add_func ("/machine/pause", test_pause);
  g_test_add_func ("/machine/helpers", test_helpers);
  g_test_add_func ("/machine/rejection", test_rejection);
  g_test_add_func ("/machine/cid-in-use", test_cid_in_use);
  g_test_add_func ("/machine/forwards", test_forwards);
  g_test_add_func ("/machine/reentrancy", test_reentrancy);
  return g_test_run ();
}

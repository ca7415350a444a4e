/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The daemon ends, or is killed, and comes back. */

#include "config.h"

#include <string.h>

#include "fake-backends.h"
#include "fake-peers.h"
#include "machine-fixture.h"

#define ID MACHINE_FIXTURE_ID
#define RESTARTED "vm-manager restarted while the VM was "

static void
assert_state (MachineFixture *fixture, VmmMachineState state)
{
  g_assert_cmpstr (vmm_machine_state_to_nick (vmm_machine_get_state (fixture->machine)), ==,
                   vmm_machine_state_to_nick (state));
}

static void
assert_error (MachineFixture *fixture, const char *text)
{
  g_assert_cmpstr (machine_fixture_record (fixture)->last_error, ==, text);
}

static MachineFixture *
killed_in (VmmMachineState state, gboolean outlives)
{
  MachineFixture *fixture = machine_fixture_new ();

  test_fakes.outlives_daemon = outlives;
  machine_fixture_bring_to (fixture, state);
  machine_fixture_kill (fixture);
  test_fakes_clear_log ();
  return fixture;
}

static void
test_children_die_with_the_daemon (void)
{
  static const VmmMachineState states[] = {
    VMM_MACHINE_BOOTING, VMM_MACHINE_ATTESTING, VMM_MACHINE_READY,
    VMM_MACHINE_RUNNING, VMM_MACHINE_STOPPING,
  };

  for (guint i = 0; i < G_N_ELEMENTS (states); i++)
    {
      MachineFixture *fixture = killed_in (states[i], FALSE);
      g_autofree char *text = NULL;
      g_autofree char *record = NULL;

      machine_fixture_recover (fixture);
      assert_state (fixture, VMM_MACHINE_STOPPED);
      text = g_strdup_printf (
          RESTARTED "%s and could not reattach to its QEMU (launcher cannot reattach processes); "
                    "start the VM again",
          vmm_machine_state_to_nick (states[i]));
      assert_error (fixture, text);
      record = machine_fixture_read_record (fixture);
      g_assert_nonnull (strstr (record, "\"state\": \"stopped\""));
      g_assert_null (strstr (record, "\"processes\""));
      test_peer_behaviour.ready_ms = 0;
      g_assert_true (machine_fixture_start (fixture, NULL));
      machine_fixture_await_state (fixture, VMM_MACHINE_READY);
      machine_fixture_free (fixture);
    }
}

static void
test_reattach (void)
{
  MachineFixture *fixture = killed_in (VMM_MACHINE_READY, TRUE);
  const VmmMachineRecord *record;
  g_autofree char *before = machine_fixture_read_record (fixture);
  g_autofree char *after = NULL;

  machine_fixture_recover (fixture);
  assert_state (fixture, VMM_MACHINE_READY);
  record = machine_fixture_record (fixture);
  g_assert_null (record->last_error);
  g_assert_true (record->booted);
  after = machine_fixture_read_record (fixture);
  g_assert_cmpstr (after, ==, before);
  g_assert_cmpuint (test_fakes_count ("launcher.find qemu"), ==, 1);
  g_assert_cmpuint (test_fakes_count ("launcher.start qemu"), ==, 0);
  g_assert_true (test_fakes_is_attached (ID));
  /* It is ours again: QMP works, so the button does. */
  g_assert_true (machine_fixture_stop (fixture, NULL));
  g_assert_cmpuint (test_peer_get_n_powerdowns (ID), ==, 1);
  machine_fixture_free (fixture);
}

static void
test_journal_is_read_on (void)
{
  MachineFixture *fixture = killed_in (VMM_MACHINE_BOOTING, TRUE);

  /* While nobody looked. */
  g_assert_true (test_peer_emit (ID, "ready"));
  machine_fixture_recover (fixture);
  machine_fixture_await_state (fixture, VMM_MACHINE_READY);
  machine_fixture_kill (fixture);
  test_peer_behaviour.ready_ms = TEST_PEER_NEVER;
  g_assert_true (test_peer_emit (ID, "reset"));
  machine_fixture_recover (fixture);
  machine_fixture_await_state (fixture, VMM_MACHINE_BOOTING);
  g_assert_cmpint (machine_fixture_record (fixture)->ready_at, ==, 0);
  machine_fixture_free (fixture);
}

static void
test_timer_begins_anew (void)
{
  MachineFixture *fixture = killed_in (VMM_MACHINE_BOOTING, TRUE);

  fixture->context.boot_timeout_us = 1000;
  machine_fixture_recover (fixture);
  machine_fixture_await_state (fixture, VMM_MACHINE_RUNNING);
  machine_fixture_free (fixture);
}

static void
test_qemu_is_gone (void)
{
  MachineFixture *fixture = killed_in (VMM_MACHINE_READY, TRUE);

  test_fakes_vanish (ID, "qemu");
  test_fakes_fail ("launcher.find:qemu", VMM_ERROR_NOT_FOUND, "unit x");
  g_assert_true (test_fakes_is_running (ID, "tpm"));
  machine_fixture_recover (fixture);
  assert_state (fixture, VMM_MACHINE_STOPPED);
  assert_error (fixture, RESTARTED "ready and could not reattach to its QEMU (process is gone: "
                                   "unit x); start the VM again");
  /* Nothing is left over of it. */
  g_assert_cmpuint (test_fakes_get_n_running (), ==, 0);
  test_fakes_clear ("launcher.find:qemu");
  g_assert_true (machine_fixture_start (fixture, NULL));
  machine_fixture_await_state (fixture, VMM_MACHINE_READY);
  machine_fixture_free (fixture);
}

static void
test_exit_while_away (void)
{
  MachineFixture *fixture = killed_in (VMM_MACHINE_READY, TRUE);

  machine_fixture_end_qemu (fixture, 5, 0, NULL);
  machine_fixture_recover (fixture);
  machine_fixture_await_state (fixture, VMM_MACHINE_FAILED);
  assert_error (fixture, "qemu exited: exit status 5");
  g_assert_cmpuint (test_fakes_get_n_running (), ==, 0);
  machine_fixture_free (fixture);
}

static void
test_installer_ended_while_away (void)
{
  static const struct
  {
    const char *reason;
    VmmMachineState state;
  } rows[] = {
    { "guest-reset", VMM_MACHINE_READY },
    { "guest-shutdown", VMM_MACHINE_FAILED },
  };

  for (guint i = 0; i < G_N_ELEMENTS (rows); i++)
    {
      MachineFixture *fixture = killed_in (VMM_MACHINE_INSTALLING, TRUE);

      machine_fixture_end_qemu (fixture, 0, 0, rows[i].reason);
      machine_fixture_recover (fixture);
      machine_fixture_await_state (fixture, rows[i].state);
      machine_fixture_free (fixture);
    }
}

static void
test_stop_is_resumed (void)
{
  MachineFixture *fixture = killed_in (VMM_MACHINE_STOPPING, TRUE);

  test_peer_behaviour.ignore_powerdown = FALSE;
  machine_fixture_recover (fixture);
  machine_fixture_await_state (fixture, VMM_MACHINE_STOPPED);
  g_assert_null (machine_fixture_record (fixture)->last_error);
  machine_fixture_free (fixture);
}

static void
test_interrupted (void)
{
  static const VmmMachineState states[] = { VMM_MACHINE_CREATING, VMM_MACHINE_DELETING };

  for (guint i = 0; i < G_N_ELEMENTS (states); i++)
    {
      MachineFixture *fixture = machine_fixture_new ();
      g_autofree char *text = g_strdup_printf (RESTARTED "%s; delete it",
                                               vmm_machine_state_to_nick (states[i]));
      g_autofree char *state = g_strdup_printf ("\"state\": \"%s\"",
                                                vmm_machine_state_to_nick (states[i]));
      g_autoptr (GError) error = NULL;

      /* With processes that had been started already. */
      test_fakes.outlives_daemon = TRUE;
      machine_fixture_bring_to (fixture, VMM_MACHINE_INSTALLING);
      machine_fixture_kill (fixture);
      machine_fixture_edit_record (fixture, "\"state\": \"installing\"", state);
      machine_fixture_recover (fixture);
      assert_state (fixture, VMM_MACHINE_FAILED);
      assert_error (fixture, text);
      g_assert_cmpuint (test_fakes_get_n_running (), ==, 0);
      g_assert_false (machine_fixture_start (fixture, &error));
      g_assert_error (error, VMM_ERROR, VMM_ERROR_CONFLICT);
      g_assert_true (machine_fixture_delete (fixture, NULL));
      machine_fixture_assert_nothing_left (fixture);
      machine_fixture_free (fixture);
    }
}

static void
test_no_handles (void)
{
  MachineFixture *fixture = killed_in (VMM_MACHINE_READY, TRUE);

  machine_fixture_edit_record (fixture, "\"processes\": {", "\"other\": {");
  machine_fixture_recover (fixture);
  assert_state (fixture, VMM_MACHINE_STOPPED);
  assert_error (fixture, RESTARTED "ready and could not reattach to its QEMU (no process handles "
                                   "recorded); start the VM again");
  /* What ran unrecorded was found all the same. */
  g_assert_cmpuint (test_fakes_get_n_running (), ==, 0);
  g_assert_true (machine_fixture_start (fixture, NULL));
  machine_fixture_await_state (fixture, VMM_MACHINE_READY);
  machine_fixture_free (fixture);
}

/* Killed in the middle of a start: a QEMU that nobody would ever let run does not stay. */
static void
test_killed_in_start (void)
{
  MachineFixture *fixture = machine_fixture_new ();
  g_autoptr (GError) error = NULL;

  test_fakes.outlives_daemon = TRUE;
  machine_fixture_bring_to (fixture, VMM_MACHINE_STOPPED);
  test_fakes_fail ("launcher.start:monitor", VMM_ERROR_INTERNAL, "the daemon is killed here");
  test_fakes_lie ("process.stop:qemu");
  g_assert_false (machine_fixture_start (fixture, &error));
  g_assert_error (error, VMM_ERROR, VMM_ERROR_INTERNAL);
  g_assert_true (test_fakes_is_running (ID, "qemu"));
  machine_fixture_kill (fixture);
  test_fakes_clear ("launcher.start:monitor");
  test_fakes_clear ("process.stop:qemu");
  machine_fixture_edit_record (fixture, "\"state\": \"failed\"", "\"state\": \"booting\"");
  machine_fixture_recover (fixture);
  assert_state (fixture, VMM_MACHINE_STOPPED);
  assert_error (fixture, RESTARTED "booting and could not reattach to its QEMU (its start was "
                                   "interrupted); start the VM again");
  g_assert_cmpuint (test_fakes_get_n_running (), ==, 0);
  g_assert_true (machine_fixture_start (fixture, NULL));
  machine_fixture_await_state (fixture, VMM_MACHINE_READY);
  machine_fixture_free (fixture);
}

/* The boot behind the installer had begun, and only that was not written down. */
static void
test_killed_after_handoff (void)
{
  MachineFixture *fixture = killed_in (VMM_MACHINE_BOOTING, TRUE);

  machine_fixture_edit_record (fixture, "\"state\": \"booting\"", "\"state\": \"installing\"");
  machine_fixture_edit_record (fixture, "\"phase\": \"boot\"", "\"phase\": \"install\"");
  machine_fixture_recover (fixture);
  assert_state (fixture, VMM_MACHINE_BOOTING);
  g_assert_cmpstr (machine_fixture_record (fixture)->phase, ==, "boot");
  g_assert_true (test_peer_emit (ID, "ready"));
  machine_fixture_await_state (fixture, VMM_MACHINE_READY);
  machine_fixture_free (fixture);
}

/* A disk or an address that is lost: the guest cannot go on, and stopped must be true. */
static void
test_resources_lost (void)
{
  static const char *const calls[] = { "storage.acquire", "network.attach" };

  for (guint i = 0; i < G_N_ELEMENTS (calls); i++)
    {
      MachineFixture *fixture = killed_in (VMM_MACHINE_READY, TRUE);

      test_fakes_fail (calls[i], VMM_ERROR_NOT_FOUND, "it went away");
      machine_fixture_recover (fixture);
      assert_state (fixture, VMM_MACHINE_STOPPED);
      g_assert_nonnull (strstr (machine_fixture_record (fixture)->last_error, "it went away"));
      g_assert_cmpuint (test_fakes_get_n_running (), ==, 0);
      /* And nothing keeps the next start from it. */
      test_fakes_clear (calls[i]);
      g_assert_true (machine_fixture_start (fixture, NULL));
      machine_fixture_await_state (fixture, VMM_MACHINE_READY);
      machine_fixture_free (fixture);
    }
}

static void
test_helpers_lost (void)
{
  static const char *const calls[] = { "launcher.find:tpm", "launcher.find:monitor" };

  for (guint i = 0; i < G_N_ELEMENTS (calls); i++)
    {
      MachineFixture *fixture = killed_in (VMM_MACHINE_READY, TRUE);

      test_fakes_fail (calls[i], VMM_ERROR_NOT_FOUND, "gone");
      machine_fixture_recover (fixture);
      assert_state (fixture, VMM_MACHINE_READY);
      g_assert_true (test_fakes_is_running (ID, "qemu"));
      g_assert_true (machine_fixture_stop (fixture, NULL));
      machine_fixture_free (fixture);
    }
}

static void
test_crash_between_boots (void)
{
  MachineFixture *fixture = machine_fixture_new ();

  test_fakes.outlives_daemon = TRUE;
  machine_fixture_bring_to_installed (fixture);
  machine_fixture_close (fixture, FALSE, NULL);
  /* As if the daemon had been killed instead, before the boot had begun. */
  machine_fixture_kill (fixture);
  test_fakes_clear ("launcher.start:tpm");
  machine_fixture_edit_record (fixture, "\"state\": \"stopped\"", "\"state\": \"installing\"");
  machine_fixture_recover (fixture);
  assert_state (fixture, VMM_MACHINE_STOPPED);
  g_assert_true (machine_fixture_start (fixture, NULL));
  machine_fixture_await_state (fixture, VMM_MACHINE_READY);
  machine_fixture_free (fixture);
}

static void
test_settled_records_are_left_alone (void)
{
  static const VmmMachineState states[] = { VMM_MACHINE_STOPPED, VMM_MACHINE_FAILED };

  for (guint i = 0; i < G_N_ELEMENTS (states); i++)
    {
      MachineFixture *fixture = killed_in (states[i], TRUE);
      g_autofree char *before = machine_fixture_read_record (fixture);
      g_autofree char *after = NULL;
      g_autofree char *log = NULL;

      machine_fixture_recover (fixture);
      assert_state (fixture, states[i]);
      after = machine_fixture_read_record (fixture);
      g_assert_cmpstr (after, ==, before);
      log = test_fakes_dup_log ();
      g_assert_null (strstr (log, "launcher"));
      machine_fixture_free (fixture);
    }
}

static void
test_close_detaches (void)
{
  MachineFixture *fixture = machine_fixture_new ();

  test_fakes.outlives_daemon = TRUE;
  machine_fixture_bring_to (fixture, VMM_MACHINE_READY);
  test_fakes_clear_log ();
  g_assert_true (machine_fixture_close (fixture, TRUE, NULL));
  assert_state (fixture, VMM_MACHINE_READY);
  g_assert_cmpuint (test_fakes_get_n_running (), ==, 3);
  g_assert_cmpuint (test_fakes_count ("process.stop qemu"), ==, 0);
  machine_fixture_kill (fixture);
  machine_fixture_recover (fixture);
  assert_state (fixture, VMM_MACHINE_READY);
  machine_fixture_free (fixture);
}

/* Asked to detach from what would die anyway, it stops it in good order. */
static void
test_close_stops (void)
{
  for (guint detach = 0; detach < 2; detach++)
    {
      MachineFixture *fixture = machine_fixture_new ();

      machine_fixture_bring_to (fixture, VMM_MACHINE_READY);
      g_assert_true (machine_fixture_close (fixture, detach != 0, NULL));
      assert_state (fixture, VMM_MACHINE_STOPPED);
      g_assert_null (machine_fixture_record (fixture)->last_error);
      g_assert_cmpuint (test_fakes_get_n_running (), ==, 0);
      g_assert_cmpuint (test_peer_get_n_powerdowns (ID), ==, 1);
      machine_fixture_free (fixture);
    }
}

static void
test_close_in_handoff (void)
{
  MachineFixture *fixture = machine_fixture_new ();

  machine_fixture_bring_to_installed (fixture);
  g_assert_true (machine_fixture_close (fixture, FALSE, NULL));
  assert_state (fixture, VMM_MACHINE_STOPPED);
  assert_error (fixture,
                "vm-manager shut down before the installed boot started; start the VM");
  g_assert_cmpuint (test_fakes_get_n_running (), ==, 0);
  machine_fixture_free (fixture);
}

/* The installer ends when the daemon has begun to. */
static void
test_close_before_handoff (void)
{
  MachineFixture *fixture = machine_fixture_new ();

  machine_fixture_bring_to (fixture, VMM_MACHINE_INSTALLING);
  fixture->context.closing = TRUE;
  machine_fixture_end_qemu (fixture, 0, 0, "guest-reset");
  machine_fixture_await_state (fixture, VMM_MACHINE_STOPPED);
  assert_error (fixture,
                "vm-manager shut down before the installed boot started; start the VM");
  g_assert_cmpint (machine_fixture_record (fixture)->installed_at, !=, 0);
  g_assert_true (machine_fixture_close (fixture, FALSE, NULL));
  fixture->context.closing = FALSE;
  g_assert_true (machine_fixture_start (fixture, NULL));
  machine_fixture_await_state (fixture, VMM_MACHINE_READY);
  machine_fixture_free (fixture);
}

static void
test_close_in_create (void)
{
  MachineFixture *fixture = machine_fixture_new ();

  machine_fixture_bring_to (fixture, VMM_MACHINE_CREATING);
  g_assert_true (machine_fixture_close (fixture, FALSE, NULL));
  g_assert_true (fixture->gone);
  machine_fixture_assert_nothing_left (fixture);
  machine_fixture_free (fixture);
}

int
main (int argc, char **argv)
{
  g_test_init (&argc, &argv, G_TEST_OPTION_ISOLATE_DIRS, NULL);
  g_test_add_func ("/machine-recover/children-die", test_children_die_with_the_daemon);
  g_test_add_func ("/machine-recover/reattach", test_reattach);
  g_test_add_func ("/machine-recover/journal-is-read-on", test_journal_is_read_on);
  g_test_add_func ("/machine-recover/timer-begins-anew", test_timer_begins_anew);
  g_test_add_func ("/machine-recover/qemu-is-gone", test_qemu_is_gone);
  g_test_add_func ("/machine-recover/exit-while-away", test_exit_while_away);
  g_test_add_func ("/machine-recover/installer-ended-while-away", test_installer_ended_while_away);
  g_test_add_func ("/machine-recover/stop-is-resumed", test_stop_is_resumed);
  g_test_add_func ("/machine-recover/interrupted", test_interrupted);
  g_test_add_func ("/machine-recover/no-handles", test_no_handles);
  g_test_add_func ("/machine-recover/killed-in-start", test_killed_in_start);
  g_test_add_func ("/machine-recover/killed-after-handoff", test_killed_after_handoff);
  g_test_add_func ("/machine-recover/resources-lost", test_resources_lost);
  g_test_add_func ("/machine-recover/helpers-lost", test_helpers_lost);
  g_test_add_func ("/machine-recover/crash-between-boots", test_crash_between_boots);
  g_test_add_func ("/machine-recover/settled", test_settled_records_are_left_alone);
  g_test_add_func ("/machine-recover/close-detaches", test_close_detaches);
  g_test_add_func ("/machine-recover/close-stops", test_close_stops);
  g_test_add_func ("/machine-recover/close-in-handoff", test_close_in_handoff);
  g_test_add_func ("/machine-recover/close-before-handoff", test_close_before_handoff);
  g_test_add_func ("/machine-recover/close-in-create", test_close_in_create);
  return g_test_run ();
}

/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Every row of the table is taken by a real machine on fake backends.
 *
 * A row's state is reached by what leads there, and its event is caused where it comes from: a
 * request, a process that exits, an entry of the journal, a timer, a restart. Only what no outside
 * can cause by itself (a boot that is reported to a VM that is being stopped) is raised by hand.
 */

#include "config.h"

#include "fake-backends.h"
#include "fake-peers.h"
#include "machine-fixture.h"
#include "test-await.h"

#define ID MACHINE_FIXTURE_ID

typedef const VmmMachineTransition Row;

static gboolean
is_seen (gpointer user_data)
{
  Row *row = user_data;

  return machine_fixture_seen[row->from][row->event][row->to] != 0;
}

static void
ignore_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
}

static void
raise_by_hand (MachineFixture *fixture, Row *row)
{
  vmm_machine_handle_event (fixture->machine, row->event, "raised by hand", NULL);
}

/* The handoff, where an installing VM is installed. */
static void
bring_to (MachineFixture *fixture, Row *row)
{
  if (row->from == VMM_MACHINE_INSTALLING && (row->need & VMM_MACHINE_GUARD_INSTALLED) != 0)
    {
      machine_fixture_bring_to_installed (fixture);
      return;
    }
  if (row->event == VMM_MACHINE_EVENT_NONCE_ISSUED
      && (row->need & VMM_MACHINE_GUARD_ATTESTATION_REQUIRED) != 0)
    fixture->require_attestation = TRUE;
  machine_fixture_bring_to (fixture, row->from);
}

/* A row that begins with a daemon's start. */
static void
restart (MachineFixture *fixture, Row *row)
{
  gboolean interrupted = row->event == VMM_MACHINE_EVENT_INTERRUPTED;
  g_autofree char *state
      = g_strdup_printf ("\"state\": \"%s\"", vmm_machine_state_to_nick (row->from));

  test_fakes.outlives_daemon = row->event == VMM_MACHINE_EVENT_REATTACHED;
  if (interrupted)
    machine_fixture_bring_to (fixture, VMM_MACHINE_STOPPED);
  else
    machine_fixture_bring_to (fixture, row->from);
  machine_fixture_kill (fixture);
  if (interrupted)
    machine_fixture_edit_record (fixture, "\"state\": \"stopped\"", state);
  machine_fixture_recover (fixture);
}

static void
create (MachineFixture *fixture, Row *row)
{
  machine_fixture_make (fixture);
  if (row->event == VMM_MACHINE_EVENT_CREATE_FAILED)
    test_fakes_fail ("storage.acquire", VMM_ERROR_INTERNAL, "no");
  machine_fixture_create (fixture, NULL);
}

/* A timer that fires at once. */
static void
time_out (MachineFixture *fixture, Row *row)
{
  if (row->from == VMM_MACHINE_ATTESTING)
    {
      bring_to (fixture, row);
      raise_by_hand (fixture, row);
      return;
    }
  fixture->context.install_timeout_us = 1000;
  fixture->context.boot_timeout_us = 1000;
  test_peer_behaviour.ready_ms = TEST_PEER_NEVER;
  if (row->from == VMM_MACHINE_INSTALLING)
    test_peer_behaviour.installer_ms = TEST_PEER_NEVER;
  else
    fixture->context.install_timeout_us = 300 * G_USEC_PER_SEC;
  machine_fixture_make (fixture);
  machine_fixture_create (fixture, NULL);
}

/* The installed boot: it begins, fails, or is overtaken. */
static void
boot (MachineFixture *fixture, Row *row)
{
  if (row->from == VMM_MACHINE_BOOTING)
    {
      machine_fixture_bring_to (fixture, VMM_MACHINE_STOPPED);
      if (row->event == VMM_MACHINE_EVENT_BOOT_FAILED)
        test_fakes_fail ("launcher.start:tpm", VMM_ERROR_INTERNAL, "no");
      if (row->event != VMM_MACHINE_EVENT_BOOT_CANCELLED)
        {
          machine_fixture_start (fixture, NULL);
          return;
        }
      test_fakes_hang ("launcher.start:tpm");
      vmm_machine_start_async (fixture->machine, NULL, ignore_cb, NULL);
      machine_fixture_close (fixture, FALSE, NULL);
      return;
    }
  bring_to (fixture, row);
  if (row->from != VMM_MACHINE_INSTALLING)
    raise_by_hand (fixture, row);
  else if (row->event == VMM_MACHINE_EVENT_BOOT_STARTED)
    test_fakes_release ("launcher.start:tpm");
  else if (row->event == VMM_MACHINE_EVENT_BOOT_CANCELLED)
    machine_fixture_close (fixture, FALSE, NULL);
  else
    {
      /* The one that hangs goes on; the next fails. */
      test_fakes_fail ("launcher.start:qemu", VMM_ERROR_INTERNAL, "no");
      test_fakes_release ("launcher.start:tpm");
    }
}

static void
emit (MachineFixture *fixture, Row *row)
{
  bring_to (fixture, row);
  switch (row->event)
    {
    case VMM_MACHINE_EVENT_GUEST_READY:
      g_assert_true (test_peer_emit (ID, "ready"));
      break;
    case VMM_MACHINE_EVENT_GUEST_STATUS:
      g_assert_true (test_peer_emit (ID, "status"));
      break;
    case VMM_MACHINE_EVENT_GUEST_RESET:
      g_assert_true (test_peer_emit (ID, "reset"));
      break;
    case VMM_MACHINE_EVENT_GUEST_PAUSED:
      g_assert_true (test_peer_emit (ID, "stop"));
      break;
    case VMM_MACHINE_EVENT_GUEST_RESUMED:
      g_assert_true (test_peer_emit (ID, "stop"));
      g_assert_true (test_peer_emit (ID, "resume"));
      break;
    default:
      g_assert_not_reached ();
    }
}

static void
end_process (MachineFixture *fixture, Row *row)
{
  gboolean success = row->event == VMM_MACHINE_EVENT_PROCESS_EXITED_OK;

  if (row->from == VMM_MACHINE_INSTALLING && (row->need & VMM_MACHINE_GUARD_TIMED_OUT) != 0)
    {
      /* It ends well just when it is killed for its time. */
      machine_fixture_bring_to (fixture, VMM_MACHINE_INSTALLING);
      test_fakes_hang ("process.stop:qemu");
      vmm_machine_handle_event (fixture->machine, VMM_MACHINE_EVENT_INSTALL_TIMEOUT, NULL, NULL);
      /* An exit after the timeout is a failure, whatever it says; see that the table agrees. */
      raise_by_hand (fixture, row);
      test_fakes_release ("process.stop:qemu");
      return;
    }
  bring_to (fixture, row);
  machine_fixture_end_qemu (fixture, success ? 0 : 1, 0,
                            row->from == VMM_MACHINE_INSTALLING ? "guest-reset" : NULL);
}

static void
request (MachineFixture *fixture, Row *row)
{
  bring_to (fixture, row);
  switch (row->event)
    {
    case VMM_MACHINE_EVENT_START_REQUESTED:
      g_assert_true (machine_fixture_start (fixture, NULL));
      break;
    case VMM_MACHINE_EVENT_STOP_REQUESTED:
      vmm_machine_stop_async (fixture->machine, NULL, ignore_cb, NULL);
      break;
    case VMM_MACHINE_EVENT_DELETE_REQUESTED:
      g_assert_true (machine_fixture_delete (fixture, NULL));
      break;
    default:
      g_assert_not_reached ();
    }
}

static void
end_delete (MachineFixture *fixture, Row *row)
{
  machine_fixture_bring_to (fixture, VMM_MACHINE_READY);
  if (row->event == VMM_MACHINE_EVENT_DELETE_FAILED)
    test_fakes_lie ("process.stop:qemu");
  machine_fixture_delete (fixture, NULL);
  test_fakes_clear ("process.stop:qemu");
}

static void
cause (MachineFixture *fixture, Row *row)
{
  switch (row->event)
    {
    case VMM_MACHINE_EVENT_INSTALLER_STARTED:
    case VMM_MACHINE_EVENT_CREATE_FAILED:
      create (fixture, row);
      break;
    case VMM_MACHINE_EVENT_START_REQUESTED:
    case VMM_MACHINE_EVENT_STOP_REQUESTED:
    case VMM_MACHINE_EVENT_DELETE_REQUESTED:
      request (fixture, row);
      break;
    case VMM_MACHINE_EVENT_BOOT_STARTED:
    case VMM_MACHINE_EVENT_BOOT_FAILED:
    case VMM_MACHINE_EVENT_BOOT_CANCELLED:
      boot (fixture, row);
      break;
    case VMM_MACHINE_EVENT_NONCE_ISSUED:
      bring_to (fixture, row);
      vmm_machine_note_nonce (fixture->machine);
      break;
    case VMM_MACHINE_EVENT_GUEST_READY:
    case VMM_MACHINE_EVENT_GUEST_STATUS:
    case VMM_MACHINE_EVENT_GUEST_RESET:
    case VMM_MACHINE_EVENT_GUEST_PAUSED:
    case VMM_MACHINE_EVENT_GUEST_RESUMED:
      emit (fixture, row);
      break;
    case VMM_MACHINE_EVENT_INSTALL_TIMEOUT:
    case VMM_MACHINE_EVENT_BOOT_TIMEOUT:
      time_out (fixture, row);
      break;
    case VMM_MACHINE_EVENT_PROCESS_EXITED_OK:
    case VMM_MACHINE_EVENT_PROCESS_EXITED_ERROR:
      end_process (fixture, row);
      break;
    case VMM_MACHINE_EVENT_HELPER_DIED:
      bring_to (fixture, row);
      test_fakes_exit (ID, "tpm", 1, 0);
      break;
    case VMM_MACHINE_EVENT_DISCARDED:
    case VMM_MACHINE_EVENT_DELETE_FAILED:
      end_delete (fixture, row);
      break;
    case VMM_MACHINE_EVENT_REATTACHED:
    case VMM_MACHINE_EVENT_NOT_REATTACHED:
    case VMM_MACHINE_EVENT_INTERRUPTED:
      restart (fixture, row);
      break;
    default:
      g_assert_not_reached ();
    }
}

static void
test_every_row (void)
{
  guint n_reached = 0;

  for (guint i = 0; i < vmm_machine_n_transitions; i++)
    {
      Row *row = &vmm_machine_transitions[i];
      MachineFixture *fixture;

      g_test_message ("%s: %s -> %s", vmm_machine_state_to_nick (row->from),
                      vmm_machine_event_to_nick (row->event), vmm_machine_state_to_nick (row->to));
      if (!is_seen ((gpointer) row))
        {
          fixture = machine_fixture_new ();
          cause (fixture, row);
          test_await_condition (is_seen, (gpointer) row);
          machine_fixture_free (fixture);
        }
      n_reached++;
    }
  g_test_message ("rows reached: %u / %u", n_reached, vmm_machine_n_transitions);
  g_assert_cmpuint (n_reached, ==, vmm_machine_n_transitions);
}

int
main (int argc, char **argv)
{
  g_test_init (&argc, &argv, G_TEST_OPTION_ISOLATE_DIRS, NULL);
  g_test_add_func ("/machine-rows/every-row", test_every_row);
  return g_test_run ();
}

/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The table of states: every pair of state and event has the answer that is written down here. */

#include "config.h"

#include <string.h>

#include "vmm-machine-fsm.h"

#define INSTALLED VMM_MACHINE_GUARD_INSTALLED
#define REQUIRED VMM_MACHINE_GUARD_ATTESTATION_REQUIRED
#define CLOSING VMM_MACHINE_GUARD_CLOSING
#define TIMED_OUT VMM_MACHINE_GUARD_TIMED_OUT

/* One column per state: the next state's letter, "-" refused or ignored.
 * Guards of the first table: installed. */
typedef struct
{
  VmmMachineEvent event;
  const char *answers;
} Expected;

/* creating, Installing, Booting, Attesting, Ready, rUnning, stoPping, stopped (s), Failed, Deleting,
 * gone (x). */
static const char letters[] = "cIBARUPsFDx";

static const Expected installed_vm[] = {
  { VMM_MACHINE_EVENT_INSTALLER_STARTED, "I---------" },
  { VMM_MACHINE_EVENT_CREATE_FAILED, "x---------" },
  { VMM_MACHINE_EVENT_START_REQUESTED, "-------BB-" },
  { VMM_MACHINE_EVENT_BOOT_STARTED, "-BB---P---" },
  { VMM_MACHINE_EVENT_BOOT_FAILED, "-FF---s---" },
  { VMM_MACHINE_EVENT_NONCE_ISSUED, "--BARU----" },
  { VMM_MACHINE_EVENT_GUEST_READY, "--RR-R----" },
  { VMM_MACHINE_EVENT_GUEST_STATUS, "-IBARUP---" },
  { VMM_MACHINE_EVENT_GUEST_RESET, "--BBBB----" },
  { VMM_MACHINE_EVENT_GUEST_PAUSED, "-IBARUP---" },
  { VMM_MACHINE_EVENT_GUEST_RESUMED, "-IBARUP---" },
  { VMM_MACHINE_EVENT_INSTALL_TIMEOUT, "----------" },
  { VMM_MACHINE_EVENT_BOOT_TIMEOUT, "--UU------" },
  { VMM_MACHINE_EVENT_PROCESS_EXITED_OK, "-Isssss---" },
  { VMM_MACHINE_EVENT_PROCESS_EXITED_ERROR, "-FFFFFs---" },
  { VMM_MACHINE_EVENT_HELPER_DIED, "-IBARU----" },
  { VMM_MACHINE_EVENT_STOP_REQUESTED, "-PPPPPP---" },
  { VMM_MACHINE_EVENT_DELETE_REQUESTED, "DDDDDDDDD-" },
  { VMM_MACHINE_EVENT_DISCARDED, "---------x" },
  { VMM_MACHINE_EVENT_REATTACHED, "-IBARUP---" },
  { VMM_MACHINE_EVENT_NOT_REATTACHED, "-ssssss---" },
  { VMM_MACHINE_EVENT_INTERRUPTED, "F--------F" },
  { VMM_MACHINE_EVENT_BOOT_CANCELLED, "-ss---s---" },
  { VMM_MACHINE_EVENT_DELETE_FAILED, "---------P" },
};
G_STATIC_ASSERT (G_N_ELEMENTS (installed_vm) == VMM_MACHINE_N_EVENTS);

/* What differs with other guards. */
typedef struct
{
  guint guards;
  VmmMachineEvent event;
  const char *answers;
} Guarded;

static const Guarded guarded[] = {
  { 0, VMM_MACHINE_EVENT_START_REQUESTED, "----------" },
  { INSTALLED | CLOSING, VMM_MACHINE_EVENT_START_REQUESTED, "----------" },
  { 0, VMM_MACHINE_EVENT_BOOT_STARTED, "--B---P---" },
  { 0, VMM_MACHINE_EVENT_BOOT_FAILED, "--F---s---" },
  { 0, VMM_MACHINE_EVENT_BOOT_CANCELLED, "--s---s---" },
  { 0, VMM_MACHINE_EVENT_INSTALL_TIMEOUT, "-I--------" },
  { TIMED_OUT, VMM_MACHINE_EVENT_PROCESS_EXITED_OK, "-Fsssss---" },
  { TIMED_OUT, VMM_MACHINE_EVENT_PROCESS_EXITED_ERROR, "-FFFFFs---" },
  { INSTALLED | REQUIRED, VMM_MACHINE_EVENT_NONCE_ISSUED, "--AARU----" },
  { INSTALLED | CLOSING, VMM_MACHINE_EVENT_DELETE_REQUESTED, "DDDDDDDDD-" },
};

static void
check_answers (VmmMachineEvent event, guint guards, const char *answers)
{
  g_assert_cmpuint (strlen (answers), ==, VMM_MACHINE_N_STATES);
  for (guint state = 0; state < VMM_MACHINE_N_STATES; state++)
    {
      const VmmMachineTransition *row
          = vmm_machine_fsm_find ((VmmMachineState) state, event, guards);
      char found = row != NULL ? letters[row->to] : '-';

      if (found != answers[state])
        g_test_message ("%s in %s: %c, expected %c", vmm_machine_event_to_nick (event),
                 vmm_machine_state_to_nick ((VmmMachineState) state), found, answers[state]);
      g_assert_cmpint (found, ==, answers[state]);
    }
}

static void
test_every_pair (void)
{
  for (guint i = 0; i < G_N_ELEMENTS (installed_vm); i++)
    {
      g_assert_cmpint (installed_vm[i].event, ==, i);
      check_answers (installed_vm[i].event, INSTALLED, installed_vm[i].answers);
    }
}

static void
test_guards (void)
{
  for (guint i = 0; i < G_N_ELEMENTS (guarded); i++)
    check_answers (guarded[i].event, guarded[i].guards, guarded[i].answers);
}

/* Rows are tried in order: one that an earlier row always covers would never be taken. */
static void
test_no_dead_rows (void)
{
  for (guint i = 0; i < vmm_machine_n_transitions; i++)
    {
      const VmmMachineTransition *row = &vmm_machine_transitions[i];
      gboolean taken = FALSE;

      for (guint guards = 0; guards < 16 && !taken; guards++)
        taken = vmm_machine_fsm_find (row->from, row->event, guards) == row;
      if (!taken)
        g_test_message ("row %u (%s, %s) is never taken", i, vmm_machine_state_to_nick (row->from),
                 vmm_machine_event_to_nick (row->event));
      g_assert_true (taken);
    }
}

static void
test_actions (void)
{
  const VmmMachineTransition *row;

  row = vmm_machine_fsm_find (VMM_MACHINE_INSTALLING, VMM_MACHINE_EVENT_PROCESS_EXITED_OK, 0);
  g_assert_cmpint (row->action, ==, VMM_MACHINE_ACTION_MARK_INSTALLED);
  row = vmm_machine_fsm_find (VMM_MACHINE_INSTALLING, VMM_MACHINE_EVENT_INSTALL_TIMEOUT, 0);
  g_assert_cmpint (row->action, ==, VMM_MACHINE_ACTION_KILL);
  row = vmm_machine_fsm_find (VMM_MACHINE_READY, VMM_MACHINE_EVENT_GUEST_RESET, INSTALLED);
  g_assert_cmpint (row->action, ==, VMM_MACHINE_ACTION_RESET_BOOT);
  row = vmm_machine_fsm_find (VMM_MACHINE_STOPPING, VMM_MACHINE_EVENT_REATTACHED, INSTALLED);
  g_assert_cmpint (row->action, ==, VMM_MACHINE_ACTION_POWER_DOWN);
  row = vmm_machine_fsm_find (VMM_MACHINE_STOPPING, VMM_MACHINE_EVENT_PROCESS_EXITED_ERROR, 0);
  g_assert_cmpint (row->action, ==, VMM_MACHINE_ACTION_NONE);
}

static void
test_nicks (void)
{
  VmmMachineState state;

  for (guint i = 0; i < VMM_MACHINE_N_STATES; i++)
    {
      g_assert_true (
          vmm_machine_state_from_nick (vmm_machine_state_to_nick ((VmmMachineState) i), &state));
      g_assert_cmpint (state, ==, i);
    }
  g_assert_false (vmm_machine_state_from_nick ("gone", &state));
  g_assert_false (vmm_machine_state_from_nick ("Ready", &state));
  g_assert_false (vmm_machine_state_from_nick ("", &state));
  g_assert_false (vmm_machine_state_from_nick (NULL, &state));
}

static void
test_live (void)
{
  static const char live[] = "-IBARUP---";

  for (guint i = 0; i < VMM_MACHINE_N_STATES; i++)
    g_assert_cmpint (vmm_machine_state_is_live ((VmmMachineState) i), ==, live[i] != '-');
}

int
main (int argc, char **argv)
{
  g_test_init (&argc, &argv, G_TEST_OPTION_ISOLATE_DIRS, NULL);
  g_test_add_func ("/machine-fsm/every-pair", test_every_pair);
  g_test_add_func ("/machine-fsm/guards", test_guards);
  g_test_add_func ("/machine-fsm/no-dead-rows", test_no_dead_rows);
  g_test_add_func ("/machine-fsm/actions", test_actions);
  g_test_add_func ("/machine-fsm/nicks", test_nicks);
  g_test_add_func ("/machine-fsm/live", test_live);
  return g_test_run ();
}

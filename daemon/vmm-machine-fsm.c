/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The life of a VM as a table.
 *
 * Everything that can happen to a VM is an event; a row says in which state it counts, under which
 * guards, where it leads and what is to be done. Pure: the machine asks which row fits and does the
 * rest. An event without a row has an answer too: a request is refused, a report is ignored (a
 * process exit that somebody else already settled, READY=1 of a guest that is being stopped).
 *
 * No state but those of a live VM has a process; a row that leaves them is only ever taken when the
 * process is known to be gone, or was never started.
 */

#include "config.h"

#include "vmm-machine-fsm.h"

#include <string.h>

#define ANY_GUARD 0
#define INSTALLED VMM_MACHINE_GUARD_INSTALLED
#define REQUIRED VMM_MACHINE_GUARD_ATTESTATION_REQUIRED
#define CLOSING VMM_MACHINE_GUARD_CLOSING
#define TIMED_OUT VMM_MACHINE_GUARD_TIMED_OUT

#define ROW(state, event, need, forbid, next, action)                                              \
  {                                                                                                \
    VMM_MACHINE_##state, VMM_MACHINE_EVENT_##event, need, forbid, VMM_MACHINE_##next,              \
        VMM_MACHINE_ACTION_##action                                                                \
  }

/* What happens alike in every state with a running guest. */
#define ROWS_OF_A_GUEST(state)                                                                     \
  ROW (state, GUEST_STATUS, ANY_GUARD, 0, state, RECORD_STATUS),                                   \
      ROW (state, GUEST_PAUSED, ANY_GUARD, 0, state, MARK_PAUSED),                                 \
      ROW (state, GUEST_RESUMED, ANY_GUARD, 0, state, CLEAR_PAUSED),                               \
      ROW (state, DELETE_REQUESTED, ANY_GUARD, 0, DELETING, DISCARD),                              \
      ROW (state, NOT_REATTACHED, ANY_GUARD, 0, STOPPED, NOTE)

/* And in every one that nobody asked to stop. */
#define ROWS_OF_A_RUN(state)                                                                       \
  ROWS_OF_A_GUEST (state), ROW (state, HELPER_DIED, ANY_GUARD, 0, state, NOTE),                    \
      ROW (state, STOP_REQUESTED, ANY_GUARD, 0, STOPPING, POWER_DOWN),                             \
      ROW (state, REATTACHED, ANY_GUARD, 0, state, NONE)

/* And in every one of an installed boot. */
#define ROWS_OF_A_BOOT(state)                                                                      \
  ROWS_OF_A_RUN (state), ROW (state, PROCESS_EXITED_OK, ANY_GUARD, 0, STOPPED, NOTE),              \
      ROW (state, PROCESS_EXITED_ERROR, ANY_GUARD, 0, FAILED, NOTE),                               \
      ROW (state, GUEST_RESET, ANY_GUARD, 0, BOOTING, RESET_BOOT)

const VmmMachineTransition vmm_machine_transitions[] = {
  ROW (CREATING, INSTALLER_STARTED, ANY_GUARD, 0, INSTALLING, NONE),
  ROW (CREATING, CREATE_FAILED, ANY_GUARD, 0, GONE, NONE),
  ROW (CREATING, DELETE_REQUESTED, ANY_GUARD, 0, DELETING, DISCARD),
  ROW (CREATING, INTERRUPTED, ANY_GUARD, 0, FAILED, NOTE),

  ROWS_OF_A_RUN (INSTALLING),
  ROW (INSTALLING, INSTALL_TIMEOUT, ANY_GUARD, INSTALLED, INSTALLING, KILL),
  ROW (INSTALLING, PROCESS_EXITED_OK, ANY_GUARD, TIMED_OUT, INSTALLING, MARK_INSTALLED),
  ROW (INSTALLING, PROCESS_EXITED_OK, TIMED_OUT, 0, FAILED, NOTE),
  ROW (INSTALLING, PROCESS_EXITED_ERROR, ANY_GUARD, 0, FAILED, NOTE),
  ROW (INSTALLING, BOOT_STARTED, INSTALLED, 0, BOOTING, RESET_BOOT),
  ROW (INSTALLING, BOOT_FAILED, INSTALLED, 0, FAILED, NOTE),
  ROW (INSTALLING, BOOT_CANCELLED, INSTALLED, 0, STOPPED, NOTE),

  ROWS_OF_A_BOOT (BOOTING),
  ROW (BOOTING, BOOT_STARTED, ANY_GUARD, 0, BOOTING, RESET_BOOT),
  ROW (BOOTING, BOOT_FAILED, ANY_GUARD, 0, FAILED, NOTE),
  ROW (BOOTING, BOOT_CANCELLED, ANY_GUARD, 0, STOPPED, NOTE),
  ROW (BOOTING, NONCE_ISSUED, REQUIRED, 0, ATTESTING, MARK_NONCE),
  ROW (BOOTING, NONCE_ISSUED, ANY_GUARD, REQUIRED, BOOTING, MARK_NONCE),
  ROW (BOOTING, GUEST_READY, ANY_GUARD, 0, READY, MARK_READY),
  ROW (BOOTING, BOOT_TIMEOUT, ANY_GUARD, 0, RUNNING, NOTE),

  ROWS_OF_A_BOOT (ATTESTING),
  ROW (ATTESTING, NONCE_ISSUED, ANY_GUARD, 0, ATTESTING, MARK_NONCE),
  ROW (ATTESTING, GUEST_READY, ANY_GUARD, 0, READY, MARK_READY),
  ROW (ATTESTING, BOOT_TIMEOUT, ANY_GUARD, 0, RUNNING, NOTE),

  ROWS_OF_A_BOOT (READY),
  ROW (READY, NONCE_ISSUED, ANY_GUARD, 0, READY, MARK_NONCE),

  ROWS_OF_A_BOOT (RUNNING),
  ROW (RUNNING, NONCE_ISSUED, ANY_GUARD, 0, RUNNING, MARK_NONCE),
  ROW (RUNNING, GUEST_READY, ANY_GUARD, 0, READY, MARK_READY),

  ROWS_OF_A_GUEST (STOPPING),
  ROW (STOPPING, STOP_REQUESTED, ANY_GUARD, 0, STOPPING, POWER_DOWN),
  ROW (STOPPING, PROCESS_EXITED_OK, ANY_GUARD, 0, STOPPED, NONE),
  ROW (STOPPING, PROCESS_EXITED_ERROR, ANY_GUARD, 0, STOPPED, NONE),
  ROW (STOPPING, BOOT_STARTED, ANY_GUARD, 0, STOPPING, POWER_DOWN),
  ROW (STOPPING, BOOT_FAILED, ANY_GUARD, 0, STOPPED, NONE),
  ROW (STOPPING, BOOT_CANCELLED, ANY_GUARD, 0, STOPPED, NONE),
  ROW (STOPPING, REATTACHED, ANY_GUARD, 0, STOPPING, POWER_DOWN),

  ROW (STOPPED, START_REQUESTED, INSTALLED, CLOSING, BOOTING, START_BOOT),
  ROW (STOPPED, DELETE_REQUESTED, ANY_GUARD, 0, DELETING, DISCARD),

  ROW (FAILED, START_REQUESTED, INSTALLED, CLOSING, BOOTING, START_BOOT),
  ROW (FAILED, DELETE_REQUESTED, ANY_GUARD, 0, DELETING, DISCARD),

  ROW (DELETING, DISCARDED, ANY_GUARD, 0, GONE, NONE),
  ROW (DELETING, DELETE_FAILED, ANY_GUARD, 0, STOPPING, NOTE),
  ROW (DELETING, INTERRUPTED, ANY_GUARD, 0, FAILED, NOTE),
};

const guint vmm_machine_n_transitions = G_N_ELEMENTS (vmm_machine_transitions);

static const char *const state_nicks[] = {
  [VMM_MACHINE_CREATING] = "creating",   [VMM_MACHINE_INSTALLING] = "installing",
  [VMM_MACHINE_BOOTING] = "booting",     [VMM_MACHINE_ATTESTING] = "attesting",
  [VMM_MACHINE_READY] = "ready",         [VMM_MACHINE_RUNNING] = "running",
  [VMM_MACHINE_STOPPING] = "stopping",   [VMM_MACHINE_STOPPED] = "stopped",
  [VMM_MACHINE_FAILED] = "failed",       [VMM_MACHINE_DELETING] = "deleting",
  [VMM_MACHINE_GONE] = "gone",
};
G_STATIC_ASSERT (G_N_ELEMENTS (state_nicks) == VMM_MACHINE_N_STATES + 1);

static const char *const event_nicks[] = {
  [VMM_MACHINE_EVENT_INSTALLER_STARTED] = "installer-started",
  [VMM_MACHINE_EVENT_CREATE_FAILED] = "create-failed",
  [VMM_MACHINE_EVENT_START_REQUESTED] = "start-requested",
  [VMM_MACHINE_EVENT_BOOT_STARTED] = "boot-started",
  [VMM_MACHINE_EVENT_BOOT_FAILED] = "boot-failed",
  [VMM_MACHINE_EVENT_NONCE_ISSUED] = "nonce-issued",
  [VMM_MACHINE_EVENT_GUEST_READY] = "guest-ready",
  [VMM_MACHINE_EVENT_GUEST_STATUS] = "guest-status",
  [VMM_MACHINE_EVENT_GUEST_RESET] = "guest-reset",
  [VMM_MACHINE_EVENT_GUEST_PAUSED] = "guest-paused",
  [VMM_MACHINE_EVENT_GUEST_RESUMED] = "guest-resumed",
  [VMM_MACHINE_EVENT_INSTALL_TIMEOUT] = "install-timeout",
  [VMM_MACHINE_EVENT_BOOT_TIMEOUT] = "boot-timeout",
  [VMM_MACHINE_EVENT_PROCESS_EXITED_OK] = "process-exited-ok",
  [VMM_MACHINE_EVENT_PROCESS_EXITED_ERROR] = "process-exited-error",
  [VMM_MACHINE_EVENT_HELPER_DIED] = "helper-died",
  [VMM_MACHINE_EVENT_STOP_REQUESTED] = "stop-requested",
  [VMM_MACHINE_EVENT_DELETE_REQUESTED] = "delete-requested",
  [VMM_MACHINE_EVENT_DISCARDED] = "discarded",
  [VMM_MACHINE_EVENT_REATTACHED] = "reattached",
  [VMM_MACHINE_EVENT_NOT_REATTACHED] = "not-reattached",
  [VMM_MACHINE_EVENT_INTERRUPTED] = "interrupted",
  [VMM_MACHINE_EVENT_BOOT_CANCELLED] = "boot-cancelled",
  [VMM_MACHINE_EVENT_DELETE_FAILED] = "delete-failed",
};
G_STATIC_ASSERT (G_N_ELEMENTS (event_nicks) == VMM_MACHINE_N_EVENTS);

const char *
vmm_machine_state_to_nick (VmmMachineState state)
{
  g_return_val_if_fail ((guint) state < G_N_ELEMENTS (state_nicks), "unknown");
  return state_nicks[state];
}

gboolean
vmm_machine_state_from_nick (const char *nick, VmmMachineState *state)
{
  /* "gone" is never written, so it is never read. */
  for (guint i = 0; nick != NULL && i < VMM_MACHINE_N_STATES; i++)
    {
      if (strcmp (nick, state_nicks[i]) == 0)
        {
          *state = (VmmMachineState) i;
          return TRUE;
        }
    }
  return FALSE;
}

gboolean
vmm_machine_state_is_live (VmmMachineState state)
{
  return state >= VMM_MACHINE_INSTALLING && state <= VMM_MACHINE_STOPPING;
}

const char *
vmm_machine_event_to_nick (VmmMachineEvent event)
{
  g_return_val_if_fail ((guint) event < G_N_ELEMENTS (event_nicks), "unknown");
  return event_nicks[event];
}

const VmmMachineTransition *
vmm_machine_fsm_find (VmmMachineState state, VmmMachineEvent event, guint guards)
{
  for (guint i = 0; i < G_N_ELEMENTS (vmm_machine_transitions); i++)
    {
      const VmmMachineTransition *row = &vmm_machine_transitions[i];

      if (row->from == state && row->event == event && (guards & row->need) == row->need
          && (guards & row->forbid) == 0)
        return row;
    }
  return NULL;
}

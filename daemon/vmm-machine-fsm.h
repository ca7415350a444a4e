/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <glib-object.h>

G_BEGIN_DECLS

/* The life of a VM as data: states, events, and rows (state, event, guard -> state, action). Pure:
 * nothing here waits, writes or knows an object. Nicks (glib-mkenums style, lower case with dashes)
 * go to JSON, D-Bus, the journal, metrics and the record alike. */
typedef enum
{
  VMM_MACHINE_CREATING,
  VMM_MACHINE_INSTALLING,
  VMM_MACHINE_BOOTING,
  VMM_MACHINE_ATTESTING,
  VMM_MACHINE_READY,
  VMM_MACHINE_RUNNING,
  VMM_MACHINE_STOPPING,
  VMM_MACHINE_STOPPED,
  VMM_MACHINE_FAILED,
  VMM_MACHINE_DELETING,
  VMM_MACHINE_GONE, /* no record any more; never seen outside */
} VmmMachineState;
#define VMM_MACHINE_N_STATES (VMM_MACHINE_DELETING + 1)

const char *vmm_machine_state_to_nick (VmmMachineState state);
gboolean vmm_machine_state_from_nick (const char *nick, VmmMachineState *state);
/* A QEMU process belongs to it: installing, booting, attesting, ready, running, stopping. */
gboolean vmm_machine_state_is_live (VmmMachineState state);

typedef enum
{
  VMM_MACHINE_EVENT_INSTALLER_STARTED,
  VMM_MACHINE_EVENT_CREATE_FAILED,
  VMM_MACHINE_EVENT_START_REQUESTED,
  VMM_MACHINE_EVENT_BOOT_STARTED,
  VMM_MACHINE_EVENT_BOOT_FAILED,
  VMM_MACHINE_EVENT_NONCE_ISSUED,
  VMM_MACHINE_EVENT_GUEST_READY,
  VMM_MACHINE_EVENT_GUEST_STATUS,
  VMM_MACHINE_EVENT_GUEST_RESET,
  VMM_MACHINE_EVENT_GUEST_PAUSED,
  VMM_MACHINE_EVENT_GUEST_RESUMED,
  VMM_MACHINE_EVENT_INSTALL_TIMEOUT,
  VMM_MACHINE_EVENT_BOOT_TIMEOUT,
  VMM_MACHINE_EVENT_PROCESS_EXITED_OK,
  VMM_MACHINE_EVENT_PROCESS_EXITED_ERROR,
  VMM_MACHINE_EVENT_HELPER_DIED,
  VMM_MACHINE_EVENT_STOP_REQUESTED,
  VMM_MACHINE_EVENT_DELETE_REQUESTED,
  VMM_MACHINE_EVENT_DISCARDED,
  VMM_MACHINE_EVENT_REATTACHED,
  VMM_MACHINE_EVENT_NOT_REATTACHED,
  VMM_MACHINE_EVENT_INTERRUPTED, /* the daemon restarted in creating or deleting */
  VMM_MACHINE_EVENT_BOOT_CANCELLED, /* a boot was given up: the daemon ends, or a stop came first */
  VMM_MACHINE_EVENT_DELETE_FAILED,  /* the process survived; nothing was removed */
} VmmMachineEvent;
#define VMM_MACHINE_N_EVENTS (VMM_MACHINE_EVENT_DELETE_FAILED + 1)

const char *vmm_machine_event_to_nick (VmmMachineEvent event);

typedef enum
{
  VMM_MACHINE_GUARD_INSTALLED = 1 << 0, /* installedAt is set */
  VMM_MACHINE_GUARD_ATTESTATION_REQUIRED = 1 << 1,
  VMM_MACHINE_GUARD_CLOSING = 1 << 2,   /* the daemon is shutting down */
  VMM_MACHINE_GUARD_TIMED_OUT = 1 << 3, /* the installer was killed by its timeout */
} VmmMachineGuards;

typedef enum
{
  VMM_MACHINE_ACTION_NONE,
  VMM_MACHINE_ACTION_START_BOOT,
  VMM_MACHINE_ACTION_POWER_DOWN,
  VMM_MACHINE_ACTION_KILL,
  VMM_MACHINE_ACTION_DISCARD,
  VMM_MACHINE_ACTION_MARK_READY,
  VMM_MACHINE_ACTION_RECORD_STATUS,
  VMM_MACHINE_ACTION_RESET_BOOT,
  VMM_MACHINE_ACTION_MARK_PAUSED,
  VMM_MACHINE_ACTION_CLEAR_PAUSED,
  VMM_MACHINE_ACTION_NOTE,        /* sets lastError from the event's detail */
  VMM_MACHINE_ACTION_MARK_INSTALLED, /* sets installedAt; the installed boot follows */
  VMM_MACHINE_ACTION_MARK_NONCE,     /* sets nonceIssuedAt when unset */
} VmmMachineAction;

typedef struct
{
  VmmMachineState from;
  VmmMachineEvent event;
  guint need;     /* guards that must be set */
  guint forbid;   /* guards that must not be set */
  VmmMachineState to;
  VmmMachineAction action;
} VmmMachineTransition;

extern const VmmMachineTransition vmm_machine_transitions[];
extern const guint vmm_machine_n_transitions;

/* The first row that fits, or NULL: the event is refused (a request) or ignored (a report). */
const VmmMachineTransition *vmm_machine_fsm_find (VmmMachineState state, VmmMachineEvent event,
                                                  guint guards);

G_END_DECLS

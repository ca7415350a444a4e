/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <json-glib/json-glib.h>

#include "vmm-machine-context.h"
#include "vmm-machine-record.h"

G_BEGIN_DECLS

/* One VM: its record, its queue of operations, events in, notify::state out.
 *
 * ::changed is emitted after every change of the record (and so after every notify::state), when it
 * is on disk. ::gone is emitted once, when nothing of it is left. ::transition (guint event, guint
 * from, guint to) is emitted at each event that a row of the table took, also without a new state. */
#define VMM_TYPE_MACHINE (vmm_machine_get_type ())
G_DECLARE_FINAL_TYPE (VmmMachine, vmm_machine, VMM, MACHINE, GObject)

/* Takes the record. */
VmmMachine *vmm_machine_new (VmmMachineContext *context, VmmMachineRecord *record);

const VmmMachineRecord *vmm_machine_get_record (VmmMachine *self);
const char *vmm_machine_get_id (VmmMachine *self);
VmmMachineState vmm_machine_get_state (VmmMachine *self);
VmmMachineContext *vmm_machine_get_context (VmmMachine *self);
/* Longer while its guest is emulated, or is going to be. */
gint64 vmm_machine_get_install_timeout (VmmMachine *self);
gint64 vmm_machine_get_boot_timeout (VmmMachine *self);
gint64 vmm_machine_get_stop_timeout (VmmMachine *self);
/* <state>/vms/<id>, and a file in it. */
const char *vmm_machine_get_directory (VmmMachine *self);
char *vmm_machine_dup_path (VmmMachine *self, const char *name);
/* The running process of a role, or NULL. */
VmmProcess *vmm_machine_get_process (VmmMachine *self, VmmProcessRole role);
VmmVolume *vmm_machine_get_volume (VmmMachine *self);
/* Its network while that is up; otherwise NULL and VMM_ERROR_CONFLICT, which says why. */
VmmNetwork *vmm_machine_get_network (VmmMachine *self, GError **error);
JsonNode *vmm_machine_to_json (VmmMachine *self);

/* Everything that happens to a VM comes through here. detail is what the event says (an error text,
 * a status), may be NULL. FALSE with VMM_ERROR_CONFLICT when no row of the table fits. Must not be
 * called re-entrantly from a notify: an event raised there is queued. */
gboolean vmm_machine_handle_event (VmmMachine *self, VmmMachineEvent event, const char *detail,
                                   GError **error);

/* Queued, one after the other; each answers when the machine has reached what was asked. A caller
 * who cancels ends its waiting, not the work. user_data (the guest's) may be NULL. */
void vmm_machine_create_async (VmmMachine *self, GBytes *guest_user_data,
                               GCancellable *cancellable, GAsyncReadyCallback callback,
                               gpointer user_data);
gboolean vmm_machine_create_finish (VmmMachine *self, GAsyncResult *result, GError **error);
void vmm_machine_start_async (VmmMachine *self, GCancellable *cancellable,
                              GAsyncReadyCallback callback, gpointer user_data);
gboolean vmm_machine_start_finish (VmmMachine *self, GAsyncResult *result, GError **error);
void vmm_machine_stop_async (VmmMachine *self, GCancellable *cancellable,
                             GAsyncReadyCallback callback, gpointer user_data);
gboolean vmm_machine_stop_finish (VmmMachine *self, GAsyncResult *result, GError **error);
void vmm_machine_reboot_async (VmmMachine *self, GCancellable *cancellable,
                               GAsyncReadyCallback callback, gpointer user_data);
gboolean vmm_machine_reboot_finish (VmmMachine *self, GAsyncResult *result, GError **error);
void vmm_machine_delete_async (VmmMachine *self, GCancellable *cancellable,
                               GAsyncReadyCallback callback, gpointer user_data);
gboolean vmm_machine_delete_finish (VmmMachine *self, GAsyncResult *result, GError **error);

/* After a daemon start: reattach or settle. Always succeeds in the end; the record says how. */
void vmm_machine_recover_async (VmmMachine *self, GCancellable *cancellable,
                                GAsyncReadyCallback callback, gpointer user_data);
gboolean vmm_machine_recover_finish (VmmMachine *self, GAsyncResult *result, GError **error);
/* At the daemon's end: let go of the processes (detach) or stop them. */
void vmm_machine_close_async (VmmMachine *self, gboolean detach, GAsyncReadyCallback callback,
                              gpointer user_data);
gboolean vmm_machine_close_finish (VmmMachine *self, GAsyncResult *result, GError **error);

/* Forwards are part of the record. NULL for none of that id. */
VmmForward *vmm_machine_find_forward (VmmMachine *self, const char *id);
void vmm_machine_add_forward_async (VmmMachine *self, VmmForward *forward,
                                    GAsyncReadyCallback callback, gpointer user_data);
gboolean vmm_machine_add_forward_finish (VmmMachine *self, GAsyncResult *result, GError **error);
void vmm_machine_remove_forward_async (VmmMachine *self, const char *forward_id,
                                       GAsyncReadyCallback callback, gpointer user_data);
gboolean vmm_machine_remove_forward_finish (VmmMachine *self, GAsyncResult *result,
                                            GError **error);

/* What attestation has to say about a VM; the metadata service calls these. */
void vmm_machine_note_nonce (VmmMachine *self);
void vmm_machine_note_verdict (VmmMachine *self, VmmVerdict *verdict);

G_END_DECLS

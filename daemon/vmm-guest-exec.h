/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "vmm-machine.h"

G_BEGIN_DECLS

/* Commands in guests: how many run, and each of them from its words to its ExecResult. */
typedef struct _VmmGuestExecs VmmGuestExecs;

/* More at once, in one VM and in all, are refused. */
#define VMM_GUEST_EXECS_OF_A_VM_MAX 16
#define VMM_GUEST_EXECS_MAX 64

/* Whatever runs ends when ending is cancelled. */
VmmGuestExecs *vmm_guest_execs_new (GCancellable *ending);
void vmm_guest_execs_unref (VmmGuestExecs *self);

/* Runs a command as root in the guest; the ExecResult of the API. It ends with the command, when
 * the caller goes, and when the VM's run is over. */
void vmm_guest_exec_async (VmmGuestExecs *self, VmmMachine *machine, const char *const *command,
                           GCancellable *cancellable, GAsyncReadyCallback callback,
                           gpointer user_data);
JsonNode *vmm_guest_exec_finish (VmmMachine *machine, GAsyncResult *result, GError **error);

G_END_DECLS

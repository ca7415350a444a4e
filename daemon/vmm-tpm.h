/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "interfaces/vmm.h"

G_BEGIN_DECLS

/* Starts swtpm for a VM and waits until its control socket has answered CMD_GET_CAPABILITY:
 * probes as soon as there is one, for up to 5 s. On failure the process is stopped. directory is
 * vms/<id>/tpm, made 0700; a stale socket is removed, the log of the run before is kept as
 * swtpm.prev.log. */
void vmm_tpm_start_async (VmmLauncher *launcher, const char *vm_id, const char *directory,
                          GCancellable *cancellable, GAsyncReadyCallback callback,
                          gpointer user_data);
VmmProcess *vmm_tpm_start_finish (GAsyncResult *result, GError **error);

/* Makes the state of a new vTPM in that folder, with one bank of PCRs; 30 s at most. */
void vmm_tpm_setup_async (VmmLauncher *launcher, const char *vm_id, const char *directory,
                          GCancellable *cancellable, GAsyncReadyCallback callback,
                          gpointer user_data);
gboolean vmm_tpm_setup_finish (GAsyncResult *result, GError **error);

G_END_DECLS

/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "vmm-netd-attempt.h"

G_BEGIN_DECLS

/* The vmm-netd of one network: started or found again, connected, and started again when it ends.
 *
 * ::down (const char *reason) when it carries no packets any more, and again when there is another
 * reason; ::up when it does again. Neither before it was up for the first time. */
#define VMM_TYPE_NETD_PROCESS (vmm_netd_process_get_type ())
G_DECLARE_FINAL_TYPE (VmmNetdProcess, vmm_netd_process, VMM, NETD_PROCESS, GObject)

/* Copies what it is given. */
VmmNetdProcess *vmm_netd_process_new (const VmmNetdAttemptConfig *config);
/* The first time. What failed leaves no process that was not there before. */
void vmm_netd_process_start_async (VmmNetdProcess *self, GCancellable *cancellable,
                                   GAsyncReadyCallback callback, gpointer user_data);
gboolean vmm_netd_process_start_finish (VmmNetdProcess *self, GAsyncResult *result, GError **error);
/* (transfer full): the connection, as soon as there is one; VMM_ERROR_CONFLICT when it takes long.
 */
void vmm_netd_process_connect_async (VmmNetdProcess *self, GCancellable *cancellable,
                                     GAsyncReadyCallback callback, gpointer user_data);
VmmNetdChannel *vmm_netd_process_connect_finish (VmmNetdProcess *self, GAsyncResult *result,
                                                 GError **error);
/* What it carried in all its runs that this object has seen. */
void vmm_netd_process_get_counters (VmmNetdProcess *self, VmmNetworkCounters *counters);
/* Ends the process for good. */
void vmm_netd_process_stop_async (VmmNetdProcess *self, GAsyncReadyCallback callback,
                                  gpointer user_data);
gboolean vmm_netd_process_stop_finish (VmmNetdProcess *self, GAsyncResult *result, GError **error);
/* Leaves the process as it is for good. */
void vmm_netd_process_leave (VmmNetdProcess *self);

G_END_DECLS

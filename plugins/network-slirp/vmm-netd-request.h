/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "vmm-netd-process.h"

G_BEGIN_DECLS

#define VMM_NETD_REQUEST_MS 10000

/* One request to a vmm-netd that may be about to come back. Takes the parameters. */
void vmm_netd_request_async (VmmNetdProcess *process, const char *method, JsonObject *params,
                             guint timeout_ms, GCancellable *cancellable,
                             GAsyncReadyCallback callback, gpointer user_data);
/* fd: as in vmm_netd_channel_call_finish(). */
JsonObject *vmm_netd_request_finish (GAsyncResult *result, int *fd, GError **error);
/* Of one that failed: no vmm-netd said so. Any that carries the network later goes by its file. */
gboolean vmm_netd_request_is_unheard (GAsyncResult *result);
/* The same where nothing can be done about a failure. */
void vmm_netd_request_send (VmmNetdProcess *process, const char *method, JsonObject *params);

G_END_DECLS

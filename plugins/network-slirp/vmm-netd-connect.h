/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "interfaces/vmm-launcher.h"
#include "vmm-netd-channel.h"

G_BEGIN_DECLS

#define VMM_NETD_ANSWER_MS 10000

/* Waits until vmm-netd answers on the control socket in its folder. The end of the process ends the
 * waiting; the error then has the last line of its log. */
void vmm_netd_connect_async (const char *directory, const char *network, VmmProcess *process,
                             GCancellable *cancellable, GAsyncReadyCallback callback,
                             gpointer user_data);
VmmNetdChannel *vmm_netd_connect_finish (GAsyncResult *result, GError **error);

G_END_DECLS

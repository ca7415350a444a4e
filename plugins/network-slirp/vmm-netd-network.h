/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "interfaces/vmm-network-backend.h"

G_BEGIN_DECLS

/* A network that vmm-netd carries. */
#define VMM_TYPE_NETD_NETWORK (vmm_netd_network_get_type ())
G_DECLARE_FINAL_TYPE (VmmNetdNetwork, vmm_netd_network, VMM, NETD_NETWORK, VmmNetwork)

/* helper: the program; id: of its process. */
void vmm_netd_network_open_async (const VmmNetworkSpec *spec, VmmLauncher *launcher,
                                  const char *helper, const char *id, GCancellable *cancellable,
                                  GAsyncReadyCallback callback, gpointer user_data);
VmmNetdNetwork *vmm_netd_network_open_finish (GAsyncResult *result, GError **error);

G_END_DECLS

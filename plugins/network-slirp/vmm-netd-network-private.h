/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "vmm-netd-network.h"
#include "vmm-netd-request.h"

G_BEGIN_DECLS

/* Shared by the files that make up the network; nobody else includes this. */
struct _VmmNetdNetwork
{
  VmmNetwork parent_instance;

  char *name;
  guint mtu;
  VmmLauncher *launcher;
  VmmNetdFile *file;
  VmmNetdProcess *process;
  gboolean closed;
};

/* Ports: the vfuncs of vmm-netd-ports.c. */
void vmm_netd_network_attach_async (VmmNetwork *network, const VmmNetworkPort *port,
                                    GCancellable *cancellable, GAsyncReadyCallback callback,
                                    gpointer user_data);
void vmm_netd_network_detach_async (VmmNetwork *network, const char *vm_id,
                                    GCancellable *cancellable, GAsyncReadyCallback callback,
                                    gpointer user_data);
void vmm_netd_network_dial_async (VmmNetwork *network, const char *vm_id, const char *ip,
                                  guint16 port, GCancellable *cancellable,
                                  GAsyncReadyCallback callback, gpointer user_data);
/* Forwards: those of vmm-netd-forwards.c. */
void vmm_netd_network_forward_async (VmmNetwork *network, const VmmForwardSpec *spec,
                                     GCancellable *cancellable, GAsyncReadyCallback callback,
                                     gpointer user_data);
void vmm_netd_network_unforward_async (VmmNetwork *network, const char *forward_id,
                                       GCancellable *cancellable, GAsyncReadyCallback callback,
                                       gpointer user_data);

/* A task for an operation that is carried to its end or undone, whoever has left; NULL when it was
 * answered at once, because the network is closed or the caller has left already. */
GTask *vmm_netd_network_task_new (VmmNetdNetwork *self, gpointer tag, GCancellable *cancellable,
                                  GAsyncReadyCallback callback, gpointer user_data);
/* Records what was undone. */
void vmm_netd_network_save (VmmNetdNetwork *self);

G_END_DECLS

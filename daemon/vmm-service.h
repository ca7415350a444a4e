/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <json-glib/json-glib.h>

#include "vmm-call.h"
#include "vmm-machine.h"
#include "vmm-metrics.h"
#include "vmm-plugin-registry.h"

G_BEGIN_DECLS

/* The machines, networks and images of this host: one asynchronous function per operation.
 *
 * ::machine-added (VmmMachine *), ::machine-removed (VmmMachine *). */
#define VMM_TYPE_SERVICE (vmm_service_get_type ())
G_DECLARE_FINAL_TYPE (VmmService, vmm_service, VMM, SERVICE, GObject)

/* Takes the context. */
VmmService *vmm_service_new (VmmMachineContext *context, VmmPluginRegistry *registry);
VmmMachineContext *vmm_service_get_context (VmmService *self);
VmmMetrics *vmm_service_get_metrics (VmmService *self);

/* Start-up: networks, records, reattach or settle, the default network, autostart. */
void vmm_service_load_async (VmmService *self, GCancellable *cancellable,
                             GAsyncReadyCallback callback, gpointer user_data);
gboolean vmm_service_load_finish (VmmService *self, GAsyncResult *result, GError **error);
/* A first look at what the host offers; what is lacking is said in the log. */
void vmm_service_look_at_host (VmmService *self);
/* The shutdown begins: who waits for a VM is told so, and which VM it is. */
void vmm_service_end_waits (VmmService *self);
/* Shutdown, bounded by the stop timeout + 10 s: detach or stop every VM, then the networks. */
void vmm_service_close_async (VmmService *self, gboolean detach, GAsyncReadyCallback callback,
                              gpointer user_data);
gboolean vmm_service_close_finish (VmmService *self, GAsyncResult *result, GError **error);

VmmMachine *vmm_service_lookup (VmmService *self, const char *id, GError **error);
/* By createdAt, then id; owned by the service, valid until the next turn of the main loop. */
GPtrArray *vmm_service_get_machines (VmmService *self);

/* One pair per operation, all of the type VmmHandlerStart / VmmHandlerFinish. */
#define VMM_SERVICE_OPERATION(name)                                                                \
  void vmm_service_##name##_async (VmmService *self, VmmCall *call, GAsyncReadyCallback callback,  \
                                   gpointer user_data);                                            \
  JsonNode *vmm_service_##name##_finish (VmmService *self, GAsyncResult *result, GError **error);

VMM_SERVICE_OPERATION (get_info)
VMM_SERVICE_OPERATION (get_host)
VMM_SERVICE_OPERATION (list_images)
VMM_SERVICE_OPERATION (get_image)
VMM_SERVICE_OPERATION (list_networks)
VMM_SERVICE_OPERATION (create_network)
VMM_SERVICE_OPERATION (get_network)
VMM_SERVICE_OPERATION (delete_network)
VMM_SERVICE_OPERATION (list_vms)
VMM_SERVICE_OPERATION (create_vm)
VMM_SERVICE_OPERATION (get_vm)
VMM_SERVICE_OPERATION (delete_vm)
VMM_SERVICE_OPERATION (start_vm)
VMM_SERVICE_OPERATION (stop_vm)
VMM_SERVICE_OPERATION (reboot_vm)
VMM_SERVICE_OPERATION (exec_vm)
VMM_SERVICE_OPERATION (forward_port)
VMM_SERVICE_OPERATION (list_forwards)
VMM_SERVICE_OPERATION (close_forward)
VMM_SERVICE_OPERATION (get_vm_console)
VMM_SERVICE_OPERATION (get_vm_attestation)
VMM_SERVICE_OPERATION (get_vm_metrics)
VMM_SERVICE_OPERATION (get_vm_report)
VMM_SERVICE_OPERATION (get_openapi)

G_END_DECLS

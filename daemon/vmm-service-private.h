/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "vmm-guest-exec.h"
#include "vmm-service.h"

G_BEGIN_DECLS

/* Shared by the files that make up the service; nobody else includes this. */
struct _VmmService
{
  GObject parent_instance;

  VmmMachineContext *context;
  VmmPluginRegistry *registry;
  VmmMetrics *metrics;
  GHashTable *entries;    /* VM id -> VmmServiceEntry */
  GPtrArray *machines;    /* of VmmMachine, borrowed from the entries; by createdAt, then id */
  JsonNode *list;         /* what list_vms answers; NULL when something changed since */
  GHashTable *host_ports; /* set of "tcp/8080": being taken by a forward_port in flight */
  GHashTable *forwards;   /* set of ids of forwards that are listened for, or are about to be */
  GCancellable *ending;   /* cancelled when nobody is to wait for a VM any more */
  VmmGuestExecs *execs;
  gboolean closed;
};

/* Takes a reference; emits ::machine-added. It leaves by itself on the machine's ::gone. */
void vmm_service_add_machine (VmmService *self, VmmMachine *machine);
/* The machine's object of the API, sealed and shared until the machine changes. */
JsonNode *vmm_service_describe (VmmService *self, VmmMachine *machine);
/* Refuses with "vm-manager is shutting down" once the shutdown began. */
gboolean vmm_service_check_open (VmmService *self, GError **error);

/* The first CID behind one that no machine has; the context's next_cid. */
guint32 vmm_service_next_cid (gpointer service, guint32 after);

/* Arguments of a call: absent or null gives the fallback; of another type, an invalid request. */
gboolean vmm_service_get_string (VmmCall *call, const char *member, const char *fallback,
                                 const char **value, GError **error);
gboolean vmm_service_get_int (VmmCall *call, const char *member, gint64 fallback, gint64 *value,
                              GError **error);
/* The machine that the argument "id" names. */
VmmMachine *vmm_service_lookup_argument (VmmService *self, VmmCall *call, GError **error);
/* A task of an operation: cancelled with the call, the call as its data. */
GTask *vmm_service_task_new (VmmService *self, VmmCall *call, gpointer tag,
                             GAsyncReadyCallback callback, gpointer user_data);
/* Returns a node, or the error when the node is NULL. */
void vmm_service_return_node (GTask *task, JsonNode *node, GError *error);
/* Returns the machine's node, or the error if there is one. */
void vmm_service_return_machine (GTask *task, VmmMachine *machine, GError *error);
/* {"id": id, "deleted": true} */
JsonNode *vmm_service_deleted_node (const char *id);

/* Listens for the forwards of a machine's record that are not; one that cannot be is a warning, and
 * is tried again when the VM starts or its network comes up. */
void vmm_service_restore_forwards (VmmService *self, VmmMachine *machine);
/* Once all records are read: what a daemon that was killed left on the networks goes. */
void vmm_service_forget_stray_ports (VmmService *self);

#define VMM_SERVICE_FINISH(name)                                                                   \
  JsonNode *vmm_service_##name##_finish (VmmService *self, GAsyncResult *result, GError **error)   \
  {                                                                                                \
    g_return_val_if_fail (g_task_is_valid (result, self), NULL);                                   \
    return g_task_propagate_pointer (G_TASK (result), error);                                      \
  }

G_END_DECLS

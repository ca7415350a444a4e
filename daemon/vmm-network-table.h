/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <json-glib/json-glib.h>

#include "interfaces/vmm.h"

G_BEGIN_DECLS

/* The networks of this host with their leases: networks.json, the address plan, and the live
 * VmmNetwork of each. The daemon owns leases; a backend only carries packets.
 *
 * ::network-up (const char *name): a network that was down since the start came up after all. */
#define VMM_TYPE_NETWORK_TABLE (vmm_network_table_get_type ())
G_DECLARE_FINAL_TYPE (VmmNetworkTable, vmm_network_table, VMM, NETWORK_TABLE, GObject)

/* Ethernet's own is the least: a guest that knows of no MTU sends such packets. The most is what
 * virtio's header can say. */
#define VMM_NETWORK_MTU_DEFAULT 1500
#define VMM_NETWORK_MTU_MAX 65520

typedef struct
{
  char *vm_id;
  char *mac;
  char *ip;
} VmmLease;

void vmm_lease_free (VmmLease *lease);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (VmmLease, vmm_lease_free)

/* Without a backend (NULL) networks load and list, and are not created (VMM_ERROR_UNSUPPORTED). */
VmmNetworkTable *vmm_network_table_new (const char *state_dir, VmmNetworkBackend *backend,
                                        VmmLauncher *launcher);

/* Whether networks can be created and used at all. */
gboolean vmm_network_table_has_backend (VmmNetworkTable *self);

/* Reads networks.json and brings each network up. A file that cannot be read or breaks the plan is
 * fatal; a network whose backend fails stays listed with its error and is tried again on attach. */
void vmm_network_table_load_async (VmmNetworkTable *self, GCancellable *cancellable,
                                   GAsyncReadyCallback callback, gpointer user_data);
gboolean vmm_network_table_load_finish (VmmNetworkTable *self, GAsyncResult *result,
                                        GError **error);
/* Frees the leases whose VM is not known: a daemon that could not write, or was killed, left them. */
typedef gboolean (*VmmNetworkHolderKnown) (const char *vm_id, gpointer user_data);
void vmm_network_table_forget_strangers (VmmNetworkTable *self, VmmNetworkHolderKnown is_known,
                                         gpointer user_data);
/* Tells each network that is up what of an earlier daemon's it shall keep: the ports of its leases and,
 * of these forwards, its own. */
void vmm_network_table_keep_only (VmmNetworkTable *self, const char *const *forward_ids);
/* Creates, brings up and records a network, or leaves nothing. */
void vmm_network_table_create_async (VmmNetworkTable *self, const char *name, const char *cidr,
                                     const char *dns_search_domain, gint64 mtu,
                                     GCancellable *cancellable, GAsyncReadyCallback callback,
                                     gpointer user_data);
gboolean vmm_network_table_create_finish (VmmNetworkTable *self, GAsyncResult *result,
                                          GError **error);
/* Refuses while leases are held. */
void vmm_network_table_delete_async (VmmNetworkTable *self, const char *name,
                                     GCancellable *cancellable, GAsyncReadyCallback callback,
                                     gpointer user_data);
gboolean vmm_network_table_delete_finish (VmmNetworkTable *self, GAsyncResult *result,
                                          GError **error);
/* The lease of a VM: the one it has, or the lowest free address, recorded in networks.json before
 * this answers. */
void vmm_network_table_lease_async (VmmNetworkTable *self, const char *name, const char *vm_id,
                                    GCancellable *cancellable, GAsyncReadyCallback callback,
                                    gpointer user_data);
VmmLease *vmm_network_table_lease_finish (VmmNetworkTable *self, GAsyncResult *result,
                                          GError **error);
/* Detaches the port and frees the address; one that is not leased is VMM_ERROR_NOT_FOUND. */
void vmm_network_table_unlease_async (VmmNetworkTable *self, const char *name, const char *vm_id,
                                      GCancellable *cancellable, GAsyncReadyCallback callback,
                                      gpointer user_data);
gboolean vmm_network_table_unlease_finish (VmmNetworkTable *self, GAsyncResult *result,
                                           GError **error);
/* Plugs a leased VM in: QEMU's -netdev and -device arguments. */
void vmm_network_table_attach_async (VmmNetworkTable *self, const char *name, const char *vm_id,
                                     const char *socket_path, const char *metadata_path,
                                     GCancellable *cancellable, GAsyncReadyCallback callback,
                                     gpointer user_data);
VmmAttachment *vmm_network_table_attach_finish (VmmNetworkTable *self, GAsyncResult *result,
                                                GError **error);
/* keep_running: the daemon ends and the packets go on where the backend can. */
void vmm_network_table_close_async (VmmNetworkTable *self, gboolean keep_running,
                                    GCancellable *cancellable, GAsyncReadyCallback callback,
                                    gpointer user_data);
gboolean vmm_network_table_close_finish (VmmNetworkTable *self, GAsyncResult *result,
                                         GError **error);

gboolean vmm_network_table_contains (VmmNetworkTable *self, const char *name);
GStrv vmm_network_table_dup_names (VmmNetworkTable *self);
VmmNetwork *vmm_network_table_get_network (VmmNetworkTable *self, const char *name);
guint vmm_network_table_get_n_leases (VmmNetworkTable *self, const char *name);
const char *vmm_network_table_get_cidr (VmmNetworkTable *self, const char *name);
/* Why a network is down, or NULL. */
const char *vmm_network_table_get_error (VmmNetworkTable *self, const char *name);
/* The Network object of the API; NULL and VMM_ERROR_NOT_FOUND for an unknown name. */
JsonNode *vmm_network_table_describe (VmmNetworkTable *self, const char *name, GError **error);
JsonNode *vmm_network_table_describe_all (VmmNetworkTable *self);

G_END_DECLS

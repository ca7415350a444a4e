/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "interfaces/vmm-network-backend.h"

G_BEGIN_DECLS

/* netd.json: all that vmm-netd needs to come up by itself, and the handle to find it again. What is
 * to be is put here and saved before vmm-netd is told.
 *
 * Only the main thread changes it; reading and writing are done by a worker on copies. */
#define VMM_TYPE_NETD_FILE (vmm_netd_file_get_type ())
G_DECLARE_FINAL_TYPE (VmmNetdFile, vmm_netd_file, VMM, NETD_FILE, GObject)

typedef struct
{
  char *vm_id;
  char *mac;
  char *ip;
  char *socket_path;
  char *metadata_path; /* or NULL */
  gboolean is_old;     /* an earlier daemon's; this one has said nothing of it */
} VmmNetdPort;

typedef struct
{
  char *id;
  char *vm_id;
  guint16 port;
  char *protocol;
  char *host_address;
  guint16 host_port;
  gboolean is_old; /* as for ports */
} VmmNetdForward;

void vmm_netd_port_free (VmmNetdPort *port);
void vmm_netd_forward_free (VmmNetdForward *forward);
VmmNetdForward *vmm_netd_forward_copy (const VmmNetdForward *forward);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (VmmNetdPort, vmm_netd_port_free)
G_DEFINE_AUTOPTR_CLEANUP_FUNC (VmmNetdForward, vmm_netd_forward_free)

VmmNetdFile *vmm_netd_file_new (const VmmNetworkSpec *spec);
/* Takes over ports, forwards and handle of an earlier run; there need be none. */
void vmm_netd_file_load_async (VmmNetdFile *self, GAsyncReadyCallback callback, gpointer user_data);
gboolean vmm_netd_file_load_finish (VmmNetdFile *self, GAsyncResult *result, GError **error);
/* What is in it when this is called is on disk when it answers. */
void vmm_netd_file_save_async (VmmNetdFile *self, GAsyncReadyCallback callback, gpointer user_data);
gboolean vmm_netd_file_save_finish (VmmNetdFile *self, GAsyncResult *result, GError **error);
/* Removes it, the control socket and the logs. */
void vmm_netd_file_remove_async (VmmNetdFile *self, GAsyncReadyCallback callback,
                                 gpointer user_data);
gboolean vmm_netd_file_remove_finish (VmmNetdFile *self, GAsyncResult *result, GError **error);

/* Whether the earlier run was of a network that was to be otherwise. */
gboolean vmm_netd_file_has_changed (VmmNetdFile *self);
const VmmProcessHandle *vmm_netd_file_get_handle (VmmNetdFile *self);
void vmm_netd_file_set_handle (VmmNetdFile *self, const VmmProcessHandle *handle);

const VmmNetdPort *vmm_netd_file_find_port (VmmNetdFile *self, const char *vm_id);
/* Takes the port. Another VM's port with the same address is dropped, with its forwards. */
void vmm_netd_file_set_port (VmmNetdFile *self, VmmNetdPort *port);
/* (transfer full) (nullable): the port as it was. */
VmmNetdPort *vmm_netd_file_take_port (VmmNetdFile *self, const char *vm_id);
const VmmNetdForward *vmm_netd_file_find_forward (VmmNetdFile *self, const char *id);
void vmm_netd_file_set_forward (VmmNetdFile *self, VmmNetdForward *forward);
VmmNetdForward *vmm_netd_file_take_forward (VmmNetdFile *self, const char *id);
/* (transfer full) (element-type VmmNetdForward): those of a VM, taken out. */
GPtrArray *vmm_netd_file_take_forwards_of (VmmNetdFile *self, const char *vm_id);
/* (transfer full) (element-type VmmNetdPort): old ones of VMs that are not among these, taken out. */
GPtrArray *vmm_netd_file_take_old_ports (VmmNetdFile *self, const char *const *known);
/* (transfer full) (element-type VmmNetdForward): the same of forwards. */
GPtrArray *vmm_netd_file_take_old_forwards (VmmNetdFile *self, const char *const *known);

G_END_DECLS

/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Leases and ports: which VM has which address of a network, and plugging it in.
 *
 * A lease is on disk before anybody is told of it, and is taken back when it could not be recorded.
 * It is freed only after the port was unplugged, so that no two ports ever share an address. One that
 * was freed stays so, also when that could not be recorded: the next write says it, and a daemon that
 * starts before frees it again, since its VM is not there. */

#include "config.h"

#include "vmm-network-table-private.h"

#include <string.h>

#include "vmm-file.h"
#include "vmm-log.h"

/* One request about one VM on one network. */
typedef struct
{
  VmmNetworkEntry *entry;
  char *vm_id;
  gboolean taken; /* a lease that this request took */
  gboolean was_down;
  char *socket_path;
  char *metadata_path;
} LeaseRequest;

static void
lease_request_free (LeaseRequest *request)
{
  vmm_network_entry_unref (request->entry);
  g_free (request->vm_id);
  g_free (request->socket_path);
  g_free (request->metadata_path);
  g_free (request);
}

static LeaseRequest *
lease_request_new (VmmNetworkEntry *entry, const char *vm_id)
{
  LeaseRequest *request = g_new0 (LeaseRequest, 1);

  request->entry = vmm_network_entry_ref (entry);
  request->vm_id = g_strdup (vm_id);
  return request;
}

static void
set_not_attached (GError **error, const char *vm_id, const char *network)
{
  vmm_set_error (error, VMM_ERROR_NOT_FOUND, "vm %s is not attached to %s", vm_id, network);
}

static void
leased_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  g_autoptr (GTask) task = user_data;
  LeaseRequest *request = g_task_get_task_data (task);
  VmmLease *lease;
  GError *error = NULL;

  if (!vmm_coalesced_file_save_finish (VMM_COALESCED_FILE (source), result, &error))
    {
      if (request->taken)
        vmm_network_entry_remove_lease (request->entry, request->vm_id);
      g_task_return_error (task, error);
      return;
    }

  lease = vmm_network_entry_dup_lease (request->entry, request->vm_id);
  if (lease == NULL)
    {
      set_not_attached (&error, request->vm_id, request->entry->name);
      g_task_return_error (task, error);
      return;
    }
  g_task_return_pointer (task, lease, (GDestroyNotify) vmm_lease_free);
}

static gboolean
take_lease (LeaseRequest *request, GError **error)
{
  VmmNetworkEntry *entry = request->entry;
  guint32 address;

  if (g_hash_table_contains (entry->leases, request->vm_id))
    return TRUE;

  address = vmm_address_plan_find_free (&entry->plan, entry->holders);
  if (address == 0)
    {
      vmm_set_error (error, VMM_ERROR_CONFLICT, "network %s has no free address", entry->name);
      return FALSE;
    }
  vmm_network_entry_add_lease (entry, request->vm_id, address);
  request->taken = TRUE;
  return TRUE;
}

void
vmm_network_table_lease_async (VmmNetworkTable *self, const char *name, const char *vm_id,
                               GCancellable *cancellable, GAsyncReadyCallback callback,
                               gpointer user_data)
{
  g_autoptr (GTask) task = g_task_new (self, cancellable, callback, user_data);
  VmmNetworkEntry *entry;
  LeaseRequest *request;
  GError *error = NULL;

  g_task_set_source_tag (task, vmm_network_table_lease_async);
  g_task_set_check_cancellable (task, FALSE);
  if (g_task_return_error_if_cancelled (task))
    return;
  if (vm_id[0] == '\0')
    vmm_set_error (&error, VMM_ERROR_INVALID_REQUEST, "vm id is empty");
  entry = error == NULL ? vmm_network_table_find_usable (self, name, &error) : NULL;
  if (entry == NULL)
    {
      g_task_return_error (task, error);
      return;
    }

  request = lease_request_new (entry, vm_id);
  g_task_set_task_data (task, request, (GDestroyNotify) lease_request_free);
  if (!take_lease (request, &error))
    {
      g_task_return_error (task, error);
      return;
    }
  if (!request->taken && vmm_coalesced_file_is_idle (self->file))
    {
      g_task_return_pointer (task, vmm_network_entry_dup_lease (entry, vm_id),
                             (GDestroyNotify) vmm_lease_free);
      return;
    }
  vmm_coalesced_file_save_async (self->file, leased_cb, g_steal_pointer (&task));
}

VmmLease *
vmm_network_table_lease_finish (VmmNetworkTable *self, GAsyncResult *result, GError **error)
{
  g_return_val_if_fail (g_task_is_valid (result, self), NULL);

  return g_task_propagate_pointer (G_TASK (result), error);
}

static void
unleased_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  g_autoptr (GTask) task = user_data;
  GError *error = NULL;

  if (vmm_coalesced_file_save_finish (VMM_COALESCED_FILE (source), result, &error))
    g_task_return_boolean (task, TRUE);
  else
    g_task_return_error (task, error);
}

static void
free_lease (GTask *task)
{
  g_autoptr (GTask) owned = task;
  VmmNetworkTable *self = g_task_get_source_object (task);
  LeaseRequest *request = g_task_get_task_data (task);

  if (!vmm_network_entry_remove_lease (request->entry, request->vm_id))
    {
      GError *error = NULL;

      set_not_attached (&error, request->vm_id, request->entry->name);
      g_task_return_error (task, error);
      return;
    }
  vmm_coalesced_file_save_async (self->file, unleased_cb, g_steal_pointer (&owned));
}

static void
detached_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  GTask *task = user_data;
  LeaseRequest *request = g_task_get_task_data (task);
  g_autoptr (GError) error = NULL;

  /* A port that is not there, or a backend that is broken, must not keep the address. */
  if (!vmm_network_detach_finish (VMM_NETWORK (source), result, &error)
      && !g_error_matches (error, VMM_ERROR, VMM_ERROR_NOT_FOUND))
    vmm_log_warning ("detach from network", "network", request->entry->name, "vm", request->vm_id,
                     "error", error->message, NULL);
  free_lease (task);
}

void
vmm_network_table_unlease_async (VmmNetworkTable *self, const char *name, const char *vm_id,
                                 GCancellable *cancellable, GAsyncReadyCallback callback,
                                 gpointer user_data)
{
  g_autoptr (GTask) task = g_task_new (self, cancellable, callback, user_data);
  VmmNetworkEntry *entry;
  GError *error = NULL;

  g_task_set_source_tag (task, vmm_network_table_unlease_async);
  g_task_set_check_cancellable (task, FALSE);
  entry = vmm_network_table_find (self, name, &error);
  if (entry != NULL && !g_hash_table_contains (entry->leases, vm_id))
    set_not_attached (&error, vm_id, name);
  if (error != NULL)
    {
      g_task_return_error (task, error);
      return;
    }

  g_task_set_task_data (task, lease_request_new (entry, vm_id),
                        (GDestroyNotify) lease_request_free);
  if (entry->network != NULL && !self->closed)
    vmm_network_detach_async (entry->network, vm_id, NULL, detached_cb, g_steal_pointer (&task));
  else
    free_lease (g_steal_pointer (&task));
}

gboolean
vmm_network_table_unlease_finish (VmmNetworkTable *self, GAsyncResult *result, GError **error)
{
  g_return_val_if_fail (g_task_is_valid (result, self), FALSE);

  return g_task_propagate_boolean (G_TASK (result), error);
}

static void
attached_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  g_autoptr (GTask) task = user_data;
  GError *error = NULL;
  VmmAttachment *attachment = vmm_network_attach_finish (VMM_NETWORK (source), result, &error);

  if (attachment == NULL)
    g_task_return_error (task, error);
  else
    g_task_return_pointer (task, attachment, (GDestroyNotify) vmm_attachment_unref);
}

static void
up_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  g_autoptr (GTask) task = user_data;
  VmmNetworkTable *self = VMM_NETWORK_TABLE (source);
  LeaseRequest *request = g_task_get_task_data (task);
  GCancellable *cancellable = g_task_get_cancellable (task);
  VmmNetworkEntry *entry = request->entry;
  g_autoptr (VmmLease) lease = NULL;
  VmmNetworkPort port = { 0 };
  GError *error = NULL;

  if (!vmm_network_table_open_finish (self, result, &error))
    {
      g_task_return_error (task, error);
      return;
    }
  if (request->was_down)
    g_signal_emit_by_name (self, "network-up", entry->name);

  lease = vmm_network_entry_dup_lease (entry, request->vm_id);
  if (lease == NULL)
    {
      set_not_attached (&error, request->vm_id, entry->name);
      g_task_return_error (task, error);
      return;
    }
  port.vm_id = request->vm_id;
  port.mac = lease->mac;
  port.ip = lease->ip;
  port.socket_path = request->socket_path;
  port.metadata_path = request->metadata_path;
  vmm_network_attach_async (entry->network, &port, cancellable, attached_cb,
                            g_steal_pointer (&task));
}

static gboolean
check_socket_path (const char *path, GError **error)
{
  if (path == NULL || strlen (path) <= VMM_SOCKET_PATH_MAX)
    return TRUE;
  vmm_set_error (error, VMM_ERROR_INVALID_REQUEST, "socket path \"%s\" exceeds %d bytes", path,
                 VMM_SOCKET_PATH_MAX);
  return FALSE;
}

void
vmm_network_table_attach_async (VmmNetworkTable *self, const char *name, const char *vm_id,
                                const char *socket_path, const char *metadata_path,
                                GCancellable *cancellable, GAsyncReadyCallback callback,
                                gpointer user_data)
{
  g_autoptr (GTask) task = g_task_new (self, cancellable, callback, user_data);
  VmmNetworkEntry *entry;
  LeaseRequest *request;
  GError *error = NULL;

  g_task_set_source_tag (task, vmm_network_table_attach_async);
  entry = vmm_network_table_find_usable (self, name, &error);
  if (entry != NULL && !g_hash_table_contains (entry->leases, vm_id))
    set_not_attached (&error, vm_id, name);
  if (error != NULL || !check_socket_path (socket_path, &error)
      || !check_socket_path (metadata_path, &error))
    {
      g_task_return_error (task, error);
      return;
    }

  request = lease_request_new (entry, vm_id);
  request->socket_path = g_strdup (socket_path);
  request->metadata_path = g_strdup (metadata_path);
  request->was_down = entry->network == NULL && entry->openers == NULL;
  g_task_set_task_data (task, request, (GDestroyNotify) lease_request_free);
  vmm_network_table_open_async (self, entry, cancellable, up_cb, g_steal_pointer (&task));
}

VmmAttachment *
vmm_network_table_attach_finish (VmmNetworkTable *self, GAsyncResult *result, GError **error)
{
  g_return_val_if_fail (g_task_is_valid (result, self), NULL);

  return g_task_propagate_pointer (G_TASK (result), error);
}

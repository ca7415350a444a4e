/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Creates and deletes networks.
 *
 * Create: reserve the name, bring the network up, record it, answer. Whatever fails takes the
 * network down, removes its folder and gives the name back. Delete: close the network, take it out
 * of the record, remove the folder, answer. A daemon that is killed in between leaves at most a
 * folder that the next start removes, or a network that is still listed. */

#include "config.h"

#include "vmm-network-table-private.h"

#include <string.h>

#include "vmm-file.h"
#include "vmm-log.h"

#define SOCKET_NAME "qemu.sock"

typedef struct
{
  VmmNetworkEntry *entry;
  GError *error; /* why it is undone */
  gboolean was_up;
} CreateData;

static void
create_data_free (CreateData *data)
{
  vmm_network_entry_unref (data->entry);
  g_clear_error (&data->error);
  g_free (data);
}

/* Folders: one that could not be removed is tried again when its name is wanted, and at the next
 * start. */

static void
remove_folder (VmmNetworkTable *self, VmmNetworkEntry *entry, GAsyncReadyCallback callback,
               GTask *task)
{
  g_autofree char *directory = vmm_network_table_dup_directory (self, entry);

  g_hash_table_insert (self->leaving, g_strdup (entry->name), GINT_TO_POINTER (TRUE));
  vmm_file_remove_tree_async (directory, NULL, NULL, callback, task);
}

static gboolean
remove_folder_finish (VmmNetworkTable *self, VmmNetworkEntry *entry, GAsyncResult *result,
                      GError **error)
{
  if (vmm_file_remove_tree_finish (result, error))
    {
      g_hash_table_remove (self->leaving, entry->name);
      return TRUE;
    }
  g_hash_table_insert (self->leaving, g_strdup (entry->name), GINT_TO_POINTER (FALSE));
  return FALSE;
}

static gboolean
check_folder (VmmNetworkTable *self, VmmNetworkEntry *entry, const char *directory, GError **error)
{
  gpointer is_going;

  if (!vmm_network_path_exists (directory))
    return TRUE;
  if (!g_hash_table_lookup_extended (self->leaving, entry->name, NULL, &is_going))
    vmm_set_error (error, VMM_ERROR_CONFLICT,
                   "network \"%s\": %s exists and is no network's; move it away", entry->name,
                   directory);
  else if (GPOINTER_TO_INT (is_going))
    vmm_set_error (error, VMM_ERROR_CONFLICT,
                   "network \"%s\": the one before is still being removed; try again", entry->name);
  else
    return TRUE;
  return FALSE;
}

static void
undo_removed_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  g_autoptr (GTask) task = user_data;
  CreateData *data = g_task_get_task_data (task);
  g_autoptr (GError) error = NULL;

  if (!remove_folder_finish (g_task_get_source_object (task), data->entry, result, &error))
    vmm_log_warning ("undo the creation of a network", "network", data->entry->name, "error",
                     error->message, NULL);
  g_task_return_error (task, g_steal_pointer (&data->error));
}

static void
undo_recorded_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  g_autoptr (VmmNetworkTable) self = user_data;
  g_autoptr (GError) error = NULL;

  if (!vmm_coalesced_file_save_finish (self->file, result, &error))
    vmm_log_warning ("undo the creation of a network", "error", error->message, NULL);
}

static void
undo_directory (GTask *task)
{
  VmmNetworkTable *self = g_task_get_source_object (task);
  CreateData *data = g_task_get_task_data (task);

  g_ptr_array_remove (self->entries, data->entry);
  /* Somebody else's write may have recorded it meanwhile. */
  if (data->was_up)
    vmm_coalesced_file_save_async (self->file, undo_recorded_cb, g_object_ref (self));
  remove_folder (self, data->entry, undo_removed_cb, task);
}

static void
undo_closed_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  GTask *task = user_data;
  CreateData *data = g_task_get_task_data (task);
  g_autoptr (GError) error = NULL;

  if (!vmm_network_close_finish (VMM_NETWORK (source), result, &error))
    vmm_log_warning ("undo the creation of a network", "network", data->entry->name, "error",
                     error->message, NULL);
  undo_directory (task);
}

/* Takes the task and the error. */
static void
create_failed (GTask *task, GError *error)
{
  CreateData *data = g_task_get_task_data (task);
  g_autoptr (VmmNetwork) network = g_steal_pointer (&data->entry->network);

  data->error = error;
  data->was_up = network != NULL;
  if (network != NULL)
    vmm_network_close_async (network, FALSE, NULL, undo_closed_cb, task);
  else
    undo_directory (task);
}

static void
create_recorded_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  g_autoptr (GTask) task = user_data;
  CreateData *data = g_task_get_task_data (task);
  GError *error = NULL;

  if (!vmm_coalesced_file_save_finish (VMM_COALESCED_FILE (source), result, &error))
    {
      create_failed (g_steal_pointer (&task), error);
      return;
    }
  data->entry->recorded = TRUE;
  vmm_log_info ("network created", "network", data->entry->name, "cidr", data->entry->cidr, NULL);
  g_task_return_boolean (task, TRUE);
}

static void
create_opened_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  g_autoptr (GTask) task = user_data;
  VmmNetworkTable *self = VMM_NETWORK_TABLE (source);
  GError *error = NULL;

  if (!vmm_network_table_open_finish (self, result, &error))
    {
      create_failed (g_steal_pointer (&task), error);
      return;
    }
  vmm_coalesced_file_save_async (self->file, create_recorded_cb, g_steal_pointer (&task));
}

static gboolean
check_room (VmmNetworkTable *self, VmmNetworkEntry *entry, GError **error)
{
  g_autofree char *directory = vmm_network_table_dup_directory (self, entry);
  g_autofree char *socket_path = g_build_filename (directory, SOCKET_NAME, NULL);

  if (self->closed)
    {
      vmm_set_error (error, VMM_ERROR_CONFLICT, "vm-manager is shutting down");
      return FALSE;
    }
  if (strlen (socket_path) > VMM_SOCKET_PATH_MAX)
    {
      vmm_set_error (error, VMM_ERROR_INVALID_REQUEST,
                     "socket path \"%s\" exceeds %d bytes; use a shorter name or state dir",
                     socket_path, VMM_SOCKET_PATH_MAX);
      return FALSE;
    }
  if (vmm_network_table_find_any (self, entry->name) != NULL)
    {
      vmm_set_error (error, VMM_ERROR_CONFLICT, "network \"%s\" already exists", entry->name);
      return FALSE;
    }
  return check_folder (self, entry, directory, error);
}

static void
cleared_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  g_autoptr (GTask) task = user_data;
  VmmNetworkTable *self = g_task_get_source_object (task);
  CreateData *data = g_task_get_task_data (task);
  GCancellable *cancellable = g_task_get_cancellable (task);
  GError *error = NULL;

  if (!remove_folder_finish (self, data->entry, result, &error))
    create_failed (g_steal_pointer (&task), error);
  else
    vmm_network_table_open_async (self, data->entry, cancellable, create_opened_cb,
                                  g_steal_pointer (&task));
}

void
vmm_network_table_create_async (VmmNetworkTable *self, const char *name, const char *cidr,
                                const char *dns_search_domain, gint64 mtu,
                                GCancellable *cancellable, GAsyncReadyCallback callback,
                                gpointer user_data)
{
  g_autoptr (GTask) task = g_task_new (self, cancellable, callback, user_data);
  g_autoptr (VmmNetworkEntry) entry = NULL;
  CreateData *data;
  GError *error = NULL;

  g_task_set_source_tag (task, vmm_network_table_create_async);
  g_task_set_check_cancellable (task, FALSE);
  if (g_task_return_error_if_cancelled (task))
    return;
  entry = vmm_network_entry_new (name, cidr, NULL, dns_search_domain, mtu, &error);
  if (entry == NULL || !check_room (self, entry, &error))
    {
      g_task_return_error (task, error);
      return;
    }

  data = g_new0 (CreateData, 1);
  data->entry = vmm_network_entry_ref (entry);
  g_task_set_task_data (task, data, (GDestroyNotify) create_data_free);
  vmm_network_table_take_entry (self, vmm_network_entry_ref (entry));
  if (g_hash_table_contains (self->leaving, name))
    remove_folder (self, entry, cleared_cb, g_steal_pointer (&task));
  else
    vmm_network_table_open_async (self, entry, cancellable, create_opened_cb,
                                  g_steal_pointer (&task));
}

gboolean
vmm_network_table_create_finish (VmmNetworkTable *self, GAsyncResult *result, GError **error)
{
  g_return_val_if_fail (g_task_is_valid (result, self), FALSE);

  return g_task_propagate_boolean (G_TASK (result), error);
}

static void
delete_removed_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  g_autoptr (GTask) task = user_data;
  VmmNetworkEntry *entry = g_task_get_task_data (task);
  g_autoptr (GError) error = NULL;

  /* The network is gone all the same. */
  if (!remove_folder_finish (g_task_get_source_object (task), entry, result, &error))
    vmm_log_warning ("remove the folder of a network", "network", entry->name, "error",
                     error->message, NULL);
  vmm_log_info ("network deleted", "network", entry->name, NULL);
  g_task_return_boolean (task, TRUE);
}

static void
delete_recorded_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  g_autoptr (GTask) task = user_data;
  VmmNetworkTable *self = g_task_get_source_object (task);
  VmmNetworkEntry *entry = g_task_get_task_data (task);
  GError *error = NULL;

  if (!vmm_coalesced_file_save_finish (VMM_COALESCED_FILE (source), result, &error))
    {
      entry->deleting = FALSE;
      entry->error = g_strdup (error->message);
      vmm_network_table_take_entry (self, vmm_network_entry_ref (entry));
      g_task_return_error (task, error);
      return;
    }
  remove_folder (self, entry, delete_removed_cb, g_steal_pointer (&task));
}

static void
delete_record (GTask *task)
{
  VmmNetworkTable *self = g_task_get_source_object (task);
  VmmNetworkEntry *entry = g_task_get_task_data (task);

  g_clear_object (&entry->network);
  g_clear_pointer (&entry->error, g_free);
  g_ptr_array_remove (self->entries, entry);
  vmm_coalesced_file_save_async (self->file, delete_recorded_cb, task);
}

static void
delete_closed_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  g_autoptr (GTask) task = user_data;
  VmmNetworkEntry *entry = g_task_get_task_data (task);
  GError *error = NULL;

  if (!vmm_network_close_finish (VMM_NETWORK (source), result, &error))
    {
      entry->deleting = FALSE;
      g_prefix_error (&error, "close network \"%s\": ", entry->name);
      g_task_return_error (task, error);
      return;
    }
  delete_record (g_steal_pointer (&task));
}

void
vmm_network_table_delete_async (VmmNetworkTable *self, const char *name, GCancellable *cancellable,
                                GAsyncReadyCallback callback, gpointer user_data)
{
  g_autoptr (GTask) task = g_task_new (self, cancellable, callback, user_data);
  VmmNetworkEntry *entry;
  GError *error = NULL;

  g_task_set_source_tag (task, vmm_network_table_delete_async);
  g_task_set_check_cancellable (task, FALSE);
  entry = vmm_network_table_find_usable (self, name, &error);
  if (entry != NULL && g_hash_table_size (entry->leases) > 0)
    vmm_set_error (&error, VMM_ERROR_CONFLICT, "network \"%s\" has %u attached VMs", name,
                   g_hash_table_size (entry->leases));
  if (error != NULL)
    {
      g_task_return_error (task, error);
      return;
    }

  entry->deleting = TRUE;
  g_task_set_task_data (task, vmm_network_entry_ref (entry),
                        (GDestroyNotify) vmm_network_entry_unref);
  if (entry->network != NULL)
    vmm_network_close_async (entry->network, FALSE, NULL, delete_closed_cb,
                             g_steal_pointer (&task));
  else
    delete_record (g_steal_pointer (&task));
}

gboolean
vmm_network_table_delete_finish (VmmNetworkTable *self, GAsyncResult *result, GError **error)
{
  g_return_val_if_fail (g_task_is_valid (result, self), FALSE);

  return g_task_propagate_boolean (G_TASK (result), error);
}

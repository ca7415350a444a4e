/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Brings the networks of the table up: at the start, at their creation, and again when a VM is
 * plugged into one that could not come up before.
 *
 * Everybody who needs the same network meanwhile shares one attempt. A network that turns up after
 * the table was closed is closed at once. */

#include "config.h"

#include "vmm-network-table-private.h"

#include "vmm-file.h"
#include "vmm-log.h"

typedef struct
{
  VmmNetworkTable *table;
  VmmNetworkEntry *entry;
} OpenData;

static void
open_data_free (OpenData *data)
{
  g_object_unref (data->table);
  vmm_network_entry_unref (data->entry);
  g_free (data);
}
G_DEFINE_AUTOPTR_CLEANUP_FUNC (OpenData, open_data_free)

/* Answers everybody who waits; takes the error, NULL for success. */
static void
settle (VmmNetworkEntry *entry, GError *error)
{
  g_autoptr (GPtrArray) openers = g_steal_pointer (&entry->openers);

  g_clear_pointer (&entry->error, g_free);
  if (error != NULL)
    entry->error = g_strdup (error->message);

  for (guint i = 0; i < openers->len; i++)
    {
      GTask *task = g_ptr_array_index (openers, i);

      if (error == NULL)
        g_task_return_boolean (task, TRUE);
      else
        g_task_return_error (task, g_error_copy (error));
    }
  g_clear_error (&error);
}

static void
failed_cb (VmmNetwork *network, const char *reason, gpointer user_data)
{
  VmmNetworkEntry *entry = user_data;

  g_free (entry->error);
  entry->error = g_strdup (reason != NULL ? reason : "carries no packets");
  vmm_log_error ("network failed", "network", entry->name, "reason", entry->error, NULL);
}

static void
recovered_cb (VmmNetwork *network, gpointer user_data)
{
  VmmNetworkEntry *entry = user_data;

  g_clear_pointer (&entry->error, g_free);
  vmm_log_info ("network recovered", "network", entry->name, NULL);
}

static void
unref_entry (gpointer data, GClosure *closure)
{
  vmm_network_entry_unref (data);
}

static void
adopt_network (VmmNetworkEntry *entry, VmmNetwork *network)
{
  g_set_object (&entry->network, network);
  g_signal_connect_data (network, "failed", G_CALLBACK (failed_cb), vmm_network_entry_ref (entry),
                         unref_entry, 0);
  g_signal_connect_data (network, "recovered", G_CALLBACK (recovered_cb),
                         vmm_network_entry_ref (entry), unref_entry, 0);
}

static void
closed_late_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  g_autoptr (VmmNetworkEntry) entry = user_data;
  g_autoptr (GError) error = NULL;

  if (!vmm_network_close_finish (VMM_NETWORK (source), result, &error))
    vmm_log_warning ("close network", "network", entry->name, "error", error->message, NULL);
}

static void
opened_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  g_autoptr (OpenData) data = user_data;
  VmmNetworkEntry *entry = data->entry;
  g_autoptr (VmmNetwork) network = NULL;
  GError *error = NULL;

  network = vmm_network_backend_open_finish (VMM_NETWORK_BACKEND (source), result, &error);
  if (network == NULL)
    {
      g_prefix_error (&error, "network \"%s\": ", entry->name);
      settle (entry, error);
      return;
    }
  if (data->table->closed || entry->deleting)
    {
      vmm_network_close_async (network, FALSE, NULL, closed_late_cb, vmm_network_entry_ref (entry));
      settle (entry, vmm_error_new (VMM_ERROR_CONFLICT, "network %s is closed", entry->name));
      return;
    }

  adopt_network (entry, network);
  settle (entry, NULL);
}

static void
open_with_backend (VmmNetworkTable *self, VmmNetworkEntry *entry)
{
  g_autofree char *directory = vmm_network_table_dup_directory (self, entry);
  g_autofree char *cidr = vmm_address_plan_to_text (&entry->plan);
  g_autofree char *gateway = vmm_address_to_text (entry->plan.gateway);
  g_autofree char *gateway_mac = vmm_address_to_mac (entry->name, entry->plan.gateway);
  VmmNetworkSpec spec = { 0 };
  OpenData *data;
  GError *error = NULL;

  if (!vmm_file_make_directory (directory, 0750, &error))
    {
      g_prefix_error (&error, "network \"%s\": ", entry->name);
      settle (entry, error);
      return;
    }

  spec.name = entry->name;
  spec.cidr = cidr;
  spec.gateway = gateway;
  spec.gateway_mac = gateway_mac;
  spec.dns_search_domain = entry->dns_search_domain;
  spec.mtu = entry->mtu;
  spec.enable_imds = entry->enable_imds;
  spec.enable_host_alias = entry->enable_host_alias;
  spec.directory = directory;

  data = g_new0 (OpenData, 1);
  data->table = g_object_ref (self);
  data->entry = vmm_network_entry_ref (entry);
  vmm_network_backend_open_async (self->backend, &spec, self->launcher, NULL, opened_cb, data);
}

void
vmm_network_table_open_async (VmmNetworkTable *self, VmmNetworkEntry *entry,
                              GCancellable *cancellable, GAsyncReadyCallback callback,
                              gpointer user_data)
{
  g_autoptr (GTask) task = g_task_new (self, cancellable, callback, user_data);

  g_task_set_source_tag (task, vmm_network_table_open_async);
  if (entry->network != NULL)
    {
      g_task_return_boolean (task, TRUE);
      return;
    }
  if (entry->openers != NULL)
    {
      g_ptr_array_add (entry->openers, g_steal_pointer (&task));
      return;
    }

  entry->openers = g_ptr_array_new_with_free_func (g_object_unref);
  g_ptr_array_add (entry->openers, g_steal_pointer (&task));
  if (self->backend == NULL)
    {
      settle (entry, vmm_error_new (VMM_ERROR_UNSUPPORTED,
                                    "network \"%s\": no network backend is available: get_host "
                                    "lists every plugin and what it lacks",
                                    entry->name));
      return;
    }
  open_with_backend (self, entry);
}

gboolean
vmm_network_table_open_finish (VmmNetworkTable *self, GAsyncResult *result, GError **error)
{
  g_return_val_if_fail (g_task_is_valid (result, self), FALSE);

  return g_task_propagate_boolean (G_TASK (result), error);
}

/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Reads networks.json at the start and brings each network up.
 *
 * A file that cannot be read, or that breaks the address plan, stops the start: going on would
 * give running VMs other addresses. A folder without an entry is what a daemon leaves that was
 * killed while it created a network; it is removed when it holds nothing else. */

#include "config.h"

#include "vmm-network-table-private.h"

#include <sys/stat.h>
#include <unistd.h>

#include "vmm-file.h"
#include "vmm-log.h"

/* A /16 full of leases is below 3 MiB. */
#define FILE_LIMIT (64 * 1024 * 1024)

static void
load_opened_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  g_autoptr (GError) error = NULL;

  if (!vmm_network_table_open_finish (VMM_NETWORK_TABLE (source), result, &error))
    vmm_log_warning ("network did not come up; it is tried again when a VM needs it", "error",
                     error->message, NULL);
  vmm_network_jobs_done (user_data);
}

static void
leftover_removed_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  g_autoptr (GError) error = NULL;

  if (!vmm_file_remove_tree_finish (result, &error))
    vmm_log_warning ("remove the folder of a network that was never recorded", "error",
                     error->message, NULL);
  vmm_network_jobs_done (user_data);
}

/* Whether a folder holds only what a network leaves behind when it ends in the middle. */
static gboolean
is_leftover (const char *path)
{
  g_autoptr (GDir) dir = NULL;
  struct stat info;
  const char *name;

  if (lstat (path, &info) != 0 || !S_ISDIR (info.st_mode) || info.st_uid != geteuid ())
    return FALSE;
  dir = g_dir_open (path, 0, NULL);
  if (dir == NULL)
    return FALSE;
  while ((name = g_dir_read_name (dir)) != NULL)
    {
      g_autofree char *child = g_build_filename (path, name, NULL);

      if (lstat (child, &info) != 0)
        return FALSE;
      if (!S_ISSOCK (info.st_mode)
          && !(S_ISREG (info.st_mode)
               && (g_str_has_suffix (name, ".log") || g_str_has_suffix (name, ".pid")
                   || g_str_has_suffix (name, ".json") || g_str_has_suffix (name, ".lock"))))
        return FALSE;
    }
  return TRUE;
}

static void
remove_leftovers (VmmNetworkTable *self, GTask *task)
{
  g_autoptr (GDir) dir = g_dir_open (self->directory, 0, NULL);
  const char *name;

  while (dir != NULL && (name = g_dir_read_name (dir)) != NULL)
    {
      g_autofree char *path = g_build_filename (self->directory, name, NULL);

      if (vmm_network_table_find_any (self, name) != NULL)
        continue;
      if (vmm_name_is_dns_label (name) && is_leftover (path))
        vmm_file_remove_tree_async (path, NULL, NULL, leftover_removed_cb,
                                    vmm_network_jobs_hold (task));
      else
        vmm_log_warning ("not a network of ours, left alone", "path", path, NULL);
    }
}

static gboolean
read_file (VmmNetworkTable *self, GError **error)
{
  g_autoptr (GBytes) content = NULL;
  g_autoptr (GPtrArray) entries = NULL;

  if (!vmm_network_path_exists (self->path))
    return TRUE;

  content = vmm_file_read (self->path, FILE_LIMIT, error);
  if (content == NULL)
    {
      g_prefix_error (error, "read %s: ", self->path);
      return FALSE;
    }
  entries = vmm_network_file_parse (content, error);
  if (entries == NULL)
    {
      g_prefix_error (error, "%s: ", self->path);
      return FALSE;
    }
  for (guint i = 0; i < entries->len; i++)
    vmm_network_table_take_entry (self, vmm_network_entry_ref (g_ptr_array_index (entries, i)));
  return TRUE;
}

void
vmm_network_table_load_async (VmmNetworkTable *self, GCancellable *cancellable,
                              GAsyncReadyCallback callback, gpointer user_data)
{
  g_autoptr (GTask) task = g_task_new (self, cancellable, callback, user_data);
  GError *error = NULL;

  g_task_set_source_tag (task, vmm_network_table_load_async);
  g_task_set_task_data (task, g_new0 (guint, 1), g_free);
  if (!read_file (self, &error) || !vmm_file_make_directory (self->directory, 0750, &error))
    {
      g_task_return_error (task, error);
      return;
    }

  vmm_network_jobs_hold (task);
  remove_leftovers (self, task);
  for (guint i = 0; i < self->entries->len; i++)
    vmm_network_table_open_async (self, g_ptr_array_index (self->entries, i), cancellable,
                                  load_opened_cb, vmm_network_jobs_hold (task));
  vmm_network_jobs_done (task);
}

gboolean
vmm_network_table_load_finish (VmmNetworkTable *self, GAsyncResult *result, GError **error)
{
  g_return_val_if_fail (g_task_is_valid (result, self), FALSE);

  return g_task_propagate_boolean (G_TASK (result), error);
}

static guint
forget_strangers_of (VmmNetworkEntry *entry, VmmNetworkHolderKnown is_known, gpointer user_data)
{
  g_autoptr (GList) ids = g_hash_table_get_keys (entry->leases);
  guint forgotten = 0;

  for (GList *l = ids; l != NULL; l = l->next)
    {
      if (is_known (l->data, user_data))
        continue;
      vmm_log_warning ("the lease of a vm that does not exist is freed", "network", entry->name,
                       "vm", l->data, NULL);
      vmm_network_entry_remove_lease (entry, l->data);
      forgotten++;
    }
  return forgotten;
}

static void
forgotten_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  g_autoptr (VmmNetworkTable) self = user_data;
  g_autoptr (GError) error = NULL;

  if (!vmm_coalesced_file_save_finish (self->file, result, &error))
    vmm_log_error ("networks could not be recorded", "error", error->message, NULL);
}

void
vmm_network_table_forget_strangers (VmmNetworkTable *self, VmmNetworkHolderKnown is_known,
                                    gpointer user_data)
{
  guint forgotten = 0;

  for (guint i = 0; i < self->entries->len; i++)
    forgotten
        += forget_strangers_of (g_ptr_array_index (self->entries, i), is_known, user_data);
  if (forgotten > 0)
    vmm_coalesced_file_save_async (self->file, forgotten_cb, g_object_ref (self));
}

void
vmm_network_table_keep_only (VmmNetworkTable *self, const char *const *forward_ids)
{
  for (guint i = 0; !self->closed && i < self->entries->len; i++)
    {
      VmmNetworkEntry *entry = g_ptr_array_index (self->entries, i);
      g_autofree gpointer *vm_ids = g_hash_table_get_keys_as_array (entry->leases, NULL);

      if (entry->network != NULL)
        vmm_network_keep_only (entry->network, (const char *const *) vm_ids, forward_ids);
    }
}

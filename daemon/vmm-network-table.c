/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The networks of this host: networks.json on one side, the live network of the backend on the
 * other.
 *
 * What is recorded is what exists: a network is seen by nobody before it is in networks.json, and
 * one that could not be recorded is taken down again. A backend that fails to bring one network up
 * does not keep the daemon from starting: the network stays listed with the reason, and is tried
 * again when a VM is plugged in.
 *
 * This file holds the table and answers questions; reading it at the start is in
 * vmm-network-load.c, creating and deleting in vmm-network-create.c, leases and ports in
 * vmm-network-leases.c. */

#include "config.h"

#include "vmm-network-table-private.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "vmm-json.h"
#include "vmm-log.h"

enum
{
  SIGNAL_NETWORK_UP,
  N_SIGNALS,
};
static guint signals[N_SIGNALS];

G_DEFINE_FINAL_TYPE (VmmNetworkTable, vmm_network_table, G_TYPE_OBJECT)

static GBytes *
file_content (gpointer user_data)
{
  VmmNetworkTable *self = user_data;
  g_autoptr (GPtrArray) shown = g_ptr_array_new ();

  for (guint i = 0; i < self->entries->len; i++)
    {
      VmmNetworkEntry *entry = g_ptr_array_index (self->entries, i);

      /* One that is being created and is not up yet is only a reserved name. */
      if (entry->recorded || entry->network != NULL)
        g_ptr_array_add (shown, entry);
    }
  return vmm_network_file_write (shown);
}

static void
vmm_network_table_finalize (GObject *object)
{
  VmmNetworkTable *self = VMM_NETWORK_TABLE (object);

  g_free (self->directory);
  g_free (self->path);
  g_clear_object (&self->backend);
  g_clear_object (&self->launcher);
  g_clear_object (&self->file);
  g_hash_table_unref (self->leaving);
  g_ptr_array_unref (self->entries);
  G_OBJECT_CLASS (vmm_network_table_parent_class)->finalize (object);
}

static void
vmm_network_table_class_init (VmmNetworkTableClass *klass)
{
  G_OBJECT_CLASS (klass)->finalize = vmm_network_table_finalize;
  signals[SIGNAL_NETWORK_UP]
      = g_signal_new ("network-up", VMM_TYPE_NETWORK_TABLE, G_SIGNAL_RUN_LAST, 0, NULL, NULL, NULL,
                      G_TYPE_NONE, 1, G_TYPE_STRING);
}

static void
vmm_network_table_init (VmmNetworkTable *self)
{
  self->entries = g_ptr_array_new_with_free_func ((GDestroyNotify) vmm_network_entry_unref);
  self->leaving = g_hash_table_new_full (g_str_hash, g_str_equal, g_free, NULL);
}

VmmNetworkTable *
vmm_network_table_new (const char *state_dir, VmmNetworkBackend *backend, VmmLauncher *launcher)
{
  VmmNetworkTable *self = g_object_new (VMM_TYPE_NETWORK_TABLE, NULL);

  self->directory = g_build_filename (state_dir, "networks", NULL);
  self->path = g_build_filename (state_dir, "networks.json", NULL);
  g_set_object (&self->backend, backend);
  g_set_object (&self->launcher, launcher);
  self->file = vmm_coalesced_file_new (self->path, 0600, file_content, self);
  return self;
}

gboolean
vmm_network_table_has_backend (VmmNetworkTable *self)
{
  g_return_val_if_fail (VMM_IS_NETWORK_TABLE (self), FALSE);

  return self->backend != NULL;
}

VmmNetworkEntry *
vmm_network_table_find_any (VmmNetworkTable *self, const char *name)
{
  for (guint i = 0; i < self->entries->len; i++)
    {
      VmmNetworkEntry *entry = g_ptr_array_index (self->entries, i);

      if (g_str_equal (entry->name, name))
        return entry;
    }
  return NULL;
}

static VmmNetworkEntry *
find_recorded (VmmNetworkTable *self, const char *name)
{
  VmmNetworkEntry *entry = vmm_network_table_find_any (self, name);

  return entry != NULL && entry->recorded ? entry : NULL;
}

VmmNetworkEntry *
vmm_network_table_find (VmmNetworkTable *self, const char *name, GError **error)
{
  VmmNetworkEntry *entry = find_recorded (self, name);

  if (entry == NULL)
    vmm_set_error (error, VMM_ERROR_NOT_FOUND, "network \"%s\"", name);
  return entry;
}

VmmNetworkEntry *
vmm_network_table_find_usable (VmmNetworkTable *self, const char *name, GError **error)
{
  VmmNetworkEntry *entry = vmm_network_table_find (self, name, error);

  if (entry != NULL && (entry->deleting || self->closed))
    {
      vmm_set_error (error, VMM_ERROR_CONFLICT, "network %s is closed", name);
      return NULL;
    }
  return entry;
}

void
vmm_network_table_take_entry (VmmNetworkTable *self, VmmNetworkEntry *entry)
{
  guint place = 0;

  while (
      place < self->entries->len
      && strcmp (((VmmNetworkEntry *) g_ptr_array_index (self->entries, place))->name, entry->name)
             < 0)
    place++;
  g_ptr_array_insert (self->entries, place, entry);
}

char *
vmm_network_table_dup_directory (VmmNetworkTable *self, VmmNetworkEntry *entry)
{
  return g_build_filename (self->directory, entry->name, NULL);
}

gboolean
vmm_network_path_exists (const char *path)
{
  struct stat info;

  return lstat (path, &info) == 0 || errno != ENOENT;
}

void
vmm_network_jobs_done (GTask *task)
{
  guint *pending = g_task_get_task_data (task);

  if (--*pending == 0)
    g_task_return_boolean (task, TRUE);
  g_object_unref (task);
}

GTask *
vmm_network_jobs_hold (GTask *task)
{
  guint *pending = g_task_get_task_data (task);

  (*pending)++;
  return g_object_ref (task);
}

static void
close_closed_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  g_autoptr (GError) error = NULL;

  if (!vmm_network_close_finish (VMM_NETWORK (source), result, &error))
    vmm_log_warning ("close network", "error", error->message, NULL);
  vmm_network_jobs_done (user_data);
}

void
vmm_network_table_close_async (VmmNetworkTable *self, gboolean keep_running,
                               GCancellable *cancellable, GAsyncReadyCallback callback,
                               gpointer user_data)
{
  g_autoptr (GTask) task = g_task_new (self, cancellable, callback, user_data);

  g_task_set_source_tag (task, vmm_network_table_close_async);
  g_task_set_task_data (task, g_new0 (guint, 1), g_free);
  self->closed = TRUE;

  vmm_network_jobs_hold (task);
  for (guint i = 0; i < self->entries->len; i++)
    {
      VmmNetworkEntry *entry = g_ptr_array_index (self->entries, i);
      g_autoptr (VmmNetwork) network = NULL;

      if (entry->deleting)
        continue;
      network = g_steal_pointer (&entry->network);
      if (network != NULL)
        vmm_network_close_async (network, keep_running, cancellable, close_closed_cb,
                                 vmm_network_jobs_hold (task));
    }
  vmm_network_jobs_done (task);
}

gboolean
vmm_network_table_close_finish (VmmNetworkTable *self, GAsyncResult *result, GError **error)
{
  g_return_val_if_fail (g_task_is_valid (result, self), FALSE);

  return g_task_propagate_boolean (G_TASK (result), error);
}

gboolean
vmm_network_table_contains (VmmNetworkTable *self, const char *name)
{
  return find_recorded (self, name) != NULL;
}

GStrv
vmm_network_table_dup_names (VmmNetworkTable *self)
{
  g_autoptr (GStrvBuilder) names = g_strv_builder_new ();

  for (guint i = 0; i < self->entries->len; i++)
    {
      VmmNetworkEntry *entry = g_ptr_array_index (self->entries, i);

      if (entry->recorded)
        g_strv_builder_add (names, entry->name);
    }
  return g_strv_builder_end (names);
}

VmmNetwork *
vmm_network_table_get_network (VmmNetworkTable *self, const char *name)
{
  VmmNetworkEntry *entry = find_recorded (self, name);

  return entry != NULL && !entry->deleting ? entry->network : NULL;
}

guint
vmm_network_table_get_n_leases (VmmNetworkTable *self, const char *name)
{
  VmmNetworkEntry *entry = find_recorded (self, name);

  return entry != NULL ? g_hash_table_size (entry->leases) : 0;
}

const char *
vmm_network_table_get_cidr (VmmNetworkTable *self, const char *name)
{
  VmmNetworkEntry *entry = find_recorded (self, name);

  return entry != NULL ? entry->cidr : NULL;
}

const char *
vmm_network_table_get_error (VmmNetworkTable *self, const char *name)
{
  VmmNetworkEntry *entry = find_recorded (self, name);

  return entry != NULL ? entry->error : NULL;
}

JsonNode *
vmm_network_table_describe (VmmNetworkTable *self, const char *name, GError **error)
{
  VmmNetworkEntry *entry = vmm_network_table_find (self, name, error);

  return entry != NULL ? vmm_network_entry_describe (entry) : NULL;
}

JsonNode *
vmm_network_table_describe_all (VmmNetworkTable *self)
{
  JsonArray *array = json_array_new ();

  for (guint i = 0; i < self->entries->len; i++)
    {
      VmmNetworkEntry *entry = g_ptr_array_index (self->entries, i);

      if (entry->recorded)
        json_array_add_element (array, vmm_network_entry_describe (entry));
    }
  return vmm_json_node_take_array (array);
}

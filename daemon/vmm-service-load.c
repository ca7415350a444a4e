/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The service's start: networks, records, reattach or settle every VM, the default network,
 * autostart. No request is served before it is through.
 *
 * A folder in vms/ that holds no record of ours (garbage, written by a newer version) is named in one
 * warning, left as it is, and never taken for a new VM. What a daemon left that was killed while it
 * wrote or deleted is cleared away: temporary files, an empty folder, leases without a VM. Records are read at once, as
 * small local files before anything is served; machines then settle side by side, some at a time.
 */

#include "config.h"

#include "vmm-service-private.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "vmm-file.h"
#include "vmm-json.h"
#include "vmm-log.h"
#include "vmm-network-plan.h"

#define RECORD_LIMIT (4 * 1024 * 1024)
#define RECOVERIES_MAX 32

typedef struct
{
  GPtrArray *queue; /* of VmmMachine: to be recovered */
  guint next;       /* index into queue */
  guint running;
} LoadData;

static void
load_data_free (LoadData *data)
{
  g_clear_pointer (&data->queue, g_ptr_array_unref);
  g_free (data);
}

/* Records ------------------------------------------------------------------------------------- */

static gboolean
is_vm_id (const char *name)
{
  return strlen (name) == 8 && strspn (name, "0123456789abcdef") == 8;
}

static VmmMachineRecord *
read_record (const char *directory, const char *id, GError **error)
{
  g_autofree char *path = g_build_filename (directory, "vm.json", NULL);
  g_autoptr (GBytes) content = NULL;
  g_autoptr (JsonObject) object = NULL;
  g_autoptr (VmmMachineRecord) record = NULL;
  struct stat info;
  const char *text;
  gsize length;

  if (!is_vm_id (id) || lstat (directory, &info) != 0 || !S_ISDIR (info.st_mode))
    {
      vmm_set_error (error, VMM_ERROR_INVALID_REQUEST, "not a folder of a VM");
      return NULL;
    }
  content = vmm_file_read (path, RECORD_LIMIT, error);
  if (content == NULL)
    return NULL;
  text = g_bytes_get_data (content, &length);
  object = vmm_json_parse_object (text, length, error);
  if (object != NULL)
    record = vmm_machine_record_from_file (object, error);
  if (record != NULL && !g_str_equal (record->id, id))
    {
      vmm_set_error (error, VMM_ERROR_INVALID_REQUEST, "it is the record of vm \"%s\"", record->id);
      g_clear_pointer (&record, vmm_machine_record_free);
    }
  if (record == NULL)
    g_prefix_error (error, "vm.json: ");
  return g_steal_pointer (&record);
}

/* The record in a folder; NULL after it was said what there is instead. */
static VmmMachineRecord *
take_folder (const char *directory, const char *id)
{
  g_autoptr (GError) problem = NULL;
  VmmMachineRecord *record;

  if (is_vm_id (id))
    {
      g_autofree char *good = g_build_filename (directory, "tpm.good", NULL);

      vmm_file_remove_temporaries (directory);
      vmm_file_remove_temporaries (good);
    }
  record = read_record (directory, id, &problem);
  if (record != NULL)
    return record;
  /* Killed before the first record, or after the last: nothing else was there by then. */
  if (is_vm_id (id) && rmdir (directory) == 0)
    vmm_log_info ("removed the empty folder of a vm", "path", directory, NULL);
  else
    vmm_log_warning ("not a VM that this version knows; set aside, left as it is", "path",
                     directory, "error", problem->message, NULL);
  return NULL;
}

static int
compare_texts (gconstpointer a, gconstpointer b)
{
  return g_strcmp0 (*(const char *const *) a, *(const char *const *) b);
}

static GPtrArray *
list_folder (const char *path, GError **error)
{
  g_autoptr (GDir) dir = g_dir_open (path, 0, error);
  GPtrArray *names;
  const char *name;

  if (dir == NULL)
    return NULL;
  names = g_ptr_array_new_with_free_func (g_free);
  while ((name = g_dir_read_name (dir)) != NULL)
    g_ptr_array_add (names, g_strdup (name));
  g_ptr_array_sort (names, compare_texts);
  return names;
}

static int
compare_records (gconstpointer a, gconstpointer b)
{
  const VmmMachineRecord *left = *(const VmmMachineRecord *const *) a;
  const VmmMachineRecord *right = *(const VmmMachineRecord *const *) b;

  if (left->created_at != right->created_at)
    return left->created_at < right->created_at ? -1 : 1;
  return strcmp (left->id, right->id);
}

static gboolean
read_records (VmmService *self, LoadData *data, GError **error)
{
  g_autofree char *folder = g_build_filename (self->context->state_dir, "vms", NULL);
  g_autoptr (GPtrArray) names = NULL;
  g_autoptr (GPtrArray) records = g_ptr_array_new ();

  if (!vmm_file_make_directory (folder, 0700, error))
    return FALSE;
  names = list_folder (folder, error);
  if (names == NULL)
    return FALSE;

  for (guint i = 0; i < names->len; i++)
    {
      const char *id = g_ptr_array_index (names, i);
      g_autofree char *directory = g_build_filename (folder, id, NULL);
      VmmMachineRecord *record = take_folder (directory, id);

      if (record != NULL)
        g_ptr_array_add (records, record);
    }

  /* The oldest first: each takes its place at the end of the table. */
  g_ptr_array_sort (records, compare_records);
  for (guint i = 0; i < records->len; i++)
    {
      VmmMachine *machine = vmm_machine_new (self->context, g_ptr_array_index (records, i));

      vmm_service_add_machine (self, machine);
      g_ptr_array_add (data->queue, machine);
    }
  return TRUE;
}

/* A folder that was set aside keeps its address for the version that knows it. */
static gboolean
is_known_vm (const char *vm_id, gpointer user_data)
{
  VmmService *self = user_data;
  g_autofree char *directory = g_build_filename (self->context->state_dir, "vms", vm_id, NULL);
  struct stat info;

  return g_hash_table_contains (self->entries, vm_id) || lstat (directory, &info) == 0
         || errno != ENOENT;
}

/* The default network, autostart -------------------------------------------------------------- */

static void
autostarted_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  VmmMachine *machine = VMM_MACHINE (source);
  g_autoptr (GError) error = NULL;

  if (!vmm_machine_start_finish (machine, result, &error))
    vmm_log_error ("autostart", "vm", vmm_machine_get_id (machine), "error", error->message, NULL);
}

/* The starts go on while the first requests are served. */
static void
autostart (VmmService *self)
{
  for (guint i = 0; i < self->machines->len; i++)
    {
      VmmMachine *machine = g_ptr_array_index (self->machines, i);
      const VmmMachineRecord *record = vmm_machine_get_record (machine);

      if (record->autostart && record->state == VMM_MACHINE_STOPPED && record->installed_at != 0)
        vmm_machine_start_async (machine, NULL, autostarted_cb, NULL);
    }
}

/* Takes the task. */
static void
load_done (GTask *task)
{
  VmmService *self = g_task_get_source_object (task);
  g_autofree char *n_vms = g_strdup_printf ("%u", self->machines->len);

  autostart (self);
  vmm_log_info ("state loaded", "vms", n_vms, NULL);
  g_task_return_boolean (task, TRUE);
  g_object_unref (task);
}

static void
default_created_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  g_autoptr (GTask) task = user_data;
  VmmService *self = g_task_get_source_object (task);
  const char *name = vmm_options_get_string (self->context->options, "default-network");
  GError *error = NULL;

  if (vmm_network_table_create_finish (VMM_NETWORK_TABLE (source), result, &error))
    {
      load_done (g_steal_pointer (&task));
      return;
    }
  /* A wrong option is for the user to correct. What a backend lacks today it may have when the
   * network is created by hand; until then the daemon can at least say so. */
  if (g_error_matches (error, VMM_ERROR, VMM_ERROR_INVALID_REQUEST))
    {
      g_prefix_error (&error, "default network \"%s\": ", name);
      g_task_return_error (task, error);
      return;
    }
  vmm_log_warning ("there is no default network", "network", name, "error", error->message, NULL);
  g_error_free (error);
  load_done (g_steal_pointer (&task));
}

static gboolean
is_same_prefix (const char *a, const char *b)
{
  VmmAddressPlan left;
  VmmAddressPlan right;

  return vmm_address_plan_parse (a, NULL, &left, NULL)
         && vmm_address_plan_parse (b, NULL, &right, NULL) && left.first == right.first
         && left.bits == right.bits;
}

static void
ensure_default_network (GTask *task)
{
  VmmService *self = g_task_get_source_object (task);
  VmmNetworkTable *networks = self->context->networks;
  const char *name = vmm_options_get_string (self->context->options, "default-network");
  const char *subnet = vmm_options_get_string (self->context->options, "network-subnet");

  if (!vmm_network_table_contains (networks, name))
    {
      vmm_network_table_create_async (networks, name, subnet, NULL, VMM_NETWORK_MTU_DEFAULT, NULL,
                                      default_created_cb, task);
      return;
    }
  if (!is_same_prefix (vmm_network_table_get_cidr (networks, name), subnet))
    vmm_log_warning ("the default network keeps its subnet until it is deleted", "network", name,
                     "cidr", vmm_network_table_get_cidr (networks, name), "configured", subnet,
                     NULL);
  load_done (task);
}

/* Recovery ------------------------------------------------------------------------------------ */

static void recover_some (GTask *task);

static void
recovered_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  GTask *task = user_data;
  VmmService *self = g_task_get_source_object (task);
  LoadData *data = g_task_get_task_data (task);
  VmmMachine *machine = VMM_MACHINE (source);
  g_autoptr (GError) error = NULL;

  if (!vmm_machine_recover_finish (machine, result, &error))
    vmm_log_error ("recover", "vm", vmm_machine_get_id (machine), "error", error->message, NULL);
  vmm_service_restore_forwards (self, machine);
  data->running--;
  recover_some (task);
}

/* Takes the task when the last one is through. */
static void
recover_some (GTask *task)
{
  VmmService *self = g_task_get_source_object (task);
  LoadData *data = g_task_get_task_data (task);

  while (data->running < RECOVERIES_MAX && data->next < data->queue->len)
    {
      VmmMachine *machine = g_ptr_array_index (data->queue, data->next++);

      data->running++;
      vmm_machine_recover_async (machine, NULL, recovered_cb, task);
    }
  if (data->running > 0)
    return;
  vmm_service_forget_stray_ports (self);
  ensure_default_network (task);
}

static void
networks_loaded_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  g_autoptr (GTask) task = user_data;
  VmmService *self = g_task_get_source_object (task);
  LoadData *data = g_task_get_task_data (task);
  GError *error = NULL;

  if (!vmm_network_table_load_finish (VMM_NETWORK_TABLE (source), result, &error)
      || !read_records (self, data, &error))
    {
      g_task_return_error (task, error);
      return;
    }
  vmm_network_table_forget_strangers (VMM_NETWORK_TABLE (source), is_known_vm, self);
  recover_some (g_steal_pointer (&task));
}

void
vmm_service_load_async (VmmService *self, GCancellable *cancellable, GAsyncReadyCallback callback,
                        gpointer user_data)
{
  GTask *task = g_task_new (self, cancellable, callback, user_data);
  LoadData *data = g_new0 (LoadData, 1);

  g_task_set_source_tag (task, vmm_service_load_async);
  data->queue = g_ptr_array_new_with_free_func (g_object_unref);
  g_task_set_task_data (task, data, (GDestroyNotify) load_data_free);
  vmm_file_remove_temporaries (self->context->state_dir);
  vmm_network_table_load_async (self->context->networks, cancellable, networks_loaded_cb, task);
}

gboolean
vmm_service_load_finish (VmmService *self, GAsyncResult *result, GError **error)
{
  g_return_val_if_fail (g_task_is_valid (result, self), FALSE);

  return g_task_propagate_boolean (G_TASK (result), error);
}

/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The metadata services of all VMs.
 *
 * A VM that was there before is listened for as soon as its record is read, which is before its
 * guest is looked for; a new one when its folder is there, before it is given its network: a guest
 * that cannot be served does not boot. */

#include "config.h"

#include "vmm-imds.h"

#include "vmm-imds-port.h"
#include "vmm-log.h"

/* Requests and connections of a VM. Ignition, systemd-imdsd and an agent make some dozen in a boot. */
#define BURST 200
#define PER_SECOND 100

static const VmmHttpTimes default_times = {
  .head_ms = 10 * 1000,
  .body_ms = 60 * 1000,
  .idle_ms = 60 * 1000,
  .stall_ms = 30 * 1000,
  .linger_ms = 5 * 1000,
};

struct _VmmImds
{
  GObject parent_instance;

  VmmImdsShared *shared;
  GHashTable *ports; /* VM id -> VmmImdsPort */
  gboolean closed;
  GTask *closing;
  guint limit_id;
};

G_DEFINE_FINAL_TYPE (VmmImds, vmm_imds, G_TYPE_OBJECT)

static void
finish_closing (VmmImds *self)
{
  g_autoptr (GTask) task = g_steal_pointer (&self->closing);

  g_clear_handle_id (&self->limit_id, g_source_remove);
  g_task_return_boolean (task, TRUE);
}

static gboolean
is_idle (VmmImds *self)
{
  GHashTableIter iter;
  gpointer port;

  g_hash_table_iter_init (&iter, self->ports);
  while (g_hash_table_iter_next (&iter, NULL, &port))
    if (!vmm_imds_port_is_idle (port))
      return FALSE;
  return TRUE;
}

static void
idle_cb (VmmImdsPort *port, gpointer user_data)
{
  VmmImds *self = user_data;

  if (self->closing != NULL && is_idle (self))
    finish_closing (self);
}

static void
added_cb (VmmService *service, VmmMachine *machine, gpointer user_data)
{
  VmmImds *self = user_data;
  VmmImdsPort *port = vmm_imds_port_new (self->shared, machine);
  g_autoptr (GError) error = NULL;

  g_signal_connect_object (port, "idle", G_CALLBACK (idle_cb), self, 0);
  g_hash_table_insert (self->ports, g_strdup (vmm_machine_get_id (machine)), port);
  if (self->closed || !g_file_test (vmm_machine_get_directory (machine), G_FILE_TEST_IS_DIR))
    return;
  if (!vmm_imds_port_listen (port, &error))
    vmm_log_error ("no metadata service", "vm", vmm_machine_get_id (machine), "error",
                   error->message, NULL);
}

static void
removed_cb (VmmService *service, VmmMachine *machine, gpointer user_data)
{
  VmmImds *self = user_data;
  VmmImdsPort *port = g_hash_table_lookup (self->ports, vmm_machine_get_id (machine));

  if (port == NULL)
    return;
  /* Requests that are being answered keep it. */
  vmm_imds_port_finish (port);
  g_hash_table_remove (self->ports, vmm_machine_get_id (machine));
}

static gboolean
open_metadata (gpointer data, const char *vm_id, GError **error)
{
  VmmImds *self = data;
  VmmImdsPort *port = g_hash_table_lookup (self->ports, vm_id);

  if (port != NULL && !self->closed)
    return vmm_imds_port_listen (port, error);
  vmm_set_error (error, VMM_ERROR_CONFLICT, "vm-manager is shutting down");
  return FALSE;
}

void
vmm_imds_set_times (VmmImds *self, const VmmHttpTimes *times)
{
  self->shared->times = *times;
}

void
vmm_imds_set_rate (VmmImds *self, guint burst, double per_second)
{
  self->shared->burst = burst;
  self->shared->per_second = per_second;
}

static gboolean
limit_over_cb (gpointer user_data)
{
  g_autoptr (VmmImds) self = g_object_ref (user_data);
  g_autoptr (GList) ports = g_hash_table_get_values (self->ports);

  self->limit_id = 0;
  for (GList *l = ports; l != NULL; l = l->next)
    vmm_imds_port_abort (l->data);
  return G_SOURCE_REMOVE;
}

void
vmm_imds_close_async (VmmImds *self, guint timeout_ms, GAsyncReadyCallback callback,
                      gpointer user_data)
{
  g_autoptr (GList) ports = g_hash_table_get_values (self->ports);

  g_return_if_fail (!self->closed);

  self->closed = TRUE;
  for (GList *l = ports; l != NULL; l = l->next)
    vmm_imds_port_finish (l->data);
  self->closing = g_task_new (self, NULL, callback, user_data);
  g_task_set_source_tag (self->closing, vmm_imds_close_async);
  self->limit_id = g_timeout_add (timeout_ms, limit_over_cb, self);
  if (is_idle (self))
    finish_closing (self);
}

gboolean
vmm_imds_close_finish (VmmImds *self, GAsyncResult *result, GError **error)
{
  g_return_val_if_fail (g_task_is_valid (result, self), FALSE);

  return g_task_propagate_boolean (G_TASK (result), error);
}

VmmImds *
vmm_imds_new (VmmService *service)
{
  VmmImds *self = g_object_new (VMM_TYPE_IMDS, NULL);
  VmmMachineContext *context = vmm_service_get_context (service);
  g_autofree char *artifacts = g_build_filename (
      vmm_options_get_string (context->options, "image-dir"), "sysupdate", NULL);

  self->shared = g_rc_box_new0 (VmmImdsShared);
  self->shared->service = g_object_ref (service);
  self->shared->disk = vmm_imds_disk_new (artifacts);
  self->shared->times = default_times;
  self->shared->burst = BURST;
  self->shared->per_second = PER_SECOND;
  context->open_metadata = open_metadata;
  context->open_metadata_data = self;
  g_signal_connect_object (service, "machine-added", G_CALLBACK (added_cb), self, 0);
  g_signal_connect_object (service, "machine-removed", G_CALLBACK (removed_cb), self, 0);
  return self;
}

static void
vmm_imds_dispose (GObject *object)
{
  VmmImds *self = VMM_IMDS (object);
  g_autoptr (GList) ports = g_hash_table_get_values (self->ports);

  g_clear_handle_id (&self->limit_id, g_source_remove);
  for (GList *l = ports; l != NULL; l = l->next)
    {
      g_signal_handlers_disconnect_by_data (l->data, self);
      vmm_imds_port_abort (l->data);
    }
  g_hash_table_remove_all (self->ports);
  if (self->shared != NULL)
    {
      vmm_service_get_context (self->shared->service)->open_metadata = NULL;
      g_signal_handlers_disconnect_by_data (self->shared->service, self);
    }
  g_clear_pointer (&self->shared, vmm_imds_shared_unref);
  G_OBJECT_CLASS (vmm_imds_parent_class)->dispose (object);
}

static void
vmm_imds_finalize (GObject *object)
{
  VmmImds *self = VMM_IMDS (object);

  g_hash_table_unref (self->ports);
  G_OBJECT_CLASS (vmm_imds_parent_class)->finalize (object);
}

static void
vmm_imds_class_init (VmmImdsClass *klass)
{
  GObjectClass *object_class = G_OBJECT_CLASS (klass);

  object_class->dispose = vmm_imds_dispose;
  object_class->finalize = vmm_imds_finalize;
}

static void
vmm_imds_init (VmmImds *self)
{
  self->ports = g_hash_table_new_full (g_str_hash, g_str_equal, g_free, g_object_unref);
}

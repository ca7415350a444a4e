/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The service's end: let every VM go or stop it, all at once, then the networks.
 *
 * Once it began nothing is started any more. It takes the stop timeout and ten seconds at most,
 * whatever hangs: then it answers all the same and names what did not end. */

#include "config.h"

#include "vmm-service-private.h"

#include "vmm-log.h"

#define GRACE_US (10 * G_USEC_PER_SEC)

typedef struct
{
  gboolean detach;
  guint deadline_id;
  gboolean answered;
  GHashTable *open; /* of VmmMachine: not closed yet */
  gboolean networks_begun;
} CloseData;

static void
close_data_free (CloseData *data)
{
  g_clear_handle_id (&data->deadline_id, g_source_remove);
  g_hash_table_unref (data->open);
  g_free (data);
}

static void
answer (GTask *task)
{
  VmmService *self = g_task_get_source_object (task);
  CloseData *data = g_task_get_task_data (task);

  if (data->answered)
    return;
  data->answered = TRUE;
  g_clear_handle_id (&data->deadline_id, g_source_remove);
  self->closed = TRUE;
  g_task_return_boolean (task, TRUE);
}

static void
networks_closed_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  g_autoptr (GTask) task = user_data;
  g_autoptr (GError) error = NULL;

  if (!vmm_network_table_close_finish (VMM_NETWORK_TABLE (source), result, &error))
    vmm_log_warning ("close networks", "error", error->message, NULL);
  answer (task);
}

static void
close_networks (GTask *task)
{
  VmmService *self = g_task_get_source_object (task);
  CloseData *data = g_task_get_task_data (task);

  if (data->networks_begun)
    return;
  data->networks_begun = TRUE;
  vmm_network_table_close_async (self->context->networks, data->detach, NULL, networks_closed_cb,
                                 g_object_ref (task));
}

static gboolean
deadline_cb (gpointer user_data)
{
  g_autoptr (GTask) task = g_object_ref (G_TASK (user_data));
  CloseData *data = g_task_get_task_data (task);
  GHashTableIter iter;
  gpointer machine;

  data->deadline_id = 0;
  g_hash_table_iter_init (&iter, data->open);
  while (g_hash_table_iter_next (&iter, &machine, NULL))
    vmm_log_error ("vm did not end in time", "vm", vmm_machine_get_id (machine), NULL);

  /* The networks are told; nobody waits for them any more. */
  close_networks (task);
  answer (task);
  return G_SOURCE_REMOVE;
}

static void
machine_closed_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  g_autoptr (GTask) task = user_data;
  CloseData *data = g_task_get_task_data (task);
  VmmMachine *machine = VMM_MACHINE (source);
  g_autoptr (GError) error = NULL;

  if (!vmm_machine_close_finish (machine, result, &error))
    vmm_log_error ("close vm", "vm", vmm_machine_get_id (machine), "error", error->message, NULL);
  g_hash_table_remove (data->open, machine);
  if (g_hash_table_size (data->open) == 0)
    close_networks (task);
}

static void
close_machines (VmmService *self, GTask *task)
{
  CloseData *data = g_task_get_task_data (task);
  g_autoptr (GPtrArray) machines = g_ptr_array_new_with_free_func (g_object_unref);

  for (guint i = 0; i < self->machines->len; i++)
    {
      VmmMachine *machine = g_ptr_array_index (self->machines, i);

      g_ptr_array_add (machines, g_object_ref (machine));
      g_hash_table_add (data->open, g_object_ref (machine));
    }
  for (guint i = 0; i < machines->len; i++)
    vmm_machine_close_async (g_ptr_array_index (machines, i), data->detach, machine_closed_cb,
                             g_object_ref (task));
  if (machines->len == 0)
    close_networks (task);
}

static gint64
longest_stop (VmmService *self)
{
  gint64 longest_us = self->context->stop_timeout_us;

  for (guint i = 0; i < self->machines->len; i++)
    longest_us = MAX (longest_us, vmm_machine_get_stop_timeout (
                                      g_ptr_array_index (self->machines, i)));
  return longest_us;
}

void
vmm_service_close_async (VmmService *self, gboolean detach, GAsyncReadyCallback callback,
                         gpointer user_data)
{
  g_autoptr (GTask) task = g_task_new (self, NULL, callback, user_data);
  VmmLauncher *launcher = self->context->launcher;
  gint64 budget_us = longest_stop (self) + GRACE_US;
  CloseData *data;

  g_task_set_source_tag (task, vmm_service_close_async);
  if (self->context->closing && self->closed)
    {
      g_task_return_boolean (task, TRUE);
      return;
    }

  self->context->closing = TRUE;
  data = g_new0 (CloseData, 1);
  /* Processes that end with the daemon are stopped in order rather than cut off. */
  data->detach = detach && launcher != NULL && vmm_launcher_outlives_daemon (launcher);
  data->open = g_hash_table_new_full (NULL, NULL, g_object_unref, NULL);
  g_task_set_task_data (task, data, (GDestroyNotify) close_data_free);
  data->deadline_id = g_timeout_add ((guint) MAX (budget_us / 1000, 0), deadline_cb, task);
  close_machines (self, task);
}

gboolean
vmm_service_close_finish (VmmService *self, GAsyncResult *result, GError **error)
{
  g_return_val_if_fail (g_task_is_valid (result, self), FALSE);

  return g_task_propagate_boolean (G_TASK (result), error);
}

/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The forwards of a VM's record.
 *
 * Whoever asks the network for a forward has it recorded here before he answers; a forward that
 * could not be recorded is not there, and its taker takes it down. At a delete all are closed.
 */

#include "config.h"

#include "vmm-log.h"
#include "vmm-machine-private.h"

VmmForward *
vmm_machine_find_forward (VmmMachine *self, const char *id)
{
  GPtrArray *forwards = self->record->forwards;

  for (guint i = 0; i < forwards->len; i++)
    {
      VmmForward *forward = g_ptr_array_index (forwards, i);

      if (g_strcmp0 (forward->id, id) == 0)
        return forward;
    }
  return NULL;
}

static void
added_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  g_autoptr (GTask) task = user_data;
  VmmMachine *self = VMM_MACHINE (source);
  GError *error = NULL;

  if (vmm_machine_save_finish (self, result, &error))
    {
      g_task_return_boolean (task, TRUE);
      return;
    }
  g_ptr_array_remove (self->record->forwards,
                      vmm_machine_find_forward (self, g_task_get_task_data (task)));
  vmm_machine_save (self);
  g_task_return_error (task, error);
}

void
vmm_machine_add_forward_async (VmmMachine *self, VmmForward *forward,
                               GAsyncReadyCallback callback, gpointer user_data)
{
  g_autoptr (GTask) task = g_task_new (self, NULL, callback, user_data);

  g_return_if_fail (VMM_IS_MACHINE (self));
  g_return_if_fail (forward != NULL && forward->id != NULL);

  g_task_set_source_tag (task, vmm_machine_add_forward_async);
  g_task_set_task_data (task, g_strdup (forward->id), g_free);
  if (self->record->state == VMM_MACHINE_DELETING || self->record->state == VMM_MACHINE_GONE)
    {
      g_task_return_error (task, vmm_machine_give_up_error (self, VMM_GIVE_UP_DELETE));
      return;
    }
  g_ptr_array_add (self->record->forwards, vmm_forward_copy (forward));
  vmm_machine_save_async (self, added_cb, g_steal_pointer (&task));
}

gboolean
vmm_machine_add_forward_finish (VmmMachine *self, GAsyncResult *result, GError **error)
{
  g_return_val_if_fail (g_task_is_valid (result, self), FALSE);
  return g_task_propagate_boolean (G_TASK (result), error);
}

static void
removed_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  g_autoptr (GTask) task = user_data;
  GError *error = NULL;

  if (vmm_machine_save_finish (VMM_MACHINE (source), result, &error))
    g_task_return_boolean (task, TRUE);
  else
    g_task_return_error (task, error);
}

void
vmm_machine_remove_forward_async (VmmMachine *self, const char *forward_id,
                                  GAsyncReadyCallback callback, gpointer user_data)
{
  g_autoptr (GTask) task = g_task_new (self, NULL, callback, user_data);
  VmmForward *forward;

  g_return_if_fail (VMM_IS_MACHINE (self));

  g_task_set_source_tag (task, vmm_machine_remove_forward_async);
  forward = vmm_machine_find_forward (self, forward_id);
  if (forward == NULL)
    {
      g_task_return_error (task, vmm_error_new (VMM_ERROR_NOT_FOUND, "forward \"%s\" of vm %s",
                                                forward_id, self->record->id));
      return;
    }
  g_ptr_array_remove (self->record->forwards, forward);
  vmm_machine_save_async (self, removed_cb, g_steal_pointer (&task));
}

gboolean
vmm_machine_remove_forward_finish (VmmMachine *self, GAsyncResult *result, GError **error)
{
  g_return_val_if_fail (g_task_is_valid (result, self), FALSE);
  return g_task_propagate_boolean (G_TASK (result), error);
}

static void close_next (GTask *task);

static void
closed_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  GTask *task = user_data;
  VmmMachine *self = g_task_get_source_object (task);
  g_autoptr (GError) error = NULL;

  if (!vmm_network_unforward_finish (VMM_NETWORK (source), result, &error)
      && !g_error_matches (error, VMM_ERROR, VMM_ERROR_NOT_FOUND))
    vmm_log_warning ("forward could not be closed", "vm", self->record->id, "error",
                     error->message, NULL);
  close_next (task);
}

/* Consumes the reference to the task once there is none left. */
static void
close_next (GTask *task)
{
  VmmMachine *self = g_task_get_source_object (task);
  VmmNetwork *network = vmm_machine_get_network (self, NULL);
  GPtrArray *forwards = self->record->forwards;
  g_autofree char *id = NULL;

  if (forwards->len == 0 || network == NULL)
    {
      g_task_return_boolean (task, TRUE);
      g_object_unref (task);
      return;
    }
  id = g_strdup (((VmmForward *) g_ptr_array_index (forwards, 0))->id);
  g_ptr_array_remove_index (forwards, 0);
  vmm_network_unforward_async (network, id, NULL, closed_cb, task);
}

void
vmm_machine_close_forwards_async (VmmMachine *self, GAsyncReadyCallback callback,
                                  gpointer user_data)
{
  GTask *task = g_task_new (self, NULL, callback, user_data);

  g_task_set_source_tag (task, vmm_machine_close_forwards_async);
  close_next (task);
}

gboolean
vmm_machine_close_forwards_finish (VmmMachine *self, GAsyncResult *result, GError **error)
{
  g_return_val_if_fail (g_task_is_valid (result, self), FALSE);
  return g_task_propagate_boolean (G_TASK (result), error);
}

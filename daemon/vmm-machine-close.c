/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The daemon ends: let go of a VM's processes, or stop them.
 *
 * The closing flag is set, so nothing begins any more. An operation in flight is waited for when the
 * processes stay, and given up when they are to end. Both are bounded: what does not end in time is
 * left to the next start, which settles it.
 */

#include "config.h"

#include "vmm-log.h"
#include "vmm-machine-private.h"

#define SPARE_MS 10000

typedef struct
{
  gboolean detach;
  guint limit;
} Close;

static void
close_free (Close *close)
{
  g_clear_handle_id (&close->limit, g_source_remove);
  g_free (close);
}

static void
answer (GTask *task)
{
  Close *close = g_task_get_task_data (task);

  g_clear_handle_id (&close->limit, g_source_remove);
  if (!g_task_get_completed (task))
    g_task_return_boolean (task, TRUE);
}

static void
let_go (VmmMachine *self)
{
  g_autoptr (GError) error = vmm_machine_give_up_error (self, VMM_GIVE_UP_CLOSING);

  self->closed = TRUE;
  vmm_machine_disarm_phase_timer (self);
  vmm_machine_clear_stop (self);
  vmm_machine_close_channels (self);
  for (guint i = 0; i < VMM_N_PROCESS_ROLES; i++)
    {
      g_clear_handle_id (&self->helper_timers[i], g_source_remove);
      if (self->processes[i] == NULL)
        continue;
      g_signal_handlers_disconnect_by_data (self->processes[i], self);
      vmm_process_detach (self->processes[i]);
    }
  vmm_machine_waits_return (&self->stop_waits, error);
}

static void
flushed_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  g_autoptr (GTask) task = user_data;

  vmm_machine_save_finish (VMM_MACHINE (source), result, NULL);
  answer (task);
}

static void
flush (GTask *task)
{
  VmmMachine *self = g_task_get_source_object (task);

  /* One that failed is due. */
  if (self->file == NULL || (vmm_coalesced_file_is_idle (self->file) && self->save_note == NULL))
    answer (task);
  else
    vmm_machine_save_async (self, flushed_cb, g_object_ref (task));
}

static void
stopped_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  g_autoptr (GTask) task = user_data;
  VmmMachine *self = VMM_MACHINE (source);
  g_autoptr (GError) error = NULL;

  if (!vmm_machine_stop_finish (self, result, &error))
    vmm_log_warning ("vm could not be stopped at the end of vm-manager", "vm", self->record->id,
                     "error", error->message, NULL);
  flush (task);
}

static void
settled_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  g_autoptr (GTask) task = user_data;
  VmmMachine *self = VMM_MACHINE (source);
  Close *close = g_task_get_task_data (task);
  gboolean live = vmm_machine_state_is_live (self->record->state);

  if (live && !close->detach)
    {
      vmm_machine_stop_async (self, NULL, stopped_cb, g_steal_pointer (&task));
      return;
    }
  if (close->detach)
    {
      if (live)
        vmm_log_info ("vm left running", "vm", self->record->id, NULL);
      let_go (self);
    }
  flush (task);
}

static void
idle_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  vmm_machine_wait_settled_async (VMM_MACHINE (source), settled_cb, user_data);
}

static gboolean
limit_cb (gpointer user_data)
{
  GTask *task = user_data;
  VmmMachine *self = g_task_get_source_object (task);
  Close *close = g_task_get_task_data (task);

  close->limit = 0;
  vmm_log_error ("vm did not end in time and is left to the next start", "vm", self->record->id,
                 NULL);
  if (close->detach)
    let_go (self);
  answer (task);
  return G_SOURCE_REMOVE;
}

void
vmm_machine_close_async (VmmMachine *self, gboolean detach, GAsyncReadyCallback callback,
                         gpointer user_data)
{
  GTask *task;
  Close *close = g_new0 (Close, 1);
  gint64 limit_ms;

  g_return_if_fail (VMM_IS_MACHINE (self));

  task = g_task_new (self, NULL, callback, user_data);
  g_task_set_source_tag (task, vmm_machine_close_async);
  g_task_set_task_data (task, close, (GDestroyNotify) close_free);
  close->detach = detach && vmm_launcher_outlives_daemon (self->context->launcher);
  limit_ms = CLAMP (vmm_machine_get_stop_timeout (self) / 1000, 0, G_MAXINT / 2) + SPARE_MS;
  close->limit = g_timeout_add_full (G_PRIORITY_DEFAULT, (guint) limit_ms, limit_cb,
                                     g_object_ref (task), g_object_unref);
  if (!close->detach)
    vmm_machine_give_up (self, VMM_GIVE_UP_CLOSING);
  vmm_machine_wait_idle_async (self, idle_cb, task);
}

gboolean
vmm_machine_close_finish (VmmMachine *self, GAsyncResult *result, GError **error)
{
  g_return_val_if_fail (g_task_is_valid (result, self), FALSE);
  return g_task_propagate_boolean (G_TASK (result), error);
}

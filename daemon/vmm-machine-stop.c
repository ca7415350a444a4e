/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Stopping a guest: the power button, then TERM, then KILL, within the stop timeout.
 *
 * The button is pressed again every few seconds, since a guest that does not listen yet loses it.
 * Nothing here says that the VM is stopped: that is only so when its process has ended, which comes
 * by vmm-machine-exit.c. A second stop joins the first; a caller who leaves changes nothing.
 */

#include "config.h"

#include "vmm-log.h"
#include "vmm-machine-private.h"

#define PRESS_INTERVAL_MS 5000
#define PRESS_ANSWER_MS 4000
#define TERM_GRACE_MS 5000

static void press (VmmMachine *self);

static guint
stop_timeout_ms (VmmMachine *self)
{
  return (guint) CLAMP (vmm_machine_get_stop_timeout (self) / 1000, 1, G_MAXINT / 2);
}

/* The last part of the time is for TERM; all of it counts as the stop timeout. */
static guint
term_grace_ms (VmmMachine *self)
{
  return MIN (TERM_GRACE_MS, stop_timeout_ms (self) / 4);
}

static void
clear_timers (VmmMachine *self)
{
  g_clear_handle_id (&self->press_timer, g_source_remove);
  g_clear_handle_id (&self->stop_timer, g_source_remove);
}

void
vmm_machine_clear_stop (VmmMachine *self)
{
  clear_timers (self);
  self->stopping_process = FALSE;
}

static void
forced_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  g_autoptr (VmmMachine) self = user_data;
  VmmProcess *process = VMM_PROCESS (source);
  g_autoptr (GError) error = NULL;

  vmm_process_stop_finish (process, result, &error);
  if (vmm_process_has_exited (process) || self->processes[VMM_PROCESS_ROLE_QEMU] != process)
    return;
  if (error == NULL)
    vmm_set_error (&error, VMM_ERROR_TIMEOUT, "qemu of vm %s does not end", self->record->id);
  else
    g_prefix_error (&error, "stop qemu of vm %s: ", self->record->id);
  vmm_log_error ("qemu could not be stopped", "vm", self->record->id, "error", error->message,
                 NULL);
  /* It may be asked again; the state stays what it is. */
  vmm_machine_clear_stop (self);
  vmm_machine_waits_return (&self->stop_waits, error);
}

static void
force (VmmMachine *self, guint grace_ms)
{
  VmmProcess *qemu = self->processes[VMM_PROCESS_ROLE_QEMU];

  clear_timers (self);
  if (qemu == NULL || vmm_process_has_exited (qemu))
    return;
  vmm_process_stop_async (qemu, grace_ms, NULL, forced_cb, g_object_ref (self));
}

static gboolean
stop_timer_cb (gpointer user_data)
{
  VmmMachine *self = user_data;

  self->stop_timer = 0;
  vmm_log_info ("guest did not power off in time", "vm", self->record->id, NULL);
  force (self, term_grace_ms (self));
  return G_SOURCE_REMOVE;
}

static gboolean
press_timer_cb (gpointer user_data)
{
  VmmMachine *self = user_data;

  self->press_timer = 0;
  press (self);
  return G_SOURCE_REMOVE;
}

static void
pressed_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  g_autoptr (VmmMachine) self = user_data;
  g_autoptr (GError) error = NULL;
  g_autoptr (JsonNode) answer = vmm_qmp_execute_finish (VMM_QMP (source), result, &error);

  if (!self->stopping_process || self->stop_timer == 0 || self->press_timer != 0)
    return;
  if (answer == NULL)
    {
      vmm_log_warning ("power button could not be pressed", "vm", self->record->id, "error",
                       error->message, NULL);
      force (self, term_grace_ms (self));
      return;
    }
  self->press_timer = g_timeout_add (PRESS_INTERVAL_MS, press_timer_cb, self);
}

static void
press (VmmMachine *self)
{
  /* The guest is on its way. */
  if (self->shutdown_reason != NULL)
    return;
  if (self->qmp == NULL || !vmm_qmp_is_open (self->qmp))
    {
      force (self, term_grace_ms (self));
      return;
    }
  vmm_qmp_execute_async (self->qmp, "system_powerdown", NULL,
                         MIN (PRESS_ANSWER_MS, stop_timeout_ms (self)), NULL, pressed_cb,
                         g_object_ref (self));
}

void
vmm_machine_power_down (VmmMachine *self)
{
  VmmProcess *qemu = self->processes[VMM_PROCESS_ROLE_QEMU];

  if (self->stopping_process || self->settling)
    return;
  if (self->starting)
    {
      /* Undone by the start itself, which then says that it was cancelled. */
      vmm_machine_give_up (self, VMM_GIVE_UP_STOP);
      return;
    }
  if (qemu == NULL)
    {
      /* Between two boots; the one that is due finds itself stopped. */
      if (!vmm_machine_is_busy (self))
        vmm_machine_handle_event (self, VMM_MACHINE_EVENT_PROCESS_EXITED_OK, NULL, NULL);
      return;
    }
  self->stopping_process = TRUE;
  self->stop_timer = g_timeout_add (MAX (stop_timeout_ms (self) - term_grace_ms (self), 1),
                                    stop_timer_cb, self);
  press (self);
}

static void
killed_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  g_autoptr (VmmMachine) self = user_data;
  g_autoptr (GError) error = NULL;

  if (!vmm_process_stop_finish (VMM_PROCESS (source), result, &error))
    vmm_log_error ("qemu could not be killed", "vm", self->record->id, "error", error->message,
                   NULL);
}

void
vmm_machine_kill (VmmMachine *self)
{
  VmmProcess *qemu = self->processes[VMM_PROCESS_ROLE_QEMU];

  if (qemu != NULL)
    vmm_process_stop_async (qemu, 0, NULL, killed_cb, g_object_ref (self));
}

static void
end_saved_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  VmmMachine *self = VMM_MACHINE (source);
  VmmMachineState state = self->record->state;
  g_autoptr (GError) error = NULL;

  /* A record that could not be written does not make a stopped VM run. */
  vmm_machine_save_finish (self, result, NULL);
  if (state == VMM_MACHINE_STOPPING)
    return;
  if (state == VMM_MACHINE_DELETING || state == VMM_MACHINE_GONE)
    error = vmm_machine_give_up_error (self, VMM_GIVE_UP_DELETE);
  vmm_machine_waits_return (&self->stop_waits, error);
}

void
vmm_machine_answer_stops (VmmMachine *self)
{
  vmm_machine_save_async (self, end_saved_cb, NULL);
}

void
vmm_machine_stop_async (VmmMachine *self, GCancellable *cancellable, GAsyncReadyCallback callback,
                        gpointer user_data)
{
  VmmMachineWait *wait;
  g_autoptr (GError) error = NULL;

  g_return_if_fail (VMM_IS_MACHINE (self));

  wait = vmm_machine_wait_new (self, cancellable, callback, user_data, vmm_machine_stop_async);
  /* Before the event: its end may already be settled within. */
  g_queue_push_tail (&self->stop_waits, wait);
  if (vmm_machine_handle_event (self, VMM_MACHINE_EVENT_STOP_REQUESTED, NULL, &error))
    return;
  if (g_queue_remove (&self->stop_waits, wait))
    vmm_machine_wait_return (wait, error);
}

gboolean
vmm_machine_stop_finish (VmmMachine *self, GAsyncResult *result, GError **error)
{
  g_return_val_if_fail (g_task_is_valid (result, self), FALSE);
  return g_task_propagate_boolean (G_TASK (result), error);
}

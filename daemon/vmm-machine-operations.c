/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Create, start, reboot, delete, and the boot that follows an installer.
 *
 * Each runs in the machine's queue, asks the table whether it may, runs its sequence and reports the
 * outcome to the table. State and shutdown are looked at again after every wait: a delete or a stop
 * that came meanwhile has given the operation up, and what it had started is already undone.
 */

#include "config.h"

#include "vmm-machine-private.h"

#define DELETE_GRACE_MS 5000
#define SHUT_DOWN_TEXT "vm-manager shut down before the installed boot started; start the VM"

static void run_start (VmmMachine *self, VmmMachineOperation *operation);

/* Replaces a cancellation by why there was one. */
static GError *
explain (VmmMachine *self, GError *error)
{
  VmmMachineGiveUp why = self->operation->give_up;

  if (why == VMM_GIVE_UP_NONE || !g_error_matches (error, G_IO_ERROR, G_IO_ERROR_CANCELLED))
    return error;
  g_error_free (error);
  return vmm_machine_give_up_error (self, why);
}

static void
done_when_saved_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  VmmMachine *self = VMM_MACHINE (source);
  g_autoptr (GError) error = user_data;

  /* A record that could not be written does not undo what happened; lastError says so. */
  vmm_machine_save_finish (self, result, NULL);
  vmm_machine_operation_done (self, error);
}

/* Takes error. */
static void
done_when_saved (VmmMachine *self, GError *error)
{
  vmm_machine_save_async (self, done_when_saved_cb, error);
}

/* Create. */

static void
created_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  VmmMachine *self = user_data;
  GError *error = NULL;

  if (vmm_sequence_run_finish (result, &error))
    {
      vmm_machine_handle_event (self, VMM_MACHINE_EVENT_INSTALLER_STARTED, NULL, NULL);
      vmm_machine_release (self, TRUE);
      done_when_saved (self, NULL);
      return;
    }
  error = explain (self, error);
  vmm_machine_release (self, FALSE);
  if (self->left_behind && self->record->state == VMM_MACHINE_CREATING)
    {
      /* It would come back with the next start: name, CID and all stay taken until it is deleted. */
      g_autofree char *detail
          = g_strdup_printf ("%s; what was made of it could not be removed: delete it", error->message);

      self->storing = TRUE;
      vmm_machine_handle_event (self, VMM_MACHINE_EVENT_INTERRUPTED, detail, NULL);
    }
  else
    /* Refused when a delete came first, which then goes on by itself. */
    vmm_machine_handle_event (self, VMM_MACHINE_EVENT_CREATE_FAILED, error->message, NULL);
  vmm_machine_operation_done (self, error);
  g_error_free (error);
}

static void
run_create (VmmMachine *self, VmmMachineOperation *operation)
{
  g_autoptr (GError) error = NULL;

  if (self->record->state != VMM_MACHINE_CREATING)
    {
      error = vmm_machine_give_up_error (self, VMM_GIVE_UP_DELETE);
      vmm_machine_operation_done (self, error);
      return;
    }
  if (self->context->closing)
    {
      error = vmm_machine_give_up_error (self, VMM_GIVE_UP_CLOSING);
      vmm_machine_handle_event (self, VMM_MACHINE_EVENT_CREATE_FAILED, error->message, NULL);
      vmm_machine_operation_done (self, error);
      return;
    }
  self->record->user_data_released = FALSE;
  vmm_machine_hold (self, "install");
  vmm_machine_run_create_async (self, operation->cancellable, created_cb, self);
}

void
vmm_machine_create_async (VmmMachine *self, GBytes *guest_user_data, GCancellable *cancellable,
                          GAsyncReadyCallback callback, gpointer user_data)
{
  VmmMachineWait *wait;

  g_return_if_fail (VMM_IS_MACHINE (self));

  wait = vmm_machine_wait_new (self, cancellable, callback, user_data, vmm_machine_create_async);
  vmm_machine_enqueue (self, "create", run_create, wait, guest_user_data);
}

gboolean
vmm_machine_create_finish (VmmMachine *self, GAsyncResult *result, GError **error)
{
  g_return_val_if_fail (g_task_is_valid (result, self), FALSE);
  return g_task_propagate_boolean (G_TASK (result), error);
}

/* An installed boot: asked for, or after the installer. */

static void
boot_failed (VmmMachine *self, GError *error)
{
  VmmMachineGiveUp why = self->operation->give_up;
  g_autofree char *detail = NULL;

  vmm_machine_release (self, FALSE);
  if (why == VMM_GIVE_UP_STOP || why == VMM_GIVE_UP_DELETE)
    vmm_machine_handle_event (self, VMM_MACHINE_EVENT_BOOT_CANCELLED, NULL, NULL);
  else if (why == VMM_GIVE_UP_CLOSING)
    vmm_machine_handle_event (self, VMM_MACHINE_EVENT_BOOT_CANCELLED, SHUT_DOWN_TEXT, NULL);
  else
    {
      detail = self->operation->run == run_start
                   ? g_strdup (error->message)
                   : g_strconcat ("start installed boot: ", error->message, NULL);
      vmm_machine_handle_event (self, VMM_MACHINE_EVENT_BOOT_FAILED, detail, NULL);
    }
  done_when_saved (self, error);
}

static void
booted_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  VmmMachine *self = user_data;
  GError *error = NULL;

  if (!vmm_sequence_run_finish (result, &error))
    {
      boot_failed (self, explain (self, error));
      return;
    }
  self->starting = FALSE;
  vmm_machine_handle_event (self, VMM_MACHINE_EVENT_BOOT_STARTED, NULL, NULL);
  vmm_machine_release (self, TRUE);
  done_when_saved (self, NULL);
}

static void
boot (VmmMachine *self, const char *name)
{
  /* The guest runs a moment before its boot is an event: what an earlier one was given is void. */
  self->record->user_data_released = FALSE;
  vmm_machine_hold (self, "boot");
  vmm_machine_run_boot_async (self, name, self->operation->cancellable, booted_cb, self);
}

static void
run_installed_boot (VmmMachine *self, VmmMachineOperation *operation)
{
  VmmMachineState state = self->record->state;

  if (state == VMM_MACHINE_INSTALLING && !self->context->closing)
    {
      boot (self, "installed-boot");
      return;
    }
  vmm_machine_handle_event (self, VMM_MACHINE_EVENT_BOOT_CANCELLED,
                            state == VMM_MACHINE_INSTALLING ? SHUT_DOWN_TEXT : NULL, NULL);
  done_when_saved (self, NULL);
}

void
vmm_machine_enqueue_installed_boot (VmmMachine *self)
{
  vmm_machine_enqueue (self, "installed-boot", run_installed_boot, NULL, NULL);
}

/* START_REQUESTED was handled, so the state is booting already. */
static void
run_boot (VmmMachine *self, VmmMachineOperation *operation)
{
  if (self->record->state == VMM_MACHINE_BOOTING)
    {
      boot (self, "start");
      return;
    }
  vmm_machine_handle_event (self, VMM_MACHINE_EVENT_BOOT_CANCELLED, NULL, NULL);
  done_when_saved (self, NULL);
}

void
vmm_machine_enqueue_boot (VmmMachine *self)
{
  /* A start goes on by itself; this is for the event alone. */
  if (self->operation == NULL || self->operation->run != run_start)
    vmm_machine_enqueue (self, "start", run_boot, NULL, NULL);
}

static void
run_start (VmmMachine *self, VmmMachineOperation *operation)
{
  g_autoptr (GError) error = NULL;

  if (self->processes[VMM_PROCESS_ROLE_QEMU] != NULL && !self->settling
      && !vmm_machine_state_is_live (self->record->state))
    vmm_set_error (&error, VMM_ERROR_CONFLICT,
                   "vm %s is %s, but its qemu could not be stopped and still runs",
                   self->record->id, vmm_machine_state_to_nick (self->record->state));
  if (error != NULL
      || !vmm_machine_handle_event (self, VMM_MACHINE_EVENT_START_REQUESTED, NULL, &error))
    {
      vmm_machine_operation_done (self, error);
      return;
    }
  boot (self, "start");
}

void
vmm_machine_start_async (VmmMachine *self, GCancellable *cancellable, GAsyncReadyCallback callback,
                         gpointer user_data)
{
  VmmMachineWait *wait;

  g_return_if_fail (VMM_IS_MACHINE (self));

  wait = vmm_machine_wait_new (self, cancellable, callback, user_data, vmm_machine_start_async);
  vmm_machine_enqueue (self, "start", run_start, wait, NULL);
}

gboolean
vmm_machine_start_finish (VmmMachine *self, GAsyncResult *result, GError **error)
{
  g_return_val_if_fail (g_task_is_valid (result, self), FALSE);
  return g_task_propagate_boolean (G_TASK (result), error);
}

/* Reboot: a stop, then a start. The caller waits for both; the work does not depend on him. */

static void
restarted_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  VmmMachineWait *wait = user_data;
  g_autoptr (GError) error = NULL;

  vmm_machine_start_finish (VMM_MACHINE (source), result, &error);
  vmm_machine_wait_return (wait, error);
}

static void
stopped_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  VmmMachineWait *wait = user_data;
  g_autoptr (GError) error = NULL;

  if (vmm_machine_stop_finish (VMM_MACHINE (source), result, &error))
    vmm_machine_start_async (VMM_MACHINE (source), NULL, restarted_cb, wait);
  else
    vmm_machine_wait_return (wait, error);
}

void
vmm_machine_reboot_async (VmmMachine *self, GCancellable *cancellable,
                          GAsyncReadyCallback callback, gpointer user_data)
{
  VmmMachineWait *wait;
  g_autoptr (GError) error = NULL;

  g_return_if_fail (VMM_IS_MACHINE (self));

  wait = vmm_machine_wait_new (self, cancellable, callback, user_data, vmm_machine_reboot_async);
  /* What could not be started again is not stopped. */
  if (self->context->closing)
    error = vmm_machine_give_up_error (self, VMM_GIVE_UP_CLOSING);
  else if (vmm_machine_state_is_live (self->record->state) && self->record->installed_at == 0)
    vmm_set_error (&error, VMM_ERROR_CONFLICT,
                   "vm %s never finished installing; delete and recreate it", self->record->id);
  if (error != NULL)
    vmm_machine_wait_return (wait, error);
  else
    vmm_machine_stop_async (self, NULL, stopped_cb, wait);
}

gboolean
vmm_machine_reboot_finish (VmmMachine *self, GAsyncResult *result, GError **error)
{
  g_return_val_if_fail (g_task_is_valid (result, self), FALSE);
  return g_task_propagate_boolean (G_TASK (result), error);
}

/* Delete. */

static void
discarded_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  VmmMachine *self = VMM_MACHINE (source);
  g_autoptr (GError) error = NULL;

  if (vmm_machine_run_discard_finish (self, result, &error))
    {
      vmm_machine_handle_event (self, VMM_MACHINE_EVENT_DISCARDED, NULL, NULL);
      vmm_machine_operation_done (self, NULL);
      return;
    }
  /* A record that is still there comes back with the next start: this is not deleted. */
  g_prefix_error (&error, "vm %s is not deleted, delete it again: ", self->record->id);
  vmm_machine_handle_event (self, VMM_MACHINE_EVENT_INTERRUPTED, error->message, NULL);
  vmm_machine_waits_return (&self->delete_waits, error);
  vmm_machine_operation_done (self, error);
}

static void
helpers_ended_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  vmm_machine_run_discard_async (VMM_MACHINE (source), discarded_cb, NULL);
}

static void
settled_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  vmm_machine_end_helpers_async (VMM_MACHINE (source), helpers_ended_cb, NULL);
}

static void
process_stopped_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  VmmMachine *self = user_data;
  VmmProcess *process = VMM_PROCESS (source);
  g_autoptr (GError) error = NULL;

  vmm_process_stop_finish (process, result, &error);
  if (vmm_process_has_exited (process))
    {
      vmm_machine_wait_settled_async (self, settled_cb, NULL);
      return;
    }
  /* A disk in use is not removed. */
  if (error == NULL)
    vmm_set_error (&error, VMM_ERROR_TIMEOUT, "it does not end");
  g_prefix_error (&error, "stop qemu of vm %s: ", self->record->id);
  vmm_machine_handle_event (self, VMM_MACHINE_EVENT_DELETE_FAILED, error->message, NULL);
  vmm_machine_waits_return (&self->delete_waits, error);
  vmm_machine_operation_done (self, error);
}

static void
run_delete (VmmMachine *self, VmmMachineOperation *operation)
{
  VmmProcess *qemu = self->processes[VMM_PROCESS_ROLE_QEMU];

  if (self->record->state != VMM_MACHINE_DELETING)
    {
      vmm_machine_operation_done (self, NULL);
      return;
    }
  vmm_machine_clear_stop (self);
  if (qemu == NULL || self->settling)
    vmm_machine_wait_settled_async (self, settled_cb, NULL);
  else
    vmm_process_stop_async (qemu, DELETE_GRACE_MS, NULL, process_stopped_cb, self);
}

void
vmm_machine_enqueue_delete (VmmMachine *self)
{
  vmm_machine_give_up (self, VMM_GIVE_UP_DELETE);
  vmm_machine_enqueue (self, "delete", run_delete, NULL, NULL);
}

void
vmm_machine_delete_async (VmmMachine *self, GCancellable *cancellable,
                          GAsyncReadyCallback callback, gpointer user_data)
{
  VmmMachineWait *wait;
  g_autoptr (GError) error = NULL;

  g_return_if_fail (VMM_IS_MACHINE (self));

  wait = vmm_machine_wait_new (self, cancellable, callback, user_data, vmm_machine_delete_async);
  g_queue_push_tail (&self->delete_waits, wait);
  if (vmm_machine_handle_event (self, VMM_MACHINE_EVENT_DELETE_REQUESTED, NULL, &error))
    return;
  if (g_queue_remove (&self->delete_waits, wait))
    vmm_machine_wait_return (wait, error);
}

gboolean
vmm_machine_delete_finish (VmmMachine *self, GAsyncResult *result, GError **error)
{
  g_return_val_if_fail (g_task_is_valid (result, self), FALSE);
  return g_task_propagate_boolean (G_TASK (result), error);
}

/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* One machine's queue of operations, and those who wait for them.
 *
 * What starts or tears down processes and resources runs one after the other; that is the machine's
 * lock. The work belongs to the queue and not to its caller: a caller who goes away is answered at
 * once and the operation runs on. Only the machine itself gives an operation up, when a stop, a
 * delete or the daemon's end comes first.
 */

#include "config.h"

#include "vmm-machine-private.h"

#include "vmm-log.h"
#include "vmm-source.h"

struct _VmmMachineWait
{
  GTask *task; /* NULL once the caller has left */
  GSource *left;
};

static gboolean
caller_left_cb (GCancellable *cancellable, gpointer user_data)
{
  VmmMachineWait *wait = user_data;
  g_autoptr (GTask) task = g_steal_pointer (&wait->task);

  /* Who is answered here may bring the operation to its end, which frees the wait. */
  vmm_source_clear (&wait->left);
  g_task_return_error_if_cancelled (task);
  return G_SOURCE_REMOVE;
}

VmmMachineWait *
vmm_machine_wait_new (VmmMachine *self, GCancellable *cancellable, GAsyncReadyCallback callback,
                      gpointer user_data, gpointer source_tag)
{
  VmmMachineWait *wait = g_new0 (VmmMachineWait, 1);

  wait->task = g_task_new (self, cancellable, callback, user_data);
  g_task_set_source_tag (wait->task, source_tag);
  wait->left = vmm_source_new_cancelled (cancellable, caller_left_cb, wait);
  return wait;
}

void
vmm_machine_wait_return (VmmMachineWait *wait, const GError *error)
{
  if (wait == NULL)
    return;
  vmm_source_clear (&wait->left);
  if (wait->task != NULL && error != NULL)
    g_task_return_error (wait->task, g_error_copy (error));
  else if (wait->task != NULL)
    g_task_return_boolean (wait->task, TRUE);
  g_clear_object (&wait->task);
  g_free (wait);
}

void
vmm_machine_waits_return (GQueue *waits, const GError *error)
{
  VmmMachineWait *wait;

  while ((wait = g_queue_pop_head (waits)) != NULL)
    vmm_machine_wait_return (wait, error);
}

static void
operation_free (VmmMachineOperation *operation)
{
  g_clear_pointer (&operation->guest_user_data, g_bytes_unref);
  g_clear_object (&operation->cancellable);
  g_free (operation->exit_text);
  g_free (operation);
}

static void
run_next (VmmMachine *self)
{
  GTask *task;

  if (self->operation != NULL)
    return;
  self->operation = g_queue_pop_head (&self->operations);
  if (self->operation != NULL)
    {
      /* Kept alive by what it does. */
      g_object_ref (self);
      self->operation->run (self, self->operation);
      return;
    }
  while ((task = g_queue_pop_head (&self->idle_waits)) != NULL)
    {
      g_task_return_boolean (task, TRUE);
      g_object_unref (task);
    }
}

void
vmm_machine_enqueue (VmmMachine *self, const char *name, VmmMachineOperationRun run,
                     VmmMachineWait *wait, GBytes *guest_user_data)
{
  VmmMachineOperation *operation = g_new0 (VmmMachineOperation, 1);

  operation->name = name;
  operation->run = run;
  operation->wait = wait;
  operation->guest_user_data = guest_user_data != NULL ? g_bytes_ref (guest_user_data) : NULL;
  operation->cancellable = g_cancellable_new ();
  g_queue_push_tail (&self->operations, operation);
  run_next (self);
}

void
vmm_machine_operation_done (VmmMachine *self, const GError *error)
{
  VmmMachineOperation *operation = g_steal_pointer (&self->operation);

  g_return_if_fail (operation != NULL);
  vmm_machine_wait_return (g_steal_pointer (&operation->wait), error);
  operation_free (operation);
  run_next (self);
  g_object_unref (self);
}

void
vmm_machine_give_up (VmmMachine *self, VmmMachineGiveUp why)
{
  if (self->operation == NULL || self->operation->give_up != VMM_GIVE_UP_NONE)
    return;
  vmm_log_debug ("operation is given up", "vm", self->record->id, "operation",
                 self->operation->name, NULL);
  self->operation->give_up = why;
  g_cancellable_cancel (self->operation->cancellable);
}

GError *
vmm_machine_give_up_error (VmmMachine *self, VmmMachineGiveUp why)
{
  const char *id = self->record->id;
  const char *exit_text = self->operation != NULL ? self->operation->exit_text : NULL;

  switch (why)
    {
    case VMM_GIVE_UP_STOP:
      return vmm_error_new (VMM_ERROR_CONFLICT, "vm %s was stopped before it had started", id);
    case VMM_GIVE_UP_DELETE:
      return vmm_error_new (VMM_ERROR_CONFLICT, "vm %s is being deleted", id);
    case VMM_GIVE_UP_CLOSING:
      return vmm_error_new (VMM_ERROR_CONFLICT, "vm-manager is shutting down");
    case VMM_GIVE_UP_EXITED:
      return vmm_error_new (VMM_ERROR_INTERNAL, "start qemu: qemu exited during start (%s)",
                            exit_text != NULL ? exit_text : "gone");
    case VMM_GIVE_UP_NONE:
    default:
      return vmm_error_new (VMM_ERROR_INTERNAL, "vm %s: the operation was cancelled", id);
    }
}

gboolean
vmm_machine_is_busy (VmmMachine *self)
{
  return self->operation != NULL || !g_queue_is_empty (&self->operations);
}

void
vmm_machine_wait_idle_async (VmmMachine *self, GAsyncReadyCallback callback, gpointer user_data)
{
  GTask *task = g_task_new (self, NULL, callback, user_data);

  g_task_set_source_tag (task, vmm_machine_wait_idle_async);
  g_queue_push_tail (&self->idle_waits, task);
  run_next (self);
}

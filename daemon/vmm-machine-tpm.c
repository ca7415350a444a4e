/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* A VM's vTPM: its state is made once, beside the other steps of a create; each boot looks whether
 * it is whole, and starts swtpm on it; a copy is kept whenever it is known to be good.
 */

#include "config.h"

#include "interfaces/vmm-error.h"
#include "vmm-log.h"
#include "vmm-machine-private.h"
#include "vmm-source.h"
#include "vmm-tpm-state.h"
#include "vmm-tpm.h"

/* --- Making its state --- */

/* Takes most of a create's time and needs nothing but a folder. Whoever needs the state awaits it.
 */
struct _VmmMachineTpmMaking
{
  GCancellable *cancellable; /* of the work; NULL when it has ended */
  GSource *given_up;         /* the create was */
  GError *error;             /* that nobody was told yet */
  GTask *waiting;
  void (*go_on) (GTask *task, GError *error);
};

static void
making_free (VmmMachineTpmMaking *making)
{
  g_clear_error (&making->error);
  g_free (making);
}

/* Calls go_on with the task, and the error if it went wrong, once nothing is being made. */
static void
await_making (GTask *task, void (*go_on) (GTask *task, GError *error))
{
  VmmMachine *self = g_task_get_source_object (task);
  VmmMachineTpmMaking *making = self->tpm_making;
  GError *error;

  if (making != NULL && making->cancellable != NULL)
    {
      making->waiting = task;
      making->go_on = go_on;
      return;
    }
  error = making != NULL ? g_steal_pointer (&making->error) : NULL;
  g_clear_pointer (&self->tpm_making, making_free);
  go_on (task, error);
}

static void
made_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  g_autoptr (VmmMachine) self = user_data;
  VmmMachineTpmMaking *making = self->tpm_making;

  vmm_tpm_setup_finish (result, &making->error);
  vmm_source_clear (&making->given_up);
  g_clear_object (&making->cancellable);
  if (making->waiting != NULL)
    await_making (making->waiting, making->go_on);
}

static gboolean
given_up_cb (GCancellable *cancellable, gpointer user_data)
{
  VmmMachineTpmMaking *making = user_data;

  g_cancellable_cancel (making->cancellable);
  return G_SOURCE_REMOVE;
}

/* Only begins it. */
void
vmm_machine_make_tpm_async (gpointer subject, GCancellable *cancellable,
                            GAsyncReadyCallback callback, gpointer user_data)
{
  VmmMachine *self = subject;
  g_autoptr (GTask) task = vmm_machine_step_task (subject, cancellable, callback, user_data,
                                                  vmm_machine_make_tpm_async);
  g_autofree char *directory = vmm_machine_dup_path (self, "tpm");
  VmmMachineTpmMaking *making = g_new0 (VmmMachineTpmMaking, 1);

  making->cancellable = g_cancellable_new ();
  making->given_up = vmm_source_new_cancelled (cancellable, given_up_cb, making);
  self->tpm_making = making;
  vmm_tpm_setup_async (self->context->launcher, self->record->id, directory, making->cancellable,
                       made_cb, g_object_ref (self));
  g_task_return_boolean (task, TRUE);
}

static void
made_for_undo (GTask *task, GError *error)
{
  g_clear_error (&error);
  g_task_return_boolean (task, TRUE);
  g_object_unref (task);
}

void
vmm_machine_undo_make_tpm_async (gpointer subject, GCancellable *cancellable,
                                 GAsyncReadyCallback callback, gpointer user_data)
{
  VmmMachine *self = subject;
  GTask *task
      = vmm_machine_step_task (subject, NULL, callback, user_data, vmm_machine_undo_make_tpm_async);

  if (self->tpm_making != NULL)
    g_cancellable_cancel (self->tpm_making->cancellable);
  await_making (task, made_for_undo);
}

/* --- Starting swtpm --- */

static void
swtpm_started_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  g_autoptr (GTask) task = user_data;
  VmmMachine *self = g_task_get_source_object (task);
  GError *error = NULL;
  g_autoptr (VmmProcess) process = vmm_tpm_start_finish (result, &error);

  if (process != NULL)
    {
      vmm_machine_set_process (self, VMM_PROCESS_ROLE_TPM, process);
      vmm_machine_save (self);
    }
  vmm_machine_step_return (task, error, "start swtpm: ");
}

static void
start_swtpm (GTask *task)
{
  VmmMachine *self = g_task_get_source_object (task);
  g_autofree char *directory = vmm_machine_dup_path (self, "tpm");

  vmm_tpm_start_async (self->context->launcher, self->record->id, directory,
                       g_task_get_cancellable (task), swtpm_started_cb, task);
}

static void
mended_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  GTask *task = user_data;
  VmmMachine *self = g_task_get_source_object (task);
  VmmTpmState state = VMM_TPM_STATE_NONE;
  GError *error = NULL;

  if (!vmm_tpm_state_mend_finish (result, &state, &error))
    {
      vmm_machine_step_return (task, error, "start swtpm: ");
      g_object_unref (task);
      return;
    }
  if (state == VMM_TPM_STATE_RESTORED)
    {
      self->record->tpm_restored_at = g_get_real_time ();
      vmm_log_warning ("the state of the vtpm was lost or torn, the last good copy is used", "vm",
                       self->record->id, NULL);
    }
  if (state != VMM_TPM_STATE_NONE)
    {
      start_swtpm (task);
      return;
    }
  vmm_machine_step_return (task,
                           vmm_error_new (VMM_ERROR_INTERNAL,
                                          "the vtpm's state is lost, and there is no good copy; "
                                          "what was sealed to it cannot be opened any more"),
                           "start swtpm: ");
  g_object_unref (task);
}

static void
mend (GTask *task)
{
  VmmMachine *self = g_task_get_source_object (task);
  g_autofree char *directory = vmm_machine_dup_path (self, "tpm");
  g_autofree char *good_directory = vmm_machine_dup_path (self, "tpm.good");

  vmm_tpm_state_mend_async (directory, good_directory, mended_cb, task);
}

static void
made_for_start (GTask *task, GError *error)
{
  if (error == NULL)
    {
      start_swtpm (task);
      return;
    }
  vmm_machine_step_return (task, error, "set up the vtpm: ");
  g_object_unref (task);
}

void
vmm_machine_start_tpm_async (gpointer subject, GCancellable *cancellable,
                             GAsyncReadyCallback callback, gpointer user_data)
{
  VmmMachine *self = subject;
  GTask *task = vmm_machine_step_task (subject, cancellable, callback, user_data,
                                       vmm_machine_start_tpm_async);

  if (self->tpm_making != NULL)
    await_making (task, made_for_start);
  else
    mend (task);
}

static void
swtpm_ended_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  g_autoptr (GTask) task = user_data;
  GError *error = NULL;

  vmm_machine_end_process_finish (VMM_MACHINE (source), result, &error);
  vmm_machine_step_return (task, error, NULL);
}

void
vmm_machine_undo_start_tpm_async (gpointer subject, GCancellable *cancellable,
                                  GAsyncReadyCallback callback, gpointer user_data)
{
  GTask *task = vmm_machine_step_task (subject, NULL, callback, user_data,
                                       vmm_machine_undo_start_tpm_async);

  vmm_machine_end_process_async (subject, VMM_PROCESS_ROLE_TPM, VMM_MACHINE_HELPER_GRACE_MS,
                                 swtpm_ended_cb, task);
}

/* --- The copy --- */

static void
kept_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  g_autoptr (GTask) task = user_data;
  VmmMachine *self = g_task_get_source_object (task);
  g_autoptr (GError) error = NULL;

  if (!vmm_tpm_state_keep_finish (result, &error))
    vmm_log_warning ("the state of the vtpm could not be copied", "vm", self->record->id, "error",
                     error->message, NULL);
  g_task_return_boolean (task, TRUE);
}

void
vmm_machine_keep_tpm_async (VmmMachine *self, GAsyncReadyCallback callback, gpointer user_data)
{
  GTask *task = vmm_machine_step_task (self, NULL, callback, user_data, vmm_machine_keep_tpm_async);
  g_autofree char *directory = vmm_machine_dup_path (self, "tpm");
  g_autofree char *good_directory = vmm_machine_dup_path (self, "tpm.good");

  vmm_tpm_state_keep_async (directory, good_directory, kept_cb, task);
}

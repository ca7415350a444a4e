/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* After a daemon start: what the record says should be, against what the launcher says is.
 *
 * A live VM whose QEMU is found goes on as it was: its state and times stay, only the timer begins
 * anew. A QEMU that ended meanwhile is settled on the usual way, with its real exit status when that
 * is still known. Only evidence decides: a VM is called stopped when its QEMU is gone, and where one
 * is found that cannot be kept, because its disk or its address is lost, it is ended first.
 */

#include "config.h"

#include <string.h>

#include "vmm-child-start.h"
#include "vmm-json.h"
#include "vmm-log.h"
#include "vmm-machine-private.h"

#define END_GRACE_MS 5000
#define STATUS_LIMIT_MS 4000

typedef struct
{
  VmmProcessRole role; /* being looked for */
  char *reason;        /* why it cannot be kept */
} Recovery;

static void find_next (GTask *task);
static void end_next (GTask *task);

static void
recovery_free (Recovery *recovery)
{
  g_free (recovery->reason);
  g_free (recovery);
}

static void
fail_recovery (GTask *task, const char *prefix, const char *message)
{
  Recovery *recovery = g_task_get_task_data (task);

  if (recovery->reason == NULL)
    recovery->reason = g_strconcat (prefix, message, NULL);
}

/* The machine is what it is now; the operation ends. */
static void
finish (GTask *task)
{
  VmmMachine *self = g_task_get_source_object (task);

  g_task_return_boolean (task, TRUE);
  g_object_unref (task);
  vmm_machine_operation_done (self, NULL);
}

static void
settled_saved_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  vmm_machine_save_finish (VMM_MACHINE (source), result, NULL);
  finish (user_data);
}

/* Nothing of it runs any more. */
static void
settle_record (GTask *task)
{
  VmmMachine *self = g_task_get_source_object (task);
  Recovery *recovery = g_task_get_task_data (task);
  const char *state = vmm_machine_state_to_nick (self->record->state);
  g_autofree char *detail = NULL;

  vmm_machine_close_channels (self);
  vmm_machine_release_volume (self);
  vmm_machine_release (self, FALSE);
  vmm_machine_drop_ended (self);
  vmm_machine_record_clear_paused (self->record);
  if (vmm_machine_state_is_live (self->record->state))
    {
      detail = g_strdup_printf ("vm-manager restarted while the VM was %s and could not reattach "
                                "to its QEMU (%s); start the VM again",
                                state, recovery->reason);
      vmm_machine_handle_event (self, VMM_MACHINE_EVENT_NOT_REATTACHED, detail, NULL);
    }
  else
    {
      detail = g_strdup_printf ("vm-manager restarted while the VM was %s; delete it", state);
      vmm_machine_handle_event (self, VMM_MACHINE_EVENT_INTERRUPTED, detail, NULL);
    }
  vmm_machine_save_async (self, settled_saved_cb, task);
}

static void
ended_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  GTask *task = user_data;
  VmmMachine *self = VMM_MACHINE (source);
  g_autoptr (GError) error = NULL;

  if (!vmm_machine_end_process_finish (self, result, &error))
    vmm_log_error ("a process of a vm that cannot be kept does not end", "vm", self->record->id,
                   "error", error->message, NULL);
  end_next (task);
}

/* QEMU first, then what served it. */
static void
end_next (GTask *task)
{
  VmmMachine *self = g_task_get_source_object (task);
  Recovery *recovery = g_task_get_task_data (task);
  VmmProcessRole role = recovery->role;

  if (role == VMM_N_PROCESS_ROLES)
    {
      settle_record (task);
      return;
    }
  recovery->role = (VmmProcessRole) (role + 1);
  vmm_machine_end_process_async (self, role, END_GRACE_MS, ended_cb, task);
}

static void
end_all (GTask *task)
{
  Recovery *recovery = g_task_get_task_data (task);

  recovery->role = VMM_PROCESS_ROLE_QEMU;
  end_next (task);
}

/* It lives, or its end is known and comes the usual way. */
static void
go_on (GTask *task)
{
  VmmMachine *self = g_task_get_source_object (task);
  VmmProcess *qemu = self->processes[VMM_PROCESS_ROLE_QEMU];
  VmmMachineState state = self->record->state;
  g_autofree char *pid = NULL;

  /* Before anything may settle and clear it. */
  pid = g_strdup_printf ("%" G_GINT64_FORMAT,
                         vmm_process_handle_get_pid (vmm_process_get_handle (qemu)));
  vmm_log_info ("vm reattached", "vm", self->record->id, "state",
                vmm_machine_state_to_nick (state), "pid", pid, NULL);
  self->starting = FALSE;
  /* The boot behind the installer ran, and the daemon was killed before it had written that. */
  if (state == VMM_MACHINE_INSTALLING && self->record->installed_at != 0)
    {
      vmm_machine_handle_event (self, VMM_MACHINE_EVENT_BOOT_STARTED, NULL, NULL);
      state = self->record->state;
    }
  if (!vmm_process_has_exited (qemu))
    {
      if (state == VMM_MACHINE_INSTALLING || state == VMM_MACHINE_BOOTING
          || state == VMM_MACHINE_ATTESTING)
        vmm_machine_arm_phase_timer (self);
      vmm_machine_handle_event (self, VMM_MACHINE_EVENT_REATTACHED, NULL, NULL);
    }
  vmm_machine_release (self, TRUE);
  finish (task);
}

static void
witness_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  GTask *task = user_data;
  VmmMachine *self = g_task_get_source_object (task);
  g_autoptr (GError) error = NULL;
  g_autoptr (VmmWitness) witness = vmm_witness_connect_finish (result, &error);

  if (witness != NULL)
    vmm_machine_set_witness (self, witness);
  else
    vmm_log_warning ("monitor of a vm does not answer", "vm", self->record->id, "error",
                     error->message, NULL);
  go_on (task);
}

static void
connect_witness (GTask *task)
{
  VmmMachine *self = g_task_get_source_object (task);
  VmmProcess *monitor = self->processes[VMM_PROCESS_ROLE_MONITOR];

  if (monitor == NULL || vmm_process_has_exited (monitor))
    {
      go_on (task);
      return;
    }
  vmm_witness_connect_async (self->directory, self->record->journal_position, NULL, witness_cb,
                             task);
}

static void
status_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  GTask *task = user_data;
  g_autoptr (JsonNode) answer = vmm_qmp_execute_finish (VMM_QMP (source), result, NULL);
  const char *status = NULL;

  if (answer != NULL && JSON_NODE_HOLDS_OBJECT (answer))
    vmm_json_get_string (json_node_get_object (answer), "status", NULL, &status, NULL);
  if (g_strcmp0 (status, "prelaunch") != 0)
    {
      connect_witness (task);
      return;
    }
  /* Nobody would ever let that guest run. */
  fail_recovery (task, "", "its start was interrupted");
  end_all (task);
}

static void
qmp_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  GTask *task = user_data;
  VmmMachine *self = g_task_get_source_object (task);
  VmmProcess *qemu = self->processes[VMM_PROCESS_ROLE_QEMU];
  g_autoptr (GError) error = NULL;
  g_autoptr (VmmQmp) qmp = vmm_qmp_connect_finish (result, &error);
  g_autofree char *detail = NULL;

  if (qmp != NULL)
    vmm_machine_set_qmp (self, qmp);
  else if (!vmm_process_has_exited (qemu))
    {
      /* It runs, so it is not stopped; without QMP a stop goes by signals. */
      detail = g_strdup_printf ("qemu does not answer since vm-manager restarted: %s",
                                error->message);
      vmm_machine_handle_event (self, VMM_MACHINE_EVENT_HELPER_DIED, detail, NULL);
    }
  if (qmp != NULL
      && (self->record->state == VMM_MACHINE_BOOTING
          || self->record->state == VMM_MACHINE_INSTALLING))
    vmm_qmp_execute_async (qmp, "query-status", NULL, STATUS_LIMIT_MS, NULL, status_cb, task);
  else
    connect_witness (task);
}

static void
connect_qmp (GTask *task)
{
  VmmMachine *self = g_task_get_source_object (task);
  VmmProcess *qemu = self->processes[VMM_PROCESS_ROLE_QEMU];
  g_autofree char *socket_path = vmm_machine_dup_path (self, "qmp.sock");
  g_autofree char *log = vmm_machine_dup_path (self, "qemu.log");

  if (vmm_process_has_exited (qemu))
    connect_witness (task);
  else
    vmm_qmp_connect_async (socket_path, qemu, log, NULL, qmp_cb, task);
}

/* One of the steps that take the resources again. */
static gboolean
resumed (GTask *task, GAsyncResult *result)
{
  VmmMachine *self = g_task_get_source_object (task);
  g_autoptr (GError) error = NULL;

  if (vmm_machine_step_finish (self, result, &error))
    return TRUE;
  fail_recovery (task, "", error->message);
  end_all (task);
  return FALSE;
}

static void
attached_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  if (resumed (user_data, result))
    connect_qmp (user_data);
}

static void
leased_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  if (resumed (user_data, result))
    vmm_machine_attach_async (source, NULL, attached_cb, user_data);
}

static void
opened_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  if (resumed (user_data, result))
    vmm_machine_lease_async (source, NULL, leased_cb, user_data);
}

static void
found_all (GTask *task)
{
  VmmMachine *self = g_task_get_source_object (task);
  Recovery *recovery = g_task_get_task_data (task);

  if (recovery->reason != NULL || !vmm_machine_state_is_live (self->record->state)
      || self->processes[VMM_PROCESS_ROLE_QEMU] == NULL)
    {
      end_all (task);
      return;
    }
  vmm_machine_open_volume_async (self, NULL, opened_cb, task);
}

static const char *
without_sentinel (const GError *error)
{
  const char *sentinel = error->domain == VMM_ERROR
                             ? vmm_error_get_info ((VmmError) error->code)->sentinel
                             : NULL;
  gsize length = sentinel != NULL ? strlen (sentinel) : 0;

  if (length > 0 && g_str_has_prefix (error->message, sentinel)
      && g_str_has_prefix (error->message + length, ": "))
    return error->message + length + 2;
  return error->message;
}

static void
found_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  GTask *task = user_data;
  VmmMachine *self = g_task_get_source_object (task);
  Recovery *recovery = g_task_get_task_data (task);
  g_autoptr (GError) error = NULL;
  g_autoptr (VmmProcess) process
      = vmm_launcher_find_finish (VMM_LAUNCHER (source), result, &error);

  if (process != NULL)
    vmm_machine_set_process (self, recovery->role, process);
  else if (recovery->role == VMM_PROCESS_ROLE_QEMU)
    fail_recovery (task, "process is gone: ", without_sentinel (error));
  else if (self->record->processes[recovery->role] != NULL)
    {
      vmm_log_warning ("helper of a vm is gone", "vm", self->record->id, "role",
                       vmm_process_role_to_nick (recovery->role), "error", error->message, NULL);
      vmm_machine_drop_process (self, recovery->role);
    }
  recovery->role = (VmmProcessRole) (recovery->role + 1);
  find_next (task);
}

/* A daemon that was killed in the middle of a start may have started more than it had recorded. */
static gboolean
may_run (GTask *task)
{
  VmmMachine *self = g_task_get_source_object (task);
  Recovery *recovery = g_task_get_task_data (task);
  const VmmMachineRecord *record = self->record;

  if (record->processes[recovery->role] != NULL || recovery->reason != NULL)
    return TRUE;
  return record->state != VMM_MACHINE_ATTESTING && record->state != VMM_MACHINE_READY
         && record->state != VMM_MACHINE_RUNNING;
}

static void
find_next (GTask *task)
{
  VmmMachine *self = g_task_get_source_object (task);
  Recovery *recovery = g_task_get_task_data (task);
  g_autofree char *id = NULL;

  while (recovery->role < VMM_N_PROCESS_ROLES && !may_run (task))
    recovery->role = (VmmProcessRole) (recovery->role + 1);
  if (recovery->role == VMM_N_PROCESS_ROLES)
    {
      found_all (task);
      return;
    }
  id = vmm_process_id_for_vm (self->record->id, vmm_process_role_to_nick (recovery->role));
  vmm_launcher_find_async (self->context->launcher, id, self->record->processes[recovery->role],
                           NULL, found_cb, task);
}

static void
run_recover (VmmMachine *self, VmmMachineOperation *operation)
{
  GTask *task = g_task_new (self, NULL, NULL, NULL);

  g_task_set_source_tag (task, run_recover);
  g_task_set_task_data (task, g_new0 (Recovery, 1), (GDestroyNotify) recovery_free);
  self->storing = TRUE;
  if (!vmm_machine_state_is_live (self->record->state)
      && self->record->state != VMM_MACHINE_CREATING
      && self->record->state != VMM_MACHINE_DELETING)
    {
      finish (task);
      return;
    }
  vmm_machine_hold (self, g_strcmp0 (self->record->phase, "install") == 0 ? "install" : "boot");
  if (!vmm_launcher_outlives_daemon (self->context->launcher))
    fail_recovery (task, "", "launcher cannot reattach processes");
  else if (self->record->processes[VMM_PROCESS_ROLE_QEMU] == NULL)
    fail_recovery (task, "", "no process handles recorded");
  if (vmm_launcher_outlives_daemon (self->context->launcher))
    find_next (task);
  else
    end_all (task);
}

void
vmm_machine_recover_async (VmmMachine *self, GCancellable *cancellable,
                           GAsyncReadyCallback callback, gpointer user_data)
{
  VmmMachineWait *wait;

  g_return_if_fail (VMM_IS_MACHINE (self));

  wait = vmm_machine_wait_new (self, cancellable, callback, user_data, vmm_machine_recover_async);
  vmm_machine_enqueue (self, "recover", run_recover, wait, NULL);
}

gboolean
vmm_machine_recover_finish (VmmMachine *self, GAsyncResult *result, GError **error)
{
  g_return_val_if_fail (g_task_is_valid (result, self), FALSE);
  return g_task_propagate_boolean (G_TASK (result), error);
}

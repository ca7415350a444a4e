/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Starts the processes of a VM: the network's port, the vsock device, the vTPM, QEMU, the monitor;
 * then lets the guest run.
 *
 * QEMU starts stopped. The guest runs only when the monitor listens and the record that names the
 * processes is on disk, so nothing it does goes unseen and no crash of the daemon loses a process.
 * The same steps serve the installer (within a create) and every installed boot.
 */

#include "config.h"

#include "interfaces/vmm-error.h"
#include "vmm-log.h"
#include "vmm-machine-private.h"
#include "vmm-vsock.h"

#define CONTINUE_LIMIT_MS 10000

/* What the host offers. */

static void
ways_found_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  g_autoptr (GTask) task = user_data;
  VmmMachine *self = g_task_get_source_object (task);
  GError *error = NULL;

  if (vmm_host_find_ways_finish (VMM_HOST (source), result, &self->ways, &error))
    {
      g_free (self->record->accelerator);
      self->record->accelerator = g_strdup (self->ways.emulated ? "tcg" : "kvm");
    }
  vmm_machine_step_return (task, error, NULL);
}

static void
ways_async (gpointer subject, GCancellable *cancellable, GAsyncReadyCallback callback,
            gpointer user_data)
{
  VmmMachine *self = subject;
  GTask *task = vmm_machine_step_task (subject, cancellable, callback, user_data, ways_async);

  vmm_host_find_ways_async (self->context->host, cancellable, ways_found_cb, task);
}

/* The network's port. */

static void
attached_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  g_autoptr (GTask) task = user_data;
  VmmMachine *self = g_task_get_source_object (task);
  GError *error = NULL;
  VmmAttachment *attachment
      = vmm_network_table_attach_finish (VMM_NETWORK_TABLE (source), result, &error);

  if (attachment != NULL)
    {
      g_clear_pointer (&self->attachment, vmm_attachment_unref);
      self->attachment = attachment;
    }
  vmm_machine_step_return (task, error, "attach network: ");
}

void
vmm_machine_attach_async (gpointer subject, GCancellable *cancellable, GAsyncReadyCallback callback,
                          gpointer user_data)
{
  VmmMachine *self = subject;
  GTask *task
      = vmm_machine_step_task (subject, cancellable, callback, user_data, vmm_machine_attach_async);
  g_autofree char *socket_path = vmm_machine_dup_path (self, "net.sock");
  g_autofree char *metadata_path = vmm_machine_dup_path (self, "metadata.sock");
  GError *error = NULL;

  /* A guest that runs already is kept without it; that it is missing was said. */
  if (self->context->open_metadata != NULL && self->processes[VMM_PROCESS_ROLE_QEMU] == NULL
      && !self->context->open_metadata (self->context->open_metadata_data, self->record->id,
                                        &error))
    {
      vmm_machine_step_return (task, error, "metadata service: ");
      g_object_unref (task);
      return;
    }
  vmm_network_table_attach_async (self->context->networks, self->record->network, self->record->id,
                                  socket_path, metadata_path, cancellable, attached_cb, task);
}

/* Ending a process, for undo, for a delete and after QEMU's own end. */

static void
ended_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  g_autoptr (GTask) task = user_data;
  VmmMachine *self = g_task_get_source_object (task);
  VmmProcessRole role = (VmmProcessRole) GPOINTER_TO_UINT (g_task_get_task_data (task));
  VmmProcess *process = VMM_PROCESS (source);
  g_autoptr (GError) error = NULL;

  vmm_process_stop_finish (process, result, &error);
  if (error == NULL && !vmm_process_has_exited (process))
    vmm_set_error (&error, VMM_ERROR_INTERNAL, "process %" G_GINT64_FORMAT " runs on",
                   vmm_process_get_handle (process) != NULL
                       ? vmm_process_handle_get_pid (vmm_process_get_handle (process))
                       : 0);
  if (self->processes[role] == process && vmm_process_has_exited (process))
    {
      vmm_machine_drop_process (self, role);
      g_clear_error (&error);
    }
  if (error != NULL)
    g_prefix_error (&error, "stop %s: ", vmm_process_role_to_nick (role));
  vmm_machine_step_return (task, g_steal_pointer (&error), NULL);
}

void
vmm_machine_end_process_async (VmmMachine *self, VmmProcessRole role, guint grace_ms,
                               GAsyncReadyCallback callback, gpointer user_data)
{
  g_autoptr (GTask) task
      = vmm_machine_step_task (self, NULL, callback, user_data, vmm_machine_end_process_async);
  VmmProcess *process = self->processes[role];

  if (process == NULL || vmm_process_has_exited (process))
    {
      vmm_machine_drop_process (self, role);
      g_task_return_boolean (task, TRUE);
      return;
    }
  g_task_set_task_data (task, GUINT_TO_POINTER (role), NULL);
  vmm_process_stop_async (process, grace_ms, NULL, ended_cb, g_steal_pointer (&task));
}

gboolean
vmm_machine_end_process_finish (VmmMachine *self, GAsyncResult *result, GError **error)
{
  return g_task_propagate_boolean (G_TASK (result), error);
}

static void end_helper (GTask *task, VmmProcessRole role);

static void
helper_ended_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  GTask *task = user_data;
  VmmMachine *self = VMM_MACHINE (source);
  VmmProcessRole role = (VmmProcessRole) GPOINTER_TO_UINT (g_task_get_task_data (task));
  g_autoptr (GError) error = NULL;

  if (!vmm_machine_end_process_finish (self, result, &error))
    vmm_log_warning ("helper of a vm could not be stopped", "vm", self->record->id, "role",
                     vmm_process_role_to_nick (role), "error", error->message, NULL);
  end_helper (task, (VmmProcessRole) (role + 1));
}

/* The vTPM goes first: the next boot's may follow at once, on the same state. */
static void
end_helper (GTask *task, VmmProcessRole role)
{
  if (role == VMM_N_PROCESS_ROLES)
    {
      g_task_return_boolean (task, TRUE);
      g_object_unref (task);
      return;
    }
  g_task_set_task_data (task, GUINT_TO_POINTER (role), NULL);
  vmm_machine_end_process_async (g_task_get_source_object (task), role, VMM_MACHINE_HELPER_GRACE_MS,
                                 helper_ended_cb, task);
}

void
vmm_machine_end_helpers_async (VmmMachine *self, GAsyncReadyCallback callback, gpointer user_data)
{
  GTask *task
      = vmm_machine_step_task (self, NULL, callback, user_data, vmm_machine_end_helpers_async);

  end_helper (task, VMM_PROCESS_ROLE_TPM);
}

static void
undone_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  g_autoptr (GTask) task = user_data;
  GError *error = NULL;

  vmm_machine_end_process_finish (VMM_MACHINE (source), result, &error);
  vmm_machine_step_return (task, error, NULL);
}

/* The vsock device, where it is a program. */

static void
vsock_started_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  g_autoptr (GTask) task = user_data;
  VmmMachine *self = g_task_get_source_object (task);
  GError *error = NULL;
  g_autoptr (VmmProcess) process = vmm_vsock_start_finish (result, &error);

  if (process != NULL)
    {
      vmm_machine_set_process (self, VMM_PROCESS_ROLE_VSOCK, process);
      vmm_machine_save (self);
    }
  vmm_machine_step_return (task, error, "start vsock device: ");
}

static void
start_vsock (GTask *task)
{
  VmmMachine *self = g_task_get_source_object (task);

  vmm_vsock_start_async (self->context->launcher, self->record->id, self->directory,
                         self->record->cid, g_task_get_cancellable (task), vsock_started_cb, task);
}

static void
helpers_ended_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  g_autoptr (GTask) task = user_data;
  VmmMachine *self = VMM_MACHINE (source);

  if (self->ways.vsock == VMM_HOST_VSOCK_VHOST_USER)
    start_vsock (g_steal_pointer (&task));
  else
    g_task_return_boolean (task, TRUE);
}

/* The first of the helpers: before it, those go that would not end after the last run. */
static void
vsock_async (gpointer subject, GCancellable *cancellable, GAsyncReadyCallback callback,
             gpointer user_data)
{
  GTask *task = vmm_machine_step_task (subject, cancellable, callback, user_data, vsock_async);

  vmm_machine_end_helpers_async (subject, helpers_ended_cb, task);
}

static void
undo_vsock_async (gpointer subject, GCancellable *cancellable, GAsyncReadyCallback callback,
                  gpointer user_data)
{
  GTask *task = vmm_machine_step_task (subject, NULL, callback, user_data, undo_vsock_async);

  vmm_machine_end_process_async (subject, VMM_PROCESS_ROLE_VSOCK, VMM_MACHINE_HELPER_GRACE_MS,
                                 undone_cb, task);
}

/* The monitor. */

static void
witness_connected_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  g_autoptr (GTask) task = user_data;
  VmmMachine *self = g_task_get_source_object (task);
  GError *error = NULL;
  g_autoptr (VmmWitness) witness = vmm_witness_connect_finish (result, &error);

  if (witness != NULL)
    vmm_machine_set_witness (self, witness);
  vmm_machine_step_return (task, error, "start monitor: ");
}

static void
monitor_started_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  g_autoptr (GTask) task = user_data;
  VmmMachine *self = g_task_get_source_object (task);
  GCancellable *cancellable = g_task_get_cancellable (task);
  GError *error = NULL;
  g_autoptr (VmmProcess) process = vmm_witness_start_finish (result, &error);

  if (process == NULL)
    {
      vmm_machine_step_return (task, error, "start monitor: ");
      return;
    }
  vmm_machine_set_process (self, VMM_PROCESS_ROLE_MONITOR, process);
  vmm_witness_connect_async (self->directory, self->record->journal_position, cancellable,
                             witness_connected_cb, g_steal_pointer (&task));
}

static void
monitor_async (gpointer subject, GCancellable *cancellable, GAsyncReadyCallback callback,
               gpointer user_data)
{
  VmmMachine *self = subject;
  GTask *task = vmm_machine_step_task (subject, cancellable, callback, user_data, monitor_async);
  g_autofree char *vsock_socket = vmm_machine_dup_path (self, VMM_VSOCK_HOST_SOCKET);
  VmmWitnessConfig config = { 0 };

  if (self->ways.vsock == VMM_HOST_VSOCK_VHOST_USER)
    config.vsock_socket = vsock_socket;
  config.vm_id = self->record->id;
  config.directory = self->directory;
  config.cid = self->record->cid;
  config.notify_port = self->record->notify_port;
  vmm_witness_start_async (self->context->launcher, &config, cancellable, monitor_started_cb, task);
}

static void
undo_monitor_async (gpointer subject, GCancellable *cancellable, GAsyncReadyCallback callback,
                    gpointer user_data)
{
  VmmMachine *self = subject;
  GTask *task = vmm_machine_step_task (subject, NULL, callback, user_data, undo_monitor_async);

  if (self->witness != NULL)
    vmm_witness_close (self->witness);
  vmm_machine_set_witness (self, NULL);
  vmm_machine_end_process_async (self, VMM_PROCESS_ROLE_MONITOR, VMM_MACHINE_HELPER_GRACE_MS,
                                 undone_cb, task);
}

/* The guest runs. */

static void
continued_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  g_autoptr (GTask) task = user_data;
  GError *error = NULL;
  JsonNode *answer = vmm_qmp_execute_finish (VMM_QMP (source), result, &error);

  g_clear_pointer (&answer, json_node_unref);
  vmm_machine_step_return (task, error, "run the guest: ");
}

static void
processes_recorded_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  g_autoptr (GTask) task = user_data;
  VmmMachine *self = g_task_get_source_object (task);
  GError *error = NULL;

  if (!vmm_machine_save_finish (self, result, &error))
    {
      vmm_machine_step_return (task, error, NULL);
      return;
    }
  if (self->qmp == NULL)
    {
      vmm_machine_step_return (
          task, vmm_error_new (VMM_ERROR_INTERNAL, "the connection to qemu was lost"),
          "run the guest: ");
      return;
    }
  vmm_machine_forget_held (self);
  vmm_qmp_execute_async (self->qmp, "cont", NULL, CONTINUE_LIMIT_MS, g_task_get_cancellable (task),
                         continued_cb, g_object_ref (task));
}

static void
run_async (gpointer subject, GCancellable *cancellable, GAsyncReadyCallback callback,
           gpointer user_data)
{
  GTask *task = vmm_machine_step_task (subject, cancellable, callback, user_data, run_async);

  vmm_machine_save_async (subject, processes_recorded_cb, task);
}

/* An installed boot begins with what it is going to do on disk, and with its volume. */

static void
intent_recorded_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  g_autoptr (GTask) task = user_data;
  GError *error = NULL;

  vmm_machine_save_finish (VMM_MACHINE (source), result, &error);
  vmm_machine_step_return (task, error, NULL);
}

static void
intent_async (gpointer subject, GCancellable *cancellable, GAsyncReadyCallback callback,
              gpointer user_data)
{
  GTask *task = vmm_machine_step_task (subject, cancellable, callback, user_data, intent_async);

  vmm_machine_save_async (subject, intent_recorded_cb, task);
}

#define BOOT_STEPS                                                                                 \
  { "host", ways_async, vmm_machine_step_finish, NULL, NULL },                                     \
      { "attach", vmm_machine_attach_async, vmm_machine_step_finish, NULL, NULL },                 \
      { "vsock", vsock_async, vmm_machine_step_finish, undo_vsock_async,                           \
        vmm_machine_step_finish },                                                                 \
      { "tpm", vmm_machine_start_tpm_async, vmm_machine_step_finish,                               \
        vmm_machine_undo_start_tpm_async, vmm_machine_step_finish },                               \
      { "qemu", vmm_machine_qemu_start_async, vmm_machine_step_finish,                             \
        vmm_machine_qemu_undo_async, vmm_machine_step_finish },                                    \
      { "monitor", monitor_async, vmm_machine_step_finish, undo_monitor_async,                     \
        vmm_machine_step_finish },                                                                 \
  {                                                                                                \
    "run", run_async, vmm_machine_step_finish, NULL, NULL                                          \
  }

const VmmStep vmm_machine_boot_steps[] = { BOOT_STEPS };
const guint vmm_machine_n_boot_steps = G_N_ELEMENTS (vmm_machine_boot_steps);

static const VmmStep installed_boot_steps[] = {
  { "record", intent_async, vmm_machine_step_finish, NULL, NULL },
  { "volume", vmm_machine_open_volume_async, vmm_machine_step_finish, NULL, NULL },
  BOOT_STEPS,
};

void
vmm_machine_run_boot_async (VmmMachine *self, const char *name, GCancellable *cancellable,
                            GAsyncReadyCallback callback, gpointer user_data)
{
  vmm_sequence_run_async (name, installed_boot_steps, G_N_ELEMENTS (installed_boot_steps), self,
                          FALSE, cancellable, callback, user_data);
}

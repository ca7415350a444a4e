/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* exec_vm: a command in a guest, by ssh through the VM's virtual network.
 *
 * It goes never through the host's own stack, where the guest's address means nothing. The command
 * is the caller's and not the machine's: it holds no place in the machine's queue, and its
 * connection is closed when the caller goes. A guest that is gone says nothing any more, and TCP
 * would wait for it, so the end of the machine's run, a reset too, ends its commands. */

#include "config.h"

#include "vmm-guest-exec.h"

#include <string.h>

#include "interfaces/vmm-error.h"
#include "vmm-source.h"
#include "vmm-ssh-exec.h"

#define SSH_PORT 22
#define KEY_FILE "ssh_key"
#define PIN_FILE "ssh_host_key"

struct _VmmGuestExecs
{
  GCancellable *ending;
  GHashTable *counts; /* VM id -> how many run there */
  guint total;
};

typedef struct
{
  VmmGuestExecs *execs;
  char *vm_id;
  VmmSshJob *job;        /* until ssh has it */
  GCancellable *running; /* of what is waited for */
  GSource *left;
  GSource *ending;
  gulong transition_id;
  GError *reason; /* why it was ended */
} Exec;

VmmGuestExecs *
vmm_guest_execs_new (GCancellable *ending)
{
  VmmGuestExecs *self = g_rc_box_new0 (VmmGuestExecs);

  self->ending = g_object_ref (ending);
  self->counts = g_hash_table_new_full (g_str_hash, g_str_equal, g_free, NULL);
  return self;
}

static void
execs_clear (gpointer data)
{
  VmmGuestExecs *self = data;

  g_object_unref (self->ending);
  g_hash_table_unref (self->counts);
}

void
vmm_guest_execs_unref (VmmGuestExecs *self)
{
  g_rc_box_release_full (self, execs_clear);
}

static gboolean
take_place (VmmGuestExecs *self, const char *vm_id, GError **error)
{
  guint count = GPOINTER_TO_UINT (g_hash_table_lookup (self->counts, vm_id));

  if (count >= VMM_GUEST_EXECS_OF_A_VM_MAX || self->total >= VMM_GUEST_EXECS_MAX)
    {
      vmm_set_error (error, VMM_ERROR_CONFLICT,
                     "%u commands run in vm %s and %u in all: at most %d in a vm and %d in all "
                     "may, try again when one has ended",
                     count, vm_id, self->total, VMM_GUEST_EXECS_OF_A_VM_MAX, VMM_GUEST_EXECS_MAX);
      return FALSE;
    }
  g_hash_table_insert (self->counts, g_strdup (vm_id), GUINT_TO_POINTER (count + 1));
  self->total++;
  return TRUE;
}

static void
leave_place (VmmGuestExecs *self, const char *vm_id)
{
  guint count = GPOINTER_TO_UINT (g_hash_table_lookup (self->counts, vm_id));

  self->total--;
  if (count > 1)
    g_hash_table_insert (self->counts, g_strdup (vm_id), GUINT_TO_POINTER (count - 1));
  else
    g_hash_table_remove (self->counts, vm_id);
}

static void
exec_free (gpointer data)
{
  Exec *exec = data;

  g_clear_pointer (&exec->job, vmm_ssh_job_free);
  g_clear_error (&exec->reason);
  g_object_unref (exec->running);
  vmm_guest_execs_unref (exec->execs);
  g_free (exec->vm_id);
  g_free (exec);
}

/* -- endings ---------------------------------------------------------------------------------- */

/* Takes the reason; the first one counts. */
static void
end (Exec *exec, GError *reason)
{
  if (exec->reason != NULL)
    {
      g_error_free (reason);
      return;
    }
  exec->reason = reason;
  g_cancellable_cancel (exec->running);
}

static gboolean
left_cb (GCancellable *cancellable, gpointer user_data)
{
  end (user_data, g_error_new (G_IO_ERROR, G_IO_ERROR_CANCELLED, "the caller left"));
  return G_SOURCE_REMOVE;
}

static gboolean
ending_cb (GCancellable *cancellable, gpointer user_data)
{
  end (user_data, vmm_error_new (VMM_ERROR_CONFLICT, "vm-manager is shutting down"));
  return G_SOURCE_REMOVE;
}

static void
transition_cb (VmmMachine *machine, guint event, guint from, guint to, gpointer user_data)
{
  Exec *exec = user_data;

  if (!vmm_machine_state_is_live (to))
    end (exec, vmm_error_new (VMM_ERROR_CONFLICT, "vm %s is not running (%s): its command ended",
                              exec->vm_id, vmm_machine_state_to_nick (to)));
  else if (event == VMM_MACHINE_EVENT_GUEST_RESET || event == VMM_MACHINE_EVENT_BOOT_STARTED)
    end (exec, vmm_error_new (VMM_ERROR_CONFLICT, "vm %s booted anew (%s): its command ended",
                              exec->vm_id, vmm_machine_state_to_nick (to)));
}

/* Takes the result or the error. */
static void
answer (GTask *task, JsonNode *result, GError *error)
{
  Exec *exec = g_task_get_task_data (task);

  g_clear_signal_handler (&exec->transition_id, g_task_get_source_object (task));
  vmm_source_clear (&exec->left);
  vmm_source_clear (&exec->ending);
  leave_place (exec->execs, exec->vm_id);
  if (result != NULL)
    {
      g_task_return_pointer (task, result, (GDestroyNotify) json_node_unref);
      return;
    }
  if (exec->reason != NULL)
    {
      g_error_free (error);
      error = g_steal_pointer (&exec->reason);
    }
  g_task_return_error (task, error);
}

/* -- the way ---------------------------------------------------------------------------------- */

static JsonNode *
node_of_result (const VmmSshResult *result)
{
  JsonObject *object = json_object_new ();
  JsonNode *node = json_node_new (JSON_NODE_OBJECT);

  json_object_set_string_member (object, "stdout", result->stdout_text);
  json_object_set_string_member (object, "stderr", result->stderr_text);
  json_object_set_int_member (object, "exitCode", result->exit_code);
  json_node_take_object (node, object);
  return node;
}

static void
ran_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  g_autoptr (GTask) task = user_data;
  g_autoptr (VmmSshResult) ssh = NULL;
  GError *error = NULL;

  ssh = vmm_ssh_exec_finish (result, &error);
  answer (task, ssh != NULL ? node_of_result (ssh) : NULL, error);
}

/* What a network says is one kind of failure here: the guest cannot be reached. Its own kinds mean
 * something else to a caller: the VM does exist, and is not waited for. Takes the error. */
static GError *
error_of_dial (const VmmSshJob *job, GError *error)
{
  const VmmErrorInfo *info = NULL;
  const char *text = error->message;
  GError *dial;

  if (error->domain == VMM_ERROR)
    info = vmm_error_get_info ((VmmError) error->code);
  if (g_error_matches (error, VMM_ERROR, VMM_ERROR_UNSUPPORTED)
      || g_error_matches (error, VMM_ERROR, VMM_ERROR_CONFLICT))
    {
      g_prefix_error (&error, "dial %s:%u: ", job->host, job->port);
      return error;
    }
  if (info != NULL && info->sentinel != NULL && g_str_has_prefix (text, info->sentinel)
      && g_str_has_prefix (text + strlen (info->sentinel), ": "))
    text += strlen (info->sentinel) + 2;
  dial = vmm_error_new (VMM_ERROR_INTERNAL, "dial %s:%u: %s (exec_vm needs an sshd in the guest)",
                        job->host, job->port, text);
  g_error_free (error);
  return dial;
}

static void
dialed_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  g_autoptr (GTask) task = user_data;
  Exec *exec = g_task_get_task_data (task);
  g_autoptr (GIOStream) stream = NULL;
  GError *error = NULL;

  stream = vmm_network_dial_finish (VMM_NETWORK (source), result, &error);
  if (stream == NULL)
    {
      answer (task, NULL, error_of_dial (exec->job, error));
      return;
    }
  vmm_ssh_exec_async (stream, g_steal_pointer (&exec->job), exec->running, ran_cb,
                      g_steal_pointer (&task));
}

static VmmSshJob *
make_job (VmmMachine *machine, const char *const *command, GError **error)
{
  const VmmMachineRecord *record = vmm_machine_get_record (machine);
  g_autofree char *text = vmm_ssh_quote (command);
  VmmSshJob *job;

  if (strlen (text) > VMM_SSH_COMMAND_MAX)
    {
      vmm_set_error (error, VMM_ERROR_INVALID_REQUEST,
                     "command has %" G_GSIZE_FORMAT " bytes with its quotes, at most %d fit: let "
                     "the guest read it from a file",
                     strlen (text), VMM_SSH_COMMAND_MAX);
      return NULL;
    }
  job = vmm_ssh_job_new ();
  job->vm_id = g_strdup (record->id);
  job->host = g_strdup (record->ip);
  job->port = SSH_PORT;
  job->key_path = vmm_machine_dup_path (machine, KEY_FILE);
  job->pin_path = vmm_machine_dup_path (machine, PIN_FILE);
  job->command = g_steal_pointer (&text);
  return job;
}

/* Its network, if a command can be run at all. */
static VmmNetwork *
check_machine (VmmMachine *machine, GError **error)
{
  const VmmMachineRecord *record = vmm_machine_get_record (machine);

  if (!vmm_machine_state_is_live (record->state))
    vmm_set_error (error, VMM_ERROR_CONFLICT, "vm %s is not running (%s)", record->id,
                   vmm_machine_state_to_nick (record->state));
  else if (record->ip == NULL)
    vmm_set_error (error, VMM_ERROR_CONFLICT, "vm %s has no address (%s)", record->id,
                   vmm_machine_state_to_nick (record->state));
  else
    return vmm_machine_get_network (machine, error);
  return NULL;
}

void
vmm_guest_exec_async (VmmGuestExecs *self, VmmMachine *machine, const char *const *command,
                      GCancellable *cancellable, GAsyncReadyCallback callback, gpointer user_data)
{
  g_autoptr (GTask) task = g_task_new (machine, cancellable, callback, user_data);
  VmmNetwork *network = NULL;
  VmmSshJob *job = NULL;
  GError *error = NULL;
  Exec *exec;

  g_task_set_source_tag (task, vmm_guest_exec_async);
  network = check_machine (machine, &error);
  if (network != NULL)
    job = make_job (machine, command, &error);
  if (job == NULL || !take_place (self, job->vm_id, &error))
    {
      g_clear_pointer (&job, vmm_ssh_job_free);
      g_task_return_error (task, error);
      return;
    }

  exec = g_new0 (Exec, 1);
  exec->execs = g_rc_box_acquire (self);
  exec->vm_id = g_strdup (job->vm_id);
  exec->job = job;
  exec->running = g_cancellable_new ();
  g_task_set_task_data (task, exec, exec_free);
  exec->left = vmm_source_new_cancelled (cancellable, left_cb, exec);
  exec->ending = vmm_source_new_cancelled (self->ending, ending_cb, exec);
  exec->transition_id
      = g_signal_connect (machine, "transition", G_CALLBACK (transition_cb), exec);
  vmm_network_dial_async (network, job->vm_id, job->host, SSH_PORT, exec->running, dialed_cb,
                          g_steal_pointer (&task));
}

JsonNode *
vmm_guest_exec_finish (VmmMachine *machine, GAsyncResult *result, GError **error)
{
  g_return_val_if_fail (g_task_is_valid (result, machine), NULL);

  return g_task_propagate_pointer (G_TASK (result), error);
}

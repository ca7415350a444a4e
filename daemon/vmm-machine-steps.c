/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What a VM owns on this host: its folder, its disk, its lease; taken at create, given back at
 * delete.
 *
 * The record goes to disk first. From then on a daemon that is killed finds on its next start what
 * there may be: the volume's name and the lease follow from the id alone. A create is these steps and
 * then those of a boot, in one list, so that whatever fails is undone in one order.
 */

#include "config.h"

#include <string.h>

#include "vmm-account.h"
#include "vmm-file.h"
#include "vmm-log.h"
#include "vmm-machine-private.h"
#include "vmm-ssh-key.h"

#define PRIVATE_MODE 0600
#define DIRECTORY_MODE 0700
#define GIB (G_GUINT64_CONSTANT (1) << 30)

GTask *
vmm_machine_step_task (gpointer subject, GCancellable *cancellable, GAsyncReadyCallback callback,
                       gpointer user_data, gpointer tag)
{
  GTask *task = g_task_new (subject, cancellable, callback, user_data);

  g_task_set_source_tag (task, tag);
  /* What was taken must be known, so that it can be given back. */
  g_task_set_check_cancellable (task, FALSE);
  return task;
}

gboolean
vmm_machine_step_finish (gpointer subject, GAsyncResult *result, GError **error)
{
  return g_task_propagate_boolean (G_TASK (result), error);
}

void
vmm_machine_step_return (GTask *task, GError *error, const char *prefix)
{
  if (error == NULL)
    {
      g_task_return_boolean (task, TRUE);
      return;
    }
  if (prefix != NULL && !g_error_matches (error, G_IO_ERROR, G_IO_ERROR_CANCELLED))
    g_prefix_error (&error, "%s", prefix);
  g_task_return_error (task, error);
}

static char *
dup_volume_name (VmmMachine *self)
{
  return g_strconcat ("vm-", self->record->id, NULL);
}

/* The folder and the first record. */

static void
recorded_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  g_autoptr (GTask) task = user_data;
  GError *error = NULL;

  vmm_machine_save_finish (VMM_MACHINE (source), result, &error);
  vmm_machine_step_return (task, error, NULL);
}

static void
record_async (gpointer subject, GCancellable *cancellable, GAsyncReadyCallback callback,
              gpointer user_data)
{
  VmmMachine *self = subject;
  g_autoptr (GTask) task
      = vmm_machine_step_task (subject, cancellable, callback, user_data, record_async);
  GError *error = NULL;

  if (!vmm_file_make_directory (self->directory, DIRECTORY_MODE, &error)
      || !vmm_account_let_in (self->directory, &error))
    {
      vmm_machine_step_return (task, error, NULL);
      return;
    }
  self->storing = TRUE;
  vmm_machine_save_async (self, recorded_cb, g_steal_pointer (&task));
}

static void
tree_removed_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  g_autoptr (GTask) task = user_data;
  VmmMachine *self = g_task_get_source_object (task);
  GError *error = NULL;

  self->left_behind = !vmm_file_remove_tree_finish (result, &error);
  vmm_machine_step_return (task, error, NULL);
}

static void
saving_stopped_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  VmmMachine *self = VMM_MACHINE (source);

  /* The record last: what a killed daemon leaves of the folder still belongs to a VM. */
  vmm_file_remove_tree_async (self->directory, "vm.json", NULL, tree_removed_cb, user_data);
}

/* The last of an undo and of a discard: nothing may write the record again. */
static void
remove_directory_async (gpointer subject, GCancellable *cancellable, GAsyncReadyCallback callback,
                        gpointer user_data)
{
  GTask *task
      = vmm_machine_step_task (subject, NULL, callback, user_data, remove_directory_async);

  vmm_machine_stop_saving_async (subject, saving_stopped_cb, task);
}

/* Key, user data, variable store. */

static void
copied_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  g_autoptr (GTask) task = user_data;
  GError *error = NULL;

  if (vmm_file_copy_finish (result, &error))
    vmm_machine_save (g_task_get_source_object (task));
  vmm_machine_step_return (task, error, "copy firmware variables: ");
}

static void
copy_variables (GTask *task)
{
  VmmMachine *self = g_task_get_source_object (task);
  g_autofree char *path = vmm_machine_dup_path (self, "ovmf_vars.fd");

  vmm_file_copy_async (vmm_host_get_ovmf_vars (self->context->host), path, PRIVATE_MODE,
                       g_task_get_cancellable (task), copied_cb, g_object_ref (task));
}

static void
user_data_written_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  g_autoptr (GTask) task = user_data;
  GError *error = NULL;

  if (!vmm_file_replace_finish (result, &error))
    {
      vmm_machine_step_return (task, error, "write user data: ");
      return;
    }
  copy_variables (task);
}

static void
key_written_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  g_autoptr (GTask) task = user_data;
  VmmMachine *self = g_task_get_source_object (task);
  GBytes *data = self->operation->guest_user_data;
  g_autofree char *path = vmm_machine_dup_path (self, "user-data");
  GCancellable *cancellable = g_task_get_cancellable (task);
  GError *error = NULL;

  if (!vmm_file_replace_finish (result, &error))
    {
      vmm_machine_step_return (task, error, "write ssh key: ");
      return;
    }
  if (data == NULL || g_bytes_get_size (data) == 0)
    {
      copy_variables (task);
      return;
    }
  vmm_file_replace_async (path, data, PRIVATE_MODE, cancellable, user_data_written_cb,
                          g_steal_pointer (&task));
}

static void
files_async (gpointer subject, GCancellable *cancellable, GAsyncReadyCallback callback,
             gpointer user_data)
{
  VmmMachine *self = subject;
  g_autoptr (GTask) task
      = vmm_machine_step_task (subject, cancellable, callback, user_data, files_async);
  g_autofree char *comment = g_strconcat ("vm-manager@", self->record->id, NULL);
  g_autofree char *path = vmm_machine_dup_path (self, "ssh_key");
  g_autofree char *public_line = NULL;
  char *private_pem = NULL;
  g_autoptr (GBytes) key = NULL;
  GError *error = NULL;

  if (!vmm_host_check_firmware (self->context->host, FALSE, &error))
    {
      vmm_machine_step_return (task, error, NULL);
      return;
    }
  if (!vmm_ssh_key_generate (comment, &private_pem, &public_line, &error))
    {
      vmm_machine_step_return (task, error, "make ssh key: ");
      return;
    }
  g_free (self->record->ssh_public_key);
  self->record->ssh_public_key = g_strdup (g_strchomp (public_line));
  key = g_bytes_new_take (private_pem, strlen (private_pem));
  vmm_file_replace_async (path, key, PRIVATE_MODE, cancellable, key_written_cb,
                          g_steal_pointer (&task));
}

/* The disk. */

static void
acquired_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  g_autoptr (GTask) task = user_data;
  VmmMachine *self = g_task_get_source_object (task);
  GError *error = NULL;
  VmmVolume *volume
      = vmm_storage_backend_acquire_finish (VMM_STORAGE_BACKEND (source), result, &error);

  if (volume != NULL)
    {
      g_clear_object (&self->volume);
      self->volume = volume;
      g_free (self->record->volume_path);
      self->record->volume_path = g_strdup (vmm_volume_get_path (volume));
      vmm_machine_save (self);
    }
  vmm_machine_step_return (task, error, "volume: ");
}

static void
acquire (GTask *task, VmmVolumeMode mode)
{
  VmmMachine *self = g_task_get_source_object (task);
  g_autofree char *name = dup_volume_name (self);
  VmmVolumeRequest request = { 0 };

  request.name = name;
  request.size_bytes = self->record->disk_gib * GIB;
  request.mode = mode;
  vmm_storage_backend_acquire_async (self->context->storage, &request,
                                     g_task_get_cancellable (task), acquired_cb,
                                     g_object_ref (task));
}

static void
volume_async (gpointer subject, GCancellable *cancellable, GAsyncReadyCallback callback,
              gpointer user_data)
{
  g_autoptr (GTask) task
      = vmm_machine_step_task (subject, cancellable, callback, user_data, volume_async);

  acquire (task, VMM_VOLUME_NEW);
}

void
vmm_machine_open_volume_async (gpointer subject, GCancellable *cancellable,
                               GAsyncReadyCallback callback, gpointer user_data)
{
  VmmMachine *self = subject;
  g_autoptr (GTask) task = vmm_machine_step_task (subject, cancellable, callback, user_data,
                                                  vmm_machine_open_volume_async);

  if (self->volume != NULL)
    g_task_return_boolean (task, TRUE);
  else
    acquire (task, VMM_VOLUME_OPEN);
}

void
vmm_machine_release_volume (VmmMachine *self)
{
  if (self->volume != NULL)
    vmm_volume_release (self->volume);
  g_clear_object (&self->volume);
}

static void
removed_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  g_autoptr (GTask) task = user_data;
  GError *error = NULL;

  vmm_storage_backend_remove_finish (VMM_STORAGE_BACKEND (source), result, &error);
  vmm_machine_step_return (task, error, "remove volume: ");
}

static void
remove_volume_async (gpointer subject, GCancellable *cancellable, GAsyncReadyCallback callback,
                     gpointer user_data)
{
  VmmMachine *self = subject;
  GTask *task = vmm_machine_step_task (subject, NULL, callback, user_data, remove_volume_async);
  g_autofree char *name = dup_volume_name (self);

  vmm_machine_release_volume (self);
  vmm_storage_backend_remove_async (self->context->storage, name, NULL, removed_cb, task);
}

/* A volume that could not be made new is somebody else's. */
static void
undo_volume_async (gpointer subject, GCancellable *cancellable, GAsyncReadyCallback callback,
                   gpointer user_data)
{
  VmmMachine *self = subject;
  g_autoptr (GTask) task = NULL;

  if (self->volume != NULL)
    {
      remove_volume_async (subject, cancellable, callback, user_data);
      return;
    }
  task = vmm_machine_step_task (subject, NULL, callback, user_data, undo_volume_async);
  g_task_return_boolean (task, TRUE);
}

/* The address. */

static void
leased_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  g_autoptr (GTask) task = user_data;
  VmmMachine *self = g_task_get_source_object (task);
  GError *error = NULL;
  g_autoptr (VmmLease) lease
      = vmm_network_table_lease_finish (VMM_NETWORK_TABLE (source), result, &error);

  if (lease != NULL)
    {
      g_free (self->record->ip);
      self->record->ip = g_strdup (lease->ip);
      g_free (self->record->mac);
      self->record->mac = g_strdup (lease->mac);
      vmm_machine_save (self);
    }
  vmm_machine_step_return (task, error, "attach network: ");
}

void
vmm_machine_lease_async (gpointer subject, GCancellable *cancellable, GAsyncReadyCallback callback,
                         gpointer user_data)
{
  VmmMachine *self = subject;
  GTask *task = vmm_machine_step_task (subject, cancellable, callback, user_data,
                                       vmm_machine_lease_async);

  vmm_network_table_lease_async (self->context->networks, self->record->network, self->record->id,
                                 cancellable, leased_cb, task);
}

static void
unleased_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  g_autoptr (GTask) task = user_data;
  GError *error = NULL;

  vmm_network_table_unlease_finish (VMM_NETWORK_TABLE (source), result, &error);
  /* The step may have failed before it had one. */
  if (g_error_matches (error, VMM_ERROR, VMM_ERROR_NOT_FOUND))
    g_clear_error (&error);
  vmm_machine_step_return (task, error, "release lease: ");
}

static void
unlease_async (gpointer subject, GCancellable *cancellable, GAsyncReadyCallback callback,
               gpointer user_data)
{
  VmmMachine *self = subject;
  GTask *task = vmm_machine_step_task (subject, NULL, callback, user_data, unlease_async);

  vmm_network_table_unlease_async (self->context->networks, self->record->network,
                                   self->record->id, NULL, unleased_cb, task);
}

/* Tear-down only. */

/* Before anything is given back, the record says that it is deleted: a daemon that is killed now must
 * not find a stopped VM without its disk. */
static void
farewell_async (gpointer subject, GCancellable *cancellable, GAsyncReadyCallback callback,
                gpointer user_data)
{
  VmmMachine *self = subject;
  GTask *task = vmm_machine_step_task (subject, NULL, callback, user_data, farewell_async);

  if (self->file != NULL && !vmm_coalesced_file_is_idle (self->file))
    {
      vmm_machine_save_async (self, recorded_cb, task);
      return;
    }
  g_task_return_boolean (task, TRUE);
  g_object_unref (task);
}

static void
forwards_closed_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  g_autoptr (GTask) task = user_data;
  GError *error = NULL;

  vmm_machine_close_forwards_finish (VMM_MACHINE (source), result, &error);
  vmm_machine_step_return (task, error, "close forwards: ");
}

static void
close_forwards_async (gpointer subject, GCancellable *cancellable, GAsyncReadyCallback callback,
                      gpointer user_data)
{
  GTask *task = vmm_machine_step_task (subject, NULL, callback, user_data, close_forwards_async);

  vmm_machine_close_forwards_async (subject, forwards_closed_cb, task);
}

static const VmmStep provision_steps[] = {
  { "record", record_async, vmm_machine_step_finish, remove_directory_async,
    vmm_machine_step_finish },
  { "vtpm", vmm_machine_make_tpm_async, vmm_machine_step_finish, vmm_machine_undo_make_tpm_async,
    vmm_machine_step_finish },
  { "identity", files_async, vmm_machine_step_finish, NULL, NULL },
  { "volume", volume_async, vmm_machine_step_finish, undo_volume_async, vmm_machine_step_finish },
  { "lease", vmm_machine_lease_async, vmm_machine_step_finish, unlease_async,
    vmm_machine_step_finish },
};

static const VmmStep discard_steps[] = {
  { "record", farewell_async, vmm_machine_step_finish, NULL, NULL },
  { "forwards", close_forwards_async, vmm_machine_step_finish, NULL, NULL },
  { "lease", unlease_async, vmm_machine_step_finish, NULL, NULL },
  { "volume", remove_volume_async, vmm_machine_step_finish, NULL, NULL },
  { "directory", remove_directory_async, vmm_machine_step_finish, NULL, NULL },
};
/* All but the last. */
#define N_GIVEN_BACK (G_N_ELEMENTS (discard_steps) - 1)

void
vmm_machine_run_create_async (VmmMachine *self, GCancellable *cancellable,
                              GAsyncReadyCallback callback, gpointer user_data)
{
  /* One list of both parts, made once. */
  static VmmStep *steps;
  const guint n_provision = G_N_ELEMENTS (provision_steps);

  if (steps == NULL)
    {
      steps = g_new0 (VmmStep, n_provision + vmm_machine_n_boot_steps);
      memcpy (steps, provision_steps, sizeof provision_steps);
      memcpy (steps + n_provision, vmm_machine_boot_steps,
              vmm_machine_n_boot_steps * sizeof (VmmStep));
    }
  vmm_sequence_run_async ("create", steps, n_provision + vmm_machine_n_boot_steps, self, FALSE,
                          cancellable, callback, user_data);
}

/* What is left of the VM is its folder; only with that gone is it deleted. */
static void
directory_removed_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  g_autoptr (GTask) task = user_data;
  VmmMachine *self = g_task_get_source_object (task);
  GError *error = NULL;

  if (!vmm_sequence_run_finish (result, &error))
    self->storing = TRUE;
  vmm_machine_step_return (task, error, "remove folder: ");
}

static void
given_back_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  GTask *task = user_data;

  /* It goes to its end whatever fails on the way. */
  vmm_sequence_run_finish (result, NULL);
  vmm_sequence_run_async ("delete", discard_steps + N_GIVEN_BACK, 1,
                          g_task_get_source_object (task), FALSE, NULL, directory_removed_cb, task);
}

void
vmm_machine_run_discard_async (VmmMachine *self, GAsyncReadyCallback callback, gpointer user_data)
{
  GTask *task
      = vmm_machine_step_task (self, NULL, callback, user_data, vmm_machine_run_discard_async);

  vmm_sequence_run_async ("delete", discard_steps, N_GIVEN_BACK, self, TRUE, NULL, given_back_cb,
                          task);
}

gboolean
vmm_machine_run_discard_finish (VmmMachine *self, GAsyncResult *result, GError **error)
{
  return g_task_propagate_boolean (G_TASK (result), error);
}

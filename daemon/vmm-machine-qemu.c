/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The step that starts QEMU: from the record, the volume and the network's arguments to a process
 * that answers on QMP.
 *
 * vsock context ids belong to the whole host, so another program may hold the one in the record.
 * QEMU then ends at once and says so; the step takes the next free one, writes it down first, and
 * tries again with the same vTPM.
 */

#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <glib/gstdio.h>
#include <string.h>
#include <unistd.h>

#include "vmm-account.h"
#include "vmm-child-start.h"
#include "vmm-file.h"
#include "vmm-log.h"
#include "vmm-machine-private.h"
#include "vmm-qemu-args.h"
#include "vmm-vsock.h"

#define MAX_CID_RETRIES 16
#define UNDO_GRACE_MS 5000
#define KVM_DEVICE "/dev/kvm"
#define VSOCK_DEVICE "/dev/vhost-vsock"
/* The first descriptor that a launcher hands over has this number. */
#define VOLUME_FD_PATH "/proc/self/fd/3"
#define HOST_CID 2
#define MAX_CREDENTIALS 8

typedef struct
{
  guint retries;
  char *qmp_socket;
  char *log;
} QemuStep;

static void start_qemu (GTask *task);

static void
qemu_step_free (QemuStep *step)
{
  g_free (step->qmp_socket);
  g_free (step->log);
  g_free (step);
}

static gboolean
is_cid_in_use (const char *message)
{
  g_autofree char *lower = g_ascii_strdown (message, -1);

  return strstr (lower, "unable to set guest cid") != NULL
         || (strstr (lower, "guest-cid") != NULL && strstr (lower, "in use") != NULL);
}

/* The manager's key first, then the caller's, one a line. */
static char *
dup_authorized_keys (const VmmMachineRecord *record)
{
  GString *keys = g_string_new (record->ssh_public_key);

  g_string_append_c (keys, '\n');
  for (guint i = 0; record->ssh_authorized_keys != NULL && record->ssh_authorized_keys[i] != NULL;
       i++)
    g_string_append_printf (keys, "%s\n", record->ssh_authorized_keys[i]);
  return g_string_free (keys, FALSE);
}

typedef struct
{
  VmmQemuConfig config;
  GPtrArray *strings; /* owns what the config points to */
  VmmQemuCredential credentials[MAX_CREDENTIALS];
} Build;

static const char *
keep (Build *build, char *text)
{
  g_ptr_array_add (build->strings, text);
  return text;
}

static void
add_credential (Build *build, const char *name, const char *value)
{
  VmmQemuCredential *credential = &build->credentials[build->config.n_credentials++];

  credential->name = name;
  credential->value = value;
}

static void
add_credentials (Build *build, VmmMachine *self)
{
  const VmmMachineRecord *record = self->record;

  add_credential (build, "vmm.notify_socket",
                  keep (build, g_strdup_printf ("vsock-stream:%d:%u", HOST_CID,
                                                record->notify_port)));
  add_credential (build, "system.machine_id", record->machine_id);
  add_credential (build, "firstboot.hostname",
                  record->hostname[0] != '\0' ? record->hostname : record->name);
  add_credential (build, "ssh.authorized_keys.root", keep (build, dup_authorized_keys (record)));
  if (strcmp (self->boot_phase, "install") == 0)
    add_credential (build, "vm.install-target", "/dev/disk/by-id/virtio-target");
  build->config.credentials = build->credentials;
}

static void
add_vsock (Build *build, VmmMachine *self)
{
  static const VmmQemuVsock kinds[] = {
    [VMM_HOST_VSOCK_NONE] = VMM_QEMU_VSOCK_NONE,
    [VMM_HOST_VSOCK_VHOST] = VMM_QEMU_VSOCK_VHOST,
    [VMM_HOST_VSOCK_VHOST_USER] = VMM_QEMU_VSOCK_VHOST_USER,
  };
  VmmQemuConfig *config = &build->config;

  config->vsock = kinds[self->ways.vsock];
  config->cid = self->record->cid;
  if (config->vsock == VMM_QEMU_VSOCK_VHOST_USER)
    config->vsock_socket = keep (build, vmm_machine_dup_path (self, VMM_VSOCK_DEVICE_SOCKET));
}

static gboolean
add_disks (Build *build, VmmMachine *self, GError **error)
{
  const char *path = vmm_volume_get_path (self->volume);
  const VmmImage *image;

  build->config.target_disk = path != NULL ? path : VOLUME_FD_PATH;
  if (strcmp (self->boot_phase, "install") != 0)
    {
      /* Ignition runs in the first installed boot, and again until one was complete. */
      if (!self->record->booted)
        build->config.kernel_cmdline_extra = "ignition.firstboot";
      return TRUE;
    }
  image = vmm_images_lookup (self->context->images, self->record->image, error);
  if (image == NULL)
    return FALSE;
  if (!vmm_account_let_read (image->uki, error) || !vmm_account_let_read (image->disk, error))
    return FALSE;
  build->config.uki = image->uki;
  build->config.installer_disk = image->disk;
  return TRUE;
}

static GStrv
build_arguments (VmmMachine *self, QemuStep *step, GError **error)
{
  Build build = { 0 };
  VmmQemuConfig *config = &build.config;
  g_autoptr (GPtrArray) strings = g_ptr_array_new_with_free_func (g_free);

  build.strings = strings;
  config->id = self->record->id;
  config->phase = self->boot_phase;
  config->accelerator = self->record->accelerator;
  config->cpus = self->record->cpus;
  config->memory_mib = self->record->memory_mib;
  config->console_socket = keep (&build, vmm_machine_dup_path (self, "console.sock"));
  config->qmp_socket = step->qmp_socket;
  config->monitor_qmp_socket = keep (&build, vmm_machine_dup_path (self, "monitor-qmp.sock"));
  config->ovmf_code = vmm_host_get_ovmf_code (self->context->host);
  config->ovmf_vars = keep (&build, vmm_machine_dup_path (self, "ovmf_vars.fd"));
  config->network_arguments = vmm_attachment_get_arguments (self->attachment);
  add_vsock (&build, self);
  if (self->processes[VMM_PROCESS_ROLE_TPM] != NULL)
    config->tpm_socket
        = keep (&build, g_build_filename (self->directory, "tpm", "swtpm.sock", NULL));
  add_credentials (&build, self);
  if (!add_disks (&build, self, error))
    return NULL;
  return vmm_qemu_args_build (config, error);
}

static gboolean
add_volume (VmmMachine *self, VmmProcessSpec *spec, GError **error)
{
  const char *path = vmm_volume_get_path (self->volume);
  int fd;

  if (path != NULL)
    {
      if (vmm_volume_is_block_device (self->volume))
        vmm_process_spec_add_device (spec, path);
      else
        vmm_process_spec_add_writable_path (spec, path);
      return TRUE;
    }
  fd = fcntl (vmm_volume_get_fd (self->volume), F_DUPFD_CLOEXEC, 3);
  if (fd < 0)
    {
      vmm_set_error (error, VMM_ERROR_INTERNAL, "duplicate the volume's descriptor: %s",
                     g_strerror (errno));
      return FALSE;
    }
  vmm_process_spec_take_fd (spec, "volume", fd);
  return TRUE;
}

static void
add_devices (VmmMachine *self, VmmProcessSpec *spec)
{
  const char *const *devices = vmm_attachment_get_devices (self->attachment);

  if (strcmp (self->record->accelerator, "kvm") == 0)
    vmm_process_spec_add_device (spec, KVM_DEVICE);
  if (self->ways.vsock == VMM_HOST_VSOCK_VHOST)
    vmm_process_spec_add_device (spec, VSOCK_DEVICE);
  for (guint i = 0; devices[i] != NULL; i++)
    vmm_process_spec_add_device (spec, devices[i]);
}

static VmmProcessSpec *
build_spec (VmmMachine *self, QemuStep *step, GError **error)
{
  g_auto (GStrv) argv = build_arguments (self, step, error);
  g_autofree char *id = vmm_process_id_for_vm (self->record->id, "qemu");
  g_autofree char *tpm_id = vmm_process_id_for_vm (self->record->id, "tpm");
  g_autofree char *vsock_id = vmm_process_id_for_vm (self->record->id, "vsock");
  g_autoptr (VmmProcessSpec) spec = NULL;

  if (argv == NULL)
    return NULL;
  spec = vmm_process_spec_new (id, (const char *const *) argv);
  vmm_process_spec_set_owner (spec, self->record->id, "qemu");
  vmm_process_spec_set_log (spec, step->log);
  vmm_process_spec_set_flags (spec, VMM_PROCESS_DENY_IO_URING);
  vmm_process_spec_add_writable_path (spec, self->directory);
  vmm_process_spec_add_after (spec, tpm_id);
  if (self->ways.vsock == VMM_HOST_VSOCK_VHOST_USER)
    vmm_process_spec_add_after (spec, vsock_id);
  add_devices (self, spec);
  if (!add_volume (self, spec, error))
    return NULL;
  return g_steal_pointer (&spec);
}

/* With the next context id, if that was the trouble; else with the error. */
static void
cid_recorded_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  g_autoptr (GTask) task = user_data;
  GError *error = NULL;

  if (!vmm_machine_save_finish (VMM_MACHINE (source), result, &error))
    vmm_machine_step_return (task, error, "start qemu: ");
  else
    start_qemu (task);
}

static void
fail_or_retry (GTask *task, GError *error)
{
  VmmMachine *self = g_task_get_source_object (task);
  QemuStep *step = g_task_get_task_data (task);
  VmmMachineContext *context = self->context;
  guint32 next = 0;

  if (is_cid_in_use (error->message) && context->next_cid != NULL
      && step->retries < MAX_CID_RETRIES)
    next = context->next_cid (context->next_cid_data, self->record->cid);
  if (next == 0)
    {
      vmm_machine_step_return (task, error, "start qemu: ");
      return;
    }
  g_error_free (error);
  step->retries++;
  vmm_log_info ("vsock cid in use on this host, retrying with the next one", "vm",
                self->record->id, NULL);
  vmm_machine_drop_process (self, VMM_PROCESS_ROLE_QEMU);
  self->record->cid = next;
  vmm_machine_save_async (self, cid_recorded_cb, g_object_ref (task));
}

static void
stopped_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  g_autoptr (GTask) task = user_data;
  GError *error = NULL;

  vmm_machine_end_process_finish (VMM_MACHINE (source), result, &error);
  vmm_machine_step_return (task, error, NULL);
}

static void
connected_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  g_autoptr (GTask) task = user_data;
  VmmMachine *self = g_task_get_source_object (task);
  GError *error = NULL;
  g_autoptr (VmmQmp) qmp = vmm_qmp_connect_finish (result, &error);

  if (qmp == NULL)
    {
      fail_or_retry (task, error);
      return;
    }
  vmm_machine_set_qmp (self, qmp);
  self->qemu_answered = TRUE;
  g_task_return_boolean (task, TRUE);
}

static void
started_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  g_autoptr (GTask) task = user_data;
  VmmMachine *self = g_task_get_source_object (task);
  QemuStep *step = g_task_get_task_data (task);
  GCancellable *cancellable = g_task_get_cancellable (task);
  GError *error = NULL;
  g_autoptr (VmmProcess) process
      = vmm_launcher_start_finish (VMM_LAUNCHER (source), result, &error);

  if (process == NULL)
    {
      fail_or_retry (task, error);
      return;
    }
  vmm_machine_set_process (self, VMM_PROCESS_ROLE_QEMU, process);
  vmm_machine_save (self);
  vmm_qmp_connect_async (step->qmp_socket, process, step->log, cancellable, connected_cb,
                         g_steal_pointer (&task));
}

static void
start_qemu (GTask *task)
{
  VmmMachine *self = g_task_get_source_object (task);
  QemuStep *step = g_task_get_task_data (task);
  g_autofree char *variables = vmm_machine_dup_path (self, "ovmf_vars.fd");
  g_autoptr (VmmProcessSpec) spec = NULL;
  GError *error = NULL;

  if (vmm_account_give (variables, &error) && vmm_account_let_in (self->directory, &error))
    spec = build_spec (self, step, &error);
  if (spec == NULL)
    {
      vmm_machine_step_return (task, error, "start qemu: ");
      return;
    }
  /* A socket of the run before would be taken for this one's. */
  g_unlink (step->qmp_socket);
  vmm_launcher_start_async (self->context->launcher, spec, g_task_get_cancellable (task),
                            started_cb, g_object_ref (task));
}

static void
variables_copied_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  g_autoptr (GTask) task = user_data;
  GError *error = NULL;

  if (!vmm_file_copy_finish (result, &error))
    vmm_machine_step_return (task, error, "copy firmware variables: ");
  else
    start_qemu (task);
}

void
vmm_machine_qemu_start_async (gpointer subject, GCancellable *cancellable,
                              GAsyncReadyCallback callback, gpointer user_data)
{
  VmmMachine *self = subject;
  g_autoptr (GTask) task = vmm_machine_step_task (subject, cancellable, callback, user_data,
                                                  vmm_machine_qemu_start_async);
  g_autofree char *variables = vmm_machine_dup_path (self, "ovmf_vars.fd");
  gboolean has_variables = g_file_test (variables, G_FILE_TEST_EXISTS);
  QemuStep *step;
  GError *error = NULL;

  if (!vmm_host_check_firmware (self->context->host, has_variables, &error))
    {
      vmm_machine_step_return (task, error, NULL);
      return;
    }
  step = g_new0 (QemuStep, 1);
  step->qmp_socket = vmm_machine_dup_path (self, "qmp.sock");
  step->log = vmm_machine_dup_path (self, "qemu.log");
  g_task_set_task_data (task, step, (GDestroyNotify) qemu_step_free);
  if (has_variables)
    start_qemu (task);
  else
    vmm_file_copy_async (vmm_host_get_ovmf_vars (self->context->host), variables, 0600,
                         cancellable, variables_copied_cb, g_steal_pointer (&task));
}

void
vmm_machine_qemu_undo_async (gpointer subject, GCancellable *cancellable,
                             GAsyncReadyCallback callback, gpointer user_data)
{
  VmmMachine *self = subject;
  GTask *task = vmm_machine_step_task (subject, NULL, callback, user_data,
                                       vmm_machine_qemu_undo_async);

  self->qemu_answered = FALSE;
  vmm_machine_close_channels (self);
  vmm_machine_end_process_async (self, VMM_PROCESS_ROLE_QEMU, UNDO_GRACE_MS, stopped_cb, task);
}

/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What this host offers.
 *
 * Each description looks at the host anew in a worker thread, which is cheap, and runs an outside
 * program only when the file behind it is one that was not asked yet. Descriptions that are wanted
 * while one is being made share it. A caller who goes away only stops waiting.
 *
 * A VM that starts asks in the same way: which accelerator and which vsock device it gets is decided
 * here and nowhere else. The devices are watched besides: when udev tells of a change, the host is
 * looked at again.
 */

#include "config.h"

#include "vmm-host.h"

#include <gudev/gudev.h>

#include "interfaces/vmm-error.h"
#include "vmm-host-facts.h"
#include "vmm-host-firmware.h"
#include "vmm-host-kvm.h"
#include "vmm-host-report.h"
#include "vmm-host-tool.h"
#include "vmm-log.h"
#include "vmm-source.h"

#define KVM_PATH "/dev/kvm"
#define VSOCK_PATH "/dev/vhost-vsock"
#define STORAGE_PROVIDERS_PATH "/run/systemd/io.systemd.StorageProvider"
#define PROBE_LIMIT_MS 5000

/* The non-Secure-Boot builds, as distributions name them. */
static const struct
{
  const char *code;
  const char *vars;
} ovmf_pairs[] = {
  { "/usr/share/edk2/x64/OVMF_CODE.4m.fd", "/usr/share/edk2/x64/OVMF_VARS.4m.fd" },
  { "/usr/share/OVMF/OVMF_CODE_4M.fd", "/usr/share/OVMF/OVMF_VARS_4M.fd" },
  { "/usr/share/OVMF/OVMF_CODE.fd", "/usr/share/OVMF/OVMF_VARS.fd" },
  { "/usr/share/edk2/ovmf/OVMF_CODE.fd", "/usr/share/edk2/ovmf/OVMF_VARS.fd" },
};

struct _VmmHost
{
  GObject parent_instance;

  VmmPluginRegistry *registry;
  char *ovmf_code;
  char *ovmf_vars;
  VmmHostPlaces *places;
  guint limit_ms;

  const char *accelerator; /* that was asked for */
  gboolean emulated;
  gboolean decided; /* that was not only a first look */
  GUdevClient *udev;
  gboolean look_again;

  /* The look that is being taken. */
  gboolean looking;
  gboolean for_report; /* at everything, not only at what a VM's start needs */
  GPtrArray *waiters; /* of Waiter */
  VmmHostFacts *facts;
  guint n_pending;

  VmmHostTool qemu;
  VmmHostTool swtpm;
  VmmHostTool systemd;
  VmmHostTool qemu_devices;
  VmmHostKvm kvm;
  VmmHostFirmware firmware;
};

G_DEFINE_FINAL_TYPE (VmmHost, vmm_host, G_TYPE_OBJECT)

/* Somebody who wants the description. */
typedef struct
{
  VmmHost *host; /* not owned: the task does */
  GTask *task;
  GSource *cancel_source;
} Waiter;

static void
waiter_free (Waiter *waiter)
{
  if (waiter == NULL)
    return;
  vmm_source_clear (&waiter->cancel_source);
  g_object_unref (waiter->task);
  g_free (waiter);
}

static void
set_emulated (VmmHost *self, gboolean emulated)
{
  const char *reason = self->kvm.error;

  if (self->decided && self->emulated == emulated)
    return;

  self->decided = TRUE;
  self->emulated = emulated;
  if (!emulated)
    vmm_log_info ("guests run with kvm", NULL);
  else if (g_str_equal (self->accelerator, "tcg"))
    vmm_log_info ("guests are emulated, as was asked for", NULL);
  else
    vmm_log_warning ("kvm cannot be used: guests are emulated and slow", "device",
                     self->places->kvm_path, "reason", reason, NULL);
}

static gboolean
waiter_cancelled_cb (GCancellable *cancellable, gpointer user_data)
{
  Waiter *waiter = user_data;
  g_autoptr (GTask) task = g_object_ref (waiter->task);

  g_ptr_array_remove (waiter->host->waiters, waiter);
  g_task_return_error_if_cancelled (task);
  return G_SOURCE_REMOVE;
}

static void start_look (VmmHost *self);

/* What no VM can do without: FALSE with an error that says so. */
static gboolean
choose_ways (const VmmHostSources *sources, VmmHostWays *ways, GError **error)
{
  const VmmHostFacts *facts = sources->facts;

  ways->emulated = vmm_host_sources_emulated (sources);
  ways->vsock = vmm_host_sources_vsock (sources);
  if (!ways->emulated && !sources->kvm->usable)
    {
      vmm_set_error (error, VMM_ERROR_UNSUPPORTED,
                     "kvm was asked for and cannot be used: %s: %s; --accelerator=auto emulates "
                     "guests instead",
                     facts->kvm.path, sources->kvm->error);
      return FALSE;
    }
  if (ways->vsock != VMM_HOST_VSOCK_NONE)
    return TRUE;
  vmm_set_error (error, VMM_ERROR_UNSUPPORTED,
                 "no vsock device: %s: %s, and %s; load the module vhost_vsock and let this user "
                 "open its device, or install vhost-device-vsock",
                 facts->vsock.path, facts->vsock.error,
                 facts->programs[VMM_HOST_PROGRAM_VSOCK].path == NULL
                     ? "there is no vhost-device-vsock on PATH"
                     : "qemu has no vhost-user-vsock-pci");
  return FALSE;
}

static void
return_ways (GTask *task, const VmmHostSources *sources)
{
  g_autofree VmmHostWays *ways = g_new0 (VmmHostWays, 1);
  GError *error = NULL;

  if (choose_ways (sources, ways, &error))
    g_task_return_pointer (task, g_steal_pointer (&ways), g_free);
  else
    g_task_return_error (task, error);
}

static gboolean
wants_a_report (const Waiter *waiter)
{
  return g_task_get_source_tag (waiter->task) == vmm_host_describe_async;
}

/* Gives everybody what they asked for, or the error. New ones may come while this goes on. */
static void
answer (VmmHost *self, const VmmHostSources *sources, const GError *error)
{
  g_autoptr (GPtrArray) waiters = g_steal_pointer (&self->waiters);
  g_autoptr (JsonNode) report = NULL;
  gboolean again = self->look_again;
  gboolean for_report = self->for_report;

  if (error == NULL && for_report)
    report = vmm_host_report_new (sources);
  self->looking = FALSE;
  self->look_again = FALSE;
  self->waiters = g_ptr_array_new_with_free_func ((GDestroyNotify) waiter_free);
  for (guint i = 0; i < waiters->len; i++)
    {
      Waiter *waiter = g_ptr_array_index (waiters, i);
      gboolean wants_report = wants_a_report (waiter);

      if (error == NULL && wants_report && !for_report)
        {
          g_ptr_array_add (self->waiters, g_steal_pointer (&waiters->pdata[i]));
          continue;
        }
      vmm_source_clear (&waiter->cancel_source);
      if (error != NULL)
        g_task_return_error (waiter->task, g_error_copy (error));
      else if (!wants_report)
        return_ways (waiter->task, sources);
      else
        g_task_return_pointer (waiter->task, json_node_ref (report),
                               (GDestroyNotify) json_node_unref);
    }
  if ((again || self->waiters->len > 0) && !self->looking)
    start_look (self);
}

static void
finish_part (VmmHost *self)
{
  g_autoptr (VmmHostFacts) facts = NULL;
  VmmHostSources sources;

  if (--self->n_pending > 0)
    return;

  facts = g_steal_pointer (&self->facts);
  sources = (VmmHostSources){
    .facts = facts,
    .firmware = &self->firmware,
    .firmware_path = self->ovmf_code,
    .qemu = &self->qemu,
    .swtpm = &self->swtpm,
    .systemd = &self->systemd,
    .qemu_devices = &self->qemu_devices,
    .kvm = &self->kvm,
    .accelerator = self->accelerator,
    .registry = self->registry,
  };
  set_emulated (self, vmm_host_sources_emulated (&sources));
  answer (self, &sources, NULL);
}

/* A tool or the firmware: what went wrong is part of the answer. */
static void
part_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  g_autoptr (VmmHost) self = user_data;

  finish_part (self);
}

static void
ask_tool (VmmHost *self, VmmHostTool *tool)
{
  self->n_pending++;
  vmm_host_tool_update_async (tool, &self->facts->programs[tool->program], self->limit_ms, part_cb,
                              g_object_ref (self));
}

/* Emulation that was asked for needs no proof. */
static void
ask_kvm (VmmHost *self)
{
  if (g_str_equal (self->accelerator, "tcg"))
    return;
  self->n_pending++;
  vmm_host_kvm_update_async (&self->kvm, &self->facts->programs[VMM_HOST_PROGRAM_QEMU],
                             &self->facts->kvm, self->limit_ms, part_cb, g_object_ref (self));
}

static void
ask_for_report (VmmHost *self)
{
  ask_tool (self, &self->qemu);
  ask_tool (self, &self->swtpm);
  ask_tool (self, &self->systemd);
  self->n_pending++;
  vmm_host_firmware_update_async (&self->firmware, &self->facts->firmware,
                                  &self->facts->programs[VMM_HOST_PROGRAM_DPKG], self->limit_ms,
                                  part_cb, g_object_ref (self));
}

static void
facts_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  VmmHost *self = VMM_HOST (source);
  g_autoptr (GError) error = NULL;

  self->facts = g_task_propagate_pointer (G_TASK (result), &error);
  if (self->facts->hostname == NULL)
    {
      g_clear_pointer (&self->facts, vmm_host_facts_free);
      error = vmm_error_new (VMM_ERROR_INTERNAL, "the host's name cannot be read");
      answer (self, NULL, error);
      return;
    }

  self->n_pending = 1;
  if (self->for_report || !self->facts->vsock.accessible)
    ask_tool (self, &self->qemu_devices);
  ask_kvm (self);
  if (self->for_report)
    ask_for_report (self);
  finish_part (self);
}

static void
read_facts_in_thread (GTask *task, gpointer source, gpointer task_data, GCancellable *cancellable)
{
  g_task_return_pointer (task, vmm_host_facts_read (task_data),
                         (GDestroyNotify) vmm_host_facts_free);
}

static void
start_look (VmmHost *self)
{
  g_autoptr (GTask) task = g_task_new (self, NULL, facts_cb, NULL);

  self->looking = TRUE;
  self->for_report = FALSE;
  for (guint i = 0; i < self->waiters->len; i++)
    self->for_report = self->for_report || wants_a_report (g_ptr_array_index (self->waiters, i));
  g_task_set_source_tag (task, read_facts_in_thread);
  g_task_set_task_data (task, vmm_host_places_copy (self->places),
                        (GDestroyNotify) vmm_host_places_free);
  g_task_run_in_thread (task, read_facts_in_thread);
}

/* A task with a tag waits for the look that is being taken, or for a new one. */
static void
wait_for_look (VmmHost *self, GTask *task)
{
  GCancellable *cancellable = g_task_get_cancellable (task);
  Waiter *waiter;

  if (g_task_return_error_if_cancelled (task))
    return;

  waiter = g_new0 (Waiter, 1);
  waiter->host = self;
  waiter->task = g_object_ref (task);
  waiter->cancel_source = vmm_source_new_cancelled (cancellable, waiter_cancelled_cb, waiter);
  g_ptr_array_add (self->waiters, waiter);
  if (!self->looking)
    start_look (self);
}

void
vmm_host_describe_async (VmmHost *self, GCancellable *cancellable, GAsyncReadyCallback callback,
                         gpointer user_data)
{
  g_autoptr (GTask) task = NULL;

  g_return_if_fail (VMM_IS_HOST (self));

  task = g_task_new (self, cancellable, callback, user_data);
  g_task_set_source_tag (task, vmm_host_describe_async);
  wait_for_look (self, task);
}

JsonNode *
vmm_host_describe_finish (VmmHost *self, GAsyncResult *result, GError **error)
{
  g_return_val_if_fail (g_task_is_valid (result, self), NULL);

  return g_task_propagate_pointer (G_TASK (result), error);
}

void
vmm_host_find_ways_async (VmmHost *self, GCancellable *cancellable, GAsyncReadyCallback callback,
                          gpointer user_data)
{
  g_autoptr (GTask) task = NULL;

  g_return_if_fail (VMM_IS_HOST (self));

  task = g_task_new (self, cancellable, callback, user_data);
  g_task_set_source_tag (task, vmm_host_find_ways_async);
  wait_for_look (self, task);
}

gboolean
vmm_host_find_ways_finish (VmmHost *self, GAsyncResult *result, VmmHostWays *ways, GError **error)
{
  g_autofree VmmHostWays *found = NULL;

  g_return_val_if_fail (g_task_is_valid (result, self), FALSE);

  found = g_task_propagate_pointer (G_TASK (result), error);
  if (found != NULL)
    *ways = *found;
  return found != NULL;
}

/* What is being looked at may be what it was before. */
static void
uevent_cb (GUdevClient *client, const char *action, GUdevDevice *device, VmmHost *self)
{
  if (g_strcmp0 (g_udev_device_get_device_file (device), self->places->kvm_path) != 0)
    return;
  if (self->looking)
    self->look_again = TRUE;
  else
    start_look (self);
}

/* Each half may be given alone; otherwise the first pair of which both files are there, or the
 * first one, so that the report can say what is missing. */
static void
choose_firmware (VmmHost *self, VmmOptions *options)
{
  const char *code = vmm_options_get_string (options, "ovmf-code");
  const char *vars = vmm_options_get_string (options, "ovmf-vars");
  guint chosen = 0;

  for (guint i = G_N_ELEMENTS (ovmf_pairs); i > 0; i--)
    if (g_file_test (ovmf_pairs[i - 1].code, G_FILE_TEST_IS_REGULAR)
        && g_file_test (ovmf_pairs[i - 1].vars, G_FILE_TEST_IS_REGULAR))
      chosen = i - 1;

  if (code == NULL || code[0] == '\0')
    code = ovmf_pairs[chosen].code;
  if (vars == NULL || vars[0] == '\0')
    vars = ovmf_pairs[chosen].vars;
  self->ovmf_code = g_canonicalize_filename (code, NULL);
  self->ovmf_vars = g_canonicalize_filename (vars, NULL);
  g_free (self->places->firmware_path);
  self->places->firmware_path = g_strdup (self->ovmf_code);
}

/* One look before the main loop runs; QEMU is asked later. */
static void
look_at_accelerator (VmmHost *self)
{
  VmmHostDevice device = { NULL };

  vmm_host_device_check (self->places->kvm_path, &device);
  self->emulated = g_str_equal (self->accelerator, "tcg") || !device.accessible;
  vmm_host_device_clear (&device);
}

static void
vmm_host_dispose (GObject *object)
{
  VmmHost *self = VMM_HOST (object);

  g_clear_object (&self->udev);
  g_clear_object (&self->registry);
  G_OBJECT_CLASS (vmm_host_parent_class)->dispose (object);
}

static void
vmm_host_finalize (GObject *object)
{
  VmmHost *self = VMM_HOST (object);

  g_free (self->ovmf_code);
  g_free (self->ovmf_vars);
  vmm_host_places_free (self->places);
  g_ptr_array_unref (self->waiters);
  g_clear_pointer (&self->facts, vmm_host_facts_free);
  vmm_host_tool_clear (&self->qemu);
  vmm_host_tool_clear (&self->swtpm);
  vmm_host_tool_clear (&self->systemd);
  vmm_host_tool_clear (&self->qemu_devices);
  vmm_host_kvm_clear (&self->kvm);
  vmm_host_firmware_clear (&self->firmware);
  G_OBJECT_CLASS (vmm_host_parent_class)->finalize (object);
}

static void
vmm_host_class_init (VmmHostClass *klass)
{
  G_OBJECT_CLASS (klass)->dispose = vmm_host_dispose;
  G_OBJECT_CLASS (klass)->finalize = vmm_host_finalize;
}

static void
vmm_host_init (VmmHost *self)
{
  static const char *const subsystems[] = { "misc", NULL };
  static const char *const list_devices[] = { "-device", "help", NULL };

  self->accelerator = "auto";
  self->limit_ms = PROBE_LIMIT_MS;
  self->waiters = g_ptr_array_new_with_free_func ((GDestroyNotify) waiter_free);
  self->places = g_new0 (VmmHostPlaces, 1);
  self->places->kvm_path = g_strdup (KVM_PATH);
  self->places->vsock_path = g_strdup (VSOCK_PATH);
  self->places->storage_providers_path = g_strdup (STORAGE_PROVIDERS_PATH);
  self->qemu = (VmmHostTool){ .program = VMM_HOST_PROGRAM_QEMU, .word = "version" };
  self->swtpm = (VmmHostTool){ .program = VMM_HOST_PROGRAM_SWTPM, .word = "version" };
  self->systemd = (VmmHostTool){ .program = VMM_HOST_PROGRAM_SYSTEMD, .word = "systemd" };
  self->qemu_devices
      = (VmmHostTool){ .program = VMM_HOST_PROGRAM_QEMU, .question = list_devices };
  self->udev = g_udev_client_new (subsystems);
  g_signal_connect_object (self->udev, "uevent", G_CALLBACK (uevent_cb), self, 0);
}

VmmHost *
vmm_host_new (VmmOptions *options, VmmPluginRegistry *registry)
{
  VmmHost *self = g_object_new (VMM_TYPE_HOST, NULL);

  self->registry = registry != NULL ? g_object_ref (registry) : NULL;
  self->accelerator = g_intern_string (vmm_options_get_string (options, "accelerator"));
  choose_firmware (self, options);
  look_at_accelerator (self);
  return self;
}

const char *
vmm_host_get_ovmf_code (VmmHost *self)
{
  g_return_val_if_fail (VMM_IS_HOST (self), NULL);

  return self->ovmf_code;
}

const char *
vmm_host_get_ovmf_vars (VmmHost *self)
{
  g_return_val_if_fail (VMM_IS_HOST (self), NULL);

  return self->ovmf_vars;
}

gboolean
vmm_host_check_firmware (VmmHost *self, gboolean has_variables, GError **error)
{
  const char *files[2] = { NULL };

  g_return_val_if_fail (VMM_IS_HOST (self), FALSE);

  files[0] = self->ovmf_code;
  files[1] = self->ovmf_vars;
  for (guint i = 0; i < (has_variables ? 1 : G_N_ELEMENTS (files)); i++)
    {
      if (g_file_test (files[i], G_FILE_TEST_IS_REGULAR))
        continue;
      vmm_set_error (error, VMM_ERROR_UNSUPPORTED,
                     "no firmware: %s is not there: install OVMF (package ovmf, or edk2-ovmf), or "
                     "name its files with --ovmf-code and --ovmf-vars",
                     files[i]);
      return FALSE;
    }
  return TRUE;
}

gboolean
vmm_host_is_emulated (VmmHost *self)
{
  g_return_val_if_fail (VMM_IS_HOST (self), TRUE);

  return self->emulated;
}

void
vmm_host_set_places (VmmHost *self, const char *kvm_path, const char *vsock_path,
                     const char *storage_providers_path)
{
  g_return_if_fail (VMM_IS_HOST (self));

  if (kvm_path != NULL)
    {
      g_free (self->places->kvm_path);
      self->places->kvm_path = g_strdup (kvm_path);
      look_at_accelerator (self);
    }
  if (vsock_path != NULL)
    {
      g_free (self->places->vsock_path);
      self->places->vsock_path = g_strdup (vsock_path);
    }
  if (storage_providers_path != NULL)
    {
      g_free (self->places->storage_providers_path);
      self->places->storage_providers_path = g_strdup (storage_providers_path);
    }
}

void
vmm_host_set_probe_limit (VmmHost *self, guint limit_ms)
{
  g_return_if_fail (VMM_IS_HOST (self));

  if (limit_ms > 0)
    self->limit_ms = limit_ms;
}

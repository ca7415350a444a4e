/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* A running guest's processes, and the one timer of its phase.
 *
 * QEMU's end ends the run; a helper's end is told in lastError and the guest runs on. While a start
 * (or a reattach) is in flight, exits are looked at when it has been recorded.
 */

#include "config.h"

#include "vmm-log.h"
#include "vmm-machine-private.h"
#include "vmm-time.h"

/* A helper that ends well most often ends with QEMU, whose own end is then about to be seen. */
#define HELPER_GRACE_MS 1000

typedef struct
{
  VmmMachine *machine;
  VmmProcessRole role;
} HelperTimer;

const char *
vmm_machine_helper_title (VmmProcessRole role)
{
  switch (role)
    {
    case VMM_PROCESS_ROLE_TPM:
      return "the vtpm (swtpm)";
    case VMM_PROCESS_ROLE_MONITOR:
      return "the monitor of console and readiness";
    case VMM_PROCESS_ROLE_VSOCK:
      return "the vsock helper";
    case VMM_PROCESS_ROLE_QEMU:
    default:
      return "qemu";
    }
}

static void
helper_died (VmmMachine *self, VmmProcessRole role)
{
  VmmProcess *process = self->processes[role];
  g_autofree char *detail = NULL;

  detail = g_strdup_printf ("%s ended while the vm runs: %s", vmm_machine_helper_title (role),
                            vmm_process_get_exit_text (process));
  vmm_log_warning ("helper of a vm ended", "vm", self->record->id, "role",
                   vmm_process_role_to_nick (role), "status", vmm_process_get_exit_text (process),
                   NULL);
  vmm_machine_drop_process (self, role);
  vmm_machine_handle_event (self, VMM_MACHINE_EVENT_HELPER_DIED, detail, NULL);
}

static gboolean
helper_timer_cb (gpointer user_data)
{
  HelperTimer *timer = user_data;
  VmmMachine *self = timer->machine;

  self->helper_timers[timer->role] = 0;
  helper_died (self, timer->role);
  return G_SOURCE_REMOVE;
}

void
vmm_machine_helper_exited (VmmMachine *self, VmmProcessRole role)
{
  VmmProcess *qemu = self->processes[VMM_PROCESS_ROLE_QEMU];
  HelperTimer *timer;

  if (qemu == NULL && !self->settling)
    {
      /* Left over from an earlier run. */
      vmm_machine_drop_process (self, role);
      vmm_machine_save (self);
      return;
    }
  if (self->settling || vmm_process_has_exited (qemu) || self->helper_timers[role] != 0)
    return;
  if (!vmm_exit_status_is_success (vmm_process_get_exit_status (self->processes[role])))
    {
      helper_died (self, role);
      return;
    }
  timer = g_new0 (HelperTimer, 1);
  timer->machine = self;
  timer->role = role;
  self->helper_timers[role] = g_timeout_add_full (G_PRIORITY_DEFAULT, HELPER_GRACE_MS,
                                                  helper_timer_cb, timer, g_free);
}

/* Before it has answered, the step that waits for it sees it too and knows more. */
static void
exited_in_start (VmmMachine *self, VmmProcessRole role, const char *text)
{
  VmmMachineOperation *operation = self->operation;

  if (role != VMM_PROCESS_ROLE_QEMU || !self->qemu_answered || operation == NULL)
    return;
  g_free (operation->exit_text);
  operation->exit_text = g_strdup (text);
  vmm_machine_give_up (self, VMM_GIVE_UP_EXITED);
}

static void
exited_cb (VmmProcess *process, gconstpointer status, const char *text, gpointer user_data)
{
  VmmMachine *self = user_data;

  for (guint i = 0; i < VMM_N_PROCESS_ROLES; i++)
    {
      if (self->processes[i] != process)
        continue;
      vmm_log_info ("process of a vm ended", "vm", self->record->id, "role",
                    vmm_process_role_to_nick ((VmmProcessRole) i), "status", text, NULL);
      if (self->starting)
        exited_in_start (self, (VmmProcessRole) i, text);
      else if (i == VMM_PROCESS_ROLE_QEMU)
        vmm_machine_settle (self);
      else
        vmm_machine_helper_exited (self, (VmmProcessRole) i);
      return;
    }
}

void
vmm_machine_set_process (VmmMachine *self, VmmProcessRole role, VmmProcess *process)
{
  vmm_machine_drop_process (self, role);
  self->processes[role] = g_object_ref (process);
  g_clear_pointer (&self->record->processes[role], vmm_process_handle_free);
  self->record->processes[role] = vmm_process_handle_copy (vmm_process_get_handle (process));
  g_signal_connect_object (process, "exited", G_CALLBACK (exited_cb), self, 0);
}

void
vmm_machine_drop_process (VmmMachine *self, VmmProcessRole role)
{
  g_clear_handle_id (&self->helper_timers[role], g_source_remove);
  if (role == VMM_PROCESS_ROLE_MONITOR)
    vmm_machine_give_up_reconnect (self);
  if (self->processes[role] != NULL)
    g_signal_handlers_disconnect_by_data (self->processes[role], self);
  g_clear_object (&self->processes[role]);
  g_clear_pointer (&self->record->processes[role], vmm_process_handle_free);
}

void
vmm_machine_drop_ended (VmmMachine *self)
{
  for (guint i = 0; i < VMM_N_PROCESS_ROLES; i++)
    {
      if (self->processes[i] == NULL || vmm_process_has_exited (self->processes[i]))
        vmm_machine_drop_process (self, (VmmProcessRole) i);
    }
}

static void
boot_timeout_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  g_autoptr (VmmMachine) self = user_data;
  g_autoptr (VmmConsoleReport) report = vmm_machine_read_console_finish (self, result);
  g_autofree char *duration = vmm_duration_to_text (vmm_machine_get_boot_timeout (self));
  g_autofree char *text = NULL;
  g_autofree char *detail = NULL;

  text = g_strdup_printf ("no READY=1 within %s; the guest is up but has not reported ready",
                          duration);
  detail = vmm_console_report_compose (report, text, TRUE, FALSE);
  /* The guest may have become ready, or reset, while the console was read. */
  if (self->phase_timer == 0 && !self->settling)
    vmm_machine_handle_event (self, VMM_MACHINE_EVENT_BOOT_TIMEOUT, detail, NULL);
}

static gboolean
phase_timer_cb (gpointer user_data)
{
  VmmMachine *self = user_data;

  self->phase_timer = 0;
  if (self->record->state == VMM_MACHINE_INSTALLING)
    vmm_machine_handle_event (self, VMM_MACHINE_EVENT_INSTALL_TIMEOUT, NULL, NULL);
  else
    vmm_machine_read_console_async (self, boot_timeout_cb, g_object_ref (self));
  return G_SOURCE_REMOVE;
}

void
vmm_machine_arm_phase_timer (VmmMachine *self)
{
  gint64 timeout_us = self->record->state == VMM_MACHINE_INSTALLING
                          ? vmm_machine_get_install_timeout (self)
                          : vmm_machine_get_boot_timeout (self);

  vmm_machine_disarm_phase_timer (self);
  self->phase_timer = g_timeout_add ((guint) CLAMP (timeout_us / 1000, 1, G_MAXUINT / 2),
                                     phase_timer_cb, self);
}

void
vmm_machine_disarm_phase_timer (VmmMachine *self)
{
  g_clear_handle_id (&self->phase_timer, g_source_remove);
}

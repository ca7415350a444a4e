/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What follows the end of QEMU.
 *
 * First the journal is read to its end, since only the monitor knows whether an installer rebooted
 * or merely shut down; without it the disk has to tell. Then the helpers are stopped and the console is read, and only when nothing of
 * the run is left does the table learn how it ended. Nobody starts anything in between: the state is
 * still a live one.
 */

#include "config.h"

#include <string.h>

#include "vmm-installed-disk.h"
#include "vmm-log.h"
#include "vmm-machine-private.h"
#include "vmm-time.h"

/* The monitor sees QEMU's end when we do; this is for one that hangs. */
#define DRAIN_LIMIT_MS 2000

static void
return_settle_waits (VmmMachine *self)
{
  GTask *task;

  while ((task = g_queue_pop_head (&self->settle_waits)) != NULL)
    {
      g_task_return_boolean (task, TRUE);
      g_object_unref (task);
    }
}

static char *
installer_detail (VmmMachine *self, gboolean success, const char *text, VmmMachineEvent *event)
{
  g_autofree char *duration = NULL;

  *event = VMM_MACHINE_EVENT_PROCESS_EXITED_ERROR;
  if (self->timed_out)
    {
      duration = vmm_duration_to_text (vmm_machine_get_install_timeout (self));
      return g_strdup_printf ("installer did not finish within %s", duration);
    }
  if (!success)
    return g_strdup_printf ("installer exited: %s", text);
  if (g_strcmp0 (self->shutdown_reason, "guest-shutdown") == 0)
    return g_strdup ("installer shut down instead of rebooting; it did not finish");
  if (self->shutdown_reason != NULL && strcmp (self->shutdown_reason, "guest-reset") != 0)
    return g_strdup_printf ("installer was ended (%s) instead of rebooting",
                            self->shutdown_reason);
  if (self->disk_fault != NULL)
    return g_strdup_printf ("installer ended while nobody watched, and its disk is not installed: %s",
                            self->disk_fault);
  *event = VMM_MACHINE_EVENT_PROCESS_EXITED_OK;
  return NULL;
}

static char *
boot_detail (gboolean success, const char *text, VmmMachineEvent *event)
{
  *event = success ? VMM_MACHINE_EVENT_PROCESS_EXITED_OK : VMM_MACHINE_EVENT_PROCESS_EXITED_ERROR;
  if (success)
    return g_strdup ("guest shut down");
  return g_strdup_printf ("qemu exited: %s", text);
}

/* All is read and stopped: the table decides. */
static void
console_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  g_autoptr (VmmMachine) self = user_data;
  g_autoptr (VmmConsoleReport) report = vmm_machine_read_console_finish (self, result);
  VmmProcess *qemu = self->processes[VMM_PROCESS_ROLE_QEMU];
  gboolean success = vmm_exit_status_is_success (vmm_process_get_exit_status (qemu));
  const char *text = vmm_process_get_exit_text (qemu);
  VmmMachineEvent event;
  g_autofree char *plain = NULL;
  g_autofree char *detail = NULL;

  if (g_strcmp0 (self->record->phase, "install") == 0)
    plain = installer_detail (self, success, text, &event);
  else
    plain = boot_detail (success, text, &event);
  if (plain != NULL)
    detail = vmm_console_report_compose (report, plain, self->timed_out,
                                         event == VMM_MACHINE_EVENT_PROCESS_EXITED_ERROR);
  vmm_machine_drop_ended (self);
  vmm_machine_record_clear_paused (self->record);
  self->settling = FALSE;
  if (!vmm_machine_handle_event (self, event, detail, NULL))
    vmm_machine_save (self);
  return_settle_waits (self);
}

static void
disk_checked_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  g_autoptr (VmmMachine) self = user_data;
  g_autoptr (GError) error = NULL;

  if (!vmm_installed_disk_check_finish (result, &error))
    self->disk_fault = g_strdup (error->message);
  vmm_machine_read_console_async (self, console_cb, g_object_ref (self));
}

/* An exit status of 0 alone says nothing about an installer. */
static gboolean
needs_proof (VmmMachine *self)
{
  VmmProcess *qemu = self->processes[VMM_PROCESS_ROLE_QEMU];

  return g_strcmp0 (self->record->phase, "install") == 0 && self->shutdown_reason == NULL
         && !self->timed_out && self->volume != NULL
         && vmm_exit_status_is_success (vmm_process_get_exit_status (qemu));
}

static void
tpm_kept_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  VmmMachine *self = VMM_MACHINE (source);

  g_clear_pointer (&self->disk_fault, g_free);
  if (needs_proof (self))
    vmm_installed_disk_check_async (self->volume, disk_checked_cb, g_object_ref (self));
  else
    vmm_machine_read_console_async (self, console_cb, g_object_ref (self));
}

static void
helpers_ended_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  vmm_machine_keep_tpm_async (VMM_MACHINE (source), tpm_kept_cb, NULL);
}

static void
stop_helpers (VmmMachine *self)
{
  g_clear_handle_id (&self->drain_timer, g_source_remove);
  vmm_machine_close_channels (self);
  vmm_machine_end_helpers_async (self, helpers_ended_cb, NULL);
}

static gboolean
drain_timer_cb (gpointer user_data)
{
  VmmMachine *self = user_data;

  self->drain_timer = 0;
  vmm_log_warning ("the journal of a vm did not end with it", "vm", self->record->id, NULL);
  stop_helpers (self);
  return G_SOURCE_REMOVE;
}

void
vmm_machine_journal_ended (VmmMachine *self)
{
  self->journal_ended = TRUE;
  if (self->drain_timer != 0)
    stop_helpers (self);
}

void
vmm_machine_settle (VmmMachine *self)
{
  if (self->settling)
    return;
  self->settling = TRUE;
  vmm_machine_disarm_phase_timer (self);
  vmm_machine_clear_stop (self);
  if (self->witness == NULL || self->journal_ended)
    stop_helpers (self);
  else
    self->drain_timer = g_timeout_add (DRAIN_LIMIT_MS, drain_timer_cb, self);
}

void
vmm_machine_wait_settled_async (VmmMachine *self, GAsyncReadyCallback callback, gpointer user_data)
{
  g_autoptr (GTask) task = g_task_new (self, NULL, callback, user_data);

  g_task_set_source_tag (task, vmm_machine_wait_settled_async);
  if (!self->settling)
    g_task_return_boolean (task, TRUE);
  else
    g_queue_push_tail (&self->settle_waits, g_steal_pointer (&task));
}

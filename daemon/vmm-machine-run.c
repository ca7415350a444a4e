/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* A running guest: its processes, what QEMU and the monitor's journal tell, and the one timer.
 *
 * While a start (or a reattach) is in flight, exits and journal entries are held back, so that the
 * table sees them after the start they belong to. Entries carry numbers; the record keeps the last
 * one, and a daemon that comes back reads on behind it.
 */

#include "config.h"

#include <string.h>

#include "vmm-log.h"
#include "vmm-machine-private.h"
#include "vmm-json.h"
#include "vmm-time.h"

/* A helper that ends well most often ends with QEMU, whose own end is then about to be seen. */
#define HELPER_GRACE_MS 1000
#define GUEST_TEXT_BYTES 4096

typedef struct
{
  guint64 seq;
  char *name;
  JsonObject *data;
} HeldEvent;

typedef struct
{
  VmmMachine *machine;
  VmmProcessRole role;
} HelperTimer;

static void connect_witness_again (VmmMachine *self);

static const char *
helper_title (VmmProcessRole role)
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

  detail = g_strdup_printf ("%s ended while the vm runs: %s", helper_title (role),
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

static void
helper_exited (VmmMachine *self, VmmProcessRole role)
{
  VmmProcess *qemu = self->processes[VMM_PROCESS_ROLE_QEMU];
  HelperTimer *timer;

  if (self->settling || qemu == NULL || vmm_process_has_exited (qemu)
      || self->helper_timers[role] != 0)
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
        helper_exited (self, (VmmProcessRole) i);
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
  if (self->processes[role] != NULL)
    g_signal_handlers_disconnect_by_data (self->processes[role], self);
  g_clear_object (&self->processes[role]);
  g_clear_pointer (&self->record->processes[role], vmm_process_handle_free);
}

static void
note_shutdown (VmmMachine *self, JsonObject *data)
{
  const char *reason = NULL;

  if (data == NULL || !vmm_json_get_string (data, "reason", NULL, &reason, NULL) || reason == NULL)
    return;
  g_free (self->shutdown_reason);
  self->shutdown_reason = vmm_log_escape (reason, GUEST_TEXT_BYTES);
}

/* The guest was stopped by QEMU; the end of a run stops it too, which is no pause. */
static void
note_pause (VmmMachine *self, JsonObject *data)
{
  const char *reason = NULL;
  g_autofree char *escaped = NULL;

  if (self->shutdown_reason != NULL)
    return;
  if (data != NULL)
    vmm_json_get_string (data, "reason", NULL, &reason, NULL);
  escaped = vmm_log_escape (reason != NULL ? reason : "stopped", GUEST_TEXT_BYTES);
  vmm_machine_handle_event (self, VMM_MACHINE_EVENT_GUEST_PAUSED, escaped, NULL);
}

static void
note_status (VmmMachine *self, JsonObject *data)
{
  const char *text = NULL;
  g_autofree char *escaped = NULL;

  if (data == NULL || !vmm_json_get_string (data, "text", NULL, &text, NULL) || text == NULL)
    return;
  escaped = vmm_log_escape (text, GUEST_TEXT_BYTES);
  vmm_machine_handle_event (self, VMM_MACHINE_EVENT_GUEST_STATUS, escaped, NULL);
}

static void
take_event (VmmMachine *self, const char *name, JsonObject *data)
{
  if (strcmp (name, "ready") == 0)
    vmm_machine_handle_event (self, VMM_MACHINE_EVENT_GUEST_READY, NULL, NULL);
  else if (strcmp (name, "status") == 0)
    note_status (self, data);
  else if (strcmp (name, "reset") == 0)
    vmm_machine_handle_event (self, VMM_MACHINE_EVENT_GUEST_RESET, NULL, NULL);
  else if (strcmp (name, "shutdown") == 0)
    note_shutdown (self, data);
  else if (strcmp (name, "stop") == 0)
    note_pause (self, data);
  else if (strcmp (name, "resume") == 0 && self->record->paused_reason != NULL)
    vmm_machine_handle_event (self, VMM_MACHINE_EVENT_GUEST_RESUMED, NULL, NULL);
  else if (strcmp (name, "exit") == 0)
    vmm_machine_journal_ended (self);
}

static void
take_entry (VmmMachine *self, guint64 seq, const char *name, JsonObject *data)
{
  /* Read before: the daemon that recorded it may have ended before this one asked. */
  if (seq <= self->record->journal_position)
    return;
  self->record->journal_position = seq;
  take_event (self, name, data);
  vmm_machine_save (self);
}

static void
witness_event_cb (VmmWitness *witness, guint64 seq, const char *name, JsonObject *data,
                  gpointer user_data)
{
  VmmMachine *self = user_data;
  HeldEvent *held;

  if (!self->starting)
    {
      take_entry (self, seq, name, data);
      return;
    }
  held = g_new0 (HeldEvent, 1);
  held->seq = seq;
  held->name = g_strdup (name);
  held->data = data != NULL ? json_object_ref (data) : NULL;
  g_queue_push_tail (&self->held, held);
}

static void
witness_closed_cb (VmmWitness *witness, const char *reason, gpointer user_data)
{
  VmmMachine *self = user_data;
  VmmProcess *monitor = self->processes[VMM_PROCESS_ROLE_MONITOR];

  if (self->witness != witness)
    return;
  vmm_machine_set_witness (self, NULL);
  vmm_machine_journal_ended (self);
  if (self->settling || self->starting || self->closed || monitor == NULL
      || vmm_process_has_exited (monitor))
    return;
  vmm_log_warning ("connection to the monitor was lost", "vm", self->record->id, "reason", reason,
                   NULL);
  connect_witness_again (self);
}

static void
connected_again_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  g_autoptr (VmmMachine) self = user_data;
  g_autoptr (GError) error = NULL;
  g_autoptr (VmmWitness) witness = vmm_witness_connect_finish (result, &error);
  g_autofree char *detail = NULL;

  if (self->settling || self->starting || self->closed || self->witness != NULL
      || self->processes[VMM_PROCESS_ROLE_QEMU] == NULL)
    {
      if (witness != NULL)
        vmm_witness_close (witness);
      return;
    }
  if (witness != NULL)
    {
      vmm_machine_set_witness (self, witness);
      return;
    }
  detail = g_strdup_printf ("%s does not answer: %s", helper_title (VMM_PROCESS_ROLE_MONITOR),
                            error->message);
  vmm_machine_handle_event (self, VMM_MACHINE_EVENT_HELPER_DIED, detail, NULL);
}

static void
connect_witness_again (VmmMachine *self)
{
  vmm_witness_connect_async (self->directory, self->record->journal_position, NULL,
                             connected_again_cb, g_object_ref (self));
}

void
vmm_machine_set_witness (VmmMachine *self, VmmWitness *witness)
{
  if (self->witness != NULL)
    g_signal_handlers_disconnect_by_data (self->witness, self);
  g_clear_object (&self->witness);
  if (witness == NULL)
    return;
  self->witness = g_object_ref (witness);
  self->journal_ended = FALSE;
  g_signal_connect_object (witness, "event", G_CALLBACK (witness_event_cb), self, 0);
  g_signal_connect_object (witness, "closed", G_CALLBACK (witness_closed_cb), self, 0);
}

/* The daemon's own connection says the same as the journal; it counts where there is no journal. */
static void
qmp_event_cb (VmmQmp *qmp, const char *name, JsonObject *data, gpointer user_data)
{
  VmmMachine *self = user_data;
  g_autofree char *lower = NULL;

  if (strcmp (name, "SHUTDOWN") == 0)
    {
      note_shutdown (self, data);
      return;
    }
  if (self->witness != NULL || self->starting)
    return;
  lower = g_ascii_strdown (name, -1);
  if (strcmp (lower, "reset") == 0 || strcmp (lower, "stop") == 0 || strcmp (lower, "resume") == 0)
    take_event (self, lower, data);
}

static void
qmp_closed_cb (VmmQmp *qmp, const char *reason, gpointer user_data)
{
  VmmMachine *self = user_data;

  vmm_log_debug ("qmp connection closed", "vm", self->record->id, "reason", reason, NULL);
  if (self->qmp == qmp)
    vmm_machine_set_qmp (self, NULL);
}

void
vmm_machine_set_qmp (VmmMachine *self, VmmQmp *qmp)
{
  if (self->qmp != NULL)
    g_signal_handlers_disconnect_by_data (self->qmp, self);
  g_clear_object (&self->qmp);
  if (qmp == NULL)
    return;
  self->qmp = g_object_ref (qmp);
  g_signal_connect_object (qmp, "event", G_CALLBACK (qmp_event_cb), self, 0);
  g_signal_connect_object (qmp, "closed", G_CALLBACK (qmp_closed_cb), self, 0);
}

void
vmm_machine_close_channels (VmmMachine *self)
{
  g_autoptr (VmmQmp) qmp = self->qmp != NULL ? g_object_ref (self->qmp) : NULL;
  g_autoptr (VmmWitness) witness = self->witness != NULL ? g_object_ref (self->witness) : NULL;

  vmm_machine_set_qmp (self, NULL);
  vmm_machine_set_witness (self, NULL);
  if (qmp != NULL)
    vmm_qmp_close (qmp);
  if (witness != NULL)
    vmm_witness_close (witness);
}

void
vmm_machine_hold (VmmMachine *self, const char *phase)
{
  self->starting = TRUE;
  self->qemu_answered = FALSE;
  self->boot_phase = phase;
  self->journal_ended = FALSE;
  self->timed_out = FALSE;
  g_clear_pointer (&self->shutdown_reason, g_free);
}

static void
held_event_free (HeldEvent *held)
{
  g_free (held->name);
  g_clear_pointer (&held->data, json_object_unref);
  g_free (held);
}

void
vmm_machine_forget_held (VmmMachine *self)
{
  HeldEvent *held;

  while ((held = g_queue_pop_head (&self->held)) != NULL)
    {
      self->record->journal_position = MAX (self->record->journal_position, held->seq);
      held_event_free (held);
    }
}

void
vmm_machine_release (VmmMachine *self, gboolean started)
{
  VmmProcess *qemu = self->processes[VMM_PROCESS_ROLE_QEMU];
  HeldEvent *held;

  self->starting = FALSE;
  if (!started)
    {
      vmm_machine_forget_held (self);
      return;
    }
  while ((held = g_queue_pop_head (&self->held)) != NULL)
    {
      take_entry (self, held->seq, held->name, held->data);
      held_event_free (held);
    }
  if (qemu == NULL)
    return;
  if (vmm_process_has_exited (qemu))
    {
      vmm_machine_settle (self);
      return;
    }
  for (guint i = VMM_PROCESS_ROLE_QEMU + 1; i < VMM_N_PROCESS_ROLES; i++)
    {
      if (self->processes[i] != NULL && vmm_process_has_exited (self->processes[i]))
        helper_exited (self, (VmmProcessRole) i);
    }
}

static void
boot_timeout_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  g_autoptr (VmmMachine) self = user_data;
  g_autoptr (VmmConsoleReport) report = vmm_machine_read_console_finish (self, result);
  g_autofree char *duration = vmm_duration_to_text (self->context->boot_timeout_us);
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
                          ? self->context->install_timeout_us
                          : self->context->boot_timeout_us;

  vmm_machine_disarm_phase_timer (self);
  self->phase_timer = g_timeout_add ((guint) CLAMP (timeout_us / 1000, 1, G_MAXUINT / 2),
                                     phase_timer_cb, self);
}

void
vmm_machine_disarm_phase_timer (VmmMachine *self)
{
  g_clear_handle_id (&self->phase_timer, g_source_remove);
}

/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What the monitor's journal and QEMU itself tell of a running guest.
 *
 * Entries carry numbers; the record keeps the last one, and a daemon that comes back reads on behind
 * it. While a start (or a reattach) is in flight they are held back, so that the table sees them
 * after the start they belong to. Texts come from a guest: they are cut and escaped.
 */

#include "config.h"

#include <string.h>

#include "vmm-json.h"
#include "vmm-log.h"
#include "vmm-machine-private.h"

#define GUEST_TEXT_BYTES 4096

typedef struct
{
  guint64 seq;
  char *name;
  JsonObject *data;
} HeldEvent;

static void connect_witness_again (VmmMachine *self);

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

void
vmm_machine_give_up_reconnect (VmmMachine *self)
{
  if (self->reconnect != NULL)
    g_cancellable_cancel (self->reconnect);
  g_clear_object (&self->reconnect);
}

static void
connected_again_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  GWeakRef *machine = user_data;
  g_autoptr (VmmMachine) self = g_weak_ref_get (machine);
  g_autoptr (GError) error = NULL;
  g_autoptr (VmmWitness) witness = vmm_witness_connect_finish (result, &error);
  g_autofree char *detail = NULL;

  g_weak_ref_clear (machine);
  g_free (machine);
  if (self == NULL || self->reconnect == NULL
      || g_error_matches (error, G_IO_ERROR, G_IO_ERROR_CANCELLED))
    {
      if (witness != NULL)
        vmm_witness_close (witness);
      return;
    }
  g_clear_object (&self->reconnect);
  if (witness != NULL)
    {
      vmm_machine_set_witness (self, witness);
      return;
    }
  detail = g_strdup_printf ("%s does not answer: %s", vmm_machine_helper_title (VMM_PROCESS_ROLE_MONITOR),
                            error->message);
  vmm_machine_handle_event (self, VMM_MACHINE_EVENT_HELPER_DIED, detail, NULL);
}

static void
connect_witness_again (VmmMachine *self)
{
  GWeakRef *machine = g_new0 (GWeakRef, 1);

  g_weak_ref_init (machine, self);
  vmm_machine_give_up_reconnect (self);
  self->reconnect = g_cancellable_new ();
  vmm_witness_connect_async (self->directory, self->record->journal_position, self->reconnect,
                             connected_again_cb, machine);
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

  vmm_machine_give_up_reconnect (self);
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
        vmm_machine_helper_exited (self, (VmmProcessRole) i);
    }
}

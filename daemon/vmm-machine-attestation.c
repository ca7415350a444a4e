/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What attestation changes in a VM's record.
 *
 * The attestor judges; the record remembers. A verified quote of the initrd releases the user data
 * of this boot, a rejected one is shown in lastError and changes neither state nor boot: a later
 * quote of that stage may verify. A new boot and every reset of the guest begin from nothing.
 */

#include "config.h"

#include <string.h>

#include "vmm-log.h"
#include "vmm-machine-private.h"

#define REJECTED " attestation rejected: "

void
vmm_machine_reset_attestation (VmmMachine *self)
{
  VmmMachineRecord *record = self->record;

  vmm_machine_record_clear_quotes (record);
  record->nonce_issued_at = 0;
  record->user_data_released = !record->require_attestation;
  if (self->context->attestor != NULL)
    vmm_attestor_begin_boot (self->context->attestor, record->id);
}

gboolean
vmm_machine_error_is_rejection (const char *last_error, const char *stage)
{
  static const char *const stages[] = { "initrd", "ready" };

  for (guint i = 0; last_error != NULL && i < G_N_ELEMENTS (stages); i++)
    {
      g_autofree char *mark = g_strconcat (stages[i], REJECTED, NULL);
      g_autofree char *behind_note = g_strconcat ("); ", mark, NULL);

      if (stage != NULL && strcmp (stage, stages[i]) != 0)
        continue;
      if (g_str_has_prefix (last_error, mark)
          || (g_str_has_prefix (last_error, "vtpm not responding: ")
              && strstr (last_error, behind_note) != NULL))
        return TRUE;
    }
  return FALSE;
}

void
vmm_machine_note_nonce (VmmMachine *self)
{
  g_return_if_fail (VMM_IS_MACHINE (self));
  vmm_machine_handle_event (self, VMM_MACHINE_EVENT_NONCE_ISSUED, NULL, NULL);
}

typedef struct
{
  VmmMachine *machine;
  char *text;
} Rejection;

/* The note comes a moment after the rejection itself, which nothing may delay. */
static void
console_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  Rejection *rejection = user_data;
  g_autoptr (VmmMachine) self = rejection->machine;
  g_autofree char *text = rejection->text;
  g_autoptr (VmmConsoleReport) report = vmm_machine_read_console_finish (self, result);
  VmmMachineRecord *record = self->record;

  g_free (rejection);
  if (report->tpm_line == NULL || g_strcmp0 (record->last_error, text) != 0)
    return;
  g_free (record->last_error);
  record->last_error = vmm_console_report_compose (report, text, TRUE, FALSE);
  vmm_machine_save (self);
}

static void
note_rejection (VmmMachine *self, VmmVerdict *verdict)
{
  VmmMachineRecord *record = self->record;
  Rejection *rejection = g_new0 (Rejection, 1);
  g_autofree char *message = vmm_log_escape (vmm_verdict_get_message (verdict), 4096);

  g_free (record->last_error);
  record->last_error = g_strconcat (vmm_verdict_get_stage (verdict), REJECTED, message, NULL);
  rejection->machine = g_object_ref (self);
  rejection->text = g_strdup (record->last_error);
  vmm_log_warning ("attestation rejected", "vm", record->id, "stage",
                   vmm_verdict_get_stage (verdict), "reason", message, NULL);
  vmm_machine_read_console_async (self, console_cb, rejection);
}

static gboolean
may_judge (VmmMachine *self)
{
  switch (self->record->state)
    {
    case VMM_MACHINE_BOOTING:
    case VMM_MACHINE_ATTESTING:
    case VMM_MACHINE_READY:
    case VMM_MACHINE_RUNNING:
      return TRUE;
    default:
      return FALSE;
    }
}

void
vmm_machine_note_verdict (VmmMachine *self, VmmVerdict *verdict)
{
  VmmMachineRecord *record;
  const char *stage;
  VmmQuoteResult *quote;
  gboolean verified;

  g_return_if_fail (VMM_IS_MACHINE (self));
  g_return_if_fail (verdict != NULL);

  /* A verdict that took longer than the boot it belongs to. */
  if (!may_judge (self))
    return;
  record = self->record;
  stage = vmm_verdict_get_stage (verdict);
  quote = g_strcmp0 (stage, "initrd") == 0 ? &record->initrd_quote : &record->ready_quote;
  verified = vmm_verdict_is_verified (verdict);

  g_clear_pointer (&quote->verdict, vmm_verdict_unref);
  quote->verdict = vmm_verdict_ref (verdict);
  quote->present = TRUE;
  quote->at = g_get_real_time ();
  if (vmm_verdict_get_pinned_key (verdict) != NULL)
    {
      g_free (record->pinned_key);
      record->pinned_key = g_strdup (vmm_verdict_get_pinned_key (verdict));
    }
  if (!verified)
    note_rejection (self, verdict);
  else if (vmm_machine_error_is_rejection (record->last_error, stage))
    g_clear_pointer (&record->last_error, g_free);
  if (verified)
    vmm_machine_keep_tpm_async (self, NULL, NULL);
  if (verified && quote == &record->initrd_quote)
    record->user_data_released = TRUE;
  vmm_machine_save (self);
}

/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Keeps vm.json equal to the record.
 *
 * One write is in flight at most, and one that is due takes everything that changed meanwhile.
 * ::changed follows the write, so that nobody is told of what a crash could still take back. When a
 * write fails the memory stays true: the error is logged, shown at the end of lastError and tried
 * again with the next change, or after a while: no event tells that a disk has room again.
 */

#include "config.h"

#include "vmm-machine-private.h"

#include <string.h>

#include "vmm-json.h"
#include "vmm-log.h"

#define RETRY_S 5

static void
remove_note (VmmMachine *self)
{
  VmmMachineRecord *record = self->record;

  if (self->save_note != NULL && record->last_error != NULL
      && g_str_has_suffix (record->last_error, self->save_note))
    {
      record->last_error[strlen (record->last_error) - strlen (self->save_note)] = '\0';
      if (record->last_error[0] == '\0')
        g_clear_pointer (&record->last_error, g_free);
    }
  g_clear_pointer (&self->save_note, g_free);
}

static void
add_note (VmmMachine *self, const GError *error)
{
  VmmMachineRecord *record = self->record;
  char *combined;

  remove_note (self);
  self->save_note = g_strdup_printf ("%sthe record is not on disk: %s",
                                     record->last_error != NULL ? "; " : "", error->message);
  combined = g_strconcat (record->last_error != NULL ? record->last_error : "", self->save_note,
                          NULL);
  g_free (record->last_error);
  record->last_error = combined;
}

static GBytes *
content_cb (gpointer user_data)
{
  VmmMachine *self = user_data;
  g_autoptr (JsonNode) node = NULL;
  gsize length;
  char *text;

  self->save_joined = FALSE;
  g_clear_handle_id (&self->save_timer, g_source_remove);
  /* If this write fails too, the note comes back. */
  remove_note (self);
  node = vmm_machine_record_to_file (self->record, self->directory);
  text = vmm_json_to_text (node, &length);
  return g_bytes_new_take (text, length);
}

static void
announce (VmmMachine *self)
{
  g_signal_emit_by_name (self, "changed");
}

static gboolean
retry_cb (gpointer user_data)
{
  VmmMachine *self = user_data;

  self->save_timer = 0;
  /* At the end of the daemon the last write is waited for, then there is none any more. */
  if (!self->context->closing)
    vmm_machine_save (self);
  return G_SOURCE_REMOVE;
}

static gboolean
finish_write (VmmMachine *self, GAsyncResult *result, GError **error)
{
  g_autoptr (GError) local_error = NULL;

  if (vmm_coalesced_file_save_finish (self->file, result, &local_error))
    return TRUE;
  vmm_log_error ("vm record could not be written", "vm", self->record->id, "error",
                 local_error->message, NULL);
  add_note (self, local_error);
  if (self->storing && !self->context->closing && self->save_timer == 0)
    self->save_timer = g_timeout_add_seconds (RETRY_S, retry_cb, self);
  g_propagate_error (error, g_steal_pointer (&local_error));
  return FALSE;
}

static void
saved_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  g_autoptr (VmmMachine) self = user_data;

  finish_write (self, result, NULL);
  announce (self);
}

static void
ensure_file (VmmMachine *self)
{
  g_autofree char *path = NULL;

  if (self->file != NULL)
    return;
  path = vmm_machine_dup_path (self, "vm.json");
  self->file = vmm_coalesced_file_new (path, 0600, content_cb, self);
}

void
vmm_machine_save (VmmMachine *self)
{
  if (!self->storing)
    {
      announce (self);
      return;
    }
  if (self->save_joined)
    return;
  ensure_file (self);
  self->save_joined = TRUE;
  vmm_coalesced_file_save_async (self->file, saved_cb, g_object_ref (self));
}

static void
saved_for_task_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  g_autoptr (GTask) task = user_data;
  VmmMachine *self = g_task_get_source_object (task);
  g_autoptr (GError) error = NULL;
  gboolean saved = finish_write (self, result, &error);

  announce (self);
  if (saved)
    g_task_return_boolean (task, TRUE);
  else
    g_task_return_error (task, g_steal_pointer (&error));
}

void
vmm_machine_save_async (VmmMachine *self, GAsyncReadyCallback callback, gpointer user_data)
{
  g_autoptr (GTask) task = g_task_new (self, NULL, callback, user_data);

  g_task_set_source_tag (task, vmm_machine_save_async);
  if (!self->storing)
    {
      announce (self);
      g_task_return_boolean (task, TRUE);
      return;
    }
  ensure_file (self);
  vmm_coalesced_file_save_async (self->file, saved_for_task_cb, g_steal_pointer (&task));
}

gboolean
vmm_machine_save_finish (VmmMachine *self, GAsyncResult *result, GError **error)
{
  g_return_val_if_fail (g_task_is_valid (result, self), FALSE);
  return g_task_propagate_boolean (G_TASK (result), error);
}

void
vmm_machine_stop_saving_async (VmmMachine *self, GAsyncReadyCallback callback, gpointer user_data)
{
  g_autoptr (GTask) task = g_task_new (self, NULL, callback, user_data);

  g_task_set_source_tag (task, vmm_machine_stop_saving_async);
  self->storing = FALSE;
  g_clear_handle_id (&self->save_timer, g_source_remove);
  if (self->file == NULL || vmm_coalesced_file_is_idle (self->file))
    {
      g_task_return_boolean (task, TRUE);
      return;
    }
  /* It joins behind the write in flight, so when it has been answered there is none. */
  vmm_coalesced_file_save_async (self->file, saved_for_task_cb, g_steal_pointer (&task));
}

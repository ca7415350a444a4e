/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What a VM's console has to say about a failure: its last lines, and whether the guest's TPM calls
 * failed.
 *
 * Both reads are bounded: the end of the file for the tail, the start for the TPM, since a stalled
 * vTPM shows in the firmware's and the kernel's first lines. A guest writes what it likes, so
 * control characters are escaped before the text becomes part of a record.
 */

#include "config.h"

#include <gio/gio.h>
#include <string.h>

#include "vmm-file.h"
#include "vmm-log.h"
#include "vmm-machine-private.h"

#define TAIL_BYTES (64 * 1024)
#define TAIL_LINES 40
#define HEAD_BYTES (512 * 1024)
#define TPM_LINE_BYTES 512

static const char *const tpm_signs[] = {
  "Failed to measure data for event",
  "tpm tpm0: Operation Timed out",
};

void
vmm_console_report_free (VmmConsoleReport *self)
{
  g_free (self->tail);
  g_free (self->tpm_line);
  g_free (self);
}

static char *
clean_line (const char *line, gsize limit)
{
  g_autofree char *valid = g_utf8_make_valid (line, -1);

  g_strchomp (valid);
  return vmm_log_escape (valid, limit);
}

/* Zero bytes would end the text early. */
static char *
text_of (const char *data, gsize length)
{
  char *text = g_malloc (length + 1);

  memcpy (text, data, length);
  text[length] = '\0';
  for (gsize i = 0; i < length; i++)
    {
      if (text[i] == '\0')
        text[i] = ' ';
    }
  return text;
}

static char *
last_lines (GBytes *bytes, gboolean cut)
{
  gsize length;
  const char *data = g_bytes_get_data (bytes, &length);
  g_autofree char *text = text_of (data, length);
  g_autoptr (GString) out = g_string_new (NULL);
  g_auto (GStrv) lines = NULL;
  guint n_lines, first;

  g_strchomp (text);
  lines = g_strsplit (text, "\n", -1);
  n_lines = g_strv_length (lines);
  first = cut ? 1 : 0;
  if (n_lines > TAIL_LINES && n_lines - TAIL_LINES > first)
    first = n_lines - TAIL_LINES;
  for (guint i = first; i < n_lines && out->len < TAIL_BYTES; i++)
    {
      g_autofree char *line = clean_line (lines[i], TAIL_BYTES - out->len);

      g_string_append_printf (out, "%s%s", i > first ? "\n" : "", line);
    }
  if (out->len == 0)
    return NULL;
  return g_strndup (out->str, out->len);
}

static char *
find_tpm_line (const char *data, gsize length)
{
  g_autofree char *text = text_of (data, length);
  g_auto (GStrv) lines = g_strsplit (text, "\n", -1);

  for (guint i = 0; lines[i] != NULL; i++)
    {
      for (guint k = 0; k < G_N_ELEMENTS (tpm_signs); k++)
        {
          if (strstr (lines[i], tpm_signs[k]) != NULL)
            return clean_line (g_strstrip (lines[i]), TPM_LINE_BYTES);
        }
    }
  return NULL;
}

static void
read_head (const char *path, VmmConsoleReport *report)
{
  g_autoptr (GFile) file = g_file_new_for_path (path);
  g_autoptr (GFileInputStream) stream = g_file_read (file, NULL, NULL);
  g_autofree char *buffer = NULL;
  gsize length = 0;

  if (stream == NULL)
    return;
  buffer = g_malloc (HEAD_BYTES);
  if (g_input_stream_read_all (G_INPUT_STREAM (stream), buffer, HEAD_BYTES, &length, NULL, NULL))
    report->tpm_line = find_tpm_line (buffer, length);
}

/* In a worker: the disk may be slow, and nothing here touches an object of ours. */
static void
read_head_thread (GTask *task, gpointer source, gpointer task_data, GCancellable *cancellable)
{
  VmmConsoleReport *report = g_new0 (VmmConsoleReport, 1);

  read_head (task_data, report);
  g_task_return_pointer (task, report, (GDestroyNotify) vmm_console_report_free);
}

static void
head_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  g_autoptr (GTask) task = user_data;
  VmmConsoleReport *report = g_task_get_task_data (task);
  g_autoptr (VmmConsoleReport) head = g_task_propagate_pointer (G_TASK (result), NULL);

  if (head != NULL)
    report->tpm_line = g_steal_pointer (&head->tpm_line);
  g_task_return_boolean (task, TRUE);
}

static void
tail_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  g_autoptr (GTask) task = user_data;
  VmmMachine *self = g_task_get_source_object (task);
  VmmConsoleReport *report = g_task_get_task_data (task);
  gboolean cut = FALSE;
  g_autoptr (GError) error = NULL;
  g_autoptr (GBytes) bytes = vmm_file_read_tail_finish (result, &cut, &error);
  g_autoptr (GTask) head = NULL;

  if (error != NULL)
    vmm_log_debug ("console cannot be read", "vm", self->record->id, "error", error->message,
                   NULL);
  if (bytes != NULL)
    report->tail = last_lines (bytes, cut);
  head = g_task_new (NULL, NULL, head_cb, g_steal_pointer (&task));
  g_task_set_task_data (head, vmm_machine_dup_path (self, "console.log"), g_free);
  g_task_run_in_thread (head, read_head_thread);
}

void
vmm_machine_read_console_async (VmmMachine *self, GAsyncReadyCallback callback, gpointer user_data)
{
  g_autoptr (GTask) task = g_task_new (self, NULL, callback, user_data);
  g_autofree char *path = vmm_machine_dup_path (self, "console.log");

  g_task_set_source_tag (task, vmm_machine_read_console_async);
  g_task_set_task_data (task, g_new0 (VmmConsoleReport, 1),
                        (GDestroyNotify) vmm_console_report_free);
  vmm_file_read_tail_async (path, TAIL_BYTES, NULL, tail_cb, g_steal_pointer (&task));
}

VmmConsoleReport *
vmm_machine_read_console_finish (VmmMachine *self, GAsyncResult *result)
{
  VmmConsoleReport *report = g_task_get_task_data (G_TASK (result));
  VmmConsoleReport *taken = g_new0 (VmmConsoleReport, 1);

  taken->tail = g_steal_pointer (&report->tail);
  taken->tpm_line = g_steal_pointer (&report->tpm_line);
  return taken;
}

char *
vmm_console_report_compose (const VmmConsoleReport *self, const char *text, gboolean with_note,
                            gboolean with_tail)
{
  GString *out = g_string_new (NULL);

  if (with_note && self->tpm_line != NULL)
    g_string_append_printf (
        out, "vtpm not responding: the guest's TPM calls failed (console: %s); ", self->tpm_line);
  g_string_append (out, text);
  if (with_tail && self->tail != NULL)
    g_string_append_printf (out, "\nconsole:\n%s", self->tail);
  return g_string_free (out, FALSE);
}

/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The tail of a guest's console.
 *
 * It is the guest's text: arbitrary bytes of any amount. Only its end is read, and what leaves here
 * is valid UTF-8. */

#include "config.h"

#include "vmm-guest-access.h"

#include <string.h>

#include "vmm-file.h"

#define CONSOLE_FILE "console.log"
#define CONSOLE_LIMIT (64 * 1024)

/* The first line is dropped when the text was cut at its start. */
static char *
last_lines (const char *text, gsize length, gboolean cut, guint lines)
{
  const char *start = text;
  const char *end = text + length;

  if (cut)
    {
      const char *newline = memchr (text, '\n', length);

      start = newline != NULL ? newline + 1 : end;
    }
  while (end > start && (end[-1] == '\n' || end[-1] == '\r'))
    end--;

  for (const char *at = end; at > start; at--)
    {
      if (at[-1] == '\n' && --lines == 0)
        {
          start = at;
          break;
        }
    }
  return g_utf8_make_valid (start, end - start);
}

static void
console_read_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  g_autoptr (GTask) task = user_data;
  guint lines = GPOINTER_TO_UINT (g_task_get_task_data (task));
  g_autoptr (GBytes) bytes = NULL;
  gboolean cut = FALSE;
  GError *error = NULL;
  const char *text;
  gsize length;

  bytes = vmm_file_read_tail_finish (result, &cut, &error);
  if (error != NULL)
    {
      g_prefix_error (&error, "read console: ");
      g_task_return_error (task, error);
      return;
    }
  if (bytes == NULL)
    {
      g_task_return_pointer (task, g_strdup (""), g_free);
      return;
    }
  text = g_bytes_get_data (bytes, &length);
  g_task_return_pointer (task, last_lines (text, length, cut, lines), g_free);
}

void
vmm_guest_read_console_async (VmmMachine *machine, guint lines, GCancellable *cancellable,
                              GAsyncReadyCallback callback, gpointer user_data)
{
  GTask *task = g_task_new (machine, cancellable, callback, user_data);
  g_autofree char *path = vmm_machine_dup_path (machine, CONSOLE_FILE);

  g_task_set_source_tag (task, vmm_guest_read_console_async);
  g_task_set_task_data (task, GUINT_TO_POINTER (MAX (lines, 1)), NULL);
  vmm_file_read_tail_async (path, CONSOLE_LIMIT, cancellable, console_read_cb, task);
}

char *
vmm_guest_read_console_finish (VmmMachine *machine, GAsyncResult *result, GError **error)
{
  g_return_val_if_fail (g_task_is_valid (result, machine), NULL);

  return g_task_propagate_pointer (G_TASK (result), error);
}

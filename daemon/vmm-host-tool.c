/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The versions of outside programs.
 *
 * A program is asked for its version once, and again when the file on PATH is another one: nothing
 * is run in the steady state. An answer that did not come in time is remembered for a while only.
 */

#include "config.h"

#include "vmm-host-tool.h"

#include <string.h>

#include "vmm-host-probe.h"

void
vmm_host_tool_clear (VmmHostTool *self)
{
  vmm_host_file_clear (&self->file);
  g_clear_pointer (&self->version, g_free);
  g_clear_pointer (&self->answer, g_free);
  g_clear_pointer (&self->error, g_free);
  self->found = FALSE;
  self->ask_again_us = 0;
}

static gboolean
is_known (VmmHostTool *self, const VmmHostFile *file)
{
  if (!self->found && self->error == NULL)
    return FALSE;
  if (!vmm_host_file_equal (&self->file, file))
    return FALSE;
  return self->ask_again_us == 0 || g_get_monotonic_time () < self->ask_again_us;
}

static void
probed_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  g_autoptr (GTask) task = user_data;
  VmmHostTool *self = g_task_get_task_data (task);
  g_autoptr (GError) error = NULL;
  g_autofree char *output = vmm_host_probe_finish (result, &error);

  self->found = output != NULL;
  if (output != NULL && self->word != NULL)
    self->version = vmm_host_probe_parse_version (output, self->word);
  else if (output != NULL)
    self->answer = g_steal_pointer (&output);
  else
    self->error = g_strdup (error->message);
  if (g_error_matches (error, G_IO_ERROR, G_IO_ERROR_TIMED_OUT))
    self->ask_again_us = g_get_monotonic_time () + VMM_HOST_ASK_AGAIN_US;
  g_task_return_boolean (task, TRUE);
}

void
vmm_host_tool_update_async (VmmHostTool *self, const VmmHostFile *file, guint limit_ms,
                            GAsyncReadyCallback callback, gpointer user_data)
{
  g_autoptr (GTask) task = g_task_new (NULL, NULL, callback, user_data);
  g_autoptr (GPtrArray) argv = g_ptr_array_new ();

  g_task_set_source_tag (task, vmm_host_tool_update_async);
  if (is_known (self, file))
    {
      g_task_return_boolean (task, TRUE);
      return;
    }

  vmm_host_tool_clear (self);
  vmm_host_file_copy (file, &self->file);
  if (file->path == NULL)
    {
      self->error = g_strdup (VMM_HOST_NOT_ON_PATH);
      g_task_return_boolean (task, TRUE);
      return;
    }
  g_ptr_array_add (argv, file->path);
  for (guint i = 0; self->question != NULL && self->question[i] != NULL; i++)
    g_ptr_array_add (argv, (gpointer) self->question[i]);
  if (self->question == NULL)
    g_ptr_array_add (argv, (gpointer) "--version");
  g_ptr_array_add (argv, NULL);
  g_task_set_task_data (task, self, NULL);
  vmm_host_probe_async ((const char *const *) argv->pdata, limit_ms, NULL, probed_cb, g_steal_pointer (&task));
}

gboolean
vmm_host_tool_mentions (const VmmHostTool *self, const char *text)
{
  return self->answer == NULL || strstr (self->answer, text) != NULL;
}

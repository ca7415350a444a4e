/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The beginning of a conversation in lines.
 *
 * Until it is over nobody but the task has the client: with its answer, or its failure, the client
 * is handed over or goes. A client therefore holds a reference to itself while it settles this.
 */

#include "config.h"

#include "vmm-line-handshake.h"

#include "vmm-source.h"

static gboolean
cancelled_cb (GCancellable *cancellable, gpointer user_data)
{
  VmmLineHandshake *self = user_data;

  vmm_line_handshake_fail (
      self, g_error_new_literal (G_IO_ERROR, G_IO_ERROR_CANCELLED, "the handshake was cancelled"));
  return G_SOURCE_REMOVE;
}

void
vmm_line_handshake_begin (VmmLineHandshake *self, GObject *client, VmmLineChannel *channel,
                          GCancellable *cancellable, GAsyncReadyCallback callback,
                          gpointer user_data)
{
  self->channel = channel;
  self->task = g_task_new (NULL, NULL, callback, user_data);
  g_task_set_source_tag (self->task, vmm_line_handshake_begin);
  g_task_set_task_data (self->task, client, g_object_unref);
  self->cancelled = vmm_source_new_cancelled (cancellable, cancelled_cb, self);
}

GObject *
vmm_line_handshake_finish (GAsyncResult *result, GError **error)
{
  g_return_val_if_fail (g_async_result_is_tagged (result, vmm_line_handshake_begin), NULL);

  return g_task_propagate_pointer (G_TASK (result), error);
}

gboolean
vmm_line_handshake_is_pending (const VmmLineHandshake *self)
{
  return self->task != NULL;
}

static GTask *
settle (VmmLineHandshake *self)
{
  vmm_source_clear (&self->cancelled);
  return g_steal_pointer (&self->task);
}

void
vmm_line_handshake_succeed (VmmLineHandshake *self)
{
  g_autoptr (GTask) task = settle (self);

  g_task_return_pointer (task, g_object_ref (g_task_get_task_data (task)), g_object_unref);
}

void
vmm_line_handshake_fail (VmmLineHandshake *self, GError *error)
{
  g_autoptr (GTask) task = settle (self);

  vmm_line_channel_close (self->channel);
  if (task != NULL)
    g_task_return_error (task, error);
  else
    g_error_free (error);
}

/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Rewrites one file as a whole, with one write in flight at most.
 *
 * A thousand leases taken in one turn of the main loop are two writes, not a thousand, and still
 * nobody is answered before a content that shows his change is on disk. Each request joins the next
 * write to begin: the content is taken when that write starts. */

#include "config.h"

#include "vmm-coalesced-file.h"

#include "vmm-file.h"

struct _VmmCoalescedFile
{
  GObject parent_instance;

  char *path;
  guint mode;
  VmmCoalescedContent content;
  gpointer user_data;
  GPtrArray *waiting; /* of GTask: joined the next write */
  GPtrArray *writing; /* of GTask: their write is in flight; NULL when there is none */
};

G_DEFINE_FINAL_TYPE (VmmCoalescedFile, vmm_coalesced_file, G_TYPE_OBJECT)

static void start_write (VmmCoalescedFile *self);

static void
written_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  g_autoptr (VmmCoalescedFile) self = user_data;
  g_autoptr (GPtrArray) done = g_steal_pointer (&self->writing);
  g_autoptr (GError) error = NULL;
  gboolean written = vmm_file_replace_finish (result, &error);

  g_prefix_error (&error, "save %s: ", self->path);
  for (guint i = 0; i < done->len; i++)
    {
      GTask *task = g_ptr_array_index (done, i);

      if (written)
        g_task_return_boolean (task, TRUE);
      else
        g_task_return_error (task, g_error_copy (error));
    }
  if (self->writing == NULL && self->waiting->len > 0)
    start_write (self);
}

static void
start_write (VmmCoalescedFile *self)
{
  g_autoptr (GBytes) content = self->content (self->user_data);

  self->writing = g_steal_pointer (&self->waiting);
  self->waiting = g_ptr_array_new_with_free_func (g_object_unref);
  vmm_file_replace_async (self->path, content, self->mode, NULL, written_cb, g_object_ref (self));
}

static void
vmm_coalesced_file_finalize (GObject *object)
{
  VmmCoalescedFile *self = VMM_COALESCED_FILE (object);

  g_free (self->path);
  g_ptr_array_unref (self->waiting);
  G_OBJECT_CLASS (vmm_coalesced_file_parent_class)->finalize (object);
}

static void
vmm_coalesced_file_class_init (VmmCoalescedFileClass *klass)
{
  G_OBJECT_CLASS (klass)->finalize = vmm_coalesced_file_finalize;
}

static void
vmm_coalesced_file_init (VmmCoalescedFile *self)
{
  self->waiting = g_ptr_array_new_with_free_func (g_object_unref);
}

VmmCoalescedFile *
vmm_coalesced_file_new (const char *path, guint mode, VmmCoalescedContent content,
                        gpointer user_data)
{
  VmmCoalescedFile *self = g_object_new (VMM_TYPE_COALESCED_FILE, NULL);

  self->path = g_strdup (path);
  self->mode = mode;
  self->content = content;
  self->user_data = user_data;
  return self;
}

void
vmm_coalesced_file_save_async (VmmCoalescedFile *self, GAsyncReadyCallback callback,
                               gpointer user_data)
{
  GTask *task = g_task_new (self, NULL, callback, user_data);

  g_task_set_source_tag (task, vmm_coalesced_file_save_async);
  g_ptr_array_add (self->waiting, task);
  if (self->writing == NULL)
    start_write (self);
}

gboolean
vmm_coalesced_file_save_finish (VmmCoalescedFile *self, GAsyncResult *result, GError **error)
{
  g_return_val_if_fail (g_task_is_valid (result, self), FALSE);

  return g_task_propagate_boolean (G_TASK (result), error);
}

gboolean
vmm_coalesced_file_is_idle (VmmCoalescedFile *self)
{
  return self->writing == NULL;
}

/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The state of a vTPM: whether it is whole, and a copy that was.
 *
 * swtpm replaces its file by renaming, but does not wait for the disk; after a power cut the new name
 * may lead to nothing or to a part. The header in front of it says how long all of it is. The copy is
 * taken when swtpm has ended and when a quote was verified, and is only ever replaced by a whole one.
 */

#include "config.h"

#include "vmm-tpm-state.h"

#include <errno.h>
#include <string.h>

#include "interfaces/vmm-error.h"
#include "vmm-file.h"

#define STATE_NAME "tpm2-00.permall"
#define STATE_MAX (1024 * 1024)
/* swtpm's blob header: version, oldest version that reads it, size of the header (16 bits), flags
 * (16 bits), size of all (32 bits); most significant byte first. */
#define HEADER_SIZE 10
#define OFFSET_HEADER_SIZE 2
#define OFFSET_TOTAL 6

typedef struct
{
  char *directory;
  char *good_directory;
} Places;

static void
places_free (gpointer data)
{
  Places *places = data;

  g_free (places->directory);
  g_free (places->good_directory);
  g_free (places);
}

gboolean
vmm_tpm_state_is_whole (const guint8 *data, gsize size)
{
  guint32 total;
  guint16 header;

  if (size < HEADER_SIZE)
    return FALSE;
  memcpy (&header, data + OFFSET_HEADER_SIZE, sizeof header);
  memcpy (&total, data + OFFSET_TOTAL, sizeof total);
  header = GUINT16_FROM_BE (header);
  total = GUINT32_FROM_BE (total);
  return data[0] >= 1 && data[1] >= 1 && data[1] <= data[0] && header >= HEADER_SIZE
         && header < total && total == size;
}

/* A whole state, or NULL; *there says whether there is anything. */
static GBytes *
read_state (const char *directory, gboolean *there, GError **error)
{
  g_autofree char *path = g_build_filename (directory, STATE_NAME, NULL);
  g_autoptr (GError) problem = NULL;
  g_autoptr (GBytes) content = vmm_file_read (path, STATE_MAX, &problem);
  gconstpointer data;
  gsize size;

  *there = !g_error_matches (problem, G_IO_ERROR, G_IO_ERROR_NOT_FOUND);
  if (content == NULL)
    {
      g_propagate_error (error, g_steal_pointer (&problem));
      return NULL;
    }
  data = g_bytes_get_data (content, &size);
  if (size > 0 && vmm_tpm_state_is_whole (data, size))
    return g_steal_pointer (&content);
  vmm_set_error (error, VMM_ERROR_INTERNAL, "%s is torn: %" G_GSIZE_FORMAT " bytes", path, size);
  return NULL;
}

static gboolean
write_state (const char *directory, GBytes *content, GError **error)
{
  g_autofree char *path = g_build_filename (directory, STATE_NAME, NULL);

  return vmm_file_make_directory (directory, 0700, error)
         && vmm_file_replace (path, g_bytes_get_data (content, NULL), g_bytes_get_size (content),
                              0600, error);
}

static void
mend_in_thread (GTask *task, gpointer source, gpointer task_data, GCancellable *cancellable)
{
  const Places *places = task_data;
  g_autoptr (GError) error = NULL;
  g_autoptr (GBytes) state = NULL;
  g_autoptr (GBytes) copy = NULL;
  gboolean there;
  gboolean copy_there;

  state = read_state (places->directory, &there, &error);
  if (state != NULL)
    {
      g_task_return_int (task, VMM_TPM_STATE_GOOD);
      return;
    }
  copy = read_state (places->good_directory, &copy_there, NULL);
  if (copy == NULL && !there && !copy_there)
    {
      g_task_return_int (task, VMM_TPM_STATE_NONE);
      return;
    }
  if (copy == NULL)
    {
      g_task_return_error (task,
                           vmm_error_new (VMM_ERROR_INTERNAL,
                                          "the vtpm's state is lost and there is no good copy: %s; "
                                          "what was sealed to it cannot be opened any more",
                                          error->message));
      return;
    }
  g_clear_error (&error);
  if (write_state (places->directory, copy, &error))
    g_task_return_int (task, VMM_TPM_STATE_RESTORED);
  else
    g_task_return_error (task, g_steal_pointer (&error));
}

static void
keep_in_thread (GTask *task, gpointer source, gpointer task_data, GCancellable *cancellable)
{
  const Places *places = task_data;
  g_autoptr (GError) error = NULL;
  g_autoptr (GBytes) state = NULL;
  g_autoptr (GBytes) copy = NULL;
  gboolean there;
  gboolean copy_there;

  state = read_state (places->directory, &there, &error);
  if (state == NULL && !there)
    {
      g_task_return_boolean (task, TRUE);
      return;
    }
  copy = state != NULL ? read_state (places->good_directory, &copy_there, NULL) : NULL;
  if (state != NULL
      && ((copy != NULL && g_bytes_equal (state, copy))
          || write_state (places->good_directory, state, &error)))
    g_task_return_boolean (task, TRUE);
  else
    g_task_return_error (task, g_steal_pointer (&error));
}

static void
run (const char *directory, const char *good_directory, GTaskThreadFunc function, gpointer tag,
     GAsyncReadyCallback callback, gpointer user_data)
{
  g_autoptr (GTask) task = g_task_new (NULL, NULL, callback, user_data);
  Places *places = g_new0 (Places, 1);

  places->directory = g_strdup (directory);
  places->good_directory = g_strdup (good_directory);
  g_task_set_source_tag (task, tag);
  g_task_set_task_data (task, places, places_free);
  g_task_run_in_thread (task, function);
}

void
vmm_tpm_state_mend_async (const char *directory, const char *good_directory,
                          GAsyncReadyCallback callback, gpointer user_data)
{
  run (directory, good_directory, mend_in_thread, vmm_tpm_state_mend_async, callback, user_data);
}

gboolean
vmm_tpm_state_mend_finish (GAsyncResult *result, VmmTpmState *state, GError **error)
{
  gssize found = g_task_propagate_int (G_TASK (result), error);

  if (found < 0)
    return FALSE;
  *state = (VmmTpmState) found;
  return TRUE;
}

void
vmm_tpm_state_keep_async (const char *directory, const char *good_directory,
                          GAsyncReadyCallback callback, gpointer user_data)
{
  run (directory, good_directory, keep_in_thread, vmm_tpm_state_keep_async, callback, user_data);
}

gboolean
vmm_tpm_state_keep_finish (GAsyncResult *result, GError **error)
{
  return g_task_propagate_boolean (G_TASK (result), error);
}

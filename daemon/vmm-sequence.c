/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Runs a list of steps one after the other, and undoes them in reverse when one fails.
 *
 * What is done and how it is undone is in the lists (the machine's steps); this file only keeps the
 * order and the promises: the failed step is undone too, since it may have got half-way, undo runs to
 * its end without a cancellable, and an undo that fails is a log line and never hides the first
 * error. A tear-down runs every step whatever happens.
 */

#include "config.h"

#include "vmm-sequence.h"

#include "interfaces/vmm.h"
#include "vmm-log.h"

typedef struct
{
  char *name;
  const VmmStep *steps;
  guint n_steps;
  gpointer subject;
  gboolean keep_going;
  guint current;
  GError *error; /* why it is being undone */
} Sequence;

static VmmSequenceHook sequence_hook;
static gpointer sequence_hook_data;

static void run_step (GTask *task);
static void undo_step (GTask *task);

static void
sequence_free (Sequence *sequence)
{
  g_clear_error (&sequence->error);
  g_free (sequence->name);
  g_free (sequence);
}

void
vmm_sequence_set_hook (VmmSequenceHook hook, gpointer user_data)
{
  sequence_hook = hook;
  sequence_hook_data = user_data;
}

static GError *
call_hook (Sequence *sequence, VmmSequenceMoment moment)
{
  if (sequence_hook == NULL)
    return NULL;
  return sequence_hook (sequence->subject, sequence->name,
                        sequence->steps[sequence->current].name, moment, sequence_hook_data);
}

static void
log_failure (Sequence *sequence, const char *message, const GError *error)
{
  vmm_log_warning (message, "operation", sequence->name, "step",
                   sequence->steps[sequence->current].name, "error", error->message, NULL);
}

/* Goes on to the step before; after the first one the sequence answers with what went wrong. */
static void
undo_next (GTask *task)
{
  Sequence *sequence = g_task_get_task_data (task);

  if (sequence->current == 0)
    {
      g_task_return_error (task, g_steal_pointer (&sequence->error));
      g_object_unref (task);
      return;
    }
  sequence->current--;
  undo_step (task);
}

static void
undone_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  GTask *task = user_data;
  Sequence *sequence = g_task_get_task_data (task);
  g_autoptr (GError) error = NULL;

  if (!sequence->steps[sequence->current].undo_finish (sequence->subject, result, &error))
    log_failure (sequence, "undoing a step failed", error);
  undo_next (task);
}

static void
undo_step (GTask *task)
{
  Sequence *sequence = g_task_get_task_data (task);
  const VmmStep *step = &sequence->steps[sequence->current];

  if (step->undo == NULL)
    {
      undo_next (task);
      return;
    }
  call_hook (sequence, VMM_SEQUENCE_UNDO);
  step->undo (sequence->subject, NULL, undone_cb, task);
}

/* Takes error; NULL for a step that has run well. */
static void
step_ended (GTask *task, GError *error)
{
  Sequence *sequence = g_task_get_task_data (task);

  if (error != NULL && !sequence->keep_going)
    {
      sequence->error = error;
      undo_step (task);
      return;
    }
  if (error != NULL && !g_error_matches (error, VMM_ERROR, VMM_ERROR_NOT_FOUND))
    log_failure (sequence, "a step of a tear-down failed", error);
  g_clear_error (&error);
  sequence->current++;
  run_step (task);
}

static void
done_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  GTask *task = user_data;
  Sequence *sequence = g_task_get_task_data (task);
  GError *error = NULL;

  if (sequence->steps[sequence->current].finish (sequence->subject, result, &error))
    error = call_hook (sequence, VMM_SEQUENCE_AFTER);
  step_ended (task, error);
}

/* Consumes the reference to the task once it has answered. */
static void
run_step (GTask *task)
{
  Sequence *sequence = g_task_get_task_data (task);
  GCancellable *cancellable = g_task_get_cancellable (task);
  GError *error;

  if (!sequence->keep_going && g_cancellable_set_error_if_cancelled (cancellable, &sequence->error))
    {
      undo_next (task);
      return;
    }
  if (sequence->current == sequence->n_steps)
    {
      g_task_return_boolean (task, TRUE);
      g_object_unref (task);
      return;
    }
  error = call_hook (sequence, VMM_SEQUENCE_BEFORE);
  if (error != NULL)
    {
      step_ended (task, error);
      return;
    }
  sequence->steps[sequence->current].start (sequence->subject,
                                            sequence->keep_going ? NULL : cancellable, done_cb,
                                            task);
}

void
vmm_sequence_run_async (const char *name, const VmmStep *steps, guint n_steps, gpointer subject,
                        gboolean keep_going, GCancellable *cancellable,
                        GAsyncReadyCallback callback, gpointer user_data)
{
  GTask *task = g_task_new (NULL, cancellable, callback, user_data);
  Sequence *sequence = g_new0 (Sequence, 1);

  g_task_set_source_tag (task, vmm_sequence_run_async);
  /* A cancel is answered when all is undone, not before. */
  g_task_set_check_cancellable (task, FALSE);
  sequence->name = g_strdup (name);
  sequence->steps = steps;
  sequence->n_steps = n_steps;
  sequence->subject = subject;
  sequence->keep_going = keep_going;
  g_task_set_task_data (task, sequence, (GDestroyNotify) sequence_free);
  run_step (task);
}

gboolean
vmm_sequence_run_finish (GAsyncResult *result, GError **error)
{
  g_return_val_if_fail (g_task_is_valid (result, NULL), FALSE);
  return g_task_propagate_boolean (G_TASK (result), error);
}

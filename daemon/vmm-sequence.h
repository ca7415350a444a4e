/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <gio/gio.h>

G_BEGIN_DECLS

typedef void (*VmmStepStart) (gpointer subject, GCancellable *cancellable,
                              GAsyncReadyCallback callback, gpointer user_data);
typedef gboolean (*VmmStepFinish) (gpointer subject, GAsyncResult *result, GError **error);

/* One step; undo may be NULL when there is nothing to undo. */
typedef struct
{
  const char *name;
  VmmStepStart start;
  VmmStepFinish finish;
  VmmStepStart undo;
  VmmStepFinish undo_finish;
} VmmStep;

typedef enum
{
  VMM_SEQUENCE_BEFORE, /* the step is about to run */
  VMM_SEQUENCE_AFTER,  /* it has run well */
  VMM_SEQUENCE_UNDO,   /* it is about to be undone */
} VmmSequenceMoment;

/* Called at each moment of each step: the place where tests kill or fail. An error that it returns
 * before or after a step is the step's own failure. */
typedef GError *(*VmmSequenceHook) (gpointer subject, const char *sequence, const char *step,
                                    VmmSequenceMoment moment, gpointer user_data);
void vmm_sequence_set_hook (VmmSequenceHook hook, gpointer user_data);

/* Runs the steps in order. When one fails or the cancellable is triggered, the completed ones (and
 * the failed one, whose undo must cope with half) are undone in reverse, without a cancellable;
 * undo failures are logged, never returned. With keep_going (tear-down) failures are logged, the
 * rest still runs and the sequence succeeds. */
void vmm_sequence_run_async (const char *name, const VmmStep *steps, guint n_steps,
                             gpointer subject, gboolean keep_going, GCancellable *cancellable,
                             GAsyncReadyCallback callback, gpointer user_data);
gboolean vmm_sequence_run_finish (GAsyncResult *result, GError **error);

G_END_DECLS

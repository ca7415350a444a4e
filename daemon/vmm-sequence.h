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

/* Called before each step and each undo with its name: the place where tests kill or fail. */
typedef void (*VmmSequenceHook) (gpointer subject, const char *sequence, const char *step,
                                 gboolean undo, gpointer user_data);
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

/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Steps run in order, and are undone in reverse whatever fails. */

#include "config.h"

#include "interfaces/vmm-error.h"
#include "test-await.h"
#include "vmm-sequence.h"

typedef struct
{
  GString *log;
  const char *fail;      /* the step that fails */
  const char *fail_undo; /* the step whose undo fails */
  const char *cancel_in; /* the step during which the sequence is cancelled */
  GCancellable *cancellable;
} Subject;

static void
act (Subject *subject, const char *name, gboolean undo, GCancellable *cancellable,
     GAsyncReadyCallback callback, gpointer user_data)
{
  g_autoptr (GTask) task = g_task_new (NULL, cancellable, callback, user_data);
  const char *fails = undo ? subject->fail_undo : subject->fail;

  g_string_append_printf (subject->log, "%s%s ", undo ? "-" : "", name);
  /* Undo is never cut short. */
  g_assert_true (!undo || cancellable == NULL);
  if (!undo && g_strcmp0 (subject->cancel_in, name) == 0)
    g_cancellable_cancel (subject->cancellable);
  if (g_task_return_error_if_cancelled (task))
    return;
  if (g_strcmp0 (fails, name) == 0)
    g_task_return_new_error (task, VMM_ERROR, VMM_ERROR_INTERNAL, "%s failed", name);
  else
    g_task_return_boolean (task, TRUE);
}

static gboolean
finish (gpointer subject, GAsyncResult *result, GError **error)
{
  return g_task_propagate_boolean (G_TASK (result), error);
}

#define STEP(name)                                                                                 \
  static void name##_async (gpointer subject, GCancellable *cancellable,                           \
                            GAsyncReadyCallback callback, gpointer user_data)                      \
  {                                                                                                \
    act (subject, #name, FALSE, cancellable, callback, user_data);                                 \
  }                                                                                                \
  static void name##_undo_async (gpointer subject, GCancellable *cancellable,                      \
                                 GAsyncReadyCallback callback, gpointer user_data)                 \
  {                                                                                                \
    act (subject, #name, TRUE, cancellable, callback, user_data);                                  \
  }

STEP (one)
STEP (two)
STEP (three)

static const VmmStep steps[] = {
  { "one", one_async, finish, one_undo_async, finish },
  { "two", two_async, finish, NULL, NULL },
  { "three", three_async, finish, three_undo_async, finish },
};

static const VmmStep undoable[] = {
  { "one", one_async, finish, one_undo_async, finish },
  { "two", two_async, finish, two_undo_async, finish },
  { "three", three_async, finish, three_undo_async, finish },
};

static char *
run (Subject *subject, const VmmStep *list, guint n_steps, gboolean keep_going, GError **error)
{
  TestAwait await = TEST_AWAIT_INIT;
  g_autoptr (GAsyncResult) result = NULL;
  g_autoptr (GCancellable) cancellable = g_cancellable_new ();

  subject->log = g_string_new (NULL);
  subject->cancellable = cancellable;
  vmm_sequence_run_async ("test", list, n_steps, subject, keep_going, cancellable, test_await_cb,
                          &await);
  result = test_await (&await);
  g_assert_cmpint (vmm_sequence_run_finish (result, error), ==, *error == NULL);
  return g_string_free (g_steal_pointer (&subject->log), FALSE);
}

static void
test_all_steps (void)
{
  Subject subject = { NULL };
  g_autoptr (GError) error = NULL;
  g_autofree char *log = run (&subject, steps, 3, FALSE, &error);

  g_assert_no_error (error);
  g_assert_cmpstr (log, ==, "one two three ");
}

static void
test_no_steps (void)
{
  Subject subject = { NULL };
  g_autoptr (GError) error = NULL;
  g_autofree char *log = run (&subject, steps, 0, FALSE, &error);

  g_assert_no_error (error);
  g_assert_cmpstr (log, ==, "");
}

static void
test_undo (void)
{
  static const struct
  {
    const char *fail;
    const char *log;
    const char *undoable_log;
  } rows[] = {
    { "one", "one -one ", "one -one " },
    { "two", "one two -one ", "one two -two -one " },
    { "three", "one two three -three -one ", "one two three -three -two -one " },
  };

  for (guint i = 0; i < G_N_ELEMENTS (rows); i++)
    {
      Subject subject = { NULL };
      g_autoptr (GError) error = NULL;
      g_autoptr (GError) again = NULL;
      g_autofree char *log = NULL;
      g_autofree char *undoable_log = NULL;

      subject.fail = rows[i].fail;
      log = run (&subject, steps, 3, FALSE, &error);
      g_assert_error (error, VMM_ERROR, VMM_ERROR_INTERNAL);
      g_assert_true (g_str_has_prefix (error->message, rows[i].fail));
      g_assert_cmpstr (log, ==, rows[i].log);
      undoable_log = run (&subject, undoable, 3, FALSE, &again);
      g_assert_cmpstr (undoable_log, ==, rows[i].undoable_log);
    }
}

static void
test_undo_fails (void)
{
  Subject subject = { NULL };
  g_autoptr (GError) error = NULL;
  g_autofree char *log = NULL;

  subject.fail = "three";
  subject.fail_undo = "two";
  log = run (&subject, undoable, 3, FALSE, &error);
  /* The first error is the one that counts, and the rest is undone all the same. */
  g_assert_error (error, VMM_ERROR, VMM_ERROR_INTERNAL);
  g_assert_cmpstr (error->message, ==, "three failed");
  g_assert_cmpstr (log, ==, "one two three -three -two -one ");
}

static void
test_cancel (void)
{
  static const struct
  {
    const char *in;
    const char *log;
  } rows[] = {
    { "one", "one -one " },
    { "two", "one two -two -one " },
    { "three", "one two three -three -two -one " },
  };

  for (guint i = 0; i < G_N_ELEMENTS (rows); i++)
    {
      Subject subject = { NULL };
      g_autoptr (GError) error = NULL;
      g_autofree char *log = NULL;

      subject.cancel_in = rows[i].in;
      log = run (&subject, undoable, 3, FALSE, &error);
      g_assert_error (error, G_IO_ERROR, G_IO_ERROR_CANCELLED);
      g_assert_cmpstr (log, ==, rows[i].log);
    }
}

static void
test_keep_going (void)
{
  Subject subject = { NULL };
  g_autoptr (GError) error = NULL;
  g_autofree char *log = NULL;

  subject.fail = "two";
  subject.cancel_in = "one";
  log = run (&subject, undoable, 3, TRUE, &error);
  g_assert_no_error (error);
  g_assert_cmpstr (log, ==, "one two three ");
}

typedef struct
{
  GString *calls;
  const char *fail;
  VmmSequenceMoment moment;
} Hook;

static GError *
hook_cb (gpointer subject, const char *sequence, const char *step, VmmSequenceMoment moment,
         gpointer user_data)
{
  static const char *const marks[] = { "", "+", "-" };
  Hook *hook = user_data;

  g_string_append_printf (hook->calls, "%s:%s%s ", sequence, marks[moment], step);
  if (moment == hook->moment && g_strcmp0 (hook->fail, step) == 0)
    return vmm_error_new (VMM_ERROR_INTERNAL, "from the hook");
  return NULL;
}

static void
test_hook (void)
{
  static const struct
  {
    VmmSequenceMoment moment;
    const char *calls;
    const char *log;
  } rows[] = {
    { VMM_SEQUENCE_BEFORE, "test:one test:+one test:two test:-two test:-one ",
      "one -two -one " },
    { VMM_SEQUENCE_AFTER, "test:one test:+one test:two test:+two test:-two test:-one ",
      "one two -two -one " },
  };

  for (guint i = 0; i < G_N_ELEMENTS (rows); i++)
    {
      Subject subject = { NULL };
      g_autoptr (GString) calls = g_string_new (NULL);
      Hook hook = { calls, "two", rows[i].moment };
      g_autoptr (GError) error = NULL;
      g_autofree char *log = NULL;

      vmm_sequence_set_hook (hook_cb, &hook);
      log = run (&subject, undoable, 3, FALSE, &error);
      vmm_sequence_set_hook (NULL, NULL);
      g_assert_error (error, VMM_ERROR, VMM_ERROR_INTERNAL);
      g_assert_cmpstr (calls->str, ==, rows[i].calls);
      g_assert_cmpstr (log, ==, rows[i].log);
    }
}

int
main (int argc, char **argv)
{
  g_test_init (&argc, &argv, G_TEST_OPTION_ISOLATE_DIRS, NULL);
  g_test_add_func ("/sequence/all-steps", test_all_steps);
  g_test_add_func ("/sequence/no-steps", test_no_steps);
  g_test_add_func ("/sequence/undo", test_undo);
  g_test_add_func ("/sequence/undo-fails", test_undo_fails);
  g_test_add_func ("/sequence/cancel", test_cancel);
  g_test_add_func ("/sequence/keep-going", test_keep_going);
  g_test_add_func ("/sequence/hook", test_hook);
  return g_test_run ();
}

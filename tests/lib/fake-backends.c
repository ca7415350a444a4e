/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The control block of the fake backends: plans, the log of calls, and calls that hang. What each
 * backend holds is in its own file. */

#include "fake-backends-private.h"

#include <string.h>

#include "fake-peers.h"

typedef struct
{
  char *call;
  TestFakeMode mode;
  VmmError code;
  char *message;
  gboolean once;
} Plan;

typedef struct
{
  char *call;
  char *full; /* with the subject */
  GTask *task;
  TestFakeAction action;
  GSource *cancelled;
} Hanging;

TestFakes test_fakes = { .verifies = TRUE };

static GPtrArray *plans;
static GPtrArray *calls;
static GPtrArray *hanging;

static void
plan_free (gpointer data)
{
  Plan *plan = data;

  g_free (plan->call);
  g_free (plan->message);
  g_free (plan);
}

static void
hanging_free (gpointer data)
{
  Hanging *hang = data;

  if (hang->cancelled != NULL)
    {
      g_source_destroy (hang->cancelled);
      g_source_unref (hang->cancelled);
    }
  g_object_unref (hang->task);
  g_free (hang->call);
  g_free (hang->full);
  g_free (hang);
}

static void
ensure (void)
{
  if (plans != NULL)
    return;
  plans = g_ptr_array_new_with_free_func (plan_free);
  calls = g_ptr_array_new_with_free_func (g_free);
  hanging = g_ptr_array_new_with_free_func (hanging_free);
}

static void
implement (const char *point, GType required, GType type)
{
  g_io_extension_point_set_required_type (g_io_extension_point_register (point), required);
  g_io_extension_point_implement (point, type, TEST_FAKE_NAME, TEST_FAKE_PRIORITY);
}

void
test_fakes_register (void)
{
  ensure ();
  implement (VMM_LAUNCHER_EXTENSION_POINT, VMM_TYPE_LAUNCHER, test_fake_launcher_get_type ());
  implement (VMM_NETWORK_BACKEND_EXTENSION_POINT, VMM_TYPE_NETWORK_BACKEND,
             test_fake_network_backend_get_type ());
  implement (VMM_STORAGE_BACKEND_EXTENSION_POINT, VMM_TYPE_STORAGE_BACKEND,
             test_fake_storage_get_type ());
  implement (VMM_ATTESTOR_EXTENSION_POINT, VMM_TYPE_ATTESTOR, test_fake_attestor_get_type ());
}

void
test_fakes_reset (void)
{
  ensure ();
  g_ptr_array_set_size (plans, 0);
  while (hanging->len > 0)
    {
      Hanging *hang = g_ptr_array_steal_index (hanging, 0);

      g_task_return_new_error (hang->task, G_IO_ERROR, G_IO_ERROR_CANCELLED, "Fakes were reset");
      hanging_free (hang);
    }
  test_fake_launcher_reset ();
  test_fake_network_reset ();
  test_fake_storage_reset ();
  test_fake_attestor_reset ();
  test_peer_forget ();
  test_peer_configure (NULL);
  g_ptr_array_set_size (calls, 0);
  memset (&test_fakes, 0, sizeof test_fakes);
  test_fakes.verifies = TRUE;
}

static Plan *
find_plan (const char *call)
{
  for (guint i = 0; i < plans->len; i++)
    {
      Plan *plan = g_ptr_array_index (plans, i);

      if (g_str_equal (plan->call, call))
        return plan;
    }
  return NULL;
}

static void
set_plan (const char *call, TestFakeMode mode, VmmError code, const char *message, gboolean once)
{
  Plan *plan = g_new0 (Plan, 1);

  test_fakes_clear (call);
  plan->call = g_strdup (call);
  plan->mode = mode;
  plan->code = code;
  plan->message = g_strdup (message);
  plan->once = once;
  g_ptr_array_add (plans, plan);
}

void
test_fakes_fail (const char *call, VmmError code, const char *message)
{
  set_plan (call, TEST_FAKE_FAIL, code, message, FALSE);
}

void
test_fakes_fail_once (const char *call, VmmError code, const char *message)
{
  set_plan (call, TEST_FAKE_FAIL, code, message, TRUE);
}

void
test_fakes_hang (const char *call)
{
  set_plan (call, TEST_FAKE_HANG, VMM_ERROR_INTERNAL, NULL, FALSE);
}

void
test_fakes_lie (const char *call)
{
  set_plan (call, TEST_FAKE_LIE, VMM_ERROR_INTERNAL, NULL, FALSE);
}

void
test_fakes_clear (const char *call)
{
  Plan *plan;

  ensure ();
  plan = find_plan (call);
  if (plan != NULL)
    g_ptr_array_remove (plans, plan);
}

/* From here on it has an effect, and that must be told. */
static void
act (GTask *task, TestFakeAction action, gboolean lie)
{
  g_task_set_check_cancellable (task, FALSE);
  action (task, lie);
}

void
test_fakes_release (const char *call)
{
  g_autoptr (GPtrArray) released = g_ptr_array_new_with_free_func (hanging_free);

  test_fakes_clear (call);
  for (guint i = 0; i < hanging->len;)
    {
      Hanging *hang = g_ptr_array_index (hanging, i);

      if (g_str_equal (hang->call, call) || g_str_equal (hang->full, call))
        g_ptr_array_add (released, g_ptr_array_steal_index (hanging, i));
      else
        i++;
    }
  for (guint i = 0; i < released->len; i++)
    {
      Hanging *hang = g_ptr_array_index (released, i);

      act (hang->task, hang->action, FALSE);
    }
}

guint
test_fakes_get_n_hanging (void)
{
  ensure ();
  return hanging->len;
}

char *
test_fakes_dup_log (void)
{
  GString *text = g_string_new (NULL);

  ensure ();
  for (guint i = 0; i < calls->len; i++)
    g_string_append_printf (text, "%s\n", (const char *) g_ptr_array_index (calls, i));
  return g_string_free (text, FALSE);
}

guint
test_fakes_count (const char *line)
{
  guint n = 0;

  ensure ();
  for (guint i = 0; i < calls->len; i++)
    if (g_str_equal (g_ptr_array_index (calls, i), line))
      n++;
  return n;
}

void
test_fakes_clear_log (void)
{
  ensure ();
  g_ptr_array_set_size (calls, 0);
}

void
test_fake_log (const char *call, const char *subject)
{
  ensure ();
  g_ptr_array_add (calls, g_strdup_printf ("%s %s", call, subject));
}

TestFakeMode
test_fake_check (const char *call, const char *subject, GError **error)
{
  g_autofree char *full = g_strdup_printf ("%s:%s", call, subject);
  TestFakeMode mode;
  Plan *plan;

  ensure ();
  plan = find_plan (full);
  if (plan == NULL)
    plan = find_plan (call);
  if (plan == NULL)
    return TEST_FAKE_OK;

  mode = plan->mode;
  if (mode == TEST_FAKE_FAIL)
    vmm_set_error (error, plan->code, "%s", plan->message);
  if (plan->once)
    g_ptr_array_remove (plans, plan);
  return mode;
}

static gboolean
cancelled_cb (GCancellable *cancellable, gpointer user_data)
{
  Hanging *hang = user_data;
  guint index;

  if (g_ptr_array_find (hanging, hang, &index))
    {
      g_ptr_array_steal_index (hanging, index);
      g_task_return_error_if_cancelled (hang->task);
      hanging_free (hang);
    }
  return G_SOURCE_REMOVE;
}

static void
hang_task (const char *call, const char *subject, GTask *task, TestFakeAction action)
{
  GCancellable *cancellable = g_task_get_cancellable (task);
  Hanging *hang = g_new0 (Hanging, 1);

  hang->call = g_strdup (call);
  hang->full = g_strdup_printf ("%s:%s", call, subject);
  hang->task = g_object_ref (task);
  hang->action = action;
  g_ptr_array_add (hanging, hang);
  if (cancellable != NULL)
    {
      hang->cancelled = g_cancellable_source_new (cancellable);
      g_source_set_callback (hang->cancelled, G_SOURCE_FUNC (cancelled_cb), hang, NULL);
      g_source_attach (hang->cancelled, NULL);
    }
}

void
test_fake_run (const char *call, const char *subject, GTask *task, TestFakeAction action)
{
  g_autoptr (GError) error = NULL;

  test_fake_log (call, subject);
  switch (test_fake_check (call, subject, &error))
    {
    case TEST_FAKE_FAIL:
      g_task_return_error (task, g_steal_pointer (&error));
      break;
    case TEST_FAKE_HANG:
      hang_task (call, subject, task, action);
      break;
    case TEST_FAKE_LIE:
      act (task, action, TRUE);
      break;
    case TEST_FAKE_OK:
      /* What is cancelled before it begins takes no effect. */
      if (!g_task_return_error_if_cancelled (task))
        act (task, action, FALSE);
      break;
    default:
      g_assert_not_reached ();
    }
}

gboolean
test_fake_is_available (guint kind, char **reason)
{
  const char *why = test_fakes.unavailable[kind];

  if (why != NULL && reason != NULL)
    *reason = g_strdup (why);
  return why == NULL;
}

static void
set_unavailable (const char *kind)
{
  const char *const kinds[] = { "launcher", "network", "storage", "attestor" };

  for (guint i = 0; i < G_N_ELEMENTS (kinds); i++)
    if (g_strcmp0 (kinds[i], kind) == 0)
      test_fakes.unavailable[i] = "told so";
}

static void
set_lasting (const char *value)
{
  test_fakes.has_lasting = TRUE;
  test_fakes.lasting_ends = g_strcmp0 (value, "no") == 0;
  test_fakes.lasting_all = g_strcmp0 (value, "all") == 0;
}

/* Whether the item was ours. */
static gboolean
configure_item (const char *key, const char *value)
{
  if (g_str_equal (key, "fail") && value != NULL)
    test_fakes_fail (value, VMM_ERROR_INTERNAL, "told to fail");
  else if (g_str_equal (key, "hang") && value != NULL)
    test_fakes_hang (value);
  else if (g_str_equal (key, "lie") && value != NULL)
    test_fakes_lie (value);
  else if (g_str_equal (key, "unavailable"))
    set_unavailable (value);
  else if (g_str_equal (key, "outlives"))
    test_fakes.outlives_daemon = TRUE;
  else if (g_str_equal (key, "lasting"))
    set_lasting (value);
  else if (g_str_equal (key, "unverified"))
    test_fakes.verifies = FALSE;
  else
    return FALSE;
  return TRUE;
}

void
test_fakes_configure_from_text (const char *text)
{
  g_auto (GStrv) items = g_strsplit (text != NULL ? text : "", ",", -1);
  g_autoptr (GString) rest = g_string_new (NULL);

  ensure ();
  test_fakes.peers = TRUE;
  for (guint i = 0; items[i] != NULL; i++)
    {
      g_auto (GStrv) pair = g_strsplit (g_strstrip (items[i]), "=", 2);

      if (pair[0] != NULL && !configure_item (pair[0], pair[1]))
        g_string_append_printf (rest, "%s%s", rest->len > 0 ? "," : "", items[i]);
    }
  test_peer_configure (rest->str);
}

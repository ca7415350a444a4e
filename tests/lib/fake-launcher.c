/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The fake launcher. Its processes are entries of a table that lives as long as the test program,
 * while the VmmProcess objects come and go with the daemons of the test. */

#include "fake-backends-private.h"

#include <signal.h>
#include <string.h>

#include "fake-peers.h"

/* Above every process id that Linux gives out. */
#define FIRST_PID 5000000

typedef struct
{
  gatomicrefcount refs;
  VmmProcessSpec *spec;
  VmmProcessHandle *handle;
  gboolean ended;
  gboolean lost;
  VmmExitStatus status;
  GWeakRef watcher; /* TestFakeProcess */
  TestPeer *peer;
} Entry;

#define TEST_TYPE_FAKE_PROCESS (test_fake_process_get_type ())
G_DECLARE_FINAL_TYPE (TestFakeProcess, test_fake_process, TEST, FAKE_PROCESS, VmmProcess)

struct _TestFakeProcess
{
  VmmProcess parent_instance;

  Entry *entry;
  gboolean stopping;
};

G_DEFINE_FINAL_TYPE (TestFakeProcess, test_fake_process, VMM_TYPE_PROCESS)

struct _TestFakeLauncher
{
  GObject parent_instance;
};

static void launcher_backend_init (VmmBackendInterface *iface);
static void launcher_init (VmmLauncherInterface *iface);

G_DEFINE_FINAL_TYPE_WITH_CODE (TestFakeLauncher, test_fake_launcher, G_TYPE_OBJECT,
                               G_IMPLEMENT_INTERFACE (VMM_TYPE_BACKEND, launcher_backend_init)
                                   G_IMPLEMENT_INTERFACE (VMM_TYPE_LAUNCHER, launcher_init))

static GPtrArray *entries;
static gint64 last_pid = FIRST_PID;

static void
free_peer (Entry *entry)
{
  g_clear_pointer (&entry->peer, test_peer_free);
}

static Entry *
entry_ref (Entry *entry)
{
  g_atomic_ref_count_inc (&entry->refs);
  return entry;
}

static void
entry_unref (gpointer data)
{
  Entry *entry = data;

  if (!g_atomic_ref_count_dec (&entry->refs))
    return;
  free_peer (entry);
  vmm_process_spec_unref (entry->spec);
  vmm_process_handle_free (entry->handle);
  g_weak_ref_clear (&entry->watcher);
  g_free (entry);
}

static GPtrArray *
get_entries (void)
{
  if (entries == NULL)
    entries = g_ptr_array_new_with_free_func (entry_unref);
  return entries;
}

static const char *
role_of (VmmProcessSpec *spec)
{
  const char *role = vmm_process_spec_get_role (spec);

  return role != NULL ? role : vmm_process_spec_get_id (spec);
}

static Entry *
find_by_id (const char *id)
{
  for (guint i = 0; i < get_entries ()->len; i++)
    {
      Entry *entry = g_ptr_array_index (entries, i);

      if (g_str_equal (vmm_process_spec_get_id (entry->spec), id))
        return entry;
    }
  return NULL;
}

/* The running one before one that has ended. */
static Entry *
find_by_role (const char *owner, const char *role)
{
  Entry *found = NULL;

  for (guint i = 0; i < get_entries ()->len; i++)
    {
      Entry *entry = g_ptr_array_index (entries, i);

      if (owner != NULL && g_strcmp0 (vmm_process_spec_get_owner (entry->spec), owner) != 0)
        continue;
      if (!g_str_equal (role_of (entry->spec), role))
        continue;
      if (!entry->ended)
        return entry;
      if (found == NULL)
        found = entry;
    }
  return found;
}

/* Whoever watches is told; otherwise the status waits for whoever asks. */
static void
end_entry (Entry *entry, const VmmExitStatus *status)
{
  g_autoptr (TestFakeProcess) watcher = NULL;

  if (entry->ended)
    return;
  entry->ended = TRUE;
  entry->status = *status;
  free_peer (entry);
  watcher = g_weak_ref_get (&entry->watcher);
  if (watcher == NULL)
    return;
  entry_ref (entry);
  g_ptr_array_remove (get_entries (), entry);
  vmm_process_exited (VMM_PROCESS (watcher), &entry->status, "the fake lost it");
  entry_unref (entry);
}

typedef struct
{
  Entry *entry;
  VmmExitStatus status;
} Ending;

static gboolean
ending_cb (gpointer user_data)
{
  Ending *ending = user_data;

  end_entry (ending->entry, &ending->status);
  return G_SOURCE_REMOVE;
}

static void
ending_free (gpointer data)
{
  Ending *ending = data;

  entry_unref (ending->entry);
  g_free (ending);
}

static void
end_entry_later (Entry *entry, int code, int signum)
{
  Ending *ending = g_new0 (Ending, 1);

  ending->entry = entry_ref (entry);
  ending->status.known = TRUE;
  ending->status.code = signum != 0 ? -1 : code;
  ending->status.signal = signum;
  g_idle_add_full (G_PRIORITY_DEFAULT, ending_cb, ending, ending_free);
}

static void
peer_exit_cb (int code, int signum, gpointer data)
{
  end_entry_later (data, code, signum);
}

static void
deliver_signal (Entry *entry, int signum)
{
  if (entry->peer != NULL)
    {
      test_peer_signal (entry->peer, signum);
      return;
    }
  if (signum == SIGTERM || signum == SIGKILL || signum == SIGINT)
    end_entry_later (entry, -1, signum);
}

static TestFakeProcess *
new_process (Entry *entry)
{
  TestFakeProcess *self = g_object_new (TEST_TYPE_FAKE_PROCESS, NULL);

  self->entry = entry_ref (entry);
  g_weak_ref_set (&entry->watcher, self);
  vmm_process_set_handle (VMM_PROCESS (self), entry->handle);
  return self;
}

static gboolean
test_fake_process_send_signal (VmmProcess *process, int signum, GError **error)
{
  TestFakeProcess *self = TEST_FAKE_PROCESS (process);
  const char *role = role_of (self->entry->spec);
  g_autofree char *number = g_strdup_printf ("%s %d", role, signum);
  TestFakeMode mode;

  if (!self->stopping)
    test_fake_log ("process.signal", number);
  mode = test_fake_check ("process.signal", role, error);
  if (mode == TEST_FAKE_FAIL)
    return FALSE;
  if (mode == TEST_FAKE_OK)
    deliver_signal (self->entry, signum);
  return TRUE;
}

static void
stopped_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  g_autoptr (GTask) task = user_data;
  TestFakeProcess *self = TEST_FAKE_PROCESS (source);
  g_autoptr (GError) error = NULL;

  self->stopping = FALSE;
  if (VMM_PROCESS_CLASS (test_fake_process_parent_class)
          ->stop_finish (VMM_PROCESS (self), result, &error))
    g_task_return_boolean (task, TRUE);
  else
    g_task_return_error (task, g_steal_pointer (&error));
}

static void
stop_process (GTask *task, gboolean lie)
{
  TestFakeProcess *self = g_task_get_source_object (task);
  guint grace_ms = GPOINTER_TO_UINT (g_task_get_task_data (task));
  GCancellable *cancellable = g_task_get_cancellable (task);

  if (lie)
    {
      g_task_return_boolean (task, TRUE);
      return;
    }
  self->stopping = TRUE;
  VMM_PROCESS_CLASS (test_fake_process_parent_class)
      ->stop_async (VMM_PROCESS (self), grace_ms, cancellable, stopped_cb, g_object_ref (task));
}

static void
test_fake_process_stop_async (VmmProcess *process, guint grace_ms, GCancellable *cancellable,
                              GAsyncReadyCallback callback, gpointer user_data)
{
  TestFakeProcess *self = TEST_FAKE_PROCESS (process);
  g_autoptr (GTask) task = g_task_new (self, cancellable, callback, user_data);

  g_task_set_source_tag (task, test_fake_process_stop_async);
  g_task_set_task_data (task, GUINT_TO_POINTER (grace_ms), NULL);
  test_fake_run ("process.stop", role_of (self->entry->spec), task, stop_process);
}

static gboolean
test_fake_process_stop_finish (VmmProcess *process, GAsyncResult *result, GError **error)
{
  return g_task_propagate_boolean (G_TASK (result), error);
}

static gboolean
test_fake_process_get_usage (VmmProcess *process, VmmProcessUsage *usage)
{
  *usage = test_fakes.usage;
  return TRUE;
}

static void
test_fake_process_detach (VmmProcess *process)
{
  g_weak_ref_set (&TEST_FAKE_PROCESS (process)->entry->watcher, NULL);
}

static void
test_fake_process_finalize (GObject *object)
{
  entry_unref (TEST_FAKE_PROCESS (object)->entry);
  G_OBJECT_CLASS (test_fake_process_parent_class)->finalize (object);
}

static void
test_fake_process_class_init (TestFakeProcessClass *klass)
{
  VmmProcessClass *process_class = VMM_PROCESS_CLASS (klass);

  G_OBJECT_CLASS (klass)->finalize = test_fake_process_finalize;
  process_class->send_signal = test_fake_process_send_signal;
  process_class->stop_async = test_fake_process_stop_async;
  process_class->stop_finish = test_fake_process_stop_finish;
  process_class->get_usage = test_fake_process_get_usage;
  process_class->detach = test_fake_process_detach;
}

static void
test_fake_process_init (TestFakeProcess *self)
{
}

static gboolean
test_fake_launcher_is_available (VmmBackend *backend, char **reason)
{
  return test_fake_is_available (0, reason);
}

static gboolean
test_fake_launcher_outlives_daemon (VmmLauncher *launcher)
{
  return test_fakes.outlives_daemon;
}

static Entry *
new_entry (VmmProcessSpec *spec)
{
  Entry *entry = g_new0 (Entry, 1);

  g_atomic_ref_count_init (&entry->refs);
  g_weak_ref_init (&entry->watcher, NULL);
  entry->spec = vmm_process_spec_ref (spec);
  last_pid++;
  entry->handle = vmm_process_handle_new (vmm_process_spec_get_id (spec), last_pid,
                                          (guint64) last_pid * 10, "fake-boot");
  g_ptr_array_add (get_entries (), entry);
  return entry;
}

static void
start_process (GTask *task, gboolean lie)
{
  VmmProcessSpec *spec = g_task_get_task_data (task);
  Entry *entry = find_by_id (vmm_process_spec_get_id (spec));

  if (entry != NULL && !entry->ended)
    {
      g_task_return_error (task, vmm_error_new (VMM_ERROR_CONFLICT, "process %s runs already",
                                                vmm_process_spec_get_id (spec)));
      return;
    }
  if (entry != NULL)
    g_ptr_array_remove (get_entries (), entry);

  entry = new_entry (spec);
  if (test_fakes.peers)
    entry->peer = test_peer_new (spec, peer_exit_cb, entry);
  if (lie)
    end_entry_later (entry, 1, 0);
  g_task_return_pointer (task, new_process (entry), g_object_unref);
}

static void
test_fake_launcher_start_async (VmmLauncher *launcher, VmmProcessSpec *spec,
                                GCancellable *cancellable, GAsyncReadyCallback callback,
                                gpointer user_data)
{
  g_autoptr (GTask) task = g_task_new (launcher, cancellable, callback, user_data);

  g_task_set_source_tag (task, test_fake_launcher_start_async);
  g_task_set_task_data (task, vmm_process_spec_ref (spec), (GDestroyNotify) vmm_process_spec_unref);
  test_fake_run ("launcher.start", role_of (spec), task, start_process);
}

static gboolean
tell_found_cb (gpointer user_data)
{
  TestFakeProcess *self = user_data;

  vmm_process_exited (VMM_PROCESS (self), &self->entry->status, "the fake lost it");
  return G_SOURCE_REMOVE;
}

static void
find_process (GTask *task, gboolean lie)
{
  Entry *entry = find_by_id (g_task_get_task_data (task));
  TestFakeProcess *found;

  if (!test_fakes.outlives_daemon)
    {
      g_task_return_error (
          task, vmm_error_new (VMM_ERROR_UNSUPPORTED, "launcher cannot reattach processes"));
      return;
    }
  if (entry == NULL || entry->lost)
    {
      g_task_return_error (task, vmm_error_new (VMM_ERROR_NOT_FOUND, "process is gone"));
      return;
    }

  found = new_process (entry);
  if (lie)
    {
      entry->ended = TRUE;
      memset (&entry->status, 0, sizeof entry->status);
      entry->status.code = -1;
    }
  if (entry->ended)
    {
      g_ptr_array_remove (get_entries (), entry);
      g_idle_add_full (G_PRIORITY_DEFAULT_IDLE, tell_found_cb, g_object_ref (found),
                       g_object_unref);
    }
  g_task_return_pointer (task, found, g_object_unref);
}

static void
test_fake_launcher_find_async (VmmLauncher *launcher, const char *id,
                               const VmmProcessHandle *handle, GCancellable *cancellable,
                               GAsyncReadyCallback callback, gpointer user_data)
{
  g_autoptr (GTask) task = g_task_new (launcher, cancellable, callback, user_data);
  Entry *entry = find_by_id (id);
  const char *subject = entry != NULL ? role_of (entry->spec) : id;

  g_task_set_source_tag (task, test_fake_launcher_find_async);
  g_task_set_task_data (task, g_strdup (id), g_free);
  if (entry != NULL && handle != NULL
      && (vmm_process_handle_get_pid (handle) != vmm_process_handle_get_pid (entry->handle)
          || vmm_process_handle_get_start_time (handle)
                 != vmm_process_handle_get_start_time (entry->handle)))
    {
      test_fake_log ("launcher.find", subject);
      g_task_return_error (
          task, vmm_error_new (VMM_ERROR_NOT_FOUND, "process %s is another one now", id));
      return;
    }
  test_fake_run ("launcher.find", subject, task, find_process);
}

static void
launcher_backend_init (VmmBackendInterface *iface)
{
  iface->is_available = test_fake_launcher_is_available;
}

static void
launcher_init (VmmLauncherInterface *iface)
{
  iface->outlives_daemon = test_fake_launcher_outlives_daemon;
  iface->start_async = test_fake_launcher_start_async;
  iface->find_async = test_fake_launcher_find_async;
}

static void
test_fake_launcher_class_init (TestFakeLauncherClass *klass)
{
}

static void
test_fake_launcher_init (TestFakeLauncher *self)
{
}

void
test_fake_launcher_reset (void)
{
  for (guint i = 0; i < get_entries ()->len; i++)
    {
      Entry *entry = g_ptr_array_index (entries, i);

      entry->ended = TRUE;
      free_peer (entry);
    }
  g_ptr_array_set_size (get_entries (), 0);
}

gboolean
test_fakes_is_running (const char *owner, const char *role)
{
  Entry *entry = find_by_role (owner, role);

  return entry != NULL && !entry->ended;
}

guint
test_fakes_get_n_running (void)
{
  guint n = 0;

  for (guint i = 0; i < get_entries ()->len; i++)
    if (!((Entry *) g_ptr_array_index (entries, i))->ended)
      n++;
  return n;
}

VmmProcessSpec *
test_fakes_get_spec (const char *owner, const char *role)
{
  Entry *entry = find_by_role (owner, role);

  return entry != NULL ? entry->spec : NULL;
}

void
test_fakes_exit (const char *owner, const char *role, int code, int signum)
{
  Entry *entry = find_by_role (owner, role);
  VmmExitStatus status = { 0 };

  g_assert_true (entry != NULL && !entry->ended);
  status.known = TRUE;
  status.code = signum != 0 ? -1 : code;
  status.signal = signum;
  end_entry (entry, &status);
}

void
test_fakes_vanish (const char *owner, const char *role)
{
  Entry *entry = find_by_role (owner, role);
  VmmExitStatus status = { 0 };

  g_assert_nonnull (entry);
  status.code = -1;
  entry->lost = TRUE;
  end_entry (entry, &status);
}

void
test_fakes_daemon_died (void)
{
  for (guint i = 0; i < get_entries ()->len; i++)
    g_weak_ref_set (&((Entry *) g_ptr_array_index (entries, i))->watcher, NULL);
  if (!test_fakes.outlives_daemon)
    test_fake_launcher_reset ();
}

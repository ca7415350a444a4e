/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* One attempt at a vmm-netd that answers: find the one of an earlier daemon, or connect again to
 * the one that runs, or start one.
 *
 * One that was there and does not answer as it should, or that carries a network which was to be
 * otherwise, is ended and replaced. netd.json is there before vmm-netd starts, and the handle is on
 * disk before the answer is waited for, so that a daemon that dies meanwhile finds the process
 * again. A failure leaves no process; a cancelled attempt leaves one that it did not start alone.
 */

#include "vmm-netd-attempt.h"

#include "interfaces/vmm-error.h"
#include "vmm-netd-connect.h"
#include "vmm-netd-store.h"

/* Above what all flows of a network take together in the NAT engine. */
#define MEMORY_MAX (G_GUINT64_CONSTANT (2) * 1024 * 1024 * 1024)

/* The task data. */
typedef struct
{
  const VmmNetdAttemptConfig *config;
  VmmProcess *process;
  VmmNetdChannel *channel;
  gboolean is_first;
  gboolean started; /* by this attempt */
  gboolean again;   /* a start follows the end of the process */
  GError *error;
} Attempt;

static void attempt_start (GTask *task);

static void
attempt_free (gpointer data)
{
  Attempt *attempt = data;

  g_clear_object (&attempt->process);
  g_clear_object (&attempt->channel);
  g_clear_error (&attempt->error);
  g_free (attempt);
}

static gboolean
is_cancelled (GTask *task)
{
  return g_cancellable_is_cancelled (g_task_get_cancellable (task));
}

/* Takes the task and the error. */
static void
return_error (GTask *task, GError *error)
{
  g_task_return_error (task, error);
  g_object_unref (task);
}

static void
stopped_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  GTask *task = user_data;
  Attempt *attempt = g_task_get_task_data (task);
  GError *error = NULL;

  if (!vmm_process_stop_finish (VMM_PROCESS (source), result, &error))
    {
      return_error (task, error); /* it is still in the way */
      return;
    }
  if (attempt->again
      && g_cancellable_set_error_if_cancelled (g_task_get_cancellable (task), &error))
    {
      return_error (task, error);
      return;
    }
  if (!attempt->again)
    {
      return_error (task, g_steal_pointer (&attempt->error));
      return;
    }
  g_clear_error (&attempt->error);
  g_clear_object (&attempt->process);
  attempt_start (task);
}

/* Takes the task and the error. The process is ended before the error is returned, or before
 * another one is started in its place. */
static void
attempt_failed (GTask *task, GError *error, guint grace_ms)
{
  Attempt *attempt = g_task_get_task_data (task);

  if (is_cancelled (task) && !attempt->started)
    {
      return_error (task, error);
      return;
    }
  attempt->error = error;
  attempt->again = !attempt->started;
  vmm_process_stop_async (attempt->process, grace_ms, NULL, stopped_cb, task);
}

static void
connected_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  GTask *task = user_data;
  Attempt *attempt = g_task_get_task_data (task);
  GError *error = NULL;

  attempt->channel = vmm_netd_connect_finish (result, &error);
  if (attempt->channel == NULL)
    {
      attempt_failed (task, error, 0);
      return;
    }
  g_task_return_boolean (task, TRUE);
  g_object_unref (task);
}

static void
attempt_connect (GTask *task)
{
  Attempt *attempt = g_task_get_task_data (task);

  vmm_netd_connect_async (attempt->config->directory, attempt->config->network, attempt->process,
                          g_task_get_cancellable (task), connected_cb, task);
}

/* A full disk is no reason to go without a network: the next daemon looks by the process's id. */
static void
handle_saved_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  vmm_netd_file_save_finish (VMM_NETD_FILE (source), result, NULL);
  attempt_connect (user_data);
}

/* Takes the task. A launcher may have started it again since the handle was recorded. */
static void
record_handle (GTask *task)
{
  Attempt *attempt = g_task_get_task_data (task);
  VmmNetdFile *file = attempt->config->file;

  vmm_netd_file_set_handle (file, vmm_process_get_handle (attempt->process));
  vmm_netd_file_save_async (file, handle_saved_cb, task);
}

static void
started_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  GTask *task = user_data;
  Attempt *attempt = g_task_get_task_data (task);
  GError *error = NULL;

  attempt->process = vmm_launcher_start_finish (VMM_LAUNCHER (source), result, &error);
  if (attempt->process == NULL)
    {
      return_error (task, error);
      return;
    }
  record_handle (task);
}

static VmmProcessSpec *
build_spec (const VmmNetdAttemptConfig *config)
{
  const char *const argv[] = { config->helper, config->directory, NULL };
  VmmProcessSpec *spec = vmm_process_spec_new (config->id, argv);
  g_autofree char *log = g_build_filename (config->directory, VMM_NETD_STORE_LOG, NULL);

  vmm_process_spec_set_owner (spec, config->network, "network");
  vmm_process_spec_set_log (spec, log);
  vmm_process_spec_set_flags (spec, VMM_PROCESS_DENY_IO_URING | VMM_PROCESS_RESTART);
  vmm_process_spec_set_memory_max (spec, MEMORY_MAX);
  vmm_process_spec_add_writable_path (spec, config->directory);
  return spec;
}

/* Takes the task. */
static void
launch (GTask *task)
{
  Attempt *attempt = g_task_get_task_data (task);
  g_autoptr (VmmProcessSpec) spec = build_spec (attempt->config);

  vmm_launcher_start_async (attempt->config->launcher, spec, g_task_get_cancellable (task),
                            started_cb, task);
}

/* The file of a network that was up is there in any case, unless somebody removed it. */
static void
saved_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  Attempt *attempt = g_task_get_task_data (user_data);
  g_autoptr (GError) error = NULL;

  if (vmm_netd_file_save_finish (VMM_NETD_FILE (source), result, &error) || !attempt->is_first)
    launch (user_data);
  else
    return_error (user_data, g_steal_pointer (&error));
}

/* netd.json is made before vmm-netd reads it. */
static void
prepared_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  GTask *task = user_data;
  Attempt *attempt = g_task_get_task_data (task);
  GError *error = NULL;

  if (!vmm_netd_store_finish (result, &error))
    return_error (task, error);
  else
    vmm_netd_file_save_async (attempt->config->file, saved_cb, task);
}

/* Takes the task. */
static void
attempt_start (GTask *task)
{
  Attempt *attempt = g_task_get_task_data (task);

  attempt->started = TRUE;
  vmm_netd_store_prepare_async (attempt->config->directory, prepared_cb, task);
}

static void
found_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  GTask *task = user_data;
  Attempt *attempt = g_task_get_task_data (task);
  GError *error = NULL;

  attempt->process = vmm_launcher_find_finish (VMM_LAUNCHER (source), result, &error);
  if (attempt->process == NULL && is_cancelled (task))
    {
      return_error (task, error);
      return;
    }
  g_clear_error (&error);
  if (attempt->process == NULL)
    attempt_start (task);
  else if (vmm_netd_file_has_changed (attempt->config->file))
    attempt_failed (task, NULL, VMM_NETD_GRACE_MS);
  else
    record_handle (task);
}

/* Takes the task. */
static void
attempt_find (GTask *task)
{
  Attempt *attempt = g_task_get_task_data (task);
  const VmmNetdAttemptConfig *config = attempt->config;
  const VmmProcessHandle *handle = vmm_netd_file_get_handle (config->file);

  if (vmm_launcher_outlives_daemon (config->launcher))
    vmm_launcher_find_async (config->launcher, config->id, handle, g_task_get_cancellable (task),
                             found_cb, task);
  else
    attempt_start (task);
}

void
vmm_netd_attempt_async (const VmmNetdAttemptConfig *config, VmmNetdAttemptKind kind,
                        VmmProcess *process, GCancellable *cancellable,
                        GAsyncReadyCallback callback, gpointer user_data)
{
  GTask *task = g_task_new (NULL, cancellable, callback, user_data);
  Attempt *attempt = g_new0 (Attempt, 1);

  g_task_set_source_tag (task, vmm_netd_attempt_async);
  g_task_set_check_cancellable (task, FALSE);
  g_task_set_task_data (task, attempt, attempt_free);
  attempt->config = config;
  attempt->is_first = kind == VMM_NETD_ATTEMPT_FIND;
  if (kind == VMM_NETD_ATTEMPT_FIND)
    {
      attempt_find (task);
    }
  else if (kind == VMM_NETD_ATTEMPT_RECONNECT && process != NULL)
    {
      attempt->process = g_object_ref (process);
      attempt_connect (task);
    }
  else
    {
      attempt_start (task);
    }
}

VmmProcess *
vmm_netd_attempt_finish (GAsyncResult *result, VmmNetdChannel **channel, GError **error)
{
  Attempt *attempt = g_task_get_task_data (G_TASK (result));

  g_return_val_if_fail (g_async_result_is_tagged (result, vmm_netd_attempt_async), NULL);

  if (!g_task_propagate_boolean (G_TASK (result), error))
    return NULL;
  *channel = g_steal_pointer (&attempt->channel);
  return g_steal_pointer (&attempt->process);
}

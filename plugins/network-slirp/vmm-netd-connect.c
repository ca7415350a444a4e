/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Waiting for a vmm-netd that was just started.
 *
 * The folder is watched before the first attempt, so that the socket cannot come unnoticed; what
 * happens to it leads to the next attempt. A socket that is there and refuses belongs to a program
 * between bind() and listen(), or to one that has died: that is tried again after a pause, and so
 * is everything where the folder cannot be watched. */

#include "vmm-netd-connect.h"

#include "interfaces/vmm-error.h"
#include "vmm-netd-store.h"

#define PAUSE_MS 20

typedef struct
{
  GTask *task; /* until it is settled */
  char *directory;
  char *path;
  char *network;
  VmmProcess *process;
  gulong exited_id;
  GFileMonitor *monitor;
  GCancellable *attempt; /* of the running one */
  gboolean again;        /* the socket changed meanwhile */
  GSource *limit;
  GSource *pause;
  GSource *cancelled;
  char *failure; /* of the last attempt */
  char *reason;  /* why it is given up */
  gboolean timed_out;
} Connect;

static void try_now (Connect *connect);

static void
clear_source (GSource **source)
{
  if (*source == NULL)
    return;
  g_source_destroy (*source);
  g_clear_pointer (source, g_source_unref);
}

static void
start_source (GSource **place, GSource *source, GSourceFunc func, Connect *connect)
{
  *place = source;
  g_source_set_callback (source, func, connect, NULL);
  g_source_attach (source, NULL);
}

/* Stops everything that could still happen; the task is the caller's. */
static GTask *
settle (Connect *connect)
{
  GTask *task = g_steal_pointer (&connect->task);

  g_clear_signal_handler (&connect->exited_id, connect->process);
  if (connect->monitor != NULL)
    g_file_monitor_cancel (connect->monitor);
  g_clear_object (&connect->monitor);
  clear_source (&connect->limit);
  clear_source (&connect->pause);
  clear_source (&connect->cancelled);
  if (connect->attempt != NULL)
    g_cancellable_cancel (connect->attempt);
  g_clear_object (&connect->attempt);
  return task;
}

static void
connect_free (gpointer data)
{
  Connect *connect = data;

  g_clear_object (&connect->process);
  g_free (connect->directory);
  g_free (connect->path);
  g_free (connect->network);
  g_free (connect->failure);
  g_free (connect->reason);
  g_free (connect);
}

static void
log_read_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  g_autoptr (GTask) task = user_data;
  Connect *connect = g_task_get_task_data (task);
  g_autofree char *line = vmm_netd_store_read_log_finish (result);

  g_task_return_error (
      task, vmm_error_new (connect->timed_out ? VMM_ERROR_TIMEOUT : VMM_ERROR_INTERNAL, "%s: %s",
                           connect->reason, line != NULL ? line : "its log is empty"));
}

/* Takes the reason. */
static void
give_up (Connect *connect, char *reason)
{
  GTask *task = settle (connect);

  connect->reason = reason;
  vmm_netd_store_read_log_async (connect->directory, log_read_cb, task);
}

static void
exited_cb (VmmProcess *process, const VmmExitStatus *status, const char *text, gpointer user_data)
{
  give_up (user_data, g_strdup_printf ("vmm-netd ended (%s)", text));
}

static gboolean
limit_cb (gpointer user_data)
{
  Connect *connect = user_data;

  connect->timed_out = TRUE;
  give_up (connect,
           g_strdup_printf ("vmm-netd did not answer on %s within %d s (%s)", connect->path,
                            VMM_NETD_ANSWER_MS / 1000,
                            connect->attempt != NULL ? "it says nothing" : connect->failure));
  return G_SOURCE_REMOVE;
}

static gboolean
cancelled_cb (GCancellable *cancellable, gpointer user_data)
{
  g_autoptr (GTask) task = settle (user_data);

  g_task_return_new_error (task, G_IO_ERROR, G_IO_ERROR_CANCELLED, "cancelled");
  return G_SOURCE_REMOVE;
}

static gboolean
pause_cb (gpointer user_data)
{
  Connect *connect = user_data;

  clear_source (&connect->pause);
  try_now (connect);
  return G_SOURCE_REMOVE;
}

static void
changed_cb (GFileMonitor *monitor, GFile *file, GFile *other, GFileMonitorEvent event,
            gpointer user_data)
{
  Connect *connect = user_data;
  g_autofree char *name = g_file_get_basename (file);

  if (g_strcmp0 (name, VMM_NETD_STORE_SOCKET) != 0)
    return;
  if (connect->attempt != NULL)
    connect->again = TRUE;
  else
    try_now (connect);
}

static void
opened_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  g_autoptr (GTask) task = user_data;
  Connect *connect = g_task_get_task_data (task);
  GError *error = NULL;
  VmmNetdChannel *channel = vmm_netd_channel_open_finish (result, &error);
  gboolean is_absent = g_error_matches (error, G_IO_ERROR, G_IO_ERROR_NOT_FOUND);

  if (connect->task == NULL) /* settled meanwhile */
    {
      g_clear_object (&channel);
      g_clear_error (&error);
      return;
    }
  g_clear_object (&connect->attempt);
  if (channel != NULL || error->domain == VMM_ERROR)
    {
      g_object_unref (settle (connect));
      if (channel != NULL)
        g_task_return_pointer (task, channel, g_object_unref);
      else
        g_task_return_error (task, error);
      return;
    }

  g_free (connect->failure);
  connect->failure = g_strdup (error->message);
  g_error_free (error);
  if (connect->again || !is_absent || connect->monitor == NULL)
    start_source (&connect->pause, g_timeout_source_new (PAUSE_MS), pause_cb, connect);
}

static void
try_now (Connect *connect)
{
  clear_source (&connect->pause);
  connect->again = FALSE;
  connect->attempt = g_cancellable_new ();
  vmm_netd_channel_open_async (connect->path, connect->network, connect->attempt, opened_cb,
                               g_object_ref (connect->task));
}

static void
watch_folder (Connect *connect)
{
  g_autoptr (GFile) folder = g_file_new_for_path (connect->directory);

  connect->monitor = g_file_monitor_directory (folder, G_FILE_MONITOR_NONE, NULL, NULL);
  if (connect->monitor != NULL)
    g_signal_connect (connect->monitor, "changed", G_CALLBACK (changed_cb), connect);
}

void
vmm_netd_connect_async (const char *directory, const char *network, VmmProcess *process,
                        GCancellable *cancellable, GAsyncReadyCallback callback, gpointer user_data)
{
  GTask *task = g_task_new (NULL, cancellable, callback, user_data);
  Connect *connect = g_new0 (Connect, 1);

  g_task_set_source_tag (task, vmm_netd_connect_async);
  g_task_set_check_cancellable (task, FALSE);
  g_task_set_task_data (task, connect, connect_free);
  connect->task = task;
  connect->directory = g_strdup (directory);
  connect->path = g_build_filename (directory, VMM_NETD_STORE_SOCKET, NULL);
  connect->network = g_strdup (network);
  connect->process = g_object_ref (process);
  connect->failure = g_strdup ("no attempt was made");
  if (vmm_process_has_exited (process))
    {
      give_up (connect,
               g_strdup_printf ("vmm-netd ended (%s)", vmm_process_get_exit_text (process)));
      return;
    }

  connect->exited_id = g_signal_connect (process, "exited", G_CALLBACK (exited_cb), connect);
  start_source (&connect->limit, g_timeout_source_new (VMM_NETD_ANSWER_MS), limit_cb, connect);
  if (cancellable != NULL)
    start_source (&connect->cancelled, g_cancellable_source_new (cancellable),
                  G_SOURCE_FUNC (cancelled_cb), connect);
  watch_folder (connect);
  try_now (connect);
}

VmmNetdChannel *
vmm_netd_connect_finish (GAsyncResult *result, GError **error)
{
  g_return_val_if_fail (g_async_result_is_tagged (result, vmm_netd_connect_async), NULL);

  return g_task_propagate_pointer (G_TASK (result), error);
}

/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* A command in a guest, seen from the main loop.
 *
 * Each connection has a thread of its own and not one of GLib's pool, where commands that last
 * would keep file work waiting; who calls this bounds their number. The thread has plain data and a
 * duplicate of the socket. The main loop keeps the connection and ends it by shutting it down: when
 * the caller cancels, and when the command does not run in time. Whatever libssh waits for is over
 * then. Nothing of GObject is freed by the thread.
 */
#include "config.h"

#include "vmm-ssh-exec.h"

#include <errno.h>
#include <fcntl.h>

#include "interfaces/vmm-error.h"
#include "vmm-source.h"

typedef struct
{
  VmmSshJob *job;
  GIOStream *stream;
  GMainContext *context;
  GThread *thread;
  GSource *limit;
  GSource *cancelled;
  gboolean is_late;
  VmmSshStage late_stage;
  VmmSshResult *result;
  GError *error;
} Exec;

char *
vmm_ssh_quote (const char *const *words)
{
  g_autoptr (GString) out = g_string_new (NULL);

  for (; *words != NULL; words++)
    {
      g_string_append (out, out->len > 0 ? " '" : "'");
      for (const char *at = *words; *at != '\0'; at++)
        if (*at == '\'')
          g_string_append (out, "'\\''");
        else
          g_string_append_c (out, *at);
      g_string_append_c (out, '\'');
    }
  return g_string_free (g_steal_pointer (&out), FALSE);
}

static void
exec_free (gpointer data)
{
  Exec *exec = data;

  vmm_source_clear (&exec->limit);
  vmm_source_clear (&exec->cancelled);
  g_clear_pointer (&exec->result, vmm_ssh_result_free);
  g_clear_error (&exec->error);
  g_clear_pointer (&exec->job, vmm_ssh_job_free);
  g_main_context_unref (exec->context);
  g_object_unref (exec->stream);
  g_free (exec);
}

static void
hang_up (Exec *exec)
{
  GSocket *socket = g_socket_connection_get_socket (G_SOCKET_CONNECTION (exec->stream));

  g_socket_shutdown (socket, TRUE, TRUE, NULL);
}

static gboolean
limit_cb (gpointer user_data)
{
  Exec *exec = user_data;
  VmmSshStage stage = g_atomic_int_get (&exec->job->stage);

  if (stage < VMM_SSH_RUNNING)
    {
      exec->is_late = TRUE;
      exec->late_stage = stage;
      hang_up (exec);
    }
  vmm_source_clear (&exec->limit);
  return G_SOURCE_REMOVE;
}

static gboolean
cancelled_cb (GCancellable *cancellable, gpointer user_data)
{
  hang_up (user_data);
  return G_SOURCE_REMOVE;
}

static GError *
error_of_lateness (const Exec *exec)
{
  static const char *const missing[] = {
    [VMM_SSH_GREETING] = "the guest's sshd did not answer",
    [VMM_SSH_AUTHENTICATION] = "the guest's sshd did not say whether root may log in",
    [VMM_SSH_SESSION] = "the guest's sshd did not open a session",
    [VMM_SSH_COMMAND] = "the guest's sshd did not start the command",
  };
  g_autofree char *prefix = vmm_ssh_job_describe_stage (exec->job, exec->late_stage);

  return vmm_error_new (VMM_ERROR_INTERNAL, "%s%s within %g s", prefix, missing[exec->late_stage],
                        exec->job->setup_ms / 1000.0);
}

/* The thread is at its end. */
static gboolean
over_cb (gpointer user_data)
{
  g_autoptr (GTask) task = user_data;
  Exec *exec = g_task_get_task_data (task);

  g_clear_pointer (&exec->thread, g_thread_join);
  vmm_source_clear (&exec->limit);
  vmm_source_clear (&exec->cancelled);
  if (g_task_return_error_if_cancelled (task))
    return G_SOURCE_REMOVE;
  if (exec->result != NULL)
    g_task_return_pointer (task, g_steal_pointer (&exec->result),
                           (GDestroyNotify) vmm_ssh_result_free);
  else if (exec->is_late)
    g_task_return_error (task, error_of_lateness (exec));
  else
    g_task_return_error (task, g_steal_pointer (&exec->error));
  return G_SOURCE_REMOVE;
}

typedef struct
{
  GTask *task; /* for over_cb() alone */
  Exec *exec;
} Thread;

static gpointer
thread_main (gpointer data)
{
  Thread *thread = data;
  Exec *exec = thread->exec;
  GSource *over = g_idle_source_new ();

  exec->result = vmm_ssh_session_run (exec->job, &exec->error);
  g_source_set_priority (over, G_PRIORITY_DEFAULT);
  g_source_set_callback (over, over_cb, thread->task, NULL);
  g_free (thread);
  g_source_attach (over, exec->context);
  g_source_unref (over);
  return NULL;
}

static gboolean
take_socket (Exec *exec, GError **error)
{
  GSocket *socket;

  if (!G_IS_SOCKET_CONNECTION (exec->stream))
    {
      vmm_set_error (error, VMM_ERROR_INTERNAL,
                     "the network's connection to the guest is not a socket");
      return FALSE;
    }
  socket = g_socket_connection_get_socket (G_SOCKET_CONNECTION (exec->stream));
  exec->job->fd = fcntl (g_socket_get_fd (socket), F_DUPFD_CLOEXEC, 3);
  if (exec->job->fd >= 0)
    return TRUE;
  vmm_set_error (error, VMM_ERROR_INTERNAL, "ssh %s:%u: %s", exec->job->host, exec->job->port,
                 g_strerror (errno));
  return FALSE;
}

void
vmm_ssh_exec_async (GIOStream *stream, VmmSshJob *job, GCancellable *cancellable,
                    GAsyncReadyCallback callback, gpointer user_data)
{
  g_autoptr (GTask) task = g_task_new (NULL, cancellable, callback, user_data);
  Exec *exec = g_new0 (Exec, 1);
  Thread *thread;
  GError *error = NULL;

  g_task_set_source_tag (task, vmm_ssh_exec_async);
  g_task_set_task_data (task, exec, exec_free);
  exec->stream = g_object_ref (stream);
  exec->context = g_main_context_ref_thread_default ();
  exec->job = job;
  job->fd = -1;
  job->stage = VMM_SSH_GREETING;
  if (g_task_return_error_if_cancelled (task))
    return;
  if (!take_socket (exec, &error))
    {
      g_task_return_error (task, error);
      return;
    }

  thread = g_new0 (Thread, 1);
  thread->task = g_object_ref (task);
  thread->exec = exec;
  exec->thread = g_thread_try_new ("ssh", thread_main, thread, &error);
  if (exec->thread == NULL)
    {
      g_object_unref (thread->task);
      g_free (thread);
      vmm_error_normalize (&error);
      g_task_return_error (task, error);
      return;
    }
  exec->cancelled = vmm_source_new_cancelled (cancellable, cancelled_cb, exec);
  exec->limit = g_timeout_source_new (job->setup_ms);
  g_source_set_callback (exec->limit, limit_cb, exec, NULL);
  g_source_attach (exec->limit, exec->context);
}

VmmSshResult *
vmm_ssh_exec_finish (GAsyncResult *result, GError **error)
{
  g_return_val_if_fail (g_async_result_is_tagged (result, vmm_ssh_exec_async), NULL);

  return g_task_propagate_pointer (G_TASK (result), error);
}

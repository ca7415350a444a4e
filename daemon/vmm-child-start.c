/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* From a spec to a program that serves its socket.
 *
 * A socket file may be of an earlier run, and appears before it is served: it is removed first, and
 * the program counts as started when it has answered. One that does not is stopped, and the first
 * failure is the one that is reported.
 */

#include "config.h"

#include "vmm-child-start.h"

#include <errno.h>
#include <string.h>

#include <glib/gstdio.h>

#include "vmm-file.h"

typedef struct
{
  VmmLauncher *launcher;
  VmmChildStart config;
  char *directory;
  char *socket_path;
  char *log_path;
  VmmProcess *process;
  GError *error; /* while the process is being stopped */
} Start;

char *
vmm_process_id_for_vm (const char *vm_id, const char *role)
{
  g_return_val_if_fail (vm_id != NULL && role != NULL, NULL);

  return g_strdup_printf ("%s-%s", vm_id, role);
}

static Start *
start_new (VmmLauncher *launcher, const VmmChildStart *config)
{
  Start *start = g_new0 (Start, 1);

  start->launcher = g_object_ref (launcher);
  start->config = *config;
  vmm_process_spec_ref (config->spec);
  start->directory = g_strdup (config->directory);
  start->socket_path = g_strdup (config->socket.socket_path);
  start->log_path = g_strdup (config->socket.log_path);
  return start;
}

static void
start_free (gpointer data)
{
  Start *start = data;

  g_object_unref (start->launcher);
  vmm_process_spec_unref (start->config.spec);
  g_free (start->directory);
  g_free (start->socket_path);
  g_free (start->log_path);
  g_clear_object (&start->process);
  g_clear_error (&start->error);
  g_free (start);
}

static void
stopped_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  g_autoptr (GTask) task = user_data;
  Start *start = g_task_get_task_data (task);
  g_autoptr (GError) ignored = NULL; /* the first failure is the one to report */

  vmm_process_stop_finish (VMM_PROCESS (source), result, &ignored);
  g_task_return_error (task, g_steal_pointer (&start->error));
}

static void
answered_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  g_autoptr (GTask) task = user_data;
  Start *start = g_task_get_task_data (task);
  g_autoptr (GObject) answer = vmm_child_socket_dial_finish (result, &start->error);

  if (answer != NULL)
    {
      g_task_return_pointer (task, g_steal_pointer (&start->process), g_object_unref);
      return;
    }
  if (start->error->domain == G_IO_ERROR)
    g_prefix_error (&start->error, "%s: ", start->config.program);
  vmm_process_stop_async (start->process, 0, NULL, stopped_cb, g_steal_pointer (&task));
}

static void
started_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  g_autoptr (GTask) task = user_data;
  Start *start = g_task_get_task_data (task);
  GCancellable *cancellable = g_task_get_cancellable (task);
  VmmChildSocket socket = start->config.socket;
  GError *error = NULL;

  start->process = vmm_launcher_start_finish (start->launcher, result, &error);
  if (start->process == NULL)
    {
      g_task_return_error (task, error);
      return;
    }
  socket.socket_path = start->socket_path;
  socket.log_path = start->log_path;
  socket.process = start->process;
  vmm_child_socket_dial_async (&socket, cancellable, answered_cb, g_steal_pointer (&task));
}

static void
prepared_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  g_autoptr (GTask) task = user_data;
  Start *start = g_task_get_task_data (task);
  GCancellable *cancellable = g_task_get_cancellable (task);
  GError *error = NULL;

  if (!g_task_propagate_boolean (G_TASK (result), &error))
    {
      g_task_return_error (task, error);
      return;
    }
  vmm_launcher_start_async (start->launcher, start->config.spec, cancellable, started_cb,
                            g_steal_pointer (&task));
}

/* The task's data is that of the task that waits for it. */
static void
prepare_thread (GTask *task, gpointer source, gpointer data, GCancellable *cancellable)
{
  const Start *start = data;
  GError *error = NULL;

  if (start->config.prepare != NULL && !start->config.prepare (start->directory, &error))
    g_task_return_error (task, error);
  else if (g_unlink (start->socket_path) != 0 && errno != ENOENT)
    g_task_return_error (task, vmm_error_new (VMM_ERROR_INTERNAL, "remove %s: %s",
                                              start->socket_path, g_strerror (errno)));
  else
    g_task_return_boolean (task, TRUE);
}

void
vmm_child_start_async (VmmLauncher *launcher, const VmmChildStart *config,
                       GCancellable *cancellable, GAsyncReadyCallback callback, gpointer user_data)
{
  g_autoptr (GTask) task = g_task_new (NULL, cancellable, callback, user_data);
  g_autoptr (GTask) preparation = NULL;
  Start *start = start_new (launcher, config);

  g_task_set_source_tag (task, vmm_child_start_async);
  g_task_set_task_data (task, start, start_free);
  g_task_set_check_cancellable (task, FALSE); /* a process that runs is never lost */
  if (strlen (start->socket_path) > VMM_SOCKET_PATH_MAX)
    {
      g_task_return_error (task, vmm_error_new (VMM_ERROR_INVALID_REQUEST,
                                                "%s socket path exceeds %d bytes; use a shorter "
                                                "state dir",
                                                config->socket_name, VMM_SOCKET_PATH_MAX));
      return;
    }
  preparation = g_task_new (NULL, NULL, prepared_cb, g_steal_pointer (&task));
  g_task_set_task_data (preparation, start, NULL);
  g_task_run_in_thread (preparation, prepare_thread);
}

VmmProcess *
vmm_child_start_finish (GAsyncResult *result, GError **error)
{
  g_return_val_if_fail (g_async_result_is_tagged (result, vmm_child_start_async), NULL);

  return g_task_propagate_pointer (G_TASK (result), error);
}

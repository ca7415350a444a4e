/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Starts the vTPM of a VM.
 *
 * swtpm's socket file appears before swtpm serves it, and a TPM that does not answer stalls the
 * firmware for minutes; so QEMU is started only after the control socket has answered a real
 * command. The probe hangs up afterwards, which is why --ctrl must not carry swtpm's own
 * "terminate" option; the global --terminate ends swtpm when QEMU closes the data channel.
 *
 * swtpm logs to its standard error at the lowest level that shows each command: one that was never
 * answered is the last line. The log of the run before is kept beside it.
 */
#include "config.h"

#include "vmm-tpm.h"

#include <errno.h>
#include <glib/gstdio.h>
#include <string.h>

#include "interfaces/vmm-error.h"
#include "vmm-child-socket.h"
#include "vmm-file.h"
#include "vmm-source.h"

#define ATTEMPT_MS 1000
#define LIMIT_MS 5000
#define SOCKET_NAME "swtpm.sock"
/* CMD_GET_CAPABILITY of swtpm's control channel (swtpm_ioctls(3)), and the size of its answer. */
#define PROBE_COMMAND 1
#define PROBE_ANSWER_SIZE 8

char *
vmm_process_id_for_vm (const char *vm_id, const char *role)
{
  g_return_val_if_fail (vm_id != NULL && role != NULL, NULL);

  return g_strdup_printf ("%s-%s", vm_id, role);
}

typedef struct
{
  GSocket *socket;
  GSource *source;
  GCancellable *cancellable;
  gsize received;
} Probe;

static void
probe_free (gpointer data)
{
  Probe *probe = data;

  vmm_source_clear (&probe->source);
  g_object_unref (probe->socket);
  g_object_unref (probe->cancellable);
  g_free (probe);
}

/* The socket source is ready when there is an answer, the end of the file, or a cancellation. */
static gboolean
probe_readable_cb (GSocket *socket, GIOCondition condition, gpointer user_data)
{
  g_autoptr (GTask) task = g_object_ref (user_data);
  Probe *probe = g_task_get_task_data (task);
  char answer[PROBE_ANSWER_SIZE];
  g_autoptr (GError) error = NULL;
  gssize size = -1;

  if (!g_cancellable_set_error_if_cancelled (probe->cancellable, &error))
    size = g_socket_receive_with_blocking (socket, answer, sizeof answer - probe->received, FALSE,
                                           NULL, &error);
  if (size < 0 && g_error_matches (error, G_IO_ERROR, G_IO_ERROR_WOULD_BLOCK))
    return G_SOURCE_CONTINUE;
  probe->received += MAX (size, 0);
  if (size > 0 && probe->received < PROBE_ANSWER_SIZE)
    return G_SOURCE_CONTINUE;
  g_clear_pointer (&probe->source, g_source_unref);
  if (size > 0)
    g_task_return_pointer (task, g_object_ref (socket), g_object_unref);
  else if (size == 0)
    g_task_return_new_error (task, G_IO_ERROR, G_IO_ERROR_CLOSED,
                             "end of file after %" G_GSIZE_FORMAT " of %d bytes", probe->received,
                             PROBE_ANSWER_SIZE);
  else
    g_task_return_error (task, g_steal_pointer (&error));
  return G_SOURCE_REMOVE;
}

static void
probe_start (GSocket *socket, GCancellable *cancellable, GAsyncReadyCallback callback,
             gpointer user_data)
{
  g_autoptr (GTask) task = g_task_new (NULL, NULL, callback, user_data);
  const guint32 command = GUINT32_TO_BE (PROBE_COMMAND);
  Probe *probe = g_new0 (Probe, 1);
  GError *error = NULL;

  g_task_set_source_tag (task, probe_start);
  g_task_set_task_data (task, probe, probe_free);
  probe->socket = g_object_ref (socket);
  probe->cancellable = g_object_ref (cancellable);
  /* Four bytes always fit into the buffer of a new socket. */
  if (g_socket_send_with_blocking (socket, (const char *) &command, sizeof command, FALSE, NULL,
                                   &error)
      != sizeof command)
    {
      if (error == NULL)
        g_set_error (&error, G_IO_ERROR, G_IO_ERROR_FAILED, "cannot send the probe");
      g_task_return_error (task, error);
      return;
    }
  probe->source = g_socket_create_source (socket, G_IO_IN, cancellable);
  g_source_set_callback (probe->source, G_SOURCE_FUNC (probe_readable_cb), g_object_ref (task),
                         g_object_unref);
  g_source_attach (probe->source, NULL);
}

static GObject *
probe_finish (GAsyncResult *result, GError **error)
{
  return g_task_propagate_pointer (G_TASK (result), error);
}

typedef struct
{
  VmmLauncher *launcher;
  char *vm_id;
  char *directory;
  char *socket_path;
  char *log_path;
  VmmProcess *process;
  GError *error; /* while the process is being stopped */
} Start;

static void
start_free (gpointer data)
{
  Start *start = data;

  g_object_unref (start->launcher);
  g_free (start->vm_id);
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
probed_cb (GObject *source, GAsyncResult *result, gpointer user_data)
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
    g_prefix_error (&start->error, "swtpm: ");
  vmm_process_stop_async (start->process, 0, NULL, stopped_cb, g_steal_pointer (&task));
}

static void
started_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  g_autoptr (GTask) task = user_data;
  Start *start = g_task_get_task_data (task);
  g_autoptr (GError) error = NULL;
  GCancellable *cancellable = g_task_get_cancellable (task);
  VmmChildSocket config = {
    .socket_path = start->socket_path,
    .log_path = start->log_path,
    .exited_text = "swtpm exited before its control socket answered",
    .limit_format
    = "vtpm not responding: swtpm control socket %s did not answer within 5s (%s): %s",
    .attempt_ms = ATTEMPT_MS,
    .limit_ms = LIMIT_MS,
    .start = probe_start,
    .finish = probe_finish,
  };

  start->process = vmm_launcher_start_finish (start->launcher, result, &error);
  if (start->process == NULL)
    {
      g_task_return_error (task, g_steal_pointer (&error));
      return;
    }
  config.process = start->process;
  vmm_child_socket_dial_async (&config, cancellable, probed_cb, g_steal_pointer (&task));
}

/* swtpm ends a value at a comma and knows no way to quote one: below such a folder it gets relative
 * paths and the folder as its own. */
static VmmProcessSpec *
build_spec (const Start *start)
{
  gboolean relative = strchr (start->directory, ',') != NULL;
  g_autofree char *id = vmm_process_id_for_vm (start->vm_id, "tpm");
  g_autofree char *state = g_strdup_printf ("dir=%s", relative ? "." : start->directory);
  g_autofree char *control
    = g_strdup_printf ("type=unixio,path=%s", relative ? SOCKET_NAME : start->socket_path);
  const char *const argv[] = { "swtpm", "socket",  "--tpm2",      "--tpmstate", state,     "--ctrl",
                               control, "--terminate", "--log", "level=2",   NULL };
  VmmProcessSpec *spec = vmm_process_spec_new (id, argv);

  vmm_process_spec_set_owner (spec, start->vm_id, "tpm");
  vmm_process_spec_set_log (spec, start->log_path);
  vmm_process_spec_add_writable_path (spec, start->directory);
  if (relative)
    vmm_process_spec_set_directory (spec, start->directory);
  return spec;
}

static void
prepared_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  g_autoptr (GTask) task = user_data;
  Start *start = g_task_get_task_data (task);
  g_autoptr (VmmProcessSpec) spec = NULL;
  GCancellable *cancellable = g_task_get_cancellable (task);
  GError *error = NULL;

  if (!g_task_propagate_boolean (G_TASK (result), &error))
    {
      g_task_return_error (task, error);
      return;
    }
  spec = build_spec (start);
  vmm_launcher_start_async (start->launcher, spec, cancellable, started_cb,
                            g_steal_pointer (&task));
}

/* Makes the folder, removes the socket of an earlier run and puts its log aside; in a worker. */
static void
prepare_thread (GTask *task, gpointer source, gpointer data, GCancellable *cancellable)
{
  const char *directory = data;
  g_autofree char *socket_path = g_build_filename (directory, SOCKET_NAME, NULL);
  g_autofree char *log = g_build_filename (directory, "swtpm.log", NULL);
  g_autofree char *previous = g_build_filename (directory, "swtpm.prev.log", NULL);
  GError *error = NULL;

  if (!vmm_file_make_directory (directory, 0700, &error))
    g_task_return_error (task, error);
  else if (g_unlink (socket_path) != 0 && errno != ENOENT)
    g_task_return_error (task, vmm_error_new (VMM_ERROR_INTERNAL, "remove %s: %s", socket_path,
                                              g_strerror (errno)));
  else if (g_rename (log, previous) != 0 && errno != ENOENT)
    g_task_return_error (task, vmm_error_new (VMM_ERROR_INTERNAL, "rotate swtpm log: %s",
                                              g_strerror (errno)));
  else
    g_task_return_boolean (task, TRUE);
}

void
vmm_tpm_start_async (VmmLauncher *launcher, const char *vm_id, const char *directory,
                     GCancellable *cancellable, GAsyncReadyCallback callback, gpointer user_data)
{
  g_autoptr (GTask) task = NULL;
  g_autoptr (GTask) preparation = NULL;
  Start *start;

  g_return_if_fail (VMM_IS_LAUNCHER (launcher) && vm_id != NULL && directory != NULL);

  start = g_new0 (Start, 1);
  start->launcher = g_object_ref (launcher);
  start->vm_id = g_strdup (vm_id);
  start->directory = g_strdup (directory);
  start->socket_path = g_build_filename (directory, SOCKET_NAME, NULL);
  start->log_path = g_build_filename (directory, "swtpm.log", NULL);
  task = g_task_new (NULL, cancellable, callback, user_data);
  g_task_set_source_tag (task, vmm_tpm_start_async);
  g_task_set_task_data (task, start, start_free);
  g_task_set_check_cancellable (task, FALSE); /* a process that runs is never lost */
  if (strlen (start->socket_path) > VMM_SOCKET_PATH_MAX)
    {
      g_task_return_error (task, vmm_error_new (VMM_ERROR_INVALID_REQUEST,
                                                "TPM socket path exceeds %d bytes; use a shorter "
                                                "state dir",
                                                VMM_SOCKET_PATH_MAX));
      return;
    }
  preparation = g_task_new (NULL, NULL, prepared_cb, g_steal_pointer (&task));
  g_task_set_task_data (preparation, g_strdup (directory), g_free);
  g_task_run_in_thread (preparation, prepare_thread);
}

VmmProcess *
vmm_tpm_start_finish (GAsyncResult *result, GError **error)
{
  g_return_val_if_fail (g_async_result_is_tagged (result, vmm_tpm_start_async), NULL);

  return g_task_propagate_pointer (G_TASK (result), error);
}

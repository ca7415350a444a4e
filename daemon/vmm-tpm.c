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
#include "vmm-account.h"
#include "vmm-child-start.h"
#include "vmm-file.h"
#include "vmm-source.h"

#define ATTEMPT_MS 1000
#define LIMIT_MS 5000
#define SOCKET_NAME "swtpm.sock"
#define LOG_NAME "swtpm.log"
/* CMD_GET_CAPABILITY of swtpm's control channel (swtpm_ioctls(3)), and the size of its answer. */
#define PROBE_COMMAND 1
#define PROBE_ANSWER_SIZE 8

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

/* swtpm ends a value at a comma and knows no way to quote one: below such a folder it gets relative
 * paths and the folder as its own. */
static VmmProcessSpec *
build_spec (const char *vm_id, const char *directory, const char *socket_path, const char *log_path)
{
  gboolean relative = strchr (directory, ',') != NULL;
  g_autofree char *id = vmm_process_id_for_vm (vm_id, "tpm");
  g_autofree char *state = g_strdup_printf ("dir=%s", relative ? "." : directory);
  g_autofree char *control
      = g_strdup_printf ("type=unixio,path=%s", relative ? SOCKET_NAME : socket_path);
  const char *const argv[] = { "swtpm", "socket",      "--tpm2", "--tpmstate", state, "--ctrl",
                               control, "--terminate", "--log",  "level=2",    NULL };
  VmmProcessSpec *spec = vmm_process_spec_new (id, argv);

  vmm_process_spec_set_owner (spec, vm_id, "tpm");
  vmm_process_spec_set_log (spec, log_path);
  vmm_process_spec_add_writable_path (spec, directory);
  if (relative)
    vmm_process_spec_set_directory (spec, directory);
  return spec;
}

/* Makes the folder, and puts the log of an earlier run aside. */
static gboolean
prepare (const char *directory, GError **error)
{
  g_autofree char *log = g_build_filename (directory, LOG_NAME, NULL);
  g_autofree char *previous = g_build_filename (directory, "swtpm.prev.log", NULL);

  if (!vmm_file_make_directory (directory, 0700, error))
    return FALSE;
  if (g_rename (log, previous) != 0 && errno != ENOENT)
    {
      vmm_set_error (error, VMM_ERROR_INTERNAL, "rotate swtpm log: %s", g_strerror (errno));
      return FALSE;
    }
  /* The new log is not there yet: it is root's, who opens it for swtpm. */
  return vmm_account_let_in (directory, error) && vmm_account_give_contents (directory, error);
}

void
vmm_tpm_start_async (VmmLauncher *launcher, const char *vm_id, const char *directory,
                     GCancellable *cancellable, GAsyncReadyCallback callback, gpointer user_data)
{
  g_autofree char *socket_path = NULL;
  g_autofree char *log_path = NULL;
  g_autoptr (VmmProcessSpec) spec = NULL;
  VmmChildStart config = { 0 };

  g_return_if_fail (VMM_IS_LAUNCHER (launcher) && vm_id != NULL && directory != NULL);

  socket_path = g_build_filename (directory, SOCKET_NAME, NULL);
  log_path = g_build_filename (directory, LOG_NAME, NULL);
  spec = build_spec (vm_id, directory, socket_path, log_path);
  config.spec = spec;
  config.program = "swtpm";
  config.socket_name = "TPM";
  config.directory = directory;
  config.prepare = prepare;
  config.socket.socket_path = socket_path;
  config.socket.log_path = log_path;
  config.socket.exited_text = "swtpm exited before its control socket answered";
  config.socket.limit_format
      = "vtpm not responding: swtpm control socket %s did not answer within 5s (%s): %s";
  config.socket.attempt_ms = ATTEMPT_MS;
  config.socket.limit_ms = LIMIT_MS;
  config.socket.start = probe_start;
  config.socket.finish = probe_finish;
  vmm_child_start_async (launcher, &config, cancellable, callback, user_data);
}

VmmProcess *
vmm_tpm_start_finish (GAsyncResult *result, GError **error)
{
  return vmm_child_start_finish (result, error);
}

/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Makes the state of a new vTPM, once in a VM's life.
 *
 * swtpm would begin with a blank one by itself, but with four banks of PCRs: firmware and boot stub
 * then hash everything four times. swtpm_setup leaves one active.
 */

#include "config.h"

#include <string.h>

#include "interfaces/vmm-error.h"
#include "vmm-account.h"
#include "vmm-child-start.h"
#include "vmm-file.h"
#include "vmm-source.h"
#include "vmm-tpm.h"

#define PROGRAM "swtpm_setup"
#define LOG_NAME "swtpm-setup.log"
#define LIMIT_MS 30000
#define TAIL_SIZE 2048

typedef struct
{
  VmmProcess *process;
  gulong exited_handler;
  GSource *cancelled_source;
  guint limit_source;
  char *directory;
  GError *error; /* while it is being stopped */
} Setup;

static void
setup_free (gpointer data)
{
  Setup *setup = data;

  g_clear_object (&setup->process);
  g_clear_error (&setup->error);
  g_free (setup->directory);
  g_free (setup);
}

/* From here on one thing happens. */
static void
settle (Setup *setup)
{
  g_clear_signal_handler (&setup->exited_handler, setup->process);
  g_clear_handle_id (&setup->limit_source, g_source_remove);
  vmm_source_clear (&setup->cancelled_source);
}

static void
stopped_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  g_autoptr (GTask) task = user_data;
  Setup *setup = g_task_get_task_data (task);
  g_autoptr (GError) ignored = NULL; /* the first failure is the one to report */

  vmm_process_stop_finish (VMM_PROCESS (source), result, &ignored);
  g_task_return_error (task, g_steal_pointer (&setup->error));
}

static void
give_up (GTask *task, GError *error)
{
  Setup *setup = g_task_get_task_data (task);

  setup->error = error;
  settle (setup);
  vmm_process_stop_async (setup->process, 0, NULL, stopped_cb, task);
}

static gboolean
limit_cb (gpointer user_data)
{
  Setup *setup = g_task_get_task_data (user_data);

  setup->limit_source = 0;
  give_up (user_data, vmm_error_new (VMM_ERROR_INTERNAL, PROGRAM " did not end within %d s",
                                     LIMIT_MS / 1000));
  return G_SOURCE_REMOVE;
}

static gboolean
cancelled_cb (GCancellable *cancellable, gpointer user_data)
{
  give_up (user_data, g_error_new_literal (G_IO_ERROR, G_IO_ERROR_CANCELLED,
                                           "Operation was cancelled"));
  return G_SOURCE_REMOVE;
}

static void
tail_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  g_autoptr (GTask) task = user_data;
  Setup *setup = g_task_get_task_data (task);
  g_autoptr (GBytes) tail = vmm_file_read_tail_finish (result, NULL, NULL);
  gsize size = 0;
  const char *data = tail != NULL ? g_bytes_get_data (tail, &size) : NULL;
  g_autofree char *text = g_utf8_make_valid (data != NULL ? data : "", (gssize) size);

  g_strstrip (text);
  g_task_return_error (task, vmm_error_new (VMM_ERROR_INTERNAL, PROGRAM " failed (%s): %s",
                                            vmm_process_get_exit_text (setup->process),
                                            text[0] != '\0' ? text : "no output"));
}

static void
ended (GTask *task)
{
  Setup *setup = g_task_get_task_data (task);
  g_autofree char *log = NULL;

  settle (setup);
  if (vmm_exit_status_is_success (vmm_process_get_exit_status (setup->process)))
    {
      g_task_return_boolean (task, TRUE);
      g_object_unref (task);
      return;
    }
  log = g_build_filename (setup->directory, LOG_NAME, NULL);
  vmm_file_read_tail_async (log, TAIL_SIZE, NULL, tail_cb, task);
}

static void
exited_cb (VmmProcess *process, gconstpointer status, const char *text, gpointer user_data)
{
  ended (user_data);
}

static void
started_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  GTask *task = user_data;
  Setup *setup = g_task_get_task_data (task);
  GError *error = NULL;

  setup->process = vmm_launcher_start_finish (VMM_LAUNCHER (source), result, &error);
  if (setup->process == NULL)
    {
      g_task_return_error (task, error);
      g_object_unref (task);
      return;
    }
  if (vmm_process_has_exited (setup->process))
    {
      ended (task);
      return;
    }
  setup->exited_handler
      = g_signal_connect (setup->process, "exited", G_CALLBACK (exited_cb), task);
  setup->limit_source = g_timeout_add (LIMIT_MS, limit_cb, task);
  setup->cancelled_source
      = vmm_source_new_cancelled (g_task_get_cancellable (task), cancelled_cb, task);
}

/* The folder as its own, because a value ends at a comma for swtpm. */
static VmmProcessSpec *
build_spec (const char *vm_id, const char *directory)
{
  g_autofree char *id = vmm_process_id_for_vm (vm_id, "tpm-setup");
  g_autofree char *log = g_build_filename (directory, LOG_NAME, NULL);
  const char *const argv[]
      = { PROGRAM, "--tpm2", "--tpm-state", "dir://.", "--pcr-banks", "sha256", NULL };
  VmmProcessSpec *spec = vmm_process_spec_new (id, argv);

  vmm_process_spec_set_owner (spec, vm_id, "tpm-setup");
  vmm_process_spec_set_log (spec, log);
  vmm_process_spec_add_writable_path (spec, directory);
  vmm_process_spec_set_directory (spec, directory);
  return spec;
}

void
vmm_tpm_setup_async (VmmLauncher *launcher, const char *vm_id, const char *directory,
                     GCancellable *cancellable, GAsyncReadyCallback callback, gpointer user_data)
{
  GTask *task = g_task_new (NULL, cancellable, callback, user_data);
  Setup *setup = g_new0 (Setup, 1);
  g_autoptr (VmmProcessSpec) spec = build_spec (vm_id, directory);
  GError *error = NULL;

  g_task_set_source_tag (task, vmm_tpm_setup_async);
  g_task_set_check_cancellable (task, FALSE); /* a process that runs is never lost */
  g_task_set_task_data (task, setup, setup_free);
  setup->directory = g_strdup (directory);
  if (!vmm_file_make_directory (directory, 0700, &error)
      || !vmm_account_let_in (directory, &error))
    {
      g_task_return_error (task, error);
      g_object_unref (task);
      return;
    }
  vmm_launcher_start_async (launcher, spec, cancellable, started_cb, task);
}

gboolean
vmm_tpm_setup_finish (GAsyncResult *result, GError **error)
{
  g_return_val_if_fail (g_async_result_is_tagged (result, vmm_tpm_setup_async), FALSE);

  return g_task_propagate_boolean (G_TASK (result), error);
}

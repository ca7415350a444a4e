/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Asks an outside program one question.
 *
 * Three things go on at once: stdout and stderr are read and the end is waited for. The answer is
 * given when all three are over. A program that takes too long, writes too much or is not wanted
 * any more is killed and its pipes are left, because a child of its own may hold them open.
 */

#include "config.h"

#include "vmm-host-probe.h"

#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "interfaces/vmm-error.h"
#include "vmm-source.h"

#define MAX_OUTPUT (64 * 1024)
#define READ_SIZE 4096
#define MAX_SHOWN 200

typedef struct
{
  GString *text;
  GInputStream *stream;
} Output;

typedef struct
{
  GSubprocess *process;
  GCancellable *reading;
  GSource *timer;
  GSource *cancel_source;
  Output out;
  Output err;
  guint limit_ms;
  int success;
  const char *hopeless;
  guint n_pending;
  GError *error; /* why it was killed */
} Probe;

static void
probe_free (Probe *probe)
{
  vmm_source_clear (&probe->timer);
  vmm_source_clear (&probe->cancel_source);
  g_clear_object (&probe->process);
  g_clear_object (&probe->reading);
  g_string_free (probe->out.text, TRUE);
  g_string_free (probe->err.text, TRUE);
  g_clear_error (&probe->error);
  g_free (probe);
}

/* The first line, as UTF-8 and not too long. */
static char *
first_line (const char *text)
{
  gsize length = MIN (strcspn (text, "\n"), MAX_SHOWN);
  char *line = g_utf8_make_valid (text, (gssize) length);

  return g_strstrip (line);
}

static GError *
failure_of (Probe *probe)
{
  g_autofree char *said = first_line (probe->err.text->str);
  const char *separator = said[0] != '\0' ? ": " : "";

  if (g_subprocess_get_if_signaled (probe->process))
    return vmm_error_new (VMM_ERROR_INTERNAL, "ended by signal %d%s%s",
                          g_subprocess_get_term_sig (probe->process), separator, said);
  return vmm_error_new (VMM_ERROR_INTERNAL, "exit status %d%s%s",
                        g_subprocess_get_exit_status (probe->process), separator, said);
}

/* One of the three is over. Releases its reference on the task. */
static void
finish_part (GTask *task)
{
  Probe *probe = g_task_get_task_data (task);

  if (--probe->n_pending == 0)
    {
      vmm_source_clear (&probe->timer);
      vmm_source_clear (&probe->cancel_source);
      if (probe->error != NULL)
        g_task_return_error (task, g_steal_pointer (&probe->error));
      else if (!g_subprocess_get_if_exited (probe->process)
               || g_subprocess_get_exit_status (probe->process) != probe->success)
        g_task_return_error (task, failure_of (probe));
      else
        g_task_return_pointer (task, g_strdup (probe->out.text->str), g_free);
    }
  g_object_unref (task);
}

/* Takes the error; the first one counts. */
static void
give_up (Probe *probe, GError *error)
{
  if (probe->error != NULL)
    {
      g_error_free (error);
      return;
    }
  probe->error = error;
  g_subprocess_force_exit (probe->process);
  g_cancellable_cancel (probe->reading);
}

/* What it wrote so far says that waiting is of no use. */
static void
look_at_output (Probe *probe, Output *output)
{
  g_autofree char *said = NULL;

  if (output->text->len > MAX_OUTPUT)
    {
      give_up (probe, vmm_error_new (VMM_ERROR_INTERNAL, "wrote more than %d bytes", MAX_OUTPUT));
      return;
    }
  if (output != &probe->err || probe->hopeless == NULL
      || strstr (output->text->str, probe->hopeless) == NULL)
    return;
  said = first_line (strstr (output->text->str, probe->hopeless));
  give_up (probe, vmm_error_new (VMM_ERROR_INTERNAL, "%s", said));
}

static void read_more (GTask *task, Output *output);

static void
read_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  GTask *task = user_data;
  Probe *probe = g_task_get_task_data (task);
  GInputStream *stream = G_INPUT_STREAM (source);
  Output *output = stream == probe->out.stream ? &probe->out : &probe->err;
  g_autoptr (GBytes) bytes = g_input_stream_read_bytes_finish (stream, result, NULL);
  gsize length;
  gconstpointer data;

  /* An error is our own cancel, or like an end. */
  if (bytes == NULL || g_bytes_get_size (bytes) == 0)
    {
      finish_part (task);
      return;
    }

  data = g_bytes_get_data (bytes, &length);
  g_string_append_len (output->text, data, (gssize) length);
  look_at_output (probe, output);
  read_more (task, output);
}

/* Passes the reference on the task on. */
static void
read_more (GTask *task, Output *output)
{
  Probe *probe = g_task_get_task_data (task);

  g_input_stream_read_bytes_async (output->stream, READ_SIZE, G_PRIORITY_DEFAULT, probe->reading,
                                   read_cb, task);
}

static void
exited_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  g_subprocess_wait_finish (G_SUBPROCESS (source), result, NULL);
  finish_part (user_data);
}

static gboolean
late_cb (gpointer user_data)
{
  Probe *probe = g_task_get_task_data (user_data);

  give_up (probe, g_error_new (G_IO_ERROR, G_IO_ERROR_TIMED_OUT, "no answer within %g s",
                               (double) probe->limit_ms / 1000));
  return G_SOURCE_REMOVE;
}

static gboolean
cancelled_cb (GCancellable *cancellable, gpointer user_data)
{
  give_up (g_task_get_task_data (user_data),
           g_error_new_literal (G_IO_ERROR, G_IO_ERROR_CANCELLED, "probe was cancelled"));
  return G_SOURCE_REMOVE;
}

/* Only what a program needs to say who it is: nothing of the daemon's own environment. */
static GStrv
small_environment (void)
{
  static const char *const kept[] = { "PATH", "HOME", "LD_LIBRARY_PATH" };
  GStrv environment = g_environ_setenv (NULL, "LC_ALL", "C", TRUE);

  for (guint i = 0; i < G_N_ELEMENTS (kept); i++)
    if (g_getenv (kept[i]) != NULL)
      environment = g_environ_setenv (environment, kept[i], g_getenv (kept[i]), TRUE);
  return environment;
}

/* In the child, before it is another program. */
static void
child_setup (gpointer user_data)
{
  const struct rlimit none = { 0, 0 };

  prctl (PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
  setrlimit (RLIMIT_CORE, &none); /* one that aborts has said why */
}

static GSubprocess *
spawn (const VmmHostProbe *what, GError **error)
{
  g_autoptr (GSubprocessLauncher) launcher
      = g_subprocess_launcher_new (G_SUBPROCESS_FLAGS_STDOUT_PIPE | G_SUBPROCESS_FLAGS_STDERR_PIPE);
  g_auto (GStrv) environment = small_environment ();

  g_subprocess_launcher_set_environ (launcher, environment);
  g_subprocess_launcher_set_child_setup (launcher, child_setup, NULL, NULL);
  if (what->fd >= 0)
    g_subprocess_launcher_take_fd (launcher, what->fd, VMM_HOST_PROBE_FD);
  return g_subprocess_launcher_spawnv (launcher, what->argv, error);
}

static void
start_timer (GTask *task)
{
  Probe *probe = g_task_get_task_data (task);
  GCancellable *cancellable = g_task_get_cancellable (task);

  probe->timer = g_timeout_source_new (probe->limit_ms);
  g_source_set_callback (probe->timer, late_cb, task, NULL);
  g_source_attach (probe->timer, NULL);
  probe->cancel_source = vmm_source_new_cancelled (cancellable, cancelled_cb, task);
}

static Probe *
probe_new (const VmmHostProbe *what)
{
  Probe *probe = g_new0 (Probe, 1);

  probe->limit_ms = what->limit_ms;
  probe->success = what->success;
  probe->hopeless = what->hopeless;
  probe->out.text = g_string_new (NULL);
  probe->err.text = g_string_new (NULL);
  probe->reading = g_cancellable_new ();
  return probe;
}

void
vmm_host_probe_run_async (const VmmHostProbe *what, GCancellable *cancellable,
                          GAsyncReadyCallback callback, gpointer user_data)
{
  g_autoptr (GTask) task = g_task_new (NULL, cancellable, callback, user_data);
  GError *error = NULL;
  Probe *probe = probe_new (what);

  g_task_set_source_tag (task, vmm_host_probe_run_async);
  g_task_set_task_data (task, probe, (GDestroyNotify) probe_free);
  if (g_cancellable_set_error_if_cancelled (cancellable, &error))
    {
      if (what->fd >= 0)
        close (what->fd);
      g_task_return_error (task, error);
      return;
    }
  probe->process = spawn (what, &error);
  if (probe->process == NULL)
    {
      g_task_return_error (task, error);
      return;
    }

  probe->out.stream = g_subprocess_get_stdout_pipe (probe->process);
  probe->err.stream = g_subprocess_get_stderr_pipe (probe->process);
  probe->n_pending = 3;
  start_timer (task);
  read_more (g_object_ref (task), &probe->out);
  read_more (g_object_ref (task), &probe->err);
  g_subprocess_wait_async (probe->process, NULL, exited_cb, g_object_ref (task));
}

void
vmm_host_probe_async (const char *const *argv, guint limit_ms, GCancellable *cancellable,
                      GAsyncReadyCallback callback, gpointer user_data)
{
  const VmmHostProbe what = { .argv = argv, .limit_ms = limit_ms, .fd = -1 };

  vmm_host_probe_run_async (&what, cancellable, callback, user_data);
}

char *
vmm_host_probe_finish (GAsyncResult *result, GError **error)
{
  g_return_val_if_fail (g_task_is_valid (result, NULL), NULL);

  return g_task_propagate_pointer (G_TASK (result), error);
}

char *
vmm_host_probe_parse_version (const char *output, const char *word)
{
  g_autofree char *line = first_line (output);
  g_auto (GStrv) fields = g_strsplit_set (line, " \t", -1);
  gboolean behind_word = FALSE;

  for (guint i = 0; fields[i] != NULL; i++)
    {
      gsize length = strlen (fields[i]);

      if (length == 0)
        continue;
      if (!behind_word)
        {
          behind_word = strcmp (fields[i], word) == 0;
          continue;
        }
      while (length > 0 && strchr (",;", fields[i][length - 1]) != NULL)
        length--;
      return length > 0 ? g_strndup (fields[i], length) : NULL;
    }
  return NULL;
}

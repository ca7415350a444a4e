/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Dials a program that was just started.
 *
 * A socket that exists proves nothing: the program may not serve it yet, or never. So an attempt
 * is a connection and a real question, it has its own time limit, and the next one follows after a
 * short pause until the overall limit. The program's exit ends it at once. As long as there is no
 * socket nothing is tried: its appearance is an event. That its owner listens is none, but follows
 * within a system call or two.
 *
 * QEMU's control socket, swtpm's and the monitor's differ only in the question and in the texts.
 */
#include "config.h"

#include "vmm-child-socket.h"

#include <errno.h>
#include <gio/gunixsocketaddress.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "interfaces/vmm-error.h"
#include "vmm-arrival-watch.h"
#include "vmm-file.h"
#include "vmm-source.h"

/* Between two attempts; the first ones follow closely. */
#define PAUSE_FIRST_MS 1
#define PAUSE_MS 20
#define TAIL_SIZE (8 * 1024)

typedef struct
{
  GTask *task; /* until it is settled */
  VmmChildSocket config;
  char *socket_path;
  char *log_path;
  char *limit_format;
  char *exited_text;
  char *last_failure;
  GCancellable *attempt; /* of the running handshake */
  GSource *cancelled_source;
  gulong exited_handler;
  VmmArrivalWatch *arrival; /* NULL where none can be had: then it is tried again and again */
  guint limit_source;
  guint attempt_source;
  guint pause_source;
  guint pause_ms;
  gboolean was_answered; /* but not as it should be: what was wrong tells the most */
  gboolean ended_by_exit;
} Dial;

static void try_now (Dial *dial);

/* Stops everything that could still happen; the task is handed to the caller. */
static GTask *
settle (Dial *dial)
{
  GTask *task = g_steal_pointer (&dial->task);

  vmm_source_clear (&dial->cancelled_source);
  if (dial->config.process != NULL)
    g_clear_signal_handler (&dial->exited_handler, dial->config.process);
  g_clear_handle_id (&dial->limit_source, g_source_remove);
  g_clear_handle_id (&dial->attempt_source, g_source_remove);
  g_clear_handle_id (&dial->pause_source, g_source_remove);
  g_clear_pointer (&dial->arrival, vmm_arrival_watch_free);
  if (dial->attempt != NULL)
    g_cancellable_cancel (dial->attempt);
  g_clear_object (&dial->attempt);
  return task;
}

static void
dial_free (gpointer data)
{
  Dial *dial = data;

  g_clear_object (&dial->config.process);
  g_free (dial->socket_path);
  g_free (dial->log_path);
  g_free (dial->limit_format);
  g_free (dial->exited_text);
  g_free (dial->last_failure);
  g_free (dial);
}

/* A program's last words: valid text without control characters, "no output" for none. */
static char *
tidy_tail (GBytes *tail)
{
  gsize size = 0;
  const char *data = tail != NULL ? g_bytes_get_data (tail, &size) : NULL;
  g_autofree char *text = g_utf8_make_valid (data != NULL ? data : "", size);

  for (char *c = text; *c != '\0'; c++)
    if (g_ascii_iscntrl (*c) && *c != '\n' && *c != '\t')
      *c = '?';
  g_strstrip (text);
  return g_strdup (*text != '\0' ? text : "no output");
}

/* The format is one of this daemon's, never a peer's: three strings, given in order. */
static char *
format_limit (const Dial *dial, const char *tail)
{
  g_auto (GStrv) parts = g_strsplit (dial->limit_format, "%s", 4);

  g_assert (g_strv_length (parts) == 4);
  return g_strconcat (parts[0], dial->socket_path, parts[1],
                      dial->last_failure != NULL ? dial->last_failure : "no attempt was made",
                      parts[2], tail, parts[3], NULL);
}

static void
report (GTask *task, GBytes *log)
{
  Dial *dial = g_task_get_task_data (task);
  g_autofree char *tail = tidy_tail (log);
  g_autofree char *message = NULL;

  if (dial->ended_by_exit)
    message = g_strdup_printf ("%s (%s): %s", dial->exited_text,
                               vmm_process_get_exit_text (dial->config.process), tail);
  else
    message = format_limit (dial, tail);
  g_task_return_error (task, vmm_error_new (VMM_ERROR_INTERNAL, "%s", message));
}

static void
tail_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  g_autoptr (GTask) task = user_data;
  g_autoptr (GError) ignored = NULL; /* the log only adds to the message */
  g_autoptr (GBytes) tail = vmm_file_read_tail_finish (result, NULL, &ignored);

  report (task, tail);
}

static void
give_up (Dial *dial)
{
  g_autoptr (GTask) task = settle (dial);

  if (dial->log_path == NULL)
    {
      report (task, NULL);
      return;
    }
  vmm_file_read_tail_async (dial->log_path, TAIL_SIZE, NULL, tail_cb, g_steal_pointer (&task));
}

static void
exited_cb (VmmProcess *process, const VmmExitStatus *status, const char *text, gpointer user_data)
{
  Dial *dial = user_data;

  dial->ended_by_exit = TRUE;
  give_up (dial);
}

static gboolean
limit_cb (gpointer user_data)
{
  Dial *dial = user_data;

  dial->limit_source = 0;
  if (dial->attempt != NULL && !dial->was_answered)
    {
      g_free (dial->last_failure);
      dial->last_failure = g_strdup ("no answer");
    }
  give_up (dial);
  return G_SOURCE_REMOVE;
}

static gboolean
cancelled_cb (GCancellable *cancellable, gpointer user_data)
{
  g_autoptr (GTask) task = settle (user_data);

  g_task_return_new_error (task, G_IO_ERROR, G_IO_ERROR_CANCELLED, "Operation was cancelled");
  return G_SOURCE_REMOVE;
}

static gboolean
pause_cb (gpointer user_data)
{
  Dial *dial = user_data;

  dial->pause_source = 0;
  try_now (dial);
  return G_SOURCE_REMOVE;
}

static void
note_failure (Dial *dial, const char *failure)
{
  g_free (dial->last_failure);
  dial->last_failure = g_strdup (failure);
}

static void
try_later (Dial *dial, const char *failure)
{
  note_failure (dial, failure);
  dial->pause_source = g_timeout_add (dial->pause_ms, pause_cb, dial);
  dial->pause_ms = MIN (dial->pause_ms * 2, PAUSE_MS);
}

static void
arrived_cb (gpointer user_data)
{
  Dial *dial = user_data;

  if (dial->attempt != NULL)
    return;
  g_clear_handle_id (&dial->pause_source, g_source_remove);
  try_now (dial);
}

static void
fail_to_connect (Dial *dial, const GError *error)
{
  if (dial->arrival != NULL && g_error_matches (error, G_IO_ERROR, G_IO_ERROR_NOT_FOUND))
    note_failure (dial, error->message);
  else
    try_later (dial, error->message);
}

static gboolean
attempt_limit_cb (gpointer user_data)
{
  Dial *dial = user_data;
  g_autofree char *failure = g_strdup_printf ("no answer within %u ms", dial->config.attempt_ms);

  dial->attempt_source = 0;
  g_cancellable_cancel (dial->attempt);
  g_clear_object (&dial->attempt);
  try_later (dial, failure);
  return G_SOURCE_REMOVE;
}

typedef struct
{
  GTask *task;
  GCancellable *attempt;
} Attempt;

static void
handshake_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  Attempt *attempt = user_data;
  g_autoptr (GTask) task = attempt->task;
  g_autoptr (GCancellable) cancellable = attempt->attempt;
  g_autoptr (GError) error = NULL;
  Dial *dial = g_task_get_task_data (task);
  g_autoptr (GObject) answer = dial->config.finish (result, &error);

  g_free (attempt);
  if (dial->task == NULL || dial->attempt != cancellable)
    return; /* too late: settled, or given up for another attempt */
  g_clear_handle_id (&dial->attempt_source, g_source_remove);
  g_clear_object (&dial->attempt);
  if (answer == NULL && error->domain != VMM_ERROR)
    {
      dial->was_answered = TRUE;
      try_later (dial, error->message);
      return;
    }
  g_object_unref (settle (dial));
  if (answer != NULL)
    g_task_return_pointer (task, g_steal_pointer (&answer), g_object_unref);
  else
    g_task_return_error (task, g_steal_pointer (&error));
}

/* Connecting to a Unix socket never waits: it works at once or fails at once. */
static GSocket *
connect_now (const char *path, GError **error)
{
  g_autoptr (GSocketAddress) address = g_unix_socket_address_new (path);
  g_autoptr (GSocket) socket
      = g_socket_new (G_SOCKET_FAMILY_UNIX, G_SOCKET_TYPE_STREAM, G_SOCKET_PROTOCOL_DEFAULT, error);

  if (socket == NULL)
    return NULL;
  g_socket_set_blocking (socket, FALSE);
  if (!g_socket_connect (socket, address, NULL, error))
    return NULL;
  return g_steal_pointer (&socket);
}

/* Whether a stream socket is bound to the path by somebody who is there, without connecting to it:
 * one of another type is told so. Between that and listen() is no more than one system call. */
static gboolean
is_bound (const char *path, GError **error)
{
  struct sockaddr_un address = { .sun_family = AF_UNIX };
  int fd = socket (AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  int number = errno;

  g_strlcpy (address.sun_path, path, sizeof address.sun_path);
  if (fd >= 0)
    {
      connect (fd, (const struct sockaddr *) &address, sizeof address);
      number = errno;
      close (fd);
    }
  if (number == EPROTOTYPE)
    return TRUE;
  g_set_error_literal (error, G_IO_ERROR, g_io_error_from_errno (number), g_strerror (number));
  return FALSE;
}

static void
look_now (Dial *dial)
{
  g_autoptr (GError) error = NULL;
  g_autoptr (GTask) task = NULL;

  if (!is_bound (dial->socket_path, &error))
    {
      fail_to_connect (dial, error);
      return;
    }
  task = settle (dial);
  g_task_return_pointer (task, g_object_ref (dial->config.process), g_object_unref);
}

static void
try_now (Dial *dial)
{
  g_autoptr (GError) error = NULL;
  g_autoptr (GSocket) socket = NULL;
  Attempt *attempt;

  if (dial->config.start == NULL)
    {
      look_now (dial);
      return;
    }
  socket = connect_now (dial->socket_path, &error);
  if (socket == NULL)
    {
      fail_to_connect (dial, error);
      return;
    }
  dial->attempt = g_cancellable_new ();
  dial->attempt_source = g_timeout_add (dial->config.attempt_ms, attempt_limit_cb, dial);
  attempt = g_new0 (Attempt, 1);
  attempt->task = g_object_ref (dial->task);
  attempt->attempt = g_object_ref (dial->attempt);
  dial->config.start (socket, dial->attempt, handshake_cb, attempt);
}

static Dial *
dial_new (const VmmChildSocket *config)
{
  Dial *dial = g_new0 (Dial, 1);

  dial->config = *config;
  if (config->process != NULL)
    g_object_ref (config->process);
  dial->socket_path = g_strdup (config->socket_path);
  dial->log_path = g_strdup (config->log_path);
  dial->limit_format = g_strdup (config->limit_format);
  dial->exited_text = g_strdup (config->exited_text);
  dial->pause_ms = PAUSE_FIRST_MS;
  return dial;
}

static void
watch (Dial *dial, GCancellable *cancellable)
{
  dial->arrival = vmm_arrival_watch_new (dial->socket_path, arrived_cb, dial);
  dial->limit_source = g_timeout_add (dial->config.limit_ms, limit_cb, dial);
  if (dial->config.process != NULL)
    dial->exited_handler
        = g_signal_connect (dial->config.process, "exited", G_CALLBACK (exited_cb), dial);
  dial->cancelled_source = vmm_source_new_cancelled (cancellable, cancelled_cb, dial);
}

void
vmm_child_socket_dial_async (const VmmChildSocket *config, GCancellable *cancellable,
                             GAsyncReadyCallback callback, gpointer user_data)
{
  g_autoptr (GTask) task = g_task_new (NULL, cancellable, callback, user_data);
  Dial *dial = dial_new (config);

  g_task_set_source_tag (task, vmm_child_socket_dial_async);
  g_task_set_task_data (task, dial, dial_free);
  g_task_set_check_cancellable (task, FALSE); /* an answer that came is never thrown away */
  if (strlen (config->socket_path) > VMM_SOCKET_PATH_MAX)
    {
      g_task_return_error (task, vmm_error_new (VMM_ERROR_INVALID_REQUEST,
                                                "socket path %s exceeds %d bytes; use a shorter "
                                                "state dir",
                                                config->socket_path, VMM_SOCKET_PATH_MAX));
      return;
    }
  dial->task = g_object_ref (task);
  if (config->process != NULL && vmm_process_has_exited (config->process))
    {
      dial->ended_by_exit = TRUE;
      give_up (dial);
      return;
    }
  watch (dial, cancellable);
  try_now (dial);
}

GObject *
vmm_child_socket_dial_finish (GAsyncResult *result, GError **error)
{
  g_return_val_if_fail (g_async_result_is_tagged (result, vmm_child_socket_dial_async), NULL);

  return g_task_propagate_pointer (G_TASK (result), error);
}

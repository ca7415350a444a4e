/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* A process that a launcher started or found again.
 *
 * The base class keeps what all launchers share: the handle for the record, the exit status with
 * its text and ::exited, which is emitted exactly once. It also has defaults that need no more than
 * a handle with a process id: signals through a pidfd, stopping (TERM, then KILL after a grace) and
 * usage from /proc. A launcher derives from it, watches the process in its own way and calls
 * vmm_process_exited() at the end.
 */

#include "vmm-process.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "vmm-error.h"

/* How long a process may survive KILL before stopping it is given up. */
#define KILL_LIMIT_S 10

typedef struct
{
  VmmProcessHandle *handle;
  VmmExitStatus exit_status;
  char *exit_text;
  gboolean has_exited;
} VmmProcessPrivate;

/* The task data of a stop. */
typedef struct
{
  gulong exited_id;
  guint timer_id;
  GCancellable *cancellable;
  gulong cancelled_id;
  gboolean killed;
} Stop;

enum
{
  SIGNAL_EXITED,
  N_SIGNALS,
};

static guint signals[N_SIGNALS];

G_DEFINE_ABSTRACT_TYPE_WITH_PRIVATE (VmmProcess, vmm_process, G_TYPE_OBJECT)

static VmmProcessPrivate *
get_private (VmmProcess *self)
{
  return vmm_process_get_instance_private (self);
}

/* Whether the handle names a process that still is the same one. */
static gboolean
is_same_process (const VmmProcessHandle *handle)
{
  guint64 recorded, actual;

  if (handle == NULL)
    return FALSE;
  recorded = vmm_process_handle_get_start_time (handle);
  return recorded != 0 && vmm_process_read_start_time (vmm_process_handle_get_pid (handle), &actual)
         && actual == recorded;
}

static void
set_finished_error (GError **error)
{
  vmm_set_error (error, VMM_ERROR_CONFLICT, "process already finished");
}

/* The descriptor is opened before the start time is compared, so that the signal cannot reach
 * another process that has got the id meanwhile. */
static gboolean
real_send_signal (VmmProcess *self, int signum, GError **error)
{
  const VmmProcessHandle *handle = get_private (self)->handle;
  int fd, saved_errno = 0;

  if (handle == NULL || vmm_process_handle_get_pid (handle) <= 0)
    {
      vmm_set_error (error, VMM_ERROR_UNSUPPORTED, "process has no id to send a signal to");
      return FALSE;
    }

  fd = (int) syscall (SYS_pidfd_open, (pid_t) vmm_process_handle_get_pid (handle), 0);
  if (fd < 0)
    saved_errno = errno;
  else if (!is_same_process (handle))
    saved_errno = ESRCH;
  else if (syscall (SYS_pidfd_send_signal, fd, signum, NULL, 0) < 0)
    saved_errno = errno;
  if (fd >= 0)
    close (fd);

  if (saved_errno == 0)
    return TRUE;
  if (saved_errno == ESRCH)
    set_finished_error (error);
  else
    vmm_set_error (error, VMM_ERROR_INTERNAL, "send signal %d to process %" G_GINT64_FORMAT ": %s",
                   signum, vmm_process_handle_get_pid (handle), g_strerror (saved_errno));
  return FALSE;
}

static void
stop_free (gpointer data)
{
  Stop *stop = data;

  g_clear_object (&stop->cancellable);
  g_free (stop);
}

/* Lets go of everything that could call back. The task is returned right after. */
static void
stop_disarm (GTask *task)
{
  Stop *stop = g_task_get_task_data (task);

  g_clear_signal_handler (&stop->exited_id, g_task_get_source_object (task));
  g_clear_handle_id (&stop->timer_id, g_source_remove);
  g_clear_signal_handler (&stop->cancelled_id, stop->cancellable);
}

static void stop_signal (GTask *task, int signum, guint wait_ms);

static gboolean
stop_timer_cb (gpointer user_data)
{
  g_autoptr (GTask) task = g_object_ref (G_TASK (user_data));
  Stop *stop = g_task_get_task_data (task);

  stop->timer_id = 0;
  if (!stop->killed)
    {
      stop->killed = TRUE;
      stop_signal (task, SIGKILL, KILL_LIMIT_S * 1000);
      return G_SOURCE_REMOVE;
    }

  stop_disarm (task);
  g_task_return_error (task, vmm_error_new (VMM_ERROR_TIMEOUT,
                                            "process survived KILL for %d seconds", KILL_LIMIT_S));
  return G_SOURCE_REMOVE;
}

static void
stop_exited_cb (VmmProcess *process, const VmmExitStatus *status, const char *text,
                gpointer user_data)
{
  g_autoptr (GTask) task = g_object_ref (G_TASK (user_data));

  stop_disarm (task);
  g_task_return_boolean (task, TRUE);
}

/* On the main context, because an idle source brings it here; GTask then reports the cancelling. */
static gboolean
stop_cancelled_idle_cb (gpointer user_data)
{
  GTask *task = user_data;
  Stop *stop = g_task_get_task_data (task);

  if (stop->exited_id != 0)
    {
      stop_disarm (task);
      g_task_return_error_if_cancelled (task);
    }
  return G_SOURCE_REMOVE;
}

static void
stop_cancelled_cb (GCancellable *cancellable, gpointer user_data)
{
  g_idle_add_full (G_PRIORITY_DEFAULT, stop_cancelled_idle_cb, g_object_ref (user_data),
                   g_object_unref);
}

static void
task_closure_notify (gpointer data, GClosure *closure)
{
  g_object_unref (data);
}

/* Sends a signal and waits for the exit. A process that has just ended cannot be signalled any
 * more, but its exit is still on the way. */
static void
stop_signal (GTask *task, int signum, guint wait_ms)
{
  VmmProcess *self = g_task_get_source_object (task);
  Stop *stop = g_task_get_task_data (task);
  g_autoptr (GError) error = NULL;
  gboolean sent = vmm_process_send_signal (self, signum, &error);

  if (stop->exited_id == 0)
    return; /* it ended while we sent the signal */
  if (!sent && !g_error_matches (error, VMM_ERROR, VMM_ERROR_CONFLICT))
    {
      stop_disarm (task);
      g_task_return_error (task, g_steal_pointer (&error));
      return;
    }
  stop->timer_id = g_timeout_add (wait_ms, stop_timer_cb, task);
}

static void
real_stop_async (VmmProcess *self, guint grace_ms, GCancellable *cancellable,
                 GAsyncReadyCallback callback, gpointer user_data)
{
  g_autoptr (GTask) task = g_task_new (self, cancellable, callback, user_data);
  Stop *stop = g_new0 (Stop, 1);

  g_task_set_source_tag (task, real_stop_async);
  g_task_set_task_data (task, stop, stop_free);

  if (get_private (self)->has_exited)
    {
      g_task_return_boolean (task, TRUE);
      return;
    }
  if (g_task_return_error_if_cancelled (task))
    return;

  stop->exited_id = g_signal_connect_data (self, "exited", G_CALLBACK (stop_exited_cb),
                                           g_object_ref (task), task_closure_notify, 0);
  if (cancellable != NULL)
    {
      stop->cancellable = g_object_ref (cancellable);
      stop->cancelled_id
          = g_signal_connect (cancellable, "cancelled", G_CALLBACK (stop_cancelled_cb), task);
    }

  stop->killed = grace_ms == 0;
  if (stop->killed)
    stop_signal (task, SIGKILL, KILL_LIMIT_S * 1000);
  else
    stop_signal (task, SIGTERM, grace_ms);
}

static gboolean
real_stop_finish (VmmProcess *self, GAsyncResult *result, GError **error)
{
  g_return_val_if_fail (g_task_is_valid (result, self), FALSE);

  return g_task_propagate_boolean (G_TASK (result), error);
}

static gboolean
real_get_usage (VmmProcess *self, VmmProcessUsage *usage)
{
  const VmmProcessHandle *handle = get_private (self)->handle;

  return is_same_process (handle)
         && vmm_process_read_usage (vmm_process_handle_get_pid (handle), usage);
}

static void
real_detach (VmmProcess *self)
{
}

static void
vmm_process_finalize (GObject *object)
{
  VmmProcessPrivate *priv = get_private (VMM_PROCESS (object));

  g_clear_pointer (&priv->handle, vmm_process_handle_free);
  g_free (priv->exit_text);
  G_OBJECT_CLASS (vmm_process_parent_class)->finalize (object);
}

static void
vmm_process_class_init (VmmProcessClass *klass)
{
  G_OBJECT_CLASS (klass)->finalize = vmm_process_finalize;
  klass->send_signal = real_send_signal;
  klass->stop_async = real_stop_async;
  klass->stop_finish = real_stop_finish;
  klass->get_usage = real_get_usage;
  klass->detach = real_detach;

  /**
   * VmmProcess::exited:
   * @self: the process
   * @status: how it ended
   * @text: the same for people, such as `exit status 1`
   *
   * The process has ended. Emitted exactly once, on the main context. Who gets hold of a process
   * later asks vmm_process_has_exited() first.
   */
  signals[SIGNAL_EXITED]
      = g_signal_new ("exited", G_TYPE_FROM_CLASS (klass), G_SIGNAL_RUN_LAST, 0, NULL, NULL, NULL,
                      G_TYPE_NONE, 2, VMM_TYPE_EXIT_STATUS | G_SIGNAL_TYPE_STATIC_SCOPE,
                      G_TYPE_STRING | G_SIGNAL_TYPE_STATIC_SCOPE);
}

static void
vmm_process_init (VmmProcess *self)
{
}

/**
 * vmm_process_get_handle:
 * @self: a process
 *
 * What the record keeps of it.
 *
 * Returns: (transfer none) (nullable): the handle
 */
const VmmProcessHandle *
vmm_process_get_handle (VmmProcess *self)
{
  g_return_val_if_fail (VMM_IS_PROCESS (self), NULL);

  return get_private (self)->handle;
}

/**
 * vmm_process_set_handle:
 * @self: a process
 * @handle: (nullable): what the record shall keep of it; copied
 *
 * Sets the handle, for launchers.
 */
void
vmm_process_set_handle (VmmProcess *self, const VmmProcessHandle *handle)
{
  VmmProcessHandle *copy;
  VmmProcessPrivate *priv;

  g_return_if_fail (VMM_IS_PROCESS (self));

  priv = get_private (self);
  copy = handle != NULL ? vmm_process_handle_copy (handle) : NULL;
  g_clear_pointer (&priv->handle, vmm_process_handle_free);
  priv->handle = copy;
}

/**
 * vmm_process_has_exited:
 * @self: a process
 *
 * Whether it is known to have ended.
 *
 * Returns: %TRUE once [signal@Process::exited] is emitted
 */
gboolean
vmm_process_has_exited (VmmProcess *self)
{
  g_return_val_if_fail (VMM_IS_PROCESS (self), FALSE);

  return get_private (self)->has_exited;
}

/**
 * vmm_process_get_exit_status:
 * @self: a process
 *
 * How it ended.
 *
 * Returns: (transfer none) (nullable): the status, or %NULL while it runs
 */
const VmmExitStatus *
vmm_process_get_exit_status (VmmProcess *self)
{
  VmmProcessPrivate *priv;

  g_return_val_if_fail (VMM_IS_PROCESS (self), NULL);

  priv = get_private (self);
  return priv->has_exited ? &priv->exit_status : NULL;
}

/**
 * vmm_process_get_exit_text:
 * @self: a process
 *
 * How it ended, for people.
 *
 * Returns: (transfer none) (nullable): the text, or %NULL while it runs
 */
const char *
vmm_process_get_exit_text (VmmProcess *self)
{
  g_return_val_if_fail (VMM_IS_PROCESS (self), NULL);

  return get_private (self)->exit_text;
}

/**
 * vmm_process_send_signal:
 * @self: a process
 * @signum: a signal number
 * @error: return location for an error
 *
 * Sends a signal, or asks the launcher's service to: success says that it is on its way.
 *
 * Fails with `VMM_ERROR_CONFLICT` when the process has ended and with `VMM_ERROR_INTERNAL` when it
 * may not be signalled.
 *
 * Returns: %FALSE with an error
 */
gboolean
vmm_process_send_signal (VmmProcess *self, int signum, GError **error)
{
  g_return_val_if_fail (VMM_IS_PROCESS (self), FALSE);
  g_return_val_if_fail (signum > 0, FALSE);

  if (get_private (self)->has_exited)
    {
      set_finished_error (error);
      return FALSE;
    }
  return VMM_PROCESS_GET_CLASS (self)->send_signal (self, signum, error);
}

/**
 * vmm_process_stop_async:
 * @self: a process
 * @grace_ms: time between TERM and KILL, in milliseconds; 0 kills at once
 * @cancellable: (nullable): stops the waiting; the process is left as it is
 * @callback: (scope async): called when the process has gone
 * @user_data: data for @callback
 *
 * Stops the process and waits for its exit. Stopping what is already gone succeeds.
 *
 * Fails with `VMM_ERROR_TIMEOUT` if it survives KILL for ten seconds.
 */
void
vmm_process_stop_async (VmmProcess *self, guint grace_ms, GCancellable *cancellable,
                        GAsyncReadyCallback callback, gpointer user_data)
{
  g_return_if_fail (VMM_IS_PROCESS (self));
  g_return_if_fail (cancellable == NULL || G_IS_CANCELLABLE (cancellable));

  VMM_PROCESS_GET_CLASS (self)->stop_async (self, grace_ms, cancellable, callback, user_data);
}

/**
 * vmm_process_stop_finish:
 * @self: a process
 * @result: what the callback was given
 * @error: return location for an error
 *
 * Ends vmm_process_stop_async().
 *
 * Returns: whether the process has gone; %FALSE with an error otherwise
 */
gboolean
vmm_process_stop_finish (VmmProcess *self, GAsyncResult *result, GError **error)
{
  g_return_val_if_fail (VMM_IS_PROCESS (self), FALSE);
  g_return_val_if_fail (G_IS_ASYNC_RESULT (result), FALSE);

  return VMM_PROCESS_GET_CLASS (self)->stop_finish (self, result, error);
}

/**
 * vmm_process_get_usage:
 * @self: a process
 * @usage: (out caller-allocates): what it used so far; all 0 when that is not known
 *
 * Processor time and memory. Cheap.
 *
 * Returns: %FALSE when the process has ended or the launcher cannot tell
 */
gboolean
vmm_process_get_usage (VmmProcess *self, VmmProcessUsage *usage)
{
  g_return_val_if_fail (VMM_IS_PROCESS (self), FALSE);
  g_return_val_if_fail (usage != NULL, FALSE);

  memset (usage, 0, sizeof *usage);
  if (get_private (self)->has_exited)
    return FALSE;
  return VMM_PROCESS_GET_CLASS (self)->get_usage (self, usage);
}

/**
 * vmm_process_detach:
 * @self: a process
 *
 * Says that the daemon ends and the process shall stay: where the launcher's processes outlive the
 * daemon, the object no longer watches it and dropping it has no effect on the process.
 */
void
vmm_process_detach (VmmProcess *self)
{
  g_return_if_fail (VMM_IS_PROCESS (self));

  VMM_PROCESS_GET_CLASS (self)->detach (self);
}

/**
 * vmm_process_exited:
 * @self: a process
 * @status: how it ended
 * @why_unknown: (nullable): why the status could not be learnt
 *
 * Says that the process has ended, for launchers: keeps the status and emits
 * [signal@Process::exited]. Only the first call counts. Call it on the main context; for a process
 * that is found ended, only after the caller of vmm_launcher_find_async() has got it.
 */
void
vmm_process_exited (VmmProcess *self, const VmmExitStatus *status, const char *why_unknown)
{
  g_autoptr (VmmProcess) alive = NULL;
  VmmProcessPrivate *priv;

  g_return_if_fail (VMM_IS_PROCESS (self));
  g_return_if_fail (status != NULL);

  priv = get_private (self);
  if (priv->has_exited)
    return;

  alive = g_object_ref (self);
  priv->has_exited = TRUE;
  priv->exit_status = *status;
  priv->exit_text = vmm_exit_status_to_text (status, why_unknown);
  g_signal_emit (self, signals[SIGNAL_EXITED], 0, &priv->exit_status, priv->exit_text);
}

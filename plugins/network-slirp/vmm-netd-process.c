/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Keeps one vmm-netd going.
 *
 * One attempt at a time leads to a process that answers, see vmm-netd-attempt.c. When the process
 * ends, or the connection does, the next attempt follows, at once at first and after growing pauses
 * when that does not help; a minute of health forgets the failures. A process that runs and does
 * not answer is killed, because it carries no packets either. Whoever needs the connection
 * meanwhile waits for it, so that a restart is not seen by anybody. */

#include "vmm-netd-process.h"

#include "interfaces/vmm-error.h"
#include "vmm-netd-store.h"

#define WAIT_MS 10000
#define PAUSE_FIRST_MS 100
#define PAUSE_MAX_MS 30000
#define HEALTHY_US (60 * G_USEC_PER_SEC)

struct _VmmNetdProcess
{
  GObject parent_instance;

  VmmNetdAttemptConfig config;
  VmmProcess *process; /* NULL when none runs */
  gulong exited_id;
  VmmNetdChannel *channel; /* NULL while down */
  gulong closed_id;
  VmmNetdCounters *counters;
  VmmNetworkCounters earlier; /* of runs before */

  gboolean attempting;
  GCancellable *cancellable; /* of the attempt */
  GSource *pause;            /* before the next one */
  char *exit_text;           /* of a process whose end is not dealt with */
  guint failures;
  gint64 up_since;
  gboolean ended;
  char *reason; /* why it is down; NULL when it is not, or nobody was told */
  GTask *stopping;
  GPtrArray *waiters; /* of Waiter */
};

typedef struct
{
  GTask *task;
  GSource *timeout;
  GSource *cancelled;
} Waiter;

enum
{
  SIGNAL_DOWN,
  SIGNAL_UP,
  N_SIGNALS,
};

static guint signals[N_SIGNALS];

G_DEFINE_FINAL_TYPE (VmmNetdProcess, vmm_netd_process, G_TYPE_OBJECT)

static void begin (VmmNetdProcess *self);
static void exited_cb (VmmProcess *process, const VmmExitStatus *status, const char *text,
                       gpointer user_data);

static void
clear_source (GSource **source)
{
  if (*source == NULL)
    return;
  g_source_destroy (*source);
  g_clear_pointer (source, g_source_unref);
}

/* -- who waits for the connection -- */

static void
waiter_free (gpointer data)
{
  Waiter *waiter = data;

  clear_source (&waiter->timeout);
  clear_source (&waiter->cancelled);
  g_object_unref (waiter->task);
  g_free (waiter);
}

static GError *
down_error (VmmNetdProcess *self)
{
  if (self->ended)
    return vmm_error_new (VMM_ERROR_CONFLICT, "network %s is closed", self->config.network);
  return vmm_error_new (VMM_ERROR_CONFLICT, "network %s is down: %s", self->config.network,
                        self->reason != NULL ? self->reason : "vmm-netd is being connected");
}

static void
answer_waiters (VmmNetdProcess *self)
{
  g_autoptr (GPtrArray) waiters = g_steal_pointer (&self->waiters);

  self->waiters = g_ptr_array_new_with_free_func (waiter_free);
  for (guint i = 0; i < waiters->len; i++)
    {
      Waiter *waiter = g_ptr_array_index (waiters, i);

      if (self->channel != NULL)
        g_task_return_pointer (waiter->task, g_object_ref (self->channel), g_object_unref);
      else
        g_task_return_error (waiter->task, down_error (self));
    }
}

static Waiter *
take_waiter (GTask *task)
{
  VmmNetdProcess *self = g_task_get_source_object (task);

  for (guint i = 0; i < self->waiters->len; i++)
    if (((Waiter *) g_ptr_array_index (self->waiters, i))->task == task)
      return g_ptr_array_steal_index (self->waiters, i);
  return NULL;
}

static gboolean
wait_timeout_cb (gpointer user_data)
{
  Waiter *waiter = take_waiter (user_data);

  g_task_return_error (waiter->task, down_error (g_task_get_source_object (waiter->task)));
  waiter_free (waiter);
  return G_SOURCE_REMOVE;
}

static gboolean
wait_cancelled_cb (GCancellable *cancellable, gpointer user_data)
{
  Waiter *waiter = take_waiter (user_data);

  g_task_return_new_error (waiter->task, G_IO_ERROR, G_IO_ERROR_CANCELLED, "cancelled");
  waiter_free (waiter);
  return G_SOURCE_REMOVE;
}

void
vmm_netd_process_connect_async (VmmNetdProcess *self, GCancellable *cancellable,
                                GAsyncReadyCallback callback, gpointer user_data)
{
  g_autoptr (GTask) task = g_task_new (self, cancellable, callback, user_data);
  Waiter *waiter;

  g_task_set_source_tag (task, vmm_netd_process_connect_async);
  if (self->channel != NULL)
    {
      g_task_return_pointer (task, g_object_ref (self->channel), g_object_unref);
      return;
    }
  if (self->ended)
    {
      g_task_return_error (task, down_error (self));
      return;
    }

  waiter = g_new0 (Waiter, 1);
  waiter->task = g_object_ref (task);
  waiter->timeout = g_timeout_source_new (WAIT_MS);
  g_source_set_callback (waiter->timeout, wait_timeout_cb, task, NULL);
  g_source_attach (waiter->timeout, NULL);
  if (cancellable != NULL)
    {
      waiter->cancelled = g_cancellable_source_new (cancellable);
      g_source_set_callback (waiter->cancelled, G_SOURCE_FUNC (wait_cancelled_cb), task, NULL);
      g_source_attach (waiter->cancelled, NULL);
    }
  g_ptr_array_add (self->waiters, waiter);
}

VmmNetdChannel *
vmm_netd_process_connect_finish (VmmNetdProcess *self, GAsyncResult *result, GError **error)
{
  g_return_val_if_fail (g_task_is_valid (result, self), NULL);

  return g_task_propagate_pointer (G_TASK (result), error);
}

/* -- up and down -- */

static void
go_down (VmmNetdProcess *self, const char *reason)
{
  if (g_strcmp0 (self->reason, reason) == 0)
    return;
  g_free (self->reason);
  self->reason = g_strdup (reason);
  g_signal_emit (self, signals[SIGNAL_DOWN], 0, reason);
}

static void
go_up (VmmNetdProcess *self)
{
  g_autofree char *reason = g_steal_pointer (&self->reason);

  self->up_since = g_get_monotonic_time ();
  answer_waiters (self);
  if (reason != NULL)
    g_signal_emit (self, signals[SIGNAL_UP], 0);
}

static void
drop_channel (VmmNetdProcess *self)
{
  g_autoptr (VmmNetdChannel) channel = g_steal_pointer (&self->channel);

  if (channel == NULL)
    return;
  g_clear_signal_handler (&self->closed_id, channel);
  vmm_netd_channel_close (channel);
}

static gboolean
pause_cb (gpointer user_data)
{
  g_autoptr (VmmNetdProcess) self = g_object_ref (user_data);

  clear_source (&self->pause);
  begin (self);
  return G_SOURCE_REMOVE;
}

static guint
pause_for (guint failures)
{
  return failures < 2 ? 0 : MIN (PAUSE_FIRST_MS << MIN (failures - 2, 16), PAUSE_MAX_MS);
}

/* The next attempt, unless one is on its way. */
static void
schedule (VmmNetdProcess *self)
{
  if (self->ended || self->attempting)
    return;
  clear_source (&self->pause);
  if (self->up_since != 0 && g_get_monotonic_time () - self->up_since >= HEALTHY_US)
    self->failures = 0;
  self->up_since = 0;
  self->pause = g_timeout_source_new (pause_for (self->failures++));
  g_source_set_callback (self->pause, pause_cb, self, NULL);
  g_source_attach (self->pause, NULL);
}

static void
closed_cb (VmmNetdChannel *channel, const char *reason, gpointer user_data)
{
  VmmNetdProcess *self = user_data;

  drop_channel (self);
  /* One that has ended will say so itself, which ends the attempt to connect. */
  schedule (self);
}

/* The page of a run that is over is still there to be read a last time. */
static void
take_counters (VmmNetdProcess *self, VmmNetdCounters *counters)
{
  if (self->counters != NULL && !vmm_netd_counters_are_same (self->counters, counters))
    vmm_netd_counters_add_to (self->counters, &self->earlier);
  g_clear_pointer (&self->counters, vmm_netd_counters_free);
  self->counters = counters;
}

/* Takes the channel. */
static void
take_channel (VmmNetdProcess *self, VmmNetdChannel *channel)
{
  drop_channel (self);
  self->channel = channel;
  self->closed_id = g_signal_connect (channel, "closed", G_CALLBACK (closed_cb), self);
  take_counters (self, vmm_netd_channel_take_counters (channel));
}

void
vmm_netd_process_get_counters (VmmNetdProcess *self, VmmNetworkCounters *counters)
{
  *counters = self->earlier;
  if (self->counters != NULL)
    vmm_netd_counters_add_to (self->counters, counters);
}

/* -- the process -- */

static void
drop_process (VmmNetdProcess *self)
{
  g_autoptr (VmmProcess) process = g_steal_pointer (&self->process);

  if (process != NULL)
    g_clear_signal_handler (&self->exited_id, process);
}

/* Takes the process. */
static void
take_process (VmmNetdProcess *self, VmmProcess *process)
{
  drop_process (self);
  self->process = process;
  self->exited_id = g_signal_connect (process, "exited", G_CALLBACK (exited_cb), self);
}

static void
log_read_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  g_autoptr (VmmNetdProcess) self = user_data;
  g_autofree char *line = vmm_netd_store_read_log_finish (result);
  g_autofree char *text = g_steal_pointer (&self->exit_text);
  g_autofree char *reason = g_strdup_printf ("vmm-netd ended (%s)%s%s", text,
                                             line != NULL ? ": " : "", line != NULL ? line : "");

  if (self->ended)
    return;
  go_down (self, reason);
  schedule (self);
}

/* Says why before the log is put aside for the next one. */
static void
process_ended (VmmNetdProcess *self)
{
  clear_source (&self->pause);
  drop_channel (self);
  vmm_netd_store_read_log_async (self->config.directory, log_read_cb, g_object_ref (self));
}

static void
exited_cb (VmmProcess *process, const VmmExitStatus *status, const char *text, gpointer user_data)
{
  VmmNetdProcess *self = user_data;

  drop_process (self);
  if (self->ended)
    return;
  g_free (self->exit_text);
  self->exit_text = g_strdup (text);
  /* The end of the connection came first: connecting again is in vain. */
  if (self->attempting)
    g_cancellable_cancel (self->cancellable);
  else
    process_ended (self);
}

/* -- attempts -- */

static void stop_now (VmmNetdProcess *self);

/* What came out of an attempt; FALSE with the error of a failed one. */
static gboolean
take_result (VmmNetdProcess *self, GAsyncResult *result, GError **error)
{
  VmmNetdChannel *channel = NULL;
  VmmProcess *process = vmm_netd_attempt_finish (result, &channel, error);

  self->attempting = FALSE;
  g_clear_object (&self->cancellable);
  if (process == NULL)
    return FALSE;
  take_channel (self, channel);
  take_process (self, process);
  return TRUE;
}

/* It may have ended again while the answer was on its way. */
static void
go_up_if_alive (VmmNetdProcess *self)
{
  if (vmm_process_has_exited (self->process))
    {
      self->exit_text = g_strdup (vmm_process_get_exit_text (self->process));
      drop_process (self);
      process_ended (self);
      return;
    }
  go_up (self);
  if (vmm_netd_channel_is_open (self->channel))
    return;
  drop_channel (self);
  schedule (self);
}

static void
tried_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  g_autoptr (VmmNetdProcess) self = user_data;
  g_autoptr (GError) error = NULL;
  gboolean good = take_result (self, result, &error);

  if (self->stopping != NULL)
    {
      stop_now (self);
      return;
    }
  if (self->ended)
    {
      vmm_netd_process_leave (self);
      return;
    }
  if (self->exit_text != NULL)
    process_ended (self);
  else if (good)
    go_up_if_alive (self);
  else
    {
      go_down (self, error->message);
      schedule (self);
    }
}

static void
attempt (VmmNetdProcess *self, VmmNetdAttemptKind kind, GCancellable *cancellable,
         GAsyncReadyCallback callback, gpointer user_data)
{
  self->attempting = TRUE;
  g_set_object (&self->cancellable, cancellable);
  vmm_netd_attempt_async (&self->config, kind, self->process, cancellable, callback, user_data);
}

static void
begin (VmmNetdProcess *self)
{
  g_autoptr (GCancellable) cancellable = g_cancellable_new ();

  attempt (self, VMM_NETD_ATTEMPT_RECONNECT, cancellable, tried_cb, g_object_ref (self));
}

static void
first_tried_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  g_autoptr (GTask) task = user_data;
  VmmNetdProcess *self = g_task_get_source_object (task);
  GError *error = NULL;

  if (!take_result (self, result, &error))
    {
      g_task_return_error (task, error);
      return;
    }
  go_up_if_alive (self);
  g_task_return_boolean (task, TRUE);
}

void
vmm_netd_process_start_async (VmmNetdProcess *self, GCancellable *cancellable,
                              GAsyncReadyCallback callback, gpointer user_data)
{
  GTask *task = g_task_new (self, cancellable, callback, user_data);

  g_task_set_source_tag (task, vmm_netd_process_start_async);
  g_task_set_check_cancellable (task, FALSE);
  attempt (self, VMM_NETD_ATTEMPT_FIND, cancellable, first_tried_cb, task);
}

gboolean
vmm_netd_process_start_finish (VmmNetdProcess *self, GAsyncResult *result, GError **error)
{
  g_return_val_if_fail (g_task_is_valid (result, self), FALSE);

  return g_task_propagate_boolean (G_TASK (result), error);
}

/* -- the end -- */

static void
stopped_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  g_autoptr (GTask) task = user_data;
  GError *error = NULL;

  if (vmm_process_stop_finish (VMM_PROCESS (source), result, &error))
    g_task_return_boolean (task, TRUE);
  else
    g_task_return_error (task, error);
}

static void
stop_now (VmmNetdProcess *self)
{
  g_autoptr (GTask) task = g_steal_pointer (&self->stopping);

  drop_channel (self);
  if (self->process == NULL)
    g_task_return_boolean (task, TRUE);
  else
    vmm_process_stop_async (self->process, VMM_NETD_GRACE_MS, NULL, stopped_cb,
                            g_steal_pointer (&task));
}

static void
end (VmmNetdProcess *self)
{
  self->ended = TRUE;
  clear_source (&self->pause);
  if (self->cancellable != NULL)
    g_cancellable_cancel (self->cancellable);
  drop_channel (self);
  answer_waiters (self);
}

void
vmm_netd_process_stop_async (VmmNetdProcess *self, GAsyncReadyCallback callback, gpointer user_data)
{
  GTask *task = g_task_new (self, NULL, callback, user_data);

  g_task_set_source_tag (task, vmm_netd_process_stop_async);
  self->stopping = task;
  end (self);
  if (!self->attempting)
    stop_now (self);
}

gboolean
vmm_netd_process_stop_finish (VmmNetdProcess *self, GAsyncResult *result, GError **error)
{
  g_return_val_if_fail (g_task_is_valid (result, self), FALSE);

  return g_task_propagate_boolean (G_TASK (result), error);
}

void
vmm_netd_process_leave (VmmNetdProcess *self)
{
  end (self);
  if (self->process != NULL)
    vmm_process_detach (self->process);
  drop_process (self);
}

static void
vmm_netd_process_dispose (GObject *object)
{
  VmmNetdProcess *self = VMM_NETD_PROCESS (object);

  clear_source (&self->pause);
  drop_channel (self);
  drop_process (self);
  g_clear_object (&self->config.launcher);
  g_clear_object (&self->config.file);
  G_OBJECT_CLASS (vmm_netd_process_parent_class)->dispose (object);
}

static void
vmm_netd_process_finalize (GObject *object)
{
  VmmNetdProcess *self = VMM_NETD_PROCESS (object);

  g_clear_pointer (&self->counters, vmm_netd_counters_free);
  g_ptr_array_unref (self->waiters);
  g_free (self->config.helper);
  g_free (self->config.id);
  g_free (self->config.network);
  g_free (self->config.directory);
  g_free (self->exit_text);
  g_free (self->reason);
  G_OBJECT_CLASS (vmm_netd_process_parent_class)->finalize (object);
}

static void
vmm_netd_process_class_init (VmmNetdProcessClass *klass)
{
  G_OBJECT_CLASS (klass)->dispose = vmm_netd_process_dispose;
  G_OBJECT_CLASS (klass)->finalize = vmm_netd_process_finalize;
  signals[SIGNAL_DOWN] = g_signal_new ("down", VMM_TYPE_NETD_PROCESS, G_SIGNAL_RUN_LAST, 0, NULL,
                                       NULL, NULL, G_TYPE_NONE, 1, G_TYPE_STRING);
  signals[SIGNAL_UP] = g_signal_new ("up", VMM_TYPE_NETD_PROCESS, G_SIGNAL_RUN_LAST, 0, NULL, NULL,
                                     NULL, G_TYPE_NONE, 0);
}

static void
vmm_netd_process_init (VmmNetdProcess *self)
{
  self->waiters = g_ptr_array_new_with_free_func (waiter_free);
}

VmmNetdProcess *
vmm_netd_process_new (const VmmNetdAttemptConfig *config)
{
  VmmNetdProcess *self = g_object_new (VMM_TYPE_NETD_PROCESS, NULL);

  self->config.launcher = g_object_ref (config->launcher);
  self->config.helper = g_strdup (config->helper);
  self->config.id = g_strdup (config->id);
  self->config.network = g_strdup (config->network);
  self->config.directory = g_strdup (config->directory);
  self->config.file = g_object_ref (config->file);
  return self;
}

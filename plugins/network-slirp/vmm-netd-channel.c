/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The client's side of the control protocol of vmm-netd.
 *
 * vmm-netd speaks first: who it is, what it can do, and the page of its counters. Then each request
 * has a number, and its answer the same one. A request that nobody waits for any more stays known
 * until it is answered, because its answer may bring a descriptor that must not be given to another
 * one; too many of those, or an answer to nothing, end the connection. Events are not needed here.
 */

#include "vmm-netd-channel.h"

#include <string.h>
#include <unistd.h>

#include <gio/gunixsocketaddress.h>

#include "interfaces/vmm-error.h"
#include "vmm-netd-json.h"
#include "vmm-netd-lines.h"

#define PROTOCOL_NAME "vmm-netd"
#define PROTOCOL_VERSION 1
#define COUNTERS_MAX 256
#define CALLS_MAX 4096
#define ABANDONED_MAX 256
/* Each VM of a network may come or go at the same time, some times. */
#define EVENTS_MAX 5000
#define EVENTS_TIME_US (10 * G_USEC_PER_SEC)

struct _VmmNetdChannel
{
  GObject parent_instance;

  char *network;
  VmmNetdLines *lines;
  GTask *opening; /* until the hello came */
  GSource *opening_cancelled;
  GHashTable *calls; /* number -> Call */
  guint n_abandoned;
  gint64 last_number;
  gint64 events_since;
  guint n_events; /* since then */
  VmmNetdCounters *counters;
  gboolean open;
};

/* A request that is not answered. */
typedef struct
{
  VmmNetdChannel *channel; /* not owned */
  gint64 number;
  char *method;
  gboolean wants_fd;
  GTask *task; /* NULL when nobody waits */
  guint timeout_ms;
  GSource *timeout;
  GSource *cancelled;
} Call;

typedef struct
{
  JsonObject *result;
  int fd;
} Answer;

enum
{
  SIGNAL_CLOSED,
  N_SIGNALS,
};

static guint signals[N_SIGNALS];

G_DEFINE_FINAL_TYPE (VmmNetdChannel, vmm_netd_channel, G_TYPE_OBJECT)

static void
clear_source (GSource **source)
{
  if (*source == NULL)
    return;
  g_source_destroy (*source);
  g_clear_pointer (source, g_source_unref);
}

static void
answer_free (gpointer data)
{
  Answer *answer = data;

  g_clear_pointer (&answer->result, json_object_unref);
  if (answer->fd >= 0)
    close (answer->fd);
  g_free (answer);
}

/* The task is the caller's now. */
static GTask *
settle (Call *call)
{
  clear_source (&call->timeout);
  clear_source (&call->cancelled);
  return g_steal_pointer (&call->task);
}

static void
call_free (gpointer data)
{
  Call *call = data;
  g_autoptr (GTask) task = settle (call);

  if (task != NULL)
    g_task_return_error (
        task,
        vmm_error_new (VMM_ERROR_INTERNAL, "%s: the connection to vmm-netd ended", call->method));
  g_free (call->method);
  g_free (call);
}

void
vmm_netd_channel_close (VmmNetdChannel *self)
{
  g_autoptr (GHashTable) calls = g_steal_pointer (&self->calls);

  self->open = FALSE;
  vmm_netd_lines_close (self->lines);
  clear_source (&self->opening_cancelled);
}

gboolean
vmm_netd_channel_is_open (VmmNetdChannel *self)
{
  return self->open;
}

static void
closed_cb (const char *reason, gpointer user_data)
{
  g_autoptr (VmmNetdChannel) self = g_object_ref (user_data);
  g_autoptr (GTask) opening = g_steal_pointer (&self->opening);

  vmm_netd_channel_close (self);
  if (opening != NULL)
    g_task_return_new_error (opening, G_IO_ERROR, G_IO_ERROR_CLOSED, "%s", reason);
  else
    g_signal_emit (self, signals[SIGNAL_CLOSED], 0, reason);
}

/* Takes the error. */
static void
refuse_hello (VmmNetdChannel *self, GError *error)
{
  g_autoptr (GTask) opening = g_steal_pointer (&self->opening);

  vmm_netd_channel_close (self);
  g_task_return_error (opening, error);
}

static gboolean
check_hello (VmmNetdChannel *self, JsonObject *hello, GError **error)
{
  static const char *const needed[]
      = { "attach", "dial", "forward-tcp", "forward-udp", "counters", NULL };
  const char *name = vmm_netd_json_get_string (hello, "hello");
  const char *network = vmm_netd_json_get_string (hello, "network");
  gint64 version = vmm_netd_json_get_int (hello, "version", 0);
  g_auto (GStrv) features
      = vmm_netd_json_dup_strings (vmm_netd_json_get_array (hello, "features"), COUNTERS_MAX);

  if (g_strcmp0 (name, PROTOCOL_NAME) != 0)
    vmm_set_error (error, VMM_ERROR_INTERNAL, "who answers on the control socket is not vmm-netd");
  else if (version != PROTOCOL_VERSION)
    vmm_set_error (error, VMM_ERROR_UNSUPPORTED,
                   "vmm-netd speaks version %" G_GINT64_FORMAT
                   " of its protocol and this plugin version %d: install both from one release",
                   version, PROTOCOL_VERSION);
  else if (g_strcmp0 (network, self->network) != 0)
    vmm_set_error (error, VMM_ERROR_INTERNAL, "vmm-netd carries another network");
  for (guint i = 0; *error == NULL && needed[i] != NULL; i++)
    if (!g_strv_contains ((const char *const *) features, needed[i]))
      vmm_set_error (error, VMM_ERROR_UNSUPPORTED, "vmm-netd does not offer \"%s\"", needed[i]);
  return *error == NULL;
}

static gboolean
map_counters (VmmNetdChannel *self, JsonObject *hello, GError **error)
{
  g_auto (GStrv) names
      = vmm_netd_json_dup_strings (vmm_netd_json_get_array (hello, "counters"), COUNTERS_MAX);
  int fd = vmm_netd_lines_take_fd (self->lines);

  if (fd < 0)
    {
      vmm_set_error (error, VMM_ERROR_INTERNAL, "vmm-netd does not share its counters");
      return FALSE;
    }
  self->counters = vmm_netd_counters_new (fd, (const char *const *) names, error);
  close (fd);
  return self->counters != NULL;
}

static void
take_hello (VmmNetdChannel *self, const char *line, gsize length)
{
  GError *error = NULL;
  g_autoptr (JsonObject) hello = vmm_netd_json_parse (line, length, &error);
  g_autoptr (GTask) opening = NULL;

  if (hello == NULL || !check_hello (self, hello, &error) || !map_counters (self, hello, &error))
    {
      g_prefix_error (&error, "vmm-netd's hello: ");
      refuse_hello (self, error);
      return;
    }
  self->open = TRUE;
  clear_source (&self->opening_cancelled);
  opening = g_steal_pointer (&self->opening);
  g_task_return_pointer (opening, g_object_ref (self), g_object_unref);
}

static GError *
error_of (JsonObject *object)
{
  const char *slug = vmm_netd_json_get_string (object, "code");
  const char *message = vmm_netd_json_get_string (object, "message");
  g_autofree char *text = vmm_netd_json_tidy (message != NULL ? message : "no reason given");

  for (int code = 0; code < VMM_ERROR_LAST; code++)
    if (g_strcmp0 (vmm_error_get_info ((VmmError) code)->slug, slug) == 0)
      return vmm_error_new ((VmmError) code, "%s", text);
  return vmm_error_new (VMM_ERROR_INTERNAL, "%s", text);
}

/* What came as an answer goes to who asked; a descriptor is taken even when nobody waits. */
static void
finish_call (VmmNetdChannel *self, Call *call, JsonObject *line)
{
  JsonObject *result = vmm_netd_json_get_object (line, "result");
  JsonObject *error = vmm_netd_json_get_object (line, "error");
  g_autofree char *method = g_strdup (call->method);
  gboolean wants_fd = call->wants_fd && result != NULL;
  g_autoptr (GTask) task = settle (call);
  Answer *answer;

  if (task == NULL)
    self->n_abandoned--;
  g_hash_table_remove (self->calls, &call->number);
  answer = g_new0 (Answer, 1);
  answer->fd = wants_fd ? vmm_netd_lines_take_fd (self->lines) : -1;
  answer->result = result != NULL ? json_object_ref (result) : NULL;
  if (task != NULL && result != NULL && (!wants_fd || answer->fd >= 0))
    {
      g_task_return_pointer (task, answer, answer_free);
      return;
    }

  answer_free (answer);
  if (task != NULL && result == NULL && error != NULL)
    g_task_return_error (task, error_of (error));
  else if (task != NULL)
    g_task_return_error (
        task, vmm_error_new (VMM_ERROR_INTERNAL, "%s: vmm-netd's answer is not complete", method));
}

/* Reading them takes the daemon's time. */
static void
count_event (VmmNetdChannel *self)
{
  gint64 now = g_get_monotonic_time ();

  if (now - self->events_since > EVENTS_TIME_US)
    {
      self->events_since = now;
      self->n_events = 0;
    }
  if (++self->n_events > EVENTS_MAX)
    vmm_netd_lines_fail (self->lines, "it never stops talking");
}

static void
take_line (VmmNetdChannel *self, const char *line, gsize length)
{
  g_autoptr (GError) error = NULL;
  g_autoptr (JsonObject) object = vmm_netd_json_parse (line, length, &error);
  gint64 number;
  Call *call;

  if (object == NULL)
    {
      vmm_netd_lines_fail (self->lines, error->message);
      return;
    }
  if (vmm_netd_json_get_string (object, "event") != NULL)
    {
      count_event (self);
      return;
    }
  number = vmm_netd_json_get_int (object, "id", -1);
  call = g_hash_table_lookup (self->calls, &number);
  if (call == NULL)
    vmm_netd_lines_fail (self->lines, "it answers what was not asked");
  else
    finish_call (self, call, object);
}

static void
line_cb (const char *line, gsize length, gpointer user_data)
{
  g_autoptr (VmmNetdChannel) self = g_object_ref (user_data);

  if (self->opening != NULL)
    take_hello (self, line, length);
  else
    take_line (self, line, length);
}

static gboolean
opening_cancelled_cb (GCancellable *cancellable, gpointer user_data)
{
  VmmNetdChannel *self = user_data;

  refuse_hello (self, g_error_new_literal (G_IO_ERROR, G_IO_ERROR_CANCELLED, "cancelled"));
  return G_SOURCE_REMOVE;
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

void
vmm_netd_channel_open_async (const char *path, const char *network, GCancellable *cancellable,
                             GAsyncReadyCallback callback, gpointer user_data)
{
  g_autoptr (VmmNetdChannel) self = g_object_new (VMM_TYPE_NETD_CHANNEL, NULL);
  g_autoptr (GTask) task = g_task_new (self, cancellable, callback, user_data);
  const VmmNetdLinesFuncs funcs = { line_cb, closed_cb, self };
  g_autoptr (GSocket) socket = NULL;
  GError *error = NULL;

  g_task_set_source_tag (task, vmm_netd_channel_open_async);
  g_task_set_check_cancellable (task, FALSE);
  socket = connect_now (path, &error);
  if (socket == NULL)
    {
      g_task_return_error (task, error);
      return;
    }
  self->network = g_strdup (network);
  self->lines = vmm_netd_lines_new (socket, &funcs);
  if (cancellable != NULL)
    {
      self->opening_cancelled = g_cancellable_source_new (cancellable);
      g_source_set_callback (self->opening_cancelled, G_SOURCE_FUNC (opening_cancelled_cb), self,
                             NULL);
      g_source_attach (self->opening_cancelled, NULL);
    }
  /* The task holds the channel, and the channel the task, until the hello comes or cannot. */
  self->opening = g_steal_pointer (&task);
}

VmmNetdChannel *
vmm_netd_channel_open_finish (GAsyncResult *result, GError **error)
{
  g_return_val_if_fail (g_async_result_is_tagged (result, vmm_netd_channel_open_async), NULL);

  return g_task_propagate_pointer (G_TASK (result), error);
}

/* Nobody waits for it any more; it stays known until it is answered. */
static GTask *
abandon (Call *call)
{
  VmmNetdChannel *self = call->channel;

  self->n_abandoned++;
  return settle (call);
}

static gboolean
call_timeout_cb (gpointer user_data)
{
  Call *call = user_data;
  g_autoptr (VmmNetdChannel) self = g_object_ref (call->channel);
  g_autofree char *method = g_strdup (call->method);
  guint timeout_ms = call->timeout_ms;
  g_autoptr (GTask) task = abandon (call);

  g_task_return_error (task,
                       vmm_error_new (VMM_ERROR_TIMEOUT, "%s: vmm-netd did not answer within %u ms",
                                      method, timeout_ms));
  if (self->n_abandoned > ABANDONED_MAX)
    vmm_netd_lines_fail (self->lines, "it does not answer");
  return G_SOURCE_REMOVE;
}

static gboolean
call_cancelled_cb (GCancellable *cancellable, gpointer user_data)
{
  Call *call = user_data;
  g_autoptr (VmmNetdChannel) self = g_object_ref (call->channel);
  g_autoptr (GTask) task = abandon (call);

  g_task_return_new_error (task, G_IO_ERROR, G_IO_ERROR_CANCELLED, "cancelled");
  if (self->n_abandoned > ABANDONED_MAX)
    vmm_netd_lines_fail (self->lines, "it does not answer");
  return G_SOURCE_REMOVE;
}

static void
watch_call (Call *call, GCancellable *cancellable)
{
  call->timeout = g_timeout_source_new (call->timeout_ms);
  g_source_set_callback (call->timeout, call_timeout_cb, call, NULL);
  g_source_attach (call->timeout, NULL);
  if (cancellable == NULL)
    return;
  call->cancelled = g_cancellable_source_new (cancellable);
  g_source_set_callback (call->cancelled, G_SOURCE_FUNC (call_cancelled_cb), call, NULL);
  g_source_attach (call->cancelled, NULL);
}

static char *
request_text (gint64 number, const char *method, JsonObject *params)
{
  JsonObject *request = json_object_new ();

  json_object_set_int_member (request, "id", number);
  json_object_set_string_member (request, "method", method);
  json_object_set_object_member (request, "params", params);
  return vmm_netd_json_to_text (request, FALSE);
}

void
vmm_netd_channel_call_async (VmmNetdChannel *self, const char *method, JsonObject *params,
                             guint timeout_ms, GCancellable *cancellable,
                             GAsyncReadyCallback callback, gpointer user_data)
{
  g_autoptr (GTask) task = g_task_new (self, cancellable, callback, user_data);
  g_autofree char *text = request_text (++self->last_number, method, params);
  Call *call;

  g_task_set_source_tag (task, vmm_netd_channel_call_async);
  g_task_set_check_cancellable (task, FALSE);
  if (!self->open || g_hash_table_size (self->calls) >= CALLS_MAX
      || strlen (text) >= VMM_NETD_LINE_MAX)
    {
      g_task_return_error (
          task, vmm_error_new (VMM_ERROR_INTERNAL, "%s: %s", method,
                               !self->open ? "vmm-netd is not connected" : "vmm-netd is too busy"));
      return;
    }

  call = g_new0 (Call, 1);
  call->channel = self;
  call->number = self->last_number;
  call->method = g_strdup (method);
  call->wants_fd = g_str_equal (method, "dial");
  call->timeout_ms = timeout_ms;
  call->task = g_steal_pointer (&task);
  g_hash_table_insert (self->calls, &call->number, call);
  watch_call (call, cancellable);
  vmm_netd_lines_send (self->lines, text);
}

JsonObject *
vmm_netd_channel_call_finish (VmmNetdChannel *self, GAsyncResult *result, int *fd, GError **error)
{
  Answer *answer;
  JsonObject *object;

  g_return_val_if_fail (g_task_is_valid (result, self), NULL);

  answer = g_task_propagate_pointer (G_TASK (result), error);
  if (answer == NULL)
    return NULL;
  object = g_steal_pointer (&answer->result);
  if (fd != NULL)
    {
      *fd = answer->fd;
      answer->fd = -1;
    }
  answer_free (answer);
  return object;
}

VmmNetdCounters *
vmm_netd_channel_take_counters (VmmNetdChannel *self)
{
  return g_steal_pointer (&self->counters);
}

static void
vmm_netd_channel_dispose (GObject *object)
{
  VmmNetdChannel *self = VMM_NETD_CHANNEL (object);

  if (self->lines != NULL)
    vmm_netd_channel_close (self);
  g_clear_pointer (&self->calls, g_hash_table_unref);
  g_clear_pointer (&self->lines, vmm_netd_lines_unref);
  G_OBJECT_CLASS (vmm_netd_channel_parent_class)->dispose (object);
}

static void
vmm_netd_channel_finalize (GObject *object)
{
  VmmNetdChannel *self = VMM_NETD_CHANNEL (object);

  g_clear_pointer (&self->counters, vmm_netd_counters_free);
  g_free (self->network);
  G_OBJECT_CLASS (vmm_netd_channel_parent_class)->finalize (object);
}

static void
vmm_netd_channel_class_init (VmmNetdChannelClass *klass)
{
  G_OBJECT_CLASS (klass)->dispose = vmm_netd_channel_dispose;
  G_OBJECT_CLASS (klass)->finalize = vmm_netd_channel_finalize;
  signals[SIGNAL_CLOSED] = g_signal_new ("closed", VMM_TYPE_NETD_CHANNEL, G_SIGNAL_RUN_LAST, 0,
                                         NULL, NULL, NULL, G_TYPE_NONE, 1, G_TYPE_STRING);
}

static void
vmm_netd_channel_init (VmmNetdChannel *self)
{
  self->calls = g_hash_table_new_full (g_int64_hash, g_int64_equal, NULL, call_free);
}

/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The daemon's end of a QMP connection.
 *
 * QEMU greets, is told which features we use (none), and then answers commands by their id, in any
 * order, with events in between. QEMU runs a guest and is not trusted further than that: lines,
 * commands in flight and every wait are bounded, what does not parse ends the connection, and what
 * it says about an error is escaped and cut before it gets into ours.
 *
 * A command whose caller left, or whose time is up, is forgotten; its late answer is ignored. The
 * connection stays: the next command may well be answered.
 */
#include "config.h"

#include "vmm-qmp.h"

#include "interfaces/vmm-error.h"
#include "vmm-child-socket.h"
#include "vmm-json.h"
#include "vmm-line-channel.h"
#include "vmm-line-handshake.h"
#include "vmm-log.h"
#include "vmm-source.h"

#define LINE_MAX_SIZE (1024 * 1024)
#define IN_FLIGHT_MAX 64
#define ATTEMPT_MS 2000
#define CONNECT_MS 10000
#define TEXT_MAX 512

struct _VmmQmp
{
  GObject parent_instance;

  VmmLineChannel *channel;
  GHashTable *commands; /* id -> Command, owned */
  gint64 last_id;
  VmmLineHandshake handshake;
  gboolean greeted;
  char *closed_reason;
};

enum
{
  SIGNAL_EVENT,
  SIGNAL_CLOSED,
  N_SIGNALS
};

static guint signals[N_SIGNALS];

G_DEFINE_FINAL_TYPE (VmmQmp, vmm_qmp, G_TYPE_OBJECT)

typedef struct
{
  VmmQmp *self; /* the table's owner */
  gint64 id;
  char *name;
  GTask *task;
  guint timeout_ms;
  guint timeout_source;
  GSource *cancelled_source;
} Command;

static void
command_free (gpointer data)
{
  Command *command = data;

  g_clear_handle_id (&command->timeout_source, g_source_remove);
  vmm_source_clear (&command->cancelled_source);
  g_clear_object (&command->task);
  g_free (command->name);
  g_free (command);
}

/* Takes a command out of the table: from here on it is answered exactly once. */
static Command *
steal_command (VmmQmp *self, gint64 id)
{
  gpointer key = NULL;
  gpointer command = NULL;

  g_hash_table_steal_extended (self->commands, &id, &key, &command);
  return command;
}

static void
command_fail (Command *command, VmmError code, const char *text)
{
  g_task_return_error (command->task, vmm_error_new (code, "qmp %s: %s", command->name, text));
  command_free (command);
}

static gboolean
command_timeout_cb (gpointer user_data)
{
  Command *command = user_data;
  g_autofree char *text = g_strdup_printf ("no answer within %u ms", command->timeout_ms);

  command->timeout_source = 0;
  steal_command (command->self, command->id);
  command_fail (command, VMM_ERROR_TIMEOUT, text);
  return G_SOURCE_REMOVE;
}

static gboolean
command_cancelled_cb (GCancellable *cancellable, gpointer user_data)
{
  Command *command = user_data;

  steal_command (command->self, command->id);
  g_task_return_new_error (command->task, G_IO_ERROR, G_IO_ERROR_CANCELLED,
                           "qmp %s: Operation was cancelled", command->name);
  command_free (command);
  return G_SOURCE_REMOVE;
}

static void
fail_commands (VmmQmp *self, const char *reason)
{
  g_autofree char *text = g_strdup_printf ("connection closed: %s", reason);
  g_autoptr (GList) ids = g_hash_table_get_values (self->commands);

  g_hash_table_steal_all (self->commands);
  for (GList *item = ids; item != NULL; item = item->next)
    command_fail (item->data, VMM_ERROR_INTERNAL, text);
}

static void
closed_cb (VmmLineChannel *channel, const char *reason, gpointer user_data)
{
  g_autoptr (VmmQmp) self = g_object_ref (user_data);

  self->closed_reason = g_strdup (reason);
  if (vmm_line_handshake_is_pending (&self->handshake))
    {
      vmm_line_handshake_fail (&self->handshake, g_error_new (G_IO_ERROR, G_IO_ERROR_CLOSED,
                                                              "qmp greeting: %s", reason));
      return;
    }
  fail_commands (self, reason);
  g_signal_emit (self, signals[SIGNAL_CLOSED], 0, reason);
}

/* "<class>: <desc>" of what QEMU calls an error. */
static char *
describe_error (JsonObject *reply)
{
  JsonObject *object = NULL;
  const char *class = NULL;
  const char *text = NULL;
  g_autofree char *escaped_class = NULL;
  g_autofree char *escaped_text = NULL;

  if (!vmm_json_get_object (reply, "error", &object, NULL) || object == NULL
      || !vmm_json_get_string (object, "class", "GenericError", &class, NULL)
      || !vmm_json_get_string (object, "desc", "no description", &text, NULL))
    return g_strdup ("GenericError: an error without a description");
  escaped_class = vmm_log_escape (class, TEXT_MAX);
  escaped_text = vmm_log_escape (text, TEXT_MAX);
  return g_strdup_printf ("%s: %s", escaped_class, escaped_text);
}

static void
take_reply (VmmQmp *self, JsonObject *reply)
{
  gint64 id = 0;
  Command *command = NULL;

  /* An id of another type is not one of ours. */
  if (vmm_json_get_int (reply, "id", 0, &id, NULL))
    command = steal_command (self, id);
  if (command == NULL)
    {
      vmm_log_debug ("qmp answer to no command ignored", NULL);
      return;
    }
  if (json_object_has_member (reply, "error"))
    {
      g_autofree char *text = describe_error (reply);

      command_fail (command, VMM_ERROR_INTERNAL, text);
      return;
    }
  g_task_return_pointer (command->task, json_node_copy (json_object_get_member (reply, "return")),
                         (GDestroyNotify) json_node_unref);
  command_free (command);
}

static void
take_event (VmmQmp *self, JsonObject *message)
{
  const char *name = NULL;
  JsonObject *data = NULL;
  g_autoptr (JsonObject) empty = json_object_new ();

  if (!vmm_json_get_string (message, "event", NULL, &name, NULL) || name == NULL
      || !vmm_json_get_object (message, "data", &data, NULL))
    {
      vmm_line_channel_fail (self->channel, "an event without a name or with strange data");
      return;
    }
  if (!vmm_line_handshake_is_pending (&self->handshake))
    g_signal_emit (self, signals[SIGNAL_EVENT], 0, name, data != NULL ? data : empty);
}

static void
fail_greeting (VmmQmp *self)
{
  vmm_line_handshake_fail (&self->handshake,
                           vmm_error_new (VMM_ERROR_INTERNAL, "qmp greeting: not a QMP server"));
}

/* Features are negotiated with id 1, before anybody else may send a command. */
static void
take_greeting (VmmQmp *self, JsonObject *message)
{
  JsonObject *greeting = NULL;
  static const char capabilities[] = "{\"execute\":\"qmp_capabilities\",\"id\":1}";

  if (!vmm_json_get_object (message, "QMP", &greeting, NULL) || greeting == NULL)
    {
      fail_greeting (self);
      return;
    }
  self->greeted = TRUE;
  self->last_id = 1;
  vmm_line_channel_send (self->channel, capabilities, sizeof capabilities - 1);
}

static void
take_capabilities (VmmQmp *self, JsonObject *message)
{
  gint64 id = 0;

  if (!vmm_json_get_int (message, "id", 0, &id, NULL) || id != 1)
    return;
  if (!json_object_has_member (message, "return"))
    {
      g_autofree char *text = describe_error (message);

      vmm_line_handshake_fail (
          &self->handshake, vmm_error_new (VMM_ERROR_INTERNAL, "qmp qmp_capabilities: %s", text));
      return;
    }
  vmm_line_handshake_succeed (&self->handshake);
}

static void
line_cb (VmmLineChannel *channel, const char *line, guint64 length, gpointer user_data)
{
  g_autoptr (VmmQmp) self = g_object_ref (user_data);
  g_autoptr (JsonObject) message = vmm_json_parse_object (line, length, NULL);

  if (message == NULL && !self->greeted)
    fail_greeting (self);
  else if (message == NULL)
    vmm_line_channel_fail (channel, "a line is not a JSON object");
  else if (!self->greeted)
    take_greeting (self, message);
  else if (json_object_has_member (message, "event"))
    take_event (self, message);
  else if (!json_object_has_member (message, "return")
           && !json_object_has_member (message, "error"))
    vmm_log_debug ("qmp message of no known kind ignored", NULL);
  else if (vmm_line_handshake_is_pending (&self->handshake))
    take_capabilities (self, message);
  else
    take_reply (self, message);
}

static void
handshake_start (GSocket *socket, GCancellable *cancellable, GAsyncReadyCallback callback,
                 gpointer user_data)
{
  VmmQmp *self = g_object_new (VMM_TYPE_QMP, NULL);

  self->channel = vmm_line_channel_new (socket, LINE_MAX_SIZE);
  g_signal_connect_object (self->channel, "line", G_CALLBACK (line_cb), self, 0);
  g_signal_connect_object (self->channel, "closed", G_CALLBACK (closed_cb), self, 0);
  vmm_line_handshake_begin (&self->handshake, G_OBJECT (self), self->channel, cancellable, callback,
                            user_data);
}

static void
dialled_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  g_autoptr (GTask) task = user_data;
  GError *error = NULL;
  GObject *self = vmm_child_socket_dial_finish (result, &error);

  if (self != NULL)
    g_task_return_pointer (task, self, g_object_unref);
  else
    g_task_return_error (task, error);
}

void
vmm_qmp_connect_async (const char *socket_path, VmmProcess *process, const char *log_path,
                       GCancellable *cancellable, GAsyncReadyCallback callback, gpointer user_data)
{
  GTask *task = g_task_new (NULL, cancellable, callback, user_data);
  const VmmChildSocket config = {
    .socket_path = socket_path,
    .process = process,
    .log_path = log_path,
    .exited_text = "qemu exited during start",
    .limit_format = "qemu QMP at %s did not answer within 10s: %s (%s)",
    .attempt_ms = ATTEMPT_MS,
    .limit_ms = CONNECT_MS,
    .start = handshake_start,
    .finish = vmm_line_handshake_finish,
  };

  g_task_set_source_tag (task, vmm_qmp_connect_async);
  g_task_set_check_cancellable (task, FALSE);
  vmm_child_socket_dial_async (&config, cancellable, dialled_cb, task);
}

VmmQmp *
vmm_qmp_connect_finish (GAsyncResult *result, GError **error)
{
  g_return_val_if_fail (g_async_result_is_tagged (result, vmm_qmp_connect_async), NULL);

  return g_task_propagate_pointer (G_TASK (result), error);
}

static char *
format_command (gint64 id, const char *command, JsonObject *arguments, gsize *length)
{
  g_autoptr (JsonObject) object = json_object_new ();
  g_autoptr (JsonNode) node = NULL;

  json_object_set_string_member (object, "execute", command);
  if (arguments != NULL)
    json_object_set_object_member (object, "arguments", json_object_ref (arguments));
  json_object_set_int_member (object, "id", id);
  node = vmm_json_node_take_object (g_steal_pointer (&object));
  return vmm_json_to_line (node, length);
}

static void
watch_command (Command *command, GCancellable *cancellable)
{
  command->timeout_source = g_timeout_add (command->timeout_ms, command_timeout_cb, command);
  command->cancelled_source = vmm_source_new_cancelled (cancellable, command_cancelled_cb, command);
}

void
vmm_qmp_execute_async (VmmQmp *self, const char *command, JsonObject *arguments, guint timeout_ms,
                       GCancellable *cancellable, GAsyncReadyCallback callback, gpointer user_data)
{
  g_autoptr (GTask) task = g_task_new (self, cancellable, callback, user_data);
  g_autofree char *line = NULL;
  Command *pending;
  gsize length;

  g_return_if_fail (VMM_IS_QMP (self));
  g_return_if_fail (command != NULL && timeout_ms > 0);

  g_task_set_source_tag (task, vmm_qmp_execute_async);
  g_task_set_check_cancellable (task, FALSE); /* an answer that came is never thrown away */
  if (!vmm_qmp_is_open (self))
    {
      g_task_return_error (task, vmm_error_new (VMM_ERROR_INTERNAL, "qmp %s: connection closed: %s",
                                                command, self->closed_reason));
      return;
    }
  if (g_hash_table_size (self->commands) >= IN_FLIGHT_MAX)
    {
      g_task_return_error (task, vmm_error_new (VMM_ERROR_CONFLICT,
                                                "qmp %s: %u commands wait for an answer", command,
                                                IN_FLIGHT_MAX));
      return;
    }
  pending = g_new0 (Command, 1);
  pending->self = self;
  pending->id = ++self->last_id;
  pending->name = g_strdup (command);
  pending->task = g_object_ref (task);
  pending->timeout_ms = timeout_ms;
  g_hash_table_insert (self->commands, &pending->id, pending);
  watch_command (pending, cancellable);
  line = format_command (pending->id, command, arguments, &length);
  vmm_line_channel_send (self->channel, line, length); /* on failure ::closed answers */
}

JsonNode *
vmm_qmp_execute_finish (VmmQmp *self, GAsyncResult *result, GError **error)
{
  g_return_val_if_fail (g_task_is_valid (result, self), NULL);

  return g_task_propagate_pointer (G_TASK (result), error);
}

void
vmm_qmp_close (VmmQmp *self)
{
  g_return_if_fail (VMM_IS_QMP (self));

  if (!vmm_qmp_is_open (self))
    return;
  vmm_line_channel_close (self->channel);
  self->closed_reason = g_strdup ("closed by vm-manager");
  fail_commands (self, self->closed_reason);
}

gboolean
vmm_qmp_is_open (VmmQmp *self)
{
  g_return_val_if_fail (VMM_IS_QMP (self), FALSE);

  return self->channel != NULL && vmm_line_channel_is_open (self->channel);
}

/* Commands hold a reference, so there are none left when this runs. */
static void
vmm_qmp_dispose (GObject *object)
{
  VmmQmp *self = VMM_QMP (object);

  if (self->channel != NULL)
    vmm_line_channel_close (self->channel);
  G_OBJECT_CLASS (vmm_qmp_parent_class)->dispose (object);
}

static void
vmm_qmp_finalize (GObject *object)
{
  VmmQmp *self = VMM_QMP (object);

  g_clear_object (&self->channel);
  g_hash_table_unref (self->commands);
  g_free (self->closed_reason);
  G_OBJECT_CLASS (vmm_qmp_parent_class)->finalize (object);
}

static void
vmm_qmp_class_init (VmmQmpClass *class)
{
  G_OBJECT_CLASS (class)->dispose = vmm_qmp_dispose;
  G_OBJECT_CLASS (class)->finalize = vmm_qmp_finalize;

  signals[SIGNAL_EVENT] = g_signal_new ("event", VMM_TYPE_QMP, G_SIGNAL_RUN_LAST, 0, NULL, NULL,
                                        NULL, G_TYPE_NONE, 2, G_TYPE_STRING, JSON_TYPE_OBJECT);
  signals[SIGNAL_CLOSED] = g_signal_new ("closed", VMM_TYPE_QMP, G_SIGNAL_RUN_LAST, 0, NULL, NULL,
                                         NULL, G_TYPE_NONE, 1, G_TYPE_STRING);
}

static void
vmm_qmp_init (VmmQmp *self)
{
  self->commands = g_hash_table_new_full (g_int64_hash, g_int64_equal, NULL, command_free);
}

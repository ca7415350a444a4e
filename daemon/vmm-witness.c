/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The daemon's end of vmm-monitor.
 *
 * The monitor sees everything that happens to a VM and writes it into a journal with numbers; the
 * daemon says which number it has seen and gets the rest, then what happens from now on. So
 * nothing is missed while the daemon is away, and nothing is handled twice.
 *
 * The monitor listens to a guest. What it says is checked: lines are bounded, numbers only grow, a
 * message that is not one ends the connection. An event of an unknown name is passed on: a newer
 * monitor may know more than its daemon.
 */
#include "config.h"

#include "vmm-witness.h"

#include <string.h>

#include "interfaces/vmm-error.h"
#include "interfaces/vmm-helper.h"
#include "vmm-child-start.h"
#include "vmm-json.h"
#include "vmm-line-channel.h"
#include "vmm-line-handshake.h"

#define PROGRAM "vmm-monitor"
#define PROTOCOL_VERSION 1
#define LINE_MAX_SIZE (64 * 1024)
#define ATTEMPT_MS 1000
#define LIMIT_MS 5000
#define SOCKET_NAME "monitor.sock"
#define LOG_NAME "monitor.log"

struct _VmmWitness
{
  GObject parent_instance;

  VmmLineChannel *channel;
  guint64 last_seq;
  VmmLineHandshake handshake;
};

enum
{
  SIGNAL_EVENT,
  SIGNAL_CLOSED,
  N_SIGNALS
};

static guint signals[N_SIGNALS];

G_DEFINE_FINAL_TYPE (VmmWitness, vmm_witness, G_TYPE_OBJECT)

static void
closed_cb (VmmLineChannel *channel, const char *reason, gpointer user_data)
{
  g_autoptr (VmmWitness) self = g_object_ref (user_data);

  if (vmm_line_handshake_is_pending (&self->handshake))
    vmm_line_handshake_fail (&self->handshake,
                             g_error_new_literal (G_IO_ERROR, G_IO_ERROR_CLOSED, reason));
  else
    g_signal_emit (self, signals[SIGNAL_CLOSED], 0, reason);
}

static void
take_hello (VmmWitness *self, JsonObject *message)
{
  gint64 version = 0;

  if (message == NULL || !vmm_json_get_int (message, "vmm-monitor", 0, &version, NULL)
      || version < 1)
    {
      vmm_line_handshake_fail (
          &self->handshake,
          vmm_error_new (VMM_ERROR_INTERNAL, "the socket is not served by vmm-monitor"));
      return;
    }
  if (version != PROTOCOL_VERSION)
    {
      vmm_line_handshake_fail (&self->handshake,
                               vmm_error_new (VMM_ERROR_UNSUPPORTED,
                                              "vmm-monitor speaks version %" G_GINT64_FORMAT
                                              " of its protocol, this vm-manager speaks %d",
                                              version, PROTOCOL_VERSION));
      return;
    }
  vmm_line_handshake_succeed (&self->handshake);
}

static void
take_entry (VmmWitness *self, JsonObject *message)
{
  g_autoptr (JsonObject) empty = json_object_new ();
  JsonObject *data = NULL;
  const char *name = NULL;
  gint64 seq = 0;

  if (message == NULL || !vmm_json_get_int (message, "seq", 0, &seq, NULL)
      || !vmm_json_get_string (message, "event", NULL, &name, NULL) || name == NULL
      || !vmm_json_get_object (message, "data", &data, NULL))
    {
      vmm_line_channel_fail (self->channel, "a line is not a journal entry");
      return;
    }
  if (seq <= 0 || (guint64) seq <= self->last_seq)
    {
      vmm_line_channel_fail (self->channel, "the journal's numbers do not grow");
      return;
    }
  self->last_seq = seq;
  g_signal_emit (self, signals[SIGNAL_EVENT], 0, (guint64) seq, name, data != NULL ? data : empty);
}

static void
line_cb (VmmLineChannel *channel, const char *line, guint64 length, gpointer user_data)
{
  g_autoptr (VmmWitness) self = g_object_ref (user_data);
  g_autoptr (JsonObject) message = vmm_json_parse_object (line, length, NULL);

  if (vmm_line_handshake_is_pending (&self->handshake))
    take_hello (self, message);
  else
    take_entry (self, message);
}

static void
handshake_start (GSocket *socket, GCancellable *cancellable, GAsyncReadyCallback callback,
                 gpointer user_data)
{
  VmmWitness *self = g_object_new (VMM_TYPE_WITNESS, NULL);

  self->channel = vmm_line_channel_new (socket, LINE_MAX_SIZE);
  g_signal_connect_object (self->channel, "line", G_CALLBACK (line_cb), self, 0);
  g_signal_connect_object (self->channel, "closed", G_CALLBACK (closed_cb), self, 0);
  vmm_line_handshake_begin (&self->handshake, G_OBJECT (self), self->channel, cancellable, callback,
                            user_data);
}

/* How to reach the monitor in a folder; the texts are the ones for one that was just started. */
static VmmChildSocket
describe_socket (const char *socket_path, const char *log_path)
{
  const VmmChildSocket socket = {
    .socket_path = socket_path,
    .log_path = log_path,
    .exited_text = "vmm-monitor exited before its socket answered",
    .limit_format = "vmm-monitor at %s did not answer within 5s (%s): %s",
    .attempt_ms = ATTEMPT_MS,
    .limit_ms = LIMIT_MS,
    .start = handshake_start,
    .finish = vmm_line_handshake_finish,
  };

  return socket;
}

/* Starting. */

static VmmProcessSpec *
build_spec (const VmmWitnessConfig *config, const char *log_path)
{
  g_autofree char *id = vmm_process_id_for_vm (config->vm_id, "monitor");
  g_autofree char *cid = g_strdup_printf ("%u", config->cid);
  g_autofree char *port = g_strdup_printf ("%u", config->notify_port);
  g_autofree char *program = vmm_helper_find (PROGRAM);
  const char *const argv[] = { program,
                               "--directory",
                               config->directory,
                               "--cid",
                               cid,
                               "--notify-port",
                               port,
                               config->vsock_socket != NULL ? "--vsock-socket" : NULL,
                               config->vsock_socket,
                               NULL };
  VmmProcessSpec *spec = vmm_process_spec_new (id, argv);

  vmm_process_spec_set_owner (spec, config->vm_id, "monitor");
  vmm_process_spec_set_log (spec, log_path);
  vmm_process_spec_add_writable_path (spec, config->directory);
  return spec;
}

/* The one that has answered is let go: who wants the journal connects and says from where on. */
void
vmm_witness_start_async (VmmLauncher *launcher, const VmmWitnessConfig *config,
                         GCancellable *cancellable, GAsyncReadyCallback callback,
                         gpointer user_data)
{
  g_autofree char *socket_path = g_build_filename (config->directory, SOCKET_NAME, NULL);
  g_autofree char *log_path = g_build_filename (config->directory, LOG_NAME, NULL);
  g_autoptr (VmmProcessSpec) spec = build_spec (config, log_path);
  const VmmChildStart start = {
    .spec = spec,
    .program = PROGRAM,
    .socket_name = "monitor",
    .directory = config->directory,
    .socket = describe_socket (socket_path, log_path),
  };

  vmm_child_start_async (launcher, &start, cancellable, callback, user_data);
}

VmmProcess *
vmm_witness_start_finish (GAsyncResult *result, GError **error)
{
  return vmm_child_start_finish (result, error);
}

/* Connecting. */

static void
connected_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  g_autoptr (GTask) task = user_data;
  guint64 *read_from = g_task_get_task_data (task);
  g_autofree char *request = NULL;
  GError *error = NULL;
  g_autoptr (GObject) object = vmm_child_socket_dial_finish (result, &error);
  VmmWitness *self;

  if (object == NULL)
    {
      g_task_return_error (task, error);
      return;
    }
  self = VMM_WITNESS (object);
  self->last_seq = *read_from;
  request = g_strdup_printf ("{\"read-from\":%" G_GUINT64_FORMAT "}", *read_from);
  vmm_line_channel_send (self->channel, request, strlen (request));
  g_task_return_pointer (task, g_steal_pointer (&object), g_object_unref);
}

void
vmm_witness_connect_async (const char *directory, guint64 read_from, GCancellable *cancellable,
                           GAsyncReadyCallback callback, gpointer user_data)
{
  g_autoptr (GTask) task = g_task_new (NULL, cancellable, callback, user_data);
  g_autofree char *socket_path = g_build_filename (directory, SOCKET_NAME, NULL);
  g_autofree char *log_path = g_build_filename (directory, LOG_NAME, NULL);
  const VmmChildSocket socket = describe_socket (socket_path, log_path);

  g_task_set_source_tag (task, vmm_witness_connect_async);
  g_task_set_check_cancellable (task, FALSE);
  g_task_set_task_data (task, g_memdup2 (&read_from, sizeof read_from), g_free);
  vmm_child_socket_dial_async (&socket, cancellable, connected_cb, g_steal_pointer (&task));
}

VmmWitness *
vmm_witness_connect_finish (GAsyncResult *result, GError **error)
{
  g_return_val_if_fail (g_async_result_is_tagged (result, vmm_witness_connect_async), NULL);

  return g_task_propagate_pointer (G_TASK (result), error);
}

void
vmm_witness_close (VmmWitness *self)
{
  g_return_if_fail (VMM_IS_WITNESS (self));

  vmm_line_channel_close (self->channel);
}

gboolean
vmm_witness_is_open (VmmWitness *self)
{
  g_return_val_if_fail (VMM_IS_WITNESS (self), FALSE);

  return vmm_line_channel_is_open (self->channel);
}

static void
vmm_witness_dispose (GObject *object)
{
  VmmWitness *self = VMM_WITNESS (object);

  if (self->channel != NULL)
    vmm_line_channel_close (self->channel);
  G_OBJECT_CLASS (vmm_witness_parent_class)->dispose (object);
}

static void
vmm_witness_finalize (GObject *object)
{
  g_clear_object (&VMM_WITNESS (object)->channel);
  G_OBJECT_CLASS (vmm_witness_parent_class)->finalize (object);
}

static void
vmm_witness_class_init (VmmWitnessClass *class)
{
  G_OBJECT_CLASS (class)->dispose = vmm_witness_dispose;
  G_OBJECT_CLASS (class)->finalize = vmm_witness_finalize;

  signals[SIGNAL_EVENT]
      = g_signal_new ("event", VMM_TYPE_WITNESS, G_SIGNAL_RUN_LAST, 0, NULL, NULL, NULL,
                      G_TYPE_NONE, 3, G_TYPE_UINT64, G_TYPE_STRING, JSON_TYPE_OBJECT);
  signals[SIGNAL_CLOSED] = g_signal_new ("closed", VMM_TYPE_WITNESS, G_SIGNAL_RUN_LAST, 0, NULL,
                                         NULL, NULL, G_TYPE_NONE, 1, G_TYPE_STRING);
}

static void
vmm_witness_init (VmmWitness *self)
{
}

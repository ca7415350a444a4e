/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The stream of one exchange.
 *
 * libsoup gets a new one per request, so it never sees idle connections, pipelined bytes or a second
 * request: version 3.2 leaks the connection of a client that leaves between two of them. There is no
 * limit on how long an answer takes, only on how long a client may not read it. */

#include "config.h"

#include "vmm-http-exchange.h"

#define VMM_TYPE_HTTP_OUTPUT (vmm_http_output_get_type ())
G_DECLARE_FINAL_TYPE (VmmHttpOutput, vmm_http_output, VMM, HTTP_OUTPUT, GOutputStream)

struct _VmmHttpOutput
{
  GOutputStream parent_instance;

  GSocket *socket;
  guint stall_limit_s;
  guint stall_id;
  gboolean broken;
};

static void vmm_http_output_pollable_init (GPollableOutputStreamInterface *iface);

G_DEFINE_FINAL_TYPE_WITH_CODE (VmmHttpOutput, vmm_http_output, G_TYPE_OUTPUT_STREAM,
                               G_IMPLEMENT_INTERFACE (G_TYPE_POLLABLE_OUTPUT_STREAM,
                                                      vmm_http_output_pollable_init))

static gboolean
stalled_cb (gpointer user_data)
{
  VmmHttpOutput *self = user_data;

  self->stall_id = 0;
  self->broken = TRUE;
  /* Makes the socket writable with an error: whoever waits for it wakes up. */
  g_socket_shutdown (self->socket, TRUE, TRUE, NULL);
  return G_SOURCE_REMOVE;
}

static gssize
vmm_http_output_write_nonblocking (GPollableOutputStream *stream, const void *buffer, gsize count,
                                   GError **error)
{
  VmmHttpOutput *self = VMM_HTTP_OUTPUT (stream);
  g_autoptr (GError) problem = NULL;
  gssize n;

  if (self->broken)
    {
      g_set_error_literal (error, G_IO_ERROR, G_IO_ERROR_BROKEN_PIPE, "the client is gone");
      return -1;
    }
  n = g_socket_send_with_blocking (self->socket, buffer, count, FALSE, NULL, &problem);
  if (n >= 0)
    {
      g_clear_handle_id (&self->stall_id, g_source_remove);
      return n;
    }
  if (!g_error_matches (problem, G_IO_ERROR, G_IO_ERROR_WOULD_BLOCK))
    self->broken = TRUE;
  else if (self->stall_id == 0)
    self->stall_id = g_timeout_add_seconds (self->stall_limit_s, stalled_cb, self);
  g_propagate_error (error, g_steal_pointer (&problem));
  return -1;
}

/* libsoup ends a chunked answer with a blocking write in a worker thread: no timer there. */
static gssize
vmm_http_output_write (GOutputStream *stream, const void *buffer, gsize count,
                       GCancellable *cancellable, GError **error)
{
  VmmHttpOutput *self = VMM_HTTP_OUTPUT (stream);
  gint64 limit = (gint64) self->stall_limit_s * G_USEC_PER_SEC;

  if (!g_socket_condition_timed_wait (self->socket, G_IO_OUT, limit, cancellable, error))
    return -1;
  return g_socket_send_with_blocking (self->socket, buffer, count, FALSE, cancellable, error);
}

static gboolean
vmm_http_output_is_writable (GPollableOutputStream *stream)
{
  VmmHttpOutput *self = VMM_HTTP_OUTPUT (stream);

  return self->broken || g_socket_condition_check (self->socket, G_IO_OUT) != 0;
}

static GSource *
vmm_http_output_create_source (GPollableOutputStream *stream, GCancellable *cancellable)
{
  VmmHttpOutput *self = VMM_HTTP_OUTPUT (stream);
  g_autoptr (GSource) ready = g_socket_create_source (self->socket, G_IO_OUT, NULL);

  return g_pollable_source_new_full (stream, ready, cancellable);
}

static void
vmm_http_output_pollable_init (GPollableOutputStreamInterface *iface)
{
  iface->is_writable = vmm_http_output_is_writable;
  iface->create_source = vmm_http_output_create_source;
  iface->write_nonblocking = vmm_http_output_write_nonblocking;
}

static gboolean
vmm_http_output_close (GOutputStream *stream, GCancellable *cancellable, GError **error)
{
  VmmHttpOutput *self = VMM_HTTP_OUTPUT (stream);

  g_clear_handle_id (&self->stall_id, g_source_remove);
  return TRUE;
}

static void
vmm_http_output_dispose (GObject *object)
{
  VmmHttpOutput *self = VMM_HTTP_OUTPUT (object);

  g_clear_handle_id (&self->stall_id, g_source_remove);
  G_OBJECT_CLASS (vmm_http_output_parent_class)->dispose (object);
}

static void
vmm_http_output_finalize (GObject *object)
{
  VmmHttpOutput *self = VMM_HTTP_OUTPUT (object);

  g_clear_object (&self->socket);
  G_OBJECT_CLASS (vmm_http_output_parent_class)->finalize (object);
}

static void
vmm_http_output_class_init (VmmHttpOutputClass *klass)
{
  GOutputStreamClass *stream_class = G_OUTPUT_STREAM_CLASS (klass);
  GObjectClass *object_class = G_OBJECT_CLASS (klass);

  object_class->dispose = vmm_http_output_dispose;
  object_class->finalize = vmm_http_output_finalize;
  stream_class->write_fn = vmm_http_output_write;
  stream_class->close_fn = vmm_http_output_close;
}

static void
vmm_http_output_init (VmmHttpOutput *self)
{
}

struct _VmmHttpExchange
{
  GIOStream parent_instance;

  GInputStream *input;
  VmmHttpOutput *output;
};

enum
{
  CLOSED,
  N_SIGNALS
};
static guint signals[N_SIGNALS];

G_DEFINE_FINAL_TYPE (VmmHttpExchange, vmm_http_exchange, G_TYPE_IO_STREAM)

static GInputStream *
vmm_http_exchange_get_input_stream (GIOStream *stream)
{
  return VMM_HTTP_EXCHANGE (stream)->input;
}

static GOutputStream *
vmm_http_exchange_get_output_stream (GIOStream *stream)
{
  return G_OUTPUT_STREAM (VMM_HTTP_EXCHANGE (stream)->output);
}

static gboolean
vmm_http_exchange_close (GIOStream *stream, GCancellable *cancellable, GError **error)
{
  VmmHttpExchange *self = VMM_HTTP_EXCHANGE (stream);

  g_output_stream_close (G_OUTPUT_STREAM (self->output), NULL, NULL);
  g_signal_emit (self, signals[CLOSED], 0);
  return TRUE;
}

static void
vmm_http_exchange_finalize (GObject *object)
{
  VmmHttpExchange *self = VMM_HTTP_EXCHANGE (object);

  g_clear_object (&self->input);
  g_clear_object (&self->output);
  G_OBJECT_CLASS (vmm_http_exchange_parent_class)->finalize (object);
}

static void
vmm_http_exchange_class_init (VmmHttpExchangeClass *klass)
{
  GIOStreamClass *stream_class = G_IO_STREAM_CLASS (klass);

  G_OBJECT_CLASS (klass)->finalize = vmm_http_exchange_finalize;
  stream_class->get_input_stream = vmm_http_exchange_get_input_stream;
  stream_class->get_output_stream = vmm_http_exchange_get_output_stream;
  stream_class->close_fn = vmm_http_exchange_close;

  signals[CLOSED] = g_signal_new ("closed", VMM_TYPE_HTTP_EXCHANGE, G_SIGNAL_RUN_LAST, 0, NULL,
                                  NULL, NULL, G_TYPE_NONE, 0);
}

static void
vmm_http_exchange_init (VmmHttpExchange *self)
{
}

VmmHttpExchange *
vmm_http_exchange_new (GBytes *request, GSocket *socket, guint stall_limit_s)
{
  VmmHttpExchange *self = g_object_new (VMM_TYPE_HTTP_EXCHANGE, NULL);

  self->input = g_memory_input_stream_new_from_bytes (request);
  self->output = g_object_new (VMM_TYPE_HTTP_OUTPUT, NULL);
  self->output->socket = g_object_ref (socket);
  self->output->stall_limit_s = stall_limit_s;
  return self;
}

gboolean
vmm_http_exchange_is_broken (VmmHttpExchange *self)
{
  return self->output->broken;
}

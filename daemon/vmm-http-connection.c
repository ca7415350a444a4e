/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* One HTTP connection.
 *
 * States: HEAD (waiting for or reading a head), BODY, ANSWERING, LINGERING, CLOSED. Bytes are read
 * only in the first two and while lingering; a timer runs only in those. What can't be understood, or
 * must not be served, is answered here and never reaches libsoup; everything else is handed over as a
 * whole. While an answer is worked on, the socket is watched for a client that leaves. The end of a
 * connection with unread bytes is delayed: closing would reset it and take the answer away from a
 * client that is still sending. */

#include "config.h"

#include "vmm-http-connection.h"

#include <poll.h>
#include <string.h>

#include <glib-unix.h>
#include <json-glib/json-glib.h>

#include "interfaces/vmm-error.h"
#include "vmm-http-body.h"
#include "vmm-json.h"
#include "vmm-log.h"
#include "vmm-source.h"

#define READ_SIZE (64 * 1024)

typedef enum
{
  STATE_HEAD,
  STATE_BODY,
  STATE_ANSWERING,
  STATE_LINGERING,
  STATE_CLOSED,
} State;

struct _VmmHttpConnection
{
  GObject parent_instance;

  GSocket *socket;
  VmmHttpPeer *peer;
  VmmHttpTimes times;
  gsize max_body;
  const VmmHttpConnectionFuncs *funcs;
  gpointer user_data;

  State state;
  gboolean skipped;   /* an empty line before this request */
  gboolean finishing; /* no further request */
  gboolean answered;
  GByteArray *input;
  gsize scanned;
  VmmHttpHead *head;
  VmmHttpBody *body;
  GBytes *content;
  gboolean too_large;
  gsize received; /* of this body */
  gsize held;     /* of that, counted among all connections */
  VmmHttpExchange *exchange;
  GCancellable *cancellable;

  GSource *read_source;
  GSource *watch_source;
  guint timer_id;
  guint resume_id;
};

enum
{
  CLOSED,
  N_SIGNALS
};
static guint signals[N_SIGNALS];

G_DEFINE_FINAL_TYPE (VmmHttpConnection, vmm_http_connection, G_TYPE_OBJECT)

static void process (VmmHttpConnection *self);
static void close_slowly (VmmHttpConnection *self);

static void
stop_sources (VmmHttpConnection *self)
{
  vmm_source_clear (&self->read_source);
  vmm_source_clear (&self->watch_source);
  g_clear_handle_id (&self->timer_id, g_source_remove);
  g_clear_handle_id (&self->resume_id, g_source_remove);
}

static gboolean
hold_body (VmmHttpConnection *self)
{
  gsize wanted = self->received > VMM_HTTP_SMALL_BODY ? self->received : 0;

  if (wanted > self->held
      && !self->funcs->hold_bytes (self, (gssize) (wanted - self->held), self->user_data))
    return FALSE;
  self->held = MAX (wanted, self->held);
  return TRUE;
}

static void
release_body (VmmHttpConnection *self)
{
  gssize held = (gssize) self->held;

  self->received = 0;
  self->held = 0;
  if (held > 0)
    self->funcs->hold_bytes (self, -held, self->user_data);
}

static void
close_now (VmmHttpConnection *self)
{
  if (self->state == STATE_CLOSED)
    return;
  release_body (self);
  self->state = STATE_CLOSED;
  stop_sources (self);
  g_socket_close (self->socket, NULL);
  g_signal_emit (self, signals[CLOSED], 0);
}

static void
forget_request (VmmHttpConnection *self)
{
  g_clear_pointer (&self->head, vmm_http_head_free);
  g_clear_pointer (&self->body, vmm_http_body_free);
  g_clear_pointer (&self->content, g_bytes_unref);
  g_clear_object (&self->cancellable);
  self->too_large = FALSE;
  self->answered = FALSE;
  self->scanned = 0;
  self->skipped = FALSE;
}

static char *
format_refusal (guint status, const GError *error, gboolean with_content)
{
  g_autoptr (JsonObject) object = json_object_new ();
  g_autoptr (JsonNode) node = NULL;
  g_autofree char *content = NULL;
  JsonObject *inner = json_object_new ();
  const char *phrase = status == 403   ? "Forbidden"
                       : status == 408 ? "Request Timeout"
                       : status == 503 ? "Service Unavailable"
                                       : "Bad Request";
  gsize length;

  json_object_set_string_member (inner, "code", vmm_error_get_info (error->code)->slug);
  json_object_set_string_member (inner, "message", error->message);
  json_object_set_object_member (object, "error", inner);
  node = vmm_json_node_take_object (g_steal_pointer (&object));
  content = vmm_json_to_text (node, &length);
  return g_strdup_printf ("HTTP/1.1 %u %s\r\nContent-Type: application/json\r\n"
                          "Content-Length: %" G_GSIZE_FORMAT "\r\nConnection: close\r\n\r\n%s",
                          status, phrase, length, with_content ? content : "");
}

void
vmm_http_connection_refuse (VmmHttpConnection *self, guint status, const GError *error)
{
  gboolean is_head = self->head != NULL && g_strcmp0 (self->head->method, "HEAD") == 0;
  g_autofree char *text = format_refusal (status, error, !is_head);

  if (self->state == STATE_CLOSED || self->state == STATE_LINGERING)
    return;
  vmm_log_debug ("request refused", "subject", self->peer->subject, "error", error->message, NULL);
  /* It fits into the empty buffer of the socket; a client for which it does not gets no answer. */
  g_socket_send_with_blocking (self->socket, text, strlen (text), FALSE, NULL, NULL);
  close_slowly (self);
}

static gboolean
timer_cb (gpointer user_data)
{
  g_autoptr (VmmHttpConnection) self = g_object_ref (user_data);
  g_autoptr (GError) error = NULL;

  self->timer_id = 0;
  if (self->state == STATE_LINGERING || (self->state == STATE_HEAD && self->input->len == 0))
    {
      close_now (self);
      return G_SOURCE_REMOVE;
    }
  error = vmm_error_new (VMM_ERROR_INVALID_REQUEST, "http: the request did not arrive in time");
  vmm_http_connection_refuse (self, 408, error);
  return G_SOURCE_REMOVE;
}

static void
set_timer (VmmHttpConnection *self, guint ms)
{
  g_clear_handle_id (&self->timer_id, g_source_remove);
  if (ms >= 1000)
    self->timer_id = g_timeout_add_seconds (ms / 1000, timer_cb, self);
  else
    self->timer_id = g_timeout_add (ms, timer_cb, self);
}

/* Drops what still arrives. */
static void
drain (VmmHttpConnection *self)
{
  char buffer[READ_SIZE];
  gssize n = g_socket_receive_with_blocking (self->socket, buffer, sizeof buffer, FALSE, NULL, NULL);

  /* An error other than "nothing there" also shows as a condition of the socket later on. */
  if (n == 0 || (n < 0 && g_socket_condition_check (self->socket, G_IO_ERR | G_IO_HUP) != 0))
    close_now (self);
}

static void
take_input (VmmHttpConnection *self)
{
  gsize have = self->input->len;
  g_autoptr (GError) error = NULL;
  gssize n;

  g_byte_array_set_size (self->input, have + READ_SIZE);
  n = g_socket_receive_with_blocking (self->socket, (char *) self->input->data + have, READ_SIZE,
                                      FALSE, NULL, &error);
  g_byte_array_set_size (self->input, have + MAX (n, 0));
  if (g_error_matches (error, G_IO_ERROR, G_IO_ERROR_WOULD_BLOCK))
    return;
  if (n <= 0)
    {
      close_now (self);
      return;
    }
  if (self->state == STATE_HEAD && have == 0)
    set_timer (self, self->times.head_ms);
  process (self);
}

static gboolean
readable_cb (GSocket *socket, GIOCondition condition, gpointer user_data)
{
  g_autoptr (VmmHttpConnection) self = g_object_ref (user_data);

  if (self->state == STATE_LINGERING)
    drain (self);
  else
    take_input (self);
  return G_SOURCE_CONTINUE;
}

static void
start_reading (VmmHttpConnection *self)
{
  if (self->read_source != NULL)
    return;
  self->read_source = g_socket_create_source (self->socket, G_IO_IN, NULL);
  g_source_set_callback (self->read_source, G_SOURCE_FUNC (readable_cb), self, NULL);
  g_source_attach (self->read_source, NULL);
}

/* The answer was sent: no more of ours, the client reads and closes, or has its time. */
static void
close_slowly (VmmHttpConnection *self)
{
  if (self->state == STATE_CLOSED || self->state == STATE_LINGERING)
    return;
  stop_sources (self);
  /* Nothing that came is needed any more: who is slow to leave does not keep it. */
  g_byte_array_unref (self->input);
  self->input = g_byte_array_new ();
  g_clear_pointer (&self->body, vmm_http_body_free);
  release_body (self);
  self->state = STATE_LINGERING;
  if (!g_socket_shutdown (self->socket, FALSE, TRUE, NULL))
    {
      close_now (self);
      return;
    }
  set_timer (self, self->times.linger_ms);
  start_reading (self);
}

static gboolean
hang_up_cb (int fd, GIOCondition condition, gpointer user_data)
{
  g_autoptr (VmmHttpConnection) self = g_object_ref (user_data);

  vmm_source_clear (&self->watch_source);
  /* Only its sending side may be closed: then it waits for the answer. */
  if ((condition & (G_IO_HUP | G_IO_ERR)) == 0 && vmm_http_peer_is_present (self->socket))
    return G_SOURCE_REMOVE;
  g_cancellable_cancel (self->cancellable);
  return G_SOURCE_REMOVE;
}

static void
watch_client (VmmHttpConnection *self)
{
  self->watch_source = g_unix_fd_source_new (g_socket_get_fd (self->socket),
                                             (GIOCondition) (G_IO_HUP | G_IO_ERR | POLLRDHUP));
  g_source_set_callback (self->watch_source, G_SOURCE_FUNC (hang_up_cb), self, NULL);
  g_source_attach (self->watch_source, NULL);
}

static gboolean
resume_cb (gpointer user_data)
{
  g_autoptr (VmmHttpConnection) self = g_object_ref (user_data);

  self->resume_id = 0;
  process (self);
  return G_SOURCE_REMOVE;
}

/* libsoup is done with the request, whether it answered or gave up. */
static void
exchange_closed_cb (VmmHttpExchange *exchange, gpointer user_data)
{
  g_autoptr (VmmHttpConnection) self = g_object_ref (user_data);
  gboolean reusable = self->answered && vmm_http_connection_is_keep_alive (self) &&
                      !vmm_http_exchange_is_broken (exchange);

  g_signal_handlers_disconnect_by_data (exchange, self);
  g_clear_object (&self->exchange);
  vmm_source_clear (&self->watch_source);
  self->funcs->release_request (self, self->user_data);
  release_body (self);
  forget_request (self);
  if (self->state == STATE_CLOSED)
    return;
  if (!reusable)
    {
      close_slowly (self);
      return;
    }
  self->state = STATE_HEAD;
  set_timer (self, self->input->len > 0 ? self->times.head_ms : self->times.idle_ms);
  start_reading (self);
  /* A next request may be here already; we are still inside libsoup's finishing of this one. */
  if (self->input->len > 0)
    self->resume_id = g_timeout_add (0, resume_cb, self);
}

static void
hand_over (VmmHttpConnection *self)
{
  g_autoptr (GBytes) request = vmm_http_head_to_bytes (self->head);
  g_autoptr (VmmHttpExchange) exchange = NULL;

  self->content = self->body != NULL && !self->too_large ? vmm_http_body_take (self->body)
                                                         : g_bytes_new_static ("", 0);
  g_clear_pointer (&self->body, vmm_http_body_free);
  g_clear_handle_id (&self->timer_id, g_source_remove);
  vmm_source_clear (&self->read_source);
  self->state = STATE_ANSWERING;
  self->cancellable = g_cancellable_new ();
  watch_client (self);

  exchange =
      vmm_http_exchange_new (request, self->socket, MAX (self->times.stall_ms / 1000, 1));
  self->exchange = g_object_ref (exchange);
  g_signal_connect (exchange, "closed", G_CALLBACK (exchange_closed_cb), self);
  self->funcs->take_request (self, exchange, self->user_data);
}

static void
refuse_malformed (VmmHttpConnection *self, const GError *error)
{
  vmm_http_connection_refuse (self, vmm_error_get_info (error->code)->http_status, error);
}

/* A head is complete: what follows it? */
static void
begin_body (VmmHttpConnection *self)
{
  static const char go_on[] = "HTTP/1.1 100 Continue\r\n\r\n";
  g_autoptr (GError) error = self->funcs->check_head (self, self->head, self->user_data);

  if (error != NULL)
    {
      refuse_malformed (self, error);
      return;
    }
  if (!self->head->chunked && self->head->content_length <= 0)
    {
      hand_over (self);
      return;
    }
  self->too_large = self->head->content_length > (gint64) self->max_body;
  if (self->too_large)
    {
      hand_over (self);
      return;
    }
  self->body = vmm_http_body_new (self->head->content_length, self->max_body);
  self->state = STATE_BODY;
  set_timer (self, self->times.body_ms);
  if (self->head->expect_continue && self->input->len == 0)
    g_socket_send_with_blocking (self->socket, go_on, strlen (go_on), FALSE, NULL, NULL);
}

static void
process_head (VmmHttpConnection *self)
{
  const char *data = (const char *) self->input->data;
  g_autoptr (GError) error = NULL;
  gssize length;

  /* One empty line before a request is an old client's habit (RFC 9112 2.2). */
  if (!self->skipped && self->input->len >= 2 && memcmp (data, "\r\n", 2) == 0)
    {
      g_byte_array_remove_range (self->input, 0, 2);
      self->skipped = TRUE;
      self->scanned = 0;
    }
  length = vmm_http_head_find_end ((const char *) self->input->data, self->input->len,
                                   &self->scanned, &error);
  if (length > 0)
    self->head = vmm_http_head_parse ((const char *) self->input->data, length, &error);
  if (error != NULL)
    {
      refuse_malformed (self, error);
      return;
    }
  if (length == 0)
    return;
  g_byte_array_remove_range (self->input, 0, length);
  begin_body (self);
}

static void
process_body (VmmHttpConnection *self)
{
  g_autoptr (GError) error = NULL;
  VmmHttpBodyState state;
  gsize used;

  state = vmm_http_body_feed (self->body, (const char *) self->input->data, self->input->len, &used);
  g_byte_array_remove_range (self->input, 0, used);
  self->received += used;
  if (!hold_body (self))
    {
      error = vmm_error_new (VMM_ERROR_CONFLICT, "too many large requests at once: try again");
      vmm_http_connection_refuse (self, 503, error);
      return;
    }
  switch (state)
    {
    case VMM_HTTP_BODY_MORE:
      break;
    case VMM_HTTP_BODY_TOO_LARGE:
      self->too_large = TRUE;
      hand_over (self);
      break;
    case VMM_HTTP_BODY_DONE:
      hand_over (self);
      break;
    case VMM_HTTP_BODY_MALFORMED:
    default:
      error = vmm_error_new (VMM_ERROR_INVALID_REQUEST, "http: malformed chunked body");
      refuse_malformed (self, error);
      break;
    }
}

static void
process (VmmHttpConnection *self)
{
  if (self->state == STATE_HEAD && self->input->len > 0)
    process_head (self);
  if (self->state == STATE_BODY && self->input->len > 0)
    process_body (self);
  /* An idle connection keeps no buffer. */
  if (self->input->len == 0 && self->state != STATE_CLOSED)
    {
      g_byte_array_unref (self->input);
      self->input = g_byte_array_new ();
    }
}

VmmHttpConnection *
vmm_http_connection_new (GSocket *socket, VmmHttpPeer *peer, const VmmHttpTimes *times,
                         gsize max_body, const VmmHttpConnectionFuncs *funcs, gpointer user_data)
{
  VmmHttpConnection *self = g_object_new (VMM_TYPE_HTTP_CONNECTION, NULL);

  self->socket = g_object_ref (socket);
  self->peer = peer;
  self->times = *times;
  self->max_body = max_body;
  self->funcs = funcs;
  self->user_data = user_data;
  return self;
}

void
vmm_http_connection_start (VmmHttpConnection *self)
{
  set_timer (self, self->times.head_ms);
  start_reading (self);
}

void
vmm_http_connection_set_max_body (VmmHttpConnection *self, gsize max_body)
{
  self->max_body = max_body;
}

void
vmm_http_connection_finish (VmmHttpConnection *self)
{
  self->finishing = TRUE;
  if (self->state == STATE_HEAD || self->state == STATE_BODY)
    close_now (self);
}

void
vmm_http_connection_abort (VmmHttpConnection *self)
{
  close_now (self);
}

const VmmHttpPeer *
vmm_http_connection_get_peer (VmmHttpConnection *self)
{
  return self->peer;
}

const VmmHttpHead *
vmm_http_connection_get_head (VmmHttpConnection *self)
{
  return self->head;
}

GBytes *
vmm_http_connection_get_body (VmmHttpConnection *self)
{
  return self->content;
}

gboolean
vmm_http_connection_is_body_too_large (VmmHttpConnection *self)
{
  return self->too_large;
}

gboolean
vmm_http_connection_is_keep_alive (VmmHttpConnection *self)
{
  /* Who may only ask the probes does not hold a connection meanwhile. */
  return self->head->keep_alive && !self->too_large && !self->finishing && self->peer->permitted;
}

GCancellable *
vmm_http_connection_get_cancellable (VmmHttpConnection *self)
{
  return self->cancellable;
}

void
vmm_http_connection_set_answered (VmmHttpConnection *self)
{
  self->answered = TRUE;
}

static void
vmm_http_connection_dispose (GObject *object)
{
  VmmHttpConnection *self = VMM_HTTP_CONNECTION (object);

  stop_sources (self);
  if (self->exchange != NULL)
    g_signal_handlers_disconnect_by_data (self->exchange, self);
  g_clear_object (&self->exchange);
  forget_request (self);
  G_OBJECT_CLASS (vmm_http_connection_parent_class)->dispose (object);
}

static void
vmm_http_connection_finalize (GObject *object)
{
  VmmHttpConnection *self = VMM_HTTP_CONNECTION (object);

  g_clear_object (&self->socket);
  g_clear_pointer (&self->peer, vmm_http_peer_free);
  g_clear_pointer (&self->input, g_byte_array_unref);
  G_OBJECT_CLASS (vmm_http_connection_parent_class)->finalize (object);
}

static void
vmm_http_connection_class_init (VmmHttpConnectionClass *klass)
{
  GObjectClass *object_class = G_OBJECT_CLASS (klass);

  object_class->dispose = vmm_http_connection_dispose;
  object_class->finalize = vmm_http_connection_finalize;
  signals[CLOSED] = g_signal_new ("closed", VMM_TYPE_HTTP_CONNECTION, G_SIGNAL_RUN_LAST, 0, NULL,
                                  NULL, NULL, G_TYPE_NONE, 0);
}

static void
vmm_http_connection_init (VmmHttpConnection *self)
{
  self->input = g_byte_array_new ();
}

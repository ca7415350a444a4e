/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The answer to a guest, from the status line to its last byte.
 *
 * The request was read and checked before it came here (see vmm-http-connection.c), so all that is
 * left is to write, and that is done here rather than by libsoup: a file goes from the disk to the
 * socket through one small buffer, which is read only when the one before it was taken. A guest that
 * does not read costs that buffer, until the stream's own limit ends the connection. */

#include "config.h"

#include "vmm-imds-exchange.h"

#include <string.h>

#include "vmm-imds-range.h"
#include "vmm-log.h"
#include "vmm-source.h"

#define PIECE (64 * 1024)

struct _VmmImdsExchange
{
  VmmHttpConnection *connection;
  VmmHttpExchange *stream;
  VmmImdsDisk *disk;
  gboolean is_head;
  GString *headers;
  VmmImdsAnswered answered;
  gpointer answered_data;
  GDestroyNotify answered_destroy;
  gpointer held;
  GDestroyNotify held_destroy;

  guint status;
  const char *type;
  gboolean begun; /* something may have been written */
  GBytes *pending;
  gsize written;
  VmmImdsFile *file;
  guint64 offset;
  guint64 left;
  GSource *writable;
};

static void write_on (VmmImdsExchange *self);
static void read_on (VmmImdsExchange *self);
static GString *begin (VmmImdsExchange *self, guint status, const char *type, guint64 length);

VmmImdsExchange *
vmm_imds_exchange_new (VmmHttpConnection *connection, VmmHttpExchange *stream, VmmImdsDisk *disk)
{
  VmmImdsExchange *self = g_rc_box_new0 (VmmImdsExchange);
  const VmmHttpHead *head = vmm_http_connection_get_head (connection);

  self->connection = g_object_ref (connection);
  self->stream = g_object_ref (stream);
  self->disk = vmm_imds_disk_ref (disk);
  self->is_head = strcmp (head->method, "HEAD") == 0;
  self->headers = g_string_new (NULL);
  return self;
}

VmmImdsExchange *
vmm_imds_exchange_ref (VmmImdsExchange *self)
{
  return g_rc_box_acquire (self);
}

static void
release_held (VmmImdsExchange *self)
{
  GDestroyNotify destroy = g_steal_pointer (&self->held_destroy);

  if (destroy != NULL)
    destroy (self->held);
}

static void
exchange_clear (gpointer data)
{
  VmmImdsExchange *self = data;

  release_held (self);
  if (self->answered_destroy != NULL)
    self->answered_destroy (self->answered_data);
  g_object_unref (self->connection);
  g_object_unref (self->stream);
  vmm_imds_disk_unref (self->disk);
  g_string_free (self->headers, TRUE);
  g_clear_pointer (&self->pending, g_bytes_unref);
  g_clear_pointer (&self->file, vmm_imds_file_unref);
}

void
vmm_imds_exchange_unref (VmmImdsExchange *self)
{
  g_rc_box_release_full (self, exchange_clear);
}

const VmmHttpHead *
vmm_imds_exchange_get_head (VmmImdsExchange *self)
{
  return vmm_http_connection_get_head (self->connection);
}

gboolean
vmm_imds_exchange_is_head (VmmImdsExchange *self)
{
  return self->is_head;
}

GBytes *
vmm_imds_exchange_get_body (VmmImdsExchange *self)
{
  return vmm_http_connection_get_body (self->connection);
}

gboolean
vmm_imds_exchange_is_body_too_large (VmmImdsExchange *self)
{
  return vmm_http_connection_is_body_too_large (self->connection);
}

void
vmm_imds_exchange_set_answered (VmmImdsExchange *self, VmmImdsAnswered answered,
                                gpointer user_data, GDestroyNotify destroy)
{
  self->answered = answered;
  self->answered_data = user_data;
  self->answered_destroy = destroy;
}

void
vmm_imds_exchange_hold (VmmImdsExchange *self, gpointer data, GDestroyNotify destroy)
{
  g_return_if_fail (self->held_destroy == NULL);

  self->held = data;
  self->held_destroy = destroy;
}

void
vmm_imds_exchange_add_header (VmmImdsExchange *self, const char *name, const char *value)
{
  g_string_append_printf (self->headers, "%s: %s\r\n", name, value);
}

/* Writing ------------------------------------------------------------------------------------- */

/* The connection goes on with its next request, or ends when this one was cut off. */
static void
finish (VmmImdsExchange *self, gboolean complete)
{
  vmm_source_clear (&self->writable);
  g_clear_pointer (&self->pending, g_bytes_unref);
  g_clear_pointer (&self->file, vmm_imds_file_unref);
  release_held (self);
  if (complete)
    vmm_http_connection_set_answered (self->connection);
  else
    vmm_http_connection_abort (self->connection);
  g_io_stream_close (G_IO_STREAM (self->stream), NULL, NULL);
}

static gboolean
writable_cb (GObject *stream, gpointer user_data)
{
  g_autoptr (VmmImdsExchange) self = vmm_imds_exchange_ref (user_data);

  vmm_source_clear (&self->writable);
  write_on (self);
  return G_SOURCE_REMOVE;
}

static void
wait_writable (VmmImdsExchange *self, GPollableOutputStream *output)
{
  self->writable = g_pollable_output_stream_create_source (output, NULL);
  g_source_set_callback (self->writable, G_SOURCE_FUNC (writable_cb),
                         vmm_imds_exchange_ref (self), (GDestroyNotify) vmm_imds_exchange_unref);
  g_source_attach (self->writable, NULL);
}

static void
write_on (VmmImdsExchange *self)
{
  GPollableOutputStream *output
      = G_POLLABLE_OUTPUT_STREAM (g_io_stream_get_output_stream (G_IO_STREAM (self->stream)));
  gsize size;
  const char *data = g_bytes_get_data (self->pending, &size);

  while (self->written < size)
    {
      g_autoptr (GError) error = NULL;
      gssize n = g_pollable_output_stream_write_nonblocking (
          output, data + self->written, size - self->written, NULL, &error);

      if (n >= 0)
        {
          self->written += (gsize) n;
          continue;
        }
      if (g_error_matches (error, G_IO_ERROR, G_IO_ERROR_WOULD_BLOCK))
        {
          wait_writable (self, output);
          return;
        }
      vmm_log_debug ("metadata client left", "subject",
                     vmm_http_connection_get_peer (self->connection)->subject, "error",
                     error->message, NULL);
      finish (self, FALSE);
      return;
    }
  g_clear_pointer (&self->pending, g_bytes_unref);
  if (self->left > 0)
    read_on (self);
  else
    finish (self, TRUE);
}

/* Takes the text. */
static void
write_text (VmmImdsExchange *self, GString *text)
{
  self->pending = g_string_free_to_bytes (text);
  self->written = 0;
  write_on (self);
}

/* Reading ------------------------------------------------------------------------------------- */

static void
fail_read (VmmImdsExchange *self, const GError *error)
{
  vmm_log_warning ("a file for a guest cannot be read", "subject",
                   vmm_http_connection_get_peer (self->connection)->subject, "error",
                   error->message, NULL);
  if (self->begun)
    {
      finish (self, FALSE);
      return;
    }
  self->left = 0;
  g_string_truncate (self->headers, 0);
  vmm_imds_exchange_answer_text (self, 500, "artifact unavailable");
}

static void
read_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  g_autoptr (VmmImdsExchange) self = user_data;
  g_autoptr (GError) error = NULL;
  GString *start = NULL;
  g_autoptr (GBytes) piece = vmm_imds_disk_read_finish (result, &error);

  if (piece == NULL)
    {
      fail_read (self, error);
      return;
    }
  if (!self->begun)
    start = begin (self, self->status, self->type, self->left);
  self->offset += g_bytes_get_size (piece);
  self->left -= g_bytes_get_size (piece);
  if (start != NULL)
    {
      g_string_append_len (start, g_bytes_get_data (piece, NULL),
                           (gssize) g_bytes_get_size (piece));
      write_text (self, start);
      return;
    }
  self->pending = g_steal_pointer (&piece);
  self->written = 0;
  write_on (self);
}

static void
read_on (VmmImdsExchange *self)
{
  vmm_imds_disk_read_async (self->disk, self->file, self->offset, MIN (self->left, PIECE),
                            read_cb, vmm_imds_exchange_ref (self));
}

/* Answering ----------------------------------------------------------------------------------- */

static const char *
find_phrase (guint status)
{
  switch (status)
    {
    case 200:
      return "OK";
    case 204:
      return "No Content";
    case 206:
      return "Partial Content";
    case 400:
      return "Bad Request";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 409:
      return "Conflict";
    case 413:
      return "Content Too Large";
    case 416:
      return "Range Not Satisfiable";
    case 503:
      return "Service Unavailable";
    default:
      return "Internal Server Error";
    }
}

/* The head of an answer. type NULL: without content. */
static GString *
begin (VmmImdsExchange *self, guint status, const char *type, guint64 length)
{
  GString *text = g_string_sized_new (256);

  self->begun = TRUE;
  if (self->answered != NULL)
    self->answered (self, status, self->answered_data);
  g_string_append_printf (text, "HTTP/1.1 %u %s\r\n", status, find_phrase (status));
  if (type != NULL)
    g_string_append_printf (text, "Content-Type: %s\r\n", type);
  if (status != 204)
    g_string_append_printf (text, "Content-Length: %" G_GUINT64_FORMAT "\r\n", length);
  g_string_append_len (text, self->headers->str, (gssize) self->headers->len);
  if (!vmm_http_connection_is_keep_alive (self->connection))
    g_string_append (text, "Connection: close\r\n");
  g_string_append (text, "\r\n");
  return text;
}

void
vmm_imds_exchange_answer (VmmImdsExchange *self, guint status, const char *type,
                          const char *content, gsize length)
{
  GString *text = begin (self, status, type, length);

  if (!self->is_head && length > 0)
    g_string_append_len (text, content, (gssize) length);
  write_text (self, text);
}

void
vmm_imds_exchange_answer_empty (VmmImdsExchange *self, guint status)
{
  vmm_imds_exchange_answer (self, status, NULL, NULL, 0);
}

void
vmm_imds_exchange_answer_text (VmmImdsExchange *self, guint status, const char *text)
{
  vmm_imds_exchange_answer (self, status, VMM_IMDS_TEXT_TYPE, text, strlen (text));
}

static guint
choose_range (VmmImdsExchange *self, guint64 size)
{
  const VmmHttpHead *head = vmm_imds_exchange_get_head (self);
  g_autofree char *said = NULL;
  VmmImdsRange range;

  vmm_imds_exchange_add_header (self, "Accept-Ranges", "bytes");
  /* We give no validators, so that no condition on one can hold. */
  if (self->is_head || head->if_range)
    return 200;
  range = vmm_imds_range_parse (head->range, size, &self->offset, &self->left);
  if (range == VMM_IMDS_RANGE_ALL)
    return 200;
  if (range == VMM_IMDS_RANGE_NONE)
    {
      self->left = 0;
      said = g_strdup_printf ("bytes */%" G_GUINT64_FORMAT, size);
    }
  else
    said = g_strdup_printf ("bytes %" G_GUINT64_FORMAT "-%" G_GUINT64_FORMAT "/%" G_GUINT64_FORMAT,
                            self->offset, self->offset + self->left - 1, size);
  vmm_imds_exchange_add_header (self, "Content-Range", said);
  return range == VMM_IMDS_RANGE_NONE ? 416 : 206;
}

void
vmm_imds_exchange_answer_file (VmmImdsExchange *self, const char *type, VmmImdsFile *file,
                               gboolean with_ranges)
{
  GString *start;

  self->offset = 0;
  self->left = vmm_imds_file_get_size (file);
  self->status = with_ranges ? choose_range (self, self->left) : 200;
  self->type = type;
  if (self->left > 0 && !self->is_head)
    {
      self->file = vmm_imds_file_ref (file);
      read_on (self);
      return;
    }
  start = begin (self, self->status, self->status == 416 ? NULL : type, self->left);
  self->left = 0;
  write_text (self, start);
}

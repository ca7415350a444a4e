/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The body of an HTTP/1 request: a byte count or chunks (RFC 9112 6 and 7.1).
 *
 * Strict where leniency would let a second request hide: sizes are plain hexadecimal of at most
 * eight digits, every line ends in CRLF, extensions and trailers are short, and neither is kept.
 * Memory grows with what arrived, not with what a header promised. */

#include "config.h"

#include "vmm-http-body.h"

#include <string.h>

/* One size line with its extension, and all trailer lines together. */
#define MAX_LINE 256
#define MAX_TRAILER 4096

typedef enum
{
  READ_PLAIN,
  READ_SIZE,
  READ_CHUNK,
  READ_CHUNK_END,
  READ_TRAILER,
} Reading;

struct _VmmHttpBody
{
  GByteArray *content;
  gsize limit;
  Reading reading;
  guint64 left; /* of the plain body or of this chunk */
  GString *line;
  gsize trailer;
};

VmmHttpBody *
vmm_http_body_new (gint64 length, gsize limit)
{
  VmmHttpBody *self = g_new0 (VmmHttpBody, 1);

  self->content = g_byte_array_new ();
  self->limit = limit;
  self->line = g_string_new (NULL);
  self->reading = length < 0 ? READ_SIZE : READ_PLAIN;
  self->left = MAX (length, 0);
  return self;
}

void
vmm_http_body_free (VmmHttpBody *self)
{
  g_byte_array_unref (self->content);
  g_string_free (self->line, TRUE);
  g_free (self);
}

GBytes *
vmm_http_body_take (VmmHttpBody *self)
{
  GBytes *bytes = g_byte_array_free_to_bytes (self->content);

  self->content = g_byte_array_new ();
  return bytes;
}

/* The digits before an extension; FALSE for anything else. */
static gboolean
parse_size (const char *line, guint64 *size)
{
  gsize digits = strspn (line, "0123456789abcdefABCDEF");

  if (digits == 0 || digits > 8 || (line[digits] != '\0' && line[digits] != ';'))
    return FALSE;
  *size = g_ascii_strtoull (line, NULL, 16);
  return TRUE;
}

static VmmHttpBodyState
take_line (VmmHttpBody *self)
{
  VmmHttpBodyState state = VMM_HTTP_BODY_MORE;

  switch (self->reading)
    {
    case READ_SIZE:
      if (!parse_size (self->line->str, &self->left))
        state = VMM_HTTP_BODY_MALFORMED;
      else if (self->left > self->limit - self->content->len)
        state = VMM_HTTP_BODY_TOO_LARGE;
      self->reading = self->left == 0 ? READ_TRAILER : READ_CHUNK;
      break;
    case READ_CHUNK_END:
      if (self->line->len > 0)
        state = VMM_HTTP_BODY_MALFORMED;
      self->reading = READ_SIZE;
      break;
    case READ_TRAILER:
      self->trailer += self->line->len;
      if (self->trailer > MAX_TRAILER)
        state = VMM_HTTP_BODY_MALFORMED;
      else if (self->line->len == 0)
        state = VMM_HTTP_BODY_DONE;
      break;
    case READ_PLAIN:
    case READ_CHUNK:
    default:
      g_return_val_if_reached (VMM_HTTP_BODY_MALFORMED);
    }
  g_string_truncate (self->line, 0);
  return state;
}

/* Collects one line over as many calls as it takes. */
static VmmHttpBodyState
feed_line (VmmHttpBody *self, const char *data, gsize length, gsize *used)
{
  const char *newline = memchr (data, '\n', length);
  gsize n = newline != NULL ? (gsize) (newline - data) : length;

  if (self->line->len + n > MAX_LINE || memchr (data, '\0', n) != NULL)
    return VMM_HTTP_BODY_MALFORMED;
  g_string_append_len (self->line, data, n);
  *used += n;
  if (newline == NULL)
    return VMM_HTTP_BODY_MORE;
  *used += 1;
  /* The only CR is the one before the LF. */
  if (self->line->len == 0
      || strchr (self->line->str, '\r') != self->line->str + self->line->len - 1)
    return VMM_HTTP_BODY_MALFORMED;
  g_string_truncate (self->line, self->line->len - 1);
  return take_line (self);
}

static VmmHttpBodyState
feed_content (VmmHttpBody *self, const char *data, gsize length, gsize *used)
{
  gsize n = MIN (self->left, (guint64) length);

  if (self->left > self->limit - self->content->len)
    return VMM_HTTP_BODY_TOO_LARGE;
  g_byte_array_append (self->content, (const guint8 *) data, n);
  self->left -= n;
  *used += n;
  if (self->left > 0)
    return VMM_HTTP_BODY_MORE;
  if (self->reading == READ_PLAIN)
    return VMM_HTTP_BODY_DONE;
  self->reading = READ_CHUNK_END;
  return VMM_HTTP_BODY_MORE;
}

VmmHttpBodyState
vmm_http_body_feed (VmmHttpBody *self, const char *data, gsize length, gsize *used)
{
  VmmHttpBodyState state = VMM_HTTP_BODY_MORE;

  *used = 0;
  /* A body of no bytes is complete before any arrives, a too large one is known as such. */
  if (self->reading == READ_PLAIN)
    return feed_content (self, data, length, used);
  while (state == VMM_HTTP_BODY_MORE && *used < length)
    {
      gsize n = 0;

      state = self->reading == READ_CHUNK ? feed_content (self, data + *used, length - *used, &n)
                                          : feed_line (self, data + *used, length - *used, &n);
      *used += n;
    }
  return state;
}

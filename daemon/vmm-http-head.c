/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The head of an HTTP/1 request.
 *
 * libsoup 3.2 takes what it gets: lines that end in a bare LF, folded lines, fields with a space
 * before the colon, a second Host or Content-Length, both framings at once. Each of these lets two
 * programs on the way see different requests. So the head is read here first, by the grammar of
 * RFC 9112 and without its leniencies, and libsoup is given a head that was written anew: one way
 * to say each thing, nothing that would switch on ranges, upgrades or trailers. */

#include "config.h"

#include "vmm-http-head.h"

#include <string.h>

#include "interfaces/vmm-error.h"

#define MAX_METHOD 16
#define MAX_TARGET (8 * 1024)

/* Fields that may be there once. */
static const char *const singletons[] = {
  "authorization", "content-length", "content-type",         "expect",         "host",
  "if-none-match", "if-range",       "mcp-protocol-version", "mcp-session-id", "origin",
  "range",         "transfer-encoding",
};

/* Fields that end here: written anew from what was understood, or never passed on. */
static const char *const dropped[] = {
  "connection",        "content-length",   "cookie",  "expect", "host", "http2-settings",
  "if-range",          "keep-alive",       "origin",  "range",  "te",   "trailer",
  "transfer-encoding", "proxy-connection", "upgrade",
};

typedef struct
{
  VmmHttpHead *head;
  GHashTable *seen;
  gboolean http_1_0;
  gboolean close;
} Reader;

static gboolean
is_in (const char *name, const char *const *names, gsize n_names)
{
  for (gsize i = 0; i < n_names; i++)
    if (strcmp (name, names[i]) == 0)
      return TRUE;
  return FALSE;
}

/* tchar of RFC 9110 5.6.2 */
static gboolean
is_token (const char *text, gsize length)
{
  for (gsize i = 0; i < length; i++)
    if (!g_ascii_isalnum (text[i])
        && (text[i] == '\0' || strchr ("!#$%&'*+-.^_`|~", text[i]) == NULL))
      return FALSE;
  return length > 0;
}

gssize
vmm_http_head_find_end (const char *data, gsize length, gsize *scanned, GError **error)
{
  gsize limit = MIN (length, (gsize) VMM_HTTP_MAX_HEAD);

  for (gsize i = *scanned; i < limit; i++)
    {
      if (data[i] != '\n')
        continue;
      if (i == 0 || data[i - 1] != '\r')
        {
          vmm_set_error (error, VMM_ERROR_INVALID_REQUEST, "http: line ends in a bare LF");
          return -1;
        }
      if (i >= 3 && data[i - 2] == '\n')
        return i + 1;
    }
  *scanned = limit;
  if (length >= VMM_HTTP_MAX_HEAD)
    {
      vmm_set_error (error, VMM_ERROR_INVALID_REQUEST, "http: request head of more than %d bytes",
                     VMM_HTTP_MAX_HEAD);
      return -1;
    }
  return 0;
}

static gboolean
is_hex_pair (const char *text)
{
  return g_ascii_isxdigit (text[0]) && g_ascii_isxdigit (text[1]);
}

/* Printable ASCII without what must be escaped, escapes complete and never for NUL. */
static gboolean
is_clean_target (const char *target)
{
  if (target[0] != '/')
    return FALSE;
  for (const char *c = target; *c != '\0'; c++)
    {
      if (*c <= ' ' || *c >= 0x7f || strchr ("\"#<>\\^`{|}", *c) != NULL)
        return FALSE;
      if (*c == '%' && (!is_hex_pair (c + 1) || strncmp (c, "%00", 3) == 0))
        return FALSE;
    }
  return TRUE;
}

/* Whoever resolves them may see another path than we did. */
static gboolean
has_dot_segments (const char *path)
{
  g_autofree char *plain = g_uri_unescape_string (path, NULL);
  g_auto (GStrv) segments = plain != NULL ? g_strsplit (plain, "/", -1) : NULL;

  for (guint i = 0; segments != NULL && segments[i] != NULL; i++)
    if (strcmp (segments[i], ".") == 0 || strcmp (segments[i], "..") == 0)
      return TRUE;
  return plain == NULL;
}

/* Absolute form (RFC 9112 3.2.2): its authority must be what Host says, then only the path counts.
 */
static gboolean
resolve_target (VmmHttpHead *head, GError **error)
{
  if (g_ascii_strncasecmp (head->target, "http://", 7) == 0)
    {
      const char *authority = head->target + 7;
      gsize length = strcspn (authority, "/?");
      g_autofree char *rest = NULL;

      if (head->host == NULL || strlen (head->host) != length
          || g_ascii_strncasecmp (authority, head->host, length) != 0)
        {
          vmm_set_error (error, VMM_ERROR_INVALID_REQUEST,
                         "http: request target and Host header differ");
          return FALSE;
        }
      rest = g_strconcat (authority[length] == '/' ? "" : "/", authority + length, NULL);
      g_free (head->target);
      head->target = g_steal_pointer (&rest);
    }
  if (!is_clean_target (head->target))
    {
      vmm_set_error (error, VMM_ERROR_INVALID_REQUEST, "http: malformed request target");
      return FALSE;
    }
  head->path = g_strndup (head->target, strcspn (head->target, "?"));
  head->has_dots = has_dot_segments (head->path);
  return TRUE;
}

/* method SP target SP version, exactly one space each */
static gboolean
read_request_line (Reader *reader, const char *line, gsize length, GError **error)
{
  g_autofree char *text = g_strndup (line, length);
  g_auto (GStrv) parts = g_strsplit (text, " ", -1);

  if (strlen (text) != length || g_strv_length (parts) != 3
      || !is_token (parts[0], strlen (parts[0])) || strlen (parts[0]) > MAX_METHOD)
    {
      vmm_set_error (error, VMM_ERROR_INVALID_REQUEST, "http: malformed request line");
      return FALSE;
    }
  if (strcmp (parts[2], "HTTP/1.1") != 0 && strcmp (parts[2], "HTTP/1.0") != 0)
    {
      vmm_set_error (error, VMM_ERROR_INVALID_REQUEST, "http: not HTTP/1.1 or HTTP/1.0");
      return FALSE;
    }
  if (strlen (parts[1]) > MAX_TARGET)
    {
      vmm_set_error (error, VMM_ERROR_INVALID_REQUEST, "http: request target of more than %d bytes",
                     MAX_TARGET);
      return FALSE;
    }
  reader->http_1_0 = parts[2][7] == '0';
  reader->head->method = g_strdup (parts[0]);
  reader->head->target = g_strdup (parts[1]);
  return TRUE;
}

/* host [":" port] as RFC 3986 has it, without percent escapes and user information. */
static gboolean
is_host (const char *text)
{
  const char *end = text;

  if (*text == '[')
    {
      end = strchr (text, ']');
      if (end == NULL || strspn (text + 1, "0123456789abcdefABCDEF:.") != (gsize) (end - text - 1))
        return FALSE;
      end++;
    }
  else
    {
      while (g_ascii_isalnum (*end) || *end == '-' || *end == '.' || *end == '_')
        end++;
      if (end == text)
        return FALSE;
    }
  if (*end == '\0')
    return TRUE;
  return *end == ':' && strspn (end + 1, "0123456789") == strlen (end + 1) && strlen (end) <= 6;
}

static gboolean
read_content_length (VmmHttpHead *head, const char *value, GError **error)
{
  if (*value == '\0' || strlen (value) > 15 || strspn (value, "0123456789") != strlen (value))
    {
      vmm_set_error (error, VMM_ERROR_INVALID_REQUEST, "http: malformed Content-Length");
      return FALSE;
    }
  head->content_length = g_ascii_strtoll (value, NULL, 10);
  return TRUE;
}

static void
read_connection (Reader *reader, const char *value)
{
  g_auto (GStrv) tokens = g_strsplit (value, ",", -1);

  for (guint i = 0; tokens[i] != NULL; i++)
    if (g_ascii_strcasecmp (g_strstrip (tokens[i]), "close") == 0)
      reader->close = TRUE;
}

/* The fields that say how to read the request. */
static gboolean
read_framing (Reader *reader, const char *name, const char *value, GError **error)
{
  VmmHttpHead *head = reader->head;

  if (strcmp (name, "content-length") == 0)
    return read_content_length (head, value, error);
  if (strcmp (name, "host") == 0)
    {
      head->host = g_strdup (value);
      if (is_host (value))
        return TRUE;
      vmm_set_error (error, VMM_ERROR_INVALID_REQUEST, "http: malformed Host header");
      return FALSE;
    }
  if (strcmp (name, "transfer-encoding") == 0)
    {
      head->chunked = TRUE;
      if (g_ascii_strcasecmp (value, "chunked") == 0)
        return TRUE;
      vmm_set_error (error, VMM_ERROR_INVALID_REQUEST,
                     "http: the only Transfer-Encoding understood is chunked");
      return FALSE;
    }
  if (strcmp (name, "expect") == 0)
    {
      head->expect_continue = TRUE;
      if (g_ascii_strcasecmp (value, "100-continue") == 0)
        return TRUE;
      vmm_set_error (error, VMM_ERROR_INVALID_REQUEST,
                     "http: the only expectation understood is 100-continue");
      return FALSE;
    }
  if (strcmp (name, "connection") == 0)
    read_connection (reader, value);
  if (strcmp (name, "origin") == 0)
    head->origin = g_strdup (value);
  if (strcmp (name, "range") == 0)
    head->range = g_strdup (value);
  if (strcmp (name, "if-range") == 0)
    head->if_range = TRUE;
  return TRUE;
}

/* Visible characters, spaces, tabs and bytes above ASCII (RFC 9110 5.5). */
static gboolean
is_field_value (const char *text, gsize length)
{
  for (gsize i = 0; i < length; i++)
    if (((guchar) text[i] < ' ' && text[i] != '\t') || text[i] == 0x7f)
      return FALSE;
  return TRUE;
}

static gboolean
read_field (Reader *reader, const char *line, gsize length, GError **error)
{
  const char *colon = memchr (line, ':', length);
  g_autofree char *name = NULL;
  g_autofree char *value = NULL;

  if (colon == NULL || !is_token (line, colon - line)
      || !is_field_value (colon + 1, length - (colon + 1 - line)))
    {
      vmm_set_error (error, VMM_ERROR_INVALID_REQUEST, "http: malformed header line");
      return FALSE;
    }
  name = g_ascii_strdown (line, colon - line);
  value = g_strstrip (g_strndup (colon + 1, length - (colon + 1 - line)));
  if (is_in (name, singletons, G_N_ELEMENTS (singletons))
      && !g_hash_table_add (reader->seen, g_strdup (name)))
    {
      vmm_set_error (error, VMM_ERROR_INVALID_REQUEST, "http: more than one %s header", name);
      return FALSE;
    }
  if (!read_framing (reader, name, value, error))
    return FALSE;
  if (!is_in (name, dropped, G_N_ELEMENTS (dropped)) && !g_str_has_prefix (name, "sec-websocket"))
    g_string_append_printf (reader->head->fields, "%s: %s\r\n", name, value);
  return TRUE;
}

/* What no single line can show. */
static gboolean
check_together (Reader *reader, GError **error)
{
  VmmHttpHead *head = reader->head;

  if (head->host == NULL && !reader->http_1_0)
    {
      vmm_set_error (error, VMM_ERROR_INVALID_REQUEST, "http: no Host header");
      return FALSE;
    }
  if (head->chunked && head->content_length >= 0)
    {
      vmm_set_error (error, VMM_ERROR_INVALID_REQUEST,
                     "http: both Content-Length and Transfer-Encoding");
      return FALSE;
    }
  if (head->chunked && reader->http_1_0)
    {
      vmm_set_error (error, VMM_ERROR_INVALID_REQUEST, "http: Transfer-Encoding in HTTP/1.0");
      return FALSE;
    }
  head->keep_alive = !reader->http_1_0 && !reader->close;
  return resolve_target (head, error);
}

static gboolean
read_lines (Reader *reader, const char *data, gsize length, GError **error)
{
  const char *end = data + length;
  guint n_fields = 0;

  for (const char *line = data; line < end;)
    {
      const char *newline = memchr (line, '\n', end - line);
      gsize n = newline - line - 1;

      if (memchr (line, '\r', n) != NULL)
        {
          vmm_set_error (error, VMM_ERROR_INVALID_REQUEST, "http: bare CR");
          return FALSE;
        }
      if (reader->head->method == NULL)
        {
          if (!read_request_line (reader, line, n, error))
            return FALSE;
        }
      else if (n > 0)
        {
          if (++n_fields > VMM_HTTP_MAX_FIELDS)
            {
              vmm_set_error (error, VMM_ERROR_INVALID_REQUEST, "http: more than %d header lines",
                             VMM_HTTP_MAX_FIELDS);
              return FALSE;
            }
          if (!read_field (reader, line, n, error))
            return FALSE;
        }
      line = newline + 1;
    }
  return TRUE;
}

/* data is what vmm_http_head_find_end() measured. */
VmmHttpHead *
vmm_http_head_parse (const char *data, gsize length, GError **error)
{
  g_autoptr (VmmHttpHead) head = g_new0 (VmmHttpHead, 1);
  g_autoptr (GHashTable) seen = g_hash_table_new_full (g_str_hash, g_str_equal, g_free, NULL);
  Reader reader = { head, seen, FALSE, FALSE };

  g_return_val_if_fail (length >= 4 && memcmp (data + length - 4, "\r\n\r\n", 4) == 0, NULL);

  head->content_length = -1;
  head->fields = g_string_new (NULL);
  if (!read_lines (&reader, data, length, error) || !check_together (&reader, error))
    return NULL;
  return g_steal_pointer (&head);
}

void
vmm_http_head_free (VmmHttpHead *self)
{
  g_free (self->method);
  g_free (self->target);
  g_free (self->path);
  g_free (self->host);
  g_free (self->origin);
  g_free (self->range);
  if (self->fields != NULL)
    g_string_free (self->fields, TRUE);
  g_free (self);
}

GBytes *
vmm_http_head_to_bytes (const VmmHttpHead *self)
{
  GString *text = g_string_sized_new (self->fields->len + 256);

  g_string_append_printf (text, "%s %s HTTP/1.1\r\nhost: %s\r\n", self->method, self->target,
                          self->host != NULL ? self->host : "localhost");
  if (self->origin != NULL)
    g_string_append_printf (text, "origin: %s\r\n", self->origin);
  g_string_append_len (text, self->fields->str, self->fields->len);
  g_string_append (text, "connection: close\r\n\r\n");
  return g_string_free_to_bytes (text);
}

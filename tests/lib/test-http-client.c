/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* A client for what no well-behaved client sends. */

#include "test-http-client.h"

#include <string.h>

#include <gio/gunixsocketaddress.h>

#include "test-await.h"

struct _TestHttpClient
{
  GSocket *socket;
  GSource *source;
  GString *input;
  gboolean closed;
};

static gboolean
readable_cb (GSocket *socket, GIOCondition condition, gpointer user_data)
{
  TestHttpClient *self = user_data;
  char buffer[65536];
  g_autoptr (GError) error = NULL;
  gssize n = g_socket_receive_with_blocking (socket, buffer, sizeof buffer, FALSE, NULL, &error);

  if (n > 0)
    {
      g_string_append_len (self->input, buffer, n);
      return G_SOURCE_CONTINUE;
    }
  if (g_error_matches (error, G_IO_ERROR, G_IO_ERROR_WOULD_BLOCK))
    return G_SOURCE_CONTINUE;
  self->closed = TRUE;
  g_clear_pointer (&self->source, g_source_unref);
  return G_SOURCE_REMOVE;
}

static TestHttpClient *
client_new (GSocketAddress *address)
{
  TestHttpClient *self = g_new0 (TestHttpClient, 1);
  g_autoptr (GError) error = NULL;

  self->input = g_string_new (NULL);
  self->socket = g_socket_new (g_socket_address_get_family (address), G_SOCKET_TYPE_STREAM,
                               G_SOCKET_PROTOCOL_DEFAULT, &error);
  g_assert_no_error (error);
  /* The kernel completes it without the server's help. */
  g_assert_true (g_socket_connect (self->socket, address, NULL, &error));
  g_assert_no_error (error);
  g_socket_set_blocking (self->socket, FALSE);
  self->source = g_socket_create_source (self->socket, G_IO_IN, NULL);
  g_source_set_callback (self->source, G_SOURCE_FUNC (readable_cb), self, NULL);
  g_source_attach (self->source, NULL);
  return self;
}

TestHttpClient *
test_http_client_new (guint port)
{
  g_autoptr (GSocketAddress) address = g_inet_socket_address_new_from_string ("127.0.0.1", port);

  return client_new (address);
}

TestHttpClient *
test_http_client_new_unix (const char *path)
{
  g_autoptr (GSocketAddress) address = g_unix_socket_address_new (path);

  return client_new (address);
}

void
test_http_client_free (TestHttpClient *self)
{
  if (self->source != NULL)
    {
      g_source_destroy (self->source);
      g_source_unref (self->source);
    }
  g_socket_close (self->socket, NULL);
  g_object_unref (self->socket);
  g_string_free (self->input, TRUE);
  g_free (self);
}

GSocket *
test_http_client_get_socket (TestHttpClient *self)
{
  return self->socket;
}

void
test_http_client_send (TestHttpClient *self, const char *bytes, gssize length)
{
  gsize left = length < 0 ? strlen (bytes) : (gsize) length;

  while (left > 0)
    {
      g_autoptr (GError) error = NULL;
      gssize n = g_socket_send_with_blocking (self->socket, bytes, left, FALSE, NULL, &error);

      if (n > 0)
        {
          bytes += n;
          left -= n;
          continue;
        }
      if (!g_error_matches (error, G_IO_ERROR, G_IO_ERROR_WOULD_BLOCK))
        return;
      g_main_context_iteration (NULL, TRUE);
    }
}

void
test_http_client_pause (TestHttpClient *self)
{
  g_source_destroy (self->source);
  g_clear_pointer (&self->source, g_source_unref);
}

gboolean
test_http_client_has_hung_up (TestHttpClient *self)
{
  return (g_socket_condition_check (self->socket, G_IO_HUP) & G_IO_HUP) != 0;
}

void
test_http_client_shutdown (TestHttpClient *self)
{
  g_socket_shutdown (self->socket, FALSE, TRUE, NULL);
}

gboolean
test_http_client_is_closed (TestHttpClient *self)
{
  return self->closed;
}

static gboolean
has_ended (gpointer user_data)
{
  return ((TestHttpClient *) user_data)->closed;
}

char *
test_http_client_read_to_end (TestHttpClient *self)
{
  test_await_condition (has_ended, self);
  return g_strdup (self->input->str);
}

static gboolean
has_head (gpointer user_data)
{
  TestHttpClient *self = user_data;

  return strstr (self->input->str, "\r\n\r\n") != NULL || self->closed;
}

typedef struct
{
  TestHttpClient *client;
  gsize wanted;
} Wanted;

static gboolean
has_body (gpointer user_data)
{
  Wanted *wanted = user_data;

  return wanted->client->input->len >= wanted->wanted || wanted->client->closed;
}

static TestHttpAnswer *
parse_head (const char *text)
{
  TestHttpAnswer *answer = g_new0 (TestHttpAnswer, 1);
  g_auto (GStrv) lines = g_strsplit (text, "\r\n", -1);

  answer->headers = g_hash_table_new_full (g_str_hash, g_str_equal, g_free, g_free);
  g_assert_true (g_str_has_prefix (lines[0], "HTTP/1.1 "));
  answer->status = g_ascii_strtoull (lines[0] + strlen ("HTTP/1.1 "), NULL, 10);
  for (guint i = 1; lines[i] != NULL; i++)
    {
      const char *colon = strstr (lines[i], ": ");

      g_assert_nonnull (colon);
      g_hash_table_insert (answer->headers, g_ascii_strdown (lines[i], colon - lines[i]),
                           g_strdup (colon + 2));
    }
  return answer;
}

TestHttpAnswer *
test_http_client_read (TestHttpClient *self, gboolean without_body)
{
  g_autofree char *head = NULL;
  const char *end, *length;
  TestHttpAnswer *answer;
  Wanted wanted = { self, 0 };

  test_await_condition (has_head, self);
  end = strstr (self->input->str, "\r\n\r\n");
  g_assert_nonnull (end);
  head = g_strndup (self->input->str, end - self->input->str);
  answer = parse_head (head);
  length = g_hash_table_lookup (answer->headers, "content-length");
  if (length != NULL && !without_body)
    answer->length = g_ascii_strtoull (length, NULL, 10);
  wanted.wanted = strlen (head) + 4 + answer->length;
  test_await_condition (has_body, &wanted);
  g_assert_cmpuint (self->input->len, >=, wanted.wanted);
  answer->body = g_strndup (self->input->str + strlen (head) + 4, answer->length);
  g_string_erase (self->input, 0, wanted.wanted);
  return answer;
}

void
test_http_answer_free (TestHttpAnswer *self)
{
  g_hash_table_unref (self->headers);
  g_free (self->body);
  g_free (self);
}

TestHttpAnswer *
test_http_request (guint port, const char *method, const char *path, const char *headers,
                   const char *body)
{
  g_autoptr (TestHttpClient) client = test_http_client_new (port);
  g_autoptr (GString) text = g_string_new (NULL);

  g_string_append_printf (text, "%s %s HTTP/1.1\r\nHost: 127.0.0.1:%u\r\nConnection: close\r\n%s",
                          method, path, port, headers != NULL ? headers : "");
  if (body != NULL)
    g_string_append_printf (text, "Content-Length: %" G_GSIZE_FORMAT "\r\n", strlen (body));
  g_string_append (text, "\r\n");
  if (body != NULL)
    g_string_append (text, body);
  test_http_client_send (client, text->str, text->len);
  return test_http_client_read (client, strcmp (method, "HEAD") == 0);
}

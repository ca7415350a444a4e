/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <gio/gio.h>

G_BEGIN_DECLS

/* An HTTP client that sends exactly the bytes it is told, in the main context that the server under
 * test runs in. */
typedef struct _TestHttpClient TestHttpClient;

typedef struct
{
  guint status;
  GHashTable *headers; /* lower-case name to value */
  char *body;
  gsize length;
} TestHttpAnswer;

TestHttpClient *test_http_client_new (guint port);
TestHttpClient *test_http_client_new_unix (const char *path);
void test_http_client_free (TestHttpClient *self);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (TestHttpClient, test_http_client_free)

GSocket *test_http_client_get_socket (TestHttpClient *self);
/* length -1 for a string. What the server does not take any more is dropped. */
void test_http_client_send (TestHttpClient *self, const char *bytes, gssize length);
void test_http_client_shutdown (TestHttpClient *self);
/* The next complete answer; fails the test when the server closes before. without_body for HEAD. */
TestHttpAnswer *test_http_client_read (TestHttpClient *self, gboolean without_body);
/* Waits for the server to close, and returns what came until then. */
char *test_http_client_read_to_end (TestHttpClient *self);
gboolean test_http_client_is_closed (TestHttpClient *self);
/* Reads nothing any more, for as long as it lives; whether the server has left is still seen. */
void test_http_client_pause (TestHttpClient *self);
gboolean test_http_client_has_hung_up (TestHttpClient *self);

void test_http_answer_free (TestHttpAnswer *self);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (TestHttpAnswer, test_http_answer_free)

/* One request on a connection of its own: "GET", "/path", extra header lines or NULL, body or NULL. */
TestHttpAnswer *test_http_request (guint port, const char *method, const char *path,
                                   const char *headers, const char *body);

G_END_DECLS

/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The HTTP side: what is taken, what is refused and how, who is served, what is left behind. */

#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <gio/gunixsocketaddress.h>

#include "test-await.h"
#include "test-http-client.h"
#include "vmm-http-body.h"
#include "vmm-http.h"

#define GET "GET /open HTTP/1.1\r\nHost: localhost\r\n\r\n"

typedef struct
{
  VmmHttp *http;
  char *folder;
  char *socket;
  guint port;
  /* The last request that reached a door. */
  guint n_calls;
  gsize longest;
  char *body;
  char *subject;
  char *path;
  gboolean too_large;
  GCancellable *cancellable;
  SoupServerMessage *paused;
} Fixture;

static void
door_cb (VmmHttp *http, SoupServerMessage *message, const char *path, VmmHttpRequest *request,
         gpointer user_data)
{
  Fixture *fixture = user_data;
  g_autoptr (GBytes) bytes =
      soup_message_body_flatten (soup_server_message_get_request_body (message));

  fixture->n_calls++;
  g_free (fixture->body);
  g_free (fixture->subject);
  g_free (fixture->path);
  fixture->body = g_strndup (g_bytes_get_data (bytes, NULL), g_bytes_get_size (bytes));
  fixture->longest = MAX (fixture->longest, strlen (fixture->body));
  fixture->subject = g_strdup (vmm_caller_get_subject (request->caller));
  fixture->path = g_strdup (path);
  fixture->too_large = request->body_too_large;
  g_set_object (&fixture->cancellable, request->cancellable);
  if (g_str_has_suffix (path, "/wait"))
    {
      fixture->paused = g_object_ref (message);
      soup_server_message_pause (message);
      return;
    }
  if (g_str_has_suffix (path, "/big"))
    {
      char *text = g_strnfill (16 * 1024 * 1024, 'x');

      soup_server_message_set_status (message, 200, NULL);
      soup_server_message_set_response (message, "text/plain", SOUP_MEMORY_TAKE, text,
                                        strlen (text));
      return;
    }
  vmm_http_answer_text (message, 200, "fine");
}

static const VmmHttpTimes quick_times = { 200, 200, 200, 1000, 200 };
static const VmmHttpTimes usual_times = { 30000, 30000, 30000, 30000, 30000 };

static void
setup_with (Fixture *fixture, const VmmHttpTimes *times, const char *extra)
{
  g_autoptr (VmmOptions) options = NULL;
  g_autoptr (GError) error = NULL;
  const char *pairs[7] = { "listen", "127.0.0.1:0", "listen-unix", NULL, extra, "true", NULL };

  fixture->folder = test_make_directory ();
  fixture->socket = g_build_filename (fixture->folder, "sub", "api.sock", NULL);
  pairs[3] = fixture->socket;
  options = vmm_options_new_for_test (pairs, &error);
  g_assert_no_error (error);
  fixture->http = vmm_http_new (options);
  vmm_http_set_times (fixture->http, times);
  vmm_http_add_door (fixture->http, "/open", FALSE, door_cb, fixture);
  vmm_http_add_door (fixture->http, "/shut", TRUE, door_cb, fixture);
  g_assert_true (vmm_http_listen (fixture->http, &error));
  g_assert_no_error (error);
  fixture->port = vmm_http_get_port (fixture->http);
  g_assert_cmpuint (fixture->port, !=, 0);
}

static void
setup (Fixture *fixture, gconstpointer data)
{
  setup_with (fixture, &usual_times, NULL);
}

static void
setup_quick (Fixture *fixture, gconstpointer data)
{
  setup_with (fixture, &quick_times, NULL);
}

static void
teardown (Fixture *fixture, gconstpointer data)
{
  TestAwait await = TEST_AWAIT_INIT;
  g_autoptr (GAsyncResult) result = NULL;

  if (!vmm_http_is_closing (fixture->http))
    {
      vmm_http_close_async (fixture->http, 50, test_await_cb, &await);
      result = test_await (&await);
      g_assert_true (vmm_http_close_finish (fixture->http, result, NULL));
      g_clear_object (&result);
    }
  g_assert_false (g_file_test (fixture->socket, G_FILE_TEST_EXISTS));
  g_assert_finalize_object (fixture->http);
  g_clear_object (&fixture->cancellable);
  g_clear_object (&fixture->paused);
  g_free (fixture->body);
  g_free (fixture->subject);
  g_free (fixture->path);
  g_free (fixture->socket);
  test_remove_directory (fixture->folder);
}

static void
test_answers (Fixture *fixture, gconstpointer data)
{
  g_autoptr (TestHttpAnswer) answer = NULL;
  g_autoptr (TestHttpAnswer) head = NULL;
  g_autoptr (TestHttpAnswer) other = NULL;
  g_autofree char *subject = g_strdup_printf ("uid:%u", (guint) geteuid ());

  answer = test_http_request (fixture->port, "POST", "/shut/a%2Fb?c=d", NULL, "{\"a\": 1}");
  g_assert_cmpuint (answer->status, ==, 200);
  g_assert_cmpstr (answer->body, ==, "fine");
  g_assert_cmpstr (g_hash_table_lookup (answer->headers, "connection"), ==, "close");
  g_assert_cmpstr (fixture->body, ==, "{\"a\": 1}");
  g_assert_cmpstr (fixture->path, ==, "/shut/a%2Fb");
  g_assert_cmpstr (fixture->subject, ==, subject);
  g_assert_false (fixture->too_large);

  head = test_http_request (fixture->port, "HEAD", "/open", NULL, NULL);
  g_assert_cmpuint (head->status, ==, 200);
  g_assert_cmpstr (g_hash_table_lookup (head->headers, "content-length"), ==, "4");

  other = test_http_request (fixture->port, "GET", "/openness", NULL, NULL);
  g_assert_cmpuint (other->status, ==, 404);
  g_assert_cmpstr (other->body, ==, "404 page not found\n");
}

/* Several requests on one connection, some sent before the answer of the one before. */
static void
test_keep_alive (Fixture *fixture, gconstpointer data)
{
  g_autoptr (TestHttpClient) client = test_http_client_new (fixture->port);
  static const char chunked[] = "POST /open HTTP/1.1\r\nHost: localhost\r\n"
                                "Transfer-Encoding: chunked\r\n\r\n"
                                "3\r\nabc\r\nA;x=y\r\n0123456789\r\n0\r\nTrailer: t\r\n\r\n";

  for (guint i = 0; i < 5; i++)
    {
      g_autoptr (TestHttpAnswer) answer = NULL;

      test_http_client_send (client, GET, -1);
      answer = test_http_client_read (client, FALSE);
      g_assert_cmpuint (answer->status, ==, 200);
      g_assert_null (g_hash_table_lookup (answer->headers, "connection"));
    }
  test_http_client_send (client, GET, -1);
  test_http_client_send (client, chunked, -1);
  test_http_client_send (client, "\r\n" GET, -1);
  for (guint i = 0; i < 3; i++)
    {
      g_autoptr (TestHttpAnswer) answer = test_http_client_read (client, FALSE);

      g_assert_cmpuint (answer->status, ==, 200);
    }
  g_assert_cmpuint (fixture->longest, ==, strlen ("abc0123456789"));
  g_assert_cmpuint (fixture->n_calls, ==, 8);
  g_assert_false (test_http_client_is_closed (client));
}

static void
test_byte_by_byte (Fixture *fixture, gconstpointer data)
{
  g_autoptr (TestHttpClient) client = test_http_client_new (fixture->port);
  g_autoptr (TestHttpAnswer) answer = NULL;
  static const char text[] = "POST /open HTTP/1.1\r\nHost: [::1]:80\r\ncontent-LENGTH: 2\r\n"
                             "X: y\r\n\r\nhi";

  for (const char *c = text; *c != '\0'; c++)
    {
      test_http_client_send (client, c, 1);
      test_drain ();
    }
  answer = test_http_client_read (client, FALSE);
  g_assert_cmpuint (answer->status, ==, 200);
  g_assert_cmpstr (fixture->body, ==, "hi");
}

static void
test_expect (Fixture *fixture, gconstpointer data)
{
  g_autoptr (TestHttpClient) client = test_http_client_new (fixture->port);
  g_autoptr (TestHttpAnswer) go_on = NULL;
  g_autoptr (TestHttpAnswer) answer = NULL;

  test_http_client_send (client,
                         "POST /open HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n"
                         "Expect: 100-continue\r\n\r\n",
                         -1);
  go_on = test_http_client_read (client, TRUE);
  g_assert_cmpuint (go_on->status, ==, 100);
  test_http_client_send (client, "hello", -1);
  answer = test_http_client_read (client, FALSE);
  g_assert_cmpuint (answer->status, ==, 200);
  g_assert_cmpstr (fixture->body, ==, "hello");
}

typedef struct
{
  const char *text;
  gssize length;
  guint status;
  const char *says; /* part of the message */
} Refusal;

#define HOST "Host: localhost\r\n"
#define START "GET /open HTTP/1.1\r\n"

static const Refusal refusals[] = {
  { "\r\n\r\n", -1, 400, "malformed request line" },
  { "GET\r\n\r\n", -1, 400, "malformed request line" },
  { "GET  /open HTTP/1.1\r\n" HOST "\r\n", -1, 400, "malformed request line" },
  { "GET /open\tHTTP/1.1\r\n" HOST "\r\n", -1, 400, "malformed request line" },
  { "GET /open HTTP/1.1 \r\n" HOST "\r\n", -1, 400, "malformed request line" },
  { "G(T /open HTTP/1.1\r\n" HOST "\r\n", -1, 400, "malformed request line" },
  { "GET /op\0en HTTP/1.1\r\n" HOST "\r\n", 41, 400, "malformed request line" },
  { "GET /open HTTP/2.0\r\n" HOST "\r\n", -1, 400, "not HTTP/1.1" },
  { "GET /open HTTP/1.10\r\n" HOST "\r\n", -1, 400, "not HTTP/1.1" },
  { "GET /open http/1.1\r\n" HOST "\r\n", -1, 400, "not HTTP/1.1" },
  { "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", -1, 400, "not HTTP/1.1" },
  { "GET open HTTP/1.1\r\n" HOST "\r\n", -1, 400, "request target" },
  { "OPTIONS * HTTP/1.1\r\n" HOST "\r\n", -1, 400, "request target" },
  { "CONNECT localhost:1 HTTP/1.1\r\n" HOST "\r\n", -1, 400, "request target" },
  { "GET /a/../open HTTP/1.1\r\n" HOST "\r\n", -1, 400, "request target" },
  { "GET /a/%2e%2E/open HTTP/1.1\r\n" HOST "\r\n", -1, 400, "request target" },
  { "GET /open%00 HTTP/1.1\r\n" HOST "\r\n", -1, 400, "request target" },
  { "GET /open% HTTP/1.1\r\n" HOST "\r\n", -1, 400, "request target" },
  { "GET /open#x HTTP/1.1\r\n" HOST "\r\n", -1, 400, "request target" },
  { "GET /\xc3\xa4 HTTP/1.1\r\n" HOST "\r\n", -1, 400, "request target" },
  { "GET http://elsewhere/open HTTP/1.1\r\n" HOST "\r\n", -1, 400, "differ" },
  { "GET http://localhost@elsewhere/open HTTP/1.1\r\n" HOST "\r\n", -1, 400, "differ" },
  { "GET https://localhost/open HTTP/1.1\r\n" HOST "\r\n", -1, 400, "request target" },
  { START "\r\n", -1, 400, "no Host" },
  { START HOST HOST "\r\n", -1, 400, "more than one host" },
  { START "Host: a\r\nhost: b\r\n\r\n", -1, 400, "more than one host" },
  { START "Host: \r\n\r\n", -1, 400, "malformed Host" },
  { START "Host: a/b\r\n\r\n", -1, 400, "malformed Host" },
  { START "Host: a@b\r\n\r\n", -1, 400, "malformed Host" },
  { START "Host: a, b\r\n\r\n", -1, 400, "malformed Host" },
  { START "Host: a:b\r\n\r\n", -1, 400, "malformed Host" },
  { START "Host : localhost\r\n\r\n", -1, 400, "malformed header" },
  { START HOST " folded: x\r\n\r\n", -1, 400, "malformed header" },
  { START HOST "X: a\r\n b\r\n\r\n", -1, 400, "malformed header" },
  { START HOST "no colon\r\n\r\n", -1, 400, "malformed header" },
  { START HOST ": empty\r\n\r\n", -1, 400, "malformed header" },
  { START HOST "X: a\x01\r\n\r\n", -1, 400, "malformed header" },
  { START HOST "X: a\rY: b\r\n\r\n", -1, 400, "bare CR" },
  { START "Host: localhost\n\r\n", -1, 400, "bare LF" },
  { "GET /open HTTP/1.1\n", -1, 400, "bare LF" },
  { START HOST "Content-Length: 1\r\nContent-Length: 1\r\n\r\nx", -1, 400, "more than one" },
  { START HOST "Content-Length: 1, 1\r\n\r\nx", -1, 400, "malformed Content-Length" },
  { START HOST "Content-Length: +1\r\n\r\nx", -1, 400, "malformed Content-Length" },
  { START HOST "Content-Length: -1\r\n\r\nx", -1, 400, "malformed Content-Length" },
  { START HOST "Content-Length: 0x1\r\n\r\nx", -1, 400, "malformed Content-Length" },
  { START HOST "Content-Length: 1 1\r\n\r\nx", -1, 400, "malformed Content-Length" },
  { START HOST "Content-Length:\r\n\r\nx", -1, 400, "malformed Content-Length" },
  { START HOST "Content-Length: 99999999999999999999\r\n\r\nx", -1, 400, "Content-Length" },
  { START HOST "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", -1, 400, "both" },
  { START HOST "Transfer-Encoding: chunked\r\ncontent-length: 0\r\n\r\n0\r\n\r\n", -1, 400, "both" },
  { START HOST "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n", -1, 400,
    "more than one" },
  { START HOST "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", -1, 400, "chunked" },
  { START HOST "Transfer-Encoding: identity\r\n\r\n", -1, 400, "chunked" },
  { START HOST "Transfer-Encoding: xchunked\r\n\r\n", -1, 400, "chunked" },
  { "POST /open HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", -1, 400, "HTTP/1.0" },
  { START HOST "Expect: wonders\r\n\r\n", -1, 400, "expectation" },
  { START HOST "Origin: http://localhost\r\nOrigin: http://localhost\r\n\r\n", -1, 400,
    "more than one origin" },
  { "POST /open HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n-1\r\n", -1, 400, "chunked" },
  { "POST /open HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n0x1\r\na\r\n", -1, 400,
    "chunked" },
  { "POST /open HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n123456789\r\n", -1, 400,
    "chunked" },
  { "POST /open HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n1\na\r\n", -1, 400,
    "chunked" },
  { "POST /open HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n1\r\nab\r\n", -1, 400,
    "chunked" },
  { "POST /open HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n1 \r\na\r\n", -1, 400,
    "chunked" },
};

static void
assert_refused (Fixture *fixture, const char *text, gssize length, guint status, const char *says)
{
  g_autoptr (TestHttpClient) client = test_http_client_new (fixture->port);
  g_autoptr (TestHttpAnswer) answer = NULL;
  g_autofree char *rest = NULL;
  guint n_calls = fixture->n_calls;

  g_test_message ("%.60s ... %s", text, says);
  test_http_client_send (client, text, length);
  /* What follows must not be taken for a request. */
  test_http_client_send (client, GET, -1);
  answer = test_http_client_read (client, FALSE);
  g_assert_cmpuint (answer->status, ==, status);
  g_assert_cmpstr (g_hash_table_lookup (answer->headers, "content-type"), ==, "application/json");
  g_assert_cmpstr (g_hash_table_lookup (answer->headers, "connection"), ==, "close");
  g_assert_nonnull (strstr (answer->body, says));
  rest = test_http_client_read_to_end (client);
  g_assert_cmpstr (rest, ==, "");
  g_assert_cmpuint (fixture->n_calls, ==, n_calls);
}

static void
test_refusals (Fixture *fixture, gconstpointer data)
{
  g_autoptr (TestHttpAnswer) answer = NULL;

  for (guint i = 0; i < G_N_ELEMENTS (refusals); i++)
    assert_refused (fixture, refusals[i].text, refusals[i].length, refusals[i].status,
                    refusals[i].says);
  /* The server goes on. */
  answer = test_http_request (fixture->port, "GET", "/open", NULL, NULL);
  g_assert_cmpuint (answer->status, ==, 200);
}

static void
test_head_limits (Fixture *fixture, gconstpointer data)
{
  g_autoptr (GString) many = g_string_new (START HOST);
  g_autoptr (GString) fits = g_string_new (START HOST);
  g_autofree char *filler = g_strnfill (VMM_HTTP_MAX_HEAD, 'x');
  g_autofree char *large = g_strconcat (START HOST "X: ", filler, "\r\n\r\n", NULL);
  g_autofree char *target = g_strdup_printf ("GET /%.9000s HTTP/1.1\r\n" HOST "\r\n", filler);
  g_autoptr (TestHttpClient) client = test_http_client_new (fixture->port);
  g_autoptr (TestHttpAnswer) answer = NULL;

  for (guint i = 0; i < VMM_HTTP_MAX_FIELDS; i++)
    g_string_append (many, "X: y\r\n");
  g_string_append (many, "\r\n");
  assert_refused (fixture, many->str, -1, 400, "header lines");
  assert_refused (fixture, large, -1, 400, "request head");
  assert_refused (fixture, target, -1, 400, "request target");

  for (guint i = 0; i < VMM_HTTP_MAX_FIELDS - 1; i++)
    g_string_append (fits, "X: y\r\n");
  g_string_append (fits, "\r\n");
  test_http_client_send (client, fits->str, -1);
  answer = test_http_client_read (client, FALSE);
  g_assert_cmpuint (answer->status, ==, 200);
}

/* Features of libsoup that nobody asked for stay off. */
static void
test_features_off (Fixture *fixture, gconstpointer data)
{
  g_autoptr (TestHttpAnswer) range = NULL;
  g_autoptr (TestHttpAnswer) upgrade = NULL;
  g_autoptr (TestHttpAnswer) absolute = NULL;
  g_autofree char *target = g_strdup_printf ("http://127.0.0.1:%u/open", fixture->port);

  range = test_http_request (fixture->port, "GET", "/open", "Range: bytes=0-1\r\n", NULL);
  g_assert_cmpuint (range->status, ==, 200);
  g_assert_cmpstr (range->body, ==, "fine");
  upgrade = test_http_request (fixture->port, "GET", "/open",
                               "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
                               "Sec-WebSocket-Key: x\r\n",
                               NULL);
  g_assert_cmpuint (upgrade->status, ==, 200);
  absolute = test_http_request (fixture->port, "GET", target, NULL, NULL);
  g_assert_cmpuint (absolute->status, ==, 200);
}

static void
send_large (Fixture *fixture, gboolean chunked, gsize size)
{
  g_autoptr (TestHttpClient) client = test_http_client_new (fixture->port);
  g_autoptr (TestHttpAnswer) answer = NULL;
  g_autofree char *body = g_strnfill (size, 'a');
  g_autofree char *head =
      chunked ? g_strdup_printf ("POST /open HTTP/1.1\r\n" HOST
                                 "Transfer-Encoding: chunked\r\n\r\n%" G_GSIZE_MODIFIER "x\r\n",
                                 size)
              : g_strdup_printf ("POST /open HTTP/1.1\r\n" HOST
                                 "Content-Length: %" G_GSIZE_FORMAT "\r\n\r\n",
                                 size);

  test_http_client_send (client, head, -1);
  test_http_client_send (client, body, size);
  if (chunked)
    test_http_client_send (client, "\r\n0\r\n\r\n", -1);
  answer = test_http_client_read (client, FALSE);
  g_assert_cmpuint (answer->status, ==, 200);
  g_assert_cmpint (fixture->too_large, ==, size > VMM_HTTP_MAX_BODY);
  g_assert_cmpuint (strlen (fixture->body), ==, size > VMM_HTTP_MAX_BODY ? 0 : size);
  g_assert_cmpstr (g_hash_table_lookup (answer->headers, "connection"), ==,
                   size > VMM_HTTP_MAX_BODY ? "close" : NULL);
}

static void
test_body_limit (Fixture *fixture, gconstpointer data)
{
  send_large (fixture, FALSE, VMM_HTTP_MAX_BODY);
  send_large (fixture, TRUE, VMM_HTTP_MAX_BODY);
  send_large (fixture, FALSE, VMM_HTTP_MAX_BODY + 1);
  send_large (fixture, TRUE, VMM_HTTP_MAX_BODY + 1);
}

/* Slow clients are sent away, with an answer when they had begun to ask. */
static void
test_slow (Fixture *fixture, gconstpointer data)
{
  static const char *const starts[] = {
    "GET /op",
    START,
    START HOST "Content-Length: 5\r\n\r\nab",
    "POST /open HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n5\r\nab",
  };
  g_autoptr (TestHttpClient) silent = test_http_client_new (fixture->port);
  g_autoptr (TestHttpClient) idle = test_http_client_new (fixture->port);
  g_autofree char *nothing = NULL;
  g_autofree char *rest = NULL;
  g_autoptr (TestHttpAnswer) answer = NULL;

  test_http_client_send (idle, GET, -1);
  answer = test_http_client_read (idle, FALSE);
  for (guint i = 0; i < G_N_ELEMENTS (starts); i++)
    {
      g_autoptr (TestHttpClient) client = test_http_client_new (fixture->port);
      g_autoptr (TestHttpAnswer) late = NULL;
      g_autofree char *end = NULL;

      test_http_client_send (client, starts[i], -1);
      late = test_http_client_read (client, FALSE);
      g_assert_cmpuint (late->status, ==, 408);
      end = test_http_client_read_to_end (client);
    }
  nothing = test_http_client_read_to_end (silent);
  g_assert_cmpstr (nothing, ==, "");
  rest = test_http_client_read_to_end (idle);
  g_assert_cmpstr (rest, ==, "");
}

static guint
count_descriptors (void)
{
  g_autoptr (GDir) dir = g_dir_open ("/proc/self/fd", 0, NULL);
  guint n = 0;

  while (g_dir_read_name (dir) != NULL)
    n++;
  return n;
}

static gboolean
is_back_to (gpointer user_data)
{
  return count_descriptors () <= GPOINTER_TO_UINT (user_data);
}

static gboolean
was_called (gpointer user_data)
{
  return ((Fixture *) user_data)->n_calls > 0;
}

/* A client that does not read its answer is given up. */
static void
test_stalled (Fixture *fixture, gconstpointer data)
{
  static const char text[] = "GET /open/big HTTP/1.1\r\n" HOST "\r\n";
  g_autoptr (TestHttpClient) reader = test_http_client_new (fixture->port);
  g_autoptr (TestHttpAnswer) whole = NULL;
  g_autoptr (GSocketAddress) address =
      g_inet_socket_address_new_from_string ("127.0.0.1", fixture->port);
  g_autoptr (GSocket) client = NULL;
  g_autofree char *buffer = g_malloc (16 * 1024 * 1024);
  gsize n = 0;
  gssize part;
  guint before;

  test_http_client_send (reader, text, -1);
  whole = test_http_client_read (reader, FALSE);
  g_assert_cmpuint (whole->length, ==, 16 * 1024 * 1024);
  g_clear_pointer (&reader, test_http_client_free);
  test_drain ();

  fixture->n_calls = 0;
  before = count_descriptors ();
  client = g_socket_new (G_SOCKET_FAMILY_IPV4, G_SOCKET_TYPE_STREAM, 0, NULL);
  g_assert_true (g_socket_connect (client, address, NULL, NULL));
  g_assert_cmpint (g_socket_send (client, text, strlen (text), NULL, NULL), ==, strlen (text));
  test_await_condition (was_called, fixture);
  test_await_condition (is_back_to, GUINT_TO_POINTER (before + 1));
  while ((part = g_socket_receive (client, buffer, 1024 * 1024, NULL, NULL)) > 0)
    n += part;
  g_assert_cmpuint (n, <, 16 * 1024 * 1024);
}

static gboolean
is_cancelled (gpointer user_data)
{
  Fixture *fixture = user_data;

  return fixture->cancellable != NULL && g_cancellable_is_cancelled (fixture->cancellable);
}

static gboolean
is_paused (gpointer user_data)
{
  return ((Fixture *) user_data)->paused != NULL;
}

static void
resume (Fixture *fixture)
{
  vmm_http_answer_text (fixture->paused, 200, "late");
  soup_server_message_unpause (fixture->paused);
  g_clear_object (&fixture->paused);
}

static void
test_client_leaves (Fixture *fixture, gconstpointer data)
{
  for (guint i = 0; i < 2; i++)
    {
      TestHttpClient *client = i == 0 ? test_http_client_new (fixture->port)
                                      : test_http_client_new_unix (fixture->socket);

      test_http_client_send (client, "GET /shut/wait HTTP/1.1\r\n" HOST "\r\n", -1);
      test_await_condition (is_paused, fixture);
      test_drain ();
      g_assert_false (is_cancelled (fixture));
      test_http_client_free (client);
      test_await_condition (is_cancelled, fixture);
      resume (fixture);
      test_drain ();
      g_clear_object (&fixture->cancellable);
    }
}

/* Half-closed is not gone: the answer still comes. */
static void
test_half_close (Fixture *fixture, gconstpointer data)
{
  for (guint i = 0; i < 2; i++)
    {
      g_autoptr (TestHttpClient) client = i == 0 ? test_http_client_new (fixture->port)
                                                 : test_http_client_new_unix (fixture->socket);
      g_autoptr (TestHttpAnswer) answer = NULL;

      test_http_client_send (client, "GET /shut/wait HTTP/1.1\r\n" HOST "\r\n", -1);
      test_http_client_shutdown (client);
      test_await_condition (is_paused, fixture);
      test_drain ();
      g_assert_false (is_cancelled (fixture));
      resume (fixture);
      answer = test_http_client_read (client, FALSE);
      g_assert_cmpuint (answer->status, ==, 200);
      g_assert_cmpstr (answer->body, ==, "late");
      g_clear_object (&fixture->cancellable);
    }
}

static void
assert_status (Fixture *fixture, const char *path, const char *host, const char *origin,
               guint status)
{
  g_autoptr (TestHttpClient) client = test_http_client_new (fixture->port);
  g_autoptr (TestHttpAnswer) answer = NULL;
  g_autofree char *text =
      g_strdup_printf ("GET %s HTTP/1.1\r\nHost: %s\r\n%s%s%s\r\n", path, host,
                       origin != NULL ? "Origin: " : "", origin != NULL ? origin : "",
                       origin != NULL ? "\r\n" : "");

  test_http_client_send (client, text, -1);
  answer = test_http_client_read (client, FALSE);
  g_test_message ("%s %s %s", path, host, origin);
  g_assert_cmpuint (answer->status, ==, status);
  if (status == 403)
    g_assert_nonnull (strstr (answer->body, "\"code\": \"forbidden\""));
}

/* A page from elsewhere that a browser of this machine shows. */
static void
test_host_and_origin (Fixture *fixture, gconstpointer data)
{
  static const char *const good[] = { "localhost", "LOCALHOST:1", "127.0.0.1", "127.9.8.7:80",
                                      "[::1]", "[::1]:8080" };
  static const char *const bad[] = { "evil.example", "localhost.evil.example", "10.0.0.1",
                                     "127.0.0.1.evil.example", "[::2]", "0.0.0.0" };
  static const char *const good_origins[] = { "http://localhost", "https://127.0.0.1:3000",
                                              "http://[::1]:8080" };
  static const char *const bad_origins[] = { "null", "http://evil.example", "localhost", "",
                                             "http://localhost.evil.example",
                                             "http://localhost@evil.example", "file://localhost" };

  for (guint i = 0; i < G_N_ELEMENTS (good); i++)
    assert_status (fixture, "/shut", good[i], NULL, 200);
  for (guint i = 0; i < G_N_ELEMENTS (bad); i++)
    assert_status (fixture, "/shut", bad[i], NULL, 403);
  for (guint i = 0; i < G_N_ELEMENTS (good_origins); i++)
    assert_status (fixture, "/shut", "localhost", good_origins[i], 200);
  for (guint i = 0; i < G_N_ELEMENTS (bad_origins); i++)
    assert_status (fixture, "/shut", "localhost", bad_origins[i], 403);
  assert_status (fixture, "/open", "evil.example", "http://evil.example", 200);
}

static void
test_unix_socket (Fixture *fixture, gconstpointer data)
{
  g_autoptr (TestHttpClient) client = test_http_client_new_unix (fixture->socket);
  g_autoptr (TestHttpClient) old = test_http_client_new_unix (fixture->socket);
  g_autoptr (TestHttpClient) page = test_http_client_new_unix (fixture->socket);
  g_autoptr (TestHttpAnswer) answer = NULL;
  g_autoptr (TestHttpAnswer) old_answer = NULL;
  g_autoptr (TestHttpAnswer) page_answer = NULL;
  g_autofree char *subject = g_strdup_printf ("uid:%u", (guint) geteuid ());
  g_autofree char *end = NULL;
  struct stat st;

  g_assert_cmpint (lstat (fixture->socket, &st), ==, 0);
  g_assert_cmpuint (st.st_mode & 07777, ==, 0600);

  test_http_client_send (client, "GET /shut HTTP/1.1\r\nHost: any.name\r\n\r\n", -1);
  answer = test_http_client_read (client, FALSE);
  g_assert_cmpuint (answer->status, ==, 200);
  g_assert_cmpstr (fixture->subject, ==, subject);

  /* No Host at all: libsoup would take the address of this socket for an IP one. */
  test_http_client_send (old, "GET /shut HTTP/1.0\r\n\r\n", -1);
  old_answer = test_http_client_read (old, FALSE);
  g_assert_cmpuint (old_answer->status, ==, 200);
  end = test_http_client_read_to_end (old);

  test_http_client_send (page,
                         "GET /shut HTTP/1.1\r\nHost: any.name\r\nOrigin: http://any.name\r\n\r\n",
                         -1);
  page_answer = test_http_client_read (page, FALSE);
  g_assert_cmpuint (page_answer->status, ==, 403);
}

static VmmHttp *
listen_on (const char *listen, const char *path, const char *anonymous, GError **error)
{
  const char *pairs[] = { "listen", listen, "listen-unix", path, "allow-anonymous", anonymous,
                          NULL };
  g_autoptr (VmmOptions) options = vmm_options_new_for_test (pairs, NULL);
  g_autoptr (VmmHttp) http = vmm_http_new (options);

  return vmm_http_listen (http, error) ? g_steal_pointer (&http) : NULL;
}

static void
test_listen_errors (Fixture *fixture, gconstpointer data)
{
  static const char *const bad[] = { "127.0.0.1", "127.0.0.1:70000", "nowhere.example:80", "::1:80",
                                     "127.0.0.1:", "[127.0.0.1:80", "x" };
  g_autofree char *taken = g_strdup_printf ("127.0.0.1:%u", fixture->port);
  g_autofree char *file = g_build_filename (fixture->folder, "file", NULL);
  g_autofree char *stale = g_build_filename (fixture->folder, "stale", NULL);
  g_autofree char *filler = g_strnfill (120, 'x');
  g_autofree char *deep = g_build_filename (fixture->folder, filler, NULL);
  g_autoptr (GSocketAddress) address = g_unix_socket_address_new (stale);
  g_autoptr (GSocket) dead = NULL;
  g_autoptr (VmmHttp) http = NULL;
  g_autoptr (VmmHttp) open = NULL;
  GError *error = NULL;

  for (guint i = 0; i < G_N_ELEMENTS (bad); i++)
    {
      g_assert_null (listen_on (bad[i], "", "false", &error));
      g_assert_nonnull (strstr (error->message, "--listen: \""));
      g_clear_error (&error);
    }
  g_assert_null (listen_on (taken, "", "false", &error));
  g_assert_nonnull (strstr (error->message, taken));
  g_clear_error (&error);
  g_assert_null (listen_on ("0.0.0.0:0", "", "false", &error));
  g_assert_nonnull (strstr (error->message, "--allow-anonymous"));
  g_clear_error (&error);
  g_assert_null (listen_on (":0", "", "false", &error));
  g_clear_error (&error);
  open = listen_on ("0.0.0.0:0", "", "true", &error);
  g_assert_no_error (error);

  g_assert_null (listen_on ("", fixture->socket, "false", &error));
  g_assert_nonnull (strstr (error->message, "answers"));
  g_clear_error (&error);
  g_assert_true (g_file_set_contents (file, "x", 1, NULL));
  g_assert_null (listen_on ("", file, "false", &error));
  g_assert_nonnull (strstr (error->message, "not a socket"));
  g_clear_error (&error);
  g_assert_null (listen_on ("", deep, "false", &error));
  g_assert_nonnull (strstr (error->message, "107"));
  g_clear_error (&error);

  dead = g_socket_new (G_SOCKET_FAMILY_UNIX, G_SOCKET_TYPE_STREAM, 0, NULL);
  g_assert_true (g_socket_bind (dead, address, FALSE, NULL));
  g_clear_object (&dead);
  http = listen_on ("", stale, "false", &error);
  g_assert_no_error (error);
  g_clear_object (&http);
  g_assert_false (g_file_test (stale, G_FILE_TEST_EXISTS));
}

/* Closing waits for what runs, and cancels it after a while. */
static void
test_close (Fixture *fixture, gconstpointer data)
{
  g_autoptr (TestHttpClient) waiting = test_http_client_new (fixture->port);
  g_autoptr (TestHttpClient) idle = test_http_client_new (fixture->port);
  g_autoptr (TestHttpAnswer) answer = NULL;
  g_autoptr (GAsyncResult) result = NULL;
  g_autofree char *end = NULL;
  TestAwait await = TEST_AWAIT_INIT;

  test_http_client_send (waiting, "GET /shut/wait HTTP/1.1\r\n" HOST "\r\n", -1);
  test_await_condition (is_paused, fixture);
  vmm_http_close_async (fixture->http, 20000, test_await_cb, &await);
  end = test_http_client_read_to_end (idle);
  g_assert_false (g_file_test (fixture->socket, G_FILE_TEST_EXISTS));
  g_assert_null (await.result);
  test_await_condition (is_cancelled, fixture);
  resume (fixture);
  answer = test_http_client_read (waiting, FALSE);
  g_assert_cmpuint (answer->status, ==, 200);
  g_clear_pointer (&waiting, test_http_client_free);
  result = test_await (&await);
  g_assert_true (vmm_http_close_finish (fixture->http, result, NULL));
}

/* Whatever was cut, no descriptor stays open. */
static void
test_descriptors (Fixture *fixture, gconstpointer data)
{
  g_autoptr (TestHttpAnswer) first = test_http_request (fixture->port, "GET", "/open", NULL, NULL);
  guint before;

  g_assert_cmpuint (first->status, ==, 200);
  test_drain ();
  before = count_descriptors ();
  for (guint i = 0; i < 20; i++)
    {
      g_autoptr (TestHttpClient) client = test_http_client_new (fixture->port);
      g_autoptr (TestHttpClient) part = test_http_client_new (fixture->port);
      g_autoptr (TestHttpAnswer) answer = NULL;

      test_http_client_send (part, START, -1);
      test_http_client_send (client, GET, -1);
      answer = test_http_client_read (client, FALSE);
    }
  test_await_condition (is_back_to, GUINT_TO_POINTER (before));
}

static void
test_connection_limit (Fixture *fixture, gconstpointer data)
{
  g_autoptr (GPtrArray) clients =
      g_ptr_array_new_with_free_func ((GDestroyNotify) test_http_client_free);
  g_autofree char *text = NULL;
  g_autoptr (TestHttpClient) last = NULL;

  for (guint i = 0; i < VMM_HTTP_MAX_CONNECTIONS; i++)
    {
      g_ptr_array_add (clients, test_http_client_new (fixture->port));
      test_drain ();
    }
  last = test_http_client_new (fixture->port);
  text = test_http_client_read_to_end (last);
  g_assert_true (g_str_has_prefix (text, "HTTP/1.1 503 "));
  g_assert_nonnull (strstr (text, "too many connections"));
}

static void
test_owner (void)
{
  g_autoptr (GSocketAddress) client = g_inet_socket_address_new_from_string ("127.0.0.1", 0x8a3e);
  g_autoptr (GSocketAddress) server = g_inet_socket_address_new_from_string ("127.0.0.1", 8080);
  g_autoptr (GSocketAddress) client6 = g_inet_socket_address_new_from_string ("::1", 0x8a3e);
  g_autoptr (GSocketAddress) server6 = g_inet_socket_address_new_from_string ("::1", 8080);
  static const char table[] =
      "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout "
      "inode\n"
      "   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 "
      "1 1 0 100 0 0 10 0\n"
      "   1: 0100007F:1F90 0100007F:8A3E 01 00000000:00000000 00:00000000 00000000     0        0 "
      "2 1 0 20 4 30 10 -1\n"
      "   2: 0100007F:8A3E 0100007F:1F90 01 00000000:00000000 00:00000000 00000000  1000        0 "
      "4711 1 0 20 4 30 10 -1\n";
  static const char table6[] =
      "  sl  local_address                         remote_address                        st ...\n"
      "   0: 00000000000000000000000001000000:8A3E 00000000000000000000000001000000:1F90 01 "
      "00000000:00000000 00:00000000 00000000  1001        0 42 1 0 20 4 30 10 -1\n"
      "   1: 0000000000000000FFFF00000100007F:8A3E 0000000000000000FFFF00000100007F:1F90 06 "
      "00000000:00000000 00:00000000 00000000     0        0 0 1 0 20 4 30 10 -1\n";
  VmmHttpSocketOwner owner;

  g_assert_true (vmm_http_find_owner_in_table (table, G_INET_SOCKET_ADDRESS (client),
                                               G_INET_SOCKET_ADDRESS (server), &owner));
  g_assert_cmpuint (owner.uid, ==, 1000);
  g_assert_cmpuint (owner.inode, ==, 4711);
  g_assert_true (vmm_http_find_owner_in_table (table6, G_INET_SOCKET_ADDRESS (client6),
                                               G_INET_SOCKET_ADDRESS (server6), &owner));
  g_assert_cmpuint (owner.uid, ==, 1001);
  g_assert_true (vmm_http_find_owner_in_table (table6, G_INET_SOCKET_ADDRESS (client),
                                               G_INET_SOCKET_ADDRESS (server), &owner));
  g_assert_cmpuint (owner.inode, ==, 0);
  g_assert_false (vmm_http_find_owner_in_table (table, G_INET_SOCKET_ADDRESS (client6),
                                                G_INET_SOCKET_ADDRESS (server6), &owner));
}

/* Both ways of asking the kernel agree; a closed socket has no owner. */
static void
test_owner_real (void)
{
  g_autoptr (GSocketAddress) any = g_inet_socket_address_new_from_string ("127.0.0.1", 0);
  g_autoptr (GSocket) listener = g_socket_new (G_SOCKET_FAMILY_IPV4, G_SOCKET_TYPE_STREAM, 0, NULL);
  g_autoptr (GSocketAddress) server = NULL;
  g_autoptr (TestHttpClient) client = NULL;
  g_autoptr (GSocketAddress) here = NULL;
  g_autoptr (GSocket) accepted = NULL;
  g_autoptr (VmmHttpPeer) peer = NULL;
  g_autoptr (VmmHttpPeer) gone = NULL;
  g_autofree char *table = NULL;
  VmmHttpSocketOwner by_netlink = { 0, 0 };
  VmmHttpSocketOwner by_table = { 0, 0 };

  g_assert_true (g_socket_bind (listener, any, FALSE, NULL));
  g_assert_true (g_socket_listen (listener, NULL));
  server = g_socket_get_local_address (listener, NULL);
  client = test_http_client_new (
      g_inet_socket_address_get_port (G_INET_SOCKET_ADDRESS (server)));
  here = g_socket_get_local_address (test_http_client_get_socket (client), NULL);
  accepted = g_socket_accept (listener, NULL, NULL);

  g_assert_true (g_file_get_contents ("/proc/net/tcp", &table, NULL, NULL));
  g_assert_true (vmm_http_find_owner_in_table (table, G_INET_SOCKET_ADDRESS (here),
                                               G_INET_SOCKET_ADDRESS (server), &by_table));
  g_assert_cmpuint (by_table.uid, ==, geteuid ());
  g_assert_cmpuint (by_table.inode, !=, 0);
  if (vmm_http_find_owner_by_netlink (G_INET_SOCKET_ADDRESS (here), G_INET_SOCKET_ADDRESS (server),
                                      &by_netlink))
    {
      g_assert_cmpuint (by_netlink.uid, ==, by_table.uid);
      g_assert_cmpuint (by_netlink.inode, ==, by_table.inode);
    }
  else
    g_test_message ("no sock_diag here");
  peer = vmm_http_peer_identify (accepted, 0);
  g_assert_true (peer->permitted);
  g_assert_true (peer->loopback);
  g_assert_true (vmm_http_peer_is_present (accepted));

  /* Send, close, exit: uid 0 is shown for such a socket. */
  test_http_client_send (client, GET, -1);
  g_clear_pointer (&client, test_http_client_free);
  g_assert_false (vmm_http_peer_is_present (accepted));
  gone = vmm_http_peer_identify (accepted, 0);
  g_assert_false (gone->permitted);
  g_assert_cmpstr (gone->subject, ==, "anonymous");
  g_assert_nonnull (gone->problem);
}

static void
test_body_pure (void)
{
  g_autoptr (VmmHttpBody) body = vmm_http_body_new (-1, 4);
  g_autoptr (VmmHttpBody) plain = vmm_http_body_new (3, 10);
  g_autoptr (VmmHttpBody) trailers = vmm_http_body_new (-1, 4);
  g_autofree char *line = g_strnfill (200, 't');
  g_autoptr (GBytes) bytes = NULL;
  gsize used;

  g_assert_cmpint (vmm_http_body_feed (plain, "abcd", 4, &used), ==, VMM_HTTP_BODY_DONE);
  g_assert_cmpuint (used, ==, 3);
  g_assert_cmpint (vmm_http_body_feed (body, "2\r\nab\r\n3\r\n", 11, &used), ==,
                   VMM_HTTP_BODY_TOO_LARGE);
  bytes = vmm_http_body_take (body);
  g_assert_cmpuint (g_bytes_get_size (bytes), ==, 2);

  g_assert_cmpint (vmm_http_body_feed (trailers, "0\r\n", 3, &used), ==, VMM_HTTP_BODY_MORE);
  for (guint i = 0; i < 20; i++)
    {
      g_assert_cmpint (vmm_http_body_feed (trailers, line, 200, &used), ==, VMM_HTTP_BODY_MORE);
      g_assert_cmpint (vmm_http_body_feed (trailers, "\r\n", 2, &used), ==, VMM_HTTP_BODY_MORE);
    }
  g_assert_cmpint (vmm_http_body_feed (trailers, line, 200, &used), ==, VMM_HTTP_BODY_MORE);
  g_assert_cmpint (vmm_http_body_feed (trailers, "\r\n", 2, &used), ==, VMM_HTTP_BODY_MALFORMED);
}

#define ADD(path, function) g_test_add (path, Fixture, NULL, setup, function, teardown)
#define ADD_QUICK(path, function)                                                                  \
  g_test_add (path, Fixture, NULL, setup_quick, function, teardown)

int
main (int argc, char **argv)
{
  g_test_init (&argc, &argv, G_TEST_OPTION_ISOLATE_DIRS, NULL);

  ADD ("/http/answers", test_answers);
  ADD ("/http/keep-alive", test_keep_alive);
  ADD ("/http/byte-by-byte", test_byte_by_byte);
  ADD ("/http/expect", test_expect);
  ADD ("/http/refusals", test_refusals);
  ADD ("/http/head-limits", test_head_limits);
  ADD ("/http/features-off", test_features_off);
  ADD ("/http/body-limit", test_body_limit);
  ADD_QUICK ("/http/slow", test_slow);
  ADD_QUICK ("/http/stalled", test_stalled);
  ADD ("/http/client-leaves", test_client_leaves);
  ADD ("/http/half-close", test_half_close);
  ADD ("/http/host-and-origin", test_host_and_origin);
  ADD ("/http/unix-socket", test_unix_socket);
  ADD ("/http/listen-errors", test_listen_errors);
  ADD_QUICK ("/http/close", test_close);
  ADD ("/http/descriptors", test_descriptors);
  ADD ("/http/connection-limit", test_connection_limit);
  g_test_add_func ("/http/owner", test_owner);
  g_test_add_func ("/http/owner-real", test_owner_real);
  g_test_add_func ("/http/body", test_body_pure);

  return g_test_run ();
}

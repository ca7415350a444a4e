/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The REST door on a real service with fake backends. */

#include "vmm-rest.h"

#include <string.h>

#include "fake-peers.h"
#include "service-fixture.h"
#include "test-await.h"
#include "test-http-client.h"
#include "vmm-etag.h"
#include "vmm-json.h"
#include "vmm-probes.h"

#define NEW_VM "{\"name\": \"%s\", \"wait_for\": \"%s\", \"require_attestation\": false}"

typedef struct
{
  ServiceFixture *service;
  VmmHttp *http;
  guint port;
} Fixture;

static void
setup (Fixture *fixture, gconstpointer data)
{
  const char *pairs[] = { "listen", "127.0.0.1:0", "listen-unix", "", NULL };
  g_autoptr (VmmOptions) options = vmm_options_new_for_test (pairs, NULL);
  g_autoptr (GError) error = NULL;

  test_peer_configure (NULL);
  fixture->service = service_fixture_new ();
  service_fixture_start_well (fixture->service);
  fixture->http = vmm_http_new (options);
  vmm_probes_mount (fixture->http, fixture->service->service, options);
  vmm_rest_mount (fixture->http, fixture->service->service);
  g_assert_true (vmm_http_listen (fixture->http, &error));
  g_assert_no_error (error);
  fixture->port = vmm_http_get_port (fixture->http);
}

static void
close_http (Fixture *fixture)
{
  TestAwait await = TEST_AWAIT_INIT;
  g_autoptr (GAsyncResult) result = NULL;

  vmm_http_close_async (fixture->http, 15000, test_await_cb, &await);
  result = test_await (&await);
  g_assert_true (vmm_http_close_finish (fixture->http, result, NULL));
}

static void
teardown (Fixture *fixture, gconstpointer data)
{
  if (!vmm_http_is_closing (fixture->http))
    close_http (fixture);
  test_drain ();
  g_assert_finalize_object (fixture->http);
  service_fixture_free (fixture->service);
}

/* A request whose answer must have this status; returns its JSON, NULL without a body. */
static JsonNode *
ask (Fixture *fixture, const char *method, const char *path, const char *body, guint status)
{
  g_autofree char *full = g_strconcat ("/api/v1", path, NULL);
  g_autoptr (TestHttpAnswer) answer = test_http_request (fixture->port, method, full, NULL, body);
  g_autoptr (GError) error = NULL;
  JsonNode *node;

  g_test_message ("%s %s %u: %s", method, path, answer->status, answer->body);
  g_assert_cmpuint (answer->status, ==, status);
  if (answer->length == 0)
    {
      g_assert_null (g_hash_table_lookup (answer->headers, "content-type"));
      return NULL;
    }
  g_assert_cmpstr (g_hash_table_lookup (answer->headers, "content-type"), ==, "application/json");
  g_assert_true (g_str_has_suffix (answer->body, "\n"));
  node = vmm_json_parse (answer->body, answer->length, &error);
  g_assert_no_error (error);
  return node;
}

static void
assert_error (Fixture *fixture, const char *method, const char *path, const char *body, guint status,
              const char *code, const char *message)
{
  g_autoptr (JsonNode) node = ask (fixture, method, path, body, status);
  JsonObject *error = json_object_get_object_member (json_node_get_object (node), "error");

  g_assert_cmpuint (json_object_get_size (json_node_get_object (node)), ==, 1);
  g_assert_cmpuint (json_object_get_size (error), ==, 2);
  g_assert_cmpstr (json_object_get_string_member (error, "code"), ==, code);
  if (g_str_has_suffix (message, "*"))
    {
      g_autofree char *start = g_strndup (message, strlen (message) - 1);

      g_assert_true (g_str_has_prefix (json_object_get_string_member (error, "message"), start));
    }
  else
    g_assert_cmpstr (json_object_get_string_member (error, "message"), ==, message);
}

/* A VM's whole way. */
static void
test_way_of_a_vm (Fixture *fixture, gconstpointer data)
{
  g_autofree char *body = g_strdup_printf (NEW_VM, "web", "ready");
  g_autoptr (JsonNode) vm = ask (fixture, "POST", "/vms", body, 201);
  g_autofree char *id = g_strdup (service_fixture_get (vm, "id"));
  g_autofree char *path = g_strconcat ("/vms/", id, NULL);
  g_autofree char *stop = g_strconcat (path, "/stop", NULL);
  g_autofree char *start = g_strconcat (path, "/start", NULL);
  g_autofree char *console = g_strconcat (path, "/console?lines=7&other=x", NULL);
  g_autofree char *console_bad = g_strconcat (path, "/console?lines=abc", NULL);
  g_autofree char *console_worse = g_strconcat (path, "/console?lines=%zz", NULL);
  g_autofree char *message = g_strdup_printf ("not found: vm \"%s\"", id);
  g_autoptr (JsonNode) got = NULL;
  g_autoptr (JsonNode) lines = NULL;
  g_autoptr (JsonNode) stopped = NULL;
  g_autoptr (JsonNode) started = NULL;

  g_assert_cmpstr (service_fixture_get (vm, "state"), ==, "ready");
  got = ask (fixture, "GET", path, NULL, 200);
  g_assert_cmpstr (service_fixture_get (got, "name"), ==, "web");
  lines = ask (fixture, "GET", console, NULL, 200);
  g_assert_cmpint (json_object_get_int_member (json_node_get_object (lines), "lines"), ==, 7);
  assert_error (fixture, "GET", console_bad, NULL, 400, "invalid_request",
                "invalid request: lines: *");
  assert_error (fixture, "GET", console_worse, NULL, 400, "invalid_request", "invalid request: *");
  /* Routes without a body ignore any. */
  stopped = ask (fixture, "POST", stop, "{\"bogus\": [}", 200);
  g_assert_cmpstr (service_fixture_get (stopped, "state"), ==, "stopped");
  assert_error (fixture, "POST", stop, NULL, 409, "conflict", "conflict: vm *");
  started = ask (fixture, "POST", start, "", 200);
  g_assert_null (ask (fixture, "DELETE", path, "x", 204));
  assert_error (fixture, "GET", path, NULL, 404, "not_found", message);
  assert_error (fixture, "DELETE", path, NULL, 404, "not_found", message);
}

static void
test_networks (Fixture *fixture, gconstpointer data)
{
  g_autoptr (JsonNode) made = NULL;
  g_autoptr (JsonNode) got = NULL;
  g_autoptr (JsonNode) all = NULL;

  made = ask (fixture, "POST", "/networks", "{\"name\": \"lan\", \"cidr\": \"10.9.0.0/24\"}", 201);
  got = ask (fixture, "GET", "/networks/lan", NULL, 200);
  g_assert_true (json_node_equal (made, got));
  all = ask (fixture, "GET", "/networks", NULL, 200);
  g_assert_cmpuint (json_array_get_length (json_node_get_array (all)), ==, 2);
  assert_error (fixture, "POST", "/networks", "{\"name\": \"lan\", \"cidr\": \"10.9.0.0/24\"}", 409,
                "conflict", "conflict: network \"lan\" already exists");
  g_assert_null (ask (fixture, "DELETE", "/networks/l%61n", NULL, 204));
  assert_error (fixture, "GET", "/networks/lan", NULL, 404, "not_found",
                "not found: network \"lan\"");
}

static void
test_routes (Fixture *fixture, gconstpointer data)
{
  static const struct
  {
    const char *method;
    const char *path;
  } unknown[] = {
    { "GET", "" },          { "GET", "/" },           { "GET", "/vms/" },   { "GET", "//vms" },
    { "POST", "/host" },    { "DELETE", "/vms" },     { "PUT", "/vms" },    { "OPTIONS", "/vms" },
    { "GET", "/nothing" },  { "GET", "/vms/a/b" },    { "get", "/vms" },    { "GET", "/vms/%ff" },
    { "GET", "/networks//" }, { "PATCH", "/vms/a" },  { "TRACE", "/vms" },  { "GET", "/a/b/c/d/e/f" },
  };
  g_autoptr (TestHttpAnswer) outside = NULL;

  for (guint i = 0; i < G_N_ELEMENTS (unknown); i++)
    {
      g_autofree char *message = g_strdup_printf ("not found: no route %s /api/v1%s",
                                                  unknown[i].method, unknown[i].path);

      assert_error (fixture, unknown[i].method, unknown[i].path, NULL, 404, "not_found", message);
    }
  outside = test_http_request (fixture->port, "GET", "/api/v2/vms", NULL, NULL);
  g_assert_cmpuint (outside->status, ==, 404);
  g_assert_cmpstr (outside->body, ==, "404 page not found\n");
  assert_error (fixture, "GET", "/images/%3Cnone%3E", NULL, 404, "not_found",
                "not found: image \"<none>\"");
}

static void
test_bad_bodies (Fixture *fixture, gconstpointer data)
{
  static const char *const bodies[] = {
    "",
    "null",
    "[]",
    "\"text\"",
    "{",
    "{}{}",
    "{} x",
    "{'name': 'a'}",
    "{\"name\": 1}",
    "{\"name\": \"a\", \"name\": \"b\"}",
    "{\"name\": \"a\", \"cpus\": \"2\"}",
    "{\"name\": \"a\", \"cpus\": 1.5}",
    "{\"name\": \"a\", \"cpus\": 99999999999999999999}",
    "{\"name\": \"a\", \"metadata\": {\"k\": 1}}",
    "{\"name\": \"a\", \"metadata\": []}",
    "{\"name\": \"a\", \"ssh_authorized_keys\": [1]}",
    "{\"name\": \"a\", \"require_attestation\": \"no\"}",
    "{\"name\": \"\xff\"}",
    "{\"name\": \"\\ud800\"}",
    "{\"name\": \"a\\u0000b\"}",
  };
  g_autofree char *nested = g_strnfill (100000, '[');
  g_autofree char *large = g_strnfill (VMM_HTTP_MAX_BODY + 1, ' ');
  g_autoptr (JsonNode) vms = NULL;

  for (guint i = 0; i < G_N_ELEMENTS (bodies); i++)
    assert_error (fixture, "POST", "/vms", bodies[i], 400, "invalid_request",
                  "invalid request: body: *");
  assert_error (fixture, "POST", "/vms", nested, 400, "invalid_request",
                "invalid request: body: *");
  assert_error (fixture, "POST", "/vms", large, 400, "invalid_request",
                "invalid request: body: http: request body too large");
  assert_error (fixture, "POST", "/vms", "{\"bogus\": 1}", 400, "invalid_request",
                "invalid request: body: json: unknown field \"bogus\"");
  assert_error (fixture, "POST", "/vms/0a0a0a0a/forward", "{\"port\": 80, \"id\": \"b\"}", 400,
                "invalid_request", "invalid request: body: json: unknown field \"id\"");
  assert_error (fixture, "POST", "/vms", "{\"name\": \"a\", \"image\": \"nope\"}", 400,
                "invalid_request", "invalid request: image \"nope\": not found: image \"nope\"");
  vms = ask (fixture, "GET", "/vms", NULL, 200);
  g_assert_cmpuint (json_array_get_length (json_node_get_array (vms)), ==, 0);
}

/* A tag saves the body until something changes. */
static void
test_etag (Fixture *fixture, gconstpointer data)
{
  g_autoptr (TestHttpAnswer) first = NULL;
  g_autoptr (TestHttpAnswer) same = NULL;
  g_autoptr (TestHttpAnswer) head = NULL;
  g_autoptr (TestHttpAnswer) changed = NULL;
  g_autofree char *header = NULL;
  g_autofree char *id = NULL;
  const char *etag;

  first = test_http_request (fixture->port, "GET", "/api/v1/vms", NULL, NULL);
  etag = g_hash_table_lookup (first->headers, "etag");
  g_assert_nonnull (etag);
  header = g_strdup_printf ("If-None-Match: \"x\", W/%s\r\n", etag);
  same = test_http_request (fixture->port, "GET", "/api/v1/vms", header, NULL);
  g_assert_cmpuint (same->status, ==, 304);
  g_assert_cmpstr (g_hash_table_lookup (same->headers, "etag"), ==, etag);
  g_assert_cmpuint (same->length, ==, 0);
  head = test_http_request (fixture->port, "HEAD", "/api/v1/vms", NULL, NULL);
  g_assert_cmpuint (head->status, ==, 200);
  g_assert_cmpstr (g_hash_table_lookup (head->headers, "etag"), ==, etag);
  g_assert_cmpstr (g_hash_table_lookup (head->headers, "content-length"), ==, "3");

  id = service_fixture_create_vm (fixture->service, "web", "ready");
  changed = test_http_request (fixture->port, "GET", "/api/v1/vms", header, NULL);
  g_assert_cmpuint (changed->status, ==, 200);
  g_assert_cmpstr (g_hash_table_lookup (changed->headers, "etag"), !=, etag);
  g_assert_nonnull (strstr (changed->body, id));
}

static void
test_etag_pure (void)
{
  static const char text[] = "0123456789abcdef0123456789abcdef!";

  for (gsize i = 0; i < sizeof text; i++)
    for (gsize j = 0; j < i; j++)
      {
        g_autoptr (GBytes) a = g_bytes_new_static (text, i);
        g_autoptr (GBytes) b = g_bytes_new_static (text, j);
        g_autofree char *one = vmm_etag_new (a);
        g_autofree char *two = vmm_etag_new (b);
        g_autofree char *again = vmm_etag_new (a);

        g_assert_cmpstr (one, !=, two);
        g_assert_cmpstr (one, ==, again);
      }
  g_assert_true (vmm_etag_matches ("*", "\"a\""));
  g_assert_true (vmm_etag_matches ("\"b\",\"a\"", "\"a\""));
  g_assert_false (vmm_etag_matches ("\"b\"", "\"a\""));
  g_assert_false (vmm_etag_matches ("a", "\"a\""));
  g_assert_false (vmm_etag_matches (NULL, "\"a\""));
}

static void
test_openapi (Fixture *fixture, gconstpointer data)
{
  g_autoptr (TestHttpAnswer) answer =
      test_http_request (fixture->port, "GET", "/api/v1/openapi.yaml", NULL, NULL);

  g_assert_cmpuint (answer->status, ==, 200);
  g_assert_cmpstr (g_hash_table_lookup (answer->headers, "content-type"), ==, "application/yaml");
  g_assert_cmpstr (answer->body, ==, vmm_openapi_document);
}

static void
test_probes (Fixture *fixture, gconstpointer data)
{
  static const char *const paths[] = { "/healthz", "/readyz", "/metrics" };

  for (guint i = 0; i < G_N_ELEMENTS (paths); i++)
    {
      g_autofree char *below = g_strconcat (paths[i], "/x", NULL);
      g_autoptr (TestHttpAnswer) get = NULL;
      g_autoptr (TestHttpAnswer) head = NULL;
      g_autoptr (TestHttpAnswer) post = NULL;
      g_autoptr (TestHttpAnswer) other = NULL;

      get = test_http_request (fixture->port, "GET", paths[i], NULL, NULL);
      head = test_http_request (fixture->port, "HEAD", paths[i], NULL, NULL);
      post = test_http_request (fixture->port, "POST", paths[i], NULL, "");
      other = test_http_request (fixture->port, "GET", below, NULL, NULL);
      g_assert_cmpuint (get->status, ==, 200);
      g_assert_cmpuint (head->status, ==, 200);
      g_assert_cmpuint (post->status, ==, 405);
      g_assert_cmpstr (g_hash_table_lookup (post->headers, "allow"), ==, "GET, HEAD");
      g_assert_cmpuint (other->status, ==, 404);
      if (i < 2)
        g_assert_cmpstr (get->body, ==, "ok");
      else
        g_assert_cmpstr (g_hash_table_lookup (get->headers, "content-type"), ==,
                         "text/plain; version=0.0.4");
    }
}

static gboolean
has_vm (gpointer user_data)
{
  Fixture *fixture = user_data;

  return vmm_service_get_machines (fixture->service->service)->len == 1;
}

/* Who leaves ends his waiting; the VM goes on. */
static void
test_client_leaves (Fixture *fixture, gconstpointer data)
{
  g_autofree char *body = g_strdup_printf (NEW_VM, "web", "ready");
  g_autofree char *request = NULL;
  TestHttpClient *client = test_http_client_new (fixture->port);
  VmmMachine *machine;

  test_peer_configure ("ready-ms=never");
  request = g_strdup_printf ("POST /api/v1/vms HTTP/1.1\r\nHost: localhost\r\n"
                             "Content-Length: %" G_GSIZE_FORMAT "\r\n\r\n%s",
                             strlen (body), body);
  test_http_client_send (client, request, -1);
  test_await_condition (has_vm, fixture);
  test_http_client_free (client);
  machine = g_ptr_array_index (vmm_service_get_machines (fixture->service->service), 0);
  service_fixture_await_state (fixture->service, vmm_machine_get_id (machine),
                               VMM_MACHINE_BOOTING);
}

/* At the end of the daemon a request that waits is answered, and keeps nobody. */
static void
test_closing (Fixture *fixture, gconstpointer data)
{
  g_autofree char *body = g_strdup_printf (NEW_VM, "web", "ready");
  g_autofree char *request = NULL;
  g_autoptr (TestHttpClient) client = test_http_client_new (fixture->port);
  g_autoptr (TestHttpAnswer) answer = NULL;
  TestAwait await = TEST_AWAIT_INIT;
  g_autoptr (GAsyncResult) result = NULL;

  test_peer_configure ("ready-ms=never");
  request = g_strdup_printf ("POST /api/v1/vms HTTP/1.1\r\nHost: localhost\r\n"
                             "Content-Length: %" G_GSIZE_FORMAT "\r\n\r\n%s",
                             strlen (body), body);
  test_http_client_send (client, request, -1);
  test_await_condition (has_vm, fixture);
  vmm_http_close_async (fixture->http, 15000, test_await_cb, &await);
  answer = test_http_client_read (client, FALSE);
  g_assert_cmpuint (answer->status, ==, 409);
  g_assert_nonnull (strstr (answer->body, "conflict: vm-manager is shutting down"));
  g_clear_pointer (&client, test_http_client_free);
  result = test_await (&await);
}

#define ADD(path, function) g_test_add (path, Fixture, NULL, setup, function, teardown)

int
main (int argc, char **argv)
{
  g_test_init (&argc, &argv, G_TEST_OPTION_ISOLATE_DIRS, NULL);

  ADD ("/rest/way-of-a-vm", test_way_of_a_vm);
  ADD ("/rest/networks", test_networks);
  ADD ("/rest/routes", test_routes);
  ADD ("/rest/bad-bodies", test_bad_bodies);
  ADD ("/rest/etag", test_etag);
  ADD ("/rest/openapi", test_openapi);
  ADD ("/rest/probes", test_probes);
  ADD ("/rest/client-leaves", test_client_leaves);
  ADD ("/rest/closing", test_closing);
  g_test_add_func ("/rest/etag-pure", test_etag_pure);

  return g_test_run ();
}

/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The metadata service as guests see it: over the sockets of VMs of a service on the fakes. */

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <glib/gstdio.h>

#include "fake-backends.h"
#include "fake-peers.h"
#include "service-fixture.h"
#include "test-await.h"
#include "test-http-client.h"
#include "vmm-imds-keys.h"
#include "vmm-imds-port.h"
#include "vmm-json.h"

#define FORBIDDEN "forbidden: client address is not a managed VM"
#define GATED "user-data is released after the initrd-stage attestation verifies"
#define QUOTE                                                                                      \
  "{\"stage\":\"initrd\",\"nonce\":\"ab\",\"ak_pub\":\"YQ==\",\"quote\":\"YQ==\","                  \
  "\"signature\":\"YQ==\",\"pcrs\":{\"sha256\":{\"0\":\"00\"}}}"

typedef struct
{
  ServiceFixture *service;
  char *id;
} Fixture;

static void
set_up (Fixture *fixture, gconstpointer data)
{
  fixture->service = service_fixture_new ();
  fixture->service->with_imds = TRUE;
  service_fixture_start_well (fixture->service);
}

static void
tear_down (Fixture *fixture, gconstpointer data)
{
  service_fixture_free (fixture->service);
  g_free (fixture->id);
}

/* A VM; more is what else its arguments say, with ' for ". */
static void
create (Fixture *fixture, const char *wait_for, const char *more)
{
  g_autoptr (JsonNode) node
      = service_fixture_call_well (fixture->service, "create_vm", "{'name':'web','wait_for':'%s'%s%s}",
                                   wait_for, *more != '\0' ? "," : "", more);

  g_free (fixture->id);
  fixture->id = g_strdup (service_fixture_get (node, "id"));
}

static VmmMachine *
machine (Fixture *fixture)
{
  VmmMachine *found = vmm_service_lookup (fixture->service->service, fixture->id, NULL);

  g_assert_nonnull (found);
  return found;
}

static VmmMachineRecord *
record (Fixture *fixture)
{
  return (VmmMachineRecord *) vmm_machine_get_record (machine (fixture));
}

static char *
socket_of (Fixture *fixture, const char *id)
{
  return g_build_filename (fixture->service->state_dir, "vms", id, "metadata.sock", NULL);
}

static TestHttpClient *
connect_vm (Fixture *fixture)
{
  g_autofree char *path = socket_of (fixture, fixture->id);

  return test_http_client_new_unix (path);
}

static void
send_request (TestHttpClient *client, const char *method, const char *path, const char *headers,
              const char *body, gsize length)
{
  g_autoptr (GString) text = g_string_new (NULL);

  g_string_append_printf (text, "%s %s%s HTTP/1.1\r\nHost: 169.254.169.254\r\n%s", method,
                          VMM_IMDS_BASE, path, headers != NULL ? headers : "");
  if (body != NULL)
    g_string_append_printf (text, "Content-Length: %" G_GSIZE_FORMAT "\r\n", length);
  g_string_append (text, "\r\n");
  test_http_client_send (client, text->str, (gssize) text->len);
  if (body != NULL)
    test_http_client_send (client, body, (gssize) length);
}

static TestHttpAnswer *
request (Fixture *fixture, const char *method, const char *path, const char *headers,
         const char *body)
{
  g_autoptr (TestHttpClient) client = connect_vm (fixture);

  send_request (client, method, path, headers, body, body != NULL ? strlen (body) : 0);
  return test_http_client_read (client, strcmp (method, "HEAD") == 0);
}

static const char *
header (TestHttpAnswer *answer, const char *name)
{
  return g_hash_table_lookup (answer->headers, name);
}

static void
assert_answer (TestHttpAnswer *answer, guint status, const char *type, const char *body)
{
  g_autofree char *length = g_strdup_printf ("%" G_GSIZE_FORMAT, strlen (body));

  g_assert_cmpuint (answer->status, ==, status);
  g_assert_cmpstr (answer->body, ==, body);
  g_assert_cmpuint (answer->length, ==, strlen (body));
  g_assert_cmpstr (header (answer, "content-length"), ==, status == 204 ? NULL : length);
  g_assert_cmpstr (header (answer, "content-type"), ==, type);
}

static void
assert_text (Fixture *fixture, const char *path, const char *want)
{
  g_autoptr (TestHttpAnswer) answer = request (fixture, "GET", path, NULL, NULL);
  g_autoptr (TestHttpAnswer) head = request (fixture, "HEAD", path, NULL, NULL);

  g_test_message ("%s", path);
  assert_answer (answer, 200, "text/plain; charset=utf-8", want);
  g_assert_cmpuint (head->status, ==, 200);
  g_assert_cmpstr (header (head, "content-length"), ==, header (answer, "content-length"));
}

static void
assert_status (Fixture *fixture, const char *method, const char *path, const char *body,
               guint status, const char *want)
{
  g_autoptr (TestHttpAnswer) answer = request (fixture, method, path, NULL, body);

  g_test_message ("%s %s", method, path);
  assert_answer (answer, status, *want != '\0' ? "text/plain; charset=utf-8" : NULL, want);
}

/* Keys ---------------------------------------------------------------------------------------- */

static void
test_keys (Fixture *fixture, gconstpointer data)
{
  create (fixture, "none",
          "'hostname':'host-a','ssh_authorized_keys':['ssh-ed25519 AAAA me'],"
          "'metadata':{'role':'a\\nb','empty':''},'require_attestation':false");
  assert_text (fixture, "/hostname", "host-a");
  assert_text (fixture, "/region", g_get_host_name ());
  assert_text (fixture, "/zone", "default");
  assert_text (fixture, "/instance-id", fixture->id);
  assert_text (fixture, "/kubernetes-version", "1.32.0");
  assert_text (fixture, "/public-keys/", "0\n1");
  assert_text (fixture, "/public-keys/0", record (fixture)->ssh_public_key);
  assert_text (fixture, "/public-keys/1", "ssh-ed25519 AAAA me");
  assert_text (fixture, "/metadata/role", "a\nb");
  assert_text (fixture, "/metadata/empty", "");
  assert_text (fixture, "/metadata/%72ole?x=y", "a\nb");
}

static void
test_unset (Fixture *fixture, gconstpointer data)
{
  static const char *const paths[] = {
    "/kubernetes-version", "/public-keys/1", "/public-keys/x",  "/metadata/none", "/zone",
    "/nothing",            "",               "/",               "//hostname",     "/hostname/",
    "/../v1/hostname",     "/./hostname",    "/%2e%2e/hostname"
  };

  create (fixture, "none", "'require_attestation':false");
  g_clear_pointer (&record (fixture)->kubernetes_version, g_free);
  *record (fixture)->zone = '\0';
  for (guint i = 0; i < G_N_ELEMENTS (paths); i++)
    {
      g_autoptr (TestHttpAnswer) head = request (fixture, "HEAD", paths[i], NULL, NULL);

      assert_status (fixture, "GET", paths[i], NULL, 404, "");
      g_assert_cmpuint (head->status, ==, 404);
      g_assert_cmpstr (header (head, "content-length"), ==, "0");
    }
}

/* Each row is served: what a wrong method gets tells a path that is there from one that is not. */
static void
test_methods (Fixture *fixture, gconstpointer data)
{
  create (fixture, "none", "'require_attestation':false");
  for (guint i = 0; i < VMM_IMDS_N_KEYS; i++)
    {
      const VmmImdsRow *row = &vmm_imds_rows[i];
      gboolean is_get = strcmp (row->method, "GET") == 0;
      g_auto (GStrv) parts = g_strsplit (row->path, "*", -1);
      g_autofree char *path = g_strjoinv ("0", parts);
      const char *const wrong[] = { is_get ? "POST" : "GET", is_get ? "PATCH" : "HEAD", "DELETE",
                                    "OPTIONS" };

      for (guint k = 0; k < G_N_ELEMENTS (wrong); k++)
        {
          g_autoptr (TestHttpAnswer) answer = request (fixture, wrong[k], path, NULL, NULL);

          g_test_message ("%s %s", wrong[k], path);
          assert_answer (answer, 405, NULL, "");
          g_assert_cmpstr (header (answer, "allow"), ==, is_get ? "GET, HEAD" : "POST");
        }
    }
}

/* A body where none belongs is not even read. */
static void
test_no_body (Fixture *fixture, gconstpointer data)
{
  g_autoptr (TestHttpAnswer) answer = NULL;

  create (fixture, "none", "'require_attestation':false");
  answer = request (fixture, "GET", "/hostname", NULL, "x");
  g_assert_cmpuint (answer->status, ==, 413);
  g_assert_cmpstr (header (answer, "connection"), ==, "close");
}

/* Several requests on one connection, also when they come at once. */
static void
test_pipeline (Fixture *fixture, gconstpointer data)
{
  g_autoptr (TestHttpClient) client = NULL;

  create (fixture, "none", "'require_attestation':false");
  client = connect_vm (fixture);
  for (guint i = 0; i < 20; i++)
    send_request (client, "GET", i % 2 == 0 ? "/hostname" : "/nothing", NULL, NULL, 0);
  for (guint i = 0; i < 20; i++)
    {
      g_autoptr (TestHttpAnswer) answer = test_http_client_read (client, FALSE);

      g_assert_cmpuint (answer->status, ==, i % 2 == 0 ? 200 : 404);
      g_assert_cmpstr (answer->body, ==, i % 2 == 0 ? "web" : "");
      g_assert_null (header (answer, "connection"));
    }
}

/* The socket says who asks, and nothing in the request. */
static void
test_identity (Fixture *fixture, gconstpointer data)
{
  g_autofree char *other = NULL;
  g_autoptr (TestHttpAnswer) answer = NULL;
  g_autofree char *headers = NULL;

  other = service_fixture_create_vm (fixture->service, "other", "none");
  create (fixture, "none", "'require_attestation':false");
  headers = g_strdup_printf ("X-Forwarded-For: %s\r\n",
                             vmm_machine_get_record (vmm_service_lookup (
                                                         fixture->service->service, other, NULL))
                                 ->ip);
  answer = request (fixture, "GET", "/instance-id", headers, NULL);
  assert_answer (answer, 200, "text/plain; charset=utf-8", fixture->id);
}

/* User data ----------------------------------------------------------------------------------- */

static void
test_user_data (Fixture *fixture, gconstpointer data)
{
  g_autoptr (TestHttpAnswer) gated = NULL;

  test_peer_behaviour.ready_ms = TEST_PEER_NEVER;
  create (fixture, "installed", "'user_data':'{\\\"a\\\":1}\\n','require_attestation':true");
  service_fixture_await_state (fixture->service, fixture->id, VMM_MACHINE_BOOTING);
  gated = request (fixture, "GET", "/user-data", NULL, NULL);
  assert_answer (gated, 503, "text/plain; charset=utf-8", GATED);
  g_assert_cmpstr (header (gated, "retry-after"), ==, "2");
  record (fixture)->user_data_released = TRUE;
  assert_text (fixture, "/user-data", "{\"a\":1}\n");
  record (fixture)->user_data_released = FALSE;
  assert_status (fixture, "GET", "/user-data", NULL, 503, GATED);
}

static void
test_no_user_data (Fixture *fixture, gconstpointer data)
{
  create (fixture, "none", "'require_attestation':true");
  assert_status (fixture, "GET", "/user-data", NULL, 204, "");
  record (fixture)->user_data_released = TRUE;
  assert_status (fixture, "GET", "/user-data", NULL, 204, "");
}

/* A guest that broke out of its QEMU makes files in the folder; they are not sent to it. */
static void
test_planted_user_data (Fixture *fixture, gconstpointer data)
{
  g_autofree char *path = NULL;
  g_autofree char *secret = g_build_filename (fixture->service->state_dir, "secret", NULL);

  create (fixture, "none", "'require_attestation':false");
  record (fixture)->user_data_released = TRUE;
  service_fixture_write (fixture->service, "secret", "of the host");
  path = vmm_machine_dup_path (machine (fixture), "user-data");
  g_assert_no_errno (symlink (secret, path));
  assert_status (fixture, "GET", "/user-data", NULL, 204, "");
  g_assert_no_errno (unlink (path));
  g_assert_no_errno (link (secret, path));
  assert_status (fixture, "GET", "/user-data", NULL, 204, "");
  g_assert_no_errno (unlink (path));
  g_assert_no_errno (mkfifo (path, 0600));
  assert_status (fixture, "GET", "/user-data", NULL, 204, "");
}

/* Released without attestation, and gated again at each start before anything of it runs. */
static void
test_release_over_boots (Fixture *fixture, gconstpointer data)
{
  create (fixture, "ready", "'user_data':'x','require_attestation':false");
  assert_text (fixture, "/user-data", "x");
  json_node_unref (
      service_fixture_call_well (fixture->service, "stop_vm", "{'id':'%s'}", fixture->id));
  test_fakes_hang ("network.attach");
  g_assert_true (vmm_machine_handle_event (machine (fixture), VMM_MACHINE_EVENT_START_REQUESTED,
                                           NULL, NULL));
  while (test_fakes_get_n_hanging () == 0)
    g_main_context_iteration (NULL, TRUE);
  assert_status (fixture, "GET", "/user-data", NULL, 503, GATED);
  test_fakes_release ("network.attach");
  service_fixture_await_state (fixture->service, fixture->id, VMM_MACHINE_READY);
  assert_text (fixture, "/user-data", "x");
}

/* Attestation --------------------------------------------------------------------------------- */

static void
test_nonce (Fixture *fixture, gconstpointer data)
{
  g_autoptr (TestHttpAnswer) first = NULL;
  g_autoptr (TestHttpAnswer) second = NULL;
  g_autoptr (TestHttpAnswer) head = NULL;

  test_peer_behaviour.ready_ms = TEST_PEER_NEVER;
  create (fixture, "installed", "'require_attestation':true");
  service_fixture_await_state (fixture->service, fixture->id, VMM_MACHINE_BOOTING);
  head = request (fixture, "HEAD", "/attest/nonce", NULL, NULL);
  g_assert_cmpuint (head->status, ==, 200);
  g_assert_cmpstr (header (head, "content-length"), ==, "64");
  g_assert_cmpint (record (fixture)->nonce_issued_at, ==, 0);
  first = request (fixture, "GET", "/attest/nonce", NULL, NULL);
  g_assert_cmpuint (first->status, ==, 200);
  g_assert_cmpuint (strspn (first->body, "0123456789abcdef"), ==, 64);
  g_assert_cmpuint (first->length, ==, 64);
  g_assert_cmpint (record (fixture)->nonce_issued_at, !=, 0);
  g_assert_cmpint (record (fixture)->state, ==, VMM_MACHINE_ATTESTING);
  second = request (fixture, "GET", "/attest/nonce", NULL, NULL);
  g_assert_cmpstr (first->body, !=, second->body);
}

static void
test_no_attestor (Fixture *fixture, gconstpointer data)
{
  create (fixture, "none", "'require_attestation':false");
  g_clear_object (&fixture->service->context->attestor);
  assert_status (fixture, "GET", "/attest/nonce", NULL, 500, "attestation unavailable");
  assert_status (fixture, "POST", "/attest/quote", QUOTE, 500, "quote not processed");
}

static void
test_nonce_fails (Fixture *fixture, gconstpointer data)
{
  create (fixture, "none", "'require_attestation':false");
  test_fakes_fail ("attestor.nonce", VMM_ERROR_INTERNAL, "no randomness");
  assert_status (fixture, "GET", "/attest/nonce", NULL, 500, "attestation unavailable");
}

/* No row of the evidence's form ever reaches the attestor. */
static void
test_malformed_quotes (Fixture *fixture, gconstpointer data)
{
  static const struct
  {
    const char *body;
    const char *text;
  } rows[] = {
    { "", "malformed quote: *" },
    { "x", "malformed quote: *" },
    { "[]", "malformed quote: *" },
    { "{'stage':1}", "malformed quote: *stage*" },
    { "{'stage':'initrd','nonce':[]}", "malformed quote: *nonce*" },
    { "{'stage':'initrd','nonce':'a','pcrs':7}", "malformed quote: *pcrs*" },
    { "{}", "invalid request: stage must be \"initrd\" or \"ready\"" },
    { "{'stage':'boot'}", "invalid request: stage must be \"initrd\" or \"ready\"" },
    { "{'stage':'ready'}", "invalid request: nonce is required" },
    { "{'stage':'ready','nonce':'a'}", "invalid request: ak_pub, quote and signature are required" },
    { "{'stage':'ready','nonce':'a','ak_pub':'a','quote':'','signature':'a'}",
      "invalid request: ak_pub, quote and signature are required" },
    { "{'stage':'ready','nonce':'a','ak_pub':'a','quote':'a','signature':'a'}",
      "invalid request: pcrs is required" },
    { "{'stage':'ready','nonce':'a','ak_pub':'a','quote':'a','signature':'a','pcrs':{}}",
      "invalid request: pcrs is required" },
  };

  create (fixture, "none", "'require_attestation':false");
  for (guint i = 0; i < G_N_ELEMENTS (rows); i++)
    {
      g_auto (GStrv) parts = g_strsplit (rows[i].body, "'", -1);
      g_autofree char *body = g_strjoinv ("\"", parts);
      g_autoptr (TestHttpAnswer) answer = request (fixture, "POST", "/attest/quote", NULL, body);

      g_test_message ("%s: %s", body, answer->body);
      g_assert_cmpuint (answer->status, ==, 400);
      g_assert_true (g_pattern_match_simple (rows[i].text, answer->body));
    }
  g_assert_cmpuint (test_fakes_count ("attestor.judge"), ==, 0);
}

static void
test_large_quote (Fixture *fixture, gconstpointer data)
{
  g_autoptr (TestHttpClient) client = NULL;
  g_autoptr (TestHttpAnswer) answer = NULL;

  create (fixture, "none", "'require_attestation':false");
  client = connect_vm (fixture);
  send_request (client, "POST", "/attest/quote", "Content-Length: 8388609\r\n", NULL, 0);
  answer = test_http_client_read (client, FALSE);
  g_assert_cmpuint (answer->status, ==, 400);
  g_assert_true (g_str_has_prefix (answer->body, "malformed quote: "));
}

static void
to_booting (Fixture *fixture, const char *more)
{
  g_autofree char *all = g_strconcat ("'require_attestation':true,'user_data':'x'", more, NULL);

  test_peer_behaviour.ready_ms = TEST_PEER_NEVER;
  create (fixture, "installed", all);
  service_fixture_await_state (fixture->service, fixture->id, VMM_MACHINE_BOOTING);
}

static void
test_verdicts (Fixture *fixture, gconstpointer data)
{
  g_autoptr (VmmVerdict) rejected = vmm_verdict_new ("initrd", FALSE, "PCR 11 is off");
  g_autoptr (VmmVerdict) silent = vmm_verdict_new ("ready", TRUE, NULL);
  g_autoptr (TestHttpAnswer) no = NULL;
  g_autoptr (TestHttpAnswer) ready = NULL;
  g_autoptr (TestHttpAnswer) yes = NULL;

  to_booting (fixture, "");
  test_fakes_set_verdict (rejected);
  no = request (fixture, "POST", "/attest/quote", NULL, QUOTE);
  assert_answer (no, 403, "application/json",
                 "{\"stage\":\"initrd\",\"verified\":false,\"user_data_released\":false,"
                 "\"message\":\"PCR 11 is off\"}");
  assert_status (fixture, "GET", "/user-data", NULL, 503, GATED);
  test_fakes_set_verdict (silent);
  ready = request (fixture, "POST", "/attest/quote", NULL, QUOTE);
  assert_answer (ready, 200, "application/json",
                 "{\"stage\":\"ready\",\"verified\":true,\"user_data_released\":false}");
  assert_status (fixture, "GET", "/user-data", NULL, 503, GATED);
  test_fakes_set_verdict (NULL);
  yes = request (fixture, "POST", "/attest/quote", NULL, QUOTE);
  assert_answer (yes, 200, "application/json",
                 "{\"stage\":\"initrd\",\"verified\":true,\"user_data_released\":true,"
                 "\"message\":\"verified by the fake\"}");
  assert_text (fixture, "/user-data", "x");
  g_assert_true (record (fixture)->initrd_quote.present);
  g_assert_true (record (fixture)->ready_quote.present);
}

static void
test_not_processed (Fixture *fixture, gconstpointer data)
{
  static const struct
  {
    VmmError code;
    guint status;
  } rows[] = { { VMM_ERROR_INVALID_REQUEST, 400 },
               { VMM_ERROR_NOT_FOUND, 404 },
               { VMM_ERROR_CONFLICT, 409 },
               { VMM_ERROR_UNSUPPORTED, 500 },
               { VMM_ERROR_TIMEOUT, 500 },
               { VMM_ERROR_INTERNAL, 500 } };

  to_booting (fixture, "");
  for (guint i = 0; i < G_N_ELEMENTS (rows); i++)
    {
      test_fakes_fail ("attestor.judge", rows[i].code, "it broke");
      assert_status (fixture, "POST", "/attest/quote", QUOTE, rows[i].status,
                     "quote not processed");
    }
  g_assert_false (record (fixture)->initrd_quote.present);
}

static gboolean
hangs (gpointer user_data)
{
  return test_fakes_get_n_hanging () > 0;
}

/* A verdict that comes after a reset is of a boot that is over. */
static void
test_verdict_of_earlier_boot (Fixture *fixture, gconstpointer data)
{
  g_autoptr (TestHttpClient) client = NULL;
  g_autoptr (TestHttpAnswer) late = NULL;

  to_booting (fixture, "");
  test_fakes_hang ("attestor.judge");
  client = connect_vm (fixture);
  send_request (client, "POST", "/attest/quote", NULL, QUOTE, strlen (QUOTE));
  test_await_condition (hangs, NULL);
  g_assert_true (vmm_machine_handle_event (machine (fixture), VMM_MACHINE_EVENT_GUEST_RESET, NULL,
                                           NULL));
  test_fakes_release ("attestor.judge");
  late = test_http_client_read (client, FALSE);
  assert_answer (late, 409, "text/plain; charset=utf-8", "quote not processed");
  g_assert_false (record (fixture)->user_data_released);
  g_assert_false (record (fixture)->initrd_quote.present);
  assert_status (fixture, "GET", "/user-data", NULL, 503, GATED);
}

/* The guest that asked has left; its verdict counts all the same. */
static void
test_verdict_without_client (Fixture *fixture, gconstpointer data)
{
  TestHttpClient *client;

  to_booting (fixture, "");
  test_fakes_hang ("attestor.judge");
  client = connect_vm (fixture);
  send_request (client, "POST", "/attest/quote", NULL, QUOTE, strlen (QUOTE));
  test_await_condition (hangs, NULL);
  test_http_client_free (client);
  test_drain ();
  test_fakes_release ("attestor.judge");
  test_drain ();
  g_assert_true (record (fixture)->user_data_released);
  assert_text (fixture, "/user-data", "x");
}

static void
test_quotes_at_once (Fixture *fixture, gconstpointer data)
{
  TestHttpClient *clients[VMM_IMDS_MAX_JUDGEMENTS];
  g_autoptr (TestHttpAnswer) busy = NULL;

  to_booting (fixture, "");
  test_fakes_hang ("attestor.judge");
  for (guint i = 0; i < G_N_ELEMENTS (clients); i++)
    {
      clients[i] = connect_vm (fixture);
      send_request (clients[i], "POST", "/attest/quote", NULL, QUOTE, strlen (QUOTE));
      while (test_fakes_get_n_hanging () <= i)
        g_main_context_iteration (NULL, TRUE);
    }
  busy = request (fixture, "POST", "/attest/quote", NULL, QUOTE);
  g_assert_cmpuint (busy->status, ==, 503);
  test_fakes_release ("attestor.judge");
  for (guint i = 0; i < G_N_ELEMENTS (clients); i++)
    {
      g_autoptr (TestHttpAnswer) answer = test_http_client_read (clients[i], FALSE);

      g_assert_cmpuint (answer->status, ==, 200);
      test_http_client_free (clients[i]);
    }
}

/* Reports ------------------------------------------------------------------------------------- */

static char *
read_report (Fixture *fixture)
{
  g_autofree char *path = vmm_machine_dup_path (machine (fixture), "report.json");
  struct stat status;
  char *content = NULL;

  if (stat (path, &status) != 0)
    return NULL;
  g_assert_cmpuint (status.st_mode & 07777, ==, 0600);
  g_assert_true (g_file_get_contents (path, &content, NULL, NULL));
  return content;
}

static gboolean
is_exposed (Fixture *fixture, const char *text)
{
  g_autoptr (GBytes) bytes
      = vmm_metrics_expose (vmm_service_get_metrics (fixture->service->service));
  gsize size;
  const char *all = g_bytes_get_data (bytes, &size);

  return g_strstr_len (all, (gssize) size, text) != NULL;
}

static void
test_report (Fixture *fixture, gconstpointer data)
{
  static const char first[] = "{\"mediaType\":\"application/vnd.io.systemd.report\",\"metrics\":"
                              "[{\"name\":\"x\",\"value\":1}]}";
  static const char odd[] = "{\"metrics\":7}\n";
  g_autofree char *after_first = NULL;
  g_autofree char *after_bad = NULL;
  g_autofree char *after_odd = NULL;

  create (fixture, "none", "'require_attestation':false");
  assert_status (fixture, "POST", "/report", first, 204, "");
  after_first = read_report (fixture);
  g_assert_cmpstr (after_first, ==, first);
  g_assert_true (is_exposed (fixture, "\nvm_guest_x{vm="));
  assert_status (fixture, "POST", "/report", "{\"metrics\":[}", 400, "report is not valid JSON");
  assert_status (fixture, "POST", "/report", "", 400, "report is not valid JSON");
  after_bad = read_report (fixture);
  g_assert_cmpstr (after_bad, ==, first);
  /* The metrics keep what they had. */
  assert_status (fixture, "POST", "/report", odd, 204, "");
  after_odd = read_report (fixture);
  g_assert_cmpstr (after_odd, ==, odd);
  g_assert_true (is_exposed (fixture, "\nvm_guest_x{vm="));
}

static void
test_large_report (Fixture *fixture, gconstpointer data)
{
  const gsize limit = 8 * 1024 * 1024;
  g_autofree char *body = g_malloc (limit + 1);
  g_autoptr (TestHttpClient) client = NULL;
  g_autoptr (TestHttpClient) chunked = NULL;
  g_autoptr (TestHttpAnswer) stored = NULL;
  g_autoptr (TestHttpAnswer) refused = NULL;
  g_autofree char *kept = NULL;

  memset (body, ' ', limit);
  memcpy (body, "{}", 2);
  body[limit] = '\0';
  vmm_imds_set_rate (fixture->service->imds, 1000, 1);
  create (fixture, "none", "'require_attestation':false");
  client = connect_vm (fixture);
  send_request (client, "POST", "/report", NULL, body, limit);
  stored = test_http_client_read (client, FALSE);
  g_assert_cmpuint (stored->status, ==, 204);
  kept = read_report (fixture);
  g_assert_cmpuint (strlen (kept), ==, limit);

  chunked = connect_vm (fixture);
  send_request (chunked, "POST", "/report", "Transfer-Encoding: chunked\r\n", NULL, 0);
  test_http_client_send (chunked, "800001\r\n", -1);
  refused = test_http_client_read (chunked, FALSE);
  assert_answer (refused, 400, "text/plain; charset=utf-8",
                 "report not read: http: request body too large");
}

static void
test_report_not_stored (Fixture *fixture, gconstpointer data)
{
  g_autofree char *path = NULL;

  create (fixture, "none", "'require_attestation':false");
  path = vmm_machine_dup_path (machine (fixture), "report.json");
  g_assert_no_errno (g_mkdir (path, 0700));
  assert_status (fixture, "POST", "/report", "{}", 500, "report not stored");
}

/* Artifacts ----------------------------------------------------------------------------------- */

static void
test_artifacts (Fixture *fixture, gconstpointer data)
{
  static const char *const absent[] = {
    "/sysupdate/base/none",          "/sysupdate/base/folder",     "/sysupdate/base/folder/x",
    "/sysupdate/other/file",         "/sysupdate/base/..%2f..%2fdemo_1.0.0.efi",
    "/sysupdate/%2e%2e/demo_1.0.0.efi", "/sysupdate/base/outside", "/sysupdate/base/fifo",
    "/sysupdate/kubernetes/kubernetes_1.32.0.raw",
  };
  g_autofree char *base = g_build_filename (fixture->service->state_dir, "images/sysupdate/base",
                                            NULL);
  g_autofree char *fifo = g_build_filename (base, "fifo", NULL);
  g_autofree char *outside = g_build_filename (base, "outside", NULL);
  g_autoptr (TestHttpAnswer) file = NULL;
  g_autoptr (TestHttpAnswer) empty = NULL;

  service_fixture_write (fixture->service, "images/sysupdate/base/demo_1.1.0.efi", "0123456789");
  service_fixture_write (fixture->service, "images/sysupdate/base/empty", "");
  service_fixture_write (fixture->service, "images/sysupdate/base/folder/x", "x");
  service_fixture_write (fixture->service, "images/sysupdate/other/file", "x");
  g_assert_no_errno (mkfifo (fifo, 0600));
  g_assert_no_errno (symlink ("../../demo_1.0.0.efi", outside));
  create (fixture, "none", "'require_attestation':false");
  for (guint i = 0; i < G_N_ELEMENTS (absent); i++)
    assert_status (fixture, "GET", absent[i], NULL, 404, "");
  file = request (fixture, "GET", "/sysupdate/base/demo_1.1.0.efi", NULL, NULL);
  assert_answer (file, 200, "application/octet-stream", "0123456789");
  empty = request (fixture, "GET", "/sysupdate/base/empty", NULL, NULL);
  assert_answer (empty, 200, "application/octet-stream", "");
}

static void
test_artifact_ranges (Fixture *fixture, gconstpointer data)
{
  static const struct
  {
    const char *headers;
    guint status;
    const char *body;
    const char *content_range;
  } rows[] = {
    { "Range: bytes=2-4\r\n", 206, "234", "bytes 2-4/10" },
    { "Range: bytes=-1\r\n", 206, "9", "bytes 9-9/10" },
    { "Range: bytes=10-\r\n", 416, "", "bytes */10" },
    { "Range: bytes=0-1,4-5\r\n", 200, "0123456789", NULL },
    { "Range: bytes=2-4\r\nIf-Range: \"x\"\r\n", 200, "0123456789", NULL },
  };
  g_autoptr (TestHttpAnswer) head = NULL;

  service_fixture_write (fixture->service, "images/sysupdate/base/file", "0123456789");
  create (fixture, "none", "'require_attestation':false");
  for (guint i = 0; i < G_N_ELEMENTS (rows); i++)
    {
      g_autoptr (TestHttpAnswer) answer
          = request (fixture, "GET", "/sysupdate/base/file", rows[i].headers, NULL);

      g_test_message ("%s", rows[i].headers);
      assert_answer (answer, rows[i].status,
                     rows[i].status == 416 ? NULL : "application/octet-stream", rows[i].body);
      g_assert_cmpstr (header (answer, "content-range"), ==, rows[i].content_range);
    }
  head = request (fixture, "HEAD", "/sysupdate/base/file", "Range: bytes=2-4\r\n", NULL);
  g_assert_cmpuint (head->status, ==, 200);
  g_assert_cmpstr (header (head, "content-length"), ==, "10");
  g_assert_cmpstr (header (head, "accept-ranges"), ==, "bytes");
}

/* Links to the folder and inside of it are fine; it may also come later than the daemon. */
static void
test_linked_artifacts (Fixture *fixture, gconstpointer data)
{
  g_autofree char *folder = g_build_filename (fixture->service->state_dir, "images/sysupdate", NULL);
  g_autofree char *moved = g_build_filename (fixture->service->state_dir, "elsewhere", NULL);
  g_autofree char *inner = g_build_filename (moved, "base/newest", NULL);
  g_autoptr (TestHttpAnswer) answer = NULL;

  service_fixture_write (fixture->service, "images/sysupdate/base/file", "content");
  create (fixture, "none", "'require_attestation':false");
  g_assert_no_errno (g_rename (folder, moved));
  assert_status (fixture, "GET", "/sysupdate/base/file", NULL, 404, "");
  g_assert_no_errno (symlink (moved, folder));
  g_assert_no_errno (symlink ("file", inner));
  answer = request (fixture, "GET", "/sysupdate/base/newest", NULL, NULL);
  assert_answer (answer, 200, "application/octet-stream", "content");
}

static void
test_unreadable_artifact (Fixture *fixture, gconstpointer data)
{
  g_autofree char *path
      = g_build_filename (fixture->service->state_dir, "images/sysupdate/base/file", NULL);

  if (geteuid () == 0)
    {
      g_test_skip ("root reads everything");
      return;
    }
  service_fixture_write (fixture->service, "images/sysupdate/base/file", "content");
  g_assert_no_errno (g_chmod (path, 0));
  create (fixture, "none", "'require_attestation':false");
  assert_status (fixture, "GET", "/sysupdate/base/file", NULL, 500, "artifact unavailable");
}

/* A file that becomes shorter is no complete answer: the connection ends before its length. */
static void
test_shrinking_artifact (Fixture *fixture, gconstpointer data)
{
  const gsize size = 16 * 1024 * 1024;
  g_autofree char *path
      = g_build_filename (fixture->service->state_dir, "images/sysupdate/base/file", NULL);
  g_autoptr (TestHttpClient) client = NULL;
  g_autofree char *text = NULL;

  service_fixture_write (fixture->service, "images/sysupdate/base/file", "");
  g_assert_no_errno (truncate (path, (off_t) size));
  create (fixture, "none", "'require_attestation':false");
  client = connect_vm (fixture);
  send_request (client, "GET", "/sysupdate/base/file", NULL, NULL, 0);
  while (g_socket_get_available_bytes (test_http_client_get_socket (client)) <= 0)
    g_main_context_iteration (NULL, TRUE);
  g_assert_no_errno (truncate (path, 100));
  text = test_http_client_read_to_end (client);
  g_assert_true (g_str_has_prefix (text, "HTTP/1.1 200 "));
}

static void
test_transfers_at_once (Fixture *fixture, gconstpointer data)
{
  TestHttpClient *clients[VMM_IMDS_MAX_TRANSFERS];
  g_autofree char *path
      = g_build_filename (fixture->service->state_dir, "images/sysupdate/base/file", NULL);
  g_autoptr (TestHttpAnswer) busy = NULL;
  g_autoptr (TestHttpAnswer) other = NULL;

  service_fixture_write (fixture->service, "images/sysupdate/base/file", "");
  g_assert_no_errno (truncate (path, 64 * 1024 * 1024));
  create (fixture, "none", "'require_attestation':false");
  for (guint i = 0; i < G_N_ELEMENTS (clients); i++)
    {
      g_autofree char *vm = socket_of (fixture, fixture->id);
      g_autoptr (GSocketAddress) address = NULL;

      clients[i] = test_http_client_new_unix (vm);
      /* Begins and does not read on. */
      send_request (clients[i], "GET", "/sysupdate/base/file", NULL, NULL, 0);
      test_http_client_pause (clients[i]);
      while (g_socket_get_available_bytes (test_http_client_get_socket (clients[i])) <= 0)
        g_main_context_iteration (NULL, TRUE);
    }
  busy = request (fixture, "GET", "/sysupdate/base/file", NULL, NULL);
  assert_answer (busy, 503, "text/plain; charset=utf-8", "too many requests at once");
  other = request (fixture, "GET", "/hostname", NULL, NULL);
  g_assert_cmpuint (other->status, ==, 200);
  test_http_client_free (clients[0]);
  test_drain ();
  while (TRUE)
    {
      g_autoptr (TestHttpAnswer) again
          = request (fixture, "GET", "/sysupdate/base/file", "Range: bytes=0-0\r\n", NULL);

      if (again->status == 206)
        break;
      g_assert_cmpuint (again->status, ==, 503);
    }
  for (guint i = 1; i < G_N_ELEMENTS (clients); i++)
    test_http_client_free (clients[i]);
}

/* Limits -------------------------------------------------------------------------------------- */

/* A connection and five requests, then no more for a long while; another VM has its own. */
static void
test_rate (Fixture *fixture, gconstpointer data)
{
  g_autoptr (TestHttpClient) client = NULL;
  g_autofree char *other = NULL;

  vmm_imds_set_rate (fixture->service->imds, 6, 0.0001);
  other = service_fixture_create_vm (fixture->service, "other", "none");
  create (fixture, "none", "'require_attestation':false");
  client = connect_vm (fixture);
  for (guint i = 0; i < 8; i++)
    {
      g_autoptr (TestHttpAnswer) answer = NULL;

      send_request (client, "GET", "/hostname", NULL, NULL, 0);
      answer = test_http_client_read (client, FALSE);
      if (i < 5)
        {
          g_assert_cmpuint (answer->status, ==, 200);
          continue;
        }
      assert_answer (answer, 503, "text/plain; charset=utf-8", "too many requests");
      g_assert_nonnull (header (answer, "retry-after"));
    }
  g_free (fixture->id);
  fixture->id = g_steal_pointer (&other);
  assert_text (fixture, "/hostname", "other");
}

/* What a body costs is paid back before the next request. */
static void
test_rate_of_bodies (Fixture *fixture, gconstpointer data)
{
  const gsize size = 6 * VMM_IMDS_BODY_PIECE;
  g_autofree char *body = g_malloc (size);
  g_autoptr (TestHttpClient) client = NULL;
  g_autoptr (TestHttpAnswer) first = NULL;
  g_autoptr (TestHttpAnswer) second = NULL;

  memset (body, ' ', size);
  memcpy (body, "{}", 2);
  vmm_imds_set_rate (fixture->service->imds, 6, 0.0001);
  create (fixture, "none", "'require_attestation':false");
  client = connect_vm (fixture);
  send_request (client, "POST", "/report", NULL, body, size);
  first = test_http_client_read (client, FALSE);
  g_assert_cmpuint (first->status, ==, 204);
  send_request (client, "GET", "/hostname", NULL, NULL, 0);
  second = test_http_client_read (client, FALSE);
  g_assert_cmpuint (second->status, ==, 503);
}

/* One VM takes all its connections and more; another one is served, and the first again when they
 * end. */
static void
test_connections (Fixture *fixture, gconstpointer data)
{
  TestHttpClient *clients[VMM_IMDS_MAX_CONNECTIONS + 10];
  g_autofree char *greedy = service_fixture_create_vm (fixture->service, "greedy", "none");
  g_autofree char *path = socket_of (fixture, greedy);
  g_autoptr (TestHttpAnswer) last = NULL;
  const guint n = G_N_ELEMENTS (clients);

  create (fixture, "none", "'require_attestation':false");
  for (guint i = 0; i < n; i++)
    {
      clients[i] = test_http_client_new_unix (path);
      test_http_client_send (clients[i], "GET " VMM_IMDS_BASE "/hostname HTTP/1.1\r\n", -1);
    }
  assert_text (fixture, "/hostname", "web");
  /* What had come first is complete now; the others wait to be accepted. */
  for (guint i = 0; i < n; i++)
    test_http_client_send (clients[i], "Host: x\r\nConnection: close\r\n\r\n", -1);
  for (guint i = 0; i < n; i++)
    {
      g_autoptr (TestHttpAnswer) answer = test_http_client_read (clients[i], FALSE);

      g_assert_cmpstr (answer->body, ==, "greedy");
      test_http_client_free (clients[i]);
    }
}

/* Slow heads, slow bodies and clients that do not read are given up. */
static void
test_slow (Fixture *fixture, gconstpointer data)
{
  const VmmHttpTimes times = { 100, 100, 100, 1000, 100 };
  g_autofree char *path
      = g_build_filename (fixture->service->state_dir, "images/sysupdate/base/file", NULL);
  g_autoptr (TestHttpClient) head = NULL;
  g_autoptr (TestHttpClient) body = NULL;
  g_autoptr (TestHttpClient) idle = NULL;
  g_autoptr (TestHttpClient) deaf = NULL;
  g_autoptr (TestHttpAnswer) answer = NULL;
  g_autofree char *said = NULL;
  g_autofree char *read = NULL;

  vmm_imds_set_times (fixture->service->imds, &times);
  service_fixture_write (fixture->service, "images/sysupdate/base/file", "");
  g_assert_no_errno (truncate (path, 64 * 1024 * 1024));
  create (fixture, "none", "'require_attestation':false");
  deaf = connect_vm (fixture);
  send_request (deaf, "GET", "/sysupdate/base/file", NULL, NULL, 0);
  test_http_client_pause (deaf);
  head = connect_vm (fixture);
  test_http_client_send (head, "GET ", -1);
  answer = test_http_client_read (head, FALSE);
  g_assert_cmpuint (answer->status, ==, 408);
  body = connect_vm (fixture);
  send_request (body, "POST", "/report", "Content-Length: 10\r\n", NULL, 0);
  said = test_http_client_read_to_end (body);
  g_assert_true (g_str_has_prefix (said, "HTTP/1.1 408 "));
  idle = connect_vm (fixture);
  read = test_http_client_read_to_end (idle);
  g_assert_cmpstr (read, ==, "");
  while (!test_http_client_has_hung_up (deaf))
    g_main_context_iteration (NULL, TRUE);
}

/* Life ---------------------------------------------------------------------------------------- */

static void
test_deleting (Fixture *fixture, gconstpointer data)
{
  g_autoptr (TestHttpClient) client = NULL;
  g_autoptr (TestHttpAnswer) known = NULL;
  g_autoptr (TestHttpAnswer) unknown = NULL;
  g_autofree char *path = NULL;
  TestAwait await = TEST_AWAIT_INIT;
  g_autoptr (GAsyncResult) result = NULL;

  create (fixture, "ready", "'require_attestation':false");
  path = socket_of (fixture, fixture->id);
  test_fakes_hang ("storage.remove");
  client = connect_vm (fixture);
  vmm_machine_delete_async (machine (fixture), NULL, test_await_cb, &await);
  test_await_condition (hangs, NULL);
  g_assert_cmpint (record (fixture)->state, ==, VMM_MACHINE_DELETING);
  known = request (fixture, "GET", "/hostname", NULL, NULL);
  assert_answer (known, 403, "text/plain; charset=utf-8", FORBIDDEN);
  unknown = request (fixture, "POST", "/nothing", NULL, NULL);
  assert_answer (unknown, 403, "text/plain; charset=utf-8", FORBIDDEN);
  test_fakes_release ("storage.remove");
  result = test_await (&await);
  g_assert_false (g_file_test (path, G_FILE_TEST_EXISTS));
  g_free (test_http_client_read_to_end (client));
}

static void
test_states (Fixture *fixture, gconstpointer data)
{
  create (fixture, "none", "'require_attestation':false");
  assert_text (fixture, "/hostname", "web");
  service_fixture_await_state (fixture->service, fixture->id, VMM_MACHINE_READY);
  assert_text (fixture, "/hostname", "web");
  json_node_unref (
      service_fixture_call_well (fixture->service, "stop_vm", "{'id':'%s'}", fixture->id));
  assert_text (fixture, "/hostname", "web");
}

static void
test_restart (Fixture *fixture, gconstpointer data)
{
  g_autofree char *path = NULL;
  g_autoptr (TestHttpClient) client = NULL;

  test_fakes.outlives_daemon = TRUE;
  create (fixture, "ready", "'user_data':'x','require_attestation':false");
  path = socket_of (fixture, fixture->id);
  g_assert_cmpstr (test_fakes_get_metadata_path (fixture->id), ==, path);
  service_fixture_close (fixture->service, TRUE);
  test_fakes_daemon_died ();
  g_assert_false (g_file_test (path, G_FILE_TEST_EXISTS));
  /* Whatever is left in its place. */
  g_assert_no_errno (g_mkdir (path, 0700));
  service_fixture_start_well (fixture->service);
  assert_text (fixture, "/hostname", "web");
  assert_text (fixture, "/user-data", "x");
}

/* A guest that would have no metadata does not boot. */
static void
test_cannot_listen (Fixture *fixture, gconstpointer data)
{
  g_autofree char *path = NULL;
  g_autofree char *inside = NULL;
  g_autoptr (JsonNode) node = NULL;
  g_autoptr (GError) error = NULL;

  create (fixture, "ready", "'require_attestation':false");
  path = socket_of (fixture, fixture->id);
  service_fixture_close (fixture->service, FALSE);
  inside = g_build_filename ("vms", fixture->id, "metadata.sock/x", NULL);
  service_fixture_write (fixture->service, inside, "x");
  service_fixture_start_well (fixture->service);
  node = service_fixture_call (fixture->service, "start_vm", &error, "{'id':'%s'}", fixture->id);
  g_assert_null (node);
  g_assert_nonnull (strstr (error->message, "metadata service: "));
}

static void
test_socket_mode (Fixture *fixture, gconstpointer data)
{
  g_autofree char *path = NULL;
  struct stat status;

  create (fixture, "none", "'require_attestation':false");
  path = socket_of (fixture, fixture->id);
  g_assert_no_errno (stat (path, &status));
  g_assert_true (S_ISSOCK (status.st_mode));
  g_assert_cmpuint (status.st_mode & 0777, ==, 0600);
}

/* The daemon's end: what is being answered is answered, the rest goes at once. */
static void
test_close (Fixture *fixture, gconstpointer data)
{
  g_autoptr (TestHttpClient) busy = NULL;
  g_autoptr (TestHttpClient) idle = NULL;
  g_autoptr (TestHttpAnswer) answer = NULL;
  g_autoptr (GAsyncResult) result = NULL;
  TestAwait await = TEST_AWAIT_INIT;

  to_booting (fixture, "");
  test_fakes_hang ("attestor.judge");
  idle = connect_vm (fixture);
  busy = connect_vm (fixture);
  send_request (busy, "POST", "/attest/quote", NULL, QUOTE, strlen (QUOTE));
  test_await_condition (hangs, NULL);
  vmm_imds_close_async (fixture->service->imds, 60 * 1000, test_await_cb, &await);
  g_free (test_http_client_read_to_end (idle));
  g_assert_null (await.result);
  test_fakes_release ("attestor.judge");
  answer = test_http_client_read (busy, FALSE);
  g_assert_cmpuint (answer->status, ==, 200);
  g_assert_cmpstr (header (answer, "connection"), ==, "close");
  g_free (test_http_client_read_to_end (busy));
  test_http_client_shutdown (busy);
  result = test_await (&await);
  g_assert_true (vmm_imds_close_finish (fixture->service->imds, result, NULL));
}

static void
test_close_limit (Fixture *fixture, gconstpointer data)
{
  g_autoptr (TestHttpClient) busy = NULL;
  g_autoptr (GAsyncResult) result = NULL;
  TestAwait await = TEST_AWAIT_INIT;

  to_booting (fixture, "");
  test_fakes_hang ("attestor.judge");
  busy = connect_vm (fixture);
  send_request (busy, "POST", "/attest/quote", NULL, QUOTE, strlen (QUOTE));
  test_await_condition (hangs, NULL);
  vmm_imds_close_async (fixture->service->imds, 50, test_await_cb, &await);
  result = test_await (&await);
  g_assert_true (vmm_imds_close_finish (fixture->service->imds, result, NULL));
  g_free (test_http_client_read_to_end (busy));
  test_fakes_release ("attestor.judge");
}

#define ADD(path, test) g_test_add ("/imds/" path, Fixture, NULL, set_up, test, tear_down)

int
main (int argc, char **argv)
{
  g_test_init (&argc, &argv, G_TEST_OPTION_ISOLATE_DIRS, NULL);
  ADD ("keys", test_keys);
  ADD ("unset", test_unset);
  ADD ("methods", test_methods);
  ADD ("no-body", test_no_body);
  ADD ("pipeline", test_pipeline);
  ADD ("identity", test_identity);
  ADD ("user-data", test_user_data);
  ADD ("no-user-data", test_no_user_data);
  ADD ("planted-user-data", test_planted_user_data);
  ADD ("release-over-boots", test_release_over_boots);
  ADD ("nonce", test_nonce);
  ADD ("nonce-fails", test_nonce_fails);
  ADD ("no-attestor", test_no_attestor);
  ADD ("malformed-quotes", test_malformed_quotes);
  ADD ("large-quote", test_large_quote);
  ADD ("verdicts", test_verdicts);
  ADD ("not-processed", test_not_processed);
  ADD ("verdict-of-earlier-boot", test_verdict_of_earlier_boot);
  ADD ("verdict-without-client", test_verdict_without_client);
  ADD ("quotes-at-once", test_quotes_at_once);
  ADD ("report", test_report);
  ADD ("large-report", test_large_report);
  ADD ("report-not-stored", test_report_not_stored);
  ADD ("artifacts", test_artifacts);
  ADD ("artifact-ranges", test_artifact_ranges);
  ADD ("linked-artifacts", test_linked_artifacts);
  ADD ("unreadable-artifact", test_unreadable_artifact);
  ADD ("shrinking-artifact", test_shrinking_artifact);
  ADD ("transfers-at-once", test_transfers_at_once);
  ADD ("rate", test_rate);
  ADD ("rate-of-bodies", test_rate_of_bodies);
  ADD ("connections", test_connections);
  ADD ("slow", test_slow);
  ADD ("deleting", test_deleting);
  ADD ("states", test_states);
  ADD ("restart", test_restart);
  ADD ("cannot-listen", test_cannot_listen);
  ADD ("socket-mode", test_socket_mode);
  ADD ("close", test_close);
  ADD ("close-limit", test_close_limit);
  return g_test_run ();
}

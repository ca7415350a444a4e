/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* exec_vm as the service does it: the way through the VM's network, what ends a command, how many
 * may run. */
#include "vmm-guest-exec.h"

#include <string.h>
#include <unistd.h>

#include <glib-unix.h>

#include "fake-backends.h"
#include "fake-peers.h"
#include "service-fixture.h"
#include "ssh-guest.h"
#include "test-await.h"
#include "vmm-json.h"

#define FAR_MORE (VMM_GUEST_EXECS_MAX + 36)

typedef struct
{
  ServiceFixture *service;
  char *id;
  SshGuest *guest;
} Fixture;

/* A call of exec_vm in flight. */
typedef struct
{
  TestAwait await;
  GCancellable *cancellable;
} Call;

static void
set_up (Fixture *fixture, gconstpointer data)
{
  g_autoptr (JsonNode) vm = NULL;

  fixture->service = service_fixture_new ();
  service_fixture_start_well (fixture->service);
  fixture->id = service_fixture_create_vm (fixture->service, "web", "ready");
  vm = service_fixture_call_well (fixture->service, "get_vm", "{'id':'%s'}", fixture->id);
  fixture->guest = ssh_guest_new (service_fixture_get (vm, "sshPublicKey"));
}

static void
tear_down (Fixture *fixture, gconstpointer data)
{
  ssh_guest_free (fixture->guest);
  service_fixture_free (fixture->service);
  g_free (fixture->id);
}

static void
begin (Fixture *fixture, const char *id, const char *const *words, Call *call)
{
  const VmmHandler *handler = vmm_handlers_find ("exec_vm");
  g_autoptr (VmmCaller) caller = vmm_caller_new ("test", "uid:4242");
  g_autoptr (JsonObject) arguments = json_object_new ();
  g_autoptr (VmmCall) a_call = NULL;
  JsonArray *command = json_array_new ();

  for (; *words != NULL; words++)
    json_array_add_string_element (command, *words);
  json_object_set_string_member (arguments, "id", id);
  json_object_set_array_member (arguments, "command", command);
  call->await = (TestAwait) TEST_AWAIT_INIT;
  call->cancellable = g_cancellable_new ();
  a_call = vmm_call_new (caller, arguments, call->cancellable);
  handler->start (fixture->service->service, a_call, test_await_cb, &call->await);
}

static JsonNode *
finish (Fixture *fixture, Call *call, GError **error)
{
  g_autoptr (GAsyncResult) result = test_await (&call->await);

  g_clear_object (&call->cancellable);
  return vmm_handlers_find ("exec_vm")->finish (fixture->service->service, result, error);
}

static void
assert_fails (Fixture *fixture, Call *call, GQuark domain, int code, const char *pattern)
{
  g_autoptr (GError) error = NULL;

  g_assert_null (finish (fixture, call, &error));
  g_assert_error (error, domain, code);
  if (!g_pattern_match_simple (pattern, error->message))
    g_assert_cmpstr (error->message, ==, pattern);
}

static gboolean
has_dialed (gpointer place)
{
  GIOStream **stream = place;

  if (*stream == NULL)
    *stream = test_fakes_take_dialed ();
  return *stream != NULL;
}

static GIOStream *
await_dialed (void)
{
  GIOStream *stream = NULL;

  test_await_condition (has_dialed, &stream);
  return stream;
}

/* The guest's sshd takes the connection that was dialled. */
static void
answer_dial (Fixture *fixture, const char *server)
{
  g_autoptr (GIOStream) stream = await_dialed ();
  GSocket *socket = g_socket_connection_get_socket (G_SOCKET_CONNECTION (stream));
  int fd = dup (g_socket_get_fd (socket));

  g_assert_cmpint (fd, >=, 0);
  g_unix_set_fd_nonblocking (fd, FALSE, NULL);
  ssh_guest_serve (fixture->guest, server, fd);
}

#define WORDS(...) ((const char *const[]){ __VA_ARGS__, NULL })

static void
test_result (Fixture *fixture, gconstpointer data)
{
  const char *missing = ssh_guest_missing (fixture->guest, "openssh");
  g_autofree char *text = NULL;
  g_autofree char *pin = NULL;
  g_autofree char *path = NULL;
  g_autoptr (JsonNode) result = NULL;
  g_autoptr (GError) error = NULL;
  Call call;

  if (missing != NULL)
    {
      g_test_skip (missing);
      return;
    }
  begin (fixture, fixture->id, WORDS ("sh", "-c", "printf 'it\\047s'; echo bad >&2; exit 7"),
         &call);
  answer_dial (fixture, "openssh");
  result = finish (fixture, &call, &error);
  g_assert_no_error (error);
  text = json_to_string (result, FALSE);
  g_assert_cmpstr (text, ==, "{\"stdout\":\"it's\",\"stderr\":\"bad\\n\",\"exitCode\":7}");

  path = g_build_filename (fixture->service->state_dir, "vms", fixture->id, "ssh_host_key", NULL);
  g_assert_true (g_file_get_contents (path, &pin, NULL, NULL));
  g_assert_true (g_str_has_prefix (pin, "ssh-ed25519 "));
}

static void
test_hung_up (Fixture *fixture, gconstpointer data)
{
  Call call;

  begin (fixture, fixture->id, WORDS ("true"), &call);
  answer_dial (fixture, "closing");
  assert_fails (fixture, &call, VMM_ERROR, VMM_ERROR_INTERNAL,
                "ssh 10.64.0.2:22: the connection ended*");
}

/* -- dialling --------------------------------------------------------------------------------- */

static const struct
{
  VmmError code;
  VmmError becomes;
  const char *pattern;
} dials[] = {
  { VMM_ERROR_INTERNAL, VMM_ERROR_INTERNAL, "dial 10.64.0.2:22: the guest refuses (*sshd*)" },
  { VMM_ERROR_TIMEOUT, VMM_ERROR_INTERNAL, "dial 10.64.0.2:22: the guest refuses (*sshd*)" },
  { VMM_ERROR_NOT_FOUND, VMM_ERROR_INTERNAL, "dial 10.64.0.2:22: the guest refuses (*sshd*)" },
  { VMM_ERROR_UNSUPPORTED, VMM_ERROR_UNSUPPORTED,
    "dial 10.64.0.2:22: unsupported: the guest refuses" },
  { VMM_ERROR_CONFLICT, VMM_ERROR_CONFLICT, "dial 10.64.0.2:22: conflict: the guest refuses" },
};

static void
test_dial_failures (Fixture *fixture, gconstpointer data)
{
  for (guint i = 0; i < G_N_ELEMENTS (dials); i++)
    {
      Call call;

      test_fakes_fail_once ("network.dial", dials[i].code, "the guest refuses");
      begin (fixture, fixture->id, WORDS ("true"), &call);
      assert_fails (fixture, &call, VMM_ERROR, (int) dials[i].becomes, dials[i].pattern);
    }
}

static void
test_dial_cancelled (Fixture *fixture, gconstpointer data)
{
  Call call;

  test_fakes_hang ("network.dial");
  begin (fixture, fixture->id, WORDS ("true"), &call);
  test_drain ();
  g_cancellable_cancel (call.cancellable);
  assert_fails (fixture, &call, G_IO_ERROR, G_IO_ERROR_CANCELLED, "*");
}

static void
test_too_long (Fixture *fixture, gconstpointer data)
{
  g_autofree char *word = g_strnfill (128 * 1024 - 3, 'w');
  Call call;

  begin (fixture, fixture->id, WORDS (word, "x"), &call);
  assert_fails (fixture, &call, VMM_ERROR, VMM_ERROR_INVALID_REQUEST,
                "invalid request: command has 131075 bytes with its quotes, at most 131071 fit: *");
}

/* -- endings ---------------------------------------------------------------------------------- */

static void
begin_lasting (Fixture *fixture, Call *call)
{
  begin (fixture, fixture->id, WORDS ("true"), call);
  answer_dial (fixture, "hanging");
  ssh_guest_await_reached (fixture->guest);
}

static void
test_left (Fixture *fixture, gconstpointer data)
{
  Call call;

  begin_lasting (fixture, &call);
  g_cancellable_cancel (call.cancellable);
  assert_fails (fixture, &call, G_IO_ERROR, G_IO_ERROR_CANCELLED, "*");
  ssh_guest_await_left (fixture->guest);
}

static void
test_shut_down (Fixture *fixture, gconstpointer data)
{
  Call call;
  Call late;

  begin_lasting (fixture, &call);
  vmm_service_end_waits (fixture->service->service);
  assert_fails (fixture, &call, VMM_ERROR, VMM_ERROR_CONFLICT,
                "conflict: vm-manager is shutting down");
  ssh_guest_await_left (fixture->guest);
  begin (fixture, fixture->id, WORDS ("true"), &late);
  assert_fails (fixture, &late, VMM_ERROR, VMM_ERROR_CONFLICT,
                "conflict: vm-manager is shutting down");
}

static void
test_stopped (Fixture *fixture, gconstpointer data)
{
  g_autoptr (JsonNode) stopped = NULL;
  Call call;

  begin_lasting (fixture, &call);
  stopped = service_fixture_call_well (fixture->service, "stop_vm", "{'id':'%s'}", fixture->id);
  assert_fails (fixture, &call, VMM_ERROR, VMM_ERROR_CONFLICT,
                "conflict: vm * is not running (stopped): its command ended");
  ssh_guest_await_left (fixture->guest);
  begin (fixture, fixture->id, WORDS ("true"), &call);
  assert_fails (fixture, &call, VMM_ERROR, VMM_ERROR_CONFLICT,
                "conflict: vm * is not running (stopped)");
}

static void
test_deleted (Fixture *fixture, gconstpointer data)
{
  g_autoptr (JsonNode) deleted = NULL;
  Call call;

  begin_lasting (fixture, &call);
  deleted = service_fixture_call_well (fixture->service, "delete_vm", "{'id':'%s'}", fixture->id);
  assert_fails (fixture, &call, VMM_ERROR, VMM_ERROR_CONFLICT,
                "conflict: vm * is not running (deleting): its command ended");
  ssh_guest_await_left (fixture->guest);
}

static void
test_crashed (Fixture *fixture, gconstpointer data)
{
  Call call;

  begin_lasting (fixture, &call);
  g_assert_true (test_peer_emit (fixture->id, "crash"));
  assert_fails (fixture, &call, VMM_ERROR, VMM_ERROR_CONFLICT,
                "conflict: vm * is not running (failed): its command ended");
}

/* The kernel that would have said that the connection is gone is gone itself. */
static void
test_reset (Fixture *fixture, gconstpointer data)
{
  Call call;

  begin_lasting (fixture, &call);
  g_assert_true (test_peer_emit (fixture->id, "reset"));
  assert_fails (fixture, &call, VMM_ERROR, VMM_ERROR_CONFLICT,
                "conflict: vm * booted anew (booting): its command ended");
  ssh_guest_await_left (fixture->guest);
}

/* -- places ----------------------------------------------------------------------------------- */

static gboolean
is_answered (const Call *call)
{
  return call->await.result != NULL;
}

/* Calls of which as many as may be run: the guests' sshds say nothing. */
static guint
fill (Fixture *fixture, const char *const *ids, Call *calls, guint n_calls)
{
  guint refused = 0;

  for (guint i = 0; i < n_calls; i++)
    begin (fixture, ids[i / (VMM_GUEST_EXECS_OF_A_VM_MAX + 4) % g_strv_length ((char **) ids)],
           WORDS ("true"), &calls[i]);
  test_drain ();
  for (guint i = 0; i < n_calls; i++)
    if (is_answered (&calls[i]))
      {
        assert_fails (fixture, &calls[i], VMM_ERROR, VMM_ERROR_CONFLICT,
                      "conflict: * commands run in vm * and * in all: at most 16 in a vm and 64 in "
                      "all may, try again when one has ended");
        refused++;
      }
  return refused;
}

static void
end_all (Fixture *fixture, Call *calls, guint n_calls)
{
  for (guint i = 0; i < n_calls; i++)
    if (calls[i].cancellable != NULL)
      g_cancellable_cancel (calls[i].cancellable);
  for (guint i = 0; i < n_calls; i++)
    if (calls[i].cancellable != NULL)
      assert_fails (fixture, &calls[i], G_IO_ERROR, G_IO_ERROR_CANCELLED, "*");
}

/* One VM's commands leave room for those of others, and all of them come to an end. */
static void
test_places (Fixture *fixture, gconstpointer data)
{
  g_autoptr (GPtrArray) ids = g_ptr_array_new_with_free_func (g_free);
  Call calls[FAR_MORE];
  Call one[VMM_GUEST_EXECS_OF_A_VM_MAX + 4];

  for (guint i = 0; i < 5; i++)
    {
      g_autofree char *name = g_strdup_printf ("vm%u", i);

      g_ptr_array_add (ids, service_fixture_create_vm (fixture->service, name, "ready"));
    }
  g_ptr_array_add (ids, NULL);
  for (guint round = 0; round < 2; round++)
    {
      /* 20 for each of five VMs: 16 run in each of four. */
      g_assert_cmpuint (fill (fixture, (const char *const *) ids->pdata, calls, FAR_MORE), ==,
                        FAR_MORE - VMM_GUEST_EXECS_MAX);
      end_all (fixture, calls, FAR_MORE);
      g_assert_cmpuint (fill (fixture, WORDS (fixture->id), one, G_N_ELEMENTS (one)), ==, 4);
      end_all (fixture, one, G_N_ELEMENTS (one));
    }
}

#define ADD(name, function)                                                                        \
  g_test_add ("/guest-exec/" name, Fixture, NULL, set_up, function, tear_down)

int
main (int argc, char **argv)
{
  g_test_init (&argc, &argv, NULL);
  ADD ("result", test_result);
  ADD ("hung-up", test_hung_up);
  ADD ("dial/failures", test_dial_failures);
  ADD ("dial/cancelled", test_dial_cancelled);
  ADD ("too-long", test_too_long);
  ADD ("left", test_left);
  ADD ("shut-down", test_shut_down);
  ADD ("stopped", test_stopped);
  ADD ("deleted", test_deleted);
  ADD ("crashed", test_crashed);
  ADD ("reset", test_reset);
  ADD ("places", test_places);
  return g_test_run ();
}

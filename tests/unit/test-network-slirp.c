/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The slirp network against a fake launcher and a vmm-netd that says what the test wants, then with
 * the real one where it is built. */

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <glib-unix.h>
#include <glib/gstdio.h>
#include <json-glib/json-glib.h>

#include "fake-backends.h"
#include "interfaces/vmm.h"
#include "test-await.h"
#include "test-plugins.h"

#define HELPER_VARIABLE "VM_MANAGER_HELPER_DIR"
#define FEATURES "\"features\":[\"attach\",\"dial\",\"forward-tcp\",\"forward-udp\",\"counters\"]"
#define COUNTERS                                                                                   \
  "\"counters\":[\"bytes-sent\",\"bytes-received\",\"queue-full\",\"spoofed-mac\",\"spoofed-ip\"," \
  "\"forbidden\"]"
#define N_COUNTERS 6
#define HELLO "{\"hello\":\"vmm-netd\",\"version\":1,\"network\":\"lab\"," FEATURES "," COUNTERS "}"

/* --- A vmm-netd that does as it is told --- */

typedef struct
{
  guint64 magic;
  guint32 version;
  guint32 n;
  guint64 counts[N_COUNTERS];
} Page;

typedef struct
{
  int listener;
  guint accept_source;
  int client;
  guint read_source;
  GString *in;
  GQueue heard; /* of JsonObject */
  Page *page;
  int page_fd;
  const char *hello;
  int hello_fd; /* -1: none */
  gboolean answers;
  guint n_clients;
} Netd;

static void
netd_say (Netd *netd, const char *text, int fd)
{
  g_autofree char *line = g_strconcat (text, "\n", NULL);
  char control[CMSG_SPACE (sizeof (int))] = { 0 };
  struct iovec piece = { line, strlen (line) };
  struct msghdr message = { .msg_iov = &piece, .msg_iovlen = 1 };

  if (fd >= 0)
    {
      struct cmsghdr *header;

      message.msg_control = control;
      message.msg_controllen = sizeof control;
      header = CMSG_FIRSTHDR (&message);
      header->cmsg_level = SOL_SOCKET;
      header->cmsg_type = SCM_RIGHTS;
      header->cmsg_len = CMSG_LEN (sizeof (int));
      memcpy (CMSG_DATA (header), &fd, sizeof fd);
    }
  g_assert_cmpint (sendmsg (netd->client, &message, MSG_NOSIGNAL), ==, (gssize) strlen (line));
}

static void
netd_hang_up (Netd *netd)
{
  g_clear_handle_id (&netd->read_source, g_source_remove);
  if (netd->client >= 0)
    close (netd->client);
  netd->client = -1;
  g_string_truncate (netd->in, 0);
}

static void
netd_answer (Netd *netd, JsonObject *request, const char *result, int fd)
{
  g_autofree char *line = g_strdup_printf ("{\"id\":%" G_GINT64_FORMAT ",%s}",
                                           json_object_get_int_member (request, "id"), result);

  netd_say (netd, line, fd);
}

static const char *
method_of (JsonObject *request)
{
  return json_object_get_string_member (request, "method");
}

static void
netd_hear_line (Netd *netd, const char *line)
{
  g_autoptr (JsonNode) node = json_from_string (line, NULL);
  JsonObject *request = json_node_get_object (node);

  g_queue_push_tail (&netd->heard, json_object_ref (request));
  if (!netd->answers)
    return;
  if (g_str_equal (method_of (request), "forward"))
    netd_answer (netd, request, "\"result\":{\"host_port\":40022}", -1);
  else
    netd_answer (netd, request, "\"result\":{}", -1);
}

static gboolean
netd_read_cb (int fd, GIOCondition condition, gpointer user_data)
{
  Netd *netd = user_data;
  char buffer[65536];
  gssize n = recv (fd, buffer, sizeof buffer, MSG_DONTWAIT);
  char *end;

  if (n <= 0)
    {
      netd->read_source = 0;
      netd_hang_up (netd);
      return G_SOURCE_REMOVE;
    }
  g_string_append_len (netd->in, buffer, n);
  while ((end = strchr (netd->in->str, '\n')) != NULL)
    {
      g_autofree char *line = g_strndup (netd->in->str, (gsize) (end - netd->in->str));

      g_string_erase (netd->in, 0, end - netd->in->str + 1);
      netd_hear_line (netd, line);
    }
  return G_SOURCE_CONTINUE;
}

static gboolean
netd_accept_cb (int fd, GIOCondition condition, gpointer user_data)
{
  Netd *netd = user_data;

  netd_hang_up (netd);
  netd->client = accept4 (fd, NULL, NULL, SOCK_CLOEXEC);
  netd->n_clients++;
  netd->read_source = g_unix_fd_add (netd->client, G_IO_IN | G_IO_HUP, netd_read_cb, netd);
  if (netd->hello != NULL)
    netd_say (netd, netd->hello, netd->hello_fd);
  return G_SOURCE_CONTINUE;
}

static void
make_page (Netd *netd)
{
  netd->page_fd = memfd_create ("counters", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  g_assert_cmpint (ftruncate (netd->page_fd, sizeof (Page)), ==, 0);
  netd->page = mmap (NULL, sizeof (Page), PROT_READ | PROT_WRITE, MAP_SHARED, netd->page_fd, 0);
  g_assert_cmpint (fcntl (netd->page_fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), ==, 0);
  netd->page->magic = G_GUINT64_CONSTANT (0x766d6d2d6e657464);
  netd->page->version = 1;
  netd->page->n = N_COUNTERS;
}

static Netd *
netd_new (const char *path, const char *hello)
{
  struct sockaddr_un address = { .sun_family = AF_UNIX };
  Netd *netd = g_new0 (Netd, 1);

  make_page (netd);
  netd->hello = hello;
  netd->hello_fd = netd->page_fd;
  netd->answers = TRUE;
  netd->client = -1;
  netd->in = g_string_new (NULL);
  netd->listener = socket (AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  g_strlcpy (address.sun_path, path, sizeof address.sun_path);
  g_assert_cmpint (bind (netd->listener, (struct sockaddr *) &address, sizeof address), ==, 0);
  g_assert_cmpint (listen (netd->listener, 8), ==, 0);
  netd->accept_source = g_unix_fd_add (netd->listener, G_IO_IN, netd_accept_cb, netd);
  return netd;
}

static void
netd_free (Netd *netd)
{
  netd_hang_up (netd);
  g_source_remove (netd->accept_source);
  close (netd->listener);
  munmap (netd->page, sizeof (Page));
  close (netd->page_fd);
  g_string_free (netd->in, TRUE);
  g_queue_clear_full (&netd->heard, (GDestroyNotify) json_object_unref);
  g_free (netd);
}
G_DEFINE_AUTOPTR_CLEANUP_FUNC (Netd, netd_free)

static gboolean
netd_has_heard (gpointer netd)
{
  return ((Netd *) netd)->heard.length > 0;
}

/* The next request, which is of this method. */
static JsonObject *
netd_hear (Netd *netd, const char *method)
{
  JsonObject *request;

  test_await_condition (netd_has_heard, netd);
  request = g_queue_pop_head (&netd->heard);
  g_assert_cmpstr (method_of (request), ==, method);
  return request;
}

static const char *
param_of (JsonObject *request, const char *name)
{
  return json_object_get_string_member (json_object_get_object_member (request, "params"), name);
}

/* --- The fixture --- */

typedef struct
{
  char *root;
  char *helpers;
  char *helper;
  char *directory;
  char *control;
  char *file;
  VmmPluginRegistry *registry;
  VmmNetworkBackend *backend;
  VmmLauncher *launcher;
  VmmNetworkSpec spec;
  guint n_failed;
  guint n_recovered;
  char *reason;
} Fixture;

static void
load (Fixture *fixture, const char *helpers)
{
  g_setenv (HELPER_VARIABLE, helpers, TRUE);
  fixture->registry = test_load_plugins (fixture->root, NULL);
  g_unsetenv (HELPER_VARIABLE);
  fixture->backend = VMM_NETWORK_BACKEND (
      test_choose_plugin (fixture->registry, VMM_PLUGIN_KIND_NETWORK, "slirp"));
  fixture->directory = g_build_filename (fixture->root, "networks", "lab", NULL);
  fixture->control = g_build_filename (fixture->directory, "control.sock", NULL);
  fixture->file = g_build_filename (fixture->directory, "netd.json", NULL);
  g_assert_cmpint (g_mkdir_with_parents (fixture->directory, 0750), ==, 0);
  fixture->spec.name = "lab";
  fixture->spec.cidr = "10.77.0.0/24";
  fixture->spec.gateway = "10.77.0.1";
  fixture->spec.gateway_mac = "02:f4:0a:4d:00:01";
  fixture->spec.dns_search_domain = "lab.test";
  fixture->spec.mtu = 1500;
  fixture->spec.enable_imds = TRUE;
  fixture->spec.directory = fixture->directory;
}

static void
set_up (Fixture *fixture, gconstpointer data)
{
  g_autofree char *folders = NULL; /* as an uninstalled daemon has them */

  test_fakes_reset ();
  fixture->root = test_make_directory ();
  fixture->helpers = g_build_filename (fixture->root, "helpers", NULL);
  fixture->helper = g_build_filename (fixture->helpers, "vmm-netd", NULL);
  g_assert_cmpint (g_mkdir (fixture->helpers, 0750), ==, 0);
  g_assert_true (g_file_set_contents (fixture->helper, "#!/bin/false\n", -1, NULL));
  g_assert_cmpint (g_chmod (fixture->helper, 0755), ==, 0);
  folders = g_strdup_printf ("%s/nowhere:%s", fixture->root, fixture->helpers);
  load (fixture, folders);
  fixture->launcher = g_object_new (TEST_TYPE_FAKE_LAUNCHER, NULL);
}

static void
tear_down (Fixture *fixture, gconstpointer data)
{
  test_fakes_reset ();
  test_drain ();
  g_clear_object (&fixture->launcher);
  g_clear_object (&fixture->registry);
  g_free (fixture->helpers);
  g_free (fixture->helper);
  g_free (fixture->directory);
  g_free (fixture->control);
  g_free (fixture->file);
  g_free (fixture->reason);
  test_remove_directory (fixture->root);
}

static gboolean
runs (gpointer unused)
{
  return test_fakes_is_running ("lab", "network");
}

static void
failed_cb (VmmNetwork *network, const char *reason, Fixture *fixture)
{
  fixture->n_failed++;
  g_free (fixture->reason);
  fixture->reason = g_strdup (reason);
}

static void
recovered_cb (VmmNetwork *network, Fixture *fixture)
{
  fixture->n_recovered++;
}

static void
open_start (Fixture *fixture, TestAwait *await, GCancellable *cancellable)
{
  vmm_network_backend_open_async (fixture->backend, &fixture->spec, fixture->launcher, cancellable,
                                  test_await_cb, await);
}

static VmmNetwork *
open_end (Fixture *fixture, TestAwait *await, GError **error)
{
  g_autoptr (GAsyncResult) result = test_await (await);
  VmmNetwork *network = vmm_network_backend_open_finish (fixture->backend, result, error);

  if (network != NULL)
    {
      g_signal_connect (network, "failed", G_CALLBACK (failed_cb), fixture);
      g_signal_connect (network, "recovered", G_CALLBACK (recovered_cb), fixture);
    }
  return network;
}

static char *
read_file (Fixture *fixture)
{
  char *text = NULL;

  g_assert_true (g_file_get_contents (fixture->file, &text, NULL, NULL));
  return text;
}

static void
assert_file_has (Fixture *fixture, const char *text, gboolean has)
{
  g_autofree char *content = read_file (fixture);

  if ((strstr (content, text) != NULL) != has)
    g_assert_cmpstr (content, ==, text);
}

static VmmNetwork *
open_well (Fixture *fixture, Netd **netd)
{
  TestAwait await = TEST_AWAIT_INIT;
  g_autoptr (GError) error = NULL;
  VmmNetwork *network;

  open_start (fixture, &await, NULL);
  test_await_condition (runs, NULL);
  assert_file_has (fixture, "\"cidr\"", TRUE); /* it is there when vmm-netd starts */
  *netd = netd_new (fixture->control, HELLO);
  network = open_end (fixture, &await, &error);
  g_assert_no_error (error);
  return network;
}

static gboolean
finish_close (VmmNetwork *network, TestAwait *await, GError **error)
{
  g_autoptr (GAsyncResult) result = test_await (await);

  return vmm_network_close_finish (network, result, error);
}

static void
close_well (VmmNetwork *network, gboolean keep_running)
{
  TestAwait await = TEST_AWAIT_INIT;
  g_autoptr (GError) error = NULL;

  vmm_network_close_async (network, keep_running, NULL, test_await_cb, &await);
  g_assert_true (finish_close (network, &await, &error));
  g_assert_no_error (error);
}

static const VmmNetworkPort *
make_port (Fixture *fixture)
{
  static VmmNetworkPort port = {
    .vm_id = "1a2b3c4d",
    .mac = "02:f4:0a:4d:00:02",
    .ip = "10.77.0.2",
    .socket_path = "/tmp/a,b/net.sock",
    .metadata_path = "/tmp/a,b/imds.sock",
  };

  return &port;
}

static VmmAttachment *
attach (VmmNetwork *network, const VmmNetworkPort *port, GError **error)
{
  TestAwait await = TEST_AWAIT_INIT;
  g_autoptr (GAsyncResult) result = NULL;

  vmm_network_attach_async (network, port, NULL, test_await_cb, &await);
  result = test_await (&await);
  return vmm_network_attach_finish (network, result, error);
}

static void
attach_well (Fixture *fixture, VmmNetwork *network)
{
  g_autoptr (GError) error = NULL;
  g_autoptr (VmmAttachment) attachment = attach (network, make_port (fixture), &error);

  g_assert_no_error (error);
  g_assert_nonnull (attachment);
}

static gboolean
detach (VmmNetwork *network, const char *vm_id, GError **error)
{
  TestAwait await = TEST_AWAIT_INIT;
  g_autoptr (GAsyncResult) result = NULL;

  vmm_network_detach_async (network, vm_id, NULL, test_await_cb, &await);
  result = test_await (&await);
  return vmm_network_detach_finish (network, result, error);
}

static VmmForwardSpec
make_forward (const char *protocol, guint16 host_port)
{
  VmmForwardSpec spec = {
    .id = "f1",
    .vm_id = "1a2b3c4d",
    .ip = "10.77.0.2",
    .port = 22,
    .protocol = protocol,
    .host_address = "127.0.0.1",
    .host_port = host_port,
  };

  return spec;
}

static guint
forward (VmmNetwork *network, const VmmForwardSpec *spec, GError **error)
{
  TestAwait await = TEST_AWAIT_INIT;
  g_autoptr (GAsyncResult) result = NULL;

  vmm_network_forward_async (network, spec, NULL, test_await_cb, &await);
  result = test_await (&await);
  return vmm_network_forward_finish (network, result, error);
}

static gboolean
unforward (VmmNetwork *network, const char *id, GError **error)
{
  TestAwait await = TEST_AWAIT_INIT;
  g_autoptr (GAsyncResult) result = NULL;

  vmm_network_unforward_async (network, id, NULL, test_await_cb, &await);
  result = test_await (&await);
  return vmm_network_unforward_finish (network, result, error);
}

/* Undoing is not waited for by who asked. */
static gboolean
file_has_no_f2 (gpointer fixture)
{
  g_autofree char *content = read_file (fixture);

  return strstr (content, "\"f2\"") == NULL;
}

static void
write_log (Fixture *fixture, const char *text)
{
  g_autofree char *log = g_build_filename (fixture->directory, "netd.log", NULL);

  g_assert_true (g_file_set_contents (log, text, -1, NULL));
}

static gboolean
has_failed (gpointer fixture)
{
  return ((Fixture *) fixture)->n_failed > 0;
}

static gboolean
has_recovered (gpointer fixture)
{
  return ((Fixture *) fixture)->n_recovered > 0;
}

/* --- Tests --- */

static void
test_available (Fixture *fixture, gconstpointer data)
{
  g_autoptr (GVariant) members
      = g_variant_ref_sink (vmm_backend_describe_host (VMM_BACKEND (fixture->backend)));
  g_autofree char *reason = NULL;
  const char *engine = NULL;

  g_assert_true (vmm_backend_is_available (VMM_BACKEND (fixture->backend), NULL));
  g_assert_true (g_variant_lookup (members, "networkEngine", "&s", &engine));
  g_assert_cmpstr (engine, ==, "libslirp");
  g_assert_cmpint (g_chmod (fixture->helper, 0644), ==, 0);
  g_assert_false (vmm_backend_is_available (VMM_BACKEND (fixture->backend), &reason));
  g_assert_nonnull (strstr (reason, fixture->helper));
  g_assert_cmpint (g_unlink (fixture->helper), ==, 0);
  g_assert_false (vmm_backend_is_available (VMM_BACKEND (fixture->backend), NULL));
}

static void
test_open_and_close (Fixture *fixture, gconstpointer data)
{
  g_autoptr (Netd) netd = NULL;
  g_autoptr (VmmNetwork) network = open_well (fixture, &netd);
  VmmProcessSpec *spec = test_fakes_get_spec ("lab", "network");
  g_autofree char *log = g_build_filename (fixture->directory, "netd.log", NULL);
  VmmNetworkCounters counters;
  g_autoptr (GError) error = NULL;
  struct stat info;

  g_assert_true (g_str_has_prefix (vmm_process_spec_get_id (spec), "net-"));
  g_assert_true (g_str_has_suffix (vmm_process_spec_get_id (spec), "-lab"));
  g_assert_cmpuint (strlen (vmm_process_spec_get_id (spec)), ==, strlen ("net-01234567-lab"));
  g_assert_cmpstr (vmm_process_spec_get_argv (spec)[0], ==, fixture->helper);
  g_assert_cmpstr (vmm_process_spec_get_argv (spec)[1], ==, fixture->directory);
  g_assert_null (vmm_process_spec_get_argv (spec)[2]);
  g_assert_cmpstr (vmm_process_spec_get_log (spec), ==, log);
  g_assert_cmpint (vmm_process_spec_get_flags (spec), ==,
                   VMM_PROCESS_DENY_IO_URING | VMM_PROCESS_RESTART);
  g_assert_cmpuint (vmm_process_spec_get_memory_max (spec), >, 0);

  g_assert_cmpint (stat (fixture->file, &info), ==, 0);
  g_assert_cmpint (info.st_mode & 07777, ==, 0600);
  assert_file_has (fixture, "\"cidr\" : \"10.77.0.0/24\"", TRUE);
  assert_file_has (fixture, "\"gateway_mac\" : \"02:f4:0a:4d:00:01\"", TRUE);
  assert_file_has (fixture, "\"dns_search_domain\" : \"lab.test\"", TRUE);
  assert_file_has (fixture, "\"mtu\" : 1500", TRUE);
  assert_file_has (fixture, "\"enable_imds\" : true", TRUE);
  assert_file_has (fixture, "\"handle\"", TRUE);

  netd->page->counts[0] = 11;
  netd->page->counts[1] = 22;
  netd->page->counts[2] = 33;
  netd->page->counts[3] = 4;
  netd->page->counts[4] = 40;
  netd->page->counts[5] = 1000;
  g_assert_true (vmm_network_get_counters (network, &counters));
  g_assert_cmpuint (counters.bytes_sent, ==, 11);
  g_assert_cmpuint (counters.bytes_received, ==, 22);
  g_assert_cmpuint (counters.dropped, ==, 33);
  g_assert_cmpuint (counters.spoofed, ==, 44);

  close_well (network, FALSE);
  g_assert_false (runs (NULL));
  g_assert_false (g_file_test (fixture->file, G_FILE_TEST_EXISTS));
  g_assert_false (g_file_test (fixture->control, G_FILE_TEST_EXISTS));
  g_assert_null (attach (network, make_port (fixture), &error));
  g_assert_error (error, VMM_ERROR, VMM_ERROR_CONFLICT);
  g_assert_cmpuint (fixture->n_failed, ==, 0);
  close_well (network, FALSE);
}

static void
test_attach (Fixture *fixture, gconstpointer data)
{
  static const char *const expected[] = {
    "-netdev", "stream,id=net0,server=on,addr.type=unix,addr.path=/tmp/a,,b/net.sock",
    "-device", "virtio-net-pci,netdev=net0,mac=02:f4:0a:4d:00:02,romfile=,host_mtu=1500",
    NULL,
  };
  g_autoptr (Netd) netd = NULL;
  g_autoptr (VmmNetwork) network = open_well (fixture, &netd);
  g_autoptr (VmmAttachment) attachment = NULL;
  g_autoptr (GError) error = NULL;
  g_autoptr (JsonObject) request = NULL;
  g_autoptr (JsonObject) detached = NULL;
  g_autoptr (GAsyncResult) result = NULL;
  TestAwait await = TEST_AWAIT_INIT;
  VmmNetworkPort other;

  netd->answers = FALSE;
  vmm_network_attach_async (network, make_port (fixture), NULL, test_await_cb, &await);
  request = netd_hear (netd, "attach");
  /* It is recorded by then. */
  assert_file_has (fixture, "\"vm\" : \"1a2b3c4d\"", TRUE);
  assert_file_has (fixture, "\"socket\" : \"/tmp/a,b/net.sock\"", TRUE);
  assert_file_has (fixture, "\"metadata\" : \"/tmp/a,b/imds.sock\"", TRUE);
  g_assert_cmpstr (param_of (request, "vm"), ==, "1a2b3c4d");
  g_assert_cmpstr (param_of (request, "mac"), ==, "02:f4:0a:4d:00:02");
  g_assert_cmpstr (param_of (request, "ip"), ==, "10.77.0.2");
  netd_answer (netd, request, "\"result\":{}", -1);
  result = test_await (&await);
  attachment = vmm_network_attach_finish (network, result, &error);
  g_assert_no_error (error);
  g_assert_true (g_strv_equal (vmm_attachment_get_arguments (attachment), expected));

  netd->answers = TRUE;
  attach_well (fixture, network);
  other = *make_port (fixture);
  other.ip = "10.77.0.3";
  g_assert_null (attach (network, &other, &error));
  g_assert_error (error, VMM_ERROR, VMM_ERROR_CONFLICT);
  g_clear_error (&error);

  g_queue_clear_full (&netd->heard, (GDestroyNotify) json_object_unref);
  g_assert_true (detach (network, "1a2b3c4d", &error));
  g_assert_no_error (error);
  detached = netd_hear (netd, "detach");
  g_assert_cmpstr (param_of (detached, "vm"), ==, "1a2b3c4d");
  assert_file_has (fixture, "\"1a2b3c4d\"", FALSE);
  close_well (network, FALSE);
}

/* What did not come about is not recorded either. */
static void
test_attach_fails (Fixture *fixture, gconstpointer data)
{
  g_autoptr (Netd) netd = NULL;
  g_autoptr (VmmNetwork) network = open_well (fixture, &netd);
  g_autoptr (GError) error = NULL;
  g_autoptr (JsonObject) request = NULL;
  g_autoptr (JsonObject) undone = NULL;
  g_autoptr (JsonObject) cancelled = NULL;
  g_autoptr (JsonObject) undone_again = NULL;
  g_autoptr (GCancellable) cancellable = g_cancellable_new ();
  g_autoptr (GAsyncResult) first = NULL;
  g_autoptr (GAsyncResult) second = NULL;
  TestAwait await = TEST_AWAIT_INIT;
  TestAwait again = TEST_AWAIT_INIT;

  netd->answers = FALSE;
  vmm_network_attach_async (network, make_port (fixture), NULL, test_await_cb, &await);
  request = netd_hear (netd, "attach");
  netd_answer (netd, request, "\"error\":{\"code\":\"conflict\",\"message\":\"no\\u0007 room\"}",
               -1);
  first = test_await (&await);
  g_assert_null (vmm_network_attach_finish (network, first, &error));
  g_assert_error (error, VMM_ERROR, VMM_ERROR_CONFLICT);
  g_assert_cmpstr (error->message, ==, "conflict: no  room");
  g_clear_error (&error);
  undone = netd_hear (netd, "detach");

  vmm_network_attach_async (network, make_port (fixture), cancellable, test_await_cb, &again);
  cancelled = netd_hear (netd, "attach");
  g_cancellable_cancel (cancellable);
  second = test_await (&again);
  g_assert_null (vmm_network_attach_finish (network, second, &error));
  g_assert_error (error, G_IO_ERROR, G_IO_ERROR_CANCELLED);
  undone_again = netd_hear (netd, "detach");
  netd_answer (netd, cancelled, "\"result\":{}", -1); /* late */
  close_well (network, TRUE);
  assert_file_has (fixture, "\"1a2b3c4d\"", FALSE);
}

static void
test_file_cannot_be_written (Fixture *fixture, gconstpointer data)
{
  g_autofree char *moved = g_strconcat (fixture->directory, ".moved", NULL);
  g_autoptr (Netd) netd = NULL;
  g_autoptr (VmmNetwork) network = open_well (fixture, &netd);
  VmmForwardSpec spec = make_forward ("tcp", 0);
  g_autoptr (GError) error = NULL;

  attach_well (fixture, network);
  g_assert_cmpuint (forward (network, &spec, NULL), ==, 40022);
  g_queue_clear_full (&netd->heard, (GDestroyNotify) json_object_unref);

  g_assert_cmpint (g_rename (fixture->directory, moved), ==, 0);
  g_assert_false (detach (network, "1a2b3c4d", &error));
  g_assert_error (error, VMM_ERROR, VMM_ERROR_INTERNAL);
  g_assert_nonnull (strstr (error->message, fixture->directory));
  g_clear_error (&error);
  g_assert_false (unforward (network, "f1", &error));
  g_clear_error (&error);
  spec.id = "f2";
  g_assert_cmpuint (forward (network, &spec, &error), ==, 0);
  g_clear_error (&error);
  g_assert_cmpuint (netd->heard.length, ==, 0); /* nothing was told */
  g_assert_cmpint (g_rename (moved, fixture->directory), ==, 0);

  g_assert_true (unforward (network, "f1", &error));
  g_assert_no_error (error);
  g_assert_true (detach (network, "1a2b3c4d", &error));
  g_assert_no_error (error);
  close_well (network, FALSE);
}

static GIOStream *
dial_end (VmmNetwork *network, TestAwait *await, GError **error)
{
  g_autoptr (GAsyncResult) result = test_await (await);
  GIOStream *stream = vmm_network_dial_finish (network, result, error);

  await->result = NULL;
  return stream;
}

static void
test_dial (Fixture *fixture, gconstpointer data)
{
  g_autoptr (Netd) netd = NULL;
  g_autoptr (VmmNetwork) network = open_well (fixture, &netd);
  TestAwait await = TEST_AWAIT_INIT;
  g_autoptr (GIOStream) stream = NULL;
  g_autoptr (GError) error = NULL;
  static const struct
  {
    const char *answer;
    VmmError code;
    const char *message;
  } bad[] = {
    { "\"result\":{}", VMM_ERROR_INTERNAL, "not complete" },
    { "\"result\":7", VMM_ERROR_INTERNAL, "not complete" },
    { "\"error\":{\"code\":\"timeout\",\"message\":\"asleep\"}", VMM_ERROR_TIMEOUT, "asleep" },
    { "\"error\":{\"code\":\"strange\"}", VMM_ERROR_INTERNAL, "no reason" },
    { "\"error\":{}", VMM_ERROR_INTERNAL, "no reason" },
    { "\"nothing\":1", VMM_ERROR_INTERNAL, "not complete" },
  };
  int pair[2];
  char byte = 0;

  vmm_network_dial_async (network, "1a2b3c4d", "10.77.0.2", 22, NULL, test_await_cb, &await);
  g_assert_null (dial_end (network, &await, &error));
  g_assert_error (error, VMM_ERROR, VMM_ERROR_NOT_FOUND);
  g_clear_error (&error);

  attach_well (fixture, network);
  g_queue_clear_full (&netd->heard, (GDestroyNotify) json_object_unref);
  netd->answers = FALSE;
  for (guint i = 0; i < G_N_ELEMENTS (bad); i++)
    {
      g_autoptr (JsonObject) request = NULL;

      vmm_network_dial_async (network, "1a2b3c4d", "10.77.0.2", 22, NULL, test_await_cb, &await);
      request = netd_hear (netd, "dial");
      g_assert_cmpint (
          json_object_get_int_member (json_object_get_object_member (request, "params"), "port"),
          ==, 22);
      netd_answer (netd, request, bad[i].answer, -1);
      g_assert_null (dial_end (network, &await, &error));
      g_assert_error (error, VMM_ERROR, (int) bad[i].code);
      g_assert_nonnull (strstr (error->message, bad[i].message));
      g_clear_error (&error);
    }

  /* A descriptor that is no stream, then one that is. */
  for (guint i = 0; i < 2; i++)
    {
      g_autoptr (JsonObject) request = NULL;

      g_assert_cmpint (socketpair (AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), ==, 0);
      vmm_network_dial_async (network, "1a2b3c4d", "10.77.0.2", 22, NULL, test_await_cb, &await);
      request = netd_hear (netd, "dial");
      netd_answer (netd, request, "\"result\":{}", i == 0 ? netd->page_fd : pair[0]);
      close (pair[0]);
      g_clear_object (&stream);
      stream = dial_end (network, &await, i == 0 ? NULL : &error);
      g_assert_no_error (error);
      g_assert_cmpint (stream != NULL, ==, i == 1);
      if (i == 0)
        close (pair[1]);
    }
  g_assert_cmpint (write (pair[1], "x", 1), ==, 1);
  g_assert_cmpint (
      g_input_stream_read (g_io_stream_get_input_stream (stream), &byte, 1, NULL, NULL), ==, 1);
  g_assert_cmpint (byte, ==, 'x');
  close (pair[1]);
  close_well (network, FALSE);
}

/* The descriptor of a connection that nobody waits for any more is not given to the next one. */
static void
test_dial_cancelled (Fixture *fixture, gconstpointer data)
{
  g_autoptr (Netd) netd = NULL;
  g_autoptr (VmmNetwork) network = open_well (fixture, &netd);
  g_autoptr (GCancellable) cancellable = g_cancellable_new ();
  TestAwait first = TEST_AWAIT_INIT;
  TestAwait second = TEST_AWAIT_INIT;
  g_autoptr (GIOStream) stream = NULL;
  g_autoptr (JsonObject) given_up = NULL;
  g_autoptr (JsonObject) wanted = NULL;
  g_autoptr (GError) error = NULL;
  int stale[2];
  int fresh[2];
  char byte = 0;

  attach_well (fixture, network);
  g_queue_clear_full (&netd->heard, (GDestroyNotify) json_object_unref);
  netd->answers = FALSE;
  g_assert_cmpint (socketpair (AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, stale), ==, 0);
  g_assert_cmpint (socketpair (AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fresh), ==, 0);
  vmm_network_dial_async (network, "1a2b3c4d", "10.77.0.2", 22, cancellable, test_await_cb, &first);
  given_up = netd_hear (netd, "dial");
  g_cancellable_cancel (cancellable);
  g_assert_null (dial_end (network, &first, &error));
  g_assert_error (error, G_IO_ERROR, G_IO_ERROR_CANCELLED);
  g_clear_error (&error);
  vmm_network_dial_async (network, "1a2b3c4d", "10.77.0.2", 23, NULL, test_await_cb, &second);
  wanted = netd_hear (netd, "dial");
  netd_answer (netd, given_up, "\"result\":{}", stale[0]);
  netd_answer (netd, wanted, "\"result\":{}", fresh[0]);
  close (stale[0]);
  close (fresh[0]);
  stream = dial_end (network, &second, &error);
  g_assert_no_error (error);
  g_assert_cmpint (read (stale[1], &byte, 1), ==, 0); /* closed */
  g_assert_cmpint (write (fresh[1], "x", 1), ==, 1);
  g_assert_cmpint (
      g_input_stream_read (g_io_stream_get_input_stream (stream), &byte, 1, NULL, NULL), ==, 1);
  close (stale[1]);
  close (fresh[1]);
  close_well (network, FALSE);
}

static void
test_forward (Fixture *fixture, gconstpointer data)
{
  g_autoptr (Netd) netd = NULL;
  g_autoptr (VmmNetwork) network = open_well (fixture, &netd);
  VmmForwardSpec spec = make_forward ("tcp", 0);
  g_autoptr (JsonObject) request = NULL;
  g_autoptr (JsonObject) told = NULL;
  g_autoptr (JsonObject) undone = NULL;
  g_autoptr (GAsyncResult) result = NULL;
  g_autoptr (GError) error = NULL;
  TestAwait await = TEST_AWAIT_INIT;

  g_assert_cmpuint (forward (network, &spec, &error), ==, 0);
  g_assert_error (error, VMM_ERROR, VMM_ERROR_NOT_FOUND);
  g_clear_error (&error);
  attach_well (fixture, network);
  spec.protocol = "sctp";
  g_assert_cmpuint (forward (network, &spec, &error), ==, 0);
  g_assert_error (error, VMM_ERROR, VMM_ERROR_UNSUPPORTED);
  g_clear_error (&error);

  spec.protocol = "udp";
  g_queue_clear_full (&netd->heard, (GDestroyNotify) json_object_unref);
  netd->answers = FALSE;
  vmm_network_forward_async (network, &spec, NULL, test_await_cb, &await);
  request = netd_hear (netd, "forward");
  assert_file_has (fixture, "\"host_port\" : 0", TRUE);
  g_assert_cmpstr (param_of (request, "id"), ==, "f1");
  g_assert_cmpstr (param_of (request, "protocol"), ==, "udp");
  g_assert_cmpstr (param_of (request, "host_address"), ==, "127.0.0.1");
  netd_answer (netd, request, "\"result\":{\"host_port\":41000}", -1);
  result = test_await (&await);
  g_assert_cmpuint (vmm_network_forward_finish (network, result, &error), ==, 41000);
  g_assert_no_error (error);
  assert_file_has (fixture, "\"host_port\" : 41000", TRUE);

  /* Another port than the one asked for is none. */
  netd->answers = TRUE;
  spec.id = "f2";
  spec.host_port = 1234;
  g_assert_cmpuint (forward (network, &spec, &error), ==, 0);
  g_assert_error (error, VMM_ERROR, VMM_ERROR_INTERNAL);
  g_clear_error (&error);
  told = netd_hear (netd, "forward");
  undone = netd_hear (netd, "unforward");
  test_await_condition (file_has_no_f2, fixture);

  g_assert_true (unforward (network, "f1", &error));
  g_assert_no_error (error);
  assert_file_has (fixture, "\"f1\"", FALSE);
  close_well (network, FALSE);
}

/* What neither knows is not found; what only one knew is gone. */
static void
test_absent (Fixture *fixture, gconstpointer data)
{
  static const char absent[] = "\"error\":{\"code\":\"not_found\",\"message\":\"what?\"}";
  g_autoptr (Netd) netd = NULL;
  g_autoptr (VmmNetwork) network = open_well (fixture, &netd);

  attach_well (fixture, network);
  g_queue_clear_full (&netd->heard, (GDestroyNotify) json_object_unref);
  netd->answers = FALSE;
  for (guint i = 0; i < 2; i++)
    {
      TestAwait await = TEST_AWAIT_INIT;
      g_autoptr (JsonObject) request = NULL;
      g_autoptr (GAsyncResult) result = NULL;
      g_autoptr (GError) error = NULL;

      vmm_network_detach_async (network, "1a2b3c4d", NULL, test_await_cb, &await);
      request = netd_hear (netd, "detach");
      netd_answer (netd, request, absent, -1);
      result = test_await (&await);
      g_assert_cmpint (vmm_network_detach_finish (network, result, &error), ==, i == 0);
      if (i == 1)
        g_assert_error (error, VMM_ERROR, VMM_ERROR_NOT_FOUND);
    }
  netd->answers = TRUE;
  close_well (network, FALSE);
}

/* A program that is not the right one is not left running. */
static void
test_bad_hello (Fixture *fixture, gconstpointer data)
{
  g_autofree char *deep = g_strnfill (60000, '[');
  const struct
  {
    const char *hello;
    int fd; /* 0: the page, 1: none, 2: a file that is not sealed, 3: a pipe, 4: a page too short */
    VmmError code;
    const char *message;
  } cases[] = {
    { "hi", 0, VMM_ERROR_INTERNAL, "not a JSON object" },
    { "[]", 0, VMM_ERROR_INTERNAL, "not a JSON object" },
    { "", 0, VMM_ERROR_INTERNAL, "not a JSON object" },
    { deep, 0, VMM_ERROR_INTERNAL, "not a line of JSON" },
    { "{\"hello\":7}", 0, VMM_ERROR_INTERNAL, "not vmm-netd" },
    { "{\"hello\":\"passt\",\"version\":1}", 0, VMM_ERROR_INTERNAL, "not vmm-netd" },
    { "{\"hello\":\"vmm-netd\",\"version\":2,\"network\":\"lab\"," FEATURES "," COUNTERS "}", 0,
      VMM_ERROR_UNSUPPORTED, "version 2" },
    { "{\"hello\":\"vmm-netd\",\"version\":1,\"network\":\"dev\"," FEATURES "," COUNTERS "}", 0,
      VMM_ERROR_INTERNAL, "another network" },
    { "{\"hello\":\"vmm-netd\",\"version\":1,\"network\":\"lab\",\"features\":[\"attach\",7]"
      "," COUNTERS "}",
      0, VMM_ERROR_UNSUPPORTED, "\"dial\"" },
    { HELLO, 1, VMM_ERROR_INTERNAL, "does not share its counters" },
    { HELLO, 2, VMM_ERROR_INTERNAL, "sealed memfd" },
    { HELLO, 3, VMM_ERROR_INTERNAL, "sealed memfd" },
    { HELLO, 4, VMM_ERROR_INTERNAL, "wrong size" },
    { "{\"hello\":\"vmm-netd\",\"version\":1,\"network\":\"lab\"," FEATURES
      ",\"counters\":[\"bytes-sent\"]}",
      0, VMM_ERROR_INTERNAL, "unknown kind" },
  };
  int files[2];
  int fds[5];

  fds[1] = -1;
  fds[2] = memfd_create ("file", MFD_CLOEXEC);
  g_assert_cmpint (pipe2 (files, O_CLOEXEC), ==, 0);
  fds[3] = files[0];
  fds[4] = memfd_create ("short", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  g_assert_cmpint (fcntl (fds[4], F_ADD_SEALS, F_SEAL_SHRINK), ==, 0);
  for (guint i = 0; i < G_N_ELEMENTS (cases); i++)
    {
      TestAwait await = TEST_AWAIT_INIT;
      g_autoptr (Netd) netd = NULL;
      g_autoptr (VmmNetwork) network = NULL;
      g_autoptr (GError) error = NULL;

      open_start (fixture, &await, NULL);
      test_await_condition (runs, NULL);
      netd = netd_new (fixture->control, cases[i].hello);
      fds[0] = netd->page_fd;
      netd->hello_fd = fds[cases[i].fd];
      network = open_end (fixture, &await, &error);
      g_assert_null (network);
      g_assert_error (error, VMM_ERROR, (int) cases[i].code);
      if (strstr (error->message, cases[i].message) == NULL)
        g_assert_cmpstr (error->message, ==, cases[i].message);
      g_assert_false (runs (NULL));
    }
  close (fds[2]);
  close (files[0]);
  close (files[1]);
  close (fds[4]);
}

static void
test_dies_at_once (Fixture *fixture, gconstpointer data)
{
  TestAwait await = TEST_AWAIT_INIT;
  g_autoptr (GError) error = NULL;

  open_start (fixture, &await, NULL);
  test_await_condition (runs, NULL);
  write_log (fixture, "first\nvmm-netd: no user\tnamespace here\n\n");
  test_fakes_exit ("lab", "network", 1, 0);
  g_assert_null (open_end (fixture, &await, &error));
  g_assert_error (error, VMM_ERROR, VMM_ERROR_INTERNAL);
  g_assert_cmpstr (error->message, ==,
                   "vmm-netd ended (exit status 1): vmm-netd: no user namespace here");
}

static void
test_start_fails (Fixture *fixture, gconstpointer data)
{
  TestAwait await = TEST_AWAIT_INIT;
  TestAwait second = TEST_AWAIT_INIT;
  g_autofree char *long_name = g_strnfill (100, 'n');
  g_autoptr (GError) error = NULL;

  test_fakes_fail ("launcher.start", VMM_ERROR_INTERNAL, "no fork today");
  open_start (fixture, &await, NULL);
  g_assert_null (open_end (fixture, &await, &error));
  g_assert_cmpstr (error->message, ==, "no fork today");
  g_clear_error (&error);

  fixture->spec.directory = long_name;
  open_start (fixture, &second, NULL);
  g_assert_null (open_end (fixture, &second, &error));
  g_assert_error (error, VMM_ERROR, VMM_ERROR_INVALID_REQUEST);
  g_assert_nonnull (strstr (error->message, "107"));
}

static void
test_open_cancelled (Fixture *fixture, gconstpointer data)
{
  g_autoptr (GCancellable) cancellable = g_cancellable_new ();
  TestAwait await = TEST_AWAIT_INIT;
  g_autoptr (GError) error = NULL;

  open_start (fixture, &await, cancellable);
  test_await_condition (runs, NULL);
  g_cancellable_cancel (cancellable);
  g_assert_null (open_end (fixture, &await, &error));
  g_assert_error (error, G_IO_ERROR, G_IO_ERROR_CANCELLED);
  g_assert_false (runs (NULL));
}

/* Ten seconds each, at the same time: a program that never says hello, and a request without an
 * answer. */
static void
test_silence (Fixture *fixture, gconstpointer data)
{
  g_autoptr (Netd) netd = NULL;
  g_autoptr (VmmNetwork) network = open_well (fixture, &netd);
  g_autofree char *directory = g_build_filename (fixture->root, "networks", "dev", NULL);
  g_autofree char *control = g_build_filename (directory, "control.sock", NULL);
  g_autoptr (Netd) silent = NULL;
  g_autoptr (GAsyncResult) result = NULL;
  g_autoptr (GError) error = NULL;
  TestAwait opened = TEST_AWAIT_INIT;
  TestAwait attached = TEST_AWAIT_INIT;

  netd->answers = FALSE;
  vmm_network_attach_async (network, make_port (fixture), NULL, test_await_cb, &attached);
  g_assert_cmpint (g_mkdir (directory, 0750), ==, 0);
  silent = netd_new (control, NULL);
  fixture->spec.name = "dev";
  fixture->spec.directory = directory;
  open_start (fixture, &opened, NULL);

  result = test_await (&attached);
  g_assert_null (vmm_network_attach_finish (network, result, &error));
  g_assert_error (error, VMM_ERROR, VMM_ERROR_TIMEOUT);
  g_clear_error (&error);
  g_assert_null (open_end (fixture, &opened, &error));
  g_assert_error (error, VMM_ERROR, VMM_ERROR_TIMEOUT);
  g_assert_false (test_fakes_is_running ("dev", "network"));
  g_assert_true (runs (NULL));
  close_well (network, FALSE);
}

/* It dies with a request on its way: the request fails, the network fails and recovers, what was
 * recorded is still there, and the sums go on. */
static void
test_death_during_a_request (Fixture *fixture, gconstpointer data)
{
  Netd *netd = NULL;
  g_autoptr (VmmNetwork) network = open_well (fixture, &netd);
  g_autoptr (JsonObject) request = NULL;
  g_autoptr (GAsyncResult) result = NULL;
  g_autoptr (Netd) next = NULL;
  g_autoptr (GError) error = NULL;
  VmmNetworkCounters counters;
  TestAwait await = TEST_AWAIT_INIT;

  attach_well (fixture, network);
  g_queue_clear_full (&netd->heard, (GDestroyNotify) json_object_unref);
  netd->page->counts[0] = 100;
  netd->answers = FALSE;
  vmm_network_dial_async (network, "1a2b3c4d", "10.77.0.2", 22, NULL, test_await_cb, &await);
  request = netd_hear (netd, "dial");
  write_log (fixture, "out of luck\n");
  test_fakes_exit ("lab", "network", 0, 11);
  netd_free (netd);
  result = test_await (&await);
  g_assert_null (vmm_network_dial_finish (network, result, &error));
  g_assert_error (error, VMM_ERROR, VMM_ERROR_INTERNAL);
  g_clear_error (&error);
  test_await_condition (has_failed, fixture);
  g_assert_nonnull (strstr (fixture->reason, "vmm-netd ended (signal: segmentation fault"));
  g_assert_nonnull (strstr (fixture->reason, "out of luck"));

  test_await_condition (runs, NULL);
  assert_file_has (fixture, "1a2b3c4d", TRUE);
  next = netd_new (fixture->control, HELLO);
  test_await_condition (has_recovered, fixture);
  next->page->counts[0] = 11;
  g_assert_true (vmm_network_get_counters (network, &counters));
  g_assert_cmpuint (counters.bytes_sent, ==, 111);
  g_assert_cmpuint (fixture->n_failed, ==, 1);
  close_well (network, FALSE);
}

/* What is to be is asked for again once there is somebody to ask. */
static void
test_death_during_an_attach (Fixture *fixture, gconstpointer data)
{
  Netd *netd = NULL;
  g_autoptr (VmmNetwork) network = open_well (fixture, &netd);
  g_autoptr (Netd) next = NULL;
  g_autoptr (JsonObject) lost = NULL;
  g_autoptr (JsonObject) heard = NULL;
  g_autoptr (GAsyncResult) result = NULL;
  g_autoptr (VmmAttachment) attachment = NULL;
  g_autoptr (GError) error = NULL;
  TestAwait await = TEST_AWAIT_INIT;

  netd->answers = FALSE;
  vmm_network_attach_async (network, make_port (fixture), NULL, test_await_cb, &await);
  lost = netd_hear (netd, "attach");
  test_fakes_exit ("lab", "network", 0, 11);
  netd_free (netd);
  test_await_condition (has_failed, fixture);

  test_await_condition (runs, NULL);
  next = netd_new (fixture->control, HELLO);
  heard = netd_hear (next, "attach");
  g_assert_cmpstr (param_of (heard, "ip"), ==, "10.77.0.2");
  result = test_await (&await);
  attachment = vmm_network_attach_finish (network, result, &error);
  g_assert_no_error (error);
  close_well (network, FALSE);
}

/* Dies of whatever it is asked for, as often as it is asked. */
static Netd *
netd_dies_of (Fixture *fixture, Netd *netd, const char *method)
{
  g_queue_clear_full (&netd->heard, (GDestroyNotify) json_object_unref);
  for (guint i = 0; i < 3; i++)
    {
      g_autoptr (JsonObject) lost = NULL;

      netd->answers = FALSE;
      lost = netd_hear (netd, method);
      test_fakes_exit ("lab", "network", 0, 11);
      netd_free (netd);
      test_await_condition (runs, NULL);
      netd = netd_new (fixture->control, HELLO);
    }
  return netd;
}

/* One that dies of each attempt is not asked for ever. */
static void
test_death_of_each_attach (Fixture *fixture, gconstpointer data)
{
  Netd *netd = NULL;
  g_autoptr (VmmNetwork) network = open_well (fixture, &netd);
  g_autoptr (GAsyncResult) result = NULL;
  g_autoptr (GError) error = NULL;
  TestAwait await = TEST_AWAIT_INIT;

  vmm_network_attach_async (network, make_port (fixture), NULL, test_await_cb, &await);
  netd = netd_dies_of (fixture, netd, "attach");
  result = test_await (&await);
  g_assert_null (vmm_network_attach_finish (network, result, &error));
  g_assert_error (error, VMM_ERROR, VMM_ERROR_INTERNAL);
  close_well (network, FALSE);
  netd_free (netd);
}

/* What is to go is not in the file any more, and whoever reads that knows nothing of it: it went.
 * An error would leave it in the caller's records, with nobody listening. */
static void
test_death_of_each_withdrawal (Fixture *fixture, gconstpointer data)
{
  Netd *netd = NULL;
  g_autoptr (VmmNetwork) network = open_well (fixture, &netd);
  VmmForwardSpec spec = make_forward ("tcp", 0);
  g_autoptr (GAsyncResult) unforwarded = NULL;
  g_autoptr (GAsyncResult) detached = NULL;
  g_autoptr (GError) error = NULL;
  TestAwait await = TEST_AWAIT_INIT;

  attach_well (fixture, network);
  g_assert_cmpuint (forward (network, &spec, NULL), ==, 40022);
  vmm_network_unforward_async (network, spec.id, NULL, test_await_cb, &await);
  netd = netd_dies_of (fixture, netd, "unforward");
  unforwarded = test_await (&await);
  g_assert_true (vmm_network_unforward_finish (network, unforwarded, &error));
  g_assert_no_error (error);
  assert_file_has (fixture, "\"f1\"", FALSE);

  await = (TestAwait) TEST_AWAIT_INIT;
  vmm_network_detach_async (network, "1a2b3c4d", NULL, test_await_cb, &await);
  netd = netd_dies_of (fixture, netd, "detach");
  detached = test_await (&await);
  g_assert_true (vmm_network_detach_finish (network, detached, &error));
  g_assert_no_error (error);
  assert_file_has (fixture, "1a2b3c4d", FALSE);
  close_well (network, FALSE);
  netd_free (netd);
}

/* A daemon was killed while it wrote. */
static void
test_rest_of_a_write (Fixture *fixture, gconstpointer data)
{
  g_autofree char *folder = g_path_get_dirname (fixture->file);
  g_autofree char *rest = g_build_filename (folder, ".netd-01234567.json", NULL);
  g_autofree char *other = g_build_filename (folder, ".netd-0123.json", NULL);
  Netd *netd = NULL;
  g_autoptr (VmmNetwork) network = NULL;

  g_assert_true (g_file_set_contents (rest, "{", -1, NULL));
  g_assert_true (g_file_set_contents (other, "{", -1, NULL));
  network = open_well (fixture, &netd);
  g_assert_false (g_file_test (rest, G_FILE_TEST_EXISTS));
  g_assert_true (g_file_test (other, G_FILE_TEST_EXISTS));
  g_assert_cmpint (g_unlink (other), ==, 0);
  close_well (network, FALSE);
  netd_free (netd);
}

/* Somebody has removed its file. */
static void
test_file_is_made_again (Fixture *fixture, gconstpointer data)
{
  Netd *netd = NULL;
  g_autoptr (VmmNetwork) network = open_well (fixture, &netd);
  g_autoptr (Netd) next = NULL;

  attach_well (fixture, network);
  g_assert_cmpint (g_unlink (fixture->file), ==, 0);
  test_fakes_exit ("lab", "network", 0, 0);
  netd_free (netd);
  test_await_condition (has_failed, fixture);
  test_await_condition (runs, NULL);
  assert_file_has (fixture, "1a2b3c4d", TRUE);
  next = netd_new (fixture->control, HELLO);
  test_await_condition (has_recovered, fixture);
  close_well (network, FALSE);
}

/* The end of the connection is seen before that of the process. */
static void
test_connection_ends_first (Fixture *fixture, gconstpointer data)
{
  Netd *netd = NULL;
  g_autoptr (VmmNetwork) network = open_well (fixture, &netd);
  g_autoptr (Netd) next = NULL;

  write_log (fixture, "last words\n");
  netd_free (netd);
  test_drain ();
  g_assert_cmpuint (fixture->n_failed, ==, 0);
  test_fakes_exit ("lab", "network", 1, 0);
  test_await_condition (has_failed, fixture);
  g_assert_cmpstr (fixture->reason, ==, "vmm-netd ended (exit status 1): last words");
  test_await_condition (runs, NULL);
  next = netd_new (fixture->control, HELLO);
  test_await_condition (has_recovered, fixture);
  close_well (network, FALSE);
}

/* A request that is made meanwhile waits and is then answered. */
static void
test_request_while_down (Fixture *fixture, gconstpointer data)
{
  Netd *netd = NULL;
  g_autoptr (VmmNetwork) network = open_well (fixture, &netd);
  g_autoptr (Netd) next = NULL;
  g_autoptr (JsonObject) request = NULL;
  g_autoptr (VmmAttachment) attachment = NULL;
  g_autoptr (GAsyncResult) result = NULL;
  g_autoptr (GError) error = NULL;
  TestAwait await = TEST_AWAIT_INIT;

  test_fakes_exit ("lab", "network", 1, 0);
  netd_free (netd);
  vmm_network_attach_async (network, make_port (fixture), NULL, test_await_cb, &await);
  test_await_condition (runs, NULL);
  test_drain ();
  g_assert_null (await.result);
  next = netd_new (fixture->control, HELLO);
  result = test_await (&await);
  attachment = vmm_network_attach_finish (network, result, &error);
  g_assert_no_error (error);
  request = netd_hear (next, "attach");
  close_well (network, FALSE);
}

/* Closing ends the waiting. */
static void
test_close_while_down (Fixture *fixture, gconstpointer data)
{
  Netd *netd = NULL;
  g_autoptr (VmmNetwork) network = open_well (fixture, &netd);
  g_autoptr (GAsyncResult) result = NULL;
  g_autoptr (GError) error = NULL;
  TestAwait await = TEST_AWAIT_INIT;

  test_fakes_exit ("lab", "network", 1, 0);
  netd_free (netd);
  test_await_condition (runs, NULL);
  vmm_network_attach_async (network, make_port (fixture), NULL, test_await_cb, &await);
  close_well (network, FALSE);
  g_assert_false (runs (NULL));
  result = test_await (&await);
  g_assert_null (vmm_network_attach_finish (network, result, &error));
  g_assert_error (error, VMM_ERROR, VMM_ERROR_CONFLICT);
  g_assert_false (g_file_test (fixture->file, G_FILE_TEST_EXISTS));
}

static void
test_restart_loop (Fixture *fixture, gconstpointer data)
{
  Netd *netd = NULL;
  g_autoptr (VmmNetwork) network = open_well (fixture, &netd);
  g_autoptr (Netd) next = NULL;

  netd_free (netd);
  for (guint i = 0; i < 5; i++)
    {
      test_await_condition (runs, NULL);
      test_fakes_exit ("lab", "network", 3, 0);
    }
  test_await_condition (runs, NULL);
  g_assert_cmpuint (test_fakes_count ("launcher.start network"), ==, 6);
  g_assert_cmpuint (fixture->n_recovered, ==, 0);
  g_assert_cmpuint (fixture->n_failed, >, 0);
  next = netd_new (fixture->control, HELLO);
  test_await_condition (has_recovered, fixture);
  g_assert_cmpuint (fixture->n_recovered, ==, 1);
  close_well (network, FALSE);
}

static gboolean
has_two_clients (gpointer netd)
{
  return ((Netd *) netd)->n_clients >= 2 && ((Netd *) netd)->client >= 0;
}

/* What it says after the hello: each of these ends the connection, and it is connected again. */
static void
test_garbage (Fixture *fixture, gconstpointer data)
{
  g_autofree char *deep = g_strnfill (60000, '{');
  g_autofree char *wide = g_strnfill (66000, 'x');
  const char *const lines[] = {
    "garbage", "[]", "{}", "{\"id\":99,\"result\":{}}", "{\"id\":-1}", deep, wide,
  };

  for (guint i = 0; i < G_N_ELEMENTS (lines); i++)
    {
      g_autoptr (Netd) netd = NULL;
      g_autoptr (VmmNetwork) network = open_well (fixture, &netd);

      netd_say (netd, "{\"event\":\"something\",\"new\":[1]}", -1);
      attach_well (fixture, network); /* events are passed over */
      netd_say (netd, lines[i], -1);
      test_await_condition (has_two_clients, netd);
      g_assert_true (detach (network, "1a2b3c4d", NULL));
      g_assert_cmpuint (test_fakes_count ("launcher.start network"), ==, i + 1);
      g_assert_cmpuint (fixture->n_failed, ==, 0);
      close_well (network, FALSE);
    }
}

/* One that never stops talking is hung up on, too. */
static void
test_endless_events (Fixture *fixture, gconstpointer data)
{
  g_autofree char *chunk = NULL;
  g_autoptr (GString) events = g_string_new ("{\"event\":\"x\"}");
  g_autoptr (Netd) netd = NULL;
  g_autoptr (VmmNetwork) network = open_well (fixture, &netd);

  for (guint i = 0; i < 100; i++)
    g_string_append (events, "\n{\"event\":\"x\"}");
  chunk = g_string_free (g_steal_pointer (&events), FALSE);
  for (guint i = 0; i < 1000 && netd->n_clients < 2; i++)
    {
      netd_say (netd, chunk, -1);
      test_drain ();
    }
  test_await_condition (has_two_clients, netd);
  close_well (network, FALSE);
}

static void
test_too_many_descriptors (Fixture *fixture, gconstpointer data)
{
  g_autoptr (Netd) netd = NULL;
  g_autoptr (VmmNetwork) network = open_well (fixture, &netd);

  for (guint i = 0; i < 8 && netd->n_clients < 2; i++)
    netd_say (netd, "{\"event\":\"x\"}", netd->page_fd);
  test_drain ();
  g_assert_cmpuint (netd->n_clients, ==, 1);
  netd_say (netd, "{\"event\":\"x\"}", netd->page_fd);
  test_await_condition (has_two_clients, netd);
  close_well (network, FALSE);
}

/* The daemon goes and comes back: the same process, with its ports; a request is answered by it. */
static void
test_adoption (Fixture *fixture, gconstpointer data)
{
  g_autoptr (Netd) netd = NULL;
  g_autoptr (VmmNetwork) network = NULL;
  g_autoptr (VmmNetwork) again = NULL;
  TestAwait await = TEST_AWAIT_INIT;
  g_autoptr (GError) error = NULL;
  VmmForwardSpec spec = make_forward ("tcp", 0);

  test_fakes.outlives_daemon = TRUE;
  network = open_well (fixture, &netd);
  attach_well (fixture, network);
  g_assert_cmpuint (forward (network, &spec, NULL), ==, 40022);
  close_well (network, TRUE);
  g_clear_object (&network);
  test_fakes_daemon_died ();
  g_assert_true (runs (NULL));

  open_start (fixture, &await, NULL);
  again = open_end (fixture, &await, &error);
  g_assert_no_error (error);
  g_assert_cmpuint (test_fakes_count ("launcher.start network"), ==, 1);
  g_assert_cmpuint (test_fakes_count ("launcher.find network"), ==, 1);
  assert_file_has (fixture, "1a2b3c4d", TRUE);
  assert_file_has (fixture, "\"host_port\" : 40022", TRUE);
  attach_well (fixture, again);
  g_assert_true (detach (again, "1a2b3c4d", &error));
  assert_file_has (fixture, "\"host_port\"", FALSE); /* its forwards went with it */
  close_well (again, FALSE);
  g_assert_false (runs (NULL));
}

/* A VM that is gone, a forward that was never recorded. What this daemon said itself is not in
 * question. */
static void
test_strays_are_dropped (Fixture *fixture, gconstpointer data)
{
  static const char *const vms[] = { "1a2b3c4d", NULL };
  static const char *const forwards[] = { "f1", NULL };
  VmmNetworkPort gone = { "99999999", "02:f4:0a:4d:00:09", "10.77.0.9", "/tmp/gone", NULL };
  VmmForwardSpec spec = make_forward ("tcp", 0);
  g_autoptr (Netd) netd = NULL;
  g_autoptr (VmmNetwork) network = NULL;
  g_autoptr (VmmNetwork) again = NULL;
  g_autoptr (VmmAttachment) attachment = NULL;
  g_autoptr (JsonObject) unforward = NULL;
  g_autoptr (JsonObject) detach = NULL;
  TestAwait await = TEST_AWAIT_INIT;

  test_fakes.outlives_daemon = TRUE;
  network = open_well (fixture, &netd);
  attach_well (fixture, network);
  attachment = attach (network, &gone, NULL);
  g_assert_cmpuint (forward (network, &spec, NULL), ==, 40022);
  spec.id = "f2";
  g_assert_cmpuint (forward (network, &spec, NULL), ==, 40022);
  vmm_network_keep_only (network, (const char *const[]){ NULL }, (const char *const[]){ NULL });
  assert_file_has (fixture, "\"f2\"", TRUE);
  close_well (network, TRUE);
  test_fakes_daemon_died ();

  open_start (fixture, &await, NULL);
  again = open_end (fixture, &await, NULL);
  spec.id = "f3";
  g_assert_cmpuint (forward (again, &spec, NULL), ==, 40022);
  g_queue_clear_full (&netd->heard, (GDestroyNotify) json_object_unref);
  vmm_network_keep_only (again, vms, forwards);
  unforward = netd_hear (netd, "unforward");
  g_assert_cmpstr (param_of (unforward, "id"), ==, "f2");
  detach = netd_hear (netd, "detach");
  g_assert_cmpstr (param_of (detach, "vm"), ==, "99999999");
  test_await_condition (file_has_no_f2, fixture);
  assert_file_has (fixture, "99999999", FALSE);
  assert_file_has (fixture, "1a2b3c4d", TRUE);
  assert_file_has (fixture, "\"f1\"", TRUE);
  assert_file_has (fixture, "\"f3\"", TRUE);
  close_well (again, FALSE);
}

/* The address of a VM that is gone is another's by now. */
static void
test_address_changes_hands (Fixture *fixture, gconstpointer data)
{
  VmmNetworkPort next = { "99999999", "02:f4:0a:4d:00:02", "10.77.0.2", "/tmp/next", NULL };
  VmmForwardSpec spec = make_forward ("tcp", 0);
  g_autoptr (Netd) netd = NULL;
  g_autoptr (VmmNetwork) network = open_well (fixture, &netd);
  g_autoptr (VmmAttachment) attachment = NULL;

  attach_well (fixture, network);
  g_assert_cmpuint (forward (network, &spec, NULL), ==, 40022);
  attachment = attach (network, &next, NULL);
  assert_file_has (fixture, "1a2b3c4d", FALSE);
  close_well (network, FALSE);
}

/* An earlier process is replaced when the network is to be otherwise, when it is a newer one, and
 * when it died while nobody looked. */
static void
test_adoption_refused (Fixture *fixture, gconstpointer data)
{
  static const char *const reasons[] = { "mtu", "version", "dead" };

  test_fakes.outlives_daemon = TRUE;
  for (guint i = 0; i < G_N_ELEMENTS (reasons); i++)
    {
      Netd *netd = NULL;
      g_autoptr (VmmNetwork) network = open_well (fixture, &netd);
      g_autoptr (VmmNetwork) again = NULL;
      g_autoptr (Netd) next = NULL;
      g_autoptr (GError) error = NULL;
      TestAwait await = TEST_AWAIT_INIT;
      guint n_starts = test_fakes_count ("launcher.start network");

      attach_well (fixture, network);
      close_well (network, TRUE);
      g_clear_object (&network);
      test_fakes_daemon_died ();
      if (i == 0)
        fixture->spec.mtu = 9000;
      else if (i == 1)
        netd->hello = "{\"hello\":\"vmm-netd\",\"version\":2}";
      else
        test_fakes_exit ("lab", "network", 1, 0);
      open_start (fixture, &await, NULL);
      while (test_fakes_count ("launcher.start network") == n_starts)
        g_main_context_iteration (NULL, TRUE);
      netd_free (netd);
      test_await_condition (runs, NULL);
      next = netd_new (fixture->control, HELLO);
      again = open_end (fixture, &await, &error);
      g_assert_no_error (error);
      assert_file_has (fixture, "1a2b3c4d", TRUE);
      close_well (again, FALSE);
    }
}

/* A file that an earlier run damaged is as good as none. */
static void
test_damaged_file (Fixture *fixture, gconstpointer data)
{
  static const char *const contents[]
      = { "", "{", "[]", "{\"version\":1,\"ports\":[7,{}],\"forwards\":{},\"handle\":[]}" };

  for (guint i = 0; i < G_N_ELEMENTS (contents); i++)
    {
      g_autoptr (Netd) netd = NULL;
      g_autoptr (VmmNetwork) network = NULL;

      g_assert_true (g_file_set_contents (fixture->file, contents[i], -1, NULL));
      network = open_well (fixture, &netd);
      attach_well (fixture, network);
      close_well (network, FALSE);
    }
}

/* --- With the real program and real processes --- */

static gint64
recorded_pid (Fixture *fixture)
{
  g_autofree char *content = read_file (fixture);
  g_autoptr (JsonNode) node = json_from_string (content, NULL);
  JsonObject *handle = json_object_get_object_member (json_node_get_object (node), "handle");

  return json_object_get_int_member (handle, "pid");
}

static void
test_real (Fixture *fixture, gconstpointer data)
{
  g_autofree char *helpers
      = g_build_filename (g_getenv ("VMM_TEST_BUILD_ROOT"), "plugins", "netd", NULL);
  g_autofree char *helper = g_build_filename (helpers, "vmm-netd", NULL);
  g_autoptr (VmmNetwork) network = NULL;
  g_autoptr (VmmNetwork) again = NULL;
  g_autoptr (GDir) left = NULL;
  g_autoptr (GError) error = NULL;
  VmmForwardSpec spec = make_forward ("tcp", 0);
  TestAwait await = TEST_AWAIT_INIT;
  TestAwait second = TEST_AWAIT_INIT;
  VmmNetworkCounters counters;
  guint port;

  if (!g_file_test (helper, G_FILE_TEST_IS_EXECUTABLE))
    {
      fixture->root = test_make_directory ();
      g_test_skip ("vmm-netd is not built");
      return;
    }
  fixture->root = test_make_directory ();
  load (fixture, helpers);
  fixture->launcher = g_object_ref (
      VMM_LAUNCHER (test_choose_plugin (fixture->registry, VMM_PLUGIN_KIND_LAUNCHER, "process")));
  open_start (fixture, &await, NULL);
  network = open_end (fixture, &await, &error);
  g_assert_no_error (error);
  attach_well (fixture, network);
  g_assert_true (vmm_network_get_counters (network, &counters));
  g_assert_cmpuint (counters.bytes_received, ==, 0);
  port = forward (network, &spec, &error);
  g_assert_no_error (error);
  g_assert_cmpuint (port, >, 0);

  /* Killed, it comes back with all that it had. */
  g_assert_cmpint (kill ((pid_t) recorded_pid (fixture), SIGKILL), ==, 0);
  test_await_condition (has_recovered, fixture);
  g_assert_cmpuint (fixture->n_failed, ==, 1);
  spec.host_port = (guint16) port;
  g_assert_cmpuint (forward (network, &spec, &error), ==, port);
  g_assert_no_error (error);

  g_assert_true (unforward (network, "f1", &error));
  g_assert_no_error (error);
  g_assert_true (detach (network, "1a2b3c4d", &error));
  g_assert_no_error (error);
  close_well (network, FALSE);
  left = g_dir_open (fixture->directory, 0, NULL);
  g_assert_cmpstr (g_dir_read_name (left), ==, NULL);
  g_assert_cmpuint (fixture->n_failed, ==, 1);

  /* A damaged network section is what netd itself refuses, with one line. */
  fixture->spec.cidr = "nonsense";
  open_start (fixture, &second, NULL);
  again = open_end (fixture, &second, &error);
  g_assert_null (again);
  g_assert_nonnull (strstr (error->message, "exit status 1"));
}

int
main (int argc, char **argv)
{
  g_test_init (&argc, &argv, NULL);
#define ADD(path, function)                                                                        \
  g_test_add ("/network-slirp/" path, Fixture, NULL, set_up, function, tear_down)
  ADD ("available", test_available);
  ADD ("open-and-close", test_open_and_close);
  ADD ("open/bad-hello", test_bad_hello);
  ADD ("open/dies-at-once", test_dies_at_once);
  ADD ("open/start-fails", test_start_fails);
  ADD ("open/cancelled", test_open_cancelled);
  ADD ("open/damaged-file", test_damaged_file);
  ADD ("attach", test_attach);
  ADD ("attach/fails", test_attach_fails);
  ADD ("dial", test_dial);
  ADD ("dial/cancelled", test_dial_cancelled);
  ADD ("forward", test_forward);
  ADD ("absent", test_absent);
  ADD ("file-cannot-be-written", test_file_cannot_be_written);
  ADD ("silence", test_silence);
  ADD ("garbage", test_garbage);
  ADD ("endless-events", test_endless_events);
  ADD ("too-many-descriptors", test_too_many_descriptors);
  ADD ("death/during-a-request", test_death_during_a_request);
  ADD ("death/during-an-attach", test_death_during_an_attach);
  ADD ("death/of-each-attach", test_death_of_each_attach);
  ADD ("death/of-each-withdrawal", test_death_of_each_withdrawal);
  ADD ("death/rest-of-a-write", test_rest_of_a_write);
  ADD ("death/file-is-made-again", test_file_is_made_again);
  ADD ("death/connection-ends-first", test_connection_ends_first);
  ADD ("death/request-while-down", test_request_while_down);
  ADD ("death/close-while-down", test_close_while_down);
  ADD ("death/restart-loop", test_restart_loop);
  ADD ("adoption", test_adoption);
  ADD ("adoption/refused", test_adoption_refused);
  ADD ("adoption/strays-are-dropped", test_strays_are_dropped);
  ADD ("address-changes-hands", test_address_changes_hands);
#undef ADD
  g_test_add ("/network-slirp/real", Fixture, NULL, NULL, test_real, tear_down);
  return g_test_run ();
}

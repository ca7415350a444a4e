/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Fake swtpm, QEMU, vmm-monitor and vhost-device-vsock.
 *
 * Those of a VM know each other by its id: the monitor's journal says what QEMU does, QEMU's
 * end takes swtpm with it. A VM's journal outlives its programs, its numbers only grow. What a
 * fake does depends on test_peer_behaviour alone; everything takes at least one turn of the main
 * loop. */
#include "fake-peers.h"

#include <glib/gstdio.h>
#include <json-glib/json-glib.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fake-peers-private.h"

#define JOURNAL_MAX 1000

static const char *const role_names[TEST_N_ROLES] = { "qemu", "tpm", "monitor", "vsock",
                                                    "tpm-setup" };

static GHashTable *vms;
static TestPeerJournalWatch journal_watch;

/* VMs and journals. */

static void
vm_free (gpointer data)
{
  TestVm *vm = data;

  g_queue_clear_full (&vm->journal, g_free);
  g_free (vm);
}

static TestVm *
vm_get (const char *vm_id)
{
  TestVm *vm;

  if (vms == NULL)
    vms = g_hash_table_new_full (g_str_hash, g_str_equal, g_free, vm_free);
  vm = g_hash_table_lookup (vms, vm_id);
  if (vm == NULL)
    {
      vm = g_new0 (TestVm, 1);
      vm->first_seq = vm->next_seq = 1;
      g_queue_init (&vm->journal);
      g_hash_table_insert (vms, g_strdup (vm_id), vm);
    }
  return vm;
}

static gboolean
is_unused (gpointer key, gpointer value, gpointer user_data)
{
  TestVm *vm = value;

  for (guint i = 0; i < TEST_N_ROLES; i++)
    if (vm->peers[i] != NULL)
      return FALSE;
  return TRUE;
}

void
test_peer_forget (void)
{
  if (vms != NULL)
    g_hash_table_foreach_remove (vms, is_unused, NULL);
  if (vms != NULL && g_hash_table_size (vms) == 0)
    g_clear_pointer (&vms, g_hash_table_unref);
}

void
test_peer_foreach_client (TestPeer *peer, TestClientFunc function, gconstpointer data)
{
  for (guint i = 0; peer != NULL && i < peer->listeners->len; i++)
    {
      TestListener *listener = peer->listeners->pdata[i];

      for (guint k = 0; k < listener->clients->len; k++)
        function (listener->clients->pdata[k], data);
    }
}

static void
send_live (TestClient *client, gconstpointer data)
{
  if (client->live)
    test_lines_send (client->lines, data);
}

void
test_vm_journal (TestVm *vm, const char *event, const char *data)
{
  g_autoptr (GDateTime) now = g_date_time_new_now_utc ();
  g_autofree char *at = g_date_time_format_iso8601 (now);
  char *line = g_strdup_printf ("{\"seq\": %" G_GUINT64_FORMAT ", \"at\": \"%s\", "
                                "\"event\": \"%s\", \"data\": %s}",
                                vm->next_seq++, at, event, data != NULL ? data : "{}");

  g_queue_push_tail (&vm->journal, line);
  if (vm->journal.length > JOURNAL_MAX)
    {
      g_free (g_queue_pop_head (&vm->journal));
      vm->first_seq++;
    }
  test_peer_foreach_client (vm->peers[TEST_ROLE_MONITOR], send_live, line);
  if (journal_watch != NULL)
    journal_watch (event);
}

void
test_peer_watch_journal (TestPeerJournalWatch watch)
{
  journal_watch = watch;
}

void
test_peer_journal (const char *vm_id, const char *event, const char *data)
{
  test_vm_journal (vm_get (vm_id), event, data);
}

/* Sockets. */

static void
client_free (gpointer data)
{
  TestClient *client = data;

  test_lines_free (client->lines);
  g_free (client);
}

static void
listener_free (gpointer data)
{
  TestListener *listener = data;
  struct stat now;

  g_clear_pointer (&listener->watch, test_watch_free);
  g_ptr_array_unref (listener->clients);
  close (listener->fd);
  /* A program that was started since may have its socket there. */
  if (lstat (listener->path, &now) == 0 && now.st_ino == listener->inode)
    g_unlink (listener->path);
  g_free (listener->path);
  g_free (listener);
}

static void client_line (TestLines *lines, const char *line, gpointer user_data);
static void greet (TestClient *client);
static void accept_cb (gpointer user_data);

static void
client_closed (TestLines *lines, gpointer user_data)
{
  TestClient *client = user_data;
  TestListener *listener = client->listener;

  g_ptr_array_remove (listener->clients, client);
  if (listener->watch == NULL)
    listener->watch = test_watch_new (listener->fd, accept_cb, listener);
}

static void
accept_cb (gpointer user_data)
{
  TestListener *listener = user_data;
  int fd = test_accept (listener->fd);
  TestClient *client;

  if (fd < 0)
    return;
  client = g_new0 (TestClient, 1);
  client->listener = listener;
  client->lines = test_lines_new (fd, client_line, client_closed, client);
  g_ptr_array_add (listener->clients, client);
  /* QEMU serves one client a socket; the next one waits in the backlog. */
  if (listener->peer->role == TEST_ROLE_QEMU)
    g_clear_pointer (&listener->watch, test_watch_free);
  greet (client);
}

gboolean
test_peer_add_listener (TestPeer *peer, const char *path)
{
  int fd = test_listen (path);
  TestListener *listener;
  struct stat now;

  if (fd < 0 || lstat (path, &now) != 0)
    return FALSE;
  listener = g_new0 (TestListener, 1);
  listener->inode = now.st_ino;
  listener->peer = peer;
  listener->path = g_strdup (path);
  listener->fd = fd;
  listener->clients = g_ptr_array_new_with_free_func (client_free);
  listener->watch = test_watch_new (fd, accept_cb, listener);
  g_ptr_array_add (peer->listeners, listener);
  return TRUE;
}

/* The end of a program. */

static gboolean
exit_now_cb (gpointer user_data)
{
  TestPeer *peer = user_data;
  TestVm *vm = peer->vm;
  TestPeer *tpm = vm->peers[TEST_ROLE_TPM];
  TestPeerExit exit_cb = peer->exit_cb;
  gpointer data = peer->user_data;
  int code = peer->exit_code;
  int signum = peer->exit_signal;

  peer->exit_source = 0;
  g_ptr_array_set_size (peer->listeners, 0);
  if (vm->peers[peer->role] == peer)
    vm->peers[peer->role] = NULL;
  if (peer->role == TEST_ROLE_QEMU)
    {
      test_vm_journal (vm, "exit", NULL);
      if (tpm != NULL)
        test_peer_exit (tpm, 0, 0); /* swtpm --terminate */
    }
  if (exit_cb != NULL)
    exit_cb (code, signum, data);
  return G_SOURCE_REMOVE;
}

void
test_peer_exit (TestPeer *peer, int code, int signum)
{
  if (peer->exiting)
    return;
  peer->exiting = TRUE;
  peer->exit_code = signum != 0 ? -1 : code;
  peer->exit_signal = signum;
  g_clear_handle_id (&peer->timer, g_source_remove);
  peer->exit_source = g_timeout_add (0, exit_now_cb, peer);
}

/* swtpm. */

static gboolean
tpm_listen (TestPeer *peer, const char *const *argv, const char *directory)
{
  for (guint i = 0; argv[i] != NULL; i++)
    if (g_str_equal (argv[i], "--ctrl") && argv[i + 1] != NULL)
      {
        const char *value = strstr (argv[i + 1], "path=");
        g_autofree char *path = NULL;

        g_assert_nonnull (value);
        value += strlen ("path=");
        path = g_path_is_absolute (value) ? g_strdup (value)
                                          : g_build_filename (directory, value, NULL);
        return test_peer_add_listener (peer, path);
      }
  return FALSE;
}

/* swtpm_setup, which ends when it is done: what it leaves begins with swtpm's header. */
static gboolean
write_tpm_state (const char *directory)
{
  static const char state[] = "\2\1\0\12\0\0\0\0\0\20secret";
  g_autofree char *path = g_build_filename (directory, "tpm2-00.permall", NULL);

  return g_file_set_contents (path, state, sizeof state - 1, NULL);
}

/* vhost-device-vsock. */

static gboolean
vsock_listen (TestPeer *peer, const char *const *argv)
{
  if (test_peer_behaviour.vsock_silent)
    return TRUE;
  for (guint i = 0; argv[i] != NULL; i++)
    if (g_str_equal (argv[i], "--socket") && argv[i + 1] != NULL)
      return test_peer_add_listener (peer, argv[i + 1]);
  return FALSE;
}

/* vmm-monitor. */

static gboolean
monitor_listen (TestPeer *peer, const char *const *argv)
{
  for (guint i = 0; argv[i] != NULL; i++)
    if (g_str_equal (argv[i], "--directory") && argv[i + 1] != NULL)
      {
        g_autofree char *path = g_build_filename (argv[i + 1], "monitor.sock", NULL);

        return test_peer_add_listener (peer, path);
      }
  return FALSE;
}

static void
monitor_line (TestPeer *peer, TestClient *client, const char *line)
{
  g_autoptr (JsonNode) node = json_from_string (line, NULL);
  JsonObject *object = node != NULL ? json_node_get_object (node) : NULL;
  guint64 seen = object != NULL ? json_object_get_int_member (object, "read-from") : 0;
  guint64 seq = peer->vm->first_seq;

  for (GList *item = peer->vm->journal.head; item != NULL; item = item->next)
    if (seq++ > seen)
      test_lines_send (client->lines, item->data);
  /* A daemon that knows more than this process ever wrote: its numbers go on. */
  if (seen >= peer->vm->next_seq)
    {
      g_queue_clear_full (&peer->vm->journal, g_free);
      peer->vm->first_seq = peer->vm->next_seq = seen + 1;
    }
  client->live = TRUE;
}

/* All of them. */

static void
greet (TestClient *client)
{
  TestPeer *peer = client->listener->peer;

  if (peer->role == TEST_ROLE_TPM)
    test_lines_set_raw (client->lines);
  else if (peer->role == TEST_ROLE_QEMU)
    test_qemu_greet (client);
  else if (peer->role == TEST_ROLE_VSOCK)
    test_peer_exit (peer, 1, 0); /* the fake QEMU does not come: a stranger took its place */
  else if (peer->role == TEST_ROLE_MONITOR && !test_peer_behaviour.monitor_silent)
    test_lines_send (client->lines, "{\"vmm-monitor\": 1, \"features\": [\"journal\"]}");
}

static void
client_line (TestLines *lines, const char *line, gpointer user_data)
{
  TestClient *client = user_data;
  TestPeer *peer = client->listener->peer;

  if (peer->role == TEST_ROLE_QEMU)
    test_qemu_line (peer, client, line);
  else if (peer->role == TEST_ROLE_MONITOR)
    monitor_line (peer, client, line);
  else if (!test_peer_behaviour.tpm_silent)
    test_lines_send_data (lines, "\0\0\0\0\0\0\177\377", 8);
}

static gboolean
peer_listen (TestPeer *peer, VmmProcessSpec *spec, int *code)
{
  const char *const *argv = vmm_process_spec_get_argv (spec);
  const int codes[TEST_N_ROLES] = { test_peer_behaviour.qemu_exit, test_peer_behaviour.tpm_exit,
                               test_peer_behaviour.monitor_exit, test_peer_behaviour.vsock_exit,
                               test_peer_behaviour.tpm_setup_exit };

  *code = codes[peer->role] != 0 ? codes[peer->role] : 1;
  if (codes[peer->role] != 0)
    return FALSE;
  switch (peer->role)
    {
    case TEST_ROLE_QEMU:
      return test_qemu_listen (peer, argv);
    case TEST_ROLE_TPM:
      return tpm_listen (peer, argv, vmm_process_spec_get_directory (spec));
    case TEST_ROLE_TPM_SETUP:
      *code = write_tpm_state (vmm_process_spec_get_directory (spec)) ? 0 : 1;
      return FALSE;
    case TEST_ROLE_VSOCK:
      return vsock_listen (peer, argv);
    case TEST_ROLE_MONITOR:
    case TEST_N_ROLES:
    default:
      return monitor_listen (peer, argv);
    }
}

TestPeer *
test_peer_new (VmmProcessSpec *spec, TestPeerExit exit_cb, gpointer user_data)
{
  const char *role_name = vmm_process_spec_get_role (spec);
  TestPeer *peer;
  TestRole role;
  int code;

  for (role = 0; role < TEST_N_ROLES; role++)
    if (g_strcmp0 (role_names[role], role_name) == 0)
      break;
  if (role == TEST_N_ROLES)
    return NULL;
  peer = g_new0 (TestPeer, 1);
  peer->role = role;
  peer->vm = vm_get (vmm_process_spec_get_owner (spec));
  peer->exit_cb = exit_cb;
  peer->user_data = user_data;
  peer->listeners = g_ptr_array_new_with_free_func (listener_free);
  peer->vm->peers[role] = peer;
  if (!peer_listen (peer, spec, &code))
    test_peer_exit (peer, code, 0);
  return peer;
}

void
test_peer_free (TestPeer *peer)
{
  g_clear_handle_id (&peer->timer, g_source_remove);
  g_clear_handle_id (&peer->exit_source, g_source_remove);
  if (peer->vm->peers[peer->role] == peer)
    peer->vm->peers[peer->role] = NULL;
  g_ptr_array_unref (peer->listeners);
  g_free (peer);
}

void
test_peer_signal (TestPeer *peer, int signum)
{
  if (signum == SIGKILL)
    test_peer_exit (peer, 0, SIGKILL);
  else if (signum != SIGTERM || test_peer_behaviour.ignore_term)
    return;
  else if (peer->role == TEST_ROLE_QEMU)
    test_qemu_emit (peer, "term");
  else
    test_peer_exit (peer, 0, 0);
}

gboolean
test_peer_emit (const char *vm_id, const char *what)
{
  TestVm *vm = vm_get (vm_id);
  gboolean is_journal = g_str_equal (what, "ready") || g_str_equal (what, "status");
  TestRole role = is_journal || g_str_equal (what, "monitor-exit") ? TEST_ROLE_MONITOR
              : g_str_equal (what, "tpm-exit")                 ? TEST_ROLE_TPM
              : g_str_equal (what, "vsock-exit")               ? TEST_ROLE_VSOCK
                                                               : TEST_ROLE_QEMU;

  if (vm->peers[role] == NULL)
    return FALSE;
  if (role == TEST_ROLE_QEMU)
    test_qemu_emit (vm->peers[role], what);
  else if (is_journal)
    test_vm_journal (vm, what,
                     g_str_equal (what, "status") ? "{\"text\": \"Startup finished\"}" : NULL);
  else
    test_peer_exit (vm->peers[role], 1, 0);
  return TRUE;
}

gboolean
test_peer_is_running (const char *vm_id, const char *role)
{
  TestVm *vm = vm_get (vm_id);

  for (guint i = 0; i < TEST_N_ROLES; i++)
    if (g_str_equal (role_names[i], role))
      return vm->peers[i] != NULL && !vm->peers[i]->exiting;
  return FALSE;
}

guint
test_peer_get_n_powerdowns (const char *vm_id)
{
  return vm_get (vm_id)->n_powerdowns;
}

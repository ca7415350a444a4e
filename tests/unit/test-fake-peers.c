/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The fake programs that other tests rely on, seen through the daemon's own clients. */
#include <signal.h>
#include <string.h>

#include "fake-backends.h"
#include "fake-peers.h"
#include "test-await.h"
#include "vmm-child-start.h"
#include "vmm-qmp.h"
#include "vmm-witness.h"

#define MANY 1000
#define LONG_MS 600000

typedef struct
{
  char *directory;
  char *qmp_path;
  TestPeer *qemu;
  TestPeer *tpm;
  TestPeer *monitor;
  VmmQmp *qmp;
  VmmWitness *witness;
  GString *events;
  GString *exits; /* "qemu CODE SIGNAL" one a line */
} Fixture;

static void
qemu_exit_cb (int code, int signum, gpointer user_data)
{
  Fixture *fixture = user_data;

  g_string_append_printf (fixture->exits, "qemu %d %d\n", code, signum);
  g_clear_pointer (&fixture->qemu, test_peer_free);
}

static void
tpm_exit_cb (int code, int signum, gpointer user_data)
{
  Fixture *fixture = user_data;

  g_string_append_printf (fixture->exits, "tpm %d %d\n", code, signum);
}

static void
qmp_event_cb (VmmQmp *qmp, const char *name, JsonObject *data, gpointer user_data)
{
  Fixture *fixture = user_data;
  const char *reason = json_object_get_string_member_with_default (data, "reason", "-");

  g_string_append_printf (fixture->events, "%s %s\n", name, reason);
}

static void
witness_event_cb (VmmWitness *witness, guint64 seq, const char *name, JsonObject *data,
                  gpointer user_data)
{
  Fixture *fixture = user_data;

  g_string_append_printf (fixture->events, "%s\n", name);
}

static VmmProcessSpec *
make_spec (const char *role, const char *const *argv)
{
  g_autofree char *id = vmm_process_id_for_vm ("1", role);
  VmmProcessSpec *spec = vmm_process_spec_new (id, argv);

  vmm_process_spec_set_owner (spec, "1", role);
  return spec;
}

static void
start_programs (Fixture *fixture, gboolean install)
{
  g_autofree char *qmp = g_strdup_printf ("unix:%s,server=on,wait=off", fixture->qmp_path);
  g_autofree char *control = g_strdup_printf ("type=unixio,path=%s/swtpm.sock", fixture->directory);
  const char *const qemu_argv[]
    = { "qemu-system-x86_64", "-qmp", qmp, install ? "-no-reboot" : NULL, NULL };
  const char *const tpm_argv[] = { "swtpm", "--ctrl", control, NULL };
  const char *const monitor_argv[] = { "vmm-monitor", "--directory", fixture->directory, NULL };
  g_autoptr (VmmProcessSpec) qemu = make_spec ("qemu", qemu_argv);
  g_autoptr (VmmProcessSpec) tpm = make_spec ("tpm", tpm_argv);
  g_autoptr (VmmProcessSpec) monitor = make_spec ("monitor", monitor_argv);

  fixture->qemu = test_peer_new (qemu, qemu_exit_cb, fixture);
  fixture->tpm = test_peer_new (tpm, tpm_exit_cb, fixture);
  fixture->monitor = test_peer_new (monitor, NULL, NULL);
}

static void
connect_clients (Fixture *fixture)
{
  TestAwait await = TEST_AWAIT_INIT;
  g_autoptr (GAsyncResult) qmp_result = NULL;
  g_autoptr (GAsyncResult) witness_result = NULL;

  vmm_qmp_connect_async (fixture->qmp_path, NULL, NULL, NULL, test_await_cb, &await);
  qmp_result = test_await (&await);
  fixture->qmp = vmm_qmp_connect_finish (qmp_result, NULL);
  g_assert_nonnull (fixture->qmp);
  g_signal_connect (fixture->qmp, "event", G_CALLBACK (qmp_event_cb), fixture);
  vmm_witness_connect_async (fixture->directory, 0, NULL, test_await_cb, &await);
  witness_result = test_await (&await);
  fixture->witness = vmm_witness_connect_finish (witness_result, NULL);
  g_assert_nonnull (fixture->witness);
  g_signal_connect (fixture->witness, "event", G_CALLBACK (witness_event_cb), fixture);
}

static void
set_up (Fixture *fixture, gconstpointer data)
{
  test_peer_configure (data);
  fixture->directory = test_make_directory ();
  fixture->qmp_path = g_build_filename (fixture->directory, "qmp.sock", NULL);
  fixture->events = g_string_new (NULL);
  fixture->exits = g_string_new (NULL);
  start_programs (fixture, test_peer_behaviour.installer_ms != 0);
  connect_clients (fixture);
}

static void
tear_down (Fixture *fixture, gconstpointer data)
{
  g_clear_object (&fixture->qmp);
  g_clear_object (&fixture->witness);
  g_clear_pointer (&fixture->qemu, test_peer_free);
  g_clear_pointer (&fixture->tpm, test_peer_free);
  g_clear_pointer (&fixture->monitor, test_peer_free);
  test_peer_forget ();
  test_peer_configure (NULL);
  test_remove_directory (fixture->directory);
  g_free (fixture->qmp_path);
  g_string_free (fixture->events, TRUE);
  g_string_free (fixture->exits, TRUE);
}

static void
execute (Fixture *fixture, const char *command)
{
  g_autoptr (GAsyncResult) result = NULL;
  g_autoptr (JsonNode) node = NULL;
  g_autoptr (GError) error = NULL;
  TestAwait await = TEST_AWAIT_INIT;

  vmm_qmp_execute_async (fixture->qmp, command, NULL, LONG_MS, NULL, test_await_cb, &await);
  result = test_await (&await);
  node = vmm_qmp_execute_finish (fixture->qmp, result, &error);
  g_assert_no_error (error);
}

static gboolean
has_exits (gpointer user_data)
{
  Fixture *fixture = user_data;
  guint lines = 0;

  for (const char *c = fixture->exits->str; *c != '\0'; c++)
    lines += *c == '\n';
  return lines == 2;
}

static gboolean
has_exit_entry (gpointer user_data)
{
  return g_str_has_suffix (((Fixture *) user_data)->events->str, "exit\n");
}

static gboolean
is_ready (gpointer user_data)
{
  return g_str_has_suffix (((Fixture *) user_data)->events->str, "ready\n");
}

static void
test_boot (Fixture *fixture, gconstpointer data)
{
  execute (fixture, "cont");
  test_await_condition (is_ready, fixture);
  g_assert_cmpstr (fixture->events->str, ==, "RESUME -\nstatus\nready\n");
  g_string_truncate (fixture->events, 0);
  g_assert_true (test_peer_emit ("1", "reset"));
  test_await_condition (is_ready, fixture);
  g_assert_nonnull (strstr (fixture->events->str, "RESET guest-reset\n"));
  g_string_truncate (fixture->events, 0);
  execute (fixture, "system_powerdown");
  test_await_condition (has_exits, fixture);
  test_await_condition (has_exit_entry, fixture);
  g_assert_cmpstr (fixture->exits->str, ==, "qemu 0 0\ntpm 0 0\n");
  g_assert_nonnull (strstr (fixture->events->str, "SHUTDOWN guest-shutdown\n"));
  g_assert_cmpuint (test_peer_get_n_powerdowns ("1"), ==, 1);
  g_assert_false (test_peer_is_running ("1", "qemu"));
  g_assert_true (test_peer_is_running ("1", "monitor"));
}

static void
test_install (Fixture *fixture, gconstpointer data)
{
  execute (fixture, "cont");
  test_await_condition (has_exits, fixture);
  g_assert_cmpstr (fixture->exits->str, ==, data != NULL && strstr (data, "exit") != NULL
                                              ? "qemu 7 0\ntpm 0 0\n"
                                              : "qemu 0 0\ntpm 0 0\n");
}

static void
test_ignores (Fixture *fixture, gconstpointer data)
{
  execute (fixture, "system_powerdown");
  test_peer_signal (fixture->qemu, SIGTERM);
  test_drain ();
  g_assert_true (test_peer_is_running ("1", "qemu"));
  test_peer_signal (fixture->qemu, SIGKILL);
  test_await_condition (has_exits, fixture);
  g_assert_cmpstr (fixture->exits->str, ==, "qemu -1 9\ntpm 0 0\n");
}

static void
count_exit_cb (int code, int signum, gpointer user_data)
{
  guint *count = user_data;

  (*count)++;
}

static gboolean
all_exited (gpointer user_data)
{
  return *(guint *) user_data == MANY;
}

/* Many programs are one source in the main context, and they all end. */
static void
test_many (void)
{
  char *directory = test_make_directory ();
  g_autoptr (GPtrArray) peers = g_ptr_array_new_with_free_func ((GDestroyNotify) test_peer_free);
  guint count = 0;

  test_peer_configure (NULL);
  for (guint i = 0; i < MANY; i++)
    {
      g_autofree char *id = g_strdup_printf ("%u", i);
      g_autofree char *one = g_strdup_printf ("unix:%s/%u,server=on,wait=off", directory, i);
      g_autofree char *two = g_strdup_printf ("unix:%s/%um,server=on,wait=off", directory, i);
      const char *const argv[] = { "qemu", "-qmp", one, "-qmp", two, NULL };
      g_autoptr (VmmProcessSpec) spec = vmm_process_spec_new (id, argv);

      vmm_process_spec_set_owner (spec, id, "qemu");
      g_ptr_array_add (peers, test_peer_new (spec, count_exit_cb, &count));
    }
  for (guint i = 0; i < MANY; i++)
    {
      g_autofree char *id = g_strdup_printf ("%u", i);

      g_assert_true (test_peer_is_running (id, "qemu"));
      g_assert_true (test_peer_emit (id, "crash"));
    }
  test_await_condition (all_exited, &count);
  g_clear_pointer (&peers, g_ptr_array_unref);
  test_peer_forget ();
  test_remove_directory (directory);
}

static void
test_configure (void)
{
  test_peer_configure ("installer-ms=20, ready-ms=never,installer-exit=7,qmp=silent,"
                       "installer-reason=guest-shutdown");
  g_assert_cmpuint (test_peer_behaviour.installer_ms, ==, 20);
  g_assert_cmpuint (test_peer_behaviour.ready_ms, ==, TEST_PEER_NEVER);
  g_assert_cmpint (test_peer_behaviour.installer_exit, ==, 7);
  g_assert_true (test_peer_behaviour.qmp_silent);
  g_assert_cmpstr (test_peer_behaviour.installer_reason, ==, "guest-shutdown");
  test_peer_configure ("");
  g_assert_false (test_peer_behaviour.qmp_silent);
  g_assert_cmpstr (test_peer_behaviour.installer_reason, ==, "guest-reset");
}

int
main (int argc, char **argv)
{
  g_test_init (&argc, &argv, G_TEST_OPTION_ISOLATE_DIRS, NULL);
#define ADD(name, text, function)                                                                  \
  g_test_add ("/fake-peers/" name, Fixture, text, set_up, function, tear_down)
  g_test_add_func ("/fake-peers/configure", test_configure);
  ADD ("boot", "", test_boot);
  ADD ("install", "installer-ms=1", test_install);
  ADD ("install-fails", "installer-ms=1,installer-exit=7", test_install);
  ADD ("ignores", "powerdown=ignore,term=ignore", test_ignores);
  g_test_add_func ("/fake-peers/many", test_many);
  return g_test_run ();
}

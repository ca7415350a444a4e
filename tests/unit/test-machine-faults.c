/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Every step and every call of a backend fails in turn.
 *
 * Which there are is found out by running each operation once: the steps by the hook of sequences,
 * the calls from the log of the fakes. So a new step or call is tested from its first day.
 */

#include "config.h"

#include <glib/gstdio.h>
#include <string.h>

#include "fake-backends.h"
#include "fake-peers.h"
#include "machine-fixture.h"
#include "test-await.h"
#include "vmm-sequence.h"

#define ID MACHINE_FIXTURE_ID
#define FAULT "told to fail"

typedef gboolean (*Operation) (MachineFixture *fixture, GError **error);

/* Steps. */

typedef struct
{
  GPtrArray *steps; /* seen, in order; NULL when not collecting */
  const char *fail;
  VmmSequenceMoment moment;
  gboolean failed;
} Injection;

static GError *
hook_cb (gpointer subject, const char *sequence, const char *step, VmmSequenceMoment moment,
         gpointer user_data)
{
  Injection *injection = user_data;

  if (injection->steps != NULL && moment == VMM_SEQUENCE_BEFORE)
    g_ptr_array_add (injection->steps, g_strdup (step));
  if (moment != injection->moment || g_strcmp0 (step, injection->fail) != 0)
    return NULL;
  injection->failed = TRUE;
  return vmm_error_new (VMM_ERROR_INTERNAL, FAULT " in %s", step);
}

static MachineFixture *
prepare (VmmMachineState state)
{
  MachineFixture *fixture = machine_fixture_new ();

  if (state == VMM_MACHINE_CREATING)
    {
      test_peer_behaviour.installer_ms = TEST_PEER_NEVER;
      machine_fixture_make (fixture);
    }
  else
    machine_fixture_bring_to (fixture, state);
  test_fakes_clear_log ();
  return fixture;
}

static GPtrArray *
collect_steps (VmmMachineState state, Operation operation)
{
  MachineFixture *fixture = prepare (state);
  Injection injection = { NULL, NULL, VMM_SEQUENCE_BEFORE, FALSE };
  g_autoptr (GError) error = NULL;

  injection.steps = g_ptr_array_new_with_free_func (g_free);
  vmm_sequence_set_hook (hook_cb, &injection);
  g_assert_true (operation (fixture, &error));
  vmm_sequence_set_hook (NULL, NULL);
  machine_fixture_free (fixture);
  return injection.steps;
}

static GPtrArray *
collect_calls (VmmMachineState state, Operation operation)
{
  MachineFixture *fixture = prepare (state);
  GPtrArray *calls = g_ptr_array_new_with_free_func (g_free);
  g_autoptr (GError) error = NULL;
  g_autofree char *log = NULL;
  g_auto (GStrv) lines = NULL;

  g_assert_true (operation (fixture, &error));
  log = test_fakes_dup_log ();
  lines = g_strsplit (log, "\n", -1);
  for (guint i = 0; lines[i] != NULL; i++)
    {
      char *space = strchr (lines[i], ' ');

      /* What the attestor is told cannot fail. */
      if (space == NULL || g_str_has_prefix (lines[i], "attestor."))
        continue;
      *space = ':';
      g_ptr_array_add (calls, g_strdup (lines[i]));
    }
  machine_fixture_free (fixture);
  return calls;
}

/* What was taken is given back in reverse, and each of it. */
static void
assert_undone_in_reverse (void)
{
  static const char *const pairs[][2] = {
    { "storage.acquire vm-" ID, "storage.remove vm-" ID },
    { "network.attach " ID, "network.detach " ID },
    { "launcher.start tpm", "process.stop tpm" },
    { "launcher.start qemu", "process.stop qemu" },
    { "launcher.start monitor", "process.stop monitor" },
  };
  g_autofree char *log = test_fakes_dup_log ();
  const char *last = NULL;

  for (guint i = G_N_ELEMENTS (pairs); i > 0; i--)
    {
      const char *undo = strstr (log, pairs[i - 1][1]);

      if (undo == NULL)
        continue;
      g_assert_true (last == NULL || undo > last);
      /* A lease is given back also when nothing was plugged in yet. */
      g_assert_true (strstr (log, pairs[i - 1][0]) != NULL || i == 2);
      last = undo;
    }
}

static void
fail_create_at (const char *step, VmmSequenceMoment moment)
{
  MachineFixture *fixture = prepare (VMM_MACHINE_CREATING);
  Injection injection = { NULL, step, moment, FALSE };
  g_autoptr (GError) error = NULL;

  g_test_message ("%s %u", step, (guint) moment);
  vmm_sequence_set_hook (hook_cb, &injection);
  g_assert_false (machine_fixture_create (fixture, &error));
  vmm_sequence_set_hook (NULL, NULL);
  g_assert_true (injection.failed);
  g_assert_nonnull (strstr (error->message, FAULT));
  g_assert_true (fixture->gone);
  assert_undone_in_reverse ();
  machine_fixture_assert_nothing_left (fixture);
  machine_fixture_free (fixture);
}

static void
test_create_steps (void)
{
  g_autoptr (GPtrArray) steps = collect_steps (VMM_MACHINE_CREATING, machine_fixture_create);

  g_assert_cmpuint (steps->len, >=, 9);
  for (guint i = 0; i < steps->len; i++)
    {
      fail_create_at (g_ptr_array_index (steps, i), VMM_SEQUENCE_BEFORE);
      fail_create_at (g_ptr_array_index (steps, i), VMM_SEQUENCE_AFTER);
    }
}

static void
test_create_calls (void)
{
  g_autoptr (GPtrArray) calls = collect_calls (VMM_MACHINE_CREATING, machine_fixture_create);

  g_assert_cmpuint (calls->len, >=, 5);
  for (guint i = 0; i < calls->len; i++)
    {
      MachineFixture *fixture = prepare (VMM_MACHINE_CREATING);
      g_autoptr (GError) error = NULL;

      g_test_message ("%s", (char *) g_ptr_array_index (calls, i));
      test_fakes_fail (g_ptr_array_index (calls, i), VMM_ERROR_CONFLICT, FAULT);
      g_assert_false (machine_fixture_create (fixture, &error));
      g_assert_error (error, VMM_ERROR, VMM_ERROR_CONFLICT);
      g_assert_nonnull (strstr (error->message, FAULT));
      g_assert_true (fixture->gone);
      assert_undone_in_reverse ();
      /* A volume that could not be made new may be somebody else's. */
      if (g_str_has_prefix (g_ptr_array_index (calls, i), "storage.acquire"))
        g_assert_cmpuint (test_fakes_count ("storage.remove vm-" ID), ==, 0);
      machine_fixture_assert_nothing_left (fixture);
      machine_fixture_free (fixture);
    }
}

/* The order that a failed start of QEMU is known by. */
static void
test_create_order (void)
{
  MachineFixture *fixture = prepare (VMM_MACHINE_CREATING);
  g_autoptr (GError) error = NULL;
  g_autofree char *log = NULL;

  test_fakes_fail ("launcher.start:qemu", VMM_ERROR_INTERNAL, FAULT);
  g_assert_false (machine_fixture_create (fixture, &error));
  g_assert_cmpstr (error->message, ==, "start qemu: " FAULT);
  log = test_fakes_dup_log ();
  g_assert_cmpstr (log, ==,
                   "launcher.start tpm-setup\nstorage.acquire vm-" ID "\nnetwork.attach " ID "\n"
                   "launcher.start tpm\n"
                   "launcher.start qemu\nprocess.stop tpm\nnetwork.detach " ID "\n"
                   "storage.remove vm-" ID "\nattestor.forget " ID "\n");
  machine_fixture_free (fixture);
}

static void
assert_start_failed (MachineFixture *fixture, GError *error)
{
  g_assert_cmpint (vmm_machine_get_state (fixture->machine), ==, VMM_MACHINE_FAILED);
  g_assert_nonnull (strstr (error->message, FAULT));
  g_assert_cmpstr (machine_fixture_record (fixture)->last_error, ==, error->message);
  g_assert_cmpuint (test_fakes_get_n_running (), ==, 0);
  g_assert_true (test_fakes_has_volume ("vm-" ID, NULL));
  g_assert_cmpuint (vmm_network_table_get_n_leases (fixture->context.networks, "default"), ==, 1);
  for (guint i = 0; i < VMM_N_PROCESS_ROLES; i++)
    g_assert_null (machine_fixture_record (fixture)->processes[i]);
}

/* Afterwards it can be started, and after another failure it can be deleted. */
static void
assert_recovers (MachineFixture *fixture)
{
  g_autoptr (GError) error = NULL;

  g_assert_true (machine_fixture_start (fixture, &error));
  g_assert_no_error (error);
  machine_fixture_await_state (fixture, VMM_MACHINE_READY);
  g_assert_null (machine_fixture_record (fixture)->last_error);
}

static void
assert_deletable (MachineFixture *fixture)
{
  g_autoptr (GError) error = NULL;

  g_assert_true (machine_fixture_delete (fixture, &error));
  g_assert_no_error (error);
  machine_fixture_assert_nothing_left (fixture);
}

static void
fail_start_at (const char *step, VmmSequenceMoment moment)
{
  MachineFixture *fixture = prepare (VMM_MACHINE_STOPPED);
  Injection injection = { NULL, step, moment, FALSE };
  g_autoptr (GError) error = NULL;

  g_test_message ("%s %u", step, (guint) moment);
  vmm_sequence_set_hook (hook_cb, &injection);
  g_assert_false (machine_fixture_start (fixture, &error));
  vmm_sequence_set_hook (NULL, NULL);
  g_assert_true (injection.failed);
  assert_start_failed (fixture, error);
  if (moment == VMM_SEQUENCE_BEFORE)
    assert_recovers (fixture);
  assert_deletable (fixture);
  machine_fixture_free (fixture);
}

static void
test_start_steps (void)
{
  g_autoptr (GPtrArray) steps = collect_steps (VMM_MACHINE_STOPPED, machine_fixture_start);

  g_assert_cmpuint (steps->len, >=, 7);
  for (guint i = 0; i < steps->len; i++)
    {
      fail_start_at (g_ptr_array_index (steps, i), VMM_SEQUENCE_BEFORE);
      fail_start_at (g_ptr_array_index (steps, i), VMM_SEQUENCE_AFTER);
    }
}

static void
test_start_calls (void)
{
  g_autoptr (GPtrArray) calls = collect_calls (VMM_MACHINE_STOPPED, machine_fixture_start);

  g_assert_cmpuint (calls->len, >=, 3);
  for (guint i = 0; i < calls->len; i++)
    {
      const char *call = g_ptr_array_index (calls, i);
      MachineFixture *fixture = prepare (VMM_MACHINE_STOPPED);
      g_autoptr (GError) error = NULL;

      g_test_message ("%s", call);
      test_fakes_fail (call, VMM_ERROR_INTERNAL, FAULT);
      g_assert_false (machine_fixture_start (fixture, &error));
      assert_start_failed (fixture, error);
      test_fakes_clear (call);
      assert_recovers (fixture);
      assert_deletable (fixture);
      machine_fixture_free (fixture);
    }
}

/* The boot after the installer: the VM stays, and a start needs no new installation. */
static void
test_installed_boot_calls (void)
{
  static const char *const calls[] = { "launcher.start:tpm", "launcher.start:qemu",
                                       "launcher.start:monitor", "network.attach" };

  for (guint i = 0; i < G_N_ELEMENTS (calls); i++)
    {
      MachineFixture *fixture = prepare (VMM_MACHINE_INSTALLING);

      test_fakes_fail (calls[i], VMM_ERROR_INTERNAL, FAULT);
      machine_fixture_end_qemu (fixture, 0, 0, "guest-reset");
      machine_fixture_await_state (fixture, VMM_MACHINE_FAILED);
      g_assert_true (g_str_has_prefix (machine_fixture_record (fixture)->last_error,
                                       "start installed boot: "));
      g_assert_cmpint (machine_fixture_record (fixture)->installed_at, !=, 0);
      g_assert_cmpuint (test_fakes_get_n_running (), ==, 0);
      test_fakes_clear (calls[i]);
      assert_recovers (fixture);
      assert_deletable (fixture);
      machine_fixture_free (fixture);
    }
}

/* A process that starts and ends at once, or never answers its protocol. */
static void
test_processes_that_lie (void)
{
  static const char *const behaviours[] = { "qemu-exit=1", "tpm-exit=1", "monitor-exit=1" };

  for (guint i = 0; i < G_N_ELEMENTS (behaviours); i++)
    {
      MachineFixture *fixture = prepare (VMM_MACHINE_CREATING);
      g_autoptr (GError) error = NULL;

      test_peer_configure (behaviours[i]);
      g_assert_false (machine_fixture_create (fixture, &error));
      g_test_message ("%s", error->message);
      g_assert_true (g_str_has_prefix (error->message, "start "));
      machine_fixture_assert_nothing_left (fixture);
      machine_fixture_free (fixture);
    }
}

static void
test_stop_calls (void)
{
  g_autoptr (GPtrArray) calls = collect_calls (VMM_MACHINE_READY, machine_fixture_stop);

  for (guint i = 0; i < calls->len; i++)
    {
      const char *call = g_ptr_array_index (calls, i);
      MachineFixture *fixture = prepare (VMM_MACHINE_READY);
      g_autoptr (GError) error = NULL;

      /* QEMU has ended, so the VM is stopped, whatever its helpers do. */
      g_test_message ("%s", call);
      test_fakes_fail (call, VMM_ERROR_INTERNAL, FAULT);
      g_assert_true (machine_fixture_stop (fixture, &error));
      g_assert_cmpint (vmm_machine_get_state (fixture->machine), ==, VMM_MACHINE_STOPPED);
      test_fakes_clear (call);
      assert_recovers (fixture);
      assert_deletable (fixture);
      machine_fixture_free (fixture);
    }
}

static void
test_delete_steps (void)
{
  g_autoptr (GPtrArray) steps = collect_steps (VMM_MACHINE_READY, machine_fixture_delete);

  g_assert_cmpuint (steps->len, >=, 4);
  for (guint i = 0; i < steps->len; i++)
    {
      const char *step = g_ptr_array_index (steps, i);
      MachineFixture *fixture;
      Injection injection = { NULL, step, VMM_SEQUENCE_AFTER, FALSE };
      g_autoptr (GError) error = NULL;

      /* The last one is different, see below. */
      if (g_str_equal (step, "directory"))
        continue;
      fixture = prepare (VMM_MACHINE_READY);
      g_test_message ("%s", step);
      vmm_sequence_set_hook (hook_cb, &injection);
      g_assert_true (machine_fixture_delete (fixture, &error));
      vmm_sequence_set_hook (NULL, NULL);
      g_assert_true (injection.failed);
      g_assert_true (fixture->gone);
      machine_fixture_assert_nothing_left (fixture);
      machine_fixture_free (fixture);
    }
}

/* A record that can't be removed would come back with the next start: no delete is acknowledged. */
static void
test_delete_keeps_its_record (void)
{
  MachineFixture *fixture = prepare (VMM_MACHINE_READY);
  Injection injection = { NULL, "directory", VMM_SEQUENCE_BEFORE, FALSE };
  g_autoptr (GError) error = NULL;
  g_autofree char *record = NULL;

  vmm_sequence_set_hook (hook_cb, &injection);
  g_assert_false (machine_fixture_delete (fixture, &error));
  vmm_sequence_set_hook (NULL, NULL);
  g_assert_true (injection.failed);
  g_assert_false (fixture->gone);
  g_assert_nonnull (strstr (error->message, "is not deleted, delete it again: remove folder: "));
  g_assert_cmpint (vmm_machine_get_state (fixture->machine), ==, VMM_MACHINE_FAILED);
  g_assert_cmpstr (machine_fixture_record (fixture)->last_error, ==, error->message);
  machine_fixture_await_error (fixture, "is not deleted");
  /* Also on disk, for a daemon that comes after. */
  machine_fixture_kill (fixture);
  machine_fixture_recover (fixture);
  record = machine_fixture_read_record (fixture);
  g_assert_nonnull (strstr (record, "\"state\": \"failed\""));
  assert_deletable (fixture);
  machine_fixture_free (fixture);
}

static void
test_delete_calls (void)
{
  g_autoptr (GPtrArray) calls = collect_calls (VMM_MACHINE_READY, machine_fixture_delete);

  g_assert_cmpuint (calls->len, >=, 3);
  for (guint i = 0; i < calls->len; i++)
    {
      const char *call = g_ptr_array_index (calls, i);
      MachineFixture *fixture = prepare (VMM_MACHINE_READY);
      g_autofree char *directory = machine_fixture_path (fixture, "");
      g_autoptr (GError) error = NULL;
      gboolean deleted;

      g_test_message ("%s", call);
      test_fakes_fail (call, VMM_ERROR_INTERNAL, FAULT);
      deleted = machine_fixture_delete (fixture, &error);
      /* Only a QEMU that cannot be stopped keeps a VM. */
      g_assert_cmpint (deleted, ==, g_strcmp0 (call, "process.stop:qemu") != 0);
      test_fakes_clear (call);
      if (!deleted)
        assert_deletable (fixture);
      g_assert_true (fixture->gone);
      g_assert_false (g_file_test (directory, G_FILE_TEST_EXISTS));
      machine_fixture_free (fixture);
    }
}

/* A caller who leaves, at each call: the work goes on without him. */

static gboolean
is_hanging (gpointer user_data)
{
  return test_fakes_get_n_hanging () > 0;
}

typedef void (*AsyncOperation) (VmmMachine *machine, GCancellable *cancellable,
                                GAsyncReadyCallback callback, gpointer user_data);

static void
create_async (VmmMachine *machine, GCancellable *cancellable, GAsyncReadyCallback callback,
              gpointer user_data)
{
  vmm_machine_create_async (machine, NULL, cancellable, callback, user_data);
}

static void
leave_at (const char *call, VmmMachineState from, AsyncOperation operation, VmmMachineState to)
{
  MachineFixture *fixture = prepare (from);
  g_autoptr (GCancellable) cancellable = g_cancellable_new ();
  TestAwait await = TEST_AWAIT_INIT;
  g_autoptr (GAsyncResult) result = NULL;
  g_autoptr (GError) error = NULL;

  g_test_message ("%s", call);
  test_fakes_hang (call);
  operation (fixture->machine, cancellable, test_await_cb, &await);
  test_await_condition (is_hanging, NULL);
  g_cancellable_cancel (cancellable);
  result = test_await (&await);
  g_assert_false (g_task_propagate_boolean (G_TASK (result), &error));
  g_assert_error (error, G_IO_ERROR, G_IO_ERROR_CANCELLED);
  g_clear_object (&result);
  test_fakes_release (call);
  if (to == VMM_MACHINE_GONE)
    machine_fixture_await_state (fixture, to);
  else
    {
      machine_fixture_await_state (fixture, to);
      assert_deletable (fixture);
    }
  machine_fixture_free (fixture);
}

static void
test_caller_leaves (void)
{
  g_autoptr (GPtrArray) create = collect_calls (VMM_MACHINE_CREATING, machine_fixture_create);
  g_autoptr (GPtrArray) start = collect_calls (VMM_MACHINE_STOPPED, machine_fixture_start);
  g_autoptr (GPtrArray) delete = collect_calls (VMM_MACHINE_READY, machine_fixture_delete);

  for (guint i = 0; i < create->len; i++)
    leave_at (g_ptr_array_index (create, i), VMM_MACHINE_CREATING, create_async,
              VMM_MACHINE_INSTALLING);
  for (guint i = 0; i < start->len; i++)
    leave_at (g_ptr_array_index (start, i), VMM_MACHINE_STOPPED, vmm_machine_start_async,
              VMM_MACHINE_READY);
  for (guint i = 0; i < delete->len; i++)
    leave_at (g_ptr_array_index (delete, i), VMM_MACHINE_READY, vmm_machine_delete_async,
              VMM_MACHINE_GONE);
}

/* A stop and a delete that come while a start hangs, at each of its calls. */
static void
test_overtaken_start (void)
{
  g_autoptr (GPtrArray) calls = collect_calls (VMM_MACHINE_STOPPED, machine_fixture_start);

  for (guint i = 0; i < calls->len * 2; i++)
    {
      const char *call = g_ptr_array_index (calls, i / 2);
      MachineFixture *fixture = prepare (VMM_MACHINE_STOPPED);
      TestAwait await = TEST_AWAIT_INIT;
      g_autoptr (GAsyncResult) result = NULL;
      g_autoptr (GError) error = NULL;

      g_test_message ("%s %s", call, i % 2 == 0 ? "stop" : "delete");
      test_fakes_hang (call);
      vmm_machine_start_async (fixture->machine, NULL, test_await_cb, &await);
      test_await_condition (is_hanging, NULL);
      if (i % 2 == 0)
        g_assert_true (machine_fixture_stop (fixture, NULL));
      else
        g_assert_true (machine_fixture_delete (fixture, NULL));
      result = test_await (&await);
      g_assert_false (vmm_machine_start_finish (fixture->machine, result, &error));
      g_assert_error (error, VMM_ERROR, VMM_ERROR_CONFLICT);
      g_clear_object (&result);
      g_assert_cmpuint (test_fakes_get_n_running (), ==, 0);
      test_fakes_clear (call);
      if (i % 2 == 0)
        {
          g_assert_cmpint (vmm_machine_get_state (fixture->machine), ==, VMM_MACHINE_STOPPED);
          assert_recovers (fixture);
          assert_deletable (fixture);
        }
      else
        machine_fixture_assert_nothing_left (fixture);
      machine_fixture_free (fixture);
    }
}

/* The record cannot be written. */

static void
test_record_at_create (void)
{
  MachineFixture *fixture = prepare (VMM_MACHINE_CREATING);
  g_autofree char *folder = g_build_filename (fixture->state_dir, "vms", NULL);
  g_autoptr (GError) error = NULL;

  machine_fixture_write (fixture, "vms", "in the way");
  g_assert_false (machine_fixture_create (fixture, &error));
  g_assert_nonnull (error);
  g_assert_true (fixture->gone);
  g_assert_cmpuint (test_fakes_count ("storage.acquire vm-" ID), ==, 0);
  g_assert_cmpint (g_unlink (folder), ==, 0);
  machine_fixture_assert_nothing_left (fixture);
  machine_fixture_free (fixture);
}

static gboolean
is_file (gpointer path)
{
  return g_file_test (path, G_FILE_TEST_IS_REGULAR);
}

/* Nothing else happens to the VM: that there is room again is found out, or nobody ever tells. */
static void
test_record_written_again (void)
{
  MachineFixture *fixture = prepare (VMM_MACHINE_READY);
  g_autofree char *path = machine_fixture_path (fixture, "vm.json");
  g_autofree char *text = NULL;

  machine_fixture_flush (fixture);
  g_assert_cmpint (g_unlink (path), ==, 0);
  g_assert_cmpint (g_mkdir (path, 0700), ==, 0);
  machine_fixture_end_qemu (fixture, 0, 0, NULL);
  machine_fixture_await_error (fixture, "; the record is not on disk: ");
  g_assert_cmpint (g_rmdir (path), ==, 0);
  test_await_condition (is_file, path);
  machine_fixture_flush (fixture);
  text = machine_fixture_read_record (fixture);
  g_assert_nonnull (strstr (text, "\"state\": \"stopped\""));
  g_assert_cmpstr (machine_fixture_record (fixture)->last_error, ==, "guest shut down");
  machine_fixture_free (fixture);
}

static void
test_record_later (void)
{
  MachineFixture *fixture = prepare (VMM_MACHINE_READY);
  g_autofree char *path = machine_fixture_path (fixture, "vm.json");
  g_autofree char *text = NULL;

  machine_fixture_flush (fixture);
  g_assert_cmpint (g_unlink (path), ==, 0);
  g_assert_cmpint (g_mkdir (path, 0700), ==, 0);
  machine_fixture_end_qemu (fixture, 0, 0, NULL);
  machine_fixture_await_error (fixture, "; the record is not on disk: ");
  /* What is so is told all the same. */
  g_assert_cmpint (vmm_machine_get_state (fixture->machine), ==, VMM_MACHINE_STOPPED);
  g_assert_true (
      g_str_has_prefix (machine_fixture_record (fixture)->last_error, "guest shut down; "));
  /* A start is not begun without its record. */
  g_assert_false (machine_fixture_start (fixture, NULL));
  g_assert_cmpint (vmm_machine_get_state (fixture->machine), ==, VMM_MACHINE_FAILED);
  g_assert_cmpint (g_rmdir (path), ==, 0);
  assert_recovers (fixture);
  text = machine_fixture_read_record (fixture);
  g_assert_null (strstr (text, "not on disk"));
  machine_fixture_free (fixture);
}

int
main (int argc, char **argv)
{
  g_test_init (&argc, &argv, G_TEST_OPTION_ISOLATE_DIRS, NULL);
  g_test_add_func ("/machine-faults/create/steps", test_create_steps);
  g_test_add_func ("/machine-faults/create/calls", test_create_calls);
  g_test_add_func ("/machine-faults/create/order", test_create_order);
  g_test_add_func ("/machine-faults/start/steps", test_start_steps);
  g_test_add_func ("/machine-faults/start/calls", test_start_calls);
  g_test_add_func ("/machine-faults/installed-boot/calls", test_installed_boot_calls);
  g_test_add_func ("/machine-faults/processes-that-lie", test_processes_that_lie);
  g_test_add_func ("/machine-faults/stop/calls", test_stop_calls);
  g_test_add_func ("/machine-faults/delete/steps", test_delete_steps);
  g_test_add_func ("/machine-faults/delete/keeps-its-record", test_delete_keeps_its_record);
  g_test_add_func ("/machine-faults/delete/calls", test_delete_calls);
  g_test_add_func ("/machine-faults/caller-leaves", test_caller_leaves);
  g_test_add_func ("/machine-faults/overtaken-start", test_overtaken_start);
  g_test_add_func ("/machine-faults/record/create", test_record_at_create);
  g_test_add_func ("/machine-faults/record/later", test_record_later);
  g_test_add_func ("/machine-faults/record/written-again", test_record_written_again);
  return g_test_run ();
}

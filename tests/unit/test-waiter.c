/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Waiting for a milestone: reached, failed, late, given up. */

#include "config.h"

#include "fake-peers.h"
#include "machine-fixture.h"
#include "test-await.h"
#include "vmm-waiter.h"

#define ID MACHINE_FIXTURE_ID

static gboolean
await_milestone (MachineFixture *fixture, TestAwait *await, GError **error)
{
  g_autoptr (GAsyncResult) result = test_await (await);

  return vmm_waiter_wait_finish (fixture->machine, result, error);
}

static gboolean
wait_for (MachineFixture *fixture, VmmMilestone milestone, GError **error)
{
  TestAwait await = TEST_AWAIT_INIT;

  vmm_waiter_wait_async (fixture->machine, milestone, NULL, test_await_cb, &await);
  return await_milestone (fixture, &await, error);
}

static void
test_nicks (void)
{
  static const char *const nicks[] = { "none", "installed", "attested", "ready" };
  VmmMilestone milestone;

  for (guint i = 0; i < G_N_ELEMENTS (nicks); i++)
    {
      g_assert_true (vmm_milestone_from_nick (nicks[i], &milestone));
      g_assert_cmpint (milestone, ==, i);
    }
  g_assert_false (vmm_milestone_from_nick ("Ready", &milestone));
  g_assert_false (vmm_milestone_from_nick ("", &milestone));
  g_assert_false (vmm_milestone_from_nick (NULL, &milestone));
}

static void
test_reached (void)
{
  for (guint i = VMM_MILESTONE_NONE; i <= VMM_MILESTONE_READY; i++)
    {
      MachineFixture *fixture = machine_fixture_new ();
      g_autoptr (GError) error = NULL;

      machine_fixture_make (fixture);
      g_assert_true (machine_fixture_create (fixture, NULL));
      g_assert_true (wait_for (fixture, (VmmMilestone) i, &error));
      g_assert_no_error (error);
      /* And when it is so already. */
      g_assert_true (wait_for (fixture, (VmmMilestone) i, &error));
      if (i == VMM_MILESTONE_READY)
        g_assert_cmpint (vmm_machine_get_state (fixture->machine), ==, VMM_MACHINE_READY);
      machine_fixture_free (fixture);
    }
}

static void
test_attested (void)
{
  MachineFixture *fixture = machine_fixture_new ();
  g_autoptr (VmmVerdict) bad = vmm_verdict_new ("initrd", FALSE, "no");
  g_autoptr (VmmVerdict) good = vmm_verdict_new ("initrd", TRUE, "yes");
  TestAwait await = TEST_AWAIT_INIT;

  fixture->require_attestation = TRUE;
  machine_fixture_bring_to (fixture, VMM_MACHINE_READY);
  vmm_waiter_wait_async (fixture->machine, VMM_MILESTONE_ATTESTED, NULL, test_await_cb, &await);
  /* A rejection keeps the wait going: the next quote may verify. */
  vmm_machine_note_verdict (fixture->machine, bad);
  machine_fixture_await_error (fixture, "initrd attestation rejected: no");
  test_drain ();
  g_assert_null (await.result);
  vmm_machine_note_verdict (fixture->machine, good);
  g_assert_true (await_milestone (fixture, &await, NULL));
  machine_fixture_free (fixture);
}

static void
test_failed (void)
{
  MachineFixture *fixture = machine_fixture_new ();
  g_autoptr (GError) error = NULL;

  test_peer_configure ("installer-exit=7");
  machine_fixture_make (fixture);
  g_assert_true (machine_fixture_create (fixture, NULL));
  g_assert_false (wait_for (fixture, VMM_MILESTONE_READY, &error));
  g_assert_error (error, VMM_ERROR, VMM_ERROR_VM_FAILED);
  g_assert_cmpstr (error->message, ==, "vm failed: installer exited: exit status 7");
  machine_fixture_free (fixture);
}

static void
test_going_down (void)
{
  MachineFixture *fixture = machine_fixture_new ();
  TestAwait await = TEST_AWAIT_INIT;
  g_autoptr (GError) error = NULL;
  g_autoptr (GError) stopped = NULL;

  machine_fixture_bring_to (fixture, VMM_MACHINE_BOOTING);
  vmm_waiter_wait_async (fixture->machine, VMM_MILESTONE_READY, NULL, test_await_cb, &await);
  g_assert_true (machine_fixture_stop (fixture, NULL));
  g_assert_false (await_milestone (fixture, &await, &error));
  g_assert_error (error, VMM_ERROR, VMM_ERROR_VM_FAILED);
  g_assert_true (g_str_has_prefix (error->message, "vm failed: vm is stop"));
  /* Even a milestone that was reached before. */
  g_assert_false (wait_for (fixture, VMM_MILESTONE_INSTALLED, &stopped));
  g_assert_cmpstr (stopped->message, ==, "vm failed: vm is stopped");
  machine_fixture_free (fixture);
}

static void
test_deleted (void)
{
  MachineFixture *fixture = machine_fixture_new ();
  TestAwait await = TEST_AWAIT_INIT;
  g_autoptr (GError) error = NULL;

  machine_fixture_bring_to (fixture, VMM_MACHINE_BOOTING);
  vmm_waiter_wait_async (fixture->machine, VMM_MILESTONE_READY, NULL, test_await_cb, &await);
  g_assert_true (machine_fixture_delete (fixture, NULL));
  g_assert_false (await_milestone (fixture, &await, &error));
  g_assert_error (error, VMM_ERROR, VMM_ERROR_VM_FAILED);
  machine_fixture_free (fixture);
}

static void
test_deadline (void)
{
  MachineFixture *fixture = machine_fixture_new ();
  g_autoptr (GError) error = NULL;

  machine_fixture_bring_to (fixture, VMM_MACHINE_RUNNING);
  fixture->context.install_timeout_us = 1000;
  fixture->context.boot_timeout_us = 2000;
  fixture->context.stop_timeout_us = 4000;
  /* A VM that is late is not failed. */
  g_assert_false (wait_for (fixture, VMM_MILESTONE_READY, &error));
  g_assert_error (error, VMM_ERROR, VMM_ERROR_TIMEOUT);
  g_assert_cmpstr (error->message, ==,
                   "timeout: vm " ID " did not reach ready within 7ms (state running)");
  fixture->context.stop_timeout_us = 30 * G_USEC_PER_SEC;
  machine_fixture_free (fixture);
}

static void
test_late_but_ready (void)
{
  MachineFixture *fixture = machine_fixture_new ();
  TestAwait await = TEST_AWAIT_INIT;

  machine_fixture_bring_to (fixture, VMM_MACHINE_RUNNING);
  vmm_waiter_wait_async (fixture->machine, VMM_MILESTONE_READY, NULL, test_await_cb, &await);
  g_assert_true (test_peer_emit (ID, "ready"));
  g_assert_true (await_milestone (fixture, &await, NULL));
  machine_fixture_free (fixture);
}

static void
test_cancelled (void)
{
  MachineFixture *fixture = machine_fixture_new ();
  g_autoptr (GCancellable) cancellable = g_cancellable_new ();
  TestAwait await = TEST_AWAIT_INIT;
  g_autoptr (GError) error = NULL;

  machine_fixture_bring_to (fixture, VMM_MACHINE_BOOTING);
  vmm_waiter_wait_async (fixture->machine, VMM_MILESTONE_READY, cancellable, test_await_cb,
                         &await);
  g_cancellable_cancel (cancellable);
  g_assert_false (await_milestone (fixture, &await, &error));
  g_assert_error (error, G_IO_ERROR, G_IO_ERROR_CANCELLED);
  g_assert_cmpint (vmm_machine_get_state (fixture->machine), ==, VMM_MACHINE_BOOTING);
  /* Nobody waits any more, and nothing is told twice. */
  g_assert_true (test_peer_emit (ID, "ready"));
  machine_fixture_await_state (fixture, VMM_MACHINE_READY);
  machine_fixture_free (fixture);
}

int
main (int argc, char **argv)
{
  g_test_init (&argc, &argv, G_TEST_OPTION_ISOLATE_DIRS, NULL);
  g_test_add_func ("/waiter/nicks", test_nicks);
  g_test_add_func ("/waiter/reached", test_reached);
  g_test_add_func ("/waiter/attested", test_attested);
  g_test_add_func ("/waiter/failed", test_failed);
  g_test_add_func ("/waiter/going-down", test_going_down);
  g_test_add_func ("/waiter/deleted", test_deleted);
  g_test_add_func ("/waiter/deadline", test_deadline);
  g_test_add_func ("/waiter/late-but-ready", test_late_but_ready);
  g_test_add_func ("/waiter/cancelled", test_cancelled);
  return g_test_run ();
}

/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* A VM whose vsock device is a program: it is there before QEMU, and told of when it ends. */

#include "config.h"

#include <string.h>

#include "certain-host.h"
#include "fake-backends.h"
#include "fake-peers.h"
#include "machine-fixture.h"
#include "test-await.h"

#define ID MACHINE_FIXTURE_ID

typedef struct
{
  MachineFixture *machine;
  char *path;
} Fixture;

static void
set_up (Fixture *fixture, gconstpointer data)
{
  fixture->machine = machine_fixture_new ();
  fixture->path = certain_host_use_vsock_program (fixture->machine->context.host,
                                                  fixture->machine->state_dir);
}

static void
tear_down (Fixture *fixture, gconstpointer data)
{
  machine_fixture_free (fixture->machine);
  g_setenv ("PATH", fixture->path, TRUE);
  g_free (fixture->path);
}

static char *
dup_arguments (const char *role)
{
  VmmProcessSpec *spec = test_fakes_get_spec (ID, role);

  g_assert_nonnull (spec);
  return g_strjoinv (" ", (char **) vmm_process_spec_get_argv (spec));
}

static void
test_starts (Fixture *fixture, gconstpointer data)
{
  MachineFixture *machine = fixture->machine;
  g_autofree char *qemu = NULL;
  g_autofree char *log = NULL;
  g_autofree char *socket = machine_fixture_path (machine, "vhost.sock");
  g_autofree char *chardev = g_strconcat ("socket,id=chrvsock,path=", socket, NULL);
  g_autofree char *record = NULL;
  g_autoptr (GError) error = NULL;

  test_peer_configure ("installer-ms=never");
  machine_fixture_make (machine);
  g_assert_true (machine_fixture_create (machine, &error));
  g_assert_no_error (error);
  log = test_fakes_dup_log ();
  g_assert_nonnull (strstr (log, "launcher.start vsock\nlauncher.start tpm\n"
                                 "launcher.start qemu\nlauncher.start monitor\n"));
  qemu = dup_arguments ("qemu");
  g_assert_nonnull (strstr (qemu, chardev));
  g_assert_nonnull (strstr (qemu, "vhost-user-vsock-pci"));
  g_assert_null (strstr (qemu, "guest-cid"));
  for (guint i = 0;
       vmm_process_spec_get_devices (test_fakes_get_spec (ID, "qemu"))[i] != NULL; i++)
    g_assert_cmpstr (vmm_process_spec_get_devices (test_fakes_get_spec (ID, "qemu"))[i], !=,
                     "/dev/vhost-vsock");
  record = machine_fixture_read_record (machine);
  g_assert_nonnull (strstr (record, "\"vsock\""));
  g_assert_true (machine_fixture_delete (machine, &error));
  g_assert_no_error (error);
  machine_fixture_assert_nothing_left (machine);
}

/* Each boot has one of its own. */
static void
test_boots (Fixture *fixture, gconstpointer data)
{
  MachineFixture *machine = fixture->machine;

  machine_fixture_bring_to (machine, VMM_MACHINE_READY);
  g_assert_cmpuint (test_fakes_count ("launcher.start vsock"), ==, 2);
  g_assert_true (test_fakes_is_running (ID, "vsock"));
  g_assert_true (machine_fixture_stop (machine, NULL));
  g_assert_false (test_fakes_is_running (ID, "vsock"));
  g_assert_null (machine_fixture_record (machine)->processes[VMM_PROCESS_ROLE_VSOCK]);
  g_assert_true (machine_fixture_start (machine, NULL));
  g_assert_true (test_fakes_is_running (ID, "vsock"));
}

static void
test_dies (Fixture *fixture, gconstpointer data)
{
  MachineFixture *machine = fixture->machine;

  machine_fixture_bring_to (machine, VMM_MACHINE_READY);
  g_assert_true (test_peer_emit (ID, "vsock-exit"));
  machine_fixture_await_error (machine, "the vsock helper ended while the vm runs: exit status 1");
  g_assert_cmpint (vmm_machine_get_state (machine->machine), ==, VMM_MACHINE_READY);
  g_assert_null (machine_fixture_record (machine)->processes[VMM_PROCESS_ROLE_VSOCK]);
}

static void
test_undone (Fixture *fixture, gconstpointer data)
{
  static const char *const behaviours[] = { "vsock-exit=1", "qemu-exit=1" };
  MachineFixture *machine = fixture->machine;

  for (guint i = 0; i < G_N_ELEMENTS (behaviours); i++)
    {
      g_autoptr (GError) error = NULL;

      test_peer_configure (behaviours[i]);
      machine_fixture_make (machine);
      g_assert_false (machine_fixture_create (machine, &error));
      g_assert_true (g_str_has_prefix (error->message, i == 0 ? "start vsock device: "
                                                              : "start qemu: "));
      machine_fixture_assert_nothing_left (machine);
    }
}

/* There is neither: said before anything is started. */
static void
test_no_way (Fixture *fixture, gconstpointer data)
{
  MachineFixture *machine = fixture->machine;
  g_autoptr (GError) error = NULL;

  g_setenv ("PATH", "/nonexistent", TRUE);
  machine_fixture_make (machine);
  g_assert_false (machine_fixture_create (machine, &error));
  g_assert_error (error, VMM_ERROR, VMM_ERROR_UNSUPPORTED);
  g_assert_nonnull (strstr (error->message, "no vsock device"));
  g_assert_cmpuint (test_fakes_count ("launcher.start tpm"), ==, 0);
  machine_fixture_assert_nothing_left (machine);
}

static void
test_found_again (Fixture *fixture, gconstpointer data)
{
  MachineFixture *machine = fixture->machine;

  test_fakes.outlives_daemon = TRUE;
  machine_fixture_bring_to (machine, VMM_MACHINE_READY);
  machine_fixture_kill (machine);
  machine_fixture_recover (machine);
  g_assert_cmpint (vmm_machine_get_state (machine->machine), ==, VMM_MACHINE_READY);
  g_assert_nonnull (machine_fixture_record (machine)->processes[VMM_PROCESS_ROLE_VSOCK]);
  test_fakes_exit (ID, "vsock", 1, 0);
  machine_fixture_await_error (machine, "the vsock helper ended while the vm runs");
}

int
main (int argc, char **argv)
{
  g_test_init (&argc, &argv, G_TEST_OPTION_ISOLATE_DIRS, NULL);
#define ADD(name, function)                                                                        \
  g_test_add ("/machine-vsock/" name, Fixture, NULL, set_up, function, tear_down)
  ADD ("starts", test_starts);
  ADD ("boots", test_boots);
  ADD ("dies", test_dies);
  ADD ("undone", test_undone);
  ADD ("no-way", test_no_way);
  ADD ("found-again", test_found_again);
#undef ADD
  return g_test_run ();
}

/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What a vTPM keeps: made once, noticed when it is torn, given back from the copy. */

#include "config.h"

#include <glib/gstdio.h>
#include <string.h>
#include <sys/stat.h>

#include "fake-backends.h"
#include "fake-peers.h"
#include "machine-fixture.h"
#include "test-await.h"
#include "vmm-tpm-state.h"
#include "vmm-tpm.h"

#define ID MACHINE_FIXTURE_ID

/* Version 2, readable from version 1 on, 10 bytes of header, 16 of all. */
static const guint8 whole[] = { 2, 1, 0, 10, 0, 0, 0, 0, 0, 16, 's', 'e', 'c', 'r', 'e', 't' };

static void
test_whole (void)
{
  static const struct
  {
    guint offset;
    guint8 value;
  } spoilt[] = { { 0, 0 }, { 1, 0 }, { 1, 3 }, { 2, 255 }, { 3, 9 }, { 3, 16 }, { 6, 1 }, { 9, 15 },
                 { 9, 17 } };
  guint8 copy[sizeof whole + 1] = { 0 };

  g_assert_true (vmm_tpm_state_is_whole (whole, sizeof whole));
  for (gsize size = 0; size < sizeof whole; size++)
    {
      g_autofree guint8 *part = g_memdup2 (whole, size);

      g_assert_false (vmm_tpm_state_is_whole (part, size));
    }
  for (guint i = 0; i < G_N_ELEMENTS (spoilt); i++)
    {
      memcpy (copy, whole, sizeof whole);
      copy[spoilt[i].offset] = spoilt[i].value;
      g_assert_false (vmm_tpm_state_is_whole (copy, sizeof whole));
    }
  memcpy (copy, whole, sizeof whole);
  g_assert_false (vmm_tpm_state_is_whole (copy, sizeof copy));
}

static char *
state_path (MachineFixture *fixture)
{
  return machine_fixture_path (fixture, "tpm/tpm2-00.permall");
}

static void
write_state (MachineFixture *fixture, const char *content, gssize size)
{
  g_autofree char *path = state_path (fixture);

  g_assert_true (g_file_set_contents (path, content, size, NULL));
}

static void
assert_state (MachineFixture *fixture, const char *name, const void *content, gsize size)
{
  g_autofree char *path = machine_fixture_path (fixture, name);
  g_autofree char *text = NULL;
  gsize length;

  g_assert_true (g_file_get_contents (path, &text, &length, NULL));
  g_assert_cmpmem (text, length, content, size);
}

/* One bank of PCRs, before the first start and never again. */
static void
test_set_up_once (void)
{
  static const char *const argv[]
      = { "swtpm_setup", "--tpm2", "--tpm-state", "dir://.", "--pcr-banks", "sha256", NULL };
  MachineFixture *fixture = machine_fixture_new ();
  g_autofree char *directory = machine_fixture_path (fixture, "tpm");
  VmmProcessSpec *spec;

  machine_fixture_bring_to (fixture, VMM_MACHINE_READY);
  g_assert_cmpuint (test_fakes_count ("launcher.start tpm-setup"), ==, 1);
  g_assert_true (machine_fixture_reboot (fixture, NULL));
  g_assert_cmpuint (test_fakes_count ("launcher.start tpm-setup"), ==, 1);
  g_assert_null (test_fakes_get_spec (ID, "tpm-setup"));
  assert_state (fixture, "tpm/tpm2-00.permall", whole, sizeof whole);
  machine_fixture_free (fixture);

  /* One that hangs is still there to be looked at. */
  fixture = machine_fixture_new ();
  test_fakes.peers = FALSE;
  machine_fixture_make (fixture);
  {
    TestAwait await = TEST_AWAIT_INIT;
    g_autoptr (GCancellable) cancellable = g_cancellable_new ();
    g_autoptr (GAsyncResult) result = NULL;
    g_autoptr (GError) error = NULL;
    g_autofree char *folder = g_build_filename (fixture->state_dir, "tpm", NULL);

    vmm_tpm_setup_async (fixture->context.launcher, ID, folder, cancellable, test_await_cb, &await);
    while ((spec = test_fakes_get_spec (ID, "tpm-setup")) == NULL)
      g_main_context_iteration (NULL, TRUE);
    g_assert_true (g_strv_equal (vmm_process_spec_get_argv (spec), argv));
    g_assert_cmpstr (vmm_process_spec_get_directory (spec), ==, folder);
    g_cancellable_cancel (cancellable);
    result = test_await (&await);
    g_assert_false (vmm_tpm_setup_finish (result, &error));
    g_assert_error (error, G_IO_ERROR, G_IO_ERROR_CANCELLED);
    g_assert_cmpuint (test_fakes_get_n_running (), ==, 0);
  }
  fixture->gone = TRUE; /* it was never created */
  machine_fixture_free (fixture);
}

static void
test_set_up_fails (void)
{
  MachineFixture *fixture = machine_fixture_new ();
  g_autoptr (GError) error = NULL;

  test_peer_configure ("tpm-setup-exit=3");
  machine_fixture_make (fixture);
  g_assert_false (machine_fixture_create (fixture, &error));
  g_assert_cmpstr (error->message, ==,
                   "set up the vtpm: swtpm_setup failed (exit status 3): no output");
  machine_fixture_assert_nothing_left (fixture);
  machine_fixture_free (fixture);
}

/* Each way in which a power cut leaves it. */
static void
test_restored (void)
{
  static const char *const torn[] = { "", "\2\1", "\2\1\0\12\0\0\0\0\0\20sec", NULL };
  MachineFixture *fixture = machine_fixture_new ();
  g_autofree char *path = state_path (fixture);
  const VmmMachineRecord *record;
  gint64 restored_at = 0;

  machine_fixture_bring_to (fixture, VMM_MACHINE_READY);
  record = machine_fixture_record (fixture);
  for (guint i = 0; i < G_N_ELEMENTS (torn); i++)
    {
      g_assert_true (machine_fixture_stop (fixture, NULL));
      assert_state (fixture, "tpm.good/tpm2-00.permall", whole, sizeof whole);
      g_assert_cmpint (record->tpm_restored_at, ==, restored_at);
      if (torn[i] == NULL)
        g_assert_no_errno (g_unlink (path));
      else
        write_state (fixture, torn[i], i == 2 ? 13 : (gssize) strlen (torn[i]));
      g_assert_true (machine_fixture_start (fixture, NULL));
      assert_state (fixture, "tpm/tpm2-00.permall", whole, sizeof whole);
      g_assert_cmpint (record->tpm_restored_at, >, restored_at);
      restored_at = record->tpm_restored_at;
      machine_fixture_await_state (fixture, VMM_MACHINE_READY);
    }
  g_assert_cmpuint (test_fakes_count ("launcher.start tpm-setup"), ==, 1);
  machine_fixture_free (fixture);
}

/* It is not made anew: what was sealed to it would be lost without a word. */
static void
test_lost (void)
{
  MachineFixture *fixture = machine_fixture_new ();
  g_autofree char *copy = machine_fixture_path (fixture, "tpm.good/tpm2-00.permall");
  g_autofree char *path = state_path (fixture);
  g_autoptr (GError) error = NULL;

  machine_fixture_bring_to (fixture, VMM_MACHINE_READY);
  g_assert_true (machine_fixture_stop (fixture, NULL));
  g_assert_no_errno (g_unlink (copy));
  write_state (fixture, "torn", -1);
  g_assert_false (machine_fixture_start (fixture, &error));
  g_assert_nonnull (strstr (error->message, "the vtpm's state is lost and there is no good copy"));
  g_clear_error (&error);
  g_assert_no_errno (g_unlink (path));
  g_assert_false (machine_fixture_start (fixture, &error));
  g_assert_nonnull (strstr (error->message, "the vtpm's state is lost, and there is no good copy"));
  g_assert_false (g_file_test (path, G_FILE_TEST_EXISTS));
  g_assert_cmpuint (test_fakes_count ("launcher.start tpm-setup"), ==, 1);
  machine_fixture_free (fixture);
}

static gboolean
has_copy (gpointer user_data)
{
  g_autofree char *text = NULL;

  return g_file_get_contents (user_data, &text, NULL, NULL) && strstr (text + 10, "newer") != NULL;
}

/* A torn state never takes the place of a good copy; a verified quote proves a good one. */
static void
test_kept (void)
{
  static const char newer[] = "\2\1\0\12\0\0\0\0\0\17newer";
  MachineFixture *fixture = machine_fixture_new ();
  g_autofree char *copy = machine_fixture_path (fixture, "tpm.good/tpm2-00.permall");
  g_autoptr (VmmVerdict) good = vmm_verdict_new ("initrd", TRUE, "fine");
  struct stat info;

  machine_fixture_bring_to (fixture, VMM_MACHINE_BOOTING);
  write_state (fixture, newer, sizeof newer - 1);
  vmm_machine_note_verdict (fixture->machine, good);
  test_await_condition (has_copy, copy);
  g_assert_no_errno (stat (copy, &info));
  g_assert_cmpint (info.st_mode & 0777, ==, 0600);
  write_state (fixture, "torn", -1);
  g_assert_true (machine_fixture_stop (fixture, NULL));
  assert_state (fixture, "tpm.good/tpm2-00.permall", newer, sizeof newer - 1);
  machine_fixture_free (fixture);
}

int
main (int argc, char **argv)
{
  g_test_init (&argc, &argv, G_TEST_OPTION_ISOLATE_DIRS, NULL);
  g_test_add_func ("/tpm-state/whole", test_whole);
  g_test_add_func ("/tpm-state/set-up-once", test_set_up_once);
  g_test_add_func ("/tpm-state/set-up-fails", test_set_up_fails);
  g_test_add_func ("/tpm-state/restored", test_restored);
  g_test_add_func ("/tpm-state/lost", test_lost);
  g_test_add_func ("/tpm-state/kept", test_kept);
  return g_test_run ();
}

/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* One VM on the fake backends, as its daemon sees it. */

#include "machine-fixture.h"

#include <string.h>

#include "certain-host.h"
#include "fake-backends.h"
#include "fake-peers.h"
#include "test-await.h"
#include "vmm-json.h"
#include "vmm-machine-private.h"

char *
machine_fixture_path (MachineFixture *self, const char *name)
{
  return g_build_filename (self->state_dir, "vms", MACHINE_FIXTURE_ID, name, NULL);
}

void
machine_fixture_write (MachineFixture *self, const char *path, const char *content)
{
  g_autofree char *full = g_build_filename (self->state_dir, path, NULL);
  g_autofree char *folder = g_path_get_dirname (full);

  g_assert_cmpint (g_mkdir_with_parents (folder, 0700), ==, 0);
  g_assert_true (g_file_set_contents (full, content, -1, NULL));
}

static guint32
next_cid (gpointer data, guint32 after)
{
  MachineFixture *self = data;

  return ++self->next_cid;
}

static void
await_network (MachineFixture *self, gboolean create)
{
  VmmNetworkTable *table = self->context.networks;
  TestAwait loaded = TEST_AWAIT_INIT;
  TestAwait created = TEST_AWAIT_INIT;
  g_autoptr (GAsyncResult) load = NULL;
  g_autoptr (GAsyncResult) result = NULL;
  g_autoptr (GError) error = NULL;

  vmm_network_table_load_async (table, NULL, test_await_cb, &loaded);
  load = test_await (&loaded);
  g_assert_true (vmm_network_table_load_finish (table, load, &error));
  g_assert_no_error (error);
  if (!create)
    return;
  vmm_network_table_create_async (table, "default", "192.168.127.0/24", NULL,
                                  VMM_NETWORK_MTU_DEFAULT, NULL, test_await_cb, &created);
  result = test_await (&created);
  g_assert_true (vmm_network_table_create_finish (table, result, &error));
  g_assert_no_error (error);
}

static void
fill_backends (MachineFixture *self)
{
  VmmBackendConfig config = { self->state_dir, self->state_dir, NULL };
  VmmMachineContext *context = &self->context;
  VmmBackend *chosen[VMM_PLUGIN_N_KINDS];
  g_autoptr (GError) error = NULL;

  self->registry = vmm_plugin_registry_new ();
  vmm_plugin_registry_load_builtin (self->registry);
  vmm_plugin_registry_instantiate (self->registry, &config);
  for (guint kind = 0; kind < VMM_PLUGIN_N_KINDS; kind++)
    chosen[kind] = vmm_plugin_registry_choose (self->registry, kind, "fake", NULL, &error);
  g_assert_no_error (error);
  g_set_object (&context->launcher, VMM_LAUNCHER (chosen[VMM_PLUGIN_KIND_LAUNCHER]));
  g_set_object (&context->storage, VMM_STORAGE_BACKEND (chosen[VMM_PLUGIN_KIND_STORAGE]));
  g_set_object (&context->attestor, VMM_ATTESTOR (chosen[VMM_PLUGIN_KIND_ATTESTOR]));
  context->networks = vmm_network_table_new (
      self->state_dir, VMM_NETWORK_BACKEND (chosen[VMM_PLUGIN_KIND_NETWORK]), context->launcher);
}

static void
fill_context (MachineFixture *self, gboolean first)
{
  VmmMachineContext *context = &self->context;
  g_autofree char *images = g_build_filename (self->state_dir, "images", NULL);
  g_autofree char *code = g_build_filename (self->state_dir, "ovmf", "code.fd", NULL);
  g_autofree char *variables = g_build_filename (self->state_dir, "ovmf", "vars.fd", NULL);
  const char *flags[] = { "ovmf-code", code, "ovmf-vars", variables, NULL };
  g_autoptr (GError) error = NULL;

  context->state_dir = self->state_dir;
  context->options = vmm_options_new_for_test (flags, &error);
  g_assert_no_error (error);
  fill_backends (self);
  context->host = vmm_host_new (context->options, self->registry);
  certain_host_make_certain (context->host, self->state_dir);
  context->images = vmm_images_new (images);
  g_assert_true (vmm_images_scan (context->images, &error));
  context->next_cid = next_cid;
  context->next_cid_data = self;
  context->closing = FALSE;
  await_network (self, first);
}

static void
clear_context (MachineFixture *self)
{
  VmmMachineContext *context = &self->context;

  g_clear_object (&context->networks);
  g_clear_object (&context->images);
  g_clear_object (&context->host);
  g_clear_object (&context->launcher);
  g_clear_object (&context->storage);
  g_clear_object (&context->attestor);
  g_clear_pointer (&context->options, vmm_options_unref);
  g_clear_object (&self->registry);
}

MachineFixture *
machine_fixture_new (void)
{
  MachineFixture *self = g_new0 (MachineFixture, 1);

  test_fakes_register ();
  test_fakes_reset ();
  test_fakes.peers = TRUE;
  self->state_dir = test_make_directory ();
  self->next_cid = 2000;
  self->context.install_timeout_us = 300 * G_USEC_PER_SEC;
  self->context.boot_timeout_us = 240 * G_USEC_PER_SEC;
  self->context.stop_timeout_us = 30 * G_USEC_PER_SEC;
  machine_fixture_write (self, "images/demo_1.0.0.efi", "uki");
  machine_fixture_write (self, "images/demo_1.0.0.raw", "disk");
  machine_fixture_write (self, "ovmf/code.fd", "code");
  machine_fixture_write (self, "ovmf/vars.fd", "vars");
  fill_context (self, TRUE);
  test_fakes_clear_log ();
  return self;
}

static gboolean
is_freed (gpointer user_data)
{
  return *(gpointer *) user_data == NULL;
}

/* Whatever still waits for it must end by itself. */
static void
drop_machine (MachineFixture *self)
{
  gpointer machine = self->machine;

  if (machine == NULL)
    return;
  g_object_add_weak_pointer (machine, &machine);
  g_clear_object (&self->machine);
  test_await_condition (is_freed, &machine);
}

void
machine_fixture_free (MachineFixture *self)
{
  g_autoptr (GError) error = NULL;

  if (self->machine != NULL && !self->gone)
    {
      machine_fixture_delete (self, &error);
      g_clear_error (&error);
    }
  test_fakes_reset ();
  test_drain ();
  drop_machine (self);
  clear_context (self);
  test_drain ();
  test_remove_directory (self->state_dir);
  g_free (self);
}

static void
gone_cb (VmmMachine *machine, gpointer user_data)
{
  MachineFixture *self = user_data;

  g_assert_false (self->gone);
  self->gone = TRUE;
}

guint8 machine_fixture_seen[VMM_MACHINE_N_STATES][VMM_MACHINE_N_EVENTS][VMM_MACHINE_N_STATES + 1];

static void
transition_cb (VmmMachine *machine, guint event, guint from, guint to, gpointer user_data)
{
  machine_fixture_seen[from][event][to] = 1;
}

static void
set_machine (MachineFixture *self, VmmMachineRecord *record)
{
  drop_machine (self);
  self->gone = FALSE;
  self->machine = vmm_machine_new (&self->context, record);
  g_signal_connect (self->machine, "gone", G_CALLBACK (gone_cb), self);
  g_signal_connect (self->machine, "transition", G_CALLBACK (transition_cb), NULL);
}

void
machine_fixture_make (MachineFixture *self)
{
  VmmMachineRecord *record = vmm_machine_record_new ();

  record->id = g_strdup (MACHINE_FIXTURE_ID);
  record->name = g_strdup ("web");
  record->image = g_strdup ("demo_1.0.0");
  record->cpus = 1;
  record->memory_mib = 256;
  record->disk_gib = 1;
  record->network = g_strdup ("default");
  record->hostname = g_strdup ("web");
  record->region = g_strdup ("here");
  record->zone = g_strdup ("default");
  record->require_attestation = self->require_attestation;
  record->owner = g_strdup ("uid:1000");
  record->state = VMM_MACHINE_CREATING;
  record->cid = 1000;
  record->notify_port = 1048577;
  record->machine_id = g_strdup ("00112233445566778899aabbccddeeff");
  record->created_at = g_get_real_time ();
  set_machine (self, record);
}

gboolean
machine_fixture_create (MachineFixture *self, GError **error)
{
  g_autoptr (GBytes) data = g_bytes_new_static ("{\"ignition\": {}}", 16);
  TestAwait await = TEST_AWAIT_INIT;
  g_autoptr (GAsyncResult) result = NULL;

  vmm_machine_create_async (self->machine, data, NULL, test_await_cb, &await);
  result = test_await (&await);
  return vmm_machine_create_finish (self->machine, result, error);
}

#define OPERATION(name)                                                                            \
  gboolean machine_fixture_##name (MachineFixture *self, GError **error)                           \
  {                                                                                                \
    TestAwait await = TEST_AWAIT_INIT;                                                             \
    g_autoptr (GAsyncResult) result = NULL;                                                        \
    vmm_machine_##name##_async (self->machine, NULL, test_await_cb, &await);                       \
    result = test_await (&await);                                                                  \
    return vmm_machine_##name##_finish (self->machine, result, error);                             \
  }

OPERATION (start)
OPERATION (stop)
OPERATION (reboot)
OPERATION (delete)

gboolean
machine_fixture_close (MachineFixture *self, gboolean detach, GError **error)
{
  TestAwait await = TEST_AWAIT_INIT;
  g_autoptr (GAsyncResult) result = NULL;

  self->context.closing = TRUE;
  vmm_machine_close_async (self->machine, detach, test_await_cb, &await);
  result = test_await (&await);
  return vmm_machine_close_finish (self->machine, result, error);
}

const VmmMachineRecord *
machine_fixture_record (MachineFixture *self)
{
  return vmm_machine_get_record (self->machine);
}

void
machine_fixture_end_qemu (MachineFixture *self, int code, int signum, const char *reason)
{
  g_autofree char *data
      = reason != NULL ? g_strdup_printf ("{\"guest\": true, \"reason\": \"%s\"}", reason) : NULL;

  if (data != NULL)
    test_peer_journal (MACHINE_FIXTURE_ID, "shutdown", data);
  test_peer_journal (MACHINE_FIXTURE_ID, "exit", NULL);
  test_fakes_exit (MACHINE_FIXTURE_ID, "qemu", code, signum);
}

typedef struct
{
  VmmMachine *machine;
  VmmMachineState state;
  const char *text;
} Expected;

static gboolean
is_in_state (gpointer user_data)
{
  Expected *expected = user_data;

  return vmm_machine_get_state (expected->machine) == expected->state;
}

void
machine_fixture_await_state (MachineFixture *self, VmmMachineState state)
{
  Expected expected = { self->machine, state, NULL };

  test_await_condition (is_in_state, &expected);
}

static gboolean
has_error (gpointer user_data)
{
  Expected *expected = user_data;
  const char *last_error = vmm_machine_get_record (expected->machine)->last_error;

  return last_error != NULL && strstr (last_error, expected->text) != NULL;
}

void
machine_fixture_await_error (MachineFixture *self, const char *text)
{
  Expected expected = { self->machine, 0, text };

  test_await_condition (has_error, &expected);
}

static gboolean
is_hanging (gpointer user_data)
{
  return test_fakes_get_n_hanging () > 0;
}

static void
create_well (MachineFixture *self)
{
  g_autoptr (GError) error = NULL;

  machine_fixture_make (self);
  g_assert_true (machine_fixture_create (self, &error));
  g_assert_no_error (error);
}

static void
ignore_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
}

void
machine_fixture_bring_to_installed (MachineFixture *self)
{
  test_peer_behaviour.installer_ms = TEST_PEER_NEVER;
  create_well (self);
  test_fakes_hang ("launcher.start:tpm");
  machine_fixture_end_qemu (self, 0, 0, "guest-reset");
  test_await_condition (is_hanging, NULL);
  g_assert_cmpint (machine_fixture_record (self)->installed_at, !=, 0);
  g_assert_cmpint (vmm_machine_get_state (self->machine), ==, VMM_MACHINE_INSTALLING);
}

/* READY=1 does not come, so the states before it stay. */
static void
bring_to_booting (MachineFixture *self)
{
  test_peer_behaviour.ready_ms = TEST_PEER_NEVER;
  create_well (self);
  machine_fixture_await_state (self, VMM_MACHINE_BOOTING);
}

static void
bring_to_stopping (MachineFixture *self)
{
  machine_fixture_bring_to (self, VMM_MACHINE_READY);
  test_peer_behaviour.ignore_powerdown = TRUE;
  /* Without a caller who waits: he would keep the machine alive beyond its daemon. */
  g_assert_true (vmm_machine_handle_event (self->machine, VMM_MACHINE_EVENT_STOP_REQUESTED, NULL,
                                           NULL));
  g_assert_cmpint (vmm_machine_get_state (self->machine), ==, VMM_MACHINE_STOPPING);
}

static void
bring_to_running (MachineFixture *self)
{
  gint64 timeout_us = self->context.boot_timeout_us;

  self->context.boot_timeout_us = 1000;
  bring_to_booting (self);
  machine_fixture_await_state (self, VMM_MACHINE_RUNNING);
  self->context.boot_timeout_us = timeout_us;
}

void
machine_fixture_bring_to (MachineFixture *self, VmmMachineState state)
{
  g_autoptr (GError) error = NULL;

  switch (state)
    {
    case VMM_MACHINE_CREATING:
      machine_fixture_make (self);
      test_fakes_hang ("storage.acquire");
      vmm_machine_create_async (self->machine, NULL, NULL, ignore_cb, NULL);
      test_await_condition (is_hanging, NULL);
      break;
    case VMM_MACHINE_INSTALLING:
      test_peer_behaviour.installer_ms = TEST_PEER_NEVER;
      create_well (self);
      break;
    case VMM_MACHINE_BOOTING:
      bring_to_booting (self);
      break;
    case VMM_MACHINE_ATTESTING:
      self->require_attestation = TRUE;
      bring_to_booting (self);
      vmm_machine_note_nonce (self->machine);
      break;
    case VMM_MACHINE_READY:
      create_well (self);
      machine_fixture_await_state (self, VMM_MACHINE_READY);
      break;
    case VMM_MACHINE_RUNNING:
      bring_to_running (self);
      break;
    case VMM_MACHINE_STOPPING:
      bring_to_stopping (self);
      break;
    case VMM_MACHINE_STOPPED:
      machine_fixture_bring_to (self, VMM_MACHINE_READY);
      g_assert_true (machine_fixture_stop (self, &error));
      break;
    case VMM_MACHINE_FAILED:
      machine_fixture_bring_to (self, VMM_MACHINE_READY);
      machine_fixture_end_qemu (self, 1, 0, NULL);
      machine_fixture_await_state (self, VMM_MACHINE_FAILED);
      break;
    case VMM_MACHINE_DELETING:
      machine_fixture_bring_to (self, VMM_MACHINE_STOPPED);
      test_fakes_hang ("storage.remove");
      vmm_machine_delete_async (self->machine, NULL, ignore_cb, NULL);
      test_await_condition (is_hanging, NULL);
      break;
    default:
      g_assert_not_reached ();
    }
  g_assert_no_error (error);
  g_assert_cmpint (vmm_machine_get_state (self->machine), ==, state);
}

void
machine_fixture_kill (MachineFixture *self)
{
  /* What it had asked for is answered. */
  test_drain ();
  test_fakes_daemon_died ();
  /* What the daemon had in flight dies with it; here it ends somehow, on a folder out of its reach. */
  test_drain ();
  drop_machine (self);
  clear_context (self);
  test_drain ();
}

void
machine_fixture_flush (MachineFixture *self)
{
  TestAwait await = TEST_AWAIT_INIT;
  g_autoptr (GAsyncResult) result = NULL;

  vmm_machine_save_async (self->machine, test_await_cb, &await);
  result = test_await (&await);
  g_assert_true (vmm_machine_save_finish (self->machine, result, NULL));
}

char *
machine_fixture_read_record (MachineFixture *self)
{
  g_autofree char *path = machine_fixture_path (self, "vm.json");
  char *text = NULL;
  g_autoptr (GError) error = NULL;

  g_file_get_contents (path, &text, NULL, &error);
  g_assert_no_error (error);
  return text;
}

void
machine_fixture_edit_record (MachineFixture *self, const char *from, const char *to)
{
  g_autofree char *path = machine_fixture_path (self, "vm.json");
  g_autofree char *text = machine_fixture_read_record (self);
  g_auto (GStrv) parts = g_strsplit (text, from, -1);
  g_autofree char *edited = g_strjoinv (to, parts);

  g_assert_cmpuint (g_strv_length (parts), >, 1);
  g_assert_true (g_file_set_contents (path, edited, -1, NULL));
}

void
machine_fixture_recover (MachineFixture *self)
{
  g_autofree char *text = machine_fixture_read_record (self);
  g_autoptr (JsonObject) object = NULL;
  VmmMachineRecord *record;
  TestAwait await = TEST_AWAIT_INIT;
  g_autoptr (GAsyncResult) result = NULL;
  g_autoptr (GError) error = NULL;

  fill_context (self, FALSE);
  object = vmm_json_parse_object (text, strlen (text), &error);
  g_assert_no_error (error);
  record = vmm_machine_record_from_file (object, &error);
  g_assert_no_error (error);
  set_machine (self, record);
  vmm_machine_recover_async (self->machine, NULL, test_await_cb, &await);
  result = test_await (&await);
  g_assert_true (vmm_machine_recover_finish (self->machine, result, &error));
  g_assert_no_error (error);
}

void
machine_fixture_assert_nothing_left (MachineFixture *self)
{
  g_autofree char *directory = machine_fixture_path (self, "");

  g_assert_false (g_file_test (directory, G_FILE_TEST_EXISTS));
  g_assert_cmpuint (test_fakes_get_n_running (), ==, 0);
  g_assert_cmpuint (test_fakes_get_n_volumes (), ==, 0);
  g_assert_cmpuint (test_fakes_get_n_ports (), ==, 0);
  g_assert_cmpuint (test_fakes_get_n_forwards (), ==, 0);
  g_assert_cmpuint (vmm_network_table_get_n_leases (self->context.networks, "default"), ==, 0);
}

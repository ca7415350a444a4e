/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <fcntl.h>
#include <string.h>

#include "interfaces/vmm.h"

#include "test-await.h"

/* A backend of every kind that implements nothing. */
#define TEST_TYPE_EMPTY (test_empty_get_type ())
G_DECLARE_FINAL_TYPE (TestEmpty, test_empty, TEST, EMPTY, GObject)

struct _TestEmpty
{
  GObject parent_instance;
};

G_DEFINE_FINAL_TYPE_WITH_CODE (TestEmpty, test_empty, G_TYPE_OBJECT,
                               G_IMPLEMENT_INTERFACE (VMM_TYPE_BACKEND, NULL)
                                   G_IMPLEMENT_INTERFACE (VMM_TYPE_LAUNCHER, NULL)
                                       G_IMPLEMENT_INTERFACE (VMM_TYPE_NETWORK_BACKEND, NULL)
                                           G_IMPLEMENT_INTERFACE (VMM_TYPE_STORAGE_BACKEND, NULL)
                                               G_IMPLEMENT_INTERFACE (VMM_TYPE_ATTESTOR, NULL))

static void
test_empty_class_init (TestEmptyClass *klass)
{
}

static void
test_empty_init (TestEmpty *self)
{
}

#define TEST_TYPE_EMPTY_NETWORK (test_empty_network_get_type ())
G_DECLARE_FINAL_TYPE (TestEmptyNetwork, test_empty_network, TEST, EMPTY_NETWORK, VmmNetwork)

struct _TestEmptyNetwork
{
  VmmNetwork parent_instance;
};

G_DEFINE_FINAL_TYPE (TestEmptyNetwork, test_empty_network, VMM_TYPE_NETWORK)

static void
test_empty_network_class_init (TestEmptyNetworkClass *klass)
{
}

static void
test_empty_network_init (TestEmptyNetwork *self)
{
}

/* A backend whose only vfunc says that it is not available, without saying why. */
#define TEST_TYPE_ABSENT (test_absent_get_type ())
G_DECLARE_FINAL_TYPE (TestAbsent, test_absent, TEST, ABSENT, GObject)

struct _TestAbsent
{
  GObject parent_instance;
};

static gboolean
test_absent_is_available (VmmBackend *backend, char **reason)
{
  return FALSE;
}

static GStrv
test_absent_dup_capabilities (VmmBackend *backend)
{
  const char *names[] = { "learn", "dream", NULL };

  return g_strdupv ((char **) names);
}

static void
absent_backend_init (VmmBackendInterface *iface)
{
  iface->is_available = test_absent_is_available;
  iface->dup_capabilities = test_absent_dup_capabilities;
}

G_DEFINE_FINAL_TYPE_WITH_CODE (TestAbsent, test_absent, G_TYPE_OBJECT,
                               G_IMPLEMENT_INTERFACE (VMM_TYPE_BACKEND, absent_backend_init))

static void
test_absent_class_init (TestAbsentClass *klass)
{
}

static void
test_absent_init (TestAbsent *self)
{
}

static void
test_backend (void)
{
  g_autoptr (VmmBackend) backend = g_object_new (TEST_TYPE_EMPTY, NULL);
  g_autoptr (VmmBackend) absent = g_object_new (TEST_TYPE_ABSENT, NULL);
  const VmmBackendConfig config = { "/state", "/run", NULL };
  g_auto (GStrv) capabilities = NULL;
  g_autofree char *why = NULL;
  g_autoptr (GError) error = NULL;
  char *reason = (char *) "untouched";

  g_assert_true (vmm_backend_configure (backend, &config, &error));
  g_assert_true (vmm_backend_is_available (backend, &reason));
  g_assert_null (reason);
  g_assert_true (vmm_backend_is_available (backend, NULL));
  capabilities = vmm_backend_dup_capabilities (backend);
  g_assert_cmpuint (g_strv_length (capabilities), ==, 0);
  g_assert_false (vmm_backend_has_capability (backend, "learn"));
  g_assert_null (vmm_backend_describe_host (backend));

  g_assert_false (vmm_backend_is_available (absent, &why));
  g_assert_cmpstr (why, !=, NULL);
  g_assert_false (vmm_backend_is_available (absent, NULL));
  g_assert_true (vmm_backend_has_capability (absent, "dream"));
  g_assert_false (vmm_backend_has_capability (absent, "drea"));
}

static void
assert_unsupported (GError **error)
{
  g_assert_error (*error, VMM_ERROR, VMM_ERROR_UNSUPPORTED);
  g_assert_true (g_str_has_prefix ((*error)->message, "unsupported: "));
  g_clear_error (error);
}

static void
test_launcher (void)
{
  g_autoptr (VmmLauncher) launcher = g_object_new (TEST_TYPE_EMPTY, NULL);
  const char *argv[] = { "true", NULL };
  g_autoptr (VmmProcessSpec) spec = vmm_process_spec_new ("id", argv);
  g_autoptr (GAsyncResult) started = NULL;
  g_autoptr (GAsyncResult) found = NULL;
  g_autoptr (GError) error = NULL;
  TestAwait await = TEST_AWAIT_INIT;

  g_assert_false (vmm_launcher_outlives_daemon (launcher));
  vmm_launcher_start_async (launcher, spec, NULL, test_await_cb, &await);
  g_assert_null (await.result);
  started = test_await (&await);
  g_assert_null (vmm_launcher_start_finish (launcher, started, &error));
  assert_unsupported (&error);
  vmm_launcher_find_async (launcher, "id", NULL, NULL, test_await_cb, &await);
  found = test_await (&await);
  g_assert_null (vmm_launcher_find_finish (launcher, found, &error));
  assert_unsupported (&error);
}

static void
test_storage (void)
{
  g_autoptr (VmmStorageBackend) storage = g_object_new (TEST_TYPE_EMPTY, NULL);
  g_autoptr (VmmVolume) volume = vmm_volume_new ("vm-1", "/vm-1", -1, 1, FALSE, FALSE);
  const VmmVolumeRequest request = { "vm-1", 1, VMM_VOLUME_NEW, FALSE, NULL };
  GAsyncResult *result;
  g_autoptr (GError) error = NULL;
  TestAwait await = TEST_AWAIT_INIT;

  vmm_storage_backend_acquire_async (storage, &request, NULL, test_await_cb, &await);
  result = test_await (&await);
  g_assert_null (vmm_storage_backend_acquire_finish (storage, result, &error));
  assert_unsupported (&error);
  g_object_unref (result);
  vmm_storage_backend_grow_async (storage, volume, 2, NULL, test_await_cb, &await);
  result = test_await (&await);
  g_assert_false (vmm_storage_backend_grow_finish (storage, result, &error));
  assert_unsupported (&error);
  g_object_unref (result);
  vmm_storage_backend_remove_async (storage, "vm-1", NULL, test_await_cb, &await);
  result = test_await (&await);
  g_assert_false (vmm_storage_backend_remove_finish (storage, result, &error));
  assert_unsupported (&error);
  g_object_unref (result);
  vmm_storage_backend_list_async (storage, NULL, NULL, test_await_cb, &await);
  result = test_await (&await);
  g_assert_null (vmm_storage_backend_list_finish (storage, result, &error));
  assert_unsupported (&error);
  g_object_unref (result);
}

static void
test_network_backend (void)
{
  g_autoptr (VmmNetworkBackend) backend = g_object_new (TEST_TYPE_EMPTY, NULL);
  const VmmNetworkSpec spec = { .name = "net" };
  g_autoptr (GAsyncResult) result = NULL;
  g_autoptr (GError) error = NULL;
  TestAwait await = TEST_AWAIT_INIT;

  vmm_network_backend_open_async (backend, &spec, VMM_LAUNCHER (backend), NULL, test_await_cb,
                                  &await);
  result = test_await (&await);
  g_assert_null (vmm_network_backend_open_finish (backend, result, &error));
  assert_unsupported (&error);
}

static void
test_network (void)
{
  g_autoptr (VmmNetwork) network = g_object_new (TEST_TYPE_EMPTY_NETWORK, NULL);
  const VmmNetworkPort port = { .vm_id = "vm" };
  const VmmForwardSpec forward = { .id = "f" };
  VmmNetworkCounters counters = { 1, 2, 3, 4 };
  GAsyncResult *result;
  g_autoptr (GError) error = NULL;
  TestAwait await = TEST_AWAIT_INIT;

  vmm_network_attach_async (network, &port, NULL, test_await_cb, &await);
  result = test_await (&await);
  g_assert_null (vmm_network_attach_finish (network, result, &error));
  assert_unsupported (&error);
  g_object_unref (result);
  vmm_network_detach_async (network, "vm", NULL, test_await_cb, &await);
  result = test_await (&await);
  g_assert_false (vmm_network_detach_finish (network, result, &error));
  assert_unsupported (&error);
  g_object_unref (result);
  vmm_network_dial_async (network, "vm", "10.0.0.2", 22, NULL, test_await_cb, &await);
  result = test_await (&await);
  g_assert_null (vmm_network_dial_finish (network, result, &error));
  assert_unsupported (&error);
  g_object_unref (result);
  vmm_network_forward_async (network, &forward, NULL, test_await_cb, &await);
  result = test_await (&await);
  g_assert_cmpuint (vmm_network_forward_finish (network, result, &error), ==, 0);
  assert_unsupported (&error);
  g_object_unref (result);
  vmm_network_unforward_async (network, "f", NULL, test_await_cb, &await);
  result = test_await (&await);
  g_assert_false (vmm_network_unforward_finish (network, result, &error));
  assert_unsupported (&error);
  g_object_unref (result);
  vmm_network_close_async (network, TRUE, NULL, test_await_cb, &await);
  result = test_await (&await);
  g_assert_true (vmm_network_close_finish (network, result, &error));
  g_object_unref (result);

  g_assert_false (vmm_network_get_counters (network, &counters));
  g_assert_cmpuint (counters.spoofed, ==, 0);
}

static void
failed_cb (VmmNetwork *network, const char *reason, char **last)
{
  g_free (*last);
  *last = g_strdup (reason);
}

static void
test_network_signals (void)
{
  g_autoptr (VmmNetwork) network = g_object_new (TEST_TYPE_EMPTY_NETWORK, NULL);
  g_autofree char *last = NULL;
  gboolean recovered = FALSE;

  g_signal_connect (network, "failed", G_CALLBACK (failed_cb), &last);
  g_signal_connect_swapped (network, "recovered", G_CALLBACK (g_atomic_int_inc), &recovered);
  g_signal_emit_by_name (network, "failed", "it is gone");
  g_assert_cmpstr (last, ==, "it is gone");
  g_signal_emit_by_name (network, "recovered");
  g_assert_true (recovered);
}

static void
test_attestor (void)
{
  g_autoptr (VmmAttestor) attestor = g_object_new (TEST_TYPE_EMPTY, NULL);
  const VmmBootContext boot = { .vm_id = "vm", .image = "i" };
  g_autoptr (GBytes) evidence = g_bytes_new_static ("{}", 2);
  g_autoptr (GAsyncResult) result = NULL;
  g_autoptr (GError) error = NULL;
  TestAwait await = TEST_AWAIT_INIT;

  /* One that says nothing is not trusted. */
  g_assert_false (vmm_attestor_verifies (attestor));
  vmm_attestor_begin_boot (attestor, "vm");
  vmm_attestor_forget (attestor, "vm");
  g_assert_null (vmm_attestor_dup_nonce (attestor, "vm", &error));
  assert_unsupported (&error);
  vmm_attestor_judge_async (attestor, &boot, evidence, NULL, test_await_cb, &await);
  result = test_await (&await);
  g_assert_null (vmm_attestor_judge_finish (attestor, result, &error));
  assert_unsupported (&error);
}

static void
test_attachment (void)
{
  const char *arguments[] = { "-netdev", "tap,id=net0", NULL };
  g_autoptr (VmmAttachment) attachment = vmm_attachment_new (arguments);
  g_autoptr (VmmAttachment) again = vmm_attachment_ref (attachment);

  g_assert_true (again == attachment);
  g_assert_null (vmm_attachment_get_devices (attachment)[0]);
  vmm_attachment_add_device (attachment, "/dev/net/tun");
  vmm_attachment_add_device (attachment, "/dev/vhost-net");
  g_assert_cmpstr (vmm_attachment_get_arguments (again)[1], ==, "tap,id=net0");
  g_assert_null (vmm_attachment_get_arguments (again)[2]);
  g_assert_cmpstr (vmm_attachment_get_devices (again)[0], ==, "/dev/net/tun");
  g_assert_cmpstr (vmm_attachment_get_devices (again)[1], ==, "/dev/vhost-net");
  g_assert_null (vmm_attachment_get_devices (again)[2]);
}

static void
test_verdict (void)
{
  g_autoptr (VmmVerdict) verdict = vmm_verdict_new ("initrd", TRUE, "good");
  g_autoptr (VmmVerdict) bare = vmm_verdict_new ("ready", FALSE, NULL);
  g_autoptr (VmmVerdict) again = vmm_verdict_ref (verdict);

  g_assert_cmpstr (vmm_verdict_get_stage (verdict), ==, "initrd");
  g_assert_true (vmm_verdict_is_verified (verdict));
  g_assert_cmpstr (vmm_verdict_get_message (verdict), ==, "good");
  g_assert_null (vmm_verdict_get_ak_fingerprint (verdict));
  g_assert_null (vmm_verdict_get_pinned_key (verdict));
  g_assert_null (vmm_verdict_get_pcr (verdict, 11));
  g_assert_false (vmm_verdict_was_learned (verdict, 11));

  vmm_verdict_set_ak_fingerprint (verdict, "sha256:00");
  vmm_verdict_set_pinned_key (verdict, "key");
  vmm_verdict_set_pinned_key (verdict, "other key");
  vmm_verdict_set_pcr (verdict, 0, "00");
  vmm_verdict_set_pcr (verdict, 23, "ff");
  vmm_verdict_set_pcr (verdict, 23, "fe");
  vmm_verdict_add_learned (verdict, 0);
  vmm_verdict_add_learned (verdict, 23);

  g_clear_pointer (&verdict, vmm_verdict_unref);
  g_assert_cmpstr (vmm_verdict_get_ak_fingerprint (again), ==, "sha256:00");
  g_assert_cmpstr (vmm_verdict_get_pinned_key (again), ==, "other key");
  g_assert_cmpstr (vmm_verdict_get_pcr (again, 0), ==, "00");
  g_assert_cmpstr (vmm_verdict_get_pcr (again, 23), ==, "fe");
  g_assert_true (vmm_verdict_was_learned (again, 0));
  g_assert_true (vmm_verdict_was_learned (again, 23));
  g_assert_false (vmm_verdict_was_learned (again, 1));

  g_assert_false (vmm_verdict_is_verified (bare));
  g_assert_null (vmm_verdict_get_message (bare));
}

static void
test_volume (void)
{
  int fd = open ("/dev/null", O_RDONLY | O_CLOEXEC);
  int second = open ("/dev/null", O_RDONLY | O_CLOEXEC);
  VmmVolume *volume = vmm_volume_new ("vm-1", NULL, fd, 4096, TRUE, TRUE);

  g_assert_cmpstr (vmm_volume_get_name (volume), ==, "vm-1");
  g_assert_null (vmm_volume_get_path (volume));
  g_assert_cmpint (vmm_volume_get_fd (volume), ==, fd);
  g_assert_cmpuint (vmm_volume_get_size (volume), ==, 4096);
  g_assert_true (vmm_volume_is_block_device (volume));
  g_assert_true (vmm_volume_is_read_only (volume));
  vmm_volume_set_size (volume, 1ULL << 40);
  g_assert_cmpuint (vmm_volume_get_size (volume), ==, 1ULL << 40);

  vmm_volume_release (volume);
  g_assert_cmpint (vmm_volume_get_fd (volume), ==, -1);
  g_assert_cmpint (fcntl (fd, F_GETFD), ==, -1);
  vmm_volume_release (volume);
  g_object_unref (volume);

  volume = vmm_volume_new ("vm-2", "/path", second, 1, FALSE, FALSE);
  g_assert_cmpstr (vmm_volume_get_path (volume), ==, "/path");
  g_object_unref (volume);
  g_assert_cmpint (fcntl (second, F_GETFD), ==, -1);
}

static void
test_volume_info (void)
{
  g_autoptr (VmmVolumeInfo) info = vmm_volume_info_new ("vm-1", 10, 5, TRUE);
  VmmVolumeInfo *copy = g_boxed_copy (VMM_TYPE_VOLUME_INFO, info);

  g_assert_true (copy->name != info->name);
  g_assert_cmpstr (copy->name, ==, "vm-1");
  g_assert_cmpuint (copy->size_bytes, ==, 10);
  g_assert_cmpuint (copy->used_bytes, ==, 5);
  g_assert_true (copy->read_only);
  g_boxed_free (VMM_TYPE_VOLUME_INFO, copy);
}

static void
test_volume_names (void)
{
  g_autofree char *longest = g_strnfill (248, 'a');
  g_autofree char *too_long = g_strnfill (249, 'a');
  g_autofree char *huge = g_strnfill (1 << 20, 'a');
  const char *good[] = { "vm-1a2b3c4d", "a", ".hidden", "...", "a b", "größe", longest };
  const char *bad[] = { NULL, "", ".", "..", "a/b", "/", "a\nb", "a\x7f", "\xff", too_long, huge };

  for (guint i = 0; i < G_N_ELEMENTS (good); i++)
    {
      g_autoptr (GError) error = NULL;

      g_assert_true (vmm_volume_name_is_valid (good[i], &error));
      g_assert_no_error (error);
    }
  for (guint i = 0; i < G_N_ELEMENTS (bad); i++)
    {
      g_autoptr (GError) error = NULL;

      g_assert_false (vmm_volume_name_is_valid (bad[i], &error));
      g_assert_error (error, VMM_ERROR, VMM_ERROR_INVALID_REQUEST);
      g_assert_true (g_str_has_prefix (error->message, "invalid request: volume name \""));
      g_assert_true (g_str_is_ascii (error->message));
      g_assert_cmpuint (strlen (error->message), <, 1200);
    }
  g_assert_false (vmm_volume_name_is_valid ("a/b", NULL));
}

int
main (int argc, char **argv)
{
  g_test_init (&argc, &argv, G_TEST_OPTION_ISOLATE_DIRS, NULL);
  g_test_add_func ("/interfaces/backend", test_backend);
  g_test_add_func ("/interfaces/launcher", test_launcher);
  g_test_add_func ("/interfaces/storage", test_storage);
  g_test_add_func ("/interfaces/network-backend", test_network_backend);
  g_test_add_func ("/interfaces/network", test_network);
  g_test_add_func ("/interfaces/network-signals", test_network_signals);
  g_test_add_func ("/interfaces/attestor", test_attestor);
  g_test_add_func ("/interfaces/attachment", test_attachment);
  g_test_add_func ("/interfaces/verdict", test_verdict);
  g_test_add_func ("/interfaces/volume", test_volume);
  g_test_add_func ("/interfaces/volume-info", test_volume_info);
  g_test_add_func ("/interfaces/volume-names", test_volume_names);
  return g_test_run ();
}

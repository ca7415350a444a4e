/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* A service with the fake backends on a state folder of its own. */

#include "service-fixture.h"

#include "certain-host.h"
#include "fake-backends.h"
#include "test-await.h"
#include "vmm-json.h"

void
service_fixture_write (ServiceFixture *self, const char *path, const char *content)
{
  g_autofree char *full = g_build_filename (self->state_dir, path, NULL);
  g_autofree char *folder = g_path_get_dirname (full);

  g_assert_cmpint (g_mkdir_with_parents (folder, 0700), ==, 0);
  g_assert_true (g_file_set_contents (full, content, -1, NULL));
}

void
service_fixture_set_flag (ServiceFixture *self, const char *flag, const char *value)
{
  g_ptr_array_remove_index (self->flags, self->flags->len - 1);
  g_ptr_array_add (self->flags, g_strdup (flag));
  g_ptr_array_add (self->flags, g_strdup (value));
  g_ptr_array_add (self->flags, NULL);
}

static void
set_path_flag (ServiceFixture *self, const char *flag, const char *path)
{
  g_autofree char *full = g_build_filename (self->state_dir, path, NULL);

  service_fixture_set_flag (self, flag, full);
}

ServiceFixture *
service_fixture_new (void)
{
  ServiceFixture *self = g_new0 (ServiceFixture, 1);

  test_fakes_register ();
  test_fakes_reset ();
  test_fakes.peers = TRUE;
  self->state_dir = test_make_directory ();
  self->flags = g_ptr_array_new_with_free_func (g_free);
  g_ptr_array_add (self->flags, NULL);
  service_fixture_write (self, "images/demo_1.0.0.efi", "uki");
  service_fixture_write (self, "images/demo_1.0.0.raw", "disk");
  service_fixture_write (self, "images/demo_0.9.0.efi", "uki");
  service_fixture_write (self, "images/demo_0.9.0.raw", "disk");
  service_fixture_write (self, "images/sysupdate/kubernetes/SHA256SUMS",
                         "00  kubernetes_1.31.2.raw\n00  kubernetes_1.32.0.raw\n");
  service_fixture_write (self, "ovmf/code.fd", "code");
  service_fixture_write (self, "ovmf/vars.fd", "vars");
  set_path_flag (self, "ovmf-code", "ovmf/code.fd");
  set_path_flag (self, "ovmf-vars", "ovmf/vars.fd");
  set_path_flag (self, "image-dir", "images");
  service_fixture_set_flag (self, "network-subnet", "10.64.0.0/16");
  return self;
}

void
service_fixture_free (ServiceFixture *self)
{
  if (self->service != NULL)
    service_fixture_close (self, FALSE);
  test_fakes_reset ();
  test_drain ();
  g_clear_object (&self->registry);
  g_ptr_array_unref (self->flags);
  test_remove_directory (self->state_dir);
  g_free (self);
}

static VmmMachineContext *
make_context (ServiceFixture *self)
{
  VmmMachineContext *context = g_new0 (VmmMachineContext, 1);
  g_autofree char *images = g_build_filename (self->state_dir, "images", NULL);
  VmmBackendConfig config = { self->state_dir, self->state_dir, NULL };
  VmmBackend *chosen[VMM_PLUGIN_N_KINDS];
  g_autoptr (GError) error = NULL;

  self->registry = vmm_plugin_registry_new ();
  vmm_plugin_registry_load_builtin (self->registry);
  vmm_plugin_registry_instantiate (self->registry, &config);
  for (guint kind = 0; kind < VMM_PLUGIN_N_KINDS; kind++)
    chosen[kind] = test_fakes.unavailable[kind] == NULL
                       ? vmm_plugin_registry_choose (self->registry, kind, "fake", NULL, &error)
                       : NULL;
  g_assert_no_error (error);

  context->state_dir = g_strdup (self->state_dir);
  context->options = vmm_options_new_for_test ((const char *const *) self->flags->pdata, &error);
  g_assert_no_error (error);
  context->host = vmm_host_new (context->options, self->registry);
  certain_host_make_certain (context->host, self->state_dir);
  context->images = vmm_images_new (images);
  g_assert_true (vmm_images_scan (context->images, &error));
  g_assert_no_error (error);
  g_set_object (&context->launcher, VMM_LAUNCHER (chosen[VMM_PLUGIN_KIND_LAUNCHER]));
  g_set_object (&context->storage, VMM_STORAGE_BACKEND (chosen[VMM_PLUGIN_KIND_STORAGE]));
  if (chosen[VMM_PLUGIN_KIND_ATTESTOR] != NULL)
    g_set_object (&context->attestor, VMM_ATTESTOR (chosen[VMM_PLUGIN_KIND_ATTESTOR]));
  context->networks
      = vmm_network_table_new (self->state_dir,
                               chosen[VMM_PLUGIN_KIND_NETWORK] != NULL
                                   ? VMM_NETWORK_BACKEND (chosen[VMM_PLUGIN_KIND_NETWORK])
                                   : NULL,
                               context->launcher);
  context->install_timeout_us = 300 * G_USEC_PER_SEC;
  context->boot_timeout_us = 240 * G_USEC_PER_SEC;
  context->stop_timeout_us = 30 * G_USEC_PER_SEC;
  return context;
}

gboolean
service_fixture_start (ServiceFixture *self, GError **error)
{
  TestAwait await = TEST_AWAIT_INIT;
  g_autoptr (GAsyncResult) result = NULL;

  g_assert_null (self->service);
  g_clear_object (&self->registry);
  self->context = make_context (self);
  self->service = vmm_service_new (self->context, self->registry);
  if (self->with_imds)
    self->imds = vmm_imds_new (self->service);
  vmm_service_load_async (self->service, NULL, test_await_cb, &await);
  result = test_await (&await);
  return vmm_service_load_finish (self->service, result, error);
}

void
service_fixture_start_well (ServiceFixture *self)
{
  g_autoptr (GError) error = NULL;

  g_assert_true (service_fixture_start (self, &error));
  g_assert_no_error (error);
}

void
service_fixture_close (ServiceFixture *self, gboolean detach)
{
  TestAwait await = TEST_AWAIT_INIT;
  g_autoptr (GAsyncResult) result = NULL;
  g_autoptr (GError) error = NULL;

  vmm_service_close_async (self->service, detach, test_await_cb, &await);
  result = test_await (&await);
  g_assert_true (vmm_service_close_finish (self->service, result, &error));
  g_assert_no_error (error);

  /* The machines end before what they share does. */
  test_drain ();
  g_clear_object (&self->imds);
  g_clear_object (&self->service);
  self->context = NULL;
  test_drain ();
}

static JsonNode *
call (ServiceFixture *self, const char *operation, const char *arguments, GError **error)
{
  const VmmHandler *handler = vmm_handlers_find (operation);
  g_auto (GStrv) parts = g_strsplit (arguments, "'", -1);
  g_autofree char *text = g_strjoinv ("\"", parts);
  g_autoptr (JsonObject) object = vmm_json_parse_object (text, strlen (text), NULL);
  g_autoptr (VmmCaller) caller = vmm_caller_new ("test", "uid:4242");
  g_autoptr (VmmCall) a_call = NULL;
  TestAwait await = TEST_AWAIT_INIT;
  g_autoptr (GAsyncResult) result = NULL;

  g_assert_nonnull (handler);
  g_assert_nonnull (object);
  a_call = vmm_call_new (caller, object, NULL);
  handler->start (self->service, a_call, test_await_cb, &await);
  result = test_await (&await);
  return handler->finish (self->service, result, error);
}

JsonNode *
service_fixture_call (ServiceFixture *self, const char *operation, GError **error,
                      const char *arguments_format, ...)
{
  g_autofree char *arguments = NULL;
  va_list args;

  va_start (args, arguments_format);
  arguments = g_strdup_vprintf (arguments_format, args);
  va_end (args);
  return call (self, operation, arguments, error);
}

JsonNode *
service_fixture_call_well (ServiceFixture *self, const char *operation,
                           const char *arguments_format, ...)
{
  g_autofree char *arguments = NULL;
  g_autoptr (GError) error = NULL;
  JsonNode *node;
  va_list args;

  va_start (args, arguments_format);
  arguments = g_strdup_vprintf (arguments_format, args);
  va_end (args);
  node = call (self, operation, arguments, &error);
  g_assert_no_error (error);
  g_assert_nonnull (node);
  g_assert_true (json_node_is_immutable (node));
  return node;
}

void
service_fixture_call_badly (ServiceFixture *self, const char *operation, VmmError code,
                            const char *message, const char *arguments_format, ...)
{
  g_autofree char *arguments = NULL;
  g_autoptr (GError) error = NULL;
  va_list args;

  va_start (args, arguments_format);
  arguments = g_strdup_vprintf (arguments_format, args);
  va_end (args);
  g_assert_null (call (self, operation, arguments, &error));
  g_assert_nonnull (error);
  if (!g_pattern_match_simple (message, error->message))
    g_assert_cmpstr (error->message, ==, message);
  g_assert_error (error, VMM_ERROR, (int) code);
}

const char *
service_fixture_get (JsonNode *node, const char *member)
{
  JsonObject *object = json_node_get_object (node);

  return json_object_has_member (object, member) ? json_object_get_string_member (object, member)
                                                 : NULL;
}

char *
service_fixture_create_vm (ServiceFixture *self, const char *name, const char *wait_for)
{
  g_autoptr (JsonNode) node = service_fixture_call_well (
      self, "create_vm", "{'name':'%s','require_attestation':false,'wait_for':'%s'}", name,
      wait_for);

  return g_strdup (service_fixture_get (node, "id"));
}

typedef struct
{
  VmmMachine *machine;
  VmmMachineState state;
} Expected;

static gboolean
is_in_state (gpointer user_data)
{
  Expected *expected = user_data;

  return vmm_machine_get_state (expected->machine) == expected->state;
}

void
service_fixture_await_state (ServiceFixture *self, const char *id, VmmMachineState state)
{
  Expected expected = { vmm_service_lookup (self->service, id, NULL), state };

  g_assert_nonnull (expected.machine);
  test_await_condition (is_in_state, &expected);
}

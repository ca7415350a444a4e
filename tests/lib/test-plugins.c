/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The real plugins for tests: built-in ones, or the modules that this build has made. */

#include "test-plugins.h"

VmmPluginRegistry *
test_load_plugins (const char *state_dir, const char *account)
{
  VmmPluginRegistry *registry = vmm_plugin_registry_new ();
  const char *root = g_getenv ("VMM_TEST_BUILD_ROOT");
  VmmBackendConfig config = {
    .state_dir = state_dir,
    .runtime_dir = state_dir,
    .account = account,
  };
  g_autofree char *modules = NULL;

  g_assert_nonnull (root);
  modules = g_build_filename (root, "plugins", NULL);
  vmm_plugin_registry_load_builtin (registry);
  vmm_plugin_registry_load_directory (registry, modules, NULL);
  vmm_plugin_registry_instantiate (registry, &config);
  return registry;
}

VmmBackend *
test_choose_plugin (VmmPluginRegistry *registry, VmmPluginKind kind, const char *name)
{
  g_autoptr (GError) error = NULL;
  VmmBackend *backend = vmm_plugin_registry_choose (registry, kind, name, NULL, &error);

  g_assert_no_error (error);
  g_assert_true (VMM_IS_BACKEND (backend));
  return backend;
}

/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Loads the plugins of a folder as the daemon does, lists them and runs a process with one:
 * use-plugin FOLDER LAUNCHER PROGRAM... */

#include <stdlib.h>

#include "vmm-plugin-registry.h"

#include "test-await.h"

static gboolean
has_exited (gpointer process)
{
  return vmm_process_has_exited (process);
}

int
main (int argc, char **argv)
{
  g_autoptr (VmmPluginRegistry) registry = vmm_plugin_registry_new ();
  const VmmBackendConfig config = { "/nonexistent", "/nonexistent", NULL };
  g_autoptr (VmmProcessSpec) spec = NULL;
  g_autoptr (GAsyncResult) result = NULL;
  g_autoptr (VmmProcess) process = NULL;
  g_autoptr (GError) error = NULL;
  TestAwait await = TEST_AWAIT_INIT;
  VmmBackend *backend;
  GPtrArray *rows;

  g_assert_cmpint (argc, >, 3);
  vmm_plugin_registry_load_directory (registry, argv[1], NULL);
  vmm_plugin_registry_instantiate (registry, &config);
  rows = vmm_plugin_registry_get_rows (registry);
  for (guint i = 0; i < rows->len; i++)
    {
      const VmmPluginRow *row = g_ptr_array_index (rows, i);

      g_print ("%s %s loaded=%d available=%d priority=%d reason=%s\n", row->kind, row->name,
               row->loaded, row->available, row->priority, row->reason != NULL ? row->reason : "");
    }

  backend = vmm_plugin_registry_choose (registry, VMM_PLUGIN_KIND_LAUNCHER, argv[2], NULL, &error);
  if (backend == NULL)
    {
      g_printerr ("%s\n", error->message);
      return EXIT_FAILURE;
    }
  spec = vmm_process_spec_new ("example", (const char *const *) argv + 3);
  vmm_launcher_start_async (VMM_LAUNCHER (backend), spec, NULL, test_await_cb, &await);
  result = test_await (&await);
  process = vmm_launcher_start_finish (VMM_LAUNCHER (backend), result, &error);
  if (process == NULL)
    {
      g_print ("error: %s\n", error->message);
      return EXIT_SUCCESS;
    }
  test_await_condition (has_exited, process);
  g_print ("exited: %s\n", vmm_process_get_exit_text (process));
  return EXIT_SUCCESS;
}

/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The fake backends as a module for the real daemon; the environment variable VMM_FAKE tells them
 * what to do (see fake-backends.h). */

#include "fake-backends.h"
#include "lasting-launcher.h"

G_MODULE_EXPORT void g_io_vmm_fake_backends_load (GIOModule *module);
G_MODULE_EXPORT void g_io_vmm_fake_backends_unload (GIOModule *module);
G_MODULE_EXPORT char **g_io_vmm_fake_backends_query (void);

/* Nobody in a daemon reads the log of calls. */
static gboolean
forget_cb (gpointer user_data)
{
  test_fakes_clear_log ();
  return G_SOURCE_CONTINUE;
}

void
g_io_vmm_fake_backends_load (GIOModule *module)
{
  g_type_module_use (G_TYPE_MODULE (module));
  if (g_getenv ("VMM_FAKE_FORGETS") != NULL)
    g_timeout_add_seconds (1, forget_cb, NULL);
  test_fakes_configure_from_text (g_getenv ("VMM_FAKE"));
  test_fakes_register ();
  if (test_fakes.has_lasting)
    g_io_extension_point_implement (VMM_LAUNCHER_EXTENSION_POINT, TEST_TYPE_LASTING_LAUNCHER,
                                    TEST_LASTING_NAME, -1);
}

void
g_io_vmm_fake_backends_unload (GIOModule *module)
{
}

char **
g_io_vmm_fake_backends_query (void)
{
  const char *points[]
      = { VMM_LAUNCHER_EXTENSION_POINT, VMM_NETWORK_BACKEND_EXTENSION_POINT,
          VMM_STORAGE_BACKEND_EXTENSION_POINT, VMM_ATTESTOR_EXTENSION_POINT, NULL };

  return g_strdupv ((char **) points);
}

/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* A launcher plugin for the registry's test, built several times with other names: MODULE is the
 * module's, NAME the backend's. It is available when the environment variable TEST_MODULE_<NAME> is
 * not set; the variable's value is the reason why not. "refuse" is refused at its configuration,
 * and "silent" registers nothing. */

#include "interfaces/vmm.h"

#define TEXT_OF(x) #x
#define TEXT(x) TEXT_OF (x)
#define DEFINE(module, point, type, name, priority)                                                \
  VMM_PLUGIN_DEFINE (module, point, type, name, priority)

static gboolean
test_module_configure (VmmBackend *backend, const VmmBackendConfig *config, GError **error)
{
  if (!g_str_equal (TEXT (NAME), "refuse"))
    return TRUE;
  vmm_set_error (error, VMM_ERROR_UNSUPPORTED, "%s is no good state folder", config->state_dir);
  return FALSE;
}

static gboolean
test_module_is_available (VmmBackend *backend, char **reason)
{
  const char *why = g_getenv ("TEST_MODULE_" TEXT (NAME));

  *reason = g_strdup (why);
  return why == NULL;
}

static void
backend_init (gpointer iface, gpointer data)
{
  ((VmmBackendInterface *) iface)->configure = test_module_configure;
  ((VmmBackendInterface *) iface)->is_available = test_module_is_available;
}

/* Its name must differ from that of the same code in other modules. */
static GType
get_type (void)
{
  static GType type = G_TYPE_INVALID;
  const GInterfaceInfo backend = { backend_init, NULL, NULL };
  const GInterfaceInfo launcher = { NULL, NULL, NULL };

  if (type == G_TYPE_INVALID)
    {
      type = g_type_register_static_simple (G_TYPE_OBJECT, "TestModule-" TEXT (MODULE),
                                            sizeof (GObjectClass), NULL, sizeof (GObject), NULL,
                                            G_TYPE_FLAG_FINAL);
      g_type_add_interface_static (type, VMM_TYPE_BACKEND, &backend);
      g_type_add_interface_static (type, VMM_TYPE_LAUNCHER, &launcher);
    }
  return type;
}

#ifdef SILENT
G_MODULE_EXPORT void g_io_vmm_launcher_silent_load (GIOModule *module);
G_MODULE_EXPORT void g_io_vmm_launcher_silent_unload (GIOModule *module);

void
g_io_vmm_launcher_silent_load (GIOModule *module)
{
  g_assert_cmpuint (get_type (), !=, G_TYPE_INVALID);
}

void
g_io_vmm_launcher_silent_unload (GIOModule *module)
{
}
#else
DEFINE (MODULE, VMM_LAUNCHER_EXTENSION_POINT, get_type (), TEXT (NAME), PRIORITY)
#endif

/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "interfaces/vmm.h"

G_BEGIN_DECLS

typedef enum
{
  VMM_PLUGIN_KIND_LAUNCHER,
  VMM_PLUGIN_KIND_NETWORK,
  VMM_PLUGIN_KIND_STORAGE,
  VMM_PLUGIN_KIND_ATTESTOR,
} VmmPluginKind;
#define VMM_PLUGIN_N_KINDS (VMM_PLUGIN_KIND_ATTESTOR + 1)

/* The nick of a kind: launcher, network, storage, attestor. */
const char *vmm_plugin_kind_to_nick (VmmPluginKind kind);

#define VMM_TYPE_PLUGIN_REGISTRY (vmm_plugin_registry_get_type ())
G_DECLARE_FINAL_TYPE (VmmPluginRegistry, vmm_plugin_registry, VMM, PLUGIN_REGISTRY, GObject)

VmmPluginRegistry *vmm_plugin_registry_new (void);
/* Loads the built-in plugins, then every module of a folder in sorted order. Files that are not
 * regular, not owned by root or us, writable by others, or named in disabled are not opened; each
 * is a row with its reason. A folder that is missing is fine. */
void vmm_plugin_registry_load_builtin (VmmPluginRegistry *self);
void vmm_plugin_registry_load_directory (VmmPluginRegistry *self, const char *path,
                                         const char *const *disabled);
/* Makes one instance of each extension and configures it. */
void vmm_plugin_registry_instantiate (VmmPluginRegistry *self, const VmmBackendConfig *config);
/* Chooses a backend: a name, or "auto" for the available one of the highest non-negative priority.
 * reason says why (for the log). NULL with an error when the name is unknown or unavailable; with
 * "auto", NULL and VMM_ERROR_UNSUPPORTED when there is none. */
VmmBackend *vmm_plugin_registry_choose (VmmPluginRegistry *self, VmmPluginKind kind,
                                        const char *name, char **reason, GError **error);
const char *vmm_plugin_registry_get_name (VmmPluginRegistry *self, VmmBackend *backend);

typedef struct
{
  const char *kind;
  const char *name;
  const char *file; /* NULL for a built-in one */
  int priority;
  gboolean loaded;
  gboolean available;
  gboolean chosen;
  const char *reason;  /* why not loaded or not available */
  VmmBackend *backend; /* NULL when not loaded */
} VmmPluginRow;

/* (element-type VmmPluginRow) in kind, then priority order; owned by the registry. */
GPtrArray *vmm_plugin_registry_get_rows (VmmPluginRegistry *self);

G_END_DECLS

/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <gio/gio.h>

G_BEGIN_DECLS

/* One file of a plugin folder. */
typedef struct
{
  char *path;
  char *name;   /* "launcher-process" for libvmm-launcher-process.so */
  char *reason; /* why it was not loaded; NULL when it was */
} VmmPluginFile;

/* Checks and loads every lib*.so of a folder in sorted order: (element-type VmmPluginFile). A
 * folder that is missing gives none; one that cannot be trusted gives itself with the reason. */
GPtrArray *vmm_plugin_loader_load_directory (const char *path, const char *const *points,
                                             const char *const *disabled);
/* The file that registered an extension; NULL when it is built in. */
const char *vmm_plugin_loader_get_file (GIOExtension *extension);

G_END_DECLS

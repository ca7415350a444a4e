/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <gio/gio.h>

G_BEGIN_DECLS

/**
 * VMM_PLUGIN_DEFINE:
 * @module: the module's name with underscores, without `lib` and the suffix
 * @point: the extension point, such as %VMM_LAUNCHER_EXTENSION_POINT
 * @type: the #GType that implements the point's interface
 * @name: the name by which a user chooses it
 * @priority: rank for `auto`; a negative one is never chosen by `auto`
 *
 * Defines the three functions that a module exports. The module stays resident once loaded,
 * so ordinary (static) types are right.
 */
#define VMM_PLUGIN_DEFINE(module, point, type, name, priority)                                     \
  G_MODULE_EXPORT void g_io_##module##_load (GIOModule *io_module);                                \
  G_MODULE_EXPORT void g_io_##module##_unload (GIOModule *io_module);                              \
  G_MODULE_EXPORT char **g_io_##module##_query (void);                                             \
                                                                                                   \
  void g_io_##module##_load (GIOModule *io_module)                                                 \
  {                                                                                                \
    if (io_module != NULL)                                                                         \
      g_type_module_use (G_TYPE_MODULE (io_module));                                               \
    g_io_extension_point_implement (point, type, name, priority);                                  \
  }                                                                                                \
                                                                                                   \
  void g_io_##module##_unload (GIOModule *io_module)                                               \
  {                                                                                                \
    (void) io_module;                                                                              \
  }                                                                                                \
                                                                                                   \
  char **g_io_##module##_query (void)                                                              \
  {                                                                                                \
    const char *points[] = { point, NULL };                                                        \
                                                                                                   \
    return g_strdupv ((char **) points);                                                           \
  }

G_END_DECLS

/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <glib.h>

G_BEGIN_DECLS

/* Resolved when building: the stamped version or the project's, the short commit ("-dirty" for a
 * modified tree, "unknown" without git), and the time of meson's configuration or
 * SOURCE_DATE_EPOCH, which makes builds reproducible. */
extern const char *const vmm_version;
extern const char *const vmm_version_commit;
extern const char *const vmm_version_built;

G_END_DECLS

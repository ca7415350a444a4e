/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <glib.h>

G_BEGIN_DECLS

/* One value, resolved at build time: release without a leading v, short commit ("-dirty" only for a
 * modified tree), build time. "dev", "unknown", "unknown" when nothing was stamped. */
extern const char *const vmm_version;
extern const char *const vmm_version_commit;
extern const char *const vmm_version_built;

G_END_DECLS

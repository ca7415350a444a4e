/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "daemon/vmm-plugin-registry.h"

G_BEGIN_DECLS

/* The real plugins of this build, configured for a state directory. */
VmmPluginRegistry *test_load_plugins (const char *state_dir, const char *account);
/* One of them; fails the test when it is not there. The registry keeps it. */
VmmBackend *test_choose_plugin (VmmPluginRegistry *registry, VmmPluginKind kind, const char *name);

G_END_DECLS

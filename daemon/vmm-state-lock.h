/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <glib.h>

G_BEGIN_DECLS

/* Holds <state>/lock (0600) for as long as the descriptor is open; the file names the holder. */
int vmm_state_lock_take (const char *state_dir, GError **error);
void vmm_state_lock_release (int fd);

G_END_DECLS

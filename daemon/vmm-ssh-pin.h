/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <glib.h>

G_BEGIN_DECLS

/* The host key of a guest as it was at the first connection: a file with one line in the form of
 * authorized_keys, "<type> <base64>". All of it blocks, and none of it needs the main loop. */

/* The line without its newline; NULL in it when nothing is pinned yet. FALSE for a file that says
 * something else. */
gboolean vmm_ssh_pin_load (const char *path, char **line, GError **error);
/* Pins a line unless another connection was faster; winner is what is pinned afterwards. */
gboolean vmm_ssh_pin_store (const char *path, const char *line, char **winner, GError **error);
/* "SHA256:<base64>", as ssh shows keys. */
char *vmm_ssh_pin_fingerprint (const char *line);

G_END_DECLS

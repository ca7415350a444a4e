/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <glib.h>

G_BEGIN_DECLS

/* Bytes of the kernel's generator, good for identities and secrets. */
gboolean vmm_random_fill (gpointer bytes, gsize length, GError **error);
/* So many of them (at most 16) in lower-case hexadecimal. */
char *vmm_random_hex (gsize n_bytes, GError **error);

G_END_DECLS

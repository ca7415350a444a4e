/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <glib.h>

G_BEGIN_DECLS

#define VMM_EVIDENCE_MAX_BYTES (16 * 1024 * 1024)

/* Reads the two members that are looked at, stage and nonce, from the guest's JSON object; a
 * missing one is "". FALSE with the reason when it is no well-formed object. */
gboolean vmm_evidence_read (const char *text, gsize length, char **stage, char **nonce,
                            char **reason);

G_END_DECLS

/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <glib.h>

G_BEGIN_DECLS

/* Structured lines: to the journal when stderr is the journal, else "time=... level=INFO msg=...
 * key=value". Pairs of key and value follow the message and end with NULL; values may be NULL and
 * are then left out. The keys "vm", "network", "operation" and "request" become VMM_VM, ... fields.
 */
void vmm_log_init (gboolean verbose);
void vmm_log_debug (const char *message, ...) G_GNUC_NULL_TERMINATED;
void vmm_log_info (const char *message, ...) G_GNUC_NULL_TERMINATED;
void vmm_log_warning (const char *message, ...) G_GNUC_NULL_TERMINATED;
void vmm_log_error (const char *message, ...) G_GNUC_NULL_TERMINATED;
/* Text that came from a guest or a peer: control characters escaped, cut at limit bytes. */
char *vmm_log_escape (const char *text, gsize limit);

G_END_DECLS

/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <glib.h>

G_BEGIN_DECLS

/* RFC 3339 in UTC with a Z, sub-second digits with trailing zeros trimmed. */
char *vmm_time_to_text (gint64 real_time_us);
gboolean vmm_time_from_text (const char *text, gint64 *real_time_us);
/* Durations as in "300ms", "30s", "5m", "1h30m", "1.5h"; printed as "5m0s", "9m30s", "1h0m0s". */
gboolean vmm_duration_from_text (const char *text, gint64 *duration_us);
char *vmm_duration_to_text (gint64 duration_us);

G_END_DECLS

/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <glib.h>

/* A guest's bytes as a text: valid UTF-8 without zero bytes, cut between characters to what fits.
 */
char *monitor_text_clean (const char *data, gsize length, gsize size_max);

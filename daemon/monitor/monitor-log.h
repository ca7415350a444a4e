/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <glib.h>

/* One line on standard error, which the launcher writes to monitor.log. What a guest or a peer can
 * bring about as often as it likes is told too, but the lines have a budget. */
void monitor_log (const char *format, ...) G_GNUC_PRINTF (1, 2);

/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <glib.h>

/* Bytes of a socket to bounded lines. */
typedef struct _MonitorLines MonitorLines;
/* FALSE: nothing more is wanted, and the reading ends. The line is without its end. */
typedef gboolean (*MonitorLinesFunc) (const char *line, gsize length, gpointer user_data);

MonitorLines *monitor_lines_new (gsize line_max, MonitorLinesFunc func, gpointer user_data);
void monitor_lines_free (MonitorLines *self);

/* Reads what there is, once. FALSE: the other end has gone, a line was too long, or it was not
 * wanted. */
gboolean monitor_lines_read (MonitorLines *self, int fd);
gboolean monitor_lines_take (MonitorLines *self, const char *data, gsize length);

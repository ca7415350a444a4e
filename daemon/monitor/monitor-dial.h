/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <glib.h>

/* Connects to one of QEMU's sockets, which may be there and not served yet. */
typedef struct _MonitorDial MonitorDial;
/* The receiver owns the descriptor. */
typedef void (*MonitorDialFunc) (int fd, gpointer user_data);

MonitorDial *monitor_dial_new (const char *path, MonitorDialFunc func, gpointer user_data);
void monitor_dial_free (MonitorDial *self);

/* Tries now and then for a while, until it is connected. FALSE: not at once. */
gboolean monitor_dial_begin (MonitorDial *self);
void monitor_dial_end (MonitorDial *self);

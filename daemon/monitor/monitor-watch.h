/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <glib.h>

/* Tells when a descriptor can be read from or written to, from the main loop. */
typedef struct _MonitorWatch MonitorWatch;
typedef void (*MonitorWatchFunc) (GIOCondition condition, gpointer user_data);

/* @func may free the watch. Errors and the peer's end are told whatever @condition is. */
MonitorWatch *monitor_watch_new (int fd, GIOCondition condition, MonitorWatchFunc func,
                                 gpointer user_data);
void monitor_watch_set (MonitorWatch *self, GIOCondition condition);
/* Does not close the descriptor. */
void monitor_watch_free (MonitorWatch *self);

/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "monitor-event.h"

/* The listener for the guest's READY=1 and STATUS=. */
typedef struct _MonitorNotify MonitorNotify;

/* Takes the listener. @cid: the guest's, whose connections alone are heard; 0 for a Unix socket. */
MonitorNotify *monitor_notify_new (int listener, guint32 cid, MonitorEventFunc func,
                                   gpointer user_data);
void monitor_notify_free (MonitorNotify *self);
/* Forgets what was begun before: the guest was reset. */
void monitor_notify_drop_begun (MonitorNotify *self);

/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "monitor-event.h"

/* A connection to QEMU's control socket that only listens. */
typedef struct _MonitorQmp MonitorQmp;
/* It has been agreed: from now on nothing is missed. */
typedef void (*MonitorQmpReadyFunc) (gpointer user_data);
/* It has ended; @was_greeted: QEMU had answered. The receiver frees it. */
typedef void (*MonitorQmpClosedFunc) (gboolean was_greeted, gpointer user_data);

/* Takes the descriptor. @is_paused: as the journal has it. */
MonitorQmp *monitor_qmp_new (int fd, gboolean is_paused, MonitorEventFunc func,
                             MonitorQmpReadyFunc ready, MonitorQmpClosedFunc closed,
                             gpointer user_data);
void monitor_qmp_free (MonitorQmp *self);

/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "monitor-event.h"
#include "monitor-json.h"

/* From what QEMU says on QMP to what the journal has. */
typedef struct
{
  MonitorEventFunc func;
  gpointer user_data;
  gboolean is_paused;    /* as the journal has it */
  const char *announced; /* why the next STOP comes; NULL: nobody said */
  gboolean stop_waits;   /* a STOP for whose reason QEMU was asked */
} MonitorQmpEvents;

/* An object that has "event". TRUE: ask with query-status. */
gboolean monitor_qmp_events_take (MonitorQmpEvents *self, MonitorJson message);
/* What query-status returned. */
void monitor_qmp_events_take_status (MonitorQmpEvents *self, MonitorJson status);
/* There will be no answer. */
void monitor_qmp_events_flush (MonitorQmpEvents *self);

/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <glib.h>

/* How often something may happen: @burst times at once, then once in each @interval_us. */
typedef struct
{
  guint burst;
  gint64 interval_us;
  gint64 used_until; /* the time at which all of the burst is there again */
} MonitorRate;

#define MONITOR_RATE_INIT(burst, interval_us)                                                      \
  {                                                                                                \
    (burst), (interval_us), 0                                                                      \
  }

/* FALSE when it may not happen now. */
gboolean monitor_rate_take (MonitorRate *self, gint64 now_us);
/* How long until it may happen again. */
gint64 monitor_rate_get_wait (const MonitorRate *self, gint64 now_us);

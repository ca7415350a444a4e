/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* A bound on how often something happens, kept as one time: each use moves it on by an interval,
 * and it may be at most a burst of intervals ahead of the clock. */
#include "monitor-rate.h"

gint64
monitor_rate_get_wait (const MonitorRate *self, gint64 now_us)
{
  gint64 most = now_us + (gint64) (self->burst - 1) * self->interval_us;

  return MAX (self->used_until - most, 0);
}

gboolean
monitor_rate_take (MonitorRate *self, gint64 now_us)
{
  if (monitor_rate_get_wait (self, now_us) > 0)
    return FALSE;
  self->used_until = MAX (self->used_until, now_us) + self->interval_us;
  return TRUE;
}

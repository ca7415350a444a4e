/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "monitor-event.h"

#include <string.h>

static const char *const names[MONITOR_N_EVENTS]
    = { "ready", "status", "reset", "shutdown", "stop", "resume", "exit" };

const char *
monitor_event_get_name (MonitorEvent event)
{
  return names[event];
}

gboolean
monitor_event_find (const char *name, MonitorEvent *event)
{
  for (guint i = 0; i < MONITOR_N_EVENTS; i++)
    if (strcmp (names[i], name) == 0)
      {
        *event = (MonitorEvent) i;
        return TRUE;
      }
  return FALSE;
}

/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <glib.h>

/* What happens to a VM, as the journal has it. */
typedef enum
{
  MONITOR_EVENT_READY,
  MONITOR_EVENT_STATUS, /* data: text */
  MONITOR_EVENT_RESET,
  MONITOR_EVENT_SHUTDOWN, /* data: guest, reason */
  MONITOR_EVENT_STOP,     /* data: reason */
  MONITOR_EVENT_RESUME,
  MONITOR_EVENT_EXIT, /* QEMU has gone; the last one of a run */
  MONITOR_N_EVENTS
} MonitorEvent;

/* @data: a JSON object as text. */
typedef void (*MonitorEventFunc) (MonitorEvent event, const char *data, gpointer user_data);

const char *monitor_event_get_name (MonitorEvent event);
gboolean monitor_event_find (const char *name, MonitorEvent *event);

/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* QEMU's events as entries of the journal.
 *
 * A STOP does not say why. Some reasons are announced by an event before it; for the others QEMU is
 * asked for its state, and the entry waits for the answer, or for the next event, so that the order
 * stays what it was.
 */
#include "monitor-qmp-events.h"

#include <string.h>

#include "monitor-text.h"

#define REASON_MAX 64

static void
tell (MonitorQmpEvents *self, MonitorEvent event, const char *data)
{
  if (event == MONITOR_EVENT_STOP)
    self->is_paused = TRUE;
  else if (event == MONITOR_EVENT_RESUME)
    self->is_paused = FALSE;
  self->func (event, data, self->user_data);
}

static void
tell_stop (MonitorQmpEvents *self, const char *reason)
{
  g_autoptr (GString) data = g_string_new ("{\"reason\":");

  monitor_json_append_string (data, reason);
  g_string_append_c (data, '}');
  self->stop_waits = FALSE;
  tell (self, MONITOR_EVENT_STOP, data->str);
}

void
monitor_qmp_events_flush (MonitorQmpEvents *self)
{
  if (self->stop_waits)
    tell_stop (self, "stopped");
}

static void
take_shutdown (MonitorQmpEvents *self, MonitorJson details)
{
  g_autofree char *given = monitor_json_dup_string (monitor_json_get_member (details, "reason"));
  g_autofree char *reason = NULL;
  g_autoptr (GString) data = g_string_new (NULL);
  gboolean guest;

  monitor_json_read_boolean (monitor_json_get_member (details, "guest"), &guest);
  reason = monitor_text_clean (given != NULL ? given : "", given != NULL ? strlen (given) : 0,
                               REASON_MAX);
  g_string_printf (data, "{\"guest\":%s,\"reason\":", guest ? "true" : "false");
  monitor_json_append_string (data, reason);
  g_string_append_c (data, '}');
  tell (self, MONITOR_EVENT_SHUTDOWN, data->str);
}

/* Why a STOP is about to come, NULL when this does not stop the guest. */
static const char *
find_announced (MonitorJson name, MonitorJson details)
{
  MonitorJson action = monitor_json_get_member (details, "action");
  gboolean no_space;

  if (monitor_json_equals_string (name, "BLOCK_IO_ERROR")
      && monitor_json_equals_string (action, "stop"))
    {
      monitor_json_read_boolean (monitor_json_get_member (details, "nospace"), &no_space);
      return no_space ? "nospace" : "io-error";
    }
  if (!monitor_json_equals_string (action, "pause"))
    return NULL;
  if (monitor_json_equals_string (name, "WATCHDOG"))
    return "watchdog";
  return monitor_json_equals_string (name, "GUEST_PANICKED") ? "guest-panicked" : NULL;
}

static gboolean
take_stop (MonitorQmpEvents *self)
{
  if (self->announced != NULL)
    tell_stop (self, self->announced);
  else
    self->stop_waits = TRUE;
  self->announced = NULL;
  return self->stop_waits;
}

gboolean
monitor_qmp_events_take (MonitorQmpEvents *self, MonitorJson message)
{
  MonitorJson name = monitor_json_get_member (message, "event");
  MonitorJson details = monitor_json_get_member (message, "data");
  const char *announced = find_announced (name, details);

  if (announced != NULL)
    {
      self->announced = announced;
      return FALSE;
    }
  if (monitor_json_equals_string (name, "STOP"))
    {
      monitor_qmp_events_flush (self);
      return take_stop (self);
    }
  if (monitor_json_equals_string (name, "RESUME"))
    {
      monitor_qmp_events_flush (self);
      self->announced = NULL;
      tell (self, MONITOR_EVENT_RESUME, "{}");
    }
  else if (monitor_json_equals_string (name, "RESET"))
    {
      monitor_qmp_events_flush (self);
      tell (self, MONITOR_EVENT_RESET, "{}");
    }
  else if (monitor_json_equals_string (name, "SHUTDOWN"))
    {
      monitor_qmp_events_flush (self);
      take_shutdown (self, details);
    }
  return FALSE;
}

/* Also the first thing that a new connection is told: what happened before it is made up for. A
 * guest that was never let run, or that is being shut down, is not paused. */
void
monitor_qmp_events_take_status (MonitorQmpEvents *self, MonitorJson status)
{
  static const char *const not_paused[]
      = { "running", "prelaunch", "inmigrate", "postmigrate", "shutdown" };
  g_autofree char *name = monitor_json_dup_string (monitor_json_get_member (status, "status"));
  g_autofree char *reason = NULL;
  gboolean running;

  if (name == NULL
      || !monitor_json_read_boolean (monitor_json_get_member (status, "running"), &running))
    {
      monitor_qmp_events_flush (self);
      return;
    }
  reason = monitor_text_clean (name, strlen (name), REASON_MAX);
  if (self->stop_waits)
    tell_stop (self, running || strcmp (name, "paused") == 0 ? "stopped" : reason);
  else if (running && self->is_paused)
    tell (self, MONITOR_EVENT_RESUME, "{}");
  else if (!running && !self->is_paused)
    {
      for (guint i = 0; i < G_N_ELEMENTS (not_paused); i++)
        if (strcmp (name, not_paused[i]) == 0)
          return;
      tell_stop (self, strcmp (name, "paused") == 0 ? "stopped" : reason);
    }
}

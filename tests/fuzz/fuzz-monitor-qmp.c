/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What QEMU says, line by line: whatever it is, what the journal gets is a bounded JSON object; and
 * the reader takes nothing that the daemon's strict reader refuses. */

#include <glib.h>
#include <string.h>

#include "fuzz.h"
#include "monitor-lines.h"
#include "monitor-qmp-events.h"
#include "vmm-json.h"

static void
event_cb (MonitorEvent event, const char *data, gpointer user_data)
{
  MonitorJson json;

  g_assert_true (monitor_json_check (data, strlen (data), &json));
  g_assert_true (monitor_json_is_object (json));
  g_assert_cmpuint (strlen (data), <, 1024);
}

static void
compare (const char *line, gsize length, gboolean taken)
{
  g_autoptr (JsonNode) node = vmm_json_parse (line, length, NULL);

  /* The daemon's looks at the size of numbers and at equal names, too. */
  if (node != NULL)
    g_assert_true (taken);
}

static gboolean
line_cb (const char *line, gsize length, gpointer user_data)
{
  MonitorQmpEvents *events = user_data;
  g_autofree char *exact = g_memdup2 (line, length);
  MonitorJson json;
  gboolean taken = monitor_json_check (exact, length, &json);

  compare (line, length, taken);
  if (!taken)
    return TRUE;
  g_assert_cmpuint (json.length, <=, length);
  if (monitor_json_get_member (json, "event").text != NULL)
    monitor_qmp_events_take (events, json);
  else
    monitor_qmp_events_take_status (events, monitor_json_get_member (json, "return"));
  return TRUE;
}

int
LLVMFuzzerTestOneInput (const uint8_t *data, size_t size)
{
  MonitorQmpEvents events = { .func = event_cb };
  MonitorLines *lines = monitor_lines_new (64 * 1024, line_cb, &events);
  gsize half = size / 2;

  /* In two pieces, as a socket may. */
  if (monitor_lines_take (lines, (const char *) data, half))
    monitor_lines_take (lines, (const char *) data + half, size - half);
  monitor_qmp_events_flush (&events);
  monitor_lines_free (lines);
  return 0;
}

/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* A line of the journal's file, which a crash or a disk may have left as anything: what is taken as
 * an entry can be sent as it is. */

#include <glib.h>
#include <string.h>

#include "fuzz.h"
#include "monitor-journal-file.h"
#include "monitor-json.h"

int
LLVMFuzzerTestOneInput (const uint8_t *data, size_t size)
{
  g_autofree char *exact = g_malloc (MAX (size, 1));
  g_autofree char *line = NULL;
  MonitorEvent event = MONITOR_N_EVENTS;
  MonitorJson json;
  guint64 seq = 0;

  if (size > 0)
    memcpy (exact, data, size);
  line = monitor_journal_file_read_entry (exact, size, &seq, &event);
  if (line == NULL)
    return 0;
  g_assert_cmpint (event, <, MONITOR_N_EVENTS);
  g_assert_cmpuint (strlen (line), <=, size);
  g_assert_true (monitor_json_check (line, strlen (line), &json));
  g_assert_true (monitor_json_equals_string (monitor_json_get_member (json, "event"),
                                             monitor_event_get_name (event)));
  return 0;
}

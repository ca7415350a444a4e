/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What a guest says on the notify port: whatever it is, a status is a bounded valid text. */

#include <glib.h>
#include <string.h>

#include "fuzz.h"
#include "monitor-json.h"
#include "monitor-notify-text.h"

int
LLVMFuzzerTestOneInput (const uint8_t *data, size_t size)
{
  /* Exactly as large as the text, so that a sanitizer sees a read behind it. */
  g_autofree char *text = g_malloc (MAX (size, 1));
  g_autoptr (GString) line = g_string_new (NULL);
  g_autofree char *again = NULL;
  MonitorNotifyText message;
  MonitorJson json;

  if (size > 0)
    memcpy (text, data, size);
  monitor_notify_text_read (&message, text, size);
  if (message.status != NULL)
    {
      g_assert_true (g_utf8_validate (message.status, -1, NULL));
      g_assert_cmpuint (strlen (message.status), <=, 4096);
      /* It fits into a line, and is what a reader of it gets. */
      monitor_json_append_string (line, message.status);
      g_assert_cmpuint (line->len, <, 60 * 1024);
      g_assert_true (monitor_json_check (line->str, line->len, &json));
      again = monitor_json_dup_string (json);
      g_assert_cmpstr (again, ==, message.status);
    }
  monitor_notify_text_clear (&message);
  return 0;
}

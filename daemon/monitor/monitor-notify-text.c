/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* sd_notify text: lines of KEY=VALUE, of which the last one of a key counts. Everything but READY
 * and STATUS is passed over. */
#include "monitor-notify-text.h"

#include <string.h>

#include "monitor-text.h"

#define STATUS_MAX 4096

typedef struct
{
  const char *text;
  gsize length;
} Slice;

/* The value when the line begins with the key. */
static gboolean
has_key (Slice line, const char *key, Slice *value)
{
  gsize length = strlen (key);

  if (line.length < length || memcmp (line.text, key, length) != 0)
    return FALSE;
  *value = (Slice){ line.text + length, line.length - length };
  return TRUE;
}

void
monitor_notify_text_read (MonitorNotifyText *self, const char *text, gsize length)
{
  const char *end = text + length;
  Slice status = { NULL, 0 };
  Slice ready = { NULL, 0 };

  *self = (MonitorNotifyText){ 0 };
  while (text < end)
    {
      const char *line_end = memchr (text, '\n', end - text);
      Slice line = { text, (line_end != NULL ? line_end : end) - text };

      if (!has_key (line, "READY=", &ready))
        has_key (line, "STATUS=", &status);
      text += line.length + 1;
    }
  self->ready = ready.length == 1 && ready.text[0] == '1';
  if (status.text == NULL)
    return;
  self->status = monitor_text_clean (status.text, status.length, STATUS_MAX);
  self->status_first = status.text < ready.text;
}

void
monitor_notify_text_clear (MonitorNotifyText *self)
{
  g_clear_pointer (&self->status, g_free);
}

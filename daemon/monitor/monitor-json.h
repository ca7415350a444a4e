/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <glib.h>

/* JSON as QEMU and clients send it, a line at a time: a text is checked whole, then looked into. A
 * value is a part of the text that it was found in. */
typedef struct
{
  const char *text; /* NULL: there is none */
  gsize length;
} MonitorJson;

/* Whether the text is one JSON value by RFC 8259, valid UTF-8 and not nested deeply. */
gboolean monitor_json_check (const char *text, gsize length, MonitorJson *value);
/* Of several members of a name the last one; none when this is no object. */
MonitorJson monitor_json_get_member (MonitorJson object, const char *name);
gboolean monitor_json_is_object (MonitorJson value);
/* (transfer full): NULL when it is no string. Zero bytes become U+FFFD. */
char *monitor_json_dup_string (MonitorJson value);
gboolean monitor_json_equals_string (MonitorJson value, const char *text);
/* FALSE when it is neither true nor false, or no whole number up to 2^53. */
gboolean monitor_json_read_boolean (MonitorJson value, gboolean *boolean);
gboolean monitor_json_read_number (MonitorJson value, guint64 *number);

/* Adds a valid UTF-8 text as a JSON string. */
void monitor_json_append_string (GString *out, const char *text);

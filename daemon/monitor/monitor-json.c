/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* A strict reader for JSON that builds nothing.
 *
 * What the monitor reads are short lines of which it wants a few members, and it is there once for
 * each VM: a tree of objects, and the library that makes them, would cost more memory than all the
 * rest of it. So a line is checked against the grammar once, and a member is found by walking over
 * the others. Walking relies on the check.
 */
#include "monitor-json.h"

#include <string.h>

#define DEPTH_MAX 64
#define NUMBER_MAX (G_GUINT64_CONSTANT (1) << 53)

typedef struct
{
  const char *at;
  const char *end;
} Cursor;

static gboolean skip_value (Cursor *cursor, guint depth);

static void
skip_space (Cursor *cursor)
{
  while (cursor->at < cursor->end && *cursor->at != '\0' && strchr (" \t\r\n", *cursor->at) != NULL)
    cursor->at++;
}

static gboolean
take (Cursor *cursor, char c)
{
  if (cursor->at == cursor->end || *cursor->at != c)
    return FALSE;
  cursor->at++;
  return TRUE;
}

static gboolean
take_word (Cursor *cursor, const char *word)
{
  gsize length = strlen (word);

  if ((gsize) (cursor->end - cursor->at) < length || memcmp (cursor->at, word, length) != 0)
    return FALSE;
  cursor->at += length;
  return TRUE;
}

static gboolean
skip_digits (Cursor *cursor)
{
  const char *start = cursor->at;

  while (cursor->at < cursor->end && g_ascii_isdigit (*cursor->at))
    cursor->at++;
  return cursor->at > start;
}

static gboolean
skip_number (Cursor *cursor)
{
  take (cursor, '-');
  if (!take (cursor, '0') && !skip_digits (cursor))
    return FALSE;
  if (take (cursor, '.') && !skip_digits (cursor))
    return FALSE;
  if (!take (cursor, 'e') && !take (cursor, 'E'))
    return TRUE;
  if (!take (cursor, '+'))
    take (cursor, '-');
  return skip_digits (cursor);
}

/* What follows a backslash. */
static gboolean
skip_escape (Cursor *cursor)
{
  if (take (cursor, 'u'))
    {
      for (guint i = 0; i < 4; i++, cursor->at++)
        if (cursor->at == cursor->end || !g_ascii_isxdigit (*cursor->at))
          return FALSE;
      return TRUE;
    }
  if (cursor->at == cursor->end || *cursor->at == '\0'
      || strchr ("\"\\/bfnrt", *cursor->at) == NULL)
    return FALSE;
  cursor->at++;
  return TRUE;
}

static gboolean
skip_string (Cursor *cursor)
{
  if (!take (cursor, '"'))
    return FALSE;
  while (cursor->at < cursor->end && (guchar) *cursor->at >= 0x20)
    {
      if (take (cursor, '"'))
        return TRUE;
      if (*cursor->at++ == '\\' && !skip_escape (cursor))
        return FALSE;
    }
  return FALSE;
}

static gboolean
skip_member (Cursor *cursor, guint depth)
{
  skip_space (cursor);
  if (!skip_string (cursor))
    return FALSE;
  skip_space (cursor);
  return take (cursor, ':') && skip_value (cursor, depth);
}

/* Behind the opening bracket; values of an array, members of an object. */
static gboolean
skip_items (Cursor *cursor, char closing, guint depth)
{
  skip_space (cursor);
  if (take (cursor, closing))
    return TRUE;
  do
    {
      if (!(closing == '}' ? skip_member (cursor, depth) : skip_value (cursor, depth)))
        return FALSE;
    }
  while (take (cursor, ','));
  return take (cursor, closing);
}

/* With the space around it. */
static gboolean
skip_value (Cursor *cursor, guint depth)
{
  gboolean valid;

  skip_space (cursor);
  if (depth > DEPTH_MAX || cursor->at == cursor->end)
    return FALSE;
  if (*cursor->at == '"')
    valid = skip_string (cursor);
  else if (take (cursor, '{'))
    valid = skip_items (cursor, '}', depth + 1);
  else if (take (cursor, '['))
    valid = skip_items (cursor, ']', depth + 1);
  else
    valid = take_word (cursor, "true") || take_word (cursor, "false") || take_word (cursor, "null")
            || skip_number (cursor);
  skip_space (cursor);
  return valid;
}

/* The value at the cursor, which moves behind it. */
static MonitorJson
take_value (Cursor *cursor)
{
  MonitorJson value = { NULL, 0 };

  skip_space (cursor);
  value.text = cursor->at;
  skip_value (cursor, 0);
  value.length = cursor->at - value.text;
  while (value.length > 0 && strchr (" \t\r\n", value.text[value.length - 1]) != NULL)
    value.length--;
  return value;
}

gboolean
monitor_json_check (const char *text, gsize length, MonitorJson *value)
{
  Cursor cursor = { text, text + length };
  Cursor again = cursor;

  *value = (MonitorJson){ NULL, 0 };
  if (!g_utf8_validate_len (text, length, NULL) || !skip_value (&cursor, 0)
      || cursor.at != cursor.end)
    return FALSE;
  *value = take_value (&again);
  return TRUE;
}

gboolean
monitor_json_is_object (MonitorJson value)
{
  return value.length > 0 && value.text[0] == '{';
}

MonitorJson
monitor_json_get_member (MonitorJson object, const char *name)
{
  MonitorJson found = { NULL, 0 };
  Cursor cursor;

  if (!monitor_json_is_object (object))
    return found;
  cursor = (Cursor){ object.text + 1, object.text + object.length };
  skip_space (&cursor);
  if (take (&cursor, '}'))
    return found;
  do
    {
      MonitorJson key = take_value (&cursor);
      MonitorJson value;

      take (&cursor, ':');
      value = take_value (&cursor);
      if (monitor_json_equals_string (key, name))
        found = value;
    }
  while (take (&cursor, ','));
  return found;
}

static guint
read_hex (const char *text)
{
  guint value = 0;

  for (guint i = 0; i < 4; i++)
    value = value * 16 + (guint) g_ascii_xdigit_value (text[i]);
  return value;
}

/* Behind the "\u"; half of a pair alone is no character. */
static const char *
append_unicode (GString *out, const char *at, const char *end)
{
  gunichar c = read_hex (at);

  at += 4;
  if (c >= 0xd800 && c < 0xdc00 && end - at >= 6 && at[0] == '\\' && at[1] == 'u')
    {
      gunichar low = read_hex (at + 2);

      if (low >= 0xdc00 && low < 0xe000)
        {
          g_string_append_unichar (out, 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00));
          return at + 6;
        }
    }
  g_string_append_unichar (out, c == 0 || (c >= 0xd800 && c < 0xe000) ? 0xfffd : c);
  return at;
}

char *
monitor_json_dup_string (MonitorJson value)
{
  static const char from[] = "bfnrt", to[] = "\b\f\n\r\t";
  const char *at, *end;
  GString *out;

  if (value.length < 2 || value.text[0] != '"')
    return NULL;
  at = value.text + 1;
  end = value.text + value.length - 1;
  out = g_string_sized_new (value.length);
  while (at < end)
    {
      const char *plain = at;
      const char *letter;

      while (at < end && *at != '\\')
        at++;
      g_string_append_len (out, plain, at - plain);
      if (at == end)
        break;
      at += 2;
      letter = strchr (from, at[-1]);
      if (at[-1] == 'u')
        at = append_unicode (out, at, end);
      else
        g_string_append_c (out, letter != NULL ? to[letter - from] : at[-1]);
    }
  return g_string_free (out, FALSE);
}

gboolean
monitor_json_equals_string (MonitorJson value, const char *text)
{
  g_autofree char *plain = NULL;

  if (value.length < 2 || value.text[0] != '"')
    return FALSE;
  if (memchr (value.text, '\\', value.length) == NULL)
    return value.length - 2 == strlen (text)
           && memcmp (value.text + 1, text, value.length - 2) == 0;
  plain = monitor_json_dup_string (value);
  return strcmp (plain, text) == 0;
}

gboolean
monitor_json_read_boolean (MonitorJson value, gboolean *boolean)
{
  Cursor cursor;

  *boolean = FALSE;
  if (value.text == NULL)
    return FALSE;
  cursor = (Cursor){ value.text, value.text + value.length };
  *boolean = take_word (&cursor, "true");
  return *boolean || take_word (&cursor, "false");
}

gboolean
monitor_json_read_number (MonitorJson value, guint64 *number)
{
  guint64 sum = 0;

  for (gsize i = 0; i < value.length; i++)
    {
      if (!g_ascii_isdigit (value.text[i]))
        return FALSE;
      sum = sum * 10 + (guint64) g_ascii_digit_value (value.text[i]);
      if (sum > NUMBER_MAX)
        return FALSE;
    }
  *number = sum;
  return value.length > 0;
}

void
monitor_json_append_string (GString *out, const char *text)
{
  g_string_append_c (out, '"');
  for (const char *c = text; *c != '\0'; c++)
    {
      if (*c == '"' || *c == '\\')
        g_string_append_c (out, '\\');
      if ((guchar) *c < 0x20 || *c == 0x7f)
        g_string_append_printf (out, "\\u%04x", (guint) (guchar) *c);
      else
        g_string_append_c (out, *c);
    }
  g_string_append_c (out, '"');
}

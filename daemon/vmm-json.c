/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The one reader of JSON texts from outside.
 *
 * json-glib's parser recurses without a limit, wraps large integers, cuts strings at \u0000, lets
 * the last of two equal members win and accepts more than JSON. So a scan that allocates next to
 * nothing and never recurses judges the text first (RFC 8259, plus the limits of the header), and
 * json-glib builds the tree afterwards from a text that is known to be good. Nothing else calls
 * json_parser_*.
 *
 * Cost is bounded whatever the text: one pass, so many values a text and names an object as the
 * header says, and a limit on names of equal hash, because json-glib keys its tables with
 * g_str_hash() as we do here. */

#include "config.h"

#include "vmm-json.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <string.h>

#include "interfaces/vmm-error.h"

#define MAX_COLLISIONS 1024

typedef enum
{
  EXPECT_VALUE,
  EXPECT_FIRST_ELEMENT,
  EXPECT_FIRST_MEMBER,
  EXPECT_MEMBER,
  EXPECT_SEPARATOR,
  EXPECT_END,
} Expect;

typedef struct
{
  guint collisions;
} NameCounter;

typedef struct
{
  char *text;
  NameCounter *counter;
} Name;

typedef struct
{
  const char *start;
  const char *end;
  const char *at;
  guint n_values;
  guint depth;
  gboolean is_object[VMM_JSON_MAX_DEPTH];
  GHashTable *names[VMM_JSON_MAX_DEPTH];
  NameCounter counter;
  GString *decoded;
  GError **error;
} Scan;

static guint
name_hash (gconstpointer key)
{
  return g_str_hash (((const Name *) key)->text);
}

static gboolean
name_equal (gconstpointer a, gconstpointer b)
{
  const Name *one = a;
  const Name *other = b;

  if (g_str_equal (one->text, other->text))
    return TRUE;
  one->counter->collisions++;
  return FALSE;
}

static void
name_free (gpointer data)
{
  Name *name = data;

  g_free (name->text);
  g_free (name);
}

static gboolean scan_fail (Scan *scan, const char *where, const char *format, ...)
    G_GNUC_PRINTF (3, 4);

/* Reports what is wrong and where. Always FALSE, to be returned. */
static gboolean
scan_fail (Scan *scan, const char *where, const char *format, ...)
{
  g_autofree char *what = NULL;
  gsize line = 1;
  const char *line_start = scan->start;
  va_list args;

  for (const char *p = scan->start; p < where; p++)
    if (*p == '\n')
      {
        line++;
        line_start = p + 1;
      }

  va_start (args, format);
  what = g_strdup_vprintf (format, args);
  va_end (args);
  g_set_error (scan->error, VMM_ERROR, VMM_ERROR_INVALID_REQUEST,
               "json: %s at line %" G_GSIZE_FORMAT ", column %" G_GSIZE_FORMAT, what, line,
               (gsize) (where - line_start) + 1);
  return FALSE;
}

/* Names the byte found, or says that the text ended. Always FALSE. */
static gboolean
scan_unexpected (Scan *scan, const char *wanted)
{
  guchar found;

  if (scan->at >= scan->end)
    return scan_fail (scan, scan->end, "unexpected end, %s expected", wanted);
  found = (guchar) *scan->at;
  if (g_ascii_isgraph (found))
    return scan_fail (scan, scan->at, "unexpected '%c', %s expected", found, wanted);
  return scan_fail (scan, scan->at, "unexpected byte 0x%02x, %s expected", found, wanted);
}

static void
skip_space (Scan *scan)
{
  while (scan->at < scan->end
         && (*scan->at == ' ' || *scan->at == '\n' || *scan->at == '\r' || *scan->at == '\t'))
    scan->at++;
}

static gboolean
next_is (Scan *scan, char wanted)
{
  return scan->at < scan->end && *scan->at == wanted;
}

static gboolean
read_hex4 (Scan *scan, const char *from, gunichar *unit)
{
  *unit = 0;
  if (scan->end - from < 4)
    return FALSE;
  for (guint i = 0; i < 4; i++)
    {
      int digit = g_ascii_xdigit_value (from[i]);

      if (digit < 0)
        return FALSE;
      *unit = *unit * 16 + (gunichar) digit;
    }
  return TRUE;
}

/* \uXXXX with scan->at at the backslash; a pair of surrogates is taken as one character. */
static gboolean
scan_unicode_escape (Scan *scan)
{
  const char *from = scan->at;
  gunichar unit;
  gunichar low;

  if (!read_hex4 (scan, from + 2, &unit))
    return scan_fail (scan, from, "\\u needs four hexadecimal digits");
  if (unit == 0)
    return scan_fail (scan, from, "\\u0000 is not allowed");
  scan->at += 6;
  if (unit >= 0xdc00 && unit <= 0xdfff)
    return scan_fail (scan, from, "low surrogate without a high one");
  if (unit >= 0xd800 && unit <= 0xdbff)
    {
      if (scan->end - scan->at < 6 || scan->at[0] != '\\' || scan->at[1] != 'u'
          || !read_hex4 (scan, scan->at + 2, &low) || low < 0xdc00 || low > 0xdfff)
        return scan_fail (scan, from, "high surrogate without a low one");
      scan->at += 6;
      unit = 0x10000 + ((unit - 0xd800) << 10) + (low - 0xdc00);
    }
  g_string_append_unichar (scan->decoded, unit);
  return TRUE;
}

static gboolean
scan_escape (Scan *scan)
{
  static const char letters[] = "\"\\/bfnrt";
  static const char meanings[] = "\"\\/\b\f\n\r\t";
  const char *letter;

  if (scan->end - scan->at < 2)
    return scan_fail (scan, scan->end, "unexpected end in a string");
  if (scan->at[1] == 'u')
    return scan_unicode_escape (scan);
  letter = scan->at[1] != '\0' ? strchr (letters, scan->at[1]) : NULL;
  if (letter == NULL)
    return scan_fail (scan, scan->at, "unknown escape in a string");
  g_string_append_c (scan->decoded, meanings[letter - letters]);
  scan->at += 2;
  return TRUE;
}

/* A string with scan->at at its opening quote; what it means is left in scan->decoded. */
static gboolean
scan_string (Scan *scan)
{
  const char *open = scan->at++;

  g_string_truncate (scan->decoded, 0);
  while (scan->at < scan->end)
    {
      const char *from = scan->at;

      while (scan->at < scan->end && *scan->at != '"' && *scan->at != '\\'
             && (guchar) *scan->at >= 0x20)
        scan->at++;
      g_string_append_len (scan->decoded, from, scan->at - from);
      if (scan->at >= scan->end)
        break;
      if (*scan->at == '"')
        {
          scan->at++;
          return TRUE;
        }
      if (*scan->at != '\\')
        return scan_fail (scan, scan->at, "control character 0x%02x in a string",
                          (guchar) *scan->at);
      if (!scan_escape (scan))
        return FALSE;
    }
  return scan_fail (scan, open, "string without an end");
}

static gboolean
skip_digits (Scan *scan)
{
  const char *from = scan->at;

  while (scan->at < scan->end && g_ascii_isdigit (*scan->at))
    scan->at++;
  return scan->at > from;
}

static gboolean
check_number_range (Scan *scan, const char *from, gboolean is_integer)
{
  gsize length = scan->at - from;
  g_autofree char *text = NULL;

  if (length > VMM_JSON_MAX_NUMBER)
    return scan_fail (scan, from, "number of more than %d bytes", VMM_JSON_MAX_NUMBER);
  text = g_strndup (from, length);
  errno = 0;
  if (is_integer ? (g_ascii_strtoll (text, NULL, 10), errno == 0)
                 : isfinite (g_ascii_strtod (text, NULL)))
    return TRUE;
  if (length > 40)
    memcpy (text + 37, "...", sizeof "...");
  g_set_error (scan->error, VMM_ERROR, VMM_ERROR_INVALID_REQUEST, "json: number %s is out of range",
               text);
  return FALSE;
}

static gboolean
scan_number (Scan *scan)
{
  const char *from = scan->at;
  gboolean is_integer = TRUE;

  if (*scan->at == '-')
    scan->at++;
  if (next_is (scan, '0'))
    scan->at++;
  else if (!skip_digits (scan))
    return scan_unexpected (scan, "a digit");
  if (next_is (scan, '.'))
    {
      is_integer = FALSE;
      scan->at++;
      if (!skip_digits (scan))
        return scan_unexpected (scan, "a digit");
    }
  if (next_is (scan, 'e') || next_is (scan, 'E'))
    {
      is_integer = FALSE;
      scan->at++;
      if (next_is (scan, '+') || next_is (scan, '-'))
        scan->at++;
      if (!skip_digits (scan))
        return scan_unexpected (scan, "a digit");
    }
  return check_number_range (scan, from, is_integer);
}

static gboolean
scan_literal (Scan *scan)
{
  static const char *const literals[] = { "true", "false", "null" };

  for (guint i = 0; i < G_N_ELEMENTS (literals); i++)
    {
      gsize length = strlen (literals[i]);

      if ((gsize) (scan->end - scan->at) < length || memcmp (scan->at, literals[i], length) != 0)
        continue;
      scan->at += length;
      return TRUE;
    }
  return scan_unexpected (scan, "a value");
}

static gboolean
scan_push (Scan *scan, gboolean is_object)
{
  if (scan->depth == VMM_JSON_MAX_DEPTH)
    return scan_fail (scan, scan->at, "nested deeper than %d levels", VMM_JSON_MAX_DEPTH);
  scan->is_object[scan->depth] = is_object;
  if (is_object && scan->names[scan->depth] != NULL)
    g_hash_table_remove_all (scan->names[scan->depth]);
  scan->depth++;
  scan->at++;
  return TRUE;
}

static Expect
scan_pop (Scan *scan)
{
  scan->at++;
  scan->depth--;
  return scan->depth == 0 ? EXPECT_END : EXPECT_SEPARATOR;
}

static gboolean
scan_value (Scan *scan, Expect *expect)
{
  char first = scan->at < scan->end ? *scan->at : '\0';

  if (++scan->n_values > VMM_JSON_MAX_VALUES)
    return scan_fail (scan, scan->at, "more than %d values", VMM_JSON_MAX_VALUES);
  *expect = scan->depth == 0 ? EXPECT_END : EXPECT_SEPARATOR;
  switch (first)
    {
    case '{':
      *expect = EXPECT_FIRST_MEMBER;
      return scan_push (scan, TRUE);
    case '[':
      *expect = EXPECT_FIRST_ELEMENT;
      return scan_push (scan, FALSE);
    case '"':
      return scan_string (scan);
    case '-':
    case '0' ... '9':
      return scan_number (scan);
    default:
      return scan_literal (scan);
    }
}

/* Remembers the name just read; an object may have each name once. */
static gboolean
remember_name (Scan *scan, const char *where)
{
  GHashTable **names = &scan->names[scan->depth - 1];
  Name *name;

  if (*names == NULL)
    *names = g_hash_table_new_full (name_hash, name_equal, name_free, NULL);
  if (g_hash_table_size (*names) == VMM_JSON_MAX_MEMBERS)
    return scan_fail (scan, where, "object of more than %d members", VMM_JSON_MAX_MEMBERS);

  name = g_new (Name, 1);
  name->text = g_strndup (scan->decoded->str, scan->decoded->len);
  name->counter = &scan->counter;
  if (!g_hash_table_add (*names, name))
    {
      if (scan->decoded->len > 64)
        return scan_fail (scan, where, "a member twice");
      return scan_fail (scan, where, "member \"%s\" twice", scan->decoded->str);
    }
  if (scan->counter.collisions > MAX_COLLISIONS)
    return scan_fail (scan, where, "too many member names that collide");
  return TRUE;
}

static gboolean
scan_member (Scan *scan)
{
  const char *where = scan->at;

  if (!next_is (scan, '"'))
    return scan_unexpected (scan, "a member name");
  if (!scan_string (scan) || !remember_name (scan, where))
    return FALSE;
  skip_space (scan);
  if (!next_is (scan, ':'))
    return scan_unexpected (scan, "':'");
  scan->at++;
  return TRUE;
}

static gboolean
scan_separator (Scan *scan, Expect *expect)
{
  gboolean is_object = scan->is_object[scan->depth - 1];

  if (next_is (scan, is_object ? '}' : ']'))
    {
      *expect = scan_pop (scan);
      return TRUE;
    }
  if (!next_is (scan, ','))
    return scan_unexpected (scan, is_object ? "',' or '}'" : "',' or ']'");
  scan->at++;
  *expect = is_object ? EXPECT_MEMBER : EXPECT_VALUE;
  return TRUE;
}

static gboolean
scan_next (Scan *scan, Expect *expect)
{
  switch (*expect)
    {
    case EXPECT_FIRST_ELEMENT:
      if (next_is (scan, ']'))
        {
          *expect = scan_pop (scan);
          return TRUE;
        }
      return scan_value (scan, expect);
    case EXPECT_FIRST_MEMBER:
      if (next_is (scan, '}'))
        {
          *expect = scan_pop (scan);
          return TRUE;
        }
      G_GNUC_FALLTHROUGH;
    case EXPECT_MEMBER:
      *expect = EXPECT_VALUE;
      return scan_member (scan);
    case EXPECT_SEPARATOR:
      return scan_separator (scan, expect);
    case EXPECT_VALUE:
    case EXPECT_END:
    default:
      return scan_value (scan, expect);
    }
}

static gboolean
scan_document (Scan *scan)
{
  Expect expect = EXPECT_VALUE;
  const char *bad;

  if (!g_utf8_validate_len (scan->start, scan->end - scan->start, &bad))
    return scan_fail (scan, bad, *bad == '\0' ? "zero byte" : "invalid UTF-8");
  skip_space (scan);
  if (scan->at == scan->end)
    {
      g_set_error_literal (scan->error, VMM_ERROR, VMM_ERROR_INVALID_REQUEST,
                           "json: empty, a value expected");
      return FALSE;
    }
  while (expect != EXPECT_END)
    {
      if (!scan_next (scan, &expect))
        return FALSE;
      skip_space (scan);
    }
  if (scan->at < scan->end)
    return scan_unexpected (scan, "the end of the text");
  return TRUE;
}

static gboolean
check_text (const char *text, gsize length, GError **error)
{
  Scan scan = { .start = text, .end = text + length, .at = text, .error = error };
  gboolean good;

  scan.decoded = g_string_new (NULL);
  good = scan_document (&scan);
  for (guint i = 0; i < VMM_JSON_MAX_DEPTH; i++)
    g_clear_pointer (&scan.names[i], g_hash_table_unref);
  g_string_free (scan.decoded, TRUE);
  return good;
}

JsonNode *
vmm_json_parse (const char *text, gsize length, GError **error)
{
  g_autoptr (JsonParser) parser = NULL;
  g_autoptr (GError) local = NULL;

  g_return_val_if_fail (text != NULL || length == 0, NULL);

  if (length > G_MAXSSIZE || !check_text (text != NULL ? text : "", length, error))
    return NULL;

  parser = json_parser_new ();
  if (!json_parser_load_from_data (parser, text, (gssize) length, &local))
    {
      g_set_error (error, VMM_ERROR, VMM_ERROR_INVALID_REQUEST, "json: %s", local->message);
      return NULL;
    }
  return json_parser_steal_root (parser);
}

JsonObject *
vmm_json_parse_object (const char *text, gsize length, GError **error)
{
  g_autoptr (JsonNode) node = vmm_json_parse (text, length, error);

  if (node == NULL)
    return NULL;
  if (!JSON_NODE_HOLDS_OBJECT (node))
    {
      g_set_error_literal (error, VMM_ERROR, VMM_ERROR_INVALID_REQUEST, "json: an object expected");
      return NULL;
    }
  return json_node_dup_object (node);
}

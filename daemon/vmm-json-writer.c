/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The writer of all JSON that leaves the daemon, to clients and to files.
 *
 * Walks a tree straight into one buffer, member order kept. Strings may hold what a guest wrote:
 * what is not UTF-8 becomes U+FFFD, control characters and < > & U+2028 U+2029 are escaped, so that
 * a document can be put into a page or a terminal without becoming markup. Integers are written
 * exactly, doubles with as few digits as read back the same.
 *
 * A list of a thousand VMs is asked for again and again while few of them change. The texts of
 * sealed elements of the last long list are kept, so that the next one only writes what is new. */

#include "config.h"

#include "vmm-json.h"

#include <math.h>
#include <string.h>

/* Lists from this length on keep the texts of their elements. */
#define LONG_LIST 16

typedef struct
{
  GString *out;
  gboolean pretty;
  guint depth;
} Writer;

/* Of this thread: node, with a reference, to the GBytes of its text. */
static GPrivate kept_texts = G_PRIVATE_INIT ((GDestroyNotify) g_hash_table_unref);

static void write_node (Writer *writer, JsonNode *node);

/* Whether the byte stands for itself in a string. */
static inline gboolean
is_plain (guchar c)
{
  return c >= 0x20 && c < 0x7f && c != '"' && c != '\\' && c != '<' && c != '>' && c != '&';
}

static void
write_escape (GString *out, gunichar c)
{
  static const char hex[] = "0123456789abcdef";
  char escape[]
      = { '\\', 'u', hex[(c >> 12) & 15], hex[(c >> 8) & 15], hex[(c >> 4) & 15], hex[c & 15] };

  switch (c)
    {
    case '"':
      g_string_append_len (out, "\\\"", 2);
      break;
    case '\\':
      g_string_append_len (out, "\\\\", 2);
      break;
    case '\b':
      g_string_append_len (out, "\\b", 2);
      break;
    case '\f':
      g_string_append_len (out, "\\f", 2);
      break;
    case '\n':
      g_string_append_len (out, "\\n", 2);
      break;
    case '\r':
      g_string_append_len (out, "\\r", 2);
      break;
    case '\t':
      g_string_append_len (out, "\\t", 2);
      break;
    default:
      g_string_append_len (out, escape, sizeof escape);
      break;
    }
}

/* One character of two or more bytes, or one byte that is no part of a character. */
static const char *
write_wide (GString *out, const char *p, const char *end)
{
  gunichar c = g_utf8_get_char_validated (p, end - p);
  const char *next;

  if (c == (gunichar) -1 || c == (gunichar) -2)
    {
      g_string_append_len (out, "\xef\xbf\xbd", 3);
      return p + 1;
    }
  next = g_utf8_next_char (p);
  if (c == 0x2028 || c == 0x2029 || c < 0xa0)
    write_escape (out, c);
  else
    g_string_append_len (out, p, next - p);
  return next;
}

static void
write_string (GString *out, const char *text)
{
  const char *end = text + strlen (text);
  const char *p = text;

  g_string_append_c (out, '"');
  while (p < end)
    {
      const char *from = p;

      while (p < end && is_plain ((guchar) *p))
        p++;
      g_string_append_len (out, from, p - from);
      if (p == end)
        break;
      if ((guchar) *p >= 0x80)
        p = write_wide (out, p, end);
      else
        write_escape (out, (guchar) *p++);
    }
  g_string_append_c (out, '"');
}

static void
write_integer (GString *out, gint64 number)
{
  char digits[24];
  char *p = digits + sizeof digits;
  guint64 rest = number < 0 ? -(guint64) number : (guint64) number;

  do
    {
      *--p = (char) ('0' + rest % 10);
      rest /= 10;
    }
  while (rest > 0);
  if (number < 0)
    *--p = '-';
  g_string_append_len (out, p, digits + sizeof digits - p);
}

static void
write_double (GString *out, double number)
{
  static const char *const formats[] = { "%.15g", "%.16g", "%.17g" };
  char text[G_ASCII_DTOSTR_BUF_SIZE];

  /* JSON has no word for these. */
  if (!isfinite (number))
    {
      g_string_append (out, "null");
      return;
    }
  for (guint i = 0; i < G_N_ELEMENTS (formats); i++)
    {
      g_ascii_formatd (text, sizeof text, formats[i], number);
      if (g_ascii_strtod (text, NULL) == number)
        break;
    }
  g_string_append (out, text);
  /* A double stays one when it is read again. */
  if (strpbrk (text, ".e") == NULL)
    g_string_append_len (out, ".0", 2);
}

static void
write_value (GString *out, JsonNode *node)
{
  switch (json_node_get_value_type (node))
    {
    case G_TYPE_STRING:
      write_string (out, json_node_get_string (node) != NULL ? json_node_get_string (node) : "");
      break;
    case G_TYPE_BOOLEAN:
      g_string_append (out, json_node_get_boolean (node) ? "true" : "false");
      break;
    case G_TYPE_DOUBLE:
      write_double (out, json_node_get_double (node));
      break;
    default:
      write_integer (out, json_node_get_int (node));
      break;
    }
}

static void
write_line_break (Writer *writer)
{
  static const char spaces[] = "                                ";
  gsize left = writer->depth * 2;

  if (!writer->pretty)
    return;
  g_string_append_c (writer->out, '\n');
  while (left > 0)
    {
      gsize part = MIN (left, sizeof spaces - 1);

      g_string_append_len (writer->out, spaces, part);
      left -= part;
    }
}

static void
write_object (Writer *writer, JsonObject *object)
{
  JsonObjectIter iter;
  const char *name;
  JsonNode *member;
  gboolean first = TRUE;

  g_string_append_c (writer->out, '{');
  writer->depth++;
  json_object_iter_init_ordered (&iter, object);
  while (json_object_iter_next_ordered (&iter, &name, &member))
    {
      if (!first)
        g_string_append_c (writer->out, ',');
      first = FALSE;
      write_line_break (writer);
      write_string (writer->out, name);
      g_string_append_len (writer->out, ": ", writer->pretty ? 2 : 1);
      write_node (writer, member);
    }
  writer->depth--;
  if (!first)
    write_line_break (writer);
  g_string_append_c (writer->out, '}');
}

/* An element of a long list: its kept text, or written and kept for the next time. */
static void
write_kept (Writer *writer, JsonNode *node, GHashTable *before, GHashTable *now)
{
  gsize start = writer->out->len;
  GBytes *text = g_hash_table_lookup (now, node);

  if (text == NULL && before != NULL)
    text = g_hash_table_lookup (before, node);
  if (text != NULL)
    g_string_append_len (writer->out, g_bytes_get_data (text, NULL),
                         (gssize) g_bytes_get_size (text));
  else
    write_node (writer, node);
  if (!g_hash_table_contains (now, node))
    g_hash_table_insert (now, json_node_ref (node),
                         text != NULL
                             ? g_bytes_ref (text)
                             : g_bytes_new (writer->out->str + start, writer->out->len - start));
}

/* Only the texts of the last long list stay. Sealed nodes never change, and a node that is kept
 * alive gives its address to no other. */
static void
write_long_list (Writer *writer, JsonArray *array, guint length)
{
  GHashTable *before = g_private_get (&kept_texts);
  GHashTable *now = g_hash_table_new_full (NULL, NULL, (GDestroyNotify) json_node_unref,
                                           (GDestroyNotify) g_bytes_unref);

  for (guint i = 0; i < length; i++)
    {
      JsonNode *node = json_array_get_element (array, i);

      if (i > 0)
        g_string_append_c (writer->out, ',');
      write_line_break (writer);
      if (json_node_is_immutable (node))
        write_kept (writer, node, before, now);
      else
        write_node (writer, node);
    }
  g_private_replace (&kept_texts, now);
}

static void
write_elements (Writer *writer, JsonArray *array, guint length)
{
  for (guint i = 0; i < length; i++)
    {
      if (i > 0)
        g_string_append_c (writer->out, ',');
      write_line_break (writer);
      write_node (writer, json_array_get_element (array, i));
    }
}

static void
write_array (Writer *writer, JsonArray *array)
{
  guint length = json_array_get_length (array);

  g_string_append_c (writer->out, '[');
  writer->depth++;
  if (writer->pretty && writer->depth == 1 && length >= LONG_LIST)
    write_long_list (writer, array, length);
  else
    write_elements (writer, array, length);
  writer->depth--;
  if (length > 0)
    write_line_break (writer);
  g_string_append_c (writer->out, ']');
}

static void
write_node (Writer *writer, JsonNode *node)
{
  switch (json_node_get_node_type (node))
    {
    case JSON_NODE_OBJECT:
      write_object (writer, json_node_get_object (node));
      break;
    case JSON_NODE_ARRAY:
      write_array (writer, json_node_get_array (node));
      break;
    case JSON_NODE_VALUE:
      write_value (writer->out, node);
      break;
    case JSON_NODE_NULL:
    default:
      g_string_append (writer->out, "null");
      break;
    }
}

static char *
write_text (JsonNode *node, gboolean pretty, gsize *length)
{
  Writer writer = { .out = g_string_sized_new (1024), .pretty = pretty };

  write_node (&writer, node);
  if (pretty)
    g_string_append_c (writer.out, '\n');
  if (length != NULL)
    *length = writer.out->len;
  return g_string_free (writer.out, FALSE);
}

char *
vmm_json_to_text (JsonNode *node, gsize *length)
{
  g_return_val_if_fail (node != NULL, NULL);

  return write_text (node, TRUE, length);
}

char *
vmm_json_to_line (JsonNode *node, gsize *length)
{
  g_return_val_if_fail (node != NULL, NULL);

  return write_text (node, FALSE, length);
}

JsonNode *
vmm_json_node_take_object (JsonObject *object)
{
  JsonNode *node = json_node_new (JSON_NODE_OBJECT);

  json_node_take_object (node, object);
  return node;
}

JsonNode *
vmm_json_node_take_array (JsonArray *array)
{
  JsonNode *node = json_node_new (JSON_NODE_ARRAY);

  json_node_take_array (node, array);
  return node;
}

void
vmm_json_set_string_unless_empty (JsonObject *object, const char *member, const char *value)
{
  if (value != NULL && value[0] != '\0')
    json_object_set_string_member (object, member, value);
}

static JsonNode *
from_container (GVariant *variant)
{
  JsonArray *array = json_array_new ();

  for (gsize i = 0; i < g_variant_n_children (variant); i++)
    {
      g_autoptr (GVariant) child = g_variant_get_child_value (variant, i);

      json_array_add_element (array, vmm_json_from_variant (child));
    }
  return vmm_json_node_take_array (array);
}

/* A dictionary becomes an object; keys that are no strings are printed. */
static JsonNode *
from_dictionary (GVariant *variant)
{
  JsonObject *object = json_object_new ();

  for (gsize i = 0; i < g_variant_n_children (variant); i++)
    {
      g_autoptr (GVariant) entry = g_variant_get_child_value (variant, i);
      g_autoptr (GVariant) key = g_variant_get_child_value (entry, 0);
      g_autoptr (GVariant) value = g_variant_get_child_value (entry, 1);
      g_autofree char *name = g_variant_classify (key) == G_VARIANT_CLASS_STRING
                                  ? g_variant_dup_string (key, NULL)
                                  : g_variant_print (key, FALSE);

      json_object_set_member (object, name, vmm_json_from_variant (value));
    }
  return vmm_json_node_take_object (object);
}

static JsonNode *
from_integer (gint64 number)
{
  return json_node_init_int (json_node_alloc (), number);
}

static JsonNode *
from_number (GVariant *variant)
{
  guint64 large;

  switch (g_variant_classify (variant))
    {
    case G_VARIANT_CLASS_BYTE:
      return from_integer (g_variant_get_byte (variant));
    case G_VARIANT_CLASS_INT16:
      return from_integer (g_variant_get_int16 (variant));
    case G_VARIANT_CLASS_UINT16:
      return from_integer (g_variant_get_uint16 (variant));
    case G_VARIANT_CLASS_INT32:
      return from_integer (g_variant_get_int32 (variant));
    case G_VARIANT_CLASS_UINT32:
      return from_integer (g_variant_get_uint32 (variant));
    case G_VARIANT_CLASS_INT64:
      return from_integer (g_variant_get_int64 (variant));
    case G_VARIANT_CLASS_HANDLE:
      return from_integer (g_variant_get_handle (variant));
    case G_VARIANT_CLASS_DOUBLE:
      return json_node_init_double (json_node_alloc (), g_variant_get_double (variant));
    default:
      /* JSON integers of ours end at G_MAXINT64. */
      large = g_variant_get_uint64 (variant);
      return large > G_MAXINT64 ? json_node_init_double (json_node_alloc (), (double) large)
                                : from_integer ((gint64) large);
    }
}

JsonNode *
vmm_json_from_variant (GVariant *variant)
{
  g_autoptr (GVariant) inner = NULL;

  switch (g_variant_classify (variant))
    {
    case G_VARIANT_CLASS_BOOLEAN:
      return json_node_init_boolean (json_node_alloc (), g_variant_get_boolean (variant));
    case G_VARIANT_CLASS_STRING:
    case G_VARIANT_CLASS_OBJECT_PATH:
    case G_VARIANT_CLASS_SIGNATURE:
      return json_node_init_string (json_node_alloc (), g_variant_get_string (variant, NULL));
    case G_VARIANT_CLASS_VARIANT:
      inner = g_variant_get_variant (variant);
      return vmm_json_from_variant (inner);
    case G_VARIANT_CLASS_MAYBE:
      inner = g_variant_get_maybe (variant);
      return inner != NULL ? vmm_json_from_variant (inner)
                           : json_node_init_null (json_node_alloc ());
    case G_VARIANT_CLASS_ARRAY:
      return g_variant_is_of_type (variant, G_VARIANT_TYPE_DICTIONARY) ? from_dictionary (variant)
                                                                       : from_container (variant);
    case G_VARIANT_CLASS_TUPLE:
    case G_VARIANT_CLASS_DICT_ENTRY:
      return from_container (variant);
    default:
      return from_number (variant);
    }
}

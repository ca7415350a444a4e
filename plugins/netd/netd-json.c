/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * JSON as netd takes it in. json-glib reads by recursion and takes much for JSON that is not, so
 * depth and encoding are checked before it sees a text, and types before a member is used.
 */
#include "netd-json.h"

#include <gio/gio.h>

/* Far above what netd.json and requests need. */
#define DEPTH_MAX 16

static gboolean
is_shallow (const char *text, gsize length)
{
  gboolean in_string = FALSE;
  guint depth = 0;

  for (gsize i = 0; i < length; i++)
    {
      char c = text[i];

      if (in_string && c == '\\')
        i++;
      else if (c == '"')
        in_string = !in_string;
      else if (!in_string && (c == '[' || c == '{') && ++depth > DEPTH_MAX)
        return FALSE;
      else if (!in_string && (c == ']' || c == '}') && depth > 0)
        depth--;
    }
  return TRUE;
}

static JsonObject *
refuse (GError **error, const char *why)
{
  g_set_error_literal (error, G_IO_ERROR, G_IO_ERROR_INVALID_DATA, why);
  return NULL;
}

JsonObject *
netd_json_parse (const char *text, gsize length, GError **error)
{
  g_autoptr (JsonNode) node = NULL;
  g_autoptr (GError) why = NULL;

  /* No NUL byte either: the text is read up to it. */
  if (!g_utf8_validate_len (text, length, NULL))
    return refuse (error, "it is no UTF-8 text");
  if (!is_shallow (text, length))
    return refuse (error, "it is nested too deeply");
  node = json_from_string (text, &why);
  if (why != NULL)
    return refuse (error, why->message);
  if (node == NULL || !JSON_NODE_HOLDS_OBJECT (node))
    return refuse (error, "it must be a JSON object");
  return json_node_dup_object (node);
}

JsonNode *
netd_json_find (JsonObject *object, const char *name, GType type)
{
  JsonNode *node = json_object_get_member (object, name);

  if (node == NULL || !JSON_NODE_HOLDS_VALUE (node) || json_node_get_value_type (node) != type)
    return NULL;
  return node;
}

gboolean
netd_json_read_number (JsonObject *object, const char *name, gint64 least, gint64 most,
                       gint64 *number, GError **error)
{
  JsonNode *node = netd_json_find (object, name, G_TYPE_INT64);

  *number = node == NULL ? 0 : json_node_get_int (node);
  if (node != NULL && *number >= least && *number <= most)
    return TRUE;
  g_set_error (error, G_IO_ERROR, G_IO_ERROR_INVALID_DATA,
               "\"%s\" must be a number from %" G_GINT64_FORMAT " to %" G_GINT64_FORMAT, name,
               least, most);
  return FALSE;
}

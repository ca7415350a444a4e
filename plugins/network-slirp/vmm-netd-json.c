/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Reading JSON that vmm-netd, or an earlier run, wrote.
 *
 * vmm-netd faces guests, so it is believed only what is checked: the parser is recursive, so depth
 * is bounded before it sees anything, and members are looked at only when they have the right type.
 */

#include "vmm-netd-json.h"


#include "interfaces/vmm-error.h"

#define DEPTH_MAX 16
#define TEXT_MAX 512

static gboolean
is_shallow (const char *text, gsize length)
{
  gboolean in_string = FALSE;
  guint depth = 0;

  for (gsize i = 0; i < length; i++)
    {
      char c = text[i];

      if (c == '\0')
        return FALSE;
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

JsonObject *
vmm_netd_json_parse (const char *text, gsize length, GError **error)
{
  g_autoptr (JsonNode) root = NULL;
  g_autoptr (GError) why = NULL;

  if (!g_utf8_validate_len (text, length, NULL) || !is_shallow (text, length))
    {
      vmm_set_error (error, VMM_ERROR_INTERNAL, "not a line of JSON");
      return NULL;
    }
  root = json_from_string (text, &why);
  if (root == NULL || !JSON_NODE_HOLDS_OBJECT (root))
    {
      g_autofree char *reason = vmm_netd_json_tidy (why != NULL ? why->message : "no object");

      vmm_set_error (error, VMM_ERROR_INTERNAL, "not a JSON object: %s", reason);
      return NULL;
    }
  return json_node_dup_object (root);
}

static JsonNode *
get (JsonObject *object, const char *member, GType type)
{
  JsonNode *node = object != NULL ? json_object_get_member (object, member) : NULL;

  return node != NULL && JSON_NODE_HOLDS_VALUE (node) && json_node_get_value_type (node) == type
             ? node
             : NULL;
}

const char *
vmm_netd_json_get_string (JsonObject *object, const char *member)
{
  JsonNode *node = get (object, member, G_TYPE_STRING);

  return node != NULL ? json_node_get_string (node) : NULL;
}

gint64
vmm_netd_json_get_int (JsonObject *object, const char *member, gint64 fallback)
{
  JsonNode *node = get (object, member, G_TYPE_INT64);

  return node != NULL ? json_node_get_int (node) : fallback;
}

JsonObject *
vmm_netd_json_get_object (JsonObject *object, const char *member)
{
  JsonNode *node = object != NULL ? json_object_get_member (object, member) : NULL;

  return node != NULL && JSON_NODE_HOLDS_OBJECT (node) ? json_node_get_object (node) : NULL;
}

JsonArray *
vmm_netd_json_get_array (JsonObject *object, const char *member)
{
  JsonNode *node = object != NULL ? json_object_get_member (object, member) : NULL;

  return node != NULL && JSON_NODE_HOLDS_ARRAY (node) ? json_node_get_array (node) : NULL;
}

GStrv
vmm_netd_json_dup_strings (JsonArray *array, guint limit)
{
  g_autoptr (GStrvBuilder) strings = g_strv_builder_new ();
  guint n = array != NULL ? MIN (json_array_get_length (array), limit) : 0;

  for (guint i = 0; i < n; i++)
    {
      JsonNode *node = json_array_get_element (array, i);

      if (JSON_NODE_HOLDS_VALUE (node) && json_node_get_value_type (node) == G_TYPE_STRING)
        g_strv_builder_add (strings, json_node_get_string (node));
    }
  return g_strv_builder_end (strings);
}

char *
vmm_netd_json_to_text (JsonObject *object, gboolean pretty)
{
  g_autoptr (JsonNode) node = json_node_new (JSON_NODE_OBJECT);

  json_node_take_object (node, object);
  return json_to_string (node, pretty);
}

char *
vmm_netd_json_tidy (const char *text)
{
  g_autofree char *cut = g_strndup (text, TEXT_MAX);
  char *tidy = g_utf8_make_valid (cut, -1);

  for (char *c = tidy; *c != '\0'; c++)
    if (g_ascii_iscntrl (*c))
      *c = ' ';
  return g_strstrip (tidy);
}

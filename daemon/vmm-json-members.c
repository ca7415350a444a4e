/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Members of an object by name and type.
 *
 * json-glib's own getters answer with a default, or a critical, when a member has another type; who
 * reads what others wrote wants an error that names the member. */

#include "config.h"

#include "vmm-json.h"

#include <math.h>

#include "interfaces/vmm-error.h"

/* NULL for a member that is absent or null. */
static JsonNode *
find_member (JsonObject *object, const char *member)
{
  JsonNode *node = json_object_get_member (object, member);

  return node == NULL || JSON_NODE_HOLDS_NULL (node) ? NULL : node;
}

static gboolean
fail_type (const char *member, const char *wanted, GError **error)
{
  g_set_error (error, VMM_ERROR, VMM_ERROR_INVALID_REQUEST, "json: member \"%s\" must be %s",
               member, wanted);
  return FALSE;
}

static gboolean
is_value (JsonNode *node, GType type)
{
  return JSON_NODE_HOLDS_VALUE (node) && json_node_get_value_type (node) == type;
}

gboolean
vmm_json_get_string (JsonObject *object, const char *member, const char *fallback,
                     const char **value, GError **error)
{
  JsonNode *node = find_member (object, member);

  *value = fallback;
  if (node == NULL)
    return TRUE;
  if (!is_value (node, G_TYPE_STRING))
    return fail_type (member, "a string", error);
  *value = json_node_get_string (node);
  return TRUE;
}

/* A double counts when it is a whole number that a double holds exactly. */
gboolean
vmm_json_get_int (JsonObject *object, const char *member, gint64 fallback, gint64 *value,
                  GError **error)
{
  const double exact = 9007199254740992.0; /* 2^53 */
  JsonNode *node = find_member (object, member);
  double number;

  *value = fallback;
  if (node == NULL)
    return TRUE;
  if (is_value (node, G_TYPE_INT64))
    {
      *value = json_node_get_int (node);
      return TRUE;
    }
  if (!is_value (node, G_TYPE_DOUBLE))
    return fail_type (member, "an integer", error);
  number = json_node_get_double (node);
  if (number != floor (number) || fabs (number) > exact)
    return fail_type (member, "an integer", error);
  *value = (gint64) number;
  return TRUE;
}

gboolean
vmm_json_get_boolean (JsonObject *object, const char *member, gboolean fallback, gboolean *value,
                      GError **error)
{
  JsonNode *node = find_member (object, member);

  *value = fallback;
  if (node == NULL)
    return TRUE;
  if (!is_value (node, G_TYPE_BOOLEAN))
    return fail_type (member, "true or false", error);
  *value = json_node_get_boolean (node);
  return TRUE;
}

gboolean
vmm_json_get_object (JsonObject *object, const char *member, JsonObject **value, GError **error)
{
  JsonNode *node = find_member (object, member);

  *value = NULL;
  if (node == NULL)
    return TRUE;
  if (!JSON_NODE_HOLDS_OBJECT (node))
    return fail_type (member, "an object", error);
  *value = json_node_get_object (node);
  return TRUE;
}

gboolean
vmm_json_get_array (JsonObject *object, const char *member, JsonArray **value, GError **error)
{
  JsonNode *node = find_member (object, member);

  *value = NULL;
  if (node == NULL)
    return TRUE;
  if (!JSON_NODE_HOLDS_ARRAY (node))
    return fail_type (member, "an array", error);
  *value = json_node_get_array (node);
  return TRUE;
}

gboolean
vmm_json_get_strv (JsonObject *object, const char *member, GStrv *value, GError **error)
{
  g_autoptr (GStrvBuilder) builder = g_strv_builder_new ();
  JsonArray *array;

  *value = NULL;
  if (!vmm_json_get_array (object, member, &array, NULL))
    return fail_type (member, "an array of strings", error);
  if (array == NULL)
    return TRUE;
  for (guint i = 0; i < json_array_get_length (array); i++)
    {
      JsonNode *node = json_array_get_element (array, i);

      if (!is_value (node, G_TYPE_STRING))
        return fail_type (member, "an array of strings", error);
      g_strv_builder_add (builder, json_node_get_string (node));
    }
  *value = g_strv_builder_end (builder);
  return TRUE;
}

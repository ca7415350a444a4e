/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Arguments against schemas.
 *
 * Each row of the table of operations says in JSON Schema what its arguments are. The subset that
 * the table may use is judged here, the same for every door: type, properties, additionalProperties
 * (none unless given), required, enum, items, minimum, maximum, default. The generator refuses
 * other words in the table, so none of them can be overlooked.
 *
 * Schemas are parsed when they are first needed and kept. */

#include "config.h"

#include "vmm-arguments.h"

#include <math.h>
#include <string.h>

#include "interfaces/vmm-error.h"
#include "vmm-json.h"
#include "vmm-log.h"

/* Names come from the caller; a message shows this much of them. */
#define MAX_NAME 64

typedef struct
{
  VmmArgumentsFlags flags;
  GError **error;
} Check;

static JsonNode *check_value (Check *check, const char *where, JsonObject *schema, JsonNode *node);

static JsonObject *
get_schema (const VmmOperation *operation)
{
  static GHashTable *schemas = NULL;
  g_autoptr (GError) error = NULL;
  JsonObject *schema;

  if (schemas == NULL)
    schemas = g_hash_table_new_full (NULL, NULL, NULL, (GDestroyNotify) json_object_unref);
  schema = g_hash_table_lookup (schemas, operation);
  if (schema != NULL)
    return schema;

  schema = vmm_json_parse_object (operation->parameters, strlen (operation->parameters), &error);
  g_return_val_if_fail (schema != NULL, NULL);
  g_hash_table_insert (schemas, (gpointer) operation, schema);
  return schema;
}

/* Always NULL, to be returned. */
static gpointer G_GNUC_PRINTF (2, 3) fail (Check *check, const char *format, ...)
{
  g_autofree char *text = NULL;
  va_list args;

  va_start (args, format);
  text = g_strdup_vprintf (format, args);
  va_end (args);
  g_set_error_literal (check->error, VMM_ERROR, VMM_ERROR_INVALID_REQUEST, text);
  return NULL;
}

static gboolean
is_judged_by_service (JsonObject *schema)
{
  return json_object_has_member (schema, "x-judged-by");
}

static gboolean
is_null (JsonNode *node)
{
  return node == NULL || JSON_NODE_HOLDS_NULL (node);
}

static const char *
name_of_type (JsonNode *node)
{
  switch (json_node_get_node_type (node))
    {
    case JSON_NODE_OBJECT:
      return "an object";
    case JSON_NODE_ARRAY:
      return "an array";
    case JSON_NODE_NULL:
      return "null";
    case JSON_NODE_VALUE:
    default:
      break;
    }
  switch (json_node_get_value_type (node))
    {
    case G_TYPE_STRING:
      return "a string";
    case G_TYPE_BOOLEAN:
      return "a boolean";
    case G_TYPE_DOUBLE:
      return "a fraction";
    default:
      return "a number";
    }
}

static gpointer
fail_type (Check *check, const char *where, const char *wanted, JsonNode *node)
{
  g_autofree char *text = NULL;

  if ((check->flags & VMM_ARGUMENTS_TEXTUAL) && JSON_NODE_HOLDS_VALUE (node)
      && json_node_get_value_type (node) == G_TYPE_STRING)
    {
      text = vmm_log_escape (json_node_get_string (node), MAX_NAME);
      return fail (check, "%s: \"%s\" is not %s", where, text, wanted);
    }
  return fail (check, "json: %s must be %s, not %s", where, wanted, name_of_type (node));
}

static gboolean
holds (JsonNode *node, GType type)
{
  return JSON_NODE_HOLDS_VALUE (node) && json_node_get_value_type (node) == type;
}

/* Whole numbers are integers however they are written: 2, 2.0, 2e0; as texts where those count. */
static gboolean
read_integer (Check *check, JsonNode *node, gint64 *number)
{
  const double exact = 9007199254740992.0; /* 2^53 */
  double value;

  if (holds (node, G_TYPE_INT64))
    {
      *number = json_node_get_int (node);
      return TRUE;
    }
  if (holds (node, G_TYPE_STRING))
    return (check->flags & VMM_ARGUMENTS_TEXTUAL) != 0
           && g_ascii_string_to_signed (json_node_get_string (node), 10, G_MININT64, G_MAXINT64,
                                        number, NULL);
  if (!holds (node, G_TYPE_DOUBLE))
    return FALSE;
  value = json_node_get_double (node);
  if (value != floor (value) || fabs (value) > exact)
    return FALSE;
  *number = (gint64) value;
  return TRUE;
}

static JsonNode *
check_integer (Check *check, const char *where, JsonObject *schema, JsonNode *node)
{
  gint64 number;
  gint64 lowest = G_MININT64;
  gint64 highest = G_MAXINT64;

  if (!read_integer (check, node, &number))
    return fail_type (check, where, "an integer", node);
  if (!is_judged_by_service (schema))
    {
      lowest = json_object_get_int_member_with_default (schema, "minimum", lowest);
      highest = json_object_get_int_member_with_default (schema, "maximum", highest);
    }
  if (number < lowest)
    return fail (check, "%s %" G_GINT64_FORMAT " must be at least %" G_GINT64_FORMAT, where, number,
                 lowest);
  if (number > highest)
    return fail (check, "%s %" G_GINT64_FORMAT " must be at most %" G_GINT64_FORMAT, where, number,
                 highest);
  return json_node_init_int (json_node_alloc (), number);
}

static JsonNode *
check_number (Check *check, const char *where, JsonObject *schema, JsonNode *node)
{
  if (!holds (node, G_TYPE_INT64) && !holds (node, G_TYPE_DOUBLE))
    return fail_type (check, where, "a number", node);
  return json_node_copy (node);
}

static JsonNode *
check_boolean (Check *check, const char *where, JsonObject *schema, JsonNode *node)
{
  const char *text;

  if (holds (node, G_TYPE_BOOLEAN))
    return json_node_copy (node);
  if (!holds (node, G_TYPE_STRING) || !(check->flags & VMM_ARGUMENTS_TEXTUAL))
    return fail_type (check, where, "a boolean", node);
  text = json_node_get_string (node);
  if (!g_str_equal (text, "true") && !g_str_equal (text, "false"))
    return fail_type (check, where, "a boolean", node);
  return json_node_init_boolean (json_node_alloc (), g_str_equal (text, "true"));
}

static gboolean
is_one_of (JsonArray *values, const char *text)
{
  for (guint i = 0; i < json_array_get_length (values); i++)
    if (g_str_equal (json_array_get_string_element (values, i), text))
      return TRUE;
  return FALSE;
}

static char *
join_values (JsonArray *values)
{
  GString *out = g_string_new (NULL);

  for (guint i = 0; i < json_array_get_length (values); i++)
    {
      if (i > 0)
        g_string_append (out, ", ");
      g_string_append (out, json_array_get_string_element (values, i));
    }
  return g_string_free (out, FALSE);
}

static JsonNode *
check_string (Check *check, const char *where, JsonObject *schema, JsonNode *node)
{
  if (!holds (node, G_TYPE_STRING))
    return fail_type (check, where, "a string", node);
  if (json_object_has_member (schema, "enum") && !is_judged_by_service (schema))
    {
      JsonArray *values = json_object_get_array_member (schema, "enum");
      g_autofree char *joined = join_values (values);

      if (!is_one_of (values, json_node_get_string (node)))
        return fail (check, "%s must be one of %s", where, joined);
    }
  return json_node_copy (node);
}

static JsonNode *
check_array (Check *check, const char *where, JsonObject *schema, JsonNode *node)
{
  g_autoptr (JsonArray) out = json_array_new ();
  JsonObject *items = json_object_get_object_member (schema, "items");
  JsonArray *array;

  if (!JSON_NODE_HOLDS_ARRAY (node))
    return fail_type (check, where, "an array", node);
  array = json_node_get_array (node);
  for (guint i = 0; i < json_array_get_length (array); i++)
    {
      g_autofree char *place = g_strdup_printf ("%s[%u]", where, i);
      JsonNode *element = check_value (check, place, items, json_array_get_element (array, i));

      if (element == NULL)
        return NULL;
      json_array_add_element (out, element);
    }
  return vmm_json_node_take_array (g_steal_pointer (&out));
}

static char *
place_of (const char *where, const char *name)
{
  g_autofree char *escaped = vmm_log_escape (name, MAX_NAME);

  return where[0] == '\0' ? g_steal_pointer (&escaped) : g_strconcat (where, ".", escaped, NULL);
}

/* The schema of a member; NULL with no error set for one that is to be left out. */
static JsonObject *
find_member_schema (Check *check, const char *where, JsonObject *schema, const char *name,
                    gboolean *known)
{
  JsonObject *properties = NULL;
  JsonNode *others = json_object_get_member (schema, "additionalProperties");
  g_autofree char *escaped = NULL;

  *known = TRUE;
  if (json_object_has_member (schema, "properties"))
    properties = json_object_get_object_member (schema, "properties");
  if (properties != NULL && json_object_has_member (properties, name))
    return json_object_get_object_member (properties, name);
  if (others != NULL && JSON_NODE_HOLDS_OBJECT (others))
    return json_node_get_object (others);
  if (!(check->flags & VMM_ARGUMENTS_IGNORE_UNKNOWN))
    {
      *known = FALSE;
      escaped = vmm_log_escape (name, MAX_NAME);
      fail (check, "json: unknown field \"%s\"", escaped);
    }
  return NULL;
}

static gboolean
check_members (Check *check, const char *where, JsonObject *schema, JsonObject *object,
               JsonObject *out)
{
  JsonObjectIter iter;
  const char *name;
  JsonNode *node;

  json_object_iter_init_ordered (&iter, object);
  while (json_object_iter_next_ordered (&iter, &name, &node))
    {
      g_autofree char *place = place_of (where, name);
      gboolean known;
      JsonObject *member = find_member_schema (check, where, schema, name, &known);
      JsonNode *value;

      if (!known)
        return FALSE;
      if (member == NULL || is_null (node))
        continue;
      value = check_value (check, place, member, node);
      if (value == NULL)
        return FALSE;
      json_object_set_member (out, name, value);
    }
  return TRUE;
}

static gboolean
check_required (Check *check, JsonObject *schema, JsonObject *out)
{
  JsonObject *properties = json_object_get_object_member (schema, "properties");
  JsonArray *required = json_object_get_array_member (schema, "required");

  for (guint i = 0; i < json_array_get_length (required); i++)
    {
      const char *name = json_array_get_string_element (required, i);

      if (!json_object_has_member (out, name)
          && !is_judged_by_service (json_object_get_object_member (properties, name)))
        {
          fail (check, "required argument \"%s\" not found", name);
          return FALSE;
        }
    }
  return TRUE;
}

static void
fill_defaults (JsonObject *schema, JsonObject *out)
{
  JsonObjectIter iter;
  const char *name;
  JsonNode *property;

  json_object_iter_init_ordered (&iter, json_object_get_object_member (schema, "properties"));
  while (json_object_iter_next_ordered (&iter, &name, &property))
    {
      JsonNode *fallback = json_object_get_member (json_node_get_object (property), "default");

      if (fallback != NULL && !json_object_has_member (out, name))
        json_object_set_member (out, name, json_node_copy (fallback));
    }
}

static JsonNode *
check_object (Check *check, const char *where, JsonObject *schema, JsonNode *node)
{
  g_autoptr (JsonObject) out = json_object_new ();

  if (!JSON_NODE_HOLDS_OBJECT (node))
    return fail_type (check, where, "an object", node);
  if (!check_members (check, where, schema, json_node_get_object (node), out))
    return NULL;
  if (json_object_has_member (schema, "required") && !check_required (check, schema, out))
    return NULL;
  if (json_object_has_member (schema, "properties"))
    fill_defaults (schema, out);
  return vmm_json_node_take_object (g_steal_pointer (&out));
}

/* A new node, or NULL with an error. */
static JsonNode *
check_value (Check *check, const char *where, JsonObject *schema, JsonNode *node)
{
  static const struct
  {
    const char *type;
    JsonNode *(*check) (Check *, const char *, JsonObject *, JsonNode *);
  } types[] = {
    { "string", check_string }, { "integer", check_integer }, { "boolean", check_boolean },
    { "number", check_number }, { "array", check_array },     { "object", check_object },
  };
  const char *type = json_object_get_string_member (schema, "type");

  for (guint i = 0; i < G_N_ELEMENTS (types); i++)
    if (g_str_equal (type, types[i].type))
      return types[i].check (check, where, schema, node);
  g_return_val_if_reached (NULL);
}

JsonObject *
vmm_arguments_check (const VmmOperation *operation, JsonObject *arguments, VmmArgumentsFlags flags,
                     GError **error)
{
  Check check = { .flags = flags, .error = error };
  g_autoptr (JsonNode) given = NULL;
  g_autoptr (JsonNode) checked = NULL;

  g_return_val_if_fail (operation != NULL, NULL);
  g_return_val_if_fail (arguments != NULL, NULL);

  given = vmm_json_node_take_object (json_object_ref (arguments));
  checked = check_object (&check, "", get_schema (operation), given);
  return checked != NULL ? json_node_dup_object (checked) : NULL;
}

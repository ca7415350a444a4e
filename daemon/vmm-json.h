/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <json-glib/json-glib.h>

G_BEGIN_DECLS

/* Every JSON text from outside is read here, and nowhere else: strict syntax, valid UTF-8, at most
 * VMM_JSON_MAX_DEPTH levels, integers in the range of gint64, no member twice, nothing behind the
 * value. Errors are VMM_ERROR_INVALID_REQUEST without a location prefix of the caller's: the text
 * begins with "json: ", and who shows it to a client puts "invalid request: body: " before it. */
#define VMM_JSON_MAX_DEPTH 64
/* Members of one object, and bytes of one number. */
#define VMM_JSON_MAX_MEMBERS 1024
#define VMM_JSON_MAX_NUMBER 1024
/* Values in one text: a body of the size we take could else hold millions of empty objects. */
#define VMM_JSON_MAX_VALUES 200000

JsonNode *vmm_json_parse (const char *text, gsize length, GError **error);
JsonObject *vmm_json_parse_object (const char *text, gsize length, GError **error);

/* Typed getters for members of an object: an absent member or null gives the default and TRUE; a
 * member of another type is an error that names the member. */
gboolean vmm_json_get_string (JsonObject *object, const char *member, const char *fallback,
                              const char **value, GError **error);
gboolean vmm_json_get_int (JsonObject *object, const char *member, gint64 fallback, gint64 *value,
                           GError **error);
gboolean vmm_json_get_boolean (JsonObject *object, const char *member, gboolean fallback,
                               gboolean *value, GError **error);
gboolean vmm_json_get_strv (JsonObject *object, const char *member, GStrv *value, GError **error);
gboolean vmm_json_get_object (JsonObject *object, const char *member, JsonObject **value,
                              GError **error);
gboolean vmm_json_get_array (JsonObject *object, const char *member, JsonArray **value,
                             GError **error);

/* The writer: two spaces, one trailing newline; < > & U+2028 U+2029 and control characters are
 * escaped, invalid UTF-8 becomes U+FFFD. */
char *vmm_json_to_text (JsonNode *node, gsize *length);
/* The same without indentation and newline, for one-line protocols. */
char *vmm_json_to_line (JsonNode *node, gsize *length);

JsonNode *vmm_json_node_take_object (JsonObject *object);
JsonNode *vmm_json_node_take_array (JsonArray *array);
/* Adds a string member unless value is NULL or empty. */
void vmm_json_set_string_unless_empty (JsonObject *object, const char *member, const char *value);
JsonNode *vmm_json_from_variant (GVariant *variant);

G_END_DECLS

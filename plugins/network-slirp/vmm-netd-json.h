/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <json-glib/json-glib.h>

G_BEGIN_DECLS

/* JSON of a program that faces guests: nothing about it is taken for granted. */

/* One object; NULL with VMM_ERROR_INTERNAL. */
JsonObject *vmm_netd_json_parse (const char *text, gsize length, GError **error);
/* Each returns the fallback (or NULL) when there is no such member, or one of another type. */
const char *vmm_netd_json_get_string (JsonObject *object, const char *member);
gint64 vmm_netd_json_get_int (JsonObject *object, const char *member, gint64 fallback);
JsonObject *vmm_netd_json_get_object (JsonObject *object, const char *member);
JsonArray *vmm_netd_json_get_array (JsonObject *object, const char *member);
/* What is a string in an array, at most limit of them. */
GStrv vmm_netd_json_dup_strings (JsonArray *array, guint limit);
/* One line, without its end. Takes the object. */
char *vmm_netd_json_to_text (JsonObject *object, gboolean pretty);
/* At most 512 bytes of valid text without control characters. */
char *vmm_netd_json_tidy (const char *text);

G_END_DECLS

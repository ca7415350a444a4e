/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <json-glib/json-glib.h>

/* Reads JSON: netd.json and the lines of the control socket. */

/* (transfer full): one object; NULL with an error when @text is anything else, or deeper than what
 * is read here can be. A NUL byte follows the @length bytes. */
JsonObject *netd_json_parse (const char *text, gsize length, GError **error);
/* The value of a member, NULL when there is none or when it has another type. */
JsonNode *netd_json_find (JsonObject *object, const char *name, GType type);
/* FALSE with an error that names the member unless it is a whole number within the bounds. */
gboolean netd_json_read_number (JsonObject *object, const char *name, gint64 least, gint64 most,
                                gint64 *number, GError **error);

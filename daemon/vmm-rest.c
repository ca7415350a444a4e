/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The REST door.
 *
 * A method and a path name a row of the operations table. Arguments come from the path and from the
 * body or the query; the result becomes the body, an error the envelope. Everything that is the same
 * on every door is done behind vmm_operation_call_async().
 *
 * Results of reading operations are sealed and shared while nothing changes, so the last text of
 * each is kept for a moment together with its entity tag: a client that polls costs no writing. */

#include "config.h"

#include "vmm-rest.h"

#include <string.h>

#include "interfaces/vmm-error.h"
#include "vmm-etag.h"
#include "vmm-json.h"
#include "vmm-operations.h"

#define PREFIX "/api/v1"
#define KEEP_S 10

/* The last answer of one operation. */
typedef struct
{
  JsonNode *node;
  GBytes *body;
  char *etag;
} Kept;

typedef struct
{
  VmmHttp *http; /* NULL when it is gone */
  VmmService *service;
  GHashTable *kept; /* operation to Kept */
  guint forget_id;
} Rest;

typedef struct
{
  Rest *rest;
  const VmmOperation *operation;
  SoupServerMessage *message;
  gboolean paused;
  gboolean answered;
} Request;

static void
kept_free (gpointer data)
{
  Kept *kept = data;

  json_node_unref (kept->node);
  g_bytes_unref (kept->body);
  g_free (kept->etag);
  g_free (kept);
}

static void
rest_clear (gpointer data)
{
  Rest *rest = data;

  g_clear_handle_id (&rest->forget_id, g_source_remove);
  g_hash_table_unref (rest->kept);
  g_object_unref (rest->service);
}

static void
request_free (Request *request)
{
  g_rc_box_release_full (request->rest, rest_clear);
  g_object_unref (request->message);
  g_free (request);
}

static gboolean
forget_cb (gpointer user_data)
{
  Rest *rest = user_data;

  rest->forget_id = 0;
  g_hash_table_remove_all (rest->kept);
  return G_SOURCE_REMOVE;
}

static void
set_body (SoupServerMessage *message, guint status, const char *type, GBytes *body)
{
  soup_server_message_set_status (message, status, NULL);
  soup_message_headers_replace (soup_server_message_get_response_headers (message), "Content-Type",
                                type);
  if (g_bytes_get_size (body) > 0)
    soup_message_body_append_bytes (soup_server_message_get_response_body (message), body);
}

static GBytes *
node_to_bytes (JsonNode *node)
{
  gsize length;
  char *text = vmm_json_to_text (node, &length);

  return g_bytes_new_take (text, length);
}

static void
answer_error (SoupServerMessage *message, const GError *error)
{
  const VmmErrorInfo *info = vmm_error_get_info (error->code);
  JsonObject *inner = json_object_new ();
  JsonObject *outer = json_object_new ();
  g_autoptr (JsonNode) node = NULL;
  g_autoptr (GBytes) body = NULL;

  json_object_set_string_member (inner, "code", info->slug);
  json_object_set_string_member (inner, "message", error->message);
  json_object_set_object_member (outer, "error", inner);
  node = vmm_json_node_take_object (outer);
  body = node_to_bytes (node);
  set_body (message, info->http_status, "application/json", body);
}

/* The text of a result and its tag, from the answer before when it is the very same result. */
static const Kept *
render (Rest *rest, const VmmOperation *operation, JsonNode *node)
{
  Kept *kept = g_hash_table_lookup (rest->kept, operation);

  if (kept == NULL || kept->node != node)
    {
      kept = g_new0 (Kept, 1);
      kept->node = json_node_ref (node);
      kept->body = node_to_bytes (node);
      kept->etag = vmm_etag_new (kept->body);
      g_hash_table_insert (rest->kept, (gpointer) operation, kept);
    }
  if (rest->forget_id == 0)
    rest->forget_id = g_timeout_add_seconds (KEEP_S, forget_cb, rest);
  return kept;
}

static void
answer_read (Rest *rest, const VmmOperation *operation, SoupServerMessage *message, JsonNode *node)
{
  const Kept *kept = render (rest, operation, node);
  SoupMessageHeaders *headers = soup_server_message_get_response_headers (message);
  const char *known = soup_message_headers_get_one (
      soup_server_message_get_request_headers (message), "If-None-Match");

  soup_message_headers_replace (headers, "ETag", kept->etag);
  soup_message_headers_replace (headers, "Cache-Control", "no-cache");
  if (vmm_etag_matches (known, kept->etag))
    soup_server_message_set_status (message, SOUP_STATUS_NOT_MODIFIED, NULL);
  else
    set_body (message, operation->success_status, "application/json", kept->body);
}

static void
answer_result (Rest *rest, const VmmOperation *operation, SoupServerMessage *message,
               JsonNode *node)
{
  g_autoptr (GBytes) body = NULL;

  if (node == NULL || operation->success_status == SOUP_STATUS_NO_CONTENT)
    {
      soup_server_message_set_status (message, SOUP_STATUS_NO_CONTENT, NULL);
      return;
    }
  /* A document that is no JSON is its result's text. */
  if (g_str_has_suffix (operation->path, ".yaml") && JSON_NODE_HOLDS_VALUE (node))
    {
      const char *text = json_node_get_string (node);

      body = g_bytes_new (text, strlen (text));
      set_body (message, operation->success_status, "application/yaml", body);
      return;
    }
  if (strcmp (operation->method, "GET") == 0 && json_node_is_immutable (node))
    {
      answer_read (rest, operation, message, node);
      return;
    }
  body = node_to_bytes (node);
  set_body (message, operation->success_status, "application/json", body);
}

static void
called_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  Request *request = user_data;
  g_autoptr (GError) error = NULL;
  g_autoptr (JsonNode) node = vmm_operation_call_finish (result, &error);
  gboolean closing = request->rest->http == NULL || vmm_http_is_closing (request->rest->http);

  /* Cancelled: nobody reads this, unless it is us who end. */
  if (error != NULL && error->domain != VMM_ERROR)
    {
      g_clear_error (&error);
      error = vmm_error_new (VMM_ERROR_CONFLICT,
                             closing ? "vm-manager is shutting down" : "the client went away");
    }
  if (error != NULL)
    answer_error (request->message, error);
  else
    answer_result (request->rest, request->operation, request->message, node);
  request->answered = TRUE;
  if (request->paused)
    {
      soup_server_message_unpause (request->message);
      request_free (request);
    }
}

/* --- arguments --- */

static JsonObject *
read_body (SoupServerMessage *message, VmmHttpRequest *request, GError **error)
{
  g_autoptr (GBytes) bytes = NULL;
  JsonObject *arguments;
  gconstpointer text;
  gsize length;

  if (request->body_too_large)
    {
      vmm_set_error (error, VMM_ERROR_INVALID_REQUEST, "body: http: request body too large");
      return NULL;
    }
  bytes = soup_message_body_flatten (soup_server_message_get_request_body (message));
  text = g_bytes_get_data (bytes, &length);
  arguments = vmm_json_parse_object (text != NULL ? text : "", length, error);
  if (arguments == NULL)
    g_prefix_error (error, "invalid request: body: ");
  return arguments;
}

static JsonObject *
read_query (SoupServerMessage *message, GError **error)
{
  g_autoptr (JsonObject) arguments = json_object_new ();
  g_autoptr (GHashTable) parameters = NULL;
  g_autoptr (GError) problem = NULL;
  const char *query = g_uri_get_query (soup_server_message_get_uri (message));
  GHashTableIter iter;
  gpointer name, value;

  if (query == NULL)
    return g_steal_pointer (&arguments);
  parameters = g_uri_parse_params (query, -1, "&", G_URI_PARAMS_WWW_FORM, &problem);
  if (parameters == NULL)
    {
      vmm_set_error (error, VMM_ERROR_INVALID_REQUEST, "query: %s", problem->message);
      return NULL;
    }
  g_hash_table_iter_init (&iter, parameters);
  while (g_hash_table_iter_next (&iter, &name, &value))
    json_object_set_string_member (arguments, name, value);
  return g_steal_pointer (&arguments);
}

/* What the path says stands; a body has no say in it. */
static gboolean
add_path_arguments (const VmmOperation *operation, JsonObject *path, JsonObject *arguments,
                    GError **error)
{
  JsonObjectIter iter;
  const char *name;
  JsonNode *value;

  json_object_iter_init (&iter, path);
  while (json_object_iter_next (&iter, &name, &value))
    {
      if (operation->has_body && json_object_has_member (arguments, name))
        {
          vmm_set_error (error, VMM_ERROR_INVALID_REQUEST, "body: json: unknown field \"%s\"",
                         name);
          return FALSE;
        }
      json_object_set_member (arguments, name, json_node_copy (value));
    }
  return TRUE;
}

static void
call (Rest *rest, const VmmOperation *operation, SoupServerMessage *message,
      VmmHttpRequest *http_request, JsonObject *arguments)
{
  g_autoptr (VmmCall) vmm_call =
      vmm_call_new (http_request->caller, arguments, http_request->cancellable);
  Request *request = g_new0 (Request, 1);

  request->rest = g_rc_box_acquire (rest);
  request->operation = operation;
  request->message = g_object_ref (message);
  vmm_operation_call_async (rest->service, operation, vmm_call, called_cb, request);
  if (request->answered)
    {
      request_free (request);
      return;
    }
  request->paused = TRUE;
  soup_server_message_pause (message);
}

static void
door_cb (VmmHttp *http, SoupServerMessage *message, const char *path, VmmHttpRequest *request,
         gpointer user_data)
{
  Rest *rest = user_data;
  const char *method = soup_server_message_get_method (message);
  g_autoptr (JsonObject) from_path = json_object_new ();
  g_autoptr (JsonObject) arguments = NULL;
  const VmmOperation *operation =
      vmm_operations_match (method, path + strlen (PREFIX), from_path);
  g_autoptr (GError) error = NULL;

  if (operation == NULL)
    error = vmm_error_new (VMM_ERROR_NOT_FOUND, "no route %s %s", method, path);
  else if (operation->has_body)
    arguments = read_body (message, request, &error);
  else
    arguments = read_query (message, &error);
  if (arguments == NULL || !add_path_arguments (operation, from_path, arguments, &error))
    {
      answer_error (message, error);
      return;
    }
  call (rest, operation, message, request, arguments);
}

static void
http_gone_cb (gpointer user_data, GObject *http)
{
  Rest *rest = user_data;

  rest->http = NULL;
  g_rc_box_release_full (rest, rest_clear);
}

void
vmm_rest_mount (VmmHttp *http, VmmService *service)
{
  Rest *rest = g_rc_box_new0 (Rest);

  rest->http = http;
  rest->service = g_object_ref (service);
  rest->kept = g_hash_table_new_full (NULL, NULL, NULL, kept_free);
  g_object_weak_ref (G_OBJECT (http), http_gone_cb, rest);
  vmm_http_add_door (http, PREFIX, TRUE, door_cb, rest);
}

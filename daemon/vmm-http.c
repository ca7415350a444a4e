/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The HTTP side of the daemon.
 *
 * A listener accepts, vmm-http-peer says who it is, a connection reads and checks whole requests,
 * and libsoup gets each of them as a stream of its own (see vmm-http-exchange.c) for the doors to
 * answer. Nothing that is malformed, too large, too slow or not allowed gets as far as libsoup. */

#include "config.h"

#include "vmm-http.h"

#include <string.h>

#include "interfaces/vmm-error.h"
#include "vmm-http-listener.h"
#include "vmm-log.h"

/* What waits for longer than this at the end of the daemon is cancelled. */
#define CLOSE_GRACE_MS 2000

static const VmmHttpTimes default_times = {
  .head_ms = 10 * 1000,
  .body_ms = 60 * 1000,
  .idle_ms = 120 * 1000,
  .stall_ms = 120 * 1000,
  .linger_ms = 5 * 1000,
};

typedef struct
{
  char *prefix;
  gboolean guarded;
  VmmHttpDoor door;
  gpointer user_data;
} Door;

/* One connection, and its request that libsoup has. */
typedef struct
{
  VmmHttpConnection *connection;
  GSocketAddress *local;
  GSocketAddress *remote;
  SoupServerMessage *message; /* NULL between requests */
  VmmHttpRequest request;
} Client;

struct _VmmHttp
{
  GObject parent_instance;

  VmmOptions *options;
  VmmHttpTimes times;
  VmmHttpPeerRules rules;
  SoupServer *server;
  GPtrArray *doors;
  GPtrArray *listeners;
  GHashTable *clients;  /* connection to Client */
  GHashTable *messages; /* message to Client, borrowed */
  Client *connecting;   /* whose request libsoup is taking */
  guint n_strangers;
  gsize held; /* bytes of bodies */
  guint port;
  gboolean closed;
  GTask *closing;
  guint grace_id;
  guint limit_id;
};

G_DEFINE_FINAL_TYPE (VmmHttp, vmm_http, G_TYPE_OBJECT)

static void
door_free (gpointer data)
{
  Door *door = data;

  g_free (door->prefix);
  g_free (door);
}

static void
client_clear_request (Client *client)
{
  client->message = NULL;
  g_clear_pointer (&client->request.caller, vmm_caller_unref);
  g_clear_object (&client->request.cancellable);
}

static void
client_free (gpointer data)
{
  Client *client = data;

  client_clear_request (client);
  g_clear_object (&client->local);
  g_clear_object (&client->remote);
  g_object_unref (client->connection);
  g_free (client);
}

static const Door *
find_door (VmmHttp *self, const char *path)
{
  const Door *best = NULL;

  for (guint i = 0; i < self->doors->len; i++)
    {
      const Door *door = g_ptr_array_index (self->doors, i);
      gsize length = strlen (door->prefix);

      if (strncmp (path, door->prefix, length) == 0 && (path[length] == '\0' || path[length] == '/')
          && (best == NULL || length > strlen (best->prefix)))
        best = door;
    }
  return best;
}

void
vmm_http_answer_text (SoupServerMessage *message, guint status, const char *text)
{
  soup_server_message_set_status (message, status, NULL);
  soup_server_message_set_response (message, "text/plain; charset=utf-8", SOUP_MEMORY_COPY, text,
                                    strlen (text));
}

static GError *
check_head (VmmHttpConnection *connection, const VmmHttpHead *head, gpointer user_data)
{
  VmmHttp *self = user_data;
  const VmmHttpPeer *peer = vmm_http_connection_get_peer (connection);
  const Door *door = find_door (self, head->path);
  g_autofree char *problem = NULL;

  /* Nobody here needs them, and libsoup would resolve them after our look at the path. */
  if (head->has_dots)
    return vmm_error_new (VMM_ERROR_INVALID_REQUEST, "http: malformed request target");
  if (door == NULL || !door->guarded)
    return NULL;
  if (!peer->permitted)
    return vmm_error_new (VMM_ERROR_FORBIDDEN, "%s", peer->problem);
  problem = vmm_http_check_origin (peer->loopback, head->host, head->origin);
  if (problem != NULL)
    return vmm_error_new (VMM_ERROR_FORBIDDEN, "%s", problem);
  return NULL;
}

static void
wrote_body_cb (SoupServerMessage *message, gpointer user_data)
{
  vmm_http_connection_set_answered (user_data);
}

static void
request_started_cb (SoupServer *server, SoupServerMessage *message, gpointer user_data)
{
  VmmHttp *self = user_data;
  Client *client = self->connecting;

  if (client == NULL)
    return;
  client->message = message;
  client->request.caller
      = vmm_caller_new ("http", vmm_http_connection_get_peer (client->connection)->subject);
  client->request.cancellable
      = g_object_ref (vmm_http_connection_get_cancellable (client->connection));
  client->request.body_too_large = vmm_http_connection_is_body_too_large (client->connection);
  g_hash_table_insert (self->messages, message, client);
  g_signal_connect_object (message, "wrote-body", G_CALLBACK (wrote_body_cb), client->connection,
                           0);
}

static void
take_request (VmmHttpConnection *connection, VmmHttpExchange *exchange, gpointer user_data)
{
  g_autoptr (VmmHttp) self = g_object_ref (VMM_HTTP (user_data));
  Client *client = g_hash_table_lookup (self->clients, connection);

  self->connecting = client;
  if (client->local == NULL || client->remote == NULL
      || !soup_server_accept_iostream (self->server, G_IO_STREAM (exchange), client->local,
                                       client->remote, NULL))
    g_io_stream_close (G_IO_STREAM (exchange), NULL, NULL);
  self->connecting = NULL;
}

static void
release_request (VmmHttpConnection *connection, gpointer user_data)
{
  VmmHttp *self = user_data;
  Client *client = g_hash_table_lookup (self->clients, connection);

  if (client == NULL || client->message == NULL)
    return;
  g_hash_table_remove (self->messages, client->message);
  client_clear_request (client);
}

static gboolean
hold_bytes (VmmHttpConnection *connection, gssize change, gpointer user_data)
{
  VmmHttp *self = user_data;

  if (change > 0 && self->held + (gsize) change > VMM_HTTP_MAX_BODIES)
    return FALSE;
  self->held += (gsize) change;
  return TRUE;
}

static const VmmHttpConnectionFuncs connection_funcs = {
  check_head,
  take_request,
  release_request,
  hold_bytes,
};

static void
handler_cb (SoupServer *server, SoupServerMessage *message, const char *soup_path,
            GHashTable *query, gpointer user_data)
{
  VmmHttp *self = user_data;
  Client *client = g_hash_table_lookup (self->messages, message);
  const VmmHttpHead *head;
  const Door *door;
  GBytes *body;

  if (client == NULL)
    {
      soup_server_message_set_status (message, SOUP_STATUS_FORBIDDEN, NULL);
      return;
    }
  head = vmm_http_connection_get_head (client->connection);
  if (!vmm_http_connection_is_keep_alive (client->connection))
    soup_message_headers_append (soup_server_message_get_response_headers (message), "Connection",
                                 "close");
  soup_message_headers_append (soup_server_message_get_response_headers (message),
                               "X-Content-Type-Options", "nosniff");
  body = vmm_http_connection_get_body (client->connection);
  if (g_bytes_get_size (body) > 0)
    soup_message_body_append_bytes (soup_server_message_get_request_body (message), body);
  door = find_door (self, head->path);
  if (door == NULL)
    vmm_http_answer_text (message, 404, "404 page not found\n");
  else
    door->door (self, message, head->path, &client->request, door->user_data);
}

static void
finish_closing (VmmHttp *self)
{
  g_autoptr (GTask) task = g_steal_pointer (&self->closing);

  g_clear_handle_id (&self->grace_id, g_source_remove);
  g_clear_handle_id (&self->limit_id, g_source_remove);
  g_task_return_boolean (task, TRUE);
}

static void
connection_closed_cb (VmmHttpConnection *connection, gpointer user_data)
{
  g_autoptr (VmmHttp) self = g_object_ref (VMM_HTTP (user_data));
  Client *client = g_hash_table_lookup (self->clients, connection);

  g_signal_handlers_disconnect_by_data (connection, self);
  if (!vmm_http_connection_get_peer (connection)->permitted)
    self->n_strangers--;
  if (client->message != NULL)
    g_hash_table_remove (self->messages, client->message);
  g_hash_table_remove (self->clients, connection);
  if (self->closing != NULL && g_hash_table_size (self->clients) == 0)
    finish_closing (self);
}

/* TRUE when there is room for one more; strangers can't take the room of others. */
static gboolean
has_room (VmmHttp *self, const VmmHttpPeer *peer)
{
  if (!peer->permitted)
    return self->n_strangers < VMM_HTTP_MAX_STRANGERS;
  return g_hash_table_size (self->clients) - self->n_strangers < VMM_HTTP_MAX_CONNECTIONS;
}

static void
accepted_cb (GSocket *socket, gpointer user_data)
{
  VmmHttp *self = user_data;
  VmmHttpPeer *peer = vmm_http_peer_identify (socket, self->rules);
  gboolean room = has_room (self, peer);
  g_autoptr (GError) full = vmm_error_new (VMM_ERROR_CONFLICT, "too many connections");
  g_autoptr (VmmHttpConnection) connection = NULL;
  Client *client;

  if (!room && !peer->permitted)
    {
      vmm_http_peer_free (peer);
      return;
    }
  g_socket_set_blocking (socket, FALSE);
  connection = vmm_http_connection_new (socket, peer, &self->times, VMM_HTTP_MAX_BODY,
                                        &connection_funcs, self);
  if (!room)
    {
      vmm_http_connection_refuse (connection, 503, full);
      vmm_http_connection_abort (connection);
      return;
    }
  client = g_new0 (Client, 1);
  client->connection = g_object_ref (connection);
  client->local = g_socket_get_local_address (socket, NULL);
  client->remote = g_socket_get_remote_address (socket, NULL);
  if (!peer->permitted)
    self->n_strangers++;
  g_hash_table_insert (self->clients, connection, client);
  g_signal_connect (connection, "closed", G_CALLBACK (connection_closed_cb), self);
  vmm_http_connection_start (connection);
}

/* Loopback addresses only, unless everybody is meant to be served. */
static gboolean
check_listener (VmmHttp *self, GInetSocketAddress *address, const char *text, GError **error)
{
  if (vmm_http_address_is_loopback (g_inet_socket_address_get_address (address))
      || vmm_options_get_boolean (self->options, "allow-anonymous"))
    return TRUE;
  g_set_error (error, G_IO_ERROR, G_IO_ERROR_INVALID_ARGUMENT,
               "--listen: %s is not a loopback address and callers from other machines are "
               "anonymous; listen on 127.0.0.1, or give --allow-anonymous",
               text);
  return FALSE;
}

static gboolean
listen_tcp (VmmHttp *self, const char *addresses, GError **error)
{
  g_auto (GStrv) parts = g_strsplit (addresses, ",", -1);

  for (guint i = 0; parts[i] != NULL; i++)
    {
      g_autoptr (GInetSocketAddress) address = vmm_http_listener_parse_address (parts[i], error);
      VmmHttpListener *listener;

      if (address == NULL)
        {
          g_prefix_error (error, "--listen: ");
          return FALSE;
        }
      if (!check_listener (self, address, parts[i], error))
        return FALSE;
      listener = vmm_http_listener_new_tcp (address, error);
      if (listener == NULL)
        return FALSE;
      g_ptr_array_add (self->listeners, listener);
      if (self->port == 0)
        self->port = vmm_http_listener_get_port (listener);
    }
  return TRUE;
}

gboolean
vmm_http_listen (VmmHttp *self, GError **error)
{
  const char *addresses = vmm_options_get_string (self->options, "listen");
  const char *path = vmm_options_get_string (self->options, "listen-unix");

  g_return_val_if_fail (self->listeners->len == 0, FALSE);

  if (addresses != NULL && *addresses != '\0' && !listen_tcp (self, addresses, error))
    {
      g_ptr_array_set_size (self->listeners, 0);
      return FALSE;
    }
  if (path != NULL && *path != '\0')
    {
      VmmHttpListener *listener = vmm_http_listener_new_unix (path, error);

      if (listener == NULL)
        {
          g_prefix_error (error, "--listen-unix: ");
          g_ptr_array_set_size (self->listeners, 0);
          return FALSE;
        }
      g_ptr_array_add (self->listeners, listener);
    }
  else if (path == NULL)
    vmm_log_info ("no Unix socket: there is no runtime directory, name one with --listen-unix",
                  NULL);
  if (self->listeners->len == 0)
    vmm_log_warning ("nobody can reach this daemon: neither --listen nor --listen-unix names a place",
                     NULL);
  for (guint i = 0; i < self->listeners->len; i++)
    {
      VmmHttpListener *listener = g_ptr_array_index (self->listeners, i);
      g_autofree char *message
          = g_strconcat ("listening on ", vmm_http_listener_get_name (listener), NULL);

      vmm_http_listener_start (listener, accepted_cb, self);
      vmm_log_info (message, NULL);
    }
  return TRUE;
}

guint
vmm_http_get_port (VmmHttp *self)
{
  return self->port;
}

gboolean
vmm_http_is_closing (VmmHttp *self)
{
  return self->closed;
}

/* Borrowed keys that stay valid while connections end under the loop. */
static GPtrArray *
list_connections (VmmHttp *self)
{
  GPtrArray *list = g_ptr_array_new_with_free_func (g_object_unref);
  GHashTableIter iter;
  gpointer connection;

  g_hash_table_iter_init (&iter, self->clients);
  while (g_hash_table_iter_next (&iter, &connection, NULL))
    g_ptr_array_add (list, g_object_ref (connection));
  return list;
}

static gboolean
grace_over_cb (gpointer user_data)
{
  g_autoptr (VmmHttp) self = g_object_ref (VMM_HTTP (user_data));
  g_autoptr (GPtrArray) connections = list_connections (self);

  self->grace_id = 0;
  for (guint i = 0; i < connections->len; i++)
    {
      VmmHttpConnection *connection = g_ptr_array_index (connections, i);
      GCancellable *cancellable = vmm_http_connection_get_cancellable (connection);

      if (cancellable != NULL)
        g_cancellable_cancel (cancellable);
    }
  return G_SOURCE_REMOVE;
}

static gboolean
limit_over_cb (gpointer user_data)
{
  g_autoptr (VmmHttp) self = g_object_ref (VMM_HTTP (user_data));
  g_autoptr (GPtrArray) connections = list_connections (self);

  self->limit_id = 0;
  vmm_log_warning ("requests did not end in time", NULL);
  for (guint i = 0; i < connections->len; i++)
    vmm_http_connection_abort (g_ptr_array_index (connections, i));
  return G_SOURCE_REMOVE;
}

void
vmm_http_close_async (VmmHttp *self, guint timeout_ms, GAsyncReadyCallback callback,
                      gpointer user_data)
{
  g_autoptr (GPtrArray) connections = list_connections (self);

  g_return_if_fail (!self->closed);

  self->closed = TRUE;
  self->closing = g_task_new (self, NULL, callback, user_data);
  g_task_set_source_tag (self->closing, vmm_http_close_async);
  for (guint i = 0; i < self->listeners->len; i++)
    vmm_http_listener_close (g_ptr_array_index (self->listeners, i));
  self->grace_id = g_timeout_add (CLOSE_GRACE_MS, grace_over_cb, self);
  self->limit_id = g_timeout_add (timeout_ms, limit_over_cb, self);
  if (connections->len == 0)
    finish_closing (self);
  for (guint i = 0; i < connections->len; i++)
    vmm_http_connection_finish (g_ptr_array_index (connections, i));
}

gboolean
vmm_http_close_finish (VmmHttp *self, GAsyncResult *result, GError **error)
{
  g_return_val_if_fail (g_task_is_valid (result, self), FALSE);

  return g_task_propagate_boolean (G_TASK (result), error);
}

void
vmm_http_add_door (VmmHttp *self, const char *prefix, gboolean guarded, VmmHttpDoor door,
                   gpointer user_data)
{
  Door *row = g_new0 (Door, 1);

  row->prefix = g_strdup (prefix);
  row->guarded = guarded;
  row->door = door;
  row->user_data = user_data;
  g_ptr_array_add (self->doors, row);
}

void
vmm_http_set_times (VmmHttp *self, const VmmHttpTimes *times)
{
  self->times = *times;
}

VmmHttp *
vmm_http_new (VmmOptions *options)
{
  VmmHttp *self = g_object_new (VMM_TYPE_HTTP, NULL);

  self->options = vmm_options_ref (options);
  if (vmm_options_get_boolean (options, "allow-local-users"))
    self->rules |= VMM_HTTP_PEER_LOCAL_USERS;
  if (vmm_options_get_boolean (options, "allow-anonymous"))
    self->rules |= VMM_HTTP_PEER_ANONYMOUS;
  return self;
}

static void
vmm_http_dispose (GObject *object)
{
  VmmHttp *self = VMM_HTTP (object);
  g_autoptr (GPtrArray) connections = list_connections (self);

  g_clear_handle_id (&self->grace_id, g_source_remove);
  g_clear_handle_id (&self->limit_id, g_source_remove);
  g_ptr_array_set_size (self->listeners, 0);
  for (guint i = 0; i < connections->len; i++)
    {
      g_signal_handlers_disconnect_by_data (g_ptr_array_index (connections, i), self);
      vmm_http_connection_abort (g_ptr_array_index (connections, i));
    }
  g_hash_table_remove_all (self->messages);
  if (self->server != NULL)
    soup_server_disconnect (self->server);
  g_hash_table_remove_all (self->clients);
  g_clear_object (&self->server);
  G_OBJECT_CLASS (vmm_http_parent_class)->dispose (object);
}

static void
vmm_http_finalize (GObject *object)
{
  VmmHttp *self = VMM_HTTP (object);

  g_clear_pointer (&self->options, vmm_options_unref);
  g_ptr_array_unref (self->doors);
  g_ptr_array_unref (self->listeners);
  g_hash_table_unref (self->clients);
  g_hash_table_unref (self->messages);
  G_OBJECT_CLASS (vmm_http_parent_class)->finalize (object);
}

static void
vmm_http_class_init (VmmHttpClass *klass)
{
  GObjectClass *object_class = G_OBJECT_CLASS (klass);

  object_class->dispose = vmm_http_dispose;
  object_class->finalize = vmm_http_finalize;
}

static void
vmm_http_init (VmmHttp *self)
{
  self->times = default_times;
  self->doors = g_ptr_array_new_with_free_func (door_free);
  self->listeners = g_ptr_array_new_with_free_func (g_object_unref);
  self->clients = g_hash_table_new_full (NULL, NULL, NULL, client_free);
  self->messages = g_hash_table_new (NULL, NULL);
  /* Paths are matched and decoded by the doors; there is nothing to say about the server. */
  self->server = soup_server_new ("raw-paths", TRUE, NULL);
  g_signal_connect_object (self->server, "request-started", G_CALLBACK (request_started_cb), self,
                           0);
  soup_server_add_handler (self->server, NULL, handler_cb, self, NULL);
}

/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* A listening socket.
 *
 * Connections are accepted here and not by libsoup: who is at the other end has to be found before
 * anything is read, and their number is limited. When descriptors run out accepting rests for a
 * while instead of spinning. */

#include "config.h"

#include "vmm-http-listener.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/stat.h>

#include <gio/gunixsocketaddress.h>
#include <glib/gstdio.h>

#include "vmm-file.h"
#include "vmm-log.h"
#include "vmm-source.h"

#define REST_MS 1000
/* Accepted in one go before others get their turn. */
#define BATCH 16
/* Waiting to be accepted; the kernel makes the others try again a second later. */
#define BACKLOG 256

struct _VmmHttpListener
{
  GObject parent_instance;

  GSocket *socket;
  char *name;
  char *path; /* of a Unix socket */
  dev_t device;
  ino_t inode;
  VmmHttpAccept accept;
  gpointer user_data;
  GSource *source;
  gboolean resting; /* as told */
  guint rest_id;
};

G_DEFINE_FINAL_TYPE (VmmHttpListener, vmm_http_listener, G_TYPE_OBJECT)

static void watch (VmmHttpListener *self);

static gboolean
rested_cb (gpointer user_data)
{
  VmmHttpListener *self = user_data;

  self->rest_id = 0;
  watch (self);
  return G_SOURCE_REMOVE;
}

static gboolean
incoming_cb (GSocket *socket, GIOCondition condition, gpointer user_data)
{
  g_autoptr (VmmHttpListener) self = g_object_ref (user_data);

  for (guint i = 0; i < BATCH && self->source != NULL; i++)
    {
      g_autoptr (GError) error = NULL;
      g_autoptr (GSocket) connection = g_socket_accept (socket, NULL, &error);

      if (connection != NULL)
        {
          self->accept (connection, self->user_data);
          continue;
        }
      if (g_error_matches (error, G_IO_ERROR, G_IO_ERROR_WOULD_BLOCK) ||
          g_error_matches (error, G_IO_ERROR, G_IO_ERROR_CONNECTION_CLOSED))
        break;
      vmm_log_warning ("accepting connections rests", "listener", self->name, "error",
                       error->message, NULL);
      vmm_source_clear (&self->source);
      self->rest_id = g_timeout_add (REST_MS, rested_cb, self);
      break;
    }
  return G_SOURCE_CONTINUE;
}

static void
watch (VmmHttpListener *self)
{
  if (self->resting || self->source != NULL)
    return;
  self->source = g_socket_create_source (self->socket, G_IO_IN, NULL);
  g_source_set_callback (self->source, G_SOURCE_FUNC (incoming_cb), self, NULL);
  g_source_attach (self->source, NULL);
}

GInetSocketAddress *
vmm_http_listener_parse_address (const char *text, GError **error)
{
  const char *colon = strrchr (text, ':');
  g_autofree char *host = NULL;
  g_autoptr (GInetAddress) address = NULL;
  guint64 port = 0;

  if (colon != NULL && g_ascii_string_to_unsigned (colon + 1, 10, 0, 65535, &port, NULL))
    {
      host = g_strndup (text, colon - text);
      if (host[0] == '\0')
        address = g_inet_address_new_any (G_SOCKET_FAMILY_IPV4);
      else if (strcmp (host, "localhost") == 0)
        address = g_inet_address_new_loopback (G_SOCKET_FAMILY_IPV4);
      else if (host[0] == '[' && g_str_has_suffix (host, "]"))
        {
          host[strlen (host) - 1] = '\0';
          address = g_inet_address_new_from_string (host + 1);
        }
      else if (strchr (host, ':') == NULL)
        address = g_inet_address_new_from_string (host);
    }
  if (address == NULL)
    {
      g_set_error (error, G_IO_ERROR, G_IO_ERROR_INVALID_ARGUMENT,
                   "\"%s\" is not an address and a port, such as 127.0.0.1:8080 or [::1]:8080",
                   text);
      return NULL;
    }
  return G_INET_SOCKET_ADDRESS (g_inet_socket_address_new (address, port));
}

static GSocket *
open_socket (GSocketAddress *address, GError **error)
{
  GSocketFamily family = g_socket_address_get_family (address);
  g_autoptr (GSocket) socket =
      g_socket_new (family, G_SOCKET_TYPE_STREAM, G_SOCKET_PROTOCOL_DEFAULT, error);

  if (socket == NULL || !g_socket_bind (socket, address, TRUE, error))
    return NULL;
  g_socket_set_blocking (socket, FALSE);
  g_socket_set_listen_backlog (socket, BACKLOG);
  return g_steal_pointer (&socket);
}

static VmmHttpListener *
listener_new (GSocket *socket, const char *name)
{
  VmmHttpListener *self = g_object_new (VMM_TYPE_HTTP_LISTENER, NULL);

  self->socket = g_object_ref (socket);
  self->name = g_strdup (name);
  return self;
}

static void
append_to_error (GError **error, const char *text)
{
  char *message = g_strconcat ((*error)->message, text, NULL);

  g_free ((*error)->message);
  (*error)->message = message;
}

VmmHttpListener *
vmm_http_listener_new_tcp (GInetSocketAddress *address, GError **error)
{
  g_autofree char *wanted = g_socket_connectable_to_string (G_SOCKET_CONNECTABLE (address));
  g_autofree char *name = NULL;
  g_autoptr (GSocket) socket = open_socket (G_SOCKET_ADDRESS (address), error);
  g_autoptr (GSocketAddress) bound = NULL;

  if (socket == NULL || !g_socket_listen (socket, error))
    {
      g_prefix_error (error, "listen on %s: ", wanted);
      if (error != NULL && g_error_matches (*error, G_IO_ERROR, G_IO_ERROR_ADDRESS_IN_USE))
        append_to_error (error, "; choose another one with --listen");
      return NULL;
    }
  /* Answers are written in few pieces; none may wait for an acknowledgement of the one before. */
  g_socket_set_option (socket, IPPROTO_TCP, TCP_NODELAY, TRUE, NULL);
  bound = g_socket_get_local_address (socket, NULL);
  if (bound != NULL)
    name = g_socket_connectable_to_string (G_SOCKET_CONNECTABLE (bound));
  return listener_new (socket, name != NULL ? name : wanted);
}

/* Removes what is in the way if nobody answers there. */
static gboolean
clear_stale (const char *path, GError **error)
{
  g_autoptr (GSocketAddress) address = g_unix_socket_address_new (path);
  g_autoptr (GSocket) probe = NULL;
  g_autoptr (GError) refused = NULL;
  struct stat st;

  if (lstat (path, &st) != 0)
    return TRUE;
  if (!S_ISSOCK (st.st_mode))
    {
      g_set_error (error, G_IO_ERROR, G_IO_ERROR_EXISTS, "%s exists and is not a socket", path);
      return FALSE;
    }
  probe = g_socket_new (G_SOCKET_FAMILY_UNIX, G_SOCKET_TYPE_STREAM, G_SOCKET_PROTOCOL_DEFAULT,
                        error);
  if (probe == NULL)
    return FALSE;
  g_socket_set_blocking (probe, FALSE);
  if (g_socket_connect (probe, address, NULL, &refused) ||
      !g_error_matches (refused, G_IO_ERROR, G_IO_ERROR_CONNECTION_REFUSED))
    {
      g_set_error (error, G_IO_ERROR, G_IO_ERROR_ADDRESS_IN_USE, "another program answers on %s",
                   path);
      return FALSE;
    }
  g_unlink (path);
  return TRUE;
}

static gboolean
check_path (const char *path, GError **error)
{
  if (strlen (path) <= VMM_SOCKET_PATH_MAX)
    return TRUE;
  g_set_error (error, G_IO_ERROR, G_IO_ERROR_FILENAME_TOO_LONG,
               "socket path \"%s\" exceeds %d bytes; use a shorter one", path,
               VMM_SOCKET_PATH_MAX);
  return FALSE;
}

static VmmHttpListener *
listen_on_path (const char *path, GError **error)
{
  g_autoptr (GSocketAddress) address = g_unix_socket_address_new (path);
  g_autoptr (GSocket) socket = NULL;
  VmmHttpListener *self;
  struct stat st;

  socket = open_socket (address, error);
  if (socket == NULL)
    {
      g_prefix_error (error, "listen on %s: ", path);
      return NULL;
    }
  /* Nobody can connect between bind and listen: the mode is right from the start. */
  if (g_chmod (path, 0600) != 0 || lstat (path, &st) != 0 || !g_socket_listen (socket, error))
    {
      if (error != NULL && *error == NULL)
        g_set_error (error, G_IO_ERROR, g_io_error_from_errno (errno), "listen on %s: %s", path,
                     g_strerror (errno));
      g_unlink (path);
      return NULL;
    }
  self = listener_new (socket, path);
  self->path = g_strdup (path);
  self->device = st.st_dev;
  self->inode = st.st_ino;
  return self;
}

VmmHttpListener *
vmm_http_listener_new_unix (const char *path, GError **error)
{
  g_autofree char *folder = g_path_get_dirname (path);

  if (!check_path (path, error) || !vmm_file_make_directory (folder, 0700, error)
      || !clear_stale (path, error))
    return NULL;
  return listen_on_path (path, error);
}

VmmHttpListener *
vmm_http_listener_new_unix_owned (const char *path, GError **error)
{
  if (!check_path (path, error))
    return NULL;
  g_remove (path);
  return listen_on_path (path, error);
}

void
vmm_http_listener_start (VmmHttpListener *self, VmmHttpAccept accept, gpointer user_data)
{
  self->accept = accept;
  self->user_data = user_data;
  watch (self);
}

void
vmm_http_listener_set_resting (VmmHttpListener *self, gboolean resting)
{
  self->resting = resting;
  if (resting)
    vmm_source_clear (&self->source);
  else if (self->accept != NULL && self->rest_id == 0 && !g_socket_is_closed (self->socket))
    watch (self);
}

void
vmm_http_listener_close (VmmHttpListener *self)
{
  struct stat st;

  vmm_source_clear (&self->source);
  g_clear_handle_id (&self->rest_id, g_source_remove);
  if (self->path != NULL && lstat (self->path, &st) == 0 && st.st_dev == self->device &&
      st.st_ino == self->inode)
    g_unlink (self->path);
  g_clear_pointer (&self->path, g_free);
  if (self->socket != NULL)
    g_socket_close (self->socket, NULL);
}

guint
vmm_http_listener_get_port (VmmHttpListener *self)
{
  g_autoptr (GSocketAddress) address = g_socket_get_local_address (self->socket, NULL);

  return G_IS_INET_SOCKET_ADDRESS (address)
             ? g_inet_socket_address_get_port (G_INET_SOCKET_ADDRESS (address))
             : 0;
}

const char *
vmm_http_listener_get_name (VmmHttpListener *self)
{
  return self->name;
}

static void
vmm_http_listener_dispose (GObject *object)
{
  vmm_http_listener_close (VMM_HTTP_LISTENER (object));
  G_OBJECT_CLASS (vmm_http_listener_parent_class)->dispose (object);
}

static void
vmm_http_listener_finalize (GObject *object)
{
  VmmHttpListener *self = VMM_HTTP_LISTENER (object);

  g_clear_object (&self->socket);
  g_free (self->name);
  G_OBJECT_CLASS (vmm_http_listener_parent_class)->finalize (object);
}

static void
vmm_http_listener_class_init (VmmHttpListenerClass *klass)
{
  GObjectClass *object_class = G_OBJECT_CLASS (klass);

  object_class->dispose = vmm_http_listener_dispose;
  object_class->finalize = vmm_http_listener_finalize;
}

static void
vmm_http_listener_init (VmmHttpListener *self)
{
}

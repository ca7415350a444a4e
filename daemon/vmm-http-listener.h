/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <gio/gio.h>

G_BEGIN_DECLS

/* One listening socket, TCP or Unix. */
#define VMM_TYPE_HTTP_LISTENER (vmm_http_listener_get_type ())
G_DECLARE_FINAL_TYPE (VmmHttpListener, vmm_http_listener, VMM, HTTP_LISTENER, GObject)

typedef void (*VmmHttpAccept) (GSocket *connection, gpointer user_data);

/* "127.0.0.1:8080", "[::1]:8080", "localhost:8080", ":8080"; NULL with an error that says what is
 * expected. */
GInetSocketAddress *vmm_http_listener_parse_address (const char *text, GError **error);
VmmHttpListener *vmm_http_listener_new_tcp (GInetSocketAddress *address, GError **error);
/* The socket file is 0600; a stale one is replaced, one that answers is a conflict. Its folder is
 * made when it is missing. */
VmmHttpListener *vmm_http_listener_new_unix (const char *path, GError **error);
/* The same where nobody else may listen, in a folder that is there: what is in the way goes. */
VmmHttpListener *vmm_http_listener_new_unix_owned (const char *path, GError **error);
void vmm_http_listener_start (VmmHttpListener *self, VmmHttpAccept accept, gpointer user_data);
/* While it rests nothing is accepted: who connects waits in the kernel. Also from within accept. */
void vmm_http_listener_set_resting (VmmHttpListener *self, gboolean resting);
/* Closes it and removes the socket file if it is still ours. */
void vmm_http_listener_close (VmmHttpListener *self);
guint vmm_http_listener_get_port (VmmHttpListener *self);
/* For the log: "127.0.0.1:8080" or the path. */
const char *vmm_http_listener_get_name (VmmHttpListener *self);

G_END_DECLS

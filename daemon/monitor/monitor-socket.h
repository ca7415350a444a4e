/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <glib.h>

/* Sockets that never block. */

#define MONITOR_SOCKET_PATH_MAX 107

/* Listens at a path, in place of what may be left of an earlier socket there. -1 with an error. */
int monitor_socket_listen (const char *path, GError **error);
/* For guests' connections to the host. */
int monitor_socket_listen_vsock (guint32 port, GError **error);
/* -1 with errno set. @cid: of the guest behind a vsock connection, else 0. */
int monitor_socket_accept (int listener, guint32 *cid);
/* -1 with errno set; nobody listens: ECONNREFUSED or ENOENT. */
int monitor_socket_dial (const char *path);
/* Whether the other end of a Unix socket is our user, or root. */
gboolean monitor_socket_is_ours (int fd);

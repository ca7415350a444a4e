/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <glib.h>

G_BEGIN_DECLS

/* Watches a socket that is silent most of the time. All of them together are one source of the
 * default main context, so a thousand idle ones cost an iteration nothing.
 *
 * ready is called at the default priority while the socket has something to read, has ended, or
 * has an error. It may free any watch, also its own. */
typedef struct _VmmSocketWatch VmmSocketWatch;
typedef void (*VmmSocketReady) (gpointer user_data);

/* The descriptor stays the caller's, who frees the watch before closing it. */
VmmSocketWatch *vmm_socket_watch_new (int fd, VmmSocketReady ready, gpointer user_data);
/* Calls ready also while the socket takes data. */
void vmm_socket_watch_set_writable (VmmSocketWatch *self, gboolean writable);
void vmm_socket_watch_free (VmmSocketWatch *self);

G_END_DECLS

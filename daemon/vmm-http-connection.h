/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <gio/gio.h>

#include "vmm-http-exchange.h"
#include "vmm-http-head.h"
#include "vmm-http-peer.h"

G_BEGIN_DECLS

#define VMM_HTTP_SMALL_BODY (64 * 1024)

/* Time limits of a connection, in milliseconds. */
typedef struct
{
  guint head_ms;   /* from the first byte (or the accept) to the end of the head */
  guint body_ms;   /* from there to the end of the body */
  guint idle_ms;   /* between two requests */
  guint stall_ms;  /* a client that does not read its answer */
  guint linger_ms; /* for the client to take the last answer before the connection closes */
} VmmHttpTimes;

/* One accepted connection: reads requests within limits, refuses what is malformed or not allowed,
 * and hands complete ones over, one after the other.
 *
 * ::closed () once, at the end. */
#define VMM_TYPE_HTTP_CONNECTION (vmm_http_connection_get_type ())
G_DECLARE_FINAL_TYPE (VmmHttpConnection, vmm_http_connection, VMM, HTTP_CONNECTION, GObject)

typedef struct
{
  /* A head was read: NULL to go on, else why it is refused (VMM_ERROR, transfer full). */
  GError *(*check_head) (VmmHttpConnection *connection, const VmmHttpHead *head,
                         gpointer user_data);
  /* A request is complete: the exchange is to be closed when it was answered. */
  void (*take_request) (VmmHttpConnection *connection, VmmHttpExchange *exchange,
                        gpointer user_data);
  /* That exchange was closed. */
  void (*release_request) (VmmHttpConnection *connection, gpointer user_data);
  /* Its body takes so many bytes more, or less when that is negative; FALSE when there is no room
   * for more. Bodies of up to VMM_HTTP_SMALL_BODY bytes are not counted. */
  gboolean (*hold_bytes) (VmmHttpConnection *connection, gssize change, gpointer user_data);
} VmmHttpConnectionFuncs;

/* Takes the peer. The functions must stay valid as long as the connection. */
VmmHttpConnection *vmm_http_connection_new (GSocket *socket, VmmHttpPeer *peer,
                                            const VmmHttpTimes *times, gsize max_body,
                                            const VmmHttpConnectionFuncs *funcs,
                                            gpointer user_data);
void vmm_http_connection_start (VmmHttpConnection *self);
/* Of the request whose head is being checked, and of those after it. */
void vmm_http_connection_set_max_body (VmmHttpConnection *self, gsize max_body);
/* Ends it: at once when it is between requests, else after the answer. */
void vmm_http_connection_finish (VmmHttpConnection *self);
/* Ends it now. */
void vmm_http_connection_abort (VmmHttpConnection *self);
/* Answers with an error and closes. */
void vmm_http_connection_refuse (VmmHttpConnection *self, guint status, const GError *error);

const VmmHttpPeer *vmm_http_connection_get_peer (VmmHttpConnection *self);
/* Of the request that was taken last: */
const VmmHttpHead *vmm_http_connection_get_head (VmmHttpConnection *self);
GBytes *vmm_http_connection_get_body (VmmHttpConnection *self);
gboolean vmm_http_connection_is_body_too_large (VmmHttpConnection *self);
gboolean vmm_http_connection_is_keep_alive (VmmHttpConnection *self);
/* Triggered when the client goes away. */
GCancellable *vmm_http_connection_get_cancellable (VmmHttpConnection *self);
/* The answer is complete: the connection may be used again. */
void vmm_http_connection_set_answered (VmmHttpConnection *self);

G_END_DECLS

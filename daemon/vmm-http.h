/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <libsoup/soup.h>

#include "vmm-caller.h"
#include "vmm-http-connection.h"
#include "vmm-options.h"

G_BEGIN_DECLS

/* The listeners: TCP and a Unix socket, limits, who the peer is, Host and Origin. Paths are handed
 * to the doors below it.
 *
 * A request that reaches a door has passed all checks, its body (at most VMM_HTTP_MAX_BODY bytes) is
 * complete, or body_too_large is set. */
#define VMM_HTTP_MAX_BODY (8 * 1024 * 1024)
/* Connections at a time: of callers who are served, and of others (who may only ask the probes). */
/* Of all requests together that are being read or answered. */
#define VMM_HTTP_MAX_BODIES (256 * 1024 * 1024)
#define VMM_HTTP_MAX_CONNECTIONS 512
#define VMM_HTTP_MAX_STRANGERS 32

#define VMM_TYPE_HTTP (vmm_http_get_type ())
G_DECLARE_FINAL_TYPE (VmmHttp, vmm_http, VMM, HTTP, GObject)

/* Valid until the message was answered: a door that answers later keeps references. */
typedef struct
{
  VmmCaller *caller;
  gboolean body_too_large;
  GCancellable *cancellable; /* triggered when the client goes away */
} VmmHttpRequest;

/* A door answers later by pausing the message itself and unpausing it once. */
typedef void (*VmmHttpDoor) (VmmHttp *http, SoupServerMessage *message, const char *path,
                             VmmHttpRequest *request, gpointer user_data);

VmmHttp *vmm_http_new (VmmOptions *options);
/* Other time limits than the usual ones, for tests. Before vmm_http_listen(). */
void vmm_http_set_times (VmmHttp *self, const VmmHttpTimes *times);
/* prefix as in soup_server_add_handler(); guarded paths need a caller who may (not the probes).
 * Paths are handed on as they came, still percent-encoded. */
void vmm_http_add_door (VmmHttp *self, const char *prefix, gboolean guarded, VmmHttpDoor door,
                        gpointer user_data);
gboolean vmm_http_listen (VmmHttp *self, GError **error);
/* The TCP port in use, 0 without one. */
guint vmm_http_get_port (VmmHttp *self);
/* Whether vmm_http_close_async() was called: waits are then cancelled for this reason. */
gboolean vmm_http_is_closing (VmmHttp *self);
/* Stops accepting; answers when the running requests are done or the time is up. */
void vmm_http_close_async (VmmHttp *self, guint timeout_ms, GAsyncReadyCallback callback,
                           gpointer user_data);
gboolean vmm_http_close_finish (VmmHttp *self, GAsyncResult *result, GError **error);

/* Answers a message with a plain text; for HEAD only its length. */
void vmm_http_answer_text (SoupServerMessage *message, guint status, const char *text);

G_END_DECLS

/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <gio/gio.h>

G_BEGIN_DECLS

/* One request and its answer, as the stream that libsoup works on: what is read is the complete
 * request, what is written goes to the socket, closing it ends the exchange and not the connection.
 *
 * ::closed () once. */
#define VMM_TYPE_HTTP_EXCHANGE (vmm_http_exchange_get_type ())
G_DECLARE_FINAL_TYPE (VmmHttpExchange, vmm_http_exchange, VMM, HTTP_EXCHANGE, GIOStream)

/* stall_limit_s: how long a client may leave the answer unread before it is given up. */
VmmHttpExchange *vmm_http_exchange_new (GBytes *request, GSocket *socket, guint stall_limit_s);
/* Whether anything could not be written. */
gboolean vmm_http_exchange_is_broken (VmmHttpExchange *self);

G_END_DECLS

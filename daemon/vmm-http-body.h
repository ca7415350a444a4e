/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <glib.h>

G_BEGIN_DECLS

/* Collects the body of one request, whatever its framing, up to a limit. Pure. */
typedef struct _VmmHttpBody VmmHttpBody;

typedef enum
{
  VMM_HTTP_BODY_MORE,
  VMM_HTTP_BODY_DONE,
  VMM_HTTP_BODY_TOO_LARGE, /* nothing more is kept; the rest of the connection can't be used */
  VMM_HTTP_BODY_MALFORMED,
} VmmHttpBodyState;

/* length: of a body with Content-Length, -1 for a chunked one. */
VmmHttpBody *vmm_http_body_new (gint64 length, gsize limit);
void vmm_http_body_free (VmmHttpBody *self);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (VmmHttpBody, vmm_http_body_free)

/* Takes what belongs to the body from the start of data; used says how much that was. */
VmmHttpBodyState vmm_http_body_feed (VmmHttpBody *self, const char *data, gsize length,
                                     gsize *used);
/* What was collected; afterwards the body is empty. */
GBytes *vmm_http_body_take (VmmHttpBody *self);

G_END_DECLS

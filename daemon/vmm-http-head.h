/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <glib.h>

G_BEGIN_DECLS

/* The head of one HTTP/1 request, read strictly: what two readers could understand differently is
 * refused, so that no request hides inside another. Pure. */
#define VMM_HTTP_MAX_HEAD (32 * 1024)
#define VMM_HTTP_MAX_FIELDS 100

typedef struct
{
  char *method;
  char *target;          /* origin form: begins with a slash */
  char *path;            /* the target without its query */
  char *host;            /* NULL without one (HTTP/1.0) */
  char *origin;          /* NULL without one */
  char *range;           /* NULL without one; not passed on, like if_range */
  gboolean if_range;
  gboolean has_dots;     /* a segment of the path is "." or "..": nobody may be served by it */
  gint64 content_length; /* -1 without one */
  gboolean chunked;
  gboolean expect_continue;
  gboolean keep_alive;
  GString *fields;       /* all other header lines that are passed on */
} VmmHttpHead;

/* The length of the head at the start of data with its blank line, 0 when more is needed, -1 with an
 * error when it can't become one. scanned remembers between calls how far data was looked at. */
gssize vmm_http_head_find_end (const char *data, gsize length, gsize *scanned, GError **error);
VmmHttpHead *vmm_http_head_parse (const char *data, gsize length, GError **error);
void vmm_http_head_free (VmmHttpHead *self);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (VmmHttpHead, vmm_http_head_free)
/* The same request without its body, written in one way only. */
GBytes *vmm_http_head_to_bytes (const VmmHttpHead *self);

G_END_DECLS

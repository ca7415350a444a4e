/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <glib.h>

G_BEGIN_DECLS

/* A strong entity tag of a body, with its quotes. Good for the life of this process. */
char *vmm_etag_new (GBytes *body);
/* Whether a value of If-None-Match names it. */
gboolean vmm_etag_matches (const char *if_none_match, const char *etag);

G_END_DECLS

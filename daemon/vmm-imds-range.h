/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <glib.h>

G_BEGIN_DECLS

/* The Range header of a request (RFC 9110 14.2): one range of bytes. Pure. */
typedef enum
{
  VMM_IMDS_RANGE_ALL,  /* none, or one that may be passed over: several, other units, malformed */
  VMM_IMDS_RANGE_PART,
  VMM_IMDS_RANGE_NONE, /* nothing of it is in the file */
} VmmImdsRange;

VmmImdsRange vmm_imds_range_parse (const char *text, guint64 size, guint64 *first,
                                   guint64 *length);

G_END_DECLS

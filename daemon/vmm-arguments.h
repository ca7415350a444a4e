/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "vmm-operations.h"

G_BEGIN_DECLS

typedef enum
{
  VMM_ARGUMENTS_STRICT = 0,
  /* Members that the schema does not have are left out instead of refused. */
  VMM_ARGUMENTS_IGNORE_UNKNOWN = 1 << 0,
  /* Numbers and truth values may come as texts, as in a query. */
  VMM_ARGUMENTS_TEXTUAL = 1 << 1,
} VmmArgumentsFlags;

/* Judges arguments by a row's schema and returns new ones: null members left out, defaults filled
 * in, whole numbers as integers. What the schema marks with "x-judged-by": "service" is only judged
 * by its type here, because the service has its own words for it.
 *
 * Errors are VMM_ERROR_INVALID_REQUEST whose text names the member and what it wants; the caller
 * puts before it where the arguments came from. */
JsonObject *vmm_arguments_check (const VmmOperation *operation, JsonObject *arguments,
                                 VmmArgumentsFlags flags, GError **error);

G_END_DECLS

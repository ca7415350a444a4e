/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "vmm-operations.h"

G_BEGIN_DECLS

/* Whether a caller may do an operation with these arguments. VMM_ERROR_UNAUTHORIZED for a caller
 * who is nobody, VMM_ERROR_FORBIDDEN for one who may not. */
gboolean vmm_authority_check (const VmmOperation *operation, VmmCaller *caller,
                              JsonObject *arguments, GError **error);

G_END_DECLS

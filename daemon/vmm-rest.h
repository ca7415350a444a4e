/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "vmm-http.h"
#include "vmm-service.h"

G_BEGIN_DECLS

/* /api/v1: route to row, body or query to arguments, result or error to the envelope. Keeps the
 * service as long as the HTTP side lives. */
void vmm_rest_mount (VmmHttp *http, VmmService *service);

G_END_DECLS

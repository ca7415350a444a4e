/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "vmm-http.h"
#include "vmm-service.h"

G_BEGIN_DECLS

/* /healthz and /readyz for everybody; /metrics as the options say. The service must outlive them. */
void vmm_probes_mount (VmmHttp *http, VmmService *service, VmmOptions *options);

G_END_DECLS

/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "vmm-service.h"

G_BEGIN_DECLS

/* Says in the log, when it is known, which firmware VMs boot with, and which images were recorded
 * with another one. */
void vmm_serve_report_firmware (VmmService *service);

G_END_DECLS

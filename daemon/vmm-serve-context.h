/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "vmm-service.h"

G_BEGIN_DECLS

/* From options to a service that has not been loaded yet: plugins, host, images, networks. Says in
 * the log what was chosen and what is missing. NULL with an error that names the flag. */
VmmService *vmm_serve_build_service (VmmOptions *options, GError **error);
/* How much longer a timeout is for emulated guests: not at all, if somebody set it. */
guint vmm_serve_get_factor (VmmOptions *options, const char *name);

G_END_DECLS

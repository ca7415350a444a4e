/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "vmm-qemu-args.h"

G_BEGIN_DECLS

/* Whether a command line can be made of this, before anything is started: each failure is
 * VMM_ERROR_INVALID_REQUEST and names what is wrong. */
gboolean vmm_qemu_config_check (const VmmQemuConfig *config, GError **error);

G_END_DECLS

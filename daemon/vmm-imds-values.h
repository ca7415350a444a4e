/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "vmm-imds-keys.h"
#include "vmm-machine-record.h"

G_BEGIN_DECLS

/* What a VM's record says for one of the keys that are plain values; chosen as the key has it. NULL
 * when the VM has no such value. Pure. */
char *vmm_imds_value_dup (const VmmMachineRecord *record, VmmImdsKey key, GStrv chosen);

G_END_DECLS

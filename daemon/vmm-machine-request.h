/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <json-glib/json-glib.h>

#include "vmm-machine-context.h"
#include "vmm-machine-record.h"
#include "vmm-waiter.h"

G_BEGIN_DECLS

/* The VM that a caller of create_vm asks for: checked, defaults filled in, image, Kubernetes
 * version and network resolved. What is drawn (id, CID, ...) is not in it yet. */
typedef struct
{
  VmmMachineRecord *record;
  GBytes *user_data; /* the guest's; NULL for none */
  VmmMilestone wait_for;
} VmmMachineRequest;

VmmMachineRequest *vmm_machine_request_parse (JsonObject *arguments, VmmMachineContext *context,
                                              GError **error);
void vmm_machine_request_free (VmmMachineRequest *self);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (VmmMachineRequest, vmm_machine_request_free)

G_END_DECLS

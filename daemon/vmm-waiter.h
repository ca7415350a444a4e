/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "vmm-machine.h"

G_BEGIN_DECLS

typedef enum
{
  VMM_MILESTONE_NONE,
  VMM_MILESTONE_INSTALLED,
  VMM_MILESTONE_ATTESTED,
  VMM_MILESTONE_READY,
} VmmMilestone;

gboolean vmm_milestone_from_nick (const char *nick, VmmMilestone *milestone);

/* Waits for a milestone of a machine: VMM_ERROR_VM_FAILED, VMM_ERROR_TIMEOUT or
 * G_IO_ERROR_CANCELLED otherwise. Follows ::changed; nothing polls. */
void vmm_waiter_wait_async (VmmMachine *machine, VmmMilestone milestone,
                            GCancellable *cancellable, GAsyncReadyCallback callback,
                            gpointer user_data);
gboolean vmm_waiter_wait_finish (VmmMachine *machine, GAsyncResult *result, GError **error);

G_END_DECLS

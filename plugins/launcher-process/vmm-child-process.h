/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "interfaces/vmm-process.h"

G_BEGIN_DECLS

/* A child of the daemon, known by its pidfd. */
#define VMM_TYPE_CHILD_PROCESS (vmm_child_process_get_type ())
G_DECLARE_FINAL_TYPE (VmmChildProcess, vmm_child_process, VMM, CHILD_PROCESS, VmmProcess)

/* Takes the pidfd. */
VmmChildProcess *vmm_child_process_new (pid_t pid, int pidfd);
/* Waits for the end from now on, which keeps the object alive until then. */
void vmm_child_process_watch (VmmChildProcess *self);

G_END_DECLS

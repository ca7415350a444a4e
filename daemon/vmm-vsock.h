/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "interfaces/vmm.h"

G_BEGIN_DECLS

/* A VM's vsock device where the kernel has none: a vhost-user program, one for each run of QEMU. */

/* In a VM's folder: the socket that QEMU connects to, and the one that stands for the host's end: a
 * guest's connection to port N of CID 2 arrives at "<host socket>_N". */
#define VMM_VSOCK_DEVICE_SOCKET "vhost.sock"
#define VMM_VSOCK_HOST_SOCKET "vsock.sock"

/* Starts it through the launcher; it is there when QEMU can connect (5 s). */
void vmm_vsock_start_async (VmmLauncher *launcher, const char *vm_id, const char *directory,
                            guint32 cid, GCancellable *cancellable, GAsyncReadyCallback callback,
                            gpointer user_data);
VmmProcess *vmm_vsock_start_finish (GAsyncResult *result, GError **error);

G_END_DECLS

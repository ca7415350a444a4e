/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "vmm-child-socket.h"

G_BEGIN_DECLS

/* Starts a program that serves a Unix socket, and waits until it has answered there. */

/* What is to be done in the folder before the start; called in a worker thread. */
typedef gboolean (*VmmChildPrepare) (const char *directory, GError **error);

typedef struct
{
  VmmProcessSpec *spec;
  const char *program;     /* put before errors; static */
  const char *socket_name; /* of what the socket is, for an error; static */
  const char *directory;
  VmmChildPrepare prepare; /* NULL for nothing */
  VmmChildSocket socket;   /* without its process; the texts are static */
} VmmChildStart;

/* A socket that an earlier run left is removed first. On failure the process is stopped before
 * this answers. */
void vmm_child_start_async (VmmLauncher *launcher, const VmmChildStart *config,
                            GCancellable *cancellable, GAsyncReadyCallback callback,
                            gpointer user_data);
VmmProcess *vmm_child_start_finish (GAsyncResult *result, GError **error);
/* "<vm id>-tpm" and friends: the id a launcher knows a VM's process by. */
char *vmm_process_id_for_vm (const char *vm_id, const char *role);

G_END_DECLS

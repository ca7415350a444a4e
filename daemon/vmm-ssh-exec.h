/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <gio/gio.h>

#include "vmm-ssh-session.h"

G_BEGIN_DECLS

/* The words as one command for a shell, each in single quotes. */
char *vmm_ssh_quote (const char *const *words);

/* Runs a command in the guest at the other end of a connection over a socket; takes the job, whose
 * fd and stage it sets. The answer comes when the connection is gone, also to a caller who cancels:
 * that takes no longer than the wake-up of a thread. */
void vmm_ssh_exec_async (GIOStream *stream, VmmSshJob *job, GCancellable *cancellable,
                         GAsyncReadyCallback callback, gpointer user_data);
VmmSshResult *vmm_ssh_exec_finish (GAsyncResult *result, GError **error);

G_END_DECLS

/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "vmm-machine.h"

G_BEGIN_DECLS

/* Ways to a guest from the host: what it wrote to its console, and a command in it. */

/* The last lines of a machine's console.log, of which the last 64 KiB are considered. Trailing
 * newlines are stripped; bytes that are no UTF-8 (NUL too) become U+FFFD. */
void vmm_guest_read_console_async (VmmMachine *machine, guint lines, GCancellable *cancellable,
                                   GAsyncReadyCallback callback, gpointer user_data);
char *vmm_guest_read_console_finish (VmmMachine *machine, GAsyncResult *result, GError **error);

/* Runs a command as root in the guest; the ExecResult of the API. */
void vmm_guest_exec_async (VmmMachine *machine, const char *const *command,
                           GCancellable *cancellable, GAsyncReadyCallback callback,
                           gpointer user_data);
JsonNode *vmm_guest_exec_finish (VmmMachine *machine, GAsyncResult *result, GError **error);

G_END_DECLS

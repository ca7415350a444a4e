/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "vmm-machine.h"

G_BEGIN_DECLS

/* What a guest wrote to its console. */

/* The last lines of a machine's console.log, of which the last 64 KiB are considered. Trailing
 * newlines are stripped; bytes that are no UTF-8 (NUL too) become U+FFFD. */
void vmm_guest_read_console_async (VmmMachine *machine, guint lines, GCancellable *cancellable,
                                   GAsyncReadyCallback callback, gpointer user_data);
char *vmm_guest_read_console_finish (VmmMachine *machine, GAsyncResult *result, GError **error);

G_END_DECLS

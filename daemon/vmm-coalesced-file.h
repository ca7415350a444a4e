/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <gio/gio.h>

G_BEGIN_DECLS

/* A file that is rewritten as a whole whenever what it shows has changed. One write is in flight at
 * most; everybody who asks meanwhile shares the next one. */
#define VMM_TYPE_COALESCED_FILE (vmm_coalesced_file_get_type ())
G_DECLARE_FINAL_TYPE (VmmCoalescedFile, vmm_coalesced_file, VMM, COALESCED_FILE, GObject)

/* The content as it is to be now. */
typedef GBytes *(*VmmCoalescedContent) (gpointer user_data);

/* Borrows user_data: the owner drops this object first, or waits for its writes. */
VmmCoalescedFile *vmm_coalesced_file_new (const char *path, guint mode, VmmCoalescedContent content,
                                          gpointer user_data);
/* Answers when a content taken now or later is on disk. */
void vmm_coalesced_file_save_async (VmmCoalescedFile *self, GAsyncReadyCallback callback,
                                    gpointer user_data);
gboolean vmm_coalesced_file_save_finish (VmmCoalescedFile *self, GAsyncResult *result,
                                         GError **error);
/* Whether no write is in flight. */
gboolean vmm_coalesced_file_is_idle (VmmCoalescedFile *self);

G_END_DECLS

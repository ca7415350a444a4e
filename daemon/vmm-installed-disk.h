/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "interfaces/vmm.h"

G_BEGIN_DECLS

/* Whether an installer has written a volume: it has partitions, and one of them is an EFI system
 * partition with a file system. Fails with a sentence that says what is not there. */
void vmm_installed_disk_check_async (VmmVolume *volume, GAsyncReadyCallback callback,
                                     gpointer user_data);
gboolean vmm_installed_disk_check_finish (GAsyncResult *result, GError **error);

G_END_DECLS

/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <sys/types.h>

#include "interfaces/vmm-storage-backend.h"

G_BEGIN_DECLS

/* Everything here blocks and touches no object: for worker threads. */

/* Where volumes are, and to whom they belong when the daemon is root. */
typedef struct
{
  char *path;
  gboolean has_owner;
  uid_t uid;
  gid_t gid;
} VmmVolumeFolder;

int vmm_volume_folder_open (const VmmVolumeFolder *folder);
/* The same, creating it. */
int vmm_volume_folder_make (const VmmVolumeFolder *folder, GError **error);
/* Lets the account that QEMU runs as pass through, unless an administrator gave the folder to
 * somebody else. */
gboolean vmm_volume_folder_share (const VmmVolumeFolder *folder, int folder_fd);
gboolean vmm_volume_folder_remove (const VmmVolumeFolder *folder, const char *name, GError **error);
GPtrArray *vmm_volume_folder_list (const VmmVolumeFolder *folder, const char *glob,
                                   GCancellable *cancellable, GError **error);

char *vmm_volume_entry_name (const char *name);
gboolean vmm_volume_is_volume_type (mode_t mode);
/* Closes without changing errno; -1 is fine. */
void vmm_volume_close_fd (int fd);
/* Says what errno means for a volume while doing what. */
void vmm_volume_set_errno_error (GError **error, const char *name, const char *what);

G_END_DECLS

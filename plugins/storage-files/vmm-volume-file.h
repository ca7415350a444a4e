/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "vmm-volume-folder.h"

G_BEGIN_DECLS

typedef struct
{
  int fd;
  guint64 size_bytes;
  gboolean is_block_device;
  gboolean read_only;
} VmmVolumeFile;

/* Both block and touch no object: for worker threads. */
gboolean vmm_volume_file_acquire (const VmmVolumeFolder *folder, const VmmVolumeRequest *request,
                                  GCancellable *cancellable, VmmVolumeFile *file, GError **error);
/* Makes the open file larger; room for the addition is set aside if all of it was before. */
gboolean vmm_volume_file_grow (const VmmVolumeFolder *folder, const char *name, int fd,
                               guint64 size_bytes, GCancellable *cancellable, GError **error);

G_END_DECLS

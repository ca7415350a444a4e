/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <glib.h>

G_BEGIN_DECLS

/* What a file system has, in bytes. */
typedef struct
{
  guint64 total;
  guint64 available; /* to us, without what is kept for root */
} VmmVolumeRoom;

/* A sparse volume needs only a part of its size at once, but at least this much. */
#define VMM_VOLUME_SPARSE_FLOOR (G_GUINT64_CONSTANT (1) << 30)

gboolean vmm_volume_room_read (int folder_fd, VmmVolumeRoom *room);
/* Whether an addition to a volume, which makes it size_bytes large, has room; pure. */
gboolean vmm_volume_room_check (const VmmVolumeRoom *room, const char *name, guint64 size_bytes,
                                guint64 addition, gboolean allocated, GError **error);

G_END_DECLS

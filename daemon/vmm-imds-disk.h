/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <gio/gio.h>

G_BEGIN_DECLS

/* Reads files for guests, in a few threads of its own: guests that all read at once wait for each
 * other, and nothing else of the daemon waits for them. */
typedef struct _VmmImdsDisk VmmImdsDisk;

/* artifacts: the folder that holds those of all images; it may come and go, and be a link. */
VmmImdsDisk *vmm_imds_disk_new (const char *artifacts);
VmmImdsDisk *vmm_imds_disk_ref (VmmImdsDisk *self);
void vmm_imds_disk_unref (VmmImdsDisk *self);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (VmmImdsDisk, vmm_imds_disk_unref)

/* An open regular file and its size. */
typedef struct _VmmImdsFile VmmImdsFile;
guint64 vmm_imds_file_get_size (VmmImdsFile *self);
VmmImdsFile *vmm_imds_file_ref (VmmImdsFile *self);
void vmm_imds_file_unref (VmmImdsFile *self);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (VmmImdsFile, vmm_imds_file_unref)

/* A file in a folder of the artifacts; both are names, and nothing outside is reached. NULL with
 * G_IO_ERROR_NOT_FOUND when there is none that may be served. */
void vmm_imds_disk_open_artifact_async (VmmImdsDisk *self, const char *folder, const char *name,
                                        GAsyncReadyCallback callback, gpointer user_data);
/* A file of the daemon's own in a folder where others may make files, too. */
void vmm_imds_disk_open_own_async (VmmImdsDisk *self, const char *path,
                                   GAsyncReadyCallback callback, gpointer user_data);
VmmImdsFile *vmm_imds_disk_open_finish (GAsyncResult *result, GError **error);
/* Just so many bytes; a file that became shorter is an error. */
void vmm_imds_disk_read_async (VmmImdsDisk *self, VmmImdsFile *file, guint64 offset, gsize length,
                               GAsyncReadyCallback callback, gpointer user_data);
GBytes *vmm_imds_disk_read_finish (GAsyncResult *result, GError **error);

G_END_DECLS

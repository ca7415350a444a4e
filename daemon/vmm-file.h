/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <gio/gio.h>

G_BEGIN_DECLS

/* Replaces a file atomically in a worker thread: a temporary file ".<name>.<random>" in the same
 * folder with its mode from the start, fsync, rename, fsync of the folder. */
void vmm_file_replace_async (const char *path, GBytes *content, guint mode,
                             GCancellable *cancellable, GAsyncReadyCallback callback,
                             gpointer user_data);
gboolean vmm_file_replace_finish (GAsyncResult *result, GError **error);
/* The same at once, for the time before the main loop runs and for tests. */
gboolean vmm_file_replace (const char *path, const char *content, gsize length, guint mode,
                           GError **error);
/* Reads a small regular file, refusing one of more than limit bytes, links and devices. */
GBytes *vmm_file_read (const char *path, gsize limit, GError **error);
/* Copies a file to a new one of the mode given, sparse and by reflink where the file system can. */
void vmm_file_copy_async (const char *from, const char *to, guint mode, GCancellable *cancellable,
                          GAsyncReadyCallback callback, gpointer user_data);
gboolean vmm_file_copy_finish (GAsyncResult *result, GError **error);
/* Removes a folder with all it holds, never following links; absent is success. The file last, if
 * it is named, goes only when nothing else is left, so that it can say whose remains there are. */
void vmm_file_remove_tree_async (const char *path, const char *last, GCancellable *cancellable,
                                 GAsyncReadyCallback callback, gpointer user_data);
gboolean vmm_file_remove_tree_finish (GAsyncResult *result, GError **error);
/* The last bytes of a file, at most limit; NULL without error when there is no such file. */
void vmm_file_read_tail_async (const char *path, gsize limit, GCancellable *cancellable,
                               GAsyncReadyCallback callback, gpointer user_data);
GBytes *vmm_file_read_tail_finish (GAsyncResult *result, gboolean *cut, GError **error);
/* Removes the temporary files in a folder, before anybody writes there: a killed daemon left them. */
void vmm_file_remove_temporaries (const char *path);
gboolean vmm_file_make_directory (const char *path, guint mode, GError **error);

/* Unix socket paths are limited to 107 bytes. */
#define VMM_SOCKET_PATH_MAX 107

G_END_DECLS

/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "vmm-file.h"

G_BEGIN_DECLS

/* What vmm-file.c and vmm-file-tree.c share. */

/* "<verb> <path>: <errno text>" as a G_IO_ERROR; always FALSE. */
gboolean vmm_file_fail (GError **error, const char *verb, const char *path, int number);
/* The folder of a path, open, and the name in it; -1 on failure. */
int vmm_file_open_folder (const char *path, char **name, GError **error);
int vmm_file_open_temporary (int folder, const char *name, guint mode, char **temporary);
gboolean vmm_file_write_all (int fd, const char *data, gsize length);

G_END_DECLS

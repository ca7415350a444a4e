/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <glib.h>

G_BEGIN_DECLS

#define DISK_KIT_SIZE (1024 * 1024)
#define DISK_KIT_ESP 0x8000 /* where its file system begins */

/* The beginning of a disk as an installer leaves it: a partition table and an EFI system partition. */
guint8 *disk_kit_new (void);
/* Writes it to the beginning of a file. */
void disk_kit_install (const char *path);

G_END_DECLS

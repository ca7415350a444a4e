/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <glib.h>

G_BEGIN_DECLS

/* Waits for a file, such as the socket of a program that was just started.
 *
 * arrived is called from the main loop each time that the path is made or moved to. It may free any
 * watch, also its own. */
typedef struct _VmmArrivalWatch VmmArrivalWatch;
typedef void (*VmmArrived) (gpointer user_data);

/* NULL when the folder is not there, or the kernel watches no more of them. What arrived before is
 * not told of. */
VmmArrivalWatch *vmm_arrival_watch_new (const char *path, VmmArrived arrived, gpointer user_data);
void vmm_arrival_watch_free (VmmArrivalWatch *self);

G_END_DECLS

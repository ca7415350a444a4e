/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "netd-loop.h"

/* Tells when something happens at a path, whether or not it, or the folder it is in, exists yet. */
typedef struct _NetdPathWatcher NetdPathWatcher; /* one per process: the kernel's are few */
typedef struct _NetdPathWatch NetdPathWatch;
typedef void (*NetdPathFunc) (gpointer user_data);

NetdPathWatcher *netd_path_watcher_new (NetdLoop *loop);
void netd_path_watcher_free (NetdPathWatcher *self); /* after its watches */

/* @func: "look again"; from the loop. It may free any watch, its own too. */
NetdPathWatch *netd_path_watch_new (NetdPathWatcher *watcher, const char *path, NetdPathFunc func,
                                    gpointer user_data);
/* Whether the kernel watches; when not (its limits are reached), look again from time to time. */
gboolean netd_path_watch_is_active (NetdPathWatch *self);
void netd_path_watch_free (NetdPathWatch *self);

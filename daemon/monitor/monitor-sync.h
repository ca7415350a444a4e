/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <glib.h>

/* Waits for the disk, in a thread of its own, one job at a time. */
typedef struct _MonitorSync MonitorSync;

/* Why it failed, 0 for done. */
typedef void (*MonitorSyncFunc) (int error_number, gpointer user_data);

/* NULL with errno set. */
MonitorSync *monitor_sync_new (MonitorSyncFunc func, gpointer user_data);
void monitor_sync_free (MonitorSync *self); /* waits for a running job */

gboolean monitor_sync_is_busy (MonitorSync *self);
/* Begins a job: the file @fd. With @from, which is that file's name, it then becomes @to, in
 * @directory_fd. The caller keeps the descriptors, and the names, until the job is done. */
void monitor_sync_begin (MonitorSync *self, int fd, int directory_fd, const char *from,
                         const char *to);

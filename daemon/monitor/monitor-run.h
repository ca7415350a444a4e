/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <glib.h>

/* One run of a VM's QEMU, from its sockets to its end, and all that is watched meanwhile. */
typedef struct _MonitorRun MonitorRun;

/* In the VM's folder, which is the current directory. */
#define MONITOR_DOOR_SOCKET "monitor.sock"
#define MONITOR_ATTACH_SOCKET "console-attach.sock"

typedef struct
{
  int directory_fd;
  int door_listener; /* these are taken */
  int attach_listener;
  int notify_listener;
  guint32 notify_cid; /* 0: the listener is of this VM alone */
} MonitorRunConfig;

/* The process is no longer needed; NULL: why is no error. */
typedef void (*MonitorRunDoneFunc) (const char *error, gpointer user_data);

/* NULL with errno set. */
MonitorRun *monitor_run_new (const MonitorRunConfig *config, MonitorRunDoneFunc done,
                             gpointer user_data);
void monitor_run_free (MonitorRun *self);

/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <glib.h>

/* Tells what comes into the VM's folder and goes out of it. */
typedef struct _MonitorFolder MonitorFolder;

typedef struct
{
  void (*added) (const char *name, gpointer user_data);
  void (*removed) (const char *name, gpointer user_data);
  void (*gone) (gpointer user_data); /* the folder itself */
} MonitorFolderFuncs;

/* Of the current directory. NULL with errno set. */
MonitorFolder *monitor_folder_new (const MonitorFolderFuncs *funcs, gpointer user_data);
void monitor_folder_free (MonitorFolder *self);

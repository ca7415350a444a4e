/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <glib.h>

/* The console's bytes in a file of bounded size that has its beginning and its end. */
typedef struct _MonitorConsoleLog MonitorConsoleLog;

typedef struct
{
  gsize size_max;  /* of the file */
  gsize head_size; /* what is kept of the beginning */
  gsize tail_size; /* what is kept of the end, at least; more until the file is full */
} MonitorConsoleLimits;

/* The file is in @directory_fd, and so is NAME.new for a moment. */
MonitorConsoleLog *monitor_console_log_new (int directory_fd, const char *name,
                                            const MonitorConsoleLimits *limits);
void monitor_console_log_free (MonitorConsoleLog *self);

/* A new run: a new file. */
void monitor_console_log_begin (MonitorConsoleLog *self);
/* The same run: what is there goes on. */
void monitor_console_log_resume (MonitorConsoleLog *self);
/* Whatever the disk says; what it does not take is left out. */
void monitor_console_log_write (MonitorConsoleLog *self, const char *data, gsize length);

/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <glib.h>

/* The connection to the VM's serial port. */
typedef struct _MonitorConsole MonitorConsole;

typedef struct
{
  void (*output) (const char *data, gsize length, gpointer user_data);
  /* It takes input again. */
  void (*drained) (gpointer user_data);
  /* The other end has gone, after all that it had said; the receiver frees it. */
  void (*closed) (gpointer user_data);
} MonitorConsoleFuncs;

/* Takes the descriptor. */
MonitorConsole *monitor_console_new (int fd, const MonitorConsoleFuncs *funcs, gpointer user_data);
void monitor_console_free (MonitorConsole *self);

/* How much of it was taken; when not all, drained follows. */
gsize monitor_console_send (MonitorConsole *self, const char *data, gsize length);

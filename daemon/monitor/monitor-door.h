/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "monitor-journal.h"

/* monitor.sock: the journal for the daemon. */
typedef struct _MonitorDoor MonitorDoor;
/* Readers came or went. */
typedef void (*MonitorDoorFunc) (gpointer user_data);

/* Takes the listener, and lets those who come wait. */
MonitorDoor *monitor_door_new (int listener, MonitorJournal *journal, MonitorDoorFunc changed,
                               gpointer user_data);
void monitor_door_free (MonitorDoor *self);

/* Lets them in; once is enough. */
void monitor_door_open (MonitorDoor *self);
/* The journal has more. */
void monitor_door_tell (MonitorDoor *self);
guint monitor_door_count (MonitorDoor *self);
/* The highest number that any reader was sent, or had seen before. */
guint64 monitor_door_get_seen (MonitorDoor *self);

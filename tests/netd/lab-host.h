/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <glib.h>

/* The outside world, inside of a private network namespace: TCP at port 80 and UDP at ports 7 and
 * 53 of every address give back what they get. One thread, nothing blocks. */
typedef struct _LabHost LabHost;

LabHost *lab_host_new (void);
void lab_host_free (LabHost *self);
/* Serves what has come in. */
void lab_host_turn (LabHost *self);
/* Since the start. */
guint64 lab_host_get_connections (LabHost *self);
guint64 lab_host_get_datagrams (LabHost *self);

G_DEFINE_AUTOPTR_CLEANUP_FUNC (LabHost, lab_host_free)

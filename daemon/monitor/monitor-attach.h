/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <glib.h>

/* console-attach.sock: who looks at the console live, and the one who types. README.md has the
 * protocol. */
typedef struct _MonitorAttach MonitorAttach;

/* Passes on what the writer typed; says how much was taken. When not all, monitor_attach_drained()
 * follows. */
typedef gsize (*MonitorAttachFunc) (const char *data, gsize length, gpointer user_data);

/* Takes the listener. */
MonitorAttach *monitor_attach_new (int listener, MonitorAttachFunc input, gpointer user_data);
void monitor_attach_free (MonitorAttach *self);

void monitor_attach_output (MonitorAttach *self, const char *data, gsize length);
void monitor_attach_drained (MonitorAttach *self);
/* Another run begins: what is shown to those who come begins anew. */
void monitor_attach_begin (MonitorAttach *self);
/* The VM has ended: everybody gets what is due to them and leaves. */
void monitor_attach_end (MonitorAttach *self);

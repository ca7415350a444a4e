/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <glib.h>

/* What waits for a client that reads too slowly: a little, and then the number of what it missed.
 */
typedef struct
{
  GByteArray *waiting; /* NULL: nothing */
  guint64 n_missed;    /* behind what waits */
} MonitorAttachQueue;

#define MONITOR_ATTACH_QUEUE_MAX (64 * 1024)

/* Sends to the socket, after what waits. TRUE when the client took any of it. */
gboolean monitor_attach_queue_send (MonitorAttachQueue *self, int fd, const char *data,
                                    gsize length);
gboolean monitor_attach_queue_is_waiting (const MonitorAttachQueue *self);
void monitor_attach_queue_clear (MonitorAttachQueue *self);

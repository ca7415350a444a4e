/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <glib.h>

/* Writes frames into a pcap file (libpcap's savefile(5), microsecond little-endian or host order,
 * link type Ethernet) that somebody else opened. Stops at a size, on a full disk, when told. */
typedef struct _NetdCapture NetdCapture;

NetdCapture *netd_capture_new (int fd, guint64 max_bytes, GError **error); /* takes @fd over */
void netd_capture_free (NetdCapture *self);
void netd_capture_frame (NetdCapture *self, const void *frame, gsize length);
/* Writes out what gathered: at the end of a turn. */
void netd_capture_flush (NetdCapture *self);
gboolean netd_capture_is_full (NetdCapture *self);

/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <sys/uio.h>

#include "netd-packet.h"

/* What network cards do, in software: many small TCP segments of one connection are carried as one
 * large one while they are inside netd, so that work per packet is done once for many. */

/* --- Segmentation: one large frame of the engine into frames of the guest's MTU --- */

/* @parts: the pieces of one frame, valid during the call; FALSE stops */
typedef gboolean (*NetdSegmentFunc) (const struct iovec *parts, guint n_parts, gpointer user_data);

/* Cuts a frame whose IP packet is larger than @mtu: TCP into segments (sequence, flags, checksums
 * as a card with TSO would), everything else into IP fragments (RFC 791). A frame that fits is
 * passed as it is. Returns the number of frames passed. */
guint netd_segment (const guint8 *frame, gsize length, guint mtu, NetdSegmentFunc func,
                    gpointer user_data);

/* --- Coalescing: consecutive segments of the guest into one --- */

/* @frame: a whole frame, to be taken in before returning; @packet: its view */
typedef void (*NetdCoalesceFunc) (const NetdPacket *packet, gpointer user_data);
typedef struct _NetdCoalescer NetdCoalescer;

/* @func gets what came out: frames as they were, or merged ones, each connection's in order. */
NetdCoalescer *netd_coalescer_new (NetdCoalesceFunc func, gpointer user_data);
void netd_coalescer_free (NetdCoalescer *self);
/* Takes a guest's frame. Merges only plain data segments (ACK, perhaps PSH; equal headers; next in
 * sequence; good checksums); everything else passes at once, behind what was held of its
 * connection. */
void netd_coalescer_add (NetdCoalescer *self, const NetdPacket *packet);
/* End of a batch: nothing is held over. */
void netd_coalescer_flush (NetdCoalescer *self);

/* Raises the MSS option of a SYN to @mss, so that the engine sends large segments; fixes the
 * checksum.
 * @frame is writable and is the frame of @packet. */
void netd_raise_mss (const NetdPacket *packet, guint8 *frame, guint16 mss);

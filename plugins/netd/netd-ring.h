/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <glib.h>
#include <sys/uio.h>

/* A bounded queue of framed bytes to one port: 4-byte big-endian length, frame, length, frame, ...
 * A frame goes in whole or not at all. Written out with one call, whatever is in it. */
typedef struct
{
  guint8 *data;
  gsize size;
  gsize head; /* next byte to write out */
  gsize used;
} NetdRing;

void netd_ring_init (NetdRing *self, gsize size);
void netd_ring_clear (NetdRing *self);
/* FALSE when it does not fit. @parts are the pieces of one frame. */
gboolean netd_ring_push (NetdRing *self, const struct iovec *parts, guint n_parts);
/* Frames that are partly written out already, their lengths included: what is left of them from @skip
 * on. FALSE when that does not fit. */
gboolean netd_ring_push_rest (NetdRing *self, const struct iovec *parts, guint n_parts,
                              gsize skip);
gsize netd_ring_get_used (const NetdRing *self);
gsize netd_ring_get_room (const NetdRing *self);
/* Up to two pieces that hold what is queued; returns how many. */
guint netd_ring_peek (NetdRing *self, struct iovec pieces[2]);
void netd_ring_consume (NetdRing *self, gsize length);
/* Forgets what is queued: for a new connection. */
void netd_ring_reset (NetdRing *self);

/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "netd-loop.h"
#include "netd-packet.h"

/* Puts the fragments of IPv4 packets together, for one guest: few at a time, for a short time.
 * Packets with overlapping fragments are dropped (as RFC 5722 does for IPv6): no honest sender
 * makes them. */
typedef struct _NetdReassembly NetdReassembly;

#define NETD_REASSEMBLY_MAX 4 /* packets at a time; the oldest makes room */
#define NETD_REASSEMBLY_MS 15000

NetdReassembly *netd_reassembly_new (NetdLoop *loop);
void netd_reassembly_free (NetdReassembly *self);
/* Takes a fragment without IP options in. Returns the whole packet when it was the last that was
 * missing, else NULL; valid until the next call. */
const NetdPacket *netd_reassembly_add (NetdReassembly *self, const NetdPacket *fragment);
guint netd_reassembly_get_pending (NetdReassembly *self);

/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <glib.h>

/* The input of the frame fuzzer: records one after the other, each with this head. */
#define RECORD_HEAD 4 /* how, guest, length of what follows (big-endian) */

#define HOW_OWN 0x01      /* the guest's own MAC, IP and ARP addresses are put in */
#define HOW_CHECKSUM 0x02 /* checksums are made right */
#define HOW_ANSWER 0x04   /* TCP: sequence numbers go on from what came last on this connection */
#define HOW_RAW 0x08      /* not a frame: bytes of the stream as they are, lengths included */
#define HOW_STREAM 0x10   /* through the stream, like QEMU's; else past it, in memory of its own */
#define HOW_TURN 0x20     /* the loop is turned behind it */
#define HOW_BIG 0x40      /* padded to 70,000 bytes */
#define HOW_DETACH 0x80   /* the guest is unplugged and plugged in again before it */

/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "frame-kit.h"

/* TCP segments for tests, and checksums by their definition: none of it is netd's arithmetic. */
typedef struct
{
  guint32 source;
  guint32 destination;
  guint16 source_port;
  guint16 destination_port;
  guint16 identification;
  guint32 sequence;
  guint32 acknowledgement;
  guint16 window;
  guint8 flags;
  guint8 tos;
  guint8 ttl;
  gboolean may_be_cut; /* DF is not set */
  const guint8 *options;
  gsize options_length; /* a multiple of 4 */
  const guint8 *payload;
  gsize length;
} TestSegment;

#define TEST_SEGMENT_INIT                                                                          \
  {                                                                                                \
    .source = NETD_IP (192, 168, 127, 2), .destination = NETD_IP (93, 184, 216, 34),               \
    .source_port = 40000, .destination_port = 443, .identification = 100, .sequence = 1000,        \
    .acknowledgement = 77, .window = 502, .flags = NETD_TCP_ACK, .ttl = 64                         \
  }

/* Of @data and what @sum has already; 0 over what has its right checksum in it. */
guint16 test_checksum (const guint8 *data, gsize length, guint32 sum);
/* Of the @length bytes behind the IP header, and of the pseudo header. */
guint16 test_transport_checksum (const guint8 *ip, gsize header, gsize length);
/* @frame holds NETD_PACKET_MAX bytes. Returns the length. */
gsize test_segment_write (const TestSegment *segment, guint8 *frame);
/* Both checksums of a TCP packet. */
gboolean test_is_sound (const NetdPacket *packet);
/* (transfer full) */
guint8 *test_random_bytes (GRand *rand, gsize length);

/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <string.h>

#include "netd-packet.h"

/* TCP segments for tests, and checksums by their definition: none of this is netd's own arithmetic.
 */
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

static inline void
test_put_16 (guint8 *data, guint value)
{
  data[0] = (guint8) (value >> 8);
  data[1] = (guint8) value;
}

static inline void
test_put_32 (guint8 *data, guint32 value)
{
  test_put_16 (data, value >> 16);
  test_put_16 (data + 2, value);
}

static inline guint16
test_checksum (const guint8 *data, gsize length, guint32 sum)
{
  for (gsize i = 0; i < length; i += 2)
    {
      sum += (guint32) data[i] << 8 | (i + 1 < length ? data[i + 1] : 0);
      sum = (sum & 0xffff) + (sum >> 16);
    }
  return (guint16) ~sum;
}

static inline guint16
test_transport_checksum (const guint8 *ip, gsize header, gsize length)
{
  guint32 sum = ip[9] + (guint32) length;

  for (gsize i = 12; i < 20; i += 2)
    sum += (guint32) ip[i] << 8 | ip[i + 1];
  return test_checksum (ip + header, length, sum);
}

/* @frame holds NETD_PACKET_MAX bytes. Returns the length. */
static inline gsize
test_segment_write (const TestSegment *segment, guint8 *frame)
{
  guint8 *ip = frame + NETD_ETHERNET_HEADER;
  guint8 *tcp = ip + 20;
  gsize header = 20 + segment->options_length;
  static const guint8 ethernet[] = { 2, 0xde, 192, 168, 127, 1, 2, 0xde, 192, 168, 127, 2, 8, 0 };

  g_assert_cmpuint (20 + header + segment->length, <=, 65535);
  memset (frame, 0, NETD_ETHERNET_HEADER + 20 + header);
  memcpy (frame, ethernet, sizeof ethernet);
  ip[0] = 0x45;
  ip[1] = segment->tos;
  test_put_16 (ip + 2, (guint) (20 + header + segment->length));
  test_put_16 (ip + 4, segment->identification);
  test_put_16 (ip + 6, segment->may_be_cut ? 0 : 0x4000);
  ip[8] = segment->ttl;
  ip[9] = 6;
  test_put_32 (ip + 12, segment->source);
  test_put_32 (ip + 16, segment->destination);
  test_put_16 (ip + 10, test_checksum (ip, 20, 0));
  test_put_16 (tcp, segment->source_port);
  test_put_16 (tcp + 2, segment->destination_port);
  test_put_32 (tcp + 4, segment->sequence);
  test_put_32 (tcp + 8, segment->acknowledgement);
  tcp[12] = (guint8) (header / 4 << 4);
  tcp[13] = segment->flags;
  test_put_16 (tcp + 14, segment->window);
  if (segment->options_length > 0)
    memcpy (tcp + 20, segment->options, segment->options_length);
  if (segment->length > 0)
    memcpy (tcp + header, segment->payload, segment->length);
  test_put_16 (tcp + 16, test_transport_checksum (ip, 20, header + segment->length));
  return NETD_ETHERNET_HEADER + 20 + header + segment->length;
}

/* Both checksums of a TCP packet. */
static inline gboolean
test_is_sound (const NetdPacket *packet)
{
  return test_checksum (packet->ip, 20, 0) == 0
         && test_transport_checksum (packet->ip, 20, packet->transport_length) == 0;
}

static inline guint32
test_get_32 (const guint8 *data)
{
  return (guint32) data[0] << 24 | (guint32) data[1] << 16 | (guint32) data[2] << 8 | data[3];
}

static inline guint16
test_get_16 (const guint8 *data)
{
  return (guint16) (data[0] << 8 | data[1]);
}

static inline guint8 *
test_random_bytes (GRand *rand, gsize length)
{
  guint8 *data = g_malloc (length + 1);

  for (gsize i = 0; i < length; i++)
    data[i] = (guint8) g_rand_int (rand);
  return data;
}

/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Segments byte by byte from RFC 791 and RFC 9293, with any options and any window; what the
 * gateway is to do with whole frames is tested with frame-kit.h. */
#include "tcp-frames.h"

#include <string.h>

guint16
test_checksum (const guint8 *data, gsize length, guint32 sum)
{
  for (gsize i = 0; i < length; i += 2)
    {
      sum += (guint32) data[i] << 8 | (i + 1 < length ? data[i + 1] : 0);
      sum = (sum & 0xffff) + (sum >> 16);
    }
  return (guint16) ~sum;
}

guint16
test_transport_checksum (const guint8 *ip, gsize header, gsize length)
{
  guint32 sum = ip[9] + (guint32) length;

  for (gsize i = 12; i < 20; i += 2)
    sum += (guint32) ip[i] << 8 | ip[i + 1];
  return test_checksum (ip + header, length, sum);
}

gsize
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
  kit_set16 (ip + 2, (guint) (20 + header + segment->length));
  kit_set16 (ip + 4, segment->identification);
  kit_set16 (ip + 6, segment->may_be_cut ? 0 : 0x4000);
  ip[8] = segment->ttl;
  ip[9] = 6;
  kit_set32 (ip + 12, segment->source);
  kit_set32 (ip + 16, segment->destination);
  kit_set16 (ip + 10, test_checksum (ip, 20, 0));
  kit_set16 (tcp, segment->source_port);
  kit_set16 (tcp + 2, segment->destination_port);
  kit_set32 (tcp + 4, segment->sequence);
  kit_set32 (tcp + 8, segment->acknowledgement);
  tcp[12] = (guint8) (header / 4 << 4);
  tcp[13] = segment->flags;
  kit_set16 (tcp + 14, segment->window);
  if (segment->options_length > 0)
    memcpy (tcp + 20, segment->options, segment->options_length);
  if (segment->length > 0)
    memcpy (tcp + header, segment->payload, segment->length);
  kit_set16 (tcp + 16, test_transport_checksum (ip, 20, header + segment->length));
  return NETD_ETHERNET_HEADER + 20 + header + segment->length;
}

gboolean
test_is_sound (const NetdPacket *packet)
{
  return test_checksum (packet->ip, 20, 0) == 0
         && test_transport_checksum (packet->ip, 20, packet->transport_length) == 0;
}

guint8 *
test_random_bytes (GRand *rand, gsize length)
{
  guint8 *data = g_malloc (length + 1);

  for (gsize i = 0; i < length; i++)
    data[i] = (guint8) g_rand_int (rand);
  return data;
}

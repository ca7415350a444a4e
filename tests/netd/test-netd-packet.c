/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Reading frames (valid ones, each truncation of them, damaged ones, noise) and writing them.
 * Frames under test are copied into memory of exactly their size, so that a sanitizer sees every
 * read beyond. */
#include "netd-packet.h"

#include <netinet/in.h>
#include <string.h>

/* clang-format off */
static const guint8 arp_request[] = {
  0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02, 0xde, 0xc0, 0xa8, 0x7f, 0x02, 0x08, 0x06,
  0x00, 0x01, 0x08, 0x00, 0x06, 0x04, 0x00, 0x01,
  0x02, 0xde, 0xc0, 0xa8, 0x7f, 0x02, 192, 168, 127, 2,
  0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 192, 168, 127, 1,
};

/* Two bytes from 192.168.0.31 to port 53 of 192.168.0.1, with checksums worked out by hand. */
static const guint8 udp_frame[] = {
  0x02, 0x00, 0x00, 0x00, 0x00, 0x01, 0x02, 0x00, 0x00, 0x00, 0x00, 0x02, 0x08, 0x00,
  0x45, 0x00, 0x00, 0x1e, 0x00, 0x00, 0x40, 0x00, 0x40, 0x11, 0xb9, 0x5e, 192, 168, 0, 31, 192, 168, 0, 1,
  0x76, 0x5f, 0x00, 0x35, 0x00, 0x0a, 0xa6, 0x72, 0x61, 0x62,
};

/* A SYN with MSS, SACK permitted, timestamps and window scale. */
static const guint8 syn_frame[] = {
  0x02, 0x00, 0x00, 0x00, 0x00, 0x01, 0x02, 0x00, 0x00, 0x00, 0x00, 0x02, 0x08, 0x00,
  0x45, 0x00, 0x00, 0x3c, 0x1c, 0x46, 0x40, 0x00, 0x40, 0x06, 0x00, 0x00, 10, 0, 0, 2, 93, 184, 216, 34,
  0x9c, 0x40, 0x00, 0x50, 0x01, 0x02, 0x03, 0x04, 0x00, 0x00, 0x00, 0x00, 0xa0, 0x02, 0xfa, 0xf0, 0, 0, 0, 0,
  0x02, 0x04, 0x05, 0xb4, 0x04, 0x02, 0x08, 0x0a, 1, 2, 3, 4, 0, 0, 0, 0, 0x01, 0x03, 0x03, 0x07,
};
/* clang-format on */

static const struct
{
  const guint8 *frame;
  gsize length;
} valid[] = {
  { arp_request, sizeof arp_request },
  { udp_frame, sizeof udp_frame },
  { syn_frame, sizeof syn_frame },
};

static NetdPacketKind
parse_copy (const guint8 *frame, gsize length)
{
  g_autofree guint8 *copy = g_memdup2 (frame, length);
  NetdPacket packet;

  return netd_packet_parse (&packet, copy, length);
}

/* Whatever a view says must lie inside of its frame. */
static void
assert_bounded (const NetdPacket *packet)
{
  const guint8 *end = packet->frame + packet->length;

  if (packet->kind != NETD_PACKET_IPV4)
    return;
  g_assert_true (packet->ip == packet->frame + NETD_ETHERNET_HEADER);
  g_assert_true (packet->ip + packet->ip_length <= end);
  if (packet->transport != NULL)
    g_assert_true (packet->transport + packet->transport_length == packet->ip + packet->ip_length);
  else
    g_assert_true (packet->is_fragment && packet->transport_length == 0);
  if (packet->payload == NULL)
    g_assert_cmpuint (packet->payload_length, ==, 0);
  else
    g_assert_true (packet->payload + packet->payload_length <= packet->ip + packet->ip_length);
}

static void
test_arp (void)
{
  NetdPacket packet;
  guint8 wrong[sizeof arp_request];
  static const guint8 typed[] = { 14, 15, 16, 17, 18, 19 };

  g_assert_cmpint (netd_packet_parse (&packet, arp_request, sizeof arp_request), ==,
                   NETD_PACKET_ARP);
  g_assert_cmpuint (packet.arp_operation, ==, 1);
  g_assert_cmphex (packet.arp_sender_ip, ==, NETD_IP (192, 168, 127, 2));
  g_assert_cmphex (packet.arp_target_ip, ==, NETD_IP (192, 168, 127, 1));
  g_assert_true (netd_mac_equal (&packet.arp_sender_mac, &packet.source));
  g_assert_true (netd_packet_is_broadcast (&packet));

  for (guint i = 0; i < G_N_ELEMENTS (typed); i++)
    {
      memcpy (wrong, arp_request, sizeof wrong);
      wrong[typed[i]] ^= 0x10;
      g_assert_cmpint (parse_copy (wrong, sizeof wrong), ==, NETD_PACKET_MALFORMED);
    }
}

static void
test_udp (void)
{
  guint8 frame[sizeof udp_frame + 20] = { 0 };
  NetdPacket packet;

  memcpy (frame, udp_frame, sizeof udp_frame);
  /* Short frames are padded by some senders. */
  g_assert_cmpint (netd_packet_parse (&packet, frame, sizeof frame), ==, NETD_PACKET_IPV4);
  g_assert_cmpuint (packet.ethertype, ==, NETD_ETHERTYPE_IPV4);
  g_assert_cmphex (packet.ip_source, ==, NETD_IP (192, 168, 0, 31));
  g_assert_cmphex (packet.ip_destination, ==, NETD_IP (192, 168, 0, 1));
  g_assert_cmpuint (packet.protocol, ==, IPPROTO_UDP);
  g_assert_false (packet.is_fragment);
  g_assert_false (packet.has_options);
  g_assert_cmpuint (packet.ip_length, ==, 30);
  g_assert_cmpuint (packet.source_port, ==, 0x765f);
  g_assert_cmpuint (packet.destination_port, ==, 53);
  g_assert_cmpmem (packet.payload, packet.payload_length, "ab", 2);

  frame[39] = 9; /* the payload ends before the IP packet does */
  netd_packet_parse (&packet, frame, sizeof frame);
  g_assert_cmpmem (packet.payload, packet.payload_length, "a", 1);
  frame[39] = 7; /* shorter than its own header */
  g_assert_cmpint (parse_copy (frame, sizeof frame), ==, NETD_PACKET_MALFORMED);
  frame[39] = 11; /* longer than the IP packet, although the frame is long enough */
  g_assert_cmpint (parse_copy (frame, sizeof frame), ==, NETD_PACKET_MALFORMED);
}

static void
test_tcp (void)
{
  guint8 frame[sizeof syn_frame];
  NetdPacket packet;

  g_assert_cmpint (netd_packet_parse (&packet, syn_frame, sizeof syn_frame), ==, NETD_PACKET_IPV4);
  g_assert_cmpuint (packet.source_port, ==, 40000);
  g_assert_cmpuint (packet.destination_port, ==, 80);
  g_assert_cmphex (packet.tcp_flags, ==, NETD_TCP_SYN);
  g_assert_cmpuint (packet.payload_length, ==, 0);

  memcpy (frame, syn_frame, sizeof frame);
  frame[46] = 0x50; /* the options are data now */
  netd_packet_parse (&packet, frame, sizeof frame);
  g_assert_cmpmem (packet.payload, packet.payload_length, syn_frame + 54, 20);
  frame[46] = 0x40;
  g_assert_cmpint (parse_copy (frame, sizeof frame), ==, NETD_PACKET_MALFORMED);
  frame[46] = 0xb0;
  g_assert_cmpint (parse_copy (frame, sizeof frame), ==, NETD_PACKET_MALFORMED);
}

static void
test_ip_header (void)
{
  guint8 frame[sizeof udp_frame];
  NetdPacket packet;

  memcpy (frame, udp_frame, sizeof frame);
  frame[14] = 0x65;
  g_assert_cmpint (parse_copy (frame, sizeof frame), ==, NETD_PACKET_MALFORMED);
  frame[14] = 0x44;
  g_assert_cmpint (parse_copy (frame, sizeof frame), ==, NETD_PACKET_MALFORMED);
  frame[14] = 0x4f; /* a header longer than the packet */
  g_assert_cmpint (parse_copy (frame, sizeof frame), ==, NETD_PACKET_MALFORMED);
  frame[14] = 0x45;
  frame[17] = 31; /* a packet longer than the frame */
  g_assert_cmpint (parse_copy (frame, sizeof frame), ==, NETD_PACKET_MALFORMED);
  frame[17] = 19; /* a packet shorter than its header */
  g_assert_cmpint (parse_copy (frame, sizeof frame), ==, NETD_PACKET_MALFORMED);
  frame[17] = 30;
  g_assert_cmpint (parse_copy (frame, sizeof frame), ==, NETD_PACKET_IPV4);

  frame[14] = 0x46; /* options, and a protocol without ports */
  frame[23] = 47;
  g_assert_cmpint (netd_packet_parse (&packet, frame, sizeof frame), ==, NETD_PACKET_IPV4);
  g_assert_true (packet.has_options);
  g_assert_cmpuint (packet.transport_length, ==, 6);
  g_assert_null (packet.payload);
}

static void
test_fragments (void)
{
  static const struct
  {
    guint8 protocol;
    guint16 field; /* flags and offset */
    guint length;  /* behind the header */
    NetdPacketKind kind;
    gboolean has_transport;
  } cases[] = {
    { IPPROTO_UDP, 0x2000, 16, NETD_PACKET_IPV4, TRUE },
    { IPPROTO_UDP, 0x2000, 17, NETD_PACKET_MALFORMED, FALSE }, /* not a multiple of 8 */
    { IPPROTO_UDP, 0x2000, 0, NETD_PACKET_MALFORMED, FALSE },
    { IPPROTO_UDP, 0x2001, 16, NETD_PACKET_IPV4, FALSE },
    { IPPROTO_UDP, 0x0002, 5, NETD_PACKET_IPV4, FALSE },
    { IPPROTO_UDP, 0x0002, 0, NETD_PACKET_MALFORMED, FALSE },
    { IPPROTO_ICMP, 0x1fff, 8, NETD_PACKET_MALFORMED, FALSE }, /* ends beyond 65535 */
    { IPPROTO_ICMP, 0x1ffc, 11, NETD_PACKET_IPV4, FALSE },
    { IPPROTO_ICMP, 0x1ffc, 12, NETD_PACKET_MALFORMED, FALSE },
    { IPPROTO_TCP, 0x2000, 16, NETD_PACKET_MALFORMED, FALSE }, /* too small for the header */
    { IPPROTO_TCP, 0x2000, 24, NETD_PACKET_IPV4, TRUE },
    { IPPROTO_TCP, 0x0001, 16, NETD_PACKET_MALFORMED, FALSE }, /* would overwrite the flags */
    { IPPROTO_TCP, 0x0002, 16, NETD_PACKET_MALFORMED, FALSE },
    { IPPROTO_TCP, 0x0003, 16, NETD_PACKET_IPV4, FALSE },
  };

  for (guint i = 0; i < G_N_ELEMENTS (cases); i++)
    {
      guint8 frame[NETD_ETHERNET_HEADER + 20 + 32] = { 0 };
      NetdPacket packet;

      memcpy (frame, udp_frame, NETD_ETHERNET_HEADER + 20);
      frame[17] = (guint8) (20 + cases[i].length);
      frame[20] = (guint8) (cases[i].field >> 8);
      frame[21] = (guint8) cases[i].field;
      frame[23] = cases[i].protocol;
      frame[38] = 0x10; /* UDP length 0x1000: the whole datagram's */
      frame[46] = 0x50; /* TCP offset */
      g_test_message ("case %u", i);
      netd_packet_parse (&packet, frame, NETD_ETHERNET_HEADER + 20 + cases[i].length);
      g_assert_cmpint (packet.kind, ==, cases[i].kind);
      if (packet.kind != NETD_PACKET_IPV4)
        continue;
      g_assert_true (packet.is_fragment);
      g_assert_cmpint (packet.transport != NULL, ==, cases[i].has_transport);
      assert_bounded (&packet);
    }
}

static void
test_other (void)
{
  guint8 frame[60] = { 0x01, 0x00, 0x5e, 0, 0, 1, 2, 0, 0, 0, 0, 1, 0x86, 0xdd, 0x60 };
  NetdPacket packet;

  g_assert_cmpint (netd_packet_parse (&packet, frame, sizeof frame), ==, NETD_PACKET_OTHER);
  g_assert_cmphex (packet.ethertype, ==, 0x86dd);
  g_assert_false (netd_packet_is_broadcast (&packet));
  frame[12] = 0x81; /* VLAN */
  frame[13] = 0x00;
  g_assert_cmpint (parse_copy (frame, sizeof frame), ==, NETD_PACKET_OTHER);
  frame[12] = 0; /* 802.3 length */
  frame[13] = 46;
  g_assert_cmpint (parse_copy (frame, sizeof frame), ==, NETD_PACKET_OTHER);
  g_assert_cmpint (parse_copy (frame, 14), ==, NETD_PACKET_OTHER);
  g_assert_cmpint (parse_copy (frame, 13), ==, NETD_PACKET_MALFORMED);
  g_assert_cmpint (parse_copy (frame, 0), ==, NETD_PACKET_MALFORMED);
}

static void
test_truncated (void)
{
  for (guint i = 0; i < G_N_ELEMENTS (valid); i++)
    {
      for (gsize length = 0; length < valid[i].length; length++)
        g_assert_cmpint (parse_copy (valid[i].frame, length), ==, NETD_PACKET_MALFORMED);
      g_assert_cmpint (parse_copy (valid[i].frame, valid[i].length), !=, NETD_PACKET_MALFORMED);
    }
}

static void
test_mutated (void)
{
  g_autoptr (GRand) rand = g_rand_new_with_seed (20240229);

  for (guint round = 0; round < 100000; round++)
    {
      guint which = (guint) g_rand_int_range (rand, 0, G_N_ELEMENTS (valid));
      gsize length = (gsize) g_rand_int_range (rand, 1, 90);
      guint n_changes = (guint) g_rand_int_range (rand, 0, 6);
      g_autofree guint8 *frame = g_malloc (length);
      NetdPacket packet;

      for (gsize i = 0; i < length; i++)
        frame[i] = (guint8) g_rand_int (rand);
      if (g_rand_int_range (rand, 0, 8) != 0)
        memcpy (frame, valid[which].frame, MIN (length, valid[which].length));
      for (guint i = 0; i < n_changes && length > 0; i++)
        frame[g_rand_int_range (rand, 0, (gint32) length)] = (guint8) g_rand_int (rand);
      netd_packet_parse (&packet, frame, length);
      assert_bounded (&packet);
    }
}

/* The definition, word by word. */
static guint16
naive_checksum (const guint8 *data, gsize length, guint32 sum)
{
  for (gsize i = 0; i < length; i += 2)
    sum += (guint32) data[i] << 8 | (i + 1 < length ? data[i + 1] : 0);
  while (sum >> 16 != 0)
    sum = (sum & 0xffff) + (sum >> 16);
  return (guint16) ~sum;
}

static void
test_checksum (void)
{
  /* RFC 1071, 3 */
  static const guint8 example[] = { 0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7 };
  g_autoptr (GRand) rand = g_rand_new_with_seed (1071);
  g_autofree guint8 *ones = g_malloc (131072);

  g_assert_cmphex (netd_checksum_add (0, example, sizeof example), ==, g_htons (0xddf2));
  g_assert_cmphex (netd_checksum_finish (g_htons (0xddf2)), ==, g_htons (0x220d));
  g_assert_cmphex (netd_checksum_add (0, NULL, 0), ==, 0);
  g_assert_cmphex (netd_checksum_finish (netd_checksum_add (0, udp_frame + 14, 20)), ==, 0);

  memset (ones, 0xff, 131072);
  g_assert_cmphex (netd_checksum_add (0xffffffff, ones, 131072), ==, 0xffff);

  for (gsize length = 0; length < 300; length++)
    {
      g_autofree guint8 *data = g_malloc (length);
      g_autofree guint8 *copy = g_malloc (length);
      gsize split
          = length < 2 ? 0 : (gsize) g_rand_int_range (rand, 0, (gint32) length) & ~(gsize) 1;
      guint16 expected;
      guint32 sum;

      for (gsize i = 0; i < length; i++)
        data[i] = (guint8) g_rand_int (rand);
      expected = g_htons (naive_checksum (data, length, 0));
      g_assert_cmphex (netd_checksum_finish (netd_checksum_add (0, data, length)), ==, expected);
      sum = netd_checksum_copy (0, copy, data, length);
      g_assert_cmphex (netd_checksum_finish (sum), ==, expected);
      g_assert_cmpmem (copy, length, data, length);
      sum = netd_checksum_add (netd_checksum_add (0, data, split), data + split, length - split);
      g_assert_cmphex (netd_checksum_finish (sum), ==, expected);
    }
}

/* 0 when the transport checksum is right, pseudo header and all. */
static guint16
transport_checksum (const NetdPacket *packet)
{
  guint32 sum = packet->protocol + (guint32) packet->transport_length;

  sum += packet->ip_source >> 16;
  sum += packet->ip_source & 0xffff;
  sum += packet->ip_destination >> 16;
  sum += packet->ip_destination & 0xffff;
  return naive_checksum (packet->transport, packet->transport_length, sum);
}

static void
test_build_udp (void)
{
  NetdUdpAddress address = {
    .source_mac = { { 2, 0, 0, 0, 0, 2 } },
    .destination_mac = { { 2, 0, 0, 0, 0, 1 } },
    .source = NETD_IP (192, 168, 0, 31),
    .destination = NETD_IP (192, 168, 0, 1),
    .source_port = 0x765f,
    .destination_port = 53,
  };
  guint8 frame[NETD_PACKET_MAX];
  g_autofree guint8 *large = g_malloc0 (65536);
  NetdPacket packet;

  g_assert_cmpuint (netd_packet_build_udp (frame, sizeof frame, &address, "ab", 2), ==,
                    sizeof udp_frame);
  g_assert_cmpmem (frame, sizeof udp_frame, udp_frame, sizeof udp_frame);
  g_assert_cmpuint (netd_packet_build_udp (frame, sizeof udp_frame - 1, &address, "ab", 2), ==, 0);
  g_assert_cmpuint (netd_packet_build_udp (frame, 0, &address, NULL, 0), ==, 0);

  /* What may be cut says so, and has a number of its own. */
  for (guint i = 0; i < 2; i++)
    {
      gsize length = netd_packet_build_udp (frame, sizeof frame, &address, large, 65507);

      g_assert_cmpuint (length, ==, NETD_PACKET_MAX);
      netd_packet_parse (&packet, frame, length);
      g_assert_cmpuint (packet.payload_length, ==, 65507);
      g_assert_cmphex (transport_checksum (&packet), ==, 0);
      g_assert_cmphex (naive_checksum (packet.ip, 20, 0), ==, 0);
      g_assert_cmphex (packet.ip[6], ==, 0);
      g_assert_cmpuint (packet.ip[5], !=, large[0]);
      large[0] = packet.ip[5];
    }
  g_assert_cmpuint (netd_packet_build_udp (frame, sizeof frame, &address, large, 65508), ==, 0);

  /* A sum of zero is written as all ones. */
  memset (large, 0, 2);
  netd_packet_parse (&packet, frame,
                     netd_packet_build_udp (frame, sizeof frame, &address, large, 2));
  memcpy (large, packet.transport + 6, 2);
  netd_packet_parse (&packet, frame,
                     netd_packet_build_udp (frame, sizeof frame, &address, large, 2));
  g_assert_cmpuint (packet.transport[6], ==, 0xff);
  g_assert_cmpuint (packet.transport[7], ==, 0xff);
}

static void
test_build_arp (void)
{
  NetdMac guest = { { 0x02, 0xde, 0xc0, 0xa8, 0x7f, 0x02 } };
  NetdMac gateway = { { 0x02, 0xde, 0xc0, 0xa8, 0x7f, 0x01 } };
  guint8 frame[64];
  NetdPacket packet;

  g_assert_cmpuint (netd_packet_build_arp (frame, sizeof frame, 1, &guest,
                                           NETD_IP (192, 168, 127, 2), NULL,
                                           NETD_IP (192, 168, 127, 1)),
                    ==, sizeof arp_request);
  g_assert_cmpmem (frame, sizeof arp_request, arp_request, sizeof arp_request);

  netd_packet_parse (&packet, frame,
                     netd_packet_build_arp (frame, sizeof frame, 2, &gateway, 1, &guest, 2));
  g_assert_cmpint (packet.kind, ==, NETD_PACKET_ARP);
  g_assert_cmpuint (packet.arp_operation, ==, 2);
  g_assert_true (netd_mac_equal (&packet.destination, &guest));
  g_assert_true (netd_mac_equal (&packet.source, &gateway));
  g_assert_cmpuint (packet.arp_sender_ip, ==, 1);
  g_assert_cmpuint (packet.arp_target_ip, ==, 2);
  g_assert_cmpuint (netd_packet_build_arp (frame, 41, 2, &gateway, 1, &guest, 2), ==, 0);
}

static void
assert_reset (const guint8 *original, gsize length, guint8 flags, guint32 seq, guint32 ack)
{
  NetdMac gateway = { { 2, 0, 0, 0, 0, 1 } };
  guint8 frame[54];
  NetdPacket packet;
  NetdPacket reset;

  netd_packet_parse (&packet, original, length);
  g_assert_cmpuint (netd_packet_build_reset (frame, 53, &packet, &gateway), ==, 0);
  g_assert_cmpuint (netd_packet_build_reset (frame, 54, &packet, &gateway), ==, 54);
  g_assert_cmpint (netd_packet_parse (&reset, frame, 54), ==, NETD_PACKET_IPV4);
  g_assert_true (netd_mac_equal (&reset.source, &gateway));
  g_assert_true (netd_mac_equal (&reset.destination, &packet.source));
  g_assert_cmphex (reset.ip_source, ==, packet.ip_destination);
  g_assert_cmphex (reset.ip_destination, ==, packet.ip_source);
  g_assert_cmpuint (reset.source_port, ==, packet.destination_port);
  g_assert_cmpuint (reset.destination_port, ==, packet.source_port);
  g_assert_cmphex (reset.tcp_flags, ==, flags);
  g_assert_cmpuint (reset.payload_length, ==, 0);
  seq = g_htonl (seq);
  ack = g_htonl (ack);
  g_assert_cmpmem (reset.transport + 4, 4, &seq, 4);
  g_assert_cmpmem (reset.transport + 8, 4, &ack, 4);
  g_assert_cmphex (naive_checksum (reset.ip, 20, 0), ==, 0);
  g_assert_cmphex (transport_checksum (&reset), ==, 0);
}

static gboolean
is_reset_due (const guint8 *original, gsize length)
{
  NetdMac gateway = { { 2, 0, 0, 0, 0, 1 } };
  guint8 frame[64];
  NetdPacket packet;

  netd_packet_parse (&packet, original, length);
  return netd_packet_build_reset (frame, sizeof frame, &packet, &gateway) > 0;
}

static void
test_build_reset (void)
{
  guint8 frame[sizeof syn_frame];

  memcpy (frame, syn_frame, sizeof frame);
  assert_reset (frame, sizeof frame, NETD_TCP_RST | NETD_TCP_ACK, 0, 0x01020305);
  frame[46] = 0x50; /* 20 bytes of data */
  assert_reset (frame, sizeof frame, NETD_TCP_RST | NETD_TCP_ACK, 0, 0x01020319);
  frame[47] = NETD_TCP_FIN;
  assert_reset (frame, sizeof frame, NETD_TCP_RST | NETD_TCP_ACK, 0, 0x01020319);
  frame[47] = NETD_TCP_ACK | NETD_TCP_PSH;
  frame[42] = 0x77;
  assert_reset (frame, sizeof frame, NETD_TCP_RST, 0x77000000, 0);
  g_assert_true (is_reset_due (frame, sizeof frame));

  frame[47] = NETD_TCP_ACK | NETD_TCP_RST; /* never against a RST */
  g_assert_false (is_reset_due (frame, sizeof frame));
  frame[47] = NETD_TCP_ACK;
  frame[0] = 0xff; /* nor a broadcast */
  g_assert_false (is_reset_due (frame, sizeof frame));
  frame[0] = 0x02;
  frame[30] = 224; /* nor multicast */
  g_assert_false (is_reset_due (frame, sizeof frame));
  frame[30] = 93;
  frame[20] = 0x20; /* nor a fragment */
  g_assert_false (is_reset_due (frame, sizeof frame));
  frame[20] = 0x40;
  g_assert_true (is_reset_due (frame, sizeof frame));
  g_assert_false (is_reset_due (udp_frame, sizeof udp_frame));
  g_assert_false (is_reset_due (arp_request, sizeof arp_request));
  g_assert_false (is_reset_due (frame, 40));
}

int
main (int argc, char **argv)
{
  g_test_init (&argc, &argv, NULL);
  g_test_add_func ("/netd/packet/arp", test_arp);
  g_test_add_func ("/netd/packet/udp", test_udp);
  g_test_add_func ("/netd/packet/tcp", test_tcp);
  g_test_add_func ("/netd/packet/ip-header", test_ip_header);
  g_test_add_func ("/netd/packet/fragments", test_fragments);
  g_test_add_func ("/netd/packet/other", test_other);
  g_test_add_func ("/netd/packet/truncated", test_truncated);
  g_test_add_func ("/netd/packet/mutated", test_mutated);
  g_test_add_func ("/netd/packet/checksum", test_checksum);
  g_test_add_func ("/netd/packet/build-udp", test_build_udp);
  g_test_add_func ("/netd/packet/build-arp", test_build_arp);
  g_test_add_func ("/netd/packet/build-reset", test_build_reset);
  return g_test_run ();
}

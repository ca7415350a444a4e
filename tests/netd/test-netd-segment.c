/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Cutting large frames: what comes out fits, is sound by its own checksums, and put together again
 * is what went in. And the MSS that makes the engine send large ones. */
#include "netd-offload.h"
#include "tcp-frames.h"

typedef struct
{
  GPtrArray *frames; /* GByteArray */
  guint stop_after;  /* 0: never */
  const guint8 *first_part;
} Output;

static gboolean
take (const struct iovec *parts, guint n_parts, gpointer user_data)
{
  Output *output = user_data;
  GByteArray *frame;

  if (output->stop_after > 0 && output->frames->len == output->stop_after)
    return FALSE;
  frame = g_byte_array_new ();
  for (guint i = 0; i < n_parts; i++)
    g_byte_array_append (frame, parts[i].iov_base, (guint) parts[i].iov_len);
  output->first_part = parts[0].iov_base;
  g_ptr_array_add (output->frames, frame);
  return TRUE;
}

static void
output_init (Output *output)
{
  memset (output, 0, sizeof *output);
  output->frames = g_ptr_array_new_with_free_func ((GDestroyNotify) g_byte_array_unref);
}

static void
output_clear (Output *output)
{
  g_ptr_array_unref (output->frames);
}

static void
parse (NetdPacket *packet, const Output *output, guint index)
{
  GByteArray *frame = g_ptr_array_index (output->frames, index);

  g_assert_cmpint (netd_packet_parse (packet, frame->data, frame->len), ==, NETD_PACKET_IPV4);
}

/* One frame of a connection, cut. */
static void
check_tcp (const TestSegment *segment, guint mtu)
{
  g_autofree guint8 *frame = g_malloc (NETD_PACKET_MAX);
  gsize length = test_segment_write (segment, frame);
  gsize header = 40 + segment->options_length;
  gsize piece = mtu - header;
  guint expected = (guint) ((segment->length + piece - 1) / piece);
  gsize at = 0;
  Output output;

  output_init (&output);
  g_assert_cmpuint (netd_segment (frame, length, mtu, take, &output), ==, expected);
  g_assert_cmpuint (output.frames->len, ==, expected);
  for (guint i = 0; i < expected; i++)
    {
      gboolean is_last = i + 1 == expected;
      guint8 flags = segment->flags;
      NetdPacket packet;

      parse (&packet, &output, i);
      if (!is_last)
        flags &= (guint8) ~(NETD_TCP_FIN | NETD_TCP_PSH);
      if (i > 0)
        flags &= 0x7f;
      g_assert_cmpuint (packet.length, ==, NETD_ETHERNET_HEADER + packet.ip_length);
      g_assert_cmpuint (packet.ip_length, <=, mtu);
      g_assert_true (is_last || packet.payload_length == piece);
      g_assert_true (test_is_sound (&packet));
      g_assert_cmphex (packet.tcp_flags, ==, flags);
      g_assert_cmpuint (kit_get32 (packet.transport + 4), ==, (guint32) (segment->sequence + at));
      g_assert_cmpuint (kit_get32 (packet.transport + 8), ==, segment->acknowledgement);
      g_assert_cmpuint (kit_get16 (packet.ip + 4), ==, (guint16) (segment->identification + i));
      g_assert_cmpmem (packet.transport + 20, packet.payload - packet.transport - 20,
                       segment->options, segment->options_length);
      g_assert_cmpmem (packet.payload, packet.payload_length, segment->payload + at,
                       packet.payload_length);
      at += packet.payload_length;
    }
  g_assert_cmpuint (at, ==, segment->length);
  output_clear (&output);
}

static void
test_tcp (void)
{
  g_autoptr (GRand) rand = g_rand_new_with_seed (793);
  g_autofree guint8 *payload = test_random_bytes (rand, 65535);
  TestSegment segment = TEST_SEGMENT_INIT;

  /* The usual: what the engine sends, what a guest takes. */
  segment.payload = payload;
  segment.length = 65495;
  segment.flags = NETD_TCP_ACK | NETD_TCP_PSH;
  check_tcp (&segment, 1500);
  segment.length = 1461;
  check_tcp (&segment, 1500);
  segment.length = 2920;
  check_tcp (&segment, 1500);

  for (guint round = 0; round < 400; round++)
    {
      guint mtu = (guint) g_rand_int_range (rand, 200, 9001);

      segment.options = payload + g_rand_int_range (rand, 0, 1000);
      segment.options_length = (gsize) g_rand_int_range (rand, 0, 11) * 4;
      segment.length = (gsize) g_rand_int_range (rand, (gint32) mtu, 65536 - 80);
      segment.sequence = g_rand_boolean (rand) ? G_MAXUINT32 - 3000 : g_rand_int (rand);
      segment.identification = (guint16) g_rand_int (rand);
      segment.flags = NETD_TCP_ACK | (g_rand_int (rand) & (0xc0 | NETD_TCP_PSH | NETD_TCP_FIN));
      check_tcp (&segment, mtu);
    }
}

static void
test_fits (void)
{
  guint8 payload[1460] = { 1 };
  guint8 frame[NETD_ETHERNET_HEADER + 1500 + 100] = { 0 };
  TestSegment segment = TEST_SEGMENT_INIT;
  Output output;
  gsize length;

  segment.payload = payload;
  segment.length = sizeof payload;
  length = test_segment_write (&segment, frame);
  output_init (&output);
  g_assert_cmpuint (netd_segment (frame, length, 1500, take, &output), ==, 1);
  g_assert_true (output.first_part == frame);
  /* What is behind the packet does not count, and does not go out. */
  g_assert_cmpuint (netd_segment (frame, length + 100, 1500, take, &output), ==, 1);
  g_assert_cmpuint (((GByteArray *) output.frames->pdata[1])->len, ==, length);
  /* What fits is nobody's business. */
  g_assert_cmpuint (netd_segment (frame, 10, 1500, take, &output), ==, 1);
  frame[12] = 0x86;
  g_assert_cmpuint (netd_segment (frame, length, 1500, take, &output), ==, 1);
  /* What does not fit must be cut, or dropped. */
  g_assert_cmpuint (netd_segment (frame, length + 1, 1500, take, &output), ==, 0);
  frame[12] = 0x08;
  frame[14] = 0x41;
  g_assert_cmpuint (netd_segment (frame, length + 1, 1500, take, &output), ==, 0);
  g_assert_cmpuint (output.frames->len, ==, 4);

  output.stop_after = 4;
  g_assert_cmpuint (netd_segment (frame, 10, 1500, take, &output), ==, 0);
  output_clear (&output);
}

static void
test_stopped (void)
{
  g_autofree guint8 *payload = g_malloc0 (30000);
  g_autofree guint8 *frame = g_malloc (NETD_PACKET_MAX);
  TestSegment segment = TEST_SEGMENT_INIT;
  Output output;
  gsize length;

  segment.payload = payload;
  segment.length = 30000;
  length = test_segment_write (&segment, frame);
  output_init (&output);
  output.stop_after = 3;
  g_assert_cmpuint (netd_segment (frame, length, 1500, take, &output), ==, 3);
  frame[14 + 6] = 0;
  frame[14 + 9] = 47;
  output.stop_after = 5;
  g_assert_cmpuint (netd_segment (frame, length, 1500, take, &output), ==, 2);
  output_clear (&output);
}

/* Puts fragments together as a receiver does, and compares. */
static void
check_fragments (const guint8 *frame, gsize length, guint mtu)
{
  g_autofree guint8 *whole = g_malloc0 (G_MAXUINT16);
  NetdPacket original;
  gsize header;
  gsize base;
  gsize at;
  gboolean more = TRUE;
  Output output;
  guint n;

  netd_packet_parse (&original, frame, length);
  header = (gsize) (original.ip[0] & 15) * 4;
  base = (gsize) (kit_get16 (original.ip + 6) & 0x1fff) * 8;
  at = base;
  output_init (&output);
  n = netd_segment (frame, length, mtu, take, &output);
  g_assert_cmpuint (n, >, 1);
  g_assert_cmpuint (n, ==, output.frames->len);
  for (guint i = 0; i < n; i++)
    {
      NetdPacket packet;
      guint16 field;
      gsize piece;

      parse (&packet, &output, i);
      field = kit_get16 (packet.ip + 6);
      piece = packet.ip_length - header;
      g_assert_cmpuint (packet.ip_length, <=, mtu);
      g_assert_true (packet.is_fragment);
      g_assert_cmphex (test_checksum (packet.ip, header, 0), ==, 0);
      g_assert_cmpuint (kit_get16 (packet.ip + 4), ==, kit_get16 (original.ip + 4));
      g_assert_cmpuint ((gsize) (field & 0x1fff) * 8, ==, at);
      more = (field & 0x2000) != 0;
      g_assert_true (more || i + 1 == n);
      memcpy (whole + at - base, packet.ip + header, piece);
      at += piece;
    }
  g_assert_cmpint (more, ==, (original.ip[6] & 0x20) != 0);
  g_assert_cmpmem (whole, at - base, original.ip + header, original.ip_length - header);
  output_clear (&output);
}

static void
test_fragments (void)
{
  NetdUdpAddress address = { .source = NETD_IP (192, 168, 127, 1), .source_port = 53 };
  g_autoptr (GRand) rand = g_rand_new_with_seed (791);
  g_autofree guint8 *payload = test_random_bytes (rand, 65507);
  g_autofree guint8 *frame = g_malloc (NETD_PACKET_MAX);
  TestSegment syn = TEST_SEGMENT_INIT;
  Output output;
  gsize length;

  for (guint round = 0; round < 200; round++)
    {
      gsize size = (gsize) g_rand_int_range (rand, 1480, 65508);

      length = netd_packet_build_udp (frame, NETD_PACKET_MAX, &address, payload, size);
      check_fragments (frame, length, (guint) g_rand_int_range (rand, 200, 1501));
    }
  length = netd_packet_build_udp (frame, NETD_PACKET_MAX, &address, payload, 65507);
  check_fragments (frame, length, 1500);

  /* A fragment is cut further, in its place. */
  length = netd_packet_build_udp (frame, NETD_PACKET_MAX, &address, payload, 4000);
  frame[20] = 0x20;
  frame[21] = 0x7b;
  check_fragments (frame, length, 1500);
  frame[20] = 0x00;
  check_fragments (frame, length, 1500);

  /* A large SYN is cut as a packet, not as a connection. */
  syn.flags = NETD_TCP_SYN;
  syn.payload = payload;
  syn.length = 3000;
  syn.may_be_cut = TRUE;
  length = test_segment_write (&syn, frame);
  check_fragments (frame, length, 1500);
  syn.may_be_cut = FALSE;
  length = test_segment_write (&syn, frame);
  output_init (&output);
  g_assert_cmpuint (netd_segment (frame, length, 1500, take, &output), ==, 0);
  /* There is no room for anything. */
  frame[20] = 0;
  g_assert_cmpuint (netd_segment (frame, length, 27, take, &output), ==, 0);
  frame[47] = NETD_TCP_ACK;
  g_assert_cmpuint (netd_segment (frame, length, 40, take, &output), ==, 0);
  g_assert_cmpuint (output.frames->len, ==, 0);
  output_clear (&output);
}

/* Of IP options only those go into later fragments that say so. */
static void
test_fragment_options (void)
{
  static const struct
  {
    guint8 options[8];
    guint8 later[8];
  } cases[] = {
    { { 7, 7, 4, 0, 0, 0, 0, 0 }, { 1, 1, 1, 1, 1, 1, 1, 0 } },         /* record route */
    { { 0x94, 4, 0, 0, 7, 3, 4, 0 }, { 0x94, 4, 0, 0, 1, 1, 1, 0 } },   /* router alert */
    { { 1, 1, 68, 5, 5, 0, 9, 0 }, { 1, 1, 1, 1, 1, 1, 1, 0 } },        /* timestamp */
    { { 0x94, 4, 0, 0, 7, 200, 4, 4 }, { 0x94, 4, 0, 0, 1, 1, 1, 1 } }, /* damaged */
    { { 0x94, 0, 0, 0, 7, 3, 4, 0 }, { 1, 1, 1, 1, 1, 1, 1, 1 } },      /* damaged */
    { { 1, 1, 1, 1, 1, 1, 1, 0x94 }, { 1, 1, 1, 1, 1, 1, 1, 1 } },      /* damaged */
  };

  for (guint i = 0; i < G_N_ELEMENTS (cases); i++)
    {
      guint8 frame[NETD_ETHERNET_HEADER + 28 + 3000] = { 0 };
      NetdPacket packet;
      Output output;

      frame[12] = 8;
      frame[14] = 0x47;
      kit_set16 (frame + 16, 28 + 3000);
      frame[23] = 17;
      kit_set16 (frame + 42 + 4, 3000);
      memcpy (frame + 34, cases[i].options, 8);
      check_fragments (frame, sizeof frame, 1500);

      output_init (&output);
      g_assert_cmpuint (netd_segment (frame, sizeof frame, 1500, take, &output), ==, 3);
      parse (&packet, &output, 0);
      g_assert_cmpmem (packet.ip + 20, 8, cases[i].options, 8);
      parse (&packet, &output, 1);
      g_assert_cmpmem (packet.ip + 20, 8, cases[i].later, 8);
      output_clear (&output);
    }
}

static void
test_mss (void)
{
  static const struct
  {
    guint8 options[12];
    guint8 flags;
    guint8 expected[12];
  } cases[] = {
    { { 2, 4, 0x05, 0xb4, 4, 2, 1, 1 }, NETD_TCP_SYN, { 2, 4, 0xff, 0x00, 4, 2, 1, 1 } },
    { { 2, 4, 0x05, 0xb4 }, NETD_TCP_SYN | NETD_TCP_ACK, { 2, 4, 0xff, 0x00 } },
    /* At an odd place, twice, and larger already. */
    { { 1, 2, 4, 0x05, 0xb4, 1, 1, 2, 4, 0x02, 0x18 },
      NETD_TCP_SYN,
      { 1, 2, 4, 0xff, 0, 1, 1, 2, 4, 0xff, 0 } },
    { { 2, 4, 0xff, 0x01 }, NETD_TCP_SYN, { 2, 4, 0xff, 0x01 } },
    /* Not a SYN; none; behind the end; damaged. */
    { { 2, 4, 0x05, 0xb4 }, NETD_TCP_ACK, { 2, 4, 0x05, 0xb4 } },
    { { 4, 2, 1, 1 }, NETD_TCP_SYN, { 4, 2, 1, 1 } },
    { { 0, 2, 4, 0x05, 0xb4 }, NETD_TCP_SYN, { 0, 2, 4, 0x05, 0xb4 } },
    { { 8, 0, 2, 4, 0x05, 0xb4 }, NETD_TCP_SYN, { 8, 0, 2, 4, 0x05, 0xb4 } },
    { { 8, 40, 2, 4, 0x05, 0xb4 }, NETD_TCP_SYN, { 8, 40, 2, 4, 0x05, 0xb4 } },
    /* One of a wrong length is passed over. */
    { { 2, 3, 0x05, 2, 4, 5, 1, 1 }, NETD_TCP_SYN, { 2, 3, 0x05, 2, 4, 0xff, 0x00, 1 } },
    { { 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 4 },
      NETD_TCP_SYN,
      { 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 4 } },
    { { 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2 },
      NETD_TCP_SYN,
      { 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2 } },
  };

  for (guint i = 0; i < G_N_ELEMENTS (cases); i++)
    {
      g_autofree guint8 *buffer = g_malloc (NETD_PACKET_MAX);
      g_autofree guint8 *frame = NULL;
      TestSegment segment = TEST_SEGMENT_INIT;
      NetdPacket packet;
      gsize length;

      segment.flags = cases[i].flags;
      segment.options = cases[i].options;
      segment.options_length = 12;
      length = test_segment_write (&segment, buffer);
      frame = g_memdup2 (buffer, length);
      netd_packet_parse (&packet, frame, length);
      netd_raise_mss (&packet, frame, 0xff00);
      g_test_message ("case %u", i);
      g_assert_cmpmem (packet.transport + 20, 12, cases[i].expected, 12);
      g_assert_true (test_is_sound (&packet));

      /* A damaged one stays damaged. */
      frame[50] ^= 1;
      netd_raise_mss (&packet, frame, 0xffff);
      g_assert_false (test_is_sound (&packet));
    }
}

static void
test_mss_checksums (void)
{
  g_autoptr (GRand) rand = g_rand_new_with_seed (1624);
  g_autofree guint8 *frame = g_malloc (NETD_PACKET_MAX);

  for (guint round = 0; round < 20000; round++)
    {
      guint8 options[8] = { 1, 1, 1, 1, 1, 1, 1, 1 };
      guint at = (guint) g_rand_int_range (rand, 0, 5);
      TestSegment segment = TEST_SEGMENT_INIT;
      NetdPacket packet;
      gsize length;

      options[at] = 2;
      options[at + 1] = 4;
      kit_set16 (options + at + 2, g_rand_int (rand));
      segment.flags = NETD_TCP_SYN;
      segment.options = options;
      segment.options_length = sizeof options;
      segment.sequence = g_rand_int (rand);
      length = test_segment_write (&segment, frame);
      netd_packet_parse (&packet, frame, length);
      netd_raise_mss (&packet, frame, 65480);
      g_assert_true (test_is_sound (&packet));
      g_assert_cmpuint (kit_get16 (packet.transport + 20 + at + 2), ==,
                        MAX (65480, kit_get16 (options + at + 2)));
    }
}

int
main (int argc, char **argv)
{
  g_test_init (&argc, &argv, NULL);
  g_test_add_func ("/netd/segment/tcp", test_tcp);
  g_test_add_func ("/netd/segment/fits", test_fits);
  g_test_add_func ("/netd/segment/stopped", test_stopped);
  g_test_add_func ("/netd/segment/fragments", test_fragments);
  g_test_add_func ("/netd/segment/fragment-options", test_fragment_options);
  g_test_add_func ("/netd/segment/mss", test_mss);
  g_test_add_func ("/netd/segment/mss-checksums", test_mss_checksums);
  return g_test_run ();
}

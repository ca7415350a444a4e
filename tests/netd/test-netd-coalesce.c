/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Merging segments: what is merged and what ends it, that order and bytes are kept, and that
 * nothing damaged is made to look sound. */
#include "netd-offload.h"
#include "tcp-frames.h"

#define MERGED_MAX 65535

typedef struct
{
  GPtrArray *frames; /* GBytes, each of exactly the frame's length */
  NetdCoalescer *coalescer;
  guint8 *frame; /* to write segments into */
} Fixture;

static void
take (const NetdPacket *packet, gpointer user_data)
{
  Fixture *fixture = user_data;
  NetdPacket again;

  /* The view is one of this frame. */
  g_assert_cmpint (netd_packet_parse (&again, packet->frame, packet->length), ==, packet->kind);
  g_assert_true (again.payload == packet->payload);
  g_assert_cmpuint (again.payload_length, ==, packet->payload_length);
  g_ptr_array_add (fixture->frames, g_bytes_new (packet->frame, packet->length));
}

static void
setup (Fixture *fixture, gconstpointer user_data)
{
  fixture->frames = g_ptr_array_new_with_free_func ((GDestroyNotify) g_bytes_unref);
  fixture->coalescer = netd_coalescer_new (take, fixture);
  fixture->frame = g_malloc (NETD_PACKET_MAX);
}

static void
teardown (Fixture *fixture, gconstpointer user_data)
{
  netd_coalescer_free (fixture->coalescer);
  g_ptr_array_unref (fixture->frames);
  g_free (fixture->frame);
}

static void
add_frame (Fixture *fixture, const guint8 *frame, gsize length)
{
  /* The frame is gone right after. */
  g_autofree guint8 *copy = g_memdup2 (frame, length);
  NetdPacket packet;

  netd_packet_parse (&packet, copy, length);
  netd_coalescer_add (fixture->coalescer, &packet);
}

static void
add (Fixture *fixture, const TestSegment *segment)
{
  add_frame (fixture, fixture->frame, test_segment_write (segment, fixture->frame));
}

static void
parse_output (Fixture *fixture, guint index, NetdPacket *packet)
{
  gsize length;
  const guint8 *frame;

  g_assert_cmpuint (index, <, fixture->frames->len);
  frame = g_bytes_get_data (g_ptr_array_index (fixture->frames, index), &length);
  netd_packet_parse (packet, frame, length);
}

/* The output at @index is a sound segment with these bytes. */
static void
assert_output (Fixture *fixture, guint index, guint32 sequence, const guint8 *payload, gsize length)
{
  NetdPacket packet;

  parse_output (fixture, index, &packet);
  g_assert_cmpint (packet.kind, ==, NETD_PACKET_IPV4);
  g_assert_cmpuint (packet.length, ==, NETD_ETHERNET_HEADER + packet.ip_length);
  g_assert_cmpuint (kit_get32 (packet.transport + 4), ==, sequence);
  g_assert_cmpmem (packet.payload, packet.payload_length, payload, length);
  g_assert_true (test_is_sound (&packet));
}

static void
test_merge (Fixture *fixture, gconstpointer user_data)
{
  g_autoptr (GRand) rand = g_rand_new_with_seed (1);
  g_autofree guint8 *payload = test_random_bytes (rand, 5000);
  static const gsize lengths[] = { 1460, 1, 1459, 3, 77, 1000 };
  TestSegment segment = TEST_SEGMENT_INIT;
  NetdPacket packet;
  gsize at = 0;

  segment.sequence = G_MAXUINT32 - 1500; /* over the wrap */
  for (guint i = 0; i < G_N_ELEMENTS (lengths); i++)
    {
      segment.payload = payload + at;
      segment.length = lengths[i];
      segment.flags = NETD_TCP_ACK | (i == 5 ? NETD_TCP_PSH : 0);
      g_assert_cmpuint (fixture->frames->len, ==, 0);
      add (fixture, &segment);
      segment.sequence += (guint32) lengths[i];
      segment.identification++;
      at += lengths[i];
    }

  /* PSH went in, and ended it. */
  g_assert_cmpuint (fixture->frames->len, ==, 1);
  assert_output (fixture, 0, G_MAXUINT32 - 1500, payload, at);
  parse_output (fixture, 0, &packet);
  g_assert_cmphex (packet.tcp_flags, ==, NETD_TCP_ACK | NETD_TCP_PSH);
  g_assert_cmpuint (kit_get16 (packet.ip + 4), ==, 100);
  g_assert_cmpuint (kit_get32 (packet.transport + 8), ==, 77);
  netd_coalescer_flush (fixture->coalescer);
  g_assert_cmpuint (fixture->frames->len, ==, 1);
}

static void
test_single (Fixture *fixture, gconstpointer user_data)
{
  guint8 expected[200];
  TestSegment segment = TEST_SEGMENT_INIT;
  gsize length;

  segment.payload = (const guint8 *) "hello";
  segment.length = 5;
  length = test_segment_write (&segment, expected);
  /* Alone it goes as it came, without the padding. */
  add_frame (fixture, expected, length + 1);
  g_assert_cmpuint (fixture->frames->len, ==, 0);
  netd_coalescer_flush (fixture->coalescer);
  g_assert_cmpuint (fixture->frames->len, ==, 1);
  g_assert_cmpmem (g_bytes_get_data (fixture->frames->pdata[0], NULL),
                   g_bytes_get_size (fixture->frames->pdata[0]), expected, length);

  /* With PSH it does not wait. */
  segment.flags |= NETD_TCP_PSH;
  add (fixture, &segment);
  g_assert_cmpuint (fixture->frames->len, ==, 2);

  /* What is held when the port goes is gone with it. */
  segment.flags = NETD_TCP_ACK;
  add (fixture, &segment);
  g_assert_cmpuint (fixture->frames->len, ==, 2);
}

typedef enum
{
  CHANGE_NOTHING,
  CHANGE_SEQUENCE,
  CHANGE_REPEAT,
  CHANGE_ACKNOWLEDGEMENT,
  CHANGE_WINDOW,
  CHANGE_TOS,
  CHANGE_TTL,
  CHANGE_CUT,
  CHANGE_TIMESTAMP,
  CHANGE_NO_OPTIONS,
  CHANGE_FIN,
  CHANGE_RST,
  CHANGE_SYN,
  CHANGE_URG,
  CHANGE_ECE,
  CHANGE_CWR,
  CHANGE_NO_ACK,
  CHANGE_EMPTY,
  N_CHANGES,
} Change;

static void
change_segment (TestSegment *segment, Change change)
{
  static const guint8 later[] = { 1, 1, 8, 10, 0, 0, 0, 2, 0, 0, 0, 1 };
  static const guint8 flags[N_CHANGES] = {
    [CHANGE_FIN] = NETD_TCP_FIN, [CHANGE_RST] = NETD_TCP_RST, [CHANGE_SYN] = NETD_TCP_SYN,
    [CHANGE_URG] = 0x20,         [CHANGE_ECE] = 0x40,         [CHANGE_CWR] = 0x80,
  };

  segment->flags |= flags[change];
  segment->sequence += change == CHANGE_SEQUENCE ? 1 : 0;
  segment->sequence -= change == CHANGE_REPEAT ? 6 : 0;
  segment->acknowledgement += change == CHANGE_ACKNOWLEDGEMENT ? 1 : 0;
  segment->window += change == CHANGE_WINDOW ? 1 : 0;
  segment->tos |= change == CHANGE_TOS ? 3 : 0;
  segment->ttl -= change == CHANGE_TTL ? 1 : 0;
  segment->may_be_cut = change == CHANGE_CUT;
  if (change == CHANGE_TIMESTAMP)
    segment->options = later;
  if (change == CHANGE_NO_OPTIONS)
    segment->options_length = 0;
  if (change == CHANGE_NO_ACK)
    segment->flags = 0;
  if (change == CHANGE_EMPTY)
    segment->length = 0;
}

/* A second segment that differs in one thing: merged only when in nothing; never out of order. */
static void
test_changes (Fixture *fixture, gconstpointer user_data)
{
  static const guint8 now[] = { 1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 1 };

  for (Change change = CHANGE_NOTHING; change < N_CHANGES; change++)
    {
      TestSegment segment = TEST_SEGMENT_INIT;
      guint passes_at_once = change >= CHANGE_FIN ? 2 : 1;

      g_test_message ("change %d", change);
      g_ptr_array_set_size (fixture->frames, 0);
      segment.options = now;
      segment.options_length = sizeof now;
      segment.payload = (const guint8 *) "first-second";
      segment.length = 6;
      add (fixture, &segment);
      g_assert_cmpuint (fixture->frames->len, ==, 0);

      segment.sequence += 6;
      segment.payload += 6;
      change_segment (&segment, change);
      add (fixture, &segment);
      if (change == CHANGE_NOTHING)
        {
          netd_coalescer_flush (fixture->coalescer);
          g_assert_cmpuint (fixture->frames->len, ==, 1);
          assert_output (fixture, 0, 1000, (const guint8 *) "first-second", 12);
          continue;
        }
      g_assert_cmpuint (fixture->frames->len, ==, passes_at_once);
      netd_coalescer_flush (fixture->coalescer);
      g_assert_cmpuint (fixture->frames->len, ==, 2);
      assert_output (fixture, 0, 1000, (const guint8 *) "first-", 6);
      assert_output (fixture, 1, segment.sequence, segment.payload, segment.length);
    }
}

static void
test_not_merged_fields (Fixture *fixture, gconstpointer user_data)
{
  TestSegment segment = TEST_SEGMENT_INIT;
  gsize length;

  /* Ethernet addresses */
  segment.payload = (const guint8 *) "ab";
  segment.length = 2;
  add (fixture, &segment);
  segment.sequence += 2;
  length = test_segment_write (&segment, fixture->frame);
  fixture->frame[5] ^= 1;
  add_frame (fixture, fixture->frame, length);
  netd_coalescer_flush (fixture->coalescer);
  g_assert_cmpuint (fixture->frames->len, ==, 2);

  /* Other connections: by each of what makes one */
  for (guint i = 0; i < 4; i++)
    {
      TestSegment other = segment;

      g_ptr_array_set_size (fixture->frames, 0);
      add (fixture, &segment);
      other.sequence += 2;
      other.source += i == 0;
      other.destination += i == 1;
      other.source_port += i == 2;
      other.destination_port += i == 3;
      add (fixture, &other);
      g_assert_cmpuint (fixture->frames->len, ==, 0);
      netd_coalescer_flush (fixture->coalescer);
      g_assert_cmpuint (fixture->frames->len, ==, 2);
      assert_output (fixture, 0, segment.sequence, (const guint8 *) "ab", 2);
    }
}

/* A damaged segment comes out as it is: alone, damaged, and in its place. */
static void
test_damaged (Fixture *fixture, gconstpointer user_data)
{
  static const guint places[] = { 14 + 10, 14 + 20 + 16, 14 + 20 + 20, 14 + 20 + 22, 14 + 5 };

  for (guint which = 0; which < 3; which++)
    {
      for (guint i = 0; i < G_N_ELEMENTS (places); i++)
        {
          TestSegment segment = TEST_SEGMENT_INIT;

          g_ptr_array_set_size (fixture->frames, 0);
          segment.payload = (const guint8 *) "abcd";
          segment.length = 4;
          for (guint n = 0; n < 3; n++)
            {
              gsize length = test_segment_write (&segment, fixture->frame);

              if (n == which)
                fixture->frame[places[i]] ^= 0x10;
              add_frame (fixture, fixture->frame, length);
              segment.sequence += 4;
            }
          netd_coalescer_flush (fixture->coalescer);
          g_assert_cmpuint (fixture->frames->len, ==, which == 1 ? 3 : 2);
          for (guint n = 0; n < fixture->frames->len; n++)
            {
              NetdPacket packet;
              gboolean is_damaged = n == (which == 2 ? 1 : which);

              parse_output (fixture, n, &packet);
              g_assert_cmpint (test_is_sound (&packet), ==, !is_damaged);
              g_assert_cmpuint (packet.payload_length, ==, is_damaged || which == 1 ? 4 : 8);
            }
        }
    }
}

static void
test_passed (Fixture *fixture, gconstpointer user_data)
{
  static const guint8 arp[42] = { 2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x08, 0x06 };
  TestSegment segment = TEST_SEGMENT_INIT;
  gsize length;

  segment.payload = (const guint8 *) "12345678";
  segment.length = 4;
  add (fixture, &segment);

  /* What is of no connection passes by. */
  add_frame (fixture, arp, sizeof arp);
  add_frame (fixture, arp, 3);
  g_assert_cmpuint (fixture->frames->len, ==, 2);
  length = test_segment_write (&segment, fixture->frame);
  fixture->frame[23] = 17;
  add_frame (fixture, fixture->frame, length);
  g_assert_cmpuint (fixture->frames->len, ==, 3);
  fixture->frame[23] = 6;
  fixture->frame[20] = 0x20;
  add_frame (fixture, fixture->frame, length);
  g_assert_cmpuint (fixture->frames->len, ==, 4);

  /* IP options: of the connection, and never merged. */
  fixture->frame[20] = 0x40;
  memmove (fixture->frame + 38, fixture->frame + 34, 24);
  memset (fixture->frame + 34, 1, 4);
  fixture->frame[14] = 0x46;
  fixture->frame[17] = 48;
  add_frame (fixture, fixture->frame, length + 4);
  g_assert_cmpuint (fixture->frames->len, ==, 6);
  assert_output (fixture, 4, 1000, (const guint8 *) "1234", 4);
}

/* A merged packet has a largest size; the next one begins where it ended. */
static void
test_largest (Fixture *fixture, gconstpointer user_data)
{
  g_autoptr (GRand) rand = g_rand_new_with_seed (2);
  g_autofree guint8 *payload = test_random_bytes (rand, 100 * 1460);
  TestSegment segment = TEST_SEGMENT_INIT;
  guint fit = (MERGED_MAX - 40) / 1460;

  segment.length = 1460;
  for (guint i = 0; i < 100; i++)
    {
      segment.payload = payload + i * 1460;
      add (fixture, &segment);
      segment.sequence += 1460;
    }
  netd_coalescer_flush (fixture->coalescer);
  g_assert_cmpuint (fixture->frames->len, ==, (100 + fit - 1) / fit);
  assert_output (fixture, 0, 1000, payload, (gsize) fit * 1460);
  assert_output (fixture, 1, 1000 + fit * 1460, payload + fit * 1460, (gsize) fit * 1460);

  /* To the last byte. */
  g_ptr_array_set_size (fixture->frames, 0);
  segment.payload = payload;
  segment.length = 60000;
  add (fixture, &segment);
  segment.sequence += 60000;
  segment.payload += 60000;
  segment.length = 5495;
  add (fixture, &segment);
  segment.sequence += 5495;
  segment.payload += 5495;
  segment.length = 1;
  add (fixture, &segment);
  netd_coalescer_flush (fixture->coalescer);
  g_assert_cmpuint (fixture->frames->len, ==, 2);
  assert_output (fixture, 0, segment.sequence - 65495, payload, 65495);
}

/* More connections than are held: the oldest makes place. */
static void
test_many_connections (Fixture *fixture, gconstpointer user_data)
{
  for (guint round = 0; round < 2; round++)
    {
      for (guint i = 0; i < 20; i++)
        {
          TestSegment segment = TEST_SEGMENT_INIT;

          segment.source_port = (guint16) (1000 + i);
          segment.sequence += round;
          segment.payload = (const guint8 *) "x";
          segment.length = 1;
          add (fixture, &segment);
        }
      netd_coalescer_flush (fixture->coalescer);
      g_assert_cmpuint (fixture->frames->len, ==, 20 * (round + 1));
      for (guint i = 0; i < 20; i++)
        {
          NetdPacket packet;

          parse_output (fixture, round * 20 + i, &packet);
          g_assert_cmpuint (packet.source_port, ==, 1000 + i);
        }
    }
}

/* Two at once do not get in each other's way. */
static void
test_two (Fixture *fixture, gconstpointer user_data)
{
  Fixture other;
  TestSegment segment = TEST_SEGMENT_INIT;

  setup (&other, NULL);
  segment.length = 1;
  for (guint i = 0; i < 6; i++)
    {
      segment.payload = (const guint8 *) "abcdef" + i;
      add (fixture, &segment);
      segment.payload = (const guint8 *) "ABCDEF" + i;
      add (&other, &segment);
      segment.sequence++;
    }
  netd_coalescer_flush (fixture->coalescer);
  netd_coalescer_flush (other.coalescer);
  assert_output (fixture, 0, 1000, (const guint8 *) "abcdef", 6);
  assert_output (&other, 0, 1000, (const guint8 *) "ABCDEF", 6);
  teardown (&other, NULL);
}

typedef struct
{
  Fixture *fixture;
  guint n;
} Feed;

static gboolean
feed (const struct iovec *parts, guint n_parts, gpointer user_data)
{
  Feed *self = user_data;
  g_autoptr (GByteArray) frame = g_byte_array_new ();

  for (guint i = 0; i < n_parts; i++)
    g_byte_array_append (frame, parts[i].iov_base, (guint) parts[i].iov_len);
  add_frame (self->fixture, frame->data, frame->len);
  self->n++;
  return TRUE;
}

/* Cutting and merging are each other's inverse. */
static void
test_round_trip (Fixture *fixture, gconstpointer user_data)
{
  g_autoptr (GRand) rand = g_rand_new_with_seed (3);
  g_autofree guint8 *payload = test_random_bytes (rand, 65535);
  g_autofree guint8 *frame = g_malloc (NETD_PACKET_MAX);

  for (guint round = 0; round < 200; round++)
    {
      TestSegment segment = TEST_SEGMENT_INIT;
      Feed state = { .fixture = fixture };
      guint mtu = (guint) g_rand_int_range (rand, 200, 3000);
      gsize length;

      g_ptr_array_set_size (fixture->frames, 0);
      segment.sequence = g_rand_int (rand);
      segment.flags |= g_rand_boolean (rand) ? NETD_TCP_PSH : 0;
      segment.options = payload;
      segment.options_length = (gsize) g_rand_int_range (rand, 0, 11) * 4;
      segment.payload = payload;
      segment.length = (gsize) g_rand_int_range (rand, 6000, 65535 - 80);
      length = test_segment_write (&segment, frame);
      g_assert_cmpuint (netd_segment (frame, length, mtu, feed, &state), >, 1);
      netd_coalescer_flush (fixture->coalescer);
      g_assert_cmpuint (fixture->frames->len, ==, 1);
      g_assert_cmpmem (g_bytes_get_data (fixture->frames->pdata[0], NULL),
                       g_bytes_get_size (fixture->frames->pdata[0]), frame, length);
    }
}

#define N_CONNECTIONS 12
#define STREAM 40000

/* Several connections with all that happens on them: each receiver has its bytes in order, and
 * everything that is not data too. */
static void
test_mixed (Fixture *fixture, gconstpointer user_data)
{
  g_autoptr (GRand) rand = g_rand_new_with_seed (4);
  g_autofree guint8 *payload = test_random_bytes (rand, STREAM + 3000);
  TestSegment segments[N_CONNECTIONS];
  gsize sent[N_CONNECTIONS] = { 0 };
  gsize received[N_CONNECTIONS] = { 0 };
  guint n_sent = 0;
  guint n_empty = 0;

  for (guint i = 0; i < N_CONNECTIONS; i++)
    {
      TestSegment segment = TEST_SEGMENT_INIT;

      segments[i] = segment;
      segments[i].source_port = (guint16) i;
      segments[i].sequence = 0;
    }
  for (guint round = 0; round < 6000; round++)
    {
      guint which = (guint) g_rand_int_range (rand, 0, N_CONNECTIONS);
      guint burst = (guint) g_rand_int_range (rand, 1, 8);
      TestSegment *segment = &segments[which];

      segment->acknowledgement += g_rand_int_range (rand, 0, 4) == 0;
      for (guint i = 0; i < burst && sent[which] < STREAM; i++)
        {
          segment->sequence = (guint32) sent[which];
          segment->payload = payload + sent[which];
          segment->length = (gsize) g_rand_int_range (rand, 0, 1461);
          segment->flags = NETD_TCP_ACK | (g_rand_int_range (rand, 0, 6) == 0 ? NETD_TCP_PSH : 0);
          n_empty += segment->length == 0;
          n_sent++;
          add (fixture, segment);
          sent[which] += segment->length;
        }
      if (g_rand_int_range (rand, 0, 10) == 0)
        netd_coalescer_flush (fixture->coalescer);
    }
  netd_coalescer_flush (fixture->coalescer);

  g_assert_cmpuint (fixture->frames->len, <, n_sent);
  for (guint i = 0; i < fixture->frames->len; i++)
    {
      NetdPacket packet;
      gsize *at;

      parse_output (fixture, i, &packet);
      at = &received[packet.source_port];
      assert_output (fixture, i, (guint32) *at, payload + *at, packet.payload_length);
      *at += packet.payload_length;
      n_empty -= packet.payload_length == 0;
    }
  g_assert_cmpuint (n_empty, ==, 0);
  for (guint i = 0; i < N_CONNECTIONS; i++)
    {
      g_assert_cmpuint (sent[i], >=, STREAM);
      g_assert_cmpuint (received[i], ==, sent[i]);
    }
}

/* Noise of a hostile guest: nothing is read beyond, and not more comes out than went in. */
static void
test_mutated (Fixture *fixture, gconstpointer user_data)
{
  g_autoptr (GRand) rand = g_rand_new_with_seed (5);
  guint8 payload[64] = { 0 };
  TestSegment segment = TEST_SEGMENT_INIT;
  gsize n_added = 0;

  segment.payload = payload;
  for (guint round = 0; round < 50000; round++)
    {
      guint n_changes = (guint) g_rand_int_range (rand, 0, 4);
      gsize length;

      segment.length = (gsize) g_rand_int_range (rand, 0, 64);
      length = test_segment_write (&segment, fixture->frame);
      for (guint i = 0; i < n_changes; i++)
        fixture->frame[g_rand_int_range (rand, 0, 60)] = (guint8) g_rand_int (rand);
      add_frame (fixture, fixture->frame, (gsize) g_rand_int_range (rand, 1, (gint32) length + 1));
      n_added++;
      segment.sequence += (guint32) segment.length;
      g_assert_cmpuint (fixture->frames->len, <=, n_added);
      if (g_rand_int_range (rand, 0, 30) == 0)
        netd_coalescer_flush (fixture->coalescer);
    }
}

#define ADD(name, func) g_test_add (name, Fixture, NULL, setup, func, teardown)

int
main (int argc, char **argv)
{
  g_test_init (&argc, &argv, NULL);
  ADD ("/netd/coalesce/merge", test_merge);
  ADD ("/netd/coalesce/single", test_single);
  ADD ("/netd/coalesce/changes", test_changes);
  ADD ("/netd/coalesce/not-merged-fields", test_not_merged_fields);
  ADD ("/netd/coalesce/damaged", test_damaged);
  ADD ("/netd/coalesce/passed", test_passed);
  ADD ("/netd/coalesce/largest", test_largest);
  ADD ("/netd/coalesce/many-connections", test_many_connections);
  ADD ("/netd/coalesce/two", test_two);
  ADD ("/netd/coalesce/round-trip", test_round_trip);
  ADD ("/netd/coalesce/mixed", test_mixed);
  ADD ("/netd/coalesce/mutated", test_mutated);
  return g_test_run ();
}

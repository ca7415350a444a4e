/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Fragments: put together whatever their order, and given up when they do not fit. */

#include "netd-reassembly.h"

#include "service-kit.h"
#include "tcp-frames.h"

typedef struct
{
  NetdLoop *loop;
  NetdReassembly *reassembly;
  guint8 data[65536];
  guint8 *frame;
} Fixture;

static void
set_up (Fixture *fixture, gconstpointer data)
{
  fixture->loop = netd_loop_new ();
  netd_loop_turn (fixture->loop, 0);
  fixture->reassembly = netd_reassembly_new (fixture->loop);
  fixture->frame = g_malloc (NETD_PACKET_MAX);
  for (guint i = 0; i < sizeof fixture->data; i++)
    fixture->data[i] = (guint8) (i * 7 + i / 251);
  /* A UDP header for what is all of it. */
  kit_set16 (fixture->data, 1000);
  kit_set16 (fixture->data + 2, 2000);
}

static void
tear_down (Fixture *fixture, gconstpointer data)
{
  netd_reassembly_free (fixture->reassembly);
  netd_loop_free (fixture->loop);
  g_free (fixture->frame);
}

/* @offset and @length in bytes of the payload */
static const NetdPacket *
add (Fixture *fixture, guint16 identification, gsize offset, gsize length, gboolean more)
{
  TestSegment segment = TEST_SEGMENT_INIT;
  guint8 *ip = fixture->frame + NETD_ETHERNET_HEADER;
  NetdPacket packet;

  test_segment_write (&segment, fixture->frame);
  kit_set16 (ip + 2, (guint) (20 + length));
  kit_set16 (ip + 4, identification);
  kit_set16 (ip + 6, (guint) (offset / 8) | (more ? 0x2000 : 0));
  ip[9] = 17;
  kit_set16 (ip + 10, 0);
  kit_set16 (ip + 10, test_checksum (ip, 20, 0));
  memcpy (ip + 20, fixture->data + offset, length);
  if (netd_packet_parse (&packet, fixture->frame, NETD_ETHERNET_HEADER + 20 + length)
      != NETD_PACKET_IPV4)
    return NULL;
  return netd_reassembly_add (fixture->reassembly, &packet);
}

static void
assert_whole (Fixture *fixture, const NetdPacket *whole, gsize length)
{
  g_assert_nonnull (whole);
  g_assert_false (whole->is_fragment);
  g_assert_cmpuint (whole->source_port, ==, 1000);
  g_assert_cmpuint (whole->destination_port, ==, 2000);
  g_assert_cmpmem (whole->transport, whole->transport_length, fixture->data, length);
  g_assert_cmpuint (test_checksum (whole->ip, 20, 0), ==, 0);
  g_assert_cmpuint (whole->ip_destination, ==, NETD_IP (93, 184, 216, 34));
  g_assert_cmpuint (netd_reassembly_get_pending (fixture->reassembly), ==, 0);
}

static void
test_order (Fixture *fixture, gconstpointer data)
{
  kit_set16 (fixture->data + 4, 3001);
  g_assert_null (add (fixture, 1, 0, 1480, TRUE));
  g_assert_null (add (fixture, 1, 1480, 1480, TRUE));
  assert_whole (fixture, add (fixture, 1, 2960, 41, FALSE), 3001);

  g_assert_null (add (fixture, 2, 2960, 41, FALSE));
  g_assert_null (add (fixture, 2, 1480, 1480, TRUE));
  g_assert_null (add (fixture, 2, 1480, 1480, TRUE)); /* a copy does no harm */
  assert_whole (fixture, add (fixture, 2, 0, 1480, TRUE), 3001);
}

static void
test_largest (Fixture *fixture, gconstpointer data)
{
  kit_set16 (fixture->data + 4, 65515);
  g_assert_null (add (fixture, 1, 65000, 515, FALSE));
  for (gsize offset = 0; offset < 65000 - 1000; offset += 1000)
    g_assert_null (add (fixture, 1, offset, 1000, TRUE));
  assert_whole (fixture, add (fixture, 1, 64000, 1000, TRUE), 65515);
  g_assert_null (add (fixture, 2, 65512, 8, FALSE)); /* beyond 65535 */
  g_assert_cmpuint (netd_reassembly_get_pending (fixture->reassembly), ==, 0);
}

/* Interleaved packets, more than there is room for. */
static void
test_many (Fixture *fixture, gconstpointer data)
{
  kit_set16 (fixture->data + 4, 1000);
  for (guint16 i = 0; i < NETD_REASSEMBLY_MAX + 1; i++)
    {
      test_clock_advance (5);
      netd_loop_turn (fixture->loop, 0);
      g_assert_null (add (fixture, i, 0, 800, TRUE));
    }
  g_assert_cmpuint (netd_reassembly_get_pending (fixture->reassembly), ==, NETD_REASSEMBLY_MAX);
  g_assert_nonnull (add (fixture, 1, 800, 200, FALSE));
  g_assert_null (add (fixture, 0, 800, 200, FALSE)); /* the oldest had to go */

  test_clock_advance (NETD_REASSEMBLY_MS + 10);
  netd_loop_turn (fixture->loop, 0);
  g_assert_cmpuint (netd_reassembly_get_pending (fixture->reassembly), ==, 0);
  g_assert_null (add (fixture, 2, 800, 200, FALSE));
}

static void
test_overlap (Fixture *fixture, gconstpointer data)
{
  kit_set16 (fixture->data + 4, 1000);
  g_assert_null (add (fixture, 1, 0, 800, TRUE));
  g_assert_null (add (fixture, 1, 792, 208, FALSE));
  g_assert_cmpuint (netd_reassembly_get_pending (fixture->reassembly), ==, 0);

  /* Two ends that differ. */
  g_assert_null (add (fixture, 2, 800, 200, FALSE));
  g_assert_null (add (fixture, 2, 1600, 200, FALSE));
  g_assert_cmpuint (netd_reassembly_get_pending (fixture->reassembly), ==, 0);

  /* As many blocks as there have to be, but one of them lies behind the end. */
  g_assert_null (add (fixture, 3, 2000, 8, TRUE));
  g_assert_null (add (fixture, 3, 0, 8, TRUE));
  g_assert_null (add (fixture, 3, 16, 8, FALSE));
  g_assert_cmpuint (netd_reassembly_get_pending (fixture->reassembly), ==, 0);
  g_assert_null (add (fixture, 4, 0, 8, TRUE));
  g_assert_null (add (fixture, 4, 16, 8, FALSE));
  g_assert_null (add (fixture, 4, 2000, 8, TRUE));
  g_assert_cmpuint (netd_reassembly_get_pending (fixture->reassembly), ==, 0);
}

int
main (int argc, char *argv[])
{
  g_test_init (&argc, &argv, NULL);
  g_test_add ("/netd/reassembly/order", Fixture, NULL, set_up, test_order, tear_down);
  g_test_add ("/netd/reassembly/largest", Fixture, NULL, set_up, test_largest, tear_down);
  g_test_add ("/netd/reassembly/many", Fixture, NULL, set_up, test_many, tear_down);
  g_test_add ("/netd/reassembly/overlap", Fixture, NULL, set_up, test_overlap, tear_down);
  return g_test_run ();
}

/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The queue of a port: whole frames or none, in order, around its end, no memory for nothing. */

#include "netd-ring.h"

#include <string.h>

static gboolean
push_text (NetdRing *ring, const char *text)
{
  struct iovec part = { (void *) text, strlen (text) };

  return netd_ring_push (ring, &part, 1);
}

/* What is queued, as it would be written. */
static GByteArray *
take (NetdRing *ring, gsize length)
{
  GByteArray *bytes = g_byte_array_new ();
  struct iovec pieces[2];
  guint n = netd_ring_peek (ring, pieces);

  for (guint i = 0; i < n; i++)
    g_byte_array_append (bytes, pieces[i].iov_base, pieces[i].iov_len);
  g_assert_cmpuint (bytes->len, ==, netd_ring_get_used (ring));
  g_byte_array_set_size (bytes, MIN (bytes->len, length));
  netd_ring_consume (ring, bytes->len);
  return bytes;
}

static void
test_framing (void)
{
  struct iovec parts[] = { { (void *) "ab", 2 }, { NULL, 0 }, { (void *) "cde", 3 } };
  g_autoptr (GByteArray) bytes = NULL;
  struct iovec pieces[2];
  NetdRing ring;

  netd_ring_init (&ring, 64);
  g_assert_null (ring.data);
  g_assert_cmpuint (netd_ring_peek (&ring, pieces), ==, 0);
  g_assert_cmpuint (netd_ring_get_room (&ring), ==, 64);
  g_assert_true (netd_ring_push (&ring, parts, 3));
  g_assert_true (push_text (&ring, "x"));
  g_assert_cmpuint (netd_ring_get_used (&ring), ==, 14);
  g_assert_cmpuint (netd_ring_get_room (&ring), ==, 50);
  bytes = take (&ring, 100);
  g_assert_cmpmem (bytes->data, bytes->len, "\0\0\0\5abcde\0\0\0\1x", 14);
  g_assert_cmpuint (netd_ring_get_used (&ring), ==, 0);
  g_assert_cmpuint (ring.head, ==, 0);
  netd_ring_clear (&ring);
}

static void
test_full (void)
{
  NetdRing ring;

  netd_ring_init (&ring, 16);
  g_assert_false (push_text (&ring, "0123456789abc"));
  g_assert_cmpuint (netd_ring_get_used (&ring), ==, 0);
  g_assert_null (ring.data);
  g_assert_true (push_text (&ring, "0123456789ab"));
  g_assert_cmpuint (netd_ring_get_room (&ring), ==, 0);
  g_assert_false (push_text (&ring, ""));
  g_assert_cmpuint (netd_ring_get_used (&ring), ==, 16);
  netd_ring_reset (&ring);
  g_assert_null (ring.data);
  g_assert_cmpuint (netd_ring_get_room (&ring), ==, 16);
  g_assert_true (push_text (&ring, "again"));
  netd_ring_clear (&ring);
}

/* The end of the memory falls on every byte of a frame and of its length; what is taken out in
 * pieces of any size is what went in. */
static void
test_around_the_end (void)
{
  g_autoptr (GByteArray) in = g_byte_array_new ();
  g_autoptr (GByteArray) out = g_byte_array_new ();
  g_autoptr (GRand) rand = g_rand_new_with_seed (1);
  guint pushed = 0;
  guint wrapped = 0;
  NetdRing ring;

  netd_ring_init (&ring, 61);
  while (pushed < 5000)
    {
      guint8 frame[23];
      guint length = g_rand_int_range (rand, 0, sizeof frame + 1);
      guint split = g_rand_int_range (rand, 0, length + 1);
      struct iovec parts[] = { { frame, split }, { frame + split, length - split } };
      struct iovec pieces[2];
      guint32 prefix = GUINT32_TO_BE (length);

      memset (frame, pushed & 0xff, length);
      if (netd_ring_push (&ring, parts, 2))
        {
          g_byte_array_append (in, (guint8 *) &prefix, 4);
          g_byte_array_append (in, frame, length);
          pushed++;
        }
      wrapped += netd_ring_peek (&ring, pieces) == 2;
      if (g_rand_boolean (rand))
        {
          g_autoptr (GByteArray) bytes = take (&ring, g_rand_int_range (rand, 0, 40));

          g_byte_array_append (out, bytes->data, bytes->len);
        }
    }
  while (netd_ring_get_used (&ring) > 0)
    {
      g_autoptr (GByteArray) bytes = take (&ring, 7);

      g_byte_array_append (out, bytes->data, bytes->len);
    }
  g_assert_cmpuint (wrapped, >, 100);
  g_assert_cmpmem (in->data, in->len, out->data, out->len);
  netd_ring_clear (&ring);
}

int
main (int argc, char *argv[])
{
  g_test_init (&argc, &argv, NULL);
  g_test_add_func ("/netd/ring/framing", test_framing);
  g_test_add_func ("/netd/ring/full", test_full);
  g_test_add_func ("/netd/ring/around-the-end", test_around_the_end);
  return g_test_run ();
}

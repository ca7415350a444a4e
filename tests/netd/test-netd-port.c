/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Ports: framing however the bytes come, what a bad length ends and what it does not, peers that do
 * not read, peers that go away, guests that send rubbish. Guests 0, 1 and 2 are the test's.
 */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "frame-lab.h"
#include "lab-host.h"
#include "netd-gateway.h"
#include "private-net.h"
#include "test-clock.h"

#define MTU 1500
#define JUMBO 65520
#define FRAME_MAX (MTU + 14 + 4)

/* Why there is no network to send to, or NULL. */
static char *no_private_net;

typedef struct
{
  FrameLab *lab;
  GPtrArray *got[LAB_GUESTS]; /* GBytes, when they are kept */
  gboolean keeps;
} Fixture;

static void
keep_frame (FrameLab *lab, guint guest, const guint8 *frame, gsize length, gpointer user_data)
{
  Fixture *fixture = user_data;

  if (fixture->keeps)
    g_ptr_array_add (fixture->got[guest], g_bytes_new (frame, length));
}

static void
set_up (Fixture *fixture, gconstpointer data)
{
  fixture->lab = frame_lab_new (GPOINTER_TO_UINT (data) == JUMBO ? JUMBO : MTU);
  fixture->keeps = TRUE;
  for (guint i = 0; i < LAB_GUESTS; i++)
    fixture->got[i] = g_ptr_array_new_with_free_func ((GDestroyNotify) g_bytes_unref);
  fixture->lab->frame_func = keep_frame;
  fixture->lab->user_data = fixture;
}

static void
tear_down (Fixture *fixture, gconstpointer data)
{
  frame_lab_free (fixture->lab);
  for (guint i = 0; i < LAB_GUESTS; i++)
    g_ptr_array_unref (fixture->got[i]);
}

/* --- Helpers --- */

static void
make_frame (FrameLab *lab, guint from, guint to, guint16 port, gsize length, KitFrame *frame)
{
  guint8 payload[KIT_FRAME_MAX];

  memset (payload, port & 0xff, sizeof payload);
  kit_udp (frame, &lab->guests[from].self, &lab->guests[to].self, 1000, port, payload,
           length - 14 - 20 - 8);
  g_assert_cmpuint (frame->length, ==, length);
}

static void
append_framed (GByteArray *bytes, const KitFrame *frame)
{
  guint8 prefix[4];

  kit_set32 (prefix, (guint32) frame->length);
  g_byte_array_append (bytes, prefix, 4);
  g_byte_array_append (bytes, frame->data, frame->length);
}

static void
assert_got (Fixture *fixture, guint guest, guint index, const KitFrame *frame)
{
  gconstpointer data;
  gsize length;

  g_assert_cmpuint (index, <, fixture->got[guest]->len);
  data = g_bytes_get_data (g_ptr_array_index (fixture->got[guest], index), &length);
  g_assert_cmpmem (data, length, frame->data, frame->length);
}

static void
send_bytes (Fixture *fixture, guint guest, const void *bytes, gsize length)
{
  g_assert_cmpint (send (fixture->lab->guests[guest].fd, bytes, length, MSG_NOSIGNAL), ==, length);
}

/* As much of @frame, again and again, as the stream takes. */
static guint
fill_stream (FrameLab *lab, guint guest, const KitFrame *frame)
{
  g_autoptr (GByteArray) bytes = g_byte_array_new ();
  guint n = 0;

  append_framed (bytes, frame);
  while (TRUE)
    {
      gssize sent = send (lab->guests[guest].fd, bytes->data, bytes->len, MSG_NOSIGNAL);

      if (sent < 0)
        {
          g_assert_cmpint (errno, ==, EAGAIN);
          return n;
        }
      /* Small messages go in whole. */
      g_assert_cmpint (sent, ==, bytes->len);
      n++;
    }
}

static gboolean
is_down (FrameLab *lab, gpointer data)
{
  return !netd_port_is_connected (lab->guests[GPOINTER_TO_UINT (data)].port);
}

static gboolean
is_up (FrameLab *lab, gpointer data)
{
  return netd_port_is_connected (lab->guests[GPOINTER_TO_UINT (data)].port);
}

/* Answers only when everything before it is through, as frames keep their order. */
static void
assert_alive (Fixture *fixture, guint from, guint to)
{
  FrameLab *lab = fixture->lab;
  guint before = lab->guests[to].n_received;
  KitFrame frame;

  make_frame (lab, from, to, 9, 60, &frame);
  frame_lab_send (lab, from, &frame);
  for (guint i = 0; i < 1000 && lab->guests[to].n_received == before; i++)
    {
      test_clock_advance (5);
      frame_lab_turn (lab, 1);
    }
  g_assert_cmpuint (lab->guests[to].n_received, ==, before + 1);
}

/* --- Framing --- */

static void
test_every_split (Fixture *fixture, gconstpointer data)
{
  g_autoptr (GByteArray) bytes = g_byte_array_new ();
  KitFrame first;
  KitFrame second;

  make_frame (fixture->lab, 0, 1, 1, 61, &first);
  make_frame (fixture->lab, 0, 1, 2, 42, &second);
  append_framed (bytes, &first);
  append_framed (bytes, &second);
  for (guint split = 1; split < bytes->len; split++)
    {
      g_ptr_array_set_size (fixture->got[1], 0);
      send_bytes (fixture, 0, bytes->data, split);
      frame_lab_turn (fixture->lab, 2);
      send_bytes (fixture, 0, bytes->data + split, bytes->len - split);
      frame_lab_turn (fixture->lab, 2);
      g_assert_cmpuint (fixture->got[1]->len, ==, 2);
      assert_got (fixture, 1, 0, &first);
      assert_got (fixture, 1, 1, &second);
    }
}

static void
test_byte_by_byte (Fixture *fixture, gconstpointer data)
{
  g_autoptr (GByteArray) bytes = g_byte_array_new ();
  KitFrame frames[3];

  for (guint i = 0; i < 3; i++)
    {
      make_frame (fixture->lab, 0, 2, i, i == 1 ? FRAME_MAX - 4 : 50, &frames[i]);
      append_framed (bytes, &frames[i]);
    }
  for (guint i = 0; i < bytes->len; i++)
    {
      send_bytes (fixture, 0, bytes->data + i, 1);
      frame_lab_turn (fixture->lab, 1);
    }
  frame_lab_turn (fixture->lab, 1);
  g_assert_cmpuint (fixture->got[2]->len, ==, 3);
  for (guint i = 0; i < 3; i++)
    assert_got (fixture, 2, i, &frames[i]);
}

/* Many frames of any size in writes of any size: all arrive, in order, and are counted. */
static void
test_batches (Fixture *fixture, gconstpointer data)
{
  g_autoptr (GByteArray) bytes = g_byte_array_new ();
  g_autofree KitFrame *frames = g_new (KitFrame, 2000);
  FrameLab *lab = fixture->lab;
  guint64 received = frame_lab_count (lab, 0, NETD_COUNT_BYTES_RECEIVED);
  guint64 sent = frame_lab_count (lab, 1, NETD_COUNT_BYTES_SENT);
  guint64 network = lab->counters.counts[NETD_COUNT_BYTES_RECEIVED];
  gsize at = 0;

  for (guint i = 0; i < 2000; i++)
    {
      make_frame (lab, 0, 1, 5000 + i, g_test_rand_int_range (42, FRAME_MAX - 3), &frames[i]);
      append_framed (bytes, &frames[i]);
    }
  while (at < bytes->len)
    {
      gsize length = g_test_rand_int_range (1, 100000);
      gssize n
          = send (lab->guests[0].fd, bytes->data + at, MIN (bytes->len - at, length), MSG_NOSIGNAL);

      at += n > 0 ? n : 0;
      frame_lab_turn (lab, 1);
    }
  for (guint i = 0; i < 1000 && fixture->got[1]->len < 2000; i++)
    frame_lab_turn (lab, 1);
  g_assert_cmpuint (fixture->got[1]->len, ==, 2000);
  for (guint i = 0; i < 2000; i++)
    assert_got (fixture, 1, i, &frames[i]);
  g_assert_cmpuint (frame_lab_count (lab, 0, NETD_COUNT_FRAMES_RECEIVED), ==, 2000);
  g_assert_cmpuint (frame_lab_count (lab, 1, NETD_COUNT_FRAMES_SENT), ==, 2000);
  g_assert_cmpuint (frame_lab_count (lab, 0, NETD_COUNT_BYTES_RECEIVED) - received, ==, bytes->len);
  g_assert_cmpuint (frame_lab_count (lab, 1, NETD_COUNT_BYTES_SENT) - sent, ==, bytes->len);
  g_assert_cmpuint (lab->counters.counts[NETD_COUNT_BYTES_RECEIVED] - network, ==, bytes->len);
  g_assert_cmpuint (frame_lab_count (lab, 1, NETD_COUNT_QUEUE_FULL), ==, 0);
}

/* The frame before a length that cannot be right counts; the stream ends; the others notice
 * nothing. */
static void
test_bad_lengths (Fixture *fixture, gconstpointer data)
{
  static const guint32 lengths[]
      = { 0, 1, 13, FRAME_MAX + 1, 65536, 131072, 131073, 0x7fffffff, 0x80000000, 0xffffffff };
  FrameLab *lab = fixture->lab;

  for (guint i = 0; i < G_N_ELEMENTS (lengths); i++)
    {
      g_autoptr (GByteArray) bytes = g_byte_array_new ();
      KitFrame frame;
      guint8 prefix[4];
      guint8 junk[40] = { 0 };

      g_ptr_array_set_size (fixture->got[1], 0);
      make_frame (lab, 0, 1, i, 60, &frame);
      append_framed (bytes, &frame);
      kit_set32 (prefix, lengths[i]);
      g_byte_array_append (bytes, prefix, 4);
      g_byte_array_append (bytes, junk, sizeof junk);
      send_bytes (fixture, 0, bytes->data, bytes->len);
      frame_lab_turn (lab, 3);
      g_assert_false (netd_port_is_connected (lab->guests[0].port));
      g_assert_cmpuint (frame_lab_count (lab, 0, NETD_COUNT_BAD_LENGTH), ==, i + 1);
      g_assert_cmpuint (fixture->got[1]->len, ==, 1);
      assert_got (fixture, 1, 0, &frame);
      g_assert_true (netd_port_is_connected (lab->guests[1].port));
      assert_alive (fixture, 2, 1);
      frame_lab_await (lab, is_up, GUINT_TO_POINTER (0));
      assert_alive (fixture, 0, 1);
    }
}

/* The least and the most that there can be. The latter has room for a VLAN tag, which leads nowhere
 * but is no reason to end the connection. */
static void
test_good_lengths (Fixture *fixture, gconstpointer data)
{
  static const gsize lengths[] = { 14, 15, FRAME_MAX - 4, FRAME_MAX };
  FrameLab *lab = fixture->lab;

  for (guint i = 0; i < G_N_ELEMENTS (lengths); i++)
    {
      KitFrame frame = { .length = lengths[i] };

      memcpy (frame.data, lab->guests[1].self.mac.octets, 6);
      memcpy (frame.data + 6, lab->guests[0].self.mac.octets, 6);
      kit_set16 (frame.data + 12, 0x8100);
      frame_lab_send (lab, 0, &frame);
      frame_lab_turn (lab, 2);
      g_assert_cmpuint (frame_lab_count (lab, 0, NETD_COUNT_UNSUPPORTED), ==, i + 1);
      g_assert_true (netd_port_is_connected (lab->guests[0].port));
    }
  g_assert_cmpuint (frame_lab_count (lab, 0, NETD_COUNT_BAD_LENGTH), ==, 0);
  g_assert_cmpuint (fixture->got[1]->len, ==, 0);
}

/* --- Peers that do not read --- */

static void
test_never_reading (Fixture *fixture, gconstpointer data)
{
  FrameLab *lab = fixture->lab;
  KitFrame to_stuck;
  KitFrame to_other;
  gsize allocated;
  guint64 before;

  fixture->keeps = FALSE;
  lab->guests[1].is_stuck = TRUE;
  make_frame (lab, 0, 1, 1, MTU + 14, &to_stuck);
  make_frame (lab, 0, 2, 2, MTU + 14, &to_other);
  for (guint i = 0; i < 500; i++)
    frame_lab_send (lab, 0, &to_stuck);
  g_assert_cmpuint (frame_lab_count (lab, 1, NETD_COUNT_QUEUE_FULL), >, 0);
  allocated = frame_lab_get_allocated ();
  for (guint i = 0; i < 3000; i++)
    {
      frame_lab_send (lab, 0, &to_stuck);
      frame_lab_send (lab, 0, &to_other);
    }
  for (guint i = 0; i < 1000 && lab->guests[2].n_received < 3000; i++)
    {
      test_clock_advance (5);
      frame_lab_turn (lab, 1);
    }
  g_assert_cmpuint (lab->guests[2].n_received, ==, 3000);
  g_assert_cmpuint (frame_lab_count (lab, 2, NETD_COUNT_QUEUE_FULL), ==, 0);
  g_assert_cmpuint (frame_lab_count (lab, 1, NETD_COUNT_QUEUE_FULL), >, 3000);
  g_assert_cmpuint (frame_lab_get_allocated (), <, allocated + 256 * 1024);
  /* What it gets when it reads again are whole frames. */
  before = frame_lab_count (lab, 1, NETD_COUNT_FRAMES_SENT);
  lab->guests[1].is_stuck = FALSE;
  for (guint i = 0; i < 1000 && lab->guests[1].n_received < before; i++)
    frame_lab_turn (lab, 1);
  g_assert_cmpuint (lab->guests[1].n_received, ==, before);
  assert_alive (fixture, 0, 1);
}

/* More at once than other guests may queue: a stream that takes it loses nothing. */
static void
test_burst (Fixture *fixture, gconstpointer data)
{
  FrameLab *lab = fixture->lab;
  KitFrame frame;

  for (guint i = 0; i < 120; i++)
    {
      make_frame (lab, 0, 1, 5000 + i, MTU + 14, &frame);
      frame_lab_inject (lab, 0, frame.data, frame.length);
    }
  for (guint i = 0; i < 100 && fixture->got[1]->len < 120; i++)
    frame_lab_turn (lab, 1);
  g_assert_cmpuint (fixture->got[1]->len, ==, 120);
  assert_got (fixture, 1, 119, &frame);
  g_assert_cmpuint (frame_lab_count (lab, 1, NETD_COUNT_QUEUE_FULL), ==, 0);
}

/* A datagram of the gateway's that makes 28 frames. */
static void
send_from_gateway (FrameLab *lab, guint guest)
{
  g_autofree guint8 *payload = g_malloc0 (40000);
  g_autofree guint8 *frame = g_malloc (NETD_PACKET_MAX);
  const NetdUdpAddress address = {
    .source_mac = lab->gateway.mac,
    .destination_mac = lab->guests[guest].self.mac,
    .source = lab->gateway.ip,
    .destination = lab->guests[guest].self.ip,
    .source_port = 1,
    .destination_port = 2,
  };
  gsize length = netd_packet_build_udp (frame, NETD_PACKET_MAX, &address, payload, 40000);

  g_assert_cmpuint (length, ==, 14 + 20 + 8 + 40000);
  g_assert_true (netd_port_send (lab->guests[guest].port, frame, length, NETD_ORIGIN_GATEWAY));
}

/* Other guests can take half of a queue: what comes from the gateway still has room. */
static void
test_room_for_gateway (Fixture *fixture, gconstpointer data)
{
  FrameLab *lab = fixture->lab;
  KitFrame flood;
  guint64 sent;

  lab->guests[1].is_stuck = TRUE;
  make_frame (lab, 0, 1, 1, MTU + 14, &flood);
  for (guint i = 0; i < 1000; i++)
    frame_lab_send (lab, 0, &flood);
  g_assert_cmpuint (frame_lab_count (lab, 1, NETD_COUNT_QUEUE_FULL), >, 100);
  sent = frame_lab_count (lab, 1, NETD_COUNT_FRAMES_SENT);
  send_from_gateway (lab, 1);
  send_from_gateway (lab, 1);
  lab->guests[1].is_stuck = FALSE;
  for (guint i = 0; i < 1000 && lab->guests[1].n_received < sent + 2 * 28; i++)
    frame_lab_turn (lab, 1);
  g_assert_cmpuint (lab->guests[1].n_received, ==, sent + 2 * 28);
}

/* 600 datagrams go out and come back to a guest that does not read. */
static void
ask_outside_while_stuck (FrameLab *lab, LabHost *host)
{
  KitPeer outside = { lab->gateway.mac, NETD_IP (203, 0, 113, 7) };
  guint64 datagrams = lab_host_get_datagrams (host);
  guint8 payload[1400] = { 0 };
  KitFrame frame;

  lab->guests[0].is_stuck = TRUE;
  for (guint i = 0; i < 600; i++)
    {
      kit_udp (&frame, &lab->guests[0].self, &outside, 2000 + i % 10, 7, payload, sizeof payload);
      frame_lab_send (lab, 0, &frame);
      frame_lab_turn (lab, 1);
      lab_host_turn (host);
    }
  for (guint i = 0; i < 100; i++)
    {
      frame_lab_turn (lab, 1);
      lab_host_turn (host);
    }
  g_assert_cmpuint (lab_host_get_datagrams (host), ==, datagrams + 600);
}

/* The gateway waits with what comes from outside while the queue is nearly full: more comes back
 * than queue and stream hold, and nothing is lost. Then it goes on, and can wait again. */
static void
test_gateway_waits (Fixture *fixture, gconstpointer data)
{
  FrameLab *lab = fixture->lab;
  g_autoptr (LabHost) host = NULL;

  if (no_private_net != NULL)
    {
      g_test_skip (no_private_net);
      return;
    }
  host = lab_host_new ();
  for (guint round = 1; round <= 2; round++)
    {
      ask_outside_while_stuck (lab, host);
      g_assert_cmpuint (frame_lab_count (lab, 0, NETD_COUNT_FRAMES_SENT), <, round * 600);
      lab->guests[0].is_stuck = FALSE;
      for (guint i = 0; i < 1000 && lab->guests[0].n_received < round * 600; i++)
        frame_lab_turn (lab, 1);
      g_assert_cmpuint (lab->guests[0].n_received, ==, round * 600);
      g_assert_cmpuint (frame_lab_count (lab, 0, NETD_COUNT_QUEUE_FULL), ==, 0);
    }
}

/* A stream that takes a little at a time: every call writes a part of a frame. */
static void
test_partial_writes (Fixture *fixture, gconstpointer data)
{
  FrameLab *lab = fixture->lab;
  g_autoptr (GByteArray) expected = g_byte_array_new ();
  g_autoptr (GByteArray) got = g_byte_array_new ();
  guint8 bytes[777];
  int small = 1;
  int fds[2];

  g_assert_cmpint (socketpair (AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds), ==, 0);
  g_assert_cmpint (setsockopt (fds[0], SOL_SOCKET, SO_SNDBUF, &small, sizeof small), ==, 0);
  netd_port_set_stream (lab->guests[1].port, fds[0]);
  for (guint i = 0; i < 100; i++)
    {
      KitFrame frame;

      make_frame (lab, 0, 1, 5000 + i, g_test_rand_int_range (42, MTU + 14), &frame);
      append_framed (expected, &frame);
      frame_lab_send (lab, 0, &frame);
    }
  g_assert_cmpuint (frame_lab_count (lab, 1, NETD_COUNT_QUEUE_FULL), ==, 0);
  for (guint i = 0; i < 10000 && got->len < expected->len; i++)
    {
      gssize n;

      frame_lab_turn (lab, 1);
      n = recv (fds[1], bytes, sizeof bytes, 0);
      if (n > 0)
        g_byte_array_append (got, bytes, n);
    }
  g_assert_cmpmem (got->data, got->len, expected->data, expected->len);
  close (fds[1]);
}

/* What goes past the queue as well: large frames among small ones, of which the stream takes a part
 * of the frame, or of what is queued before it. */
static void
test_partial_writes_of_large (Fixture *fixture, gconstpointer data)
{
  FrameLab *lab = fixture->lab;
  g_autoptr (GByteArray) expected = g_byte_array_new ();
  g_autoptr (GByteArray) got = g_byte_array_new ();
  g_autofree guint8 *bytes = g_malloc (JUMBO + 14);
  int sizes[] = { 1, 20000, 150000 };
  guint n_sent = 0;
  int fds[2];

  g_assert_cmpint (socketpair (AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds), ==, 0);
  netd_port_set_stream (lab->guests[1].port, fds[0]);
  while (n_sent < 300 || got->len < expected->len)
    {
      int size = sizes[g_test_rand_int_range (0, G_N_ELEMENTS (sizes))];
      gssize n;

      g_assert_cmpint (setsockopt (fds[0], SOL_SOCKET, SO_SNDBUF, &size, sizeof size), ==, 0);
      for (guint i = 0; i < 3 && n_sent < 300 && expected->len - got->len < 400000; i++, n_sent++)
        {
          guint32 length = g_test_rand_int_range (42, g_test_rand_bit () ? 100 : JUMBO + 14);
          guint32 prefix = GUINT32_TO_BE (length);

          memset (bytes, n_sent & 0xff, length);
          g_byte_array_append (expected, (guint8 *) &prefix, 4);
          g_byte_array_append (expected, bytes, length);
          g_assert_true (
              netd_port_send (lab->guests[1].port, bytes, length, NETD_ORIGIN_GATEWAY));
        }
      frame_lab_turn (lab, 1);
      n = recv (fds[1], bytes, g_test_rand_int_range (1, JUMBO), 0);
      if (n > 0)
        g_byte_array_append (got, bytes, n);
    }
  g_assert_cmpmem (got->data, got->len, expected->data, expected->len);
  g_assert_cmpuint (frame_lab_count (lab, 1, NETD_COUNT_FRAMES_SENT), ==, 300);
  g_assert_cmpuint (frame_lab_count (lab, 1, NETD_COUNT_BYTES_SENT), ==, expected->len);
  close (fds[1]);
}

/* --- Frames that are too large for the guest --- */

static void
test_cut_to_mtu (Fixture *fixture, gconstpointer data)
{
  FrameLab *lab = fixture->lab;

  send_from_gateway (lab, 0);
  frame_lab_turn (lab, 2);
  /* 1480 bytes in each; the lab looks at their sizes. */
  g_assert_cmpuint (fixture->got[0]->len, ==, 28);
  g_assert_cmpuint (frame_lab_count (lab, 0, NETD_COUNT_FRAMES_SENT), ==, 28);
}

/* The same in a network that carries it whole; and the largest frame, in pieces. */
static void
test_jumbo (Fixture *fixture, gconstpointer data)
{
  g_autofree guint8 *bytes = g_malloc0 (4 + JUMBO + 14);
  KitFrame frame;

  send_from_gateway (fixture->lab, 0);
  make_frame (fixture->lab, 0, 1, 1, 60, &frame);
  kit_set32 (bytes, JUMBO + 14);
  memcpy (bytes + 4, frame.data, frame.length);
  send_bytes (fixture, 0, bytes, 30000);
  frame_lab_turn (fixture->lab, 2);
  g_assert_cmpuint (fixture->got[0]->len, ==, 1);
  g_assert_cmpuint (fixture->got[1]->len, ==, 0);
  send_bytes (fixture, 0, bytes + 30000, 4 + JUMBO + 14 - 30000);
  frame_lab_turn (fixture->lab, 5);
  g_assert_cmpuint (fixture->got[1]->len, ==, 1);
}

/* --- Guests that send rubbish --- */

/* Sends 96 KiB of @frame at a time and turns the loop, @turns times. */
static void
pump (FrameLab *lab, const KitFrame *frame, guint turns,
      void (*func) (FrameLab *lab, gpointer data), gpointer data)
{
  g_autoptr (GByteArray) bytes = g_byte_array_new ();
  gsize at = 0;

  while (bytes->len < 96 * 1024)
    append_framed (bytes, frame);
  for (guint i = 0; i < turns || at > 0; i++)
    {
      gssize n = send (lab->guests[0].fd, bytes->data + at, bytes->len - at, MSG_NOSIGNAL);

      g_assert_true (n > 0 || errno == EAGAIN);
      at = (at + MAX (n, 0)) % bytes->len;
      frame_lab_turn (lab, 1);
      func (lab, data);
    }
}

typedef struct
{
  guint64 bytes;
  guint64 frames;
  guint64 most_bytes;
  guint64 most_frames;
} Turns;

static void
watch_turn (FrameLab *lab, gpointer data)
{
  guint64 bytes = frame_lab_count (lab, 0, NETD_COUNT_BYTES_RECEIVED);
  guint64 frames = frame_lab_count (lab, 0, NETD_COUNT_FRAMES_RECEIVED);
  Turns *turns = data;

  turns->most_bytes = MAX (turns->most_bytes, bytes - turns->bytes);
  turns->most_frames = MAX (turns->most_frames, frames - turns->frames);
  turns->bytes = bytes;
  turns->frames = frames;
}

/* How much is read in a turn follows what was in it: much of large frames, few of small ones. */
static void
test_quantum (Fixture *fixture, gconstpointer data)
{
  FrameLab *lab = fixture->lab;
  Turns turns = { 0 };
  KitFrame frame;

  fixture->keeps = FALSE;
  make_frame (lab, 0, 2, 5, MTU + 14, &frame);
  pump (lab, &frame, 50, watch_turn, &turns);
  g_assert_cmpuint (turns.most_bytes, >, 80 * 1024);
  /* It takes a few turns to find out. */
  make_frame (lab, 0, 2, 5, 60, &frame);
  pump (lab, &frame, 20, watch_turn, &turns);
  turns.most_frames = 0;
  pump (lab, &frame, 50, watch_turn, &turns);
  g_assert_cmpuint (turns.most_frames, >, 100);
  g_assert_cmpuint (turns.most_frames, <, 600);
  g_assert_true (netd_port_is_connected (lab->guests[0].port));
}

typedef enum
{
  WASTE_SPOOFED,  /* refused by the guard */
  WASTE_TO_MANY,  /* broadcasts: work for each port */
  WASTE_TO_STUCK, /* to a queue that is full */
  WASTE_STRAY,    /* segments that the engine answers with a reset */
} Waste;

static void
make_waste (FrameLab *lab, Waste waste, KitFrame *frame)
{
  KitPeer everybody = { KIT_BROADCAST_MAC, LAB_BROADCAST };
  KitPeer outside = { lab->gateway.mac, NETD_IP (203, 0, 113, 7) };
  KitTcp stray = { .source_port = 1, .destination_port = 2, .flags = NETD_TCP_ACK };

  if (waste == WASTE_SPOOFED)
    kit_udp (frame, &lab->guests[1].self, &lab->guests[2].self, 1, 2, "x", 1);
  else if (waste == WASTE_TO_MANY)
    kit_udp (frame, &lab->guests[0].self, &everybody, 1, 2, "x", 1);
  else if (waste == WASTE_STRAY)
    kit_tcp (frame, &lab->guests[0].self, &outside, &stray, "x", 1);
  else
    make_frame (lab, 0, 1, 1, 500, frame);
}

/* However much there is to read: rubbish is taken at a rate only, and what one port wastes costs
 * the others nothing. */
static void
test_waste_is_rationed (Fixture *fixture, gconstpointer data)
{
  FrameLab *lab = fixture->lab;
  Waste waste = GPOINTER_TO_UINT (data);
  gint64 begin = g_get_monotonic_time ();
  guint64 written = 0;
  guint64 taken;
  gint64 elapsed;
  KitFrame frame;

  fixture->keeps = FALSE;
  lab->guests[1].is_stuck = waste == WASTE_TO_STUCK;
  make_waste (lab, waste, &frame);
  for (guint i = 0; i < 2000; i++)
    {
      written += fill_stream (lab, 0, &frame);
      test_clock_advance (1);
      frame_lab_turn (lab, 1);
    }
  elapsed = (g_get_monotonic_time () - begin) / 1000;
  taken = frame_lab_count (lab, 0, NETD_COUNT_FRAMES_RECEIVED);
  g_assert_cmpuint (taken, >, 1000);
  /* The allowance, its refills, and what a last read or a queue took besides. */
  g_assert_cmpuint (taken, <, 5000 / 3 + 25 * elapsed + 2000);
  lab->guests[1].is_stuck = FALSE;
  frame_lab_turn (lab, 20);
  assert_alive (fixture, 1, 2);
  /* It is only made to wait. */
  g_assert_true (netd_port_is_connected (lab->guests[0].port));
  for (guint i = 0; i < 5000 && frame_lab_count (lab, 0, NETD_COUNT_FRAMES_RECEIVED) < written; i++)
    {
      test_clock_advance (10);
      frame_lab_turn (lab, 1);
    }
  assert_alive (fixture, 0, 2);
}

/* Until no more of it is taken. */
static void
make_rest (FrameLab *lab, guint guest)
{
  KitFrame runt = { .length = 14 };
  guint64 before;

  do
    {
      before = frame_lab_count (lab, guest, NETD_COUNT_FRAMES_RECEIVED);
      fill_stream (lab, guest, &runt);
      frame_lab_turn (lab, 1);
    }
  while (frame_lab_count (lab, guest, NETD_COUNT_FRAMES_RECEIVED) > before);
}

/* A peer that goes, or comes, while the port is not read. */
static void
test_resting_port_is_left (Fixture *fixture, gconstpointer data)
{
  FrameLab *lab = fixture->lab;
  KitFrame frame;
  int fds[2];

  make_rest (lab, 0);
  close (lab->guests[0].fd);
  lab->guests[0].fd = -1;
  frame_lab_await (lab, is_down, GUINT_TO_POINTER (0));
  frame_lab_await (lab, is_up, GUINT_TO_POINTER (0));

  make_rest (lab, 0);
  g_assert_cmpint (socketpair (AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds), ==, 0);
  netd_port_set_stream (lab->guests[0].port, fds[0]);
  close (lab->guests[0].fd);
  lab->guests[0].fd = fds[1];
  make_frame (lab, 0, 1, 5000, 60, &frame);
  frame_lab_send (lab, 0, &frame);
  frame_lab_turn (lab, 3);
  g_assert_cmpuint (fixture->got[1]->len, ==, 1);
}

/* --- Connections that end --- */

static void
test_dials_again (Fixture *fixture, gconstpointer data)
{
  FrameLab *lab = fixture->lab;
  KitFrame frame;
  int old = lab->guests[1].fd;

  /* Half a frame is under way in both directions: nothing of it may be seen on the new stream. */
  lab->guests[1].is_stuck = TRUE;
  make_frame (lab, 0, 1, 1, MTU + 14, &frame);
  for (guint i = 0; i < 300; i++)
    frame_lab_send (lab, 0, &frame);
  send_bytes (fixture, 1, "\0\0\1", 3);
  frame_lab_turn (lab, 2);
  close (old);
  lab->guests[1].fd = -1;
  g_byte_array_set_size (lab->guests[1].inbox, 0);
  frame_lab_await (lab, is_down, GUINT_TO_POINTER (1));
  g_assert_false (
      netd_port_send (lab->guests[1].port, frame.data, frame.length, NETD_ORIGIN_GATEWAY));
  lab->guests[1].is_stuck = FALSE;
  frame_lab_await (lab, is_up, GUINT_TO_POINTER (1));
  assert_alive (fixture, 0, 1);
  assert_alive (fixture, 1, 0);
}

static guint
count_flows (FrameLab *lab, guint guest)
{
  return netd_engine_get_flows (
      netd_gateway_get_engine (netd_port_get_gateway (lab->guests[guest].port)));
}

/* A guest that is switched off takes its flows with it, so that the next one begins with none. */
static void
test_flows_end (Fixture *fixture, gconstpointer data)
{
  FrameLab *lab = fixture->lab;
  KitPeer outside = { lab->gateway.mac, NETD_IP (203, 0, 113, 7) };
  g_autoptr (LabHost) host = NULL;
  KitFrame frame;

  if (no_private_net != NULL)
    {
      g_test_skip (no_private_net);
      return;
    }
  host = lab_host_new ();
  for (guint i = 0; i < 20; i++)
    {
      kit_udp (&frame, &lab->guests[0].self, &outside, 2000 + i, 7, "x", 1);
      frame_lab_send (lab, 0, &frame);
    }
  frame_lab_turn (lab, 3);
  g_assert_cmpuint (count_flows (lab, 0), ==, 20);
  close (lab->guests[0].fd);
  lab->guests[0].fd = -1;
  frame_lab_await (lab, is_down, GUINT_TO_POINTER (0));
  g_assert_cmpuint (count_flows (lab, 0), ==, 0);
  frame_lab_await (lab, is_up, GUINT_TO_POINTER (0));
  frame_lab_send (lab, 0, &frame);
  frame_lab_turn (lab, 3);
  g_assert_cmpuint (count_flows (lab, 0), ==, 1);
}

static void
count_changes (NetdPort *port, gpointer user_data)
{
  guint *changes = user_data;

  changes[netd_port_is_connected (port)]++;
}

/* A peer that ends each connection at once is dialled once a second, not in a loop. */
static void
test_pause_between_dials (Fixture *fixture, gconstpointer data)
{
  FrameLab *lab = fixture->lab;
  guint changes[2] = { 0 };
  gint64 begin = g_get_monotonic_time ();
  gint64 elapsed;

  netd_network_set_port_func (lab->network, count_changes, changes);
  for (guint i = 0; i < 1000; i++)
    {
      if (lab->guests[0].fd >= 0)
        close (lab->guests[0].fd);
      lab->guests[0].fd = -1;
      test_clock_advance (10);
      frame_lab_turn (lab, 1);
    }
  elapsed = (g_get_monotonic_time () - begin) / G_USEC_PER_SEC;
  g_assert_cmpuint (changes[TRUE], >=, 5);
  g_assert_cmpuint (changes[TRUE], <=, elapsed + 2);
  g_assert_cmpuint (changes[FALSE], <=, elapsed + 2);
  frame_lab_await (lab, is_up, GUINT_TO_POINTER (0));
  assert_alive (fixture, 0, 1);
}

/* One that lasted is dialled again without delay. */
static void
test_no_pause_after_long (Fixture *fixture, gconstpointer data)
{
  FrameLab *lab = fixture->lab;
  guint changes[2] = { 0 };

  test_clock_advance (2000);
  frame_lab_turn (lab, 1);
  netd_network_set_port_func (lab->network, count_changes, changes);
  close (lab->guests[0].fd);
  lab->guests[0].fd = -1;
  frame_lab_turn (lab, 3);
  g_assert_cmpuint (changes[FALSE], ==, 1);
  g_assert_cmpuint (changes[TRUE], ==, 1);
}

int
main (int argc, char *argv[])
{
  static const struct
  {
    const char *path;
    void (*func) (Fixture *fixture, gconstpointer data);
  } cases[] = {
    { "/netd/port/every-split", test_every_split },
    { "/netd/port/byte-by-byte", test_byte_by_byte },
    { "/netd/port/batches", test_batches },
    { "/netd/port/bad-lengths", test_bad_lengths },
    { "/netd/port/good-lengths", test_good_lengths },
    { "/netd/port/never-reading", test_never_reading },
    { "/netd/port/room-for-gateway", test_room_for_gateway },
    { "/netd/port/gateway-waits", test_gateway_waits },
    { "/netd/port/partial-writes", test_partial_writes },
    { "/netd/port/cut-to-mtu", test_cut_to_mtu },
    { "/netd/port/burst", test_burst },
    { "/netd/port/quantum", test_quantum },
    { "/netd/port/resting-port-is-left", test_resting_port_is_left },
    { "/netd/port/dials-again", test_dials_again },
    { "/netd/port/flows-end", test_flows_end },
    { "/netd/port/pause-between-dials", test_pause_between_dials },
    { "/netd/port/no-pause-after-long", test_no_pause_after_long },
  };
  int result;

  g_test_init (&argc, &argv, NULL);
  private_net_enter (&no_private_net);
  for (guint i = 0; i < G_N_ELEMENTS (cases); i++)
    g_test_add (cases[i].path, Fixture, NULL, set_up, cases[i].func, tear_down);
  g_test_add ("/netd/port/waste/spoofed", Fixture, GUINT_TO_POINTER (WASTE_SPOOFED), set_up,
              test_waste_is_rationed, tear_down);
  g_test_add ("/netd/port/waste/to-many", Fixture, GUINT_TO_POINTER (WASTE_TO_MANY), set_up,
              test_waste_is_rationed, tear_down);
  g_test_add ("/netd/port/waste/stray", Fixture, GUINT_TO_POINTER (WASTE_STRAY), set_up,
              test_waste_is_rationed, tear_down);
  g_test_add ("/netd/port/waste/to-stuck", Fixture, GUINT_TO_POINTER (WASTE_TO_STUCK), set_up,
              test_waste_is_rationed, tear_down);
  g_test_add ("/netd/port/jumbo", Fixture, GUINT_TO_POINTER (JUMBO), set_up, test_jumbo, tear_down);
  g_test_add ("/netd/port/partial-writes-of-large", Fixture, GUINT_TO_POINTER (JUMBO), set_up,
              test_partial_writes_of_large, tear_down);
  result = g_test_run ();
  g_free (no_private_net);
  return result;
}

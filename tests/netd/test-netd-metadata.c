/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* A guest's connections to the metadata address: carried to the VM's own socket, held while nobody
 * is there, forgotten in time. The test is the warden at the other end of the opener's channel. */

#include "netd-metadata.h"

#include "service-kit.h"

#define VM "vm-1"

typedef struct
{
  NetdLoop *loop;
  NetdOpener *opener;
  NetdMetadata *metadata;
  int warden;
} Fixture;

static void
set_up (Fixture *fixture, gconstpointer data)
{
  int channel[2];

  g_assert_cmpint (socketpair (AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, channel), ==, 0);
  fixture->loop = netd_loop_new ();
  fixture->opener = netd_opener_new (fixture->loop, channel[0], NULL, NULL);
  fixture->warden = channel[1];
  fixture->metadata = netd_metadata_new (fixture->loop, fixture->opener, VM);
}

static void
tear_down (Fixture *fixture, gconstpointer data)
{
  g_clear_pointer (&fixture->metadata, netd_metadata_free);
  netd_opener_free (fixture->opener);
  close (fixture->warden);
  netd_loop_free (fixture->loop);
}

/* Returns the guest's end. */
static int
connect_guest (Fixture *fixture)
{
  int pair[2];

  kit_unix_pair (pair);
  netd_metadata_accept (fixture->metadata, pair[1]);
  return pair[0];
}

/* The next message to the warden; its type is 0 when there is none. */
static NetdOpenMessage
read_message (Fixture *fixture)
{
  NetdOpenMessage message = { 0 };

  if (recv (fixture->warden, &message, sizeof message, MSG_DONTWAIT) < 0)
    g_assert_cmpint (errno, ==, EAGAIN);
  return message;
}

static guint32
expect_open (Fixture *fixture)
{
  NetdOpenMessage message = read_message (fixture);

  g_assert_cmpuint (message.type, ==, NETD_MESSAGE_OPEN);
  g_assert_cmpuint (message.kind, ==, NETD_OPEN_METADATA);
  g_assert_cmpstr (message.vm, ==, VM);
  return message.token;
}

/* Hands a stream to the opener; returns the daemon's end. */
static int
answer_open (Fixture *fixture, guint32 token)
{
  NetdOpenMessage message = { .type = NETD_MESSAGE_OPENED, .token = token };
  union
  {
    struct cmsghdr header;
    char space[CMSG_SPACE (sizeof (int))];
  } control = { 0 };
  struct iovec part = { &message, sizeof message };
  struct msghdr header = {
    .msg_iov = &part,
    .msg_iovlen = 1,
    .msg_control = &control,
    .msg_controllen = sizeof control,
  };
  int pair[2];

  kit_unix_pair (pair);
  control.header.cmsg_level = SOL_SOCKET;
  control.header.cmsg_type = SCM_RIGHTS;
  control.header.cmsg_len = CMSG_LEN (sizeof (int));
  memcpy (CMSG_DATA (&control.header), &pair[1], sizeof (int));
  g_assert_cmpint (sendmsg (fixture->warden, &header, 0), ==, sizeof message);
  close (pair[1]);
  return pair[0];
}

static void
test_carried (Fixture *fixture, gconstpointer data)
{
  int guest = connect_guest (fixture);
  int daemon;

  kit_say (guest, "GET /");
  daemon = answer_open (fixture, expect_open (fixture));
  kit_expect (fixture->loop, daemon, "GET /");
  kit_say (daemon, "200");
  close (daemon);
  kit_expect (fixture->loop, guest, "200");
  kit_expect_end (fixture->loop, guest, 0);
  close (guest);
  kit_settle (fixture->loop);
  g_assert_cmpuint (read_message (fixture).type, ==, 0);
}

/* The daemon comes back within the time: the guest notices nothing. Meanwhile nothing is done. */
static void
test_held (Fixture *fixture, gconstpointer data)
{
  int guest = connect_guest (fixture);
  guint32 token = expect_open (fixture);
  int daemon;
  int other;

  kit_say (guest, "GET /");
  g_assert_cmpuint (kit_count_turns (fixture->loop), <=, KIT_QUIET_TURNS);
  test_clock_advance (NETD_METADATA_HOLD_MS - 5000);
  kit_settle (fixture->loop);
  g_assert_cmpint (kit_peek (guest), ==, -EAGAIN);
  daemon = answer_open (fixture, token);
  kit_expect (fixture->loop, daemon, "GET /");
  /* Once connected there is no such limit, whatever becomes of others. */
  other = connect_guest (fixture);
  test_clock_advance (NETD_METADATA_HOLD_MS + 100);
  kit_expect_end (fixture->loop, other, 0);
  close (other);
  kit_say (daemon, "200");
  kit_expect (fixture->loop, guest, "200");
  close (guest);
  close (daemon);
}

static void
test_held_too_long (Fixture *fixture, gconstpointer data)
{
  int first = connect_guest (fixture);
  int second;
  guint32 token = expect_open (fixture);

  test_clock_advance (NETD_METADATA_HOLD_MS / 2);
  kit_settle (fixture->loop);
  second = connect_guest (fixture);
  expect_open (fixture);
  test_clock_advance (NETD_METADATA_HOLD_MS / 2 + 100);
  kit_expect_end (fixture->loop, first, 0);
  g_assert_cmpuint (read_message (fixture).token, ==, token);
  g_assert_cmpint (kit_peek (second), ==, -EAGAIN);
  test_clock_advance (NETD_METADATA_HOLD_MS / 2);
  kit_expect_end (fixture->loop, second, 0);
  g_assert_cmpuint (read_message (fixture).type, ==, NETD_MESSAGE_CANCEL);
  close (first);
  close (second);
}

/* A daemon that answers too late finds its stream closed and no harm done. */
static void
test_late_answer (Fixture *fixture, gconstpointer data)
{
  int guest = connect_guest (fixture);
  guint32 token = expect_open (fixture);
  int daemon;

  test_clock_advance (NETD_METADATA_HOLD_MS + 100);
  kit_expect_end (fixture->loop, guest, 0);
  daemon = answer_open (fixture, token);
  kit_expect_end (fixture->loop, daemon, 0);
  close (daemon);
  close (guest);
}

static void
test_guest_leaves (Fixture *fixture, gconstpointer data)
{
  int guest = connect_guest (fixture);
  guint32 token = expect_open (fixture);
  NetdOpenMessage message;

  kit_say (guest, "GET /");
  close (guest);
  KIT_TURN_UNTIL (fixture->loop, (message = read_message (fixture)).type != 0);
  g_assert_cmpuint (message.type, ==, NETD_MESSAGE_CANCEL);
  g_assert_cmpuint (message.token, ==, token);
}

/* A guest that only ended its direction still wants its answer, for a moment. */
static void
test_half_closed (Fixture *fixture, gconstpointer data)
{
  int guest = connect_guest (fixture);
  guint32 token = expect_open (fixture);
  int daemon;

  kit_say (guest, "GET /");
  g_assert_cmpint (shutdown (guest, SHUT_WR), ==, 0);
  g_assert_cmpuint (kit_count_turns (fixture->loop), <=, KIT_QUIET_TURNS);
  daemon = answer_open (fixture, token);
  kit_expect (fixture->loop, daemon, "GET /");
  kit_expect_end (fixture->loop, daemon, 0);
  kit_say (daemon, "200");
  close (daemon);
  kit_expect (fixture->loop, guest, "200");
  close (guest);

  guest = connect_guest (fixture);
  token = expect_open (fixture);
  g_assert_cmpint (shutdown (guest, SHUT_WR), ==, 0);
  kit_settle (fixture->loop);
  g_assert_cmpuint (read_message (fixture).type, ==, 0);
  test_clock_advance (5000);
  kit_expect_end (fixture->loop, guest, 0);
  g_assert_cmpuint (read_message (fixture).token, ==, token);
  close (guest);
}

static void
test_half_closed_then_gone (Fixture *fixture, gconstpointer data)
{
  int guest = connect_guest (fixture);
  guint32 token = expect_open (fixture);
  NetdOpenMessage message;

  g_assert_cmpint (shutdown (guest, SHUT_WR), ==, 0);
  kit_settle (fixture->loop);
  close (guest);
  KIT_TURN_UNTIL (fixture->loop, (message = read_message (fixture)).type != 0);
  g_assert_cmpuint (message.token, ==, token);
}

static void
test_limit (Fixture *fixture, gconstpointer data)
{
  int guests[NETD_METADATA_MAX];
  int one_more;

  for (guint i = 0; i < NETD_METADATA_MAX; i++)
    {
      guests[i] = connect_guest (fixture);
      expect_open (fixture);
    }
  one_more = connect_guest (fixture);
  g_assert_cmpint (kit_peek (one_more), ==, 0);
  g_assert_cmpuint (read_message (fixture).type, ==, 0);
  close (one_more);

  /* One goes, one comes. */
  close (guests[0]);
  KIT_TURN_UNTIL (fixture->loop, read_message (fixture).type == NETD_MESSAGE_CANCEL);
  guests[0] = connect_guest (fixture);
  expect_open (fixture);
  for (guint i = 0; i < NETD_METADATA_MAX; i++)
    close (guests[i]);
}

static void
test_free (Fixture *fixture, gconstpointer data)
{
  int held = connect_guest (fixture);
  int carried = connect_guest (fixture);
  guint32 token = expect_open (fixture);
  int daemon = answer_open (fixture, expect_open (fixture));

  kit_say (carried, "x");
  kit_expect (fixture->loop, daemon, "x");
  g_clear_pointer (&fixture->metadata, netd_metadata_free);
  g_assert_cmpint (kit_peek (held), ==, 0);
  g_assert_cmpint (kit_peek (carried), ==, 0);
  g_assert_cmpint (kit_peek (daemon), ==, 0);
  g_assert_cmpuint (read_message (fixture).token, ==, token);
  g_assert_cmpuint (kit_count_turns (fixture->loop), <=, KIT_QUIET_TURNS);
  close (held);
  close (carried);
  close (daemon);
}

int
main (int argc, char **argv)
{
  static const struct
  {
    const char *name;
    void (*test) (Fixture *fixture, gconstpointer data);
  } tests[] = {
    { "/netd/metadata/carried", test_carried },
    { "/netd/metadata/held", test_held },
    { "/netd/metadata/held-too-long", test_held_too_long },
    { "/netd/metadata/late-answer", test_late_answer },
    { "/netd/metadata/guest-leaves", test_guest_leaves },
    { "/netd/metadata/half-closed", test_half_closed },
    { "/netd/metadata/half-closed-then-gone", test_half_closed_then_gone },
    { "/netd/metadata/limit", test_limit },
    { "/netd/metadata/free", test_free },
  };

  g_test_init (&argc, &argv, NULL);
  for (guint i = 0; i < G_N_ELEMENTS (tests); i++)
    g_test_add (tests[i].name, Fixture, NULL, set_up, tests[i].test, tear_down);
  return g_test_run ();
}

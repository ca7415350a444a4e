/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Bytes between two sockets: all of them, in order, each direction with an end of its own, and no
 * work at all when nothing moves. */

#include "netd-relay.h"

#include <sys/epoll.h>

#include "service-kit.h"

#define BULK (50 * 1024 * 1024)
#define PATTERN 1000003 /* a prime: no period of it is one of a buffer */

typedef struct
{
  NetdLoop *loop;
  NetdRelay *relay;
  int a; /* the far ends */
  int b;
  guint n_done;
} Fixture;

typedef enum
{
  WITH_TCP,
  WITH_UNIX,
} Kind;

static void
done_cb (NetdRelay *relay, gpointer user_data)
{
  Fixture *fixture = user_data;

  g_assert_true (relay == fixture->relay);
  fixture->relay = NULL;
  fixture->n_done++;
}

static void
set_up (Fixture *fixture, gconstpointer data)
{
  void (*make_pair) (int pair[2])
      = GPOINTER_TO_INT (data) == WITH_TCP ? kit_tcp_pair : kit_unix_pair;
  int a[2];
  int b[2];

  make_pair (a);
  make_pair (b);
  fixture->loop = netd_loop_new ();
  fixture->a = a[0];
  fixture->b = b[0];
  fixture->relay = netd_relay_new (fixture->loop, a[1], b[1], done_cb, fixture);
}

static void
tear_down (Fixture *fixture, gconstpointer data)
{
  g_clear_pointer (&fixture->relay, netd_relay_free);
  if (fixture->a >= 0)
    close (fixture->a);
  if (fixture->b >= 0)
    close (fixture->b);
  netd_loop_free (fixture->loop);
}

static void
close_far_end (int *fd)
{
  close (*fd);
  *fd = -1;
}

/* --- Much, both ways at once --- */

typedef struct
{
  int fd;
  NetdWatch *watch;
  const guint8 *says;
  const guint8 *hears;
  gsize sent;
  gsize received;
  gboolean heard_end;
} Talker;

static guint8 *
make_pattern (guint32 seed)
{
  g_autoptr (GRand) random = g_rand_new_with_seed (seed);
  guint8 *pattern = g_malloc (PATTERN);

  for (gsize i = 0; i < PATTERN; i++)
    pattern[i] = (guint8) g_rand_int (random);
  return pattern;
}

static void
talker_send (Talker *talker)
{
  while (talker->sent < BULK)
    {
      gsize at = talker->sent % PATTERN;
      gsize length = MIN (MIN (PATTERN - at, BULK - talker->sent), 200000);
      gssize n = send (talker->fd, talker->says + at, length, MSG_DONTWAIT | MSG_NOSIGNAL);

      if (n < 0)
        {
          g_assert_cmpint (errno, ==, EAGAIN);
          return;
        }
      talker->sent += (gsize) n;
    }
  g_assert_cmpint (shutdown (talker->fd, SHUT_WR), ==, 0);
}

static void
talker_receive (Talker *talker)
{
  guint8 buffer[100000];
  gssize n = recv (talker->fd, buffer, sizeof buffer, MSG_DONTWAIT);
  gsize done = 0;

  if (n < 0)
    {
      g_assert_cmpint (errno, ==, EAGAIN);
      return;
    }
  talker->heard_end = n == 0;
  while (done < (gsize) n)
    {
      gsize at = talker->received % PATTERN;
      gsize length = MIN (PATTERN - at, (gsize) n - done);

      g_assert_cmpint (memcmp (buffer + done, talker->hears + at, length), ==, 0);
      talker->received += length;
      done += length;
    }
}

static void
talker_ready (guint32 events, gpointer user_data)
{
  Talker *talker = user_data;

  if ((events & EPOLLOUT) != 0 && talker->sent < BULK)
    talker_send (talker);
  if ((events & EPOLLIN) != 0)
    talker_receive (talker);
  netd_watch_set_events (talker->watch, (talker->sent < BULK ? EPOLLOUT : 0)
                                            | (talker->heard_end ? 0 : EPOLLIN));
}

static void
test_bulk (Fixture *fixture, gconstpointer data)
{
  g_autofree guint8 *one = make_pattern (1);
  g_autofree guint8 *two = make_pattern (2);
  Talker talkers[2] = {
    { .fd = fixture->a, .says = one, .hears = two },
    { .fd = fixture->b, .says = two, .hears = one },
  };

  for (guint i = 0; i < 2; i++)
    talkers[i].watch = netd_watch_new (fixture->loop, talkers[i].fd, EPOLLIN | EPOLLOUT,
                                       talker_ready, &talkers[i]);
  KIT_TURN_UNTIL (fixture->loop, talkers[0].heard_end && talkers[1].heard_end);
  for (guint i = 0; i < 2; i++)
    {
      g_assert_cmpuint (talkers[i].received, ==, BULK);
      netd_watch_free (talkers[i].watch);
    }
  KIT_TURN_UNTIL (fixture->loop, fixture->n_done == 1);
}

/* --- Ends --- */

static void
test_half_close (Fixture *fixture, gconstpointer data)
{
  kit_say (fixture->a, "question");
  g_assert_cmpint (shutdown (fixture->a, SHUT_WR), ==, 0);
  kit_expect (fixture->loop, fixture->b, "question");
  kit_expect_end (fixture->loop, fixture->b, 0);
  g_assert_cmpuint (kit_count_turns (fixture->loop), <=, KIT_QUIET_TURNS);

  kit_say (fixture->b, "answer");
  kit_expect (fixture->loop, fixture->a, "answer");
  kit_say (fixture->b, ", long after");
  kit_expect (fixture->loop, fixture->a, ", long after");
  g_assert_cmpuint (fixture->n_done, ==, 0);
  close_far_end (&fixture->b);
  kit_expect_end (fixture->loop, fixture->a, 0);
  KIT_TURN_UNTIL (fixture->loop, fixture->n_done == 1);
}

static void
test_half_close_other_order (Fixture *fixture, gconstpointer data)
{
  g_assert_cmpint (shutdown (fixture->b, SHUT_WR), ==, 0);
  kit_expect_end (fixture->loop, fixture->a, 0);
  kit_say (fixture->a, "still here");
  kit_expect (fixture->loop, fixture->b, "still here");
  g_assert_cmpuint (kit_count_turns (fixture->loop), <=, KIT_QUIET_TURNS);
  g_assert_cmpint (shutdown (fixture->a, SHUT_WR), ==, 0);
  kit_expect_end (fixture->loop, fixture->b, 0);
  KIT_TURN_UNTIL (fixture->loop, fixture->n_done == 1);
}

/* Whoever says something and is gone is heard; what the other one says has no receiver. */
static void
test_last_words (Fixture *fixture, gconstpointer data)
{
  kit_say (fixture->a, "last words");
  close_far_end (&fixture->a);
  kit_say (fixture->b, "nobody hears this");
  kit_expect (fixture->loop, fixture->b, "last words");
  if (GPOINTER_TO_INT (data) == WITH_UNIX)
    kit_expect_end (fixture->loop, fixture->b, 0);
  /* TCP learns of it when the first byte is refused. */
  KIT_TURN_UNTIL (fixture->loop, fixture->n_done == 1);
}

/* A local peer that is gone takes the relay with it, although the other side says nothing. */
static void
test_gone_after_half_close (Fixture *fixture, gconstpointer data)
{
  g_assert_cmpint (shutdown (fixture->a, SHUT_WR), ==, 0);
  kit_expect_end (fixture->loop, fixture->b, 0);
  g_assert_cmpuint (fixture->n_done, ==, 0);
  close_far_end (&fixture->a);
  KIT_TURN_UNTIL (fixture->loop, fixture->n_done == 1);
}

static void
test_abort (Fixture *fixture, gconstpointer data)
{
  kit_say (fixture->a, "x");
  kit_expect (fixture->loop, fixture->b, "x");
  kit_reset (fixture->a);
  fixture->a = -1;
  kit_expect_end (fixture->loop, fixture->b, -ECONNRESET);
  KIT_TURN_UNTIL (fixture->loop, fixture->n_done == 1);
}

static void
test_abort_other_side (Fixture *fixture, gconstpointer data)
{
  /* After its end, too: nothing is read there any more. */
  g_assert_cmpint (shutdown (fixture->b, SHUT_WR), ==, 0);
  kit_expect_end (fixture->loop, fixture->a, 0);
  kit_reset (fixture->b);
  fixture->b = -1;
  KIT_TURN_UNTIL (fixture->loop, fixture->n_done == 1);
}

static void
test_free (Fixture *fixture, gconstpointer data)
{
  g_clear_pointer (&fixture->relay, netd_relay_free);
  kit_expect_end (fixture->loop, fixture->a, -ECONNRESET);
  kit_expect_end (fixture->loop, fixture->b, -ECONNRESET);
  g_assert_cmpuint (fixture->n_done, ==, 0);
}

/* --- A side that does not read --- */

/* Sends until nothing more is taken, with the loop turning; returns how much. */
static gsize
fill (Fixture *fixture, int fd, const guint8 *pattern)
{
  gsize total = 0;

  for (guint refused = 0; refused < 20;)
    {
      gsize at = total % PATTERN;
      gssize n = send (fd, pattern + at, MIN (PATTERN - at, 65536), MSG_DONTWAIT | MSG_NOSIGNAL);

      refused = n > 0 ? 0 : refused + 1;
      total += n > 0 ? (gsize) n : 0;
      netd_loop_turn (fixture->loop, 5);
      g_assert_cmpuint (total, <, 64 * 1024 * 1024);
    }
  return total;
}

static void
drain (Fixture *fixture, int fd, const guint8 *pattern, gsize expected)
{
  static guint8 buffer[65536];
  gsize total = 0;

  while (total < expected)
    {
      gsize at = total % PATTERN;
      gssize n;

      KIT_TURN_UNTIL (fixture->loop, kit_peek (fd) != -EAGAIN);
      n = recv (fd, buffer, MIN (sizeof buffer, PATTERN - at), 0);
      g_assert_cmpint (n, >, 0);
      g_assert_cmpint (memcmp (buffer, pattern + at, (gsize) n), ==, 0);
      total += (gsize) n;
    }
}

static void
test_slow_reader (Fixture *fixture, gconstpointer data)
{
  g_autofree guint8 *pattern = make_pattern (3);
  gsize total = fill (fixture, fixture->a, pattern);

  g_assert_cmpuint (kit_count_turns (fixture->loop), <=, KIT_QUIET_TURNS);
  /* The other direction is none the worse. */
  kit_say (fixture->b, "go on");
  kit_expect (fixture->loop, fixture->a, "go on");
  g_assert_cmpint (shutdown (fixture->a, SHUT_WR), ==, 0);
  g_assert_cmpuint (kit_count_turns (fixture->loop), <=, KIT_QUIET_TURNS);
  drain (fixture, fixture->b, pattern, total);
  kit_expect_end (fixture->loop, fixture->b, 0);
}

/* It hangs up behind what it said while that is stuck: no turn is spent on it, nothing of it is
 * lost. */
static void
test_hang_up_behind_slow_reader (Fixture *fixture, gconstpointer data)
{
  g_autofree guint8 *pattern = make_pattern (4);
  gsize total = fill (fixture, fixture->a, pattern);

  close_far_end (&fixture->a);
  g_assert_cmpuint (kit_count_turns (fixture->loop), <=, KIT_QUIET_TURNS);
  g_assert_cmpuint (fixture->n_done, ==, 0);
  /* With TCP this would be its abort: a part of what it said has not left it yet. */
  if (GPOINTER_TO_INT (data) == WITH_UNIX)
    {
      kit_say (fixture->b, "nobody hears this");
      g_assert_cmpuint (kit_count_turns (fixture->loop), <=, KIT_QUIET_TURNS);
      kit_say (fixture->b, "nor this");
      g_assert_cmpuint (kit_count_turns (fixture->loop), <=, KIT_QUIET_TURNS);
    }
  drain (fixture, fixture->b, pattern, total);
  /* What was not heard is told, behind all that was said. */
  kit_expect_end (fixture->loop, fixture->b, GPOINTER_TO_INT (data) == WITH_UNIX ? -ECONNRESET : 0);
  close_far_end (&fixture->b);
  KIT_TURN_UNTIL (fixture->loop, fixture->n_done == 1);
}

static void
test_abort_behind_slow_reader (Fixture *fixture, gconstpointer data)
{
  g_autofree guint8 *pattern = make_pattern (5);

  fill (fixture, fixture->a, pattern);
  kit_reset (fixture->a);
  fixture->a = -1;
  KIT_TURN_UNTIL (fixture->loop, fixture->n_done == 1);
}

static void
test_last_activity (Fixture *fixture, gconstpointer data)
{
  gint64 before = netd_relay_get_last_activity (fixture->relay);

  test_clock_advance (5000);
  kit_settle (fixture->loop);
  g_assert_cmpint (netd_relay_get_last_activity (fixture->relay), ==, before);
  kit_say (fixture->a, "x");
  kit_expect (fixture->loop, fixture->b, "x");
  g_assert_cmpint (netd_relay_get_last_activity (fixture->relay), >=, before + 5000);
}

int
main (int argc, char **argv)
{
  static const struct
  {
    const char *name;
    Kind kind;
    void (*test) (Fixture *fixture, gconstpointer data);
  } tests[] = {
    { "/netd/relay/bulk/tcp", WITH_TCP, test_bulk },
    { "/netd/relay/bulk/unix", WITH_UNIX, test_bulk },
    { "/netd/relay/half-close/tcp", WITH_TCP, test_half_close },
    { "/netd/relay/half-close/unix", WITH_UNIX, test_half_close },
    { "/netd/relay/half-close-other-order/tcp", WITH_TCP, test_half_close_other_order },
    { "/netd/relay/half-close-other-order/unix", WITH_UNIX, test_half_close_other_order },
    { "/netd/relay/last-words/tcp", WITH_TCP, test_last_words },
    { "/netd/relay/last-words/unix", WITH_UNIX, test_last_words },
    { "/netd/relay/gone-after-half-close", WITH_UNIX, test_gone_after_half_close },
    { "/netd/relay/abort", WITH_TCP, test_abort },
    { "/netd/relay/abort-other-side", WITH_TCP, test_abort_other_side },
    { "/netd/relay/free", WITH_TCP, test_free },
    { "/netd/relay/slow-reader/tcp", WITH_TCP, test_slow_reader },
    { "/netd/relay/slow-reader/unix", WITH_UNIX, test_slow_reader },
    { "/netd/relay/hang-up-behind-slow-reader/tcp", WITH_TCP, test_hang_up_behind_slow_reader },
    { "/netd/relay/hang-up-behind-slow-reader/unix", WITH_UNIX, test_hang_up_behind_slow_reader },
    { "/netd/relay/abort-behind-slow-reader", WITH_TCP, test_abort_behind_slow_reader },
    { "/netd/relay/last-activity", WITH_UNIX, test_last_activity },
  };

  g_test_init (&argc, &argv, NULL);
  for (guint i = 0; i < G_N_ELEMENTS (tests); i++)
    g_test_add (tests[i].name, Fixture, GINT_TO_POINTER (tests[i].kind), set_up, tests[i].test,
                tear_down);
  return g_test_run ();
}

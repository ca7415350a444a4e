/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The event loop: what is reported and what no longer is, timers, and freeing anything anywhere. */

#include "netd-loop.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

typedef struct
{
  NetdLoop *loop;
  int ends[2][2]; /* of two socket pairs: ours, and the peer's */
  NetdWatch *watches[2];
  NetdTimer *timers[2];
  guint calls[2];
  guint32 events;
  guint turns;
} Fixture;

static void
set_up (Fixture *fixture, gconstpointer data)
{
  fixture->loop = netd_loop_new ();
  for (guint i = 0; i < 2; i++)
    g_assert_cmpint (
      socketpair (AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fixture->ends[i]), ==, 0);
}

static void
tear_down (Fixture *fixture, gconstpointer data)
{
  for (guint i = 0; i < 2; i++)
    {
      g_clear_pointer (&fixture->watches[i], netd_watch_free);
      g_clear_pointer (&fixture->timers[i], netd_timer_free);
      close (fixture->ends[i][0]);
      if (fixture->ends[i][1] >= 0)
        close (fixture->ends[i][1]);
    }
  netd_loop_free (fixture->loop);
}

static void
poke (Fixture *fixture, guint i)
{
  g_assert_cmpint (write (fixture->ends[i][1], "x", 1), ==, 1);
}

static void
count_first_cb (guint32 events, gpointer user_data)
{
  Fixture *fixture = user_data;

  fixture->calls[0]++;
  fixture->events = events;
}

static void
test_watch (Fixture *fixture, gconstpointer data)
{
  char byte;

  fixture->watches[0]
      = netd_watch_new (fixture->loop, fixture->ends[0][0], EPOLLIN, count_first_cb, fixture);
  netd_loop_turn (fixture->loop, 0);
  g_assert_cmpuint (fixture->calls[0], ==, 0);
  poke (fixture, 0);
  netd_loop_turn (fixture->loop, -1);
  g_assert_cmphex (fixture->events, ==, EPOLLIN);
  /* For as long as it is so. */
  netd_loop_turn (fixture->loop, -1);
  g_assert_cmpuint (fixture->calls[0], ==, 2);
  g_assert_cmpint (read (fixture->ends[0][0], &byte, 1), ==, 1);
  netd_loop_turn (fixture->loop, 0);
  g_assert_cmpuint (fixture->calls[0], ==, 2);
  netd_watch_set_events (fixture->watches[0], EPOLLOUT);
  netd_loop_turn (fixture->loop, -1);
  g_assert_cmphex (fixture->events, ==, EPOLLOUT);
}

/* A peer that has gone is reported to those who watch, and turns no loop for those who do not. */
static void
test_hang_up (Fixture *fixture, gconstpointer data)
{
  fixture->watches[0]
      = netd_watch_new (fixture->loop, fixture->ends[0][0], 0, count_first_cb, fixture);
  close (fixture->ends[0][1]);
  fixture->ends[0][1] = -1;
  netd_loop_turn (fixture->loop, 0);
  g_assert_cmpuint (fixture->calls[0], ==, 0);
  netd_watch_set_events (fixture->watches[0], EPOLLIN);
  netd_loop_turn (fixture->loop, -1);
  g_assert_cmpuint (fixture->calls[0], ==, 1);
  g_assert_cmphex (fixture->events & EPOLLHUP, ==, EPOLLHUP);
  netd_watch_set_events (fixture->watches[0], 0);
  netd_loop_turn (fixture->loop, 0);
  g_assert_cmpuint (fixture->calls[0], ==, 1);
}

static void
free_both_cb (guint32 events, gpointer user_data)
{
  Fixture *fixture = user_data;

  fixture->calls[0]++;
  for (guint i = 0; i < 2; i++)
    g_clear_pointer (&fixture->watches[i], netd_watch_free);
}

/* Both are ready in one turn; whichever comes first takes the other away with itself. */
static void
test_free_in_callback (Fixture *fixture, gconstpointer data)
{
  for (guint i = 0; i < 2; i++)
    {
      fixture->watches[i]
          = netd_watch_new (fixture->loop, fixture->ends[i][0], EPOLLIN, free_both_cb, fixture);
      poke (fixture, i);
    }
  netd_loop_turn (fixture->loop, -1);
  g_assert_cmpuint (fixture->calls[0], ==, 1);
  netd_loop_turn (fixture->loop, 0);
  g_assert_cmpuint (fixture->calls[0], ==, 1);
}

static void
renew_cb (guint32 events, gpointer user_data)
{
  Fixture *fixture = user_data;

  fixture->calls[1]++;
  netd_watch_free (fixture->watches[0]);
  fixture->watches[0]
      = netd_watch_new (fixture->loop, fixture->ends[0][0], EPOLLIN, count_first_cb, fixture);
}

static void
test_new_in_callback (Fixture *fixture, gconstpointer data)
{
  fixture->watches[0]
      = netd_watch_new (fixture->loop, fixture->ends[0][0], EPOLLIN, renew_cb, fixture);
  poke (fixture, 0);
  netd_loop_turn (fixture->loop, -1);
  g_assert_cmpuint (fixture->calls[0], ==, 0);
  netd_loop_turn (fixture->loop, -1);
  g_assert_cmpuint (fixture->calls[0], ==, 1);
  g_assert_cmpuint (fixture->calls[1], ==, 1);
}

static void
want_other_cb (guint32 events, gpointer user_data)
{
  Fixture *fixture = user_data;

  fixture->calls[0]++;
  /* To be told of input only, or of output only: what the other was is not what it wants now. */
  for (guint i = 0; i < 2; i++)
    netd_watch_set_events (fixture->watches[i], (events & EPOLLIN) != 0 ? EPOLLOUT : EPOLLIN);
}

static void
test_interest_taken_back (Fixture *fixture, gconstpointer data)
{
  for (guint i = 0; i < 2; i++)
    {
      fixture->watches[i]
          = netd_watch_new (fixture->loop, fixture->ends[i][0], EPOLLIN, want_other_cb, fixture);
      poke (fixture, i);
    }
  netd_loop_turn (fixture->loop, -1);
  g_assert_cmpuint (fixture->calls[0], ==, 1);
}

static void
count_first_timer_cb (gpointer user_data)
{
  Fixture *fixture = user_data;

  fixture->calls[0]++;
}

static void
test_timer (Fixture *fixture, gconstpointer data)
{
  NetdTimer *timer = netd_timer_new (fixture->loop, count_first_timer_cb, fixture);
  gint64 begin = g_get_monotonic_time ();

  fixture->timers[0] = timer;
  g_assert_false (netd_timer_is_armed (timer));
  netd_timer_start (timer, 5);
  g_assert_true (netd_timer_is_armed (timer));
  while (fixture->calls[0] == 0)
    netd_loop_turn (fixture->loop, -1);
  g_assert_cmpint (g_get_monotonic_time () - begin, >=, 5000);
  g_assert_false (netd_timer_is_armed (timer));
  netd_loop_turn (fixture->loop, 0);
  g_assert_cmpuint (fixture->calls[0], ==, 1);

  /* Moved, and stopped. */
  netd_timer_start (timer, 0);
  netd_timer_start (timer, 3600 * 1000);
  netd_loop_turn (fixture->loop, 0);
  g_assert_cmpuint (fixture->calls[0], ==, 1);
  netd_timer_start (timer, -1);
  netd_loop_turn (fixture->loop, 0);
  g_assert_cmpuint (fixture->calls[0], ==, 2);
  netd_timer_start (timer, 0);
  netd_timer_stop (timer);
  netd_timer_stop (timer);
  netd_loop_turn (fixture->loop, 0);
  g_assert_cmpuint (fixture->calls[0], ==, 2);
}

static void
restart_cb (gpointer user_data)
{
  Fixture *fixture = user_data;

  fixture->calls[0]++;
  netd_timer_start (fixture->timers[0], 0);
}

/* One that starts itself for now runs once a turn: events have their turn too. */
static void
test_timer_restarts_itself (Fixture *fixture, gconstpointer data)
{
  fixture->timers[0] = netd_timer_new (fixture->loop, restart_cb, fixture);
  netd_timer_start (fixture->timers[0], 0);
  for (guint i = 1; i <= 3; i++)
    {
      netd_loop_turn (fixture->loop, 0);
      g_assert_cmpuint (fixture->calls[0], ==, i);
    }
}

static void
free_both_timers_cb (gpointer user_data)
{
  Fixture *fixture = user_data;

  fixture->calls[0]++;
  for (guint i = 0; i < 2; i++)
    g_clear_pointer (&fixture->timers[i], netd_timer_free);
}

static void
test_timer_freed_in_callback (Fixture *fixture, gconstpointer data)
{
  for (guint i = 0; i < 2; i++)
    {
      fixture->timers[i] = netd_timer_new (fixture->loop, free_both_timers_cb, fixture);
      netd_timer_start (fixture->timers[i], 0);
    }
  netd_loop_turn (fixture->loop, 0);
  g_assert_cmpuint (fixture->calls[0], ==, 1);
  netd_loop_turn (fixture->loop, 0);
  g_assert_cmpuint (fixture->calls[0], ==, 1);
}

static void
turn_cb (gpointer user_data)
{
  Fixture *fixture = user_data;

  fixture->turns++;
  /* After the events of the turn; freeing is fine here too. */
  if (fixture->calls[0] > 0)
    g_clear_pointer (&fixture->watches[0], netd_watch_free);
}

static void
test_turn_func (Fixture *fixture, gconstpointer data)
{
  netd_loop_set_turn_func (fixture->loop, turn_cb, fixture);
  fixture->watches[0]
      = netd_watch_new (fixture->loop, fixture->ends[0][0], EPOLLIN, count_first_cb, fixture);
  netd_loop_turn (fixture->loop, 0);
  g_assert_cmpuint (fixture->turns, ==, 1);
  g_assert_nonnull (fixture->watches[0]);
  poke (fixture, 0);
  netd_loop_turn (fixture->loop, -1);
  g_assert_cmpuint (fixture->turns, ==, 2);
  g_assert_cmpuint (fixture->calls[0], ==, 1);
  g_assert_null (fixture->watches[0]);
}

static void
quit_cb (gpointer user_data)
{
  Fixture *fixture = user_data;

  fixture->calls[0]++;
  netd_loop_quit (fixture->loop);
}

static void
test_quit (Fixture *fixture, gconstpointer data)
{
  fixture->timers[0] = netd_timer_new (fixture->loop, quit_cb, fixture);
  netd_timer_start (fixture->timers[0], 1);
  netd_loop_run (fixture->loop);
  g_assert_cmpuint (fixture->calls[0], ==, 1);
  /* Told before it ran: it does not begin to wait. */
  netd_loop_quit (fixture->loop);
  netd_loop_run (fixture->loop);
  /* And it can run again. */
  netd_timer_start (fixture->timers[0], 0);
  netd_loop_run (fixture->loop);
  g_assert_cmpuint (fixture->calls[0], ==, 2);
}

static void
count_cb (guint32 events, gpointer user_data)
{
  guint *calls = user_data;

  ++*calls;
}

/* More descriptors than a turn takes: those that had to wait are next. */
static void
test_many (Fixture *fixture, gconstpointer data)
{
  NetdWatch *watches[200];
  guint calls[200] = { 0 };
  int fds[200];

  poke (fixture, 1);
  for (guint i = 0; i < G_N_ELEMENTS (watches); i++)
    {
      fds[i] = dup (fixture->ends[1][0]);
      g_assert_cmpint (fds[i], >=, 0);
      watches[i] = netd_watch_new (fixture->loop, fds[i], EPOLLIN, count_cb, &calls[i]);
    }
  for (guint i = 0; i < 4; i++)
    netd_loop_turn (fixture->loop, 0);
  for (guint i = 0; i < G_N_ELEMENTS (watches); i++)
    {
      g_assert_cmpuint (calls[i], >=, 1);
      netd_watch_free (watches[i]);
      close (fds[i]);
    }
}

int
main (int argc, char *argv[])
{
  static const struct
  {
    const char *path;
    void (*func) (Fixture *fixture, gconstpointer data);
  } cases[] = {
    { "/netd/loop/watch", test_watch },
    { "/netd/loop/hang-up", test_hang_up },
    { "/netd/loop/free-in-callback", test_free_in_callback },
    { "/netd/loop/new-in-callback", test_new_in_callback },
    { "/netd/loop/interest-taken-back", test_interest_taken_back },
    { "/netd/loop/timer", test_timer },
    { "/netd/loop/timer-restarts-itself", test_timer_restarts_itself },
    { "/netd/loop/timer-freed-in-callback", test_timer_freed_in_callback },
    { "/netd/loop/turn-func", test_turn_func },
    { "/netd/loop/quit", test_quit },
    { "/netd/loop/many", test_many },
  };

  g_test_init (&argc, &argv, NULL);
  for (guint i = 0; i < G_N_ELEMENTS (cases); i++)
    g_test_add (cases[i].path, Fixture, NULL, set_up, cases[i].func, tear_down);
  return g_test_run ();
}

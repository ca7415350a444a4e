/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The event loop of netd. GLib's main context hands every descriptor to poll() in each turn; with
 * hundreds of flows that is the largest part of a frame's cost. Here the kernel keeps the list, and
 * a turn costs what happened in it.
 *
 * Watches and timers that are freed while the events of a turn are delivered stay as tombstones
 * until the turn is over, so that a callback may free anything, itself included.
 */
#include "netd-loop.h"

#include <errno.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

#define EVENTS_PER_TURN 64

struct _NetdLoop
{
  int epoll;
  gint64 now;
  gboolean quitting;
  gboolean delivering;
  GPtrArray *timers; /* armed ones, unordered: there are few */
  GPtrArray *buried; /* freed during delivery */
  NetdTimerFunc turn_func;
  gpointer turn_data;
};

struct _NetdWatch
{
  NetdLoop *loop;
  int fd;
  guint32 events;
  NetdWatchFunc func;
  gpointer user_data;
};

struct _NetdTimer
{
  NetdLoop *loop;
  gint64 deadline; /* -1: not armed */
  NetdTimerFunc func;
  gpointer user_data;
};

static gint64
read_clock (void)
{
  struct timespec now;

  clock_gettime (CLOCK_MONOTONIC, &now);
  return (gint64) now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

NetdLoop *
netd_loop_new (void)
{
  NetdLoop *self = g_new0 (NetdLoop, 1);

  self->epoll = epoll_create1 (EPOLL_CLOEXEC);
  self->now = read_clock ();
  self->timers = g_ptr_array_new ();
  self->buried = g_ptr_array_new_with_free_func (g_free);
  return self;
}

void
netd_loop_free (NetdLoop *self)
{
  if (self->epoll >= 0)
    close (self->epoll);
  g_ptr_array_unref (self->timers);
  g_ptr_array_unref (self->buried);
  g_free (self);
}

void
netd_loop_set_turn_func (NetdLoop *self, NetdTimerFunc func, gpointer user_data)
{
  self->turn_func = func;
  self->turn_data = user_data;
}

gint64
netd_loop_now (NetdLoop *self)
{
  return self->now;
}

void
netd_loop_quit (NetdLoop *self)
{
  self->quitting = TRUE;
}

static void
bury (NetdLoop *self, gpointer memory)
{
  if (self->delivering)
    g_ptr_array_add (self->buried, memory);
  else
    g_free (memory);
}

static int
milliseconds_to_first_timer (NetdLoop *self, int limit)
{
  gint64 now = read_clock ();
  gint64 wait = limit < 0 ? G_MAXINT : limit;

  for (guint i = 0; i < self->timers->len; i++)
    {
      NetdTimer *timer = g_ptr_array_index (self->timers, i);

      wait = MIN (wait, MAX (timer->deadline - now, 0));
    }
  return wait == G_MAXINT && limit < 0 ? -1 : (int) wait;
}

/* A timer that is started again in its callback, for now or earlier, waits for the next turn. */
static void
run_timers (NetdLoop *self)
{
  g_autoptr (GPtrArray) due = NULL;

  for (guint i = 0; i < self->timers->len; i++)
    {
      NetdTimer *timer = g_ptr_array_index (self->timers, i);

      if (timer->deadline > self->now)
        continue;
      if (due == NULL)
        due = g_ptr_array_new ();
      g_ptr_array_add (due, timer);
    }
  for (guint i = 0; due != NULL && i < due->len; i++)
    {
      NetdTimer *timer = g_ptr_array_index (due, i);

      /* Freed, stopped or moved by one that ran before it. */
      if (timer->func == NULL || timer->deadline < 0 || timer->deadline > self->now)
        continue;
      netd_timer_stop (timer);
      timer->func (timer->user_data);
    }
}

void
netd_loop_turn (NetdLoop *self, int timeout_ms)
{
  struct epoll_event events[EVENTS_PER_TURN];
  int n;

  n = epoll_wait (self->epoll, events, EVENTS_PER_TURN,
                  milliseconds_to_first_timer (self, timeout_ms));
  self->now = read_clock ();
  self->delivering = TRUE;
  for (int i = 0; i < n; i++)
    {
      NetdWatch *watch = events[i].data.ptr;
      guint32 wanted = watch->events == 0 ? 0 : watch->events | EPOLLERR | EPOLLHUP;

      /* Interest may have been taken back by an earlier callback of this turn. */
      if (watch->func != NULL && (events[i].events & wanted) != 0)
        watch->func (events[i].events & wanted, watch->user_data);
    }
  run_timers (self);
  if (self->turn_func != NULL)
    self->turn_func (self->turn_data);
  self->delivering = FALSE;
  g_ptr_array_set_size (self->buried, 0);
}

void
netd_loop_run (NetdLoop *self)
{
  while (!self->quitting)
    netd_loop_turn (self, -1);
  self->quitting = FALSE;
}

NetdWatch *
netd_watch_new (NetdLoop *loop, int fd, guint32 events, NetdWatchFunc func, gpointer user_data)
{
  NetdWatch *self = g_new0 (NetdWatch, 1);

  self->loop = loop;
  self->fd = fd;
  self->func = func;
  self->user_data = user_data;
  netd_watch_set_events (self, events);
  return self;
}

/* Taken out altogether when nothing is wanted: epoll reports hang-ups and errors even of an empty
 * set, which would turn the loop for as long as they last. */
void
netd_watch_set_events (NetdWatch *self, guint32 events)
{
  struct epoll_event event = { .events = events, .data.ptr = self };
  int operation;

  if (events == self->events)
    return;
  operation = events == 0 ? EPOLL_CTL_DEL : self->events == 0 ? EPOLL_CTL_ADD : EPOLL_CTL_MOD;
  if (epoll_ctl (self->loop->epoll, operation, self->fd, &event) < 0)
    g_warning ("epoll_ctl of descriptor %d: %s", self->fd, g_strerror (errno));
  self->events = events;
}

void
netd_watch_free (NetdWatch *self)
{
  netd_watch_set_events (self, 0);
  self->func = NULL;
  bury (self->loop, self);
}

NetdTimer *
netd_timer_new (NetdLoop *loop, NetdTimerFunc func, gpointer user_data)
{
  NetdTimer *self = g_new0 (NetdTimer, 1);

  self->loop = loop;
  self->deadline = -1;
  self->func = func;
  self->user_data = user_data;
  return self;
}

/* One more than asked for, as the clock's current millisecond has begun already: never early. */
void
netd_timer_start (NetdTimer *self, gint64 delay_ms)
{
  if (self->deadline < 0)
    g_ptr_array_add (self->loop->timers, self);
  self->deadline = read_clock () + (delay_ms > 0 ? delay_ms + 1 : 0);
}

void
netd_timer_stop (NetdTimer *self)
{
  if (self->deadline >= 0)
    g_ptr_array_remove_fast (self->loop->timers, self);
  self->deadline = -1;
}

gboolean
netd_timer_is_armed (NetdTimer *self)
{
  return self->deadline >= 0;
}

void
netd_timer_free (NetdTimer *self)
{
  netd_timer_stop (self);
  self->func = NULL;
  bury (self->loop, self);
}

/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <glib.h>

/* The event loop: level-triggered epoll, timers, one hook at the end of each turn. It sleeps until
 * something happens; with no timer armed it never wakes by itself. One thread. */
typedef struct _NetdLoop NetdLoop;
typedef struct _NetdWatch NetdWatch;
typedef struct _NetdTimer NetdTimer;

/* @events: EPOLLIN, EPOLLOUT, ... as reported */
typedef void (*NetdWatchFunc) (guint32 events, gpointer user_data);
typedef void (*NetdTimerFunc) (gpointer user_data);

NetdLoop *netd_loop_new (void);
void netd_loop_free (NetdLoop *self);
/* Called after the events of a turn, before sleeping: where queues are flushed. */
void netd_loop_set_turn_func (NetdLoop *self, NetdTimerFunc func, gpointer user_data);
void netd_loop_run (NetdLoop *self);
void netd_loop_quit (NetdLoop *self);
/* One turn that waits at most @timeout_ms (-1: until something happens). For tests and run(). */
void netd_loop_turn (NetdLoop *self, int timeout_ms);
/* Milliseconds of CLOCK_MONOTONIC, read once per turn. */
gint64 netd_loop_now (NetdLoop *self);

/* Does not take over @fd; free the watch before closing it. @events 0 watches nothing, not even
 * errors. A watch may be freed in any callback: a freed one is never called again. */
NetdWatch *netd_watch_new (NetdLoop *loop, int fd, guint32 events, NetdWatchFunc func,
                           gpointer user_data);
void netd_watch_set_events (NetdWatch *self, guint32 events);
void netd_watch_free (NetdWatch *self);

/* One-shot; start() again moves it. */
NetdTimer *netd_timer_new (NetdLoop *loop, NetdTimerFunc func, gpointer user_data);
void netd_timer_start (NetdTimer *self, gint64 delay_ms);
void netd_timer_stop (NetdTimer *self);
gboolean netd_timer_is_armed (NetdTimer *self);
void netd_timer_free (NetdTimer *self);

G_DEFINE_AUTOPTR_CLEANUP_FUNC (NetdLoop, netd_loop_free)

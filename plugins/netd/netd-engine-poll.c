/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * libslirp's sockets in our epoll loop. libslirp was made for poll(): before sleeping it is asked
 * for everything that it waits for ("fill"), and afterwards it is told what is ready ("poll"). Here
 * the kernel keeps what was asked for, and only what a fill changed is changed there. Events of a
 * turn are collected and handed over together at its end, because each fill and poll walks over all
 * sockets.
 *
 * A poll always follows a fill with nothing in between: libslirp reads without looking whether it
 * has room, and ends the process if it has none. For the same reason it never hears of an error or
 * of a hang-up as such, only that there is something to read or that it may write, and that only
 * where it asked; reading or writing then brings the error out. Urgent data arrives as ordinary
 * data.
 *
 * Time: libslirp counts half seconds for TCP, while something is going on. For connections that
 * have been quiet for longer than any of its retransmissions, and for UDP, it is enough to look
 * rarely; with no flow there is no timer.
 */
#include "netd-engine-slirp.h"

#include <poll.h>
#include <sys/epoll.h>

#define FAST_MS 2       /* libslirp's delay of acknowledgements */
#define SLOW_MS 500     /* its tick */
#define RARE_MS 10000   /* for what only has to end some day */
#define QUIET_MS 130000 /* twice its longest pause between retransmissions */
#define CLOCK_MS 500    /* how old its idea of the time may be when a packet comes */

#define SLOT_LISTENER G_MAXINT

static guint32
events_for (const NetdFlow *flow)
{
  return ((flow->asked & SLIRP_POLL_IN) != 0 && !flow->is_held ? EPOLLIN : 0)
         | ((flow->asked & SLIRP_POLL_OUT) != 0 ? EPOLLOUT : 0);
}

static void
arm (NetdFlow *flow, guint32 events)
{
  flow->armed = events;
  netd_watch_set_events (flow->watch, events);
}

static void
note_ready (NetdFlow *flow, guint32 events)
{
  NetdInstance *instance = flow->instance;
  NetdEngine *engine = instance->engine;

  engine->active_at = netd_loop_now (engine->config.loop);
  flow->ready |= events;
  instance->is_ready = TRUE;
  if (!netd_timer_is_armed (engine->ready_timer))
    netd_timer_start (engine->ready_timer, 0);
}

/* While paused, what is readable stays so: it is taken out of the set when it first reports, and
 * comes back with the first fill after the pause. */
static void
watch_cb (guint32 events, gpointer user_data)
{
  NetdFlow *flow = user_data;

  if (flow->instance->engine->is_paused && (flow->armed & EPOLLIN) != 0)
    {
      flow->is_held = TRUE;
      arm (flow, events_for (flow));
      if (flow->armed == 0)
        return;
    }
  note_ready (flow, events);
}

/* A connection that is faster than its guest is read whenever there is room, and is readable each
 * time: to look costs less than to put it into the kernel's set and to take it out again. */
static gboolean
is_readable_now (NetdFlow *flow)
{
  struct pollfd state = { .fd = flow->fd, .events = POLLIN };

  if (poll (&state, 1, 0) <= 0)
    return FALSE;
  note_ready (flow, (guint32) state.revents);
  return TRUE;
}

static void
wait_for_asked (NetdFlow *flow)
{
  guint32 events = events_for (flow);
  gboolean reads_anew = (events & ~flow->armed & EPOLLIN) != 0;

  if (reads_anew && !flow->instance->engine->is_paused && is_readable_now (flow))
    events &= ~(guint32) EPOLLIN;
  arm (flow, events);
}

/* A listener that libslirp did not tell about is the one of the connection that is being made. */
static int
add_poll_cb (int fd, int events, gpointer user_data)
{
  NetdInstance *self = user_data;
  NetdFlow *flow = g_hash_table_lookup (self->engine->flows_by_fd, GINT_TO_POINTER (fd));

  if (flow == NULL)
    return self->engine->dialling != NULL ? SLOT_LISTENER : -1;
  flow->asked = (guint32) events;
  flow->fill = self->fill;
  flow->slot = self->asked->len;
  g_ptr_array_add (self->asked, flow);

  if (flow->watch == NULL)
    flow->watch = netd_watch_new (self->engine->config.loop, fd, 0, watch_cb, flow);
  if (!self->engine->is_paused)
    flow->is_held = FALSE;
  wait_for_asked (flow);
  return (int) flow->slot;
}

static void
ask_libslirp (NetdInstance *self, guint32 *timeout)
{
#if SLIRP_CHECK_VERSION(4, 9, 0)
  slirp_pollfds_fill_socket (self->slirp, timeout, add_poll_cb, self);
#else
  slirp_pollfds_fill (self->slirp, timeout, add_poll_cb, self);
#endif
}

/* Asks what it waits for. */
static void
fill (NetdInstance *self)
{
  GPtrArray *before = self->asked;
  guint32 timeout = G_MAXUINT32;

  self->asked = self->before;
  self->before = before;
  self->fill++;
  ask_libslirp (self, &timeout);
  self->is_dirty = FALSE;
  self->is_fast = timeout <= FAST_MS;

  for (guint i = 0; i < before->len; i++)
    {
      NetdFlow *flow = before->pdata[i];

      if (flow == NULL || flow->fill == self->fill)
        continue;
      flow->asked = 0;
      flow->ready = 0;
      arm (flow, 0);
    }
  g_ptr_array_set_size (before, 0);
}

/* Reading stops when the guest's queue is nearly full, and goes on with the socket where it
 * stopped: the order in which libslirp goes through them never changes, and the last would never be
 * read. */
static gboolean
may_read (NetdInstance *self, NetdFlow *flow)
{
  if (self->is_skipping && flow->fd == self->resume_at)
    {
      self->is_skipping = FALSE;
      self->resume_at = -1;
    }
  if (self->is_skipping)
    return FALSE;
  if (!self->engine->is_paused)
    return TRUE;
  if (self->resume_at < 0)
    self->resume_at = flow->fd;
  return FALSE;
}

static int
get_events_cb (int slot, gpointer user_data)
{
  NetdInstance *self = user_data;
  gboolean has_trouble, is_readable, is_writable;
  NetdFlow *flow;
  guint32 ready;

  if (slot == SLOT_LISTENER)
    return self->engine->dialling != NULL ? SLIRP_POLL_IN : 0;
  flow = (guint) slot < self->asked->len ? self->asked->pdata[slot] : NULL;
  if (flow == NULL || flow->ready == 0)
    return 0;

  ready = flow->ready;
  flow->ready = 0;
  has_trouble = (ready & (EPOLLERR | EPOLLHUP)) != 0;
  is_readable = (flow->asked & SLIRP_POLL_IN) != 0 && ((ready & EPOLLIN) != 0 || has_trouble);
  if (is_readable && !may_read (self, flow))
    is_readable = FALSE;
  is_writable = (flow->asked & SLIRP_POLL_OUT) != 0
                && ((ready & EPOLLOUT) != 0 || (has_trouble && !is_readable));
  return (is_readable ? SLIRP_POLL_IN : 0) | (is_writable ? SLIRP_POLL_OUT : 0);
}

static int
get_no_events_cb (int slot, gpointer user_data)
{
  return 0;
}

static gboolean
is_waiting (NetdInstance *self, int fd)
{
  NetdFlow *flow = g_hash_table_lookup (self->engine->flows_by_fd, GINT_TO_POINTER (fd));

  return flow != NULL && flow->instance == self && (flow->asked & SLIRP_POLL_IN) != 0
         && flow->ready != 0;
}

void
netd_instance_poll (NetdInstance *self)
{
  if (self->is_dirty)
    fill (self);
  self->is_skipping = self->resume_at >= 0 && is_waiting (self, self->resume_at);
  if (!self->is_skipping)
    self->resume_at = -1;
  self->is_ready = FALSE;
  self->polled_at = netd_loop_now (self->engine->config.loop);
  slirp_pollfds_poll (self->slirp, 0, get_events_cb, self);
  self->is_skipping = FALSE;
  fill (self);
}

/* libslirp learns the time in a poll only, and dates what a packet begins by it: a flow that begins
 * after a long silence would have ended before it began. */
void
netd_instance_refresh_clock (NetdInstance *self)
{
  gint64 now = netd_loop_now (self->engine->config.loop);

  if (now - self->polled_at < CLOCK_MS)
    return;
  self->polled_at = now;
  slirp_pollfds_poll (self->slirp, 1, get_no_events_cb, self);
}

static gint64
get_delay (NetdEngine *self, const NetdInstance *instance)
{
  gint64 quiet = netd_loop_now (self->config.loop) - self->active_at;

  if (instance->n_flows == 0)
    return G_MAXINT64;
  if (instance->is_fast)
    return FAST_MS;
  return instance->n_tcp > 0 && quiet < QUIET_MS ? SLOW_MS : RARE_MS;
}

/* A timer that comes sooner than needed finds out: it is not moved with every packet. */
static void
schedule (NetdEngine *self)
{
  gint64 now = netd_loop_now (self->config.loop);
  gint64 delay = G_MAXINT64;

  for (guint i = 0; i < NETD_N_INSTANCES; i++)
    {
      if (self->instances[i] != NULL)
        delay = MIN (delay, get_delay (self, self->instances[i]));
    }
  if (delay == G_MAXINT64)
    netd_timer_stop (self->tick_timer);
  else if (!netd_timer_is_armed (self->tick_timer) || self->tick_at > now + delay)
    {
      self->tick_at = now + delay;
      netd_timer_start (self->tick_timer, delay);
    }
}

void
netd_engine_fill_dirty (NetdEngine *self)
{
  for (guint i = 0; i < NETD_N_INSTANCES; i++)
    {
      if (self->instances[i] != NULL && self->instances[i]->is_dirty)
        fill (self->instances[i]);
    }
  schedule (self);
}

void
netd_engine_ready_cb (gpointer user_data)
{
  NetdEngine *self = user_data;

  for (guint i = 0; i < NETD_N_INSTANCES; i++)
    {
      if (self->instances[i] != NULL && self->instances[i]->is_ready)
        netd_instance_poll (self->instances[i]);
    }
  netd_engine_fill_dirty (self);
}

void
netd_engine_tick_cb (gpointer user_data)
{
  NetdEngine *self = user_data;

  netd_flow_expire_half_open (self);
  for (guint i = 0; i < NETD_N_INSTANCES; i++)
    {
      if (self->instances[i] != NULL && self->instances[i]->n_flows > 0)
        netd_instance_poll (self->instances[i]);
    }
  schedule (self);
}

gboolean
netd_engine_is_quiet (NetdEngine *self)
{
  return !netd_timer_is_armed (self->tick_timer) && !netd_timer_is_armed (self->ready_timer)
         && !netd_timer_is_armed (self->dial_timer)
         && (self->reassembly == NULL || netd_reassembly_get_pending (self->reassembly) == 0);
}

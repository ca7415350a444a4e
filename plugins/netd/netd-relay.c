/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Carries bytes between two stream sockets. What is read from one side is written to the other at
 * once; only what that one does not take is kept, and while something is kept nothing more is read.
 * So an idle or a well fed relay owns no buffer, and a side that does not read slows the other one
 * down.
 *
 * Hang-ups are reported by epoll whether asked for or not, and for as long as they last. A side of
 * which nothing is wanted for now is therefore watched edge-triggered: its death is seen once, and
 * no turn is spent on it after that.
 */
#include "netd-relay.h"

#include <errno.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define CHUNK 65536
/* Chunks taken from one side per turn, so that a fast pair does not hold up the rest. */
#define CHUNKS_PER_TURN 4

typedef struct
{
  NetdRelay *relay;
  int fd;
  NetdWatch *watch;
  guint8 *kept; /* read from here, not yet taken by the other side; NULL when there is nothing */
  gsize kept_start;
  gsize kept_end;
  gboolean ended; /* what was said here is said and delivered, or will not be */
} Side;

struct _NetdRelay
{
  NetdLoop *loop;
  Side sides[2];
  gint64 activity;
  NetdRelayFunc done;
  gpointer user_data;
};

static Side *
other_side (Side *side)
{
  return side == &side->relay->sides[0] ? &side->relay->sides[1] : &side->relay->sides[0];
}

static void
forget_kept (Side *side)
{
  g_clear_pointer (&side->kept, g_free);
  side->kept_start = side->kept_end = 0;
}

/* @to takes nothing any more: what its other side says has no receiver. */
static void
end_direction_into (Side *to)
{
  Side *from = other_side (to);

  from->ended = TRUE;
  forget_kept (from);
}

/* Returns FALSE when the relay failed. *@sent is how much @to took. */
static gboolean
write_to (Side *to, const guint8 *data, gsize length, gsize *sent)
{
  *sent = 0;
  while (*sent < length)
    {
      gssize n = send (to->fd, data + *sent, length - *sent, MSG_NOSIGNAL | MSG_DONTWAIT);

      if (n < 0 && errno == EINTR)
        continue;
      if (n < 0 && errno == EAGAIN)
        return TRUE;
      if (n < 0 && errno == EPIPE)
        {
          /* It ended in order and listens no more. What it said before is still carried. */
          end_direction_into (to);
          *sent = length;
          return TRUE;
        }
      if (n < 0)
        return FALSE;
      *sent += (gsize) n;
      to->relay->activity = netd_loop_now (to->relay->loop);
    }
  return TRUE;
}

/* Returns FALSE when the relay failed. */
static gboolean
read_from (Side *from)
{
  /* One thread runs the loop, and nothing stays in here between calls. */
  static guint8 chunk[CHUNK];
  Side *to = other_side (from);

  for (guint i = 0; i < CHUNKS_PER_TURN && !from->ended && from->kept == NULL; i++)
    {
      gssize n = recv (from->fd, chunk, sizeof chunk, MSG_DONTWAIT);
      gsize sent = 0;

      if (n < 0)
        return errno == EAGAIN || errno == EINTR;
      if (n == 0)
        {
          /* With nothing kept, this is behind everything that was said. */
          from->ended = TRUE;
          shutdown (to->fd, SHUT_WR);
          return TRUE;
        }
      if (!write_to (to, chunk, (gsize) n, &sent))
        return FALSE;
      if (sent < (gsize) n)
        {
          from->kept = g_memdup2 (chunk + sent, (gsize) n - sent);
          from->kept_end = (gsize) n - sent;
        }
      if (n < CHUNK)
        return TRUE;
    }
  return TRUE;
}

/* Returns FALSE when the relay failed. */
static gboolean
write_kept (Side *to)
{
  Side *from = other_side (to);
  gsize sent = 0;

  if (!write_to (to, from->kept + from->kept_start, from->kept_end - from->kept_start, &sent))
    return FALSE;
  if (from->kept == NULL)
    return TRUE; /* given up */
  from->kept_start += sent;
  if (from->kept_start == from->kept_end)
    forget_kept (from);
  return TRUE;
}

static void
update_interest (Side *side)
{
  guint32 events = 0;

  if (!side->ended && side->kept == NULL)
    events |= EPOLLIN;
  if (other_side (side)->kept != NULL)
    events |= EPOLLOUT;
  netd_watch_set_events (side->watch, events != 0 ? events : EPOLLET);
}

static void
close_sides (NetdRelay *self, gboolean reset)
{
  const struct linger at_once = { .l_onoff = 1, .l_linger = 0 };

  for (guint i = 0; i < 2; i++)
    {
      Side *side = &self->sides[i];

      netd_watch_free (side->watch);
      if (reset)
        setsockopt (side->fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
      close (side->fd);
      forget_kept (side);
    }
}

static void
finish (NetdRelay *self, gboolean reset)
{
  close_sides (self, reset);
  self->done (self, self->user_data);
  g_free (self);
}

/* Returns FALSE when the relay failed. */
static gboolean
handle_death (Side *side, guint32 events)
{
  int error = 0;
  socklen_t length = sizeof error;

  if ((events & EPOLLERR) != 0)
    getsockopt (side->fd, SOL_SOCKET, SO_ERROR, &error, &length);
  if (error != 0 && error != EPIPE)
    return FALSE;
  /* A hang-up in the middle of what it says says nothing yet: that is read first. */
  if (error == EPIPE || (side->ended && (events & EPOLLHUP) != 0))
    end_direction_into (side);
  return TRUE;
}

static void
side_ready (guint32 events, gpointer user_data)
{
  Side *side = user_data;
  NetdRelay *self = side->relay;
  gboolean good = TRUE;

  if (other_side (side)->kept != NULL && (events & (EPOLLOUT | EPOLLHUP | EPOLLERR)) != 0)
    good = write_kept (side);
  if (good && !side->ended && side->kept == NULL
      && (events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0)
    good = read_from (side);
  if (good && (events & (EPOLLHUP | EPOLLERR)) != 0)
    good = handle_death (side, events);
  if (!good || (self->sides[0].ended && self->sides[1].ended))
    {
      finish (self, !good);
      return;
    }
  update_interest (&self->sides[0]);
  update_interest (&self->sides[1]);
}

NetdRelay *
netd_relay_new (NetdLoop *loop, int a, int b, NetdRelayFunc done, gpointer user_data)
{
  NetdRelay *self = g_new0 (NetdRelay, 1);
  const int fds[2] = { a, b };

  self->loop = loop;
  self->activity = netd_loop_now (loop);
  self->done = done;
  self->user_data = user_data;
  for (guint i = 0; i < 2; i++)
    {
      self->sides[i].relay = self;
      self->sides[i].fd = fds[i];
      self->sides[i].watch = netd_watch_new (loop, fds[i], EPOLLIN, side_ready, &self->sides[i]);
    }
  return self;
}

void
netd_relay_free (NetdRelay *self)
{
  close_sides (self, TRUE);
  g_free (self);
}

gint64
netd_relay_get_last_activity (NetdRelay *self)
{
  return self->activity;
}

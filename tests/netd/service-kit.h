/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* For tests of what netd does with sockets of the host: pairs of connected sockets, a clock that
 * can be put forward, and turning the loop until something is so. One file per program includes
 * it. */

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "netd-loop.h"

static gint64 kit_clock_ahead_ms;

/* The C library's, but ahead: whatever waits for a time in this program sees it pass. */
int
clock_gettime (clockid_t id, struct timespec *now)
{
  int result = (int) syscall (SYS_clock_gettime, id, now);

  now->tv_sec += kit_clock_ahead_ms / 1000;
  now->tv_nsec += kit_clock_ahead_ms % 1000 * 1000000;
  if (now->tv_nsec >= 1000000000)
    {
      now->tv_sec++;
      now->tv_nsec -= 1000000000;
    }
  return result;
}

static inline void
kit_pass_time (gint64 ms)
{
  kit_clock_ahead_ms += ms;
}

static inline gint64
kit_real_seconds (void)
{
  struct timespec now;

  syscall (SYS_clock_gettime, CLOCK_MONOTONIC, &now);
  return now.tv_sec;
}

/* Long enough for a loaded machine under a sanitizer; only a failure waits so long. */
#define KIT_PATIENCE_SECONDS 120

#define KIT_TURN_UNTIL(loop, condition)                                                            \
  G_STMT_START                                                                                     \
  {                                                                                                \
    gint64 kit_end = kit_real_seconds () + KIT_PATIENCE_SECONDS;                                   \
    gboolean kit_is_so = FALSE;                                                                    \
    while (!(kit_is_so = (condition)) && kit_real_seconds () < kit_end)                            \
      netd_loop_turn (loop, 20);                                                                   \
    if (!kit_is_so)                                                                                \
      g_assert_cmpstr (#condition, ==, "so in time");                                              \
  }                                                                                                \
  G_STMT_END

/* What is ready is seen to, whatever it leads to. */
static inline void
kit_settle (NetdLoop *loop)
{
  for (guint i = 0; i < 50; i++)
    netd_loop_turn (loop, 1);
}

static inline void
kit_timer_fired (gpointer user_data)
{
  *(gboolean *) user_data = TRUE;
}

/* How often the loop turns until a timer fires, with nothing else to do. */
static inline guint
kit_count_turns (NetdLoop *loop)
{
  gboolean fired = FALSE;
  NetdTimer *timer;
  guint turns = 0;

  kit_settle (loop);
  timer = netd_timer_new (loop, kit_timer_fired, &fired);
  netd_timer_start (timer, 50);
  for (; !fired; turns++)
    netd_loop_turn (loop, -1);
  netd_timer_free (timer);
  return turns;
}

/* Some turns may come early; a loop that is kept awake makes thousands. */
#define KIT_QUIET_TURNS 5

static inline int
kit_listen (int type, const char *address, guint16 *port)
{
  struct sockaddr_in name = { .sin_family = AF_INET };
  socklen_t length = sizeof name;
  int fd = socket (AF_INET, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

  g_assert_cmpint (inet_pton (AF_INET, address, &name.sin_addr), ==, 1);
  g_assert_cmpint (bind (fd, (struct sockaddr *) &name, sizeof name), ==, 0);
  if (type == SOCK_STREAM)
    g_assert_cmpint (listen (fd, 64), ==, 0);
  g_assert_cmpint (getsockname (fd, (struct sockaddr *) &name, &length), ==, 0);
  *port = g_ntohs (name.sin_port);
  return fd;
}

static inline int
kit_connect (const char *address, guint16 port)
{
  struct sockaddr_in name = { .sin_family = AF_INET, .sin_port = g_htons (port) };
  int fd = socket (AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

  g_assert_cmpint (inet_pton (AF_INET, address, &name.sin_addr), ==, 1);
  g_assert_cmpint (connect (fd, (struct sockaddr *) &name, sizeof name), ==, 0);
  return fd;
}

/* Both ends block; what is to be carried uses MSG_DONTWAIT. */
static inline void
kit_tcp_pair (int pair[2])
{
  guint16 port;
  int listener = kit_listen (SOCK_STREAM, "127.0.0.1", &port);

  pair[0] = kit_connect ("127.0.0.1", port);
  pair[1] = accept4 (listener, NULL, NULL, SOCK_CLOEXEC);
  g_assert_cmpint (pair[1], >=, 0);
  close (listener);
}

static inline void
kit_unix_pair (int pair[2])
{
  g_assert_cmpint (socketpair (AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), ==, 0);
}

static inline void
kit_reset (int fd)
{
  const struct linger at_once = { .l_onoff = 1, .l_linger = 0 };

  g_assert_cmpint (setsockopt (fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once), ==, 0);
  close (fd);
}

static inline void
kit_say (int fd, const char *text)
{
  g_assert_cmpint (send (fd, text, strlen (text), MSG_NOSIGNAL), ==, (gssize) strlen (text));
}

/* Bytes to read: at least one, or the end (0), or an error (-errno); -EAGAIN when there is none
 * yet. */
static inline gssize
kit_peek (int fd)
{
  char byte;
  gssize n = recv (fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);

  return n < 0 ? -errno : n;
}

/* Turns the loop until exactly @text came in at @fd. */
static inline void
kit_expect (NetdLoop *loop, int fd, const char *text)
{
  char got[256] = "";
  gsize length = 0;

  while (length < strlen (text))
    {
      gssize n;

      KIT_TURN_UNTIL (loop, kit_peek (fd) != -EAGAIN);
      n = recv (fd, got + length, MIN (sizeof got - 1, strlen (text)) - length, 0);
      g_assert_cmpint (n, >, 0);
      length += (gsize) n;
    }
  g_assert_cmpstr (got, ==, text);
}

/* 0 for an orderly end, -ECONNRESET for a reset, which a socket tells once. */
static inline void
kit_expect_end (NetdLoop *loop, int fd, gssize end)
{
  gssize got = -EAGAIN;

  KIT_TURN_UNTIL (loop, (got = kit_peek (fd)) != -EAGAIN);
  g_assert_cmpint (got, ==, end);
}

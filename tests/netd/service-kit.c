/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Sockets of the host for tests, and waiting for what comes of them. */
#include "service-kit.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/syscall.h>
#include <time.h>

gint64
kit_real_seconds (void)
{
  struct timespec now;

  syscall (SYS_clock_gettime, CLOCK_MONOTONIC, &now);
  return now.tv_sec;
}

void
kit_settle (NetdLoop *loop)
{
  for (guint i = 0; i < 50; i++)
    netd_loop_turn (loop, 1);
}

static void
kit_timer_fired (gpointer user_data)
{
  *(gboolean *) user_data = TRUE;
}

guint
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

int
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

int
kit_connect (const char *address, guint16 port)
{
  struct sockaddr_in name = { .sin_family = AF_INET, .sin_port = g_htons (port) };
  int fd = socket (AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

  g_assert_cmpint (inet_pton (AF_INET, address, &name.sin_addr), ==, 1);
  g_assert_cmpint (connect (fd, (struct sockaddr *) &name, sizeof name), ==, 0);
  return fd;
}

void
kit_tcp_pair (int pair[2])
{
  guint16 port;
  int listener = kit_listen (SOCK_STREAM, "127.0.0.1", &port);

  pair[0] = kit_connect ("127.0.0.1", port);
  pair[1] = accept4 (listener, NULL, NULL, SOCK_CLOEXEC);
  g_assert_cmpint (pair[1], >=, 0);
  close (listener);
}

void
kit_unix_pair (int pair[2])
{
  g_assert_cmpint (socketpair (AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), ==, 0);
}

void
kit_reset (int fd)
{
  const struct linger at_once = { .l_onoff = 1, .l_linger = 0 };

  g_assert_cmpint (setsockopt (fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once), ==, 0);
  close (fd);
}

void
kit_say (int fd, const char *text)
{
  g_assert_cmpint (send (fd, text, strlen (text), MSG_NOSIGNAL), ==, (gssize) strlen (text));
}

gssize
kit_peek (int fd)
{
  char byte;
  gssize n = recv (fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);

  return n < 0 ? -errno : n;
}

void
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

void
kit_expect_end (NetdLoop *loop, int fd, gssize end)
{
  gssize got = -EAGAIN;

  KIT_TURN_UNTIL (loop, (got = kit_peek (fd)) != -EAGAIN);
  g_assert_cmpint (got, ==, end);
}

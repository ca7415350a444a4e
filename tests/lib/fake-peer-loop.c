/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The sockets of the fake programs: one epoll instance, lines, and what could not be sent yet. */
#include "fake-peer-loop.h"

#include <errno.h>
#include <glib-unix.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define EVENTS_PER_TURN 64
#define READ_SIZE 4096
#define FILES_WANTED 65536

struct _TestWatch
{
  int fd;
  gboolean dead; /* freed while events are being handed out */
  TestWatchFunc ready;
  gpointer user_data;
};

static struct
{
  int fd;
  guint source;
  guint n_watches;
  gboolean dispatching;
  GPtrArray *dead;
} loop = { -1, 0, 0, FALSE, NULL };

static gboolean
dispatch_cb (int fd, GIOCondition condition, gpointer user_data)
{
  struct epoll_event events[EVENTS_PER_TURN];
  int count = epoll_wait (fd, events, EVENTS_PER_TURN, 0);

  loop.dispatching = TRUE;
  for (int i = 0; i < count; i++)
    {
      TestWatch *watch = events[i].data.ptr;

      if (!watch->dead)
        watch->ready (watch->user_data);
    }
  loop.dispatching = FALSE;
  if (loop.dead != NULL)
    g_ptr_array_set_size (loop.dead, 0);
  return G_SOURCE_CONTINUE;
}

static void
open_loop (void)
{
  struct rlimit limit;

  if (loop.fd >= 0)
    return;
  if (getrlimit (RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < FILES_WANTED)
    {
      limit.rlim_cur = MIN (limit.rlim_max, FILES_WANTED);
      setrlimit (RLIMIT_NOFILE, &limit);
    }
  loop.fd = epoll_create1 (EPOLL_CLOEXEC);
  g_assert_cmpint (loop.fd, >=, 0);
  loop.source = g_unix_fd_add (loop.fd, G_IO_IN, dispatch_cb, NULL);
  loop.dead = g_ptr_array_new_with_free_func (g_free);
}

TestWatch *
test_watch_new (int fd, TestWatchFunc ready, gpointer user_data)
{
  TestWatch *watch = g_new0 (TestWatch, 1);
  struct epoll_event event = { .events = EPOLLIN, .data.ptr = watch };

  open_loop ();
  watch->fd = fd;
  watch->ready = ready;
  watch->user_data = user_data;
  g_assert_cmpint (epoll_ctl (loop.fd, EPOLL_CTL_ADD, fd, &event), ==, 0);
  loop.n_watches++;
  return watch;
}

void
test_watch_set_writable (TestWatch *watch, gboolean writable)
{
  struct epoll_event event = { .events = writable ? EPOLLIN | EPOLLOUT : EPOLLIN,
                               .data.ptr = watch };

  epoll_ctl (loop.fd, EPOLL_CTL_MOD, watch->fd, &event);
}

void
test_watch_free (TestWatch *watch)
{
  epoll_ctl (loop.fd, EPOLL_CTL_DEL, watch->fd, NULL);
  watch->dead = TRUE;
  g_ptr_array_add (loop.dead, watch);
  if (!loop.dispatching)
    g_ptr_array_set_size (loop.dead, 0);
  if (--loop.n_watches > 0 || loop.dispatching)
    return;
  g_source_remove (loop.source);
  close (loop.fd);
  loop.fd = -1;
  g_clear_pointer (&loop.dead, g_ptr_array_unref);
}

struct _TestLines
{
  int fd;
  TestWatch *watch;
  GString *in;
  GString *out;
  TestLinesFunc line;
  TestLinesClosedFunc closed;
  gpointer user_data;
  gboolean raw;
  gboolean busy; /* a callback runs */
  gboolean dead; /* freed by it */
};

static void
flush (TestLines *lines)
{
  gssize sent = send (lines->fd, lines->out->str, lines->out->len, MSG_NOSIGNAL | MSG_DONTWAIT);

  if (sent > 0)
    g_string_erase (lines->out, 0, sent);
  else if (errno != EAGAIN)
    g_string_truncate (lines->out, 0); /* the reader has gone; reading finds out */
  test_watch_set_writable (lines->watch, lines->out->len > 0);
}

static void
really_free (TestLines *lines)
{
  test_watch_free (lines->watch);
  close (lines->fd);
  g_string_free (lines->in, TRUE);
  g_string_free (lines->out, TRUE);
  g_free (lines);
}

static void
hand_out (TestLines *lines)
{
  char *end;

  if (lines->raw)
    {
      lines->line (lines, lines->in->str, lines->user_data);
      if (!lines->dead)
        g_string_truncate (lines->in, 0);
      return;
    }
  while (!lines->dead && (end = strchr (lines->in->str, '\n')) != NULL)
    {
      g_autofree char *line = g_strndup (lines->in->str, end - lines->in->str);

      g_string_erase (lines->in, 0, end + 1 - lines->in->str);
      lines->line (lines, line, lines->user_data);
    }
}

static void
lines_ready (gpointer user_data)
{
  TestLines *lines = user_data;
  char buffer[READ_SIZE];
  gssize size = recv (lines->fd, buffer, sizeof buffer, MSG_DONTWAIT);

  if (lines->out->len > 0)
    flush (lines);
  lines->busy = TRUE;
  if (size > 0)
    {
      g_string_append_len (lines->in, buffer, size);
      hand_out (lines);
    }
  else if (size == 0 || errno != EAGAIN)
    {
      lines->closed (lines, lines->user_data);
    }
  lines->busy = FALSE;
  if (lines->dead)
    really_free (lines);
}

TestLines *
test_lines_new (int fd, TestLinesFunc line, TestLinesClosedFunc closed, gpointer user_data)
{
  TestLines *lines = g_new0 (TestLines, 1);

  lines->fd = fd;
  lines->in = g_string_new (NULL);
  lines->out = g_string_new (NULL);
  lines->line = line;
  lines->closed = closed;
  lines->user_data = user_data;
  lines->watch = test_watch_new (fd, lines_ready, lines);
  return lines;
}

void
test_lines_send_data (TestLines *lines, const void *data, gsize length)
{
  if (lines->dead)
    return;
  g_string_append_len (lines->out, data, length);
  flush (lines);
}

void
test_lines_send (TestLines *lines, const char *text)
{
  g_autofree char *line = g_strconcat (text, "\r\n", NULL);

  test_lines_send_data (lines, line, strlen (line));
}

void
test_lines_set_raw (TestLines *lines)
{
  lines->raw = TRUE;
}

void
test_lines_free (TestLines *lines)
{
  if (lines->busy)
    lines->dead = TRUE;
  else
    really_free (lines);
}

int
test_listen (const char *path)
{
  struct sockaddr_un address = { .sun_family = AF_UNIX };
  int fd;

  if (strlen (path) >= sizeof address.sun_path)
    return -1;
  g_strlcpy (address.sun_path, path, sizeof address.sun_path);
  unlink (path);
  open_loop (); /* raises the limit of descriptors */
  fd = socket (AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd >= 0 && bind (fd, (struct sockaddr *) &address, sizeof address) == 0
      && listen (fd, 8) == 0)
    return fd;
  if (fd >= 0)
    close (fd);
  return -1;
}

int
test_accept (int fd)
{
  return accept4 (fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
}

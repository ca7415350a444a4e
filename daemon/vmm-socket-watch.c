/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Many quiet sockets in one source of the main context.
 *
 * GLib asks every source before and after it waits, and poll() looks at every descriptor: two
 * thousand idle connections make each iteration of the main loop take a fifth of a millisecond,
 * whatever it is for. epoll only talks about those that have something to say. The set is made
 * with the first watch and goes with the last one; a descriptor that the kernel does not take into
 * it gets a source of its own.
 *
 * Only the main thread uses this, like everything that runs in the default context.
 */
#include "config.h"

#include "vmm-socket-watch.h"

#include <glib-unix.h>
#include <sys/epoll.h>
#include <unistd.h>

#define EVENTS_PER_TURN 64

struct _VmmSocketWatch
{
  int fd;
  VmmSocketReady ready;
  gpointer user_data;
  guint own_source; /* when it is not in the set */
  gboolean dead;    /* freed while events are handed out */
};

/* The set of the default main context; fd is -1 while there is none. */
static struct
{
  int fd;
  guint source;
  guint n_watches;
  guint depth;  /* of dispatching */
  GSList *dead; /* freed when the events that may name them are done */
} set = { -1, 0, 0, 0, NULL };

static void
free_dead (void)
{
  g_slist_free_full (g_steal_pointer (&set.dead), g_free);
}

static void
close_if_unused (void)
{
  if (set.n_watches > 0 || set.fd < 0)
    return;
  g_clear_handle_id (&set.source, g_source_remove);
  close (set.fd);
  set.fd = -1;
}

static gboolean
dispatch_cb (int fd, GIOCondition condition, gpointer user_data)
{
  struct epoll_event events[EVENTS_PER_TURN];
  int count = epoll_wait (fd, events, EVENTS_PER_TURN, 0);
  gboolean unused;

  set.depth++;
  for (int i = 0; i < count; i++)
    {
      VmmSocketWatch *watch = events[i].data.ptr;

      if (!watch->dead)
        watch->ready (watch->user_data);
    }
  if (--set.depth > 0)
    return G_SOURCE_CONTINUE;
  free_dead ();
  unused = set.n_watches == 0;
  if (unused)
    {
      set.source = 0; /* by returning */
      close_if_unused ();
    }
  return unused ? G_SOURCE_REMOVE : G_SOURCE_CONTINUE;
}

static gboolean
add_to_set (VmmSocketWatch *self)
{
  struct epoll_event event = { .events = EPOLLIN, .data.ptr = self };

  if (set.fd < 0)
    {
      set.fd = epoll_create1 (EPOLL_CLOEXEC);
      if (set.fd < 0)
        return FALSE;
      set.source = g_unix_fd_add (set.fd, G_IO_IN, dispatch_cb, NULL);
    }
  if (epoll_ctl (set.fd, EPOLL_CTL_ADD, self->fd, &event) != 0)
    {
      if (set.depth == 0)
        close_if_unused ();
      return FALSE;
    }
  set.n_watches++;
  return TRUE;
}

static gboolean
own_source_cb (int fd, GIOCondition condition, gpointer user_data)
{
  VmmSocketWatch *self = user_data;

  self->ready (self->user_data);
  return G_SOURCE_CONTINUE;
}

VmmSocketWatch *
vmm_socket_watch_new (int fd, VmmSocketReady ready, gpointer user_data)
{
  VmmSocketWatch *self = g_new0 (VmmSocketWatch, 1);

  self->fd = fd;
  self->ready = ready;
  self->user_data = user_data;
  if (!add_to_set (self))
    self->own_source = g_unix_fd_add (fd, G_IO_IN, own_source_cb, self);
  return self;
}

void
vmm_socket_watch_set_writable (VmmSocketWatch *self, gboolean writable)
{
  struct epoll_event event
      = { .events = writable ? EPOLLIN | EPOLLOUT : EPOLLIN, .data.ptr = self };

  if (self->own_source == 0)
    {
      epoll_ctl (set.fd, EPOLL_CTL_MOD, self->fd, &event); /* cannot fail for one that is in it */
      return;
    }
  g_source_remove (self->own_source);
  self->own_source
      = g_unix_fd_add (self->fd, writable ? G_IO_IN | G_IO_OUT : G_IO_IN, own_source_cb, self);
}

void
vmm_socket_watch_free (VmmSocketWatch *self)
{
  if (self->own_source != 0)
    {
      g_source_remove (self->own_source);
      g_free (self);
      return;
    }
  epoll_ctl (set.fd, EPOLL_CTL_DEL, self->fd, NULL);
  set.n_watches--;
  if (set.depth > 0)
    {
      self->dead = TRUE;
      set.dead = g_slist_prepend (set.dead, self);
      return;
    }
  g_free (self);
  close_if_unused ();
}

/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Files that appear, from inotify.
 *
 * A user has few inotify instances (128 where nobody raised it), so all watches share one, which
 * exists while there is a watch. Two watches of one folder have one number in the kernel, which
 * goes with the second.
 *
 * Only the main thread uses this, like everything that runs in the default context.
 */
#include "config.h"

#include "vmm-arrival-watch.h"

#include <glib-unix.h>
#include <string.h>
#include <sys/inotify.h>
#include <unistd.h>

/* Room for some dozens of events with names of usual length, and for the longest name. */
#define BUFFER_SIZE 4096

struct _VmmArrivalWatch
{
  int folder; /* the kernel's number */
  char *name;
  VmmArrived arrived;
  gpointer user_data;
  gboolean dead; /* freed while events are handed out */
};

/* Of the default main context; fd is -1 while there is none. */
static struct
{
  int fd;
  guint source;
  GPtrArray *watches;
  guint depth; /* of dispatching */
} all = { -1, 0, NULL, 0 };

static void
watch_free (gpointer data)
{
  VmmArrivalWatch *self = data;

  g_free (self->name);
  g_free (self);
}

static gboolean
is_watched (int folder)
{
  for (guint i = 0; i < all.watches->len; i++)
    {
      const VmmArrivalWatch *watch = g_ptr_array_index (all.watches, i);

      if (watch->folder == folder && !watch->dead)
        return TRUE;
    }
  return FALSE;
}

static void
drop (VmmArrivalWatch *self)
{
  int folder = self->folder;

  g_ptr_array_remove_fast (all.watches, self);
  if (!is_watched (folder))
    inotify_rm_watch (all.fd, folder); /* fails when the folder is gone, and that is fine */
}

static void
drop_dead (void)
{
  for (guint i = all.watches->len; i > 0; i--)
    {
      VmmArrivalWatch *watch = g_ptr_array_index (all.watches, i - 1);

      if (watch->dead)
        drop (watch);
    }
}

static gboolean
close_if_unused (void)
{
  if (all.watches->len > 0)
    return FALSE;
  close (all.fd);
  all.fd = -1;
  g_clear_pointer (&all.watches, g_ptr_array_unref);
  return TRUE;
}

/* What is added meanwhile is at the end, and did not miss it. */
static void
hand_out (const struct inotify_event *event)
{
  gboolean is_for_all = (event->mask & IN_Q_OVERFLOW) != 0;
  guint n_watches = all.watches->len;

  for (guint i = 0; i < n_watches; i++)
    {
      VmmArrivalWatch *watch = g_ptr_array_index (all.watches, i);

      if (!watch->dead
          && (is_for_all
              || (watch->folder == event->wd && event->len > 0
                  && strcmp (watch->name, event->name) == 0)))
        watch->arrived (watch->user_data);
    }
}

static gboolean
readable_cb (int fd, GIOCondition condition, gpointer user_data)
{
  union
  {
    struct inotify_event first;
    char bytes[BUFFER_SIZE];
  } buffer;
  ssize_t length = read (fd, buffer.bytes, sizeof buffer.bytes);

  all.depth++;
  for (ssize_t at = 0; at < length;)
    {
      const struct inotify_event *event = (const void *) (buffer.bytes + at);

      hand_out (event);
      at += (ssize_t) (sizeof *event + event->len);
    }
  if (--all.depth > 0)
    return G_SOURCE_CONTINUE;
  drop_dead ();
  if (!close_if_unused ())
    return G_SOURCE_CONTINUE;
  all.source = 0; /* by returning */
  return G_SOURCE_REMOVE;
}

static gboolean
open_if_needed (void)
{
  if (all.fd >= 0)
    return TRUE;
  all.fd = inotify_init1 (IN_NONBLOCK | IN_CLOEXEC);
  if (all.fd < 0)
    return FALSE;
  all.watches = g_ptr_array_new_with_free_func (watch_free);
  all.source = g_unix_fd_add (all.fd, G_IO_IN, readable_cb, NULL);
  return TRUE;
}

static void
release_if_unused (void)
{
  if (all.depth == 0 && close_if_unused ())
    g_clear_handle_id (&all.source, g_source_remove);
}

VmmArrivalWatch *
vmm_arrival_watch_new (const char *path, VmmArrived arrived, gpointer user_data)
{
  g_autofree char *directory = g_path_get_dirname (path);
  VmmArrivalWatch *self;
  int folder;

  if (!open_if_needed ())
    return NULL;
  folder = inotify_add_watch (all.fd, directory, IN_CREATE | IN_MOVED_TO | IN_ONLYDIR);
  if (folder < 0)
    {
      release_if_unused ();
      return NULL;
    }
  self = g_new0 (VmmArrivalWatch, 1);
  self->folder = folder;
  self->name = g_path_get_basename (path);
  self->arrived = arrived;
  self->user_data = user_data;
  g_ptr_array_add (all.watches, self);
  return self;
}

void
vmm_arrival_watch_free (VmmArrivalWatch *self)
{
  if (all.depth > 0)
    {
      self->dead = TRUE;
      return;
    }
  drop (self);
  release_if_unused ();
}

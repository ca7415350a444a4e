/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "monitor-folder.h"

#include <errno.h>
#include <sys/inotify.h>
#include <unistd.h>

#include "monitor-watch.h"

#define ADDED (IN_CREATE | IN_MOVED_TO)
#define REMOVED (IN_DELETE | IN_MOVED_FROM)
#define GONE (IN_DELETE_SELF | IN_MOVE_SELF | IN_UNMOUNT | IN_IGNORED)

struct _MonitorFolder
{
  int fd;
  MonitorWatch *watch;
  MonitorFolderFuncs funcs;
  gpointer user_data;
};

static void
tell (MonitorFolder *self, const struct inotify_event *event)
{
  if ((event->mask & GONE) != 0)
    self->funcs.gone (self->user_data);
  else if (event->len > 0 && (event->mask & ADDED) != 0)
    self->funcs.added (event->name, self->user_data);
  else if (event->len > 0 && (event->mask & REMOVED) != 0)
    self->funcs.removed (event->name, self->user_data);
}

static void
readable_cb (GIOCondition condition, gpointer user_data)
{
  MonitorFolder *self = user_data;
  union
  {
    struct inotify_event align;
    char data[4096];
  } buffer;
  gssize size = read (self->fd, buffer.data, sizeof buffer.data);
  gssize at = 0;

  while (at < size)
    {
      const struct inotify_event *event = (const struct inotify_event *) (buffer.data + at);

      at += (gssize) (sizeof *event + event->len);
      tell (self, event);
    }
}

MonitorFolder *
monitor_folder_new (const MonitorFolderFuncs *funcs, gpointer user_data)
{
  int fd = inotify_init1 (IN_NONBLOCK | IN_CLOEXEC);
  MonitorFolder *self;
  int code;

  if (fd < 0)
    return NULL;
  if (inotify_add_watch (fd, ".", ADDED | REMOVED | IN_DELETE_SELF | IN_MOVE_SELF | IN_ONLYDIR) < 0)
    {
      code = errno;
      close (fd);
      errno = code;
      return NULL;
    }
  self = g_new0 (MonitorFolder, 1);
  self->fd = fd;
  self->funcs = *funcs;
  self->user_data = user_data;
  self->watch = monitor_watch_new (fd, G_IO_IN, readable_cb, self);
  return self;
}

void
monitor_folder_free (MonitorFolder *self)
{
  monitor_watch_free (self->watch);
  close (self->fd);
  g_free (self);
}

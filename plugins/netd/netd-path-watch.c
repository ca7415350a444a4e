/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Watches paths by inotify. The kernel watches folders, not names: a watch of ours sits in the
 * folder of its path or, while that is missing, in the nearest one above that exists, and moves
 * down as soon as it can. A file that exists is watched itself, too: what is mounted over a name
 * changes without a word to the folder.
 *
 * The kernel gives one number for one folder however often it is added, so that several of our
 * watches may share a number; the last one takes it away.
 */
#include "netd-path-watch.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#define FOLDER_EVENTS                                                                              \
  (IN_CREATE | IN_MOVED_TO | IN_ATTRIB | IN_CLOSE_WRITE | IN_DELETE | IN_MOVED_FROM |              \
   IN_DELETE_SELF | IN_MOVE_SELF)
#define GONE_EVENTS (IN_DELETE_SELF | IN_MOVE_SELF | IN_IGNORED | IN_UNMOUNT)

struct _NetdPathWatcher
{
  int fd; /* -1: none to be had */
  NetdWatch *watch;
  GPtrArray *paths; /* NetdPathWatch; NULL where one was freed while events are told */
  gboolean telling;
};

struct _NetdPathWatch
{
  NetdPathWatcher *watcher;
  char *path;
  char *awaited; /* the name that matters in the folder that is watched */
  int folder;    /* inotify's numbers, -1 for none */
  int file;
  NetdPathFunc func;
  gpointer user_data;
};

static gboolean
is_used (NetdPathWatcher *self, int number)
{
  for (guint i = 0; i < self->paths->len; i++)
    {
      NetdPathWatch *path = g_ptr_array_index (self->paths, i);

      if (path != NULL && (path->folder == number || path->file == number))
        return TRUE;
    }
  return FALSE;
}

/* By way of its descriptor: what was looked at is what is watched. */
static int
add_number (NetdPathWatcher *self, int fd, guint32 events)
{
  char path[32];

  if (self->fd < 0)
    return -1;
  g_snprintf (path, sizeof path, "/proc/self/fd/%d", fd);
  return inotify_add_watch (self->fd, path, events | IN_MASK_ADD);
}

static void
drop_number (NetdPathWatcher *self, int *number)
{
  int dropped = *number;

  *number = -1;
  if (dropped >= 0 && !is_used (self, dropped))
    inotify_rm_watch (self->fd, dropped);
}

/* Opens the nearest existing folder above @path; @awaited is the next name on the way. */
static int
open_nearest (const char *path, char **awaited)
{
  g_autofree char *folder = g_path_get_dirname (path);
  g_autofree char *name = g_path_get_basename (path);
  int fd;

  for (;;)
    {
      g_autofree char *missing = NULL;

      fd = open (folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
      if (fd >= 0 || strlen (folder) <= 1)
        break;
      missing = g_steal_pointer (&folder);
      folder = g_path_get_dirname (missing);
      g_free (name);
      name = g_path_get_basename (missing);
    }
  *awaited = g_steal_pointer (&name);
  return fd;
}

/* Once; a folder may have come up meanwhile. TRUE when the watch is where it was. */
static gboolean
settle (NetdPathWatch *self)
{
  g_autofree char *awaited = NULL;
  gboolean is_same;
  int old = self->folder;
  int fd = open_nearest (self->path, &awaited);

  self->folder = fd < 0 ? -1 : add_number (self->watcher, fd, FOLDER_EVENTS | IN_ONLYDIR);
  if (fd >= 0)
    close (fd);
  if (old != self->folder)
    drop_number (self->watcher, &old);
  is_same = old == self->folder && g_strcmp0 (awaited, self->awaited) == 0;
  g_free (self->awaited);
  self->awaited = g_steal_pointer (&awaited);
  return is_same || self->folder < 0;
}

/* A socket tells nothing by itself that its folder does not tell. */
static void
watch_file (NetdPathWatch *self)
{
  struct stat status;
  int old = self->file;
  int fd = open (self->path, O_PATH | O_NOFOLLOW | O_CLOEXEC);

  self->file = -1;
  if (fd >= 0 && fstat (fd, &status) == 0 && S_ISREG (status.st_mode))
    self->file = add_number (self->watcher, fd, IN_CLOSE_WRITE | IN_ATTRIB | GONE_EVENTS);
  if (fd >= 0)
    close (fd);
  if (old != self->file)
    drop_number (self->watcher, &old);
}

static void
place (NetdPathWatch *self)
{
  /* Each round but the last means that somebody made or removed folders just then. */
  for (guint i = 0; i < 64 && !settle (self); i++)
    continue;
  watch_file (self);
}

/* --- Events --- */

static gboolean
concerns (NetdPathWatch *self, const struct inotify_event *event)
{
  if ((event->mask & IN_Q_OVERFLOW) != 0)
    return TRUE;
  if (event->wd == self->file)
    return TRUE;
  if (event->wd != self->folder)
    return FALSE;
  return (event->mask & GONE_EVENTS) != 0
         || (event->len > 0 && g_str_equal (event->name, self->awaited));
}

static void
tell (NetdPathWatcher *self, const struct inotify_event *event)
{
  /* Those that come in meanwhile are at the end, and have looked already. */
  guint n = self->paths->len;

  for (guint i = 0; i < n; i++)
    {
      NetdPathWatch *path = g_ptr_array_index (self->paths, i);

      if (path == NULL || !concerns (path, event))
        continue;
      if ((event->mask & IN_IGNORED) != 0 && path->folder == event->wd)
        path->folder = -1;
      if ((event->mask & IN_IGNORED) != 0 && path->file == event->wd)
        path->file = -1;
      place (path);
      path->func (path->user_data);
    }
}

static void
forget_freed (NetdPathWatcher *self)
{
  for (guint i = self->paths->len; i > 0; i--)
    if (g_ptr_array_index (self->paths, i - 1) == NULL)
      g_ptr_array_remove_index_fast (self->paths, i - 1);
}

static void
events_cb (guint32 events, gpointer user_data)
{
  NetdPathWatcher *self = user_data;
  union
  {
    struct inotify_event event;
    char space[4096 + NAME_MAX + 1];
  } buffer;
  gssize n = read (self->fd, &buffer, sizeof buffer);

  self->telling = TRUE;
  for (gssize at = 0; at < n;)
    {
      const struct inotify_event *event = (const void *) (buffer.space + at);

      tell (self, event);
      at += (gssize) sizeof *event + event->len;
    }
  self->telling = FALSE;
  forget_freed (self);
}

/* --- Public --- */

NetdPathWatcher *
netd_path_watcher_new (NetdLoop *loop)
{
  NetdPathWatcher *self = g_new0 (NetdPathWatcher, 1);

  self->paths = g_ptr_array_new ();
  self->fd = inotify_init1 (IN_NONBLOCK | IN_CLOEXEC);
  if (self->fd >= 0)
    self->watch = netd_watch_new (loop, self->fd, EPOLLIN, events_cb, self);
  else
    g_warning ("files cannot be watched and are looked at every second instead: %s (see the sysctl "
               "fs.inotify.max_user_instances)",
               g_strerror (errno));
  return self;
}

void
netd_path_watcher_free (NetdPathWatcher *self)
{
  g_clear_pointer (&self->watch, netd_watch_free);
  if (self->fd >= 0)
    close (self->fd);
  g_ptr_array_unref (self->paths);
  g_free (self);
}

NetdPathWatch *
netd_path_watch_new (NetdPathWatcher *watcher, const char *path, NetdPathFunc func,
                     gpointer user_data)
{
  NetdPathWatch *self = g_new0 (NetdPathWatch, 1);

  self->watcher = watcher;
  self->path = g_strdup (path);
  self->folder = -1;
  self->file = -1;
  self->func = func;
  self->user_data = user_data;
  g_ptr_array_add (watcher->paths, self);
  place (self);
  return self;
}

gboolean
netd_path_watch_is_active (NetdPathWatch *self)
{
  return self->folder >= 0;
}

void
netd_path_watch_free (NetdPathWatch *self)
{
  NetdPathWatcher *watcher = self->watcher;
  guint index;

  if (g_ptr_array_find (watcher->paths, self, &index))
    watcher->paths->pdata[index] = NULL;
  if (!watcher->telling)
    forget_freed (watcher);
  drop_number (watcher, &self->folder);
  drop_number (watcher, &self->file);
  g_free (self->path);
  g_free (self->awaited);
  g_free (self);
}

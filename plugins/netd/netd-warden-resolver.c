/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Follows resolv.conf. On most hosts it is a symbolic link into a service's folder; the link
 * changes when another service takes over, its target is replaced or written anew with each change
 * of network. So every step of the chain is watched, and on any event the chain is walked again and
 * the text read.
 */
#include "netd-warden-resolver.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "netd-opener.h"
#include "netd-resolvers.h"

#define LINKS_MAX 8
#define UNWATCHED_RETRY_MS 5000

struct _NetdWardenResolver
{
  NetdPathWatcher *watcher;
  NetdTimer *timer; /* armed only while the kernel does not watch */
  char *path;
  char *chain[LINKS_MAX + 2]; /* the paths that are watched, NULL at the end */
  NetdPathWatch *watches[LINKS_MAX + 1];
  char *text; /* of the file, last told; NULL before the first */
  NetdWardenResolverFunc func;
  gpointer user_data;
};

static void look (NetdWardenResolver *self);

static void
changed_cb (gpointer user_data)
{
  look (user_data);
}

/* Where the symbolic link @path leads; NULL when it is none. */
static char *
read_link (const char *path)
{
  char target[4096];
  gssize length = readlink (path, target, sizeof target - 1);
  g_autofree char *folder = NULL;

  if (length <= 0)
    return NULL;
  target[length] = '\0';
  if (target[0] == '/')
    return g_strdup (target);
  folder = g_path_get_dirname (path);
  return g_build_filename (folder, target, NULL);
}

static void
watch_step (NetdWardenResolver *self, guint step, const char *path)
{
  if (g_strcmp0 (self->chain[step], path) == 0)
    return;
  g_clear_pointer (&self->watches[step], netd_path_watch_free);
  g_free (self->chain[step]);
  self->chain[step] = g_strdup (path);
  if (path != NULL)
    self->watches[step] = netd_path_watch_new (self->watcher, path, changed_cb, self);
}

/* The watch of a step is there before its link is read, so that no change is missed. FALSE when the
 * kernel does not watch all of it. */
static gboolean
watch_chain (NetdWardenResolver *self)
{
  g_autofree char *path = g_strdup (self->path);
  gboolean is_watched = TRUE;

  for (guint step = 0; step <= LINKS_MAX; step++)
    {
      char *next;

      watch_step (self, step, path);
      if (path == NULL)
        continue;
      is_watched = is_watched && netd_path_watch_is_active (self->watches[step]);
      next = read_link (path);
      g_free (path);
      path = next;
    }
  return is_watched;
}

/* Names longer than a whole line at the end are not guessed at. */
static void
cut_to_lines (char *text, gsize length)
{
  char *end = memrchr (text, '\n', length);

  text[end == NULL ? 0 : end + 1 - text] = '\0';
}

/* NULL: it is there, but cannot be read. */
static char *
read_text (const char *path)
{
  g_autofree char *text = g_malloc0 (NETD_RESOLVER_MAX);
  gsize length = 0;
  gssize n;
  int fd = open (path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
  struct stat status;

  if (fd < 0)
    return errno == ENOENT || errno == ENOTDIR ? g_steal_pointer (&text) : NULL;
  if (fstat (fd, &status) < 0 || !S_ISREG (status.st_mode))
    {
      close (fd);
      errno = EINVAL;
      return NULL;
    }
  do
    {
      n = read (fd, text + length, NETD_RESOLVER_MAX - length);
      length += (gsize) MAX (n, 0);
    }
  while (n > 0 && length < NETD_RESOLVER_MAX);
  close (fd);
  if (n < 0)
    return NULL;
  if (length == NETD_RESOLVER_MAX)
    cut_to_lines (text, length);
  return g_steal_pointer (&text);
}

/* The other half cannot ask for interfaces. */
static void
tell (NetdWardenResolver *self)
{
  g_autofree char *numbered = netd_resolvers_number_scopes (self->text);

  if (strlen (numbered) >= NETD_RESOLVER_MAX)
    cut_to_lines (numbered, NETD_RESOLVER_MAX - 1);
  self->func (numbered, self->user_data);
}

static void
look (NetdWardenResolver *self)
{
  g_autofree char *text = NULL;
  gboolean is_watched = watch_chain (self);

  if (!is_watched)
    netd_timer_start (self->timer, UNWATCHED_RETRY_MS);
  text = read_text (self->path);
  if (text == NULL && self->text != NULL)
    {
      g_warning ("keep the name servers that were known: %s: %s", self->path, g_strerror (errno));
      return;
    }
  if (text == NULL)
    {
      g_warning ("there are no name servers: %s: %s", self->path, g_strerror (errno));
      text = g_strdup ("");
    }
  if (g_strcmp0 (text, self->text) == 0)
    return;
  g_free (self->text);
  self->text = g_steal_pointer (&text);
  tell (self);
}

NetdWardenResolver *
netd_warden_resolver_new (NetdLoop *loop, NetdPathWatcher *watcher, const char *path,
                          NetdWardenResolverFunc func, gpointer user_data)
{
  NetdWardenResolver *self = g_new0 (NetdWardenResolver, 1);

  self->watcher = watcher;
  self->timer = netd_timer_new (loop, changed_cb, self);
  self->path = g_strdup (path);
  self->func = func;
  self->user_data = user_data;
  look (self);
  return self;
}

void
netd_warden_resolver_free (NetdWardenResolver *self)
{
  for (guint i = 0; i < G_N_ELEMENTS (self->watches); i++)
    {
      g_clear_pointer (&self->watches[i], netd_path_watch_free);
      g_free (self->chain[i]);
    }
  netd_timer_free (self->timer);
  g_free (self->path);
  g_free (self->text);
  g_free (self);
}

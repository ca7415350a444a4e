/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Connects to sockets of VMs on behalf of the sandboxed half, which can only name a VM and a kind.
 * Which path that is says netd.json, and it is asked again before each attempt, so that a VM that
 * has left the network cannot be reached any more.
 *
 * Nobody may be listening yet: then the path is watched. A socket appears in its folder a moment
 * before its owner listens, hence a few attempts in short order after each change. The folders of
 * VMs can be written by what runs VMs, so neither the folder nor the socket may be a symbolic link,
 * and what was looked at is what is connected to.
 */
#include "netd-warden-sockets.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "netd-config.h"

#define FIRST_RETRY_MS 10
#define REFUSED_TRIES 11 /* 10, 20, 40, ... ms: 20 s in all, for a machine that hardly moves */
#define BUSY_RETRY_MAX_MS 250
#define UNWATCHED_RETRY_MS 1000
/* Lines in the log about what a guest's side can cause. */
#define COMPLAINTS_PER_MINUTE 10

struct _NetdWardenSockets
{
  NetdLoop *loop;
  NetdPathWatcher *watcher;
  char *directory;
  NetdConfig *config; /* or NULL: could not be read */
  struct stat config_status;
  NetdTimer *timer;    /* for the first retry of all targets */
  GHashTable *targets; /* "kind vm" to Target */
  GHashTable *tokens;  /* token to its Target, not owned */
  gint64 complaints_since;
  guint complaints;
  NetdWardenSocketFunc func;
  gpointer user_data;
};

/* A socket that somebody wants. */
typedef struct
{
  NetdWardenSockets *sockets;
  char *key;
  NetdOpenKind kind;
  char *vm_id;
  GQueue tokens; /* in the order they came in */
  char *watched; /* the path of the watch */
  NetdPathWatch *watch;
  guint tries;
  gint64 retry_at; /* of the loop's clock, -1: only when something happens */
} Target;

static void
target_free (gpointer data)
{
  Target *target = data;

  g_clear_pointer (&target->watch, netd_path_watch_free);
  g_queue_clear (&target->tokens);
  g_free (target->watched);
  g_free (target->vm_id);
  g_free (target->key);
  g_free (target);
}

static void G_GNUC_PRINTF (2, 3)
complain (NetdWardenSockets *self, const char *format, ...)
{
  gint64 now = netd_loop_now (self->loop);
  g_autofree char *text = NULL;
  va_list arguments;

  if (self->complaints == 0 || now - self->complaints_since > 60000)
    {
      self->complaints_since = now;
      self->complaints = 0;
    }
  if (self->complaints++ >= COMPLAINTS_PER_MINUTE)
    return;
  va_start (arguments, format);
  text = g_strdup_vprintf (format, arguments);
  va_end (arguments);
  g_message ("%s", text);
}

/* --- Which path it is --- */

static gboolean
is_same_file (const struct stat *a, const struct stat *b)
{
  return a->st_dev == b->st_dev && a->st_ino == b->st_ino && a->st_size == b->st_size
         && a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

/* What cannot be read leaves what was known. */
static void
refresh_config (NetdWardenSockets *self)
{
  g_autofree char *path = g_build_filename (self->directory, NETD_CONFIG_FILE, NULL);
  g_autoptr (GError) error = NULL;
  struct stat status;
  NetdConfig *config;

  if (stat (path, &status) < 0 || is_same_file (&status, &self->config_status))
    return;
  self->config_status = status;
  config = netd_config_read (self->directory, &error);
  if (config == NULL)
    {
      g_warning ("keep the ports that were known: %s", error->message);
      return;
    }
  g_clear_pointer (&self->config, netd_config_free);
  self->config = config;
}

static const char *
find_path (NetdWardenSockets *self, NetdOpenKind kind, const char *vm_id)
{
  const NetdConfigPort *port;

  refresh_config (self);
  port = self->config == NULL ? NULL : netd_config_find_port (self->config, vm_id);
  if (port == NULL)
    return NULL;
  return kind == NETD_OPEN_PORT ? port->socket_path : port->metadata_path;
}

/* --- Connecting --- */

/* Above a VM's folder symbolic links are the administrator's. */
static int
open_folder (const char *path)
{
  g_autofree char *folder = g_path_get_dirname (path);
  g_autofree char *above = g_path_get_dirname (folder);
  g_autofree char *name = g_path_get_basename (folder);
  int above_fd = open (above, O_PATH | O_DIRECTORY | O_CLOEXEC);
  int fd;
  int code;

  if (above_fd < 0 || name[0] == '/')
    return above_fd;
  fd = openat (above_fd, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  code = errno;
  close (above_fd);
  errno = code;
  return fd;
}

/* The socket itself, not yet connected to. */
static int
open_socket_file (const char *path)
{
  g_autofree char *name = g_path_get_basename (path);
  struct stat status;
  int folder = open_folder (path);
  int fd;
  int code;

  if (folder < 0)
    return -1;
  fd = openat (folder, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
  code = errno;
  if (fd >= 0 && (fstat (fd, &status) < 0 || !S_ISSOCK (status.st_mode)))
    {
      code = ENOTSOCK;
      close (fd);
      fd = -1;
    }
  close (folder);
  errno = code;
  return fd;
}

/* By way of /proc, so that a path may be of any length and nothing is looked up a second time.
 * Returns -1 with errno. */
static int
connect_to (const char *path)
{
  struct sockaddr_un address = { .sun_family = AF_UNIX };
  int file = open_socket_file (path);
  int fd;
  int code = 0;

  if (file < 0)
    return -1;
  g_snprintf (address.sun_path, sizeof address.sun_path, "/proc/self/fd/%d", file);
  fd = socket (AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0 || connect (fd, (struct sockaddr *) &address, sizeof address) < 0)
    code = errno;
  if (code != 0 && fd >= 0)
    {
      close (fd);
      fd = -1;
    }
  close (file);
  errno = code;
  return fd;
}

/* --- Attempts and what comes between them --- */

static void
start_timer (NetdWardenSockets *self)
{
  gint64 first = G_MAXINT64;
  GHashTableIter iter;
  gpointer value;

  g_hash_table_iter_init (&iter, self->targets);
  while (g_hash_table_iter_next (&iter, NULL, &value))
    if (((Target *) value)->retry_at >= 0)
      first = MIN (first, ((Target *) value)->retry_at);
  if (first == G_MAXINT64)
    netd_timer_stop (self->timer);
  else
    netd_timer_start (self->timer, first - netd_loop_now (self->loop));
}

/* -1: what has to happen will be seen. */
static gint64
delay_until_retry (Target *target, int code)
{
  gint64 delay = FIRST_RETRY_MS << MIN (target->tries, REFUSED_TRIES);

  if (code == EAGAIN || code == EINTR || code == EMFILE || code == ENFILE || code == ENOMEM
      || code == ENOBUFS)
    return MIN (delay, BUSY_RETRY_MAX_MS);
  if (code == ECONNREFUSED && target->tries < REFUSED_TRIES)
    return delay;
  return netd_path_watch_is_active (target->watch) ? -1 : UNWATCHED_RETRY_MS;
}

static void
plan_retry (Target *target, const char *path, int code)
{
  gint64 delay = delay_until_retry (target, code);

  if (code == ENOTSOCK || code == ELOOP || code == ENOTDIR || code == EACCES || code == EPROTOTYPE)
    complain (target->sockets, "do not connect to %s: %s", path,
              code == ENOTSOCK ? "it is no socket" : g_strerror (code));
  target->retry_at = delay < 0 ? -1 : netd_loop_now (target->sockets->loop) + delay;
  target->tries++;
}

static void path_cb (gpointer user_data);

/* TRUE when there is a new watch: what happened before it was there has to be looked for. */
static gboolean
watch_path (Target *target, const char *path)
{
  if (g_strcmp0 (target->watched, path) == 0)
    return FALSE;
  g_clear_pointer (&target->watch, netd_path_watch_free);
  g_free (target->watched);
  target->watched = g_strdup (path);
  target->watch = netd_path_watch_new (target->sockets->watcher, path, path_cb, target);
  return TRUE;
}

static void
drop_target (Target *target)
{
  NetdWardenSockets *self = target->sockets;

  for (GList *link = target->tokens.head; link != NULL; link = link->next)
    g_hash_table_remove (self->tokens, link->data);
  g_hash_table_remove (self->targets, target->key);
}

/* The target may be gone afterwards. */
static void
attempt (Target *target)
{
  NetdWardenSockets *self = target->sockets;

  target->retry_at = -1;
  while (!g_queue_is_empty (&target->tokens))
    {
      const char *path = find_path (self, target->kind, target->vm_id);
      gpointer token;
      int fd;

      if (path == NULL)
        {
          complain (self, "not opened for a VM that is not on this network (any more): %s",
                    target->key);
          break;
        }
      fd = connect_to (path);
      if (fd < 0)
        {
          int code = errno;

          if (watch_path (target, path))
            continue;
          plan_retry (target, path, code);
          return;
        }
      token = g_queue_pop_head (&target->tokens);
      target->tries = 0;
      g_hash_table_remove (self->tokens, token);
      self->func (GPOINTER_TO_UINT (token), fd, self->user_data);
    }
  drop_target (target);
}

static void
path_cb (gpointer user_data)
{
  Target *target = user_data;
  NetdWardenSockets *self = target->sockets;

  target->tries = 0;
  attempt (target);
  start_timer (self);
}

static void
retry_cb (gpointer user_data)
{
  NetdWardenSockets *self = user_data;
  g_autoptr (GPtrArray) due = g_ptr_array_new ();
  GHashTableIter iter;
  gpointer value;

  g_hash_table_iter_init (&iter, self->targets);
  while (g_hash_table_iter_next (&iter, NULL, &value))
    {
      Target *target = value;

      if (target->retry_at >= 0 && target->retry_at <= netd_loop_now (self->loop))
        g_ptr_array_add (due, target);
    }
  /* None of them ends another. */
  for (guint i = 0; i < due->len; i++)
    attempt (g_ptr_array_index (due, i));
  start_timer (self);
}

/* --- Public --- */

NetdWardenSockets *
netd_warden_sockets_new (NetdLoop *loop, NetdPathWatcher *watcher, const char *directory,
                         NetdWardenSocketFunc func, gpointer user_data)
{
  NetdWardenSockets *self = g_new0 (NetdWardenSockets, 1);

  self->loop = loop;
  self->watcher = watcher;
  self->directory = g_strdup (directory);
  self->timer = netd_timer_new (loop, retry_cb, self);
  self->targets = g_hash_table_new_full (g_str_hash, g_str_equal, NULL, target_free);
  self->tokens = g_hash_table_new (NULL, NULL);
  self->func = func;
  self->user_data = user_data;
  return self;
}

void
netd_warden_sockets_free (NetdWardenSockets *self)
{
  g_hash_table_unref (self->targets);
  g_hash_table_unref (self->tokens);
  netd_timer_free (self->timer);
  g_clear_pointer (&self->config, netd_config_free);
  g_free (self->directory);
  g_free (self);
}

static Target *
add_target (NetdWardenSockets *self, char *key, NetdOpenKind kind, const char *vm_id)
{
  Target *target = g_new0 (Target, 1);

  target->sockets = self;
  target->key = key;
  target->kind = kind;
  target->vm_id = g_strdup (vm_id);
  target->retry_at = -1;
  g_queue_init (&target->tokens);
  g_hash_table_insert (self->targets, target->key, target);
  return target;
}

void
netd_warden_sockets_open (NetdWardenSockets *self, guint32 token, guint32 kind, const char *vm_id)
{
  guint most = kind == NETD_OPEN_PORT ? NETD_WARDEN_PORT_OPENINGS : NETD_WARDEN_METADATA_OPENINGS;
  g_autofree char *key = NULL;
  Target *target;

  if (kind > NETD_OPEN_METADATA || g_hash_table_contains (self->tokens, GUINT_TO_POINTER (token)))
    return;
  /* What is named in netd.json can be said in the log; the rest could be anything. */
  if (find_path (self, kind, vm_id) == NULL)
    {
      complain (self, "not opened: it is not on this network");
      return;
    }
  key = g_strdup_printf ("%s %s", kind == NETD_OPEN_PORT ? "port" : "metadata", vm_id);
  target = g_hash_table_lookup (self->targets, key);
  if (g_hash_table_size (self->tokens) >= NETD_WARDEN_OPENINGS_MAX
      || (target != NULL && target->tokens.length >= most))
    {
      complain (self, "not opened: too many at a time: %s", key);
      return;
    }
  if (target == NULL)
    target = add_target (self, g_steal_pointer (&key), kind, vm_id);
  g_queue_push_tail (&target->tokens, GUINT_TO_POINTER (token));
  g_hash_table_insert (self->tokens, GUINT_TO_POINTER (token), target);
  /* Behind others that wait, it waits with them. */
  if (target->tokens.length == 1)
    attempt (target);
  start_timer (self);
}

void
netd_warden_sockets_cancel (NetdWardenSockets *self, guint32 token)
{
  Target *target = g_hash_table_lookup (self->tokens, GUINT_TO_POINTER (token));

  if (target == NULL)
    return;
  g_hash_table_remove (self->tokens, GUINT_TO_POINTER (token));
  g_queue_remove (&target->tokens, GUINT_TO_POINTER (token));
  if (g_queue_is_empty (&target->tokens))
    drop_target (target);
  start_timer (self);
}

/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The outer half of netd: the process that the launcher knows. It answers the sandboxed half, tells
 * it the host's name servers, and sees that both end together: told to end, it closes the channel,
 * which the other half takes as its own end; and however this process ends, the kernel ends the
 * other.
 *
 * The network's file is its life: who removes it, or the whole folder, wants no network, and may have
 * no way to find this process. A file is never gone while it is replaced.
 *
 * What comes over the channel is from a process that guests may have taken over. It is two kinds of
 * message of a fixed size, answered within limits. Nothing else of the other half's reaches this
 * one.
 */
#include "netd-warden.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "netd-config.h"
#include "netd-descriptor.h"
#include "netd-sandbox.h"
#include "netd-warden-resolver.h"
#include "netd-warden-sockets.h"

#define RESOLV_CONF "/etc/resolv.conf"
#define MESSAGES_PER_TURN 64
/* What the other half does not take. Above, it is not listened to. */
#define UNSENT_MAX 64
/* For the other half to end by itself, before this one does and takes it along. */
#define END_MS 2000
/* Descriptors in flight are limited by the kernel, per user. */
#define CROWDED_RETRY_MS 20

typedef struct
{
  NetdLoop *loop;
  pid_t child;
  int status; /* of exit */
  gboolean is_ending;
  int signals;
  NetdWatch *signals_watch;
  int channel; /* -1: closed */
  NetdWatch *channel_watch;
  NetdTimer *end_timer;
  NetdTimer *crowded_timer;
  GQueue unsent;               /* Opened, while the channel has no room */
  NetdResolverMessage *unsent_resolvers; /* or NULL */
  NetdPathWatcher *watcher;
  char *config; /* path of the network's file */
  NetdPathWatch *config_watch;
  NetdWardenSockets *sockets;
  NetdWardenResolver *resolver;
} Warden;

typedef struct
{
  guint32 token;
  int fd;
} Opened;

static void
opened_free (gpointer data)
{
  Opened *opened = data;

  close (opened->fd);
  g_free (opened);
}

/* --- The end --- */

static void
finish (Warden *self, int status)
{
  self->status = status;
  netd_loop_quit (self->loop);
}

static void
close_channel (Warden *self)
{
  if (self->channel < 0)
    return;
  g_clear_pointer (&self->channel_watch, netd_watch_free);
  close (self->channel);
  self->channel = -1;
  netd_timer_start (self->end_timer, END_MS);
}

static void
end_cb (gpointer user_data)
{
  Warden *self = user_data;

  g_warning ("the sandboxed process does not end by itself and is killed");
  finish (self, self->is_ending ? 0 : 1);
}

static void
tell_how_it_ended (int how)
{
  if (WIFEXITED (how))
    g_warning ("the sandboxed process has ended with status %d", WEXITSTATUS (how));
  else
    g_warning ("the sandboxed process was ended by signal %d (%s)%s", WTERMSIG (how),
               g_strsignal (WTERMSIG (how)),
               WTERMSIG (how) == SIGSYS ? ": it made a system call that is forbidden to it" : "");
}

static void
look_after_child (Warden *self)
{
  int how;

  if (waitpid (self->child, &how, WNOHANG) != self->child)
    return;
  if (!self->is_ending)
    tell_how_it_ended (how);
  finish (self, self->is_ending ? 0 : 1);
}

static void
end_by_itself (Warden *self)
{
  self->is_ending = TRUE;
  close_channel (self);
}

static void
signals_cb (guint32 events, gpointer user_data)
{
  Warden *self = user_data;
  struct signalfd_siginfo info;

  while (read (self->signals, &info, sizeof info) == sizeof info)
    {
      if (info.ssi_signo == SIGCHLD)
        continue;
      end_by_itself (self);
    }
  look_after_child (self);
}

static void
config_cb (gpointer user_data)
{
  Warden *self = user_data;
  int fd = open (self->config, O_PATH | O_CLOEXEC);

  if (fd >= 0)
    {
      close (fd);
      return;
    }
  if (errno != ENOENT || self->is_ending)
    return;
  g_warning ("%s is gone, and with it this network", self->config);
  end_by_itself (self);
}

/* --- To the other half --- */

/* FALSE with errno. */
static gboolean
send_message (Warden *self, const void *message, gsize length, int fd)
{
  return netd_descriptor_send (self->channel, message, length, fd) >= 0;
}

static gboolean
is_listening (Warden *self)
{
  return self->unsent.length < UNSENT_MAX;
}

static void
watch_channel (Warden *self, guint32 events)
{
  netd_watch_set_events (self->channel_watch, events | (is_listening (self) ? EPOLLIN : 0));
}

/* FALSE when it has to be tried again. */
static gboolean
settle_send (Warden *self, gboolean sent)
{
  if (sent)
    return TRUE;
  if (errno == EAGAIN || errno == EINTR)
    {
      watch_channel (self, EPOLLOUT);
      return FALSE;
    }
  if (errno == ETOOMANYREFS || errno == ENOBUFS || errno == ENOMEM)
    {
      watch_channel (self, 0);
      netd_timer_start (self->crowded_timer, CROWDED_RETRY_MS);
      return FALSE;
    }
  close_channel (self);
  return TRUE;
}

static gboolean
send_resolvers (Warden *self)
{
  if (self->unsent_resolvers == NULL)
    return TRUE;
  if (!settle_send (self, send_message (self, self->unsent_resolvers,
                                        sizeof *self->unsent_resolvers, -1)))
    return FALSE;
  g_clear_pointer (&self->unsent_resolvers, g_free);
  return TRUE;
}

static void
send_unsent (Warden *self)
{
  Opened *opened;

  if (self->channel < 0 || !send_resolvers (self))
    return;
  while (self->channel >= 0 && (opened = g_queue_peek_head (&self->unsent)) != NULL)
    {
      NetdOpenMessage message = { .type = NETD_MESSAGE_OPENED, .token = opened->token };

      if (!settle_send (self, send_message (self, &message, sizeof message, opened->fd)))
        return;
      opened_free (g_queue_pop_head (&self->unsent));
    }
  if (self->channel >= 0)
    watch_channel (self, 0);
}

static void
opened_cb (guint32 token, int fd, gpointer user_data)
{
  Warden *self = user_data;
  Opened *opened = g_new0 (Opened, 1);

  opened->token = token;
  opened->fd = fd;
  g_queue_push_tail (&self->unsent, opened);
  if (self->unsent.length == 1 || !is_listening (self))
    send_unsent (self);
}

static void
resolvers_cb (const char *text, gpointer user_data)
{
  Warden *self = user_data;

  g_free (self->unsent_resolvers);
  self->unsent_resolvers = g_new0 (NetdResolverMessage, 1);
  self->unsent_resolvers->type = NETD_MESSAGE_RESOLVERS;
  self->unsent_resolvers->length
      = (guint32) g_strlcpy (self->unsent_resolvers->text, text, NETD_RESOLVER_MAX);
  send_unsent (self);
}

static void
crowded_cb (gpointer user_data)
{
  send_unsent (user_data);
}

/* --- From the other half --- */

static void
handle_message (Warden *self, const NetdOpenMessage *message)
{
  if (message->type == NETD_MESSAGE_CANCEL)
    netd_warden_sockets_cancel (self->sockets, message->token);
  else if (message->type == NETD_MESSAGE_OPEN
           && memchr (message->vm, '\0', sizeof message->vm) != NULL)
    netd_warden_sockets_open (self->sockets, message->token, message->kind, message->vm);
}

static void
channel_cb (guint32 events, gpointer user_data)
{
  Warden *self = user_data;

  if ((events & EPOLLOUT) != 0)
    send_unsent (self);
  if ((events & ~(guint32) EPOLLOUT) == 0)
    return;
  for (guint i = 0; i < MESSAGES_PER_TURN && self->channel >= 0 && is_listening (self); i++)
    {
      NetdOpenMessage message;
      /* Truncated or not, what has another size is no message. Descriptors are not taken. */
      gssize n = recv (self->channel, &message, sizeof message, MSG_DONTWAIT | MSG_TRUNC);

      if (n == (gssize) sizeof message)
        handle_message (self, &message);
      else if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
        close_channel (self);
      else if (n < 0)
        return;
    }
}

/* --- Run --- */

static int
open_signals (void)
{
  sigset_t signals;

  sigemptyset (&signals);
  sigaddset (&signals, SIGTERM);
  sigaddset (&signals, SIGINT);
  sigaddset (&signals, SIGHUP);
  sigaddset (&signals, SIGCHLD);
  sigprocmask (SIG_BLOCK, &signals, NULL);
  return signalfd (-1, &signals, SFD_NONBLOCK | SFD_CLOEXEC);
}

/* What the resolver's file leads to may move to the folder of another service, all of them below
 * /run. */
static gboolean
confine (const char *directory, const char *resolv_conf, GError **error)
{
  g_autofree char *folder = g_path_get_dirname (resolv_conf);
  char *target = realpath (resolv_conf, NULL);
  g_autofree char *target_folder = target == NULL ? NULL : g_path_get_dirname (target);
  const char *const directories[] = { directory, folder, "/run", target_folder, NULL };

  free (target);
  return netd_sandbox_confine_warden (directories, error);
}

static void
run (Warden *self, const char *directory, const char *resolv_conf)
{
  self->end_timer = netd_timer_new (self->loop, end_cb, self);
  self->crowded_timer = netd_timer_new (self->loop, crowded_cb, self);
  self->signals_watch = netd_watch_new (self->loop, self->signals, EPOLLIN, signals_cb, self);
  self->channel_watch = netd_watch_new (self->loop, self->channel, EPOLLIN, channel_cb, self);
  self->sockets = netd_warden_sockets_new (self->loop, self->watcher, directory, opened_cb, self);
  self->resolver
      = netd_warden_resolver_new (self->loop, self->watcher, resolv_conf, resolvers_cb, self);

  self->config = g_build_filename (directory, NETD_CONFIG_FILE, NULL);
  self->config_watch = netd_path_watch_new (self->watcher, self->config, config_cb, self);

  /* Before the loop, as what they tell may have happened before it was asked for. */
  raise (SIGCHLD);
  config_cb (self);
  netd_loop_run (self->loop);

  netd_path_watch_free (self->config_watch);
  g_free (self->config);
  netd_warden_resolver_free (self->resolver);
  netd_warden_sockets_free (self->sockets);
  g_clear_pointer (&self->channel_watch, netd_watch_free);
  netd_watch_free (self->signals_watch);
  netd_timer_free (self->crowded_timer);
  netd_timer_free (self->end_timer);
}

int
netd_warden_run (const char *directory, int channel, pid_t child)
{
  Warden self = { .loop = netd_loop_new (), .child = child, .status = 1, .channel = channel };
  const char *resolv_conf = g_getenv (NETD_RESOLV_CONF_VARIABLE);
  g_autoptr (GError) error = NULL;

  if (resolv_conf == NULL || resolv_conf[0] != '/')
    resolv_conf = RESOLV_CONF;
  g_queue_init (&self.unsent);
  self.signals = open_signals ();
  self.watcher = netd_path_watcher_new (self.loop);
  if (self.signals < 0)
    g_warning ("cannot receive signals: %s", g_strerror (errno));
  else if (!confine (directory, resolv_conf, &error))
    g_warning ("cannot confine the outer process: %s", error->message);
  else
    run (&self, directory, resolv_conf);

  g_queue_clear_full (&self.unsent, opened_free);
  g_free (self.unsent_resolvers);
  netd_path_watcher_free (self.watcher);
  if (self.signals >= 0)
    close (self.signals);
  if (self.channel >= 0)
    close (self.channel);
  netd_loop_free (self.loop);
  return self.status;
}

/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The sandboxed side's end of the channel to the warden. The sandbox can open nothing, so it names
 * what it wants, a VM and a kind of socket, and gets a connected descriptor when somebody listens
 * there.
 *
 * An opening is a token that both sides know. Cancelling it here is enough: what the warden sends
 * for a token that is not wanted any more is closed.
 */
#include "netd-opener.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define ASK_AGAIN_MS 500

struct _NetdOpener
{
  NetdLoop *loop;
  int channel;
  NetdWatch *watch;
  guint32 last_token;
  GHashTable *openings; /* token to NetdOpening */
  GQueue *unsent;       /* NetdOpenMessage that the channel had no room for */
  NetdTimer *timer;     /* while there are lost openings */
  NetdResolverFunc resolver_func;
  gpointer user_data;
};

struct _NetdOpening
{
  NetdOpener *opener;
  guint32 token;
  NetdOpenKind kind;
  char vm_id[NETD_VM_ID_MAX];
  gboolean is_lost; /* it was opened, but did not arrive */
  NetdOpenFunc func;
  gpointer user_data;
};

typedef union
{
  guint32 type;
  NetdOpenMessage open;
  NetdResolverMessage resolvers;
} Message;

typedef union
{
  char space[CMSG_SPACE (sizeof (int))];
  struct cmsghdr align;
} Control;

static void
warden_is_gone (NetdOpener *self)
{
  netd_watch_set_events (self->watch, 0);
  netd_loop_quit (self->loop);
}

/* --- To the warden --- */

/* FALSE when there is no room now. */
static gboolean
try_send (NetdOpener *self, const NetdOpenMessage *message)
{
  if (send (self->channel, message, sizeof *message, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0)
    return TRUE;
  if (errno == EAGAIN || errno == EINTR || errno == ENOBUFS)
    return FALSE;
  warden_is_gone (self);
  return TRUE;
}

static void
send_unsent (NetdOpener *self)
{
  NetdOpenMessage *message;

  while ((message = g_queue_peek_head (self->unsent)) != NULL && try_send (self, message))
    g_free (g_queue_pop_head (self->unsent));
  if (g_queue_is_empty (self->unsent))
    netd_watch_set_events (self->watch, EPOLLIN);
}

static void
send_message (NetdOpener *self, const NetdOpenMessage *message)
{
  if (g_queue_is_empty (self->unsent) && try_send (self, message))
    return;
  g_queue_push_tail (self->unsent, g_memdup2 (message, sizeof *message));
  netd_watch_set_events (self->watch, EPOLLIN | EPOLLOUT);
}

/* An opening that the warden has not heard of needs no cancelling there. */
static gboolean
take_back (NetdOpener *self, guint32 token)
{
  for (GList *link = self->unsent->head; link != NULL; link = link->next)
    {
      NetdOpenMessage *message = link->data;

      if (message->token != token || message->type != NETD_MESSAGE_OPEN)
        continue;
      g_free (message);
      g_queue_delete_link (self->unsent, link);
      return TRUE;
    }
  return FALSE;
}

static void
ask (NetdOpening *opening)
{
  NetdOpenMessage message = {
    .type = NETD_MESSAGE_OPEN,
    .token = opening->token,
    .kind = opening->kind,
  };

  opening->is_lost = FALSE;
  g_strlcpy (message.vm, opening->vm_id, sizeof message.vm);
  send_message (opening->opener, &message);
}

static void
ask_again_cb (gpointer user_data)
{
  NetdOpener *self = user_data;
  GHashTableIter iter;
  gpointer value;

  g_hash_table_iter_init (&iter, self->openings);
  while (g_hash_table_iter_next (&iter, NULL, &value))
    if (((NetdOpening *) value)->is_lost)
      ask (value);
}

/* --- From the warden --- */

static int
received_descriptor (struct msghdr *header)
{
  int fd = -1;

  for (struct cmsghdr *part = CMSG_FIRSTHDR (header); part != NULL;
       part = CMSG_NXTHDR (header, part))
    if (part->cmsg_level == SOL_SOCKET && part->cmsg_type == SCM_RIGHTS
        && part->cmsg_len == CMSG_LEN (sizeof fd))
      memcpy (&fd, CMSG_DATA (part), sizeof fd);
  return fd;
}

static void
opened (NetdOpener *self, guint32 token, int fd)
{
  NetdOpening *opening = g_hash_table_lookup (self->openings, GUINT_TO_POINTER (token));
  NetdOpenFunc func;
  gpointer user_data;

  if (opening == NULL)
    {
      close (fd);
      return;
    }
  func = opening->func;
  user_data = opening->user_data;
  g_hash_table_remove (self->openings, GUINT_TO_POINTER (token));
  func (fd, user_data);
}

static void
lost (NetdOpener *self, guint32 token)
{
  NetdOpening *opening = g_hash_table_lookup (self->openings, GUINT_TO_POINTER (token));

  if (opening == NULL)
    return;
  opening->is_lost = TRUE;
  if (!netd_timer_is_armed (self->timer))
    netd_timer_start (self->timer, ASK_AGAIN_MS);
}

static void
handle_message (NetdOpener *self, Message *message, gsize length, int fd)
{
  if (length == sizeof message->open && message->type == NETD_MESSAGE_OPENED && fd < 0)
    lost (self, message->open.token);
  if (length == sizeof message->open && message->type == NETD_MESSAGE_OPENED && fd >= 0)
    {
      opened (self, message->open.token, fd);
      return;
    }
  if (fd >= 0)
    close (fd);
  if (length != sizeof message->resolvers || message->type != NETD_MESSAGE_RESOLVERS)
    return;
  message->resolvers.text[NETD_RESOLVER_MAX - 1] = '\0';
  if (self->resolver_func != NULL)
    self->resolver_func (message->resolvers.text, self->user_data);
}

/* One message a turn and watch call: what it causes may free the opener. */
static void
channel_cb (guint32 events, gpointer user_data)
{
  NetdOpener *self = user_data;
  Message message;
  Control control;
  struct iovec part = { &message, sizeof message };
  struct msghdr header = {
    .msg_iov = &part,
    .msg_iovlen = 1,
    .msg_control = &control,
    .msg_controllen = sizeof control,
  };
  gssize n;

  if ((events & EPOLLOUT) != 0)
    send_unsent (self);
  if ((events & ~(guint32) EPOLLOUT) == 0)
    return;
  n = recvmsg (self->channel, &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (n < 0 && (errno == EAGAIN || errno == EINTR))
    return;
  if (n <= 0)
    {
      warden_is_gone (self);
      return;
    }
  if ((gsize) n < sizeof message.type)
    message.type = 0;
  handle_message (self, &message, (gsize) n, received_descriptor (&header));
}

/* --- Public --- */

NetdOpener *
netd_opener_new (NetdLoop *loop, int channel, NetdResolverFunc resolver_func, gpointer user_data)
{
  NetdOpener *self = g_new0 (NetdOpener, 1);

  self->loop = loop;
  self->channel = channel;
  self->openings = g_hash_table_new_full (NULL, NULL, NULL, g_free);
  self->unsent = g_queue_new ();
  self->resolver_func = resolver_func;
  self->user_data = user_data;
  self->timer = netd_timer_new (loop, ask_again_cb, self);
  self->watch = netd_watch_new (loop, channel, EPOLLIN, channel_cb, self);
  return self;
}

/* What is still open is forgotten without a call. */
void
netd_opener_free (NetdOpener *self)
{
  netd_watch_free (self->watch);
  netd_timer_free (self->timer);
  close (self->channel);
  g_hash_table_unref (self->openings);
  g_queue_free_full (self->unsent, g_free);
  g_free (self);
}

NetdOpening *
netd_opener_open (NetdOpener *self, NetdOpenKind kind, const char *vm_id, NetdOpenFunc func,
                  gpointer user_data)
{
  NetdOpening *opening = g_new0 (NetdOpening, 1);

  do
    self->last_token++;
  while (self->last_token == 0
         || g_hash_table_contains (self->openings, GUINT_TO_POINTER (self->last_token)));
  opening->opener = self;
  opening->token = self->last_token;
  opening->kind = kind;
  g_strlcpy (opening->vm_id, vm_id, sizeof opening->vm_id);
  opening->func = func;
  opening->user_data = user_data;
  g_hash_table_insert (self->openings, GUINT_TO_POINTER (opening->token), opening);
  ask (opening);
  return opening;
}

void
netd_opening_cancel (NetdOpening *self)
{
  NetdOpener *opener = self->opener;
  NetdOpenMessage message = { .type = NETD_MESSAGE_CANCEL, .token = self->token };

  g_hash_table_remove (opener->openings, GUINT_TO_POINTER (message.token));
  if (!take_back (opener, message.token))
    send_message (opener, &message);
}

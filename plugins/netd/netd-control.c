/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The control socket: who connects, lines in and out, and the descriptors that travel with them.
 * What the lines mean is in netd-control-methods.c.
 *
 * A client is the daemon or an administrator's tool, never a guest; still nothing here waits for
 * one. One that does not read is dropped when too much waits for it, one that says what is no
 * request is dropped at once. A client that is to go is shut down first and freed when its watch is
 * called, so that it can break at any time.
 */
#include "netd-control-private.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "netd-descriptor.h"

#define READ_SIZE 16384
#define ACCEPTS_PER_TURN 16
#define OUT_MAX (512 * 1024)
#define PAUSE_MS 1000
/* What another user's number is where it is not known (user_namespaces(7)). */
#define OVERFLOW_UID 65534

typedef struct
{
  char *text;
  gsize length;
  gsize sent;
  int fd; /* goes with the first byte; -1: none */
} Line;

static void
line_free (gpointer data)
{
  Line *line = data;

  if (line->fd >= 0)
    close (line->fd);
  g_free (line->text);
  g_free (line);
}

static void
client_free (gpointer data)
{
  NetdClient *self = data;

  netd_watch_free (self->watch);
  g_ptr_array_unref (self->dials);
  g_byte_array_unref (self->in);
  g_queue_clear_full (&self->out, line_free);
  for (guint i = 0; i < self->n_fds; i++)
    close (self->fds[i]);
  close (self->fd);
  g_free (self);
}

static void
client_break (NetdClient *self)
{
  if (self->is_broken)
    return;
  self->is_broken = TRUE;
  shutdown (self->fd, SHUT_RDWR);
  netd_watch_set_events (self->watch, EPOLLIN);
}

/* --- Sending --- */

/* FALSE when the socket takes no more now. */
static gboolean
send_line (NetdClient *self, Line *line)
{
  gssize n = netd_descriptor_send (self->fd, line->text + line->sent, line->length - line->sent,
                                   line->fd);

  if (n < 0)
    {
      if (errno != EAGAIN && errno != EINTR)
        client_break (self);
      return FALSE;
    }
  if (line->fd >= 0)
    close (line->fd);
  line->fd = -1;
  line->sent += (gsize) n;
  self->out_bytes -= (gsize) n;
  return line->sent == line->length;
}

static void
flush (NetdClient *self)
{
  while (!self->is_broken && !g_queue_is_empty (&self->out))
    {
      if (!send_line (self, g_queue_peek_head (&self->out)))
        break;
      line_free (g_queue_pop_head (&self->out));
    }
  if (!self->is_broken)
    netd_watch_set_events (self->watch, EPOLLIN | (g_queue_is_empty (&self->out) ? 0 : EPOLLOUT));
}

void
netd_client_send (NetdClient *self, JsonObject *message, int fd)
{
  g_autoptr (JsonNode) node = json_node_new (JSON_NODE_OBJECT);
  g_autofree char *text = NULL;
  Line *line = g_new0 (Line, 1);

  json_node_take_object (node, message);
  text = json_to_string (node, FALSE);
  line->text = g_strconcat (text, "\n", NULL);
  line->length = strlen (line->text);
  line->fd = fd;
  if (self->is_broken || self->out_bytes + line->length > OUT_MAX)
    {
      line_free (line);
      client_break (self);
      return;
    }
  self->out_bytes += line->length;
  g_queue_push_tail (&self->out, line);
  flush (self);
}

/* --- Receiving --- */

int
netd_client_take_fd (NetdClient *self)
{
  int fd;

  if (self->n_fds == 0)
    return -1;
  fd = self->fds[0];
  self->n_fds--;
  memmove (self->fds, self->fds + 1, self->n_fds * sizeof fd);
  return fd;
}

static void
take_fds (NetdClient *self, struct msghdr *message)
{
  for (struct cmsghdr *c = CMSG_FIRSTHDR (message); c != NULL; c = CMSG_NXTHDR (message, c))
    {
      gsize n = 0;

      if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS)
        n = (c->cmsg_len - CMSG_LEN (0)) / sizeof (int);
      for (gsize i = 0; i < n; i++)
        {
          int fd;

          memcpy (&fd, CMSG_DATA (c) + i * sizeof fd, sizeof fd);
          if (self->n_fds < NETD_CONTROL_FDS_MAX)
            {
              self->fds[self->n_fds++] = fd;
              continue;
            }
          close (fd);
          client_break (self);
        }
    }
  if ((message->msg_flags & MSG_CTRUNC) != 0)
    client_break (self);
}

static void
take (NetdClient *self, const char *data, gsize length)
{
  while (!self->is_broken && length > 0)
    {
      const char *end = memchr (data, '\n', length);
      gsize size = end != NULL ? (gsize) (end - data) : length;
      g_autofree char *line = NULL;
      gsize line_length;

      if (self->in->len + size > NETD_CONTROL_LINE_MAX)
        {
          client_break (self);
          return;
        }
      g_byte_array_append (self->in, (const guint8 *) data, (guint) size);
      if (end == NULL)
        return;
      data += size + 1;
      length -= size + 1;
      line_length = self->in->len;
      line = line_length > 0 ? g_strndup ((const char *) self->in->data, line_length)
                             : g_strdup ("");
      g_byte_array_set_size (self->in, 0);
      if (!netd_control_handle (self, line, line_length))
        client_break (self);
    }
}

static void
receive (NetdClient *self)
{
  char buffer[READ_SIZE];
  union
  {
    char space[CMSG_SPACE (NETD_CONTROL_FDS_MAX * sizeof (int))];
    struct cmsghdr align;
  } control;
  struct iovec piece = { buffer, sizeof buffer };
  struct msghdr message = {
    .msg_iov = &piece,
    .msg_iovlen = 1,
    .msg_control = &control,
    .msg_controllen = sizeof control,
  };
  gssize n = recvmsg (self->fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);

  if (n < 0 && (errno == EAGAIN || errno == EINTR))
    return;
  if (n <= 0)
    {
      client_break (self);
      return;
    }
  take_fds (self, &message);
  take (self, buffer, (gsize) n);
}

static void
client_cb (guint32 events, gpointer user_data)
{
  NetdClient *self = user_data;

  if (!self->is_broken && (events & EPOLLOUT) != 0)
    flush (self);
  if (!self->is_broken && (events & ~(guint32) EPOLLOUT) != 0)
    receive (self);
  if (self->is_broken)
    g_ptr_array_remove_fast (self->control->clients, self);
}

/* --- Clients --- */

/* The socket's mode keeps others away. Where the numbers of users outside are not known, the
 * daemon's own is, if it is another one, not known either. */
static gboolean
is_friend (int fd)
{
  struct ucred peer;
  socklen_t size = sizeof peer;

  return getsockopt (fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0
         && (peer.uid == geteuid () || peer.uid == 0 || peer.uid == OVERFLOW_UID);
}

static void
add_client (NetdControl *self, int fd)
{
  NetdClient *client;
  int counters_fd;

  if (self->clients->len >= NETD_CONTROL_CLIENTS_MAX || !is_friend (fd))
    {
      close (fd);
      return;
    }
  client = g_new0 (NetdClient, 1);
  client->control = self;
  client->fd = fd;
  client->in = g_byte_array_new ();
  client->dials = g_ptr_array_new_with_free_func ((GDestroyNotify) netd_control_dial_free);
  client->watch = netd_watch_new (self->loop, fd, EPOLLIN, client_cb, client);
  g_ptr_array_add (self->clients, client);
  counters_fd = fcntl (self->counters_fd, F_DUPFD_CLOEXEC, 0);
  netd_client_send (client, netd_control_new_hello (self), counters_fd);
}

static void
pause_cb (gpointer user_data)
{
  NetdControl *self = user_data;

  netd_watch_set_events (self->watch, EPOLLIN);
}

static void
listener_cb (guint32 events, gpointer user_data)
{
  NetdControl *self = user_data;

  for (guint i = 0; i < ACCEPTS_PER_TURN; i++)
    {
      int fd = accept4 (self->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

      if (fd >= 0)
        {
          add_client (self, fd);
          continue;
        }
      if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS)
        {
          netd_watch_set_events (self->watch, 0);
          netd_timer_start (self->pause, PAUSE_MS);
        }
      return;
    }
}

static void
port_cb (NetdPort *port, gpointer user_data)
{
  NetdControl *self = user_data;

  for (guint i = 0; i < self->clients->len; i++)
    {
      JsonObject *event = json_object_new ();

      json_object_set_string_member (event, "event", "port");
      json_object_set_string_member (event, "vm", netd_port_get_vm_id (port));
      json_object_set_boolean_member (event, "connected", netd_port_is_connected (port));
      netd_client_send (g_ptr_array_index (self->clients, i), event, -1);
    }
}

NetdControl *
netd_control_new (NetdNetwork *network, NetdForwards *forwards, int listener, int counters_fd)
{
  NetdControl *self = g_new0 (NetdControl, 1);
  int flags = fcntl (listener, F_GETFL);

  self->network = network;
  self->forwards = forwards;
  self->loop = netd_network_get_loop (network);
  self->listener = listener;
  self->counters_fd = counters_fd;
  self->clients = g_ptr_array_new_with_free_func (client_free);
  if (flags >= 0 && (flags & O_NONBLOCK) == 0)
    fcntl (listener, F_SETFL, flags | O_NONBLOCK);
  self->pause = netd_timer_new (self->loop, pause_cb, self);
  self->watch = netd_watch_new (self->loop, listener, EPOLLIN, listener_cb, self);
  netd_network_set_port_func (network, port_cb, self);
  return self;
}

void
netd_control_free (NetdControl *self)
{
  netd_network_set_port_func (self->network, NULL, NULL);
  g_ptr_array_unref (self->clients);
  netd_watch_free (self->watch);
  netd_timer_free (self->pause);
  close (self->listener);
  g_free (self);
}

/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The byte stream below the control protocol of vmm-netd.
 *
 * A descriptor is sent with the first byte of the line that it belongs to, and the kernel never
 * lets one read go past a byte that carries one. So descriptors come out in the order of their
 * lines, and a line that is to have one takes the oldest; which lines those are the protocol knows.
 */

#include "vmm-netd-lines.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define READ_SIZE (16 * 1024)
#define READS_PER_TURN 4
#define FDS_MAX 8
#define UNSENT_MAX (1024 * 1024)

struct _VmmNetdLines
{
  GSocket *socket; /* NULL when closed */
  VmmNetdLinesFuncs funcs;
  GByteArray *partial;
  GByteArray *unsent;
  GSource *readable;
  GSource *writable;
  int fds[FDS_MAX];
  guint n_fds;
};

static void
clear_source (GSource **source)
{
  if (*source == NULL)
    return;
  g_source_destroy (*source);
  g_clear_pointer (source, g_source_unref);
}

void
vmm_netd_lines_close (VmmNetdLines *self)
{
  clear_source (&self->readable);
  clear_source (&self->writable);
  for (guint i = 0; i < self->n_fds; i++)
    close (self->fds[i]);
  self->n_fds = 0;
  g_byte_array_set_size (self->partial, 0);
  g_byte_array_set_size (self->unsent, 0);
  if (self->socket != NULL)
    g_socket_close (self->socket, NULL); /* nothing can be done about a failure */
  g_clear_object (&self->socket);
}

static void
lines_clear (gpointer data)
{
  VmmNetdLines *self = data;

  vmm_netd_lines_close (self);
  g_byte_array_unref (self->partial);
  g_byte_array_unref (self->unsent);
}

VmmNetdLines *
vmm_netd_lines_ref (VmmNetdLines *self)
{
  return g_rc_box_acquire (self);
}

void
vmm_netd_lines_unref (VmmNetdLines *self)
{
  g_rc_box_release_full (self, lines_clear);
}

void
vmm_netd_lines_fail (VmmNetdLines *self, const char *reason)
{
  if (self->socket == NULL)
    return;
  vmm_netd_lines_close (self);
  self->funcs.closed (reason, self->funcs.user_data);
}

/* A line that holds a NUL is refused by who reads it as a text. */
static void
take (VmmNetdLines *self, const char *data, gsize length)
{
  while (self->socket != NULL && length > 0)
    {
      const char *end = memchr (data, '\n', length);
      gsize size = end != NULL ? (gsize) (end - data) : length;
      g_autofree char *line = NULL;
      gsize line_length;

      if (self->partial->len + size > VMM_NETD_LINE_MAX)
        {
          vmm_netd_lines_fail (self, "a line is too long");
          return;
        }
      g_byte_array_append (self->partial, (const guint8 *) data, (guint) size);
      if (end == NULL)
        return;
      data += size + 1;
      length -= size + 1;
      line_length = self->partial->len;
      line = line_length > 0 ? g_strndup ((const char *) self->partial->data, line_length)
                             : g_strdup ("");
      g_byte_array_set_size (self->partial, 0);
      self->funcs.line (line, line_length, self->funcs.user_data);
    }
}

static void
take_fds (VmmNetdLines *self, struct msghdr *message)
{
  gboolean too_many = (message->msg_flags & MSG_CTRUNC) != 0;

  for (struct cmsghdr *c = CMSG_FIRSTHDR (message); c != NULL; c = CMSG_NXTHDR (message, c))
    {
      guint n;

      if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
        continue;
      n = (guint) ((c->cmsg_len - CMSG_LEN (0)) / sizeof (int));
      for (guint i = 0; i < n; i++)
        {
          int fd;

          memcpy (&fd, CMSG_DATA (c) + i * sizeof fd, sizeof fd);
          if (self->n_fds < FDS_MAX)
            {
              self->fds[self->n_fds++] = fd;
              continue;
            }
          close (fd);
          too_many = TRUE;
        }
    }
  if (too_many)
    vmm_netd_lines_fail (self, "it sends descriptors that nobody asked for");
}

/* FALSE when there is nothing more to read now. */
static gboolean
read_some (VmmNetdLines *self)
{
  char buffer[READ_SIZE];
  char control[CMSG_SPACE (FDS_MAX * sizeof (int))];
  struct iovec piece = { .iov_base = buffer, .iov_len = sizeof buffer };
  struct msghdr message = {
    .msg_iov = &piece,
    .msg_iovlen = 1,
    .msg_control = control,
    .msg_controllen = sizeof control,
  };
  gssize size;

  size = recvmsg (g_socket_get_fd (self->socket), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (size < 0)
    {
      if (errno != EAGAIN && errno != EINTR)
        vmm_netd_lines_fail (self, g_strerror (errno));
      return FALSE;
    }
  take_fds (self, &message);
  if (size == 0)
    vmm_netd_lines_fail (self, "it closed the connection");
  else
    take (self, buffer, (gsize) size);
  return self->socket != NULL;
}

static gboolean
readable_cb (GSocket *socket, GIOCondition condition, gpointer user_data)
{
  g_autoptr (VmmNetdLines) self = vmm_netd_lines_ref (user_data);

  for (guint i = 0; i < READS_PER_TURN; i++)
    if (!read_some (self))
      break;
  return G_SOURCE_CONTINUE; /* destroyed when it was closed */
}

/* A peer that has gone may have said something before: reading finds the end. */
static void
send_some (VmmNetdLines *self)
{
  gssize size = send (g_socket_get_fd (self->socket), self->unsent->data, self->unsent->len,
                      MSG_DONTWAIT | MSG_NOSIGNAL);

  if (size > 0)
    g_byte_array_remove_range (self->unsent, 0, (guint) size);
  else if (size < 0 && errno != EAGAIN && errno != EINTR)
    g_byte_array_set_size (self->unsent, 0);
}

static gboolean
writable_cb (GSocket *socket, GIOCondition condition, gpointer user_data)
{
  VmmNetdLines *self = user_data;

  send_some (self);
  if (self->unsent->len > 0)
    return G_SOURCE_CONTINUE;
  g_clear_pointer (&self->writable, g_source_unref);
  return G_SOURCE_REMOVE;
}

void
vmm_netd_lines_send (VmmNetdLines *self, const char *text)
{
  gsize length = strlen (text);

  if (self->socket == NULL)
    return;
  if (self->unsent->len + length + 1 > UNSENT_MAX)
    {
      vmm_netd_lines_fail (self, "it does not read");
      return;
    }
  g_byte_array_append (self->unsent, (const guint8 *) text, (guint) length);
  g_byte_array_append (self->unsent, (const guint8 *) "\n", 1);
  if (self->writable != NULL)
    return;
  send_some (self);
  if (self->unsent->len == 0)
    return;
  self->writable = g_socket_create_source (self->socket, G_IO_OUT, NULL);
  g_source_set_callback (self->writable, G_SOURCE_FUNC (writable_cb), self, NULL);
  g_source_attach (self->writable, NULL);
}

int
vmm_netd_lines_take_fd (VmmNetdLines *self)
{
  int fd;

  if (self->n_fds == 0)
    return -1;
  fd = self->fds[0];
  self->n_fds--;
  memmove (self->fds, self->fds + 1, self->n_fds * sizeof fd);
  return fd;
}

VmmNetdLines *
vmm_netd_lines_new (GSocket *socket, const VmmNetdLinesFuncs *funcs)
{
  VmmNetdLines *self = g_rc_box_new0 (VmmNetdLines);

  self->socket = g_object_ref (socket);
  self->funcs = *funcs;
  self->partial = g_byte_array_new ();
  self->unsent = g_byte_array_new ();
  self->readable = g_socket_create_source (socket, G_IO_IN, NULL);
  g_source_set_callback (self->readable, G_SOURCE_FUNC (readable_cb), self, NULL);
  g_source_attach (self->readable, NULL);
  return self;
}

/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Servers for guests to talk to. Connections are kept in a ring: the oldest makes room for a new
 * one, closed in the middle of whatever it did, which is what servers do.
 */
#include "lab-host.h"

#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define CONNECTIONS 64
#define TCP_PORT 80
#define DNS_PORT 53
#define ECHO_PORT 7
#define READ_SIZE 16384

struct _LabHost
{
  int listener;
  int echo;
  int dns;
  int connections[CONNECTIONS];
  guint64 n_connections;
  guint64 n_datagrams;
};

static int
open_port (int type, guint16 port)
{
  struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons (port) };
  int fd = socket (AF_INET, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  int on = 1;

  g_assert_cmpint (fd, >=, 0);
  g_assert_cmpint (setsockopt (fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on), ==, 0);
  /* Answers have to come from the address that was asked. */
  g_assert_cmpint (setsockopt (fd, IPPROTO_IP, IP_PKTINFO, &on, sizeof on), ==, 0);
  g_assert_cmpint (bind (fd, (struct sockaddr *) &address, sizeof address), ==, 0);
  return fd;
}

LabHost *
lab_host_new (void)
{
  LabHost *self = g_new0 (LabHost, 1);

  self->listener = open_port (SOCK_STREAM, TCP_PORT);
  g_assert_cmpint (listen (self->listener, SOMAXCONN), ==, 0);
  self->echo = open_port (SOCK_DGRAM, ECHO_PORT);
  self->dns = open_port (SOCK_DGRAM, DNS_PORT);
  memset (self->connections, -1, sizeof self->connections);
  return self;
}

void
lab_host_free (LabHost *self)
{
  for (guint i = 0; i < CONNECTIONS; i++)
    if (self->connections[i] >= 0)
      close (self->connections[i]);
  close (self->listener);
  close (self->echo);
  close (self->dns);
  g_free (self);
}

static void
accept_all (LabHost *self)
{
  int fd;

  while ((fd = accept4 (self->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0)
    {
      int *slot = &self->connections[self->n_connections++ % CONNECTIONS];

      if (*slot >= 0)
        close (*slot);
      *slot = fd;
    }
}

static void
echo_stream (int *fd)
{
  char buffer[READ_SIZE];
  gssize n = read (*fd, buffer, sizeof buffer);

  if (n > 0)
    n = send (*fd, buffer, (gsize) n, MSG_NOSIGNAL);
  if (n > 0 || (n < 0 && errno == EAGAIN))
    return;
  close (*fd);
  *fd = -1;
}

static void
echo_datagrams (LabHost *self, int fd)
{
  char buffer[READ_SIZE], control[256];
  struct sockaddr_in from;

  for (;;)
    {
      struct iovec part = { buffer, sizeof buffer };
      struct msghdr head = {
        .msg_name = &from,
        .msg_namelen = sizeof from,
        .msg_iov = &part,
        .msg_iovlen = 1,
        .msg_control = control,
        .msg_controllen = sizeof control,
      };
      gssize n = recvmsg (fd, &head, 0);

      if (n < 0 && errno == EAGAIN)
        return;
      if (n < 0)
        continue;
      self->n_datagrams++;
      part.iov_len = (gsize) n;
      if (n > 2)
        buffer[2] = (char) 0x80; /* an answer, if it was a DNS query */
      (void) sendmsg (fd, &head, 0);
    }
}

/* One call to see whether there is anything to do, which mostly there is not. */
void
lab_host_turn (LabHost *self)
{
  struct pollfd fds[CONNECTIONS + 3];

  for (guint i = 0; i < CONNECTIONS; i++)
    fds[i] = (struct pollfd){ .fd = self->connections[i], .events = POLLIN };
  fds[CONNECTIONS] = (struct pollfd){ .fd = self->listener, .events = POLLIN };
  fds[CONNECTIONS + 1] = (struct pollfd){ .fd = self->echo, .events = POLLIN };
  fds[CONNECTIONS + 2] = (struct pollfd){ .fd = self->dns, .events = POLLIN };
  if (poll (fds, G_N_ELEMENTS (fds), 0) <= 0)
    return;
  for (guint i = 0; i < CONNECTIONS; i++)
    if (fds[i].revents != 0)
      echo_stream (&self->connections[i]);
  accept_all (self);
  echo_datagrams (self, self->echo);
  echo_datagrams (self, self->dns);
}

guint64
lab_host_get_connections (LabHost *self)
{
  return self->n_connections;
}

guint64
lab_host_get_datagrams (LabHost *self)
{
  return self->n_datagrams;
}

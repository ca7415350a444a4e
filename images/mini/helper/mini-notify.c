/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Sends one message of the sd_notify protocol to where the credential vmm.notify_socket says.
 *
 * Like the first process of a guest with systemd: from a port below 1024, which only the guest's root
 * can have, one connection for each message, whose end is the end of the connection.
 */
#include "mini-helper.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include <linux/vm_sockets.h>

#define WAIT_MS 5000
#define PRIVILEGED 1024

/* A random one first: the one before may not be free yet. */
static int
bind_privileged (int fd)
{
  struct sockaddr_vm address = { .svm_family = AF_VSOCK, .svm_cid = VMADDR_CID_ANY };
  unsigned start = 0;

  if (getrandom (&start, sizeof start, GRND_NONBLOCK) < 0)
    start = (unsigned) getpid ();
  for (unsigned i = 0; i < PRIVILEGED - 1; i++)
    {
      address.svm_port = 1 + (start + i) % (PRIVILEGED - 1);
      if (bind (fd, (const struct sockaddr *) &address, sizeof address) == 0)
        return 0;
      if (errno != EADDRINUSE)
        return -1;
    }
  return -1;
}

/* The other end closes when it has read; until then the message may still be under way. How the close
 * looks from here depends on the transport. */
static int
await_end (int fd)
{
  struct pollfd item = { .fd = fd, .events = POLLIN };
  char byte;

  if (poll (&item, 1, WAIT_MS) == 0)
    {
      errno = ETIMEDOUT;
      return -1;
    }
  return recv (fd, &byte, 1, 0) < 0 && errno != ECONNRESET && errno != ENOTCONN ? -1 : 0;
}

int
mini_notify (int argc, char **argv)
{
  struct sockaddr_vm address = { .svm_family = AF_VSOCK };
  char end;
  int fd;

  if (argc != 2
      || sscanf (argv[0], "vsock-stream:%u:%u%c", &address.svm_cid, &address.svm_port, &end) != 2)
    return mini_usage ("notify vsock-stream:CID:PORT MESSAGE");
  fd = socket (AF_VSOCK, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0)
    return mini_fail ("vsock");
  if (bind_privileged (fd) < 0
      || connect (fd, (const struct sockaddr *) &address, sizeof address) < 0)
    return mini_fail (argv[0]);
  if (mini_write_all (fd, argv[1], strlen (argv[1])) < 0 || shutdown (fd, SHUT_WR) < 0
      || await_end (fd) < 0)
    return mini_fail ("notify");
  close (fd);
  return 0;
}

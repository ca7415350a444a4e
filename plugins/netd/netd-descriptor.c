/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Descriptors that travel over local sockets, unix(7): the warden sends the switch what it opened,
 * the switch sends the daemon connections and the page of counters.
 */
#include "netd-descriptor.h"

#include <string.h>
#include <sys/socket.h>

gssize
netd_descriptor_send (int socket, const void *data, gsize length, int fd)
{
  struct iovec piece = { (void *) data, length };
  union
  {
    char space[CMSG_SPACE (sizeof (int))];
    struct cmsghdr align;
  } control = { 0 };
  struct msghdr message = { .msg_iov = &piece, .msg_iovlen = 1 };

  if (fd >= 0)
    {
      struct cmsghdr *rights;

      message.msg_control = &control;
      message.msg_controllen = sizeof control;
      rights = CMSG_FIRSTHDR (&message);
      rights->cmsg_level = SOL_SOCKET;
      rights->cmsg_type = SCM_RIGHTS;
      rights->cmsg_len = CMSG_LEN (sizeof fd);
      memcpy (CMSG_DATA (rights), &fd, sizeof fd);
    }
  return sendmsg (socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

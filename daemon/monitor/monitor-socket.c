/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Sockets: of a VM's folder, and of the host's end of its vsock device. */
#include "monitor-socket.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <linux/vm_sockets.h>

#define BACKLOG 64

static int
fail (GError **error, int fd, const char *what, const char *subject)
{
  int code = errno;

  if (fd >= 0)
    close (fd);
  g_set_error (error, G_FILE_ERROR, (int) g_file_error_from_errno (code), "%s %s: %s", what,
               subject, g_strerror (code));
  return -1;
}

static gboolean
set_path (struct sockaddr_un *address, const char *path)
{
  *address = (struct sockaddr_un){ .sun_family = AF_UNIX };
  if (g_strlcpy (address->sun_path, path, sizeof address->sun_path) < sizeof address->sun_path)
    return TRUE;
  errno = ENAMETOOLONG;
  return FALSE;
}

static gboolean
clear_path (const char *path)
{
  struct stat status;

  if (lstat (path, &status) < 0)
    return errno == ENOENT;
  if (S_ISSOCK (status.st_mode))
    return unlink (path) == 0;
  errno = EEXIST;
  return FALSE;
}

int
monitor_socket_listen (const char *path, GError **error)
{
  struct sockaddr_un address;
  int fd;

  if (!set_path (&address, path) || !clear_path (path))
    return fail (error, -1, "make the socket", path);
  fd = socket (AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  /* Nobody can connect before listen(). */
  if (fd < 0 || bind (fd, (struct sockaddr *) &address, sizeof address) < 0
      || chmod (path, 0600) < 0 || listen (fd, BACKLOG) < 0)
    return fail (error, fd, "listen on", path);
  return fd;
}

int
monitor_socket_listen_vsock (guint32 port, GError **error)
{
  const struct sockaddr_vm address
      = { .svm_family = AF_VSOCK, .svm_port = port, .svm_cid = VMADDR_CID_ANY };
  g_autofree char *subject = g_strdup_printf ("vsock port %u", port);
  int fd = socket (AF_VSOCK, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

  if (fd < 0)
    return fail (error, -1, "this host has no vsock device (give --vsock-socket): listen on",
                 subject);
  if (bind (fd, (const struct sockaddr *) &address, sizeof address) == 0
      && listen (fd, BACKLOG) == 0)
    return fd;
  return fail (error, fd,
               errno == EADDRINUSE ? "another process of this host has the notify port: listen on"
                                   : "listen on",
               subject);
}

int
monitor_socket_accept (int listener, guint32 *cid)
{
  union
  {
    struct sockaddr any;
    struct sockaddr_vm vsock;
    struct sockaddr_storage storage;
  } address = { 0 };
  socklen_t length = sizeof address;
  int fd = accept4 (listener, &address.any, &length, SOCK_NONBLOCK | SOCK_CLOEXEC);

  *cid = fd >= 0 && address.any.sa_family == AF_VSOCK ? address.vsock.svm_cid : 0;
  return fd;
}

int
monitor_socket_dial (const char *path)
{
  struct sockaddr_un address;
  int fd, code;

  if (!set_path (&address, path))
    return -1;
  fd = socket (AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  /* The whole address: it is what the system call filter lets through. */
  if (fd < 0 || connect (fd, (struct sockaddr *) &address, sizeof address) == 0)
    return fd;
  code = errno;
  close (fd);
  errno = code;
  return -1;
}

gboolean
monitor_socket_is_ours (int fd)
{
  struct ucred peer;
  socklen_t length = sizeof peer;

  return getsockopt (fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0
         && (peer.uid == geteuid () || peer.uid == 0);
}

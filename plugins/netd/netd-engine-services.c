/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A guest's TCP connections to netd's own services: DNS on the gateway and the metadata address.
 * libslirp carries each to a local socket, and here each is accepted and handed on. Every guest has
 * listeners of its own, so whose connection it is is never a question.
 *
 * libslirp connects with a call that blocks, and it blocks for good when the listener's queue is
 * full. What it connected is therefore taken out before it gets another packet; when that fails,
 * because descriptors ran out, packets to the service are dropped until it works.
 */
#include "netd-engine-slirp.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define PORT_DNS 53
#define PORT_HTTP 80
#define BACKLOG_SPARE 64

static const char *const names[NETD_N_SERVICES] = {
  [NETD_SERVICE_DNS] = "dns",
  [NETD_SERVICE_METADATA] = "metadata",
};

char *
netd_engine_dup_socket_path (NetdEngine *self, const char *name)
{
  g_autofree char *file = g_strdup_printf ("%u-%s", self->config.index, name);

  return g_build_filename (self->config.socket_directory, file, NULL);
}

static int
listen_at (const char *path, int backlog)
{
  struct sockaddr_un address = { .sun_family = AF_UNIX };
  int fd;

  if (g_strlcpy (address.sun_path, path, sizeof address.sun_path) >= sizeof address.sun_path)
    {
      errno = ENAMETOOLONG;
      return -1;
    }
  fd = socket (AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0)
    return -1;
  unlink (path);
  if (bind (fd, (struct sockaddr *) &address, sizeof address) < 0 || listen (fd, backlog) < 0)
    {
      int saved = errno;

      close (fd);
      errno = saved;
      return -1;
    }
  return fd;
}

static gboolean
open_service (NetdEngine *self, Slirp *slirp, NetdService service, guint32 ip, int port)
{
  g_autofree char *path = netd_engine_dup_socket_path (self, names[service]);
  struct in_addr address = { .s_addr = htonl (ip) };

  self->listeners[service] = listen_at (path, (int) self->config.flow_limit + BACKLOG_SPARE);
  if (self->listeners[service] < 0)
    {
      g_warning ("Cannot listen at %s for a guest's %s connections: %s", path, names[service],
                 g_strerror (errno));
      return FALSE;
    }
  return slirp_add_unix (slirp, path, &address, port) == 0;
}

gboolean
netd_services_open (NetdEngine *self, Slirp *slirp)
{
  const NetdPlan *plan = self->config.plan;

  if (open_service (self, slirp, NETD_SERVICE_DNS, plan->gateway, PORT_DNS)
      && (!plan->enable_imds
          || open_service (self, slirp, NETD_SERVICE_METADATA, NETD_IP_METADATA, PORT_HTTP)))
    return TRUE;
  netd_services_close (self);
  return FALSE;
}

void
netd_services_close (NetdEngine *self)
{
  for (guint i = 0; i < NETD_N_SERVICES; i++)
    {
      g_autofree char *path = NULL;

      if (self->listeners[i] < 0)
        continue;
      path = netd_engine_dup_socket_path (self, names[i]);
      unlink (path);
      close (self->listeners[i]);
      self->listeners[i] = -1;
    }
}

void
netd_services_accept (NetdEngine *self, NetdService service)
{
  int fd = -1;

  do
    {
      fd = accept4 (self->listeners[service], NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
      if (fd >= 0)
        self->config.serve (service, fd, self->config.user_data);
    }
  while (fd >= 0 || errno == EINTR);
  self->is_stuck[service] = errno != EAGAIN && errno != EWOULDBLOCK;
}

/* One for libslirp's end, one for ours. */
static gboolean
has_spare_descriptors (int any)
{
  int first = fcntl (any, F_DUPFD_CLOEXEC, 0);
  int second = fcntl (any, F_DUPFD_CLOEXEC, 0);

  if (first >= 0)
    close (first);
  if (second >= 0)
    close (second);
  return first >= 0 && second >= 0;
}

gboolean
netd_services_may_take (NetdEngine *self, NetdService service, gboolean is_half_open)
{
  if (self->listeners[service] < 0)
    return TRUE;
  if (self->is_stuck[service])
    netd_services_accept (self, service);
  if (self->is_stuck[service])
    return FALSE;
  return !is_half_open || has_spare_descriptors (self->listeners[service]);
}

/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The name servers of the host, out of the text of its resolv.conf(5). The file is read by the
 * warden; this half gets the text and has no file system, and takes nothing from it but literal
 * addresses.
 *
 * The few helpers for addresses of the host's side of things are here too: name servers, and where
 * forwards listen.
 */
#include "netd-resolvers.h"

#include <arpa/inet.h>
#include <net/if.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define DNS_PORT 53

socklen_t
netd_socket_address_length (const NetdSocketAddress *address)
{
  return address->any.sa_family == AF_INET6 ? sizeof address->v6 : sizeof address->v4;
}

guint16
netd_socket_address_get_port (const NetdSocketAddress *self)
{
  return g_ntohs (self->any.sa_family == AF_INET6 ? self->v6.sin6_port : self->v4.sin_port);
}

gboolean
netd_socket_address_parse (NetdSocketAddress *self, const char *text, guint16 port)
{
  const char *percent = strchr (text, '%');
  g_autofree char *bare = NULL;
  guint64 scope = 0;

  memset (self, 0, sizeof *self);
  if (inet_pton (AF_INET, text, &self->v4.sin_addr) == 1)
    {
      self->v4.sin_family = AF_INET;
      self->v4.sin_port = g_htons (port);
      return TRUE;
    }
  memset (self, 0, sizeof *self);
  if (percent != NULL && !g_ascii_string_to_unsigned (percent + 1, 10, 1, G_MAXINT32, &scope, NULL))
    return FALSE;
  bare = percent != NULL ? g_strndup (text, (gsize) (percent - text)) : g_strdup (text);
  if (inet_pton (AF_INET6, bare, &self->v6.sin6_addr) != 1)
    return FALSE;
  self->v6.sin6_family = AF_INET6;
  self->v6.sin6_port = g_htons (port);
  self->v6.sin6_scope_id = (guint32) scope;
  return TRUE;
}

/* The first word behind "nameserver" at the start of @line; NULL when it is another line. */
static char *
dup_server (const char *line)
{
  static const char keyword[] = "nameserver";
  const char *start = line + strspn (line, " \t");

  if (strncmp (start, keyword, strlen (keyword)) != 0)
    return NULL;
  start += strlen (keyword);
  if (*start != ' ' && *start != '\t')
    return NULL;
  start += strspn (start, " \t");
  return g_strndup (start, strcspn (start, " \t\r#;"));
}

void
netd_resolvers_parse (NetdResolvers *self, const char *text)
{
  g_auto (GStrv) lines = g_strsplit (text, "\n", -1);

  memset (self, 0, sizeof *self);
  for (guint i = 0; lines[i] != NULL && self->n_servers < NETD_RESOLVERS_MAX; i++)
    {
      g_autofree char *server = dup_server (lines[i]);

      if (server == NULL)
        continue;
      if (netd_socket_address_parse (&self->servers[self->n_servers], server, DNS_PORT))
        self->n_servers++;
      else
        memset (&self->servers[self->n_servers], 0, sizeof self->servers[0]);
    }
  if (self->n_servers == 0)
    {
      netd_socket_address_parse (&self->servers[0], "127.0.0.1", DNS_PORT);
      self->n_servers = 1;
    }
}

/* 0 when there is none. The same as if_nametoindex(), of whose socket nobody knows the kind. */
static int
find_interface (const char *name)
{
  struct ifreq request = { 0 };
  int fd;

  if (strlen (name) >= sizeof request.ifr_name)
    return 0;
  fd = socket (AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0)
    return 0;
  memcpy (request.ifr_name, name, strlen (name));
  if (ioctl (fd, SIOCGIFINDEX, &request) < 0)
    request.ifr_ifindex = 0;
  close (fd);
  return request.ifr_ifindex;
}

/* NULL when @server has no scope, or one that is a number or no interface. */
static char *
number_scope (const char *server)
{
  const char *percent = strchr (server, '%');
  int index = 0;

  if (percent == NULL || g_ascii_string_to_unsigned (percent + 1, 10, 1, G_MAXINT32, NULL, NULL))
    return NULL;
  index = find_interface (percent + 1);
  if (index <= 0)
    return NULL;
  return g_strdup_printf ("%.*s%%%d", (int) (percent - server), server, index);
}

char *
netd_resolvers_number_scopes (const char *text)
{
  g_auto (GStrv) lines = g_strsplit (text, "\n", -1);

  for (guint i = 0; lines[i] != NULL; i++)
    {
      g_autofree char *server = dup_server (lines[i]);
      g_autofree char *numbered = server != NULL ? number_scope (server) : NULL;

      if (numbered == NULL)
        continue;
      g_free (lines[i]);
      lines[i] = g_strdup_printf ("nameserver %s", numbered);
    }
  return g_strjoinv ("\n", lines);
}

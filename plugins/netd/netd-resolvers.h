/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <glib.h>
#include <netinet/in.h>

/* The name servers of a resolv.conf(5). */
#define NETD_RESOLVERS_MAX 3

typedef union
{
  struct sockaddr any;
  struct sockaddr_in v4;
  struct sockaddr_in6 v6;
} NetdSocketAddress;

typedef struct
{
  NetdSocketAddress servers[NETD_RESOLVERS_MAX];
  guint n_servers;
} NetdResolvers;

/* Reads "nameserver" lines, IPv4 and IPv6 (with a numeric scope; one with an interface's name is
 * passed over, see below); none at all means 127.0.0.1, as resolv.conf(5) says. */
void netd_resolvers_parse (NetdResolvers *self, const char *text);
/* @text with the names of interfaces in scopes, "fe80::1%eth0", made numbers. Finding them takes
 * SIOCGIFINDEX on a socket, so it is for the side that reads the file, not for the sandbox. */
char *netd_resolvers_number_scopes (const char *text);

/* An IPv4 or IPv6 literal, the latter perhaps with a numeric scope. */
gboolean netd_socket_address_parse (NetdSocketAddress *self, const char *text, guint16 port);
guint16 netd_socket_address_get_port (const NetdSocketAddress *self);
socklen_t netd_socket_address_length (const NetdSocketAddress *address);

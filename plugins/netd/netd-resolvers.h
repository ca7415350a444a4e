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

/* Reads "nameserver" lines, IPv4 and IPv6 (with a numeric or interface-name scope); none at all means
 * 127.0.0.1, as resolv.conf(5) says. */
void netd_resolvers_parse (NetdResolvers *self, const char *text);
socklen_t netd_socket_address_length (const NetdSocketAddress *address);

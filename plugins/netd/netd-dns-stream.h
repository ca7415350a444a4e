/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "netd-dns.h"

/* DNS over TCP for one guest: each connection to the gateway's port 53 goes to a name server. */
typedef struct _NetdDnsStreams NetdDnsStreams;

#define NETD_DNS_IDLE_MS 30000 /* a connection on which nothing moves for so long is ended */

NetdDnsStreams *netd_dns_streams_new (const NetdDnsConfig *config);
void netd_dns_streams_free (NetdDnsStreams *self);
void netd_dns_streams_accept (NetdDnsStreams *self, int fd); /* takes @fd over */

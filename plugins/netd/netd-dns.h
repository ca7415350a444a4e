/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "netd-loop.h"
#include "netd-packet.h"
#include "netd-plan.h"
#include "netd-resolvers.h"

/* DNS on the gateway: messages go to the host's name servers and back unchanged but for their id,
 * one server after the other; SERVFAIL when none answers. Bounded queries per port. */
typedef struct _NetdDns NetdDns; /* one per port, so that a guest can exhaust only its own */

#define NETD_DNS_QUERIES_MAX 64     /* UDP queries of one guest in flight */
#define NETD_DNS_CONNECTIONS_MAX 16 /* TCP connections of one guest */
#define NETD_DNS_TRY_MS 2000        /* before the next server is asked */

typedef struct
{
  const NetdPlan *plan;
  NetdLoop *loop;
  const NetdResolvers *resolvers; /* looked at for each query: changes take effect at once */
  NetdMac mac;
  guint32 ip;
  /* An answer for the guest. */
  void (*send) (const guint8 *frame, gsize length, gpointer user_data);
  gpointer user_data;
} NetdDnsConfig;

NetdDns *netd_dns_new (const NetdDnsConfig *config);
void netd_dns_free (NetdDns *self);
void netd_dns_query (NetdDns *self, const NetdPacket *packet); /* UDP to gateway:53 */
void netd_dns_accept (NetdDns *self, int fd); /* TCP to gateway:53; takes @fd over */

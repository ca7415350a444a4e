/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "netd-loop.h"
#include "netd-packet.h"
#include "netd-plan.h"

/* UDP forwards of one port. Each peer of the host gets a source port of the gateway's of its own,
 * so that answers find their way back; forgotten after 90 s of silence. */
typedef struct _NetdUdpForwards NetdUdpForwards;
typedef struct _NetdUdpForward NetdUdpForward;

#define NETD_UDP_PEERS_MAX 256 /* of one guest */
#define NETD_UDP_IDLE_MS 90000
#define NETD_UDP_PORT_FIRST 20000 /* the gateway's source ports: this one and the following */

typedef struct
{
  const NetdPlan *plan;
  NetdLoop *loop;
  NetdMac mac;
  guint32 ip;
  void (*send) (const guint8 *frame, gsize length, gpointer user_data);
  gpointer user_data;
} NetdUdpForwardsConfig;

NetdUdpForwards *netd_udp_forwards_new (const NetdUdpForwardsConfig *config);
void netd_udp_forwards_free (NetdUdpForwards *self);
/* Takes over the bound socket @fd. */
NetdUdpForward *netd_udp_forwards_add (NetdUdpForwards *self, int fd, guint16 port);
void netd_udp_forward_free (NetdUdpForward *forward);
/* A forward ends with its NetdUdpForwards: *@location, which keeps it, is then set to NULL. */
void netd_udp_forward_set_location (NetdUdpForward *forward, NetdUdpForward **location);
guint netd_udp_forwards_get_n_peers (NetdUdpForwards *self);
/* A guest's datagram to the gateway: TRUE when it answers a peer and was sent. */
gboolean netd_udp_forwards_receive (NetdUdpForwards *self, const NetdPacket *packet);

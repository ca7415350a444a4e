/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "netd-port.h"

/* The gateway as one port sees it: ARP, DHCP, DNS, metadata, NAT, UDP forwards. One per port. */
typedef struct _NetdGateway NetdGateway;

NetdGateway *netd_gateway_new (NetdNetwork *network, NetdPort *port);
void netd_gateway_free (NetdGateway *self);
/* A frame for the gateway's MAC, or a broadcast: already guarded. @frame as packet->frame,
 * writable. */
void netd_gateway_receive (NetdGateway *self, const NetdPacket *packet, guint8 *frame);
void netd_gateway_batch_done (NetdGateway *self);
/* The guest is gone, or starts anew: its flows end. Not from within the engine. */
void netd_gateway_reset (NetdGateway *self);
/* The port's queue is nearly full (or has room again). */
void netd_gateway_set_paused (NetdGateway *self, gboolean paused);
NetdEngine *netd_gateway_get_engine (NetdGateway *self);
struct _NetdUdpForwards *netd_gateway_get_udp_forwards (NetdGateway *self);

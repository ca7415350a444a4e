/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "netd-counters.h"
#include "netd-engine.h"
#include "netd-opener.h"
#include "netd-ring.h"

/* One VM's place on the network: its stream to QEMU, its queue, its share of the gateway. The VM is
 * known by this port alone. */
typedef struct _NetdPort NetdPort;
typedef struct _NetdNetwork NetdNetwork;

/* Where a frame for a port comes from: other guests may fill only half of its queue. */
typedef enum
{
  NETD_ORIGIN_GATEWAY,
  NETD_ORIGIN_GUEST,
} NetdOrigin;

/* For a frame that came to nothing or is answered here. It takes less, but nobody needs many. */
#define NETD_CHARGE_FRAME 3

NetdPort *netd_port_new (NetdNetwork *network, guint index, const char *vm_id, const NetdMac *mac,
                         guint32 ip);
void netd_port_free (NetdPort *self);
const char *netd_port_get_vm_id (NetdPort *self);
const NetdMac *netd_port_get_mac (NetdPort *self);
guint32 netd_port_get_ip (NetdPort *self);
guint netd_port_get_index (NetdPort *self);
gboolean netd_port_is_connected (NetdPort *self);
NetdCounters *netd_port_get_counters (NetdPort *self);
struct _NetdGateway *netd_port_get_gateway (NetdPort *self);

/* Starts to dial QEMU, and again whenever the stream ends. */
void netd_port_dial (NetdPort *self);
/* Uses this stream: what dialling leads to, and for tests. Takes @fd over. */
void netd_port_set_stream (NetdPort *self, int fd);
/* Queues a frame, cut to the MTU when it is larger; written out at the end of the turn. FALSE when
 * it was dropped. */
gboolean netd_port_send (NetdPort *self, const guint8 *frame, gsize length, NetdOrigin origin);
void netd_port_flush (NetdPort *self);
/* Counts for the port and the network; waste is charged. */
void netd_port_count (NetdPort *self, NetdCount count, guint64 n);
/* Work that came to nothing, was for many, or is bounded by nothing else: above a share of the time
 * the port is not read for a while. */
void netd_port_charge (NetdPort *self, guint microseconds);
/* For the list of ports to flush: returns what it was. */
gboolean netd_port_set_dirty (NetdPort *self, gboolean is_dirty);

/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "netd-capture.h"
#include "netd-port.h"
#include "netd-resolvers.h"

/* One network: its ports, the switch between them, and what they share. The switch knows which MAC
 * address is behind which port from the leases; nothing is learnt, so that nothing can be taken. */

typedef void (*NetdPortFunc) (NetdPort *port, gpointer user_data);

NetdNetwork *netd_network_new (NetdLoop *loop, const NetdPlan *plan, NetdCounters *counters);
void netd_network_free (NetdNetwork *self);
/* Before ports are attached. Without one (tests) they are not dialled and have no metadata service.
 * Not owned. */
void netd_network_set_opener (NetdNetwork *self, NetdOpener *opener);
/* Where ports keep their private sockets: the root, which is netd's own, unless set before ports
 * are attached. */
void netd_network_set_socket_directory (NetdNetwork *self, const char *directory);
/* @func: called when a port's stream comes or goes. */
void netd_network_set_port_func (NetdNetwork *self, NetdPortFunc func, gpointer user_data);
void netd_network_set_resolvers (NetdNetwork *self, const char *resolv_conf);

/* Plugs a VM in; the same again is fine, another VM with its address is unplugged. */
NetdPort *netd_network_attach (NetdNetwork *self, const char *vm_id, const NetdMac *mac, guint32 ip,
                               GError **error);
gboolean netd_network_detach (NetdNetwork *self, const char *vm_id);
NetdPort *netd_network_find (NetdNetwork *self, const char *vm_id);
void netd_network_foreach (NetdNetwork *self, NetdPortFunc func, gpointer user_data);

/* A frame came in at @port: guard, switch, gateway. @frame is writable and may be changed. */
void netd_network_receive (NetdNetwork *self, NetdPort *port, guint8 *frame, gsize length);
/* The frames of a batch of @port are through. */
void netd_network_batch_done (NetdNetwork *self, NetdPort *port);
/* @port has something queued, or is to be looked at: flushed at the end of the turn. */
void netd_network_mark_dirty (NetdNetwork *self, NetdPort *port);

/* Replaces the running capture; NULL ends it. Takes it over. */
void netd_network_set_capture (NetdNetwork *self, NetdCapture *capture);

NetdLoop *netd_network_get_loop (NetdNetwork *self);
const NetdPlan *netd_network_get_plan (NetdNetwork *self);
NetdCounters *netd_network_get_counters (NetdNetwork *self);
NetdOpener *netd_network_get_opener (NetdNetwork *self);
const char *netd_network_get_socket_directory (NetdNetwork *self); /* or NULL */
NetdCapture *netd_network_get_capture (NetdNetwork *self);
const NetdResolvers *netd_network_get_resolvers (NetdNetwork *self);

/* What ports read into, one after the other: @size bytes. */
guint8 *netd_network_get_buffer (NetdNetwork *self, gsize *size);
/* @port has got or lost its stream. */
void netd_network_port_changed (NetdNetwork *self, NetdPort *port);
/* Whether @port may open one more flow, as far as all flows of the network go. */
gboolean netd_network_admit_flow (NetdNetwork *self, NetdPort *port);
/* The rule of that: there are @all flows of @most, @own of the port's, and @n_ports. Pure. */
gboolean netd_flows_have_room (guint most, guint all, guint own, guint n_ports);
/* Whether there are descriptors for what guests want. The last ones are kept for what the network
 * itself needs: the daemon on the control socket, streams of VMs that come up. */
gboolean netd_network_has_descriptors (NetdNetwork *self);

/* Flows of one guest, and of all guests of a network together: fewer where there are fewer than four
 * descriptors for each, as a flow may take three. */
#define NETD_FLOWS_PER_PORT 512
#define NETD_FLOWS_PER_NETWORK 4096

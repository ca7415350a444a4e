/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "netd-network.h"

/* Ports of the host that lead to ports of guests: listeners that netd owns. */
typedef struct _NetdForwards NetdForwards; /* all of a network's */

#define NETD_FORWARDS_MAX 1024
#define NETD_FORWARD_CONNECTIONS_MAX 512 /* of one forward; more wait in the kernel's queue */
#define NETD_FORWARD_DIAL_MS 10000       /* for the guest to answer */
#define NETD_FORWARD_PAUSE_MS 100        /* before accepting again when something ran out */

typedef struct
{
  const char *id;
  const char *vm_id;
  guint16 port;
  gboolean is_udp;
  const char *host_address; /* IPv4 or IPv6 literal */
  guint16 host_port;        /* 0: the kernel chooses */
} NetdForwardSpec;

NetdForwards *netd_forwards_new (NetdNetwork *network);
void netd_forwards_free (NetdForwards *self);
/* Returns the host's port, 0 on error. The same id again returns what is there. A port that is
 * taken is %G_IO_ERROR_ADDRESS_IN_USE, one below 1024 says what would allow it. */
guint16 netd_forwards_add (NetdForwards *self, const NetdForwardSpec *spec, GError **error);
gboolean netd_forwards_remove (NetdForwards *self, const char *id);
void netd_forwards_remove_vm (NetdForwards *self, const char *vm_id);
/* To be called when a VM was plugged in: its UDP forwards come into effect. While it is not there
 * its forwards hold their ports and lead nowhere. */
void netd_forwards_port_attached (NetdForwards *self, NetdPort *port);

/* @spec: with the host's port as it is; valid during the call */
typedef void (*NetdForwardFunc) (const NetdForwardSpec *spec, gpointer user_data);
void netd_forwards_foreach (NetdForwards *self, NetdForwardFunc func, gpointer user_data);

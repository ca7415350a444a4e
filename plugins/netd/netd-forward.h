/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "netd-network.h"

/* Ports of the host that lead to ports of guests: listeners that netd owns. */
typedef struct _NetdForwards NetdForwards; /* all of a network's */

#define NETD_FORWARDS_MAX 1024
#define NETD_FORWARD_CONNECTIONS_MAX 512 /* of one forward */

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
/* Returns the host's port, 0 on error. The same id again returns what is there. A port that is taken
 * is %G_IO_ERROR_ADDRESS_IN_USE, one below 1024 says what would allow it. */
guint16 netd_forwards_add (NetdForwards *self, const NetdForwardSpec *spec, GError **error);
gboolean netd_forwards_remove (NetdForwards *self, const char *id);
void netd_forwards_remove_vm (NetdForwards *self, const char *vm_id);

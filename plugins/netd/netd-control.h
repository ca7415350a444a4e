/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "netd-forward.h"

/* The control socket: JSON lines, descriptors beside them. The first line is netd's hello. */
typedef struct _NetdControl NetdControl;

#define NETD_PROTOCOL_NAME "vmm-netd"
#define NETD_PROTOCOL_VERSION 1
#define NETD_CONTROL_LINE_MAX 65536
#define NETD_CONTROL_CLIENTS_MAX 8

/* Takes over the listening socket; @counters_fd, not taken over, goes out with each hello. */
NetdControl *netd_control_new (NetdNetwork *network, NetdForwards *forwards, int listener,
                               int counters_fd);
void netd_control_free (NetdControl *self);

/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "netd-opener.h"
#include "netd-path-watch.h"

/* The warden's side of openings: which socket a VM and a kind stand for, and connecting to it as
 * soon as somebody listens there. */
typedef struct _NetdWardenSockets NetdWardenSockets;

#define NETD_WARDEN_OPENINGS_MAX 4096   /* at a time */
#define NETD_WARDEN_PORT_OPENINGS 1     /* of them, of one VM: of its port, */
#define NETD_WARDEN_METADATA_OPENINGS 32 /* and of its metadata */

/* @fd, to be taken over, is connected and does not block. */
typedef void (*NetdWardenSocketFunc) (guint32 token, int fd, gpointer user_data);

/* @directory: where netd.json is, looked at again whenever it has changed. */
NetdWardenSockets *netd_warden_sockets_new (NetdLoop *loop, NetdPathWatcher *watcher,
                                            const char *directory, NetdWardenSocketFunc func,
                                            gpointer user_data);
void netd_warden_sockets_free (NetdWardenSockets *self);
/* What netd.json does not name is dropped with a line in the log, what is above the limits, too. */
void netd_warden_sockets_open (NetdWardenSockets *self, guint32 token, guint32 kind,
                               const char *vm_id);
void netd_warden_sockets_cancel (NetdWardenSockets *self, guint32 token);

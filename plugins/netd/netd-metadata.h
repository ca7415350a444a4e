/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "netd-opener.h"

/* Connections of guests to 169.254.169.254: each is carried to the daemon's socket of that VM, and
 * held for up to 30 s while nobody listens there. Bounded per port. */
typedef struct _NetdMetadata NetdMetadata; /* one per port */

#define NETD_METADATA_HOLD_MS 30000
#define NETD_METADATA_MAX 32 /* connections of one guest at a time */

NetdMetadata *netd_metadata_new (NetdLoop *loop, NetdOpener *opener, const char *vm_id);
void netd_metadata_free (NetdMetadata *self);
void netd_metadata_accept (NetdMetadata *self, int fd); /* takes @fd over */

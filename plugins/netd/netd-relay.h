/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "netd-loop.h"

/* Carries bytes between two stream sockets, both ways, with half-close: the end of one direction
 * ends that direction only. Bounded buffers; a side that does not read slows the other down. */
typedef struct _NetdRelay NetdRelay;
typedef void (*NetdRelayFunc) (NetdRelay *relay, gpointer user_data);

/* Takes over both descriptors (non-blocking). @done is called once, from the loop, when both
 * directions have ended or one side failed; the relay is freed right after it returns. */
NetdRelay *netd_relay_new (NetdLoop *loop, int a, int b, NetdRelayFunc done, gpointer user_data);
/* Ends it at once without calling @done; resets the connections. */
void netd_relay_free (NetdRelay *self);
/* When the last bytes moved, on the loop's clock: for owners that end idle ones. */
gint64 netd_relay_get_last_activity (NetdRelay *self);

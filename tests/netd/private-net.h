/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <glib.h>

/* A network namespace of the test's own in which every IPv4 address of the world is this machine:
 * what a guest opens to anywhere arrives at a listener of the test, and nothing leaves. */

/* The address that the machine has besides the loopback's, and answers from. */
#define PRIVATE_NET_HOST "198.51.100.1"

/* Moves the process; FALSE with a reason when the kernel does not let it. Call it before any
 * thread. */
gboolean private_net_enter (char **reason);

/* Sees each IPv4 packet of the namespace to 127.0.0.0/8 or 169.254.0.0/16, whatever its protocol
 * and port. Returns a descriptor. */
int private_net_watch_forbidden (void);
/* How many it has seen since the last call. */
guint private_net_count_forbidden (int witness);

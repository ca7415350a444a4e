/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "netd-counters.h"
#include "netd-packet.h"
#include "netd-plan.h"

/* Ingress check: whether a frame from a port is its lease's own. Pure.
 * Returns NETD_N_COUNTS when it may pass, else the kind of its refusal. */
NetdCount netd_guard_check (const NetdPlan *plan, const NetdMac *mac, guint32 ip,
                            const NetdPacket *packet);

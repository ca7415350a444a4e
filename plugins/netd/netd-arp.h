/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "netd-packet.h"
#include "netd-plan.h"

/* The gateway's answer to an ARP request: for the gateway, 169.254.169.254 when metadata is
 * enabled, the host alias when enabled. Returns the length of the reply in @frame; 0 for none.
 * Pure. */
gsize netd_arp_answer (const NetdPlan *plan, const NetdPacket *request, guint8 *frame, gsize size);

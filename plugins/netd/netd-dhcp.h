/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "netd-packet.h"
#include "netd-plan.h"

/* DHCP server for exactly one client: the port's lease, or silence. RFC 2131, 2132, 3397 (search
 * list), 3046 (relay information echoed), 6842 (client id echoed).
 * Returns the length of the reply in @frame; 0 for none. Pure. */
gsize netd_dhcp_answer (const NetdPlan *plan, const NetdMac *mac, guint32 ip,
                        const NetdPacket *request, guint8 *frame, gsize size);
/* Whether @packet is for a DHCP server (UDP 68 to 67). */
gboolean netd_dhcp_is_request (const NetdPacket *packet);

/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The gateway's ARP: it answers for the addresses that are its own and for no other, guests answer
 * for themselves. 169.254.169.254 is outside of every network's prefix and yet on the link, because
 * images route it there.
 */
#include "netd-arp.h"

#define ARP_REQUEST 1
#define ARP_REPLY 2

gsize
netd_arp_answer (const NetdPlan *plan, const NetdPacket *request, guint8 *frame, gsize size)
{
  NetdPlace place;

  if (request->kind != NETD_PACKET_ARP || request->arp_operation != ARP_REQUEST)
    return 0;
  place = netd_plan_place (plan, request->arp_target_ip);
  if (place != NETD_PLACE_GATEWAY && place != NETD_PLACE_METADATA && place != NETD_PLACE_ALIAS)
    return 0;
  return netd_packet_build_arp (frame, size, ARP_REPLY, &plan->gateway_mac, request->arp_target_ip,
                                &request->arp_sender_mac, request->arp_sender_ip);
}

/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The ingress check: a guest speaks with the addresses of its own lease or not at all. It stands
 * before the switch, so a forged frame reaches neither another guest nor the gateway. It decides
 * from the view of one frame and the lease alone, and keeps nothing.
 *
 * DHCP is part of it because clients take an address from whoever answers first: a guest may ask
 * for its own hardware address only, and may not send what a client would take for an answer. The
 * client id is not looked at: guests made from one image share theirs.
 */
#include "netd-guard.h"

#include <netinet/in.h>
#include <string.h>

#define ARP_REQUEST 1
#define ARP_REPLY 2
#define DHCP_SERVER_PORT 67
#define DHCP_CLIENT_PORT 68
#define DHCP_HEADER 236
#define DHCP_HARDWARE_ADDRESS 28

#define PASS NETD_N_COUNTS

static NetdCount
check_arp (const NetdMac *mac, guint32 ip, const NetdPacket *packet)
{
  gboolean is_probe = packet->arp_operation == ARP_REQUEST && packet->arp_sender_ip == 0;

  if (packet->arp_operation != ARP_REQUEST && packet->arp_operation != ARP_REPLY)
    return NETD_COUNT_UNSUPPORTED;
  if (!netd_mac_equal (&packet->arp_sender_mac, mac))
    return NETD_COUNT_SPOOFED_ARP;
  if (packet->arp_sender_ip != ip && !is_probe)
    return NETD_COUNT_SPOOFED_ARP;
  return PASS;
}

/* A message to a DHCP server, whoever that may be. */
static NetdCount
check_dhcp_request (const NetdMac *mac, const NetdPacket *packet)
{
  const guint8 *message = packet->payload;

  /* Nobody needs to cut one, and the part that says who asks might be in another fragment. */
  if (packet->is_fragment || packet->payload_length < DHCP_HEADER)
    return NETD_COUNT_MALFORMED;
  if (message[0] != 1 || message[1] != 1 || message[2] != 6)
    return NETD_COUNT_SPOOFED_DHCP;
  if (memcmp (message + DHCP_HARDWARE_ADDRESS, mac->octets, 6) != 0)
    return NETD_COUNT_SPOOFED_DHCP;
  return PASS;
}

/* A guest that has no address yet says nothing but this. */
static gboolean
is_first_request (const NetdPlan *plan, const NetdPacket *packet)
{
  return packet->protocol == IPPROTO_UDP && !packet->is_fragment
         && packet->source_port == DHCP_CLIENT_PORT && packet->destination_port == DHCP_SERVER_PORT
         && (netd_packet_is_broadcast (packet)
             || netd_mac_equal (&packet->destination, &plan->gateway_mac))
         && (packet->ip_destination == G_MAXUINT32 || packet->ip_destination == plan->gateway);
}

static NetdCount
check_ipv4 (const NetdPlan *plan, const NetdMac *mac, guint32 ip, const NetdPacket *packet)
{
  if (packet->ip_source != ip && (packet->ip_source != 0 || !is_first_request (plan, packet)))
    return NETD_COUNT_SPOOFED_IP;
  if (packet->protocol != IPPROTO_UDP || packet->transport == NULL)
    return PASS;
  /* Clients take answers by their destination port alone. */
  if (packet->source_port == DHCP_SERVER_PORT || packet->destination_port == DHCP_CLIENT_PORT)
    return NETD_COUNT_SPOOFED_DHCP;
  if (packet->destination_port == DHCP_SERVER_PORT)
    return check_dhcp_request (mac, packet);
  return PASS;
}

NetdCount
netd_guard_check (const NetdPlan *plan, const NetdMac *mac, guint32 ip, const NetdPacket *packet)
{
  if (packet->length >= NETD_ETHERNET_HEADER && !netd_mac_equal (&packet->source, mac))
    return NETD_COUNT_SPOOFED_MAC;
  switch (packet->kind)
    {
    case NETD_PACKET_ARP:
      return check_arp (mac, ip, packet);
    case NETD_PACKET_IPV4:
      return check_ipv4 (plan, mac, ip, packet);
    case NETD_PACKET_OTHER:
      return NETD_COUNT_UNSUPPORTED;
    case NETD_PACKET_MALFORMED:
    default:
      return NETD_COUNT_MALFORMED;
    }
}

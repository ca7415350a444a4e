/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The few frames that the gateway makes itself: UDP answers (DHCP, DNS), ARP, and the RST for what
 * a guest may not reach. Each is a pure function into memory of the caller's; one that does not fit
 * is not begun.
 */
#include "netd-packet.h"

#include <netinet/in.h>
#include <string.h>

#include "netd-bytes.h"

#define ARP_LENGTH 28
#define IP_HEADER 20
#define UDP_HEADER 8
#define TCP_HEADER 20
#define TIME_TO_LIVE 64
#define IP_DONT_FRAGMENT 0x4000
/* Every MTU that a network can have carries this much unfragmented. */
#define ALWAYS_WHOLE 1500

static void
write_ethernet (guint8 *frame, const NetdMac *destination, const NetdMac *source, guint16 ethertype)
{
  memcpy (frame, destination->octets, 6);
  memcpy (frame + 6, source->octets, 6);
  netd_write_16 (frame + 12, ethertype);
}

/* A packet that may come to be cut on its way needs an identification of its own (RFC 6864); the
 * others say that they are not to be cut, and need none. */
static void
write_ipv4 (guint8 *ip, guint8 protocol, gsize length, guint32 source, guint32 destination)
{
  static guint16 last_identification;
  gboolean is_whole = length <= ALWAYS_WHOLE;
  guint16 checksum;

  memset (ip, 0, IP_HEADER);
  ip[0] = 0x45;
  netd_write_16 (ip + 2, (guint) length);
  netd_write_16 (ip + 4, is_whole ? 0 : ++last_identification);
  netd_write_16 (ip + 6, is_whole ? IP_DONT_FRAGMENT : 0);
  ip[8] = TIME_TO_LIVE;
  ip[9] = protocol;
  netd_write_32 (ip + 12, source);
  netd_write_32 (ip + 16, destination);
  checksum = netd_checksum_finish (netd_checksum_add (0, ip, IP_HEADER));
  memcpy (ip + 10, &checksum, 2);
}

/* @at: where the checksum lies; its bytes are zero. */
static void
write_transport_checksum (guint8 *ip, gsize length, gsize at)
{
  guint32 sum = netd_checksum_pseudo (ip, length);
  guint16 checksum = netd_checksum_finish (netd_checksum_add (sum, ip + IP_HEADER, length));

  /* In UDP zero would say that there is none; all ones is the same number. */
  if (checksum == 0 && ip[9] == IPPROTO_UDP)
    checksum = 0xffff;
  memcpy (ip + IP_HEADER + at, &checksum, 2);
}

gsize
netd_packet_build_udp (guint8 *frame, gsize size, const NetdUdpAddress *address,
                       const void *payload, gsize length)
{
  guint8 *ip = frame + NETD_ETHERNET_HEADER;
  guint8 *udp = ip + IP_HEADER;

  if (length > G_MAXUINT16 - IP_HEADER - UDP_HEADER
      || size < NETD_ETHERNET_HEADER + IP_HEADER + UDP_HEADER + length)
    return 0;

  write_ethernet (frame, &address->destination_mac, &address->source_mac, NETD_ETHERTYPE_IPV4);
  write_ipv4 (ip, IPPROTO_UDP, IP_HEADER + UDP_HEADER + length, address->source,
              address->destination);
  netd_write_16 (udp, address->source_port);
  netd_write_16 (udp + 2, address->destination_port);
  netd_write_16 (udp + 4, (guint) (UDP_HEADER + length));
  netd_write_16 (udp + 6, 0);
  if (length > 0)
    memcpy (udp + UDP_HEADER, payload, length);
  write_transport_checksum (ip, UDP_HEADER + length, 6);
  return NETD_ETHERNET_HEADER + IP_HEADER + UDP_HEADER + length;
}

gsize
netd_packet_build_arp (guint8 *frame, gsize size, guint16 operation, const NetdMac *sender_mac,
                       guint32 sender_ip, const NetdMac *target_mac, guint32 target_ip)
{
  static const NetdMac everyone = { { 0xff, 0xff, 0xff, 0xff, 0xff, 0xff } };
  guint8 *arp = frame + NETD_ETHERNET_HEADER;

  if (size < NETD_ETHERNET_HEADER + ARP_LENGTH)
    return 0;

  write_ethernet (frame, target_mac != NULL ? target_mac : &everyone, sender_mac,
                  NETD_ETHERTYPE_ARP);
  netd_write_16 (arp, 1);
  netd_write_16 (arp + 2, NETD_ETHERTYPE_IPV4);
  arp[4] = 6;
  arp[5] = 4;
  netd_write_16 (arp + 6, operation);
  memcpy (arp + 8, sender_mac->octets, 6);
  netd_write_32 (arp + 14, sender_ip);
  if (target_mac != NULL)
    memcpy (arp + 18, target_mac->octets, 6);
  else
    memset (arp + 18, 0, 6);
  netd_write_32 (arp + 24, target_ip);
  return NETD_ETHERNET_HEADER + ARP_LENGTH;
}

/* What was not meant for one receiver is not refused (RFC 1122, 4.2.3.10), nor is a RST. */
static gboolean
is_refusable (const NetdPacket *packet)
{
  return packet->kind == NETD_PACKET_IPV4 && packet->protocol == IPPROTO_TCP && !packet->is_fragment
         && (packet->tcp_flags & NETD_TCP_RST) == 0 && (packet->destination.octets[0] & 1) == 0
         && packet->ip_destination < NETD_IP (224, 0, 0, 0);
}

gsize
netd_packet_build_reset (guint8 *frame, gsize size, const NetdPacket *packet,
                         const NetdMac *gateway_mac)
{
  guint8 *ip = frame + NETD_ETHERNET_HEADER;
  guint8 *tcp = ip + IP_HEADER;
  guint32 occupied;

  if (size < NETD_ETHERNET_HEADER + IP_HEADER + TCP_HEADER || !is_refusable (packet))
    return 0;

  write_ethernet (frame, &packet->source, gateway_mac, NETD_ETHERTYPE_IPV4);
  write_ipv4 (ip, IPPROTO_TCP, IP_HEADER + TCP_HEADER, packet->ip_destination, packet->ip_source);
  memset (tcp, 0, TCP_HEADER);
  netd_write_16 (tcp, packet->destination_port);
  netd_write_16 (tcp + 2, packet->source_port);
  tcp[12] = TCP_HEADER / 4 << 4;
  tcp[13] = NETD_TCP_RST;
  if ((packet->tcp_flags & NETD_TCP_ACK) != 0)
    memcpy (tcp + 4, packet->transport + 8, 4);
  else
    {
      occupied = (guint32) packet->payload_length + ((packet->tcp_flags & NETD_TCP_SYN) != 0)
                 + ((packet->tcp_flags & NETD_TCP_FIN) != 0);
      tcp[13] |= NETD_TCP_ACK;
      netd_write_32 (tcp + 8, netd_read_32 (packet->transport + 4) + occupied);
    }
  write_transport_checksum (ip, TCP_HEADER, 16);
  return NETD_ETHERNET_HEADER + IP_HEADER + TCP_HEADER;
}

/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Reads a frame once and says what is in it. Everything behind it (guard, switch, gateway, engine)
 * works on this view, so what is not checked here is checked nowhere: each length is compared with
 * what is really there before it is believed, and two readers cannot see two different packets.
 *
 * VLAN tags and 802.3 frames are of kind OTHER: there is one segment, and nothing behind a tag is
 * looked at. Checksums are left to whoever uses the data.
 */
#include "netd-packet.h"

#include <netinet/in.h>
#include <string.h>

#include "netd-bytes.h"

#define ARP_LENGTH 28
#define IP_HEADER_MIN 20
#define IP_MORE_FRAGMENTS 0x2000
#define IP_OFFSET_MASK 0x1fff
#define UDP_HEADER 8
#define TCP_HEADER_MIN 20

static NetdPacketKind
parse_arp (NetdPacket *packet)
{
  const guint8 *arp = packet->frame + NETD_ETHERNET_HEADER;

  if (packet->length < NETD_ETHERNET_HEADER + ARP_LENGTH)
    return NETD_PACKET_MALFORMED;
  if (netd_read_16 (arp) != 1 || netd_read_16 (arp + 2) != NETD_ETHERTYPE_IPV4 || arp[4] != 6
      || arp[5] != 4)
    return NETD_PACKET_MALFORMED;

  packet->arp_operation = netd_read_16 (arp + 6);
  memcpy (packet->arp_sender_mac.octets, arp + 8, 6);
  packet->arp_sender_ip = netd_read_32 (arp + 14);
  packet->arp_target_ip = netd_read_32 (arp + 24);
  return NETD_PACKET_ARP;
}

static gboolean
parse_udp (NetdPacket *packet)
{
  gsize length;

  if (packet->transport_length < UDP_HEADER)
    return FALSE;
  length = netd_read_16 (packet->transport + 4);
  if (length < UDP_HEADER)
    return FALSE;
  /* A first fragment holds only the beginning of what it announces. */
  if (packet->is_fragment)
    length = MIN (length, packet->transport_length);
  if (length > packet->transport_length)
    return FALSE;

  packet->source_port = netd_read_16 (packet->transport);
  packet->destination_port = netd_read_16 (packet->transport + 2);
  packet->payload = packet->transport + UDP_HEADER;
  packet->payload_length = length - UDP_HEADER;
  return TRUE;
}

static gboolean
parse_tcp (NetdPacket *packet)
{
  gsize header;

  if (packet->transport_length < TCP_HEADER_MIN)
    return FALSE;
  header = (gsize) (packet->transport[12] >> 4) * 4;
  if (header < TCP_HEADER_MIN || header > packet->transport_length)
    return FALSE;

  packet->source_port = netd_read_16 (packet->transport);
  packet->destination_port = netd_read_16 (packet->transport + 2);
  packet->tcp_flags = packet->transport[13];
  packet->payload = packet->transport + header;
  packet->payload_length = packet->transport_length - header;
  return TRUE;
}

/* Fragments that no honest sender makes: a middle one that does not end at 8 bytes, one that would
 * reach beyond the largest packet, and one that would overwrite the TCP header of the first. */
static gboolean
is_fragment_sane (const NetdPacket *packet, guint16 fragment, gsize length)
{
  gsize offset = (gsize) (fragment & IP_OFFSET_MASK) * 8;

  if ((fragment & IP_MORE_FRAGMENTS) != 0 && (length % 8 != 0 || length == 0))
    return FALSE;
  if (offset > 0 && length == 0)
    return FALSE;
  if (IP_HEADER_MIN + offset + length > G_MAXUINT16)
    return FALSE;
  return packet->protocol != IPPROTO_TCP || offset == 0 || offset >= TCP_HEADER_MIN;
}

static NetdPacketKind
parse_ipv4 (NetdPacket *packet)
{
  const guint8 *ip = packet->frame + NETD_ETHERNET_HEADER;
  gsize available = packet->length - NETD_ETHERNET_HEADER;
  gsize header;
  guint16 fragment;
  gboolean is_sane = TRUE;

  if (available < IP_HEADER_MIN || ip[0] >> 4 != 4)
    return NETD_PACKET_MALFORMED;
  header = (gsize) (ip[0] & 0x0f) * 4;
  packet->ip_length = netd_read_16 (ip + 2);
  if (header < IP_HEADER_MIN || packet->ip_length < header || packet->ip_length > available)
    return NETD_PACKET_MALFORMED;

  packet->ip = ip;
  packet->ip_source = netd_read_32 (ip + 12);
  packet->ip_destination = netd_read_32 (ip + 16);
  packet->protocol = ip[9];
  packet->has_options = header > IP_HEADER_MIN;
  fragment = netd_read_16 (ip + 6) & (IP_MORE_FRAGMENTS | IP_OFFSET_MASK);
  packet->is_fragment = fragment != 0;
  if (packet->is_fragment && !is_fragment_sane (packet, fragment, packet->ip_length - header))
    return NETD_PACKET_MALFORMED;
  if ((fragment & IP_OFFSET_MASK) != 0)
    return NETD_PACKET_IPV4;

  packet->transport = ip + header;
  packet->transport_length = packet->ip_length - header;
  if (packet->protocol == IPPROTO_UDP)
    is_sane = parse_udp (packet);
  else if (packet->protocol == IPPROTO_TCP)
    is_sane = parse_tcp (packet);
  return is_sane ? NETD_PACKET_IPV4 : NETD_PACKET_MALFORMED;
}

NetdPacketKind
netd_packet_parse (NetdPacket *packet, const guint8 *frame, gsize length)
{
  memset (packet, 0, sizeof *packet);
  packet->frame = frame;
  packet->length = length;
  if (length < NETD_FRAME_MIN)
    return packet->kind = NETD_PACKET_MALFORMED;

  memcpy (packet->destination.octets, frame, 6);
  memcpy (packet->source.octets, frame + 6, 6);
  packet->ethertype = netd_read_16 (frame + 12);
  if (packet->ethertype == NETD_ETHERTYPE_IPV4)
    packet->kind = parse_ipv4 (packet);
  else if (packet->ethertype == NETD_ETHERTYPE_ARP)
    packet->kind = parse_arp (packet);
  else
    packet->kind = NETD_PACKET_OTHER;
  return packet->kind;
}

gboolean
netd_packet_is_broadcast (const NetdPacket *packet)
{
  static const NetdMac broadcast = { { 0xff, 0xff, 0xff, 0xff, 0xff, 0xff } };

  return netd_mac_equal (&packet->destination, &broadcast);
}

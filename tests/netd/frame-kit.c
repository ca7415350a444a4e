/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Builds Ethernet frames byte by byte from the RFCs (791, 792, 768, 9293, 826, 2131), for tests of
 * the network process. Its own arithmetic, so that a mistake of netd's does not hide itself.
 */
#include "frame-kit.h"

#include <string.h>

#define IP_HEADER 20
#define UDP_HEADER 8
#define TCP_HEADER 20
#define DHCP_FIXED 236
#define DHCP_COOKIE 0x63825363

guint16
kit_get16 (const guint8 *data)
{
  return (guint16) (data[0] << 8 | data[1]);
}

guint32
kit_get32 (const guint8 *data)
{
  return (guint32) kit_get16 (data) << 16 | kit_get16 (data + 2);
}

void
kit_set16 (guint8 *data, guint16 value)
{
  data[0] = (guint8) (value >> 8);
  data[1] = (guint8) value;
}

void
kit_set32 (guint8 *data, guint32 value)
{
  kit_set16 (data, (guint16) (value >> 16));
  kit_set16 (data + 2, (guint16) value);
}

void
kit_append (KitFrame *frame, const void *data, gsize length)
{
  g_assert_cmpuint (length, <=, sizeof frame->data - frame->length);
  if (length > 0)
    memcpy (frame->data + frame->length, data, length);
  frame->length += length;
}

void
kit_ethernet (KitFrame *frame, const NetdMac *destination, const NetdMac *source, guint16 ethertype)
{
  guint8 type[2];

  frame->length = 0;
  kit_append (frame, destination->octets, 6);
  kit_append (frame, source->octets, 6);
  kit_set16 (type, ethertype);
  kit_append (frame, type, 2);
}

void
kit_arp (KitFrame *frame, const NetdMac *destination, guint16 operation, const KitPeer *sender,
         const KitPeer *target)
{
  guint8 body[28] = { 0, 1, 8, 0, 6, 4 };

  kit_set16 (body + 6, operation);
  memcpy (body + 8, sender->mac.octets, 6);
  kit_set32 (body + 14, sender->ip);
  memcpy (body + 18, target->mac.octets, 6);
  kit_set32 (body + 24, target->ip);
  kit_ethernet (frame, destination, &sender->mac, NETD_ETHERTYPE_ARP);
  kit_append (frame, body, sizeof body);
}

void
kit_ip_with_options (KitFrame *frame, const KitPeer *from, const KitPeer *to, guint8 protocol,
                     const void *options, gsize n_options, const void *payload, gsize length)
{
  guint8 header[IP_HEADER] = { 0 };

  header[0] = (guint8) (0x40 | (IP_HEADER + n_options) / 4);
  kit_set16 (header + 2, (guint16) (IP_HEADER + n_options + length));
  kit_set16 (header + 4, 1);
  header[8] = 64;
  header[9] = protocol;
  kit_set32 (header + 12, from->ip);
  kit_set32 (header + 16, to->ip);
  kit_ethernet (frame, &to->mac, &from->mac, NETD_ETHERTYPE_IPV4);
  kit_append (frame, header, sizeof header);
  kit_append (frame, options, n_options);
  kit_append (frame, payload, length);
  kit_fix_checksums (frame->data, frame->length);
}

void
kit_ip (KitFrame *frame, const KitPeer *from, const KitPeer *to, guint8 protocol,
        const void *payload, gsize length)
{
  kit_ip_with_options (frame, from, to, protocol, NULL, 0, payload, length);
}

void
kit_set_fragment (KitFrame *frame, guint16 offset)
{
  kit_set16 (frame->data + NETD_ETHERNET_HEADER + 6, offset);
  kit_fix_checksums (frame->data, frame->length);
}

void
kit_udp (KitFrame *frame, const KitPeer *from, const KitPeer *to, guint16 source_port,
         guint16 destination_port, const void *payload, gsize length)
{
  guint8 datagram[KIT_FRAME_MAX] = { 0 };

  g_assert_cmpuint (UDP_HEADER + length, <=, sizeof datagram);
  kit_set16 (datagram, source_port);
  kit_set16 (datagram + 2, destination_port);
  kit_set16 (datagram + 4, (guint16) (UDP_HEADER + length));
  if (length > 0)
    memcpy (datagram + UDP_HEADER, payload, length);
  kit_ip (frame, from, to, KIT_PROTOCOL_UDP, datagram, UDP_HEADER + length);
}

void
kit_tcp (KitFrame *frame, const KitPeer *from, const KitPeer *to, const KitTcp *tcp,
         const void *payload, gsize length)
{
  static const guint8 mss_option[4] = { 2, 4, 0x05, 0xb4 };
  guint8 segment[KIT_FRAME_MAX] = { 0 };
  gsize header = TCP_HEADER;

  kit_set16 (segment, tcp->source_port);
  kit_set16 (segment + 2, tcp->destination_port);
  kit_set32 (segment + 4, tcp->sequence);
  kit_set32 (segment + 8, tcp->acknowledged);
  if ((tcp->flags & NETD_TCP_SYN) != 0)
    {
      memcpy (segment + header, mss_option, sizeof mss_option);
      header += sizeof mss_option;
    }
  g_assert_cmpuint (header + length, <=, sizeof segment);
  segment[12] = (guint8) (header / 4 << 4);
  segment[13] = tcp->flags;
  kit_set16 (segment + 14, 65000);
  if (length > 0)
    memcpy (segment + header, payload, length);
  kit_ip (frame, from, to, KIT_PROTOCOL_TCP, segment, header + length);
}

void
kit_echo (KitFrame *frame, const KitPeer *from, const KitPeer *to, guint16 sequence)
{
  guint8 message[40] = { 8, 0 };

  kit_set16 (message + 4, 77);
  kit_set16 (message + 6, sequence);
  kit_ip (frame, from, to, KIT_PROTOCOL_ICMP, message, sizeof message);
}

/* Fixed part of RFC 2131 and the options: type, and an address in option @address_code. */
static gsize
fill_dhcp (guint8 *message, guint8 operation, const NetdMac *client, guint8 type,
           guint8 address_code, guint32 address)
{
  guint8 *options = message + DHCP_FIXED + 4;

  memset (message, 0, 300);
  message[0] = operation;
  message[1] = 1;
  message[2] = 6;
  kit_set32 (message + 4, 0x12345678);
  if (operation == 2)
    kit_set32 (message + 16, address);
  memcpy (message + 28, client->octets, 6);
  kit_set32 (message + DHCP_FIXED, DHCP_COOKIE);
  options[0] = 53;
  options[1] = 1;
  options[2] = type;
  options[3] = address_code;
  options[4] = 4;
  kit_set32 (options + 5, address);
  options[9] = 255;
  return 300;
}

void
kit_dhcp (KitFrame *frame, const NetdMac *source, const NetdMac *client, guint8 type,
          guint32 requested)
{
  KitPeer from = { *source, 0 };
  KitPeer to = { KIT_BROADCAST_MAC, 0xffffffff };
  guint8 message[300];
  gsize length = fill_dhcp (message, 1, client, type, 50, requested);

  kit_udp (frame, &from, &to, 68, 67, message, length);
}

void
kit_dhcp_server (KitFrame *frame, const KitPeer *from, const NetdMac *client, guint8 type,
                 guint32 offered)
{
  KitPeer to = { KIT_BROADCAST_MAC, 0xffffffff };
  guint8 message[300];
  gsize length = fill_dhcp (message, 2, client, type, 54, offered);

  kit_udp (frame, from, &to, 67, 68, message, length);
}

static guint16
sum_up (guint32 sum, const guint8 *data, gsize length)
{
  for (gsize i = 0; i + 1 < length; i += 2)
    sum += kit_get16 (data + i);
  if (length % 2 != 0)
    sum += (guint32) data[length - 1] << 8;
  while (sum >> 16 != 0)
    sum = (sum & 0xffff) + (sum >> 16);
  return (guint16) ~sum;
}

static void
fix_transport (const guint8 *ip, guint8 *transport, gsize length)
{
  guint8 protocol = ip[9];
  gsize at = protocol == KIT_PROTOCOL_UDP ? 6 : protocol == KIT_PROTOCOL_TCP ? 16 : 2;
  guint32 sum = 0;
  guint16 checksum;

  if ((protocol != KIT_PROTOCOL_ICMP && at == 2) || length < at + 2)
    return;
  if (protocol != KIT_PROTOCOL_ICMP)
    sum = kit_get16 (ip + 12) + kit_get16 (ip + 14) + kit_get16 (ip + 16) + kit_get16 (ip + 18)
          + protocol + (guint32) length;
  kit_set16 (transport + at, 0);
  checksum = sum_up (sum, transport, length);
  /* In UDP, 0 means that there is none. */
  kit_set16 (transport + at, checksum == 0 && protocol == KIT_PROTOCOL_UDP ? 0xffff : checksum);
}

void
kit_fix_checksums (guint8 *frame, gsize length)
{
  guint8 *ip = frame + NETD_ETHERNET_HEADER;
  gsize header, total;

  if (length < NETD_ETHERNET_HEADER + IP_HEADER || kit_get16 (frame + 12) != NETD_ETHERTYPE_IPV4)
    return;
  header = (gsize) (ip[0] & 15) * 4;
  total = MIN (kit_get16 (ip + 2), length - NETD_ETHERNET_HEADER);
  if (header < IP_HEADER || header > length - NETD_ETHERNET_HEADER)
    return;
  kit_set16 (ip + 10, 0);
  kit_set16 (ip + 10, sum_up (0, ip, header));
  /* Of a fragment, only the whole datagram has one. */
  if ((kit_get16 (ip + 6) & 0x3fff) == 0 && total > header)
    fix_transport (ip, ip + header, total - header);
}

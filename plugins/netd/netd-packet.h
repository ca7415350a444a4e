/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "netd-address.h"

/* Ethernet frames: reading them without trusting them, and writing the few kinds that the gateway
 * makes itself. Every length is checked before it is used; nothing is copied. */

#define NETD_ETHERNET_HEADER 14
#define NETD_FRAME_MIN 14
/* Largest frame that is taken from a port, whatever the MTU: the framing's own limit. */
#define NETD_FRAME_MAX 131072
/* Largest frame that is built here or comes from the NAT engine: 64 KiB IP packet and header. */
#define NETD_PACKET_MAX (65535 + NETD_ETHERNET_HEADER)

#define NETD_ETHERTYPE_IPV4 0x0800
#define NETD_ETHERTYPE_ARP 0x0806

typedef enum
{
  NETD_PACKET_OTHER, /* an Ethertype that is not carried */
  NETD_PACKET_ARP,
  NETD_PACKET_IPV4,
  NETD_PACKET_MALFORMED,
} NetdPacketKind;

#define NETD_TCP_FIN 0x01
#define NETD_TCP_SYN 0x02
#define NETD_TCP_RST 0x04
#define NETD_TCP_PSH 0x08
#define NETD_TCP_ACK 0x10

/* A view of a frame; pointers lead into it. */
typedef struct
{
  const guint8 *frame;
  gsize length;
  NetdPacketKind kind;
  NetdMac destination;
  NetdMac source;
  guint16 ethertype;

  /* ARP over Ethernet for IPv4 */
  guint16 arp_operation; /* 1 request, 2 reply */
  NetdMac arp_sender_mac;
  guint32 arp_sender_ip;
  guint32 arp_target_ip;

  /* IPv4 */
  guint32 ip_source;
  guint32 ip_destination;
  guint8 protocol;
  gboolean is_fragment; /* any fragment, the first one too */
  gboolean has_options; /* IP options */
  const guint8 *ip;     /* the IP header */
  gsize ip_length;      /* its total length */
  const guint8 *transport; /* behind the IP header; NULL in later fragments */
  gsize transport_length;

  /* UDP and TCP, when transport holds a whole header */
  guint16 source_port;
  guint16 destination_port;
  guint8 tcp_flags;
  const guint8 *payload;
  gsize payload_length;
} NetdPacket;

/* Fills @packet and returns its kind. MALFORMED when a header does not hold what it promises. */
NetdPacketKind netd_packet_parse (NetdPacket *packet, const guint8 *frame, gsize length);
gboolean netd_packet_is_broadcast (const NetdPacket *packet);

/* RFC 1071 sum, folded but not complemented; @initial is a partial sum, of whole 16-bit words. Sums
 * are in the machine's byte order: a number that is added by hand goes through g_htons() first. */
guint32 netd_checksum_add (guint32 initial, const void *data, gsize length);
/* The same while copying to @target, in one pass. */
guint32 netd_checksum_copy (guint32 initial, void *target, const void *data, gsize length);
guint16 netd_checksum_finish (guint32 sum); /* complement, in network byte order as stored */
/* The sum of the pseudo header of a TCP or UDP packet in this IPv4 header; @length: of
 * all behind it. */
guint32 netd_checksum_pseudo (const guint8 *ip, gsize length);

typedef struct
{
  NetdMac source_mac;
  NetdMac destination_mac;
  guint32 source;
  guint32 destination;
  guint16 source_port;
  guint16 destination_port;
} NetdUdpAddress;

/* Each writes a whole frame with checksums and returns its length; 0 when @size is too small. */
gsize netd_packet_build_udp (guint8 *frame, gsize size, const NetdUdpAddress *address,
                             const void *payload, gsize length);
/* Without @target_mac: to everyone, for a request. */
gsize netd_packet_build_arp (guint8 *frame, gsize size, guint16 operation,
                             const NetdMac *sender_mac, guint32 sender_ip,
                             const NetdMac *target_mac, guint32 target_ip);
/* The RST that refuses @packet (TCP, not itself a RST), RFC 9293 3.10.7.1; 0 when none is due. */
gsize netd_packet_build_reset (guint8 *frame, gsize size, const NetdPacket *packet,
                               const NetdMac *gateway_mac);

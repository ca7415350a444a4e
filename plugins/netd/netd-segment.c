/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Cuts frames that are larger than the guest's MTU. The NAT engine hands out up to 64 KiB of a
 * connection at once, which costs it one turn through its TCP instead of forty; here such a frame
 * becomes what a network card with segmentation offload would put on the wire. Other protocols
 * become IP fragments.
 *
 * Each frame that comes out is a header on the stack and a piece of the original's payload: nothing
 * is copied here, and the payload is read once, for its checksum.
 */
#include "netd-offload.h"

#include <netinet/in.h>
#include <string.h>

#include "netd-bytes.h"

#define IP_DONT_FRAGMENT 0x4000
#define IP_MORE_FRAGMENTS 0x2000
#define IP_OFFSET_MASK 0x1fff
/* An option of this kind goes into each fragment (RFC 791, 3.1). */
#define IP_OPTION_COPIED 0x80
#define IP_OPTION_NOP 1
#define TCP_CWR 0x80
#define TCP_URG 0x20
#define HEADER_MAX (NETD_ETHERNET_HEADER + 60 + 60)

typedef struct
{
  guint8 header[HEADER_MAX];
  gsize header_length; /* of all layers */
  guint8 *ip;
  gsize ip_header;
  guint mtu;
  NetdSegmentFunc func;
  gpointer user_data;
} Cut;

static void
begin (Cut *cut, const NetdPacket *packet, gsize header_length)
{
  memcpy (cut->header, packet->frame, header_length);
  cut->header_length = header_length;
  cut->ip = cut->header + NETD_ETHERNET_HEADER;
  cut->ip_header = (gsize) (packet->ip[0] & 0x0f) * 4;
}

/* Finishes the IP header and passes the frame on. */
static gboolean
emit (Cut *cut, const guint8 *payload, gsize length)
{
  struct iovec parts[2] = {
    { .iov_base = cut->header, .iov_len = cut->header_length },
    { .iov_base = (guint8 *) payload, .iov_len = length },
  };
  guint16 checksum;

  netd_write_16 (cut->ip + 2, (guint) (cut->header_length - NETD_ETHERNET_HEADER + length));
  memset (cut->ip + 10, 0, 2);
  checksum = netd_checksum_finish (netd_checksum_add (0, cut->ip, cut->ip_header));
  memcpy (cut->ip + 10, &checksum, 2);
  return cut->func (parts, length > 0 ? 2 : 1, cut->user_data);
}

static void
write_tcp_checksum (Cut *cut, const guint8 *payload, gsize length)
{
  guint8 *tcp = cut->ip + cut->ip_header;
  gsize tcp_header = cut->header_length - NETD_ETHERNET_HEADER - cut->ip_header;
  guint32 sum = netd_checksum_pseudo (cut->ip, tcp_header + length);
  guint16 checksum;

  memset (tcp + 16, 0, 2);
  sum = netd_checksum_add (sum, tcp, tcp_header);
  checksum = netd_checksum_finish (netd_checksum_add (sum, payload, length));
  memcpy (tcp + 16, &checksum, 2);
}

static guint
cut_tcp (Cut *cut, const NetdPacket *packet)
{
  gsize header = (gsize) (packet->payload - packet->ip);
  guint16 identification = netd_read_16 (packet->ip + 4);
  guint32 sequence = netd_read_32 (packet->transport + 4);
  guint8 flags = packet->tcp_flags;
  gsize at = 0;
  guint n = 0;

  if (header >= cut->mtu)
    return 0;
  begin (cut, packet, NETD_ETHERNET_HEADER + header);
  while (at < packet->payload_length)
    {
      guint8 *tcp = cut->ip + cut->ip_header;
      gsize length = MIN (cut->mtu - header, packet->payload_length - at);
      gboolean is_last = at + length == packet->payload_length;

      netd_write_16 (cut->ip + 4, identification + n);
      netd_write_32 (tcp + 4, sequence + (guint32) at);
      tcp[13] = flags & (is_last ? 0xff : (guint8) ~(NETD_TCP_FIN | NETD_TCP_PSH));
      if (at > 0)
        tcp[13] &= (guint8) ~TCP_CWR;
      write_tcp_checksum (cut, packet->payload + at, length);
      if (!emit (cut, packet->payload + at, length))
        break;
      at += length;
      n++;
    }
  return n;
}

/* Options that belong into the first fragment alone make place for nothing, so that the header
 * keeps its length. What cannot be read as options is overwritten from there on. */
static void
drop_first_options (Cut *cut)
{
  gsize at = 20;

  while (at < cut->ip_header && cut->ip[at] != 0)
    {
      gsize length = 1;

      if (cut->ip[at] != IP_OPTION_NOP)
        length = at + 1 < cut->ip_header ? cut->ip[at + 1] : 0;
      if (length == 0 || (length == 1 && cut->ip[at] != IP_OPTION_NOP)
          || length > cut->ip_header - at)
        {
          memset (cut->ip + at, IP_OPTION_NOP, cut->ip_header - at);
          return;
        }
      if ((cut->ip[at] & IP_OPTION_COPIED) == 0)
        memset (cut->ip + at, IP_OPTION_NOP, length);
      at += length;
    }
}

static guint
cut_fragments (Cut *cut, const NetdPacket *packet)
{
  gsize header = (gsize) (packet->ip[0] & 0x0f) * 4;
  gsize total = packet->ip_length - header;
  guint16 field = netd_read_16 (packet->ip + 6);
  guint piece;
  gsize at = 0;
  guint n = 0;

  if ((field & IP_DONT_FRAGMENT) != 0 || header + 8 > cut->mtu)
    return 0;
  piece = (guint) (cut->mtu - header) & ~7u;
  begin (cut, packet, NETD_ETHERNET_HEADER + header);
  while (at < total)
    {
      gsize length = MIN (piece, total - at);
      guint16 offset = (guint16) ((field & IP_OFFSET_MASK) + at / 8);
      gboolean is_last = at + length == total && (field & IP_MORE_FRAGMENTS) == 0;

      netd_write_16 (cut->ip + 6, offset | (is_last ? 0 : IP_MORE_FRAGMENTS));
      if (!emit (cut, packet->ip + header + at, length))
        break;
      if (at == 0)
        drop_first_options (cut);
      at += length;
      n++;
    }
  return n;
}

guint
netd_segment (const guint8 *frame, gsize length, guint mtu, NetdSegmentFunc func,
              gpointer user_data)
{
  Cut cut = { .mtu = mtu, .func = func, .user_data = user_data };
  NetdPacket packet;

  if (length > NETD_ETHERNET_HEADER + (gsize) mtu)
    {
      if (netd_packet_parse (&packet, frame, length) != NETD_PACKET_IPV4)
        return 0;
      /* Behind the packet there is only padding. */
      length = NETD_ETHERNET_HEADER + packet.ip_length;
    }
  if (length <= NETD_ETHERNET_HEADER + (gsize) mtu)
    {
      struct iovec part = { .iov_base = (guint8 *) frame, .iov_len = length };

      return func (&part, 1, user_data) ? 1 : 0;
    }
  if (packet.protocol == IPPROTO_TCP && !packet.is_fragment
      && (packet.tcp_flags & (NETD_TCP_SYN | NETD_TCP_RST | TCP_URG)) == 0)
    return cut_tcp (&cut, &packet);
  return cut_fragments (&cut, &packet);
}

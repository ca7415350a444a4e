/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Tells the NAT engine that the guest takes large segments. The engine cuts what it sends by the
 * MSS that the guest announces, which follows the guest's MTU; since frames are cut on the way to
 * the guest anyway, a larger number there saves the engine most of its turns. The guest's own
 * packet is changed in place, and its checksum by what changed (RFC 1624), so that a damaged one
 * stays damaged.
 */
#include "netd-offload.h"

#include <netinet/in.h>

#include "netd-bytes.h"

#define TCP_HEADER 20
#define OPTION_END 0
#define OPTION_NOP 1
#define OPTION_MSS 2

/* @is_odd: the number lies across two words of the checksum. */
static void
replace_number (guint8 *tcp, guint8 *place, guint16 value, gboolean is_odd)
{
  guint16 before = netd_read_16 (place);
  guint16 after = value;
  guint32 sum = (guint16) ~netd_read_16 (tcp + 16);

  if (is_odd)
    {
      before = GUINT16_SWAP_LE_BE (before);
      after = GUINT16_SWAP_LE_BE (after);
    }
  sum += (guint16) ~before;
  sum += after;
  sum = (sum & 0xffff) + (sum >> 16);
  sum = (sum & 0xffff) + (sum >> 16);
  netd_write_16 (tcp + 16, (guint16) ~sum);
  netd_write_16 (place, value);
}

void
netd_raise_mss (const NetdPacket *packet, guint8 *frame, guint16 mss)
{
  guint8 *tcp;
  gsize end;
  gsize at = TCP_HEADER;

  if (packet->kind != NETD_PACKET_IPV4 || packet->protocol != IPPROTO_TCP || packet->is_fragment
      || (packet->tcp_flags & NETD_TCP_SYN) == 0)
    return;

  tcp = frame + (packet->transport - packet->frame);
  end = (gsize) (packet->payload - packet->transport);
  while (at < end && tcp[at] != OPTION_END)
    {
      gsize length = 1;

      if (tcp[at] != OPTION_NOP)
        {
          if (at + 1 == end || tcp[at + 1] < 2 || tcp[at + 1] > end - at)
            return;
          length = tcp[at + 1];
        }
      if (tcp[at] == OPTION_MSS && length == 4 && netd_read_16 (tcp + at + 2) < mss)
        replace_number (tcp, tcp + at + 2, mss, at % 2 != 0);
      at += length;
    }
}

/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "netd-packet.h"

/* Frames for tests, right or wrong: nothing here is shared with what is tested. */

#define KIT_FRAME_MAX 2048

typedef struct
{
  guint8 data[KIT_FRAME_MAX];
  gsize length;
} KitFrame;

typedef struct
{
  NetdMac mac;
  guint32 ip;
} KitPeer;

typedef struct
{
  guint16 source_port;
  guint16 destination_port;
  guint32 sequence;
  guint32 acknowledged;
  guint8 flags;
} KitTcp;

#define KIT_MAC(a, b, c, d, e, f)                                                                  \
  (NetdMac)                                                                                        \
  {                                                                                                \
    {                                                                                              \
      a, b, c, d, e, f                                                                             \
    }                                                                                              \
  }
#define KIT_BROADCAST_MAC KIT_MAC (0xff, 0xff, 0xff, 0xff, 0xff, 0xff)
#define KIT_PROTOCOL_ICMP 1
#define KIT_PROTOCOL_TCP 6
#define KIT_PROTOCOL_UDP 17

/* DHCP message types */
#define KIT_DHCP_DISCOVER 1
#define KIT_DHCP_OFFER 2
#define KIT_DHCP_REQUEST 3
#define KIT_DHCP_ACK 5

void kit_ethernet (KitFrame *frame, const NetdMac *destination, const NetdMac *source,
                   guint16 ethertype);
void kit_append (KitFrame *frame, const void *data, gsize length);
void kit_arp (KitFrame *frame, const NetdMac *destination, guint16 operation, const KitPeer *sender,
              const KitPeer *target);
/* @length bytes of @payload behind an IP header; @options of @n_options bytes, a multiple of 4. */
void kit_ip (KitFrame *frame, const KitPeer *from, const KitPeer *to, guint8 protocol,
             const void *payload, gsize length);
void kit_ip_with_options (KitFrame *frame, const KitPeer *from, const KitPeer *to, guint8 protocol,
                          const void *options, gsize n_options, const void *payload, gsize length);
/* @offset: as in the header, in units of 8 bytes, with the "more" flag as 0x2000 */
void kit_set_fragment (KitFrame *frame, guint16 offset);
void kit_udp (KitFrame *frame, const KitPeer *from, const KitPeer *to, guint16 source_port,
              guint16 destination_port, const void *payload, gsize length);
void kit_tcp (KitFrame *frame, const KitPeer *from, const KitPeer *to, const KitTcp *tcp,
              const void *payload, gsize length);
void kit_echo (KitFrame *frame, const KitPeer *from, const KitPeer *to, guint16 sequence);
/* A client's message from 0.0.0.0 to everybody. */
void kit_dhcp (KitFrame *frame, const NetdMac *source, const NetdMac *client, guint8 type,
               guint32 requested);
/* A server's answer, as a guest that plays one would send it. */
void kit_dhcp_server (KitFrame *frame, const KitPeer *from, const NetdMac *client, guint8 type,
                      guint32 offered);
/* Makes the checksums right, as far as the lengths in the frame lead to any. */
void kit_fix_checksums (guint8 *frame, gsize length);

guint16 kit_get16 (const guint8 *data);
guint32 kit_get32 (const guint8 *data);
void kit_set16 (guint8 *data, guint16 value);
void kit_set32 (guint8 *data, guint32 value);

/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <glib.h>

/* MAC and IPv4 addresses. An IPv4 address is a guint32 in host byte order everywhere in netd. */
typedef struct
{
  guint8 octets[6];
} NetdMac;

#define NETD_IP(a, b, c, d)                                                                        \
  ((guint32) (a) << 24 | (guint32) (b) << 16 | (guint32) (c) << 8 | (guint32) (d))
#define NETD_IP_METADATA NETD_IP (169, 254, 169, 254)

gboolean netd_mac_parse (const char *text, NetdMac *mac);
void netd_mac_to_text (const NetdMac *mac, char text[18]);
gboolean netd_mac_equal (const NetdMac *a, const NetdMac *b);
gboolean netd_ip_parse (const char *text, guint32 *ip);
void netd_ip_to_text (guint32 ip, char text[16]);
/* "10.0.0.0/24": the network's first address and its mask. */
gboolean netd_cidr_parse (const char *text, guint32 *network, guint32 *netmask);

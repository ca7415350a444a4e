/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * MAC and IPv4 addresses between text and numbers. Texts come from netd.json and from the control
 * socket; what is not exactly one address is refused, so that one address has few spellings and no
 * surprising ones (octal numbers, short forms).
 */
#include "netd-address.h"

#include <arpa/inet.h>
#include <string.h>

gboolean
netd_mac_parse (const char *text, NetdMac *mac)
{
  NetdMac parsed;

  if (text == NULL || strlen (text) != 17)
    return FALSE;
  for (guint i = 0; i < 6; i++)
    {
      int high = g_ascii_xdigit_value (text[i * 3]);
      int low = g_ascii_xdigit_value (text[i * 3 + 1]);

      if (high < 0 || low < 0 || (i < 5 && text[i * 3 + 2] != ':'))
        return FALSE;
      parsed.octets[i] = (guint8) (high << 4 | low);
    }
  *mac = parsed;
  return TRUE;
}

void
netd_mac_to_text (const NetdMac *mac, char text[18])
{
  g_snprintf (text, 18, "%02x:%02x:%02x:%02x:%02x:%02x", mac->octets[0], mac->octets[1],
              mac->octets[2], mac->octets[3], mac->octets[4], mac->octets[5]);
}

gboolean
netd_mac_equal (const NetdMac *a, const NetdMac *b)
{
  return memcmp (a->octets, b->octets, sizeof a->octets) == 0;
}

gboolean
netd_ip_parse (const char *text, guint32 *ip)
{
  struct in_addr address;

  if (text == NULL || inet_pton (AF_INET, text, &address) != 1)
    return FALSE;
  *ip = ntohl (address.s_addr);
  return TRUE;
}

void
netd_ip_to_text (guint32 ip, char text[16])
{
  g_snprintf (text, 16, "%u.%u.%u.%u", ip >> 24, ip >> 16 & 0xff, ip >> 8 & 0xff, ip & 0xff);
}

/* A decimal number of at most 32 without leading zeros. */
static gboolean
parse_prefix_length (const char *text, guint *length)
{
  gsize digits = strlen (text);

  if (digits < 1 || digits > 2 || (digits == 2 && text[0] == '0'))
    return FALSE;
  *length = 0;
  for (gsize i = 0; i < digits; i++)
    {
      if (!g_ascii_isdigit (text[i]))
        return FALSE;
      *length = *length * 10 + (guint) (text[i] - '0');
    }
  return *length <= 32;
}

gboolean
netd_cidr_parse (const char *text, guint32 *network, guint32 *netmask)
{
  const char *slash = text == NULL ? NULL : strchr (text, '/');
  char address[16];
  guint32 ip;
  guint32 mask;
  guint length;

  if (slash == NULL || (gsize) (slash - text) >= sizeof address)
    return FALSE;
  memcpy (address, text, (gsize) (slash - text));
  address[slash - text] = '\0';
  if (!netd_ip_parse (address, &ip) || !parse_prefix_length (slash + 1, &length))
    return FALSE;

  mask = length == 0 ? 0 : G_MAXUINT32 << (32 - length);
  *netmask = mask;
  *network = ip & mask;
  return TRUE;
}

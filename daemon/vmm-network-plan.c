/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The address plan of a network: which address of a prefix has which role, and how a MAC address
 * follows from an address.
 *
 * In a prefix the first address is the network's, the second the gateway's unless it was moved, the
 * last but one the host alias, the last the broadcast address; all others are the pool that VMs
 * lease from. Nothing here knows a network that exists: it is all arithmetic on host byte order. */

#include "config.h"

#include "vmm-network-plan.h"

#include <string.h>

#include "interfaces/vmm-error.h"

#define LINK_LOCAL 0xa9fe0000u /* 169.254.0.0/16, RFC 3927 */
#define BITS_MIN 16
#define BITS_MAX 29

static guint32
plan_mask (guint bits)
{
  return 0xffffffffu << (32 - bits);
}

static guint32
plan_last (const VmmAddressPlan *plan)
{
  return plan->first | ~plan_mask (plan->bits);
}

gboolean
vmm_address_from_text (const char *text, guint32 *address)
{
  g_autoptr (GInetAddress) parsed = g_inet_address_new_from_string (text);
  guint32 bytes;

  if (parsed == NULL || g_inet_address_get_family (parsed) != G_SOCKET_FAMILY_IPV4)
    return FALSE;

  memcpy (&bytes, g_inet_address_to_bytes (parsed), sizeof bytes);
  *address = g_ntohl (bytes);
  return TRUE;
}

char *
vmm_address_to_text (guint32 address)
{
  return g_strdup_printf ("%u.%u.%u.%u", address >> 24, (address >> 16) & 0xff,
                          (address >> 8) & 0xff, address & 0xff);
}

char *
vmm_address_to_mac (const char *network, guint32 address)
{
  guint32 hash = vmm_hash_fnv1a (network);

  /* 02: locally administered, unicast. */
  return g_strdup_printf ("02:%02x:%02x:%02x:%02x:%02x", hash & 0xff, address >> 24,
                          (address >> 16) & 0xff, (address >> 8) & 0xff, address & 0xff);
}

/* FNV-1a, 32 bits (draft-eastlake-fnv). */
guint32
vmm_hash_fnv1a (const char *text)
{
  guint32 hash = 2166136261u;

  for (const char *at = text; *at != '\0'; at++)
    hash = (hash ^ (guint8) *at) * 16777619u;
  return hash;
}

gboolean
vmm_name_is_dns_label (const char *name)
{
  gsize length = strlen (name);

  if (length == 0 || length > 63 || name[0] == '-' || name[length - 1] == '-')
    return FALSE;
  for (const char *at = name; *at != '\0'; at++)
    {
      if (!g_ascii_islower (*at) && !g_ascii_isdigit (*at) && *at != '-')
        return FALSE;
    }
  return TRUE;
}

static gboolean
parse_bits (const char *text, guint limit, guint *bits)
{
  gsize length = strlen (text);
  guint64 value;

  if (length == 0 || length > 3 || (text[0] == '0' && length > 1))
    return FALSE;
  if (!g_ascii_string_to_unsigned (text, 10, 0, limit, &value, NULL))
    return FALSE;
  *bits = (guint) value;
  return TRUE;
}

/* Address and prefix length of a CIDR; is_ipv4 is FALSE for a correct IPv6 prefix. */
static gboolean
parse_prefix (const char *cidr, guint32 *address, guint *bits, gboolean *is_ipv4, GError **error)
{
  g_auto (GStrv) parts = g_strsplit (cidr, "/", 2);
  g_autoptr (GInetAddress) parsed = NULL;

  if (g_strv_length (parts) != 2)
    {
      vmm_set_error (error, VMM_ERROR_INVALID_REQUEST, "cidr \"%s\": no '/' with a prefix length",
                     cidr);
      return FALSE;
    }
  parsed = g_inet_address_new_from_string (parts[0]);
  if (parsed == NULL)
    {
      vmm_set_error (error, VMM_ERROR_INVALID_REQUEST, "cidr \"%s\": \"%s\" is not an IP address",
                     cidr, parts[0]);
      return FALSE;
    }
  *is_ipv4 = g_inet_address_get_family (parsed) == G_SOCKET_FAMILY_IPV4;
  if (!parse_bits (parts[1], *is_ipv4 ? 32 : 128, bits))
    {
      vmm_set_error (error, VMM_ERROR_INVALID_REQUEST, "cidr \"%s\": bad prefix length \"%s\"",
                     cidr, parts[1]);
      return FALSE;
    }
  return !*is_ipv4 || vmm_address_from_text (parts[0], address);
}

static gboolean
parse_cidr (const char *cidr, VmmAddressPlan *plan, GError **error)
{
  guint32 address = 0;
  guint bits = 0;
  gboolean is_ipv4 = FALSE;

  if (!parse_prefix (cidr, &address, &bits, &is_ipv4, error))
    return FALSE;
  if (!is_ipv4)
    {
      vmm_set_error (error, VMM_ERROR_INVALID_REQUEST, "cidr \"%s\" must be IPv4", cidr);
      return FALSE;
    }
  if (bits < BITS_MIN || bits > BITS_MAX)
    {
      vmm_set_error (error, VMM_ERROR_INVALID_REQUEST, "cidr \"%s\" must be between /%d and /%d",
                     cidr, BITS_MIN, BITS_MAX);
      return FALSE;
    }
  /* No prefix here is wider than /16, so overlapping is being inside. */
  if ((address & plan_mask (16)) == LINK_LOCAL)
    {
      vmm_set_error (error, VMM_ERROR_INVALID_REQUEST,
                     "cidr \"%s\" overlaps the link-local range reserved for IMDS", cidr);
      return FALSE;
    }

  plan->bits = bits;
  plan->first = address & plan_mask (bits);
  plan->gateway = plan->first + 1;
  return TRUE;
}

static gboolean
move_gateway (VmmAddressPlan *plan, const char *gateway, GError **error)
{
  guint32 last = plan_last (plan);
  guint32 address;

  if (!vmm_address_from_text (gateway, &address))
    {
      vmm_set_error (error, VMM_ERROR_INVALID_REQUEST, "gateway \"%s\": not an IPv4 address",
                     gateway);
      return FALSE;
    }
  if (address <= plan->first || address >= last - 1)
    {
      g_autofree char *prefix = vmm_address_plan_to_text (plan);
      g_autofree char *alias = vmm_address_to_text (last - 1);

      vmm_set_error (error, VMM_ERROR_INVALID_REQUEST,
                     "gateway \"%s\" must be a host address of %s other than %s", gateway, prefix,
                     alias);
      return FALSE;
    }
  plan->gateway = address;
  return TRUE;
}

gboolean
vmm_address_plan_parse (const char *cidr, const char *gateway, VmmAddressPlan *plan, GError **error)
{
  VmmAddressPlan parsed = { 0 };

  if (!parse_cidr (cidr, &parsed, error))
    return FALSE;
  if (gateway != NULL && gateway[0] != '\0' && !move_gateway (&parsed, gateway, error))
    return FALSE;

  *plan = parsed;
  return TRUE;
}

char *
vmm_address_plan_to_text (const VmmAddressPlan *plan)
{
  g_autofree char *first = vmm_address_to_text (plan->first);

  return g_strdup_printf ("%s/%u", first, plan->bits);
}

gboolean
vmm_address_plan_in_pool (const VmmAddressPlan *plan, guint32 address)
{
  return address > plan->first && address < plan_last (plan) - 1 && address != plan->gateway;
}

guint32
vmm_address_plan_find_free (const VmmAddressPlan *plan, GHashTable *taken)
{
  guint32 end = plan_last (plan) - 1;

  for (guint32 address = plan->first + 1; address < end; address++)
    {
      if (address != plan->gateway && !g_hash_table_contains (taken, GUINT_TO_POINTER (address)))
        return address;
    }
  return 0;
}

/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <gio/gio.h>

G_BEGIN_DECLS

/* The roles of a prefix's addresses. Pure arithmetic; addresses are in host byte order. */
typedef struct
{
  guint32 first;
  guint bits;
  guint32 gateway;
} VmmAddressPlan;

/* Host bits of the CIDR are masked away; gateway may be NULL or empty for the first host address.
 * Errors are VMM_ERROR_INVALID_REQUEST. */
gboolean vmm_address_plan_parse (const char *cidr, const char *gateway, VmmAddressPlan *plan,
                                 GError **error);
gboolean vmm_address_plan_in_pool (const VmmAddressPlan *plan, guint32 address);
/* The lowest pool address that is not a key (GUINT_TO_POINTER) of taken; 0 when there is none. */
guint32 vmm_address_plan_find_free (const VmmAddressPlan *plan, GHashTable *taken);
/* The prefix with its host bits cleared. */
char *vmm_address_plan_to_text (const VmmAddressPlan *plan);
gboolean vmm_address_from_text (const char *text, guint32 *address);
char *vmm_address_to_text (guint32 address);
char *vmm_address_to_mac (const char *network, guint32 address);

guint32 vmm_hash_fnv1a (const char *text);
/* 1..63 lower-case letters, digits and dashes, no dash at either end. */
gboolean vmm_name_is_dns_label (const char *name);

G_END_DECLS

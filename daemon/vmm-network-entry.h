/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <json-glib/json-glib.h>

#include "vmm-network-plan.h"
#include "vmm-network-table.h"

G_BEGIN_DECLS

/* One network as it is recorded, and the live network behind it. Reference counted, so that an
 * operation in flight may outlive its removal from the table. */
typedef struct
{
  char *name;
  char *cidr;              /* as it was given */
  char *gateway;           /* NULL unless the gateway was moved */
  char *dns_search_domain; /* NULL for none */
  guint mtu;
  gboolean enable_imds;
  gboolean enable_host_alias;
  VmmAddressPlan plan;
  GHashTable *leases;  /* VM id -> GUINT_TO_POINTER (address) */
  GHashTable *holders; /* GUINT_TO_POINTER (address) -> VM id */

  VmmNetwork *network; /* NULL while it is down */
  char *error;         /* why it is down; NULL when it is up */
  gboolean recorded;   /* FALSE while it is being created: nobody sees it yet */
  gboolean deleting;
  GPtrArray *openers; /* of GTask: who waits for it to come up; NULL when nobody does */
} VmmNetworkEntry;

/* Checks name, CIDR, gateway and MTU in this order. */
VmmNetworkEntry *vmm_network_entry_new (const char *name, const char *cidr, const char *gateway,
                                        const char *dns_search_domain, gint64 mtu, GError **error);
VmmNetworkEntry *vmm_network_entry_ref (VmmNetworkEntry *self);
void vmm_network_entry_unref (VmmNetworkEntry *self);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (VmmNetworkEntry, vmm_network_entry_unref)

void vmm_network_entry_add_lease (VmmNetworkEntry *self, const char *vm_id, guint32 address);
gboolean vmm_network_entry_remove_lease (VmmNetworkEntry *self, const char *vm_id);
/* The lease of a VM, or NULL. */
VmmLease *vmm_network_entry_dup_lease (VmmNetworkEntry *self, const char *vm_id);
/* The Network object of the API. */
JsonNode *vmm_network_entry_describe (VmmNetworkEntry *self);

/* networks.json: an array of {"spec", "leases"?}. Entries are (element-type VmmNetworkEntry). */
GPtrArray *vmm_network_file_parse (GBytes *content, GError **error);
GBytes *vmm_network_file_write (GPtrArray *entries);

G_END_DECLS

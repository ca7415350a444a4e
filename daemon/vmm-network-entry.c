/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* One network as it is recorded: its specification, address plan and leases, to and from
 * networks.json, and as the API shows it.
 *
 * Reading is strict: an entry that breaks the plan is refused rather than repaired, because a
 * repaired lease would silently give a running VM another address. */

#include "config.h"

#include "vmm-network-entry.h"

#include "vmm-json.h"

void
vmm_lease_free (VmmLease *lease)
{
  g_free (lease->vm_id);
  g_free (lease->mac);
  g_free (lease->ip);
  g_free (lease);
}

static void
entry_clear (gpointer data)
{
  VmmNetworkEntry *self = data;

  g_free (self->name);
  g_free (self->cidr);
  g_free (self->gateway);
  g_free (self->dns_search_domain);
  g_free (self->error);
  g_hash_table_unref (self->holders);
  g_hash_table_unref (self->leases);
  g_clear_object (&self->network);
  g_clear_pointer (&self->openers, g_ptr_array_unref);
}

VmmNetworkEntry *
vmm_network_entry_ref (VmmNetworkEntry *self)
{
  return g_rc_box_acquire (self);
}

void
vmm_network_entry_unref (VmmNetworkEntry *self)
{
  g_rc_box_release_full (self, entry_clear);
}

static char *
dup_unless_empty (const char *text)
{
  return text != NULL && text[0] != '\0' ? g_strdup (text) : NULL;
}

VmmNetworkEntry *
vmm_network_entry_new (const char *name, const char *cidr, const char *gateway,
                       const char *dns_search_domain, gint64 mtu, GError **error)
{
  VmmNetworkEntry *self;
  VmmAddressPlan plan;

  if (!vmm_name_is_dns_label (name))
    {
      vmm_set_error (error, VMM_ERROR_INVALID_REQUEST, "name \"%s\" must be a DNS label", name);
      return NULL;
    }
  if (!vmm_address_plan_parse (cidr, gateway, &plan, error))
    return NULL;
  if (mtu < VMM_NETWORK_MTU_DEFAULT || mtu > VMM_NETWORK_MTU_MAX)
    {
      vmm_set_error (error, VMM_ERROR_INVALID_REQUEST,
                     "mtu %" G_GINT64_FORMAT " must be between %d and %d", mtu,
                     VMM_NETWORK_MTU_DEFAULT, VMM_NETWORK_MTU_MAX);
      return NULL;
    }

  self = g_rc_box_new0 (VmmNetworkEntry);
  self->name = g_strdup (name);
  self->cidr = g_strdup (cidr);
  self->gateway = dup_unless_empty (gateway);
  self->dns_search_domain = dup_unless_empty (dns_search_domain);
  self->mtu = (guint) mtu;
  self->enable_imds = TRUE;
  self->plan = plan;
  self->leases = g_hash_table_new_full (g_str_hash, g_str_equal, g_free, NULL);
  self->holders = g_hash_table_new_full (NULL, NULL, NULL, g_free);
  return self;
}

void
vmm_network_entry_add_lease (VmmNetworkEntry *self, const char *vm_id, guint32 address)
{
  g_hash_table_insert (self->leases, g_strdup (vm_id), GUINT_TO_POINTER (address));
  g_hash_table_insert (self->holders, GUINT_TO_POINTER (address), g_strdup (vm_id));
}

gboolean
vmm_network_entry_remove_lease (VmmNetworkEntry *self, const char *vm_id)
{
  gpointer address = g_hash_table_lookup (self->leases, vm_id);

  if (address == NULL)
    return FALSE;
  g_hash_table_remove (self->holders, address);
  g_hash_table_remove (self->leases, vm_id);
  return TRUE;
}

static VmmLease *
lease_new (VmmNetworkEntry *self, const char *vm_id, guint32 address)
{
  VmmLease *lease = g_new0 (VmmLease, 1);

  lease->vm_id = g_strdup (vm_id);
  lease->mac = vmm_address_to_mac (self->name, address);
  lease->ip = vmm_address_to_text (address);
  return lease;
}

VmmLease *
vmm_network_entry_dup_lease (VmmNetworkEntry *self, const char *vm_id)
{
  gpointer address = g_hash_table_lookup (self->leases, vm_id);

  return address != NULL ? lease_new (self, vm_id, GPOINTER_TO_UINT (address)) : NULL;
}

static int
compare_addresses (gconstpointer a, gconstpointer b)
{
  guint32 left = GPOINTER_TO_UINT (*(gconstpointer *) a);
  guint32 right = GPOINTER_TO_UINT (*(gconstpointer *) b);

  return left < right ? -1 : left > right;
}

static GPtrArray *
sorted_keys (GHashTable *table, GCompareFunc compare)
{
  GPtrArray *keys = g_ptr_array_sized_new (g_hash_table_size (table));
  GHashTableIter iter;
  gpointer key;

  g_hash_table_iter_init (&iter, table);
  while (g_hash_table_iter_next (&iter, &key, NULL))
    g_ptr_array_add (keys, key);
  g_ptr_array_sort (keys, compare);
  return keys;
}

static JsonObject *
spec_to_json (VmmNetworkEntry *self)
{
  JsonObject *spec = json_object_new ();

  json_object_set_string_member (spec, "name", self->name);
  json_object_set_string_member (spec, "cidr", self->cidr);
  vmm_json_set_string_unless_empty (spec, "gatewayIP", self->gateway);
  vmm_json_set_string_unless_empty (spec, "dnsSearchDomain", self->dns_search_domain);
  if (self->mtu != VMM_NETWORK_MTU_DEFAULT)
    json_object_set_int_member (spec, "mtu", self->mtu);
  json_object_set_boolean_member (spec, "enableIMDS", self->enable_imds);
  if (self->enable_host_alias)
    json_object_set_boolean_member (spec, "enableHostAlias", TRUE);
  return spec;
}

JsonNode *
vmm_network_entry_describe (VmmNetworkEntry *self)
{
  g_autoptr (GPtrArray) addresses = sorted_keys (self->holders, compare_addresses);
  g_autofree char *gateway = vmm_address_to_text (self->plan.gateway);
  JsonObject *object = json_object_new ();
  JsonArray *leases = json_array_new ();

  for (guint i = 0; i < addresses->len; i++)
    {
      gpointer address = g_ptr_array_index (addresses, i);
      g_autoptr (VmmLease) lease = lease_new (self, g_hash_table_lookup (self->holders, address),
                                              GPOINTER_TO_UINT (address));
      JsonObject *item = json_object_new ();

      json_object_set_string_member (item, "vmID", lease->vm_id);
      json_object_set_string_member (item, "mac", lease->mac);
      json_object_set_string_member (item, "ip", lease->ip);
      json_array_add_object_element (leases, item);
    }

  json_object_set_object_member (object, "spec", spec_to_json (self));
  json_object_set_string_member (object, "gateway", gateway);
  json_object_set_array_member (object, "leases", leases);
  vmm_json_set_string_unless_empty (object, "error", self->error);
  return vmm_json_node_take_object (object);
}

static int
compare_texts (gconstpointer a, gconstpointer b)
{
  return g_strcmp0 (*(const char *const *) a, *(const char *const *) b);
}

GBytes *
vmm_network_file_write (GPtrArray *entries)
{
  g_autoptr (JsonNode) node = NULL;
  JsonArray *array = json_array_new ();
  char *text;
  gsize length;

  for (guint i = 0; i < entries->len; i++)
    {
      VmmNetworkEntry *entry = g_ptr_array_index (entries, i);
      g_autoptr (GPtrArray) ids = sorted_keys (entry->leases, compare_texts);
      JsonObject *object = json_object_new ();
      JsonObject *leases = json_object_new ();

      for (guint j = 0; j < ids->len; j++)
        {
          const char *id = g_ptr_array_index (ids, j);
          gpointer address = g_hash_table_lookup (entry->leases, id);
          g_autofree char *ip = vmm_address_to_text (GPOINTER_TO_UINT (address));

          json_object_set_string_member (leases, id, ip);
        }
      json_object_set_object_member (object, "spec", spec_to_json (entry));
      if (ids->len > 0)
        json_object_set_object_member (object, "leases", json_object_ref (leases));
      json_object_unref (leases);
      json_array_add_object_element (array, object);
    }

  node = vmm_json_node_take_array (array);
  text = vmm_json_to_text (node, &length);
  return g_bytes_new_take (text, length);
}

static gboolean
parse_lease (VmmNetworkEntry *entry, const char *vm_id, const char *ip, GError **error)
{
  const char *holder;
  guint32 address;

  if (vm_id[0] == '\0')
    {
      vmm_set_error (error, VMM_ERROR_INVALID_REQUEST, "lease for %s has an empty vm id", ip);
      return FALSE;
    }
  if (!vmm_address_from_text (ip, &address))
    {
      vmm_set_error (error, VMM_ERROR_INVALID_REQUEST,
                     "lease for %s: \"%s\" is not an IPv4 address", vm_id, ip);
      return FALSE;
    }
  if (!vmm_address_plan_in_pool (&entry->plan, address))
    {
      g_autofree char *prefix = vmm_address_plan_to_text (&entry->plan);

      vmm_set_error (error, VMM_ERROR_INVALID_REQUEST, "lease %s for %s is outside the pool of %s",
                     ip, vm_id, prefix);
      return FALSE;
    }
  holder = g_hash_table_lookup (entry->holders, GUINT_TO_POINTER (address));
  if (holder != NULL)
    {
      gboolean in_order = g_strcmp0 (holder, vm_id) < 0;

      vmm_set_error (error, VMM_ERROR_INVALID_REQUEST, "lease %s held by both %s and %s", ip,
                     in_order ? holder : vm_id, in_order ? vm_id : holder);
      return FALSE;
    }
  vmm_network_entry_add_lease (entry, vm_id, address);
  return TRUE;
}

static gboolean
parse_leases (VmmNetworkEntry *entry, JsonObject *leases, GError **error)
{
  g_autoptr (GList) ids = NULL;

  if (leases == NULL)
    return TRUE;

  ids = json_object_get_members (leases);
  for (GList *l = ids; l != NULL; l = l->next)
    {
      const char *ip = NULL;

      if (!vmm_json_get_string (leases, l->data, "", &ip, error)
          || !parse_lease (entry, l->data, ip, error))
        return FALSE;
    }
  return TRUE;
}

static VmmNetworkEntry *
parse_spec (JsonObject *spec, GError **error)
{
  g_autoptr (VmmNetworkEntry) entry = NULL;
  const char *name = NULL;
  const char *cidr = NULL;
  const char *gateway = NULL;
  const char *domain = NULL;
  gint64 mtu = VMM_NETWORK_MTU_DEFAULT;
  gboolean enable_imds = TRUE;
  gboolean enable_host_alias = FALSE;

  if (!vmm_json_get_string (spec, "name", "", &name, error)
      || !vmm_json_get_string (spec, "cidr", "", &cidr, error)
      || !vmm_json_get_string (spec, "gatewayIP", NULL, &gateway, error)
      || !vmm_json_get_string (spec, "dnsSearchDomain", NULL, &domain, error)
      || !vmm_json_get_int (spec, "mtu", VMM_NETWORK_MTU_DEFAULT, &mtu, error)
      || !vmm_json_get_boolean (spec, "enableIMDS", FALSE, &enable_imds, error)
      || !vmm_json_get_boolean (spec, "enableHostAlias", FALSE, &enable_host_alias, error))
    return NULL;

  entry = vmm_network_entry_new (name, cidr, gateway, domain, mtu, error);
  if (entry == NULL)
    return NULL;
  entry->enable_imds = enable_imds;
  entry->enable_host_alias = enable_host_alias;
  entry->recorded = TRUE;
  return g_steal_pointer (&entry);
}

static gboolean
is_listed (GPtrArray *entries, const char *name)
{
  for (guint i = 0; i < entries->len; i++)
    {
      VmmNetworkEntry *entry = g_ptr_array_index (entries, i);

      if (g_str_equal (entry->name, name))
        return TRUE;
    }
  return FALSE;
}

static VmmNetworkEntry *
parse_entry (GPtrArray *before, JsonNode *node, char **name, GError **error)
{
  g_autoptr (VmmNetworkEntry) entry = NULL;
  JsonObject *spec = NULL;
  JsonObject *leases = NULL;
  const char *text = NULL;

  if (!JSON_NODE_HOLDS_OBJECT (node))
    {
      vmm_set_error (error, VMM_ERROR_INVALID_REQUEST, "an entry is not an object");
      return NULL;
    }
  if (!vmm_json_get_object (json_node_get_object (node), "spec", &spec, error)
      || !vmm_json_get_object (json_node_get_object (node), "leases", &leases, error))
    return NULL;
  if (spec == NULL)
    {
      vmm_set_error (error, VMM_ERROR_INVALID_REQUEST, "an entry has no spec");
      return NULL;
    }
  if (vmm_json_get_string (spec, "name", "", &text, NULL))
    *name = g_strdup (text);

  entry = parse_spec (spec, error);
  if (entry == NULL || !parse_leases (entry, leases, error))
    return NULL;
  if (is_listed (before, entry->name))
    {
      vmm_set_error (error, VMM_ERROR_CONFLICT, "network \"%s\" already exists", entry->name);
      return NULL;
    }
  return g_steal_pointer (&entry);
}

GPtrArray *
vmm_network_file_parse (GBytes *content, GError **error)
{
  g_autoptr (GPtrArray) entries
      = g_ptr_array_new_with_free_func ((GDestroyNotify) vmm_network_entry_unref);
  g_autoptr (JsonNode) root = NULL;
  JsonArray *array;
  gsize length;
  const char *text = g_bytes_get_data (content, &length);

  root = vmm_json_parse (text, length, error);
  if (root == NULL)
    return NULL;
  if (!JSON_NODE_HOLDS_ARRAY (root))
    {
      vmm_set_error (error, VMM_ERROR_INVALID_REQUEST, "not an array of networks");
      return NULL;
    }

  array = json_node_get_array (root);
  for (guint i = 0; i < json_array_get_length (array); i++)
    {
      g_autofree char *name = NULL;
      VmmNetworkEntry *entry
          = parse_entry (entries, json_array_get_element (array, i), &name, error);

      if (entry == NULL)
        {
          g_prefix_error (error, "restore network \"%s\": ", name != NULL ? name : "");
          return NULL;
        }
      g_ptr_array_add (entries, entry);
    }
  return g_steal_pointer (&entries);
}

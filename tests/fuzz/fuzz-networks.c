/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* networks.json, as a disk or a hand may have left it: what is taken is written so that it reads the
 * same again, and each address has one holder, in the pool of its network. */

#include <string.h>

#include "fuzz.h"
#include "vmm-json.h"
#include "vmm-network-entry.h"

static void
check_entry (VmmNetworkEntry *entry)
{
  g_autoptr (JsonNode) shown = vmm_network_entry_describe (entry);
  g_autofree char *text = vmm_json_to_text (shown, NULL);
  GHashTableIter iter;
  gpointer id, address;

  g_assert_true (vmm_name_is_dns_label (entry->name));
  g_assert_true (g_utf8_validate (text, -1, NULL));
  g_assert_cmpuint (g_hash_table_size (entry->leases), ==, g_hash_table_size (entry->holders));
  g_hash_table_iter_init (&iter, entry->leases);
  while (g_hash_table_iter_next (&iter, &id, &address))
    {
      g_assert_true (vmm_address_plan_in_pool (&entry->plan, GPOINTER_TO_UINT (address)));
      g_assert_cmpstr (g_hash_table_lookup (entry->holders, address), ==, id);
    }
}

int
LLVMFuzzerTestOneInput (const uint8_t *data, size_t size)
{
  g_autoptr (GError) error = NULL;
  g_autoptr (GBytes) bytes = g_bytes_new (data, size);
  g_autoptr (GPtrArray) entries = vmm_network_file_parse (bytes, &error);
  g_autoptr (GPtrArray) again = NULL;
  g_autoptr (GBytes) first = NULL;
  g_autoptr (GBytes) second = NULL;

  if (entries == NULL)
    {
      g_assert_nonnull (error);
      g_assert_true (g_utf8_validate (error->message, -1, NULL));
      return 0;
    }
  g_assert_no_error (error);
  for (guint i = 0; i < entries->len; i++)
    check_entry (g_ptr_array_index (entries, i));
  first = vmm_network_file_write (entries);
  again = vmm_network_file_parse (first, &error);
  g_assert_no_error (error);
  second = vmm_network_file_write (again);
  g_assert_true (g_bytes_equal (first, second));
  return 0;
}

/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The values of a VM's keys.
 *
 * They become hostnames and authorized keys verbatim: nothing is added, not even a newline. An empty
 * value is as good as none, but for metadata, where who made the VM chose it. */

#include "config.h"

#include "vmm-imds-values.h"

static char *
dup_unless_empty (const char *value)
{
  return value != NULL && *value != '\0' ? g_strdup (value) : NULL;
}

/* The manager's own is always the first, so that exec works whatever keys the VM was given. */
static const char *
find_public_key (const VmmMachineRecord *record, guint64 index)
{
  if (index == 0 || record->ssh_public_key == NULL)
    return index == 0 ? record->ssh_public_key : NULL;
  if (record->ssh_authorized_keys == NULL
      || index > g_strv_length (record->ssh_authorized_keys))
    return NULL;
  return record->ssh_authorized_keys[index - 1];
}

static char *
dup_public_key (const VmmMachineRecord *record, const char *text)
{
  guint64 index;

  if (!g_ascii_string_to_unsigned (text, 10, 0, G_MAXUINT, &index, NULL))
    return NULL;
  return g_strdup (find_public_key (record, index));
}

static char *
list_public_keys (const VmmMachineRecord *record)
{
  GString *text = g_string_new (NULL);

  for (guint i = 0; find_public_key (record, i) != NULL; i++)
    g_string_append_printf (text, "%s%u", i > 0 ? "\n" : "", i);
  return g_string_free (text, FALSE);
}

char *
vmm_imds_value_dup (const VmmMachineRecord *record, VmmImdsKey key, GStrv chosen)
{
  switch (key)
    {
    case VMM_IMDS_HOSTNAME:
      return dup_unless_empty (*record->hostname != '\0' ? record->hostname : record->name);
    case VMM_IMDS_REGION:
      return dup_unless_empty (record->region);
    case VMM_IMDS_ZONE:
      return dup_unless_empty (record->zone);
    case VMM_IMDS_PUBLIC_KEY:
      return dup_public_key (record, chosen[0]);
    case VMM_IMDS_PUBLIC_KEYS:
      return list_public_keys (record);
    case VMM_IMDS_INSTANCE_ID:
      return dup_unless_empty (record->id);
    case VMM_IMDS_KUBERNETES_VERSION:
      return dup_unless_empty (record->kubernetes_version);
    case VMM_IMDS_METADATA:
      return g_strdup (g_hash_table_lookup (record->metadata, chosen[0]));
    case VMM_IMDS_USER_DATA:
    case VMM_IMDS_NONCE:
    case VMM_IMDS_QUOTE:
    case VMM_IMDS_REPORT:
    case VMM_IMDS_SYSUPDATE:
    default:
      g_return_val_if_reached (NULL);
    }
}

/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The table of what guests can ask for.
 *
 * systemd-imdsd in a guest learns from the hwdb which keys there are and where. So a key is added
 * here and nowhere else: the order of the rows is that of the record. user-data is not among its
 * properties, because a guest's systemd-imds --import would meet the gate and fail. */

#include "config.h"

#include "vmm-imds-keys.h"

#include <string.h>

#include "vmm-qemu-args.h"

#define MAX_UPLOAD (8 * 1024 * 1024)
#define MAX_CHOSEN 2

#define GET_KEY(key, path, property, property_path)                                                \
  [VMM_IMDS_##key] = { VMM_IMDS_##key, path, "GET", 0, property, property_path }
#define POST_KEY(key, path)                                                                        \
  [VMM_IMDS_##key] = { VMM_IMDS_##key, path, "POST", MAX_UPLOAD, NULL, NULL }

const VmmImdsRow vmm_imds_rows[VMM_IMDS_N_KEYS] = {
  GET_KEY (HOSTNAME, "/hostname", "IMDS_KEY_HOSTNAME", NULL),
  GET_KEY (REGION, "/region", "IMDS_KEY_REGION", NULL),
  GET_KEY (ZONE, "/zone", "IMDS_KEY_ZONE", NULL),
  GET_KEY (PUBLIC_KEY, "/public-keys/*", "IMDS_KEY_SSH_KEY", "/public-keys/0"),
  GET_KEY (PUBLIC_KEYS, "/public-keys/", NULL, NULL),
  GET_KEY (USER_DATA, "/user-data", NULL, NULL),
  GET_KEY (INSTANCE_ID, "/instance-id", NULL, NULL),
  GET_KEY (KUBERNETES_VERSION, "/kubernetes-version", NULL, NULL),
  GET_KEY (METADATA, "/metadata/*", NULL, NULL),
  GET_KEY (NONCE, "/attest/nonce", NULL, NULL),
  POST_KEY (QUOTE, "/attest/quote"),
  POST_KEY (REPORT, "/report"),
  GET_KEY (SYSUPDATE, "/sysupdate/*/*", NULL, NULL),
};

static gboolean
is_name (const char *segment)
{
  return *segment != '\0' && strcmp (segment, ".") != 0 && strcmp (segment, "..") != 0
         && strchr (segment, '/') == NULL;
}

static gboolean
fits (const char *pattern, GStrv segments)
{
  g_auto (GStrv) wanted = g_strsplit (pattern, "/", -1);

  if (g_strv_length (wanted) != g_strv_length (segments))
    return FALSE;
  for (guint i = 0; wanted[i] != NULL; i++)
    if (strcmp (wanted[i], "*") == 0 ? !is_name (segments[i])
                                     : strcmp (wanted[i], segments[i]) != 0)
      return FALSE;
  return TRUE;
}

static GStrv
dup_chosen (const char *pattern, GStrv segments)
{
  g_auto (GStrv) wanted = g_strsplit (pattern, "/", -1);
  GStrv chosen = g_new0 (char *, MAX_CHOSEN + 1);
  guint n = 0;

  for (guint i = 0; wanted[i] != NULL; i++)
    if (strcmp (wanted[i], "*") == 0)
      chosen[n++] = g_strdup (segments[i]);
  return chosen;
}

/* NULL when a segment cannot be decoded. */
static GStrv
split_path (const char *path)
{
  g_auto (GStrv) segments = g_strsplit (path, "/", -1);

  for (guint i = 0; segments[i] != NULL; i++)
    {
      char *plain = g_uri_unescape_string (segments[i], NULL);

      if (plain == NULL)
        return NULL;
      g_free (segments[i]);
      segments[i] = plain;
    }
  return g_steal_pointer (&segments);
}

const VmmImdsRow *
vmm_imds_keys_match (const char *path, GStrv *chosen)
{
  g_auto (GStrv) segments = NULL;

  *chosen = NULL;
  if (!g_str_has_prefix (path, VMM_IMDS_BASE "/"))
    return NULL;
  segments = split_path (path + strlen (VMM_IMDS_BASE));
  for (guint i = 0; segments != NULL && i < VMM_IMDS_N_KEYS; i++)
    if (fits (vmm_imds_rows[i].path, segments))
      {
        *chosen = dup_chosen (vmm_imds_rows[i].path, segments);
        return &vmm_imds_rows[i];
      }
  return NULL;
}

char *
vmm_imds_keys_format_hwdb (void)
{
  GString *text = g_string_new (
      "# SPDX-License-Identifier: LGPL-2.1-or-later\n"
      "# Where a guest finds its metadata. Made from the table in daemon/vmm-imds-keys.c: change\n"
      "# that, then run test-imds-keys with VMM_TEST_REGENERATE=1.\n\n");

  g_string_append_printf (text, "dmi:*:svn%s:*\n", VMM_SMBIOS_MANUFACTURER);
  g_string_append (text, " IMDS_VENDOR=" VMM_IMDS_VENDOR "\n");
  g_string_append (text, " IMDS_DATA_URL=http://" VMM_IMDS_ADDRESS VMM_IMDS_BASE "\n");
  g_string_append (text, " IMDS_ADDRESS_IPV4=" VMM_IMDS_ADDRESS "\n");
  for (guint i = 0; i < VMM_IMDS_N_KEYS; i++)
    {
      const VmmImdsRow *row = &vmm_imds_rows[i];

      if (row->property != NULL)
        g_string_append_printf (text, " %s=%s\n", row->property,
                                row->property_path != NULL ? row->property_path : row->path);
    }
  return g_string_free (text, FALSE);
}

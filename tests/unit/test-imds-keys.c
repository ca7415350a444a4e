/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The table of what guests can ask for, what is made from it, and the pure parts beside it. */

#include <string.h>

#include "vmm-imds-bucket.h"
#include "vmm-imds-keys.h"
#include "vmm-imds-range.h"
#include "vmm-imds-values.h"

static void
test_hwdb (void)
{
  g_autofree char *path = g_build_filename (g_getenv ("VMM_TEST_SOURCE_ROOT"), "images",
                                            "45-imds-giantswarm.hwdb", NULL);
  g_autofree char *made = vmm_imds_keys_format_hwdb ();
  g_autofree char *kept = NULL;
  g_autoptr (GError) error = NULL;

  if (g_getenv ("VMM_TEST_REGENERATE") != NULL)
    g_assert_true (g_file_set_contents (path, made, -1, NULL));
  g_assert_true (g_file_get_contents (path, &kept, NULL, &error));
  g_assert_no_error (error);
  g_assert_cmpstr (made, ==, kept);
}

/* What images of the reference have; their systemd-imdsd reads it. */
static void
test_hwdb_record (void)
{
  g_autofree char *made = vmm_imds_keys_format_hwdb ();
  const char *record = strstr (made, "dmi:");

  g_assert_cmpstr (record, ==,
                   "dmi:*:svnGiantSwarm:*\n"
                   " IMDS_VENDOR=giantswarm\n"
                   " IMDS_DATA_URL=http://169.254.169.254/giantswarm/v1\n"
                   " IMDS_ADDRESS_IPV4=169.254.169.254\n"
                   " IMDS_KEY_HOSTNAME=/hostname\n"
                   " IMDS_KEY_REGION=/region\n"
                   " IMDS_KEY_ZONE=/zone\n"
                   " IMDS_KEY_SSH_KEY=/public-keys/0\n");
}

/* Each row leads to itself, and its paths in the record, too. */
static void
test_rows (void)
{
  for (guint i = 0; i < VMM_IMDS_N_KEYS; i++)
    {
      const VmmImdsRow *row = &vmm_imds_rows[i];
      g_auto (GStrv) parts = g_strsplit (row->path, "*", -1);
      g_autofree char *plain = g_strjoinv ("x", parts);
      g_autofree char *path = g_strconcat (VMM_IMDS_BASE, plain, NULL);
      g_auto (GStrv) chosen = NULL;

      g_assert_cmpint (row->key, ==, i);
      g_assert_true (vmm_imds_keys_match (path, &chosen) == row);
      g_assert_cmpuint (g_strv_length (chosen), ==, g_strv_length (parts) - 1);
      if (row->property_path != NULL)
        {
          g_autofree char *shown = g_strconcat (VMM_IMDS_BASE, row->property_path, NULL);
          g_auto (GStrv) again = NULL;

          g_assert_true (vmm_imds_keys_match (shown, &again) == row);
        }
    }
}

static void
test_paths (void)
{
  static const struct
  {
    const char *path; /* below the base */
    int key;          /* -1 for none */
    const char *chosen;
  } rows[] = {
    { "/hostname", VMM_IMDS_HOSTNAME, "" },
    { "/host%6eame", VMM_IMDS_HOSTNAME, "" },
    { "/hostname/", -1, NULL },
    { "//hostname", -1, NULL },
    { "/HOSTNAME", -1, NULL },
    { "", -1, NULL },
    { "/", -1, NULL },
    { "/public-keys", -1, NULL },
    { "/public-keys/", VMM_IMDS_PUBLIC_KEYS, "" },
    { "/public-keys/0", VMM_IMDS_PUBLIC_KEY, "0" },
    { "/public-keys//", -1, NULL },
    { "/public-keys/0/1", -1, NULL },
    { "/metadata/", -1, NULL },
    { "/metadata/a%20b", VMM_IMDS_METADATA, "a b" },
    { "/metadata/a%2fb", -1, NULL },
    { "/metadata/%2e%2e", -1, NULL },
    { "/metadata/%00", -1, NULL },
    { "/sysupdate/base/SHA256SUMS", VMM_IMDS_SYSUPDATE, "base,SHA256SUMS" },
    { "/sysupdate/base/", -1, NULL },
    { "/sysupdate/base", -1, NULL },
    { "/sysupdate//SHA256SUMS", -1, NULL },
    { "/sysupdate/base/../x", -1, NULL },
    { "/sysupdate/%2E%2E/x", -1, NULL },
    { "/sysupdate/base/..%2fx", -1, NULL },
    { "/sysupdate/base/a/b", -1, NULL },
    { "/sysupdate/base/...", VMM_IMDS_SYSUPDATE, "base,..." },
  };

  for (guint i = 0; i < G_N_ELEMENTS (rows); i++)
    {
      g_autofree char *path = g_strconcat (VMM_IMDS_BASE, rows[i].path, NULL);
      g_auto (GStrv) chosen = NULL;
      const VmmImdsRow *row = vmm_imds_keys_match (path, &chosen);

      g_test_message ("%s", path);
      g_assert_cmpint (row != NULL ? (int) row->key : -1, ==, rows[i].key);
      if (row != NULL)
        {
          g_autofree char *text = g_strjoinv (",", chosen);

          g_assert_cmpstr (text, ==, rows[i].chosen);
        }
    }
}

static void
test_other_bases (void)
{
  static const char *const paths[] = { "/", "/hostname", "/giantswarm/v2/hostname",
                                       "/giantswarm/v1hostname", "/giantswarm%2fv1/hostname" };

  for (guint i = 0; i < G_N_ELEMENTS (paths); i++)
    {
      g_auto (GStrv) chosen = NULL;

      g_assert_null (vmm_imds_keys_match (paths[i], &chosen));
      g_assert_null (chosen);
    }
}

static void
assert_value (const VmmMachineRecord *record, VmmImdsKey key, const char *chosen, const char *want)
{
  const char *all[] = { chosen, NULL };
  g_autofree char *value = vmm_imds_value_dup (record, key, (GStrv) all);

  g_assert_cmpstr (value, ==, want);
}

static void
set (char **member, const char *value)
{
  g_free (*member);
  *member = g_strdup (value);
}

static void
test_values (void)
{
  g_autoptr (VmmMachineRecord) record = vmm_machine_record_new ();
  const char *const keys[] = { "ssh-ed25519 one", "ssh-ed25519 two", NULL };

  set (&record->name, "web");
  set (&record->hostname, "");
  assert_value (record, VMM_IMDS_HOSTNAME, NULL, "web");
  set (&record->hostname, "host");
  assert_value (record, VMM_IMDS_HOSTNAME, NULL, "host");
  assert_value (record, VMM_IMDS_REGION, NULL, NULL);
  assert_value (record, VMM_IMDS_ZONE, NULL, NULL);
  assert_value (record, VMM_IMDS_KUBERNETES_VERSION, NULL, NULL);
  set (&record->kubernetes_version, "1.36.4");
  assert_value (record, VMM_IMDS_KUBERNETES_VERSION, NULL, "1.36.4");

  /* Nobody's key takes the place of the manager's. */
  record->ssh_authorized_keys = g_strdupv ((char **) keys);
  assert_value (record, VMM_IMDS_PUBLIC_KEYS, NULL, "");
  assert_value (record, VMM_IMDS_PUBLIC_KEY, "0", NULL);
  assert_value (record, VMM_IMDS_PUBLIC_KEY, "1", NULL);
  set (&record->ssh_public_key, "ssh-ed25519 ours");
  assert_value (record, VMM_IMDS_PUBLIC_KEYS, NULL, "0\n1\n2");
  assert_value (record, VMM_IMDS_PUBLIC_KEY, "0", "ssh-ed25519 ours");
  assert_value (record, VMM_IMDS_PUBLIC_KEY, "2", "ssh-ed25519 two");
  assert_value (record, VMM_IMDS_PUBLIC_KEY, "3", NULL);
  assert_value (record, VMM_IMDS_PUBLIC_KEY, "-1", NULL);
  assert_value (record, VMM_IMDS_PUBLIC_KEY, "0x0", NULL);
  assert_value (record, VMM_IMDS_PUBLIC_KEY, "99999999999999999999", NULL);

  g_hash_table_insert (record->metadata, g_strdup ("role"), g_strdup ("a\nb"));
  g_hash_table_insert (record->metadata, g_strdup ("empty"), g_strdup (""));
  assert_value (record, VMM_IMDS_METADATA, "role", "a\nb");
  assert_value (record, VMM_IMDS_METADATA, "empty", "");
  assert_value (record, VMM_IMDS_METADATA, "other", NULL);
}

static void
test_ranges (void)
{
  static const struct
  {
    const char *text;
    guint64 size;
    VmmImdsRange range;
    guint64 first;
    guint64 length;
  } rows[] = {
    { NULL, 10, VMM_IMDS_RANGE_ALL, 0, 10 },
    { "bytes=0-9", 10, VMM_IMDS_RANGE_PART, 0, 10 },
    { "bytes=0-0", 10, VMM_IMDS_RANGE_PART, 0, 1 },
    { "Bytes=2-4", 10, VMM_IMDS_RANGE_PART, 2, 3 },
    { "bytes=5-", 10, VMM_IMDS_RANGE_PART, 5, 5 },
    { "bytes=9-99", 10, VMM_IMDS_RANGE_PART, 9, 1 },
    { "bytes=-3", 10, VMM_IMDS_RANGE_PART, 7, 3 },
    { "bytes=-99", 10, VMM_IMDS_RANGE_PART, 0, 10 },
    { "bytes=10-", 10, VMM_IMDS_RANGE_NONE, 0, 10 },
    { "bytes=10-12", 10, VMM_IMDS_RANGE_NONE, 0, 10 },
    { "bytes=-0", 10, VMM_IMDS_RANGE_NONE, 0, 10 },
    { "bytes=0-", 0, VMM_IMDS_RANGE_NONE, 0, 0 },
    { "bytes=-1", 0, VMM_IMDS_RANGE_NONE, 0, 0 },
    { "bytes=4-2", 10, VMM_IMDS_RANGE_ALL, 0, 10 },
    { "bytes=0-1,3-4", 10, VMM_IMDS_RANGE_ALL, 0, 10 },
    { "bytes=", 10, VMM_IMDS_RANGE_ALL, 0, 10 },
    { "bytes=-", 10, VMM_IMDS_RANGE_ALL, 0, 10 },
    { "bytes=a-b", 10, VMM_IMDS_RANGE_ALL, 0, 10 },
    { "bytes= 0-1", 10, VMM_IMDS_RANGE_ALL, 0, 10 },
    { "bytes=0-1 ", 10, VMM_IMDS_RANGE_ALL, 0, 10 },
    { "lines=0-1", 10, VMM_IMDS_RANGE_ALL, 0, 10 },
    { "bytes=99999999999999999999-", 10, VMM_IMDS_RANGE_ALL, 0, 10 },
    { "bytes=3-999999999999999999", 10, VMM_IMDS_RANGE_PART, 3, 7 },
  };

  for (guint i = 0; i < G_N_ELEMENTS (rows); i++)
    {
      guint64 first, length;

      g_test_message ("%s", rows[i].text);
      g_assert_cmpint (vmm_imds_range_parse (rows[i].text, rows[i].size, &first, &length), ==,
                       rows[i].range);
      g_assert_cmpuint (first, ==, rows[i].first);
      g_assert_cmpuint (length, ==, rows[i].length);
    }
}

static void
test_bucket (void)
{
  gint64 now = 1000;
  VmmImdsBucket bucket;

  vmm_imds_bucket_init (&bucket, 3, 2, now);
  for (guint i = 0; i < 3; i++)
    g_assert_true (vmm_imds_bucket_take (&bucket, 1, now));
  g_assert_false (vmm_imds_bucket_take (&bucket, 1, now));
  g_assert_cmpuint (vmm_imds_bucket_get_wait_ms (&bucket, now), ==, 501);
  now += G_USEC_PER_SEC / 2;
  g_assert_cmpuint (vmm_imds_bucket_get_wait_ms (&bucket, now), ==, 0);
  g_assert_true (vmm_imds_bucket_take (&bucket, 1, now));
  g_assert_false (vmm_imds_bucket_take (&bucket, 1, now));
  /* It never holds more than one burst. */
  now += 600 * G_USEC_PER_SEC;
  /* More than there is: let through, and paid back. */
  g_assert_true (vmm_imds_bucket_take (&bucket, 13, now));
  g_assert_false (vmm_imds_bucket_take (&bucket, 1, now + 5 * G_USEC_PER_SEC));
  g_assert_true (vmm_imds_bucket_take (&bucket, 1, now + 11 * G_USEC_PER_SEC / 2));
  /* A clock that goes back gives nothing and takes nothing. */
  g_assert_false (vmm_imds_bucket_take (&bucket, 1, now));
}

int
main (int argc, char **argv)
{
  g_test_init (&argc, &argv, NULL);
  g_test_add_func ("/imds-keys/hwdb", test_hwdb);
  g_test_add_func ("/imds-keys/hwdb-record", test_hwdb_record);
  g_test_add_func ("/imds-keys/rows", test_rows);
  g_test_add_func ("/imds-keys/paths", test_paths);
  g_test_add_func ("/imds-keys/other-bases", test_other_bases);
  g_test_add_func ("/imds-keys/values", test_values);
  g_test_add_func ("/imds-keys/ranges", test_ranges);
  g_test_add_func ("/imds-keys/bucket", test_bucket);
  return g_test_run ();
}

/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What a guest uploads as its report: whatever it says, the series that are kept of it are few, no
 * two alike, and fit into an exposition line by line. */

#include <string.h>

#include "fuzz.h"
#include "interfaces/vmm-error.h"
#include "vmm-guest-intake.h"

#define LIMIT 8

/* A name as Prometheus has it. */
static void
check_name (const char *name)
{
  g_assert_true (g_ascii_isalpha (name[0]) || name[0] == '_');
  for (const char *p = name; *p != '\0'; p++)
    g_assert_true (g_ascii_isalnum (*p) || *p == '_' || *p == ':');
}

static void
check_series (const VmmGuestSeries *series)
{
  char *end = NULL;

  g_assert_true (g_str_has_prefix (series->name, "vm_guest_"));
  check_name (series->name);
  g_assert_cmpint (series->kind, <, VMM_GUEST_N_KINDS);
  g_assert_null (strchr (series->labels, '\n'));
  g_assert_true (g_utf8_validate (series->labels, -1, NULL));
  g_ascii_strtod (series->value, &end);
  g_assert_true (end != series->value && *end == '\0');
}

int
LLVMFuzzerTestOneInput (const uint8_t *data, size_t size)
{
  g_autoptr (GError) error = NULL;
  g_autoptr (GBytes) bytes = g_bytes_new (data, size);
  g_autoptr (VmmGuestIntake) intake = vmm_guest_intake_new (bytes, LIMIT, &error);
  g_autoptr (GHashTable) seen = NULL;
  guint all = 0;

  if (intake == NULL)
    {
      g_assert_error (error, VMM_ERROR, VMM_ERROR_INVALID_REQUEST);
      g_assert_true (g_utf8_validate (error->message, -1, NULL));
      return 0;
    }
  g_assert_cmpuint (intake->series->len, <=, LIMIT);
  seen = g_hash_table_new_full (g_str_hash, g_str_equal, g_free, NULL);
  for (guint i = 0; i < intake->series->len; i++)
    {
      const VmmGuestSeries *series = g_ptr_array_index (intake->series, i);

      check_series (series);
      g_assert_true (
          g_hash_table_add (seen, g_strdup_printf ("%s{%s}", series->name, series->labels)));
    }
  for (guint i = 0; i < VMM_GUEST_N_DROPPED; i++)
    all += intake->dropped[i];
  g_assert_cmpuint (all + intake->series->len, ==, intake->n_entries);
  return 0;
}

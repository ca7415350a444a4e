/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* From a guest's report to the series that are kept of it.
 *
 * A report of the size we take can have as many entries as it likes; looking at each takes longer
 * than the main loop may be away. So it is done here, on copies, and what comes out is bounded. */

#include "config.h"

#include "vmm-guest-intake.h"

#include <string.h>

#include "vmm-metrics-guest-private.h"

/* What one series may take on average. */
#define SERIES_SIZE 1024

typedef struct
{
  VmmGuestIntake *intake;
  guint limit;
  GHashTable *seen; /* name and labels */
  gsize size;
} Reader;

static gboolean
is_bookkeeping (const char *name)
{
  for (guint i = 0; i < VMM_GUEST_N_BOOKKEEPING; i++)
    if (g_str_equal (vmm_guest_bookkeeping_names[i], name))
      return TRUE;
  return FALSE;
}

static gboolean
is_full (const Reader *reader)
{
  return reader->intake->series->len >= reader->limit
         || reader->size / SERIES_SIZE >= reader->limit;
}

static void
take_entry (Reader *reader, JsonNode *entry)
{
  VmmGuestIntake *intake = reader->intake;
  g_autoptr (VmmGuestSeries) series = vmm_guest_series_new (entry);
  g_autofree char *identity = NULL;

  if (series == NULL || is_bookkeeping (series->name))
    {
      intake->dropped[VMM_GUEST_DROPPED_UNSUPPORTED]++;
      return;
    }
  if (is_full (reader))
    {
      intake->dropped[VMM_GUEST_DROPPED_LIMIT]++;
      return;
    }
  identity = g_strdup_printf ("%s{%s}", series->name, series->labels);
  if (g_hash_table_contains (reader->seen, identity))
    {
      intake->dropped[VMM_GUEST_DROPPED_DUPLICATE]++;
      return;
    }
  reader->size += strlen (identity) + strlen (series->empty) + strlen (series->family);
  g_hash_table_add (reader->seen, g_steal_pointer (&identity));
  g_ptr_array_add (intake->series, g_steal_pointer (&series));
}

VmmGuestIntake *
vmm_guest_intake_new (GBytes *report, guint series_limit, GError **error)
{
  g_autoptr (VmmGuestReport) parsed = vmm_guest_report_parse (report, error);
  g_autoptr (GHashTable) seen = NULL;
  VmmGuestIntake *self;
  Reader reader;

  if (parsed == NULL)
    return NULL;
  self = g_new0 (VmmGuestIntake, 1);
  self->series = g_ptr_array_new_with_free_func ((GDestroyNotify) vmm_guest_series_free);
  self->generated_at = parsed->generated_at;
  self->n_families = parsed->n_families;
  self->n_entries = json_array_get_length (parsed->entries);
  self->sample = json_array_ref (parsed->sample);
  seen = g_hash_table_new_full (g_str_hash, g_str_equal, g_free, NULL);
  reader = (Reader) { self, series_limit, seen, 0 };
  for (guint i = 0; i < self->n_entries; i++)
    take_entry (&reader, json_array_get_element (parsed->entries, i));
  return self;
}

void
vmm_guest_intake_free (VmmGuestIntake *self)
{
  g_ptr_array_unref (self->series);
  json_array_unref (self->sample);
  g_free (self);
}

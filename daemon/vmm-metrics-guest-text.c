/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Writes the series of the guests for a scrape.
 *
 * Series are text already; what is added here are the labels that others of the family have and
 * this one lacks, once for each shape. A family that two guests use as different types is untyped.
 * One that has become too colourful is not filled up any more, which means the same to Prometheus.
 */
#include "config.h"

#include <string.h>

#include "vmm-exposition.h"
#include "vmm-metrics-guest-private.h"

#define UNION_MAX 64

static const char *const dropped_names[VMM_GUEST_N_DROPPED]
  = { "limit", "unsupported", "duplicate" };

static const char *const type_names[VMM_GUEST_N_KINDS] = { "counter", "gauge", "gauge" };

static void
add_names (GHashTable *set, const char *joined)
{
  g_auto (GStrv) names = g_strsplit (joined, ",", -1);

  for (guint i = 0; names[i] != NULL; i++)
    if (*names[i] != '\0')
      g_hash_table_add (set, g_strdup (names[i]));
}

static GHashTable *
collect_names (VmmGuestFamily *family)
{
  GHashTable *names = g_hash_table_new_full (g_str_hash, g_str_equal, g_free, NULL);
  GHashTableIter iter;
  gpointer value;

  g_hash_table_iter_init (&iter, family->shapes);
  while (g_hash_table_iter_next (&iter, NULL, &value))
    {
      VmmGuestShape *shape = value;

      add_names (names, shape->filled);
      add_names (names, shape->empty);
      if (g_hash_table_size (names) > UNION_MAX)
        break;
    }
  return names;
}

static char *
render_missing (VmmGuestShape *shape, GList *names)
{
  g_auto (GStrv) filled = g_strsplit (shape->filled, ",", -1);
  GString *text = g_string_new (NULL);

  for (GList *item = names; item != NULL; item = item->next)
    if (!g_strv_contains ((const char *const *) filled, item->data))
      g_string_append_printf (text, ",%s=\"\"", (const char *) item->data);
  return g_string_free (text, FALSE);
}

static void
prepare_shapes (VmmGuestFamily *family)
{
  g_autoptr (GHashTable) set = collect_names (family);
  g_autoptr (GList) names = NULL;
  GHashTableIter iter;
  gpointer value;

  if (g_hash_table_size (set) <= UNION_MAX)
    names = g_list_sort (g_hash_table_get_keys (set), (GCompareFunc) strcmp);
  g_hash_table_iter_init (&iter, family->shapes);
  while (g_hash_table_iter_next (&iter, NULL, &value))
    {
      VmmGuestShape *shape = value;

      g_free (shape->missing);
      shape->missing = render_missing (shape, names);
    }
}

static const char *
get_type (const VmmGuestFamily *family)
{
  const char *type = NULL;

  for (guint kind = 0; kind < VMM_GUEST_N_KINDS; kind++)
    {
      if (family->kinds[kind] == 0)
        continue;
      if (type != NULL && !g_str_equal (type, type_names[kind]))
        return "untyped";
      type = type_names[kind];
    }
  return type;
}

static void
add_vm_series (GString *text, const VmmGuestVm *vm, GPtrArray *list)
{
  for (guint i = 0; i < list->len; i++)
    {
      const VmmGuestKeptSeries *series = list->pdata[i];

      g_string_append (text, series->family->name);
      g_string_append_c (text, '{');
      g_string_append (text, vm->label);
      if (*series->labels != '\0')
        g_string_append_c (text, ',');
      g_string_append (text, series->labels);
      g_string_append (text, series->shape->missing);
      g_string_append (text, "} ");
      g_string_append (text, series->value);
      g_string_append_c (text, '\n');
    }
}

static gboolean
add_family (gpointer key, gpointer data, gpointer user_data)
{
  VmmGuestFamily *family = data;
  GString *text = user_data;
  g_autofree char *help = g_strdup_printf ("Guest systemd-report family %s.", family->source);
  GHashTableIter iter;
  gpointer vm;
  gpointer list;

  prepare_shapes (family);
  vmm_exposition_add_family (text, family->name, get_type (family), help);
  g_hash_table_iter_init (&iter, family->series);
  while (g_hash_table_iter_next (&iter, &vm, &list))
    add_vm_series (text, vm, list);
  return FALSE; /* go on */
}

static void
add_dropped (VmmGuestMetrics *self, GString *text)
{
  const char *name = vmm_guest_bookkeeping_names[VMM_GUEST_BOOKKEEPING_DROPPED];
  GHashTableIter iter;
  gpointer value;

  vmm_exposition_add_family (text, name, "counter",
                             "Entries of guest reports that were not exported.");
  g_hash_table_iter_init (&iter, self->vms);
  while (g_hash_table_iter_next (&iter, NULL, &value))
    {
      VmmGuestVm *vm = value;

      for (guint reason = 0; reason < VMM_GUEST_N_DROPPED; reason++)
        {
          g_autofree char *labels
            = g_strdup_printf ("%s,reason=\"%s\"", vm->label, dropped_names[reason]);

          vmm_exposition_add_sample (text, name, labels, vm->dropped[reason]);
        }
    }
}

static double
get_n_series (const VmmGuestVm *vm)
{
  return vm->n_series;
}

static double
get_n_reports (const VmmGuestVm *vm)
{
  return vm->n_reports;
}

static void
add_bookkeeping (VmmGuestMetrics *self, GString *text)
{
  static const struct
  {
    const char *type;
    const char *help;
    double (*get) (const VmmGuestVm *vm);
  } rows[] = {
    { "gauge", "Seconds since the guest's last report was received.", vmm_guest_vm_get_age },
    { "gauge", "VmmGuestKeptSeries exported from the guest's last report.", get_n_series },
    { "counter", "Reports received from the guest.", get_n_reports },
  };

  for (guint row = 0; row < G_N_ELEMENTS (rows); row++)
    {
      const char *name = vmm_guest_bookkeeping_names[row];
      GHashTableIter iter;
      gpointer value;

      vmm_exposition_add_family (text, name, rows[row].type, rows[row].help);
      g_hash_table_iter_init (&iter, self->vms);
      while (g_hash_table_iter_next (&iter, NULL, &value))
        vmm_exposition_add_sample (text, name, ((VmmGuestVm *) value)->label,
                                   rows[row].get (value));
    }
}

void
vmm_guest_metrics_add_to (VmmGuestMetrics *self, GString *text)
{
  if (g_hash_table_size (self->vms) == 0)
    return;
  add_bookkeeping (self, text);
  add_dropped (self, text);
  g_tree_foreach (self->families, add_family, text);
}

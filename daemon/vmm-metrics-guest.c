/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Keeps the series of the guests, from their last reports.
 *
 * A series is made into text when its report arrives, so that a scrape only copies: a thousand VMs
 * with a hundred series each are read out several times a minute, but change once. Series with the
 * same label names share a "shape": what a scrape has to add is then made once for each shape.
 *
 * No guest can harm the others: what it can make us keep is bounded by series and bytes, and
 * nothing of it changes or displaces what another one exports.
 */
#include "config.h"

#include "vmm-metrics-guest-private.h"

#include <string.h>

#include "vmm-exposition.h"
#include "vmm-log.h"
#include "vmm-time.h"

const char *const vmm_guest_bookkeeping_names[VMM_GUEST_N_BOOKKEEPING] = {
  "vm_guest_report_age_seconds",
  "vm_guest_report_series",
  "vm_guest_reports_total",
  "vm_guest_report_series_dropped_total",
};

static void
shape_free (gpointer data)
{
  VmmGuestShape *shape = data;

  g_free (shape->filled);
  g_free (shape->empty);
  g_free (shape->missing);
  g_free (shape);
}

static void
family_free (gpointer data)
{
  VmmGuestFamily *family = data;

  g_free (family->name);
  g_free (family->source);
  g_hash_table_unref (family->shapes);
  g_hash_table_unref (family->series);
  g_free (family);
}

static void
series_free (gpointer data)
{
  VmmGuestKeptSeries *series = data;

  g_free (series->labels);
  g_free (series->value);
  g_free (series);
}

static void
vm_free (gpointer data)
{
  VmmGuestVm *vm = data;

  g_free (vm->id);
  g_free (vm->label);
  g_hash_table_unref (vm->families);
  g_clear_pointer (&vm->sample, json_array_unref);
  g_free (vm);
}

static int
compare_names (gconstpointer a, gconstpointer b, gpointer user_data)
{
  return strcmp (a, b);
}

VmmGuestMetrics *
vmm_guest_metrics_new (guint series_limit)
{
  VmmGuestMetrics *self = g_new0 (VmmGuestMetrics, 1);

  self->limit = series_limit;
  self->vms = g_hash_table_new_full (g_str_hash, g_str_equal, NULL, vm_free);
  self->families = g_tree_new_full (compare_names, NULL, NULL, family_free);
  return self;
}

void
vmm_guest_metrics_free (VmmGuestMetrics *self)
{
  g_tree_unref (self->families);
  g_hash_table_unref (self->vms);
  g_free (self);
}

/* Taking a report. */

static VmmGuestFamily *
get_family (VmmGuestMetrics *self, const VmmGuestSeries *from)
{
  VmmGuestFamily *family = g_tree_lookup (self->families, from->name);

  if (family != NULL)
    return family;
  family = g_new0 (VmmGuestFamily, 1);
  family->name = g_strdup (from->name);
  family->source = g_strdup (from->family);
  family->shapes = g_hash_table_new_full (g_str_hash, g_str_equal, g_free, shape_free);
  family->series = g_hash_table_new (NULL, NULL);
  g_tree_insert (self->families, family->name, family);
  return family;
}

static char *
shape_key (const char *filled, const char *empty)
{
  return g_strdup_printf ("%s;%s", filled, empty);
}

static VmmGuestShape *
get_shape (VmmGuestFamily *family, const VmmGuestSeries *from)
{
  g_autofree char *key = shape_key (from->filled, from->empty);
  VmmGuestShape *shape = g_hash_table_lookup (family->shapes, key);

  if (shape != NULL)
    return shape;
  shape = g_new0 (VmmGuestShape, 1);
  shape->filled = g_strdup (from->filled);
  shape->empty = g_strdup (from->empty);
  g_hash_table_insert (family->shapes, g_steal_pointer (&key), shape);
  return shape;
}

static void
add_series (VmmGuestMetrics *self, VmmGuestVm *vm, VmmGuestSeries *from)
{
  VmmGuestFamily *family = get_family (self, from);
  GPtrArray *list = g_hash_table_lookup (vm->families, family);
  VmmGuestKeptSeries *series = g_new0 (VmmGuestKeptSeries, 1);

  if (list == NULL)
    {
      list = g_ptr_array_new_with_free_func (series_free);
      g_hash_table_insert (vm->families, family, list);
      g_hash_table_insert (family->series, vm, list);
    }
  series->family = family;
  series->shape = get_shape (family, from);
  series->shape->uses++;
  series->kind = from->kind;
  series->labels = g_steal_pointer (&from->labels);
  series->value = g_steal_pointer (&from->value);
  g_ptr_array_add (list, series);
  family->kinds[series->kind]++;
  family->n_series++;
  vm->n_series++;
}

static void
release_series (VmmGuestKeptSeries *series)
{
  VmmGuestFamily *family = series->family;
  VmmGuestShape *shape = series->shape;

  family->kinds[series->kind]--;
  family->n_series--;
  if (--shape->uses == 0)
    {
      g_autofree char *key = shape_key (shape->filled, shape->empty);

      g_hash_table_remove (family->shapes, key);
    }
}

static void
drop_series (VmmGuestMetrics *self, VmmGuestVm *vm)
{
  GHashTableIter iter;
  gpointer key;
  gpointer value;

  g_hash_table_iter_init (&iter, vm->families);
  while (g_hash_table_iter_next (&iter, &key, &value))
    {
      VmmGuestFamily *family = key;
      GPtrArray *list = value;

      for (guint i = 0; i < list->len; i++)
        release_series (list->pdata[i]);
      g_hash_table_remove (family->series, vm);
      if (family->n_series == 0)
        g_tree_remove (self->families, family->name);
    }
  g_hash_table_remove_all (vm->families);
  vm->n_series = 0;
}

static VmmGuestVm *
get_vm (VmmGuestMetrics *self, const char *vm_id)
{
  VmmGuestVm *vm = g_hash_table_lookup (self->vms, vm_id);
  GString *label;

  if (vm != NULL)
    return vm;
  label = g_string_new (NULL);
  vmm_exposition_add_label (label, "vm", vm_id);
  vm = g_new0 (VmmGuestVm, 1);
  vm->id = g_strdup (vm_id);
  vm->label = g_string_free (label, FALSE);
  vm->families = g_hash_table_new_full (NULL, NULL, NULL, (GDestroyNotify) g_ptr_array_unref);
  g_hash_table_insert (self->vms, vm->id, vm);
  return vm;
}

/* Each time it begins to happen, not with each report. */
static void
note_limit (VmmGuestMetrics *self, VmmGuestVm *vm, guint64 dropped_before)
{
  gboolean over = vm->dropped[VMM_GUEST_DROPPED_LIMIT] > dropped_before;

  if (over && !vm->over_limit)
    {
      g_autofree char *limit = g_strdup_printf ("%u", self->limit);
      g_autofree char *entries = g_strdup_printf ("%u", vm->n_entries);

      vmm_log_warning ("guest report exceeds the series limit", "vm", vm->id, "limit", limit,
                       "entries", entries, NULL);
    }
  vm->over_limit = over;
}

guint
vmm_guest_metrics_get_limit (VmmGuestMetrics *self)
{
  return self->limit;
}

void
vmm_guest_metrics_take (VmmGuestMetrics *self, const char *vm_id, VmmGuestIntake *intake)
{
  VmmGuestVm *vm = get_vm (self, vm_id);
  guint64 dropped_before = vm->dropped[VMM_GUEST_DROPPED_LIMIT];

  drop_series (self, vm);
  vm->received_at = g_get_real_time ();
  vm->received_mono = g_get_monotonic_time ();
  vm->generated_at = intake->generated_at;
  vm->n_families = intake->n_families;
  vm->n_entries = intake->n_entries;
  vm->n_reports++;
  g_clear_pointer (&vm->sample, json_array_unref);
  vm->sample = json_array_ref (intake->sample);
  for (guint i = 0; i < intake->series->len; i++)
    add_series (self, vm, g_ptr_array_index (intake->series, i));
  for (guint i = 0; i < VMM_GUEST_N_DROPPED; i++)
    vm->dropped[i] += intake->dropped[i];
  note_limit (self, vm, dropped_before);
}

void
vmm_guest_metrics_forget (VmmGuestMetrics *self, const char *vm_id)
{
  VmmGuestVm *vm = g_hash_table_lookup (self->vms, vm_id);

  if (vm == NULL)
    return;
  drop_series (self, vm);
  g_hash_table_remove (self->vms, vm_id);
}

double
vmm_guest_vm_get_age (const VmmGuestVm *vm)
{
  return (g_get_monotonic_time () - vm->received_mono) / (double) G_USEC_PER_SEC;
}

JsonObject *
vmm_guest_metrics_describe (VmmGuestMetrics *self, const char *vm_id)
{
  VmmGuestVm *vm = g_hash_table_lookup (self->vms, vm_id);
  g_autofree char *received = NULL;
  JsonObject *object;

  if (vm == NULL)
    return NULL;
  object = json_object_new ();
  received = vmm_time_to_text (vm->received_at);
  json_object_set_string_member (object, "received_at", received);
  if (vm->generated_at != 0)
    {
      g_autofree char *generated = vmm_time_to_text (vm->generated_at);

      json_object_set_string_member (object, "generated_at", generated);
    }
  json_object_set_double_member (object, "report_age_seconds", vmm_guest_vm_get_age (vm));
  json_object_set_int_member (object, "families", vm->n_families);
  json_object_set_int_member (object, "series", vm->n_entries);
  json_object_set_int_member (object, "series_exported", vm->n_series);
  json_object_set_int_member (object, "series_dropped", vm->n_entries - vm->n_series);
  json_object_set_array_member (object, "sample", json_array_ref (vm->sample));
  return object;
}

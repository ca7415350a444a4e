/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Reads what a guest uploaded with systemd-report and maps its entries to Prometheus series.
 *
 * A guest may write anything. A document that is not an object is refused; in one that is, each
 * entry stands for itself: what cannot be a series is counted by the caller and skipped. Names are
 * reduced to the alphabet that Prometheus allows, so two different ones may meet; the caller sees
 * that by the series' name and labels.
 *
 * Labels without a value are kept apart: for Prometheus they are as good as absent, but one family
 * shows the same labels in all its series.
 */
#include "config.h"

#include "vmm-guest-report.h"

#include <math.h>
#include <string.h>

#include "interfaces/vmm-error.h"
#include "vmm-exposition.h"
#include "vmm-json.h"

#define NAME_MAX_SIZE 512
#define LABELS_MAX 64
#define SAMPLE_ENTRIES 10
#define SAMPLE_SIZE (64 * 1024)

typedef struct
{
  char *name;
  char *value;
  guint index;
} Label;

static void
label_free (gpointer data)
{
  Label *label = data;

  g_free (label->name);
  g_free (label->value);
  g_free (label);
}

static int
compare_labels (gconstpointer a, gconstpointer b)
{
  const Label *first = *(const Label *const *) a;
  const Label *second = *(const Label *const *) b;
  int order = strcmp (first->name, second->name);

  return order != 0 ? order : (first->index > second->index) - (first->index < second->index);
}

/* Appends one underscore for any run of what is not allowed, none at either end. */
static void
separate (GString *name, gsize start)
{
  if (name->len > start && name->str[name->len - 1] != '_')
    g_string_append_c (name, '_');
}

char *
vmm_guest_metric_name (const char *family)
{
  GString *name = g_string_new ("vm_guest_");
  gsize start = strlen ("vm_guest_");
  char previous = '\0';

  for (const char *c = family; *c != '\0'; previous = *c++)
    {
      if (!g_ascii_isalnum (*c))
        {
          separate (name, start);
          continue;
        }
      if (g_ascii_isupper (*c) && (g_ascii_islower (previous) || g_ascii_isdigit (previous)))
        separate (name, start);
      g_string_append_c (name, g_ascii_tolower (*c));
    }
  while (name->len > start && name->str[name->len - 1] == '_')
    g_string_truncate (name, name->len - 1);
  return g_string_free (name, FALSE);
}

char *
vmm_guest_label_name (const char *field)
{
  GString *name = g_string_new (NULL);

  for (const char *c = field; *c != '\0'; c = g_utf8_next_char (c))
    {
      gboolean allowed = g_ascii_isalnum (*c) || *c == '_';

      if (name->len > 0 || (allowed && *c != '_'))
        g_string_append_c (name, allowed ? *c : '_');
    }
  if (name->len == 0 || g_ascii_isdigit (*name->str) || g_str_equal (name->str, "vm")
      || g_str_equal (name->str, "object") || g_str_equal (name->str, "value"))
    g_string_prepend (name, "field_");
  return g_string_free (name, FALSE);
}

/* Strings as they are, numbers in plain decimal, true and false, nothing for null, else JSON. */
static char *
render_value (JsonNode *node)
{
  GType type = json_node_get_value_type (node);

  if (JSON_NODE_HOLDS_NULL (node))
    return g_strdup ("");
  if (!JSON_NODE_HOLDS_VALUE (node))
    return vmm_json_to_line (node, NULL);
  if (type == G_TYPE_STRING)
    return g_strdup (json_node_get_string (node));
  if (type == G_TYPE_BOOLEAN)
    return g_strdup (json_node_get_boolean (node) ? "true" : "false");
  if (type == G_TYPE_DOUBLE)
    return vmm_exposition_plain_number (json_node_get_double (node));
  return g_strdup_printf ("%" G_GINT64_FORMAT, json_node_get_int (node));
}

/* A number, a boolean, or a string that is a finite decimal number. NULL for all else. */
static char *
render_number (JsonNode *node)
{
  GType type = JSON_NODE_HOLDS_VALUE (node) ? json_node_get_value_type (node) : G_TYPE_INVALID;
  const char *text;
  char *end;
  double value;

  if (type == G_TYPE_INT64)
    return g_strdup_printf ("%" G_GINT64_FORMAT, json_node_get_int (node));
  if (type == G_TYPE_BOOLEAN)
    return g_strdup (json_node_get_boolean (node) ? "1" : "0");
  if (type == G_TYPE_DOUBLE)
    return vmm_exposition_number (json_node_get_double (node));
  if (type != G_TYPE_STRING)
    return NULL;
  text = json_node_get_string (node);
  if (*text == '\0' || text[strspn (text, "+-.0123456789eE")] != '\0')
    return NULL;
  value = g_ascii_strtod (text, &end);
  return *end == '\0' && isfinite (value) ? vmm_exposition_number (value) : NULL;
}

static VmmGuestKind
find_kind (JsonObject *entry, const char *family, JsonNode *value)
{
  const char *type = NULL;

  vmm_json_get_string (entry, "type", NULL, &type, NULL); /* another type is as good as none */
  if (g_strcmp0 (type, "counter") == 0)
    return VMM_GUEST_COUNTER;
  if (g_strcmp0 (type, "gauge") == 0)
    return VMM_GUEST_GAUGE;
  if (g_strcmp0 (type, "string") == 0)
    return VMM_GUEST_INFO;
  if (JSON_NODE_HOLDS_VALUE (value) && json_node_get_value_type (value) == G_TYPE_STRING)
    return VMM_GUEST_INFO;
  if (g_str_equal (family, "io.systemd.Manager.NRestarts")
      || g_str_equal (family, "io.systemd.Manager.ReloadCount"))
    return VMM_GUEST_COUNTER;
  return VMM_GUEST_GAUGE;
}

static char *
name_series (const char *family, VmmGuestKind kind)
{
  g_autofree char *name = vmm_guest_metric_name (family);

  if (kind == VMM_GUEST_INFO)
    return g_strconcat (name, "_info", NULL);
  if (kind == VMM_GUEST_COUNTER && !g_str_has_suffix (name, "_total"))
    return g_strconcat (name, "_total", NULL);
  return g_steal_pointer (&name);
}

static void
take_label (GPtrArray *labels, char *name, char *value)
{
  Label *label = g_new0 (Label, 1);

  label->name = name;
  label->value = value;
  label->index = labels->len;
  g_ptr_array_add (labels, label);
}

static GPtrArray *
collect_labels (JsonObject *entry, JsonObject *fields)
{
  GPtrArray *labels = g_ptr_array_new_with_free_func (label_free);
  JsonNode *object = json_object_get_member (entry, "object");
  JsonObjectIter iter;
  const char *name;
  JsonNode *value;

  take_label (labels, g_strdup ("object"), object != NULL ? render_value (object) : g_strdup (""));
  if (fields != NULL)
    {
      json_object_iter_init_ordered (&iter, fields);
      while (json_object_iter_next_ordered (&iter, &name, &value))
        take_label (labels, vmm_guest_label_name (name), render_value (value));
    }
  return labels;
}

static void
join (GString *list, const char *name)
{
  if (list->len > 0)
    g_string_append_c (list, ',');
  g_string_append (list, name);
}

/* Of fields that met under one name the first counts. */
static void
render_labels (VmmGuestSeries *series, GPtrArray *labels)
{
  GString *text = g_string_new (NULL);
  GString *filled = g_string_new (NULL);
  GString *empty = g_string_new (NULL);
  const char *previous = NULL;

  g_ptr_array_sort (labels, compare_labels);
  for (guint i = 0; i < labels->len; i++)
    {
      const Label *label = labels->pdata[i];
      gboolean repeated = g_strcmp0 (label->name, previous) == 0;

      previous = label->name;
      if (repeated)
        continue;
      join (*label->value != '\0' ? filled : empty, label->name);
      if (*label->value != '\0')
        vmm_exposition_add_label (text, label->name, label->value);
    }
  series->labels = g_string_free (text, FALSE);
  series->filled = g_string_free (filled, FALSE);
  series->empty = g_string_free (empty, FALSE);
}

VmmGuestSeries *
vmm_guest_series_new (JsonNode *node)
{
  g_autoptr (VmmGuestSeries) series = g_new0 (VmmGuestSeries, 1);
  g_autoptr (GPtrArray) labels = NULL;
  JsonObject *entry = JSON_NODE_HOLDS_OBJECT (node) ? json_node_get_object (node) : NULL;
  JsonNode *value = entry != NULL ? json_object_get_member (entry, "value") : NULL;
  JsonObject *fields = NULL;
  const char *family = NULL;

  if (value == NULL || JSON_NODE_HOLDS_NULL (value)
      || !vmm_json_get_string (entry, "name", "", &family, NULL) || *family == '\0'
      || strlen (family) > NAME_MAX_SIZE || !vmm_json_get_object (entry, "fields", &fields, NULL)
      || (fields != NULL && json_object_get_size (fields) > LABELS_MAX))
    return NULL;
  series->kind = find_kind (entry, family, value);
  series->value = series->kind == VMM_GUEST_INFO ? g_strdup ("1") : render_number (value);
  if (series->value == NULL)
    return NULL;
  series->family = g_strdup (family);
  series->name = name_series (family, series->kind);
  labels = collect_labels (entry, fields);
  if (series->kind == VMM_GUEST_INFO)
    take_label (labels, g_strdup ("value"), render_value (value));
  render_labels (series, labels);
  return g_steal_pointer (&series);
}

void
vmm_guest_series_free (VmmGuestSeries *self)
{
  g_free (self->name);
  g_free (self->family);
  g_free (self->labels);
  g_free (self->filled);
  g_free (self->empty);
  g_free (self->value);
  g_free (self);
}

/* "Sat 2026-09-12 14:17:48 UTC", as systemd prints it. */
static gint64
parse_timestamp (const char *text)
{
  g_autofree char *iso = NULL;
  g_autoptr (GDateTime) time = NULL;

  if (text == NULL || strlen (text) != strlen ("Sat 2026-09-12 14:17:48 UTC") || text[3] != ' '
      || !g_str_has_suffix (text, " UTC"))
    return 0;
  iso = g_strdup_printf ("%.19sZ", text + 4);
  time = g_date_time_new_from_iso8601 (iso, NULL);
  return time != NULL ? g_date_time_to_unix (time) * G_USEC_PER_SEC : 0;
}

static guint
count_families (JsonArray *entries)
{
  g_autoptr (GHashTable) names = g_hash_table_new (g_str_hash, g_str_equal);

  for (guint i = 0; i < json_array_get_length (entries); i++)
    {
      JsonNode *node = json_array_get_element (entries, i);
      const char *name = NULL;

      if (JSON_NODE_HOLDS_OBJECT (node)
          && vmm_json_get_string (json_node_get_object (node), "name", NULL, &name, NULL)
          && name != NULL)
        g_hash_table_add (names, (gpointer) name);
    }
  return g_hash_table_size (names);
}

/* The members we know; a sample that is too large to be looked at ends early. */
static JsonArray *
take_sample (JsonArray *entries)
{
  static const char *const members[] = { "name", "object", "fields", "value", "type" };
  JsonArray *sample = json_array_new ();
  gsize size = 0;

  for (guint i = 0; i < MIN (json_array_get_length (entries), SAMPLE_ENTRIES); i++)
    {
      JsonNode *node = json_array_get_element (entries, i);
      g_autoptr (JsonNode) copy = NULL;
      JsonObject *object = json_object_new ();
      gsize length;

      for (guint k = 0; JSON_NODE_HOLDS_OBJECT (node) && k < G_N_ELEMENTS (members); k++)
        {
          JsonNode *member = json_object_get_member (json_node_get_object (node), members[k]);

          if (member != NULL)
            json_object_set_member (object, members[k], json_node_copy (member));
        }
      copy = vmm_json_node_take_object (object);
      g_free (vmm_json_to_line (copy, &length));
      size += length;
      if (size > SAMPLE_SIZE)
        break;
      json_array_add_element (sample, g_steal_pointer (&copy));
    }
  return sample;
}

VmmGuestReport *
vmm_guest_report_parse (GBytes *bytes, GError **error)
{
  gsize size;
  const char *text = g_bytes_get_data (bytes, &size);
  g_autoptr (JsonObject) object = NULL;
  JsonArray *entries = NULL;
  const char *timestamp = NULL;
  VmmGuestReport *self;

  if (size > VMM_GUEST_REPORT_MAX)
    {
      vmm_set_error (error, VMM_ERROR_INVALID_REQUEST, "a report of more than %d bytes",
                     VMM_GUEST_REPORT_MAX);
      return NULL;
    }
  object = vmm_json_parse_object (text != NULL ? text : "", size, error);
  if (object == NULL || !vmm_json_get_array (object, "metrics", &entries, error))
    return NULL;
  vmm_json_get_string (object, "timestamp", NULL, &timestamp, NULL); /* only for display */
  self = g_new0 (VmmGuestReport, 1);
  self->entries = entries != NULL ? json_array_ref (entries) : json_array_new ();
  self->generated_at = parse_timestamp (timestamp);
  self->n_families = count_families (self->entries);
  self->sample = take_sample (self->entries);
  return self;
}

void
vmm_guest_report_free (VmmGuestReport *self)
{
  json_array_unref (self->entries);
  json_array_unref (self->sample);
  g_free (self);
}

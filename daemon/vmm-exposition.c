/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Writes the Prometheus text format.
 *
 * Everything is appended to one GString. Label values and help texts may come from a guest and are
 * escaped here and nowhere else: a backslash, a line end and, in values, a quote are all that
 * means something. Numbers are written so that they read back as the same double, in as few digits
 * as that takes, whatever the locale.
 */
#include "config.h"

#include "vmm-exposition.h"

#include <math.h>
#include <string.h>

/* Digits before the point of the largest double, and behind it of the smallest, with room to
 * spare. */
#define PLAIN_SIZE 1200
#define DIGITS_MAX 17

static void
add_escaped (GString *text, const char *value, gboolean quoted)
{
  for (const char *c = value; *c != '\0'; c++)
    {
      if (*c == '\\')
        g_string_append (text, "\\\\");
      else if (*c == '\n')
        g_string_append (text, "\\n");
      else if (*c == '"' && quoted)
        g_string_append (text, "\\\"");
      else
        g_string_append_c (text, *c);
    }
}

void
vmm_exposition_add_family (GString *text, const char *name, const char *type, const char *help)
{
  g_string_append_printf (text, "# HELP %s ", name);
  add_escaped (text, help, FALSE);
  g_string_append_printf (text, "\n# TYPE %s %s\n", name, type);
}

void
vmm_exposition_add_label (GString *labels, const char *name, const char *value)
{
  if (labels->len > 0)
    g_string_append_c (labels, ',');
  g_string_append (labels, name);
  g_string_append (labels, "=\"");
  add_escaped (labels, value, TRUE);
  g_string_append_c (labels, '"');
}

void
vmm_exposition_add_text_sample (GString *text, const char *name, const char *labels,
                                const char *value)
{
  g_string_append (text, name);
  if (labels != NULL && *labels != '\0')
    {
      g_string_append_c (text, '{');
      g_string_append (text, labels);
      g_string_append_c (text, '}');
    }
  g_string_append_c (text, ' ');
  g_string_append (text, value);
  g_string_append_c (text, '\n');
}

void
vmm_exposition_add_sample (GString *text, const char *name, const char *labels, double value)
{
  g_autofree char *number = vmm_exposition_number (value);

  vmm_exposition_add_text_sample (text, name, labels, number);
}

/* How many significant digits it takes to read the same number back, and its power of ten. */
static int
count_digits (double value, int *exponent)
{
  char buffer[G_ASCII_DTOSTR_BUF_SIZE];
  int digits = 0;
  double read_back;

  do
    {
      char format[8];

      g_snprintf (format, sizeof format, "%%.%de", digits);
      read_back = g_ascii_strtod (g_ascii_formatd (buffer, sizeof buffer, format, value), NULL);
      digits++;
    }
  while (read_back != value && digits < DIGITS_MAX);
  *exponent = (int) g_ascii_strtoll (strchr (buffer, 'e') + 1, NULL, 10);
  return digits;
}

char *
vmm_exposition_number (double value)
{
  char buffer[G_ASCII_DTOSTR_BUF_SIZE];
  char format[8];
  int exponent;

  if (isnan (value))
    return g_strdup ("NaN");
  if (isinf (value))
    return g_strdup (value > 0 ? "+Inf" : "-Inf");
  if (value == floor (value) && fabs (value) < 1e15)
    return g_strdup_printf ("%" G_GINT64_FORMAT, (gint64) value);
  g_snprintf (format, sizeof format, "%%.%dg", count_digits (value, &exponent));
  return g_strdup (g_ascii_formatd (buffer, sizeof buffer, format, value));
}

char *
vmm_exposition_plain_number (double value)
{
  char buffer[PLAIN_SIZE];
  char format[8];
  int exponent;
  int digits;

  if (!isfinite (value) || value == 0)
    return vmm_exposition_number (value);
  digits = count_digits (value, &exponent);
  g_snprintf (format, sizeof format, "%%.%df", MAX (digits - 1 - exponent, 0));
  return g_strdup (g_ascii_formatd (buffer, sizeof buffer, format, value));
}

void
vmm_histogram_init (VmmHistogram *self, const double *bounds, guint n_bounds)
{
  self->bounds = bounds;
  self->n_bounds = n_bounds;
  self->counts = g_new0 (guint64, n_bounds + 1);
  self->sum = 0;
}

void
vmm_histogram_clear (VmmHistogram *self)
{
  g_clear_pointer (&self->counts, g_free);
}

void
vmm_histogram_observe (VmmHistogram *self, double value)
{
  guint i = 0;

  while (i < self->n_bounds && value > self->bounds[i])
    i++;
  self->counts[i]++;
  self->sum += value;
}

void
vmm_histogram_add_to (const VmmHistogram *self, GString *text, const char *name, const char *help)
{
  g_autofree char *bucket = g_strconcat (name, "_bucket", NULL);
  g_autofree char *sum = g_strconcat (name, "_sum", NULL);
  g_autofree char *count = g_strconcat (name, "_count", NULL);
  guint64 total = 0;

  vmm_exposition_add_family (text, name, "histogram", help);
  for (guint i = 0; i <= self->n_bounds; i++)
    {
      g_autofree char *bound
        = i < self->n_bounds ? vmm_exposition_number (self->bounds[i]) : g_strdup ("+Inf");
      g_autofree char *label = g_strdup_printf ("le=\"%s\"", bound);

      total += self->counts[i];
      vmm_exposition_add_sample (text, bucket, label, total);
    }
  vmm_exposition_add_sample (text, sum, NULL, self->sum);
  vmm_exposition_add_sample (text, count, NULL, total);
}

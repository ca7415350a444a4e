/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <glib.h>

G_BEGIN_DECLS

/* The Prometheus text format, version 0.0.4:
 * https://prometheus.io/docs/instrumenting/exposition_formats/ */
#define VMM_EXPOSITION_TYPE "text/plain; version=0.0.4; charset=utf-8"

void vmm_exposition_add_family (GString *text, const char *name, const char *type,
                                const char *help);
/* Labels are kept as text without braces: name="value",name="value". */
void vmm_exposition_add_label (GString *labels, const char *name, const char *value);
/* labels may be NULL; value is text that is a number. */
void vmm_exposition_add_text_sample (GString *text, const char *name, const char *labels,
                                     const char *value);
void vmm_exposition_add_sample (GString *text, const char *name, const char *labels, double value);

/* The shortest text that reads back as the same number; without an exponent on demand. */
char *vmm_exposition_number (double value);
char *vmm_exposition_plain_number (double value);

/* A histogram without labels. bounds outlive it. */
typedef struct
{
  const double *bounds;
  guint n_bounds;
  guint64 *counts; /* by bound, not cumulative; the last one is above all */
  double sum;
} VmmHistogram;

void vmm_histogram_init (VmmHistogram *self, const double *bounds, guint n_bounds);
void vmm_histogram_clear (VmmHistogram *self);
void vmm_histogram_observe (VmmHistogram *self, double value);
void vmm_histogram_add_to (const VmmHistogram *self, GString *text, const char *name,
                           const char *help);

G_END_DECLS

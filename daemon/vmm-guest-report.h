/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <json-glib/json-glib.h>

G_BEGIN_DECLS

/* A guest's systemd-report: how one entry of it becomes one Prometheus series. Pure. */
#define VMM_GUEST_REPORT_MAX (8 * 1024 * 1024)

typedef enum
{
  VMM_GUEST_COUNTER,
  VMM_GUEST_GAUGE,
  VMM_GUEST_INFO,
} VmmGuestKind;
#define VMM_GUEST_N_KINDS (VMM_GUEST_INFO + 1)

typedef struct
{
  char *name;   /* of the metric, with its suffix */
  char *family; /* as the guest wrote it */
  VmmGuestKind kind;
  char *labels; /* those with a value, sorted, as text for an exposition; without the VM's */
  char *filled; /* their names, joined with commas */
  char *empty;  /* the names of those without a value, joined with commas */
  char *value;  /* a number as text */
} VmmGuestSeries;

void vmm_guest_series_free (VmmGuestSeries *self);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (VmmGuestSeries, vmm_guest_series_free)

/* NULL when the entry is of no kind that can be exported. */
VmmGuestSeries *vmm_guest_series_new (JsonNode *entry);
/* vm_guest_ and the family in snake case. */
char *vmm_guest_metric_name (const char *family);
/* What may be a label's name and is not one of ours. */
char *vmm_guest_label_name (const char *field);

/* A whole report; fails with VMM_ERROR_INVALID_REQUEST when it is none. */
typedef struct
{
  JsonArray *entries;   /* never NULL */
  gint64 generated_at;  /* microseconds since 1970; 0 when it does not say */
  guint n_families;
  JsonArray *sample;    /* the first ten entries as they were uploaded */
} VmmGuestReport;

VmmGuestReport *vmm_guest_report_parse (GBytes *bytes, GError **error);
void vmm_guest_report_free (VmmGuestReport *self);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (VmmGuestReport, vmm_guest_report_free)

G_END_DECLS

/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "vmm-metrics-guest.h"

G_BEGIN_DECLS

/* What vmm-metrics-guest.c keeps and vmm-metrics-guest-text.c writes out. */

typedef enum
{
  VMM_GUEST_BOOKKEEPING_AGE,
  VMM_GUEST_BOOKKEEPING_SERIES,
  VMM_GUEST_BOOKKEEPING_REPORTS,
  VMM_GUEST_BOOKKEEPING_DROPPED,
} VmmGuestBookkeeping;
#define VMM_GUEST_N_BOOKKEEPING (VMM_GUEST_BOOKKEEPING_DROPPED + 1)

/* The names of our own families; a guest's entry that maps to one of them is none. */
extern const char *const vmm_guest_bookkeeping_names[VMM_GUEST_N_BOOKKEEPING];

/* Label names, and how many series have just these. */
typedef struct
{
  char *filled; /* joined with commas */
  char *empty;
  guint uses;
  char *missing; /* during a scrape: what is to be added */
} VmmGuestShape;

typedef struct
{
  char *name;
  char *source; /* as the guest wrote it that came first */
  guint kinds[VMM_GUEST_N_KINDS];
  GHashTable *shapes; /* "filled;empty" -> VmmGuestShape */
  GHashTable *series; /* of GPtrArray, by VM */
  guint n_series;
} VmmGuestFamily;

typedef struct
{
  VmmGuestFamily *family;
  VmmGuestShape *shape;
  VmmGuestKind kind;
  char *labels;
  char *value;
} VmmGuestKeptSeries;

typedef struct
{
  char *id;
  char *label;          /* vm="..." */
  GHashTable *families; /* VmmGuestFamily -> GPtrArray of VmmGuestKeptSeries, owned */
  gint64 received_at;   /* wall clock */
  gint64 received_mono;
  gint64 generated_at;
  guint n_families;
  guint n_entries;
  guint n_series;
  guint64 n_reports;
  guint64 dropped[VMM_GUEST_N_DROPPED]; /* over all reports */
  gboolean over_limit;
  JsonArray *sample;
} VmmGuestVm;

struct _VmmGuestMetrics
{
  guint limit;
  GHashTable *vms;  /* id -> VmmGuestVm */
  GTree *families;  /* name -> VmmGuestFamily */
};

/* Seconds since the last report. */
double vmm_guest_vm_get_age (const VmmGuestVm *vm);

G_END_DECLS

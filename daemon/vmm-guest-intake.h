/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "vmm-guest-report.h"

G_BEGIN_DECLS

typedef enum
{
  VMM_GUEST_DROPPED_LIMIT,
  VMM_GUEST_DROPPED_UNSUPPORTED,
  VMM_GUEST_DROPPED_DUPLICATE,
} VmmGuestDropped;
#define VMM_GUEST_N_DROPPED (VMM_GUEST_DROPPED_DUPLICATE + 1)

/* A report made ready to be kept: the work that grows with its size is done. Pure, for a worker. */
typedef struct
{
  GPtrArray *series; /* of VmmGuestSeries: no two alike, at most the limit */
  gint64 generated_at;
  guint n_families;
  guint n_entries;
  guint dropped[VMM_GUEST_N_DROPPED];
  JsonArray *sample;
} VmmGuestIntake;

/* Fails as vmm_guest_report_parse() does. */
VmmGuestIntake *vmm_guest_intake_new (GBytes *report, guint series_limit, GError **error);
void vmm_guest_intake_free (VmmGuestIntake *self);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (VmmGuestIntake, vmm_guest_intake_free)

G_END_DECLS

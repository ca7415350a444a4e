/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "vmm-guest-intake.h"

G_BEGIN_DECLS

/* The series of all guests, from their last reports: bounded for each VM, grouped by family. */
typedef struct _VmmGuestMetrics VmmGuestMetrics;

VmmGuestMetrics *vmm_guest_metrics_new (guint series_limit);
void vmm_guest_metrics_free (VmmGuestMetrics *self);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (VmmGuestMetrics, vmm_guest_metrics_free)

/* How many series one VM may have. */
guint vmm_guest_metrics_get_limit (VmmGuestMetrics *self);
/* Replaces what there was of a VM by a report's, made with that limit. Takes texts out of it. */
void vmm_guest_metrics_take (VmmGuestMetrics *self, const char *vm_id, VmmGuestIntake *intake);
void vmm_guest_metrics_forget (VmmGuestMetrics *self, const char *vm_id);
void vmm_guest_metrics_add_to (VmmGuestMetrics *self, GString *text);
/* The "guest" object of a VM's metrics; NULL before its first report. */
JsonObject *vmm_guest_metrics_describe (VmmGuestMetrics *self, const char *vm_id);

G_END_DECLS

/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "vmm-guest-intake.h"
#include "vmm-machine.h"

G_BEGIN_DECLS

/* The Prometheus exposition and the per-VM summary: host families from the machines, guest families
 * from their reports, bounded per VM. */
#define VMM_TYPE_METRICS (vmm_metrics_get_type ())
G_DECLARE_FINAL_TYPE (VmmMetrics, vmm_metrics, VMM, METRICS, GObject)

/* Borrows the networks. */
VmmMetrics *vmm_metrics_new (VmmNetworkTable *networks, guint guest_series_limit);
/* Follows a machine's ::transition until it is removed with all its series. */
void vmm_metrics_add_machine (VmmMetrics *self, VmmMachine *machine);
void vmm_metrics_remove_machine (VmmMetrics *self, VmmMachine *machine);
/* text/plain; version=0.0.4 */
GBytes *vmm_metrics_expose (VmmMetrics *self);
/* How many series of one guest are kept: for vmm_guest_intake_new(). */
guint vmm_metrics_get_guest_limit (VmmMetrics *self);
/* A guest's report was received; of a VM that is gone, nothing is kept. Takes texts out of it. */
void vmm_metrics_take_report (VmmMetrics *self, const char *vm_id, VmmGuestIntake *intake);
/* The Metrics object of the API. */
JsonNode *vmm_metrics_describe (VmmMetrics *self, VmmMachine *machine);

G_END_DECLS

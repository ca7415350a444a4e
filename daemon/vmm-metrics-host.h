/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "vmm-machine.h"

G_BEGIN_DECLS

/* The vm_manager_* families: what the daemon knows of its VMs and networks. */
typedef enum
{
  VMM_ATTESTATION_DISABLED,
  VMM_ATTESTATION_PENDING,
  VMM_ATTESTATION_RELEASED,
  VMM_ATTESTATION_FAILED,
} VmmAttestationState;
#define VMM_N_ATTESTATION_STATES (VMM_ATTESTATION_FAILED + 1)

/* The state of its attestation in one word. */
VmmAttestationState vmm_machine_get_attestation_state (VmmMachine *machine);
const char *vmm_attestation_state_to_nick (VmmAttestationState state);
/* In seconds; FALSE while there is no such time. */
gboolean vmm_machine_get_install_seconds (VmmMachine *machine, double *seconds);
gboolean vmm_machine_get_boot_seconds (VmmMachine *machine, double *seconds);
guint64 vmm_machine_get_disk_bytes (VmmMachine *machine);

void vmm_metrics_host_add_build_to (GString *text);
/* machines: of VmmMachine. */
void vmm_metrics_host_add_machines_to (GString *text, GPtrArray *machines);
void vmm_metrics_host_add_networks_to (GString *text, VmmNetworkTable *networks);

G_END_DECLS

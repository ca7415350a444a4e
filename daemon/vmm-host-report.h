/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <json-glib/json-glib.h>

#include "vmm-host-facts.h"
#include "vmm-host-firmware.h"
#include "vmm-host-kvm.h"
#include "vmm-host-tool.h"
#include "vmm-host.h"
#include "vmm-plugin-registry.h"

G_BEGIN_DECLS

/* All that a report is made of. */
typedef struct
{
  const VmmHostFacts *facts;
  const VmmHostFirmware *firmware;
  const char *firmware_path; /* what VMs are to boot with, there or not */
  const VmmHostTool *qemu;
  const VmmHostTool *swtpm;
  const VmmHostTool *systemd;
  const VmmHostTool *qemu_devices;
  const VmmHostKvm *kvm;
  const char *accelerator; /* that was asked for: "auto", "kvm" or "tcg" */
  VmmPluginRegistry *registry; /* NULL for none */
} VmmHostSources;

/* Whether VMs are emulated, and how they get their vsock device. */
gboolean vmm_host_sources_emulated (const VmmHostSources *sources);
VmmHostVsock vmm_host_sources_vsock (const VmmHostSources *sources);

/* A sealed object. */
JsonNode *vmm_host_report_new (const VmmHostSources *sources);

G_END_DECLS

/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <json-glib/json-glib.h>

#include "vmm-options.h"
#include "vmm-plugin-registry.h"

G_BEGIN_DECLS

/* What this host offers: devices, tools, firmware, accelerator, the way to vsock, every plugin. */
#define VMM_TYPE_HOST (vmm_host_get_type ())
G_DECLARE_FINAL_TYPE (VmmHost, vmm_host, VMM, HOST, GObject)

VmmHost *vmm_host_new (VmmOptions *options, VmmPluginRegistry *registry);
/* The pair VMs boot with: flags, else the first pair of which both files exist. */
const char *vmm_host_get_ovmf_code (VmmHost *self);
const char *vmm_host_get_ovmf_vars (VmmHost *self);
/* Refuses when the firmware is not there, or the variables, unless the VM has its own by now. */
gboolean vmm_host_check_firmware (VmmHost *self, gboolean has_variables, GError **error);
/* Whether guests are emulated, as far as is known by now. */
gboolean vmm_host_is_emulated (VmmHost *self);

/* How a VM's vsock device comes about. */
typedef enum
{
  VMM_HOST_VSOCK_NONE,
  VMM_HOST_VSOCK_VHOST,      /* the kernel's */
  VMM_HOST_VSOCK_VHOST_USER, /* a program's */
} VmmHostVsock;

/* With what a VM that starts now is run. */
typedef struct
{
  gboolean emulated;
  VmmHostVsock vsock; /* never none */
} VmmHostWays;

/* Looks at the host, and waits for what has to be tried first. VMM_ERROR_UNSUPPORTED says what no VM
 * can do without. */
void vmm_host_find_ways_async (VmmHost *self, GCancellable *cancellable,
                               GAsyncReadyCallback callback, gpointer user_data);
gboolean vmm_host_find_ways_finish (VmmHost *self, GAsyncResult *result, VmmHostWays *ways,
                                    GError **error);
/* Runs the probes (each with a limit of 5 s) and answers with the Host object. */
void vmm_host_describe_async (VmmHost *self, GCancellable *cancellable,
                              GAsyncReadyCallback callback, gpointer user_data);
JsonNode *vmm_host_describe_finish (VmmHost *self, GAsyncResult *result, GError **error);

/* Looks elsewhere, with another limit for each probe: for tests, before anything is described. NULL
 * and 0 leave what is set. */
void vmm_host_set_places (VmmHost *self, const char *kvm_path, const char *vsock_path,
                          const char *storage_providers_path);
void vmm_host_set_probe_limit (VmmHost *self, guint limit_ms);

G_END_DECLS

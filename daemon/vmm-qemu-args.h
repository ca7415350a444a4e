/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <glib.h>

G_BEGIN_DECLS

typedef struct
{
  const char *serial;
  const char *path;
  const char *format; /* "raw" or "qcow2" */
  gboolean read_only;
} VmmQemuDrive;

typedef struct
{
  const char *name;
  const char *value;
} VmmQemuCredential;

typedef enum
{
  VMM_QEMU_VSOCK_NONE,
  VMM_QEMU_VSOCK_VHOST,      /* /dev/vhost-vsock */
  VMM_QEMU_VSOCK_VHOST_USER, /* vhost-device-vsock on vsock_socket, with memfd memory */
} VmmQemuVsock;

/* All that decides a QEMU command line. Pure data: golden-tested. */
typedef struct
{
  const char *id;
  const char *phase;            /* "install" or "boot" */
  const char *accelerator;      /* "kvm" or "tcg" */
  guint cpus;
  guint64 memory_mib;
  const char *console_socket;   /* the monitor connects here */
  const char *qmp_socket;       /* the daemon's */
  const char *monitor_qmp_socket; /* the monitor's */
  const char *ovmf_code;
  const char *ovmf_vars;
  const char *uki;              /* install only */
  const char *installer_disk;   /* install only */
  const char *target_disk;
  const VmmQemuDrive *drives;
  guint n_drives;
  const char *const *network_arguments; /* from the network backend: -netdev, -device */
  VmmQemuVsock vsock;
  guint32 cid;
  const char *vsock_socket;
  const char *tpm_socket;       /* NULL for no TPM */
  const VmmQemuCredential *credentials;
  guint n_credentials;
  const char *kernel_cmdline_extra; /* NULL for none */
} VmmQemuConfig;

/* argv for QEMU, which starts stopped (-S): the monitor is connected before the guest runs. Fails
 * with VMM_ERROR_INVALID_REQUEST before anything is started. The only place that quotes. */
GStrv vmm_qemu_args_build (const VmmQemuConfig *config, GError **error);

/* SMBIOS strings of the product: one constant each. */
#define VMM_SMBIOS_MANUFACTURER "GiantSwarm"
#define VMM_SMBIOS_PRODUCT "vm-manager"

G_END_DECLS

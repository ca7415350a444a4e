/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "interfaces/vmm.h"
#include "vmm-host.h"
#include "vmm-images.h"
#include "vmm-network-table.h"
#include "vmm-options.h"

G_BEGIN_DECLS

/* What all machines of a service share. Owned by the service, outlives every machine. */
typedef struct
{
  char *state_dir;
  VmmOptions *options;
  VmmHost *host;
  VmmImages *images;
  VmmNetworkTable *networks;
  VmmLauncher *launcher;
  VmmStorageBackend *storage;
  VmmAttestor *attestor;      /* NULL when there is none */
  gint64 install_timeout_us;
  gint64 boot_timeout_us;
  gint64 stop_timeout_us;
  /* How much longer each is for an emulated guest; 0 for not at all. */
  guint install_factor;
  guint boot_factor;
  guint stop_factor;
  gboolean closing;
  /* The next vsock CID that no machine of this daemon has, 0 for none. May be NULL. */
  guint32 (*next_cid) (gpointer data, guint32 after);
  gpointer next_cid_data;
  /* Makes sure that the metadata service listens for a VM, before that boots. May be NULL. */
  gboolean (*open_metadata) (gpointer data, const char *vm_id, GError **error);
  gpointer open_metadata_data;
} VmmMachineContext;

G_END_DECLS

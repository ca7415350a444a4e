/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "vmm-coalesced-file.h"
#include "vmm-network-entry.h"

G_BEGIN_DECLS

/* Shared by the files that make up the table; nobody else includes this. */
struct _VmmNetworkTable
{
  GObject parent_instance;

  char *directory; /* <state>/networks */
  char *path;      /* <state>/networks.json */
  VmmNetworkBackend *backend;
  VmmLauncher *launcher;
  VmmCoalescedFile *file;
  GPtrArray *entries; /* of VmmNetworkEntry, by name */
  /* Of networks that are gone, whose folders are not: name → whether one is being removed now. */
  GHashTable *leaving;
  gboolean closed;
};

/* Any network, also one that is only being created; NULL when there is none. */
VmmNetworkEntry *vmm_network_table_find_any (VmmNetworkTable *self, const char *name);
/* A recorded network, or NULL and VMM_ERROR_NOT_FOUND. */
VmmNetworkEntry *vmm_network_table_find (VmmNetworkTable *self, const char *name, GError **error);
/* The same for one that is to be used: not while it is deleted or after the table was closed. */
VmmNetworkEntry *vmm_network_table_find_usable (VmmNetworkTable *self, const char *name,
                                                GError **error);
/* In its place by name. */
void vmm_network_table_take_entry (VmmNetworkTable *self, VmmNetworkEntry *entry);
char *vmm_network_table_dup_directory (VmmNetworkTable *self, VmmNetworkEntry *entry);

/* Brings a network up unless it is; callers meanwhile share one attempt. */
void vmm_network_table_open_async (VmmNetworkTable *self, VmmNetworkEntry *entry,
                                   GCancellable *cancellable, GAsyncReadyCallback callback,
                                   gpointer user_data);
gboolean vmm_network_table_open_finish (VmmNetworkTable *self, GAsyncResult *result,
                                        GError **error);

/* Several asynchronous jobs under one task: its data is a guint, one hold a job, and one for the
 * loop that starts them. The task succeeds when the last one is done. */
GTask *vmm_network_jobs_hold (GTask *task);
void vmm_network_jobs_done (GTask *task);

gboolean vmm_network_path_exists (const char *path);

G_END_DECLS

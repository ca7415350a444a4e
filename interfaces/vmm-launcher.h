/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "vmm-backend.h"
#include "vmm-process.h"

G_BEGIN_DECLS

/**
 * VMM_LAUNCHER_EXTENSION_POINT:
 *
 * The extension point of launchers.
 */
#define VMM_LAUNCHER_EXTENSION_POINT "vmm-launcher"
#define VMM_TYPE_LAUNCHER (vmm_launcher_get_type ())
G_DECLARE_INTERFACE (VmmLauncher, vmm_launcher, VMM, LAUNCHER, VmmBackend)

/**
 * VmmLauncherInterface:
 * @outlives_daemon: whether processes stay when the daemon ends, and can be found again
 * @start_async: start a process
 * @start_finish: (transfer full): the running process
 * @find_async: find a process that this or an earlier daemon started, by its id and the
 *   handle in the record. A process that has ended but whose status is still recorded is
 *   found too and emits ::exited at once
 * @find_finish: (transfer full): the process; fails with %VMM_ERROR_NOT_FOUND when it is gone
 *
 * Runs the processes of VMs and networks.
 */
struct _VmmLauncherInterface
{
  GTypeInterface parent_iface;

  gboolean (*outlives_daemon) (VmmLauncher *self);
  void (*start_async) (VmmLauncher *self, VmmProcessSpec *spec, GCancellable *cancellable,
                       GAsyncReadyCallback callback, gpointer user_data);
  VmmProcess *(*start_finish) (VmmLauncher *self, GAsyncResult *result, GError **error);
  void (*find_async) (VmmLauncher *self, const char *id, const VmmProcessHandle *handle,
                      GCancellable *cancellable, GAsyncReadyCallback callback, gpointer user_data);
  VmmProcess *(*find_finish) (VmmLauncher *self, GAsyncResult *result, GError **error);
};

gboolean vmm_launcher_outlives_daemon (VmmLauncher *self);
void vmm_launcher_start_async (VmmLauncher *self, VmmProcessSpec *spec, GCancellable *cancellable,
                               GAsyncReadyCallback callback, gpointer user_data);
VmmProcess *vmm_launcher_start_finish (VmmLauncher *self, GAsyncResult *result, GError **error);
void vmm_launcher_find_async (VmmLauncher *self, const char *id, const VmmProcessHandle *handle,
                              GCancellable *cancellable, GAsyncReadyCallback callback,
                              gpointer user_data);
VmmProcess *vmm_launcher_find_finish (VmmLauncher *self, GAsyncResult *result, GError **error);

G_END_DECLS

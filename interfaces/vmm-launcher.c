/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Starts the processes of VMs and networks and finds them again.
 *
 * Only the interface with its defaults: a backend that implements nothing starts nothing. What
 * a process is once it runs is in vmm-process.c.
 */

#include "vmm-launcher.h"

#include "vmm-error.h"

/**
 * VmmLauncher:
 *
 * Runs the processes of VMs and networks and finds them again. A backend that implements nothing
 * starts nothing.
 */
G_DEFINE_INTERFACE (VmmLauncher, vmm_launcher, VMM_TYPE_BACKEND)

static gboolean
real_outlives_daemon (VmmLauncher *self)
{
  return FALSE;
}

static void
real_start_async (VmmLauncher *self, VmmProcessSpec *spec, GCancellable *cancellable,
                  GAsyncReadyCallback callback, gpointer user_data)
{
  g_task_report_error (self, callback, user_data, real_start_async,
                       vmm_error_new (VMM_ERROR_UNSUPPORTED, "launcher starts no processes"));
}

static void
real_find_async (VmmLauncher *self, const char *id, const VmmProcessHandle *handle,
                 GCancellable *cancellable, GAsyncReadyCallback callback, gpointer user_data)
{
  g_task_report_error (self, callback, user_data, real_find_async,
                       vmm_error_new (VMM_ERROR_UNSUPPORTED, "launcher cannot reattach processes"));
}

static VmmProcess *
real_finish (VmmLauncher *self, GAsyncResult *result, GError **error)
{
  g_return_val_if_fail (g_task_is_valid (result, self), NULL);

  return g_task_propagate_pointer (G_TASK (result), error);
}

static void
vmm_launcher_default_init (VmmLauncherInterface *iface)
{
  iface->outlives_daemon = real_outlives_daemon;
  iface->start_async = real_start_async;
  iface->start_finish = real_finish;
  iface->find_async = real_find_async;
  iface->find_finish = real_finish;
}

/**
 * vmm_launcher_outlives_daemon:
 * @self: a launcher
 *
 * Whether its processes stay when the daemon ends and can be found again by the next one.
 *
 * Returns: %TRUE when they stay
 */
gboolean
vmm_launcher_outlives_daemon (VmmLauncher *self)
{
  g_return_val_if_fail (VMM_IS_LAUNCHER (self), FALSE);

  return VMM_LAUNCHER_GET_IFACE (self)->outlives_daemon (self);
}

/**
 * vmm_launcher_start_async:
 * @self: a launcher
 * @spec: what to run; not to be changed from now on
 * @cancellable: (nullable): gives up the start: the process then does not run
 * @callback: (scope async): called when the process runs
 * @user_data: data for @callback
 *
 * Starts a process with `/dev/null` as its standard input and both outputs appended to the log
 * file. Cancelling has no effect on a process once it runs.
 *
 * Fails with `VMM_ERROR_UNSUPPORTED` when the launcher cannot give what @spec asks for, with
 * `VMM_ERROR_CONFLICT` when a process with this id runs already, with `VMM_ERROR_NOT_FOUND` when
 * there is no such program.
 */
void
vmm_launcher_start_async (VmmLauncher *self, VmmProcessSpec *spec, GCancellable *cancellable,
                          GAsyncReadyCallback callback, gpointer user_data)
{
  g_return_if_fail (VMM_IS_LAUNCHER (self));
  g_return_if_fail (spec != NULL);
  g_return_if_fail (cancellable == NULL || G_IS_CANCELLABLE (cancellable));

  VMM_LAUNCHER_GET_IFACE (self)->start_async (self, spec, cancellable, callback, user_data);
}

/**
 * vmm_launcher_start_finish:
 * @self: a launcher
 * @result: what the callback was given
 * @error: return location for an error
 *
 * Ends vmm_launcher_start_async().
 *
 * Returns: (transfer full): the running process, or %NULL with an error
 */
VmmProcess *
vmm_launcher_start_finish (VmmLauncher *self, GAsyncResult *result, GError **error)
{
  g_return_val_if_fail (VMM_IS_LAUNCHER (self), NULL);
  g_return_val_if_fail (G_IS_ASYNC_RESULT (result), NULL);

  return VMM_LAUNCHER_GET_IFACE (self)->start_finish (self, result, error);
}

/**
 * vmm_launcher_find_async:
 * @self: a launcher
 * @id: the id it was started with
 * @handle: (nullable): what the record kept of it
 * @cancellable: (nullable): gives up the search
 * @callback: (scope async): called when the search is over
 * @user_data: data for @callback
 *
 * Finds a process that this or an earlier daemon started. One that has ended but whose exit status
 * is still recorded is found too; it emits [signal@Process::exited] right after the callback.
 *
 * Fails with `VMM_ERROR_NOT_FOUND` when nothing is left of it and with `VMM_ERROR_UNSUPPORTED`
 * when the launcher's processes do not outlive the daemon.
 */
void
vmm_launcher_find_async (VmmLauncher *self, const char *id, const VmmProcessHandle *handle,
                         GCancellable *cancellable, GAsyncReadyCallback callback,
                         gpointer user_data)
{
  g_return_if_fail (VMM_IS_LAUNCHER (self));
  g_return_if_fail (id != NULL);
  g_return_if_fail (cancellable == NULL || G_IS_CANCELLABLE (cancellable));

  VMM_LAUNCHER_GET_IFACE (self)->find_async (self, id, handle, cancellable, callback, user_data);
}

/**
 * vmm_launcher_find_finish:
 * @self: a launcher
 * @result: what the callback was given
 * @error: return location for an error
 *
 * Ends vmm_launcher_find_async().
 *
 * Returns: (transfer full): the process, or %NULL with an error
 */
VmmProcess *
vmm_launcher_find_finish (VmmLauncher *self, GAsyncResult *result, GError **error)
{
  g_return_val_if_fail (VMM_IS_LAUNCHER (self), NULL);
  g_return_val_if_fail (G_IS_ASYNC_RESULT (result), NULL);

  return VMM_LAUNCHER_GET_IFACE (self)->find_finish (self, result, error);
}

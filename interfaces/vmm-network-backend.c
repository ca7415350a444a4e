/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Carries the packets: the interface of network backends and the base class of their networks.
 *
 * A backend opens networks; a network that is up has ports for VMs, reaches into guests and
 * counts. What a network does not implement fails as unsupported, except closing, where there may
 * be nothing to do, and counters, of which there may be none.
 */

#include "vmm-network-backend.h"

#include <string.h>

#include "vmm-error.h"

enum
{
  SIGNAL_FAILED,
  SIGNAL_RECOVERED,
  N_SIGNALS,
};

static guint signals[N_SIGNALS];

/**
 * VmmNetworkBackend:
 *
 * Opens networks. Each one that is up is a [class@Network].
 */
G_DEFINE_ABSTRACT_TYPE (VmmNetwork, vmm_network, G_TYPE_OBJECT)
G_DEFINE_INTERFACE (VmmNetworkBackend, vmm_network_backend, VMM_TYPE_BACKEND)

static void
real_attach_async (VmmNetwork *self, const VmmNetworkPort *port, GCancellable *cancellable,
                   GAsyncReadyCallback callback, gpointer user_data)
{
  g_task_report_error (self, callback, user_data, real_attach_async,
                       vmm_error_new (VMM_ERROR_UNSUPPORTED, "network takes no VMs"));
}

static void
real_detach_async (VmmNetwork *self, const char *vm_id, GCancellable *cancellable,
                   GAsyncReadyCallback callback, gpointer user_data)
{
  g_task_report_error (self, callback, user_data, real_detach_async,
                       vmm_error_new (VMM_ERROR_UNSUPPORTED, "network cannot detach VMs"));
}

static void
real_dial_async (VmmNetwork *self, const char *vm_id, const char *ip, guint16 port,
                 GCancellable *cancellable, GAsyncReadyCallback callback, gpointer user_data)
{
  g_task_report_error (self, callback, user_data, real_dial_async,
                       vmm_error_new (VMM_ERROR_UNSUPPORTED, "network cannot reach guests"));
}

static void
real_forward_async (VmmNetwork *self, const VmmForwardSpec *spec, GCancellable *cancellable,
                    GAsyncReadyCallback callback, gpointer user_data)
{
  g_task_report_error (self, callback, user_data, real_forward_async,
                       vmm_error_new (VMM_ERROR_UNSUPPORTED, "network cannot forward ports"));
}

static void
real_unforward_async (VmmNetwork *self, const char *forward_id, GCancellable *cancellable,
                      GAsyncReadyCallback callback, gpointer user_data)
{
  g_task_report_error (self, callback, user_data, real_unforward_async,
                       vmm_error_new (VMM_ERROR_UNSUPPORTED, "network cannot forward ports"));
}

static gboolean
real_get_counters (VmmNetwork *self, VmmNetworkCounters *counters)
{
  return FALSE;
}

static void
real_close_async (VmmNetwork *self, gboolean keep_running, GCancellable *cancellable,
                  GAsyncReadyCallback callback, gpointer user_data)
{
  g_autoptr (GTask) task = g_task_new (self, cancellable, callback, user_data);

  g_task_set_source_tag (task, real_close_async);
  g_task_return_boolean (task, TRUE);
}

static gpointer
real_pointer_finish (VmmNetwork *self, GAsyncResult *result, GError **error)
{
  g_return_val_if_fail (g_task_is_valid (result, self), NULL);

  return g_task_propagate_pointer (G_TASK (result), error);
}

static VmmAttachment *
real_attach_finish (VmmNetwork *self, GAsyncResult *result, GError **error)
{
  return real_pointer_finish (self, result, error);
}

static GIOStream *
real_dial_finish (VmmNetwork *self, GAsyncResult *result, GError **error)
{
  return real_pointer_finish (self, result, error);
}

static gboolean
real_boolean_finish (VmmNetwork *self, GAsyncResult *result, GError **error)
{
  g_return_val_if_fail (g_task_is_valid (result, self), FALSE);

  return g_task_propagate_boolean (G_TASK (result), error);
}

static guint
real_forward_finish (VmmNetwork *self, GAsyncResult *result, GError **error)
{
  gssize port;

  g_return_val_if_fail (g_task_is_valid (result, self), 0);

  port = g_task_propagate_int (G_TASK (result), error);
  return port < 0 ? 0 : (guint) port;
}

static void
real_keep_only (VmmNetwork *self, const char *const *vm_ids, const char *const *forward_ids)
{
}

static void
vmm_network_class_init (VmmNetworkClass *klass)
{
  klass->attach_async = real_attach_async;
  klass->attach_finish = real_attach_finish;
  klass->detach_async = real_detach_async;
  klass->detach_finish = real_boolean_finish;
  klass->dial_async = real_dial_async;
  klass->dial_finish = real_dial_finish;
  klass->forward_async = real_forward_async;
  klass->forward_finish = real_forward_finish;
  klass->unforward_async = real_unforward_async;
  klass->unforward_finish = real_boolean_finish;
  klass->get_counters = real_get_counters;
  klass->close_async = real_close_async;
  klass->close_finish = real_boolean_finish;
  klass->keep_only = real_keep_only;

  /**
   * VmmNetwork::failed:
   * @self: the network
   * @reason: a sentence for people
   *
   * The network carries no packets any more. It may recover.
   */
  signals[SIGNAL_FAILED] = g_signal_new ("failed", G_TYPE_FROM_CLASS (klass), G_SIGNAL_RUN_LAST, 0,
                                         NULL, NULL, NULL, G_TYPE_NONE, 1, G_TYPE_STRING);

  /**
   * VmmNetwork::recovered:
   * @self: the network
   *
   * The network carries packets again.
   */
  signals[SIGNAL_RECOVERED] = g_signal_new ("recovered", G_TYPE_FROM_CLASS (klass),
                                            G_SIGNAL_RUN_LAST, 0, NULL, NULL, NULL, G_TYPE_NONE, 0);
}

static void
vmm_network_init (VmmNetwork *self)
{
}

/**
 * vmm_network_attach_async:
 * @self: a network
 * @port: the VM's place; copied by the network where it is needed later
 * @cancellable: (nullable): gives up; the VM is not attached then
 * @callback: (scope async): called when the port is there
 * @user_data: data for @callback
 *
 * Gives a VM its port. Attaching a VM that has the same port already succeeds, so that a daemon
 * that starts again can simply say which VMs there are.
 *
 * Fails with `VMM_ERROR_CONFLICT` when the address or the VM is attached differently.
 */
void
vmm_network_attach_async (VmmNetwork *self, const VmmNetworkPort *port, GCancellable *cancellable,
                          GAsyncReadyCallback callback, gpointer user_data)
{
  g_return_if_fail (VMM_IS_NETWORK (self));
  g_return_if_fail (port != NULL && port->vm_id != NULL);
  g_return_if_fail (cancellable == NULL || G_IS_CANCELLABLE (cancellable));

  VMM_NETWORK_GET_CLASS (self)->attach_async (self, port, cancellable, callback, user_data);
}

/**
 * vmm_network_attach_finish:
 * @self: a network
 * @result: what the callback was given
 * @error: return location for an error
 *
 * Ends vmm_network_attach_async().
 *
 * Returns: (transfer full): what QEMU is told and may open, or %NULL with an error
 */
VmmAttachment *
vmm_network_attach_finish (VmmNetwork *self, GAsyncResult *result, GError **error)
{
  g_return_val_if_fail (VMM_IS_NETWORK (self), NULL);
  g_return_val_if_fail (G_IS_ASYNC_RESULT (result), NULL);

  return VMM_NETWORK_GET_CLASS (self)->attach_finish (self, result, error);
}

/**
 * vmm_network_detach_async:
 * @self: a network
 * @vm_id: the VM
 * @cancellable: (nullable): gives up waiting; the port may be gone or not then
 * @callback: (scope async): called when the port is gone
 * @user_data: data for @callback
 *
 * Takes a VM's port away, with its forwards. Fails with `VMM_ERROR_NOT_FOUND` when it has none.
 */
void
vmm_network_detach_async (VmmNetwork *self, const char *vm_id, GCancellable *cancellable,
                          GAsyncReadyCallback callback, gpointer user_data)
{
  g_return_if_fail (VMM_IS_NETWORK (self));
  g_return_if_fail (vm_id != NULL);
  g_return_if_fail (cancellable == NULL || G_IS_CANCELLABLE (cancellable));

  VMM_NETWORK_GET_CLASS (self)->detach_async (self, vm_id, cancellable, callback, user_data);
}

/**
 * vmm_network_detach_finish:
 * @self: a network
 * @result: what the callback was given
 * @error: return location for an error
 *
 * Ends vmm_network_detach_async().
 *
 * Returns: whether the port is gone; %FALSE with an error otherwise
 */
gboolean
vmm_network_detach_finish (VmmNetwork *self, GAsyncResult *result, GError **error)
{
  g_return_val_if_fail (VMM_IS_NETWORK (self), FALSE);
  g_return_val_if_fail (G_IS_ASYNC_RESULT (result), FALSE);

  return VMM_NETWORK_GET_CLASS (self)->detach_finish (self, result, error);
}

/**
 * vmm_network_dial_async:
 * @self: a network
 * @vm_id: the VM
 * @ip: its IPv4 address
 * @port: a TCP port, not 0
 * @cancellable: (nullable): gives up; no connection is left then
 * @callback: (scope async): called when the connection is there
 * @user_data: data for @callback
 *
 * Connects to a TCP port of a guest, from the gateway's address.
 *
 * Fails with `VMM_ERROR_NOT_FOUND` when the VM is not attached, with `VMM_ERROR_TIMEOUT` when the
 * guest does not answer and with `VMM_ERROR_INTERNAL` when it refuses.
 */
void
vmm_network_dial_async (VmmNetwork *self, const char *vm_id, const char *ip, guint16 port,
                        GCancellable *cancellable, GAsyncReadyCallback callback, gpointer user_data)
{
  g_return_if_fail (VMM_IS_NETWORK (self));
  g_return_if_fail (vm_id != NULL);
  g_return_if_fail (ip != NULL);
  g_return_if_fail (port != 0);
  g_return_if_fail (cancellable == NULL || G_IS_CANCELLABLE (cancellable));

  VMM_NETWORK_GET_CLASS (self)->dial_async (self, vm_id, ip, port, cancellable, callback,
                                            user_data);
}

/**
 * vmm_network_dial_finish:
 * @self: a network
 * @result: what the callback was given
 * @error: return location for an error
 *
 * Ends vmm_network_dial_async().
 *
 * Returns: (transfer full): the connection, or %NULL with an error
 */
GIOStream *
vmm_network_dial_finish (VmmNetwork *self, GAsyncResult *result, GError **error)
{
  g_return_val_if_fail (VMM_IS_NETWORK (self), NULL);
  g_return_val_if_fail (G_IS_ASYNC_RESULT (result), NULL);

  return VMM_NETWORK_GET_CLASS (self)->dial_finish (self, result, error);
}

/**
 * vmm_network_forward_async:
 * @self: a network
 * @spec: what to forward; copied by the network where it is needed later
 * @cancellable: (nullable): gives up; nothing listens then
 * @callback: (scope async): called when the host's port listens
 * @user_data: data for @callback
 *
 * Forwards a port of the host to a port of a VM.
 *
 * Fails with `VMM_ERROR_CONFLICT` when the host's port is taken, with `VMM_ERROR_NOT_FOUND` when
 * the VM is not attached, with `VMM_ERROR_UNSUPPORTED` for a protocol that the network lacks.
 */
void
vmm_network_forward_async (VmmNetwork *self, const VmmForwardSpec *spec, GCancellable *cancellable,
                           GAsyncReadyCallback callback, gpointer user_data)
{
  g_return_if_fail (VMM_IS_NETWORK (self));
  g_return_if_fail (spec != NULL && spec->id != NULL);
  g_return_if_fail (cancellable == NULL || G_IS_CANCELLABLE (cancellable));

  VMM_NETWORK_GET_CLASS (self)->forward_async (self, spec, cancellable, callback, user_data);
}

/**
 * vmm_network_forward_finish:
 * @self: a network
 * @result: what the callback was given
 * @error: return location for an error
 *
 * Ends vmm_network_forward_async().
 *
 * Returns: the host's port, or 0 with an error
 */
guint
vmm_network_forward_finish (VmmNetwork *self, GAsyncResult *result, GError **error)
{
  g_return_val_if_fail (VMM_IS_NETWORK (self), 0);
  g_return_val_if_fail (G_IS_ASYNC_RESULT (result), 0);

  return VMM_NETWORK_GET_CLASS (self)->forward_finish (self, result, error);
}

/**
 * vmm_network_unforward_async:
 * @self: a network
 * @forward_id: the forward's id
 * @cancellable: (nullable): gives up waiting; the forward may be gone or not then
 * @callback: (scope async): called when nothing listens any more
 * @user_data: data for @callback
 *
 * Ends a forward and its connections. Fails with `VMM_ERROR_NOT_FOUND` when there is none.
 */
void
vmm_network_unforward_async (VmmNetwork *self, const char *forward_id, GCancellable *cancellable,
                             GAsyncReadyCallback callback, gpointer user_data)
{
  g_return_if_fail (VMM_IS_NETWORK (self));
  g_return_if_fail (forward_id != NULL);
  g_return_if_fail (cancellable == NULL || G_IS_CANCELLABLE (cancellable));

  VMM_NETWORK_GET_CLASS (self)->unforward_async (self, forward_id, cancellable, callback,
                                                 user_data);
}

/**
 * vmm_network_unforward_finish:
 * @self: a network
 * @result: what the callback was given
 * @error: return location for an error
 *
 * Ends vmm_network_unforward_async().
 *
 * Returns: whether the forward is gone; %FALSE with an error otherwise
 */
gboolean
vmm_network_unforward_finish (VmmNetwork *self, GAsyncResult *result, GError **error)
{
  g_return_val_if_fail (VMM_IS_NETWORK (self), FALSE);
  g_return_val_if_fail (G_IS_ASYNC_RESULT (result), FALSE);

  return VMM_NETWORK_GET_CLASS (self)->unforward_finish (self, result, error);
}

/**
 * vmm_network_get_counters:
 * @self: a network
 * @counters: (out caller-allocates): the counters; all 0 when there are none
 *
 * What the network carried since it came up, as last known. Cheap.
 *
 * Returns: %FALSE when the network does not count
 */
gboolean
vmm_network_get_counters (VmmNetwork *self, VmmNetworkCounters *counters)
{
  g_return_val_if_fail (VMM_IS_NETWORK (self), FALSE);
  g_return_val_if_fail (counters != NULL, FALSE);

  memset (counters, 0, sizeof *counters);
  return VMM_NETWORK_GET_CLASS (self)->get_counters (self, counters);
}

/**
 * vmm_network_close_async:
 * @self: a network
 * @keep_running: whether the packets shall go on, for a daemon that comes back
 * @cancellable: (nullable): gives up waiting
 * @callback: (scope async): called when the network is closed
 * @user_data: data for @callback
 *
 * Leaves the network. With @keep_running what can outlive the daemon is left as it is; without, or
 * when it cannot, every port, forward and helper is gone afterwards.
 */
void
vmm_network_close_async (VmmNetwork *self, gboolean keep_running, GCancellable *cancellable,
                         GAsyncReadyCallback callback, gpointer user_data)
{
  g_return_if_fail (VMM_IS_NETWORK (self));
  g_return_if_fail (cancellable == NULL || G_IS_CANCELLABLE (cancellable));

  VMM_NETWORK_GET_CLASS (self)->close_async (self, keep_running, cancellable, callback, user_data);
}

/**
 * vmm_network_close_finish:
 * @self: a network
 * @result: what the callback was given
 * @error: return location for an error
 *
 * Ends vmm_network_close_async().
 *
 * Returns: whether it is closed; %FALSE with an error otherwise
 */
gboolean
vmm_network_close_finish (VmmNetwork *self, GAsyncResult *result, GError **error)
{
  g_return_val_if_fail (VMM_IS_NETWORK (self), FALSE);
  g_return_val_if_fail (G_IS_ASYNC_RESULT (result), FALSE);

  return VMM_NETWORK_GET_CLASS (self)->close_finish (self, result, error);
}

/**
 * vmm_network_keep_only:
 * @self: a network
 * @vm_ids: (array zero-terminated=1): the VMs that have an address on it
 * @forward_ids: (array zero-terminated=1): the forwards that are recorded
 *
 * Says what the daemon knows once it has read everything. Ports and forwards of an earlier daemon
 * that are not among these, because that one was killed before it could record or undo them, go. What
 * this network was asked for itself stays.
 */
void
vmm_network_keep_only (VmmNetwork *self, const char *const *vm_ids, const char *const *forward_ids)
{
  g_return_if_fail (VMM_IS_NETWORK (self));
  g_return_if_fail (vm_ids != NULL && forward_ids != NULL);

  VMM_NETWORK_GET_CLASS (self)->keep_only (self, vm_ids, forward_ids);
}

static void
real_open_async (VmmNetworkBackend *self, const VmmNetworkSpec *spec, VmmLauncher *launcher,
                 GCancellable *cancellable, GAsyncReadyCallback callback, gpointer user_data)
{
  g_task_report_error (self, callback, user_data, real_open_async,
                       vmm_error_new (VMM_ERROR_UNSUPPORTED, "backend opens no networks"));
}

static VmmNetwork *
real_open_finish (VmmNetworkBackend *self, GAsyncResult *result, GError **error)
{
  g_return_val_if_fail (g_task_is_valid (result, self), NULL);

  return g_task_propagate_pointer (G_TASK (result), error);
}

static void
vmm_network_backend_default_init (VmmNetworkBackendInterface *iface)
{
  iface->open_async = real_open_async;
  iface->open_finish = real_open_finish;
}

/**
 * vmm_network_backend_open_async:
 * @self: a network backend
 * @spec: the network; copied by the backend where it is needed later
 * @launcher: starts the helpers that the network needs
 * @cancellable: (nullable): gives up; what was started for it is ended again
 * @callback: (scope async): called when the network is up
 * @user_data: data for @callback
 *
 * Brings a network up, or finds it again when it still runs. VMs are attached afterwards.
 *
 * Fails with `VMM_ERROR_CONFLICT` when the prefix is in use on the host and with
 * `VMM_ERROR_UNSUPPORTED` for what the backend cannot do.
 */
void
vmm_network_backend_open_async (VmmNetworkBackend *self, const VmmNetworkSpec *spec,
                                VmmLauncher *launcher, GCancellable *cancellable,
                                GAsyncReadyCallback callback, gpointer user_data)
{
  g_return_if_fail (VMM_IS_NETWORK_BACKEND (self));
  g_return_if_fail (spec != NULL && spec->name != NULL);
  g_return_if_fail (VMM_IS_LAUNCHER (launcher));
  g_return_if_fail (cancellable == NULL || G_IS_CANCELLABLE (cancellable));

  VMM_NETWORK_BACKEND_GET_IFACE (self)->open_async (self, spec, launcher, cancellable, callback,
                                                    user_data);
}

/**
 * vmm_network_backend_open_finish:
 * @self: a network backend
 * @result: what the callback was given
 * @error: return location for an error
 *
 * Ends vmm_network_backend_open_async().
 *
 * Returns: (transfer full): the network, or %NULL with an error
 */
VmmNetwork *
vmm_network_backend_open_finish (VmmNetworkBackend *self, GAsyncResult *result, GError **error)
{
  g_return_val_if_fail (VMM_IS_NETWORK_BACKEND (self), NULL);
  g_return_val_if_fail (G_IS_ASYNC_RESULT (result), NULL);

  return VMM_NETWORK_BACKEND_GET_IFACE (self)->open_finish (self, result, error);
}

/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Keeps the disks: the storage interface with its defaults.
 *
 * A backend that implements nothing holds no volumes. What a volume is while it is in use is in
 * vmm-volume.c.
 */

#include "vmm-storage-backend.h"

#include "vmm-error.h"

/**
 * VmmStorageBackend:
 *
 * Keeps the disks. What a backend does not implement is unsupported.
 */
G_DEFINE_INTERFACE (VmmStorageBackend, vmm_storage_backend, VMM_TYPE_BACKEND)

static void
real_acquire_async (VmmStorageBackend *self, const VmmVolumeRequest *request,
                    GCancellable *cancellable, GAsyncReadyCallback callback, gpointer user_data)
{
  g_task_report_error (self, callback, user_data, real_acquire_async,
                       vmm_error_new (VMM_ERROR_UNSUPPORTED, "storage provides no volumes"));
}

static VmmVolume *
real_acquire_finish (VmmStorageBackend *self, GAsyncResult *result, GError **error)
{
  g_return_val_if_fail (g_task_is_valid (result, self), NULL);

  return g_task_propagate_pointer (G_TASK (result), error);
}

static void
real_grow_async (VmmStorageBackend *self, VmmVolume *volume, guint64 size_bytes,
                 GCancellable *cancellable, GAsyncReadyCallback callback, gpointer user_data)
{
  g_task_report_error (self, callback, user_data, real_grow_async,
                       vmm_error_new (VMM_ERROR_UNSUPPORTED, "storage cannot grow volumes"));
}

static void
real_remove_async (VmmStorageBackend *self, const char *name, GCancellable *cancellable,
                   GAsyncReadyCallback callback, gpointer user_data)
{
  g_task_report_error (self, callback, user_data, real_remove_async,
                       vmm_error_new (VMM_ERROR_UNSUPPORTED, "storage cannot remove volumes"));
}

static gboolean
real_boolean_finish (VmmStorageBackend *self, GAsyncResult *result, GError **error)
{
  g_return_val_if_fail (g_task_is_valid (result, self), FALSE);

  return g_task_propagate_boolean (G_TASK (result), error);
}

static void
real_list_async (VmmStorageBackend *self, const char *glob, GCancellable *cancellable,
                 GAsyncReadyCallback callback, gpointer user_data)
{
  g_task_report_error (self, callback, user_data, real_list_async,
                       vmm_error_new (VMM_ERROR_UNSUPPORTED, "storage cannot list volumes"));
}

static GPtrArray *
real_list_finish (VmmStorageBackend *self, GAsyncResult *result, GError **error)
{
  g_return_val_if_fail (g_task_is_valid (result, self), NULL);

  return g_task_propagate_pointer (G_TASK (result), error);
}

static void
vmm_storage_backend_default_init (VmmStorageBackendInterface *iface)
{
  iface->acquire_async = real_acquire_async;
  iface->acquire_finish = real_acquire_finish;
  iface->grow_async = real_grow_async;
  iface->grow_finish = real_boolean_finish;
  iface->remove_async = real_remove_async;
  iface->remove_finish = real_boolean_finish;
  iface->list_async = real_list_async;
  iface->list_finish = real_list_finish;
}

/**
 * vmm_storage_backend_acquire_async:
 * @self: a storage backend
 * @request: which volume; copied by the backend where it is needed later
 * @cancellable: (nullable): gives up; a volume that was created for it is removed again
 * @callback: (scope async): called when the volume can be used
 * @user_data: data for @callback
 *
 * Creates a volume or opens an existing one.
 *
 * Fails with `VMM_ERROR_INVALID_REQUEST` for a name or size that cannot be, with
 * `VMM_ERROR_NOT_FOUND` when it is to be opened and does not exist, with `VMM_ERROR_CONFLICT` when
 * it is to be new and exists or is in use, with `VMM_ERROR_UNSUPPORTED` for a template that the
 * backend does not know or a kind of volume that it cannot use.
 */
void
vmm_storage_backend_acquire_async (VmmStorageBackend *self, const VmmVolumeRequest *request,
                                   GCancellable *cancellable, GAsyncReadyCallback callback,
                                   gpointer user_data)
{
  g_return_if_fail (VMM_IS_STORAGE_BACKEND (self));
  g_return_if_fail (request != NULL && request->name != NULL);
  g_return_if_fail (cancellable == NULL || G_IS_CANCELLABLE (cancellable));

  VMM_STORAGE_BACKEND_GET_IFACE (self)->acquire_async (self, request, cancellable, callback,
                                                       user_data);
}

/**
 * vmm_storage_backend_acquire_finish:
 * @self: a storage backend
 * @result: what the callback was given
 * @error: return location for an error
 *
 * Ends vmm_storage_backend_acquire_async().
 *
 * Returns: (transfer full): the volume, or %NULL with an error
 */
VmmVolume *
vmm_storage_backend_acquire_finish (VmmStorageBackend *self, GAsyncResult *result, GError **error)
{
  g_return_val_if_fail (VMM_IS_STORAGE_BACKEND (self), NULL);
  g_return_val_if_fail (G_IS_ASYNC_RESULT (result), NULL);

  return VMM_STORAGE_BACKEND_GET_IFACE (self)->acquire_finish (self, result, error);
}

/**
 * vmm_storage_backend_grow_async:
 * @self: a storage backend
 * @volume: a volume that it gave out
 * @size_bytes: the size it shall have, in bytes
 * @cancellable: (nullable): gives up waiting; the volume may have either size then
 * @callback: (scope async): called when the volume has the size
 * @user_data: data for @callback
 *
 * Makes a volume larger. Asking for the size it has succeeds.
 *
 * Fails with `VMM_ERROR_INVALID_REQUEST` when it would shrink and with `VMM_ERROR_UNSUPPORTED` when
 * the backend cannot grow volumes.
 */
void
vmm_storage_backend_grow_async (VmmStorageBackend *self, VmmVolume *volume, guint64 size_bytes,
                                GCancellable *cancellable, GAsyncReadyCallback callback,
                                gpointer user_data)
{
  g_return_if_fail (VMM_IS_STORAGE_BACKEND (self));
  g_return_if_fail (VMM_IS_VOLUME (volume));
  g_return_if_fail (cancellable == NULL || G_IS_CANCELLABLE (cancellable));

  VMM_STORAGE_BACKEND_GET_IFACE (self)->grow_async (self, volume, size_bytes, cancellable, callback,
                                                    user_data);
}

/**
 * vmm_storage_backend_grow_finish:
 * @self: a storage backend
 * @result: what the callback was given
 * @error: return location for an error
 *
 * Ends vmm_storage_backend_grow_async(). vmm_volume_get_size() gives the new size afterwards.
 *
 * Returns: whether the volume has the size now; %FALSE with an error otherwise
 */
gboolean
vmm_storage_backend_grow_finish (VmmStorageBackend *self, GAsyncResult *result, GError **error)
{
  g_return_val_if_fail (VMM_IS_STORAGE_BACKEND (self), FALSE);
  g_return_val_if_fail (G_IS_ASYNC_RESULT (result), FALSE);

  return VMM_STORAGE_BACKEND_GET_IFACE (self)->grow_finish (self, result, error);
}

/**
 * vmm_storage_backend_remove_async:
 * @self: a storage backend
 * @name: the volume's name
 * @cancellable: (nullable): gives up waiting; the volume may be gone or not then
 * @callback: (scope async): called when the volume is gone
 * @user_data: data for @callback
 *
 * Deletes a volume that nobody uses.
 *
 * Fails with `VMM_ERROR_NOT_FOUND` when it does not exist, with `VMM_ERROR_CONFLICT` when it is in
 * use, with `VMM_ERROR_INVALID_REQUEST` for a name that cannot be.
 */
void
vmm_storage_backend_remove_async (VmmStorageBackend *self, const char *name,
                                  GCancellable *cancellable, GAsyncReadyCallback callback,
                                  gpointer user_data)
{
  g_return_if_fail (VMM_IS_STORAGE_BACKEND (self));
  g_return_if_fail (name != NULL);
  g_return_if_fail (cancellable == NULL || G_IS_CANCELLABLE (cancellable));

  VMM_STORAGE_BACKEND_GET_IFACE (self)->remove_async (self, name, cancellable, callback, user_data);
}

/**
 * vmm_storage_backend_remove_finish:
 * @self: a storage backend
 * @result: what the callback was given
 * @error: return location for an error
 *
 * Ends vmm_storage_backend_remove_async().
 *
 * Returns: whether the volume is gone; %FALSE with an error otherwise
 */
gboolean
vmm_storage_backend_remove_finish (VmmStorageBackend *self, GAsyncResult *result, GError **error)
{
  g_return_val_if_fail (VMM_IS_STORAGE_BACKEND (self), FALSE);
  g_return_val_if_fail (G_IS_ASYNC_RESULT (result), FALSE);

  return VMM_STORAGE_BACKEND_GET_IFACE (self)->remove_finish (self, result, error);
}

/**
 * vmm_storage_backend_list_async:
 * @self: a storage backend
 * @glob: (nullable): a pattern of `*` and `?` that names must match; %NULL for all
 * @cancellable: (nullable): gives up
 * @callback: (scope async): called with the list
 * @user_data: data for @callback
 *
 * Lists the volumes that the backend holds, in the order of their names.
 *
 * Fails with `VMM_ERROR_UNSUPPORTED` when the backend cannot list.
 */
void
vmm_storage_backend_list_async (VmmStorageBackend *self, const char *glob,
                                GCancellable *cancellable, GAsyncReadyCallback callback,
                                gpointer user_data)
{
  g_return_if_fail (VMM_IS_STORAGE_BACKEND (self));
  g_return_if_fail (cancellable == NULL || G_IS_CANCELLABLE (cancellable));

  VMM_STORAGE_BACKEND_GET_IFACE (self)->list_async (self, glob, cancellable, callback, user_data);
}

/**
 * vmm_storage_backend_list_finish:
 * @self: a storage backend
 * @result: what the callback was given
 * @error: return location for an error
 *
 * Ends vmm_storage_backend_list_async().
 *
 * Returns: (transfer container) (element-type VmmVolumeInfo): the volumes, or %NULL with an error
 */
GPtrArray *
vmm_storage_backend_list_finish (VmmStorageBackend *self, GAsyncResult *result, GError **error)
{
  g_return_val_if_fail (VMM_IS_STORAGE_BACKEND (self), NULL);
  g_return_val_if_fail (G_IS_ASYNC_RESULT (result), NULL);

  return VMM_STORAGE_BACKEND_GET_IFACE (self)->list_finish (self, result, error);
}

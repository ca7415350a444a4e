/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "vmm-backend.h"

G_BEGIN_DECLS

/**
 * VmmVolumeMode:
 * @VMM_VOLUME_OPEN: the volume must exist
 * @VMM_VOLUME_NEW: the volume must not exist
 * @VMM_VOLUME_ANY: either
 *
 * Whether a volume is to exist already.
 */
typedef enum
{
  VMM_VOLUME_OPEN,
  VMM_VOLUME_NEW,
  VMM_VOLUME_ANY,
} VmmVolumeMode;

/**
 * VmmVolumeRequest:
 * @name: one path component
 * @size_bytes: size when it is created, in bytes
 * @mode: whether it is to exist
 * @read_only: whether it is opened for reading only
 * @template_name: (nullable): how it is made, a name of the backend's
 *
 * Which volume is wanted, and how.
 */
typedef struct
{
  const char *name;
  guint64 size_bytes;
  VmmVolumeMode mode;
  gboolean read_only;
  const char *template_name;
} VmmVolumeRequest;

/**
 * VmmVolumeInfo:
 * @name: the volume's name
 * @size_bytes: its size, in bytes
 * @used_bytes: what it occupies, in bytes
 * @read_only: whether it cannot be written
 *
 * One volume that a backend holds.
 */
typedef struct
{
  char *name;
  guint64 size_bytes;
  guint64 used_bytes;
  gboolean read_only;
} VmmVolumeInfo;

#define VMM_TYPE_VOLUME_INFO (vmm_volume_info_get_type ())
GType vmm_volume_info_get_type (void) G_GNUC_CONST;
VmmVolumeInfo *vmm_volume_info_new (const char *name, guint64 size_bytes, guint64 used_bytes,
                                    gboolean read_only);
void vmm_volume_info_free (VmmVolumeInfo *self);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (VmmVolumeInfo, vmm_volume_info_free)

/**
 * VmmVolume:
 *
 * A volume in use. QEMU opens @path itself, or is given the descriptor when @path is %NULL;
 * the descriptor also keeps the provider's lease alive.
 */
#define VMM_TYPE_VOLUME (vmm_volume_get_type ())
G_DECLARE_FINAL_TYPE (VmmVolume, vmm_volume, VMM, VOLUME, GObject)

VmmVolume *vmm_volume_new (const char *name, const char *path, int fd, guint64 size_bytes,
                           gboolean is_block_device, gboolean read_only);
const char *vmm_volume_get_name (VmmVolume *self);
const char *vmm_volume_get_path (VmmVolume *self);
int vmm_volume_get_fd (VmmVolume *self);
guint64 vmm_volume_get_size (VmmVolume *self);
void vmm_volume_set_size (VmmVolume *self, guint64 size_bytes);
gboolean vmm_volume_is_block_device (VmmVolume *self);
gboolean vmm_volume_is_read_only (VmmVolume *self);
void vmm_volume_release (VmmVolume *self);

/**
 * VMM_STORAGE_BACKEND_EXTENSION_POINT:
 *
 * The extension point of storage backends.
 */
#define VMM_STORAGE_BACKEND_EXTENSION_POINT "vmm-storage"
#define VMM_TYPE_STORAGE_BACKEND (vmm_storage_backend_get_type ())
G_DECLARE_INTERFACE (VmmStorageBackend, vmm_storage_backend, VMM, STORAGE_BACKEND, VmmBackend)

/**
 * VmmStorageBackendInterface:
 * @acquire_async: create or open a volume
 * @acquire_finish: (transfer full): the volume
 * @grow_async: make a volume larger
 * @grow_finish: whether it has the size now
 * @remove_async: delete a volume that nobody uses; what does not exist is %VMM_ERROR_NOT_FOUND
 * @remove_finish: whether it is gone
 * @list_async: list volumes whose name matches a glob
 * @list_finish: the volumes, each a #VmmVolumeInfo
 *
 * Keeps the disks.
 */
struct _VmmStorageBackendInterface
{
  GTypeInterface parent_iface;

  void (*acquire_async) (VmmStorageBackend *self, const VmmVolumeRequest *request,
                         GCancellable *cancellable, GAsyncReadyCallback callback,
                         gpointer user_data);
  VmmVolume *(*acquire_finish) (VmmStorageBackend *self, GAsyncResult *result, GError **error);
  void (*grow_async) (VmmStorageBackend *self, VmmVolume *volume, guint64 size_bytes,
                      GCancellable *cancellable, GAsyncReadyCallback callback, gpointer user_data);
  gboolean (*grow_finish) (VmmStorageBackend *self, GAsyncResult *result, GError **error);
  void (*remove_async) (VmmStorageBackend *self, const char *name, GCancellable *cancellable,
                        GAsyncReadyCallback callback, gpointer user_data);
  gboolean (*remove_finish) (VmmStorageBackend *self, GAsyncResult *result, GError **error);
  void (*list_async) (VmmStorageBackend *self, const char *glob, GCancellable *cancellable,
                      GAsyncReadyCallback callback, gpointer user_data);
  GPtrArray *(*list_finish) (VmmStorageBackend *self, GAsyncResult *result, GError **error);
};

void vmm_storage_backend_acquire_async (VmmStorageBackend *self, const VmmVolumeRequest *request,
                                        GCancellable *cancellable, GAsyncReadyCallback callback,
                                        gpointer user_data);
VmmVolume *vmm_storage_backend_acquire_finish (VmmStorageBackend *self, GAsyncResult *result,
                                               GError **error);
void vmm_storage_backend_grow_async (VmmStorageBackend *self, VmmVolume *volume, guint64 size_bytes,
                                     GCancellable *cancellable, GAsyncReadyCallback callback,
                                     gpointer user_data);
gboolean vmm_storage_backend_grow_finish (VmmStorageBackend *self, GAsyncResult *result,
                                          GError **error);
void vmm_storage_backend_remove_async (VmmStorageBackend *self, const char *name,
                                       GCancellable *cancellable, GAsyncReadyCallback callback,
                                       gpointer user_data);
gboolean vmm_storage_backend_remove_finish (VmmStorageBackend *self, GAsyncResult *result,
                                            GError **error);
void vmm_storage_backend_list_async (VmmStorageBackend *self, const char *glob,
                                     GCancellable *cancellable, GAsyncReadyCallback callback,
                                     gpointer user_data);
GPtrArray *vmm_storage_backend_list_finish (VmmStorageBackend *self, GAsyncResult *result,
                                            GError **error);
gboolean vmm_volume_name_is_valid (const char *name, GError **error);

G_END_DECLS

/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Keeps volumes as plain files below the state directory.
 *
 * The storage that always works. This file is the backend's face on the main thread: each call
 * copies what it needs into a task, a worker does the file work (vmm-volume-file.c and
 * vmm-volume-folder.c), and only the answer touches objects again.
 */

#include <fcntl.h>
#include <pwd.h>
#include <unistd.h>

#include "interfaces/vmm.h"
#include "vmm-volume-file.h"
#include "vmm-volume-folder.h"

#define VMM_TYPE_STORAGE_FILES (vmm_storage_files_get_type ())
G_DECLARE_FINAL_TYPE (VmmStorageFiles, vmm_storage_files, VMM, STORAGE_FILES, GObject)

#define FOLDER_NAME "volumes"

struct _VmmStorageFiles
{
  GObject parent_instance;

  VmmVolumeFolder folder;
};

static void vmm_storage_files_backend_init (VmmBackendInterface *iface);
static void vmm_storage_files_storage_init (VmmStorageBackendInterface *iface);

G_DEFINE_FINAL_TYPE_WITH_CODE (VmmStorageFiles, vmm_storage_files, G_TYPE_OBJECT,
                               G_IMPLEMENT_INTERFACE (VMM_TYPE_BACKEND,
                                                      vmm_storage_files_backend_init)
                                   G_IMPLEMENT_INTERFACE (VMM_TYPE_STORAGE_BACKEND,
                                                          vmm_storage_files_storage_init))

/* What a worker gets: copies, and where it leaves its answer. */
typedef struct
{
  VmmVolumeFolder folder;
  VmmVolumeRequest request;
  char *name;
  char *template_name;
  char *glob;
  int fd;
  VmmVolumeFile file;
  VmmVolume *volume; /* for the main thread alone */
} Work;

static void
work_free (Work *work)
{
  vmm_volume_close_fd (work->fd);
  vmm_volume_close_fd (work->file.fd);
  g_free (work->folder.path);
  g_free (work->name);
  g_free (work->template_name);
  g_free (work->glob);
  g_clear_object (&work->volume);
  g_free (work);
}

static GTask *
new_task (VmmStorageBackend *storage, const char *name, GCancellable *cancellable,
          GAsyncReadyCallback callback, gpointer user_data, Work **work)
{
  VmmStorageFiles *self = VMM_STORAGE_FILES (storage);
  GTask *task = g_task_new (self, cancellable, callback, user_data);

  *work = g_new0 (Work, 1);
  (*work)->folder = self->folder;
  (*work)->folder.path = g_strdup (self->folder.path);
  (*work)->name = g_strdup (name);
  (*work)->fd = -1;
  (*work)->file.fd = -1;
  g_task_set_task_data (task, *work, (GDestroyNotify) work_free);
  return task;
}

static void
acquire_in_thread (GTask *task, gpointer source, gpointer task_data, GCancellable *cancellable)
{
  Work *work = task_data;
  GError *error = NULL;

  if (vmm_volume_file_acquire (&work->folder, &work->request, cancellable, &work->file, &error))
    g_task_return_boolean (task, TRUE);
  else
    g_task_return_error (task, error);
}

static void
vmm_storage_files_acquire_async (VmmStorageBackend *storage, const VmmVolumeRequest *request,
                                 GCancellable *cancellable, GAsyncReadyCallback callback,
                                 gpointer user_data)
{
  Work *work;
  g_autoptr (GTask) task
      = new_task (storage, request->name, cancellable, callback, user_data, &work);

  g_task_set_source_tag (task, vmm_storage_files_acquire_async);
  /* What was created is the caller's, also when he cancels just then: he would not know of it. */
  g_task_set_check_cancellable (task, FALSE);
  work->template_name = g_strdup (request->template_name);
  work->request = *request;
  work->request.name = work->name;
  work->request.template_name = work->template_name;
  if (g_cancellable_is_cancelled (cancellable))
    {
      g_task_set_check_cancellable (task, TRUE);
      g_task_return_error_if_cancelled (task);
      return;
    }
  g_task_run_in_thread (task, acquire_in_thread);
}

static VmmVolume *
vmm_storage_files_acquire_finish (VmmStorageBackend *storage, GAsyncResult *result, GError **error)
{
  g_autofree char *entry = NULL;
  g_autofree char *path = NULL;
  VmmVolume *volume;
  Work *work;

  g_return_val_if_fail (g_task_is_valid (result, storage), NULL);

  if (!g_task_propagate_boolean (G_TASK (result), error))
    return NULL;

  work = g_task_get_task_data (G_TASK (result));
  entry = vmm_volume_entry_name (work->name);
  path = g_build_filename (work->folder.path, entry, NULL);
  volume = vmm_volume_new (work->name, path, work->file.fd, work->file.size_bytes,
                           work->file.is_block_device, work->file.read_only);
  work->file.fd = -1;
  return volume;
}

static void
grow_in_thread (GTask *task, gpointer source, gpointer task_data, GCancellable *cancellable)
{
  Work *work = task_data;
  GError *error = NULL;

  if (vmm_volume_file_grow (&work->folder, work->name, work->fd, work->request.size_bytes,
                            cancellable, &error))
    g_task_return_boolean (task, TRUE);
  else
    g_task_return_error (task, error);
}

static void
vmm_storage_files_grow_async (VmmStorageBackend *storage, VmmVolume *volume, guint64 size_bytes,
                              GCancellable *cancellable, GAsyncReadyCallback callback,
                              gpointer user_data)
{
  const char *name = vmm_volume_get_name (volume);
  int fd = vmm_volume_get_fd (volume);
  Work *work;
  g_autoptr (GTask) task = new_task (storage, name, cancellable, callback, user_data, &work);

  g_task_set_source_tag (task, vmm_storage_files_grow_async);
  /* The size says what is, also when the caller has gone meanwhile. */
  g_task_set_check_cancellable (task, FALSE);
  if (vmm_volume_is_read_only (volume))
    {
      g_task_return_error (task,
                           vmm_error_new (VMM_ERROR_CONFLICT, "volume %s is read-only", name));
      return;
    }

  work->fd = fd >= 0 ? fcntl (fd, F_DUPFD_CLOEXEC, 0) : -1;
  if (work->fd < 0)
    {
      g_task_return_error (task,
                           vmm_error_new (VMM_ERROR_CONFLICT, "volume %s was released", name));
      return;
    }
  work->request.size_bytes = size_bytes;
  work->volume = g_object_ref (volume);
  g_task_run_in_thread (task, grow_in_thread);
}

static gboolean
vmm_storage_files_grow_finish (VmmStorageBackend *storage, GAsyncResult *result, GError **error)
{
  Work *work;

  g_return_val_if_fail (g_task_is_valid (result, storage), FALSE);

  if (!g_task_propagate_boolean (G_TASK (result), error))
    return FALSE;

  work = g_task_get_task_data (G_TASK (result));
  vmm_volume_set_size (work->volume, work->request.size_bytes);
  return TRUE;
}

static void
remove_in_thread (GTask *task, gpointer source, gpointer task_data, GCancellable *cancellable)
{
  Work *work = task_data;
  GError *error = NULL;

  if (vmm_volume_folder_remove (&work->folder, work->name, &error))
    g_task_return_boolean (task, TRUE);
  else
    g_task_return_error (task, error);
}

static void
vmm_storage_files_remove_async (VmmStorageBackend *storage, const char *name,
                                GCancellable *cancellable, GAsyncReadyCallback callback,
                                gpointer user_data)
{
  Work *work;
  g_autoptr (GTask) task = new_task (storage, name, cancellable, callback, user_data, &work);

  g_task_set_source_tag (task, vmm_storage_files_remove_async);
  if (g_task_return_error_if_cancelled (task))
    return;
  g_task_set_check_cancellable (task, FALSE);
  g_task_run_in_thread (task, remove_in_thread);
}

static void
list_in_thread (GTask *task, gpointer source, gpointer task_data, GCancellable *cancellable)
{
  Work *work = task_data;
  GError *error = NULL;
  GPtrArray *volumes = vmm_volume_folder_list (&work->folder, work->glob, cancellable, &error);

  if (volumes != NULL)
    g_task_return_pointer (task, volumes, (GDestroyNotify) g_ptr_array_unref);
  else
    g_task_return_error (task, error);
}

static void
vmm_storage_files_list_async (VmmStorageBackend *storage, const char *glob,
                              GCancellable *cancellable, GAsyncReadyCallback callback,
                              gpointer user_data)
{
  Work *work;
  g_autoptr (GTask) task = new_task (storage, NULL, cancellable, callback, user_data, &work);

  g_task_set_source_tag (task, vmm_storage_files_list_async);
  work->glob = g_strdup (glob != NULL && glob[0] != '\0' ? glob : "*");
  g_task_run_in_thread (task, list_in_thread);
}

/* The owner of volumes: the account that QEMU runs as when the daemon is root. An account that does
 * not exist means that QEMU runs as root, too. */
static gboolean
vmm_storage_files_configure (VmmBackend *backend, const VmmBackendConfig *config, GError **error)
{
  VmmStorageFiles *self = VMM_STORAGE_FILES (backend);
  const struct passwd *entry = NULL;

  g_free (self->folder.path);
  self->folder.path = g_build_filename (config->state_dir, FOLDER_NAME, NULL);
  if (geteuid () == 0 && config->account != NULL && config->account[0] != '\0')
    entry = getpwnam (config->account);
  if (entry == NULL)
    return TRUE;

  self->folder.has_owner = TRUE;
  self->folder.uid = entry->pw_uid;
  self->folder.gid = entry->pw_gid;
  return TRUE;
}

static gboolean
vmm_storage_files_is_available (VmmBackend *backend, char **reason)
{
  VmmStorageFiles *self = VMM_STORAGE_FILES (backend);

  if (self->folder.path != NULL)
    return TRUE;

  *reason = g_strdup ("it was not told where the state directory is");
  return FALSE;
}

static void
vmm_storage_files_finalize (GObject *object)
{
  VmmStorageFiles *self = VMM_STORAGE_FILES (object);

  g_free (self->folder.path);
  G_OBJECT_CLASS (vmm_storage_files_parent_class)->finalize (object);
}

static void
vmm_storage_files_backend_init (VmmBackendInterface *iface)
{
  iface->configure = vmm_storage_files_configure;
  iface->is_available = vmm_storage_files_is_available;
}

static void
vmm_storage_files_storage_init (VmmStorageBackendInterface *iface)
{
  iface->acquire_async = vmm_storage_files_acquire_async;
  iface->acquire_finish = vmm_storage_files_acquire_finish;
  iface->grow_async = vmm_storage_files_grow_async;
  iface->grow_finish = vmm_storage_files_grow_finish;
  iface->remove_async = vmm_storage_files_remove_async;
  iface->list_async = vmm_storage_files_list_async;
}

static void
vmm_storage_files_class_init (VmmStorageFilesClass *klass)
{
  G_OBJECT_CLASS (klass)->finalize = vmm_storage_files_finalize;
}

static void
vmm_storage_files_init (VmmStorageFiles *self)
{
}

VMM_PLUGIN_DEFINE (vmm_storage_files, VMM_STORAGE_BACKEND_EXTENSION_POINT, VMM_TYPE_STORAGE_FILES,
                   "files", 10)

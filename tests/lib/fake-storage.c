/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The fake storage. Volumes are entries of a table; with a state folder each is a sparse file too,
 * so that its path can be opened, and a file that an earlier program left is a volume. */

#include "fake-backends-private.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <glib/gstdio.h>

#define FOLDER "fake-volumes"

struct _TestFakeStorage
{
  GObject parent_instance;

  char *folder; /* NULL without a state folder */
};

static void storage_backend_init (VmmBackendInterface *iface);
static void storage_init (VmmStorageBackendInterface *iface);

G_DEFINE_FINAL_TYPE_WITH_CODE (TestFakeStorage, test_fake_storage, G_TYPE_OBJECT,
                               G_IMPLEMENT_INTERFACE (VMM_TYPE_BACKEND, storage_backend_init)
                                   G_IMPLEMENT_INTERFACE (VMM_TYPE_STORAGE_BACKEND, storage_init))

/* The task data of each call. */
typedef struct
{
  char *name;
  guint64 size_bytes;
  VmmVolumeMode mode;
  gboolean read_only;
  VmmVolume *volume;
} Call;

static GHashTable *volumes; /* name → guint64 */

static GHashTable *
get_volumes (void)
{
  if (volumes == NULL)
    volumes = g_hash_table_new_full (g_str_hash, g_str_equal, g_free, g_free);
  return volumes;
}

static void
call_free (gpointer data)
{
  Call *call = data;

  g_free (call->name);
  g_clear_object (&call->volume);
  g_free (call);
}

static GTask *
new_task (VmmStorageBackend *backend, const char *name, gpointer tag, GCancellable *cancellable,
          GAsyncReadyCallback callback, gpointer user_data)
{
  GTask *task = g_task_new (backend, cancellable, callback, user_data);
  Call *call = g_new0 (Call, 1);

  call->name = g_strdup (name);
  g_task_set_source_tag (task, tag);
  g_task_set_task_data (task, call, call_free);
  return task;
}

static void
set_size (const char *name, guint64 size_bytes)
{
  g_hash_table_insert (get_volumes (), g_strdup (name), g_memdup2 (&size_bytes, sizeof size_bytes));
}

static char *
path_of (TestFakeStorage *self, const char *name)
{
  g_autofree char *base = g_strdup_printf ("%s.volume", name);

  return g_build_filename (self->folder != NULL ? self->folder : "/nonexistent", base, NULL);
}

/* What an earlier program of the same state folder left. */
static void
adopt_file (TestFakeStorage *self, const char *name)
{
  g_autofree char *path = path_of (self, name);
  struct stat info;

  if (self->folder != NULL && !g_hash_table_contains (get_volumes (), name)
      && stat (path, &info) == 0)
    set_size (name, (guint64) info.st_size);
}

static gboolean
write_file (TestFakeStorage *self, const char *path, guint64 size_bytes, GError **error)
{
  int fd;
  gboolean done;

  if (self->folder == NULL)
    return TRUE;
  g_mkdir_with_parents (self->folder, 0750);
  fd = open (path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  done = fd >= 0 && ftruncate (fd, (off_t) size_bytes) == 0;
  if (!done)
    vmm_set_error (error, VMM_ERROR_INTERNAL, "%s: %s", path, g_strerror (errno));
  if (fd >= 0)
    close (fd);
  return done;
}

static void
acquire (GTask *task, gboolean lie)
{
  TestFakeStorage *self = g_task_get_source_object (task);
  Call *call = g_task_get_task_data (task);
  g_autofree char *path = path_of (self, call->name);
  g_autoptr (GError) error = NULL;
  const guint64 *size;

  adopt_file (self, call->name);
  size = g_hash_table_lookup (get_volumes (), call->name);
  if (size == NULL && call->mode == VMM_VOLUME_OPEN)
    vmm_set_error (&error, VMM_ERROR_NOT_FOUND, "volume %s", call->name);
  else if (size != NULL && call->mode == VMM_VOLUME_NEW)
    vmm_set_error (&error, VMM_ERROR_CONFLICT, "volume %s exists", call->name);
  else if (size == NULL)
    write_file (self, path, call->size_bytes, &error);
  if (error != NULL)
    {
      g_task_return_error (task, g_steal_pointer (&error));
      return;
    }

  if (size == NULL)
    set_size (call->name, lie ? call->size_bytes / 2 : call->size_bytes);
  size = g_hash_table_lookup (get_volumes (), call->name);
  g_task_return_pointer (task, vmm_volume_new (call->name, path, -1, *size, FALSE, call->read_only),
                         g_object_unref);
}

static void
test_fake_storage_acquire_async (VmmStorageBackend *backend, const VmmVolumeRequest *request,
                                 GCancellable *cancellable, GAsyncReadyCallback callback,
                                 gpointer user_data)
{
  g_autoptr (GTask) task = new_task (backend, request->name, test_fake_storage_acquire_async,
                                     cancellable, callback, user_data);
  Call *call = g_task_get_task_data (task);
  g_autoptr (GError) error = NULL;

  call->size_bytes = request->size_bytes;
  call->mode = request->mode;
  call->read_only = request->read_only;
  if (vmm_volume_name_is_valid (request->name, &error))
    test_fake_run ("storage.acquire", request->name, task, acquire);
  else
    g_task_return_error (task, g_steal_pointer (&error));
}

static void
grow (GTask *task, gboolean lie)
{
  TestFakeStorage *self = g_task_get_source_object (task);
  Call *call = g_task_get_task_data (task);
  g_autofree char *path = path_of (self, call->name);
  const guint64 *size = g_hash_table_lookup (get_volumes (), call->name);
  g_autoptr (GError) error = NULL;

  if (size == NULL)
    vmm_set_error (&error, VMM_ERROR_NOT_FOUND, "volume %s", call->name);
  else if (call->size_bytes < *size)
    vmm_set_error (&error, VMM_ERROR_INVALID_REQUEST, "volume %s would shrink", call->name);
  else if (!lie)
    write_file (self, path, call->size_bytes, &error);
  if (error != NULL)
    {
      g_task_return_error (task, g_steal_pointer (&error));
      return;
    }
  if (!lie)
    {
      set_size (call->name, call->size_bytes);
      vmm_volume_set_size (call->volume, call->size_bytes);
    }
  g_task_return_boolean (task, TRUE);
}

static void
test_fake_storage_grow_async (VmmStorageBackend *backend, VmmVolume *volume, guint64 size_bytes,
                              GCancellable *cancellable, GAsyncReadyCallback callback,
                              gpointer user_data)
{
  const char *name = vmm_volume_get_name (volume);
  g_autoptr (GTask) task
      = new_task (backend, name, test_fake_storage_grow_async, cancellable, callback, user_data);
  Call *call = g_task_get_task_data (task);

  call->volume = g_object_ref (volume);
  call->size_bytes = size_bytes;
  test_fake_run ("storage.grow", name, task, grow);
}

static void
remove_volume (GTask *task, gboolean lie)
{
  TestFakeStorage *self = g_task_get_source_object (task);
  Call *call = g_task_get_task_data (task);
  g_autofree char *path = path_of (self, call->name);

  if (lie)
    {
      g_task_return_boolean (task, TRUE);
      return;
    }
  adopt_file (self, call->name);
  if (!g_hash_table_remove (get_volumes (), call->name))
    {
      g_task_return_error (task, vmm_error_new (VMM_ERROR_NOT_FOUND, "volume %s", call->name));
      return;
    }
  if (self->folder != NULL)
    g_unlink (path);
  g_task_return_boolean (task, TRUE);
}

static void
test_fake_storage_remove_async (VmmStorageBackend *backend, const char *name,
                                GCancellable *cancellable, GAsyncReadyCallback callback,
                                gpointer user_data)
{
  g_autoptr (GTask) task
      = new_task (backend, name, test_fake_storage_remove_async, cancellable, callback, user_data);

  test_fake_run ("storage.remove", name, task, remove_volume);
}

static void
list (GTask *task, gboolean lie)
{
  Call *call = g_task_get_task_data (task);
  g_autoptr (GList) names
      = g_list_sort (g_hash_table_get_keys (get_volumes ()), (GCompareFunc) g_strcmp0);
  GPtrArray *found = g_ptr_array_new_with_free_func ((GDestroyNotify) vmm_volume_info_free);

  for (GList *l = names; l != NULL && !lie; l = l->next)
    {
      const guint64 *size = g_hash_table_lookup (get_volumes (), l->data);

      if (g_pattern_match_simple (call->name, l->data))
        g_ptr_array_add (found, vmm_volume_info_new (l->data, *size, 0, FALSE));
    }
  g_task_return_pointer (task, found, (GDestroyNotify) g_ptr_array_unref);
}

static void
test_fake_storage_list_async (VmmStorageBackend *backend, const char *glob,
                              GCancellable *cancellable, GAsyncReadyCallback callback,
                              gpointer user_data)
{
  const char *pattern = glob != NULL ? glob : "*";
  g_autoptr (GTask) task
      = new_task (backend, pattern, test_fake_storage_list_async, cancellable, callback, user_data);

  test_fake_run ("storage.list", pattern, task, list);
}

static gboolean
test_fake_storage_configure (VmmBackend *backend, const VmmBackendConfig *config, GError **error)
{
  TestFakeStorage *self = TEST_FAKE_STORAGE (backend);

  if (config->state_dir != NULL)
    self->folder = g_build_filename (config->state_dir, FOLDER, NULL);
  return TRUE;
}

static gboolean
test_fake_storage_is_available (VmmBackend *backend, char **reason)
{
  return test_fake_is_available (2, reason);
}

static void
storage_backend_init (VmmBackendInterface *iface)
{
  iface->configure = test_fake_storage_configure;
  iface->is_available = test_fake_storage_is_available;
}

static void
storage_init (VmmStorageBackendInterface *iface)
{
  iface->acquire_async = test_fake_storage_acquire_async;
  iface->grow_async = test_fake_storage_grow_async;
  iface->remove_async = test_fake_storage_remove_async;
  iface->list_async = test_fake_storage_list_async;
}

static void
test_fake_storage_finalize (GObject *object)
{
  g_free (TEST_FAKE_STORAGE (object)->folder);
  G_OBJECT_CLASS (test_fake_storage_parent_class)->finalize (object);
}

static void
test_fake_storage_class_init (TestFakeStorageClass *klass)
{
  G_OBJECT_CLASS (klass)->finalize = test_fake_storage_finalize;
}

static void
test_fake_storage_init (TestFakeStorage *self)
{
}

void
test_fake_storage_reset (void)
{
  g_hash_table_remove_all (get_volumes ());
}

gboolean
test_fakes_has_volume (const char *name, guint64 *size_bytes)
{
  const guint64 *size = g_hash_table_lookup (get_volumes (), name);

  if (size != NULL && size_bytes != NULL)
    *size_bytes = *size;
  return size != NULL;
}

guint
test_fakes_get_n_volumes (void)
{
  return g_hash_table_size (get_volumes ());
}

/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Volumes as files, on real file systems: the one below /tmp and, for root, a small one of its own.
 */

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pwd.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <glib/gstdio.h>

#include "interfaces/vmm.h"
#include "test-await.h"
#include "test-plugins.h"

#define MIB (G_GUINT64_CONSTANT (1) << 20)
#define GIB (G_GUINT64_CONSTANT (1) << 30)

typedef struct
{
  char *directory;
  char *folder;
  VmmPluginRegistry *registry;
  VmmStorageBackend *storage;
} Fixture;

/* Also right where the name of the program is not, as in a chroot. */
static const char self_path[] = "/proc/self/exe";
/* A mount namespace of our own, so that file systems can be mounted. */
static gboolean can_mount;

static void
load (Fixture *fixture, const char *account)
{
  fixture->folder = g_build_filename (fixture->directory, "volumes", NULL);
  fixture->registry = test_load_plugins (fixture->directory, account);
  fixture->storage = VMM_STORAGE_BACKEND (
      test_choose_plugin (fixture->registry, VMM_PLUGIN_KIND_STORAGE, "files"));
}

static void
set_up (Fixture *fixture, gconstpointer account)
{
  fixture->directory = test_make_directory ();
  load (fixture, account);
}

static void
set_up_small (Fixture *fixture, gconstpointer options)
{
  fixture->directory = test_make_directory ();
  if (can_mount)
    g_assert_no_errno (mount ("tmpfs", fixture->directory, "tmpfs", 0, options));
  load (fixture, NULL);
}

static void
tear_down (Fixture *fixture, gconstpointer data)
{
  test_drain ();
  g_clear_object (&fixture->registry);
  umount2 (fixture->directory, MNT_DETACH); /* whether it was mounted or not */
  g_free (fixture->folder);
  test_remove_directory (fixture->directory);
}

static char *
entry (Fixture *fixture, const char *name)
{
  g_autofree char *file = g_strconcat (name, ".volume", NULL);

  return g_build_filename (fixture->folder, file, NULL);
}

static VmmVolume *
try_to_acquire (Fixture *fixture, const VmmVolumeRequest *request, GCancellable *cancellable,
                GError **error)
{
  TestAwait await = TEST_AWAIT_INIT;
  g_autoptr (GAsyncResult) result = NULL;

  vmm_storage_backend_acquire_async (fixture->storage, request, cancellable, test_await_cb, &await);
  result = test_await (&await);
  return vmm_storage_backend_acquire_finish (fixture->storage, result, error);
}

static VmmVolume *
acquire (Fixture *fixture, const VmmVolumeRequest *request)
{
  g_autoptr (GError) error = NULL;
  VmmVolume *volume = try_to_acquire (fixture, request, NULL, &error);

  g_assert_no_error (error);
  g_assert_true (VMM_IS_VOLUME (volume));
  return volume;
}

/* A new volume that nobody holds. */
static void
create (Fixture *fixture, const char *name, guint64 size, const char *template_name)
{
  g_autoptr (VmmVolume) volume
      = acquire (fixture, &(VmmVolumeRequest){ .name = name,
                                               .size_bytes = size,
                                               .mode = VMM_VOLUME_NEW,
                                               .template_name = template_name });

  vmm_volume_release (volume);
}

static void
reopen (Fixture *fixture, const char *name)
{
  g_autoptr (VmmVolume) volume
      = acquire (fixture, &(VmmVolumeRequest){ .name = name, .mode = VMM_VOLUME_OPEN });

  vmm_volume_release (volume);
}

static void
assert_refused (Fixture *fixture, const VmmVolumeRequest *request, VmmError code, const char *text)
{
  g_autoptr (GError) error = NULL;
  g_autoptr (VmmVolume) volume = try_to_acquire (fixture, request, NULL, &error);

  g_assert_null (volume);
  g_assert_error (error, VMM_ERROR, (int) code);
  g_assert_cmpstr (error->message, ==, text);
}

static guint
count_entries (Fixture *fixture)
{
  g_autoptr (GDir) dir = g_dir_open (fixture->folder, 0, NULL);
  guint n = 0;

  while (dir != NULL && g_dir_read_name (dir) != NULL)
    n++;
  return n;
}

static GPtrArray *
list (Fixture *fixture, const char *glob)
{
  TestAwait await = TEST_AWAIT_INIT;
  g_autoptr (GAsyncResult) result = NULL;
  g_autoptr (GError) error = NULL;
  GPtrArray *volumes;

  vmm_storage_backend_list_async (fixture->storage, glob, NULL, test_await_cb, &await);
  result = test_await (&await);
  volumes = vmm_storage_backend_list_finish (fixture->storage, result, &error);
  g_assert_no_error (error);
  return volumes;
}

static gboolean
remove_volume (Fixture *fixture, const char *name, GError **error)
{
  TestAwait await = TEST_AWAIT_INIT;
  g_autoptr (GAsyncResult) result = NULL;

  vmm_storage_backend_remove_async (fixture->storage, name, NULL, test_await_cb, &await);
  result = test_await (&await);
  return vmm_storage_backend_remove_finish (fixture->storage, result, error);
}

static gboolean
grow (Fixture *fixture, VmmVolume *volume, guint64 size, GCancellable *cancellable, GError **error)
{
  TestAwait await = TEST_AWAIT_INIT;
  g_autoptr (GAsyncResult) result = NULL;

  vmm_storage_backend_grow_async (fixture->storage, volume, size, cancellable, test_await_cb,
                                  &await);
  result = test_await (&await);
  return vmm_storage_backend_grow_finish (fixture->storage, result, error);
}

static void
test_create (Fixture *fixture, gconstpointer data)
{
  const VmmVolumeRequest request
      = { .name = "vm-1", .size_bytes = 64 * MIB, .mode = VMM_VOLUME_NEW };
  g_autofree char *path = entry (fixture, "vm-1");
  g_autoptr (VmmVolume) volume = acquire (fixture, &request);
  struct stat status;

  g_assert_cmpstr (vmm_volume_get_name (volume), ==, "vm-1");
  g_assert_cmpstr (vmm_volume_get_path (volume), ==, path);
  g_assert_cmpuint (vmm_volume_get_size (volume), ==, 64 * MIB);
  g_assert_false (vmm_volume_is_block_device (volume));
  g_assert_false (vmm_volume_is_read_only (volume));
  g_assert_cmpint (fcntl (vmm_volume_get_fd (volume), F_GETFL) & O_ACCMODE, ==, O_RDWR);
  g_assert_cmpint (fcntl (vmm_volume_get_fd (volume), F_GETFD), ==, FD_CLOEXEC);

  g_assert_no_errno (g_stat (path, &status));
  g_assert_cmpuint (status.st_mode, ==, S_IFREG | 0600);
  g_assert_cmpuint (status.st_nlink, ==, 1);
  g_assert_cmpuint ((guint64) status.st_size, ==, 64 * MIB);
  g_assert_cmpuint (status.st_blocks, <, 64);
  g_assert_no_errno (g_stat (fixture->folder, &status));
  g_assert_cmpuint (status.st_mode & 0027, ==, 0);
  g_assert_cmpuint (count_entries (fixture), ==, 1);

  assert_refused (fixture, &request, VMM_ERROR_CONFLICT, "conflict: volume vm-1 exists");
}

static void
test_allocated (Fixture *fixture, gconstpointer data)
{
  g_autofree char *path = entry (fixture, "a");
  struct stat status;

  create (fixture, "a", 3 * MIB, "allocated-file");
  g_assert_no_errno (g_stat (path, &status));
  g_assert_cmpuint ((guint64) status.st_size, ==, 3 * MIB);
  g_assert_cmpuint ((guint64) status.st_blocks * 512, >=, 3 * MIB);
}

static void
test_open (Fixture *fixture, gconstpointer data)
{
  VmmVolumeRequest request = { .name = "vm-1", .mode = VMM_VOLUME_OPEN };
  g_autoptr (VmmVolume) volume = NULL;
  g_autoptr (VmmVolume) again = NULL;
  g_autoptr (VmmVolume) other = NULL;

  assert_refused (fixture, &request, VMM_ERROR_NOT_FOUND, "not found: volume vm-1");
  g_assert_false (g_file_test (fixture->folder, G_FILE_TEST_EXISTS));
  create (fixture, "vm-1", MIB, "sparse-file");
  volume = acquire (fixture, &request);
  g_assert_cmpuint (vmm_volume_get_size (volume), ==, MIB);

  /* What is there keeps its size. */
  request.mode = VMM_VOLUME_ANY;
  request.size_bytes = 2 * MIB;
  again = acquire (fixture, &request);
  g_assert_cmpuint (vmm_volume_get_size (again), ==, MIB);
  request.name = "vm-2";
  other = acquire (fixture, &request);
  g_assert_cmpuint (vmm_volume_get_size (other), ==, 2 * MIB);
  request.name = "vm-3";
  request.mode = VMM_VOLUME_OPEN;
  assert_refused (fixture, &request, VMM_ERROR_NOT_FOUND, "not found: volume vm-3");
}

static void
test_read_only (Fixture *fixture, gconstpointer data)
{
  VmmVolumeRequest request
      = { .name = "r", .size_bytes = MIB, .mode = VMM_VOLUME_NEW, .read_only = TRUE };
  g_autofree char *path = entry (fixture, "r");
  g_autoptr (VmmVolume) volume = acquire (fixture, &request);
  g_autoptr (VmmVolume) again = NULL;
  g_autoptr (GPtrArray) volumes = NULL;
  g_autoptr (GError) error = NULL;

  g_assert_true (vmm_volume_is_read_only (volume));
  g_assert_cmpint (fcntl (vmm_volume_get_fd (volume), F_GETFL) & O_ACCMODE, ==, O_RDONLY);
  g_assert_false (grow (fixture, volume, 2 * MIB, NULL, &error));
  g_assert_error (error, VMM_ERROR, VMM_ERROR_CONFLICT);

  g_assert_no_errno (g_chmod (path, 0400));
  request.mode = VMM_VOLUME_OPEN;
  again = acquire (fixture, &request);
  request.read_only = FALSE;
  assert_refused (fixture, &request, VMM_ERROR_CONFLICT, "conflict: volume r is read-only");
  volumes = list (fixture, NULL);
  g_assert_cmpuint (volumes->len, ==, 1);
  g_assert_true (((VmmVolumeInfo *) g_ptr_array_index (volumes, 0))->read_only);
}

static void
test_bad_requests (Fixture *fixture, gconstpointer data)
{
  static const char *const names[] = { "", ".", "..", "a/b", "/etc/passwd", "../escape" };
  VmmVolumeRequest request = { .mode = VMM_VOLUME_NEW, .size_bytes = MIB };
  g_autofree char *long_name = g_strnfill (250, 'x');
  g_autofree char *long_text = NULL;

  for (guint i = 0; i < G_N_ELEMENTS (names); i++)
    {
      g_autoptr (GError) error = NULL;
      g_autoptr (VmmVolume) volume = NULL;

      request.name = names[i];
      volume = try_to_acquire (fixture, &request, NULL, &error);
      g_assert_null (volume);
      g_assert_error (error, VMM_ERROR, VMM_ERROR_INVALID_REQUEST);
      g_clear_error (&error);
      g_assert_false (remove_volume (fixture, names[i], &error));
      g_assert_error (error, VMM_ERROR, VMM_ERROR_INVALID_REQUEST);
    }
  request.name = long_name;
  long_text = g_strdup_printf ("invalid request: volume name \"%s\" too long", long_name);
  assert_refused (fixture, &request, VMM_ERROR_INVALID_REQUEST, long_text);

  request.name = "v";
  request.template_name = "directory";
  assert_refused (
      fixture, &request, VMM_ERROR_INVALID_REQUEST,
      "invalid request: volume v: template \"directory\" not supported by the file provider");
  request.template_name = "";
  request.size_bytes = 0;
  assert_refused (fixture, &request, VMM_ERROR_INVALID_REQUEST,
                  "invalid request: volume v: a size is required to create a volume");
  request.size_bytes = G_MAXUINT64;
  assert_refused (fixture, &request, VMM_ERROR_INVALID_REQUEST,
                  "invalid request: volume v: negative size");
  g_assert_cmpuint (count_entries (fixture), ==, 0);
}

static void
test_other_types (Fixture *fixture, gconstpointer data)
{
  VmmVolumeRequest request = { .name = "t", .mode = VMM_VOLUME_OPEN };
  g_autofree char *path = entry (fixture, "t");
  g_autofree char *inside = g_build_filename (path, "x", NULL);
  g_autoptr (GPtrArray) volumes = NULL;
  g_autoptr (GError) error = NULL;

  g_assert_no_errno (g_mkdir (fixture->folder, 0750));
  g_assert_no_errno (symlink ("/etc/passwd", path));
  assert_refused (fixture, &request, VMM_ERROR_UNSUPPORTED,
                  "unsupported: volume t is a symbolic link, not a regular file or block device");
  request.mode = VMM_VOLUME_ANY;
  assert_refused (fixture, &request, VMM_ERROR_UNSUPPORTED,
                  "unsupported: volume t is a symbolic link, not a regular file or block device");
  g_unlink (path);

  g_assert_no_errno (mkfifo (path, 0600));
  assert_refused (fixture, &request, VMM_ERROR_UNSUPPORTED,
                  "unsupported: volume t is a FIFO, not a regular file or block device");
  g_unlink (path);

  g_assert_no_errno (g_mkdir (path, 0700));
  assert_refused (fixture, &request, VMM_ERROR_UNSUPPORTED,
                  "unsupported: volume t is a directory, not a regular file or block device");
  g_assert_no_errno (g_mkdir (inside, 0700));
  volumes = list (fixture, NULL);
  g_assert_cmpuint (volumes->len, ==, 0);
  g_assert_false (remove_volume (fixture, "t", &error));
  g_assert_error (error, VMM_ERROR, VMM_ERROR_UNSUPPORTED);
  g_assert_cmpstr (error->message, ==,
                   "unsupported: volume t is a directory volume, which vm-manager does not manage");
}

static void
test_remove (Fixture *fixture, gconstpointer data)
{
  g_autofree char *path = entry (fixture, "vm-1");
  g_autoptr (GError) error = NULL;

  g_assert_false (remove_volume (fixture, "vm-1", &error));
  g_assert_error (error, VMM_ERROR, VMM_ERROR_NOT_FOUND);
  g_assert_cmpstr (error->message, ==, "not found: volume vm-1");
  g_clear_error (&error);

  create (fixture, "vm-1", MIB, NULL);
  g_assert_true (remove_volume (fixture, "vm-1", &error));
  g_assert_no_error (error);
  g_assert_false (g_file_test (path, G_FILE_TEST_EXISTS));
  g_assert_false (remove_volume (fixture, "vm-1", &error));
  g_assert_error (error, VMM_ERROR, VMM_ERROR_NOT_FOUND);
}

static char *
names_of (GPtrArray *volumes)
{
  g_autoptr (GString) names = g_string_new (NULL);

  for (guint i = 0; i < volumes->len; i++)
    g_string_append_printf (names, "%s ", ((VmmVolumeInfo *) g_ptr_array_index (volumes, i))->name);
  return g_string_free (g_steal_pointer (&names), FALSE);
}

static void
test_list (Fixture *fixture, gconstpointer data)
{
  static const struct
  {
    const char *glob;
    const char *names;
  } cases[] = {
    { NULL, "other vm-1 vm-2 vm-20 " }, { "", "other vm-1 vm-2 vm-20 " },
    { "vm-*", "vm-1 vm-2 vm-20 " },     { "vm-?", "vm-1 vm-2 " },
    { "vm-[12]", "vm-1 vm-2 " },        { "none", "" },
  };
  g_autoptr (GPtrArray) nothing = list (fixture, NULL);
  g_autoptr (GPtrArray) volumes = NULL;
  g_autofree char *stray = g_build_filename (fixture->folder, "stray.txt", NULL);
  const VmmVolumeInfo *info;

  g_assert_cmpuint (nothing->len, ==, 0);
  create (fixture, "vm-20", MIB, NULL);
  create (fixture, "vm-2", 2 * MIB, "allocated-file");
  create (fixture, "vm-1", MIB, NULL);
  create (fixture, "other", MIB, NULL);
  g_assert_true (g_file_set_contents (stray, "x", -1, NULL));
  for (guint i = 0; i < G_N_ELEMENTS (cases); i++)
    {
      g_autoptr (GPtrArray) found = list (fixture, cases[i].glob);
      g_autofree char *names = names_of (found);

      g_assert_cmpstr (names, ==, cases[i].names);
    }

  volumes = list (fixture, "vm-2");
  info = g_ptr_array_index (volumes, 0);
  g_assert_cmpuint (info->size_bytes, ==, 2 * MIB);
  g_assert_cmpuint (info->used_bytes, >=, 2 * MIB);
  g_assert_false (info->read_only);
  g_clear_pointer (&volumes, g_ptr_array_unref);
  volumes = list (fixture, "vm-1");
  info = g_ptr_array_index (volumes, 0);
  g_assert_cmpuint (info->used_bytes, <, MIB);
}

static void
test_grow (Fixture *fixture, gconstpointer template_name)
{
  const gboolean allocated = g_strcmp0 (template_name, "allocated-file") == 0;
  g_autoptr (VmmVolume) volume
      = acquire (fixture, &(VmmVolumeRequest){ .name = "g",
                                               .size_bytes = 2 * MIB,
                                               .mode = VMM_VOLUME_NEW,
                                               .template_name = template_name });
  g_autoptr (GCancellable) cancelled = g_cancellable_new ();
  g_autoptr (GError) error = NULL;
  struct stat status;

  g_assert_true (grow (fixture, volume, 2 * MIB, NULL, &error));
  g_assert_true (grow (fixture, volume, 5 * MIB, NULL, &error));
  g_assert_no_error (error);
  g_assert_cmpuint (vmm_volume_get_size (volume), ==, 5 * MIB);
  g_assert_no_errno (fstat (vmm_volume_get_fd (volume), &status));
  g_assert_cmpuint ((guint64) status.st_size, ==, 5 * MIB);
  if (allocated)
    g_assert_cmpuint ((guint64) status.st_blocks * 512, >=, 5 * MIB);
  else
    g_assert_cmpuint ((guint64) status.st_blocks * 512, <, MIB);

  g_assert_false (grow (fixture, volume, 4 * MIB, NULL, &error));
  g_assert_error (error, VMM_ERROR, VMM_ERROR_INVALID_REQUEST);
  g_assert_cmpstr (error->message, ==,
                   "invalid request: volume g: cannot shrink from 5242880 to 4194304 bytes");
  g_clear_error (&error);

  if (allocated)
    {
      g_cancellable_cancel (cancelled);
      g_assert_false (grow (fixture, volume, 6 * MIB, cancelled, &error));
      g_assert_error (error, G_IO_ERROR, G_IO_ERROR_CANCELLED);
      g_assert_no_errno (fstat (vmm_volume_get_fd (volume), &status));
      g_clear_error (&error);
    }
  g_assert_cmpuint ((guint64) status.st_size, ==, 5 * MIB);
  g_assert_cmpuint (vmm_volume_get_size (volume), ==, 5 * MIB);

  vmm_volume_release (volume);
  g_assert_false (grow (fixture, volume, 9 * MIB, NULL, &error));
  g_assert_error (error, VMM_ERROR, VMM_ERROR_CONFLICT);
}

static void
test_cancelled (Fixture *fixture, gconstpointer template_name)
{
  const VmmVolumeRequest request
      = { .name = "c", .size_bytes = MIB, .mode = VMM_VOLUME_NEW, .template_name = template_name };
  g_autoptr (GCancellable) cancelled = g_cancellable_new ();
  g_autoptr (GError) error = NULL;
  g_autoptr (VmmVolume) volume = NULL;

  g_cancellable_cancel (cancelled);
  volume = try_to_acquire (fixture, &request, cancelled, &error);
  g_assert_null (volume);
  g_assert_error (error, G_IO_ERROR, G_IO_ERROR_CANCELLED);
  g_assert_cmpuint (count_entries (fixture), ==, 0);
}

/* Cancelled while a worker is at it: the volume is there and ours, or it is not there. */
static void
test_cancelled_on_the_way (Fixture *fixture, gconstpointer data)
{
  for (guint i = 0; i < 20; i++)
    {
      const VmmVolumeRequest request = { .name = "c", .size_bytes = MIB, .mode = VMM_VOLUME_NEW };
      g_autoptr (GCancellable) cancellable = g_cancellable_new ();
      g_autoptr (GAsyncResult) result = NULL;
      g_autoptr (VmmVolume) volume = NULL;
      g_autoptr (GError) error = NULL;
      TestAwait await = TEST_AWAIT_INIT;

      vmm_storage_backend_acquire_async (fixture->storage, &request, cancellable, test_await_cb,
                                         &await);
      g_cancellable_cancel (cancellable);
      result = test_await (&await);
      volume = vmm_storage_backend_acquire_finish (fixture->storage, result, &error);
      if (volume == NULL)
        g_assert_error (error, G_IO_ERROR, G_IO_ERROR_CANCELLED);
      g_assert_cmpuint (count_entries (fixture), ==, volume != NULL ? 1 : 0);
      if (volume != NULL)
        g_assert_true (remove_volume (fixture, "c", NULL));
    }
}

static void
test_race (Fixture *fixture, gconstpointer data)
{
  enum
  {
    N = 8
  };
  const VmmVolumeRequest request = { .name = "one", .size_bytes = MIB, .mode = VMM_VOLUME_NEW };
  TestAwait awaits[N] = { TEST_AWAIT_INIT };
  guint n_won = 0;

  for (guint i = 0; i < N; i++)
    vmm_storage_backend_acquire_async (fixture->storage, &request, NULL, test_await_cb, &awaits[i]);
  for (guint i = 0; i < N; i++)
    {
      g_autoptr (GAsyncResult) result = test_await (&awaits[i]);
      g_autoptr (GError) error = NULL;
      g_autoptr (VmmVolume) volume
          = vmm_storage_backend_acquire_finish (fixture->storage, result, &error);

      if (volume != NULL)
        n_won++;
      else
        g_assert_error (error, VMM_ERROR, VMM_ERROR_CONFLICT);
    }
  g_assert_cmpuint (n_won, ==, 1);
  g_assert_cmpuint (count_entries (fixture), ==, 1);
}

/* A file that cannot become as large as it should leaves nothing. */
static void
test_failed_creation (Fixture *fixture, gconstpointer template_name)
{
  const VmmVolumeRequest request = {
    .name = "f", .size_bytes = 8 * MIB, .mode = VMM_VOLUME_NEW, .template_name = template_name
  };
  struct rlimit before, limit;
  g_autoptr (GError) error = NULL;
  g_autoptr (VmmVolume) volume = NULL;

  signal (SIGXFSZ, SIG_IGN);
  g_assert_no_errno (getrlimit (RLIMIT_FSIZE, &before));
  limit = before;
  limit.rlim_cur = MIB;
  g_assert_no_errno (setrlimit (RLIMIT_FSIZE, &limit));
  volume = try_to_acquire (fixture, &request, NULL, &error);
  g_assert_no_errno (setrlimit (RLIMIT_FSIZE, &before));

  g_assert_null (volume);
  g_assert_error (error, VMM_ERROR, VMM_ERROR_CONFLICT);
  g_assert_nonnull (strstr (error->message, "volume f: create: no space left"));
  g_assert_cmpuint (count_entries (fixture), ==, 0);
}

static void
test_no_folder (Fixture *fixture, gconstpointer data)
{
  const VmmVolumeRequest request = { .name = "f", .size_bytes = MIB, .mode = VMM_VOLUME_NEW };
  g_autoptr (GError) error = NULL;
  g_autoptr (VmmVolume) volume = NULL;

  g_assert_true (g_file_set_contents (fixture->folder, "in the way", -1, NULL));
  volume = try_to_acquire (fixture, &request, NULL, &error);
  g_assert_null (volume);
  g_assert_error (error, VMM_ERROR, VMM_ERROR_INTERNAL);
  g_assert_nonnull (strstr (error->message, fixture->folder));
}

static gboolean
skip_without_mount (void)
{
  if (!can_mount)
    g_test_skip ("only root can mount a file system");
  return !can_mount;
}

static void
test_room (Fixture *fixture, gconstpointer data)
{
  VmmVolumeRequest request = { .name = "r", .mode = VMM_VOLUME_NEW, .size_bytes = GIB };

  if (skip_without_mount ())
    return;

  /* Larger than the file system can ever be. */
  assert_refused (fixture, &request, VMM_ERROR_CONFLICT,
                  "conflict: volume r: 1.0\302\240GiB can never fit on a file system of "
                  "8.0\302\240MiB: choose a smaller disk");
  g_assert_cmpuint (count_entries (fixture), ==, 0);

  create (fixture, "a", 6 * MIB, "allocated-file");
  request.size_bytes = 3 * MIB;
  request.template_name = "allocated-file";
  assert_refused (
      fixture, &request, VMM_ERROR_CONFLICT,
      "conflict: volume r: no space left: 3.0\302\240MiB needs at least "
      "3.0\302\240MiB free, there is 2.0\302\240MiB: make room or choose a smaller disk");
  request.template_name = "sparse-file";
  assert_refused (
      fixture, &request, VMM_ERROR_CONFLICT,
      "conflict: volume r: no space left: 3.0\302\240MiB needs at least "
      "3.0\302\240MiB free, there is 2.0\302\240MiB: make room or choose a smaller disk");
  g_assert_cmpuint (count_entries (fixture), ==, 1);

  /* It fits as soon as there is room. */
  g_assert_true (remove_volume (fixture, "a", NULL));
  create (fixture, "r", 3 * MIB, "sparse-file");
}

static void
test_room_to_grow (Fixture *fixture, gconstpointer data)
{
  g_autoptr (VmmVolume) volume = NULL;
  g_autoptr (GError) error = NULL;
  struct stat status;

  if (skip_without_mount ())
    return;

  volume = acquire (fixture, &(VmmVolumeRequest){ .name = "g",
                                                  .size_bytes = 5 * MIB,
                                                  .mode = VMM_VOLUME_NEW,
                                                  .template_name = "allocated-file" });
  g_assert_false (grow (fixture, volume, 9 * MIB, NULL, &error));
  g_assert_error (error, VMM_ERROR, VMM_ERROR_CONFLICT);
  g_clear_error (&error);
  create (fixture, "other", 2 * MIB, "allocated-file");
  g_assert_false (grow (fixture, volume, 7 * MIB, NULL, &error));
  g_assert_error (error, VMM_ERROR, VMM_ERROR_CONFLICT);
  g_assert_nonnull (strstr (error->message, "no space left"));
  g_assert_no_errno (fstat (vmm_volume_get_fd (volume), &status));
  g_assert_cmpuint ((guint64) status.st_size, ==, 5 * MIB);
  g_assert_cmpuint (vmm_volume_get_size (volume), ==, 5 * MIB);
}

static void
test_read_only_disk (Fixture *fixture, gconstpointer data)
{
  VmmVolumeRequest request = { .name = "a", .mode = VMM_VOLUME_OPEN };
  g_autoptr (VmmVolume) volume = NULL;
  g_autoptr (GError) error = NULL;

  if (skip_without_mount ())
    return;

  create (fixture, "a", MIB, NULL);
  g_assert_no_errno (mount (NULL, fixture->directory, NULL, MS_REMOUNT | MS_RDONLY, NULL));
  assert_refused (fixture, &request, VMM_ERROR_CONFLICT, "conflict: volume a is read-only");
  request.read_only = TRUE;
  volume = acquire (fixture, &request);
  vmm_volume_release (volume);
  g_assert_false (remove_volume (fixture, "a", &error));
  g_assert_error (error, VMM_ERROR, VMM_ERROR_CONFLICT);
  g_clear_error (&error);

  request = (VmmVolumeRequest){ .name = "b", .mode = VMM_VOLUME_NEW, .size_bytes = MIB };
  g_clear_object (&volume);
  volume = try_to_acquire (fixture, &request, NULL, &error);
  g_assert_null (volume);
  g_assert_error (error, VMM_ERROR, VMM_ERROR_INTERNAL);
  g_assert_nonnull (strstr (error->message, "Read-only file system"));
}

static void
test_account (Fixture *fixture, gconstpointer account)
{
  const struct passwd *owner = getpwnam (account);
  g_autofree char *path = entry (fixture, "vm-1");
  g_autofree char *other = g_build_filename (fixture->folder, "other", NULL);
  struct stat status;

  if (geteuid () != 0 || owner == NULL)
    {
      g_test_skip ("only root can give files away");
      return;
    }

  create (fixture, "vm-1", MIB, NULL);
  g_assert_no_errno (g_stat (path, &status));
  g_assert_cmpuint (status.st_uid, ==, owner->pw_uid);
  g_assert_cmpuint (status.st_mode, ==, S_IFREG | 0600);
  g_assert_no_errno (g_stat (fixture->folder, &status));
  g_assert_cmpuint (status.st_uid, ==, 0);
  g_assert_cmpuint (status.st_gid, ==, owner->pw_gid);

  /* What is there from a time without the account. */
  g_assert_no_errno (chown (path, 0, 0));
  g_assert_no_errno (chown (fixture->folder, 0, 0));
  g_assert_no_errno (g_chmod (fixture->folder, 0700));
  reopen (fixture, "vm-1");
  g_assert_no_errno (g_stat (path, &status));
  g_assert_cmpuint (status.st_uid, ==, owner->pw_uid);
  g_assert_no_errno (g_stat (fixture->folder, &status));
  g_assert_cmpuint (status.st_gid, ==, owner->pw_gid);
  g_assert_cmpuint (status.st_mode & 07777, ==, 0710);

  /* What somebody has elsewhere, too, stays his. */
  g_assert_no_errno (chown (path, 0, 0));
  g_assert_no_errno (link (path, other));
  reopen (fixture, "vm-1");
  g_assert_no_errno (g_stat (path, &status));
  g_assert_cmpuint (status.st_uid, ==, 0);
}

/* Where files without a name are not known. */
static void
test_without_tmpfile (void)
{
  g_autoptr (GError) error = NULL;
  g_autoptr (GSubprocess) again
      = g_subprocess_new (G_SUBPROCESS_FLAGS_STDOUT_SILENCE, &error, self_path, "--without-tmpfile",
                          "-p", "/storage-files/files", NULL);

  g_assert_no_error (error);
  g_assert_true (g_subprocess_wait_check (again, NULL, &error));
  g_assert_no_error (error);
}

static void
deny_tmpfile (void)
{
  struct sock_filter filter[] = {
    BPF_STMT (BPF_LD | BPF_W | BPF_ABS, offsetof (struct seccomp_data, nr)),
    BPF_JUMP (BPF_JMP | BPF_JEQ | BPF_K, SYS_openat, 0, 3),
    BPF_STMT (BPF_LD | BPF_W | BPF_ABS, offsetof (struct seccomp_data, args[2])),
    BPF_JUMP (BPF_JMP | BPF_JSET | BPF_K, O_TMPFILE & ~O_DIRECTORY, 0, 1),
    BPF_STMT (BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EOPNOTSUPP),
    BPF_STMT (BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  struct sock_fprog program = { .len = G_N_ELEMENTS (filter), .filter = filter };

  g_assert_no_errno (prctl (PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
  g_assert_no_errno (prctl (PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0));
  g_assert_cmpint (open ("/tmp", O_RDWR | O_TMPFILE, 0600), ==, -1);
}

int
main (int argc, char **argv)
{
  if (argc > 1 && g_str_equal (argv[1], "--without-tmpfile"))
    {
      deny_tmpfile ();
      argv[1] = argv[0];
      argv++;
      argc--;
    }
  /* Before there are threads, which would stay where they are. */
  can_mount = geteuid () == 0 && unshare (CLONE_NEWNS) == 0
              && mount (NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0;
  g_test_init (&argc, &argv, G_TEST_OPTION_ISOLATE_DIRS, NULL);

#define ADD(path, data, function)                                                                  \
  g_test_add ("/storage-files/files/" path, Fixture, data, set_up, function, tear_down)
#define ADD_SMALL(path, function)                                                                  \
  g_test_add ("/storage-files/files/" path, Fixture, "size=8m", set_up_small, function, tear_down)
  ADD ("create", NULL, test_create);
  ADD ("allocated", NULL, test_allocated);
  ADD ("open", NULL, test_open);
  ADD ("read-only", NULL, test_read_only);
  ADD ("bad-requests", NULL, test_bad_requests);
  ADD ("other-types", NULL, test_other_types);
  ADD ("remove", NULL, test_remove);
  ADD ("list", NULL, test_list);
  ADD ("grow", NULL, test_grow);
  ADD ("cancelled-on-the-way", NULL, test_cancelled_on_the_way);
  ADD ("race", NULL, test_race);
  ADD ("failed-creation", NULL, test_failed_creation);
  ADD ("no-folder", NULL, test_no_folder);
  ADD ("account", "nobody", test_account);
  ADD_SMALL ("room", test_room);
  ADD_SMALL ("room-to-grow", test_room_to_grow);
  ADD_SMALL ("read-only-disk", test_read_only_disk);
  ADD ("cancelled", NULL, test_cancelled);
#undef ADD
#undef ADD_SMALL
  g_test_add ("/storage-files/templates/grow-allocated", Fixture, "allocated-file", set_up,
              test_grow, tear_down);
  g_test_add_func ("/storage-files/without-tmpfile", test_without_tmpfile);
  return g_test_run ();
}

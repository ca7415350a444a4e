/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Files that must be whole or not there: replacing, reading, copying, removing, and what is left
 * behind when the disk is full or somebody has put a link in the way. */

#include "vmm-file.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <glib/gstdio.h>

#include "test-await.h"

typedef struct
{
  char *dir;
  char *path;
} Fixture;

static void
set_up (Fixture *fixture, gconstpointer data)
{
  fixture->dir = test_make_directory ();
  fixture->path = g_build_filename (fixture->dir, "file", NULL);
}

static void
tear_down (Fixture *fixture, gconstpointer data)
{
  g_free (fixture->path);
  test_remove_directory (fixture->dir);
}

static guint
count_entries (const char *path)
{
  g_autoptr (GDir) dir = g_dir_open (path, 0, NULL);
  guint count = 0;

  while (g_dir_read_name (dir) != NULL)
    count++;
  return count;
}

static guint
mode_of (const char *path)
{
  struct stat status;

  g_assert_cmpint (lstat (path, &status), ==, 0);
  return status.st_mode & 07777;
}

static void
assert_content (const char *path, const char *wanted)
{
  g_autoptr (GError) error = NULL;
  g_autofree char *content = NULL;

  g_file_get_contents (path, &content, NULL, &error);
  g_assert_no_error (error);
  g_assert_cmpstr (content, ==, wanted);
}

static void
write_text (const char *path, const char *text)
{
  g_autoptr (GError) error = NULL;

  g_file_set_contents (path, text, -1, &error);
  g_assert_no_error (error);
}

/* Once everything written here is too large, as on a full disk. */
static void
limit_file_size (rlim_t bytes)
{
  struct rlimit limit;

  signal (SIGXFSZ, SIG_IGN);
  g_assert_cmpint (getrlimit (RLIMIT_FSIZE, &limit), ==, 0);
  limit.rlim_cur = bytes;
  g_assert_cmpint (setrlimit (RLIMIT_FSIZE, &limit), ==, 0);
}

static gboolean
replace (const char *path, const char *text, guint mode, GCancellable *cancellable, GError **error)
{
  g_autoptr (GBytes) content = g_bytes_new (text, strlen (text));
  g_autoptr (GAsyncResult) result = NULL;
  TestAwait await = TEST_AWAIT_INIT;

  vmm_file_replace_async (path, content, mode, cancellable, test_await_cb, &await);
  result = test_await (&await);
  return vmm_file_replace_finish (result, error);
}

static void
test_replace (Fixture *fixture, gconstpointer data)
{
  g_autoptr (GError) error = NULL;
  mode_t mask = umask (077);

  g_assert_true (vmm_file_replace (fixture->path, "one", 3, 0640, &error));
  g_assert_no_error (error);
  assert_content (fixture->path, "one");
  g_assert_cmpuint (mode_of (fixture->path), ==, 0640);
  umask (mask);

  g_assert_true (replace (fixture->path, "two", 0600, NULL, &error));
  g_assert_no_error (error);
  assert_content (fixture->path, "two");
  g_assert_cmpuint (mode_of (fixture->path), ==, 0600);
  g_assert_true (vmm_file_replace (fixture->path, NULL, 0, 0600, &error));
  assert_content (fixture->path, "");
  g_assert_cmpuint (count_entries (fixture->dir), ==, 1);
}

/* The link is replaced, not what it points to. */
static void
test_replace_link (Fixture *fixture, gconstpointer data)
{
  g_autofree char *other = g_build_filename (fixture->dir, "other", NULL);
  g_autoptr (GError) error = NULL;

  write_text (other, "precious");
  g_assert_cmpint (symlink (other, fixture->path), ==, 0);
  g_assert_true (replace (fixture->path, "new", 0600, NULL, &error));
  assert_content (other, "precious");
  assert_content (fixture->path, "new");
  g_assert_false (g_file_test (fixture->path, G_FILE_TEST_IS_SYMLINK));
}

static void
test_replace_failures (Fixture *fixture, gconstpointer data)
{
  g_autofree char *below = g_build_filename (fixture->dir, "absent", "file", NULL);
  g_autofree char *folder = g_build_filename (fixture->dir, "folder", NULL);
  g_autofree char *inside = g_build_filename (folder, "x", NULL);
  g_autoptr (GCancellable) cancellable = g_cancellable_new ();
  g_autoptr (GError) error = NULL;

  g_assert_false (replace (below, "x", 0600, NULL, &error));
  g_assert_error (error, G_IO_ERROR, G_IO_ERROR_NOT_FOUND);
  g_clear_error (&error);

  g_assert_true (vmm_file_make_directory (folder, 0700, &error));
  write_text (inside, "x");
  g_assert_false (replace (folder, "x", 0600, NULL, &error));
  g_assert_nonnull (error);
  g_assert_true (g_str_has_prefix (error->message, "replace /tmp/"));
  g_clear_error (&error);

  write_text (fixture->path, "old");
  g_cancellable_cancel (cancellable);
  g_assert_false (replace (fixture->path, "new", 0600, cancellable, &error));
  g_assert_error (error, G_IO_ERROR, G_IO_ERROR_CANCELLED);
  assert_content (fixture->path, "old");
  g_assert_cmpuint (count_entries (fixture->dir), ==, 2);
}

static void
test_full_disk (Fixture *fixture, gconstpointer data)
{
  g_autoptr (GError) error = NULL;
  g_autofree char *large = g_strnfill (64 * 1024, 'x');
  g_autofree char *copy = g_build_filename (fixture->dir, "copy", NULL);
  TestAwait await = TEST_AWAIT_INIT;
  g_autoptr (GAsyncResult) result = NULL;

  if (g_test_subprocess ())
    {
      write_text (fixture->path, "old");
      write_text (copy, large);
      limit_file_size (4096);
      g_assert_false (replace (fixture->path, large, 0600, NULL, &error));
      g_assert_nonnull (error);
      g_assert_true (g_str_has_prefix (error->message, "write /tmp/"));
      assert_content (fixture->path, "old");
      g_clear_error (&error);

      g_unlink (fixture->path);
      vmm_file_copy_async (copy, fixture->path, 0600, NULL, test_await_cb, &await);
      result = test_await (&await);
      g_assert_false (vmm_file_copy_finish (result, &error));
      g_assert_true (g_str_has_prefix (error->message, "copy to /tmp/"));
      /* No temporary file of either is left. */
      g_assert_cmpuint (count_entries (fixture->dir), ==, 1);
      return;
    }
  g_test_trap_subprocess (NULL, 0, 0);
  g_test_trap_assert_passed ();
}

/* Root is held back by no mode, so it becomes somebody else for a moment. */
static void
test_read_only_folder (Fixture *fixture, gconstpointer data)
{
  g_autoptr (GError) error = NULL;
  gboolean is_root = geteuid () == 0;

  g_assert_cmpint (g_chmod (fixture->dir, 0555), ==, 0);
  if (is_root)
    g_assert_cmpint (seteuid (65534), ==, 0);
  g_assert_false (vmm_file_replace (fixture->path, "x", 1, 0600, &error));
  if (is_root)
    g_assert_cmpint (seteuid (0), ==, 0);
  g_assert_cmpint (g_chmod (fixture->dir, 0700), ==, 0);
  g_assert_error (error, G_IO_ERROR, G_IO_ERROR_PERMISSION_DENIED);
  g_assert_cmpuint (count_entries (fixture->dir), ==, 0);
}

static void
test_read (Fixture *fixture, gconstpointer data)
{
  g_autofree char *link = g_build_filename (fixture->dir, "link", NULL);
  g_autofree char *pipe_path = g_build_filename (fixture->dir, "pipe", NULL);
  g_autoptr (GError) error = NULL;
  g_autoptr (GBytes) content = NULL;

  write_text (fixture->path, "12345");
  content = vmm_file_read (fixture->path, 5, &error);
  g_assert_no_error (error);
  g_assert_cmpmem (g_bytes_get_data (content, NULL), g_bytes_get_size (content), "12345", 5);
  g_clear_pointer (&content, g_bytes_unref);
  content = vmm_file_read (fixture->path, 100, &error);
  g_assert_no_error (error);
  g_assert_cmpuint (g_bytes_get_size (content), ==, 5);

  g_assert_null (vmm_file_read (fixture->path, 4, &error));
  g_assert_error (error, G_IO_ERROR, G_IO_ERROR_MESSAGE_TOO_LARGE);
  g_clear_error (&error);
  g_assert_cmpint (symlink (fixture->path, link), ==, 0);
  g_assert_null (vmm_file_read (link, 100, &error));
  g_assert_error (error, G_IO_ERROR, G_IO_ERROR_NOT_REGULAR_FILE);
  g_clear_error (&error);
  g_assert_cmpint (mkfifo (pipe_path, 0600), ==, 0);
  g_assert_null (vmm_file_read (pipe_path, 100, &error));
  g_assert_error (error, G_IO_ERROR, G_IO_ERROR_NOT_REGULAR_FILE);
  g_clear_error (&error);
  g_assert_null (vmm_file_read (fixture->dir, 100, &error));
  g_assert_error (error, G_IO_ERROR, G_IO_ERROR_NOT_REGULAR_FILE);
  g_clear_error (&error);
  g_assert_null (vmm_file_read ("/dev/zero", 100, &error));
  g_assert_error (error, G_IO_ERROR, G_IO_ERROR_NOT_REGULAR_FILE);
  g_clear_error (&error);
  g_assert_null (vmm_file_read ("/nonexistent/file", 100, &error));
  g_assert_error (error, G_IO_ERROR, G_IO_ERROR_NOT_FOUND);
}

static GBytes *
read_tail (const char *path, gsize limit, GCancellable *cancellable, gboolean *cut, GError **error)
{
  g_autoptr (GAsyncResult) result = NULL;
  TestAwait await = TEST_AWAIT_INIT;

  vmm_file_read_tail_async (path, limit, cancellable, test_await_cb, &await);
  result = test_await (&await);
  return vmm_file_read_tail_finish (result, cut, error);
}

static void
test_read_tail (Fixture *fixture, gconstpointer data)
{
  g_autoptr (GCancellable) cancellable = g_cancellable_new ();
  g_autoptr (GError) error = NULL;
  g_autoptr (GBytes) content = NULL;
  gboolean cut = TRUE;

  g_assert_null (read_tail (fixture->path, 4, NULL, &cut, &error));
  g_assert_no_error (error);
  g_assert_false (cut);

  write_text (fixture->path, "123456");
  content = read_tail (fixture->path, 4, NULL, &cut, &error);
  g_assert_cmpmem (g_bytes_get_data (content, NULL), g_bytes_get_size (content), "3456", 4);
  g_assert_true (cut);
  g_clear_pointer (&content, g_bytes_unref);
  content = read_tail (fixture->path, 6, NULL, &cut, &error);
  g_assert_cmpmem (g_bytes_get_data (content, NULL), g_bytes_get_size (content), "123456", 6);
  g_assert_false (cut);

  g_assert_null (read_tail (fixture->dir, 4, NULL, &cut, &error));
  g_assert_error (error, G_IO_ERROR, G_IO_ERROR_NOT_REGULAR_FILE);
  g_clear_error (&error);
  g_cancellable_cancel (cancellable);
  g_assert_null (read_tail (fixture->path, 4, cancellable, &cut, &error));
  g_assert_error (error, G_IO_ERROR, G_IO_ERROR_CANCELLED);
}

static gboolean
copy (const char *from, const char *to, guint mode, GCancellable *cancellable, GError **error)
{
  g_autoptr (GAsyncResult) result = NULL;
  TestAwait await = TEST_AWAIT_INIT;

  vmm_file_copy_async (from, to, mode, cancellable, test_await_cb, &await);
  result = test_await (&await);
  return vmm_file_copy_finish (result, error);
}

static void
test_copy (Fixture *fixture, gconstpointer data)
{
  g_autofree char *target = g_build_filename (fixture->dir, "target", NULL);
  g_autofree char *link = g_build_filename (fixture->dir, "link", NULL);
  g_autoptr (GCancellable) cancellable = g_cancellable_new ();
  g_autoptr (GError) error = NULL;

  write_text (fixture->path, "content");
  g_assert_cmpint (symlink ("file", link), ==, 0);
  g_assert_true (copy (link, target, 0640, NULL, &error));
  g_assert_no_error (error);
  assert_content (target, "content");
  g_assert_cmpuint (mode_of (target), ==, 0640);
  g_assert_false (g_file_test (target, G_FILE_TEST_IS_SYMLINK));

  write_text (fixture->path, "other");
  g_assert_false (copy (fixture->path, target, 0600, NULL, &error));
  g_assert_error (error, G_IO_ERROR, G_IO_ERROR_EXISTS);
  g_clear_error (&error);
  assert_content (target, "content");
  g_unlink (target);

  g_assert_false (copy ("/nonexistent", target, 0600, NULL, &error));
  g_assert_error (error, G_IO_ERROR, G_IO_ERROR_NOT_FOUND);
  g_clear_error (&error);
  g_assert_false (copy ("/dev/zero", target, 0600, NULL, &error));
  g_assert_error (error, G_IO_ERROR, G_IO_ERROR_NOT_REGULAR_FILE);
  g_clear_error (&error);
  g_cancellable_cancel (cancellable);
  g_assert_false (copy (fixture->path, target, 0600, cancellable, &error));
  g_assert_error (error, G_IO_ERROR, G_IO_ERROR_CANCELLED);
  /* The file and the link. */
  g_assert_cmpuint (count_entries (fixture->dir), ==, 2);
}

/* Content and holes between and behind it, longer than one piece. */
static void
test_copy_sparse (Fixture *fixture, gconstpointer data)
{
  g_autofree char *target = g_build_filename (fixture->dir, "target", NULL);
  g_autoptr (GError) error = NULL;
  const off_t size = 64 * 1024 * 1024;
  struct stat from;
  struct stat to;
  char buffer[6] = "";
  int fd = open (fixture->path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);

  g_assert_cmpint (fd, >=, 0);
  g_assert_cmpint (pwrite (fd, "start", 5, 0), ==, 5);
  g_assert_cmpint (pwrite (fd, "later", 5, size / 2), ==, 5);
  g_assert_cmpint (ftruncate (fd, size), ==, 0);
  g_assert_cmpint (fstat (fd, &from), ==, 0);
  close (fd);

  g_assert_true (copy (fixture->path, target, 0600, NULL, &error));
  g_assert_no_error (error);
  fd = open (target, O_RDONLY | O_CLOEXEC);
  g_assert_cmpint (fstat (fd, &to), ==, 0);
  g_assert_cmpint (to.st_size, ==, size);
  g_assert_cmpint (pread (fd, buffer, 5, 0), ==, 5);
  g_assert_cmpstr (buffer, ==, "start");
  g_assert_cmpint (pread (fd, buffer, 5, size / 2), ==, 5);
  g_assert_cmpstr (buffer, ==, "later");
  close (fd);
  if (from.st_blocks * 512 < size / 4)
    g_assert_cmpint (to.st_blocks * 512, <, size / 4);
}

static gboolean
remove_tree (const char *path, GCancellable *cancellable, GError **error)
{
  g_autoptr (GAsyncResult) result = NULL;
  TestAwait await = TEST_AWAIT_INIT;

  vmm_file_remove_tree_async (path, NULL, cancellable, test_await_cb, &await);
  result = test_await (&await);
  return vmm_file_remove_tree_finish (result, error);
}

static void
test_remove_tree (Fixture *fixture, gconstpointer data)
{
  g_autofree char *tree = g_build_filename (fixture->dir, "tree", NULL);
  g_autofree char *deep = g_build_filename (tree, "a", "b", NULL);
  g_autofree char *file = g_build_filename (deep, "file", NULL);
  g_autofree char *outside = g_build_filename (fixture->dir, "outside", NULL);
  g_autofree char *inside_outside = g_build_filename (outside, "precious", NULL);
  g_autofree char *link = g_build_filename (tree, "link", NULL);
  g_autofree char *top_link = g_build_filename (fixture->dir, "top-link", NULL);
  g_autoptr (GCancellable) cancellable = g_cancellable_new ();
  g_autoptr (GError) error = NULL;

  g_assert_true (vmm_file_make_directory (deep, 0700, &error));
  g_assert_true (vmm_file_make_directory (outside, 0700, &error));
  write_text (file, "x");
  write_text (inside_outside, "precious");
  g_assert_cmpint (symlink (outside, link), ==, 0);
  g_assert_cmpint (symlink (outside, top_link), ==, 0);

  g_cancellable_cancel (cancellable);
  g_assert_false (remove_tree (tree, cancellable, &error));
  g_assert_error (error, G_IO_ERROR, G_IO_ERROR_CANCELLED);
  g_clear_error (&error);
  assert_content (file, "x");

  g_assert_true (remove_tree (tree, NULL, &error));
  g_assert_no_error (error);
  g_assert_false (g_file_test (tree, G_FILE_TEST_EXISTS));
  g_assert_true (remove_tree (top_link, NULL, &error));
  assert_content (inside_outside, "precious");
  g_assert_true (remove_tree (tree, NULL, &error));
  g_assert_true (remove_tree (inside_outside, NULL, &error));
  g_assert_no_error (error);
  g_assert_cmpuint (count_entries (outside), ==, 0);
}

/* The file that says whose folder it is goes when nothing else is left, and only then. */
static void
test_remove_tree_last (Fixture *fixture, gconstpointer data)
{
  g_autofree char *tree = g_build_filename (fixture->dir, "tree", NULL);
  g_autofree char *last = g_build_filename (tree, "vm.json", NULL);
  g_autofree char *other = g_build_filename (tree, "key", NULL);
  g_autoptr (GString) deep = g_string_new (tree);

  for (guint i = 0; i < 100; i++)
    g_string_append (deep, "/d");
  g_assert_true (vmm_file_make_directory (deep->str, 0700, NULL));
  write_text (last, "x");
  write_text (other, "x");
  for (guint round = 0; round < 2; round++)
    {
      g_autoptr (GAsyncResult) result = NULL;
      g_autoptr (GError) error = NULL;
      TestAwait await = TEST_AWAIT_INIT;

      vmm_file_remove_tree_async (tree, "vm.json", NULL, test_await_cb, &await);
      result = test_await (&await);
      if (round == 1)
        {
          g_assert_true (vmm_file_remove_tree_finish (result, &error));
          break;
        }
      g_assert_false (vmm_file_remove_tree_finish (result, &error));
      g_assert_error (error, G_IO_ERROR, G_IO_ERROR_FILENAME_TOO_LONG);
      g_assert_false (g_file_test (other, G_FILE_TEST_EXISTS));
      assert_content (last, "x");
      /* Now it can. */
      g_string_truncate (deep, strlen (tree) + strlen ("/d") * 50);
      g_assert_true (remove_tree (deep->str, NULL, NULL));
    }
  g_assert_false (g_file_test (tree, G_FILE_TEST_EXISTS));
}

static void
test_remove_temporaries (Fixture *fixture, gconstpointer data)
{
  static const char *const kept[] = { "vm.json", ".hidden", ".vm.json.0123456", ".vm.json.0123456g",
                                      "vm.json.01234567", "..01234567", ".vm.json.0123456A" };
  g_autofree char *temporary = g_build_filename (fixture->dir, ".vm.json.0123abcd", NULL);
  g_autofree char *folder = g_build_filename (fixture->dir, ".x.01234567", NULL);
  g_autofree char *link = g_build_filename (fixture->dir, ".y.01234567", NULL);
  g_autofree char *outside = g_build_filename (fixture->dir, "link", NULL);
  guint n_entries;

  write_text (temporary, "x");
  g_assert_true (vmm_file_make_directory (folder, 0700, NULL));
  g_assert_cmpint (symlink (temporary, link), ==, 0);
  g_assert_cmpint (symlink (fixture->dir, outside), ==, 0);
  for (guint i = 0; i < G_N_ELEMENTS (kept); i++)
    {
      g_autofree char *path = g_build_filename (fixture->dir, kept[i], NULL);

      write_text (path, "x");
    }
  n_entries = count_entries (fixture->dir);
  vmm_file_remove_temporaries (outside);
  g_assert_cmpuint (count_entries (fixture->dir), ==, n_entries);
  vmm_file_remove_temporaries (fixture->dir);
  g_assert_cmpuint (count_entries (fixture->dir), ==, n_entries - 1);
  g_assert_false (g_file_test (temporary, G_FILE_TEST_EXISTS));
  vmm_file_remove_temporaries (temporary);
}

/* Deeper than descriptors and stack are spent for; with enough room for the rest to go. */
static void
test_remove_deep_tree (Fixture *fixture, gconstpointer data)
{
  g_autoptr (GString) path = g_string_new (fixture->dir);
  g_autofree char *tree = g_build_filename (fixture->dir, "d", NULL);
  g_autoptr (GError) error = NULL;

  for (guint i = 0; i < 100; i++)
    g_string_append (path, "/d");
  g_assert_true (vmm_file_make_directory (path->str, 0700, &error));
  g_assert_false (remove_tree (tree, NULL, &error));
  g_assert_error (error, G_IO_ERROR, G_IO_ERROR_FILENAME_TOO_LONG);
}

static void
test_make_directory_modes (Fixture *fixture, gconstpointer data)
{
  g_autofree char *deep = g_build_filename (fixture->dir, "a", "b", NULL);
  g_autofree char *below_file = g_build_filename (fixture->path, "x", NULL);
  g_autofree char *link = g_build_filename (fixture->dir, "link", NULL);
  g_autoptr (GError) error = NULL;

  g_assert_true (vmm_file_make_directory (deep, 0750, &error));
  g_assert_cmpuint (mode_of (deep), ==, 0750);
  g_assert_true (vmm_file_make_directory (deep, 0700, &error));
  g_assert_cmpint (symlink (deep, link), ==, 0);
  g_assert_true (vmm_file_make_directory (link, 0700, &error));
  g_assert_no_error (error);
  write_text (fixture->path, "x");
  g_assert_false (vmm_file_make_directory (fixture->path, 0700, &error));
  g_assert_error (error, G_IO_ERROR, G_IO_ERROR_NOT_DIRECTORY);
  g_clear_error (&error);
  g_assert_false (vmm_file_make_directory (below_file, 0700, &error));
  g_assert_error (error, G_IO_ERROR, G_IO_ERROR_NOT_DIRECTORY);
}

#define ADD(name, function) g_test_add ("/file/" name, Fixture, NULL, set_up, function, tear_down)

int
main (int argc, char **argv)
{
  g_test_init (&argc, &argv, G_TEST_OPTION_ISOLATE_DIRS, NULL);
  ADD ("replace", test_replace);
  ADD ("replace-link", test_replace_link);
  ADD ("replace-failures", test_replace_failures);
  ADD ("full-disk", test_full_disk);
  ADD ("read-only-folder", test_read_only_folder);
  ADD ("read", test_read);
  ADD ("read-tail", test_read_tail);
  ADD ("copy", test_copy);
  ADD ("copy-sparse", test_copy_sparse);
  ADD ("remove-tree", test_remove_tree);
  ADD ("remove-tree-last", test_remove_tree_last);
  ADD ("remove-temporaries", test_remove_temporaries);
  ADD ("remove-deep-tree", test_remove_deep_tree);
  ADD ("make-directory", test_make_directory_modes);
  return g_test_run ();
}

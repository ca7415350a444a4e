/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <glib/gstdio.h>

#include "vmm-plugin-registry.h"

#include "fake-backends.h"
#include "test-await.h"

/* Modules stay in a process once they are loaded, so all tests share one folder. */
static char *folder;

static const VmmBackendConfig config = { "/state", "/run", NULL };

static void
copy_module (const char *directory, const char *module, const char *as)
{
  g_autofree char *base = g_strdup_printf ("libvmm-%s.so", module);
  g_autofree char *from = g_test_build_filename (G_TEST_BUILT, "unit", base, NULL);
  g_autofree char *to = g_build_filename (directory, as, NULL);
  g_autofree char *contents = NULL;
  g_autoptr (GError) error = NULL;
  gsize length;

  g_file_get_contents (from, &contents, &length, &error);
  g_assert_no_error (error);
  g_file_set_contents_full (to, contents, (gssize) length, G_FILE_SET_CONTENTS_NONE, 0644, &error);
  g_assert_no_error (error);
}

static void
make_folder (void)
{
  folder = test_make_directory ();
  copy_module (folder, "launcher-alpha", "libvmm-launcher-alpha.so");
  copy_module (folder, "launcher-beta", "libvmm-launcher-beta.so");
  copy_module (folder, "launcher-never", "libvmm-launcher-never.so");
  copy_module (folder, "launcher-refuse", "libvmm-launcher-refuse.so");
  copy_module (folder, "launcher-silent", "libvmm-launcher-silent.so");
  copy_module (folder, "launcher-twin", "libvmm-launcher-twin.so");
}

static VmmPluginRegistry *
new_registry (const char *directory, const char *const *disabled)
{
  VmmPluginRegistry *registry = vmm_plugin_registry_new ();

  vmm_plugin_registry_load_directory (registry, directory, disabled);
  vmm_plugin_registry_instantiate (registry, &config);
  return registry;
}

static const VmmPluginRow *
find_row (VmmPluginRegistry *registry, const char *name, const char *file)
{
  GPtrArray *rows = vmm_plugin_registry_get_rows (registry);

  for (guint i = 0; i < rows->len; i++)
    {
      const VmmPluginRow *row = g_ptr_array_index (rows, i);
      g_autofree char *base = row->file != NULL ? g_path_get_basename (row->file) : g_strdup ("");

      if (g_str_equal (row->name, name) && (file == NULL || g_str_equal (base, file)))
        return row;
    }
  return NULL;
}

static void
test_rows (void)
{
  g_autoptr (VmmPluginRegistry) registry = new_registry (folder, NULL);
  GPtrArray *rows = vmm_plugin_registry_get_rows (registry);
  const char *order[] = { "alpha", "beta", "beta", "refuse", "never", "silent" };
  const VmmPluginRow *row;

  g_assert_cmpuint (rows->len, ==, G_N_ELEMENTS (order));
  for (guint i = 0; i < rows->len; i++)
    {
      row = g_ptr_array_index (rows, i);
      g_assert_cmpstr (row->kind, ==, "launcher");
      g_assert_cmpstr (row->name, ==, order[i]);
      g_assert_cmpint (row->loaded, ==, i < 5);
      g_assert_cmpint (row->backend != NULL, ==, row->loaded);
      g_assert_false (row->chosen);
      g_assert_true (g_str_has_prefix (row->file, folder));
      g_assert_cmpint (row->available, ==, row->reason == NULL);
    }
  row = find_row (registry, "alpha", NULL);
  g_assert_true (row->available);
  g_assert_cmpint (row->priority, ==, 10);
  g_assert_cmpstr (vmm_plugin_registry_get_name (registry, row->backend), ==, "alpha");
  row = find_row (registry, "silent", NULL);
  g_assert_cmpstr (row->reason, ==, "registers no backend");
  row = find_row (registry, "refuse", NULL);
  g_assert_cmpstr (row->reason, ==, "unsupported: /state is no good state folder");
  row = find_row (registry, "beta", "libvmm-launcher-twin.so");
  g_assert_true (g_str_has_suffix (row->reason, "libvmm-launcher-beta.so has this name too"));
}

static void
test_auto (void)
{
  g_autoptr (VmmPluginRegistry) registry = new_registry (folder, NULL);
  g_autofree char *best = NULL;
  g_autofree char *second = NULL;
  g_autoptr (GError) error = NULL;
  VmmBackend *backend;

  backend = vmm_plugin_registry_choose (registry, VMM_PLUGIN_KIND_LAUNCHER, "auto", &best, &error);
  g_assert_cmpstr (vmm_plugin_registry_get_name (registry, backend), ==, "alpha");
  g_assert_cmpstr (best, ==, "best available");
  g_assert_true (find_row (registry, "alpha", NULL)->chosen);

  /* What stops being available is not chosen any more. */
  g_setenv ("TEST_MODULE_alpha", "alpha is asleep", TRUE);
  backend = vmm_plugin_registry_choose (registry, VMM_PLUGIN_KIND_LAUNCHER, NULL, &second, &error);
  g_assert_cmpstr (vmm_plugin_registry_get_name (registry, backend), ==, "beta");
  g_assert_cmpstr (second, ==, "alpha launcher unavailable: alpha is asleep");
  g_assert_false (find_row (registry, "alpha", NULL)->chosen);
  g_assert_false (find_row (registry, "alpha", NULL)->available);
  g_assert_cmpstr (find_row (registry, "alpha", NULL)->reason, ==, "alpha is asleep");
  g_assert_true (find_row (registry, "beta", "libvmm-launcher-beta.so")->chosen);

  /* A negative priority is for those who ask for it. */
  g_setenv ("TEST_MODULE_beta", "beta is ill", TRUE);
  g_assert_null (
      vmm_plugin_registry_choose (registry, VMM_PLUGIN_KIND_LAUNCHER, "auto", NULL, &error));
  g_assert_error (error, VMM_ERROR, VMM_ERROR_UNSUPPORTED);
  g_assert_nonnull (strstr (error->message, "no launcher is available: alpha launcher unavailable: "
                                            "alpha is asleep; beta launcher unavailable: "
                                            "beta is ill"));
  g_assert_null (strstr (error->message, "never"));
  g_clear_error (&error);
  g_unsetenv ("TEST_MODULE_alpha");
  g_unsetenv ("TEST_MODULE_beta");

  g_assert_null (
      vmm_plugin_registry_choose (registry, VMM_PLUGIN_KIND_NETWORK, "auto", NULL, &error));
  g_assert_error (error, VMM_ERROR, VMM_ERROR_UNSUPPORTED);
  g_assert_cmpstr (error->message, ==, "unsupported: no network is available");
}

static void
test_by_name (void)
{
  g_autoptr (VmmPluginRegistry) registry = new_registry (folder, NULL);
  g_autofree char *reason = NULL;
  g_autoptr (GError) error = NULL;
  VmmBackend *backend;

  backend
      = vmm_plugin_registry_choose (registry, VMM_PLUGIN_KIND_LAUNCHER, "never", &reason, &error);
  g_assert_cmpstr (vmm_plugin_registry_get_name (registry, backend), ==, "never");
  g_assert_cmpstr (reason, ==, "configured");

  g_assert_null (
      vmm_plugin_registry_choose (registry, VMM_PLUGIN_KIND_LAUNCHER, "bogus", NULL, &error));
  g_assert_error (error, VMM_ERROR, VMM_ERROR_INVALID_REQUEST);
  g_assert_cmpstr (error->message, ==,
                   "invalid request: launcher \"bogus\" is not one of "
                   "[auto alpha beta never refuse]");
  g_clear_error (&error);
  /* A failure leaves the choice as it was. */
  g_assert_true (find_row (registry, "never", NULL)->chosen);

  g_setenv ("TEST_MODULE_beta", "beta is ill", TRUE);
  g_assert_null (
      vmm_plugin_registry_choose (registry, VMM_PLUGIN_KIND_LAUNCHER, "beta", NULL, &error));
  g_unsetenv ("TEST_MODULE_beta");
  g_assert_error (error, VMM_ERROR, VMM_ERROR_UNSUPPORTED);
  g_assert_cmpstr (error->message, ==, "unsupported: beta launcher unavailable: beta is ill");
  g_clear_error (&error);

  g_assert_null (
      vmm_plugin_registry_choose (registry, VMM_PLUGIN_KIND_LAUNCHER, "silent", NULL, &error));
  g_assert_error (error, VMM_ERROR, VMM_ERROR_UNSUPPORTED);
  g_assert_cmpstr (error->message, ==,
                   "unsupported: silent launcher unavailable: registers no backend");
}

static void
test_disabled (void)
{
  const char *disabled[] = { "launcher-alpha", "launcher-silent", NULL };
  g_autoptr (VmmPluginRegistry) registry = new_registry (folder, disabled);
  g_autoptr (GError) error = NULL;
  const VmmPluginRow *row = find_row (registry, "alpha", NULL);
  VmmBackend *backend;

  g_assert_false (row->loaded);
  g_assert_cmpstr (row->reason, ==, "disabled");
  g_assert_null (row->backend);
  backend = vmm_plugin_registry_choose (registry, VMM_PLUGIN_KIND_LAUNCHER, "auto", NULL, &error);
  g_assert_cmpstr (vmm_plugin_registry_get_name (registry, backend), ==, "beta");
}

/* The reason why a folder's only file was refused; loading is the test's failure. */
static char *
dup_refusal (const char *directory, const char *name)
{
  g_autoptr (VmmPluginRegistry) registry = new_registry (directory, NULL);
  const VmmPluginRow *row = find_row (registry, name, NULL);

  g_assert_cmpuint (vmm_plugin_registry_get_rows (registry)->len, ==, 1);
  g_assert_nonnull (row);
  g_assert_false (row->loaded);
  g_assert_false (row->available);
  return g_strdup (row->reason);
}

static void
test_bad_files (void)
{
  char *directory = test_make_directory ();
  g_autofree char *path = g_build_filename (directory, "libvmm-storage-bad.so", NULL);
  g_autofree char *beta = g_build_filename (folder, "libvmm-launcher-beta.so", NULL);
  g_autofree char *loop = g_build_filename (directory, "libvmm-storage-loop.so", NULL);
  g_autofree char *reason = NULL;

  /* What is no module at all; the text is the dynamic linker's. */
  g_assert_true (g_file_set_contents (path, "no module", -1, NULL));
  reason = dup_refusal (directory, "bad");
  g_assert_nonnull (strstr (reason, "libvmm-storage-bad.so"));
  g_clear_pointer (&reason, g_free);

  /* Writable by others, by the group. */
  g_assert_cmpint (g_chmod (path, 0646), ==, 0);
  reason = dup_refusal (directory, "bad");
  g_assert_cmpstr (reason, ==, "writable by group or others");
  g_clear_pointer (&reason, g_free);
  g_assert_cmpint (g_chmod (path, 0664), ==, 0);
  reason = dup_refusal (directory, "bad");
  g_assert_cmpstr (reason, ==, "writable by group or others");
  g_clear_pointer (&reason, g_free);
  g_assert_cmpint (g_unlink (path), ==, 0);

  /* Not a regular file: a folder, a pipe. */
  g_assert_cmpint (g_mkdir (path, 0755), ==, 0);
  reason = dup_refusal (directory, "bad");
  g_assert_cmpstr (reason, ==, "not a regular file");
  g_clear_pointer (&reason, g_free);
  g_assert_cmpint (g_rmdir (path), ==, 0);
  g_assert_cmpint (mkfifo (path, 0600), ==, 0);
  reason = dup_refusal (directory, "bad");
  g_assert_cmpstr (reason, ==, "not a regular file");
  g_clear_pointer (&reason, g_free);
  g_assert_cmpint (g_unlink (path), ==, 0);

  /* Links: to elsewhere, to nothing, to itself. */
  g_assert_cmpint (symlink (beta, path), ==, 0);
  reason = dup_refusal (directory, "bad");
  g_assert_cmpstr (reason, ==, "a link that leads out of the folder");
  g_clear_pointer (&reason, g_free);
  g_assert_cmpint (g_unlink (path), ==, 0);
  g_assert_cmpint (symlink (loop, loop), ==, 0);
  reason = dup_refusal (directory, "loop");
  g_assert_cmpstr (reason, ==, "a link that leads out of the folder");
  g_clear_pointer (&reason, g_free);
  g_assert_cmpint (g_unlink (loop), ==, 0);

  /* The entry functions have another module's name. */
  copy_module (directory, "launcher-beta", "libvmm-launcher-renamed.so");
  reason = dup_refusal (directory, "renamed");
  g_assert_nonnull (strstr (reason, "entry functions are missing"));
  g_assert_nonnull (strstr (reason, "VMM_PLUGIN_DEFINE (vmm_launcher_renamed, "));
  test_remove_directory (directory);
}

static void
test_foreign_owner (void)
{
  char *directory = test_make_directory ();
  g_autofree char *path = g_build_filename (directory, "libvmm-launcher-beta.so", NULL);
  g_autofree char *reason = NULL;
  g_autofree char *folder_reason = NULL;
  g_autofree char *name = g_path_get_basename (directory);

  copy_module (directory, "launcher-beta", "libvmm-launcher-beta.so");
  if (chown (path, 12345, (gid_t) -1) < 0)
    g_test_skip ("only root can give a file to somebody else");
  else
    {
      reason = dup_refusal (directory, "beta");
      g_assert_cmpstr (reason, ==, "owned by neither root nor the daemon's user");
      g_assert_cmpint (chown (path, 0, (gid_t) -1), ==, 0);
      g_assert_cmpint (chown (directory, 12345, (gid_t) -1), ==, 0);
      folder_reason = dup_refusal (directory, name);
      g_assert_cmpstr (folder_reason, ==, "owned by neither root nor the daemon's user");
    }
  test_remove_directory (directory);
}

static void
test_bad_folders (void)
{
  char *directory = test_make_directory ();
  g_autofree char *name = g_path_get_basename (directory);
  g_autofree char *missing = g_build_filename (directory, "a", "b", NULL);
  g_autofree char *file = g_build_filename (directory, "file", NULL);
  g_autoptr (VmmPluginRegistry) registry = new_registry (missing, NULL);
  g_autofree char *file_reason = NULL;
  g_autofree char *reason = NULL;

  g_assert_cmpuint (vmm_plugin_registry_get_rows (registry)->len, ==, 0);
  g_assert_true (g_file_set_contents (file, "", 0, NULL));
  file_reason = dup_refusal (file, "file");
  g_assert_cmpstr (file_reason, ==, "not a folder");

  copy_module (directory, "launcher-beta", "libvmm-launcher-beta.so");
  g_assert_cmpint (g_chmod (directory, 0777), ==, 0);
  reason = dup_refusal (directory, name);
  g_assert_cmpstr (reason, ==, "writable by group or others");
  test_remove_directory (directory);
}

/* A link within the folder is how versions of libraries are kept; other files are not plugins. */
static void
test_other_files (void)
{
  char *directory = test_make_directory ();
  g_autofree char *link = g_build_filename (directory, "libvmm-launcher-linked.so", NULL);
  g_autofree char *readme = g_build_filename (directory, "README", NULL);
  g_autofree char *stem = g_build_filename (directory, "lib.so", NULL);
  g_autoptr (VmmPluginRegistry) registry = NULL;

  copy_module (directory, "launcher-linked", "libvmm-launcher-linked.so.1");
  g_assert_cmpint (symlink ("libvmm-launcher-linked.so.1", link), ==, 0);
  g_assert_true (g_file_set_contents (readme, "", 0, NULL));
  g_assert_true (g_file_set_contents (stem, "", 0, NULL));
  registry = new_registry (directory, NULL);
  g_assert_cmpuint (vmm_plugin_registry_get_rows (registry)->len, ==, 1);
  g_assert_true (find_row (registry, "linked", "libvmm-launcher-linked.so")->available);
  test_remove_directory (directory);
}

/* Last, because these stay registered: plugins that are linked in, or that a test registers. */
static void
test_builtin (void)
{
  g_autoptr (VmmPluginRegistry) registry = vmm_plugin_registry_new ();
  g_autoptr (GError) error = NULL;
  const VmmPluginKind kinds[] = { VMM_PLUGIN_KIND_LAUNCHER, VMM_PLUGIN_KIND_NETWORK,
                                  VMM_PLUGIN_KIND_STORAGE, VMM_PLUGIN_KIND_ATTESTOR };
  const char *nicks[] = { "launcher", "network", "storage", "attestor" };

  test_fakes_register ();
  vmm_plugin_registry_load_builtin (registry);
  vmm_plugin_registry_instantiate (registry, &config);
  for (guint i = 0; i < G_N_ELEMENTS (kinds); i++)
    {
      VmmBackend *backend = vmm_plugin_registry_choose (registry, kinds[i], "auto", NULL, &error);

      g_assert_no_error (error);
      g_assert_cmpstr (vmm_plugin_registry_get_name (registry, backend), ==, "fake");
      g_assert_cmpstr (vmm_plugin_kind_to_nick (kinds[i]), ==, nicks[i]);
    }
  g_assert_null (find_row (registry, "fake", NULL)->file);
  /* Modules that another registry loaded are none of ours. */
  g_assert_null (find_row (registry, "alpha", NULL));
  test_fakes_reset ();
}

int
main (int argc, char **argv)
{
  int result;

  g_test_init (&argc, &argv, G_TEST_OPTION_ISOLATE_DIRS, NULL);
  make_folder ();
  g_test_add_func ("/plugin-registry/rows", test_rows);
  g_test_add_func ("/plugin-registry/auto", test_auto);
  g_test_add_func ("/plugin-registry/by-name", test_by_name);
  g_test_add_func ("/plugin-registry/disabled", test_disabled);
  g_test_add_func ("/plugin-registry/bad-files", test_bad_files);
  g_test_add_func ("/plugin-registry/foreign-owner", test_foreign_owner);
  g_test_add_func ("/plugin-registry/bad-folders", test_bad_folders);
  g_test_add_func ("/plugin-registry/other-files", test_other_files);
  g_test_add_func ("/plugin-registry/builtin", test_builtin);
  result = g_test_run ();
  test_remove_directory (folder);
  return result;
}

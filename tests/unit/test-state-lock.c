/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* One daemon for one state directory. */

#include "vmm-state-lock.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "interfaces/vmm-error.h"
#include "test-await.h"

static void
test_take (void)
{
  char *dir = test_make_directory ();
  g_autofree char *path = g_build_filename (dir, "lock", NULL);
  g_autofree char *content = NULL;
  g_autofree char *pid = g_strdup_printf ("%ld\n", (long) getpid ());
  g_autofree char *held = g_strdup_printf (
      "state dir is in use by another vm-manager: %s is held by pid %ld", path, (long) getpid ());
  g_autoptr (GError) error = NULL;
  struct stat status;
  int fd;

  /* What a daemon before us has left is longer than what we write. */
  g_assert_true (g_file_set_contents (path, "99999999999\n", -1, NULL));
  fd = vmm_state_lock_take (dir, &error);
  g_assert_no_error (error);
  g_assert_cmpint (fd, >=, 0);
  g_assert_true (g_file_get_contents (path, &content, NULL, NULL));
  g_assert_cmpstr (content, ==, pid);
  g_assert_cmpint (fstat (fd, &status), ==, 0);
  g_assert_cmpuint (status.st_mode & 07777, ==, 0600);
  g_assert_cmpint (fcntl (fd, F_GETFD) & FD_CLOEXEC, ==, FD_CLOEXEC);

  /* flock() is by open file, so this process may stand for a second one. */
  g_assert_cmpint (vmm_state_lock_take (dir, &error), ==, -1);
  g_assert_error (error, VMM_ERROR, VMM_ERROR_CONFLICT);
  g_assert_cmpstr (error->message, ==, held);
  g_clear_error (&error);

  vmm_state_lock_release (fd);
  fd = vmm_state_lock_take (dir, &error);
  g_assert_no_error (error);
  vmm_state_lock_release (fd);
  vmm_state_lock_release (-1);
  test_remove_directory (dir);
}

static void
assert_fails (const char *dir, const char *text)
{
  g_autofree char *message = g_strdup_printf ("state dir lock %s/lock: %s", dir, text);
  g_autoptr (GError) error = NULL;

  g_assert_cmpint (vmm_state_lock_take (dir, &error), ==, -1);
  g_assert_error (error, VMM_ERROR, VMM_ERROR_INTERNAL);
  g_assert_cmpstr (error->message, ==, message);
}

static void
test_failures (void)
{
  char *dir = test_make_directory ();
  g_autofree char *path = g_build_filename (dir, "lock", NULL);
  g_autofree char *other = g_build_filename (dir, "other", NULL);
  g_autofree char *content = NULL;

  assert_fails ("/nonexistent", g_strerror (ENOENT));

  g_assert_true (g_file_set_contents (other, "precious", -1, NULL));
  g_assert_cmpint (symlink (other, path), ==, 0);
  assert_fails (dir, g_strerror (ELOOP));
  g_assert_true (g_file_get_contents (other, &content, NULL, NULL));
  g_assert_cmpstr (content, ==, "precious");
  unlink (path);

  g_assert_cmpint (mkfifo (path, 0600), ==, 0);
  assert_fails (dir, "not a regular file");
  unlink (path);
  g_assert_cmpint (mkdir (path, 0700), ==, 0);
  assert_fails (dir, g_strerror (EISDIR));
  test_remove_directory (dir);
}

int
main (int argc, char **argv)
{
  g_test_init (&argc, &argv, G_TEST_OPTION_ISOLATE_DIRS, NULL);
  g_test_add_func ("/state-lock/take", test_take);
  g_test_add_func ("/state-lock/failures", test_failures);
  return g_test_run ();
}

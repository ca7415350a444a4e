/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What the account of a root daemon's children may do in the state directory, tried as that
 * account. */

#include "vmm-account.h"

#include <errno.h>
#include <fcntl.h>
#include <glib/gstdio.h>
#include <grp.h>
#include <pwd.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "test-await.h"

#define ACCOUNT "nobody"
#define GOOD 0

typedef struct
{
  char *top;
  char *folder;
  char *file;
  const struct passwd *owner;
} Fixture;

typedef int (*Deed) (const char *path);

static int
deed_read (const char *path)
{
  return open (path, O_RDONLY | O_CLOEXEC);
}

static int
deed_write (const char *path)
{
  return open (path, O_WRONLY | O_CLOEXEC);
}

static int
deed_list (const char *path)
{
  return open (path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

static int
deed_make (const char *path)
{
  return open (path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
}

static int
deed_replace (const char *path)
{
  g_autofree char *other = g_strconcat (path, ".other", NULL);

  return deed_make (other) < 0 ? -1 : rename (other, path);
}

static int
deed_link (const char *path)
{
  g_autofree char *other = g_strconcat (path, ".link", NULL);

  return link (path, other);
}

static int
deed_connect (const char *path)
{
  struct sockaddr_un address = { .sun_family = AF_UNIX };
  int fd = socket (AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

  g_strlcpy (address.sun_path, path, sizeof address.sun_path);
  return fd < 0 ? -1 : connect (fd, (struct sockaddr *) &address, sizeof address);
}

/* As the account, in a process of its own: 0, or what errno was. */
static int
as_account (Fixture *fixture, Deed deed, const char *path)
{
  int status = 0;
  pid_t pid = fork ();

  if (pid == 0)
    {
      if (setgroups (0, NULL) != 0
          || setresgid (fixture->owner->pw_gid, fixture->owner->pw_gid, fixture->owner->pw_gid) != 0
          || setresuid (fixture->owner->pw_uid, fixture->owner->pw_uid, fixture->owner->pw_uid)
                 != 0)
        _exit (255);
      _exit (deed (path) >= 0 ? GOOD : errno);
    }
  g_assert_cmpint (pid, >, 0);
  g_assert_cmpint (waitpid (pid, &status, 0), ==, pid);
  g_assert_true (WIFEXITED (status));
  return WEXITSTATUS (status);
}

static guint
mode_of (const char *path)
{
  struct stat status;

  g_assert_no_errno (g_lstat (path, &status));
  return status.st_mode & 07777;
}

static void
write_file (const char *path, guint mode)
{
  g_assert_true (g_file_set_contents (path, "x", -1, NULL));
  g_assert_no_errno (g_chmod (path, (int) mode));
}

static void
set_up (Fixture *fixture, gconstpointer data)
{
  vmm_account_init (ACCOUNT);
  fixture->owner = getpwnam (ACCOUNT);
  fixture->top = test_make_directory ();
  fixture->folder = g_build_filename (fixture->top, "folder", NULL);
  fixture->file = g_build_filename (fixture->folder, "file", NULL);
  g_assert_no_errno (g_chmod (fixture->top, 0711));
  g_assert_no_errno (g_mkdir (fixture->folder, 0700));
  write_file (fixture->file, 0600);
}

static void
tear_down (Fixture *fixture, gconstpointer data)
{
  g_free (fixture->file);
  g_free (fixture->folder);
  test_remove_directory (fixture->top);
}

static void
test_through (Fixture *fixture, gconstpointer data)
{
  g_autoptr (GError) error = NULL;

  g_assert_no_errno (g_chmod (fixture->file, 0644));
  g_assert_cmpint (as_account (fixture, deed_read, fixture->file), ==, EACCES);
  g_assert_true (vmm_account_let_through (fixture->folder, &error));
  g_assert_no_error (error);
  g_assert_cmpint (as_account (fixture, deed_read, fixture->file), ==, GOOD);
  g_assert_cmpint (as_account (fixture, deed_list, fixture->folder), ==, EACCES);
  g_assert_cmpint (as_account (fixture, deed_replace, fixture->file), ==, EACCES);
  g_assert_cmphex (mode_of (fixture->folder), ==, 0710);

  g_assert_false (vmm_account_let_through ("/nonexistent/folder", &error));
  g_assert_nonnull (error);
}

/* An administrator has decided already. */
static void
test_through_others (Fixture *fixture, gconstpointer data)
{
  struct stat status;

  g_assert_no_errno (g_chmod (fixture->folder, 0755));
  g_assert_true (vmm_account_let_through (fixture->folder, NULL));
  g_assert_cmphex (mode_of (fixture->folder), ==, 0755);

  g_assert_no_errno (g_chmod (fixture->folder, 0750));
  g_assert_no_errno (chown (fixture->folder, 0, 12345));
  g_assert_true (vmm_account_let_through (fixture->folder, NULL));
  g_assert_cmphex (mode_of (fixture->folder), ==, 0750);
  g_assert_no_errno (g_stat (fixture->folder, &status));
  g_assert_cmpuint (status.st_gid, ==, 12345);
}

static void
test_in (Fixture *fixture, gconstpointer data)
{
  g_autofree char *made = g_build_filename (fixture->folder, "made", NULL);
  g_autoptr (GError) error = NULL;

  g_assert_true (vmm_account_let_in (fixture->folder, &error));
  g_assert_no_error (error);
  g_assert_cmpint (as_account (fixture, deed_make, made), ==, GOOD);
  g_assert_cmpint (as_account (fixture, deed_replace, made), ==, GOOD);
  g_assert_cmpint (as_account (fixture, deed_read, fixture->file), ==, EACCES);
  g_assert_cmpint (as_account (fixture, unlink, fixture->file), ==, EPERM);
  g_assert_cmpint (as_account (fixture, deed_replace, fixture->file), ==, EPERM);

  /* Nor what is in a place that it can put a link to. */
  g_assert_no_errno (g_unlink (made));
  g_assert_no_errno (symlink (fixture->top, made));
  g_assert_false (vmm_account_let_in (made, &error));
  g_assert_nonnull (error);
  g_assert_cmphex (mode_of (fixture->top), ==, 0711);
}

static void
test_read (Fixture *fixture, gconstpointer data)
{
  g_autoptr (GError) error = NULL;

  g_assert_true (vmm_account_let_through (fixture->folder, NULL));
  g_assert_true (vmm_account_let_read (fixture->file, &error));
  g_assert_no_error (error);
  g_assert_cmpint (as_account (fixture, deed_read, fixture->file), ==, GOOD);
  g_assert_cmpint (as_account (fixture, deed_write, fixture->file), ==, EACCES);

  g_assert_no_errno (chown (fixture->file, 12345, 0));
  g_assert_no_errno (g_chmod (fixture->file, 0600));
  g_assert_true (vmm_account_let_read (fixture->file, NULL));
  g_assert_cmphex (mode_of (fixture->file), ==, 0600);
}

static int
listen_at (const char *path)
{
  struct sockaddr_un address = { .sun_family = AF_UNIX };
  int fd = socket (AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

  g_strlcpy (address.sun_path, path, sizeof address.sun_path);
  g_assert_no_errno (bind (fd, (struct sockaddr *) &address, sizeof address));
  g_assert_no_errno (g_chmod (path, 0600));
  g_assert_no_errno (listen (fd, 4));
  return fd;
}

static void
test_connect (Fixture *fixture, gconstpointer data)
{
  g_autofree char *path = g_build_filename (fixture->folder, "socket", NULL);
  g_autofree char *link_path = g_build_filename (fixture->folder, "link", NULL);
  int fd = listen_at (path);

  g_assert_true (vmm_account_let_through (fixture->folder, NULL));
  g_assert_cmpint (as_account (fixture, deed_connect, path), ==, EACCES);
  g_assert_true (vmm_account_let_connect (path, NULL));
  g_assert_cmpint (as_account (fixture, deed_connect, path), ==, GOOD);
  g_assert_cmphex (mode_of (path), ==, 0660);

  /* Nothing else is opened to it that way. */
  g_assert_false (vmm_account_let_connect (fixture->file, NULL));
  g_assert_cmphex (mode_of (fixture->file), ==, 0600);
  g_assert_no_errno (g_chmod (path, 0600));
  g_assert_no_errno (symlink (path, link_path));
  g_assert_false (vmm_account_let_connect (link_path, NULL));
  g_assert_cmphex (mode_of (path), ==, 0600);
  g_assert_false (vmm_account_let_connect (fixture->folder, NULL));
  close (fd);
}

static void
test_give (Fixture *fixture, gconstpointer data)
{
  g_autofree char *link_path = g_build_filename (fixture->top, "link", NULL);
  g_autoptr (GError) error = NULL;

  g_assert_true (vmm_account_let_through (fixture->folder, NULL));
  g_assert_true (vmm_account_give (fixture->file, &error));
  g_assert_no_error (error);
  g_assert_cmpint (as_account (fixture, deed_write, fixture->file), ==, GOOD);
  g_assert_true (vmm_account_give (fixture->file, NULL));

  /* What has another name, or is none of ours by itself. */
  g_assert_no_errno (chown (fixture->file, 0, 0));
  g_assert_no_errno (link (fixture->file, link_path));
  g_assert_false (vmm_account_give (fixture->file, &error));
  g_clear_error (&error);
  g_assert_cmpint (as_account (fixture, deed_write, fixture->file), ==, EACCES);
  g_assert_no_errno (g_unlink (link_path));
  g_assert_no_errno (symlink (fixture->file, link_path));
  g_assert_false (vmm_account_give (link_path, &error));
  g_assert_cmpint (as_account (fixture, deed_write, fixture->file), ==, EACCES);
}

static void
test_give_contents (Fixture *fixture, gconstpointer data)
{
  g_autofree char *below = g_build_filename (fixture->folder, "below", NULL);
  g_autofree char *secret = g_build_filename (below, "secret", NULL);
  g_autofree char *dangling = g_build_filename (fixture->folder, "link", NULL);
  g_autofree char *twice = g_build_filename (fixture->folder, "twice", NULL);
  g_autoptr (GError) error = NULL;

  g_assert_no_errno (g_mkdir (below, 0711));
  write_file (secret, 0600);
  g_assert_no_errno (symlink (secret, dangling));
  g_assert_true (vmm_account_let_in (fixture->folder, NULL));
  g_assert_true (vmm_account_give_contents (fixture->folder, &error));
  g_assert_no_error (error);
  g_assert_cmpint (as_account (fixture, deed_write, fixture->file), ==, GOOD);
  g_assert_cmpint (as_account (fixture, deed_write, secret), ==, EACCES);

  g_assert_no_errno (link (secret, twice));
  g_assert_false (vmm_account_give_contents (fixture->folder, &error));
  g_assert_nonnull (error);
  g_assert_cmpint (as_account (fixture, deed_write, secret), ==, EACCES);
  g_assert_cmpint (as_account (fixture, deed_link, secret), !=, GOOD);
}

/* Nothing happens, as for a daemon that is not root. */
static void
test_no_account (Fixture *fixture, gconstpointer data)
{
  vmm_account_init ("no such account");
  g_assert_true (vmm_account_let_through (fixture->folder, NULL));
  g_assert_true (vmm_account_let_in (fixture->folder, NULL));
  g_assert_true (vmm_account_let_read (fixture->file, NULL));
  g_assert_true (vmm_account_give (fixture->file, NULL));
  g_assert_true (vmm_account_give_contents (fixture->folder, NULL));
  g_assert_cmphex (mode_of (fixture->folder), ==, 0700);
  g_assert_cmphex (mode_of (fixture->file), ==, 0600);
}

static void
skip (gconstpointer why)
{
  g_test_skip (why);
}

int
main (int argc, char **argv)
{
  const char *why = NULL;

  g_test_init (&argc, &argv, NULL);
  if (geteuid () != 0)
    why = "only root can become somebody else";
  else if (getpwnam (ACCOUNT) == NULL)
    why = "there is no account \"" ACCOUNT "\"";
#define ADD(name, function)                                                                        \
  if (why != NULL)                                                                                 \
    g_test_add_data_func ("/account/" name, why, skip);                                            \
  else                                                                                             \
    g_test_add ("/account/" name, Fixture, NULL, set_up, function, tear_down)
  ADD ("through", test_through);
  ADD ("through/others", test_through_others);
  ADD ("in", test_in);
  ADD ("read", test_read);
  ADD ("connect", test_connect);
  ADD ("give", test_give);
  ADD ("give/contents", test_give_contents);
#undef ADD
  g_test_add ("/account/none", Fixture, NULL, set_up, test_no_account, tear_down);
  return g_test_run ();
}

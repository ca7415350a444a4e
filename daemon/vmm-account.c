/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The state directory as the children of a root daemon find it.
 *
 * Everything in it belongs to root, and is for root alone unless it is named here. A guest that
 * breaks out of QEMU is that account then: it must not read the key of a VM or its user data, nor
 * put something else in the place of a record. So folders that are on the way can be passed through
 * and not be listed, and those in which children make their files are sticky.
 */

#include "config.h"

#include "vmm-account.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "vmm-file-private.h"
#include "vmm-log.h"

#define MODE_LET_IN 01770
#define MODE_LET_CONNECT 0660
/* As the last digit of a mode: for a class of users. */
#define MAY_PASS 01
#define MAY_READ 04
#define GROUP_DIGIT 3
#define OWNER_DIGIT 6
#define GROUP_MASK 070

static struct
{
  gboolean exists;
  uid_t uid;
  gid_t gid;
} account;

void
vmm_account_init (const char *name)
{
  const struct passwd *entry = geteuid () == 0 ? getpwnam (name) : NULL;

  account.exists = entry != NULL;
  if (entry == NULL)
    return;
  account.uid = entry->pw_uid;
  account.gid = entry->pw_gid;
}

/* As the kernel looks: the first class that fits decides. */
static gboolean
account_may (const struct stat *status, mode_t what)
{
  if (status->st_uid == account.uid)
    return (status->st_mode & what << OWNER_DIGIT) != 0;
  if (status->st_gid == account.gid)
    return (status->st_mode & what << GROUP_DIGIT) != 0;
  return (status->st_mode & what) != 0;
}

/* Takes the descriptor. */
static gboolean
finish (int fd, gboolean good, const char *path, GError **error)
{
  int code = errno;

  if (fd >= 0)
    close (fd);
  return good || vmm_file_fail (error, "share", path, code);
}

/* What an administrator gave to another user or group is left alone: he is told. */
static gboolean
let (int fd, const char *path, mode_t what)
{
  struct stat status;

  if (fstat (fd, &status) != 0)
    return FALSE;
  if (account_may (&status, what))
    return TRUE;
  if (status.st_uid != geteuid () || (status.st_gid != getegid () && status.st_gid != account.gid))
    {
      vmm_log_warning ("VMs and networks cannot reach their files: let their account use this",
                       "path", path, "account", VMM_ACCOUNT_NAME, NULL);
      return TRUE;
    }
  return fchown (fd, (uid_t) -1, account.gid) == 0
         && fchmod (fd, (status.st_mode & 07777 & ~(mode_t) GROUP_MASK) | what << GROUP_DIGIT) == 0;
}

/* What is above the state directory is not the daemon's to change. */
static void
look_at_parents (const char *folder)
{
  g_autofree char *path = g_canonicalize_filename (folder, NULL);

  while (!g_str_equal (path, "/"))
    {
      char *parent = g_path_get_dirname (path);
      struct stat status;

      g_free (path);
      path = parent;
      if (stat (path, &status) == 0 && !account_may (&status, MAY_PASS))
        vmm_log_warning ("VMs and networks cannot reach their files: their account must be able to "
                         "pass through this folder",
                         "folder", path, "account", VMM_ACCOUNT_NAME, NULL);
    }
}

gboolean
vmm_account_let_through (const char *folder, GError **error)
{
  int fd;

  if (!account.exists)
    return TRUE;
  look_at_parents (folder);
  fd = open (folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  return finish (fd, fd >= 0 && let (fd, folder, MAY_PASS), folder, error);
}

gboolean
vmm_account_let_in (const char *folder, GError **error)
{
  int fd;

  if (!account.exists)
    return TRUE;
  fd = open (folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  return finish (
      fd, fd >= 0 && fchown (fd, (uid_t) -1, account.gid) == 0 && fchmod (fd, MODE_LET_IN) == 0,
      folder, error);
}

gboolean
vmm_account_let_read (const char *path, GError **error)
{
  int fd;

  if (!account.exists)
    return TRUE;
  fd = open (path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
  return finish (fd, fd >= 0 && let (fd, path, MAY_READ), path, error);
}

/* A socket cannot be opened, but its name can. */
static gboolean
let_connect (int fd)
{
  g_autofree char *link = g_strdup_printf ("/proc/self/fd/%d", fd);
  struct stat status;

  if (fstat (fd, &status) != 0)
    return FALSE;
  errno = EPERM;
  if (!S_ISSOCK (status.st_mode) || status.st_uid != geteuid ())
    return FALSE;
  return fchownat (fd, "", (uid_t) -1, account.gid, AT_EMPTY_PATH) == 0
         && chmod (link, MODE_LET_CONNECT) == 0;
}

gboolean
vmm_account_let_connect (const char *path, GError **error)
{
  int fd;

  if (!account.exists)
    return TRUE;
  fd = open (path, O_PATH | O_NOFOLLOW | O_CLOEXEC);
  return finish (fd, fd >= 0 && let_connect (fd), path, error);
}

static int
open_to_give (int folder, const char *name)
{
  return openat (folder, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
}

/* Children can make names where it is: a second name of a file of ours would give that away. */
static gboolean
give (int fd)
{
  struct stat status;

  if (fstat (fd, &status) != 0)
    return FALSE;
  if (status.st_uid == account.uid)
    return TRUE;
  errno = EPERM;
  if (!S_ISREG (status.st_mode) || status.st_nlink != 1)
    return FALSE;
  return fchown (fd, account.uid, account.gid) == 0;
}

gboolean
vmm_account_give (const char *path, GError **error)
{
  int fd;

  if (!account.exists)
    return TRUE;
  fd = open_to_give (AT_FDCWD, path);
  return finish (fd, fd >= 0 && give (fd), path, error);
}

/* Sockets and the like are made anew by whoever has them. */
static gboolean
give_entry (int folder, const char *name)
{
  struct stat status;
  gboolean good;
  int fd;

  if (fstatat (folder, name, &status, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG (status.st_mode))
    return TRUE;
  fd = open_to_give (folder, name);
  good = fd >= 0 && give (fd);
  if (fd >= 0)
    close (fd);
  return good;
}

gboolean
vmm_account_give_contents (const char *folder, GError **error)
{
  const struct dirent *entry;
  DIR *entries;
  int fd;

  if (!account.exists)
    return TRUE;
  fd = open (folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  entries = fd >= 0 ? fdopendir (fd) : NULL;
  if (entries == NULL)
    return finish (fd, FALSE, folder, error);
  while ((entry = readdir (entries)) != NULL)
    {
      int code;

      if (give_entry (fd, entry->d_name))
        continue;
      code = errno;
      vmm_file_fail (error, "share a file of", folder, code);
      closedir (entries);
      return FALSE;
    }
  closedir (entries);
  return TRUE;
}

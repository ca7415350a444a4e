/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * How the half of netd that faces guests is locked in. Who breaks it by way of a frame should find
 * himself in a process that owns nothing but the sockets it has: no file to open, no program to
 * start, no other process to see, no privilege to use.
 *
 * The network namespace is the host's, because the network address translation is made of the
 * host's sockets; netd-plan says where packets of guests may go. Everything else is new and empty.
 * Each layer (namespaces, root, capabilities, limits, Landlock, system calls) would hold if another
 * failed.
 */
#include "netd-sandbox.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <gio/gio.h>

#include "netd-network.h"
#include "netd-sandbox-private.h"

#define NAMESPACES (CLONE_NEWNS | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWPID)

/* Sockets take an inode each and no page. */
#define ROOT_OPTIONS "mode=0700,size=64k,nr_inodes=8192"

/* A limit of address space, so with room for what is mapped and never touched: who runs into it ends,
 * and all guests with it, which none of them may be able to bring about. So it is the sum of what the
 * other limits leave: what a flow takes in libslirp with the largest packets, and what a guest that
 * means ill can hold besides, most of it libslirp's spare buffers, for more of them than there are. */
#define MEMORY_PER_FLOW (386 * 1024)
#define MEMORY_PER_GUEST (8 * 1024 * 1024)
#define GUESTS 1024
#define MEMORY_BASE (G_GUINT64_CONSTANT (1024) * 1024 * 1024)
#define MEMORY_MAX                                                                                 \
  (MEMORY_BASE + (guint64) NETD_FLOWS_PER_NETWORK * MEMORY_PER_FLOW                                \
   + (guint64) GUESTS * MEMORY_PER_GUEST)

static pid_t warden;

gboolean
netd_sandbox_fail (GError **error, const char *what)
{
  int code = errno;

  g_set_error (error, G_IO_ERROR, g_io_error_from_errno (code), "%s: %s", what, g_strerror (code));
  return FALSE;
}

/* --- Namespaces --- */

/* Not fork(): only the raw call takes the flags that make the namespaces in one step. The process
 * has one thread, so there is nothing of the C library's to repair in the child. */
static pid_t
clone_process (unsigned long flags)
{
#if defined(__s390__) || defined(__CRIS__)
  return (pid_t) syscall (SYS_clone, NULL, flags, NULL, NULL, NULL);
#else
  return (pid_t) syscall (SYS_clone, flags, NULL, NULL, NULL, NULL);
#endif
}

static gboolean
write_file (const char *path, const char *text)
{
  gsize length = strlen (text);
  int fd = open (path, O_WRONLY | O_CLOEXEC);
  gboolean written;

  if (fd < 0)
    return FALSE;
  written = write (fd, text, length) == (gssize) length;
  close (fd);
  return written;
}

/* The account keeps its number, and there is no other: files and sockets look as they did. */
static gboolean
map_account (uid_t uid, gid_t gid)
{
  char map[64];

  g_snprintf (map, sizeof map, "%u %u 1\n", uid, uid);
  if (!write_file ("/proc/self/uid_map", map) || !write_file ("/proc/self/setgroups", "deny"))
    return FALSE;
  g_snprintf (map, sizeof map, "%u %u 1\n", gid, gid);
  return write_file ("/proc/self/gid_map", map);
}

/* The child cannot return an error to somebody who would know what to do with it. */
static void
require_in_child (gboolean done, const char *what)
{
  if (done)
    return;
  dprintf (STDERR_FILENO, "vmm-netd: %s: %s\n", what, g_strerror (errno));
  _exit (1);
}

pid_t
netd_sandbox_get_warden (void)
{
  return warden == 0 ? getpid () : warden;
}

/* A warden that ends before the child has said that it wants to end with it is noticed all the
 * same: the channel between them is closed. */
pid_t
netd_sandbox_fork (GError **error)
{
  uid_t uid = geteuid ();
  gid_t gid = getegid ();
  pid_t forker = getpid ();
  gboolean is_mapped = FALSE;
  pid_t pid = clone_process (CLONE_NEWUSER | NAMESPACES | SIGCHLD);

  if (pid < 0)
    {
      int code = errno;

      /* Within a chroot, or where they are switched off, root does without. */
      pid = clone_process (NAMESPACES | SIGCHLD);
      is_mapped = TRUE;
      errno = pid < 0 ? code : errno;
    }
  if (pid < 0)
    {
      netd_sandbox_fail (error,
                         "cannot make the sandbox, which needs user namespaces or CAP_SYS_ADMIN "
                         "(see the sysctls user.max_user_namespaces, "
                         "kernel.unprivileged_userns_clone and "
                         "kernel.apparmor_restrict_unprivileged_userns)");
      return -1;
    }
  if (pid == 0)
    {
      warden = forker;
      require_in_child (prctl (PR_SET_PDEATHSIG, SIGKILL) == 0, "follow the parent process");
      require_in_child (is_mapped || map_account (uid, gid), "map the account into the sandbox");
      require_in_child (prctl (PR_SET_DUMPABLE, 0) == 0, "forbid dumps");
    }
  return pid;
}

/* --- The private root --- */

/* No mount of ours may reach the mounts that the host shares. In a chroot the root is no mount of
 * its own, and only what will be mounted on can be separated. */
static gboolean
separate_mounts (void)
{
  return mount (NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0
         || (errno == EINVAL && mount (NULL, "/proc", NULL, MS_PRIVATE, NULL) == 0);
}

/* Where the root cannot be exchanged, because it is a chroot's or the first of all, it is left in
 * place, out of reach of who holds no descriptor of it and may not chroot(). */
static gboolean
take_root (void)
{
  if (syscall (SYS_pivot_root, ".", ".") == 0)
    return umount2 (".", MNT_DETACH) == 0;
  return errno == EINVAL && chroot (".") == 0;
}

/* On /proc, because it is there wherever netd runs; what it covers goes away with the old root. */
static gboolean
make_private_root (GError **error)
{
  if (!separate_mounts ())
    return netd_sandbox_fail (error,
                              "separate the file system (is mounting in user namespaces forbidden, "
                              "as by the sysctl kernel.apparmor_restrict_unprivileged_userns?)");
  if (mount ("netd", "/proc", "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, ROOT_OPTIONS) < 0
      || chdir ("/proc") < 0)
    return netd_sandbox_fail (error, "mount a private root");
  if (!take_root () || chdir ("/") < 0)
    return netd_sandbox_fail (error, "leave the file system");
  return TRUE;
}

/* --- Privileges and limits --- */

/* @is_owner: of a user namespace or root, so that even the bounding set can be emptied; others have
 * nothing to lose. */
static gboolean
drop_capabilities (gboolean is_owner, GError **error)
{
  struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
  struct __user_cap_data_struct none[_LINUX_CAPABILITY_U32S_3] = { 0 };

  for (unsigned long i = 0; prctl (PR_CAPBSET_READ, i, 0, 0, 0) >= 0; i++)
    if (prctl (PR_CAPBSET_DROP, i, 0, 0, 0) < 0 && is_owner)
      return netd_sandbox_fail (error, "empty the bounding set");
  if (prctl (PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) < 0 && errno != EINVAL)
    return netd_sandbox_fail (error, "empty the ambient set");
  if (syscall (SYS_capset, &header, none) < 0)
    return netd_sandbox_fail (error, "drop capabilities");
  if (prctl (PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
    return netd_sandbox_fail (error, "forbid new privileges");
  return TRUE;
}

static gboolean
limit (int resource, guint64 value, GError **error)
{
  struct rlimit current;

  if (getrlimit (resource, &current) < 0)
    return netd_sandbox_fail (error, "read a limit");
  current.rlim_max = MIN (current.rlim_max, value);
  current.rlim_cur = MIN (current.rlim_cur, current.rlim_max);
  if (setrlimit (resource, &current) < 0)
    return netd_sandbox_fail (error, "set a limit");
  return TRUE;
}

/* File sizes are not limited: captures are files. */
static gboolean
limit_resources (GError **error)
{
  struct rlimit descriptors;

  if (getrlimit (RLIMIT_NOFILE, &descriptors) < 0)
    return netd_sandbox_fail (error, "read a limit");
  if (!limit (RLIMIT_NOFILE, descriptors.rlim_cur, error) || !limit (RLIMIT_CORE, 0, error)
      || !limit (RLIMIT_NPROC, 0, error) || !limit (RLIMIT_MEMLOCK, 0, error)
      || !limit (RLIMIT_MSGQUEUE, 0, error))
    return FALSE;
#ifndef NETD_WITH_SANITIZER
  if (!limit (RLIMIT_AS, MEMORY_MAX, error))
    return FALSE;
#endif
  return TRUE;
}

/* --- Public --- */

gboolean
netd_sandbox_enter (GError **error)
{
  static const char hostname[] = "netd";

  /* Out of the reach of a terminal; fails only for who leads a session already. */
  setsid ();
  if (sethostname (hostname, sizeof hostname - 1) < 0)
    return netd_sandbox_fail (error, "name the sandbox");
  return make_private_root (error) && limit_resources (error) && drop_capabilities (TRUE, error)
         && netd_landlock_confine_switch (error) && netd_sandbox_filter_system_calls (error);
}

gboolean
netd_sandbox_confine_warden (const char *const *directories, GError **error)
{
  return limit (RLIMIT_CORE, 0, error) && drop_capabilities (FALSE, error)
         && netd_landlock_confine_warden (directories, error) && netd_filter_confine_warden (error);
}

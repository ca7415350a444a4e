/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The system call filters: lists of what the two halves of netd do, with everything else refused.
 * What nobody does by mistake, such as starting a program, ends the process at once.
 *
 * Calls are known by name, so that one list serves every architecture; names that an architecture
 * or the library does not have are passed over. Calls of a foreign architecture end the process.
 */
#include "netd-sandbox.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <seccomp.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <gio/gio.h>

#include "netd-sandbox-private.h"

/* Memory, time, signals, the event loop, descriptors that are open already. */
static const char *const common_calls[] = {
  "brk",
  "clock_getres",
  "clock_gettime",
  "close",
  "epoll_create1",
  "epoll_ctl",
  "epoll_pwait",
  "epoll_wait",
  "exit",
  "exit_group",
  "fstat",
  "futex",
  "getegid",
  "geteuid",
  "getgid",
  "getpid",
  "getrandom",
  "getsockname",
  "gettid",
  "gettimeofday",
  "getuid",
  "lseek",
  "madvise",
  "mremap",
  "munmap",
  "newfstatat",
  "poll",
  "ppoll",
  "read",
  "readv",
  "recvfrom",
  "recvmsg",
  "restart_syscall",
  "rt_sigaction",
  "rt_sigprocmask",
  "rt_sigreturn",
  "sendmsg",
  "sendto",
  "shutdown",
  "sigaltstack",
  "time",
  "write",
  "writev",
  NULL,
};

/* Sockets of guests' flows, listeners in the private root, captures. */
static const char *const switch_calls[] = {
  "accept",
  "accept4",
  "fdatasync",
  "ftruncate",
  "getpeername",
  "listen",
  "pwrite64",
  "recvmmsg",
  "sendmmsg",
  "unlink",
  "unlinkat",
  NULL,
};

/* Files to read, folders to watch, a child to wait for. */
static const char *const warden_calls[] = {
  "inotify_add_watch",
  "inotify_rm_watch",
  "readlink",
  "readlinkat",
  "statx",
  "wait4",
  "waitid",
  NULL,
};

/* Address sanitizer's own, in builds for tests. */
static const char *const sanitizer_calls[] = {
  "getrlimit", "getrusage", "pipe2", "prlimit64", "sched_getaffinity", NULL,
};

/* Nothing in netd does these, whatever a peer sends: who does has taken the process over. */
static const char *const deadly_calls[] = {
  "add_key",
  "bpf",
  "chroot",
  "delete_module",
  "execve",
  "execveat",
  "finit_module",
  "fsconfig",
  "fsmount",
  "fsopen",
  "init_module",
  "io_uring_enter",
  "io_uring_register",
  "io_uring_setup",
  "ioperm",
  "iopl",
  "kcmp",
  "kexec_file_load",
  "kexec_load",
  "keyctl",
  "mount",
  "mount_setattr",
  "move_mount",
  "open_by_handle_at",
  "open_tree",
  "perf_event_open",
  "pidfd_getfd",
  "pivot_root",
  "process_madvise",
  "process_vm_readv",
  "process_vm_writev",
  "ptrace",
  "reboot",
  "request_key",
  "setns",
  "swapon",
  "umount2",
  "unshare",
  "userfaultfd",
  NULL,
};

#define KIND_OF_SOCKET ((guint64) ~(guint) (SOCK_NONBLOCK | SOCK_CLOEXEC))
#define OPEN_TO_CHANGE (O_WRONLY | O_RDWR | O_CREAT | O_TRUNC | O_APPEND)

/* A filter under construction; the first error stays. */
typedef struct
{
  scmp_filter_ctx context;
  int result;
} Filter;

static void
add (Filter *filter, guint32 action, const char *name, guint n_conditions,
     const struct scmp_arg_cmp *conditions)
{
  int number = seccomp_syscall_resolve_name (name);

  if (number < 0 || filter->result < 0)
    return;
  filter->result
      = seccomp_rule_add_array (filter->context, action, number, n_conditions, conditions);
}

static void
add_all (Filter *filter, guint32 action, const char *const *names)
{
  for (guint i = 0; names[i] != NULL; i++)
    add (filter, action, names[i], 0, NULL);
}

static void
allow_if (Filter *filter, const char *name, struct scmp_arg_cmp condition)
{
  add (filter, SCMP_ACT_ALLOW, name, 1, &condition);
}

/* By its protocol, too: behind the same family and kind are some of which nothing is needed, and
 * which the kernel would load modules for. */
static void
allow_socket (Filter *filter, const char *name, int family, int kind, int protocol)
{
  const struct scmp_arg_cmp conditions[] = {
    SCMP_A0 (SCMP_CMP_EQ, (guint64) family),
    SCMP_A1 (SCMP_CMP_MASKED_EQ, KIND_OF_SOCKET, (guint64) kind),
    SCMP_A2 (SCMP_CMP_EQ, (guint64) protocol),
  };

  add (filter, SCMP_ACT_ALLOW, name, G_N_ELEMENTS (conditions), conditions);
}

/* The family of an address is out of a filter's sight, its length is not. Names of abstract
 * sockets, which share the host's network namespace and are in no folder, are as long as they are;
 * paths always come as a whole sockaddr_un. So hardly one abstract socket can be named, neither to
 * connect to it nor to take its name, even where Landlock does not know them. */
static void
allow_address (Filter *filter, const char *name, socklen_t length)
{
  allow_if (filter, name, SCMP_A2 (SCMP_CMP_EQ, length));
}

/* Of memory nothing can be made code. */
static void
allow_data_memory (Filter *filter)
{
  allow_if (filter, "mmap", SCMP_A2 (SCMP_CMP_MASKED_EQ, PROT_EXEC, 0));
  allow_if (filter, "mmap2", SCMP_A2 (SCMP_CMP_MASKED_EQ, PROT_EXEC, 0));
  allow_if (filter, "mprotect", SCMP_A2 (SCMP_CMP_MASKED_EQ, PROT_EXEC, 0));
}

static void
allow_common (Filter *filter)
{
  static const int fcntl_commands[]
      = { F_GETFD, F_SETFD, F_GETFL, F_SETFL, F_DUPFD, F_DUPFD_CLOEXEC };

  add_all (filter, SCMP_ACT_ALLOW, common_calls);
  add_all (filter, SCMP_ACT_KILL_PROCESS, deadly_calls);
  allow_data_memory (filter);
  for (guint i = 0; i < G_N_ELEMENTS (fcntl_commands); i++)
    {
      allow_if (filter, "fcntl", SCMP_A1 (SCMP_CMP_EQ, (guint64) fcntl_commands[i]));
      allow_if (filter, "fcntl64", SCMP_A1 (SCMP_CMP_EQ, (guint64) fcntl_commands[i]));
    }
  /* To end itself by a signal. */
  allow_if (filter, "tgkill", SCMP_A0 (SCMP_CMP_EQ, (guint64) getpid ()));
  allow_address (filter, "connect", sizeof (struct sockaddr_un));
#ifdef NETD_WITH_SANITIZER
  add_all (filter, SCMP_ACT_ALLOW, sanitizer_calls);
#else
  (void) sanitizer_calls;
#endif
}

static void
allow_option (Filter *filter, const char *name, int level, int option)
{
  const struct scmp_arg_cmp conditions[] = {
    SCMP_A1 (SCMP_CMP_EQ, (guint64) level),
    SCMP_A2 (SCMP_CMP_EQ, (guint64) option),
  };

  add (filter, SCMP_ACT_ALLOW, name, G_N_ELEMENTS (conditions), conditions);
}

/* Of hundreds that sockets have, programs for filters among them. */
static void
allow_options (Filter *filter)
{
  static const struct
  {
    int level;
    int option;
  } set[] = {
    { SOL_SOCKET, SO_KEEPALIVE },       { SOL_SOCKET, SO_LINGER },
    { SOL_SOCKET, SO_OOBINLINE },       { SOL_SOCKET, SO_REUSEADDR },
    { IPPROTO_IP, IP_MTU_DISCOVER },    { IPPROTO_IP, IP_PKTINFO },
    { IPPROTO_IP, IP_RECVERR },         { IPPROTO_IP, IP_TOS },
    { IPPROTO_IP, IP_TTL },             { IPPROTO_IPV6, IPV6_RECVERR },
    { IPPROTO_IPV6, IPV6_RECVPKTINFO }, { IPPROTO_IPV6, IPV6_UNICAST_HOPS },
    { IPPROTO_IPV6, IPV6_V6ONLY },      { IPPROTO_TCP, TCP_NODELAY },
  };

  for (guint i = 0; i < G_N_ELEMENTS (set); i++)
    allow_option (filter, "setsockopt", set[i].level, set[i].option);
  allow_option (filter, "getsockopt", SOL_SOCKET, SO_ERROR);
  allow_option (filter, "getsockopt", SOL_SOCKET, SO_PEERCRED);
}

static void
allow_switch (Filter *filter)
{
  static const int families[] = { AF_INET, AF_INET6 };
  static const socklen_t lengths[]
      = { sizeof (struct sockaddr_in), sizeof (struct sockaddr_in6), sizeof (struct sockaddr_un) };
  static const unsigned long ioctls[] = { FIONREAD, FIONBIO };

  add_all (filter, SCMP_ACT_ALLOW, switch_calls);
  /* To read limits, not to set them. */
  add (filter, SCMP_ACT_ALLOW, "getrlimit", 0, NULL);
  allow_if (filter, "prlimit64", SCMP_A2 (SCMP_CMP_EQ, 0));
  for (guint i = 0; i < G_N_ELEMENTS (families); i++)
    {
      allow_socket (filter, "socket", families[i], SOCK_STREAM, 0);
      allow_socket (filter, "socket", families[i], SOCK_DGRAM, 0);
    }
  allow_socket (filter, "socket", AF_INET, SOCK_DGRAM, IPPROTO_ICMP);
  /* Not of datagrams: those go to any name without a connect(). */
  allow_socket (filter, "socket", AF_UNIX, SOCK_STREAM, 0);
  allow_socket (filter, "socketpair", AF_UNIX, SOCK_STREAM, 0);
  for (guint i = 0; i < G_N_ELEMENTS (lengths); i++)
    {
      allow_address (filter, "bind", lengths[i]);
      allow_address (filter, "connect", lengths[i]);
    }
  allow_options (filter);
  for (guint i = 0; i < G_N_ELEMENTS (ioctls); i++)
    allow_if (filter, "ioctl", SCMP_A1 (SCMP_CMP_EQ, ioctls[i]));
}

static void
allow_warden (Filter *filter)
{
  add_all (filter, SCMP_ACT_ALLOW, warden_calls);
  allow_if (filter, "open", SCMP_A1 (SCMP_CMP_MASKED_EQ, OPEN_TO_CHANGE, 0));
  allow_if (filter, "openat", SCMP_A2 (SCMP_CMP_MASKED_EQ, OPEN_TO_CHANGE, 0));
  allow_socket (filter, "socket", AF_UNIX, SOCK_STREAM, 0);
  allow_option (filter, "getsockopt", SOL_SOCKET, SO_ERROR);
  /* Numbers of interfaces, for name servers with a scope. */
  allow_if (filter, "ioctl", SCMP_A1 (SCMP_CMP_EQ, SIOCGIFINDEX));
}

static gboolean
filter_system_calls (void (*allow) (Filter *filter), GError **error)
{
  Filter filter = { .context = seccomp_init (SCMP_ACT_ERRNO (EPERM)) };

  if (filter.context == NULL)
    {
      errno = ENOMEM;
      return netd_sandbox_fail (error, "make a system call filter");
    }
  filter.result = seccomp_attr_set (filter.context, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_KILL_PROCESS);
  /* A binary tree: a dozen comparisons a call instead of a hundred. Libraries before 2.5 have a
   * list. */
  seccomp_attr_set (filter.context, SCMP_FLTATR_CTL_OPTIMIZE, 2);
  allow_common (&filter);
  allow (&filter);
  if (filter.result == 0)
    filter.result = seccomp_load (filter.context);
  seccomp_release (filter.context);
  errno = -filter.result;
  return filter.result == 0 || netd_sandbox_fail (error, "set the system call filter");
}

gboolean
netd_sandbox_filter_system_calls (GError **error)
{
  return filter_system_calls (allow_switch, error);
}

gboolean
netd_filter_confine_warden (GError **error)
{
  return filter_system_calls (allow_warden, error);
}

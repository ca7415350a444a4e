/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The sandbox as those see it who are inside, and as the kernel describes it from outside. */
#include "netd-sandbox.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/landlock.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <gio/gio.h>
#include <glib/gstdio.h>

#include "netd-network.h"
#include "netd-sandbox-private.h"

#define DEADLINE_MS 30000
#define STATUS_NOT_ENTERED 250

/* Returns what is to be seen outside: an errno, or 0. */
typedef int (*Probe) (void);

/* What probes find here that was made outside. */
static struct
{
  pid_t tester;
  struct sockaddr_in tcp;
  struct stat root;
  int pipe[2];
} outside;

static int
result_of (long returned)
{
  return returned < 0 ? errno : 0;
}

/* --- Whether this machine can do it --- */

static gboolean
can_unshare (int flags)
{
  int status;
  pid_t pid = fork ();

  if (pid == 0)
    _exit (unshare (flags) == 0 ? 0 : 1);
  g_assert_cmpint (waitpid (pid, &status, 0), ==, pid);
  return WIFEXITED (status) && WEXITSTATUS (status) == 0;
}

static gboolean
can_sandbox (void)
{
  if (can_unshare (CLONE_NEWUSER | CLONE_NEWNS) || can_unshare (CLONE_NEWNS))
    return TRUE;
  g_test_skip ("neither user namespaces nor CAP_SYS_ADMIN are to be had here");
  return FALSE;
}

static int
get_landlock_version (void)
{
  return (int) syscall (SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);
}

/* --- Inside --- */

static int
wait_for (pid_t pid)
{
  int status;

  g_assert_cmpint (waitpid (pid, &status, 0), ==, pid);
  return status;
}

/* Runs in the real thing; returns what waitpid() tells. */
static int
run_inside (Probe probe)
{
  g_autoptr (GError) error = NULL;
  pid_t pid = netd_sandbox_fork (&error);

  if (pid == 0)
    {
      if (netd_sandbox_enter (&error))
        _exit (probe ());
      dprintf (STDERR_FILENO, "not entered: %s\n", error->message);
      _exit (STATUS_NOT_ENTERED);
    }
  g_assert_no_error (error);
  g_assert_cmpint (pid, >, 0);
  return wait_for (pid);
}

static void
assert_errno (const char *what, int status, int expected)
{
  if (!WIFEXITED (status) || WEXITSTATUS (status) != expected)
    g_test_message ("%s: %s %d (%s), expected %d", what, WIFEXITED (status) ? "exit" : "signal",
                    WIFEXITED (status) ? WEXITSTATUS (status) : WTERMSIG (status),
                    WIFEXITED (status) ? g_strerror (WEXITSTATUS (status)) : "", expected);
  g_assert_true (WIFEXITED (status));
  g_assert_cmpint (WEXITSTATUS (status), ==, expected);
}

static void
assert_killed (const char *what, int status)
{
  if (!WIFSIGNALED (status))
    g_test_message ("%s: not killed but %s", what, g_strerror (WEXITSTATUS (status)));
  g_assert_true (WIFSIGNALED (status));
  g_assert_cmpint (WTERMSIG (status), ==, SIGSYS);
}

/* --- Refused --- */

static int
open_passwd (void)
{
  return result_of (syscall (SYS_openat, AT_FDCWD, "/etc/passwd", O_RDONLY));
}

static int
open_root (void)
{
  return result_of (syscall (SYS_openat, AT_FDCWD, "/", O_PATH | O_DIRECTORY));
}

static int
create_file (void)
{
  return result_of (syscall (SYS_openat, AT_FDCWD, "/file", O_RDWR | O_CREAT, 0600));
}

static int
open_by_openat2 (void)
{
  guint64 how[3] = { O_RDONLY, 0, 0 };

  return result_of (syscall (SYS_openat2, AT_FDCWD, "/", how, sizeof how));
}

static int
make_memfd (void)
{
  return result_of (syscall (SYS_memfd_create, "x", 0));
}

static int
make_folder (void)
{
  return result_of (syscall (SYS_mkdirat, AT_FDCWD, "/d", 0700));
}

static int
make_link (void)
{
  return result_of (syscall (SYS_symlinkat, "/", AT_FDCWD, "/l"));
}

static int
change_folder (void)
{
  return result_of (syscall (SYS_chdir, ".."));
}

static int
netlink_socket (void)
{
  return result_of (socket (AF_NETLINK, SOCK_RAW, 0));
}

static int
packet_socket (void)
{
  return result_of (socket (AF_PACKET, SOCK_DGRAM, 0));
}

static int
vsock_socket (void)
{
  return result_of (socket (AF_VSOCK, SOCK_STREAM, 0));
}

static int
alg_socket (void)
{
  return result_of (socket (AF_ALG, SOCK_SEQPACKET, 0));
}

static int
raw_socket (void)
{
  return result_of (socket (AF_INET, SOCK_RAW, IPPROTO_ICMP));
}

/* Its datagrams would go to any abstract name. */
static int
unix_datagram_socket (void)
{
  return result_of (socket (AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
}

static int
unix_datagram_pair (void)
{
  int pair[2];

  return result_of (socketpair (AF_UNIX, SOCK_DGRAM, 0, pair));
}

static int
option_of_netfilter (void)
{
  int one = 1;

  return result_of (setsockopt (socket (AF_INET, SOCK_STREAM, 0), 255, 64, &one, sizeof one));
}

static int
program_of_filter (void)
{
  guint64 none[2] = { 0 };

  return result_of (setsockopt (socket (AF_INET, SOCK_DGRAM, 0), SOL_SOCKET, SO_ATTACH_FILTER, none,
                                sizeof none));
}

static int
protocol_above_tcp (void)
{
  return result_of (
      setsockopt (socket (AF_INET, SOCK_STREAM, 0), IPPROTO_TCP, 31 /* TCP_ULP */, "tls", 3));
}

static int
to_groups (void)
{
  struct ip_mreq group = { .imr_multiaddr.s_addr = htonl (0xe00000fb) };

  return result_of (setsockopt (socket (AF_INET, SOCK_DGRAM, 0), IPPROTO_IP, IP_ADD_MEMBERSHIP,
                                &group, sizeof group));
}

static int
mptcp_socket (void)
{
  return result_of (socket (AF_INET, SOCK_STREAM, 262));
}

static int
sctp_socket (void)
{
  return result_of (socket (AF_INET, SOCK_STREAM, IPPROTO_SCTP));
}

static int
l2tp_socket (void)
{
  return result_of (socket (AF_INET, SOCK_DGRAM, 115));
}

/* A name that clients of another program may ask for. */
static int
take_abstract_name (void)
{
  struct sockaddr_un address = { .sun_family = AF_UNIX, .sun_path = "\0netd-test-sandbox-name" };

  return result_of (bind (socket (AF_UNIX, SOCK_STREAM, 0), (struct sockaddr *) &address,
                          offsetof (struct sockaddr_un, sun_path) + 23));
}

/* The kernel chooses. */
static int
take_any_abstract_name (void)
{
  struct sockaddr_un address = { .sun_family = AF_UNIX };

  return result_of (bind (socket (AF_UNIX, SOCK_STREAM, 0), (struct sockaddr *) &address,
                          sizeof address.sun_family));
}

#ifndef NETD_WITH_SANITIZER
static int
fewer_descriptors (void)
{
  struct rlimit limit = { 16, 16 };

  return result_of (syscall (SYS_prlimit64, 0, RLIMIT_NOFILE, &limit, NULL));
}
#endif

static int
ask_for_interfaces (void)
{
  char space[64] = { 0 };

  return result_of (ioctl (socket (AF_INET, SOCK_DGRAM, 0), 0x8912 /* SIOCGIFCONF */, space));
}

static int
push_into_terminal (void)
{
  return result_of (ioctl (STDERR_FILENO, TIOCSTI, "x"));
}

static int
own_signals (void)
{
  return result_of (fcntl (STDERR_FILENO, F_SETOWN, 1));
}

static int
make_process (void)
{
  return result_of (syscall (SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL));
}

static int
make_process_by_clone3 (void)
{
  guint64 arguments[8] = { 0 };

  return result_of (syscall (SYS_clone3, arguments, sizeof arguments));
}

static int
kill_tester (void)
{
  return result_of (kill (outside.tester, 0));
}

static int
kill_thread_of_tester (void)
{
  return result_of (syscall (SYS_tgkill, outside.tester, outside.tester, 0));
}

static int
executable_memory (void)
{
  void *memory
      = mmap (NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

  return memory == MAP_FAILED ? errno : 0;
}

static int
memory_made_executable (void)
{
  void *memory = mmap (NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

  return memory == MAP_FAILED ? 0 : result_of (mprotect (memory, 4096, PROT_READ | PROT_EXEC));
}

static int
be_dumpable (void)
{
  return result_of (prctl (PR_SET_DUMPABLE, 1, 0, 0, 0));
}

static int
be_root (void)
{
  return result_of (syscall (SYS_setresuid, 0, 0, 0));
}

static int
rename_host (void)
{
  return result_of (sethostname ("x", 1));
}

static int
share_memory (void)
{
  return result_of (syscall (SYS_shmget, 0, 4096, 01600));
}

static int
more_descriptors (void)
{
  struct rlimit limit = { 1 << 20, 1 << 20 };

  return result_of (syscall (SYS_setrlimit, RLIMIT_NOFILE, &limit));
}

static const struct
{
  const char *what;
  Probe probe;
} refused[] = {
  { "open a file", open_passwd },
  { "open the root", open_root },
  { "create a file", create_file },
  { "openat2", open_by_openat2 },
  { "memfd", make_memfd },
  { "folder", make_folder },
  { "symbolic link", make_link },
  { "chdir", change_folder },
  { "AF_NETLINK", netlink_socket },
  { "AF_PACKET", packet_socket },
  { "AF_VSOCK", vsock_socket },
  { "AF_ALG", alg_socket },
  { "SOCK_RAW", raw_socket },
  { "AF_UNIX datagrams", unix_datagram_socket },
  { "AF_UNIX datagram pair", unix_datagram_pair },
  { "netfilter option", option_of_netfilter },
  { "SO_ATTACH_FILTER", program_of_filter },
  { "TCP_ULP", protocol_above_tcp },
  { "IP_ADD_MEMBERSHIP", to_groups },
  { "MPTCP", mptcp_socket },
  { "SCTP", sctp_socket },
  { "L2TP", l2tp_socket },
  { "abstract name", take_abstract_name },
  { "any abstract name", take_any_abstract_name },
  { "interfaces", ask_for_interfaces },
  { "TIOCSTI", push_into_terminal },
  { "F_SETOWN", own_signals },
  { "clone", make_process },
  { "clone3", make_process_by_clone3 },
  { "kill", kill_tester },
  { "tgkill", kill_thread_of_tester },
  { "mmap of code", executable_memory },
  { "mprotect to code", memory_made_executable },
  { "dumpable", be_dumpable },
  { "setresuid", be_root },
  { "sethostname", rename_host },
  { "shmget", share_memory },
  { "setrlimit", more_descriptors },
#ifndef NETD_WITH_SANITIZER
  { "prlimit64", fewer_descriptors },
#endif
};

static void
test_refused (void)
{
  if (!can_sandbox ())
    return;
  for (guint i = 0; i < G_N_ELEMENTS (refused); i++)
    assert_errno (refused[i].what, run_inside (refused[i].probe), EPERM);
}

/* --- Deadly --- */

static const struct
{
  const char *what;
  long number;
} deadly[] = {
  { "execve", SYS_execve },
  { "execveat", SYS_execveat },
  { "ptrace", SYS_ptrace },
  { "mount", SYS_mount },
  { "umount2", SYS_umount2 },
  { "pivot_root", SYS_pivot_root },
  { "chroot", SYS_chroot },
  { "setns", SYS_setns },
  { "unshare", SYS_unshare },
  { "bpf", SYS_bpf },
  { "io_uring_setup", SYS_io_uring_setup },
  { "io_uring_enter", SYS_io_uring_enter },
  { "userfaultfd", SYS_userfaultfd },
  { "perf_event_open", SYS_perf_event_open },
  { "process_vm_readv", SYS_process_vm_readv },
  { "process_vm_writev", SYS_process_vm_writev },
  { "keyctl", SYS_keyctl },
  { "add_key", SYS_add_key },
  { "init_module", SYS_init_module },
  { "finit_module", SYS_finit_module },
  { "kexec_load", SYS_kexec_load },
  { "open_by_handle_at", SYS_open_by_handle_at },
  { "pidfd_getfd", SYS_pidfd_getfd },
  { "fsopen", SYS_fsopen },
  { "reboot", SYS_reboot },
#ifdef __x86_64__
  /* getpid of the x32 architecture */
  { "x32", 0x40000000 + SYS_getpid },
#endif
};
static long deadly_number;

static int
call_deadly (void)
{
  return result_of (syscall (deadly_number, 0, 0, 0, 0, 0, 0));
}

static void
test_deadly (void)
{
  if (!can_sandbox ())
    return;
  for (guint i = 0; i < G_N_ELEMENTS (deadly); i++)
    {
      deadly_number = deadly[i].number;
      assert_killed (deadly[i].what, run_inside (call_deadly));
    }
}

#ifdef __x86_64__
static int
call_by_the_old_gate (void)
{
  long result;

  /* getpid of the i386 architecture */
  __asm__ volatile ("int $0x80" : "=a"(result) : "a"(20) : "memory", "r8", "r9", "r10", "r11");
  return result < 0 ? (int) -result : 0;
}

static void
test_old_gate (void)
{
  int status;

  if (!can_sandbox ())
    return;
  status = run_inside (call_by_the_old_gate);
  /* Kernels without the 32 bit gate have nothing to let through. */
  if (WIFSIGNALED (status) && WTERMSIG (status) == SIGSEGV)
    g_test_skip ("this kernel runs no 32 bit programs");
  else
    assert_killed ("int 0x80", status);
}
#endif

/* --- The root --- */

static int
look_around (void)
{
  static const char *const paths[]
      = { "/proc", "/proc/self/status", "/etc", "/dev", "/tmp", "/sys", "/usr", "/home", "/.." };
  struct stat root;
  struct stat status;

  if (stat ("/", &root) < 0)
    return errno;
  /* A folder of a tmpfs has 20 bytes for each name, "." and ".." too, and a link from each folder
   * in it. */
  if (root.st_size > 40 || root.st_nlink != 2 || root.st_dev == outside.root.st_dev)
    return ENOTEMPTY;
  if ((root.st_mode & 07777) != 0700 || root.st_uid != geteuid ())
    return EBADF;
  for (guint i = 0; i + 1 < G_N_ELEMENTS (paths); i++)
    if (stat (paths[i], &status) == 0 || errno != ENOENT)
      return EEXIST;
  if (stat ("/..", &status) < 0 || status.st_ino != root.st_ino || stat (".", &status) < 0
      || status.st_ino != root.st_ino)
    return EXDEV;
  return 0;
}

static void
test_root (void)
{
  if (!can_sandbox ())
    return;
  g_assert_cmpint (stat ("/", &outside.root), ==, 0);
  assert_errno ("look around", run_inside (look_around), 0);
}

/* --- What netd needs works --- */

static int
fail_at (const char *what)
{
  dprintf (STDERR_FILENO, "%s: %s\n", what, g_strerror (errno));
  return errno == 0 ? EINVAL : errno;
}

static int
reach_tester (void)
{
  int fd = socket (AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  int one = 1;
  char byte;

  if (fd < 0 || setsockopt (fd, IPPROTO_TCP, 1 /* TCP_NODELAY */, &one, sizeof one) < 0)
    return fail_at ("socket");
  if (connect (fd, (struct sockaddr *) &outside.tcp, sizeof outside.tcp) < 0)
    return fail_at ("connect");
  if (send (fd, "x", 1, MSG_NOSIGNAL) != 1 || shutdown (fd, SHUT_WR) < 0
      || read (fd, &byte, 1) != 0)
    return fail_at ("send");
  return close (fd) < 0 ? errno : 0;
}

static int
serve_udp (void)
{
  struct sockaddr_in address
      = { .sin_family = AF_INET, .sin_addr.s_addr = htonl (INADDR_LOOPBACK) };
  socklen_t length = sizeof address;
  int a = socket (AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, 0);
  int b = socket (AF_INET, SOCK_DGRAM, 0);
  char text[4];

  if (bind (a, (struct sockaddr *) &address, sizeof address) < 0
      || getsockname (a, (struct sockaddr *) &address, &length) < 0)
    return fail_at ("bind");
  if (sendto (b, "udp", 3, 0, (struct sockaddr *) &address, sizeof address) != 3
      || recvfrom (a, text, sizeof text, 0, NULL, NULL) != 3)
    return fail_at ("datagram");
  return socket (AF_INET6, SOCK_DGRAM, 0) < 0 && errno == EPERM ? EPERM : 0;
}

/* A listener of our own in the root, and a descriptor across. */
static int
serve_unix (void)
{
  struct sockaddr_un address = { .sun_family = AF_UNIX, .sun_path = "/engine-0" };
  struct epoll_event event = { .events = EPOLLIN };
  int listener = socket (AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  int client = socket (AF_UNIX, SOCK_STREAM, 0);
  int loop = epoll_create1 (EPOLL_CLOEXEC);
  int server;

  if (bind (listener, (struct sockaddr *) &address, sizeof address) < 0 || listen (listener, 8) < 0)
    return fail_at ("listen");
  if (connect (client, (struct sockaddr *) &address, sizeof address) < 0)
    return fail_at ("connect");
  if (epoll_ctl (loop, EPOLL_CTL_ADD, listener, &event) < 0
      || epoll_wait (loop, &event, 1, DEADLINE_MS) != 1)
    return fail_at ("epoll");
  server = accept4 (listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
  if (server < 0 || write (client, "x", 1) != 1 || fcntl (server, F_SETFL, 0) < 0)
    return fail_at ("accept");
  return unlink (address.sun_path) < 0 ? fail_at ("unlink") : 0;
}

static int
use_memory (void)
{
  guint8 random[16];
  char *memory = malloc (100);

  for (guint i = 0; memory != NULL && i < 12; i++)
    {
      memory = realloc (memory, (gsize) 100 << i);
      if (memory != NULL)
        memory[((gsize) 100 << i) - 1] = 1;
    }
  free (memory);
  return memory == NULL || syscall (SYS_getrandom, random, sizeof random, 0) != sizeof random
           ? fail_at ("memory")
           : 0;
}

static int
write_capture (void)
{
  struct stat status;

  if (write (outside.pipe[1], "pcap", 4) != 4 || fstat (outside.pipe[1], &status) < 0)
    return fail_at ("capture");
  return 0;
}

static void
test_works (void)
{
  struct sockaddr_in address
      = { .sin_family = AF_INET, .sin_addr.s_addr = htonl (INADDR_LOOPBACK) };
  socklen_t length = sizeof address;
  int listener = socket (AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  char text[5] = "";

  if (!can_sandbox ())
    return;
  g_assert_cmpint (bind (listener, (struct sockaddr *) &address, sizeof address), ==, 0);
  g_assert_cmpint (listen (listener, 1), ==, 0);
  g_assert_cmpint (getsockname (listener, (struct sockaddr *) &outside.tcp, &length), ==, 0);
  g_assert_cmpint (pipe2 (outside.pipe, O_CLOEXEC), ==, 0);

  {
    g_autoptr (GError) error = NULL;
    pid_t pid = netd_sandbox_fork (&error);
    int server;

    if (pid == 0)
      _exit (netd_sandbox_enter (&error) ? reach_tester () : STATUS_NOT_ENTERED);
    g_assert_no_error (error);
    server = accept (listener, NULL, NULL);
    g_assert_cmpint (read (server, text, sizeof text), ==, 1);
    close (server);
    assert_errno ("TCP", wait_for (pid), 0);
  }
  assert_errno ("UDP", run_inside (serve_udp), 0);
  assert_errno ("AF_UNIX", run_inside (serve_unix), 0);
  assert_errno ("memory", run_inside (use_memory), 0);
  assert_errno ("capture", run_inside (write_capture), 0);
  g_assert_cmpint (read (outside.pipe[0], text, 4), ==, 4);
  g_assert_cmpstr (text, ==, "pcap");
  close (outside.pipe[0]);
  close (outside.pipe[1]);
  close (listener);
}

/* --- From outside --- */

static char *
read_proc (pid_t pid, const char *file)
{
  g_autofree char *path = g_strdup_printf ("/proc/%d/%s", (int) pid, file);
  char *text = NULL;

  g_file_get_contents (path, &text, NULL, NULL);
  return text;
}

static void
assert_line (const char *status, const char *name, const char *value)
{
  g_autofree char *line = g_strdup_printf ("\n%s:\t%s\n", name, value);

  if (strstr (status, line) == NULL)
    g_test_message ("not there: %s: %s", name, value);
  g_assert_nonnull (strstr (status, line));
}

static char *
read_namespace (pid_t pid, const char *name)
{
  g_autofree char *path = g_strdup_printf ("/proc/%d/ns/%s", (int) pid, name);

  return g_file_read_link (path, NULL);
}

static void
check_namespaces (pid_t pid)
{
  static const char *const others[] = { "mnt", "ipc", "uts", "pid", "user" };
  g_autofree char *own_net = read_namespace (getpid (), "net");
  g_autofree char *net = read_namespace (pid, "net");
  guint n = can_unshare (CLONE_NEWUSER) ? 5 : 4;

  /* Of a process that cannot be dumped only root sees them. */
  if (net == NULL && geteuid () != 0)
    {
      g_test_message ("namespaces not looked at: not root");
      return;
    }
  g_assert_cmpstr (net, ==, own_net);
  for (guint i = 0; i < n; i++)
    {
      g_autofree char *own = read_namespace (getpid (), others[i]);
      g_autofree char *theirs = read_namespace (pid, others[i]);

      g_assert_nonnull (theirs);
      g_assert_cmpstr (own, !=, theirs);
    }
}

static void
check_status (pid_t pid)
{
  static const char *const sets[] = { "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb" };
  g_autofree char *status = read_proc (pid, "status");
  g_autofree char *uid
      = g_strdup_printf ("%u\t%u\t%u\t%u", getuid (), geteuid (), geteuid (), geteuid ());
  g_autofree char *pids = g_strdup_printf ("%d\t1", (int) pid);

  g_assert_nonnull (status);
  for (guint i = 0; i < G_N_ELEMENTS (sets); i++)
    assert_line (status, sets[i], "0000000000000000");
  assert_line (status, "NoNewPrivs", "1");
  assert_line (status, "Seccomp", "2");
  assert_line (status, "Uid", uid);
  assert_line (status, "NSpid", pids);
}

static void
check_limits (pid_t pid)
{
  struct rlimit limit;

  g_assert_cmpint (prlimit (pid, RLIMIT_CORE, NULL, &limit), ==, 0);
  g_assert_cmpuint (limit.rlim_max, ==, 0);
  g_assert_cmpint (prlimit (pid, RLIMIT_NPROC, NULL, &limit), ==, 0);
  g_assert_cmpuint (limit.rlim_max, ==, 0);
  g_assert_cmpint (prlimit (pid, RLIMIT_NOFILE, NULL, &limit), ==, 0);
  g_assert_cmpuint (limit.rlim_max, ==, limit.rlim_cur);
#ifndef NETD_WITH_SANITIZER
  g_assert_cmpint (prlimit (pid, RLIMIT_AS, NULL, &limit), ==, 0);
  g_assert_cmpuint (limit.rlim_max, <, (guint64) 16 << 30);
  g_assert_cmpuint (limit.rlim_max, >, (guint64) NETD_FLOWS_PER_NETWORK * 257 * 1024);
#endif
}

/* Stays inside until the pipe's other end is closed. */
static G_NORETURN void
stay_inside (int ready, int end)
{
  g_autoptr (GError) error = NULL;
  pid_t warden = netd_sandbox_get_warden ();
  char byte;

  if (!netd_sandbox_enter (&error))
    _exit (STATUS_NOT_ENTERED);
  if (write (ready, &warden, sizeof warden) != sizeof warden)
    _exit (errno);
  _exit (read (end, &byte, 1) == 0 ? 0 : 1);
}

static void
test_from_outside (void)
{
  g_autoptr (GError) error = NULL;
  pid_t warden = 0;
  int ready[2];
  int end[2];
  pid_t pid;

  if (!can_sandbox ())
    return;
  g_assert_cmpint (netd_sandbox_get_warden (), ==, getpid ());
  g_assert_cmpint (pipe2 (ready, O_CLOEXEC), ==, 0);
  g_assert_cmpint (pipe2 (end, O_CLOEXEC), ==, 0);
  pid = netd_sandbox_fork (&error);
  if (pid == 0)
    {
      close (end[1]);
      stay_inside (ready[1], end[0]);
    }
  g_assert_no_error (error);
  close (ready[1]);
  g_assert_cmpint (read (ready[0], &warden, sizeof warden), ==, sizeof warden);
  g_assert_cmpint (warden, ==, getpid ());
  check_status (pid);
  check_namespaces (pid);
  if (geteuid () == 0)
    check_limits (pid);
  close (end[1]);
  assert_errno ("stay inside", wait_for (pid), 0);
  close (end[0]);
  close (ready[0]);
}

/* Killed, the outer half takes the inner one along. */
static void
test_ends_with_parent (void)
{
  pid_t pid;
  int ready[2];
  struct pollfd poll_fd;
  pid_t warden;
  char byte;

  if (!can_sandbox ())
    return;
  g_assert_cmpint (pipe2 (ready, O_CLOEXEC), ==, 0);
  pid = fork ();
  if (pid == 0)
    {
      pid_t inner = netd_sandbox_fork (NULL);
      int never[2];

      if (inner == 0 && pipe (never) == 0)
        stay_inside (ready[1], never[0]);
      close (ready[1]);
      for (;;)
        pause ();
    }
  close (ready[1]);
  g_assert_cmpint (read (ready[0], &warden, sizeof warden), ==, sizeof warden);
  g_assert_cmpint (warden, ==, pid);
  g_assert_cmpint (kill (pid, SIGKILL), ==, 0);
  g_assert_true (WIFSIGNALED (wait_for (pid)));
  /* Only the inner one has the other end now. */
  poll_fd = (struct pollfd){ .fd = ready[0], .events = POLLIN };
  g_assert_cmpint (poll (&poll_fd, 1, DEADLINE_MS), ==, 1);
  g_assert_cmpint (read (ready[0], &byte, 1), ==, 0);
  close (ready[0]);
}

/* Where there is no sandbox to be had there is no netd, and it says why. */
static int
sandbox_without_means (void)
{
  guint32 header[2] = { 0x20080522 /* _LINUX_CAPABILITY_VERSION_3 */, 0 };
  guint32 none[6] = { 0 };
  g_autoptr (GError) error = NULL;
  int fd;
  pid_t pid;

  if (unshare (CLONE_NEWUSER) < 0)
    return fail_at ("unshare");
  fd = open ("/proc/sys/user/max_user_namespaces", O_WRONLY | O_CLOEXEC);
  if (fd < 0 || write (fd, "0", 1) != 1 || syscall (SYS_capset, header, none) < 0)
    return fail_at ("take the means away");
  pid = netd_sandbox_fork (&error);
  if (pid >= 0)
    return ECHILD;
  return strstr (error->message, "user.max_user_namespaces") == NULL ? EBADMSG : 0;
}

static void
test_fails_closed (void)
{
  pid_t pid;

  if (!can_unshare (CLONE_NEWUSER))
    {
      g_test_skip ("no user namespaces to try it in");
      return;
    }
  pid = fork ();
  if (pid == 0)
    _exit (sandbox_without_means ());
  assert_errno ("no means", wait_for (pid), 0);
}

/* --- Each wall by itself --- */

static int
run_behind (gboolean (*wall) (GError **error), Probe probe)
{
  g_autoptr (GError) error = NULL;
  pid_t pid = fork ();

  if (pid == 0)
    {
      if (prctl (PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && wall (&error))
        _exit (probe ());
      _exit (STATUS_NOT_ENTERED);
    }
  return wait_for (pid);
}

static void
test_filter_alone (void)
{
  assert_errno ("open", run_behind (netd_sandbox_filter_system_calls, open_passwd), EPERM);
  assert_errno ("netlink", run_behind (netd_sandbox_filter_system_calls, netlink_socket), EPERM);
  assert_errno ("clone", run_behind (netd_sandbox_filter_system_calls, make_process), EPERM);
  assert_errno ("kill", run_behind (netd_sandbox_filter_system_calls, kill_tester), EPERM);
  deadly_number = SYS_execve;
  assert_killed ("execve", run_behind (netd_sandbox_filter_system_calls, call_deadly));
}

static void
test_landlock_alone (void)
{
  if (get_landlock_version () < 1)
    {
      g_test_skip ("this kernel has no Landlock");
      return;
    }
  assert_errno ("open", run_behind (netd_landlock_confine_switch, open_passwd), EACCES);
  assert_errno ("folder", run_behind (netd_landlock_confine_switch, make_folder), EACCES);
  if (get_landlock_version () >= 6)
    assert_errno ("kill", run_behind (netd_landlock_confine_switch, kill_tester), EPERM);
}

/* --- Abstract sockets of the host --- */

static struct sockaddr_un abstract_address;
static socklen_t abstract_length;

static int
connect_to_abstract (void)
{
  return result_of (connect (socket (AF_UNIX, SOCK_STREAM, 0),
                             (struct sockaddr *) &abstract_address, abstract_length));
}

/* In the sandbox, or behind its filter alone. */
static int
try_abstract (gsize name_length, gboolean is_sandboxed)
{
  int listener = socket (AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  int status;

  memset (&abstract_address, 'x', sizeof abstract_address);
  abstract_address.sun_family = AF_UNIX;
  abstract_address.sun_path[0] = '\0';
  g_snprintf (abstract_address.sun_path + 1, 11, "%010d", (int) getpid ());
  abstract_address.sun_path[11] = 'x';
  abstract_length = (socklen_t) (offsetof (struct sockaddr_un, sun_path) + name_length);
  g_assert_cmpint (bind (listener, (struct sockaddr *) &abstract_address, abstract_length), ==, 0);
  g_assert_cmpint (listen (listener, 1), ==, 0);
  g_assert_cmpint (connect_to_abstract (), ==, 0);
  status = is_sandboxed ? run_inside (connect_to_abstract)
                        : run_behind (netd_sandbox_filter_system_calls, connect_to_abstract);
  close (listener);
  return status;
}

static void
test_abstract (void)
{
  /* By the length of their names, whatever Landlock knows. */
  static const gsize lengths[] = { 12, 13, 15, 22, 25, 27, 60, 107 };

  for (guint i = 0; i < G_N_ELEMENTS (lengths); i++)
    assert_errno ("behind the filter", try_abstract (lengths[i], FALSE), EPERM);
  if (!can_sandbox ())
    return;
  assert_errno ("name", try_abstract (22, TRUE), EPERM);
  /* The longest is as long as a path. */
  if (get_landlock_version () >= 6)
    assert_errno ("longest name", try_abstract (108, TRUE), EPERM);
}

/* --- The warden --- */

static char *warden_folder;
static char *other_folder;

static gboolean
confine_warden (GError **error)
{
  const char *const directories[] = { warden_folder, "/nowhere", NULL };

  return netd_sandbox_confine_warden (directories, error);
}

static int
open_in (const char *folder, int flags)
{
  g_autofree char *path = g_build_filename (folder, "file", NULL);

  return result_of (open (path, flags, 0600));
}

static int
warden_reads (void)
{
  return open_in (warden_folder, O_RDONLY);
}

static int
warden_reads_elsewhere (void)
{
  return open_in (other_folder, O_RDONLY);
}

static int
warden_writes (void)
{
  return open_in (warden_folder, O_WRONLY);
}

static int
warden_truncates (void)
{
  return open_in (warden_folder, O_RDONLY | O_TRUNC);
}

static int
warden_looks (void)
{
  return open_in (other_folder, O_PATH);
}

static int
inet_socket (void)
{
  return result_of (socket (AF_INET, SOCK_STREAM, 0));
}

static int
unix_socket (void)
{
  return result_of (socket (AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0));
}

static int
remove_file (void)
{
  g_autofree char *path = g_build_filename (warden_folder, "file", NULL);

  return result_of (unlink (path));
}

static void
make_file (char **folder)
{
  g_autoptr (GError) error = NULL;
  g_autofree char *path = NULL;

  *folder = g_dir_make_tmp ("netd-sandbox-XXXXXX", &error);
  path = g_build_filename (*folder, "file", NULL);
  g_assert_true (g_file_set_contents (path, "text", -1, &error));
}

static void
remove_made_file (char **folder)
{
  g_autofree char *path = g_build_filename (*folder, "file", NULL);

  g_assert_cmpint (g_unlink (path), ==, 0);
  g_assert_cmpint (g_rmdir (*folder), ==, 0);
  g_clear_pointer (folder, g_free);
}

static void
test_warden (void)
{
  make_file (&warden_folder);
  make_file (&other_folder);
  assert_errno ("read", run_behind (confine_warden, warden_reads), 0);
  if (get_landlock_version () >= 1)
    assert_errno ("read elsewhere", run_behind (confine_warden, warden_reads_elsewhere), EACCES);
  assert_errno ("look elsewhere", run_behind (confine_warden, warden_looks), 0);
  assert_errno ("write", run_behind (confine_warden, warden_writes), EPERM);
  assert_errno ("truncate", run_behind (confine_warden, warden_truncates), EPERM);
  assert_errno ("create", run_behind (confine_warden, create_file), EPERM);
  assert_errno ("remove", run_behind (confine_warden, remove_file), EPERM);
  assert_errno ("AF_UNIX", run_behind (confine_warden, unix_socket), 0);
  assert_errno ("AF_INET", run_behind (confine_warden, inet_socket), EPERM);
  assert_errno ("AF_NETLINK", run_behind (confine_warden, netlink_socket), EPERM);
  assert_errno ("clone", run_behind (confine_warden, make_process), EPERM);
  assert_errno ("kill", run_behind (confine_warden, kill_tester), EPERM);
  assert_errno ("mmap of code", run_behind (confine_warden, executable_memory), EPERM);
  deadly_number = SYS_execve;
  assert_killed ("execve", run_behind (confine_warden, call_deadly));
  deadly_number = SYS_ptrace;
  assert_killed ("ptrace", run_behind (confine_warden, call_deadly));
  remove_made_file (&warden_folder);
  remove_made_file (&other_folder);
}

/* No capability is left, whoever started it. */
static void
test_warden_from_outside (void)
{
  g_autofree char *status = NULL;
  int ready[2];
  int end[2];
  char byte = 0;
  pid_t pid;

  g_assert_cmpint (pipe2 (ready, O_CLOEXEC), ==, 0);
  g_assert_cmpint (pipe2 (end, O_CLOEXEC), ==, 0);
  pid = fork ();
  if (pid == 0)
    {
      const char *const none[] = { NULL };

      close (end[1]);
      if (!netd_sandbox_confine_warden (none, NULL) || write (ready[1], "x", 1) != 1)
        _exit (STATUS_NOT_ENTERED);
      _exit (read (end[0], &byte, 1) == 0 ? 0 : 1);
    }
  close (ready[1]);
  g_assert_cmpint (read (ready[0], &byte, 1), ==, 1);
  status = read_proc (pid, "status");
  assert_line (status, "CapEff", "0000000000000000");
  assert_line (status, "CapPrm", "0000000000000000");
  assert_line (status, "CapInh", "0000000000000000");
  if (geteuid () == 0)
    assert_line (status, "CapBnd", "0000000000000000");
  assert_line (status, "NoNewPrivs", "1");
  assert_line (status, "Seccomp", "2");
  close (end[1]);
  assert_errno ("warden", wait_for (pid), 0);
  close (end[0]);
  close (ready[0]);
}

int
main (int argc, char **argv)
{
  g_test_init (&argc, &argv, NULL);
  outside.tester = getpid ();
  g_test_add_func ("/netd/sandbox/refused", test_refused);
  g_test_add_func ("/netd/sandbox/deadly", test_deadly);
#ifdef __x86_64__
  g_test_add_func ("/netd/sandbox/old-gate", test_old_gate);
#endif
  g_test_add_func ("/netd/sandbox/root", test_root);
  g_test_add_func ("/netd/sandbox/works", test_works);
  g_test_add_func ("/netd/sandbox/abstract", test_abstract);
  g_test_add_func ("/netd/sandbox/from-outside", test_from_outside);
  g_test_add_func ("/netd/sandbox/ends-with-parent", test_ends_with_parent);
  g_test_add_func ("/netd/sandbox/fails-closed", test_fails_closed);
  g_test_add_func ("/netd/sandbox/filter-alone", test_filter_alone);
  g_test_add_func ("/netd/sandbox/landlock-alone", test_landlock_alone);
  g_test_add_func ("/netd/sandbox/warden", test_warden);
  g_test_add_func ("/netd/sandbox/warden-from-outside", test_warden_from_outside);
  return g_test_run ();
}

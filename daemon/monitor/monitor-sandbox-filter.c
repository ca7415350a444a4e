/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The system call filter: what the monitor does, with everything else refused. What it never does
 * by itself, such as starting a program, ends it at once.
 *
 * It is written for the kernel directly, since the calls are few and need few arguments looked at.
 */
#include "monitor-sandbox.h"

#include <errno.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>

#include "monitor-log.h"

#if defined(__x86_64__)
#define ARCHITECTURE AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define ARCHITECTURE AUDIT_ARCH_AARCH64
#elif defined(__riscv) && __riscv_xlen == 64
#define ARCHITECTURE AUDIT_ARCH_RISCV64
#elif defined(__s390x__)
#define ARCHITECTURE AUDIT_ARCH_S390X
#elif defined(__powerpc64__) && defined(__LITTLE_ENDIAN__)
#define ARCHITECTURE AUDIT_ARCH_PPC64LE
#endif

#define FILTER_MAX 256

#if G_BYTE_ORDER == G_LITTLE_ENDIAN
#define LOW_WORD 0
#else
#define LOW_WORD 4
#endif
#define ARGUMENT(n) (offsetof (struct seccomp_data, args) + 8 * (n) + LOW_WORD)

static const int allowed[] = {
  SYS_accept4,
  SYS_brk,
  SYS_clock_gettime,
  SYS_close,
  SYS_exit,
  SYS_exit_group,
  SYS_fallocate,
  SYS_fcntl,
  SYS_fdatasync,
  SYS_fstat,
  SYS_fsync,
  SYS_ftruncate,
  SYS_futex,
  SYS_getegid,
  SYS_geteuid,
  SYS_getgid,
  SYS_getpid,
  SYS_getrandom,
  SYS_getsockopt,
  SYS_gettid,
  SYS_getuid,
  SYS_lseek,
  SYS_madvise,
  SYS_mremap,
  SYS_munmap,
#ifdef SYS_newfstatat
  SYS_newfstatat,
#endif
  SYS_openat,
#ifdef SYS_poll
  SYS_poll,
#endif
  SYS_ppoll,
  SYS_pread64,
  SYS_pwrite64,
  SYS_read,
  SYS_recvfrom,
  SYS_recvmsg,
#ifdef SYS_renameat
  SYS_renameat,
#endif
  SYS_renameat2,
  SYS_restart_syscall,
#ifdef SYS_rseq
  SYS_rseq,
#endif
  SYS_rt_sigaction,
  SYS_rt_sigprocmask,
  SYS_rt_sigreturn,
  SYS_sched_yield,
  SYS_sendmsg,
  SYS_sendto,
  SYS_set_robust_list,
  SYS_sigaltstack,
#ifdef SYS_statx
  SYS_statx,
#endif
#ifdef SYS_unlink
  SYS_unlink,
#endif
  SYS_unlinkat,
  SYS_write,
  SYS_writev,
#ifdef MONITOR_WITH_SANITIZER
  SYS_getrusage,
  SYS_pipe2,
  SYS_prlimit64,
  SYS_sched_getaffinity,
#endif
};

/* The address family is out of a filter's sight; the sockets that can be made are not. */
static const struct
{
  int number;
  guint argument;
  guint32 mask;
  guint32 value;
} conditional[] = {
  { SYS_socket, 0, ~0U, AF_UNIX },
  { SYS_connect, 2, ~0U, 110 /* a whole sockaddr_un: no abstract name is as long */ },
  { SYS_mmap, 2, PROT_EXEC, 0 },
  { SYS_mprotect, 2, PROT_EXEC, 0 },
};

static const int deadly[] = {
  SYS_add_key,
  SYS_bpf,
  SYS_chroot,
  SYS_execve,
  SYS_execveat,
  SYS_finit_module,
  SYS_init_module,
  SYS_io_uring_enter,
  SYS_io_uring_register,
  SYS_io_uring_setup,
  SYS_keyctl,
  SYS_mount,
  SYS_open_by_handle_at,
  SYS_perf_event_open,
  SYS_pivot_root,
  SYS_process_vm_readv,
  SYS_process_vm_writev,
  SYS_ptrace,
  SYS_request_key,
  SYS_setns,
  SYS_umount2,
  SYS_unshare,
  SYS_userfaultfd,
};

typedef struct
{
  struct sock_filter steps[FILTER_MAX];
  gushort length;
} Filter;

static void
add (Filter *filter, struct sock_filter step)
{
  if (filter->length < FILTER_MAX)
    filter->steps[filter->length++] = step;
}

static void
add_load (Filter *filter, guint offset)
{
  add (filter, (struct sock_filter) BPF_STMT (BPF_LD | BPF_W | BPF_ABS, offset));
}

static void
add_return (Filter *filter, guint32 action)
{
  add (filter, (struct sock_filter) BPF_STMT (BPF_RET | BPF_K, action));
}

/* The next @skip steps are for that value alone. */
static void
add_skip_unless (Filter *filter, guint32 value, guint8 skip)
{
  add (filter, (struct sock_filter) BPF_JUMP (BPF_JMP | BPF_JEQ | BPF_K, value, 0, skip));
}

#ifdef ARCHITECTURE
static void
build (Filter *filter)
{
  add_load (filter, offsetof (struct seccomp_data, arch));
  add (filter, (struct sock_filter) BPF_JUMP (BPF_JMP | BPF_JEQ | BPF_K, ARCHITECTURE, 1, 0));
  add_return (filter, SECCOMP_RET_KILL_PROCESS);
  add_load (filter, offsetof (struct seccomp_data, nr));
  for (guint i = 0; i < G_N_ELEMENTS (allowed); i++)
    {
      add_skip_unless (filter, (guint32) allowed[i], 1);
      add_return (filter, SECCOMP_RET_ALLOW);
    }
  for (guint i = 0; i < G_N_ELEMENTS (deadly); i++)
    {
      add_skip_unless (filter, (guint32) deadly[i], 1);
      add_return (filter, SECCOMP_RET_KILL_PROCESS);
    }
  for (guint i = 0; i < G_N_ELEMENTS (conditional); i++)
    {
      add_skip_unless (filter, (guint32) conditional[i].number, 5);
      add_load (filter, (guint) ARGUMENT (conditional[i].argument));
      add (filter, (struct sock_filter) BPF_STMT (BPF_ALU | BPF_AND | BPF_K, conditional[i].mask));
      add_skip_unless (filter, conditional[i].value, 1);
      add_return (filter, SECCOMP_RET_ALLOW);
      add_return (filter, SECCOMP_RET_ERRNO | EPERM);
    }
  /* To end itself by a signal. */
  add_skip_unless (filter, SYS_tgkill, 4);
  add_load (filter, (guint) ARGUMENT (0));
  add_skip_unless (filter, (guint32) getpid (), 1);
  add_return (filter, SECCOMP_RET_ALLOW);
  add_return (filter, SECCOMP_RET_ERRNO | EPERM);
  add_return (filter, SECCOMP_RET_ERRNO | EPERM);
}

gboolean
monitor_sandbox_restrict_calls (GError **error)
{
  Filter filter = { .length = 0 };
  struct sock_fprog program = { .filter = filter.steps };

  build (&filter);
  if (filter.length == FILTER_MAX)
    {
      errno = E2BIG;
      return monitor_sandbox_fail (error, "build the system call filter");
    }
  program.len = filter.length;
  if (syscall (SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program) == 0)
    return TRUE;
  /* The number of a thread that cannot take it, or the usual -1. */
  return monitor_sandbox_fail (error, "set the system call filter");
}
#else
gboolean
monitor_sandbox_restrict_calls (GError **error)
{
  monitor_log ("no system call filter is known for this processor");
  return TRUE;
}
#endif

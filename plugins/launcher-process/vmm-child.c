/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* From fork to exec.
 *
 * The child of a process with threads may call async-signal-safe functions only until exec: no
 * GLib, no malloc, no stdio. So the parent lays out everything in a VmmChildPlan, and what happens
 * here after the fork are plain system calls. The wrappers of glibc that change users are left
 * aside as well, because they synchronise with threads that the child does not have.
 *
 * The child says over a close-on-exec pipe which step failed and why. When the pipe ends without a
 * word, the program runs.
 */

#include "vmm-child.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "interfaces/vmm-error.h"

#define FIRST_FD 3
#define FAILED_EXIT_CODE 127
#define CLOSE_RANGE_IS_CLOEXEC (1u << 2)
/* Without close_range(): how far descriptors are marked one by one. */
#define LAST_FD_BY_HAND 65536

#ifdef SYS_setresuid32
#define NR_SETRESUID SYS_setresuid32
#define NR_SETRESGID SYS_setresgid32
#define NR_SETGROUPS SYS_setgroups32
#else
#define NR_SETRESUID SYS_setresuid
#define NR_SETRESGID SYS_setresgid
#define NR_SETGROUPS SYS_setgroups
#endif

typedef enum
{
  STEP_SESSION,
  STEP_DESCRIPTORS,
  STEP_LIMIT,
  STEP_IDENTITY,
  STEP_PARENT,
  STEP_NO_NEW_PRIVS,
  STEP_SECCOMP,
  STEP_DIRECTORY,
  STEP_EXEC,
} Step;

static const char *const step_texts[] = {
  [STEP_SESSION] = "start a session: ",
  [STEP_DESCRIPTORS] = "pass descriptors: ",
  [STEP_LIMIT] = "set the limit of open files: ",
  [STEP_IDENTITY] = "change the user: ",
  [STEP_PARENT] = "end with the daemon: ",
  [STEP_NO_NEW_PRIVS] = "set no_new_privs: ",
  [STEP_SECCOMP] = "install seccomp filter: ",
  [STEP_DIRECTORY] = "change the directory: ",
  [STEP_EXEC] = "",
};

typedef struct
{
  gint32 step;
  gint32 number;
} Report;

/* QEMU's main loop over io_uring loses a command of the firmware to the vTPM now and then; told
 * that the call is not permitted, QEMU falls back to epoll. This keeps a bug out, not an attacker,
 * so the architecture is not looked at. */
static struct sock_filter deny_io_uring_filter[] = {
  BPF_STMT (BPF_LD | BPF_W | BPF_ABS, offsetof (struct seccomp_data, nr)),
  BPF_JUMP (BPF_JMP | BPF_JEQ | BPF_K, SYS_io_uring_setup, 0, 1),
  BPF_STMT (BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (EPERM & SECCOMP_RET_DATA)),
  BPF_STMT (BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
};

/* In the child. */
static void G_GNUC_NORETURN
fail (int report_fd, Step step)
{
  Report report = { .step = (gint32) step, .number = errno };
  ssize_t written;

  do
    written = write (report_fd, &report, sizeof report);
  while (written < 0 && errno == EINTR);
  _exit (FAILED_EXIT_CODE);
}

/* In the child: no handler of the parent's may run here, and an ignored signal would stay ignored
 * in the program. */
static void
reset_signal_handlers (void)
{
  struct sigaction action = { .sa_handler = SIG_DFL };

  for (int signum = 1; signum < NSIG; signum++)
    sigaction (signum, &action, NULL); /* fails for KILL, STOP and the two of glibc: as it should */
}

/* In the child: everything from `first` on is closed by exec. */
static void
close_on_exec_from (guint first)
{
  if (syscall (SYS_close_range, first, ~0u, CLOSE_RANGE_IS_CLOEXEC) == 0)
    return;

  for (int fd = (int) first; fd < LAST_FD_BY_HAND; fd++)
    fcntl (fd, F_SETFD, FD_CLOEXEC);
}

/* In the child: first moves all descriptors out of the way, then puts each at its number. Returns
 * where the report descriptor went, or -1. */
static int
place_descriptors (VmmChildPlan *plan, int report_fd)
{
  const int floor = FIRST_FD + (int) plan->n_fds;
  int null_fd = fcntl (plan->null_fd, F_DUPFD_CLOEXEC, floor);
  int log_fd = fcntl (plan->log_fd, F_DUPFD_CLOEXEC, floor);
  int report = fcntl (report_fd, F_DUPFD_CLOEXEC, floor);

  if (null_fd < 0 || log_fd < 0 || report < 0)
    return -1;
  for (guint i = 0; i < plan->n_fds; i++)
    {
      plan->fds[i] = fcntl (plan->fds[i], F_DUPFD_CLOEXEC, floor);
      if (plan->fds[i] < 0)
        return -1;
    }

  if (dup2 (null_fd, STDIN_FILENO) < 0 || dup2 (log_fd, STDOUT_FILENO) < 0
      || dup2 (log_fd, STDERR_FILENO) < 0)
    return -1;
  for (guint i = 0; i < plan->n_fds; i++)
    if (dup2 (plan->fds[i], FIRST_FD + (int) i) < 0)
      return -1;
  close_on_exec_from ((guint) floor);
  return report;
}

/* In the child. */
static gboolean
restore_limit (guint64 soft_nofile)
{
  struct rlimit limit;

  if (soft_nofile == 0)
    return TRUE;
  if (getrlimit (RLIMIT_NOFILE, &limit) != 0)
    return FALSE;

  limit.rlim_cur = soft_nofile < limit.rlim_max ? soft_nofile : limit.rlim_max;
  return setrlimit (RLIMIT_NOFILE, &limit) == 0;
}

/* In the child: groups first, the user last, because only root may do the others. */
static gboolean
become (const VmmChildIdentity *identity)
{
  if (identity == NULL)
    return TRUE;

  return syscall (NR_SETGROUPS, identity->n_groups, identity->groups) == 0
         && syscall (NR_SETRESGID, identity->gid, identity->gid, identity->gid) == 0
         && syscall (NR_SETRESUID, identity->uid, identity->uid, identity->uid) == 0;
}

/* In the child: the signal comes when the daemon's main thread ends. The daemon may have ended
 * before it was asked for. */
static gboolean
end_with_parent (pid_t parent)
{
  if (prctl (PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) != 0)
    return FALSE;
  if (getppid () == parent)
    return TRUE;

  errno = ESRCH;
  return FALSE;
}

/* In the child. */
static gboolean
install_filter (void)
{
  struct sock_fprog program = {
    .len = G_N_ELEMENTS (deny_io_uring_filter),
    .filter = deny_io_uring_filter,
  };

  return prctl (PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0) == 0;
}

/* In the child: LISTEN_PID of the socket activation protocol, see sd_listen_fds(3). */
static void
write_pid (char *where, pid_t pid)
{
  char digits[VMM_CHILD_PID_DIGITS];
  guint n = 0;

  do
    {
      digits[n++] = (char) ('0' + pid % 10);
      pid /= 10;
    }
  while (pid > 0);
  while (n > 0)
    *where++ = digits[--n];
  *where = '\0';
}

static void G_GNUC_NORETURN
run_child (VmmChildPlan *plan, int report_fd, pid_t parent)
{
  sigset_t none;
  int report;

  reset_signal_handlers ();
  if (setsid () < 0)
    fail (report_fd, STEP_SESSION);
  report = place_descriptors (plan, report_fd);
  if (report < 0)
    fail (report_fd, STEP_DESCRIPTORS);
  umask (0077);
  if (!restore_limit (plan->soft_nofile))
    fail (report, STEP_LIMIT);
  if (!become (plan->identity))
    fail (report, STEP_IDENTITY);
  /* A change of users takes the parent death signal away: only now. */
  if (!end_with_parent (parent))
    fail (report, STEP_PARENT);
  if (prctl (PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
    fail (report, STEP_NO_NEW_PRIVS);
  if (plan->deny_io_uring && !install_filter ())
    fail (report, STEP_SECCOMP);
  if (plan->directory != NULL && chdir (plan->directory) != 0)
    fail (report, STEP_DIRECTORY);
  if (plan->listen_pid != NULL)
    write_pid (plan->listen_pid, getpid ());

  sigemptyset (&none);
  sigprocmask (SIG_SETMASK, &none, NULL);
  execve (plan->path, plan->argv, plan->environment);
  fail (report, STEP_EXEC);
}

/* No pidfd: the child has not been waited for, so that its number is still its own. */
static void
end_unwatched (pid_t pid)
{
  kill (pid, SIGKILL);
  while (waitpid (pid, NULL, 0) < 0 && errno == EINTR)
    continue;
}

/* Forks and starts the plan's program. Must run on the main thread: the child dies with the thread
 * that forked it. */
gboolean
vmm_child_fork (VmmChildPlan *plan, VmmChild *child, GError **error)
{
  const pid_t parent = getpid ();
  sigset_t all;
  sigset_t before;
  g_autofree char *why = NULL;
  int ends[2];
  int number;

  if (pipe2 (ends, O_CLOEXEC | O_NONBLOCK) != 0)
    {
      why = vmm_child_error_text (errno);
      vmm_set_error (error, VMM_ERROR_INTERNAL, "make a pipe: %s", why);
      return FALSE;
    }

  sigfillset (&all);
  pthread_sigmask (SIG_SETMASK, &all, &before);
  child->pid = fork ();
  if (child->pid == 0)
    run_child (plan, ends[1], parent);
  number = errno;
  pthread_sigmask (SIG_SETMASK, &before, NULL);

  close (ends[1]);
  child->report_fd = ends[0];
  child->pidfd = child->pid > 0 ? pidfd_open (child->pid, 0) : -1;
  if (child->pidfd >= 0)
    return TRUE;

  if (child->pid > 0)
    {
      number = errno;
      end_unwatched (child->pid);
    }
  close (ends[0]);
  why = vmm_child_error_text (number);
  vmm_set_error (error, VMM_ERROR_INTERNAL, "make a process: %s", why);
  return FALSE;
}

/* "No such file" inside a sentence is "no such file". */
char *
vmm_child_error_text (int number)
{
  char *text = g_strdup (g_strerror (number));

  if (g_ascii_isupper (text[0]) && g_ascii_islower (text[1]))
    text[0] = g_ascii_tolower (text[0]);
  return text;
}

gboolean
vmm_child_read_report (int report_fd, char **reason)
{
  g_autofree char *why = NULL;
  const char *step = "";
  Report report;
  ssize_t n = read (report_fd, &report, sizeof report);

  *reason = NULL;
  if (n < 0)
    return errno != EAGAIN && errno != EINTR;
  if (n != sizeof report)
    return TRUE;

  if (report.step >= 0 && (guint) report.step < G_N_ELEMENTS (step_texts))
    step = step_texts[report.step];
  why = vmm_child_error_text (report.number);
  *reason = g_strconcat (step, why, NULL);
  return TRUE;
}

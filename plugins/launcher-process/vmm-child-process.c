/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* A child of the daemon: its end, its signals, its stop.
 *
 * The process is known by its pidfd, so that no signal can ever reach a stranger who was given the
 * same number. The child leads a session of its own. As long as it has not been waited for, nobody
 * else can have its number as process or group id; only in that time the group is signalled, to
 * take along what the program may have started itself.
 *
 * A source on the pidfd holds a reference until the child has been reaped: there is no zombie and
 * no lost exit status, whoever lets go of the object. Letting go (detach) cannot leave a child
 * behind: it ends with the daemon.
 */

#include "vmm-child-process.h"

#include <errno.h>
#include <signal.h>
#include <sys/pidfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <glib-unix.h>

#include "interfaces/vmm-error.h"
#include "vmm-child.h"

/* Behind what the default context has to do anyway: whoever is told of a new process in the same
 * turn has connected to ::exited before it comes. */
#define EXIT_PRIORITY (G_PRIORITY_DEFAULT + 1)

struct _VmmChildProcess
{
  VmmProcess parent_instance;

  pid_t pid;
  int pidfd;
  GSource *exit_source;
};

G_DEFINE_FINAL_TYPE (VmmChildProcess, vmm_child_process, VMM_TYPE_PROCESS)

/* Only while the child has not been reaped, see above. */
static void
kill_group (VmmChildProcess *self)
{
  kill (-self->pid, SIGKILL);
}

static void
settle (VmmChildProcess *self, const siginfo_t *info, const char *why_unknown)
{
  VmmExitStatus status = { .code = -1, .known = why_unknown == NULL };

  if (info->si_code == CLD_EXITED)
    {
      status.code = info->si_status;
    }
  else if (info->si_code == CLD_KILLED || info->si_code == CLD_DUMPED)
    {
      status.signal = info->si_status;
      status.core_dumped = info->si_code == CLD_DUMPED;
    }

  close (self->pidfd);
  self->pidfd = -1;
  vmm_process_exited (VMM_PROCESS (self), &status, why_unknown);
}

static gboolean
exit_cb (int fd, GIOCondition condition, gpointer user_data)
{
  VmmChildProcess *self = user_data;
  g_autofree char *why = NULL;
  siginfo_t info = { 0 };

  if (waitid (P_PIDFD, (id_t) fd, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == 0)
    return G_SOURCE_CONTINUE;

  if (info.si_pid == self->pid)
    kill_group (self);
  info = (siginfo_t){ 0 };
  if (waitid (P_PIDFD, (id_t) fd, &info, WEXITED | WNOHANG) != 0)
    why = vmm_child_error_text (errno);

  g_clear_pointer (&self->exit_source, g_source_unref);
  settle (self, &info, why);
  return G_SOURCE_REMOVE;
}

void
vmm_child_process_watch (VmmChildProcess *self)
{
  g_return_if_fail (self->exit_source == NULL && self->pidfd >= 0);

  self->exit_source = g_unix_fd_source_new (self->pidfd, G_IO_IN);
  g_source_set_priority (self->exit_source, EXIT_PRIORITY);
  g_source_set_static_name (self->exit_source, "vmm-child-exit");
  g_source_set_callback (self->exit_source, G_SOURCE_FUNC (exit_cb), g_object_ref (self),
                         g_object_unref);
  g_source_attach (self->exit_source, NULL);
}

static gboolean
vmm_child_process_send_signal (VmmProcess *process, int signum, GError **error)
{
  VmmChildProcess *self = VMM_CHILD_PROCESS (process);
  g_autofree char *why = NULL;

  if (self->pidfd >= 0 && pidfd_send_signal (self->pidfd, signum, NULL, 0) == 0)
    {
      if (signum == SIGKILL)
        kill_group (self);
      return TRUE;
    }

  if (self->pidfd < 0 || errno == ESRCH)
    {
      vmm_set_error (error, VMM_ERROR_CONFLICT, "process already finished");
      return FALSE;
    }
  why = vmm_child_error_text (errno);
  vmm_set_error (error, VMM_ERROR_INTERNAL, "send signal %d to process %d: %s", signum,
                 (int) self->pid, why);
  return FALSE;
}

static gboolean
vmm_child_process_get_usage (VmmProcess *process, VmmProcessUsage *usage)
{
  VmmChildProcess *self = VMM_CHILD_PROCESS (process);

  /* Not reaped, so the number in /proc is the child's own. */
  return self->pidfd >= 0 && vmm_process_read_usage (self->pid, usage);
}

static void
vmm_child_process_finalize (GObject *object)
{
  VmmChildProcess *self = VMM_CHILD_PROCESS (object);

  if (self->pidfd >= 0)
    close (self->pidfd);
  G_OBJECT_CLASS (vmm_child_process_parent_class)->finalize (object);
}

static void
vmm_child_process_class_init (VmmChildProcessClass *klass)
{
  VmmProcessClass *process_class = VMM_PROCESS_CLASS (klass);

  G_OBJECT_CLASS (klass)->finalize = vmm_child_process_finalize;
  process_class->send_signal = vmm_child_process_send_signal;
  process_class->get_usage = vmm_child_process_get_usage;
}

static void
vmm_child_process_init (VmmChildProcess *self)
{
  self->pidfd = -1;
}

VmmChildProcess *
vmm_child_process_new (pid_t pid, int pidfd)
{
  VmmChildProcess *self = g_object_new (VMM_TYPE_CHILD_PROCESS, NULL);
  g_autoptr (VmmProcessHandle) handle = NULL;
  guint64 start_time = 0;

  self->pid = pid;
  self->pidfd = pidfd;
  if (!vmm_process_read_start_time (pid, &start_time))
    start_time = 0;
  handle = vmm_process_handle_new (NULL, pid, start_time, NULL);
  vmm_process_set_handle (VMM_PROCESS (self), handle);
  return self;
}

/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* A launcher whose networks are real processes, while everything else is the fake launcher's, so
 * that no VM needs QEMU. They stay when the daemon is killed, and are found again by process id and
 * start time, which no launcher of this tree can do; or, with lasting=no, they end with it. */

#include "lasting-launcher.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <glib-unix.h>

#include "fake-backends-private.h"

#define TEST_TYPE_LASTING_PROCESS (test_lasting_process_get_type ())
G_DECLARE_FINAL_TYPE (TestLastingProcess, test_lasting_process, TEST, LASTING_PROCESS, VmmProcess)

struct _TestLastingProcess
{
  VmmProcess parent_instance;

  int pidfd;
  guint source;
};

struct _TestLastingLauncher
{
  GObject parent_instance;

  VmmLauncher *fake;
};

G_DEFINE_FINAL_TYPE (TestLastingProcess, test_lasting_process, VMM_TYPE_PROCESS)

static void backend_init (VmmBackendInterface *iface);
static void launcher_init (VmmLauncherInterface *iface);

G_DEFINE_FINAL_TYPE_WITH_CODE (TestLastingLauncher, test_lasting_launcher, G_TYPE_OBJECT,
                               G_IMPLEMENT_INTERFACE (VMM_TYPE_BACKEND, backend_init)
                                   G_IMPLEMENT_INTERFACE (VMM_TYPE_LAUNCHER, launcher_init))

/* --- A process --- */

/* That of an earlier daemon is not ours to be asked how it ended. */
static gboolean
ended_cb (int fd, GIOCondition condition, gpointer user_data)
{
  TestLastingProcess *self = user_data;
  VmmExitStatus status = { .code = -1 };
  siginfo_t info = { 0 };

  self->source = 0;
  if (waitid (P_PIDFD, (id_t) self->pidfd, &info, WEXITED | WNOHANG) == 0 && info.si_pid != 0)
    {
      status.known = TRUE;
      status.code = info.si_code == CLD_EXITED ? info.si_status : -1;
      status.signal = info.si_code == CLD_EXITED ? 0 : info.si_status;
    }
  vmm_process_exited (VMM_PROCESS (self), &status, "it was another daemon's child");
  return G_SOURCE_REMOVE;
}

/* Takes the descriptor. */
static VmmProcess *
process_new (pid_t pid, int pidfd, guint64 start_time)
{
  g_autoptr (VmmProcessHandle) handle = vmm_process_handle_new (NULL, pid, start_time, NULL);
  TestLastingProcess *self = g_object_new (TEST_TYPE_LASTING_PROCESS, NULL);

  self->pidfd = pidfd;
  vmm_process_set_handle (VMM_PROCESS (self), handle);
  self->source = g_unix_fd_add (pidfd, G_IO_IN, ended_cb, self);
  return VMM_PROCESS (self);
}

static gboolean
test_lasting_process_send_signal (VmmProcess *process, int number, GError **error)
{
  syscall (SYS_pidfd_send_signal, TEST_LASTING_PROCESS (process)->pidfd, number, NULL, 0);
  return TRUE;
}

static void
test_lasting_process_detach (VmmProcess *process)
{
  g_clear_handle_id (&TEST_LASTING_PROCESS (process)->source, g_source_remove);
}

static void
test_lasting_process_finalize (GObject *object)
{
  TestLastingProcess *self = TEST_LASTING_PROCESS (object);

  g_clear_handle_id (&self->source, g_source_remove);
  close (self->pidfd);
  G_OBJECT_CLASS (test_lasting_process_parent_class)->finalize (object);
}

static void
test_lasting_process_class_init (TestLastingProcessClass *klass)
{
  G_OBJECT_CLASS (klass)->finalize = test_lasting_process_finalize;
  VMM_PROCESS_CLASS (klass)->send_signal = test_lasting_process_send_signal;
  VMM_PROCESS_CLASS (klass)->detach = test_lasting_process_detach;
}

static void
test_lasting_process_init (TestLastingProcess *self)
{
}

/* --- The launcher --- */

/* In the child; data is the daemon's process id when it shall not be outlived. */
static void
child_cb (gpointer data)
{
  const pid_t parent = GPOINTER_TO_INT (data);

  setsid ();
  if (parent != 0 && (prctl (PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) != 0 || getppid () != parent))
    _exit (127);
}

static VmmProcess *
spawn (VmmProcessSpec *spec, GError **error)
{
  int log = open (vmm_process_spec_get_log (spec), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  gpointer parent = GINT_TO_POINTER (test_fakes.lasting_ends ? getpid () : 0);
  guint64 start_time = 0;
  GPid pid = 0;
  gboolean good = g_spawn_async_with_pipes_and_fds (
      NULL, vmm_process_spec_get_argv (spec), NULL, G_SPAWN_DO_NOT_REAP_CHILD, child_cb, parent, -1,
      log, log, NULL, NULL, 0, &pid, NULL, NULL, NULL, error);

  if (log >= 0)
    close (log);
  if (!good)
    return NULL;
  vmm_process_read_start_time (pid, &start_time);
  return process_new (pid, (int) syscall (SYS_pidfd_open, pid, 0), start_time);
}

static void
start_real (GTask *task, VmmProcessSpec *spec)
{
  GError *error = NULL;
  VmmProcess *process = spawn (spec, &error);

  if (process != NULL)
    {
      g_task_return_pointer (task, process, g_object_unref);
      return;
    }
  vmm_error_normalize (&error);
  g_task_return_error (task, error);
}

static void
started_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  g_autoptr (GTask) task = user_data;
  GError *error = NULL;
  VmmProcess *process = vmm_launcher_start_finish (VMM_LAUNCHER (source), result, &error);

  if (process != NULL)
    g_task_return_pointer (task, process, g_object_unref);
  else
    g_task_return_error (task, error);
}

static void
start_async (VmmLauncher *launcher, VmmProcessSpec *spec, GCancellable *cancellable,
             GAsyncReadyCallback callback, gpointer user_data)
{
  g_autoptr (GTask) task = g_task_new (launcher, cancellable, callback, user_data);

  g_task_set_source_tag (task, start_async);
  if (g_strcmp0 (vmm_process_spec_get_role (spec), "network") == 0)
    start_real (task, spec);
  else
    vmm_launcher_start_async (TEST_LASTING_LAUNCHER (launcher)->fake, spec, cancellable, started_cb,
                              g_steal_pointer (&task));
}

/* No child of this one's, so a number that was given out anew is told by its time. */
static void
find_async (VmmLauncher *launcher, const char *id, const VmmProcessHandle *handle,
            GCancellable *cancellable, GAsyncReadyCallback callback, gpointer user_data)
{
  g_autoptr (GTask) task = g_task_new (launcher, cancellable, callback, user_data);
  gint64 pid = handle != NULL && !test_fakes.lasting_ends ? vmm_process_handle_get_pid (handle) : 0;
  guint64 start_time = 0;
  int pidfd = pid > 0 ? (int) syscall (SYS_pidfd_open, (pid_t) pid, 0) : -1;

  g_task_set_source_tag (task, find_async);
  if (g_str_has_prefix (id, "net-") && pidfd >= 0 && vmm_process_read_start_time (pid, &start_time)
      && start_time == vmm_process_handle_get_start_time (handle))
    {
      g_task_return_pointer (task, process_new ((pid_t) pid, pidfd, start_time), g_object_unref);
      return;
    }
  if (pidfd >= 0)
    close (pidfd);
  g_task_return_error (task, vmm_error_new (VMM_ERROR_NOT_FOUND, "process %s is gone", id));
}

static gboolean
outlives_daemon (VmmLauncher *launcher)
{
  return !test_fakes.lasting_ends;
}

static void
test_lasting_launcher_finalize (GObject *object)
{
  g_clear_object (&TEST_LASTING_LAUNCHER (object)->fake);
  G_OBJECT_CLASS (test_lasting_launcher_parent_class)->finalize (object);
}

static void
backend_init (VmmBackendInterface *iface)
{
}

static void
launcher_init (VmmLauncherInterface *iface)
{
  iface->outlives_daemon = outlives_daemon;
  iface->start_async = start_async;
  iface->find_async = find_async;
}

static void
test_lasting_launcher_class_init (TestLastingLauncherClass *klass)
{
  G_OBJECT_CLASS (klass)->finalize = test_lasting_launcher_finalize;
}

static void
test_lasting_launcher_init (TestLastingLauncher *self)
{
  self->fake = g_object_new (TEST_TYPE_FAKE_LAUNCHER, NULL);
}

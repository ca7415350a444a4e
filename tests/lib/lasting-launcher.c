/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* A launcher whose networks are real processes, while everything else is the fake launcher's, so
 * that no VM needs QEMU. They stay when the daemon is killed, and are found again by process id and
 * start time, which no launcher of this tree can do; or, with lasting=no, they end with it.
 *
 * With lasting=all the processes of VMs are real as well: the monitor is the real one, the others
 * are the program that VMM_FAKE_PROGRAM names. Like a service manager it then knows each process by
 * its id alone, also one that a killed daemon never recorded: the folder VMM_FAKE_PROCESSES has a
 * file ID of each (process id, start time), and ID.exit when it ended by itself. */

#include "lasting-launcher.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <glib-unix.h>
#include <glib/gstdio.h>

#include "fake-backends-private.h"

#define TEST_TYPE_LASTING_PROCESS (test_lasting_process_get_type ())
G_DECLARE_FINAL_TYPE (TestLastingProcess, test_lasting_process, TEST, LASTING_PROCESS, VmmProcess)

struct _TestLastingProcess
{
  VmmProcess parent_instance;

  int pidfd; /* -1: it had ended before it was found */
  guint source;
  char *id; /* NULL when the folder does not know it */
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

static char *
registry_path (const char *id, const char *suffix)
{
  g_autofree char *name = g_strconcat (id, suffix, NULL);

  return g_build_filename (g_getenv ("VMM_FAKE_PROCESSES"), name, NULL);
}

/* What a process that is not our child left to be read of its end. */
static gboolean
read_exit (const char *id, int *code)
{
  g_autofree char *path = registry_path (id, ".exit");
  g_autofree char *text = NULL;

  if (!g_file_get_contents (path, &text, NULL, NULL))
    return FALSE;
  *code = atoi (text);
  return TRUE;
}

static void
forget (const char *id)
{
  g_autofree char *path = registry_path (id, NULL);
  g_autofree char *exit_path = registry_path (id, ".exit");

  g_unlink (path);
  g_unlink (exit_path);
}

/* That of an earlier daemon is not ours to be asked how it ended; who did not end by itself was
 * killed. */
static void
tell_end (TestLastingProcess *self)
{
  VmmExitStatus status = { .code = -1 };
  siginfo_t info = { 0 };

  if (self->pidfd >= 0
      && waitid (P_PIDFD, (id_t) self->pidfd, &info, WEXITED | WNOHANG) == 0 && info.si_pid != 0)
    {
      status.known = TRUE;
      status.code = info.si_code == CLD_EXITED ? info.si_status : -1;
      status.signal = info.si_code == CLD_EXITED ? 0 : info.si_status;
    }
  else if (self->id != NULL)
    {
      status.known = TRUE;
      status.signal = read_exit (self->id, &status.code) ? 0 : SIGKILL;
    }
  if (self->id != NULL)
    forget (self->id);
  vmm_process_exited (VMM_PROCESS (self), &status, "it was another daemon's child");
}

static gboolean
ended_cb (int fd, GIOCondition condition, gpointer user_data)
{
  TestLastingProcess *self = user_data;

  self->source = 0;
  tell_end (self);
  return G_SOURCE_REMOVE;
}

static gboolean
had_ended_cb (gpointer user_data)
{
  TestLastingProcess *self = user_data;

  self->source = 0;
  tell_end (self);
  return G_SOURCE_REMOVE;
}

/* Takes the descriptor. */
static VmmProcess *
process_new (const char *id, pid_t pid, int pidfd, guint64 start_time)
{
  g_autoptr (VmmProcessHandle) handle = vmm_process_handle_new (NULL, pid, start_time, NULL);
  TestLastingProcess *self = g_object_new (TEST_TYPE_LASTING_PROCESS, NULL);

  self->pidfd = pidfd;
  self->id = test_fakes.lasting_all ? g_strdup (id) : NULL;
  vmm_process_set_handle (VMM_PROCESS (self), handle);
  self->source = pidfd >= 0 ? g_unix_fd_add (pidfd, G_IO_IN, ended_cb, self)
                            : g_idle_add (had_ended_cb, self);
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
  if (self->pidfd >= 0)
    close (self->pidfd);
  g_free (self->id);
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

typedef struct
{
  pid_t daemon;
  gboolean bound; /* to end with the daemon */
  char *path;     /* of the process's file; NULL for none */
} Birth;

/* By the process itself, so that a daemon that is killed right after the fork has not lost it. Only
 * what is allowed between a fork and an exec: the kernel's own line has both numbers. */
static gboolean
write_birth (const char *path)
{
  char line[1024];
  int from = open ("/proc/self/stat", O_RDONLY | O_CLOEXEC);
  int to = open (path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  gssize size = read (from, line, sizeof line);

  return size > 0 && write (to, line, (gsize) size) == size;
}

/* In the child. One that comes too late must not be born: a daemon that was killed before the file was
 * there has a successor that has looked for it in vain. */
static void
child_cb (gpointer data)
{
  const Birth *birth = data;

  setsid ();
  if (birth->bound && prctl (PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) != 0)
    _exit (127);
  if (getppid () != birth->daemon || (birth->path != NULL && !write_birth (birth->path))
      || getppid () != birth->daemon)
    _exit (127);
}

/* The fakes of VMs are one program, which is told what it is. */
static GPtrArray *
command_of (VmmProcessSpec *spec)
{
  const char *role = vmm_process_spec_get_role (spec);
  const char *const *argv = vmm_process_spec_get_argv (spec);
  GPtrArray *command = g_ptr_array_new ();

  if (g_strcmp0 (role, "network") != 0 && g_strcmp0 (role, "monitor") != 0)
    {
      g_ptr_array_add (command, (gpointer) g_getenv ("VMM_FAKE_PROGRAM"));
      g_ptr_array_add (command, (gpointer) vmm_process_spec_get_id (spec));
      g_ptr_array_add (command, (gpointer) vmm_process_spec_get_owner (spec));
      g_ptr_array_add (command, (gpointer) role);
    }
  for (guint i = 0; argv[i] != NULL; i++)
    g_ptr_array_add (command, (gpointer) argv[i]);
  g_ptr_array_add (command, NULL);
  return command;
}

static VmmProcess *
spawn (VmmProcessSpec *spec, GError **error)
{
  const char *log_path = vmm_process_spec_get_log (spec);
  int log = open (log_path != NULL ? log_path : "/dev/null",
                  O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  const char *id = vmm_process_spec_get_id (spec);
  Birth birth = { getpid (), test_fakes.lasting_ends,
                  test_fakes.lasting_all ? registry_path (id, NULL) : NULL };
  g_autoptr (GPtrArray) command = command_of (spec);
  guint64 start_time = 0;
  GPid pid = 0;
  gboolean good = g_spawn_async_with_pipes_and_fds (
      vmm_process_spec_get_directory (spec), (const char *const *) command->pdata, NULL,
      G_SPAWN_DO_NOT_REAP_CHILD | G_SPAWN_SEARCH_PATH, child_cb, &birth, -1, log, log, NULL, NULL, 0,
      &pid, NULL, NULL, NULL, error);

  g_free (birth.path);
  if (log >= 0)
    close (log);
  if (!good)
    return NULL;
  vmm_process_read_start_time (pid, &start_time);
  return process_new (id, pid, (int) syscall (SYS_pidfd_open, pid, 0), start_time);
}

/* The first and the 22nd field; any name may stand in between. */
static gboolean
parse_birth (const char *line, pid_t *pid, guint64 *start_time)
{
  const char *name_end = strrchr (line, ')');
  g_auto (GStrv) fields = NULL;

  if (name_end == NULL)
    return FALSE;
  fields = g_strsplit (name_end + 2, " ", -1);
  if (g_strv_length (fields) < 20)
    return FALSE;
  *pid = atoi (line);
  *start_time = g_ascii_strtoull (fields[19], NULL, 10);
  return TRUE;
}

/* Whether the process that the folder has of an id still runs, and which it is. */
static int
open_registered (const char *id, pid_t *pid, guint64 *start_time)
{
  g_autofree char *path = registry_path (id, NULL);
  g_autofree char *text = NULL;
  guint64 actual = 0;
  int pidfd;

  *pid = 0;
  if (!g_file_get_contents (path, &text, NULL, NULL) || !parse_birth (text, pid, start_time))
    return -1;
  pidfd = (int) syscall (SYS_pidfd_open, *pid, 0);
  if (pidfd >= 0
      && (!vmm_process_read_start_time (*pid, &actual) || actual != *start_time))
    {
      close (pidfd);
      pidfd = -1;
    }
  return pidfd;
}

/* Two processes of one id would be two QEMUs on one disk. */
static gboolean
check_id_is_free (const char *id, GError **error)
{
  guint64 start_time;
  pid_t pid;
  int pidfd = open_registered (id, &pid, &start_time);

  if (pidfd < 0)
    {
      forget (id);
      return TRUE;
    }
  close (pidfd);
  vmm_set_error (error, VMM_ERROR_CONFLICT, "%s is already running (pid %d)", id, pid);
  return FALSE;
}

static void
start_real (GTask *task, VmmProcessSpec *spec)
{
  GError *error = NULL;
  VmmProcess *process = NULL;

  if (!test_fakes.lasting_all || check_id_is_free (vmm_process_spec_get_id (spec), &error))
    process = spawn (spec, &error);
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
  if (test_fakes.lasting_all || g_strcmp0 (vmm_process_spec_get_role (spec), "network") == 0)
    start_real (task, spec);
  else
    vmm_launcher_start_async (TEST_LASTING_LAUNCHER (launcher)->fake, spec, cancellable, started_cb,
                              g_steal_pointer (&task));
}

static void
find_registered (GTask *task, const char *id)
{
  guint64 start_time = 0;
  pid_t pid;
  int code;
  int pidfd = open_registered (id, &pid, &start_time);

  if (pidfd >= 0 || read_exit (id, &code))
    g_task_return_pointer (task, process_new (id, pid, pidfd, start_time), g_object_unref);
  else
    g_task_return_error (task, vmm_error_new (VMM_ERROR_NOT_FOUND, "process %s is gone", id));
}

/* No child of this one's, so a number that was given out anew is told by its time. */
static void
find_async (VmmLauncher *launcher, const char *id, const VmmProcessHandle *handle,
            GCancellable *cancellable, GAsyncReadyCallback callback, gpointer user_data)
{
  g_autoptr (GTask) task = g_task_new (launcher, cancellable, callback, user_data);
  gint64 pid = handle != NULL && !test_fakes.lasting_ends && !test_fakes.lasting_all ? vmm_process_handle_get_pid (handle) : 0;
  guint64 start_time = 0;
  int pidfd = pid > 0 ? (int) syscall (SYS_pidfd_open, (pid_t) pid, 0) : -1;

  g_task_set_source_tag (task, find_async);
  if (test_fakes.lasting_all)
    {
      find_registered (task, id);
      return;
    }
  if (g_str_has_prefix (id, "net-") && pidfd >= 0 && vmm_process_read_start_time (pid, &start_time)
      && start_time == vmm_process_handle_get_start_time (handle))
    {
      g_task_return_pointer (task, process_new (id, (pid_t) pid, pidfd, start_time), g_object_unref);
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

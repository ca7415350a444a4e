/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The process launcher with real, small programs. */

#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <glib/gstdio.h>

#include "interfaces/vmm.h"
#include "test-await.h"
#include "test-plugins.h"

#define SOFT_LIMIT 333

typedef struct
{
  char *directory;
  VmmPluginRegistry *registry;
  VmmLauncher *launcher;
} Fixture;

/* Also right where the name of the program is not, as in a chroot. */
static const char self_path[] = "/proc/self/exe";

static void
load (Fixture *fixture, const char *account)
{
  fixture->directory = test_make_directory ();
  fixture->registry = test_load_plugins (fixture->directory, account);
  fixture->launcher
      = VMM_LAUNCHER (test_choose_plugin (fixture->registry, VMM_PLUGIN_KIND_LAUNCHER, "process"));
}

static void
set_up (Fixture *fixture, gconstpointer account)
{
  load (fixture, account);
}

static void
tear_down (Fixture *fixture, gconstpointer data)
{
  /* No test leaves a child, dead or alive. */
  test_drain ();
  g_assert_cmpint (waitpid (-1, NULL, WNOHANG), ==, -1);
  g_assert_cmpint (errno, ==, ECHILD);
  g_clear_object (&fixture->registry);
  test_remove_directory (fixture->directory);
}

static char *
in_directory (Fixture *fixture, const char *name)
{
  return g_build_filename (fixture->directory, name, NULL);
}

static VmmProcessSpec *
shell (Fixture *fixture, const char *id, const char *script)
{
  const char *argv[] = { "sh", "-c", script, NULL };
  VmmProcessSpec *spec = vmm_process_spec_new (id, argv);
  g_autofree char *log = in_directory (fixture, "log");

  vmm_process_spec_set_log (spec, log);
  return spec;
}

static VmmProcess *
try_to_start (Fixture *fixture, VmmProcessSpec *spec, GCancellable *cancellable, GError **error)
{
  TestAwait await = TEST_AWAIT_INIT;
  g_autoptr (GAsyncResult) result = NULL;

  vmm_launcher_start_async (fixture->launcher, spec, cancellable, test_await_cb, &await);
  result = test_await (&await);
  return vmm_launcher_start_finish (fixture->launcher, result, error);
}

static VmmProcess *
start (Fixture *fixture, VmmProcessSpec *spec)
{
  g_autoptr (GError) error = NULL;
  VmmProcess *process = try_to_start (fixture, spec, NULL, &error);

  g_assert_no_error (error);
  g_assert_true (VMM_IS_PROCESS (process));
  g_assert_false (vmm_process_has_exited (process));
  return process;
}

static gboolean
has_exited (gpointer process)
{
  return vmm_process_has_exited (process);
}

static void
count_cb (VmmProcess *process, const VmmExitStatus *status, const char *text, guint *count)
{
  (*count)++;
}

/* Runs a process to its end. */
static VmmProcess *
run (Fixture *fixture, VmmProcessSpec *spec)
{
  VmmProcess *process = start (fixture, spec);
  guint count = 0;

  g_signal_connect (process, "exited", G_CALLBACK (count_cb), &count);
  test_await_condition (has_exited, process);
  test_drain ();
  g_assert_cmpuint (count, ==, 1);
  g_signal_handlers_disconnect_by_func (process, count_cb, &count);
  return process;
}

/* What a script wrote, when it succeeded. */
static char *
output_of (Fixture *fixture, VmmProcessSpec *spec)
{
  g_autoptr (VmmProcess) process = run (fixture, spec);
  char *content = NULL;

  g_assert_true (g_file_get_contents (vmm_process_spec_get_log (spec), &content, NULL, NULL));
  if (!vmm_exit_status_is_success (vmm_process_get_exit_status (process)))
    g_error ("%s", content); /* nocheck: ends the test with what the program said */
  return content;
}

static char *
output_of_script (Fixture *fixture, const char *script)
{
  g_autoptr (VmmProcessSpec) spec = shell (fixture, "script", script);

  return output_of (fixture, spec);
}

static void
assert_fails (Fixture *fixture, VmmProcessSpec *spec, const char *text)
{
  g_autoptr (GError) error = NULL;
  g_autoptr (VmmProcess) process = try_to_start (fixture, spec, NULL, &error);

  g_assert_null (process);
  g_assert_error (error, VMM_ERROR, VMM_ERROR_INTERNAL);
  g_assert_cmpstr (error->message, ==, text);
  g_assert_cmpint (waitpid (-1, NULL, WNOHANG), ==, -1);
}

static void
test_exit_status (Fixture *fixture, gconstpointer data)
{
  static const struct
  {
    const char *script;
    int code;
    int signal;
    const char *text;
  } cases[] = {
    { "exit 0", 0, 0, NULL },
    { "exit 7", 7, 0, "exit status 7" },
    { "exit 255", 255, 0, "exit status 255" },
    { "kill -KILL $$", -1, SIGKILL, "signal: killed" },
    { "kill -TERM $$", -1, SIGTERM, "signal: terminated" },
  };

  for (guint i = 0; i < G_N_ELEMENTS (cases); i++)
    {
      g_autoptr (VmmProcessSpec) spec = shell (fixture, "x", cases[i].script);
      g_autoptr (VmmProcess) process = run (fixture, spec);
      const VmmExitStatus *status = vmm_process_get_exit_status (process);

      g_assert_true (status->known);
      g_assert_cmpint (status->code, ==, cases[i].code);
      g_assert_cmpint (status->signal, ==, cases[i].signal);
      if (cases[i].text != NULL)
        g_assert_cmpstr (vmm_process_get_exit_text (process), ==, cases[i].text);
    }
}

static void
test_log (Fixture *fixture, gconstpointer data)
{
  g_autoptr (VmmProcessSpec) spec = shell (fixture, "x", "echo out; echo err >&2");
  g_autofree char *log = in_directory (fixture, "deep/er/log");
  g_autofree char *folder = in_directory (fixture, "deep/er");
  g_autofree char *first = NULL;
  g_autofree char *second = NULL;
  struct stat status;

  vmm_process_spec_set_log (spec, log);
  first = output_of (fixture, spec);
  g_assert_cmpstr (first, ==, "out\nerr\n");
  second = output_of (fixture, spec);
  g_assert_cmpstr (second, ==, "out\nerr\nout\nerr\n");

  g_assert_no_errno (g_stat (log, &status));
  g_assert_cmpuint (status.st_mode & 07777, ==, 0600);
  g_assert_no_errno (g_stat (folder, &status));
  g_assert_cmpuint (status.st_mode & 0027, ==, 0);
}

static void
test_no_log (Fixture *fixture, gconstpointer data)
{
  const char *argv[] = { "sh", "-c", "test $(readlink /proc/$$/fd/1) = /dev/null", NULL };
  g_autoptr (VmmProcessSpec) spec = vmm_process_spec_new ("x", argv);
  g_autoptr (VmmProcess) process = run (fixture, spec);

  g_assert_true (vmm_exit_status_is_success (vmm_process_get_exit_status (process)));
}

static void
test_surroundings (Fixture *fixture, gconstpointer data)
{
  g_autoptr (VmmProcessSpec) spec = shell (
      fixture, "x",
      "readlink /proc/self/fd/0; pwd; umask; echo \"$ADDED $REPLACED $INHERITED\"; ulimit -n; "
      "grep -E '^(SigBlk|SigIgn|NoNewPrivs|Seccomp):' /proc/self/status | tr -d '\\t'; "
      "set -- $(cat /proc/$$/stat); echo $(($5 == $$)) $(($6 == $$))");
  g_autofree char *expected = NULL;
  g_autofree char *output = NULL;

  vmm_process_spec_set_directory (spec, fixture->directory);
  vmm_process_spec_add_environment (spec, "ADDED", "a=b c");
  vmm_process_spec_add_environment (spec, "REPLACED", "new");
  output = output_of (fixture, spec);
  expected = g_strdup_printf ("/dev/null\n%s\n0077\na=b c new yes\n%d\n"
                              "SigBlk:0000000000000000\nSigIgn:0000000000000000\nNoNewPrivs:1\n"
                              "Seccomp:0\n1 1\n",
                              fixture->directory, SOFT_LIMIT);
  g_assert_cmpstr (output, ==, expected);
}

static void
test_secrets_stay (Fixture *fixture, gconstpointer data)
{
  g_autofree char *output = NULL;

  g_setenv ("VM_MANAGER_LISTEN", "private", TRUE);
  g_setenv ("DEX_CLIENT_SECRET", "private", TRUE);
  g_setenv ("some_token", "private", TRUE);
  g_setenv ("NOTIFY_SOCKET", "private", TRUE);
  g_setenv ("LISTEN_FDS", "private", TRUE);
  g_setenv ("HARMLESS", "public", TRUE);
  output = output_of_script (fixture, "env");
  g_unsetenv ("NOTIFY_SOCKET");
  g_unsetenv ("LISTEN_FDS");
  g_assert_null (strstr (output, "private"));
  g_assert_nonnull (strstr (output, "HARMLESS=public\n"));
}

static int
file_with (Fixture *fixture, const char *name, const char *content)
{
  g_autofree char *path = in_directory (fixture, name);
  int fd;

  g_assert_true (g_file_set_contents (path, content, -1, NULL));
  fd = open (path, O_RDONLY | O_CLOEXEC);
  g_assert_cmpint (fd, >=, 0);
  return fd;
}

static void
test_descriptors (Fixture *fixture, gconstpointer data)
{
  g_autoptr (VmmProcessSpec) spec
      = shell (fixture, "x",
               "cat <&3; cat <&4; echo $LISTEN_FDS $LISTEN_FDNAMES $(($LISTEN_PID == $$)); "
               "for n in 5 6 7 8 9 60 61; do test ! -e /proc/$$/fd/$n || echo leaked $n; done");
  int first = file_with (fixture, "first", "1\n");
  int second = file_with (fixture, "second", "2\n");
  int low, high;
  g_autofree char *output = NULL;

  /* One that is in the way of its own place, and two that nobody shall inherit. */
  low = fcntl (first, F_DUPFD_CLOEXEC, 4);
  close (first);
  high = dup2 (second, 60);
  g_assert_cmpint (high, ==, 60);
  vmm_process_spec_take_fd (spec, "net", low);
  vmm_process_spec_take_fd (spec, "monitor", second);
  output = output_of (fixture, spec);
  g_assert_cmpstr (output, ==, "1\n2\n2 net:monitor 1\n");
  /* The caller's own is still there. */
  g_assert_cmpint (fcntl (high, F_GETFD), ==, 0);
  close (high);
}

static char *
own_seccomp_mode (void)
{
  g_autofree char *status = NULL;
  const char *line;

  g_assert_true (g_file_get_contents ("/proc/self/status", &status, NULL, NULL));
  line = strstr (status, "\nSeccomp:");
  g_assert_nonnull (line);
  return g_strndup (line + 1, strcspn (line + 1, "\n"));
}

static void
test_io_uring (Fixture *fixture, gconstpointer data)
{
  const char *argv[] = { "python3", "-c",
                         "import ctypes\n"
                         "libc = ctypes.CDLL(None, use_errno=True)\n"
                         "print(libc.syscall(425, 1, None), ctypes.get_errno())\n",
                         NULL };
  g_autofree char *python = g_find_program_in_path ("python3");
  g_autoptr (VmmProcessSpec) denied = vmm_process_spec_new ("denied", argv);
  g_autoptr (VmmProcessSpec) allowed = vmm_process_spec_new ("allowed", argv);
  g_autofree char *before = own_seccomp_mode ();
  g_autofree char *after = NULL;
  g_autofree char *log = in_directory (fixture, "denied");
  g_autofree char *other_log = in_directory (fixture, "allowed");
  g_autofree char *output = NULL;
  g_autofree char *other = NULL;

  if (python == NULL)
    {
      g_test_skip ("no python3");
      return;
    }

  vmm_process_spec_set_log (denied, log);
  vmm_process_spec_set_flags (denied, VMM_PROCESS_DENY_IO_URING);
  output = output_of (fixture, denied);
  g_assert_cmpstr (output, ==, "-1 1\n");

  /* EFAULT, or whatever this kernel says by itself. */
  vmm_process_spec_set_log (allowed, other_log);
  other = output_of (fixture, allowed);
  g_test_message ("without the filter: %s", other);
  g_assert_true (g_str_has_prefix (other, "-1 "));

  after = own_seccomp_mode ();
  g_assert_cmpstr (before, ==, after);
}

static void
test_io_uring_alone (Fixture *fixture, gconstpointer data)
{
  g_autoptr (VmmProcessSpec) spec = shell (
      fixture, "x", "grep ^Seccomp: /proc/self/status | tr -d '\\t'; cat /dev/null && ls / >&2");
  g_autofree char *output = NULL;

  vmm_process_spec_set_flags (spec, VMM_PROCESS_DENY_IO_URING);
  output = output_of (fixture, spec);
  g_assert_true (g_str_has_prefix (output, "Seccomp:2\n"));
}

static void
test_no_program (Fixture *fixture, gconstpointer data)
{
  const char *unknown[] = { "vmm-no-such-program", NULL };
  g_autofree char *absent = in_directory (fixture, "absent");
  g_autofree char *plain = in_directory (fixture, "plain");
  g_autofree char *script = in_directory (fixture, "script");
  const char *absent_argv[] = { absent, NULL };
  const char *plain_argv[] = { plain, NULL };
  const char *script_argv[] = { script, NULL };
  g_autoptr (VmmProcessSpec) spec = vmm_process_spec_new ("a", unknown);
  g_autoptr (VmmProcessSpec) spec_absent = vmm_process_spec_new ("a", absent_argv);
  g_autoptr (VmmProcessSpec) spec_plain = vmm_process_spec_new ("a", plain_argv);
  g_autoptr (VmmProcessSpec) spec_script = vmm_process_spec_new ("a", script_argv);
  g_autofree char *text = NULL;

  assert_fails (fixture, spec, "vmm-no-such-program: executable file not found in $PATH");

  text = g_strdup_printf ("%s: no such file or directory", absent);
  assert_fails (fixture, spec_absent, text);

  g_assert_true (g_file_set_contents (plain, "x", -1, NULL));
  g_free (text);
  text = g_strdup_printf ("%s: permission denied", plain);
  assert_fails (fixture, spec_plain, text);

  g_assert_true (g_file_set_contents (script, "#!/no/such/interpreter\n", -1, NULL));
  g_assert_no_errno (g_chmod (script, 0700));
  g_free (text);
  text = g_strdup_printf ("%s: no such file or directory", script);
  assert_fails (fixture, spec_script, text);
}

static void
test_no_directory (Fixture *fixture, gconstpointer data)
{
  g_autoptr (VmmProcessSpec) spec = shell (fixture, "x", "true");

  vmm_process_spec_set_directory (spec, "/no/such/directory");
  assert_fails (fixture, spec, "sh: change the directory: no such file or directory");
}

static void
test_bad_log (Fixture *fixture, gconstpointer data)
{
  g_autofree char *file = in_directory (fixture, "file");
  g_autofree char *below = in_directory (fixture, "file/log");
  g_autofree char *fifo = in_directory (fixture, "fifo");
  g_autofree char *link = in_directory (fixture, "link");
  const struct
  {
    const char *path;
    const char *why;
  } cases[] = {
    { below, "not a directory" },
    { fifo, "no such device or address" }, /* nobody reads it */
    { link, "too many levels of symbolic links" },
    { fixture->directory, "is a directory" },
  };

  g_assert_true (g_file_set_contents (file, "x", -1, NULL));
  g_assert_no_errno (mkfifo (fifo, 0600));
  g_assert_no_errno (symlink (file, link));
  for (guint i = 0; i < G_N_ELEMENTS (cases); i++)
    {
      g_autoptr (VmmProcessSpec) spec = shell (fixture, "x", "true");
      g_autofree char *text
          = g_strdup_printf ("sh: open log %s: %s", cases[i].path, cases[i].why);

      vmm_process_spec_set_log (spec, cases[i].path);
      assert_fails (fixture, spec, text);
    }
}

typedef struct
{
  int fd;
  GString *text;
  gboolean got;
  gboolean ended;
} Pipe;

static gboolean
pipe_has_more (gpointer user_data)
{
  Pipe *pipe_data = user_data;
  char buffer[64];
  ssize_t n = pipe_data->got ? -1 : read (pipe_data->fd, buffer, sizeof buffer);

  if (n > 0)
    g_string_append_len (pipe_data->text, buffer, n);
  pipe_data->got = pipe_data->got || n >= 0;
  pipe_data->ended = pipe_data->ended || n == 0;
  return pipe_data->got;
}

/* A pipe of which a child gets the writing end as its descriptor 3. */
static Pipe *
pipe_to (VmmProcessSpec *spec)
{
  Pipe *self = g_new0 (Pipe, 1);
  int ends[2];

  g_assert_no_errno (pipe2 (ends, O_CLOEXEC | O_NONBLOCK));
  self->fd = ends[0];
  self->text = g_string_new (NULL);
  vmm_process_spec_take_fd (spec, "pipe", ends[1]);
  return self;
}

static void
pipe_free (Pipe *self)
{
  close (self->fd);
  g_string_free (self->text, TRUE);
  g_free (self);
}

static gboolean
keep_turning_cb (gpointer user_data)
{
  return G_SOURCE_CONTINUE;
}

static void
await_pipe (Pipe *self)
{
  guint turning = g_timeout_add (1, keep_turning_cb, NULL);

  self->got = FALSE;
  test_await_condition (pipe_has_more, self);
  g_source_remove (turning);
}

static void
stop (VmmProcess *process, guint grace_ms)
{
  TestAwait await = TEST_AWAIT_INIT;
  g_autoptr (GAsyncResult) result = NULL;
  g_autoptr (GError) error = NULL;

  vmm_process_stop_async (process, grace_ms, NULL, test_await_cb, &await);
  result = test_await (&await);
  g_assert_true (vmm_process_stop_finish (process, result, &error));
  g_assert_no_error (error);
  g_assert_true (vmm_process_has_exited (process));
}

static void
test_stop (Fixture *fixture, gconstpointer data)
{
  g_autoptr (VmmProcessSpec) spec = shell (fixture, "x", "exec sleep 300");
  g_autoptr (VmmProcess) process = start (fixture, spec);

  stop (process, 20000);
  g_assert_cmpint (vmm_process_get_exit_status (process)->signal, ==, SIGTERM);
  stop (process, 20000);
}

/* A program that does not listen, and one that it started itself: both go. The second holds the
 * pipe open as long as it lives. */
static void
test_stop_stubborn (Fixture *fixture, gconstpointer data)
{
  const guint grace = GPOINTER_TO_UINT (data);
  g_autoptr (VmmProcessSpec) spec
      = shell (fixture, "x", "trap '' TERM; sleep 300 & echo up >&3; wait; wait; sleep 300");
  Pipe *up = pipe_to (spec);
  g_autoptr (VmmProcess) process = start (fixture, spec);

  g_clear_pointer (&spec, vmm_process_spec_unref);
  await_pipe (up);
  g_assert_cmpstr (up->text->str, ==, "up\n");
  stop (process, grace);
  g_assert_cmpint (vmm_process_get_exit_status (process)->signal, ==, SIGKILL);
  await_pipe (up);
  g_assert_true (up->ended);
  pipe_free (up);
}

/* What a program leaves behind in its session goes with it. */
static void
test_leftovers (Fixture *fixture, gconstpointer data)
{
  g_autoptr (VmmProcessSpec) spec = shell (fixture, "x", "sleep 300 & exit 3");
  Pipe *up = pipe_to (spec);
  g_autoptr (VmmProcess) process = run (fixture, spec);

  g_clear_pointer (&spec, vmm_process_spec_unref);
  g_assert_cmpint (vmm_process_get_exit_status (process)->code, ==, 3);
  await_pipe (up);
  g_assert_true (up->ended);
  pipe_free (up);
}

static void
test_signals (Fixture *fixture, gconstpointer data)
{
  g_autoptr (VmmProcessSpec) spec
      = shell (fixture, "x", "trap 'exit 5' USR1; echo up >&3; while :; do read line <&4; done");
  Pipe *up = pipe_to (spec);
  int ends[2];
  g_autoptr (VmmProcess) process = NULL;
  g_autoptr (GError) error = NULL;

  g_assert_no_errno (pipe2 (ends, O_CLOEXEC));
  vmm_process_spec_take_fd (spec, "block", ends[0]);
  process = start (fixture, spec);
  await_pipe (up);
  g_assert_true (vmm_process_send_signal (process, SIGUSR1, &error));
  g_assert_no_error (error);
  test_await_condition (has_exited, process);
  g_assert_cmpint (vmm_process_get_exit_status (process)->code, ==, 5);

  g_assert_false (vmm_process_send_signal (process, SIGUSR1, &error));
  g_assert_error (error, VMM_ERROR, VMM_ERROR_CONFLICT);
  g_assert_nonnull (strstr (error->message, "process already finished"));
  close (ends[1]);
  pipe_free (up);
}

static void
test_usage (Fixture *fixture, gconstpointer data)
{
  /* Some megabytes, because the kernel's count of a small process may still say 0. */
  g_autoptr (VmmProcessSpec) spec = shell (
      fixture, "x", "big=$(head -c 8000000 /dev/zero | tr '\\0' x); echo up >&3; read line <&4");
  Pipe *up = pipe_to (spec);
  int ends[2];
  g_autoptr (VmmProcess) process = NULL;
  const VmmProcessHandle *handle;
  VmmProcessUsage usage = { 0 };

  g_assert_no_errno (pipe2 (ends, O_CLOEXEC));
  vmm_process_spec_take_fd (spec, "block", ends[0]);
  process = start (fixture, spec);
  handle = vmm_process_get_handle (process);
  g_assert_null (vmm_process_handle_get_unit (handle));
  g_assert_cmpint (vmm_process_handle_get_pid (handle), >, 1);
  g_assert_cmpuint (vmm_process_handle_get_start_time (handle), >, 0);
  await_pipe (up);
  g_assert_true (vmm_process_get_usage (process, &usage));
  g_assert_cmpuint (usage.memory_bytes, >, 4000000);
  stop (process, 0);
  g_assert_false (vmm_process_get_usage (process, &usage));
  close (ends[1]);
  pipe_free (up);
}

static void
test_start_cancelled (Fixture *fixture, gconstpointer data)
{
  g_autoptr (GCancellable) cancelled = g_cancellable_new ();
  g_autoptr (VmmProcessSpec) spec = shell (fixture, "x", "exec sleep 300");
  g_autoptr (GError) error = NULL;
  g_autoptr (VmmProcess) process = NULL;

  g_cancellable_cancel (cancelled);
  process = try_to_start (fixture, spec, cancelled, &error);
  g_assert_null (process);
  g_assert_error (error, G_IO_ERROR, G_IO_ERROR_CANCELLED);
}

/* At every turn of the loop: either it runs and is ours, or it is cancelled and no child is left.
 */
static void
test_start_cancelled_on_the_way (Fixture *fixture, gconstpointer data)
{
  guint n_cancelled = 0;

  for (guint turns = 0; turns < 12; turns++)
    {
      g_autoptr (GCancellable) cancellable = g_cancellable_new ();
      g_autoptr (VmmProcessSpec) spec = shell (fixture, "x", "exec sleep 300");
      TestAwait await = TEST_AWAIT_INIT;
      g_autoptr (GAsyncResult) result = NULL;
      g_autoptr (VmmProcess) process = NULL;
      g_autoptr (GError) error = NULL;

      vmm_launcher_start_async (fixture->launcher, spec, cancellable, test_await_cb, &await);
      for (guint i = 0; i < turns && await.result == NULL; i++)
        g_main_context_iteration (NULL, TRUE);
      g_cancellable_cancel (cancellable);
      result = test_await (&await);
      process = vmm_launcher_start_finish (fixture->launcher, result, &error);
      if (process != NULL)
        {
          stop (process, 0);
          continue;
        }
      n_cancelled++;
      g_assert_error (error, G_IO_ERROR, G_IO_ERROR_CANCELLED);
      g_assert_cmpint (waitpid (-1, NULL, WNOHANG), ==, -1);
    }
  g_assert_cmpuint (n_cancelled, >, 0);
}

static void
test_same_id (Fixture *fixture, gconstpointer data)
{
  g_autoptr (VmmProcessSpec) spec = shell (fixture, "web-qemu", "exec sleep 300");
  TestAwait first_await = TEST_AWAIT_INIT;
  g_autoptr (GAsyncResult) first_result = NULL;
  g_autoptr (VmmProcess) first = NULL;
  g_autoptr (VmmProcess) second = NULL;
  g_autoptr (VmmProcess) third = NULL;
  g_autoptr (GError) error = NULL;

  vmm_launcher_start_async (fixture->launcher, spec, NULL, test_await_cb, &first_await);
  second = try_to_start (fixture, spec, NULL, &error);
  g_assert_null (second);
  g_assert_error (error, VMM_ERROR, VMM_ERROR_CONFLICT);
  g_clear_error (&error);

  first_result = test_await (&first_await);
  first = vmm_launcher_start_finish (fixture->launcher, first_result, &error);
  g_assert_no_error (error);
  second = try_to_start (fixture, spec, NULL, &error);
  g_assert_null (second);
  g_assert_error (error, VMM_ERROR, VMM_ERROR_CONFLICT);
  g_assert_nonnull (strstr (error->message, "web-qemu is already running"));

  stop (first, 0);
  third = start (fixture, spec);
  stop (third, 0);
}

static VmmProcess *
find (Fixture *fixture, const char *id, const VmmProcessHandle *handle, GError **error)
{
  TestAwait await = TEST_AWAIT_INIT;
  g_autoptr (GAsyncResult) result = NULL;

  vmm_launcher_find_async (fixture->launcher, id, handle, NULL, test_await_cb, &await);
  result = test_await (&await);
  return vmm_launcher_find_finish (fixture->launcher, result, error);
}

static void
assert_not_found (Fixture *fixture, const char *id, const VmmProcessHandle *handle)
{
  g_autoptr (GError) error = NULL;
  g_autoptr (VmmProcess) process = find (fixture, id, handle, &error);

  g_assert_null (process);
  g_assert_error (error, VMM_ERROR, VMM_ERROR_UNSUPPORTED);
  g_assert_cmpstr (error->message, ==, "unsupported: launcher cannot reattach processes");
}

static void
test_find (Fixture *fixture, gconstpointer data)
{
  g_autoptr (VmmProcessSpec) spec = shell (fixture, "x", "exec sleep 300");
  g_autoptr (VmmProcess) process = start (fixture, spec);
  g_autoptr (VmmProcessHandle) handle = vmm_process_handle_copy (vmm_process_get_handle (process));
  g_autoptr (VmmProcessHandle) stale
      = vmm_process_handle_new (NULL, vmm_process_handle_get_pid (handle),
                                vmm_process_handle_get_start_time (handle) + 1, NULL);
  g_autoptr (GError) error = NULL;
  g_autoptr (VmmProcess) found = find (fixture, "x", handle, &error);

  g_assert_false (vmm_launcher_outlives_daemon (fixture->launcher));
  g_assert_no_error (error);
  g_assert_true (found == process);
  assert_not_found (fixture, "y", handle);
  assert_not_found (fixture, "x", stale);
  assert_not_found (fixture, "x", NULL);
  stop (process, 0);
  assert_not_found (fixture, "x", handle);
}

static guint
count_descriptors (void)
{
  g_autoptr (GDir) dir = g_dir_open ("/proc/self/fd", 0, NULL);
  guint n = 0;

  while (g_dir_read_name (dir) != NULL)
    n++;
  return n;
}

static void
test_nothing_leaks (Fixture *fixture, gconstpointer data)
{
  guint before = 0;

  for (guint i = 0; i < 12; i++)
    {
      const char *unknown[] = { "/no/such/program", NULL };
      g_autoptr (VmmProcessSpec) bad = vmm_process_spec_new ("bad", unknown);
      g_autofree char *output = output_of_script (fixture, "true");
      g_autoptr (VmmProcess) process = NULL;

      g_assert_cmpstr (output, ==, "");
      process = try_to_start (fixture, bad, NULL, NULL);
      g_assert_null (process);
      test_drain ();
      if (i == 1) /* worker threads and the like are there now */
        before = count_descriptors ();
    }
  g_assert_cmpuint (count_descriptors (), ==, before);
}

/* Nobody holds the process, and it still is reaped. */
static void
test_dropped (Fixture *fixture, gconstpointer data)
{
  g_autoptr (VmmProcessSpec) spec = shell (fixture, "x", "read line <&3");
  VmmProcess *process;
  int ends[2];

  g_assert_no_errno (pipe2 (ends, O_CLOEXEC));
  vmm_process_spec_take_fd (spec, "block", ends[0]);
  process = start (fixture, spec);
  g_object_add_weak_pointer (G_OBJECT (process), (gpointer *) &process);
  vmm_process_detach (process);
  g_object_unref (process);
  g_assert_nonnull (process);
  close (ends[1]);
  while (process != NULL)
    g_main_context_iteration (NULL, TRUE);
}

/* A second daemon, which is killed: its child must go, too. The child holds the helper's stdout. */
static void
test_parent_death (Fixture *fixture, gconstpointer account)
{
  g_autoptr (GError) error = NULL;
  g_autoptr (GSubprocess) helper
      = g_subprocess_new (G_SUBPROCESS_FLAGS_STDOUT_PIPE, &error, self_path, "--daemon",
                          account != NULL ? (const char *) account : "", NULL);
  GInputStream *stream;
  char buffer[16];
  gsize n = 0;

  g_assert_no_error (error);
  stream = g_subprocess_get_stdout_pipe (helper);
  g_assert_true (g_input_stream_read_all (stream, buffer, 3, &n, NULL, &error));
  g_assert_cmpmem (buffer, n, "up\n", 3);
  g_subprocess_force_exit (helper);
  g_assert_true (g_input_stream_read_all (stream, buffer, 1, &n, NULL, &error));
  g_assert_cmpuint (n, ==, 0);
  g_subprocess_wait (helper, NULL, NULL); /* nocheck: a test may wait */
}

/* The second daemon of the test above. */
static void G_GNUC_NORETURN
be_daemon (const char *account)
{
  Fixture fixture = { NULL };
  const char *argv[] = { "sh", "-c", "echo up >&3; exec sleep 300", NULL };
  g_autoptr (VmmProcessSpec) spec = vmm_process_spec_new ("x", argv);
  g_autoptr (VmmProcess) process = NULL;

  load (&fixture, account[0] != '\0' ? account : NULL);
  test_remove_directory (g_strdup (fixture.directory));
  vmm_process_spec_take_fd (spec, "stdout", dup (STDOUT_FILENO));
  process = start (&fixture, spec);
  for (;;)
    g_main_context_iteration (NULL, TRUE);
}

static char *
describe (Fixture *fixture)
{
  g_autoptr (GVariant) members
      = g_variant_ref_sink (vmm_backend_describe_host (VMM_BACKEND (fixture->launcher)));

  return g_variant_print (members, FALSE);
}

static void
test_describe (Fixture *fixture, gconstpointer data)
{
  g_autofree char *members = describe (fixture);

  g_assert_true (vmm_backend_is_available (VMM_BACKEND (fixture->launcher), NULL));
  if (geteuid () == 0)
    g_assert_cmpstr (
        members, ==,
        "{'childrenRunAs': <'root'>, 'childrenRunAsReason': <'the daemon is root and no "
        "account is configured'>}");
  else
    g_assert_null (strstr (members, "Reason"));
}

static void
test_no_account (Fixture *fixture, gconstpointer account)
{
  g_autofree char *members = describe (fixture);

  g_assert_true (vmm_backend_is_available (VMM_BACKEND (fixture->launcher), NULL));
  if (geteuid () == 0)
    g_assert_nonnull (strstr (members, "the account \"vmm-nobody-has-this\" does not exist"));
}

static void
test_account (Fixture *fixture, gconstpointer account)
{
  const struct passwd *entry = getpwnam (account);
  g_autofree char *expected = NULL;
  g_autofree char *output = NULL;
  g_autofree char *members = NULL;

  if (geteuid () != 0 || entry == NULL)
    {
      g_test_skip ("only root can become somebody else");
      return;
    }

  expected = g_strdup_printf ("%u %u %u\n%s\nUid: %u %u %u %u\nCapEff: 0000000000000000\n",
                              entry->pw_uid, entry->pw_gid, entry->pw_gid, entry->pw_dir,
                              entry->pw_uid, entry->pw_uid, entry->pw_uid, entry->pw_uid);
  g_setenv ("XDG_RUNTIME_DIR", "/run/user/0", TRUE);
  output = output_of_script (fixture, "echo $(id -u) $(id -g) $(id -G); echo $HOME; "
                                      "grep -E '^(Uid|CapEff):' /proc/self/status | tr '\\t' ' '; "
                                      "echo -n $XDG_RUNTIME_DIR");
  g_assert_cmpstr (output, ==, expected);
  members = describe (fixture);
  g_assert_cmpstr (members, ==, "{'childrenRunAs': <'nobody'>}");
}

/* The limit that the plugin finds when it is made, lower than what the test has later. */
static void
lower_limit (void)
{
  struct rlimit limit;

  g_assert_no_errno (getrlimit (RLIMIT_NOFILE, &limit));
  limit.rlim_cur = SOFT_LIMIT;
  g_assert_no_errno (setrlimit (RLIMIT_NOFILE, &limit));
}

static void
set_up_with_raised_limit (Fixture *fixture, gconstpointer data)
{
  struct rlimit limit;
  sigset_t set;

  load (fixture, NULL);
  g_assert_no_errno (getrlimit (RLIMIT_NOFILE, &limit));
  limit.rlim_cur = MIN (limit.rlim_max, SOFT_LIMIT + 100);
  g_assert_no_errno (setrlimit (RLIMIT_NOFILE, &limit));
  /* What the daemon does with signals must not reach the child. */
  sigemptyset (&set);
  sigaddset (&set, SIGUSR2);
  pthread_sigmask (SIG_BLOCK, &set, NULL);
  signal (SIGPIPE, SIG_IGN);
  g_setenv ("REPLACED", "old", TRUE);
  g_setenv ("INHERITED", "yes", TRUE);
}

static void
tear_down_limit (Fixture *fixture, gconstpointer data)
{
  lower_limit ();
  tear_down (fixture, data);
}

int
main (int argc, char **argv)
{
  if (argc == 3 && g_str_equal (argv[1], "--daemon"))
    be_daemon (argv[2]);

  g_test_init (&argc, &argv, G_TEST_OPTION_ISOLATE_DIRS, NULL);
  lower_limit ();

#define ADD(path, data, function)                                                                  \
  g_test_add ("/launcher-process/" path, Fixture, data, set_up, function, tear_down)
  ADD ("exit-status", NULL, test_exit_status);
  ADD ("log", NULL, test_log);
  ADD ("no-log", NULL, test_no_log);
  g_test_add ("/launcher-process/surroundings", Fixture, NULL, set_up_with_raised_limit,
              test_surroundings, tear_down_limit);
  ADD ("secrets-stay", NULL, test_secrets_stay);
  ADD ("descriptors", NULL, test_descriptors);
  ADD ("io-uring", NULL, test_io_uring);
  ADD ("io-uring-alone", NULL, test_io_uring_alone);
  ADD ("no-program", NULL, test_no_program);
  ADD ("no-directory", NULL, test_no_directory);
  ADD ("bad-log", NULL, test_bad_log);
  ADD ("stop", NULL, test_stop);
  g_test_add ("/launcher-process/stop-stubborn", Fixture, NULL, set_up, test_stop_stubborn,
              tear_down);
  ADD ("leftovers", NULL, test_leftovers);
  ADD ("signals", NULL, test_signals);
  ADD ("usage", NULL, test_usage);
  ADD ("start-cancelled", NULL, test_start_cancelled);
  ADD ("start-cancelled-on-the-way", NULL, test_start_cancelled_on_the_way);
  ADD ("same-id", NULL, test_same_id);
  ADD ("find", NULL, test_find);
  ADD ("nothing-leaks", NULL, test_nothing_leaks);
  ADD ("dropped", NULL, test_dropped);
  ADD ("parent-death", NULL, test_parent_death);
  ADD ("describe", NULL, test_describe);
  ADD ("no-account", "vmm-nobody-has-this", test_no_account);
  ADD ("account", "nobody", test_account);
  ADD ("parent-death-of-account", "nobody", test_parent_death);
#undef ADD
  return g_test_run ();
}

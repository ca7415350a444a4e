/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "interfaces/vmm-error.h"
#include "interfaces/vmm-process.h"

#include "test-await.h"

/* A process that records the signals it gets and ends when it is told. */
#define TEST_TYPE_PROCESS (test_process_get_type ())
G_DECLARE_FINAL_TYPE (TestProcess, test_process, TEST, PROCESS, VmmProcess)

struct _TestProcess
{
  VmmProcess parent_instance;

  GArray *signals_sent;
  int ends_at;        /* the signal that ends it, at once; 0 for none */
  gboolean is_gone;   /* signals cannot be sent any more */
  gboolean forbidden; /* signals may not be sent */
};

G_DEFINE_FINAL_TYPE (TestProcess, test_process, VMM_TYPE_PROCESS)

static void
end (VmmProcess *process, int code, int signum)
{
  VmmExitStatus status = { .code = code, .signal = signum, .known = TRUE };

  vmm_process_exited (process, &status, NULL);
}

static gboolean
test_process_send_signal (VmmProcess *process, int signum, GError **error)
{
  TestProcess *self = TEST_PROCESS (process);

  g_array_append_val (self->signals_sent, signum);
  if (self->is_gone)
    {
      vmm_set_error (error, VMM_ERROR_CONFLICT, "process already finished");
      return FALSE;
    }
  if (self->forbidden)
    {
      vmm_set_error (error, VMM_ERROR_INTERNAL, "not permitted");
      return FALSE;
    }
  if (signum == self->ends_at)
    end (process, -1, signum);
  return TRUE;
}

static void
test_process_finalize (GObject *object)
{
  g_array_unref (TEST_PROCESS (object)->signals_sent);
  G_OBJECT_CLASS (test_process_parent_class)->finalize (object);
}

static void
test_process_class_init (TestProcessClass *klass)
{
  G_OBJECT_CLASS (klass)->finalize = test_process_finalize;
  VMM_PROCESS_CLASS (klass)->send_signal = test_process_send_signal;
}

static void
test_process_init (TestProcess *self)
{
  self->signals_sent = g_array_new (FALSE, FALSE, sizeof (int));
}

/* A process with nothing but the defaults. */
#define TEST_TYPE_PLAIN_PROCESS (test_plain_process_get_type ())
G_DECLARE_FINAL_TYPE (TestPlainProcess, test_plain_process, TEST, PLAIN_PROCESS, VmmProcess)

struct _TestPlainProcess
{
  VmmProcess parent_instance;
};

G_DEFINE_FINAL_TYPE (TestPlainProcess, test_plain_process, VMM_TYPE_PROCESS)

static void
test_plain_process_class_init (TestPlainProcessClass *klass)
{
}

static void
test_plain_process_init (TestPlainProcess *self)
{
}

static void
test_exit_text (void)
{
  const struct
  {
    VmmExitStatus status;
    const char *why;
    const char *text;
  } rows[] = {
    { { .code = 0, .known = TRUE }, NULL, "exit status 0" },
    { { .code = 3, .known = TRUE }, NULL, "exit status 3" },
    { { .code = -1, .signal = SIGTERM, .known = TRUE }, NULL, "signal: terminated" },
    { { .code = -1, .signal = SIGKILL, .known = TRUE }, NULL, "signal: killed" },
    { { .code = -1, .signal = SIGSEGV, .known = TRUE, .core_dumped = TRUE },
      NULL,
      "signal: segmentation fault (core dumped)" },
    { { .code = -1, .signal = SIGABRT, .known = TRUE }, NULL, "signal: aborted" },
    { { .code = -1, .signal = SIGHUP, .known = TRUE }, NULL, "signal: hangup" },
    { { .code = -1, .signal = SIGSYS, .known = TRUE }, NULL, "signal: signal 31" },
    { { .code = -1, .signal = 64, .known = TRUE, .core_dumped = TRUE },
      NULL,
      "signal: signal 64 (core dumped)" },
    { { .code = -1 }, "the unit is gone", "exit status unknown: the unit is gone" },
    { { .code = -1 }, NULL, "exit status unknown: no reason given" },
  };

  for (guint i = 0; i < G_N_ELEMENTS (rows); i++)
    {
      g_autofree char *text = vmm_exit_status_to_text (&rows[i].status, rows[i].why);

      g_assert_cmpstr (text, ==, rows[i].text);
      g_assert_cmpint (vmm_exit_status_is_success (&rows[i].status), ==, i == 0);
    }
}

static void
test_exit_from_wait (void)
{
  VmmExitStatus status;

  vmm_exit_status_from_wait (W_EXITCODE (7, 0), &status);
  g_assert_true (status.known);
  g_assert_cmpint (status.code, ==, 7);
  g_assert_cmpint (status.signal, ==, 0);

  vmm_exit_status_from_wait (W_EXITCODE (0, SIGSEGV) | WCOREFLAG, &status);
  g_assert_true (status.known);
  g_assert_cmpint (status.code, ==, -1);
  g_assert_cmpint (status.signal, ==, SIGSEGV);
  g_assert_true (status.core_dumped);

  vmm_exit_status_from_wait (W_STOPCODE (SIGSTOP), &status);
  g_assert_false (status.known);
  g_assert_false (vmm_exit_status_is_success (&status));
}

static void
test_spec (void)
{
  char program[] = "prog";
  const char *argv[] = { program, "--flag", NULL };
  g_autoptr (VmmProcessSpec) spec = vmm_process_spec_new ("vm-1-qemu", argv);
  g_autoptr (VmmProcessSpec) again = vmm_process_spec_ref (spec);
  const char *name;
  int fds[2], first;

  program[0] = 'X';
  g_assert_cmpstr (vmm_process_spec_get_id (spec), ==, "vm-1-qemu");
  g_assert_cmpstr (vmm_process_spec_get_argv (spec)[0], ==, "prog");
  g_assert_cmpstr (vmm_process_spec_get_argv (spec)[1], ==, "--flag");
  g_assert_null (vmm_process_spec_get_argv (spec)[2]);
  g_assert_null (vmm_process_spec_get_owner (spec));
  g_assert_null (vmm_process_spec_get_log (spec));
  g_assert_null (vmm_process_spec_get_directory (spec));
  g_assert_null (vmm_process_spec_get_environment (spec)[0]);
  g_assert_cmpuint (vmm_process_spec_get_n_fds (spec), ==, 0);
  g_assert_cmpuint (vmm_process_spec_get_memory_max (spec), ==, 0);

  vmm_process_spec_set_owner (spec, "1a2b3c4d", "qemu");
  vmm_process_spec_set_owner (spec, "00000000", "tpm");
  vmm_process_spec_set_directory (spec, "/a");
  vmm_process_spec_set_log (spec, "/b");
  vmm_process_spec_set_flags (spec, VMM_PROCESS_DENY_IO_URING | VMM_PROCESS_RESTART);
  vmm_process_spec_add_environment (spec, "A", "1=2");
  vmm_process_spec_add_environment (spec, "B", "");
  vmm_process_spec_add_writable_path (spec, "/w");
  vmm_process_spec_add_device (spec, "/dev/kvm");
  vmm_process_spec_add_after (spec, "vm-1-tpm");
  vmm_process_spec_set_memory_max (spec, 1ULL << 40);
  vmm_process_spec_set_cpu_quota (spec, 250);

  g_assert_cmpstr (vmm_process_spec_get_owner (spec), ==, "00000000");
  g_assert_cmpstr (vmm_process_spec_get_role (spec), ==, "tpm");
  g_assert_cmpstr (vmm_process_spec_get_directory (spec), ==, "/a");
  g_assert_cmpstr (vmm_process_spec_get_log (spec), ==, "/b");
  g_assert_cmpint (vmm_process_spec_get_flags (spec), ==,
                   VMM_PROCESS_DENY_IO_URING | VMM_PROCESS_RESTART);
  g_assert_cmpstr (vmm_process_spec_get_environment (spec)[0], ==, "A=1=2");
  g_assert_cmpstr (vmm_process_spec_get_environment (spec)[1], ==, "B=");
  g_assert_null (vmm_process_spec_get_environment (spec)[2]);
  g_assert_cmpstr (vmm_process_spec_get_writable_paths (spec)[0], ==, "/w");
  g_assert_cmpstr (vmm_process_spec_get_devices (spec)[0], ==, "/dev/kvm");
  g_assert_cmpstr (vmm_process_spec_get_after (spec)[0], ==, "vm-1-tpm");
  g_assert_cmpuint (vmm_process_spec_get_memory_max (spec), ==, 1ULL << 40);
  g_assert_cmpuint (vmm_process_spec_get_cpu_quota (spec), ==, 250);

  g_assert_cmpint (pipe2 (fds, O_CLOEXEC), ==, 0);
  first = fds[0];
  vmm_process_spec_take_fd (spec, "in", fds[0]);
  vmm_process_spec_take_fd (spec, "out", fds[1]);
  g_assert_cmpuint (vmm_process_spec_get_n_fds (spec), ==, 2);
  g_assert_cmpint (vmm_process_spec_get_fd (spec, 1, &name), ==, fds[1]);
  g_assert_cmpstr (name, ==, "out");
  g_assert_cmpint (fcntl (first, F_GETFD), >=, 0);
  g_clear_pointer (&again, vmm_process_spec_unref);
  g_assert_cmpint (fcntl (first, F_GETFD), >=, 0);
  g_clear_pointer (&spec, vmm_process_spec_unref);
  g_assert_cmpint (fcntl (first, F_GETFD), ==, -1);
}

static void
test_handle (void)
{
  g_autoptr (VmmProcessHandle) handle = vmm_process_handle_new ("a.service", 17, 99, "boot");
  g_autoptr (VmmProcessHandle) copy = vmm_process_handle_copy (handle);
  g_autoptr (VmmProcessHandle) empty = vmm_process_handle_new (NULL, 0, 0, NULL);

  g_clear_pointer (&handle, vmm_process_handle_free);
  g_assert_cmpstr (vmm_process_handle_get_unit (copy), ==, "a.service");
  g_assert_cmpstr (vmm_process_handle_get_invocation (copy), ==, "boot");
  g_assert_cmpint (vmm_process_handle_get_pid (copy), ==, 17);
  g_assert_cmpuint (vmm_process_handle_get_start_time (copy), ==, 99);
  g_assert_null (vmm_process_handle_get_unit (empty));
}

static void
count_exited_cb (VmmProcess *process, const VmmExitStatus *status, const char *text, guint *count)
{
  g_assert_true (vmm_process_has_exited (process));
  g_assert_cmpint (status->code, ==, 4);
  g_assert_cmpstr (text, ==, "exit status 4");
  (*count)++;
}

static void
drop_cb (VmmProcess *process, const VmmExitStatus *status, const char *text, VmmProcess **owned)
{
  g_clear_object (owned);
}

static void
test_exited_once (void)
{
  VmmProcess *process = g_object_new (TEST_TYPE_PROCESS, NULL);
  g_autoptr (GError) error = NULL;
  guint count = 0;

  g_signal_connect (process, "exited", G_CALLBACK (count_exited_cb), &count);
  g_assert_false (vmm_process_has_exited (process));
  g_assert_null (vmm_process_get_exit_status (process));
  g_assert_null (vmm_process_get_exit_text (process));
  end (process, 4, 0);
  end (process, 5, 0);
  g_assert_cmpuint (count, ==, 1);
  g_assert_cmpint (vmm_process_get_exit_status (process)->code, ==, 4);
  g_assert_cmpstr (vmm_process_get_exit_text (process), ==, "exit status 4");

  g_assert_false (vmm_process_send_signal (process, SIGTERM, &error));
  g_assert_error (error, VMM_ERROR, VMM_ERROR_CONFLICT);
  g_assert_cmpuint (TEST_PROCESS (process)->signals_sent->len, ==, 0);
  g_object_unref (process);

  /* Whoever hears it may drop the last reference. */
  process = g_object_new (TEST_TYPE_PROCESS, NULL);
  g_signal_connect (process, "exited", G_CALLBACK (drop_cb), &process);
  end (process, 4, 0);
  g_assert_null (process);
}

static gboolean
finish_stop (VmmProcess *process, TestAwait *await, GError **error)
{
  g_autoptr (GAsyncResult) result = test_await (await);

  return vmm_process_stop_finish (process, result, error);
}

static int
sent (VmmProcess *process, guint index)
{
  GArray *signals_sent = TEST_PROCESS (process)->signals_sent;

  return index < signals_sent->len ? g_array_index (signals_sent, int, index) : 0;
}

static void
test_stop_term (void)
{
  g_autoptr (VmmProcess) process = g_object_new (TEST_TYPE_PROCESS, NULL);
  g_autoptr (GError) error = NULL;
  TestAwait await = TEST_AWAIT_INIT;

  TEST_PROCESS (process)->ends_at = SIGTERM;
  vmm_process_stop_async (process, G_MAXUINT, NULL, test_await_cb, &await);
  g_assert_true (finish_stop (process, &await, &error));
  g_assert_no_error (error);
  g_assert_cmpint (sent (process, 0), ==, SIGTERM);
  g_assert_cmpint (sent (process, 1), ==, 0);

  /* What is gone already is stopped. */
  vmm_process_stop_async (process, 0, NULL, test_await_cb, &await);
  g_assert_true (finish_stop (process, &await, &error));
  g_assert_cmpint (sent (process, 1), ==, 0);
}

static void
test_stop_kill (void)
{
  g_autoptr (VmmProcess) process = g_object_new (TEST_TYPE_PROCESS, NULL);
  g_autoptr (VmmProcess) hurried = g_object_new (TEST_TYPE_PROCESS, NULL);
  g_autoptr (GError) error = NULL;
  TestAwait await = TEST_AWAIT_INIT;

  TEST_PROCESS (process)->ends_at = SIGKILL;
  vmm_process_stop_async (process, 1, NULL, test_await_cb, &await);
  g_assert_true (finish_stop (process, &await, &error));
  g_assert_cmpint (sent (process, 0), ==, SIGTERM);
  g_assert_cmpint (sent (process, 1), ==, SIGKILL);

  TEST_PROCESS (hurried)->ends_at = SIGKILL;
  vmm_process_stop_async (hurried, 0, NULL, test_await_cb, &await);
  g_assert_true (finish_stop (hurried, &await, &error));
  g_assert_cmpint (sent (hurried, 0), ==, SIGKILL);
}

static void
test_stop_timeout (void)
{
  g_autoptr (VmmProcess) process = g_object_new (TEST_TYPE_PROCESS, NULL);
  g_autoptr (GError) error = NULL;
  TestAwait await = TEST_AWAIT_INIT;

  vmm_process_stop_async (process, 0, NULL, test_await_cb, &await);
  g_assert_false (finish_stop (process, &await, &error));
  g_assert_error (error, VMM_ERROR, VMM_ERROR_TIMEOUT);
  g_assert_cmpuint (TEST_PROCESS (process)->signals_sent->len, ==, 1);
}

static void
test_stop_gone (void)
{
  g_autoptr (VmmProcess) process = g_object_new (TEST_TYPE_PROCESS, NULL);
  g_autoptr (GError) error = NULL;
  TestAwait await = TEST_AWAIT_INIT;

  /* It has ended, but nobody has noticed yet: the stop waits for the news. */
  TEST_PROCESS (process)->is_gone = TRUE;
  vmm_process_stop_async (process, G_MAXUINT, NULL, test_await_cb, &await);
  test_drain ();
  g_assert_null (await.result);
  end (process, 0, 0);
  g_assert_true (finish_stop (process, &await, &error));
}

static void
test_stop_forbidden (void)
{
  g_autoptr (VmmProcess) process = g_object_new (TEST_TYPE_PROCESS, NULL);
  g_autoptr (GError) error = NULL;
  TestAwait await = TEST_AWAIT_INIT;

  TEST_PROCESS (process)->forbidden = TRUE;
  vmm_process_stop_async (process, G_MAXUINT, NULL, test_await_cb, &await);
  g_assert_false (finish_stop (process, &await, &error));
  g_assert_error (error, VMM_ERROR, VMM_ERROR_INTERNAL);
}

static void
test_stop_cancel (void)
{
  g_autoptr (VmmProcess) process = g_object_new (TEST_TYPE_PROCESS, NULL);
  g_autoptr (GCancellable) cancellable = g_cancellable_new ();
  g_autoptr (GError) error = NULL;
  TestAwait await = TEST_AWAIT_INIT;
  TestAwait other = TEST_AWAIT_INIT;

  vmm_process_stop_async (process, G_MAXUINT, cancellable, test_await_cb, &await);
  vmm_process_stop_async (process, G_MAXUINT, NULL, test_await_cb, &other);
  test_drain ();
  g_cancellable_cancel (cancellable);
  g_assert_false (finish_stop (process, &await, &error));
  g_assert_error (error, G_IO_ERROR, G_IO_ERROR_CANCELLED);
  g_assert_false (vmm_process_has_exited (process));
  g_assert_null (other.result);
  g_clear_error (&error);

  /* The other one still waits, and nothing of the first is left. */
  end (process, 0, 0);
  g_assert_true (finish_stop (process, &other, &error));
  g_assert_cmpuint (TEST_PROCESS (process)->signals_sent->len, ==, 2);

  g_clear_object (&process);
  process = g_object_new (TEST_TYPE_PROCESS, NULL);
  vmm_process_stop_async (process, G_MAXUINT, cancellable, test_await_cb, &await);
  g_assert_false (finish_stop (process, &await, &error));
  g_assert_error (error, G_IO_ERROR, G_IO_ERROR_CANCELLED);
  g_assert_cmpuint (TEST_PROCESS (process)->signals_sent->len, ==, 0);
}

/* A child that waits for a signal; its name makes parsing /proc hard. */
static pid_t
fork_child (void)
{
  int fds[2];
  char byte;
  pid_t pid;

  g_assert_cmpint (pipe2 (fds, O_CLOEXEC), ==, 0);
  pid = fork ();
  g_assert_cmpint (pid, >=, 0);
  if (pid == 0)
    {
      prctl (PR_SET_PDEATHSIG, SIGKILL);
      prctl (PR_SET_NAME, "a) R 1 (b");
      if (write (fds[1], "x", 1) == 1)
        pause ();
      _exit (1);
    }
  close (fds[1]);
  g_assert_cmpint (read (fds[0], &byte, 1), ==, 1);
  close (fds[0]);
  return pid;
}

static void
test_real_process (void)
{
  pid_t pid = fork_child ();
  g_autoptr (VmmProcess) process = g_object_new (TEST_TYPE_PLAIN_PROCESS, NULL);
  g_autoptr (VmmProcess) other = g_object_new (TEST_TYPE_PLAIN_PROCESS, NULL);
  g_autoptr (VmmProcess) nameless = g_object_new (TEST_TYPE_PLAIN_PROCESS, NULL);
  g_autoptr (VmmProcessHandle) handle = NULL;
  g_autoptr (VmmProcessHandle) reused = NULL;
  g_autoptr (GError) error = NULL;
  VmmProcessUsage usage;
  guint64 start_time, own;
  int wait_status;

  g_assert_true (vmm_process_read_start_time (pid, &start_time));
  g_assert_true (vmm_process_read_start_time (getpid (), &own));
  g_assert_cmpuint (start_time, >=, own);
  handle = vmm_process_handle_new (NULL, pid, start_time, NULL);
  vmm_process_set_handle (process, handle);
  g_assert_true (vmm_process_get_usage (process, &usage));
  g_assert_cmpuint (usage.memory_bytes, >, 0);

  /* The same id with another start time is another process. */
  reused = vmm_process_handle_new (NULL, pid, start_time + 1, NULL);
  vmm_process_set_handle (other, reused);
  g_assert_false (vmm_process_get_usage (other, &usage));
  g_assert_cmpuint (usage.memory_bytes, ==, 0);
  g_assert_false (vmm_process_send_signal (other, SIGKILL, &error));
  g_assert_error (error, VMM_ERROR, VMM_ERROR_CONFLICT);
  g_clear_error (&error);
  g_assert_false (vmm_process_send_signal (nameless, SIGKILL, &error));
  g_assert_error (error, VMM_ERROR, VMM_ERROR_UNSUPPORTED);
  g_clear_error (&error);
  g_assert_cmpint (waitpid (pid, &wait_status, WNOHANG), ==, 0);

  g_assert_true (vmm_process_send_signal (process, SIGTERM, &error));
  g_assert_no_error (error);
  g_assert_cmpint (waitpid (pid, &wait_status, 0), ==, pid);
  g_assert_true (WIFSIGNALED (wait_status) && WTERMSIG (wait_status) == SIGTERM);

  g_assert_false (vmm_process_send_signal (process, SIGTERM, &error));
  g_assert_error (error, VMM_ERROR, VMM_ERROR_CONFLICT);
  g_assert_false (vmm_process_get_usage (process, &usage));
  g_assert_false (vmm_process_read_start_time (pid, &start_time));
  g_assert_false (vmm_process_read_usage (pid, &usage));
  vmm_process_set_handle (process, NULL);
  g_assert_null (vmm_process_get_handle (process));
}

static void
test_read_usage (void)
{
  VmmProcessUsage before, usage;
  guint64 start_time;

  g_assert_true (vmm_process_read_usage (getpid (), &before));
  g_assert_cmpuint (before.memory_bytes, >, 1 << 20);
  do
    g_assert_true (vmm_process_read_usage (getpid (), &usage));
  while (usage.cpu_usec <= before.cpu_usec);

  g_assert_false (vmm_process_read_usage (0, &usage));
  g_assert_false (vmm_process_read_usage (-1, &usage));
  g_assert_false (vmm_process_read_start_time (G_MAXINT64, &start_time));
  g_assert_cmpuint (start_time, ==, 0);
}

int
main (int argc, char **argv)
{
  g_test_init (&argc, &argv, G_TEST_OPTION_ISOLATE_DIRS, NULL);
  g_test_add_func ("/process/exit-text", test_exit_text);
  g_test_add_func ("/process/exit-from-wait", test_exit_from_wait);
  g_test_add_func ("/process/spec", test_spec);
  g_test_add_func ("/process/handle", test_handle);
  g_test_add_func ("/process/exited-once", test_exited_once);
  g_test_add_func ("/process/stop-term", test_stop_term);
  g_test_add_func ("/process/stop-kill", test_stop_kill);
  g_test_add_func ("/process/stop-timeout", test_stop_timeout);
  g_test_add_func ("/process/stop-gone", test_stop_gone);
  g_test_add_func ("/process/stop-forbidden", test_stop_forbidden);
  g_test_add_func ("/process/stop-cancel", test_stop_cancel);
  g_test_add_func ("/process/real", test_real_process);
  g_test_add_func ("/process/read-usage", test_read_usage);
  return g_test_run ();
}

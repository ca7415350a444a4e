/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* vmm-monitor: the witness beside one QEMU. Everything that needs more than the VM's folder is done
 * here, before the sandbox: the lock that keeps a second one out, and the listeners.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif

#include <glib.h>

#include "monitor-log.h"
#include "monitor-run.h"
#include "monitor-sandbox.h"
#include "monitor-socket.h"
#include "monitor-watch.h"

#define LOCK_FILE "monitor.lock"
#define LOCK_WAIT_SECONDS 3
#define CID_LEAST 3
#define CID_MOST 4294967294

enum
{
  EXIT_USAGE = 2,
};

typedef struct
{
  const char *directory;
  guint32 cid;
  guint32 notify_port;
  const char *vsock_socket;
} Options;

typedef struct
{
  GMainLoop *loop;
  int status;
} Process;

static void
print_help (void)
{
  fputs (
      "Usage: vmm-monitor --directory DIRECTORY --cid CID --notify-port PORT\n"
      "                   [--vsock-socket PATH]\n"
      "Watches one VM: keeps its console, hears that it is ready, writes down what happens.\n"
      "It is started by vm-manager and not meant to be started by hand.\n"
      "\n"
      "  --directory DIRECTORY  the VM's folder, with QEMU's console.sock and monitor-qmp.sock\n"
      "  --cid CID              the guest's vsock address, from 3 on\n"
      "  --notify-port PORT     the vsock port on which the guest says that it is ready\n"
      "  --vsock-socket PATH    of the program that is the VM's vsock device: guests'\n"
      "                         connections arrive at PATH_PORT instead\n"
      "  -h, --help             show this help and exit\n"
      "  -V, --version          show the version and exit\n"
      "\n"
      "Exit status: 0 when it was told to end (SIGTERM) or nobody needs it any more, 1 after an\n"
      "error, 2 for wrong usage.\n",
      stdout);
}

static gboolean
read_number (const char *name, const char *text, guint64 least, guint64 most, guint32 *number)
{
  guint64 value;

  if (g_ascii_string_to_unsigned (text, 10, least, most, &value, NULL))
    {
      *number = (guint32) value;
      return TRUE;
    }
  fprintf (stderr, "vmm-monitor: --%s must be a number from %llu to %llu\n", name,
           (unsigned long long) least, (unsigned long long) most);
  return FALSE;
}

static gboolean
take_option (Options *self, int option)
{
  switch (option)
    {
    case 'd':
      self->directory = optarg;
      return TRUE;
    case 'c':
      return read_number ("cid", optarg, CID_LEAST, CID_MOST, &self->cid);
    case 'p':
      return read_number ("notify-port", optarg, 1, G_MAXUINT32 - 1, &self->notify_port);
    case 's':
      self->vsock_socket = optarg;
      return TRUE;
    default:
      return FALSE;
    }
}

/* Returns the exit status when there is nothing to run, else -1. */
static int
read_options (Options *self, int argc, char **argv)
{
  static const struct option options[] = {
    { "directory", required_argument, NULL, 'd' },
    { "cid", required_argument, NULL, 'c' },
    { "notify-port", required_argument, NULL, 'p' },
    { "vsock-socket", required_argument, NULL, 's' },
    { "help", no_argument, NULL, 'h' },
    { "version", no_argument, NULL, 'V' },
    { NULL, 0, NULL, 0 },
  };
  int option;

  while ((option = getopt_long (argc, argv, "hV", options, NULL)) != -1)
    {
      if (option == 'h')
        print_help ();
      else if (option == 'V')
        puts ("vmm-monitor " MONITOR_VERSION);
      else if (take_option (self, option))
        continue;
      return option == 'h' || option == 'V' ? EXIT_SUCCESS : EXIT_USAGE;
    }
  if (self->directory != NULL && self->cid != 0 && self->notify_port != 0 && optind == argc)
    return -1;
  fputs ("vmm-monitor: it takes --directory, --cid and --notify-port; see vmm-monitor --help\n",
         stderr);
  return EXIT_USAGE;
}

static gboolean
fail (GError **error, const char *what, const char *subject)
{
  int code = errno;

  g_set_error (error, G_FILE_ERROR, (int) g_file_error_from_errno (code), "%s %s: %s", what,
               subject, g_strerror (code));
  return FALSE;
}

/* Nothing of whoever started it but the log. */
static gboolean
set_up_descriptors (GError **error)
{
  int null = open ("/dev/null", O_RDWR | O_CLOEXEC);

  if (null < 0 || dup2 (null, STDIN_FILENO) < 0 || dup2 (null, STDOUT_FILENO) < 0
      || (fcntl (STDERR_FILENO, F_GETFD) < 0 && dup2 (null, STDERR_FILENO) < 0))
    return fail (error, "open", "/dev/null");
  if (close_range (STDERR_FILENO + 1, ~0U, 0) < 0)
    return fail (error, "close", "inherited descriptors");
  return TRUE;
}

static void
alarm_cb (int signal_number)
{
}

/* An earlier one sees that its socket was removed and leaves; it is waited for, a little. */
static gboolean
take_lock (const Options *options, GError **error)
{
  struct sigaction action = { .sa_handler = alarm_cb };
  int fd = open (LOCK_FILE, O_RDONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
  gboolean done;
  int code;

  if (fd < 0)
    return fail (error, "open", LOCK_FILE);
  if (flock (fd, LOCK_EX | LOCK_NB) == 0)
    return TRUE;
  sigaction (SIGALRM, &action, NULL);
  alarm (LOCK_WAIT_SECONDS);
  done = flock (fd, LOCK_EX) == 0;
  code = errno;
  alarm (0);
  signal (SIGALRM, SIG_DFL);
  if (done)
    return TRUE;
  if (code == EINTR)
    g_set_error (error, G_FILE_ERROR, G_FILE_ERROR_AGAIN,
                 "already running: another vmm-monitor holds %s/" LOCK_FILE, options->directory);
  errno = code;
  return code == EINTR ? FALSE : fail (error, "lock", LOCK_FILE);
}

/* Where the guest's connections arrive when a program is its vsock device; NULL when the kernel is.
 */
static char *
find_notify_path (const Options *options)
{
  g_autofree char *path = NULL;

  if (options->vsock_socket == NULL)
    return NULL;
  path = g_strdup_printf ("%s_%u", options->vsock_socket, options->notify_port);
  /* Which may begin where this was started. */
  return g_canonicalize_filename (path, NULL);
}

static int
listen_for_guest (const Options *options, const char *path, GError **error)
{
  return path != NULL ? monitor_socket_listen (path, error)
                      : monitor_socket_listen_vsock (options->notify_port, error);
}

/* The folder's own sockets are named without it: a path is as long as it is, a socket's name is
 * not. */
static gboolean
prepare (const Options *options, const char *notify_path, MonitorRunConfig *config, GError **error)
{
  if (!set_up_descriptors (error))
    return FALSE;
  if (chdir (options->directory) < 0)
    return fail (error, "enter", options->directory);
  if (!take_lock (options, error))
    return FALSE;
  config->directory_fd = open (".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (config->directory_fd < 0)
    return fail (error, "open", options->directory);
  config->notify_cid = notify_path == NULL ? options->cid : 0;
  config->notify_listener = listen_for_guest (options, notify_path, error);
  if (config->notify_listener < 0)
    return FALSE;
  config->attach_listener = monitor_socket_listen (MONITOR_ATTACH_SOCKET, error);
  if (config->attach_listener < 0)
    return FALSE;
  config->door_listener = monitor_socket_listen (MONITOR_DOOR_SOCKET, error);
  return config->door_listener >= 0;
}

static void
signal_cb (GIOCondition condition, gpointer user_data)
{
  Process *process = user_data;

  g_main_loop_quit (process->loop);
}

static void
done_cb (const char *error, gpointer user_data)
{
  Process *process = user_data;

  if (error != NULL)
    {
      monitor_log ("%s", error);
      process->status = EXIT_FAILURE;
    }
  g_main_loop_quit (process->loop);
}

static void
set_up_signals (sigset_t *signals)
{
  sigemptyset (signals);
  sigaddset (signals, SIGTERM);
  sigaddset (signals, SIGINT);
  sigaddset (signals, SIGHUP);
  sigprocmask (SIG_SETMASK, signals, NULL);
  signal (SIGPIPE, SIG_IGN);
  signal (SIGXFSZ, SIG_IGN);
}

/* It is there once for each VM. */
static void
set_up_memory (void)
{
#ifdef __GLIBC__
  mallopt (M_ARENA_MAX, 1);
  mallopt (M_MMAP_THRESHOLD, 65536);
  mallopt (M_TOP_PAD, 32768);
  mallopt (M_TRIM_THRESHOLD, 65536);
#endif
}

static void
run_loop (Process *process, int signal_fd)
{
  MonitorWatch *watch = monitor_watch_new (signal_fd, G_IO_IN, signal_cb, process);

  g_main_loop_run (process->loop); /* nocheck: this program's own */
  monitor_watch_free (watch);
}

static int
run (const Options *options)
{
  g_autofree char *notify_path = find_notify_path (options);
  g_autoptr (GError) error = NULL;
  MonitorRunConfig config = { 0 };
  Process process = { .status = EXIT_SUCCESS };
  MonitorRun *monitor = NULL;
  time_t now = time (NULL);
  struct tm fields;
  sigset_t signals;
  int signal_fd;

  set_up_signals (&signals);
  gmtime_r (&now, &fields); /* reads what it reads once */
  if (!prepare (options, notify_path, &config, &error))
    {
      monitor_log ("%s", error->message);
      return EXIT_FAILURE;
    }
  /* Not before inherited descriptors are closed: it has one of its own. */
  process.loop = g_main_loop_new (NULL, FALSE);
  if (!monitor_sandbox_begin (&error) || !monitor_sandbox_restrict_files (&error))
    {
      monitor_log ("%s", error->message);
      return EXIT_FAILURE;
    }
  signal_fd = signalfd (-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
  if (signal_fd >= 0)
    monitor = monitor_run_new (&config, done_cb, &process);
  if (monitor == NULL)
    monitor_log ("start: %s", g_strerror (errno));
  else if (monitor_sandbox_restrict_calls (&error))
    run_loop (&process, signal_fd);
  else
    monitor_log ("%s", error->message);
  /* One that is in another folder stays: the sandbox is in force. */
  if (notify_path != NULL)
    unlink (notify_path);
  unlink (MONITOR_ATTACH_SOCKET);
  unlink (MONITOR_DOOR_SOCKET);
  if (monitor == NULL || error != NULL)
    return EXIT_FAILURE;
  return process.status;
}

int
main (int argc, char **argv)
{
  Options options = { NULL };
  int status = read_options (&options, argc, argv);

  if (status >= 0)
    return status;
  umask (0077);
  set_up_memory ();
  status = run (&options);
  /* Not through the C library's last rites: they would want files. */
  _exit (status);
}

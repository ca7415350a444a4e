/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * vmm-netd DIRECTORY: carries the packets of the network whose netd.json is in DIRECTORY.
 *
 * Everything that needs the file system is done here, by one process of one thread: the lock that
 * keeps a second one out, the control socket, the page of counters. Then it becomes two, the warden
 * and the sandboxed switch.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif

#include <gio/gio.h>

#include "netd-config.h"
#include "netd-counters.h"
#include "netd-sandbox.h"
#include "netd-switch-process.h"
#include "netd-warden.h"

#define LOCK_FILE "netd.lock"
#define LOCK_WAIT_SECONDS 3
#define CONTROL_BACKLOG 16
#define DESCRIPTORS_MAX 65536

enum
{
  EXIT_USAGE = 2,
};

/* What is made before the fork. */
typedef struct
{
  char *directory;
  NetdConfig *config;
  int lock;
  int listener;
  NetdCounters *counters;
  int counters_fd;
  int channel[2]; /* the warden's, the switch's */
} Process;

static gboolean
fail (GError **error, const char *what, const char *subject)
{
  int code = errno;

  g_set_error (error, G_IO_ERROR, g_io_error_from_errno (code), "%s %s: %s", what, subject,
               g_strerror (code));
  return FALSE;
}

/* --- Log --- */

static char *log_prefix;

/* One write a line, without a clock or a colour: whoever started this knows when it came. */
static GLogWriterOutput
write_log (GLogLevelFlags level, const GLogField *fields, gsize n_fields, gpointer user_data)
{
  g_autofree char *line = NULL;
  const char *text = NULL;

  if ((level & (G_LOG_LEVEL_INFO | G_LOG_LEVEL_DEBUG)) != 0)
    return G_LOG_WRITER_HANDLED;
  for (gsize i = 0; i < n_fields; i++)
    if (g_str_equal (fields[i].key, "MESSAGE"))
      text = fields[i].value;
  line = g_strdup_printf ("%s%s\n", log_prefix, text == NULL ? "?" : text);
  if (write (STDERR_FILENO, line, strlen (line)) < 0)
    return G_LOG_WRITER_UNHANDLED;
  return G_LOG_WRITER_HANDLED;
}

static void
set_log_prefix (const char *network)
{
  g_free (log_prefix);
  log_prefix = network == NULL ? g_strdup ("vmm-netd: ")
                               : g_strdup_printf ("vmm-netd: network %s: ", network);
}

/* --- The process --- */

/* Nothing of whoever started it but the log. */
static gboolean
set_up_descriptors (GError **error)
{
  struct rlimit limit;
  int null = open ("/dev/null", O_RDWR | O_CLOEXEC);

  if (null < 0 || dup2 (null, STDIN_FILENO) < 0 || dup2 (null, STDOUT_FILENO) < 0
      || (fcntl (STDERR_FILENO, F_GETFD) < 0 && dup2 (null, STDERR_FILENO) < 0))
    return fail (error, "open", "/dev/null");
  if (close_range (STDERR_FILENO + 1, ~0U, 0) < 0)
    return fail (error, "close", "inherited descriptors");
  if (getrlimit (RLIMIT_NOFILE, &limit) < 0)
    return fail (error, "read", "the limit of descriptors");
  limit.rlim_cur = MIN (limit.rlim_max, DESCRIPTORS_MAX);
  if (setrlimit (RLIMIT_NOFILE, &limit) < 0)
    return fail (error, "set", "the limit of descriptors");
  return TRUE;
}

/* Buffers of flows come and go: they shall go back to the system, each by itself. */
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

/* Told to end while it starts, it is told as soon as the warden listens. */
static void
set_up_signals (void)
{
  sigset_t held;

  sigemptyset (&held);
  sigaddset (&held, SIGTERM);
  sigaddset (&held, SIGINT);
  sigaddset (&held, SIGHUP);
  sigprocmask (SIG_SETMASK, &held, NULL);
  signal (SIGPIPE, SIG_IGN);
  signal (SIGCHLD, SIG_DFL);
}

/* --- The lock --- */

static void
alarm_cb (int signal_number)
{
}

/* Held by both halves for as long as they are. One that was killed leaves a sandboxed half that is
 * about to end but still holds ports of the host, so it is waited for, a little. */
static gboolean
take_lock (Process *self, GError **error)
{
  struct sigaction action = { .sa_handler = alarm_cb };
  g_autofree char *path = g_build_filename (self->directory, LOCK_FILE, NULL);
  gboolean done;
  int code;

  /* Not to write to: the sandboxed half keeps it. */
  self->lock = open (path, O_RDONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
  if (self->lock < 0)
    return fail (error, "open", path);
  if (flock (self->lock, LOCK_EX | LOCK_NB) == 0)
    return TRUE;
  sigaction (SIGALRM, &action, NULL);
  alarm (LOCK_WAIT_SECONDS);
  done = flock (self->lock, LOCK_EX) == 0;
  code = errno;
  alarm (0);
  signal (SIGALRM, SIG_DFL);
  if (done)
    return TRUE;
  if (code == EINTR)
    g_set_error (error, G_IO_ERROR, G_IO_ERROR_BUSY,
                 "already running: another vmm-netd holds %s", path);
  errno = code;
  return code == EINTR ? FALSE : fail (error, "lock", path);
}

/* --- The control socket --- */

/* The lock says that nobody is there, unless somebody removed its file. */
static gboolean
clear_path (const char *path, GError **error)
{
  struct sockaddr_un address = { .sun_family = AF_UNIX };
  struct stat status;
  gboolean is_served;
  int fd;

  if (lstat (path, &status) < 0)
    return errno == ENOENT || fail (error, "look at", path);
  if (!S_ISSOCK (status.st_mode))
    {
      g_set_error (error, G_IO_ERROR, G_IO_ERROR_EXISTS,
                   "%s is there and is no socket: remove it if it is not needed", path);
      return FALSE;
    }
  fd = socket (AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0)
    return fail (error, "make a socket for", path);
  g_strlcpy (address.sun_path, path, sizeof address.sun_path);
  is_served = connect (fd, (struct sockaddr *) &address, sizeof address) == 0 || errno == EAGAIN;
  close (fd);
  if (is_served)
    {
      g_set_error (error, G_IO_ERROR, G_IO_ERROR_BUSY, "already running: %s is served", path);
      return FALSE;
    }
  return unlink (path) == 0 || fail (error, "remove", path);
}

static gboolean
listen_for_control (Process *self, GError **error)
{
  struct sockaddr_un address = { .sun_family = AF_UNIX };
  g_autofree char *path = g_build_filename (self->directory, NETD_CONTROL_SOCKET, NULL);

  if (g_strlcpy (address.sun_path, path, sizeof address.sun_path) >= sizeof address.sun_path)
    {
      g_set_error (error, G_IO_ERROR, G_IO_ERROR_FILENAME_TOO_LONG,
                   "%s is longer than the 107 bytes of a socket's path", path);
      return FALSE;
    }
  if (!clear_path (path, error))
    return FALSE;
  self->listener = socket (AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (self->listener < 0)
    return fail (error, "make a socket for", path);
  /* Nobody can connect before listen(). */
  if (bind (self->listener, (struct sockaddr *) &address, sizeof address) < 0
      || chmod (path, 0600) < 0 || listen (self->listener, CONTROL_BACKLOG) < 0)
    return fail (error, "listen on", path);
  return TRUE;
}

/* --- Start --- */

static gboolean
prepare (Process *self, const char *directory, GError **error)
{
  char *resolved = realpath (directory, NULL);

  if (resolved == NULL)
    return fail (error, "find", directory);
  self->directory = g_strdup (resolved);
  free (resolved);
  if (!take_lock (self, error))
    return FALSE;
  self->config = netd_config_read (self->directory, error);
  if (self->config == NULL)
    return FALSE;
  set_log_prefix (self->config->plan.name);
  if (!listen_for_control (self, error))
    return FALSE;
  self->counters = netd_counters_new_shared (&self->counters_fd, error);
  if (self->counters == NULL)
    return FALSE;
  if (socketpair (AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, self->channel) < 0)
    return fail (error, "make a channel for", "the sandbox");
  return TRUE;
}

/* Ends without the C library's last rites: they would want files. */
static G_NORETURN void
run_switch (Process *self)
{
  g_autoptr (GError) error = NULL;
  int status = EXIT_FAILURE;

  close (self->channel[0]);
  if (netd_sandbox_enter (&error))
    status = netd_switch_run (self->config, self->listener, self->channel[1], self->counters,
                              self->counters_fd);
  else
    g_warning ("%s", error->message);
  _exit (status);
}

static int
run (const char *directory)
{
  Process process = { 0 };
  g_autoptr (GError) error = NULL;
  pid_t child;

  if (!set_up_descriptors (&error) || !prepare (&process, directory, &error))
    {
      g_warning ("%s", error->message);
      return EXIT_FAILURE;
    }
  /* What is seeded from a file has to be seeded while there are files. */
  g_random_int ();
  child = netd_sandbox_fork (&error);
  if (child < 0)
    {
      g_warning ("%s", error->message);
      return EXIT_FAILURE;
    }
  if (child == 0)
    run_switch (&process);

  close (process.channel[1]);
  close (process.listener);
  close (process.counters_fd);
  netd_config_free (process.config);
  return netd_warden_run (process.directory, process.channel[0], child);
}

static void
print_help (FILE *stream)
{
  fputs ("Usage: vmm-netd DIRECTORY\n"
         "Carries the packets of one network, as DIRECTORY/" NETD_CONFIG_FILE " says.\n"
         "It is started by the network plugin of vm-manager and not meant to be started by hand.\n"
         "\n"
         "  -h, --help     show this help and exit\n"
         "  -V, --version  show the version and exit\n"
         "\n"
         "Exit status: 0 when it was told to end (SIGTERM), 1 after an error, 2 for wrong usage.\n"
         "Environment: " NETD_RESOLV_CONF_VARIABLE " names another file than /etc/resolv.conf.\n",
         stream);
}

int
main (int argc, char **argv)
{
  static const struct option options[] = {
    { "help", no_argument, NULL, 'h' },
    { "version", no_argument, NULL, 'V' },
    { NULL, 0, NULL, 0 },
  };
  int option = getopt_long (argc, argv, "hV", options, NULL);

  if (option == 'h')
    {
      print_help (stdout);
      return EXIT_SUCCESS;
    }
  if (option == 'V')
    {
      puts ("vmm-netd " NETD_VERSION);
      return EXIT_SUCCESS;
    }
  if (option != -1 || argc - optind != 1)
    {
      fputs ("vmm-netd: it takes one argument, the directory of a network; see vmm-netd --help\n",
             stderr);
      return EXIT_USAGE;
    }
  umask (0077);
  set_up_signals ();
  set_up_memory ();
  set_log_prefix (NULL);
  g_log_set_writer_func (write_log, NULL, NULL);
  /* Not through the C library's last rites, here as there. */
  _exit (run (argv[optind]));
}

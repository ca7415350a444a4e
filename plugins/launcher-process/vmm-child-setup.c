/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What is made ready before a child is forked.
 *
 * A VmmChildSetup is a copy of what a VmmProcessSpec asks for, in the form that the child needs. It
 * is made on the main thread; then a worker looks for the program and opens the log, which may wait
 * for a slow disk; then the main thread forks.
 *
 * Children inherit the daemon's environment without its secrets and without what a service manager
 * said to the daemon alone: a guest that breaks out into QEMU must not find a token there.
 */

#include "vmm-child-setup.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "interfaces/vmm-error.h"

#define LOG_MODE 0600
#define LOG_FOLDER_MODE 0750

static const char *const private_names[] = {
  "NOTIFY_SOCKET",
  "JOURNAL_STREAM",
  "INVOCATION_ID",
  "MAINPID",
  "MANAGERPID",
  "SYSTEMD_EXEC_PID",
  NULL,
};
static const char *const session_names[] = { "XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS", NULL };
static const char *const private_prefixes[] = { "VM_MANAGER_", "LISTEN_", "WATCHDOG_", NULL };
static const char *const private_words[]
    = { "SECRET", "TOKEN", "PASSWORD", "PASSWD", "CREDENTIAL", "API_KEY", NULL };

static gboolean
is_private (const char *name)
{
  g_autofree char *upper = g_ascii_strup (name, -1);

  if (g_strv_contains (private_names, upper))
    return TRUE;
  for (guint i = 0; private_prefixes[i] != NULL; i++)
    if (g_str_has_prefix (upper, private_prefixes[i]))
      return TRUE;
  for (guint i = 0; private_words[i] != NULL; i++)
    if (strstr (upper, private_words[i]) != NULL)
      return TRUE;
  return FALSE;
}

/* What belongs to the session of the daemon's own user means nothing to another one. */
static GStrv
inherited_environment (gboolean for_another_user)
{
  g_auto (GStrv) all = g_get_environ ();
  GPtrArray *kept = g_ptr_array_new ();

  for (guint i = 0; all[i] != NULL; i++)
    {
      g_autofree char *name = g_strndup (all[i], strcspn (all[i], "="));

      if (!is_private (name) && !(for_another_user && g_strv_contains (session_names, name)))
        g_ptr_array_add (kept, g_strdup (all[i]));
    }
  g_ptr_array_add (kept, NULL);
  return (GStrv) g_ptr_array_free (kept, FALSE);
}

static GStrv
set_all (GStrv environment, const char *const *assignments)
{
  for (guint i = 0; assignments != NULL && assignments[i] != NULL; i++)
    {
      const char *value = strchr (assignments[i], '=');
      g_autofree char *name = NULL;

      if (value == NULL)
        continue;
      name = g_strndup (assignments[i], (gsize) (value - assignments[i]));
      environment = g_environ_setenv (environment, name, value + 1, TRUE);
    }
  return environment;
}

/* Appends LISTEN_PID with room for the number, which only the child knows. */
static void
add_listen_pid (VmmChildPlan *plan)
{
  static const char name[] = "LISTEN_PID=";
  guint n = g_strv_length (plan->environment);
  char *entry = g_malloc0 (sizeof name + VMM_CHILD_PID_DIGITS);

  memcpy (entry, name, sizeof name);
  plan->environment = g_renew (char *, plan->environment, n + 2);
  plan->environment[n] = entry;
  plan->environment[n + 1] = NULL;
  plan->listen_pid = entry + sizeof name - 1;
}

static void
add_fds (VmmChildPlan *plan, VmmProcessSpec *spec)
{
  g_autoptr (GString) names = g_string_new (NULL);
  g_autofree char *count = NULL;

  plan->n_fds = vmm_process_spec_get_n_fds (spec);
  if (plan->n_fds == 0)
    return;

  plan->fds = g_new (int, plan->n_fds);
  for (guint i = 0; i < plan->n_fds; i++)
    {
      const char *name = NULL;

      plan->fds[i] = vmm_process_spec_get_fd (spec, i, &name);
      if (i > 0)
        g_string_append_c (names, ':');
      g_string_append (names, name != NULL ? name : "unknown");
    }
  count = g_strdup_printf ("%u", plan->n_fds);
  plan->environment = g_environ_setenv (plan->environment, "LISTEN_FDS", count, TRUE);
  plan->environment = g_environ_setenv (plan->environment, "LISTEN_FDNAMES", names->str, TRUE);
  add_listen_pid (plan);
}

/* identity may be NULL; identity_environment describes it to the program. The descriptors of spec
 * are used, so that it has to be kept until the fork. */
VmmChildSetup *
vmm_child_setup_new (VmmProcessSpec *spec, const VmmChildIdentity *identity,
                     const char *const *identity_environment)
{
  VmmChildSetup *self = g_new0 (VmmChildSetup, 1);
  VmmChildPlan *plan = &self->plan;

  plan->argv = g_strdupv ((GStrv) vmm_process_spec_get_argv (spec));
  plan->directory = g_strdup (vmm_process_spec_get_directory (spec));
  plan->null_fd = -1;
  plan->log_fd = -1;
  plan->deny_io_uring = (vmm_process_spec_get_flags (spec) & VMM_PROCESS_DENY_IO_URING) != 0;
  plan->identity = identity;
  plan->environment = set_all (inherited_environment (identity != NULL), identity_environment);
  plan->environment = set_all (plan->environment, vmm_process_spec_get_environment (spec));
  add_fds (plan, spec);
  self->program = g_strdup (plan->argv[0]);
  self->log = g_strdup (vmm_process_spec_get_log (spec));
  return self;
}

void
vmm_child_setup_free (VmmChildSetup *self)
{
  VmmChildPlan *plan = &self->plan;

  if (plan->null_fd >= 0)
    close (plan->null_fd);
  if (plan->log_fd >= 0)
    close (plan->log_fd);
  g_free ((char *) plan->path);
  g_free ((char *) plan->directory);
  g_strfreev (plan->argv);
  g_strfreev (plan->environment);
  g_free (plan->fds);
  g_free (self->program);
  g_free (self->log);
  g_free (self);
}

static gboolean
is_program (const char *path)
{
  struct stat status;

  return stat (path, &status) == 0 && S_ISREG (status.st_mode) && access (path, X_OK) == 0;
}

/* A name without a slash is looked up on the child's PATH; a relative path is one of the daemon's
 * directory, wherever the child will be. */
static gboolean
find_program (VmmChildSetup *self, GError **error)
{
  const char *path = g_environ_getenv (self->plan.environment, "PATH");
  g_auto (GStrv) folders = NULL;

  if (strchr (self->program, '/') != NULL)
    {
      self->plan.path = g_canonicalize_filename (self->program, NULL);
      return TRUE;
    }

  folders = g_strsplit (path != NULL ? path : "/usr/local/bin:/usr/bin:/bin", ":", -1);
  for (guint i = 0; folders[i] != NULL; i++)
    {
      g_autofree char *candidate = NULL;

      if (folders[i][0] != '/')
        continue;
      candidate = g_build_filename (folders[i], self->program, NULL);
      if (!is_program (candidate))
        continue;
      self->plan.path = g_steal_pointer (&candidate);
      return TRUE;
    }
  vmm_set_error (error, VMM_ERROR_INTERNAL, "executable file not found in $PATH");
  return FALSE;
}

/* A FIFO would block and a device could do anything, so that only a regular file will do. */
static int
open_log (const char *path)
{
  g_autofree char *folder = g_path_get_dirname (path);
  struct stat status;
  int fd;

  if (g_mkdir_with_parents (folder, LOG_FOLDER_MODE) != 0)
    return -1;
  fd = open (path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NOFOLLOW | O_NONBLOCK,
             LOG_MODE);
  if (fd < 0)
    return -1;
  if (fstat (fd, &status) == 0 && S_ISREG (status.st_mode) && fcntl (fd, F_SETFL, O_APPEND) == 0)
    return fd;

  close (fd);
  errno = EINVAL;
  return -1;
}

static gboolean
open_files (VmmChildSetup *self, GError **error)
{
  g_autofree char *why = NULL;

  self->plan.null_fd = open ("/dev/null", O_RDWR | O_CLOEXEC);
  if (self->plan.null_fd < 0)
    {
      why = vmm_child_error_text (errno);
      vmm_set_error (error, VMM_ERROR_INTERNAL, "open /dev/null: %s", why);
      return FALSE;
    }

  self->plan.log_fd
      = self->log != NULL ? open_log (self->log) : fcntl (self->plan.null_fd, F_DUPFD_CLOEXEC, 0);
  if (self->plan.log_fd >= 0)
    return TRUE;

  why = vmm_child_error_text (errno);
  vmm_set_error (error, VMM_ERROR_INTERNAL, "open log %s: %s",
                 self->log != NULL ? self->log : "/dev/null", why);
  return FALSE;
}

gboolean
vmm_child_setup_prepare (VmmChildSetup *self, GError **error)
{
  return find_program (self, error) && open_files (self, error);
}

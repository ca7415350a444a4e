/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Runs processes as plain children of the daemon.
 *
 * The launcher that always works: no service manager, no container tool. The price is that its
 * processes end with the daemon (the kernel kills them with its main thread), so that nothing can
 * be found again by a later daemon.
 *
 * A start has three parts: a worker looks for the program and opens the log, the main thread forks,
 * and the pipe of the child is watched until it says that the program runs or why it does not. A
 * child that failed, or whose start was cancelled, has been reaped before the start returns.
 */

#include <errno.h>
#include <grp.h>
#include <pwd.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <glib-unix.h>

#include "interfaces/vmm.h"
#include "vmm-child-process.h"
#include "vmm-child-setup.h"
#include "vmm-child.h"

#define VMM_TYPE_LAUNCHER_PROCESS (vmm_launcher_process_get_type ())
G_DECLARE_FINAL_TYPE (VmmLauncherProcess, vmm_launcher_process, VMM, LAUNCHER_PROCESS, GObject)

#define MAX_GROUPS 65536
#define REATTACH_TEXT "launcher cannot reattach processes"

struct _VmmLauncherProcess
{
  GObject parent_instance;

  /* Of the daemon when this object was made; the daemon raises its own afterwards. */
  guint64 soft_nofile;
  gboolean drops_identity;
  VmmChildIdentity identity;
  GStrv identity_environment;
  char *runs_as;
  char *runs_as_reason;
  GHashTable *starting; /* set of ids */
  GHashTable *running;  /* id to VmmProcess */
};

static void vmm_launcher_process_backend_init (VmmBackendInterface *iface);
static void vmm_launcher_process_launcher_init (VmmLauncherInterface *iface);

G_DEFINE_FINAL_TYPE_WITH_CODE (VmmLauncherProcess, vmm_launcher_process, G_TYPE_OBJECT,
                               G_IMPLEMENT_INTERFACE (VMM_TYPE_BACKEND,
                                                      vmm_launcher_process_backend_init)
                                   G_IMPLEMENT_INTERFACE (VMM_TYPE_LAUNCHER,
                                                          vmm_launcher_process_launcher_init))

/* One pending start. */
typedef struct
{
  VmmLauncherProcess *launcher;
  VmmProcessSpec *spec; /* keeps the descriptors open */
  VmmChildSetup *setup;
  VmmChildProcess *process;
  int report_fd;
  GSource *report_source;
  GSource *cancel_source;
  GError *error; /* returned when the child has been reaped */
} Start;

static void
clear_source (GSource **source)
{
  if (*source == NULL)
    return;
  g_source_destroy (*source);
  g_clear_pointer (source, g_source_unref);
}

/* Before a start returns: whoever is called may start the same id again. */
static void
settle (Start *start)
{
  clear_source (&start->report_source);
  clear_source (&start->cancel_source);
  if (start->launcher != NULL)
    g_hash_table_remove (start->launcher->starting, vmm_process_spec_get_id (start->spec));
  g_clear_object (&start->launcher);
}

static void
start_free (Start *start)
{
  settle (start);
  if (start->report_fd >= 0)
    close (start->report_fd);
  g_clear_pointer (&start->setup, vmm_child_setup_free);
  g_clear_pointer (&start->spec, vmm_process_spec_unref);
  g_clear_object (&start->process);
  g_clear_error (&start->error);
  g_free (start);
}

/* Says which program it was. */
static void
return_start_error (GTask *task, GError *error)
{
  Start *start = g_task_get_task_data (task);

  settle (start);
  if (!g_error_matches (error, G_IO_ERROR, G_IO_ERROR_CANCELLED))
    g_prefix_error (&error, "%s: ", start->setup->program);
  g_task_return_error (task, error);
}

static void
process_exited_cb (VmmProcess *process, const VmmExitStatus *status, const char *text,
                   VmmLauncherProcess *self)
{
  GHashTableIter iter;
  gpointer value;

  g_hash_table_iter_init (&iter, self->running);
  while (g_hash_table_iter_next (&iter, NULL, &value))
    if (value == process)
      g_hash_table_iter_remove (&iter);
}

static void
failed_child_exited_cb (VmmProcess *process, const VmmExitStatus *status, const char *text,
                        gpointer user_data)
{
  g_autoptr (GTask) task = user_data;
  Start *start = g_task_get_task_data (task);

  g_signal_handlers_disconnect_by_func (process, failed_child_exited_cb, user_data);
  return_start_error (task, g_steal_pointer (&start->error));
}

/* Takes the task and the error: ends the child and returns the error once it has gone. */
static void
give_up (GTask *task, GError *error)
{
  Start *start = g_task_get_task_data (task);

  clear_source (&start->report_source);
  clear_source (&start->cancel_source);
  start->error = error;
  g_signal_connect (start->process, "exited", G_CALLBACK (failed_child_exited_cb), task);
  /* It may have ended already. */
  vmm_process_send_signal (VMM_PROCESS (start->process), SIGKILL, NULL);
  vmm_child_process_watch (start->process);
}

static gboolean
start_cancelled_cb (GCancellable *cancellable, gpointer user_data)
{
  give_up (user_data,
           g_error_new_literal (G_IO_ERROR, G_IO_ERROR_CANCELLED, "start was cancelled"));
  return G_SOURCE_REMOVE;
}

static gboolean
report_cb (int fd, GIOCondition condition, gpointer user_data)
{
  g_autofree char *reason = NULL;
  g_autoptr (GTask) task = NULL;
  VmmLauncherProcess *self;
  Start *start;

  if (!vmm_child_read_report (fd, &reason))
    return G_SOURCE_CONTINUE;
  if (reason != NULL)
    {
      give_up (user_data, vmm_error_new (VMM_ERROR_INTERNAL, "%s", reason));
      return G_SOURCE_REMOVE;
    }

  task = user_data;
  self = g_task_get_source_object (task);
  start = g_task_get_task_data (task);
  settle (start);
  /* It runs: from here on the cancellable has nothing to say any more. */
  g_task_set_check_cancellable (task, FALSE);
  g_hash_table_insert (self->running, g_strdup (vmm_process_spec_get_id (start->spec)),
                       g_object_ref (start->process));
  g_signal_connect_object (start->process, "exited", G_CALLBACK (process_exited_cb), self, 0);
  vmm_child_process_watch (start->process);
  g_task_return_pointer (task, g_steal_pointer (&start->process), g_object_unref);
  return G_SOURCE_REMOVE;
}

/* Takes the task. */
static void
wait_for_exec (GTask *task)
{
  Start *start = g_task_get_task_data (task);
  GCancellable *cancellable = g_task_get_cancellable (task);

  start->report_source = g_unix_fd_source_new (start->report_fd, G_IO_IN | G_IO_HUP | G_IO_ERR);
  g_source_set_callback (start->report_source, G_SOURCE_FUNC (report_cb), task, NULL);
  g_source_attach (start->report_source, NULL);
  if (cancellable == NULL)
    return;

  start->cancel_source = g_cancellable_source_new (cancellable);
  g_source_set_callback (start->cancel_source, G_SOURCE_FUNC (start_cancelled_cb), task, NULL);
  g_source_attach (start->cancel_source, NULL);
}

static void
prepared_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  g_autoptr (GTask) task = user_data;
  Start *start = g_task_get_task_data (task);
  VmmLauncherProcess *self = VMM_LAUNCHER_PROCESS (source);
  VmmChild child = { .pidfd = -1, .report_fd = -1 };
  GError *error = NULL;

  if (!g_task_propagate_boolean (G_TASK (result), &error))
    {
      return_start_error (task, error);
      return;
    }
  if (g_cancellable_set_error_if_cancelled (g_task_get_cancellable (task), &error))
    {
      return_start_error (task, error);
      return;
    }

  start->setup->plan.soft_nofile = self->soft_nofile;
  if (!vmm_child_fork (&start->setup->plan, &child, &error))
    {
      return_start_error (task, error);
      return;
    }
  start->report_fd = child.report_fd;
  start->process = vmm_child_process_new (child.pid, child.pidfd);
  wait_for_exec (g_steal_pointer (&task));
}

static void
prepare_in_thread (GTask *task, gpointer source, gpointer task_data, GCancellable *cancellable)
{
  GError *error = NULL;

  if (vmm_child_setup_prepare (task_data, &error))
    g_task_return_boolean (task, TRUE);
  else
    g_task_return_error (task, error);
}

/* Two processes of one id would be two QEMUs on one disk. */
static GError *
check_id_is_free (VmmLauncherProcess *self, VmmProcessSpec *spec)
{
  const char *id = vmm_process_spec_get_id (spec);
  const char *program = vmm_process_spec_get_argv (spec)[0];
  VmmProcess *running = g_hash_table_lookup (self->running, id);

  if (running != NULL)
    return vmm_error_new (VMM_ERROR_CONFLICT,
                          "start %s: %s is already running (pid %" G_GINT64_FORMAT ")", program, id,
                          vmm_process_handle_get_pid (vmm_process_get_handle (running)));
  if (g_hash_table_contains (self->starting, id))
    return vmm_error_new (VMM_ERROR_CONFLICT, "start %s: %s is already being started", program, id);
  return NULL;
}

static void
vmm_launcher_process_start_async (VmmLauncher *launcher, VmmProcessSpec *spec,
                                  GCancellable *cancellable, GAsyncReadyCallback callback,
                                  gpointer user_data)
{
  VmmLauncherProcess *self = VMM_LAUNCHER_PROCESS (launcher);
  g_autoptr (GTask) task = g_task_new (self, cancellable, callback, user_data);
  g_autoptr (GTask) preparation = NULL;
  GError *error = check_id_is_free (self, spec);
  Start *start;

  g_task_set_source_tag (task, vmm_launcher_process_start_async);
  if (error != NULL)
    {
      g_task_return_error (task, error);
      return;
    }
  if (g_task_return_error_if_cancelled (task))
    return;

  start = g_new0 (Start, 1);
  start->launcher = g_object_ref (self);
  start->spec = vmm_process_spec_ref (spec);
  start->report_fd = -1;
  start->setup = vmm_child_setup_new (spec, self->drops_identity ? &self->identity : NULL,
                                      (const char *const *) self->identity_environment);
  g_hash_table_add (self->starting, g_strdup (vmm_process_spec_get_id (spec)));
  g_task_set_task_data (task, start, (GDestroyNotify) start_free);

  /* Without the cancellable: the setup is the worker's until it has ended. */
  preparation = g_task_new (self, NULL, prepared_cb, g_object_ref (task));
  g_task_set_source_tag (preparation, prepare_in_thread);
  g_task_set_task_data (preparation, start->setup, NULL);
  g_task_run_in_thread (preparation, prepare_in_thread);
}

static gboolean
handles_agree (const VmmProcessHandle *ours, const VmmProcessHandle *wanted)
{
  return wanted != NULL && vmm_process_handle_get_pid (ours) == vmm_process_handle_get_pid (wanted)
         && vmm_process_handle_get_start_time (ours) == vmm_process_handle_get_start_time (wanted);
}

static void
vmm_launcher_process_find_async (VmmLauncher *launcher, const char *id,
                                 const VmmProcessHandle *handle, GCancellable *cancellable,
                                 GAsyncReadyCallback callback, gpointer user_data)
{
  VmmLauncherProcess *self = VMM_LAUNCHER_PROCESS (launcher);
  g_autoptr (GTask) task = g_task_new (self, cancellable, callback, user_data);
  VmmProcess *process = g_hash_table_lookup (self->running, id);

  g_task_set_source_tag (task, vmm_launcher_process_find_async);
  if (process != NULL && handles_agree (vmm_process_get_handle (process), handle))
    g_task_return_pointer (task, g_object_ref (process), g_object_unref);
  else
    g_task_return_error (task, vmm_error_new (VMM_ERROR_UNSUPPORTED, REATTACH_TEXT));
}

static gboolean
vmm_launcher_process_outlives_daemon (VmmLauncher *launcher)
{
  return FALSE;
}

/* All groups of the account, the primary one included. */
static void
read_groups (VmmChildIdentity *identity, const char *name)
{
  int n = 16;

  identity->groups = g_new (gid_t, n);
  while (getgrouplist (name, identity->gid, identity->groups, &n) < 0 && n > 0 && n <= MAX_GROUPS)
    identity->groups = g_renew (gid_t, identity->groups, n);
  identity->n_groups = (gsize) CLAMP (n, 0, MAX_GROUPS);
}

static void
read_account (VmmLauncherProcess *self, const char *account)
{
  const struct passwd *entry;

  errno = 0;
  entry = getpwnam (account);
  if (entry == NULL)
    {
      g_autofree char *why = errno != 0 ? vmm_child_error_text (errno) : NULL;

      self->runs_as_reason = g_strdup_printf (
          "the daemon is root and the account \"%s\" %s%s", account,
          why != NULL ? "cannot be looked up: " : "does not exist", why != NULL ? why : "");
      return;
    }

  self->drops_identity = TRUE;
  self->identity.uid = entry->pw_uid;
  self->identity.gid = entry->pw_gid;
  self->identity_environment = g_new0 (char *, 4);
  self->identity_environment[0] = g_strconcat ("HOME=", entry->pw_dir, NULL);
  self->identity_environment[1] = g_strconcat ("USER=", account, NULL);
  self->identity_environment[2] = g_strconcat ("LOGNAME=", account, NULL);
  read_groups (&self->identity, account);
}

/* The name of a user, or the number of one without a name. */
static char *
user_name (uid_t uid)
{
  const struct passwd *entry = getpwuid (uid);

  return entry != NULL ? g_strdup (entry->pw_name) : g_strdup_printf ("%u", (guint) uid);
}

static gboolean
vmm_launcher_process_configure (VmmBackend *backend, const VmmBackendConfig *config, GError **error)
{
  VmmLauncherProcess *self = VMM_LAUNCHER_PROCESS (backend);

  if (geteuid () == 0 && config->account != NULL && config->account[0] != '\0')
    read_account (self, config->account);
  else if (geteuid () == 0)
    self->runs_as_reason = g_strdup ("the daemon is root and no account is configured");
  self->runs_as = user_name (self->drops_identity ? self->identity.uid : geteuid ());
  return TRUE;
}

/* Says as whom processes run, and why when that is root. */
static GVariant *
vmm_launcher_process_describe_host (VmmBackend *backend)
{
  VmmLauncherProcess *self = VMM_LAUNCHER_PROCESS (backend);
  GVariantBuilder members;

  g_variant_builder_init (&members, G_VARIANT_TYPE_VARDICT);
  if (self->runs_as != NULL)
    g_variant_builder_add (&members, "{sv}", "childrenRunAs", g_variant_new_string (self->runs_as));
  if (self->runs_as_reason != NULL)
    g_variant_builder_add (&members, "{sv}", "childrenRunAsReason",
                           g_variant_new_string (self->runs_as_reason));
  return g_variant_builder_end (&members);
}

static void
vmm_launcher_process_finalize (GObject *object)
{
  VmmLauncherProcess *self = VMM_LAUNCHER_PROCESS (object);

  g_hash_table_unref (self->starting);
  g_hash_table_unref (self->running);
  g_free (self->identity.groups);
  g_strfreev (self->identity_environment);
  g_free (self->runs_as);
  g_free (self->runs_as_reason);
  G_OBJECT_CLASS (vmm_launcher_process_parent_class)->finalize (object);
}

static void
vmm_launcher_process_backend_init (VmmBackendInterface *iface)
{
  iface->configure = vmm_launcher_process_configure;
  iface->describe_host = vmm_launcher_process_describe_host;
}

static void
vmm_launcher_process_launcher_init (VmmLauncherInterface *iface)
{
  iface->outlives_daemon = vmm_launcher_process_outlives_daemon;
  iface->start_async = vmm_launcher_process_start_async;
  iface->find_async = vmm_launcher_process_find_async;
}

static void
vmm_launcher_process_class_init (VmmLauncherProcessClass *klass)
{
  G_OBJECT_CLASS (klass)->finalize = vmm_launcher_process_finalize;
}

static void
vmm_launcher_process_init (VmmLauncherProcess *self)
{
  struct rlimit limit;

  if (getrlimit (RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
    self->soft_nofile = limit.rlim_cur;
  self->starting = g_hash_table_new_full (g_str_hash, g_str_equal, g_free, NULL);
  self->running = g_hash_table_new_full (g_str_hash, g_str_equal, g_free, g_object_unref);
}

VMM_PLUGIN_DEFINE (vmm_launcher_process, VMM_LAUNCHER_EXTENSION_POINT, VMM_TYPE_LAUNCHER_PROCESS,
                   "process", 10)

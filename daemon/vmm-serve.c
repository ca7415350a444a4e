/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The daemon's life.
 *
 * Start: options, folders, the lock of the state directory, plugins, host, images, the service with
 * everything that was there before, and only then the listeners: whoever can connect finds all VMs.
 * An error on the way leaves nothing behind but folders.
 *
 * Stop (SIGTERM, SIGINT, SIGHUP): no new connections, running requests get 15 s, the service lets its
 * VMs go or stops them within its own limit. What is still loading gets 5 s, because a backend may
 * hang there. A second signal does not wait. */

#include "config.h"

#include "vmm-serve.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <glib-unix.h>
#include <glib/gi18n.h>
#ifdef HAVE_LIBSYSTEMD
#include <systemd/sd-daemon.h>
#endif

#include "vmm-account.h"
#include "vmm-file.h"
#include "vmm-http.h"
#include "vmm-imds.h"
#include "vmm-log.h"
#include "vmm-probes.h"
#include "vmm-rest.h"
#include "vmm-serve-context.h"
#include "vmm-serve-report.h"
#include "vmm-service.h"
#include "vmm-state-lock.h"
#include "vmm-version.h"

#define REQUESTS_LIMIT_MS (15 * 1000)
#define GUEST_REQUESTS_LIMIT_MS (10 * 1000)
#define LOADING_LIMIT_MS (5 * 1000)

typedef struct
{
  GMainLoop *loop;
  VmmOptions *options;
  int lock;
  VmmService *service;
  VmmHttp *http;
  VmmImds *imds;
  guint n_closing; /* doors */
  GCancellable *cancellable;
  gint64 started_at;
  gboolean loading;
  gboolean stopping;
  guint loading_limit;
  int status;
} Daemon;

static void
notify_manager (const char *state)
{
#ifdef HAVE_LIBSYSTEMD
  sd_notify (FALSE, state);
#endif
}

static int
fail (const GError *error)
{
  g_printerr ("Error: %s\n", error->message);
  return 1;
}

static void
service_closed_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  Daemon *daemon = user_data;
  g_autoptr (GError) error = NULL;

  if (!vmm_service_close_finish (VMM_SERVICE (source), result, &error))
    vmm_log_error ("close", "error", error->message, NULL);
  g_main_loop_quit (daemon->loop);
}

static void
close_service (Daemon *daemon)
{
  vmm_service_close_async (daemon->service,
                           vmm_options_get_boolean (daemon->options, "detach-vms-on-exit"),
                           service_closed_cb, daemon);
}

static void
door_closed (Daemon *daemon)
{
  if (--daemon->n_closing == 0)
    close_service (daemon);
}

static void
http_closed_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  vmm_http_close_finish (VMM_HTTP (source), result, NULL);
  door_closed (user_data);
}

static void
imds_closed_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  vmm_imds_close_finish (VMM_IMDS (source), result, NULL);
  door_closed (user_data);
}

static gboolean
loading_limit_cb (gpointer user_data)
{
  Daemon *daemon = user_data;

  daemon->loading_limit = 0;
  daemon->loading = FALSE;
  vmm_log_error ("what was loading did not end in time", NULL);
  close_service (daemon);
  return G_SOURCE_REMOVE;
}

/* Also before everything is up: what is loading then ends first. */
static void
stop (Daemon *daemon)
{
  daemon->stopping = TRUE;
  notify_manager ("STOPPING=1");
  if (daemon->loading)
    {
      daemon->loading_limit = g_timeout_add (LOADING_LIMIT_MS, loading_limit_cb, daemon);
      g_cancellable_cancel (daemon->cancellable);
    }
  else
    {
      vmm_service_end_waits (daemon->service);
      daemon->n_closing = 2;
      vmm_imds_close_async (daemon->imds, GUEST_REQUESTS_LIMIT_MS, imds_closed_cb, daemon);
      vmm_http_close_async (daemon->http, REQUESTS_LIMIT_MS, http_closed_cb, daemon);
    }
}

static gboolean
signal_cb (gpointer user_data)
{
  Daemon *daemon = user_data;

  if (daemon->stopping)
    {
      vmm_log_warning ("second signal: leaving at once", NULL);
      _exit (1);
    }
  vmm_log_info ("stopping", NULL);
  stop (daemon);
  return G_SOURCE_CONTINUE;
}

static void
log_start (Daemon *daemon)
{
  g_autofree char *ms = g_strdup_printf (
      "%" G_GINT64_FORMAT, (g_get_monotonic_time () - daemon->started_at) / 1000);
  g_autofree char *vms =
      g_strdup_printf ("%u", vmm_service_get_machines (daemon->service)->len);

  vmm_log_info (
      "started", "version", vmm_version, "commit", vmm_version_commit, "state_dir",
      vmm_options_get_string (daemon->options, "state-dir"), "image_dir",
      vmm_options_get_string (daemon->options, "image-dir"), "vms", vms, "metrics",
      vmm_options_get_boolean (daemon->options, "metrics-enabled") ? "true" : "false", "took_ms", ms,
      NULL);
}

static void
loaded_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  Daemon *daemon = user_data;
  g_autoptr (GError) error = NULL;
  gboolean ok = vmm_service_load_finish (VMM_SERVICE (source), result, &error);
  gboolean in_time = daemon->loading;

  daemon->loading = FALSE;
  g_clear_handle_id (&daemon->loading_limit, g_source_remove);
  if (daemon->stopping)
    {
      if (in_time)
        close_service (daemon);
      return;
    }
  if (!ok || !vmm_http_listen (daemon->http, &error))
    {
      daemon->status = fail (error);
      daemon->stopping = TRUE;
      close_service (daemon);
      return;
    }
  log_start (daemon);
  notify_manager ("READY=1");
  vmm_serve_report_firmware (daemon->service);
}

/* VMs have sockets, logs and disks: as many descriptors as we may have. */
static void
raise_descriptor_limit (void)
{
  struct rlimit limit;

  if (getrlimit (RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max)
    {
      limit.rlim_cur = limit.rlim_max;
      setrlimit (RLIMIT_NOFILE, &limit);
    }
}

static void
ignore_signal (int number)
{
}

/* A peer that hung up and a file that would become larger than the limit are errors of the call
 * (EPIPE, EFBIG), not the end of the daemon. A handler rather than SIG_IGN, which programs that we
 * start would inherit. */
static void
ignore_signals (void)
{
  struct sigaction action = { .sa_handler = ignore_signal, .sa_flags = SA_RESTART };

  sigaction (SIGPIPE, &action, NULL);
  sigaction (SIGXFSZ, &action, NULL);
}

static gboolean
make_folder (Daemon *daemon, const char *flag, GError **error)
{
  const char *path = vmm_options_get_string (daemon->options, flag);

  if (vmm_file_make_directory (path, 0750, error))
    return TRUE;
  g_prefix_error (error, "--%s: ", flag);
  return FALSE;
}

/* The way to what children need. */
static gboolean
open_ways (const char *state_dir, const char *image_dir, GError **error)
{
  g_autofree char *vms = g_build_filename (state_dir, "vms", NULL);
  g_autofree char *networks = g_build_filename (state_dir, "networks", NULL);

  vmm_account_init (VMM_ACCOUNT_NAME);
  return vmm_file_make_directory (vms, 0700, error)
         && vmm_file_make_directory (networks, 0750, error)
         && vmm_account_let_through (state_dir, error) && vmm_account_let_through (vms, error)
         && vmm_account_let_through (networks, error)
         && vmm_account_let_through (image_dir, error);
}

static gboolean
prepare (Daemon *daemon, GError **error)
{
  const char *state_dir = vmm_options_get_string (daemon->options, "state-dir");

  if (!make_folder (daemon, "state-dir", error))
    return FALSE;
  daemon->lock = vmm_state_lock_take (state_dir, error);
  if (daemon->lock < 0)
    return FALSE;
  if (!make_folder (daemon, "image-dir", error)
      || !open_ways (state_dir, vmm_options_get_string (daemon->options, "image-dir"), error))
    return FALSE;
  daemon->service = vmm_serve_build_service (daemon->options, error);
  if (daemon->service == NULL)
    return FALSE;
  daemon->imds = vmm_imds_new (daemon->service);
  daemon->http = vmm_http_new (daemon->options);
  vmm_probes_mount (daemon->http, daemon->service, daemon->options);
  vmm_rest_mount (daemon->http, daemon->service);
  return TRUE;
}

static void
run (Daemon *daemon)
{
  static const int numbers[] = { SIGTERM, SIGINT, SIGHUP };
  guint ids[G_N_ELEMENTS (numbers)];

  for (guint i = 0; i < G_N_ELEMENTS (numbers); i++)
    ids[i] = g_unix_signal_add (numbers[i], signal_cb, daemon);
  daemon->loading = TRUE;
  vmm_service_look_at_host (daemon->service);
  vmm_service_load_async (daemon->service, daemon->cancellable, loaded_cb, daemon);
  g_main_loop_run (daemon->loop);
  for (guint i = 0; i < G_N_ELEMENTS (numbers); i++)
    g_source_remove (ids[i]);
}

static void
daemon_clear (Daemon *daemon)
{
  g_clear_object (&daemon->http);
  g_clear_object (&daemon->imds);
  g_clear_object (&daemon->service);
  if (daemon->lock >= 0)
    vmm_state_lock_release (daemon->lock);
  g_clear_pointer (&daemon->options, vmm_options_unref);
  g_clear_object (&daemon->cancellable);
  g_clear_pointer (&daemon->loop, g_main_loop_unref);
}

int
vmm_serve_main (int argc, char **argv)
{
  Daemon daemon = { .lock = -1, .started_at = g_get_monotonic_time () };
  g_autoptr (GError) error = NULL;

  daemon.options = vmm_options_parse (&argc, &argv, &error);
  if (daemon.options == NULL)
    return fail (error);
  if (vmm_options_wants_help (daemon.options))
    {
      g_autofree char *help = vmm_options_format_help ();

      g_print ("%s", help);
      vmm_options_unref (daemon.options);
      return 0;
    }
  umask (0027);
  ignore_signals ();
  daemon.loop = g_main_loop_new (NULL, FALSE);
  daemon.cancellable = g_cancellable_new ();
  if (prepare (&daemon, &error))
    {
      /* Not before the plugins are there: children get the limit that they found. */
      raise_descriptor_limit ();
      run (&daemon);
    }
  else
    daemon.status = fail (error);
  if (daemon.status == 0)
    vmm_log_info ("stopped", NULL);
  daemon_clear (&daemon);
  return daemon.status;
}

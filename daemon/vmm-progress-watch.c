/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Tells a waiting caller how his VM comes along.
 *
 * It follows the machine's ::changed and, by inotify, its console file; nothing polls, and nothing
 * is watched at all unless somebody listens. The console is the guest's: only its last line is
 * shown, escaped and cut. */

#include "config.h"

#include "vmm-progress-watch.h"

#include "vmm-guest-access.h"
#include "vmm-log.h"

#define LINE_LIMIT 200

struct _VmmProgressWatch
{
  VmmMachine *machine;
  VmmCall *call;
  GFileMonitor *monitor;
  GCancellable *cancellable;
  gulong changed_id;
  VmmMachineState state; /* as it was told last */
  char *line;
  gboolean reading;
  gboolean again; /* the console changed while it was being read */
};

static void read_console (VmmProgressWatch *self);

static void
report (VmmProgressWatch *self)
{
  self->state = vmm_machine_get_state (self->machine);
  vmm_call_report_progress (self->call, vmm_machine_state_to_nick (self->state),
                            self->line != NULL ? self->line : "");
}

static void
console_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  g_autoptr (GError) error = NULL;
  g_autofree char *text = vmm_guest_read_console_finish (VMM_MACHINE (source), result, &error);
  g_autofree char *line = NULL;
  VmmProgressWatch *self;

  /* After free() the watch is not there any more. */
  if (g_error_matches (error, G_IO_ERROR, G_IO_ERROR_CANCELLED))
    return;

  self = user_data;
  self->reading = FALSE;
  line = text != NULL ? vmm_log_escape (text, LINE_LIMIT) : NULL;
  if (line != NULL && g_strcmp0 (line, self->line) != 0)
    {
      g_free (self->line);
      self->line = g_steal_pointer (&line);
      report (self);
    }
  if (self->again)
    read_console (self);
}

static void
read_console (VmmProgressWatch *self)
{
  self->again = self->reading;
  if (self->reading)
    return;
  self->reading = TRUE;
  vmm_guest_read_console_async (self->machine, 1, self->cancellable, console_cb, self);
}

static void
changed_cb (VmmMachine *machine, gpointer user_data)
{
  VmmProgressWatch *self = user_data;

  if (vmm_machine_get_state (machine) != self->state)
    report (self);
}

static void
console_changed_cb (GFileMonitor *monitor, GFile *file, GFile *other, GFileMonitorEvent event,
                    gpointer user_data)
{
  if (event == G_FILE_MONITOR_EVENT_CHANGED || event == G_FILE_MONITOR_EVENT_CREATED)
    read_console (user_data);
}

VmmProgressWatch *
vmm_progress_watch_new (VmmMachine *machine, VmmCall *call)
{
  guint signal_id = g_signal_lookup ("progress", VMM_TYPE_CALL);
  g_autofree char *path = NULL;
  g_autoptr (GFile) file = NULL;
  VmmProgressWatch *self;

  if (!g_signal_has_handler_pending (call, signal_id, 0, TRUE))
    return NULL;

  self = g_new0 (VmmProgressWatch, 1);
  self->machine = g_object_ref (machine);
  self->call = g_object_ref (call);
  self->cancellable = g_cancellable_new ();
  self->changed_id = g_signal_connect (machine, "changed", G_CALLBACK (changed_cb), self);
  report (self);

  path = vmm_machine_dup_path (machine, "console.log");
  file = g_file_new_for_path (path);
  /* Without inotify watches left there is no console in the progress, and that is all. */
  self->monitor = g_file_monitor_file (file, G_FILE_MONITOR_NONE, NULL, NULL);
  if (self->monitor != NULL)
    g_signal_connect (self->monitor, "changed", G_CALLBACK (console_changed_cb), self);
  return self;
}

void
vmm_progress_watch_free (VmmProgressWatch *self)
{
  g_cancellable_cancel (self->cancellable);
  g_clear_signal_handler (&self->changed_id, self->machine);
  if (self->monitor != NULL)
    {
      g_signal_handlers_disconnect_by_data (self->monitor, self);
      g_file_monitor_cancel (self->monitor);
    }
  g_clear_object (&self->monitor);
  g_clear_object (&self->cancellable);
  g_clear_object (&self->machine);
  g_clear_object (&self->call);
  g_free (self->line);
  g_free (self);
}

/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* A network whose packets vmm-netd carries: opening and closing it.
 *
 * What it is made of: netd.json says what is to be (vmm-netd-file.c), a process makes it so
 * (vmm-netd-process.c), and requests tell it what changes (vmm-netd-ports.c, vmm-netd-forwards.c).
 * Each change is on disk before the process is told, so that the two can never disagree for longer
 * than the process needs to start. */

#include "vmm-netd-network.h"

#include <string.h>

#include "interfaces/vmm-error.h"
#include "vmm-netd-network-private.h"
#include "vmm-netd-store.h"

/* Of a Unix socket. */
#define PATH_MAX_BYTES 107

G_DEFINE_FINAL_TYPE (VmmNetdNetwork, vmm_netd_network, VMM_TYPE_NETWORK)

GTask *
vmm_netd_network_task_new (VmmNetdNetwork *self, gpointer tag, GCancellable *cancellable,
                           GAsyncReadyCallback callback, gpointer user_data)
{
  g_autoptr (GTask) task = g_task_new (self, cancellable, callback, user_data);

  g_task_set_source_tag (task, tag);
  if (g_task_return_error_if_cancelled (task))
    return NULL;
  g_task_set_check_cancellable (task, FALSE);
  if (self->closed)
    {
      g_task_return_error (task,
                           vmm_error_new (VMM_ERROR_CONFLICT, "network %s is closed", self->name));
      return NULL;
    }
  return g_steal_pointer (&task);
}

static void
saved_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  /* The next write says it; until then a port too many is in the file, which harms nobody. */
  vmm_netd_file_save_finish (VMM_NETD_FILE (source), result, NULL);
}

void
vmm_netd_network_save (VmmNetdNetwork *self)
{
  if (!self->closed)
    vmm_netd_file_save_async (self->file, saved_cb, NULL);
}

static gboolean
vmm_netd_network_get_counters (VmmNetwork *network, VmmNetworkCounters *counters)
{
  vmm_netd_process_get_counters (VMM_NETD_NETWORK (network)->process, counters);
  return TRUE;
}

/* -- close -- */

static void
removed_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  g_autoptr (GTask) task = user_data;
  GError *error = NULL;

  if (vmm_netd_file_remove_finish (VMM_NETD_FILE (source), result, &error))
    g_task_return_boolean (task, TRUE);
  else
    g_task_return_error (task, error);
}

static void
last_saved_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  g_autoptr (GTask) task = user_data;
  GError *error = NULL;

  if (vmm_netd_file_save_finish (VMM_NETD_FILE (source), result, &error))
    g_task_return_boolean (task, TRUE);
  else
    g_task_return_error (task, error);
}

static void
stopped_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  g_autoptr (GTask) task = user_data;
  VmmNetdNetwork *self = g_task_get_source_object (task);
  gboolean keep_running = GPOINTER_TO_INT (g_task_get_task_data (task));
  GError *error = NULL;

  if (!vmm_netd_process_stop_finish (VMM_NETD_PROCESS (source), result, &error))
    g_task_return_error (task, error);
  else if (keep_running)
    vmm_netd_file_save_async (self->file, last_saved_cb, g_steal_pointer (&task));
  else
    vmm_netd_file_remove_async (self->file, removed_cb, g_steal_pointer (&task));
}

/* What is to go on is on disk when this answers, because the daemon is about to end. Where the
 * process ends with the daemon in any case, the file stays: the next one's network has the same
 * ports and forwards. */
static void
vmm_netd_network_close_async (VmmNetwork *network, gboolean keep_running, GCancellable *cancellable,
                              GAsyncReadyCallback callback, gpointer user_data)
{
  VmmNetdNetwork *self = VMM_NETD_NETWORK (network);
  g_autoptr (GTask) task = g_task_new (self, cancellable, callback, user_data);

  g_task_set_source_tag (task, vmm_netd_network_close_async);
  g_task_set_check_cancellable (task, FALSE);
  g_task_set_task_data (task, GINT_TO_POINTER (keep_running), NULL);
  self->closed = TRUE;
  if (!keep_running || !vmm_launcher_outlives_daemon (self->launcher))
    {
      vmm_netd_process_stop_async (self->process, stopped_cb, g_steal_pointer (&task));
      return;
    }
  vmm_netd_process_leave (self->process);
  vmm_netd_file_save_async (self->file, last_saved_cb, g_steal_pointer (&task));
}

/* -- what an earlier daemon left -- */

static void
tell (VmmNetdNetwork *self, const char *method, const char *name, const char *id)
{
  JsonObject *params = json_object_new ();

  json_object_set_string_member (params, name, id);
  vmm_netd_request_send (self->process, method, params);
}

/* vmm-netd that is told before the file is written loses nothing by it: what goes has no owner. */
static void
vmm_netd_network_keep_only (VmmNetwork *network, const char *const *vm_ids,
                            const char *const *forward_ids)
{
  VmmNetdNetwork *self = VMM_NETD_NETWORK (network);
  g_autoptr (GPtrArray) ports = vmm_netd_file_take_old_ports (self->file, vm_ids);
  g_autoptr (GPtrArray) forwards = vmm_netd_file_take_old_forwards (self->file, forward_ids);

  if (self->closed || ports->len + forwards->len == 0)
    return;
  for (guint i = 0; i < forwards->len; i++)
    tell (self, "unforward", "id", ((VmmNetdForward *) g_ptr_array_index (forwards, i))->id);
  for (guint i = 0; i < ports->len; i++)
    {
      const VmmNetdPort *port = g_ptr_array_index (ports, i);

      g_ptr_array_unref (vmm_netd_file_take_forwards_of (self->file, port->vm_id));
      tell (self, "detach", "vm", port->vm_id);
    }
  vmm_netd_network_save (self);
}

/* -- open -- */

static void
down_cb (VmmNetdProcess *process, const char *reason, gpointer user_data)
{
  g_signal_emit_by_name (user_data, "failed", reason);
}

static void
up_cb (VmmNetdProcess *process, gpointer user_data)
{
  g_signal_emit_by_name (user_data, "recovered");
}

static void
started_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  g_autoptr (GTask) task = user_data;
  VmmNetdNetwork *self = g_task_get_task_data (task);
  GError *error = NULL;

  if (vmm_netd_process_start_finish (VMM_NETD_PROCESS (source), result, &error))
    g_task_return_pointer (task, g_object_ref (self), g_object_unref);
  else
    g_task_return_error (task, error);
}

static void
loaded_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  g_autoptr (GTask) task = user_data;
  VmmNetdNetwork *self = g_task_get_task_data (task);
  GCancellable *cancellable = g_task_get_cancellable (task);
  GError *error = NULL;

  if (!vmm_netd_file_load_finish (VMM_NETD_FILE (source), result, &error))
    g_task_return_error (task, error);
  else
    vmm_netd_process_start_async (self->process, cancellable, started_cb, g_steal_pointer (&task));
}

static GError *
check_directory (const char *directory)
{
  g_autofree char *path = g_build_filename (directory, VMM_NETD_STORE_SOCKET, NULL);

  if (strlen (path) <= PATH_MAX_BYTES)
    return NULL;
  return vmm_error_new (VMM_ERROR_INVALID_REQUEST,
                        "socket path \"%s\" exceeds %d bytes; use a shorter name or state dir",
                        path, PATH_MAX_BYTES);
}

static VmmNetdNetwork *
network_new (const VmmNetworkSpec *spec, VmmLauncher *launcher, const char *helper, const char *id)
{
  VmmNetdNetwork *self = g_object_new (VMM_TYPE_NETD_NETWORK, NULL);
  VmmNetdAttemptConfig config = { 0 };

  self->name = g_strdup (spec->name);
  self->mtu = spec->mtu;
  self->launcher = g_object_ref (launcher);
  self->file = vmm_netd_file_new (spec);
  config.launcher = launcher;
  config.helper = (char *) helper;
  config.id = (char *) id;
  config.network = self->name;
  config.directory = (char *) spec->directory;
  config.file = self->file;
  self->process = vmm_netd_process_new (&config);
  g_signal_connect_object (self->process, "down", G_CALLBACK (down_cb), self, 0);
  g_signal_connect_object (self->process, "up", G_CALLBACK (up_cb), self, 0);
  return self;
}

void
vmm_netd_network_open_async (const VmmNetworkSpec *spec, VmmLauncher *launcher, const char *helper,
                             const char *id, GCancellable *cancellable,
                             GAsyncReadyCallback callback, gpointer user_data)
{
  g_autoptr (GTask) task = g_task_new (NULL, cancellable, callback, user_data);
  GError *error = check_directory (spec->directory);
  VmmNetdNetwork *self;

  g_task_set_source_tag (task, vmm_netd_network_open_async);
  if (error != NULL)
    {
      g_task_return_error (task, error);
      return;
    }
  g_task_set_check_cancellable (task, FALSE);
  self = network_new (spec, launcher, helper, id);
  g_task_set_task_data (task, self, g_object_unref);
  vmm_netd_file_load_async (self->file, loaded_cb, g_steal_pointer (&task));
}

VmmNetdNetwork *
vmm_netd_network_open_finish (GAsyncResult *result, GError **error)
{
  g_return_val_if_fail (g_async_result_is_tagged (result, vmm_netd_network_open_async), NULL);

  return g_task_propagate_pointer (G_TASK (result), error);
}

static void
vmm_netd_network_finalize (GObject *object)
{
  VmmNetdNetwork *self = VMM_NETD_NETWORK (object);

  g_free (self->name);
  g_clear_object (&self->launcher);
  g_clear_object (&self->file);
  g_clear_object (&self->process);
  G_OBJECT_CLASS (vmm_netd_network_parent_class)->finalize (object);
}

static void
vmm_netd_network_class_init (VmmNetdNetworkClass *klass)
{
  VmmNetworkClass *network_class = VMM_NETWORK_CLASS (klass);

  G_OBJECT_CLASS (klass)->finalize = vmm_netd_network_finalize;
  network_class->attach_async = vmm_netd_network_attach_async;
  network_class->detach_async = vmm_netd_network_detach_async;
  network_class->dial_async = vmm_netd_network_dial_async;
  network_class->forward_async = vmm_netd_network_forward_async;
  network_class->unforward_async = vmm_netd_network_unforward_async;
  network_class->get_counters = vmm_netd_network_get_counters;
  network_class->close_async = vmm_netd_network_close_async;
  network_class->keep_only = vmm_netd_network_keep_only;
}

static void
vmm_netd_network_init (VmmNetdNetwork *self)
{
}

/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Ports of the host that lead to VMs. vmm-netd owns the listeners; what they are is in netd.json,
 * with the port that the kernel chose, so that they are the same after a restart. */

#include "vmm-netd-network-private.h"

#include "interfaces/vmm-error.h"
#include "vmm-netd-json.h"

static JsonObject *
id_params (const char *id)
{
  JsonObject *params = json_object_new ();

  json_object_set_string_member (params, "id", id);
  return params;
}

/* -- forward -- */

typedef struct
{
  char *id;
  guint16 host_port;        /* as asked for */
  VmmNetdForward *previous; /* with the same id; NULL when there was none */
} Forward;

static void
forward_free (gpointer data)
{
  Forward *forward = data;

  g_free (forward->id);
  g_clear_pointer (&forward->previous, vmm_netd_forward_free);
  g_free (forward);
}

/* Takes the error. */
static void
forward_failed (GTask *task, GError *error, gboolean was_told)
{
  VmmNetdNetwork *self = g_task_get_source_object (task);
  Forward *forward = g_task_get_task_data (task);
  g_autoptr (VmmNetdForward) made = vmm_netd_file_take_forward (self->file, forward->id);

  if (forward->previous != NULL)
    vmm_netd_file_set_forward (self->file, g_steal_pointer (&forward->previous));
  else if (was_told)
    vmm_netd_request_send (self->process, "unforward", id_params (forward->id));
  vmm_netd_network_save (self);
  g_task_return_error (task, error);
}

static void
chosen_saved_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  g_autoptr (GTask) task = user_data;
  VmmNetdNetwork *self = g_task_get_source_object (task);
  Forward *forward = g_task_get_task_data (task);
  const VmmNetdForward *made = vmm_netd_file_find_forward (self->file, forward->id);
  GError *error = NULL;

  if (!vmm_netd_file_save_finish (VMM_NETD_FILE (source), result, &error))
    forward_failed (task, error, TRUE);
  else if (made == NULL)
    g_task_return_error (
        task, vmm_error_new (VMM_ERROR_CONFLICT, "forward \"%s\" is closed", forward->id));
  else
    g_task_return_int (task, made->host_port);
}

static void
forwarded_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  g_autoptr (GTask) task = user_data;
  VmmNetdNetwork *self = g_task_get_source_object (task);
  Forward *forward = g_task_get_task_data (task);
  GError *error = NULL;
  g_autoptr (JsonObject) answer = vmm_netd_request_finish (result, NULL, &error);
  gint64 chosen = answer != NULL ? vmm_netd_json_get_int (answer, "host_port", 0) : 0;
  VmmNetdForward *made;

  if (answer != NULL
      && (chosen < 1 || chosen > G_MAXUINT16
          || (forward->host_port != 0 && chosen != forward->host_port)))
    vmm_set_error (&error, VMM_ERROR_INTERNAL, "forward: vmm-netd named a wrong port");
  if (error != NULL)
    {
      forward_failed (task, error, TRUE);
      return;
    }
  made = vmm_netd_file_take_forward (self->file, forward->id);
  if (made == NULL || self->closed)
    {
      g_clear_pointer (&made, vmm_netd_forward_free);
      g_task_return_error (
          task, vmm_error_new (VMM_ERROR_CONFLICT, "forward \"%s\" is closed", forward->id));
      return;
    }
  made->host_port = (guint16) chosen;
  vmm_netd_file_set_forward (self->file, made);
  if (forward->host_port != 0)
    g_task_return_int (task, chosen);
  else
    vmm_netd_file_save_async (self->file, chosen_saved_cb, g_steal_pointer (&task));
}

static JsonObject *
forward_params (const VmmNetdForward *forward)
{
  JsonObject *params = id_params (forward->id);

  json_object_set_string_member (params, "vm", forward->vm_id);
  json_object_set_int_member (params, "port", forward->port);
  json_object_set_string_member (params, "protocol", forward->protocol);
  json_object_set_string_member (params, "host_address", forward->host_address);
  json_object_set_int_member (params, "host_port", forward->host_port);
  return params;
}

static void
forward_saved_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  g_autoptr (GTask) task = user_data;
  VmmNetdNetwork *self = g_task_get_source_object (task);
  Forward *forward = g_task_get_task_data (task);
  GCancellable *cancellable = g_task_get_cancellable (task);
  const VmmNetdForward *made = vmm_netd_file_find_forward (self->file, forward->id);
  GError *error = NULL;

  if (!vmm_netd_file_save_finish (VMM_NETD_FILE (source), result, &error))
    forward_failed (task, error, FALSE);
  else if (made == NULL)
    g_task_return_error (
        task, vmm_error_new (VMM_ERROR_CONFLICT, "forward \"%s\" is closed", forward->id));
  else
    vmm_netd_request_async (self->process, "forward", forward_params (made), VMM_NETD_REQUEST_MS,
                            cancellable, forwarded_cb, g_steal_pointer (&task));
}

static GError *
check_spec (VmmNetdNetwork *self, const VmmForwardSpec *spec)
{
  if (g_strcmp0 (spec->protocol, "tcp") != 0 && g_strcmp0 (spec->protocol, "udp") != 0)
    return vmm_error_new (VMM_ERROR_UNSUPPORTED, "protocol \"%s\": forwards are tcp or udp",
                          spec->protocol != NULL ? spec->protocol : "");
  if (spec->vm_id == NULL || vmm_netd_file_find_port (self->file, spec->vm_id) == NULL)
    return vmm_error_new (VMM_ERROR_NOT_FOUND, "vm %s is not attached to %s",
                          spec->vm_id != NULL ? spec->vm_id : "", self->name);
  return NULL;
}

void
vmm_netd_network_forward_async (VmmNetwork *network, const VmmForwardSpec *spec,
                                GCancellable *cancellable, GAsyncReadyCallback callback,
                                gpointer user_data)
{
  VmmNetdNetwork *self = VMM_NETD_NETWORK (network);
  g_autoptr (GTask) task = vmm_netd_network_task_new (self, vmm_netd_network_forward_async,
                                                      cancellable, callback, user_data);
  GError *error = task != NULL ? check_spec (self, spec) : NULL;
  const VmmNetdForward *previous;
  VmmNetdForward *made;
  Forward *forward;

  if (task == NULL)
    return;
  if (error != NULL)
    {
      g_task_return_error (task, error);
      return;
    }
  previous = vmm_netd_file_find_forward (self->file, spec->id);
  forward = g_new0 (Forward, 1);
  forward->id = g_strdup (spec->id);
  forward->host_port = spec->host_port;
  forward->previous = previous != NULL ? vmm_netd_forward_copy (previous) : NULL;
  g_task_set_task_data (task, forward, forward_free);

  made = g_new0 (VmmNetdForward, 1);
  made->id = g_strdup (spec->id);
  made->vm_id = g_strdup (spec->vm_id);
  made->port = spec->port;
  made->protocol = g_strdup (spec->protocol);
  made->host_address = g_strdup (spec->host_address != NULL ? spec->host_address : "127.0.0.1");
  made->host_port = spec->host_port;
  vmm_netd_file_set_forward (self->file, made);
  vmm_netd_file_save_async (self->file, forward_saved_cb, g_steal_pointer (&task));
}

/* -- unforward -- */

typedef struct
{
  char *id;
  VmmNetdForward *forward; /* as it was; NULL when it was not there */
} Unforward;

static void
unforward_free (gpointer data)
{
  Unforward *unforward = data;

  g_free (unforward->id);
  g_clear_pointer (&unforward->forward, vmm_netd_forward_free);
  g_free (unforward);
}

static void
unforwarded_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  g_autoptr (GTask) task = user_data;
  Unforward *unforward = g_task_get_task_data (task);
  GError *error = NULL;
  g_autoptr (JsonObject) answer = vmm_netd_request_finish (result, NULL, &error);
  gboolean was_absent = g_error_matches (error, VMM_ERROR, VMM_ERROR_NOT_FOUND);

  if (answer != NULL || vmm_netd_request_is_unheard (result)
      || (was_absent && unforward->forward != NULL))
    g_task_return_boolean (task, TRUE);
  else if (was_absent)
    g_task_return_error (task,
                         vmm_error_new (VMM_ERROR_NOT_FOUND, "forward \"%s\"", unforward->id));
  else
    g_task_return_error (task, g_steal_pointer (&error));
  g_clear_error (&error);
}

static void
unforward_saved_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  g_autoptr (GTask) task = user_data;
  VmmNetdNetwork *self = g_task_get_source_object (task);
  Unforward *unforward = g_task_get_task_data (task);
  GCancellable *cancellable = g_task_get_cancellable (task);
  GError *error = NULL;

  if (vmm_netd_file_save_finish (VMM_NETD_FILE (source), result, &error))
    {
      vmm_netd_request_async (self->process, "unforward", id_params (unforward->id),
                              VMM_NETD_REQUEST_MS, cancellable, unforwarded_cb,
                              g_steal_pointer (&task));
      return;
    }
  if (unforward->forward != NULL)
    vmm_netd_file_set_forward (self->file, g_steal_pointer (&unforward->forward));
  g_task_return_error (task, error);
}

void
vmm_netd_network_unforward_async (VmmNetwork *network, const char *forward_id,
                                  GCancellable *cancellable, GAsyncReadyCallback callback,
                                  gpointer user_data)
{
  VmmNetdNetwork *self = VMM_NETD_NETWORK (network);
  GTask *task = vmm_netd_network_task_new (self, vmm_netd_network_unforward_async, cancellable,
                                           callback, user_data);
  Unforward *unforward;

  if (task == NULL)
    return;
  unforward = g_new0 (Unforward, 1);
  unforward->id = g_strdup (forward_id);
  unforward->forward = vmm_netd_file_take_forward (self->file, forward_id);
  g_task_set_task_data (task, unforward, unforward_free);
  vmm_netd_file_save_async (self->file, unforward_saved_cb, task);
}

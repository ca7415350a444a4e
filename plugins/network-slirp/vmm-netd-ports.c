/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* VMs on a network: plugging in, unplugging, reaching in.
 *
 * A port is recorded before vmm-netd is told, so that a vmm-netd that starts in between has it, and
 * is taken out again when it did not come about. Unplugging is recorded first as well. */

#include "vmm-netd-network-private.h"

#include <sys/socket.h>
#include <unistd.h>

#include "interfaces/vmm-error.h"

#define DIAL_MS 10000
/* How much longer than the dialling its answer may take. */
#define DIAL_MARGIN_MS 2000

/* -- attach -- */

typedef struct
{
  char *vm_id;
  char *netdev;
  char *device;
  gboolean is_new; /* to be taken out again when it fails */
} Attach;

static void
attach_free (gpointer data)
{
  Attach *attach = data;

  g_free (attach->vm_id);
  g_free (attach->netdev);
  g_free (attach->device);
  g_free (attach);
}

/* QEMU ends a value at a comma and reads two of them as one. */
static char *
escape (const char *value)
{
  GString *escaped = g_string_new (value);

  g_string_replace (escaped, ",", ",,", 0);
  return g_string_free (escaped, FALSE);
}

/* No option ROM: guests boot from their disk, and one thing less reads what the network sends. */
static Attach *
attach_new (VmmNetdNetwork *self, const VmmNetworkPort *port)
{
  Attach *attach = g_new0 (Attach, 1);
  g_autofree char *path = escape (port->socket_path);

  attach->vm_id = g_strdup (port->vm_id);
  attach->netdev = g_strdup_printf ("stream,id=net0,server=on,addr.type=unix,addr.path=%s", path);
  attach->device = g_strdup_printf ("virtio-net-pci,netdev=net0,mac=%s,romfile=,host_mtu=%u",
                                    port->mac, self->mtu);
  return attach;
}

static JsonObject *
vm_params (const char *vm_id)
{
  JsonObject *params = json_object_new ();

  json_object_set_string_member (params, "vm", vm_id);
  return params;
}

/* Takes the error. */
static void
attach_failed (GTask *task, GError *error, gboolean was_told)
{
  VmmNetdNetwork *self = g_task_get_source_object (task);
  Attach *attach = g_task_get_task_data (task);

  if (attach->is_new)
    {
      g_autoptr (VmmNetdPort) port = vmm_netd_file_take_port (self->file, attach->vm_id);

      vmm_netd_network_save (self);
      if (was_told)
        vmm_netd_request_send (self->process, "detach", vm_params (attach->vm_id));
    }
  g_task_return_error (task, error);
}

static void
attached_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  g_autoptr (GTask) task = user_data;
  Attach *attach = g_task_get_task_data (task);
  const char *arguments[] = { "-netdev", attach->netdev, "-device", attach->device, NULL };
  GError *error = NULL;
  g_autoptr (JsonObject) answer = vmm_netd_request_finish (result, NULL, &error);

  if (answer == NULL)
    attach_failed (task, error, TRUE);
  else
    g_task_return_pointer (task, vmm_attachment_new (arguments),
                           (GDestroyNotify) vmm_attachment_unref);
}

static void
attach_saved_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  g_autoptr (GTask) task = user_data;
  VmmNetdNetwork *self = g_task_get_source_object (task);
  Attach *attach = g_task_get_task_data (task);
  GCancellable *cancellable = g_task_get_cancellable (task);
  const VmmNetdPort *port = vmm_netd_file_find_port (self->file, attach->vm_id);
  JsonObject *params;
  GError *error = NULL;

  if (!vmm_netd_file_save_finish (VMM_NETD_FILE (source), result, &error))
    {
      attach_failed (task, error, FALSE);
      return;
    }
  if (port == NULL)
    {
      g_task_return_error (
          task, vmm_error_new (VMM_ERROR_CONFLICT, "vm %s was detached meanwhile", attach->vm_id));
      return;
    }
  params = vm_params (port->vm_id);
  json_object_set_string_member (params, "mac", port->mac);
  json_object_set_string_member (params, "ip", port->ip);
  vmm_netd_request_async (self->process, "attach", params, VMM_NETD_REQUEST_MS, cancellable,
                          attached_cb, g_steal_pointer (&task));
}

static GError *
check_port (VmmNetdNetwork *self, const VmmNetworkPort *port)
{
  const VmmNetdPort *known = vmm_netd_file_find_port (self->file, port->vm_id);

  if (port->socket_path == NULL || port->mac == NULL || port->ip == NULL)
    return vmm_error_new (VMM_ERROR_INVALID_REQUEST, "vm %s: no socket or address to attach",
                          port->vm_id);
  if (known != NULL && (!g_str_equal (known->mac, port->mac) || !g_str_equal (known->ip, port->ip)))
    return vmm_error_new (VMM_ERROR_CONFLICT, "vm %s is attached to %s as %s", port->vm_id,
                          self->name, known->ip);
  return NULL;
}

void
vmm_netd_network_attach_async (VmmNetwork *network, const VmmNetworkPort *port,
                               GCancellable *cancellable, GAsyncReadyCallback callback,
                               gpointer user_data)
{
  VmmNetdNetwork *self = VMM_NETD_NETWORK (network);
  g_autoptr (GTask) task = vmm_netd_network_task_new (self, vmm_netd_network_attach_async,
                                                      cancellable, callback, user_data);
  GError *error = task != NULL ? check_port (self, port) : NULL;
  Attach *attach;
  VmmNetdPort *copy;

  if (task == NULL)
    return;
  if (error != NULL)
    {
      g_task_return_error (task, error);
      return;
    }
  attach = attach_new (self, port);
  attach->is_new = vmm_netd_file_find_port (self->file, port->vm_id) == NULL;
  g_task_set_task_data (task, attach, attach_free);

  copy = g_new0 (VmmNetdPort, 1);
  copy->vm_id = g_strdup (port->vm_id);
  copy->mac = g_strdup (port->mac);
  copy->ip = g_strdup (port->ip);
  copy->socket_path = g_strdup (port->socket_path);
  copy->metadata_path = g_strdup (port->metadata_path);
  vmm_netd_file_set_port (self->file, copy);
  vmm_netd_file_save_async (self->file, attach_saved_cb, g_steal_pointer (&task));
}

/* -- detach -- */

typedef struct
{
  char *vm_id;
  VmmNetdPort *port;   /* as it was; NULL when it was not there */
  GPtrArray *forwards; /* as they were */
} Detach;

static void
detach_free (gpointer data)
{
  Detach *detach = data;

  g_free (detach->vm_id);
  g_clear_pointer (&detach->port, vmm_netd_port_free);
  g_ptr_array_unref (detach->forwards);
  g_free (detach);
}

static void
detached_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  g_autoptr (GTask) task = user_data;
  VmmNetdNetwork *self = g_task_get_source_object (task);
  Detach *detach = g_task_get_task_data (task);
  GError *error = NULL;
  g_autoptr (JsonObject) answer = vmm_netd_request_finish (result, NULL, &error);
  gboolean was_absent = g_error_matches (error, VMM_ERROR, VMM_ERROR_NOT_FOUND);

  if (answer != NULL || vmm_netd_request_is_unheard (result)
      || (was_absent && detach->port != NULL))
    g_task_return_boolean (task, TRUE);
  else if (was_absent)
    g_task_return_error (task, vmm_error_new (VMM_ERROR_NOT_FOUND, "vm %s is not attached to %s",
                                              detach->vm_id, self->name));
  else
    g_task_return_error (task, g_steal_pointer (&error));
  g_clear_error (&error);
}

static void
detach_saved_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  g_autoptr (GTask) task = user_data;
  VmmNetdNetwork *self = g_task_get_source_object (task);
  Detach *detach = g_task_get_task_data (task);
  GCancellable *cancellable = g_task_get_cancellable (task);
  GError *error = NULL;

  if (vmm_netd_file_save_finish (VMM_NETD_FILE (source), result, &error))
    {
      vmm_netd_request_async (self->process, "detach", vm_params (detach->vm_id),
                              VMM_NETD_REQUEST_MS, cancellable, detached_cb,
                              g_steal_pointer (&task));
      return;
    }
  if (detach->port != NULL)
    vmm_netd_file_set_port (self->file, g_steal_pointer (&detach->port));
  while (detach->forwards->len > 0)
    vmm_netd_file_set_forward (self->file, g_ptr_array_steal_index (detach->forwards, 0));
  g_task_return_error (task, error);
}

void
vmm_netd_network_detach_async (VmmNetwork *network, const char *vm_id, GCancellable *cancellable,
                               GAsyncReadyCallback callback, gpointer user_data)
{
  VmmNetdNetwork *self = VMM_NETD_NETWORK (network);
  GTask *task = vmm_netd_network_task_new (self, vmm_netd_network_detach_async, cancellable,
                                           callback, user_data);
  Detach *detach;

  if (task == NULL)
    return;
  detach = g_new0 (Detach, 1);
  detach->vm_id = g_strdup (vm_id);
  detach->port = vmm_netd_file_take_port (self->file, vm_id);
  detach->forwards = vmm_netd_file_take_forwards_of (self->file, vm_id);
  g_task_set_task_data (task, detach, detach_free);
  vmm_netd_file_save_async (self->file, detach_saved_cb, task);
}

/* -- dial -- */

/* Takes the descriptor, which is a stream or nothing at all. */
static GIOStream *
stream_of_fd (int fd, GError **error)
{
  g_autoptr (GSocket) socket = NULL;
  socklen_t size = sizeof (int);
  int type = 0;

  if (getsockopt (fd, SOL_SOCKET, SO_TYPE, &type, &size) == 0 && type == SOCK_STREAM)
    socket = g_socket_new_from_fd (fd, NULL);
  if (socket == NULL)
    {
      close (fd);
      vmm_set_error (error, VMM_ERROR_INTERNAL, "dial: vmm-netd sent something else than a stream");
      return NULL;
    }
  return G_IO_STREAM (g_socket_connection_factory_create_connection (socket));
}

static void
dialled_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  g_autoptr (GTask) task = user_data;
  GError *error = NULL;
  int fd = -1;
  g_autoptr (JsonObject) answer = vmm_netd_request_finish (result, &fd, &error);
  GIOStream *stream = answer != NULL ? stream_of_fd (fd, &error) : NULL;

  if (stream == NULL)
    g_task_return_error (task, error);
  else
    g_task_return_pointer (task, stream, g_object_unref);
}

void
vmm_netd_network_dial_async (VmmNetwork *network, const char *vm_id, const char *ip, guint16 port,
                             GCancellable *cancellable, GAsyncReadyCallback callback,
                             gpointer user_data)
{
  VmmNetdNetwork *self = VMM_NETD_NETWORK (network);
  g_autoptr (GTask) task = vmm_netd_network_task_new (self, vmm_netd_network_dial_async,
                                                      cancellable, callback, user_data);
  JsonObject *params;

  if (task == NULL)
    return;
  if (vmm_netd_file_find_port (self->file, vm_id) == NULL)
    {
      g_task_return_error (task, vmm_error_new (VMM_ERROR_NOT_FOUND, "vm %s is not attached to %s",
                                                vm_id, self->name));
      return;
    }
  params = vm_params (vm_id);
  json_object_set_int_member (params, "port", port);
  json_object_set_int_member (params, "timeout_ms", DIAL_MS);
  vmm_netd_request_async (self->process, "dial", params, DIAL_MS + DIAL_MARGIN_MS, cancellable,
                          dialled_cb, g_steal_pointer (&task));
}

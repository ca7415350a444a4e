/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Forwards: ports of the host's loopback that lead to a port of a VM.
 *
 * A forward belongs to its VM's record and lives until it is closed or the VM is deleted, also over
 * restarts of the daemon. The port is listened on first and recorded then; one that cannot be
 * recorded is taken down again. A port that was asked for by number is reserved while that is in
 * flight, so that two callers get a conflict rather than a race. */

#include "config.h"

#include "vmm-service-private.h"

#include "vmm-json.h"
#include "vmm-log.h"
#include "vmm-random.h"

#define HOST_ADDRESS "127.0.0.1"
#define PORT_MAX 65535

typedef struct
{
  VmmService *service;
  VmmMachine *machine;
  VmmNetwork *network;
  VmmForward *forward;
  char *reserved; /* key in host_ports; NULL for a port that the kernel chooses */
  GError *error;  /* why it is undone */
} ForwardData;

static void
forward_data_free (ForwardData *data)
{
  if (data->reserved != NULL)
    g_hash_table_remove (data->service->host_ports, data->reserved);
  g_free (data->reserved);
  g_clear_error (&data->error);
  g_clear_pointer (&data->forward, vmm_forward_free);
  g_clear_object (&data->network);
  g_clear_object (&data->machine);
  g_clear_object (&data->service);
  g_free (data);
}
G_DEFINE_AUTOPTR_CLEANUP_FUNC (ForwardData, forward_data_free)

static JsonObject *
forward_to_json (VmmMachine *machine, const VmmForward *forward)
{
  g_autofree char *address
      = g_strdup_printf ("%s:%u", forward->host_address, (guint) forward->host_port);
  const char *vm_id = vmm_machine_get_id (machine);
  JsonObject *object = json_object_new ();

  json_object_set_string_member (object, "id", vm_id);
  json_object_set_int_member (object, "port", forward->port);
  json_object_set_string_member (object, "address", address);
  json_object_set_string_member (object, "forward", forward->id);
  json_object_set_string_member (object, "protocol", forward->protocol);
  return object;
}

static void
start_forward (VmmNetwork *network, VmmMachine *machine, const VmmForward *forward,
               GAsyncReadyCallback callback, gpointer user_data)
{
  const VmmMachineRecord *record = vmm_machine_get_record (machine);
  VmmForwardSpec spec = { 0 };

  spec.id = forward->id;
  spec.vm_id = record->id;
  spec.ip = record->ip;
  spec.port = forward->port;
  spec.protocol = forward->protocol;
  spec.host_address = forward->host_address;
  spec.host_port = forward->host_port;
  vmm_network_forward_async (network, &spec, NULL, callback, user_data);
}

/* forward_port -------------------------------------------------------------------------------- */

static void
undone_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  g_autoptr (GTask) task = user_data;
  ForwardData *data = g_task_get_task_data (task);
  g_autoptr (GError) error = NULL;

  if (!vmm_network_unforward_finish (VMM_NETWORK (source), result, &error))
    vmm_log_warning ("undo a forward", "vm", vmm_machine_get_id (data->machine), "error",
                     error->message, NULL);
  g_task_return_error (task, g_steal_pointer (&data->error));
}

static void
recorded_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  g_autoptr (GTask) task = user_data;
  ForwardData *data = g_task_get_task_data (task);
  const char *id = data->forward->id;

  if (!vmm_machine_add_forward_finish (data->machine, result, &data->error))
    {
      g_hash_table_remove (data->service->forwards, id);
      vmm_network_unforward_async (data->network, id, NULL, undone_cb, g_steal_pointer (&task));
      return;
    }
  vmm_service_return_node (
      task, vmm_json_node_take_object (forward_to_json (data->machine, data->forward)), NULL);
}

static void
forwarded_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  g_autoptr (GTask) task = user_data;
  ForwardData *data = g_task_get_task_data (task);
  GError *error = NULL;
  guint port = vmm_network_forward_finish (VMM_NETWORK (source), result, &error);

  if (port == 0)
    {
      g_task_return_error (task, error);
      return;
    }
  data->forward->host_port = (guint16) port;
  g_hash_table_add (data->service->forwards, g_strdup (data->forward->id));
  vmm_machine_add_forward_async (data->machine, data->forward, recorded_cb,
                                 g_steal_pointer (&task));
}

/* Refuses a host port that another forward of ours holds, and reserves it. */
static gboolean
reserve_port (VmmService *self, ForwardData *data, GError **error)
{
  const VmmForward *wanted = data->forward;
  g_autofree char *key = g_strdup_printf ("%s/%u", wanted->protocol, (guint) wanted->host_port);

  if (wanted->host_port == 0)
    return TRUE;
  for (guint i = 0; i < self->machines->len; i++)
    {
      const VmmMachineRecord *record
          = vmm_machine_get_record (g_ptr_array_index (self->machines, i));

      for (guint j = 0; j < record->forwards->len; j++)
        {
          const VmmForward *forward = g_ptr_array_index (record->forwards, j);

          if (forward->host_port != wanted->host_port
              || !g_str_equal (forward->protocol, wanted->protocol))
            continue;
          vmm_set_error (error, VMM_ERROR_CONFLICT,
                         "host port %s is in use by forward %s of vm %s (%s)", key, forward->id,
                         record->name, record->id);
          return FALSE;
        }
    }
  if (!g_hash_table_add (self->host_ports, g_strdup (key)))
    {
      vmm_set_error (error, VMM_ERROR_CONFLICT, "host port %s is being taken by another forward",
                     key);
      return FALSE;
    }
  data->reserved = g_steal_pointer (&key);
  return TRUE;
}

static gboolean
check_machine (VmmMachine *machine, GError **error)
{
  const VmmMachineRecord *record = vmm_machine_get_record (machine);

  if (record->ip != NULL && record->state != VMM_MACHINE_DELETING
      && record->state != VMM_MACHINE_GONE)
    return TRUE;
  vmm_set_error (error, VMM_ERROR_CONFLICT, "vm %s has no address (%s)", record->id,
                 vmm_machine_state_to_nick (record->state));
  return FALSE;
}

static VmmForward *
read_forward (VmmCall *call, GError **error)
{
  VmmForward *forward;
  const char *protocol = NULL;
  gint64 port = 0;
  gint64 host_port = 0;
  g_autofree char *id = NULL;

  if (!vmm_service_get_int (call, "port", 0, &port, error)
      || !vmm_service_get_int (call, "host_port", 0, &host_port, error)
      || !vmm_service_get_string (call, "protocol", "tcp", &protocol, error))
    return NULL;
  if (port < 1 || port > PORT_MAX)
    {
      vmm_set_error (error, VMM_ERROR_INVALID_REQUEST, "port %" G_GINT64_FORMAT " out of range",
                     port);
      return NULL;
    }
  if (host_port < 0 || host_port > PORT_MAX)
    {
      vmm_set_error (error, VMM_ERROR_INVALID_REQUEST,
                     "host port %" G_GINT64_FORMAT " out of range", host_port);
      return NULL;
    }
  if (!g_str_equal (protocol, "tcp") && !g_str_equal (protocol, "udp"))
    {
      vmm_set_error (error, VMM_ERROR_INVALID_REQUEST, "protocol \"%s\" must be tcp or udp",
                     protocol);
      return NULL;
    }
  id = vmm_random_hex (4, error);
  if (id == NULL)
    return NULL;

  forward = g_new0 (VmmForward, 1);
  forward->id = g_steal_pointer (&id);
  forward->port = (guint16) port;
  forward->protocol = g_strdup (protocol);
  forward->host_address = g_strdup (HOST_ADDRESS);
  forward->host_port = (guint16) host_port;
  return forward;
}

void
vmm_service_forward_port_async (VmmService *self, VmmCall *call, GAsyncReadyCallback callback,
                                gpointer user_data)
{
  g_autoptr (GTask) task = g_task_new (self, vmm_call_get_cancellable (call), callback, user_data);
  g_autoptr (ForwardData) data = g_new0 (ForwardData, 1);
  ForwardData *kept = data;
  VmmMachine *machine;
  GError *error = NULL;

  g_task_set_source_tag (task, vmm_service_forward_port_async);
  data->service = g_object_ref (self);
  machine = vmm_service_lookup_argument (self, call, &error);
  if (machine != NULL)
    data->forward = read_forward (call, &error);
  if (data->forward == NULL || !vmm_service_check_open (self, &error)
      || !check_machine (machine, &error) || !reserve_port (self, data, &error))
    {
      g_task_return_error (task, error);
      return;
    }
  g_set_object (&data->machine, machine);
  g_set_object (&data->network, vmm_machine_get_network (machine, &error));
  if (data->network == NULL)
    {
      g_task_return_error (task, error);
      return;
    }

  g_task_set_task_data (task, g_steal_pointer (&data), (GDestroyNotify) forward_data_free);
  start_forward (kept->network, machine, kept->forward, forwarded_cb, g_steal_pointer (&task));
}

VMM_SERVICE_FINISH (forward_port)

/* list_forwards, close_forward ---------------------------------------------------------------- */

void
vmm_service_list_forwards_async (VmmService *self, VmmCall *call, GAsyncReadyCallback callback,
                                 gpointer user_data)
{
  g_autoptr (GTask) task
      = vmm_service_task_new (self, call, vmm_service_list_forwards_async, callback, user_data);
  GError *error = NULL;
  VmmMachine *machine = vmm_service_lookup_argument (self, call, &error);
  GPtrArray *forwards;
  JsonArray *array;

  if (machine == NULL)
    {
      g_task_return_error (task, error);
      return;
    }
  forwards = vmm_machine_get_record (machine)->forwards;
  array = json_array_sized_new (forwards->len);
  for (guint i = 0; i < forwards->len; i++)
    {
      const VmmForward *forward = g_ptr_array_index (forwards, i);

      json_array_add_object_element (array, forward_to_json (machine, forward));
    }
  vmm_service_return_node (task, vmm_json_node_take_array (array), NULL);
}

VMM_SERVICE_FINISH (list_forwards)

static void
removed_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  g_autoptr (GTask) task = user_data;
  ForwardData *data = g_task_get_task_data (task);
  GError *error = NULL;

  if (vmm_machine_remove_forward_finish (data->machine, result, &error))
    vmm_service_return_node (task, vmm_service_deleted_node (data->forward->id), NULL);
  else
    g_task_return_error (task, error);
}

static void
unforwarded_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  g_autoptr (GTask) task = user_data;
  ForwardData *data = g_task_get_task_data (task);
  const char *id = data->forward->id;
  GError *error = NULL;

  /* One that could not be listened for again after a restart is only in the record. */
  if (!vmm_network_unforward_finish (VMM_NETWORK (source), result, &error)
      && !g_error_matches (error, VMM_ERROR, VMM_ERROR_NOT_FOUND))
    {
      g_task_return_error (task, error);
      return;
    }
  g_clear_error (&error);
  g_hash_table_remove (data->service->forwards, id);
  vmm_machine_remove_forward_async (data->machine, id, removed_cb, g_steal_pointer (&task));
}

void
vmm_service_close_forward_async (VmmService *self, VmmCall *call, GAsyncReadyCallback callback,
                                 gpointer user_data)
{
  g_autoptr (GTask) task = g_task_new (self, vmm_call_get_cancellable (call), callback, user_data);
  ForwardData *data;
  VmmMachine *machine;
  VmmForward *forward = NULL;
  const char *id = NULL;
  GError *error = NULL;

  g_task_set_source_tag (task, vmm_service_close_forward_async);
  machine = vmm_service_lookup_argument (self, call, &error);
  if (machine != NULL && vmm_service_get_string (call, "forward", "", &id, &error))
    {
      forward = vmm_machine_find_forward (machine, id);
      if (forward == NULL)
        vmm_set_error (&error, VMM_ERROR_NOT_FOUND, "forward \"%s\" of vm %s", id,
                       vmm_machine_get_id (machine));
    }
  if (forward == NULL)
    {
      g_task_return_error (task, error);
      return;
    }

  data = g_new0 (ForwardData, 1);
  data->service = g_object_ref (self);
  data->machine = g_object_ref (machine);
  data->forward = vmm_forward_copy (forward);
  g_set_object (&data->network, vmm_machine_get_network (machine, NULL));
  g_task_set_task_data (task, data, (GDestroyNotify) forward_data_free);
  if (data->network != NULL)
    vmm_network_unforward_async (data->network, data->forward->id, NULL, unforwarded_cb,
                                 g_steal_pointer (&task));
  else
    vmm_machine_remove_forward_async (machine, data->forward->id, removed_cb,
                                      g_steal_pointer (&task));
}

VMM_SERVICE_FINISH (close_forward)

/* After a start ------------------------------------------------------------------------------- */

static void
restored_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  g_autoptr (ForwardData) data = user_data;
  g_autoptr (GError) error = NULL;

  if (vmm_network_forward_finish (VMM_NETWORK (source), result, &error) != 0)
    return;
  g_hash_table_remove (data->service->forwards, data->forward->id);
  vmm_log_warning ("forward is down; it is tried again when the VM starts", "vm",
                   vmm_machine_get_id (data->machine), "forward", data->forward->id, "error",
                   error->message, NULL);
}

void
vmm_service_restore_forwards (VmmService *self, VmmMachine *machine)
{
  GPtrArray *forwards = vmm_machine_get_record (machine)->forwards;
  VmmNetwork *network;

  if (forwards->len == 0 || self->context->closing || !check_machine (machine, NULL))
    return;
  /* A network that is down says so when it comes up. */
  network = vmm_machine_get_network (machine, NULL);
  for (guint i = 0; network != NULL && i < forwards->len; i++)
    {
      const VmmForward *forward = g_ptr_array_index (forwards, i);
      ForwardData *data;

      if (!g_hash_table_add (self->forwards, g_strdup (forward->id)))
        continue;
      data = g_new0 (ForwardData, 1);
      data->service = g_object_ref (self);
      data->machine = g_object_ref (machine);
      data->forward = vmm_forward_copy (forward);
      start_forward (network, machine, data->forward, restored_cb, data);
    }
}

/* A forward that was listened on and not yet recorded, a port of a VM whose lease is free by now. */
void
vmm_service_forget_stray_ports (VmmService *self)
{
  g_autoptr (GPtrArray) ids = g_ptr_array_new ();

  for (guint i = 0; i < self->machines->len; i++)
    {
      GPtrArray *forwards
          = vmm_machine_get_record (g_ptr_array_index (self->machines, i))->forwards;

      for (guint j = 0; j < forwards->len; j++)
        g_ptr_array_add (ids, ((VmmForward *) g_ptr_array_index (forwards, j))->id);
    }
  g_ptr_array_add (ids, NULL);
  vmm_network_table_keep_only (self->context->networks, (const char *const *) ids->pdata);
}

/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* netd.json in memory: the network, its ports and forwards, and which process carries it.
 *
 * vmm-netd reads the file when it starts, also without a daemon, so that it must always say what is
 * to be: a port is in it before vmm-netd is told. Writes follow each other; those that are asked
 * for while one is on its way share the next. The work on the disk is in vmm-netd-store.c. */

#include "vmm-netd-file.h"

#include <string.h>

#include "interfaces/vmm-error.h"
#include "vmm-netd-json.h"
#include "vmm-netd-store.h"

#define VERSION 1

struct _VmmNetdFile
{
  GObject parent_instance;

  char *directory;
  JsonObject *network; /* as it is to be */
  gboolean changed;
  VmmProcessHandle *handle;
  GPtrArray *ports;
  GPtrArray *forwards;
  GPtrArray *writing; /* of GTask: answered by the write on its way; NULL when there is none */
  GPtrArray *waiting; /* of GTask: answered by the next one */
};

G_DEFINE_FINAL_TYPE (VmmNetdFile, vmm_netd_file, G_TYPE_OBJECT)

void
vmm_netd_port_free (VmmNetdPort *port)
{
  g_free (port->vm_id);
  g_free (port->mac);
  g_free (port->ip);
  g_free (port->socket_path);
  g_free (port->metadata_path);
  g_free (port);
}

void
vmm_netd_forward_free (VmmNetdForward *forward)
{
  g_free (forward->id);
  g_free (forward->vm_id);
  g_free (forward->protocol);
  g_free (forward->host_address);
  g_free (forward);
}

VmmNetdForward *
vmm_netd_forward_copy (const VmmNetdForward *forward)
{
  VmmNetdForward *copy = g_memdup2 (forward, sizeof *forward);

  copy->id = g_strdup (forward->id);
  copy->vm_id = g_strdup (forward->vm_id);
  copy->protocol = g_strdup (forward->protocol);
  copy->host_address = g_strdup (forward->host_address);
  return copy;
}

/* -- as JSON -- */

static void
set_unless_null (JsonObject *object, const char *member, const char *value)
{
  if (value != NULL)
    json_object_set_string_member (object, member, value);
}

static JsonObject *
network_to_json (const VmmNetworkSpec *spec)
{
  JsonObject *object = json_object_new ();

  json_object_set_string_member (object, "name", spec->name);
  json_object_set_string_member (object, "cidr", spec->cidr);
  json_object_set_string_member (object, "gateway", spec->gateway);
  json_object_set_string_member (object, "gateway_mac", spec->gateway_mac);
  set_unless_null (object, "dns_search_domain", spec->dns_search_domain);
  json_object_set_int_member (object, "mtu", spec->mtu);
  json_object_set_boolean_member (object, "enable_imds", spec->enable_imds);
  json_object_set_boolean_member (object, "enable_host_alias", spec->enable_host_alias);
  return object;
}

static JsonObject *
handle_to_json (const VmmProcessHandle *handle)
{
  JsonObject *object = json_object_new ();

  set_unless_null (object, "unit", vmm_process_handle_get_unit (handle));
  json_object_set_int_member (object, "pid", vmm_process_handle_get_pid (handle));
  json_object_set_int_member (object, "start_time",
                              (gint64) vmm_process_handle_get_start_time (handle));
  set_unless_null (object, "invocation", vmm_process_handle_get_invocation (handle));
  return object;
}

static JsonArray *
ports_to_json (GPtrArray *ports)
{
  JsonArray *array = json_array_new ();

  for (guint i = 0; i < ports->len; i++)
    {
      const VmmNetdPort *port = g_ptr_array_index (ports, i);
      JsonObject *object = json_object_new ();

      json_object_set_string_member (object, "vm", port->vm_id);
      json_object_set_string_member (object, "mac", port->mac);
      json_object_set_string_member (object, "ip", port->ip);
      json_object_set_string_member (object, "socket", port->socket_path);
      set_unless_null (object, "metadata", port->metadata_path);
      json_array_add_object_element (array, object);
    }
  return array;
}

static JsonArray *
forwards_to_json (GPtrArray *forwards)
{
  JsonArray *array = json_array_new ();

  for (guint i = 0; i < forwards->len; i++)
    {
      const VmmNetdForward *forward = g_ptr_array_index (forwards, i);
      JsonObject *object = json_object_new ();

      json_object_set_string_member (object, "id", forward->id);
      json_object_set_string_member (object, "vm", forward->vm_id);
      json_object_set_int_member (object, "port", forward->port);
      json_object_set_string_member (object, "protocol", forward->protocol);
      json_object_set_string_member (object, "host_address", forward->host_address);
      json_object_set_int_member (object, "host_port", forward->host_port);
      json_array_add_object_element (array, object);
    }
  return array;
}

static char *
to_text (VmmNetdFile *self)
{
  JsonObject *object = json_object_new ();

  json_object_set_int_member (object, "version", VERSION);
  json_object_set_object_member (object, "network", json_object_ref (self->network));
  if (self->handle != NULL)
    json_object_set_object_member (object, "handle", handle_to_json (self->handle));
  json_object_set_array_member (object, "ports", ports_to_json (self->ports));
  json_object_set_array_member (object, "forwards", forwards_to_json (self->forwards));
  return vmm_netd_json_to_text (object, TRUE);
}

/* -- from JSON -- */

static VmmProcessHandle *
handle_from_json (JsonObject *object)
{
  gint64 pid = vmm_netd_json_get_int (object, "pid", 0);

  if (object == NULL)
    return NULL;
  return vmm_process_handle_new (vmm_netd_json_get_string (object, "unit"), pid,
                                 (guint64) vmm_netd_json_get_int (object, "start_time", 0),
                                 vmm_netd_json_get_string (object, "invocation"));
}

static VmmNetdPort *
port_from_json (JsonObject *object)
{
  g_autoptr (VmmNetdPort) port = g_new0 (VmmNetdPort, 1);

  port->vm_id = g_strdup (vmm_netd_json_get_string (object, "vm"));
  port->mac = g_strdup (vmm_netd_json_get_string (object, "mac"));
  port->ip = g_strdup (vmm_netd_json_get_string (object, "ip"));
  port->socket_path = g_strdup (vmm_netd_json_get_string (object, "socket"));
  port->metadata_path = g_strdup (vmm_netd_json_get_string (object, "metadata"));
  if (port->vm_id == NULL || port->mac == NULL || port->ip == NULL || port->socket_path == NULL)
    return NULL;
  return g_steal_pointer (&port);
}

static guint16
get_port_number (JsonObject *object, const char *member)
{
  gint64 number = vmm_netd_json_get_int (object, member, 0);

  return number > 0 && number <= G_MAXUINT16 ? (guint16) number : 0;
}

static VmmNetdForward *
forward_from_json (JsonObject *object)
{
  g_autoptr (VmmNetdForward) forward = g_new0 (VmmNetdForward, 1);

  forward->id = g_strdup (vmm_netd_json_get_string (object, "id"));
  forward->vm_id = g_strdup (vmm_netd_json_get_string (object, "vm"));
  forward->port = get_port_number (object, "port");
  forward->protocol = g_strdup (vmm_netd_json_get_string (object, "protocol"));
  forward->host_address = g_strdup (vmm_netd_json_get_string (object, "host_address"));
  forward->host_port = get_port_number (object, "host_port");
  if (forward->id == NULL || forward->vm_id == NULL || forward->port == 0
      || forward->protocol == NULL || forward->host_address == NULL)
    return NULL;
  return g_steal_pointer (&forward);
}

static JsonObject *
get_element (JsonArray *array, guint index)
{
  JsonNode *node = json_array_get_element (array, index);

  return JSON_NODE_HOLDS_OBJECT (node) ? json_node_get_object (node) : NULL;
}

static gboolean
are_equal (JsonObject *a, JsonObject *b)
{
  g_autoptr (JsonNode) left = json_node_new (JSON_NODE_OBJECT);
  g_autoptr (JsonNode) right = json_node_new (JSON_NODE_OBJECT);

  json_node_set_object (left, a);
  json_node_set_object (right, b);
  return json_node_equal (left, right);
}

/* What is not right in an earlier file is left out: the daemon says all of it again. */
static void
take_over (VmmNetdFile *self, JsonObject *object)
{
  JsonArray *ports = vmm_netd_json_get_array (object, "ports");
  JsonArray *forwards = vmm_netd_json_get_array (object, "forwards");
  JsonObject *network = vmm_netd_json_get_object (object, "network");

  self->changed = network == NULL || !are_equal (network, self->network);
  self->handle = handle_from_json (vmm_netd_json_get_object (object, "handle"));
  for (guint i = 0; ports != NULL && i < json_array_get_length (ports); i++)
    {
      VmmNetdPort *port = port_from_json (get_element (ports, i));

      if (port == NULL)
        continue;
      port->is_old = TRUE;
      vmm_netd_file_set_port (self, port);
    }
  for (guint i = 0; forwards != NULL && i < json_array_get_length (forwards); i++)
    {
      VmmNetdForward *forward = forward_from_json (get_element (forwards, i));

      if (forward == NULL)
        continue;
      forward->is_old = TRUE;
      vmm_netd_file_set_forward (self, forward);
    }
}

/* -- loading and saving -- */

static void
read_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  g_autoptr (GTask) task = user_data;
  VmmNetdFile *self = g_task_get_source_object (task);
  g_autofree char *text = NULL;
  g_autoptr (JsonObject) object = NULL;
  GError *error = NULL;

  text = vmm_netd_store_read_finish (result, &error);
  if (error != NULL)
    {
      g_task_return_error (task, error);
      return;
    }
  /* One that is damaged is as good as none: it is only ever a copy of what the daemon knows. */
  if (text != NULL)
    object = vmm_netd_json_parse (text, strlen (text), NULL);
  if (object != NULL)
    take_over (self, object);
  g_task_return_boolean (task, TRUE);
}

void
vmm_netd_file_load_async (VmmNetdFile *self, GAsyncReadyCallback callback, gpointer user_data)
{
  GTask *task = g_task_new (self, NULL, callback, user_data);

  g_task_set_source_tag (task, vmm_netd_file_load_async);
  vmm_netd_store_read_async (self->directory, read_cb, task);
}

gboolean
vmm_netd_file_load_finish (VmmNetdFile *self, GAsyncResult *result, GError **error)
{
  return g_task_propagate_boolean (G_TASK (result), error);
}

static void write_waiting (VmmNetdFile *self);

static void
written_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  g_autoptr (VmmNetdFile) self = user_data;
  g_autoptr (GPtrArray) written = g_steal_pointer (&self->writing);
  g_autoptr (GError) error = NULL;
  gboolean good = vmm_netd_store_finish (result, &error);

  if (self->waiting->len > 0)
    write_waiting (self);
  for (guint i = 0; i < written->len; i++)
    {
      GTask *task = g_ptr_array_index (written, i);

      if (good)
        g_task_return_boolean (task, TRUE);
      else
        g_task_return_error (task, g_error_copy (error));
    }
}

static void
write_waiting (VmmNetdFile *self)
{
  self->writing = g_steal_pointer (&self->waiting);
  self->waiting = g_ptr_array_new_with_free_func (g_object_unref);
  vmm_netd_store_write_async (self->directory, to_text (self), written_cb, g_object_ref (self));
}

void
vmm_netd_file_save_async (VmmNetdFile *self, GAsyncReadyCallback callback, gpointer user_data)
{
  GTask *task = g_task_new (self, NULL, callback, user_data);

  g_task_set_source_tag (task, vmm_netd_file_save_async);
  g_ptr_array_add (self->waiting, task);
  if (self->writing == NULL)
    write_waiting (self);
}

gboolean
vmm_netd_file_save_finish (VmmNetdFile *self, GAsyncResult *result, GError **error)
{
  return g_task_propagate_boolean (G_TASK (result), error);
}

static void
removed_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  g_autoptr (GTask) task = user_data;
  GError *error = NULL;

  if (vmm_netd_store_finish (result, &error))
    g_task_return_boolean (task, TRUE);
  else
    g_task_return_error (task, error);
}

static void
saved_before_removal_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  VmmNetdFile *self = VMM_NETD_FILE (source);

  vmm_netd_file_save_finish (self, result, NULL); /* it goes anyhow */
  vmm_netd_store_remove_async (self->directory, removed_cb, user_data);
}

void
vmm_netd_file_remove_async (VmmNetdFile *self, GAsyncReadyCallback callback, gpointer user_data)
{
  GTask *task = g_task_new (self, NULL, callback, user_data);

  g_task_set_source_tag (task, vmm_netd_file_remove_async);
  /* A write on its way would bring it back. */
  if (self->writing != NULL)
    vmm_netd_file_save_async (self, saved_before_removal_cb, task);
  else
    vmm_netd_store_remove_async (self->directory, removed_cb, task);
}

gboolean
vmm_netd_file_remove_finish (VmmNetdFile *self, GAsyncResult *result, GError **error)
{
  return g_task_propagate_boolean (G_TASK (result), error);
}

/* -- what is in it -- */

gboolean
vmm_netd_file_has_changed (VmmNetdFile *self)
{
  return self->changed;
}

const VmmProcessHandle *
vmm_netd_file_get_handle (VmmNetdFile *self)
{
  return self->handle;
}

void
vmm_netd_file_set_handle (VmmNetdFile *self, const VmmProcessHandle *handle)
{
  g_clear_pointer (&self->handle, vmm_process_handle_free);
  if (handle != NULL)
    self->handle = vmm_process_handle_copy (handle);
}

static guint
index_of_port (VmmNetdFile *self, const char *vm_id)
{
  for (guint i = 0; i < self->ports->len; i++)
    if (g_str_equal (((VmmNetdPort *) g_ptr_array_index (self->ports, i))->vm_id, vm_id))
      return i;
  return G_MAXUINT;
}

const VmmNetdPort *
vmm_netd_file_find_port (VmmNetdFile *self, const char *vm_id)
{
  guint index = index_of_port (self, vm_id);

  return index != G_MAXUINT ? g_ptr_array_index (self->ports, index) : NULL;
}

void
vmm_netd_file_set_port (VmmNetdFile *self, VmmNetdPort *port)
{
  for (guint i = self->ports->len; i > 0; i--)
    {
      VmmNetdPort *other = g_ptr_array_index (self->ports, i - 1);

      if (g_str_equal (other->vm_id, port->vm_id))
        {
          g_ptr_array_remove_index (self->ports, i - 1);
        }
      else if (g_str_equal (other->ip, port->ip))
        {
          g_ptr_array_unref (vmm_netd_file_take_forwards_of (self, other->vm_id));
          g_ptr_array_remove_index (self->ports, i - 1);
        }
    }
  g_ptr_array_add (self->ports, port);
}

VmmNetdPort *
vmm_netd_file_take_port (VmmNetdFile *self, const char *vm_id)
{
  guint index = index_of_port (self, vm_id);

  return index != G_MAXUINT ? g_ptr_array_steal_index (self->ports, index) : NULL;
}

static guint
index_of_forward (VmmNetdFile *self, const char *id)
{
  for (guint i = 0; i < self->forwards->len; i++)
    if (g_str_equal (((VmmNetdForward *) g_ptr_array_index (self->forwards, i))->id, id))
      return i;
  return G_MAXUINT;
}

const VmmNetdForward *
vmm_netd_file_find_forward (VmmNetdFile *self, const char *id)
{
  guint index = index_of_forward (self, id);

  return index != G_MAXUINT ? g_ptr_array_index (self->forwards, index) : NULL;
}

void
vmm_netd_file_set_forward (VmmNetdFile *self, VmmNetdForward *forward)
{
  guint index = index_of_forward (self, forward->id);

  if (index != G_MAXUINT)
    g_ptr_array_remove_index (self->forwards, index);
  g_ptr_array_add (self->forwards, forward);
}

VmmNetdForward *
vmm_netd_file_take_forward (VmmNetdFile *self, const char *id)
{
  guint index = index_of_forward (self, id);

  return index != G_MAXUINT ? g_ptr_array_steal_index (self->forwards, index) : NULL;
}

GPtrArray *
vmm_netd_file_take_forwards_of (VmmNetdFile *self, const char *vm_id)
{
  GPtrArray *taken = g_ptr_array_new_with_free_func ((GDestroyNotify) vmm_netd_forward_free);

  for (guint i = self->forwards->len; i > 0; i--)
    {
      VmmNetdForward *forward = g_ptr_array_index (self->forwards, i - 1);

      if (g_str_equal (forward->vm_id, vm_id))
        g_ptr_array_add (taken, g_ptr_array_steal_index (self->forwards, i - 1));
    }
  return taken;
}

GPtrArray *
vmm_netd_file_take_old_ports (VmmNetdFile *self, const char *const *known)
{
  GPtrArray *taken = g_ptr_array_new_with_free_func ((GDestroyNotify) vmm_netd_port_free);

  for (guint i = self->ports->len; i > 0; i--)
    {
      VmmNetdPort *port = g_ptr_array_index (self->ports, i - 1);

      if (port->is_old && !g_strv_contains (known, port->vm_id))
        g_ptr_array_add (taken, g_ptr_array_steal_index (self->ports, i - 1));
    }
  return taken;
}

GPtrArray *
vmm_netd_file_take_old_forwards (VmmNetdFile *self, const char *const *known)
{
  GPtrArray *taken = g_ptr_array_new_with_free_func ((GDestroyNotify) vmm_netd_forward_free);

  for (guint i = self->forwards->len; i > 0; i--)
    {
      VmmNetdForward *forward = g_ptr_array_index (self->forwards, i - 1);

      if (forward->is_old && !g_strv_contains (known, forward->id))
        g_ptr_array_add (taken, g_ptr_array_steal_index (self->forwards, i - 1));
    }
  return taken;
}

static void
vmm_netd_file_finalize (GObject *object)
{
  VmmNetdFile *self = VMM_NETD_FILE (object);

  g_free (self->directory);
  json_object_unref (self->network);
  g_clear_pointer (&self->handle, vmm_process_handle_free);
  g_ptr_array_unref (self->ports);
  g_ptr_array_unref (self->forwards);
  g_ptr_array_unref (self->waiting);
  G_OBJECT_CLASS (vmm_netd_file_parent_class)->finalize (object);
}

static void
vmm_netd_file_class_init (VmmNetdFileClass *klass)
{
  G_OBJECT_CLASS (klass)->finalize = vmm_netd_file_finalize;
}

static void
vmm_netd_file_init (VmmNetdFile *self)
{
  self->ports = g_ptr_array_new_with_free_func ((GDestroyNotify) vmm_netd_port_free);
  self->forwards = g_ptr_array_new_with_free_func ((GDestroyNotify) vmm_netd_forward_free);
  self->waiting = g_ptr_array_new_with_free_func (g_object_unref);
}

VmmNetdFile *
vmm_netd_file_new (const VmmNetworkSpec *spec)
{
  VmmNetdFile *self = g_object_new (VMM_TYPE_NETD_FILE, NULL);

  self->directory = g_strdup (spec->directory);
  self->network = network_to_json (spec);
  return self;
}

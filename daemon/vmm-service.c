/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The machines, networks and images of this host.
 *
 * The service owns the table of machines and what they share. An operation looks its machine up,
 * asks it, and answers with its object; the work itself belongs to the machine. Reading never waits
 * for a machine's work: each machine's object is made when it is first asked for after a change,
 * sealed, and shared by every answer until the next change, and so is the list of them all.
 *
 * This file holds the table; the operations are in the other vmm-service-*.c files. */

#include "config.h"

#include "vmm-service-private.h"

#include <string.h>

#include "vmm-json.h"

typedef struct
{
  VmmMachine *machine;
  JsonNode *node; /* NULL when the machine changed since */
  VmmMachineState state;
  gulong changed_id;
  gulong gone_id;
} VmmServiceEntry;

enum
{
  SIGNAL_MACHINE_ADDED,
  SIGNAL_MACHINE_REMOVED,
  N_SIGNALS,
};
static guint signals[N_SIGNALS];

G_DEFINE_FINAL_TYPE (VmmService, vmm_service, G_TYPE_OBJECT)

static void
entry_free (gpointer data)
{
  VmmServiceEntry *entry = data;

  g_clear_signal_handler (&entry->changed_id, entry->machine);
  g_clear_signal_handler (&entry->gone_id, entry->machine);
  g_clear_pointer (&entry->node, json_node_unref);
  g_object_unref (entry->machine);
  g_free (entry);
}

static void
context_free (VmmMachineContext *context)
{
  g_clear_object (&context->networks);
  g_clear_object (&context->images);
  g_clear_object (&context->host);
  g_clear_object (&context->attestor);
  g_clear_object (&context->storage);
  g_clear_object (&context->launcher);
  g_clear_pointer (&context->options, vmm_options_unref);
  g_free (context->state_dir);
  g_free (context);
}

static void
network_up_cb (VmmNetworkTable *networks, const char *name, gpointer user_data)
{
  VmmService *self = user_data;

  for (guint i = 0; i < self->machines->len; i++)
    {
      VmmMachine *machine = g_ptr_array_index (self->machines, i);

      if (g_str_equal (vmm_machine_get_record (machine)->network, name))
        vmm_service_restore_forwards (self, machine);
    }
  vmm_service_forget_stray_ports (self);
}

static void
vmm_service_dispose (GObject *object)
{
  VmmService *self = VMM_SERVICE (object);

  if (self->context != NULL)
    g_signal_handlers_disconnect_by_data (self->context->networks, self);
  g_ptr_array_set_size (self->machines, 0);
  g_hash_table_remove_all (self->entries);
  g_clear_pointer (&self->list, json_node_unref);
  g_clear_object (&self->metrics);
  g_clear_object (&self->registry);
  G_OBJECT_CLASS (vmm_service_parent_class)->dispose (object);
}

static void
vmm_service_finalize (GObject *object)
{
  VmmService *self = VMM_SERVICE (object);

  g_clear_pointer (&self->context, context_free);
  g_ptr_array_unref (self->machines);
  g_hash_table_unref (self->entries);
  g_hash_table_unref (self->host_ports);
  vmm_guest_execs_unref (self->execs);
  g_object_unref (self->ending);
  g_hash_table_unref (self->forwards);
  G_OBJECT_CLASS (vmm_service_parent_class)->finalize (object);
}

static void
vmm_service_class_init (VmmServiceClass *klass)
{
  GObjectClass *object_class = G_OBJECT_CLASS (klass);

  object_class->dispose = vmm_service_dispose;
  object_class->finalize = vmm_service_finalize;
  signals[SIGNAL_MACHINE_ADDED]
      = g_signal_new ("machine-added", VMM_TYPE_SERVICE, G_SIGNAL_RUN_LAST, 0, NULL, NULL, NULL,
                      G_TYPE_NONE, 1, VMM_TYPE_MACHINE);
  signals[SIGNAL_MACHINE_REMOVED]
      = g_signal_new ("machine-removed", VMM_TYPE_SERVICE, G_SIGNAL_RUN_LAST, 0, NULL, NULL, NULL,
                      G_TYPE_NONE, 1, VMM_TYPE_MACHINE);
}

static void
vmm_service_init (VmmService *self)
{
  self->entries = g_hash_table_new_full (g_str_hash, g_str_equal, g_free, entry_free);
  self->machines = g_ptr_array_new ();
  self->ending = g_cancellable_new ();
  self->execs = vmm_guest_execs_new (self->ending);
  self->host_ports = g_hash_table_new_full (g_str_hash, g_str_equal, g_free, NULL);
  self->forwards = g_hash_table_new_full (g_str_hash, g_str_equal, g_free, NULL);
}

VmmService *
vmm_service_new (VmmMachineContext *context, VmmPluginRegistry *registry)
{
  VmmService *self = g_object_new (VMM_TYPE_SERVICE, NULL);
  gint64 limit = vmm_options_get_int (context->options, "metrics-guest-series-limit");

  self->context = context;
  context->next_cid = vmm_service_next_cid;
  context->next_cid_data = self;
  g_set_object (&self->registry, registry);
  self->metrics = vmm_metrics_new (context->networks, limit > 0 ? (guint) limit : 1000);
  g_signal_connect (context->networks, "network-up", G_CALLBACK (network_up_cb), self);
  return self;
}

VmmMachineContext *
vmm_service_get_context (VmmService *self)
{
  return self->context;
}

VmmMetrics *
vmm_service_get_metrics (VmmService *self)
{
  return self->metrics;
}

GPtrArray *
vmm_service_get_machines (VmmService *self)
{
  return self->machines;
}

/* The table of machines ----------------------------------------------------------------------- */

static void
forget_node (VmmService *self, VmmMachine *machine)
{
  VmmServiceEntry *entry = g_hash_table_lookup (self->entries, vmm_machine_get_id (machine));

  g_clear_pointer (&self->list, json_node_unref);
  if (entry != NULL)
    g_clear_pointer (&entry->node, json_node_unref);
}

static void
changed_cb (VmmMachine *machine, gpointer user_data)
{
  VmmService *self = user_data;
  VmmServiceEntry *entry = g_hash_table_lookup (self->entries, vmm_machine_get_id (machine));
  VmmMachineState before = entry->state;

  forget_node (self, machine);
  entry->state = vmm_machine_get_state (machine);
  if (vmm_machine_state_is_live (entry->state) && !vmm_machine_state_is_live (before))
    vmm_service_restore_forwards (self, machine);
}

static void
gone_cb (VmmMachine *machine, gpointer user_data)
{
  VmmService *self = user_data;
  GPtrArray *forwards = vmm_machine_get_record (machine)->forwards;

  g_object_ref (machine);
  for (guint i = 0; i < forwards->len; i++)
    g_hash_table_remove (self->forwards, ((VmmForward *) g_ptr_array_index (forwards, i))->id);
  g_ptr_array_remove (self->machines, machine);
  g_hash_table_remove (self->entries, vmm_machine_get_id (machine));
  g_clear_pointer (&self->list, json_node_unref);
  vmm_metrics_remove_machine (self->metrics, machine);
  g_signal_emit (self, signals[SIGNAL_MACHINE_REMOVED], 0, machine);
  g_object_unref (machine);
}

static int
compare_machines (VmmMachine *a, VmmMachine *b)
{
  const VmmMachineRecord *left = vmm_machine_get_record (a);
  const VmmMachineRecord *right = vmm_machine_get_record (b);

  if (left->created_at != right->created_at)
    return left->created_at < right->created_at ? -1 : 1;
  return strcmp (left->id, right->id);
}

void
vmm_service_add_machine (VmmService *self, VmmMachine *machine)
{
  VmmServiceEntry *entry = g_new0 (VmmServiceEntry, 1);
  guint place = self->machines->len;

  entry->machine = g_object_ref (machine);
  entry->state = vmm_machine_get_state (machine);
  entry->changed_id = g_signal_connect (machine, "changed", G_CALLBACK (changed_cb), self);
  entry->gone_id = g_signal_connect (machine, "gone", G_CALLBACK (gone_cb), self);
  g_hash_table_insert (self->entries, g_strdup (vmm_machine_get_id (machine)), entry);

  /* From the end: a new machine is the youngest. */
  while (place > 0 && compare_machines (g_ptr_array_index (self->machines, place - 1), machine) > 0)
    place--;
  g_ptr_array_insert (self->machines, (int) place, machine);
  g_clear_pointer (&self->list, json_node_unref);
  vmm_metrics_add_machine (self->metrics, machine);
  g_signal_emit (self, signals[SIGNAL_MACHINE_ADDED], 0, machine);
}

VmmMachine *
vmm_service_lookup (VmmService *self, const char *id, GError **error)
{
  VmmServiceEntry *entry = g_hash_table_lookup (self->entries, id);

  if (entry == NULL)
    {
      vmm_set_error (error, VMM_ERROR_NOT_FOUND, "vm \"%s\"", id);
      return NULL;
    }
  return entry->machine;
}

JsonNode *
vmm_service_describe (VmmService *self, VmmMachine *machine)
{
  VmmServiceEntry *entry = g_hash_table_lookup (self->entries, vmm_machine_get_id (machine));
  JsonNode *node;

  if (entry != NULL && entry->node != NULL)
    return json_node_ref (entry->node);

  node = vmm_machine_to_json (machine);
  json_node_seal (node);
  if (entry != NULL)
    entry->node = json_node_ref (node);
  return node;
}

static JsonNode *
make_list (VmmService *self)
{
  JsonArray *array = json_array_sized_new (self->machines->len);
  JsonNode *node;

  for (guint i = 0; i < self->machines->len; i++)
    json_array_add_element (array,
                            vmm_service_describe (self, g_ptr_array_index (self->machines, i)));
  node = vmm_json_node_take_array (array);
  json_node_seal (node);
  return node;
}

void
vmm_service_list_vms_async (VmmService *self, VmmCall *call, GAsyncReadyCallback callback,
                            gpointer user_data)
{
  g_autoptr (GTask) task
      = vmm_service_task_new (self, call, vmm_service_list_vms_async, callback, user_data);

  if (self->list == NULL)
    self->list = make_list (self);
  vmm_service_return_node (task, json_node_ref (self->list), NULL);
}

VMM_SERVICE_FINISH (list_vms)

/* What the operations share ------------------------------------------------------------------- */

gboolean
vmm_service_check_open (VmmService *self, GError **error)
{
  if (!self->context->closing)
    return TRUE;
  vmm_set_error (error, VMM_ERROR_CONFLICT, "vm-manager is shutting down");
  return FALSE;
}

/* The reader of JSON says what is wrong, not whose mistake it is. */
#define SENTINEL "invalid request: "

gboolean
vmm_service_get_string (VmmCall *call, const char *member, const char *fallback, const char **value,
                        GError **error)
{
  if (vmm_json_get_string (vmm_call_get_arguments (call), member, fallback, value, error))
    return TRUE;
  g_prefix_error (error, SENTINEL);
  return FALSE;
}

gboolean
vmm_service_get_int (VmmCall *call, const char *member, gint64 fallback, gint64 *value,
                     GError **error)
{
  if (vmm_json_get_int (vmm_call_get_arguments (call), member, fallback, value, error))
    return TRUE;
  g_prefix_error (error, SENTINEL);
  return FALSE;
}

VmmMachine *
vmm_service_lookup_argument (VmmService *self, VmmCall *call, GError **error)
{
  const char *id = NULL;

  if (!vmm_service_get_string (call, "id", "", &id, error))
    return NULL;
  return vmm_service_lookup (self, id, error);
}

GTask *
vmm_service_task_new (VmmService *self, VmmCall *call, gpointer tag, GAsyncReadyCallback callback,
                      gpointer user_data)
{
  GTask *task = g_task_new (self, vmm_call_get_cancellable (call), callback, user_data);

  g_task_set_source_tag (task, tag);
  g_task_set_task_data (task, g_object_ref (call), g_object_unref);
  return task;
}

void
vmm_service_return_node (GTask *task, JsonNode *node, GError *error)
{
  if (node == NULL)
    {
      g_task_return_error (task, error);
      return;
    }
  if (!json_node_is_immutable (node))
    json_node_seal (node);
  g_task_return_pointer (task, node, (GDestroyNotify) json_node_unref);
}

void
vmm_service_return_machine (GTask *task, VmmMachine *machine, GError *error)
{
  VmmService *self = g_task_get_source_object (task);

  if (error != NULL)
    {
      g_task_return_error (task, error);
      return;
    }
  /* The answer is as the work left it, also when ::changed comes a moment later. */
  forget_node (self, machine);
  vmm_service_return_node (task, vmm_service_describe (self, machine), NULL);
}

JsonNode *
vmm_service_deleted_node (const char *id)
{
  JsonObject *object = json_object_new ();

  json_object_set_string_member (object, "id", id);
  json_object_set_boolean_member (object, "deleted", TRUE);
  return vmm_json_node_take_object (object);
}

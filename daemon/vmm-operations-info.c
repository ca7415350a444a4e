/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The operations that speak of the operations themselves: which build this is and what tools it
 * offers, and the description of the REST API.
 *
 * They look like the service's others, but only the table above the service can answer them. */

#include "config.h"

#include "vmm-operations.h"

#include "vmm-json.h"
#include "vmm-version.h"

static void
answer (VmmService *service, VmmCall *call, JsonNode *node, GAsyncReadyCallback callback,
        gpointer user_data, gpointer tag)
{
  g_autoptr (GTask) task
      = g_task_new (service, vmm_call_get_cancellable (call), callback, user_data);

  g_task_set_source_tag (task, tag);
  json_node_seal (node);
  g_task_return_pointer (task, node, (GDestroyNotify) json_node_unref);
}

void
vmm_service_get_info_async (VmmService *self, VmmCall *call, GAsyncReadyCallback callback,
                            gpointer user_data)
{
  JsonObject *object = json_object_new ();
  JsonArray *tools = json_array_new ();

  for (guint i = 0; i < vmm_n_operations; i++)
    {
      if (vmm_operations[i].tool)
        json_array_add_string_element (tools, vmm_operations[i].name);
    }
  json_object_set_string_member (object, "version", vmm_version);
  json_object_set_string_member (object, "commit", vmm_version_commit);
  json_object_set_string_member (object, "built", vmm_version_built);
  json_object_set_array_member (object, "tools", tools);
  answer (self, call, vmm_json_node_take_object (object), callback, user_data,
          vmm_service_get_info_async);
}

JsonNode *
vmm_service_get_info_finish (VmmService *self, GAsyncResult *result, GError **error)
{
  g_return_val_if_fail (g_task_is_valid (result, self), NULL);

  return g_task_propagate_pointer (G_TASK (result), error);
}

void
vmm_service_get_openapi_async (VmmService *self, VmmCall *call, GAsyncReadyCallback callback,
                               gpointer user_data)
{
  answer (self, call, json_node_init_string (json_node_alloc (), vmm_openapi_document), callback,
          user_data, vmm_service_get_openapi_async);
}

JsonNode *
vmm_service_get_openapi_finish (VmmService *self, GAsyncResult *result, GError **error)
{
  g_return_val_if_fail (g_task_is_valid (result, self), NULL);

  return g_task_propagate_pointer (G_TASK (result), error);
}

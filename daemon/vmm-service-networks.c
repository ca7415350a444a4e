/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The operations on networks.
 *
 * The table of networks knows leases; only the service knows which VMs name a network, running or
 * not, and so refuses to delete one that any record still needs. */

#include "config.h"

#include "vmm-service-private.h"

static const char *
name_argument (VmmCall *call, GError **error)
{
  const char *name = NULL;

  return vmm_service_get_string (call, "name", "", &name, error) ? name : NULL;
}

void
vmm_service_list_networks_async (VmmService *self, VmmCall *call, GAsyncReadyCallback callback,
                                 gpointer user_data)
{
  g_autoptr (GTask) task
      = vmm_service_task_new (self, call, vmm_service_list_networks_async, callback, user_data);

  vmm_service_return_node (task, vmm_network_table_describe_all (self->context->networks), NULL);
}

VMM_SERVICE_FINISH (list_networks)

void
vmm_service_get_network_async (VmmService *self, VmmCall *call, GAsyncReadyCallback callback,
                               gpointer user_data)
{
  g_autoptr (GTask) task
      = vmm_service_task_new (self, call, vmm_service_get_network_async, callback, user_data);
  GError *error = NULL;
  const char *name = name_argument (call, &error);
  JsonNode *node = NULL;

  if (name != NULL)
    node = vmm_network_table_describe (self->context->networks, name, &error);
  vmm_service_return_node (task, node, error);
}

VMM_SERVICE_FINISH (get_network)

static void
created_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  g_autoptr (GTask) task = user_data;
  VmmNetworkTable *networks = VMM_NETWORK_TABLE (source);
  GError *error = NULL;
  const char *name;
  JsonNode *node = NULL;

  if (vmm_network_table_create_finish (networks, result, &error))
    {
      name = name_argument (g_task_get_task_data (task), NULL);
      node = vmm_network_table_describe (networks, name, &error);
    }
  vmm_service_return_node (task, node, error);
}

void
vmm_service_create_network_async (VmmService *self, VmmCall *call, GAsyncReadyCallback callback,
                                  gpointer user_data)
{
  g_autoptr (GTask) task
      = vmm_service_task_new (self, call, vmm_service_create_network_async, callback, user_data);
  const char *name = NULL;
  const char *cidr = NULL;
  const char *domain = NULL;
  gint64 mtu = 0;
  GError *error = NULL;

  if (!vmm_service_get_string (call, "name", "", &name, &error)
      || !vmm_service_get_string (call, "cidr", "", &cidr, &error)
      || !vmm_service_get_string (call, "dns_search_domain", NULL, &domain, &error)
      || !vmm_service_get_int (call, "mtu", VMM_NETWORK_MTU_DEFAULT, &mtu, &error)
      || !vmm_service_check_open (self, &error))
    {
      g_task_return_error (task, error);
      return;
    }
  /* Not cancelled with the call: a caller who leaves ends his waiting, not the creation. */
  vmm_network_table_create_async (self->context->networks, name, cidr, domain, mtu, NULL,
                                  created_cb, g_steal_pointer (&task));
}

VMM_SERVICE_FINISH (create_network)

static int
compare_names (gconstpointer a, gconstpointer b)
{
  return g_strcmp0 (*(const char *const *) a, *(const char *const *) b);
}

/* The sorted names of the VMs that name a network, or NULL. */
static char *
users_of_network (VmmService *self, const char *network)
{
  g_autoptr (GPtrArray) names = g_ptr_array_new ();

  for (guint i = 0; i < self->machines->len; i++)
    {
      VmmMachine *machine = g_ptr_array_index (self->machines, i);
      const VmmMachineRecord *record = vmm_machine_get_record (machine);

      if (g_str_equal (record->network, network))
        g_ptr_array_add (names, record->name);
    }
  if (names->len == 0)
    return NULL;
  g_ptr_array_sort (names, compare_names);
  g_ptr_array_add (names, NULL);
  return g_strjoinv (", ", (char **) names->pdata);
}

static void
deleted_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  g_autoptr (GTask) task = user_data;
  GError *error = NULL;
  JsonNode *node = NULL;

  if (vmm_network_table_delete_finish (VMM_NETWORK_TABLE (source), result, &error))
    node = vmm_service_deleted_node (name_argument (g_task_get_task_data (task), NULL));
  vmm_service_return_node (task, node, error);
}

void
vmm_service_delete_network_async (VmmService *self, VmmCall *call, GAsyncReadyCallback callback,
                                  gpointer user_data)
{
  g_autoptr (GTask) task
      = vmm_service_task_new (self, call, vmm_service_delete_network_async, callback, user_data);
  GError *error = NULL;
  const char *name = name_argument (call, &error);
  g_autofree char *users = name != NULL ? users_of_network (self, name) : NULL;

  if (users != NULL)
    vmm_set_error (&error, VMM_ERROR_CONFLICT, "network \"%s\" is used by vm %s", name, users);
  if (error != NULL)
    {
      g_task_return_error (task, error);
      return;
    }
  vmm_network_table_delete_async (self->context->networks, name, NULL, deleted_cb,
                                  g_steal_pointer (&task));
}

VMM_SERVICE_FINISH (delete_network)

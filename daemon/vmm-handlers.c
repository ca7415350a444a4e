/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Operation to pair of functions: the one place where the table of operations meets the service. */

#include "config.h"

#include "vmm-operations.h"

#include "interfaces/vmm-error.h"

#define PAIR(name) #name, vmm_service_##name##_async, vmm_service_##name##_finish

static const VmmHandler handlers[] = {
  { PAIR (get_info) },
  { PAIR (get_host) },
  { PAIR (list_images) },
  { PAIR (get_image) },
  { PAIR (list_networks) },
  { PAIR (get_network) },
  { PAIR (list_vms) },
  { PAIR (get_vm) },
  { PAIR (get_vm_console) },
  { PAIR (get_vm_metrics) },
  { PAIR (get_vm_attestation) },
  { PAIR (create_network) },
  { PAIR (delete_network) },
  { PAIR (create_vm) },
  { PAIR (start_vm) },
  { PAIR (stop_vm) },
  { PAIR (reboot_vm) },
  { PAIR (delete_vm) },
  { PAIR (exec_vm) },
  { PAIR (forward_port) },
  { PAIR (list_forwards) },
  { PAIR (close_forward) },
  { PAIR (get_vm_report) },
  { PAIR (get_openapi) },
};

const VmmHandler *
vmm_handlers_find (const char *operation)
{
  g_return_val_if_fail (operation != NULL, NULL);

  for (guint i = 0; i < G_N_ELEMENTS (handlers); i++)
    if (g_str_equal (handlers[i].name, operation))
      return &handlers[i];
  return NULL;
}

static guint
count_handlers (const char *operation)
{
  guint count = 0;

  for (guint i = 0; i < G_N_ELEMENTS (handlers); i++)
    if (g_str_equal (handlers[i].name, operation))
      count++;
  return count;
}

gboolean
vmm_handlers_check (GError **error)
{
  for (guint i = 0; i < vmm_n_operations; i++)
    {
      guint count = count_handlers (vmm_operations[i].name);

      if (count == 1)
        continue;
      vmm_set_error (error, VMM_ERROR_INTERNAL, "operation %s has %u handlers",
                     vmm_operations[i].name, count);
      return FALSE;
    }
  for (guint i = 0; i < G_N_ELEMENTS (handlers); i++)
    {
      if (vmm_operations_find (handlers[i].name) != NULL)
        continue;
      vmm_set_error (error, VMM_ERROR_INTERNAL, "handler %s has no operation", handlers[i].name);
      return FALSE;
    }
  return TRUE;
}

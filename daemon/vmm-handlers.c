/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Operation to pair of functions: the one place where the table of operations meets the service. */

#include "config.h"

#include "vmm-operations.h"

#include "interfaces/vmm-error.h"

#define HANDLER(name) { #name, vmm_service_##name##_async, vmm_service_##name##_finish }

static const VmmHandler handlers[] = {
  HANDLER (get_info),
  HANDLER (get_host),
  HANDLER (list_images),
  HANDLER (get_image),
  HANDLER (list_networks),
  HANDLER (get_network),
  HANDLER (list_vms),
  HANDLER (get_vm),
  HANDLER (get_vm_console),
  HANDLER (get_vm_metrics),
  HANDLER (get_vm_attestation),
  HANDLER (create_network),
  HANDLER (delete_network),
  HANDLER (create_vm),
  HANDLER (start_vm),
  HANDLER (stop_vm),
  HANDLER (reboot_vm),
  HANDLER (delete_vm),
  HANDLER (exec_vm),
  HANDLER (forward_port),
  HANDLER (list_forwards),
  HANDLER (close_forward),
  HANDLER (get_vm_report),
  HANDLER (get_openapi),
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

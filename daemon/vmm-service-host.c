/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The operations that tell what there is to run VMs on and from: the host and the images. */

#include "config.h"

#include "vmm-log.h"
#include "vmm-service-private.h"

static void
looked_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  g_autoptr (GError) error = NULL;
  VmmHostWays ways;

  if (!vmm_host_find_ways_finish (VMM_HOST (source), result, &ways, &error))
    vmm_log_warning ("VMs cannot be started", "reason", error->message, NULL);
}

void
vmm_service_look_at_host (VmmService *self)
{
  g_return_if_fail (VMM_IS_SERVICE (self));

  vmm_host_find_ways_async (self->context->host, NULL, looked_cb, NULL);
}

static void
described_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  g_autoptr (GTask) task = user_data;
  GError *error = NULL;
  JsonNode *node = vmm_host_describe_finish (VMM_HOST (source), result, &error);

  vmm_service_return_node (task, node, error);
}

void
vmm_service_get_host_async (VmmService *self, VmmCall *call, GAsyncReadyCallback callback,
                            gpointer user_data)
{
  GTask *task = vmm_service_task_new (self, call, vmm_service_get_host_async, callback, user_data);

  vmm_host_describe_async (self->context->host, vmm_call_get_cancellable (call), described_cb,
                           task);
}

VMM_SERVICE_FINISH (get_host)

void
vmm_service_list_images_async (VmmService *self, VmmCall *call, GAsyncReadyCallback callback,
                               gpointer user_data)
{
  g_autoptr (GTask) task
      = vmm_service_task_new (self, call, vmm_service_list_images_async, callback, user_data);

  vmm_service_return_node (task, vmm_images_to_json (self->context->images), NULL);
}

VMM_SERVICE_FINISH (list_images)

void
vmm_service_get_image_async (VmmService *self, VmmCall *call, GAsyncReadyCallback callback,
                             gpointer user_data)
{
  g_autoptr (GTask) task
      = vmm_service_task_new (self, call, vmm_service_get_image_async, callback, user_data);
  const VmmImage *image = NULL;
  const char *reference = NULL;
  GError *error = NULL;

  if (vmm_service_get_string (call, "ref", "", &reference, &error))
    {
      /* The empty reference is create_vm's word for the default, not an image's name. */
      if (reference[0] == '\0')
        vmm_set_error (&error, VMM_ERROR_NOT_FOUND, "image \"\"");
      else
        image = vmm_images_lookup (self->context->images, reference, &error);
    }
  vmm_service_return_node (task, image != NULL ? vmm_image_to_json (image) : NULL, error);
}

VMM_SERVICE_FINISH (get_image)

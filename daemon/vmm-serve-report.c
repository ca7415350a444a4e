/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The firmware's build in the log.
 *
 * Golden values belong to one firmware build: PCR 0 measures it. A firmware package that changed
 * under an image makes its VMs fail their attestation, so it is said at the start, by image. */

#include "config.h"

#include "vmm-serve-report.h"

#include "vmm-json.h"
#include "vmm-log.h"

static void
check_image (JsonObject *image, const char *sha256)
{
  const char *id = NULL;
  const char *version = NULL;
  const char *recorded = NULL;
  g_autofree char *reference = NULL;
  JsonObject *policy = NULL;
  JsonObject *golden = NULL;

  if (!vmm_json_get_object (image, "policy", &policy, NULL) || policy == NULL
      || !vmm_json_get_object (policy, "golden_firmware", &golden, NULL) || golden == NULL
      || !vmm_json_get_string (golden, "sha256", NULL, &recorded, NULL) || recorded == NULL
      || g_ascii_strcasecmp (recorded, sha256) == 0)
    return;
  vmm_json_get_string (image, "id", "", &id, NULL);
  vmm_json_get_string (image, "version", "", &version, NULL);
  reference = g_strdup_printf ("%s_%s", id, version);
  vmm_log_warning ("the golden values of this image were recorded with another firmware", "image",
                   reference, "recorded", recorded, "booting", sha256, NULL);
}

static void
described_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  g_autoptr (VmmService) service = user_data;
  g_autoptr (GError) error = NULL;
  g_autoptr (JsonNode) node = vmm_host_describe_finish (VMM_HOST (source), result, &error);
  g_autoptr (JsonNode) images = NULL;
  JsonObject *firmware = NULL;
  const char *sha256 = NULL;
  const char *package = NULL;
  const char *version = NULL;

  if (node == NULL)
    {
      vmm_log_warning ("describe host", "error", error->message, NULL);
      return;
    }
  if (!vmm_json_get_object (json_node_get_object (node), "firmware", &firmware, NULL)
      || firmware == NULL || !vmm_json_get_string (firmware, "sha256", NULL, &sha256, NULL)
      || sha256 == NULL)
    return;
  vmm_json_get_string (firmware, "package", NULL, &package, NULL);
  vmm_json_get_string (firmware, "version", NULL, &version, NULL);
  vmm_log_info ("firmware", "path", vmm_host_get_ovmf_code (VMM_HOST (source)), "sha256", sha256,
                "package", package, "version", version, NULL);
  images = vmm_images_to_json (vmm_service_get_context (service)->images);
  for (guint i = 0; i < json_array_get_length (json_node_get_array (images)); i++)
    check_image (json_array_get_object_element (json_node_get_array (images), i), sha256);
}

void
vmm_serve_report_firmware (VmmService *service)
{
  VmmHost *host = vmm_service_get_context (service)->host;

  vmm_host_describe_async (host, NULL, described_cb, g_object_ref (service));
}

/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What a guest reports of itself: kept as it came, and offered to the metrics.
 *
 * The report is read in a worker, one of a VM at a time. What is JSON but no report is kept and shown
 * all the same; only the metrics do without it. */

#include "config.h"

#include <string.h>

#include "vmm-file.h"
#include "vmm-imds-routes.h"
#include "vmm-json.h"
#include "vmm-log.h"

#define REPORT_NAME "report.json"
#define REPORT_MODE 0600
#define REASON_MAX 512

typedef struct
{
  VmmImdsPort *port;
  VmmImdsExchange *exchange;
  GBytes *content;
  VmmGuestIntake *intake; /* NULL when the metrics can do nothing with it */
} Upload;

static void
upload_free (Upload *upload)
{
  g_object_unref (upload->port);
  vmm_imds_exchange_unref (upload->exchange);
  g_bytes_unref (upload->content);
  g_clear_pointer (&upload->intake, vmm_guest_intake_free);
  g_free (upload);
}
G_DEFINE_AUTOPTR_CLEANUP_FUNC (Upload, upload_free)

/* What reading comes to. The worker gets copies and leaves this. */
typedef struct
{
  GBytes *content;
  guint series_limit;
  VmmGuestIntake *intake;
  char *problem; /* why there is no intake */
} Reading;

static void
reading_free (gpointer data)
{
  Reading *reading = data;

  g_bytes_unref (reading->content);
  g_clear_pointer (&reading->intake, vmm_guest_intake_free);
  g_free (reading->problem);
  g_free (reading);
}

static void
read_thread (GTask *task, gpointer source, gpointer data, GCancellable *cancellable)
{
  Reading *reading = data;
  gsize size;
  const char *text = g_bytes_get_data (reading->content, &size);
  g_autoptr (GError) problem = NULL;
  g_autoptr (JsonNode) node = NULL;
  GError *error = NULL;

  reading->intake = vmm_guest_intake_new (reading->content, reading->series_limit, &problem);
  if (reading->intake == NULL)
    {
      reading->problem = vmm_log_escape (problem->message, REASON_MAX);
      node = vmm_json_parse (text != NULL ? text : "", size, &error);
    }
  if (error != NULL)
    g_task_return_error (task, error);
  else
    g_task_return_boolean (task, TRUE);
}

static void
stored_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  g_autoptr (Upload) upload = user_data;
  VmmMachine *machine = vmm_imds_port_get_machine (upload->port);
  VmmService *service = vmm_imds_port_get_shared (upload->port)->service;
  g_autoptr (GError) error = NULL;

  if (vmm_imds_refuse_if_gone (upload->port, upload->exchange))
    return;
  if (!vmm_file_replace_finish (result, &error))
    {
      vmm_log_error ("a report was not stored", "vm", vmm_machine_get_id (machine), "error",
                     error->message, NULL);
      vmm_imds_exchange_answer_text (upload->exchange, 500, "report not stored");
      return;
    }
  if (upload->intake != NULL)
    vmm_metrics_take_report (vmm_service_get_metrics (service), vmm_machine_get_id (machine),
                             upload->intake);
  vmm_imds_exchange_answer_empty (upload->exchange, 204);
}

static void
read_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  g_autoptr (Upload) upload = user_data;
  Reading *reading = g_task_get_task_data (G_TASK (result));
  VmmMachine *machine = vmm_imds_port_get_machine (upload->port);
  g_autofree char *path = vmm_machine_dup_path (machine, REPORT_NAME);
  g_autoptr (GError) error = NULL;

  if (vmm_imds_refuse_if_gone (upload->port, upload->exchange))
    return;
  if (!g_task_propagate_boolean (G_TASK (result), &error))
    {
      vmm_imds_exchange_answer_text (upload->exchange, 400, "report is not valid JSON");
      return;
    }
  if (reading->intake == NULL)
    vmm_log_warning ("a report has nothing for the metrics", "vm", vmm_machine_get_id (machine),
                     "error", reading->problem, NULL);
  upload->intake = g_steal_pointer (&reading->intake);
  vmm_file_replace_async (path, upload->content, REPORT_MODE, NULL, stored_cb, upload);
  g_steal_pointer (&upload);
}

void
vmm_imds_serve_report (VmmImdsPort *port, VmmImdsExchange *exchange)
{
  VmmMetrics *metrics = vmm_service_get_metrics (vmm_imds_port_get_shared (port)->service);
  g_autoptr (GTask) task = NULL;
  Reading *reading;
  Upload *upload;

  if (vmm_imds_exchange_is_body_too_large (exchange))
    {
      vmm_imds_exchange_answer_text (exchange, 400, "report not read: http: request body too large");
      return;
    }
  if (!vmm_imds_begin_work (port, exchange, VMM_IMDS_UPLOAD))
    return;
  upload = g_new0 (Upload, 1);
  upload->port = g_object_ref (port);
  upload->exchange = vmm_imds_exchange_ref (exchange);
  upload->content = g_bytes_ref (vmm_imds_exchange_get_body (exchange));
  reading = g_new0 (Reading, 1);
  reading->content = g_bytes_ref (upload->content);
  reading->series_limit = vmm_metrics_get_guest_limit (metrics);
  task = g_task_new (NULL, NULL, read_cb, upload);
  g_task_set_source_tag (task, vmm_imds_serve_report);
  g_task_set_task_data (task, reading, reading_free);
  g_task_run_in_thread (task, read_thread);
}

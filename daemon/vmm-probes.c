/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Probes and the metrics page.
 *
 * Ready means that the listener is there: it comes up after everything was loaded. What the host
 * lacks is told by its report, never by an unready probe. */

#include "config.h"

#include "vmm-probes.h"

#include <string.h>

/* GET and HEAD of exactly this path, or answered here. */
static gboolean
is_read (SoupServerMessage *message, const char *path, const char *wanted)
{
  const char *method = soup_server_message_get_method (message);

  if (strcmp (path, wanted) != 0)
    {
      vmm_http_answer_text (message, SOUP_STATUS_NOT_FOUND, "404 page not found\n");
      return FALSE;
    }
  if (strcmp (method, "GET") == 0 || strcmp (method, "HEAD") == 0)
    return TRUE;
  soup_message_headers_replace (soup_server_message_get_response_headers (message), "Allow",
                                "GET, HEAD");
  vmm_http_answer_text (message, SOUP_STATUS_METHOD_NOT_ALLOWED, "Method Not Allowed\n");
  return FALSE;
}

static void
probe_cb (VmmHttp *http, SoupServerMessage *message, const char *path, VmmHttpRequest *request,
          gpointer user_data)
{
  if (is_read (message, path, user_data))
    vmm_http_answer_text (message, SOUP_STATUS_OK, "ok");
}

static void
metrics_cb (VmmHttp *http, SoupServerMessage *message, const char *path, VmmHttpRequest *request,
            gpointer user_data)
{
  VmmService *service = user_data;
  g_autoptr (GBytes) text = NULL;

  if (!is_read (message, path, "/metrics"))
    return;
  text = vmm_metrics_expose (vmm_service_get_metrics (service));
  soup_server_message_set_status (message, SOUP_STATUS_OK, NULL);
  soup_message_headers_replace (soup_server_message_get_response_headers (message), "Content-Type",
                                "text/plain; version=0.0.4");
  soup_message_body_append_bytes (soup_server_message_get_response_body (message), text);
}

void
vmm_probes_mount (VmmHttp *http, VmmService *service, VmmOptions *options)
{
  gboolean open = vmm_options_get_boolean (options, "allow-metrics");

  vmm_http_add_door (http, "/healthz", FALSE, probe_cb, (gpointer) "/healthz");
  vmm_http_add_door (http, "/readyz", FALSE, probe_cb, (gpointer) "/readyz");
  if (vmm_options_get_boolean (options, "metrics-enabled"))
    vmm_http_add_door (http, "/metrics", !open, metrics_cb, service);
}

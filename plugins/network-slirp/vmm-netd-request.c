/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* A request from its sending to its answer: waits for the connection, then for the answer. One whose
 * connection ends meanwhile is sent again over the next one: each says what is to be, so that it
 * makes no difference whether it was heard. A connection to a guest has ended with it. */

#include "vmm-netd-request.h"

#include <unistd.h>

#include "interfaces/vmm-error.h"

#define TRIES 3
#define NOT_REPEATED "dial"

typedef struct
{
  VmmNetdProcess *process;
  guint n_tries;
  char *method;
  JsonObject *params;
  guint timeout_ms;
  int fd;
  gboolean is_unheard;
} Request;

static void
request_free (gpointer data)
{
  Request *request = data;

  g_object_unref (request->process);
  g_free (request->method);
  g_clear_pointer (&request->params, json_object_unref);
  if (request->fd >= 0)
    close (request->fd);
  g_free (request);
}

static void connected_cb (GObject *source, GAsyncResult *result, gpointer user_data);

/* Of an error: vmm-netd did not say it. */
static gboolean
is_unheard (GTask *task, VmmNetdChannel *channel, const GError *error)
{
  return !g_cancellable_is_cancelled (g_task_get_cancellable (task))
         && (channel == NULL || !vmm_netd_channel_is_open (channel)
             || g_error_matches (error, VMM_ERROR, VMM_ERROR_TIMEOUT));
}

static gboolean
is_to_be_repeated (GTask *task, VmmNetdChannel *channel)
{
  Request *request = g_task_get_task_data (task);

  return !vmm_netd_channel_is_open (channel) && request->n_tries < TRIES
         && !g_str_equal (request->method, NOT_REPEATED)
         && !g_cancellable_is_cancelled (g_task_get_cancellable (task));
}

static void
answered_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  g_autoptr (GTask) task = user_data;
  Request *request = g_task_get_task_data (task);
  GCancellable *cancellable = g_task_get_cancellable (task);
  GError *error = NULL;
  JsonObject *object;

  object = vmm_netd_channel_call_finish (VMM_NETD_CHANNEL (source), result, &request->fd, &error);
  if (object == NULL && is_to_be_repeated (task, VMM_NETD_CHANNEL (source)))
    {
      g_clear_error (&error);
      vmm_netd_process_connect_async (request->process, cancellable, connected_cb,
                                      g_steal_pointer (&task));
      return;
    }
  request->is_unheard = object == NULL && is_unheard (task, VMM_NETD_CHANNEL (source), error);
  if (object == NULL)
    g_task_return_error (task, error);
  else
    g_task_return_pointer (task, object, (GDestroyNotify) json_object_unref);
}

static void
connected_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  g_autoptr (GTask) task = user_data;
  Request *request = g_task_get_task_data (task);
  GCancellable *cancellable = g_task_get_cancellable (task);
  GError *error = NULL;
  g_autoptr (VmmNetdChannel) channel
      = vmm_netd_process_connect_finish (VMM_NETD_PROCESS (source), result, &error);

  if (channel == NULL)
    {
      request->is_unheard = is_unheard (task, NULL, error);
      g_task_return_error (task, error);
      return;
    }
  request->n_tries++;
  vmm_netd_channel_call_async (channel, request->method, json_object_ref (request->params),
                               request->timeout_ms, cancellable, answered_cb,
                               g_steal_pointer (&task));
}

void
vmm_netd_request_async (VmmNetdProcess *process, const char *method, JsonObject *params,
                        guint timeout_ms, GCancellable *cancellable, GAsyncReadyCallback callback,
                        gpointer user_data)
{
  GTask *task = g_task_new (NULL, cancellable, callback, user_data);
  Request *request = g_new0 (Request, 1);

  request->process = g_object_ref (process);
  request->method = g_strdup (method);
  request->params = params;
  request->timeout_ms = timeout_ms;
  request->fd = -1;
  g_task_set_source_tag (task, vmm_netd_request_async);
  g_task_set_check_cancellable (task, FALSE);
  g_task_set_task_data (task, request, request_free);
  vmm_netd_process_connect_async (process, cancellable, connected_cb, task);
}

JsonObject *
vmm_netd_request_finish (GAsyncResult *result, int *fd, GError **error)
{
  Request *request = g_task_get_task_data (G_TASK (result));

  g_return_val_if_fail (g_async_result_is_tagged (result, vmm_netd_request_async), NULL);

  if (fd != NULL)
    {
      *fd = request->fd;
      request->fd = -1;
    }
  return g_task_propagate_pointer (G_TASK (result), error);
}

gboolean
vmm_netd_request_is_unheard (GAsyncResult *result)
{
  Request *request = g_task_get_task_data (G_TASK (result));

  g_return_val_if_fail (g_async_result_is_tagged (result, vmm_netd_request_async), FALSE);

  return request->is_unheard;
}

static void
sent_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  g_autoptr (JsonObject) answer = vmm_netd_request_finish (result, NULL, NULL);
}

void
vmm_netd_request_send (VmmNetdProcess *process, const char *method, JsonObject *params)
{
  vmm_netd_request_async (process, method, params, VMM_NETD_REQUEST_MS, NULL, sent_cb, NULL);
}

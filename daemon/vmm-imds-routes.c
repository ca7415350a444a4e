/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* From a request to who answers it.
 *
 * A caller that is no VM is told so before anything is looked at. A key that is not set is 404
 * without a body: systemd-imdsd takes anything else for a failure of the service. */

#include "config.h"

#include "vmm-imds-routes.h"

#include <string.h>

#include "vmm-imds-keys.h"
#include "vmm-imds-values.h"
#include "vmm-log.h"

#define FORBIDDEN_TEXT "forbidden: client address is not a managed VM"
#define RETRY_AFTER_S "2"
#define SHOWN_MAX 256

/* What is said about a request when it is answered. */
typedef struct
{
  VmmImdsPort *port;
  char *method;
  char *path;
} Note;

static void
note_free (gpointer data)
{
  Note *note = data;

  g_object_unref (note->port);
  g_free (note->method);
  g_free (note->path);
  g_free (note);
}

static void
answered_cb (VmmImdsExchange *exchange, guint status, gpointer user_data)
{
  Note *note = user_data;
  VmmMachine *machine = vmm_imds_port_get_machine (note->port);
  g_autofree char *text = g_strdup_printf ("%u", status);

  vmm_log_debug ("metadata request", "vm", vmm_machine_get_id (machine), "method", note->method,
                 "path", note->path, "status", text, "client",
                 vmm_machine_get_record (machine)->ip, NULL);
}

static void
take_note (VmmImdsPort *port, VmmImdsExchange *exchange)
{
  const VmmHttpHead *head = vmm_imds_exchange_get_head (exchange);
  Note *note = g_new0 (Note, 1);

  note->port = g_object_ref (port);
  note->method = vmm_log_escape (head->method, SHOWN_MAX);
  note->path = vmm_log_escape (head->path, SHOWN_MAX);
  vmm_imds_exchange_set_answered (exchange, answered_cb, note, note_free);
}

void
vmm_imds_answer_busy (VmmImdsExchange *exchange, const char *text)
{
  vmm_imds_exchange_add_header (exchange, "Retry-After", RETRY_AFTER_S);
  vmm_imds_exchange_answer_text (exchange, 503, text);
}

typedef struct
{
  VmmImdsPort *port;
  VmmImdsWork work;
} Turn;

static void
turn_end (gpointer data)
{
  Turn *turn = data;

  vmm_imds_port_end (turn->port, turn->work);
  g_object_unref (turn->port);
  g_free (turn);
}

gboolean
vmm_imds_begin_work (VmmImdsPort *port, VmmImdsExchange *exchange, VmmImdsWork work)
{
  Turn *turn;

  if (!vmm_imds_port_begin (port, work))
    {
      vmm_imds_answer_busy (exchange, "too many requests at once");
      return FALSE;
    }
  turn = g_new0 (Turn, 1);
  turn->port = g_object_ref (port);
  turn->work = work;
  vmm_imds_exchange_hold (exchange, turn, turn_end);
  return TRUE;
}

gboolean
vmm_imds_refuse_if_gone (VmmImdsPort *port, VmmImdsExchange *exchange)
{
  if (vmm_imds_port_is_served (port))
    return FALSE;
  vmm_imds_exchange_answer_text (exchange, 403, FORBIDDEN_TEXT);
  return TRUE;
}

guint
vmm_imds_status_of (const GError *error)
{
  if (g_error_matches (error, VMM_ERROR, VMM_ERROR_INVALID_REQUEST))
    return 400;
  if (g_error_matches (error, VMM_ERROR, VMM_ERROR_NOT_FOUND))
    return 404;
  if (g_error_matches (error, VMM_ERROR, VMM_ERROR_CONFLICT))
    return 409;
  return 500;
}

static void
serve_value (VmmImdsPort *port, VmmImdsExchange *exchange, VmmImdsKey key, GStrv chosen)
{
  const VmmMachineRecord *record = vmm_machine_get_record (vmm_imds_port_get_machine (port));
  g_autofree char *value = vmm_imds_value_dup (record, key, chosen);

  if (value == NULL)
    vmm_imds_exchange_answer_empty (exchange, 404);
  else
    vmm_imds_exchange_answer_text (exchange, 200, value);
}

static void
serve_row (VmmImdsPort *port, VmmImdsExchange *exchange, const VmmImdsRow *row, GStrv chosen)
{
  switch (row->key)
    {
    case VMM_IMDS_USER_DATA:
      vmm_imds_serve_user_data (port, exchange);
      break;
    case VMM_IMDS_SYSUPDATE:
      vmm_imds_serve_artifact (port, exchange, chosen[0], chosen[1]);
      break;
    case VMM_IMDS_NONCE:
      vmm_imds_serve_nonce (port, exchange);
      break;
    case VMM_IMDS_QUOTE:
      vmm_imds_serve_quote (port, exchange);
      break;
    case VMM_IMDS_REPORT:
      vmm_imds_serve_report (port, exchange);
      break;
    case VMM_IMDS_HOSTNAME:
    case VMM_IMDS_REGION:
    case VMM_IMDS_ZONE:
    case VMM_IMDS_PUBLIC_KEY:
    case VMM_IMDS_PUBLIC_KEYS:
    case VMM_IMDS_INSTANCE_ID:
    case VMM_IMDS_KUBERNETES_VERSION:
    case VMM_IMDS_METADATA:
    default:
      serve_value (port, exchange, row->key, chosen);
      break;
    }
}

static gboolean
is_method_of (const VmmImdsRow *row, const char *method)
{
  if (strcmp (row->method, "GET") == 0 && strcmp (method, "HEAD") == 0)
    return TRUE;
  return strcmp (row->method, method) == 0;
}

void
vmm_imds_serve (VmmImdsPort *port, VmmImdsExchange *exchange, gboolean within_limit)
{
  const VmmHttpHead *head = vmm_imds_exchange_get_head (exchange);
  const VmmImdsRow *row;
  g_auto (GStrv) chosen = NULL;

  take_note (port, exchange);
  if (vmm_imds_refuse_if_gone (port, exchange))
    return;
  if (!within_limit)
    {
      vmm_imds_answer_busy (exchange, "too many requests");
      return;
    }
  row = head->has_dots ? NULL : vmm_imds_keys_match (head->path, &chosen);
  if (row == NULL)
    vmm_imds_exchange_answer_empty (exchange, 404);
  else if (!is_method_of (row, head->method))
    {
      vmm_imds_exchange_add_header (exchange, "Allow",
                                    strcmp (row->method, "GET") == 0 ? "GET, HEAD" : row->method);
      vmm_imds_exchange_answer_empty (exchange, 405);
    }
  else if (row->max_body == 0 && vmm_imds_exchange_is_body_too_large (exchange))
    vmm_imds_exchange_answer_text (exchange, 413, "this request has no body");
  else
    serve_row (port, exchange, row, chosen);
}

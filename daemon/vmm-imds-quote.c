/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Attestation as a guest sees it: a nonce, then a quote and what the attestor says of it.
 *
 * Evidence is text of a size that must not hold the main loop up, so its form is checked in a worker.
 * A verdict counts for the boot that the quote came from: when the guest was reset meanwhile, it is
 * dropped, or it would release the user data of a boot that nobody has looked at. */

#include "config.h"

#include <string.h>

#include "vmm-imds-routes.h"
#include "vmm-json.h"
#include "vmm-log.h"

#define INVALID "invalid request: "
#define NOT_PROCESSED_TEXT "quote not processed"
#define REASON_MAX 512
#define NONCE_DIGITS 64

typedef struct
{
  VmmImdsPort *port;
  VmmImdsExchange *exchange;
  GBytes *evidence;
  guint boot;
} Judgement;

static void
judgement_free (Judgement *judgement)
{
  g_object_unref (judgement->port);
  vmm_imds_exchange_unref (judgement->exchange);
  g_bytes_unref (judgement->evidence);
  g_free (judgement);
}
G_DEFINE_AUTOPTR_CLEANUP_FUNC (Judgement, judgement_free)

/* Nonces -------------------------------------------------------------------------------------- */

static char *
to_hex (GBytes *bytes)
{
  gsize size;
  const guint8 *data = g_bytes_get_data (bytes, &size);
  GString *text = g_string_sized_new (2 * size);

  for (gsize i = 0; i < size; i++)
    g_string_append_printf (text, "%02x", data[i]);
  return g_string_free (text, FALSE);
}

void
vmm_imds_serve_nonce (VmmImdsPort *port, VmmImdsExchange *exchange)
{
  VmmMachine *machine = vmm_imds_port_get_machine (port);
  VmmAttestor *attestor = vmm_machine_get_context (machine)->attestor;
  g_autoptr (GError) error = NULL;
  g_autoptr (GBytes) nonce = NULL;
  g_autofree char *text = NULL;

  /* Who only looks uses none up. */
  if (attestor != NULL && vmm_imds_exchange_is_head (exchange))
    {
      vmm_imds_exchange_answer (exchange, 200, VMM_IMDS_TEXT_TYPE, NULL, NONCE_DIGITS);
      return;
    }
  if (attestor == NULL)
    vmm_set_error (&error, VMM_ERROR_UNSUPPORTED, "there is no attestor");
  else
    nonce = vmm_attestor_dup_nonce (attestor, vmm_machine_get_id (machine), &error);
  if (nonce == NULL)
    {
      vmm_log_warning ("no nonce for a guest", "vm", vmm_machine_get_id (machine), "error",
                       error->message, NULL);
      vmm_imds_exchange_answer_text (exchange, 500, "attestation unavailable");
      return;
    }
  vmm_machine_note_nonce (machine);
  text = to_hex (nonce);
  vmm_imds_exchange_answer_text (exchange, 200, text);
}

/* The form of evidence ------------------------------------------------------------------------ */

static gboolean
is_filled (JsonObject *object, const char *member, gboolean *filled, GError **error)
{
  const char *value = NULL;

  if (!vmm_json_get_string (object, member, "", &value, error))
    return FALSE;
  *filled = *value != '\0';
  return TRUE;
}

/* What is missing in well-formed evidence; NULL when nothing is. An error when it is not. */
static const char *
find_flaw (JsonObject *object, GError **error)
{
  const char *stage = NULL;
  JsonObject *pcrs = NULL;
  gboolean nonce, key, quote, signature;

  if (!vmm_json_get_string (object, "stage", "", &stage, error)
      || !is_filled (object, "nonce", &nonce, error) || !is_filled (object, "ak_pub", &key, error)
      || !is_filled (object, "quote", &quote, error)
      || !is_filled (object, "signature", &signature, error)
      || !vmm_json_get_object (object, "pcrs", &pcrs, error))
    return NULL;
  if (strcmp (stage, "initrd") != 0 && strcmp (stage, "ready") != 0)
    return INVALID "stage must be \"initrd\" or \"ready\"";
  if (!nonce)
    return INVALID "nonce is required";
  if (!key || !quote || !signature)
    return INVALID "ak_pub, quote and signature are required";
  if (pcrs == NULL || json_object_get_size (pcrs) == 0)
    return INVALID "pcrs is required";
  return NULL;
}

/* Returns why not, or NULL. */
static void
check_thread (GTask *task, gpointer source, gpointer data, GCancellable *cancellable)
{
  gsize size;
  const char *text = g_bytes_get_data (data, &size);
  g_autoptr (GError) error = NULL;
  g_autoptr (JsonObject) object = vmm_json_parse_object (text != NULL ? text : "", size, &error);
  const char *flaw = object != NULL ? find_flaw (object, &error) : NULL;
  g_autofree char *reason = NULL;

  if (error == NULL)
    {
      g_task_return_pointer (task, g_strdup (flaw), g_free);
      return;
    }
  reason = vmm_log_escape (error->message, REASON_MAX);
  g_task_return_pointer (task, g_strconcat ("malformed quote: ", reason, NULL), g_free);
}

/* Verdicts ------------------------------------------------------------------------------------ */

static void
log_verdict (VmmMachine *machine, VmmVerdict *verdict, gboolean released)
{
  const char *text = vmm_verdict_get_message (verdict);
  g_autofree char *message = text != NULL ? vmm_log_escape (text, REASON_MAX) : NULL;

  vmm_log_info ("quote judged", "vm", vmm_machine_get_id (machine), "stage",
                vmm_verdict_get_stage (verdict), "verified",
                vmm_verdict_is_verified (verdict) ? "true" : "false", "user_data_released",
                released ? "true" : "false", "message", message, NULL);
}

static void
answer_verdict (Judgement *judgement, VmmVerdict *verdict)
{
  JsonObject *object = json_object_new ();
  gboolean verified = vmm_verdict_is_verified (verdict);
  gboolean released = verified && g_strcmp0 (vmm_verdict_get_stage (verdict), "initrd") == 0;
  g_autoptr (JsonNode) node = NULL;
  g_autofree char *text = NULL;
  gsize length;

  json_object_set_string_member (object, "stage", vmm_verdict_get_stage (verdict));
  json_object_set_boolean_member (object, "verified", verified);
  json_object_set_boolean_member (object, "user_data_released", released);
  vmm_json_set_string_unless_empty (object, "message", vmm_verdict_get_message (verdict));
  node = vmm_json_node_take_object (object);
  text = vmm_json_to_line (node, &length);
  log_verdict (vmm_imds_port_get_machine (judgement->port), verdict, released);
  vmm_imds_exchange_answer (judgement->exchange, verified ? 200 : 403, "application/json", text,
                            length);
}

static void
answer_not_processed (Judgement *judgement, const GError *error)
{
  g_autofree char *reason = vmm_log_escape (error->message, REASON_MAX);

  vmm_log_warning ("a quote could not be judged", "vm",
                   vmm_machine_get_id (vmm_imds_port_get_machine (judgement->port)), "error",
                   reason, NULL);
  vmm_imds_exchange_answer_text (judgement->exchange, vmm_imds_status_of (error),
                                 NOT_PROCESSED_TEXT);
}

static gboolean
check_boot (Judgement *judgement, GError **error)
{
  if (judgement->boot == vmm_imds_port_get_boot (judgement->port))
    return TRUE;
  vmm_set_error (error, VMM_ERROR_CONFLICT, "the quote is of an earlier boot");
  return FALSE;
}

static void
judged_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  g_autoptr (Judgement) judgement = user_data;
  g_autoptr (GError) error = NULL;
  g_autoptr (VmmVerdict) verdict
      = vmm_attestor_judge_finish (VMM_ATTESTOR (source), result, &error);

  if (vmm_imds_refuse_if_gone (judgement->port, judgement->exchange))
    return;
  if (verdict == NULL || !check_boot (judgement, &error))
    {
      answer_not_processed (judgement, error);
      return;
    }
  vmm_machine_note_verdict (vmm_imds_port_get_machine (judgement->port), verdict);
  answer_verdict (judgement, verdict);
}

static void
judge (Judgement *judgement)
{
  VmmMachine *machine = vmm_imds_port_get_machine (judgement->port);
  VmmMachineContext *context = vmm_machine_get_context (machine);
  const VmmMachineRecord *record = vmm_machine_get_record (machine);
  const VmmImage *image = vmm_images_lookup (context->images, record->image, NULL);
  VmmBootContext boot = {
    .vm_id = record->id,
    .image = record->image,
    .kubernetes_version = record->kubernetes_version,
    .policy = image != NULL ? image->policy : NULL,
    .pinned_key = record->pinned_key,
  };

  vmm_attestor_judge_async (context->attestor, &boot, judgement->evidence, NULL, judged_cb,
                            judgement);
}

static void
checked_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  g_autoptr (Judgement) judgement = user_data;
  g_autofree char *flaw = g_task_propagate_pointer (G_TASK (result), NULL);
  VmmMachine *machine = vmm_imds_port_get_machine (judgement->port);
  g_autoptr (GError) error = NULL;

  if (vmm_imds_refuse_if_gone (judgement->port, judgement->exchange))
    return;
  if (flaw != NULL)
    {
      vmm_imds_exchange_answer_text (judgement->exchange, 400, flaw);
      return;
    }
  if (vmm_machine_get_context (machine)->attestor == NULL)
    vmm_set_error (&error, VMM_ERROR_UNSUPPORTED, "there is no attestor");
  if (error != NULL || !check_boot (judgement, &error))
    answer_not_processed (judgement, error);
  else
    judge (g_steal_pointer (&judgement));
}

void
vmm_imds_serve_quote (VmmImdsPort *port, VmmImdsExchange *exchange)
{
  g_autoptr (GTask) task = NULL;
  Judgement *judgement;

  if (vmm_imds_exchange_is_body_too_large (exchange))
    {
      vmm_imds_exchange_answer_text (exchange, 400, "malformed quote: http: request body too large");
      return;
    }
  if (!vmm_imds_begin_work (port, exchange, VMM_IMDS_JUDGEMENT))
    return;
  judgement = g_new0 (Judgement, 1);
  judgement->port = g_object_ref (port);
  judgement->exchange = vmm_imds_exchange_ref (exchange);
  judgement->evidence = g_bytes_ref (vmm_imds_exchange_get_body (exchange));
  judgement->boot = vmm_imds_port_get_boot (port);
  task = g_task_new (NULL, NULL, checked_cb, judgement);
  g_task_set_source_tag (task, vmm_imds_serve_quote);
  g_task_set_task_data (task, g_bytes_ref (judgement->evidence), (GDestroyNotify) g_bytes_unref);
  g_task_run_in_thread (task, check_thread);
}

/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What a guest is sent from the disk: its user data, and the artifacts of images. */

#include "config.h"

#include <string.h>

#include "vmm-imds-routes.h"
#include "vmm-log.h"

#define USER_DATA_NAME "user-data"
#define GATED_TEXT "user-data is released after the initrd-stage attestation verifies"
#define UNAVAILABLE_TEXT "artifact unavailable"

typedef struct
{
  VmmImdsPort *port;
  VmmImdsExchange *exchange;
  char *folder; /* NULL for user data */
} Opening;

static void
opening_free (Opening *opening)
{
  g_object_unref (opening->port);
  vmm_imds_exchange_unref (opening->exchange);
  g_free (opening->folder);
  g_free (opening);
}
G_DEFINE_AUTOPTR_CLEANUP_FUNC (Opening, opening_free)

static Opening *
opening_new (VmmImdsPort *port, VmmImdsExchange *exchange)
{
  Opening *opening = g_new0 (Opening, 1);

  opening->port = g_object_ref (port);
  opening->exchange = vmm_imds_exchange_ref (exchange);
  return opening;
}

static void
answer_failure (Opening *opening, const GError *error)
{
  VmmMachine *machine = vmm_imds_port_get_machine (opening->port);

  vmm_log_warning ("a file for a guest cannot be opened", "vm", vmm_machine_get_id (machine),
                   "error", error->message, NULL);
  vmm_imds_exchange_answer_text (opening->exchange, 500, UNAVAILABLE_TEXT);
}

/* The gate is looked at last: the VM may have been reset while the file was being opened. 204 and
 * 503, because Ignition in the guest gives the boot up at 403 and 404. */
static void
user_data_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  g_autoptr (Opening) opening = user_data;
  VmmMachine *machine = vmm_imds_port_get_machine (opening->port);
  g_autoptr (GError) error = NULL;
  g_autoptr (VmmImdsFile) file = vmm_imds_disk_open_finish (result, &error);

  if (vmm_imds_refuse_if_gone (opening->port, opening->exchange))
    return;
  if (g_error_matches (error, G_IO_ERROR, G_IO_ERROR_NOT_FOUND))
    vmm_imds_exchange_answer_empty (opening->exchange, 204);
  else if (!vmm_machine_get_record (machine)->user_data_released)
    vmm_imds_answer_busy (opening->exchange, GATED_TEXT);
  else if (file == NULL)
    answer_failure (opening, error);
  else
    vmm_imds_exchange_answer_file (opening->exchange, VMM_IMDS_TEXT_TYPE, file, FALSE);
}

void
vmm_imds_serve_user_data (VmmImdsPort *port, VmmImdsExchange *exchange)
{
  g_autofree char *path
      = vmm_machine_dup_path (vmm_imds_port_get_machine (port), USER_DATA_NAME);

  if (!vmm_imds_begin_work (port, exchange, VMM_IMDS_TRANSFER))
    return;
  vmm_imds_disk_open_own_async (vmm_imds_port_get_shared (port)->disk, path, user_data_cb,
                                opening_new (port, exchange));
}

static void
artifact_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  g_autoptr (Opening) opening = user_data;
  g_autoptr (GError) error = NULL;
  g_autoptr (VmmImdsFile) file = vmm_imds_disk_open_finish (result, &error);

  if (vmm_imds_refuse_if_gone (opening->port, opening->exchange))
    return;
  if (file != NULL)
    vmm_imds_exchange_answer_file (opening->exchange, "application/octet-stream", file, TRUE);
  else if (g_error_matches (error, G_IO_ERROR, G_IO_ERROR_NOT_FOUND))
    vmm_imds_exchange_answer_empty (opening->exchange, 404);
  else
    answer_failure (opening, error);
}

/* All files of all versions are for every VM: what they are is signed, and guests choose. */
void
vmm_imds_serve_artifact (VmmImdsPort *port, VmmImdsExchange *exchange, const char *component,
                         const char *name)
{
  static const char *const components[] = { "base", "kubernetes", NULL };

  if (!g_strv_contains (components, component))
    {
      vmm_imds_exchange_answer_empty (exchange, 404);
      return;
    }
  if (!vmm_imds_begin_work (port, exchange, VMM_IMDS_TRANSFER))
    return;
  vmm_imds_disk_open_artifact_async (vmm_imds_port_get_shared (port)->disk, component, name,
                                     artifact_cb, opening_new (port, exchange));
}

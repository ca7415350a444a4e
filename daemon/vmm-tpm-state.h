/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <gio/gio.h>

G_BEGIN_DECLS

/* What a vTPM keeps, and a copy of it. Without its state a VM cannot open what was sealed to it, so
 * that one which a power cut tore is given back, and never made anew without a word. */

typedef enum
{
  VMM_TPM_STATE_NONE,     /* there is nothing, nor was there a copy */
  VMM_TPM_STATE_GOOD,     /* as swtpm left it */
  VMM_TPM_STATE_RESTORED, /* it was lost or torn, and is the copy now */
} VmmTpmState;

/* Looks at the state in a folder vms/<id>/tpm before swtpm does. The copy is in good_directory. Fails
 * when the state is torn and there is no copy. */
void vmm_tpm_state_mend_async (const char *directory, const char *good_directory,
                               GAsyncReadyCallback callback, gpointer user_data);
gboolean vmm_tpm_state_mend_finish (GAsyncResult *result, VmmTpmState *state, GError **error);
/* Copies the state, if it is good; swtpm may run. None at all is success. */
void vmm_tpm_state_keep_async (const char *directory, const char *good_directory,
                               GAsyncReadyCallback callback, gpointer user_data);
gboolean vmm_tpm_state_keep_finish (GAsyncResult *result, GError **error);
/* Whether the bytes are a whole state of swtpm's. */
gboolean vmm_tpm_state_is_whole (const guint8 *data, gsize size);

G_END_DECLS

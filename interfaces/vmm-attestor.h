/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "vmm-backend.h"

G_BEGIN_DECLS

/**
 * VmmBootContext:
 * @vm_id: which VM boots
 * @image: the image's full reference
 * @kubernetes_version: (nullable): selects the expected PCR 13
 * @policy: (nullable): the image's policy.json, verbatim
 * @pinned_key: (nullable): the attestation key that an earlier boot pinned, as the attestor gave it
 * @expectations: (nullable): values that the daemon predicts for this boot, as JSON
 *
 * What an attestor must know of a boot to judge it. Everything that has to survive the daemon
 * is in here and in the verdict, never in the attestor.
 */
typedef struct
{
  const char *vm_id;
  const char *image;
  const char *kubernetes_version;
  const char *policy;
  const char *pinned_key;
  const char *expectations;
} VmmBootContext;

/**
 * VmmVerdict:
 *
 * The judgement of one piece of evidence. Immutable, reference counted.
 */
typedef struct _VmmVerdict VmmVerdict;
#define VMM_TYPE_VERDICT (vmm_verdict_get_type ())
GType vmm_verdict_get_type (void) G_GNUC_CONST;

VmmVerdict *vmm_verdict_new (const char *stage, gboolean verified, const char *message);
VmmVerdict *vmm_verdict_ref (VmmVerdict *self);
void vmm_verdict_unref (VmmVerdict *self);
void vmm_verdict_set_ak_fingerprint (VmmVerdict *self, const char *fingerprint);
void vmm_verdict_set_pinned_key (VmmVerdict *self, const char *key);
void vmm_verdict_set_pcr (VmmVerdict *self, guint index, const char *hex_digest);
void vmm_verdict_add_learned (VmmVerdict *self, guint index);
const char *vmm_verdict_get_stage (VmmVerdict *self);
gboolean vmm_verdict_is_verified (VmmVerdict *self);
const char *vmm_verdict_get_message (VmmVerdict *self);
const char *vmm_verdict_get_ak_fingerprint (VmmVerdict *self);
const char *vmm_verdict_get_pinned_key (VmmVerdict *self);
const char *vmm_verdict_get_pcr (VmmVerdict *self, guint index);
gboolean vmm_verdict_was_learned (VmmVerdict *self, guint index);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (VmmVerdict, vmm_verdict_unref)

/**
 * VMM_VERDICT_N_PCRS:
 *
 * How many platform configuration registers a verdict can tell of.
 */
#define VMM_VERDICT_N_PCRS 24

/**
 * VMM_ATTESTOR_EXTENSION_POINT:
 *
 * The extension point of attestors.
 */
#define VMM_ATTESTOR_EXTENSION_POINT "vmm-attestor"
#define VMM_TYPE_ATTESTOR (vmm_attestor_get_type ())
G_DECLARE_INTERFACE (VmmAttestor, vmm_attestor, VMM, ATTESTOR, VmmBackend)

/**
 * VmmAttestorInterface:
 * @verifies: whether it really judges; %FALSE for one that accepts everything
 * @begin_boot: a boot (or a guest's reset) starts: every outstanding nonce of the VM is void
 * @dup_nonce: a fresh nonce for the VM, valid for a limited time and one use
 * @judge_async: judge @evidence, the body of the guest's quote request
 * @judge_finish: (transfer full): the verdict. Evidence that is wrong is a verdict, not an error
 * @forget: the VM is gone: drop all that is kept of it
 *
 * Judges whether a guest booted what it should have.
 */
struct _VmmAttestorInterface
{
  GTypeInterface parent_iface;

  gboolean (*verifies) (VmmAttestor *self);
  void (*begin_boot) (VmmAttestor *self, const char *vm_id);
  GBytes *(*dup_nonce) (VmmAttestor *self, const char *vm_id, GError **error);
  void (*judge_async) (VmmAttestor *self, const VmmBootContext *boot, GBytes *evidence,
                       GCancellable *cancellable, GAsyncReadyCallback callback, gpointer user_data);
  VmmVerdict *(*judge_finish) (VmmAttestor *self, GAsyncResult *result, GError **error);
  void (*forget) (VmmAttestor *self, const char *vm_id);
};

gboolean vmm_attestor_verifies (VmmAttestor *self);
void vmm_attestor_begin_boot (VmmAttestor *self, const char *vm_id);
GBytes *vmm_attestor_dup_nonce (VmmAttestor *self, const char *vm_id, GError **error);
void vmm_attestor_judge_async (VmmAttestor *self, const VmmBootContext *boot, GBytes *evidence,
                               GCancellable *cancellable, GAsyncReadyCallback callback,
                               gpointer user_data);
VmmVerdict *vmm_attestor_judge_finish (VmmAttestor *self, GAsyncResult *result, GError **error);
void vmm_attestor_forget (VmmAttestor *self, const char *vm_id);

G_END_DECLS

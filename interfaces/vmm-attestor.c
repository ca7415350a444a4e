/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Judges whether a guest booted what it should have.
 *
 * The interface with its defaults and the verdict, a value that says what the evidence showed.
 * Evidence that is wrong is a verdict, never an error. An attestor keeps nothing that must survive
 * the daemon: pinned keys and learned values leave in the verdict, go into the VM's record and come
 * back in the next boot's context.
 */

#include "vmm-attestor.h"

#include "vmm-error.h"

G_STATIC_ASSERT (VMM_VERDICT_N_PCRS <= 32);

struct _VmmVerdict
{
  char *stage;
  char *message;
  char *ak_fingerprint;
  char *pinned_key;
  char *pcrs[VMM_VERDICT_N_PCRS];
  guint32 learned; /* one bit per PCR */
  gboolean verified;
};

G_DEFINE_BOXED_TYPE (VmmVerdict, vmm_verdict, vmm_verdict_ref, vmm_verdict_unref)
/**
 * VmmAttestor:
 *
 * Judges whether a guest booted what it should have. A backend that implements nothing accepts no
 * evidence and is never taken for one that verifies.
 */
G_DEFINE_INTERFACE (VmmAttestor, vmm_attestor, VMM_TYPE_BACKEND)

/* An attestor that does not say that it verifies does not. */
static gboolean
real_verifies (VmmAttestor *self)
{
  return FALSE;
}

static void
real_begin_boot (VmmAttestor *self, const char *vm_id)
{
}

static GBytes *
real_dup_nonce (VmmAttestor *self, const char *vm_id, GError **error)
{
  vmm_set_error (error, VMM_ERROR_UNSUPPORTED, "attestor gives no nonces");
  return NULL;
}

static void
real_judge_async (VmmAttestor *self, const VmmBootContext *boot, GBytes *evidence,
                  GCancellable *cancellable, GAsyncReadyCallback callback, gpointer user_data)
{
  g_task_report_error (self, callback, user_data, real_judge_async,
                       vmm_error_new (VMM_ERROR_UNSUPPORTED, "attestor judges no evidence"));
}

static VmmVerdict *
real_judge_finish (VmmAttestor *self, GAsyncResult *result, GError **error)
{
  g_return_val_if_fail (g_task_is_valid (result, self), NULL);

  return g_task_propagate_pointer (G_TASK (result), error);
}

static void
real_forget (VmmAttestor *self, const char *vm_id)
{
}

static void
vmm_attestor_default_init (VmmAttestorInterface *iface)
{
  iface->verifies = real_verifies;
  iface->begin_boot = real_begin_boot;
  iface->dup_nonce = real_dup_nonce;
  iface->judge_async = real_judge_async;
  iface->judge_finish = real_judge_finish;
  iface->forget = real_forget;
}

/**
 * vmm_attestor_verifies:
 * @self: an attestor
 *
 * Whether it really judges. One that accepts everything says no, and a VM that requires
 * attestation is then refused.
 *
 * Returns: %TRUE when a good verdict means something
 */
gboolean
vmm_attestor_verifies (VmmAttestor *self)
{
  g_return_val_if_fail (VMM_IS_ATTESTOR (self), FALSE);

  return VMM_ATTESTOR_GET_IFACE (self)->verifies (self);
}

/**
 * vmm_attestor_begin_boot:
 * @self: an attestor
 * @vm_id: the VM
 *
 * Says that a boot of the VM starts, or that the guest was reset: every nonce handed out for it
 * before is void.
 */
void
vmm_attestor_begin_boot (VmmAttestor *self, const char *vm_id)
{
  g_return_if_fail (VMM_IS_ATTESTOR (self));
  g_return_if_fail (vm_id != NULL);

  VMM_ATTESTOR_GET_IFACE (self)->begin_boot (self, vm_id);
}

/**
 * vmm_attestor_dup_nonce:
 * @self: an attestor
 * @vm_id: the VM that asks
 * @error: return location for an error
 *
 * A fresh nonce, valid for a limited time and for one use.
 *
 * Returns: (transfer full): the nonce, or %NULL with an error of `VMM_ERROR`
 */
GBytes *
vmm_attestor_dup_nonce (VmmAttestor *self, const char *vm_id, GError **error)
{
  g_return_val_if_fail (VMM_IS_ATTESTOR (self), NULL);
  g_return_val_if_fail (vm_id != NULL, NULL);

  return VMM_ATTESTOR_GET_IFACE (self)->dup_nonce (self, vm_id, error);
}

/**
 * vmm_attestor_judge_async:
 * @self: an attestor
 * @boot: what is known of the boot; copied by the attestor where it is needed later
 * @evidence: the body of the guest's request, unchecked
 * @cancellable: (nullable): gives up; no verdict is reached then
 * @callback: (scope async): called when the verdict is reached
 * @user_data: data for @callback
 *
 * Judges evidence from a guest. Evidence that is malformed or wrong gives a verdict that says so.
 *
 * Fails with `VMM_ERROR_UNSUPPORTED` when the attestor cannot judge this kind of evidence and with
 * `VMM_ERROR_INTERNAL` when it could not do its work.
 */
void
vmm_attestor_judge_async (VmmAttestor *self, const VmmBootContext *boot, GBytes *evidence,
                          GCancellable *cancellable, GAsyncReadyCallback callback,
                          gpointer user_data)
{
  g_return_if_fail (VMM_IS_ATTESTOR (self));
  g_return_if_fail (boot != NULL && boot->vm_id != NULL);
  g_return_if_fail (evidence != NULL);
  g_return_if_fail (cancellable == NULL || G_IS_CANCELLABLE (cancellable));

  VMM_ATTESTOR_GET_IFACE (self)->judge_async (self, boot, evidence, cancellable, callback,
                                              user_data);
}

/**
 * vmm_attestor_judge_finish:
 * @self: an attestor
 * @result: what the callback was given
 * @error: return location for an error
 *
 * Ends vmm_attestor_judge_async().
 *
 * Returns: (transfer full): the verdict, or %NULL with an error
 */
VmmVerdict *
vmm_attestor_judge_finish (VmmAttestor *self, GAsyncResult *result, GError **error)
{
  g_return_val_if_fail (VMM_IS_ATTESTOR (self), NULL);
  g_return_val_if_fail (G_IS_ASYNC_RESULT (result), NULL);

  return VMM_ATTESTOR_GET_IFACE (self)->judge_finish (self, result, error);
}

/**
 * vmm_attestor_forget:
 * @self: an attestor
 * @vm_id: the VM
 *
 * Says that the VM is gone: the attestor drops all that it keeps of it.
 */
void
vmm_attestor_forget (VmmAttestor *self, const char *vm_id)
{
  g_return_if_fail (VMM_IS_ATTESTOR (self));
  g_return_if_fail (vm_id != NULL);

  VMM_ATTESTOR_GET_IFACE (self)->forget (self, vm_id);
}

/**
 * vmm_verdict_new:
 * @stage: which stage of the boot the evidence is of: `initrd` or `ready`
 * @verified: whether the guest booted what it should have
 * @message: (nullable): one sentence for people; what is wrong when it is not verified
 *
 * Makes a verdict. The setters are for the attestor, before it hands the verdict out.
 *
 * Returns: (transfer full): the verdict
 */
VmmVerdict *
vmm_verdict_new (const char *stage, gboolean verified, const char *message)
{
  VmmVerdict *self;

  g_return_val_if_fail (stage != NULL, NULL);

  self = g_atomic_rc_box_new0 (VmmVerdict);
  self->stage = g_strdup (stage);
  self->verified = verified;
  self->message = g_strdup (message);
  return self;
}

/**
 * vmm_verdict_ref:
 * @self: a verdict
 *
 * Takes a reference.
 *
 * Returns: (transfer full): @self
 */
VmmVerdict *
vmm_verdict_ref (VmmVerdict *self)
{
  g_return_val_if_fail (self != NULL, NULL);

  return g_atomic_rc_box_acquire (self);
}

static void
verdict_clear (gpointer data)
{
  VmmVerdict *self = data;

  g_free (self->stage);
  g_free (self->message);
  g_free (self->ak_fingerprint);
  g_free (self->pinned_key);
  for (guint i = 0; i < VMM_VERDICT_N_PCRS; i++)
    g_free (self->pcrs[i]);
}

/**
 * vmm_verdict_unref:
 * @self: (transfer full): a verdict
 *
 * Releases a reference.
 */
void
vmm_verdict_unref (VmmVerdict *self)
{
  g_return_if_fail (self != NULL);

  g_atomic_rc_box_release_full (self, verdict_clear);
}

/**
 * vmm_verdict_set_ak_fingerprint:
 * @self: a verdict
 * @fingerprint: (nullable): the attestation key's fingerprint, for people and reports
 *
 * Says which attestation key signed the evidence.
 */
void
vmm_verdict_set_ak_fingerprint (VmmVerdict *self, const char *fingerprint)
{
  g_return_if_fail (self != NULL);

  g_free (self->ak_fingerprint);
  self->ak_fingerprint = g_strdup (fingerprint);
}

/**
 * vmm_verdict_set_pinned_key:
 * @self: a verdict
 * @key: (nullable): the key to pin, in a form of the attestor's own
 *
 * Gives the key that the VM's record keeps and that the next boot's context brings back.
 */
void
vmm_verdict_set_pinned_key (VmmVerdict *self, const char *key)
{
  g_return_if_fail (self != NULL);

  g_free (self->pinned_key);
  self->pinned_key = g_strdup (key);
}

/**
 * vmm_verdict_set_pcr:
 * @self: a verdict
 * @index: which register, below %VMM_VERDICT_N_PCRS
 * @hex_digest: (nullable): its value in lower-case hex
 *
 * Says what a platform configuration register held.
 */
void
vmm_verdict_set_pcr (VmmVerdict *self, guint index, const char *hex_digest)
{
  g_return_if_fail (self != NULL);
  g_return_if_fail (index < VMM_VERDICT_N_PCRS);

  g_free (self->pcrs[index]);
  self->pcrs[index] = g_strdup (hex_digest);
}

/**
 * vmm_verdict_add_learned:
 * @self: a verdict
 * @index: which register, below %VMM_VERDICT_N_PCRS
 *
 * Says that the register's value was not checked but learned as the one to expect.
 */
void
vmm_verdict_add_learned (VmmVerdict *self, guint index)
{
  g_return_if_fail (self != NULL);
  g_return_if_fail (index < VMM_VERDICT_N_PCRS);

  self->learned |= (guint32) 1 << index;
}

/**
 * vmm_verdict_get_stage:
 * @self: a verdict
 *
 * Which stage of the boot the evidence is of.
 *
 * Returns: (transfer none): `initrd` or `ready`
 */
const char *
vmm_verdict_get_stage (VmmVerdict *self)
{
  g_return_val_if_fail (self != NULL, NULL);

  return self->stage;
}

/**
 * vmm_verdict_is_verified:
 * @self: a verdict
 *
 * Whether the guest booted what it should have, so that its user-data may be released.
 *
 * Returns: %TRUE when it did
 */
gboolean
vmm_verdict_is_verified (VmmVerdict *self)
{
  g_return_val_if_fail (self != NULL, FALSE);

  return self->verified;
}

/**
 * vmm_verdict_get_message:
 * @self: a verdict
 *
 * One sentence for people.
 *
 * Returns: (transfer none) (nullable): the sentence
 */
const char *
vmm_verdict_get_message (VmmVerdict *self)
{
  g_return_val_if_fail (self != NULL, NULL);

  return self->message;
}

/**
 * vmm_verdict_get_ak_fingerprint:
 * @self: a verdict
 *
 * Which attestation key signed the evidence.
 *
 * Returns: (transfer none) (nullable): its fingerprint
 */
const char *
vmm_verdict_get_ak_fingerprint (VmmVerdict *self)
{
  g_return_val_if_fail (self != NULL, NULL);

  return self->ak_fingerprint;
}

/**
 * vmm_verdict_get_pinned_key:
 * @self: a verdict
 *
 * The key that the VM's record is to keep.
 *
 * Returns: (transfer none) (nullable): the key, in a form of the attestor's own
 */
const char *
vmm_verdict_get_pinned_key (VmmVerdict *self)
{
  g_return_val_if_fail (self != NULL, NULL);

  return self->pinned_key;
}

/**
 * vmm_verdict_get_pcr:
 * @self: a verdict
 * @index: which register, below %VMM_VERDICT_N_PCRS
 *
 * What a platform configuration register held.
 *
 * Returns: (transfer none) (nullable): its value in hex, or %NULL when it is not known
 */
const char *
vmm_verdict_get_pcr (VmmVerdict *self, guint index)
{
  g_return_val_if_fail (self != NULL, NULL);
  g_return_val_if_fail (index < VMM_VERDICT_N_PCRS, NULL);

  return self->pcrs[index];
}

/**
 * vmm_verdict_was_learned:
 * @self: a verdict
 * @index: which register, below %VMM_VERDICT_N_PCRS
 *
 * Whether the register's value was learned instead of checked.
 *
 * Returns: %TRUE when it was learned
 */
gboolean
vmm_verdict_was_learned (VmmVerdict *self, guint index)
{
  g_return_val_if_fail (self != NULL, FALSE);
  g_return_val_if_fail (index < VMM_VERDICT_N_PCRS, FALSE);

  return (self->learned & ((guint32) 1 << index)) != 0;
}

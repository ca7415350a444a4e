/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Accepts every quote that names a fresh nonce.
 *
 * For development, tests and hosts whose guests need no proof. It judges nothing: it is never
 * chosen unless somebody asks for it by name, and it says of itself that it does not verify. What
 * it keeps (the outstanding nonces) need not survive the daemon.
 */

#include <string.h>
#include <time.h>

#include "interfaces/vmm.h"
#include "vmm-evidence.h"
#include "vmm-nonces.h"

#define VMM_TYPE_ATTEST_NOOP (vmm_attest_noop_get_type ())
G_DECLARE_FINAL_TYPE (VmmAttestNoop, vmm_attest_noop, VMM, ATTEST_NOOP, GObject)

/* Clients show these two. */
#define MATCHED_TEXT "nonce matched; quote not verified (noop attestor)"
#define UNKNOWN_TEXT "unknown or expired nonce"
#define STAGE_SHOWN_MAX 32

struct _VmmAttestNoop
{
  GObject parent_instance;

  VmmNonces *nonces;
};

static void vmm_attest_noop_attestor_init (VmmAttestorInterface *iface);

G_DEFINE_FINAL_TYPE_WITH_CODE (VmmAttestNoop, vmm_attest_noop, G_TYPE_OBJECT,
                               G_IMPLEMENT_INTERFACE (VMM_TYPE_BACKEND, NULL)
                                   G_IMPLEMENT_INTERFACE (VMM_TYPE_ATTESTOR,
                                                          vmm_attest_noop_attestor_init))

/* A clock that goes on while the host sleeps: a nonce must not outlive a suspended night. */
static gint64
now_us (void)
{
  struct timespec now = { 0 };

  clock_gettime (CLOCK_BOOTTIME, &now);
  return (gint64) now.tv_sec * G_USEC_PER_SEC + now.tv_nsec / 1000;
}

static gboolean
vmm_attest_noop_verifies (VmmAttestor *attestor)
{
  return FALSE;
}

static void
vmm_attest_noop_begin_boot (VmmAttestor *attestor, const char *vm_id)
{
  vmm_nonces_drop (VMM_ATTEST_NOOP (attestor)->nonces, vm_id);
}

static void
vmm_attest_noop_forget (VmmAttestor *attestor, const char *vm_id)
{
  vmm_nonces_drop (VMM_ATTEST_NOOP (attestor)->nonces, vm_id);
}

static GBytes *
vmm_attest_noop_dup_nonce (VmmAttestor *attestor, const char *vm_id, GError **error)
{
  return vmm_nonces_issue (VMM_ATTEST_NOOP (attestor)->nonces, vm_id, now_us (), error);
}

/* The nonce first: it is used up whatever else is wrong. */
static VmmVerdict *
judge (VmmAttestNoop *self, const char *vm_id, GBytes *evidence)
{
  g_autofree char *stage = NULL;
  g_autofree char *nonce = NULL;
  g_autofree char *reason = NULL;
  g_autofree char *message = NULL;
  g_autofree char *shown = NULL;
  gsize length;
  const char *text = g_bytes_get_data (evidence, &length);

  if (!vmm_evidence_read (text != NULL ? text : "", length, &stage, &nonce, &reason))
    {
      message = g_strdup_printf ("malformed quote: %s", reason);
      return vmm_verdict_new ("", FALSE, message);
    }
  if (!vmm_nonces_take (self->nonces, vm_id, nonce, now_us ()))
    return vmm_verdict_new (stage, FALSE, UNKNOWN_TEXT);
  if (g_str_equal (stage, "initrd") || g_str_equal (stage, "ready"))
    return vmm_verdict_new (stage, TRUE, MATCHED_TEXT);

  shown = g_utf8_make_valid (stage, (gssize) MIN (strlen (stage), STAGE_SHOWN_MAX));
  message = g_strdup_printf ("unknown stage \"%s\"", shown);
  return vmm_verdict_new (stage, FALSE, message);
}

static void
vmm_attest_noop_judge_async (VmmAttestor *attestor, const VmmBootContext *boot, GBytes *evidence,
                             GCancellable *cancellable, GAsyncReadyCallback callback,
                             gpointer user_data)
{
  g_autoptr (GTask) task = g_task_new (attestor, cancellable, callback, user_data);

  g_task_set_source_tag (task, vmm_attest_noop_judge_async);
  if (g_task_return_error_if_cancelled (task))
    return;
  g_task_return_pointer (task, judge (VMM_ATTEST_NOOP (attestor), boot->vm_id, evidence),
                         (GDestroyNotify) vmm_verdict_unref);
}

static void
vmm_attest_noop_finalize (GObject *object)
{
  vmm_nonces_free (VMM_ATTEST_NOOP (object)->nonces);
  G_OBJECT_CLASS (vmm_attest_noop_parent_class)->finalize (object);
}

static void
vmm_attest_noop_attestor_init (VmmAttestorInterface *iface)
{
  iface->verifies = vmm_attest_noop_verifies;
  iface->begin_boot = vmm_attest_noop_begin_boot;
  iface->dup_nonce = vmm_attest_noop_dup_nonce;
  iface->judge_async = vmm_attest_noop_judge_async;
  iface->forget = vmm_attest_noop_forget;
}

static void
vmm_attest_noop_class_init (VmmAttestNoopClass *klass)
{
  G_OBJECT_CLASS (klass)->finalize = vmm_attest_noop_finalize;
}

static void
vmm_attest_noop_init (VmmAttestNoop *self)
{
  self->nonces = vmm_nonces_new ();
}

VMM_PLUGIN_DEFINE (vmm_attest_noop, VMM_ATTESTOR_EXTENSION_POINT, VMM_TYPE_ATTEST_NOOP, "noop", -1)

/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The fake attestor: every nonce is another one; verdicts are the test's. */

#include "fake-backends-private.h"

#include <string.h>

#define NONCE_BYTES 32

struct _TestFakeAttestor
{
  GObject parent_instance;
};

static void attestor_backend_init (VmmBackendInterface *iface);
static void attestor_init (VmmAttestorInterface *iface);

G_DEFINE_FINAL_TYPE_WITH_CODE (TestFakeAttestor, test_fake_attestor, G_TYPE_OBJECT,
                               G_IMPLEMENT_INTERFACE (VMM_TYPE_BACKEND, attestor_backend_init)
                                   G_IMPLEMENT_INTERFACE (VMM_TYPE_ATTESTOR, attestor_init))

static VmmVerdict *verdict;

static gboolean
test_fake_attestor_is_available (VmmBackend *backend, char **reason)
{
  return test_fake_is_available (3, reason);
}

static GStrv
test_fake_attestor_dup_capabilities (VmmBackend *backend)
{
  const char *names[] = { "learn", NULL };

  return g_strdupv ((char **) names);
}

static gboolean
test_fake_attestor_verifies (VmmAttestor *attestor)
{
  return test_fakes.verifies;
}

static void
test_fake_attestor_begin_boot (VmmAttestor *attestor, const char *vm_id)
{
  test_fake_log ("attestor.begin-boot", vm_id);
}

static GBytes *
test_fake_attestor_dup_nonce (VmmAttestor *attestor, const char *vm_id, GError **error)
{
  static guint32 counter;
  guint8 nonce[NONCE_BYTES] = { 0 };
  TestFakeMode mode;

  test_fake_log ("attestor.nonce", vm_id);
  mode = test_fake_check ("attestor.nonce", vm_id, error);
  if (mode == TEST_FAKE_FAIL)
    return NULL;
  counter++;
  memcpy (nonce, &counter, sizeof counter);
  return g_bytes_new (nonce, mode == TEST_FAKE_LIE ? 1 : sizeof nonce);
}

/* The stage that the evidence names, as far as a fake must know. */
static const char *
stage_of (GBytes *evidence)
{
  gsize size;
  const char *text = g_bytes_get_data (evidence, &size);

  if (size > 0 && g_strstr_len (text, (gssize) size, "\"ready\"") != NULL)
    return "ready";
  return "initrd";
}

static void
judge (GTask *task, gboolean lie)
{
  const char *stage = stage_of (g_task_get_task_data (task));

  if (verdict != NULL && !lie)
    g_task_return_pointer (task, vmm_verdict_ref (verdict), (GDestroyNotify) vmm_verdict_unref);
  else
    g_task_return_pointer (task, vmm_verdict_new (stage, TRUE, "verified by the fake"),
                           (GDestroyNotify) vmm_verdict_unref);
}

static void
test_fake_attestor_judge_async (VmmAttestor *attestor, const VmmBootContext *boot, GBytes *evidence,
                                GCancellable *cancellable, GAsyncReadyCallback callback,
                                gpointer user_data)
{
  g_autoptr (GTask) task = g_task_new (attestor, cancellable, callback, user_data);

  g_task_set_source_tag (task, test_fake_attestor_judge_async);
  g_task_set_task_data (task, g_bytes_ref (evidence), (GDestroyNotify) g_bytes_unref);
  test_fake_run ("attestor.judge", boot->vm_id, task, judge);
}

static void
test_fake_attestor_forget (VmmAttestor *attestor, const char *vm_id)
{
  test_fake_log ("attestor.forget", vm_id);
}

static void
attestor_backend_init (VmmBackendInterface *iface)
{
  iface->is_available = test_fake_attestor_is_available;
  iface->dup_capabilities = test_fake_attestor_dup_capabilities;
}

static void
attestor_init (VmmAttestorInterface *iface)
{
  iface->verifies = test_fake_attestor_verifies;
  iface->begin_boot = test_fake_attestor_begin_boot;
  iface->dup_nonce = test_fake_attestor_dup_nonce;
  iface->judge_async = test_fake_attestor_judge_async;
  iface->forget = test_fake_attestor_forget;
}

static void
test_fake_attestor_class_init (TestFakeAttestorClass *klass)
{
}

static void
test_fake_attestor_init (TestFakeAttestor *self)
{
}

void
test_fake_attestor_reset (void)
{
  g_clear_pointer (&verdict, vmm_verdict_unref);
}

void
test_fakes_set_verdict (VmmVerdict *new_verdict)
{
  g_clear_pointer (&verdict, vmm_verdict_unref);
  if (new_verdict != NULL)
    verdict = vmm_verdict_ref (new_verdict);
}

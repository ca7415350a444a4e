/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The attestor that accepts every quote with a fresh nonce: the module itself, its nonces at chosen
 * times, its reader with bad inputs. */

#include <string.h>

#include "interfaces/vmm.h"
#include "test-await.h"
#include "test-plugins.h"

/* The parts of the module, which exports nothing. */
#include "plugins/attest-noop/vmm-evidence.c"
#include "plugins/attest-noop/vmm-nonces.c"

typedef struct
{
  char *directory;
  VmmPluginRegistry *registry;
  VmmAttestor *attestor;
} Fixture;

static void
set_up (Fixture *fixture, gconstpointer data)
{
  fixture->directory = test_make_directory ();
  fixture->registry = test_load_plugins (fixture->directory, NULL);
  fixture->attestor
      = VMM_ATTESTOR (test_choose_plugin (fixture->registry, VMM_PLUGIN_KIND_ATTESTOR, "noop"));
}

static void
tear_down (Fixture *fixture, gconstpointer data)
{
  g_clear_object (&fixture->registry);
  test_remove_directory (fixture->directory);
}

static char *
to_hex (GBytes *bytes)
{
  gsize length;
  const guint8 *data = g_bytes_get_data (bytes, &length);
  GString *hex = g_string_new (NULL);

  for (gsize i = 0; i < length; i++)
    g_string_append_printf (hex, "%02x", data[i]);
  return g_string_free (hex, FALSE);
}

static char *
get_nonce (Fixture *fixture, const char *vm_id)
{
  g_autoptr (GError) error = NULL;
  g_autoptr (GBytes) nonce = vmm_attestor_dup_nonce (fixture->attestor, vm_id, &error);

  g_assert_no_error (error);
  g_assert_cmpuint (g_bytes_get_size (nonce), ==, 32);
  return to_hex (nonce);
}

static VmmVerdict *
judge_text (Fixture *fixture, const char *vm_id, const char *text)
{
  const VmmBootContext boot = { .vm_id = vm_id, .image = "base_0.1.0" };
  g_autoptr (GBytes) evidence = g_bytes_new (text, strlen (text));
  g_autoptr (GAsyncResult) result = NULL;
  g_autoptr (GError) error = NULL;
  TestAwait await = TEST_AWAIT_INIT;
  VmmVerdict *verdict;

  vmm_attestor_judge_async (fixture->attestor, &boot, evidence, NULL, test_await_cb, &await);
  result = test_await (&await);
  verdict = vmm_attestor_judge_finish (fixture->attestor, result, &error);
  g_assert_no_error (error);
  g_assert_nonnull (verdict);
  return verdict;
}

static void
assert_verdict (Fixture *fixture, const char *vm_id, const char *stage, const char *nonce,
                gboolean verified, const char *message)
{
  g_autofree char *text
      = g_strdup_printf ("{\"ak_pub\": \"AAAA\", \"pcrs\": {\"sha256\": {\"0\": \"00\"}}, "
                         "\"stage\": \"%s\", \"nonce\": \"%s\", \"more\": [1, 2.5e3, null]}",
                         stage, nonce);
  g_autoptr (VmmVerdict) verdict = judge_text (fixture, vm_id, text);

  g_assert_cmpstr (vmm_verdict_get_message (verdict), ==, message);
  g_assert_true (vmm_verdict_is_verified (verdict) == verified);
  g_assert_cmpstr (vmm_verdict_get_stage (verdict), ==, stage);
  g_assert_null (vmm_verdict_get_ak_fingerprint (verdict));
  g_assert_null (vmm_verdict_get_pinned_key (verdict));
}

#define MATCHED "nonce matched; quote not verified (noop attestor)"
#define UNKNOWN "unknown or expired nonce"

static void
test_matched (Fixture *fixture, gconstpointer data)
{
  g_autofree char *first = get_nonce (fixture, "a");
  g_autofree char *second = get_nonce (fixture, "a");
  g_autofree char *upper = g_ascii_strup (second, -1);

  g_assert_false (vmm_attestor_verifies (fixture->attestor));
  g_assert_cmpstr (first, !=, second);
  assert_verdict (fixture, "a", "initrd", first, TRUE, MATCHED);
  assert_verdict (fixture, "a", "ready", upper, TRUE, MATCHED);
}

static void
test_wrong_nonces (Fixture *fixture, gconstpointer data)
{
  g_autofree char *nonce = get_nonce (fixture, "a");
  g_autofree char *longer = g_strconcat (nonce, "00", NULL);
  g_autofree char *shorter = g_strndup (nonce, 62);

  assert_verdict (fixture, "a", "initrd", "", FALSE, UNKNOWN);
  assert_verdict (fixture, "a", "initrd", longer, FALSE, UNKNOWN);
  assert_verdict (fixture, "a", "initrd", shorter, FALSE, UNKNOWN);
  assert_verdict (fixture, "a", "initrd", "not hex", FALSE, UNKNOWN);
  /* It is another VM's. */
  assert_verdict (fixture, "b", "initrd", nonce, FALSE, UNKNOWN);
  /* It is good once. */
  assert_verdict (fixture, "a", "initrd", nonce, TRUE, MATCHED);
  assert_verdict (fixture, "a", "initrd", nonce, FALSE, UNKNOWN);
}

static void
test_unknown_stage (Fixture *fixture, gconstpointer data)
{
  g_autofree char *nonce = get_nonce (fixture, "a");

  assert_verdict (fixture, "a", "later", nonce, FALSE, "unknown stage \"later\"");
  /* The nonce is used up nevertheless. */
  assert_verdict (fixture, "a", "initrd", nonce, FALSE, UNKNOWN);
}

static void
test_new_boot (Fixture *fixture, gconstpointer data)
{
  g_autofree char *of_a = get_nonce (fixture, "a");
  g_autofree char *of_b = get_nonce (fixture, "b");
  g_autofree char *of_c = get_nonce (fixture, "c");

  vmm_attestor_begin_boot (fixture->attestor, "a");
  vmm_attestor_forget (fixture->attestor, "b");
  vmm_attestor_forget (fixture->attestor, "unheard of");
  assert_verdict (fixture, "a", "initrd", of_a, FALSE, UNKNOWN);
  assert_verdict (fixture, "b", "initrd", of_b, FALSE, UNKNOWN);
  assert_verdict (fixture, "c", "initrd", of_c, TRUE, MATCHED);
}

static void
test_malformed (Fixture *fixture, gconstpointer data)
{
  g_autoptr (VmmVerdict) verdict = judge_text (fixture, "a", "[]");

  g_assert_false (vmm_verdict_is_verified (verdict));
  g_assert_cmpstr (vmm_verdict_get_message (verdict), ==,
                   "malformed quote: it is not a JSON object");
  vmm_verdict_unref (verdict);
  verdict = judge_text (fixture, "a", "");
  g_assert_false (vmm_verdict_is_verified (verdict));
}

static void
test_cancelled (Fixture *fixture, gconstpointer data)
{
  const VmmBootContext boot = { .vm_id = "a", .image = "base_0.1.0" };
  g_autoptr (GBytes) evidence = g_bytes_new_static ("{}", 2);
  g_autoptr (GCancellable) cancelled = g_cancellable_new ();
  g_autoptr (GAsyncResult) result = NULL;
  g_autoptr (GError) error = NULL;
  TestAwait await = TEST_AWAIT_INIT;

  g_cancellable_cancel (cancelled);
  vmm_attestor_judge_async (fixture->attestor, &boot, evidence, cancelled, test_await_cb, &await);
  result = test_await (&await);
  g_assert_null (vmm_attestor_judge_finish (fixture->attestor, result, &error));
  g_assert_error (error, G_IO_ERROR, G_IO_ERROR_CANCELLED);
}

static void
test_never_by_itself (Fixture *fixture, gconstpointer data)
{
  g_autoptr (GError) error = NULL;

  g_assert_null (vmm_plugin_registry_choose (fixture->registry, VMM_PLUGIN_KIND_ATTESTOR, "auto",
                                             NULL, &error));
  g_assert_error (error, VMM_ERROR, VMM_ERROR_UNSUPPORTED);
}

static void
test_expiry (void)
{
  VmmNonces *nonces = vmm_nonces_new ();
  const gint64 start = 1000;
  g_autoptr (GBytes) first = vmm_nonces_issue (nonces, "a", start, NULL);
  g_autoptr (GBytes) second = vmm_nonces_issue (nonces, "a", start, NULL);
  g_autofree char *first_hex = to_hex (first);
  g_autofree char *second_hex = to_hex (second);

  g_assert_true (vmm_nonces_take (nonces, "a", first_hex, start + VMM_NONCE_LIFETIME_US));
  g_assert_false (vmm_nonces_take (nonces, "a", second_hex, start + VMM_NONCE_LIFETIME_US + 1));
  /* And not again, whatever the clock says. */
  g_assert_false (vmm_nonces_take (nonces, "a", second_hex, start));
  g_assert_cmpuint (g_hash_table_size (nonces->by_vm), ==, 0);
  vmm_nonces_free (nonces);
}

static void
test_bounds (void)
{
  VmmNonces *nonces = vmm_nonces_new ();
  g_autoptr (GPtrArray) hex = g_ptr_array_new_with_free_func (g_free);
  g_autoptr (GError) error = NULL;
  g_autoptr (GBytes) refused = NULL;
  g_autoptr (GBytes) later = NULL;

  for (guint i = 0; i <= VMM_NONCES_PER_VM; i++)
    {
      g_autoptr (GBytes) nonce = vmm_nonces_issue (nonces, "a", i, NULL);

      g_ptr_array_add (hex, to_hex (nonce));
    }
  /* The oldest made place. */
  g_assert_false (vmm_nonces_take (nonces, "a", g_ptr_array_index (hex, 0), 10));
  for (guint i = 1; i <= VMM_NONCES_PER_VM; i++)
    g_assert_true (vmm_nonces_take (nonces, "a", g_ptr_array_index (hex, i), 10));
  vmm_nonces_drop (nonces, "a");

  for (guint i = 0; i < VMM_NONCES_MAX_VMS; i++)
    {
      g_autofree char *id = g_strdup_printf ("%08x", i);
      GArray *none = g_array_new (FALSE, TRUE, sizeof (Nonce));

      g_array_set_size (none, 1);
      g_hash_table_insert (nonces->by_vm, g_steal_pointer (&id), none);
    }
  refused = vmm_nonces_issue (nonces, "one more", 0, &error);
  g_assert_null (refused);
  g_assert_error (error, VMM_ERROR, VMM_ERROR_CONFLICT);
  /* Those that are too old make place for all. */
  later = vmm_nonces_issue (nonces, "one more", VMM_NONCE_LIFETIME_US + 1, NULL);
  g_assert_nonnull (later);
  g_assert_cmpuint (g_hash_table_size (nonces->by_vm), ==, 1);
  vmm_nonces_free (nonces);
}

static void
test_good_evidence (void)
{
  static const struct
  {
    const char *text;
    const char *stage;
    const char *nonce;
  } cases[] = {
    { "{}", "", "" },
    { " \t\r\n{ } \n", "", "" },
    { "{\"stage\":\"ready\",\"nonce\":\"ab\"}", "ready", "ab" },
    { "{\"nonce\":\"ab\"}", "", "ab" },
    { "{\"x\":{\"nonce\":\"inner\"},\"nonce\":\"outer\"}", "", "outer" },
    { "{\"x\":[{\"stage\":1},[],[[]]],\"stage\":\"s\"}", "s", "" },
    { "{\"x\":\"\\u00e9\\\"\\\\\\/\\b\\f\\n\\r\\t\",\"stage\":\"\303\251\"}", "\303\251", "" },
    { "{\"a\":-0,\"b\":0.5,\"c\":12e-7,\"d\":true,\"e\":false,\"f\":null}", "", "" },
    { "{\"Stage\":\"x\",\"nonce \":\"y\"}", "", "" },
  };

  for (guint i = 0; i < G_N_ELEMENTS (cases); i++)
    {
      g_autofree char *stage = NULL;
      g_autofree char *nonce = NULL;
      g_autofree char *reason = NULL;

      g_test_message ("%s", cases[i].text);
      g_assert_true (
          vmm_evidence_read (cases[i].text, strlen (cases[i].text), &stage, &nonce, &reason));
      g_assert_cmpstr (stage, ==, cases[i].stage);
      g_assert_cmpstr (nonce, ==, cases[i].nonce);
    }
}

static void
assert_bad (const char *text, gsize length)
{
  g_autofree char *copy = g_memdup2 (text, length); /* the end is the end: ASan looks */
  g_autofree char *stage = NULL;
  g_autofree char *nonce = NULL;
  g_autofree char *reason = NULL;

  g_assert_false (vmm_evidence_read (length > 0 ? copy : "", length, &stage, &nonce, &reason));
  g_assert_nonnull (reason);
  g_assert_null (stage);
  g_assert_null (nonce);
}

static void
test_bad_evidence (void)
{
  static const char *const cases[] = {
    "",
    " ",
    "[]",
    "1",
    "null",
    "\"x\"",
    "{",
    "{\"",
    "{\"a",
    "{\"a\"",
    "{\"a\":",
    "{\"a\":1",
    "{\"a\":1,",
    "{\"a\":1,}",
    "{,}",
    "{1:2}",
    "{a:1}",
    "{'a':1}",
    "{\"a\" 1}",
    "{\"a\":1 \"b\":2}",
    "{\"a\":1]",
    "{\"a\":[1}",
    "{\"a\":[1,]}",
    "{\"a\":[,1]}",
    "{\"a\":[1 2]}",
    "{}{}",
    "{} x",
    "{}}",
    "{\"a\":01}",
    "{\"a\":-}",
    "{\"a\":1.}",
    "{\"a\":.5}",
    "{\"a\":1e}",
    "{\"a\":+1}",
    "{\"a\":0x1}",
    "{\"a\":tru}",
    "{\"a\":True}",
    "{\"a\":NaN}",
    "{\"a\":\"\\x\"}",
    "{\"a\":\"\\u12g4\"}",
    "{\"a\":\"\\u12",
    "{\"a\":\"\\",
    "{\"a\":\"\n\"}",
    "{\"a\":\"\200\"}",
    "{\"\377\":1}",
    "{\"stage\":1}",
    "{\"stage\":null}",
    "{\"nonce\":{}}",
    "{\"nonce\":[\"x\"]}",
    "{\"stage\":\"a\",\"stage\":\"b\"}",
    "{\"nonce\":\"a\",\"x\":1,\"nonce\":\"a\"}",
    "//{}",
    "{}//",
    "\357\273\277{}",
  };
  g_autofree char *deep = NULL;
  g_autofree char *long_value = g_strnfill (MAX_VALUE + 1, 'a');
  g_autofree char *long_text = g_strdup_printf ("{\"nonce\":\"%s\"}", long_value);
  g_autofree char *huge = g_malloc0 (VMM_EVIDENCE_MAX_BYTES + 1);

  for (guint i = 0; i < G_N_ELEMENTS (cases); i++)
    {
      g_autofree char *shown = g_strescape (cases[i], NULL);

      g_test_message ("%s", shown);
      assert_bad (cases[i], strlen (cases[i]));
    }
  assert_bad ("{}\0", 3);
  assert_bad ("{\"a\":\0}", 7);
  assert_bad (long_text, strlen (long_text));
  memset (huge, ' ', VMM_EVIDENCE_MAX_BYTES + 1);
  huge[0] = '{';
  huge[VMM_EVIDENCE_MAX_BYTES] = '}';
  assert_bad (huge, VMM_EVIDENCE_MAX_BYTES + 1);

  deep = g_strnfill (100000, '[');
  memcpy (deep, "{\"a\":", 5);
  assert_bad (deep, 100000);
}

/* Every prefix of something good is bad, and is read without looking behind its end. */
static void
test_cut_evidence (void)
{
  static const char text[]
      = "{\"stage\":\"initrd\",\"a\":[true,-1.5e+3,{\"b\":null}],\"nonce\":\"\\u0041\"}";

  for (gsize i = 0; i < sizeof text - 1; i++)
    assert_bad (text, i);
}

static void
test_depth (void)
{
  for (guint depth = 1; depth <= MAX_DEPTH + 1; depth++)
    {
      g_autoptr (GString) text = g_string_new ("{\"a\":");
      g_autofree char *stage = NULL;
      g_autofree char *nonce = NULL;
      g_autofree char *reason = NULL;
      gboolean good;

      for (guint i = 1; i < depth; i++)
        g_string_append (text, i % 2 != 0 ? "[" : "{\"b\":");
      g_string_append_c (text, '0');
      for (guint i = depth - 1; i > 0; i--)
        g_string_append_c (text, i % 2 != 0 ? ']' : '}');
      g_string_append_c (text, '}');
      good = vmm_evidence_read (text->str, text->len, &stage, &nonce, &reason);
      g_assert_true (good == (depth <= MAX_DEPTH));
    }
}

int
main (int argc, char **argv)
{
  g_test_init (&argc, &argv, G_TEST_OPTION_ISOLATE_DIRS, NULL);

#define ADD(path, function)                                                                        \
  g_test_add ("/attest-noop/" path, Fixture, NULL, set_up, function, tear_down)
  ADD ("matched", test_matched);
  ADD ("wrong-nonces", test_wrong_nonces);
  ADD ("unknown-stage", test_unknown_stage);
  ADD ("new-boot", test_new_boot);
  ADD ("malformed", test_malformed);
  ADD ("cancelled", test_cancelled);
  ADD ("never-by-itself", test_never_by_itself);
#undef ADD
  g_test_add_func ("/attest-noop/nonces/expiry", test_expiry);
  g_test_add_func ("/attest-noop/nonces/bounds", test_bounds);
  g_test_add_func ("/attest-noop/evidence/good", test_good_evidence);
  g_test_add_func ("/attest-noop/evidence/bad", test_bad_evidence);
  g_test_add_func ("/attest-noop/evidence/cut", test_cut_evidence);
  g_test_add_func ("/attest-noop/evidence/depth", test_depth);
  return g_test_run ();
}

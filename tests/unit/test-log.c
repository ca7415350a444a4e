/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The daemon's log: what a line looks like, what is dropped, and what ends the program. */

#include "vmm-log.h"

#include <gio/gio.h>

static void
assert_line (const char *pattern)
{
  g_test_trap_assert_stderr (pattern);
}

static void
run_in_child (void)
{
  g_test_trap_subprocess (NULL, 0, 0);
}

static void
test_lines (void)
{
  if (!g_test_subprocess ())
    {
      run_in_child ();
      g_test_trap_assert_passed ();
      assert_line ("*time=2*-*-*T*:*:*Z level=INFO msg=\"vm started\" vm=1a2b3c4d state=ready\n*");
      assert_line ("*Z level=WARN msg=careful empty=\"\" spaced=\"a b\" equals=\"a=b\"\n*");
      assert_line ("*Z level=ERROR msg=\"it \\\"failed\\\"\""
                   " error=\"line one\\nline \\x1b\\xff two\"\n*");
      g_test_trap_assert_stderr_unmatched ("*unseen*");
      g_test_trap_assert_stderr_unmatched ("*absent*");
      return;
    }
  vmm_log_init (FALSE);
  vmm_log_info ("vm started", "vm", "1a2b3c4d", "absent", NULL, "state", "ready", NULL);
  vmm_log_warning ("careful", "empty", "", "spaced", "a b", "equals", "a=b", NULL);
  vmm_log_error ("it \"failed\"", "error", "line one\nline \x1b\xff two", NULL);
  vmm_log_debug ("unseen", "key", "value", NULL);
}

static void
test_verbose (void)
{
  if (!g_test_subprocess ())
    {
      run_in_child ();
      g_test_trap_assert_passed ();
      assert_line ("*level=DEBUG msg=seen key=value\n*");
      return;
    }
  vmm_log_init (TRUE);
  vmm_log_debug ("seen", "key", "value", NULL);
}

/* Lines come out whole and are not lost, however many pairs they have. */
static void
test_many_pairs (void)
{
  if (!g_test_subprocess ())
    {
      run_in_child ();
      g_test_trap_assert_passed ();
      assert_line ("*msg=many k=0 k=1 * k=39\n*");
      return;
    }
  vmm_log_info ("many", "k", "0", "k", "1", "k", "2", "k", "3", "k", "4", "k", "5", "k", "6", "k",
                "7", "k", "8", "k", "9", "k", "10", "k", "11", "k", "12", "k", "13", "k", "14", "k",
                "15", "k", "16", "k", "17", "k", "18", "k", "19", "k", "20", "k", "21", "k", "22",
                "k", "23", "k", "24", "k", "25", "k", "26", "k", "27", "k", "28", "k", "29", "k",
                "30", "k", "31", "k", "32", "k", "33", "k", "34", "k", "35", "k", "36", "k", "37",
                "k", "38", "k", "39", NULL);
}

/* Our own errors never end the program; tests run with G_DEBUG=fatal-warnings. */
static void
test_errors_are_not_fatal (void)
{
  if (!g_test_subprocess ())
    {
      run_in_child ();
      g_test_trap_assert_passed ();
      assert_line ("*level=ERROR msg=still*level=INFO msg=here*");
      return;
    }
  g_log_set_always_fatal (G_LOG_LEVEL_CRITICAL | G_LOG_LEVEL_WARNING | G_LOG_FATAL_MASK);
  vmm_log_error ("still", NULL);
  vmm_log_warning ("and", NULL);
  vmm_log_info ("here", NULL);
}

/* What GLib says goes through the same writer, and its criticals still end the program. */
static void
test_foreign_lines (void)
{
  if (!g_test_subprocess ())
    {
      run_in_child ();
      g_test_trap_assert_failed ();
      assert_line ("*level=WARN msg=\"from afar\" domain=other\n*");
      assert_line ("*level=INFO msg=\"from a plugin\" domain=vmm-plugin\n*");
      assert_line ("*level=ERROR msg=*G_IS_OBJECT*domain=GLib-GObject\n*");
      g_test_trap_assert_stderr_unmatched ("*unseen*");
      return;
    }
  vmm_log_init (FALSE);
  g_log_structured_standard ("other", G_LOG_LEVEL_WARNING, "f", "1", "f", "from %s", "afar");
  g_log_structured_standard ("other", G_LOG_LEVEL_INFO, "f", "1", "f", "unseen");
  g_log_structured_standard ("vmm-plugin", G_LOG_LEVEL_INFO, "f", "1", "f", "from a plugin");
  g_log_set_always_fatal (G_LOG_LEVEL_CRITICAL | G_LOG_FATAL_MASK);
  g_object_ref (NULL);
}

static void
assert_escaped (const char *text, gsize limit, const char *wanted)
{
  g_autofree char *escaped = vmm_log_escape (text, limit);

  g_assert_cmpstr (escaped, ==, wanted);
}

static void
test_escape (void)
{
  assert_escaped ("", 10, "");
  assert_escaped ("plain \"text\"", 100, "plain \"text\"");
  assert_escaped ("a\n\r\t\x1b[0m\x7f", 100, "a\\n\\r\\t\\x1b[0m\\x7f");
  assert_escaped ("\xc3\xa4\xff", 100, "\xc3\xa4\\xff");
  assert_escaped ("\xe2\x80\xa8\xe2\x80\xae", 100, "\\u2028\\u202e");
  assert_escaped ("abcdef", 3, "abc");
  assert_escaped ("ab\x01", 5, "ab");
  assert_escaped ("a\xc3\xa4", 2, "a");
  assert_escaped ("abc", 0, "");
}

int
main (int argc, char **argv)
{
  g_test_init (&argc, &argv, G_TEST_OPTION_ISOLATE_DIRS, NULL);
  g_test_add_func ("/log/lines", test_lines);
  g_test_add_func ("/log/verbose", test_verbose);
  g_test_add_func ("/log/many-pairs", test_many_pairs);
  g_test_add_func ("/log/errors-are-not-fatal", test_errors_are_not_fatal);
  g_test_add_func ("/log/foreign-lines", test_foreign_lines);
  g_test_add_func ("/log/escape", test_escape);
  return g_test_run ();
}

/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* vmm-monitor's reader for lines of JSON: what it takes, what it refuses, what it finds. */

#include <glib.h>
#include <string.h>

#include "monitor-json.h"

static gboolean
is_valid (const char *text)
{
  /* Exactly as large as the text, so that a sanitizer sees a read behind it. */
  g_autofree char *copy = g_memdup2 (text, strlen (text));
  MonitorJson value;

  return monitor_json_check (copy, strlen (text), &value);
}

static void
test_valid (void)
{
  static const char *const texts[] = {
    "{}",
    "[]",
    "0",
    "-0",
    "1.5e+3",
    "1E5",
    "true",
    "false",
    "null",
    "\"\"",
    " { \"a\" : [ 1 , {} ] } ",
    "\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u00e9\"",
    "\"\\ud83d\\ude00\"",
    "\"\\ud83d\"",
    "\"\xc3\xa9\"",
    "{\"a\":1,\"a\":2}",
    "\t[\r\n]",
  };

  for (guint i = 0; i < G_N_ELEMENTS (texts); i++)
    if (!is_valid (texts[i]))
      g_error ("refused: %s", texts[i]);
}

static void
test_invalid (void)
{
  static const char *const texts[] = {
    "",        " ",       "{",         "}",           "[",          "[1",
    "[1,]",    "[,1]",    "{\"a\"}",   "{\"a\":}",    "{\"a\":1,}", "{a:1}",
    "{'a':1}", "01",      "-",         "+1",          ".5",         "1.",
    "1e",      "0x10",    "NaN",       "tru",         "True",       "\"",
    "\"\\\"",  "\"\\x\"", "\"\\u12\"", "\"\\u12g4\"", "\"\n\"",     "{} {}",
    "{}x",     "1 2",     "\"\xff\"",  "\"\xc3\"",    "// a\n1",    "{\"a\":1 \"b\":2}",
  };

  for (guint i = 0; i < G_N_ELEMENTS (texts); i++)
    if (is_valid (texts[i]))
      g_error ("taken: %s", texts[i]);
}

static void
test_nul (void)
{
  MonitorJson value;

  g_assert_false (monitor_json_check ("\"a\0b\"", 5, &value));
  g_assert_null (value.text);
}

static void
test_depth (void)
{
  g_autofree char *deep = g_strnfill (100000, '[');
  g_autofree char *closed
      = g_strconcat ("[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[", "]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]", NULL);

  g_assert_false (is_valid (deep));
  g_assert_true (is_valid (closed));
}

static MonitorJson
parse (const char *text)
{
  MonitorJson value;

  g_assert_true (monitor_json_check (text, strlen (text), &value));
  return value;
}

static void
test_members (void)
{
  MonitorJson object
      = parse (" {\"a\":{\"b\":[1,{\"b\":2}],\"c\":\"}\"} , \"b\" : true,\"n\\u0061me\":7,"
               "\"twice\":1,\"twice\":2} ");
  MonitorJson inner = monitor_json_get_member (object, "a");
  guint64 number;
  gboolean boolean;

  g_assert_true (monitor_json_is_object (object));
  g_assert_true (monitor_json_is_object (inner));
  g_assert_true (monitor_json_equals_string (monitor_json_get_member (inner, "c"), "}"));
  g_assert_true (monitor_json_read_boolean (monitor_json_get_member (object, "b"), &boolean));
  g_assert_true (boolean);
  g_assert_false (monitor_json_read_boolean (monitor_json_get_member (object, "c"), &boolean));
  g_assert_false (monitor_json_read_boolean (monitor_json_get_member (object, "twice"), &boolean));
  g_assert_false (boolean);
  g_assert_true (monitor_json_read_number (monitor_json_get_member (object, "name"), &number));
  g_assert_cmpuint (number, ==, 7);
  g_assert_true (monitor_json_read_number (monitor_json_get_member (object, "twice"), &number));
  g_assert_cmpuint (number, ==, 2);
  g_assert_null (monitor_json_get_member (object, "c").text);
  g_assert_null (monitor_json_get_member (monitor_json_get_member (object, "b"), "b").text);
  g_assert_null (monitor_json_get_member (parse ("{}"), "a").text);
  g_assert_null (monitor_json_get_member (parse ("[\"a\",1]"), "a").text);
}

static void
test_numbers (void)
{
  static const char *const texts[]
      = { "-1", "1.5", "1e2", "\"1\"", "9007199254740993", "true", "99999999999999999999999999" };
  guint64 number;

  for (guint i = 0; i < G_N_ELEMENTS (texts); i++)
    g_assert_false (monitor_json_read_number (parse (texts[i]), &number));
  g_assert_true (monitor_json_read_number (parse ("9007199254740992"), &number));
  g_assert_cmpuint (number, ==, G_GUINT64_CONSTANT (9007199254740992));
  g_assert_false (monitor_json_read_number ((MonitorJson){ NULL, 0 }, &number));
}

static void
test_strings (void)
{
  static const struct
  {
    const char *text;
    const char *plain;
  } strings[] = {
    { "\"\"", "" },
    { "\"a b\"", "a b" },
    { "\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"", "\"\\/\b\f\n\r\t" },
    { "\"\\u00e9\\ud83d\\ude00!\"", "\xc3\xa9\xf0\x9f\x98\x80!" },
    { "\"\\ud83d\"", "\xef\xbf\xbd" },
    { "\"\\ud83d\\u0041\"", "\xef\xbf\xbd\x41" },
    { "\"\\ude00\"", "\xef\xbf\xbd" },
    { "\"a\\u0000b\"", "a\xef\xbf\xbd\x62" },
  };

  for (guint i = 0; i < G_N_ELEMENTS (strings); i++)
    {
      g_autofree char *plain = monitor_json_dup_string (parse (strings[i].text));

      g_assert_cmpstr (plain, ==, strings[i].plain);
      g_assert_true (monitor_json_equals_string (parse (strings[i].text), strings[i].plain));
    }
  g_assert_null (monitor_json_dup_string (parse ("12")));
  g_assert_null (monitor_json_dup_string ((MonitorJson){ NULL, 0 }));
  g_assert_false (monitor_json_equals_string (parse ("\"ab\""), "a"));
}

static void
test_append (void)
{
  static const char text[] = "\"\\\n\x01\x7f\xc3\xa9/";
  g_autoptr (GString) out = g_string_new (NULL);
  g_autofree char *plain = NULL;

  monitor_json_append_string (out, text);
  g_assert_cmpstr (out->str, ==, "\"\\\"\\\\\\u000a\\u0001\\u007f\xc3\xa9/\"");
  plain = monitor_json_dup_string (parse (out->str));
  g_assert_cmpstr (plain, ==, text);
}

int
main (int argc, char **argv)
{
  g_test_init (&argc, &argv, NULL);
  g_test_add_func ("/monitor-json/valid", test_valid);
  g_test_add_func ("/monitor-json/invalid", test_invalid);
  g_test_add_func ("/monitor-json/nul", test_nul);
  g_test_add_func ("/monitor-json/depth", test_depth);
  g_test_add_func ("/monitor-json/members", test_members);
  g_test_add_func ("/monitor-json/numbers", test_numbers);
  g_test_add_func ("/monitor-json/strings", test_strings);
  g_test_add_func ("/monitor-json/append", test_append);
  return g_test_run ();
}

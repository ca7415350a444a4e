/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The strict reader and the writer of JSON. */

#include "vmm-json.h"

#include <string.h>

#include "interfaces/vmm-error.h"

typedef struct
{
  const char *text;
  const char *message; /* a part of the error */
} BadText;

static const BadText bad_texts[] = {
  { "", "empty" },
  { " \t\r\n", "empty" },
  { "{", "unexpected end" },
  { "[", "unexpected end" },
  { "}", "unexpected '}'" },
  { "]", "unexpected ']'" },
  { "[1", "unexpected end" },
  { "[1,", "unexpected end" },
  { "[1,]", "unexpected ']'" },
  { "[,1]", "unexpected ','" },
  { "[1 2]", "unexpected '2', ',' or ']' expected" },
  { "[1}", "unexpected '}'" },
  { "{]", "a member name" },
  { "{\"a\"", "':' expected" },
  { "{\"a\":", "a value" },
  { "{\"a\":}", "a value" },
  { "{\"a\" 1}", "':' expected" },
  { "{\"a\":1", "',' or '}'" },
  { "{\"a\":1,}", "a member name" },
  { "{,}", "a member name" },
  { "{a:1}", "a member name" },
  { "{1:1}", "a member name" },
  { "{'a':1}", "a member name" },
  { "{\"a\":1 \"b\":2}", "',' or '}'" },
  { "{\"a\":1,\"a\":2}", "member \"a\" twice" },
  { "{\"a\":1,\"\\u0061\":2}", "member \"a\" twice" },
  { "[{\"x\":{\"b\":1,\"c\":1,\"b\":1}}]", "member \"b\" twice" },
  { "{\"\":1,\"\":2}", "member \"\" twice" },
  { "'a'", "a value" },
  { "a", "a value" },
  { "True", "a value" },
  { "TRUE", "a value" },
  { "nul", "a value" },
  { "nulls", "unexpected 's'" },
  { "truefalse", "unexpected 'f'" },
  { "undefined", "a value" },
  { "NaN", "a value" },
  { "Infinity", "a value" },
  { "-Infinity", "a digit" },
  { "var x = {}", "a value" },
  { "+1", "unexpected '+'" },
  { "-", "a digit" },
  { "--1", "a digit" },
  { "01", "unexpected '1'" },
  { "-01", "unexpected '1'" },
  { "00", "unexpected '0'" },
  { "0x10", "unexpected 'x'" },
  { "1.", "a digit" },
  { ".5", "a value" },
  { "1.e5", "a digit" },
  { "1e", "a digit" },
  { "1e+", "a digit" },
  { "1_000", "unexpected '_'" },
  { "9223372036854775808", "number 9223372036854775808 is out of range" },
  { "-9223372036854775809", "number -9223372036854775809 is out of range" },
  { "[18446744073709551616]", "is out of range" },
  { "1e400", "number 1e400 is out of range" },
  { "-1e400", "is out of range" },
  { "111111111111111111111111111111111111111111111111111111111", "1111... is out of range" },
  { "\"", "string without an end" },
  { "\"abc", "string without an end" },
  { "\"a\nb\"", "control character 0x0a" },
  { "\"a\tb\"", "control character 0x09" },
  { "\"\x01\"", "control character 0x01" },
  { "\"\\", "unexpected end in a string" },
  { "\"\\\"", "string without an end" },
  { "\"\\a\"", "unknown escape" },
  { "\"\\x41\"", "unknown escape" },
  { "\"\\'\"", "unknown escape" },
  { "\"\\U0041\"", "unknown escape" },
  { "\"\\u\"", "four hexadecimal digits" },
  { "\"\\u12\"", "four hexadecimal digits" },
  { "\"\\u12g4\"", "four hexadecimal digits" },
  { "\"\\u+123\"", "four hexadecimal digits" },
  { "\"\\u0000\"", "\\u0000 is not allowed" },
  { "{\"a\\u0000b\":1}", "\\u0000 is not allowed" },
  { "\"\\ud800\"", "high surrogate" },
  { "\"\\ud800x\"", "high surrogate" },
  { "\"\\ud800\\n\"", "high surrogate" },
  { "\"\\ud800\\ud800\"", "high surrogate" },
  { "\"\\udc00\"", "low surrogate" },
  { "\"\\udc00\\ud800\"", "low surrogate" },
  { "\"\xff\"", "invalid UTF-8" },
  { "\"\xc0\x80\"", "invalid UTF-8" },
  { "\"\xed\xa0\x80\"", "invalid UTF-8" },
  { "\"\xf4\x90\x80\x80\"", "invalid UTF-8" },
  { "\"\xe2\x82\"", "invalid UTF-8" },
  { "\xef\xbb\xbf{}", "unexpected byte 0xef" },
  { "{}{}", "the end of the text" },
  { "{} x", "the end of the text" },
  { "1 2", "the end of the text" },
  { "[],", "the end of the text" },
  { "\"a\"\"b\"", "the end of the text" },
  { "/* c */ {}", "unexpected '/'" },
  { "{} // c", "unexpected '/'" },
  { "[1]/**/", "unexpected '/'" },
  { "{\"a\":1;}", "unexpected ';'" },
  { "\v1", "unexpected byte 0x0b" },
  { "\xc2\xa0"
    "1",
    "unexpected byte 0xc2" },
};

static void
assert_bad (const char *text, gsize length, const char *message)
{
  g_autoptr (GError) error = NULL;
  /* Exactly as large as the text, so that reading past it is seen. */
  g_autofree char *copy = g_memdup2 (text, MAX (length, 1));
  g_autoptr (JsonNode) node = vmm_json_parse (copy, length, &error);

  if (node != NULL || !g_str_has_prefix (error->message, "json: ")
      || strstr (error->message, message) == NULL)
    g_test_message ("%s: %s", text, error != NULL ? error->message : "accepted");
  g_assert_null (node);
  g_assert_error (error, VMM_ERROR, VMM_ERROR_INVALID_REQUEST);
  g_assert_true (g_str_has_prefix (error->message, "json: "));
  g_assert_nonnull (strstr (error->message, message));
}

static void
test_bad (void)
{
  for (guint i = 0; i < G_N_ELEMENTS (bad_texts); i++)
    assert_bad (bad_texts[i].text, strlen (bad_texts[i].text), bad_texts[i].message);
  assert_bad ("{\"a\":1}\0", 8, "zero byte at line 1, column 8");
  assert_bad ("\"a\0b\"", 5, "zero byte");
  assert_bad ("{\n  \"a\": tru\n}", 14, "unexpected 't', a value expected at line 2, column 8");
}

static char *
repeat (const char *text, gsize times)
{
  GString *out = g_string_new (NULL);

  for (gsize i = 0; i < times; i++)
    g_string_append (out, text);
  return g_string_free (out, FALSE);
}

static void
test_depth (void)
{
  g_autofree char *many = repeat ("[", 100000);
  g_autofree char *objects = repeat ("{\"a\":", 100000);
  g_autofree char *open = repeat ("[", VMM_JSON_MAX_DEPTH);
  g_autofree char *close = repeat ("]", VMM_JSON_MAX_DEPTH);
  g_autofree char *good = g_strconcat (open, close, NULL);
  g_autofree char *bad = g_strconcat ("[", good, "]", NULL);
  g_autoptr (GError) error = NULL;
  g_autoptr (JsonNode) node = NULL;

  assert_bad (many, strlen (many), "nested deeper than 64 levels");
  assert_bad (objects, strlen (objects), "nested deeper than 64 levels");
  assert_bad (bad, strlen (bad), "nested deeper than 64 levels");
  node = vmm_json_parse (good, strlen (good), &error);
  g_assert_no_error (error);
  g_assert_nonnull (node);
}

/* Names of equal g_str_hash(): "Ez" and "FY" and all that is put together from them. */
static char *
make_colliding_object (guint bits)
{
  GString *out = g_string_new ("{");

  for (guint i = 0; i < 1u << bits; i++)
    {
      g_string_append (out, i > 0 ? ",\"" : "\"");
      for (guint bit = 0; bit < bits; bit++)
        g_string_append (out, i & (1u << bit) ? "Ez" : "FY");
      g_string_append (out, "\":1");
    }
  g_string_append_c (out, '}');
  return g_string_free (out, FALSE);
}

static void
test_members (void)
{
  g_autoptr (GString) many = g_string_new ("{\"x\":0");
  g_autofree char *colliding = make_colliding_object (9);
  g_autofree char *few = make_colliding_object (4);
  g_autoptr (JsonNode) node = NULL;
  g_autoptr (GError) error = NULL;

  g_assert_cmpuint (g_str_hash ("Ez"), ==, g_str_hash ("FY"));
  assert_bad (colliding, strlen (colliding), "collide");
  node = vmm_json_parse (few, strlen (few), &error);
  g_assert_no_error (error);
  g_assert_cmpuint (json_object_get_size (json_node_get_object (node)), ==, 16);
  g_clear_pointer (&node, json_node_unref);

  for (guint i = 1; i < VMM_JSON_MAX_MEMBERS; i++)
    g_string_append_printf (many, ",\"%u\":%u", i, i);
  g_string_append_c (many, '}');
  node = vmm_json_parse (many->str, many->len, &error);
  g_assert_no_error (error);
  g_assert_cmpuint (json_object_get_size (json_node_get_object (node)), ==, VMM_JSON_MAX_MEMBERS);

  g_string_truncate (many, many->len - 1);
  g_string_append (many, ",\"more\":1}");
  assert_bad (many->str, many->len, "object of more than 1024 members");
}

static void
test_long_number (void)
{
  g_autofree char *digits = repeat ("1", 100000);
  g_autofree char *text = g_strconcat ("0.", digits, NULL);

  assert_bad (text, strlen (text), "number of more than 1024 bytes");
}

static void
test_many_values (void)
{
  g_autofree char *inner = repeat ("{},", VMM_JSON_MAX_VALUES - 2);
  g_autofree char *good = g_strconcat ("[", inner, "1]", NULL);
  g_autofree char *bad = g_strconcat ("[", inner, "1,2]", NULL);
  g_autoptr (GError) error = NULL;
  g_autoptr (JsonNode) node = vmm_json_parse (good, strlen (good), &error);

  g_assert_no_error (error);
  g_assert_nonnull (node);
  assert_bad (bad, strlen (bad), "more than 200000 values");
}

/* What is read and written again as it was. */
static const char *const round_trips[] = {
  "{}\n",
  "[]\n",
  "null\n",
  "true\n",
  "false\n",
  "0\n",
  "-1\n",
  "9223372036854775807\n",
  "-9223372036854775808\n",
  "9007199254740993\n",
  "0.1\n",
  "12.5\n",
  "5.0\n",
  "-0.0\n",
  "1e+300\n",
  "2.2250738585072014e-308\n",
  "4.94065645841247e-324\n",
  "0.30000000000000004\n",
  "\"\"\n",
  "\"a/b\"\n",
  "\"\\\"\\\\\\b\\f\\n\\r\\t\\u0001\\u001f\\u007f\\u0085\"\n",
  "\"\\u003c\\u003e\\u0026\\u2028\\u2029\"\n",
  "\"\xc3\xa4 \xe2\x82\xac \xf0\x9f\x98\x80\"\n",
  ("{\n  \"b\": 1,\n  \"a\": [],\n  \"c\": {},\n  \"d\": [\n    1,\n    {\n      \"x\": null\n"
   "    }\n  ]\n}\n"),
  "{\n  \"\": \"\",\n  \"\\u003cb\\u003e\": 1\n}\n",
  "[\n  [\n    []\n  ],\n  \"x\"\n]\n",
};

static void
test_round_trips (void)
{
  for (guint i = 0; i < G_N_ELEMENTS (round_trips); i++)
    {
      g_autoptr (GError) error = NULL;
      g_autoptr (JsonNode) node = vmm_json_parse (round_trips[i], strlen (round_trips[i]), &error);
      g_autofree char *text = NULL;
      gsize length;

      g_assert_no_error (error);
      text = vmm_json_to_text (node, &length);
      g_assert_cmpstr (text, ==, round_trips[i]);
      g_assert_cmpuint (length, ==, strlen (text));
    }
}

static void
test_escapes_read (void)
{
  static const char text[] = "\"\\u0041\\/\\ud83d\\ude00\\u00e4\\u20ac\\uFFFF\"";
  g_autoptr (GError) error = NULL;
  g_autoptr (JsonNode) node = vmm_json_parse (text, strlen (text), &error);

  g_assert_no_error (error);
  g_assert_cmpstr (json_node_get_string (node), ==,
                   "A/\xf0\x9f\x98\x80\xc3\xa4\xe2\x82\xac\xef\xbf\xbf");
}

static void
test_numbers_read (void)
{
  static const char text[] = "[0, -0, 10, 1.0, 1e2, 1E+2, 25e-1, -7, -7.5, 1e18]";
  g_autoptr (GError) error = NULL;
  g_autoptr (JsonNode) node = vmm_json_parse (text, strlen (text), &error);
  g_autofree char *line = NULL;

  g_assert_no_error (error);
  line = vmm_json_to_line (node, NULL);
  g_assert_cmpstr (line, ==, "[0,0,10,1.0,100.0,100.0,2.5,-7,-7.5,1e+18]");
}

static void
test_writer (void)
{
  g_autoptr (JsonObject) object = json_object_new ();
  g_autoptr (JsonNode) node = NULL;
  g_autofree char *line = NULL;

  json_object_set_string_member (object, "guest", "a\xff\xc3(\xe2\x82\x1b[31m");
  json_object_set_double_member (object, "nan", 0.0 / 0.0);
  json_object_set_double_member (object, "inf", 1.0 / 0.0);
  vmm_json_set_string_unless_empty (object, "none", NULL);
  vmm_json_set_string_unless_empty (object, "empty", "");
  vmm_json_set_string_unless_empty (object, "some", "x");
  node = vmm_json_node_take_object (json_object_ref (object));
  line = vmm_json_to_line (node, NULL);
  g_assert_cmpstr (line, ==,
                   "{\"guest\":\"a\xef\xbf\xbd\xef\xbf\xbd(\xef\xbf\xbd\xef\xbf\xbd\\u001b[31m\","
                   "\"nan\":null,\"inf\":null,\"some\":\"x\"}");
}

static JsonNode *
make_element (guint i, const char *state, gboolean sealed)
{
  JsonObject *object = json_object_new ();
  JsonNode *node;

  json_object_set_int_member (object, "i", i);
  json_object_set_string_member (object, "state", state);
  node = vmm_json_node_take_object (object);
  if (sealed)
    json_node_seal (node);
  return node;
}

static void
assert_list (JsonNode **elements, guint length)
{
  JsonArray *array = json_array_new ();
  g_autoptr (JsonNode) list = vmm_json_node_take_array (array);
  g_autoptr (GString) wanted = g_string_new ("[");
  g_autofree char *text = NULL;

  for (guint i = 0; i < length; i++)
    {
      JsonObject *object = json_node_get_object (elements[i]);

      json_array_add_element (array, json_node_ref (elements[i]));
      g_string_append_printf (wanted, "%s\n  {\n    \"i\": %u,\n    \"state\": \"%s\"\n  }",
                              i > 0 ? "," : "", (guint) json_object_get_int_member (object, "i"),
                              json_object_get_string_member (object, "state"));
    }
  g_string_append (wanted, "\n]\n");
  text = vmm_json_to_text (list, NULL);
  g_assert_cmpstr (text, ==, wanted->str);
}

/* Texts of elements are kept between lists: never the text of another one, or of an old state. */
static void
test_long_lists (void)
{
  JsonNode *elements[40];

  for (guint i = 0; i < G_N_ELEMENTS (elements); i++)
    elements[i] = make_element (i, "booting", i % 3 != 0);
  assert_list (elements, G_N_ELEMENTS (elements));
  assert_list (elements, G_N_ELEMENTS (elements));
  /* One that is not sealed may change in place, others are replaced. */
  json_object_set_string_member (json_node_get_object (elements[3]), "state", "changed");
  for (guint round = 0; round < 20; round++)
    {
      json_node_unref (elements[7]);
      elements[7] = make_element (100 + round, "ready", TRUE);
      assert_list (elements, G_N_ELEMENTS (elements));
    }
  /* The same one twice, a part, another order, a short list. */
  json_node_unref (elements[8]);
  elements[8] = json_node_ref (elements[7]);
  assert_list (elements, G_N_ELEMENTS (elements));
  assert_list (elements + 5, 20);
  assert_list (elements, G_N_ELEMENTS (elements));
  assert_list (elements + 1, 3);
  for (guint i = 0; i < G_N_ELEMENTS (elements); i++)
    json_node_unref (elements[i]);
}

static void
test_variant (void)
{
  g_autoptr (GVariant) variant = g_variant_ref_sink (g_variant_new_parsed (
      "{'b': <true>, 'y': <byte 7>, 'n': <int16 -2>, 'q': <uint16 65535>, 'u': <uint32 5000000>,"
      " 'x': <int64 -9>, 't': <uint64 18446744073709551615>, 'd': <1.5>, 's': <'x'>,"
      " 'o': <objectpath '/a'>, 'as': <['a', 'b']>, 'm': <@ms nothing>, 'r': <(1, 'z')>,"
      " 'e': <@a{us} {1: 'one'}>}"));
  g_autoptr (JsonNode) node = vmm_json_from_variant (variant);
  g_autofree char *line = vmm_json_to_line (node, NULL);

  g_assert_cmpstr (line, ==,
                   "{\"b\":true,\"y\":7,\"n\":-2,\"q\":65535,\"u\":5000000,\"x\":-9,"
                   "\"t\":1.8446744073709552e+19,\"d\":1.5,\"s\":\"x\",\"o\":\"/a\","
                   "\"as\":[\"a\",\"b\"],\"m\":null,\"r\":[1,\"z\"],\"e\":{\"1\":\"one\"}}");
}

static JsonObject *
parse_object (const char *text)
{
  g_autoptr (GError) error = NULL;
  JsonObject *object = vmm_json_parse_object (text, strlen (text), &error);

  g_assert_no_error (error);
  return object;
}

static void
test_getters (void)
{
  g_autoptr (JsonObject) object
      = parse_object ("{\"s\":\"x\",\"i\":7,\"d\":2.0,\"b\":true,\"n\":null,"
                      "\"v\":[\"a\",\"b\"],\"o\":{\"k\":1},\"l\":[1]}");
  g_autoptr (GError) error = NULL;
  g_auto (GStrv) strv = NULL;
  const char *string;
  gint64 number;
  gboolean boolean;
  JsonObject *inner;
  JsonArray *array;

  g_assert_true (vmm_json_get_string (object, "s", NULL, &string, &error));
  g_assert_cmpstr (string, ==, "x");
  g_assert_true (vmm_json_get_string (object, "n", "fallback", &string, &error));
  g_assert_cmpstr (string, ==, "fallback");
  g_assert_true (vmm_json_get_string (object, "absent", NULL, &string, &error));
  g_assert_null (string);
  g_assert_true (vmm_json_get_int (object, "i", 0, &number, &error));
  g_assert_cmpint (number, ==, 7);
  g_assert_true (vmm_json_get_int (object, "d", 0, &number, &error));
  g_assert_cmpint (number, ==, 2);
  g_assert_true (vmm_json_get_int (object, "n", -3, &number, &error));
  g_assert_cmpint (number, ==, -3);
  g_assert_true (vmm_json_get_boolean (object, "b", FALSE, &boolean, &error));
  g_assert_true (boolean);
  g_assert_true (vmm_json_get_boolean (object, "absent", TRUE, &boolean, &error));
  g_assert_true (boolean);
  g_assert_true (vmm_json_get_strv (object, "v", &strv, &error));
  g_assert_cmpuint (g_strv_length (strv), ==, 2);
  g_assert_cmpstr (strv[1], ==, "b");
  g_clear_pointer (&strv, g_strfreev);
  g_assert_true (vmm_json_get_strv (object, "n", &strv, &error));
  g_assert_null (strv);
  g_assert_true (vmm_json_get_object (object, "o", &inner, &error));
  g_assert_cmpint (json_object_get_int_member (inner, "k"), ==, 1);
  g_assert_true (vmm_json_get_object (object, "absent", &inner, &error));
  g_assert_null (inner);
  g_assert_true (vmm_json_get_array (object, "l", &array, &error));
  g_assert_cmpuint (json_array_get_length (array), ==, 1);
  g_assert_no_error (error);
}

static void
assert_wrong (gboolean good, GError **error, const char *message)
{
  g_assert_false (good);
  g_assert_error (*error, VMM_ERROR, VMM_ERROR_INVALID_REQUEST);
  g_assert_cmpstr ((*error)->message, ==, message);
  g_clear_error (error);
}

static void
test_getters_wrong_type (void)
{
  g_autoptr (JsonObject) object = parse_object ("{\"s\":\"x\",\"i\":7,\"d\":2.5,\"b\":true,"
                                                "\"big\":1e300,\"l\":[1],\"o\":{}}");
  g_autoptr (GError) error = NULL;
  g_auto (GStrv) strv = NULL;
  const char *string;
  gint64 number;
  gboolean boolean;
  JsonObject *inner;
  JsonArray *array;

  assert_wrong (vmm_json_get_string (object, "i", NULL, &string, &error), &error,
                "json: member \"i\" must be a string");
  assert_wrong (vmm_json_get_int (object, "s", 0, &number, &error), &error,
                "json: member \"s\" must be an integer");
  assert_wrong (vmm_json_get_int (object, "d", 0, &number, &error), &error,
                "json: member \"d\" must be an integer");
  assert_wrong (vmm_json_get_int (object, "big", 0, &number, &error), &error,
                "json: member \"big\" must be an integer");
  assert_wrong (vmm_json_get_int (object, "b", 0, &number, &error), &error,
                "json: member \"b\" must be an integer");
  assert_wrong (vmm_json_get_boolean (object, "i", 0, &boolean, &error), &error,
                "json: member \"i\" must be true or false");
  assert_wrong (vmm_json_get_strv (object, "l", &strv, &error), &error,
                "json: member \"l\" must be an array of strings");
  assert_wrong (vmm_json_get_strv (object, "o", &strv, &error), &error,
                "json: member \"o\" must be an array of strings");
  assert_wrong (vmm_json_get_object (object, "l", &inner, &error), &error,
                "json: member \"l\" must be an object");
  assert_wrong (vmm_json_get_array (object, "o", &array, &error), &error,
                "json: member \"o\" must be an array");
  g_assert_null (vmm_json_parse_object ("[]", 2, &error));
  g_assert_error (error, VMM_ERROR, VMM_ERROR_INVALID_REQUEST);
}

int
main (int argc, char **argv)
{
  g_test_init (&argc, &argv, G_TEST_OPTION_ISOLATE_DIRS, NULL);
  g_test_add_func ("/json/bad", test_bad);
  g_test_add_func ("/json/depth", test_depth);
  g_test_add_func ("/json/members", test_members);
  g_test_add_func ("/json/long-number", test_long_number);
  g_test_add_func ("/json/many-values", test_many_values);
  g_test_add_func ("/json/round-trips", test_round_trips);
  g_test_add_func ("/json/escapes-read", test_escapes_read);
  g_test_add_func ("/json/numbers-read", test_numbers_read);
  g_test_add_func ("/json/writer", test_writer);
  g_test_add_func ("/json/long-lists", test_long_lists);
  g_test_add_func ("/json/variant", test_variant);
  g_test_add_func ("/json/getters", test_getters);
  g_test_add_func ("/json/getters-wrong-type", test_getters_wrong_type);
  return g_test_run ();
}

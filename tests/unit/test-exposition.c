/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The Prometheus text format: escapes, numbers, histograms. */
#include <math.h>
#include <string.h>

#include "vmm-exposition.h"

static void
test_escapes (void)
{
  g_autoptr (GString) text = g_string_new (NULL);
  g_autoptr (GString) labels = g_string_new (NULL);

  vmm_exposition_add_family (text, "a", "gauge", "one\\two\nthree \"four\"");
  vmm_exposition_add_label (labels, "x", "q\"b\\n\nend}");
  vmm_exposition_add_label (labels, "y", "");
  vmm_exposition_add_label (labels, "z", "\xc3\xa4\t");
  vmm_exposition_add_sample (text, "a", labels->str, 1.5);
  vmm_exposition_add_sample (text, "a", NULL, 2);
  vmm_exposition_add_text_sample (text, "a", "", "3");
  g_assert_cmpstr (text->str, ==,
                   "# HELP a one\\\\two\\nthree \"four\"\n"
                   "# TYPE a gauge\n"
                   "a{x=\"q\\\"b\\\\n\\nend}\",y=\"\",z=\"\xc3\xa4\t\"} 1.5\n"
                   "a 2\n"
                   "a 3\n");
}

static void
test_numbers (void)
{
  static const struct
  {
    double value;
    const char *text;
    const char *plain;
  } rows[] = {
    { 0, "0", "0" },
    { -7, "-7", "-7" },
    { 0.1, "0.1", "0.1" },
    { 12.5, "12.5", "12.5" },
    { 1e15, "1e+15", "1000000000000000" },
    { 1e21, "1e+21", "1000000000000000000000" },
    { 123456789012345, "123456789012345", "123456789012345" },
    { 999999.9999999999, "999999.9999999999", "999999.9999999999" },
    { 1.5e-7, "1.5e-07", "0.00000015" },
    { 2.0 / 3, "0.6666666666666666", "0.6666666666666666" },
    { INFINITY, "+Inf", "+Inf" },
    { -INFINITY, "-Inf", "-Inf" },
    { NAN, "NaN", "NaN" },
  };

  for (guint i = 0; i < G_N_ELEMENTS (rows); i++)
    {
      g_autofree char *text = vmm_exposition_number (rows[i].value);
      g_autofree char *plain = vmm_exposition_plain_number (rows[i].value);

      g_assert_cmpstr (text, ==, rows[i].text);
      g_assert_cmpstr (plain, ==, rows[i].plain);
    }
}

/* Whatever it is, it reads back as the same number, and the plain one has no exponent. */
static void
test_numbers_read_back (void)
{
  const double extremes[] = { G_MAXDOUBLE, -G_MAXDOUBLE, G_MINDOUBLE, 4.9406564584124654e-324 };

  for (guint i = 0; i < 2000; i++)
    {
      double value = i < G_N_ELEMENTS (extremes)
                       ? extremes[i]
                       : ldexp (g_test_rand_double () - 0.5, g_test_rand_int_range (-900, 900));
      g_autofree char *text = vmm_exposition_number (value);
      g_autofree char *plain = vmm_exposition_plain_number (value);

      g_assert_cmpfloat (g_ascii_strtod (text, NULL), ==, value);
      g_assert_cmpfloat (g_ascii_strtod (plain, NULL), ==, value);
      g_assert_null (strchr (plain, 'e'));
    }
}

static void
test_histogram (void)
{
  static const double bounds[] = { 1, 2.5 };
  g_autoptr (GString) text = g_string_new (NULL);
  VmmHistogram histogram;

  vmm_histogram_init (&histogram, bounds, 2);
  vmm_histogram_observe (&histogram, 0.5);
  vmm_histogram_observe (&histogram, 1); /* bounds are inclusive */
  vmm_histogram_observe (&histogram, 2);
  vmm_histogram_observe (&histogram, 10);
  vmm_histogram_add_to (&histogram, text, "h", "help");
  g_assert_cmpstr (text->str, ==,
                   "# HELP h help\n"
                   "# TYPE h histogram\n"
                   "h_bucket{le=\"1\"} 2\n"
                   "h_bucket{le=\"2.5\"} 3\n"
                   "h_bucket{le=\"+Inf\"} 4\n"
                   "h_sum 13.5\n"
                   "h_count 4\n");
  vmm_histogram_clear (&histogram);
}

int
main (int argc, char **argv)
{
  g_test_init (&argc, &argv, G_TEST_OPTION_ISOLATE_DIRS, NULL);
  g_test_add_func ("/exposition/escapes", test_escapes);
  g_test_add_func ("/exposition/numbers", test_numbers);
  g_test_add_func ("/exposition/numbers-read-back", test_numbers_read_back);
  g_test_add_func ("/exposition/histogram", test_histogram);
  return g_test_run ();
}

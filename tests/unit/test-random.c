/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What is drawn differs from draw to draw, all of it, and has the form that was asked for. */

#include "vmm-random.h"

#include <string.h>

static void
test_fill (void)
{
  guint8 seen[300] = { 0 };

  /* More than the kernel promises at once. A byte that stays 0 in 20 draws was never written. */
  for (guint i = 0; i < 20; i++)
    {
      guint8 bytes[sizeof seen] = { 0 };
      g_autoptr (GError) error = NULL;

      g_assert_true (vmm_random_fill (bytes, sizeof bytes, &error));
      g_assert_no_error (error);
      for (guint at = 0; at < sizeof seen; at++)
        seen[at] |= bytes[at];
    }
  g_assert_null (memchr (seen, 0, sizeof seen));
  g_assert_true (vmm_random_fill (NULL, 0, NULL));
}

static void
test_hex (void)
{
  g_autofree char *first = vmm_random_hex (16, NULL);
  g_autofree char *second = vmm_random_hex (16, NULL);
  g_autofree char *short_one = vmm_random_hex (4, NULL);

  g_assert_cmpuint (strlen (first), ==, 32);
  g_assert_cmpuint (strspn (first, "0123456789abcdef"), ==, 32);
  g_assert_cmpstr (first, !=, second);
  g_assert_cmpuint (strlen (short_one), ==, 8);
}

int
main (int argc, char **argv)
{
  g_test_init (&argc, &argv, G_TEST_OPTION_ISOLATE_DIRS, NULL);
  g_test_add_func ("/random/fill", test_fill);
  g_test_add_func ("/random/hex", test_hex);
  return g_test_run ();
}

/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What becomes of the options when the service is put together. */

#include "vmm-serve-context.h"

#define SECOND G_USEC_PER_SEC

static void
test_timeouts (void)
{
  const char *pairs[] = { "boot-timeout", "4m", NULL };
  g_autoptr (GError) error = NULL;
  g_autoptr (VmmOptions) options = vmm_options_new_for_test (pairs, &error);

  g_assert_no_error (error);
  g_assert_cmpint (vmm_serve_get_timeout (options, "install-timeout", FALSE), ==, 300 * SECOND);
  g_assert_cmpint (vmm_serve_get_timeout (options, "install-timeout", TRUE), ==, 1200 * SECOND);
  g_assert_cmpint (vmm_serve_get_timeout (options, "stop-timeout", FALSE), ==, 30 * SECOND);
  g_assert_cmpint (vmm_serve_get_timeout (options, "stop-timeout", TRUE), ==, 120 * SECOND);
  /* This one was set, if only to what it would have been. */
  g_assert_cmpint (vmm_serve_get_timeout (options, "boot-timeout", FALSE), ==, 240 * SECOND);
  g_assert_cmpint (vmm_serve_get_timeout (options, "boot-timeout", TRUE), ==, 240 * SECOND);
}

int
main (int argc, char **argv)
{
  g_test_init (&argc, &argv, G_TEST_OPTION_ISOLATE_DIRS, NULL);
  g_test_add_func ("/serve-context/timeouts", test_timeouts);
  return g_test_run ();
}

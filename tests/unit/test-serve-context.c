/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What becomes of the options when the service is put together. */

#include "vmm-serve-context.h"

static void
test_timeouts (void)
{
  const char *pairs[] = { "boot-timeout", "4m", NULL };
  g_autoptr (GError) error = NULL;
  g_autoptr (VmmOptions) options = vmm_options_new_for_test (pairs, &error);

  g_assert_no_error (error);
  g_assert_cmpuint (vmm_serve_get_factor (options, "install-timeout"), ==, 4);
  g_assert_cmpuint (vmm_serve_get_factor (options, "stop-timeout"), ==, 4);
  /* This one was set, if only to what it would have been. */
  g_assert_cmpuint (vmm_serve_get_factor (options, "boot-timeout"), ==, 1);
}

int
main (int argc, char **argv)
{
  g_test_init (&argc, &argv, G_TEST_OPTION_ISOLATE_DIRS, NULL);
  g_test_add_func ("/serve-context/timeouts", test_timeouts);
  return g_test_run ();
}

/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Each operation of the table has exactly one handler, and there are no others. */

#include "vmm-operations.h"

static void
test_complete (void)
{
  g_autoptr (GError) error = NULL;

  g_assert_true (vmm_handlers_check (&error));
  g_assert_no_error (error);
}

static void
test_find (void)
{
  for (guint i = 0; i < vmm_n_operations; i++)
    {
      const VmmHandler *handler = vmm_handlers_find (vmm_operations[i].name);

      g_assert_nonnull (handler);
      g_assert_cmpstr (handler->name, ==, vmm_operations[i].name);
      g_assert_true (handler->start != NULL);
      g_assert_true (handler->finish != NULL);
    }
  g_assert_null (vmm_handlers_find ("no_such_operation"));
}

int
main (int argc, char **argv)
{
  g_test_init (&argc, &argv, G_TEST_OPTION_ISOLATE_DIRS, NULL);
  g_test_add_func ("/handlers/complete", test_complete);
  g_test_add_func ("/handlers/find", test_find);
  return g_test_run ();
}

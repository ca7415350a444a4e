/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "vmm-helper.h"

#define HELPER_VARIABLE "VM_MANAGER_HELPER_DIR"

/**
 * vmm_helper_find:
 * @name: the file name of a helper program
 *
 * Finds a program that is installed for the daemon and its plugins alone, which is not on PATH. The
 * environment variable `VM_MANAGER_HELPER_DIR`, folders separated by colons, names other places than
 * the one that was chosen when this was built; of these the first that has the program counts.
 *
 * Returns: (transfer full): a path, which may lead to nothing
 */
char *
vmm_helper_find (const char *name)
{
  const char *variable = g_getenv (HELPER_VARIABLE);
  g_auto (GStrv) folders = NULL;

  g_return_val_if_fail (name != NULL, NULL);

  if (variable == NULL || variable[0] == '\0')
    return g_build_filename (VMM_HELPER_DIR, name, NULL);
  folders = g_strsplit (variable, ":", -1);
  for (guint i = 0; folders[i] != NULL; i++)
    {
      g_autofree char *path = g_build_filename (folders[i], name, NULL);

      if (g_file_test (path, G_FILE_TEST_IS_EXECUTABLE) || folders[i + 1] == NULL)
        return g_steal_pointer (&path);
    }
  return g_build_filename (VMM_HELPER_DIR, name, NULL);
}

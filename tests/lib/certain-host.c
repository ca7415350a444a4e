/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* A host that is the same on every machine. */

#include "certain-host.h"

#include <glib/gstdio.h>

void
certain_host_make_certain (VmmHost *host, const char *folder)
{
  g_autofree char *kvm = g_build_filename (folder, "no-kvm", NULL);
  g_autofree char *vsock = g_build_filename (folder, "vsock-device", NULL);

  g_assert_true (g_file_set_contents (vsock, "", 0, NULL));
  vmm_host_set_places (host, kvm, vsock, NULL);
}

char *
certain_host_use_vsock_program (VmmHost *host, const char *folder)
{
  g_autofree char *bin = g_build_filename (folder, "bin", NULL);
  g_autofree char *program = g_build_filename (bin, "vhost-device-vsock", NULL);
  g_autofree char *none = g_build_filename (folder, "no-vsock", NULL);
  char *before = g_strdup (g_getenv ("PATH"));

  g_assert_no_errno (g_mkdir (bin, 0700));
  g_assert_true (g_file_set_contents (program, "#!/bin/false\n", -1, NULL));
  g_assert_no_errno (g_chmod (program, 0700));
  vmm_host_set_places (host, NULL, none, NULL);
  g_setenv ("PATH", bin, TRUE);
  return before;
}

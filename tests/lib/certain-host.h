/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "vmm-host.h"

G_BEGIN_DECLS

/* What a test finds on its host: no KVM, and a vsock device of the kernel, whatever this machine has.
 * The folder exists; a file is made in it. */
void certain_host_make_certain (VmmHost *host, const char *folder);
/* No vsock device: a program of that name on PATH takes its place until the fixture's folder goes. The
 * result is the PATH of before, for g_setenv() and g_free(). */
char *certain_host_use_vsock_program (VmmHost *host, const char *folder);

G_END_DECLS

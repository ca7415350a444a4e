/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <glib.h>

G_BEGIN_DECLS

/* Start-up order, main loop, shutdown order; the exit status. argv[0] is the command's name. */
int vmm_serve_main (int argc, char **argv);

G_END_DECLS

/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <glib.h>

G_BEGIN_DECLS

char *vmm_helper_find (const char *name);

G_END_DECLS

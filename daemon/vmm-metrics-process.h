/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <glib.h>

G_BEGIN_DECLS

/* The process_* families of this daemon; what cannot be read is left out. */
void vmm_metrics_process_add_to (GString *text);

G_END_DECLS

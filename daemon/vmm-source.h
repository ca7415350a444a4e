/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <gio/gio.h>

G_BEGIN_DECLS

/* Calls callback from the main loop when the cancellable is triggered, at once if it was before.
 * NULL for none. The source is the caller's, who clears it before user_data goes. */
GSource *vmm_source_new_cancelled (GCancellable *cancellable, GCancellableSourceFunc callback,
                                   gpointer user_data);
/* Ends a source, if there is one, and forgets it; also from its own callback. */
void vmm_source_clear (GSource **source);

G_END_DECLS

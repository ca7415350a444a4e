/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Sources of the main context that an object keeps and ends.
 *
 * A cancellable calls its handlers in the middle of g_cancellable_cancel(), wherever that is
 * called. Who waits for something is answered from the main loop instead, where the answer arrives
 * too: the two never meet half-way.
 */

#include "config.h"

#include "vmm-source.h"

GSource *
vmm_source_new_cancelled (GCancellable *cancellable, GCancellableSourceFunc callback,
                          gpointer user_data)
{
  GSource *source;

  if (cancellable == NULL)
    return NULL;

  source = g_cancellable_source_new (cancellable);
  g_source_set_callback (source, G_SOURCE_FUNC (callback), user_data, NULL);
  g_source_attach (source, NULL);
  return source;
}

void
vmm_source_clear (GSource **source)
{
  if (*source == NULL)
    return;
  g_source_destroy (*source);
  g_clear_pointer (source, g_source_unref);
}

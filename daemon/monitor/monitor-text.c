/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "monitor-text.h"

#include <string.h>

char *
monitor_text_clean (const char *data, gsize length, gsize size_max)
{
  /* A byte that is none of a character becomes three. */
  g_autofree char *valid = g_utf8_make_valid (data, (gssize) MIN (length, size_max));
  const char *cut = valid + size_max;

  if (strlen (valid) <= size_max)
    return g_steal_pointer (&valid);
  while ((*cut & 0xc0) == 0x80)
    cut--;
  return g_strndup (valid, cut - valid);
}

/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Reads "bytes=first-last", "bytes=first-" and "bytes=-count". */

#include "config.h"

#include "vmm-imds-range.h"

#include <string.h>

/* Takes the digits from the front of text; FALSE when there are none or too many. */
static gboolean
take_number (const char **text, guint64 *number)
{
  gsize digits = strspn (*text, "0123456789");

  if (digits == 0 || digits > 18)
    return FALSE;
  *number = g_ascii_strtoull (*text, NULL, 10);
  *text += digits;
  return TRUE;
}

static VmmImdsRange
last_bytes (guint64 count, guint64 size, guint64 *first, guint64 *length)
{
  if (count == 0 || size == 0)
    return VMM_IMDS_RANGE_NONE;
  *length = MIN (count, size);
  *first = size - *length;
  return VMM_IMDS_RANGE_PART;
}

VmmImdsRange
vmm_imds_range_parse (const char *text, guint64 size, guint64 *first, guint64 *length)
{
  guint64 last = G_MAXUINT64 - 1;
  guint64 start;

  *first = 0;
  *length = size;
  if (text == NULL || g_ascii_strncasecmp (text, "bytes=", strlen ("bytes=")) != 0)
    return VMM_IMDS_RANGE_ALL;
  text += strlen ("bytes=");
  if (*text == '-')
    {
      text++;
      if (!take_number (&text, &start) || *text != '\0')
        return VMM_IMDS_RANGE_ALL;
      return last_bytes (start, size, first, length);
    }
  if (!take_number (&text, &start) || *text++ != '-')
    return VMM_IMDS_RANGE_ALL;
  if (*text != '\0' && (!take_number (&text, &last) || *text != '\0' || last < start))
    return VMM_IMDS_RANGE_ALL;
  if (start >= size)
    return VMM_IMDS_RANGE_NONE;
  *first = start;
  *length = MIN (last, size - 1) - start + 1;
  return VMM_IMDS_RANGE_PART;
}

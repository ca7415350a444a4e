/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What a guest writes to its console or says as its status, on its way into records, logs and
 * terminals: nothing is left of it that moves a cursor or ends a line, and it is as short as was
 * asked for. Input: a limit, the text. */

#include <glib.h>
#include <string.h>

#include "fuzz.h"
#include "monitor-text.h"
#include "vmm-log.h"

static void
check_escaped (const char *text, gsize limit)
{
  g_assert_cmpuint (strlen (text), <=, limit);
  g_assert_true (g_utf8_validate (text, -1, NULL));
  for (const char *p = text; *p != '\0'; p = g_utf8_next_char (p))
    g_assert_true (g_unichar_isprint (g_utf8_get_char (p)));
}

static void
check_escape (const char *text, gsize limit)
{
  g_autofree char *cut = vmm_log_escape (text, limit);
  g_autofree char *whole = vmm_log_escape (text, G_MAXSIZE);
  g_autofree char *again = vmm_log_escape (cut, limit);

  check_escaped (cut, limit);
  check_escaped (whole, G_MAXSIZE);
  g_assert_true (g_str_has_prefix (whole, cut));
  /* What is clean stays as it is. */
  g_assert_cmpstr (again, ==, cut);
}

int
LLVMFuzzerTestOneInput (const uint8_t *data, size_t size)
{
  gsize limit = size > 0 ? data[0] : 0;
  g_autofree char *exact = NULL;
  g_autofree char *clean = NULL;
  g_autofree char *text = NULL;

  if (size < 1)
    return 0;
  exact = g_memdup2 (data + 1, size - 1);
  clean = monitor_text_clean (exact != NULL ? exact : "", size - 1, limit);
  g_assert_cmpuint (strlen (clean), <=, limit);
  g_assert_true (g_utf8_validate (clean, -1, NULL));
  check_escape (clean, limit);
  /* Without that in between, too: a console's line has not been looked at by anybody. */
  text = g_strndup ((const char *) data + 1, size - 1);
  check_escape (text, limit);
  return 0;
}

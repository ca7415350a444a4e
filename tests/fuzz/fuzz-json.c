/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The strict JSON reader against anything: what it takes, the writer gives back, and the reader
 * takes that again; what it refuses, it refuses with a sentence. */

#include "vmm-json.h"

#include <string.h>

#include "fuzz.h"
#include "interfaces/vmm-error.h"

static void
check_round_trip (JsonNode *node, char *(*write) (JsonNode *, gsize *) )
{
  g_autoptr (GError) error = NULL;
  g_autoptr (JsonNode) again = NULL;
  g_autofree char *text = NULL;
  g_autofree char *second = NULL;
  gsize length;

  text = write (node, &length);
  g_assert_cmpuint (strlen (text), ==, length);
  again = vmm_json_parse (text, length, &error);
  g_assert_no_error (error);
  second = write (again, NULL);
  g_assert_cmpstr (text, ==, second);
}

int
LLVMFuzzerTestOneInput (const uint8_t *data, size_t size)
{
  g_autoptr (GError) error = NULL;
  /* Exactly as large as the text, so that a sanitizer sees a read behind it. */
  g_autofree char *text = g_malloc (MAX (size, 1));
  g_autoptr (JsonNode) node = NULL;

  if (size > 0)
    memcpy (text, data, size);
  node = vmm_json_parse (text, size, &error);
  if (node == NULL)
    {
      g_assert_error (error, VMM_ERROR, VMM_ERROR_INVALID_REQUEST);
      g_assert_true (g_str_has_prefix (error->message, "json: "));
      g_assert_true (g_utf8_validate (error->message, -1, NULL));
      return 0;
    }
  g_assert_no_error (error);
  check_round_trip (node, vmm_json_to_text);
  check_round_trip (node, vmm_json_to_line);
  return 0;
}

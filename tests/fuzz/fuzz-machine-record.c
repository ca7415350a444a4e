/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* vm.json, as a disk or a hand may have left it: what is taken as a record is written so that it
 * reads the same again, and can be shown. */

#include "vmm-machine-record.h"

#include <string.h>

#include "fuzz.h"
#include "vmm-json.h"

#define DIRECTORY "/s/vms/1a2b3c4d"

static void
check_shown (const VmmMachineRecord *record)
{
  g_autoptr (JsonNode) shown = vmm_machine_record_to_json (record, DIRECTORY);
  g_autoptr (JsonNode) attestation = vmm_machine_record_attestation_to_json (record);
  g_autofree char *text = vmm_json_to_text (shown, NULL);

  g_assert_true (JSON_NODE_HOLDS_OBJECT (attestation));
  g_assert_true (g_utf8_validate (text, -1, NULL));
  /* Kept, and never shown. */
  g_assert_false (json_object_has_member (json_node_get_object (shown), "pinnedKey"));
}

int
LLVMFuzzerTestOneInput (const uint8_t *data, size_t size)
{
  g_autoptr (GError) error = NULL;
  g_autoptr (JsonObject) object = vmm_json_parse_object ((const char *) data, size, NULL);
  g_autoptr (VmmMachineRecord) record = NULL;
  g_autoptr (VmmMachineRecord) again = NULL;
  g_autoptr (JsonNode) first = NULL;
  g_autoptr (JsonNode) second = NULL;
  g_autofree char *one = NULL;
  g_autofree char *two = NULL;

  if (object == NULL)
    return 0;
  record = vmm_machine_record_from_file (object, &error);
  if (record == NULL)
    {
      g_assert_nonnull (error);
      g_assert_true (g_str_has_prefix (error->message, "vm record: "));
      return 0;
    }
  g_assert_no_error (error);
  check_shown (record);
  first = vmm_machine_record_to_file (record, DIRECTORY);
  again = vmm_machine_record_from_file (json_node_get_object (first), &error);
  g_assert_no_error (error);
  second = vmm_machine_record_to_file (again, DIRECTORY);
  one = vmm_json_to_text (first, NULL);
  two = vmm_json_to_text (second, NULL);
  g_assert_cmpstr (one, ==, two);
  return 0;
}

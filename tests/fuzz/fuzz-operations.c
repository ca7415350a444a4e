/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Requests of the REST interface behind HTTP. Input: "METHOD /path", a line end, the body. Arguments
 * that are taken are taken again as they are; and a VM that create_vm takes can be read back from its
 * record, or it would be lost with the next start. */

#include "vmm-operations.h"

#include <string.h>

#include "fuzz.h"
#include "interfaces/vmm-error.h"
#include "service-fixture.h"
#include "vmm-arguments.h"
#include "vmm-json.h"
#include "vmm-machine-request.h"

static ServiceFixture *service;

int
LLVMFuzzerInitialize (int *argc, char ***argv)
{
  service = service_fixture_new ();
  service_fixture_start_well (service);
  return 0;
}

/* What is drawn and not asked for. */
static void
draw (VmmMachineRecord *record)
{
  record->id = g_strdup ("1a2b3c4d");
  record->machine_id = g_strdup ("00112233445566778899aabbccddeeff");
  record->cid = 4;
  record->created_at = 1;
}

static void
check_create (JsonObject *arguments)
{
  g_autoptr (GError) error = NULL;
  g_autoptr (VmmMachineRequest) request
      = vmm_machine_request_parse (arguments, service->context, &error);
  g_autoptr (VmmMachineRecord) again = NULL;
  g_autoptr (JsonNode) file = NULL;
  g_autofree char *text = NULL;
  gsize length;
  g_autoptr (JsonObject) object = NULL;

  if (request == NULL)
    {
      g_assert_error (error, VMM_ERROR, VMM_ERROR_INVALID_REQUEST);
      return;
    }
  draw (request->record);
  file = vmm_machine_record_to_file (request->record, "/s");
  text = vmm_json_to_text (file, &length);
  object = vmm_json_parse_object (text, length, &error);
  g_assert_no_error (error);
  again = vmm_machine_record_from_file (object, &error);
  g_assert_no_error (error);
  g_assert_cmpstr (again->name, ==, request->record->name);
  g_assert_cmpuint (again->memory_mib, ==, request->record->memory_mib);
}

static void
check_arguments (const VmmOperation *operation, JsonObject *given, VmmArgumentsFlags flags)
{
  g_autoptr (GError) error = NULL;
  g_autoptr (JsonObject) taken = vmm_arguments_check (operation, given, flags, &error);
  g_autoptr (JsonObject) again = NULL;
  g_autoptr (JsonNode) one = NULL;
  g_autoptr (JsonNode) two = NULL;

  if (taken == NULL)
    {
      g_assert_error (error, VMM_ERROR, VMM_ERROR_INVALID_REQUEST);
      g_assert_true (g_utf8_validate (error->message, -1, NULL));
      return;
    }
  again = vmm_arguments_check (operation, taken, VMM_ARGUMENTS_STRICT, &error);
  g_assert_no_error (error);
  one = vmm_json_node_take_object (json_object_ref (taken));
  two = vmm_json_node_take_object (g_steal_pointer (&again));
  g_assert_true (json_node_equal (one, two));
  if (g_str_equal (operation->name, "create_vm"))
    check_create (taken);
}

int
LLVMFuzzerTestOneInput (const uint8_t *data, size_t size)
{
  g_autofree char *head = NULL;
  g_autoptr (JsonObject) from_path = json_object_new ();
  g_autoptr (JsonObject) body = NULL;
  const uint8_t *end = memchr (data, '\n', size);
  const VmmOperation *operation;
  char *path;

  if (end == NULL)
    return 0;
  head = g_strndup ((const char *) data, (gsize) (end - data));
  path = strchr (head, ' ');
  /* As the reader of requests lets it through. */
  if (path == NULL || path[1] != '/' || !g_str_is_ascii (path))
    return 0;
  *path++ = '\0';
  operation = vmm_operations_match (head, path, from_path);
  if (operation == NULL)
    return 0;
  check_arguments (operation, from_path, VMM_ARGUMENTS_TEXTUAL);
  body = vmm_json_parse_object ((const char *) end + 1, size - (gsize) (end + 1 - data), NULL);
  if (body == NULL)
    return 0;
  check_arguments (operation, body, VMM_ARGUMENTS_STRICT);
  check_arguments (operation, body, VMM_ARGUMENTS_IGNORE_UNKNOWN);
  check_arguments (operation, body, VMM_ARGUMENTS_TEXTUAL | VMM_ARGUMENTS_IGNORE_UNKNOWN);
  return 0;
}

void
fuzz_finish (void)
{
  service_fixture_free (service);
}

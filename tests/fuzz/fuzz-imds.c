/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* A guest's connection to its metadata service, byte by byte as it likes: what comes back are whole
 * HTTP answers, and neither what is not released nor anything else of the host is in them. */

#include "vmm-imds.h"

#include <string.h>

#include "fake-backends.h"
#include "fake-peers.h"
#include "fuzz.h"
#include "service-fixture.h"
#include "test-await.h"
#include "test-http-client.h"

#define SECRET "not-for-the-guest"

static ServiceFixture *service;
static char *id, *path;

int
LLVMFuzzerInitialize (int *argc, char ***argv)
{
  g_autoptr (JsonNode) node = NULL;
  g_autoptr (VmmVerdict) refused = vmm_verdict_new ("initrd", FALSE, "refused");

  service = service_fixture_new ();
  service->with_imds = TRUE;
  service_fixture_write (service, "secret", SECRET);
  service_fixture_write (service, "images/sysupdate/os/a.raw", "update");
  service_fixture_write (service, "images/sysupdate/secret", SECRET);
  service_fixture_start_well (service);
  vmm_imds_set_rate (service->imds, 1000000000, 1e9);
  test_peer_behaviour.ready_ms = TEST_PEER_NEVER;
  test_fakes_set_verdict (refused);
  node = service_fixture_call_well (
      service, "create_vm", "{'name':'web','wait_for':'none','user_data':'%s','metadata':{'a':'b'}}",
      SECRET);
  id = g_strdup (service_fixture_get (node, "id"));
  service_fixture_await_state (service, id, VMM_MACHINE_BOOTING);
  path = g_build_filename (service->state_dir, "vms", id, "metadata.sock", NULL);
  return 0;
}

int
LLVMFuzzerTestOneInput (const uint8_t *data, size_t size)
{
  g_autoptr (TestHttpClient) client = test_http_client_new_unix (path);
  g_autofree char *answer = NULL;

  test_http_client_send (client, (const char *) data, (gssize) size);
  test_http_client_shutdown (client);
  answer = test_http_client_read_to_end (client);
  g_assert_true (answer[0] == '\0' || g_str_has_prefix (answer, "HTTP/1.1 "));
  g_assert_null (strstr (answer, SECRET));
  return 0;
}

void
fuzz_finish (void)
{
  service_fixture_free (service);
  g_free (id);
  g_free (path);
}

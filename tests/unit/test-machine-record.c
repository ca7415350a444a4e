/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* vm.json: what is written is read again, and what is wrong is refused by name. */

#include "config.h"

#include <string.h>

#include "vmm-json.h"
#include "vmm-machine-record.h"

#define DIRECTORY "/s/vms/1a2b3c4d"

static VmmForward *
new_forward (void)
{
  VmmForward *forward = g_new0 (VmmForward, 1);

  forward->id = g_strdup ("f1");
  forward->port = 6443;
  forward->protocol = g_strdup ("tcp");
  forward->host_address = g_strdup ("127.0.0.1");
  forward->host_port = 41233;
  return forward;
}

static void
add_quote (VmmQuoteResult *quote, const char *stage)
{
  quote->present = TRUE;
  quote->at = G_GINT64_CONSTANT (1789199899123456);
  quote->verdict = vmm_verdict_new (stage, TRUE, "all good");
  vmm_verdict_set_ak_fingerprint (quote->verdict, "aa:bb");
  vmm_verdict_set_pcr (quote->verdict, 11,
                       "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef");
  vmm_verdict_add_learned (quote->verdict, 13);
}

static void
fill_run (VmmMachineRecord *record)
{
  record->phase = g_strdup ("boot");
  record->ip = g_strdup ("192.168.127.2");
  record->mac = g_strdup ("02:de:c0:a8:7f:02");
  record->cid = 840294;
  record->notify_port = 1048577;
  record->machine_id = g_strdup ("00112233445566778899aabbccddeeff");
  record->booted = TRUE;
  record->status = g_strdup ("Startup finished");
  record->ssh_public_key = g_strdup ("ssh-ed25519 AAAA vm-manager@1a2b3c4d");
  record->accelerator = g_strdup ("tcg");
  record->user_data_released = TRUE;
  record->nonce_issued_at = G_GINT64_CONSTANT (1789199890000000);
  record->created_at = G_GINT64_CONSTANT (1789199800000001);
  record->installed_at = G_GINT64_CONSTANT (1789199810000000);
  record->tpm_restored_at = G_GINT64_CONSTANT (1789199815000000);
  record->booted_at = G_GINT64_CONSTANT (1789199820000000);
  record->ready_at = G_GINT64_CONSTANT (1789199900000000);
  record->last_error = g_strdup ("a \"quoted\" text\nwith lines");
  record->paused_reason = g_strdup ("no space left on the host");
  record->paused_at = G_GINT64_CONSTANT (1789199910000000);
  record->journal_position = G_MAXUINT64;
  record->volume_path = g_strdup ("/s/volumes/vm-1a2b3c4d.volume");
  record->processes[VMM_PROCESS_ROLE_QEMU]
      = vmm_process_handle_new ("vm-manager-1a2b3c4d-qemu.service", 4242, G_MAXUINT64, "abcd");
  record->processes[VMM_PROCESS_ROLE_TPM] = vmm_process_handle_new (NULL, 4241, 77, NULL);
}

static VmmMachineRecord *
new_full_record (void)
{
  VmmMachineRecord *record = vmm_machine_record_new ();
  const char *keys[] = { "ssh-ed25519 BBBB me", "ssh-rsa CCCC you", NULL };

  record->id = g_strdup ("1a2b3c4d");
  record->name = g_strdup ("web");
  record->image = g_strdup ("base_1.0");
  record->kubernetes_version = g_strdup ("1.32.0");
  record->cpus = 2;
  record->memory_mib = 2048;
  record->disk_gib = 20;
  record->network = g_strdup ("default");
  record->ssh_authorized_keys = g_strdupv ((char **) keys);
  record->hostname = g_strdup ("web");
  record->region = g_strdup ("here");
  record->zone = g_strdup ("default");
  g_hash_table_insert (record->metadata, g_strdup ("b"), g_strdup ("2"));
  g_hash_table_insert (record->metadata, g_strdup ("a"), g_strdup ("1"));
  record->require_attestation = TRUE;
  record->autostart = TRUE;
  record->owner = g_strdup ("uid:1000");
  record->state = VMM_MACHINE_READY;
  record->pinned_key = g_strdup ("the key");
  fill_run (record);
  add_quote (&record->initrd_quote, "initrd");
  add_quote (&record->ready_quote, "ready");
  g_ptr_array_add (record->forwards, new_forward ());
  return record;
}

static VmmMachineRecord *
new_small_record (void)
{
  VmmMachineRecord *record = vmm_machine_record_new ();

  record->id = g_strdup ("00000001");
  record->name = g_strdup ("a");
  record->image = g_strdup ("base_1.0");
  record->cpus = 1;
  record->memory_mib = 256;
  record->disk_gib = 1;
  record->network = g_strdup ("default");
  record->hostname = g_strdup ("a");
  record->region = g_strdup ("");
  record->zone = g_strdup ("");
  record->owner = g_strdup ("");
  record->cid = 3;
  record->machine_id = g_strdup ("00112233445566778899aabbccddeeff");
  record->created_at = 1;
  return record;
}

static char *
to_file (VmmMachineRecord *record)
{
  g_autoptr (JsonNode) node = vmm_machine_record_to_file (record, DIRECTORY);

  return vmm_json_to_text (node, NULL);
}

static VmmMachineRecord *
from_text (const char *text, GError **error)
{
  g_autoptr (JsonObject) object = vmm_json_parse_object (text, strlen (text), error);

  g_assert_nonnull (object);
  return vmm_machine_record_from_file (object, error);
}

static void
check_round_trip (VmmMachineRecord *record)
{
  g_autofree char *text = to_file (record);
  g_autofree char *again = NULL;
  g_autoptr (GError) error = NULL;
  g_autoptr (VmmMachineRecord) read = from_text (text, &error);

  g_assert_no_error (error);
  /* Paths are not read, so the volume's path is not either. */
  g_assert_null (read->volume_path);
  read->volume_path = g_strdup (record->volume_path);
  again = to_file (read);
  g_assert_cmpstr (again, ==, text);
  g_assert_cmpstr (read->pinned_key, ==, record->pinned_key);
  g_assert_cmpuint (read->journal_position, ==, record->journal_position);
}

static void
test_round_trip (void)
{
  g_autoptr (VmmMachineRecord) full = new_full_record ();
  g_autoptr (VmmMachineRecord) small = new_small_record ();

  check_round_trip (full);
  check_round_trip (small);
  for (guint state = 0; state < VMM_MACHINE_N_STATES; state++)
    {
      small->state = (VmmMachineState) state;
      check_round_trip (small);
    }
}

static void
test_identity_of_processes (void)
{
  g_autoptr (VmmMachineRecord) record = new_full_record ();
  g_autofree char *text = to_file (record);
  g_autoptr (GError) error = NULL;
  g_autoptr (VmmMachineRecord) read = from_text (text, &error);
  const VmmProcessHandle *qemu;

  g_assert_no_error (error);
  qemu = read->processes[VMM_PROCESS_ROLE_QEMU];
  g_assert_cmpstr (vmm_process_handle_get_unit (qemu), ==, "vm-manager-1a2b3c4d-qemu.service");
  g_assert_cmpstr (vmm_process_handle_get_invocation (qemu), ==, "abcd");
  g_assert_cmpuint (vmm_process_handle_get_start_time (qemu), ==, G_MAXUINT64);
  g_assert_cmpint (vmm_process_handle_get_pid (qemu), ==, 4242);
  g_assert_null (read->processes[VMM_PROCESS_ROLE_MONITOR]);
}

static void
test_api (void)
{
  static const char *const members[] = {
    "id", "name", "image", "network", "kubernetesVersion", "cpus", "memoryMiB", "diskGiB",
    "sshAuthorizedKeys", "hostname", "region", "zone", "metadata", "requireAttestation", "state",
    "phase", "ip", "mac", "cid", "machineID", "booted", "status", "sshPublicKey", "attestation",
    "createdAt", "installedAt", "bootedAt", "readyAt", "lastError", "processes", "paths", "paused",
    "forwards", "accelerator", "owner", "autostart", "notifyPort", "tpmRestoredAt",
  };
  g_autoptr (VmmMachineRecord) record = new_full_record ();
  g_autoptr (JsonNode) node = vmm_machine_record_to_json (record, DIRECTORY);
  g_autofree char *text = vmm_json_to_text (node, NULL);
  JsonObject *object = json_node_get_object (node);
  g_autoptr (GList) names = json_object_get_members (object);
  guint i = 0;

  for (GList *l = names; l != NULL; l = l->next, i++)
    g_assert_cmpstr (l->data, ==, members[i]);
  g_assert_cmpuint (i, ==, G_N_ELEMENTS (members));
  /* What is kept is not shown. */
  g_assert_null (strstr (text, "formatVersion"));
  g_assert_null (strstr (text, "the key"));
  g_assert_null (strstr (text, "journalPosition"));
  g_assert_null (strstr (text, "startTime"));
  g_assert_null (strstr (text, "invocation"));
  g_assert_nonnull (strstr (text, "\"console\": \"" DIRECTORY "/console.log\""));
  g_assert_nonnull (strstr (text, "\"volume\": \"/s/volumes/vm-1a2b3c4d.volume\""));
  g_assert_nonnull (strstr (text, "\"createdAt\": \"2026-09-12T07:56:40.000001Z\""));
  g_assert_nonnull (strstr (text, "\"reason\": \"no space left on the host\""));
}

static void
test_absent_members (void)
{
  static const char *const absent[] = {
    "kubernetesVersion", "sshAuthorizedKeys", "region", "metadata", "phase", "ip", "mac", "status",
    "installedAt", "bootedAt", "readyAt", "lastError", "processes", "paused", "forwards",
    "tpmRestoredAt",
  };
  g_autoptr (VmmMachineRecord) record = new_small_record ();
  g_autoptr (JsonNode) node = vmm_machine_record_to_json (record, DIRECTORY);
  JsonObject *object = json_node_get_object (node);
  JsonObject *attestation;

  for (guint i = 0; i < G_N_ELEMENTS (absent); i++)
    g_assert_false (json_object_has_member (object, absent[i]));
  g_assert_cmpstr (json_object_get_string_member (object, "sshPublicKey"), ==, "");
  attestation = json_object_get_object_member (object, "attestation");
  g_assert_cmpuint (json_object_get_size (attestation), ==, 2);
  g_assert_false (json_object_get_boolean_member (attestation, "userDataReleased"));
}

static void
test_attestation (void)
{
  g_autoptr (VmmMachineRecord) record = new_full_record ();
  g_autoptr (JsonNode) node = vmm_machine_record_attestation_to_json (record);
  g_autofree char *text = vmm_json_to_text (node, NULL);

  g_assert_nonnull (strstr (text, "\"nonceIssuedAt\": \"2026-09-12T07:58:10Z\""));
  g_assert_nonnull (strstr (text, "\"akFingerprint\": \"aa:bb\""));
  g_assert_nonnull (strstr (text, "\"11\": \"0123456789abcdef"));
  vmm_machine_record_clear_quotes (record);
  g_assert_false (record->initrd_quote.present);
  g_assert_null (record->ready_quote.verdict);
}

typedef struct
{
  const char *from;
  const char *to;
  const char *message; /* a part of the error */
} BadInput;

static const BadInput bad_inputs[] = {
  { "\"formatVersion\": 1", "\"formatVersion\": 2", "format version 2 is newer" },
  { "\"formatVersion\": 1", "\"formatVersion\": 9007199254740993", "is newer" },
  { "\"formatVersion\": 1", "\"formatVersion\": 0", "formatVersion" },
  { "\"formatVersion\": 1", "\"formatVersion\": \"1\"", "formatVersion" },
  { "\"formatVersion\": 1,", "", "formatVersion" },
  { "\"id\": \"1a2b3c4d\",\n  \"name\"", "\"id\": \"1A2B3C4D\",\n  \"name\"", "id" },
  { "\"id\": \"1a2b3c4d\",\n  \"name\"", "\"id\": \"../../etc\",\n  \"name\"", "id" },
  { "\"id\": \"1a2b3c4d\",\n  \"name\"", "\"id\": 7,\n  \"name\"", "id" },
  { "\"name\": \"web\"", "\"name\": \"Web\"", "name" },
  { "\"name\": \"web\"", "\"name\": \"-web\"", "name" },
  { "\"name\": \"web\"", "\"name\": \"\"", "name" },
  { "\"image\": \"base_1.0\"", "\"image\": []", "image" },
  { "\"network\": \"default\"", "\"network\": \"../x\"", "network" },
  { "\"cpus\": 2", "\"cpus\": 0", "cpus" },
  { "\"cpus\": 2", "\"cpus\": 257", "cpus" },
  { "\"cpus\": 2", "\"cpus\": 2.5", "cpus" },
  { "\"cpus\": 2", "\"cpus\": true", "cpus" },
  { "\"memoryMiB\": 2048", "\"memoryMiB\": -1", "memoryMiB" },
  { "\"diskGiB\": 20", "\"diskGiB\": 4097", "diskGiB" },
  { "\"ssh-rsa CCCC you\"", "7", "sshAuthorizedKeys" },
  { "\"ssh-rsa CCCC you\"", "\"two\\nlines\"", "sshAuthorizedKeys" },
  { "\"a\": \"1\"", "\"a\": 1", "a" },
  { "\"requireAttestation\": true", "\"requireAttestation\": \"no\"", "requireAttestation" },
  { "\"state\": \"ready\"", "\"state\": \"gone\"", "state" },
  { "\"state\": \"ready\"", "\"state\": null", "state" },
  { "\"phase\": \"boot\"", "\"phase\": \"dance\"", "phase" },
  { "\"ip\": \"192.168.127.2\"", "\"ip\": \"1.2.3.4; rm\"", "ip" },
  { "\"ip\": \"192.168.127.2\"", "\"ip\": \"::1\"", "ip" },
  { "\"mac\": \"02:de:c0:a8:7f:02\"", "\"mac\": \"02:de:c0:a8:7f:02,x\"", "mac" },
  { "\"cid\": 840294", "\"cid\": 2", "cid" },
  { "\"cid\": 840294", "\"cid\": 4294967295", "cid" },
  { "\"machineID\": \"0011", "\"machineID\": \"zz11", "machineID" },
  { "\"createdAt\": \"2026-09-12T07:56:40.000001Z\"", "\"createdAt\": \"yesterday\"",
    "createdAt" },
  { "\"createdAt\": \"2026-09-12T07:56:40.000001Z\",", "", "createdAt" },
  { "\"pid\": 4242", "\"pid\": -4242", "pid" },
  { "\"startTime\": \"77\"", "\"startTime\": \"-1\"", "startTime" },
  { "\"startTime\": \"77\"", "\"startTime\": 77", "startTime" },
  { "\"userDataReleased\": true", "\"userDataReleased\": 1", "userDataReleased" },
  { "\"11\": \"0123", "\"99\": \"0123", "pcrs" },
  { "\"11\": \"0123", "\"11\": \"xx23", "pcrs" },
  { "\"port\": 6443", "\"port\": 0", "port" },
  { "\"protocol\": \"tcp\"", "\"protocol\": \"sctp\"", "protocol" },
  { "\"accelerator\": \"tcg\"", "\"accelerator\": \"warp\"", "accelerator" },
  { "\"notifyPort\": 1048577", "\"notifyPort\": 4294967296", "notifyPort" },
  { "\"journalPosition\": \"18446744073709551615\"",
    "\"journalPosition\": \"18446744073709551616\"", "journalPosition" },
};

static void
test_bad_inputs (void)
{
  g_autoptr (VmmMachineRecord) record = new_full_record ();
  g_autofree char *text = to_file (record);

  for (guint i = 0; i < G_N_ELEMENTS (bad_inputs); i++)
    {
      const char *at = strstr (text, bad_inputs[i].from);
      g_autofree char *before = NULL;
      g_autofree char *bad = NULL;
      g_autoptr (GError) error = NULL;
      g_autoptr (VmmMachineRecord) read = NULL;

      g_test_message ("%s", bad_inputs[i].to);
      g_assert_nonnull (at);
      before = g_strndup (text, (gsize) (at - text));
      bad = g_strconcat (before, bad_inputs[i].to, at + strlen (bad_inputs[i].from), NULL);
      read = from_text (bad, &error);
      g_assert_null (read);
      g_assert_nonnull (error);
      g_assert_cmpint (error->domain, ==, VMM_ERROR);
      g_assert_nonnull (strstr (error->message, bad_inputs[i].message));
    }
}

static void
test_newer_format (void)
{
  const char *text = "{\"formatVersion\": 2, \"something\": [\"else\"]}";
  g_autoptr (GError) error = NULL;

  g_assert_null (from_text (text, &error));
  g_assert_error (error, VMM_ERROR, VMM_ERROR_UNSUPPORTED);
}

static void
test_paths_are_not_trusted (void)
{
  g_autoptr (VmmMachineRecord) record = new_full_record ();
  g_autoptr (JsonNode) node = vmm_machine_record_to_file (record, "/etc");
  g_autofree char *text = vmm_json_to_text (node, NULL);
  g_autoptr (GError) error = NULL;
  g_autoptr (VmmMachineRecord) read = from_text (text, &error);
  g_autoptr (JsonNode) shown = vmm_machine_record_to_json (read, DIRECTORY);
  g_autofree char *shown_text = vmm_json_to_text (shown, NULL);

  g_assert_nonnull (strstr (text, "/etc/ssh_key"));
  g_assert_null (strstr (shown_text, "/etc"));
}

int
main (int argc, char **argv)
{
  g_test_init (&argc, &argv, G_TEST_OPTION_ISOLATE_DIRS, NULL);
  g_test_add_func ("/machine-record/round-trip", test_round_trip);
  g_test_add_func ("/machine-record/processes", test_identity_of_processes);
  g_test_add_func ("/machine-record/api", test_api);
  g_test_add_func ("/machine-record/absent-members", test_absent_members);
  g_test_add_func ("/machine-record/attestation", test_attestation);
  g_test_add_func ("/machine-record/bad-inputs", test_bad_inputs);
  g_test_add_func ("/machine-record/newer-format", test_newer_format);
  g_test_add_func ("/machine-record/paths-are-not-trusted", test_paths_are_not_trusted);
  return g_test_run ();
}

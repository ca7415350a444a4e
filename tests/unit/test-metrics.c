/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The metrics of a host: every family, a VM's summary, histograms, and what promtool says. */
#include <string.h>

#include "fake-backends.h"
#include "interfaces/vmm-error.h"
#include "machine-fixture.h"
#include "test-await.h"
#include "vmm-metrics.h"
#include "vmm-version.h"

#define ID MACHINE_FIXTURE_ID

typedef struct
{
  MachineFixture *vm;
  VmmMetrics *metrics;
} Fixture;

static void
set_up (Fixture *fixture, gconstpointer data)
{
  fixture->vm = machine_fixture_new ();
  fixture->metrics = vmm_metrics_new (fixture->vm->context.networks, 1000);
}

static void
tear_down (Fixture *fixture, gconstpointer data)
{
  g_clear_object (&fixture->metrics);
  machine_fixture_free (fixture->vm);
}

/* The record, to say what is the case. */
static VmmMachineRecord *
record (Fixture *fixture)
{
  return (VmmMachineRecord *) machine_fixture_record (fixture->vm);
}

static void
add_machine (Fixture *fixture)
{
  machine_fixture_make (fixture->vm);
  record (fixture)->created_at = 1000 * G_USEC_PER_SEC;
  vmm_metrics_add_machine (fixture->metrics, fixture->vm->machine);
}

static GStrv
expose (Fixture *fixture)
{
  g_autoptr (GBytes) bytes = vmm_metrics_expose (fixture->metrics);
  gsize size;
  const char *data = g_bytes_get_data (bytes, &size);
  g_autofree char *text = g_strndup (data, size);

  g_assert_cmpuint (strlen (text), ==, size);
  g_assert_true (g_str_has_suffix (text, "\n"));
  return g_strsplit (text, "\n", -1);
}

static gboolean
has_line (Fixture *fixture, const char *line)
{
  g_auto (GStrv) lines = expose (fixture);

  return g_strv_contains ((const char *const *) lines, line);
}

static void
assert_line (Fixture *fixture, const char *line)
{
  if (has_line (fixture, line))
    return;
  g_test_message ("there is no line %s", line);
  g_test_fail ();
}

static guint
count_lines (Fixture *fixture, const char *prefix)
{
  g_auto (GStrv) lines = expose (fixture);
  guint count = 0;

  for (guint i = 0; lines[i] != NULL; i++)
    count += g_str_has_prefix (lines[i], prefix);
  return count;
}

static void
test_families (Fixture *fixture, gconstpointer data)
{
  static const char *const families[] = {
    "vm_manager_build_info gauge",
    "vm_manager_vm_state gauge",
    "vm_manager_vm_attestation gauge",
    "vm_manager_vm_info gauge",
    "vm_manager_vm_created_timestamp_seconds gauge",
    "vm_manager_vm_install_seconds gauge",
    "vm_manager_vm_boot_to_ready_seconds gauge",
    "vm_manager_vm_cpu_seconds_total counter",
    "vm_manager_vm_memory_rss_bytes gauge",
    "vm_manager_vm_disk_bytes gauge",
    "vm_manager_vms gauge",
    "vm_manager_network_bytes_total counter",
    "vm_manager_network_leases gauge",
    "vm_manager_vm_install_duration_seconds histogram",
    "vm_manager_vm_boot_to_ready_duration_seconds histogram",
    "process_cpu_seconds_total counter",
    "process_resident_memory_bytes gauge",
    "process_virtual_memory_bytes gauge",
    "process_start_time_seconds gauge",
    "process_open_fds gauge",
    "process_max_fds gauge",
  };

  for (guint i = 0; i < G_N_ELEMENTS (families); i++)
    {
      g_autofree char *line = g_strconcat ("# TYPE ", families[i], NULL);

      assert_line (fixture, line);
    }
  assert_line (fixture, "vm_manager_vms{state=\"ready\"} 0");
  g_assert_cmpuint (count_lines (fixture, "vm_manager_vms{"), ==, 10);
}

static void
test_build (Fixture *fixture, gconstpointer data)
{
  g_autofree char *prefix
    = g_strdup_printf ("vm_manager_build_info{version=\"%s\",commit=\"%s\",go_version=\"",
                       vmm_version, vmm_version_commit);

  g_assert_cmpuint (count_lines (fixture, prefix), ==, 1);
}

static void
test_machine (Fixture *fixture, gconstpointer data)
{
  VmmMachineRecord *it;

  add_machine (fixture);
  it = record (fixture);
  g_free (it->name);
  it->name = g_strdup ("we\"b");
  it->state = VMM_MACHINE_INSTALLING;
  it->disk_gib = 20;
  g_assert_cmpuint (count_lines (fixture, "vm_manager_vm_state{vm=\"" ID "\",name=\"we\\\"b\","), ==,
                    10);
  assert_line (fixture,
               "vm_manager_vm_state{vm=\"" ID "\",name=\"we\\\"b\",state=\"installing\"} 1");
  assert_line (fixture, "vm_manager_vm_state{vm=\"" ID "\",name=\"we\\\"b\",state=\"ready\"} 0");
  assert_line (fixture, "vm_manager_vms{state=\"installing\"} 1");
  assert_line (fixture, "vm_manager_vm_created_timestamp_seconds{vm=\"" ID "\",name=\"we\\\"b\"} 1000");
  assert_line (fixture, "vm_manager_vm_disk_bytes{vm=\"" ID "\",name=\"we\\\"b\"} 21474836480");
  g_assert_cmpuint (count_lines (fixture, "vm_manager_vm_info{vm=\"" ID "\",name=\"we\\\"b\",network=\""),
                    ==, 1);
  g_assert_cmpuint (count_lines (fixture, "vm_manager_vm_install_seconds{"), ==, 0);
  g_assert_cmpuint (count_lines (fixture, "vm_manager_vm_boot_to_ready_seconds{"), ==, 0);
  g_assert_cmpuint (count_lines (fixture, "vm_manager_vm_cpu_seconds_total{"), ==, 0);
  g_assert_cmpuint (count_lines (fixture, "vm_manager_vm_memory_rss_bytes{"), ==, 0);

  it->installed_at = it->created_at + 12100000;
  it->booted_at = it->installed_at;
  it->ready_at = it->booted_at + 11400000;
  assert_line (fixture, "vm_manager_vm_install_seconds{vm=\"" ID "\",name=\"we\\\"b\"} 12.1");
  assert_line (fixture, "vm_manager_vm_boot_to_ready_seconds{vm=\"" ID "\",name=\"we\\\"b\"} 11.4");

  vmm_metrics_remove_machine (fixture->metrics, fixture->vm->machine);
  g_assert_cmpuint (count_lines (fixture, "vm_manager_vm_state{"), ==, 0);
  assert_line (fixture, "vm_manager_vms{state=\"installing\"} 0");
}

static void
assert_attestation (Fixture *fixture, const char *state)
{
  g_autofree char *name = g_strdup (record (fixture)->name);
  g_autofree char *line = g_strdup_printf ("vm_manager_vm_attestation{vm=\"" ID "\",name=\"%s\","
                                           "state=\"%s\"} 1",
                                           name, state);
  g_autoptr (JsonNode) node = vmm_metrics_describe (fixture->metrics, fixture->vm->machine);
  JsonObject *host = json_object_get_object_member (json_node_get_object (node), "host");

  assert_line (fixture, line);
  g_assert_cmpuint (count_lines (fixture, "vm_manager_vm_attestation{"), ==, 4);
  g_assert_cmpstr (json_object_get_string_member (host, "attestation"), ==, state);
}

static void
test_attestation (Fixture *fixture, gconstpointer data)
{
  VmmMachineRecord *it;

  add_machine (fixture);
  it = record (fixture);
  it->require_attestation = FALSE;
  it->user_data_released = TRUE;
  assert_attestation (fixture, "disabled");
  it->require_attestation = TRUE;
  assert_attestation (fixture, "released");
  it->user_data_released = FALSE;
  assert_attestation (fixture, "pending");
  it->initrd_quote.present = TRUE;
  it->initrd_quote.verdict = vmm_verdict_new ("initrd", FALSE, "no");
  assert_attestation (fixture, "failed");
  it->user_data_released = TRUE;
  assert_attestation (fixture, "released");
}

static void
change (Fixture *fixture)
{
  g_signal_emit_by_name (fixture->vm->machine, "transition", VMM_MACHINE_EVENT_GUEST_STATUS,
                         VMM_MACHINE_READY, VMM_MACHINE_READY);
}

static void
test_histograms (Fixture *fixture, gconstpointer data)
{
  VmmMachineRecord *it;

  add_machine (fixture);
  it = record (fixture);
  change (fixture);
  assert_line (fixture, "vm_manager_vm_install_duration_seconds_count 0");
  it->installed_at = it->created_at + 25 * G_USEC_PER_SEC;
  it->booted_at = it->installed_at;
  change (fixture);
  change (fixture); /* of something else */
  assert_line (fixture, "vm_manager_vm_install_duration_seconds_bucket{le=\"20\"} 0");
  assert_line (fixture, "vm_manager_vm_install_duration_seconds_bucket{le=\"30\"} 1");
  assert_line (fixture, "vm_manager_vm_install_duration_seconds_bucket{le=\"+Inf\"} 1");
  assert_line (fixture, "vm_manager_vm_install_duration_seconds_sum 25");
  it->ready_at = it->booted_at + 3 * G_USEC_PER_SEC;
  change (fixture);
  it->booted_at = it->ready_at + G_USEC_PER_SEC; /* it starts again */
  it->ready_at = 0;
  change (fixture);
  it->ready_at = it->booted_at + 200 * G_USEC_PER_SEC;
  change (fixture);
  assert_line (fixture, "vm_manager_vm_boot_to_ready_duration_seconds_bucket{le=\"2\"} 0");
  assert_line (fixture, "vm_manager_vm_boot_to_ready_duration_seconds_bucket{le=\"5\"} 1");
  assert_line (fixture, "vm_manager_vm_boot_to_ready_duration_seconds_bucket{le=\"120\"} 1");
  assert_line (fixture, "vm_manager_vm_boot_to_ready_duration_seconds_count 2");
  assert_line (fixture, "vm_manager_vm_boot_to_ready_duration_seconds_sum 203");
  assert_line (fixture, "vm_manager_vm_install_duration_seconds_count 1");
}

/* After a restart of the daemon what was is not observed again; after a removal nothing is. */
static void
test_histograms_start (Fixture *fixture, gconstpointer data)
{
  VmmMachineRecord *it;

  machine_fixture_make (fixture->vm);
  it = record (fixture);
  it->created_at = 1000 * G_USEC_PER_SEC;
  it->installed_at = it->created_at + G_USEC_PER_SEC;
  vmm_metrics_add_machine (fixture->metrics, fixture->vm->machine);
  vmm_metrics_add_machine (fixture->metrics, fixture->vm->machine);
  change (fixture);
  assert_line (fixture, "vm_manager_vm_install_duration_seconds_count 0");
  vmm_metrics_remove_machine (fixture->metrics, fixture->vm->machine);
  it->installed_at += G_USEC_PER_SEC;
  change (fixture);
  assert_line (fixture, "vm_manager_vm_install_duration_seconds_count 0");
}

static void
take (Fixture *fixture, const char *id, const char *text)
{
  g_autoptr (GBytes) bytes = g_bytes_new (text, strlen (text));
  g_autoptr (GError) error = NULL;
  g_autoptr (VmmGuestIntake) intake
      = vmm_guest_intake_new (bytes, vmm_metrics_get_guest_limit (fixture->metrics), &error);

  g_assert_no_error (error);
  vmm_metrics_take_report (fixture->metrics, id, intake);
}

static JsonObject *
describe (Fixture *fixture)
{
  g_autoptr (JsonNode) node = vmm_metrics_describe (fixture->metrics, fixture->vm->machine);

  return json_object_ref (json_node_get_object (node));
}

static void
test_reports (Fixture *fixture, gconstpointer data)
{
  add_machine (fixture);
  take (fixture, "ffffffff", "{}");
  g_assert_cmpuint (count_lines (fixture, "ffffffff"), ==, 0);
  take (fixture, ID, "{\"metrics\": [{\"name\": \"x\", \"value\": 1}]}");
  assert_line (fixture, "vm_guest_x{vm=\"" ID "\",object=\"\"} 1");
  assert_line (fixture, "vm_guest_reports_total{vm=\"" ID "\"} 1");
  vmm_metrics_remove_machine (fixture->metrics, fixture->vm->machine);
  g_assert_cmpuint (count_lines (fixture, "vm_guest_"), ==, 0);
}

static void
test_notes (Fixture *fixture, gconstpointer data)
{
  g_autofree char *path = NULL;
  g_autoptr (JsonObject) none = NULL;
  g_autoptr (JsonObject) unparsed = NULL;
  g_autoptr (JsonObject) parsed = NULL;
  JsonObject *guest;

  add_machine (fixture);
  none = describe (fixture);
  g_assert_true (json_object_get_null_member (none, "guest"));
  g_assert_false (json_object_has_member (none, "raw_report_url"));
  g_assert_cmpstr (json_object_get_string_member (none, "note"), ==,
                   "no systemd-report upload from the guest yet; host metrics only");

  path = g_strdup_printf ("vms/%s/report.json", ID);
  machine_fixture_write (fixture->vm, path, "7");
  unparsed = describe (fixture);
  g_assert_true (json_object_get_null_member (unparsed, "guest"));
  g_assert_cmpstr (json_object_get_string_member (unparsed, "raw_report_url"), ==,
                   "/api/v1/vms/" ID "/report");
  g_assert_cmpstr (json_object_get_string_member (unparsed, "note"), ==,
                   "the guest's last upload is not a systemd-report and was not exported; see "
                   "raw_report_url");

  take (fixture, ID,
        "{\"timestamp\": \"Sat 2026-09-12 14:17:48 UTC\", \"metrics\": ["
        "{\"name\": \"x\", \"value\": 1}]}");
  parsed = describe (fixture);
  guest = json_object_get_object_member (parsed, "guest");
  g_assert_cmpstr (json_object_get_string_member (guest, "generated_at"), ==,
                   "2026-09-12T14:17:48Z");
  g_assert_false (json_object_has_member (parsed, "note"));
}

static void
test_describe_at_rest (Fixture *fixture, gconstpointer data)
{
  g_autoptr (JsonObject) object = NULL;
  JsonObject *host;

  add_machine (fixture);
  record (fixture)->disk_gib = 2;
  object = describe (fixture);
  host = json_object_get_object_member (object, "host");
  g_assert_cmpstr (json_object_get_string_member (object, "id"), ==, ID);
  g_assert_cmpstr (json_object_get_string_member (host, "state"), ==, "creating");
  g_assert_cmpint (json_object_get_int_member (host, "disk_bytes"), ==,
                   G_GINT64_CONSTANT (2147483648));
  g_assert_false (json_object_has_member (host, "pid"));
  g_assert_false (json_object_has_member (host, "cpu_seconds"));
  g_assert_false (json_object_has_member (host, "memory_rss_bytes"));
  g_assert_false (json_object_has_member (host, "install_seconds"));
  g_assert_false (json_object_has_member (host, "boot_to_ready_seconds"));
}

/* With a QEMU process, a volume and a network that counts. */
static void
test_running (Fixture *fixture, gconstpointer data)
{
  g_autoptr (JsonObject) object = NULL;
  JsonObject *host;
  JsonObject *network;
  g_autofree char *cpu = NULL;
  g_autofree char *memory = NULL;

  machine_fixture_make (fixture->vm);
  vmm_metrics_add_machine (fixture->metrics, fixture->vm->machine);
  test_fakes.usage = (VmmProcessUsage){ 12500000, 1073741824 };
  test_fakes.counters = (VmmNetworkCounters){ 1234, 5678, 0, 0 };
  g_assert_true (machine_fixture_create (fixture->vm, NULL));
  machine_fixture_await_state (fixture->vm, VMM_MACHINE_READY);

  cpu = g_strdup_printf ("vm_manager_vm_cpu_seconds_total{vm=\"" ID "\",name=\"%s\"} 12.5",
                         record (fixture)->name);
  memory = g_strdup_printf ("vm_manager_vm_memory_rss_bytes{vm=\"" ID "\",name=\"%s\"} 1073741824",
                            record (fixture)->name);
  assert_line (fixture, cpu);
  assert_line (fixture, memory);
  assert_line (fixture, "vm_manager_network_bytes_total{network=\"default\",direction=\"sent\"} 1234");
  assert_line (fixture,
               "vm_manager_network_bytes_total{network=\"default\",direction=\"received\"} 5678");
  assert_line (fixture, "vm_manager_network_leases{network=\"default\"} 1");
  assert_line (fixture, "vm_manager_vm_install_duration_seconds_count 1");
  assert_line (fixture, "vm_manager_vm_boot_to_ready_duration_seconds_count 1");
  object = describe (fixture);
  host = json_object_get_object_member (object, "host");
  g_assert_cmpint (json_object_get_int_member (host, "pid"), >, 0);
  g_assert_cmpfloat (json_object_get_double_member (host, "cpu_seconds"), ==, 12.5);
  g_assert_cmpint (json_object_get_int_member (host, "memory_rss_bytes"), ==, 1073741824);
  g_assert_true (json_object_has_member (host, "install_seconds"));
  g_assert_true (json_object_has_member (host, "boot_to_ready_seconds"));
  network = json_object_get_object_member (host, "network");
  g_assert_cmpstr (json_object_get_string_member (network, "name"), ==, "default");
  g_assert_cmpint (json_object_get_int_member (network, "bytes_sent"), ==, 1234);
  g_assert_cmpint (json_object_get_int_member (network, "bytes_received"), ==, 5678);
  g_assert_cmpint (json_object_get_int_member (network, "leases"), ==, 1);

  g_assert_true (machine_fixture_stop (fixture->vm, NULL));
  g_assert_cmpuint (count_lines (fixture, "vm_manager_vm_cpu_seconds_total{"), ==, 0);
}

static char *
find_promtool (void)
{
  const char *given = g_getenv ("PROMTOOL");

  return given != NULL ? g_strdup (given) : g_find_program_in_path ("promtool");
}

static void
test_promtool (Fixture *fixture, gconstpointer data)
{
  g_autofree char *promtool = find_promtool ();
  g_autoptr (GSubprocess) child = NULL;
  g_autoptr (GBytes) text = NULL;
  g_autoptr (GBytes) out = NULL;
  g_autoptr (GBytes) err = NULL;
  g_autoptr (GAsyncResult) result = NULL;
  g_autoptr (GError) error = NULL;
  TestAwait await = TEST_AWAIT_INIT;

  if (promtool == NULL)
    {
      g_test_skip ("promtool is not installed");
      return;
    }
  add_machine (fixture);
  take (fixture, ID,
        "{\"metrics\": [{\"name\": \"io.systemd.Unit.ActiveState\", \"object\": "
        "\"a\\\"b\\\\c.service\", \"value\": \"act\\nive\"},"
        "{\"name\": \"io.systemd.Manager.NRestarts\", \"value\": 3},"
        "{\"name\": \"io.systemd.Boot.Usec\", \"value\": 1.5e300, \"fields\": "
        "{\"stage\": \"initrd\"}}, {\"name\": \"io.systemd.Boot.Usec\", \"value\": 1}]}");
  text = vmm_metrics_expose (fixture->metrics);
  child = g_subprocess_new (G_SUBPROCESS_FLAGS_STDIN_PIPE | G_SUBPROCESS_FLAGS_STDOUT_PIPE
                              | G_SUBPROCESS_FLAGS_STDERR_PIPE,
                            &error, promtool, "check", "metrics", NULL);
  g_assert_no_error (error);
  g_subprocess_communicate_async (child, text, NULL, test_await_cb, &await);
  result = test_await (&await);
  g_assert_true (g_subprocess_communicate_finish (child, result, &out, &err, &error));
  if (g_subprocess_get_successful (child))
    return;
  g_test_message ("promtool: %.*s%.*s", (int) g_bytes_get_size (out),
                  (const char *) g_bytes_get_data (out, NULL), (int) g_bytes_get_size (err),
                  (const char *) g_bytes_get_data (err, NULL));
  g_test_fail ();
}

int
main (int argc, char **argv)
{
  g_test_init (&argc, &argv, G_TEST_OPTION_ISOLATE_DIRS, NULL);
#define ADD(name, function)                                                                        \
  g_test_add ("/metrics/" name, Fixture, NULL, set_up, function, tear_down)
  ADD ("families", test_families);
  ADD ("build", test_build);
  ADD ("machine", test_machine);
  ADD ("attestation", test_attestation);
  ADD ("histograms", test_histograms);
  ADD ("histograms-start", test_histograms_start);
  ADD ("reports", test_reports);
  ADD ("notes", test_notes);
  ADD ("describe-at-rest", test_describe_at_rest);
  ADD ("running", test_running);
  ADD ("promtool", test_promtool);
  return g_test_run ();
}

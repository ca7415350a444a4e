/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The metrics of this host: one text for Prometheus, one summary for each VM.
 *
 * Almost nothing is counted here: a scrape looks at what there is. Only the two histograms need to
 * see things happen, so each machine's changes are followed, and a time that is new is observed
 * once. What a machine had when it was added (the daemon was restarted) is not news.
 *
 * The parts of a scrape do not depend on each other, and none of them can fail it: what is not
 * known is left out.
 */
#include "config.h"

#include "vmm-metrics.h"

#include "interfaces/vmm-error.h"
#include "vmm-exposition.h"
#include "vmm-json.h"
#include "vmm-metrics-guest.h"
#include "vmm-metrics-host.h"
#include "vmm-metrics-process.h"

static const double install_bounds[] = { 10, 20, 30, 45, 60, 90, 120, 180, 300 };
static const double boot_bounds[] = { 1, 2, 5, 10, 15, 20, 30, 60, 120 };

typedef struct
{
  VmmMachine *machine;
  gulong transition_handler;
  gint64 installed_at; /* as seen last */
  gint64 ready_at;
} Follower;

struct _VmmMetrics
{
  GObject parent_instance;

  VmmNetworkTable *networks; /* borrowed */
  GPtrArray *machines;       /* of VmmMachine, in the order they came */
  GHashTable *followers;     /* id -> Follower */
  VmmGuestMetrics *guests;
  VmmHistogram installs;
  VmmHistogram boots;
};

G_DEFINE_FINAL_TYPE (VmmMetrics, vmm_metrics, G_TYPE_OBJECT)

static void
follower_free (gpointer data)
{
  Follower *follower = data;

  g_clear_signal_handler (&follower->transition_handler, follower->machine);
  g_object_unref (follower->machine);
  g_free (follower);
}

static void
transition_cb (VmmMachine *machine, guint event, guint from, guint to, gpointer user_data)
{
  VmmMetrics *self = user_data;
  const VmmMachineRecord *record = vmm_machine_get_record (machine);
  Follower *follower = g_hash_table_lookup (self->followers, record->id);
  double seconds;

  if (follower == NULL)
    return;
  if (record->installed_at != follower->installed_at
      && vmm_machine_get_install_seconds (machine, &seconds))
    vmm_histogram_observe (&self->installs, seconds);
  if (record->ready_at != follower->ready_at && vmm_machine_get_boot_seconds (machine, &seconds))
    vmm_histogram_observe (&self->boots, seconds);
  follower->installed_at = record->installed_at;
  follower->ready_at = record->ready_at;
}

void
vmm_metrics_add_machine (VmmMetrics *self, VmmMachine *machine)
{
  const VmmMachineRecord *record = vmm_machine_get_record (machine);
  Follower *follower;

  g_return_if_fail (VMM_IS_METRICS (self));

  if (g_hash_table_contains (self->followers, record->id))
    return;
  follower = g_new0 (Follower, 1);
  follower->machine = g_object_ref (machine);
  follower->transition_handler
      = g_signal_connect (machine, "transition", G_CALLBACK (transition_cb), self);
  follower->installed_at = record->installed_at;
  follower->ready_at = record->ready_at;
  g_hash_table_insert (self->followers, g_strdup (record->id), follower);
  g_ptr_array_add (self->machines, g_object_ref (machine));
}

void
vmm_metrics_remove_machine (VmmMetrics *self, VmmMachine *machine)
{
  const char *id = vmm_machine_get_id (machine);

  g_return_if_fail (VMM_IS_METRICS (self));

  vmm_guest_metrics_forget (self->guests, id);
  g_hash_table_remove (self->followers, id);
  g_ptr_array_remove (self->machines, machine);
}

GBytes *
vmm_metrics_expose (VmmMetrics *self)
{
  GString *text;

  g_return_val_if_fail (VMM_IS_METRICS (self), NULL);

  text = g_string_sized_new (4096 + 2048 * (gsize) self->machines->len);
  vmm_metrics_host_add_build_to (text);
  vmm_metrics_host_add_machines_to (text, self->machines);
  vmm_histogram_add_to (&self->installs, text, "vm_manager_vm_install_duration_seconds",
                        "From a VM's creation to its installer's end.");
  vmm_histogram_add_to (&self->boots, text, "vm_manager_vm_boot_to_ready_duration_seconds",
                        "From a boot's start to READY=1.");
  vmm_metrics_host_add_networks_to (text, self->networks);
  vmm_guest_metrics_add_to (self->guests, text);
  vmm_metrics_process_add_to (text);
  return g_string_free_to_bytes (text);
}

guint
vmm_metrics_get_guest_limit (VmmMetrics *self)
{
  g_return_val_if_fail (VMM_IS_METRICS (self), 0);

  return vmm_guest_metrics_get_limit (self->guests);
}

void
vmm_metrics_take_report (VmmMetrics *self, const char *vm_id, VmmGuestIntake *intake)
{
  g_return_if_fail (VMM_IS_METRICS (self));

  if (g_hash_table_contains (self->followers, vm_id))
    vmm_guest_metrics_take (self->guests, vm_id, intake);
}

static void
set_process (JsonObject *host, VmmMachine *machine)
{
  VmmProcess *qemu = vmm_machine_get_process (machine, VMM_PROCESS_ROLE_QEMU);
  const VmmProcessHandle *handle = qemu != NULL ? vmm_process_get_handle (qemu) : NULL;
  VmmProcessUsage usage;

  if (handle != NULL && vmm_process_handle_get_pid (handle) > 0)
    json_object_set_int_member (host, "pid", vmm_process_handle_get_pid (handle));
  if (qemu == NULL || !vmm_process_get_usage (qemu, &usage))
    return;
  json_object_set_double_member (host, "cpu_seconds", usage.cpu_usec / (double) G_USEC_PER_SEC);
  json_object_set_int_member (host, "memory_rss_bytes", usage.memory_bytes);
}

static JsonObject *
describe_network (VmmMetrics *self, const char *name)
{
  VmmNetwork *network = vmm_network_table_get_network (self->networks, name);
  VmmNetworkCounters counters = { 0 };
  JsonObject *object = json_object_new ();

  if (network != NULL && !vmm_network_get_counters (network, &counters))
    counters = (VmmNetworkCounters){ 0 };
  json_object_set_string_member (object, "name", name);
  json_object_set_int_member (object, "bytes_sent", counters.bytes_sent);
  json_object_set_int_member (object, "bytes_received", counters.bytes_received);
  json_object_set_int_member (object, "leases",
                              vmm_network_table_contains (self->networks, name)
                                ? vmm_network_table_get_n_leases (self->networks, name)
                                : 0);
  return object;
}

static JsonObject *
describe_host (VmmMetrics *self, VmmMachine *machine)
{
  const VmmMachineRecord *record = vmm_machine_get_record (machine);
  VmmAttestationState attestation = vmm_machine_get_attestation_state (machine);
  JsonObject *host = json_object_new ();
  double seconds;

  json_object_set_string_member (host, "state", vmm_machine_state_to_nick (record->state));
  json_object_set_string_member (host, "attestation",
                                 vmm_attestation_state_to_nick (attestation));
  set_process (host, machine);
  json_object_set_int_member (host, "disk_bytes", vmm_machine_get_disk_bytes (machine));
  if (vmm_machine_get_install_seconds (machine, &seconds))
    json_object_set_double_member (host, "install_seconds", seconds);
  if (vmm_machine_get_boot_seconds (machine, &seconds))
    json_object_set_double_member (host, "boot_to_ready_seconds", seconds);
  json_object_set_object_member (host, "network", describe_network (self, record->network));
  return host;
}

JsonNode *
vmm_metrics_describe (VmmMetrics *self, VmmMachine *machine)
{
  JsonObject *object = json_object_new ();
  const char *id = vmm_machine_get_id (machine);
  JsonObject *guest = vmm_guest_metrics_describe (self->guests, id);
  g_autofree char *report = vmm_machine_dup_path (machine, "report.json");
  gboolean stored = g_file_test (report, G_FILE_TEST_EXISTS);

  json_object_set_string_member (object, "id", id);
  json_object_set_object_member (object, "host", describe_host (self, machine));
  if (guest != NULL)
    json_object_set_object_member (object, "guest", guest);
  else
    json_object_set_null_member (object, "guest");
  if (stored)
    {
      g_autofree char *url = g_strdup_printf ("/api/v1/vms/%s/report", id);

      json_object_set_string_member (object, "raw_report_url", url);
    }
  if (!stored && guest == NULL)
    json_object_set_string_member (object, "note",
                                   "no systemd-report upload from the guest yet; host metrics "
                                   "only");
  else if (guest == NULL)
    json_object_set_string_member (object, "note",
                                   "the guest's last upload is not a systemd-report and was not "
                                   "exported; see raw_report_url");
  return vmm_json_node_take_object (object);
}

static void
vmm_metrics_dispose (GObject *object)
{
  VmmMetrics *self = VMM_METRICS (object);

  g_hash_table_remove_all (self->followers);
  g_ptr_array_set_size (self->machines, 0);
  G_OBJECT_CLASS (vmm_metrics_parent_class)->dispose (object);
}

static void
vmm_metrics_finalize (GObject *object)
{
  VmmMetrics *self = VMM_METRICS (object);

  g_hash_table_unref (self->followers);
  g_ptr_array_unref (self->machines);
  g_clear_pointer (&self->guests, vmm_guest_metrics_free);
  vmm_histogram_clear (&self->installs);
  vmm_histogram_clear (&self->boots);
  G_OBJECT_CLASS (vmm_metrics_parent_class)->finalize (object);
}

static void
vmm_metrics_class_init (VmmMetricsClass *class)
{
  G_OBJECT_CLASS (class)->dispose = vmm_metrics_dispose;
  G_OBJECT_CLASS (class)->finalize = vmm_metrics_finalize;
}

static void
vmm_metrics_init (VmmMetrics *self)
{
  self->machines = g_ptr_array_new_with_free_func (g_object_unref);
  self->followers = g_hash_table_new_full (g_str_hash, g_str_equal, g_free, follower_free);
  vmm_histogram_init (&self->installs, install_bounds, G_N_ELEMENTS (install_bounds));
  vmm_histogram_init (&self->boots, boot_bounds, G_N_ELEMENTS (boot_bounds));
}

VmmMetrics *
vmm_metrics_new (VmmNetworkTable *networks, guint guest_series_limit)
{
  VmmMetrics *self = g_object_new (VMM_TYPE_METRICS, NULL);

  self->networks = networks;
  self->guests = vmm_guest_metrics_new (guest_series_limit);
  return self;
}

/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Writes the families that the daemon itself knows: states, times, what QEMU uses, networks.
 *
 * The text format wants all samples of a family in one place, so the machines are walked once for
 * each family; what needs more than a look into the record (labels, the processes' usage) is taken
 * once before. What cannot be learnt is absent, never zero.
 */
#include "config.h"

#include "vmm-metrics-host.h"

#include "vmm-exposition.h"
#include "vmm-version.h"

#ifdef __clang__
#define TOOLCHAIN "clang " __clang_version__
#else
#define TOOLCHAIN "gcc " __VERSION__
#endif

/* One VM in one scrape. */
typedef struct
{
  VmmMachine *machine;
  const VmmMachineRecord *record;
  char *labels; /* vm, name */
  gboolean has_usage;
  VmmProcessUsage usage;
} Row;

static void
row_free (gpointer data)
{
  Row *row = data;

  g_free (row->labels);
  g_free (row);
}

const char *
vmm_attestation_state_to_nick (VmmAttestationState state)
{
  static const char *const nicks[VMM_N_ATTESTATION_STATES]
      = { "disabled", "pending", "released", "failed" };

  return nicks[state];
}

VmmAttestationState
vmm_machine_get_attestation_state (VmmMachine *machine)
{
  const VmmMachineRecord *record = vmm_machine_get_record (machine);
  const VmmQuoteResult *quote = &record->initrd_quote;

  if (!record->require_attestation)
    return VMM_ATTESTATION_DISABLED;
  if (record->user_data_released)
    return VMM_ATTESTATION_RELEASED;
  if (quote->present && quote->verdict != NULL && !vmm_verdict_is_verified (quote->verdict))
    return VMM_ATTESTATION_FAILED;
  return VMM_ATTESTATION_PENDING;
}

/* Between two recorded times. They are of the wall clock, as they outlive the daemon: after one that was
 * set back nobody knows how long it was, and a sum of such times must never fall. */
static gboolean
get_span (gint64 from, gint64 to, double *seconds)
{
  *seconds = (to - from) / (double) G_USEC_PER_SEC;
  return from != 0 && to != 0 && to >= from;
}

gboolean
vmm_machine_get_install_seconds (VmmMachine *machine, double *seconds)
{
  const VmmMachineRecord *record = vmm_machine_get_record (machine);

  return get_span (record->created_at, record->installed_at, seconds);
}

gboolean
vmm_machine_get_boot_seconds (VmmMachine *machine, double *seconds)
{
  const VmmMachineRecord *record = vmm_machine_get_record (machine);

  return get_span (record->booted_at, record->ready_at, seconds);
}

guint64
vmm_machine_get_disk_bytes (VmmMachine *machine)
{
  VmmVolume *volume = vmm_machine_get_volume (machine);

  if (volume != NULL)
    return vmm_volume_get_size (volume);
  return vmm_machine_get_record (machine)->disk_gib << 30;
}

void
vmm_metrics_host_add_build_to (GString *text)
{
  g_autoptr (GString) labels = g_string_new (NULL);

  vmm_exposition_add_label (labels, "version", vmm_version);
  vmm_exposition_add_label (labels, "commit", vmm_version_commit);
  vmm_exposition_add_label (labels, "go_version", TOOLCHAIN);
  vmm_exposition_add_family (text, "vm_manager_build_info", "gauge",
                             "What this vm-manager was built from and with.");
  vmm_exposition_add_sample (text, "vm_manager_build_info", labels->str, 1);
}

/* One of a list of names is 1, the others are 0. */
static void
add_choice (GString *text, const char *name, const Row *row, const char *nick, gboolean chosen)
{
  g_string_append_printf (text, "%s{%s,state=\"%s\"} %d\n", name, row->labels, nick, chosen);
}

static void
add_states (GString *text, GPtrArray *rows)
{
  vmm_exposition_add_family (text, "vm_manager_vm_state", "gauge",
                             "1 for the VM's current state, 0 for the others.");
  for (guint i = 0; i < rows->len; i++)
    {
      const Row *row = rows->pdata[i];

      for (guint state = 0; state < VMM_MACHINE_N_STATES; state++)
        add_choice (text, "vm_manager_vm_state", row, vmm_machine_state_to_nick (state),
                    row->record->state == state);
    }
}

static void
add_attestation (GString *text, GPtrArray *rows)
{
  vmm_exposition_add_family (text, "vm_manager_vm_attestation", "gauge",
                             "1 for the current state of the VM's attestation, 0 for the others.");
  for (guint i = 0; i < rows->len; i++)
    {
      const Row *row = rows->pdata[i];
      VmmAttestationState now = vmm_machine_get_attestation_state (row->machine);

      for (guint state = 0; state < VMM_N_ATTESTATION_STATES; state++)
        add_choice (text, "vm_manager_vm_attestation", row, vmm_attestation_state_to_nick (state),
                    now == state);
    }
}

static void
add_info (GString *text, GPtrArray *rows)
{
  vmm_exposition_add_family (text, "vm_manager_vm_info", "gauge",
                             "What does not change much, to join with.");
  for (guint i = 0; i < rows->len; i++)
    {
      const Row *row = rows->pdata[i];
      g_autoptr (GString) labels = g_string_new (row->labels);

      vmm_exposition_add_label (labels, "network", row->record->network);
      vmm_exposition_add_label (labels, "ip", row->record->ip != NULL ? row->record->ip : "");
      vmm_exposition_add_label (labels, "image", row->record->image);
      vmm_exposition_add_sample (text, "vm_manager_vm_info", labels->str, 1);
    }
}

/* A number of each VM, FALSE for none. */
typedef gboolean (*RowFunc) (const Row *row, double *value);

static gboolean
get_created (const Row *row, double *value)
{
  *value = row->record->created_at / (double) G_USEC_PER_SEC;
  return row->record->created_at != 0;
}

static gboolean
get_install (const Row *row, double *value)
{
  return vmm_machine_get_install_seconds (row->machine, value);
}

static gboolean
get_boot (const Row *row, double *value)
{
  return vmm_machine_get_boot_seconds (row->machine, value);
}

static gboolean
get_cpu (const Row *row, double *value)
{
  *value = row->usage.cpu_usec / (double) G_USEC_PER_SEC;
  return row->has_usage;
}

static gboolean
get_memory (const Row *row, double *value)
{
  *value = row->usage.memory_bytes;
  return row->has_usage;
}

static gboolean
get_disk (const Row *row, double *value)
{
  *value = vmm_machine_get_disk_bytes (row->machine);
  return TRUE;
}

static void
add_numbers (GString *text, GPtrArray *rows)
{
  static const struct
  {
    const char *name;
    const char *type;
    const char *help;
    RowFunc get;
  } families[] = {
    { "vm_manager_vm_created_timestamp_seconds", "gauge", "When the VM was created, unix time.",
      get_created },
    { "vm_manager_vm_install_seconds", "gauge", "From the VM's creation to its installer's end.",
      get_install },
    { "vm_manager_vm_boot_to_ready_seconds", "gauge", "From the current boot's start to READY=1.",
      get_boot },
    { "vm_manager_vm_cpu_seconds_total", "counter", "User and system time of the QEMU process.",
      get_cpu },
    { "vm_manager_vm_memory_rss_bytes", "gauge", "Resident memory of the QEMU process.",
      get_memory },
    { "vm_manager_vm_disk_bytes", "gauge", "Size of the VM's disk.", get_disk },
  };

  for (guint family = 0; family < G_N_ELEMENTS (families); family++)
    {
      vmm_exposition_add_family (text, families[family].name, families[family].type,
                                 families[family].help);
      for (guint i = 0; i < rows->len; i++)
        {
          const Row *row = rows->pdata[i];
          double value;

          if (families[family].get (row, &value))
            vmm_exposition_add_sample (text, families[family].name, row->labels, value);
        }
    }
}

static void
add_totals (GString *text, GPtrArray *rows)
{
  guint counts[VMM_MACHINE_N_STATES] = { 0 };

  for (guint i = 0; i < rows->len; i++)
    counts[((const Row *) rows->pdata[i])->record->state]++;
  vmm_exposition_add_family (text, "vm_manager_vms", "gauge", "VMs by state.");
  for (guint state = 0; state < VMM_MACHINE_N_STATES; state++)
    g_string_append_printf (text, "vm_manager_vms{state=\"%s\"} %u\n",
                            vmm_machine_state_to_nick (state), counts[state]);
}

static Row *
row_new (VmmMachine *machine, const VmmMachineRecord *record)
{
  VmmProcess *qemu = vmm_machine_get_process (machine, VMM_PROCESS_ROLE_QEMU);
  GString *labels = g_string_new (NULL);
  Row *row = g_new0 (Row, 1);

  vmm_exposition_add_label (labels, "vm", record->id);
  vmm_exposition_add_label (labels, "name", record->name);
  row->machine = machine;
  row->record = record;
  row->labels = g_string_free (labels, FALSE);
  row->has_usage = qemu != NULL && vmm_process_get_usage (qemu, &row->usage);
  return row;
}

void
vmm_metrics_host_add_machines_to (GString *text, GPtrArray *machines)
{
  g_autoptr (GPtrArray) rows = g_ptr_array_new_full (machines->len, row_free);

  for (guint i = 0; i < machines->len; i++)
    {
      const VmmMachineRecord *record = vmm_machine_get_record (machines->pdata[i]);

      if (record->state < VMM_MACHINE_N_STATES)
        g_ptr_array_add (rows, row_new (machines->pdata[i], record));
    }
  add_states (text, rows);
  add_attestation (text, rows);
  add_info (text, rows);
  add_numbers (text, rows);
  add_totals (text, rows);
}

static void
add_bytes (GString *text, const char *name, const char *direction, guint64 bytes)
{
  g_autoptr (GString) labels = g_string_new (NULL);

  vmm_exposition_add_label (labels, "network", name);
  vmm_exposition_add_label (labels, "direction", direction);
  vmm_exposition_add_sample (text, "vm_manager_network_bytes_total", labels->str, bytes);
}

void
vmm_metrics_host_add_networks_to (GString *text, VmmNetworkTable *networks)
{
  g_auto (GStrv) names = vmm_network_table_dup_names (networks);

  vmm_exposition_add_family (text, "vm_manager_network_bytes_total", "counter",
                             "Bytes sent to and received from VMs, framing included.");
  for (guint i = 0; names[i] != NULL; i++)
    {
      VmmNetwork *network = vmm_network_table_get_network (networks, names[i]);
      VmmNetworkCounters counters;

      if (network == NULL || !vmm_network_get_counters (network, &counters))
        continue;
      add_bytes (text, names[i], "sent", counters.bytes_sent);
      add_bytes (text, names[i], "received", counters.bytes_received);
    }
  vmm_exposition_add_family (text, "vm_manager_network_leases", "gauge",
                             "VMs that hold a lease on the network.");
  for (guint i = 0; names[i] != NULL; i++)
    {
      g_autoptr (GString) labels = g_string_new (NULL);

      vmm_exposition_add_label (labels, "network", names[i]);
      vmm_exposition_add_sample (text, "vm_manager_network_leases", labels->str,
                                 vmm_network_table_get_n_leases (networks, names[i]));
    }
}

/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The record of a VM: its fields, and how they look in the API and in vm.json.
 *
 * One function writes both forms, since vm.json is the API's object with what is kept but not shown:
 * the format's number, how to find the processes again, the pinned key and how far the journal was
 * read. Reading is in vmm-machine-record-reader.c.
 */

#include "config.h"

#include "vmm-machine-record.h"

#include "vmm-json.h"
#include "vmm-time.h"

static const char *const role_nicks[] = {
  [VMM_PROCESS_ROLE_QEMU] = "qemu",
  [VMM_PROCESS_ROLE_TPM] = "tpm",
  [VMM_PROCESS_ROLE_MONITOR] = "monitor",
  [VMM_PROCESS_ROLE_VSOCK] = "vsock",
};
G_STATIC_ASSERT (G_N_ELEMENTS (role_nicks) == VMM_N_PROCESS_ROLES);

const char *
vmm_process_role_to_nick (VmmProcessRole role)
{
  g_return_val_if_fail ((guint) role < G_N_ELEMENTS (role_nicks), "unknown");
  return role_nicks[role];
}

VmmForward *
vmm_forward_copy (const VmmForward *forward)
{
  VmmForward *copy = g_new0 (VmmForward, 1);

  copy->id = g_strdup (forward->id);
  copy->port = forward->port;
  copy->protocol = g_strdup (forward->protocol);
  copy->host_address = g_strdup (forward->host_address);
  copy->host_port = forward->host_port;
  return copy;
}

void
vmm_forward_free (VmmForward *forward)
{
  if (forward == NULL)
    return;
  g_free (forward->id);
  g_free (forward->protocol);
  g_free (forward->host_address);
  g_free (forward);
}

VmmMachineRecord *
vmm_machine_record_new (void)
{
  VmmMachineRecord *self = g_new0 (VmmMachineRecord, 1);

  self->metadata = g_hash_table_new_full (g_str_hash, g_str_equal, g_free, g_free);
  self->forwards = g_ptr_array_new_with_free_func ((GDestroyNotify) vmm_forward_free);
  return self;
}

void
vmm_machine_record_clear_quotes (VmmMachineRecord *self)
{
  g_clear_pointer (&self->initrd_quote.verdict, vmm_verdict_unref);
  g_clear_pointer (&self->ready_quote.verdict, vmm_verdict_unref);
  self->initrd_quote = (VmmQuoteResult){ 0 };
  self->ready_quote = (VmmQuoteResult){ 0 };
}

void
vmm_machine_record_clear_paused (VmmMachineRecord *self)
{
  g_clear_pointer (&self->paused_reason, g_free);
  self->paused_at = 0;
}

void
vmm_machine_record_free (VmmMachineRecord *self)
{
  char **strings[] = {
    &self->id,           &self->name,          &self->image,      &self->kubernetes_version,
    &self->network,      &self->hostname,      &self->region,     &self->zone,
    &self->owner,        &self->phase,         &self->ip,         &self->mac,
    &self->machine_id,   &self->status,        &self->accelerator, &self->ssh_public_key,
    &self->pinned_key,   &self->last_error,    &self->paused_reason, &self->volume_path,
  };

  for (guint i = 0; i < G_N_ELEMENTS (strings); i++)
    g_free (*strings[i]);
  g_strfreev (self->ssh_authorized_keys);
  g_hash_table_unref (self->metadata);
  g_ptr_array_unref (self->forwards);
  vmm_machine_record_clear_quotes (self);
  for (guint i = 0; i < VMM_N_PROCESS_ROLES; i++)
    g_clear_pointer (&self->processes[i], vmm_process_handle_free);
  g_free (self);
}

static void
set_string (JsonObject *object, const char *member, const char *value)
{
  json_object_set_string_member (object, member, value != NULL ? value : "");
}

static void
set_time (JsonObject *object, const char *member, gint64 time_us)
{
  g_autofree char *text = NULL;

  if (time_us == 0)
    return;
  text = vmm_time_to_text (time_us);
  json_object_set_string_member (object, member, text);
}

static void
add_identity (JsonObject *object, const VmmMachineRecord *self)
{
  set_string (object, "id", self->id);
  set_string (object, "name", self->name);
  set_string (object, "image", self->image);
  set_string (object, "network", self->network);
  vmm_json_set_string_unless_empty (object, "kubernetesVersion", self->kubernetes_version);
  json_object_set_int_member (object, "cpus", self->cpus);
  json_object_set_int_member (object, "memoryMiB", (gint64) self->memory_mib);
  json_object_set_int_member (object, "diskGiB", (gint64) self->disk_gib);
  if (self->ssh_authorized_keys != NULL && self->ssh_authorized_keys[0] != NULL)
    {
      JsonArray *keys = json_array_new ();

      for (guint i = 0; self->ssh_authorized_keys[i] != NULL; i++)
        json_array_add_string_element (keys, self->ssh_authorized_keys[i]);
      json_object_set_array_member (object, "sshAuthorizedKeys", keys);
    }
  vmm_json_set_string_unless_empty (object, "hostname", self->hostname);
  vmm_json_set_string_unless_empty (object, "region", self->region);
  vmm_json_set_string_unless_empty (object, "zone", self->zone);
  if (g_hash_table_size (self->metadata) > 0)
    {
      g_autoptr (GList) keys = g_list_sort (g_hash_table_get_keys (self->metadata),
                                            (GCompareFunc) g_strcmp0);
      JsonObject *metadata = json_object_new ();

      for (GList *l = keys; l != NULL; l = l->next)
        set_string (metadata, l->data, g_hash_table_lookup (self->metadata, l->data));
      json_object_set_object_member (object, "metadata", metadata);
    }
  json_object_set_boolean_member (object, "requireAttestation", self->require_attestation);
}

static JsonObject *
quote_to_object (const VmmQuoteResult *quote)
{
  JsonObject *object = json_object_new ();
  g_autoptr (JsonObject) pcrs = json_object_new ();
  g_autoptr (JsonArray) learned = json_array_new ();

  json_object_set_boolean_member (object, "verified", vmm_verdict_is_verified (quote->verdict));
  vmm_json_set_string_unless_empty (object, "message", vmm_verdict_get_message (quote->verdict));
  set_time (object, "at", quote->at);
  vmm_json_set_string_unless_empty (object, "akFingerprint",
                                    vmm_verdict_get_ak_fingerprint (quote->verdict));
  for (guint i = 0; i < VMM_VERDICT_N_PCRS; i++)
    {
      char index[16];

      g_snprintf (index, sizeof index, "%u", i);
      vmm_json_set_string_unless_empty (pcrs, index, vmm_verdict_get_pcr (quote->verdict, i));
      if (vmm_verdict_was_learned (quote->verdict, i))
        json_array_add_int_element (learned, i);
    }
  if (json_object_get_size (pcrs) > 0)
    json_object_set_object_member (object, "pcrs", g_steal_pointer (&pcrs));
  if (json_array_get_length (learned) > 0)
    json_object_set_array_member (object, "learned", g_steal_pointer (&learned));
  return object;
}

static JsonObject *
attestation_to_object (const VmmMachineRecord *self)
{
  JsonObject *object = json_object_new ();

  json_object_set_boolean_member (object, "required", self->require_attestation);
  json_object_set_boolean_member (object, "userDataReleased", self->user_data_released);
  set_time (object, "nonceIssuedAt", self->nonce_issued_at);
  if (self->initrd_quote.present)
    json_object_set_object_member (object, "initrd", quote_to_object (&self->initrd_quote));
  if (self->ready_quote.present)
    json_object_set_object_member (object, "ready", quote_to_object (&self->ready_quote));
  return object;
}

static JsonObject *
process_to_object (const VmmProcessHandle *handle, gboolean for_file)
{
  JsonObject *object = json_object_new ();

  vmm_json_set_string_unless_empty (object, "unit", vmm_process_handle_get_unit (handle));
  json_object_set_int_member (object, "pid", vmm_process_handle_get_pid (handle));
  if (for_file)
    {
      g_autofree char *start = NULL;

      /* A text, since the kernel's counter is unsigned and 64 bits wide. */
      start = g_strdup_printf ("%" G_GUINT64_FORMAT, vmm_process_handle_get_start_time (handle));
      json_object_set_string_member (object, "startTime", start);
      vmm_json_set_string_unless_empty (object, "invocation",
                                        vmm_process_handle_get_invocation (handle));
    }
  return object;
}

static void
add_processes (JsonObject *object, const VmmMachineRecord *self, gboolean for_file)
{
  g_autoptr (JsonObject) processes = json_object_new ();

  for (guint i = 0; i < VMM_N_PROCESS_ROLES; i++)
    {
      if (self->processes[i] != NULL)
        json_object_set_object_member (processes, role_nicks[i],
                                       process_to_object (self->processes[i], for_file));
    }
  if (json_object_get_size (processes) > 0)
    json_object_set_object_member (object, "processes", g_steal_pointer (&processes));
}

static void
add_run (JsonObject *object, const VmmMachineRecord *self, gboolean for_file)
{
  set_string (object, "state", vmm_machine_state_to_nick (self->state));
  vmm_json_set_string_unless_empty (object, "phase", self->phase);
  vmm_json_set_string_unless_empty (object, "ip", self->ip);
  vmm_json_set_string_unless_empty (object, "mac", self->mac);
  json_object_set_int_member (object, "cid", self->cid);
  set_string (object, "machineID", self->machine_id);
  json_object_set_boolean_member (object, "booted", self->booted);
  vmm_json_set_string_unless_empty (object, "status", self->status);
  set_string (object, "sshPublicKey", self->ssh_public_key);
  json_object_set_object_member (object, "attestation", attestation_to_object (self));
  set_time (object, "createdAt", self->created_at);
  set_time (object, "installedAt", self->installed_at);
  set_time (object, "bootedAt", self->booted_at);
  set_time (object, "readyAt", self->ready_at);
  vmm_json_set_string_unless_empty (object, "lastError", self->last_error);
  add_processes (object, self, for_file);
}

static void
add_paths (JsonObject *object, const VmmMachineRecord *self, const char *directory)
{
  static const struct
  {
    const char *member;
    const char *name;
  } files[] = {
    { "console", "console.log" },     { "tpmState", "tpm" },     { "ovmfVars", "ovmf_vars.fd" },
    { "qmpSocket", "qmp.sock" },      { "qemuLog", "qemu.log" }, { "sshKey", "ssh_key" },
    { "userData", "user-data" },      { "report", "report.json" },
  };
  JsonObject *paths = json_object_new ();

  set_string (paths, "dir", directory);
  set_string (paths, "volume", self->volume_path);
  for (guint i = 0; i < G_N_ELEMENTS (files); i++)
    {
      g_autofree char *path = g_build_filename (directory, files[i].name, NULL);

      set_string (paths, files[i].member, path);
    }
  json_object_set_object_member (object, "paths", paths);
}

static JsonObject *
forward_to_object (const VmmForward *forward)
{
  JsonObject *object = json_object_new ();

  set_string (object, "id", forward->id);
  json_object_set_int_member (object, "port", forward->port);
  set_string (object, "protocol", forward->protocol);
  set_string (object, "hostAddress", forward->host_address);
  json_object_set_int_member (object, "hostPort", forward->host_port);
  return object;
}

/* What the product adds to the members that the reference had. */
static void
add_extensions (JsonObject *object, const VmmMachineRecord *self)
{
  if (self->paused_reason != NULL)
    {
      JsonObject *paused = json_object_new ();

      set_string (paused, "reason", self->paused_reason);
      set_time (paused, "at", self->paused_at);
      json_object_set_object_member (object, "paused", paused);
    }
  if (self->forwards->len > 0)
    {
      JsonArray *forwards = json_array_new ();

      for (guint i = 0; i < self->forwards->len; i++)
        json_array_add_object_element (forwards,
                                       forward_to_object (g_ptr_array_index (self->forwards, i)));
      json_object_set_array_member (object, "forwards", forwards);
    }
  vmm_json_set_string_unless_empty (object, "accelerator", self->accelerator);
  vmm_json_set_string_unless_empty (object, "owner", self->owner);
  json_object_set_boolean_member (object, "autostart", self->autostart);
  json_object_set_int_member (object, "notifyPort", self->notify_port);
  set_time (object, "tpmRestoredAt", self->tpm_restored_at);
}

static JsonObject *
to_object (const VmmMachineRecord *self, const char *directory, gboolean for_file)
{
  JsonObject *object = json_object_new ();

  if (for_file)
    json_object_set_int_member (object, "formatVersion", VMM_MACHINE_RECORD_FORMAT);
  add_identity (object, self);
  add_run (object, self, for_file);
  add_paths (object, self, directory);
  add_extensions (object, self);
  if (for_file)
    {
      g_autofree char *position = NULL;

      vmm_json_set_string_unless_empty (object, "pinnedKey", self->pinned_key);
      position = g_strdup_printf ("%" G_GUINT64_FORMAT, self->journal_position);
      json_object_set_string_member (object, "journalPosition", position);
    }
  return object;
}

JsonNode *
vmm_machine_record_to_json (const VmmMachineRecord *self, const char *directory)
{
  return vmm_json_node_take_object (to_object (self, directory, FALSE));
}

JsonNode *
vmm_machine_record_attestation_to_json (const VmmMachineRecord *self)
{
  return vmm_json_node_take_object (attestation_to_object (self));
}

JsonNode *
vmm_machine_record_to_file (const VmmMachineRecord *self, const char *directory)
{
  return vmm_json_node_take_object (to_object (self, directory, TRUE));
}

/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Reads vm.json.
 *
 * The file is ours, but a disk that was full, a restored backup or a curious administrator may have
 * changed it, so every member is checked as if a stranger had sent it: type, range, form. A record
 * that does not pass is refused as a whole and left as it is. Paths are never read; they follow from
 * the state directory and the id.
 */

#include "config.h"

#include "vmm-machine-record.h"

#include <string.h>

#include "vmm-json.h"
#include "vmm-time.h"

#define MAX_TEXT (1024 * 1024)
#define MAX_NAME 255
#define MAX_LIST 4096

static gboolean
fail (GError **error, const char *member, const char *problem)
{
  vmm_set_error (error, VMM_ERROR_INVALID_REQUEST, "%s %s", member, problem);
  return FALSE;
}

/* A string of at most limit bytes; absent and empty are NULL. */
static gboolean
read_text (JsonObject *object, const char *member, gsize limit, char **value, GError **error)
{
  const char *text = NULL;

  if (!vmm_json_get_string (object, member, NULL, &text, error))
    return FALSE;
  if (text != NULL && strlen (text) > limit)
    return fail (error, member, "is too long");
  g_free (*value);
  *value = text != NULL && text[0] != '\0' ? g_strdup (text) : NULL;
  return TRUE;
}

static gboolean
read_required (JsonObject *object, const char *member, gsize limit, char **value, GError **error)
{
  if (!read_text (object, member, limit, value, error))
    return FALSE;
  if (*value == NULL)
    return fail (error, member, "is missing");
  return TRUE;
}

static gboolean
read_int (JsonObject *object, const char *member, gint64 fallback, gint64 lowest, gint64 highest,
          gint64 *value, GError **error)
{
  if (!vmm_json_get_int (object, member, fallback, value, error))
    return FALSE;
  if (*value < lowest || *value > highest)
    return fail (error, member, "is out of range");
  return TRUE;
}

/* The counters that need all 64 bits are texts. */
static gboolean
read_counter (JsonObject *object, const char *member, guint64 *value, GError **error)
{
  const char *text = NULL;

  if (!vmm_json_get_string (object, member, "0", &text, error))
    return FALSE;
  if (!g_ascii_string_to_unsigned (text, 10, 0, G_MAXUINT64, value, NULL))
    return fail (error, member, "is not a number");
  return TRUE;
}

static gboolean
read_time (JsonObject *object, const char *member, gint64 *value, GError **error)
{
  const char *text = NULL;

  if (!vmm_json_get_string (object, member, NULL, &text, error))
    return FALSE;
  *value = 0;
  if (text != NULL && !vmm_time_from_text (text, value))
    return fail (error, member, "is not a time");
  return TRUE;
}

static gboolean
is_hex (const char *text, gsize length)
{
  if (strlen (text) != length)
    return FALSE;
  return strspn (text, "0123456789abcdef") == length;
}

static gboolean
is_label (const char *text)
{
  gsize length = strlen (text);

  return length >= 1 && length <= 63
         && strspn (text, "abcdefghijklmnopqrstuvwxyz0123456789-") == length && text[0] != '-'
         && text[length - 1] != '-';
}

static gboolean
read_format (JsonObject *object, GError **error)
{
  gint64 format;

  if (!vmm_json_get_int (object, "formatVersion", 0, &format, error))
    return FALSE;
  if (format > VMM_MACHINE_RECORD_FORMAT)
    {
      vmm_set_error (error, VMM_ERROR_UNSUPPORTED,
                     "format version %" G_GINT64_FORMAT
                     " is newer than this vm-manager knows (%d); upgrade it",
                     format, VMM_MACHINE_RECORD_FORMAT);
      return FALSE;
    }
  if (format < 1)
    return fail (error, "formatVersion", "is missing or out of range");
  return TRUE;
}

static gboolean
read_metadata (JsonObject *object, GHashTable *metadata, GError **error)
{
  JsonObject *members = NULL;
  JsonObjectIter iter;
  const char *key;
  JsonNode *node;

  if (!vmm_json_get_object (object, "metadata", &members, error))
    return FALSE;
  if (members == NULL)
    return TRUE;
  json_object_iter_init (&iter, members);
  while (json_object_iter_next (&iter, &key, &node))
    {
      const char *value = NULL;

      if (!vmm_json_get_string (members, key, NULL, &value, error))
        return FALSE;
      if (value == NULL || key[0] == '\0')
        return fail (error, "metadata", "has an empty key or value");
      g_hash_table_insert (metadata, g_strdup (key), g_strdup (value));
    }
  return TRUE;
}

static gboolean
read_sizes (JsonObject *object, VmmMachineRecord *self, GError **error)
{
  gint64 cpus, memory, disk;

  if (!read_int (object, "cpus", 0, 1, 256, &cpus, error)
      || !read_int (object, "memoryMiB", 0, 1, VMM_MACHINE_MEMORY_MAX_MIB, &memory, error)
      || !read_int (object, "diskGiB", 0, 1, 4096, &disk, error))
    return FALSE;
  self->cpus = (guint) cpus;
  self->memory_mib = (guint64) memory;
  self->disk_gib = (guint64) disk;
  return TRUE;
}

static gboolean
check_identity (const VmmMachineRecord *self, GError **error)
{
  if (!is_hex (self->id, 8))
    return fail (error, "id", "must be 8 hexadecimal digits");
  if (!is_label (self->name))
    return fail (error, "name", "must be a DNS label");
  if (!is_label (self->network))
    return fail (error, "network", "must be a DNS label");
  if (self->hostname != NULL && !is_label (self->hostname))
    return fail (error, "hostname", "must be a DNS label");
  if (!is_hex (self->machine_id, 32))
    return fail (error, "machineID", "must be 32 hexadecimal digits");
  if (self->ssh_authorized_keys != NULL
      && g_strv_length (self->ssh_authorized_keys) > VMM_MACHINE_KEYS_MAX)
    return fail (error, "sshAuthorizedKeys", "has too many elements");
  for (guint i = 0; self->ssh_authorized_keys != NULL && self->ssh_authorized_keys[i] != NULL; i++)
    {
      if (strpbrk (self->ssh_authorized_keys[i], "\r\n") != NULL)
        return fail (error, "sshAuthorizedKeys", "must be single lines");
    }
  return TRUE;
}

static gboolean
read_identity (JsonObject *object, VmmMachineRecord *self, GError **error)
{
  return read_required (object, "id", MAX_NAME, &self->id, error)
         && read_required (object, "name", MAX_NAME, &self->name, error)
         && read_required (object, "image", MAX_NAME, &self->image, error)
         && read_required (object, "network", MAX_NAME, &self->network, error)
         && read_required (object, "machineID", MAX_NAME, &self->machine_id, error)
         && read_text (object, "kubernetesVersion", MAX_NAME, &self->kubernetes_version, error)
         && read_text (object, "hostname", MAX_NAME, &self->hostname, error)
         && read_text (object, "region", MAX_NAME, &self->region, error)
         && read_text (object, "zone", MAX_NAME, &self->zone, error)
         && read_text (object, "owner", MAX_NAME, &self->owner, error)
         && read_sizes (object, self, error)
         && vmm_json_get_strv (object, "sshAuthorizedKeys", &self->ssh_authorized_keys, error)
         && read_metadata (object, self->metadata, error)
         && vmm_json_get_boolean (object, "requireAttestation", TRUE, &self->require_attestation,
                                  error)
         && vmm_json_get_boolean (object, "autostart", FALSE, &self->autostart, error)
         && check_identity (self, error);
}

static gboolean
check_run (const VmmMachineRecord *self, GError **error)
{
  g_autoptr (GInetAddress) address = NULL;

  if (self->phase != NULL && strcmp (self->phase, "install") != 0
      && strcmp (self->phase, "boot") != 0)
    return fail (error, "phase", "must be install or boot");
  if (self->accelerator != NULL && strcmp (self->accelerator, "kvm") != 0
      && strcmp (self->accelerator, "tcg") != 0)
    return fail (error, "accelerator", "must be kvm or tcg");
  if (self->ip != NULL)
    {
      address = g_inet_address_new_from_string (self->ip);
      if (address == NULL || g_inet_address_get_family (address) != G_SOCKET_FAMILY_IPV4)
        return fail (error, "ip", "must be an IPv4 address");
    }
  if (self->mac != NULL
      && !g_regex_match_simple ("^([0-9a-f]{2}:){5}[0-9a-f]{2}$", self->mac, 0, 0))
    return fail (error, "mac", "must be a 48-bit address");
  if (self->created_at == 0)
    return fail (error, "createdAt", "is missing");
  return TRUE;
}

static gboolean
read_state (JsonObject *object, VmmMachineRecord *self, GError **error)
{
  const char *nick = NULL;
  gint64 cid, port;

  if (!vmm_json_get_string (object, "state", NULL, &nick, error)
      || !read_int (object, "cid", 0, 3, 4294967294, &cid, error)
      || !read_int (object, "notifyPort", 0, 0, G_MAXUINT32, &port, error))
    return FALSE;
  if (!vmm_machine_state_from_nick (nick, &self->state))
    return fail (error, "state", "is unknown");
  self->cid = (guint32) cid;
  self->notify_port = (guint32) port;
  return TRUE;
}

static gboolean
read_run (JsonObject *object, VmmMachineRecord *self, GError **error)
{
  return read_state (object, self, error)
         && read_text (object, "phase", MAX_NAME, &self->phase, error)
         && read_text (object, "ip", MAX_NAME, &self->ip, error)
         && read_text (object, "mac", MAX_NAME, &self->mac, error)
         && read_text (object, "status", MAX_TEXT, &self->status, error)
         && read_text (object, "sshPublicKey", MAX_TEXT, &self->ssh_public_key, error)
         && read_text (object, "accelerator", MAX_NAME, &self->accelerator, error)
         && read_text (object, "lastError", MAX_TEXT, &self->last_error, error)
         && read_text (object, "pinnedKey", MAX_TEXT, &self->pinned_key, error)
         && vmm_json_get_boolean (object, "booted", FALSE, &self->booted, error)
         && read_time (object, "createdAt", &self->created_at, error)
         && read_time (object, "installedAt", &self->installed_at, error)
         && read_time (object, "tpmRestoredAt", &self->tpm_restored_at, error)
         && read_time (object, "bootedAt", &self->booted_at, error)
         && read_time (object, "readyAt", &self->ready_at, error)
         && read_counter (object, "journalPosition", &self->journal_position, error)
         && check_run (self, error);
}

static gboolean
read_pcrs (JsonObject *quote, VmmVerdict *verdict, GError **error)
{
  JsonObject *pcrs = NULL;
  JsonObjectIter iter;
  const char *key;
  JsonNode *node;

  if (!vmm_json_get_object (quote, "pcrs", &pcrs, error))
    return FALSE;
  if (pcrs == NULL)
    return TRUE;
  json_object_iter_init (&iter, pcrs);
  while (json_object_iter_next (&iter, &key, &node))
    {
      const char *digest = NULL;
      guint64 index;

      if (!vmm_json_get_string (pcrs, key, NULL, &digest, error))
        return FALSE;
      if (!g_ascii_string_to_unsigned (key, 10, 0, VMM_VERDICT_N_PCRS - 1, &index, NULL)
          || digest == NULL || !is_hex (digest, 64))
        return fail (error, "pcrs", "must be SHA-256 digests by index");
      vmm_verdict_set_pcr (verdict, (guint) index, digest);
    }
  return TRUE;
}

static gboolean
read_learned (JsonObject *quote, VmmVerdict *verdict, GError **error)
{
  JsonArray *learned = NULL;

  if (!vmm_json_get_array (quote, "learned", &learned, error))
    return FALSE;
  for (guint i = 0; learned != NULL && i < json_array_get_length (learned); i++)
    {
      JsonNode *node = json_array_get_element (learned, i);

      if (!JSON_NODE_HOLDS_VALUE (node) || json_node_get_value_type (node) != G_TYPE_INT64
          || json_node_get_int (node) < 0 || json_node_get_int (node) >= VMM_VERDICT_N_PCRS)
        return fail (error, "learned", "must be PCR indices");
      vmm_verdict_add_learned (verdict, (guint) json_node_get_int (node));
    }
  return TRUE;
}

static gboolean
read_quote (JsonObject *attestation, const char *stage, VmmQuoteResult *result, GError **error)
{
  g_autoptr (VmmVerdict) verdict = NULL;
  JsonObject *quote = NULL;
  const char *message = NULL;
  const char *fingerprint = NULL;
  gboolean verified = FALSE;

  if (!vmm_json_get_object (attestation, stage, &quote, error))
    return FALSE;
  if (quote == NULL)
    return TRUE;
  if (!vmm_json_get_boolean (quote, "verified", FALSE, &verified, error)
      || !vmm_json_get_string (quote, "message", "", &message, error)
      || !vmm_json_get_string (quote, "akFingerprint", NULL, &fingerprint, error)
      || !read_time (quote, "at", &result->at, error))
    return FALSE;
  verdict = vmm_verdict_new (stage, verified, message);
  if (fingerprint != NULL)
    vmm_verdict_set_ak_fingerprint (verdict, fingerprint);
  if (!read_pcrs (quote, verdict, error) || !read_learned (quote, verdict, error))
    return FALSE;
  result->present = TRUE;
  result->verdict = g_steal_pointer (&verdict);
  return TRUE;
}

static gboolean
read_attestation (JsonObject *object, VmmMachineRecord *self, GError **error)
{
  JsonObject *attestation = NULL;

  if (!vmm_json_get_object (object, "attestation", &attestation, error))
    return FALSE;
  /* Nothing is released on the word of a record that says nothing. */
  if (attestation == NULL)
    return TRUE;
  return vmm_json_get_boolean (attestation, "userDataReleased", FALSE, &self->user_data_released,
                               error)
         && read_time (attestation, "nonceIssuedAt", &self->nonce_issued_at, error)
         && read_quote (attestation, "initrd", &self->initrd_quote, error)
         && read_quote (attestation, "ready", &self->ready_quote, error);
}

static gboolean
read_process (JsonObject *processes, const char *role, VmmProcessHandle **handle, GError **error)
{
  JsonObject *process = NULL;
  g_autofree char *unit = NULL;
  g_autofree char *invocation = NULL;
  guint64 start_time;
  gint64 pid;

  if (!vmm_json_get_object (processes, role, &process, error))
    return FALSE;
  if (process == NULL)
    return TRUE;
  if (!read_text (process, "unit", MAX_NAME, &unit, error)
      || !read_text (process, "invocation", MAX_NAME, &invocation, error)
      || !read_int (process, "pid", 0, 0, G_MAXINT32, &pid, error)
      || !read_counter (process, "startTime", &start_time, error))
    return FALSE;
  *handle = vmm_process_handle_new (unit, pid, start_time, invocation);
  return TRUE;
}

static gboolean
read_processes (JsonObject *object, VmmMachineRecord *self, GError **error)
{
  JsonObject *processes = NULL;

  if (!vmm_json_get_object (object, "processes", &processes, error))
    return FALSE;
  for (guint i = 0; processes != NULL && i < VMM_N_PROCESS_ROLES; i++)
    {
      if (!read_process (processes, vmm_process_role_to_nick ((VmmProcessRole) i),
                         &self->processes[i], error))
        return FALSE;
    }
  return TRUE;
}

static gboolean
read_forward (JsonObject *object, VmmForward *forward, GError **error)
{
  gint64 port, host_port;

  if (!read_required (object, "id", MAX_NAME, &forward->id, error)
      || !read_required (object, "protocol", MAX_NAME, &forward->protocol, error)
      || !read_required (object, "hostAddress", MAX_NAME, &forward->host_address, error)
      || !read_int (object, "port", 0, 1, 65535, &port, error)
      || !read_int (object, "hostPort", 0, 0, 65535, &host_port, error))
    return FALSE;
  if (strcmp (forward->protocol, "tcp") != 0 && strcmp (forward->protocol, "udp") != 0)
    return fail (error, "protocol", "must be tcp or udp");
  forward->port = (guint16) port;
  forward->host_port = (guint16) host_port;
  return TRUE;
}

static gboolean
read_forwards (JsonObject *object, VmmMachineRecord *self, GError **error)
{
  JsonArray *forwards = NULL;

  if (!vmm_json_get_array (object, "forwards", &forwards, error))
    return FALSE;
  if (forwards != NULL && json_array_get_length (forwards) > MAX_LIST)
    return fail (error, "forwards", "has too many elements");
  for (guint i = 0; forwards != NULL && i < json_array_get_length (forwards); i++)
    {
      JsonNode *node = json_array_get_element (forwards, i);
      VmmForward *forward;

      if (!JSON_NODE_HOLDS_OBJECT (node))
        return fail (error, "forwards", "must be objects");
      forward = g_new0 (VmmForward, 1);
      g_ptr_array_add (self->forwards, forward);
      if (!read_forward (json_node_get_object (node), forward, error))
        return FALSE;
    }
  return TRUE;
}

static gboolean
read_paused (JsonObject *object, VmmMachineRecord *self, GError **error)
{
  JsonObject *paused = NULL;

  if (!vmm_json_get_object (object, "paused", &paused, error))
    return FALSE;
  if (paused == NULL)
    return TRUE;
  return read_required (paused, "reason", MAX_TEXT, &self->paused_reason, error)
         && read_time (paused, "at", &self->paused_at, error);
}

/* Strings that are never NULL have what the API shows for nothing. */
static void
fill_gaps (VmmMachineRecord *self)
{
  char **strings[] = { &self->hostname, &self->region, &self->zone, &self->owner };

  for (guint i = 0; i < G_N_ELEMENTS (strings); i++)
    {
      if (*strings[i] == NULL)
        *strings[i] = g_strdup ("");
    }
}

VmmMachineRecord *
vmm_machine_record_from_file (JsonObject *object, GError **error)
{
  g_autoptr (VmmMachineRecord) self = vmm_machine_record_new ();

  if (!read_format (object, error) || !read_identity (object, self, error)
      || !read_run (object, self, error) || !read_attestation (object, self, error)
      || !read_processes (object, self, error) || !read_forwards (object, self, error)
      || !read_paused (object, self, error))
    {
      g_prefix_error (error, "vm record: ");
      return NULL;
    }
  fill_gaps (self);
  return g_steal_pointer (&self);
}

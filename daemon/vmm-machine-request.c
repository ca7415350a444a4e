/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The arguments of create_vm, judged.
 *
 * Everything that is wrong with the wish itself is collected and told at once, in a fixed order, so
 * that a caller needs one round to correct it. Only then are the names in it looked up: image,
 * Kubernetes version, network. An unknown one is the caller's mistake here (invalid_request), not a
 * missing resource, because it is not what the call is about. */

#include "config.h"

#include "vmm-machine-request.h"

#include <string.h>

#include "vmm-json.h"
#include "vmm-log.h"
#include "vmm-network-plan.h"

#define CPUS_DEFAULT 2
#define CPUS_MAX 256
#define MEMORY_DEFAULT_MIB 2048
#define MEMORY_MIN_MIB 256
#define DISK_DEFAULT_GIB 20
#define DISK_MAX_GIB 4096
#define NETWORK_DEFAULT "default"
#define SHOWN_KEY_MAX 64

/* The arguments as they came. Strings are borrowed from them. */
typedef struct
{
  const char *name;
  const char *image;
  const char *kubernetes_version;
  gint64 cpus;
  gint64 memory_mib;
  gint64 disk_gib;
  const char *network;
  const char *user_data;
  GStrv ssh_authorized_keys;
  const char *hostname;
  JsonObject *metadata;
  gboolean require_attestation;
  gboolean autostart;
  const char *wait_for;
} Wish;

static void
wish_clear (Wish *wish)
{
  g_clear_pointer (&wish->ssh_authorized_keys, g_strfreev);
}
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (Wish, wish_clear)

static gboolean
read_wish (JsonObject *arguments, Wish *wish, GError **error)
{
  return vmm_json_get_string (arguments, "name", "", &wish->name, error)
         && vmm_json_get_string (arguments, "image", "", &wish->image, error)
         && vmm_json_get_string (arguments, "kubernetes_version", "", &wish->kubernetes_version,
                                 error)
         && vmm_json_get_int (arguments, "cpus", 0, &wish->cpus, error)
         && vmm_json_get_int (arguments, "memory_mib", 0, &wish->memory_mib, error)
         && vmm_json_get_int (arguments, "disk_gib", 0, &wish->disk_gib, error)
         && vmm_json_get_string (arguments, "network", "", &wish->network, error)
         && vmm_json_get_string (arguments, "user_data", "", &wish->user_data, error)
         && vmm_json_get_strv (arguments, "ssh_authorized_keys", &wish->ssh_authorized_keys, error)
         && vmm_json_get_string (arguments, "hostname", "", &wish->hostname, error)
         && vmm_json_get_object (arguments, "metadata", &wish->metadata, error)
         && vmm_json_get_boolean (arguments, "require_attestation", TRUE,
                                  &wish->require_attestation, error)
         && vmm_json_get_boolean (arguments, "autostart", FALSE, &wish->autostart, error)
         && vmm_json_get_string (arguments, "wait_for", "", &wish->wait_for, error);
}

/* Absent, empty and zero mean the default. */
static void
fill_defaults (Wish *wish)
{
  if (wish->hostname[0] == '\0')
    wish->hostname = wish->name;
  if (wish->network[0] == '\0')
    wish->network = NETWORK_DEFAULT;
  if (wish->wait_for[0] == '\0')
    wish->wait_for = "ready";
  if (wish->cpus == 0)
    wish->cpus = CPUS_DEFAULT;
  if (wish->memory_mib == 0)
    wish->memory_mib = MEMORY_DEFAULT_MIB;
  if (wish->disk_gib == 0)
    wish->disk_gib = DISK_DEFAULT_GIB;
}

static void
check_metadata (JsonObject *metadata, GStrvBuilder *problems)
{
  g_autoptr (GList) keys = NULL;

  if (metadata == NULL)
    return;

  keys = g_list_sort (json_object_get_members (metadata), (GCompareFunc) g_strcmp0);
  for (GList *l = keys; l != NULL; l = l->next)
    {
      const char *key = l->data;
      JsonNode *value = json_object_get_member (metadata, key);
      g_autofree char *shown = vmm_log_escape (key, SHOWN_KEY_MAX);
      g_autofree char *problem = NULL;

      if (key[0] == '\0' || strpbrk (key, "/ \t\n") != NULL)
        problem = g_strdup_printf (
            "metadata key \"%s\" must not be empty or contain slashes or spaces", shown);
      else if (!JSON_NODE_HOLDS_VALUE (value) || json_node_get_value_type (value) != G_TYPE_STRING)
        problem = g_strdup_printf ("metadata value of \"%s\" must be a string", shown);
      if (problem != NULL)
        g_strv_builder_add (problems, problem);
    }
}

static gboolean
are_single_lines (GStrv lines)
{
  for (guint i = 0; lines != NULL && lines[i] != NULL; i++)
    {
      if (strpbrk (lines[i], "\r\n") != NULL)
        return FALSE;
    }
  return TRUE;
}

/* The order of the problems is part of the contract. */
static gboolean
check_wish (const Wish *wish, VmmMilestone *milestone, GError **error)
{
  g_autoptr (GStrvBuilder) problems = g_strv_builder_new ();
  g_auto (GStrv) list = NULL;
  g_autofree char *text = NULL;

  if (!vmm_name_is_dns_label (wish->name))
    g_strv_builder_add (problems, "name must be a DNS label (lowercase letters, digits, dashes)");
  if (!vmm_name_is_dns_label (wish->hostname))
    g_strv_builder_add (problems, "hostname must be a DNS label");
  if (wish->cpus < 1 || wish->cpus > CPUS_MAX)
    g_strv_builder_add (problems, "cpus must be 1..256");
  if (wish->memory_mib < MEMORY_MIN_MIB)
    g_strv_builder_add (problems, "memoryMiB must be at least 256");
  if (wish->memory_mib > VMM_MACHINE_MEMORY_MAX_MIB)
    g_strv_builder_add (problems, "memoryMiB must be at most 8796093022207");
  if (wish->disk_gib < 1 || wish->disk_gib > DISK_MAX_GIB)
    g_strv_builder_add (problems, "diskGiB must be 1..4096");
  if (!vmm_milestone_from_nick (wish->wait_for, milestone))
    g_strv_builder_add (problems, "waitFor must be none, installed, attested or ready");
  check_metadata (wish->metadata, problems);
  if (wish->ssh_authorized_keys != NULL
      && g_strv_length (wish->ssh_authorized_keys) > VMM_MACHINE_KEYS_MAX)
    g_strv_builder_add (problems, "there can be 4096 ssh authorized keys at most");
  if (!are_single_lines (wish->ssh_authorized_keys))
    g_strv_builder_add (problems, "ssh authorized keys must be single lines");

  list = g_strv_builder_end (problems);
  if (list[0] == NULL)
    return TRUE;
  text = g_strjoinv ("; ", list);
  vmm_set_error (error, VMM_ERROR_INVALID_REQUEST, "%s", text);
  return FALSE;
}

static const VmmImage *
resolve_image (VmmMachineContext *context, const char *reference, GError **error)
{
  g_autoptr (GError) cause = NULL;
  const VmmImage *image = vmm_images_lookup (context->images, reference, &cause);

  if (image == NULL)
    vmm_set_error (error, VMM_ERROR_INVALID_REQUEST, "image \"%s\": %s", reference, cause->message);
  return image;
}

/* NULL without an error when the image offers none and none is asked for. */
static const char *
resolve_kubernetes_version (const VmmImage *image, const char *version, GError **error)
{
  g_autofree char *available = NULL;

  if (version[0] == '\0')
    return image->kubernetes_versions[0];
  for (guint i = 0; image->kubernetes_versions[i] != NULL; i++)
    {
      if (g_str_equal (image->kubernetes_versions[i], version))
        return image->kubernetes_versions[i];
    }

  available = g_strjoinv (", ", image->kubernetes_versions);
  vmm_set_error (error, VMM_ERROR_INVALID_REQUEST,
                 "kubernetes version \"%s\" is not available for image %s (available: %s)", version,
                 image->reference, available);
  return NULL;
}

static gboolean
check_network (VmmMachineContext *context, const char *network, GError **error)
{
  g_autoptr (GError) cause = NULL;
  g_autoptr (JsonNode) found = NULL;

  if (vmm_network_table_contains (context->networks, network))
    return TRUE;
  found = vmm_network_table_describe (context->networks, network, &cause);
  vmm_set_error (error, VMM_ERROR_INVALID_REQUEST, "network \"%s\": %s%s", network,
                 cause != NULL ? cause->message : "not usable",
                 vmm_network_table_has_backend (context->networks)
                     ? ""
                     : "; no network backend is available: get_host lists every plugin and what "
                       "it lacks");
  return FALSE;
}

static void
take_text (char **member, const char *value)
{
  g_free (*member);
  *member = g_strdup (value);
}

static void
fill_metadata (GHashTable *table, JsonObject *metadata)
{
  g_autoptr (GList) keys = metadata != NULL ? json_object_get_members (metadata) : NULL;

  for (GList *l = keys; l != NULL; l = l->next)
    g_hash_table_replace (table, g_strdup (l->data),
                          g_strdup (json_object_get_string_member (metadata, l->data)));
}

static VmmMachineRecord *
make_record (Wish *wish, const VmmImage *image, const char *kubernetes_version)
{
  VmmMachineRecord *record = vmm_machine_record_new ();

  take_text (&record->name, wish->name);
  take_text (&record->image, image->reference);
  take_text (&record->kubernetes_version, kubernetes_version);
  record->cpus = (guint) wish->cpus;
  record->memory_mib = (guint64) wish->memory_mib;
  record->disk_gib = (guint64) wish->disk_gib;
  take_text (&record->network, wish->network);
  if (wish->ssh_authorized_keys != NULL && wish->ssh_authorized_keys[0] != NULL)
    record->ssh_authorized_keys = g_steal_pointer (&wish->ssh_authorized_keys);
  take_text (&record->hostname, wish->hostname);
  take_text (&record->region, g_get_host_name ());
  take_text (&record->zone, wish->network);
  fill_metadata (record->metadata, wish->metadata);
  record->require_attestation = wish->require_attestation;
  record->autostart = wish->autostart;
  record->state = VMM_MACHINE_CREATING;
  return record;
}

VmmMachineRequest *
vmm_machine_request_parse (JsonObject *arguments, VmmMachineContext *context, GError **error)
{
  g_auto (Wish) wish = { 0 };
  VmmMilestone milestone = VMM_MILESTONE_READY;
  const VmmImage *image;
  const char *kubernetes_version;
  g_autoptr (GError) problem = NULL;
  VmmMachineRequest *self;

  if (!read_wish (arguments, &wish, error))
    {
      g_prefix_error (error, "invalid request: ");
      return NULL;
    }
  fill_defaults (&wish);
  if (!check_wish (&wish, &milestone, error))
    return NULL;
  image = resolve_image (context, wish.image, error);
  if (image == NULL)
    return NULL;
  kubernetes_version = resolve_kubernetes_version (image, wish.kubernetes_version, &problem);
  if (problem != NULL)
    {
      g_propagate_error (error, g_steal_pointer (&problem));
      return NULL;
    }
  if (!check_network (context, wish.network, error))
    return NULL;

  self = g_new0 (VmmMachineRequest, 1);
  self->record = make_record (&wish, image, kubernetes_version);
  self->wait_for = milestone;
  if (wish.user_data[0] != '\0')
    self->user_data = g_bytes_new (wish.user_data, strlen (wish.user_data));
  return self;
}

void
vmm_machine_request_free (VmmMachineRequest *self)
{
  g_clear_pointer (&self->record, vmm_machine_record_free);
  g_clear_pointer (&self->user_data, g_bytes_unref);
  g_free (self);
}

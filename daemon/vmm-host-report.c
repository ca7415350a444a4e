/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The host report as JSON.
 *
 * Pure: from what was found to the object that clients read. The members that existed first keep
 * their order; what a backend contributes is added behind them and can replace none of them.
 */

#include "config.h"

#include "vmm-host-report.h"

#include <libsoup/soup.h>

#include "interfaces/vmm.h"
#include "vmm-json.h"

/* As `qemu -device help` says it. */
#define VSOCK_DEVICE "name \"vhost-user-vsock-pci\""
#define TPM_DEVICE "name \"tpm-crb\""

static JsonObject *
device_to_json (const VmmHostDevice *device)
{
  JsonObject *object = json_object_new ();

  json_object_set_string_member (object, "path", device->path);
  json_object_set_boolean_member (object, "accessible", device->accessible);
  vmm_json_set_string_unless_empty (object, "error", device->error);
  return object;
}

/* With whether QEMU runs guests with it. */
static JsonObject *
kvm_to_json (const VmmHostSources *sources)
{
  const VmmHostDevice *device = &sources->facts->kvm;
  JsonObject *object = json_object_new ();

  json_object_set_string_member (object, "path", device->path);
  json_object_set_boolean_member (object, "accessible", device->accessible);
  json_object_set_boolean_member (object, "usable", sources->kvm->usable);
  vmm_json_set_string_unless_empty (object, "error",
                                    sources->kvm->known ? sources->kvm->error : device->error);
  return object;
}

static JsonObject *
tool_to_json (const VmmHostTool *tool)
{
  JsonObject *object = json_object_new ();

  json_object_set_boolean_member (object, "found", tool->found);
  vmm_json_set_string_unless_empty (object, "version", tool->version);
  vmm_json_set_string_unless_empty (object, "error", tool->error);
  return object;
}

static JsonArray *
strv_to_json (const char *const *strv)
{
  JsonArray *array = json_array_new ();

  for (guint i = 0; strv != NULL && strv[i] != NULL; i++)
    json_array_add_string_element (array, strv[i]);
  return array;
}

static gboolean
has_firmware (const VmmHostSources *sources)
{
  return sources->facts->firmware.path != NULL && sources->firmware->sha256 != NULL;
}

static void
add_firmware (JsonObject *report, const VmmHostSources *sources)
{
  JsonObject *object;

  if (!has_firmware (sources))
    return;

  json_object_set_string_member (report, "ovmfCode", sources->facts->firmware.path);
  object = json_object_new ();
  json_object_set_string_member (object, "sha256", sources->firmware->sha256);
  vmm_json_set_string_unless_empty (object, "package", sources->firmware->package);
  vmm_json_set_string_unless_empty (object, "version", sources->firmware->version);
  vmm_json_set_string_unless_empty (object, "error", sources->firmware->error);
  json_object_set_object_member (report, "firmware", object);
}

/* One that was asked for is not replaced. */
gboolean
vmm_host_sources_emulated (const VmmHostSources *sources)
{
  if (g_str_equal (sources->accelerator, "auto"))
    return !sources->kvm->usable;
  return g_str_equal (sources->accelerator, "tcg");
}

VmmHostVsock
vmm_host_sources_vsock (const VmmHostSources *sources)
{
  if (sources->facts->vsock.accessible)
    return VMM_HOST_VSOCK_VHOST;
  if (sources->facts->programs[VMM_HOST_PROGRAM_VSOCK].path != NULL
      && vmm_host_tool_mentions (sources->qemu_devices, VSOCK_DEVICE))
    return VMM_HOST_VSOCK_VHOST_USER;
  return VMM_HOST_VSOCK_NONE;
}

static const char *
vsock_text (VmmHostVsock way)
{
  switch (way)
    {
    case VMM_HOST_VSOCK_VHOST:
      return "vhost";
    case VMM_HOST_VSOCK_VHOST_USER:
      return "vhost-user";
    case VMM_HOST_VSOCK_NONE:
    default:
      return "none";
    }
}

/* Kinds without which there is no VM and of which no plugin is in use. */
static void
add_missing_backends (GPtrArray *missing, GPtrArray *rows)
{
  static const VmmPluginKind needed[]
      = { VMM_PLUGIN_KIND_LAUNCHER, VMM_PLUGIN_KIND_NETWORK, VMM_PLUGIN_KIND_STORAGE };

  for (guint i = 0; i < G_N_ELEMENTS (needed); i++)
    {
      const char *kind = vmm_plugin_kind_to_nick (needed[i]);
      gboolean chosen = FALSE;

      for (guint j = 0; j < rows->len; j++)
        {
          const VmmPluginRow *row = g_ptr_array_index (rows, j);

          chosen = chosen || (row->chosen && g_strcmp0 (row->kind, kind) == 0);
        }
      if (!chosen)
        g_ptr_array_add (missing, g_strdup_printf ("%s plugin", kind));
    }
}

static void
add_missing_program (GPtrArray *missing, const VmmHostSources *sources, VmmHostProgram program)
{
  if (sources->facts->programs[program].path == NULL)
    g_ptr_array_add (missing, g_strdup (vmm_host_program_get_name (program)));
}

/* Where nothing takes its place: QEMU emulates without KVM, unless that was asked for. */
static gboolean
lacks_kvm (const VmmHostSources *sources)
{
  if (!sources->facts->kvm.accessible && !sources->qemu->found)
    return TRUE;
  return !vmm_host_sources_emulated (sources) && !sources->kvm->usable;
}

static GStrv
list_missing (const VmmHostSources *sources)
{
  const VmmHostFacts *facts = sources->facts;
  GPtrArray *missing = g_ptr_array_new ();

  if (lacks_kvm (sources))
    g_ptr_array_add (missing, g_strdup (facts->kvm.path));
  if (vmm_host_sources_vsock (sources) == VMM_HOST_VSOCK_NONE)
    g_ptr_array_add (missing, g_strdup (facts->vsock.path));
  if (!sources->qemu->found)
    g_ptr_array_add (missing, g_strdup (vmm_host_program_get_name (VMM_HOST_PROGRAM_QEMU)));
  if (!vmm_host_tool_mentions (sources->qemu_devices, TPM_DEVICE))
    g_ptr_array_add (missing, g_strdup ("tpm-crb device of qemu-system-x86_64"));
  if (!sources->swtpm->found)
    g_ptr_array_add (missing, g_strdup (vmm_host_program_get_name (VMM_HOST_PROGRAM_SWTPM)));
  add_missing_program (missing, sources, VMM_HOST_PROGRAM_SWTPM_SETUP);
  add_missing_program (missing, sources, VMM_HOST_PROGRAM_MONITOR);
  if (!has_firmware (sources))
    g_ptr_array_add (missing, g_strdup_printf ("OVMF code image %s", sources->firmware_path));
  if (sources->registry != NULL)
    add_missing_backends (missing, vmm_plugin_registry_get_rows (sources->registry));
  g_ptr_array_add (missing, NULL);
  return (GStrv) g_ptr_array_free (missing, FALSE);
}

static void
add_readiness (JsonObject *report, const VmmHostSources *sources)
{
  g_auto (GStrv) missing = list_missing (sources);

  json_object_set_boolean_member (report, "ready", missing[0] == NULL);
  if (missing[0] != NULL)
    json_object_set_array_member (report, "missing", strv_to_json ((const char *const *) missing));
}

static JsonObject *
libraries_to_json (void)
{
  g_autofree char *glib
      = g_strdup_printf ("%u.%u.%u", glib_major_version, glib_minor_version, glib_micro_version);
  g_autofree char *soup = g_strdup_printf ("%u.%u.%u", soup_get_major_version (),
                                           soup_get_minor_version (), soup_get_micro_version ());
  JsonObject *object = json_object_new ();

  json_object_set_string_member (object, "glib", glib);
  json_object_set_string_member (object, "libsoup", soup);
  return object;
}

static JsonObject *
plugin_to_json (const VmmPluginRow *row)
{
  JsonObject *object = json_object_new ();
  g_auto (GStrv) capabilities = NULL;

  vmm_json_set_string_unless_empty (object, "kind", row->kind);
  vmm_json_set_string_unless_empty (object, "name", row->name);
  vmm_json_set_string_unless_empty (object, "file", row->file);
  json_object_set_boolean_member (object, "loaded", row->loaded);
  json_object_set_boolean_member (object, "available", row->available);
  json_object_set_boolean_member (object, "chosen", row->chosen);
  if (row->backend != NULL)
    capabilities = vmm_backend_dup_capabilities (row->backend);
  if (capabilities != NULL && capabilities[0] != NULL)
    json_object_set_array_member (object, "capabilities",
                                  strv_to_json ((const char *const *) capabilities));
  vmm_json_set_string_unless_empty (object, "reason", row->reason);
  return object;
}

/* Whether quotes are judged, and by whom. */
static JsonObject *
attestation_to_json (GPtrArray *rows)
{
  const char *kind = vmm_plugin_kind_to_nick (VMM_PLUGIN_KIND_ATTESTOR);
  JsonObject *object = json_object_new ();
  const VmmPluginRow *chosen = NULL;
  g_autofree char *reason = NULL;
  gboolean verifies;

  for (guint i = 0; i < rows->len; i++)
    {
      const VmmPluginRow *row = g_ptr_array_index (rows, i);

      if (row->chosen && g_strcmp0 (row->kind, kind) == 0 && VMM_IS_ATTESTOR (row->backend))
        chosen = row;
    }

  verifies = chosen != NULL && vmm_attestor_verifies (VMM_ATTESTOR (chosen->backend));
  if (chosen != NULL)
    json_object_set_string_member (object, "attestor", chosen->name);
  json_object_set_boolean_member (object, "verifies", verifies);
  if (chosen == NULL)
    reason = g_strdup ("no attestor that verifies quotes is in use: a VM that requires attestation "
                       "is refused");
  else if (!verifies)
    reason = g_strdup_printf ("the %s attestor does not verify quotes: user data is released "
                              "without proof",
                              chosen->name);
  vmm_json_set_string_unless_empty (object, "reason", reason);
  return object;
}

/* The members that a backend in use adds. */
static void
add_contribution (JsonObject *report, VmmBackend *backend)
{
  g_autoptr (GVariant) members = vmm_backend_describe_host (backend);
  GVariantIter iter;
  const char *name;
  GVariant *value;

  if (members == NULL)
    return;
  g_variant_ref_sink (members);
  if (!g_variant_is_of_type (members, G_VARIANT_TYPE_VARDICT))
    return;

  g_variant_iter_init (&iter, members);
  while (g_variant_iter_loop (&iter, "{&sv}", &name, &value))
    if (!json_object_has_member (report, name))
      json_object_set_member (report, name, vmm_json_from_variant (value));
}

static void
add_plugins (JsonObject *report, VmmPluginRegistry *registry)
{
  g_autoptr (GPtrArray) none = g_ptr_array_new ();
  GPtrArray *rows = registry != NULL ? vmm_plugin_registry_get_rows (registry) : none;
  JsonArray *plugins = json_array_new ();

  for (guint i = 0; i < rows->len; i++)
    json_array_add_object_element (plugins, plugin_to_json (g_ptr_array_index (rows, i)));
  json_object_set_array_member (report, "plugins", plugins);
  json_object_set_object_member (report, "attestation", attestation_to_json (rows));

  for (guint i = 0; i < rows->len; i++)
    {
      const VmmPluginRow *row = g_ptr_array_index (rows, i);

      if (row->chosen && row->backend != NULL)
        add_contribution (report, row->backend);
    }
}

JsonNode *
vmm_host_report_new (const VmmHostSources *sources)
{
  const VmmHostFacts *facts = sources->facts;
  JsonObject *report = json_object_new ();
  JsonNode *node;

  json_object_set_string_member (report, "hostname", facts->hostname);
  json_object_set_string_member (report, "kernel", facts->kernel);
  json_object_set_int_member (report, "cpus", facts->cpus);
  json_object_set_int_member (report, "memoryBytes", (gint64) facts->memory_bytes);
  json_object_set_object_member (report, "kvm", kvm_to_json (sources));
  json_object_set_object_member (report, "vhostVsock", device_to_json (&facts->vsock));
  json_object_set_object_member (report, "qemu", tool_to_json (sources->qemu));
  json_object_set_object_member (report, "swtpm", tool_to_json (sources->swtpm));
  json_object_set_object_member (report, "systemd", tool_to_json (sources->systemd));
  add_firmware (report, sources);
  json_object_set_array_member (report, "storageProviders",
                                strv_to_json ((const char *const *) facts->storage_providers));
  json_object_set_string_member (report, "accelerator",
                                 vmm_host_sources_emulated (sources) ? "tcg" : "kvm");
  json_object_set_string_member (report, "vsock", vsock_text (vmm_host_sources_vsock (sources)));
  json_object_set_object_member (report, "libraries", libraries_to_json ());
  add_readiness (report, sources);
  add_plugins (report, sources->registry);

  node = vmm_json_node_take_object (report);
  json_node_seal (node);
  return node;
}

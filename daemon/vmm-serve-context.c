/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What a service is made of, chosen by the options.
 *
 * The daemon runs without acceleration, images, a network or a verifier: what is missing is said
 * here once, and refused where it is asked for. Only a backend that was named must be there. */

#include "config.h"

#include "vmm-serve-context.h"

#include <string.h>
#include <unistd.h>

#include "interfaces/vmm-error.h"
#include "vmm-account.h"
#include "vmm-log.h"

/* How much longer emulated guests may take, unless a time was given. */
#define EMULATION_FACTOR 4

typedef struct
{
  VmmPluginKind kind;
  const char *flag;
  const char *missing; /* what the log says when there is none */
} Choice;

static const Choice choices[] = {
  { VMM_PLUGIN_KIND_LAUNCHER, "launcher", "no plugin can run processes: VMs cannot be started" },
  { VMM_PLUGIN_KIND_NETWORK, "network", "no plugin can carry packets: VMs cannot be created" },
  { VMM_PLUGIN_KIND_STORAGE, "storage", "no plugin can keep disks: VMs cannot be created" },
  { VMM_PLUGIN_KIND_ATTESTOR, "attestation",
    "no plugin verifies quotes: VMs that require attestation are refused" },
};

/* What was not loaded was said when it was not. */
static void
log_plugins (VmmPluginRegistry *registry)
{
  GPtrArray *rows = vmm_plugin_registry_get_rows (registry);

  for (guint i = 0; i < rows->len; i++)
    {
      const VmmPluginRow *row = g_ptr_array_index (rows, i);

      if (row->loaded && !row->available)
        vmm_log_info ("plugin not available", "kind", row->kind, "name", row->name, "reason",
                      row->reason, NULL);
    }
}

static gboolean
is_known (VmmPluginRegistry *registry, VmmPluginKind kind, const char *name, GString *known)
{
  GPtrArray *rows = vmm_plugin_registry_get_rows (registry);
  gboolean found = strcmp (name, "auto") == 0;

  g_string_assign (known, "auto");
  for (guint i = 0; i < rows->len; i++)
    {
      const VmmPluginRow *row = g_ptr_array_index (rows, i);

      if (!row->loaded || g_strcmp0 (row->kind, vmm_plugin_kind_to_nick (kind)) != 0)
        continue;
      g_string_append_printf (known, " %s", row->name);
      found = found || strcmp (row->name, name) == 0;
    }
  return found;
}

/* A backend below auto's reach was asked for by name: somebody should know. */
static void
warn_if_never_automatic (VmmPluginRegistry *registry, VmmBackend *backend, const char *flag)
{
  GPtrArray *rows = vmm_plugin_registry_get_rows (registry);

  for (guint i = 0; i < rows->len; i++)
    {
      const VmmPluginRow *row = g_ptr_array_index (rows, i);

      if (row->backend == backend && row->priority < 0)
        vmm_log_warning ("this plugin is for tests and special cases and never chosen by itself",
                         flag, row->name, NULL);
    }
}

/* NULL without error: auto found none, which is fine. The result is borrowed. */
static gboolean
choose (VmmPluginRegistry *registry, VmmOptions *options, const Choice *choice,
        VmmBackend **backend, GError **error)
{
  const char *name = vmm_options_get_string (options, choice->flag);
  g_autoptr (GString) known = g_string_new (NULL);
  g_autoptr (GError) problem = NULL;
  g_autofree char *reason = NULL;

  if (!is_known (registry, choice->kind, name, known))
    {
      g_set_error (error, G_OPTION_ERROR, G_OPTION_ERROR_BAD_VALUE,
                   "--%s: \"%s\" is not one of [%s]", choice->flag, name, known->str);
      return FALSE;
    }
  *backend = vmm_plugin_registry_choose (registry, choice->kind, name, &reason, &problem);
  if (*backend != NULL)
    {
      vmm_log_info ("plugin chosen", "kind", vmm_plugin_kind_to_nick (choice->kind), "name",
                    vmm_plugin_registry_get_name (registry, *backend), "reason", reason, NULL);
      warn_if_never_automatic (registry, *backend, choice->flag);
      return TRUE;
    }
  if (strcmp (name, "auto") == 0)
    {
      vmm_log_warning (choice->missing, NULL);
      return TRUE;
    }
  g_propagate_prefixed_error (error, g_steal_pointer (&problem), "--%s: ", choice->flag);
  return FALSE;
}

static char *
find_runtime_dir (VmmOptions *options)
{
  const char *given = g_getenv ("RUNTIME_DIRECTORY");
  const char *session = g_getenv ("XDG_RUNTIME_DIR");

  if (given != NULL && *given == '/')
    return g_strndup (given, strcspn (given, ":"));
  if (session != NULL && *session == '/')
    return g_build_filename (session, "vm-manager", NULL);
  if (geteuid () == 0)
    return g_strdup ("/run/vm-manager");
  return g_build_filename (vmm_options_get_string (options, "state-dir"), "run", NULL);
}

static gboolean
is_module (VmmPluginRegistry *registry, const char *name)
{
  GPtrArray *rows = vmm_plugin_registry_get_rows (registry);
  g_autofree char *short_name = g_strdup_printf ("/lib%s.so", name);
  g_autofree char *long_name = g_strdup_printf ("/libvmm-%s.so", name);

  for (guint i = 0; i < rows->len; i++)
    {
      const VmmPluginRow *row = g_ptr_array_index (rows, i);

      if (row->file != NULL
          && (g_str_has_suffix (row->file, short_name) || g_str_has_suffix (row->file, long_name)))
        return TRUE;
    }
  return FALSE;
}

/* What was written down and is not there is a mistake, though not one that stops us. */
static void
warn_of_mistakes (VmmPluginRegistry *registry, VmmOptions *options, char **folders, char **disabled)
{
  if (vmm_options_is_set (options, "plugin-dir"))
    for (guint i = 0; folders[i] != NULL; i++)
      if (*folders[i] != '\0' && !g_file_test (folders[i], G_FILE_TEST_EXISTS))
        vmm_log_warning ("there is no such plugin folder", "dir", folders[i], NULL);
  for (guint i = 0; disabled[i] != NULL; i++)
    if (*disabled[i] != '\0' && !is_module (registry, disabled[i]))
      vmm_log_warning ("no plugin module to disable has this name", "name", disabled[i], NULL);
}

static VmmPluginRegistry *
load_plugins (VmmOptions *options)
{
  VmmPluginRegistry *registry = vmm_plugin_registry_new ();
  g_auto (GStrv) folders = g_strsplit (vmm_options_get_string (options, "plugin-dir"), ":", -1);
  g_auto (GStrv) disabled =
      g_strsplit (vmm_options_get_string (options, "disable-plugins"), ",", -1);

  vmm_plugin_registry_load_builtin (registry);
  for (guint i = 0; folders[i] != NULL; i++)
    if (*folders[i] != '\0')
      vmm_plugin_registry_load_directory (registry, folders[i], (const char *const *) disabled);
  warn_of_mistakes (registry, options, folders, disabled);
  return registry;
}

static void
configure_plugins (VmmPluginRegistry *registry, VmmOptions *options)
{
  g_autofree char *runtime_dir = find_runtime_dir (options);
  VmmBackendConfig config = {
    .state_dir = vmm_options_get_string (options, "state-dir"),
    .runtime_dir = runtime_dir,
  };

  /* A root daemon drops its children to this account; a plugin says when there is none. */
  if (geteuid () == 0)
    config.account = VMM_ACCOUNT_NAME;
  vmm_plugin_registry_instantiate (registry, &config);
  log_plugins (registry);
}

guint
vmm_serve_get_factor (VmmOptions *options, const char *name)
{
  return vmm_options_is_set (options, name) ? 1 : EMULATION_FACTOR;
}

static VmmImages *
load_images (VmmOptions *options, GError **error)
{
  const char *folder = vmm_options_get_string (options, "image-dir");
  g_autoptr (VmmImages) images = vmm_images_new (folder);

  if (!vmm_images_scan (images, error))
    {
      g_prefix_error (error, "load images: ");
      return NULL;
    }
  if (vmm_images_get_n_images (images) == 0)
    vmm_log_warning ("no images: VMs cannot be created", "dir", folder, NULL);
  return g_steal_pointer (&images);
}

/* For the log: what a user wonders about when a VM is gone. */
static void
log_surroundings (VmmHost *host, VmmLauncher *launcher)
{
  if (!g_file_test (vmm_host_get_ovmf_code (host), G_FILE_TEST_IS_REGULAR))
    vmm_log_warning ("firmware image is missing: VMs cannot be started", "path",
                     vmm_host_get_ovmf_code (host), NULL);
  if (launcher != NULL && !vmm_launcher_outlives_daemon (launcher))
    vmm_log_info ("VMs end with the daemon", NULL);
}

static VmmMachineContext *
make_context (VmmOptions *options, VmmHost *host, VmmImages *images,
              VmmBackend *backends[VMM_PLUGIN_N_KINDS])
{
  VmmMachineContext *context = g_new0 (VmmMachineContext, 1);
  gpointer launcher = backends[VMM_PLUGIN_KIND_LAUNCHER];
  gpointer network = backends[VMM_PLUGIN_KIND_NETWORK];
  gpointer storage = backends[VMM_PLUGIN_KIND_STORAGE];
  gpointer attestor = backends[VMM_PLUGIN_KIND_ATTESTOR];

  context->state_dir = g_strdup (vmm_options_get_string (options, "state-dir"));
  context->options = vmm_options_ref (options);
  context->host = g_object_ref (host);
  context->images = g_object_ref (images);
  g_set_object (&context->launcher, launcher);
  g_set_object (&context->storage, storage);
  g_set_object (&context->attestor, attestor);
  context->networks = vmm_network_table_new (context->state_dir, network, context->launcher);
  context->install_timeout_us = vmm_options_get_duration (options, "install-timeout");
  context->install_factor = vmm_serve_get_factor (options, "install-timeout");
  context->boot_timeout_us = vmm_options_get_duration (options, "boot-timeout");
  context->boot_factor = vmm_serve_get_factor (options, "boot-timeout");
  context->stop_timeout_us = vmm_options_get_duration (options, "stop-timeout");
  context->stop_factor = vmm_serve_get_factor (options, "stop-timeout");
  return context;
}

VmmService *
vmm_serve_build_service (VmmOptions *options, GError **error)
{
  g_autoptr (VmmPluginRegistry) registry = load_plugins (options);
  g_autoptr (VmmHost) host = vmm_host_new (options, registry);
  g_autoptr (VmmImages) images = NULL;
  VmmBackend *backends[VMM_PLUGIN_N_KINDS] = { NULL };

  configure_plugins (registry, options);
  for (guint i = 0; i < G_N_ELEMENTS (choices); i++)
    if (!choose (registry, options, &choices[i], &backends[choices[i].kind], error))
      return NULL;
  images = load_images (options, error);
  if (images == NULL)
    return NULL;
  log_surroundings (host, (gpointer) backends[VMM_PLUGIN_KIND_LAUNCHER]);
  return vmm_service_new (make_context (options, host, images, backends), registry);
}

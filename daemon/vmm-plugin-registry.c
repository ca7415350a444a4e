/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Which backends there are, which of them work here and which one is used.
 *
 * Each kind is a GIO extension point, and each plugin an extension of it with a name and a
 * priority, linked in or from a module. The registry makes one object of each, keeps a row for
 * everything it came across, files that were refused included, and chooses by name or by itself.
 * Nothing else in the daemon knows a backend's name.
 */

#include "config.h"

#include "vmm-plugin-registry.h"

#include <string.h>

#include "interfaces/vmm-error.h"

#include "vmm-log.h"
#include "vmm-plugin-loader.h"

void vmm_builtin_plugins_load (void);

typedef struct
{
  const char *nick;
  const char *point;
  const char *file_prefix;
} KindInfo;

static const KindInfo kinds[VMM_PLUGIN_N_KINDS] = {
  [VMM_PLUGIN_KIND_LAUNCHER] = { "launcher", VMM_LAUNCHER_EXTENSION_POINT, "launcher-" },
  [VMM_PLUGIN_KIND_NETWORK] = { "network", VMM_NETWORK_BACKEND_EXTENSION_POINT, "network-" },
  [VMM_PLUGIN_KIND_STORAGE] = { "storage", VMM_STORAGE_BACKEND_EXTENSION_POINT, "storage-" },
  [VMM_PLUGIN_KIND_ATTESTOR] = { "attestor", VMM_ATTESTOR_EXTENSION_POINT, "attest-" },
};

/* What is told to others comes first, so that a Row is a VmmPluginRow. */
typedef struct
{
  VmmPluginRow public;
  guint kind; /* VMM_PLUGIN_N_KINDS when the file's name does not say it */
  char *name;
  char *file;
  char *reason;
  gboolean usable; /* it is configured and no other one has its name */
} Row;

struct _VmmPluginRegistry
{
  GObject parent_instance;

  GPtrArray *rows;    /* Row */
  GHashTable *loaded; /* paths of the modules that belong to this registry */
};

G_DEFINE_FINAL_TYPE (VmmPluginRegistry, vmm_plugin_registry, G_TYPE_OBJECT)

static void
row_free (gpointer data)
{
  Row *row = data;

  g_clear_object (&row->public.backend);
  g_free (row->name);
  g_free (row->file);
  g_free (row->reason);
  g_free (row);
}

static Row *
add_row (VmmPluginRegistry *self, guint kind, const char *name, const char *file)
{
  Row *row = g_new0 (Row, 1);

  row->kind = kind;
  row->name = g_strdup (name);
  row->file = g_strdup (file);
  row->public.kind = kind < VMM_PLUGIN_N_KINDS ? kinds[kind].nick : "unknown";
  row->public.name = row->name;
  row->public.file = row->file;
  g_ptr_array_add (self->rows, row);
  return row;
}

static void
set_reason (Row *row, const char *reason)
{
  char *copy = g_strdup (reason);

  g_free (row->reason);
  row->reason = copy;
  row->public.reason = copy;
}

static void
vmm_plugin_registry_finalize (GObject *object)
{
  VmmPluginRegistry *self = VMM_PLUGIN_REGISTRY (object);

  g_ptr_array_unref (self->rows);
  g_hash_table_unref (self->loaded);
  G_OBJECT_CLASS (vmm_plugin_registry_parent_class)->finalize (object);
}

static void
vmm_plugin_registry_class_init (VmmPluginRegistryClass *klass)
{
  G_OBJECT_CLASS (klass)->finalize = vmm_plugin_registry_finalize;
}

static void
vmm_plugin_registry_init (VmmPluginRegistry *self)
{
  const GType types[VMM_PLUGIN_N_KINDS] = {
    [VMM_PLUGIN_KIND_LAUNCHER] = VMM_TYPE_LAUNCHER,
    [VMM_PLUGIN_KIND_NETWORK] = VMM_TYPE_NETWORK_BACKEND,
    [VMM_PLUGIN_KIND_STORAGE] = VMM_TYPE_STORAGE_BACKEND,
    [VMM_PLUGIN_KIND_ATTESTOR] = VMM_TYPE_ATTESTOR,
  };

  self->rows = g_ptr_array_new_with_free_func (row_free);
  self->loaded = g_hash_table_new_full (g_str_hash, g_str_equal, g_free, NULL);
  for (guint i = 0; i < VMM_PLUGIN_N_KINDS; i++)
    g_io_extension_point_set_required_type (g_io_extension_point_register (kinds[i].point),
                                            types[i]);
}

/* What works first, the best before others; what is not loaded by its name. */
static int
compare_rows (gconstpointer a, gconstpointer b)
{
  const Row *first = *(const Row *const *) a;
  const Row *second = *(const Row *const *) b;

  if (first->kind != second->kind)
    return first->kind < second->kind ? -1 : 1;
  if (first->public.loaded != second->public.loaded)
    return first->public.loaded ? -1 : 1;
  if (first->public.priority != second->public.priority)
    return first->public.priority > second->public.priority ? -1 : 1;
  return strcmp (first->name, second->name);
}

static int
compare_texts (gconstpointer a, gconstpointer b)
{
  return strcmp (*(const char *const *) a, *(const char *const *) b);
}

static Row *
find_row (VmmPluginRegistry *self, guint kind, const char *name, gboolean loaded)
{
  for (guint i = 0; i < self->rows->len; i++)
    {
      Row *row = g_ptr_array_index (self->rows, i);

      if (row->kind == kind && row->public.loaded == loaded && g_str_equal (row->name, name))
        return row;
    }
  return NULL;
}

static void
configure_row (Row *row, GType type, const Row *namesake, const VmmBackendConfig *config)
{
  g_autoptr (GError) error = NULL;

  row->public.backend = VMM_BACKEND (g_object_new (type, NULL));
  row->public.loaded = TRUE;
  if (namesake != NULL)
    {
      g_autofree char *reason = g_strdup_printf (
          "%s has this name too", namesake->file != NULL ? namesake->file : "a built-in plugin");

      set_reason (row, reason);
      return;
    }
  row->usable = vmm_backend_configure (row->public.backend, config, &error);
  if (!row->usable)
    set_reason (row, error != NULL ? error->message : "it refuses its configuration");
}

static void
refresh_row (Row *row)
{
  g_autofree char *reason = NULL;

  if (!row->usable)
    return;
  row->public.available = vmm_backend_is_available (row->public.backend, &reason);
  set_reason (row, reason);
}

static void
instantiate_kind (VmmPluginRegistry *self, guint kind, const VmmBackendConfig *config)
{
  GIOExtensionPoint *point = g_io_extension_point_lookup (kinds[kind].point);

  for (GList *l = g_io_extension_point_get_extensions (point); l != NULL; l = l->next)
    {
      GIOExtension *extension = l->data;
      const char *name = g_io_extension_get_name (extension);
      const char *file = vmm_plugin_loader_get_file (extension);
      const Row *namesake;
      Row *row;

      if (file != NULL && !g_hash_table_contains (self->loaded, file))
        continue;

      namesake = find_row (self, kind, name, TRUE);
      row = add_row (self, kind, name, file);
      row->public.priority = g_io_extension_get_priority (extension);
      configure_row (row, g_io_extension_get_type (extension), namesake, config);
      refresh_row (row);
      vmm_log_debug ("backend", "kind", row->public.kind, "name", name, "file", file, "reason",
                     row->reason, NULL);
    }
}

/* Appends "name: reason" of each row of a kind before stop that auto would have liked. */
static char *
describe_unavailable (VmmPluginRegistry *self, guint kind, const Row *stop)
{
  g_autoptr (GString) text = g_string_new (NULL);

  for (guint i = 0; i < self->rows->len; i++)
    {
      const Row *row = g_ptr_array_index (self->rows, i);

      if (row == stop)
        break;
      if (row->kind != kind || row->reason == NULL || row->public.priority < 0)
        continue;
      g_string_append_printf (text, "%s%s %s unavailable: %s", text->len > 0 ? "; " : "", row->name,
                              kinds[kind].nick, row->reason);
    }
  return g_string_free (g_steal_pointer (&text), FALSE);
}

static Row *
choose_auto (VmmPluginRegistry *self, guint kind, char **reason, GError **error)
{
  g_autofree char *unavailable = NULL;

  for (guint i = 0; i < self->rows->len; i++)
    {
      Row *row = g_ptr_array_index (self->rows, i);

      if (row->kind != kind || !row->public.available || row->public.priority < 0)
        continue;
      unavailable = describe_unavailable (self, kind, row);
      *reason
          = unavailable[0] != '\0' ? g_steal_pointer (&unavailable) : g_strdup ("best available");
      return row;
    }

  unavailable = describe_unavailable (self, kind, NULL);
  vmm_set_error (error, VMM_ERROR_UNSUPPORTED, "no %s is available%s%s", kinds[kind].nick,
                 unavailable[0] != '\0' ? ": " : "", unavailable);
  return NULL;
}

/* "a b c" of the names that can be chosen. */
static char *
list_names (VmmPluginRegistry *self, guint kind)
{
  g_autoptr (GPtrArray) names = g_ptr_array_new ();
  const char *last = NULL;
  GString *text = g_string_new ("auto");

  for (guint i = 0; i < self->rows->len; i++)
    {
      const Row *row = g_ptr_array_index (self->rows, i);

      if (row->kind == kind && row->public.loaded)
        g_ptr_array_add (names, row->name);
    }
  g_ptr_array_sort (names, compare_texts);
  for (guint i = 0; i < names->len; i++)
    {
      const char *name = g_ptr_array_index (names, i);

      if (g_strcmp0 (name, last) != 0)
        g_string_append_printf (text, " %s", name);
      last = name;
    }
  return g_string_free (text, FALSE);
}

static Row *
choose_named (VmmPluginRegistry *self, guint kind, const char *name, char **reason, GError **error)
{
  Row *row = find_row (self, kind, name, TRUE);
  g_autofree char *names = NULL;

  if (row == NULL)
    row = find_row (self, kind, name, FALSE);
  if (row == NULL)
    {
      names = list_names (self, kind);
      vmm_set_error (error, VMM_ERROR_INVALID_REQUEST, "%s \"%s\" is not one of [%s]",
                     kinds[kind].nick, name, names);
      return NULL;
    }
  if (!row->public.available)
    {
      vmm_set_error (error, VMM_ERROR_UNSUPPORTED, "%s %s unavailable: %s", name, kinds[kind].nick,
                     row->reason);
      return NULL;
    }
  *reason = g_strdup ("configured");
  return row;
}

const char *
vmm_plugin_kind_to_nick (VmmPluginKind kind)
{
  g_return_val_if_fail ((guint) kind < VMM_PLUGIN_N_KINDS, NULL);

  return kinds[kind].nick;
}

VmmPluginRegistry *
vmm_plugin_registry_new (void)
{
  return g_object_new (VMM_TYPE_PLUGIN_REGISTRY, NULL);
}

void
vmm_plugin_registry_load_builtin (VmmPluginRegistry *self)
{
  g_return_if_fail (VMM_IS_PLUGIN_REGISTRY (self));

  vmm_builtin_plugins_load ();
}

static void
add_refused_row (VmmPluginRegistry *self, const VmmPluginFile *file)
{
  guint kind = VMM_PLUGIN_N_KINDS;
  const char *name = file->name;
  Row *row;

  for (guint i = 0; i < VMM_PLUGIN_N_KINDS; i++)
    if (g_str_has_prefix (file->name, kinds[i].file_prefix))
      {
        kind = i;
        name += strlen (kinds[i].file_prefix);
      }
  row = add_row (self, kind, name, file->path);
  set_reason (row, file->reason);
}

void
vmm_plugin_registry_load_directory (VmmPluginRegistry *self, const char *path,
                                    const char *const *disabled)
{
  const char *points[VMM_PLUGIN_N_KINDS + 1] = { NULL };
  g_autoptr (GPtrArray) files = NULL;

  g_return_if_fail (VMM_IS_PLUGIN_REGISTRY (self));
  g_return_if_fail (path != NULL);

  for (guint i = 0; i < VMM_PLUGIN_N_KINDS; i++)
    points[i] = kinds[i].point;
  files = vmm_plugin_loader_load_directory (path, points, disabled);
  for (guint i = 0; i < files->len; i++)
    {
      const VmmPluginFile *file = g_ptr_array_index (files, i);

      if (file->reason == NULL)
        {
          g_hash_table_add (self->loaded, g_strdup (file->path));
          continue;
        }
      add_refused_row (self, file);
      if (disabled != NULL && g_strv_contains (disabled, file->name))
        vmm_log_info ("plugin disabled", "file", file->path, NULL);
      else
        vmm_log_warning ("plugin not loaded", "file", file->path, "reason", file->reason, NULL);
    }
  g_ptr_array_sort (self->rows, compare_rows);
}

void
vmm_plugin_registry_instantiate (VmmPluginRegistry *self, const VmmBackendConfig *config)
{
  g_return_if_fail (VMM_IS_PLUGIN_REGISTRY (self));
  g_return_if_fail (config != NULL);

  for (guint i = 0; i < VMM_PLUGIN_N_KINDS; i++)
    instantiate_kind (self, i, config);
  g_ptr_array_sort (self->rows, compare_rows);
}

static void
refresh (VmmPluginRegistry *self)
{
  for (guint i = 0; i < self->rows->len; i++)
    refresh_row (g_ptr_array_index (self->rows, i));
}

VmmBackend *
vmm_plugin_registry_choose (VmmPluginRegistry *self, VmmPluginKind kind, const char *name,
                            char **reason, GError **error)
{
  g_autofree char *why = NULL;
  Row *chosen;

  g_return_val_if_fail (VMM_IS_PLUGIN_REGISTRY (self), NULL);
  g_return_val_if_fail ((guint) kind < VMM_PLUGIN_N_KINDS, NULL);

  refresh (self);
  if (name == NULL || g_str_equal (name, "auto"))
    chosen = choose_auto (self, kind, &why, error);
  else
    chosen = choose_named (self, kind, name, &why, error);
  if (chosen == NULL)
    return NULL;

  for (guint i = 0; i < self->rows->len; i++)
    {
      Row *row = g_ptr_array_index (self->rows, i);

      if (row->kind == (guint) kind)
        row->public.chosen = row == chosen;
    }
  if (reason != NULL)
    *reason = g_steal_pointer (&why);
  return chosen->public.backend;
}

const char *
vmm_plugin_registry_get_name (VmmPluginRegistry *self, VmmBackend *backend)
{
  g_return_val_if_fail (VMM_IS_PLUGIN_REGISTRY (self), NULL);
  g_return_val_if_fail (VMM_IS_BACKEND (backend), NULL);

  for (guint i = 0; i < self->rows->len; i++)
    {
      const Row *row = g_ptr_array_index (self->rows, i);

      if (row->public.backend == backend)
        return row->name;
    }
  return NULL;
}

GPtrArray *
vmm_plugin_registry_get_rows (VmmPluginRegistry *self)
{
  g_return_val_if_fail (VMM_IS_PLUGIN_REGISTRY (self), NULL);

  refresh (self);
  return self->rows;
}

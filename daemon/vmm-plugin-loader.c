/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Loads the plugin modules of a folder.
 *
 * A module runs with all rights of the daemon, so what root or we did not put there is never
 * opened: the folder and each file must belong to root or to us and be writable by nobody else, and
 * a link must not lead out of the folder. Disabled modules are not opened either. Files are taken
 * in the order of their names.
 *
 * Modules stay resident for the life of the process. What each of them registered is therefore kept
 * for the process too: loading the same file again changes nothing.
 */

#include "config.h"

#include "vmm-plugin-loader.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <gmodule.h>

/* GIOExtension → path, and path → GIOModule, of all modules of this process. */
static GHashTable *origins;
static GHashTable *modules;

static void
file_free (gpointer data)
{
  VmmPluginFile *file = data;

  g_free (file->path);
  g_free (file->name);
  g_free (file->reason);
  g_free (file);
}

static void
add_file (GPtrArray *files, const char *path, const char *name, const char *reason)
{
  VmmPluginFile *file = g_new0 (VmmPluginFile, 1);

  file->path = g_strdup (path);
  file->name = g_strdup (name);
  file->reason = g_strdup (reason);
  g_ptr_array_add (files, file);
}

/* libvmm-launcher-process.so → launcher-process */
static char *
name_of_file (const char *base)
{
  const char *start = base + strlen ("lib");
  gsize length = strlen (start) - strlen (".so");

  if (g_str_has_prefix (start, "vmm-"))
    {
      start += strlen ("vmm-");
      length -= strlen ("vmm-");
    }
  return g_strndup (start, length);
}

static gboolean
is_module_name (const char *base)
{
  return g_str_has_prefix (base, "lib") && g_str_has_suffix (base, ".so")
         && strlen (base) > strlen ("lib.so");
}

/* Why what is behind info cannot be trusted; NULL when it can. */
static const char *
check_owner (const struct stat *info)
{
  if (info->st_uid != 0 && info->st_uid != geteuid ())
    return "owned by neither root nor the daemon's user";
  if ((info->st_mode & (S_IWGRP | S_IWOTH)) != 0)
    return "writable by group or others";
  return NULL;
}

/* A link may name another file of its folder, never one elsewhere. */
static gboolean
leads_elsewhere (const char *directory, const char *path)
{
  g_autofree char *real_directory = realpath (directory, NULL);
  g_autofree char *real_path = realpath (path, NULL);
  g_autofree char *parent = NULL;

  if (real_directory == NULL || real_path == NULL)
    return TRUE;
  parent = g_path_get_dirname (real_path);
  return !g_str_equal (parent, real_directory);
}

static const char *
check_file (const char *directory, const char *path)
{
  struct stat info;

  if (lstat (path, &info) < 0)
    return g_strerror (errno);
  if (S_ISLNK (info.st_mode))
    {
      if (leads_elsewhere (directory, path))
        return "a link that leads out of the folder";
      if (stat (path, &info) < 0)
        return g_strerror (errno);
    }
  if (!S_ISREG (info.st_mode))
    return "not a regular file";
  return check_owner (&info);
}

/* Remembers what the module at path has registered: what nobody was known to have. */
static void
claim_extensions (const char *path, const char *const *points, GHashTable *before)
{
  for (guint i = 0; points[i] != NULL; i++)
    {
      GIOExtensionPoint *point = g_io_extension_point_lookup (points[i]);

      for (GList *l = g_io_extension_point_get_extensions (point); l != NULL; l = l->next)
        if (!g_hash_table_contains (before, l->data))
          g_hash_table_insert (origins, l->data, g_strdup (path));
    }
}

static gboolean
is_path (gpointer key, gpointer value, gpointer user_data)
{
  return g_str_equal (value, user_data);
}

static GHashTable *
list_extensions (const char *const *points)
{
  GHashTable *set = g_hash_table_new (NULL, NULL);

  for (guint i = 0; points[i] != NULL; i++)
    {
      GIOExtensionPoint *point = g_io_extension_point_lookup (points[i]);

      for (GList *l = g_io_extension_point_get_extensions (point); l != NULL; l = l->next)
        g_hash_table_add (set, l->data);
    }
  return set;
}

/* The author of a plugin must know which names are looked for: GIO makes them of the file's. */
static char *
describe_missing_entry (const char *path)
{
  g_autofree char *base = g_path_get_basename (path);
  g_autofree char *name = g_strdup (base + strlen ("lib"));

  *strchr (name, '.') = '\0';
  g_strdelimit (name, "-", '_');
  return g_strdup_printf (
      "not a plugin: the entry functions are missing; a file of this name needs "
      "VMM_PLUGIN_DEFINE (%s, ...)",
      name);
}

/* Loads one file; returns why not. */
static char *
load_module (char *path, const char *const *points)
{
  g_autoptr (GIOModule) module = NULL;
  g_autoptr (GHashTable) before = NULL;
  const char *problem;

  if (!g_hash_table_contains (modules, path))
    {
      before = list_extensions (points);
      module = g_io_module_new (path);
      if (!g_type_module_use (G_TYPE_MODULE (module)))
        {
          problem = g_module_error ();
          return problem != NULL ? g_strdup (problem) : describe_missing_entry (path);
        }
      g_hash_table_insert (modules, g_strdup (path), g_steal_pointer (&module));
      claim_extensions (path, points, before);
    }
  if (g_hash_table_find (origins, is_path, path) == NULL)
    return g_strdup ("registers no backend");
  return NULL;
}

static void
take_file (GPtrArray *files, const char *directory, const char *base, const char *const *points,
           const char *const *disabled)
{
  g_autofree char *path = g_build_filename (directory, base, NULL);
  g_autofree char *name = name_of_file (base);
  g_autofree char *failure = NULL;
  const char *problem;

  if (disabled != NULL && g_strv_contains (disabled, name))
    {
      add_file (files, path, name, "disabled");
      return;
    }

  problem = check_file (directory, path);
  if (problem == NULL)
    problem = failure = load_module (path, points);
  add_file (files, path, name, problem);
}

static int
compare_names (gconstpointer a, gconstpointer b)
{
  return strcmp (*(const char *const *) a, *(const char *const *) b);
}

static const char *
check_directory (const char *path)
{
  struct stat info;

  if (stat (path, &info) < 0)
    return g_strerror (errno);
  if (!S_ISDIR (info.st_mode))
    return "not a folder";
  return check_owner (&info);
}

GPtrArray *
vmm_plugin_loader_load_directory (const char *path, const char *const *points,
                                  const char *const *disabled)
{
  g_autoptr (GPtrArray) files = g_ptr_array_new_with_free_func (file_free);
  g_autoptr (GPtrArray) names = g_ptr_array_new_with_free_func (g_free);
  g_autofree char *base = g_path_get_basename (path);
  g_autoptr (GError) error = NULL;
  g_autoptr (GDir) directory = NULL;
  const char *problem;
  const char *name;

  if (origins == NULL)
    origins = g_hash_table_new_full (NULL, NULL, NULL, g_free);
  if (modules == NULL)
    modules = g_hash_table_new_full (g_str_hash, g_str_equal, g_free, NULL);

  if (access (path, F_OK) < 0 && errno == ENOENT)
    return g_steal_pointer (&files);
  problem = check_directory (path);
  if (problem == NULL)
    directory = g_dir_open (path, 0, &error);
  if (directory == NULL)
    {
      add_file (files, path, base, problem != NULL ? problem : error->message);
      return g_steal_pointer (&files);
    }

  while ((name = g_dir_read_name (directory)) != NULL)
    if (is_module_name (name))
      g_ptr_array_add (names, g_strdup (name));
  g_ptr_array_sort (names, compare_names);
  for (guint i = 0; i < names->len; i++)
    take_file (files, path, g_ptr_array_index (names, i), points, disabled);
  return g_steal_pointer (&files);
}

const char *
vmm_plugin_loader_get_file (GIOExtension *extension)
{
  return origins != NULL ? g_hash_table_lookup (origins, extension) : NULL;
}

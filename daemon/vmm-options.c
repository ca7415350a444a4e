/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The options of the daemon.
 *
 * Values of all sources become the text of one slot per row, in the order of their rank, and are
 * read by the row's type there. The object does not change afterwards. */

#include "config.h"

#include "vmm-options.h"

#include <string.h>

#include <glib/gi18n.h>

#include "vmm-log.h"
#include "vmm-options-table.h"

#define GROUP "serve"

typedef struct
{
  char *text; /* NULL for a string without a value */
  gint64 number;
  gboolean set;
} Slot;

struct _VmmOptions
{
  gatomicrefcount ref_count;
  gboolean help;
  Slot *slots;
};

static VmmOptions *
options_new (void)
{
  VmmOptions *self = g_new0 (VmmOptions, 1);

  g_atomic_ref_count_init (&self->ref_count);
  self->slots = g_new0 (Slot, vmm_n_option_rows);
  return self;
}

VmmOptions *
vmm_options_ref (VmmOptions *self)
{
  g_atomic_ref_count_inc (&self->ref_count);
  return self;
}

void
vmm_options_unref (VmmOptions *self)
{
  if (!g_atomic_ref_count_dec (&self->ref_count))
    return;
  for (guint i = 0; i < vmm_n_option_rows; i++)
    g_free (self->slots[i].text);
  g_free (self->slots);
  g_free (self);
}

/* The index of a row, or -1. */
static int
find_row (const char *name)
{
  for (guint i = 0; i < vmm_n_option_rows; i++)
    if (strcmp (vmm_option_rows[i].name, name) == 0)
      return i;
  return -1;
}

/* Sets a slot; source is what an error begins with. */
static gboolean
set_value (VmmOptions *self, guint index, const char *text, const char *source, GError **error)
{
  Slot *slot = &self->slots[index];
  g_autofree char *problem = NULL;
  gint64 number;

  problem = vmm_option_row_parse (&vmm_option_rows[index], text, &number);
  if (problem != NULL)
    {
      g_set_error (error, G_OPTION_ERROR, G_OPTION_ERROR_BAD_VALUE, "%s: %s", source, problem);
      return FALSE;
    }
  g_free (slot->text);
  slot->text = g_strdup (text);
  slot->number = number;
  slot->set = TRUE;
  return TRUE;
}

static gboolean
flag_cb (const char *flag, const char *value, gpointer user_data, GError **error)
{
  VmmOptions *self = user_data;
  int index = find_row (flag + strlen ("--"));

  g_return_val_if_fail (index >= 0, FALSE);

  return set_value (self, index, value != NULL ? value : "true", flag, error);
}

static gboolean
help_cb (const char *flag, const char *value, gpointer user_data, GError **error)
{
  VmmOptions *self = user_data;

  self->help = TRUE;
  return TRUE;
}

/* What --help says of one row: its text, its variable and its default. */
static char *
describe_row (const VmmOptionRow *row)
{
  const char *shown = row->shown != NULL ? _ (row->shown) : row->fallback;

  if (shown == NULL || *shown == '\0')
    shown = _ ("none");
  /* Translators: help of a flag, then its environment variable and its default value */
  return g_strdup_printf (_ ("%s [$%s, default: %s]"), _ (row->help), row->variable, shown);
}

static GOptionContext *
make_context (VmmOptions *self, GPtrArray *strings)
{
  GOptionContext *context = g_option_context_new (NULL);
  GOptionGroup *group = g_option_group_new ("serve", "serve", "serve", self, NULL);
  g_autofree GOptionEntry *entries = g_new0 (GOptionEntry, vmm_n_option_rows + 2);

  for (guint i = 0; i < vmm_n_option_rows; i++)
    {
      const VmmOptionRow *row = &vmm_option_rows[i];

      entries[i].long_name = row->name;
      entries[i].arg = G_OPTION_ARG_CALLBACK;
      entries[i].arg_data = flag_cb;
      entries[i].flags = row->type == VMM_OPTION_BOOLEAN ? G_OPTION_FLAG_OPTIONAL_ARG : 0;
      entries[i].description = describe_row (row);
      entries[i].arg_description = row->type == VMM_OPTION_BOOLEAN ? "true|false" : row->argument;
      g_ptr_array_add (strings, (gpointer) entries[i].description);
    }
  entries[vmm_n_option_rows].long_name = "help";
  entries[vmm_n_option_rows].short_name = 'h';
  entries[vmm_n_option_rows].arg = G_OPTION_ARG_CALLBACK;
  entries[vmm_n_option_rows].arg_data = help_cb;
  entries[vmm_n_option_rows].flags = G_OPTION_FLAG_NO_ARG;
  entries[vmm_n_option_rows].description = _ ("show this help");
  g_option_group_add_entries (group, entries);
  g_option_context_set_main_group (context, group);
  g_option_context_set_help_enabled (context, FALSE);
  return context;
}

char *
vmm_options_format_help (void)
{
  g_autoptr (VmmOptions) options = options_new ();
  g_autoptr (GPtrArray) strings = g_ptr_array_new_with_free_func (g_free);
  g_autoptr (GOptionContext) context = make_context (options, strings);
  g_autofree char *flags = g_option_context_get_help (context, TRUE, NULL);
  const char *list = strstr (flags, "\n\n");

  /* GOption names the program by its file; the command is what a user typed. */
  return g_strconcat (_ ("Usage:"), "\n  vm-manager [-v|--verbose] serve [--FLAG=VALUE...]",
                      list != NULL ? list : flags, NULL);
}

static gboolean
parse_flags (VmmOptions *self, int *argc, char ***argv, GError **error)
{
  g_autoptr (GPtrArray) strings = g_ptr_array_new_with_free_func (g_free);
  g_autoptr (GOptionContext) context = make_context (self, strings);
  g_autoptr (GError) problem = NULL;

  if (g_option_context_parse (context, argc, argv, &problem) && *argc > 1 && !self->help)
    g_set_error (&problem, G_OPTION_ERROR, G_OPTION_ERROR_UNKNOWN_OPTION,
                 _ ("unexpected argument \"%s\""), (*argv)[1]);
  if (problem == NULL)
    return TRUE;
  if (g_error_matches (problem, G_OPTION_ERROR, G_OPTION_ERROR_UNKNOWN_OPTION))
    g_set_error (error, problem->domain, problem->code, _ ("%s; see \"vm-manager serve --help\""),
                 problem->message);
  else
    g_propagate_error (error, g_steal_pointer (&problem));
  return FALSE;
}

/* Empty or unreadable is the same as not there. */
static void
read_variables (VmmOptions *self)
{
  for (guint i = 0; i < vmm_n_option_rows; i++)
    {
      const char *variable = vmm_option_rows[i].variable;
      const char *text = g_getenv (variable);
      g_autoptr (GError) error = NULL;

      if (self->slots[i].set || text == NULL || *text == '\0')
        continue;
      if (!set_value (self, i, text, variable, &error))
        vmm_log_warning ("environment variable ignored", "error", error->message, NULL);
    }
}

static gboolean
read_group (VmmOptions *self, const char *path, GKeyFile *file, GError **error)
{
  g_auto (GStrv) keys = g_key_file_get_keys (file, GROUP, NULL, NULL);

  for (guint i = 0; keys != NULL && keys[i] != NULL; i++)
    {
      int index = find_row (keys[i]);
      g_autofree char *text = NULL;
      g_autofree char *source = g_strdup_printf ("%s: %s", path, keys[i]);

      if (index < 0 || strcmp (keys[i], "config") == 0)
        {
          vmm_log_warning ("unknown key in configuration file", "file", path, "key", keys[i], NULL);
          continue;
        }
      if (self->slots[index].set)
        continue;
      text = g_key_file_get_string (file, GROUP, keys[i], error);
      if (text == NULL)
        {
          g_prefix_error (error, "%s: ", source);
          return FALSE;
        }
      if (!set_value (self, index, text, source, error))
        return FALSE;
    }
  return TRUE;
}

static gboolean
read_file (VmmOptions *self, GError **error)
{
  int index = find_row ("config");
  const VmmOptionRow *row = &vmm_option_rows[index];
  g_autofree char *path
      = self->slots[index].set ? g_strdup (self->slots[index].text) : row->find_default ();
  g_autoptr (GKeyFile) file = g_key_file_new ();
  g_autoptr (GError) problem = NULL;
  g_auto (GStrv) groups = NULL;

  if (path == NULL || *path == '\0')
    return TRUE;
  if (!g_key_file_load_from_file (file, path, G_KEY_FILE_NONE, &problem))
    {
      if (g_error_matches (problem, G_FILE_ERROR, G_FILE_ERROR_NOENT) && !self->slots[index].set)
        return TRUE;
      g_set_error (error, G_OPTION_ERROR, G_OPTION_ERROR_FAILED, _ ("configuration file %s: %s"),
                   path, problem->message);
      return FALSE;
    }
  groups = g_key_file_get_groups (file, NULL);
  for (guint i = 0; groups[i] != NULL; i++)
    if (strcmp (groups[i], GROUP) != 0)
      vmm_log_warning ("unknown group in configuration file", "file", path, "group", groups[i],
                       NULL);
  return read_group (self, path, file, error);
}

static void
fill_defaults (VmmOptions *self)
{
  Slot *images = &self->slots[find_row ("image-dir")];
  const Slot *state = &self->slots[find_row ("state-dir")];

  for (guint i = 0; i < vmm_n_option_rows; i++)
    {
      const VmmOptionRow *row = &vmm_option_rows[i];
      Slot *slot = &self->slots[i];
      g_autofree char *problem = NULL;

      if (slot->set)
        continue;
      slot->text = row->find_default != NULL ? row->find_default () : g_strdup (row->fallback);
      if (slot->text != NULL)
        problem = vmm_option_row_parse (row, slot->text, &slot->number);
      g_warn_if_fail (problem == NULL);
    }
  if (images->text == NULL || *images->text == '\0')
    {
      g_free (images->text);
      images->text = g_build_filename (state->text, "images", NULL);
    }
}

/* Empty means the default where nothing else makes sense, and relative paths start here. */
static void
settle_values (VmmOptions *self)
{
  static const char *const never_empty[] = {
    "state-dir", "image-dir", "launcher", "network", "storage", "attestation",
  };
  static const char *const paths[] = {
    "state-dir", "image-dir", "listen-unix", "ovmf-code", "ovmf-vars",
  };

  for (guint i = 0; i < G_N_ELEMENTS (never_empty); i++)
    {
      Slot *slot = &self->slots[find_row (never_empty[i])];

      if (slot->set && *slot->text == '\0')
        {
          g_clear_pointer (&slot->text, g_free);
          slot->set = FALSE;
        }
    }
  fill_defaults (self);
  for (guint i = 0; i < G_N_ELEMENTS (paths); i++)
    {
      Slot *slot = &self->slots[find_row (paths[i])];
      g_autofree char *given = g_steal_pointer (&slot->text);

      slot->text = given != NULL && *given != '\0' ? g_canonicalize_filename (given, NULL)
                                                   : g_steal_pointer (&given);
    }
  if (self->slots[find_row ("metrics-guest-series-limit")].number == 0)
    self->slots[find_row ("metrics-guest-series-limit")].number = 1000;
}

VmmOptions *
vmm_options_parse (int *argc, char ***argv, GError **error)
{
  g_autoptr (VmmOptions) self = options_new ();

  if (!parse_flags (self, argc, argv, error))
    return NULL;
  if (!self->help)
    {
      read_variables (self);
      if (!read_file (self, error))
        return NULL;
    }
  settle_values (self);
  return g_steal_pointer (&self);
}

VmmOptions *
vmm_options_new_for_test (const char *const *pairs, GError **error)
{
  g_autoptr (VmmOptions) self = options_new ();

  for (guint i = 0; pairs != NULL && pairs[i] != NULL; i += 2)
    {
      int index = find_row (pairs[i]);
      g_autofree char *source = g_strconcat ("--", pairs[i], NULL);

      if (index < 0)
        {
          g_set_error (error, G_OPTION_ERROR, G_OPTION_ERROR_UNKNOWN_OPTION, "Unknown option %s",
                       source);
          return NULL;
        }
      if (!set_value (self, index, pairs[i + 1], source, error))
        return NULL;
    }
  settle_values (self);
  return g_steal_pointer (&self);
}

static const Slot *
get_slot (VmmOptions *self, const char *name, VmmOptionType type)
{
  int index = find_row (name);

  if (index < 0 || vmm_option_rows[index].type != type)
    {
      g_critical ("no option \"%s\" of this type", name);
      return NULL;
    }
  return &self->slots[index];
}

const char *
vmm_options_get_string (VmmOptions *self, const char *name)
{
  const Slot *slot = get_slot (self, name, VMM_OPTION_STRING);

  return slot != NULL ? slot->text : NULL;
}

gboolean
vmm_options_get_boolean (VmmOptions *self, const char *name)
{
  const Slot *slot = get_slot (self, name, VMM_OPTION_BOOLEAN);

  return slot != NULL && slot->number != 0;
}

gint64
vmm_options_get_int (VmmOptions *self, const char *name)
{
  const Slot *slot = get_slot (self, name, VMM_OPTION_INT);

  return slot != NULL ? slot->number : 0;
}

gint64
vmm_options_get_duration (VmmOptions *self, const char *name)
{
  const Slot *slot = get_slot (self, name, VMM_OPTION_DURATION);

  return slot != NULL ? slot->number : 0;
}

gboolean
vmm_options_is_set (VmmOptions *self, const char *name)
{
  int index = find_row (name);

  g_return_val_if_fail (index >= 0, FALSE);

  return self->slots[index].set;
}

gboolean
vmm_options_wants_help (VmmOptions *self)
{
  return self->help;
}

void
vmm_options_foreach (VmmOptionsVisitor visitor, gpointer user_data)
{
  for (guint i = 0; i < vmm_n_option_rows; i++)
    {
      const VmmOptionRow *row = &vmm_option_rows[i];

      visitor (row->name, row->variable, row->fallback, row->help, user_data);
    }
}

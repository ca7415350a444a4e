/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A fuzz target without libFuzzer: runs every file of the folders given, and a number of changed
 * copies of each; with --units N again and again, until the target has done as much. The changes
 * come from a fixed seed, so that a failure can be had again; --keep FILE leaves the input that
 * failed.
 */

#include "fuzz.h"

#include <stdlib.h>

#include <glib.h>

#define CHANGES 300
#define MAX_SIZE 65536

#pragma weak LLVMFuzzerInitialize
#pragma weak LLVMFuzzerCustomMutator
#pragma weak fuzz_get_units
#pragma weak fuzz_finish

static char *keep;

/* Flips, overwrites, cuts out and doubles a few pieces. */
static GByteArray *
change (const guint8 *data, gsize size, GRand *random)
{
  static const char special[] = "{}[]\",:\\u0eE+-.tfn\xff\x00";
  GByteArray *out = g_byte_array_sized_new ((guint) size + 64);
  gint n_changes = g_rand_int_range (random, 1, 5);

  g_byte_array_append (out, data, (guint) size);
  for (gint i = 0; i < n_changes && out->len > 0; i++)
    {
      guint at = (guint) g_rand_int_range (random, 0, (gint) out->len);
      guint length = (guint) g_rand_int_range (random, 1, 16);

      length = MIN (length, out->len - at);
      switch (g_rand_int_range (random, 0, 4))
        {
        case 0:
          out->data[at] ^= (guint8) (1u << g_rand_int_range (random, 0, 8));
          break;
        case 1:
          out->data[at] = (guint8) special[g_rand_int_range (random, 0, sizeof special)];
          break;
        case 2:
          g_byte_array_remove_range (out, at, length);
          break;
        default:
          {
            g_autofree guint8 *piece = g_memdup2 (out->data + at, length);

            g_byte_array_append (out, piece, length);
          }
          break;
        }
    }
  return out;
}

static int
compare_paths (gconstpointer a, gconstpointer b)
{
  return g_strcmp0 (*(const char *const *) a, *(const char *const *) b);
}

static void
run (const guint8 *data, gsize size)
{
  if (keep != NULL && !g_file_set_contents (keep, (const char *) data, (gssize) size, NULL))
    g_printerr ("cannot write %s\n", keep);
  LLVMFuzzerTestOneInput (data, size);
}

static void
run_changed (const guint8 *data, gsize size, GRand *random)
{
  g_autoptr (GByteArray) changed = NULL;

  if (LLVMFuzzerCustomMutator == NULL)
    {
      changed = change (data, size, random);
      run (changed->data, changed->len);
      return;
    }
  changed = g_byte_array_sized_new (MAX_SIZE);
  g_byte_array_append (changed, data, (guint) MIN (size, MAX_SIZE));
  size = LLVMFuzzerCustomMutator (changed->data, changed->len, MAX_SIZE, g_rand_int (random));
  run (changed->data, size);
}

static void
replay_file (const char *path, GRand *random)
{
  g_autofree char *content = NULL;
  g_autoptr (GError) error = NULL;
  gsize length;

  if (!g_file_get_contents (path, &content, &length, &error))
    {
      g_printerr ("%s\n", error->message);
      exit (EXIT_FAILURE);
    }
  run ((const guint8 *) content, length);
  for (guint i = 0; i < CHANGES; i++)
    run_changed ((const guint8 *) content, length, random);
}

static GPtrArray *
list_files (char **folders)
{
  GPtrArray *files = g_ptr_array_new_with_free_func (g_free);

  for (guint i = 0; folders != NULL && folders[i] != NULL; i++)
    {
      g_autoptr (GDir) dir = g_dir_open (folders[i], 0, NULL);
      const char *name;

      while (dir != NULL && (name = g_dir_read_name (dir)) != NULL)
        g_ptr_array_add (files, g_build_filename (folders[i], name, NULL));
    }
  g_ptr_array_sort (files, compare_paths);
  return files;
}

int
main (int argc, char **argv)
{
  g_autoptr (GRand) random = NULL;
  g_auto (GStrv) folders = NULL;
  gint64 units = 0;
  gint seed = 1;
  const GOptionEntry entries[] = {
    { "units", 0, 0, G_OPTION_ARG_INT64, &units, "Go on until the target has done so much", "N" },
    { "keep", 0, 0, G_OPTION_ARG_FILENAME, &keep, "Where to write each input before it runs",
      "FILE" },
    { "seed", 0, 0, G_OPTION_ARG_INT, &seed, "Other changes", "N" },
    { G_OPTION_REMAINING, 0, 0, G_OPTION_ARG_FILENAME_ARRAY, &folders, NULL, NULL },
    { 0 },
  };
  g_autoptr (GOptionContext) context = g_option_context_new ("FOLDER...");
  g_autoptr (GPtrArray) files = NULL;
  g_autoptr (GError) error = NULL;

  g_option_context_add_main_entries (context, entries, NULL);
  if (!g_option_context_parse (context, &argc, &argv, &error))
    {
      g_printerr ("%s\n", error->message);
      return EXIT_FAILURE;
    }
  if (LLVMFuzzerInitialize != NULL)
    LLVMFuzzerInitialize (&argc, &argv);
  random = g_rand_new_with_seed ((guint32) seed);
  files = list_files (folders);
  do
    for (guint i = 0; i < files->len; i++)
      replay_file (g_ptr_array_index (files, i), random);
  while (files->len > 0 && fuzz_get_units != NULL && fuzz_get_units () < (guint64) units);
  if (fuzz_finish != NULL)
    fuzz_finish ();
  g_print ("%u files\n", files->len);
  g_free (keep);
  return files->len > 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

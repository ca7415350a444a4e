/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* A fuzz target without libFuzzer: runs every file of the folders given, and a number of changed
 * copies of each. The changes come from a fixed seed, so that a failure can be had again. */

#include "fuzz.h"

#include <stdlib.h>

#include <glib.h>

#define CHANGES 300

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
  LLVMFuzzerTestOneInput ((const guint8 *) content, length);
  for (guint i = 0; i < CHANGES; i++)
    {
      g_autoptr (GByteArray) changed = change ((const guint8 *) content, length, random);

      LLVMFuzzerTestOneInput (changed->data, changed->len);
    }
}

int
main (int argc, char **argv)
{
  g_autoptr (GRand) random = g_rand_new_with_seed (1);
  guint count = 0;

  for (int i = 1; i < argc; i++)
    {
      g_autoptr (GDir) dir = g_dir_open (argv[i], 0, NULL);
      g_autoptr (GPtrArray) files = g_ptr_array_new_with_free_func (g_free);
      const char *name;

      while (dir != NULL && (name = g_dir_read_name (dir)) != NULL)
        g_ptr_array_add (files, g_build_filename (argv[i], name, NULL));
      g_ptr_array_sort (files, compare_paths);
      for (guint j = 0; j < files->len; j++, count++)
        replay_file (g_ptr_array_index (files, j), random);
    }
  g_print ("%u files\n", count);
  return count > 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

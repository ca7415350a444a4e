/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The file of a pinned host key: the first line wins, and nothing else is taken for one. */
#include <glib/gstdio.h>
#include <string.h>

#include "interfaces/vmm-error.h"
#include "test-await.h"
#include "vmm-ssh-pin.h"

#define LINE "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIDExMTExMTExMTExMTExMTExMTExMTExMTExMTExMTEx"
#define OTHER "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIDIyMjIyMjIyMjIyMjIyMjIyMjIyMjIyMjIyMjIyMjIy"
#define N_THREADS 16

typedef struct
{
  char *folder;
  char *path;
} Fixture;

static void
set_up (Fixture *fixture, gconstpointer data)
{
  fixture->folder = test_make_directory ();
  fixture->path = g_build_filename (fixture->folder, "ssh_host_key", NULL);
}

static void
tear_down (Fixture *fixture, gconstpointer data)
{
  g_free (fixture->path);
  test_remove_directory (fixture->folder);
}

static void
test_first_wins (Fixture *fixture, gconstpointer data)
{
  g_autofree char *none = NULL;
  g_autofree char *first = NULL;
  g_autofree char *second = NULL;
  g_autofree char *loaded = NULL;
  g_autofree char *content = NULL;
  g_autoptr (GDir) folder = NULL;
  GStatBuf status;

  g_assert_true (vmm_ssh_pin_load (fixture->path, &none, NULL));
  g_assert_null (none);
  g_assert_true (vmm_ssh_pin_store (fixture->path, LINE, &first, NULL));
  g_assert_cmpstr (first, ==, LINE);
  g_assert_true (vmm_ssh_pin_store (fixture->path, OTHER, &second, NULL));
  g_assert_cmpstr (second, ==, LINE);
  g_assert_true (vmm_ssh_pin_load (fixture->path, &loaded, NULL));
  g_assert_cmpstr (loaded, ==, LINE);

  g_assert_true (g_file_get_contents (fixture->path, &content, NULL, NULL));
  g_assert_cmpstr (content, ==, LINE "\n");
  g_assert_cmpint (g_stat (fixture->path, &status), ==, 0);
  g_assert_cmpuint (status.st_mode & 07777, ==, 0600);
  folder = g_dir_open (fixture->folder, 0, NULL);
  g_assert_cmpstr (g_dir_read_name (folder), ==, "ssh_host_key");
  g_assert_null (g_dir_read_name (folder));
}

typedef struct
{
  const char *path;
  char *line;
  char *winner;
} Racer;

static gpointer
race (gpointer data)
{
  Racer *racer = data;

  g_assert_true (vmm_ssh_pin_store (racer->path, racer->line, &racer->winner, NULL));
  return NULL;
}

/* However many first connections meet, all of them are told one key. */
static void
test_race (Fixture *fixture, gconstpointer data)
{
  for (guint round = 0; round < 20; round++)
    {
      Racer racers[N_THREADS];
      GThread *threads[N_THREADS];

      for (guint i = 0; i < N_THREADS; i++)
        {
          racers[i] = (Racer){ fixture->path, g_strdup_printf ("ssh-ed25519 AA%02u", i), NULL };
          threads[i] = g_thread_new ("racer", race, &racers[i]);
        }
      for (guint i = 0; i < N_THREADS; i++)
        g_thread_join (threads[i]);
      for (guint i = 0; i < N_THREADS; i++)
        g_assert_cmpstr (racers[i].winner, ==, racers[0].winner);
      for (guint i = 0; i < N_THREADS; i++)
        {
          g_free (racers[i].line);
          g_free (racers[i].winner);
        }
      g_assert_cmpint (g_unlink (fixture->path), ==, 0);
    }
}

static void
test_no_key (Fixture *fixture, gconstpointer data)
{
  static const char *const bad[]
      = { "", "\n", "ssh-ed25519", "ssh-ed25519 ", " AAAA", "ssh-ed25519 AAAA root@x",
          "a b\nc d\n" };

  for (guint i = 0; i < G_N_ELEMENTS (bad); i++)
    {
      g_autoptr (GError) error = NULL;
      g_autofree char *line = NULL;

      g_assert_true (g_file_set_contents (fixture->path, bad[i], -1, NULL));
      g_assert_false (vmm_ssh_pin_load (fixture->path, &line, &error));
      g_assert_error (error, VMM_ERROR, VMM_ERROR_INTERNAL);
      g_assert_nonnull (strstr (error->message, "remove it"));
      g_assert_null (line);
    }
}

static void
test_unwritable (Fixture *fixture, gconstpointer data)
{
  g_autofree char *path = g_build_filename (fixture->folder, "gone", "ssh_host_key", NULL);
  g_autofree char *winner = NULL;
  g_autoptr (GError) error = NULL;

  g_assert_false (vmm_ssh_pin_store (path, LINE, &winner, &error));
  g_assert_nonnull (error);
  g_assert_null (winner);
}

/* What ssh-keygen -lf shows of the same line. */
static void
test_fingerprint (Fixture *fixture, gconstpointer data)
{
  g_autofree char *fingerprint = vmm_ssh_pin_fingerprint (LINE);
  g_autofree char *shown = NULL;
  g_autoptr (GError) error = NULL;
  const char *const argv[] = { "ssh-keygen", "-lf", fixture->path, NULL };
  g_auto (GStrv) words = NULL;

  g_assert_true (g_file_set_contents (fixture->path, LINE "\n", -1, NULL));
  g_spawn_sync (NULL, (char **) argv, NULL, G_SPAWN_SEARCH_PATH, NULL, NULL, &shown, NULL, NULL,
                &error);
  g_assert_no_error (error);
  words = g_strsplit (shown, " ", -1);
  g_assert_cmpuint (g_strv_length (words), >, 1);
  g_assert_cmpstr (fingerprint, ==, words[1]);
}

#define ADD(name, function)                                                                        \
  g_test_add ("/ssh-pin/" name, Fixture, NULL, set_up, function, tear_down)

int
main (int argc, char **argv)
{
  g_test_init (&argc, &argv, NULL);
  ADD ("first-wins", test_first_wins);
  ADD ("race", test_race);
  ADD ("no-key", test_no_key);
  ADD ("unwritable", test_unwritable);
  ADD ("fingerprint", test_fingerprint);
  return g_test_run ();
}

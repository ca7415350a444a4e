/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Waiting for files: what is told and what is not, watches that go while events are handed out. */
#include <glib/gstdio.h>

#include "test-await.h"
#include "vmm-arrival-watch.h"

#define MANY 300

typedef struct
{
  char *directory;
  GPtrArray *awaited; /* of Awaited */
} Fixture;

typedef struct
{
  VmmArrivalWatch *watch;
  guint n_arrived;
  gboolean leaves;    /* frees itself */
  GPtrArray *victims; /* whose watches it frees */
} Awaited;

static void
awaited_free (gpointer data)
{
  Awaited *awaited = data;

  g_clear_pointer (&awaited->watch, vmm_arrival_watch_free);
  g_free (awaited);
}

static void
arrived_cb (gpointer user_data)
{
  Awaited *awaited = user_data;

  g_assert_nonnull (awaited->watch);
  awaited->n_arrived++;
  for (guint i = 0; awaited->victims != NULL && i < awaited->victims->len; i++)
    {
      Awaited *victim = awaited->victims->pdata[i];

      if (victim != awaited)
        g_clear_pointer (&victim->watch, vmm_arrival_watch_free);
    }
  if (awaited->leaves)
    g_clear_pointer (&awaited->watch, vmm_arrival_watch_free);
}

static void
set_up (Fixture *fixture, gconstpointer data)
{
  fixture->directory = test_make_directory ();
  fixture->awaited = g_ptr_array_new_with_free_func (awaited_free);
}

static void
tear_down (Fixture *fixture, gconstpointer data)
{
  g_ptr_array_unref (fixture->awaited);
  test_drain ();
  test_remove_directory (fixture->directory);
}

static char *
path_of (Fixture *fixture, const char *name)
{
  return g_build_filename (fixture->directory, name, NULL);
}

static Awaited *
await_file (Fixture *fixture, const char *name)
{
  g_autofree char *path = path_of (fixture, name);
  Awaited *awaited = g_new0 (Awaited, 1);

  awaited->watch = vmm_arrival_watch_new (path, arrived_cb, awaited);
  g_assert_nonnull (awaited->watch);
  g_ptr_array_add (fixture->awaited, awaited);
  return awaited;
}

static void
make (Fixture *fixture, const char *name)
{
  g_autofree char *path = path_of (fixture, name);

  g_assert_true (g_file_set_contents (path, "x", 1, NULL));
}

static gboolean
has_arrived (gpointer user_data)
{
  return ((Awaited *) user_data)->n_arrived > 0;
}

static void
test_made (Fixture *fixture, gconstpointer data)
{
  Awaited *other = await_file (fixture, "other");
  Awaited *awaited = await_file (fixture, "awaited");
  g_autofree char *from = path_of (fixture, "from");
  g_autofree char *to = path_of (fixture, "to");

  test_drain ();
  g_assert_cmpuint (awaited->n_arrived, ==, 0);
  g_assert_cmpint (g_mkdir (from, 0700), ==, 0);
  make (fixture, "awaited2");
  make (fixture, "await");
  make (fixture, "awaited");
  test_await_condition (has_arrived, awaited);
  g_assert_cmpuint (other->n_arrived, ==, 0);

  awaited = await_file (fixture, "to");
  g_assert_cmpint (g_rename (from, to), ==, 0);
  test_await_condition (has_arrived, awaited);
  g_assert_cmpuint (awaited->n_arrived, ==, 1);
  g_assert_cmpuint (other->n_arrived, ==, 0);
}

/* One folder has one number in the kernel, which stays for the second. */
static void
test_same_folder (Fixture *fixture, gconstpointer data)
{
  Awaited *first = await_file (fixture, "awaited");
  Awaited *second = await_file (fixture, "awaited");

  g_clear_pointer (&first->watch, vmm_arrival_watch_free);
  make (fixture, "awaited");
  test_await_condition (has_arrived, second);
  g_assert_cmpuint (first->n_arrived, ==, 0);
}

static void
test_frees_itself (Fixture *fixture, gconstpointer data)
{
  Awaited *awaited = await_file (fixture, "awaited");
  g_autofree char *path = path_of (fixture, "awaited");

  awaited->leaves = TRUE;
  make (fixture, "awaited");
  g_assert_cmpint (g_unlink (path), ==, 0);
  make (fixture, "awaited");
  test_await_condition (has_arrived, awaited);
  test_drain ();
  g_assert_cmpuint (awaited->n_arrived, ==, 1);
  /* And all begins anew. */
  g_assert_cmpint (g_unlink (path), ==, 0);
  awaited = await_file (fixture, "awaited");
  make (fixture, "awaited");
  test_await_condition (has_arrived, awaited);
}

/* Whoever is first frees the others, which then hear nothing. */
static void
test_frees_others (Fixture *fixture, gconstpointer data)
{
  guint n_arrived = 0;

  for (guint i = 0; i < MANY; i++)
    {
      Awaited *awaited = await_file (fixture, i % 2 == 0 ? "awaited" : "another");

      awaited->victims = fixture->awaited;
      awaited->leaves = i % 3 == 0;
    }
  make (fixture, "awaited");
  make (fixture, "another");
  test_await_condition (has_arrived, fixture->awaited->pdata[0]);
  test_drain ();
  for (guint i = 0; i < MANY; i++)
    n_arrived += ((Awaited *) fixture->awaited->pdata[i])->n_arrived;
  g_assert_cmpuint (n_arrived, ==, 1);
}

static void
test_no_folder (Fixture *fixture, gconstpointer data)
{
  g_autofree char *path = path_of (fixture, "none/awaited");
  g_autofree char *folder = path_of (fixture, "none");
  Awaited *awaited;

  g_assert_null (vmm_arrival_watch_new (path, arrived_cb, NULL));
  g_assert_cmpint (g_mkdir (folder, 0700), ==, 0);
  awaited = await_file (fixture, "none/awaited");
  g_assert_cmpint (g_rmdir (folder), ==, 0);
  test_drain ();
  g_assert_cmpuint (awaited->n_arrived, ==, 0);
}

int
main (int argc, char *argv[])
{
  static const struct
  {
    const char *path;
    void (*func) (Fixture *fixture, gconstpointer data);
  } tests[] = {
    { "/arrival-watch/made", test_made },
    { "/arrival-watch/same-folder", test_same_folder },
    { "/arrival-watch/frees-itself", test_frees_itself },
    { "/arrival-watch/frees-others", test_frees_others },
    { "/arrival-watch/no-folder", test_no_folder },
  };

  g_test_init (&argc, &argv, NULL);
  for (guint i = 0; i < G_N_ELEMENTS (tests); i++)
    g_test_add (tests[i].path, Fixture, NULL, set_up, tests[i].func, tear_down);
  return g_test_run ();
}

/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Waiting for asynchronous results and making scratch folders in tests. */

#include "test-await.h"

#include <glib/gstdio.h>

#define LOOK_AGAIN_MS 20

void
test_await_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  TestAwait *await = user_data;

  g_assert_null (await->result);
  await->result = g_object_ref (result);
}

static gboolean
limit_cb (gpointer user_data)
{
  gboolean *expired = user_data;

  *expired = TRUE;
  return G_SOURCE_REMOVE;
}

static gboolean
has_result (gpointer user_data)
{
  TestAwait *await = user_data;

  return await->result != NULL;
}

static gboolean
look_again_cb (gpointer user_data)
{
  return G_SOURCE_CONTINUE;
}

void
test_await_condition (TestCondition condition, gpointer user_data)
{
  gboolean expired = FALSE;
  guint limit = g_timeout_add_seconds (TEST_AWAIT_LIMIT_S, limit_cb, &expired);
  /* What happens outside of this process, such as a file that appears, wakes nobody here. */
  guint look_again = g_timeout_add (LOOK_AGAIN_MS, look_again_cb, NULL);

  while (!condition (user_data) && !expired)
    g_main_context_iteration (NULL, TRUE);
  if (!expired)
    g_source_remove (limit);
  g_source_remove (look_again);
  g_assert_true (condition (user_data));
}

GAsyncResult *
test_await (TestAwait *await)
{
  test_await_condition (has_result, await);
  return g_steal_pointer (&await->result);
}

void
test_drain (void)
{
  while (g_main_context_iteration (NULL, FALSE))
    continue;
}

char *
test_make_directory (void)
{
  char *path = g_strdup ("/tmp/vmm.XXXXXX");

  g_assert_nonnull (g_mkdtemp (path));
  return path;
}

void
test_remove_directory (char *path)
{
  g_autoptr (GDir) dir = g_dir_open (path, 0, NULL);
  const char *name;

  while (dir != NULL && (name = g_dir_read_name (dir)) != NULL)
    {
      char *child = g_build_filename (path, name, NULL);

      if (g_file_test (child, G_FILE_TEST_IS_DIR) && !g_file_test (child, G_FILE_TEST_IS_SYMLINK))
        {
          test_remove_directory (child);
          continue;
        }
      g_unlink (child);
      g_free (child);
    }
  g_rmdir (path);
  g_free (path);
}

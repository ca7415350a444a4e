/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Watching quiet sockets: readiness, writing, and watches that go while events are handed out. */
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "test-await.h"
#include "vmm-socket-watch.h"

#define MANY 200

typedef struct
{
  int ours;
  int peers;
  VmmSocketWatch *watch;
  guint n_ready;
  GPtrArray *victims; /* of Pair, whose watches go when this one is ready */
} Pair;

static void
ready_cb (gpointer user_data)
{
  Pair *pair = user_data;
  char buffer[16];

  pair->n_ready++;
  g_assert_nonnull (pair->watch);
  if (recv (pair->ours, buffer, sizeof buffer, MSG_DONTWAIT) == 0)
    g_clear_pointer (&pair->watch, vmm_socket_watch_free);
  for (guint i = 0; pair->victims != NULL && i < pair->victims->len; i++)
    {
      Pair *victim = pair->victims->pdata[i];

      g_clear_pointer (&victim->watch, vmm_socket_watch_free);
    }
}

static Pair *
pair_new (void)
{
  Pair *pair = g_new0 (Pair, 1);
  int fds[2];

  g_assert_cmpint (socketpair (AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), ==, 0);
  pair->ours = fds[0];
  pair->peers = fds[1];
  pair->watch = vmm_socket_watch_new (pair->ours, ready_cb, pair);
  return pair;
}

static void
pair_free (gpointer data)
{
  Pair *pair = data;

  g_clear_pointer (&pair->watch, vmm_socket_watch_free);
  g_clear_pointer (&pair->victims, g_ptr_array_unref);
  close (pair->ours);
  if (pair->peers >= 0)
    close (pair->peers);
  g_free (pair);
}

static void
say (Pair *pair)
{
  g_assert_cmpint (write (pair->peers, "x", 1), ==, 1);
}

static void
test_ready (void)
{
  Pair *pair = pair_new ();

  test_drain ();
  g_assert_cmpuint (pair->n_ready, ==, 0);
  say (pair);
  test_drain ();
  g_assert_cmpuint (pair->n_ready, ==, 1);
  close (pair->peers);
  pair->peers = -1;
  test_drain ();
  g_assert_cmpuint (pair->n_ready, ==, 2);
  g_assert_null (pair->watch);
  pair_free (pair);
}

static void
test_writable (void)
{
  Pair *pair = pair_new ();

  vmm_socket_watch_set_writable (pair->watch, TRUE);
  g_main_context_iteration (NULL, TRUE);
  g_assert_cmpuint (pair->n_ready, ==, 1);
  vmm_socket_watch_set_writable (pair->watch, FALSE);
  test_drain ();
  g_assert_cmpuint (pair->n_ready, ==, 1);
  pair_free (pair);
}

/* All are ready in the same turn, and the first that is called ends all, itself too. */
static void
test_free_all (void)
{
  g_autoptr (GPtrArray) pairs = g_ptr_array_new_with_free_func (pair_free);
  guint n_ready = 0;

  for (guint i = 0; i < MANY; i++)
    g_ptr_array_add (pairs, pair_new ());
  for (guint i = 0; i < MANY; i++)
    {
      Pair *pair = pairs->pdata[i];

      pair->victims = g_ptr_array_ref (pairs);
      say (pair);
    }
  test_drain ();
  for (guint i = 0; i < MANY; i++)
    {
      Pair *pair = pairs->pdata[i];

      n_ready += pair->n_ready;
      g_assert_null (pair->watch);
      g_clear_pointer (&pair->victims, g_ptr_array_unref);
    }
  g_assert_cmpuint (n_ready, ==, 1);
}

/* More than one turn's worth; none is forgotten. */
static void
test_many (void)
{
  g_autoptr (GPtrArray) pairs = g_ptr_array_new_with_free_func (pair_free);

  for (guint i = 0; i < MANY; i++)
    {
      g_ptr_array_add (pairs, pair_new ());
      say (pairs->pdata[i]);
    }
  test_drain ();
  for (guint i = 0; i < MANY; i++)
    g_assert_cmpuint (((Pair *) pairs->pdata[i])->n_ready, ==, 1);
}

static void
count_cb (gpointer user_data)
{
  guint *count = user_data;

  (*count)++;
}

/* What epoll does not take is watched all the same: plain files are such, and always ready. */
static void
test_not_in_set (void)
{
  int fd = open ("/proc/self/exe", O_RDONLY | O_CLOEXEC);
  guint count = 0;
  VmmSocketWatch *watch = vmm_socket_watch_new (fd, count_cb, &count);

  g_main_context_iteration (NULL, TRUE);
  vmm_socket_watch_set_writable (watch, TRUE);
  g_main_context_iteration (NULL, TRUE);
  g_assert_cmpuint (count, ==, 2);
  vmm_socket_watch_free (watch);
  test_drain ();
  g_assert_cmpuint (count, ==, 2);
  close (fd);
}

int
main (int argc, char **argv)
{
  g_test_init (&argc, &argv, G_TEST_OPTION_ISOLATE_DIRS, NULL);
  g_test_add_func ("/socket-watch/ready", test_ready);
  g_test_add_func ("/socket-watch/writable", test_writable);
  g_test_add_func ("/socket-watch/free-all", test_free_all);
  g_test_add_func ("/socket-watch/many", test_many);
  g_test_add_func ("/socket-watch/not-in-set", test_not_in_set);
  return g_test_run ();
}

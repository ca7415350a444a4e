/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* A server on a Unix socket that says what a test wants. */
#include "scripted-peer.h"

#include <glib/gstdio.h>
#include <unistd.h>

#include "fake-peer-loop.h"
#include "test-await.h"

struct _ScriptedPeer
{
  char *path;
  char *greeting;
  int fd;
  TestWatch *watch;
  TestLines *client;
  GQueue heard;
  guint n_clients;
};

static void
line_cb (TestLines *lines, const char *line, gpointer user_data)
{
  ScriptedPeer *peer = user_data;

  g_queue_push_tail (&peer->heard, g_strdup (line));
}

static void
closed_cb (TestLines *lines, gpointer user_data)
{
  ScriptedPeer *peer = user_data;

  g_clear_pointer (&peer->client, test_lines_free);
}

static void
accept_cb (gpointer user_data)
{
  ScriptedPeer *peer = user_data;
  int fd = test_accept (peer->fd);

  if (fd < 0)
    return;
  g_clear_pointer (&peer->client, test_lines_free);
  g_queue_clear_full (&peer->heard, g_free);
  peer->client = test_lines_new (fd, line_cb, closed_cb, peer);
  peer->n_clients++;
  if (peer->greeting != NULL)
    test_lines_send (peer->client, peer->greeting);
}

ScriptedPeer *
scripted_peer_new (const char *path, const char *greeting)
{
  ScriptedPeer *peer = g_new0 (ScriptedPeer, 1);

  peer->path = g_strdup (path);
  peer->greeting = g_strdup (greeting);
  peer->fd = test_listen (path);
  g_assert_cmpint (peer->fd, >=, 0);
  g_queue_init (&peer->heard);
  peer->watch = test_watch_new (peer->fd, accept_cb, peer);
  return peer;
}

void
scripted_peer_free (ScriptedPeer *peer)
{
  g_clear_pointer (&peer->client, test_lines_free);
  test_watch_free (peer->watch);
  close (peer->fd);
  g_unlink (peer->path);
  g_queue_clear_full (&peer->heard, g_free);
  g_free (peer->path);
  g_free (peer->greeting);
  g_free (peer);
}

void
scripted_peer_set_greeting (ScriptedPeer *peer, const char *greeting)
{
  g_free (peer->greeting);
  peer->greeting = g_strdup (greeting);
}

void
scripted_peer_say (ScriptedPeer *peer, const char *line)
{
  g_assert_nonnull (peer->client);
  test_lines_send (peer->client, line);
}

void
scripted_peer_say_bytes (ScriptedPeer *peer, const char *data, gsize length)
{
  g_assert_nonnull (peer->client);
  test_lines_send_data (peer->client, data, length);
}

static gboolean
has_line (gpointer user_data)
{
  ScriptedPeer *peer = user_data;

  return peer->heard.length > 0;
}

char *
scripted_peer_hear (ScriptedPeer *peer)
{
  test_await_condition (has_line, peer);
  return g_queue_pop_head (&peer->heard);
}

void
scripted_peer_hang_up (ScriptedPeer *peer)
{
  g_clear_pointer (&peer->client, test_lines_free);
}

guint
scripted_peer_get_n_clients (ScriptedPeer *peer)
{
  return peer->n_clients;
}

gboolean
scripted_peer_has_client (ScriptedPeer *peer)
{
  return peer->client != NULL;
}

/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Lines over a socket: torn, joined, too long, ended within; what is sent to one who does not
 * read. */
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "test-await.h"
#include "vmm-line-channel.h"

#define LINE_MAX_SIZE 1000

typedef struct
{
  VmmLineChannel *channel;
  int peer;
  GPtrArray *lines;
  char *reason;
  guint n_closed;
  gsize received;
  gboolean close_at_line;
} Fixture;

static void
line_cb (VmmLineChannel *channel, const char *line, guint64 length, gpointer user_data)
{
  Fixture *fixture = user_data;

  g_assert_cmpuint (line[length], ==, '\0');
  g_ptr_array_add (fixture->lines, g_strndup (line, length));
  if (fixture->close_at_line)
    {
      vmm_line_channel_close (channel);
      g_clear_object (&fixture->channel);
    }
}

static void
closed_cb (VmmLineChannel *channel, const char *reason, gpointer user_data)
{
  Fixture *fixture = user_data;

  fixture->n_closed++;
  g_free (fixture->reason);
  fixture->reason = g_strdup (reason);
}

static void
set_up (Fixture *fixture, gconstpointer data)
{
  g_autoptr (GSocket) socket = NULL;
  g_autoptr (GError) error = NULL;
  int fds[2];

  g_assert_cmpint (socketpair (AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), ==, 0);
  socket = g_socket_new_from_fd (fds[0], &error);
  g_assert_no_error (error);
  fixture->peer = fds[1];
  fixture->lines = g_ptr_array_new_with_free_func (g_free);
  fixture->channel = vmm_line_channel_new (socket, LINE_MAX_SIZE);
  g_signal_connect (fixture->channel, "line", G_CALLBACK (line_cb), fixture);
  g_signal_connect (fixture->channel, "closed", G_CALLBACK (closed_cb), fixture);
}

static void
tear_down (Fixture *fixture, gconstpointer data)
{
  if (fixture->peer >= 0)
    close (fixture->peer);
  g_clear_object (&fixture->channel);
  g_ptr_array_unref (fixture->lines);
  g_free (fixture->reason);
}

static void
say (Fixture *fixture, const char *data, gsize length)
{
  g_assert_cmpint (write (fixture->peer, data, length), ==, (gssize) length);
}

static void
hang_up (Fixture *fixture)
{
  close (fixture->peer);
  fixture->peer = -1;
}

static gboolean
is_closed (gpointer user_data)
{
  return ((Fixture *) user_data)->n_closed > 0;
}

static void
test_lines (Fixture *fixture, gconstpointer data)
{
  static const char text[] = "one\ntwo\r\n\n\r\nthr";

  say (fixture, text, strlen (text));
  test_drain ();
  g_assert_cmpuint (fixture->lines->len, ==, 2);
  g_assert_cmpstr (fixture->lines->pdata[0], ==, "one");
  g_assert_cmpstr (fixture->lines->pdata[1], ==, "two");
  for (const char *c = "ee and more\n"; *c != '\0'; c++)
    {
      say (fixture, c, 1);
      test_drain ();
    }
  g_assert_cmpuint (fixture->lines->len, ==, 3);
  g_assert_cmpstr (fixture->lines->pdata[2], ==, "three and more");
}

static void
test_last_words (Fixture *fixture, gconstpointer data)
{
  say (fixture, "answer\n", 7);
  hang_up (fixture);
  test_await_condition (is_closed, fixture);
  g_assert_cmpuint (fixture->lines->len, ==, 1);
  g_assert_cmpstr (fixture->reason, ==, "end of file");
  g_assert_false (vmm_line_channel_is_open (fixture->channel));
  test_drain ();
  g_assert_cmpuint (fixture->n_closed, ==, 1);
}

/* Also when there was something to send: the write fails before the reading does. */
static void
test_last_words_after_write (Fixture *fixture, gconstpointer data)
{
  say (fixture, "answer\n", 7);
  hang_up (fixture);
  vmm_line_channel_send (fixture->channel, "question", 8);
  vmm_line_channel_send (fixture->channel, "question", 8);
  test_await_condition (is_closed, fixture);
  g_assert_cmpuint (fixture->lines->len, ==, 1);
  g_assert_cmpstr (fixture->lines->pdata[0], ==, "answer");
}

static void
test_torn (Fixture *fixture, gconstpointer data)
{
  say (fixture, "whole\ntor", 9);
  hang_up (fixture);
  test_await_condition (is_closed, fixture);
  g_assert_cmpuint (fixture->lines->len, ==, 1);
  g_assert_cmpstr (fixture->reason, ==, "end of file within a line");
}

static void
test_too_long (Fixture *fixture, gconstpointer data)
{
  g_autofree char *fits = g_strnfill (LINE_MAX_SIZE, 'a');
  g_autofree char *exceeds = g_strnfill (LINE_MAX_SIZE + 1, 'b');

  say (fixture, fits, LINE_MAX_SIZE);
  say (fixture, "\n", 1);
  test_drain ();
  g_assert_cmpuint (fixture->lines->len, ==, 1);
  g_assert_true (vmm_line_channel_is_open (fixture->channel));
  say (fixture, exceeds, LINE_MAX_SIZE + 1); /* and never an end */
  test_await_condition (is_closed, fixture);
  g_assert_cmpuint (fixture->lines->len, ==, 1);
  g_assert_cmpstr (fixture->reason, ==, "a line exceeds 1000 bytes");
}

/* In pieces that are short enough each. */
static void
test_too_long_in_pieces (Fixture *fixture, gconstpointer data)
{
  g_autofree char *piece = g_strnfill (600, 'a');

  say (fixture, piece, 600);
  test_drain ();
  g_assert_true (vmm_line_channel_is_open (fixture->channel));
  say (fixture, piece, 600);
  test_await_condition (is_closed, fixture);
  g_assert_cmpuint (fixture->lines->len, ==, 0);
}

static void
test_close_within (Fixture *fixture, gconstpointer data)
{
  fixture->close_at_line = TRUE;
  say (fixture, "one\ntwo\n", 8);
  test_drain ();
  g_assert_cmpuint (fixture->lines->len, ==, 1);
  g_assert_cmpuint (fixture->n_closed, ==, 0);
}

static void
test_close_within_partial (Fixture *fixture, gconstpointer data)
{
  fixture->close_at_line = TRUE;
  say (fixture, "o", 1);
  test_drain ();
  say (fixture, "ne\ntwo\n", 7);
  test_drain ();
  g_assert_cmpuint (fixture->lines->len, ==, 1);
  g_assert_cmpstr (fixture->lines->pdata[0], ==, "one");
}

static gboolean
drain_peer (gpointer user_data)
{
  Fixture *fixture = user_data;
  char buffer[65536];
  gssize size;

  while ((size = recv (fixture->peer, buffer, sizeof buffer, MSG_DONTWAIT)) > 0)
    fixture->received += size;
  return fixture->received == 9 * 100001;
}

static void
test_slow_reader (Fixture *fixture, gconstpointer data)
{
  g_autofree char *text = g_strnfill (100000, 'a');

  for (guint i = 0; i < 9; i++)
    g_assert_true (vmm_line_channel_send (fixture->channel, text, 100000));
  test_await_condition (drain_peer, fixture);
  g_assert_true (vmm_line_channel_is_open (fixture->channel));
}

static void
test_no_reader (Fixture *fixture, gconstpointer data)
{
  g_autofree char *text = g_strnfill (100000, 'a');
  guint sent = 0;

  while (vmm_line_channel_send (fixture->channel, text, 100000))
    g_assert_cmpuint (++sent, <, 100);
  g_assert_cmpuint (fixture->n_closed, ==, 1);
  g_assert_cmpstr (fixture->reason, ==, "the peer does not read");
  g_assert_false (vmm_line_channel_send (fixture->channel, text, 1));
}

int
main (int argc, char **argv)
{
  g_test_init (&argc, &argv, G_TEST_OPTION_ISOLATE_DIRS, NULL);
#define ADD(name, function)                                                                        \
  g_test_add ("/line-channel/" name, Fixture, NULL, set_up, function, tear_down)
  ADD ("lines", test_lines);
  ADD ("last-words", test_last_words);
  ADD ("last-words-after-write", test_last_words_after_write);
  ADD ("torn", test_torn);
  ADD ("too-long", test_too_long);
  ADD ("too-long-in-pieces", test_too_long_in_pieces);
  ADD ("close-within", test_close_within);
  ADD ("close-within-partial", test_close_within_partial);
  ADD ("slow-reader", test_slow_reader);
  ADD ("no-reader", test_no_reader);
  return g_test_run ();
}

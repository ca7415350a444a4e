/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What a guest says on the notify port, and what it cannot do there. */

#include <glib.h>
#include <glib/gstdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "monitor-notify-text.h"
#include "monitor-notify.h"
#include "monitor-rate.h"
#include "monitor-socket.h"
#include "monitor-text.h"
#include "test-await.h"

static void
assert_text (const char *text, gsize length, gboolean ready, const char *status,
             gboolean status_first)
{
  g_autofree char *copy = g_memdup2 (text, length);
  MonitorNotifyText message;

  monitor_notify_text_read (&message, copy, length);
  g_assert_cmpint (message.ready, ==, ready);
  g_assert_cmpstr (message.status, ==, status);
  g_assert_cmpint (message.status_first, ==, status_first);
  monitor_notify_text_clear (&message);
}

#define ASSERT_TEXT(text, ...) assert_text (text, sizeof (text) - 1, __VA_ARGS__)

static void
test_text (void)
{
  ASSERT_TEXT ("READY=1", TRUE, NULL, FALSE);
  ASSERT_TEXT ("READY=1\n", TRUE, NULL, FALSE);
  ASSERT_TEXT ("READY=0\n", FALSE, NULL, FALSE);
  ASSERT_TEXT ("READY=1\nREADY=0\n", FALSE, NULL, FALSE);
  ASSERT_TEXT ("READY=10\nXREADY=1\n READY=1\nREADY\n=1\n\n", FALSE, NULL, FALSE);
  ASSERT_TEXT ("STATUS=a=b\nREADY=1\n", TRUE, "a=b", TRUE);
  ASSERT_TEXT ("READY=1\nSTATUS=b", TRUE, "b", FALSE);
  ASSERT_TEXT ("STATUS=a\nREADY=1\nSTATUS=b\n", TRUE, "b", FALSE);
  ASSERT_TEXT ("STATUS=\nX_SYSTEMD_UNIT_ACTIVE=ssh.service\n", FALSE, "", FALSE);
  ASSERT_TEXT ("STATUS=a\0b\xff\n", FALSE, "a\xef\xbf\xbd\x62\xef\xbf\xbd", FALSE);
  ASSERT_TEXT ("", FALSE, NULL, FALSE);
}

static void
test_long_text (void)
{
  g_autofree char *a = g_strnfill (60000, 'a');
  g_autofree char *message = g_strconcat ("STATUS=", a, "\nREADY=1\n", NULL);
  g_autofree char *odd = g_strnfill (60000, '\xff');
  g_autofree char *clean = NULL;
  MonitorNotifyText text;

  monitor_notify_text_read (&text, message, strlen (message));
  g_assert_true (text.ready);
  g_assert_cmpuint (strlen (text.status), ==, 4096);
  monitor_notify_text_clear (&text);
  /* Three bytes for each, and no part of one. */
  clean = monitor_text_clean (odd, 60000, 100);
  g_assert_cmpuint (strlen (clean), ==, 99);
  g_assert_true (g_utf8_validate (clean, -1, NULL));
}

static void
test_rate (void)
{
  MonitorRate rate = MONITOR_RATE_INIT (3, 10);

  for (guint i = 0; i < 3; i++)
    g_assert_true (monitor_rate_take (&rate, 1000));
  g_assert_false (monitor_rate_take (&rate, 1000));
  g_assert_cmpint (monitor_rate_get_wait (&rate, 1000), ==, 10);
  g_assert_false (monitor_rate_take (&rate, 1009));
  g_assert_true (monitor_rate_take (&rate, 1010));
  g_assert_false (monitor_rate_take (&rate, 1010));
  /* What was not used does not add up. */
  for (guint i = 0; i < 3; i++)
    g_assert_true (monitor_rate_take (&rate, 100000));
  g_assert_false (monitor_rate_take (&rate, 100000));
}

/* The listener. */

typedef struct
{
  char *directory;
  char *path;
  MonitorNotify *notify;
  GString *heard;
} Fixture;

static void
event_cb (MonitorEvent event, const char *data, gpointer user_data)
{
  Fixture *fixture = user_data;

  g_string_append_printf (fixture->heard, "%s %s\n", monitor_event_get_name (event), data);
}

static void
set_up_for (Fixture *fixture, guint32 cid)
{
  g_autoptr (GError) error = NULL;
  int listener;

  fixture->directory = test_make_directory ();
  fixture->path = g_build_filename (fixture->directory, "n", NULL);
  fixture->heard = g_string_new (NULL);
  listener = monitor_socket_listen (fixture->path, &error);
  g_assert_no_error (error);
  fixture->notify = monitor_notify_new (listener, cid, event_cb, fixture);
}

static void
set_up (Fixture *fixture, gconstpointer data)
{
  set_up_for (fixture, 0);
}

static void
tear_down (Fixture *fixture, gconstpointer data)
{
  monitor_notify_free (fixture->notify);
  g_string_free (fixture->heard, TRUE);
  g_free (fixture->path);
  test_remove_directory (fixture->directory);
}

static int
connect_now (Fixture *fixture)
{
  int fd = monitor_socket_dial (fixture->path);

  g_assert_cmpint (fd, >=, 0);
  return fd;
}

static void
say (int fd, const char *text)
{
  g_assert_cmpint (send (fd, text, strlen (text), MSG_NOSIGNAL), ==, strlen (text));
}

static gboolean
is_closed (gpointer user_data)
{
  char byte;

  return recv (GPOINTER_TO_INT (user_data), &byte, 1, MSG_DONTWAIT) == 0;
}

static void
assert_closes (int fd)
{
  test_await_condition (is_closed, GINT_TO_POINTER (fd));
  close (fd);
}

/* PID 1 of the guest waits for the end of the connection and does not end its own side first. */
static void
test_message (Fixture *fixture, gconstpointer data)
{
  int fd = connect_now (fixture);

  say (fd, "READY=1\nSTATUS=Startup finished \"now\"\n");
  assert_closes (fd);
  g_assert_cmpstr (fixture->heard->str, ==,
                   "ready {}\nstatus {\"text\":\"Startup finished \\\"now\\\"\"}\n");
}

static void
test_many_messages (Fixture *fixture, gconstpointer data)
{
  for (guint i = 0; i < 50; i++)
    {
      int fd = connect_now (fixture);

      say (fd, i % 2 == 0 ? "STATUS=a\n" : "nothing\n");
      assert_closes (fd);
    }
  g_assert_cmpuint (fixture->heard->len, ==, 25 * strlen ("status {\"text\":\"a\"}\n"));
}

/* However many say nothing, one that does is heard. */
static void
test_silent (Fixture *fixture, gconstpointer data)
{
  int silent[40];
  int fd;

  for (guint i = 0; i < G_N_ELEMENTS (silent); i++)
    silent[i] = connect_now (fixture);
  fd = connect_now (fixture);
  say (fd, "READY=1");
  assert_closes (fd);
  g_assert_cmpstr (fixture->heard->str, ==, "ready {}\n");
  /* The oldest had to go. */
  assert_closes (silent[0]);
  assert_closes (silent[20]);
  for (guint i = 1; i < G_N_ELEMENTS (silent); i++)
    if (i != 20)
      close (silent[i]);
  test_drain ();
  g_assert_cmpstr (fixture->heard->str, ==, "ready {}\n");
}

static void
test_time_limit (Fixture *fixture, gconstpointer data)
{
  assert_closes (connect_now (fixture));
  g_assert_cmpstr (fixture->heard->str, ==, "");
}

/* What was begun before a reset is of a guest that is no more. */
static void
test_drop_begun (Fixture *fixture, gconstpointer data)
{
  int fd = connect_now (fixture);

  test_drain ();
  say (fd, "READY=1");
  monitor_notify_drop_begun (fixture->notify);
  test_drain ();
  g_assert_cmpstr (fixture->heard->str, ==, "");
  close (fd);
}

/* Of another guest: this connection has no CID at all. */
static void
test_elsewhere (gconstpointer data)
{
  Fixture fixture = { 0 };
  int fd;

  set_up_for (&fixture, 5);
  fd = connect_now (&fixture);
  say (fd, "READY=1");
  test_drain ();
  g_assert_cmpstr (fixture.heard->str, ==, "");
  close (fd);
  tear_down (&fixture, NULL);
}

static void
test_sockets (Fixture *fixture, gconstpointer data)
{
  g_autofree char *file = g_build_filename (fixture->directory, "file", NULL);
  g_autofree char *name = g_strnfill (108, 'a');
  g_autoptr (GError) error = NULL;
  GStatBuf status;

  g_assert_cmpint (g_stat (fixture->path, &status), ==, 0);
  g_assert_cmpint (status.st_mode & 0777, ==, 0600);
  /* What is no socket is nobody's to remove. */
  g_assert_true (g_file_set_contents (file, "mine", -1, NULL));
  g_assert_cmpint (monitor_socket_listen (file, &error), ==, -1);
  g_assert_error (error, G_FILE_ERROR, G_FILE_ERROR_EXIST);
  g_assert_true (g_file_test (file, G_FILE_TEST_EXISTS));
  g_clear_error (&error);
  g_assert_cmpint (monitor_socket_listen (name, &error), ==, -1);
  g_assert_error (error, G_FILE_ERROR, G_FILE_ERROR_NAMETOOLONG);
  g_assert_cmpint (monitor_socket_dial (name), ==, -1);
}

int
main (int argc, char **argv)
{
  g_test_init (&argc, &argv, NULL);
  g_test_add_func ("/monitor-notify/text", test_text);
  g_test_add_func ("/monitor-notify/long-text", test_long_text);
  g_test_add_func ("/monitor-notify/rate", test_rate);
#define ADD(name, function)                                                                        \
  g_test_add ("/monitor-notify/" name, Fixture, NULL, set_up, function, tear_down)
  ADD ("message", test_message);
  ADD ("many-messages", test_many_messages);
  ADD ("silent", test_silent);
  ADD ("time-limit", test_time_limit);
  ADD ("drop-begun", test_drop_begun);
  ADD ("sockets", test_sockets);
  g_test_add_data_func ("/monitor-notify/elsewhere", NULL, test_elsewhere);
  return g_test_run ();
}

/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The console: its bounded file, and who is attached to it. */

#include <fcntl.h>
#include <glib.h>
#include <glib/gstdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "monitor-attach.h"
#include "monitor-console-log.h"
#include "monitor-console.h"
#include "monitor-socket.h"
#include "test-await.h"

#define KIB 1024
#define HELLO "{\"vmm-console\":1}\n"
#define OK "{\"ok\":true}\n"

/* The file. */

typedef struct
{
  char *directory;
  char *path;
  int directory_fd;
  MonitorConsoleLog *log;
} LogFixture;

static const MonitorConsoleLimits limits = { 200 * KIB, 10 * KIB, 100 * KIB };

static void
set_up_log (LogFixture *fixture, gconstpointer data)
{
  fixture->directory = test_make_directory ();
  fixture->path = g_build_filename (fixture->directory, "console.log", NULL);
  fixture->directory_fd = open (fixture->directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  fixture->log = monitor_console_log_new (fixture->directory_fd, "console.log", &limits);
  g_assert_nonnull (fixture->log);
}

static void
tear_down_log (LogFixture *fixture, gconstpointer data)
{
  monitor_console_log_free (fixture->log);
  close (fixture->directory_fd);
  g_free (fixture->path);
  test_remove_directory (fixture->directory);
}

static void
write_text (LogFixture *fixture, const char *text)
{
  monitor_console_log_write (fixture->log, text, strlen (text));
}

static char *
read_file (LogFixture *fixture)
{
  char *text = NULL;

  g_assert_true (g_file_get_contents (fixture->path, &text, NULL, NULL));
  return text;
}

static void
assert_file (LogFixture *fixture, const char *expected)
{
  g_autofree char *text = read_file (fixture);

  g_assert_cmpstr (text, ==, expected);
}

static void
test_log (LogFixture *fixture, gconstpointer data)
{
  GStatBuf status;

  g_assert_true (g_file_set_contents (fixture->path, "of the run before", -1, NULL));
  monitor_console_log_begin (fixture->log);
  assert_file (fixture, "");
  write_text (fixture, "one\n");
  monitor_console_log_resume (fixture->log);
  write_text (fixture, "two\n");
  assert_file (fixture, "one\ntwo\n");
  g_assert_cmpint (g_stat (fixture->path, &status), ==, 0);
  g_assert_cmpint (status.st_mode & 0777, ==, 0600);
  monitor_console_log_begin (fixture->log);
  assert_file (fixture, "");
}

/* Numbered lines, of which the first and the last ones are known. */
static void
write_lines (LogFixture *fixture, guint first, guint n_lines)
{
  g_autoptr (GString) text = g_string_new (NULL);

  for (guint i = first; i < first + n_lines; i++)
    {
      char line[32];

      g_string_append_len (text, line, g_snprintf (line, sizeof line, "line %08u\n", i));
      if (i % 4000 == 0)
        {
          monitor_console_log_write (fixture->log, text->str, text->len);
          g_string_truncate (text, 0);
        }
    }
  monitor_console_log_write (fixture->log, text->str, text->len);
}

static void
assert_bounded (LogFixture *fixture, guint n_lines)
{
  g_autofree char *text = read_file (fixture);
  g_autofree char *last = g_strdup_printf ("line %08u\nline %08u\n", n_lines - 2, n_lines - 1);
  const char *middle = strstr (text, "\n[vmm-monitor: the middle of this console was dropped");

  g_assert_cmpuint (strlen (text), <=, limits.size_max);
  g_assert_cmpuint (strlen (text), >=, limits.head_size + limits.tail_size);
  g_assert_true (g_str_has_prefix (text, "line 00000000\nline 00000001\n"));
  g_assert_true (g_str_has_suffix (text, last));
  g_assert_nonnull (middle);
  g_assert_cmpuint (middle - text, ==, limits.head_size);
  /* One mark, however often that was done. */
  g_assert_null (strstr (middle + 2, "[vmm-monitor"));
}

static void
test_bound (LogFixture *fixture, gconstpointer data)
{
  g_autofree char *new_path = g_strconcat (fixture->path, ".new", NULL);

  monitor_console_log_begin (fixture->log);
  write_lines (fixture, 0, 500000);
  assert_bounded (fixture, 500000);
  g_assert_false (g_file_test (new_path, G_FILE_TEST_EXISTS));
  /* Another monitor goes on with it. */
  monitor_console_log_resume (fixture->log);
  write_lines (fixture, 500000, 100000);
  assert_bounded (fixture, 600000);
}

/* Where there is no room for a second file. */
static void
test_in_place (LogFixture *fixture, gconstpointer data)
{
  g_autofree char *new_path = g_strconcat (fixture->path, ".new", NULL);

  g_assert_cmpint (g_mkdir (new_path, 0700), ==, 0);
  monitor_console_log_begin (fixture->log);
  write_lines (fixture, 0, 500000);
  assert_bounded (fixture, 500000);
}

/* Who has it open reads one whole console, not pieces of two. */
static void
test_reader (LogFixture *fixture, gconstpointer data)
{
  g_autofree char *text = g_malloc (limits.size_max);
  int fd;
  gssize size;

  monitor_console_log_begin (fixture->log);
  write_lines (fixture, 0, 13000);
  fd = open (fixture->path, O_RDONLY | O_CLOEXEC);
  write_lines (fixture, 13000, 500000);
  size = read (fd, text, limits.size_max);
  close (fd);
  g_assert_cmpint (size, >=, 13000 * 14);
  for (guint i = 0; i < 13000; i++)
    g_assert_cmpuint (g_ascii_strtoull (text + i * 14 + 5, NULL, 10), ==, i);
}

/* A disk that takes nothing for a while. */
static void
test_failing (LogFixture *fixture, gconstpointer data)
{
  g_assert_cmpint (g_mkdir (fixture->path, 0700), ==, 0);
  monitor_console_log_begin (fixture->log);
  write_text (fixture, "lost\n");
  write_text (fixture, "lost too\n");
  g_assert_cmpint (g_rmdir (fixture->path), ==, 0);
  write_text (fixture, "kept\n");
  assert_file (fixture,
               "\n[vmm-monitor: 14 bytes are missing here, they could not be written]\nkept\n");
}

/* The serial port and the attachments. */

typedef struct
{
  char *directory;
  char *path;
  int qemu; /* its end */
  MonitorConsole *console;
  MonitorAttach *attach;
  gboolean closed;
} Fixture;

static void
output_cb (const char *data, gsize length, gpointer user_data)
{
  Fixture *fixture = user_data;

  monitor_attach_output (fixture->attach, data, length);
}

static void
drained_cb (gpointer user_data)
{
  Fixture *fixture = user_data;

  monitor_attach_drained (fixture->attach);
}

static void
closed_cb (gpointer user_data)
{
  Fixture *fixture = user_data;

  fixture->closed = TRUE;
  g_clear_pointer (&fixture->console, monitor_console_free);
}

static gsize
input_cb (const char *data, gsize length, gpointer user_data)
{
  Fixture *fixture = user_data;

  return monitor_console_send (fixture->console, data, length);
}

static void
set_up (Fixture *fixture, gconstpointer data)
{
  static const MonitorConsoleFuncs funcs = { output_cb, drained_cb, closed_cb };
  g_autoptr (GError) error = NULL;
  int fds[2], listener;

  g_assert_cmpint (socketpair (AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), ==, 0);
  fixture->directory = test_make_directory ();
  fixture->path = g_build_filename (fixture->directory, "a", NULL);
  listener = monitor_socket_listen (fixture->path, &error);
  g_assert_no_error (error);
  fixture->qemu = fds[0];
  fixture->console = monitor_console_new (fds[1], &funcs, fixture);
  fixture->attach = monitor_attach_new (listener, input_cb, fixture);
}

static void
tear_down (Fixture *fixture, gconstpointer data)
{
  monitor_attach_free (fixture->attach);
  g_clear_pointer (&fixture->console, monitor_console_free);
  if (fixture->qemu >= 0)
    close (fixture->qemu);
  g_free (fixture->path);
  test_remove_directory (fixture->directory);
}

typedef struct
{
  int fd;
  GString *heard;
  const char *expected; /* its end */
  gboolean ended;
} Listening;

static gboolean
hears (gpointer user_data)
{
  Listening *listening = user_data;
  char buffer[4096];
  gssize size;

  while ((size = recv (listening->fd, buffer, sizeof buffer, MSG_DONTWAIT)) > 0)
    g_string_append_len (listening->heard, buffer, size);
  listening->ended = size == 0;
  return listening->expected != NULL ? g_str_has_suffix (listening->heard->str, listening->expected)
                                     : listening->ended;
}

/* Until it ends in that, NULL: until the connection ends. */
static char *
hear (int fd, const char *expected)
{
  Listening listening = { fd, g_string_new (NULL), expected, FALSE };

  test_await_condition (hears, &listening);
  return g_string_free (listening.heard, FALSE);
}

static void
assert_hears (int fd, const char *expected)
{
  g_autofree char *text = hear (fd, expected);

  g_assert_cmpstr (text, ==, expected);
}

static void
say (int fd, const char *text)
{
  g_assert_cmpint (send (fd, text, strlen (text), MSG_NOSIGNAL), ==, strlen (text));
}

static int
come (Fixture *fixture)
{
  int fd = monitor_socket_dial (fixture->path);

  g_assert_cmpint (fd, >=, 0);
  assert_hears (fd, HELLO);
  return fd;
}

static int
attach_client (Fixture *fixture, const char *request)
{
  int fd = come (fixture);

  say (fd, request);
  assert_hears (fd, OK);
  return fd;
}

static void
test_readers (Fixture *fixture, gconstpointer data)
{
  int one = attach_client (fixture, "{\"write\":false}\n");
  int two;

  say (fixture->qemu, "boot\r\n");
  assert_hears (one, "boot\r\n");
  two = come (fixture);
  say (two, "{\"write\":false}\n");
  assert_hears (two, OK "boot\r\n");
  say (fixture->qemu, "login: ");
  assert_hears (one, "login: ");
  assert_hears (two, "login: ");
  /* What a reader types goes nowhere. */
  say (one, "root\n");
  test_drain ();
  g_assert_cmpint (recv (fixture->qemu, (char[1]){ 0 }, 1, MSG_DONTWAIT), ==, -1);
  close (one);
  say (fixture->qemu, "x");
  assert_hears (two, "x");
  close (two);
}

static void
test_recent (Fixture *fixture, gconstpointer data)
{
  g_autofree char *much = g_strnfill (20000, 'a');
  g_autofree char *last = g_strnfill (4095, 'a');
  g_autofree char *expected = g_strconcat (OK, last, "b", NULL);
  int fd;

  say (fixture->qemu, much);
  test_drain ();
  say (fixture->qemu, "b");
  test_drain ();
  fd = come (fixture);
  say (fd, "{\"write\":false}\n");
  assert_hears (fd, expected);
  close (fd);
  monitor_attach_begin (fixture->attach);
  close (attach_client (fixture, "{\"write\":false}\n"));
}

static void
test_writer (Fixture *fixture, gconstpointer data)
{
  /* In the same packet, too. */
  int one = attach_client (fixture, "{\"write\":true}\nro");
  int two;

  say (one, "ot\n");
  assert_hears (fixture->qemu, "root\n");
  two = come (fixture);
  say (two, "{\"write\":true}\n");
  assert_hears (two,
                "{\"ok\":false,\"error\":\"somebody else is writing to this console; attach to "
                "read it, or try again when they have left\"}\n");
  g_free (hear (two, NULL));
  close (two);
  close (one);
  test_drain ();
  one = attach_client (fixture, "{\"write\":true}\n");
  close (one);
}

static void
test_refused (Fixture *fixture, gconstpointer data)
{
  static const char *const requests[]
      = { "{}\n", "write\n", "[true]\n", "{\"write\":1}\n", "\n", "{\"write\":\"true\"}\n" };
  g_autofree char *long_line = g_strnfill (5000, ' ');
  int fd;

  for (guint i = 0; i < G_N_ELEMENTS (requests); i++)
    {
      g_autofree char *answer = NULL;

      fd = come (fixture);
      say (fd, requests[i]);
      answer = hear (fd, NULL);
      g_assert_true (g_str_has_prefix (answer, "{\"ok\":false,\"error\":\"the first line must be"));
      close (fd);
    }
  fd = come (fixture);
  say (fd, long_line);
  assert_hears (fd, "{\"ok\":false,\"error\":\"the first line is too long\"}\n");
  close (fd);
}

static void
test_too_many (Fixture *fixture, gconstpointer data)
{
  int clients[16], fd;
  g_autofree char *text = NULL;

  for (guint i = 0; i < G_N_ELEMENTS (clients); i++)
    clients[i] = attach_client (fixture, "{\"write\":false}\n");
  fd = monitor_socket_dial (fixture->path);
  text = hear (fd, NULL);
  g_assert_cmpstr (text, ==,
                   HELLO "{\"ok\":false,\"error\":\"too many are attached to this console\"}\n");
  close (fd);
  close (clients[7]);
  test_drain ();
  clients[7] = attach_client (fixture, "{\"write\":false}\n");
  for (guint i = 0; i < G_N_ELEMENTS (clients); i++)
    close (clients[i]);
}

typedef struct
{
  Fixture *fixture;
  gsize left;
} Flood;

static gboolean
flood (gpointer user_data)
{
  Flood *self = user_data;
  static char data[8192];
  gssize sent;

  memset (data, 'a', sizeof data);
  while (self->left > 0
         && (sent = send (self->fixture->qemu, data, MIN (self->left, sizeof data), MSG_NOSIGNAL))
                > 0)
    self->left -= sent;
  return self->left == 0;
}

/* The guest goes on, whoever does not read; who reads again is told what is missing. */
static void
test_slow_reader (Fixture *fixture, gconstpointer data)
{
  int fd = attach_client (fixture, "{\"write\":false}\n");
  Flood all = { fixture, 8 * 1024 * KIB };
  g_autofree char *text = NULL;
  guint64 missed = 0;
  const char *note;

  test_await_condition (flood, &all);
  test_drain ();
  text = hear (fd, " bytes were missed here]\r\n");
  note = strstr (text, "\r\n[");
  g_assert_nonnull (note);
  missed = g_ascii_strtoull (note + 3, NULL, 10);
  g_assert_cmpuint ((gsize) (note - text) + missed, ==, 8 * 1024 * KIB);
  say (fixture->qemu, "live");
  assert_hears (fd, "live");
  close (fd);
}

/* One that takes nothing at all is dropped. */
static void
test_dead_reader (Fixture *fixture, gconstpointer data)
{
  int fd = attach_client (fixture, "{\"write\":false}\n");
  Flood all = { fixture, 1024 * KIB };
  int silent = come (fixture);
  g_autofree char *rest = NULL;

  test_await_condition (flood, &all);
  g_free (hear (silent, NULL));
  close (silent);
  rest = hear (fd, NULL);
  g_assert_cmpuint (strlen (rest), <, 1024 * KIB);
  close (fd);
}

static gboolean
takes_all (gpointer user_data)
{
  Flood *self = user_data;
  char data[8192];
  gssize size;

  while ((size = recv (self->fixture->qemu, data, sizeof data, MSG_DONTWAIT)) > 0)
    self->left -= size;
  return self->left == 0;
}

/* A guest that does not read holds up who types, and loses nothing. */
static void
test_slow_guest (Fixture *fixture, gconstpointer data)
{
  static char bytes[4096];
  int fd = attach_client (fixture, "{\"write\":true}\n");
  Flood typed = { fixture, 0 };
  gssize size;

  memset (bytes, 'a', sizeof bytes);
  do
    {
      while ((size = send (fd, bytes, sizeof bytes, MSG_NOSIGNAL | MSG_DONTWAIT)) > 0)
        typed.left += size;
      test_drain ();
    }
  while ((size = send (fd, bytes, sizeof bytes, MSG_NOSIGNAL | MSG_DONTWAIT)) > 0
         && (typed.left += size) > 0);
  g_assert_cmpuint (typed.left, >, 100 * KIB);
  test_await_condition (takes_all, &typed);
  say (fd, "\n");
  assert_hears (fixture->qemu, "\n");
  close (fd);
}

static gboolean
is_closed (gpointer user_data)
{
  return ((Fixture *) user_data)->closed;
}

/* The end of the VM comes after all that it wrote. */
static void
test_end (Fixture *fixture, gconstpointer data)
{
  int fd = attach_client (fixture, "{\"write\":false}\n");
  g_autofree char *text = NULL;

  say (fixture->qemu, "last words");
  close (fixture->qemu);
  fixture->qemu = -1;
  test_await_condition (is_closed, fixture);
  monitor_attach_end (fixture->attach);
  text = hear (fd, NULL);
  g_assert_cmpstr (text, ==, "last words");
  close (fd);
  fd = come (fixture);
  say (fd, "{\"write\":false}\n");
  assert_hears (fd, "{\"ok\":false,\"error\":\"the VM does not run; what it wrote is in "
                    "console.log\"}\n");
  close (fd);
}

int
main (int argc, char **argv)
{
  g_test_init (&argc, &argv, NULL);
#define ADD_LOG(name, function)                                                                    \
  g_test_add ("/monitor-console/" name, LogFixture, NULL, set_up_log, function, tear_down_log)
#define ADD(name, function)                                                                        \
  g_test_add ("/monitor-console/" name, Fixture, NULL, set_up, function, tear_down)
  ADD_LOG ("log", test_log);
  ADD_LOG ("bound", test_bound);
  ADD_LOG ("in-place", test_in_place);
  ADD_LOG ("reader", test_reader);
  ADD_LOG ("failing", test_failing);
  ADD ("readers", test_readers);
  ADD ("recent", test_recent);
  ADD ("writer", test_writer);
  ADD ("refused", test_refused);
  ADD ("too-many", test_too_many);
  ADD ("slow-reader", test_slow_reader);
  ADD ("dead-reader", test_dead_reader);
  ADD ("slow-guest", test_slow_guest);
  ADD ("end", test_end);
  return g_test_run ();
}

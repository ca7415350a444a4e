/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Captures: the file's format, its bound, what is left of it when writing fails. */

#include "netd-capture.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include <gio/gio.h>
#include <glib/gstdio.h>

#define FILE_HEADER 24
#define RECORD_HEADER 16

typedef struct
{
  char *directory;
  char *path;
  int fd;
} Fixture;

static void
set_up (Fixture *fixture, gconstpointer data)
{
  fixture->directory = g_dir_make_tmp ("vmm-netd-capture-XXXXXX", NULL);
  g_assert_nonnull (fixture->directory);
  fixture->path = g_build_filename (fixture->directory, "file.pcap", NULL);
  fixture->fd = g_open (fixture->path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  g_assert_cmpint (fixture->fd, >=, 0);
}

static void
tear_down (Fixture *fixture, gconstpointer data)
{
  g_unlink (fixture->path);
  g_rmdir (fixture->directory);
  g_free (fixture->path);
  g_free (fixture->directory);
}

static guint8 *
read_file (Fixture *fixture, gsize *length)
{
  char *contents = NULL;

  g_assert_true (g_file_get_contents (fixture->path, &contents, length, NULL));
  return (guint8 *) contents;
}

static guint32
word (const guint8 *bytes, gsize offset)
{
  guint32 value;

  memcpy (&value, bytes + offset, 4);
  return value;
}

/* Walks the records; the file must end with a whole one. */
static guint
count_records (const guint8 *bytes, gsize length)
{
  gsize at = FILE_HEADER;
  guint n = 0;

  while (at < length)
    {
      g_assert_cmpuint (at + RECORD_HEADER, <=, length);
      g_assert_cmpuint (word (bytes, at + 4), <, 1000000);
      g_assert_cmpuint (word (bytes, at + 8), ==, word (bytes, at + 12));
      at += RECORD_HEADER + word (bytes, at + 8);
      n++;
    }
  g_assert_cmpuint (at, ==, length);
  return n;
}

static void
test_format (Fixture *fixture, gconstpointer data)
{
  g_autofree guint8 *large = g_malloc0 (70000);
  g_autofree guint8 *bytes = NULL;
  g_autoptr (GError) error = NULL;
  guint8 small[60] = { 1, 2, 3 };
  NetdCapture *capture;
  gsize length;

  /* What was in the file before does not matter. */
  g_assert_cmpint (write (fixture->fd, small, sizeof small), ==, sizeof small);
  capture = netd_capture_new (fixture->fd, 1000000, &error);
  g_assert_no_error (error);
  large[69999] = 7;
  netd_capture_frame (capture, small, sizeof small);
  netd_capture_frame (capture, large, 70000);
  netd_capture_frame (capture, small, 14);
  netd_capture_flush (capture);
  bytes = read_file (fixture, &length);
  g_assert_cmpuint (length, ==, FILE_HEADER + 3 * RECORD_HEADER + 60 + 70000 + 14);
  g_assert_cmphex (word (bytes, 0), ==, 0xa1b2c3d4);
  g_assert_cmphex (word (bytes, 16), ==, 262144);
  g_assert_cmpuint (word (bytes, 20), ==, 1);
  g_assert_cmpuint (count_records (bytes, length), ==, 3);
  g_assert_cmpmem (bytes + FILE_HEADER + RECORD_HEADER, 60, small, 60);
  g_assert_cmpuint (bytes[FILE_HEADER + 2 * RECORD_HEADER + 60 + 69999], ==, 7);
  g_assert_cmpint ((gint64) word (bytes, FILE_HEADER), >, 1600000000);
  g_assert_false (netd_capture_is_full (capture));
  netd_capture_free (capture);
}

static void
test_bound (Fixture *fixture, gconstpointer data)
{
  g_autofree guint8 *bytes = NULL;
  guint8 frame[100] = { 0 };
  NetdCapture *capture;
  gsize length;

  capture = netd_capture_new (fixture->fd, FILE_HEADER + 10 * (RECORD_HEADER + 100) + 50, NULL);
  g_assert_nonnull (capture);
  for (guint i = 0; i < 10; i++)
    {
      netd_capture_frame (capture, frame, sizeof frame);
      g_assert_false (netd_capture_is_full (capture));
    }
  netd_capture_frame (capture, frame, sizeof frame);
  g_assert_true (netd_capture_is_full (capture));
  /* Not even one that would fit: there would be a hole before it. */
  netd_capture_frame (capture, frame, 14);
  netd_capture_free (capture);
  bytes = read_file (fixture, &length);
  g_assert_cmpuint (count_records (bytes, length), ==, 10);
}

static void
test_refused (Fixture *fixture, gconstpointer data)
{
  g_autoptr (GError) error = NULL;
  int pipes[2];

  g_assert_null (netd_capture_new (fixture->fd, 10, &error));
  g_assert_error (error, G_IO_ERROR, G_IO_ERROR_INVALID_ARGUMENT);
  g_clear_error (&error);
  g_assert_cmpint (fcntl (fixture->fd, F_GETFD), ==, -1);
  g_assert_cmpint (pipe (pipes), ==, 0);
  g_assert_null (netd_capture_new (pipes[1], 10000, &error));
  g_assert_error (error, G_IO_ERROR, G_IO_ERROR_NOT_REGULAR_FILE);
  g_clear_error (&error);
  close (pipes[0]);
  g_assert_null (netd_capture_new (g_open (fixture->path, O_RDONLY | O_CLOEXEC), 10000, &error));
  g_assert_error (error, G_IO_ERROR, G_IO_ERROR_INVALID_ARGUMENT);
}

/* A file size limit stands for the full disk: the write that passes it is done in part. */
static void
test_failed_write (Fixture *fixture, gconstpointer data)
{
  struct rlimit limit;
  struct rlimit small;
  g_autofree guint8 *bytes = NULL;
  guint8 frame[1000] = { 0 };
  GLogLevelFlags fatal;
  NetdCapture *capture;
  gsize length;

  signal (SIGXFSZ, SIG_IGN);
  capture = netd_capture_new (fixture->fd, 1000000, NULL);
  g_assert_nonnull (capture);
  netd_capture_frame (capture, frame, sizeof frame);
  netd_capture_flush (capture);
  for (guint i = 0; i < 20; i++)
    netd_capture_frame (capture, frame, sizeof frame);
  g_assert_cmpint (getrlimit (RLIMIT_FSIZE, &limit), ==, 0);
  small = limit;
  small.rlim_cur = 8000;
  g_assert_cmpint (setrlimit (RLIMIT_FSIZE, &small), ==, 0);
  fatal = g_log_set_always_fatal (G_LOG_FATAL_MASK);
  netd_capture_flush (capture);
  g_log_set_always_fatal (fatal);
  g_assert_cmpint (setrlimit (RLIMIT_FSIZE, &limit), ==, 0);
  signal (SIGXFSZ, SIG_DFL);
  g_assert_true (netd_capture_is_full (capture));
  netd_capture_frame (capture, frame, sizeof frame);
  netd_capture_free (capture);
  bytes = read_file (fixture, &length);
  g_assert_cmpuint (count_records (bytes, length), ==, 1);
}

int
main (int argc, char *argv[])
{
  g_test_init (&argc, &argv, NULL);
  g_test_add ("/netd/capture/format", Fixture, NULL, set_up, test_format, tear_down);
  g_test_add ("/netd/capture/bound", Fixture, NULL, set_up, test_bound, tear_down);
  g_test_add ("/netd/capture/refused", Fixture, NULL, set_up, test_refused, tear_down);
  g_test_add ("/netd/capture/failed-write", Fixture, NULL, set_up, test_failed_write, tear_down);
  return g_test_run ();
}

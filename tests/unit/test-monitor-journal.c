/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The journal: its numbers, what it keeps, what the disk has of it. */

#include <fcntl.h>
#include <glib.h>
#include <glib/gstdio.h>
#include <string.h>
#include <unistd.h>

#include "monitor-journal-file.h"
#include "monitor-journal.h"
#include "monitor-json.h"
#include "test-await.h"

typedef struct
{
  char *directory;
  char *path;
  int directory_fd;
  MonitorJournal *journal;
  guint n_told;
} Fixture;

static void
told_cb (gpointer user_data)
{
  Fixture *fixture = user_data;

  fixture->n_told++;
}

static void
open_journal (Fixture *fixture)
{
  fixture->journal = monitor_journal_open (fixture->directory_fd, told_cb, fixture);
  g_assert_nonnull (fixture->journal);
}

/* Another process: what was told is what it finds. */
static void
reopen (Fixture *fixture)
{
  monitor_journal_free (fixture->journal);
  open_journal (fixture);
}

static void
set_up (Fixture *fixture, gconstpointer data)
{
  fixture->directory = test_make_directory ();
  fixture->path = g_build_filename (fixture->directory, MONITOR_JOURNAL_NAME, NULL);
  fixture->directory_fd = open (fixture->directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  g_assert_cmpint (fixture->directory_fd, >=, 0);
  open_journal (fixture);
}

static void
tear_down (Fixture *fixture, gconstpointer data)
{
  monitor_journal_free (fixture->journal);
  close (fixture->directory_fd);
  g_free (fixture->path);
  test_remove_directory (fixture->directory);
}

/* "NUMBER EVENT DATA", one a line. */
static char *
read_on (Fixture *fixture, guint64 seq)
{
  GString *text = g_string_new (NULL);
  const MonitorEntry *entry;

  for (; (entry = monitor_journal_find (fixture->journal, seq)) != NULL; seq = entry->seq)
    {
      MonitorJson line, data;

      g_assert_true (monitor_json_check (entry->line, strlen (entry->line), &line));
      data = monitor_json_get_member (line, "data");
      g_string_append_printf (text, "%" G_GUINT64_FORMAT " %s %.*s\n", entry->seq,
                              monitor_event_get_name (entry->event), (int) data.length, data.text);
    }
  return g_string_free (text, FALSE);
}

static gboolean
is_all_told (gpointer user_data)
{
  Fixture *fixture = user_data;
  guint64 seq = 0;
  const MonitorEntry *entry;

  while ((entry = monitor_journal_find (fixture->journal, seq)) != NULL)
    seq = entry->seq;
  return monitor_journal_is_all (fixture->journal, seq);
}

static void
assert_entries (Fixture *fixture, guint64 seq, const char *expected)
{
  g_autofree char *text = NULL;

  test_await_condition (is_all_told, fixture);
  text = read_on (fixture, seq);
  g_assert_cmpstr (text, ==, expected);
}

static void
add (Fixture *fixture, MonitorEvent event)
{
  monitor_journal_add (fixture->journal, event, "{}");
}

static void
add_status (Fixture *fixture, const char *text)
{
  g_autofree char *data = g_strdup_printf ("{\"text\":\"%s\"}", text);

  monitor_journal_add (fixture->journal, MONITOR_EVENT_STATUS, data);
}

static void
test_numbers (Fixture *fixture, gconstpointer data)
{
  monitor_journal_begin_run (fixture->journal, "one");
  add (fixture, MONITOR_EVENT_RESUME);
  add (fixture, MONITOR_EVENT_READY);
  monitor_journal_add (fixture->journal, MONITOR_EVENT_STOP, "{\"reason\":\"io-error\"}");
  assert_entries (fixture, 0, "1 resume {}\n2 ready {}\n3 stop {\"reason\":\"io-error\"}\n");
  assert_entries (fixture, 2, "3 stop {\"reason\":\"io-error\"}\n");
  assert_entries (fixture, 3, "");
  g_assert_true (monitor_journal_is_paused (fixture->journal));
  g_assert_false (monitor_journal_is_over (fixture->journal));
  g_assert_cmpuint (fixture->n_told, >, 0);
}

/* Nothing is told that a crash could take back. */
static void
test_told_when_durable (Fixture *fixture, gconstpointer data)
{
  g_autofree char *text = NULL;
  g_autofree char *file = NULL;

  monitor_journal_begin_run (fixture->journal, "one");
  add (fixture, MONITOR_EVENT_READY);
  add_status (fixture, "a");
  text = read_on (fixture, 0);
  g_assert_cmpstr (text, ==, "");
  g_assert_cmpuint (fixture->n_told, ==, 0);
  assert_entries (fixture, 0, "1 ready {}\n2 status {\"text\":\"a\"}\n");
  g_assert_true (g_file_get_contents (fixture->path, &file, NULL, NULL));
  g_assert_nonnull (strstr (file, "\"event\":\"ready\""));
}

static void
test_same_run (Fixture *fixture, gconstpointer data)
{
  monitor_journal_begin_run (fixture->journal, "one");
  add (fixture, MONITOR_EVENT_READY);
  add (fixture, MONITOR_EVENT_STOP);
  assert_entries (fixture, 0, "1 ready {}\n2 stop {}\n");
  reopen (fixture);
  g_assert_true (monitor_journal_is_open (fixture->journal));
  g_assert_true (monitor_journal_is_of_run (fixture->journal, "one"));
  g_assert_false (monitor_journal_is_of_run (fixture->journal, "two"));
  g_assert_true (monitor_journal_is_paused (fixture->journal));
  assert_entries (fixture, 0, "1 ready {}\n2 stop {}\n");
  add (fixture, MONITOR_EVENT_RESUME);
  add (fixture, MONITOR_EVENT_EXIT);
  assert_entries (fixture, 1, "2 stop {}\n3 resume {}\n4 exit {}\n");
  reopen (fixture);
  assert_entries (fixture, 3, "4 exit {}\n");
  g_assert_true (monitor_journal_is_over (fixture->journal));
  g_assert_false (monitor_journal_is_open (fixture->journal));
  g_assert_false (monitor_journal_is_of_run (fixture->journal, "one"));
}

static void
test_next_run (Fixture *fixture, gconstpointer data)
{
  monitor_journal_begin_run (fixture->journal, "one");
  add (fixture, MONITOR_EVENT_READY);
  add (fixture, MONITOR_EVENT_EXIT);
  assert_entries (fixture, 0, "1 ready {}\n2 exit {}\n");
  monitor_journal_begin_run (fixture->journal, "two");
  assert_entries (fixture, 0, "");
  add (fixture, MONITOR_EVENT_READY);
  assert_entries (fixture, 0, "3 ready {}\n");
  monitor_journal_begin_run (fixture->journal, "three");
  /* Of a run in which nothing happened the number is known, too. */
  add (fixture, MONITOR_EVENT_RESET);
  assert_entries (fixture, 0, "4 reset {}\n");
  reopen (fixture);
  monitor_journal_begin_run (fixture->journal, "four");
  reopen (fixture);
  add (fixture, MONITOR_EVENT_RESET);
  assert_entries (fixture, 0, "5 reset {}\n");
}

/* READY once after each reset, the newest status only, resets as they are. */
static void
test_collapse (Fixture *fixture, gconstpointer data)
{
  monitor_journal_begin_run (fixture->journal, "one");
  add_status (fixture, "a");
  add (fixture, MONITOR_EVENT_READY);
  add (fixture, MONITOR_EVENT_READY);
  add_status (fixture, "b");
  add (fixture, MONITOR_EVENT_RESET);
  add (fixture, MONITOR_EVENT_RESET);
  add (fixture, MONITOR_EVENT_READY);
  assert_entries (fixture, 0,
                  "2 ready {}\n3 status {\"text\":\"b\"}\n4 reset {}\n5 reset {}\n6 ready {}\n");
  reopen (fixture);
  add (fixture, MONITOR_EVENT_READY);
  assert_entries (fixture, 5, "6 ready {}\n");
}

static gsize
get_size (Fixture *fixture)
{
  GStatBuf status;

  return g_stat (fixture->path, &status) == 0 ? (gsize) status.st_size : 0;
}

/* A guest that floods: what matters stays, in order, and the file is small. */
static void
test_flood (Fixture *fixture, gconstpointer data)
{
  g_autofree char *text = g_strnfill (4000, 'a');
  g_autofree char *last = NULL;

  monitor_journal_begin_run (fixture->journal, "one");
  add (fixture, MONITOR_EVENT_RESET);
  for (guint i = 0; i < 10000; i++)
    {
      add_status (fixture, text);
      add (fixture, MONITOR_EVENT_READY);
    }
  add_status (fixture, "last");
  add (fixture, MONITOR_EVENT_EXIT);
  test_await_condition (is_all_told, fixture);
  g_assert_cmpuint (get_size (fixture), <, 200 * 1024);
  last = read_on (fixture, 0);
  g_assert_true (g_str_has_prefix (last, "1 reset {}\n3 ready {}\n"));
  g_assert_nonnull (strstr (last, "status {\"text\":\"last\"}\n"));
  g_assert_true (g_str_has_suffix (last, " exit {}\n"));
}

static gboolean
has_status (gpointer user_data)
{
  g_autofree char *text = read_on (user_data, 0);

  return strstr (text, "status {\"text\":\"newest\"}") != NULL;
}

/* One that comes too early is told later, and the newest of them only. */
static void
test_status_waits (Fixture *fixture, gconstpointer data)
{
  monitor_journal_begin_run (fixture->journal, "one");
  for (guint i = 0; i < 1000; i++)
    add_status (fixture, "early");
  add_status (fixture, "newest");
  test_await_condition (has_status, fixture);
}

/* Of days of resets the oldest go. */
static void
test_bound (Fixture *fixture, gconstpointer data)
{
  guint n_entries = 0;
  const MonitorEntry *entry;
  guint64 seq = 0;

  monitor_journal_begin_run (fixture->journal, "one");
  for (guint i = 0; i < 5000; i++)
    add (fixture, i % 2 == 0 ? MONITOR_EVENT_RESET : MONITOR_EVENT_READY);
  monitor_journal_add (fixture->journal, MONITOR_EVENT_SHUTDOWN, "{\"guest\":true}");
  add (fixture, MONITOR_EVENT_EXIT);
  test_await_condition (is_all_told, fixture);
  for (; (entry = monitor_journal_find (fixture->journal, seq)) != NULL; seq = entry->seq)
    n_entries++;
  g_assert_cmpuint (n_entries, ==, 512);
  g_assert_cmpuint (seq, ==, 5002);
  assert_entries (fixture, 4999, "5000 ready {}\n5001 shutdown {\"guest\":true}\n5002 exit {}\n");
  g_assert_cmpuint (get_size (fixture), <, 200 * 1024);
  reopen (fixture);
  assert_entries (fixture, 5000, "5001 shutdown {\"guest\":true}\n5002 exit {}\n");
}

static void
test_seen (Fixture *fixture, gconstpointer data)
{
  monitor_journal_begin_run (fixture->journal, "one");
  add (fixture, MONITOR_EVENT_RESUME);
  g_assert_true (monitor_journal_note_seen (fixture->journal, 1));
  g_assert_true (monitor_journal_note_seen (fixture->journal, 41));
  g_assert_true (monitor_journal_note_seen (fixture->journal, 7));
  g_assert_false (monitor_journal_note_seen (fixture->journal, G_MAXINT64));
  add (fixture, MONITOR_EVENT_RESET);
  assert_entries (fixture, 41, "42 reset {}\n");
  reopen (fixture);
  assert_entries (fixture, 0, "1 resume {}\n42 reset {}\n");
}

/* Torn in the middle of a line by a crash. */
static void
test_torn (Fixture *fixture, gconstpointer data)
{
  g_autofree char *text = NULL;
  gsize length;

  monitor_journal_begin_run (fixture->journal, "one");
  add (fixture, MONITOR_EVENT_READY);
  add (fixture, MONITOR_EVENT_RESET);
  test_await_condition (is_all_told, fixture);
  g_assert_true (g_file_get_contents (fixture->path, &text, &length, NULL));
  g_assert_true (g_file_set_contents (fixture->path, text, (gssize) length - 3, NULL));
  reopen (fixture);
  g_assert_true (monitor_journal_is_of_run (fixture->journal, "one"));
  assert_entries (fixture, 0, "1 ready {}\n");
  add (fixture, MONITOR_EVENT_STOP);
  assert_entries (fixture, 0, "1 ready {}\n2 stop {}\n");
  reopen (fixture);
  assert_entries (fixture, 0, "1 ready {}\n2 stop {}\n");
}

/* What is no journal is no reason not to watch a VM. */
static void
test_nonsense (Fixture *fixture, gconstpointer data)
{
  static const char *const files[] = {
    "",
    "\n",
    "nonsense\n",
    "{\"vmm-monitor-journal\":2,\"last\":7,\"run\":\"one\"}\n",
    "{\"vmm-monitor-journal\":1,\"last\":-7,\"run\":\"one\"}\n",
    "{\"seq\":9,\"event\":\"ready\",\"data\":{}}\n",
  };

  for (guint i = 0; i < G_N_ELEMENTS (files); i++)
    {
      g_assert_true (g_file_set_contents (fixture->path, files[i], -1, NULL));
      reopen (fixture);
      assert_entries (fixture, 0, "");
      g_assert_false (monitor_journal_is_open (fixture->journal));
      monitor_journal_begin_run (fixture->journal, "two");
      add (fixture, MONITOR_EVENT_READY);
      assert_entries (fixture, 0, "1 ready {}\n");
    }
  /* Entries end where one is wrong. */
  g_assert_true (g_file_set_contents (fixture->path,
                                      "{\"vmm-monitor-journal\":1,\"last\":7,\"run\":\"one\"}\n"
                                      "{\"seq\":9,\"event\":\"ready\",\"data\":{}}\n"
                                      "{\"seq\":9,\"event\":\"reset\",\"data\":{}}\n"
                                      "{\"seq\":10,\"event\":\"reset\",\"data\":{}}\n",
                                      -1, NULL));
  reopen (fixture);
  assert_entries (fixture, 0, "9 ready {}\n");
}

/* A disk that takes nothing: what happens is told all the same, and written when it can be. */
static void
test_no_disk (Fixture *fixture, gconstpointer data)
{
  g_autofree char *new_path = g_build_filename (fixture->directory, MONITOR_JOURNAL_NEW_NAME, NULL);

  /* A folder in the place of the file: root is stopped by that, too. */
  g_assert_cmpint (g_mkdir (new_path, 0700), ==, 0);
  monitor_journal_begin_run (fixture->journal, "one");
  add (fixture, MONITOR_EVENT_READY);
  assert_entries (fixture, 0, "1 ready {}\n");
  add (fixture, MONITOR_EVENT_RESET);
  assert_entries (fixture, 0, "1 ready {}\n2 reset {}\n");
  g_assert_false (g_file_test (fixture->path, G_FILE_TEST_EXISTS));
  g_assert_cmpint (g_rmdir (new_path), ==, 0);
  add (fixture, MONITOR_EVENT_STOP);
  assert_entries (fixture, 1, "2 reset {}\n3 stop {}\n");
  reopen (fixture);
  assert_entries (fixture, 0, "1 ready {}\n2 reset {}\n3 stop {}\n");
}

int
main (int argc, char **argv)
{
  g_test_init (&argc, &argv, NULL);
#define ADD(name, function)                                                                        \
  g_test_add ("/monitor-journal/" name, Fixture, NULL, set_up, function, tear_down)
  ADD ("numbers", test_numbers);
  ADD ("told-when-durable", test_told_when_durable);
  ADD ("same-run", test_same_run);
  ADD ("next-run", test_next_run);
  ADD ("collapse", test_collapse);
  ADD ("flood", test_flood);
  ADD ("status-waits", test_status_waits);
  ADD ("bound", test_bound);
  ADD ("seen", test_seen);
  ADD ("torn", test_torn);
  ADD ("nonsense", test_nonsense);
  ADD ("no-disk", test_no_disk);
  return g_test_run ();
}

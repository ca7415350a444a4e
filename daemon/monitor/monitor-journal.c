/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The journal: an entry gets its number, goes into the list and the file, and is told to readers
 * when the disk has it. So what was told is found again after a crash, and no number means two
 * things.
 *
 * A disk that takes nothing must not silence the VM: then entries are told from memory, and the
 * file is written anew as soon as it can be.
 *
 * Status texts have a rate. One that comes too early waits, and a later one takes its place; it
 * never stays behind an entry that follows it.
 */
#include "monitor-journal.h"

#include <errno.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "monitor-journal-file.h"
#include "monitor-json.h"
#include "monitor-log.h"
#include "monitor-rate.h"
#include "monitor-sync.h"

#define ENTRIES_MAX 512
#define FILE_GROWTH_MAX (96 * 1024)
#define STATUS_AT_ONCE 16
#define STATUS_INTERVAL_US (G_USEC_PER_SEC / 2)
/* Numbers are told as JSON, which is exact up to here; half of it is enough for jumps. */
#define SEEN_MAX (G_GUINT64_CONSTANT (1) << 52)

struct _MonitorJournal
{
  int directory_fd;
  MonitorJournalFunc func;
  gpointer user_data;
  MonitorJournalHead head;
  MonitorJournalList *list;
  guint64 told_seq; /* up to here it may be told */

  int fd; /* -1 before the first one */
  gsize file_size;
  gsize first_size;    /* when it was written as a whole */
  int replaced_fd;     /* of the file that is being replaced */
  gboolean needs_file; /* the list has what the file has not */
  gboolean needs_sync; /* for what was written since the running job began */
  gboolean is_failing; /* that was logged */
  guint64 written_seq;
  guint64 job_seq; /* what the running job makes durable */
  MonitorSync *sync;

  MonitorRate status_rate;
  char *status; /* waits */
  guint status_timer;
};

static void work (MonitorJournal *self);

/* Told are entries in order: those that are on disk, and what nobody needs to find again behind
 * them. */
static gboolean
is_important (MonitorEvent event)
{
  return event != MONITOR_EVENT_STATUS && event != MONITOR_EVENT_RESUME;
}

static void
tell (MonitorJournal *self, guint64 durable_seq)
{
  guint64 before = self->told_seq;
  const MonitorEntry *entry;

  self->told_seq = MAX (self->told_seq, durable_seq);
  while ((entry = monitor_journal_list_find (self->list, self->told_seq)) != NULL
         && !is_important (entry->event))
    self->told_seq = entry->seq;
  if (self->told_seq != before)
    self->func (self->user_data);
}

static void
give_up_file (MonitorJournal *self, const char *what, int code)
{
  if (!self->is_failing)
    monitor_log ("the journal cannot be %s: %s; it goes on in memory", what, g_strerror (code));
  self->is_failing = TRUE;
  self->needs_file = TRUE;
  tell (self, self->head.last_seq);
}

static void
synced_cb (int error_number, gpointer user_data)
{
  MonitorJournal *self = user_data;

  if (self->replaced_fd >= 0)
    close (self->replaced_fd);
  self->replaced_fd = -1;
  if (error_number != 0)
    {
      give_up_file (self, "kept on disk", error_number);
      return;
    }
  self->is_failing = self->needs_file;
  tell (self, self->job_seq);
  work (self);
}

/* Replaces the file by one of what is in the list now. */
static void
write_file (MonitorJournal *self)
{
  gsize size;
  int fd = monitor_journal_file_write (self->directory_fd, &self->head, self->list, &size);

  if (fd < 0)
    {
      give_up_file (self, "written", errno);
      return;
    }
  self->replaced_fd = self->fd;
  self->fd = fd;
  self->file_size = self->first_size = size;
  self->needs_file = FALSE;
  self->needs_sync = FALSE;
  self->job_seq = self->written_seq = self->head.last_seq;
  monitor_sync_begin (self->sync, fd, self->directory_fd, MONITOR_JOURNAL_NEW_NAME,
                      MONITOR_JOURNAL_NAME);
}

static void
work (MonitorJournal *self)
{
  if (monitor_sync_is_busy (self->sync))
    return;
  if (self->needs_file || self->file_size - self->first_size > FILE_GROWTH_MAX)
    {
      write_file (self);
      return;
    }
  if (!self->needs_sync)
    return;
  self->needs_sync = FALSE;
  self->job_seq = self->written_seq;
  monitor_sync_begin (self->sync, self->fd, -1, NULL, NULL);
}

static char *
format_line (guint64 seq, MonitorEvent event, const char *data)
{
  gint64 now = g_get_real_time ();
  time_t seconds = (time_t) (now / G_USEC_PER_SEC);
  char at[32] = "";
  struct tm fields;

  if (gmtime_r (&seconds, &fields) != NULL)
    strftime (at, sizeof at, "%Y-%m-%dT%H:%M:%S", &fields);
  return g_strdup_printf ("{\"seq\":%" G_GUINT64_FORMAT ",\"at\":\"%s.%06dZ\",\"event\":\"%s\","
                          "\"data\":%s}",
                          seq, at, (int) (now % G_USEC_PER_SEC), monitor_event_get_name (event),
                          data);
}

static void
append (MonitorJournal *self, const MonitorEntry *entry)
{
  if (!monitor_journal_file_append (self->fd, entry->line, &self->file_size))
    {
      give_up_file (self, "written", errno);
      return;
    }
  self->written_seq = entry->seq;
  self->needs_sync = self->needs_sync || is_important (entry->event);
  tell (self, 0);
}

static void
add (MonitorJournal *self, MonitorEvent event, const char *data)
{
  const MonitorEntry *entry;
  guint64 seq = ++self->head.last_seq;

  entry = monitor_journal_list_add (self->list, seq, event, format_line (seq, event, data));
  if (!self->needs_file)
    append (self, entry);
  work (self);
}

/* Status texts. */

static void
add_waiting_status (MonitorJournal *self)
{
  g_autofree char *data = g_steal_pointer (&self->status);

  g_clear_handle_id (&self->status_timer, g_source_remove);
  if (data != NULL)
    add (self, MONITOR_EVENT_STATUS, data);
}

static gboolean
status_cb (gpointer user_data)
{
  MonitorJournal *self = user_data;

  self->status_timer = 0;
  monitor_rate_take (&self->status_rate, g_get_monotonic_time ());
  add_waiting_status (self);
  return G_SOURCE_REMOVE;
}

static void
add_status (MonitorJournal *self, const char *data)
{
  gint64 now = g_get_monotonic_time ();
  gint64 wait;

  if (self->status == NULL && monitor_rate_take (&self->status_rate, now))
    {
      add (self, MONITOR_EVENT_STATUS, data);
      return;
    }
  g_free (self->status);
  self->status = g_strdup (data);
  if (self->status_timer != 0)
    return;
  wait = monitor_rate_get_wait (&self->status_rate, now);
  self->status_timer = g_timeout_add ((guint) (wait / 1000 + 1), status_cb, self);
}

void
monitor_journal_add (MonitorJournal *self, MonitorEvent event, const char *data)
{
  if (event == MONITOR_EVENT_STATUS)
    {
      add_status (self, data);
      return;
    }
  if (!monitor_journal_list_is_news (self->list, event))
    return;
  add_waiting_status (self);
  add (self, event, data);
}

/* Runs. */

MonitorJournal *
monitor_journal_open (int directory_fd, MonitorJournalFunc func, gpointer user_data)
{
  MonitorJournal *self = g_new0 (MonitorJournal, 1);

  self->directory_fd = directory_fd;
  self->func = func;
  self->user_data = user_data;
  self->fd = self->replaced_fd = -1;
  self->status_rate = (MonitorRate) MONITOR_RATE_INIT (STATUS_AT_ONCE, STATUS_INTERVAL_US);
  self->list = monitor_journal_list_new (ENTRIES_MAX);
  self->sync = monitor_sync_new (synced_cb, self);
  if (self->sync == NULL)
    {
      monitor_journal_list_free (self->list);
      g_free (self);
      return NULL;
    }
  monitor_journal_file_load (directory_fd, &self->head, self->list);
  /* It was on disk when it was read, and is again before anything is added. */
  self->told_seq = self->head.last_seq;
  self->needs_file = TRUE;
  return self;
}

void
monitor_journal_free (MonitorJournal *self)
{
  monitor_sync_free (self->sync);
  g_clear_handle_id (&self->status_timer, g_source_remove);
  if (self->fd >= 0)
    close (self->fd);
  if (self->replaced_fd >= 0)
    close (self->replaced_fd);
  monitor_journal_list_free (self->list);
  g_free (self->head.run);
  g_free (self->status);
  g_free (self);
}

gboolean
monitor_journal_is_of_run (MonitorJournal *self, const char *run)
{
  return g_strcmp0 (self->head.run, run) == 0 && !monitor_journal_is_over (self);
}

void
monitor_journal_begin_run (MonitorJournal *self, const char *run)
{
  g_clear_pointer (&self->status, g_free);
  monitor_journal_list_clear (self->list);
  g_free (self->head.run);
  self->head.run = g_strdup (run);
  self->needs_file = TRUE;
  work (self);
}

/* Reading. */

const MonitorEntry *
monitor_journal_find (MonitorJournal *self, guint64 seq)
{
  const MonitorEntry *entry = monitor_journal_list_find (self->list, seq);

  return entry != NULL && entry->seq <= self->told_seq ? entry : NULL;
}

gboolean
monitor_journal_note_seen (MonitorJournal *self, guint64 seq)
{
  if (seq > SEEN_MAX)
    return FALSE;
  if (seq <= self->head.last_seq)
    return TRUE;
  /* A journal that was lost. What is in this one was numbered too low for that reader. */
  monitor_log ("a reader has seen number %" G_GUINT64_FORMAT
               ", the journal ends at %" G_GUINT64_FORMAT ": it goes on behind what was seen",
               seq, self->head.last_seq);
  self->head.last_seq = seq;
  return TRUE;
}

gboolean
monitor_journal_is_open (MonitorJournal *self)
{
  return self->head.run != NULL && *self->head.run != '\0' && !monitor_journal_is_over (self);
}

gboolean
monitor_journal_is_over (MonitorJournal *self)
{
  return monitor_journal_list_is_over (self->list);
}

gboolean
monitor_journal_is_paused (MonitorJournal *self)
{
  return monitor_journal_list_is_paused (self->list);
}

gboolean
monitor_journal_is_all (MonitorJournal *self, guint64 seq)
{
  const MonitorEntry *last = monitor_journal_list_get_last (self->list);

  return last == NULL || last->seq <= seq;
}

/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What is kept of a run, and what is not.
 *
 * A guest may say and do things as often as it likes, and the daemon may be away for a long time.
 * Of status texts only the newest counts. READY says something once after each reset. Resets are
 * kept as they are, but a guest may reset itself, become ready and reset itself for days: then the
 * oldest entries go. What ends a run is its newest entry and never goes that way, and a reader
 * finds a gap in the numbers, not a wrong order.
 */
#include "monitor-journal-list.h"

struct _MonitorJournalList
{
  GPtrArray *entries;
  guint entries_max;
  gboolean is_ready; /* since the last reset */
  gboolean is_paused;
};

static void
entry_free (gpointer data)
{
  MonitorEntry *entry = data;

  g_free (entry->line);
  g_free (entry);
}

MonitorJournalList *
monitor_journal_list_new (guint entries_max)
{
  MonitorJournalList *self = g_new0 (MonitorJournalList, 1);

  self->entries = g_ptr_array_new_with_free_func (entry_free);
  self->entries_max = entries_max;
  return self;
}

void
monitor_journal_list_free (MonitorJournalList *self)
{
  g_ptr_array_unref (self->entries);
  g_free (self);
}

static void
drop_status (MonitorJournalList *self)
{
  /* There is at most one. */
  for (guint i = 0; i < self->entries->len; i++)
    {
      const MonitorEntry *entry = self->entries->pdata[i];

      if (entry->event != MONITOR_EVENT_STATUS)
        continue;
      g_ptr_array_remove_index (self->entries, i);
      return;
    }
}

static void
note (MonitorJournalList *self, MonitorEvent event)
{
  if (event == MONITOR_EVENT_READY)
    self->is_ready = TRUE;
  else if (event == MONITOR_EVENT_RESET)
    self->is_ready = FALSE;
  else if (event == MONITOR_EVENT_STOP)
    self->is_paused = TRUE;
  else if (event == MONITOR_EVENT_RESUME)
    self->is_paused = FALSE;
}

gboolean
monitor_journal_list_is_news (MonitorJournalList *self, MonitorEvent event)
{
  return event != MONITOR_EVENT_READY || !self->is_ready;
}

const MonitorEntry *
monitor_journal_list_add (MonitorJournalList *self, guint64 seq, MonitorEvent event, char *line)
{
  MonitorEntry *entry = g_new (MonitorEntry, 1);

  if (event == MONITOR_EVENT_STATUS)
    drop_status (self);
  if (self->entries->len >= self->entries_max)
    g_ptr_array_remove_index (self->entries, 0);
  note (self, event);
  *entry = (MonitorEntry){ seq, event, line };
  g_ptr_array_add (self->entries, entry);
  return entry;
}

const MonitorEntry *
monitor_journal_list_find (MonitorJournalList *self, guint64 seq)
{
  guint low = 0, high = self->entries->len;

  while (low < high)
    {
      guint middle = (low + high) / 2;
      const MonitorEntry *entry = self->entries->pdata[middle];

      if (entry->seq > seq)
        high = middle;
      else
        low = middle + 1;
    }
  return low < self->entries->len ? self->entries->pdata[low] : NULL;
}

const MonitorEntry *
monitor_journal_list_get_last (MonitorJournalList *self)
{
  return self->entries->len > 0 ? self->entries->pdata[self->entries->len - 1] : NULL;
}

void
monitor_journal_list_clear (MonitorJournalList *self)
{
  g_ptr_array_set_size (self->entries, 0);
  self->is_ready = FALSE;
  self->is_paused = FALSE;
}

gboolean
monitor_journal_list_is_paused (MonitorJournalList *self)
{
  return self->is_paused;
}

gboolean
monitor_journal_list_is_over (MonitorJournalList *self)
{
  const MonitorEntry *last = monitor_journal_list_get_last (self);

  return last != NULL && last->event == MONITOR_EVENT_EXIT;
}

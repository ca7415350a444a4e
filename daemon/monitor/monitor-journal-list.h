/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "monitor-event.h"

/* The entries of the current run, in memory: ordered, numbered, and few whatever a guest does. */
typedef struct
{
  guint64 seq;
  MonitorEvent event;
  char *line; /* as it is sent and written, without the line's end */
} MonitorEntry;

typedef struct _MonitorJournalList MonitorJournalList;

MonitorJournalList *monitor_journal_list_new (guint entries_max);
void monitor_journal_list_free (MonitorJournalList *self);

/* Takes the line. What the new entry says better is dropped. */
const MonitorEntry *monitor_journal_list_add (MonitorJournalList *self, guint64 seq,
                                              MonitorEvent event, char *line);
/* Whether an entry would say nothing new: a second READY without a reset between. */
gboolean monitor_journal_list_is_news (MonitorJournalList *self, MonitorEvent event);
/* The first one numbered above @seq, NULL for none; valid until the list changes. */
const MonitorEntry *monitor_journal_list_find (MonitorJournalList *self, guint64 seq);
/* The newest one, NULL for none. */
const MonitorEntry *monitor_journal_list_get_last (MonitorJournalList *self);
void monitor_journal_list_clear (MonitorJournalList *self);

gboolean monitor_journal_list_is_paused (MonitorJournalList *self); /* stop without a resume */
gboolean monitor_journal_list_is_over (MonitorJournalList *self);   /* exit is the last one */

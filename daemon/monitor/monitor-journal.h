/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "monitor-journal-list.h"

/* The journal of what happened: numbered, in memory and on disk, told when it is on disk. */
typedef struct _MonitorJournal MonitorJournal;
typedef void (*MonitorJournalFunc) (gpointer user_data);

/* Of the run before, if there was one. @func: there is more to tell. NULL with errno set. */
MonitorJournal *monitor_journal_open (int directory_fd, MonitorJournalFunc func,
                                      gpointer user_data);
void monitor_journal_free (MonitorJournal *self);

/* Whether these are entries of that run of QEMU, which has a name of its own. */
gboolean monitor_journal_is_of_run (MonitorJournal *self, const char *run);
/* Forgets the entries of the run before; numbers go on. */
void monitor_journal_begin_run (MonitorJournal *self, const char *run);

void monitor_journal_add (MonitorJournal *self, MonitorEvent event, const char *data);

/* The first entry above @seq that may be told, NULL for none. */
const MonitorEntry *monitor_journal_find (MonitorJournal *self, guint64 seq);
/* A reader says what it has seen: numbers go on behind that. FALSE when it is no such number. */
gboolean monitor_journal_note_seen (MonitorJournal *self, guint64 seq);

/* Entries of a run whose end is not among them. */
gboolean monitor_journal_is_open (MonitorJournal *self);
gboolean monitor_journal_is_over (MonitorJournal *self);
gboolean monitor_journal_is_paused (MonitorJournal *self);
/* Whether somebody who has seen @seq has seen all of it. */
gboolean monitor_journal_is_all (MonitorJournal *self, guint64 seq);

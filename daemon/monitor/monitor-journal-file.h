/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "monitor-journal-list.h"

/* The journal on disk. The first line says which run it is of and the last number before it, then
 * comes a line for each entry. */
#define MONITOR_JOURNAL_NAME "monitor.journal"
#define MONITOR_JOURNAL_NEW_NAME "monitor.journal.new"

typedef struct
{
  char *run; /* NULL: of none */
  guint64 last_seq;
} MonitorJournalHead;

/* Fills the list with what is there. A line that is not one ends it: it was being written. */
void monitor_journal_file_load (int directory_fd, MonitorJournalHead *head,
                                MonitorJournalList *list);
/* A new file, under its new name, with the whole list. -1 with errno set. */
int monitor_journal_file_write (int directory_fd, const MonitorJournalHead *head,
                                MonitorJournalList *list, gsize *size);
/* Adds a line behind @size, which grows; FALSE with errno set, and then nothing was added. */
gboolean monitor_journal_file_append (int fd, const char *line, gsize *size);

/* NULL when the text is no entry. */
char *monitor_journal_file_read_entry (const char *line, gsize length, guint64 *seq,
                                       MonitorEvent *event);

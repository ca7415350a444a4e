/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The journal as a file of lines.
 *
 * It is only ever appended to, or replaced as a whole by one that is complete, so what a reader
 * finds after a crash is a beginning of it with at most one torn line. Some room is asked for in
 * advance, so that a disk that others fill takes its entries for a while.
 */
#include "monitor-journal-file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "monitor-json.h"

#define FILE_MAX (4 * 1024 * 1024)
#define RESERVED (128 * 1024)

char *
monitor_journal_file_read_entry (const char *line, gsize length, guint64 *seq, MonitorEvent *event)
{
  g_autofree char *name = NULL;
  MonitorJson json;

  if (!monitor_json_check (line, length, &json)
      || !monitor_json_read_number (monitor_json_get_member (json, "seq"), seq)
      || !monitor_json_is_object (monitor_json_get_member (json, "data")))
    return NULL;
  name = monitor_json_dup_string (monitor_json_get_member (json, "event"));
  if (name == NULL || !monitor_event_find (name, event))
    return NULL;
  return g_strndup (json.text, json.length);
}

static gboolean
read_head (const char *line, gsize length, MonitorJournalHead *head)
{
  MonitorJson json;
  guint64 version;

  if (!monitor_json_check (line, length, &json)
      || !monitor_json_read_number (monitor_json_get_member (json, "vmm-monitor-journal"), &version)
      || version != 1
      || !monitor_json_read_number (monitor_json_get_member (json, "last"), &head->last_seq))
    return FALSE;
  head->run = monitor_json_dup_string (monitor_json_get_member (json, "run"));
  return TRUE;
}

static gboolean
take_entry (const char *line, gsize length, MonitorJournalHead *head, MonitorJournalList *list)
{
  MonitorEvent event;
  guint64 seq;
  char *copy = monitor_journal_file_read_entry (line, length, &seq, &event);

  if (copy == NULL || seq <= head->last_seq)
    {
      g_free (copy);
      return FALSE;
    }
  head->last_seq = seq;
  monitor_journal_list_add (list, seq, event, copy);
  return TRUE;
}

static void
take_lines (const char *text, gsize length, MonitorJournalHead *head, MonitorJournalList *list)
{
  const char *end = memchr (text, '\n', length);
  gboolean valid = end != NULL && read_head (text, end - text, head);

  while (valid)
    {
      length -= end + 1 - text;
      text = end + 1;
      end = memchr (text, '\n', length);
      valid = end != NULL && take_entry (text, end - text, head, list);
    }
}

static gsize
read_all (int fd, char *buffer, gsize size)
{
  gsize length = 0;

  while (length < size)
    {
      gssize count = read (fd, buffer + length, size - length);

      if (count <= 0)
        break;
      length += count;
    }
  return length;
}

void
monitor_journal_file_load (int directory_fd, MonitorJournalHead *head, MonitorJournalList *list)
{
  int fd
      = openat (directory_fd, MONITOR_JOURNAL_NAME, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  g_autofree char *text = NULL;
  struct stat status;

  *head = (MonitorJournalHead){ NULL, 0 };
  if (fd < 0)
    return;
  if (fstat (fd, &status) == 0 && S_ISREG (status.st_mode) && status.st_size <= FILE_MAX)
    {
      gsize length;

      text = g_malloc (status.st_size + 1);
      length = read_all (fd, text, status.st_size);
      take_lines (text, length, head, list);
    }
  close (fd);
}

static gboolean
write_all (int fd, const char *data, gsize length, gsize offset)
{
  while (length > 0)
    {
      gssize count = pwrite (fd, data, length, (off_t) offset);

      if (count < 0 && errno != EINTR)
        return FALSE;
      count = MAX (count, 0);
      data += count;
      length -= count;
      offset += count;
    }
  return TRUE;
}

gboolean
monitor_journal_file_append (int fd, const char *line, gsize *size)
{
  g_autofree char *whole = g_strconcat (line, "\n", NULL);
  gsize length = strlen (whole);
  int code;

  if (write_all (fd, whole, length, *size))
    {
      *size += length;
      return TRUE;
    }
  code = errno;
  /* If that fails too, the torn line is the end of what will be read. */
  if (ftruncate (fd, (off_t) *size) < 0)
    code = errno;
  errno = code;
  return FALSE;
}

static char *
format_all (const MonitorJournalHead *head, MonitorJournalList *list)
{
  const MonitorEntry *entry = monitor_journal_list_find (list, 0);
  guint64 before = entry != NULL ? entry->seq - 1 : head->last_seq;
  GString *text = g_string_new (NULL);

  g_string_append_printf (
      text, "{\"vmm-monitor-journal\":1,\"last\":%" G_GUINT64_FORMAT ",\"run\":", before);
  monitor_json_append_string (text, head->run != NULL ? head->run : "");
  g_string_append (text, "}\n");
  for (; entry != NULL; entry = monitor_journal_list_find (list, entry->seq))
    g_string_append_printf (text, "%s\n", entry->line);
  return g_string_free (text, FALSE);
}

int
monitor_journal_file_write (int directory_fd, const MonitorJournalHead *head,
                            MonitorJournalList *list, gsize *size)
{
  g_autofree char *text = format_all (head, list);
  int fd, code;

  if (unlinkat (directory_fd, MONITOR_JOURNAL_NEW_NAME, 0) < 0 && errno != ENOENT)
    return -1;
  fd = openat (directory_fd, MONITOR_JOURNAL_NEW_NAME,
               O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0)
    return -1;
  *size = strlen (text);
  if (write_all (fd, text, *size, 0))
    {
      if (fallocate (fd, FALLOC_FL_KEEP_SIZE, 0, (off_t) *size + RESERVED) < 0)
        return fd; /* a file system that cannot, or a disk that is about to be full */
      return fd;
    }
  code = errno;
  close (fd);
  unlinkat (directory_fd, MONITOR_JOURNAL_NEW_NAME, 0);
  errno = code;
  return -1;
}

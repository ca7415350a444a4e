/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Lines over a socket. Memory is held only while a line is not complete. */
#include "monitor-lines.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#define READ_SIZE 4096

struct _MonitorLines
{
  gsize line_max;
  MonitorLinesFunc func;
  gpointer user_data;
  GByteArray *partial; /* NULL: none */
};

MonitorLines *
monitor_lines_new (gsize line_max, MonitorLinesFunc func, gpointer user_data)
{
  MonitorLines *self = g_new0 (MonitorLines, 1);

  self->line_max = line_max;
  self->func = func;
  self->user_data = user_data;
  return self;
}

static gboolean
tell (MonitorLines *self, const char *line, gsize length)
{
  if (length > 0 && line[length - 1] == '\r')
    length--;
  return length == 0 || self->func (line, length, self->user_data);
}

static gboolean
complete_line (MonitorLines *self, const char *data, gsize length)
{
  g_autoptr (GByteArray) whole = g_steal_pointer (&self->partial);

  if (whole == NULL)
    return tell (self, data, length);
  g_byte_array_append (whole, (const guint8 *) data, length);
  return tell (self, (const char *) whole->data, whole->len);
}

gboolean
monitor_lines_take (MonitorLines *self, const char *data, gsize length)
{
  while (length > 0)
    {
      const char *end = memchr (data, '\n', length);
      gsize size = end != NULL ? (gsize) (end - data) : length;

      if ((self->partial != NULL ? self->partial->len : 0) + size > self->line_max)
        return FALSE;
      if (end == NULL)
        {
          if (self->partial == NULL)
            self->partial = g_byte_array_new ();
          g_byte_array_append (self->partial, (const guint8 *) data, size);
          return TRUE;
        }
      if (!complete_line (self, data, size))
        return FALSE;
      data += size + 1;
      length -= size + 1;
    }
  return TRUE;
}

gboolean
monitor_lines_read (MonitorLines *self, int fd)
{
  char buffer[READ_SIZE];
  gssize size = recv (fd, buffer, sizeof buffer, MSG_DONTWAIT);

  if (size < 0)
    return errno == EAGAIN || errno == EINTR;
  return size > 0 && monitor_lines_take (self, buffer, size);
}

void
monitor_lines_free (MonitorLines *self)
{
  g_clear_pointer (&self->partial, g_byte_array_unref);
  g_free (self);
}

/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "monitor-attach-queue.h"

#include <string.h>
#include <sys/socket.h>

static gsize
send_some (int fd, const char *data, gsize length)
{
  gssize sent = length > 0 ? send (fd, data, length, MSG_DONTWAIT | MSG_NOSIGNAL) : 0;

  /* One that has gone is found by reading. */
  return sent > 0 ? (gsize) sent : 0;
}

static void
keep (MonitorAttachQueue *self, const char *data, gsize length)
{
  gsize room;

  if (length == 0)
    return;
  if (self->waiting == NULL)
    self->waiting = g_byte_array_new ();
  /* Nothing comes behind a gap before that is told. */
  room = self->n_missed > 0 ? 0 : MONITOR_ATTACH_QUEUE_MAX - self->waiting->len;
  self->n_missed += length - MIN (length, room);
  g_byte_array_append (self->waiting, (const guint8 *) data, (guint) MIN (length, room));
}

/* A place for what was missed, when all before it has been sent. */
static void
tell_missed (MonitorAttachQueue *self)
{
  g_autofree char *note = NULL;

  if (self->n_missed == 0)
    return;
  note = g_strdup_printf ("\r\n[%" G_GUINT64_FORMAT " bytes were missed here]\r\n", self->n_missed);
  self->n_missed = 0;
  keep (self, note, strlen (note));
}

gboolean
monitor_attach_queue_send (MonitorAttachQueue *self, int fd, const char *data, gsize length)
{
  gsize sent = 0, taken = 0;

  if (self->waiting != NULL)
    {
      taken = send_some (fd, (const char *) self->waiting->data, self->waiting->len);
      g_byte_array_remove_range (self->waiting, 0, (guint) taken);
      if (self->waiting->len == 0)
        {
          g_clear_pointer (&self->waiting, g_byte_array_unref);
          tell_missed (self);
        }
    }
  if (self->waiting == NULL)
    sent = send_some (fd, data, length);
  keep (self, data + sent, length - sent);
  return taken + sent > 0;
}

gboolean
monitor_attach_queue_is_waiting (const MonitorAttachQueue *self)
{
  return self->waiting != NULL;
}

void
monitor_attach_queue_clear (MonitorAttachQueue *self)
{
  g_clear_pointer (&self->waiting, g_byte_array_unref);
}

/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The journal's readers.
 *
 * One is greeted, says from where on it wants to read, and is sent the entries, then what comes. A
 * reader has a place in the journal and no queue: what its socket does not take now is looked up
 * when it does, so that one that does not read costs nothing but its place.
 */
#include "monitor-door.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "monitor-json.h"
#include "monitor-lines.h"
#include "monitor-log.h"
#include "monitor-socket.h"
#include "monitor-watch.h"

#define CLIENTS_MAX 8
#define REQUEST_MAX 4096
#define HELLO "{\"vmm-monitor\":1,\"features\":[\"journal\",\"console-attach\"]}\n"

struct _MonitorDoor
{
  int listener;
  MonitorJournal *journal;
  MonitorDoorFunc changed;
  gpointer user_data;
  MonitorWatch *watch; /* NULL: it is not open yet */
  GQueue clients;
  guint64 seen_seq;
};

typedef struct
{
  MonitorDoor *owner;
  int fd;
  MonitorWatch *watch;
  MonitorLines *lines;
  gboolean reads; /* it has said from where on */
  guint64 seq;    /* the last one that was taken from the journal for it */
  char *unsent;   /* what is left of that one; NULL: nothing */
} Client;

static void
client_free (Client *client)
{
  MonitorDoor *self = client->owner;

  g_queue_remove (&self->clients, client);
  monitor_watch_free (client->watch);
  monitor_lines_free (client->lines);
  close (client->fd);
  g_free (client->unsent);
  g_free (client);
}

/* FALSE when it has to wait. */
static gboolean
send_unsent (Client *client)
{
  gsize length = strlen (client->unsent);
  gssize sent = send (client->fd, client->unsent, length, MSG_DONTWAIT | MSG_NOSIGNAL);

  /* One that has gone is found by reading. */
  if (sent < 0 && errno != EAGAIN && errno != EINTR)
    sent = (gssize) length;
  sent = MAX (sent, 0);
  if ((gsize) sent < length)
    {
      memmove (client->unsent, client->unsent + sent, length - sent + 1);
      return FALSE;
    }
  g_clear_pointer (&client->unsent, g_free);
  client->owner->seen_seq = MAX (client->owner->seen_seq, client->seq);
  return TRUE;
}

static void
send_entries (Client *client)
{
  const MonitorEntry *entry;
  gboolean waits = client->unsent != NULL && !send_unsent (client);

  while (!waits && client->reads
         && (entry = monitor_journal_find (client->owner->journal, client->seq)) != NULL)
    {
      client->seq = entry->seq;
      client->unsent = g_strconcat (entry->line, "\n", NULL);
      waits = !send_unsent (client);
    }
  monitor_watch_set (client->watch, waits ? G_IO_IN | G_IO_OUT : G_IO_IN);
}

static gboolean
line_cb (const char *line, gsize length, gpointer user_data)
{
  Client *client = user_data;
  MonitorJson request;
  guint64 seq;

  if (client->reads || !monitor_json_check (line, length, &request)
      || !monitor_json_read_number (monitor_json_get_member (request, "read-from"), &seq)
      || !monitor_journal_note_seen (client->owner->journal, seq))
    {
      monitor_log ("a reader of the journal sent what is no request");
      return FALSE;
    }
  client->seq = seq;
  client->reads = TRUE;
  client->owner->seen_seq = MAX (client->owner->seen_seq, seq);
  return TRUE;
}

static void
client_cb (GIOCondition condition, gpointer user_data)
{
  Client *client = user_data;
  MonitorDoor *self = client->owner;

  if ((condition & ~G_IO_OUT) == 0 || monitor_lines_read (client->lines, client->fd))
    {
      send_entries (client);
      return;
    }
  client_free (client);
  self->changed (self->user_data);
}

static void
add_client (MonitorDoor *self, int fd)
{
  Client *client = g_new0 (Client, 1);

  client->owner = self;
  client->fd = fd;
  client->lines = monitor_lines_new (REQUEST_MAX, line_cb, client);
  client->watch = monitor_watch_new (fd, G_IO_IN, client_cb, client);
  client->unsent = g_strdup (HELLO);
  g_queue_push_tail (&self->clients, client);
  send_entries (client);
  self->changed (self->user_data);
}

/* One that came and never said anything makes room. */
static gboolean
make_room (MonitorDoor *self)
{
  if (self->clients.length < CLIENTS_MAX)
    return TRUE;
  for (GList *item = self->clients.head; item != NULL; item = item->next)
    {
      Client *client = item->data;

      if (client->reads)
        continue;
      client_free (client);
      return TRUE;
    }
  monitor_log ("%d readers of the journal are there already", CLIENTS_MAX);
  return FALSE;
}

static void
accept_cb (GIOCondition condition, gpointer user_data)
{
  MonitorDoor *self = user_data;
  guint32 cid;
  int fd = monitor_socket_accept (self->listener, &cid);

  if (fd < 0)
    return;
  if (monitor_socket_is_ours (fd) && make_room (self))
    add_client (self, fd);
  else
    close (fd);
}

MonitorDoor *
monitor_door_new (int listener, MonitorJournal *journal, MonitorDoorFunc changed,
                  gpointer user_data)
{
  MonitorDoor *self = g_new0 (MonitorDoor, 1);

  self->listener = listener;
  self->journal = journal;
  self->changed = changed;
  self->user_data = user_data;
  g_queue_init (&self->clients);
  return self;
}

void
monitor_door_open (MonitorDoor *self)
{
  if (self->watch == NULL)
    self->watch = monitor_watch_new (self->listener, G_IO_IN, accept_cb, self);
}

void
monitor_door_free (MonitorDoor *self)
{
  while (self->clients.length > 0)
    client_free (g_queue_peek_head (&self->clients));
  g_clear_pointer (&self->watch, monitor_watch_free);
  close (self->listener);
  g_free (self);
}

void
monitor_door_tell (MonitorDoor *self)
{
  for (GList *item = self->clients.head; item != NULL; item = item->next)
    send_entries (item->data);
}

guint
monitor_door_count (MonitorDoor *self)
{
  return self->clients.length;
}

guint64
monitor_door_get_seen (MonitorDoor *self)
{
  return self->seen_seq;
}

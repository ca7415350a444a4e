/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Attachments to the console.
 *
 * Any number of clients, up to a bound, see what the guest writes; one may type. A client that does
 * not keep up misses output and is told so, one that takes nothing for a while is dropped; the
 * guest notices neither. What is typed waits in the client's socket until the guest's port takes
 * it.
 */
#include "monitor-attach.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "monitor-attach-queue.h"
#include "monitor-json.h"
#include "monitor-socket.h"
#include "monitor-watch.h"

#define CLIENTS_MAX 16
#define RECENT_MAX 4096
#define REQUEST_MAX 256
#define INPUT_MAX 4096
#define TICK_SECONDS 5
/* Without having said what it wants, or taken anything that waited for it. */
#define PATIENCE_US (15 * G_USEC_PER_SEC)

#define HELLO "{\"vmm-console\":1}\n"

typedef enum
{
  STAGE_HELLO,
  STAGE_ATTACHED,
  STAGE_LEAVING /* as soon as it has what waits for it */
} Stage;

struct _MonitorAttach
{
  int listener;
  MonitorAttachFunc input;
  gpointer user_data;
  MonitorWatch *watch;
  GQueue clients;
  GByteArray *recent;
  gboolean is_over;
  guint tick; /* only while somebody is waited for */
};

typedef struct
{
  MonitorAttach *owner;
  int fd;
  MonitorWatch *watch;
  Stage stage;
  gboolean writes;
  gint64 since; /* when it last did what was waited for */
  char request[REQUEST_MAX];
  gsize request_length;
  MonitorAttachQueue output;
  char *input; /* waits for the guest's port; NULL: nothing */
  gsize input_length;
} Client;

static void
client_free (Client *client)
{
  g_queue_remove (&client->owner->clients, client);
  monitor_watch_free (client->watch);
  close (client->fd);
  monitor_attach_queue_clear (&client->output);
  g_free (client->input);
  g_free (client);
}

static gboolean
is_waited_for (const Client *client)
{
  return client->stage == STAGE_HELLO || monitor_attach_queue_is_waiting (&client->output);
}

static gboolean
tick_cb (gpointer user_data)
{
  MonitorAttach *self = user_data;
  gint64 now = g_get_monotonic_time ();
  gboolean again = FALSE;

  for (GList *item = self->clients.head, *next; item != NULL; item = next)
    {
      Client *client = item->data;

      next = item->next;
      if (is_waited_for (client) && now - client->since > PATIENCE_US)
        client_free (client);
      else
        again = again || is_waited_for (client);
    }
  if (!again)
    self->tick = 0;
  return again;
}

/* What it may do next; FALSE when it has left. */
static gboolean
update (Client *client)
{
  MonitorAttach *self = client->owner;
  gboolean waits = monitor_attach_queue_is_waiting (&client->output);
  GIOCondition condition = client->input == NULL ? G_IO_IN : 0;

  if (client->stage == STAGE_LEAVING && !waits)
    {
      client_free (client);
      return FALSE;
    }
  monitor_watch_set (client->watch, waits ? condition | G_IO_OUT : condition);
  if (self->tick == 0 && is_waited_for (client))
    self->tick = g_timeout_add_seconds (TICK_SECONDS, tick_cb, self);
  return TRUE;
}

static void
send_output (Client *client, const char *data, gsize length)
{
  gboolean waited = monitor_attach_queue_is_waiting (&client->output);

  if (monitor_attach_queue_send (&client->output, client->fd, data, length) || !waited)
    client->since = g_get_monotonic_time ();
}

/* The writer's input. */

static void
pass_input (Client *client, const char *data, gsize length)
{
  MonitorAttach *self = client->owner;
  gsize taken = self->input (data, length, self->user_data);
  char *rest = taken < length ? g_memdup2 (data + taken, length - taken) : NULL;

  g_free (client->input);
  client->input = rest;
  client->input_length = length - taken;
}

void
monitor_attach_drained (MonitorAttach *self)
{
  for (GList *item = self->clients.head, *next; item != NULL; item = next)
    {
      Client *client = item->data;
      g_autofree char *input = g_steal_pointer (&client->input);

      next = item->next;
      if (input == NULL)
        continue;
      pass_input (client, input, client->input_length);
      update (client);
    }
}

/* The request. */

static gboolean
has_writer (MonitorAttach *self)
{
  for (GList *item = self->clients.head; item != NULL; item = item->next)
    if (((Client *) item->data)->writes)
      return TRUE;
  return FALSE;
}

static void
refuse (Client *client, const char *why)
{
  g_autofree char *answer = g_strdup_printf ("{\"ok\":false,\"error\":\"%s\"}\n", why);

  send_output (client, answer, strlen (answer));
  client->stage = STAGE_LEAVING;
}

static void
take_request (Client *client, const char *line, gsize length)
{
  static const char ok[] = "{\"ok\":true}\n";
  MonitorAttach *self = client->owner;
  MonitorJson request;
  gboolean writes;

  if (!monitor_json_check (line, length, &request)
      || !monitor_json_read_boolean (monitor_json_get_member (request, "write"), &writes))
    refuse (client, "the first line must be an object with \\\"write\\\": true or false");
  else if (self->is_over)
    refuse (client, "the VM does not run; what it wrote is in console.log");
  else if (writes && has_writer (self))
    refuse (client, "somebody else is writing to this console; attach to read it, or try again "
                    "when they have left");
  else
    {
      client->stage = STAGE_ATTACHED;
      client->writes = writes;
      send_output (client, ok, strlen (ok));
      send_output (client, (const char *) self->recent->data, self->recent->len);
    }
}

/* What is behind the request's end is input already. */
static void
take_data (Client *client, const char *data, gsize length)
{
  const char *end;
  gsize size;

  if (client->stage == STAGE_HELLO)
    {
      end = memchr (data, '\n', length);
      size = end != NULL ? (gsize) (end - data) : length;
      if (client->request_length + size > sizeof client->request)
        {
          refuse (client, "the first line is too long");
          return;
        }
      memcpy (client->request + client->request_length, data, size);
      client->request_length += size;
      if (end == NULL)
        return;
      take_request (client, client->request, client->request_length);
      data += size + 1;
      length -= size + 1;
    }
  if (client->stage == STAGE_ATTACHED && client->writes && length > 0)
    pass_input (client, data, length);
}

static void
client_cb (GIOCondition condition, gpointer user_data)
{
  char buffer[INPUT_MAX];
  Client *client = user_data;
  gssize size;

  if ((condition & G_IO_OUT) != 0)
    send_output (client, NULL, 0);
  if ((condition & ~G_IO_OUT) != 0)
    {
      /* Also while its input waits, when it can only be that it has gone. */
      size = client->input == NULL ? recv (client->fd, buffer, sizeof buffer, MSG_DONTWAIT) : 0;
      if (size == 0 || (size < 0 && errno != EAGAIN && errno != EINTR))
        {
          client_free (client);
          return;
        }
      if (size > 0)
        take_data (client, buffer, size);
    }
  update (client);
}

static void
accept_cb (GIOCondition condition, gpointer user_data)
{
  MonitorAttach *self = user_data;
  Client *client;
  guint32 cid;
  int fd = monitor_socket_accept (self->listener, &cid);

  if (fd >= 0 && (!monitor_socket_is_ours (fd) || self->clients.length > CLIENTS_MAX))
    {
      close (fd);
      return;
    }
  if (fd < 0)
    return;
  client = g_new0 (Client, 1);
  client->owner = self;
  client->fd = fd;
  client->since = g_get_monotonic_time ();
  client->watch = monitor_watch_new (fd, G_IO_IN, client_cb, client);
  g_queue_push_tail (&self->clients, client);
  send_output (client, HELLO, strlen (HELLO));
  /* One more than fits can be told so. */
  if (self->clients.length > CLIENTS_MAX)
    refuse (client, "too many are attached to this console");
  update (client);
}

MonitorAttach *
monitor_attach_new (int listener, MonitorAttachFunc input, gpointer user_data)
{
  MonitorAttach *self = g_new0 (MonitorAttach, 1);

  self->listener = listener;
  self->input = input;
  self->user_data = user_data;
  self->recent = g_byte_array_new ();
  g_queue_init (&self->clients);
  self->watch = monitor_watch_new (listener, G_IO_IN, accept_cb, self);
  return self;
}

void
monitor_attach_free (MonitorAttach *self)
{
  while (self->clients.length > 0)
    client_free (g_queue_peek_head (&self->clients));
  g_clear_handle_id (&self->tick, g_source_remove);
  monitor_watch_free (self->watch);
  close (self->listener);
  g_byte_array_unref (self->recent);
  g_free (self);
}

static void
keep_recent (MonitorAttach *self, const char *data, gsize length)
{
  gsize size = MIN (length, RECENT_MAX);

  if (self->recent->len + size > RECENT_MAX)
    g_byte_array_remove_range (self->recent, 0, (guint) (self->recent->len + size - RECENT_MAX));
  g_byte_array_append (self->recent, (const guint8 *) data + length - size, (guint) size);
}

void
monitor_attach_output (MonitorAttach *self, const char *data, gsize length)
{
  keep_recent (self, data, length);
  for (GList *item = self->clients.head, *next; item != NULL; item = next)
    {
      Client *client = item->data;

      next = item->next;
      if (client->stage != STAGE_ATTACHED)
        continue;
      send_output (client, data, length);
      update (client);
    }
}

void
monitor_attach_begin (MonitorAttach *self)
{
  self->is_over = FALSE;
  g_byte_array_set_size (self->recent, 0);
}

void
monitor_attach_end (MonitorAttach *self)
{
  self->is_over = TRUE;
  for (GList *item = self->clients.head, *next; item != NULL; item = next)
    {
      Client *client = item->data;

      next = item->next;
      if (client->stage != STAGE_ATTACHED)
        continue;
      client->stage = STAGE_LEAVING;
      update (client);
    }
}

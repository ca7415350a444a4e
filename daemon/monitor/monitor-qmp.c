/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The second QMP connection: the daemon has one of its own for commands. It agrees on the protocol,
 * asks for the state, and then listens.
 *
 * Lines are bounded. QEMU is not trusted more than the guest in it: what it says is read strictly,
 * and a line that is no JSON object ends the connection.
 */
#include "monitor-qmp.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "monitor-json.h"
#include "monitor-lines.h"
#include "monitor-log.h"
#include "monitor-qmp-events.h"
#include "monitor-watch.h"

#define LINE_MAX_SIZE (64 * 1024)
#define ID_CAPABILITIES 1
#define ID_STATUS 2

struct _MonitorQmp
{
  int fd;
  MonitorWatch *watch;
  MonitorLines *lines;
  MonitorQmpEvents events;
  MonitorQmpReadyFunc ready;
  MonitorQmpClosedFunc closed;
  gpointer user_data;
  gboolean was_greeted;
};

static void
send_command (MonitorQmp *self, const char *command, guint id)
{
  g_autofree char *line = g_strdup_printf ("{\"execute\":\"%s\",\"id\":%u}\n", command, id);

  /* A few bytes a time: what does not fit finds a QEMU that has not read for long. */
  if (send (self->fd, line, strlen (line), MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
    monitor_log ("qmp: %s cannot be sent: %s", command, g_strerror (errno));
}

static void
take_answer (MonitorQmp *self, MonitorJson message)
{
  MonitorJson answer = monitor_json_get_member (message, "return");
  guint64 id;

  if (!monitor_json_read_number (monitor_json_get_member (message, "id"), &id))
    return;
  if (id == ID_CAPABILITIES)
    send_command (self, "query-status", ID_STATUS);
  else if (id == ID_STATUS)
    {
      monitor_qmp_events_take_status (&self->events, answer);
      self->ready (self->user_data);
    }
}

static gboolean
line_cb (const char *line, gsize length, gpointer user_data)
{
  MonitorQmp *self = user_data;
  MonitorJson message;

  if (!monitor_json_check (line, length, &message) || !monitor_json_is_object (message))
    {
      monitor_log ("qmp: a line is no JSON object");
      return FALSE;
    }
  if (monitor_json_get_member (message, "event").text != NULL)
    {
      if (monitor_qmp_events_take (&self->events, message))
        send_command (self, "query-status", ID_STATUS);
    }
  else if (monitor_json_get_member (message, "QMP").text != NULL)
    {
      self->was_greeted = TRUE;
      send_command (self, "qmp_capabilities", ID_CAPABILITIES);
    }
  else
    take_answer (self, message);
  return TRUE;
}

static void
readable_cb (GIOCondition condition, gpointer user_data)
{
  MonitorQmp *self = user_data;

  if (monitor_lines_read (self->lines, self->fd))
    return;
  monitor_qmp_events_flush (&self->events);
  self->closed (self->was_greeted, self->user_data);
}

MonitorQmp *
monitor_qmp_new (int fd, gboolean is_paused, MonitorEventFunc func, MonitorQmpReadyFunc ready,
                 MonitorQmpClosedFunc closed, gpointer user_data)
{
  MonitorQmp *self = g_new0 (MonitorQmp, 1);

  self->fd = fd;
  self->events = (MonitorQmpEvents){ .func = func, .user_data = user_data, .is_paused = is_paused };
  self->ready = ready;
  self->closed = closed;
  self->user_data = user_data;
  self->lines = monitor_lines_new (LINE_MAX_SIZE, line_cb, self);
  self->watch = monitor_watch_new (fd, G_IO_IN, readable_cb, self);
  return self;
}

void
monitor_qmp_free (MonitorQmp *self)
{
  monitor_watch_free (self->watch);
  monitor_lines_free (self->lines);
  close (self->fd);
  g_free (self);
}

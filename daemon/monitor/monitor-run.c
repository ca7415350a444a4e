/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The life of a monitor.
 *
 * It begins with QEMU's control socket: which socket that is (its inode and the time it was made)
 * says which run this is. The same one as in the journal: a monitor was here before and has died;
 * the journal and the console go on. Another one: the journal's entries are of a run that is over,
 * and nobody needs them any more.
 *
 * It ends with QEMU: the control connection ends and cannot be made again. The console is read to
 * its end before that is told, since whoever hears of the end reads it. Then the process waits to
 * be told to end, for a daemon may be away and still wants to know how the run ended. It leaves by
 * itself when one has read that and has left, when its folder or its socket is removed, or when
 * nobody has asked for a week.
 */
#include "monitor-run.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "monitor-attach.h"
#include "monitor-console-log.h"
#include "monitor-console.h"
#include "monitor-dial.h"
#include "monitor-door.h"
#include "monitor-folder.h"
#include "monitor-journal.h"
#include "monitor-log.h"
#include "monitor-notify.h"
#include "monitor-qmp.h"
#include "monitor-rate.h"
#include "monitor-socket.h"

#define QMP_SOCKET "monitor-qmp.sock"
#define CONSOLE_SOCKET "console.sock"
#define CONSOLE_LOG "console.log"

#define QEMU_LIMIT_SECONDS 60
#define QMP_READY_MS 2000
#define CONSOLE_END_MS 1000
#define LINGER_SECONDS 60
#define LINGER_MAX_SECONDS (7 * 24 * 3600)

static const MonitorConsoleLimits console_limits
    = { 16 * 1024 * 1024, 1024 * 1024, 7 * 1024 * 1024 };

typedef enum
{
  STATE_WAITING, /* for a QEMU */
  STATE_LIVE,
  STATE_ENDING, /* QEMU has gone, the console may have more */
  STATE_OVER
} State;

struct _MonitorRun
{
  MonitorRunDoneFunc done;
  gpointer user_data;
  int directory_fd;
  State state;
  MonitorJournal *journal;
  MonitorDoor *door;
  MonitorNotify *notify;
  MonitorAttach *attach;
  MonitorFolder *folder;
  MonitorConsoleLog *log;
  MonitorDial *qmp_dial;
  MonitorDial *console_dial;
  MonitorQmp *qmp;
  MonitorConsole *console;
  char *identity; /* of the control socket of this run */
  gboolean is_redialled;
  MonitorRate redials;
  guint redial_timer;
  guint limit_timer;      /* for QEMU to come, to answer, and for the console to end */
  guint linger_timer;     /* until it leaves; the longer one comes first */
  gboolean ended_another; /* the journal's run, whose end nobody had seen */
};

static void redial (MonitorRun *self);

/* Leaving. */

static gboolean
linger_cb (gpointer user_data)
{
  MonitorRun *self = user_data;

  self->linger_timer = 0;
  self->done (NULL, self->user_data);
  return G_SOURCE_REMOVE;
}

static void
linger (MonitorRun *self)
{
  gboolean is_read = monitor_journal_is_all (self->journal, monitor_door_get_seen (self->door))
                     && monitor_door_count (self->door) == 0;

  g_clear_handle_id (&self->linger_timer, g_source_remove);
  self->linger_timer
      = g_timeout_add_seconds (is_read ? LINGER_SECONDS : LINGER_MAX_SECONDS, linger_cb, self);
}

static void
readers_changed_cb (gpointer user_data)
{
  MonitorRun *self = user_data;

  if (self->state == STATE_OVER)
    linger (self);
}

/* The end of a run. */

static void
finish (MonitorRun *self)
{
  g_clear_handle_id (&self->limit_timer, g_source_remove);
  g_clear_pointer (&self->console, monitor_console_free);
  monitor_dial_end (self->console_dial);
  monitor_attach_end (self->attach);
  monitor_notify_drop_begun (self->notify);
  monitor_journal_add (self->journal, MONITOR_EVENT_EXIT, "{}");
  self->state = STATE_OVER;
  linger (self);
}

static gboolean
console_limit_cb (gpointer user_data)
{
  MonitorRun *self = user_data;

  self->limit_timer = 0;
  finish (self);
  return G_SOURCE_REMOVE;
}

static void
end_run (MonitorRun *self)
{
  g_clear_handle_id (&self->limit_timer, g_source_remove);
  monitor_door_open (self->door);
  if (self->console == NULL)
    {
      finish (self);
      return;
    }
  self->state = STATE_ENDING;
  self->limit_timer = g_timeout_add (CONSOLE_END_MS, console_limit_cb, self);
}

/* What happens. */

static void
event_cb (MonitorEvent event, const char *data, gpointer user_data)
{
  MonitorRun *self = user_data;

  if (self->state != STATE_LIVE)
    return;
  if (event == MONITOR_EVENT_RESET)
    monitor_notify_drop_begun (self->notify);
  monitor_journal_add (self->journal, event, data);
}

static void
journal_cb (gpointer user_data)
{
  MonitorRun *self = user_data;

  monitor_door_tell (self->door);
}

/* The console. */

static void
output_cb (const char *data, gsize length, gpointer user_data)
{
  MonitorRun *self = user_data;

  monitor_console_log_write (self->log, data, length);
  monitor_attach_output (self->attach, data, length);
}

static gsize
input_cb (const char *data, gsize length, gpointer user_data)
{
  MonitorRun *self = user_data;

  return self->console != NULL ? monitor_console_send (self->console, data, length) : length;
}

static void
drained_cb (gpointer user_data)
{
  MonitorRun *self = user_data;

  monitor_attach_drained (self->attach);
}

static void
console_closed_cb (gpointer user_data)
{
  MonitorRun *self = user_data;

  g_clear_pointer (&self->console, monitor_console_free);
  monitor_attach_drained (self->attach);
  if (self->state == STATE_ENDING)
    finish (self);
  else if (self->state == STATE_LIVE)
    monitor_dial_begin (self->console_dial);
}

static void
console_connected_cb (int fd, gpointer user_data)
{
  static const MonitorConsoleFuncs funcs = { output_cb, drained_cb, console_closed_cb };
  MonitorRun *self = user_data;

  if (self->state != STATE_LIVE || self->console != NULL)
    {
      close (fd);
      return;
    }
  self->console = monitor_console_new (fd, &funcs, self);
}

/* QEMU's control socket. */

static char *
identify (MonitorRun *self)
{
  struct stat status;

  if (fstatat (self->directory_fd, QMP_SOCKET, &status, AT_SYMLINK_NOFOLLOW) < 0)
    return NULL;
  return g_strdup_printf ("%" G_GUINT64_FORMAT ":%" G_GINT64_FORMAT ".%09ld",
                          (guint64) status.st_ino, (gint64) status.st_ctim.tv_sec,
                          status.st_ctim.tv_nsec);
}

static void
qmp_closed_cb (gboolean was_greeted, gpointer user_data)
{
  MonitorRun *self = user_data;
  gboolean was_redialled = self->is_redialled;

  g_clear_pointer (&self->qmp, monitor_qmp_free);
  /* One that was accepted by nobody: its listener was closed a moment later. */
  if (!was_greeted && was_redialled)
    end_run (self);
  else
    redial (self);
}

/* Who is greeted may let the guest run: then nothing must be missed any more. */
static void
qmp_ready_cb (gpointer user_data)
{
  MonitorRun *self = user_data;

  if (self->state == STATE_LIVE)
    g_clear_handle_id (&self->limit_timer, g_source_remove);
  monitor_door_open (self->door);
}

/* A QEMU that hangs is no reason not to talk to the daemon. */
static gboolean
qmp_limit_cb (gpointer user_data)
{
  MonitorRun *self = user_data;

  self->limit_timer = 0;
  monitor_door_open (self->door);
  return G_SOURCE_REMOVE;
}

static void
listen_to (MonitorRun *self, int fd)
{
  self->qmp = monitor_qmp_new (fd, monitor_journal_is_paused (self->journal), event_cb,
                               qmp_ready_cb, qmp_closed_cb, self);
}

static gboolean
redial_cb (gpointer user_data)
{
  MonitorRun *self = user_data;

  self->redial_timer = 0;
  redial (self);
  return G_SOURCE_REMOVE;
}

/* The connection has ended. If QEMU lives it can be made again. */
static void
redial (MonitorRun *self)
{
  gint64 now = g_get_monotonic_time ();
  gint64 wait = monitor_rate_get_wait (&self->redials, now);
  g_autofree char *identity = identify (self);
  int fd;

  if (wait > 0)
    {
      self->redial_timer = g_timeout_add ((guint) (wait / 1000 + 1), redial_cb, self);
      return;
    }
  monitor_rate_take (&self->redials, now);
  errno = 0;
  fd = g_strcmp0 (identity, self->identity) == 0 ? monitor_socket_dial (QMP_SOCKET) : -1;
  self->is_redialled = TRUE;
  if (fd >= 0)
    listen_to (self, fd);
  else if (identity != NULL && errno == EAGAIN)
    redial (self);
  else
    end_run (self);
}

static void
begin (MonitorRun *self)
{
  if (monitor_journal_is_of_run (self->journal, self->identity))
    monitor_console_log_resume (self->log);
  else
    {
      monitor_journal_begin_run (self->journal, self->identity);
      monitor_console_log_begin (self->log);
    }
  g_clear_handle_id (&self->limit_timer, g_source_remove);
  self->limit_timer = g_timeout_add (QMP_READY_MS, qmp_limit_cb, self);
  self->state = STATE_LIVE;
  monitor_attach_begin (self->attach);
}

static void
qmp_connected_cb (int fd, gpointer user_data)
{
  MonitorRun *self = user_data;

  self->identity = identify (self);
  if (self->state != STATE_WAITING || self->identity == NULL)
    {
      close (fd);
      return;
    }
  begin (self);
  listen_to (self, fd);
  monitor_dial_begin (self->console_dial);
}

static gboolean
qemu_limit_cb (gpointer user_data)
{
  MonitorRun *self = user_data;

  self->limit_timer = 0;
  if (self->ended_another)
    {
      self->state = STATE_OVER;
      linger (self);
    }
  else
    self->done ("QEMU did not come: nobody served " QMP_SOCKET " within 60 s", self->user_data);
  return G_SOURCE_REMOVE;
}

/* The folder. */

static void
added_cb (const char *name, gpointer user_data)
{
  MonitorRun *self = user_data;

  if (self->state == STATE_WAITING && strcmp (name, QMP_SOCKET) == 0)
    monitor_dial_begin (self->qmp_dial);
  else if (self->state == STATE_LIVE && self->console == NULL && strcmp (name, CONSOLE_SOCKET) == 0)
    monitor_dial_begin (self->console_dial);
}

/* Nobody can ask any more, or another monitor is about to take over. */
static void
removed_cb (const char *name, gpointer user_data)
{
  MonitorRun *self = user_data;

  if (strcmp (name, MONITOR_DOOR_SOCKET) == 0)
    self->done (NULL, self->user_data);
}

static void
folder_gone_cb (gpointer user_data)
{
  MonitorRun *self = user_data;

  self->done (NULL, self->user_data);
}

static gboolean
open_all (MonitorRun *self, const MonitorRunConfig *config)
{
  static const MonitorFolderFuncs funcs = { added_cb, removed_cb, folder_gone_cb };

  self->journal = monitor_journal_open (config->directory_fd, journal_cb, self);
  if (self->journal == NULL)
    return FALSE;
  self->folder = monitor_folder_new (&funcs, self);
  if (self->folder == NULL)
    return FALSE;
  self->log = monitor_console_log_new (config->directory_fd, CONSOLE_LOG, &console_limits);
  self->attach = monitor_attach_new (config->attach_listener, input_cb, self);
  self->notify = monitor_notify_new (config->notify_listener, config->notify_cid, event_cb, self);
  self->door = monitor_door_new (config->door_listener, self->journal, readers_changed_cb, self);
  self->qmp_dial = monitor_dial_new (QMP_SOCKET, qmp_connected_cb, self);
  self->console_dial = monitor_dial_new (CONSOLE_SOCKET, console_connected_cb, self);
  return TRUE;
}

/* Which run this is must be known before the first reader: those of an earlier one are not for who
 * starts a VM. */
MonitorRun *
monitor_run_new (const MonitorRunConfig *config, MonitorRunDoneFunc done, gpointer user_data)
{
  MonitorRun *self = g_new0 (MonitorRun, 1);

  self->done = done;
  self->user_data = user_data;
  self->directory_fd = config->directory_fd;
  self->redials = (MonitorRate) MONITOR_RATE_INIT (5, 10 * G_USEC_PER_SEC);
  if (!open_all (self, config))
    return NULL;
  if (monitor_dial_begin (self->qmp_dial))
    return self;
  if (monitor_journal_is_open (self->journal))
    {
      monitor_journal_add (self->journal, MONITOR_EVENT_EXIT, "{}");
      self->ended_another = TRUE;
    }
  self->limit_timer = g_timeout_add_seconds (QEMU_LIMIT_SECONDS, qemu_limit_cb, self);
  monitor_door_open (self->door);
  return self;
}

void
monitor_run_free (MonitorRun *self)
{
  monitor_dial_free (self->qmp_dial);
  monitor_dial_free (self->console_dial);
  g_clear_pointer (&self->qmp, monitor_qmp_free);
  g_clear_pointer (&self->console, monitor_console_free);
  g_clear_handle_id (&self->redial_timer, g_source_remove);
  g_clear_handle_id (&self->limit_timer, g_source_remove);
  g_clear_handle_id (&self->linger_timer, g_source_remove);
  monitor_folder_free (self->folder);
  monitor_door_free (self->door);
  monitor_notify_free (self->notify);
  monitor_attach_free (self->attach);
  monitor_console_log_free (self->log);
  monitor_journal_free (self->journal);
  g_free (self->identity);
  g_free (self);
}

/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* A socket's file appears before its owner listens, and nothing tells when that happens. So whoever
 * sees the file begins, and for a few seconds it is tried again; after that it is a file that
 * nobody serves, until another one takes its place.
 */
#include "monitor-dial.h"

#include <errno.h>

#include "monitor-socket.h"

#define PAUSE_MS 20
#define ATTEMPTS_MAX 250

struct _MonitorDial
{
  char *path;
  MonitorDialFunc func;
  gpointer user_data;
  guint n_attempts;
  guint timer;
};

MonitorDial *
monitor_dial_new (const char *path, MonitorDialFunc func, gpointer user_data)
{
  MonitorDial *self = g_new0 (MonitorDial, 1);

  self->path = g_strdup (path);
  self->func = func;
  self->user_data = user_data;
  return self;
}

/* TRUE when it is connected. */
static gboolean
try_now (MonitorDial *self, gboolean *again)
{
  int fd = monitor_socket_dial (self->path);

  *again
      = fd < 0 && (errno == ECONNREFUSED || errno == EAGAIN) && ++self->n_attempts < ATTEMPTS_MAX;
  if (fd >= 0)
    self->func (fd, self->user_data);
  return fd >= 0;
}

static gboolean
retry_cb (gpointer user_data)
{
  MonitorDial *self = user_data;
  guint timer = self->timer;
  gboolean again;

  /* Who is connected may begin it anew at once. */
  self->timer = 0;
  try_now (self, &again);
  if (again)
    self->timer = timer;
  return again;
}

gboolean
monitor_dial_begin (MonitorDial *self)
{
  gboolean done, again;

  self->n_attempts = 0;
  if (self->timer != 0)
    return FALSE;
  done = try_now (self, &again);
  if (again)
    self->timer = g_timeout_add (PAUSE_MS, retry_cb, self);
  return done;
}

void
monitor_dial_end (MonitorDial *self)
{
  g_clear_handle_id (&self->timer, g_source_remove);
}

void
monitor_dial_free (MonitorDial *self)
{
  monitor_dial_end (self);
  g_free (self->path);
  g_free (self);
}

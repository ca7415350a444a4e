/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* A descriptor in the main loop whose conditions change: GLib's own source has fixed ones. */
#include "monitor-watch.h"

struct _MonitorWatch
{
  GSource source;
  gpointer tag;
  MonitorWatchFunc func;
  gpointer user_data;
};

static gboolean
dispatch (GSource *source, GSourceFunc unused, gpointer user_data)
{
  MonitorWatch *self = (MonitorWatch *) source;

  self->func (g_source_query_unix_fd (source, self->tag), self->user_data);
  return G_SOURCE_CONTINUE;
}

static GSourceFuncs source_funcs = { .dispatch = dispatch };

MonitorWatch *
monitor_watch_new (int fd, GIOCondition condition, MonitorWatchFunc func, gpointer user_data)
{
  GSource *source = g_source_new (&source_funcs, sizeof (MonitorWatch));
  MonitorWatch *self = (MonitorWatch *) source;

  self->func = func;
  self->user_data = user_data;
  self->tag = g_source_add_unix_fd (source, fd, condition);
  g_source_attach (source, NULL);
  return self;
}

void
monitor_watch_set (MonitorWatch *self, GIOCondition condition)
{
  g_source_modify_unix_fd (&self->source, self->tag, condition);
}

void
monitor_watch_free (MonitorWatch *self)
{
  g_source_destroy (&self->source);
  g_source_unref (&self->source);
}

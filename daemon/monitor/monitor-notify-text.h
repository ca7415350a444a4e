/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <glib.h>

/* What a guest said in one message of sd_notify(3). */
typedef struct
{
  gboolean ready;
  char *status;          /* NULL: none; valid UTF-8 */
  gboolean status_first; /* it stood before READY */
} MonitorNotifyText;

void monitor_notify_text_read (MonitorNotifyText *self, const char *text, gsize length);
void monitor_notify_text_clear (MonitorNotifyText *self);

/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The log: a few words about what went wrong, never what a guest or a client said.
 *
 * The file behind it is bounded by nobody, so the lines are: some at once, then one every few
 * seconds, and how many were left out.
 */
#include "monitor-log.h"

#include <string.h>
#include <unistd.h>

#include "monitor-rate.h"

#define LINES_AT_ONCE 50
#define SECONDS_A_LINE 60

static MonitorRate rate = MONITOR_RATE_INIT (LINES_AT_ONCE, SECONDS_A_LINE *G_USEC_PER_SEC);
static guint n_left_out;

void
monitor_log (const char *format, ...)
{
  g_autofree char *text = NULL;
  g_autofree char *line = NULL;
  va_list arguments;

  if (!monitor_rate_take (&rate, g_get_monotonic_time ()))
    {
      n_left_out++;
      return;
    }
  va_start (arguments, format);
  text = g_strdup_vprintf (format, arguments);
  va_end (arguments);
  if (n_left_out > 0)
    line = g_strdup_printf ("vmm-monitor: %s (%u lines before it were left out)\n", text,
                            n_left_out);
  else
    line = g_strdup_printf ("vmm-monitor: %s\n", text);
  n_left_out = 0;
  if (write (STDERR_FILENO, line, strlen (line)) < 0)
    return; /* there is nobody to tell */
}

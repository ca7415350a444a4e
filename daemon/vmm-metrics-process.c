/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What the daemon itself uses, under the names that every Prometheus client library gives it. */
#include "config.h"

#include "vmm-metrics-process.h"

#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "vmm-exposition.h"

/* Fields of /proc/self/stat behind the command's name, counted from the state, which is 0: proc(5)
 * numbers them from 3 on. */
#define STAT_UTIME 11
#define STAT_STIME 12
#define STAT_STARTTIME 19
#define STAT_VSIZE 20
#define STAT_RSS 21

static void
add (GString *text, const char *name, const char *type, const char *help, double value)
{
  vmm_exposition_add_family (text, name, type, help);
  vmm_exposition_add_sample (text, name, NULL, value);
}

/* When the machine booted, in seconds since 1970; 0 when that cannot be found out. */
static double
read_boot_time (void)
{
  g_autofree char *text = NULL;
  const char *line;

  if (!g_file_get_contents ("/proc/stat", &text, NULL, NULL))
    return 0;
  line = strstr (text, "\nbtime ");
  return line != NULL ? g_ascii_strtod (line + strlen ("\nbtime "), NULL) : 0;
}

static void
add_stat (GString *text)
{
  g_autofree char *stat = NULL;
  g_auto (GStrv) fields = NULL;
  const char *behind_name;
  double ticks = sysconf (_SC_CLK_TCK);
  double boot_time = read_boot_time ();

  if (!g_file_get_contents ("/proc/self/stat", &stat, NULL, NULL))
    return;
  behind_name = strrchr (stat, ')');
  if (behind_name == NULL || behind_name[1] != ' ')
    return;
  fields = g_strsplit (behind_name + 2, " ", -1);
  if (g_strv_length (fields) <= STAT_RSS)
    return;
  add (text, "process_cpu_seconds_total", "counter",
       "Total user and system CPU time spent in seconds.",
       (g_ascii_strtod (fields[STAT_UTIME], NULL) + g_ascii_strtod (fields[STAT_STIME], NULL))
         / ticks);
  add (text, "process_resident_memory_bytes", "gauge", "Resident memory size in bytes.",
       g_ascii_strtod (fields[STAT_RSS], NULL) * sysconf (_SC_PAGESIZE));
  add (text, "process_virtual_memory_bytes", "gauge", "Virtual memory size in bytes.",
       g_ascii_strtod (fields[STAT_VSIZE], NULL));
  if (boot_time > 0)
    add (text, "process_start_time_seconds", "gauge",
         "Start time of the process since unix epoch in seconds.",
         boot_time + g_ascii_strtod (fields[STAT_STARTTIME], NULL) / ticks);
}

static void
add_files (GString *text)
{
  g_autoptr (GDir) dir = g_dir_open ("/proc/self/fd", 0, NULL);
  struct rlimit limit;
  guint count = 0;

  while (dir != NULL && g_dir_read_name (dir) != NULL)
    count++;
  if (dir != NULL)
    add (text, "process_open_fds", "gauge", "Number of open file descriptors.",
         count - 1); /* not the one that looks */
  if (getrlimit (RLIMIT_NOFILE, &limit) == 0)
    add (text, "process_max_fds", "gauge", "Maximum number of open file descriptors.",
         limit.rlim_cur == RLIM_INFINITY ? G_MAXDOUBLE : (double) limit.rlim_cur);
}

void
vmm_metrics_process_add_to (GString *text)
{
  add_stat (text);
  add_files (text);
}

/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What identifies a process beyond its id, and what the kernel tells of it.
 *
 * Process ids are used again: a process is its id together with its start time, which
 * /proc/PID/stat gives in clock ticks after boot.
 */

#include "vmm-process.h"

#include <string.h>
#include <unistd.h>

/* Fields of /proc/PID/stat as proc(5) numbers them. Those after the program's name are counted
 * from the last ')', as the name may hold anything. */
#define FIELD_STATE 3
#define FIELD_UTIME 14
#define FIELD_STIME 15
#define FIELD_START_TIME 22
#define FIELD_RSS 24

struct _VmmProcessHandle
{
  char *unit;
  char *invocation;
  gint64 pid;
  guint64 start_time;
};

G_DEFINE_BOXED_TYPE (VmmProcessHandle, vmm_process_handle, vmm_process_handle_copy,
                     vmm_process_handle_free)

/**
 * vmm_process_handle_new:
 * @unit: (nullable): the launcher's own name for it, such as a unit or a container
 * @pid: the process id, or 0 when there is none
 * @start_time: when it started, in clock ticks after boot, or 0 when that is not known
 * @invocation: (nullable): which run of @unit, or which boot of the host, it belongs to
 *
 * Makes a handle.
 *
 * Returns: (transfer full): the handle
 */
VmmProcessHandle *
vmm_process_handle_new (const char *unit, gint64 pid, guint64 start_time, const char *invocation)
{
  VmmProcessHandle *self = g_new0 (VmmProcessHandle, 1);

  self->unit = g_strdup (unit);
  self->invocation = g_strdup (invocation);
  self->pid = pid;
  self->start_time = start_time;
  return self;
}

/**
 * vmm_process_handle_copy:
 * @self: a handle
 *
 * Copies a handle.
 *
 * Returns: (transfer full): the copy
 */
VmmProcessHandle *
vmm_process_handle_copy (const VmmProcessHandle *self)
{
  g_return_val_if_fail (self != NULL, NULL);

  return vmm_process_handle_new (self->unit, self->pid, self->start_time, self->invocation);
}

/**
 * vmm_process_handle_free:
 * @self: (transfer full): a handle
 *
 * Frees a handle.
 */
void
vmm_process_handle_free (VmmProcessHandle *self)
{
  g_return_if_fail (self != NULL);

  g_free (self->unit);
  g_free (self->invocation);
  g_free (self);
}

/**
 * vmm_process_handle_get_unit:
 * @self: a handle
 *
 * The launcher's own name for the process.
 *
 * Returns: (transfer none) (nullable): the name
 */
const char *
vmm_process_handle_get_unit (const VmmProcessHandle *self)
{
  g_return_val_if_fail (self != NULL, NULL);

  return self->unit;
}

/**
 * vmm_process_handle_get_invocation:
 * @self: a handle
 *
 * Which run of the unit, or which boot of the host, the process belongs to.
 *
 * Returns: (transfer none) (nullable): an opaque text
 */
const char *
vmm_process_handle_get_invocation (const VmmProcessHandle *self)
{
  g_return_val_if_fail (self != NULL, NULL);

  return self->invocation;
}

/**
 * vmm_process_handle_get_pid:
 * @self: a handle
 *
 * The process id, which alone identifies nothing.
 *
 * Returns: the id, or 0 when there is none
 */
gint64
vmm_process_handle_get_pid (const VmmProcessHandle *self)
{
  g_return_val_if_fail (self != NULL, 0);

  return self->pid;
}

/**
 * vmm_process_handle_get_start_time:
 * @self: a handle
 *
 * When the process started.
 *
 * Returns: clock ticks after boot, or 0 when that is not known
 */
guint64
vmm_process_handle_get_start_time (const VmmProcessHandle *self)
{
  g_return_val_if_fail (self != NULL, 0);

  return self->start_time;
}

/* The fields of /proc/PID/stat from FIELD_STATE on; NULL when the process is gone. */
static GStrv
read_stat (gint64 pid)
{
  g_autofree char *path = NULL;
  g_autofree char *text = NULL;
  const char *rest;

  if (pid <= 0)
    return NULL;

  path = g_strdup_printf ("/proc/%" G_GINT64_FORMAT "/stat", pid);
  if (!g_file_get_contents (path, &text, NULL, NULL))
    return NULL;

  rest = strrchr (text, ')');
  if (rest == NULL || rest[1] != ' ')
    return NULL;
  return g_strsplit (rest + 2, " ", -1);
}

static gboolean
parse_field (char **fields, guint field, guint64 *value)
{
  guint index = field - FIELD_STATE;

  return g_strv_length (fields) > index
         && g_ascii_string_to_unsigned (g_strchomp (fields[index]), 10, 0, G_MAXUINT64, value,
                                        NULL);
}

/**
 * vmm_process_read_start_time:
 * @pid: a process id
 * @start_time: (out): when the process started, in clock ticks after boot
 *
 * When a process started, for launchers.
 *
 * Returns: %FALSE when there is no such process
 */
gboolean
vmm_process_read_start_time (gint64 pid, guint64 *start_time)
{
  g_auto (GStrv) fields = read_stat (pid);

  g_return_val_if_fail (start_time != NULL, FALSE);

  *start_time = 0;
  return fields != NULL && parse_field (fields, FIELD_START_TIME, start_time);
}

/**
 * vmm_process_read_usage:
 * @pid: a process id
 * @usage: (out caller-allocates): what the process used
 *
 * Processor time and memory of a process without its children, for launchers.
 *
 * Returns: %FALSE when there is no such process
 */
gboolean
vmm_process_read_usage (gint64 pid, VmmProcessUsage *usage)
{
  g_auto (GStrv) fields = read_stat (pid);
  guint64 user_ticks, system_ticks, pages;
  long ticks_per_second = sysconf (_SC_CLK_TCK);
  long page_size = sysconf (_SC_PAGESIZE);

  g_return_val_if_fail (usage != NULL, FALSE);

  memset (usage, 0, sizeof *usage);
  if (fields == NULL || ticks_per_second <= 0 || page_size <= 0)
    return FALSE;
  if (!parse_field (fields, FIELD_UTIME, &user_ticks)
      || !parse_field (fields, FIELD_STIME, &system_ticks)
      || !parse_field (fields, FIELD_RSS, &pages))
    return FALSE;

  usage->cpu_usec = (user_ticks + system_ticks) * G_USEC_PER_SEC / (guint64) ticks_per_second;
  usage->memory_bytes = pages * (guint64) page_size;
  return TRUE;
}

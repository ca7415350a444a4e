/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <gio/gio.h>

G_BEGIN_DECLS

/* Runs an outside program that is asked one question, with a limit of time and of output. Answers
 * with what it wrote to stdout. An exit status other than that of success is VMM_ERROR_INTERNAL with
 * the first line of stderr; too late is G_IO_ERROR_TIMED_OUT. The program has gone when the answer
 * comes, and it ends with the daemon. */
typedef struct
{
  const char *const *argv;
  guint limit_ms;
  int success;          /* exit status */
  const char *hopeless; /* gives up as soon as stderr has this; NULL for nothing */
  int fd;               /* taken, and open in the program as VMM_HOST_PROBE_FD; -1 for none */
} VmmHostProbe;
#define VMM_HOST_PROBE_FD 3

void vmm_host_probe_run_async (const VmmHostProbe *probe, GCancellable *cancellable,
                               GAsyncReadyCallback callback, gpointer user_data);
/* With success 0 and nothing else. */
void vmm_host_probe_async (const char *const *argv, guint limit_ms, GCancellable *cancellable,
                           GAsyncReadyCallback callback, gpointer user_data);
char *vmm_host_probe_finish (GAsyncResult *result, GError **error);

/* The field behind a word on the first line, without a trailing comma or semicolon; NULL for none.
 */
char *vmm_host_probe_parse_version (const char *output, const char *word);

G_END_DECLS

/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "interfaces/vmm.h"

G_BEGIN_DECLS

/* Reaches a program that was just started by its Unix socket, trying again until it has answered.
 * */

/* What makes a connection an answer: asks something on the socket. The cancellable is triggered
 * when the attempt's time is up. The result is a new reference to some object. A failure of
 * VMM_ERROR says that another attempt is useless; any other one only ends this attempt. */
typedef void (*VmmHandshakeStart) (GSocket *socket, GCancellable *cancellable,
                                   GAsyncReadyCallback callback, gpointer user_data);
typedef GObject *(*VmmHandshakeFinish) (GAsyncResult *result, GError **error);

typedef struct
{
  const char *socket_path;
  VmmProcess *process;     /* NULL when it is not ours to watch */
  const char *log_path;    /* whose tail goes into errors; may be NULL */
  const char *exited_text; /* "<exited_text> (<status>): <tail>" */
  const char *limit_format; /* with three %s: path, last failure, tail */
  guint attempt_ms;
  guint limit_ms;
  /* NULL for a program that serves its first client alone, which must not be us: there it has answered
   * when its socket is bound, and the result is its process. */
  VmmHandshakeStart start;
  VmmHandshakeFinish finish;
} VmmChildSocket;

/* Fails with the texts above (VMM_ERROR_INTERNAL), the handshake's VMM_ERROR, or
 * G_IO_ERROR_CANCELLED. The process is left as it is. */
void vmm_child_socket_dial_async (const VmmChildSocket *config, GCancellable *cancellable,
                                  GAsyncReadyCallback callback, gpointer user_data);
GObject *vmm_child_socket_dial_finish (GAsyncResult *result, GError **error);

G_END_DECLS

/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <json-glib/json-glib.h>

#include "interfaces/vmm.h"

G_BEGIN_DECLS

/* A QMP client on one socket. Every answer has a time limit; lines are bounded (1 MiB).
 *
 * ::event (const char *name, JsonObject *data), ::closed (const char *reason) once. */
#define VMM_TYPE_QMP (vmm_qmp_get_type ())
G_DECLARE_FINAL_TYPE (VmmQmp, vmm_qmp, VMM, QMP, GObject)

/* Dials until it answers: 20 ms pause, 2 s an attempt, 10 s in all. process may be NULL; when it
 * exits first: "qemu exited during start (<status>): <tail of log_path>". */
void vmm_qmp_connect_async (const char *socket_path, VmmProcess *process, const char *log_path,
                            GCancellable *cancellable, GAsyncReadyCallback callback,
                            gpointer user_data);
VmmQmp *vmm_qmp_connect_finish (GAsyncResult *result, GError **error);
/* arguments may be NULL; timeout in milliseconds. Fails with "qmp <command>: <class>: <desc>",
 * "qmp <command>: connection closed: <reason>" or VMM_ERROR_TIMEOUT. */
void vmm_qmp_execute_async (VmmQmp *self, const char *command, JsonObject *arguments,
                            guint timeout_ms, GCancellable *cancellable,
                            GAsyncReadyCallback callback, gpointer user_data);
JsonNode *vmm_qmp_execute_finish (VmmQmp *self, GAsyncResult *result, GError **error);
/* Closing lets the next client connect; QEMU runs on. */
void vmm_qmp_close (VmmQmp *self);
gboolean vmm_qmp_is_open (VmmQmp *self);

G_END_DECLS

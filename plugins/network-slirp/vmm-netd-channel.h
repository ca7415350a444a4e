/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <json-glib/json-glib.h>

#include "vmm-netd-counters.h"

G_BEGIN_DECLS

/* A connection to the control socket of vmm-netd, after its hello: requests and their answers.
 *
 * ::closed (const char *reason) once, when it is over; requests have failed by then. */
#define VMM_TYPE_NETD_CHANNEL (vmm_netd_channel_get_type ())
G_DECLARE_FINAL_TYPE (VmmNetdChannel, vmm_netd_channel, VMM, NETD_CHANNEL, GObject)

/* Connects and waits for the hello. An error of VMM_ERROR says that it is the wrong program, any
 * other that it may answer later. */
void vmm_netd_channel_open_async (const char *path, const char *network, GCancellable *cancellable,
                                  GAsyncReadyCallback callback, gpointer user_data);
VmmNetdChannel *vmm_netd_channel_open_finish (GAsyncResult *result, GError **error);
/* Takes the parameters. A cancelled or late request may have been carried out or not. */
void vmm_netd_channel_call_async (VmmNetdChannel *self, const char *method, JsonObject *params,
                                  guint timeout_ms, GCancellable *cancellable,
                                  GAsyncReadyCallback callback, gpointer user_data);
/* fd: where the descriptor of an answer goes; NULL where none is expected. */
JsonObject *vmm_netd_channel_call_finish (VmmNetdChannel *self, GAsyncResult *result, int *fd,
                                          GError **error);
/* Ends it without telling. */
void vmm_netd_channel_close (VmmNetdChannel *self);
gboolean vmm_netd_channel_is_open (VmmNetdChannel *self);
/* (transfer full), once. */
VmmNetdCounters *vmm_netd_channel_take_counters (VmmNetdChannel *self);

G_END_DECLS

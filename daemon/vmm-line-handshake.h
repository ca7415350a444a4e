/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "vmm-line-channel.h"

G_BEGIN_DECLS

/* What a client of a line protocol waits for before it may be used. Part of the client; all zero
 * when none is pending. */
typedef struct
{
  VmmLineChannel *channel; /* the client's */
  GTask *task;             /* keeps the client until this is settled */
  GSource *cancelled;
} VmmLineHandshake;

/* Takes the client, which is what the callback gets in the end. */
void vmm_line_handshake_begin (VmmLineHandshake *self, GObject *client, VmmLineChannel *channel,
                               GCancellable *cancellable, GAsyncReadyCallback callback,
                               gpointer user_data);
GObject *vmm_line_handshake_finish (GAsyncResult *result, GError **error);

gboolean vmm_line_handshake_is_pending (const VmmLineHandshake *self);
void vmm_line_handshake_succeed (VmmLineHandshake *self);
/* Closes the channel too, also when nothing is pending. Takes the error. */
void vmm_line_handshake_fail (VmmLineHandshake *self, GError *error);

G_END_DECLS

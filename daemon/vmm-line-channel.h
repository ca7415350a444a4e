/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <gio/gio.h>

G_BEGIN_DECLS

/* One end of a connection that carries one message a line, with a peer that is not trusted: lines,
 * and what waits to be sent, are bounded.
 *
 * ::line (const char *line, guint64 length) without its end; what it points to is gone afterwards.
 * ::closed (const char *reason) once, when the peer has gone or broke a bound; not after
 * vmm_line_channel_close(). What arrived before the peer went is delivered first. */
#define VMM_TYPE_LINE_CHANNEL (vmm_line_channel_get_type ())
G_DECLARE_FINAL_TYPE (VmmLineChannel, vmm_line_channel, VMM, LINE_CHANNEL, GObject)

/* Reads from now on, in the main context. */
VmmLineChannel *vmm_line_channel_new (GSocket *socket, gsize line_max);
/* Sends a text and the line's end; FALSE when the channel is closed. */
gboolean vmm_line_channel_send (VmmLineChannel *self, const char *text, gsize length);
void vmm_line_channel_close (VmmLineChannel *self);
/* Closes it because of what the peer said: ::closed follows. */
void vmm_line_channel_fail (VmmLineChannel *self, const char *reason);
gboolean vmm_line_channel_is_open (VmmLineChannel *self);

G_END_DECLS

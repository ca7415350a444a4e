/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <glib.h>

G_BEGIN_DECLS

/* A server on a Unix socket that says exactly what the test wants, line by line or byte by byte. It
 * serves one client: a new one takes the place of the one before. */
typedef struct _ScriptedPeer ScriptedPeer;

/* greeting is said to each client at once; NULL for none. */
ScriptedPeer *scripted_peer_new (const char *path, const char *greeting);
void scripted_peer_free (ScriptedPeer *peer);
void scripted_peer_set_greeting (ScriptedPeer *peer, const char *greeting);
void scripted_peer_say (ScriptedPeer *peer, const char *line);
void scripted_peer_say_bytes (ScriptedPeer *peer, const char *data, gsize length);
/* Waits for the client's next line. */
char *scripted_peer_hear (ScriptedPeer *peer);
void scripted_peer_hang_up (ScriptedPeer *peer);
guint scripted_peer_get_n_clients (ScriptedPeer *peer);
gboolean scripted_peer_has_client (ScriptedPeer *peer);

G_DEFINE_AUTOPTR_CLEANUP_FUNC (ScriptedPeer, scripted_peer_free)

G_END_DECLS

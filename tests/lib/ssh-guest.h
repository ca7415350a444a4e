/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <gio/gio.h>

G_BEGIN_DECLS

/* The sshd of a guest, a real one or one that misbehaves, in a process for each connection. */
typedef struct
{
  char *folder;         /* has host_ed25519.pub and what ssh-guest.py put there */
  GPtrArray *processes; /* of GSubprocess */
} SshGuest;

/* root's authorized key there. */
SshGuest *ssh_guest_new (const char *public_line);
/* Ends what still serves. */
void ssh_guest_free (SshGuest *self);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (SshGuest, ssh_guest_free)

/* NULL if this machine has it, else what is missing: for "openssh" and "dropbear". */
const char *ssh_guest_missing (SshGuest *self, const char *server);
/* Serves one connection at a socket, which it takes: "openssh", "dropbear" or a behaviour of
 * ssh-peer.py. */
void ssh_guest_serve (SshGuest *self, const char *server, int fd);
/* The same at a new connection: the client's end. */
GIOStream *ssh_guest_connect (SshGuest *self, const char *server);
void ssh_guest_rekey (SshGuest *self);
/* Until a misbehaving one has come to its point, or has seen the client leave; forgets it. */
void ssh_guest_await_reached (SshGuest *self);
void ssh_guest_await_left (SshGuest *self);
/* "ssh-ed25519 <base64>", without a comment. */
char *ssh_guest_dup_host_key (SshGuest *self);

G_END_DECLS

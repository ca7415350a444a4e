/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <gio/gio.h>

G_BEGIN_DECLS

/* Who is at the other end of a connection, found when it is accepted. */
typedef struct
{
  gboolean loopback;  /* TCP on a loopback address of this host */
  gboolean permitted; /* may use the guarded doors */
  char *subject;      /* "uid:1000" or "anonymous" */
  char *problem;      /* why it may not */
} VmmHttpPeer;

typedef enum
{
  VMM_HTTP_PEER_LOCAL_USERS = 1 << 0, /* every user of this host is served on loopback */
  VMM_HTTP_PEER_ANONYMOUS = 1 << 1,   /* everybody is served, by --allow-anonymous */
} VmmHttpPeerRules;

VmmHttpPeer *vmm_http_peer_identify (GSocket *connection, VmmHttpPeerRules rules);
void vmm_http_peer_free (VmmHttpPeer *self);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (VmmHttpPeer, vmm_http_peer_free)

/* Whether a process still holds the other end of a local connection, as after a half-close. */
gboolean vmm_http_peer_is_present (GSocket *connection);

gboolean vmm_http_address_is_loopback (GInetAddress *address);

/* The owner of a TCP socket of this host: the kernel's answer, for sockets with a process only.
 * local and remote are as that socket sees them. */
typedef struct
{
  guint32 uid;
  guint64 inode; /* 0 when no process holds it any more */
} VmmHttpSocketOwner;

gboolean vmm_http_find_owner_by_netlink (GInetSocketAddress *local, GInetSocketAddress *remote,
                                         VmmHttpSocketOwner *owner);
/* The same from the text of /proc/net/tcp or tcp6, where there is no netlink. */
gboolean vmm_http_find_owner_in_table (const char *table, GInetSocketAddress *local,
                                       GInetSocketAddress *remote, VmmHttpSocketOwner *owner);

/* Host and Origin: a page from elsewhere must not drive this server through a browser.
 * NULL when the request is fine, else why not. */
char *vmm_http_check_origin (gboolean check_host, const char *host, const char *origin);

G_END_DECLS

/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Who is at the other end of a connection.
 *
 * On the Unix socket the kernel tells. On loopback TCP the client's own socket is looked up by its
 * four-tuple: it belongs to us only if a process holds it (inode) and the uid is ours. A socket that
 * its process has closed is shown with inode 0 and uid 0, so "send, close, exit" must not look like
 * root. This is decided once, at accept, before a byte is read. */

#include "config.h"

#include "vmm-http-peer.h"

#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <gio/gunixsocketaddress.h>

/* Without netlink more than this is not read: who is not found is not served. */
#define MAX_TABLE (4 * 1024 * 1024)

typedef struct
{
  int family;
  guint32 address[4]; /* as on the wire */
  guint16 port;
} Endpoint;

static gboolean
is_mapped (const guint8 *bytes)
{
  static const guint8 prefix[12] = { 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff };

  return memcmp (bytes, prefix, sizeof prefix) == 0;
}

gboolean
vmm_http_address_is_loopback (GInetAddress *address)
{
  const guint8 *bytes = g_inet_address_to_bytes (address);

  if (g_inet_address_get_family (address) == G_SOCKET_FAMILY_IPV6 && is_mapped (bytes))
    return bytes[12] == 127;
  return g_inet_address_get_is_loopback (address);
}

/* IPv4 in IPv6 becomes IPv4: the client's socket is most likely of that family. */
static void
to_endpoint (GInetSocketAddress *from, Endpoint *endpoint)
{
  GInetAddress *address = g_inet_socket_address_get_address (from);
  const guint8 *bytes = g_inet_address_to_bytes (address);

  memset (endpoint, 0, sizeof *endpoint);
  endpoint->port = g_inet_socket_address_get_port (from);
  if (g_inet_address_get_family (address) == G_SOCKET_FAMILY_IPV4)
    {
      endpoint->family = AF_INET;
      memcpy (endpoint->address, bytes, 4);
      return;
    }
  endpoint->family = is_mapped (bytes) ? AF_INET : AF_INET6;
  if (endpoint->family == AF_INET)
    memcpy (endpoint->address, bytes + 12, 4);
  else
    memcpy (endpoint->address, bytes, 16);
}

typedef struct
{
  struct nlmsghdr header;
  struct inet_diag_req_v2 request;
} Question;

static void
ask (Question *question, const Endpoint *local, const Endpoint *remote)
{
  memset (question, 0, sizeof *question);
  question->header.nlmsg_len = sizeof *question;
  question->header.nlmsg_type = SOCK_DIAG_BY_FAMILY;
  question->header.nlmsg_flags = NLM_F_REQUEST;
  question->request.sdiag_family = local->family;
  question->request.sdiag_protocol = IPPROTO_TCP;
  question->request.idiag_states = ~0u;
  question->request.id.idiag_sport = htons (local->port);
  question->request.id.idiag_dport = htons (remote->port);
  memcpy (question->request.id.idiag_src, local->address, sizeof local->address);
  memcpy (question->request.id.idiag_dst, remote->address, sizeof remote->address);
  question->request.id.idiag_cookie[0] = INET_DIAG_NOCOOKIE;
  question->request.id.idiag_cookie[1] = INET_DIAG_NOCOOKIE;
}

/* The kernel falls back to a listener on the same port: only the very connection counts. */
static gboolean
read_answer (const struct nlmsghdr *header, gsize length, const Question *question,
             VmmHttpSocketOwner *owner)
{
  const struct inet_diag_msg *answer = NLMSG_DATA (header);

  if (!NLMSG_OK (header, length) || header->nlmsg_type != SOCK_DIAG_BY_FAMILY ||
      header->nlmsg_len < NLMSG_LENGTH (sizeof *answer))
    return FALSE;
  if (answer->idiag_state == TCP_LISTEN ||
      answer->id.idiag_sport != question->request.id.idiag_sport ||
      answer->id.idiag_dport != question->request.id.idiag_dport)
    return FALSE;
  owner->uid = answer->idiag_uid;
  owner->inode = answer->idiag_inode;
  return TRUE;
}

gboolean
vmm_http_find_owner_by_netlink (GInetSocketAddress *local, GInetSocketAddress *remote,
                                VmmHttpSocketOwner *owner)
{
  union
  {
    struct nlmsghdr header;
    char bytes[4096];
  } answer;
  Endpoint from, to;
  Question question;
  gssize n = -1;
  int fd;

  to_endpoint (local, &from);
  to_endpoint (remote, &to);
  ask (&question, &from, &to);
  fd = socket (AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_SOCK_DIAG);
  if (fd < 0)
    return FALSE;
  /* The kernel answers within the call that asks; nothing has to be waited for. */
  if (send (fd, &question, sizeof question, 0) == (gssize) sizeof question)
    n = recv (fd, &answer, sizeof answer, 0);
  close (fd);
  return n > 0 && read_answer (&answer.header, n, &question, owner);
}

/* One end as the kernel prints it; the socket of an IPv6 program may hold an IPv4 address mapped. */
static char *
format_endpoint (const Endpoint *endpoint, gboolean mapped)
{
  const guint32 *a = endpoint->address;

  if (endpoint->family == AF_INET6)
    return g_strdup_printf ("%08X%08X%08X%08X:%04X", a[0], a[1], a[2], a[3], endpoint->port);
  if (mapped)
    return g_strdup_printf ("0000000000000000%08X%08X:%04X", htonl (0xffff), a[0], endpoint->port);
  return g_strdup_printf ("%08X:%04X", a[0], endpoint->port);
}

static gboolean
find_line (const char *table, const char *local, const char *remote, VmmHttpSocketOwner *owner)
{
  g_autofree char *ends = g_strdup_printf (": %s %s ", local, remote);
  const char *line = strstr (table, ends);
  guint64 inode;
  guint uid;

  /* state, queues, timer, retransmits, then uid, timeout, inode */
  if (line == NULL ||
      sscanf (line + strlen (ends), "%*x %*x:%*x %*x:%*x %*x %u %*u %" G_GUINT64_FORMAT, &uid,
              &inode) != 2)
    return FALSE;
  owner->uid = uid;
  owner->inode = inode;
  return TRUE;
}

gboolean
vmm_http_find_owner_in_table (const char *table, GInetSocketAddress *local,
                              GInetSocketAddress *remote, VmmHttpSocketOwner *owner)
{
  Endpoint from, to;

  to_endpoint (local, &from);
  to_endpoint (remote, &to);
  for (guint mapped = 0; mapped < 2; mapped++)
    {
      g_autofree char *from_text = format_endpoint (&from, mapped);
      g_autofree char *to_text = format_endpoint (&to, mapped);

      if (find_line (table, from_text, to_text, owner))
        return TRUE;
    }
  return FALSE;
}

/* A file of /proc: its size is not known before the end. */
static char *
read_table (const char *path)
{
  g_autoptr (GFile) file = g_file_new_for_path (path);
  g_autoptr (GFileInputStream) stream = g_file_read (file, NULL, NULL);
  g_autofree char *text = NULL;
  gsize n = 0;

  if (stream == NULL)
    return NULL;
  text = g_malloc (MAX_TABLE + 1);
  if (!g_input_stream_read_all (G_INPUT_STREAM (stream), text, MAX_TABLE, &n, NULL, NULL))
    return NULL;
  text[n] = '\0';
  return g_steal_pointer (&text);
}

static gboolean
find_owner (GSocket *connection, VmmHttpSocketOwner *owner)
{
  static const char *const tables[] = { "/proc/net/tcp", "/proc/net/tcp6" };
  g_autoptr (GSocketAddress) ours = g_socket_get_local_address (connection, NULL);
  g_autoptr (GSocketAddress) theirs = g_socket_get_remote_address (connection, NULL);

  if (!G_IS_INET_SOCKET_ADDRESS (ours) || !G_IS_INET_SOCKET_ADDRESS (theirs))
    return FALSE;
  if (vmm_http_find_owner_by_netlink (G_INET_SOCKET_ADDRESS (theirs), G_INET_SOCKET_ADDRESS (ours),
                                      owner))
    return TRUE;
  for (guint i = 0; i < G_N_ELEMENTS (tables); i++)
    {
      g_autofree char *table = read_table (tables[i]);

      if (table != NULL &&
          vmm_http_find_owner_in_table (table, G_INET_SOCKET_ADDRESS (theirs),
                                        G_INET_SOCKET_ADDRESS (ours), owner))
        return TRUE;
    }
  return FALSE;
}

static void
identify_local_tcp (VmmHttpPeer *self, GSocket *connection, VmmHttpPeerRules rules)
{
  VmmHttpSocketOwner owner = { 0, 0 };
  gboolean known = find_owner (connection, &owner) && owner.inode != 0;

  if (known)
    self->subject = g_strdup_printf ("uid:%u", owner.uid);
  if ((known && owner.uid == geteuid ()) || rules != 0)
    {
      self->permitted = TRUE;
      return;
    }
  self->problem =
      known ? g_strdup_printf ("this listener serves the user it runs as only (uid %u, you are uid "
                               "%u); run your own daemon, or start this one with "
                               "--allow-local-users",
                               (guint) geteuid (), owner.uid)
            : g_strdup ("the process at the other end of this connection can't be found; keep the "
                        "connection open until the answer is there");
}

static void
identify_unix (VmmHttpPeer *self, GSocket *connection)
{
  g_autoptr (GCredentials) credentials = g_socket_get_credentials (connection, NULL);
  uid_t uid = credentials != NULL ? g_credentials_get_unix_user (credentials, NULL) : (uid_t) -1;

  if (uid == (uid_t) -1)
    {
      self->problem = g_strdup ("the kernel does not say who you are");
      return;
    }
  self->subject = g_strdup_printf ("uid:%u", (guint) uid);
  self->permitted = uid == 0 || uid == geteuid ();
  if (!self->permitted)
    self->problem = g_strdup_printf ("this socket serves root and uid %u only, you are uid %u",
                                     (guint) geteuid (), (guint) uid);
}

VmmHttpPeer *
vmm_http_peer_identify (GSocket *connection, VmmHttpPeerRules rules)
{
  VmmHttpPeer *self = g_new0 (VmmHttpPeer, 1);
  g_autoptr (GSocketAddress) ours = g_socket_get_local_address (connection, NULL);

  if (G_IS_UNIX_SOCKET_ADDRESS (ours))
    {
      identify_unix (self, connection);
    }
  else if (G_IS_INET_SOCKET_ADDRESS (ours))
    {
      GInetAddress *address = g_inet_socket_address_get_address (G_INET_SOCKET_ADDRESS (ours));

      self->loopback = vmm_http_address_is_loopback (address);
      if (self->loopback)
        identify_local_tcp (self, connection, rules);
      else
        self->permitted = (rules & VMM_HTTP_PEER_ANONYMOUS) != 0;
    }
  if (!self->permitted && self->problem == NULL)
    self->problem = g_strdup ("this listener does not serve unknown callers");
  if (self->subject == NULL)
    self->subject = g_strdup ("anonymous");
  return self;
}

void
vmm_http_peer_free (VmmHttpPeer *self)
{
  g_free (self->subject);
  g_free (self->problem);
  g_free (self);
}

gboolean
vmm_http_peer_is_present (GSocket *connection)
{
  VmmHttpSocketOwner owner;
  g_autoptr (GSocketAddress) ours = g_socket_get_local_address (connection, NULL);

  /* On a Unix socket a close is a hang-up, never a mere half-close. */
  if (!G_IS_INET_SOCKET_ADDRESS (ours))
    return TRUE;
  if (!vmm_http_address_is_loopback (
          g_inet_socket_address_get_address (G_INET_SOCKET_ADDRESS (ours))))
    return FALSE;
  return find_owner (connection, &owner) && owner.inode != 0;
}

/* localhost, 127.0.0.0/8, [::1], each with any port. */
static gboolean
is_loopback_authority (const char *authority)
{
  g_autofree char *name = NULL;
  g_autoptr (GInetAddress) address = NULL;

  if (authority[0] == '[')
    name = g_strndup (authority + 1, strcspn (authority + 1, "]"));
  else
    name = g_strndup (authority, strcspn (authority, ":"));
  if (g_ascii_strcasecmp (name, "localhost") == 0)
    return authority[0] != '[';
  address = g_inet_address_new_from_string (name);
  return address != NULL && g_inet_address_get_is_loopback (address);
}

static gboolean
is_loopback_origin (const char *origin)
{
  const char *authority = NULL;

  if (g_str_has_prefix (origin, "http://"))
    authority = origin + strlen ("http://");
  else if (g_str_has_prefix (origin, "https://"))
    authority = origin + strlen ("https://");
  return authority != NULL && strpbrk (authority, "/@?#,; ") == NULL &&
         is_loopback_authority (authority);
}

char *
vmm_http_check_origin (gboolean check_host, const char *host, const char *origin)
{
  if (check_host && (host == NULL || !is_loopback_authority (host)))
    return g_strdup_printf ("Host header \"%s\" is not a name of this machine's loopback; use "
                            "localhost or 127.0.0.1",
                            host != NULL ? host : "");
  if (origin != NULL && !is_loopback_origin (origin))
    return g_strdup ("Origin header names another site");
  return NULL;
}

/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Connections into the guest. libslirp makes them for whoever connects to a listener of its, and
 * that may be a local socket: for each connection there is one for a moment, in the private root,
 * with ourselves as the only client.
 *
 * libslirp accepts before the guest was asked, so the connection is held back until libslirp's own
 * segments show what came of it: an ACK after its SYN, or that it closed its side. It asks for 75
 * s; when we have lost patience it is told that the guest refused.
 *
 * libslirp ends the process when it gets no socket, or no port of the loopback (of which it takes
 * one to have a number that nobody else has). So both are tried first.
 */
#include "netd-engine-slirp.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define DIALS_MAX 64
#define SYN_MAX 128
/* Descriptors: its listener, two that hold ports, both ends, and some for what else happens. */
#define SPARE_PORTS 3
#define SPARE_DESCRIPTORS 8

struct _NetdDial
{
  NetdEngine *engine;
  guint16 port;
  NetdDialFunc func;
  gpointer user_data;
  gint64 deadline;
  int fd;
  gboolean is_done;
  int error;      /* when it is done: 0 or an errno */
  NetdFlow *flow; /* until it is done */
  guint8 syn[SYN_MAX];
  gsize syn_length;
};

/* Earliest first; 0 when one is to be answered. */
static void
start_timer (NetdEngine *self)
{
  gint64 now = netd_loop_now (self->config.loop);
  gint64 delay = G_MAXINT64;

  for (guint i = 0; i < self->dials->len; i++)
    {
      NetdDial *dial = self->dials->pdata[i];

      delay = MIN (delay, dial->is_done ? 0 : MAX (dial->deadline - now, 1));
    }
  if (delay == G_MAXINT64)
    netd_timer_stop (self->dial_timer);
  else
    netd_timer_start (self->dial_timer, delay);
}

static void
finish (NetdDial *dial, int error)
{
  if (dial->is_done)
    return;
  dial->is_done = TRUE;
  dial->error = error;
  if (dial->flow != NULL)
    dial->flow->dial = NULL;
  dial->flow = NULL;
  start_timer (dial->engine);
}

/* --- What the rest of the engine sees of it --- */

void
netd_dial_accepted (NetdDial *dial, NetdFlow *flow)
{
  dial->flow = flow;
  flow->dial = dial;
}

/* Other connections' SYNs may be sent again at the same time. */
void
netd_dial_sent (NetdDial *dial, const guint8 *frame, gsize length)
{
  NetdPacket packet;

  if (dial->flow == NULL || dial->syn_length > 0 || length > sizeof dial->syn)
    return;
  if (netd_packet_parse (&packet, frame, length) != NETD_PACKET_IPV4
      || packet.destination_port != dial->port)
    return;
  memcpy (dial->syn, frame, length);
  dial->syn_length = length;
  netd_flow_set_key (dial->flow, netd_flow_tcp_key (dial->port, packet.ip_source,
                                                    packet.source_port));
}

void
netd_dial_established (NetdDial *dial)
{
  finish (dial, 0);
}

/* A packet of the guest's ended it, or libslirp's patience did. */
void
netd_dial_flow_gone (NetdDial *dial)
{
  dial->flow = NULL;
  finish (dial, dial->engine->has_input ? ECONNREFUSED : ETIMEDOUT);
}

/* --- Making one --- */

static gboolean
has_spare_descriptors (void)
{
  struct sockaddr_in address = {
    .sin_family = AF_INET,
    .sin_addr.s_addr = htonl (INADDR_LOOPBACK),
  };
  int fds[SPARE_DESCRIPTORS];
  guint n = 0;
  gboolean is_fine = TRUE;

  while (is_fine && n < SPARE_DESCRIPTORS)
    {
      fds[n] = n < SPARE_PORTS ? socket (AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)
                               : fcntl (fds[0], F_DUPFD_CLOEXEC, 0);
      is_fine = fds[n] >= 0
                && (n >= SPARE_PORTS
                    || bind (fds[n], (struct sockaddr *) &address, sizeof address) == 0);
      n += fds[n] >= 0;
    }
  while (n > 0)
    close (fds[--n]);
  return is_fine;
}

static int
connect_to (const struct sockaddr_un *address)
{
  int fd = socket (AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

  if (fd >= 0 && connect (fd, (const struct sockaddr *) address, sizeof *address) < 0)
    {
      close (fd);
      return -1;
    }
  return fd;
}

/* libslirp takes the connection and sends its SYN while it is polled. */
static int
dial_through (NetdDial *dial, NetdInstance *instance, const struct sockaddr_un *address)
{
  NetdEngine *engine = dial->engine;
  struct sockaddr_in guest = {
    .sin_family = AF_INET,
    .sin_addr.s_addr = htonl (engine->config.ip),
    .sin_port = htons (dial->port),
  };
  int result;

  unlink (address->sun_path);
  engine->is_listening = TRUE;
  result = slirp_add_hostxfwd (instance->slirp, (const struct sockaddr *) address, sizeof *address,
                               (struct sockaddr *) &guest, sizeof guest, 0);
  engine->is_listening = FALSE;
  if (result < 0)
    {
      unlink (address->sun_path);
      return ENOBUFS;
    }

  dial->fd = connect_to (address);
  instance->is_dirty = TRUE;
  engine->dialling = dial->fd >= 0 ? dial : NULL;
  if (dial->fd >= 0)
    netd_instance_poll (instance);
  engine->dialling = NULL;
  slirp_remove_hostxfwd (instance->slirp, (const struct sockaddr *) address, sizeof *address, 0);
  unlink (address->sun_path);
  return dial->flow != NULL ? 0 : ENOBUFS;
}

static int
start (NetdDial *dial)
{
  NetdEngine *engine = dial->engine;
  g_autofree char *path = netd_engine_dup_socket_path (engine, "dial");
  struct sockaddr_un address = { .sun_family = AF_UNIX };
  NetdInstance *instance;
  int error;

  if (engine->dials->len > DIALS_MAX || !netd_flow_has_room (engine, IPPROTO_TCP)
      || !has_spare_descriptors ()
      || g_strlcpy (address.sun_path, path, sizeof address.sun_path) >= sizeof address.sun_path)
    return ENOBUFS;
  instance = netd_engine_need_instance (engine, NETD_INSTANCE_NAT);
  if (instance == NULL)
    return ENOBUFS;

  error = dial_through (dial, instance, &address);
  engine->active_at = netd_loop_now (engine->config.loop);
  netd_engine_fill_dirty (engine);
  return error;
}

NetdDial *
netd_engine_dial (NetdEngine *self, guint16 port, guint timeout_ms, NetdDialFunc func,
                  gpointer user_data)
{
  NetdDial *dial = g_new0 (NetdDial, 1);
  int error;

  dial->engine = self;
  dial->port = port;
  dial->func = func;
  dial->user_data = user_data;
  dial->fd = -1;
  dial->deadline = netd_loop_now (self->config.loop) + timeout_ms;
  g_ptr_array_add (self->dials, dial);
  error = start (dial);
  if (error != 0)
    finish (dial, error);
  start_timer (self);
  return dial;
}

/* --- Ending one --- */

/* As if the guest had refused it: else libslirp would go on asking. */
static void
give_up (NetdDial *dial)
{
  NetdEngine *engine = dial->engine;
  NetdInstance *instance = dial->flow->instance;
  guint8 frame[SYN_MAX];
  NetdPacket packet;
  gsize length = 0;

  dial->flow->dial = NULL;
  dial->flow = NULL;
  if (netd_packet_parse (&packet, dial->syn, dial->syn_length) == NETD_PACKET_IPV4)
    length = netd_packet_build_reset (frame, sizeof frame, &packet, &engine->config.mac);
  if (length > 0)
    netd_instance_input (instance, frame, length);
}

/* Returns the descriptor of one that succeeded. */
static int
release (NetdDial *dial)
{
  int fd = -1;

  g_ptr_array_remove (dial->engine->dials, dial);
  if (dial->flow != NULL)
    give_up (dial);
  if (dial->is_done && dial->error == 0)
    fd = dial->fd;
  else if (dial->fd >= 0)
    close (dial->fd);
  netd_engine_fill_dirty (dial->engine);
  g_free (dial);
  return fd;
}

static NetdDial *
find_due (NetdEngine *self)
{
  for (guint i = 0; i < self->dials->len; i++)
    {
      NetdDial *dial = self->dials->pdata[i];

      if (dial->is_done || dial->deadline <= netd_loop_now (self->config.loop))
        return dial;
    }
  return NULL;
}

/* A function that is called may make and cancel others. */
static void
answer (NetdDial *dial, int error)
{
  NetdDialFunc func = dial->func;
  gpointer user_data = dial->user_data;
  int fd = release (dial);

  func (fd, error, user_data);
}

void
netd_dials_run_cb (gpointer user_data)
{
  NetdEngine *self = user_data;
  guint n = self->dials->len;
  NetdDial *dial;

  while (n-- > 0 && (dial = find_due (self)) != NULL)
    answer (dial, dial->is_done ? dial->error : ETIMEDOUT);
  start_timer (self);
}

void
netd_dial_cancel (NetdDial *dial)
{
  NetdEngine *engine = dial->engine;
  int fd = release (dial);

  if (fd >= 0)
    close (fd);
  start_timer (engine);
}

void
netd_dials_end (NetdEngine *self)
{
  while (self->dials->len > 0)
    {
      NetdDial *dial = self->dials->pdata[self->dials->len - 1];

      dial->is_done = TRUE;
      dial->error = ENETDOWN;
      if (dial->flow != NULL)
        dial->flow->dial = NULL;
      dial->flow = NULL;
      answer (dial, ENETDOWN);
    }
}

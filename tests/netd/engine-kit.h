/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* A guest behind a NAT engine, for its tests: a small TCP that does as it is told, in a network
 * namespace where every address is this machine. */

#include "netd-engine-slirp.h"

#include "service-kit.h"
#include "tcp-frames.h"

#define GUEST_IP NETD_IP (192, 168, 127, 2)
#define GATEWAY_IP NETD_IP (192, 168, 127, 1)
#define PEER "203.0.113.7"
#define PEER_IP NETD_IP (203, 0, 113, 7)
#define GUEST_WINDOW 65535

typedef struct _Guest Guest;

/* One connection, as the guest sees it. */
typedef struct
{
  Guest *guest;
  guint16 port;
  guint32 peer;
  guint16 peer_port;
  guint32 sent;         /* next sequence number to send */
  guint32 acknowledged; /* by the peer */
  guint32 expected;     /* next sequence number to receive */
  GByteArray *received;
  gboolean is_open;
  gboolean has_fin;
  gboolean has_reset;
  gboolean is_silent; /* acknowledges nothing */
} Connection;

typedef enum
{
  GUEST_ACCEPTS,
  GUEST_REFUSES,
  GUEST_IGNORES,
} GuestManner;

struct _Guest
{
  NetdLoop *loop;
  NetdPlan plan;
  NetdEngine *engine;
  char *directory;
  GQueue frames;          /* GBytes, from the engine */
  guint queue_limit;      /* from which on the engine is paused; 0: never */
  GPtrArray *connections; /* Connection */
  GuestManner manner;     /* towards connections into it */
  Connection *incoming;   /* the last of them */
  guint n_syns;
  guint n_datagrams;
  GBytes *datagram; /* the last UDP payload */
  guint32 datagram_from;
  guint n_echoes;
  guint n_unreachable;
  GArray *served[NETD_N_SERVICES]; /* int */
  guint64 spent;                   /* microseconds that the engine reckoned */
  guint8 *frame;
};

Guest *guest_new (guint flow_limit, gboolean enable_host_alias);
/* Nothing of the engine's is left: the directory is empty, and goes. */
void guest_free (Guest *guest);
/* The @length bytes in guest->frame. */
NetdEngineVerdict guest_put (Guest *guest, gsize length);
/* A segment of the connection's, as if @sequence were next. */
NetdEngineVerdict connection_put (Connection *connection, guint8 flags, guint32 sequence,
                                  const void *data, gsize length);
void connection_send (Connection *connection, const void *data, gsize length);
void connection_finish (Connection *connection);
Connection *connection_new (Guest *guest, guint16 port, guint32 peer, guint16 peer_port);
Connection *guest_connect (Guest *guest, guint16 port, guint32 peer, guint16 peer_port);
/* Takes in what the engine sent, and ends a pause for that. For conditions that are waited for. */
gboolean guest_run (Guest *guest);

#define GUEST_RUN_UNTIL(guest, condition)                                                          \
  KIT_TURN_UNTIL ((guest)->loop, guest_run (guest) && (condition))

/* Time that libslirp has to notice, half a second at a time. */
void guest_pass_time (Guest *guest, guint milliseconds);
NetdEngineVerdict guest_send_udp (Guest *guest, guint16 port, guint32 peer, guint16 peer_port,
                                  const void *data, gsize length);
NetdEngineVerdict guest_ping (Guest *guest, guint32 peer, guint16 identifier);
/* Takes what the guest opened to the host; the engine goes on meanwhile. */
int host_accept (Guest *guest, int listener);
/* An open connection of the guest's to the peer, and the host's end of it. */
Connection *guest_open (Guest *guest, guint16 port, int *fd);
/* The main() of a test; skips it where there are no namespaces to be had. */
int guest_test_main (int argc, char *argv[], void (*add_tests) (void));

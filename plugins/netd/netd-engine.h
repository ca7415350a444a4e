/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "netd-loop.h"
#include "netd-packet.h"
#include "netd-plan.h"

/* The NAT engine: one instance per guest. It sees only IPv4 frames of TCP, UDP and ICMP echo that
 * the gateway has already checked, and carries them through sockets of the host. It also ends the
 * guest's TCP connections to the network's own services, and makes connections to the guest. */
typedef struct _NetdEngine NetdEngine;

typedef enum
{
  NETD_SERVICE_DNS,      /* TCP to the gateway's port 53 */
  NETD_SERVICE_METADATA, /* TCP to 169.254.169.254 port 80 */
  NETD_N_SERVICES,
} NetdService;

typedef struct
{
  const NetdPlan *plan;
  NetdLoop *loop;
  NetdMac mac;
  guint32 ip;
  guint index;      /* unique among the network's ports: names its private sockets */
  guint flow_limit; /* flows, of whatever kind, at most */
  gboolean (*admit) (gpointer user_data); /* may there be one more? NULL: as far as others go, yes */
  const char *socket_directory; /* for its private sockets; NULL: the root, which is its own */
  /* A frame for the guest, of up to NETD_PACKET_MAX bytes: larger than the MTU when it is to be
   * cut. Its source MAC is the gateway's. */
  void (*send) (const guint8 *frame, gsize length, gpointer user_data);
  /* The guest opened a connection to a service: @fd, to be taken over, is its stream. */
  void (*serve) (NetdService service, int fd, gpointer user_data);
  /* A frame made work that no window of the guest's bounds: so many microseconds, more or less. */
  void (*spend) (guint microseconds, gpointer user_data);
  gpointer user_data;
} NetdEngineConfig;

/* What became of a frame. */
typedef enum
{
  NETD_ENGINE_TAKEN,
  NETD_ENGINE_FULL, /* it would open a flow above the limit */
} NetdEngineVerdict;

/* @fd: the connected stream, to be taken over, or -1 with @error_number: ECONNREFUSED, ETIMEDOUT,
 * ENOBUFS (flow limit), ENETDOWN (port closed). */
typedef void (*NetdDialFunc) (int fd, int error_number, gpointer user_data);
typedef struct _NetdDial NetdDial;

NetdEngine *netd_engine_new (const NetdEngineConfig *config);
void netd_engine_free (NetdEngine *self);
NetdEngineVerdict netd_engine_input (NetdEngine *self, const NetdPacket *packet);
/* After the frames of a batch: what they caused is seen to. */
void netd_engine_flush (NetdEngine *self);
/* While paused nothing is taken from the host's sockets: the guest's queue is nearly full. May be
 * called from send(). */
void netd_engine_set_paused (NetdEngine *self, gboolean paused);
guint netd_engine_get_flows (NetdEngine *self);
/* Connects to a TCP port of the guest from the gateway's address. Answers when the guest has, or
 * after @timeout_ms. Never calls @func before returning. */
NetdDial *netd_engine_dial (NetdEngine *self, guint16 port, guint timeout_ms, NetdDialFunc func,
                            gpointer user_data);
void netd_dial_cancel (NetdDial *dial); /* @func is not called */
const char *netd_engine_get_name (void);
char *netd_engine_dup_version (void);

/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <libslirp.h>

#include "netd-engine.h"
#include "netd-reassembly.h"

/* What the parts of the engine share among themselves; nobody else includes this. */

/* A guest's engine is up to three instances of libslirp, each made when its first packet comes. */
typedef enum
{
  NETD_INSTANCE_NAT,      /* to the outside and into the guest; its host is the gateway */
  NETD_INSTANCE_SERVICES, /* TCP to the gateway's DNS and to the metadata address, nothing else */
  NETD_INSTANCE_ALIAS,    /* to the host's loopback; its host is the alias */
  NETD_N_INSTANCES,
} NetdInstanceKind;

typedef struct _NetdInstance NetdInstance;
typedef struct _NetdFlow NetdFlow;

/* One TCP connection, one UDP source port, or one ICMP echo request: what libslirp has a socket
 * for. */
struct _NetdFlow
{
  NetdInstance *instance;
  guint64 key; /* 0: never looked up */
  guint8 protocol;
  int fd;         /* -1: a connection to a service that the guest has not finished opening */
  NetdDial *dial; /* that it belongs to while the guest has not answered */
  gint64 opened_at;

  /* Of polling: */
  NetdWatch *watch; /* or NULL */
  guint slot;       /* among the instance's asked ones */
  guint fill;       /* when it was last asked for */
  guint32 asked;    /* SLIRP_POLL_* */
  guint32 armed;    /* EPOLL* */
  guint32 ready;    /* EPOLL*, since the last poll */
  gboolean is_held; /* readable, but not to be read during a pause */

  guint n_unanswered; /* of UDP: datagrams since something came back */

  /* Of TCP: what libslirp acknowledged last, and segments ahead of that which it may be keeping. */
  gboolean has_acknowledged;
  guint32 acknowledged;
  guint32 ahead_end;
  guint n_ahead;
};

struct _NetdInstance
{
  NetdEngine *engine;
  NetdInstanceKind kind;
  Slirp *slirp;
  guint n_flows;
  guint n_tcp;

  GPtrArray *asked;  /* NetdFlow, by slot; NULL for one that is gone */
  GPtrArray *before; /* the same of the fill before */
  guint fill;
  gboolean is_dirty;   /* what it asked for may have changed */
  gboolean is_ready;   /* a socket of its has something */
  gboolean is_fast;    /* it holds an acknowledgement back */
  gboolean is_skipping;
  int resume_at;       /* descriptor to begin reading with, -1: any */
  gint64 polled_at;
};

struct _NetdEngine
{
  NetdEngineConfig config;
  NetdInstance *instances[NETD_N_INSTANCES];
  NetdReassembly *reassembly; /* or NULL */
  guint8 *scratch;            /* or NULL: for frames that have to be changed */
  gboolean is_paused;

  GHashTable *flows_by_key;
  GHashTable *flows_by_fd;
  guint n_flows;
  guint n_half_open; /* those without a descriptor */
  guint n_icmp;
  guint n_ahead;
  guint n_unanswered;

  /* What libslirp is being called for, so that its callbacks can be told apart. */
  gboolean has_input;
  guint64 input_key;
  guint8 input_protocol;
  guint64 sent_key; /* of the last TCP segment it sent */

  NetdTimer *ready_timer;
  NetdTimer *tick_timer;
  gint64 tick_at;
  gint64 active_at; /* when something last happened */

  int listeners[NETD_N_SERVICES];
  gboolean is_stuck[NETD_N_SERVICES]; /* a connection waits to be accepted */
  gboolean is_connected;              /* libslirp has just connected to a service */

  GPtrArray *dials;
  NetdTimer *dial_timer;
  NetdDial *dialling; /* the one being started */
  gboolean is_listening;
  int dial_listener;
};

/* --- netd-engine-instance.c --- */

/* Makes it when there is none yet; NULL when that fails. */
NetdInstance *netd_engine_need_instance (NetdEngine *self, NetdInstanceKind kind);
void netd_instance_close (NetdInstance *self); /* libslirp lets go of all it has */
void netd_instance_free (NetdInstance *self);
/* A frame of the guest's, as it is. */
void netd_instance_input (NetdInstance *self, const guint8 *frame, gsize length);
/* libslirp's milliseconds. */
guint64 netd_engine_clock (guint64 milliseconds);

/* --- netd-engine-flow.c --- */

#define NETD_FLOW_AHEAD_MAX 64    /* segments of one connection out of order */
#define NETD_ENGINE_AHEAD_MAX 256 /* of all of a guest's */

guint64 netd_flow_tcp_key (guint16 guest_port, guint32 peer, guint16 peer_port);
guint64 netd_flow_udp_key (NetdInstanceKind kind, guint16 guest_port);
NetdFlow *netd_flow_find (NetdEngine *engine, guint64 key);
/* Whether one more of this protocol is within the limits. */
gboolean netd_flow_has_room (NetdEngine *engine, guint8 protocol);
NetdFlow *netd_flow_new (NetdInstance *instance, guint8 protocol, guint64 key, int fd);
void netd_flow_set_key (NetdFlow *flow, guint64 key);
/* Whether a segment may pass: libslirp keeps those that are out of order, each in a buffer of 64
 * KiB. */
gboolean netd_flow_take_segment (NetdFlow *flow, guint32 sequence, gsize length);
void netd_flow_answered (NetdFlow *flow); /* of UDP */
void netd_flow_acknowledge (NetdFlow *flow, guint32 acknowledged);
/* libslirp's callbacks for a socket that it opened, and for one that it is about to close. */
void netd_flow_opened (NetdInstance *instance, int fd);
void netd_flow_closed (NetdInstance *instance, int fd);
/* Forgets connections to services that the guest can no longer finish opening. */
void netd_flow_expire_half_open (NetdEngine *engine);
void netd_flow_clear (NetdEngine *engine);

/* --- netd-engine-poll.c --- */

void netd_instance_poll (NetdInstance *self); /* tells it what is ready, and lets it work */
void netd_instance_refresh_clock (NetdInstance *self); /* before a packet begins something */
/* After packets were put in: asks what is waited for now. */
void netd_engine_fill_dirty (NetdEngine *self);
void netd_engine_ready_cb (gpointer user_data);
void netd_engine_tick_cb (gpointer user_data);
gboolean netd_engine_is_quiet (NetdEngine *self); /* no timer runs */

/* --- netd-engine-services.c --- */

gboolean netd_services_open (NetdEngine *self, Slirp *slirp);
void netd_services_close (NetdEngine *self);
/* Whether a packet may go to the service now; FALSE when it has to be dropped. */
gboolean netd_services_may_take (NetdEngine *self, NetdService service, gboolean is_half_open);
void netd_services_accept (NetdEngine *self, NetdService service);
char *netd_engine_dup_socket_path (NetdEngine *self, const char *name);

/* --- netd-engine-dial.c --- */

void netd_dial_accepted (NetdDial *dial, NetdFlow *flow);
void netd_dial_sent (NetdDial *dial, const guint8 *frame, gsize length); /* its SYN */
void netd_dial_established (NetdDial *dial);
void netd_dial_flow_gone (NetdDial *dial);
void netd_dials_run_cb (gpointer user_data);
void netd_dials_end (NetdEngine *self);

/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <json-glib/json-glib.h>

#include "netd-control.h"

/* Shared by the two files that make up the control socket; nobody else includes this. */

#define NETD_CONTROL_FDS_MAX 4
#define NETD_CONTROL_DIALS_MAX 256 /* of one client */

typedef struct _NetdClient NetdClient;

struct _NetdControl
{
  NetdNetwork *network;
  NetdForwards *forwards;
  NetdLoop *loop;
  int listener;
  NetdWatch *watch;
  NetdTimer *pause; /* before accepting again, when there were no descriptors */
  int counters_fd;
  GPtrArray *clients;
};

struct _NetdClient
{
  NetdControl *control;
  int fd;
  NetdWatch *watch;
  gboolean is_broken; /* freed when its watch is called */
  GByteArray *in;     /* what is not a whole line yet */
  int fds[NETD_CONTROL_FDS_MAX];
  guint n_fds;
  GQueue out; /* of lines */
  gsize out_bytes;
  GPtrArray *dials; /* of NetdControlDial, not answered */
};

/* A connection to a guest that a client waits for. */
typedef struct
{
  NetdClient *client;
  gint64 number; /* of the request */
  NetdDial *dial;
} NetdControlDial;

/* --- The channel --- */

/* Takes the message, and the descriptor unless it is -1. */
void netd_client_send (NetdClient *self, JsonObject *message, int fd);
/* The oldest descriptor that came, to be closed by the caller; -1 when there is none. */
int netd_client_take_fd (NetdClient *self);

/* --- The methods --- */

/* Does what a line asks for, and answers now or later. FALSE when it is no request at all. */
gboolean netd_control_handle (NetdClient *client, const char *line, gsize length);
void netd_control_dial_free (NetdControlDial *self);
/* The first line to each client. */
JsonObject *netd_control_new_hello (NetdControl *self);

/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "netd-loop.h"

/* The sandboxed side's end of the channel to its warden, which alone may open things: sockets of
 * VMs by path, and the host's resolver configuration. */
typedef struct _NetdOpener NetdOpener;
typedef struct _NetdOpening NetdOpening;

typedef enum
{
  NETD_OPEN_PORT,     /* where the VM's QEMU listens for the network */
  NETD_OPEN_METADATA, /* where the daemon serves the VM's metadata */
} NetdOpenKind;

/* @fd: a connected, non-blocking stream, to be taken over. */
typedef void (*NetdOpenFunc) (int fd, gpointer user_data);
/* @text: the new resolv.conf, at most NETD_RESOLVER_MAX bytes */
typedef void (*NetdResolverFunc) (const char *text, gpointer user_data);

#define NETD_VM_ID_MAX 64
#define NETD_RESOLVER_MAX 8192

/* The channel's messages: one each per packet of a SOCK_SEQPACKET pair, host byte order. */
typedef enum
{
  NETD_MESSAGE_OPEN = 1,  /* to the warden: token, kind, vm */
  NETD_MESSAGE_CANCEL,    /* to the warden: token */
  NETD_MESSAGE_OPENED,    /* from it: token, and the descriptor */
  NETD_MESSAGE_RESOLVERS, /* from it: text */
} NetdMessageType;

typedef struct
{
  guint32 type;
  guint32 token;
  guint32 kind;
  char vm[NETD_VM_ID_MAX];
} NetdOpenMessage;

typedef struct
{
  guint32 type;
  guint32 length;
  char text[NETD_RESOLVER_MAX];
} NetdResolverMessage;

/* Takes over @channel. The loop quits when the warden is gone. */
NetdOpener *netd_opener_new (NetdLoop *loop, int channel, NetdResolverFunc resolver_func,
                             gpointer user_data);
void netd_opener_free (NetdOpener *self);
/* Connects as soon as somebody listens there, however long that takes; never fails, so cancel what
 * is no longer wanted. */
NetdOpening *netd_opener_open (NetdOpener *self, NetdOpenKind kind, const char *vm_id,
                               NetdOpenFunc func, gpointer user_data);
void netd_opening_cancel (NetdOpening *self);

/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <glib.h>

/* What a network carried and refused, by kind. The network's own live in a page that the daemon
 * maps read-only, so that reading them costs no message; ports have ordinary ones.
 *
 * A frame is sent when it is queued, whole and with its length: who reads the page never finds a
 * frame without its bytes. What is still queued when a stream ends was sent in vain. */
typedef enum
{
  NETD_COUNT_BYTES_SENT,     /* to VMs, framing included */
  NETD_COUNT_BYTES_RECEIVED, /* from VMs, framing included */
  NETD_COUNT_FRAMES_SENT,
  NETD_COUNT_FRAMES_RECEIVED,
  NETD_COUNT_QUEUE_FULL,     /* frames dropped because the receiver's queue was full */
  NETD_COUNT_SPOOFED_MAC,    /* source MAC not the lease's */
  NETD_COUNT_SPOOFED_IP,     /* source IP not the lease's */
  NETD_COUNT_SPOOFED_ARP,    /* ARP sender not the lease's */
  NETD_COUNT_SPOOFED_DHCP,   /* DHCP hardware address not the lease's, or a DHCP server's frame */
  NETD_COUNT_MALFORMED,      /* a header that does not hold what it promises */
  NETD_COUNT_UNSUPPORTED,    /* an Ethertype or protocol that is not carried */
  NETD_COUNT_NO_RECEIVER,    /* unknown unicast and multicast */
  NETD_COUNT_FORBIDDEN,      /* a destination that guests may not reach */
  NETD_COUNT_FLOW_LIMIT,     /* a new flow above the port's limit */
  NETD_COUNT_BAD_LENGTH,     /* framing errors, each of which closes the port's connection */
  NETD_N_COUNTS,
} NetdCount;

#define NETD_COUNTERS_MAGIC G_GUINT64_CONSTANT (0x766d6d2d6e657464) /* "vmm-netd" */
#define NETD_COUNTERS_VERSION 1

/* Layout of the shared page. Written by netd alone, 64 bits at a time. */
typedef struct
{
  guint64 magic;
  guint32 version;
  guint32 n_counts;
  guint64 counts[NETD_N_COUNTS];
} NetdCounters;

/* The name of a counter in the control protocol, such as "spoofed-mac". */
const char *netd_count_to_text (NetdCount count);
gboolean netd_count_is_waste (NetdCount count); /* a frame that came to nothing */
/* A page of its own in a sealed memfd (@fd). */
NetdCounters *netd_counters_new_shared (int *fd, GError **error);
void netd_counters_init (NetdCounters *self);

/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "frame-kit.h"
#include "netd-network.h"

/* One network of three guests, with everything that netd has but its sandbox: streams, guard,
 * switch, gateway and the real NAT engine. The test is the guests, and the warden that opens things
 * for netd. */

#define LAB_GUESTS 3
#define LAB_NETWORK NETD_IP (10, 77, 0, 0)
#define LAB_GATEWAY NETD_IP (10, 77, 0, 1)
#define LAB_ALIAS NETD_IP (10, 77, 0, 254)
#define LAB_BROADCAST NETD_IP (10, 77, 0, 255)

typedef struct _FrameLab FrameLab;

/* A whole frame that guest @guest got. */
typedef void (*LabFrameFunc) (FrameLab *lab, guint guest, const guint8 *frame, gsize length,
                              gpointer user_data);
/* netd opened the metadata service of @guest: @fd, to be taken over, is the daemon's end. */
typedef void (*LabMetadataFunc) (FrameLab *lab, guint guest, int fd, gpointer user_data);

typedef struct
{
  char *vm_id;
  KitPeer self;
  NetdPort *port;
  int fd;                    /* this guest's end of the stream */
  gboolean is_stuck;         /* does not read */
  GByteArray *inbox;         /* what is not yet a whole frame */
  guint64 n_received;        /* frames */
  guint32 last_tcp_sequence; /* of what it received last */
  guint n_metadata;          /* times its metadata service was opened */
} LabGuest;

struct _FrameLab
{
  NetdLoop *loop;
  NetdPlan plan;
  NetdCounters counters;
  NetdNetwork *network;
  NetdOpener *opener;
  int warden;
  char *directory; /* of netd's private sockets */
  KitPeer gateway;
  LabGuest guests[LAB_GUESTS];
  LabFrameFunc frame_func;
  LabMetadataFunc metadata_func; /* NULL: closed at once */
  gpointer user_data;
};

FrameLab *frame_lab_new (guint mtu);
void frame_lab_free (FrameLab *lab);
/* Gives guest @guest a new stream when netd has closed the one it had. */
void frame_lab_reconnect (FrameLab *lab, guint guest);
/* Through the stream, as QEMU sends it. Turns the loop while the stream takes no more. */
void frame_lab_send (FrameLab *lab, guint guest, const KitFrame *frame);
/* Past the stream; @frame is copied to memory of exactly its size. */
void frame_lab_inject (FrameLab *lab, guint guest, const guint8 *frame, gsize length);
/* @turns of the loop, in each of which the warden and the guests read. Waits for nothing. */
void frame_lab_turn (FrameLab *lab, guint turns);
/* Turns until @done says so, which must be within a generous time, while the clock runs fast. */
void frame_lab_await (FrameLab *lab, gboolean (*done) (FrameLab *lab, gpointer data),
                      gpointer data);
guint64 frame_lab_count (FrameLab *lab, guint guest, NetdCount count);

/* Bytes that are allocated and not freed. */
gsize frame_lab_get_allocated (void);

G_DEFINE_AUTOPTR_CLEANUP_FUNC (FrameLab, frame_lab_free)

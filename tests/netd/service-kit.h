/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* For tests of what netd does with sockets of the host: pairs of connected sockets, and turning the
 * loop until something is so. */

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "netd-loop.h"
#include "test-clock.h"

/* Of the clock that test_clock_advance() does not change. */
gint64 kit_real_seconds (void);
/* Long enough for a loaded machine under a sanitizer; only a failure waits so long. */
#define KIT_PATIENCE_SECONDS 120

#define KIT_TURN_UNTIL(loop, condition)                                                            \
  G_STMT_START                                                                                     \
  {                                                                                                \
    gint64 kit_end = kit_real_seconds () + KIT_PATIENCE_SECONDS;                                   \
    gboolean kit_is_so = FALSE;                                                                    \
    while (!(kit_is_so = (condition)) && kit_real_seconds () < kit_end)                            \
      netd_loop_turn (loop, 20);                                                                   \
    if (!kit_is_so)                                                                                \
      g_assert_cmpstr (#condition, ==, "so in time");                                              \
  }                                                                                                \
  G_STMT_END

/* What is ready is seen to, whatever it leads to. */
void kit_settle (NetdLoop *loop);
/* How often the loop turns until a timer fires, with nothing else to do. */
guint kit_count_turns (NetdLoop *loop);
/* Some turns may come early; a loop that is kept awake makes thousands. */
#define KIT_QUIET_TURNS 5

int kit_listen (int type, const char *address, guint16 *port);
int kit_connect (const char *address, guint16 port);
/* Both ends block; what is to be carried uses MSG_DONTWAIT. */
void kit_tcp_pair (int pair[2]);
void kit_unix_pair (int pair[2]);
void kit_reset (int fd);
void kit_say (int fd, const char *text);
/* Bytes to read: at least one, or the end (0), or an error (-errno); -EAGAIN when there is none
 * yet. */
gssize kit_peek (int fd);
/* Turns the loop until exactly @text came in at @fd. */
void kit_expect (NetdLoop *loop, int fd, const char *text);
/* 0 for an orderly end, -ECONNRESET for a reset, which a socket tells once. */
void kit_expect_end (NetdLoop *loop, int fd, gssize end);

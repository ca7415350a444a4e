/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The NAT engine's connections into the guest. */

#include <fcntl.h>

#include "engine-kit.h"

#define LIMIT 100

typedef struct
{
  guint n_calls;
  int fd;
  int error;
  NetdDial *also_cancel;
} Outcome;

static void
dialled_cb (int fd, int error_number, gpointer user_data)
{
  Outcome *outcome = user_data;

  outcome->n_calls++;
  outcome->fd = fd;
  outcome->error = error_number;
  g_assert_cmpint (fd >= 0, ==, error_number == 0);
  if (outcome->also_cancel != NULL)
    netd_dial_cancel (g_steal_pointer (&outcome->also_cancel));
}

static void
dial_and_wait (Guest *guest, guint16 port, guint timeout_ms, Outcome *outcome)
{
  *outcome = (Outcome){ .fd = -1 };
  netd_engine_dial (guest->engine, port, timeout_ms, dialled_cb, outcome);
  g_assert_cmpuint (outcome->n_calls, ==, 0);
  GUEST_RUN_UNTIL (guest, outcome->n_calls > 0);
  g_assert_cmpuint (outcome->n_calls, ==, 1);
}

static void
test_accepted (void)
{
  Guest *guest = guest_new (LIMIT, FALSE);
  Connection *connection;
  Outcome outcome;

  dial_and_wait (guest, 22, 5000, &outcome);
  g_assert_cmpint (outcome.error, ==, 0);
  connection = guest->incoming;
  g_assert_cmpuint (connection->port, ==, 22);
  g_assert_cmpuint (connection->peer, ==, GATEWAY_IP);
  g_assert_cmpint (fcntl (outcome.fd, F_GETFL) & O_NONBLOCK, !=, 0);
  g_assert_cmpuint (netd_engine_get_flows (guest->engine), ==, 1);

  kit_say (outcome.fd, "hello");
  GUEST_RUN_UNTIL (guest, connection->received->len == 5);
  connection_send (connection, "SSH-2.0-", 8);
  kit_expect (guest->loop, outcome.fd, "SSH-2.0-");

  /* Our end first, then the guest's: what it still says arrives. */
  shutdown (outcome.fd, SHUT_WR);
  GUEST_RUN_UNTIL (guest, connection->has_fin);
  connection_send (connection, "bye", 3);
  kit_expect (guest->loop, outcome.fd, "bye");
  connection_finish (connection);
  kit_expect_end (guest->loop, outcome.fd, 0);
  close (outcome.fd);
  guest_pass_time (guest, 12000);
  g_assert_cmpuint (netd_engine_get_flows (guest->engine), ==, 0);
  g_assert_true (netd_engine_is_quiet (guest->engine));
  guest_free (guest);
}

static void
test_half_close_by_guest (void)
{
  Guest *guest = guest_new (LIMIT, FALSE);
  Connection *connection;
  Outcome outcome;

  dial_and_wait (guest, 80, 5000, &outcome);
  connection = guest->incoming;
  connection_send (connection, "first", 5);
  connection_finish (connection);
  kit_expect (guest->loop, outcome.fd, "first");
  kit_expect_end (guest->loop, outcome.fd, 0);
  kit_say (outcome.fd, "still here");
  GUEST_RUN_UNTIL (guest, connection->received->len == 10);
  close (outcome.fd);
  GUEST_RUN_UNTIL (guest, connection->has_fin && netd_engine_get_flows (guest->engine) == 0);
  g_assert_true (netd_engine_is_quiet (guest->engine));
  guest_free (guest);
}

static void
test_refused (void)
{
  Guest *guest = guest_new (LIMIT, FALSE);
  Outcome outcome;

  guest->manner = GUEST_REFUSES;
  dial_and_wait (guest, 22, 5000, &outcome);
  g_assert_cmpint (outcome.error, ==, ECONNREFUSED);
  g_assert_cmpuint (netd_engine_get_flows (guest->engine), ==, 0);
  g_assert_true (netd_engine_is_quiet (guest->engine));
  guest_free (guest);
}

/* Whoever does not answer in time holds nothing afterwards, and is told so when it does answer. */
static void
test_timeout (void)
{
  Guest *guest = guest_new (LIMIT, FALSE);
  Outcome outcome = { .fd = -1 };

  guest->manner = GUEST_IGNORES;
  netd_engine_dial (guest->engine, 22, 3000, dialled_cb, &outcome);
  guest_pass_time (guest, 2000);
  g_assert_cmpuint (outcome.n_calls, ==, 0);
  g_assert_cmpuint (netd_engine_get_flows (guest->engine), ==, 1);
  guest_pass_time (guest, 2000);
  g_assert_cmpuint (outcome.n_calls, ==, 1);
  g_assert_cmpint (outcome.error, ==, ETIMEDOUT);
  g_assert_cmpuint (netd_engine_get_flows (guest->engine), ==, 0);
  g_assert_true (netd_engine_is_quiet (guest->engine));

  connection_put (guest->incoming, NETD_TCP_SYN | NETD_TCP_ACK, 77, NULL, 0);
  GUEST_RUN_UNTIL (guest, guest->incoming->has_reset);
  g_assert_cmpuint (outcome.n_calls, ==, 1);
  guest_free (guest);
}

/* A SYN that was lost is sent again, and answers to something else do not count. */
static void
test_retransmission (void)
{
  Guest *guest = guest_new (LIMIT, FALSE);
  Outcome outcome = { .fd = -1 };
  Connection *connection;

  guest->manner = GUEST_IGNORES;
  netd_engine_dial (guest->engine, 22, 60000, dialled_cb, &outcome);
  guest_run (guest);
  g_assert_cmpuint (guest->n_syns, ==, 1);
  connection = guest->incoming;
  connection->expected += 1000;
  connection_put (connection, NETD_TCP_SYN | NETD_TCP_ACK, connection->sent, NULL, 0);
  connection->expected -= 1000;
  kit_settle (guest->loop);
  guest_run (guest);
  g_assert_cmpuint (outcome.n_calls, ==, 0);

  guest->manner = GUEST_ACCEPTS;
  guest_pass_time (guest, 20000);
  g_assert_cmpuint (guest->n_syns, >=, 2);
  GUEST_RUN_UNTIL (guest, outcome.n_calls == 1);
  g_assert_cmpint (outcome.error, ==, 0);
  close (outcome.fd);
  guest_free (guest);
}

static void
test_cancel (void)
{
  Guest *guest = guest_new (LIMIT, FALSE);
  Outcome outcome = { .fd = -1 };
  Outcome other = { .fd = -1 };
  NetdDial *dial;

  /* Before the guest answers. */
  guest->manner = GUEST_IGNORES;
  dial = netd_engine_dial (guest->engine, 22, 5000, dialled_cb, &outcome);
  guest_run (guest);
  netd_dial_cancel (dial);
  g_assert_cmpuint (netd_engine_get_flows (guest->engine), ==, 0);
  g_assert_true (netd_engine_is_quiet (guest->engine));

  /* After it answered, before that was said. */
  guest->manner = GUEST_ACCEPTS;
  dial = netd_engine_dial (guest->engine, 22, 5000, dialled_cb, &outcome);
  guest_run (guest);
  guest_run (guest);
  g_assert_true (guest->incoming->is_open);
  netd_dial_cancel (dial);
  GUEST_RUN_UNTIL (guest, guest->incoming->has_fin);

  /* In another one's answer, both being due. */
  guest->manner = GUEST_REFUSES;
  netd_engine_dial (guest->engine, 22, 5000, dialled_cb, &other);
  dial = netd_engine_dial (guest->engine, 23, 5000, dialled_cb, &outcome);
  other.also_cancel = dial;
  GUEST_RUN_UNTIL (guest, other.n_calls == 1);
  kit_settle (guest->loop);
  g_assert_cmpuint (outcome.n_calls, ==, 0);
  guest_free (guest);
}

static void
test_many (void)
{
  Guest *guest = guest_new (LIMIT, FALSE);
  Outcome outcomes[LIMIT] = { 0 };
  guint pending = 0;

  guest->manner = GUEST_IGNORES;
  for (guint i = 0; i < LIMIT; i++)
    netd_engine_dial (guest->engine, 22, 5000, dialled_cb, &outcomes[i]);
  kit_settle (guest->loop);
  for (guint i = 0; i < LIMIT; i++)
    {
      g_assert_true (outcomes[i].n_calls == 0 || outcomes[i].error == ENOBUFS);
      pending += outcomes[i].n_calls == 0;
    }
  g_assert_cmpuint (pending, ==, 64);
  g_assert_cmpuint (netd_engine_get_flows (guest->engine), ==, 64);

  /* The port is closed under them: each hears of it. */
  g_clear_pointer (&guest->engine, netd_engine_free);
  for (guint i = 0; i < LIMIT; i++)
    {
      g_assert_cmpuint (outcomes[i].n_calls, ==, 1);
      g_assert_true (outcomes[i].error == ENOBUFS || outcomes[i].error == ENETDOWN);
    }
  guest_free (guest);
}

static void
test_flow_limit (void)
{
  Guest *guest = guest_new (2, FALSE);
  Outcome outcomes[3];

  dial_and_wait (guest, 22, 5000, &outcomes[0]);
  dial_and_wait (guest, 22, 5000, &outcomes[1]);
  dial_and_wait (guest, 22, 5000, &outcomes[2]);
  g_assert_cmpint (outcomes[2].error, ==, ENOBUFS);
  close (outcomes[0].fd);
  close (outcomes[1].fd);
  guest_free (guest);
}

static void
add_tests (void)
{
  g_test_add_func ("/netd/engine/dial/accepted", test_accepted);
  g_test_add_func ("/netd/engine/dial/half-close-by-guest", test_half_close_by_guest);
  g_test_add_func ("/netd/engine/dial/refused", test_refused);
  g_test_add_func ("/netd/engine/dial/timeout", test_timeout);
  g_test_add_func ("/netd/engine/dial/retransmission", test_retransmission);
  g_test_add_func ("/netd/engine/dial/cancel", test_cancel);
  g_test_add_func ("/netd/engine/dial/many", test_many);
  g_test_add_func ("/netd/engine/dial/flow-limit", test_flow_limit);
}

int
main (int argc, char *argv[])
{
  return guest_test_main (argc, argv, add_tests);
}

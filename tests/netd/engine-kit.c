/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The guest of the tests of the engine: its TCP sends and takes everything in order, loses nothing
 * and keeps what it got. */
#include "engine-kit.h"

#include <glib/gstdio.h>

#include "private-net.h"

static void
guest_send_cb (const guint8 *frame, gsize length, gpointer user_data)
{
  Guest *guest = user_data;

  g_queue_push_tail (&guest->frames, g_bytes_new (frame, length));
  if (guest->queue_limit > 0 && guest->frames.length >= guest->queue_limit)
    netd_engine_set_paused (guest->engine, TRUE);
}

static void
guest_serve_cb (NetdService service, int fd, gpointer user_data)
{
  Guest *guest = user_data;

  g_array_append_val (guest->served[service], fd);
}

static void
guest_spend_cb (guint microseconds, gpointer user_data)
{
  Guest *guest = user_data;

  guest->spent += microseconds;
}

static void
connection_free (gpointer data)
{
  Connection *connection = data;

  g_byte_array_unref (connection->received);
  g_free (connection);
}

Guest *
guest_new (guint flow_limit, gboolean enable_host_alias)
{
  Guest *guest = g_new0 (Guest, 1);
  NetdEngineConfig config = {
    .plan = &guest->plan,
    .mac = { { 2, 0xde, 192, 168, 127, 2 } },
    .ip = GUEST_IP,
    .index = 7,
    .flow_limit = flow_limit,
    .send = guest_send_cb,
    .serve = guest_serve_cb,
    .spend = guest_spend_cb,
    .user_data = guest,
  };

  guest->loop = netd_loop_new ();
  guest->plan.network = NETD_IP (192, 168, 127, 0);
  guest->plan.netmask = NETD_IP (255, 255, 255, 0);
  guest->plan.gateway = GATEWAY_IP;
  guest->plan.broadcast = NETD_IP (192, 168, 127, 255);
  guest->plan.host_alias = NETD_IP (192, 168, 127, 254);
  guest->plan.gateway_mac = (NetdMac){ { 2, 0xde, 192, 168, 127, 1 } };
  guest->plan.mtu = 1500;
  guest->plan.enable_imds = TRUE;
  guest->plan.enable_host_alias = enable_host_alias;
  guest->directory = g_dir_make_tmp ("netd-engine-XXXXXX", NULL);
  guest->connections = g_ptr_array_new_with_free_func (connection_free);
  guest->frame = g_malloc (NETD_PACKET_MAX);
  for (guint i = 0; i < NETD_N_SERVICES; i++)
    guest->served[i] = g_array_new (FALSE, FALSE, sizeof (int));
  config.loop = guest->loop;
  config.socket_directory = guest->directory;
  guest->engine = netd_engine_new (&config);
  g_assert_nonnull (guest->engine);
  return guest;
}

void
guest_free (Guest *guest)
{
  GBytes *frame;

  g_clear_pointer (&guest->engine, netd_engine_free);
  g_assert_cmpint (g_rmdir (guest->directory), ==, 0);
  while ((frame = g_queue_pop_head (&guest->frames)) != NULL)
    g_bytes_unref (frame);
  for (guint i = 0; i < NETD_N_SERVICES; i++)
    {
      for (guint j = 0; j < guest->served[i]->len; j++)
        close (g_array_index (guest->served[i], int, j));
      g_array_unref (guest->served[i]);
    }
  g_ptr_array_unref (guest->connections);
  g_clear_pointer (&guest->datagram, g_bytes_unref);
  netd_loop_free (guest->loop);
  g_free (guest->directory);
  g_free (guest->frame);
  g_free (guest);
}

NetdEngineVerdict
guest_put (Guest *guest, gsize length)
{
  NetdEngineVerdict verdict;
  NetdPacket packet;

  g_assert_cmpint (netd_packet_parse (&packet, guest->frame, length), ==, NETD_PACKET_IPV4);
  verdict = netd_engine_input (guest->engine, &packet);
  netd_engine_flush (guest->engine);
  return verdict;
}

NetdEngineVerdict
connection_put (Connection *connection, guint8 flags, guint32 sequence, const void *data,
                gsize length)
{
  static const guint8 mss[] = { 2, 4, 0xff, 0xc8 };
  gboolean is_syn = (flags & NETD_TCP_SYN) != 0;
  TestSegment segment = {
    .source = GUEST_IP,
    .destination = connection->peer,
    .source_port = connection->port,
    .destination_port = connection->peer_port,
    .sequence = sequence,
    .acknowledgement = (flags & NETD_TCP_ACK) != 0 ? connection->expected : 0,
    .window = GUEST_WINDOW,
    .flags = flags,
    .ttl = 64,
    .options = is_syn ? mss : NULL,
    .options_length = is_syn ? sizeof mss : 0,
    .payload = data,
    .length = length,
  };

  return guest_put (connection->guest, test_segment_write (&segment, connection->guest->frame));
}

void
connection_send (Connection *connection, const void *data, gsize length)
{
  guint32 sequence = connection->sent;

  connection->sent += (guint32) length;
  connection_put (connection, NETD_TCP_ACK | NETD_TCP_PSH, sequence, data, length);
}

void
connection_finish (Connection *connection)
{
  connection_put (connection, NETD_TCP_ACK | NETD_TCP_FIN, connection->sent++, NULL, 0);
}

Connection *
connection_new (Guest *guest, guint16 port, guint32 peer, guint16 peer_port)
{
  Connection *connection = g_new0 (Connection, 1);

  connection->guest = guest;
  connection->port = port;
  connection->peer = peer;
  connection->peer_port = peer_port;
  connection->sent = 0xfffff000; /* soon over the end of the numbers */
  connection->received = g_byte_array_new ();
  g_ptr_array_add (guest->connections, connection);
  return connection;
}

Connection *
guest_connect (Guest *guest, guint16 port, guint32 peer, guint16 peer_port)
{
  Connection *connection = connection_new (guest, port, peer, peer_port);

  connection_put (connection, NETD_TCP_SYN, connection->sent++, NULL, 0);
  return connection;
}

static Connection *
guest_find (Guest *guest, const NetdPacket *packet)
{
  for (guint i = 0; i < guest->connections->len; i++)
    {
      Connection *connection = guest->connections->pdata[i];

      if (connection->port == packet->destination_port && connection->peer == packet->ip_source
          && connection->peer_port == packet->source_port)
        return connection;
    }
  return NULL;
}

static void
guest_answer_syn (Guest *guest, const NetdPacket *packet)
{
  Connection *connection = guest_find (guest, packet);

  guest->n_syns++;
  if (connection == NULL)
    connection
        = connection_new (guest, packet->destination_port, packet->ip_source, packet->source_port);
  guest->incoming = connection;
  connection->expected = kit_get32 (packet->transport + 4) + 1;
  if (guest->manner == GUEST_ACCEPTS)
    connection_put (connection, NETD_TCP_SYN | NETD_TCP_ACK, connection->sent, NULL, 0);
  else if (guest->manner == GUEST_REFUSES)
    connection_put (connection, NETD_TCP_RST | NETD_TCP_ACK, 0, NULL, 0);
}

static void
connection_receive (Connection *connection, const NetdPacket *packet)
{
  guint32 sequence = kit_get32 (packet->transport + 4);

  if ((packet->tcp_flags & NETD_TCP_ACK) != 0)
    connection->acknowledged = kit_get32 (packet->transport + 8);
  connection->has_reset |= (packet->tcp_flags & NETD_TCP_RST) != 0;
  if ((packet->tcp_flags & NETD_TCP_SYN) != 0)
    connection->expected = sequence + 1;
  else if (!connection->is_open && (packet->tcp_flags & NETD_TCP_ACK) != 0
           && connection == connection->guest->incoming)
    connection->sent++; /* our SYN was taken */
  connection->is_open |= !connection->has_reset;
  if (connection->has_reset || connection->is_silent)
    return;

  if (sequence == connection->expected && packet->payload_length > 0)
    {
      g_byte_array_append (connection->received, packet->payload, (guint) packet->payload_length);
      connection->expected += (guint32) packet->payload_length;
    }
  if ((packet->tcp_flags & NETD_TCP_FIN) != 0 && !connection->has_fin
      && sequence + (guint32) packet->payload_length == connection->expected)
    {
      connection->expected++;
      connection->has_fin = TRUE;
    }
  if (packet->payload_length > 0 || (packet->tcp_flags & (NETD_TCP_SYN | NETD_TCP_FIN)) != 0)
    connection_put (connection, NETD_TCP_ACK, connection->sent, NULL, 0);
}

static void
guest_receive (Guest *guest, const NetdPacket *packet)
{
  Connection *connection;

  g_assert_true (netd_mac_equal (&packet->source, &guest->plan.gateway_mac));
  g_assert_cmpuint (packet->ip_destination, ==, GUEST_IP);
  if (packet->protocol == IPPROTO_TCP)
    {
      g_assert_true (test_is_sound (packet));
      if ((packet->tcp_flags & (NETD_TCP_SYN | NETD_TCP_ACK)) == NETD_TCP_SYN)
        guest_answer_syn (guest, packet);
      else if ((connection = guest_find (guest, packet)) != NULL)
        connection_receive (connection, packet);
    }
  else if (packet->protocol == IPPROTO_UDP)
    {
      guest->n_datagrams++;
      guest->datagram_from = packet->ip_source;
      g_clear_pointer (&guest->datagram, g_bytes_unref);
      guest->datagram = g_bytes_new (packet->payload, packet->payload_length);
    }
  else if (packet->protocol == IPPROTO_ICMP)
    {
      guest->n_echoes += packet->transport[0] == 0;
      guest->n_unreachable += packet->transport[0] == 3;
    }
}

gboolean
guest_run (Guest *guest)
{
  GBytes *frame;

  while ((frame = g_queue_pop_head (&guest->frames)) != NULL)
    {
      NetdPacket packet;
      gsize length;
      const guint8 *data = g_bytes_get_data (frame, &length);

      g_assert_cmpint (netd_packet_parse (&packet, data, length), ==, NETD_PACKET_IPV4);
      guest_receive (guest, &packet);
      g_bytes_unref (frame);
    }
  if (guest->queue_limit > 0)
    netd_engine_set_paused (guest->engine, FALSE);
  return TRUE;
}

void
guest_pass_time (Guest *guest, guint milliseconds)
{
  for (guint passed = 0; passed < milliseconds; passed += 500)
    {
      test_clock_advance (502);
      netd_loop_turn (guest->loop, 0);
      netd_loop_turn (guest->loop, 0);
      guest_run (guest);
    }
}

NetdEngineVerdict
guest_send_udp (Guest *guest, guint16 port, guint32 peer, guint16 peer_port, const void *data,
                gsize length)
{
  NetdUdpAddress address = {
    .source_mac = { { 2, 0xde, 192, 168, 127, 2 } },
    .destination_mac = guest->plan.gateway_mac,
    .source = GUEST_IP,
    .destination = peer,
    .source_port = port,
    .destination_port = peer_port,
  };

  return guest_put (guest,
                    netd_packet_build_udp (guest->frame, NETD_PACKET_MAX, &address, data, length));
}

NetdEngineVerdict
guest_ping (Guest *guest, guint32 peer, guint16 identifier)
{
  guint8 *ip = guest->frame + NETD_ETHERNET_HEADER;
  guint8 *icmp = ip + 20;

  guest_send_udp (guest, 9, NETD_IP (127, 0, 0, 1), 9, "12345678", 8); /* goes nowhere */
  ip[9] = IPPROTO_ICMP;
  kit_set32 (ip + 16, peer);
  kit_set16 (ip + 10, 0);
  kit_set16 (ip + 10, test_checksum (ip, 20, 0));
  icmp[0] = 8;
  icmp[1] = 0;
  kit_set16 (icmp + 4, identifier);
  kit_set16 (icmp + 2, 0);
  kit_set16 (icmp + 2, test_checksum (icmp, 16, 0));
  return guest_put (guest, NETD_ETHERNET_HEADER + 36);
}

int
host_accept (Guest *guest, int listener)
{
  int fd = -1;

  GUEST_RUN_UNTIL (guest, (fd = accept4 (listener, NULL, NULL, SOCK_CLOEXEC)) >= 0);
  return fd;
}

Connection *
guest_open (Guest *guest, guint16 port, int *fd)
{
  guint16 peer_port;
  int listener = kit_listen (SOCK_STREAM, PEER, &peer_port);
  Connection *connection = guest_connect (guest, port, PEER_IP, peer_port);

  *fd = host_accept (guest, listener);
  GUEST_RUN_UNTIL (guest, connection->is_open);
  close (listener);
  return connection;
}

int
guest_test_main (int argc, char *argv[], void (*add_tests) (void))
{
  g_autofree char *reason = NULL;

  g_test_init (&argc, &argv, NULL);
  if (!private_net_enter (&reason))
    {
      g_print ("1..0 # SKIP %s\n", reason);
      return 0;
    }
  add_tests ();
  return g_test_run ();
}

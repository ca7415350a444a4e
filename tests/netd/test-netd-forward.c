/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Ports of the host that lead to guests: listening, connecting, ending, and what is said when a
 * port cannot be had. The network around it is a fake one, whose guests answer when the test says
 * so. */

#include "netd-forward.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <sys/resource.h>

#include <gio/gio.h>

#include "netd-gateway.h"
#include "netd-resolvers.h"
#include "netd-udp-forward.h"
#include "service-kit.h"

#define VM "vm-1"

/* --- A network of one guest --- */

struct _NetdNetwork
{
  NetdLoop *loop;
  NetdPort *port; /* NULL: not plugged in */
};

struct _NetdEngine
{
  GPtrArray *dials; /* NetdDial that were not answered */
};

struct _NetdGateway
{
  NetdEngine engine;
  NetdUdpForwards *udp;
};

struct _NetdPort
{
  NetdGateway gateway;
};

struct _NetdDial
{
  NetdEngine *engine;
  guint16 port;
  NetdDialFunc func;
  gpointer user_data;
};

NetdLoop *
netd_network_get_loop (NetdNetwork *self)
{
  return self->loop;
}

gboolean
netd_network_has_descriptors (NetdNetwork *self)
{
  return TRUE;
}

NetdPort *
netd_network_find (NetdNetwork *self, const char *vm_id)
{
  return g_str_equal (vm_id, VM) ? self->port : NULL;
}

const char *
netd_port_get_vm_id (NetdPort *self)
{
  return VM;
}

NetdGateway *
netd_port_get_gateway (NetdPort *self)
{
  return &self->gateway;
}

NetdEngine *
netd_gateway_get_engine (NetdGateway *self)
{
  return &self->engine;
}

NetdUdpForwards *
netd_gateway_get_udp_forwards (NetdGateway *self)
{
  return self->udp;
}

NetdDial *
netd_engine_dial (NetdEngine *self, guint16 port, guint timeout_ms, NetdDialFunc func,
                  gpointer user_data)
{
  NetdDial *dial = g_new0 (NetdDial, 1);

  g_assert_cmpuint (timeout_ms, ==, NETD_FORWARD_DIAL_MS);
  dial->engine = self;
  dial->port = port;
  dial->func = func;
  dial->user_data = user_data;
  g_ptr_array_add (self->dials, dial);
  return dial;
}

void
netd_dial_cancel (NetdDial *dial)
{
  g_assert_true (g_ptr_array_remove (dial->engine->dials, dial));
  g_free (dial);
}

typedef struct
{
  NetdNetwork network;
  NetdPlan plan;
  NetdForwards *forwards;
  guint n_datagrams;
  char datagram[64];
  guint16 datagram_source;
  guint16 datagram_destination;
} Fixture;

static void
frame_for_guest (const guint8 *frame, gsize length, gpointer user_data)
{
  Fixture *fixture = user_data;
  NetdPacket packet;

  g_assert_cmpint (netd_packet_parse (&packet, frame, length), ==, NETD_PACKET_IPV4);
  memset (fixture->datagram, 0, sizeof fixture->datagram);
  memcpy (fixture->datagram, packet.payload,
          MIN (packet.payload_length, sizeof fixture->datagram - 1));
  fixture->datagram_source = packet.source_port;
  fixture->datagram_destination = packet.destination_port;
  fixture->n_datagrams++;
}

static void
plug_in (Fixture *fixture)
{
  NetdUdpForwardsConfig config = {
    .plan = &fixture->plan,
    .loop = fixture->network.loop,
    .ip = NETD_IP (10, 1, 2, 3),
    .send = frame_for_guest,
    .user_data = fixture,
  };

  fixture->network.port = g_new0 (NetdPort, 1);
  fixture->network.port->gateway.engine.dials = g_ptr_array_new ();
  fixture->network.port->gateway.udp = netd_udp_forwards_new (&config);
  netd_forwards_port_attached (fixture->forwards, fixture->network.port);
}

/* The guest's answer to the oldest connection; takes over @fd. */
static void
answer (Fixture *fixture, int fd, int error_number)
{
  GPtrArray *dials = fixture->network.port->gateway.engine.dials;
  NetdDial *dial = g_ptr_array_index (dials, 0);

  g_ptr_array_remove_index (dials, 0);
  dial->func (fd, error_number, dial->user_data);
  g_free (dial);
}

static void
unplug (Fixture *fixture)
{
  NetdPort *port = fixture->network.port;

  fixture->network.port = NULL;
  while (port->gateway.engine.dials->len > 0)
    {
      NetdDial *dial = g_ptr_array_index (port->gateway.engine.dials, 0);

      g_ptr_array_remove_index (port->gateway.engine.dials, 0);
      dial->func (-1, ENETDOWN, dial->user_data);
      g_free (dial);
    }
  g_ptr_array_unref (port->gateway.engine.dials);
  netd_udp_forwards_free (port->gateway.udp);
  g_free (port);
}

static guint
get_n_dials (Fixture *fixture)
{
  return fixture->network.port->gateway.engine.dials->len;
}

static void
set_up (Fixture *fixture, gconstpointer data)
{
  fixture->network.loop = netd_loop_new ();
  fixture->plan.gateway = NETD_IP (10, 1, 2, 1);
  fixture->forwards = netd_forwards_new (&fixture->network);
  plug_in (fixture);
}

static void
tear_down (Fixture *fixture, gconstpointer data)
{
  g_clear_pointer (&fixture->forwards, netd_forwards_free);
  if (fixture->network.port != NULL)
    {
      g_assert_cmpuint (get_n_dials (fixture), ==, 0);
      unplug (fixture);
    }
  netd_loop_free (fixture->network.loop);
}

/* --- Helpers --- */

static NetdForwardSpec
tcp_spec (const char *id)
{
  return (NetdForwardSpec){ .id = id, .vm_id = VM, .port = 22, .host_address = "127.0.0.1" };
}

static NetdForwardSpec
udp_spec (const char *id)
{
  NetdForwardSpec spec = tcp_spec (id);

  spec.is_udp = TRUE;
  return spec;
}

static guint16
add (Fixture *fixture, const NetdForwardSpec *spec)
{
  g_autoptr (GError) error = NULL;
  guint16 port = netd_forwards_add (fixture->forwards, spec, &error);

  g_assert_no_error (error);
  g_assert_cmpuint (port, >, 0);
  return port;
}

static void
expect_error (Fixture *fixture, const NetdForwardSpec *spec, int code, const char *words)
{
  g_autoptr (GError) error = NULL;

  g_assert_cmpuint (netd_forwards_add (fixture->forwards, spec, &error), ==, 0);
  g_assert_error (error, G_IO_ERROR, code);
  if (strstr (error->message, words) == NULL)
    g_assert_cmpstr (error->message, ==, words);
}

/* A connection that the guest has answered; returns its end. */
static int
answer_with_pair (Fixture *fixture)
{
  int pair[2];

  KIT_TURN_UNTIL (fixture->network.loop, get_n_dials (fixture) > 0);
  kit_unix_pair (pair);
  answer (fixture, pair[1], 0);
  return pair[0];
}

static gboolean
can_connect (guint16 port)
{
  struct sockaddr_in name = { .sin_family = AF_INET, .sin_port = g_htons (port) };
  int fd = socket (AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  gboolean good;

  g_assert_cmpint (inet_pton (AF_INET, "127.0.0.1", &name.sin_addr), ==, 1);
  good = connect (fd, (struct sockaddr *) &name, sizeof name) == 0;
  close (fd);
  return good;
}

static gboolean
raise_descriptor_limit (rlim_t wanted)
{
  struct rlimit limit;

  g_assert_cmpint (getrlimit (RLIMIT_NOFILE, &limit), ==, 0);
  limit.rlim_cur = MAX (limit.rlim_cur, MIN (wanted, limit.rlim_max));
  g_assert_cmpint (setrlimit (RLIMIT_NOFILE, &limit), ==, 0);
  return limit.rlim_cur >= wanted;
}

/* --- TCP --- */

static void
test_carried (Fixture *fixture, gconstpointer data)
{
  NetdForwardSpec spec = tcp_spec ("f");
  NetdLoop *loop = fixture->network.loop;
  guint16 port = add (fixture, &spec);

  for (guint i = 0; i < 2; i++)
    {
      int client = kit_connect ("127.0.0.1", port);
      int guest;
      int first;
      int last;

      KIT_TURN_UNTIL (loop, get_n_dials (fixture) == 1);
      g_assert_cmpuint (
          ((NetdDial *) fixture->network.port->gateway.engine.dials->pdata[0])->port, ==, 22);
      kit_say (client, "early");
      guest = answer_with_pair (fixture);
      kit_expect (loop, guest, "early");
      /* The end of one direction is not the end of the other, whichever comes first. */
      first = i == 0 ? client : guest;
      last = i == 0 ? guest : client;
      g_assert_cmpint (shutdown (first, SHUT_WR), ==, 0);
      kit_expect_end (loop, last, 0);
      kit_say (last, "late");
      kit_expect (loop, first, "late");
      close (last);
      kit_expect_end (loop, first, 0);
      close (first);
    }
  g_assert_cmpuint (kit_count_turns (loop), <=, KIT_QUIET_TURNS);
}

static void
test_guest_refuses (Fixture *fixture, gconstpointer data)
{
  NetdForwardSpec spec = tcp_spec ("f");
  guint16 port = add (fixture, &spec);
  static const int errors[] = { ECONNREFUSED, ETIMEDOUT, ENOBUFS };

  for (guint i = 0; i < G_N_ELEMENTS (errors); i++)
    {
      int client = kit_connect ("127.0.0.1", port);

      KIT_TURN_UNTIL (fixture->network.loop, get_n_dials (fixture) == 1);
      answer (fixture, -1, errors[i]);
      kit_expect_end (fixture->network.loop, client, -ECONNRESET);
      close (client);
    }
}

/* The forward outlives the VM's absence; the connection does not. */
static void
test_not_plugged_in (Fixture *fixture, gconstpointer data)
{
  NetdForwardSpec spec = tcp_spec ("f");
  guint16 port = add (fixture, &spec);
  int client = kit_connect ("127.0.0.1", port);
  int guest;

  KIT_TURN_UNTIL (fixture->network.loop, get_n_dials (fixture) == 1);
  unplug (fixture);
  kit_expect_end (fixture->network.loop, client, -ECONNRESET);
  close (client);
  client = kit_connect ("127.0.0.1", port);
  kit_expect_end (fixture->network.loop, client, -ECONNRESET);
  close (client);

  plug_in (fixture);
  client = kit_connect ("127.0.0.1", port);
  guest = answer_with_pair (fixture);
  kit_say (guest, "hello");
  kit_expect (fixture->network.loop, client, "hello");
  close (client);
  close (guest);
  kit_settle (fixture->network.loop);
}

static void
test_removed (Fixture *fixture, gconstpointer data)
{
  NetdForwardSpec spec = tcp_spec ("f");
  guint16 port = add (fixture, &spec);
  int running = kit_connect ("127.0.0.1", port);
  int guest = answer_with_pair (fixture);
  int waiting = kit_connect ("127.0.0.1", port);

  kit_say (guest, "x");
  kit_expect (fixture->network.loop, running, "x");
  KIT_TURN_UNTIL (fixture->network.loop, get_n_dials (fixture) == 1);
  g_assert_true (netd_forwards_remove (fixture->forwards, "f"));
  g_assert_cmpuint (get_n_dials (fixture), ==, 0);
  kit_expect_end (fixture->network.loop, running, -ECONNRESET);
  kit_expect_end (fixture->network.loop, waiting, -ECONNRESET);
  kit_expect_end (fixture->network.loop, guest, 0);
  close (running);
  close (waiting);
  close (guest);
  g_assert_false (can_connect (port));
  g_assert_false (netd_forwards_remove (fixture->forwards, "f"));

  /* At once for somebody else. */
  spec.id = "g";
  spec.host_port = port;
  g_assert_cmpuint (add (fixture, &spec), ==, port);
  g_assert_true (can_connect (port));
}

static void
test_freed (Fixture *fixture, gconstpointer data)
{
  NetdForwardSpec spec = tcp_spec ("f");
  NetdForwardSpec other = udp_spec ("g");
  guint16 port = add (fixture, &spec);
  int running = kit_connect ("127.0.0.1", port);
  int guest = answer_with_pair (fixture);
  int waiting = kit_connect ("127.0.0.1", port);

  add (fixture, &other);
  KIT_TURN_UNTIL (fixture->network.loop, get_n_dials (fixture) == 1);
  g_clear_pointer (&fixture->forwards, netd_forwards_free);
  kit_expect_end (fixture->network.loop, running, -ECONNRESET);
  kit_expect_end (fixture->network.loop, waiting, -ECONNRESET);
  close (running);
  close (waiting);
  close (guest);
}

static void
test_connection_limit (Fixture *fixture, gconstpointer data)
{
  NetdForwardSpec spec = tcp_spec ("f");
  guint16 port;
  int clients[NETD_FORWARD_CONNECTIONS_MAX + 1];

  if (!raise_descriptor_limit (2 * NETD_FORWARD_CONNECTIONS_MAX + 100))
    {
      g_test_skip ("too few descriptors");
      return;
    }
  port = add (fixture, &spec);
  for (guint i = 0; i < G_N_ELEMENTS (clients); i++)
    {
      clients[i] = kit_connect ("127.0.0.1", port);
      netd_loop_turn (fixture->network.loop, 0);
    }
  KIT_TURN_UNTIL (fixture->network.loop, get_n_dials (fixture) == NETD_FORWARD_CONNECTIONS_MAX);
  /* One more waits, and costs nothing. */
  g_assert_cmpuint (kit_count_turns (fixture->network.loop), <=, KIT_QUIET_TURNS);
  g_assert_cmpuint (get_n_dials (fixture), ==, NETD_FORWARD_CONNECTIONS_MAX);
  answer (fixture, -1, ECONNREFUSED);
  KIT_TURN_UNTIL (fixture->network.loop, get_n_dials (fixture) == NETD_FORWARD_CONNECTIONS_MAX);
  while (get_n_dials (fixture) > 0)
    answer (fixture, -1, ECONNREFUSED);
  for (guint i = 0; i < G_N_ELEMENTS (clients); i++)
    close (clients[i]);
}

/* Out of descriptors: the connection waits, and the loop does not turn for it. */
static void
test_out_of_descriptors (Fixture *fixture, gconstpointer data)
{
  NetdForwardSpec spec = tcp_spec ("f");
  guint16 port = add (fixture, &spec);
  int client = kit_connect ("127.0.0.1", port);
  g_autoptr (GArray) fillers = g_array_new (FALSE, FALSE, sizeof (int));
  struct rlimit limit;
  rlim_t before;

  g_assert_cmpint (getrlimit (RLIMIT_NOFILE, &limit), ==, 0);
  before = limit.rlim_cur;
  limit.rlim_cur = 256;
  g_assert_cmpint (setrlimit (RLIMIT_NOFILE, &limit), ==, 0);
  for (;;)
    {
      int fd = fcntl (client, F_DUPFD_CLOEXEC, 0);

      if (fd < 0)
        break;
      g_array_append_val (fillers, fd);
    }
  g_assert_cmpint (errno, ==, EMFILE);
  netd_loop_turn (fixture->network.loop, 0);
  g_assert_cmpuint (kit_count_turns (fixture->network.loop), <=, KIT_QUIET_TURNS);
  g_assert_cmpuint (get_n_dials (fixture), ==, 0);
  for (guint i = 0; i < fillers->len; i++)
    close (g_array_index (fillers, int, i));
  limit.rlim_cur = before;
  g_assert_cmpint (setrlimit (RLIMIT_NOFILE, &limit), ==, 0);

  test_clock_advance (NETD_FORWARD_PAUSE_MS + 10);
  KIT_TURN_UNTIL (fixture->network.loop, get_n_dials (fixture) == 1);
  answer (fixture, -1, ECONNREFUSED);
  close (client);
}

/* --- Which port --- */

static void
count_cb (const NetdForwardSpec *spec, gpointer user_data)
{
  g_autofree char *line = g_strdup_printf ("%s %s %u %s %s %u", spec->id, spec->vm_id, spec->port,
                                           spec->is_udp ? "udp" : "tcp", spec->host_address,
                                           spec->host_port);

  g_ptr_array_add (user_data, g_steal_pointer (&line));
}

static void
test_same_again (Fixture *fixture, gconstpointer data)
{
  g_autoptr (GPtrArray) lines = g_ptr_array_new_with_free_func (g_free);
  g_autofree char *expected = NULL;
  NetdForwardSpec spec = tcp_spec ("f");
  guint16 port = add (fixture, &spec);

  g_assert_cmpuint (add (fixture, &spec), ==, port);
  spec.host_port = port;
  g_assert_cmpuint (add (fixture, &spec), ==, port);
  netd_forwards_foreach (fixture->forwards, count_cb, lines);
  g_assert_cmpuint (lines->len, ==, 1);
  expected = g_strdup_printf ("f " VM " 22 tcp 127.0.0.1 %u", port);
  g_assert_cmpstr (g_ptr_array_index (lines, 0), ==, expected);
}

static void
test_in_use (Fixture *fixture, gconstpointer data)
{
  for (guint i = 0; i < 2; i++)
    {
      gboolean is_udp = i == 1;
      NetdForwardSpec spec = is_udp ? udp_spec ("udp") : tcp_spec ("tcp");
      guint16 port;
      int fd = kit_listen (is_udp ? SOCK_DGRAM : SOCK_STREAM, "127.0.0.1", &port);
      g_autofree char *words = g_strdup_printf ("port %u of 127.0.0.1 is in use by another", port);
      g_autofree char *named = NULL;
      NetdForwardSpec other;

      spec.host_port = port;
      expect_error (fixture, &spec, G_IO_ERROR_ADDRESS_IN_USE, words);
      close (fd);
      g_assert_cmpuint (add (fixture, &spec), ==, port);
      other = spec;
      other.id = "other";
      named = g_strdup_printf ("port %u of 127.0.0.1 is in use by forward %s of VM " VM, port,
                               spec.id);
      expect_error (fixture, &other, G_IO_ERROR_ADDRESS_IN_USE, named);
      other.host_address = "0.0.0.0";
      expect_error (fixture, &other, G_IO_ERROR_ADDRESS_IN_USE, spec.id);
      /* The other protocol's ports are others. */
      other.host_address = "127.0.0.1";
      other.id = is_udp ? "tcp-too" : "udp-too";
      other.is_udp = !is_udp;
      g_assert_cmpuint (add (fixture, &other), ==, port);
    }
}

static void
test_privileged (Fixture *fixture, gconstpointer data)
{
  NetdForwardSpec spec = tcp_spec ("f");
  g_autofree char *text = NULL;
  guint64 first = 0;

  if (!g_file_get_contents ("/proc/sys/net/ipv4/ip_unprivileged_port_start", &text, NULL, NULL)
      || !g_ascii_string_to_unsigned (g_strstrip (text), 10, 0, 65536, &first, NULL)
      || first < 1024)
    {
      g_test_skip ("all ports are for everybody here");
      return;
    }
  if (geteuid () == 0)
    g_assert_cmpint (seteuid (65534), ==, 0);
  spec.host_port = 80;
  expect_error (fixture, &spec, G_IO_ERROR_PERMISSION_DENIED,
                "net.ipv4.ip_unprivileged_port_start");
  expect_error (fixture, &spec, G_IO_ERROR_PERMISSION_DENIED, "socket from systemd");
  if (getuid () == 0)
    g_assert_cmpint (seteuid (0), ==, 0);
}

static void
test_bad_spec (Fixture *fixture, gconstpointer data)
{
  static const char *const addresses[] = { "localhost", "", "127.0.0.1 ", "127.1", "::1::", "*" };
  NetdForwardSpec spec = tcp_spec ("f");

  for (guint i = 0; i < G_N_ELEMENTS (addresses); i++)
    {
      spec.host_address = addresses[i];
      expect_error (fixture, &spec, G_IO_ERROR_INVALID_ARGUMENT, "is not an IPv4 or IPv6 address");
    }
  spec.host_address = "203.0.113.77";
  expect_error (fixture, &spec, G_IO_ERROR_INVALID_ARGUMENT, "is not an address of this host");
  spec = tcp_spec ("f");
  spec.port = 0;
  expect_error (fixture, &spec, G_IO_ERROR_INVALID_ARGUMENT, "port of the guest");
}

static void
test_v6 (Fixture *fixture, gconstpointer data)
{
  NetdForwardSpec spec = tcp_spec ("six");
  NetdForwardSpec four = tcp_spec ("four");
  NetdSocketAddress name;
  g_autoptr (GError) error = NULL;
  guint16 port;
  int client;
  int guest;

  spec.host_address = "::";
  port = netd_forwards_add (fixture->forwards, &spec, &error);
  if (port == 0)
    {
      g_test_skip ("no IPv6 here");
      return;
    }
  /* All of IPv4 is another address. */
  four.host_address = "0.0.0.0";
  four.host_port = port;
  g_assert_cmpuint (add (fixture, &four), ==, port);
  g_assert_true (netd_socket_address_parse (&name, "::1", port));
  client = socket (AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
  g_assert_cmpint (connect (client, &name.any, sizeof name.v6), ==, 0);
  guest = answer_with_pair (fixture);
  kit_say (client, "six");
  kit_expect (fixture->network.loop, guest, "six");
  close (client);
  close (guest);
  kit_settle (fixture->network.loop);
}

static void
test_limit (Fixture *fixture, gconstpointer data)
{
  NetdForwardSpec spec = udp_spec (NULL);

  if (!raise_descriptor_limit (NETD_FORWARDS_MAX + 100))
    {
      g_test_skip ("too few descriptors");
      return;
    }
  unplug (fixture);
  for (guint i = 0; i < NETD_FORWARDS_MAX; i++)
    {
      g_autofree char *id = g_strdup_printf ("f%u", i);

      spec.id = id;
      spec.vm_id = i % 2 == 0 ? VM : "vm-2";
      add (fixture, &spec);
    }
  spec.id = "one more";
  expect_error (fixture, &spec, G_IO_ERROR_NO_SPACE, "is the limit");

  /* One VM's go at once, the other's stay. */
  {
    g_autoptr (GPtrArray) lines = g_ptr_array_new_with_free_func (g_free);

    netd_forwards_remove_vm (fixture->forwards, "vm-2");
    netd_forwards_foreach (fixture->forwards, count_cb, lines);
    g_assert_cmpuint (lines->len, ==, NETD_FORWARDS_MAX / 2);
    for (guint i = 0; i < lines->len; i++)
      g_assert_nonnull (strstr (g_ptr_array_index (lines, i), " " VM " 22 udp 127.0.0.1 "));
  }
  add (fixture, &spec);
}

/* --- UDP --- */

static int
make_peer (guint16 port)
{
  struct sockaddr_in name = { .sin_family = AF_INET, .sin_port = g_htons (port) };
  int fd = socket (AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

  g_assert_cmpint (inet_pton (AF_INET, "127.0.0.1", &name.sin_addr), ==, 1);
  g_assert_cmpint (connect (fd, (struct sockaddr *) &name, sizeof name), ==, 0);
  return fd;
}

static void
expect_datagram (Fixture *fixture, int peer, const char *text)
{
  guint before = fixture->n_datagrams;
  NetdPacket back = { .payload = (const guint8 *) "back", .payload_length = 4, .source_port = 22 };

  kit_say (peer, text);
  KIT_TURN_UNTIL (fixture->network.loop, fixture->n_datagrams == before + 1);
  g_assert_cmpstr (fixture->datagram, ==, text);
  g_assert_cmpuint (fixture->datagram_destination, ==, 22);
  back.destination_port = fixture->datagram_source;
  g_assert_true (netd_udp_forwards_receive (fixture->network.port->gateway.udp, &back));
  kit_expect (fixture->network.loop, peer, "back");
}

static void
test_udp (Fixture *fixture, gconstpointer data)
{
  NetdForwardSpec spec = udp_spec ("f");
  guint16 port = add (fixture, &spec);
  int peer = make_peer (port);

  expect_datagram (fixture, peer, "hello");
  netd_forwards_port_attached (fixture->forwards, fixture->network.port); /* no change */
  expect_datagram (fixture, peer, "again");

  /* Away: the port stays taken, what comes meanwhile is lost. */
  unplug (fixture);
  kit_say (peer, "lost");
  g_assert_cmpuint (kit_count_turns (fixture->network.loop), <=, KIT_QUIET_TURNS);
  spec.id = "g";
  spec.host_port = port;
  expect_error (fixture, &spec, G_IO_ERROR_ADDRESS_IN_USE, "forward f of VM " VM);
  plug_in (fixture);
  expect_datagram (fixture, peer, "back again");
  close (peer);

  g_assert_true (netd_forwards_remove (fixture->forwards, "f"));
  g_assert_cmpuint (add (fixture, &spec), ==, port);
}

static void
test_udp_before_vm (Fixture *fixture, gconstpointer data)
{
  NetdForwardSpec spec = udp_spec ("f");
  NetdForwardSpec stranger = udp_spec ("g");
  guint16 port;
  int peer;

  unplug (fixture);
  stranger.vm_id = "vm-2";
  add (fixture, &stranger);
  port = add (fixture, &spec);
  peer = make_peer (port);
  kit_say (peer, "early");
  kit_settle (fixture->network.loop);
  plug_in (fixture);
  expect_datagram (fixture, peer, "in time");
  g_assert_cmpuint (fixture->n_datagrams, ==, 1);
  close (peer);
}

int
main (int argc, char **argv)
{
  static const struct
  {
    const char *name;
    void (*test) (Fixture *fixture, gconstpointer data);
  } tests[] = {
    { "/netd/forward/carried", test_carried },
    { "/netd/forward/guest-refuses", test_guest_refuses },
    { "/netd/forward/not-plugged-in", test_not_plugged_in },
    { "/netd/forward/removed", test_removed },
    { "/netd/forward/freed", test_freed },
    { "/netd/forward/connection-limit", test_connection_limit },
    { "/netd/forward/out-of-descriptors", test_out_of_descriptors },
    { "/netd/forward/same-again", test_same_again },
    { "/netd/forward/in-use", test_in_use },
    { "/netd/forward/privileged", test_privileged },
    { "/netd/forward/bad-spec", test_bad_spec },
    { "/netd/forward/v6", test_v6 },
    { "/netd/forward/limit", test_limit },
    { "/netd/forward/udp", test_udp },
    { "/netd/forward/udp-before-vm", test_udp_before_vm },
  };

  g_test_init (&argc, &argv, NULL);
  for (guint i = 0; i < G_N_ELEMENTS (tests); i++)
    g_test_add (tests[i].name, Fixture, NULL, set_up, tests[i].test, tear_down);
  return g_test_run ();
}

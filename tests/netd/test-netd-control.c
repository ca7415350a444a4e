/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The control socket: what is said to whom, which descriptor goes where, and what becomes of
 * clients that say nonsense, too much, or nothing. The network behind it is a fake one. */

#include "netd-control.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/un.h>

#include <gio/gio.h>
#include <glib/gstdio.h>
#include <json-glib/json-glib.h>

#include "netd-gateway.h"
#include "service-kit.h"

#define MANY_PORTS 100

/* --- A network that does nothing --- */

struct _NetdEngine
{
  guint n_cancelled;
};

struct _NetdGateway
{
  NetdEngine engine;
};

struct _NetdPort
{
  char *vm_id;
  NetdMac mac;
  guint32 ip;
  gboolean is_connected;
  NetdCounters counters;
  NetdGateway gateway;
};

struct _NetdDial
{
  NetdEngine *engine;
  guint16 port;
  guint timeout_ms;
  NetdDialFunc func;
  gpointer user_data;
};

struct _NetdNetwork
{
  NetdLoop *loop;
  NetdPlan plan;
  NetdCounters *counters;
  GPtrArray *ports;
  NetdPortFunc port_func;
  gpointer port_data;
  NetdCapture *capture;
};

struct _NetdForwards
{
  GPtrArray *ids;
  guint n_attached;
};

static GPtrArray *dials; /* of NetdDial, neither answered nor cancelled */
static NetdEngine *last_engine;

static void
port_free (gpointer data)
{
  NetdPort *port = data;

  g_free (port->vm_id);
  g_free (port);
}

NetdLoop *
netd_network_get_loop (NetdNetwork *self)
{
  return self->loop;
}

const NetdPlan *
netd_network_get_plan (NetdNetwork *self)
{
  return &self->plan;
}

NetdCounters *
netd_network_get_counters (NetdNetwork *self)
{
  return self->counters;
}

void
netd_network_set_port_func (NetdNetwork *self, NetdPortFunc func, gpointer user_data)
{
  self->port_func = func;
  self->port_data = user_data;
}

void
netd_network_set_capture (NetdNetwork *self, NetdCapture *capture)
{
  g_clear_pointer (&self->capture, netd_capture_free);
  self->capture = capture;
}

NetdPort *
netd_network_find (NetdNetwork *self, const char *vm_id)
{
  for (guint i = 0; i < self->ports->len; i++)
    if (g_str_equal (((NetdPort *) self->ports->pdata[i])->vm_id, vm_id))
      return self->ports->pdata[i];
  return NULL;
}

NetdPort *
netd_network_attach (NetdNetwork *self, const char *vm_id, const NetdMac *mac, guint32 ip,
                     GError **error)
{
  NetdPort *port = netd_network_find (self, vm_id);

  if (port != NULL)
    return port;
  if (ip >> 24 != 10)
    {
      g_set_error (error, G_IO_ERROR, G_IO_ERROR_INVALID_ARGUMENT, "not of this network");
      return NULL;
    }
  port = g_new0 (NetdPort, 1);
  port->vm_id = g_strdup (vm_id);
  port->mac = *mac;
  port->ip = ip;
  g_ptr_array_add (self->ports, port);
  return port;
}

gboolean
netd_network_detach (NetdNetwork *self, const char *vm_id)
{
  NetdPort *port = netd_network_find (self, vm_id);

  return port != NULL && g_ptr_array_remove (self->ports, port);
}

void
netd_network_foreach (NetdNetwork *self, NetdPortFunc func, gpointer user_data)
{
  for (guint i = 0; i < self->ports->len; i++)
    func (self->ports->pdata[i], user_data);
}

const char *
netd_port_get_vm_id (NetdPort *self)
{
  return self->vm_id;
}

const NetdMac *
netd_port_get_mac (NetdPort *self)
{
  return &self->mac;
}

guint32
netd_port_get_ip (NetdPort *self)
{
  return self->ip;
}

gboolean
netd_port_is_connected (NetdPort *self)
{
  return self->is_connected;
}

NetdCounters *
netd_port_get_counters (NetdPort *self)
{
  return &self->counters;
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

guint
netd_engine_get_flows (NetdEngine *self)
{
  return 7;
}

const char *
netd_engine_get_name (void)
{
  return "fake";
}

char *
netd_engine_dup_version (void)
{
  return g_strdup ("1.2.3");
}

NetdDial *
netd_engine_dial (NetdEngine *self, guint16 port, guint timeout_ms, NetdDialFunc func,
                  gpointer user_data)
{
  NetdDial *dial = g_new0 (NetdDial, 1);

  dial->engine = self;
  dial->port = port;
  dial->timeout_ms = timeout_ms;
  dial->func = func;
  dial->user_data = user_data;
  g_ptr_array_add (dials, dial);
  last_engine = self;
  return dial;
}

void
netd_dial_cancel (NetdDial *dial)
{
  dial->engine->n_cancelled++;
  g_assert_true (g_ptr_array_remove (dials, dial));
}

static void
answer_dial (int fd, int error_number)
{
  NetdDial *dial = dials->pdata[0];

  dial->func (fd, error_number, dial->user_data);
  g_assert_true (g_ptr_array_remove (dials, dial));
}

guint16
netd_forwards_add (NetdForwards *self, const NetdForwardSpec *spec, GError **error)
{
  if (spec->host_port == 80)
    {
      g_set_error (error, G_IO_ERROR, G_IO_ERROR_PERMISSION_DENIED, "ports below 1024 are taken");
      return 0;
    }
  if (spec->host_port == 8080)
    {
      g_set_error (error, G_IO_ERROR, G_IO_ERROR_ADDRESS_IN_USE, "8080 is in use");
      return 0;
    }
  g_ptr_array_add (self->ids, g_strdup (spec->id));
  return spec->host_port != 0 ? spec->host_port : spec->is_udp ? 5353 : 40000;
}

gboolean
netd_forwards_remove (NetdForwards *self, const char *id)
{
  guint index;

  return g_ptr_array_find_with_equal_func (self->ids, id, g_str_equal, &index)
         && g_ptr_array_remove_index (self->ids, index) != NULL;
}

void
netd_forwards_remove_vm (NetdForwards *self, const char *vm_id)
{
  g_ptr_array_set_size (self->ids, 0);
}

void
netd_forwards_port_attached (NetdForwards *self, NetdPort *port)
{
  self->n_attached++;
}

void
netd_forwards_foreach (NetdForwards *self, NetdForwardFunc func, gpointer user_data)
{
  for (guint i = 0; i < self->ids->len; i++)
    {
      NetdForwardSpec spec = {
        .id = self->ids->pdata[i],
        .vm_id = "vm-1",
        .port = 22,
        .host_address = "127.0.0.1",
        .host_port = 40000,
      };

      func (&spec, user_data);
    }
}

/* --- A client --- */

typedef struct
{
  NetdNetwork network;
  NetdForwards forwards;
  NetdControl *control;
  int counters_fd;
  char *directory;
  char *path;
} Fixture;

typedef struct
{
  NetdLoop *loop;
  int fd;
  GString *in;
  int fds[8];
  guint n_fds;
  gboolean is_over;
} Client;

static void
client_read (Client *client)
{
  char buffer[65536];
  char control[CMSG_SPACE (sizeof (int))];
  struct iovec piece = { buffer, sizeof buffer };
  struct msghdr message = { .msg_iov = &piece, .msg_iovlen = 1 };
  struct cmsghdr *header;
  gssize n;

  message.msg_control = control;
  message.msg_controllen = sizeof control;
  n = recvmsg (client->fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (n < 0 && errno == EAGAIN)
    return;
  if (n <= 0)
    {
      client->is_over = TRUE;
      return;
    }
  header = CMSG_FIRSTHDR (&message);
  if (header != NULL)
    {
      g_assert_cmpint (header->cmsg_type, ==, SCM_RIGHTS);
      memcpy (&client->fds[client->n_fds++], CMSG_DATA (header), sizeof (int));
    }
  g_string_append_len (client->in, buffer, n);
}

static gboolean
client_has_line (Client *client)
{
  client_read (client);
  return client->is_over || strchr (client->in->str, '\n') != NULL;
}

static JsonObject *
client_hear (Client *client)
{
  g_autoptr (JsonNode) node = NULL;
  g_autofree char *line = NULL;
  gsize length;

  KIT_TURN_UNTIL (client->loop, client_has_line (client));
  g_assert_nonnull (strchr (client->in->str, '\n'));
  length = strcspn (client->in->str, "\n");
  g_assert_cmpuint (length, <=, NETD_CONTROL_LINE_MAX);
  line = g_strndup (client->in->str, length);
  g_string_erase (client->in, 0, (gssize) length + 1);
  node = json_from_string (line, NULL);
  g_assert_nonnull (node);
  return json_node_dup_object (node);
}

static gboolean
client_is_over (Client *client)
{
  client_read (client);
  return client->is_over;
}

static int
client_take_fd (Client *client)
{
  g_assert_cmpuint (client->n_fds, ==, 1);
  client->n_fds = 0;
  return client->fds[0];
}

static Client *
client_connect (Fixture *fixture)
{
  Client *client = g_new0 (Client, 1);
  struct sockaddr_un address = { .sun_family = AF_UNIX };

  client->loop = fixture->network.loop;
  client->in = g_string_new (NULL);
  client->fd = socket (AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  g_strlcpy (address.sun_path, fixture->path, sizeof address.sun_path);
  g_assert_cmpint (connect (client->fd, (struct sockaddr *) &address, sizeof address), ==, 0);
  return client;
}

/* With the hello heard. */
static Client *
client_new (Fixture *fixture)
{
  Client *client = client_connect (fixture);
  JsonObject *hello = client_hear (client);

  close (client_take_fd (client));
  json_object_unref (hello);
  return client;
}

static void
client_free (Client *client)
{
  for (guint i = 0; i < client->n_fds; i++)
    close (client->fds[i]);
  close (client->fd);
  g_string_free (client->in, TRUE);
  kit_settle (client->loop);
  g_free (client);
}
G_DEFINE_AUTOPTR_CLEANUP_FUNC (Client, client_free)

static void
client_say_with_fd (Client *client, const char *line, int fd)
{
  char control[CMSG_SPACE (sizeof (int))] = { 0 };
  struct iovec piece = { (char *) line, strlen (line) };
  struct msghdr message = { .msg_iov = &piece, .msg_iovlen = 1 };
  struct cmsghdr *header;

  message.msg_control = control;
  message.msg_controllen = sizeof control;
  header = CMSG_FIRSTHDR (&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN (sizeof (int));
  memcpy (CMSG_DATA (header), &fd, sizeof fd);
  g_assert_cmpint (sendmsg (client->fd, &message, MSG_NOSIGNAL), ==, (gssize) strlen (line));
}

static JsonObject *
client_ask (Client *client, const char *line)
{
  kit_say (client->fd, line);
  return client_hear (client);
}

static JsonObject *
client_ask_well (Client *client, const char *line)
{
  g_autoptr (JsonObject) answer = client_ask (client, line);

  g_assert_cmpint (json_object_get_int_member (answer, "id"), ==, 5);
  g_assert_true (json_object_has_member (answer, "result"));
  return json_object_ref (json_object_get_object_member (answer, "result"));
}

static void
assert_refused (JsonObject *answer, const char *code, const char *message)
{
  JsonObject *error;

  g_assert_cmpint (json_object_get_int_member (answer, "id"), ==, 5);
  g_assert_false (json_object_has_member (answer, "result"));
  error = json_object_get_object_member (answer, "error");
  g_assert_cmpstr (json_object_get_string_member (error, "code"), ==, code);
  g_assert_nonnull (strstr (json_object_get_string_member (error, "message"), message));
}

#define REQUEST(method, params) "{\"id\":5,\"method\":\"" method "\",\"params\":{" params "}}\n"
#define ATTACH                                                                                     \
  REQUEST ("attach", "\"vm\":\"vm-1\",\"mac\":\"02:de:0a:4d:00:02\",\"ip\":\"10.77.0.2\"")

static void
ask_well (Client *client, const char *line)
{
  g_autoptr (JsonObject) result = client_ask_well (client, line);
}

static void
set_up (Fixture *fixture, gconstpointer data)
{
  struct sockaddr_un address = { .sun_family = AF_UNIX };
  int listener = socket (AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  g_autoptr (GError) error = NULL;

  fixture->directory = g_strdup ("/tmp/netd.XXXXXX");
  g_assert_nonnull (g_mkdtemp (fixture->directory));
  fixture->path = g_build_filename (fixture->directory, "control.sock", NULL);
  g_strlcpy (address.sun_path, fixture->path, sizeof address.sun_path);
  g_assert_cmpint (bind (listener, (struct sockaddr *) &address, sizeof address), ==, 0);
  g_assert_cmpint (listen (listener, 64), ==, 0);

  dials = g_ptr_array_new_with_free_func (g_free);
  fixture->network.loop = netd_loop_new ();
  fixture->network.plan.name = (char *) "lab";
  fixture->network.ports = g_ptr_array_new_with_free_func (port_free);
  fixture->network.counters = netd_counters_new_shared (&fixture->counters_fd, &error);
  g_assert_no_error (error);
  fixture->forwards.ids = g_ptr_array_new_with_free_func (g_free);
  fixture->control
      = netd_control_new (&fixture->network, &fixture->forwards, listener, fixture->counters_fd);
}

static void
tear_down (Fixture *fixture, gconstpointer data)
{
  netd_control_free (fixture->control);
  g_assert_null (fixture->network.port_func);
  g_assert_cmpuint (dials->len, ==, 0);
  g_ptr_array_unref (dials);
  netd_network_set_capture (&fixture->network, NULL);
  g_ptr_array_unref (fixture->network.ports);
  g_ptr_array_unref (fixture->forwards.ids);
  netd_loop_free (fixture->network.loop);
  munmap (fixture->network.counters, sizeof *fixture->network.counters);
  close (fixture->counters_fd);
  g_unlink (fixture->path);
  g_rmdir (fixture->directory);
  g_free (fixture->path);
  g_free (fixture->directory);
}

/* --- Tests --- */

static void
test_hello (Fixture *fixture, gconstpointer data)
{
  g_autoptr (Client) client = client_connect (fixture);
  g_autoptr (JsonObject) hello = client_hear (client);
  int fd = client_take_fd (client);
  JsonArray *names = json_object_get_array_member (hello, "counters");
  const NetdCounters *page = mmap (NULL, sizeof *page, PROT_READ, MAP_SHARED, fd, 0);

  g_assert_cmpstr (json_object_get_string_member (hello, "hello"), ==, "vmm-netd");
  g_assert_cmpint (json_object_get_int_member (hello, "version"), ==, 1);
  g_assert_cmpstr (json_object_get_string_member (hello, "network"), ==, "lab");
  g_assert_cmpint (json_object_get_int_member (hello, "pid"), ==, getpid ());
  g_assert_cmpstr (json_object_get_string_member (hello, "engine"), ==, "fake");
  g_assert_cmpstr (json_object_get_string_member (hello, "engine_version"), ==, "1.2.3");
  g_assert_cmpuint (json_array_get_length (json_object_get_array_member (hello, "features")), ==,
                    6);

  /* What is counted is seen without a message. */
  g_assert_true (page != MAP_FAILED);
  g_assert_cmpuint (json_array_get_length (names), ==, page->n_counts);
  g_assert_cmpstr (json_array_get_string_element (names, 1), ==, "bytes-received");
  fixture->network.counters->counts[NETD_COUNT_BYTES_RECEIVED] = 4711;
  g_assert_cmpuint (page->counts[1], ==, 4711);
  munmap ((gpointer) page, sizeof *page);
  close (fd);
}

static void
test_ports (Fixture *fixture, gconstpointer data)
{
  g_autoptr (Client) client = client_new (fixture);
  g_autoptr (JsonObject) status = NULL;
  g_autoptr (JsonObject) gone = NULL;
  JsonObject *port;

  ask_well (client, ATTACH);
  ask_well (client, ATTACH);
  g_assert_cmpuint (fixture->network.ports->len, ==, 1);
  g_assert_cmpuint (fixture->forwards.n_attached, ==, 2);
  netd_network_find (&fixture->network, "vm-1")->counters.counts[NETD_COUNT_SPOOFED_IP] = 3;

  status = client_ask_well (client, "{\"id\":5,\"method\":\"status\"}\n");
  g_assert_cmpint (json_object_get_int_member (status, "n_ports"), ==, 1);
  port = json_array_get_object_element (json_object_get_array_member (status, "ports"), 0);
  g_assert_cmpstr (json_object_get_string_member (port, "vm"), ==, "vm-1");
  g_assert_cmpstr (json_object_get_string_member (port, "mac"), ==, "02:de:0a:4d:00:02");
  g_assert_cmpstr (json_object_get_string_member (port, "ip"), ==, "10.77.0.2");
  g_assert_false (json_object_get_boolean_member (port, "connected"));
  g_assert_cmpint (json_object_get_int_member (port, "flows"), ==, 7);
  g_assert_cmpint (
      json_object_get_int_member (json_object_get_object_member (port, "counters"), "spoofed-ip"),
      ==, 3);

  ask_well (client, REQUEST ("detach", "\"vm\":\"vm-1\""));
  g_assert_cmpuint (fixture->network.ports->len, ==, 0);
  gone = client_ask (client, REQUEST ("detach", "\"vm\":\"vm-1\""));
  assert_refused (gone, "not_found", "vm-1 is not attached");
}

/* Whatever there is, no line is too long: client_hear() checks that. */
static void
test_status_of_many (Fixture *fixture, gconstpointer data)
{
  g_autoptr (Client) client = client_new (fixture);
  g_autoptr (GHashTable) seen = g_hash_table_new_full (g_str_hash, g_str_equal, g_free, NULL);
  g_autofree char *long_name = g_strnfill (NETD_VM_ID_MAX - 5, 'v');
  NetdMac mac = { { 0 } };

  for (guint i = 0; i < MANY_PORTS; i++)
    {
      g_autofree char *vm_id = g_strdup_printf ("%s-%03u", long_name, i);
      NetdPort *port
          = netd_network_attach (&fixture->network, vm_id, &mac, NETD_IP (10, 0, 0, i), NULL);

      memset (port->counters.counts, 0x7f, sizeof port->counters.counts);
      g_ptr_array_add (fixture->forwards.ids, g_strnfill (128, 'f'));
    }
  while (g_hash_table_size (seen) < MANY_PORTS)
    {
      g_autofree char *line = g_strdup_printf (
          "{\"id\":5,\"method\":\"status\",\"params\":{\"first_port\":%u,\"first_forward\":%u}}\n",
          g_hash_table_size (seen), g_hash_table_size (seen));
      g_autoptr (JsonObject) status = client_ask_well (client, line);
      JsonArray *ports = json_object_get_array_member (status, "ports");

      g_assert_cmpint (json_object_get_int_member (status, "n_ports"), ==, MANY_PORTS);
      g_assert_cmpint (json_object_get_int_member (status, "n_forwards"), ==, MANY_PORTS);
      g_assert_cmpuint (json_array_get_length (ports), >, 0);
      for (guint i = 0; i < json_array_get_length (ports); i++)
        g_assert_true (
            g_hash_table_add (seen, g_strdup (json_object_get_string_member (
                                        json_array_get_object_element (ports, i), "vm"))));
    }
}

static void
test_refusals (Fixture *fixture, gconstpointer data)
{
  static const struct
  {
    const char *line;
    const char *code;
    const char *message;
  } cases[] = {
    { REQUEST ("fly", ""), "unsupported", "no such method" },
    { "{\"id\":5}\n", "invalid_request", "method" },
    { "{\"id\":5,\"method\":7}\n", "invalid_request", "method" },
    { "{\"id\":5,\"method\":\"status\",\"params\":[]}\n", "invalid_request", "params" },
    { REQUEST ("attach", ""), "invalid_request", "\"vm\"" },
    { REQUEST ("attach", "\"vm\":\"\""), "invalid_request", "\"vm\"" },
    { REQUEST ("attach", "\"vm\":7"), "invalid_request", "\"vm\"" },
    { REQUEST ("attach", "\"vm\":\"v\",\"mac\":\"x\",\"ip\":\"10.0.0.1\""), "invalid_request",
      "MAC" },
    { REQUEST ("attach", "\"vm\":\"v\",\"mac\":\"02:00:00:00:00:01\",\"ip\":\"x\""),
      "invalid_request", "IPv4" },
    { REQUEST ("attach", "\"vm\":\"v\",\"mac\":\"02:00:00:00:00:01\",\"ip\":\"1.0.0.1\""),
      "invalid_request", "not of this network" },
    { REQUEST ("dial", "\"vm\":\"vm-2\",\"port\":22"), "not_found", "vm-2" },
    { REQUEST ("dial", "\"vm\":\"vm-1\",\"port\":0"), "invalid_request", "1 to 65535" },
    { REQUEST ("dial", "\"vm\":\"vm-1\",\"port\":65536"), "invalid_request", "1 to 65535" },
    { REQUEST ("dial", "\"vm\":\"vm-1\",\"port\":22,\"timeout_ms\":-1"), "invalid_request",
      "timeout_ms" },
    { REQUEST ("forward", "\"id\":\"f\",\"vm\":\"vm-2\",\"port\":22,\"protocol\":\"tcp\","
                          "\"host_address\":\"127.0.0.1\",\"host_port\":0"),
      "not_found", "vm-2" },
    { REQUEST ("forward", "\"id\":\"f\",\"vm\":\"vm-1\",\"port\":22,\"protocol\":\"sctp\","
                          "\"host_address\":\"127.0.0.1\",\"host_port\":0"),
      "unsupported", "protocol" },
    { REQUEST ("forward", "\"id\":\"f\",\"vm\":\"vm-1\",\"port\":22,\"protocol\":\"tcp\","
                          "\"host_address\":\"127.0.0.1\",\"host_port\":80"),
      "invalid_request", "below 1024" },
    { REQUEST ("forward", "\"id\":\"f\",\"vm\":\"vm-1\",\"port\":22,\"protocol\":\"tcp\","
                          "\"host_address\":\"127.0.0.1\",\"host_port\":8080"),
      "conflict", "in use" },
    { REQUEST ("unforward", "\"id\":\"f\""), "not_found", "f" },
    { REQUEST ("capture", "\"max_bytes\":1000"), "invalid_request", "open file" },
    { REQUEST ("status", "\"first_port\":-1"), "invalid_request", "first_port" },
  };
  g_autoptr (Client) client = client_new (fixture);

  ask_well (client, ATTACH);
  for (guint i = 0; i < G_N_ELEMENTS (cases); i++)
    {
      g_autoptr (JsonObject) answer = client_ask (client, cases[i].line);

      assert_refused (answer, cases[i].code, cases[i].message);
    }
  g_assert_cmpuint (fixture->network.ports->len, ==, 1);
  g_assert_cmpuint (dials->len, ==, 0);
}

static void
test_forwards (Fixture *fixture, gconstpointer data)
{
  g_autoptr (Client) client = client_new (fixture);
  g_autoptr (JsonObject) tcp = NULL;
  g_autoptr (JsonObject) udp = NULL;
  g_autoptr (JsonObject) status = NULL;

  ask_well (client, ATTACH);
  tcp = client_ask_well (
      client, REQUEST ("forward", "\"id\":\"f1\",\"vm\":\"vm-1\",\"port\":22,\"protocol\":\"tcp\","
                                  "\"host_address\":\"127.0.0.1\",\"host_port\":0"));
  g_assert_cmpint (json_object_get_int_member (tcp, "host_port"), ==, 40000);
  udp = client_ask_well (
      client, REQUEST ("forward", "\"id\":\"f2\",\"vm\":\"vm-1\",\"port\":53,\"protocol\":\"udp\","
                                  "\"host_address\":\"::1\",\"host_port\":0"));
  g_assert_cmpint (json_object_get_int_member (udp, "host_port"), ==, 5353);
  ask_well (client, REQUEST ("unforward", "\"id\":\"f1\""));
  status = client_ask_well (client, REQUEST ("status", ""));
  g_assert_cmpint (json_object_get_int_member (status, "n_forwards"), ==, 1);
  ask_well (client, REQUEST ("detach", "\"vm\":\"vm-1\""));
  g_assert_cmpuint (fixture->forwards.ids->len, ==, 0);
}

static void
test_dial (Fixture *fixture, gconstpointer data)
{
  static const struct
  {
    int number;
    const char *code;
    const char *message;
  } cases[] = {
    { ECONNREFUSED, "internal_error", "refuses" }, { ETIMEDOUT, "timeout", "does not answer" },
    { ENOBUFS, "conflict", "too many" },           { ENETDOWN, "not_found", "detached" },
    { EIO, "internal_error", "Input/output" },
  };
  const char *request = REQUEST ("dial", "\"vm\":\"vm-1\",\"port\":22,\"timeout_ms\":1234");
  g_autoptr (Client) client = client_new (fixture);
  g_autoptr (JsonObject) answer = NULL;
  int pair[2];
  int fd;

  ask_well (client, ATTACH);
  kit_say (client->fd, request);
  KIT_TURN_UNTIL (client->loop, dials->len == 1);
  g_assert_cmpuint (((NetdDial *) dials->pdata[0])->port, ==, 22);
  g_assert_cmpuint (((NetdDial *) dials->pdata[0])->timeout_ms, ==, 1234);
  kit_unix_pair (pair);
  answer_dial (pair[0], 0);
  answer = client_hear (client);
  g_assert_true (json_object_has_member (answer, "result"));
  fd = client_take_fd (client);
  kit_say (fd, "ssh");
  kit_expect (client->loop, pair[1], "ssh");
  close (fd);
  close (pair[1]);

  for (guint i = 0; i < G_N_ELEMENTS (cases); i++)
    {
      g_autoptr (JsonObject) refused = NULL;

      kit_say (client->fd, request);
      KIT_TURN_UNTIL (client->loop, dials->len == 1);
      answer_dial (-1, cases[i].number);
      refused = client_hear (client);
      assert_refused (refused, cases[i].code, cases[i].message);
    }
}

/* Nobody is left to take them. */
static void
test_dials_end_with_the_client (Fixture *fixture, gconstpointer data)
{
  Client *client = client_new (fixture);

  ask_well (client, ATTACH);
  for (guint i = 0; i < 3; i++)
    kit_say (client->fd, REQUEST ("dial", "\"vm\":\"vm-1\",\"port\":22"));
  KIT_TURN_UNTIL (client->loop, dials->len == 3);
  client_free (client);
  KIT_TURN_UNTIL (fixture->network.loop, dials->len == 0);
  g_assert_cmpuint (last_engine->n_cancelled, ==, 3);
}

static void
test_too_many_dials (Fixture *fixture, gconstpointer data)
{
  g_autoptr (Client) client = client_new (fixture);
  g_autoptr (JsonObject) answer = NULL;

  ask_well (client, ATTACH);
  for (guint i = 0; i <= 256; i++)
    {
      kit_say (client->fd, REQUEST ("dial", "\"vm\":\"vm-1\",\"port\":22"));
      kit_settle (client->loop);
    }
  answer = client_hear (client);
  assert_refused (answer, "conflict", "too many");
  g_assert_cmpuint (dials->len, ==, 256);
}

static void
test_events (Fixture *fixture, gconstpointer data)
{
  g_autoptr (Client) first = client_new (fixture);
  g_autoptr (Client) second = client_new (fixture);
  Client *clients[] = { first, second };
  NetdPort *port;

  ask_well (first, ATTACH);
  port = netd_network_find (&fixture->network, "vm-1");
  for (guint connected = 2; connected-- > 0;)
    {
      port->is_connected = connected;
      fixture->network.port_func (port, fixture->network.port_data);
      for (guint i = 0; i < 2; i++)
        {
          g_autoptr (JsonObject) event = client_hear (clients[i]);

          g_assert_cmpstr (json_object_get_string_member (event, "event"), ==, "port");
          g_assert_cmpstr (json_object_get_string_member (event, "vm"), ==, "vm-1");
          g_assert_cmpint (json_object_get_boolean_member (event, "connected"), ==, connected);
        }
    }
}

static void
test_capture (Fixture *fixture, gconstpointer data)
{
  g_autofree char *path = g_build_filename (fixture->directory, "capture", NULL);
  g_autoptr (Client) client = client_new (fixture);
  g_autoptr (JsonObject) pipe_answer = NULL;
  g_autoptr (JsonObject) late = NULL;
  g_autoptr (JsonObject) taken = NULL;
  int file = open (path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  int fds[2];

  /* One that comes with a line that has no use for it is not kept for the next. */
  client_say_with_fd (client, REQUEST ("status", ""), file);
  json_object_unref (client_hear (client));
  late = client_ask (client, REQUEST ("capture", "\"max_bytes\":100000"));
  assert_refused (late, "invalid_request", "open file");

  g_assert_cmpint (pipe2 (fds, O_CLOEXEC), ==, 0);
  client_say_with_fd (client, REQUEST ("capture", "\"max_bytes\":100000"), fds[1]);
  pipe_answer = client_hear (client);
  assert_refused (pipe_answer, "invalid_request", "regular file");
  close (fds[0]);
  close (fds[1]);
  g_assert_null (fixture->network.capture);

  client_say_with_fd (client, REQUEST ("capture", "\"max_bytes\":100000"), file);
  taken = client_hear (client);
  g_assert_true (json_object_has_member (taken, "result"));
  g_assert_nonnull (fixture->network.capture);
  ask_well (client, REQUEST ("capture-stop", ""));
  g_assert_null (fixture->network.capture);
  g_assert_cmpint (lseek (file, 0, SEEK_END), ==, 24); /* its head */
  close (file);
  g_unlink (path);
}

static void
test_nonsense (Fixture *fixture, gconstpointer data)
{
  g_autofree char *deep = g_strnfill (60000, '[');
  g_autofree char *long_line = g_strnfill (NETD_CONTROL_LINE_MAX + 1, ' ');
  const char *lines[] = {
    "\n",
    "not json\n",
    "[]\n",
    "7\n",
    "{}\n",
    "{\"id\":\"5\",\"method\":\"status\"}\n",
    "{\"id\":{},\"method\":7}\n",
    "\xff\xfe\n",
    deep,
    long_line,
  };

  for (guint i = 0; i < G_N_ELEMENTS (lines); i++)
    {
      g_autoptr (Client) client = client_new (fixture);
      g_autoptr (Client) other = client_new (fixture);
      gsize length = strlen (lines[i]);
      gsize sent = 0;

      while (sent < length && !client->is_over)
        {
          gssize n = send (client->fd, lines[i] + sent, length - sent, MSG_DONTWAIT | MSG_NOSIGNAL);

          sent += n > 0 ? (gsize) n : 0;
          client->is_over = n < 0 && errno != EAGAIN;
          netd_loop_turn (client->loop, 0);
        }
      if (lines[i] == deep)
        send (client->fd, "\n", 1, MSG_NOSIGNAL);
      KIT_TURN_UNTIL (client->loop, client_is_over (client));
      ask_well (other, REQUEST ("status", ""));
    }
}

/* Lines in pieces, and many in one. */
static void
test_pieces (Fixture *fixture, gconstpointer data)
{
  g_autoptr (Client) client = client_new (fixture);
  const char *line = REQUEST ("capture-stop", "");
  g_autofree char *twice = g_strconcat (line, line, NULL);

  for (const char *c = line; *c != '\0'; c++)
    {
      g_assert_cmpint (send (client->fd, c, 1, 0), ==, 1);
      netd_loop_turn (client->loop, 0);
    }
  json_object_unref (client_hear (client));
  kit_say (client->fd, twice);
  json_object_unref (client_hear (client));
  json_object_unref (client_hear (client));
}

static void
test_clients_are_counted (Fixture *fixture, gconstpointer data)
{
  g_autoptr (GPtrArray) clients = g_ptr_array_new_with_free_func ((GDestroyNotify) client_free);
  g_autoptr (Client) one_too_many = NULL;

  for (guint i = 0; i < NETD_CONTROL_CLIENTS_MAX; i++)
    g_ptr_array_add (clients, client_new (fixture));
  one_too_many = client_connect (fixture);
  KIT_TURN_UNTIL (fixture->network.loop, client_is_over (one_too_many));
  g_assert_cmpuint (one_too_many->in->len, ==, 0);
  /* A place that is free is given away again. */
  g_ptr_array_remove_index (clients, 0);
  g_ptr_array_add (clients, client_new (fixture));
}

/* One that asks and never reads is dropped; the others are served. */
static void
test_client_that_never_reads (Fixture *fixture, gconstpointer data)
{
  g_autoptr (Client) stuck = client_new (fixture);
  g_autoptr (Client) other = client_new (fixture);
  const char *line = REQUEST ("status", "");
  gboolean is_dropped = FALSE;

  for (guint i = 0; i < 100000 && !is_dropped; i++)
    {
      gssize n = send (stuck->fd, line, strlen (line), MSG_DONTWAIT | MSG_NOSIGNAL);

      is_dropped = n < 0 && errno == EPIPE;
      netd_loop_turn (stuck->loop, 0);
    }
  g_assert_true (is_dropped);
  ask_well (other, line);
}

static void
test_quiet (Fixture *fixture, gconstpointer data)
{
  g_autoptr (Client) client = client_new (fixture);

  ask_well (client, ATTACH);
  g_assert_cmpuint (kit_count_turns (client->loop), <=, KIT_QUIET_TURNS);
}

/* No descriptor is left: it waits instead of turning in vain, and goes on afterwards. */
static void
test_no_descriptors (Fixture *fixture, gconstpointer data)
{
  g_autoptr (Client) client = client_connect (fixture);
  g_autoptr (JsonObject) hello = NULL;
  struct rlimit limit;
  struct rlimit none;
  int lowest = fcntl (0, F_DUPFD_CLOEXEC, 0);

  close (lowest);
  g_assert_cmpint (getrlimit (RLIMIT_NOFILE, &limit), ==, 0);
  none = limit;
  none.rlim_cur = (rlim_t) lowest;
  g_assert_cmpint (setrlimit (RLIMIT_NOFILE, &none), ==, 0);
  kit_settle (client->loop);
  g_assert_cmpuint (kit_count_turns (client->loop), <=, KIT_QUIET_TURNS);
  g_assert_cmpint (setrlimit (RLIMIT_NOFILE, &limit), ==, 0);
  test_clock_advance (1000);
  hello = client_hear (client);
}

int
main (int argc, char **argv)
{
  g_test_init (&argc, &argv, NULL);
#define ADD(path, function)                                                                        \
  g_test_add ("/netd/control/" path, Fixture, NULL, set_up, function, tear_down)
  ADD ("hello", test_hello);
  ADD ("ports", test_ports);
  ADD ("status-of-many", test_status_of_many);
  ADD ("refusals", test_refusals);
  ADD ("forwards", test_forwards);
  ADD ("dial", test_dial);
  ADD ("dial/ends-with-the-client", test_dials_end_with_the_client);
  ADD ("dial/too-many", test_too_many_dials);
  ADD ("events", test_events);
  ADD ("capture", test_capture);
  ADD ("nonsense", test_nonsense);
  ADD ("pieces", test_pieces);
  ADD ("clients/counted", test_clients_are_counted);
  ADD ("clients/never-reads", test_client_that_never_reads);
  ADD ("quiet", test_quiet);
  ADD ("no-descriptors", test_no_descriptors);
#undef ADD
  return g_test_run ();
}

/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The segment that the guests of one network share. Who is where is known from the leases: a table
 * from MAC addresses to ports that frames cannot change. A frame goes to the gateway, to one guest,
 * or, as a broadcast, to all; what has no receiver ends here, as there is nobody it could be
 * flooded to.
 *
 * What concerns a guest and its gateway alone, ARP for the gateway's addresses and DHCP, is kept
 * from the others: it would be noise to them, or a chance to answer in the gateway's place.
 *
 * Ports that got something to send are listed and written out at the end of the turn.
 */
#include "netd-network.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include <gio/gio.h>

#include "netd-dhcp.h"
#include "netd-gateway.h"
#include "netd-guard.h"

#define PORTS_MAX 65532
#define READ_BUFFER_SIZE (256 * 1024)

/* Of the descriptors there may be: one part in so many is not for guests. */
#define DESCRIPTORS_KEPT 8
#define DESCRIPTORS_PER_FLOW 4

/* Copies of a broadcast that cost as much as one wasted frame. */
#define COPIES_PER_CHARGE 4

struct _NetdNetwork
{
  NetdLoop *loop;
  const NetdPlan *plan;
  NetdCounters *counters;
  NetdOpener *opener;
  char *socket_directory;
  NetdCapture *capture;
  NetdResolvers resolvers;
  NetdPortFunc port_func;
  gpointer port_data;

  GHashTable *by_vm_id; /* the keys are the ports' */
  GHashTable *by_mac;
  GHashTable *by_ip;
  GPtrArray *slots; /* ports by index, NULL where none is */
  guint first_free; /* no slot before it is free */

  GPtrArray *dirty; /* ports to flush at the end of the turn */
  GPtrArray *spare; /* the other list: while ports are flushed, theirs; else empty */
  NetdTimer *timer; /* for those that became dirty while others were flushed */

  guint descriptors; /* at most */
  guint most_flows;
  guint n_flows; /* of all ports, as of flows_at */
  gint64 flows_at;

  guint8 *buffer;
};

static guint
mac_hash (gconstpointer key)
{
  const NetdMac *mac = key;
  guint32 low;

  memcpy (&low, mac->octets + 2, sizeof low);
  return low ^ (guint32) mac->octets[1] << 8 ^ mac->octets[0];
}

static gboolean
mac_equal (gconstpointer a, gconstpointer b)
{
  return netd_mac_equal (a, b);
}

/* --- Frames --- */

static void
flood (NetdNetwork *self, NetdPort *from, const guint8 *frame, gsize length)
{
  guint n_copies = 0;

  for (guint i = 0; i < self->slots->len; i++)
    {
      NetdPort *port = g_ptr_array_index (self->slots, i);

      if (port == NULL || port == from || !netd_port_is_connected (port))
        continue;
      netd_port_send (port, frame, length, NETD_ORIGIN_GUEST);
      n_copies++;
    }
  netd_port_charge (from, NETD_CHARGE_FRAME * (1 + n_copies / COPIES_PER_CHARGE));
}

/* Of no interest to anybody but the gateway. */
static gboolean
is_for_gateway_alone (NetdNetwork *self, const NetdPacket *packet)
{
  NetdPlace place;

  if (packet->kind == NETD_PACKET_IPV4)
    return netd_dhcp_is_request (packet);
  if (packet->kind != NETD_PACKET_ARP || packet->arp_operation != 1)
    return FALSE;
  place = netd_plan_place (self->plan, packet->arp_target_ip);
  return place == NETD_PLACE_GATEWAY || place == NETD_PLACE_METADATA || place == NETD_PLACE_ALIAS;
}

static void
receive_broadcast (NetdNetwork *self, NetdPort *from, const NetdPacket *packet, guint8 *frame)
{
  if (!is_for_gateway_alone (self, packet))
    flood (self, from, frame, packet->length);
  netd_gateway_receive (netd_port_get_gateway (from), packet, frame);
}

static void
receive_for_guest (NetdNetwork *self, NetdPort *from, const NetdPacket *packet, const guint8 *frame)
{
  NetdPort *to = g_hash_table_lookup (self->by_mac, &packet->destination);

  if (to == NULL || to == from || !netd_port_is_connected (to))
    netd_port_count (from, NETD_COUNT_NO_RECEIVER, 1);
  else if (!netd_port_send (to, frame, packet->length, NETD_ORIGIN_GUEST))
    netd_port_charge (from, NETD_CHARGE_FRAME);
}

void
netd_network_receive (NetdNetwork *self, NetdPort *port, guint8 *frame, gsize length)
{
  NetdPacket packet;
  NetdCount refusal;

  netd_packet_parse (&packet, frame, length);
  if (self->capture != NULL)
    netd_capture_frame (self->capture, frame, length);
  refusal
      = netd_guard_check (self->plan, netd_port_get_mac (port), netd_port_get_ip (port), &packet);
  if (refusal != NETD_N_COUNTS)
    netd_port_count (port, refusal, 1);
  else if (netd_mac_equal (&packet.destination, &self->plan->gateway_mac))
    netd_gateway_receive (netd_port_get_gateway (port), &packet, frame);
  else if (netd_packet_is_broadcast (&packet))
    receive_broadcast (self, port, &packet, frame);
  else
    receive_for_guest (self, port, &packet, frame);
}

void
netd_network_batch_done (NetdNetwork *self, NetdPort *port)
{
  netd_gateway_batch_done (netd_port_get_gateway (port));
}

/* --- The end of a turn --- */

void
netd_network_mark_dirty (NetdNetwork *self, NetdPort *port)
{
  if (!netd_port_set_dirty (port, TRUE))
    g_ptr_array_add (self->dirty, port);
}

static void
forget_dirty (NetdNetwork *self, NetdPort *port)
{
  guint index;

  if (!netd_port_set_dirty (port, FALSE) || g_ptr_array_remove_fast (self->dirty, port))
    return;
  if (g_ptr_array_find (self->spare, port, &index))
    g_ptr_array_index (self->spare, index) = NULL;
}

/* Flushing may make ports dirty again, when it lets an engine go on: theirs is the next turn. */
static void
turn_cb (gpointer user_data)
{
  NetdNetwork *self = user_data;
  GPtrArray *ports = self->dirty;

  self->dirty = self->spare;
  self->spare = ports;
  for (guint i = 0; i < ports->len; i++)
    {
      NetdPort *port = g_ptr_array_index (ports, i);

      if (port == NULL)
        continue;
      netd_port_set_dirty (port, FALSE);
      netd_port_flush (port);
    }
  g_ptr_array_set_size (ports, 0);
  if (self->dirty->len > 0)
    netd_timer_start (self->timer, 0);
  if (self->capture == NULL)
    return;
  netd_capture_flush (self->capture);
  if (netd_capture_is_full (self->capture))
    g_clear_pointer (&self->capture, netd_capture_free);
}

/* Its only purpose is that the loop does not sleep. */
static void
timer_cb (gpointer user_data)
{
}

/* --- Ports --- */

static void
add_port (NetdNetwork *self, NetdPort *port)
{
  guint index = netd_port_get_index (port);

  if (index == self->slots->len)
    g_ptr_array_add (self->slots, NULL);
  g_ptr_array_index (self->slots, index) = port;
  self->first_free = index + 1;
  g_hash_table_insert (self->by_vm_id, (gpointer) netd_port_get_vm_id (port), port);
  g_hash_table_insert (self->by_mac, (gpointer) netd_port_get_mac (port), port);
  g_hash_table_insert (self->by_ip, GUINT_TO_POINTER (netd_port_get_ip (port)), port);
}

static void
remove_port (NetdNetwork *self, NetdPort *port)
{
  guint index = netd_port_get_index (port);

  g_hash_table_remove (self->by_vm_id, netd_port_get_vm_id (port));
  g_hash_table_remove (self->by_mac, netd_port_get_mac (port));
  g_hash_table_remove (self->by_ip, GUINT_TO_POINTER (netd_port_get_ip (port)));
  g_ptr_array_index (self->slots, index) = NULL;
  self->first_free = MIN (self->first_free, index);
  forget_dirty (self, port);
  netd_port_free (port);
}

static guint
find_free_slot (NetdNetwork *self)
{
  guint index = self->first_free;

  while (index < self->slots->len && g_ptr_array_index (self->slots, index) != NULL)
    index++;
  return index;
}

static gboolean
is_lease_possible (const NetdPlan *plan, const NetdMac *mac, guint32 ip)
{
  if ((mac->octets[0] & 1) != 0 || netd_mac_equal (mac, &plan->gateway_mac))
    return FALSE;
  return (ip & plan->netmask) == plan->network && ip != plan->network && ip != plan->gateway
         && ip != plan->broadcast && ip != plan->host_alias;
}

static gboolean
check_attach (NetdNetwork *self, const char *vm_id, const NetdMac *mac, guint32 ip, GError **error)
{
  if (*vm_id == '\0' || strlen (vm_id) >= NETD_VM_ID_MAX)
    {
      g_set_error (error, G_IO_ERROR, G_IO_ERROR_INVALID_ARGUMENT,
                   "a VM's id has 1 to %d characters", NETD_VM_ID_MAX - 1);
      return FALSE;
    }
  if (!is_lease_possible (self->plan, mac, ip))
    {
      char mac_text[18];
      char ip_text[16];

      netd_mac_to_text (mac, mac_text);
      netd_ip_to_text (ip, ip_text);
      g_set_error (error, G_IO_ERROR, G_IO_ERROR_INVALID_ARGUMENT,
                   "%s with %s is not a lease of network %s", ip_text, mac_text, self->plan->name);
      return FALSE;
    }
  return TRUE;
}

/* Whoever has something that the new lease needs has lost it. */
static void
make_way (NetdNetwork *self, const char *vm_id, const NetdMac *mac, guint32 ip)
{
  NetdPort *others[] = {
    g_hash_table_lookup (self->by_vm_id, vm_id),
    NULL,
    NULL,
  };

  if (others[0] != NULL)
    remove_port (self, others[0]);
  others[1] = g_hash_table_lookup (self->by_mac, mac);
  if (others[1] != NULL)
    remove_port (self, others[1]);
  others[2] = g_hash_table_lookup (self->by_ip, GUINT_TO_POINTER (ip));
  if (others[2] != NULL)
    remove_port (self, others[2]);
}

NetdPort *
netd_network_attach (NetdNetwork *self, const char *vm_id, const NetdMac *mac, guint32 ip,
                     GError **error)
{
  NetdPort *port = netd_network_find (self, vm_id);
  guint index;

  if (port != NULL && netd_mac_equal (netd_port_get_mac (port), mac)
      && netd_port_get_ip (port) == ip)
    return port;
  if (!check_attach (self, vm_id, mac, ip, error))
    return NULL;
  make_way (self, vm_id, mac, ip);
  index = find_free_slot (self);
  if (index >= PORTS_MAX)
    {
      g_set_error (error, G_IO_ERROR, G_IO_ERROR_NO_SPACE, "network %s has no free port",
                   self->plan->name);
      return NULL;
    }
  port = netd_port_new (self, index, vm_id, mac, ip);
  add_port (self, port);
  netd_port_dial (port);
  return port;
}

gboolean
netd_network_detach (NetdNetwork *self, const char *vm_id)
{
  NetdPort *port = netd_network_find (self, vm_id);

  if (port == NULL)
    return FALSE;
  remove_port (self, port);
  return TRUE;
}

NetdPort *
netd_network_find (NetdNetwork *self, const char *vm_id)
{
  return g_hash_table_lookup (self->by_vm_id, vm_id);
}

void
netd_network_foreach (NetdNetwork *self, NetdPortFunc func, gpointer user_data)
{
  for (guint i = 0; i < self->slots->len; i++)
    {
      NetdPort *port = g_ptr_array_index (self->slots, i);

      if (port != NULL)
        func (port, user_data);
    }
}

void
netd_network_port_changed (NetdNetwork *self, NetdPort *port)
{
  if (self->port_func != NULL)
    self->port_func (port, self->port_data);
}

/* --- Flows --- */

static guint
count_flows (NetdPort *port)
{
  return netd_engine_get_flows (netd_gateway_get_engine (netd_port_get_gateway (port)));
}

static void
add_flows (NetdPort *port, gpointer user_data)
{
  guint *n_flows = user_data;

  *n_flows += count_flows (port);
}

/* Half of what the network may have is for whoever comes first; the other half is shared out, so
 * that no guest finds all of it taken. */
gboolean
netd_flows_have_room (guint most, guint all, guint own, guint n_ports)
{
  guint half = most / 2;

  return all < half || (all < most && own < MAX (half / MAX (n_ports, 1), 1));
}

/* Descriptors are given out from the lowest number on. */
gboolean
netd_network_has_descriptors (NetdNetwork *self)
{
  int next = fcntl (STDERR_FILENO, F_DUPFD_CLOEXEC, 0);

  if (next < 0)
    return errno != EMFILE && errno != ENFILE;
  close (next);
  return (guint) next < self->descriptors - self->descriptors / DESCRIPTORS_KEPT;
}

static void
set_up_limits (NetdNetwork *self)
{
  struct rlimit limit = { .rlim_cur = RLIM_INFINITY };

  if (getrlimit (RLIMIT_NOFILE, &limit) < 0)
    g_warning ("the limit of descriptors is not known: %s", g_strerror (errno));
  self->descriptors = (guint) MIN (limit.rlim_cur, G_MAXINT);
  self->most_flows = MIN (NETD_FLOWS_PER_NETWORK, self->descriptors / DESCRIPTORS_PER_FLOW);
}

/* The sum is made anew once in a millisecond at most. */
gboolean
netd_network_admit_flow (NetdNetwork *self, NetdPort *port)
{
  if (self->flows_at != netd_loop_now (self->loop))
    {
      self->flows_at = netd_loop_now (self->loop);
      self->n_flows = 0;
      netd_network_foreach (self, add_flows, &self->n_flows);
    }
  if (!netd_flows_have_room (self->most_flows, self->n_flows, count_flows (port),
                             g_hash_table_size (self->by_vm_id))
      || !netd_network_has_descriptors (self))
    return FALSE;
  self->n_flows++;
  return TRUE;
}

/* --- The network --- */

NetdNetwork *
netd_network_new (NetdLoop *loop, const NetdPlan *plan, NetdCounters *counters)
{
  NetdNetwork *self = g_new0 (NetdNetwork, 1);

  self->loop = loop;
  self->plan = plan;
  self->counters = counters;
  self->by_vm_id = g_hash_table_new (g_str_hash, g_str_equal);
  self->by_mac = g_hash_table_new (mac_hash, mac_equal);
  self->by_ip = g_hash_table_new (NULL, NULL);
  self->slots = g_ptr_array_new ();
  self->dirty = g_ptr_array_new ();
  self->spare = g_ptr_array_new ();
  self->timer = netd_timer_new (loop, timer_cb, self);
  self->flows_at = -1;
  set_up_limits (self);
  self->buffer = g_malloc (READ_BUFFER_SIZE);
  netd_resolvers_parse (&self->resolvers, "");
  netd_loop_set_turn_func (loop, turn_cb, self);
  return self;
}

void
netd_network_free (NetdNetwork *self)
{
  self->port_func = NULL;
  netd_loop_set_turn_func (self->loop, NULL, NULL);
  for (guint i = 0; i < self->slots->len; i++)
    {
      NetdPort *port = g_ptr_array_index (self->slots, i);

      if (port != NULL)
        remove_port (self, port);
    }
  g_hash_table_unref (self->by_vm_id);
  g_hash_table_unref (self->by_mac);
  g_hash_table_unref (self->by_ip);
  g_ptr_array_unref (self->slots);
  g_ptr_array_unref (self->dirty);
  g_ptr_array_unref (self->spare);
  netd_timer_free (self->timer);
  g_clear_pointer (&self->capture, netd_capture_free);
  g_free (self->socket_directory);
  g_free (self->buffer);
  g_free (self);
}

void
netd_network_set_opener (NetdNetwork *self, NetdOpener *opener)
{
  self->opener = opener;
}

void
netd_network_set_socket_directory (NetdNetwork *self, const char *directory)
{
  g_free (self->socket_directory);
  self->socket_directory = g_strdup (directory);
}

void
netd_network_set_port_func (NetdNetwork *self, NetdPortFunc func, gpointer user_data)
{
  self->port_func = func;
  self->port_data = user_data;
}

void
netd_network_set_resolvers (NetdNetwork *self, const char *resolv_conf)
{
  netd_resolvers_parse (&self->resolvers, resolv_conf);
}

void
netd_network_set_capture (NetdNetwork *self, NetdCapture *capture)
{
  g_clear_pointer (&self->capture, netd_capture_free);
  self->capture = capture;
}

NetdLoop *
netd_network_get_loop (NetdNetwork *self)
{
  return self->loop;
}

const NetdPlan *
netd_network_get_plan (NetdNetwork *self)
{
  return self->plan;
}

NetdCounters *
netd_network_get_counters (NetdNetwork *self)
{
  return self->counters;
}

NetdOpener *
netd_network_get_opener (NetdNetwork *self)
{
  return self->opener;
}

const char *
netd_network_get_socket_directory (NetdNetwork *self)
{
  return self->socket_directory;
}

NetdCapture *
netd_network_get_capture (NetdNetwork *self)
{
  return self->capture;
}

const NetdResolvers *
netd_network_get_resolvers (NetdNetwork *self)
{
  return &self->resolvers;
}

guint8 *
netd_network_get_buffer (NetdNetwork *self, gsize *size)
{
  *size = READ_BUFFER_SIZE;
  return self->buffer;
}

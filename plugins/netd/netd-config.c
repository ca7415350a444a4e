/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What netd.json says: the network's plan, its ports and its forwards. The file is written by the
 * daemon, before it tells netd anything, so that netd comes up again from it alone.
 *
 * Everything that netd later relies on is checked here, once: types, ranges, that addresses belong
 * to the network, that nothing is there twice. Members that are not known come from a newer daemon
 * and are passed over.
 */
#include "netd-config.h"

#include <arpa/inet.h>
#include <string.h>

#include <gio/gio.h>

#include "netd-json.h"

#define CONFIG_VERSION 1
#define NAME_MAX_LENGTH 63
#define DOMAIN_MAX_LENGTH 253
#define PATH_MAX_LENGTH 4095

static gboolean G_GNUC_PRINTF (2, 3)
refuse (GError **error, const char *format, ...)
{
  g_autofree char *text = NULL;
  va_list arguments;

  va_start (arguments, format);
  text = g_strdup_vprintf (format, arguments);
  va_end (arguments);
  g_set_error_literal (error, G_IO_ERROR, G_IO_ERROR_INVALID_DATA, text);
  return FALSE;
}

static void
port_free (NetdConfigPort *port)
{
  g_free (port->vm_id);
  g_free (port->socket_path);
  g_free (port->metadata_path);
  g_free (port);
}

static void
forward_free (NetdConfigForward *forward)
{
  g_free (forward->id);
  g_free (forward->vm_id);
  g_free (forward->host_address);
  g_free (forward);
}
G_DEFINE_AUTOPTR_CLEANUP_FUNC (NetdConfigPort, port_free)
G_DEFINE_AUTOPTR_CLEANUP_FUNC (NetdConfigForward, forward_free)

void
netd_config_free (NetdConfig *self)
{
  if (self == NULL)
    return;
  netd_plan_clear (&self->plan);
  g_ptr_array_unref (self->ports);
  g_ptr_array_unref (self->forwards);
  g_free (self);
}

const NetdConfigPort *
netd_config_find_port (NetdConfig *self, const char *vm_id)
{
  for (guint i = 0; i < self->ports->len; i++)
    {
      NetdConfigPort *port = g_ptr_array_index (self->ports, i);

      if (g_str_equal (port->vm_id, vm_id))
        return port;
    }
  return NULL;
}

/* --- Members of an object; @where names it in the error --- */

/* Absent is fine when not @required, and leaves NULL. */
static gboolean
read_text (JsonObject *object, const char *where, const char *name, gboolean required,
           const char **text, GError **error)
{
  JsonNode *node = netd_json_find (object, name, G_TYPE_STRING);

  *text = node == NULL ? NULL : json_node_get_string (node);
  if (node == NULL && (required || json_object_has_member (object, name)))
    return refuse (error, "%s: \"%s\" must be a string", where, name);
  return TRUE;
}

static gboolean
read_number (JsonObject *object, const char *where, const char *name, gint64 least, gint64 most,
             gint64 *number, GError **error)
{
  if (netd_json_read_number (object, name, least, most, number, error))
    return TRUE;
  g_prefix_error (error, "%s: ", where);
  return FALSE;
}

static gboolean
read_flag (JsonObject *object, const char *where, const char *name, gboolean *flag, GError **error)
{
  JsonNode *node = netd_json_find (object, name, G_TYPE_BOOLEAN);

  if (node == NULL)
    return refuse (error, "%s: \"%s\" must be true or false", where, name);
  *flag = json_node_get_boolean (node);
  return TRUE;
}

static gboolean
read_mac (JsonObject *object, const char *where, const char *name, NetdMac *mac, GError **error)
{
  const char *text;

  if (!read_text (object, where, name, TRUE, &text, error))
    return FALSE;
  if (!netd_mac_parse (text, mac) || (mac->octets[0] & 1) != 0)
    return refuse (error, "%s: \"%s\" must be the MAC address of one card", where, name);
  return TRUE;
}

static gboolean
read_ip (JsonObject *object, const char *where, const char *name, guint32 *ip, GError **error)
{
  const char *text;

  if (!read_text (object, where, name, TRUE, &text, error))
    return FALSE;
  if (!netd_ip_parse (text, ip))
    return refuse (error, "%s: \"%s\" must be an IPv4 address", where, name);
  return TRUE;
}

/* --- What a text may be --- */

static gboolean
consists_of (const char *text, gsize longest, const char *others)
{
  gsize length = strlen (text);

  if (length == 0 || length > longest)
    return FALSE;
  for (gsize i = 0; i < length; i++)
    if (!g_ascii_isalnum (text[i]) && strchr (others, text[i]) == NULL)
      return FALSE;
  return TRUE;
}

static gboolean
is_vm_id (const char *text)
{
  return consists_of (text, NETD_VM_ID_MAX - 1, "._-") && !g_str_equal (text, ".")
         && !g_str_equal (text, "..");
}

/* Absolute, and every component names something: no "//", no "." and no "..". */
static gboolean
is_socket_path (const char *text)
{
  g_auto (GStrv) parts = NULL;

  if (text[0] != '/' || text[1] == '\0' || strlen (text) > PATH_MAX_LENGTH)
    return FALSE;
  parts = g_strsplit (text + 1, "/", -1);
  for (guint i = 0; parts[i] != NULL; i++)
    if (parts[i][0] == '\0' || g_str_equal (parts[i], ".") || g_str_equal (parts[i], ".."))
      return FALSE;
  return TRUE;
}

static gboolean
is_host_address (const char *text)
{
  struct in6_addr v6;
  guint32 v4;

  return netd_ip_parse (text, &v4) || inet_pton (AF_INET6, text, &v6) == 1;
}

/* --- The network --- */

static guint
prefix_length (guint32 netmask)
{
  guint length = 0;

  for (; netmask != 0; netmask <<= 1)
    length++;
  return length;
}

static gboolean
is_host_of (const NetdPlan *plan, guint32 ip)
{
  return (ip & plan->netmask) == plan->network && ip != plan->network && ip != plan->broadcast
         && ip != plan->host_alias;
}

static gboolean
read_addresses (NetdPlan *plan, JsonObject *object, GError **error)
{
  const char *cidr;
  guint bits;

  if (!read_text (object, "network", "cidr", TRUE, &cidr, error))
    return FALSE;
  if (!netd_cidr_parse (cidr, &plan->network, &plan->netmask))
    return refuse (error, "network: \"cidr\" must be an IPv4 network such as 10.0.0.0/24");
  bits = prefix_length (plan->netmask);
  if (bits < 16 || bits > 29)
    return refuse (error, "network: \"cidr\" must be between /16 and /29");
  plan->network &= plan->netmask;
  plan->broadcast = plan->network | ~plan->netmask;
  plan->host_alias = plan->broadcast - 1;
  if (plan->network >> 16 == NETD_IP_METADATA >> 16)
    return refuse (error, "network: \"cidr\" must not be link-local");
  if (!read_ip (object, "network", "gateway", &plan->gateway, error)
      || !read_mac (object, "network", "gateway_mac", &plan->gateway_mac, error))
    return FALSE;
  if (!is_host_of (plan, plan->gateway))
    return refuse (error, "network: \"gateway\" must be a host address of the network");
  return TRUE;
}

static gboolean
read_plan (NetdPlan *plan, JsonObject *object, GError **error)
{
  const char *name;
  const char *domain;
  gint64 mtu;

  if (!read_text (object, "network", "name", TRUE, &name, error))
    return FALSE;
  if (!consists_of (name, NAME_MAX_LENGTH, "-"))
    return refuse (error, "network: \"name\" must be a DNS label");
  plan->name = g_strdup (name);
  if (!read_addresses (plan, object, error)
      || !read_text (object, "network", "dns_search_domain", FALSE, &domain, error)
      || !read_number (object, "network", "mtu", NETD_MTU_MIN, NETD_MTU_MAX, &mtu, error)
      || !read_flag (object, "network", "enable_imds", &plan->enable_imds, error)
      || !read_flag (object, "network", "enable_host_alias", &plan->enable_host_alias, error))
    return FALSE;
  if (domain != NULL && domain[0] != '\0' && !consists_of (domain, DOMAIN_MAX_LENGTH, ".-_"))
    return refuse (error, "network: \"dns_search_domain\" must be a domain name");
  plan->search_domain = domain == NULL || domain[0] == '\0' ? NULL : g_strdup (domain);
  plan->mtu = (guint) mtu;
  return TRUE;
}

/* --- Ports and forwards --- */

/* What is taken already, to refuse it a second time. */
typedef struct
{
  GHashTable *vms;
  GHashTable *macs;
  GHashTable *ips;
  GHashTable *forwards;
  GHashTable *listeners;
} Taken;

static Taken
taken_new (void)
{
  return (Taken) {
    .vms = g_hash_table_new_full (g_str_hash, g_str_equal, g_free, NULL),
    .macs = g_hash_table_new_full (g_str_hash, g_str_equal, g_free, NULL),
    .ips = g_hash_table_new (NULL, NULL),
    .forwards = g_hash_table_new_full (g_str_hash, g_str_equal, g_free, NULL),
    .listeners = g_hash_table_new_full (g_str_hash, g_str_equal, g_free, NULL),
  };
}

static void
taken_clear (Taken *taken)
{
  g_hash_table_unref (taken->vms);
  g_hash_table_unref (taken->macs);
  g_hash_table_unref (taken->ips);
  g_hash_table_unref (taken->forwards);
  g_hash_table_unref (taken->listeners);
}
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (Taken, taken_clear)

static gboolean
read_port (NetdConfig *self, JsonObject *object, const char *where, Taken *taken, GError **error)
{
  g_autoptr (NetdConfigPort) port = g_new0 (NetdConfigPort, 1);
  const char *vm;
  const char *socket;
  const char *metadata;
  char mac[18];

  if (!read_text (object, where, "vm", TRUE, &vm, error)
      || !read_mac (object, where, "mac", &port->mac, error)
      || !read_ip (object, where, "ip", &port->ip, error)
      || !read_text (object, where, "socket", TRUE, &socket, error)
      || !read_text (object, where, "metadata", FALSE, &metadata, error))
    return FALSE;
  if (!is_vm_id (vm))
    return refuse (error, "%s: \"vm\" is not the id of a VM", where);
  if (!is_socket_path (socket) || (metadata != NULL && !is_socket_path (metadata)))
    return refuse (error, "%s: paths must be absolute, without . and ..", where);
  if (!is_host_of (&self->plan, port->ip) || port->ip == self->plan.gateway)
    return refuse (error, "%s: \"ip\" must be an address of the network for VMs", where);
  netd_mac_to_text (&port->mac, mac);
  if (netd_mac_equal (&port->mac, &self->plan.gateway_mac)
      || !g_hash_table_add (taken->vms, g_strdup (vm))
      || !g_hash_table_add (taken->macs, g_strdup (mac))
      || !g_hash_table_add (taken->ips, GUINT_TO_POINTER (port->ip)))
    return refuse (error, "%s: the VM or an address of it is there twice", where);
  port->vm_id = g_strdup (vm);
  port->socket_path = g_strdup (socket);
  port->metadata_path = g_strdup (metadata);
  g_ptr_array_add (self->ports, g_steal_pointer (&port));
  return TRUE;
}

/* Its VM may be gone from the ports: then the forward waits to be removed, and harms nobody. */
static gboolean
read_forward (NetdConfig *self, JsonObject *object, const char *where, Taken *taken, GError **error)
{
  g_autoptr (NetdConfigForward) forward = g_new0 (NetdConfigForward, 1);
  const char *id;
  const char *vm;
  const char *protocol;
  const char *address;
  gint64 port;
  gint64 host_port;

  if (!read_text (object, where, "id", TRUE, &id, error)
      || !read_text (object, where, "vm", TRUE, &vm, error)
      || !read_number (object, where, "port", 1, G_MAXUINT16, &port, error)
      || !read_text (object, where, "protocol", TRUE, &protocol, error)
      || !read_text (object, where, "host_address", TRUE, &address, error)
      || !read_number (object, where, "host_port", 0, G_MAXUINT16, &host_port, error))
    return FALSE;
  if (!is_vm_id (vm) || !consists_of (id, NAME_MAX_LENGTH, "._:-"))
    return refuse (error, "%s: \"id\" or \"vm\" is not an id", where);
  if (!g_str_equal (protocol, "tcp") && !g_str_equal (protocol, "udp"))
    return refuse (error, "%s: \"protocol\" must be tcp or udp", where);
  if (!is_host_address (address))
    return refuse (error, "%s: \"host_address\" must be an IP address", where);
  if (!g_hash_table_add (taken->forwards, g_strdup (id))
      || (host_port != 0
          && !g_hash_table_add (taken->listeners,
                                g_strdup_printf ("%s %s %d", protocol, address, (int) host_port))))
    return refuse (error, "%s: the forward or its host port is there twice", where);
  forward->id = g_strdup (id);
  forward->vm_id = g_strdup (vm);
  forward->port = (guint16) port;
  forward->is_udp = g_str_equal (protocol, "udp");
  forward->host_address = g_strdup (address);
  forward->host_port = (guint16) host_port;
  g_ptr_array_add (self->forwards, g_steal_pointer (&forward));
  return TRUE;
}

typedef gboolean (*ReadFunc) (NetdConfig *self, JsonObject *object, const char *where, Taken *taken,
                              GError **error);

static gboolean
read_list (NetdConfig *self, JsonObject *root, const char *name, guint most, ReadFunc read,
           Taken *taken, GError **error)
{
  JsonNode *node = json_object_get_member (root, name);
  JsonArray *array;

  if (node == NULL || !JSON_NODE_HOLDS_ARRAY (node))
    return refuse (error, "\"%s\" must be a list", name);
  array = json_node_get_array (node);
  if (json_array_get_length (array) > most)
    return refuse (error, "\"%s\" must have at most %u entries", name, most);
  for (guint i = 0; i < json_array_get_length (array); i++)
    {
      JsonNode *element = json_array_get_element (array, i);
      g_autofree char *where = g_strdup_printf ("%s[%u]", name, i);

      if (!JSON_NODE_HOLDS_OBJECT (element))
        return refuse (error, "%s must be an object", where);
      if (!read (self, json_node_get_object (element), where, taken, error))
        return FALSE;
    }
  return TRUE;
}

NetdConfig *
netd_config_parse (const char *text, GError **error)
{
  g_autoptr (NetdConfig) self = g_new0 (NetdConfig, 1);
  g_autoptr (JsonObject) root = netd_json_parse (text, strlen (text), error);
  g_auto (Taken) taken = taken_new ();
  JsonNode *network;
  gint64 version;

  self->ports = g_ptr_array_new_with_free_func ((GDestroyNotify) port_free);
  self->forwards = g_ptr_array_new_with_free_func ((GDestroyNotify) forward_free);
  if (root == NULL)
    return NULL;
  network = json_object_get_member (root, "network");
  if (!read_number (root, "netd.json", "version", CONFIG_VERSION, CONFIG_VERSION, &version, error))
    return NULL;
  if (network == NULL || !JSON_NODE_HOLDS_OBJECT (network))
    {
      refuse (error, "\"network\" must be an object");
      return NULL;
    }
  if (!read_plan (&self->plan, json_node_get_object (network), error)
      || !read_list (self, root, "ports", G_MAXUINT16, read_port, &taken, error)
      || !read_list (self, root, "forwards", NETD_FORWARDS_MAX, read_forward, &taken, error))
    return NULL;
  return g_steal_pointer (&self);
}

/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What the lines of the control socket mean: each is a request with a number and a method, and has
 * one answer with the same number, a result or an error with a code. Only a connection to a guest
 * is answered later, when the guest has.
 *
 * Answers fit into a line whatever there is to tell: a status names so many ports and forwards at a
 * time, and how many there are.
 */
#include "netd-control-private.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include <gio/gio.h>

#include "netd-gateway.h"
#include "netd-json.h"
#include "netd-sandbox.h"

#define ID_MAX 128
#define STATUS_MAX 48 /* ports, and forwards, in one answer */
#define DIAL_MS 10000
#define DIAL_MS_MAX 60000

/* Returns the result, or NULL with an error, or NULL without one when the answer comes later. */
typedef JsonObject *(*MethodFunc) (NetdClient *client, gint64 number, JsonObject *params,
                                   GError **error);

/* --- Reading --- */

static gboolean G_GNUC_PRINTF (3, 4)
    fail (GError **error, GIOErrorEnum code, const char *format, ...)
{
  g_autofree char *text = NULL;
  va_list arguments;

  va_start (arguments, format);
  text = g_strdup_vprintf (format, arguments);
  va_end (arguments);
  g_set_error_literal (error, G_IO_ERROR, (int) code, text);
  return FALSE;
}

static gboolean
read_text (JsonObject *params, const char *name, gsize longest, const char **text, GError **error)
{
  JsonNode *node = netd_json_find (params, name, G_TYPE_STRING);

  *text = node != NULL ? json_node_get_string (node) : NULL;
  if (*text == NULL || **text == '\0' || strlen (*text) > longest)
    return fail (error, G_IO_ERROR_INVALID_ARGUMENT,
                 "\"%s\" must be a string of 1 to %" G_GSIZE_FORMAT " bytes", name, longest);
  return TRUE;
}

static gboolean
read_number_or (JsonObject *params, const char *name, gint64 fallback, gint64 most, gint64 *number,
                GError **error)
{
  *number = fallback;
  return !json_object_has_member (params, name)
         || netd_json_read_number (params, name, 0, most, number, error);
}

static gboolean
read_vm (JsonObject *params, const char **vm_id, GError **error)
{
  return read_text (params, "vm", NETD_VM_ID_MAX - 1, vm_id, error);
}

static gboolean
find_port (NetdClient *client, const char *vm_id, NetdPort **port, GError **error)
{
  *port = netd_network_find (client->control->network, vm_id);
  return *port != NULL || fail (error, G_IO_ERROR_NOT_FOUND, "vm %s is not attached", vm_id);
}

/* --- Answering --- */

static const char *
code_of (const GError *error)
{
  if (error->domain != G_IO_ERROR)
    return "internal_error";
  switch (error->code)
    {
    case G_IO_ERROR_ADDRESS_IN_USE:
    case G_IO_ERROR_BUSY:
    case G_IO_ERROR_EXISTS:
    case G_IO_ERROR_NO_SPACE:
      return "conflict";
    case G_IO_ERROR_NOT_FOUND:
      return "not_found";
    case G_IO_ERROR_INVALID_ARGUMENT:
    case G_IO_ERROR_INVALID_DATA:
    case G_IO_ERROR_NOT_REGULAR_FILE:
    case G_IO_ERROR_PERMISSION_DENIED:
      return "invalid_request";
    case G_IO_ERROR_NOT_SUPPORTED:
      return "unsupported";
    case G_IO_ERROR_TIMED_OUT:
      return "timeout";
    default:
      return "internal_error";
    }
}

static void
answer_error (NetdClient *client, gint64 number, const GError *reason)
{
  JsonObject *answer = json_object_new ();
  JsonObject *error = json_object_new ();

  json_object_set_string_member (error, "code", code_of (reason));
  json_object_set_string_member (error, "message", reason->message);
  json_object_set_int_member (answer, "id", number);
  json_object_set_object_member (answer, "error", error);
  netd_client_send (client, answer, -1);
}

/* Takes the result, and the descriptor unless it is -1. */
static void
answer_result (NetdClient *client, gint64 number, JsonObject *result, int fd)
{
  JsonObject *answer = json_object_new ();

  json_object_set_int_member (answer, "id", number);
  json_object_set_object_member (answer, "result", result);
  netd_client_send (client, answer, fd);
}

/* --- Ports --- */

static JsonObject *
attach (NetdClient *client, gint64 number, JsonObject *params, GError **error)
{
  NetdControl *control = client->control;
  const char *vm_id, *mac_text, *ip_text;
  NetdPort *port;
  NetdMac mac;
  guint32 ip;

  if (!read_vm (params, &vm_id, error) || !read_text (params, "mac", 17, &mac_text, error)
      || !read_text (params, "ip", 15, &ip_text, error))
    return NULL;
  if (!netd_mac_parse (mac_text, &mac))
    return fail (error, G_IO_ERROR_INVALID_ARGUMENT, "\"mac\" is not a MAC address"), NULL;
  if (!netd_ip_parse (ip_text, &ip))
    return fail (error, G_IO_ERROR_INVALID_ARGUMENT, "\"ip\" is not an IPv4 address"), NULL;
  port = netd_network_attach (control->network, vm_id, &mac, ip, error);
  if (port == NULL)
    return NULL;
  netd_forwards_port_attached (control->forwards, port);
  return json_object_new ();
}

static JsonObject *
detach (NetdClient *client, gint64 number, JsonObject *params, GError **error)
{
  const char *vm_id;

  if (!read_vm (params, &vm_id, error))
    return NULL;
  netd_forwards_remove_vm (client->control->forwards, vm_id);
  if (!netd_network_detach (client->control->network, vm_id))
    return fail (error, G_IO_ERROR_NOT_FOUND, "vm %s is not attached", vm_id), NULL;
  return json_object_new ();
}

/* --- Connections to guests --- */

void
netd_control_dial_free (NetdControlDial *self)
{
  if (self->dial != NULL)
    netd_dial_cancel (self->dial);
  g_free (self);
}

static GError *
dial_error (int number)
{
  switch (number)
    {
    case ECONNREFUSED:
      return g_error_new (G_IO_ERROR, G_IO_ERROR_CONNECTION_REFUSED,
                          "the guest refuses the connection");
    case ETIMEDOUT:
      return g_error_new (G_IO_ERROR, G_IO_ERROR_TIMED_OUT, "the guest does not answer");
    case ENOBUFS:
      return g_error_new (G_IO_ERROR, G_IO_ERROR_BUSY, "the vm has too many connections");
    case ENETDOWN:
      return g_error_new (G_IO_ERROR, G_IO_ERROR_NOT_FOUND, "the vm was detached");
    default:
      return g_error_new (G_IO_ERROR, G_IO_ERROR_FAILED, "no connection to the guest: %s",
                          g_strerror (number));
    }
}

static void
dialled_cb (int fd, int error_number, gpointer user_data)
{
  NetdControlDial *self = user_data;
  NetdClient *client = self->client;
  gint64 number = self->number;

  self->dial = NULL; /* it is over */
  g_ptr_array_remove_fast (client->dials, self);
  if (fd >= 0)
    {
      answer_result (client, number, json_object_new (), fd);
    }
  else
    {
      g_autoptr (GError) error = dial_error (error_number);

      answer_error (client, number, error);
    }
}

static JsonObject *
dial (NetdClient *client, gint64 number, JsonObject *params, GError **error)
{
  const char *vm_id;
  NetdPort *port;
  gint64 guest_port;
  gint64 timeout_ms;
  NetdControlDial *self;

  if (!read_vm (params, &vm_id, error)
      || !netd_json_read_number (params, "port", 1, G_MAXUINT16, &guest_port, error)
      || !read_number_or (params, "timeout_ms", DIAL_MS, DIAL_MS_MAX, &timeout_ms, error)
      || !find_port (client, vm_id, &port, error))
    return NULL;
  if (client->dials->len >= NETD_CONTROL_DIALS_MAX)
    return fail (error, G_IO_ERROR_BUSY, "too many connections are being made"), NULL;
  self = g_new0 (NetdControlDial, 1);
  self->client = client;
  self->number = number;
  g_ptr_array_add (client->dials, self);
  self->dial = netd_engine_dial (netd_gateway_get_engine (netd_port_get_gateway (port)),
                                 (guint16) guest_port, (guint) timeout_ms, dialled_cb, self);
  return NULL;
}

/* --- Forwards --- */

static JsonObject *
forward (NetdClient *client, gint64 number, JsonObject *params, GError **error)
{
  NetdForwardSpec spec = { 0 };
  const char *protocol;
  NetdPort *vm_port;
  gint64 port;
  gint64 host_port;
  JsonObject *result;
  guint16 chosen;

  if (!read_text (params, "id", ID_MAX, &spec.id, error) || !read_vm (params, &spec.vm_id, error)
      || !netd_json_read_number (params, "port", 1, G_MAXUINT16, &port, error)
      || !read_text (params, "protocol", 8, &protocol, error)
      || !read_text (params, "host_address", 64, &spec.host_address, error)
      || !netd_json_read_number (params, "host_port", 0, G_MAXUINT16, &host_port, error)
      || !find_port (client, spec.vm_id, &vm_port, error))
    return NULL;
  if (!g_str_equal (protocol, "tcp") && !g_str_equal (protocol, "udp"))
    return fail (error, G_IO_ERROR_NOT_SUPPORTED, "\"protocol\" must be tcp or udp"), NULL;
  spec.port = (guint16) port;
  spec.host_port = (guint16) host_port;
  spec.is_udp = g_str_equal (protocol, "udp");
  chosen = netd_forwards_add (client->control->forwards, &spec, error);
  if (chosen == 0)
    return NULL;
  result = json_object_new ();
  json_object_set_int_member (result, "host_port", chosen);
  return result;
}

static JsonObject *
unforward (NetdClient *client, gint64 number, JsonObject *params, GError **error)
{
  const char *id;

  if (!read_text (params, "id", ID_MAX, &id, error))
    return NULL;
  if (!netd_forwards_remove (client->control->forwards, id))
    return fail (error, G_IO_ERROR_NOT_FOUND, "there is no forward %s", id), NULL;
  return json_object_new ();
}

/* --- Status --- */

/* One list of the answer: which of all it names. */
typedef struct
{
  JsonArray *array;
  gint64 first;
  gint64 n;
} Listing;

static gboolean
is_listed (Listing *listing)
{
  gint64 index = listing->n++;

  return index >= listing->first && index < listing->first + STATUS_MAX;
}

static JsonObject *
counters_to_json (const NetdCounters *counters)
{
  JsonObject *object = json_object_new ();

  for (guint i = 0; i < NETD_N_COUNTS; i++)
    json_object_set_int_member (object, netd_count_to_text (i), (gint64) counters->counts[i]);
  return object;
}

static void
list_port (NetdPort *port, gpointer user_data)
{
  Listing *listing = user_data;
  NetdGateway *gateway = netd_port_get_gateway (port);
  JsonObject *object;
  char mac[18];
  char ip[16];

  if (!is_listed (listing))
    return;
  netd_mac_to_text (netd_port_get_mac (port), mac);
  netd_ip_to_text (netd_port_get_ip (port), ip);
  object = json_object_new ();
  json_object_set_string_member (object, "vm", netd_port_get_vm_id (port));
  json_object_set_string_member (object, "mac", mac);
  json_object_set_string_member (object, "ip", ip);
  json_object_set_boolean_member (object, "connected", netd_port_is_connected (port));
  json_object_set_int_member (object, "flows",
                              netd_engine_get_flows (netd_gateway_get_engine (gateway)));
  json_object_set_object_member (object, "counters",
                                 counters_to_json (netd_port_get_counters (port)));
  json_array_add_object_element (listing->array, object);
}

static void
list_forward (const NetdForwardSpec *spec, gpointer user_data)
{
  Listing *listing = user_data;
  JsonObject *object;

  if (!is_listed (listing))
    return;
  object = json_object_new ();
  json_object_set_string_member (object, "id", spec->id);
  json_object_set_string_member (object, "vm", spec->vm_id);
  json_object_set_int_member (object, "port", spec->port);
  json_object_set_string_member (object, "protocol", spec->is_udp ? "udp" : "tcp");
  json_object_set_string_member (object, "host_address", spec->host_address);
  json_object_set_int_member (object, "host_port", spec->host_port);
  json_array_add_object_element (listing->array, object);
}

static JsonObject *
status (NetdClient *client, gint64 number, JsonObject *params, GError **error)
{
  NetdControl *control = client->control;
  Listing ports = { 0 };
  Listing forwards = { 0 };
  JsonObject *result;

  if (!read_number_or (params, "first_port", 0, G_MAXINT32, &ports.first, error)
      || !read_number_or (params, "first_forward", 0, G_MAXINT32, &forwards.first, error))
    return NULL;
  ports.array = json_array_new ();
  forwards.array = json_array_new ();
  netd_network_foreach (control->network, list_port, &ports);
  netd_forwards_foreach (control->forwards, list_forward, &forwards);
  result = json_object_new ();
  json_object_set_int_member (result, "n_ports", ports.n);
  json_object_set_array_member (result, "ports", ports.array);
  json_object_set_int_member (result, "n_forwards", forwards.n);
  json_object_set_array_member (result, "forwards", forwards.array);
  json_object_set_object_member (result, "counters",
                                 counters_to_json (netd_network_get_counters (control->network)));
  return result;
}

/* --- Capture --- */

static JsonObject *
capture (NetdClient *client, gint64 number, JsonObject *params, GError **error)
{
  int fd = netd_client_take_fd (client);
  NetdCapture *taken;
  gint64 max_bytes;

  if (fd < 0)
    return fail (error, G_IO_ERROR_INVALID_ARGUMENT, "a capture needs an open file"), NULL;
  if (!netd_json_read_number (params, "max_bytes", 1, G_MAXINT64, &max_bytes, error))
    {
      close (fd);
      return NULL;
    }
  taken = netd_capture_new (fd, (guint64) max_bytes, error);
  if (taken == NULL)
    return NULL;
  netd_network_set_capture (client->control->network, taken);
  return json_object_new ();
}

static JsonObject *
capture_stop (NetdClient *client, gint64 number, JsonObject *params, GError **error)
{
  netd_network_set_capture (client->control->network, NULL);
  return json_object_new ();
}

/* --- Requests --- */

static const struct
{
  const char *name;
  MethodFunc func;
} methods[] = {
  { "attach", attach },       { "detach", detach },
  { "dial", dial },           { "forward", forward },
  { "unforward", unforward }, { "status", status },
  { "capture", capture },     { "capture-stop", capture_stop },
};

static JsonObject *
call (NetdClient *client, gint64 number, const char *name, JsonObject *params, GError **error)
{
  for (guint i = 0; i < G_N_ELEMENTS (methods); i++)
    if (g_strcmp0 (methods[i].name, name) == 0)
      return methods[i].func (client, number, params, error);
  fail (error, G_IO_ERROR_NOT_SUPPORTED, "there is no such method");
  return NULL;
}

/* A descriptor that its line had no use for must not be taken for the next one's. */
static void
drop_fds (NetdClient *client)
{
  int fd;

  while ((fd = netd_client_take_fd (client)) >= 0)
    close (fd);
}

static void
handle_request (NetdClient *client, gint64 number, JsonObject *request)
{
  JsonNode *method = netd_json_find (request, "method", G_TYPE_STRING);
  JsonNode *params = json_object_get_member (request, "params");
  g_autoptr (JsonObject) none = json_object_new ();
  g_autoptr (GError) error = NULL;
  JsonObject *result = NULL;

  if (method == NULL || (params != NULL && !JSON_NODE_HOLDS_OBJECT (params)))
    fail (&error, G_IO_ERROR_INVALID_ARGUMENT, "a request has a method, and params as an object");
  else
    result = call (client, number, json_node_get_string (method),
                   params != NULL ? json_node_get_object (params) : none, &error);
  if (error != NULL)
    answer_error (client, number, error);
  else if (result != NULL)
    answer_result (client, number, result, -1);
}

gboolean
netd_control_handle (NetdClient *client, const char *line, gsize length)
{
  g_autoptr (JsonObject) request = netd_json_parse (line, length, NULL);
  JsonNode *number = request != NULL ? netd_json_find (request, "id", G_TYPE_INT64) : NULL;

  if (number == NULL)
    return FALSE;
  handle_request (client, json_node_get_int (number), request);
  drop_fds (client);
  return TRUE;
}

static JsonArray *
texts_to_json (const char *const *texts)
{
  JsonArray *array = json_array_new ();

  for (guint i = 0; texts[i] != NULL; i++)
    json_array_add_string_element (array, texts[i]);
  return array;
}

JsonObject *
netd_control_new_hello (NetdControl *self)
{
  static const char *const features[]
      = { "attach", "dial", "forward-tcp", "forward-udp", "capture", "counters", NULL };
  const NetdPlan *plan = netd_network_get_plan (self->network);
  g_autofree char *engine_version = netd_engine_dup_version ();
  JsonObject *hello = json_object_new ();
  JsonArray *counters = json_array_new ();

  for (guint i = 0; i < NETD_N_COUNTS; i++)
    json_array_add_string_element (counters, netd_count_to_text (i));
  json_object_set_string_member (hello, "hello", NETD_PROTOCOL_NAME);
  json_object_set_int_member (hello, "version", NETD_PROTOCOL_VERSION);
  json_object_set_array_member (hello, "features", texts_to_json (features));
  json_object_set_string_member (hello, "network", plan->name);
  json_object_set_int_member (hello, "pid", netd_sandbox_get_warden ());
  json_object_set_string_member (hello, "engine", netd_engine_get_name ());
  json_object_set_string_member (hello, "engine_version", engine_version);
  json_object_set_array_member (hello, "counters", counters);
  return hello;
}

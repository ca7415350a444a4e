/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The DHCP server of one port. There is nothing to allocate: a port has one lease, fixed when its
 * VM was made, and whoever asks with that lease's hardware address is told about it; anybody else
 * hears nothing. So there is no state, and a client that asks for another address is given its own.
 *
 * A request is read once, option by option, into what the reply needs; any option that does not fit
 * into the message ends the matter. The reply is put together by functions that check the room
 * left.
 */
#include "netd-dhcp.h"

#include <netinet/in.h>
#include <string.h>

#define SERVER_PORT 67
#define CLIENT_PORT 68
#define LEASE_SECONDS 3600

/* The message without options: RFC 2131, figure 1. */
#define AT_TRANSACTION 4
#define AT_FLAGS 10
#define AT_CLIENT_IP 12
#define AT_YOUR_IP 16
#define AT_RELAY_IP 24
#define AT_HARDWARE_ADDRESS 28
#define AT_COOKIE 236
#define AT_OPTIONS 240
/* What BOOTP clients insist on. */
#define REPLY_MIN 300
/* Header, options of fixed length, and three of up to 255 bytes. */
#define REPLY_MAX 1200

enum
{
  OPTION_PAD = 0,
  OPTION_NETMASK = 1,
  OPTION_ROUTER = 3,
  OPTION_DNS = 6,
  OPTION_MTU = 26,
  OPTION_LEASE_TIME = 51,
  OPTION_TYPE = 53,
  OPTION_SERVER = 54,
  OPTION_CLIENT_ID = 61,
  OPTION_RELAY = 82,
  OPTION_SEARCH = 119,
  OPTION_END = 255,
};

enum
{
  DISCOVER = 1,
  OFFER = 2,
  REQUEST = 3,
  ACK = 5,
  INFORM = 8,
};

static const guint8 cookie[] = { 99, 130, 83, 99 };

typedef struct
{
  const guint8 *data;
  guint8 length;
} Option;

/* What is taken from a request. */
typedef struct
{
  const guint8 *message;
  guint8 type;
  Option server;
  Option client_id;
  Option relay;
} Request;

typedef struct
{
  guint8 data[REPLY_MAX];
  gsize length;
} Reply;

gboolean
netd_dhcp_is_request (const NetdPacket *packet)
{
  return packet->kind == NETD_PACKET_IPV4 && packet->protocol == IPPROTO_UDP
         && packet->payload != NULL && !packet->is_fragment && packet->source_port == CLIENT_PORT
         && packet->destination_port == SERVER_PORT;
}

static void
take_option (Request *request, guint8 code, Option option)
{
  Option *place = code == OPTION_SERVER      ? &request->server
                  : code == OPTION_CLIENT_ID ? &request->client_id
                  : code == OPTION_RELAY     ? &request->relay
                                             : NULL;

  if (code == OPTION_TYPE && option.length == 1 && request->type == 0)
    request->type = option.data[0];
  if (place != NULL && place->data == NULL)
    *place = option;
}

/* FALSE unless each option is whole and the list has an end. Fields that carry further options
 * (option overload) are not read: nothing that is needed has a reason to be there. */
static gboolean
read_options (Request *request, const guint8 *data, gsize length)
{
  gsize at = 0;

  while (at < length && data[at] != OPTION_END)
    {
      Option option;

      if (data[at] == OPTION_PAD)
        {
          at++;
          continue;
        }
      if (length - at < 2 || length - at - 2 < data[at + 1])
        return FALSE;
      option.data = data + at + 2;
      option.length = data[at + 1];
      take_option (request, data[at], option);
      at += 2 + (gsize) option.length;
    }
  return at < length;
}

static gboolean
read_request (Request *request, const NetdMac *mac, const NetdPacket *packet)
{
  const guint8 *message = packet->payload;

  memset (request, 0, sizeof *request);
  request->message = message;
  if (!netd_dhcp_is_request (packet) || packet->payload_length < AT_OPTIONS)
    return FALSE;
  /* A request, over Ethernet. */
  if (message[0] != 1 || message[1] != 1 || message[2] != 6)
    return FALSE;
  if (memcmp (message + AT_HARDWARE_ADDRESS, mac->octets, 6) != 0
      || memcmp (message + AT_COOKIE, cookie, sizeof cookie) != 0)
    return FALSE;
  return read_options (request, message + AT_OPTIONS, packet->payload_length - AT_OPTIONS);
}

static guint8
choose_reply (const NetdPlan *plan, const Request *request)
{
  guint32 server = g_htonl (plan->gateway);

  if (request->type == DISCOVER)
    return OFFER;
  if (request->type == INFORM)
    return ACK;
  /* A client that took another server's offer tells all of them. */
  if (request->type == REQUEST
      && (request->server.data == NULL
          || (request->server.length == 4 && memcmp (request->server.data, &server, 4) == 0)))
    return ACK;
  return 0;
}

static void
add_option (Reply *reply, guint8 code, const void *data, gsize length)
{
  /* One byte is kept for the end of the list. */
  if (length > G_MAXUINT8 || reply->length + 2 + length + 1 > sizeof reply->data)
    return;
  reply->data[reply->length++] = code;
  reply->data[reply->length++] = (guint8) length;
  memcpy (reply->data + reply->length, data, length);
  reply->length += length;
}

static void
add_number (Reply *reply, guint8 code, guint32 value)
{
  guint32 stored = g_htonl (value);

  add_option (reply, code, &stored, sizeof stored);
}

static void
echo_option (Reply *reply, guint8 code, const Option *option)
{
  if (option->data != NULL)
    add_option (reply, code, option->data, option->length);
}

/* The domain as labels (RFC 1035, 3.1), uncompressed. What is no domain name is left out. */
static void
add_search_domain (Reply *reply, const char *domain)
{
  guint8 name[G_MAXUINT8];
  gsize length = 0;

  while (domain != NULL && *domain != '\0')
    {
      gsize label = strcspn (domain, ".");

      if (label == 0 || label > 63 || length + 1 + label + 1 > sizeof name)
        return;
      name[length++] = (guint8) label;
      memcpy (name + length, domain, label);
      length += label;
      domain += label;
      if (*domain == '.')
        domain++;
    }
  if (length == 0)
    return;
  name[length++] = 0;
  add_option (reply, OPTION_SEARCH, name, length);
}

static void
begin_reply (Reply *reply, const Request *request, guint8 type, guint32 ip)
{
  const guint8 *message = request->message;
  guint32 address = g_htonl (ip);

  memset (reply, 0, sizeof *reply);
  reply->data[0] = 2;
  reply->data[1] = 1;
  reply->data[2] = 6;
  memcpy (reply->data + AT_TRANSACTION, message + AT_TRANSACTION, 4);
  memcpy (reply->data + AT_FLAGS, message + AT_FLAGS, 2);
  if (type == ACK)
    memcpy (reply->data + AT_CLIENT_IP, message + AT_CLIENT_IP, 4);
  if (request->type != INFORM)
    memcpy (reply->data + AT_YOUR_IP, &address, 4);
  memcpy (reply->data + AT_RELAY_IP, message + AT_RELAY_IP, 4);
  memcpy (reply->data + AT_HARDWARE_ADDRESS, message + AT_HARDWARE_ADDRESS, 6);
  memcpy (reply->data + AT_COOKIE, cookie, sizeof cookie);
  reply->length = AT_OPTIONS;
}

static void
write_reply (Reply *reply, const NetdPlan *plan, const Request *request, guint8 type, guint32 ip)
{
  guint16 mtu = g_htons ((guint16) plan->mtu);

  begin_reply (reply, request, type, ip);
  add_option (reply, OPTION_TYPE, &type, 1);
  add_number (reply, OPTION_SERVER, plan->gateway);
  /* INFORM comes from a client that has an address by other means. */
  if (request->type != INFORM)
    add_number (reply, OPTION_LEASE_TIME, LEASE_SECONDS);
  add_number (reply, OPTION_NETMASK, plan->netmask);
  add_number (reply, OPTION_ROUTER, plan->gateway);
  add_number (reply, OPTION_DNS, plan->gateway);
  add_option (reply, OPTION_MTU, &mtu, sizeof mtu);
  add_search_domain (reply, plan->search_domain);
  echo_option (reply, OPTION_CLIENT_ID, &request->client_id);
  echo_option (reply, OPTION_RELAY, &request->relay); /* the last one: RFC 3046, 2.1 */
  reply->data[reply->length++] = OPTION_END;
  reply->length = MAX (reply->length, REPLY_MIN);
}

/* A client that has an address gets the answer there; one that has none is sent a broadcast, which
 * is nevertheless addressed to its card unless it says that it could not take that. */
static void
address_reply (NetdUdpAddress *address, const NetdPlan *plan, const NetdMac *mac,
               const Request *request, guint32 ip)
{
  static const guint8 nothing[4] = { 0 };
  gboolean has_address = memcmp (request->message + AT_CLIENT_IP, nothing, 4) != 0;
  gboolean wants_broadcast = (request->message[AT_FLAGS] & 0x80) != 0 && !has_address;

  address->source_mac = plan->gateway_mac;
  address->source = plan->gateway;
  address->source_port = SERVER_PORT;
  address->destination_port = CLIENT_PORT;
  address->destination = ip == 0 || wants_broadcast ? G_MAXUINT32 : ip;
  if (wants_broadcast)
    memset (&address->destination_mac, 0xff, sizeof address->destination_mac);
  else
    address->destination_mac = *mac;
}

gsize
netd_dhcp_answer (const NetdPlan *plan, const NetdMac *mac, guint32 ip, const NetdPacket *request,
                  guint8 *frame, gsize size)
{
  NetdUdpAddress address;
  Request read;
  Reply reply;
  guint8 type;

  if (!read_request (&read, mac, request))
    return 0;
  if (request->ip_destination != G_MAXUINT32 && request->ip_destination != plan->gateway)
    return 0;
  type = choose_reply (plan, &read);
  if (type == 0)
    return 0;

  write_reply (&reply, plan, &read, type, ip);
  /* Only to the lease's own address, whatever the request says. */
  address_reply (&address, plan, mac, &read, request->ip_source == ip ? ip : 0);
  return netd_packet_build_udp (frame, size, &address, reply.data, reply.length);
}

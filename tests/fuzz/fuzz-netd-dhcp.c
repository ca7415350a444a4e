/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* A guest's DHCP messages. Input: bits, the message. What is answered is a whole packet from the
 * gateway, with its id, and offers nothing but the port's own lease. */

#include "netd-dhcp.h"

#include <string.h>

#include "frame-kit.h"
#include "fuzz.h"

#define OWN 0x01    /* the guest's own hardware address is put in */
#define COOKIE 0x02 /* and what makes it a DHCP message */
#define LEASED 0x04 /* from the guest's address to the gateway */
#define DOMAIN 0x08 /* the network has a search domain */
#define AT_HARDWARE 28
#define AT_COOKIE 236
#define LEASE NETD_IP (10, 77, 0, 2)

static const NetdMac mac = { { 0x02, 0xde, 10, 77, 0, 2 } };

static NetdPlan
make_plan (guint bits)
{
  NetdPlan plan = {
    .network = NETD_IP (10, 77, 0, 0),
    .netmask = 0xffffff00,
    .gateway = NETD_IP (10, 77, 0, 1),
    .broadcast = NETD_IP (10, 77, 0, 255),
    .host_alias = NETD_IP (10, 77, 0, 254),
    .gateway_mac = { { 0x02, 0xde, 10, 77, 0, 1 } },
    .mtu = NETD_MTU_MIN,
  };

  if ((bits & DOMAIN) != 0)
    plan.search_domain = (char *) "lab.example.com";
  return plan;
}

static void
check_answer (const NetdPlan *plan, const guint8 *frame, gsize length, const NetdPacket *request)
{
  NetdPacket packet;
  guint32 offered;

  g_assert_cmpint (netd_packet_parse (&packet, frame, length), ==, NETD_PACKET_IPV4);
  g_assert_cmpuint (packet.ip_source, ==, plan->gateway);
  g_assert_cmpuint (packet.source_port, ==, 67);
  g_assert_cmpuint (packet.destination_port, ==, 68);
  g_assert_cmpuint (packet.ip_length, <=, plan->mtu);
  g_assert_cmpuint (packet.payload_length, >, AT_COOKIE);
  g_assert_cmpuint (packet.payload[0], ==, 2);
  g_assert_cmpmem (packet.payload + 4, 4, request->payload + 4, 4);
  g_assert_cmpmem (packet.payload + AT_HARDWARE, 6, mac.octets, 6);
  offered = kit_get32 (packet.payload + 16);
  g_assert_true (offered == LEASE || offered == 0);
}

int
LLVMFuzzerTestOneInput (const uint8_t *data, size_t size)
{
  static const guint8 cookie[] = { 99, 130, 83, 99 };
  guint bits = size > 0 ? data[0] : 0;
  NetdPlan plan = make_plan (bits);
  const NetdUdpAddress address = {
    .source_mac = mac,
    .destination_mac = plan.gateway_mac,
    .source = (bits & LEASED) != 0 ? LEASE : 0,
    .destination = (bits & LEASED) != 0 ? plan.gateway : G_MAXUINT32,
    .source_port = 68,
    .destination_port = 67,
  };
  g_autofree guint8 *message = NULL;
  g_autofree guint8 *exact = NULL;
  guint8 frame[NETD_PACKET_MAX];
  NetdPacket packet;
  gsize length;

  if (size < 1)
    return 0;
  message = g_malloc (size);
  memcpy (message, data + 1, size - 1);
  if ((bits & OWN) != 0 && size - 1 >= AT_HARDWARE + 6)
    memcpy (message + AT_HARDWARE, mac.octets, 6);
  if ((bits & COOKIE) != 0 && size - 1 >= AT_COOKIE + 4)
    memcpy (message + AT_COOKIE, cookie, 4);
  length = netd_packet_build_udp (frame, sizeof frame, &address, message, size - 1);
  if (length == 0)
    return 0;
  exact = g_memdup2 (frame, length);
  netd_packet_parse (&packet, exact, length);
  if (!netd_dhcp_is_request (&packet))
    return 0;
  length = netd_dhcp_answer (&plan, &mac, LEASE, &packet, frame, sizeof frame);
  if (length > 0)
    check_answer (&plan, frame, length, &packet);
  return 0;
}

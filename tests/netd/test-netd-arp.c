/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The gateway's ARP: which addresses it answers for, and with what. */
#include "netd-arp.h"


static const NetdMac guest_mac = { { 0x02, 0xde, 192, 168, 127, 2 } };
static const NetdMac gateway_mac = { { 0x02, 0xde, 192, 168, 127, 1 } };

static NetdPlan
make_plan (gboolean enable_imds, gboolean enable_host_alias)
{
  NetdPlan plan = {
    .network = NETD_IP (192, 168, 127, 0),
    .netmask = 0xffffff00,
    .gateway = NETD_IP (192, 168, 127, 1),
    .broadcast = NETD_IP (192, 168, 127, 255),
    .host_alias = NETD_IP (192, 168, 127, 254),
    .gateway_mac = gateway_mac,
    .enable_imds = enable_imds,
    .enable_host_alias = enable_host_alias,
  };

  return plan;
}

static gboolean
is_answered (const NetdPlan *plan, guint16 operation, guint32 sender, guint32 target)
{
  guint8 request[64];
  guint8 frame[42];
  NetdPacket packet;
  NetdPacket reply;
  gsize length;

  length = netd_packet_build_arp (request, sizeof request, operation, &guest_mac, sender, NULL,
                                  target);
  netd_packet_parse (&packet, request, length);
  length = netd_arp_answer (plan, &packet, frame, sizeof frame);
  g_assert_cmpuint (netd_arp_answer (plan, &packet, frame, sizeof frame - 1), ==, 0);
  if (length == 0)
    return FALSE;

  g_assert_cmpint (netd_packet_parse (&reply, frame, length), ==, NETD_PACKET_ARP);
  g_assert_cmpuint (reply.arp_operation, ==, 2);
  g_assert_true (netd_mac_equal (&reply.source, &gateway_mac));
  g_assert_true (netd_mac_equal (&reply.destination, &guest_mac));
  g_assert_true (netd_mac_equal (&reply.arp_sender_mac, &gateway_mac));
  g_assert_cmphex (reply.arp_sender_ip, ==, target);
  g_assert_cmphex (reply.arp_target_ip, ==, sender);
  g_assert_cmpmem (frame + 32, 6, guest_mac.octets, 6);
  return TRUE;
}

static void
test_answers (void)
{
  guint32 guest = NETD_IP (192, 168, 127, 2);
  NetdPlan plan = make_plan (FALSE, FALSE);

  g_assert_true (is_answered (&plan, 1, guest, plan.gateway));
  g_assert_true (is_answered (&plan, 1, 0, plan.gateway));
  g_assert_false (is_answered (&plan, 2, guest, plan.gateway));
  g_assert_false (is_answered (&plan, 3, guest, plan.gateway));
  g_assert_false (is_answered (&plan, 1, guest, guest));
  g_assert_false (is_answered (&plan, 1, guest, NETD_IP (192, 168, 127, 3)));
  g_assert_false (is_answered (&plan, 1, guest, plan.broadcast));
  g_assert_false (is_answered (&plan, 1, guest, plan.host_alias));
  g_assert_false (is_answered (&plan, 1, guest, NETD_IP_METADATA));
  g_assert_false (is_answered (&plan, 1, guest, NETD_IP (8, 8, 8, 8)));
  g_assert_false (is_answered (&plan, 1, guest, 0));

  plan = make_plan (TRUE, FALSE);
  g_assert_true (is_answered (&plan, 1, guest, NETD_IP_METADATA));
  g_assert_false (is_answered (&plan, 1, guest, NETD_IP (169, 254, 169, 253)));
  g_assert_false (is_answered (&plan, 1, guest, plan.host_alias));

  plan = make_plan (FALSE, TRUE);
  g_assert_true (is_answered (&plan, 1, guest, plan.host_alias));
  g_assert_false (is_answered (&plan, 1, guest, NETD_IP_METADATA));
}

static void
test_other_frames (void)
{
  NetdPlan plan = make_plan (TRUE, TRUE);
  guint8 frame[64] = { 0 };
  NetdPacket packet;

  netd_packet_parse (&packet, frame, sizeof frame);
  g_assert_cmpuint (netd_arp_answer (&plan, &packet, frame, sizeof frame), ==, 0);
  netd_packet_parse (&packet, frame, 5);
  g_assert_cmpuint (netd_arp_answer (&plan, &packet, frame, sizeof frame), ==, 0);
}

int
main (int argc, char **argv)
{
  g_test_init (&argc, &argv, NULL);
  g_test_add_func ("/netd/arp/answers", test_answers);
  g_test_add_func ("/netd/arp/other-frames", test_other_frames);
  return g_test_run ();
}

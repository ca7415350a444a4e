/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The plan of a network, and the one question that is asked of it for every packet that would leave
 * the segment: where may it go? There is one answer for all protocols, so that no protocol is a way
 * round it.
 */
#include "netd-plan.h"

#include <string.h>

/* What no guest may reach whatever the host's routes say. */
static const struct
{
  guint32 network;
  guint32 netmask;
} forbidden[] = {
  { NETD_IP (0, 0, 0, 0), NETD_IP (255, 0, 0, 0) },       /* "this" network; connects to loopback */
  { NETD_IP (127, 0, 0, 0), NETD_IP (255, 0, 0, 0) },     /* the host's loopback */
  { NETD_IP (169, 254, 0, 0), NETD_IP (255, 255, 0, 0) }, /* link-local: the host's own metadata */
  { NETD_IP (224, 0, 0, 0), NETD_IP (240, 0, 0, 0) },     /* multicast */
  { NETD_IP (240, 0, 0, 0), NETD_IP (240, 0, 0, 0) },     /* reserved, and broadcast */
};

void
netd_plan_clear (NetdPlan *plan)
{
  g_free (plan->name);
  g_free (plan->search_domain);
  memset (plan, 0, sizeof *plan);
}

NetdPlace
netd_plan_place (const NetdPlan *plan, guint32 destination)
{
  if (destination == plan->gateway)
    return NETD_PLACE_GATEWAY;
  if (destination == NETD_IP_METADATA && plan->enable_imds)
    return NETD_PLACE_METADATA;
  if (destination == plan->host_alias && plan->enable_host_alias)
    return NETD_PLACE_ALIAS;
  if ((destination & plan->netmask) == plan->network)
    return NETD_PLACE_FORBIDDEN;
  for (guint i = 0; i < G_N_ELEMENTS (forbidden); i++)
    {
      if ((destination & forbidden[i].netmask) == forbidden[i].network)
        return NETD_PLACE_FORBIDDEN;
    }
  return NETD_PLACE_OUTSIDE;
}

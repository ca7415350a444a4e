/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "netd-address.h"

#define NETD_MTU_MIN 1500
#define NETD_MTU_MAX 65520

/* What a network is: immutable once read. */
typedef struct
{
  char *name;
  guint32 network;
  guint32 netmask;
  guint32 gateway;
  guint32 broadcast;  /* the last address */
  guint32 host_alias; /* the last but one; answered only when enable_host_alias */
  NetdMac gateway_mac;
  char *search_domain; /* or NULL */
  guint mtu;
  gboolean enable_imds;
  gboolean enable_host_alias;
} NetdPlan;

/* Where a packet to this address may go. */
typedef enum
{
  NETD_PLACE_GATEWAY,   /* the gateway itself */
  NETD_PLACE_METADATA,  /* 169.254.169.254, with the metadata service on */
  NETD_PLACE_ALIAS,     /* the host's loopback, where that is enabled */
  NETD_PLACE_OUTSIDE,   /* anything the host can reach */
  NETD_PLACE_FORBIDDEN, /* loopback, link-local, multicast, reserved, the rest of the own prefix */
} NetdPlace;

void netd_plan_clear (NetdPlan *plan);
NetdPlace netd_plan_place (const NetdPlan *plan, guint32 destination);

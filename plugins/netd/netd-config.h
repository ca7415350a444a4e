/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "netd-forward.h"

/* networks/<name>/netd.json: everything that netd needs to come up again by itself. */
#define NETD_CONFIG_FILE "netd.json"
#define NETD_CONTROL_SOCKET "control.sock"
#define NETD_CONFIG_MAX (4 * 1024 * 1024)

typedef struct
{
  char *vm_id;
  NetdMac mac;
  guint32 ip;
  char *socket_path;
  char *metadata_path; /* or NULL */
} NetdConfigPort;

typedef struct
{
  char *id;
  char *vm_id;
  guint16 port;
  gboolean is_udp;
  char *host_address;
  guint16 host_port;
} NetdConfigForward;

typedef struct
{
  NetdPlan plan;
  GPtrArray *ports;    /* NetdConfigPort */
  GPtrArray *forwards; /* NetdConfigForward */
} NetdConfig;

/* In the directory of a network, which must be nobody else's to write to. */
NetdConfig *netd_config_read (const char *directory, GError **error);
NetdConfig *netd_config_parse (const char *text, GError **error);
void netd_config_free (NetdConfig *self);
const NetdConfigPort *netd_config_find_port (NetdConfig *self, const char *vm_id);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (NetdConfig, netd_config_free)

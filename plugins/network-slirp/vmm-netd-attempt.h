/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "interfaces/vmm-launcher.h"
#include "vmm-netd-channel.h"
#include "vmm-netd-file.h"

G_BEGIN_DECLS

/* Which vmm-netd, and where; lasts as long as attempts are made with it. */
typedef struct
{
  VmmLauncher *launcher;
  char *helper; /* the program */
  char *id;     /* the process's */
  char *network;
  char *directory;
  VmmNetdFile *file; /* loaded */
} VmmNetdAttemptConfig;

typedef enum
{
  VMM_NETD_ATTEMPT_FIND,      /* the one of an earlier daemon, else start */
  VMM_NETD_ATTEMPT_RECONNECT, /* the one that runs, else start */
  VMM_NETD_ATTEMPT_START,     /* a new one */
} VmmNetdAttemptKind;

#define VMM_NETD_GRACE_MS 3000

/* process: the one that runs, for a reconnection. */
void vmm_netd_attempt_async (const VmmNetdAttemptConfig *config, VmmNetdAttemptKind kind,
                             VmmProcess *process, GCancellable *cancellable,
                             GAsyncReadyCallback callback, gpointer user_data);
/* (transfer full): the process, and its channel; both may have ended since. */
VmmProcess *vmm_netd_attempt_finish (GAsyncResult *result, VmmNetdChannel **channel,
                                     GError **error);

G_END_DECLS

/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <gio/gio.h>

#include "vmm-host-facts.h"

G_BEGIN_DECLS

/* Whether QEMU runs guests with KVM: found out once for each QEMU and each device node. */
typedef struct
{
  VmmHostFile qemu;     /* what was asked, */
  VmmHostDevice device; /* and with which node */
  gint64 ask_again_us;  /* monotonic; 0 when the answer is final */
  gboolean known;
  gboolean usable;
  char *error; /* when it is not */
} VmmHostKvm;

void vmm_host_kvm_clear (VmmHostKvm *self);
/* Makes the answer fit. It must stay until the callback was called. */
void vmm_host_kvm_update_async (VmmHostKvm *self, const VmmHostFile *qemu,
                                const VmmHostDevice *device, guint limit_ms,
                                GAsyncReadyCallback callback, gpointer user_data);

G_END_DECLS

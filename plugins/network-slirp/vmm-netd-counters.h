/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "interfaces/vmm-network-backend.h"

G_BEGIN_DECLS

/* The page in which vmm-netd counts, mapped read-only: reading it costs no message. */
typedef struct _VmmNetdCounters VmmNetdCounters;

/* names: what it counts, in the page's order. Does not take the descriptor over. Fails with
 * VMM_ERROR_INTERNAL on anything but a page that cannot shrink. */
VmmNetdCounters *vmm_netd_counters_new (int fd, const char *const *names, GError **error);
void vmm_netd_counters_free (VmmNetdCounters *self);
/* Whether both are the same page: the same run of vmm-netd. */
gboolean vmm_netd_counters_are_same (const VmmNetdCounters *a, const VmmNetdCounters *b);
/* Adds what the page says. */
void vmm_netd_counters_add_to (const VmmNetdCounters *self, VmmNetworkCounters *sums);

G_DEFINE_AUTOPTR_CLEANUP_FUNC (VmmNetdCounters, vmm_netd_counters_free)

G_END_DECLS

/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "vmm-http-connection.h"
#include "vmm-service.h"

G_BEGIN_DECLS

/* The metadata service: a socket for each VM of a service, from before its first boot until nothing
 * of it is left. The network leads each VM to its own. */
#define VMM_TYPE_IMDS (vmm_imds_get_type ())
G_DECLARE_FINAL_TYPE (VmmImds, vmm_imds, VMM, IMDS, GObject)

/* Before the service is loaded. */
VmmImds *vmm_imds_new (VmmService *service);
/* Other time limits than the usual ones, for tests: of connections to come. */
void vmm_imds_set_times (VmmImds *self, const VmmHttpTimes *times);
/* And another rate: so many requests and connections in one go, so many a second. Of VMs to come. */
void vmm_imds_set_rate (VmmImds *self, guint burst, double per_second);
/* Stops accepting; answers when the running requests are done or the time is up. */
void vmm_imds_close_async (VmmImds *self, guint timeout_ms, GAsyncReadyCallback callback,
                           gpointer user_data);
gboolean vmm_imds_close_finish (VmmImds *self, GAsyncResult *result, GError **error);

G_END_DECLS

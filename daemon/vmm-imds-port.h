/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "vmm-imds-disk.h"
#include "vmm-http-connection.h"
#include "vmm-service.h"

G_BEGIN_DECLS

/* What the metadata services of all VMs share. */
typedef struct
{
  VmmService *service;
  VmmImdsDisk *disk;
  VmmHttpTimes times;
  guint burst;       /* requests and connections of a VM in one go, */
  double per_second; /* and after that; each piece of a body counts as one */
  gsize held;        /* bytes of bodies that are being received or worked on */
} VmmImdsShared;
VmmImdsShared *vmm_imds_shared_ref (VmmImdsShared *self);
void vmm_imds_shared_unref (VmmImdsShared *self);

/* The metadata service of one VM: its socket, and all that it may cost. Who connects there is that
 * VM, whatever it says.
 *
 * ::idle () whenever the last connection has ended. */
#define VMM_TYPE_IMDS_PORT (vmm_imds_port_get_type ())
G_DECLARE_FINAL_TYPE (VmmImdsPort, vmm_imds_port, VMM, IMDS_PORT, GObject)

/* At a time: connections, bytes of bodies of this VM, and of all. */
#define VMM_IMDS_MAX_CONNECTIONS 32
#define VMM_IMDS_MAX_HELD (17 * 1024 * 1024)
#define VMM_IMDS_MAX_HELD_BY_ALL (256 * 1024 * 1024)
#define VMM_IMDS_BODY_PIECE (64 * 1024)

/* What a VM may have under way only so often. */
typedef enum
{
  VMM_IMDS_TRANSFER,
  VMM_IMDS_JUDGEMENT,
  VMM_IMDS_UPLOAD,
} VmmImdsWork;
#define VMM_IMDS_N_WORKS (VMM_IMDS_UPLOAD + 1)
#define VMM_IMDS_MAX_TRANSFERS 8
#define VMM_IMDS_MAX_JUDGEMENTS 2
#define VMM_IMDS_MAX_UPLOADS 1

VmmImdsPort *vmm_imds_port_new (VmmImdsShared *shared, VmmMachine *machine);
/* Begins to listen; nothing when it does. */
gboolean vmm_imds_port_listen (VmmImdsPort *self, GError **error);
/* Stops to listen, ends connections without a request and the others after it. */
void vmm_imds_port_finish (VmmImdsPort *self);
/* Ends what is left. */
void vmm_imds_port_abort (VmmImdsPort *self);
gboolean vmm_imds_port_is_idle (VmmImdsPort *self);

/* For those who answer: */
VmmMachine *vmm_imds_port_get_machine (VmmImdsPort *self);
VmmImdsShared *vmm_imds_port_get_shared (VmmImdsPort *self);
/* Whether the VM is still one that is served. */
gboolean vmm_imds_port_is_served (VmmImdsPort *self);
/* Another number after each start and reset of the guest. */
guint vmm_imds_port_get_boot (VmmImdsPort *self);
/* FALSE when there is as much as there may be. */
gboolean vmm_imds_port_begin (VmmImdsPort *self, VmmImdsWork work);
void vmm_imds_port_end (VmmImdsPort *self, VmmImdsWork work);

G_END_DECLS

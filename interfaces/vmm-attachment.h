/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <glib-object.h>

G_BEGIN_DECLS

/**
 * VmmAttachment:
 *
 * How a VM is plugged into a network: what QEMU is told and what it may open. Reference counted,
 * immutable once it was handed out.
 */
typedef struct _VmmAttachment VmmAttachment;
#define VMM_TYPE_ATTACHMENT (vmm_attachment_get_type ())
GType vmm_attachment_get_type (void) G_GNUC_CONST;

VmmAttachment *vmm_attachment_new (const char *const *arguments);
VmmAttachment *vmm_attachment_ref (VmmAttachment *self);
void vmm_attachment_unref (VmmAttachment *self);
void vmm_attachment_add_device (VmmAttachment *self, const char *path);
const char *const *vmm_attachment_get_arguments (VmmAttachment *self);
const char *const *vmm_attachment_get_devices (VmmAttachment *self);

G_DEFINE_AUTOPTR_CLEANUP_FUNC (VmmAttachment, vmm_attachment_unref)

G_END_DECLS

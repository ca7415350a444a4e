/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <gio/gio.h>

G_BEGIN_DECLS

/* Who is asking: which door, and what that door knows of the peer. Immutable, reference counted. */
typedef struct _VmmCaller VmmCaller;
#define VMM_TYPE_CALLER (vmm_caller_get_type ())
GType vmm_caller_get_type (void) G_GNUC_CONST;

VmmCaller *vmm_caller_new (const char *door, const char *subject);
VmmCaller *vmm_caller_ref (VmmCaller *self);
void vmm_caller_unref (VmmCaller *self);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (VmmCaller, vmm_caller_unref)

const char *vmm_caller_get_door (VmmCaller *self);
/* Who owns what this caller creates: "uid:1000", a token's subject, or "vm-manager". */
const char *vmm_caller_get_subject (VmmCaller *self);

G_END_DECLS

/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <json-glib/json-glib.h>

#include "vmm-caller.h"

G_BEGIN_DECLS

/* One call of one operation: who, with what, until when. The handler reads its arguments from it
 * (already checked against the row's schema, defaults filled in) and reports progress through it.
 *
 * ::progress (const char *phase, const char *message) */
#define VMM_TYPE_CALL (vmm_call_get_type ())
G_DECLARE_FINAL_TYPE (VmmCall, vmm_call, VMM, CALL, GObject)

VmmCall *vmm_call_new (VmmCaller *caller, JsonObject *arguments, GCancellable *cancellable);
VmmCaller *vmm_call_get_caller (VmmCall *self);
JsonObject *vmm_call_get_arguments (VmmCall *self);
/* For the operations table: the checked arguments in place of the ones the door gave. */
void vmm_call_set_arguments (VmmCall *self, JsonObject *arguments);
GCancellable *vmm_call_get_cancellable (VmmCall *self);
void vmm_call_report_progress (VmmCall *self, const char *phase, const char *message);

G_END_DECLS

/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "vmm-call.h"
#include "vmm-machine.h"

G_BEGIN_DECLS

/* Tells a waiting caller how his VM comes along: its state, and the last line of its console. */
typedef struct _VmmProgressWatch VmmProgressWatch;

/* NULL when nobody listens to the call's progress. */
VmmProgressWatch *vmm_progress_watch_new (VmmMachine *machine, VmmCall *call);
void vmm_progress_watch_free (VmmProgressWatch *self);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (VmmProgressWatch, vmm_progress_watch_free)

G_END_DECLS

/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "interfaces/vmm-process.h"
#include "vmm-child.h"

G_BEGIN_DECLS

/* A copy of what a spec asks for, made ready for the fork: the program found, the environment
 * written out, the log open. */
typedef struct
{
  VmmChildPlan plan;
  char *program; /* as it was named */
  char *log;
} VmmChildSetup;

VmmChildSetup *vmm_child_setup_new (VmmProcessSpec *spec, const VmmChildIdentity *identity,
                                    const char *const *identity_environment);
/* May block: for a worker thread. */
gboolean vmm_child_setup_prepare (VmmChildSetup *self, GError **error);
void vmm_child_setup_free (VmmChildSetup *self);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (VmmChildSetup, vmm_child_setup_free)

G_END_DECLS

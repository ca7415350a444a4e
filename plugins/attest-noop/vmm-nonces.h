/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <glib.h>

G_BEGIN_DECLS

#define VMM_NONCE_BYTES 32
#define VMM_NONCE_LIFETIME_US (5 * 60 * G_TIME_SPAN_SECOND)
#define VMM_NONCES_PER_VM 8
#define VMM_NONCES_MAX_VMS 16384

/* The outstanding nonces of all VMs. The time is an argument, in microseconds of a clock that goes
 * on while the host sleeps. */
typedef struct _VmmNonces VmmNonces;

VmmNonces *vmm_nonces_new (void);
void vmm_nonces_free (VmmNonces *self);
/* NULL when the kernel has no random bytes or too many VMs have nonces. */
GBytes *vmm_nonces_issue (VmmNonces *self, const char *vm_id, gint64 now_us, GError **error);
/* Uses up a nonce, given as hex: FALSE when it is not one of this VM's or too old. */
gboolean vmm_nonces_take (VmmNonces *self, const char *vm_id, const char *hex, gint64 now_us);
void vmm_nonces_drop (VmmNonces *self, const char *vm_id);

G_END_DECLS

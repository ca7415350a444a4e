/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Who is asking.
 *
 * A door makes one for each connection or message from what it can prove about its peer (the uid of
 * a socket, the subject of a token, the sender on a bus) and hands it down with the call. Below the
 * doors nobody asks the transport again: authority and ownership are decided from this value. */

#include "config.h"

#include "vmm-caller.h"

struct _VmmCaller
{
  char *door;
  char *subject;
};

G_DEFINE_BOXED_TYPE (VmmCaller, vmm_caller, vmm_caller_ref, vmm_caller_unref)

static void
vmm_caller_clear (VmmCaller *self)
{
  g_free (self->door);
  g_free (self->subject);
}

VmmCaller *
vmm_caller_new (const char *door, const char *subject)
{
  VmmCaller *self;

  g_return_val_if_fail (door != NULL, NULL);
  g_return_val_if_fail (subject != NULL, NULL);

  self = g_atomic_rc_box_new0 (VmmCaller);
  self->door = g_strdup (door);
  self->subject = g_strdup (subject);
  return self;
}

VmmCaller *
vmm_caller_ref (VmmCaller *self)
{
  return g_atomic_rc_box_acquire (self);
}

void
vmm_caller_unref (VmmCaller *self)
{
  g_atomic_rc_box_release_full (self, (GDestroyNotify) vmm_caller_clear);
}

const char *
vmm_caller_get_door (VmmCaller *self)
{
  g_return_val_if_fail (self != NULL, NULL);

  return self->door;
}

const char *
vmm_caller_get_subject (VmmCaller *self)
{
  g_return_val_if_fail (self != NULL, NULL);

  return self->subject;
}

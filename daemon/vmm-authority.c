/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Who may do what.
 *
 * The doors let nobody in of whom they know nothing, and every local caller who came in is the
 * daemon's own user or root: such a caller may do everything. Decisions by scope of a token or by
 * the owner of a VM belong here and nowhere else; the operation, the caller and the arguments as
 * they were given are all that they need. */

#include "config.h"

#include "vmm-authority.h"

#include "interfaces/vmm-error.h"

gboolean
vmm_authority_check (const VmmOperation *operation, VmmCaller *caller, JsonObject *arguments,
                     GError **error)
{
  if (caller == NULL || vmm_caller_get_subject (caller)[0] == '\0')
    {
      vmm_set_error (error, VMM_ERROR_UNAUTHORIZED, "%s needs a known caller", operation->name);
      return FALSE;
    }
  return TRUE;
}

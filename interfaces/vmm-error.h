/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <glib-object.h>

G_BEGIN_DECLS

#define VMM_ERROR (vmm_error_quark ())

/**
 * VmmError:
 * @VMM_ERROR_NOT_FOUND: the VM, network, image, volume or route does not exist
 * @VMM_ERROR_INVALID_REQUEST: the caller can fix the request
 * @VMM_ERROR_CONFLICT: the state of the resource forbids the operation
 * @VMM_ERROR_UNSUPPORTED: this host or configuration does not offer it
 * @VMM_ERROR_TIMEOUT: a milestone or an answer did not come in time
 * @VMM_ERROR_VM_FAILED: the VM failed before the milestone
 * @VMM_ERROR_UNAUTHORIZED: the caller is nobody we know
 * @VMM_ERROR_FORBIDDEN: the caller may not do this
 * @VMM_ERROR_INTERNAL: everything else
 *
 * The only error domain that leaves the service. Each code has one row in a table that
 * gives its slug, HTTP status, D-Bus error name and the text its messages begin with.
 */
typedef enum
{
  VMM_ERROR_NOT_FOUND,
  VMM_ERROR_INVALID_REQUEST,
  VMM_ERROR_CONFLICT,
  VMM_ERROR_UNSUPPORTED,
  VMM_ERROR_TIMEOUT,
  VMM_ERROR_VM_FAILED,
  VMM_ERROR_UNAUTHORIZED,
  VMM_ERROR_FORBIDDEN,
  VMM_ERROR_INTERNAL,
} VmmError;

/**
 * VMM_ERROR_LAST:
 *
 * The number of error codes.
 */
#define VMM_ERROR_LAST (VMM_ERROR_INTERNAL + 1)

/**
 * VmmErrorInfo:
 * @slug: the machine-readable code, such as `not_found`
 * @dbus_name: the full D-Bus error name
 * @http_status: the HTTP status
 * @sentinel: the text messages of this code begin with; %NULL for none
 *
 * How one error code looks at each door.
 */
typedef struct
{
  const char *slug;
  const char *dbus_name;
  guint http_status;
  const char *sentinel;
} VmmErrorInfo;

GQuark vmm_error_quark (void);
const VmmErrorInfo *vmm_error_get_info (VmmError code);
GError *vmm_error_new (VmmError code, const char *format, ...) G_GNUC_PRINTF (2, 3);
void vmm_set_error (GError **error, VmmError code, const char *format, ...) G_GNUC_PRINTF (3, 4);
void vmm_error_normalize (GError **error);

G_END_DECLS

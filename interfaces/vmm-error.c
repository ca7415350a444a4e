/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The one error domain of the service and its plugins.
 *
 * A single table says how each code looks at every door: the slug that programs read, the HTTP
 * status, the D-Bus error name and the text its messages begin with. Plugins and the daemon raise
 * VMM_ERROR where an error is born and only add context afterwards; what libraries raise is mapped
 * in one place, vmm_error_normalize().
 */

#include "vmm-error.h"

#include <gio/gio.h>

#define DBUS_PREFIX "org.vmmanager1.Error."
#define NO_SPACE_TEXT "no space left"

static const VmmErrorInfo infos[] = {
  [VMM_ERROR_NOT_FOUND] = { "not_found", DBUS_PREFIX "NotFound", 404, "not found" },
  [VMM_ERROR_INVALID_REQUEST]
  = { "invalid_request", DBUS_PREFIX "InvalidRequest", 400, "invalid request" },
  [VMM_ERROR_CONFLICT] = { "conflict", DBUS_PREFIX "Conflict", 409, "conflict" },
  [VMM_ERROR_UNSUPPORTED] = { "unsupported", DBUS_PREFIX "Unsupported", 501, "unsupported" },
  [VMM_ERROR_TIMEOUT] = { "timeout", DBUS_PREFIX "Timeout", 504, "timeout" },
  [VMM_ERROR_VM_FAILED] = { "vm_failed", DBUS_PREFIX "VmFailed", 500, "vm failed" },
  [VMM_ERROR_UNAUTHORIZED] = { "unauthorized", DBUS_PREFIX "Unauthorized", 401, "unauthorized" },
  [VMM_ERROR_FORBIDDEN] = { "forbidden", DBUS_PREFIX "Forbidden", 403, "forbidden" },
  [VMM_ERROR_INTERNAL] = { "internal_error", DBUS_PREFIX "Internal", 500, NULL },
};
G_STATIC_ASSERT (G_N_ELEMENTS (infos) == VMM_ERROR_LAST);

/**
 * vmm_error_quark:
 *
 * The error domain. Its codes are registered with GDBus, so that an error returned from a D-Bus
 * method carries its own name and one received from D-Bus has this domain again.
 *
 * Returns: the quark of `VMM_ERROR`
 */
GQuark
vmm_error_quark (void)
{
  static gsize quark = 0;

  if (g_once_init_enter (&quark))
    {
      GQuark domain = g_quark_from_static_string ("vmm-error-quark");

      for (guint i = 0; i < G_N_ELEMENTS (infos); i++)
        g_dbus_error_register_error (domain, (int) i, infos[i].dbus_name);
      g_once_init_leave (&quark, domain);
    }
  return (GQuark) quark;
}

/**
 * vmm_error_get_info: (skip)
 * @code: an error code
 *
 * How a code looks at each door. A number that is no code looks like `VMM_ERROR_INTERNAL`.
 *
 * Returns: (transfer none): the row of the table
 */
const VmmErrorInfo *
vmm_error_get_info (VmmError code)
{
  if ((guint) code >= G_N_ELEMENTS (infos))
    code = VMM_ERROR_INTERNAL;
  return &infos[code];
}

static GError *new_valist (VmmError code, const char *format, va_list args) G_GNUC_PRINTF (2, 0);

static GError *
new_valist (VmmError code, const char *format, va_list args)
{
  const char *sentinel = vmm_error_get_info (code)->sentinel;
  g_autofree char *text = g_strdup_vprintf (format, args);

  if (sentinel == NULL)
    return g_error_new_literal (VMM_ERROR, (int) code, text);
  return g_error_new (VMM_ERROR, (int) code, "%s: %s", sentinel, text);
}

/**
 * vmm_error_new: (skip)
 * @code: the code
 * @format: a printf format for what was asked, what is wrong and what to do; never a secret
 * @...: its values
 *
 * Makes an error whose message begins with the code's own text, such as `not found: `.
 *
 * Returns: (transfer full): the error
 */
GError *
vmm_error_new (VmmError code, const char *format, ...)
{
  GError *error;
  va_list args;

  va_start (args, format);
  error = new_valist (code, format, args);
  va_end (args);
  return error;
}

/**
 * vmm_set_error: (skip)
 * @error: (nullable): where to put the error; nothing happens when it is %NULL
 * @code: the code
 * @format: a printf format, as for vmm_error_new()
 * @...: its values
 *
 * Sets an error whose message begins with the code's own text.
 */
void
vmm_set_error (GError **error, VmmError code, const char *format, ...)
{
  va_list args;

  if (error == NULL)
    return;
  g_return_if_fail (*error == NULL);

  va_start (args, format);
  *error = new_valist (code, format, args);
  va_end (args);
}

/* Permission errors of the daemon itself become VMM_ERROR_INTERNAL: VMM_ERROR_FORBIDDEN would tell
 * the caller that he may not, which only the authority decides. */
static VmmError
code_of_io_error (int code)
{
  switch (code)
    {
    case G_IO_ERROR_NOT_FOUND:
      return VMM_ERROR_NOT_FOUND;
    case G_IO_ERROR_EXISTS:
    case G_IO_ERROR_BUSY:
      return VMM_ERROR_CONFLICT;
    case G_IO_ERROR_NOT_SUPPORTED:
      return VMM_ERROR_UNSUPPORTED;
    case G_IO_ERROR_TIMED_OUT:
      return VMM_ERROR_TIMEOUT;
    default:
      return VMM_ERROR_INTERNAL;
    }
}

static VmmError
code_of_file_error (int code)
{
  switch (code)
    {
    case G_FILE_ERROR_NOENT:
      return VMM_ERROR_NOT_FOUND;
    case G_FILE_ERROR_EXIST:
      return VMM_ERROR_CONFLICT;
    case G_FILE_ERROR_NOSYS:
      return VMM_ERROR_UNSUPPORTED;
    default:
      return VMM_ERROR_INTERNAL;
    }
}

static VmmError
code_of_dbus_error (int code)
{
  switch (code)
    {
    case G_DBUS_ERROR_FILE_NOT_FOUND:
    case G_DBUS_ERROR_UNKNOWN_OBJECT:
      return VMM_ERROR_NOT_FOUND;
    case G_DBUS_ERROR_FILE_EXISTS:
      return VMM_ERROR_CONFLICT;
    case G_DBUS_ERROR_NOT_SUPPORTED:
    case G_DBUS_ERROR_SERVICE_UNKNOWN:
    case G_DBUS_ERROR_NAME_HAS_NO_OWNER:
    case G_DBUS_ERROR_UNKNOWN_METHOD:
    case G_DBUS_ERROR_UNKNOWN_INTERFACE:
      return VMM_ERROR_UNSUPPORTED;
    case G_DBUS_ERROR_NO_REPLY:
    case G_DBUS_ERROR_TIMEOUT:
    case G_DBUS_ERROR_TIMED_OUT:
      return VMM_ERROR_TIMEOUT;
    default:
      return VMM_ERROR_INTERNAL;
    }
}

static VmmError
code_of (const GError *error)
{
  if (error->domain == G_IO_ERROR)
    return code_of_io_error (error->code);
  if (error->domain == G_FILE_ERROR)
    return code_of_file_error (error->code);
  if (error->domain == G_DBUS_ERROR)
    return code_of_dbus_error (error->code);
  if (g_error_matches (error, G_SPAWN_ERROR, G_SPAWN_ERROR_NOENT))
    return VMM_ERROR_NOT_FOUND;
  return VMM_ERROR_INTERNAL;
}

static gboolean
is_out_of_space (const GError *error)
{
  return g_error_matches (error, G_IO_ERROR, G_IO_ERROR_NO_SPACE)
         || g_error_matches (error, G_FILE_ERROR, G_FILE_ERROR_NOSPC);
}

/**
 * vmm_error_normalize: (skip)
 * @error: (inout): the error to map; nothing happens when it or what it points to is %NULL
 *
 * Maps what libraries raise to `VMM_ERROR`, keeping the message. The prefix that GDBus puts before
 * the message of a remote error is removed. Errors of `VMM_ERROR` stay as they are, and so does
 * `G_IO_ERROR_CANCELLED`, which is no failure. An error of a full disk always says "no space left".
 */
void
vmm_error_normalize (GError **error)
{
  g_autoptr (GError) old = NULL;
  g_autofree char *lower = NULL;
  const char *space = "";

  if (error == NULL || *error == NULL)
    return;

  g_dbus_error_strip_remote_error (*error);
  if ((*error)->domain == VMM_ERROR || g_error_matches (*error, G_IO_ERROR, G_IO_ERROR_CANCELLED))
    return;

  old = g_steal_pointer (error);
  lower = g_ascii_strdown (old->message, -1);
  if (is_out_of_space (old) && strstr (lower, NO_SPACE_TEXT) == NULL)
    space = NO_SPACE_TEXT ": ";
  *error = vmm_error_new (code_of (old), "%s%s", space, old->message);
}

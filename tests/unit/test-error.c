/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include <gio/gio.h>

#include "interfaces/vmm-error.h"

typedef struct
{
  VmmError code;
  const char *slug;
  const char *dbus_name;
  guint http_status;
  const char *sentinel;
} Row;

static const Row rows[] = {
  { VMM_ERROR_NOT_FOUND, "not_found", "org.vmmanager1.Error.NotFound", 404, "not found" },
  { VMM_ERROR_INVALID_REQUEST, "invalid_request", "org.vmmanager1.Error.InvalidRequest", 400,
    "invalid request" },
  { VMM_ERROR_CONFLICT, "conflict", "org.vmmanager1.Error.Conflict", 409, "conflict" },
  { VMM_ERROR_UNSUPPORTED, "unsupported", "org.vmmanager1.Error.Unsupported", 501, "unsupported" },
  { VMM_ERROR_TIMEOUT, "timeout", "org.vmmanager1.Error.Timeout", 504, "timeout" },
  { VMM_ERROR_VM_FAILED, "vm_failed", "org.vmmanager1.Error.VmFailed", 500, "vm failed" },
  { VMM_ERROR_UNAUTHORIZED, "unauthorized", "org.vmmanager1.Error.Unauthorized", 401,
    "unauthorized" },
  { VMM_ERROR_FORBIDDEN, "forbidden", "org.vmmanager1.Error.Forbidden", 403, "forbidden" },
  { VMM_ERROR_INTERNAL, "internal_error", "org.vmmanager1.Error.Internal", 500, NULL },
};

static void
test_table (void)
{
  g_assert_cmpuint (G_N_ELEMENTS (rows), ==, VMM_ERROR_LAST);
  for (guint i = 0; i < G_N_ELEMENTS (rows); i++)
    {
      const VmmErrorInfo *info = vmm_error_get_info (rows[i].code);
      g_autoptr (GError) error = vmm_error_new (rows[i].code, "vm \"%s\"", "nope");
      g_autofree char *name = g_dbus_error_encode_gerror (error);

      g_assert_cmpstr (info->slug, ==, rows[i].slug);
      g_assert_cmpstr (info->dbus_name, ==, rows[i].dbus_name);
      g_assert_cmpuint (info->http_status, ==, rows[i].http_status);
      g_assert_cmpstr (info->sentinel, ==, rows[i].sentinel);
      g_assert_cmpstr (name, ==, rows[i].dbus_name);
    }
  g_assert_true (vmm_error_get_info ((VmmError) 99) == vmm_error_get_info (VMM_ERROR_INTERNAL));
  g_assert_true (vmm_error_get_info ((VmmError) -1) == vmm_error_get_info (VMM_ERROR_INTERNAL));
}

static void
test_sentinel (void)
{
  g_autoptr (GError) error = NULL;
  g_autoptr (GError) internal = vmm_error_new (VMM_ERROR_INTERNAL, "no %d", 7);

  vmm_set_error (&error, VMM_ERROR_NOT_FOUND, "vm \"%s\"", "nope");
  g_assert_error (error, VMM_ERROR, VMM_ERROR_NOT_FOUND);
  g_assert_cmpstr (error->message, ==, "not found: vm \"nope\"");
  g_assert_error (internal, VMM_ERROR, VMM_ERROR_INTERNAL);
  g_assert_cmpstr (internal->message, ==, "no 7");
  vmm_set_error (NULL, VMM_ERROR_CONFLICT, "nobody listens");
}

static void
test_from_dbus (void)
{
  g_autoptr (GError) error
      = g_dbus_error_new_for_dbus_error ("org.vmmanager1.Error.Conflict", "conflict: it runs");

  /* The quark is what registers the names; here it certainly was asked for. */
  g_assert_cmpstr (g_quark_to_string (VMM_ERROR), ==, "vmm-error-quark");
  g_assert_error (error, VMM_ERROR, VMM_ERROR_CONFLICT);
  vmm_error_normalize (&error);
  g_assert_error (error, VMM_ERROR, VMM_ERROR_CONFLICT);
  g_assert_cmpstr (error->message, ==, "conflict: it runs");
}

typedef struct
{
  GQuark domain;
  int code;
  const char *message;
  VmmError expected;
  const char *expected_message;
} Mapping;

static void
test_normalize (void)
{
  const Mapping mappings[] = {
    { G_IO_ERROR, G_IO_ERROR_NOT_FOUND, "a", VMM_ERROR_NOT_FOUND, "not found: a" },
    { G_IO_ERROR, G_IO_ERROR_EXISTS, "a", VMM_ERROR_CONFLICT, "conflict: a" },
    { G_IO_ERROR, G_IO_ERROR_BUSY, "a", VMM_ERROR_CONFLICT, "conflict: a" },
    { G_IO_ERROR, G_IO_ERROR_TIMED_OUT, "a", VMM_ERROR_TIMEOUT, "timeout: a" },
    { G_IO_ERROR, G_IO_ERROR_NOT_SUPPORTED, "a", VMM_ERROR_UNSUPPORTED, "unsupported: a" },
    { G_IO_ERROR, G_IO_ERROR_PERMISSION_DENIED, "a", VMM_ERROR_INTERNAL, "a" },
    { G_IO_ERROR, G_IO_ERROR_NO_SPACE, "disk", VMM_ERROR_INTERNAL, "no space left: disk" },
    { G_IO_ERROR, G_IO_ERROR_NO_SPACE, "x: No space left on device", VMM_ERROR_INTERNAL,
      "x: No space left on device" },
    { G_IO_ERROR, G_IO_ERROR_FAILED, "100%s", VMM_ERROR_INTERNAL, "100%s" },
    { G_FILE_ERROR, G_FILE_ERROR_NOENT, "a", VMM_ERROR_NOT_FOUND, "not found: a" },
    { G_FILE_ERROR, G_FILE_ERROR_EXIST, "a", VMM_ERROR_CONFLICT, "conflict: a" },
    { G_FILE_ERROR, G_FILE_ERROR_NOSYS, "a", VMM_ERROR_UNSUPPORTED, "unsupported: a" },
    { G_FILE_ERROR, G_FILE_ERROR_NOSPC, "a", VMM_ERROR_INTERNAL, "no space left: a" },
    { G_FILE_ERROR, G_FILE_ERROR_ACCES, "a", VMM_ERROR_INTERNAL, "a" },
    { G_DBUS_ERROR, G_DBUS_ERROR_NO_REPLY, "a", VMM_ERROR_TIMEOUT, "timeout: a" },
    { G_DBUS_ERROR, G_DBUS_ERROR_SERVICE_UNKNOWN, "a", VMM_ERROR_UNSUPPORTED, "unsupported: a" },
    { G_DBUS_ERROR, G_DBUS_ERROR_UNKNOWN_OBJECT, "a", VMM_ERROR_NOT_FOUND, "not found: a" },
    { G_DBUS_ERROR, G_DBUS_ERROR_FILE_EXISTS, "a", VMM_ERROR_CONFLICT, "conflict: a" },
    { G_DBUS_ERROR, G_DBUS_ERROR_ACCESS_DENIED, "a", VMM_ERROR_INTERNAL, "a" },
    { G_SPAWN_ERROR, G_SPAWN_ERROR_NOENT, "a", VMM_ERROR_NOT_FOUND, "not found: a" },
    { G_SPAWN_ERROR, G_SPAWN_ERROR_ACCES, "a", VMM_ERROR_INTERNAL, "a" },
    { G_KEY_FILE_ERROR, G_KEY_FILE_ERROR_PARSE, "a", VMM_ERROR_INTERNAL, "a" },
  };

  for (guint i = 0; i < G_N_ELEMENTS (mappings); i++)
    {
      g_autoptr (GError) error
          = g_error_new_literal (mappings[i].domain, mappings[i].code, mappings[i].message);

      vmm_error_normalize (&error);
      g_assert_error (error, VMM_ERROR, (int) mappings[i].expected);
      g_assert_cmpstr (error->message, ==, mappings[i].expected_message);
    }
}

static void
test_normalize_leaves (void)
{
  g_autoptr (GError) none = NULL;
  g_autoptr (GError) ours = vmm_error_new (VMM_ERROR_VM_FAILED, "it broke");
  g_autoptr (GError) cancelled
      = g_error_new_literal (G_IO_ERROR, G_IO_ERROR_CANCELLED, "Operation was cancelled");
  GError *same = ours;

  vmm_error_normalize (NULL);
  vmm_error_normalize (&none);
  g_assert_no_error (none);
  vmm_error_normalize (&ours);
  g_assert_true (ours == same);
  g_assert_cmpstr (ours->message, ==, "vm failed: it broke");
  vmm_error_normalize (&cancelled);
  g_assert_error (cancelled, G_IO_ERROR, G_IO_ERROR_CANCELLED);
}

static void
test_normalize_remote (void)
{
  g_autoptr (GError) known
      = g_dbus_error_new_for_dbus_error ("org.freedesktop.DBus.Error.NotSupported", "no such unit");
  g_autoptr (GError) foreign
      = g_dbus_error_new_for_dbus_error ("org.freedesktop.systemd1.UnitMasked", "it is masked");

  vmm_error_normalize (&known);
  g_assert_error (known, VMM_ERROR, VMM_ERROR_UNSUPPORTED);
  g_assert_cmpstr (known->message, ==, "unsupported: no such unit");
  vmm_error_normalize (&foreign);
  g_assert_error (foreign, VMM_ERROR, VMM_ERROR_INTERNAL);
  g_assert_cmpstr (foreign->message, ==, "it is masked");
}

int
main (int argc, char **argv)
{
  g_test_init (&argc, &argv, G_TEST_OPTION_ISOLATE_DIRS, NULL);
  g_test_add_func ("/error/table", test_table);
  g_test_add_func ("/error/sentinel", test_sentinel);
  g_test_add_func ("/error/from-dbus", test_from_dbus);
  g_test_add_func ("/error/normalize", test_normalize);
  g_test_add_func ("/error/normalize-leaves", test_normalize_leaves);
  g_test_add_func ("/error/normalize-remote", test_normalize_remote);
  return g_test_run ();
}

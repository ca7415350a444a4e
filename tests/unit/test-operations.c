/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The table of operations and the way through it: routes, and what happens to a call between the
 * door and its handler. The handlers here are the test's own, so no service is needed. */

#include "vmm-operations.h"

#include <string.h>

#include "interfaces/vmm-error.h"
#include "test-await.h"
#include "vmm-json.h"

/* --- handlers ------------------------------------------------------------------------------- */

typedef enum
{
  BEHAVE_ECHO,  /* answers the arguments it was given */
  BEHAVE_EMPTY, /* no content */
  BEHAVE_FAIL_IO,
  BEHAVE_FAIL_VM,
  BEHAVE_HANG, /* until the test lets it go */
} Behaviour;

static Behaviour behaviour;
static guint n_started;
static GTask *hanging;

static void
handler_start (VmmService *service, VmmCall *call, GAsyncReadyCallback callback, gpointer user_data)
{
  g_autoptr (GTask) task = g_task_new (service, NULL, callback, user_data);

  n_started++;
  vmm_call_report_progress (call, "work", "started");
  switch (behaviour)
    {
    case BEHAVE_ECHO:
      g_task_return_pointer (
          task, vmm_json_node_take_object (json_object_ref (vmm_call_get_arguments (call))),
          (GDestroyNotify) json_node_unref);
      break;
    case BEHAVE_EMPTY:
      g_task_return_pointer (task, NULL, NULL);
      break;
    case BEHAVE_FAIL_IO:
      g_task_return_new_error (task, G_IO_ERROR, G_IO_ERROR_NOT_FOUND, "no such thing");
      break;
    case BEHAVE_FAIL_VM:
      g_task_return_error (task, vmm_error_new (VMM_ERROR_VM_FAILED, "it broke"));
      break;
    case BEHAVE_HANG:
    default:
      hanging = g_steal_pointer (&task);
      break;
    }
}

static JsonNode *
handler_finish (VmmService *service, GAsyncResult *result, GError **error)
{
  return g_task_propagate_pointer (G_TASK (result), error);
}

/* In place of the daemon's. */
const VmmHandler *
vmm_handlers_find (const char *operation)
{
  static const VmmHandler handler = { "any", handler_start, handler_finish };

  return g_str_equal (operation, "get_openapi") ? NULL : &handler;
}

gboolean
vmm_handlers_check (GError **error)
{
  return TRUE;
}

/* --- the table ------------------------------------------------------------------------------ */

static JsonObject *
parse (const char *text)
{
  g_autoptr (GError) error = NULL;
  JsonObject *object = vmm_json_parse_object (text, strlen (text), &error);

  g_assert_no_error (error);
  return object;
}

/* The order is the one in which get_info lists the tools. */
static const char *const names[] = {
  "get_info",
  "get_host",
  "list_images",
  "get_image",
  "list_networks",
  "get_network",
  "list_vms",
  "get_vm",
  "get_vm_console",
  "get_vm_metrics",
  "get_vm_attestation",
  "create_network",
  "delete_network",
  "create_vm",
  "start_vm",
  "stop_vm",
  "reboot_vm",
  "delete_vm",
  "exec_vm",
  "forward_port",
  "list_forwards",
  "close_forward",
  "get_vm_report",
  "get_openapi",
};

static void
test_rows (void)
{
  gsize size = 0;

  g_assert_cmpuint (vmm_n_operations, ==, G_N_ELEMENTS (names));
  for (guint i = 0; i < vmm_n_operations; i++)
    {
      const VmmOperation *row = &vmm_operations[i];
      g_autoptr (JsonObject) parameters = parse (row->parameters);
      g_autoptr (JsonObject) result = parse (row->result);
      gboolean reads = (row->flags & VMM_OPERATION_READ_ONLY) != 0;
      gboolean destroys = (row->flags & VMM_OPERATION_DESTRUCTIVE) != 0;

      g_assert_cmpstr (row->name, ==, names[i]);
      g_assert_nonnull (result);
      g_assert_true (vmm_operations_find (names[i]) == row);
      g_assert_true (row->method == NULL || reads == g_str_equal (row->method, "GET"));
      g_assert_true (g_str_has_prefix (row->description, reads      ? "Read-only. "
                                                         : destroys ? "WRITES (destructive): "
                                                                    : "WRITES: "));
      g_assert_cmpstr (json_object_get_string_member (parameters, "type"), ==, "object");
      if (row->tool)
        size += strlen (row->description) + strlen (row->parameters);
    }
  /* What a model has to read before it can do anything. */
  g_assert_cmpuint (size, <, 22 * 1024);
  g_assert_null (vmm_operations_find ("no_such_operation"));
}

static void
test_annotations (void)
{
  const VmmOperation *exec = vmm_operations_find ("exec_vm");
  const VmmOperation *create = vmm_operations_find ("create_vm");
  const VmmOperation *forward = vmm_operations_find ("forward_port");
  const VmmOperation *delete = vmm_operations_find ("delete_vm");

  g_assert_cmpuint (exec->flags, ==, VMM_OPERATION_DESTRUCTIVE | VMM_OPERATION_OPEN_WORLD);
  g_assert_cmpuint (create->flags, ==, 0);
  g_assert_cmpint (create->kind, ==, VMM_OPERATION_KIND_JOB);
  g_assert_cmpuint (create->success_status, ==, 201);
  g_assert_cmpuint (forward->flags, ==, VMM_OPERATION_IDEMPOTENT);
  g_assert_cmpuint (delete->flags, ==, VMM_OPERATION_DESTRUCTIVE | VMM_OPERATION_IDEMPOTENT);
  g_assert_cmpuint (delete->success_status, ==, 204);
  g_assert_false (vmm_operations_find ("get_vm_report")->tool);
  g_assert_false (vmm_operations_find ("get_openapi")->tool);
  g_assert_cmpstr (vmm_operations_find ("get_openapi")->content_type, ==, "application/yaml");
  g_assert_null (vmm_operations_find ("get_info")->path);
}

typedef struct
{
  const char *method;
  const char *path;
  const char *operation; /* NULL: no such route */
  const char *arguments;
  gboolean has_body;
} Route;

static const Route routes[] = {
  { "GET", "/openapi.yaml", "get_openapi", "{}" },
  { "GET", "/host", "get_host", "{}" },
  { "HEAD", "/host", "get_host", "{}" },
  { "GET", "/images", "list_images", "{}" },
  { "GET", "/images/base_0.1.0", "get_image", "{\"ref\":\"base_0.1.0\"}" },
  { "GET", "/networks", "list_networks", "{}" },
  { "POST", "/networks", "create_network", "{}", TRUE },
  { "GET", "/networks/lan", "get_network", "{\"name\":\"lan\"}" },
  { "DELETE", "/networks/lan", "delete_network", "{\"name\":\"lan\"}" },
  { "GET", "/vms", "list_vms", "{}" },
  { "POST", "/vms", "create_vm", "{}", TRUE },
  { "GET", "/vms/1a", "get_vm", "{\"id\":\"1a\"}" },
  { "HEAD", "/vms/1a", "get_vm", "{\"id\":\"1a\"}" },
  { "DELETE", "/vms/1a", "delete_vm", "{\"id\":\"1a\"}" },
  { "POST", "/vms/1a/start", "start_vm", "{\"id\":\"1a\"}" },
  { "POST", "/vms/1a/stop", "stop_vm", "{\"id\":\"1a\"}" },
  { "POST", "/vms/1a/reboot", "reboot_vm", "{\"id\":\"1a\"}" },
  { "POST", "/vms/1a/exec", "exec_vm", "{\"id\":\"1a\"}", TRUE },
  { "POST", "/vms/1a/forward", "forward_port", "{\"id\":\"1a\"}", TRUE },
  { "GET", "/vms/1a/forwards", "list_forwards", "{\"id\":\"1a\"}" },
  { "DELETE", "/vms/1a/forwards/f1", "close_forward", "{\"id\":\"1a\",\"forward\":\"f1\"}" },
  { "GET", "/vms/1a/console", "get_vm_console", "{\"id\":\"1a\"}" },
  { "GET", "/vms/1a/attestation", "get_vm_attestation", "{\"id\":\"1a\"}" },
  { "GET", "/vms/1a/metrics", "get_vm_metrics", "{\"id\":\"1a\"}" },
  { "GET", "/vms/1a/report", "get_vm_report", "{\"id\":\"1a\"}" },
  /* Percent-encoding. */
  { "GET", "/vms/%31a", "get_vm", "{\"id\":\"1a\"}" },
  { "GET", "/%76ms", "list_vms", "{}" },
  { "GET", "/images/a%2Fb", "get_image", "{\"ref\":\"a/b\"}" },
  { "GET", "/images/a%2fb%20c", "get_image", "{\"ref\":\"a/b c\"}" },
  { "GET", "/images/%C3%A4", "get_image", "{\"ref\":\"\xc3\xa4\"}" },
  { "GET", "/images/a+b", "get_image", "{\"ref\":\"a+b\"}" },
  { "GET", "/images/{ref}", "get_image", "{\"ref\":\"{ref}\"}" },
  { "GET", "/images/%25", "get_image", "{\"ref\":\"%\"}" },
  { "GET", "/images/%", NULL },
  { "GET", "/images/%4", NULL },
  { "GET", "/images/a%4", NULL },
  { "GET", "/images/%4x", NULL },
  { "GET", "/images/%x4", NULL },
  { "GET", "/images/%00", NULL },
  { "GET", "/images/a%00b", NULL },
  { "GET", "/images/%ff", NULL },
  { "GET", "/images/%ED%A0%80", NULL },
  /* What is no route. */
  { "POST", "/host", NULL },
  { "PUT", "/vms/1a", NULL },
  { "PATCH", "/vms/1a", NULL },
  { "OPTIONS", "/vms", NULL },
  { "get", "/vms", NULL },
  { "HEAD", "/vms/1a/start", NULL },
  { "DELETE", "/vms", NULL },
  { "GET", "/vms/1a/start", NULL },
  { "GET", "/vms/", NULL },
  { "GET", "/vms/1a/", NULL },
  { "GET", "//vms", NULL },
  { "GET", "/vms//console", NULL },
  { "GET", "/", NULL },
  { "GET", "", NULL },
  { "GET", "vms", NULL },
  { "GET", "/VMS", NULL },
  { "GET", "/vm", NULL },
  { "GET", "/vmss", NULL },
  { "GET", "/vms/1a/consoles", NULL },
  { "GET", "/vms/1a/console/x", NULL },
  { "GET", "/info", NULL },
  { "GET", "/a/b/c/d/e/f/g/h/i/j", NULL },
};

static void
test_routes (void)
{
  for (guint i = 0; i < G_N_ELEMENTS (routes); i++)
    {
      g_autoptr (JsonObject) arguments = json_object_new ();
      const VmmOperation *row = vmm_operations_match (routes[i].method, routes[i].path, arguments);
      g_autoptr (JsonNode) node = NULL;
      g_autofree char *text = NULL;

      g_test_message ("%s %s", routes[i].method, routes[i].path);
      g_assert_cmpstr (row != NULL ? row->name : NULL, ==, routes[i].operation);
      g_assert_true (vmm_operations_match (routes[i].method, routes[i].path, NULL) == row);
      node = vmm_json_node_take_object (g_steal_pointer (&arguments));
      text = vmm_json_to_line (node, NULL);
      g_assert_cmpstr (text, ==, routes[i].arguments != NULL ? routes[i].arguments : "{}");
      if (row != NULL)
        g_assert_cmpint (row->has_body, ==, routes[i].has_body);
    }
}

/* Every row with a route is reached by one of the routes above. */
static void
test_routes_are_complete (void)
{
  for (guint i = 0; i < vmm_n_operations; i++)
    {
      gboolean found = vmm_operations[i].path == NULL;

      for (guint j = 0; j < G_N_ELEMENTS (routes); j++)
        found = found || g_strcmp0 (routes[j].operation, vmm_operations[i].name) == 0;
      g_assert_true (found);
    }
}

static void
test_openapi (void)
{
  static const char *const schemas[] = {
    "Host",           "Device",
    "Tool",           "Firmware",
    "Image",          "CreateNetworkRequest",
    "NetworkSpec",    "Lease",
    "Network",        "CreateVMRequest",
    "Quote",          "Attestation",
    "Paths",          "VM",
    "ExecRequest",    "ExecResult",
    "ForwardRequest", "Forward",
    "Console",        "Metrics",
    "Error",
  };

  g_assert_true (g_str_has_prefix (vmm_openapi_document, "openapi: \"3.1.0\"\n"));
  for (guint i = 0; i < vmm_n_operations; i++)
    {
      g_autofree char *path = g_strdup_printf ("\n  \"%s\":\n", vmm_operations[i].path);
      g_autofree char *id
          = g_strdup_printf ("\n      operationId: \"%s\"\n", vmm_operations[i].operation_id);

      if (vmm_operations[i].path == NULL)
        continue;
      g_assert_nonnull (strstr (vmm_openapi_document, path));
      g_assert_nonnull (strstr (vmm_openapi_document, id));
    }
  for (guint i = 0; i < G_N_ELEMENTS (schemas); i++)
    {
      g_autofree char *line = g_strdup_printf ("\n    %s:\n", schemas[i]);

      g_assert_nonnull (strstr (vmm_openapi_document, line));
    }
}

/* --- calls ---------------------------------------------------------------------------------- */

static VmmCall *
make_call (const char *subject, const char *arguments, GCancellable *cancellable)
{
  g_autoptr (VmmCaller) caller = vmm_caller_new ("test", subject);
  g_autoptr (JsonObject) object = parse (arguments);

  return vmm_call_new (caller, object, cancellable);
}

static JsonNode *
run_call (const char *operation, VmmCall *call, GError **error)
{
  g_autoptr (GAsyncResult) result = NULL;
  TestAwait await = TEST_AWAIT_INIT;

  vmm_operation_call_async (NULL, vmm_operations_find (operation), call, test_await_cb, &await);
  result = test_await (&await);
  return vmm_operation_call_finish (result, error);
}

static void
progress_cb (VmmCall *call, const char *phase, const char *message, gpointer user_data)
{
  g_string_append_printf (user_data, "%s: %s;", phase, message);
}

static void
test_call (void)
{
  g_autoptr (VmmCall) call = make_call ("uid:1000", "{\"id\":\"x\",\"port\":80}", NULL);
  g_autoptr (GString) progress = g_string_new (NULL);
  g_autoptr (GError) error = NULL;
  g_autoptr (JsonNode) node = NULL;
  g_autofree char *text = NULL;

  behaviour = BEHAVE_ECHO;
  g_signal_connect (call, "progress", G_CALLBACK (progress_cb), progress);
  node = run_call ("forward_port", call, &error);
  g_assert_no_error (error);
  text = vmm_json_to_line (node, NULL);
  g_assert_cmpstr (text, ==, "{\"id\":\"x\",\"port\":80,\"host_port\":0,\"protocol\":\"tcp\"}");
  g_assert_cmpstr (progress->str, ==, "work: started;");
  g_assert_cmpstr (vmm_caller_get_subject (vmm_call_get_caller (call)), ==, "uid:1000");
  g_assert_cmpstr (vmm_caller_get_door (vmm_call_get_caller (call)), ==, "test");
}

static void
test_call_without_content (void)
{
  g_autoptr (VmmCall) call = make_call ("uid:1000", "{\"id\":\"x\"}", NULL);
  g_autoptr (GError) error = NULL;

  behaviour = BEHAVE_EMPTY;
  g_assert_null (run_call ("delete_vm", call, &error));
  g_assert_no_error (error);
}

static void
assert_refused (const char *operation, const char *subject, const char *arguments, VmmError code,
                const char *message)
{
  g_autoptr (VmmCall) call = make_call (subject, arguments, NULL);
  g_autoptr (GError) error = NULL;
  guint before = n_started;

  g_assert_null (run_call (operation, call, &error));
  g_assert_error (error, VMM_ERROR, (int) code);
  g_assert_cmpstr (error->message, ==, message);
  g_assert_cmpuint (n_started, ==, before);
}

static void
test_call_refused (void)
{
  behaviour = BEHAVE_ECHO;
  assert_refused ("create_vm", "uid:0", "{\"bogus\":1}", VMM_ERROR_INVALID_REQUEST,
                  "invalid request: body: json: unknown field \"bogus\"");
  assert_refused ("create_vm", "uid:0", "{\"name\":1}", VMM_ERROR_INVALID_REQUEST,
                  "invalid request: body: json: name must be a string, not a number");
  assert_refused ("get_vm_console", "uid:0", "{\"id\":\"x\",\"lines\":\"abc\"}",
                  VMM_ERROR_INVALID_REQUEST, "invalid request: lines: \"abc\" is not an integer");
  assert_refused ("get_vm", "uid:0", "{}", VMM_ERROR_INVALID_REQUEST,
                  "invalid request: required argument \"id\" not found");
  assert_refused ("get_host", "", "{}", VMM_ERROR_UNAUTHORIZED,
                  "unauthorized: get_host needs a known caller");
  assert_refused ("get_openapi", "uid:0", "{}", VMM_ERROR_INTERNAL,
                  "operation get_openapi has no handler");
}

static void
test_call_fails (void)
{
  g_autoptr (VmmCall) call = make_call ("uid:0", "{}", NULL);
  g_autoptr (GError) error = NULL;

  behaviour = BEHAVE_FAIL_IO;
  g_assert_null (run_call ("get_host", call, &error));
  g_assert_error (error, VMM_ERROR, VMM_ERROR_NOT_FOUND);
  g_assert_cmpstr (error->message, ==, "not found: no such thing");
}

/* Who leaves stops waiting at once; what was begun ends by itself and is told to nobody. */
static void
test_call_cancelled (void)
{
  g_autoptr (GCancellable) cancellable = g_cancellable_new ();
  g_autoptr (VmmCall) call = make_call ("uid:0", "{\"id\":\"x\"}", cancellable);
  g_autoptr (GAsyncResult) result = NULL;
  g_autoptr (GError) error = NULL;
  TestAwait await = TEST_AWAIT_INIT;

  behaviour = BEHAVE_HANG;
  vmm_operation_call_async (NULL, vmm_operations_find ("stop_vm"), call, test_await_cb, &await);
  test_drain ();
  g_assert_nonnull (hanging);
  g_assert_null (await.result);
  g_cancellable_cancel (cancellable);
  result = test_await (&await);
  g_assert_null (vmm_operation_call_finish (result, &error));
  g_assert_error (error, G_IO_ERROR, G_IO_ERROR_CANCELLED);

  g_task_return_pointer (hanging, json_node_init_int (json_node_alloc (), 1),
                         (GDestroyNotify) json_node_unref);
  g_clear_object (&hanging);
  test_drain ();
  g_assert_null (await.result);
}

static void
test_call_cancelled_before (void)
{
  g_autoptr (GCancellable) cancellable = g_cancellable_new ();
  g_autoptr (VmmCall) call = make_call ("uid:0", "{\"id\":\"x\"}", cancellable);
  g_autoptr (GError) error = NULL;
  guint before = n_started;

  g_cancellable_cancel (cancellable);
  g_assert_null (run_call ("stop_vm", call, &error));
  g_assert_error (error, G_IO_ERROR, G_IO_ERROR_CANCELLED);
  g_assert_cmpuint (n_started, ==, before);
}

/* A cancellable that lives on holds nothing of the calls that are over. */
static void
test_call_leaves_nothing (void)
{
  g_autoptr (GCancellable) cancellable = g_cancellable_new ();
  VmmCall *call = make_call ("uid:0", "{}", cancellable);
  g_autoptr (JsonNode) node = NULL;
  gpointer watched = call;

  behaviour = BEHAVE_ECHO;
  node = run_call ("get_host", call, NULL);
  g_object_add_weak_pointer (G_OBJECT (call), &watched);
  g_object_unref (call);
  test_drain ();
  g_assert_null (watched);
  g_cancellable_cancel (cancellable);
  test_drain ();
}

/* What is our fault is an error in the log, once; what is the caller's is not. */
static void
test_log (void)
{
  g_autoptr (VmmCall) call = NULL;
  g_autoptr (GError) error = NULL;

  if (!g_test_subprocess ())
    {
      g_test_trap_subprocess (NULL, 0, 0);
      g_test_trap_assert_passed ();
      g_test_trap_assert_stderr ("*level=ERROR msg=\"request failed\" operation=get_host status=500"
                                 " error=\"vm failed: it broke\" caller=uid:7\n*");
      g_test_trap_assert_stderr_unmatched ("*request failed*request failed*");
      g_test_trap_assert_stderr_unmatched ("*no such thing*");
      return;
    }
  call = make_call ("uid:7", "{}", NULL);
  behaviour = BEHAVE_FAIL_VM;
  g_assert_null (run_call ("get_host", call, &error));
  g_clear_error (&error);
  behaviour = BEHAVE_FAIL_IO;
  g_assert_null (run_call ("get_host", call, &error));
}

int
main (int argc, char **argv)
{
  g_test_init (&argc, &argv, G_TEST_OPTION_ISOLATE_DIRS, NULL);
  g_test_add_func ("/operations/rows", test_rows);
  g_test_add_func ("/operations/annotations", test_annotations);
  g_test_add_func ("/operations/routes", test_routes);
  g_test_add_func ("/operations/routes-are-complete", test_routes_are_complete);
  g_test_add_func ("/operations/openapi", test_openapi);
  g_test_add_func ("/operations/call", test_call);
  g_test_add_func ("/operations/call-without-content", test_call_without_content);
  g_test_add_func ("/operations/call-refused", test_call_refused);
  g_test_add_func ("/operations/call-fails", test_call_fails);
  g_test_add_func ("/operations/call-cancelled", test_call_cancelled);
  g_test_add_func ("/operations/call-cancelled-before", test_call_cancelled_before);
  g_test_add_func ("/operations/call-leaves-nothing", test_call_leaves_nothing);
  g_test_add_func ("/operations/log", test_log);
  return g_test_run ();
}

/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The operations on one VM that exists: look at it, start, stop, reboot and delete it, and read
 * what it left: console, attestation, metrics, report, a command's output.
 *
 * Reads answer from what is there and never queue behind the machine's work. A caller who leaves
 * while a machine works ends his waiting; the machine goes on. */

#include "config.h"

#include "vmm-service-private.h"

#include "vmm-file.h"
#include "vmm-guest-access.h"
#include "vmm-json.h"

#define CONSOLE_LINES_DEFAULT 100
#define CONSOLE_LINES_MAX 10000
#define REPORT_FILE "report.json"
#define REPORT_LIMIT (16 * 1024 * 1024)

/* The machine of a call that needs one, or NULL after the task was answered. */
static VmmMachine *
machine_of_call (VmmService *self, VmmCall *call, GTask *task)
{
  GError *error = NULL;
  VmmMachine *machine = vmm_service_lookup_argument (self, call, &error);

  if (machine == NULL)
    g_task_return_error (task, error);
  return machine;
}

void
vmm_service_get_vm_async (VmmService *self, VmmCall *call, GAsyncReadyCallback callback,
                          gpointer user_data)
{
  g_autoptr (GTask) task
      = vmm_service_task_new (self, call, vmm_service_get_vm_async, callback, user_data);
  VmmMachine *machine = machine_of_call (self, call, task);

  if (machine != NULL)
    vmm_service_return_node (task, vmm_service_describe (self, machine), NULL);
}

VMM_SERVICE_FINISH (get_vm)

void
vmm_service_get_vm_attestation_async (VmmService *self, VmmCall *call, GAsyncReadyCallback callback,
                                      gpointer user_data)
{
  g_autoptr (GTask) task = vmm_service_task_new (self, call, vmm_service_get_vm_attestation_async,
                                                 callback, user_data);
  VmmMachine *machine = machine_of_call (self, call, task);

  if (machine != NULL)
    vmm_service_return_node (
        task, vmm_machine_record_attestation_to_json (vmm_machine_get_record (machine)), NULL);
}

VMM_SERVICE_FINISH (get_vm_attestation)

void
vmm_service_get_vm_metrics_async (VmmService *self, VmmCall *call, GAsyncReadyCallback callback,
                                  gpointer user_data)
{
  g_autoptr (GTask) task
      = vmm_service_task_new (self, call, vmm_service_get_vm_metrics_async, callback, user_data);
  VmmMachine *machine = machine_of_call (self, call, task);

  if (machine != NULL)
    vmm_service_return_node (task, vmm_metrics_describe (self->metrics, machine), NULL);
}

VMM_SERVICE_FINISH (get_vm_metrics)

/* Start, stop, reboot, delete ----------------------------------------------------------------- */

/* The same for a call that starts something, which a shutdown forbids. */
static VmmMachine *
machine_to_start (VmmService *self, VmmCall *call, GTask *task)
{
  VmmMachine *machine = machine_of_call (self, call, task);
  GError *error = NULL;

  if (machine == NULL || vmm_service_check_open (self, &error))
    return machine;
  g_task_return_error (task, error);
  return NULL;
}

static void
started_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  g_autoptr (GTask) task = user_data;
  VmmMachine *machine = VMM_MACHINE (source);
  GError *error = NULL;

  vmm_machine_start_finish (machine, result, &error);
  vmm_service_return_machine (task, machine, error);
}

void
vmm_service_start_vm_async (VmmService *self, VmmCall *call, GAsyncReadyCallback callback,
                            gpointer user_data)
{
  g_autoptr (GTask) task
      = vmm_service_task_new (self, call, vmm_service_start_vm_async, callback, user_data);
  VmmMachine *machine = machine_to_start (self, call, task);

  if (machine != NULL)
    vmm_machine_start_async (machine, vmm_call_get_cancellable (call), started_cb,
                             g_steal_pointer (&task));
}

VMM_SERVICE_FINISH (start_vm)

static void
stopped_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  g_autoptr (GTask) task = user_data;
  VmmMachine *machine = VMM_MACHINE (source);
  GError *error = NULL;

  vmm_machine_stop_finish (machine, result, &error);
  vmm_service_return_machine (task, machine, error);
}

void
vmm_service_stop_vm_async (VmmService *self, VmmCall *call, GAsyncReadyCallback callback,
                           gpointer user_data)
{
  g_autoptr (GTask) task
      = vmm_service_task_new (self, call, vmm_service_stop_vm_async, callback, user_data);
  VmmMachine *machine = machine_of_call (self, call, task);

  if (machine != NULL)
    vmm_machine_stop_async (machine, vmm_call_get_cancellable (call), stopped_cb,
                            g_steal_pointer (&task));
}

VMM_SERVICE_FINISH (stop_vm)

static void
rebooted_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  g_autoptr (GTask) task = user_data;
  VmmMachine *machine = VMM_MACHINE (source);
  GError *error = NULL;

  vmm_machine_reboot_finish (machine, result, &error);
  vmm_service_return_machine (task, machine, error);
}

void
vmm_service_reboot_vm_async (VmmService *self, VmmCall *call, GAsyncReadyCallback callback,
                             gpointer user_data)
{
  g_autoptr (GTask) task
      = vmm_service_task_new (self, call, vmm_service_reboot_vm_async, callback, user_data);
  VmmMachine *machine = machine_to_start (self, call, task);

  if (machine != NULL)
    vmm_machine_reboot_async (machine, vmm_call_get_cancellable (call), rebooted_cb,
                              g_steal_pointer (&task));
}

VMM_SERVICE_FINISH (reboot_vm)

static void
deleted_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  g_autoptr (GTask) task = user_data;
  VmmMachine *machine = VMM_MACHINE (source);
  GError *error = NULL;

  if (vmm_machine_delete_finish (machine, result, &error))
    vmm_service_return_node (task, vmm_service_deleted_node (vmm_machine_get_id (machine)), NULL);
  else
    g_task_return_error (task, error);
}

void
vmm_service_delete_vm_async (VmmService *self, VmmCall *call, GAsyncReadyCallback callback,
                             gpointer user_data)
{
  g_autoptr (GTask) task
      = vmm_service_task_new (self, call, vmm_service_delete_vm_async, callback, user_data);
  VmmMachine *machine = machine_of_call (self, call, task);

  if (machine != NULL)
    vmm_machine_delete_async (machine, vmm_call_get_cancellable (call), deleted_cb,
                              g_steal_pointer (&task));
}

VMM_SERVICE_FINISH (delete_vm)

/* Console ------------------------------------------------------------------------------------- */

/* What is echoed; NULL error and 0 never happen. */
static gint64
console_lines (VmmCall *call, GError **error)
{
  gint64 lines = 0;

  if (!vmm_service_get_int (call, "lines", CONSOLE_LINES_DEFAULT, &lines, error))
    return 0;
  return lines > 0 ? lines : CONSOLE_LINES_DEFAULT;
}

static void
console_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  g_autoptr (GTask) task = user_data;
  VmmMachine *machine = VMM_MACHINE (source);
  VmmCall *call = g_task_get_task_data (task);
  g_autofree char *text = NULL;
  JsonObject *object;
  GError *error = NULL;

  text = vmm_guest_read_console_finish (machine, result, &error);
  if (text == NULL)
    {
      g_task_return_error (task, error);
      return;
    }
  object = json_object_new ();
  json_object_set_string_member (object, "id", vmm_machine_get_id (machine));
  json_object_set_int_member (object, "lines", console_lines (call, NULL));
  json_object_set_string_member (object, "console", text);
  vmm_service_return_node (task, vmm_json_node_take_object (object), NULL);
}

void
vmm_service_get_vm_console_async (VmmService *self, VmmCall *call, GAsyncReadyCallback callback,
                                  gpointer user_data)
{
  g_autoptr (GTask) task
      = vmm_service_task_new (self, call, vmm_service_get_vm_console_async, callback, user_data);
  VmmMachine *machine = machine_of_call (self, call, task);
  GError *error = NULL;
  gint64 lines;

  if (machine == NULL)
    return;
  lines = console_lines (call, &error);
  if (lines == 0)
    {
      g_task_return_error (task, error);
      return;
    }
  vmm_guest_read_console_async (machine, (guint) MIN (lines, CONSOLE_LINES_MAX),
                                vmm_call_get_cancellable (call), console_cb,
                                g_steal_pointer (&task));
}

VMM_SERVICE_FINISH (get_vm_console)

/* Report -------------------------------------------------------------------------------------- */

/* The guest wrote it: what is no JSON is one string. */
static JsonNode *
parse_report (GBytes *bytes)
{
  gsize length;
  const char *text = g_bytes_get_data (bytes, &length);
  g_autofree char *valid = NULL;
  JsonNode *node = vmm_json_parse (text, length, NULL);

  if (node != NULL)
    return node;
  valid = g_utf8_make_valid (text, (gssize) length);
  return json_node_init_string (json_node_alloc (), valid);
}

static void
report_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  g_autoptr (GTask) task = user_data;
  VmmService *self = g_task_get_source_object (task);
  VmmCall *call = g_task_get_task_data (task);
  g_autoptr (GBytes) bytes = NULL;
  gboolean cut = FALSE;
  GError *error = NULL;

  bytes = vmm_file_read_tail_finish (result, &cut, &error);
  if (bytes == NULL && error == NULL)
    {
      VmmMachine *machine = vmm_service_lookup_argument (self, call, &error);

      if (machine != NULL)
        vmm_set_error (&error, VMM_ERROR_NOT_FOUND, "vm \"%s\" has no systemd-report upload yet",
                       vmm_machine_get_id (machine));
    }
  else if (cut)
    vmm_set_error (&error, VMM_ERROR_INTERNAL, "the stored report exceeds %d bytes", REPORT_LIMIT);
  if (error != NULL)
    {
      g_task_return_error (task, error);
      return;
    }
  vmm_service_return_node (task, parse_report (bytes), NULL);
}

void
vmm_service_get_vm_report_async (VmmService *self, VmmCall *call, GAsyncReadyCallback callback,
                                 gpointer user_data)
{
  g_autoptr (GTask) task
      = vmm_service_task_new (self, call, vmm_service_get_vm_report_async, callback, user_data);
  VmmMachine *machine = machine_of_call (self, call, task);
  g_autofree char *path = NULL;

  if (machine == NULL)
    return;
  path = vmm_machine_dup_path (machine, REPORT_FILE);
  vmm_file_read_tail_async (path, REPORT_LIMIT, vmm_call_get_cancellable (call), report_cb,
                            g_steal_pointer (&task));
}

VMM_SERVICE_FINISH (get_vm_report)

/* Exec ---------------------------------------------------------------------------------------- */

static void
exec_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  g_autoptr (GTask) task = user_data;
  GError *error = NULL;
  JsonNode *node = vmm_guest_exec_finish (VMM_MACHINE (source), result, &error);

  vmm_service_return_node (task, node, error);
}

void
vmm_service_exec_vm_async (VmmService *self, VmmCall *call, GAsyncReadyCallback callback,
                           gpointer user_data)
{
  g_autoptr (GTask) task
      = vmm_service_task_new (self, call, vmm_service_exec_vm_async, callback, user_data);
  g_auto (GStrv) command = NULL;
  VmmMachine *machine;
  GError *error = NULL;

  if (!vmm_json_get_strv (vmm_call_get_arguments (call), "command", &command, &error))
    g_prefix_error (&error, "invalid request: ");
  else if (command == NULL || command[0] == NULL)
    vmm_set_error (&error, VMM_ERROR_INVALID_REQUEST, "command is empty");
  if (error != NULL)
    {
      g_task_return_error (task, error);
      return;
    }
  machine = machine_of_call (self, call, task);
  if (machine != NULL)
    vmm_guest_exec_async (self->execs, machine, (const char *const *) command,
                          vmm_call_get_cancellable (call), exec_cb, g_steal_pointer (&task));
}

VMM_SERVICE_FINISH (exec_vm)

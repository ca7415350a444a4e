/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* create_vm: judge the wish, draw what is drawn, hand the record to a new machine, wait.
 *
 * The record is in the table from `creating` on, so that its name, CID and port are taken before
 * anything is waited for. A machine that fails before its installer runs undoes itself and is gone;
 * after that the VM exists, and an error of the wait names it, because the message is the only way
 * for the caller to find it. */

#include "config.h"

#include "vmm-service-private.h"

#include <errno.h>
#include <sys/stat.h>

#include "vmm-machine-request.h"
#include "vmm-network-plan.h"
#include "vmm-progress-watch.h"
#include "vmm-random.h"
#include "vmm-waiter.h"

#define CID_MIN 3u
#define CID_MAX 0xfffffffeu /* VMADDR_CID_ANY - 1 */
#define CID_BASE_RANGE (1u << 20)
#define PORT_MIN (1u << 20)
#define PORT_MAX 0xfffffffeu /* VMADDR_PORT_ANY - 1 */
#define DRAWS_MAX 64

typedef struct
{
  VmmCall *call;
  VmmMachine *machine;
  VmmMilestone wait_for;
  GCancellable *waiting; /* of the wait alone: the caller left, or the daemon ends */
  VmmProgressWatch *watch;
} CreateData;

static void
create_data_free (CreateData *data)
{
  g_clear_pointer (&data->watch, vmm_progress_watch_free);
  g_clear_object (&data->waiting);
  g_object_unref (data->machine);
  g_object_unref (data->call);
  g_free (data);
}

/* Drawing ------------------------------------------------------------------------------------- */

/* Neither a VM nor a folder that something else left in its place. */
static gboolean
is_id_free (VmmService *self, const char *id)
{
  g_autofree char *directory = g_build_filename (self->context->state_dir, "vms", id, NULL);
  struct stat info;

  return !g_hash_table_contains (self->entries, id) && lstat (directory, &info) != 0
         && errno == ENOENT;
}

static char *
draw_id (VmmService *self, GError **error)
{
  for (guint i = 0; i < DRAWS_MAX; i++)
    {
      g_autofree char *id = vmm_random_hex (4, error);

      if (id == NULL)
        return NULL;
      if (is_id_free (self, id))
        return g_steal_pointer (&id);
    }
  vmm_set_error (error, VMM_ERROR_INTERNAL, "no free vm id below %s/vms", self->context->state_dir);
  return NULL;
}

typedef guint32 (*RecordNumber) (const VmmMachineRecord *record);

static guint32
record_cid (const VmmMachineRecord *record)
{
  return record->cid;
}

static guint32
record_port (const VmmMachineRecord *record)
{
  return record->notify_port;
}

/* The first number from start on, wrapping inside the range, that no record has. */
static guint32
first_free (VmmService *self, RecordNumber number, guint32 start, guint32 min, guint32 max)
{
  g_autoptr (GHashTable) taken = g_hash_table_new (NULL, NULL);
  guint32 at = start;

  for (guint i = 0; i < self->machines->len; i++)
    {
      VmmMachine *machine = g_ptr_array_index (self->machines, i);

      g_hash_table_add (taken, GUINT_TO_POINTER (number (vmm_machine_get_record (machine))));
    }
  while (g_hash_table_contains (taken, GUINT_TO_POINTER (at)))
    at = at >= max ? min : at + 1;
  return at;
}

/* Two daemons on one host have different bases, because CIDs are the host's, not the daemon's. */
static guint32
draw_cid (VmmService *self)
{
  guint32 base = CID_MIN + vmm_hash_fnv1a (self->context->state_dir) % CID_BASE_RANGE;

  return first_free (self, record_cid, base, CID_MIN, CID_MAX);
}

/* For a machine whose CID another daemon of this host has. */
guint32
vmm_service_next_cid (gpointer service, guint32 after)
{
  guint32 start = after >= CID_MAX ? CID_MIN : after + 1;

  return first_free (service, record_cid, start, CID_MIN, CID_MAX);
}

static guint32
draw_port (VmmService *self, GError **error)
{
  gint64 base = vmm_options_get_int (self->context->options, "notify-port");
  guint32 drawn;

  if (base > 0 && base <= PORT_MAX)
    return first_free (self, record_port, (guint32) base, (guint32) base, PORT_MAX);
  if (!vmm_random_fill (&drawn, sizeof drawn, error))
    return 0;
  return first_free (self, record_port, PORT_MIN + 1 + drawn % (PORT_MAX - PORT_MIN), PORT_MIN + 1,
                     PORT_MAX);
}

/* Checking ------------------------------------------------------------------------------------ */

/* How to get an attestor, in the names that the registry knows. */
static char *
attestor_advice (VmmService *self)
{
  GPtrArray *rows = vmm_plugin_registry_get_rows (self->registry);
  const char *kind = vmm_plugin_kind_to_nick (VMM_PLUGIN_KIND_ATTESTOR);
  g_autoptr (GString) text = g_string_new (NULL);

  for (guint i = 0; i < rows->len; i++)
    {
      const VmmPluginRow *row = g_ptr_array_index (rows, i);

      if (!g_str_equal (row->kind, kind) || !row->loaded || !row->available)
        continue;
      g_string_append_printf (text, "%s--attestation=%s", text->len > 0 ? " or " : "", row->name);
    }
  if (text->len == 0)
    return g_strdup ("install an attestor");
  return g_strdup_printf ("start it with %s", text->str);
}

static gboolean
check_attestation (VmmService *self, const VmmMachineRecord *record, GError **error)
{
  g_autofree char *advice = NULL;

  if (!record->require_attestation || self->context->attestor != NULL)
    return TRUE;
  advice = attestor_advice (self);
  vmm_set_error (error, VMM_ERROR_UNSUPPORTED,
                 "require_attestation: this vm-manager has no verifier: %s, or pass "
                 "require_attestation false",
                 advice);
  return FALSE;
}

static gboolean
check_name (VmmService *self, const char *name, GError **error)
{
  for (guint i = 0; i < self->machines->len; i++)
    {
      const VmmMachineRecord *record
          = vmm_machine_get_record (g_ptr_array_index (self->machines, i));

      if (g_str_equal (record->name, name))
        {
          vmm_set_error (error, VMM_ERROR_CONFLICT, "vm name \"%s\" is in use by %s", name,
                         record->id);
          return FALSE;
        }
    }
  return TRUE;
}

/* Fills in what is drawn. */
static gboolean
complete_record (VmmService *self, VmmMachineRecord *record, VmmCaller *caller, GError **error)
{
  g_autofree char *id = draw_id (self, error);
  g_autofree char *machine_id = id != NULL ? vmm_random_hex (16, error) : NULL;

  if (machine_id == NULL)
    return FALSE;
  record->notify_port = draw_port (self, error);
  if (record->notify_port == 0)
    return FALSE;

  g_free (record->id);
  record->id = g_steal_pointer (&id);
  g_free (record->machine_id);
  record->machine_id = g_steal_pointer (&machine_id);
  g_free (record->owner);
  record->owner = g_strdup (vmm_caller_get_subject (caller));
  record->cid = draw_cid (self);
  record->created_at = g_get_real_time ();
  return TRUE;
}

/* Waiting ------------------------------------------------------------------------------------- */

static gboolean
is_cancelled (const GError *error)
{
  return g_error_matches (error, G_IO_ERROR, G_IO_ERROR_CANCELLED);
}

/* Names the VM behind what went wrong; the code stays. */
static void
add_machine_to_error (GError *error, VmmMachine *machine)
{
  const VmmMachineRecord *record = vmm_machine_get_record (machine);
  g_autofree char *cause = g_steal_pointer (&error->message);
  gboolean told = record->last_error != NULL && record->last_error[0] != '\0';

  error->message
      = g_strdup_printf ("%s; vm %s is %s%s%s (follow it with get_vm %s, delete it with delete_vm)",
                         cause, record->id, vmm_machine_state_to_nick (record->state),
                         told ? ": " : "", told ? record->last_error : "", record->id);
}

static void
waited_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  g_autoptr (GTask) task = user_data;
  CreateData *data = g_task_get_task_data (task);
  VmmService *self = g_task_get_source_object (task);
  GError *error = NULL;

  g_clear_pointer (&data->watch, vmm_progress_watch_free);
  if (!vmm_waiter_wait_finish (data->machine, result, &error) && is_cancelled (error)
      && g_cancellable_is_cancelled (self->ending))
    {
      g_clear_error (&error);
      vmm_set_error (&error, VMM_ERROR_CONFLICT, "vm-manager is shutting down");
    }
  if (error != NULL && !is_cancelled (error))
    add_machine_to_error (error, data->machine);
  vmm_service_return_machine (task, data->machine, error);
}

static void
follow (GCancellable *leader, GCancellable *follower)
{
  if (leader == NULL)
    return;
  g_signal_connect_object (leader, "cancelled", G_CALLBACK (g_cancellable_cancel), follower,
                           G_CONNECT_SWAPPED);
  if (g_cancellable_is_cancelled (leader))
    g_cancellable_cancel (follower);
}

void
vmm_service_end_waits (VmmService *self)
{
  g_return_if_fail (VMM_IS_SERVICE (self));

  g_cancellable_cancel (self->ending);
}

static void
launched_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  g_autoptr (GTask) task = user_data;
  CreateData *data = g_task_get_task_data (task);
  VmmService *self = g_task_get_source_object (task);
  GError *error = NULL;

  if (!vmm_machine_create_finish (VMM_MACHINE (source), result, &error))
    {
      g_task_return_error (task, error);
      return;
    }
  if (data->wait_for == VMM_MILESTONE_NONE)
    {
      vmm_service_return_machine (task, data->machine, NULL);
      return;
    }
  data->waiting = g_cancellable_new ();
  follow (g_task_get_cancellable (task), data->waiting);
  follow (self->ending, data->waiting);
  vmm_waiter_wait_async (data->machine, data->wait_for, data->waiting, waited_cb,
                         g_steal_pointer (&task));
}

static VmmMachineRequest *
judge (VmmService *self, VmmCall *call, GError **error)
{
  g_autoptr (VmmMachineRequest) request
      = vmm_machine_request_parse (vmm_call_get_arguments (call), self->context, error);

  if (request == NULL || !check_attestation (self, request->record, error)
      || !vmm_service_check_open (self, error) || !check_name (self, request->record->name, error)
      || !complete_record (self, request->record, vmm_call_get_caller (call), error))
    return NULL;
  return g_steal_pointer (&request);
}

void
vmm_service_create_vm_async (VmmService *self, VmmCall *call, GAsyncReadyCallback callback,
                             gpointer user_data)
{
  GCancellable *cancellable = vmm_call_get_cancellable (call);
  g_autoptr (GTask) task = g_task_new (self, cancellable, callback, user_data);
  g_autoptr (VmmMachineRequest) request = NULL;
  VmmMachine *machine;
  CreateData *data;
  GError *error = NULL;

  g_task_set_source_tag (task, vmm_service_create_vm_async);
  request = judge (self, call, &error);
  if (request == NULL)
    {
      g_task_return_error (task, error);
      return;
    }

  data = g_new0 (CreateData, 1);
  data->call = g_object_ref (call);
  data->wait_for = request->wait_for;
  machine = vmm_machine_new (self->context, g_steal_pointer (&request->record));
  data->machine = machine;
  g_task_set_task_data (task, data, (GDestroyNotify) create_data_free);
  vmm_service_add_machine (self, machine);
  data->watch = vmm_progress_watch_new (machine, call);
  vmm_machine_create_async (machine, request->user_data, cancellable, launched_cb,
                            g_steal_pointer (&task));
}

VMM_SERVICE_FINISH (create_vm)

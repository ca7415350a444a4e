/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* One VM: its record, and the one function through which anything happens to it.
 *
 * vmm_machine_handle_event() looks the event up in the table, changes the record as the row says,
 * tells who watches, has the record written and then starts what the row asks for. What takes time
 * is elsewhere (vmm-machine-private.h lists the files) and reports back with another event.
 */

#include "config.h"

#include "vmm-machine.h"

#include "vmm-log.h"
#include "vmm-machine-private.h"

typedef struct
{
  VmmMachineEvent event;
  char *detail;
} RaisedEvent;

enum
{
  PROP_STATE = 1,
  N_PROPERTIES,
};

enum
{
  SIGNAL_CHANGED,
  SIGNAL_GONE,
  SIGNAL_TRANSITION,
  N_SIGNALS,
};

static GParamSpec *properties[N_PROPERTIES];
static guint signals[N_SIGNALS];

G_DEFINE_FINAL_TYPE (VmmMachine, vmm_machine, G_TYPE_OBJECT)

static guint
current_guards (VmmMachine *self)
{
  const VmmMachineRecord *record = self->record;
  guint guards = 0;

  if (record->installed_at != 0)
    guards |= VMM_MACHINE_GUARD_INSTALLED;
  if (record->require_attestation)
    guards |= VMM_MACHINE_GUARD_ATTESTATION_REQUIRED;
  if (self->context->closing)
    guards |= VMM_MACHINE_GUARD_CLOSING;
  if (self->timed_out)
    guards |= VMM_MACHINE_GUARD_TIMED_OUT;
  return guards;
}

static void
replace_text (char **field, const char *text)
{
  char *copy = text != NULL && text[0] != '\0' ? g_strdup (text) : NULL;

  g_free (*field);
  *field = copy;
}

static void
reset_boot (VmmMachine *self)
{
  VmmMachineRecord *record = self->record;

  replace_text (&record->phase, "boot");
  record->booted_at = g_get_real_time ();
  record->ready_at = 0;
  replace_text (&record->status, NULL);
  replace_text (&record->last_error, NULL);
  vmm_machine_reset_attestation (self);
}

static void
mark_ready (VmmMachine *self)
{
  VmmMachineRecord *record = self->record;

  record->ready_at = g_get_real_time ();
  record->booted = TRUE;
  /* A guest can be up although its vTPM lost measurements; that must stay to be seen. */
  if (!vmm_machine_error_is_rejection (record->last_error, NULL))
    replace_text (&record->last_error, NULL);
}

/* What a row changes in the record beside the state. */
static void
change_record (VmmMachine *self, const VmmMachineTransition *row, const char *detail)
{
  VmmMachineRecord *record = self->record;

  switch (row->action)
    {
    case VMM_MACHINE_ACTION_START_BOOT:
      vmm_machine_record_clear_paused (record);
      reset_boot (self);
      break;
    case VMM_MACHINE_ACTION_RESET_BOOT:
      reset_boot (self);
      break;
    case VMM_MACHINE_ACTION_MARK_READY:
      mark_ready (self);
      break;
    case VMM_MACHINE_ACTION_MARK_INSTALLED:
      record->installed_at = g_get_real_time ();
      break;
    case VMM_MACHINE_ACTION_MARK_NONCE:
      if (record->nonce_issued_at == 0)
        record->nonce_issued_at = g_get_real_time ();
      break;
    case VMM_MACHINE_ACTION_RECORD_STATUS:
      replace_text (&record->status, detail);
      break;
    case VMM_MACHINE_ACTION_MARK_PAUSED:
      replace_text (&record->paused_reason, detail != NULL ? detail : "paused");
      record->paused_at = g_get_real_time ();
      break;
    case VMM_MACHINE_ACTION_CLEAR_PAUSED:
      vmm_machine_record_clear_paused (record);
      break;
    case VMM_MACHINE_ACTION_NOTE:
      if (detail != NULL)
        replace_text (&record->last_error, detail);
      break;
    case VMM_MACHINE_ACTION_KILL:
      self->timed_out = TRUE;
      break;
    default:
      break;
    }
  if (row->event == VMM_MACHINE_EVENT_INSTALLER_STARTED)
    replace_text (&record->phase, "install");
}

static void
change_timers (VmmMachine *self, const VmmMachineTransition *row)
{
  if (row->event == VMM_MACHINE_EVENT_INSTALLER_STARTED
      || row->action == VMM_MACHINE_ACTION_RESET_BOOT)
    vmm_machine_arm_phase_timer (self);
  else if (row->to != VMM_MACHINE_INSTALLING && row->to != VMM_MACHINE_BOOTING
           && row->to != VMM_MACHINE_ATTESTING)
    vmm_machine_disarm_phase_timer (self);
}

/* What a row starts. */
static void
run_action (VmmMachine *self, const VmmMachineTransition *row)
{
  switch (row->action)
    {
    case VMM_MACHINE_ACTION_START_BOOT:
      vmm_machine_enqueue_boot (self);
      break;
    case VMM_MACHINE_ACTION_MARK_INSTALLED:
      vmm_machine_enqueue_installed_boot (self);
      break;
    case VMM_MACHINE_ACTION_POWER_DOWN:
      vmm_machine_power_down (self);
      break;
    case VMM_MACHINE_ACTION_KILL:
      vmm_machine_kill (self);
      break;
    case VMM_MACHINE_ACTION_DISCARD:
      vmm_machine_enqueue_delete (self);
      break;
    default:
      break;
    }
}

static void
be_gone (VmmMachine *self)
{
  if (self->context->attestor != NULL)
    vmm_attestor_forget (self->context->attestor, self->record->id);
  vmm_machine_answer_stops (self);
  vmm_machine_waits_return (&self->delete_waits, NULL);
  g_signal_emit (self, signals[SIGNAL_GONE], 0);
}

static void
log_transition (VmmMachine *self, const VmmMachineTransition *row)
{
  vmm_log_info ("vm state", "vm", self->record->id, "from", vmm_machine_state_to_nick (row->from),
                "to", vmm_machine_state_to_nick (row->to), "event",
                vmm_machine_event_to_nick (row->event), NULL);
}

static void
refuse_start (VmmMachine *self, GError **error)
{
  const VmmMachineRecord *record = self->record;

  if (self->context->closing)
    vmm_set_error (error, VMM_ERROR_CONFLICT, "vm-manager is shutting down");
  else if (record->state == VMM_MACHINE_DELETING)
    vmm_set_error (error, VMM_ERROR_CONFLICT, "vm %s is being deleted", record->id);
  else if (record->state != VMM_MACHINE_STOPPED && record->state != VMM_MACHINE_FAILED)
    vmm_set_error (error, VMM_ERROR_CONFLICT, "vm %s is %s", record->id,
                   vmm_machine_state_to_nick (record->state));
  else
    vmm_set_error (error, VMM_ERROR_CONFLICT,
                   "vm %s never finished installing; delete and recreate it", record->id);
}

/* The conflict that answers a request which no row allows. */
static void
refuse (VmmMachine *self, VmmMachineEvent event, GError **error)
{
  const char *id = self->record->id;
  VmmMachineState state = self->record->state;

  if (error == NULL)
    return;
  if (state == VMM_MACHINE_GONE)
    vmm_set_error (error, VMM_ERROR_NOT_FOUND, "vm \"%s\"", id);
  else if (event == VMM_MACHINE_EVENT_START_REQUESTED)
    refuse_start (self, error);
  else if (event == VMM_MACHINE_EVENT_DELETE_REQUESTED)
    vmm_set_error (error, VMM_ERROR_CONFLICT, "vm %s is already being deleted", id);
  else if (event == VMM_MACHINE_EVENT_STOP_REQUESTED && state == VMM_MACHINE_DELETING)
    vmm_set_error (error, VMM_ERROR_CONFLICT, "vm %s is being deleted", id);
  else if (event == VMM_MACHINE_EVENT_STOP_REQUESTED)
    vmm_set_error (error, VMM_ERROR_CONFLICT, "vm %s is not running (%s)", id,
                   vmm_machine_state_to_nick (state));
  else
    vmm_set_error (error, VMM_ERROR_CONFLICT, "vm %s is %s: %s does not apply", id,
                   vmm_machine_state_to_nick (state), vmm_machine_event_to_nick (event));
}

static gboolean
handle_one (VmmMachine *self, VmmMachineEvent event, const char *detail, GError **error)
{
  const VmmMachineTransition *row
      = vmm_machine_fsm_find (self->record->state, event, current_guards (self));

  if (row == NULL)
    {
      vmm_log_debug ("vm event without effect", "vm", self->record->id, "state",
                     vmm_machine_state_to_nick (self->record->state), "event",
                     vmm_machine_event_to_nick (event), NULL);
      refuse (self, event, error);
      return FALSE;
    }

  self->handling = TRUE;
  change_record (self, row, detail);
  self->record->state = row->to;
  change_timers (self, row);
  if (row->to != row->from)
    {
      log_transition (self, row);
      g_object_notify_by_pspec (G_OBJECT (self), properties[PROP_STATE]);
    }
  g_signal_emit (self, signals[SIGNAL_TRANSITION], 0, (guint) row->event, (guint) row->from,
                 (guint) row->to);
  self->handling = FALSE;

  if (row->to == VMM_MACHINE_GONE)
    {
      be_gone (self);
      return TRUE;
    }
  if (row->from == VMM_MACHINE_STOPPING && row->to != VMM_MACHINE_STOPPING)
    vmm_machine_answer_stops (self);
  else
    vmm_machine_save (self);
  run_action (self, row);
  return TRUE;
}

gboolean
vmm_machine_handle_event (VmmMachine *self, VmmMachineEvent event, const char *detail,
                          GError **error)
{
  g_autoptr (VmmMachine) alive = NULL;
  RaisedEvent *raised;
  gboolean handled;

  g_return_val_if_fail (VMM_IS_MACHINE (self), FALSE);

  if (self->handling)
    {
      raised = g_new0 (RaisedEvent, 1);
      raised->event = event;
      raised->detail = g_strdup (detail);
      g_queue_push_tail (&self->events, raised);
      return TRUE;
    }

  alive = g_object_ref (self);
  handled = handle_one (self, event, detail, error);
  while (!self->handling && (raised = g_queue_pop_head (&self->events)) != NULL)
    {
      handle_one (self, raised->event, raised->detail, NULL);
      g_free (raised->detail);
      g_free (raised);
    }
  return handled;
}

static void
vmm_machine_get_property (GObject *object, guint id, GValue *value, GParamSpec *pspec)
{
  VmmMachine *self = VMM_MACHINE (object);

  switch (id)
    {
    case PROP_STATE:
      g_value_set_uint (value, self->record->state);
      break;
    default:
      G_OBJECT_WARN_INVALID_PROPERTY_ID (object, id, pspec);
      break;
    }
}

static void
vmm_machine_dispose (GObject *object)
{
  VmmMachine *self = VMM_MACHINE (object);

  vmm_machine_disarm_phase_timer (self);
  vmm_machine_clear_stop (self);
  g_clear_handle_id (&self->drain_timer, g_source_remove);
  g_clear_handle_id (&self->save_timer, g_source_remove);
  vmm_machine_close_channels (self);
  for (guint i = 0; i < VMM_N_PROCESS_ROLES; i++)
    {
      g_clear_handle_id (&self->helper_timers[i], g_source_remove);
      if (self->processes[i] != NULL)
        g_signal_handlers_disconnect_by_data (self->processes[i], self);
      g_clear_object (&self->processes[i]);
    }
  g_clear_object (&self->volume);
  g_clear_object (&self->file);
  G_OBJECT_CLASS (vmm_machine_parent_class)->dispose (object);
}

static void
vmm_machine_finalize (GObject *object)
{
  VmmMachine *self = VMM_MACHINE (object);

  vmm_machine_release (self, FALSE);
  g_clear_pointer (&self->record, vmm_machine_record_free);
  g_free (self->directory);
  g_free (self->save_note);
  g_free (self->shutdown_reason);
  g_free (self->disk_fault);
  g_clear_pointer (&self->attachment, vmm_attachment_unref);
  G_OBJECT_CLASS (vmm_machine_parent_class)->finalize (object);
}

static void
vmm_machine_class_init (VmmMachineClass *klass)
{
  GObjectClass *object_class = G_OBJECT_CLASS (klass);

  object_class->get_property = vmm_machine_get_property;
  object_class->dispose = vmm_machine_dispose;
  object_class->finalize = vmm_machine_finalize;

  properties[PROP_STATE]
      = g_param_spec_uint ("state", NULL, NULL, 0, VMM_MACHINE_GONE, VMM_MACHINE_CREATING,
                           G_PARAM_READABLE | G_PARAM_STATIC_STRINGS | G_PARAM_EXPLICIT_NOTIFY);
  g_object_class_install_properties (object_class, N_PROPERTIES, properties);

  signals[SIGNAL_CHANGED] = g_signal_new ("changed", G_TYPE_FROM_CLASS (klass), G_SIGNAL_RUN_LAST,
                                          0, NULL, NULL, NULL, G_TYPE_NONE, 0);
  signals[SIGNAL_GONE] = g_signal_new ("gone", G_TYPE_FROM_CLASS (klass), G_SIGNAL_RUN_LAST, 0,
                                       NULL, NULL, NULL, G_TYPE_NONE, 0);
  signals[SIGNAL_TRANSITION]
      = g_signal_new ("transition", G_TYPE_FROM_CLASS (klass), G_SIGNAL_RUN_LAST, 0, NULL, NULL,
                      NULL, G_TYPE_NONE, 3, G_TYPE_UINT, G_TYPE_UINT, G_TYPE_UINT);
}

static void
vmm_machine_init (VmmMachine *self)
{
  g_queue_init (&self->events);
  g_queue_init (&self->operations);
  g_queue_init (&self->stop_waits);
  g_queue_init (&self->delete_waits);
  g_queue_init (&self->idle_waits);
  g_queue_init (&self->settle_waits);
  g_queue_init (&self->held);
}

VmmMachine *
vmm_machine_new (VmmMachineContext *context, VmmMachineRecord *record)
{
  VmmMachine *self = g_object_new (VMM_TYPE_MACHINE, NULL);

  self->context = context;
  self->record = record;
  self->directory = g_build_filename (context->state_dir, "vms", record->id, NULL);
  return self;
}

const VmmMachineRecord *
vmm_machine_get_record (VmmMachine *self)
{
  return self->record;
}

const char *
vmm_machine_get_id (VmmMachine *self)
{
  return self->record->id;
}

VmmMachineState
vmm_machine_get_state (VmmMachine *self)
{
  return self->record->state;
}

VmmMachineContext *
vmm_machine_get_context (VmmMachine *self)
{
  return self->context;
}

/* A VM that runs keeps what it was started with; what others will get may be decided later. */
static gint64
prolong (VmmMachine *self, gint64 timeout_us, guint factor)
{
  const char *accelerator = self->record->accelerator;
  gboolean emulated = accelerator != NULL ? g_str_equal (accelerator, "tcg")
                                          : vmm_host_is_emulated (self->context->host);

  return emulated && factor > 1 && timeout_us <= G_MAXINT64 / factor ? timeout_us * factor
                                                                     : timeout_us;
}

gint64
vmm_machine_get_install_timeout (VmmMachine *self)
{
  return prolong (self, self->context->install_timeout_us, self->context->install_factor);
}

gint64
vmm_machine_get_boot_timeout (VmmMachine *self)
{
  return prolong (self, self->context->boot_timeout_us, self->context->boot_factor);
}

gint64
vmm_machine_get_stop_timeout (VmmMachine *self)
{
  return prolong (self, self->context->stop_timeout_us, self->context->stop_factor);
}

const char *
vmm_machine_get_directory (VmmMachine *self)
{
  return self->directory;
}

char *
vmm_machine_dup_path (VmmMachine *self, const char *name)
{
  return g_build_filename (self->directory, name, NULL);
}

VmmProcess *
vmm_machine_get_process (VmmMachine *self, VmmProcessRole role)
{
  g_return_val_if_fail ((guint) role < VMM_N_PROCESS_ROLES, NULL);
  return self->processes[role];
}

VmmVolume *
vmm_machine_get_volume (VmmMachine *self)
{
  return self->volume;
}

VmmNetwork *
vmm_machine_get_network (VmmMachine *self, GError **error)
{
  VmmNetworkTable *networks = self->context->networks;
  const char *name = self->record->network;
  VmmNetwork *network = vmm_network_table_get_network (networks, name);
  const char *reason;

  if (network == NULL)
    {
      reason = vmm_network_table_get_error (networks, name);
      vmm_set_error (error, VMM_ERROR_CONFLICT, "network \"%s\" is down%s%s", name,
                     reason != NULL ? ": " : "", reason != NULL ? reason : "");
    }
  return network;
}

JsonNode *
vmm_machine_to_json (VmmMachine *self)
{
  return vmm_machine_record_to_json (self->record, self->directory);
}

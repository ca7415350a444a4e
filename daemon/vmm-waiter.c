/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Waits until a VM has reached a milestone.
 *
 * It looks once at the start and then whenever the machine has changed. A VM that failed or is on its
 * way down ends the wait; one that is merely late does not, until the deadline. Who cancels leaves
 * the VM alone.
 */

#include "config.h"

#include "vmm-waiter.h"

#include <string.h>

#include "vmm-source.h"
#include "vmm-time.h"

static const char *const nicks[] = {
  [VMM_MILESTONE_NONE] = "none",
  [VMM_MILESTONE_INSTALLED] = "installed",
  [VMM_MILESTONE_ATTESTED] = "attested",
  [VMM_MILESTONE_READY] = "ready",
};

typedef struct
{
  VmmMilestone milestone;
  gint64 limit_us;
  gulong changed_id;
  gulong gone_id;
  guint timer;
  GSource *cancelled;
} Waiter;

gboolean
vmm_milestone_from_nick (const char *nick, VmmMilestone *milestone)
{
  for (guint i = 0; nick != NULL && i < G_N_ELEMENTS (nicks); i++)
    {
      if (strcmp (nick, nicks[i]) == 0)
        {
          *milestone = (VmmMilestone) i;
          return TRUE;
        }
    }
  return FALSE;
}

static void
waiter_free (Waiter *waiter)
{
  g_clear_handle_id (&waiter->timer, g_source_remove);
  vmm_source_clear (&waiter->cancelled);
  g_free (waiter);
}

/* Takes error, NULL for success. Ends everything that could answer a second time. */
static void
answer (GTask *task, GError *error)
{
  Waiter *waiter = g_task_get_task_data (task);
  VmmMachine *machine = g_task_get_source_object (task);

  g_clear_handle_id (&waiter->timer, g_source_remove);
  vmm_source_clear (&waiter->cancelled);
  g_clear_signal_handler (&waiter->changed_id, machine);
  g_clear_signal_handler (&waiter->gone_id, machine);
  if (error != NULL)
    g_task_return_error (task, error);
  else
    g_task_return_boolean (task, TRUE);
  g_object_unref (task);
}

static gboolean
is_reached (const VmmMachineRecord *record, VmmMilestone milestone)
{
  switch (milestone)
    {
    case VMM_MILESTONE_INSTALLED:
      return record->installed_at != 0;
    case VMM_MILESTONE_ATTESTED:
      return record->booted_at != 0 && record->user_data_released;
    case VMM_MILESTONE_READY:
      return record->ready_at != 0;
    case VMM_MILESTONE_NONE:
    default:
      return TRUE;
    }
}

static GError *
failure_of (const VmmMachineRecord *record)
{
  switch (record->state)
    {
    case VMM_MACHINE_FAILED:
      return vmm_error_new (VMM_ERROR_VM_FAILED, "%s",
                            record->last_error != NULL ? record->last_error : "vm is failed");
    case VMM_MACHINE_STOPPING:
    case VMM_MACHINE_STOPPED:
    case VMM_MACHINE_DELETING:
      return vmm_error_new (VMM_ERROR_VM_FAILED, "vm is %s",
                            vmm_machine_state_to_nick (record->state));
    case VMM_MACHINE_GONE:
      return vmm_error_new (VMM_ERROR_VM_FAILED, "vm is deleted");
    default:
      return NULL;
    }
}

static gboolean
look (GTask *task)
{
  Waiter *waiter = g_task_get_task_data (task);
  const VmmMachineRecord *record = vmm_machine_get_record (g_task_get_source_object (task));
  GError *error = failure_of (record);

  if (error == NULL && !is_reached (record, waiter->milestone))
    return FALSE;
  answer (task, error);
  return TRUE;
}

static void
changed_cb (VmmMachine *machine, gpointer user_data)
{
  look (user_data);
}

static gboolean
timer_cb (gpointer user_data)
{
  GTask *task = user_data;
  Waiter *waiter = g_task_get_task_data (task);
  const VmmMachineRecord *record = vmm_machine_get_record (g_task_get_source_object (task));
  g_autofree char *limit = vmm_duration_to_text (waiter->limit_us);

  waiter->timer = 0;
  answer (task, vmm_error_new (VMM_ERROR_TIMEOUT, "vm %s did not reach %s within %s (state %s)",
                               record->id, nicks[waiter->milestone], limit,
                               vmm_machine_state_to_nick (record->state)));
  return G_SOURCE_REMOVE;
}

static gboolean
cancelled_cb (GCancellable *cancellable, gpointer user_data)
{
  answer (user_data, g_error_new (G_IO_ERROR, G_IO_ERROR_CANCELLED, "the wait was cancelled"));
  return G_SOURCE_REMOVE;
}

static void
watch (GTask *task)
{
  Waiter *waiter = g_task_get_task_data (task);
  VmmMachine *machine = g_task_get_source_object (task);
  GCancellable *cancellable = g_task_get_cancellable (task);

  waiter->changed_id = g_signal_connect (machine, "changed", G_CALLBACK (changed_cb), task);
  waiter->gone_id = g_signal_connect (machine, "gone", G_CALLBACK (changed_cb), task);
  waiter->timer = g_timeout_add ((guint) CLAMP (waiter->limit_us / 1000, 1, G_MAXINT), timer_cb,
                                 task);
  waiter->cancelled = vmm_source_new_cancelled (cancellable, cancelled_cb, task);
}

void
vmm_waiter_wait_async (VmmMachine *machine, VmmMilestone milestone, GCancellable *cancellable,
                       GAsyncReadyCallback callback, gpointer user_data)
{
  GTask *task = g_task_new (machine, cancellable, callback, user_data);
  Waiter *waiter = g_new0 (Waiter, 1);

  g_task_set_source_tag (task, vmm_waiter_wait_async);
  waiter->milestone = milestone;
  waiter->limit_us
      = vmm_machine_get_install_timeout (machine) + vmm_machine_get_stop_timeout (machine);
  if (milestone != VMM_MILESTONE_INSTALLED)
    waiter->limit_us += vmm_machine_get_boot_timeout (machine);
  g_task_set_task_data (task, waiter, (GDestroyNotify) waiter_free);

  if (milestone == VMM_MILESTONE_NONE)
    answer (task, NULL);
  else if (!look (task))
    watch (task);
}

gboolean
vmm_waiter_wait_finish (VmmMachine *machine, GAsyncResult *result, GError **error)
{
  g_return_val_if_fail (g_task_is_valid (result, machine), FALSE);
  return g_task_propagate_boolean (G_TASK (result), error);
}

/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* One call of one operation.
 *
 * Made by a door, filled in by the operations table (arguments checked against the row's schema,
 * defaults added) and read by the handler. The door listens to ::progress when it can pass progress
 * on, and triggers the cancellable when its client goes away. */

#include "config.h"

#include "vmm-call.h"

struct _VmmCall
{
  GObject parent_instance;

  VmmCaller *caller;
  JsonObject *arguments;
  GCancellable *cancellable;
};

enum
{
  PROGRESS,
  N_SIGNALS
};

static guint signals[N_SIGNALS];

G_DEFINE_FINAL_TYPE (VmmCall, vmm_call, G_TYPE_OBJECT)

static void
vmm_call_finalize (GObject *object)
{
  VmmCall *self = VMM_CALL (object);

  g_clear_pointer (&self->caller, vmm_caller_unref);
  g_clear_pointer (&self->arguments, json_object_unref);
  g_clear_object (&self->cancellable);

  G_OBJECT_CLASS (vmm_call_parent_class)->finalize (object);
}

static void
vmm_call_class_init (VmmCallClass *klass)
{
  G_OBJECT_CLASS (klass)->finalize = vmm_call_finalize;

  signals[PROGRESS] = g_signal_new ("progress", VMM_TYPE_CALL, G_SIGNAL_RUN_LAST, 0, NULL, NULL,
                                    NULL, G_TYPE_NONE, 2, G_TYPE_STRING, G_TYPE_STRING);
}

static void
vmm_call_init (VmmCall *self)
{
}

VmmCall *
vmm_call_new (VmmCaller *caller, JsonObject *arguments, GCancellable *cancellable)
{
  VmmCall *self;

  g_return_val_if_fail (caller != NULL, NULL);
  g_return_val_if_fail (cancellable == NULL || G_IS_CANCELLABLE (cancellable), NULL);

  self = g_object_new (VMM_TYPE_CALL, NULL);
  self->caller = vmm_caller_ref (caller);
  self->arguments = arguments != NULL ? json_object_ref (arguments) : json_object_new ();
  g_set_object (&self->cancellable, cancellable);
  return self;
}

VmmCaller *
vmm_call_get_caller (VmmCall *self)
{
  g_return_val_if_fail (VMM_IS_CALL (self), NULL);

  return self->caller;
}

JsonObject *
vmm_call_get_arguments (VmmCall *self)
{
  g_return_val_if_fail (VMM_IS_CALL (self), NULL);

  return self->arguments;
}

void
vmm_call_set_arguments (VmmCall *self, JsonObject *arguments)
{
  g_return_if_fail (VMM_IS_CALL (self));
  g_return_if_fail (arguments != NULL);

  json_object_ref (arguments);
  json_object_unref (self->arguments);
  self->arguments = arguments;
}

GCancellable *
vmm_call_get_cancellable (VmmCall *self)
{
  g_return_val_if_fail (VMM_IS_CALL (self), NULL);

  return self->cancellable;
}

void
vmm_call_report_progress (VmmCall *self, const char *phase, const char *message)
{
  g_return_if_fail (VMM_IS_CALL (self));

  g_signal_emit (self, signals[PROGRESS], 0, phase, message);
}

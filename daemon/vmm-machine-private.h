/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "vmm-coalesced-file.h"
#include "vmm-machine.h"
#include "vmm-qmp.h"
#include "vmm-sequence.h"
#include "vmm-witness.h"

G_BEGIN_DECLS

/* The machine's own files share this; nobody else includes it.
 *
 *   vmm-machine.c              the object; events through the table
 *   vmm-machine-save.c         vm.json: one writer
 *   vmm-machine-queue.c        operations one after the other, and who waits for them
 *   vmm-machine-operations.c   create, start, the boot after the installer, delete
 *   vmm-machine-steps.c        provision and discard
 *   vmm-machine-boot.c         attach, vsock, monitor, run; vmm-machine-tpm.c: the vTPM;
 *                              vmm-machine-qemu.c starts QEMU
 *   vmm-machine-run.c          processes and timer of a running guest
 *   vmm-machine-journal.c      what the journal and QEMU tell of it
 *   vmm-machine-exit.c         what follows the end of QEMU
 *   vmm-machine-stop.c         the power button and what comes after it
 *   vmm-machine-recover.c      after a daemon start; vmm-machine-close.c: at its end
 */

/* A caller's task that is answered early when the caller cancels; the work goes on. */
typedef struct _VmmMachineWait VmmMachineWait;
VmmMachineWait *vmm_machine_wait_new (VmmMachine *self, GCancellable *cancellable,
                                      GAsyncReadyCallback callback, gpointer user_data,
                                      gpointer source_tag);
/* Answers, unless the caller has left, and frees. error NULL for success. */
void vmm_machine_wait_return (VmmMachineWait *wait, const GError *error);
/* Answers all of a list and empties it. */
void vmm_machine_waits_return (GQueue *waits, const GError *error);

/* The state of a new vTPM, while it is being made. */
typedef struct _VmmMachineTpmMaking VmmMachineTpmMaking;

/* Why an operation in flight is given up. */
typedef enum
{
  VMM_GIVE_UP_NONE,
  VMM_GIVE_UP_STOP,
  VMM_GIVE_UP_DELETE,
  VMM_GIVE_UP_CLOSING,
  VMM_GIVE_UP_EXITED, /* QEMU ended while it was being started */
} VmmMachineGiveUp;

typedef struct _VmmMachineOperation VmmMachineOperation;
typedef void (*VmmMachineOperationRun) (VmmMachine *self, VmmMachineOperation *operation);

struct _VmmMachineOperation
{
  const char *name;
  VmmMachineOperationRun run;
  VmmMachineWait *wait;      /* NULL when nobody waits */
  GBytes *guest_user_data;   /* create only */
  GCancellable *cancellable; /* gives the work up */
  VmmMachineGiveUp give_up;
  char *exit_text;           /* how QEMU ended while it was being started */
};

struct _VmmMachine
{
  GObject parent_instance;

  VmmMachineContext *context;
  VmmMachineRecord *record;
  char *directory;

  GQueue events;    /* raised while one was being handled */
  gboolean handling;

  VmmCoalescedFile *file;
  gboolean storing;     /* vm.json may be written */
  gboolean left_behind; /* the folder could not be removed */
  gboolean save_joined; /* a save is waiting for the next write */
  char *save_note;      /* what was added to last_error because a write failed */
  guint save_timer;     /* to try it again */

  GQueue operations;              /* waiting */
  VmmMachineOperation *operation; /* in flight */
  GQueue stop_waits;
  GQueue delete_waits;
  GQueue idle_waits;    /* of GTask: nothing in flight, nothing waiting */
  GQueue settle_waits;  /* of GTask: no QEMU, its end settled */

  VmmHostWays ways; /* of the last start */
  VmmVolume *volume;
  VmmProcess *processes[VMM_N_PROCESS_ROLES];
  guint helper_timers[VMM_N_PROCESS_ROLES];
  VmmQmp *qmp;
  VmmWitness *witness;
  GCancellable *reconnect; /* of a witness that was lost; NULL when none is in flight */
  VmmMachineTpmMaking *tpm_making; /* NULL when there is none, and none to be heard of */
  VmmAttachment *attachment; /* to its network; NULL before the first boot */
  const char *boot_phase;
  gboolean qemu_answered; /* on QMP, in this start */
  gboolean starting;     /* exits and the journal are held back until the start is recorded */
  GQueue held;           /* of HeldEvent */
  char *shutdown_reason; /* what QEMU said about the end of this run */
  char *disk_fault;      /* why the disk of an installer that nobody watched is not installed */
  gboolean journal_ended;
  gboolean timed_out;    /* the installer was killed by its timeout */
  gboolean settling;
  guint drain_timer;
  guint phase_timer;

  gboolean stopping_process; /* the power button was pressed, or worse */
  guint press_timer;
  guint stop_timer;
  gboolean closed;
};

/* vmm-machine-save.c */
void vmm_machine_save (VmmMachine *self);
/* Answers when what the record says now is on disk. */
void vmm_machine_save_async (VmmMachine *self, GAsyncReadyCallback callback, gpointer user_data);
gboolean vmm_machine_save_finish (VmmMachine *self, GAsyncResult *result, GError **error);
/* No write begins any more; answers when none is in flight. */
void vmm_machine_stop_saving_async (VmmMachine *self, GAsyncReadyCallback callback,
                                    gpointer user_data);

/* vmm-machine-queue.c */
void vmm_machine_enqueue (VmmMachine *self, const char *name, VmmMachineOperationRun run,
                          VmmMachineWait *wait, GBytes *guest_user_data);
/* The operation in flight has ended; the next one begins. */
void vmm_machine_operation_done (VmmMachine *self, const GError *error);
/* Gives up the operation in flight, which undoes what it did and then ends. */
void vmm_machine_give_up (VmmMachine *self, VmmMachineGiveUp why);
/* What a caller is told whose operation was given up. */
GError *vmm_machine_give_up_error (VmmMachine *self, VmmMachineGiveUp why);
gboolean vmm_machine_is_busy (VmmMachine *self);
void vmm_machine_wait_idle_async (VmmMachine *self, GAsyncReadyCallback callback,
                                  gpointer user_data);

/* vmm-machine-operations.c */
void vmm_machine_enqueue_installed_boot (VmmMachine *self);
void vmm_machine_enqueue_boot (VmmMachine *self);
void vmm_machine_enqueue_delete (VmmMachine *self);

/* vmm-machine-steps.c, vmm-machine-boot.c, vmm-machine-qemu.c: steps and their parts */
GTask *vmm_machine_step_task (gpointer subject, GCancellable *cancellable,
                              GAsyncReadyCallback callback, gpointer user_data, gpointer tag);
gboolean vmm_machine_step_finish (gpointer subject, GAsyncResult *result, GError **error);
/* Ends a step: takes error, NULL for success, and puts the prefix before its message. */
void vmm_machine_step_return (GTask *task, GError *error, const char *prefix);

void vmm_machine_run_create_async (VmmMachine *self, GCancellable *cancellable,
                                   GAsyncReadyCallback callback, gpointer user_data);
void vmm_machine_run_boot_async (VmmMachine *self, const char *name, GCancellable *cancellable,
                                 GAsyncReadyCallback callback, gpointer user_data);
void vmm_machine_run_discard_async (VmmMachine *self, GAsyncReadyCallback callback,
                                    gpointer user_data);
/* FALSE when the folder with the record is still there. */
gboolean vmm_machine_run_discard_finish (VmmMachine *self, GAsyncResult *result, GError **error);

/* Opens the volume unless it is open; the lease that the VM has. Also for a reattach. */
void vmm_machine_open_volume_async (gpointer subject, GCancellable *cancellable,
                                    GAsyncReadyCallback callback, gpointer user_data);
void vmm_machine_release_volume (VmmMachine *self);
void vmm_machine_lease_async (gpointer subject, GCancellable *cancellable,
                              GAsyncReadyCallback callback, gpointer user_data);
void vmm_machine_attach_async (gpointer subject, GCancellable *cancellable,
                               GAsyncReadyCallback callback, gpointer user_data);

extern const VmmStep vmm_machine_boot_steps[];
extern const guint vmm_machine_n_boot_steps;

void vmm_machine_qemu_start_async (gpointer subject, GCancellable *cancellable,
                                   GAsyncReadyCallback callback, gpointer user_data);
void vmm_machine_qemu_undo_async (gpointer subject, GCancellable *cancellable,
                                  GAsyncReadyCallback callback, gpointer user_data);
/* Ends what is left of an earlier run's helpers; goes on whatever comes of it. */
void vmm_machine_end_helpers_async (VmmMachine *self, GAsyncReadyCallback callback,
                                    gpointer user_data);

/* vmm-machine-tpm.c */
/* Begins to make its state, within a create; starting it waits for that. */
void vmm_machine_make_tpm_async (gpointer subject, GCancellable *cancellable,
                                 GAsyncReadyCallback callback, gpointer user_data);
void vmm_machine_undo_make_tpm_async (gpointer subject, GCancellable *cancellable,
                                      GAsyncReadyCallback callback, gpointer user_data);
void vmm_machine_start_tpm_async (gpointer subject, GCancellable *cancellable,
                                  GAsyncReadyCallback callback, gpointer user_data);
void vmm_machine_undo_start_tpm_async (gpointer subject, GCancellable *cancellable,
                                       GAsyncReadyCallback callback, gpointer user_data);
/* Copies the state of the vTPM while it is known to be good. A failure is only logged. */
void vmm_machine_keep_tpm_async (VmmMachine *self, GAsyncReadyCallback callback,
                                 gpointer user_data);
/* What a helper has to end by itself. */
#define VMM_MACHINE_HELPER_GRACE_MS 5000
/* Stops the process of a role, if there is one, and forgets it. */
void vmm_machine_end_process_async (VmmMachine *self, VmmProcessRole role, guint grace_ms,
                                    GAsyncReadyCallback callback, gpointer user_data);
gboolean vmm_machine_end_process_finish (VmmMachine *self, GAsyncResult *result, GError **error);

/* vmm-machine-run.c */
void vmm_machine_set_process (VmmMachine *self, VmmProcessRole role, VmmProcess *process);
void vmm_machine_drop_process (VmmMachine *self, VmmProcessRole role);
/* Forgets the processes that have ended; one that could not be stopped stays to be seen. */
void vmm_machine_drop_ended (VmmMachine *self);
const char *vmm_machine_helper_title (VmmProcessRole role);
void vmm_machine_helper_exited (VmmMachine *self, VmmProcessRole role);
void vmm_machine_arm_phase_timer (VmmMachine *self);
void vmm_machine_disarm_phase_timer (VmmMachine *self);

/* vmm-machine-journal.c */
void vmm_machine_set_qmp (VmmMachine *self, VmmQmp *qmp);
void vmm_machine_set_witness (VmmMachine *self, VmmWitness *witness);
void vmm_machine_close_channels (VmmMachine *self);
void vmm_machine_give_up_reconnect (VmmMachine *self);
/* A start begins, and has ended: what was held back is delivered, or dropped after a failure. */
void vmm_machine_hold (VmmMachine *self, const char *phase);
void vmm_machine_release (VmmMachine *self, gboolean started);
/* What was said before the guest ran is of an earlier run. */
void vmm_machine_forget_held (VmmMachine *self);

/* vmm-machine-exit.c */
void vmm_machine_settle (VmmMachine *self);
void vmm_machine_journal_ended (VmmMachine *self);
void vmm_machine_wait_settled_async (VmmMachine *self, GAsyncReadyCallback callback,
                                     gpointer user_data);

/* vmm-machine-stop.c */
void vmm_machine_power_down (VmmMachine *self);
void vmm_machine_kill (VmmMachine *self);
void vmm_machine_clear_stop (VmmMachine *self);
/* The state is no longer stopping: saves the record, then tells those who wait. */
void vmm_machine_answer_stops (VmmMachine *self);

/* vmm-machine-forwards.c */
void vmm_machine_close_forwards_async (VmmMachine *self, GAsyncReadyCallback callback,
                                       gpointer user_data);
gboolean vmm_machine_close_forwards_finish (VmmMachine *self, GAsyncResult *result,
                                            GError **error);

/* vmm-machine-console.c */
typedef struct
{
  char *tail;     /* the last lines, NULL for none */
  char *tpm_line; /* the first line that says the guest's TPM calls failed, NULL for none */
} VmmConsoleReport;
void vmm_console_report_free (VmmConsoleReport *self);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (VmmConsoleReport, vmm_console_report_free)
/* Never fails: a console that cannot be read says nothing. */
void vmm_machine_read_console_async (VmmMachine *self, GAsyncReadyCallback callback,
                                     gpointer user_data);
VmmConsoleReport *vmm_machine_read_console_finish (VmmMachine *self, GAsyncResult *result);
/* The vTPM note, if there is one, then the text, then the tail, if wanted. */
char *vmm_console_report_compose (const VmmConsoleReport *self, const char *text,
                                  gboolean with_note, gboolean with_tail);

/* vmm-machine-attestation.c */
/* As at the start of every boot and after every reset of the guest. */
void vmm_machine_reset_attestation (VmmMachine *self);
/* Whether last_error is the rejection of a quote; stage NULL for any. */
gboolean vmm_machine_error_is_rejection (const char *last_error, const char *stage);

G_END_DECLS

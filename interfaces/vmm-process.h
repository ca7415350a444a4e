/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <gio/gio.h>

G_BEGIN_DECLS

/**
 * VmmProcessFlags:
 * @VMM_PROCESS_FLAGS_NONE: nothing special
 * @VMM_PROCESS_DENY_IO_URING: `io_uring_setup` fails with `EPERM` in the process
 * @VMM_PROCESS_RESTART: a launcher whose processes outlive the daemon starts it again when
 *   it dies while the daemon is away
 *
 * How a process is to be run.
 */
typedef enum
{
  VMM_PROCESS_FLAGS_NONE = 0,
  VMM_PROCESS_DENY_IO_URING = 1 << 0,
  VMM_PROCESS_RESTART = 1 << 1,
} VmmProcessFlags;

/**
 * VmmProcessSpec:
 *
 * What to run: immutable once started, reference counted. Built with the setters.
 */
typedef struct _VmmProcessSpec VmmProcessSpec;
#define VMM_TYPE_PROCESS_SPEC (vmm_process_spec_get_type ())
GType vmm_process_spec_get_type (void) G_GNUC_CONST;

VmmProcessSpec *vmm_process_spec_new (const char *id, const char *const *argv);
VmmProcessSpec *vmm_process_spec_ref (VmmProcessSpec *self);
void vmm_process_spec_unref (VmmProcessSpec *self);
void vmm_process_spec_set_owner (VmmProcessSpec *self, const char *owner, const char *role);
void vmm_process_spec_set_directory (VmmProcessSpec *self, const char *path);
void vmm_process_spec_set_log (VmmProcessSpec *self, const char *path);
void vmm_process_spec_set_flags (VmmProcessSpec *self, VmmProcessFlags flags);
void vmm_process_spec_add_environment (VmmProcessSpec *self, const char *name, const char *value);
void vmm_process_spec_add_writable_path (VmmProcessSpec *self, const char *path);
void vmm_process_spec_add_device (VmmProcessSpec *self, const char *path);
void vmm_process_spec_add_after (VmmProcessSpec *self, const char *id);
void vmm_process_spec_take_fd (VmmProcessSpec *self, const char *name, int fd);
void vmm_process_spec_set_memory_max (VmmProcessSpec *self, guint64 bytes);
void vmm_process_spec_set_cpu_quota (VmmProcessSpec *self, guint percent);

const char *vmm_process_spec_get_id (VmmProcessSpec *self);
const char *const *vmm_process_spec_get_argv (VmmProcessSpec *self);
const char *vmm_process_spec_get_owner (VmmProcessSpec *self);
const char *vmm_process_spec_get_role (VmmProcessSpec *self);
const char *vmm_process_spec_get_directory (VmmProcessSpec *self);
const char *vmm_process_spec_get_log (VmmProcessSpec *self);
VmmProcessFlags vmm_process_spec_get_flags (VmmProcessSpec *self);
const char *const *vmm_process_spec_get_environment (VmmProcessSpec *self);
const char *const *vmm_process_spec_get_writable_paths (VmmProcessSpec *self);
const char *const *vmm_process_spec_get_devices (VmmProcessSpec *self);
const char *const *vmm_process_spec_get_after (VmmProcessSpec *self);
guint vmm_process_spec_get_n_fds (VmmProcessSpec *self);
int vmm_process_spec_get_fd (VmmProcessSpec *self, guint index, const char **name);
guint64 vmm_process_spec_get_memory_max (VmmProcessSpec *self);
guint vmm_process_spec_get_cpu_quota (VmmProcessSpec *self);

G_DEFINE_AUTOPTR_CLEANUP_FUNC (VmmProcessSpec, vmm_process_spec_unref)

/**
 * VmmProcessHandle:
 *
 * What the record keeps of a process so that a later daemon finds the same one again: the
 * launcher's own name for it (a unit, a container id), the process id, its start time in
 * clock ticks after boot (field 22 of /proc/PID/stat) and the boot it belongs to. A process
 * id alone never identifies a process.
 */
typedef struct _VmmProcessHandle VmmProcessHandle;
#define VMM_TYPE_PROCESS_HANDLE (vmm_process_handle_get_type ())
GType vmm_process_handle_get_type (void) G_GNUC_CONST;

VmmProcessHandle *vmm_process_handle_new (const char *unit, gint64 pid, guint64 start_time,
                                          const char *invocation);
VmmProcessHandle *vmm_process_handle_copy (const VmmProcessHandle *self);
void vmm_process_handle_free (VmmProcessHandle *self);
const char *vmm_process_handle_get_unit (const VmmProcessHandle *self);
const char *vmm_process_handle_get_invocation (const VmmProcessHandle *self);
gint64 vmm_process_handle_get_pid (const VmmProcessHandle *self);
guint64 vmm_process_handle_get_start_time (const VmmProcessHandle *self);

G_DEFINE_AUTOPTR_CLEANUP_FUNC (VmmProcessHandle, vmm_process_handle_free)

/**
 * VmmExitStatus:
 * @code: the exit code; -1 for a signal or when unknown
 * @signal: the signal that ended it; 0 for none
 * @core_dumped: whether it dumped core
 * @known: whether the status could be learnt at all
 *
 * How a process ended.
 */
typedef struct
{
  int code;
  int signal;
  gboolean core_dumped;
  gboolean known;
} VmmExitStatus;

#define VMM_TYPE_EXIT_STATUS (vmm_exit_status_get_type ())
GType vmm_exit_status_get_type (void) G_GNUC_CONST;
char *vmm_exit_status_to_text (const VmmExitStatus *status, const char *why_unknown);
gboolean vmm_exit_status_is_success (const VmmExitStatus *status);
void vmm_exit_status_from_wait (int wait_status, VmmExitStatus *status);

/**
 * VmmProcessUsage:
 * @cpu_usec: processor time used, user and system, in microseconds
 * @memory_bytes: resident memory, in bytes
 *
 * What a process used so far.
 */
typedef struct
{
  guint64 cpu_usec;
  guint64 memory_bytes;
} VmmProcessUsage;

/**
 * VmmProcess:
 *
 * A process that a launcher started or found again.
 *
 * ::exited (const VmmExitStatus *status, const char *text) is emitted exactly once, on the main
 * context.
 */
#define VMM_TYPE_PROCESS (vmm_process_get_type ())
G_DECLARE_DERIVABLE_TYPE (VmmProcess, vmm_process, VMM, PROCESS, GObject)

struct _VmmProcessClass
{
  GObjectClass parent_class;

  gboolean (*send_signal) (VmmProcess *self, int signum, GError **error);
  void (*stop_async) (VmmProcess *self, guint grace_ms, GCancellable *cancellable,
                      GAsyncReadyCallback callback, gpointer user_data);
  gboolean (*stop_finish) (VmmProcess *self, GAsyncResult *result, GError **error);
  gboolean (*get_usage) (VmmProcess *self, VmmProcessUsage *usage);
  void (*detach) (VmmProcess *self);
};

const VmmProcessHandle *vmm_process_get_handle (VmmProcess *self);
void vmm_process_set_handle (VmmProcess *self, const VmmProcessHandle *handle);
gboolean vmm_process_has_exited (VmmProcess *self);
const VmmExitStatus *vmm_process_get_exit_status (VmmProcess *self);
const char *vmm_process_get_exit_text (VmmProcess *self);
gboolean vmm_process_send_signal (VmmProcess *self, int signum, GError **error);
void vmm_process_stop_async (VmmProcess *self, guint grace_ms, GCancellable *cancellable,
                             GAsyncReadyCallback callback, gpointer user_data);
gboolean vmm_process_stop_finish (VmmProcess *self, GAsyncResult *result, GError **error);
gboolean vmm_process_get_usage (VmmProcess *self, VmmProcessUsage *usage);
void vmm_process_detach (VmmProcess *self);

/* For launchers: */
void vmm_process_exited (VmmProcess *self, const VmmExitStatus *status, const char *why_unknown);
gboolean vmm_process_read_usage (gint64 pid, VmmProcessUsage *usage);
gboolean vmm_process_read_start_time (gint64 pid, guint64 *start_time);

G_END_DECLS

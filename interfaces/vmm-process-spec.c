/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What to run: the description that the daemon gives to a launcher.
 *
 * Everything is copied; descriptors are taken over and closed with the last reference. The daemon
 * fills it with the setters and no longer changes it once it was given to a launcher.
 */

#include "vmm-process.h"

#include <string.h>
#include <unistd.h>

typedef struct
{
  char *name;
  int fd;
} NamedFd;

struct _VmmProcessSpec
{
  char *id;
  GStrv argv;
  char *owner;
  char *role;
  char *directory;
  char *log;
  VmmProcessFlags flags;
  GPtrArray *environment; /* these four end with NULL */
  GPtrArray *writable_paths;
  GPtrArray *devices;
  GPtrArray *after;
  GArray *fds; /* NamedFd */
  guint64 memory_max;
  guint cpu_quota;
};

G_DEFINE_BOXED_TYPE (VmmProcessSpec, vmm_process_spec, vmm_process_spec_ref, vmm_process_spec_unref)

static GPtrArray *
new_list (void)
{
  GPtrArray *list = g_ptr_array_new_with_free_func (g_free);

  g_ptr_array_add (list, NULL);
  return list;
}

static void
add_to_list (GPtrArray *list, char *text)
{
  g_ptr_array_insert (list, (int) list->len - 1, text);
}

static void
named_fd_clear (gpointer data)
{
  NamedFd *named = data;

  g_free (named->name);
  close (named->fd);
}

/**
 * vmm_process_spec_new:
 * @id: the process's id, unique on this host and daemon, such as `1a2b3c4d-qemu`
 * @argv: (array zero-terminated=1): the program, looked up on `PATH` when it has no slash, and its
 *   arguments
 *
 * Makes a description of a process to run.
 *
 * Returns: (transfer full): the description
 */
VmmProcessSpec *
vmm_process_spec_new (const char *id, const char *const *argv)
{
  VmmProcessSpec *self;

  g_return_val_if_fail (id != NULL && id[0] != '\0', NULL);
  g_return_val_if_fail (argv != NULL && argv[0] != NULL, NULL);

  self = g_atomic_rc_box_new0 (VmmProcessSpec);
  self->id = g_strdup (id);
  self->argv = g_strdupv ((char **) argv);
  self->environment = new_list ();
  self->writable_paths = new_list ();
  self->devices = new_list ();
  self->after = new_list ();
  self->fds = g_array_new (FALSE, TRUE, sizeof (NamedFd));
  g_array_set_clear_func (self->fds, named_fd_clear);
  return self;
}

/**
 * vmm_process_spec_ref:
 * @self: a description
 *
 * Takes a reference.
 *
 * Returns: (transfer full): @self
 */
VmmProcessSpec *
vmm_process_spec_ref (VmmProcessSpec *self)
{
  g_return_val_if_fail (self != NULL, NULL);

  return g_atomic_rc_box_acquire (self);
}

static void
spec_clear (gpointer data)
{
  VmmProcessSpec *self = data;

  g_free (self->id);
  g_strfreev (self->argv);
  g_free (self->owner);
  g_free (self->role);
  g_free (self->directory);
  g_free (self->log);
  g_ptr_array_unref (self->environment);
  g_ptr_array_unref (self->writable_paths);
  g_ptr_array_unref (self->devices);
  g_ptr_array_unref (self->after);
  g_array_unref (self->fds);
}

/**
 * vmm_process_spec_unref:
 * @self: (transfer full): a description
 *
 * Releases a reference.
 */
void
vmm_process_spec_unref (VmmProcessSpec *self)
{
  g_return_if_fail (self != NULL);

  g_atomic_rc_box_release_full (self, spec_clear);
}

/**
 * vmm_process_spec_set_owner:
 * @self: a description
 * @owner: (nullable): what the process works for: a VM's id or a network's name
 * @role: (nullable): what it does for it, such as `qemu` or `tpm`
 *
 * Says whose process it is, for names and logs.
 */
void
vmm_process_spec_set_owner (VmmProcessSpec *self, const char *owner, const char *role)
{
  g_return_if_fail (self != NULL);

  g_free (self->owner);
  g_free (self->role);
  self->owner = g_strdup (owner);
  self->role = g_strdup (role);
}

/**
 * vmm_process_spec_set_directory:
 * @self: a description
 * @path: (nullable): the working directory; %NULL for `/`
 *
 * Sets the working directory.
 */
void
vmm_process_spec_set_directory (VmmProcessSpec *self, const char *path)
{
  g_return_if_fail (self != NULL);

  g_free (self->directory);
  self->directory = g_strdup (path);
}

/**
 * vmm_process_spec_set_log:
 * @self: a description
 * @path: (nullable): the file that both outputs are appended to, created 0600; %NULL discards them
 *
 * Sets the log file.
 */
void
vmm_process_spec_set_log (VmmProcessSpec *self, const char *path)
{
  g_return_if_fail (self != NULL);

  g_free (self->log);
  self->log = g_strdup (path);
}

/**
 * vmm_process_spec_set_flags:
 * @self: a description
 * @flags: how the process is to be run
 *
 * Sets the flags, all of them.
 */
void
vmm_process_spec_set_flags (VmmProcessSpec *self, VmmProcessFlags flags)
{
  g_return_if_fail (self != NULL);

  self->flags = flags;
}

/**
 * vmm_process_spec_add_environment:
 * @self: a description
 * @name: a variable, without `=`
 * @value: its value
 *
 * Adds a variable to those that the process inherits, or replaces it. Never a secret.
 */
void
vmm_process_spec_add_environment (VmmProcessSpec *self, const char *name, const char *value)
{
  g_return_if_fail (self != NULL);
  g_return_if_fail (name != NULL && name[0] != '\0' && strchr (name, '=') == NULL);
  g_return_if_fail (value != NULL);

  add_to_list (self->environment, g_strdup_printf ("%s=%s", name, value));
}

/**
 * vmm_process_spec_add_writable_path:
 * @self: a description
 * @path: an absolute path
 *
 * Allows the process to write below a path, where the launcher confines it.
 */
void
vmm_process_spec_add_writable_path (VmmProcessSpec *self, const char *path)
{
  g_return_if_fail (self != NULL);
  g_return_if_fail (path != NULL && g_path_is_absolute (path));

  add_to_list (self->writable_paths, g_strdup (path));
}

/**
 * vmm_process_spec_add_device:
 * @self: a description
 * @path: a device node, such as `/dev/kvm`
 *
 * Allows the process to use a device, where the launcher confines it.
 */
void
vmm_process_spec_add_device (VmmProcessSpec *self, const char *path)
{
  g_return_if_fail (self != NULL);
  g_return_if_fail (path != NULL && g_path_is_absolute (path));

  add_to_list (self->devices, g_strdup (path));
}

/**
 * vmm_process_spec_add_after:
 * @self: a description
 * @id: the id of another process
 *
 * Says that the process needs another one: where the launcher orders processes, it is stopped
 * before that one.
 */
void
vmm_process_spec_add_after (VmmProcessSpec *self, const char *id)
{
  g_return_if_fail (self != NULL);
  g_return_if_fail (id != NULL && id[0] != '\0');

  add_to_list (self->after, g_strdup (id));
}

/**
 * vmm_process_spec_take_fd:
 * @self: a description
 * @name: the descriptor's name, for launchers that pass names
 * @fd: an open descriptor, which the description takes over and closes in the end
 *
 * Adds a descriptor that the process inherits: the first one added is number 3 in it, the next
 * number 4 and so on.
 */
void
vmm_process_spec_take_fd (VmmProcessSpec *self, const char *name, int fd)
{
  NamedFd named = { NULL, fd };

  g_return_if_fail (self != NULL);
  g_return_if_fail (name != NULL);
  g_return_if_fail (fd >= 0);

  named.name = g_strdup (name);
  g_array_append_val (self->fds, named);
}

/**
 * vmm_process_spec_set_memory_max:
 * @self: a description
 * @bytes: most memory it may use, in bytes; 0 for no limit
 *
 * Limits the memory, where the launcher can.
 */
void
vmm_process_spec_set_memory_max (VmmProcessSpec *self, guint64 bytes)
{
  g_return_if_fail (self != NULL);

  self->memory_max = bytes;
}

/**
 * vmm_process_spec_set_cpu_quota:
 * @self: a description
 * @percent: most processor time it may use, in percent of one processor; 0 for no limit
 *
 * Limits the processor time, where the launcher can.
 */
void
vmm_process_spec_set_cpu_quota (VmmProcessSpec *self, guint percent)
{
  g_return_if_fail (self != NULL);

  self->cpu_quota = percent;
}

/**
 * vmm_process_spec_get_id:
 * @self: a description
 *
 * The process's id.
 *
 * Returns: (transfer none): the id
 */
const char *
vmm_process_spec_get_id (VmmProcessSpec *self)
{
  g_return_val_if_fail (self != NULL, NULL);

  return self->id;
}

/**
 * vmm_process_spec_get_argv:
 * @self: a description
 *
 * The program and its arguments.
 *
 * Returns: (transfer none) (array zero-terminated=1): at least one
 */
const char *const *
vmm_process_spec_get_argv (VmmProcessSpec *self)
{
  g_return_val_if_fail (self != NULL, NULL);

  return (const char *const *) self->argv;
}

/**
 * vmm_process_spec_get_owner:
 * @self: a description
 *
 * What the process works for.
 *
 * Returns: (transfer none) (nullable): a VM's id or a network's name
 */
const char *
vmm_process_spec_get_owner (VmmProcessSpec *self)
{
  g_return_val_if_fail (self != NULL, NULL);

  return self->owner;
}

/**
 * vmm_process_spec_get_role:
 * @self: a description
 *
 * What the process does for its owner.
 *
 * Returns: (transfer none) (nullable): the role
 */
const char *
vmm_process_spec_get_role (VmmProcessSpec *self)
{
  g_return_val_if_fail (self != NULL, NULL);

  return self->role;
}

/**
 * vmm_process_spec_get_directory:
 * @self: a description
 *
 * The working directory.
 *
 * Returns: (transfer none) (nullable): a path, or %NULL for `/`
 */
const char *
vmm_process_spec_get_directory (VmmProcessSpec *self)
{
  g_return_val_if_fail (self != NULL, NULL);

  return self->directory;
}

/**
 * vmm_process_spec_get_log:
 * @self: a description
 *
 * The log file.
 *
 * Returns: (transfer none) (nullable): a path, or %NULL to discard all output
 */
const char *
vmm_process_spec_get_log (VmmProcessSpec *self)
{
  g_return_val_if_fail (self != NULL, NULL);

  return self->log;
}

/**
 * vmm_process_spec_get_flags:
 * @self: a description
 *
 * How the process is to be run.
 *
 * Returns: the flags
 */
VmmProcessFlags
vmm_process_spec_get_flags (VmmProcessSpec *self)
{
  g_return_val_if_fail (self != NULL, VMM_PROCESS_FLAGS_NONE);

  return self->flags;
}

/**
 * vmm_process_spec_get_environment:
 * @self: a description
 *
 * Variables to add to the inherited ones; a later one replaces an earlier one of the same name.
 *
 * Returns: (transfer none) (array zero-terminated=1): each as `NAME=value`
 */
const char *const *
vmm_process_spec_get_environment (VmmProcessSpec *self)
{
  g_return_val_if_fail (self != NULL, NULL);

  return (const char *const *) self->environment->pdata;
}

/**
 * vmm_process_spec_get_writable_paths:
 * @self: a description
 *
 * Where the process may write.
 *
 * Returns: (transfer none) (array zero-terminated=1): absolute paths
 */
const char *const *
vmm_process_spec_get_writable_paths (VmmProcessSpec *self)
{
  g_return_val_if_fail (self != NULL, NULL);

  return (const char *const *) self->writable_paths->pdata;
}

/**
 * vmm_process_spec_get_devices:
 * @self: a description
 *
 * Which devices the process may use.
 *
 * Returns: (transfer none) (array zero-terminated=1): device nodes
 */
const char *const *
vmm_process_spec_get_devices (VmmProcessSpec *self)
{
  g_return_val_if_fail (self != NULL, NULL);

  return (const char *const *) self->devices->pdata;
}

/**
 * vmm_process_spec_get_after:
 * @self: a description
 *
 * Which processes it needs.
 *
 * Returns: (transfer none) (array zero-terminated=1): ids
 */
const char *const *
vmm_process_spec_get_after (VmmProcessSpec *self)
{
  g_return_val_if_fail (self != NULL, NULL);

  return (const char *const *) self->after->pdata;
}

/**
 * vmm_process_spec_get_n_fds:
 * @self: a description
 *
 * How many descriptors the process inherits.
 *
 * Returns: the number
 */
guint
vmm_process_spec_get_n_fds (VmmProcessSpec *self)
{
  g_return_val_if_fail (self != NULL, 0);

  return self->fds->len;
}

/**
 * vmm_process_spec_get_fd:
 * @self: a description
 * @index: which one, from 0
 * @name: (out) (optional) (transfer none): its name
 *
 * One of the descriptors that the process inherits. It stays the description's.
 *
 * Returns: the descriptor
 */
int
vmm_process_spec_get_fd (VmmProcessSpec *self, guint index, const char **name)
{
  const NamedFd *named;

  g_return_val_if_fail (self != NULL, -1);
  g_return_val_if_fail (index < self->fds->len, -1);

  named = &g_array_index (self->fds, NamedFd, index);
  if (name != NULL)
    *name = named->name;
  return named->fd;
}

/**
 * vmm_process_spec_get_memory_max:
 * @self: a description
 *
 * The most memory the process may use.
 *
 * Returns: bytes, or 0 for no limit
 */
guint64
vmm_process_spec_get_memory_max (VmmProcessSpec *self)
{
  g_return_val_if_fail (self != NULL, 0);

  return self->memory_max;
}

/**
 * vmm_process_spec_get_cpu_quota:
 * @self: a description
 *
 * The most processor time the process may use.
 *
 * Returns: percent of one processor, or 0 for no limit
 */
guint
vmm_process_spec_get_cpu_quota (VmmProcessSpec *self)
{
  g_return_val_if_fail (self != NULL, 0);

  return self->cpu_quota;
}

/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Starts the program that is a VM's vsock device.
 *
 * It serves one client, QEMU, so that nobody else may connect to find out whether it is there. Its
 * sockets stay behind when it ends; a guest's next run must not find those of the last one.
 */

#include "config.h"

#include "vmm-vsock.h"

#include <errno.h>
#include <string.h>

#include <glib/gstdio.h>

#include "interfaces/vmm-error.h"
#include "vmm-child-start.h"
#include "vmm-file.h"

#define PROGRAM "vhost-device-vsock"
#define LOG_NAME "vsock.log"
#define LIMIT_MS 5000
/* The sockets of ports: an underscore and the number. */
#define PORT_SUFFIX_MAX 11

static gboolean
remove_one (const char *directory, const char *name, GError **error)
{
  g_autofree char *path = g_build_filename (directory, name, NULL);

  if (g_unlink (path) == 0 || errno == ENOENT)
    return TRUE;
  vmm_set_error (error, VMM_ERROR_INTERNAL, "remove %s: %s", path, g_strerror (errno));
  return FALSE;
}

/* What an earlier run left at the host's end, where the program would refuse to listen. */
static gboolean
remove_stale (const char *directory, GError **error)
{
  g_autoptr (GDir) dir = NULL;
  g_autoptr (GError) problem = NULL;
  const char *name;

  dir = g_dir_open (directory, 0, &problem);
  if (dir == NULL)
    {
      vmm_set_error (error, VMM_ERROR_INTERNAL, "%s", problem->message);
      return FALSE;
    }
  while ((name = g_dir_read_name (dir)) != NULL)
    if (g_str_has_prefix (name, VMM_VSOCK_HOST_SOCKET) && !remove_one (directory, name, error))
      return FALSE;
  return TRUE;
}

static VmmProcessSpec *
build_spec (const char *vm_id, const char *directory, const char *host_path,
            const char *socket_path, const char *log_path, guint32 cid)
{
  g_autofree char *id = vmm_process_id_for_vm (vm_id, "vsock");
  g_autofree char *number = g_strdup_printf ("%u", cid);
  const char *const argv[] = { PROGRAM,    "--guest-cid", number,      "--uds-path",
                               host_path, "--socket",    socket_path, NULL };
  VmmProcessSpec *spec = vmm_process_spec_new (id, argv);

  vmm_process_spec_set_owner (spec, vm_id, "vsock");
  vmm_process_spec_set_log (spec, log_path);
  vmm_process_spec_add_writable_path (spec, directory);
  return spec;
}

void
vmm_vsock_start_async (VmmLauncher *launcher, const char *vm_id, const char *directory,
                       guint32 cid, GCancellable *cancellable, GAsyncReadyCallback callback,
                       gpointer user_data)
{
  g_autofree char *host_path = g_build_filename (directory, VMM_VSOCK_HOST_SOCKET, NULL);
  g_autofree char *socket_path = g_build_filename (directory, VMM_VSOCK_DEVICE_SOCKET, NULL);
  g_autofree char *log_path = g_build_filename (directory, LOG_NAME, NULL);
  g_autoptr (VmmProcessSpec) spec = NULL;
  VmmChildStart config = { 0 };

  g_return_if_fail (VMM_IS_LAUNCHER (launcher) && vm_id != NULL && directory != NULL);

  if (strlen (host_path) + PORT_SUFFIX_MAX > VMM_SOCKET_PATH_MAX)
    {
      g_task_report_error (NULL, callback, user_data, vmm_child_start_async,
                           vmm_error_new (VMM_ERROR_INVALID_REQUEST,
                                          "vsock socket path exceeds %d bytes; use a shorter state "
                                          "dir",
                                          VMM_SOCKET_PATH_MAX));
      return;
    }
  spec = build_spec (vm_id, directory, host_path, socket_path, log_path, cid);
  config.spec = spec;
  config.program = PROGRAM;
  config.socket_name = "vsock";
  config.directory = directory;
  config.prepare = remove_stale;
  config.socket.socket_path = socket_path;
  config.socket.log_path = log_path;
  config.socket.exited_text = PROGRAM " exited before its socket was there";
  config.socket.limit_format = PROGRAM " did not make its socket %s within 5s (%s): %s";
  config.socket.limit_ms = LIMIT_MS;
  vmm_child_start_async (launcher, &config, cancellable, callback, user_data);
}

VmmProcess *
vmm_vsock_start_finish (GAsyncResult *result, GError **error)
{
  return vmm_child_start_finish (result, error);
}

/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The firmware image: its digest and the package that it came with.
 *
 * The values that a policy records belong to one build, so that the report says exactly which one
 * VMs boot with. A worker computes the digest; then dpkg, where there is one, is asked for the
 * package and for its version. All of it once for each file.
 */

#include "config.h"

#include "vmm-host-firmware.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "interfaces/vmm-error.h"
#include "vmm-host-probe.h"
#include "vmm-host-tool.h"

#define READ_SIZE (128 * 1024)
#define MAX_FIRMWARE_BYTES (G_GUINT64_CONSTANT (256) * 1024 * 1024)

typedef struct
{
  VmmHostFirmware *firmware;
  char *path;
  guint limit_ms;
} Update;

static void
update_free (Update *update)
{
  g_free (update->path);
  g_free (update);
}

void
vmm_host_firmware_clear (VmmHostFirmware *self)
{
  vmm_host_file_clear (&self->file);
  vmm_host_file_clear (&self->dpkg);
  g_clear_pointer (&self->sha256, g_free);
  g_clear_pointer (&self->package, g_free);
  g_clear_pointer (&self->version, g_free);
  g_clear_pointer (&self->error, g_free);
  self->ask_again_us = 0;
}

static char *
digest_file (int fd)
{
  g_autoptr (GChecksum) checksum = g_checksum_new (G_CHECKSUM_SHA256);
  g_autofree guint8 *buffer = g_malloc (READ_SIZE);
  guint64 total = 0;
  ssize_t n;

  while ((n = read (fd, buffer, READ_SIZE)) != 0)
    {
      if (n < 0 && errno == EINTR)
        continue;
      if (n < 0)
        return NULL;
      total += (guint64) n;
      if (total > MAX_FIRMWARE_BYTES)
        return NULL;
      g_checksum_update (checksum, buffer, n);
    }
  return g_strdup (g_checksum_get_string (checksum));
}

/* NULL when it cannot be read. */
static void
digest_in_thread (GTask *task, gpointer source, gpointer task_data, GCancellable *cancellable)
{
  int fd = open (task_data, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
  char *digest = NULL;

  if (fd >= 0)
    {
      digest = digest_file (fd);
      close (fd);
    }
  g_task_return_pointer (task, digest, g_free);
}

/* Takes the task. */
static void
return_without_package (GTask *task, const GError *error)
{
  Update *update = g_task_get_task_data (task);

  update->firmware->error = g_strdup (error->message);
  if (g_error_matches (error, G_IO_ERROR, G_IO_ERROR_TIMED_OUT))
    update->firmware->ask_again_us = g_get_monotonic_time () + VMM_HOST_ASK_AGAIN_US;
  g_task_return_boolean (task, TRUE);
  g_object_unref (task);
}

static void
version_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  GTask *task = user_data;
  Update *update = g_task_get_task_data (task);
  g_autoptr (GError) error = NULL;
  g_autofree char *output = vmm_host_probe_finish (result, &error);

  if (output == NULL)
    {
      g_clear_pointer (&update->firmware->package, g_free);
      return_without_package (task, error);
      return;
    }
  update->firmware->version = g_strdup (g_strstrip (output));
  g_task_return_boolean (task, TRUE);
  g_object_unref (task);
}

/* `a, b:amd64: /path`: the first package of the first line that is not about a diversion. */
static char *
parse_owner (const char *output)
{
  g_auto (GStrv) lines = g_strsplit (output, "\n", -1);

  for (guint i = 0; lines[i] != NULL; i++)
    {
      char *end = strstr (lines[i], ": ");

      if (end == NULL || g_str_has_prefix (lines[i], "diversion by "))
        continue;
      *end = '\0';
      end = strchr (lines[i], ',');
      if (end != NULL)
        *end = '\0';
      return g_strdup (g_strstrip (lines[i]));
    }
  return NULL;
}

static void
owner_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  GTask *task = user_data;
  Update *update = g_task_get_task_data (task);
  VmmHostFirmware *self = update->firmware;
  g_autoptr (GError) error = NULL;
  g_autofree char *output = vmm_host_probe_finish (result, &error);
  const char *argv[] = { self->dpkg.path, "--show", "--showformat=${Version}", NULL, NULL };

  if (output != NULL)
    self->package = parse_owner (output);
  if (output != NULL && self->package == NULL)
    error = vmm_error_new (VMM_ERROR_INTERNAL, "%s named no package",
                           vmm_host_program_get_name (VMM_HOST_PROGRAM_DPKG));
  if (error != NULL)
    {
      return_without_package (task, error);
      return;
    }
  argv[3] = self->package;
  vmm_host_probe_async (argv, update->limit_ms, NULL, version_cb, task);
}

static void
digest_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  GTask *task = user_data;
  Update *update = g_task_get_task_data (task);
  VmmHostFirmware *self = update->firmware;
  const char *argv[] = { self->dpkg.path, "--search", update->path, NULL };
  g_autoptr (GError) error = NULL;

  self->sha256 = g_task_propagate_pointer (G_TASK (result), NULL);
  if (self->sha256 != NULL && self->dpkg.path != NULL)
    {
      vmm_host_probe_async (argv, update->limit_ms, NULL, owner_cb, task);
      return;
    }

  error = vmm_error_new (VMM_ERROR_INTERNAL, "%s: %s",
                         vmm_host_program_get_name (VMM_HOST_PROGRAM_DPKG), VMM_HOST_NOT_ON_PATH);
  return_without_package (task, error);
}

static gboolean
is_known (VmmHostFirmware *self, const VmmHostFile *file, const VmmHostFile *dpkg)
{
  return self->file.path != NULL && vmm_host_file_equal (&self->file, file)
         && vmm_host_file_equal (&self->dpkg, dpkg)
         && (self->ask_again_us == 0 || g_get_monotonic_time () < self->ask_again_us);
}

void
vmm_host_firmware_update_async (VmmHostFirmware *self, const VmmHostFile *file,
                                const VmmHostFile *dpkg, guint limit_ms,
                                GAsyncReadyCallback callback, gpointer user_data)
{
  g_autoptr (GTask) task = g_task_new (NULL, NULL, callback, user_data);
  g_autoptr (GTask) digest = NULL;
  Update *update;

  g_task_set_source_tag (task, vmm_host_firmware_update_async);
  if (is_known (self, file, dpkg))
    {
      g_task_return_boolean (task, TRUE);
      return;
    }
  vmm_host_firmware_clear (self);
  if (file->path == NULL)
    {
      g_task_return_boolean (task, TRUE);
      return;
    }

  vmm_host_file_copy (file, &self->file);
  vmm_host_file_copy (dpkg, &self->dpkg);
  update = g_new0 (Update, 1);
  update->firmware = self;
  update->path = g_strdup (file->path);
  update->limit_ms = limit_ms;
  g_task_set_task_data (task, update, (GDestroyNotify) update_free);

  digest = g_task_new (NULL, NULL, digest_cb, g_object_ref (task));
  g_task_set_source_tag (digest, digest_in_thread);
  g_task_set_task_data (digest, g_strdup (file->path), g_free);
  g_task_run_in_thread (digest, digest_in_thread);
}

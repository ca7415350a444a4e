/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What can be learnt of the host by looking: kernel, memory, devices, which files there are.
 *
 * All of it is quick, but all of it may wait for a disk, so that a worker thread reads it into a
 * value of its own. Programs are only looked for here; running them is for vmm-host-tool.c.
 */

#include "config.h"

#include "vmm-host-facts.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "interfaces/vmm-helper.h"

#define KERNEL_FILE "/proc/sys/kernel/osrelease"
#define MEMORY_FILE "/proc/meminfo"
#define MAX_PROC_BYTES 16384
#define MAX_PROVIDERS 256

static const char *const program_names[VMM_HOST_N_PROGRAMS] = {
  [VMM_HOST_PROGRAM_QEMU] = "qemu-system-x86_64",  [VMM_HOST_PROGRAM_SWTPM] = "swtpm",
  [VMM_HOST_PROGRAM_SWTPM_SETUP] = "swtpm_setup",  [VMM_HOST_PROGRAM_SYSTEMD] = "systemctl",
  [VMM_HOST_PROGRAM_DPKG] = "dpkg-query",          [VMM_HOST_PROGRAM_VSOCK] = "vhost-device-vsock",
  [VMM_HOST_PROGRAM_MONITOR] = "vmm-monitor",
};

const char *
vmm_host_program_get_name (VmmHostProgram program)
{
  return program_names[program];
}

void
vmm_host_file_clear (VmmHostFile *self)
{
  g_clear_pointer (&self->path, g_free);
}

void
vmm_host_file_copy (const VmmHostFile *self, VmmHostFile *copy)
{
  vmm_host_file_clear (copy);
  *copy = *self;
  copy->path = g_strdup (self->path);
}

gboolean
vmm_host_file_equal (const VmmHostFile *a, const VmmHostFile *b)
{
  return g_strcmp0 (a->path, b->path) == 0 && a->device == b->device && a->inode == b->inode
         && a->size == b->size && a->modified_ns == b->modified_ns;
}

static gint64
to_ns (const struct timespec *time)
{
  return (gint64) time->tv_sec * G_GINT64_CONSTANT (1000000000) + time->tv_nsec;
}

/* Leaves *file without a path when it is no regular file that allows the access asked for. */
static void
identify (const char *path, int mode, VmmHostFile *file)
{
  struct stat status;

  if (path == NULL || stat (path, &status) != 0 || !S_ISREG (status.st_mode)
      || access (path, mode) != 0)
    return;

  file->path = g_strdup (path);
  file->device = status.st_dev;
  file->inode = status.st_ino;
  file->size = (guint64) status.st_size;
  file->modified_ns = to_ns (&status.st_mtim);
}

/* The text of errno as a part of a sentence. */
static char *
errno_text (int number)
{
  char *text = g_strdup (g_strerror (number));

  if (g_ascii_isupper (text[0]) && g_ascii_islower (text[1]))
    text[0] = g_ascii_tolower (text[0]);
  return text;
}

void
vmm_host_device_check (const char *path, VmmHostDevice *device)
{
  int fd = open (path, O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  struct stat status;

  *device = (VmmHostDevice){ .path = g_strdup (path), .accessible = fd >= 0 };
  if (fd < 0)
    {
      device->error = errno_text (errno);
      return;
    }
  if (fstat (fd, &status) == 0)
    {
      device->inode = status.st_ino;
      device->changed_ns = to_ns (&status.st_ctim);
    }
  close (fd);
}

void
vmm_host_device_copy (const VmmHostDevice *device, VmmHostDevice *copy)
{
  vmm_host_device_clear (copy);
  *copy = *device;
  copy->path = g_strdup (device->path);
  copy->error = g_strdup (device->error);
}

gboolean
vmm_host_device_equal (const VmmHostDevice *a, const VmmHostDevice *b)
{
  return g_strcmp0 (a->path, b->path) == 0 && a->accessible == b->accessible
         && g_strcmp0 (a->error, b->error) == 0 && a->inode == b->inode
         && a->changed_ns == b->changed_ns;
}

void
vmm_host_device_clear (VmmHostDevice *device)
{
  g_clear_pointer (&device->path, g_free);
  g_clear_pointer (&device->error, g_free);
}

/* A file of /proc, which says nothing true about its size; "" when it cannot be read. */
static char *
read_proc (const char *path)
{
  int fd = open (path, O_RDONLY | O_CLOEXEC);
  char *text = g_malloc0 (MAX_PROC_BYTES + 1);
  ssize_t n = fd >= 0 ? read (fd, text, MAX_PROC_BYTES) : 0;

  if (n < 0)
    text[0] = '\0';
  if (fd >= 0)
    close (fd);
  return g_strstrip (text);
}

static guint64
read_memory (void)
{
  g_autofree char *text = read_proc (MEMORY_FILE);
  const char *line = strstr (text, "MemTotal:");

  return line != NULL ? g_ascii_strtoull (line + strlen ("MemTotal:"), NULL, 10) * 1024 : 0;
}

static char *
read_hostname (void)
{
  char name[HOST_NAME_MAX + 1] = "";

  if (gethostname (name, sizeof name - 1) != 0)
    return NULL;
  return g_strdup (name);
}

static int
compare_strings (gconstpointer a, gconstpointer b)
{
  return strcmp (*(const char *const *) a, *(const char *const *) b);
}

/* The sockets of storage providers: everything in their folder that is no folder. */
static GStrv
read_storage_providers (const char *folder)
{
  GPtrArray *names = g_ptr_array_new ();
  g_autoptr (GDir) dir = g_dir_open (folder, 0, NULL);
  const char *name;

  while (dir != NULL && names->len < MAX_PROVIDERS && (name = g_dir_read_name (dir)) != NULL)
    {
      g_autofree char *path = g_build_filename (folder, name, NULL);

      if (!g_file_test (path, G_FILE_TEST_IS_DIR))
        g_ptr_array_add (names, g_filename_display_name (name));
    }
  g_ptr_array_sort (names, compare_strings);
  g_ptr_array_add (names, NULL);
  return (GStrv) g_ptr_array_free (names, FALSE);
}

/* The monitor is a part of this program. */
static char *
find_program (VmmHostProgram program)
{
  if (program == VMM_HOST_PROGRAM_MONITOR)
    return vmm_helper_find (program_names[program]);
  return g_find_program_in_path (program_names[program]);
}

VmmHostFacts *
vmm_host_facts_read (const VmmHostPlaces *places)
{
  VmmHostFacts *self = g_new0 (VmmHostFacts, 1);

  self->hostname = read_hostname ();
  self->kernel = read_proc (KERNEL_FILE);
  self->cpus = g_get_num_processors ();
  self->memory_bytes = read_memory ();
  vmm_host_device_check (places->kvm_path, &self->kvm);
  vmm_host_device_check (places->vsock_path, &self->vsock);
  identify (places->firmware_path, R_OK, &self->firmware);
  for (guint i = 0; i < VMM_HOST_N_PROGRAMS; i++)
    {
      g_autofree char *path = find_program ((VmmHostProgram) i);

      identify (path, X_OK, &self->programs[i]);
    }
  self->storage_providers = read_storage_providers (places->storage_providers_path);
  return self;
}

void
vmm_host_facts_free (VmmHostFacts *self)
{
  g_free (self->hostname);
  g_free (self->kernel);
  vmm_host_device_clear (&self->kvm);
  vmm_host_device_clear (&self->vsock);
  vmm_host_file_clear (&self->firmware);
  for (guint i = 0; i < VMM_HOST_N_PROGRAMS; i++)
    vmm_host_file_clear (&self->programs[i]);
  g_strfreev (self->storage_providers);
  g_free (self);
}

VmmHostPlaces *
vmm_host_places_copy (const VmmHostPlaces *self)
{
  VmmHostPlaces *copy = g_new0 (VmmHostPlaces, 1);

  copy->kvm_path = g_strdup (self->kvm_path);
  copy->vsock_path = g_strdup (self->vsock_path);
  copy->firmware_path = g_strdup (self->firmware_path);
  copy->storage_providers_path = g_strdup (self->storage_providers_path);
  return copy;
}

void
vmm_host_places_free (VmmHostPlaces *self)
{
  g_free (self->kvm_path);
  g_free (self->vsock_path);
  g_free (self->firmware_path);
  g_free (self->storage_providers_path);
  g_free (self);
}

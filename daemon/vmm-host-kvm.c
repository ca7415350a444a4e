/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Whether KVM works here.
 *
 * That /dev/kvm can be opened proves little: within a virtual machine QEMU may fail to set the
 * processor up, or start well and then stop at the first instruction that the host does not run. So
 * QEMU is started as VMs are, with a guest of a few instructions: it enters protected mode, resets
 * the floating point unit, asks for the processor's name and writes to the port that makes QEMU exit
 * with a status of our choice. Nothing else makes QEMU exit with that one.
 */

#include "config.h"

#include "vmm-host-kvm.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "interfaces/vmm-error.h"
#include "vmm-host-probe.h"
#include "vmm-host-tool.h"

#define FIRMWARE_SIZE (64 * 1024)
#define RESET_VECTOR 0xfff0
#define SUCCESS 85 /* of the port: twice what is written, and one */
#define STRINGIFY(x) #x
#define FD_PATH(fd) "/proc/self/fd/" STRINGIFY (fd)

/* Runs at the top of the first 4 GiB. */
static const guint8 guest[] = {
  0xfa,                                           /*     cli */
  0x2e, 0x66, 0x0f, 0x01, 0x16, 0x50, 0x00,       /*     lgdtl %cs:descriptors */
  0x0f, 0x20, 0xc0,                               /*     mov %cr0, %eax */
  0x0c, 0x01,                                     /*     or $1, %al */
  0x0f, 0x22, 0xc0,                               /*     mov %eax, %cr0 */
  0x66, 0xea, 0x18, 0x00, 0xff, 0xff, 0x08, 0x00, /*     ljmpl $8, $flat */
  0xb8, 0x10, 0x00, 0x00, 0x00,                   /* flat: mov $16, %eax */
  0x8e, 0xd8,                                     /*     mov %eax, %ds */
  0x8e, 0xd0,                                     /*     mov %eax, %ss */
  0x9b, 0xdb, 0xe3,                               /*     finit */
  0x31, 0xc0,                                     /*     xor %eax, %eax */
  0x0f, 0xa2,                                     /*     cpuid */
  0xb8, 0x2a, 0x00, 0x00, 0x00,                   /*     mov $42, %eax */
  0x66, 0xba, 0xf4, 0x00,                         /*     mov $0xf4, %dx */
  0xee,                                           /*     out %al, (%dx) */
  0xf4,                                           /* end: hlt */
  0xeb, 0xfd,                                     /*     jmp end */
  0x90, 0x90, 0x90,
  0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, /* no segment */
  0xff, 0xff, 0x00, 0x00, 0x00, 0x9b, 0xcf, 0x00, /* all of the memory as code */
  0xff, 0xff, 0x00, 0x00, 0x00, 0x93, 0xcf, 0x00, /* and as data */
  0x17, 0x00, 0x38, 0x00, 0xff, 0xff,             /* descriptors: size and place of these three */
};
/* A jump to the first byte. */
static const guint8 reset[] = { 0xe9, 0x0d, 0x00 };

void
vmm_host_kvm_clear (VmmHostKvm *self)
{
  vmm_host_file_clear (&self->qemu);
  vmm_host_device_clear (&self->device);
  g_clear_pointer (&self->error, g_free);
  self->ask_again_us = 0;
  self->known = FALSE;
  self->usable = FALSE;
}

/* The guest as a file without a name; -1 when it cannot be made. */
static int
make_firmware (GError **error)
{
  g_autofree guint8 *image = g_malloc0 (FIRMWARE_SIZE);
  int fd = memfd_create ("vmm-kvm-probe", MFD_CLOEXEC);

  memcpy (image, guest, sizeof guest);
  memcpy (image + RESET_VECTOR, reset, sizeof reset);
  if (fd >= 0 && write (fd, image, FIRMWARE_SIZE) == FIRMWARE_SIZE)
    return fd;
  vmm_set_error (error, VMM_ERROR_INTERNAL, "make a guest to try: %s", g_strerror (errno));
  if (fd >= 0)
    close (fd);
  return -1;
}

static void
fail (VmmHostKvm *self, const char *why)
{
  self->known = TRUE;
  self->usable = FALSE;
  g_free (self->error);
  self->error = g_strdup (why);
}

static void
probed_cb (GObject *source, GAsyncResult *result, gpointer user_data)
{
  g_autoptr (GTask) task = user_data;
  VmmHostKvm *self = g_task_get_task_data (task);
  g_autoptr (GError) error = NULL;
  g_autofree char *output = vmm_host_probe_finish (result, &error);
  g_autofree char *why = NULL;

  self->known = TRUE;
  self->usable = output != NULL;
  if (error != NULL)
    {
      why = g_strdup_printf ("qemu does not run a guest with it: %s", error->message);
      fail (self, why);
    }
  if (g_error_matches (error, G_IO_ERROR, G_IO_ERROR_TIMED_OUT))
    self->ask_again_us = g_get_monotonic_time () + VMM_HOST_ASK_AGAIN_US;
  g_task_return_boolean (task, TRUE);
}

static gboolean
is_known (VmmHostKvm *self, const VmmHostFile *qemu, const VmmHostDevice *device)
{
  return self->known && vmm_host_file_equal (&self->qemu, qemu)
         && vmm_host_device_equal (&self->device, device)
         && (self->ask_again_us == 0 || g_get_monotonic_time () < self->ask_again_us);
}

static void
run_guest (VmmHostKvm *self, guint limit_ms, GTask *task)
{
  const char *const argv[] = {
    self->qemu.path, "-machine", "q35",  "-accel", "kvm", "-cpu",
    "host",         "-m",       "16M",  "-bios",  FD_PATH (VMM_HOST_PROBE_FD),
    "-nodefaults",  "-no-user-config",  "-display", "none",
    "-device",      "isa-debug-exit,iobase=0xf4,iosize=4", NULL,
  };
  g_autoptr (GError) error = NULL;
  VmmHostProbe probe = {
    .argv = argv,
    .limit_ms = limit_ms,
    .success = SUCCESS,
    .hopeless = "KVM internal error",
    .fd = make_firmware (&error),
  };

  if (error != NULL)
    {
      fail (self, error->message);
      g_task_return_boolean (task, TRUE);
      return;
    }
  vmm_host_probe_run_async (&probe, NULL, probed_cb, g_object_ref (task));
}

void
vmm_host_kvm_update_async (VmmHostKvm *self, const VmmHostFile *qemu, const VmmHostDevice *device,
                           guint limit_ms, GAsyncReadyCallback callback, gpointer user_data)
{
  g_autoptr (GTask) task = g_task_new (NULL, NULL, callback, user_data);

  g_task_set_source_tag (task, vmm_host_kvm_update_async);
  g_task_set_task_data (task, self, NULL);
  if (is_known (self, qemu, device))
    {
      g_task_return_boolean (task, TRUE);
      return;
    }
  vmm_host_kvm_clear (self);
  vmm_host_file_copy (qemu, &self->qemu);
  vmm_host_device_copy (device, &self->device);
  if (device->accessible && qemu->path != NULL)
    {
      run_guest (self, limit_ms, task);
      return;
    }
  fail (self, device->accessible ? "qemu was not found to run a guest with it" : device->error);
  g_task_return_boolean (task, TRUE);
}
